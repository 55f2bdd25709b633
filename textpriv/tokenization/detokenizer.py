"""The blank after a token, and private texts put together from words and kept tokens, by compiled code.

Spacing is a function of the private tokens alone. What is released is decided by the privatizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.tokenization.batches import EncodedTexts

# Spacing is a function of the private tokens alone, so that none of the original survives.
_BLANKS = frozenset((" ", "\n", "\n\n"))
_CLOSING = _BLANKS.union(
    ". , ; : ! ? ) ] } % ... .. … ’ ” » 's 'm 're 've 'll 'd n't ’s ’m ’re ’ve ’ll ’d n’t".split()
)
_OPENING = _BLANKS.union("( [ { “ ‘ « $ £ € #".split())


@dataclass(frozen=True)
class _Spelling:
    """Words, their letters in UTF-8 one word after another, and which of them take no blank before or after."""

    words: NDArray[np.object_]
    letters: NDArray[np.uint8]
    begins: NDArray[np.int64]
    closing: NDArray[np.bool_]
    opening: NDArray[np.bool_]

    @classmethod
    def of(cls, words: Sequence[str]) -> _Spelling:
        encoded = EncodedTexts.of(words)
        found = np.empty(len(words), dtype=object)
        found[:] = words
        return cls(
            found,
            encoded.data,
            encoded.cuts,
            np.fromiter((word in _CLOSING for word in words), np.bool_, len(words)),
            np.fromiter((word in _OPENING for word in words), np.bool_, len(words)),
        )


@njit(cache=True, nogil=True)
def _find_blanks(
    outputs: NDArray[np.int32],
    cuts: NDArray[np.int64],
    others: NDArray[np.int32],
    closing: NDArray[np.bool_],
    opening: NDArray[np.bool_],
    other_closing: NDArray[np.bool_],
    other_opening: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Whether a blank follows each token: not the last of a text, none that opens, and none before one that closes."""
    blanks = np.zeros(outputs.shape[0], np.bool_)
    rest = 0
    for text in range(cuts.shape[0] - 1):
        opens = True
        for token in range(cuts[text], cuts[text + 1]):
            word = outputs[token]
            if word >= 0:
                closes, opens_next = closing[word], opening[word]
            else:
                closes, opens_next = other_closing[others[rest]], other_opening[others[rest]]
                rest += 1
            if not (opens or closes):
                blanks[token - 1] = True
            opens = opens_next
    return blanks


@njit(cache=True, nogil=True)
def _spell(
    outputs: NDArray[np.int32],
    blanks: NDArray[np.bool_],
    cuts: NDArray[np.int64],
    others: NDArray[np.int32],
    letters: NDArray[np.uint8],
    begins: NDArray[np.int64],
    other_letters: NDArray[np.uint8],
    other_begins: NDArray[np.int64],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The texts of drawn words and of tokens that are not drawn, and where each of them begins."""
    size, rest = outputs.shape[0], 0
    for token in range(outputs.shape[0]):
        word = outputs[token]
        if word >= 0:
            size += begins[word + 1] - begins[word]
        else:
            other = others[rest]
            rest += 1
            size += other_begins[other + 1] - other_begins[other]
    data = np.empty(size, np.uint8)
    ends = np.zeros(cuts.shape[0], np.int64)
    at, rest = 0, 0
    for text in range(cuts.shape[0] - 1):
        for token in range(cuts[text], cuts[text + 1]):
            word = outputs[token]
            if word >= 0:
                for place in range(begins[word], begins[word + 1]):
                    data[at] = letters[place]
                    at += 1
            else:
                other = others[rest]
                rest += 1
                for place in range(other_begins[other], other_begins[other + 1]):
                    data[at] = other_letters[place]
                    at += 1
            if blanks[token]:
                data[at] = 32
                at += 1
        ends[text + 1] = at
    return data[:at].copy(), ends
