"""How far apart typical words are: from running words to their nearest words with another vector.

Running words are words as often as text has them, so that the many rare words of a vocabulary do not decide what is called
typical; and words that share a vector are one word here, since nothing tells them apart at any epsilon. These distances are
for reading a guarantee. No guarantee and no law depends on them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.index.neighbours import Neighbourhoods, exact_lists, processors
from textpriv.metrics import INTERPRETED, Metric, distances_from

__all__ = ["RANKS", "REFERENCE", "Typical", "typical_distances", "weighted_quantiles"]

REFERENCE = 10  # the neighbour that statements speak of
RANKS = (1, REFERENCE, 100)
SHARES = (0.5, 0.9)
_ROWS = 4096
_FEW = 64  # one row in so many may be searched by itself; more of them are searched together


class Typical(NamedTuple):
    """Distances that half, and nine tenths, of all running words do not exceed."""

    median: float
    ninety: float


def typical_distances(
    lists: Neighbourhoods,
    representatives: NDArray[np.int32],
    coordinates: NDArray[Any],
    metric: Metric,
    weights: NDArray[np.float64],
    *,
    beyond: float | None = None,
) -> dict[int, Typical]:
    """Find distances from running words to their 1st, 10th and 100th nearest words with another vector.

    Parameters
    ----------
    lists : Neighbourhoods
    representatives : ndarray of int32, shape (V,)
        Words of one representative are one word: they share their law.
    coordinates : ndarray, shape (V, n)
    metric : Metric
    weights : ndarray, shape (V,)
        How often each word is met. Public.
    beyond : float, optional
        What stands for the distance to a word that a list does not reach. Without it, the nearest words up to the 10th
        are searched where lists are too short, or too full of words with one vector.

    Returns
    -------
    dict of int to Typical
        The 1st and the 10th always, the latter taken for the farthest word where there are fewer; the 100th only where
        the lists reach it.
    """
    own, group = np.unique(representatives, return_inverse=True)
    totals: NDArray[np.float64] = np.bincount(group, weights=weights).astype(np.float64)
    found = _listed(lists, representatives, own)
    if beyond is None:
        short = np.flatnonzero(np.isinf(found[:, 1]))
        if len(short):
            found[short, :2] = _searched(coordinates[own], metric, short)
    else:
        found[:, :2] = np.where(np.isinf(found[:, :2]), beyond, found[:, :2])
    ends = {
        rank: Typical(*weighted_quantiles(column, totals, SHARES))
        for rank, column in zip(RANKS, found.T, strict=True)
    }
    return {rank: typical for rank, typical in ends.items() if np.isfinite(typical.ninety)}


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """For each share the least of the values such that those up to it hold that share of the weight.

    Parameters
    ----------
    values, weights : ndarray, shape (m,)
        m of 1 or more; the weights are not negative and have a positive sum.
    shares : tuple of float
        In (0, 1).
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # A sum that is one rounding too large must not end the search one value too early.
    wanted = np.array(shares) * reached[-1] * (1 + 1e-12)
    ends = np.minimum(np.searchsorted(reached, wanted), len(order) - 1)
    return tuple(np.asarray(values, dtype=np.float64)[order][ends].tolist())


def _listed(
    lists: Neighbourhoods, representatives: NDArray[np.int32], own: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Distances of the rows ``own`` to their neighbours of each rank, as far as lists reach; infinite beyond.

    Of the words that share a vector only the representative counts, so each is counted once.
    """
    found = np.full((len(own), len(RANKS)), np.inf)
    first = representatives == np.arange(len(representatives))
    for start in range(0, len(own), _ROWS):
        rows = own[start : start + _ROWS]
        counted = first[lists.ids[rows]]
        counted[:, 0] = False  # the row itself
        passed = np.cumsum(counted, axis=1, dtype=np.int32)
        for column, rank in enumerate(RANKS):
            reached = passed[:, -1] >= rank
            ends = np.argmax(passed >= rank, axis=1)
            at = lists.distances[rows, ends].astype(np.float64)
            found[start : start + _ROWS, column] = np.where(reached, at, np.inf)
    return found


def _searched(
    coordinates: NDArray[Any], metric: Metric, rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Distances of some rows to the nearest and the 10th nearest of all others, shape (len(rows), 2)."""
    last = min(REFERENCE, len(coordinates) - 1)
    if len(rows) * _FEW > len(coordinates):
        distances = exact_lists(coordinates, metric, last + 1).distances[rows]
        return distances[:, [min(1, last), last]].astype(np.float64)

    def search(row: int) -> NDArray[np.float64]:
        if metric.kind == INTERPRETED:
            apart = metric.pairwise(coordinates[row : row + 1], coordinates)[0].copy()
        else:
            apart = np.empty(len(coordinates))
            distances_from(metric.kind, coordinates, row, apart)
        apart[row] = -1.0
        return np.maximum(np.partition(apart, [min(1, last), last])[[min(1, last), last]], 0.0)

    with ThreadPoolExecutor(processors()) as pool:
        return np.array(list(pool.map(search, rows.tolist())))
