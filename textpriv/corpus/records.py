"""Records: batches of texts with what stands beside them, bad records, and the base of each format's reader and writer.

What lives here: what a record is, what is wrong with a bad one, the cursor in a file from which reading can go on, and what
all readers and writers share. What does not: the formats themselves (``corpus.formats``), what a text becomes
(``privatizer``), and which files make a corpus (``corpus.job``). A message names a file and a record, and never quotes one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv import stores
from textpriv.arguments import whole
from textpriv.corpus.columns import ColumnRule
from textpriv.errors import CorpusError, SpanError
from textpriv.spans.span import checked, read_labels

if TYPE_CHECKING:
    import pyarrow as pa

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
    "Format",
    "RecordError",
    "RecordWriter",
    "compressed",
    "concatenate",
    "is_stream",
    "not_utf8",
    "null_byte",
    "part_end",
    "part_of",
    "written_stream",
]

_PIECE = 1024 * 1024
ON_ERROR = ("fail", "skip", "quarantine")
STANDARD_STREAM = "-"
MAX_TEXT_BYTES = 8 * 1024 * 1024

# A record may carry other fields, and JSON may spell a character in six bytes, so it may be this much longer than its
# text.
RECORD_FACTOR = 8
# A batch closes at this many bytes of the file, so that many long records do not add up in memory.
BATCH_BYTES = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_SKIP_REMEDY = (
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
    """One record cannot be used: a short reason, and what was expected; never the content."""

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
        Its bytes as they stand in the file, for the quarantine; None where they were not read for it.
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
    record
        Records before it.
    line
        Lines before it; 0 in Parquet.
    offset
        Bytes before it, or None where a file cannot be entered in its middle: a compressed one is read over from its
        beginning, and Parquet goes by the record.
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
        Each record's 0-based number in its file; bad records and good ones count, blank lines do not (in ``text`` every
        line is a record).
    texts
        The documents, as long as ``positions``; none where all records were bad. Where several columns hold texts, those of
        the first; :meth:`CorpusReader.values` has the others.
    rows
        The whole records: dicts (``jsonl``), lists of fields (``csv``, ``tsv``), None each (``text``), or an Arrow record
        batch (``parquet``).
    bad
        The bad records between the batch before and the end of this one.
    start
        Records of the file before the first one that this batch covers, good or bad.
    end
        The cursor after the last one.
    """

    positions: list[int]
    texts: list[str]
    rows: Any
    bad: list[BadRecord] = field(default_factory=list)
    start: int = 0
    end: Cursor = Cursor()


# Records; the parts after it double, so that little is lost of a run that ends early.
_FIRST_PART = 1_250


def part_end(record: int, full: int) -> int:
    """Return the number of records before the part that follows a record's: its own end.

    Parts of a file end after 1,250 records and its doubles, as long as these are fewer than ``full``, then after every
    ``full`` records.
    """
    early = _FIRST_PART
    while early < full:
        if record < early:
            return early
        early *= 2
    return record - record % full + full


def part_of(record: int, full: int) -> int:
    """Return the number of the part, from 0, in which a record is; see :func:`part_end`."""
    part, end = 0, part_end(0, full)
    while end <= record and end < full:
        part, end = part + 1, part_end(end, full)
    return part if record < end else part + record // full


class CorpusReader:
    """Iterate over the batches of one file: the base of each format's reader; made by :func:`read_records`.

    Attributes
    ----------
    format
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"text"`` or ``"parquet"``.
    skipped
        Bad records left out so far, counted by reason (only with ``on_error`` other than ``"fail"``).
    columns
        The CSV header, the Parquet columns, or the field names of the first JSON record; empty for ``text``. Filled by
        the first batch.
    newline
        The line ending of the CSV header.
    schema
        The Arrow schema of a Parquet file; None for the other formats.
    """

    format: str
    schema: pa.Schema | None = None
    _record_is_line = True  # else the reader says where a record begins

    def __init__(
        self,
        path: str | os.PathLike[str],
        compression: str | None = None,
        text_columns: Sequence[str] = ("text",),
        on_error: str = "fail",
        batch_size: int = 1000,
        max_text_bytes: int = MAX_TEXT_BYTES,
        start: Cursor | None = None,
        stop: int | None = None,
        cut: int | None = None,
        names: Sequence[str] = (),
        labels: str | None = None,
    ) -> None:
        if on_error not in ON_ERROR:
            raise CorpusError(f"on_error must be one of {', '.join(ON_ERROR)}; found {on_error!r}.")
        self.path = os.fspath(path)
        self._compression = compression
        self.text_columns = tuple(text_columns)
        self.on_error = on_error
        self.batch_size = whole("batch_size", batch_size, error=CorpusError)
        self.max_text_bytes = whole("max_text_bytes", max_text_bytes, error=CorpusError)
        self.skipped: Counter[str] = Counter()
        self.columns: list[str] = []
        self.newline = "\n"
        self._start, self._stop, self._cut = start or Cursor(), stop, cut
        self._names = tuple(names)
        self._labels = labels
        self._position = 0
        self._line = 0
        self._record_line = 0
        self._offset = 0
        self._raw: BinaryIO | None = None
        self._size = 0

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard input" if self.path == STANDARD_STREAM else self.path

    @property
    def fraction(self) -> float | None:
        """The share of the file read so far, in [0, 1]; None for a stream."""
        if not self._size:
            return None
        if self._raw is None:  # closed again
            return 1.0
        try:
            return min(1.0, self._raw.tell() / self._size)
        except (OSError, ValueError):
            return None

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the first record on.

        Raises
        ------
        CorpusError
            At the first bad record (``on_error="fail"``), or if the file as a whole cannot be read.
        OSError
            If the file cannot be opened.
        """
        self.skipped.clear()
        self._position = self._line = self._record_line = self._offset = 0
        start = self._start.record
        positions: list[int] = []
        texts: list[str] = []
        rows: list[Any] = []
        bad: list[BadRecord] = []
        batch_offset = 0
        with self._open() as stream:
            for record in self._records(stream):
                position = self._position
                self._position += 1
                if record is None:  # before the start
                    batch_offset = self._offset
                    continue
                if isinstance(record, RecordError):
                    bad.append(self.refused(record, position))
                else:
                    text, row = record
                    positions.append(position)
                    texts.append(text)
                    rows.append(row)
                if (
                    len(texts) + len(bad) >= self.batch_size
                    or self._offset - batch_offset >= BATCH_BYTES
                    or self._ends_here()
                ):
                    yield Batch(positions, texts, rows, bad, start, self._cursor())
                    positions, texts, rows, bad = [], [], [], []
                    start, batch_offset = self._position, self._offset
                    if self._position == self._stop:
                        return
            if texts or bad:
                yield Batch(positions, texts, rows, bad, start, self._cursor())

    def values(self, batch: Batch, column: str) -> list[Any]:
        """What the records of a batch have in a column."""
        return [row[column] for row in batch.rows]

    def cursors(self) -> Iterator[Cursor]:
        """Yield the cursor after every part of ``cut`` records, and the last one at the end of the file; nothing is parsed.

        Raises
        ------
        CorpusError, OSError
            If the file as a whole cannot be read.
        """
        self._start, self._stop = Cursor(sys.maxsize, 0, None), None
        self._position = self._line = self._record_line = self._offset = 0
        with self._open() as stream:
            for _ in self._records(stream):
                self._position += 1
                if self._is_cut():
                    yield self._cursor()
            if not self._is_cut():
                yield self._cursor()

    def _ends_here(self) -> bool:
        return self._position == self._stop or self._is_cut()

    def _is_cut(self) -> bool:
        """Whether a part ends before the next record."""
        if self._cut is None or not self._position:
            return False
        return part_end(self._position - 1, self._cut) == self._position

    def _cursor(self) -> Cursor:
        return Cursor(
            self._position,
            self._line,
            self._offset if self._size and self._compression is None else None,
        )

    def refused(self, record: RecordError, position: int) -> BadRecord:
        """Count a bad record, or raise."""
        line = self._record_line
        if self.on_error == "fail":
            where = f"line {line} (record {position + 1})" if line else f"row {position + 1}"
            raise CorpusError(f"{self.name}, {where}: {record} {_SKIP_REMEDY}") from None
        self.skipped[record.reason] += 1
        return BadRecord(
            position, line, record.reason, record.raw if self.on_error == "quarantine" else None
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """Open the file for reading bytes, decompressed."""
        if self.path == STANDARD_STREAM:
            if sys.stdin is None:
                raise CorpusError("Standard input is closed: name a file.")
            self._raw = None
            yield sys.stdin.buffer
            return
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(stores.opened(self.path))
            self._raw, self._size = raw, 0
            if not is_stream(self.path):
                self._size = raw.seek(0, os.SEEK_END)
                raw.seek(0)
            stack.callback(setattr, self, "_raw", None)
            if self._compression == "gzip":
                yield stack.enter_context(gzip.open(raw, "rb"))  # type: ignore[misc]
            elif self._compression == "zstd":
                import pyarrow as pa

                yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
            else:
                yield raw

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | RecordError | None]:
        """Yield every record: a bad one as the error that it is, one before the start as None."""
        raise NotImplementedError

    def enter(self, stream: BinaryIO) -> None:
        """Go to the start, where the file can be entered there; else the records before it are read over."""
        cursor = self._start
        if cursor.offset and self._raw is not None and self._size and self._compression is None:
            stream.seek(cursor.offset)
            self._position, self._line, self._offset = cursor.record, cursor.line, cursor.offset

    # Lines ----------------------------------------------------------------------------------------

    def lines(self, stream: BinaryIO, limit: int) -> Iterator[bytes | RecordError]:
        """Yield lines with their endings, and an error for each line over the limit."""
        while True:
            first = not self._offset
            line = self._read_line(stream, limit + 1 + (len(_UTF8_MARK) if first else 0))
            if not line:
                return
            self._line += 1
            # A CSV record may have several lines, and its reader says where it begins.
            if self._record_is_line:
                self._record_line = self._line
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
            yield self.too_large()

    def _read_line(self, stream: BinaryIO, limit: int) -> bytes:
        try:
            line = stream.readline(limit)
        except (EOFError, zlib.error, OSError) as error:
            # A plain OSError is one of the disk, but for zstd, where Arrow says so of damage.
            is_plain = isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile)
            if is_plain and self._compression != "zstd":
                raise
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line "
                f"{self._line}. Make or fetch it again."
            ) from error
        self._offset += len(line)
        return line

    def too_large(self) -> RecordError:
        """A text or a record that is longer than may be."""
        return RecordError(
            "too_large",
            f"expected a text of at most {self.max_text_bytes:,} bytes, found a longer one.",
        )

    def line_records(
        self,
        stream: BinaryIO,
        parse: Callable[[str], tuple[str, Any]],
        limit: int,
        *,
        skips_blank: bool,
    ) -> Iterator[tuple[str, Any] | RecordError | None]:
        """Yield a record for each line of at most ``limit`` bytes."""
        self.enter(stream)
        for line in self.lines(stream, limit):
            if isinstance(line, bytes) and skips_blank and not line.strip():
                continue
            if self._position < self._start.record:
                yield None
            elif isinstance(line, RecordError):
                yield line
            else:
                try:
                    yield parse(self._decode(line))
                except RecordError as error:
                    error.raw = line
                    yield error

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            raise null_byte()
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise not_utf8() from None

    def check_name_columns(self) -> None:
        """Refuse a file whose header has not exactly one column for each name, and for labels."""
        for name, why in (
            *((each, "to count by") for each in self._names),
            (self._labels, "with labels"),
        ):
            if name is not None and (count := self.columns.count(name)) != 1:
                raise CorpusError(
                    f"{self.name}: expected one column named {name!r}, {why}; found {count} among {len(self.columns)}."
                )

    def check_labels(self, text: str, given: Any) -> None:
        """Raise for labels that cannot be read or do not fit their text."""
        try:
            checked(text, read_labels(given))
        except SpanError as error:
            raise RecordError("labels", str(error)) from None

    def check_names(self, values: Iterable[Any]) -> None:
        """Raise for a record without a name, as text or a whole number."""
        for name, value in zip(self._names, values, strict=True):
            if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                raise RecordError(
                    "missing_name",
                    f"expected a name, as text or a whole number, in {name!r}, to count by; found none.",
                )
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError:
                    raise not_utf8() from None

    def missing_text(self, column: str, others: int) -> RecordError:
        """A record without one of the text's columns."""
        return RecordError(
            "missing_text",
            f"expected a text in {column!r}, found {others} other column(s); name the column that holds the text with "
            "--text-column.",
        )

    def check_texts(self, texts: Sequence[str]) -> str:
        """Return the first text of a record; raise for any that is too large, no UTF-8, or no text."""
        for text in texts:
            self._check_text(text)
        return texts[0]

    def _check_text(self, text: str) -> None:
        if "\0" in text:
            raise null_byte()
        # A character is at most four bytes, so most texts need no encoding to be known as small
        # enough.
        if len(text) * 4 > self.max_text_bytes or not text.isascii():
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:  # half of a surrogate pair, spelled out in JSON
                raise not_utf8() from None
            if size > self.max_text_bytes:
                raise self.too_large()


def not_utf8() -> RecordError:
    """A record that is no UTF-8."""
    return RecordError("encoding", "expected UTF-8, found bytes or characters that are not.")


def null_byte() -> RecordError:
    """A record with a NUL character."""
    return RecordError(
        "null_byte",
        "expected UTF-8 text, found a NUL character (is the file UTF-16, or no text at all?).",
    )


class RecordWriter:
    """Write the batches of one file: the base of each format's writer.

    The bytes of an output are a function of its records alone: neither the batches nor the parts that they came in leave a
    trace.
    """

    def __init__(self, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> None:
        self._reader = reader
        self._out = out
        self._rule = rule

    def begin(self) -> None:
        """Write what comes before the first record of a file."""

    def write(self, batch: Batch, columns: Sequence[Sequence[str]]) -> None:
        """Write a batch's records with these texts, one list for each column that holds texts."""
        for row, *texts in zip(batch.rows, *columns, strict=True):
            self._out.write(self._record(row, texts))

    def close(self) -> None:
        """Write what comes after the last record; leaves the file below open."""

    def abandon(self) -> None:
        """Write nothing more: the file below is given up."""

    def _record(self, row: Any, texts: Sequence[str]) -> bytes:
        raise NotImplementedError

    def passing(self, names: Sequence[str]) -> list[int]:
        """The numbers of the columns that are written: the texts and those that pass the rule."""
        texts = self._reader.text_columns
        return [n for n, name in enumerate(names) if name in texts or self._rule.passes(name)]


@contextlib.contextmanager
def written_stream(name: str) -> Iterator[BinaryIO]:
    """Open standard output, a device or a pipe to write to; what was written has gone out after the block."""
    if name != STANDARD_STREAM:
        with open(name, "wb") as stream:
            yield stream
    elif sys.stdout is None:
        raise CorpusError("Standard output is closed: name a file.")
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


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


def concatenate(parts: Sequence[Path], out: BinaryIO, compression: str | None) -> None:
    """Write the bytes of finished parts one after the other."""
    with compressed(out, compression) as packed:
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, packed, _PIECE)


@dataclass(frozen=True)
class Format:
    """A file format: its reader and its writer.

    Attributes
    ----------
    name : str
    extensions : tuple of str
        The extensions that mean it.
    reader, writer : type
    join : callable
        Write the content of finished parts one after the other; called with the parts, the file and its compression.
    compressible : bool
        Whether a file may be compressed as a whole.
    """

    name: str
    extensions: tuple[str, ...]
    reader: type[CorpusReader]
    writer: type[RecordWriter]
    join: Callable[[Sequence[Path], BinaryIO, str | None], None]
    compressible: bool = True
