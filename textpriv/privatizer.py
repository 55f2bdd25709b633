"""Texts to private texts: read tokens, classify, look up, draw, rebuild.

Everything that connects raw text with a mechanism stands here, once, for the library, the command line and the spaCy
forms. Tokens are classified and looked up by compiled code over whole documents, and drawn over whole batches. The
mathematics is in ``textpriv.mechanisms``; files are in ``textpriv.corpus``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import LedgerError, TextprivError
from textpriv.ledger import Charge, Document, Ledger, Terms
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism
from textpriv.policy import ACTIONS, CLASSES, MASK, TokenPolicy
from textpriv.randomness import DocumentKey, KeyedStreams, Stream
from textpriv.statement import PrivacyStatement

if TYPE_CHECKING:
    from spacy.tokens import Doc

__all__ = ["PrivateTokens", "Privatizer", "RawTokens", "ReleaseKey"]

ReleaseKey = DocumentKey | Document | Stream  # what a document's randomness follows from

# Codes of a token that is not drawn; ids of words and UNKNOWN lie above. Dropped tokens never leave the reader.
_MASKED, _KEPT = -2, -3  # a kept token of the class at place c has code _KEPT - c
_TOKENS = 1 << 16  # drawn in one call of the sampler
_LONGEST_STRETCH = 1_000  # characters without a blank that are still read as words
_LARGEST_STORE = (
    160_000  # strings the reader's own vocabulary may hold before it is replaced by a new one
)

# Spacing is a function of the private tokens alone, so that none of the original survives.
_BLANKS = frozenset((" ", "\n", "\n\n"))
_CLOSING = _BLANKS.union(
    ". , ; : ! ? ) ] } % ... .. … ’ ” » 's 'm 're 've 'll 'd n't ’s ’m ’re ’ve ’ll ’d n’t".split()
)
_OPENING = _BLANKS.union("( [ { “ ‘ « $ £ € #".split())


@dataclass(frozen=True)
class RawTokens:
    """One document as the mechanism sees it: codes, and the strings of tokens that the policy keeps.

    It holds no string that the policy does not release.
    """

    codes: NDArray[np.int32]
    kept: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by what is to be done with them: sampled, masked, and kept ones by class."""
        return _counts(self.codes)


class PrivateTokens:
    """One private document as tokens.

    Attributes
    ----------
    outputs : ndarray of int32, shape (T,)
        Word ids of the drawn tokens, -1 for the others.
    others : list of str
        The tokens that are not drawn, in order: masks and what the policy keeps.
    """

    __slots__ = ("_codes", "_spaces", "_vocabulary", "others", "outputs")

    def __init__(
        self,
        outputs: NDArray[np.int32],
        others: list[str],
        spaces: NDArray[np.bool_],
        codes: NDArray[np.int32],
        vocabulary: NDArray[np.object_],
    ) -> None:
        self.outputs = outputs
        self.others = others
        self._spaces = spaces
        self._codes = codes
        self._vocabulary = vocabulary

    @property
    def words(self) -> list[str]:
        """The private tokens."""
        found = self._vocabulary[np.maximum(self.outputs, 0)]
        found[self.outputs < 0] = self.others
        words: list[str] = found.tolist()
        return words

    @property
    def spaces(self) -> list[bool]:
        """For each token whether a blank follows it; set by the private tokens alone."""
        found: list[bool] = self._spaces.tolist()
        return found

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by how they were released: sampled, masked, and kept ones by class.

        Classes that were sampled or masked are counted together: telling them apart would show what the draw hides.
        """
        return _counts(self._codes)

    @property
    def text(self) -> str:
        """The private text."""
        return "".join(
            word + " " if space else word
            for word, space in zip(self.words, self.spaces, strict=True)
        )

    def __len__(self) -> int:
        return len(self.outputs)


class Privatizer:
    """Turn texts into private texts.

    Parameters
    ----------
    mechanism : Mechanism
    policy : TokenPolicy
    seed : int, optional
        For experiments: makes the output repeatable, and so the statement unproved.
    run_key : bytes, optional
        32 secret bytes from which, with a document's key, its randomness is derived: the same document under the same
        run key is released the same way again. Needs ``keys`` for every document.
    ledger : Ledger, optional
        Counts every document before it is drawn, and keeps its randomness, so that it can be released the same way again.
        Needs ``keys`` for every document: its name, or a :class:`textpriv.ledger.Document` that names its author, too.
    language : str
        A spaCy language code, for the tokenizer.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> rng = np.random.default_rng(0)
    >>> vocabulary = textpriv.Vocabulary(["good", "bad", "film"], rng.normal(size=(3, 5)))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary), epsilon=30.0)
    >>> textpriv.Privatizer(mechanism, seed=1).privatize("A GOOD film!")
    'good good film!'
    """

    def __init__(
        self,
        mechanism: Mechanism,
        policy: TokenPolicy | None = None,
        seed: int | None = None,
        *,
        run_key: bytes | None = None,
        ledger: Ledger | None = None,
        language: str = "en",
    ) -> None:
        if not isinstance(mechanism, Mechanism):
            raise TextprivError(
                f"a Privatizer needs a mechanism such as textpriv.TEM(index, epsilon=...); got {type(mechanism).__name__}."
            )
        if policy is not None and not isinstance(policy, TokenPolicy):
            raise TextprivError(
                f"policy must be a textpriv.TokenPolicy; got {type(policy).__name__}. Use TokenPolicy.from_dict(...)."
            )
        self.mechanism = mechanism
        self.policy = TokenPolicy() if policy is None else policy
        self.seed = seed
        self.language = language
        self.ledger = ledger
        if ledger is not None:
            if seed is not None or run_key is not None:
                raise TextprivError(
                    "a ledger keeps the randomness of every document it counts: give no seed and no run_key with it."
                )
            self._terms = Terms.of(self.mechanism, self.policy)
        self._named_run = run_key is not None
        self._streams = KeyedStreams(run_key, seed=seed)
        self._tokenizer: Any = None
        self._cuts_by_rules = False

    # The public face

    def privatize(self, text: str, key: ReleaseKey | None = None) -> str:
        """Return one private text.

        Parameters
        ----------
        text : str
        key : str, int, bytes or Document, optional
            Names the document; the same key repeats the same draws. Without one the randomness is new every time.
        """
        return next(self.pipe([text], None if key is None else [key]))

    def pipe(
        self,
        texts: Iterable[str],
        keys: Iterable[ReleaseKey] | None = None,
        batch_size: int = 1000,
    ) -> Iterator[str]:
        """Yield one private text for every text, in order.

        Parameters
        ----------
        texts : iterable of str
        keys : iterable of str, int, bytes or Document, optional
            One for each document, all different. A document's randomness follows from its key alone, so the output
            depends neither on the batch size nor on the other documents. Without keys every document gets fresh
            randomness (with a seed: that of its position).
        batch_size : int
            Documents drawn in one call; changes speed only.

        Raises
        ------
        TextprivError
            For a text that is not a string, and for fewer keys than texts; names the position of the document.
        LedgerError
            For a document that the ledger refuses; nothing of its batch is drawn.
        """
        if isinstance(texts, str):
            raise TextprivError("pipe takes several texts; use privatize(text) for one.")
        if batch_size < 1:
            raise TextprivError(f"batch_size must be at least 1; got {batch_size}.")
        named = None if keys is None else iter(keys)
        position = 0
        source = iter(texts)
        while batch := list(islice(source, batch_size)):
            names: list[ReleaseKey] | None = None
            if named is not None:
                names = list(islice(named, len(batch)))
                if len(names) < len(batch):
                    raise TextprivError(
                        f"there are more texts than keys: document {position + len(names)} has none. Give one key for "
                        "every text."
                    )
            elif self.seed is not None:
                names = list(range(position, position + len(batch)))
            raw = []
            for place, text in enumerate(batch):
                if not isinstance(text, str):
                    raise TextprivError(
                        f"document {position + place} is of type {type(text).__name__}, not text."
                    )
                raw.append(self.read(text))
            try:
                yield from self._render(raw, names)
            except LedgerError as error:
                if error.place is None:
                    raise
                raise error.named(f"document {position + error.place}") from None
            position += len(batch)

    @cached_property
    def statement(self) -> PrivacyStatement:
        """The guarantee of what this privatizer releases."""
        statement = self.mechanism.statement.extended(
            not_protected=self.policy.not_protected(), notes=self.policy.notes()
        )
        if self.ledger is not None:
            return statement.extended(
                not_protected=(
                    "whether a document has changed since its last release under the same name",
                ),
                notes=(self.ledger.statement,),
            )
        if self.seed is None:
            return statement
        return statement.extended(
            notes=(
                "The draws were seeded: whoever guesses the seed can undo them. For experiments only",
            ),
            proved=False,
        )

    # Tokens, for the spaCy forms

    def read(self, text: str) -> RawTokens:
        """Tokenize and classify a raw text in a vocabulary of the privatizer's own.

        In a language whose words are set apart by blanks, a stretch of more than 1,000 characters without one counts as a
        single unknown word: no word is so long, and cutting it by rules takes time that grows with its square.
        """
        if self._tokenizer is None or len(self._tokenizer.vocab.strings) > _LARGEST_STORE:
            self._tokenizer = self._new_tokenizer()
        if len(text) > _LONGEST_STRETCH and self._cuts_by_rules:
            text = _shorten(text)
        try:
            return self.read_doc(self._tokenizer(text))
        except UnicodeEncodeError:
            # Half a surrogate pair has no UTF-8 form; it becomes the replacement character, an unknown word.
            repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return self.read_doc(self._tokenizer(repaired))

    def read_doc(self, doc: Doc) -> RawTokens:
        """Classify the tokens of an existing Doc, which is left as it is."""
        table = self._table
        columns: NDArray[np.uint64] = doc.to_array(list(table.attributes))  # type: ignore[assignment]
        codes, kept_at = _classify(
            columns,
            table.keys,
            table.values,
            table.actions,
            table.number_column,
            table.stop_column,
        )
        if not len(kept_at):
            return RawTokens(codes, [])
        strings = doc.vocab.strings
        # A stop word keeps the case it is looked up in.
        column = np.where(codes[codes <= _KEPT] == _KEPT - _STOP, 0, table.written_column)
        written = columns[kept_at, column].tolist()
        spaces = columns[kept_at, _IS_SPACE].tolist()
        return RawTokens(
            codes,
            [
                _canonical_space(strings[orth]) if space else strings[orth]
                for orth, space in zip(written, spaces, strict=True)
            ],
        )

    def release(
        self,
        batch: Sequence[RawTokens],
        keys: Sequence[ReleaseKey | None] | None = None,
    ) -> list[PrivateTokens]:
        """Draw private tokens for a batch of documents, in one call of the sampler.

        Parameters
        ----------
        batch : sequence of RawTokens
        keys : sequence of str, int, bytes, Document, Stream or None, optional
            One for each document; None gives a document fresh randomness, a Stream is read as it is.

        Raises
        ------
        LedgerError
            For a document that the ledger refuses; nothing of the batch is drawn.
        """
        codes, outputs, others, blanks, cuts = self._draw(batch, keys)
        words = self._spacing.words
        if len(batch) == 1:
            return [PrivateTokens(outputs, others, blanks, codes, words)]
        marks = np.concatenate([[0], np.cumsum(outputs < 0)])[cuts].tolist()
        return [
            PrivateTokens(outputs[a:b], others[c:d], blanks[a:b], codes[a:b], words)
            for a, b, c, d in zip(cuts, cuts[1:], marks, marks[1:], strict=False)
        ]

    def _render(
        self, batch: Sequence[RawTokens], keys: Sequence[ReleaseKey | None] | None
    ) -> Iterator[str]:
        _, outputs, others, blanks, cuts = self._draw(batch, keys)
        words = self._spacing.words[np.maximum(outputs, 0)]
        words[outputs < 0] = others
        if len(words):
            # One text in which every token carries the blank that follows it, cut by document.
            words[blanks] = words[blanks] + " "
        for a, b in zip(cuts, cuts[1:], strict=False):
            yield "".join(words[a:b].tolist())

    def _draw(
        self, batch: Sequence[RawTokens], keys: Sequence[ReleaseKey | None] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], list[str], NDArray[np.bool_], list[int]]:
        """Codes, drawn ids, tokens that are not drawn, whether a blank follows, and where each document begins."""
        lengths = [len(raw.codes) for raw in batch]
        cuts = np.zeros(len(batch) + 1, dtype=np.int64)
        np.cumsum(lengths, out=cuts[1:])
        if not batch or not cuts[-1]:
            empty = np.empty(0, dtype=np.int32)
            return empty, empty, [], np.empty(0, dtype=np.bool_), cuts.tolist()
        codes = batch[0].codes if len(batch) == 1 else np.concatenate([r.codes for r in batch])
        drawn_at = np.flatnonzero(codes >= UNKNOWN)
        offsets = np.searchsorted(drawn_at, cuts)
        ids = codes[drawn_at]
        streams = self._chosen_streams(ids, offsets, keys)
        drawn = self._drawn(ids, offsets, streams)
        spacing = self._spacing
        others: list[str] = []
        if len(drawn_at) == len(codes):
            outputs = drawn
            left, right = spacing.closing[outputs], spacing.opening[outputs]
        else:
            outputs = np.full(len(codes), -1, dtype=np.int32)
            outputs[drawn_at] = drawn
            left, right = spacing.closing[outputs], spacing.opening[outputs]
            rest = np.flatnonzero(codes < UNKNOWN)
            kept = iter([string for raw in batch for string in raw.kept])
            others = [MASK if code == _MASKED else next(kept) for code in codes[rest].tolist()]
            left[rest] = [string in _CLOSING for string in others]
            right[rest] = [string in _OPENING for string in others]
        blanks = np.zeros(len(codes), dtype=np.bool_)
        blanks[:-1] = ~(right[:-1] | left[1:])
        ends = cuts[1:][cuts[1:] > cuts[:-1]] - 1
        blanks[ends] = False
        return codes, outputs, others, blanks, cuts.tolist()

    def _drawn(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: list[Stream]
    ) -> NDArray[np.int32]:
        """Draw for whole documents, so many tokens at a time that their random words stay few; no draw depends on it."""
        if offsets[-1] <= _TOKENS:
            return self.mechanism.sample_documents(ids, offsets, streams)
        out = np.empty(len(ids), dtype=np.int32)
        first = 0
        while first < len(streams):
            last = int(np.searchsorted(offsets, offsets[first] + _TOKENS, side="right")) - 1
            last = max(first + 1, last)
            begin, end = int(offsets[first]), int(offsets[last])
            out[begin:end] = self.mechanism.sample_documents(
                ids[begin:end], offsets[first : last + 1] - begin, streams[first:last]
            )
            first = last
        return out

    def _chosen_streams(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        keys: Sequence[ReleaseKey | None] | None,
    ) -> list[Stream]:
        """The random stream of each document. With a ledger, its leave is asked here, before anything is drawn."""
        count = len(offsets) - 1
        if self.ledger is not None:
            return self._counted_streams(
                self.ledger, ids, offsets, [None] * count if keys is None else keys
            )
        if keys is None:
            if self._named_run:
                raise TextprivError(
                    "a run key repeats the draws of every document it is used for, so each document needs a key of its "
                    "own: pass keys=."
                )
            return [Stream() for _ in range(count)]
        streams = []
        for key in keys:
            if key is None:
                streams.append(Stream())
            elif isinstance(key, Document):
                raise TextprivError(
                    "a Document names an author for a ledger, and this privatizer has none: pass ledger=."
                )
            else:
                streams.append(key if isinstance(key, Stream) else self._streams.stream(key))
        return streams

    def _counted_streams(
        self,
        ledger: Ledger,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        keys: Sequence[ReleaseKey | None],
    ) -> list[Stream]:
        charges, places = [], []
        for place, key in enumerate(keys):
            if key is None or isinstance(key, Stream):
                raise LedgerError(
                    "a ledger counts by the names of documents: pass one for each as key= or keys=."
                )
            own = ids[offsets[place] : offsets[place + 1]]
            # A document of which no word is drawn releases nothing that is protected.
            if len(own):
                document = key if isinstance(key, Document) else Document(key)
                charges.append(Charge(document, own.astype("<i4").tobytes(), len(own)))
                places.append(place)
        try:
            releases = ledger.charge_all(self._terms, charges)
        except LedgerError as error:
            if error.place is not None:
                error.place = places[error.place]
            raise
        streams = [Stream() for _ in keys]
        for place, release in zip(places, releases, strict=True):
            streams[place] = release.stream()
        return streams

    # Tables

    @cached_property
    def _table(self) -> _Table:
        return _Table.of(self.mechanism.index.vocabulary.words, self.policy)

    @cached_property
    def _spacing(self) -> _Spacing:
        words = np.array(self.mechanism.index.vocabulary.words, dtype=object)
        return _Spacing(
            words,
            np.fromiter((word in _CLOSING for word in words), np.bool_, len(words)),
            np.fromiter((word in _OPENING for word in words), np.bool_, len(words)),
        )

    def _new_tokenizer(self) -> Any:
        import spacy

        try:
            pipeline = spacy.blank(self.language)
        except ImportError as error:
            raise TextprivError(
                f"spaCy has no language {self.language!r}; use a code such as 'en'."
            ) from error
        # Other attributes of a new word are never read, and each costs a call into Python.
        vocabulary: Any = pipeline.vocab
        getters = vocabulary.lex_attr_getters
        vocabulary.lex_attr_getters = {
            name: getters[name] for name in self._table.attributes if name in getters
        }
        tokenizer: Any = pipeline.tokenizer
        # Only spaCy's own tokenizer cuts by rules; those of languages without blanks find words in long stretches.
        self._cuts_by_rules = type(tokenizer) is spacy.tokenizer.Tokenizer
        if hasattr(tokenizer, "max_cache_size"):
            # The tokenizer remembers how it cut a stretch of text, by default of 10,000 different ones: a corpus has
            # more. The store of strings bounds this memory too, since both are replaced together.
            tokenizer.max_cache_size = _LARGEST_STORE
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        # The reader has seen raw words, and the streams hold the run key: neither travels.
        return {
            "mechanism": self.mechanism,
            "policy": self.policy,
            "seed": self.seed,
            "language": self.language,
            "ledger": self.ledger,
            "named_run": self._named_run,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["named_run"]:
            raise TextprivError(
                "a Privatizer with a run key does not travel between processes: the key is a secret. Make one there."
            )
        self.__init__(  # type: ignore[misc]
            state["mechanism"],
            state["policy"],
            state["seed"],
            ledger=state["ledger"],
            language=state["language"],
        )

    def __repr__(self) -> str:
        return f"Privatizer({self.mechanism!r}, {self.policy!r})"


@dataclass(frozen=True)
class _Spacing:
    """The vocabulary's words, and which of them take no blank before or after."""

    words: NDArray[np.object_]
    closing: NDArray[np.bool_]
    opening: NDArray[np.bool_]


@dataclass(frozen=True)
class _Table:
    """The lexical attributes to read from a Doc, and an open-addressing table from spaCy's hashes to ids."""

    attributes: tuple[int, ...]
    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    actions: NDArray[np.int64]
    number_column: int
    stop_column: int
    written_column: int

    @classmethod
    def of(cls, words: Sequence[str], policy: TokenPolicy) -> _Table:
        from spacy.attrs import IS_PUNCT, IS_SPACE, IS_STOP, LIKE_NUM, LOWER, ORTH
        from spacy.strings import get_string_id

        form = LOWER if policy.case == "lower" else ORTH
        attributes = [form, IS_SPACE, IS_PUNCT]
        number = stop = -1
        # A class that is drawn whatever its token needs no looking at.
        if (policy.number, policy.stopword, policy.unknown) != ("sample",) * 3:
            number = len(attributes)
            attributes.append(LIKE_NUM)
        if policy.stopword != "sample":
            stop = len(attributes)
            attributes.append(IS_STOP)
        written = 0
        if form != ORTH and "keep" in (policy.unknown, policy.number):
            written = len(attributes)
            attributes.append(ORTH)
        hashes = np.fromiter((get_string_id(word) for word in words), np.uint64, len(words))
        slots = 1 << max(3, int(2 * len(words)).bit_length())
        keys = np.zeros(slots, dtype=np.uint64)
        values = np.full(slots, -1, dtype=np.int32)
        _insert(hashes, keys, values)
        actions = np.array([ACTIONS.index(getattr(policy, name)) for name in CLASSES])
        return cls(tuple(attributes), keys, values, actions, number, stop, written)


_IS_SPACE, _IS_PUNCTUATION = 1, 2  # columns of what is read from a Doc
_UNKNOWN_CLASS, _NUMBER, _PUNCTUATION, _SPACE, _STOP = range(5)  # places in CLASSES
_SAMPLE, _MASK, _DROP = 0, 1, 2  # places in ACTIONS


def _counts(codes: NDArray[np.int32]) -> dict[str, int]:
    """Tokens by their codes: sampled, masked, and kept ones by class."""
    lowest = _KEPT - len(CLASSES) + 1
    tally = np.bincount(
        np.minimum(codes, UNKNOWN) - lowest, minlength=UNKNOWN - lowest + 1
    ).tolist()
    counts = {"sampled": tally[UNKNOWN - lowest]}
    if tally[_MASKED - lowest]:
        counts["masked"] = tally[_MASKED - lowest]
    for place, name in enumerate(CLASSES):
        if tally[_KEPT - place - lowest]:
            counts[name] = tally[_KEPT - place - lowest]
    return counts


def _shorten(text: str) -> str:
    """Replace stretches that are too long for a word by the replacement character, which no vocabulary holds."""
    if max(map(len, text.split()), default=0) <= _LONGEST_STRETCH:
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if len(part) > _LONGEST_STRETCH else part
        for part in re.split(r"(\s+)", text)
    )


def _canonical_space(text: str) -> str:
    """Reduce a blank token to one blank, one line break or an empty line."""
    breaks = text.count("\n")
    return "\n" * min(breaks, 2) if breaks else " "


@njit(cache=True, nogil=True)
def _insert(
    hashes: NDArray[np.uint64], keys: NDArray[np.uint64], values: NDArray[np.int32]
) -> None:
    mask = np.uint64(keys.shape[0] - 1)
    for word in range(hashes.shape[0]):
        slot = (hashes[word] ^ (hashes[word] >> np.uint64(32))) & mask
        while values[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        keys[slot] = hashes[word]
        values[slot] = word


@njit(cache=True, nogil=True)
def _classify(
    columns: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
    actions: NDArray[np.int64],
    number_column: int,
    stop_column: int,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Codes of the tokens that are not dropped, and the places of the kept ones among all tokens."""
    codes = np.empty(columns.shape[0], np.int32)
    kept_at = np.empty(columns.shape[0], np.int64)
    mask = np.uint64(keys.shape[0] - 1)
    held, kept = 0, 0
    for token in range(columns.shape[0]):
        key = columns[token, 0]
        slot = (key ^ (key >> np.uint64(32))) & mask
        while values[slot] >= 0 and keys[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        word = values[slot]
        kind = -1
        if columns[token, _IS_SPACE] != 0:
            kind = _SPACE
        elif columns[token, _IS_PUNCTUATION] != 0:
            kind = _PUNCTUATION
        elif number_column >= 0 and columns[token, number_column] != 0:
            kind = _NUMBER
        elif stop_column >= 0 and columns[token, stop_column] != 0:
            kind = _STOP
        elif word < 0:
            kind = _UNKNOWN_CLASS
        action = actions[kind] if kind >= 0 else _SAMPLE
        if action == _DROP:
            continue
        if action == _SAMPLE:
            codes[held] = word
        elif action == _MASK:
            codes[held] = _MASKED
        else:
            codes[held] = _KEPT - kind
            kept_at[kept] = token
            kept += 1
        held += 1
    return codes[:held].copy(), kept_at[:kept].copy()
