"""A public measure on the vocabulary in integers, and constant-time draws from it.

A probability is a whole number of parts in 2^62, so that a measure sums to one exactly, sums over lists of words are
exact, and a draw compares integers. The law that is computed and the law that is drawn are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from textpriv.arithmetic import fixed_sum

__all__ = [
    "PARTS",
    "PARTS_BITS",
    "BaseMeasure",
    "Ranges",
    "accepts",
    "bernoulli",
    "draw",
    "find",
    "integer_parts",
    "numbers",
    "quantiles",
    "upper_half",
]

PARTS_BITS = 62
PARTS = 1 << PARTS_BITS
# No word may be rarer than this: smaller parts would round by more than 1e-7 of themselves.
_FLOOR = 2.0**-40
# A range is drawn from word by word where that takes no more than so many draws for one.
_LEVEL = 1.3


def integer_parts(
    weights: NDArray[np.float64], total: int = PARTS, *, evenly: bool = False
) -> NDArray[np.uint64]:
    """Round weights to at least one part each and exactly ``total`` parts in all.

    The largest takes the remainder, or with ``evenly`` all do, which moves no sum of several by more than one part each.
    """
    share = weights / fixed_sum(weights)
    parts = np.maximum(np.rint(share * float(total)), 1.0).astype(np.uint64)
    remainder = total - int(parts.sum(dtype=np.uint64))
    if evenly:
        each, left = divmod(remainder, len(parts))
        wanted = parts.astype(np.int64) + each + (np.arange(len(parts)) < left)
        if wanted.min() >= 1:
            return wanted.astype(np.uint64)
    largest = int(parts.argmax())
    parts[largest] = np.uint64(int(parts[largest]) + remainder)
    return parts


def numbers(value: Any, size: int) -> NDArray[np.float64] | None:
    """What a record holds for every word, as finite numbers of shape (size,); None if it holds anything else."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.shape == (size,) and np.isfinite(found).all() else None


@njit(cache=True, nogil=True, inline="always")
def draw(
    word: np.uint64, cumulative: NDArray[np.uint64], guide: NDArray[np.int32], shift: np.uint64
) -> int:
    """Draw an id from a measure with one uniform 64-bit word (inverse CDF with a guide table)."""
    return find(word >> np.uint64(2), cumulative, guide, shift)


@njit(cache=True, nogil=True, inline="always")
def find(
    part: np.uint64, cumulative: NDArray[np.uint64], guide: NDArray[np.int32], shift: np.uint64
) -> int:
    """The id to which a part belongs."""
    word = guide[part >> shift]
    while cumulative[word] <= part:
        word += 1
    return word


@intrinsic
def upper_half(context: Any, first: Any, second: Any) -> tuple[Any, Callable[..., Any]]:
    """``upper_half(first, second)``: the upper 64 of the 128 bits of a product."""
    # Needed only to compile, not to load from numba's cache.
    from llvmlite import ir
    from numba import types

    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(values[0], wide), builder.zext(values[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), compiled


@njit(cache=True, nogil=True)
def bernoulli(probability: float, first: np.uint64, second: np.uint64) -> bool:
    """Accept with a probability, to a relative error below 1e-12 for any probability above e^-30.

    The second word refines small probabilities, of which one word would keep too few digits.
    """
    if probability >= 1.0:
        return True
    if probability >= 2.0**-20:
        # 2^-64 / 2^-20 relative error at most, next to that of the float64 probability itself.
        return first < np.uint64(probability * 2.0**64)
    if first >> np.uint64(44) != np.uint64(0):
        return False
    return second < np.uint64(probability * 2.0**84)


def accepts(probability: float, first: int, second: int) -> bool:
    """:func:`bernoulli` without compiled code, of plain numbers."""
    if probability >= 1.0:
        return True
    if probability >= 2.0**-20:
        return first < int(probability * 2.0**64)
    return first >> 44 == 0 and second < int(probability * 2.0**84)


def quantiles(cumulative: NDArray[np.uint64], count: int) -> NDArray[np.int32]:
    """Ids at ``count`` evenly spaced quantiles: a fixed sample that stands for the measure."""
    points = np.arange(count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    points *= cumulative[-1] // np.uint64(2 * count)
    return np.searchsorted(cumulative, points, side="right").astype(np.int32)


class Ranges(NamedTuple):
    """What draws within ranges of ids need: one entry for each range.

    Where the words of a range have nearly the same probability, one is drawn as if all had the highest, without reading
    the measure; the acceptance that follows corrects for it.

    Attributes
    ----------
    firsts : ndarray of int32, shape (B,)
        The first id of such a range; -1 for one in which the measure is drawn from.
    first_parts : ndarray of uint64, shape (B + 1,)
        The first part of each range in the measure.
    choices : ndarray of uint64, shape (B,)
        The words, or else the parts, one of which is drawn.
    uneven : ndarray of uint64, shape (B,)
        A random word times the choices gives in its upper half each of them alike, if lower halves below this are passed
        over (Lemire, "Fast Random Integer Generation in an Interval", 2019).
    weights : ndarray of float64, shape (B,)
        The probability of the range, and in the first case as if all words had the highest.
    """

    firsts: NDArray[np.int32]
    first_parts: NDArray[np.uint64]
    choices: NDArray[np.uint64]
    uneven: NDArray[np.uint64]
    weights: NDArray[np.float64]


class BaseMeasure:
    """A probability measure on word ids.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Positive. A weight below 2^-40 of the total is raised to it.
    evenly : bool
        Share what rounding leaves over among all words; see :func:`integer_parts`.

    Attributes
    ----------
    parts : ndarray of uint64, shape (V,)
        Sum to exactly 2^62.
    weights : ndarray of float64, shape (V,)
        ``parts / 2^62``.
    """

    def __init__(self, weights: NDArray[np.float64], *, evenly: bool = False) -> None:
        given = np.asarray(weights, dtype=np.float64)
        share = given / fixed_sum(given)
        self.parts = integer_parts(np.maximum(share, _FLOOR), evenly=evenly)
        self.weights = self.parts.astype(np.float64) / PARTS
        self.cumulative = np.cumsum(self.parts, dtype=np.uint64)
        bits = max(1, min(22, len(share).bit_length() + 1))
        self.shift = np.uint64(PARTS_BITS - bits)
        cells = np.arange(1 << bits, dtype=np.uint64) << self.shift
        self.guide = np.searchsorted(self.cumulative, cells, side="right").astype(np.int32)

    def __len__(self) -> int:
        return len(self.parts)

    def at(self, part: int) -> int:
        """The id to which a part belongs; :func:`find` does the same in compiled code."""
        return int(np.searchsorted(self.cumulative, np.uint64(part), side="right"))

    def tables(self) -> tuple[Any, ...]:
        """The arrays that a compiled sampler needs: cumulative, guide, shift."""
        return self.cumulative, self.guide, self.shift

    def ranges(self, starts: NDArray[np.int32]) -> Ranges:
        """What draws within ranges of ids need.

        Parameters
        ----------
        starts : ndarray of int32, shape (B + 1,)
            Range b holds the ids from ``starts[b]`` to ``starts[b + 1] - 1``; together they hold all.
        """
        first_parts = np.concatenate([np.zeros(1, dtype=np.uint64), self.cumulative])[starts]
        parts, count = np.diff(first_parts), np.diff(starts).astype(np.uint64)
        highest = np.maximum.reduceat(self.parts, starts[:-1]).astype(np.float64) * count
        level = highest <= _LEVEL * parts.astype(np.float64)
        choices = np.where(level, count, parts)
        return Ranges(
            firsts=np.where(level, starts[:-1], -1).astype(np.int32),
            first_parts=first_parts,
            choices=choices,
            uneven=(~choices + np.uint64(1)) % choices,
            weights=np.where(level, highest, parts.astype(np.float64)) / PARTS,
        )
