"""DataFrames and Series of pandas and polars in memory: one in, one of the same type out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    BatchRelease,
    Columns,
    PrivatizerSettings,
    named_error,
    string_array,
)
from textpriv.engines.identity import Occurrences, refuse_repeated
from textpriv.errors import CorpusError, MechanismError
from textpriv.mechanisms import NO_DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.statement import PrivacyStatement

__all__ = ["frame_statement", "privatize_frame"]

_ROWS = 1000  # at a time
_NUMBER = "textpriv number of {}"
_SERIES = "text"  # the name of the column of a Series in keys of documents


def privatize_frame(
    frame: Any,
    epsilon: float | None = None,
    *,
    settings: PrivatizerSettings | None = None,
    text_column: str | Sequence[str] = "text",
    document_column: str | None = None,
    author_column: str | None = None,
    labels_column: str | None = None,
    null: str = "keep",
) -> Any:
    """Return a table with private texts and the other columns as they are.

    Parameters
    ----------
    frame : pandas.DataFrame, pandas.Series, polars.DataFrame or polars.Series
        It is not changed. Missing values of pandas (None, NaN, NA) are null texts.
    epsilon : float, optional
        That of TEM over the built-in index, per unit of its distance. Or give ``settings``.
    settings : PrivatizerSettings, optional
        Its run key (``key_file`` or ``run_key``) makes the release repeatable, the same on any engine.
    document_column : str, optional
        The name of each document, from which its randomness follows, all different. Without one, its own text and its number
        among equal texts.
    text_column, author_column, labels_column, null
        As in :class:`textpriv.engines.batch.Columns`; the labels are left out. A Series has no columns with names.

    Returns
    -------
    Of the type of ``frame``, with its index and its columns in their order, without ``attrs``. :func:`frame_statement` names
    what passes.

    Raises
    ------
    MechanismError
        Without an epsilon and settings, or with both.
    CorpusError
        For another type, a column that is missing, a text that is none, and a name that is there twice.
    """
    settings = _settings(epsilon, settings)
    library, kind = type(frame).__module__.split(".")[0], type(frame).__name__
    if library not in ("pandas", "polars") or not hasattr(frame, "to_numpy"):
        raise CorpusError(
            f"expected a DataFrame or Series of pandas or polars, found {kind}. Collect a LazyFrame first; Spark, Ray and "
            "datasets have functions of their own in textpriv.engines."
        )
    if not hasattr(frame, "columns"):
        table = frame.to_frame(_SERIES)
        return privatize_frame(table, settings=settings, null=null)[_SERIES].rename(frame.name)
    columns = Columns(text_column, document_column, author_column, labels=labels_column, null=null)
    if document_column is None:
        columns = replace(columns, occurrence=[_NUMBER.format(name) for name in columns.texts])
    columns.check(list(frame.columns))
    texts = _released(frame, settings, columns)
    if labels_column is not None:
        frame = frame[[name for name in frame.columns if name != labels_column]]
    if library == "polars":
        import polars

        return frame.with_columns(
            [polars.Series(name, given, polars.String) for name, given in texts.items()]
        )
    private = frame.copy(deep=False)
    private.attrs = {}  # which may contain anything, such as where the texts came from
    for name, given in texts.items():
        kept = frame[name].dtype
        private[name] = given
        if kept.name != "category":
            private[name] = private[name].astype(kept)
    return private


def frame_statement(
    statement: PrivacyStatement,
    frame: Any,
    *,
    text_column: str | Sequence[str] = "text",
    labels_column: str | None = None,
    null: str = "keep",
) -> PrivacyStatement:
    """Return the statement of a privatizer for what an engine releases of a table: all that passes is named.

    Parameters
    ----------
    statement : PrivacyStatement
        ``settings.build().statement``.
    frame
        As given to :func:`privatize_frame`, or to the engines of Spark, Ray and datasets.
    text_column, labels_column, null
        As given there.
    """
    besides, names = [], _names_of_columns(frame)
    if names is not None:
        private = (*Columns(text_column).texts, labels_column)
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
    lines = [f"what a table has besides columns, released as it is: {', '.join(besides)}"]
    found = _nulls(frame, Columns(text_column).texts) if null == "keep" else 0
    nulls = [
        f"which records have no text: {'' if found is None else f'{found:,} '}null texts stay null"
    ]
    not_protected = (*(lines if besides else ()), *(nulls if found != 0 else ()))
    return statement.extended(not_protected=not_protected) if not_protected else statement


def _nulls(frame: Any, columns: Sequence[str]) -> int | None:
    """Count the null texts of a table in memory; None for one that is read later."""
    if type(frame).__module__.split(".")[0] not in ("pandas", "polars"):
        return None
    series = [frame[name] for name in columns] if hasattr(frame, "columns") else [frame]
    return sum(text is None for each in series for text in _values(each))


def _values(series: Any) -> list[Any]:
    """Return the values of a Series; missing ones of pandas are None."""
    values: list[Any] = series.to_list()
    if not hasattr(series, "isna"):
        return values
    return [None if gone else value for value, gone in zip(values, series.isna(), strict=True)]


def _names_of_columns(frame: Any) -> Any:
    """Return the names of the columns of any table, or of all splits together; None for a Series."""
    if isinstance(frame, dict):
        return list(dict.fromkeys(chain.from_iterable(map(_names_of_columns, frame.values()))))
    if hasattr(frame, "column_names"):
        # Of datasets; one that is read as it goes may not know them before.
        return frame.column_names or list(next(iter(frame), {}))
    columns = getattr(frame, "columns", None)
    return columns() if callable(columns) else columns


def _settings(epsilon: float | None, settings: PrivatizerSettings | None) -> PrivatizerSettings:
    if epsilon is not None and settings is not None:
        raise MechanismError("Give an epsilon or settings, which have one of their own, not both.")
    if settings is not None:
        return settings
    if epsilon is None:
        raise MechanismError(f"privatize_frame(frame, epsilon=...): {NO_DEFAULT}")
    return PrivatizerSettings(options={"epsilon": epsilon})


def _released(
    frame: Any, settings: PrivatizerSettings, columns: Columns
) -> dict[str, list[str | None]]:
    """Return the private texts of each column."""
    import pyarrow as pa

    raw = {name: _values(frame[name]) for name in columns.texts}
    for name, texts in raw.items():
        for row, text in enumerate(texts):
            if not isinstance(text, str) and (text is not None or columns.null == "fail"):
                found = "none (null)" if text is None else type(text).__name__
                raise CorpusError(
                    f"row {row + 1}: expected a text in {name!r}, found {found}. Leave such rows out first."
                )
    given: dict[str, Any] = {name: string_array(texts) for name, texts in raw.items()}
    for column in filter(None, (columns.document, columns.author)):
        given[column] = _names(frame[column].to_list(), column)
    if columns.labels is not None:
        labels = frame[columns.labels].to_list()
        plain = (each if isinstance(each, str) else json.dumps(_listed(each)) for each in labels)
        given[columns.labels] = string_array(plain)
    for column, texts in zip(columns.occurrences, raw.values(), strict=False):
        known = Occurrences()
        numbers = [1 if text is None else known.count(text) for text in texts]
        given[column] = pa.array(numbers, pa.uint64())
    if columns.document is not None and settings.ledger is None:
        refuse_repeated(given[columns.document].to_pylist(), columns.document)
    release = BatchRelease(settings.build(), columns)
    private: dict[str, list[str | None]] = {name: [] for name in raw}
    for first in range(0, len(frame), _ROWS):
        batch = pa.RecordBatch.from_pydict(given).slice(first, _ROWS)
        try:
            done = release(batch)
        except Exception as error:
            raise named_error(error, partial(_row, first)) from None
        for name, emitted in private.items():
            emitted += done.column(name).to_pylist()
    return private


def _row(first: int, row: int) -> str:
    return f"row {first + row + 1}"


def _listed(labels: Any) -> Any:
    """Return labels as lists: pandas has arrays of them where a frame was read from Parquet, and a number for none."""
    if hasattr(labels, "tolist"):
        return labels.tolist()
    return labels if isinstance(labels, list) else None


def _names(values: list[Any], column: str) -> pa.Array:
    """Return names as text."""
    for row, name in enumerate(values):
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise CorpusError(
                f"row {row + 1}: expected a name, as text or a whole number, in {column!r}; found none."
            )
        if not str(name).encode("utf-8", "replace").decode() == str(name):
            raise CorpusError(f"row {row + 1}: the name in {column!r} is not UTF-8. Give another.")
    return string_array(map(str, values))
