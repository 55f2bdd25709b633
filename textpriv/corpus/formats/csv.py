"""CSV and TSV: rows under a header, one column of which contains the text."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, BinaryIO

from textpriv.corpus.records import (
    MAX_TEXT_BYTES,
    RECORD_FACTOR,
    LineReader,
    Parsed,
    RecordError,
    RecordWriter,
    not_utf8,
    null_byte,
    too_large,
)
from textpriv.errors import CorpusError

__all__ = ["READER", "TSV_READER", "WRITER"]


class _CsvReader(LineReader):
    """Read the rows under a header; a row may have several lines."""

    format = "csv"
    delimiters = ",;\t"  # tried on the header, in this order
    delimiter = ","
    newline = "\n"
    record_is_line = False

    def records(self, stream: BinaryIO) -> Iterator[Parsed | RecordError | None]:
        limit = MAX_TEXT_BYTES * RECORD_FACTOR
        # The limit is one number for the whole process, and others may have raised it, too.
        csv.field_size_limit(max(csv.field_size_limit(), limit))
        lines = _CsvLines(self, stream, limit)
        self.delimiter = lines.find_delimiter()
        rows = csv.reader(lines, delimiter=self.delimiter, strict=True)

        def next_row() -> list[str] | RecordError | None:
            lines.start_row()
            try:
                row = next(rows, None)
            except (csv.Error, RecordError):
                # Fatal even with "skip": nobody knows where the next field begins, and a piece of a text taken for another
                # column would pass through unprotected.
                raise CorpusError(
                    f"{self.name}, line {self.record_line}: expected quotes that are closed, and doubled inside a field, in "
                    f"a row of at most {limit:,} bytes. The rows after it cannot be read, so it cannot be skipped. Repair "
                    "the file."
                ) from None
            return lines.flaw if row is not None and lines.flaw is not None else row

        header = next_row()
        if header is None or isinstance(header, RecordError):
            found = "the file is empty" if header is None else str(header)
            raise CorpusError(f"{self.name}, line 1: expected a CSV header; {found}")
        self.columns, self.newline = header, lines.newline
        hint = " The file needs a header line, and commas, semicolons or tabs between the columns."
        places = self.check_header(", line 1 (the header)", hint)
        self.enter(stream)
        while (row := next_row()) is not None:
            if not row:  # a blank line between rows: no record
                continue
            if self.position < self._start.record:
                yield None
                continue
            try:
                if isinstance(row, RecordError):
                    raise row
                if len(row) != len(header):
                    raise RecordError(
                        "columns",
                        f"expected {len(header)} column(s) as in the header, found {len(row)}.",
                    )
                yield self.reading.checked([row[place] for place in places]), row
            except RecordError as error:
                error.raw = lines.raw()
                yield error

    def spelled(self, row: Any) -> bytes | None:
        return csv_row(row, self.delimiter, self.newline)


class _TsvReader(_CsvReader):
    """Read the rows under a header, with tabs between the columns; quotes as in CSV."""

    format = "tsv"
    delimiters = "\t"


class _CsvLines:
    """Decoded lines for ``csv.reader``, row by row; a row that grows past the limit is stopped.

    An undecodable byte or a NUL is passed on in disguise and remembered as the row's flaw, so that the quotes around it
    are still understood and the next row starts where it should.
    """

    def __init__(self, reader: _CsvReader, stream: BinaryIO, limit: int) -> None:
        self._lines: Iterator[bytes | RecordError] = reader.lines(stream, limit)
        self._reader, self._limit = reader, limit
        self._row: list[bytes] = []
        self._row_bytes = 0
        self._read_ahead = 0
        self.flaw: RecordError | None = None
        self.newline = "\n"

    def find_delimiter(self) -> str:
        """Return the one that makes the most of the texts' columns some of the header's."""
        candidates = self._reader.delimiters
        header = next(self._lines, None)
        if header is None:
            return candidates[0]
        self._lines = itertools.chain([header], self._lines)
        self._read_ahead = 1
        text = header.decode("utf-8", errors="replace") if isinstance(header, bytes) else ""

        def columns(delimiter: str) -> int:
            with contextlib.suppress(csv.Error):
                names = next(csv.reader([text.replace("\0", "")], delimiter=delimiter))
                return len(set(names).intersection(self._reader.reading.text_columns))
            return 0

        return max(candidates, key=columns)

    def start_row(self) -> None:
        self._reader.record_line = self._reader.line + 1 - self._read_ahead
        self._read_ahead = 0
        self._row.clear()
        self._row_bytes = 0
        self.flaw = None

    def raw(self) -> bytes:
        """Return the bytes of the row."""
        return b"".join(self._row)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if isinstance(line, RecordError):
            raise line
        self._row.append(line)
        self._row_bytes += len(line)
        if self._row_bytes > self._limit + 1:
            raise too_large()
        if self._reader.line == 1 and line.endswith(b"\r\n"):
            self.newline = "\r\n"
        if b"\0" in line:
            self.flaw = null_byte()
            line = line.replace(b"\0", b" ")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self.flaw = not_utf8()
            return line.decode("utf-8", errors="surrogateescape")


def csv_row(row: list[str], delimiter: str, newline: str) -> bytes:
    """Return one row as bytes."""
    buffer = io.StringIO(newline="")
    # Not every Python version quotes a lone carriage return, and a reader would take it for the end of the row.
    writer = csv.writer(
        buffer,
        delimiter=delimiter,
        quoting=csv.QUOTE_ALL if any("\r" in value for value in row) else csv.QUOTE_MINIMAL,
        lineterminator=newline,
    )
    writer.writerow(row)
    return buffer.getvalue().encode("utf-8")


class _CsvWriter(RecordWriter):
    """Write rows under a header, with the delimiter and the line ending of the header that was read."""

    _reader: _CsvReader

    def begin(self) -> None:
        self._out.write(self._spelled(self._reader.columns))

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        values = list(row)
        for name, text in zip(self._reader.reading.text_columns, texts, strict=True):
            values[self._reader.columns.index(name)] = text or ""
        return self._spelled(values)

    @cached_property
    def _passing(self) -> list[int]:
        return self.passing(self._reader.columns)

    def _spelled(self, values: list[str]) -> bytes:
        kept = [values[place] for place in self._passing]
        return csv_row(kept, self._reader.delimiter, self._reader.newline)


READER, TSV_READER, WRITER = _CsvReader, _TsvReader, _CsvWriter
