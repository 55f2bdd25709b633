"""The privacy constant of an exponential law over all pairs of words.

For a law ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z_t(w)`` the worst log-ratio of a pair is attained at one of the two
words themselves, so the tight constant needs pairs only. It is computed in float64 over blocks of the upper triangle.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.mechanisms.calibration.pair_sweep import BLOCK, Progress, sweep

__all__ = [
    "LOGARITHMS",
    "Constant",
    "inputs",
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
) -> NDArray[np.float64]:
    """``ln Z_t(w)`` of every word for several rates, and perhaps several measures, in one pair sweep.

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (V,) or (M, V)
        The base measure nu, or several.
    rates, gammas : sequences of m floats
    progress : callable, optional

    Returns
    -------
    ndarray, shape (m, V) or (m, M, V)
    """
    measures: NDArray[np.float64] = np.atleast_2d(weights).astype(np.float64, copy=False)
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
