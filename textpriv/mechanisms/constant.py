"""The exact constant of an exponential law over all pairs of words, and the largest rate that keeps a promise.

For a law ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z_t(w)`` the worst log-ratio of a pair is attained at one of the two
words themselves, so the tight constant needs pairs only (mechanisms.md 3.3). Everything is computed in float64 over
blocks of the upper triangle, on all processors. Nothing here draws, and nothing here knows a mechanism.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from textpriv.index import Index
from textpriv.metrics import ANGULAR, EUCLIDEAN, INTERPRETED, Metric, pairwise_distances
from textpriv.neighbourhoods import processors

__all__ = [
    "Constant",
    "inputs",
    "largest_rate",
    "log_normalisers",
    "sweep",
    "tight_constants",
]

Progress = Callable[[int, int], None]
# Called with the rows, the columns and the distances of a block. Columns start at the first row, so that every unordered
# pair is met once, except among the rows themselves, where it is met twice.
Visit = Callable[[slice, slice, NDArray[np.float64]], None]

_ROWS, _COLUMNS = 256, 2048
_CLOSE = 1e-6  # squared distances below this part of the squared lengths are computed again by differences


@dataclass(frozen=True)
class Constant:
    """The largest log-ratio per unit of distance, and the ordered pair of words that attains it."""

    value: float
    pair: tuple[int, int]


def inputs(index: Index) -> NDArray[np.int64]:
    """Ids of the words that have a law of their own: one of each group that cannot be told apart."""
    return np.flatnonzero(index.representatives == np.arange(len(index)))


def sweep(
    coordinates: NDArray[Any],
    metric: Metric,
    visit: Visit,
    progress: Progress | None = None,
    *,
    precision: type = np.float64,
) -> None:
    """Visit the distances of all pairs of rows, block by block, in parallel.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    metric : Metric
    visit : callable
        Called from several threads. It may overwrite the block it is given.
    progress : callable, optional
        Called with (pairs done, pairs in all), scaled to rows.
    precision : {numpy.float64, numpy.float32}
        Of the distances. Single precision takes half the time and is for searches whose result is certified later.
    """
    size = len(coordinates)
    product = metric.kind in (EUCLIDEAN, ANGULAR)
    angular = metric.kind == ANGULAR
    centred, squares = np.empty((0, 0)), np.empty(0)
    if product:
        # An angle needs the vectors from the origin; a length is the more precise for being taken about the centre.
        centre = 0.0 if angular else coordinates.mean(axis=0, dtype=np.float64)
        centred = coordinates.astype(np.float64) - centre
        squares = np.einsum("ij,ij->i", centred, centred)
    blocks = [(start, min(start + _ROWS, size)) for start in range(0, size, _ROWS)]
    local = threading.local()

    def run(block: tuple[int, int]) -> int:
        start, stop = block
        if not hasattr(local, "buffer"):
            local.buffer = np.empty(_ROWS * _COLUMNS)
            local.opposite = np.empty(_ROWS * _COLUMNS if angular else 0)
        for left in range(start, size, _COLUMNS):
            right = min(left + _COLUMNS, size)
            if product:
                shape = (stop - start, right - left)
                distances = local.buffer[: shape[0] * shape[1]].reshape(shape)
                np.dot(centred[start:stop], centred[left:right].T, out=distances)
                distances *= -2.0
                if angular:
                    # The same form as the compiled distance, which keeps its digits at every angle.
                    opposite = local.opposite[: distances.size].reshape(shape)
                    np.negative(distances, out=opposite)
                    _complete(opposite, centred, squares, start, left, 1.0)
                _complete(distances, centred, squares, start, left, -1.0)
                if angular:
                    np.arctan2(distances, opposite, out=distances)
                    distances *= 2.0
            elif metric.kind == INTERPRETED:
                distances = metric.pairwise(coordinates[start:stop], coordinates[left:right])
            else:
                distances = pairwise_distances(
                    metric.kind, coordinates[start:stop], coordinates[left:right]
                )
            visit(slice(start, stop), slice(left, right), distances)
        return (stop - start) * (size - start)

    everything = sum((b - a) * (size - a) for a, b in blocks)
    done = 0
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(processors()) as pool:
        for finished in pool.map(run, blocks):
            done += finished
            if progress:
                progress(done, everything)


def _complete(
    products: NDArray[np.float64],
    centred: NDArray[np.float64],
    squares: NDArray[np.float64],
    first_row: int,
    first_column: int,
    sign: float,
) -> None:
    """Turn ``sign`` times twice the inner products of a block into the lengths ``|x + sign y|``, in place.

    What the expansion of the square has cancelled is computed again from the vectors.
    """
    rows = squares[first_row : first_row + products.shape[0]]
    columns = squares[first_column : first_column + products.shape[1]]
    products += rows[:, None]
    products += columns[None]
    row, column = np.nonzero(products < _CLOSE * 2 * float(rows.max() + columns.max()))
    for start in range(0, len(row), 4096):
        i, j = row[start : start + 4096], column[start : start + 4096]
        together = centred[first_row + i] + sign * centred[first_column + j]
        products[i, j] = np.einsum("ij,ij->i", together, together)
    np.sqrt(products, out=products)


def log_normalisers(
    index: Index,
    weights: NDArray[np.float64],
    rates: Sequence[float],
    gammas: Sequence[float],
    progress: Progress | None = None,
    *,
    precision: type = np.float64,
) -> NDArray[np.float64]:
    """``ln Z_t(w)`` of every word for several rates, and perhaps several measures, in one pass over all pairs.

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (V,) or (M, V)
        The base measure nu, or several.
    rates, gammas : sequences of m floats

    Returns
    -------
    ndarray, shape (m, V) or (m, M, V)
    """
    measures: NDArray[Any] = np.atleast_2d(weights).astype(precision, copy=False)
    totals: list[NDArray[np.float64]] = []
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[np.float64]) -> None:
        if not hasattr(local, "total"):
            local.total = np.zeros((len(rates), *measures.shape))
            local.scratch = np.empty(_ROWS * _COLUMNS, dtype=precision)
            totals.append(local.total)
        kernel = local.scratch[: distances.size].reshape(distances.shape)
        # Columns among the rows meet both words of a pair as rows; the rest must add to the columns too.
        later = max(rows.stop - columns.start, 0)
        for place, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            np.minimum(distances, gamma, out=kernel)
            kernel *= -rate
            np.exp(kernel, out=kernel)
            local.total[place, :, rows] += measures[:, columns] @ kernel.T
            if later < kernel.shape[1]:
                beyond = slice(columns.start + later, columns.stop)
                local.total[place, :, beyond] += measures[:, rows] @ kernel[:, later:]

    sweep(index.coordinates, index.metric, visit, progress, precision=precision)
    found: NDArray[np.float64] = np.log(np.sum(totals, axis=0))
    return found[:, 0] if weights.ndim == 1 else found


def tight_constants(
    index: Index,
    rates: Sequence[float],
    gammas: Sequence[float],
    log_z: NDArray[np.float64],
    *,
    tau: float | Sequence[float] = 0.0,
    progress: Progress | None = None,
    every_block: list[list[Constant]] | None = None,
    precision: type = np.float64,
) -> list[Constant]:
    """The tight constant of each law: the maximum over ordered pairs of words with a law of their own.

    Parameters
    ----------
    index : Index
    rates, gammas : sequences of m floats
    log_z : ndarray, shape (m, V)
        From :func:`log_normalisers`.
    tau : float or sequence of m floats
        Charge every pair this error of its distances, as mechanisms.md TEM-11 asks: 0 gives the constant of the law, the
        index's tau an upper bound on that of what is drawn.
    every_block : list of m lists, optional
        Receives the worst pair of every block, as candidates for nearby rates.

    Returns
    -------
    list of m Constants
    """
    charges = [float(tau)] * len(rates) if isinstance(tau, int | float) else list(tau)
    words = inputs(index)
    coordinates = index.coordinates if len(words) == len(index) else index.coordinates[words]
    logs: NDArray[Any] = log_z[:, words].astype(precision, copy=False)
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)] * len(rates)
    guard = threading.Lock()
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[np.float64]) -> None:
        if not hasattr(local, "scratch"):
            local.scratch = np.empty((2, _ROWS * _COLUMNS), dtype=precision)
        # A word against itself is no pair.
        own = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        itself = own - rows.start, own - columns.start
        distances[itself] = 1.0
        ratio = local.scratch[0, : distances.size].reshape(distances.shape)
        capped = local.scratch[1, : distances.size].reshape(distances.shape)
        laws = zip(rates, gammas, charges, strict=True)
        for place, (rate, gamma, charge) in enumerate(laws):
            np.subtract(logs[place, rows, None], logs[place, None, columns], out=ratio)
            np.abs(ratio, out=ratio)
            np.minimum(distances, gamma, out=capped)
            capped *= rate
            ratio += capped
            if charge:
                ratio += 3 * rate * charge
                np.subtract(distances, charge, out=capped)
                ratio /= capped
            else:
                ratio /= distances
            ratio[itself] = 0.0
            where = int(ratio.argmax())
            value = float(ratio.reshape(-1)[where])
            i, j = divmod(where, distances.shape[1])
            row, column = rows.start + i, columns.start + j
            # The constant is that of P_w against P_w' with w' the word whose normaliser is the larger.
            if logs[place, row] > logs[place, column]:
                row, column = column, row
            with guard:
                if value > best[place][0]:
                    best[place] = (value, row, column)
                if every_block is not None:
                    every_block[place].append(
                        Constant(value, (int(words[row]), int(words[column])))
                    )

    sweep(coordinates, index.metric, visit, progress, precision=precision)
    return [Constant(value, (int(words[row]), int(words[column]))) for value, row, column in best]


def largest_rate(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
    progress: Progress | None = None,
) -> tuple[float, Constant]:
    """The largest rate whose constant stays below epsilon, and that constant (mechanisms.md 3.3, "Calibrated TEM").

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (V,)
        The base measure.
    epsilon : float
    gamma : float
        Truncation wanted; in use is the smaller of it and ``largest_exponent / t``.

    Returns
    -------
    rate : float
        In [epsilon / 2, epsilon]; certified over all pairs with the rounding of distances charged, at epsilon (1 - 1e-6).
    constant : Constant
        Of the returned rate, rounding charged.

    Notes
    -----
    One pass in single precision evaluates several rates and collects the pairs that bind in each block. The root is then
    found on those pairs alone, whose normalisers take a row each, and confirmed by a pass over all pairs in double
    precision; should a pair that was not collected bind, it joins and the search is repeated.
    """
    promise = epsilon * (1 - 1e-6)
    floor = epsilon / 2

    def truncated(rate: float) -> float:
        return min(gamma, largest_exponent / rate)

    def constants(
        rates: list[float], precision: type
    ) -> tuple[list[Constant], list[list[Constant]]]:
        gammas = [truncated(rate) for rate in rates]
        collected: list[list[Constant]] = [[] for _ in rates]
        log_z = log_normalisers(index, weights, rates, gammas, progress, precision=precision)
        found = tight_constants(
            index,
            rates,
            gammas,
            log_z,
            tau=index.tau,
            progress=progress,
            every_block=collected,
            precision=precision,
        )
        return found, collected

    grid = [floor, 1.2 * floor, 1.5 * floor, 2 * floor]
    _, collected = constants(grid, np.float32)
    pairs: set[tuple[int, int]] = set()
    for block in collected:
        pairs |= {c.pair for c in sorted(block, key=lambda c: -c.value)[:_CANDIDATES]}
    ceiling = grid[-1]
    for _ in range(8):
        rate = _root(index, weights, promise, floor, ceiling, truncated, sorted(pairs))
        (constant,), (block,) = constants([rate], np.float64)
        if constant.value <= promise or rate <= floor:
            # Half of epsilon is always sound in exact arithmetic; the rounding charged may put it a hair above.
            return rate, constant
        pairs |= {c.pair for c in sorted(block, key=lambda c: -c.value)[:_CANDIDATES]}
    (constant,), _ = constants([floor], np.float64)
    return floor, constant


_CANDIDATES = 12  # binding pairs kept of each rate


def _root(
    index: Index,
    weights: NDArray[np.float64],
    promise: float,
    low: float,
    high: float,
    truncated: Callable[[float], float],
    pairs: list[tuple[int, int]],
) -> float:
    """The rate in [low, high] at which the worst of some pairs meets the promise, a hair on the safe side."""
    words = sorted({word for pair in pairs for word in pair})
    place = {word: i for i, word in enumerate(words)}
    left = np.array([place[i] for i, _ in pairs])
    right = np.array([place[j] for _, j in pairs])
    apart = np.array([index.distance(first, second) for first, second in pairs])
    distances = index.distances_of(np.array(words))

    def worst(rate: float) -> float:
        gamma = truncated(rate)
        log_z = np.log(np.exp(-rate * np.minimum(distances, gamma)) @ weights)
        gap = np.abs(log_z[left] - log_z[right])
        capped = np.minimum(apart, gamma) + 3 * index.tau
        return float(((rate * capped + gap) / (apart - index.tau)).max())

    if worst(high) <= promise:
        return high
    floor = low
    while high - low > 1e-8 * high:
        middle = 0.5 * (low + high)
        if worst(middle) <= promise:
            low = middle
        else:
            high = middle
    return max(floor, low * (1 - 1e-9))
