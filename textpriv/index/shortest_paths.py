"""Distances along shortest paths over public nearest neighbours: the table that an index with the metric ``Graph`` holds.

Which words are joined follows from exact lists (``index.neighbours``), how long an edge is from the metric. Paths are
SciPy's, over lengths in whole steps, of which float64 rounds no sum: they are the same on every processor. What the metric
promises stands at ``textpriv.metrics.Graph``; no lists are made here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MetricError
from textpriv.index.neighbours import exact_lists
from textpriv.metrics import Graph, Metric, distances_from

# Graphs of scipy take a seventh of a second to import, which only a graph metric needs.
if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["MOST_WORDS", "distances_anew", "edges_of", "path_table"]

MOST_WORDS = 50_000  # whose table takes 10 GB
_LARGEST = 1 << 24  # whole steps below which float32 holds every number of them
_TOGETHER = 64  # words whose paths are found at a time

Progress = Callable[[int, int], None]


def edges_of(vectors: NDArray[Any], metric: Graph) -> csr_matrix:
    """Join the words of public vectors (V, n) as the metric says.

    Returns
    -------
    csr_matrix of float64, shape (V, V)
        The length of each edge, in both directions: a whole number of steps of a power of two, of which no shortest path has
        2^24. Between words at distance 0 it is 0, and stored.

    Raises
    ------
    MetricError
        For more than 50,000 words, and for vectors that do not suit the metric.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    size = len(vectors)
    if size > MOST_WORDS:
        raise MetricError(
            f"a graph keeps the distances of all pairs, 4 bytes each, and takes up to {MOST_WORDS:,} words; got {size:,}. "
            "Take the commonest (limit=, --limit), or a tree (textpriv tree), which takes any number."
        )
    coordinates = metric.base.coordinates(vectors)
    lists = exact_lists(coordinates, metric.base, min(metric.neighbours + 1, size))
    first = np.repeat(np.arange(size), lists.ids.shape[1] - 1).tolist()
    others, apart = (table[:, 1:].ravel().tolist() for table in (lists.ids, lists.distances))
    known = {
        (min(pair), max(pair)): length for *pair, length in zip(first, others, apart, strict=True)
    }
    _connect(known, coordinates, metric.base.kind)
    ends = np.array(list(known), dtype=np.int64).reshape(-1, 2)
    lengths = np.array(list(known.values()), dtype=np.float64)
    both = np.concatenate([ends, ends[:, ::-1]]).T
    if metric.edges == "hops":
        lengths = np.sign(lengths)
    else:
        exact = csr_matrix((np.tile(lengths, 2), both), shape=(size, size))
        step = _step(float(dijkstra(exact, indices=0).max()), size)
        lengths = np.ceil(lengths / step) * step
    return csr_matrix((np.tile(lengths, 2), both), shape=(size, size))


def path_table(
    edges: csr_matrix, words: NDArray[np.int64], progress: Progress | None = None
) -> NDArray[np.float32]:
    """Each word's own number and its distances to all words, shape (len(words), V + 1), exact in float32."""
    from scipy.sparse.csgraph import dijkstra

    table = np.empty((len(words), 1 + edges.shape[0]), dtype=np.float32)
    table[:, 0] = words
    for start in range(0, len(words), _TOGETHER):
        rows = slice(start, start + _TOGETHER)
        table[rows, 1:] = dijkstra(edges, indices=words[rows])
        if progress:
            progress(min(start + _TOGETHER, len(words)), len(words))
    return table


def distances_anew(
    vectors: NDArray[Any], metric: Metric, words: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Distances from some words to all by the metric and public vectors (V, n) alone, whatever an index holds."""
    if isinstance(metric, Graph):
        return path_table(edges_of(vectors, metric), words)[:, 1:].astype(np.float64)
    return metric.pairwise(vectors[words], vectors)


def _connect(known: dict[tuple[int, int], float], coordinates: NDArray[Any], kind: int) -> None:
    """Add edges to those known, with their lengths, until a path leads from each word to each."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    size = len(coordinates)
    apart = np.empty(size)
    while True:
        ends = np.array(list(known), dtype=np.int64).reshape(-1, 2)
        links = coo_matrix((np.ones(len(ends), dtype=bool), tuple(ends.T)), shape=(size, size))
        count, group = connected_components(links, directed=False)
        if count == 1:
            return
        largest = int(np.bincount(group).argmax())  # which the others join
        for each in sorted(set(range(count)) - {largest}):
            nearest = (math.inf, 0, 0)
            for word in np.flatnonzero(group == each).tolist():
                distances_from(kind, coordinates, word, apart)
                apart[group == each] = math.inf
                other = int(apart.argmin())
                nearest = min(nearest, (float(apart[other]), min(word, other), max(word, other)))
            known[nearest[1:]] = nearest[0]


def _step(longest: float, size: int) -> float:
    """A power of two of which no shortest path has 2^24, by the longest path from one word.

    With e the length of that path and V words, lengths rounded up to steps q lengthen a path by less than V q, and any two
    words are joined by way of the first one: at most ``2 (e + V q) <= (2^24 - 1) q`` where
    ``q >= 2 e / (2^24 - 1 - 2 V)``.
    """
    if longest == 0:
        return 1.0
    power = math.frexp(2 * longest * (1 + 1e-6) / (_LARGEST - 1 - 2 * size))[1]
    if not -126 <= power <= 100:
        raise MetricError(
            "vectors are too near to each other, or too far apart, for distances in a graph; scale them to lengths about 1."
        )
    return math.ldexp(1.0, power)
