"""Tables in memory of pandas, polars, pyarrow and DuckDB: one in, one of the same type out."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    BatchRelease,
    named_error,
    numbers_of,
    refuse_repeated,
    release_table,
)
from textpriv.engines.columns import Columns, Record
from textpriv.errors import CorpusError, DocumentError
from textpriv.mechanisms import protection
from textpriv.randomness import Occurrences
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    from textpriv.statement import PrivacyStatement

_SERIES = "text"  # the name of the column of a Series in keys of documents


def privatize_frame(
    frame: Any,
    epsilon: float | None = None,
    *,
    recovery: float | None = None,
    settings: PrivatizerSettings | None = None,
    **columns: Any,
) -> Any:
    """Return a table with private texts and the other columns as they are.

    It has the type of ``frame``, its index and columns, but no ``attrs``. :func:`frame_statement` names what passes.

    Parameters
    ----------
    frame : pandas.DataFrame, pandas.Series, polars.DataFrame, polars.Series, pyarrow.Table or DuckDBPyRelation
        It is not changed. A relation is read into memory. Missing values of pandas (None, NaN, NA) are null texts.
    epsilon : float, optional
        That of the default mechanism over the built-in index, per unit of its distance.
    recovery : float, optional
        In place of epsilon, as for :func:`textpriv.privatize`.
    settings : PrivatizerSettings, optional
        In place of both. Its run key (``key_file`` or ``run_key``) makes the release repeatable, the same on any engine.
    **columns
        Fields of :class:`textpriv.engines.columns.Columns`. A Series has no columns with names.
    """
    amounts = protection("privatize_frame", epsilon=epsilon, recovery=recovery, settings=settings)
    settings = settings or PrivatizerSettings(options=amounts)
    library, kind = type(frame).__module__.split(".")[0], type(frame).__name__
    if kind == "DuckDBPyRelation":
        import duckdb

        table = privatize_frame(frame.to_arrow_table(), settings=settings, **columns)
        return duckdb.from_arrow(table)
    if library == "pyarrow" and kind == "Table":
        chosen = Columns(**columns)
        chosen.check(frame.column_names)
        numbers = [record.numbers for record in _records(frame, settings, chosen)]
        return release_table(frame, settings, chosen, numbers)
    if library not in ("pandas", "polars") or not hasattr(frame, "to_numpy"):
        raise CorpusError(
            f"expected a DataFrame or Series, or a table of pyarrow or DuckDB, found {kind}. Collect a LazyFrame first."
        )
    if not hasattr(frame, "columns"):
        table = frame.to_frame(_SERIES)
        return privatize_frame(table, settings=settings, **columns)[_SERIES].rename(frame.name)
    chosen = Columns(**columns)
    chosen.check(list(frame.columns))
    records = _records(frame, settings, chosen)
    try:
        released = BatchRelease(settings.build(), chosen).rows(records)
    except DocumentError as error:
        raise named_error(error, lambda row: f"row {row + 1}") from None
    texts = dict(zip(chosen.texts, released.texts, strict=True))
    if chosen.labels_column is not None:
        frame = frame[[name for name in frame.columns if name != chosen.labels_column]]
    if library == "polars":
        import polars

        series = [polars.Series(name, given, polars.String) for name, given in texts.items()]
        return frame.with_columns(series)
    private = frame.copy(deep=False)
    private.attrs = {}  # which may contain anything, such as where the texts came from
    for at, kept in enumerate(frame.dtypes):
        if kept.name == "category":  # lists values of rows that are gone, too
            private.isetitem(at, frame.iloc[:, at].cat.remove_unused_categories())
    for part in ("remove_unused_categories", "remove_unused_levels"):
        private.index = getattr(private.index, part, lambda: private.index)()
    for name, given in texts.items():
        kept = frame[name].dtype
        private[name] = given
        if kept.name != "category":
            private[name] = private[name].astype(kept)
    return private


def frame_statement(statement: PrivacyStatement, frame: Any, **columns: Any) -> PrivacyStatement:
    """Return the statement of a privatizer for what an engine releases of a table: all that passes is named.

    Parameters
    ----------
    statement : PrivacyStatement
        ``settings.build().statement``.
    frame, **columns
        As given to :func:`privatize_frame`, or to the engines of Spark, Ray and datasets.
    """
    frame = frame.to_arrow_table() if hasattr(frame, "to_arrow_table") else frame
    chosen, besides, names = Columns(**columns), [], _names_of_columns(frame)
    if names is not None:
        private = (*chosen.texts, chosen.labels_column)
        statement = statement.with_columns([str(name) for name in names if name not in private])
        if any(name is not None for name in getattr(names, "names", ())):
            besides.append("the names of its levels of columns")
    elif frame.name not in (None, ""):
        besides.append("its name")
    if isinstance(frame, dict):
        besides.append("the names of its splits, and how many documents stand in each")
    if type(frame).__module__.split(".")[0] == "pandas":
        index = frame.index
        is_count = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
        named = [str(name) for name in index.names if name is not None]
        if named or not is_count:
            besides.append(f"its index{' ' * bool(named)}{', '.join(named)}")
    lines = ["which records have no text: null texts stay null"]
    if besides:
        lines.append(f"what a table has besides columns, released as it is: {', '.join(besides)}")
    return statement.extended(not_protected=tuple(lines))


def _names_of_columns(frame: Any) -> Any:
    """Return the names of the columns of any table, or of all splits together; None for a Series."""
    if isinstance(frame, dict):
        return list(dict.fromkeys(chain.from_iterable(map(_names_of_columns, frame.values()))))
    if hasattr(frame, "column_names"):
        # Of datasets; one that is read as it goes may not know them before.
        return frame.column_names or list(next(iter(frame), {}))
    columns = getattr(frame, "columns", None)
    return columns() if callable(columns) else columns


def _records(frame: Any, settings: PrivatizerSettings, columns: Columns) -> list[Record]:
    """Return the records of a frame; those without names are numbered."""
    records = columns.records(lambda name: _values(frame[name]))
    if columns.document_column is None:
        known = [Occurrences() for _ in columns.texts]
        return [record._replace(numbers=numbers_of(record.texts, known)) for record in records]
    if settings.ledger is None:
        refuse_repeated(record.name for record in records)
    return records


def _values(series: Any) -> list[Any]:
    """Return the values of a Series; missing ones of pandas are None, and arrays, as in one from Parquet, lists."""
    values: list[Any] = series.to_pylist() if hasattr(series, "to_pylist") else series.to_list()
    if not hasattr(series, "isna"):
        return values
    plain = (each.tolist() if hasattr(each, "tolist") else each for each in values)
    return [None if gone else each for each, gone in zip(plain, series.isna(), strict=True)]
