"""A public rooted tree whose leaves are the words, in place of grid points and nearest lists.

The distance of two words is the height of the lowest node above both, an ultrametric. With the leaves in depth-first order
it is the largest of the heights between them. So an order and one height between each two neighbours are the whole tree.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.errors import TextprivError
from textpriv.index import folder
from textpriv.index.grid import RANKS, REFERENCE, SHARES, Grid, Typical, weighted_quantiles
from textpriv.index.hierarchies import (
    LEVELS,
    clustered,
    cut_levels,
    read_paths,
    rounded_down,
    tree_of,
)
from textpriv.index.index import Index, progress_bar
from textpriv.vocabulary.vocabulary import Vocabulary, read_only

_NEAREST, _SAMPLE = 10, 1000  # neighbours that are looked for, and words for which they are
_GROUPS, _SHOWN = 8, 5  # groups of a word that are told, and words of each that are named


class Tree(Index):
    """Words as leaves of a public tree, such as groups of synonyms or a hierarchy of codes.

    Make one with :meth:`build`, :meth:`from_file` or :meth:`from_paths`. Like an :class:`Index` it has distances and a
    fingerprint, but neither points nor nearest lists.

    Parameters
    ----------
    vocabulary : Vocabulary
    order : array_like of int, shape (V,)
        Word ids in depth-first order.
    gaps : array_like of int, shape (V - 1,)
        Between neighbouring leaves: 0 where they are one word to every mechanism, else the number of their height.
    heights : array_like of float, shape (L,)
        Rising, above 0, at most 64; the last is that of the root.
    names : sequence of str
        Of the heights, in the same order; or none.
    source : str
        What the tree was made from, for its readers.
    separated : (int, sequence of float)
        Number of words looked at, and the share of their ten nearest words by vectors that is outside their group of
        each height.

    Attributes
    ----------
    places : ndarray of int32, shape (V,)
        The place of each word in depth-first order.
    """

    space, unit = "tree", 1.0

    def __init__(
        self,
        vocabulary: Vocabulary,
        order: ArrayLike,
        gaps: ArrayLike,
        heights: ArrayLike,
        *,
        names: Sequence[str] = (),
        source: str = "given",
        separated: tuple[int, Sequence[float]] = (0, ()),
        path: Path | None = None,
    ) -> None:
        self.vocabulary, self.source, self.path = vocabulary, source, path
        self.order = read_only(np.ascontiguousarray(order, dtype=np.int32))
        self.gaps = read_only(np.ascontiguousarray(gaps, dtype=np.uint8))
        self.heights = read_only(np.ascontiguousarray(heights, dtype=np.float64))
        self.names = tuple(names)
        self.separated = int(separated[0]), tuple(map(float, separated[1]))
        size, levels = len(vocabulary), len(self.heights)
        if not np.array_equal(np.sort(self.order), np.arange(size)):
            raise TextprivError(f"order must hold each of the {size:,} word ids once.")
        rises = np.diff(self.heights, prepend=0.0)
        if levels > LEVELS or not ((rises > 0) & (rises < np.inf)).all():
            raise TextprivError(f"heights must be at most {LEVELS} rising numbers above 0.")
        if self.gaps.shape != (size - 1,) or self.gaps.max(initial=0) != levels:
            raise TextprivError(
                "gaps must hold a number of a height between every two words, and the last height must be among them."
            )
        if len(self.names) not in (0, levels) or len(set(self.names)) < len(self.names):
            raise TextprivError(f"names must be {levels} different ones, one for each height.")
        if len(self.separated[1]) not in (0, levels):
            raise TextprivError(f"separated must have {levels} shares, one for each height.")
        places = np.empty(size, dtype=np.int32)
        places[self.order] = np.arange(size, dtype=np.int32)
        self.places = read_only(places)
        self.neighbour_ids = self.neighbour_steps = np.empty((size, 0), np.int32)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over words, function words, order and heights."""
        words = [self.vocabulary.words, self.vocabulary.function_words]
        numbers = [each.tolist() for each in (self.order, self.gaps, self.heights)]
        return hashlib.sha256(json.dumps([*words, *numbers]).encode()).hexdigest()

    # Distances

    @cached_property
    def nodes(self) -> Nodes:
        """The nodes, children before parents."""
        return Nodes.of(self.gaps)

    def levels_of(self, word: int) -> NDArray[np.uint8]:
        """Numbers of the heights at which a word meets each leaf, in depth-first order, shape (V,); 0 for itself."""
        position = int(self.places[word])
        numbers = np.zeros(len(self), dtype=np.uint8)
        np.maximum.accumulate(self.gaps[position:], out=numbers[position + 1 :])
        np.maximum.accumulate(self.gaps[:position][::-1], out=numbers[:position][::-1])
        return numbers

    def distances_of(
        self, words: NDArray[Any], others: slice | NDArray[Any] = slice(None)
    ) -> NDArray[np.float64]:
        """Distances from some words to every word, shape (len(words), V), or to some."""
        table, places = np.concatenate([[0.0], self.heights]), self.places[others]
        return np.stack([table[self.levels_of(int(word))[places]] for word in words])

    @property
    def diameter_bound(self) -> float:
        """The height of the root."""
        return float(self.heights.max(initial=0.0))

    @cached_property
    def typical(self) -> dict[int, Typical]:
        """As for an index."""
        return self.nodes.typical(self.heights, self._token_weights[self.order])

    def groups_of(
        self, word: int, chances: NDArray[np.float64], loss_at: Callable[[float], float]
    ) -> list[Group]:
        """Return the groups of a word, or some of many, from the closest to all words.

        ``chances`` has the probability that the word becomes each other, shape (V,), and ``loss_at`` returns the largest
        loss between two words at a distance.
        """
        chances, met = chances[self.order], self.levels_of(word)
        others = np.arange(len(self)) != self.places[word]
        made = []
        for level in spread(np.unique(met[others]), _GROUPS):
            ring = np.flatnonzero(others & (met == level))
            top = ring[np.argsort(-chances[ring], kind="stable")[:_SHOWN]]
            height = float(self.heights[level - 1]) if level else 0.0
            made.append(
                Group(
                    name=self.names[level - 1] if self.names and level else f"height {height:.4g}",
                    words=int((met <= level).sum()),
                    loss=loss_at(height),
                    probability=min(float(chances[met <= level].sum()), 1.0),
                    likeliest=tuple(self.vocabulary.words[each] for each in self.order[top]),
                )
            )
        return made

    def reheighted(self, heights: ArrayLike, names: Sequence[str] = ()) -> Tree:
        """Return the same tree with other heights, shape (L,), not falling; levels of equal height become one."""
        given = np.asarray(heights, dtype=np.float64)
        values, number = np.unique(given, return_inverse=True)
        codes = np.concatenate([[0], number + 1]).astype(np.uint8)
        last = np.searchsorted(number, np.arange(len(values)), side="right") - 1
        looked, shares = self.separated
        made = Tree(
            self.vocabulary,
            self.order,
            codes[self.gaps],
            values,
            names=[names[at] for at in last] if names else (),
            source=self.source,
            separated=(looked, [shares[at] for at in last] if shares else ()),
        )
        made.domain = self.domain
        return made

    # Making trees

    @classmethod
    def build(  # type: ignore[override]
        cls,
        vocabulary: Vocabulary,
        *,
        groups: Mapping[str, int] | None = None,
        space: str = "unit",
        projection: int | None = None,
        progress: bool = False,
    ) -> Tree:
        """Find a tree in the vectors of a vocabulary, which must be public.

        Parameters
        ----------
        groups : mapping from str to int, optional
            Names of levels and how many groups each has at most; the level of all words together is added under the name
            "any". Heights are then 1, 2, ...; without groups, up to 64 distances at which clusters were joined. Clusters
            are joined by Ward's method, without groups by their mean distance. Above 8,192 words k-means first makes groups
            of about 2,048 words.
        space, projection, progress
            As of :meth:`Index.build`.
        """
        method = "average" if groups is None else "ward"
        grid = Grid.of(vocabulary, space, projection, fine=True)
        with progress_bar("clustering", progress) as report:
            order, gaps = clustered(grid, method, report)
        codes, values, names = rounded_down(gaps) if groups is None else cut_levels(gaps, groups)
        source = f"{method} clustering of {len(vocabulary):,} words by {space} distance"
        made = cls(vocabulary, order, codes, values, names=names, source=source)
        made.separated = made._separated(grid)
        return made

    def _separated(self, grid: Grid) -> tuple[int, tuple[float, ...]]:
        """Find the share of words' ten nearest words outside their group of each height, on a public sample."""
        size = len(self)
        words = np.unique(np.linspace(0, size - 1, _SAMPLE).astype(np.int64))
        nearest = min(_NEAREST, size - 1)
        met = np.empty((len(words), nearest), dtype=np.uint8)
        for row, word in enumerate(words.tolist()):
            steps = grid.steps(np.array([word]))[0]
            steps[word] = np.iinfo(np.int32).max
            near = np.argsort(steps, kind="stable")[:nearest]
            met[row] = self.levels_of(word)[self.places[near]]
        return len(words), tuple(float((met > at).mean()) for at in range(1, 1 + len(self.heights)))

    @classmethod
    def from_paths(
        cls,
        words: Sequence[str],
        paths: Sequence[Sequence[str]],
        names: Sequence[str] = (),
        source: str = "given paths",
        language: str | None = None,
    ) -> Tree:
        """Make the tree of a hierarchy in which each word has its place.

        Parameters
        ----------
        words : sequence of str
        paths : sequence of V sequences of str
            The groups of each word, the widest first, at most 63. Words meet at the last group that they share; a word
            without a path meets the others at the root.
        names : sequence of str
            What the groups of each depth are called, the widest first, as many as the longest path; the root is "any".
        source : str
            What the tree was made from, for its readers.
        language : str, optional
            spaCy's code of the language of the words.
        """
        order, gaps, depth = tree_of(paths)
        if names and len(names) != depth:
            raise TextprivError(f"the longest path has {depth} groups, and {len(names)} names.")
        titles = [*list(names)[::-1], "any"]
        used, number = np.unique(gaps, return_inverse=True)
        used_names = [titles[level - 1] for level in used.tolist()] if names else ()
        vocabulary = Vocabulary(words, np.zeros((len(words), 1)), language=language)
        return cls(vocabulary, order, number + 1, used, names=used_names, source=source)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], language: str | None = None) -> Tree:
        """Read a hierarchy from a text file of lines ``word<TAB>group/group/...``, the widest group first.

        A first line whose word is ``word`` gives the names of the depths: ``word<TAB>chapter/block``.
        """
        words, paths, names = read_paths(Path(path))
        return cls.from_paths(words, paths, names, f"the file {Path(path).name}", language)

    def folder_content(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays of a folder by file name, and what its listing says."""
        meta = {
            "kind": folder.TREE,
            "heights": self.heights.tolist(),
            "names": self.names,
            "source": self.source,
            "separated": self.separated,
        }
        return {"order.npy": self.order, "gaps.npy": np.append(self.gaps, np.uint8(0))}, meta

    @staticmethod
    def _opened(found: folder.FolderContent) -> Tree:
        meta = found.meta
        return Tree(
            found.vocabulary,
            found.arrays["order.npy"],
            found.arrays["gaps.npy"][:-1],
            meta["heights"],
            names=meta["names"],
            source=meta["source"],
            separated=meta["separated"],
            path=found.path,
        )

    def __repr__(self) -> str:
        return f"Tree({len(self):,} words, {len(self.heights)} heights, {self.source})"


class Group(NamedTuple):
    """The words within a distance of a word."""

    name: str  # of its level
    words: int  # how many, the word itself among them
    loss: float  # the largest between two of them, in nats
    probability: float  # that the word becomes one of them
    likeliest: tuple[str, ...]  # some of those that are in no closer group, likeliest first


def spread(values: NDArray[np.integer], most: int) -> list[int]:
    """Return values, or so many of them from the first to the last."""
    at = np.linspace(0, len(values) - 1, min(most, len(values))).astype(int)
    return list(map(int, values[at]))


class Nodes(NamedTuple):
    """The nodes of a tree: first its atoms, leaves that hold all words at distance 0 of each other, then inner nodes.

    A node's parent has a higher number than the node, and the root the highest.
    """

    start: NDArray[np.int32]  # (N,), of the leaves below a node, as places in depth-first order
    end: NDArray[np.int32]  # (N,)
    level: NDArray[np.uint8]  # (N,), number of its height; 0 for an atom
    parent: NDArray[np.int32]  # (N,), -1 for the root
    atom: NDArray[np.int32]  # (V,), of each place

    @property
    def atoms(self) -> int:
        """Number of atoms."""
        return int(self.atom[-1]) + 1

    @classmethod
    def of(cls, gaps: NDArray[np.uint8]) -> Nodes:
        """Find the nodes of a tree given by the numbers of the heights between its leaves."""
        size = len(gaps) + 1
        begins = np.concatenate([[True], gaps > 0])
        atom = (np.cumsum(begins) - 1).astype(np.int32)
        # Leaves of the nodes that have no parent yet, and those nodes.
        first = np.flatnonzero(begins)
        top = np.arange(len(first))
        starts, ends, levels = [first], [np.append(first[1:], size)], [np.zeros_like(first)]
        parent = np.full(2 * len(first) - 1, -1, dtype=np.int32)
        count = len(first)
        for level in range(1, int(gaps.max(initial=0)) + 1):
            begins = np.concatenate([[True], gaps[first[1:] - 1] > level])
            group = np.cumsum(begins) - 1
            is_joined = np.bincount(group) > 1
            number = count - 1 + np.cumsum(is_joined)
            inside = is_joined[group]
            parent[top[inside]] = number[group[inside]]
            first, top = first[begins], np.where(is_joined, number, top[begins])
            starts.append(first[is_joined])
            ends.append(np.append(first[1:], size)[is_joined])
            levels.append(np.full_like(starts[-1], level))
            count += int(is_joined.sum())
        start, end, level_of = map(np.concatenate, (starts, ends, levels))
        places = start.astype(np.int32), end.astype(np.int32)
        return cls(*places, level_of.astype(np.uint8), parent[:count], atom)

    def typical(
        self, heights: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> dict[int, Typical]:
        """Typical distances, as :func:`textpriv.index.grid.typical_distances`, of words weighted by place."""
        atoms = self.atoms
        # Atoms below a node, but for one.
        others = self.atom[self.end - 1] - self.atom[self.start]
        table = np.concatenate([[0.0], heights])
        mass: NDArray[np.float64] = np.bincount(self.atom, weights).astype(np.float64)
        typical = {}
        for rank in RANKS:
            if rank > REFERENCE and atoms <= rank:
                continue
            up = np.arange(atoms)
            while (short := np.flatnonzero((others[up] < rank) & (self.parent[up] >= 0))).size:
                up[short] = self.parent[up[short]]
            typical[rank] = Typical(*weighted_quantiles(table[self.level[up]], mass, SHARES))
        return typical
