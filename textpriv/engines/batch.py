"""The one function that makes rows of a table private, which every engine calls.

A document's random stream follows from its name, or its own text and how many equal texts come before it. Two columns of
texts are two documents. Equal unnamed texts are drawn independently in one run, and come out equal in two under one key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from textpriv.engines.columns import Columns, Record
from textpriv.errors import CorpusError, DocumentError, TextprivError, at_position
from textpriv.randomness import Occurrences, framed
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.ledger import DocumentName
    from textpriv.privatizer import Privatizer

REPEATED_NAME = (
    "a document before it has the same name, and equal texts under one name would come out equal. Give each document a name "
    "of its own, or count versions of one in a ledger."
)

Value = TypeVar("Value")


def unnamed_key(column: str, text: str, occurrence: int = 1) -> bytes:
    """Return the key of a document without a name: its own text, and its number among equal texts, from 1."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    own = b"t" + digest + occurrence.to_bytes(8, "big")
    return framed(column.encode("utf-8", "surrogatepass")) + own


def numbers_of(texts: Sequence[Any], known: Sequence[Occurrences]) -> tuple[int, ...]:
    """Return the number of each text of a record among the equal ones of its column, from 1."""
    return tuple(own.count(text) for own, text in zip(known, texts, strict=True))


def refuse_repeated(names: Iterable[object]) -> None:
    """Refuse a name that two documents have; the error names the row, not the document."""
    known = Occurrences()
    for row, name in enumerate(names):
        if name is not None and known.count(str(name)) > 1:
            raise CorpusError(f"row {row + 1}: {REPEATED_NAME}")


class Released(NamedTuple):
    """Private texts, a list for each column, and tokens by class."""

    texts: list[list[str | None]]
    tokens: Mapping[str, int]
    refused: Sequence[int] = ()  # the places of records over a limit, which are left out


class BatchRelease:
    """The release of records; one in each process."""

    def __init__(self, privatizer: Privatizer, columns: Columns) -> None:
        self.privatizer = privatizer
        self.columns = columns

    def __call__(
        self, batch: pa.RecordBatch, numbers: Sequence[Sequence[int]] | None = None
    ) -> pa.RecordBatch:
        """Return an Arrow batch with private texts and the other columns as they are, without metadata of its schema."""
        import pyarrow as pa

        columns, names = self.columns, batch.schema.names
        columns.check(names)
        records = columns.records(lambda name: batch.column(name).to_pylist(), numbers)
        try:
            released = self.rows(records).texts
        except DocumentError as error:
            raise named_error(error, lambda row: f"row {row + 1} of a batch") from None
        private = dict(zip(columns.texts, released, strict=True))
        kept = [n for n, name in enumerate(names) if name != columns.labels_column]
        fields = [types_alone(batch.schema.field(n)) for n in kept]
        arrays = [batch.column(n) for n in kept]
        for n, each in enumerate(fields):
            if each.name in private:
                arrays[n] = pa.array(private[each.name], pa.large_string()).cast(each.type)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def rows(self, records: Sequence[Record], leaves_out: bool = False) -> Released:
        """Return private texts; ``leaves_out`` documents over a limit of the ledger.

        Raises
        ------
        DocumentError
            For a text or a name of another type, labels that do not fit, or a document that the ledger refuses;
            ``position`` is the row. Nothing of the rows is drawn.
        """
        places = list(range(len(records)))
        while True:
            try:
                released = self._all([records[place] for place in places])
            except DocumentError as error:
                if not (leaves_out and error.refused):
                    error.position = None if error.position is None else places[error.position]
                    raise
                places = [place for n, place in enumerate(places) if n not in error.refused]
            else:
                return released._replace(refused=sorted({*range(len(records))}.difference(places)))

    def _all(self, records: Sequence[Record]) -> Released:
        rows: list[int] = []
        texts: list[str] = []
        keys: list[DocumentName] = []
        for place, column in enumerate(self.columns.texts):
            for row, record in enumerate(records):
                text = record.texts[place]
                if text is not None:
                    with at_position(row):
                        if not isinstance(text, str):
                            found = type(text).__name__
                            raise DocumentError(f"expected a text in {column!r}, found {found}.")
                        keys.append(self._key(record, place))
                    rows.append(row)
                    texts.append(text)
        labels = None
        if self.columns.labels_column is not None:
            labels = [records[row].labels for row in rows]
        try:
            raw = self.privatizer.read_batch(texts, labels)
            drawn = iter(self.privatizer.release_batch(raw, keys))
        except DocumentError as error:
            if error.position is not None:
                error.position = rows[error.position]
            error.refused = {rows[place] for place in error.refused}
            raise
        private = [
            [None if record.texts[place] is None else next(drawn) for record in records]
            for place in range(len(self.columns.texts))
        ]
        return Released(private, raw.counts)

    def _key(self, record: Record, place: int) -> DocumentName:
        """Return the name of a record's text in one of the columns of texts."""
        from textpriv.ledger import DocumentName

        columns, column = self.columns, self.columns.texts[place]
        if columns.document_column is None:
            if self.privatizer.ledger is not None or not record.numbers:
                raise CorpusError("Each document needs a name of its own. Name their column.")
            return DocumentName(unnamed_key(column, record.texts[place], record.numbers[place]))
        name, author = _name(columns.document_column, record.name), None
        if columns.author_column is not None:
            author = _name(columns.author_column, record.author)
        return DocumentName(name, author, column)


def _name(column: str | None, name: Any) -> str:
    """Return a name as text; 7 and "7" are one name, for CSV cannot distinguish them."""
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise DocumentError(f"expected a name, text or a whole number, in {column!r}; found none.")
    return str(name)


def types_alone(field: pa.Field) -> pa.Field:
    """Return a field without metadata, at whatever depth; what tells a type that Arrow does not know stays."""
    told = {k: v for k, v in (field.metadata or {}).items() if k.startswith(b"ARROW:extension:")}
    return field.with_type(with_children(field.type, types_alone)).with_metadata(told or None)


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a nested type with changed fields in it; any other type as it is."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([change(kind.field(n)) for n in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return make(change(kind.value_field))
    return kind


_built: dict[Any, BatchRelease] = {}


def release_in_process(
    settings: PrivatizerSettings, columns: Columns, fingerprint: bytes | None = None
) -> BatchRelease:
    """Return this process's release, built once, and again when the key file or the index folder has been replaced.

    One that is not as the Privatizer with the fingerprint is refused: a statement would say something else of its texts.
    """
    folder = None
    with contextlib.suppress(OSError):  # loading a missing index raises an error of its own
        status = os.stat(settings.index)
        folder = status.st_dev, status.st_ino, status.st_mtime_ns
    secret = b"" if settings.seed is not None or settings.ledger is not None else settings.secret()
    known = repr((settings, columns)), secret, folder
    if known not in _built:
        privatizer = settings.build()
        privatizer.warm()
        _built.clear()  # a process that serves many runs must not keep all their indices
        _built[known] = BatchRelease(privatizer, columns)
    if fingerprint not in (None, _built[known].privatizer.fingerprint):
        raise CorpusError("settings= must build just the Privatizer that is given beside them.")
    return _built[known]


def release_records(
    settings: PrivatizerSettings, columns: Columns, known: bytes, leaves_out: bool, records: Any
) -> Released:
    """Release records in another process, by a Privatizer with a known fingerprint."""
    return release_in_process(settings, columns, known).rows(records, leaves_out)


def release_table(
    table: pa.Table,
    settings: PrivatizerSettings,
    columns: Columns,
    numbers: Sequence[Sequence[int]] | None = None,
) -> pa.Table:
    """Release a table in another process."""
    import pyarrow as pa

    empty = [pa.RecordBatch.from_pylist([], table.schema)]
    (batch,) = table.combine_chunks().to_batches() or empty
    release = release_in_process(settings, columns)
    return pa.Table.from_batches([without_trace(lambda rows: release(rows, numbers), batch)])


def results(
    numbers: pa.Array, tasks: Sequence[Any], work: Callable[[Any], dict[str, Any]]
) -> pa.Table:
    """Do the tasks of these numbers on another machine; their results are JSON."""
    import pyarrow as pa

    done = [json.dumps(without_trace(work, tasks[number])) for number in numbers.to_pylist()]
    return pa.table({"result": pa.array(done, pa.string())})


def without_trace(work: Callable[[Any], Value], given: Any) -> Value:
    """Do the work; an error of others is raised by its kind alone, for Spark and Ray write messages to their logs."""
    try:
        return work(given)
    except TextprivError:
        raise  # says nothing private
    except Exception as error:
        raise RuntimeError(f"textpriv failed with {type(error).__name__}") from None


def gave_up(engine: str, error: Exception) -> CorpusError:
    """Return the error for a task that an engine gave up; what the engine says of it is long and may quote anything."""
    return CorpusError(
        f"{engine} gave up a task ({type(error).__name__}): a worker ran out of memory, or has no index or no textpriv; its "
        "log says more. Run the same command again; with privatize, continue with --resume."
    )


def named_error(error: Exception, name: Callable[[int], str]) -> Exception:
    """Return an error of some rows with the name of its row, where it is about one."""
    if not isinstance(error, DocumentError) or error.position is None:
        return error
    return error.named(name(error.position))
