"""Writing records back, in the format they were read in, with the private text in the place of the raw one.

What lives here: which other columns pass, one writer for each format, and the joining of parts into one file. What does
not: reading (``reading``), and when a file appears under its name (``shards``). The bytes of an output are a function of
its records alone: neither the batches nor the parts that they came in leave a trace.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.corpus.records import Batch, CorpusReader, damage_told
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa
from textpriv.corpus.columns import ColumnRule

__all__ = ["RecordWriter", "compressed", "join_parts", "writer_for"]

# A row group closes at this many rows, or at this many bytes of strings, so that one can be held in memory.
_GROUP_ROWS = 10_000
_GROUP_BYTES = 64 * 1024 * 1024
_PIECE = 1024 * 1024


class RecordWriter:
    """Write batches of one file, line by line; the base of the other formats."""

    def __init__(self, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> None:
        self._reader = reader
        self._out = out
        self._rule = rule

    def begin(self) -> None:
        """Write what comes before the first record of a file."""

    def write(self, batch: Batch, texts: Sequence[str]) -> None:
        """Write a batch's records with these texts."""
        for row, text in zip(batch.rows, texts, strict=True):
            self._out.write(self._record(row, text))

    def close(self) -> None:
        """Write what comes after the last record; leaves the file below open."""

    def abandon(self) -> None:
        """Write nothing more: the file below is given up."""

    def _record(self, row: Any, text: str) -> bytes:
        # One document a line is the format, so a released line break becomes a space.
        return text.replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


class _JsonWriter(RecordWriter):
    def _record(self, row: Any, text: str) -> bytes:
        column = self._reader.text_column
        if not self._rule.passes_all:
            row = {name: row[name] for name in row if name == column or self._rule.passes(name)}
        record = {**row, column: text}
        try:
            return _dump_json(record, ensure_ascii=False).encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            # Another field holds half a surrogate pair, which only an escape can write.
            return _dump_json(record, ensure_ascii=True).encode("ascii") + b"\n"


def _dump_json(record: Mapping[str, Any], ensure_ascii: bool) -> str:
    return json.dumps(record, ensure_ascii=ensure_ascii, separators=(",", ":"))


class _CsvWriter(RecordWriter):
    def begin(self) -> None:
        self._out.write(self._row([self._reader.columns[place] for place in self._places()]))

    def write(self, batch: Batch, texts: Sequence[str]) -> None:
        places = self._places()
        column = self._reader.columns.index(self._reader.text_column)
        for row, text in zip(batch.rows, texts, strict=True):
            self._out.write(self._row([text if p == column else row[p] for p in places]))

    def _places(self) -> list[int]:
        text = self._reader.text_column
        return [
            place
            for place, name in enumerate(self._reader.columns)
            if name == text or self._rule.passes(name)
        ]

    def _row(self, row: list[str]) -> bytes:
        buffer = io.StringIO(newline="")
        # Not every Python version quotes a lone carriage return, and a reader would take it for the end of the row.
        writer = csv.writer(
            buffer,
            quoting=csv.QUOTE_ALL if any("\r" in value for value in row) else csv.QUOTE_MINIMAL,
            lineterminator=self._reader.newline,
        )
        writer.writerow(row)
        return buffer.getvalue().encode("utf-8")


class _ParquetWriter(RecordWriter):
    """Write rows in groups whose borders depend on the rows alone."""

    def __init__(self, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> None:
        super().__init__(reader, out, rule)
        self._groups: _RowGroups | None = None

    def begin(self) -> None:
        self._opened()

    def write(self, batch: Batch, texts: Sequence[str]) -> None:
        import pyarrow as pa

        groups = self._opened()
        if not texts:
            return
        schema = self._reader.schema
        assert schema is not None
        rows: pa.RecordBatch = batch.rows
        place = schema.names.index(self._reader.text_column)
        column = pa.array(texts, pa.string()).cast(schema.field(place).type)
        columns = [column if i == place else rows.column(i) for i in self._places()]
        groups.add(pa.RecordBatch.from_arrays(columns, schema=groups.schema))

    def close(self) -> None:
        self._opened().close()

    def abandon(self) -> None:
        if self._groups is not None:
            self._groups.abandon()

    def _places(self) -> list[int]:
        assert self._reader.schema is not None
        text = self._reader.text_column
        return [
            place
            for place, name in enumerate(self._reader.schema.names)
            if name == text or self._rule.passes(name)
        ]

    def _opened(self) -> _RowGroups:
        if self._groups is None:
            import pyarrow as pa

            schema = self._reader.schema
            assert schema is not None
            places = self._places()
            metadata = schema.metadata
            if metadata and len(places) < len(schema.names):
                # It describes the columns of the input, some of which are dropped.
                metadata = {key: value for key, value in metadata.items() if key != b"pandas"}
            kept = pa.schema([schema.field(place) for place in places], metadata)
            self._groups = _RowGroups(self._out, kept, self._reader.text_column)
        return self._groups


class _RowGroups:
    """A Parquet file in the making."""

    def __init__(self, out: BinaryIO, schema: pa.Schema, text_column: str) -> None:
        import pyarrow.parquet as pq

        self.schema = schema
        self._text = schema.names.index(text_column) if text_column in schema.names else None
        self._writer = pq.ParquetWriter(out, schema, compression="zstd")
        self._rows: list[pa.RecordBatch] = []
        self._count = self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; a group that is full is written."""
        import numpy as np
        import pyarrow as pa

        while rows.num_rows:
            sizes = np.zeros(rows.num_rows)
            for place, column in enumerate(rows.columns):
                if place == self._text and pa.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
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
            for place, field in enumerate(self.schema):
                if pa.types.is_dictionary(field.type) and not field.type.ordered:
                    # The order of a dictionary, too, is to follow from the rows of the group, unless it has a meaning.
                    values = table.column(place).cast(field.type.value_type).combine_chunks()
                    again = values.dictionary_encode().cast(field.type)
                    table = table.set_column(place, field, again)
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


_WRITERS = {
    "text": RecordWriter,
    "jsonl": _JsonWriter,
    "csv": _CsvWriter,
    "parquet": _ParquetWriter,
}


def writer_for(reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> RecordWriter:
    """Return the writer for what a reader reads; the reader must have read its header."""
    return _WRITERS[reader.format](reader, out, rule)


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


def join_parts(
    parts: Sequence[Path], out: BinaryIO, format: str, compression: str | None, text_column: str
) -> None:
    """Write the content of the parts of one file one after the other.

    Raises
    ------
    CorpusError
        If a part is damaged.
    """
    if format != "parquet":
        with compressed(out, compression) as packed:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, packed, _PIECE)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups: _RowGroups | None = None
    for part in parts:
        with open(part, "rb") as file:
            try:
                table = pq.ParquetFile(file)
                groups = groups or _RowGroups(out, table.schema_arrow, text_column)
                for rows in table.iter_batches(batch_size=_GROUP_ROWS, use_threads=False):
                    groups.add(rows)
            except pa.ArrowException as error:
                raise damage_told(error, "a finished part") from None
    if groups is None:
        raise CorpusError("No part was finished, so there is nothing to join.")
    groups.close()
