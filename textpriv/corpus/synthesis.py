"""Synthesis over a corpus: records of files are summed and measured once, and new records are written as one file.

The measurement is on the disk before any text is drawn. A run that was killed goes on from it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from textpriv import __version__
from textpriv.corpus import stores
from textpriv.corpus.formats import FORMATS, corpus_format
from textpriv.corpus.options import ColumnRule, RunOptions
from textpriv.corpus.plan import Plan, beside, check_headers
from textpriv.corpus.records import Batch, compressed, needs_text
from textpriv.corpus.report import Progress
from textpriv.corpus.resume import known_by
from textpriv.corpus.stores import is_stream
from textpriv.engines.local import mapped
from textpriv.errors import CorpusError, TextprivError
from textpriv.files import atomic_write, is_url, local_path, lost_by, sha256_file, umask
from textpriv.statement import PrivacyStatement
from textpriv.synthesis.features import Label
from textpriv.synthesis.release import Measurement, NoisySums
from textpriv.synthesis.sums import Sums
from textpriv.synthesis.synthesizer import PublicSide

_AT_ONCE = 1_000  # records that are worth the way to a worker, and are few in memory
_WRITTEN = 5_000  # new records that are written at a time
_UNKNOWN_LABEL = (
    "expected one of the declared labels. Declare all of them (--labels), or correct this one."
)


class LabelledTexts(NamedTuple):
    """Some private records: their texts, their declared labels and their authors, if there are any."""

    texts: Sequence[str]
    labels: list[Label] | None
    authors: Sequence[Any] | None


@dataclass
class PrivateRecords:
    """The private records of the files of a plan, with labels among the declared classes."""

    plan: Plan
    classes: tuple[Label, ...]  # one for records without labels
    documents: int = 0  # of the last reading
    skipped: Counter[str] = field(default_factory=Counter)  # of it, by reason

    @property
    def is_stream(self) -> bool:
        """Whether they can be read only once."""
        return any(is_stream(file.path) for file in self.plan.files)

    def known_by(self) -> dict[str, Any]:
        """Return what changes with the files; a stream is never known again. As private as the records."""
        return {
            f"input {file.name}".rstrip(): secrets.token_hex(16)
            if is_stream(file.path)
            else known_by(file.path)
            for file in self.plan.files
        }

    def read(
        self, files: Iterable[int], begun: float = 0.0, part: float = 1.0
    ) -> Iterator[LabelledTexts]:
        """Yield the records of files in batches; progress goes on from ``begun``, by a part of the whole work."""
        options, tokens = self.plan.options, 0
        known = {str(label): label for label in self.classes}
        self.documents = 0
        self.skipped.clear()
        for number in files:
            for batch in self.plan.reader(number, needs_text):
                labels, authors = None, None
                if options.document_column is not None:
                    # The column of labels was read as that of names.
                    found = [known.get(str(record.name)) for record in batch.records]
                    if strange := [place for place, label in enumerate(found) if label is None]:
                        if options.on_error == "fail":
                            place = f"{batch.reader.name}, record {batch.positions[strange[0]] + 1}"
                            raise CorpusError(f"{place}: {_UNKNOWN_LABEL}")
                        batch = batch.without(strange, "undeclared_label")
                    labels = [label for label in found if label is not None]
                self.skipped.update(bad.reason for bad in batch.bad)
                self.documents += len(batch)
                if options.author_column is not None:
                    authors = [record.author for record in batch.records]
                yield LabelledTexts(batch.texts, labels, authors)
                if options.on_progress is not None:
                    tokens += sum(text.count(" ") + 1 for text in batch.texts)
                    share = batch.fraction and self.plan.fraction(number, batch.fraction)
                    done = None if share is None else begun + part * share
                    options.on_progress(Progress(self.documents, tokens, done))

    def measure(self, measurement: Measurement, side: PublicSide) -> NoisySums:
        """Sum the records, and return the sums with noise. Nothing is measured where a record is refused."""
        options, files = self.plan.options, range(len(self.plan.files))
        # Topics need another reading, which a stream has not.
        readings = 1 if self.is_stream else 3 if measurement.new_words else 2
        begun = count()

        def add(total: Any, side: PublicSide) -> None:
            if options.engine == "local":
                batches = self.read(files, next(begun) / readings, 1 / readings)
                adder = partial(_summed, side, total.empty())
                with contextlib.closing(mapped(batches, adder, options.workers)) as parts:
                    for part in parts:
                        total.merge(part)
            else:
                self._add_elsewhere(total, side)
            if self.skipped and not self.documents:
                raise CorpusError(
                    f"every record was left out ({', '.join(self.skipped)}), so nothing was measured. Name the columns: "
                    "--text-column, --label-column, --author."
                )

        return measurement.measure(side, add, reads_again=not self.is_stream)

    def _add_elsewhere(self, total: Sums, side: PublicSide) -> None:
        """Add the records on Spark or Ray, one task for each file."""
        self.documents, options = 0, self.plan.options
        self.skipped.clear()
        plan = replace(self.plan, options=replace(options, on_progress=None))
        work = partial(_summed_file, PrivateRecords(plan, self.classes), side, total.empty())
        each = import_module(f"textpriv.engines.{options.engine}").each
        files = range(len(self.plan.files))
        for done in each(files, work, address=options.address, workers=options.workers):
            if "error" in done:
                raise CorpusError(done["error"])
            total.merge_packed(base64.b64decode(done["sums"]))
            self.documents += done["documents"]
            self.skipped.update(done["skipped"])


def _summed(side: PublicSide, empty: Any, records: LabelledTexts) -> Any:
    """Add records to fresh sums, or counts of words."""
    total = empty.empty()
    side.add(total, *records)
    return total


def _summed_file(
    records: PrivateRecords, side: PublicSide, empty: Sums, number: int
) -> dict[str, Any]:
    """Add the records of one file, by its number; the result is made of JSON types."""
    total = empty.empty()
    try:
        for batch in records.read([number]):
            side.add(total, *batch)
    except TextprivError as error:
        return {"error": str(error)}
    packed = base64.b64encode(total.packed()).decode()
    return {"sums": packed, "documents": records.documents, "skipped": dict(records.skipped)}


def plan_synthesis(
    source: Sequence[str], text: str, label: str | None, author: str | None, **options: Any
) -> Plan:
    """Return the files of private records, opened once; ``options`` are fields of RunOptions."""
    # A label is read as the name of a record: text or a whole number, in every record.
    read = RunOptions(
        text_column=text,
        document_column=label,
        author_column=author,
        columns=ColumnRule(drop=("*",)),
        batch_size=_AT_ONCE,
        part_records=_AT_ONCE,
        **options,
    )
    # The output has a format of its own.
    is_one = len(source) == 1 and not stores.is_pattern(source[0])
    plan = Plan.of(source, source[0] if is_one and not stores.is_folder(source[0]) else "", read)
    check_headers(plan)
    return plan


@dataclass(frozen=True)
class Output:
    """One file of new records."""

    name: str  # whose extension shows the format, or "-" for JSON lines on standard output
    columns: tuple[str, ...]  # the names of text and label, or that of the text alone

    @cached_property
    def kind(self) -> tuple[str, str | None]:
        """Format and compression."""
        format, compression = corpus_format(self.name)
        if format == "text" and len(self.columns) > 1:
            raise CorpusError(
                f"{self.name}: a text file has no column for labels. Write jsonl, csv or parquet."
            )
        return format or "jsonl", compression

    def check(self, read: Iterable[str | Path], others: Iterable[Path], replace: bool) -> None:
        """Refuse an output that cannot be written, would replace what is read, or is there."""
        self.kind  # noqa: B018 - refuses an unknown format
        files = [*others]
        if not is_stream(self.name):
            final = local_path(self.name)
            files += [final, beside(final, "manifest.json"), beside(final, "sums")]
            if not is_url(self.name) and final.is_dir():
                raise CorpusError(f"{self.name} is a folder. Name a file for the new records.")
        if (lost := lost_by(files, read)) is not None:
            raise CorpusError(f"{lost} is read, and would be written over. Name another output.")
        if len({*map(os.path.realpath, files)}) < len(files):
            raise CorpusError("two outputs are the same file. Name each apart.")
        if is_url(self.name):
            local_path(self.name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in files:
            if not each.parent.is_dir():
                raise CorpusError(f"Cannot write to {each}: its folder does not exist. Make it.")
        taken = [str(each) for each in others if each.exists()]
        if not is_stream(self.name) and stores.is_taken(self.name):
            taken.append(self.name)
        if taken and not replace:
            raise CorpusError(
                f"{taken[-1]} exists. A second measurement of the same people adds its loss to the first. Draw more from "
                "the first one with --from MODEL, name other files, or measure again with --force."
            )

    def write(self, records: Iterable[tuple[str, Label]], statement: PrivacyStatement) -> int:
        """Write new records, whole or not at all, then the manifest; return how many."""
        if is_stream(self.name):
            return self._write(records, sys.stdout.buffer)
        final, mode = local_path(self.name), 0o666 & ~umask()
        manifest = beside(final, "manifest.json")
        manifest.unlink(missing_ok=True)  # of an output that is replaced
        with atomic_write(final, mode=mode) as raw:
            written = self._write(records, raw)
        told = {"textpriv": __version__, "format": self.kind[0], "records": written}
        told |= {"bytes": final.stat().st_size, "sha256": sha256_file(final)}
        told["statement"] = statement.to_dict()
        with atomic_write(manifest, mode=mode) as out:
            out.write(json.dumps(told, indent=1).encode() + b"\n")
        if is_url(self.name):
            for path, url in ((final, self.name), (manifest, f"{self.name}.manifest.json")):
                stores.put(path, url)
                path.unlink()
        return written

    def _write(self, records: Iterable[tuple[str, Label]], raw: BinaryIO) -> int:
        """Write new records as the format's own writer does those of a file; return how many."""
        format, compression = self.kind
        reader = FORMATS[format](self.name, None, RunOptions(text_column=self.columns[0]))
        left, writer, written = iter(records), None, 0
        with compressed(raw, compression) as out:
            while group := [*islice(left, _WRITTEN)]:
                columns = dict(zip(self.columns, zip(*group, strict=True), strict=False))
                rows = reader.new_rows(columns)
                if writer is None:
                    writer = reader.writer(reader, out)
                    writer.begin()
                written += len(group)
                batch = Batch(reader, [], [], rows, [], written)
                writer.write(batch, [columns[self.columns[0]]])
            if writer is not None:
                writer.close()
        return written
