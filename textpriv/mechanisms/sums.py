"""Sums of an exponential law over all pairs of words that come out the same on every processor.

The measures, rates and backgrounds that a search finds decide what is drawn, so nothing in them may hang on the order
in which threads end or on how many numbers a vector unit takes. Within a block of distances sums run in a written
order; the sums of blocks are added as whole numbers, which have no order. Distances come from
:mod:`textpriv.mechanisms.calibration.pair_sweep`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp, fixed_sum, lane_sum, log
from textpriv.index.index import Index
from textpriv.mechanisms.calibration.pair_sweep import Progress, sweep

__all__ = ["exponential_sums", "log_sums"]

_BITS = 52  # of what is left of a whole number that are added up beside it


class _Total:
    """Sums of many numbers each, in two whole numbers, the second for what the first leaves: no order shows."""

    def __init__(self, shape: tuple[int, ...], largest: float) -> None:
        # So that the sum of all has 62 bits at most.
        self.scale = math.ldexp(1.0, 61 - math.frexp(largest)[1])
        self.whole = np.zeros(shape, dtype=np.int64)
        self.remainder = np.zeros(shape, dtype=np.int64)

    def add(self, other: _Total) -> None:
        """Add what another thread has summed."""
        self.whole += other.whole
        self.remainder += other.remainder

    def value(self) -> NDArray[np.float64]:
        """The sums, each rounded twice."""
        remainder = self.remainder.astype(np.float64) * 2.0**-_BITS
        return (self.whole.astype(np.float64) + remainder) / self.scale


def exponential_sums(
    index: Index,
    weights: NDArray[np.float64],
    rates: Sequence[float],
    gammas: Sequence[float],
    progress: Progress | None = None,
    *,
    precision: type = np.float32,
    moved: bool = False,
) -> NDArray[np.float64]:
    """``sum_y weights(y) exp(-t min(d(w, y), gamma))`` for every word w, in one pair sweep.

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (M, V)
        Of either sign.
    rates, gammas : sequences of m floats
    progress : callable, optional
    precision : {numpy.float32, numpy.float64}
        Of the distances, as in :func:`textpriv.mechanisms.calibration.pair_sweep.sweep`.
    moved : bool
        With the distance itself as a factor besides.

    Returns
    -------
    ndarray, shape (m, M, V)
    """
    measures = np.ascontiguousarray(weights, dtype=np.float64)
    reach = max(1.0, index.diameter_bound) if moved else 1.0
    # No sum over words, and none over the blocks in which they are taken, exceeds this.
    largest = max(fixed_sum(np.abs(measure)) for measure in measures) * reach * 2.0
    shape = (len(rates), *measures.shape)
    result = _Total(shape, largest)
    totals: list[_Total] = []
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[Any]) -> None:
        if not hasattr(local, "total"):
            local.total = _Total(shape, largest)
            totals.append(local.total)
        total = local.total
        for law, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            _add_block(
                distances,
                rate,
                gamma,
                moved,
                measures,
                rows.start,
                columns.start,
                total.scale,
                total.whole[law],
                total.remainder[law],
            )

    sweep(index.coordinates, index.metric, visit, progress, precision=precision, portable=True)
    for total in totals:
        result.add(total)
    return result.value()


@njit(cache=True, nogil=True)
def _add_block(
    distances: NDArray[Any],
    rate: float,
    gamma: float,
    moved: bool,
    measures: NDArray[np.float64],
    first_row: int,
    first_column: int,
    scale: float,
    whole: NDArray[np.int64],
    remainder: NDArray[np.int64],
) -> None:
    """Add what a block of distances gives its rows, and the columns that are not among the rows."""
    number, (height, width) = measures.shape[0], distances.shape
    # Columns among the rows meet both words of a pair as rows.
    later = max(first_row + height - first_column, 0)
    kernel = np.empty((1, width))
    part = measures[:, first_column : first_column + width].copy()
    beyond = np.zeros((number, width))
    for i in range(height):
        for j in range(width):
            distance = np.float64(distances[i, j])
            kernel[0, j] = exp(-rate * min(distance, gamma)) * (distance if moved else 1.0)
        for m in range(number):
            _add(
                lane_sum("products", kernel, 0, part, m),  # type: ignore[call-arg]
                scale,
                whole,
                remainder,
                m,
                first_row + i,
            )
            weight = measures[m, first_row + i]
            for j in range(later, width):
                beyond[m, j] += weight * kernel[0, j]
    for m in range(number):
        for j in range(later, width):
            _add(beyond[m, j], scale, whole, remainder, m, first_column + j)


@njit(cache=True, nogil=True)
def _add(
    number: float,
    scale: float,
    whole: NDArray[np.int64],
    remainder: NDArray[np.int64],
    m: int,
    at: int,
) -> None:
    """Add a number to a sum: its whole part in units of one over the scale, and what that leaves, which is exact."""
    scaled = number * scale
    units = np.rint(scaled)
    whole[m, at] += np.int64(units)
    remainder[m, at] += np.int64(np.rint((scaled - units) * 2.0**_BITS))


@njit(cache=True, nogil=True)
def log_sums(
    distances: NDArray[np.float64], rate: float, gamma: float, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``ln sum_y weights(y) exp(-t min(d(w, y), gamma))`` for the words whose distances to all are given, shape (w, V)."""
    result = np.empty(distances.shape[0])
    kernel, measure = np.empty((1, distances.shape[1])), weights.copy().reshape((1, -1))
    for row in range(distances.shape[0]):
        for j in range(distances.shape[1]):
            kernel[0, j] = exp(-rate * min(distances[row, j], gamma))
        result[row] = log(lane_sum("products", kernel, 0, measure, 0))  # type: ignore[call-arg]
    return result
