"""CSV and TSV: rows under a header, with a delimiter between the columns, one of which holds the text.

The other columns stay as they are. What all formats share is in ``corpus.records``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from textpriv.corpus.records import (
    RECORD_FACTOR,
    Batch,
    CorpusReader,
    Format,
    RecordError,
    RecordWriter,
    concatenate,
    not_utf8,
    null_byte,
)
from textpriv.errors import CorpusError

__all__ = ["FORMAT", "TSV"]

_BETWEEN = {"csv": "commas, semicolons or tabs", "tsv": "tabs"}


class _CsvReader(CorpusReader):
    """Read the rows under a header; a row may have several lines."""

    format = "csv"
    delimiters = ",;\t"  # that are tried on the header, in this order
    delimiter = ","
    _record_is_line = False

    def values(self, batch: Batch, column: str) -> list[Any]:
        number = self.columns.index(column)
        return [row[number] for row in batch.rows]

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | RecordError | None]:
        limit = self.max_text_bytes * RECORD_FACTOR
        # The limit is one number for the whole process; it may only be raised, for others may have
        # raised it, too.
        csv.field_size_limit(max(csv.field_size_limit(), limit))
        lines = _CsvLines(self, stream, limit)
        self.delimiter = lines.find_delimiter(self.delimiters)
        rows = csv.reader(lines, delimiter=self.delimiter, strict=True)

        def next_row() -> list[str] | RecordError | None:
            lines.start_row()
            try:
                row = next(rows, None)
            except (csv.Error, RecordError) as error:
                # Fatal even with "skip": from here on nobody knows where a field begins, and a
                # piece of a text taken for another column would pass through unprotected.
                found = (
                    "a row that is too long" if isinstance(error, RecordError) else "a stray one"
                )
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
                f"{self.name} is empty: expected a CSV header with a column {self.text_columns[0]!r}."
            )
        if isinstance(header, RecordError):
            raise CorpusError(f"{self.name}, line 1 (the header): {header} Repair the file.")
        for name in self.text_columns:
            if header.count(name) != 1:
                found = "more than one" if name in header else "none"
                raise CorpusError(
                    f"{self.name}, line 1 (the header): expected a column named {name!r}, "
                    f"found {found} among {len(header)} column(s). Name the column that holds the text "
                    f"with --text-column; the file needs a header line, and {_BETWEEN[self.format]} between the columns."
                )
        self.columns, self.newline = header, lines.newline
        columns = [header.index(name) for name in self.text_columns]
        self.check_name_columns()
        named = [header.index(name) for name in self._names]
        labels = None if self._labels is None else header.index(self._labels)
        self.enter(stream)
        while (row := next_row()) is not None:
            if not row:  # an empty list is a blank line between rows: no record
                continue
            if self._position < self._start.record:
                yield None
            elif isinstance(row, RecordError):
                row.raw = lines.raw()
                yield row
            elif len(row) == len(header):
                try:
                    self.check_names(row[number] for number in named)
                    if labels is not None:
                        self.check_labels(row[columns[0]], row[labels])
                    yield self.check_texts([row[column] for column in columns]), row
                except RecordError as error:
                    error.raw = lines.raw()
                    yield error
            else:
                yield RecordError(
                    "columns",
                    f"expected {len(header)} column(s) as in the header, found {len(row)}.",
                    lines.raw(),
                )


class _TsvReader(_CsvReader):
    """Read the rows under a header, with tabs between the columns; quotes as in CSV."""

    format = "tsv"
    delimiters = "\t"


class _CsvLines:
    """Decoded lines for ``csv.reader``, row by row; a row that grows past the limit is stopped.

    An undecodable byte or a NUL is passed on in disguise and remembered as the row's flaw, so that
    the quoting around it is still understood and the next row starts where it should.
    """

    def __init__(self, reader: CorpusReader, stream: BinaryIO, limit: int) -> None:
        self.lines: Iterator[bytes | RecordError] = reader.lines(stream, limit)
        self._reader = reader
        self._limit = limit
        self._row_bytes = 0
        self._row_lines: list[bytes] = []
        self._read_ahead = 0
        self.flaw: RecordError | None = None
        self.newline = "\n"

    def find_delimiter(self, candidates: str) -> str:
        """Return the first that makes the most of the texts' columns some of the header's."""
        header = next(self.lines, None)
        if header is None:
            return candidates[0]
        self.lines = itertools.chain([header], self.lines)
        self._read_ahead = 1
        if isinstance(header, bytes) and b"\0" not in header:
            text = header.decode("utf-8", errors="replace")

            def columns(delimiter: str) -> int:
                with contextlib.suppress(csv.Error):
                    names = next(csv.reader([text], delimiter=delimiter))
                    return len(set(names).intersection(self._reader.text_columns))
                return 0

            return max(candidates, key=columns)
        return candidates[0]

    def start_row(self) -> None:
        self._reader._record_line = self._reader._line + 1 - self._read_ahead
        self._read_ahead = 0
        self._row_bytes = 0
        self._row_lines.clear()
        self.flaw = None

    def raw(self) -> bytes | None:
        """Return the bytes of the row, where they are kept for the quarantine."""
        return b"".join(self._row_lines) or None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        if isinstance(line, RecordError):
            raise line
        self._row_bytes += len(line)
        if self._row_bytes > self._limit:
            raise self._reader.too_large()
        if self._reader._line == 1 and line.endswith(b"\r\n"):
            self.newline = "\r\n"
        if self._reader.on_error == "quarantine":
            self._row_lines.append(line)
        if b"\0" in line:
            self.flaw = null_byte()
            line = line.replace(b"\0", b" ")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self.flaw = not_utf8()
            return line.decode("utf-8", errors="surrogateescape")


class _CsvWriter(RecordWriter):
    """Write rows under a header, with the delimiter and the line ending of the header that was read."""

    _reader: _CsvReader

    def begin(self) -> None:
        header = self._reader.columns
        self._out.write(self._row([header[number] for number in self.passing(header)]))

    def write(self, batch: Batch, columns: Sequence[Sequence[str]]) -> None:
        header = self._reader.columns
        passing = self.passing(header)
        private = [header.index(name) for name in self._reader.text_columns]
        for row, *texts in zip(batch.rows, *columns, strict=True):
            values = list(row)
            for number, text in zip(private, texts, strict=True):
                values[number] = text
            self._out.write(self._row([values[number] for number in passing]))

    def _row(self, row: list[str]) -> bytes:
        buffer = io.StringIO(newline="")
        # Not every Python version quotes a lone carriage return, and a reader would take it for the end of the row.
        writer = csv.writer(
            buffer,
            delimiter=self._reader.delimiter,
            quoting=csv.QUOTE_ALL if any("\r" in value for value in row) else csv.QUOTE_MINIMAL,
            lineterminator=self._reader.newline,
        )
        writer.writerow(row)
        return buffer.getvalue().encode("utf-8")


FORMAT = Format("csv", (".csv",), _CsvReader, _CsvWriter, concatenate)
TSV = Format("tsv", (".tsv", ".tab"), _TsvReader, _CsvWriter, concatenate)
