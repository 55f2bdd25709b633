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
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from textpriv import __version__
from textpriv.corpus import stores
from textpriv.corpus.formats import corpus_format
from textpriv.corpus.formats.csv import csv_row
from textpriv.corpus.options import ColumnRule, RunOptions
from textpriv.corpus.plan import Plan, beside, check_headers
from textpriv.corpus.records import Batch, compressed, needs_text
from textpriv.corpus.report import Progress
from textpriv.corpus.resume import known_by
from textpriv.corpus.stores import is_stream
from textpriv.engines.columns import Record
from textpriv.engines.local import mapped
from textpriv.errors import CorpusError, TextprivError
from textpriv.files import atomic_write, is_url, local_path, lost_by, sha256_file, umask
from textpriv.statement import PrivacyStatement
from textpriv.synthesis.features import Label
from textpriv.synthesis.release import NoisySums
from textpriv.synthesis.release import Release as Measurement
from textpriv.synthesis.sums import Sums, WordCounts
from textpriv.synthesis.synthesizer import PublicSide
from textpriv.tokenization.encoder import without_halves

_AT_ONCE = 4_000  # records that a worker adds at a time
_LONG = 4 << 20  # characters, after which it is fewer
_WRITTEN = 5_000  # records of a row group
_UNKNOWN_LABEL = (
    "expected one of the declared labels. Declare all of them (--labels), or correct this one."
)

NewRecords = Iterable[tuple[str, Label]]


@dataclass
class PrivateRecords:
    """The private records of some files, and how they are read.

    Parameters
    ----------
    plan : Plan
    classes : tuple of str or int
        The declared labels; one for records without labels.
    on_progress : callable, optional
    engine, address
        As of :class:`textpriv.corpus.RunOptions`.
    """

    plan: Plan
    classes: tuple[Label, ...]
    on_progress: Callable[[Progress], None] | None = None
    engine: str = "local"
    address: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)

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

    def read(self, begin: float, end: float) -> Iterator[list[Record]]:
        """Yield records in batches; progress goes from ``begin`` to ``end``."""
        documents = tokens = 0
        self.skipped.clear()
        for number in range(len(self.plan.files)):
            for batch in self.file(number):
                yield batch.records
                documents += len(batch)
                tokens += sum(text.count(" ") + 1 for text in batch.texts)
                if self.on_progress is not None:
                    share = batch.fraction and self.plan.fraction(number, batch.fraction)
                    done = None if share is None else begin + (end - begin) * share
                    self.on_progress(Progress(documents, tokens, done))

    def file(self, number: int) -> Iterator[Batch]:
        """Yield the records of a file in batches, with declared labels as their names."""
        known = {str(label): label for label in self.classes}
        for batch in self.plan.reader(number, needs_text):
            if self.plan.options.document_column is not None:
                batch = self._labelled(batch, known)
            self.skipped.update(bad.reason for bad in batch.bad)
            yield batch

    @staticmethod
    def _labelled(batch: Batch, known: Mapping[str, Label]) -> Batch:
        """Return a batch with declared labels; a record with another is a bad one."""
        found = [known.get(str(record.name)) for record in batch.records]
        if strange := [place for place, label in enumerate(found) if label is None]:
            if batch.reader.options.on_error == "fail":
                record = batch.positions[strange[0]] + 1
                raise CorpusError(f"{batch.reader.name}, record {record}: {_UNKNOWN_LABEL}")
            batch = batch.without(strange, "undeclared_label")
        labels = [label for label in found if label is not None]
        records = zip(batch.records, labels, strict=True)
        return replace(batch, records=[record._replace(name=label) for record, label in records])

    def measure(self, measurement: Measurement, index: str, workers: int) -> NoisySums:
        """Sum the records, and return the sums with noise. Nothing is measured where a record is refused."""
        space, begun = measurement.space, 0.0
        new: tuple[str, ...] = ()
        if measurement.new_words:
            counts, begun = WordCounts(space), 0.3
            self._add(counts, index, workers, (0.0, begun))
            new = measurement.words(counts)
            space = PublicSide(index, new_words=new).space(self.classes, space.authors)
        first = Sums(space)
        self._add(first, index, workers, (begun, 1.0 if self.is_stream else 0.6), new)
        if self.skipped and first.is_empty:
            raise CorpusError(
                f"every record was left out ({', '.join(self.skipped)}), so nothing was measured. Name the columns: "
                "--text-column, --label-column, --author."
            )
        # Topics need a second reading, which a stream has not.
        space = first.space if self.is_stream else measurement.topics(first)
        if space is not first.space:
            first = Sums(space, first.key)
            self._add(first, index, workers, (0.6, 1.0), new)
        return measurement.noisy(first)

    def _add(
        self,
        total: Any,
        index: str,
        workers: int,
        share: tuple[float, float],
        new_words: tuple[str, ...] = (),
    ) -> None:
        adder = _Adder(index, total.empty(), new_words)
        if self.engine != "local":
            self._add_elsewhere(total, adder, workers)
            return
        jobs = _grouped(self.read(*share))
        with contextlib.closing(mapped(jobs, adder, workers)) as parts:
            for part in parts:
                total.merge(part)

    def _add_elsewhere(self, total: Sums, adder: _Adder, workers: int) -> None:
        """Add the records on Spark or Ray, one task for each file."""
        self.skipped.clear()
        each = import_module(f"textpriv.engines.{self.engine}").each
        work = _FileAdder(replace(self, on_progress=None, skipped=Counter()), adder)
        files = range(len(self.plan.files))
        for done in each(files, work, address=self.address, workers=workers):
            if "error" in done:
                raise CorpusError(done["error"])
            total.merge_packed(base64.b64decode(done["sums"]))
            self.skipped.update(done["skipped"])


class _Adder:
    """Adds records to fresh sums, or counts of words; a worker has its own."""

    def __init__(self, index: str, sums: Any, new_words: tuple[str, ...]) -> None:
        self._index, self._sums, self._new = index, sums, new_words

    @cached_property
    def _encoder(self) -> Any:
        return PublicSide(self._index, new_words=self._new).encoder

    def __call__(self, batches: list[list[Record]]) -> Any:
        sums = self._sums.empty()
        for records in batches:
            texts = [str(record.texts[0]) for record in records]
            texts = [each if each.isascii() else without_halves(each) for each in texts]
            labels = [record.name for record in records]
            authors = [record.author for record in records]
            encoded = self._encoder.encode(texts)
            sums.add(encoded, None if labels[0] is None else labels, authors)
        return sums


@dataclass(frozen=True)
class _FileAdder:
    """Adds the records of one file, by its number; its result is made of JSON types."""

    records: PrivateRecords
    adder: _Adder

    def __call__(self, number: int) -> dict[str, Any]:
        skipped = self.records.skipped
        skipped.clear()  # a process may have a file after another
        total = self.adder([])
        try:
            for group in _grouped(batch.records for batch in self.records.file(number)):
                total.merge(self.adder(group))
        except TextprivError as error:
            return {"error": str(error)}
        return {"sums": base64.b64encode(total.packed()).decode(), "skipped": dict(skipped)}


def _grouped(batches: Iterable[list[Record]]) -> Iterator[list[list[Record]]]:
    """Yield batches in groups that are worth the way to a worker."""
    group: list[list[Record]] = []
    count = size = 0
    for records in filter(None, batches):
        group.append(records)
        count += len(records)
        size += sum(len(record.texts[0]) for record in records)
        if count >= _AT_ONCE or size >= _LONG:
            yield group
            group, count, size = [], 0, 0
    if group:
        yield group


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
        **options,
    )
    # The output has a format of its own.
    is_one = len(source) == 1 and not stores.is_pattern(source[0])
    plan = Plan.of(source, source[0] if is_one and not stores.is_folder(source[0]) else "", read)
    check_headers(plan)
    return plan


@dataclass(frozen=True)
class Output:
    """One file of new records.

    Parameters
    ----------
    name : str
        A path or URL whose extension shows the format, or "-" for JSON lines on standard output.
    columns : tuple of str
        The names of text and label; of the text alone without labels.
    """

    name: str
    columns: tuple[str, ...]

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

    def write(self, records: NewRecords, statement: PrivacyStatement) -> int:
        """Write new records, whole or not at all, then the manifest; return how many."""
        if is_stream(self.name):
            return self._write(records, sys.stdout.buffer)
        final, mode = local_path(self.name), 0o666 & ~umask()
        made, manifest = final, beside(final, "manifest.json")
        with contextlib.ExitStack() as stack:
            if is_url(self.name):
                place = stack.enter_context(tempfile.TemporaryDirectory(dir=final.parent))
                made, manifest = Path(place, "new"), Path(place, "manifest")
            manifest.unlink(missing_ok=True)  # of an output that is replaced
            with atomic_write(made, mode=mode) as raw:
                count = self._write(records, raw)
            told = {"textpriv": __version__, "format": self.kind[0], "records": count}
            told |= {"bytes": made.stat().st_size, "sha256": sha256_file(made)}
            told["statement"] = statement.to_dict()
            with atomic_write(manifest, mode=mode) as out:
                out.write(json.dumps(told, indent=1).encode() + b"\n")
            if is_url(self.name):
                stores.put(made, self.name)
                stores.put(manifest, f"{self.name}.manifest.json")
        return count

    def _write(self, records: NewRecords, raw: BinaryIO) -> int:
        count, given = 0, iter(records)
        with compressed(raw, self.kind[1]) as out, self._writer(out) as write:
            while group := [*islice(given, _WRITTEN)]:
                write(group)
                count += len(group)
        return count

    @contextlib.contextmanager
    def _writer(self, out: Any) -> Iterator[Callable[[list[tuple[str, Label]]], Any]]:
        format, names = self.kind[0], self.columns
        if format == "parquet":
            with contextlib.ExitStack() as opened:
                yield _Tables(names, out, opened).write
            return
        if format in ("csv", "tsv"):
            out.write(csv_row([*names], _DELIMITERS[format], "\n"))
        spelled = _SPELLED[format]
        yield lambda group: out.write(b"".join(spelled(names, record) for record in group))


class _Tables:
    """Writes groups of records as row groups of a Parquet file; the first one shows the type of labels."""

    def __init__(self, names: Sequence[str], out: Any, opened: contextlib.ExitStack) -> None:
        self._names, self._out, self._opened = names, out, opened
        self._file: Any = None

    def write(self, group: list[tuple[str, Label]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = map(list, zip(*group, strict=True))
        table = pa.table(dict(zip(self._names, columns, strict=False)))
        if self._file is None:
            file = pq.ParquetWriter(self._out, table.schema, compression="zstd")
            self._file = self._opened.enter_context(file)
        self._file.write_table(table)


def _json_line(names: Sequence[str], record: tuple[str, Label]) -> bytes:
    content = dict(zip(names, record, strict=False))
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _text_line(names: Sequence[str], record: tuple[str, Label]) -> bytes:
    return " ".join(record[0].splitlines()).encode() + b"\n"


def _csv_line(delimiter: str) -> Callable[[Sequence[str], tuple[str, Label]], bytes]:
    return lambda names, record: csv_row([*map(str, record[: len(names)])], delimiter, "\n")


_DELIMITERS = {"csv": ",", "tsv": "\t"}
_SPELLED = {name: _csv_line(each) for name, each in _DELIMITERS.items()}
_SPELLED |= {"jsonl": _json_line, "text": _text_line}


def kept_sums(path: Path, job: Mapping[str, Any], replace: bool) -> bool:
    """Whether the measurement of a killed run is in a file; one that was made otherwise is refused or replaced."""
    if not path.exists():
        return False
    _, header = NoisySums.read_file(path)
    before = header.get("job", {})
    changed = [name for name in {**before, **job} if before.get(name) != job.get(name)]
    if changed and not replace:
        raise CorpusError(
            f"{path} has the measurement of a run that ended early, made otherwise (changed: {', '.join(changed[:5])}). "
            f"Draw from it with --from {path}, or measure again with --force, which adds to the loss."
        )
    return not changed
