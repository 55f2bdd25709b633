"""The blank after a token, and private texts put together from words and kept tokens, many of them by compiled code.

Spacing is a function of the private tokens alone, so that none of the original survives. What is released is decided by the
privatizer.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.tokenization.batches import EncodedTexts

__all__ = ["Spelling", "find_blanks", "marks_of", "spell", "spell_few"]

_BLANKS = frozenset((" ", "\n", "\n\n"))
_CLOSING = _BLANKS.union(
    ". , ; : ! ? ) ] } % ... .. … ’ ” » 's 'm 're 've 'll 'd n't ’s ’m ’re ’ve ’ll ’d n’t".split()
)
_OPENING = _BLANKS.union("( [ { “ ‘ « $ £ € #".split())
# Kana, Han and the marks and wide letters that are written with them, which have no blanks between words.
_UNSPACED = "[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f]"
# What spaCy splits off before a word in French and Italian ("l'", "dell'"), and after one in French ("-on").
_OPENS = re.compile(rf"[^\W\d_]+['’]|.*{_UNSPACED}")
_CLOSES = re.compile(rf"-[^\W\d_]+|{_UNSPACED}.*")
_PLAIN = False, False


@dataclass(frozen=True)
class Spelling:
    """Words, their letters in UTF-8 with offsets, and which of them take no blank before (closing) or after (opening)."""

    words: NDArray[np.object_]
    letters: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    closing: NDArray[np.bool_]
    opening: NDArray[np.bool_]

    @classmethod
    def of(cls, words: Sequence[str]) -> Spelling:
        """Those of some words."""
        encoded = EncodedTexts.of(words)
        array = np.empty(len(words), dtype=object)
        array[:] = words
        return cls(array, encoded.data, encoded.offsets, *marks_of(words))


def marks_of(words: Sequence[str]) -> NDArray[np.bool_]:
    """Which words take no blank before (first row), and which none after (second row)."""
    # No word of letters alone is listed, and nearly all words are such: a whole vocabulary is looked through at every start.
    marks = [_PLAIN if word.isascii() and word.isalpha() else _marks(word) for word in words]
    return np.array(marks, dtype=np.bool_).reshape(len(words), 2).T


@functools.lru_cache(maxsize=1 << 12)
def _marks(word: str) -> tuple[bool, bool]:
    closes = word in _CLOSING or _CLOSES.fullmatch(word) is not None
    return closes, word in _OPENING or _OPENS.fullmatch(word) is not None


def find_blanks(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    words: Spelling,
    others: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Whether a blank follows each token: not the last of a text, none that opens, and none before one that closes.

    ``others`` are the marks of the tokens that are not drawn, in order, as from :func:`marks_of`.
    """
    closes, opens = words.closing[outputs], words.opening[outputs]
    if others.size:
        undrawn = outputs < 0
        closes[undrawn], opens[undrawn] = others
    blanks = np.zeros(len(outputs), dtype=np.bool_)
    np.logical_not(opens[:-1] | closes[1:], out=blanks[:-1])
    if len(offsets) > 2:
        ends = offsets[1:]
        blanks[ends[ends > 0] - 1] = False
    return blanks


def spell_few(
    outputs: NDArray[np.int32],
    blanks: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    string_ids: NDArray[np.int32],
    words: Sequence[str],
    others: Sequence[str],
) -> EncodedTexts:
    """What :func:`spell` gives, without compiled code."""
    undrawn = iter(string_ids.tolist())
    tokens = [
        (words[word] if word >= 0 else others[next(undrawn)]) + (" " if blank else "")
        for word, blank in zip(outputs.tolist(), blanks.tolist(), strict=True)
    ]
    return EncodedTexts.of(
        "".join(tokens[begin:end]) for begin, end in itertools.pairwise(offsets.tolist())
    )


@njit(cache=True, nogil=True)
def spell(
    outputs: NDArray[np.int32],
    blanks: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    string_ids: NDArray[np.int32],
    word_letters: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
    other_letters: NDArray[np.uint8],
    other_offsets: NDArray[np.int64],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The texts of drawn words and of tokens that are not drawn, as UTF-8 with offsets."""
    size, undrawn = outputs.shape[0], 0
    for token in range(outputs.shape[0]):
        word = outputs[token]
        if word >= 0:
            size += word_offsets[word + 1] - word_offsets[word]
        else:
            other = string_ids[undrawn]
            undrawn += 1
            size += other_offsets[other + 1] - other_offsets[other]
    data = np.empty(size, np.uint8)
    text_offsets = np.zeros(offsets.shape[0], np.int64)
    end, undrawn = 0, 0
    for text in range(offsets.shape[0] - 1):
        for token in range(offsets[text], offsets[text + 1]):
            word = outputs[token]
            if word >= 0:
                for letter in range(word_offsets[word], word_offsets[word + 1]):
                    data[end] = word_letters[letter]
                    end += 1
            else:
                other = string_ids[undrawn]
                undrawn += 1
                for letter in range(other_offsets[other], other_offsets[other + 1]):
                    data[end] = other_letters[letter]
                    end += 1
            if blanks[token]:
                data[end] = 32
                end += 1
        text_offsets[text + 1] = end
    return data[:end].copy(), text_offsets
