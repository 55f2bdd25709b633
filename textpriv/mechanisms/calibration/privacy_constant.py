"""The privacy constant of an exponential law over all pairs of words, and the largest rate that keeps a promise.

For a law ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z_t(w)`` the worst log-ratio of a pair is attained at one of the two
words themselves, so the tight constant needs pairs only (mechanisms.md 3.3). Everything is computed over blocks of the
upper triangle, by all processors of a machine: searches the same on every machine (:mod:`textpriv.mechanisms.sums`),
verdicts in float64. Nothing here draws, and nothing here knows a mechanism.

A rate lies on a public grid, and fixed arithmetic on the pairs that bind decides which of its points it is. A verdict over
all pairs, whose last digits each processor rounds in its own way, only names pairs. So two processors can choose different
rates only where, of two pairs, each attains the largest constant up to that rounding (1e-12 of it), one alone keeps the
promise at a point of the grid, and an estimate named one alone: one calibration in a million at most, since that rounding is
a millionth of what a step of the grid changes. The rate in use is recorded with the index, and what is recorded is used.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arithmetic import logs
from textpriv.index.index import Index
from textpriv.mechanisms.calibration.pair_sweep import BLOCK, Progress, sweep
from textpriv.mechanisms.sums import exponential_sums, log_sums

__all__ = [
    "LOGARITHMS",
    "Constant",
    "estimated_rate",
    "inputs",
    "largest_rate",
    "log_normalisers",
    "rounding_charged",
    "tight_constants",
]


@dataclass(frozen=True)
class Constant:
    """The largest log-ratio per unit of distance, and the ordered pair of words that attains it."""

    value: float
    pair: tuple[int, int]


# Nats by which the difference of two computed normalisers may be off.
LOGARITHMS: dict[type, float] = {np.float64: 1e-11, np.float32: 1e-5}
_TINY = float(np.finfo(np.float64).tiny)


def rounding_charged(index: Index, constant: Constant) -> Constant:
    """A constant with the relative rounding of distances charged to it; all other rounding is charged in nats (TEM-11)."""
    return Constant(constant.value / (1 - index.rounding.relative), constant.pair)


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
    portable: bool = False,
) -> NDArray[np.float64]:
    """``ln Z_t(w)`` of every word for several rates, and perhaps several measures, in one pair sweep.

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (V,) or (M, V)
        The base measure nu, or several.
    rates, gammas : sequences of m floats
    progress : callable, optional
    precision, portable
        As in :func:`textpriv.mechanisms.calibration.pair_sweep.sweep`; what is portable is summed in a fixed order too.

    Returns
    -------
    ndarray, shape (m, V) or (m, M, V)
    """
    measures: NDArray[np.float64] = np.atleast_2d(weights).astype(np.float64, copy=False)
    if portable or precision is np.float32:
        sums = exponential_sums(index, measures, rates, gammas, progress, precision=precision)
        portably: NDArray[np.float64] = logs(sums)
        return portably[:, 0] if weights.ndim == 1 else portably
    totals: list[NDArray[np.float64]] = []
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[Any]) -> None:
        if not hasattr(local, "total"):
            local.total = np.zeros((len(rates), *measures.shape))
            local.scratch = np.empty(BLOCK)
            totals.append(local.total)
        kernel = local.scratch[: distances.size].reshape(distances.shape)
        # Columns among the rows meet both words of a pair as rows; the others must add to the columns too.
        later = max(rows.stop - columns.start, 0)
        for law, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            np.minimum(distances, gamma, out=kernel)
            kernel *= -rate
            np.exp(kernel, out=kernel)
            local.total[law, :, rows] += measures[:, columns] @ kernel.T
            if later < kernel.shape[1]:
                beyond = slice(columns.start + later, columns.stop)
                local.total[law, :, beyond] += measures[:, rows] @ kernel[:, later:]

    sweep(index.coordinates, index.metric, visit, progress)
    found: NDArray[np.float64] = np.log(np.sum(totals, axis=0))
    return found[:, 0] if weights.ndim == 1 else found


def tight_constants(
    index: Index,
    rates: Sequence[float],
    gammas: Sequence[float],
    log_z: NDArray[np.float64],
    *,
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
    every_block : list of m lists, optional
        Receives the worst pair of every block, as candidates for nearby rates.

    Returns
    -------
    list of m Constants

    Notes
    -----
    A pair is forgiven the few parts of a nat by which its computed normalisers may be off, which every statement charges:
    next to nothing, but for words that are nearer to each other than 1e-9.
    """
    allowance = LOGARITHMS[precision]
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
        np.maximum(distances, np.finfo(precision).tiny, out=distances)
        for law, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            np.subtract(logs[law, rows, None], logs[law, None, columns], out=ratio)
            np.abs(ratio, out=ratio)
            ratio -= allowance
            np.maximum(ratio, 0.0, out=ratio)
            np.minimum(distances, gamma, out=capped)
            capped *= rate
            ratio += capped
            ratio /= distances
            ratio[itself] = 0.0
            where = int(ratio.argmax())
            value = float(ratio.reshape(-1)[where])
            i, j = divmod(where, distances.shape[1])
            row, column = rows.start + i, columns.start + j
            # The constant is that of P_w against P_w' with w' the word whose normaliser is the larger.
            if logs[law, row] > logs[law, column]:
                row, column = column, row
            with guard:
                if value > best[law][0]:
                    best[law] = (value, row, column)
                if every_block is not None:
                    every_block[law].append(Constant(value, (int(words[row]), int(words[column]))))

    sweep(coordinates, index.metric, visit, progress, precision=precision)
    return [Constant(value, (int(words[row]), int(words[column]))) for value, row, column in best]


def largest_rate(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
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
        The largest multiple of 2^-20 epsilon, from epsilon / 2 to epsilon, that is certified over all pairs at epsilon
        (1 - 1e-6), with the rounding of distances charged.
    constant : Constant
        Of the returned rate, rounding charged.

    Notes
    -----
    The root is found on the pairs that bind at several rates, and confirmed by a pair sweep in double precision;
    the pairs that bind there join, and should one of them break the promise, the search is repeated.
    """
    known = set(pairs)
    if not known:
        _, known = estimated_rate(index, weights, epsilon, gamma, largest_exponent)
    floor = epsilon / 2
    rate = _root(index, weights, epsilon, gamma, largest_exponent, known)
    for _ in range(8):
        (constant,), found = _constants(index, weights, [rate], gamma, largest_exponent, np.float64)
        known |= found
        again = _root(index, weights, epsilon, gamma, largest_exponent, known)
        if rate <= floor or (again >= rate and constant.value <= epsilon * _PROMISE):
            # Half of epsilon is always sound in exact arithmetic; the rounding charged may put it a hair above.
            return rate, rounding_charged(index, constant)
        rate = again
    (constant,), _ = _constants(index, weights, [floor], gamma, largest_exponent, np.float64)
    return floor, rounding_charged(index, constant)


def estimated_rate(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
) -> tuple[float, set[tuple[int, int]]]:
    """What :func:`largest_rate` is likely to find, from sweeps in single precision alone, and the pairs that bind.

    The estimate is no less than what is found, up to rounding; nothing may be promised by it.
    """
    rates = [part * epsilon for part in (0.5, 0.6, 0.75, 1.0)]
    _, pairs = _constants(index, weights, rates, gamma, largest_exponent, np.float32)
    return _root(index, weights, epsilon, gamma, largest_exponent, pairs), pairs


def _constants(
    index: Index,
    weights: NDArray[np.float64],
    rates: list[float],
    gamma: float,
    largest_exponent: float,
    precision: type,
) -> tuple[list[Constant], set[tuple[int, int]]]:
    """The constant at several rates, and the pairs that bind most, of different blocks."""
    gammas = [min(gamma, largest_exponent / rate) for rate in rates]
    collected: list[list[Constant]] = [[] for _ in rates]
    log_z = log_normalisers(index, weights, rates, gammas, precision=precision)
    found = tight_constants(index, rates, gammas, log_z, every_block=collected, precision=precision)
    # Blocks come in any order; of equal ones the pair decides.
    worst = (sorted(block, key=lambda c: (-c.value, c.pair))[:_CANDIDATES] for block in collected)
    return found, {constant.pair for block in worst for constant in block}


_CANDIDATES = 12  # binding pairs of each rate
# The part of epsilon that a rate may cost; what is left contains the relative rounding of distances.
_PROMISE = 1 - 1e-6
# And of that, on the pairs of the search: so far below that a pair sweep, however it rounds, does not refuse them.
_INSIDE = 1 - 1e-10
_GRID = 1 << 20  # the rate is a whole number of such parts of epsilon


def _root(
    index: Index,
    weights: NDArray[np.float64],
    epsilon: float,
    gamma: float,
    largest_exponent: float,
    pairs: Collection[tuple[int, int]],
) -> float:
    """The largest rate of the grid in [epsilon / 2, epsilon] at which the worst of some pairs meets the promise.

    The same on every processor for the same worst pairs, whichever others are among them.
    """
    promise = epsilon * _PROMISE * _INSIDE
    words = sorted({word for pair in pairs for word in pair})
    row = {word: i for i, word in enumerate(words)}
    left = np.array([row[i] for i, _ in pairs])
    right = np.array([row[j] for _, j in pairs])
    apart = np.array([index.distance(first, second) for first, second in pairs])
    distances = index.distances_of(np.array(words))

    def sound(parts: int) -> bool:
        rate = epsilon * (parts / _GRID)
        edge = min(gamma, largest_exponent / rate)
        log_z = log_sums(distances, rate, edge, weights)
        gap = np.maximum(np.abs(log_z[left] - log_z[right]) - LOGARITHMS[np.float64], 0.0)
        ratio = (rate * np.minimum(apart, edge) + gap) / np.maximum(apart, _TINY)
        return bool((ratio <= promise).all())

    low, high = _GRID // 2, _GRID
    if sound(high):
        return epsilon
    while high - low > 1:
        middle = (low + high) // 2
        if sound(middle):
            low = middle
        else:
            high = middle
    return epsilon * (low / _GRID)
