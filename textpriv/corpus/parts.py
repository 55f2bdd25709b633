"""Parts of a file: records are read in order, released in batches and written one part at a time."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv.corpus.folder import Checkpoint, Entry
from textpriv.corpus.formats import WRITERS
from textpriv.corpus.records import (
    BadRecord,
    Batch,
    CorpusReader,
    Cursor,
    RecordError,
    RecordWriter,
    compressed,
)
from textpriv.corpus.release import MOVED, Plan
from textpriv.engines.batch import PrivatizerSettings, named_error, release_in_process
from textpriv.engines.identity import Occurrences
from textpriv.engines.local import InProcess
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartRunner", "PartWriter", "Scan", "join_file", "released_texts"]

_ANNOUNCED = 1_000  # records of a corpus in which a new column is no surprise

Numbers = list[tuple[int, ...]]  # of each record: how often its name, or its texts, came until then


class Scan:
    """One pass over a corpus, in order: numbers of equal texts, repeated names, and columns that are new.

    Parameters
    ----------
    plan
    is_counted
        Whether a ledger counts documents of one name as versions of one.
    announce
        Called with the names of other columns that pass, at the first records that have them.
    """

    def __init__(
        self, plan: Plan, is_counted: bool, announce: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._plan, self._announce = plan, announce
        reading = plan.reading
        self._is_counted = is_counted and bool(reading.names)
        self._known = [Occurrences() for _ in (reading.names[:1] or reading.text_columns)]
        self._columns: set[str] = set(reading.text_columns)
        self._records = 0

    def batches(self, file: int, reader: CorpusReader) -> Iterator[tuple[Batch, Numbers]]:
        """Yield the batches of a file; raise CorpusError for what the options refuse."""
        for batch in reader:
            self._check_columns(file, reader, batch)
            numbers = self._numbers(batch)
            yield told_apart(self._plan, file, reader, batch, numbers), numbers

    def _numbers(self, batch: Batch) -> Numbers:
        if self._is_counted:
            return [(1,)] * len(batch)
        names = len(self._plan.reading.text_columns) if self._plan.reading.names else 0
        counted = [
            [1 if each is None else known.count(each) for each in batch.column(names + place)]
            for place, known in enumerate(self._known)
        ]
        return list(zip(*counted, strict=True))

    def _check_columns(self, file: int, reader: CorpusReader, batch: Batch) -> None:
        rule, new = self._plan.rule, dict[str, None]()
        for row, names in enumerate(reader.names_of(batch.rows)):
            if self._columns.issuperset(names):
                continue
            for name in names:
                if name in self._columns:
                    continue
                self._columns.add(name)
                if not rule.passes(name):
                    continue
                is_late = self._records + row >= _ANNOUNCED and not rule.decides(name)
                if is_late and rule.new == "fail":
                    record = batch.positions[row] + 1 if len(batch) else 1
                    raise CorpusError(
                        f"{self._plan.place(file)} {record}: the column {name!r} is new here and would be "
                        "copied unprotected. List it in --keep or --drop, or let new columns pass with --on-new-column keep."
                    )
                new[name] = None
        self._records += len(batch)
        if new:
            self._announce(tuple(new))


def told_apart(
    plan: Plan, file: int, reader: CorpusReader, batch: Batch, numbers: Numbers
) -> Batch:
    """Return a batch without the records whose name came before: equal texts under one name would come out equal."""
    if not plan.reading.names:
        return batch
    bad = []
    for row, (position, (number, *_)) in enumerate(zip(batch.positions, numbers, strict=True)):
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


def released_texts(
    plan: Plan, file: int, batch: Batch, result: Callable[[], tuple[Any, Counter[str]]]
) -> tuple[list[list[str | None]], Counter[str]]:
    """Return the private texts of a batch column by column, offsets last; name the record in an error."""
    try:
        done, tokens = result()
    except TextprivError as error:
        where = plan.place(file)
        raise named_error(error, lambda row: f"{where} {batch.positions[row] + 1}") from None
    if done is None:
        return [[]] * len(plan.reading.text_columns), tokens
    names = [*plan.columns.texts, *([MOVED] if plan.has_offsets else [])]
    return [done.column(name).to_pylist() for name in names], tokens


class PartWriter:
    """The writer of some parts of one file into a checkpoint."""

    def __init__(self, plan: Plan, folder: Checkpoint, file: int, reader: CorpusReader) -> None:
        self._plan, self._folder, self._file, self._reader = plan, folder, file, reader
        self._stack: contextlib.ExitStack | None = None
        self._writer: RecordWriter | None = None
        self._entry = Entry(file, 0, Cursor())

    def write(
        self, batch: Batch, texts: Sequence[Sequence[str | None]], tokens: Mapping[str, int]
    ) -> Entry:
        """Write a batch, and return its counts; a part that is full is finished."""
        if self._writer is None:
            self._begin(self._plan.part_of(batch))
        assert self._writer is not None
        columns = len(self._plan.reading.text_columns)
        if len(texts) > columns:
            self._files["moved"].writelines(self._moved(batch, texts[columns]))
        self._writer.write(batch, texts[:columns])
        for bad in batch.bad if self._plan.reading.on_error == "quarantine" else ():
            self._files["bad"].write(self._set_aside(bad))
        other = self._other_columns(batch.rows)
        found = replace(
            self._entry,
            end=batch.end,
            documents=len(batch),
            nulls=sum(text is None for each in texts[:columns] for text in each),
            tokens=dict(tokens),
            skipped=dict(Counter(bad.reason for bad in batch.bad)),
            unprotected=[name for name in other if self._plan.rule.passes(name)],
            matched=self._plan.rule.matched(other),
        )
        self._entry = _sum(self._entry, found)
        if self._reader.is_border(batch.end.record):
            self._finish()
        return found

    def end(self, is_empty: bool) -> None:
        """Finish the last part; a file without records has one part without records."""
        if is_empty:
            self._begin(0)
            other = self._other_columns([])
            passing = [name for name in other if self._plan.rule.passes(name)]
            matched = self._plan.rule.matched(other)
            self._entry = replace(self._entry, unprotected=passing, matched=matched)
        if self._writer is not None:
            self._finish()

    def close(self) -> None:
        """Give up a part that is not finished."""
        stack, self._stack = self._stack, None
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        if stack is not None:
            # What could not be written may fail again when its file is closed.
            with contextlib.suppress(OSError):
                stack.close()

    def _other_columns(self, rows: Any) -> list[str]:
        found = dict.fromkeys(name for names in self._reader.names_of(rows) for name in names)
        return [name for name in found if name not in self._plan.reading.text_columns]

    def _begin(self, part: int) -> None:
        self._entry = Entry(self._file, part, Cursor())
        self._stack = contextlib.ExitStack()
        self._files, self._done = self._stack.enter_context(self._folder.part(self._file, part))
        writer = WRITERS[self._plan.format]
        self._writer = writer(self._reader, self._files["part"], self._plan.rule)
        if part == 0:  # parts of lines are joined as they are, so only the first has a header
            self._writer.begin()

    def _finish(self) -> None:
        assert self._writer is not None
        assert self._stack is not None
        self._writer.close()
        self._writer = None
        self._done.append(self._entry)
        stack, self._stack = self._stack, None
        stack.close()

    def _moved(self, batch: Batch, moved: Sequence[str | None]) -> Iterator[bytes]:
        """One line for each span of a batch: its record, kind, and offsets in the raw and in the private text."""
        name = self._plan.files[self._file][0]
        reading = self._plan.reading
        for row, (position, spans) in enumerate(zip(batch.positions, moved, strict=True)):
            record: dict[str, Any] = {"file": _printable(name)} if name else {}
            record["record"] = position + 1
            if reading.names:
                record["document"] = batch.values[row][len(reading.text_columns)]
            for span in json.loads(spans or "[]"):
                yield json.dumps({**record, **span}).encode() + b"\n"

    def _set_aside(self, bad: BadRecord) -> bytes:
        """One line of the quarantine: where a bad record is, why it is bad, and its bytes."""
        line: dict[str, Any] = {
            "file": _printable(
                self._plan.files[self._file][0] or os.path.basename(self._reader.name)
            ),
            "record": bad.position + 1,
            "line": bad.line or None,
            "reason": bad.reason,
        }
        if bad.raw is not None:
            try:
                line["raw"] = bad.raw.decode("utf-8")
            except UnicodeDecodeError:
                line["raw_base64"] = base64.b64encode(bad.raw).decode("ascii")
        return json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"


def _sum(first: Entry, second: Entry) -> Entry:
    """Add the counts of a batch to those of its part."""
    return replace(
        second,
        part=first.part,
        documents=first.documents + second.documents,
        nulls=first.nulls + second.nulls,
        tokens=dict(Counter(first.tokens) + Counter(second.tokens)),
        skipped=dict(Counter(first.skipped) + Counter(second.skipped)),
        unprotected=list(dict.fromkeys([*first.unprotected, *second.unprotected])),
        matched=sorted({*first.matched, *second.matched}),
    )


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


@dataclass(frozen=True)
class PartRunner:
    """Makes parts of a corpus in another process, for Spark and Ray.

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
        """Make the parts of a task; an error that the user can correct comes back as its message."""
        try:
            self._make(task)
        except TextprivError as error:
            return {"error": str(error)}
        except OSError as error:
            place = error.filename or self.folder
            return {"error": f"{error.strerror or type(error).__name__}: {place}"}
        return {}

    def _make(self, task: Mapping[str, Any]) -> None:
        local = InProcess(release_in_process(self.settings, self.plan.columns))
        plan, file, later = self.plan, task["file"], task["later"]
        reader = plan.reader(file, Cursor(**task["start"]), task["stop"])
        first = (1,) * len(plan.reading.text_columns)

        def jobs() -> Iterator[tuple[Batch, pa.RecordBatch | None]]:
            for batch in reader:
                numbers = [later.get(position, first) for position in batch.positions]
                own = told_apart(plan, file, reader, batch, numbers)
                yield own, plan.arrow(own, numbers)

        parts = PartWriter(plan, Checkpoint(Path(self.folder)), file, reader)
        with contextlib.closing(parts):
            for batch, released in local.ordered(jobs()):
                parts.write(batch, *released_texts(plan, file, batch, released.result))
            parts.end(is_empty=task["stop"] == 0)


def join_file(plan: Plan, folder: Checkpoint, file: int, entries: Iterable[Entry]) -> None:
    """Join the parts of one file of the output."""
    parts = [folder.file(file, each.part, "part") for each in entries]
    final = folder.result(plan.files[file][0])
    final.parent.mkdir(parents=True, exist_ok=True)
    compression = plan.compression_of(file)
    if len(parts) == 1 and compression is None:
        with contextlib.suppress(OSError):
            os.link(parts[0], final)
            return
    with open(final, "wb") as out:
        with compressed(out, compression) as packed:
            WRITERS[plan.format].join(parts, packed)
        out.flush()
        os.fsync(out.fileno())
