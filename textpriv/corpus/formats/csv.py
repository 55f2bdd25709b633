"""CSV and TSV: rows under a header, one column of which contains the text."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from textpriv.corpus.records import LineReader, RecordError, RecordWriter, record_limit
from textpriv.errors import CorpusError

# A NUL or a byte that is not UTF-8 is read in disguise, as half a surrogate pair. So the quotes around it are still
# understood, the next row starts where it should, and the row is known as a bad one.
_NUL = "\ud800"


class _CsvWriter(RecordWriter):
    """Write rows under a header, with the delimiter and the line ending of the header that was read."""

    _reader: _CsvReader

    def begin(self) -> None:
        self._out.write(self._spelled(self._reader.columns))

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        values = list(row)
        for name, text in zip(self._reader.texts, texts, strict=True):
            values[self._reader.columns.index(name)] = text or ""
        return self._spelled(values)

    @cached_property
    def _written(self) -> list[int]:
        writes = self._reader.options.writes
        return [n for n, name in enumerate(self._reader.columns) if writes(name)]

    def _spelled(self, values: list[str]) -> bytes:
        kept = [values[place] for place in self._written]
        return _csv_row(kept, self._reader.delimiter, self._reader.newline)


class _CsvReader(LineReader):
    """Read the rows under a header; a row may have several lines."""

    format = "csv"
    extensions: tuple[str, ...] = (".csv",)
    writer = _CsvWriter
    delimiters = ",;\t"  # tried on the header, in this order
    delimiter = ","
    newline = "\n"

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, list[str]]]:
        # The limit is one number for the whole process, and others may have raised it, too.
        csv.field_size_limit(max(csv.field_size_limit(), record_limit()))
        first = next(lines, b"")
        self.newline = "\r\n" if first.endswith(b"\r\n") else "\n"
        decoded = map(_disguised, itertools.chain([first], lines) if first else ())
        line = 1
        try:
            self.delimiter = max(self.delimiters, key=lambda each: self._columns_by(each, first))
            rows = csv.reader(decoded, delimiter=self.delimiter, strict=True)
            header = next(rows, [])
            if not header or _is_flawed(header):
                raise CorpusError(f"{self.name}, line 1: expected a CSV header in UTF-8")
            self.columns = header
            self.options.check(self.columns, f"{self.name}: ")
            line = rows.line_num + 1
            for row in rows:
                if row:  # else a blank line between rows
                    yield line, row
                line = rows.line_num + 1
        except csv.Error:
            # Fatal even with "skip": nobody knows where the next field begins, and a piece of a text taken for another
            # column would pass through unprotected.
            raise CorpusError(
                f"{self.name}, line {line}: expected quotes that are closed, and doubled in a field, in a row of at most "
                f"{record_limit():,} bytes. It cannot be skipped: repair the file."
            ) from None

    def header(self) -> list[str]:
        with self._open() as (readline, *_):
            next(self.units(self._lines(readline)), None)
        return self.columns

    def _columns_by(self, delimiter: str, header: bytes) -> int:
        """Return how many of the texts' columns a delimiter finds in the header."""
        names = next(csv.reader([_disguised(header)], delimiter=delimiter))
        return len(set(names).intersection(self.texts))

    def parse(self, unit: list[str]) -> tuple[Mapping[str, Any], Any]:
        if _is_flawed(unit):
            has_null = any(_NUL in value for value in unit)
            raise RecordError("null_byte" if has_null else "encoding")
        if len(unit) != len(self.columns):
            wanted = f"expected {len(self.columns)} column(s) as in the header, found {len(unit)}."
            raise RecordError("columns", wanted)
        return dict(zip(self.columns, unit, strict=True)), unit

    def spelled(self, row: Any) -> bytes:
        return _csv_row(row, self.delimiter, self.newline)

    def new_rows(self, columns: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        self.columns, self.delimiter = [*columns], self.delimiters[0]
        return [[*map(str, row)] for row in zip(*columns.values(), strict=True)]


class _TsvReader(_CsvReader):
    """Read the rows under a header, with tabs between the columns; quotes as in CSV."""

    format, extensions = "tsv", (".tsv", ".tab")
    delimiters = "\t"


def _disguised(line: bytes) -> str:
    if len(line) > record_limit() + 2:
        raise csv.Error
    return line.decode("utf-8", errors="surrogateescape").replace("\0", _NUL)


def _is_flawed(row: list[str]) -> bool:
    try:
        return not all(value.isascii() or value.encode() for value in row)
    except UnicodeEncodeError:
        return True


def _csv_row(row: list[str], delimiter: str, newline: str) -> bytes:
    """Return one row as bytes."""
    buffer = io.StringIO(newline="")
    # Not every Python version quotes a lone carriage return, and a reader would take it for the end of the row.
    quoting: Any = csv.QUOTE_ALL if any("\r" in value for value in row) else csv.QUOTE_MINIMAL
    writer = csv.writer(buffer, delimiter=delimiter, quoting=quoting, lineterminator=newline)
    writer.writerow(row)
    return buffer.getvalue().replace(_NUL, "\0").encode("utf-8", errors="surrogateescape")


READERS = _CsvReader, _TsvReader
