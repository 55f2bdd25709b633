"""Exact nearest lists, and typical distances: how far tokens are from their nearest neighbours.

Typical distances help people to read a guarantee. No guarantee and no output distribution depends on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from textpriv.index.grid import Grid

__all__ = [
    "RANKS",
    "REFERENCE",
    "SHARES",
    "Progress",
    "Typical",
    "exact_lists",
    "progress_bar",
    "typical_distances",
    "weighted_quantiles",
]

Progress = Callable[[int, int], None]

REFERENCE = 10  # the neighbour that statements speak of
RANKS = (1, REFERENCE, 100)
SHARES = (0.5, 0.9)

_CELLS = 1 << 20  # distances that a thread holds at a time, so that they stay in its cache
_ROWS = 256


@contextmanager
def progress_bar(stage: str, shown: bool) -> Iterator[Progress]:
    """Draw a progress bar on standard error; yields a function of the number done and the number in all."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True, disable=not shown) as bars:
        task = bars.add_task(stage)
        yield lambda done, everything: bars.update(task, completed=done, total=everything)


def exact_lists(
    grid: Grid, k: int, progress: Progress = lambda done, everything: None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the k nearest words of every word: ids and steps, shape (V, k), the word itself first, then by (steps, id)."""
    size = len(grid)
    height = max(8, min(256, _CELLS // size))
    ids = np.empty((size, k), dtype=np.int32)
    steps = np.empty((size, k), dtype=np.int32)

    def work(start: int) -> int:
        rows = np.arange(start, min(start + height, size))
        ids[rows], steps[rows] = _nearest(grid.steps(rows), rows, k)
        return int(rows[-1]) + 1

    # One thread a processor, each of which multiplies matrices by itself.
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    one_each = ThreadpoolController().limit(limits=1, user_api="blas")
    with one_each, ThreadPoolExecutor(threads) as pool:
        for done in pool.map(work, range(0, size, height)):
            progress(done, size)
    return ids, steps


def _nearest(
    steps: NDArray[np.int32], rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The k least of each row of distances, by (steps, id), after the row's own word."""
    own = np.arange(len(rows))
    if steps[own, rows].any():
        raise ArithmeticError(
            "matrix products on this machine are not exact; no index can be built"
        )
    steps[own, rows] = -1
    edge = np.partition(steps, k - 1, axis=1)[:, k - 1]
    near = np.flatnonzero(steps <= edge[:, None])
    row, word = np.divmod(near, steps.shape[1])
    found = steps.ravel()[near]
    order = np.lexsort((found, row))  # stable: ties stay in the order of ids
    counts = np.bincount(row, minlength=len(rows))
    first = np.cumsum(counts) - counts
    chosen = order[first[:, None] + np.arange(k)]
    return word[chosen].astype(np.int32), np.maximum(found[chosen], 0)


class Typical(NamedTuple):
    """Distances that half, and nine tenths, of all tokens do not exceed."""

    median: float
    ninety: float


def typical_distances(
    grid: Grid, listed: NDArray[np.int32], weights: NDArray[np.float64]
) -> dict[int, Typical]:
    """Find distances from words to their 1st, 10th and 100th nearest words at a distance above 0.

    The farthest word counts where there are fewer. The 100th is left out unless all lists reach it.

    Parameters
    ----------
    grid : Grid
    listed : ndarray of int32, shape (V, k)
        Steps to the nearest words.
    weights : ndarray, shape (V,)
        How often each word is met. Public.
    """
    size, k = listed.shape
    equal = (listed == 0).sum(axis=1)
    found = {}
    for rank in RANKS:
        place = equal + rank - 1
        short = np.flatnonzero(place >= k)
        if rank > REFERENCE and short.size:
            continue
        steps = listed[np.arange(size), np.minimum(place, k - 1)]
        for start in range(0, len(short), _ROWS):
            words = short[start : start + _ROWS]
            every = np.sort(grid.steps(words), axis=1)
            at = np.minimum((every == 0).sum(axis=1) + rank - 1, size - 1)
            steps[words] = every[np.arange(len(words)), at]
        found[rank] = Typical(*weighted_quantiles(grid.length(steps), weights, SHARES))
    return found


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """For each share in (0, 1) the least value such that the values up to it have that share of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # A sum that is one rounding too large must not end the search one value too early.
    wanted = np.array(shares) * reached[-1] * (1 + 1e-12)
    ends = np.minimum(np.searchsorted(reached, wanted), len(order) - 1)
    return tuple(np.asarray(values, dtype=np.float64)[order][ends].tolist())
