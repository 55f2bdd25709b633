"""Private texts from released tokens.

Blanks follow from the released tokens alone, so nothing of the original spacing survives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import SPAN, RawBatch, counts_by_class

_NONE_BEFORE, _NONE_AFTER = 1, 2
_QUOTE, _NOT, _TAKES_NOT = 4, 8, 16  # marks whose blanks depend on other tokens
_BLANKS = frozenset((" ", "\n", "\n\n"))
_CLOSING = _BLANKS.union(
    ". , ; : ! ? ) ] } % ... .. … ’ ” » 's 'm 're 've 'll 'd ’s ’m ’re ’ve ’ll ’d -".split()
)
_OPENING = _BLANKS.union("( [ { “ ‘ « $ £ € # -".split())
VERBS = frozenset(  # before "n't"
    "ai are ca could did do does had has have is might must need sha should was were wo would".split()
)
# Kana, Han and the marks and wide letters that are written with them: no blanks between words.
_UNSPACED = "[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f]"
# spaCy splits off "l'" and "dell'" before a word in French and Italian, and "-on" after one in French.
_OPENS = re.compile(rf"[^\W\d_]+['’]|.*{_UNSPACED}")
_CLOSES = re.compile(rf"-[^\W\d_]+|{_UNSPACED}.*")


@dataclass(frozen=True, repr=False)
class PrivateTokens:
    """One private document as tokens."""

    words: list[str]
    spaces: list[bool]  # for each token, whether a blank follows
    outputs: NDArray[np.int32]  # word ids of the drawn tokens, -1 for the others
    # Of tokens: sampled, masked, kept ones by class, and typed spans by kind
    counts: dict[str, int]
    spans: dict[int, str]  # the kind of each token that is a typed span

    @property
    def text(self) -> str:
        """The private text."""
        pairs = zip(self.words, self.spaces, strict=True)
        return "".join(word + " " if space else word for word, space in pairs)

    def __repr__(self) -> str:
        return f"PrivateTokens({len(self)} tokens)"

    def __len__(self) -> int:
        return len(self.words)


class Detokenizer:
    """Put private texts together from words of a vocabulary, by their ids, and tokens that are released as they are."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = np.array([*words, None], dtype=object)[:-1]
        self._marks = np.array([_mark(word) for word in words], dtype=np.uint8)
        self._spelled = np.concatenate([self._words, self._words + " "])

    def texts(self, batch: RawBatch, drawn: NDArray[np.int32]) -> list[str]:
        """The private texts of a batch, with these word ids for the tokens that are drawn, in order."""
        is_drawn, blanks = self._arranged(batch, drawn)
        pieces = np.empty(len(batch.codes), dtype=object)
        pieces[is_drawn] = self._spelled[drawn + len(self._words) * blanks[is_drawn]]
        others = zip(batch.strings, blanks[~is_drawn].tolist(), strict=True)
        pieces[~is_drawn] = [string + " " if blank else string for string, blank in others]
        each = pieces.tolist()
        return ["".join(each[a:b]) for a, b in pairwise(batch.offsets.tolist())]

    def tokens(self, batch: RawBatch, drawn: NDArray[np.int32]) -> list[PrivateTokens]:
        """The same documents as tokens."""
        is_drawn, blanks = self._arranged(batch, drawn)
        pieces = np.empty(len(batch.codes), dtype=object)
        pieces[is_drawn] = self._words[drawn]
        pieces[~is_drawn] = batch.strings
        words, spaces = pieces.tolist(), blanks.tolist()
        outputs = np.full(len(batch.codes), -1, dtype=np.int32)
        outputs[is_drawn] = drawn
        released = []
        for a, b in pairwise(batch.offsets.tolist()):
            codes = batch.codes[a:b]
            at = np.flatnonzero(codes <= SPAN).tolist()
            spans = {place: batch.kinds[SPAN - codes[place]] for place in at}
            counts = counts_by_class(codes, batch.kinds)
            released.append(PrivateTokens(words[a:b], spaces[a:b], outputs[a:b], counts, spans))
        return released

    def _arranged(
        self, batch: RawBatch, drawn: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which tokens are drawn, and which are followed by a blank."""
        is_drawn = batch.codes >= UNKNOWN
        ids = np.asarray(drawn)
        fits = ids.shape == (np.count_nonzero(is_drawn),)
        if not fits or (ids.size and not 0 <= ids.min() <= ids.max() < len(self._words)):
            raise MechanismError("a mechanism must draw one word id for every token it is given.")
        marks = np.empty(len(is_drawn), dtype=np.uint8)
        marks[is_drawn] = self._marks[ids]
        of_string = {string: _mark(string) for string in set(batch.strings)}
        marks[~is_drawn] = [of_string[string] for string in batch.strings]
        # Straight quotation marks open and close in turn, in each document.
        quotes = np.flatnonzero(marks & _QUOTE)
        first = batch.offsets[np.searchsorted(batch.offsets, quotes, side="right") - 1]
        number = np.arange(len(quotes)) - np.searchsorted(quotes, first)
        marks[quotes] |= np.where(number % 2, _NONE_BEFORE, _NONE_AFTER).astype(np.uint8)
        left, right = marks[:-1], marks[1:]
        joined = (left & _TAKES_NOT != 0) & (right & _NOT != 0)
        joined |= (left & _NONE_AFTER != 0) | (right & _NONE_BEFORE != 0)
        blanks = np.zeros(len(is_drawn), dtype=np.bool_)
        blanks[:-1] = ~joined
        ends = batch.offsets[1:]
        blanks[ends[ends > 0] - 1] = False
        return is_drawn, blanks


def _mark(word: str) -> int:
    """Return the sum of the marks above that a word has."""
    if word.isascii() and word.isalpha():
        return _TAKES_NOT * (word.lower() in VERBS)
    if word in ('"', "n't", "n’t"):
        return _QUOTE if word == '"' else _NOT
    closes = word in _CLOSING or _CLOSES.fullmatch(word) is not None
    opens = word in _OPENING or _OPENS.fullmatch(word) is not None
    return _NONE_BEFORE * closes + _NONE_AFTER * opens
