"""The one function from an Arrow record batch to a private one, which every engine calls."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.engines.identity import document_key, unnamed_key
from textpriv.engines.schemas import types_alone
from textpriv.engines.settings import PrivatizerSettings
from textpriv.errors import CorpusError, DocumentError, TextprivError
from textpriv.mechanisms.base import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer, ReleaseKey

__all__ = [
    "BatchRelease",
    "Columns",
    "PrivatizerSettings",
    "named_error",
    "release_in_process",
    "string_array",
    "without_trace",
]

NULLS = ("keep", "fail", "empty")
_LOOKED_AT = 500  # words by which texts of another language are known


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a record batch.

    Attributes
    ----------
    text
        The texts; several columns of them as a sequence of names.
    document, author
        The name of each document, and of its author: for a ledger, and for spans that are replaced the same way for a
        person.
    occurrence
        Without names: the number of each text among the equal ones of its column, from 1; as many columns as ``text`` has.
    labels
        The spans of each text that are known already (:func:`textpriv.spans.span.read_labels`). The column is left out of
        what is released; with one column of texts only.
    known_as
        The names of the text columns in the corpus, which are a part of a document's key; ``text`` if left out.
    moved
        The name of a column to add, with the place of each span in the raw and in the private text: JSON, its owner's.
    null
        A null text is kept (``"keep"``), refused (``"fail"``) or becomes an empty text (``"empty"``).

    Raises
    ------
    CorpusError
        If a text is to be its own name, since equal texts would come out equal. If a column of texts is named twice, or
        none is.
    """

    text: str | Sequence[str] = "text"
    document: str | None = None
    author: str | None = None
    occurrence: str | Sequence[str] | None = None
    labels: str | None = None
    known_as: str | Sequence[str] | None = None
    moved: str | None = None
    null: str = "keep"

    def __post_init__(self) -> None:
        texts = self.texts
        if not texts or len(set(texts)) < len(texts):
            raise CorpusError("Name each column of texts once.")
        for column in filter(None, (self.document, self.author, self.labels)):
            if column in texts:
                raise CorpusError(
                    f"{column!r} contains the texts, so it cannot name documents or authors, nor hold labels. Name another "
                    "column."
                )
        if self.labels is not None and len(texts) > 1:
            raise CorpusError("Labels are offsets in one text: release several columns one by one.")
        if self.null not in NULLS:
            raise CorpusError(f"null must be one of {', '.join(NULLS)}; found {self.null!r}.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return _names(self.text)

    @property
    def occurrences(self) -> tuple[str, ...]:
        """The columns of numbers among equal texts."""
        return () if self.occurrence is None else _names(self.occurrence)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the text columns in the keys of documents."""
        return self.texts if self.known_as is None else _names(self.known_as)

    def check(self, names: Sequence[str]) -> None:
        """Refuse the columns of a table where one that is needed is not there once."""
        for column in filter(None, (*self.texts, self.document, self.author, self.labels)):
            if (count := list(names).count(column)) != 1:
                raise CorpusError(
                    f"expected one column named {column!r}, found {count} among {len(names)} columns."
                )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise CorpusError("Columns are named by text; give the column such a name first.")
    return names


class BatchRelease:
    """The release of record batches; one in each process.

    Parameters
    ----------
    privatizer : Privatizer
    columns : Columns

    Attributes
    ----------
    tokens : Counter
        Tokens by class, as released by all calls so far.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa, textpriv
    >>> rng = np.random.default_rng(0)
    >>> vocabulary = textpriv.Vocabulary(["good", "bad", "film"], rng.normal(size=(3, 5)))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary), epsilon=300.0)
    >>> release = BatchRelease(textpriv.Privatizer(mechanism, seed=1), Columns("text", document="id"))
    >>> release(pa.RecordBatch.from_pydict({"id": ["a"], "text": ["GOOD film!"]})).to_pylist()
    [{'id': 'a', 'text': 'good film!'}]
    """

    def __init__(self, privatizer: Privatizer, columns: Columns) -> None:
        self.privatizer = privatizer
        self.columns = columns
        self.tokens: Counter[str] = Counter()
        self._drawn = self._unknown = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with private texts and the other columns as they are, without metadata of its schema.

        Raises
        ------
        CorpusError
            If a column is missing, or a text or a name is of another type; names the row.
        DocumentError
            For labels that do not fit, or a document that the ledger refuses; ``position`` is the row. Nothing of the
            batch is drawn.
        """
        import pyarrow as pa

        columns = self.columns
        columns.check(batch.schema.names)
        given = [self._texts(batch.column(name), name) for name in columns.texts]
        rows = [row for texts in given for row, text in enumerate(texts) if text is not None]
        plain = [text for texts in given for text in texts if text is not None]
        try:
            private, moved = self._released(batch, given, plain, rows)
        except DocumentError as error:
            if error.position is not None:
                error.position = rows[error.position]
            raise
        released = iter(private)
        for name, texts in zip(columns.texts, given, strict=True):
            own = [None if text is None else next(released) for text in texts]
            batch = _with_texts(batch, name, own)
        if columns.moved is not None:
            batch = batch.append_column(columns.moved, string_array(map(json.dumps, moved)))
        batch = batch.select([name for name in batch.schema.names if name != columns.labels])
        return pa.RecordBatch.from_arrays(batch.columns, schema=types_alone(batch.schema))

    def _released(
        self,
        batch: pa.RecordBatch,
        given: Sequence[Sequence[str | None]],
        plain: list[str],
        rows: Sequence[int],
    ) -> tuple[Sequence[str], list[list[dict[str, Any]]]]:
        """Return the private texts, and for each row where its spans were and are."""
        labels = () if self.columns.labels is None else (self._labels(batch, rows),)
        raw = self.privatizer.read_batch(plain, *labels)
        keys = self._keys(batch, given)
        moved: list[list[dict[str, Any]]] = [[] for _ in range(batch.num_rows)]
        if self.columns.moved is None:
            private: Sequence[str] = self.privatizer.release_batch(raw, keys)
        else:
            from textpriv.spans.span import moved_spans

            counts = [sum(text is not None for text in texts) for texts in given]
            parts = [
                part for part, n in zip(self.columns.parts, counts, strict=True) for _ in range(n)
            ]
            tokens = self.privatizer.release(raw, keys)
            for span in moved_spans(raw, tokens):
                text = span.pop("document")
                moved[rows[text]].append({"column": parts[text], **span})
            private = [each.text for each in tokens]
        self.tokens.update(raw.counts)
        self._warn_of_language(raw.codes)
        return private, moved

    def _texts(self, column: pa.Array, name: str) -> list[str | None]:
        """Return the texts of a column."""
        try:
            texts: list[Any] = column.to_pylist()
        except UnicodeDecodeError:
            raise CorpusError(
                f"a text in {name!r} is not UTF-8. Leave such rows out first."
            ) from None
        for row, text in enumerate(texts):
            if text is None and self.columns.null == "empty":
                texts[row] = ""
            elif not isinstance(text, str) and (text is not None or self.columns.null == "fail"):
                found = "none (null)" if text is None else type(text).__name__
                raise CorpusError(
                    f"row {row + 1} of a batch: expected a text in {name!r}, found {found}. Leave such rows out first."
                )
        return texts

    def _labels(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Any]:
        from textpriv.spans.span import read_labels

        given, labels = batch.column(str(self.columns.labels)).to_pylist(), []
        for text, row in enumerate(rows):
            try:
                labels.append(read_labels(given[row]))
            except DocumentError as error:
                error.position = text
                raise
        return labels

    def _keys(
        self, batch: pa.RecordBatch, given: Sequence[Sequence[str | None]]
    ) -> list[ReleaseKey]:
        """Return the key of each text, those of one column after those of another."""
        columns, parts = self.columns, self.columns.parts
        is_counted = getattr(self.privatizer, "ledger", None) is not None
        if columns.document is None:
            if is_counted:
                raise CorpusError("A ledger counts documents by their names: name their column.")
            if not columns.occurrences:
                raise CorpusError(
                    "Each document needs a name of its own, from which its randomness follows: name their column."
                )
            numbers = [batch.column(name).to_pylist() for name in columns.occurrences]
            return [
                unnamed_key(part, text, number)
                for part, texts, own in zip(parts, given, numbers, strict=True)
                for text, number in zip(texts, own, strict=True)
                if text is not None
            ]
        names = _document_names(batch, columns.document)
        authors: Sequence[str | None] = [None] * len(names)
        if columns.author is not None:
            authors = _document_names(batch, columns.author)
        has_authors = columns.author is not None and self.privatizer.spans is not None
        keys: list[ReleaseKey] = []
        for part, texts in zip(parts, given, strict=True):
            for text, name, author in zip(texts, names, authors, strict=True):
                if text is None:
                    continue
                own = document_key(part, name)
                if is_counted or has_authors:
                    from textpriv.ledger import Document

                    keys.append(
                        Document(name, author, part) if is_counted else Document(own, author)
                    )
                else:
                    keys.append(own)
        return keys

    def _warn_of_language(self, codes: NDArray[np.int32]) -> None:
        """Warn once where most of the first words are not those of the index; the number of them is not shown."""
        if self._drawn >= _LOOKED_AT:
            return
        self._drawn += int(np.count_nonzero(codes >= UNKNOWN))
        self._unknown += int(np.count_nonzero(codes == UNKNOWN))
        if self._drawn >= _LOOKED_AT and 2 * self._unknown > self._drawn:
            warnings.warn(
                "most of the first words of these texts are not among those of the index, so the words that replace them "
                "have nothing to do with them: are the texts of another language than the index?",
                stacklevel=2,
            )


def _document_names(batch: pa.RecordBatch, column: str) -> list[str]:
    """Return the names in a column; 7 and "7" are one name, for CSV cannot distinguish them."""
    names = []
    for row, name in enumerate(batch.column(column).to_pylist()):
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise CorpusError(
                f"row {row + 1} of a batch: expected a name, as text or a whole number, in {column!r}; found none."
            )
        names.append(str(name))
    return names


def _with_texts(batch: pa.RecordBatch, name: str, texts: Sequence[str | None]) -> pa.RecordBatch:
    import pyarrow as pa

    index = batch.schema.names.index(name)
    field = batch.schema.field(index)
    column = string_array(texts)
    if pa.types.is_large_string(column.type) and pa.types.is_string(field.type):
        raise CorpusError(
            f"The private texts of a batch of {len(texts):,} rows take 2 GiB or more, which a column of Arrow's type string "
            "cannot hold: use smaller batches, or large_string."
        )
    if column.type != field.type:
        column = column.cast(field.type)
    return batch.set_column(index, field, column)


def string_array(texts: Iterable[str | None]) -> pa.StringArray | pa.LargeStringArray:
    """Return texts as an Arrow array, of large strings if they need them.

    Unlike ``pyarrow.array`` this does not load pandas where that is installed.
    """
    import pyarrow as pa

    given = list(texts)
    encoded = [b"" if text is None else text.encode("utf-8", "replace") for text in given]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    is_large = ends[-1] > np.iinfo(np.int32).max
    array, width = (pa.LargeStringArray, np.int64) if is_large else (pa.StringArray, np.int32)
    known = None
    if None in given:
        bits = np.packbits([text is not None for text in given], bitorder="little")
        known = pa.py_buffer(bits)
    buffers = pa.py_buffer(ends.astype(width)), pa.py_buffer(b"".join(encoded))
    return array.from_buffers(len(encoded), *buffers, known)


def without_trace(work: Callable[[Any], Any], given: Any) -> Any:
    """Do the work; an error is raised by its kind alone, for Spark and Ray write messages to their logs."""
    try:
        return work(given)
    except DocumentError as error:
        raise named_error(error, lambda row: f"row {row + 1} of a batch") from None
    except TextprivError:
        raise  # says nothing private
    except Exception as error:
        raise RuntimeError(f"textpriv failed with {type(error).__name__}") from None


def named_error(error: Exception, name: Callable[[int], str]) -> Exception:
    """Return an error of a batch with the name of its row, where it is about one."""
    if not isinstance(error, DocumentError) or error.position is None:
        return error
    return error.named(name(error.position))


_built: dict[str, BatchRelease] = {}


def release_in_process(settings: PrivatizerSettings, columns: Columns) -> BatchRelease:
    """Return this process's release, built once: the index is loaded with the first batch or task.

    It is built again when the key file or the index folder has been replaced: a process may serve many runs.
    """
    folder = None
    with contextlib.suppress(OSError):  # loading a missing index raises an error of its own
        status = os.stat(settings.index)
        folder = status.st_dev, status.st_ino, status.st_mtime_ns
    secret = b"" if settings.seed is not None or settings.ledger is not None else settings.secret()
    known = repr((settings, secret, folder, columns)).encode("utf-8", "surrogatepass")
    key = hashlib.sha256(known).hexdigest()
    if key not in _built:
        privatizer = settings.build()
        privatizer.warm()
        _built.clear()  # a process that serves many runs must not keep all their indices
        _built[key] = BatchRelease(privatizer, columns)
    return _built[key]
