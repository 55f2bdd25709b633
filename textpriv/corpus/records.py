"""Records of a file: batches, bad records, which no message quotes, and the bases of readers and writers."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from textpriv.corpus import stores
from textpriv.corpus.options import RunOptions
from textpriv.corpus.stores import STANDARD_STREAM, is_stream
from textpriv.engines.batch import REPEATED_NAME
from textpriv.engines.columns import Record
from textpriv.errors import CorpusError, SpanError
from textpriv.spans.span import checked, read_labels

MAX_TEXT_BYTES = 8 * 1024 * 1024
# A batch closes at this many bytes of the file, so that many long records do not add up in memory.
BATCH_BYTES = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {
    "gzip": rb"\x1f\x8b",
    "bz2": rb"BZh.1AY&SY",
    "zstd": rb"\x28\xb5\x2f\xfd",
}  # their first bytes
_REMEDY = "Repair it, or leave such records out with --on-error skip (on_error='skip')."
_EXPECTED = {
    "encoding": "expected UTF-8, found others. Name the file's encoding: --encoding latin-1.",
    "labels": "expected labels, [] for none.",
    "malformed": "expected one JSON object on the line, found something else.",
    "null_byte": "expected UTF-8 text, found a NUL character (is the file UTF-16, or no text at all?).",
    "repeated_name": REPEATED_NAME,
    "too_large": f"expected a text of at most {MAX_TEXT_BYTES:,} bytes, found a longer one.",
}

# Gives, for a record and its place in its file, how often its name, or each of its texts, came until then;
# counted over all files by ``scan`` in parts.py.
Numbering = Callable[[int, Record], Sequence[int]]
Readline = Callable[[int], bytes]  # as that of a file: at most so many bytes of the next line


def record_limit() -> int:
    """Return the most bytes of a record: it has other fields, and JSON may spell a character in six bytes."""
    return 8 * MAX_TEXT_BYTES


class RecordError(Exception):
    """A bad record: a short reason, and what was expected; never the content."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or _EXPECTED[reason])
        self.reason = reason


@dataclass(frozen=True)
class BadRecord:
    """A record that was left out."""

    position: int  # from 0
    line: int  # on which it begins, from 1; 0 in Parquet, which has none
    reason: str
    raw: bytes | None = field(default=None, repr=False)  # for the quarantine


@dataclass(frozen=True)
class Batch:
    """A few consecutive good records; a file without records has one batch without records."""

    reader: CorpusReader
    positions: list[int]  # from 0 in the file; bad records count, blank lines do not
    records: list[Record]  # what decides the release
    rows: Any  # whole records: dicts (jsonl), lists (csv, tsv), None each (text), an Arrow record batch (parquet)
    bad: list[BadRecord]  # between the batch before and the end of this one
    end: int  # records of the file until the end of this batch
    fraction: float | None = None  # of the file before the end; None for a stream

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def texts(self) -> list[Any]:
        """The texts of the first column."""
        return [record.texts[0] for record in self.records]

    @property
    def names(self) -> list[str]:
        """The names of the columns of its records."""
        return self.reader.names_of(self.rows)

    def without(self, refused: Collection[int], reason: str = "limit") -> Batch:
        """Return the batch without records, such as those that a ledger refuses, which are bad ones now."""
        bad = [*self.bad]
        for place in refused:
            row = self.reader.chosen(self.rows, [place])
            raw = self.reader.quarantined(row[0] if isinstance(row, list) else row)
            bad.append(BadRecord(self.positions[place], 0, reason, raw))
        kept = [place for place in range(len(self)) if place not in refused]
        return replace(
            self,
            positions=[self.positions[place] for place in kept],
            records=[self.records[place] for place in kept],
            rows=self.reader.chosen(self.rows, kept),
            bad=sorted(bad, key=lambda each: each.position),
        )


class RecordWriter:
    """Write the batches of one file: the base of each format's writer.

    The bytes of an output follow from its records alone, however they are cut into batches.
    """

    def __init__(self, reader: CorpusReader, out: BinaryIO) -> None:
        self._reader, self._out = reader, out

    def begin(self) -> None:
        """Write the header of a file."""

    def write(self, batch: Batch, columns: Sequence[Sequence[str | None]]) -> None:
        """Write a batch's records with these texts, one list for each column of texts."""
        for row, *texts in zip(batch.rows, *columns, strict=True):
            self._out.write(self.record(row, texts))

    def close(self) -> None:
        """Write what comes after the last record; leaves the file below open."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        """Return one record as bytes."""
        raise NotImplementedError

    @staticmethod
    def join(parts: Sequence[Path], out: BinaryIO, source: str = "") -> None:
        """Write the content of finished parts of a source one after the other."""
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)


class CorpusReader:
    """Iterate over the batches of one file: the base of each format's reader."""

    format: str  # its name
    extensions: tuple[str, ...]  # of its files
    writer: type[RecordWriter]

    def __init__(
        self,
        path: str,
        compression: str | None,
        options: RunOptions,
        number: Numbering | None = None,
    ) -> None:
        self.path, self.options, self.texts = path, options, options.texts
        # The CSV header, the Parquet columns, or the names of the first JSON record; filled by the first batch.
        self.columns: list[str] = []
        self.number = number or (lambda position, record: (1,))
        self._compression = compression
        self.file = 0  # its number in a plan
        self.version = stores.version(path)

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard input" if self.path == STANDARD_STREAM else self.path

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches; raise CorpusError for bad records and damaged files."""
        raise NotImplementedError

    def check_unchanged(self) -> None:
        """Refuse a local file that is not the one that the run began with."""
        if self.version is not None and stores.version(self.path) != self.version:
            raise CorpusError(
                f"{self.name} changed while it was read. Run again when it is complete."
            )

    def header(self) -> list[str]:
        """Open the file, and return the names of the columns that all its records have."""
        stores.opened(self.path).close()
        return []

    def spelled(self, row: Any) -> bytes | None:
        """Return a record as bytes, for the quarantine."""
        raise NotImplementedError

    def quarantined(self, row: Any) -> bytes | None:
        """Return what is kept of a bad record, as it is in the file."""
        return self.spelled(row) if self.options.on_error == "quarantine" else None

    def chosen(self, rows: Any, places: Sequence[int]) -> Any:
        """Return some of the records of a batch."""
        return [rows[place] for place in places]

    def new_rows(self, columns: Mapping[str, Sequence[Any]]) -> Any:
        """Return new records as rows for the writer, in place of a file's; the first column has the texts."""
        self.columns = [*columns]
        return [None] * len(columns[self.columns[0]])

    def names_of(self, rows: Any) -> list[str]:
        """Return the names of the columns of whole records."""
        return self.columns

    def record(self, position: int, values: Mapping[str, Any]) -> Record:
        """Check the values of a record that are read, and number it; raise RecordError where it is bad."""
        record = self.options.record(values)
        for column, text in zip(self.texts, record.texts, strict=True):
            if isinstance(text, str):
                _check_characters(text)
            elif text is not None:
                found = type(text).__name__
                raise RecordError(
                    "wrong_type", f"expected a text in {column!r}, found type {found}."
                )
        for column in filter(None, (self.options.document_column, self.options.author_column)):
            name = values.get(column)
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                raise RecordError("missing_name", f"expected a name or a number in {column!r}.")
            _check_characters(str(name))
        if self.options.labels_column is not None:
            try:
                checked(record.texts[0] or "", read_labels(record.labels))
            except SpanError as error:
                raise RecordError("labels", str(error)) from None
        numbers = self.number(position, record)
        if self.options.document_column is not None and max(numbers) > 1:
            raise RecordError("repeated_name")
        return record._replace(numbers=numbers)

    def refused(self, error: RecordError, position: int, line: int, row: Any) -> BadRecord:
        """Return a bad record that is left out, or raise."""
        if self.options.on_error == "fail":
            where = f"line {line} (record {position + 1})" if line else f"record {position + 1}"
            raise CorpusError(f"{self.name}, {where}: {error} {_REMEDY}") from None
        return BadRecord(position, line, error.reason, self.quarantined(row))


def needs_text(position: int, record: Record) -> tuple[int, ...]:
    """Refuse a record without a text, where records are not released but counted."""
    if None in record.texts:
        raise RecordError("null", "expected a text, found none (null).")
    return (1,)


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise RecordError("null_byte")
    # A character is at most four bytes, so most texts are known to be small enough without being encoded.
    if len(text) * 4 > MAX_TEXT_BYTES or not text.isascii():
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:  # half of a surrogate pair, spelled out in JSON
            raise RecordError("encoding") from None
        if size > MAX_TEXT_BYTES:
            raise RecordError("too_large")


class LineReader(CorpusReader):
    """The base of the readers of files of lines."""

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, Any]]:
        """Yield each record, as it is in the file, with its first line."""
        raise NotImplementedError

    def parse(self, unit: Any) -> tuple[Mapping[str, Any], Any]:
        """Return the values of a record by column, and the whole record; raise RecordError."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Batch]:
        places: list[int] = []
        records: list[Record] = []
        rows: list[Any] = []
        bad: list[BadRecord] = []
        end = size = 0
        with self._open() as (readline, progress, has_more):
            for position, (line, unit) in enumerate(self.units(self._lines(readline))):
                end = position + 1
                size += len(unit) if isinstance(unit, bytes) else sum(map(len, unit))
                try:
                    values, row = self.parse(unit)
                    records.append(self.record(position, values))
                    places.append(position)
                    rows.append(row)
                except RecordError as error:
                    bad.append(self.refused(error, position, line, unit))
                is_full = len(rows) + len(bad) >= self.options.batch_size
                is_part = end % self.options.part_records == 0
                if is_full or is_part or size >= BATCH_BYTES or not has_more():
                    yield Batch(self, places, records, rows, bad, end, progress())
                    places, records, rows, bad, size = [], [], [], [], 0
            self.check_unchanged()
            if rows or bad or not end:
                yield Batch(self, places, records, rows, bad, end, progress())

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Readline, Callable[[], float | None], Callable[[], bool]]]:
        """Open the file; yield functions for the next line in UTF-8, the share that was read, and whether more is there."""
        is_other = is_stream(self.path)
        with contextlib.ExitStack() as stack:
            raw: Any = sys.stdin.buffer
            if self.path != STANDARD_STREAM:
                raw = stack.enter_context(stores.opened(self.path))
            size = 0 if is_other else raw.seek(0, os.SEEK_END)
            if size:
                raw.seek(0)
            stream = _unpacked(raw, self._compression)
            readline: Readline = stream.readline
            if (encoding := self.options.encoding) is not None:
                # A byte that has no meaning stays one, so that its record is a bad one.
                lines = io.TextIOWrapper(stream, encoding, "surrogateescape", "\n")
                stack.callback(lines.detach)
                readline = lambda most: lines.readline(most).encode("utf-8", "surrogateescape")  # noqa: E731

            def progress() -> float | None:
                return min(1.0, raw.tell() / size) if size else None

            yield readline, progress, partial(_has_more, raw) if is_other else lambda: True

    def _lines(self, readline: Readline) -> Iterator[bytes]:
        """Yield lines with their endings; of one over the limit no more than shows that it is."""
        limit = record_limit() + 2
        number = 0
        try:
            while line := readline(limit + len(_UTF8_MARK) + 1):
                number += 1
                piece = line
                while len(piece) >= limit and not piece.endswith(b"\n"):
                    piece = readline(limit)
                if number == 1:
                    if line.startswith(_UTF16_MARKS):
                        raise CorpusError(f"{self.name} is UTF-16. Read it with --encoding utf-16.")
                    if not (line := line.removeprefix(_UTF8_MARK)):
                        return
                yield line
        except UnicodeDecodeError:
            encoding = self.options.encoding
            raise CorpusError(
                f"{self.name}: expected {encoding}, found other bytes after line {number}. Correct --encoding."
            ) from None
        except OSError as error:
            if error.errno is not None:  # of the system or a store
                raise
            told = f"{self.name}: the compressed file is damaged or cut short after line {number}."
            raise CorpusError(f"{told} Make or fetch it again.") from error


def _unpacked(raw: Any, compression: str | None) -> Any:
    """Return a file decompressed, by its first bytes or else by its name."""
    first = raw.peek(10) if hasattr(raw, "peek") else b""
    found = [name for name, begin in _PACKED.items() if re.match(begin, first)]
    if not (kind := found[0] if found else compression) or not first:
        return raw
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(raw, kind))


def _has_more(raw: Any) -> bool:
    """Return whether a stream has bytes now; a record must not wait for the next one."""
    try:
        return bool(select.select([raw.fileno()], [], [], 0)[0])
    except OSError:  # it is in memory
        return True


@contextlib.contextmanager
def compressed(raw: BinaryIO, compression: str | None) -> Iterator[Any]:
    """Wrap an open file in a compressor that leaves it open, and writes the same bytes for the same content."""
    if compression is None:
        yield raw
        return
    import pyarrow as pa

    raw.flush()
    with (
        open(raw.fileno(), "wb", closefd=False) as out,
        pa.output_stream(out, compression=compression) as packed,
    ):
        yield packed
