"""Records of a file: batches of texts with the columns beside them, bad records, and the base of readers and writers.

A message names a file and a record, and never quotes one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.corpus import stores
from textpriv.errors import CorpusError, SpanError
from textpriv.spans.span import checked, read_labels

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.corpus.columns import ColumnRule

__all__ = [
    "BATCH_BYTES",
    "MAX_TEXT_BYTES",
    "ON_ERROR",
    "RECORD_FACTOR",
    "STANDARD_STREAM",
    "BadRecord",
    "Batch",
    "CorpusReader",
    "Cursor",
    "LineReader",
    "Reading",
    "RecordError",
    "RecordWriter",
    "compressed",
    "is_stream",
    "not_utf8",
    "null_byte",
    "too_large",
]

ON_ERROR = ("fail", "skip", "quarantine")
STANDARD_STREAM = "-"
MAX_TEXT_BYTES = 8 * 1024 * 1024
# A record may carry other fields, and JSON may spell a character in six bytes.
RECORD_FACTOR = 8
# A batch closes at this many bytes of the file, so that many long records do not add up in memory.
BATCH_BYTES = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_REMEDY = (
    "Repair the record, leave such records out with --on-error skip (on_error='skip'), or set them aside with "
    "--on-error quarantine."
)


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

    def __init__(self, reason: str, message: str, raw: bytes | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.raw = raw


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
class Cursor:
    """A position between two records of a file, from which reading can go on.

    Attributes
    ----------
    record, line
        Records and lines before it; lines are 0 in Parquet.
    offset
        Bytes before it. None in Parquet and in a compressed file, which is read over from its beginning.
    """

    record: int = 0
    line: int = 0
    offset: int | None = 0


@dataclass(frozen=True)
class Batch:
    """A few consecutive good records.

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
        The cursor after the last one.
    fraction
        Share of the file before ``end``; None for a stream.
    """

    positions: list[int]
    values: list[tuple[Any, ...]]
    rows: Any
    bad: list[BadRecord]
    end: Cursor
    fraction: float | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def texts(self) -> list[Any]:
        """The texts of the first column."""
        return [each[0] for each in self.values]

    def column(self, number: int) -> list[Any]:
        """Return one column of ``values``."""
        return [each[number] for each in self.values]

    def without(self, bad: Sequence[BadRecord]) -> Batch:
        """Return the batch without some good records, which become bad ones."""
        left_out = {each.position for each in bad}
        kept = [n for n, position in enumerate(self.positions) if position not in left_out]
        if isinstance(self.rows, list):
            rows: Any = [self.rows[n] for n in kept]
        else:
            rows = self.rows.filter([position not in left_out for position in self.positions])
        return replace(
            self,
            positions=[self.positions[n] for n in kept],
            values=[self.values[n] for n in kept],
            rows=rows,
            bad=sorted([*self.bad, *bad], key=lambda each: each.position),
        )


@dataclass(frozen=True)
class Reading:
    """Which columns are read of each record, and what happens to a bad one.

    Attributes
    ----------
    text_columns, names, labels
        Columns with texts; with the name of each document, and perhaps of its author; with spans.
    on_error
        ``"fail"`` raises at the first bad record, ``"skip"`` leaves bad records out and counts them, ``"quarantine"`` also
        hands their bytes on.
    null
        A null text is kept (``"keep"``), a bad record (``"fail"``) or an empty text (``"empty"``).
    batch_size
        Most records in a batch; a batch also closes at about 4 MiB.
    part_records
        No batch crosses a multiple of this number.
    """

    text_columns: tuple[str, ...] = ("text",)
    names: tuple[str, ...] = ()
    labels: str | None = None
    on_error: str = "fail"
    null: str = "keep"
    batch_size: int = 1000
    part_records: int | None = None

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


class CorpusReader:
    """Iterate over the batches of one file: the base of each format's reader.

    Attributes
    ----------
    columns
        The CSV header, the Parquet columns, or the field names of the first JSON record; empty for ``text``. Filled by
        the first batch.
    """

    format: str

    def __init__(
        self,
        path: str,
        compression: str | None,
        reading: Reading,
        start: Cursor | None = None,
        stop: int | None = None,
    ) -> None:
        if reading.on_error not in ON_ERROR:
            raise CorpusError(
                f"on_error must be one of {', '.join(ON_ERROR)}; found {reading.on_error!r}."
            )
        self.path, self.reading = os.fspath(path), reading
        self.columns: list[str] = []
        self._compression = compression
        self._start, self._stop = start or Cursor(), stop

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard input" if self.path == STANDARD_STREAM else self.path

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the first record on; raise CorpusError for bad records and damaged files."""
        raise NotImplementedError

    def spelled(self, row: Any) -> bytes | None:
        """Return a good record as bytes, for the quarantine."""
        raise NotImplementedError

    def names_of(self, rows: Any) -> Iterator[Sequence[str]]:
        """Yield the names of the columns: those of the file, or of each row."""
        yield self.columns

    def is_border(self, position: int) -> bool:
        """Return whether a part, or what is to be read, ends before a record."""
        part = self.reading.part_records
        return position == self._stop or (part is not None and position % part == 0)

    def check_header(self, where: str, hint: str = "") -> list[int]:
        """Return the places of the columns that are read; refuse a file that has one of them not exactly once."""
        for name in self.reading.columns:
            if (count := self.columns.count(name)) != 1:
                raise CorpusError(
                    f"{self.name}{where}: expected one column named {name!r}, found {count} among {len(self.columns)} "
                    f"column(s). Name the column that contains the text with --text-column.{hint}"
                )
        return [self.columns.index(name) for name in self.reading.columns]


Parsed = tuple[tuple[Any, ...], Any]  # values of a record, and the whole record


class LineReader(CorpusReader):
    """The base of the readers of files of lines."""

    record_is_line = True  # else the reader says where a record begins

    def __iter__(self) -> Iterator[Batch]:
        self.position = self.line = self.record_line = self.offset = 0
        good: list[tuple[int, Parsed]] = []
        bad: list[BadRecord] = []
        before = 0
        with self._open() as stream:
            for record in self.records(stream):
                position = self.position
                self.position += 1
                if record is None:  # before the start
                    before = self.offset
                    continue
                if isinstance(record, RecordError):
                    where = position, self.record_line, record.raw
                    bad.append(self.reading.refused(self.name, record, *where))
                else:
                    good.append((position, record))
                is_full = len(good) + len(bad) >= self.reading.batch_size
                if is_full or self.offset - before >= BATCH_BYTES or self.is_border(self.position):
                    yield self._batch(good, bad)
                    good, bad, before = [], [], self.offset
                    if self.position == self._stop:
                        return
            if good or bad:
                yield self._batch(good, bad)

    def _batch(self, good: list[tuple[int, Parsed]], bad: list[BadRecord]) -> Batch:
        can_enter = self._size and self._compression is None
        end = Cursor(self.position, self.line, self.offset if can_enter else None)
        fraction = min(1.0, self._raw.tell() / self._size) if self._raw and self._size else None
        positions = [position for position, _ in good]
        values, rows = [each for _, (each, _) in good], [row for _, (_, row) in good]
        return Batch(positions, values, rows, bad, end, fraction)

    def records(self, stream: BinaryIO) -> Iterator[Parsed | RecordError | None]:
        """Yield every record: a bad one as the error that it is, one before the start as None."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """Open the file for reading bytes, decompressed."""
        self._raw: BinaryIO | None = None
        self._size = 0
        if self.path == STANDARD_STREAM:
            if sys.stdin is None:
                raise CorpusError("Standard input is closed: name a file.")
            yield sys.stdin.buffer
            return
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(stores.opened(self.path))
            if not is_stream(self.path):
                self._raw, self._size = raw, raw.seek(0, os.SEEK_END)
                raw.seek(0)
            if self._compression == "gzip":
                yield stack.enter_context(gzip.open(raw, "rb"))  # type: ignore[misc]
            elif self._compression == "zstd":
                import pyarrow as pa

                yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
            else:
                yield raw

    def enter(self, stream: BinaryIO) -> None:
        """Go to the start, where the file can be entered there; else the records before it are read over."""
        cursor = self._start
        if cursor.offset and self._raw is not None and self._compression is None:
            stream.seek(cursor.offset)
            self.position, self.line, self.offset = cursor.record, cursor.line, cursor.offset

    def lines(self, stream: BinaryIO, limit: int) -> Iterator[bytes | RecordError]:
        """Yield lines with their endings, and an error for each line over the limit."""
        while True:
            first = not self.offset
            line = self._read_line(stream, limit + 1 + (len(_UTF8_MARK) if first else 0))
            if not line:
                return
            self.line += 1
            if self.record_is_line:
                self.record_line = self.line
            if first:
                line = line.removeprefix(_UTF8_MARK)
                if not line:  # the mark alone
                    return
            if len(line) <= limit or (line.endswith(b"\n") and len(line) <= limit + 1):
                yield line
                continue
            piece = line
            while piece and not piece.endswith(b"\n"):
                piece = self._read_line(stream, 1 << 20)
            yield too_large()

    def _read_line(self, stream: BinaryIO, limit: int) -> bytes:
        try:
            line = stream.readline(limit)
        except (EOFError, zlib.error, OSError) as error:
            # A plain OSError is one of the disk, but for zstd, where Arrow says so of damage.
            is_plain = isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile)
            if is_plain and self._compression != "zstd":
                raise
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line {self.line}. Make or fetch it again."
            ) from error
        self.offset += len(line)
        return line

    def line_records(
        self, stream: BinaryIO, parse: Callable[[str], Parsed], limit: int, *, skips_blank: bool
    ) -> Iterator[Parsed | RecordError | None]:
        """Yield a record for each line of at most ``limit`` bytes."""
        self.enter(stream)
        for line in self.lines(stream, limit):
            if isinstance(line, bytes) and skips_blank and not line.strip():
                continue
            if self.position < self._start.record:
                yield None
            elif isinstance(line, RecordError):
                yield line
            else:
                try:
                    if b"\0" in line:
                        raise null_byte()
                    yield parse(line.decode("utf-8"))
                except UnicodeDecodeError:
                    yield RecordError("encoding", str(not_utf8()), line)
                except RecordError as error:
                    error.raw = line
                    yield error


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

    def abandon(self) -> None:
        """Give up the file."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        """Return one record as bytes."""
        raise NotImplementedError

    def passing(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the columns that are written: the texts and those that pass the rule."""
        texts = self._reader.reading.text_columns
        return [n for n, name in enumerate(names) if name in texts or self._rule.passes(name)]

    @staticmethod
    def join(parts: Sequence[Path], out: BinaryIO, schema: pa.Schema | None = None) -> None:
        """Write the content of finished parts one after the other."""
        for part in parts:
            with open(part, "rb") as file:
                while piece := file.read(1 << 20):
                    out.write(piece)


@contextlib.contextmanager
def compressed(raw: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Wrap an open file in a compressor that leaves it open, and writes the same bytes for the same content."""
    if compression == "gzip":
        # No name and no time inside, so that the same output is the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed:
            yield packed  # type: ignore[misc]
    elif compression == "zstd":
        import pyarrow as pa

        # Arrow closes the file below together with its own stream; the caller still has to flush it to the disk.
        with (
            open(os.dup(raw.fileno()), "wb") as below,
            pa.CompressedOutputStream(below, "zstd") as out,
        ):
            yield out
    else:
        yield raw
