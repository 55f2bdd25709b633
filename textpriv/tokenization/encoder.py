"""Texts to tokens: cut them by the rules of spaCy, classify every token, and look its word up.

A text is cut at its blanks into *stretches*, and how spaCy cuts a stretch depends on nothing around it, but for the few
special cases below. So each stretch that differs from those before is given to spaCy once, and what became of it is kept:
most stretches of a corpus were there before, and compiled code finds them again in the bytes of the text.

Where the policy lowers case, a text is lowered as a whole before anything else is done with it. spaCy's rules depend on
casing ("dont" is two tokens, "DONT" one), so what is found is then a function of ``text.lower()`` alone: texts that
``str.lower`` makes equal have the same tokens, and casing does not show in their number.

spaCy has special cases of several tokens, such as ``:)`` or ``a.m.``, which it looks for in the tokens of the whole
document. In one that reaches over a blank two of its tokens stand on both sides of the blank; documents with such a pair
are few, and spaCy reads them as a whole. So the tokens are always those that spaCy finds in the whole text.

What is drawn for a token, and how private texts are put together, is in ``textpriv.privatizer``.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import (
    _DROPPED,
    _KEPT,
    _MASKED,
    EncodedTexts,
    RawBatch,
    RawTokens,
)
from textpriv.tokenization.chunk_cache import _LONGEST_STRETCH, _Stretches
from textpriv.tokenization.policy import ACTIONS, CLASSES, TokenPolicy
from textpriv.tokenization.spacy_tokenizer import Cutter, Rules, hashes_of

__all__ = ["TokenReader", "find_words_cut", "words_cut"]

_ORTH, _IS_SPACE, _IS_PUNCTUATION = range(3)  # columns of what is read from a Doc
_UNKNOWN_CLASS, _NUMBER, _PUNCTUATION, _SPACE, _STOP = range(5)  # places in CLASSES
_SAMPLE, _MASK, _DROP = 0, 1, 2  # places in ACTIONS
_CUT_AT_ONCE = 10_000  # stretches given to spaCy as one document


@dataclass(frozen=True)
class _NewStretches:
    """Stretches that spaCy is to cut.

    Attributes
    ----------
    texts : list of str
        What it is to be given: the first text has all that are no blanks, each on a line of its own, for no special case
        reaches over a line break. The others are runs of blanks.
    """

    texts: list[str]
    stretches: _Stretches
    words: list[int]  # which of them stand in the first text, and which in the others
    blanks: list[int]


class TokenReader:
    """Reads the tokens of raw texts.

    Parameters
    ----------
    words : sequence of str
        The vocabulary; a word's id is its place.
    policy : TokenPolicy
    language : str
        A spaCy language code, for the tokenizer.

    Attributes
    ----------
    cutter : Cutter
    """

    def __init__(self, words: Sequence[str], policy: TokenPolicy, language: str) -> None:
        self.words = words
        self._policy = policy
        self._columns = _Columns.of(policy)
        self.cutter = Cutter(language, self._columns.attributes)
        self._rules: Rules | None = None
        self._table: _Table | None = None
        self._stretches: _Stretches | None = None
        self._lock = threading.Lock()  # the cached stretches are filled while others may read

    def read(self, text: str) -> RawTokens:
        """Read one text by spaCy alone.

        In a language whose words are set apart by blanks, a stretch of more than 1,000 characters without one counts as a
        single unknown word: no word is so long, and cutting it by rules takes time that grows with its square.
        """
        if self._table is None:
            # No more than the words is needed for a text that is not cut at its blanks.
            self._table = _Table.of(hashes_of(self.words), self._policy)
        found = self._shortened(self._cased(EncodedTexts.of([text]))[0])
        return self._document(found, self.cutter.columns([found])[0])

    def read_batch(self, texts: EncodedTexts) -> RawBatch:
        """Read many texts; the same tokens as :meth:`read` finds in each of them."""
        with self._lock:
            if self._rules is None:
                self._rules = self.cutter.rules(self.words)
                self._table = _Table.of(self._rules.hashes, self._policy)
            texts = self._cased(texts)
            if not self._rules.by_rules:
                return self._read_whole(
                    RawBatch.of([_EMPTY] * len(texts)), texts, list(range(len(texts)))
                )
            try:
                batch, places = self._read_stretches(texts, self._rules)
            except BaseException:
                # Else stretches that were found and have no tokens yet would be taken for known.
                self._stretches = None
                raise
            return self._read_whole(batch, texts, places) if places else batch

    def _read_stretches(self, texts: EncodedTexts, rules: Rules) -> tuple[RawBatch, list[int]]:
        """The tokens of texts by those of their stretches, and which texts are to be read as a whole."""
        if self._stretches is None or self._stretches.is_full:
            self._stretches = _Stretches()
        found, cuts = self._stretches.find(texts)
        for new in self._new_stretches(self._stretches):
            self._keep(new, self.cutter.columns(new.texts), rules)
        return self._stretches.tokens(found, cuts, rules.crossings)

    def _read_whole(self, batch: RawBatch, texts: EncodedTexts, places: Sequence[int]) -> RawBatch:
        """Read some texts of a batch as a whole, and put what they hold into their places."""
        whole = [self._shortened(texts[place]) for place in places]
        columns = self.cutter.columns(whole)
        documents = {
            place: self._document(text, found)
            for place, text, found in zip(places, whole, columns, strict=True)
        }
        return _mended(batch, documents)

    def _new_stretches(self, stretches: _Stretches) -> Iterator[_NewStretches]:
        """Yield the stretches that were found since the last call; they are to be kept in this order."""
        while new := stretches.not_told(_CUT_AT_ONCE):
            words = [place for place, stretch in enumerate(new) if not stretch[0].isspace()]
            blanks = [place for place, stretch in enumerate(new) if stretch[0].isspace()]
            first = "\n".join([new[place] for place in words])
            yield _NewStretches(
                [first, *(new[place] for place in blanks)], stretches, words, blanks
            )

    def _keep(
        self, new: _NewStretches, columns: Sequence[NDArray[np.uint64]], rules: Rules
    ) -> None:
        """Keep what the cutter found in new stretches."""
        apart = new.texts[0].split("\n") if new.words else []
        sizes = np.fromiter(map(len, apart), np.int64, len(apart))
        firsts = np.cumsum(sizes + 1) - sizes - 1
        begins = self._begins(columns[0])
        own = np.searchsorted(firsts, begins, side="right") - 1
        # The line breaks between the stretches are in none of them.
        inside = begins < firsts[own] + sizes[own] if len(apart) else np.zeros(0, np.bool_)
        owners = [np.array(new.words, dtype=np.int64)[own[inside]]]
        parts = [self._cut(new.stretches, new.texts[0], columns[0][inside], begins[inside])]
        for place, text, found in zip(new.blanks, new.texts[1:], columns[1:], strict=True):
            owners.append(np.full(len(found), place))
            parts.append(self._cut(new.stretches, text, found, self._begins(found)))
        order = np.argsort(np.concatenate(owners), kind="stable")
        codes, others, hashes = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
        stretches: list[str] = [""] * (len(new.words) + len(new.blanks))
        for place, stretch in zip(new.words + new.blanks, apart + new.texts[1:], strict=True):
            stretches[place] = stretch
        new.stretches.keep(
            stretches, np.concatenate(owners)[order], codes, others, hashes, rules.crossings
        )

    def _cased(self, texts: EncodedTexts) -> EncodedTexts:
        return texts.lowered() if self._policy.case == "lower" else texts

    def _document(self, text: str, columns: NDArray[np.uint64]) -> RawTokens:
        """The tokens of a whole text, given what the cutter found in it."""
        codes = self._codes(columns)
        kept_at = _kept_at(codes)
        written = self._written(text, columns[kept_at], self._begins(columns)[kept_at])
        return RawTokens(codes[codes != _DROPPED], _released(codes[kept_at], written))

    def _shortened(self, text: str) -> str:
        if len(text) <= _LONGEST_STRETCH:
            return text
        by_rules = self.cutter.by_rules if self._rules is None else self._rules.by_rules
        return _shorten(text) if by_rules else text

    def _begins(self, columns: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where the tokens of a text begin, in characters."""
        sizes = columns[:, self._columns.length].astype(np.int64)
        following = columns[:, self._columns.blank].astype(np.int64)
        found: NDArray[np.int64] = np.cumsum(sizes + following) - sizes - following
        return found

    def _written(
        self, text: str, columns: NDArray[np.uint64], begins: NDArray[np.int64]
    ) -> list[str]:
        sizes = columns[:, self._columns.length].tolist()
        return [text[at : at + size] for at, size in zip(begins.tolist(), sizes, strict=True)]

    def _cut(
        self,
        stretches: _Stretches,
        text: str,
        columns: NDArray[np.uint64],
        begins: NDArray[np.int64],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint64]]:
        """Of tokens the codes, the places of what is released for those not drawn, and the hashes as written."""
        codes = self._codes(columns)
        others = np.full(len(codes), -1, dtype=np.int32)
        others[codes == _MASKED] = 0
        kept_at = _kept_at(codes)
        written = self._written(text, columns[kept_at], begins[kept_at])
        others[kept_at] = [stretches.place_of(each) for each in _released(codes[kept_at], written)]
        return codes, others, columns[:, _ORTH]

    def _codes(self, columns: NDArray[np.uint64]) -> NDArray[np.int32]:
        table = self._table
        assert table is not None
        return _classify(
            columns,
            table.keys,
            table.values,
            table.actions,
            self._columns.number,
            self._columns.stop,
        )


_EMPTY = RawTokens(np.empty(0, dtype=np.int32), [])


def _mended(batch: RawBatch, documents: Mapping[int, RawTokens]) -> RawBatch:
    """Put documents that were read by themselves in their places of a batch."""
    marks = np.concatenate([[0], np.cumsum(batch.codes < UNKNOWN)])[batch.cuts]
    strings = list(batch.strings)
    codes, others, done = [], [], 0
    lengths = np.diff(batch.cuts)
    for place, document in sorted(documents.items()):
        codes += [batch.codes[batch.cuts[done] : batch.cuts[place]], document.codes]
        rest = document.codes[document.codes < UNKNOWN]
        own = np.zeros(len(rest), dtype=np.int32)
        own[rest != _MASKED] = np.arange(len(strings), len(strings) + len(document.kept))
        strings += document.kept
        others += [batch.others[marks[done] : marks[place]], own]
        lengths[place] = len(document.codes)
        done = place + 1
    codes.append(batch.codes[batch.cuts[done] :])
    others.append(batch.others[marks[done] :])
    cuts = np.concatenate([[0], np.cumsum(lengths)])
    return RawBatch(np.concatenate(codes), cuts, np.concatenate(others), strings)


@dataclass(frozen=True)
class _Columns:
    """The attributes of tokens that a policy asks for, by spaCy's names, and at which place some of them stand."""

    attributes: tuple[str, ...]
    number: int  # -1 for one that is not asked for
    stop: int
    length: int
    blank: int

    @classmethod
    def of(cls, policy: TokenPolicy) -> _Columns:
        names = ["ORTH", "IS_SPACE", "IS_PUNCT"]
        # A class that is drawn whatever its token needs no looking at.
        if (policy.number, policy.stopword, policy.unknown) != ("sample",) * 3:
            names.append("LIKE_NUM")
        if policy.stopword != "sample":
            names.append("IS_STOP")
        names += ["LENGTH", "SPACY"]
        number = names.index("LIKE_NUM") if "LIKE_NUM" in names else -1
        stop = names.index("IS_STOP") if "IS_STOP" in names else -1
        last = len(names)
        return cls(tuple(names), number, stop, last - 2, last - 1)


@dataclass(frozen=True)
class _Table:
    """An open-addressing table from spaCy's hashes to ids, and what is done with each class of tokens."""

    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    actions: NDArray[np.int64]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], policy: TokenPolicy) -> _Table:
        slots = 1 << max(3, int(2 * len(hashes)).bit_length())
        keys = np.zeros(slots, dtype=np.uint64)
        values = np.full(slots, -1, dtype=np.int32)
        _insert(hashes, keys, values)
        actions = np.array([ACTIONS.index(getattr(policy, name)) for name in CLASSES])
        return cls(keys, values, actions)


@functools.cache
def _public_cutter(language: str) -> Cutter:
    """One that is given public words alone, so that it can be shared."""
    return Cutter(language, ("ORTH", "LENGTH", "SPACY"))


def words_cut(words: Sequence[str], language: str, case: str) -> NDArray[np.int64]:
    """Places of the words that are not read as one token where they stand between blanks.

    Such as "well-known", which spaCy cuts in three, and with ``case="lower"`` a word with a capital, read as another one.
    A part of a longer stretch may still be such a word, as the end of "dog's" is.

    Parameters
    ----------
    words : sequence of str
        A vocabulary; it is public.
    language : str
        A spaCy language code.
    case : {"lower", "keep"}
        As in :class:`textpriv.tokenization.policy.TokenPolicy`.
    """
    cutter = _public_cutter(language)
    whole = np.fromiter((_may_be_read(word, case) for word in words), np.bool_, len(words))
    places = np.flatnonzero(whole)
    size = _CUT_AT_ONCE if cutter.by_rules else 1
    for first in range(0, len(places), size):
        part = places[first : first + size]
        lines = [words[place] for place in part.tolist()]
        # No special case reaches over a line break.
        (columns,) = cutter.columns(["\n".join(lines)])
        sizes = columns[:, 1].astype(np.int64)
        begins = (
            np.cumsum(sizes + columns[:, 2].astype(np.int64))
            - sizes
            - columns[:, 2].astype(np.int64)
        )
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        expected = np.cumsum(lengths + 1) - lengths - 1
        at = np.minimum(np.searchsorted(begins, expected), len(begins) - 1)
        whole[part] = (begins[at] == expected) & (sizes[at] == lengths)
    found: NDArray[np.int64] = np.flatnonzero(~whole)
    return found


def find_words_cut(index: Index, language: str = "en", case: str = "lower") -> dict[str, Any]:
    """How many words of an index are not read as one token; counted once and kept with the index.

    Parameters
    ----------
    index : Index
    language : str
        A spaCy language code.
    case : {"lower", "keep"}

    Returns
    -------
    dict
        ``"count"``, ``"words"`` (in the vocabulary) and ``"example"``, the first of them or None; see
        :func:`words_cut`.
    """
    binding = {
        "record": "words cut",
        "version": 1,
        "vocabulary": index.fingerprint,
        "language": language,
        "case": case,
        "spacy": version("spacy"),
    }
    found = index.find_record(binding)
    if found is None:
        words = index.vocabulary.words
        places = words_cut(words, language, case)
        example = words[places[0]] if len(places) else None
        found = {"count": len(places), "words": len(words), "example": example}
        index.keep_record(binding, found)
    return found


def _may_be_read(word: str, case: str) -> bool:
    """Whether a word is a stretch in the case in which texts are read."""
    return (
        0 < len(word) <= _LONGEST_STRETCH
        and not any(map(str.isspace, word))
        and (case != "lower" or word == word.lower())
    )


def _kept_at(codes: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.flatnonzero((codes <= _KEPT) & (codes > _DROPPED))


def _shorten(text: str) -> str:
    """Replace stretches that are too long for a word by the replacement character, which no vocabulary holds."""
    if max(map(len, text.split()), default=0) <= _LONGEST_STRETCH:
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if len(part) > _LONGEST_STRETCH else part
        for part in re.split(r"(\s+)", text)
    )


def _released(codes: NDArray[np.int32], written: list[str]) -> list[str]:
    """What is released for kept tokens: as they are read, but that blanks are reduced."""
    return [
        _canonical_space(string) if code == _KEPT - _SPACE else string
        for code, string in zip(codes.tolist(), written, strict=True)
    ]


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
) -> NDArray[np.int32]:
    """Codes of all tokens."""
    codes = np.empty(columns.shape[0], np.int32)
    mask = np.uint64(keys.shape[0] - 1)
    for token in range(columns.shape[0]):
        key = columns[token, _ORTH]
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
        if action == _SAMPLE:
            codes[token] = word
        elif action == _MASK:
            codes[token] = _MASKED
        elif action == _DROP:
            codes[token] = _DROPPED
        else:
            codes[token] = _KEPT - kind
    return codes
