"""The metric: words as points on a grid of whole numbers, exact distances between them and exact nearest lists.

No point is longer than 2^11 steps, so all sums in a squared Euclidean distance are whole numbers up to 2^24. A float32
matrix product gives them without rounding, on every processor and in any order of summation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from textpriv.index.axes import Axes
from textpriv.index.spaces import MANHATTAN, RECOMMENDED, transformed
from textpriv.vocabulary.vocabulary import Vocabulary, read_only

_LONGEST = 2**11  # steps from the centre to a point: four times its square is 2^24
_UNIT_BITS = 11  # of the length of a step, so that squared lengths are exact in float64, too
_SAMPLED = 4  # one column of so many bounds the distance of the k-th nearest word
_CELLS = 1 << 20  # distances that a thread holds at a time, so that they stay in its cache

REFERENCE = 10  # the neighbour that statements speak of
RANKS = (1, REFERENCE, 100)
SHARES = (0.5, 0.9)


class Grid:
    """Points on a grid and the exact distances between them.

    Parameters
    ----------
    space : str
        One of :data:`textpriv.index.spaces.SPACES`; "manhattan" sums absolute differences, all others are Euclidean.
    points : ndarray of int8 or int16, shape (V, n)
    unit : float
        Length of one grid step.
    """

    def __init__(self, space: str, points: NDArray[Any], unit: float) -> None:
        self.space, self.points, self.unit = space, read_only(points), unit

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        space: str,
        projection: int | None,
        axes: Axes | None = None,
        *,
        fine: bool = False,
    ) -> Grid:
        """Round a vocabulary's vectors to a grid of int8, or of int16 if it is fine or of the recommended space."""
        rows = transformed(vocabulary, space, projection, axes)
        rows -= (rows.max(axis=0) + rows.min(axis=0)) / 2
        kind = np.int16 if fine or space == RECOMMENDED else np.int8
        # Rounding lengthens a point by at most half the root of its dimensions.
        least = float(np.linalg.norm(rows, axis=1).max()) / (
            _LONGEST - math.sqrt(rows.shape[1]) / 2
        )
        least = max(least, float(np.abs(rows).max()) / np.iinfo(kind).max)
        unit = _unit_length(rows, least) if least else 1.0
        return cls(space, np.rint(rows / unit).astype(kind), unit)

    def __len__(self) -> int:
        return len(self.points)

    def steps(
        self, rows: NDArray[Any], columns: slice | NDArray[Any] = slice(None)
    ) -> NDArray[np.int32]:
        """Distances from some words to some (default: all) words, in whole steps, shape (m, p).

        Squared Euclidean distances, or sums of absolute differences in "manhattan".
        """
        if self.space == MANHATTAN:
            from scipy.spatial.distance import cdist

            apart = cdist(self.points[rows], self.points[columns], "cityblock")
        else:
            left, squares = _with_squares(self.points[rows])
            left = np.hstack([left, squares, np.ones_like(squares)])
            right = self._right[columns]
            # Woken threads of a matrix product spin for a tenth of a second: a single row is quicker without.
            apart = np.einsum("ij,kj->ik", left, right) if len(left) == 1 else left @ right.T
        return np.asarray(apart, dtype=np.int32)

    def length(self, steps: Any) -> Any:
        """Length in units of the metric of a number of steps, or of an array of them."""
        if self.space == MANHATTAN:
            return self.unit * np.asarray(steps, dtype=np.float64)
        return self.unit * np.sqrt(steps, dtype=np.float64)

    @cached_property
    def diameter_bound(self) -> float:
        """Twice the largest distance from the most central word: no two words are farther apart."""
        offsets = np.abs(self.points.astype(np.int64)).sum(axis=1)
        central = np.argsort(offsets, kind="stable")[:8]
        return 2 * float(self.length(self.steps(central).max(axis=1).min()))

    def is_exact(self) -> bool:
        """Whether no point is so long that float32 products round."""
        squares = np.square(self.points.astype(np.int64)).sum(axis=1)
        return int(squares.max()) <= _LONGEST**2

    @cached_property
    def _right(self) -> NDArray[np.float32]:
        """Rows ``(-2 y, 1, |y|^2)``, whose product with ``(x, |x|^2, 1)`` is ``|x - y|^2``."""
        rows, squares = _with_squares(self.points)
        return np.hstack([-2 * rows, np.ones_like(squares), squares])


def _with_squares(points: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return points as float32, and the squares of their lengths in a column."""
    rows = points.astype(np.float32)
    return rows, np.einsum("ij,ij->i", rows, rows)[:, None]


def _unit_length(rows: NDArray[np.float64], least: float) -> float:
    """The next number from a length up that has few binary digits; a power of two where this moves no point."""
    mantissa, exponent = math.frexp(least)
    power = math.ldexp(1.0, exponent - (mantissa == 0.5))
    if not np.mod(rows, power).any():
        return power
    return math.ldexp(math.ceil(mantissa * 2**_UNIT_BITS), exponent - _UNIT_BITS)


# Nearest lists and typical distances


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def exact_lists(
    grid: Grid, k: int, progress: Callable[[int, int], None] = lambda done, everything: None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the k nearest words of every word: ids and steps, shape (V, k), the word itself first, then by (steps, id)."""
    size = len(grid)
    height = max(8, min(256, _CELLS // size))
    ids = np.empty((size, k), dtype=np.int32)
    steps = np.empty((size, k), dtype=np.int32)

    def work(start: int) -> int:
        rows = np.arange(start, min(start + height, size))
        ids[rows], steps[rows] = _nearest(grid.steps(rows), rows, k)
        return int(rows[-1]) + 1

    # One thread a processor, each of which multiplies matrices by itself.
    one_each = ThreadpoolController().limit(limits=1, user_api="blas")
    with one_each, ThreadPoolExecutor(processors()) as pool:
        for done in pool.map(work, range(0, size, height)):
            progress(done, size)
    return ids, steps


def _nearest(
    steps: NDArray[np.int32], rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The k least of each row of distances, by (steps, id), after the row's own word."""
    own = np.arange(len(rows))
    if steps[own, rows].any():
        raise ArithmeticError(
            "matrix products on this machine are not exact; no index can be built"
        )
    steps[own, rows] = -1
    # The k-th least of some columns is no less than that of all, and is found in half the time of a build.
    some = steps[:, ::_SAMPLED] if steps.shape[1] >= _SAMPLED * k else steps
    edge = np.partition(some, k - 1, axis=1)[:, k - 1]
    near = np.flatnonzero(steps <= edge[:, None])
    row, word = np.divmod(near, steps.shape[1])
    found = steps.ravel()[near]
    order = np.lexsort((found, row))  # stable: ties stay in the order of ids
    counts = np.bincount(row, minlength=len(rows))
    first = np.cumsum(counts) - counts
    chosen = order[first[:, None] + np.arange(k)]
    return word[chosen].astype(np.int32), np.maximum(found[chosen], 0)


class Typical(NamedTuple):
    """Distances that half, and nine tenths, of all tokens do not exceed, for people who read a guarantee."""

    median: float
    ninety: float


def typical_distances(
    grid: Grid, listed: NDArray[np.int32], weights: NDArray[np.float64]
) -> dict[int, Typical]:
    """Find distances from words to their 1st, 10th and 100th nearest words at a distance above 0.

    ``listed`` has the steps to the nearest words, ``weights`` how often each word is met. The farthest word counts where
    there are fewer. The 100th is left out unless all lists reach it.
    """
    size, k = listed.shape
    equal = (listed == 0).sum(axis=1)
    found = {}
    for rank in RANKS:
        place = equal + rank - 1
        short = np.flatnonzero(place >= k)
        if rank > REFERENCE and short.size:
            continue
        steps = listed[np.arange(size), np.minimum(place, k - 1)]
        for start in range(0, len(short), 256):
            words = short[start : start + 256]
            every = np.sort(grid.steps(words), axis=1)
            at = np.minimum((every == 0).sum(axis=1) + rank - 1, size - 1)
            steps[words] = every[np.arange(len(words)), at]
        found[rank] = Typical(*weighted_quantiles(grid.length(steps), weights, SHARES))
    return found


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """For each share in (0, 1) the least value such that the values up to it have that share of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # A sum that is one rounding too large must not end the search one value too early.
    wanted = np.array(shares) * reached[-1] * (1 + 1e-12)
    ends = np.minimum(np.searchsorted(reached, wanted), len(order) - 1)
    return tuple(np.asarray(values, dtype=np.float64)[order][ends].tolist())
