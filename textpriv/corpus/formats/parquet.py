"""Parquet: the rows of a table, a column of which holds the text; the other columns stay in Arrow, untouched.

What all formats share is in ``corpus.records``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv import stores
from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.records import (
    BATCH_BYTES,
    STANDARD_STREAM,
    Batch,
    CorpusReader,
    Cursor,
    Format,
    RecordError,
    RecordWriter,
    not_utf8,
    part_end,
)
from textpriv.engines.schemas import types_alone, with_children
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMAT"]

# A row group closes at this many rows, or at this many bytes of strings, so that one can be held in memory.
_GROUP_ROWS = 10_000
_GROUP_BYTES = 64 * 1024 * 1024
# What pandas is told of a column; a text's type is that of the private ones, which are no categories.
_PANDAS = ("name", "field_name", "pandas_type", "numpy_type", "metadata")
_TEXT = {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}


class _ParquetReader(CorpusReader):
    """Read the rows of a Parquet file; the other columns stay in Arrow, untouched."""

    format = "parquet"

    def values(self, batch: Batch, column: str) -> list[Any]:
        return _column_values(batch.rows.column(self.columns.index(column)))

    def __iter__(self) -> Iterator[Batch]:
        self.skipped.clear()
        first, end = self._start.record, self._start.record
        with self._table() as table:
            batches = self._slices(table)
            for rows in batches:
                first, end = end, end + rows.num_rows
                yield self._batch(rows, first, end)

    def cursors(self) -> Iterator[Cursor]:
        with self._table() as table:
            total: int = table.metadata.num_rows
        end = part_end(0, self._cut) if self._cut else total
        while end < total:
            yield Cursor(end, 0, None)
            end = part_end(end, self._cut or total)
        yield Cursor(total, 0, None)

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
        with stores.opened(self.path) as raw:
            try:
                table = pq.ParquetFile(raw)
                self.schema = _plain(table.schema_arrow, self.text_columns)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _damage(error, self.name) from None
            self.columns = list(self.schema.names)
            self._size = table.metadata.num_rows
            for name in self.text_columns:
                if self.columns.count(name) > 1:
                    raise CorpusError(
                        f"{self.name}: expected one column named {name!r}, found more than one."
                    )
            self.check_name_columns()
            yield table

    def _slices(self, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the start to the stop, in pieces that no batch border crosses."""
        import pyarrow as pa

        groups, passed = [], 0
        first, stop = self._start.record, self._stop
        start = None
        for group in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if passed + rows > first and (stop is None or passed < stop):
                start = passed if start is None else start
                groups.append(group)
            passed += rows
        position = start or 0
        if not groups:
            return
        batches = table.iter_batches(
            batch_size=self._rows_at_once(table, groups), row_groups=groups, use_threads=False
        )
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _damage(error, self.name) from None
            if batch is None:
                return
            if not all(map(_has_all_values, batch.columns)):
                raise _damage(pa.ArrowIndexError(), self.name)
            batch = batch.cast(self.schema) if batch.schema != self.schema else batch
            while batch.num_rows:
                if position < first:
                    passed = min(batch.num_rows, first - position)
                else:
                    if stop is not None and position >= stop:
                        return
                    borders = [position + self.batch_size]
                    if self._cut is not None:
                        borders.append(part_end(position, self._cut))
                    if stop is not None:
                        borders.append(stop)
                    passed = min(batch.num_rows, min(borders) - position)
                    self._position = position + passed
                    yield batch.slice(0, passed)
                batch = batch.slice(passed)
                position += passed

    def _rows_at_once(self, table: Any, groups: list[int]) -> int:
        """As many rows as fit into a batch, by the mean size of those of the largest group."""
        sizes = [table.metadata.row_group(group) for group in groups]
        mean = max(group.total_byte_size / max(group.num_rows, 1) for group in sizes)
        return max(1, min(self.batch_size, int(4 * BATCH_BYTES / max(mean, 1.0))))

    def _batch(self, rows: pa.RecordBatch, first: int, end: int) -> Batch:
        columns = [self._values(rows, name) for name in self.text_columns]
        names = [_possible_names(rows.column(self.columns.index(name))) for name in self._names]
        labels = None if self._labels is None else self._column(rows, self._labels)
        texts, good, bad = [], [], []
        for row in range(rows.num_rows):
            try:
                for name, values in zip(self.text_columns, columns, strict=True):
                    if isinstance(values, RecordError):
                        raise RecordError(values.reason, str(values))
                    if isinstance(values[row], bytes):
                        raise not_utf8()
                    if values[row] is None:
                        raise RecordError(
                            "wrong_type", f"expected a text in {name!r}, found none (null)."
                        )
                self.check_names(column[row] for column in names)
                text = self.check_texts([values[row] for values in columns])  # type: ignore[index]
                if labels is not None:
                    self.check_labels(text, labels[row])
                texts.append(text)
                good.append(row)
            except RecordError as error:
                if self.on_error == "quarantine":
                    error.raw = _row_as_json(rows.slice(row, 1))
                bad.append(self.refused(error, first + row))
        if bad:
            import pyarrow as pa

            rows = rows.take(pa.array(good, pa.int64()))
        return Batch([first + row for row in good], texts, rows, bad, first, Cursor(end, 0, None))

    def _column(self, rows: pa.RecordBatch, name: str) -> list[Any]:
        return _column_values(rows.column(self.columns.index(name)))

    def _values(self, rows: pa.RecordBatch, name: str) -> list[Any] | RecordError:
        """Return the texts of a column (bytes for what is no UTF-8), or what is wrong with all of them."""
        import pyarrow as pa

        if name not in self.columns:
            return self.missing_text(name, len(self.columns))
        column = rows.column(self.columns.index(name))
        kind = column.type
        if pa.types.is_null(kind):
            return [None] * rows.num_rows
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return RecordError(
                "wrong_type",
                # Without what stands in a nested type: names of fields may be data.
                f"expected texts in {name!r}, found values of the type {re.split('[<[]', str(kind))[0]}.",
            )
        return _column_values(column)


def _column_values(column: pa.Array) -> list[Any]:
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
        return all(map(_has_all_values, map(column.field, range(column.type.num_fields))))
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
        return _column_values(column)
    return [None] * len(column)


def _described(metadata: Mapping[bytes, bytes], texts: Collection[str]) -> dict[str, str]:
    """What tells pandas and datasets of types and indexes, without all else that stands beside the columns of a file."""
    found = {}
    for key, types_of in (("pandas", _pandas_types), ("huggingface", _features)):
        with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
            found[key] = json.dumps(types_of(json.loads(metadata[key.encode()]), texts))
    return found


def _pandas_types(content: Any, texts: Collection[str]) -> dict[str, Any]:
    """Types, and which columns are an index: no index that is none, whose length tells of rows that are left out."""
    columns = [{name: each[name] for name in _PANDAS} for each in content["columns"]]
    return {
        "index_columns": [each for each in content["index_columns"] if isinstance(each, str)],
        "column_indexes": [
            {**{name: each[name] for name in _PANDAS}, "name": None, "field_name": None}
            for each in content["column_indexes"]
        ],
        "columns": [{**each, **(_TEXT if each["name"] in texts else {})} for each in columns],
        "pandas_version": content["pandas_version"],
    }


def _features(content: Any, texts: Collection[str]) -> dict[str, Any]:
    """Types of datasets; that of a text may have a name of its own."""
    features = dict(content["info"]["features"])
    for name in features.keys() & set(texts):
        features[name] = {each: features[name][each] for each in ("dtype", "_type")}
    return {"info": {"features": features}}


def _plain(schema: pa.Schema, texts: Collection[str]) -> pa.Schema:
    """Replace types that Arrow reads but can do little with, and dictionaries that would outlive rows, by plain forms.

    How many texts a dictionary has room for tells how many of them differ, and private ones may be more. One inside of
    another type is written as it was read, with the values of rows that are left out.
    """
    import pyarrow as pa

    views = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return with_children(kind, lambda child: child.with_type(plain(child.type)))

    fields = []
    for field in schema:
        kind = views.get(str(field.type), field.type)
        if field.name in texts or not pa.types.is_dictionary(kind):
            kind = plain(kind)
        fields.append(field.with_type(kind))
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


def _damage(error: Exception, name: str) -> Exception:
    """Return what to raise for an Arrow error: itself where the system or a store failed, else that the file is damaged."""
    if isinstance(error, CorpusError) or (isinstance(error, OSError) and error.errno is not None):
        return error
    return CorpusError(
        f"{name}: expected a Parquet file, found one that is damaged, encrypted, of an unknown kind, or none at all. "
        "Make or fetch it again."
    )


class _ParquetWriter(RecordWriter):
    """Write rows in groups whose borders depend on the rows alone."""

    def __init__(self, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> None:
        super().__init__(reader, out, rule)
        self._groups: _RowGroups | None = None

    def begin(self) -> None:
        self._opened()

    def write(self, batch: Batch, columns: Sequence[Sequence[str]]) -> None:
        import pyarrow as pa

        groups = self._opened()
        if not columns:
            return
        schema = self._reader.schema
        assert schema is not None
        rows: pa.RecordBatch = batch.rows
        private = {}
        for name, texts in zip(self._reader.text_columns, columns, strict=True):
            number = schema.names.index(name)
            private[number] = pa.array(texts, pa.string()).cast(schema.field(number).type)
        passing = self.passing(schema.names)
        values = [private[n] if n in private else rows.column(n) for n in passing]
        groups.add(pa.RecordBatch.from_arrays(values, schema=groups.schema))

    def close(self) -> None:
        self._opened().close()

    def abandon(self) -> None:
        if self._groups is not None:
            self._groups.abandon()

    def _opened(self) -> _RowGroups:
        if self._groups is None:
            import pyarrow as pa

            schema = self._reader.schema
            assert schema is not None
            passing = self.passing(schema.names)
            # Frames keep attributes beside the columns, and anybody anything, such as the texts as they were.
            written = types_alone(pa.schema([schema.field(number) for number in passing]))
            if self._rule.passes_all:  # for what tells types tells of all columns
                described = _described(schema.metadata or {}, self._reader.text_columns)
                written = written.with_metadata(described)
            self._groups = _RowGroups(self._out, written)
        return self._groups


class _RowGroups:
    """A Parquet file in the making."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.schema = schema
        self._writer = pq.ParquetWriter(out, schema, compression="zstd")
        self._rows: list[pa.RecordBatch] = []
        self._count = self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; a group that is full is written."""
        import numpy as np

        while rows.num_rows:
            sizes = np.zeros(rows.num_rows)
            for column in rows.columns:
                sizes += _string_bytes(column)
            full = self._bytes + np.cumsum(sizes) >= _GROUP_BYTES
            full[max(0, _GROUP_ROWS - self._count - 1) :] = True
            taken = int(np.argmax(full)) + 1 if full.any() else rows.num_rows
            self._rows.append(rows.slice(0, taken))
            self._count += taken
            self._bytes += int(sizes[:taken].sum())
            if full[taken - 1]:
                self._flush()
            rows = rows.slice(taken)

    def _flush(self) -> None:
        import pyarrow as pa

        if self._count:
            # One piece in each column: the pages of a file follow the pieces that it was given.
            table = pa.Table.from_batches(self._rows, self.schema).combine_chunks()
            for number, field in enumerate(self.schema):
                if pa.types.is_dictionary(field.type) and not field.type.ordered:
                    # The order of a dictionary, too, is to follow from the rows of the group, unless it has a meaning.
                    values = table.column(number).cast(field.type.value_type).combine_chunks()
                    again = values.dictionary_encode().cast(field.type)
                    table = table.set_column(number, field, again)
            self._writer.write_table(table, row_group_size=self._count)
        self._rows, self._count, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        # Else it would try to write its footer when it is collected.
        self._writer.is_open = False


def _string_bytes(column: pa.Array) -> Any:
    """Return the bytes that each row's strings have, also those in a struct; other values are small."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(_string_bytes, column.flatten()), np.zeros(len(column)))
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    if any(test(kind) for test in tests):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return np.zeros(len(column))


def _join(parts: Sequence[Path], out: BinaryIO, compression: str | None) -> None:
    """Write the rows of finished parts one after the other, in groups of rows of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups: _RowGroups | None = None
    for part in parts:
        with open(part, "rb") as file:
            try:
                table = pq.ParquetFile(file)
                groups = groups or _RowGroups(out, table.schema_arrow)
                for rows in table.iter_batches(batch_size=_GROUP_ROWS, use_threads=False):
                    groups.add(rows)
            except pa.ArrowException as error:
                raise _damage(error, "a finished part") from None
    assert groups is not None
    groups.close()


FORMAT = Format("parquet", (".parquet",), _ParquetReader, _ParquetWriter, _join, compressible=False)
