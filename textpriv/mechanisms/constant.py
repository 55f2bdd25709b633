"""The exact constant of an exponential law over all pairs of words, and the largest rate that keeps a promise.

For a law ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z_t(w)`` the worst log-ratio of a pair is attained at one of the two
words themselves, so the tight constant needs pairs only (mechanisms.md 3.3). Everything is computed in float64 over
blocks of the upper triangle, on all processors. Nothing here draws, and nothing here knows a mechanism.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.index import Index
from textpriv.mechanisms.passes import BLOCK, Progress, sweep

__all__ = [
    "Constant",
    "estimated_rate",
    "inputs",
    "largest_rate",
    "log_normalisers",
    "tight_constants",
]


@dataclass(frozen=True)
class Constant:
    """The largest log-ratio per unit of distance, and the ordered pair of words that attains it."""

    value: float
    pair: tuple[int, int]


def inputs(index: Index) -> NDArray[np.int64]:
    """Ids of the words that have a law of their own: one of each group that cannot be told apart."""
    return np.flatnonzero(index.representatives == np.arange(len(index)))


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

    def visit(rows: slice, columns: slice, distances: NDArray[Any]) -> None:
        if not hasattr(local, "total"):
            local.total = np.zeros((len(rates), *measures.shape))
            local.scratch = np.empty(BLOCK, dtype=precision)
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

    def visit(rows: slice, columns: slice, distances: NDArray[Any]) -> None:
        if not hasattr(local, "scratch"):
            local.scratch = np.empty((2, BLOCK), dtype=precision)
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
    *,
    pairs: Collection[tuple[int, int]] = (),
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
    pairs : collection of (int, int)
        From :func:`estimated_rate`, if that was called before.

    Returns
    -------
    rate : float
        In [epsilon / 2, epsilon]; certified over all pairs with the rounding of distances charged, at epsilon (1 - 1e-6).
    constant : Constant
        Of the returned rate, rounding charged.

    Notes
    -----
    The root is found on the pairs that bind at several rates, and confirmed by a pass over all pairs in double precision;
    should a pair that was not among them bind, it joins and the search is repeated.
    """
    known = set(pairs)
    if not known:
        _, known = estimated_rate(index, weights, epsilon, gamma, largest_exponent, progress)
    floor = epsilon / 2
    for _ in range(8):
        rate = _root(index, weights, epsilon, gamma, largest_exponent, sorted(known))
        (constant,), found = _constants(
            index, weights, [rate], gamma, largest_exponent, progress, np.float64
        )
        if constant.value <= epsilon * _PROMISE or rate <= floor:
            # Half of epsilon is always sound in exact arithmetic; the rounding charged may put it a hair above.
            return rate, constant
        known |= found
    (constant,), _ = _constants(
        index, weights, [floor], gamma, largest_exponent, progress, np.float64
    )
    return floor, constant


def estimated_rate(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
    progress: Progress | None = None,
) -> tuple[float, set[tuple[int, int]]]:
    """What :func:`largest_rate` is likely to find, from passes in single precision alone, and the pairs that bind.

    The estimate is no less than what is found, up to rounding; nothing may be promised by it.
    """
    rates = [part * epsilon for part in (0.5, 0.6, 0.75, 1.0)]
    _, pairs = _constants(index, weights, rates, gamma, largest_exponent, progress, np.float32)
    return _root(index, weights, epsilon, gamma, largest_exponent, sorted(pairs)), pairs


def _constants(
    index: Index,
    weights: NDArray[np.float64],
    rates: list[float],
    gamma: float,
    largest_exponent: float,
    progress: Progress | None,
    precision: type,
) -> tuple[list[Constant], set[tuple[int, int]]]:
    """The constant at several rates, rounding charged, and the pairs that bind most, of different blocks."""
    gammas = [min(gamma, largest_exponent / rate) for rate in rates]
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
    worst = (sorted(block, key=lambda c: -c.value)[:_CANDIDATES] for block in collected)
    return found, {constant.pair for block in worst for constant in block}


_CANDIDATES = 12  # binding pairs kept of each rate
_PROMISE = 1 - 1e-6  # of epsilon is what a rate may cost


def _root(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
    pairs: list[tuple[int, int]],
) -> float:
    """The rate in [epsilon / 2, epsilon] at which the worst of some pairs meets the promise, a hair on the safe side."""
    promise, floor, low, high = epsilon * _PROMISE, epsilon / 2, epsilon / 2, epsilon
    words = sorted({word for pair in pairs for word in pair})
    place = {word: i for i, word in enumerate(words)}
    left = np.array([place[i] for i, _ in pairs])
    right = np.array([place[j] for _, j in pairs])
    apart = np.array([index.distance(first, second) for first, second in pairs])
    distances = index.distances_of(np.array(words))

    def worst(rate: float) -> float:
        edge = min(gamma, largest_exponent / rate)
        log_z = np.log(np.exp(-rate * np.minimum(distances, edge)) @ weights)
        gap = np.abs(log_z[left] - log_z[right])
        capped = np.minimum(apart, edge) + 3 * index.tau
        return float(((rate * capped + gap) / (apart - index.tau)).max())

    if worst(high) <= promise:
        return high
    while high - low > 1e-8 * high:
        middle = 0.5 * (low + high)
        if worst(middle) <= promise:
            low = middle
        else:
            high = middle
    return max(floor, low * (1 - 1e-9))
