"""Madlib: noise in the embedding space, then the nearest word.

Source: Feyisetan et al. 2020, the baseline of TEM (Carvalho, Vasiloudis, Feyisetan). A word's vector is moved by noise of
density proportional to ``exp(-epsilon |z|)`` and the nearest vocabulary word is released. Everything after the noise is
post-processing, so the search may be approximate, as long as it does not look at the word. The law has no closed form.

A word outside the vocabulary has no vector. All such words stand at one public point, the centre of the vectors, and are
moved by the same noise. A draw from a prior in its place would have no bounded loss: a known word hardly ever becomes one
that lies far away, and a prior may give that often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import (
    column_means,
    cosine_and_sine,
    log,
    principal_directions,
    row_products,
)
from textpriv.errors import MechanismError
from textpriv.index.hnsw import hnsw_index, need_hnswlib
from textpriv.index.index import Index
from textpriv.mechanisms.base import Mechanism
from textpriv.metrics import EUCLIDEAN, pairwise_distances, row_distance
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["Madlib", "configure"]

_QUERIES = 512  # noisy vectors searched at a time


class Madlib(Mechanism):
    """Multivariate Laplace noise and nearest-word search.

    Parameters
    ----------
    index : Index
        With a metric that is Euclidean in some coordinates: euclidean, unit_euclidean or mahalanobis.
    epsilon : float
        Constant of the guarantee; the mean length of the noise is n / epsilon for n dimensions, so useful values are
        far larger than those of TEM.
    search : {"hnsw", "exact"}
        "hnsw" needs the extra ``hnsw``.
        How the nearest word is found. The guarantee is the same; "exact" takes time proportional to the vocabulary.
    projection : int, optional
        Project the public vectors on so many of their principal directions first. A projection never lengthens a
        distance, so the guarantee stays, and the noise shrinks to projection / epsilon (mechanisms.md 3.5).

    Raises
    ------
    MechanismError
        For another metric or parameters without meaning.
    """

    name = "Madlib"
    needs_exact_lists = False

    def __init__(
        self, index: Index, epsilon: float, search: str = "hnsw", projection: int | None = None
    ) -> None:
        super().__init__(index, epsilon)
        if index.metric.kind != EUCLIDEAN:
            raise MechanismError(
                f"Madlib's noise is calibrated to Euclidean distance; this index has the metric {index.metric.name!r}. "
                "Use TEM, or an index with metric='euclidean' or 'unit_euclidean'."
            )
        if search not in ("hnsw", "exact"):
            raise MechanismError(f"unknown search {search!r}; use 'hnsw' or 'exact'.")
        if search == "hnsw":
            need_hnswlib()
        dimension = index.coordinates.shape[1]
        if projection is not None and (
            isinstance(projection, bool)
            or not isinstance(projection, int | np.integer)
            or not 1 <= projection <= dimension
        ):
            raise MechanismError(
                f"projection is a number of directions from 1 to {dimension}; got {projection!r}."
            )
        self.search = search
        self.projection = None if projection is None else int(projection)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {"epsilon": self.epsilon, "search": self.search, "projection": self.projection}

    @cached_property
    def points(self) -> NDArray[Any]:
        """The points that are moved and searched, shape (V, n or projection)."""
        coordinates = self.index.coordinates
        if self.projection is None:
            return coordinates
        leading = principal_directions(coordinates)[: self.projection]
        # About the centre and in double precision, so that rounding moves no point by more than the statement charges.
        return row_products(coordinates - column_means(coordinates), leading)

    @cached_property
    def unknown_point(self) -> NDArray[np.float64]:
        """The centre of the points, at which every word outside the vocabulary stands, shape (n or projection,)."""
        return column_means(self.points)

    @cached_property
    def _graph(self) -> Any:
        return self.index.graph if self.projection is None else hnsw_index(self.points)

    @cached_property
    def _screen(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64], float]:
        """What exact search screens by: centred float32 points, half their squares, the centre, and the scale of both.

        The scale is a power of two that makes the longest at most 1: nothing rounds by it, and no square leaves the range.
        """
        centre = self.unknown_point
        centred = self.points - centre
        largest = float(np.abs(centred).max())
        scale = 1.0
        if largest > 0:
            # In two steps, since the square of the largest coordinate might leave the range.
            longest = largest * float(np.linalg.norm(centred / largest, axis=1).max())
            scale = math.ldexp(1.0, -math.frexp(longest)[1])
        centred *= scale
        squares = np.einsum("ij,ij->i", centred, centred)
        return centred.astype(np.float32), (squares / 2).astype(np.float32), centre, scale

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        points = self.points
        dimension = points.shape[1]
        # Every token takes the same number of random words: pairs for the direction, one a dimension for the radius.
        need = 2 * ((dimension + 1) // 2) + dimension
        out = np.empty(len(ids), dtype=np.int32)
        queries = np.empty((_QUERIES, dimension))
        tokens = np.empty(_QUERIES, dtype=np.int64)
        count = 0
        for document, stream in enumerate(streams):
            stop = int(offsets[document + 1])
            token = int(offsets[document])
            while token < stop:
                take = min(stop - token, _QUERIES - count)
                random = np.empty((take, need), dtype=np.uint64)
                stream.fill(random.reshape(-1))
                count = _move(
                    points,
                    self.unknown_point,
                    self.epsilon,
                    ids,
                    token,
                    random,
                    queries,
                    tokens,
                    count,
                )
                token += take
                if count == _QUERIES:
                    out[tokens[:count]] = self.nearest(queries[:count])
                    count = 0
        if count:
            out[tokens[:count]] = self.nearest(queries[:count])
        return out

    def nearest(self, queries: NDArray[np.float64]) -> NDArray[np.int32]:
        """Id of the nearest word to each query, shape (q,), by the chosen search."""
        if self.search == "hnsw":
            found, _ = self._graph.knn_query(queries.astype(np.float32), k=1)
            return found[:, 0].astype(np.int32)
        columns, halves, centre, scale = self._screen
        moved = (queries - centre) * scale
        # Far queries are drawn in to the unit sphere, and the half squares with them: the order is the same.
        with np.errstate(over="ignore"):
            drawn_in = 1.0 / np.maximum(1.0, np.linalg.norm(moved, axis=1))
        products = np.dot((moved * drawn_in[:, None]).astype(np.float32), columns.T)
        # The same bound as for the exact lists, for lengths up to 1: a batch of another shape may round otherwise, and the
        # answer must not depend on it.
        slack = 2.02 * 2.0**-24 * (queries.shape[1] + 10)
        return _nearest(products, halves, drawn_in, slack, self.points, queries)

    @property
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word and any word of the vocabulary, in nats."""
        apart = pairwise_distances(EUCLIDEAN, self.unknown_point[None], self.points)
        return self.epsilon * float(apart.max())

    @property
    def worst_word_loss(self) -> float:
        """Largest loss between any two words, unknown ones included, in nats."""
        return max(self.epsilon * self.index.diameter_bound, self.unknown_word_loss)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        projected = "" if self.projection is None else f", projection {self.projection}"
        return self._stated(
            f"Madlib (epsilon {self.epsilon:g}, search {self.search}{projected})",
            "density exp(-epsilon |z|), then post-processing: mechanisms.md 3.5",
            "words, vectors and metric",
            self.worst_word_loss,
            self.unknown_word_loss,
            [
                "noise in 64-bit floating point behaves as real-valued noise (only a word leaves, never the noisy vector)"
            ],
            # No distance is computed: the points are moved as they are, and they round as their coordinates and projection.
            numerical_slack=self.epsilon
            * (
                self.index.rounding.absolute
                + (self.index.coordinates.shape[1] + 4) * 2.0**-52 * self.index.diameter_bound
            )
            + 1e-8,
            mean_noise=self.points.shape[1] / self.epsilon,
        )


def configure(
    epsilon: float, search: str = "hnsw", projection: int | None = None
) -> Callable[[Index], Madlib]:
    """Registered as ``textpriv.Madlib.v1``: settings of a Madlib that is made when its index is known."""
    return partial(Madlib, epsilon=epsilon, search=search, projection=projection)


@njit(cache=True, nogil=True)
def _unit(word: np.uint64) -> float:
    """Uniform on (0, 1]."""
    return (np.float64(word >> np.uint64(11)) + 1.0) * 2.0**-53


@njit(cache=True, nogil=True)
def _noise(random: NDArray[np.uint64], epsilon: float, out: NDArray[np.float64]) -> None:
    """Write one draw of density proportional to exp(-epsilon |z|): a uniform direction times a Gamma(n) radius."""
    dimension = out.shape[0]
    pairs = (dimension + 1) // 2
    length = 0.0
    for pair in range(pairs):
        radius = math.sqrt(-2.0 * log(_unit(random[2 * pair])))
        cosine, sine = cosine_and_sine(_unit(random[2 * pair + 1]))
        first, second = radius * cosine, radius * sine
        out[2 * pair] = first
        length += first * first
        if 2 * pair + 1 < dimension:
            out[2 * pair + 1] = second
            length += second * second
    # A Gamma variable of whole shape is a sum of exponentials; logarithms of products save most of the logarithms.
    total, product = 0.0, 1.0
    for at in range(2 * pairs, random.shape[0]):
        product *= _unit(random[at])
        if product < 1e-280:
            total -= log(product)
            product = 1.0
    total -= log(product)
    if length == 0.0:
        # Of probability zero, and 2^-53 to the power of n in floating point.
        out[0], length = 1.0, 1.0
    scale = total / epsilon / math.sqrt(length)
    for j in range(dimension):
        out[j] *= scale


@njit(cache=True, nogil=True)
def _move(
    points: NDArray[Any],
    unknown_point: NDArray[np.float64],
    epsilon: float,
    ids: NDArray[np.int32],
    first: int,
    random: NDArray[np.uint64],
    queries: NDArray[np.float64],
    tokens: NDArray[np.int64],
    count: int,
) -> int:
    """Write the noisy vectors of some tokens as queries; return how many queries there are."""
    for row in range(random.shape[0]):
        token = first + row
        _noise(random[row], epsilon, queries[count])
        for j in range(points.shape[1]):
            if ids[token] < 0:
                queries[count, j] += unknown_point[j]
            else:
                queries[count, j] += points[ids[token], j]
        tokens[count] = token
        count += 1
    return count


@njit(cache=True, nogil=True)
def _nearest(
    products: NDArray[np.float32],
    halves: NDArray[np.float32],
    drawn_in: NDArray[np.float64],
    slack: float,
    points: NDArray[Any],
    queries: NDArray[np.float64],
) -> NDArray[np.int32]:
    """The nearest point of each query: screened by products, decided by float64 distances, ties to the lower id."""
    found = np.empty(products.shape[0], np.int32)
    for row in range(products.shape[0]):
        line, factor = products[row], drawn_in[row]
        least = np.inf
        for j in range(line.shape[0]):
            least = min(least, factor * halves[j] - line[j])
        limit = least + slack
        best, nearest = np.inf, -1
        for j in range(line.shape[0]):
            if factor * halves[j] - line[j] <= limit:
                distance = row_distance(EUCLIDEAN, queries, row, points, j)
                if nearest < 0 or distance < best:
                    best, nearest = distance, j
        found[row] = nearest
    return found
