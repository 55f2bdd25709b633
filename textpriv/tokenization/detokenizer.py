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

from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import EncodedTexts

__all__ = ["Spelling", "arrange", "marks_of", "spell", "spell_few"]

_NONE_BEFORE, _NONE_AFTER = 1, 2
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


@dataclass(frozen=True)
class Spelling:
    """Words, their letters in UTF-8 with offsets, and their marks as from :func:`marks_of`."""

    words: NDArray[np.object_]
    letters: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    marks: NDArray[np.uint8]

    @classmethod
    def of(cls, words: Sequence[str]) -> Spelling:
        """Those of some words."""
        encoded = EncodedTexts.of(words)
        array = np.empty(len(words), dtype=object)
        array[:] = words
        return cls(array, encoded.data, encoded.offsets, marks_of(words))


def marks_of(words: Sequence[str]) -> NDArray[np.uint8]:
    """Of each word the sum of ``_NONE_BEFORE`` if it takes no blank before it, and ``_NONE_AFTER`` if none after it."""
    # No word of letters alone is listed, and nearly all words are such: a whole vocabulary is looked through at every start.
    marks = [0 if word.isascii() and word.isalpha() else _mark(word) for word in words]
    # Of a buffer that can be written to, as other arrays: for one that cannot, code would be compiled once more.
    return np.frombuffer(bytearray(marks), dtype=np.uint8)


@functools.lru_cache(maxsize=1 << 12)
def _mark(word: str) -> int:
    closes = word in _CLOSING or _CLOSES.fullmatch(word) is not None
    opens = word in _OPENING or _OPENS.fullmatch(word) is not None
    return _NONE_BEFORE * closes + _NONE_AFTER * opens


@njit(cache=True, nogil=True)
def arrange(
    codes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    drawn: NDArray[np.int32],
    word_marks: NDArray[np.uint8],
    other_marks: NDArray[np.uint8],
    outputs: NDArray[np.int32],
    blanks: NDArray[np.bool_],
    counts: NDArray[np.int64],
) -> bool:
    """Write the word of each token, -1 for those not drawn, whether a blank follows, and how many there are of each code.

    No blank follows the last token of a text and one that opens, and none stands before one that closes. ``drawn`` are the
    words of the drawn tokens and ``other_marks`` the marks of the others, both in order. ``counts``, of zeros, has a row for
    each text and a column for each of :func:`textpriv.tokenization.batches.code_names`. Returns whether there are as many
    drawn words as drawn tokens, all of them ids; if not, the rest is not written.
    """
    taken, undrawn = 0, 0
    for text in range(offsets.shape[0] - 1):
        before = _NONE_AFTER
        for token in range(offsets[text], offsets[text + 1]):
            code = min(codes[token], UNKNOWN)
            counts[text, UNKNOWN - code] += 1
            if code == UNKNOWN:
                if taken == drawn.shape[0] or not 0 <= drawn[taken] < word_marks.shape[0]:
                    return False
                outputs[token] = drawn[taken]
                mark = word_marks[drawn[taken]]
                taken += 1
            else:
                outputs[token] = -1
                mark = other_marks[undrawn]
                undrawn += 1
            blanks[token] = False
            if not (before & _NONE_AFTER or mark & _NONE_BEFORE):
                blanks[token - 1] = True
            before = mark
    return taken == drawn.shape[0]


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
