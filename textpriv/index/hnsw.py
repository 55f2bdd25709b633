"""Approximate nearest neighbours by an HNSW graph, for Madlib, whose search is post-processing."""

from __future__ import annotations

from typing import Any

import numpy as np

from textpriv.errors import MetricError, TextprivError, how_to_install
from textpriv.index.grid import Grid
from textpriv.index.spaces import MANHATTAN

_EFFORT = 100  # ``ef_construction`` of a graph, and ``ef`` of its queries


def need_hnswlib() -> Any:
    """Import hnswlib, which approximate search alone needs; if it is missing, say what else there is."""
    try:
        import hnswlib
    except ModuleNotFoundError:
        raise TextprivError(
            f"approximate search needs hnswlib, which is not installed: {how_to_install('hnsw')} (a C++ compiler builds "
            'it), or choose the exact one, search="exact" (--search exact), which is slower on a large vocabulary.'
        ) from None
    return hnswlib


def build_graph(grid: Grid) -> Any:
    """Build an hnswlib index of Euclidean distances over the points of a grid.

    One thread and a fixed seed give the same graph for the same vocabulary.
    """
    if grid.space == MANHATTAN:
        raise MetricError(
            'Approximate search needs a Euclidean space, and this is "manhattan". Use search="exact".'
        )
    # Exact, since the unit has few digits.
    coordinates = np.asarray(grid.points * np.float32(grid.unit), dtype=np.float32)
    size, dimension = coordinates.shape
    graph = need_hnswlib().Index(space="l2", dim=dimension)
    graph.init_index(max_elements=size, ef_construction=_EFFORT, M=16, random_seed=100)
    graph.add_items(coordinates, np.arange(size), num_threads=1)
    graph.set_ef(_EFFORT)
    return graph
