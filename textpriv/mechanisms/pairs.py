"""Passes over all pairs of words: normalisers of an exponential mechanism, and its exact privacy constant.

For ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)`` the worst log-ratio of a pair of words is attained at one of
the two themselves, so the constant needs pairs only. Distances come exactly from matrix products, all else is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from textpriv.index.grid import processors
from textpriv.index.index import Index
from textpriv.index.spaces import MANHATTAN

ROUNDING = 1e-11  # nats by which the difference of two computed normalisers may be off
_NEAREST = 64  # of a nearest list that are looked at for bounds
_ROWS, _COLUMNS = 128, 2048  # of a block, so that its tables stay in a processor's cache

Progress = Callable[[int, int], None]
_Result = TypeVar("_Result")


def log_normalisers(
    index: Index,
    weights: NDArray[np.float64],
    rate: float,
    gamma: float,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return ``ln Z(w)`` of every word, shape (V,)."""
    total, lock = np.zeros(len(index)), Lock()

    def work(rows: NDArray[np.int64]) -> None:
        own = np.zeros(len(index))
        for columns, distances in _blocks(index, rows):
            np.minimum(distances, gamma, out=distances)
            distances *= -rate
            kernel = np.exp(distances, out=distances)
            own[rows] += kernel @ weights[columns]
            # Both words of a pair get its weight; among the rows each pair is met twice.
            later = max(int(rows[-1]) + 1 - columns.start, 0)
            own[columns][later:] += weights[rows] @ kernel[:, later:]
        with lock:
            np.add(total, own, out=total)

    _over_rows(index, work, progress)
    return np.log(total)


def stay_bounds(
    index: Index, weights: NDArray[np.float64], rate: float, gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds on how often each word stays, from nearest lists and means: no pass over all pairs.

    ``exp(-t sqrt(s))`` is convex in s. So the content words beyond a list weigh at least what they would all at the mean
    of their squared distances (Jensen).
    """
    ids = index.neighbour_ids[:, :_NEAREST]
    apart = index.length(index.neighbour_steps[:, :_NEAREST])
    near, kernel = weights[ids], np.exp(-rate * np.minimum(apart, gamma))
    listed, left = (near * kernel).sum(axis=1), np.maximum(1 - near.sum(axis=1), 0.0)
    least = left * np.exp(-rate * gamma)
    if index.space != MANHATTAN:
        points, content = index.length(1) * index.points, weights * index.vocabulary.is_content
        own = np.square(points).sum(axis=1)
        squares = content.sum() * own - 2 * points @ (content @ points) + content @ own
        near = content[ids]
        beyond = np.maximum(content.sum() - near.sum(axis=1), 1e-300)
        squares = np.maximum(squares - (near * np.square(apart)).sum(axis=1), 0.0)
        least = np.maximum(least, beyond * np.exp(-rate * np.sqrt(squares / beyond)))
    return weights / (listed + left * kernel[:, -1]), weights / (listed + least)


def pair_constant(
    index: Index,
    rate: float,
    gamma: float,
    log_z: NDArray[np.float64],
    progress: Progress | None = None,
) -> tuple[float, tuple[int, int]]:
    """Return the largest log-ratio per unit of distance over all pairs of words, and the ordered pair that attains it.

    Words at distance 0 have equal distances to all words, and so one output distribution.
    """

    def work(rows: NDArray[np.int64]) -> tuple[float, tuple[int, int]]:
        best, pair = 0.0, (int(rows[0]), int(rows[0]))
        for columns, distances in _blocks(index, rows):
            ratio = np.abs(log_z[rows, None] - log_z[columns])
            ratio -= ROUNDING
            np.maximum(ratio, 0.0, out=ratio)
            distances[distances == 0.0] = np.inf
            ratio += rate * np.minimum(distances, gamma)
            ratio /= distances
            where = np.unravel_index(int(ratio.argmax()), ratio.shape)
            if ratio[where] > best:
                row, column = int(rows[where[0]]), columns.start + int(where[1])
                # The ratio is that of w to w' where the normaliser of w' is the larger.
                best, pair = float(ratio[where]), (row, column)
                if log_z[row] > log_z[column]:
                    pair = column, row
        return best, pair

    return max(_over_rows(index, work, progress))


def _blocks(index: Index, rows: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield the distances of some words to themselves and all later ones, block by block."""
    for start in range(int(rows[0]), len(index), _COLUMNS):
        columns = slice(start, min(start + _COLUMNS, len(index)))
        yield columns, np.asarray(index.length(index.steps_of(rows, columns)), dtype=np.float64)


def _over_rows(
    index: Index, work: Callable[[NDArray[np.int64]], _Result], progress: Progress | None
) -> list[_Result]:
    """Call a function with the rows of all words, some at a time, on all processors."""
    rows = np.split(np.arange(len(index)), np.arange(_ROWS, len(index), _ROWS))
    found = []
    with ThreadPoolExecutor(processors()) as pool:
        for each in pool.map(work, rows):
            found.append(each)
            if progress:
                progress(len(found), len(rows))
    return found
