"""The stages of a run: records are scanned in order, released in batches, and written one part at a time."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textpriv.corpus.folder import Checkpoint
from textpriv.corpus.formats import join_parts, writer_of
from textpriv.corpus.records import BadRecord, Batch, CorpusReader, RecordError, compressed
from textpriv.corpus.release import Plan
from textpriv.corpus.report import Counts
from textpriv.engines.batch import (
    BatchRelease,
    Occurrences,
    Released,
    named_error,
    release_in_process,
)
from textpriv.engines.local import Result, in_order
from textpriv.engines.settings import PrivatizerSettings
from textpriv.errors import CorpusError, TextprivError
from textpriv.files import flush

__all__ = ["PartRunner", "join_file", "make_parts", "scan"]

_ANNOUNCED = 1_000  # records of a corpus in which a new column is no surprise

Read = tuple[int, CorpusReader, Batch]  # the number of a file, its reader, and a batch of it


def scan(
    plan: Plan, is_counted: bool, announce: Callable[[tuple[str, ...]], None]
) -> Iterator[Read]:
    """Read a corpus in order, with the numbers of equal texts; refuse repeated names and columns that are new.

    Parameters
    ----------
    plan
    is_counted
        Whether a ledger counts documents of one name as versions of one.
    announce
        Called with the names of other columns that pass, at the first records that have them.
    """
    reading = plan.reading
    known = [Occurrences() for _ in (reading.names[:1] or reading.text_columns)]
    place = len(reading.text_columns) if reading.names else 0  # of what is counted
    columns, records = set(reading.text_columns), 0
    for file in range(len(plan.files)):
        reader = plan.reader(file)
        for batch in reader:
            if new := _new_columns(plan, file, reader, batch, columns, records):
                announce(tuple(new))
            records += len(batch)
            counted = [
                [1 if is_counted else each.count(value) for value in batch.column(place + n)]
                for n, each in enumerate(known)
            ]
            numbered = replace(batch, numbers=list(zip(*counted, strict=True)))
            yield file, reader, _without_repeated(plan, file, reader, numbered)


def _new_columns(
    plan: Plan, file: int, reader: CorpusReader, batch: Batch, columns: set[str], records: int
) -> list[str]:
    """Add the names of a batch to those that are known; return new ones that pass, and refuse late ones."""
    rule, found = plan.rule, []
    for row, names in enumerate(reader.names_of(batch.rows)):
        new = [] if columns.issuperset(names) else [name for name in names if name not in columns]
        columns.update(new)
        for name in filter(rule.passes, new):
            is_late = records + row >= _ANNOUNCED and not rule.decides(name)
            if is_late and rule.new == "fail":
                record = batch.positions[row] + 1 if len(batch) else 1
                raise CorpusError(
                    f"{plan.place(file)} {record}: the column {name!r} is new here and would be copied unprotected. List it "
                    "in --keep or --drop, or let new columns pass with --on-new-column keep."
                )
            found.append(name)
    return found


def _without_repeated(plan: Plan, file: int, reader: CorpusReader, batch: Batch) -> Batch:
    """Return a batch without the records whose name came before: equal texts under one name would come out equal."""
    if not plan.reading.names:
        return batch
    bad = []
    for row, (position, (number,)) in enumerate(zip(batch.positions, batch.numbers, strict=True)):
        if number == 1:
            continue
        error = RecordError(
            "repeated_name",
            f"a document before it has the same name in {plan.reading.names[0]!r}, and equal texts under one name would "
            "come out equal. Give each document a name of its own, or count versions of one in a ledger.",
        )
        own = batch.rows[row] if isinstance(batch.rows, list) else batch.rows.slice(row, 1)
        name = plan.files[file][0] or reader.name
        bad.append(plan.reading.refused(name, error, position, 0, reader.spelled(own)))
    return batch.without(bad) if bad else batch


def make_parts(
    plan: Plan,
    folder: Checkpoint,
    given: Iterable[Read],
    release: BatchRelease,
    settings: PrivatizerSettings | None = None,
    workers: int = 1,
) -> Generator[tuple[int, Batch, Counts], None, None]:
    """Release batches in order, and write them part by part; yield each with its file's number and its counts."""
    jobs = ((each, plan.rows(each[2])) for each in given)
    # Closed by name: on failure a worker pool must not live on in the traceback.
    with contextlib.closing(in_order(jobs, release, settings, workers)) as results:
        for key, own in itertools.groupby(
            results, lambda each: (each[0][0], plan.part_of(each[0][2]))
        ):
            yield from _make_part(plan, folder, *key, own)


def _make_part(
    plan: Plan, folder: Checkpoint, file: int, part: int, results: Iterator[tuple[Read, Result]]
) -> Generator[tuple[int, Batch, Counts], None, None]:
    writer = None
    with folder.part(file, part) as (files, counts), contextlib.ExitStack() as stack:
        for (_, reader, batch), result in results:
            if writer is None:
                writer = writer_of(plan.format, reader, files["part"], plan.rule)
                stack.callback(writer.close)
                if part == 0:  # parts are joined as they are, so only the first has a header
                    writer.begin()
            texts, tokens = _released(plan, file, batch, result)
            writer.write(batch, texts)
            if plan.reading.on_error == "quarantine":
                name = plan.files[file][0] or os.path.basename(reader.name)
                files["bad"].writelines(_set_aside(name, bad) for bad in batch.bad)
            columns = dict.fromkeys(itertools.chain.from_iterable(reader.names_of(batch.rows)))
            found = Counts(
                len(batch),
                sum(text is None for each in texts for text in each),
                Counter(tokens),
                Counter(bad.reason for bad in batch.bad),
                [name for name in columns if name not in plan.reading.text_columns],
            )
            counts.add(found)
            if batch.end % plan.reading.part_records == 0:
                break
            yield file, batch, found
        else:
            return
    # The last batch is told when the part is safe on the disk.
    yield file, batch, found


def _released(plan: Plan, file: int, batch: Batch, result: Result) -> Released:
    """Return what is released of a batch; name the record in an error."""
    try:
        return result()
    except TextprivError as error:
        where = plan.place(file)
        raise named_error(error, lambda row: f"{where} {batch.positions[row] + 1}") from None


def _set_aside(file: str, bad: BadRecord) -> bytes:
    """Return a line of the quarantine: where a bad record is, why it is bad, and its bytes."""
    name = os.fsencode(file).decode("utf-8", "replace")
    where = {"file": name, "record": bad.position + 1, "line": bad.line or None}
    line: dict[str, Any] = {**where, "reason": bad.reason}
    if bad.raw is not None:
        try:
            line["raw"] = bad.raw.decode("utf-8")
        except UnicodeDecodeError:
            line["raw_base64"] = base64.b64encode(bad.raw).decode("ascii")
    return json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"


@dataclass(frozen=True)
class PartRunner:
    """Makes the parts of a file in another process, for Spark and Ray.

    Attributes
    ----------
    plan
    settings
        What the process builds its Privatizer from.
    folder
        The checkpoint folder, on storage that all processes share.
    """

    plan: Plan
    settings: PrivatizerSettings
    folder: str

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Make the parts of a file that are missing; an error that the user can correct comes back as its message.

        Parameters
        ----------
        task
            ``"file"``: its number; ``"numbers"``: those of its records that are not the first of their kind.
        """
        folder = Checkpoint(Path(self.folder))
        try:
            release = release_in_process(self.settings, self.plan.columns)
            for _ in make_parts(self.plan, folder, self._missing(folder, **task), release):
                pass
        except TextprivError as error:
            return {"error": str(error)}
        except OSError as error:
            place = error.filename or self.folder
            return {"error": f"{error.strerror or type(error).__name__}: {place}"}
        return {}

    def _missing(self, folder: Checkpoint, file: int, numbers: Mapping[int, Any]) -> Iterator[Read]:
        plan, done, reader = self.plan, folder.entries(), self.plan.reader(file)
        first = (1,) if plan.reading.names else (1,) * len(plan.reading.text_columns)
        for batch in reader:
            if (file, plan.part_of(batch)) not in done:
                own = [numbers.get(position, first) for position in batch.positions]
                yield (
                    file,
                    reader,
                    _without_repeated(plan, file, reader, replace(batch, numbers=own)),
                )


def join_file(plan: Plan, folder: Checkpoint, file: int, parts: Iterable[int]) -> Path:
    """Join the parts of one file of the output; return where it is."""
    final = folder.result(plan.files[file][0])
    final.parent.mkdir(parents=True, exist_ok=True)
    with open(final, "wb") as out:
        with compressed(out, plan.compression_of(file)) as packed:
            join_parts(plan.format, [folder.file(file, part, "part") for part in parts], packed)
        flush(out)
    return final
