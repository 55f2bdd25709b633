"""What trees are made from: clusters of grid points by SciPy, and a file of words and their groups."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError, VocabularyError
from textpriv.index.grid import Grid
from textpriv.index.spaces import MANHATTAN

LEVELS = 64  # heights that a tree may have

_WHOLE = 8192  # words whose distances are all compared: 270 MB
_GROUP = 2048  # words that k-means puts into a group, on average
_ROUNDS = 10  # of k-means

# Words in depth-first order, and the height between each two neighbours in it.
_Laid: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
# Numbers of heights between neighbours, the heights, and their names.
_Levels: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.float64], list[str]]


# Clusters


def clustered(grid: Grid, method: str, progress: Callable[[int, int], None]) -> _Laid:
    """Cluster the points of a grid by one of SciPy's methods, such as "ward".

    Many words are first split by k-means. The method then joins the words of each group, and last the groups' centres.
    """
    points = grid.points.astype(np.float64)
    kind = "cityblock" if grid.space == MANHATTAN else "euclidean"
    done = 0

    def joined(rows: NDArray[np.int64]) -> _Laid:
        nonlocal done
        if len(rows) <= _WHOLE:
            order, gaps = _linked(points[rows], method, kind)
            done += len(rows)
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


def _linked(points: NDArray[np.float64], method: str, kind: str) -> _Laid:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    size = len(points)
    merges = linkage(pdist(points, kind), method) if size > 1 else np.empty((0, 4))
    counts = np.concatenate([np.ones(size), merges[:, 3]]).astype(np.int64)
    start, gaps = np.zeros(2 * size - 1, np.int64), np.empty(size - 1)
    for node in range(2 * size - 2, size - 1, -1):
        left, right = merges[node - size, :2].astype(np.int64)
        start[left], start[right] = start[node], start[node] + counts[left]
        gaps[start[right] - 1] = merges[node - size, 2]
    return np.argsort(start[:size]), gaps


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


def cut_levels(gaps: NDArray[np.float64], groups: Mapping[str, int]) -> _Levels:
    """Number the heights between neighbours so that each level has at most so many groups.

    Levels that end up without a leaf between them are left out.
    """
    named = dict(groups)
    if 1 not in named.values():
        named["any"] = 1
    ordered = sorted(named.items(), key=lambda each: -each[1])
    whole = {number for number in named.values() if type(number) is int and number >= 1}
    if len(whole) != len(named) or len(named) > LEVELS:
        raise TextprivError(
            f"Give at most {LEVELS} levels, each with another whole number of groups from 1 up."
        )
    falling = -np.sort(-gaps)
    codes = np.where(gaps > 0, 1, 0).astype(np.uint8)
    for number, (_, count) in enumerate(ordered[:-1], start=2):
        # Above the height with which so many groups are left, words are apart; ties leave fewer groups.
        codes[gaps > (falling[count - 1] if count <= len(gaps) else 0)] = number
    used, number_of = np.unique(codes[codes > 0], return_inverse=True)
    codes[codes > 0] = number_of + 1
    return codes, np.arange(1.0, len(used) + 1), [ordered[level - 1][0] for level in used.tolist()]


def rounded_down(gaps: NDArray[np.float64]) -> _Levels:
    """Number at most 64 heights, each not above those for which it stands.

    Steps are equal in the logarithm from the lowest hundredth up.
    """
    values = np.unique(gaps[gaps > 0])
    if len(values) > LEVELS:
        low = float(np.quantile(gaps[gaps > 0], 0.01, method="lower"))
        grid = np.geomspace(low, values[-1], LEVELS - 1)
        # A grid that rounding has moved past a height would round it up: take the heights themselves.
        at = np.minimum(np.searchsorted(values, grid * (1 - 1e-12)), len(values) - 1)
        values = np.unique(np.concatenate([values[:1], values[at], values[-1:]]))
    return np.searchsorted(values, gaps, side="right").astype(np.uint8), values, []


# Files


def tree_of(
    paths: Sequence[Sequence[str]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Word ids in depth-first order, heights between neighbours, and the length of the longest path.

    Words that share all groups of the longest path are at height 1; each that they do not share adds 1.
    """
    depth = max((len(path) for path in paths), default=0)
    if depth >= LEVELS:
        raise TextprivError(
            f"a path has {depth} groups, and a tree has at most {LEVELS - 1} above a word."
        )
    order = sorted(range(len(paths)), key=lambda word: (tuple(paths[word]), word))
    shared = [_shared(paths[one], paths[other]) for one, other in itertools.pairwise(order)]
    return np.array(order, dtype=np.int64), depth + 1 - np.array(shared, dtype=np.int64), depth


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Number of groups with which both paths begin."""
    pairs = list(zip(one, other, strict=False))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))


def read_paths(file: Path) -> tuple[list[str], list[tuple[str, ...]], tuple[str, ...]]:
    """Words, their paths and the names of the depths, of a file as :meth:`textpriv.Tree.from_file` takes it."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, ValueError) else error.strerror
        raise VocabularyError(f"{file} cannot be read: {why}.") from None
    paths: dict[str, tuple[str, ...]] = {}
    names: tuple[str, ...] = ()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        word, tab, path = line.partition("\t")
        parts = tuple(part.strip() for part in path.split("/")) if path.strip() else ()
        word = word.strip()
        if not (word and tab and all(parts)):
            raise VocabularyError(
                f"{file}, line {number}: expected a word, a tab, and its groups with / between them, the widest first."
            )
        if number == 1 and word == "word":
            names = parts
            continue
        if word in paths:
            raise VocabularyError(f"{file}, line {number}: the word stands there twice.")
        paths[word] = parts
    if not paths:
        raise VocabularyError(f"{file} holds no words.")
    return list(paths), list(paths.values()), names
