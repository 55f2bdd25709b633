"""Madlib: noise in the embedding space, then the nearest word.

Source: Feyisetan et al. 2020, the baseline of TEM (Carvalho, Vasiloudis, Feyisetan). Noise of density proportional to
``exp(-epsilon |z|)`` moves the point of a word, and the nearest word of the vocabulary is released. All after the noise is
post-processing, so the search may be approximate. There is no closed form of the output distribution. All words outside
the vocabulary are at the centre of the grid: a draw from a prior in its place would have no bounded loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, how_to_install, installed
from textpriv.index.index import Index
from textpriv.index.spaces import MANHATTAN
from textpriv.mechanisms.base import Mechanism, configured
from textpriv.randomness import RandomWords, fill_each
from textpriv.statement import PrivacyStatement

_QUERIES = 512  # noisy points searched at a time
_FINER = 1 << 10  # parts of a step to which noisy points are rounded
_FARTHEST = 1 << 20  # steps from the centre, in a coordinate, at which they are cut off
_EFFORT = 100  # ``ef_construction`` of a graph of neighbours, and ``ef`` of its queries


class Madlib(Mechanism):
    """Multivariate Laplace noise on the vector, and the nearest word to it.

    Parameters
    ----------
    index : Index
        Of a Euclidean space. Fewer dimensions need less noise: build it with ``projection=``.
    epsilon : float
        Constant of the guarantee. The mean length of the noise is n / epsilon for n dimensions, so useful values are far
        larger than those of TEM.
    search : {"hnsw", "exact"}
        How the nearest word is found; "hnsw" needs the extra of that name. The guarantee is the same.
    """

    name = "Madlib"

    def __init__(self, index: Index, epsilon: float, search: str = "hnsw") -> None:
        super().__init__(index, epsilon, search=search)
        if index.space == MANHATTAN:
            raise MechanismError(
                f"Madlib's noise is for Euclidean distance, and this index is of the {MANHATTAN} space. Use TEM, or an "
                "index of another space."
            )
        if search not in ("hnsw", "exact"):
            raise MechanismError(f"unknown search {search!r}; use 'hnsw' or 'exact'.")
        if search == "hnsw" and not installed("hnswlib"):
            raise MechanismError(
                f"approximate search needs hnswlib, which is not installed: {how_to_install('hnsw')} (a C++ compiler "
                'builds it), or choose the exact one, search="exact" (--option search=exact), which is slower on a large '
                "vocabulary."
            )
        self.search = search

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        dimensions = self.index.points.shape[1]
        # Two for each pair of normal numbers, and one a dimension for the radius.
        width = (dimensions + 1) // 2 * 2 + dimensions
        out = np.empty(len(ids), dtype=np.int32)
        for start in range(0, len(ids), _QUERIES):
            some = slice(start, start + _QUERIES)
            random = np.empty((len(ids[some]), width), dtype=np.uint64)
            fill_each(streams, np.clip(offsets - start, 0, len(random)), random)
            moved = noise(random, dimensions) / (self.epsilon * self.index.unit)
            known = ids[some] >= 0
            moved[known] += self.index.points[ids[some][known]]
            out[some] = self.nearest(moved)
        return out

    def nearest(self, points: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the id of the nearest word to each point, shape (q,), by the chosen search; points are in grid steps."""
        if self.search == "hnsw":
            queries = (points * self.index.unit).astype(np.float32)
            found, _ = self._graph.knn_query(queries, k=1)
            return found[:, 0].astype(np.int32)
        # Rounded points have whole products with the grid, exact in float64: ties are ties, and go to the lower id.
        rounded = np.rint(np.clip(points, -_FARTHEST, _FARTHEST) * _FINER)
        grid, halves = self._grid
        return (halves - rounded @ grid).argmin(axis=1).astype(np.int32)

    @cached_property
    def _graph(self) -> Any:
        """Graph of nearest neighbours over the points; one thread and a fixed seed give the same one again."""
        import hnswlib

        size, dimensions = self.index.points.shape
        graph = hnswlib.Index(space="l2", dim=dimensions)
        graph.init_index(max_elements=size, ef_construction=_EFFORT, M=16, random_seed=100)
        # Exact, since the unit has few digits.
        coordinates = np.asarray(self.index.points * np.float32(self.index.unit), dtype=np.float32)
        graph.add_items(coordinates, np.arange(size), num_threads=1)
        graph.set_ef(_EFFORT)
        return graph

    @cached_property
    def _grid(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The points as columns, and half their squares in the units of their products with rounded points."""
        points = self.index.points.astype(np.float64)
        return np.ascontiguousarray(points.T), np.square(points).sum(axis=1) * (_FINER / 2)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        squares = np.square(self.index.points.astype(np.float64)).sum(axis=1)
        unknown = self.epsilon * float(self.index.length(squares.max()))
        stated = self._stated(
            f"Madlib (epsilon {self.epsilon:g}, search {self.search})",
            "density exp(-epsilon |z|), then post-processing: Feyisetan et al. 2020",
            "words, vectors and metric",
            worst_word_loss=max(self.epsilon * self.index.diameter_bound, unknown),
            unknown_word_loss=unknown,
            numerical_slack=1e-8,
            mean_noise=self.index.points.shape[1] / self.epsilon,
        )
        rounded = "noise in 64-bit floating point behaves as real-valued noise (only a word leaves, never the noisy vector)"
        return stated.extended(assumptions=(rounded,))


def noise(random: NDArray[np.uint64], dimensions: int) -> NDArray[np.float64]:
    """Return draws of density proportional to ``exp(-|z|)``, shape (m, n): a uniform direction times a Gamma(n) radius.

    Each takes a row of ``2 ceil(n / 2) + n`` random words.
    """
    uniform = ((random >> np.uint64(11)) + 1.0) * 2.0**-53  # on (0, 1]
    pairs = (dimensions + 1) // 2
    lengths, angles = np.sqrt(-2 * np.log(uniform[:, :pairs])), uniform[:, pairs : 2 * pairs]
    directions = np.concatenate(
        [lengths * np.cos(2 * np.pi * angles), lengths * np.sin(2 * np.pi * angles)], axis=1
    )[:, :dimensions]
    # A Gamma variable of whole shape is a sum of exponential ones.
    radii = -np.log(uniform[:, 2 * pairs :]).sum(axis=1)
    return directions * (radii / np.linalg.norm(directions, axis=1))[:, None]


configure = configured(Madlib)
