"""The exact constant of an exponential law over all pairs of words, and the largest rate that keeps a promise.

For a law ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z_t(w)`` the worst log-ratio of a pair is attained at one of the two
words themselves, so the tight constant needs pairs only (mechanisms.md 3.3). Everything is computed in float64 over
blocks of the upper triangle, on all processors. Nothing here draws, and nothing here knows a mechanism.
"""

from __future__ import annotations

import math
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
    coordinates: NDArray[Any], metric: Metric, visit: Visit, progress: Progress | None = None
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
    measures = np.atleast_2d(weights)
    totals: list[NDArray[np.float64]] = []
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[np.float64]) -> None:
        if not hasattr(local, "total"):
            local.total = np.zeros((len(rates), *measures.shape))
            local.scratch = np.empty(_ROWS * _COLUMNS)
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

    sweep(index.coordinates, index.metric, visit, progress)
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
    every_block: list[list[tuple[int, int]]] | None = None,
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
    logs = log_z[:, words]
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)] * len(rates)
    guard = threading.Lock()
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[np.float64]) -> None:
        if not hasattr(local, "scratch"):
            local.scratch = np.empty((2, _ROWS * _COLUMNS))
        if columns.start < rows.stop:
            own = np.arange(rows.start, min(rows.stop, columns.stop))
            own = own[own >= columns.start]
            distances[own - rows.start, own - columns.start] = np.inf
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
                    every_block[place].append((int(words[row]), int(words[column])))

    sweep(coordinates, index.metric, visit, progress)
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
    One pass over all pairs evaluates several rates and collects the pairs that bind in each block. The root is then
    found on those pairs alone, whose normalisers take a row each, and confirmed by another pass; should a pair that was
    not collected bind, it joins and the search is repeated.
    """
    promise = epsilon * (1 - 1e-6)
    floor = epsilon / 2

    def truncated(rate: float) -> float:
        return min(gamma, largest_exponent / rate)

    def certify(rates: list[float]) -> tuple[list[Constant], list[list[tuple[int, int]]]]:
        gammas = [truncated(rate) for rate in rates]
        log_z = log_normalisers(index, weights, rates, gammas, progress)
        collected: list[list[tuple[int, int]]] = [[] for _ in rates]
        found = tight_constants(
            index, rates, gammas, log_z, tau=index.tau, progress=progress, every_block=collected
        )
        return found, collected

    grid = [floor, 1.15 * floor, 1.4 * floor, 2 * floor]
    constants, collected = certify(grid)
    if constants[-1].value <= promise:
        return grid[-1], constants[-1]
    pairs = {pair for block in collected for pair in block}
    pairs |= {constant.pair for constant in constants}
    low = max(
        (rate for rate, constant in zip(grid, constants, strict=True) if constant.value <= promise),
        default=floor,
    )
    high = min(rate for rate, c in zip(grid, constants, strict=True) if c.value > promise)
    if high == floor:
        # Half is always sound in exact arithmetic; rounding may charge it a hair more than epsilon.
        return floor, constants[0]
    fallback = next(c for rate, c in zip(grid, constants, strict=True) if rate == low)
    for _ in range(6):
        rate = _root(index, weights, promise, low, high, truncated, sorted(pairs))
        trial = [rate * (1 - 1e-7), low + 0.98 * (rate - low)]
        constants, collected = certify(trial)
        for candidate, constant in zip(trial, constants, strict=True):
            if constant.value <= promise:
                if candidate == trial[0]:
                    return candidate, constant
                low, fallback = candidate, constant
                break
        high = min(high, rate)
        pairs |= {constant.pair for constant in constants}
    return low, fallback


def _root(
    index: Index,
    weights: NDArray[np.float64],
    promise: float,
    low: float,
    high: float,
    truncated: Callable[[float], float],
    pairs: list[tuple[int, int]],
) -> float:
    """The rate in [low, high] at which the worst of some pairs meets the promise."""
    # Few blocks hold the pairs that can bind near the root: keep the worst at the two ends.
    words = sorted({word for pair in pairs for word in pair})
    place = {word: i for i, word in enumerate(words)}
    left = np.array([place[i] for i, _ in pairs])
    right = np.array([place[j] for _, j in pairs])
    chosen = np.array(words)
    apart = np.array([float(index.distance(first, second)) for first, second in pairs])

    def logs(rate: float, subset: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.empty(len(subset))
        for start in range(0, len(subset), 64):
            rows = subset[start : start + 64]
            distances = index.distances_of(rows)
            kernel = np.exp(-rate * np.minimum(distances, truncated(rate)))
            out[start : start + len(rows)] = np.log(kernel @ weights)
        return out

    def worst(rate: float, keep: NDArray[np.int64]) -> NDArray[np.float64]:
        subset = np.unique(np.concatenate([left[keep], right[keep]]))
        log_z = np.full(len(words), np.nan)
        log_z[subset] = logs(rate, chosen[subset])
        gap = np.abs(log_z[left[keep]] - log_z[right[keep]])
        capped = np.minimum(apart[keep], truncated(rate)) + 3 * index.tau
        ratio: NDArray[np.float64] = (rate * capped + gap) / (apart[keep] - index.tau)
        return ratio

    keep = np.arange(len(pairs))
    if len(keep) > 24:
        at_ends = np.maximum(worst(low, keep) - promise, worst(high, keep) - promise * high / low)
        keep = np.argsort(-at_ends, kind="stable")[:24]
        keep = np.union1d(keep, np.argsort(-worst(high, np.arange(len(pairs))))[:24])
    for _ in range(40):
        middle = 0.5 * (low + high)
        if worst(middle, keep).max() <= promise:
            low = middle
        else:
            high = middle
        if high - low <= 1e-9 * high:
            break
    return math.nextafter(low, 0.0)
