"""Parts of a file: records read, released and written one part at a time, and joined when all are there.

Which parts are finished already is known to ``corpus.checkpoint``; formats are read and written in ``corpus.formats``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv.corpus.checkpoint import Checkpoint, Entry
from textpriv.corpus.formats import FORMATS, writer_for
from textpriv.corpus.job import MOVED, Plan, names_in
from textpriv.corpus.records import (
    BadRecord,
    Batch,
    CorpusReader,
    Cursor,
    RecordWriter,
    part_end,
    part_of,
)
from textpriv.corpus.report import add_names, other_columns
from textpriv.engines.batch import (
    PrivatizerSettings,
    named_error,
    release_in_process,
)
from textpriv.engines.identity import Occurrences, repeated_name
from textpriv.engines.local import InProcess, Released
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileJoiner", "Identities", "PartRunner", "PartWriter", "join_file", "released_texts"]


def released_texts(
    plan: Plan, file: int, batch: Batch, released: Released
) -> tuple[list[list[str]], Counter[str]]:
    """Return what was released for a batch, or raise its error with the name of the record.

    Column by column; where spans stood and stand comes last, where that is asked for.
    """
    rows = batch.positions
    try:
        done, tokens = released.result()
    except TextprivError as error:
        raise named_error(error, lambda text: plan.record(file, rows[text % len(rows)])) from None
    if done is None:
        return [], tokens
    names = [*plan.columns.texts, *([MOVED] if plan.has_offsets else [])]
    return [done.column(name).to_pylist() for name in names], tokens


class Identities:
    """What tells the documents of a run apart: that no two have one name, or the numbers of equal texts.

    A ledger counts documents of one name as versions of one.
    """

    def __init__(self, plan: Plan, is_counted: bool) -> None:
        self._plan = plan
        self._is_needed = not (plan.names and is_counted)
        self._known = [Occurrences() for _ in (plan.names[:1] or plan.text_columns)]

    def of(self, file: int, reader: CorpusReader, batch: Batch) -> list[list[int]]:
        """Count a batch, and return the number of each text among the equal ones; nothing where documents have names.

        Raises
        ------
        CorpusError
            For a name that a document before has had; names the record.
        """
        if not self._is_needed:
            return []
        if not self._plan.names:
            texts = self._plan.texts(reader, batch)
            return [list(map(k.count, each)) for k, each in zip(self._known, texts, strict=True)]
        column = self._plan.names[0]
        names = names_in(reader, batch, column)
        for position, name in zip(batch.positions, names, strict=True):
            if self._known[0].count(name) > 1:
                raise repeated_name(self._plan.record(file, position), column)
        return []

    def read(self, file: int, stop: int | None = None) -> dict[int, list[int]]:
        """Count a file, or its first records; return the numbers of records where one is not 1."""
        later: dict[int, list[int]] = {}
        if self._is_needed:
            reader = self._plan.reader(file, stop=stop)
            for batch in reader:
                found = zip(*self.of(file, reader, batch), strict=True)
                for position, numbers in zip(batch.positions, found, strict=False):
                    if max(numbers) > 1:
                        later[position] = list(numbers)
        return later


class PartWriter:
    """The writer of one file, or of some parts of it, into a checkpoint."""

    def __init__(self, plan: Plan, folder: Checkpoint, file: int, reader: CorpusReader) -> None:
        self._plan = plan
        self._folder = folder
        self._file = file
        self._reader = reader
        self._stack: contextlib.ExitStack | None = None
        self._writer: RecordWriter | None = None
        self._documents = 0
        self._tokens: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._unprotected: dict[str, None] = {}
        self._matched: set[str] = set()
        self._end = Cursor()

    def write(self, batch: Batch, texts: Sequence[Sequence[str]], tokens: Counter[str]) -> None:
        """Write a batch; a part that is full is finished."""
        if self._writer is None:
            self._begin(part_of(batch.start, self._plan.part_records))
        assert self._writer is not None
        if self._plan.has_offsets and texts:
            *texts, moved = texts
            self._beside["moved"].writelines(self._moved(batch, moved))
        self._writer.write(batch, texts)
        self._documents += len(batch.texts)
        self._tokens.update(tokens)
        self._add_columns(batch.rows)
        for bad in batch.bad:
            self._skipped[bad.reason] += 1
            if self._plan.on_error == "quarantine":
                self._beside["quarantine"].write(self._quarantined(bad))
        self._end = batch.end
        if batch.end.record == part_end(batch.end.record - 1, self._plan.part_records):
            self._finish()

    def end(self, is_empty: bool) -> None:
        """Finish the last part; a file without records has one part without records."""
        if self._writer is None and is_empty:
            self._begin(0)
            self._add_columns(())  # of a header that stands alone
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

    def _add_columns(self, rows: Any) -> None:
        for names in other_columns(self._reader, rows, self._plan.partitions):
            add_names(self._unprotected, filter(self._plan.rule.passes, names))
            self._matched.update(self._plan.rule.matched(names))

    def _begin(self, part: int) -> None:
        self._documents, self._tokens, self._skipped = 0, Counter(), Counter()
        self._unprotected, self._matched = {}, set()
        self._part = part
        self._stack = contextlib.ExitStack()
        out, self._beside, self._done = self._stack.enter_context(
            self._folder.part(self._file, part)
        )
        self._writer = writer_for(self._reader, out, self._plan.rule)
        # Parts of lines are joined as they are, so only the first one has a header.
        if part == 0 or self._plan.format == "parquet":
            self._writer.begin()

    def _finish(self) -> None:
        assert self._writer is not None
        assert self._stack is not None
        self._writer.close()
        self._writer = None
        self._done.append(
            Entry(
                self._file,
                self._part,
                self._end,
                self._documents,
                dict(self._tokens),
                dict(self._skipped),
                unprotected=tuple(self._unprotected),
                matched=sorted(self._matched),
            )
        )
        stack, self._stack = self._stack, None
        stack.close()

    def _moved(self, batch: Batch, moved: Sequence[str]) -> Iterator[bytes]:
        """One line for each span of a batch: its record, kind, and offsets in the raw and in the private text."""
        name = self._plan.files[self._file][0]
        file = {"file": os.fsencode(name).decode("utf-8", "replace")} if name else {}
        documents: Sequence[str | None] = [None] * len(moved)
        if self._plan.names:
            documents = names_in(self._reader, batch, self._plan.names[0])
        for position, document, spans in zip(batch.positions, documents, moved, strict=True):
            record = {**file, "record": position + 1}
            if document is not None:
                record["document"] = document
            for span in json.loads(spans):
                yield json.dumps({**record, **span}).encode() + b"\n"

    def _quarantined(self, bad: BadRecord) -> bytes:
        """One line of the quarantine: where a bad record stands, why it is bad, and its bytes."""
        name = self._plan.files[self._file][0] or os.path.basename(self._reader.name)
        line: dict[str, Any] = {
            "file": os.fsencode(name).decode("utf-8", "replace"),
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


@dataclass(frozen=True)
class PartRunner:
    """Makes parts of a corpus in another process; what Spark and Ray are given to do.

    Attributes
    ----------
    plan
        The job.
    settings
        What the process builds its Privatizer from.
    context
        Goes before every identity.
    folder
        The checkpoint folder, on storage that all processes share.
    """

    plan: Plan
    settings: PrivatizerSettings
    context: bytes
    folder: str

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Make the parts of a task; an error that the user can correct comes back as its message."""
        return _result(self.folder, lambda: self._make(task))

    def _make(self, task: Mapping[str, Any]) -> None:
        local = InProcess(release_in_process(self.settings, self.plan.columns, self.context))
        file, stop = task["file"], task["stop"]
        start = Cursor(**task["start"])
        folder = Checkpoint.attach(Path(self.folder))
        reader = self.plan.reader(file, start, stop)
        first = [1] * len(self.plan.text_columns)

        def jobs() -> Iterator[tuple[Batch, pa.RecordBatch | None]]:
            for batch in reader:
                numbers = [task["later"].get(each, first) for each in batch.positions]
                found = [] if self.plan.names else list(zip(*numbers, strict=True))
                yield batch, self.plan.arrow(reader, batch, found)

        parts = PartWriter(self.plan, folder, file, reader)
        with contextlib.closing(parts):
            for batch, released in local.ordered(jobs()):
                texts, tokens = released_texts(self.plan, file, batch, released)
                parts.write(batch, texts, tokens)
            parts.end(is_empty=stop == 0)


@dataclass(frozen=True)
class FileJoiner:
    """Joins the parts of files in another process; see :class:`PartRunner`."""

    plan: Plan
    folder: str

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Join the parts of one file."""
        folder = Checkpoint.attach(Path(self.folder))
        return _result(self.folder, lambda: join_file(self.plan, folder, task["file"]))


def _result(folder: str, work: Callable[[], None]) -> dict[str, Any]:
    """Do work in a checkpoint folder, and return the message of an error that the user can correct."""
    try:
        work()
    except TextprivError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{error.strerror or type(error).__name__}: {error.filename or folder}"}
    return {}


def join_file(plan: Plan, folder: Checkpoint, file: int) -> None:
    """Join the parts of one file of the output."""
    closed = folder.closed_file(file)
    if closed is None:
        raise CorpusError("A file was not read to its end. Continue the run with --resume.")
    parts = folder.parts(file, closed[0])
    name, compression = plan.files[file][0], plan.compression_of(file)
    if len(parts) == 1 and compression is None:
        folder.adopt(parts[0], name)
        return
    with folder.result(name) as out:
        if not parts:
            raise CorpusError("No part was finished, so there is nothing to join.")
        FORMATS[plan.format].join(parts, out, compression)
