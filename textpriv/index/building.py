"""Building an index: lists, graph, bounds on rounding and diameter, and which words share a law.

The lists are made in ``index.neighbours`` and ``index.hnsw``; what an index is stands in ``index.index``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arguments import whole
from textpriv.errors import TextprivError
from textpriv.index.hnsw import approximate_lists, hnsw_index, measure_recall
from textpriv.index.neighbours import Neighbourhoods, exact_lists
from textpriv.index.progress import reporter
from textpriv.index.shortest_paths import edges_of, path_table
from textpriv.metrics import (
    ANGULAR,
    EUCLIDEAN,
    GRAPH,
    INTERPRETED,
    Graph,
    Metric,
    Rounding,
    check_metric,
    distances_from,
)
from textpriv.vocabulary.vocabulary import Vocabulary, equal_rows, read_only

__all__ = ["build_tables", "rounding_of"]


def build_tables(
    vocabulary: Vocabulary,
    metric: Metric,
    k: int,
    backend: str,
    hnsw: bool,
    progress: bool | Callable[[str, int, int], None],
    device: str,
) -> dict[str, Any]:
    """What an index is made of besides its vocabulary; see :meth:`textpriv.index.Index.build`."""
    k = whole("k, the length of a nearest list,", k)
    if backend not in ("exact", "hnsw"):
        raise TextprivError(
            f"unknown backend {backend!r}; use 'exact', or 'hnsw' for approximate lists."
        )
    if device != "cpu":
        from textpriv.index.torch_distances import choose_device

        choose_device(device)
    if metric.kind == INTERPRETED:
        check_metric(metric, vocabulary.vectors)
    if backend == "hnsw" and metric.kind not in (EUCLIDEAN, ANGULAR):
        raise TextprivError(
            f"backend='hnsw' searches Euclidean space; the metric {metric.name!r} needs backend='exact'."
        )
    length, recall, graph = min(int(k), len(vocabulary)), 1.0, None
    with reporter(progress) as report:
        if isinstance(metric, Graph):
            edges = edges_of(vocabulary.vectors, metric)
            found = path_table(edges, np.arange(len(vocabulary)), report("shortest paths"))
        else:
            found = metric.coordinates(vocabulary.vectors)
        coordinates = read_only(found)
        if backend == "hnsw" or (hnsw and metric.kind == EUCLIDEAN and find_spec("hnswlib")):
            graph = hnsw_index(coordinates, progress=report("approximate index"))
        if backend == "exact":
            bar = report("exact lists")
            lists = exact_lists(coordinates, metric, length, bar, device=device)
        else:
            bar = report("approximate lists")
            lists = approximate_lists(coordinates, metric, length, graph, bar)
            recall = measure_recall(lists, coordinates, metric)
    errors = metric.coordinate_errors(vocabulary.vectors)
    rounding = rounding_of(coordinates, errors)
    return {
        "metric": metric,
        "coordinates": coordinates,
        "neighbours": lists,
        "representatives": _representatives(coordinates, metric, lists, errors),
        "backend": backend,
        "recall": recall,
        "rounding": rounding,
        "diameter_bound": _diameter_bound(coordinates, metric, rounding),
        "fingerprint": vocabulary.fingerprint(),
        "graph": graph,
    }


def rounding_of(coordinates: NDArray[Any], errors: NDArray[np.float64]) -> Rounding:
    """Bounds on the errors of distances: by float64 arithmetic on differences, storage in the lists, and coordinates."""
    stored = float(np.finfo(coordinates.dtype).eps) / 2
    arithmetic = (coordinates.shape[1] + 4) * 2.0**-53
    return Rounding(stored + arithmetic, 2 * float(errors.max(initial=0.0)))


def _diameter_bound(coordinates: NDArray[Any], metric: Metric, rounding: Rounding) -> float:
    """Twice the distance from some word to the word farthest from it (triangle inequality), the least over a sample."""
    if metric.kind == GRAPH:
        return float(coordinates[:, 1:].max())
    size = len(coordinates)
    centre = coordinates.mean(axis=0, dtype=np.float64)
    offsets = np.linalg.norm(coordinates - centre, axis=1)
    least = np.inf
    for row in np.argsort(offsets, kind="stable")[: min(8, size)]:
        least = min(least, 2 * float(_distances(coordinates, metric, int(row)).max()))
    return least * (1 + (coordinates.shape[1] + 4) * 2.0**-53) + 2 * rounding.absolute


def _distances(coordinates: NDArray[Any], metric: Metric, row: int) -> NDArray[np.float64]:
    """Distances from one word to all, shape (V,)."""
    if metric.kind == INTERPRETED:
        return metric.pairwise(coordinates[row : row + 1], coordinates)[0]
    out = np.empty(len(coordinates))
    distances_from(metric.kind, coordinates, row, out)
    return out


def _representatives(
    coordinates: NDArray[Any], metric: Metric, lists: Neighbourhoods, errors: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Give words that cannot be told apart one input row: equal coordinates, and pairs closer than their own rounding.

    The vectors of two such words may be at distance zero, at which no charge for rounding helps. All other pairs keep laws
    of their own, however close: the error of distances to third words is charged to every pair alike.
    """
    if metric.kind == GRAPH:  # the first word at distance 0
        return np.array([row[1:].argmin() for row in coordinates], dtype=np.int32)
    equal = equal_rows(coordinates)
    if not errors.any():
        return equal
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    size = len(coordinates)
    if lists.ids.shape[1] == 1 < size:
        lists = exact_lists(coordinates, metric, 2)
    # Each bound is stretched by what rounds the distance itself.
    bound = errors * (1 + 1e-5)
    reach = bound + bound.max()
    row, place = np.nonzero(lists.distances[:, 1:] <= reach[:, None])
    near = lists.ids[row, place + 1]
    close = lists.distances[row, place + 1] <= bound[row] + bound[near]
    own = np.arange(size)
    left: list[NDArray[Any]] = [own, row[close]]
    right: list[NDArray[Any]] = [equal, near[close]]
    # A list that is full of such words may not name them all.
    for word in np.unique(equal[lists.distances[:, -1] <= reach]):
        others = np.flatnonzero(_distances(coordinates, metric, int(word)) <= bound[word] + bound)
        left.append(np.full(len(others), word))
        right.append(others)
    ends = np.concatenate(left), np.concatenate(right)
    graph = coo_matrix((np.ones(len(ends[0]), dtype=bool), ends), shape=(size, size))
    count, label = connected_components(graph, directed=False)
    first = np.full(count, size, dtype=np.int32)
    np.minimum.at(first, label, own.astype(np.int32))
    return first[label]
