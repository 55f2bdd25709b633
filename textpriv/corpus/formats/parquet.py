"""Parquet: the rows of a table, one column of which contains the text; the other columns stay in Arrow, untouched."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.corpus import stores
from textpriv.corpus.records import (
    BATCH_BYTES,
    BadRecord,
    Batch,
    CorpusReader,
    RecordError,
    RecordWriter,
)
from textpriv.engines.batch import types_alone, with_children
from textpriv.engines.columns import Record
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

_PART_ROWS = 1_000  # of a row group of a part
_GROUP_BYTES = 64 << 20  # in memory, after which a row group of the output ends


class _RowGroups:
    """Write tables in row groups of ``most`` rows, or fewer where they are larger than ``size`` bytes."""

    def __init__(self, out: Any, schema: pa.Schema, most: int, size: float = math.inf) -> None:
        import pyarrow.parquet as pq

        self._schema, self._most, self._size = schema, most, size
        self._writer = pq.ParquetWriter(out, schema, compression="zstd")
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        while (rows := sum(each.num_rows for each in self._waiting)) >= self._most or (
            rows and sum(each.nbytes for each in self._waiting) >= self._size
        ):
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        joined = pa.concat_tables(self._waiting)
        # One piece in each column: the pages of a file follow the pieces that it was given.
        group = joined.slice(0, self._most).combine_chunks()
        # Dictionaries are made here: those that were read keep values of rows that are left out.
        columns = [
            column.dictionary_encode() if pa.types.is_dictionary(kind) else column
            for column, kind in zip(group.columns, self._schema.types, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._waiting = [joined.slice(self._most)]

    def close(self) -> None:
        if any(each.num_rows for each in self._waiting):
            self._write()
        self._writer.close()


class _ParquetWriter(RecordWriter):
    """Write rows without metadata, which may contain anything."""

    _reader: _ParquetReader

    def __init__(self, reader: CorpusReader, out: BinaryIO) -> None:
        import pyarrow as pa

        super().__init__(reader, out)
        schema, writes = self._reader.schema, reader.options.writes
        self._written = [n for n, name in enumerate(schema.names) if writes(name)]
        self._schema = pa.schema([types_alone(schema.field(n)) for n in self._written])
        encoded = self._schema
        for place, (field, n) in enumerate(zip(self._schema, self._written, strict=True)):
            # Values that were in a dictionary are in one again.
            if field.name not in reader.texts and pa.types.is_dictionary(self._reader.types[n]):
                kind = pa.dictionary(pa.int32(), field.type)
                encoded = encoded.set(place, field.with_type(kind))
        self._groups = _RowGroups(out, encoded, _PART_ROWS)

    def write(self, batch: Batch, columns: Sequence[Sequence[str | None]]) -> None:
        import pyarrow as pa

        private = dict(zip(self._reader.texts, columns, strict=True))
        values = [
            pa.array(private[field.name], field.type) if field.name in private else batch.rows[n]
            for n, field in zip(self._written, self._schema, strict=True)
        ]
        self._groups.add(pa.Table.from_arrays(values, schema=self._schema))

    def close(self) -> None:
        self._groups.close()

    @staticmethod
    def join(parts: Sequence[Path], out: BinaryIO, source: str = "") -> None:
        """Write the rows of finished parts, in groups of as many as the source has, or of 64 MiB."""
        import pyarrow.parquet as pq

        with stores.opened(source) as raw:
            known = pq.ParquetFile(raw).metadata
        most = max((known.row_group(n).num_rows for n in range(known.num_row_groups)), default=1)
        groups = _RowGroups(out, pq.read_schema(parts[0]), max(1, most), _GROUP_BYTES)
        for part in parts:
            with open(part, "rb") as file:
                table = pq.ParquetFile(file)
                for group in range(table.num_row_groups):
                    groups.add(table.read_row_group(group, use_threads=False))
        groups.close()


class _ParquetReader(CorpusReader):
    format, extensions = "parquet", (".parquet",)
    writer = _ParquetWriter
    schema: pa.Schema  # of the rows, without dictionaries
    types: list[pa.DataType]  # of the columns in the file

    def header(self) -> list[str]:
        with self._opened():
            return self.columns

    def chosen(self, rows: Any, places: Sequence[int]) -> Any:
        import pyarrow as pa

        return rows.take(pa.array(places, pa.int64()))

    def __iter__(self) -> Iterator[Batch]:
        import pyarrow as pa

        with self._opened() as table:
            position, total = 0, table.metadata.num_rows
            for rows in self._pieces(table):
                yield self._batch(rows, position, total)
                position += rows.num_rows
            self.check_unchanged()
            if not total:
                yield self._batch(pa.RecordBatch.from_pylist([], schema=self.schema), 0, 0)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file, and read what is said of its columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with stores.opened(self.path) as raw:
            with self._damage_named():
                table = pq.ParquetFile(raw)
                self.schema = pa.schema([_plain(field) for field in table.schema_arrow])
            self.types, self.columns = table.schema_arrow.types, list(self.schema.names)
            self.options.check(self.columns, f"{self.name}: ")
            yield table

    @contextlib.contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Say of an error of Arrow that the file is damaged; one of the system or of a store is raised as it is."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorpusError(
                f"{self.name}: expected a Parquet file, found one that is damaged, encrypted, of an unknown kind, or none "
                "at all. Make or fetch it again."
            ) from None

    def _pieces(self, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows in pieces that no border of a part crosses."""
        groups = [table.metadata.row_group(n) for n in range(table.metadata.num_row_groups)]
        # A batch has as many rows as fit into it by the mean size of those of the largest group.
        mean = max((each.total_byte_size / max(each.num_rows, 1) for each in groups), default=1.0)
        most = max(1, min(self.options.batch_size, int(4 * BATCH_BYTES / max(mean, 1.0))))
        batches = table.iter_batches(batch_size=most, use_threads=False)
        position, part = 0, self.options.part_records
        while True:
            with self._damage_named():
                batch = next(batches, None)
                if batch is None:
                    return
                batch = batch.cast(self.schema)
                batch.validate()
            while batch.num_rows:
                taken = min(batch.num_rows, part - position % part)
                yield batch.slice(0, taken)
                batch = batch.slice(taken)
                position += taken

    def _batch(self, rows: pa.RecordBatch, first: int, total: int) -> Batch:
        places: list[int] = []
        records: list[Record] = []
        bad: list[BadRecord] = []
        read = self.options.read
        columns = [_values(rows.column(name)) for name in read]
        for place, values in enumerate(zip(*columns, strict=True)):
            try:
                records.append(self.record(first + place, dict(zip(read, values, strict=True))))
                places.append(place)
            except RecordError as error:
                bad.append(self.refused(error, first + place, 0, rows.slice(place, 1)))
        end = first + rows.num_rows
        kept = self.chosen(rows, places) if bad else rows
        positions = [first + place for place in places]
        return Batch(self, positions, records, kept, bad, end, end / max(total, 1))

    def new_rows(self, columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        rows = pa.RecordBatch.from_pydict(columns)
        self.schema, self.types, self.columns = rows.schema, rows.schema.types, rows.schema.names
        return rows

    def spelled(self, row: Any) -> bytes | None:
        import pyarrow as pa

        try:
            return json.dumps(row.to_pylist()[0], ensure_ascii=False, default=str).encode("utf-8")
        except (ValueError, TypeError, OverflowError, pa.ArrowException):  # a date after 9999
            return None


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; bytes of a text that are not UTF-8 become half surrogate pairs, which none has."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if each is None else each.decode("utf-8", "surrogateescape") for each in raw]


def _plain(field: pa.Field) -> pa.Field:
    """Replace types that Arrow can do little with, and dictionaries, which keep values of rows that are left out."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    others = {
        "string_view": pa.large_string(),
        "binary_view": pa.large_binary(),
        "null": pa.string(),
    }
    return field.with_type(with_children(others.get(str(kind), kind), _plain))


READERS = (_ParquetReader,)
