"""Exact nearest lists: blocks of exact distances, of which each row keeps its k least."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from textpriv.index.grid import Grid

__all__ = ["exact_lists", "processors", "product_threads"]

Progress = Callable[[int, int], None]

_CELLS = 1 << 20  # distances that a thread holds at a time, so that they stay in its cache


def processors() -> int:
    """How many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def product_threads() -> Iterator[ThreadPoolExecutor]:
    """One thread a processor, each of which multiplies matrices by itself."""
    limit = _libraries().limit(limits=1, user_api="blas")
    with limit, ThreadPoolExecutor(processors()) as pool:
        yield pool


def exact_lists(
    grid: Grid, k: int, progress: Progress | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the nearest words of every word.

    Parameters
    ----------
    grid : Grid
    k : int
        Length of a list, the word itself included; at most V.
    progress : callable, optional
        Called with (rows done, rows in all).

    Returns
    -------
    ids, steps : ndarray of int32, shape (V, k)
        The word itself first, then the others by (steps, id).
    """
    size = len(grid)
    height = max(8, min(256, _CELLS // size))
    ids = np.empty((size, k), dtype=np.int32)
    steps = np.empty((size, k), dtype=np.int32)

    def work(start: int) -> int:
        rows = np.arange(start, min(start + height, size))
        ids[rows], steps[rows] = _nearest(grid.steps(rows), rows, k)
        return len(rows)

    done = 0
    with product_threads() as pool:
        for finished in pool.map(work, range(0, size, height)):
            done += finished
            if progress:
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
