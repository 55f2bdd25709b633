"""The numbers of ``arithmetic`` and ``metrics`` by numpy alone, digit for digit, for what is too little to compile for.

The first text of a process needs some thousand distances and exponentials; compiling what computes millions of them takes
many times as long as computing these. The operations are the same ones in the same order, and numpy fuses none, so that
nobody can tell by a number which of the two has computed it. What decides between them stands where each is used.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv import arithmetic
from textpriv.arithmetic import FEW, LANES
from textpriv.metrics import ANGULAR, CHEBYSHEV, GRAPH, MANHATTAN

__all__ = ["exp", "exps", "row_distances"]

_ROWS = 1024  # so many points stay in a processor's own cache
_POWERS = arithmetic._TWO_TO.tolist()


def exp(x: float) -> float:
    """:func:`textpriv.arithmetic.exp` of a plain number."""
    if x < -708.0:
        return 0.0
    k = int(x * arithmetic._PER_LN2 + (0.5 if x > 0.0 else -0.5))
    r = (x - k * arithmetic._STEP) - k * arithmetic._STEP_REST
    rest = r + (r * r) * ((0.5 + r * (1.0 / 6.0)) + (r * r) * (1.0 / 24.0 + r * (1.0 / 120.0)))
    base = _POWERS[k & 63]
    return math.ldexp(base + base * rest, k >> 6)


def exps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`textpriv.arithmetic.exp` of every number of an array, in the same shape."""
    x = np.maximum(values, -708.0)
    k = (x * arithmetic._PER_LN2 + np.where(x > 0.0, 0.5, -0.5)).astype(np.int64)
    r = (x - k * arithmetic._STEP) - k * arithmetic._STEP_REST
    square = r * r
    rest = r + square * ((0.5 + r * (1.0 / 6.0)) + square * (1.0 / 24.0 + r * (1.0 / 120.0)))
    base = arithmetic._TWO_TO[k & 63]
    powers = (((k >> 6) + 1023) << 52).view(np.float64)
    return np.where(values < -708.0, 0.0, (base + base * rest) * powers)


def row_distances(kind: int, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """:func:`textpriv.metrics.row_distance` of one row, or each of the rows, of ``a`` and those of ``b``, shape (m,)."""
    if kind == GRAPH:
        return _listed(a, b[:, 0].astype(np.int64))
    out = np.empty(len(b))
    for start in range(0, len(b), _ROWS):
        rows = slice(start, start + _ROWS)
        # Column by column, each of which lies in memory as a whole.
        right = b[rows].T.astype(np.float64, order="C")
        left = (a[:, None] if a.ndim == 1 else a[rows].T).astype(np.float64)
        out[rows] = _column_distances(kind, left, right)
    return out


def _listed(rows: NDArray[Any], words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distances in a graph, which are listed in one row, or in each of the rows, by word."""
    found = rows[1 + words] if rows.ndim == 1 else rows[np.arange(len(rows)), 1 + words]
    return np.asarray(found.astype(np.float64))


def _column_distances(
    kind: int, left: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distances between points given by their coordinates, shape (n, m)."""
    apart = left - right
    if kind == CHEBYSHEV:
        return np.asarray(np.abs(apart).max(axis=0))
    if kind == MANHATTAN:
        return _lane_sums(np.abs(apart))
    apart *= apart
    chord = np.sqrt(_lane_sums(apart))
    if kind == ANGULAR:
        together = left + right
        return 2.0 * _arctangents(chord, np.sqrt(_lane_sums(together * together)))
    return chord


def _lane_sums(summands: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over the first axis in the order of :func:`textpriv.arithmetic.lane_sum`."""
    columns = len(summands)
    total, begin = np.zeros((LANES, *summands.shape[1:])), 0
    for lanes, left in ((LANES, FEW), (FEW, 1), (1, 1)):
        end = columns - columns % lanes
        for column in range(begin, end, lanes):
            total += summands[column : column + lanes]
        begin = end
        while lanes > left:
            lanes //= 2
            total = total[:lanes] + total[lanes:]
    return np.asarray(total[0])


def _arctangents(y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`textpriv.arithmetic.arctangent`, number by number."""
    largest = np.maximum(x, y)
    q = np.minimum(x, y) / np.where(largest > 0.0, largest, 1.0)
    j = (q * 8.0 + 0.5).astype(np.int64)
    z = (q - j * 0.125) / (1.0 + q * (j * 0.125))
    w = z * z
    first = (1.0 / 3.0 - w * (1.0 / 5.0)) + (w * w) * (1.0 / 7.0 - w * (1.0 / 9.0))
    series = w * (first + (w * w) * (w * w) * (1.0 / 11.0 - w * (1.0 / 13.0)))
    angle = arithmetic._ATAN[j] + (z - z * series)
    return np.where(y == 0.0, 0.0, np.where(y > x, arithmetic._HALF_PI - angle, angle))
