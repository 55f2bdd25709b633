"""The one function from an Arrow record batch to an Arrow record batch, and what a process builds it from.

Every engine calls :class:`BatchRelease`; so every engine releases the same texts. It replaces the text column and leaves
the others as they are. What lives here as well: which random stream a document has. What does not: how a text becomes
private (``privatizer``), files (``corpus``), and processes (the other engines).

The identity of a document
--------------------------
A document's stream is the ChaCha20 stream of a keyed hash, under the run key, of

* the settings of the release (mechanism, vocabulary, policy, version),
* its name, which is the value in the document column; or, without one, its number and the corpus up to there,
* and the ids of the words that are drawn for it.

Each part is needed. The same document under the same key is released the same way whichever file, batch, process or
machine it is in. Two documents of equal text have different names or numbers and so independent streams: equal outputs
would tell that the texts are equal. Two versions of one document, or one document under two settings, have independent
streams too: under one stream two contents would show where they differ, and two laws would add up to more than the sum
of their epsilons. A number depends on the order of the corpus but not on how it is cut into files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.errors import CorpusError, LedgerError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer, ReleaseKey
    from textpriv.tokens import EncodedTexts, RawBatch

__all__ = [
    "BatchRelease",
    "Columns",
    "PrivatizerSettings",
    "corpus_name",
    "named_error",
    "release_context",
    "release_in_process",
    "string_array",
    "without_trace",
]


_FIRST = 1000  # documents by which a corpus is known again


@dataclass(frozen=True)
class PrivatizerSettings:
    """What a process needs to build the same Privatizer: an index path and plain values.

    Attributes
    ----------
    index
        Path of a saved index folder; each process maps it into memory.
    mechanism
        Registered name, such as ``"textpriv.TEM.v1"``.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance).
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
    document_limit, author_limit
        The ledger's limits, as in :class:`textpriv.ledger.Ledger`.
    """

    index: str
    mechanism: str = "textpriv.TEM.v1"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    key_file: str | None = None
    ledger: str | None = None
    document_limit: float | None = None
    author_limit: float | None = None

    def build(self) -> Privatizer:
        """Load the index and build the Privatizer.

        Raises
        ------
        TextprivError
            If the index, the mechanism, the policy or the key file cannot be used.
        """
        from textpriv.index import Index
        from textpriv.mechanisms import registry
        from textpriv.policy import TokenPolicy
        from textpriv.privatizer import Privatizer

        mechanism = registry.get(self.mechanism)(**self.options)(Index.load(self.index))
        policy = TokenPolicy.from_dict(dict(self.policy))
        if self.ledger is not None:
            from textpriv.ledger import Ledger

            limits = {"document_limit": self.document_limit, "author_limit": self.author_limit}
            ledger = Ledger(self.ledger, **limits)
            return Privatizer(mechanism, policy, seed=self.seed, ledger=ledger)
        if self.seed is not None:
            return Privatizer(mechanism, policy, seed=self.seed)
        return Privatizer(mechanism, policy, run_key=self.secret())

    def secret(self) -> bytes:
        """Return the run key itself."""
        if self.key_file is None:
            return self.run_key
        from textpriv.runkey import read_run_key

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
        The texts: strings, none of them null.
    document
        The name of each document; None if documents are known by their numbers.
    author
        The name of each document's author, for a ledger.
    number
        The number of each document in its corpus; not needed with ``document``.

    Raises
    ------
    CorpusError
        If the text is to be its own name: documents of equal text would come out equal, and so betray that they are.
    """

    text: str = "text"
    document: str | None = None
    author: str | None = None
    number: str | None = None

    def __post_init__(self) -> None:
        if self.text in (self.document, self.author):
            raise CorpusError(
                f"{self.text!r} holds the texts, so it cannot name documents or authors: equal texts would come out equal, "
                "and so betray that they are. Name another column."
            )


def release_context(privatizer: Privatizer, corpus: bytes = b"") -> bytes:
    """Return 32 bytes that stand for the settings of a release, and after them what the corpus is known by, if given."""
    from textpriv.ledger import settings_fingerprint

    settings = settings_fingerprint(privatizer.mechanism, privatizer.policy)
    return hashlib.sha256(settings).digest() + corpus


def corpus_name(texts: Iterable[tuple[int, str]], key: bytes) -> bytes:
    """Return what a corpus is known by, however it is cut into files, from its first documents and their numbers.

    For each of them it has 24 bytes: the number, and a keyed hash of this document and of those before it. Two corpora
    under one key must not share streams: documents of equal text and number would come out equal, and so betray that
    they are. With the hash up to itself in its identity, a document is the same one only in corpora that begin alike; and
    it stays the same when others are appended, also to a short corpus. Documents that have names need no corpus.
    """
    found = hashlib.blake2b(key=key, digest_size=16, person=b"textpriv-corpus")
    known = []
    for number, text in islice(texts, _FIRST):
        content = text.encode("utf-8")
        found.update(len(content).to_bytes(8, "big") + content)
        known.append(number.to_bytes(8, "big") + found.digest())
    return b"".join(known)


class BatchRelease:
    """Makes record batches private; one in each process.

    Parameters
    ----------
    privatizer : Privatizer
    columns : Columns
    context : bytes
        Goes before every identity; see :func:`release_context`.

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

    def __init__(self, privatizer: Privatizer, columns: Columns, context: bytes = b"") -> None:
        self.privatizer = privatizer
        self.columns = columns
        self.tokens: Counter[str] = Counter()
        self._context, corpus = context[:32], context[32:]
        places = range(0, len(corpus), 24)
        self._numbers = [int.from_bytes(corpus[at : at + 8], "big") for at in places]
        self._corpora = [corpus[at + 8 : at + 24] for at in places]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with private texts; the other columns are the same objects.

        Raises
        ------
        CorpusError
            If a column is missing, or a text or a name is null or of another type; names the row.
        LedgerError
            For a document that the ledger refuses; nothing of the batch is drawn.
        """
        raw = self.privatizer.read_batch(self.encoded(batch))
        return self.with_texts(batch, self.released(batch, raw))

    def encoded(self, batch: pa.RecordBatch) -> EncodedTexts:
        """The texts of a batch.

        Raises
        ------
        CorpusError
            If there are none, or one of them is null or of another type; names the row.
        """
        return _encoded(batch.column(_place(batch, self.columns.text)), self.columns.text)

    def released(self, batch: pa.RecordBatch, raw: RawBatch) -> EncodedTexts:
        """Draw what was read of a batch; of the batch itself only names and numbers are looked at."""
        released = self.privatizer.release_batch(raw, self._keys(batch, raw))
        self.tokens.update(raw.counts)
        return released

    def with_texts(self, batch: pa.RecordBatch, texts: EncodedTexts) -> pa.RecordBatch:
        """Return the batch with these texts.

        Raises
        ------
        CorpusError
            If they are too large for a column of that type.
        """
        import pyarrow as pa

        place = _place(batch, self.columns.text)
        field = batch.schema.field(place)
        column = _arrow(texts)
        if pa.types.is_large_string(column.type) and pa.types.is_string(field.type):
            raise CorpusError(
                f"The private texts of a batch of {len(texts):,} rows take 2 GiB or more, which a column of "
                "Arrow's type string cannot hold: use smaller batches, or large_string."
            )
        if column.type != field.type:
            column = column.cast(field.type)
        return batch.set_column(place, field, column)

    def without_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch without its texts: all that :meth:`released` needs of it."""
        import pyarrow as pa

        place = _place(batch, self.columns.text)
        rest = [at for at in range(batch.num_columns) if at != place]
        return pa.RecordBatch.from_arrays(
            [batch.column(at) for at in rest],
            schema=pa.schema([batch.schema.field(at) for at in rest]),
        )

    def _keys(self, batch: pa.RecordBatch, raw: RawBatch) -> list[ReleaseKey]:
        names = None if self.columns.document is None else self._names(batch, self.columns.document)
        if getattr(self.privatizer, "ledger", None) is not None:
            from textpriv.ledger import Document

            if names is None:
                raise CorpusError("A ledger counts documents by their names: name their column.")
            if self.columns.author is None:
                return [Document(name) for name in names]
            authors = self._names(batch, self.columns.author)
            return [Document(name, author) for name, author in zip(names, authors, strict=True)]
        if names is None and self.columns.number is None:
            raise CorpusError(
                "Each document needs a name of its own, from which its randomness follows: name their column."
            )
        numbers: list[int] = []
        if names is None:
            numbers = batch.column(_place(batch, str(self.columns.number))).to_pylist()
        if self.privatizer.seed is not None:
            return list(numbers if names is None else names)
        # A name is told from a number, and where it ends, so that no two identities are the same bytes.
        tags = (
            [b"n" + number.to_bytes(8, "big") + self._corpus_at(number) for number in numbers]
            if names is None
            else [_framed(name) for name in names]
        )
        return [self._context + tag + drawn for tag, drawn in zip(tags, _drawn(raw), strict=True)]

    def _corpus_at(self, number: int) -> bytes:
        """What the corpus is known by at this document."""
        place = bisect_right(self._numbers, number)
        return self._corpora[place - 1] if place else b""

    def _names(self, batch: pa.RecordBatch, column: str) -> list[str]:
        """Read the names in a column; 7 and "7" are one name, for CSV cannot tell them apart."""
        names = []
        for row, name in enumerate(batch.column(_place(batch, column)).to_pylist()):
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                raise _Unnamed(row, column)
            names.append(str(name))
        return names


def string_array(texts: Sequence[str]) -> pa.StringArray | pa.LargeStringArray:
    """Return texts as an Arrow array; unlike ``pyarrow.array`` this does not load pandas where that is installed."""
    from textpriv.tokens import EncodedTexts

    return _arrow(EncodedTexts.of(texts))


def _arrow(texts: EncodedTexts) -> pa.StringArray | pa.LargeStringArray:
    """The texts as plain strings, or as large ones where they are too large for places of 32 bits."""
    import pyarrow as pa

    is_large = texts.cuts[-1] > np.iinfo(np.int32).max
    array, width = (pa.LargeStringArray, np.int64) if is_large else (pa.StringArray, np.int32)
    places = texts.cuts.astype(width)
    return array.from_buffers(len(texts), pa.py_buffer(places), pa.py_buffer(texts.data))


def _encoded(column: pa.Array, name: str) -> EncodedTexts:
    """The texts of a column, without a copy where Arrow keeps them one after another."""
    import pyarrow as pa

    from textpriv.tokens import EncodedTexts

    is_string, is_large = pa.types.is_string(column.type), pa.types.is_large_string(column.type)
    if (is_string or is_large) and column.null_count == 0 and len(column) > 0:
        _check_encoding(column, name)
        _, offsets, data = column.buffers()
        width = np.int32 if is_string else np.int64
        own = slice(column.offset, column.offset + len(column) + 1)
        cuts = np.frombuffer(offsets, dtype=width)[own].astype(np.int64)
        # Of a slice of a larger array only its own part.
        part = np.frombuffer(data or b"", dtype=np.uint8)[cuts[0] : cuts[-1]]
        return EncodedTexts(part, cuts - cuts[0])
    texts = column.to_pylist()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(
                f"row {row + 1} of a batch: expected a text in {name!r}, found "
                f"{'none (null)' if text is None else type(text).__name__}. Leave such rows out first."
            )
    return EncodedTexts.of(texts)


def _check_encoding(column: pa.Array, name: str) -> None:
    """Refuse bytes that are no UTF-8, which Arrow does not do by itself and compiled code takes for granted."""
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
    """Do the work; what goes wrong is told by its kind alone, for Spark and Ray keep messages in their logs."""
    try:
        return work(given)
    except TextprivError:
        raise  # says nothing private
    except Exception as error:
        raise RuntimeError(f"textpriv failed with {type(error).__name__}") from None


class _Unnamed(CorpusError):
    """A document without a name; ``place`` is its row in the batch."""

    def __init__(self, place: int, column: str) -> None:
        super().__init__(
            f"expected a name, as text or a whole number, in {column!r}, to know the document by; found none."
        )
        self.place: int | None = place
        self._column = column

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Unnamed, (self.place, self._column))

    def named(self, name: str) -> CorpusError:
        return CorpusError(f"{name}: {self}")


def named_error(error: Exception, name: Callable[[int], str]) -> Exception:
    """Return an error of a batch with the record it is about, where it is about one.

    Parameters
    ----------
    error : Exception
    name : callable
        From a row of the batch to what the record is called.
    """
    place = getattr(error, "place", None)
    if place is None or not isinstance(error, LedgerError | _Unnamed):
        return error
    return error.named(name(place))


def _place(batch: pa.RecordBatch, column: str) -> int:
    count = batch.schema.names.count(column)
    if count != 1:
        raise CorpusError(
            f"expected one column named {column!r}, found {count} among {len(batch.schema.names)} columns."
        )
    place: int = batch.schema.names.index(column)
    return place


def _framed(name: str) -> bytes:
    content = name.encode("utf-8", "surrogatepass")
    return b"d" + len(content).to_bytes(8, "big") + content


def _drawn(raw: RawBatch) -> list[bytes]:
    """For each document the ids of the words that are drawn, in order: what the mechanism is given of it."""
    from textpriv.mechanisms.mechanism import UNKNOWN

    is_drawn = raw.codes >= UNKNOWN
    ids = raw.codes[is_drawn].astype("<i4").tobytes()
    cuts = (4 * np.concatenate([[0], np.cumsum(is_drawn)])[raw.cuts]).tolist()
    return [ids[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


_built: dict[str, BatchRelease] = {}


def release_in_process(
    settings: PrivatizerSettings, columns: Columns, context: bytes | None
) -> BatchRelease:
    """Return this process's release, built once: the index is loaded when the first batch or task arrives.

    It is built again when the key file or the index folder has been replaced since: a process may serve many runs.

    Parameters
    ----------
    settings, columns
    context : bytes or None
        None takes the one of documents that are known by their names.
    """
    folder = None
    with contextlib.suppress(OSError):  # a missing index is told by the one who loads it
        found = os.stat(settings.index)
        folder = found.st_dev, found.st_ino, found.st_mtime_ns
    secret = b"" if settings.seed is not None or settings.ledger is not None else settings.secret()
    key = hashlib.sha256(
        repr((settings, secret, folder, columns, context)).encode("utf-8", "surrogatepass")
    ).hexdigest()
    if key not in _built:
        privatizer = settings.build()
        if context is None:
            context = release_context(privatizer)
        # One at a time: a process that serves many runs must not keep all their indices.
        _built.clear()
        _built[key] = BatchRelease(privatizer, columns, context)
    return _built[key]
