"""What all draws are made of: a public measure in whole parts, rounds of random words, coins and exponentials.

A probability is a whole number of parts in 2^62, so a measure sums to one exactly and a draw compares whole numbers.
Exponentials are made of IEEE additions, multiplications and table entries in a written order, so every processor computes
the same bits. In a round every pending token reads the same number of random words, so no draw depends on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.randomness import RandomWords, fill_each

PARTS = 1 << 62
WORDS = 4  # random words of one attempt
_MOST = 64  # attempts of a round
_GUIDED = 50  # low bits of a part that the guide to a measure leaves out
_TOGETHER = 1 << 14  # tokens whose random words are in memory at a time
_FLOOR = 2.0**-40  # least probability of a word: fewer parts round by more than 2^-23 of themselves


class MeasureTables(NamedTuple):
    """What a compiled sampler reads of a measure."""

    parts: NDArray[np.uint64]
    cumulative: NDArray[np.uint64]
    guide: NDArray[np.int64]  # by the leading bits of a part, the first word it may belong to


class BaseMeasure:
    """A probability measure on word ids.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Positive. A weight below 2^-40 of the total is raised to it.

    Attributes
    ----------
    parts : ndarray of uint64, shape (V,)
        Sum to exactly 2^62.
    weights : ndarray of float64, shape (V,)
        ``parts / 2^62``.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        given = np.asarray(weights, dtype=np.float64)
        # A correctly rounded sum: no order of summation shows.
        share = np.maximum(given / math.fsum(given.tolist()), _FLOOR)
        parts = np.rint(share / math.fsum(share.tolist()) * PARTS).astype(np.int64)
        # What rounding leaves over is shared, so that no sum of several words moves by more than a part each.
        each, left = divmod(PARTS - int(parts.sum()), len(parts))
        parts += each
        parts[:left] += 1
        self.parts = parts.astype(np.uint64)
        self.weights = self.parts.astype(np.float64) / PARTS
        self.cumulative = np.cumsum(self.parts, dtype=np.uint64)
        leading = np.arange((PARTS >> _GUIDED) + 1, dtype=np.uint64) << np.uint64(_GUIDED)
        guide = np.searchsorted(self.cumulative, leading, side="right")
        self.tables = MeasureTables(self.parts, self.cumulative, guide)


@njit
def first_above(values: NDArray[Any], limit: int | np.uint64, low: int, high: int) -> int:
    """Return the first place from ``low`` on of an ascending array whose value is above a limit; ``high`` if none is."""
    # NumPy's own search takes a second to compile for each type, and a literal ``low`` is a type. To take a part of an array
    # takes longer than the search.
    low, high = np.uint64(low), np.uint64(high)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        if values[middle] > limit:
            high = middle
        else:
            low = middle + np.uint64(1)
    return np.int64(low)


@njit
def find(part: np.uint64, measure: MeasureTables) -> int:
    """Return the id that a part of a measure belongs to."""
    leading = part >> np.uint64(_GUIDED)
    low, high = measure.guide[leading], measure.guide[leading + np.uint64(1)]
    return first_above(measure.cumulative, part, low, high)


@njit
def coin(probability: float, first: np.uint64, second: np.uint64) -> bool:
    """Accept with a probability, to a relative error below 2^-32 for any probability above 2^-52.

    The second word refines small probabilities, of which one word would keep too few digits.
    """
    if probability >= 2.0**-20:
        return probability >= 1.0 or first < np.uint64(probability * 2.0**64)
    if first >> np.uint64(44) != np.uint64(0):
        return False
    return second < np.uint64(probability * 2.0**84)


# 2^(j / 64) for j below 64, from square roots of 2 alone.
_ROOTS, _root = np.ones(64), 2.0
for _bit in (32, 16, 8, 4, 2, 1):
    _root = math.sqrt(_root)
    _ROOTS[(np.arange(64) & _bit) > 0] *= _root
_POWERS = np.ldexp(1.0, np.arange(-1022, 1024))
# ln 2 / 64 with so few digits that its product with a whole number below 2^17 is exact, and what that leaves.
_LN2, _LN2_REST = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")
_STEP = math.floor(_LN2 / 64 * 2**35) / 2**35
_REST = _LN2 / 64 - _STEP + _LN2_REST / 64
_PER_STEP = 64 / _LN2


@njit(cache=True, nogil=True)
def exp(x: float) -> float:
    """``e^x`` to a relative error below 2^-48, for x from -700 to 700."""
    # x = k ln 2 / 64 + r, and e^x = 2^(k // 64) 2^(k % 64 / 64) e^r.
    k = np.int64(np.floor(x * _PER_STEP + 0.5))
    r = (x - k * _STEP) - k * _REST
    rest = r + (r * r) * ((0.5 + r * (1.0 / 6.0)) + (r * r) * (1.0 / 24.0 + r * (1.0 / 120.0)))
    base = _ROOTS[k & 63]
    return (base + base * rest) * _POWERS[(k >> 6) + 1022]


@njit(cache=True, nogil=True)
def expm1(x: float) -> float:
    """``e^x - 1`` to a relative error below 2^-46, for x up to 700."""
    if abs(x) > 0.125:
        return exp(max(x, -40.0)) - 1.0
    total = 0.0
    for n in range(12, 0, -1):
        total = (total + 1.0) * x / n
    return total


def draw_in_rounds(
    attempts: Callable[..., None],
    tables: Any,
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    streams: Sequence[RandomWords],
) -> NDArray[np.int32]:
    """Draw all tokens of some documents, with twice as many attempts from round to round.

    ``attempts(tables, ids, pending, words, out)`` gets the places of pending tokens and their random words, shape (pending,
    attempts * WORDS), and writes the accepted draws to the outputs.
    """
    out = np.full(int(offsets[-1]), -1, dtype=np.int32)
    pending, tries = np.arange(len(out)), 1
    while len(pending):
        for start in range(0, len(pending), _TOGETHER):
            some = pending[start : start + _TOGETHER]
            words = np.empty((len(some), tries * WORDS), dtype=np.uint64)
            fill_each(streams, np.searchsorted(some, offsets), words)
            attempts(tables, ids, some, words, out)
        pending, tries = pending[out[pending] < 0], min(2 * tries, _MOST)
    return out
