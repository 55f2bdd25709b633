"""Approximate nearest neighbours by an HNSW graph: the graph, lists made with it, and how many neighbours they miss.

Madlib may search by it, since its search is post-processing. Lists made with it void the guarantee of mechanisms that need
exact ones, which are made in ``index.neighbours``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.index.neighbours import Neighbourhoods, Progress, _rank
from textpriv.metrics import ANGULAR, EUCLIDEAN, Metric, distances_from
from textpriv.vocabulary.vocabulary import read_only

__all__ = ["approximate_lists", "hnsw_index", "measure_recall"]


def hnsw_index(
    coordinates: NDArray[Any], *, effort: int = 100, progress: Progress | None = None
) -> Any:
    """Build an hnswlib index of Euclidean distances over the rows.

    One thread and a fixed seed, so that the same vocabulary gives the same graph and a seeded experiment can be
    repeated from the vectors alone.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    effort : int
        ``ef_construction``; queries use it too unless changed.
    progress : callable, optional
        Called with (rows done, rows in all).
    """
    import hnswlib

    size, dimension = coordinates.shape
    graph = hnswlib.Index(space="l2", dim=dimension)
    graph.init_index(max_elements=size, ef_construction=effort, M=16, random_seed=100)
    for start in range(0, size, 4096):
        stop = min(start + 4096, size)
        graph.add_items(
            np.asarray(coordinates[start:stop], dtype=np.float32),
            np.arange(start, stop),
            num_threads=1,
        )
        if progress:
            progress(stop, size)
    graph.set_ef(max(effort, 64))
    return graph


def approximate_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    graph: Any,
    progress: Progress | None = None,
) -> Neighbourhoods:
    """Nearest lists by the approximate index: fast, incomplete, and no basis for a proof (mechanisms.md TEM-1).

    The word itself is always put first; the rest is what the graph returned, ranked by float64 distances.
    """
    if metric.kind not in (EUCLIDEAN, ANGULAR):
        raise TextprivError(
            f"backend='hnsw' searches Euclidean space; the metric {metric.name!r} needs backend='exact'."
        )
    coordinates, size = read_only(coordinates), len(coordinates)
    effort = graph.ef
    graph.set_ef(max(2 * k, effort))
    ids = np.empty((size, k), dtype=np.int32)
    distances = np.empty((size, k), dtype=coordinates.dtype)
    order = np.arange(size, dtype=np.int32)
    # Of what a search has missed nothing is known.
    no_bands = np.empty(0, dtype=np.int32), np.empty((0, 0)), np.empty((0, 0))
    for start in range(0, size, 4096):
        stop = min(start + 4096, size)
        found, _ = graph.knn_query(np.asarray(coordinates[start:stop], dtype=np.float32), k=k)
        candidates = np.ascontiguousarray(found.astype(np.int32))
        own = np.arange(start, stop, dtype=np.int32)
        missed = ~(candidates == own[:, None]).any(axis=1)
        candidates[missed, -1] = own[missed]
        count = np.full(stop - start, k, dtype=np.int64)
        _rank(
            metric.kind,
            coordinates,
            start,
            k,
            order,
            count,
            candidates,
            ids,
            distances,
            *no_bands,
        )
        if progress:
            progress(stop, size)
    graph.set_ef(effort)
    return Neighbourhoods(ids, distances)


def measure_recall(
    lists: Neighbourhoods, coordinates: NDArray[Any], metric: Metric, *, sample: int = 256
) -> float:
    """Share of true neighbours that the lists hold, over a fixed public sample of words."""
    size, k = lists.ids.shape
    rows = np.random.default_rng(1).choice(size, size=min(sample, size), replace=False)
    held = 0
    exact = np.empty(size, dtype=np.float64)
    for row in rows:
        distances_from(metric.kind, coordinates, int(row), exact)
        reach = np.partition(exact, k - 1)[k - 1]
        held += int((exact[lists.ids[row]] <= reach * (1 + 1e-12)).sum())
    return held / (len(rows) * k)
