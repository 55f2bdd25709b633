"""Coordinates quantized to a byte each, and the bounds on a Euclidean distance that they give, from below and above.

A sampler must know whether a random word is near enough, and nearly always it is not: quantized rows say so for a fraction
of the memory that the coordinates take. Which bounds a draw needs is known to the samplers; the file, to ``index.storage``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "QuantizedRows",
    "all_squares",
    "decided",
    "displacement",
    "leading_squares",
    "quantize",
    "surely_beyond",
]

_LINE = 64  # bytes of a cache line
_LEADING = 3 * _LINE  # most numbers of a row that are looked at first
_QUARTER = 0.25  # of a step: the unit of how far a row was moved
_UNKNOWN = 127  # stands for a row that was moved by so many quarters of a step, or more
# A chance is computed to far better than this relative error.
_ROUNDING = 1e-12


class QuantizedRows(NamedTuple):
    """The quantized coordinates of all words.

    Attributes
    ----------
    rows : ndarray of int8, shape (V, w) or (0, 64)
        The first ``leading`` numbers are coordinates in the leading directions and then the length of what is left, clipped
        and rounded to whole steps; next come the other coordinates in finer steps, and last how far the row was moved by all
        this, in quarters of a step, rounded up. Both parts are padded with zeros to whole cache lines. Empty for a metric
        that is not Euclidean.
    leading : int
        64, 128 or 192.
    grain : ndarray of float64, shape (6,)
        A step s, a margin m, the finer step s', a margin m', the length of a quarter of a step, and the error of rounding r.
        The distance of two words is at least ``s |x - y| - m`` for the leading numbers x and y of their rows. Of all
        coordinates, in their steps, it is at least the distance less m', and at most that plus what both rows were moved
        and r.
    """

    rows: NDArray[np.int8]
    leading: int
    scales: NDArray[np.float64]

    @classmethod
    def none(cls) -> QuantizedRows:
        """No rows: for metrics that are not Euclidean."""
        rows = np.empty((0, _LINE), dtype=np.int8)
        rows.setflags(write=False)
        return cls(rows, _LINE, np.zeros(6))


def quantize(coordinates: NDArray[Any]) -> QuantizedRows:
    """Quantize Euclidean rows, shape (V, n).

    Turning rows, taking the length of a part of them, and clipping never lengthen a distance; rounding to steps moves each
    row by a length that is measured, and the longest such move counts twice, once for either row.
    """
    size, dimension = coordinates.shape
    leading = min(_LEADING, -(-(dimension + 1) // _LINE) * _LINE)
    first = min(leading - 1, dimension)
    others = dimension - first
    # Any orthonormal directions are sound; leading ones, found on a sample, make the bound tight.
    sample = coordinates[:: max(1, size // 20_000)].astype(np.float64)
    centre = sample.mean(axis=0)
    _, directions = np.linalg.eigh((sample - centre).T @ (sample - centre))
    # Turned at random within either part, so that coordinates are of one size and a short step serves all.
    basis = np.hstack(
        [_turned(directions[:, others:][:, ::-1]), _turned(directions[:, :others][:, ::-1])]
    )

    def along(part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Leading coordinates, the length of the others, and the others."""
        found = (part - centre) @ basis
        left = np.linalg.norm(found[:, first:], axis=1)[:, None]
        return np.hstack([found[:, :first], left, found[:, first:]])

    typical = along(sample)
    offset = np.median(typical[:, first])
    typical[:, first] -= offset
    steps = np.full(dimension + 1, _step(typical[:, : first + 1]))
    steps[first + 1 :] = _step(typical[:, first + 1 :])
    rows = np.zeros((size, leading + -(-(others + 1) // _LINE) * _LINE), dtype=np.int8)
    longest = most_leading = most = 0.0
    for start in range(0, size, 8192):
        part = along(coordinates[start : start + 8192].astype(np.float64))
        longest = max(longest, float(np.linalg.norm(np.delete(part, first, axis=1), axis=1).max()))
        part[:, first] -= offset
        clipped = np.clip(part, -127 * steps, 127 * steps)
        rounded = np.rint(clipped / steps)
        block = rows[start : start + 8192]
        block[:, :first], block[:, leading - 1] = rounded[:, :first], rounded[:, first]
        block[:, leading : leading + others] = rounded[:, first + 1 :]
        moved = clipped - steps * rounded
        most_leading = max(most_leading, float(np.linalg.norm(moved[:, : first + 1], axis=1).max()))
        # From here on the coordinates alone.
        moved[:, first] = part[:, first] = rounded[:, first] = 0.0
        most = max(most, float(np.linalg.norm(moved, axis=1).max()))
        quarters = np.linalg.norm(part - steps * rounded, axis=1) / (_QUARTER * steps[0])
        block[:, -1] = np.minimum(np.ceil(quarters), _UNKNOWN)
    error = 1e-6 * longest
    scales = [steps[0], 2 * most_leading + error, steps[-1], 2 * most + error]
    return QuantizedRows(rows, leading, np.array([*scales, _QUARTER * steps[0], error]))


def _turned(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Other orthonormal directions of the same span, shape (n, m); the same ones every time."""
    number = directions.shape[1]
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((number, number)))
    return np.asarray(directions @ turn)


def _step(numbers: NDArray[np.float64]) -> float:
    """Length of a step. A shorter one rounds less and clips more: only rows with rare large coordinates lose by it."""
    largest = float(np.quantile(np.abs(numbers), 0.9995)) if numbers.size else 0.0
    return max(largest, float(np.finfo(float).tiny)) / 127


# The compiled functions that read rows take whole tables and have one way through: a row cut out of a table, or a way out in
# between, is counted as a reference, once more and once less, and that would take as long as the draw. Sums of 32 bits over
# columns that cannot be negative let the compiler take many at a time; a sum of 33,000 squares fits.


@njit(cache=True, nogil=True)
def leading_squares(rows: NDArray[np.int8], leading: int, i: int, j: int) -> int:
    """Sum of squared differences of the leading numbers of two rows."""
    total = np.int32(0)
    for c in range(np.uint64(leading)):
        difference = np.int32(np.int32(rows[i, c]) - np.int32(rows[j, c]))
        total = np.int32(total + np.int32(difference * difference))
    return total


@njit(cache=True, nogil=True)
def all_squares(
    rows: NDArray[np.int8], leading: int, i: int, j: int, squares: int, step: float, fine: float
) -> float:
    """Squared distance over all coordinates of two rows, from that sum; the length of the rest is left out of it."""
    total = np.int32(0)
    for c in range(np.uint64(leading), np.uint64(rows.shape[1])):
        difference = np.int32(np.int32(rows[i, c]) - np.int32(rows[j, c]))
        total = np.int32(total + np.int32(difference * difference))
    length, last = np.uint64(leading - 1), np.uint64(rows.shape[1] - 1)
    lengths = np.int64(rows[i, length]) - np.int64(rows[j, length])
    moved = np.int64(rows[i, last]) - np.int64(rows[j, last])
    return step * step * (squares - lengths * lengths) + fine * fine * (total - moved * moved)


@njit(cache=True, nogil=True)
def displacement(rows: NDArray[np.int8], i: int, j: int) -> int:
    """How far two rows were moved together, in quarters of a step; unbounded if one was moved farther than a byte holds."""
    last = np.uint64(rows.shape[1] - 1)
    first, second = np.int64(rows[i, last]), np.int64(rows[j, last])
    return first + second if max(first, second) < _UNKNOWN else 1 << 40


@njit(cache=True, nogil=True)
def surely_beyond(squares: int, distance: float, step: float, margin: float) -> bool:
    """Whether two rows are farther apart than a distance, by their sum of squared differences."""
    return np.float64(squares) > ((distance + margin) / step) ** 2


@njit(cache=True, nogil=True)
def decided(
    near: float, moved: int, limit: float, t: float, margin: float, quarter: float, error: float
) -> int:
    """What the distance of two quantized rows decides of a word that is accepted within a limit of distance.

    Returns 1 where the word is surely within the limit, -1 where it is surely beyond, 0 where only the distance itself can
    tell. A chance ``exp(-t d)`` is distinguished from that at the limit only where they differ by far more than rounding.
    """
    found = 0
    if near - margin > limit:
        found = -1
    elif t * (limit - near - quarter * moved - error) > _ROUNDING:
        found = 1
    return found
