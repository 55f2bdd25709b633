"""Reading texts: JSONL, CSV, Parquet and lines become batches of records, in constant memory.

What lives here: the formats and how a path names them, records and what is wrong with a bad one, and the place in a file
from which reading can go on. What does not: writing (``writing``), what a text becomes (``privatizer``), and which files
make a corpus (``corpus``). A message names a file and a record, and never quotes one.

=========== ==================================== ==============================================
format      a record is                          the extension that means it
=========== ==================================== ==============================================
``jsonl``   one JSON object a line               ``.jsonl`` ``.ndjson``
``csv``     one row under a header, comma, UTF-8 ``.csv``
``text``    one line, the document itself        ``.txt`` ``.text``
``parquet`` one row                              ``.parquet``
=========== ==================================== ==============================================

The first three may end in ``.gz`` or ``.zst``. The path ``-`` is standard input or output, uncompressed.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMATS",
    "MAX_TEXT_BYTES",
    "ON_ERROR",
    "STANDARD_STREAM",
    "BadRecord",
    "Batch",
    "CorpusReader",
    "Place",
    "column_values",
    "corpus_format",
    "damage_told",
    "is_stream",
    "read_records",
]

FORMATS = ("jsonl", "csv", "text", "parquet")
ON_ERROR = ("fail", "skip", "quarantine")
STANDARD_STREAM = "-"
MAX_TEXT_BYTES = 8 * 1024 * 1024

_EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
    ".parquet": "parquet",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# A record may carry other fields, and JSON may spell a character in six bytes, so it may be this much longer than its
# text.
_RECORD_FACTOR = 8
# A batch closes at this many bytes of the file, so that many long records do not add up in memory.
_BATCH_BYTES = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_SKIP_REMEDY = (
    "Repair the record, leave such records out with --on-error skip (on_error='skip'), or set them aside with "
    "--on-error quarantine."
)


def corpus_format(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | None, str | None]:
    """Return the format and compression that a path stands for.

    Parameters
    ----------
    path
        A file name, or ``"-"`` for a standard stream.
    format
        ``"jsonl"``, ``"csv"``, ``"text"`` or ``"parquet"`` overrules the extension; None reads it.

    Returns
    -------
    tuple
        The format, or None where the path does not tell (``"-"``), and the compression (``"gzip"``, ``"zstd"`` or
        None; Parquet compresses within).

    Raises
    ------
    CorpusError
        If the format is unknown, or the extension is and no format is given.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"The format must be one of {', '.join(FORMATS)}; found {format!r}.")
    name = os.fspath(path)
    if name == STANDARD_STREAM:
        return format, None
    stem = Path(name)
    compression = _COMPRESSIONS.get(stem.suffix.lower())
    if compression is not None:
        stem = stem.with_suffix("")
    if format is None:
        format = _EXTENSIONS.get(stem.suffix.lower())
        # A device or a pipe has no extension to go by; the other end then decides.
        if format is None and not is_stream(name):
            raise CorpusError(
                f"Cannot tell the format of {name} from its name: expected one of "
                f"{' '.join(_EXTENSIONS)}, perhaps with {' or '.join(_COMPRESSIONS)} after it. "
                f"Say which it is with --format {'|'.join(FORMATS)}."
            )
    if format == "parquet" and compression is not None:
        raise CorpusError(
            f"{name}: Parquet compresses its columns itself, so a compressed Parquet file cannot be read in pieces. "
            "Decompress it."
        )
    return format, compression


def is_stream(name: str) -> bool:
    """Return whether a path is a standard stream, a device or a pipe."""
    if name == STANDARD_STREAM:
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _BadRecord(Exception):
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
        Its bytes as they stand in the file, for the quarantine; None where they were not kept.
    """

    position: int
    line: int
    reason: str
    raw: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Place:
    """A place between two records of a file, from which reading can go on.

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
        The documents, as long as ``positions``; none where all records were bad.
    rows
        The whole records: dicts (``jsonl``), lists of fields (``csv``), None each (``text``), or an Arrow record batch
        (``parquet``).
    bad
        The bad records between the batch before and the end of this one.
    start
        Records of the file before the first one that this batch covers, good or bad.
    end
        The place after the last one.
    """

    positions: list[int]
    texts: list[str]
    rows: Any
    bad: list[BadRecord] = field(default_factory=list)
    start: int = 0
    end: Place = Place()


class CorpusReader:
    """Iterate over the batches of one file; made by :func:`read_records`.

    Attributes
    ----------
    format
        ``"jsonl"``, ``"csv"``, ``"text"`` or ``"parquet"``.
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

    schema: pa.Schema | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        text_column: str = "text",
        on_error: str = "fail",
        batch_size: int = 1000,
        max_text_bytes: int = MAX_TEXT_BYTES,
        start: Place | None = None,
        stop: int | None = None,
        cut: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if on_error not in ON_ERROR:
            raise CorpusError(f"on_error must be one of {', '.join(ON_ERROR)}; found {on_error!r}.")
        if batch_size < 1:
            raise CorpusError(f"batch_size must be at least 1; found {batch_size}.")
        self.path = os.fspath(path)
        found, self._compression = corpus_format(path, format)
        self.format = found or "text"
        self.text_column = text_column
        self.on_error = on_error
        self.batch_size = batch_size
        self.max_text_bytes = max_text_bytes
        self.skipped: Counter[str] = Counter()
        self.columns: list[str] = []
        self.newline = "\n"
        self._start, self._stop, self._cut = start or Place(), stop, cut
        self._names = tuple(names)
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
        begun = 0
        with self._open() as stream:
            for record in self._records(stream):
                position = self._position
                self._position += 1
                if record is None:  # before the start
                    begun = self._offset
                    continue
                if isinstance(record, _BadRecord):
                    bad.append(self._refused(record, position))
                else:
                    text, row = record
                    positions.append(position)
                    texts.append(text)
                    rows.append(row)
                if (
                    len(texts) + len(bad) >= self.batch_size
                    or self._offset - begun >= _BATCH_BYTES
                    or self._ends_here()
                ):
                    yield Batch(positions, texts, rows, bad, start, self._place())
                    positions, texts, rows, bad = [], [], [], []
                    start, begun = self._position, self._offset
                    if self._position == self._stop:
                        return
            if texts or bad:
                yield Batch(positions, texts, rows, bad, start, self._place())

    def places(self) -> Iterator[Place]:
        """Yield the place after every ``cut`` records, and the last one at the end of the file; nothing is parsed.

        Raises
        ------
        CorpusError, OSError
            If the file as a whole cannot be read.
        """
        self._start, self._stop = Place(sys.maxsize, 0, None), None
        self._position = self._line = self._record_line = self._offset = 0
        with self._open() as stream:
            for _ in self._records(stream):
                self._position += 1
                if self._cut is not None and self._position % self._cut == 0:
                    yield self._place()
            if self._cut is None or self._position % self._cut or not self._position:
                yield self._place()

    def _ends_here(self) -> bool:
        return self._position == self._stop or (
            self._cut is not None and self._position % self._cut == 0
        )

    def _place(self) -> Place:
        return Place(
            self._position,
            self._line,
            self._offset if self._size and self._compression is None else None,
        )

    def _refused(self, record: _BadRecord, position: int) -> BadRecord:
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
            raw = stack.enter_context(open(self.path, "rb"))
            status = os.fstat(raw.fileno())
            self._raw, self._size = raw, status.st_size if stat.S_ISREG(status.st_mode) else 0
            stack.callback(setattr, self, "_raw", None)
            if self._compression == "gzip":
                yield stack.enter_context(gzip.open(raw, "rb"))  # type: ignore[misc]
            elif self._compression == "zstd":
                import pyarrow as pa

                yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
            else:
                yield raw

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | _BadRecord | None]:
        """Yield every record: a bad one as the error that it is, one before the start as None."""
        if self.format == "csv":
            return self._csv_records(stream)
        parse = self._parse_json if self.format == "jsonl" else self._parse_line
        return self._line_records(stream, parse)

    def _enter(self, stream: BinaryIO) -> None:
        """Go to the start, where the file can be entered there; else the records before it are read over."""
        place = self._start
        if place.offset and self._raw is not None and self._size and self._compression is None:
            stream.seek(place.offset)
            self._position, self._line, self._offset = place.record, place.line, place.offset

    # Lines ----------------------------------------------------------------------------------------

    def _lines(self, stream: BinaryIO, limit: int) -> Iterator[bytes | _BadRecord]:
        """Yield lines with their endings, and an error for each line over the limit."""
        while True:
            first = not self._offset
            line = self._read_line(stream, limit + 1 + (len(_UTF8_MARK) if first else 0))
            if not line:
                return
            self._line += 1
            # A CSV record may have several lines, and its reader says where it begins.
            if self.format != "csv":
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
            yield self._too_large()

    def _read_line(self, stream: BinaryIO, limit: int) -> bytes:
        try:
            line = stream.readline(limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line "
                f"{self._line}. Make or fetch it again."
            ) from error
        except OSError as error:
            if self._compression != "zstd":
                raise
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line "
                f"{self._line}. Make or fetch it again."
            ) from error
        self._offset += len(line)
        return line

    def _too_large(self) -> _BadRecord:
        return _BadRecord(
            "too_large",
            f"expected a text of at most {self.max_text_bytes:,} bytes, found a longer one.",
        )

    def _line_records(
        self, stream: BinaryIO, parse: Callable[[str], tuple[str, Any]]
    ) -> Iterator[tuple[str, Any] | _BadRecord | None]:
        limit = self.max_text_bytes * (_RECORD_FACTOR if self.format == "jsonl" else 1)
        self._enter(stream)
        for line in self._lines(stream, limit):
            if isinstance(line, bytes) and self.format == "jsonl" and not line.strip():
                continue
            if self._position < self._start.record:
                yield None
            elif isinstance(line, _BadRecord):
                yield line
            else:
                try:
                    yield parse(self._decode(line))
                except _BadRecord as error:
                    error.raw = line
                    yield error

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            raise _null_byte()
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise _not_utf8() from None

    def _parse_line(self, line: str) -> tuple[str, Any]:
        return line.removesuffix("\n").removesuffix("\r"), None

    def _parse_json(self, line: str) -> tuple[str, Any]:
        try:
            record = json.loads(line, parse_float=_finite)
        # Besides malformed text: numbers of thousands of digits, and nesting deeper than the
        # interpreter's stack.
        except (ValueError, RecursionError):
            raise _BadRecord(
                "malformed",
                "expected one JSON object on the line, found something that is no JSON.",
            ) from None
        if not isinstance(record, dict):
            raise _BadRecord(
                "malformed", f"expected a JSON object, found a JSON {_json_type(record)}."
            )
        if not self.columns:
            self.columns = list(record)
        if self.text_column not in record:
            raise _BadRecord(
                "missing_text",
                f"expected the field {self.text_column!r}, found {len(record)} other field(s); "
                "name the field that holds the text with --text-column.",
            )
        text = record[self.text_column]
        if not isinstance(text, str):
            raise _BadRecord(
                "wrong_type",
                f"expected a string in {self.text_column!r}, found a JSON {_json_type(text)}.",
            )
        self._check_names(record.get(name) for name in self._names)
        return self._check_text(text), record

    def _check_name_columns(self) -> None:
        for name in self._names:
            if (count := self.columns.count(name)) != 1:
                raise CorpusError(
                    f"{self.name}: expected one column named {name!r}, to count by; found {count} among "
                    f"{len(self.columns)}."
                )

    def _check_names(self, values: Iterable[Any]) -> None:
        for name, value in zip(self._names, values, strict=True):
            if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                raise _BadRecord(
                    "missing_name",
                    f"expected a name, as text or a whole number, in {name!r}, to count by; found none.",
                )
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError:
                    raise _not_utf8() from None

    def _check_text(self, text: str) -> str:
        if "\0" in text:
            raise _null_byte()
        # A character is at most four bytes, so most texts need no encoding to be known as small
        # enough.
        if len(text) * 4 > self.max_text_bytes or not text.isascii():
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:  # half of a surrogate pair, spelled out in JSON
                raise _not_utf8() from None
            if size > self.max_text_bytes:
                raise self._too_large()
        return text

    # CSV ------------------------------------------------------------------------------------------

    def _csv_records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | _BadRecord | None]:
        limit = self.max_text_bytes * _RECORD_FACTOR
        # The limit is one number for the whole process; it may only be raised, for others may have
        # raised it, too.
        csv.field_size_limit(max(csv.field_size_limit(), limit))
        lines = _CsvLines(self, stream, limit)
        rows = csv.reader(lines, strict=True)

        def next_row() -> list[str] | _BadRecord | None:
            lines.start_row()
            try:
                row = next(rows, None)
            except (csv.Error, _BadRecord) as error:
                # Fatal even with "skip": from here on nobody knows where a field begins, and a
                # piece of a text taken for another column would pass through unprotected.
                found = "a row that is too long" if isinstance(error, _BadRecord) else "a stray one"
                raise CorpusError(
                    f"{self.name}, line {self._record_line}: expected quotes that are closed, and "
                    f"doubled inside a field, in a row of at most {limit:,} bytes; found {found}. "
                    "The rows after it cannot be told apart, so it cannot be skipped: repair the "
                    "file."
                ) from None
            return lines.flaw if row is not None and lines.flaw is not None else row

        header = next_row()
        if header is None:
            raise CorpusError(
                f"{self.name} is empty: expected a CSV header with a column {self.text_column!r}."
            )
        if isinstance(header, _BadRecord):
            raise CorpusError(f"{self.name}, line 1 (the header): {header} Repair the file.")
        if header.count(self.text_column) != 1:
            found = "more than one" if self.text_column in header else "none"
            raise CorpusError(
                f"{self.name}, line 1 (the header): expected a column named {self.text_column!r}, "
                f"found {found} among {len(header)} column(s). Name the column that holds the text "
                "with --text-column; the file needs a header line, and commas between the columns."
            )
        self.columns, self.newline = header, lines.newline
        column = header.index(self.text_column)
        self._check_name_columns()
        named = [header.index(name) for name in self._names]
        self._enter(stream)
        while (row := next_row()) is not None:
            if not row:  # an empty list is a blank line between rows: no record
                continue
            if self._position < self._start.record:
                yield None
            elif isinstance(row, _BadRecord):
                row.raw = lines.raw()
                yield row
            elif len(row) == len(header):
                try:
                    self._check_names(row[place] for place in named)
                    yield self._check_text(row[column]), row
                except _BadRecord as error:
                    error.raw = lines.raw()
                    yield error
            else:
                yield _BadRecord(
                    "columns",
                    f"expected {len(header)} column(s) as in the header, found {len(row)}.",
                    lines.raw(),
                )


class _CsvLines:
    """Feed decoded lines to ``csv.reader``, row by row, and stop a row that grows past the limit.

    An undecodable byte or a NUL is passed on in disguise and remembered as the row's flaw, so that
    the quoting around it is still understood and the next row starts where it should.
    """

    def __init__(self, reader: CorpusReader, stream: BinaryIO, limit: int) -> None:
        self._lines = reader._lines(stream, limit)
        self._reader = reader
        self._limit = limit
        self._row_bytes = 0
        self._kept: list[bytes] = []
        self.flaw: _BadRecord | None = None
        self.newline = "\n"

    def start_row(self) -> None:
        self._reader._record_line = self._reader._line + 1
        self._row_bytes = 0
        self._kept.clear()
        self.flaw = None

    def raw(self) -> bytes | None:
        """Return the bytes of the row, where they are kept for the quarantine."""
        return b"".join(self._kept) or None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if isinstance(line, _BadRecord):
            raise line
        self._row_bytes += len(line)
        if self._row_bytes > self._limit:
            raise self._reader._too_large()
        if self._reader._line == 1 and line.endswith(b"\r\n"):
            self.newline = "\r\n"
        if self._reader.on_error == "quarantine":
            self._kept.append(line)
        if b"\0" in line:
            self.flaw = _null_byte()
            line = line.replace(b"\0", b" ")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self.flaw = _not_utf8()
            return line.decode("utf-8", errors="surrogateescape")


class _ParquetReader(CorpusReader):
    """Read the rows of a Parquet file; the other columns stay in Arrow, untouched."""

    def __iter__(self) -> Iterator[Batch]:
        self.skipped.clear()
        first, end = self._start.record, self._start.record
        with self._table() as table:
            batches = self._slices(table)
            for rows in batches:
                first, end = end, end + rows.num_rows
                yield self._batch(rows, first, end)

    def places(self) -> Iterator[Place]:
        with self._table() as table:
            total: int = table.metadata.num_rows
        step = self._cut or max(total, 1)
        for record in range(step, total, step):
            yield Place(record, 0, None)
        yield Place(total, 0, None)

    @property
    def fraction(self) -> float | None:
        return min(1.0, self._position / self._size) if self._size else None

    @contextlib.contextmanager
    def _table(self) -> Iterator[Any]:
        """Open the file; its footer tells the columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.path == STANDARD_STREAM:
            raise CorpusError(
                "Parquet is read from its end, so it cannot come from standard input: name a file."
            )
        with open(self.path, "rb") as raw:
            try:
                table = pq.ParquetFile(raw)
                self.schema = _without_views(table.schema_arrow)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise damage_told(error, self.name) from None
            self.columns = list(self.schema.names)
            self._size = table.metadata.num_rows
            if self.columns.count(self.text_column) > 1:
                raise CorpusError(
                    f"{self.name}: expected one column named {self.text_column!r}, found more than one."
                )
            self._check_name_columns()
            yield table

    def _slices(self, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the start to the stop, in pieces that no batch border crosses."""
        import pyarrow as pa

        groups, passed = [], 0
        first, stop = self._start.record, self._stop
        place = None
        for group in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if passed + rows > first and (stop is None or passed < stop):
                place = passed if place is None else place
                groups.append(group)
            passed += rows
        position = place or 0
        if not groups:
            return
        batches = table.iter_batches(
            batch_size=self._rows_at_once(table, groups), row_groups=groups, use_threads=False
        )
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise damage_told(error, self.name) from None
            if batch is None:
                return
            if not all(map(_has_all_values, batch.columns)):
                raise damage_told(pa.ArrowIndexError(), self.name)
            batch = batch.cast(self.schema) if batch.schema != self.schema else batch
            while batch.num_rows:
                if position < first:
                    passed = min(batch.num_rows, first - position)
                else:
                    if stop is not None and position >= stop:
                        return
                    borders = [position + self.batch_size]
                    if self._cut is not None:
                        borders.append(position - position % self._cut + self._cut)
                    if stop is not None:
                        borders.append(stop)
                    passed = min(batch.num_rows, min(borders) - position)
                    self._position = position + passed
                    yield batch.slice(0, passed)
                batch = batch.slice(passed)
                position += passed

    def _rows_at_once(self, table: Any, groups: list[int]) -> int:
        """As many rows as fit into a batch, by the mean size of those of the largest group."""
        found = [table.metadata.row_group(group) for group in groups]
        mean = max(group.total_byte_size / max(group.num_rows, 1) for group in found)
        return max(1, min(self.batch_size, int(4 * _BATCH_BYTES / max(mean, 1.0))))

    def _batch(self, rows: pa.RecordBatch, first: int, end: int) -> Batch:
        values, problem = self._values(rows)
        names = [_possible_names(rows.column(self.columns.index(name))) for name in self._names]
        texts, good, bad = [], [], []
        for place, value in enumerate(values):
            try:
                if problem is not None:
                    raise _BadRecord(*problem)
                if isinstance(value, bytes):
                    raise _not_utf8()
                if value is None:
                    raise _BadRecord(
                        "wrong_type",
                        f"expected a text in {self.text_column!r}, found none (null).",
                    )
                self._check_names(column[place] for column in names)
                texts.append(self._check_text(value))
                good.append(place)
            except _BadRecord as error:
                if self.on_error == "quarantine":
                    error.raw = _row_as_json(rows.slice(place, 1))
                bad.append(self._refused(error, first + place))
        if bad:
            import pyarrow as pa

            rows = rows.take(pa.array(good, pa.int64()))
        return Batch(
            [first + place for place in good], texts, rows, bad, first, Place(end, 0, None)
        )

    def _values(self, rows: pa.RecordBatch) -> tuple[list[Any], tuple[str, str] | None]:
        """Return the texts (bytes for what is no UTF-8), or what is wrong with all of them."""
        import pyarrow as pa

        none = [None] * rows.num_rows
        if self.text_column not in self.columns:
            return none, (
                "missing_text",
                f"expected the column {self.text_column!r}, found {len(self.columns)} other column(s); name the column "
                "that holds the text with --text-column.",
            )
        column = rows.column(self.columns.index(self.text_column))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if pa.types.is_null(kind):
            return none, None
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return none, (
                "wrong_type",
                f"expected texts in {self.text_column!r}, found values of the type {str(kind)[:40]}.",
            )
        return column_values(column), None


def column_values(column: pa.Array) -> list[Any]:
    """Return the values of an Arrow column; bytes for a string that is no UTF-8."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        kind = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
        values = [_decoded(value) for value in column.cast(kind).to_pylist()]
    return values


def _has_all_values(column: pa.Array) -> bool:
    """Whether the dictionaries of a column hold every value that is referred to: in a damaged file they may not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        bounds = pc.min_max(column.indices)
        lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
        return lowest is None or (lowest >= 0 and highest < len(column.dictionary))
    if pa.types.is_struct(column.type):
        return all(_has_all_values(column.field(place)) for place in range(column.type.num_fields))
    if pa.types.is_nested(column.type) and hasattr(column, "values"):
        return _has_all_values(column.values)
    return True


def _possible_names(column: pa.Array) -> list[Any]:
    """Return the values of a column of texts or whole numbers; of any other only nulls, for some have no Python form."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if any(
        test(kind) for test in (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    ):
        return column_values(column)
    return [None] * len(column)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Replace types that Arrow reads but can do little with, by their plain forms."""
    import pyarrow as pa

    plain = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    fields = [field.with_type(plain.get(str(field.type), field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _decoded(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _row_as_json(row: pa.RecordBatch) -> bytes | None:
    """One row for the quarantine; None where it cannot be spelled."""
    import pyarrow as pa

    try:
        return json.dumps(row.to_pylist()[0], ensure_ascii=False, default=str).encode("utf-8")
    except (ValueError, TypeError, OverflowError, pa.ArrowException):  # such as a date after 9999
        return None


def damage_told(error: Exception, name: str) -> Exception:
    """Return what to raise for an Arrow error: itself where the system failed, else that the file is damaged."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return CorpusError(
        f"{name}: expected a Parquet file, found one that is damaged, encrypted, of an unknown kind, or none at all. "
        "Make or fetch it again."
    )


def _not_utf8() -> _BadRecord:
    return _BadRecord("encoding", "expected UTF-8, found bytes or characters that are not.")


def _null_byte() -> _BadRecord:
    return _BadRecord(
        "null_byte",
        "expected UTF-8 text, found a NUL character (is the file UTF-16, or no text at all?).",
    )


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _finite(literal: str) -> float:
    """Read a JSON number; one that a double cannot hold would come out as something else."""
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str = "text",
    on_error: str = "fail",
    *,
    batch_size: int = 1000,
    max_text_bytes: int = MAX_TEXT_BYTES,
    start: Place | None = None,
    stop: int | None = None,
    cut: int | None = None,
    names: Sequence[str] = (),
) -> CorpusReader:
    """Read text records in batches, in constant memory.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        ``"jsonl"``, ``"csv"``, ``"text"`` or ``"parquet"``; None goes by the extension, and by ``"text"`` for standard
        input.
    text_column
        The JSON field, CSV or Parquet column that holds the text. ``text`` files have none.
    on_error
        ``"fail"`` raises at the first bad record; ``"skip"`` leaves bad records out and counts them by reason:
        ``encoding``, ``null_byte``, ``malformed``, ``missing_text``, ``wrong_type``, ``columns``, ``too_large``;
        ``"quarantine"`` also hands their bytes on. A broken quote in a CSV file ends the run in any case, since the
        rows after it cannot be told apart.
    batch_size
        Most records in a batch; a batch also closes at about 4 MiB of the file (of Parquet: 16 MiB in memory).
    max_text_bytes
        Most bytes (UTF-8) of one text.
    start, stop
        Read the records from a place on, and up to (without) a record number.
    cut
        Close a batch after every so many records of the file, whatever the batch size.
    names
        Fields or columns that must hold a name, as text or a whole number; a record without is a bad one
        (``missing_name``).

    Returns
    -------
    CorpusReader
        Iterate over it for :class:`Batch` objects; its ``skipped`` and ``columns`` fill as it goes.

    Raises
    ------
    CorpusError
        Here for an unknown format or option; while iterating for bad records and damaged files. The message names the
        file and the line, never what stands there.
    """
    found, _ = corpus_format(path, format)
    kind = _ParquetReader if found == "parquet" else CorpusReader
    return kind(
        path, format, text_column, on_error, batch_size, max_text_bytes, start, stop, cut, names
    )
