"""Records of a file: batches of texts with the columns beside them, bad records, and the bases of readers and writers.

A message names a file and a record, and never quotes one.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from textpriv.corpus import stores
from textpriv.errors import CorpusError, SpanError
from textpriv.spans.span import checked, read_labels

__all__ = [
    "BATCH_BYTES",
    "MAX_TEXT_BYTES",
    "STANDARD_STREAM",
    "BadRecord",
    "Batch",
    "ColumnRule",
    "CorpusReader",
    "LineReader",
    "Reading",
    "RecordError",
    "RecordWriter",
    "compressed",
    "is_stream",
    "not_utf8",
    "null_byte",
    "record_limit",
    "too_large",
]

STANDARD_STREAM = "-"
MAX_TEXT_BYTES = 8 * 1024 * 1024
# A batch closes at this many bytes of the file, so that many long records do not add up in memory.
BATCH_BYTES = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_REMEDY = (
    "Repair the record, leave such records out with --on-error skip (on_error='skip'), or set them aside with "
    "--on-error quarantine."
)


def record_limit() -> int:
    """Return the most bytes of a record: it has other fields, and JSON may spell a character in six bytes."""
    return 8 * MAX_TEXT_BYTES


def is_stream(name: str) -> bool:
    """Return whether a path is a standard stream, a device or a pipe."""
    if name == STANDARD_STREAM:
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class RecordError(Exception):
    """A bad record: a short reason, and what was expected; never the content."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def too_large() -> RecordError:
    """Return the error of a text or a record that is too long."""
    return RecordError(
        "too_large", f"expected a text of at most {MAX_TEXT_BYTES:,} bytes, found a longer one."
    )


def not_utf8() -> RecordError:
    """Return the error of a record that is not UTF-8."""
    return RecordError("encoding", "expected UTF-8, found bytes or characters that are not.")


def null_byte() -> RecordError:
    """Return the error of a record with a NUL character."""
    return RecordError(
        "null_byte",
        "expected UTF-8 text, found a NUL character (is the file UTF-16, or no text at all?).",
    )


@dataclass(frozen=True)
class BadRecord:
    """A record that was left out.

    Attributes
    ----------
    position
        0-based number in its file.
    line
        1-based line on which it begins; 0 in Parquet, which has none.
    reason
        A short name, such as ``"encoding"``.
    raw
        Its bytes, for the quarantine; None without one.
    """

    position: int
    line: int
    reason: str
    raw: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Batch:
    """A few consecutive good records; a file without records has one batch without records.

    Attributes
    ----------
    positions
        Each record's 0-based number in its file. Bad records count, blank lines do not.
    values
        For each record its texts, its names and its labels, as :class:`Reading` lists them. A null text is None.
    rows
        The whole records: dicts (``jsonl``), lists of fields (``csv``, ``tsv``), None each (``text``), or an Arrow record
        batch (``parquet``).
    bad
        The bad records between the batch before and the end of this one.
    end
        Records of the file until the end of this batch.
    fraction
        Share of the file before the end; None for a stream.
    numbers
        For each record how often its name, or each of its texts, came until then; filled in by the scan of a corpus.
    """

    positions: list[int]
    values: list[tuple[Any, ...]]
    rows: Any
    bad: list[BadRecord]
    end: int
    fraction: float | None = None
    numbers: Sequence[tuple[int, ...]] = ()

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def texts(self) -> list[Any]:
        """The texts of the first column."""
        return self.column(0)

    def column(self, number: int) -> list[Any]:
        """Return one column of ``values``."""
        return [each[number] for each in self.values]

    def without(self, bad: Sequence[BadRecord]) -> Batch:
        """Return the batch without some good records, which become bad ones."""
        left_out = {each.position for each in bad}
        is_kept = [position not in left_out for position in self.positions]
        kept = [n for n, stays in enumerate(is_kept) if stays]
        is_list = isinstance(self.rows, list)
        return replace(
            self,
            positions=[self.positions[n] for n in kept],
            values=[self.values[n] for n in kept],
            rows=[self.rows[n] for n in kept] if is_list else self.rows.filter(is_kept),
            bad=sorted([*self.bad, *bad], key=lambda each: each.position),
            numbers=[self.numbers[n] for n in kept],
        )


@dataclass(frozen=True)
class ColumnRule:
    """Which columns beside the texts pass through; those that do are not protected.

    Attributes
    ----------
    keep
        Patterns (``*`` and ``?``) of the names that pass; None for all.
    drop
        Patterns of the names that do not, also where ``keep`` has them.
    new
        A column that first appears after the first 1,000 records ends the run (``"fail"``), unless ``keep`` or ``drop`` has
        it; ``"keep"`` lets it pass.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    new: str = "fail"

    def passes(self, name: str) -> bool:
        """Return whether a column of this name passes."""
        return _passes(self, name)

    def decides(self, name: str) -> bool:
        """Return whether ``keep`` or ``drop`` decides about this column."""
        return self.keep is not None or _matches(self.drop, name)

    def unmatched(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the patterns, mistyped ones perhaps, that match none of the names."""
        patterns = dict.fromkeys([*(self.keep or ()), *self.drop])
        return tuple(p for p in patterns if p != "*" and not fnmatch.filter(names, p))


@lru_cache(maxsize=4096)
def _passes(rule: ColumnRule, name: str) -> bool:
    return not _matches(rule.drop, name) and (rule.keep is None or _matches(rule.keep, name))


def _matches(patterns: Collection[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Reading:
    """Which columns are read of each record, and what happens to a bad one.

    Attributes
    ----------
    text_columns, names, labels
        Columns with texts; with the name of each document, and perhaps of its author; with spans.
    on_error, null, part_records
        As in :class:`textpriv.corpus.Release`. No batch crosses a multiple of ``part_records``.
    batch_size
        Most records in a batch; a batch also closes at about 4 MiB.
    """

    text_columns: tuple[str, ...] = ("text",)
    names: tuple[str, ...] = ()
    labels: str | None = None
    on_error: str = "fail"
    null: str = "keep"
    batch_size: int = 1000
    part_records: int = 5_000

    def __post_init__(self) -> None:
        if self.on_error not in ("fail", "skip", "quarantine"):
            raise CorpusError(
                f"on_error must be fail, skip or quarantine; found {self.on_error!r}."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.text_columns, *self.names, *([self.labels] if self.labels else []))

    def checked(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of a record, in the order of ``columns``; raise RecordError where it is bad."""
        texts = [self._text(*each) for each in zip(self.text_columns, values, strict=False)]
        rest = values[len(texts) :]
        names = [_name(*each) for each in zip(self.names, rest, strict=False)]
        if self.labels is None:
            return (*texts, *names)
        try:
            checked(texts[0] or "", read_labels(rest[-1]))
        except SpanError as error:
            raise RecordError("labels", str(error)) from None
        return (*texts, *names, rest[-1])

    def _text(self, column: str, text: Any) -> str | None:
        if text is None and self.null != "fail":
            return "" if self.null == "empty" else None
        if isinstance(text, bytes):  # of a column of texts in Parquet
            raise not_utf8()
        if not isinstance(text, str):
            found = "none (null)" if text is None else f"a value of type {type(text).__name__}"
            reason = "null" if text is None else "wrong_type"
            raise RecordError(reason, f"expected a text in {column!r}, found {found}.")
        _check_text(text)
        return text

    def refused(
        self, file: str, error: RecordError, position: int, line: int, raw: bytes | None
    ) -> BadRecord:
        """Return a bad record that is left out, or raise."""
        if self.on_error == "fail":
            where = f"line {line} (record {position + 1})" if line else f"record {position + 1}"
            raise CorpusError(f"{file}, {where}: {error} {_REMEDY}") from None
        kept = raw if self.on_error == "quarantine" else None
        return BadRecord(position, line, error.reason, kept)


def _name(column: str, value: Any) -> str:
    """Return a name; 7 and "7" are one, for CSV cannot distinguish them."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise RecordError(
            "missing_name", f"expected a name, as text or a whole number, in {column!r}."
        )
    _check_text(name := str(value))
    return name


def _check_text(text: str) -> None:
    if "\0" in text:
        raise null_byte()
    # A character is at most four bytes, so most texts are known to be small enough without being encoded.
    if len(text) * 4 > MAX_TEXT_BYTES or not text.isascii():
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:  # half of a surrogate pair, spelled out in JSON
            raise not_utf8() from None
        if size > MAX_TEXT_BYTES:
            raise too_large()


class CorpusReader:
    """Iterate over the batches of one file: the base of each format's reader.

    Attributes
    ----------
    columns
        The CSV header, the Parquet columns, or the field names of the first JSON record; empty for ``text``. Filled by
        the first batch.
    """

    format: str

    def __init__(self, path: str, compression: str | None, reading: Reading) -> None:
        self.path, self.reading = path, reading
        self.columns: list[str] = []
        self._compression = compression

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard input" if self.path == STANDARD_STREAM else self.path

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches; raise CorpusError for bad records and damaged files."""
        raise NotImplementedError

    def spelled(self, row: Any) -> bytes | None:
        """Return a record as bytes, for the quarantine."""
        raise NotImplementedError

    def names_of(self, rows: Any) -> Iterator[Sequence[str]]:
        """Yield the names of the columns: those of the file, or of each row."""
        yield self.columns

    def check_header(self, where: str, hint: str = "") -> list[int]:
        """Return the places of the columns that are read; refuse a file that has one of them not exactly once."""
        for name in self.reading.columns:
            if (count := self.columns.count(name)) != 1:
                raise CorpusError(
                    f"{self.name}{where}: expected one column named {name!r}, found {count} among {len(self.columns)} "
                    f"column(s). Name the column that contains the text with --text-column.{hint}"
                )
        return [self.columns.index(name) for name in self.reading.columns]


class LineReader(CorpusReader):
    """The base of the readers of files of lines."""

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, Any]]:
        """Yield each record, as it is in the file, with its first line."""
        raise NotImplementedError

    def parse(self, unit: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the values that are read of a record, and the whole record; raise RecordError."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Batch]:
        good: list[tuple[int, tuple[Any, ...], Any]] = []
        bad: list[BadRecord] = []
        self._offset = before = end = 0
        with self._open() as (stream, progress):

            def batch() -> Batch:
                where, values, rows = map(list, zip(*good, strict=True) if good else ([], [], []))
                return Batch(where, values, rows, bad, end, progress())

            for position, (line, unit) in enumerate(self.units(self._lines(stream))):
                end = position + 1
                try:
                    good.append((position, *self.parse(unit)))
                except RecordError as error:
                    raw = self.spelled(unit)
                    bad.append(self.reading.refused(self.name, error, position, line, raw))
                is_full = len(good) + len(bad) >= self.reading.batch_size
                is_part = end % self.reading.part_records == 0
                if is_full or is_part or self._offset - before >= BATCH_BYTES:
                    yield batch()
                    good, bad, before = [], [], self._offset
            if good or bad or not end:
                yield batch()

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[BinaryIO, Any]]:
        """Open the file for reading bytes, decompressed; yield it, and a function to say how much of it was read."""
        if self.path == STANDARD_STREAM:
            if sys.stdin is None:
                raise CorpusError("Standard input is closed: name a file.")
            yield sys.stdin.buffer, lambda: None
            return
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(stores.opened(self.path))
            size = 0 if is_stream(self.path) else raw.seek(0, os.SEEK_END)
            if size:
                raw.seek(0)
            is_packed = self._compression == "gzip"
            stream: Any = stack.enter_context(gzip.open(raw, "rb")) if is_packed else raw
            yield stream, lambda: min(1.0, raw.tell() / size) if size else None

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        """Yield lines with their endings; of one over the limit no more than shows that it is."""
        limit = record_limit() + 2
        number = 0
        try:
            while line := stream.readline(limit + len(_UTF8_MARK) + 1):
                number += 1
                piece = line
                while len(piece) >= limit and not piece.endswith(b"\n"):
                    piece = stream.readline(limit)
                    self._offset += len(piece)
                self._offset += len(line)
                if number == 1 and not (line := line.removeprefix(_UTF8_MARK)):
                    return
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line {number}. Make or fetch it again."
            ) from error


class RecordWriter:
    """Write the batches of one file: the base of each format's writer.

    The bytes of an output follow from its records alone, however they are cut into batches.
    """

    def __init__(self, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> None:
        self._reader, self._out, self._rule = reader, out, rule

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

    def passing(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the columns that are written: the texts and those that pass the rule."""
        texts = self._reader.reading.text_columns
        return [n for n, name in enumerate(names) if name in texts or self._rule.passes(name)]

    @staticmethod
    def join(parts: Sequence[Path], out: BinaryIO) -> None:
        """Write the content of finished parts one after the other."""
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)


@contextlib.contextmanager
def compressed(raw: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Wrap an open file in a compressor that leaves it open, and writes the same bytes for the same content."""
    if compression is None:
        yield raw
        return
    # No name and no time inside, so that the same output is the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed:
        yield packed  # type: ignore[misc]
