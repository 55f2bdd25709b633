"""The one function from an Arrow record batch to an Arrow record batch, and what a process builds it from.

Every engine calls :class:`BatchRelease`; so every engine releases the same texts. It replaces the text columns and leaves
the others as they are. What lives here as well: what a document of a corpus is known by. What does not: how a text becomes
private (``privatizer``) and which random stream it has (``document_streams``), files (``corpus``), and processes (the other
engines).

What a document is known by
---------------------------
A document's stream follows from the settings, its key and the words that are drawn for it, as
:func:`textpriv.randomness.document_identity` says and the privatizer does; under a run key for ever, so that the same
document is released the same way whichever file, batch, process or machine it is in. The key of a document in a corpus is
:func:`document_key`: the name of the text column, and

* the document's name, which is the value in the document column, all different;
* or, without names, its own text and its number among the equal texts of the run (:mod:`textpriv.engines.identity`).

Two texts of one document that stand in two columns are two documents: they come out independently also where they are
equal, and each as if its column were released alone. Two rows of one name would be one document, and equal texts in them
would come out equal. Engines refuse them, except under a ledger, which counts them as versions of one document.

What this does not hide, and the statement names: a document that is released again under the same key and the same run key
comes out as before if its text is the same and otherwise if it has changed. Whoever sees both releases knows which.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.engines.identity import document_key, unnamed_key
from textpriv.engines.schemas import types_alone
from textpriv.errors import CorpusError, DocumentError, TextprivError
from textpriv.mechanisms.base import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer, ReleaseKey
    from textpriv.tokenization.batches import RawBatch

__all__ = [
    "NO_SALT",
    "BatchRelease",
    "Columns",
    "PrivatizerSettings",
    "named_error",
    "release_in_process",
    "string_array",
    "without_trace",
]


_LOOKED_AT = 500  # words by which texts of another language are known
NO_SALT = bytes(16)  # the context of a run that is to be repeated


@dataclass(frozen=True)
class PrivatizerSettings:
    """What a process needs to build the same Privatizer: an index path and plain values.

    Attributes
    ----------
    index
        Path of a saved index folder, which each process maps into memory; "builtin:en", the default, is the index that is
        built in (:meth:`textpriv.Index.builtin`).
    mechanism
        Registered name, such as ``"textpriv.TEM.v1"``, or the short one of the commands, such as ``"tem"``.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance).
    language
        By whose rules texts are tokenized, as spaCy's code; None for the language of the index.
    policy
        Fields of TokenPolicy; those left out keep their defaults.
    seed
        For experiments only; None for secret randomness.
    run_key
        32 random bytes that every process shares, so that the output does not depend on their
        number. Not used with a ledger.
    key_file
        Path of a run key that each process reads for itself; then ``run_key`` is not used, and no secret travels.
    ledger
        Path of the ledger that counts every document.
    document_limit, document_nats_limit, author_limit, document_rho_limit, author_rho_limit
        The ledger's limits, as in :class:`textpriv.ledger.Ledger`.
    spans
        The policy of typed spans, as :meth:`textpriv.spans.policy.SpanPolicy.from_dict` reads it; None for words alone.
    detect
        Names of the detectors, as :func:`textpriv.spans.detectors.make_detector` knows them.
    """

    index: str = "builtin:en"
    mechanism: str = "textpriv.TEM.v1"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    key_file: str | None = None
    ledger: str | None = None
    document_limit: float | None = None
    document_nats_limit: float | None = None
    author_limit: float | None = None
    language: str | None = None
    document_rho_limit: float | None = None
    author_rho_limit: float | None = None
    spans: Mapping[str, Any] | None = None
    detect: tuple[str, ...] = ()

    def build(self) -> Privatizer:
        """Load the index and build the Privatizer.

        Raises
        ------
        TextprivError
            If the index, the mechanism, the policy or the key file cannot be used.
        """
        from textpriv.index.builtin import open_index
        from textpriv.mechanisms import find_mechanism
        from textpriv.privatizer import Privatizer
        from textpriv.tokenization.policy import TokenPolicy

        mechanism = find_mechanism(self.mechanism)(**self.options)(open_index(self.index))
        policy = TokenPolicy.from_dict(dict(self.policy))
        more: dict[str, Any] = {"language": self.language, "seed": self.seed}
        if self.spans is not None:
            from textpriv.spans.detectors import make_detector
            from textpriv.spans.policy import SpanPolicy

            language = self.language or mechanism.index.language or "en"
            more["spans"] = SpanPolicy.from_dict(self.spans)
            more["detector"] = [make_detector(name, language) for name in self.detect]
        if self.ledger is not None:
            from textpriv.ledger.ledger import LIMITS, Ledger

            more["ledger"] = Ledger(self.ledger, **{name: getattr(self, name) for name in LIMITS})
        elif self.seed is None:
            more["run_key"] = self.secret()
        return Privatizer(mechanism, policy, **more)

    def __repr__(self) -> str:
        usual = PrivatizerSettings(run_key=b"")
        shown = (field.name for field in fields(self) if field.repr)
        changed = [name for name in shown if getattr(self, name) != getattr(usual, name)]
        return f"PrivatizerSettings({', '.join(f'{n}={getattr(self, n)!r}' for n in changed)})"

    def secret(self) -> bytes:
        """Return the run key itself."""
        if self.key_file is None:
            return self.run_key
        from textpriv.run_key import read_run_key

        return read_run_key(self.key_file)

    def without_secret(self) -> PrivatizerSettings:
        """Return the same settings with the key only by its file, ready to travel between machines."""
        return self if self.key_file is None else replace(self, run_key=b"")


@dataclass(frozen=True)
class Columns:
    """Which columns of a record batch mean what.

    Attributes
    ----------
    text
        The texts: strings, none of them null; several columns of them as a sequence of names.
    document
        The name of each document; None if documents are known by their texts.
    author
        The name of each document's author, for a ledger and for laws that draw the same for all spans of a person.
    occurrence
        The number of each text among the equal ones of its column, from 1; several columns of numbers where there are
        several columns of texts. Not needed with ``document``.
    labels
        The spans of each text that are known already (:func:`textpriv.spans.span.read_labels`), of a privatizer with
        spans. The column is left out of what is released. None for no such column; with one column of texts only.
    moved
        The name of a column to add, with where the spans of each text stood and stand now: JSON, its owner's
        (:mod:`textpriv.spans.span`). None for no such column.
    known_as
        The name of the text column in the corpus, which is a part of what each document is known by, or the names where
        there are several; ``text`` if left out.

    Raises
    ------
    CorpusError
        If the text is to be its own name: documents of equal text would come out equal, and so betray that they are. If a
        column of texts is named twice, or none is.
    """

    text: str | Sequence[str] = "text"
    document: str | None = None
    author: str | None = None
    occurrence: str | Sequence[str] | None = None
    known_as: str | Sequence[str] | None = None
    labels: str | None = None
    moved: str | None = None

    def __post_init__(self) -> None:
        for column, times in Counter(self.texts).items():
            if times > 1:
                raise CorpusError(f"The text column {column!r} is named twice: name each one once.")
            if column in (self.document, self.author):
                raise CorpusError(
                    f"{column!r} holds the texts, so it cannot name documents or authors: equal texts would come out equal, "
                    "and so betray that they are. Name another column."
                )
        if not self.texts:
            raise CorpusError("No column of texts is named: name one.")
        if self.labels is not None and len(self.texts) > 1:
            raise CorpusError(
                "Labels are offsets in one text, and several columns of texts are named: release them one by one."
            )
        if self.labels in (*self.texts, self.document, self.author) and self.labels is not None:
            raise CorpusError(
                f"{self.labels!r} cannot hold labels and something else: name another column."
            )

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
        """What each column of texts is called in what documents are known by."""
        return self.texts if self.known_as is None else _names(self.known_as)

    def check(self, names: Sequence[str]) -> None:
        """Refuse the columns of a table where one that is needed stands not once."""
        for column in filter(None, (*self.texts, self.document, self.author, self.labels)):
            _check_column(names, column)


def _check_column(names: Sequence[str], column: str) -> None:
    if (count := names.count(column)) != 1:
        raise CorpusError(
            f"expected one column named {column!r}, found {count} among {len(names)} columns."
        )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise CorpusError(
            "A column of texts is named by a text, or several by a sequence of them; give the column such a name first."
        )
    return names


class BatchRelease:
    """The release of record batches; one in each process.

    Parameters
    ----------
    privatizer : Privatizer
    columns : Columns
    context : bytes
        16 bytes that go into every document's key: ``NO_SALT``, or secret ones of a run that is not to be repeated.

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

    def __init__(self, privatizer: Privatizer, columns: Columns, context: bytes = NO_SALT) -> None:
        self.privatizer = privatizer
        self.columns = columns
        self.tokens: Counter[str] = Counter()
        self._drawn = self._unknown = 0
        is_repeated = privatizer.seed is not None or context == NO_SALT
        self._salt = b"" if is_repeated else context

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with private texts and the other columns as they are, without metadata of its schema.

        Raises
        ------
        CorpusError
            If a column is missing, or a text or a name is null or of another type; names the row.
        LedgerError
            For a document that the ledger refuses; nothing of the batch is drawn.
        """
        import pyarrow as pa

        labels = () if self.columns.labels is None else (self._labels(batch),)
        raw = self.privatizer.read_batch(self.encoded(batch), *labels)
        if self.columns.moved is None:
            done = self.with_texts(batch, self.released(batch, raw))
        else:
            done = self._with_offsets(batch, raw)
        kept = [name for name in done.schema.names if name != self.columns.labels]
        done = done.select(kept) if labels else done
        return pa.RecordBatch.from_arrays(done.columns, schema=types_alone(done.schema))

    def _labels(self, batch: pa.RecordBatch) -> list[Any]:
        """The spans of each text that are known already; ``position`` of an error is the row."""
        from textpriv.spans.span import read_labels

        labels = []
        column = batch.column(_column_index(batch, str(self.columns.labels)))
        for row, given in enumerate(column.to_pylist()):
            try:
                labels.append(read_labels(given))
            except DocumentError as error:
                error.position = row
                raise
        return labels

    def _with_offsets(self, batch: pa.RecordBatch, raw: RawBatch) -> pa.RecordBatch:
        """The batch with private texts, and a column of where their spans stood and stand now."""
        from textpriv.spans.span import moved_spans

        private = self.privatizer.release(raw, self._keys(batch))
        self._count(raw)
        rows = batch.num_rows
        moved: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
        for span in moved_spans(raw, private):
            text = span.pop("document")
            column = self.columns.parts[text // rows]
            moved[text % rows].append({"column": column, **span})
        done = self.with_texts(batch, [each.text for each in private])
        return done.append_column(str(self.columns.moved), string_array(map(json.dumps, moved)))

    def encoded(self, batch: pa.RecordBatch) -> list[str]:
        """The texts of a batch, those of one column after those of another.

        Raises
        ------
        CorpusError
            If there are none, or one of them is null or of another type; names the row.
        """
        columns = ((batch.column(_column_index(batch, name)), name) for name in self.columns.texts)
        return [text for column, name in columns for text in _texts(column, name)]

    def released(self, batch: pa.RecordBatch, raw: RawBatch) -> list[str]:
        """Draw what was read of a batch; of the batch itself only names and numbers are looked at."""
        released = self.privatizer.release_batch(raw, self._keys(batch))
        self._count(raw)
        return released

    def _count(self, raw: RawBatch) -> None:
        self.tokens.update(raw.counts)
        self._warn_of_language(raw.codes)

    def _warn_of_language(self, codes: NDArray[np.int32]) -> None:
        """Warn once where most of the first words are not those of the index; how many of them is not told."""
        if self._drawn >= _LOOKED_AT:
            return
        self._drawn += int(np.count_nonzero(codes >= UNKNOWN))
        self._unknown += int(np.count_nonzero(codes == UNKNOWN))
        if self._drawn >= _LOOKED_AT and 2 * self._unknown > self._drawn:
            warnings.warn(
                "most of the first words of these texts are not among those of the index, so what is drawn for them has "
                "nothing to do with them: are the texts of another language than the index? See textpriv leaks.",
                stacklevel=2,
            )

    def with_texts(self, batch: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
        """Return the batch with these texts, those of one column after those of another.

        Raises
        ------
        CorpusError
            If they are too large for a column of that type.
        """
        import pyarrow as pa

        rows = batch.num_rows
        for number, name in enumerate(self.columns.texts):
            index = _column_index(batch, name)
            field = batch.schema.field(index)
            column = string_array(texts[number * rows : (number + 1) * rows])
            if pa.types.is_large_string(column.type) and pa.types.is_string(field.type):
                raise CorpusError(
                    f"The private texts of a batch of {rows:,} rows take 2 GiB or more, which a column of "
                    "Arrow's type string cannot hold: use smaller batches, or large_string."
                )
            if column.type != field.type:
                column = column.cast(field.type)
            batch = batch.set_column(index, field, column)
        return batch

    def _keys(self, batch: pa.RecordBatch) -> list[ReleaseKey]:
        """What the texts are known by, those of one column after those of another."""
        names = None if self.columns.document is None else self._names(batch, self.columns.document)
        parts = self.columns.parts
        is_counted = getattr(self.privatizer, "ledger", None) is not None
        if is_counted and names is None:
            raise CorpusError("A ledger counts documents by their names: name their column.")
        has_spans = getattr(self.privatizer, "spans", None) is not None
        if names is not None and (is_counted or (has_spans and self.columns.author is not None)):
            from textpriv.ledger.ledger import Document

            authors: Sequence[str | None] = [None] * len(names)
            if self.columns.author is not None:
                authors = self._names(batch, self.columns.author)
            known = list(zip(names, authors, strict=True))
            if is_counted:
                return [Document(name, author, part) for part in parts for name, author in known]
            return [
                Document(document_key(part, name, salt=self._salt), author)
                for part in parts
                for name, author in known
            ]
        if names is not None:
            return [document_key(part, name, salt=self._salt) for part in parts for name in names]
        if not self.columns.occurrences:
            raise CorpusError(
                "Each document needs a name of its own, from which its randomness follows: name their column."
            )
        keys: list[ReleaseKey] = []
        for part, *known in zip(parts, self.columns.texts, self.columns.occurrences, strict=True):
            text, number = (batch.column(_column_index(batch, name)).to_pylist() for name in known)
            keys += [
                unnamed_key(part, *each, salt=self._salt) for each in zip(text, number, strict=True)
            ]
        return keys

    def _names(self, batch: pa.RecordBatch, column: str) -> list[str]:
        """Read the names in a column; 7 and "7" are one name, for CSV cannot tell them apart."""
        names = []
        for row, name in enumerate(batch.column(_column_index(batch, column)).to_pylist()):
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                raise _Unnamed(row, column)
            names.append(str(name))
        return names


def string_array(texts: Iterable[str]) -> pa.StringArray | pa.LargeStringArray:
    """Return texts as an Arrow array, of large strings if they need them.

    Unlike ``pyarrow.array`` this does not load pandas where that is installed.
    """
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    is_large = ends[-1] > np.iinfo(np.int32).max
    array, width = (pa.LargeStringArray, np.int64) if is_large else (pa.StringArray, np.int32)
    buffers = pa.py_buffer(ends.astype(width)), pa.py_buffer(b"".join(encoded))
    return array.from_buffers(len(encoded), *buffers)


def _texts(column: pa.Array, name: str) -> list[str]:
    """The texts of a column."""
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        _check_encoding(column, name)
    texts: list[str] = column.to_pylist()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(
                f"row {row + 1} of a batch: expected a text in {name!r}, found "
                f"{'none (null)' if text is None else type(text).__name__}. Leave such rows out first."
            )
    return texts


def _check_encoding(column: pa.Array, name: str) -> None:
    """Refuse bytes that are no UTF-8: Arrow does not by itself, and compiled code takes it for granted."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row in range(len(column)):
            try:
                column[row].as_py()
            except UnicodeDecodeError:
                raise CorpusError(
                    f"row {row + 1} of a batch: the text in {name!r} is not UTF-8. Leave such rows out first."
                ) from None
        raise CorpusError(f"the column {name!r} of a batch is damaged.") from None


def without_trace(work: Callable[[Any], Any], given: Any) -> Any:
    """Do the work; an error is raised by its kind alone, for Spark and Ray write messages to their logs."""
    try:
        return work(given)
    except DocumentError as error:
        raise named_error(error, lambda text: f"text {text + 1} of a batch") from None
    except TextprivError:
        raise  # says nothing private
    except Exception as error:
        raise RuntimeError(f"textpriv failed with {type(error).__name__}") from None


class _Unnamed(CorpusError):
    """A document without a name; ``position`` is its row in the batch."""

    def __init__(self, position: int, column: str) -> None:
        super().__init__(
            f"expected a name, as text or a whole number, in {column!r}, to know the document by; found none."
        )
        self.position: int | None = position
        self._column = column

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Unnamed, (self.position, self._column))

    def named(self, name: str) -> CorpusError:
        return CorpusError(f"{name}: {self}")


def named_error(error: Exception, name: Callable[[int], str]) -> Exception:
    """Return an error of a batch with the record it is about, where it is about one.

    Parameters
    ----------
    error : Exception
    name : callable
        From the number of a text, as in :meth:`BatchRelease.encoded`, to what its record is called.
    """
    position = getattr(error, "position", None)
    if position is None or not isinstance(error, DocumentError | _Unnamed):
        return error
    return error.named(name(position))


def _column_index(batch: pa.RecordBatch, column: str) -> int:
    _check_column(batch.schema.names, column)
    return batch.schema.names.index(column)


_built: dict[str, BatchRelease] = {}


def release_in_process(
    settings: PrivatizerSettings, columns: Columns, context: bytes = NO_SALT
) -> BatchRelease:
    """Return this process's release, built once: the index is loaded with the first batch or task.

    It is built again when the key file or the index folder has been replaced since: a process may serve many runs.

    Parameters
    ----------
    settings, columns, context
        As in :class:`BatchRelease`.
    """
    folder = None
    with contextlib.suppress(OSError):  # loading a missing index raises an error of its own
        status = os.stat(settings.index)
        folder = status.st_dev, status.st_ino, status.st_mtime_ns
    secret = b"" if settings.seed is not None or settings.ledger is not None else settings.secret()
    key = hashlib.sha256(
        repr((settings, secret, folder, columns, context)).encode("utf-8", "surrogatepass")
    ).hexdigest()
    if key not in _built:
        privatizer = settings.build()
        privatizer.warm()  # for many texts; the processes of a host compile once
        # One at a time: a process that serves many runs must not keep all their indices.
        _built.clear()
        _built[key] = BatchRelease(privatizer, columns, context)
    return _built[key]
