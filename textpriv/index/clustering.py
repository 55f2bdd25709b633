"""Trees found in public vectors: agglomerative clustering and bisecting k-means, and the heights of what they join.

Each method gives merges: which two clusters were joined, and how far apart they were. What comes out is an order of the
words and the number of a height between each two neighbours in it; ``tree`` says what that means. Clusterings are public,
computed once and saved: nothing here need be the same on every processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import principal_directions
from textpriv.errors import MetricError, TextprivError
from textpriv.index.folder import LEVELS
from textpriv.index.tree import cut_levels
from textpriv.index.tree_nodes import TreeMetric
from textpriv.metrics import EUCLIDEAN, Metric, get_metric
from textpriv.vocabulary.vocabulary import Vocabulary, equal_rows

__all__ = ["METHODS", "Built", "built", "separated_shares"]

METHODS = ("ward", "average", "complete", "single", "kmeans")
_PAIRS = 50_000  # words up to which methods that compare all pairs are taken
_LEAF = 1024  # words below which bisecting ends and Ward's method begins
_CELLS = 1 << 24  # products held at a time
_STEPS = 4  # of Lloyd's algorithm at each bisection
_NEAREST, _SAMPLE = 10, 1000  # neighbours that are looked for, and words for which they are

Report = Callable[[str], Callable[[int, int], None] | None]
# Two clusters each, the words first and then what was joined, in an order in which parts stand before wholes; and distances.
Merges = tuple[NDArray[np.int64], NDArray[np.float64]]


class Built(NamedTuple):
    """What :class:`textpriv.index.tree.Tree` is made from."""

    arrays: dict[str, Any]
    labels: dict[str, Any]


def built(
    vocabulary: Vocabulary,
    method: str,
    heights: str,
    groups: Mapping[str, int] | None,
    metric: str | Metric,
    dimensions: int | None,
    report: Report,
) -> Built:
    """Cluster a vocabulary; see :meth:`textpriv.index.tree.Tree.build`."""
    size = len(vocabulary)
    if method == "auto":
        method = "ward" if size <= _PAIRS else "kmeans"
    if method not in METHODS:
        raise TextprivError(f"unknown method {method!r}; use auto, {', '.join(METHODS)}.")
    if heights not in ("distance", "rank", "levels"):
        raise TextprivError(f"unknown heights {heights!r}; use distance, rank or levels.")
    if (heights == "levels") != (groups is not None):
        raise TextprivError(
            "heights='levels' and groups={'synonyms': 5000, 'kind': 500} go together: give both or none."
        )
    if method != "kmeans" and size > _PAIRS:
        raise TextprivError(
            f"method={method!r} compares all pairs of up to {_PAIRS:,} words; this vocabulary has {size:,}. Use "
            "method='kmeans'."
        )
    chosen = get_metric(metric)
    if chosen.kind != EUCLIDEAN:
        raise MetricError(
            f"words are clustered in Euclidean space, and the metric is {chosen.name!r}. Use 'unit_euclidean'."
        )
    if dimensions is not None and (method == "single" or dimensions < 1):
        raise TextprivError(
            "dimensions is a whole number from 1 up, and not for single linkage, whose promise is of the whole distance."
        )
    coordinates = chosen.coordinates(vocabulary.vectors)
    one = equal_rows(coordinates)
    rows, number = np.unique(one, return_inverse=True)
    points = coordinates if len(rows) == size else coordinates[rows]
    space = _space(points, dimensions)
    if len(rows) == 1:
        merges: Merges = np.empty((0, 2), np.int64), np.empty(0)
    elif method == "single":
        merges = _single(space, points, chosen.coordinate_errors(vocabulary.vectors).max())
    elif method == "kmeans":
        merges = _bisected(space, report("bisections"))
    elif method == "ward":
        merges = _ward(space, report("groups joined"))
    else:
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist

        found = linkage(pdist(space), method)
        merges = found[:, :2].astype(np.int64), found[:, 2]
    order, gaps = _laid_out(*merges)
    if heights == "rank":
        gaps = _ranks(gaps)
    # Words with one vector stand side by side, at distance 0.
    members = np.argsort(number, kind="stable")
    counts = np.bincount(number)
    begins = np.cumsum(counts) - counts
    words = np.concatenate([members[begins[at] : begins[at] + counts[at]] for at in order.tolist()])
    wide = np.zeros(size - 1)
    wide[np.cumsum(counts[order])[:-1] - 1] = gaps
    names: list[str] = []
    if heights == "levels":
        assert groups is not None
        codes, names = cut_levels(wide, groups)
        values = np.arange(1.0, len(names) + 1)
    else:
        codes, values = _rounded_down(wide, even=heights == "rank")
    looked, shares = separated_shares(coordinates, words, codes, len(values), one)
    below = chosen.name if method == "single" and heights == "distance" else None
    title = f"{method} clustering of {size:,} {chosen.name} vectors"
    if dimensions is not None:
        title += f" in {dimensions} directions"
    return Built(
        {"order": words, "gaps": codes, "heights": values},
        {"names": names, "source": title, "below": below, "separated": (looked, shares)},
    )


def _space(points: NDArray[Any], dimensions: int | None) -> NDArray[np.float32]:
    """Points about their mean, in single precision, perhaps in their principal directions only."""
    centre = points.mean(axis=0, dtype=np.float64)
    if dimensions is not None and dimensions < points.shape[1]:
        sample = points[:: max(1, len(points) // 20_000)]
        axes = principal_directions(sample)[:dimensions]
        return np.ascontiguousarray(((points - centre) @ axes.T).astype(np.float32))
    return np.ascontiguousarray((points - centre).astype(np.float32))


# ----------------------------------------------------------------------------------------------
# Merges
# ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _nearest_of(
    products: NDArray[np.float32],
    rows: NDArray[np.int64],
    squares: NDArray[np.float32],
    sizes: NDArray[np.float32],
    nearest: NDArray[np.int64],
    distance: NDArray[np.float32],
) -> None:
    """The cluster that Ward's method would join to each of some, and its squared distance."""
    for step in range(rows.shape[0]):
        row = rows[step]
        best, at = np.float32(np.inf), -1
        for other in range(squares.shape[0]):
            apart = squares[row] + squares[other] - np.float32(2.0) * products[step, other]
            cost = apart * (sizes[other] / (sizes[row] + sizes[other]))
            if cost < best and other != row:
                best, at = cost, other
        nearest[row], distance[row] = at, best * sizes[row]


def _ward(
    points: NDArray[np.float32], progress: Callable[[int, int], None] | None = None
) -> Merges:
    """Ward's method by pairs that are each other's nearest, all of them in one round, from products of matrices.

    Joining such a pair changes nobody's nearest but theirs (the method is reducible: Bruynooghe 1977), so any order of them
    gives the same tree, and only rows whose nearest was joined are looked at again. Memory is linear in the words.
    """
    total = len(points)
    centres, sizes = points.copy(), np.ones(total, dtype=np.float32)
    label = np.arange(total)
    nearest, distance = np.full(total, -1), np.zeros(total, dtype=np.float32)
    stale = np.arange(total)
    pairs, apart = [], []
    made = total
    while (count := len(centres)) > 1:
        squares = np.einsum("ij,ij->i", centres, centres)
        step = max(1, _CELLS // count)
        for begin in range(0, len(stale), step):
            rows = stale[begin : begin + step]
            _nearest_of(centres[rows] @ centres.T, rows, squares, sizes, nearest, distance)
        here = np.arange(count)
        mutual = nearest[nearest] == here
        first = np.flatnonzero(mutual & (here < nearest))
        if not len(first):  # rounding has closed a circle of equal distances
            first = np.array([int(distance.argmin())])
        second = nearest[first]
        wide = [centres[side].astype(np.float64) for side in (first, second)]
        weights = [sizes[side].astype(np.float64) for side in (first, second)]
        both = weights[0] + weights[1]
        factor = 2 * weights[0] * weights[1] / both
        apart.append(np.sqrt(factor * ((wide[0] - wide[1]) ** 2).sum(axis=1)))
        pairs.append(np.stack([label[first], label[second]], axis=1))
        centres[first] = (wide[0] * weights[0][:, None] + wide[1] * weights[1][:, None]) / both[
            :, None
        ]
        sizes[first] = both
        label[first] = made + np.arange(len(first))
        made += len(first)
        gone = np.zeros(count, dtype=np.bool_)
        gone[second] = True
        changed = gone.copy()
        changed[first] = True
        lost = changed | changed[nearest]
        moved = np.cumsum(~gone) - 1
        kept = ~gone
        centres, sizes, label, distance = centres[kept], sizes[kept], label[kept], distance[kept]
        nearest = moved[nearest[kept]]
        stale = np.flatnonzero(lost[kept])
        if progress:
            progress(total - len(centres), total - 1)
    return np.concatenate(pairs), np.concatenate(apart)


def _single(points: NDArray[np.float32], given: NDArray[Any], coarse: float) -> Merges:
    """Single linkage by Boruvka's rounds: every group but the largest finds the word nearest to it outside.

    Distances are rounded down by more than single precision, and the coordinates, can have made of them, in every round:
    no distance in the tree exceeds the one between the vectors.
    """
    size = len(points)
    squares = np.einsum("ij,ij->i", points, points)
    group = np.arange(size)
    ends: list[tuple[int, int]] = []
    rounds = 0
    while (names := np.unique(group)).size > 1:
        rounds += 1
        counts = np.bincount(group, minlength=size)
        rows = np.flatnonzero(group != counts.argmax())
        best = np.full(size, np.inf)
        edge = np.zeros((size, 2), dtype=np.int64)
        step = max(1, _CELLS // size)
        for begin in range(0, len(rows), step):
            part = rows[begin : begin + step]
            least, at = _outside(points[part] @ points.T, part, squares, group)
            for word, apart, other in zip(part.tolist(), least.tolist(), at.tolist(), strict=True):
                if apart < best[group[word]]:
                    best[group[word]], edge[group[word]] = apart, (word, other)
        parent = np.arange(size)

        def top(name: int, parent: NDArray[np.int64] = parent) -> int:
            while parent[name] != name:
                parent[name] = parent[parent[name]]
                name = int(parent[name])
            return name

        for name in names[np.argsort(best[names], kind="stable")].tolist():
            if np.isfinite(best[name]):
                first, second = edge[name].tolist()
                a, b = top(int(group[first])), top(int(group[second]))
                if a != b:
                    parent[a] = b
                    ends.append((first, second))
        group = np.array([top(int(name)) for name in group])
    pairs = np.array(ends)
    apart = np.sqrt(((given[pairs[:, 0]].astype(np.float64) - given[pairs[:, 1]]) ** 2).sum(axis=1))
    # Of a squared distance, by products and sums in single precision; each round may choose wrongly by twice as much.
    slack = 8.0 * (points.shape[1] + 8) * 2.0**-24 * float(squares.max()) * rounds
    lower = np.sqrt(np.maximum(apart**2 * (1 - 1e-6) - slack, 0.0)) - 2 * coarse
    # Words that rounding cannot tell apart are one; all others keep a distance, however small.
    least = np.where(apart > 3 * coarse, np.finfo(np.float32).tiny, 0.0)
    apart = np.where(lower > 0, lower, np.minimum(apart, least))
    return _joined(pairs, apart, size)


@njit(cache=True, nogil=True)
def _outside(
    products: NDArray[np.float32],
    rows: NDArray[np.int64],
    squares: NDArray[np.float32],
    group: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """For some words the squared distance to the nearest of another group, and which it is."""
    least, at = np.full(rows.shape[0], np.inf), np.zeros(rows.shape[0], np.int64)
    for step in range(rows.shape[0]):
        row = rows[step]
        for other in range(squares.shape[0]):
            if group[other] != group[row]:
                apart = squares[row] + squares[other] - np.float32(2.0) * products[step, other]
                if apart < least[step]:
                    least[step], at[step] = apart, other
    return least, at


def _joined(pairs: NDArray[np.int64], apart: NDArray[np.float64], size: int) -> Merges:
    """Merges of a spanning tree: its edges from the shortest up."""
    parent, made = np.arange(2 * size - 1), size
    merges, rank = np.empty((size - 1, 2), np.int64), np.argsort(apart, kind="stable")
    for at, edge in enumerate(rank.tolist()):
        for side in (0, 1):
            name = int(pairs[edge, side])
            while parent[name] != name:
                parent[name] = parent[parent[name]]
                name = int(parent[name])
            merges[at, side] = name
        parent[merges[at]] = made
        made += 1
    return merges, apart[rank]


def _bisected(
    points: NDArray[np.float32], progress: Callable[[int, int], None] | None = None
) -> Merges:
    """Bisecting 2-means down to small groups, which Ward's method finishes; distances are Ward's all the way."""
    size = len(points)
    rows, where = points.copy(), np.arange(size)
    splits: list[tuple[int, int, int, float]] = []
    leaves: list[tuple[int, int]] = []
    waiting = [(0, size)]
    while waiting:
        begin, end = waiting.pop()
        if end - begin <= _LEAF:
            leaves.append((begin, end))
            continue
        part = rows[begin:end]
        right, apart = _halved(part)
        order = np.argsort(right, kind="stable")
        rows[begin:end], where[begin:end] = part[order], where[begin:end][order]
        middle = end - int(np.count_nonzero(right))
        splits.append((begin, middle, end, apart))
        waiting += [(begin, middle), (middle, end)]
    pairs, distances = [], []
    whole: dict[tuple[int, int], int] = {}
    made = size
    for done, (begin, end) in enumerate(leaves):
        if end - begin == 1:
            whole[begin, end] = int(where[begin])
            continue
        inner, apart_here = _ward(rows[begin:end])
        count = end - begin
        names = np.concatenate([where[begin:end], made + np.arange(count - 1)])
        pairs.append(names[inner])
        distances.append(apart_here)
        made += count - 1
        whole[begin, end] = made - 1
        if progress:
            progress(done + 1, len(leaves))
    for begin, middle, end, apart in reversed(splits):
        pairs.append(np.array([[whole[begin, middle], whole[middle, end]]]))
        distances.append(np.array([apart]))
        whole[begin, end] = made
        made += 1
    return np.concatenate(pairs), np.concatenate(distances)


def _halved(part: NDArray[np.float32]) -> tuple[NDArray[np.bool_], float]:
    """Which rows belong to the second of two clusters, both not empty, and Ward's distance of the two."""
    count = len(part)
    mean = part.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Two steps of the power method, from the row farthest out, point along the way in which the rows vary most.
    way = part[int(np.abs(part[:: max(1, count // 512)] @ mean - mean @ mean).argmax())] - mean
    for _ in range(2):
        along = part @ way - mean @ way
        way = along @ part - along.sum() * mean
        way /= max(float(np.linalg.norm(way)), 1e-30)
    right = part @ way > mean @ way
    for _ in range(_STEPS):
        if not 0 < (many := int(np.count_nonzero(right))) < count:
            right = np.arange(count) >= count // 2
            many = count - count // 2
        second = (right.astype(np.float32) @ part).astype(np.float64) / many
        first = (mean.astype(np.float64) * count - second * many) / (count - many)
        way = (second - first).astype(np.float32)
        closer = part @ way > float((second - first) @ (second + first)) / 2
        if np.array_equal(closer, right) or not 0 < np.count_nonzero(closer) < count:
            break
        right = closer
    many = int(np.count_nonzero(right))
    second = part[right].mean(axis=0, dtype=np.float64)
    first = part[~right].mean(axis=0, dtype=np.float64)
    return right, math.sqrt(2 * many * (count - many) / count) * float(
        np.linalg.norm(second - first)
    )


# ----------------------------------------------------------------------------------------------
# Heights
# ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _laid_out(
    pairs: NDArray[np.int64], apart: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Words in depth-first order, and the height between each two neighbours; no whole is lower than its parts."""
    joins = pairs.shape[0]
    size = joins + 1
    first, last = np.empty(size + joins, np.int64), np.empty(size + joins, np.int64)
    height = np.zeros(size + joins)
    after, gap = np.full(size, -1, np.int64), np.zeros(size)
    for word in range(size):
        first[word] = last[word] = word
    for join in range(joins):
        a, b = pairs[join, 0], pairs[join, 1]
        own = max(apart[join], height[a], height[b])
        after[last[a]], gap[last[a]] = first[b], own
        first[size + join], last[size + join], height[size + join] = first[a], last[b], own
    order, gaps = np.empty(size, np.int64), np.empty(max(joins, 0))
    word = first[size + joins - 1]
    for position in range(size):
        order[position] = word
        if position < joins:
            gaps[position] = gap[word]
        word = after[word]
    return order, gaps


def _ranks(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each height the logarithm of the mean size of the groups up to it, as a part of that of all words."""
    size = len(gaps) + 1
    left = size - np.searchsorted(np.sort(gaps), gaps, side="right")
    return np.log(size / left) / math.log(size)


def _rounded_down(
    gaps: NDArray[np.float64], *, even: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Numbers of at most 64 heights, each not above the height that it stands for, and those heights.

    Steps are equal, or equal in the logarithm from the lowest hundredth up.
    """
    positive = gaps[gaps > 0]
    if not len(positive):
        return np.zeros(len(gaps), np.uint8), np.empty(0)
    values = np.unique(positive)
    if len(values) > LEVELS:
        low = float(np.quantile(positive, 0.01, method="lower"))
        grid = (np.linspace if even else np.geomspace)(low, values[-1], LEVELS - 1)
        # A grid that rounding has moved past a height would round it up: take the heights themselves.
        at = np.minimum(np.searchsorted(values, grid * (1 - 1e-12)), len(values) - 1)
        values = np.unique(np.concatenate([values[:1], values[at], values[-1:]]))
    codes = np.searchsorted(values, gaps, side="right").astype(np.uint8)
    return codes, values


def separated_shares(
    coordinates: NDArray[Any],
    order: NDArray[np.int64],
    codes: NDArray[np.uint8],
    levels: int,
    one: NDArray[np.int32],
) -> tuple[int, list[float]]:
    """How many words were looked at, and the share of their ten nearest that lies outside their group, by height."""
    size = len(coordinates)
    apart = np.flatnonzero(one == np.arange(size))
    if levels == 0 or len(apart) <= 1:
        return 0, []
    chosen = apart[np.unique(np.linspace(0, len(apart) - 1, _SAMPLE).astype(np.int64))]
    nearest = min(_NEAREST, size - 1)
    position = np.empty(size, dtype=np.int64)
    position[order] = np.arange(size)
    metric = TreeMetric(codes, np.arange(1.0, levels + 1))
    squares = np.einsum("ij,ij->i", coordinates, coordinates)
    met = []
    for begin in range(0, len(chosen), 64):
        rows = chosen[begin : begin + 64]
        near = squares - 2 * (coordinates[rows] @ coordinates.T)
        near[np.arange(len(rows)), rows] = np.inf
        others = np.argpartition(near, nearest - 1, axis=1)[:, :nearest]
        met.append(metric.levels(np.repeat(position[rows], nearest), position[others].ravel()))
    levels_met = np.concatenate(met)
    return len(chosen), [float((levels_met > level).mean()) for level in range(1, levels + 1)]
