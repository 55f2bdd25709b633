"""Trees found in grid points: agglomerative clustering by SciPy, and few heights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.index.folder import LEVELS
from textpriv.index.grid import MANHATTAN, Grid

__all__ = ["METHODS", "clustered", "cut_levels", "rounded_down"]

METHODS = ("ward", "average", "complete", "single")

_WHOLE = 8192  # words whose distances are all compared: 270 MB
_GROUP = 2048  # words that k-means puts into a group, on average
_ROUNDS = 10  # of k-means

# Words in depth-first order, and the height between each two neighbours in it.
Laid = tuple[NDArray[np.int64], NDArray[np.float64]]


def clustered(grid: Grid, method: str, progress: Callable[[int, int], None] | None = None) -> Laid:
    """Cluster the points of a grid.

    More than 8,192 words are first split by k-means into groups of about 2,048; the method then joins the words of each
    group, and last the centres of the groups.

    Parameters
    ----------
    grid : Grid
    method : str
        One of :data:`METHODS`.
    progress : callable, optional
        Called with (words done, words in all).
    """
    if method not in METHODS:
        raise TextprivError(f"There is no method {method!r}. Use one of {', '.join(METHODS)}.")
    points = grid.points.astype(np.float64)
    kind = "cityblock" if grid.space == MANHATTAN else "euclidean"
    done = 0

    def joined(rows: NDArray[np.int64]) -> Laid:
        nonlocal done
        if len(rows) <= _WHOLE:
            order, gaps = _linked(points[rows], method, kind)
            done += len(rows)
            if progress:
                progress(done, len(points))
            return rows[order], gaps
        groups = _split(points, rows)
        parts = [joined(group) for group in groups]
        centres = np.stack([points[group].mean(axis=0) for group in groups])
        turns, between = _linked(centres, method, kind)
        order, gaps = parts[turns[0]]
        for turn, height in zip(turns[1:].tolist(), between.tolist(), strict=True):
            words, inside = parts[turn]
            # Groups stay together: they meet no lower than their own words do.
            height = max(height, inside.max(initial=0.0), parts[turns[0]][1].max(initial=0.0))
            order = np.concatenate([order, words])
            gaps = np.concatenate([gaps, [height], inside])
        return order, gaps

    order, gaps = joined(np.arange(len(points)))
    return order, gaps * grid.unit


def _linked(points: NDArray[np.float64], method: str, kind: str) -> Laid:
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import pdist

    size = len(points)
    if size == 1:
        return np.zeros(1, np.int64), np.empty(0)
    merges = linkage(pdist(points, kind), method)
    order = leaves_list(merges).astype(np.int64)
    first = np.concatenate([np.argsort(order), np.zeros(size - 1, np.int64)])
    last = first.copy()
    gaps = np.zeros(size - 1)
    for number, (a, b, height, _) in enumerate(merges.tolist(), start=size):
        left, right = sorted((int(a), int(b)), key=first.__getitem__)
        gaps[last[left]] = height
        first[number], last[number] = first[left], last[right]
    return order, gaps


def _split(points: NDArray[np.float64], rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Groups of rows by k-means, two or more."""
    from scipy.cluster.vq import kmeans2

    count = -(-len(rows) // _GROUP)
    start = np.random.default_rng(0).choice(rows, size=count, replace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of groups that end up without words
        _, label = kmeans2(points[rows], points[start], minit="matrix", iter=_ROUNDS)
    groups = [rows[label == each] for each in np.unique(label)]
    return groups if len(groups) > 1 else np.array_split(rows, count)


# Heights


def cut_levels(
    gaps: NDArray[np.float64], groups: Mapping[str, int]
) -> tuple[NDArray[np.uint8], list[str]]:
    """Numbers of levels between neighbouring leaves for heights between them, shape (V - 1,), and the levels' names.

    Levels that end up without a leaf between them are left out.
    """
    named = dict(groups)
    if not all(type(number) is int and number >= 1 for number in named.values()):
        raise TextprivError("Each level has a whole number of groups from 1 up.")
    if 1 not in named.values():
        named["any"] = 1
    ordered = sorted(named.items(), key=lambda each: -each[1])
    if len(set(named.values())) != len(named) or len(named) > LEVELS:
        raise TextprivError(
            f"Levels must have different numbers of groups, and be at most {LEVELS}."
        )
    falling = -np.sort(-gaps)
    codes = np.where(gaps > 0, 1, 0).astype(np.uint8)
    for number, (_, count) in enumerate(ordered[:-1], start=2):
        # Above the height with which so many groups are left, words are apart; ties leave fewer groups.
        codes[gaps > (falling[count - 1] if count <= len(gaps) else 0)] = number
    used, number_of = np.unique(codes[codes > 0], return_inverse=True)
    codes[codes > 0] = number_of + 1
    return codes, [ordered[level - 1][0] for level in used.tolist()]


def rounded_down(gaps: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Numbers of at most 64 heights, each not above the height that it stands for, and those heights.

    Steps are equal in the logarithm from the lowest hundredth up.
    """
    positive = gaps[gaps > 0]
    if not len(positive):
        return np.zeros(len(gaps), np.uint8), np.empty(0)
    values = np.unique(positive)
    if len(values) > LEVELS:
        low = float(np.quantile(positive, 0.01, method="lower"))
        grid = np.geomspace(low, values[-1], LEVELS - 1)
        # A grid that rounding has moved past a height would round it up: take the heights themselves.
        at = np.minimum(np.searchsorted(values, grid * (1 - 1e-12)), len(values) - 1)
        values = np.unique(np.concatenate([values[:1], values[at], values[-1:]]))
    return np.searchsorted(values, gaps, side="right").astype(np.uint8), values
