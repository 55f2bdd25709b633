"""True metrics on word vectors, and the reasons for which a distance is refused.

The guarantee of every mechanism here is stated in units of a metric, and its proof uses the triangle inequality. This
module says which distances qualify, turns vectors into the coordinates in which a distance is computed, and holds the
compiled distance between two rows. It builds no lists and knows no words.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from textpriv.arguments import whole
from textpriv.arithmetic import (
    arctangent,
    eigenvectors,
    fixed_sum,
    lane_sum,
    principal_directions,
    row_products,
)
from textpriv.errors import MetricError

__all__ = [
    "METRICS",
    "Angular",
    "CallableMetric",
    "Chebyshev",
    "Euclidean",
    "Graph",
    "Mahalanobis",
    "Manhattan",
    "Metric",
    "Projection",
    "Rounding",
    "UnitEuclidean",
    "check_metric",
    "distances_from",
    "get_metric",
    "is_builtin",
    "paired_distances",
    "pairwise_distances",
    "row_distance",
]

# Codes of the compiled distances. A metric that is Euclidean after a change of coordinates shares the first. That of a tree
# is no function of two rows alone: it stands with the tree. The coordinates of a word in a graph are its own number and its
# distances to all words.
EUCLIDEAN, MANHATTAN, CHEBYSHEV, ANGULAR, GRAPH, INTERPRETED, TREE = 0, 1, 2, 3, 4, -1, -2

# Whole tables and numbers of rows: a row cut out of a table in a compiled loop is counted as a reference, once more and once
# less, and that would take longer than a short distance. Columns are unsigned so that none is taken from the end, which
# would keep the compiler from taking many at a time.


@njit(cache=True, nogil=True)
def row_distance(kind: int, a: NDArray[Any], i: int, b: NDArray[Any], j: int) -> float:
    """Distance between row i of ``a`` (m, n) and row j of ``b`` (p, n), in float64 by direct differences.

    The same number on every processor (see :mod:`textpriv.arithmetic`): draws, lists and groups of words hang on it.
    """
    if kind == MANHATTAN:
        return lane_sum("absolute", a, i, b, j)  # type: ignore[call-arg]
    if kind == GRAPH:
        return np.float64(a[i, 1 + np.int64(b[j, 0])])
    if kind == CHEBYSHEV:
        largest = 0.0
        for c in range(np.uint64(a.shape[1])):
            largest = max(largest, abs(np.float64(a[i, c]) - np.float64(b[j, c])))
        return largest
    if kind == ANGULAR:
        # Kahan's form keeps its digits at every angle: arccos of an inner product loses half of them near 0 and pi, the
        # arcsine of half the chord near pi.
        sums: tuple[float, float] = lane_sum("both", a, i, b, j)  # type: ignore[call-arg]
        return 2.0 * arctangent(np.sqrt(sums[0]), np.sqrt(sums[1]))
    return np.sqrt(lane_sum("squares", a, i, b, j))  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def distances_from(
    kind: int, coordinates: NDArray[Any], row: int, out: NDArray[np.float64]
) -> None:
    """Write the distances from one row to every row into ``out`` (shape (V,))."""
    for j in range(coordinates.shape[0]):
        out[j] = row_distance(kind, coordinates, row, coordinates, j)
    out[row] = 0.0


@njit(cache=True, nogil=True)
def paired_distances(
    kind: int, coordinates: NDArray[Any], first: NDArray[Any], second: NDArray[Any]
) -> NDArray[np.float64]:
    """Distances between the rows of two arrays of row numbers, pair by pair."""
    out = np.empty(first.shape[0])
    for place in range(first.shape[0]):
        out[place] = row_distance(kind, coordinates, first[place], coordinates, second[place])
    return out


class Rounding(NamedTuple):
    """How far the distances that are computed may lie from those of the vectors that were given (mechanisms.md TEM-11).

    Attributes
    ----------
    relative : float
        The part of a distance by which arithmetic, and the precision in which it is stored, may move it.
    absolute : float
        A distance by which the rounding of two words' coordinates may move it besides; 0 where the coordinates are the
        vectors themselves.
    """

    relative: float
    absolute: float

    def at(self, reach: float) -> float:
        """Bound on the error of any distance up to ``reach``."""
        return self.relative * reach + self.absolute


class Metric(ABC):
    """A true metric on vectors: symmetric, zero on the diagonal, with the triangle inequality.

    Attributes
    ----------
    name : str
        The name by which :func:`get_metric` finds it and an index records it.
    kind : int
        Code of the compiled distance on :meth:`coordinates`; negative for an interpreted callable and for a tree.
    """

    name: str
    kind: int

    @abstractmethod
    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Coordinates, shape (V, n'), on which the compiled distance equals this metric.

        Raises
        ------
        MetricError
            If the vectors do not suit the metric.
        """

    @abstractmethod
    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Bounds on what the rounding of each row's coordinates adds to a distance, shape (V,).

        The distance between the coordinates of two words, in exact arithmetic, lies within the sum of their two bounds from
        the distance between their vectors.
        """

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
        """Distances between all rows of ``a`` (m, n) and ``b`` (p, n) as an (m, p) float64 array."""
        left = np.atleast_2d(np.asarray(a, dtype=np.float64))
        right = np.atleast_2d(np.asarray(b, dtype=np.float64))
        # Together, since coordinates may be taken about a centre of the rows.
        both = self.coordinates(np.concatenate([left, right]))
        return pairwise_distances(self.kind, both[: len(left)], both[len(left) :])

    @property
    def unit(self) -> str:
        """The distance that a statement is in units of."""
        return f"{self.name} distance"

    def settings(self) -> dict[str, Any]:
        """What an index must record to rebuild this metric: JSON types only."""
        return {"name": self.name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@njit(cache=True, nogil=True)
def pairwise_distances(kind: int, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Distances between all coordinate rows of ``a`` (m, n) and ``b`` (p, n), shape (m, p)."""
    out = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            out[i, j] = row_distance(kind, a, i, b, j)
    return out


class _Plain(Metric):
    """A metric computed on the vectors as they are."""

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the vectors themselves, without a copy."""
        return vectors

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return zeros: nothing was rounded."""
        return np.zeros(len(vectors))


class Euclidean(_Plain):
    """The length of the difference."""

    name, kind = "euclidean", EUCLIDEAN


class Manhattan(_Plain):
    """The sum of absolute differences."""

    name, kind = "manhattan", MANHATTAN


class Chebyshev(_Plain):
    """The largest absolute difference."""

    name, kind = "chebyshev", CHEBYSHEV


class UnitEuclidean(Metric):
    """Euclidean distance between vectors scaled to length one: a metric that orders words as cosine does."""

    name, kind = "unit_euclidean", EUCLIDEAN

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the vectors over their lengths; zero vectors are refused."""
        wide = vectors.astype(np.float64, copy=False)
        peaks = np.abs(wide).max(axis=1, initial=0.0)
        zero = np.flatnonzero(peaks == 0)
        if zero.size:
            raise MetricError(
                f"the metric {self.name!r} compares directions, and {zero.size} vectors are zero and have none; the "
                f"first is row {zero[0] + 1}. Remove those words, or use metric='euclidean'."
            )
        # A power of two rounds nothing, and no square of what is left leaves the range.
        wide = np.ldexp(wide, -np.frexp(peaks)[1][:, None])
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        return np.ascontiguousarray(wide.astype(vectors.dtype, copy=False))

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return the rounding of a unit vector: of its length and division, and of the precision in which it is stored."""
        stored = float(np.finfo(vectors.dtype).eps) / 2
        return np.full(len(vectors), 1.01 * (stored + (vectors.shape[1] + 6) * 2.0**-53))


class Angular(UnitEuclidean):
    """The angle between two vectors, in radians (0 to pi): arccos of the cosine similarity, which is a metric."""

    name, kind = "angular", ANGULAR

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return what the rounding of unit vectors adds to an angle."""
        # Half the angle is that of the point (|x + y|, |x - y|), which lies at distance 2 from the origin; errors e and e'
        # of the vectors move it by at most sqrt(2) (e + e').
        return 1.5 * super().coordinate_errors(vectors)


class Mahalanobis(Metric):
    """``sqrt((x - y)' M (x - y))`` for a given symmetric positive semi-definite matrix.

    Parameters
    ----------
    matrix : array_like, shape (n, n)
        Public: it must not have been learned from the text to be privatized. A singular matrix gives distance 0 to
        some different words, which the mechanisms then treat as one.

    Notes
    -----
    The distance is that of a factor L with ``M = L L'`` up to rounding: what is a zero eigenvalue but for the rounding of
    the matrix counts as zero.
    """

    name, kind = "mahalanobis", EUCLIDEAN

    def __init__(self, matrix: ArrayLike) -> None:
        given = np.asarray(matrix, dtype=np.float64)
        if given.ndim != 2 or given.shape[0] != given.shape[1] or not np.isfinite(given).all():
            raise MetricError(
                f"a Mahalanobis matrix must be square and finite; got shape {given.shape}. Give an (n, n) array."
            )
        scale = max(float(np.abs(given).max()), np.finfo(float).tiny)
        if np.abs(given - given.T).max() > 1e-10 * scale:
            raise MetricError("a Mahalanobis matrix must be symmetric; give (M + M.T) / 2.")
        self.matrix = (given + given.T) / 2
        # Of this library: the last digits of those of a linear algebra hang on the processor, and draws on them.
        values, basis = eigenvectors(self.matrix)
        if values.min() < -1e-10 * scale:
            raise MetricError(
                f"a Mahalanobis matrix must be positive semi-definite; its least eigenvalue is {values.min():.3g}. "
                "With a negative eigenvalue the square root is not a distance."
            )
        least = len(given) * np.finfo(float).eps * max(float(values.max()), 0.0)
        self._factor = basis * np.sqrt(np.where(values > least, values, 0.0))

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return ``(vectors - c) @ L`` in float64, with ``M = L L'``, in which the metric is Euclidean.

        The centre c, the median of every column, changes no distance. Far from the origin, or in the precision of float32
        vectors, products would be rounded by more than the distances between them.
        """
        if vectors.shape[1] != self._factor.shape[0]:
            raise MetricError(
                f"the Mahalanobis matrix is {self._factor.shape[0]} x {self._factor.shape[0]} but the vectors have "
                f"{vectors.shape[1]} dimensions. Give a matrix of the vectors' dimension."
            )
        return row_products(_centred(vectors), np.ascontiguousarray(self._factor.T))

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return bounds on the rounding of the difference from the centre and of the product with the factor."""
        unit = 1.01 * (vectors.shape[1] + 3) * 2.0**-53
        lengths: NDArray[np.float64] = np.linalg.norm(_centred(vectors), axis=1)
        return unit * math.sqrt(fixed_sum(self._factor**2)) * lengths

    def settings(self) -> dict[str, Any]:
        """Return the name and the matrix as nested lists."""
        return {"name": self.name, "matrix": self.matrix.tolist()}


class Projection(Metric):
    """Euclidean distance of vectors after public maps that lengthen no distance: norms clipped, then few directions kept.

    Parameters
    ----------
    directions : array_like, shape (k, n)
        Rows on which vectors are projected, orthonormal or shorter: scaled down where they could lengthen a vector. Public.
    base : str
        "euclidean", or "unit_euclidean" to scale vectors to length one first.
    radius : float, optional
        Longer vectors are scaled to this length first.

    Notes
    -----
    With ``f`` the whole map, ``|f(x) - f(y)| <= d(x, y)`` for the base metric d: the projection on a ball is one on a closed
    convex set, hence 1-Lipschitz, and ``|A v| <= |v|`` where the largest eigenvalue of ``A A'`` is at most 1, which its
    largest row sum of absolute values bounds (Gershgorin). So a loss of at most ``epsilon |f(x) - f(y)|`` is one of at most
    ``epsilon d(x, y)``, and over unit vectors of at most epsilon times the angle, which no chord exceeds. Vectors are not
    scaled to length one after the projection, which could lengthen distances (mechanisms.md 10.5).
    """

    name, kind = "projection", EUCLIDEAN

    def __init__(
        self, directions: ArrayLike, *, base: str = "euclidean", radius: float | None = None
    ) -> None:
        given = np.array(directions, dtype=np.float64)
        if given.ndim != 2 or not given.size or not np.isfinite(given).all():
            raise MetricError(
                f"directions are rows (k, n) of finite numbers; got shape {given.shape}."
            )
        if base not in ("euclidean", "unit_euclidean"):
            raise MetricError(
                f"a projection keeps the promise of 'euclidean' or 'unit_euclidean' distances, not of {base!r}."
            )
        if radius is not None and not 0 < radius < math.inf:
            raise MetricError(f"radius is a length above 0; got {radius}.")
        largest = float(np.abs(row_products(given, given)).sum(axis=1).max())
        if largest > 1:
            given /= math.sqrt(largest)
        self.directions, self.base, self.radius = given, base, radius

    @classmethod
    def principal(
        cls,
        vectors: NDArray[Any],
        dimensions: int,
        *,
        base: str = "euclidean",
        radius: float | None = None,
    ) -> Projection:
        """The projection on the directions in which public vectors (V, n) vary most.

        Raises
        ------
        MetricError
            Where there are not so many dimensions.
        """
        size = vectors.shape[1]
        if whole("projection", dimensions, error=MetricError) > size:
            raise MetricError(
                f"a projection is on 1 to {size} of its directions; got {dimensions}."
            )
        plain = cls(np.eye(size), base=base, radius=radius)
        directions = principal_directions(plain._clipped(vectors))[:dimensions]
        return cls(directions, base=base, radius=radius)

    @property
    def unit(self) -> str:
        """The distance that a statement is in units of, and the one that it bounds as well."""
        return (
            f"{self.base} distance after a projection on {len(self.directions)} directions, and so per unit of {self.base} "
            "distance, which is never shorter"
        )

    def _clipped(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        # In float64, so that unit vectors are not rounded to the precision of short ones; a copy, to be scaled.
        rows = np.array(get_metric(self.base).coordinates(vectors.astype(np.float64)))
        if self.radius is not None:
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            rows *= np.minimum(1.0, self.radius / np.maximum(lengths, np.finfo(float).tiny))
        return rows

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the mapped vectors about a centre, in float64; see :meth:`Mahalanobis.coordinates`."""
        if vectors.shape[1] != self.directions.shape[1]:
            raise MetricError(
                f"the directions have {self.directions.shape[1]} dimensions but the vectors {vectors.shape[1]}. Build "
                "the projection from these vectors."
            )
        return row_products(_centred(self._clipped(vectors)), self.directions)

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return bounds on the rounding of scaling, centring and the product with the directions."""
        rows = self._clipped(vectors)
        unit = 1.01 * (vectors.shape[1] + 6) * 2.0**-53
        # The directions lengthen no error of what they are applied to.
        before = get_metric(self.base).coordinate_errors(vectors.astype(np.float64))
        if self.radius is not None:
            before = before + 2 * unit * np.linalg.norm(rows, axis=1)
        lengths: NDArray[np.float64] = np.linalg.norm(_centred(rows), axis=1)
        return before + unit * math.sqrt(fixed_sum(self.directions**2)) * lengths

    def settings(self) -> dict[str, Any]:
        """Return the name and all parameters."""
        clip = {} if self.radius is None else {"radius": self.radius}
        return {
            "name": self.name,
            "base": self.base,
            **clip,
            "directions": self.directions.tolist(),
        }


def _centred(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The rows about the median of every column, which a few far words do not move."""
    wide = vectors.astype(np.float64, copy=False)
    return wide - np.median(wide, axis=0)


class Graph(Metric):
    """Shortest paths in the graph that joins each word to its nearest neighbours under another metric.

    Parameters
    ----------
    neighbours : int
        Two words are joined where one of them is among so many nearest of the other (ties by id); then each group of words
        that no path leaves is joined to the word nearest to it, until all are connected.
    base : str, dict or Metric
        By which words are neighbours; its name, settings or object. Not a callable.
    edges : {"distance", "hops"}
        An edge is as long as its words are apart under ``base``, or 1.

    Notes
    -----
    The least sum of nonnegative lengths over the paths of an undirected connected graph is finite, symmetric, 0 from a word
    to itself, and two paths make a third: a pseudo-metric on the words, and words at distance 0 share their law. Lengths are
    rounded up to whole steps of a power of two, of which float32 holds every sum of a shortest path, so distances are exact
    and the triangle inequality holds to the last digit. With ``edges="distance"`` no distance is below that of ``base``: a
    promise of epsilon per unit of ``base`` is one per unit of this metric, and not the other way round. The distance belongs
    to the whole vocabulary, so it is found where an index is built (``index.shortest_paths``).
    """

    name, kind = "graph", GRAPH

    def __init__(
        self,
        neighbours: int = 8,
        *,
        base: str | dict[str, Any] | Metric = "euclidean",
        edges: str = "distance",
    ) -> None:
        neighbours = whole("neighbours", neighbours, error=MetricError)
        if edges not in ("distance", "hops"):
            raise MetricError(f"edges are as long as a 'distance' or count 'hops'; got {edges!r}.")
        # Settings of a graph in one without end are refused before they are followed.
        inner = base.get("name") if isinstance(base, dict) else getattr(base, "name", base)
        if inner == self.name or isinstance(base, CallableMetric):
            raise MetricError(
                f"neighbours are found under one of {', '.join(METRICS)}; got {inner!r}."
            )
        self.neighbours, self.base, self.edges = neighbours, get_metric(base), edges

    @property
    def unit(self) -> str:
        """The distance that a statement is in units of."""
        length = f"{self.base.name} distance" if self.edges == "distance" else "number of steps"
        return (
            f"{length} along the shortest path over each word's {self.neighbours} nearest neighbours by "
            f"{self.base.name} distance"
        )

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Refused: no vector has a place in a graph by itself."""
        raise MetricError(
            "a distance in a graph belongs to all words of a vocabulary: build Index.build(vocabulary, metric=Graph(8)) and "
            "ask the index for it."
        )

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return zeros: the graph is what its rounded lengths make it."""
        return np.zeros(len(vectors))

    def settings(self) -> dict[str, Any]:
        """Return the name and all parameters."""
        parameters = {"neighbours": self.neighbours, "edges": self.edges}
        return {"name": self.name, **parameters, "base": self.base.settings()}


class CallableMetric(Metric):
    """A metric of the user's own.

    Parameters
    ----------
    function : callable
        Takes two float64 arrays (m, n) and (p, n) and returns their (m, p) distances.
    name : str
        Recorded with the index; loading the index again needs the same object.

    Notes
    -----
    :func:`check_metric` runs on a sample whenever an index is built with it. A sample can refute a metric but not
    prove one: a statement made with such a metric lists the metric property among its assumptions.
    """

    kind = INTERPRETED

    def __init__(
        self, function: Callable[[NDArray[np.float64], NDArray[np.float64]], ArrayLike], name: str
    ) -> None:
        if not callable(function):
            raise MetricError(
                f"a callable metric needs a function of two arrays; got {type(function)}."
            )
        self.function = function
        self.name = f"callable:{name}"

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the vectors themselves."""
        return vectors

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return what sums over the columns would round, for want of knowledge of the function."""
        return 2.0**-52 * (vectors.shape[1] + 4) * np.abs(vectors).sum(axis=1, dtype=np.float64)

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
        """Distances by the user's function, checked for shape and finiteness."""
        left = np.atleast_2d(np.asarray(a, dtype=np.float64))
        right = np.atleast_2d(np.asarray(b, dtype=np.float64))
        out = np.asarray(self.function(left, right), dtype=np.float64)
        if out.shape != (len(left), len(right)):
            raise MetricError(
                f"the metric {self.name!r} returned shape {out.shape} for {len(left)} by {len(right)} rows; it must "
                "return one distance for every pair."
            )
        if not np.isfinite(out).all():
            raise MetricError(f"the metric {self.name!r} returned a distance that is not finite.")
        return out

    def __repr__(self) -> str:
        return f"CallableMetric({self.name!r})"


METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (Euclidean, Angular, Manhattan, Chebyshev, UnitEuclidean, Mahalanobis, Projection)
}

_NOT_METRICS = {
    "cosine": (
        "1 - cosine breaks the triangle inequality (unit vectors at 0, 45 and 90 degrees: 1 > 0.29 + 0.29), so the "
        "guarantee would be void. Use metric='angular' (the angle) or 'unit_euclidean'; both order words as cosine does"
    ),
    "sqeuclidean": (
        "squared distances break the triangle inequality (0, 1, 2 on a line: 4 > 1 + 1). Use metric='euclidean'"
    ),
    "dot": (
        "an inner product is not a distance: it is neither zero on the diagonal nor bounded below. "
        "Use metric='euclidean' or 'angular'"
    ),
}
_ALIASES = {
    "l2": "euclidean",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "linf": "chebyshev",
    "normalized_euclidean": "unit_euclidean",
    "cosine_distance": "cosine",
    "cosine_similarity": "cosine",
    "squared_euclidean": "sqeuclidean",
    "l2_squared": "sqeuclidean",
    "euclidean_squared": "sqeuclidean",
    "ip": "dot",
    "inner_product": "dot",
    "dot_product": "dot",
}


def get_metric(metric: str | Metric | dict[str, Any]) -> Metric:
    """Return the metric of a name, of recorded settings, or the object itself.

    Raises
    ------
    MetricError
        For an unknown name, and for a distance that is not a metric, with the reason.
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, dict):
        options = {key: value for key, value in metric.items() if key != "name"}
        name = str(metric.get("name"))
    else:
        name, options = str(metric).lower().replace("-", "_"), {}
    name = _ALIASES.get(name, name)
    if name in _NOT_METRICS:
        raise MetricError(f"{metric!r} is not a metric: {_NOT_METRICS[name]}.")
    if name == "mahalanobis" and not options:
        raise MetricError(
            "the Mahalanobis metric needs its matrix: textpriv.metrics.Mahalanobis(matrix)."
        )
    if name == "projection" and not options:
        raise MetricError(
            "a projection needs its directions: Index.build(vocabulary, projection=16), or textpriv.metrics.Projection."
        )
    if name.startswith("callable:"):
        raise MetricError(
            f"the index was built with the user's metric {name!r}; pass the same CallableMetric object as metric=."
        )
    if name == "tree":
        raise MetricError("the distance of a tree belongs to its words: build a textpriv.Tree.")
    if name == Graph.name:
        return Graph(**options)
    if name not in METRICS:
        raise MetricError(
            f"unknown metric {name!r}; known: {', '.join(METRICS)}, {Graph.name}, or a CallableMetric."
        )
    return METRICS[name](**options)


def is_builtin(metric: Metric) -> bool:
    """Whether a metric's settings say all of it, as those of this library do; a user's own is known by its name only."""
    return metric.kind != INTERPRETED


def check_metric(metric: Metric, vectors: NDArray[Any], *, sample: int = 96, seed: int = 0) -> None:
    """Test the metric axioms on all triples of a sample of rows.

    Parameters
    ----------
    metric : Metric
        The distance to test.
    vectors : ndarray, shape (V, n)
        Rows to sample from.
    sample : int
        How many rows to take; all triples among them are tested.
    seed : int
        Of the public sample.

    Raises
    ------
    MetricError
        Naming the axiom that fails, the rows and by how much.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(vectors), size=min(sample, len(vectors)), replace=False))
    d = metric.pairwise(vectors[rows], vectors[rows])
    tolerance = 1e-6 * max(float(np.abs(d).max()), 1e-300)

    def refuse(axiom: str, where: tuple[int, ...], excess: float) -> None:
        named = ", ".join(str(int(rows[i])) for i in where)
        raise MetricError(
            f"{metric.name!r} is not a metric: {axiom} fails at rows {named} by {excess:.3g}. No guarantee can be "
            "stated for it; use a true metric."
        )

    if d.min() < 0:
        refuse(
            "non-negativity",
            tuple(int(i) for i in np.unravel_index(d.argmin(), d.shape)),
            -float(d.min()),
        )
    if np.abs(np.diag(d)).max() > tolerance:
        worst = int(np.abs(np.diag(d)).argmax())
        refuse("d(x, x) = 0", (worst,), float(abs(d[worst, worst])))
    asymmetry = np.abs(d - d.T)
    if asymmetry.max() > tolerance:
        refuse(
            "symmetry",
            tuple(int(i) for i in np.unravel_index(asymmetry.argmax(), d.shape)),
            float(asymmetry.max()),
        )
    for middle in range(len(d)):
        excess = d - (d[:, middle, None] + d[None, middle, :])
        if excess.max() > tolerance:
            i, j = np.unravel_index(excess.argmax(), d.shape)
            refuse("the triangle inequality", (int(i), middle, int(j)), float(excess.max()))
