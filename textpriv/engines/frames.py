"""The Arrow-batch function on tables in memory: a DataFrame or Series of pandas or polars in, one of the same type out.

Neither package is imported unless its frames are given. What the texts become is the matter of ``engines.batch``.
"""

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

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.statement import PrivacyStatement

__all__ = ["frame_statement", "privatize_frame"]

_ROWS = 1000  # at a time
_NUMBER = "textpriv number of {}"
_SERIES = "text"  # what the column of a Series is known as


def privatize_frame(
    frame: Any,
    epsilon: float | None = None,
    *,
    settings: PrivatizerSettings | None = None,
    text_column: str | Sequence[str] = "text",
    document_column: str | None = None,
    author_column: str | None = None,
    labels_column: str | None = None,
) -> Any:
    """Return a table with private texts and the other columns as they are.

    Parameters
    ----------
    frame : pandas.DataFrame, pandas.Series, polars.DataFrame or polars.Series
        It is not changed. Rows without a text are refused: leave them out first.
    epsilon : float, optional
        That of TEM over the built-in index, per unit of its distance; every call draws anew. Or give ``settings``.
    settings : PrivatizerSettings, optional
        Its run key (``key_file`` or ``run_key``) makes the release repeatable, the same on any engine, and so shows whether
        a text has changed between two of them.
    text_column : str or sequence of str
        One column of texts, or several, which are released independently; that of a Series is known as "text". A Series has
        no columns with names.
    document_column : str, optional
        The name of each document, from which its randomness follows, all different. Without one, its own text and its number
        among equal texts.
    author_column, labels_column : str, optional
        As ``author`` and ``labels`` in :class:`textpriv.engines.batch.Columns`; the labels are left out.

    Returns
    -------
    Of the type of ``frame``, with its index and its columns in their order, without what pandas keeps in ``attrs``. What
    passes is named by :func:`frame_statement`.

    Raises
    ------
    MechanismError
        Without an epsilon and settings, or with both.
    CorpusError
        For another type, a column that is missing, a row without a text, and a name that is there twice.
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
        names: dict[str, Any] = {"document_column": document_column, "author_column": author_column}
        return privatize_frame(table, settings=settings, **names)[_SERIES].rename(frame.name)
    columns = Columns(
        text_column, document=document_column, author=author_column, labels=labels_column
    )
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
    private.attrs = {}  # which may hold anything, such as where the texts came from
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
) -> PrivacyStatement:
    """Return the statement of a privatizer for what an engine releases of a table: all that passes is named.

    Parameters
    ----------
    statement : PrivacyStatement
        ``settings.build().statement``.
    frame
        As given to :func:`privatize_frame`, or to the engines of Spark, Ray and datasets.
    text_column, labels_column
        As given there.

    Returns
    -------
    PrivacyStatement
        Names the other columns, the index of pandas but for one that only counts the rows, the name of that index and of
        the columns, the name of a Series, and that splits of datasets have names.
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
    if not besides:
        return statement
    return statement.extended(
        not_protected=(
            f"what a table has besides columns, released as it is: {', '.join(besides)}",
        )
    )


def _names_of_columns(frame: Any) -> Any:
    """The names of the columns of a table of any kind, or of all splits together; None of a Series, which has none."""
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
        from textpriv.amounts import explain_missing

        raise MechanismError(
            f"privatize_frame(frame, epsilon=...): {explain_missing('builtin:en')}"
        )
    return PrivatizerSettings(options={"epsilon": epsilon})


def _released(frame: Any, settings: PrivatizerSettings, columns: Columns) -> dict[str, list[str]]:
    """The private texts of each column."""
    import pyarrow as pa

    raw = {name: frame[name].to_list() for name in columns.texts}
    for name, texts in raw.items():
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise CorpusError(
                    f"row {row + 1}: expected a text in {name!r}, found {type(text).__name__}. Leave such rows out first."
                )
    given: dict[str, Any] = {name: string_array(texts) for name, texts in raw.items()}
    for column in filter(None, (columns.document, columns.author)):
        given[column] = _names(frame[column].to_list(), column)
    if columns.labels is not None:
        labels = frame[columns.labels].to_list()
        plain = (each if isinstance(each, str) else json.dumps(_listed(each)) for each in labels)
        given[columns.labels] = string_array(plain)
    for column, texts in zip(columns.occurrences, raw.values(), strict=False):
        given[column] = pa.array(map(Occurrences().count, texts), pa.uint64())
    if columns.document is not None and settings.ledger is None:
        refuse_repeated(given[columns.document].to_pylist(), columns.document)
    release = BatchRelease(settings.build(), columns)
    private: dict[str, list[str]] = {name: [] for name in raw}
    for first in range(0, len(frame), _ROWS):
        batch = pa.RecordBatch.from_pydict(given).slice(first, _ROWS)
        try:
            done = release(batch)
        except Exception as error:
            raise named_error(error, partial(_row, first, batch.num_rows)) from None
        for name, emitted in private.items():
            emitted += done.column(name).to_pylist()
    return private


def _row(first: int, rows: int, text: int) -> str:
    """What the row of a text is called, the texts of one column standing after those of another."""
    return f"row {first + text % rows + 1}"


def _listed(labels: Any) -> Any:
    """Labels as lists: pandas has arrays of them where a frame was read from Parquet, and a number where there are none."""
    if hasattr(labels, "tolist"):
        return labels.tolist()
    return labels if isinstance(labels, list) else None


def _names(values: list[Any], column: str) -> pa.Array:
    """Names as text; what is none of a document or author becomes null."""
    import pyarrow as pa

    known = [
        str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        for value in values
    ]
    try:
        return pa.array(known, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair; the error has the name in it
        row = next(row for row, name in enumerate(known) if name and not _is_utf8(name))
        raise CorpusError(
            f"row {row + 1}: the name in {column!r} is not UTF-8. Give the document another."
        ) from None


def _is_utf8(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text
