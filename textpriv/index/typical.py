"""Typical distances: how far words, weighted by frequency, are from their nearest neighbours.

They help people to read a guarantee. No guarantee and no output distribution depends on them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.index.grid import Grid

__all__ = ["RANKS", "REFERENCE", "SHARES", "Typical", "typical_distances", "weighted_quantiles"]

REFERENCE = 10  # the neighbour that statements speak of
RANKS = (1, REFERENCE, 100)
SHARES = (0.5, 0.9)
_ROWS = 256


class Typical(NamedTuple):
    """Distances that half, and nine tenths, of all tokens do not exceed."""

    median: float
    ninety: float


def typical_distances(
    grid: Grid, neighbour_steps: NDArray[np.int32], weights: NDArray[np.float64]
) -> dict[int, Typical]:
    """Find distances from words to their 1st, 10th and 100th nearest words at a distance above 0.

    Parameters
    ----------
    grid : Grid
    neighbour_steps : ndarray of int32, shape (V, k)
    weights : ndarray, shape (V,)
        How often each word is met. Public.

    Returns
    -------
    dict of int to Typical
        The 1st and the 10th always, taken for the farthest word where there are fewer; the 100th only where all lists
        reach it.
    """
    size, k = neighbour_steps.shape
    equal = (neighbour_steps == 0).sum(axis=1)
    found = {}
    for rank in RANKS:
        place = equal + rank - 1
        short = np.flatnonzero(place >= k)
        if rank > REFERENCE and short.size:
            continue
        steps = neighbour_steps[np.arange(size), np.minimum(place, k - 1)].copy()
        for start in range(0, len(short), _ROWS):
            steps[short[start : start + _ROWS]] = _ranked(grid, short[start : start + _ROWS], rank)
        found[rank] = Typical(*weighted_quantiles(grid.length(steps), weights, SHARES))
    return found


def _ranked(grid: Grid, words: NDArray[np.int64], rank: int) -> NDArray[np.int32]:
    """Steps from some words to the words of a rank, of those that are not at distance 0."""
    steps = np.sort(grid.steps(words), axis=1)
    place = (steps == 0).sum(axis=1) + rank - 1
    return steps[np.arange(len(words)), np.minimum(place, steps.shape[1] - 1)]


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """For each share the least value such that the values up to it have that share of the weight.

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
