"""Parquet: the rows of a table, one column of which contains the text; the other columns stay in Arrow, untouched."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.corpus import stores
from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.records import (
    BATCH_BYTES,
    STANDARD_STREAM,
    BadRecord,
    Batch,
    CorpusReader,
    Cursor,
    RecordError,
    RecordWriter,
    not_utf8,
)
from textpriv.engines.schemas import types_alone, with_children
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["READER", "WRITER"]

_GROUP_ROWS = 1_000  # of a row group that is written


class _ParquetReader(CorpusReader):
    """Read the rows of a Parquet file."""

    format = "parquet"
    schema: pa.Schema

    def __iter__(self) -> Iterator[Batch]:
        with self._table() as table:
            position = self._start.record
            for rows in self._slices(table):
                yield self._batch(rows, position, table.metadata.num_rows)
                position += rows.num_rows

    @contextlib.contextmanager
    def _table(self) -> Iterator[Any]:
        """Open the file; its footer names the columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.path == STANDARD_STREAM:
            raise CorpusError(
                "Parquet is read from its end, so it cannot come from standard input: name a file."
            )
        with stores.opened(self.path) as raw:
            try:
                table = pq.ParquetFile(raw)
                self.schema = _plain(table.schema_arrow)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _damage(error, self.name) from None
            self.columns = list(self.schema.names)
            self._places = self.check_header("")
            yield table

    def _slices(self, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the start to the stop, in pieces that no border crosses."""
        import pyarrow as pa

        first, stop = self._start.record, self._stop
        groups: list[int] = []
        position = passed = 0
        for group in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if passed + rows > first and (stop is None or passed < stop):
                position = position if groups else passed
                groups.append(group)
            passed += rows
        if not groups:
            return
        batches = table.iter_batches(
            batch_size=self._rows_at_once(table, groups), row_groups=groups, use_threads=False
        )
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                batch = batch.cast(self.schema)
                batch.validate(full=False)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _damage(error, self.name) from None
            while batch.num_rows:
                if position < first:
                    taken = min(batch.num_rows, first - position)
                elif stop is not None and position >= stop:
                    return
                else:
                    taken = self._until_border(position, batch.num_rows)
                    yield batch.slice(0, taken)
                batch = batch.slice(taken)
                position += taken

    def _until_border(self, position: int, rows: int) -> int:
        """Return how many of some rows a batch takes."""
        part, borders = self.reading.part_records, [rows, self.reading.batch_size]
        if part is not None:
            borders.append(part - position % part)
        if self._stop is not None:
            borders.append(self._stop - position)
        return min(borders)

    def _rows_at_once(self, table: Any, groups: list[int]) -> int:
        """Return as many rows as fit into a batch, by the mean size of those of the largest group."""
        sizes = [table.metadata.row_group(group) for group in groups]
        mean = max(group.total_byte_size / max(group.num_rows, 1) for group in sizes)
        return max(1, min(self.reading.batch_size, int(4 * BATCH_BYTES / max(mean, 1.0))))

    def _batch(self, rows: pa.RecordBatch, first: int, total: int) -> Batch:
        import pyarrow as pa

        texts = len(self.reading.text_columns)
        columns = [
            _texts(rows.column(place)) if n < texts else _names_or_labels(rows.column(place))
            for n, place in enumerate(self._places)
        ]
        values, good, bad = [], [], list[BadRecord]()
        for row, given in enumerate(zip(*columns, strict=True)):
            try:
                for value in given:
                    if isinstance(value, RecordError):
                        raise value
                values.append(self.reading.checked(given))
                good.append(row)
            except RecordError as error:
                is_kept = self.reading.on_error == "quarantine"
                raw = self.spelled(rows.slice(row, 1)) if is_kept else None
                bad.append(self.reading.refused(self.name, error, first + row, 0, raw))
        end = first + rows.num_rows
        kept = rows.take(pa.array(good, pa.int64())) if bad else rows
        where = [first + row for row in good]
        return Batch(where, values, kept, bad, Cursor(end, 0, None), end / max(total, 1))

    def spelled(self, row: Any) -> bytes | None:
        import pyarrow as pa

        try:
            return json.dumps(row.to_pylist()[0], ensure_ascii=False, default=str).encode("utf-8")
        except (ValueError, TypeError, OverflowError, pa.ArrowException):  # a date after 9999
            return None


def _texts(column: pa.Array) -> list[Any]:
    """Return the texts of a column, and errors in the place of values that are none."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(column)
    if pa.types.is_null(kind):
        return [None] * len(column)
    # Without what a nested type contains: names of fields may be data.
    found = re.split("[<[]", str(kind))[0]
    error = RecordError("wrong_type", f"expected texts, found values of the type {found}.")
    return [error] * len(column)


def _strings(column: pa.Array) -> list[Any]:
    """Return the strings of a column, and errors in the place of those that are not UTF-8."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        large = pa.types.is_large_string(column.type)
        values = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
        return [_decoded(value) for value in values]


def _decoded(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return not_utf8()


def _names_or_labels(column: pa.Array) -> list[Any]:
    """Return names as text or whole numbers, or labels; null for any other type, some of which have no Python form."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(column)
    if pa.types.is_integer(kind) or pa.types.is_nested(kind):
        return column.to_pylist()
    return [None] * len(column)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Replace types that Arrow can do little with, and dictionaries, which keep values of rows that are left out."""
    import pyarrow as pa

    views = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        kind = views.get(str(kind), kind)
        return with_children(kind, lambda child: child.with_type(plain(child.type)))

    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def _damage(error: Exception, name: str) -> Exception:
    """Return what to raise for an Arrow error: itself where the system or a store failed, else that the file is damaged."""
    if isinstance(error, CorpusError) or (isinstance(error, OSError) and error.errno is not None):
        return error
    return CorpusError(
        f"{name}: expected a Parquet file, found one that is damaged, encrypted, of an unknown kind, or none at all. "
        "Make or fetch it again."
    )


class _ParquetWriter(RecordWriter):
    """Write rows in groups of 1,000, without metadata, which may contain anything."""

    _reader: _ParquetReader

    def __init__(self, reader: _ParquetReader, out: BinaryIO, rule: ColumnRule) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__(reader, out, rule)
        self._passing = self.passing(reader.schema.names)
        self._schema = types_alone(pa.schema([reader.schema.field(n) for n in self._passing]))
        self._writer = pq.ParquetWriter(out, self._schema, compression="zstd")
        self._rows: list[pa.RecordBatch] = []

    def write(self, batch: Batch, columns: Sequence[Sequence[str | None]]) -> None:
        import pyarrow as pa

        if not len(batch):
            return
        names = self._reader.schema.names
        places = [names.index(name) for name in self._reader.reading.text_columns]
        private = dict(zip(places, columns, strict=True))
        values = [
            # A dictionary or null column of the input has plain texts here.
            pa.array(private[n], pa.string()).cast(field.type) if n in private else batch.rows[n]
            for n, field in zip(self._passing, self._schema, strict=True)
        ]
        self._rows.append(pa.RecordBatch.from_arrays(values, schema=self._schema))
        while sum(rows.num_rows for rows in self._rows) >= _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        # One piece in each column: the pages of a file follow the pieces that it was given.
        table = pa.Table.from_batches(self._rows, self._schema).combine_chunks()
        self._writer.write_table(table.slice(0, _GROUP_ROWS).combine_chunks())
        self._rows = table.slice(_GROUP_ROWS).to_batches()

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # else it would write its footer when it is collected

    @staticmethod
    def join(parts: Sequence[Path], out: BinaryIO, schema: pa.Schema | None = None) -> None:
        """Write the row groups of finished parts one after the other."""
        import pyarrow.parquet as pq

        schema = pq.read_schema(parts[0])
        with pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for part in parts:
                with open(part, "rb") as file:
                    table = pq.ParquetFile(file)
                    for group in range(table.num_row_groups):
                        writer.write_table(table.read_row_group(group, use_threads=False))


READER, WRITER = _ParquetReader, _ParquetWriter
