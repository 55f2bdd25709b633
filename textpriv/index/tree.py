"""A public rooted tree whose leaves are the words: an index that keeps a hierarchy in place of nearest lists.

The distance of two words is the height of the lowest node above both, an ultrametric. With the leaves in depth-first order
it is the largest of the heights between them, so the whole tree is an order of the words and one height between each two
neighbours in it: whatever stands there, it is a tree. Equal heights are one level, and there are at most 64. How trees are
found stands in ``clustering`` and ``hierarchies``; no law stands here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.bounds import at_most
from textpriv.errors import IndexFolderError, TextprivError
from textpriv.html_card import card
from textpriv.index.folder import LEVELS, TREE, Found, refuse, write_tables
from textpriv.index.index import Index
from textpriv.index.progress import reporter
from textpriv.index.rank_bands import RankBands
from textpriv.index.records import RECORDS, Records
from textpriv.index.tree_nodes import Nodes, TreeMetric
from textpriv.index.typical import Typical
from textpriv.metrics import Metric, Rounding
from textpriv.vocabulary.vocabulary import Vocabulary, read_only

__all__ = ["Tree", "cut_levels"]


class Tree(Index):
    """Vocabulary and a rooted tree over it: what a mechanism over a tree draws from.

    Make one with :meth:`build`, :meth:`from_file`, :meth:`from_paths` or :meth:`from_wordnet`, or open a saved one with
    :meth:`load`. It is an :class:`Index` in all that its users ask of one, but has neither vectors nor nearest lists.

    Parameters
    ----------
    vocabulary : Vocabulary
        Words and perhaps a prior; its vectors are left out.
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
    below : str, optional
        The metric of the vectors that no distance in the tree exceeds; only single linkage has one.
    separated : (int, sequence of float)
        How many words were looked at, and what share of their ten nearest words by vectors lies outside their group of
        each height.

    Attributes
    ----------
    order : ndarray of int32, shape (V,)
    places : ndarray of int32, shape (V,)
        Where each word stands in that order.
    gaps : ndarray of uint8, shape (V - 1,)
    heights : ndarray of float64, shape (L,)
    names : tuple of str
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        order: ArrayLike,
        gaps: ArrayLike,
        heights: ArrayLike,
        *,
        names: Sequence[str] = (),
        source: str = "given",
        below: str | None = None,
        separated: tuple[int, Sequence[float]] = (0, ()),
        path: Path | None = None,
    ) -> None:
        size = len(vocabulary)
        self.order = read_only(np.ascontiguousarray(order, dtype=np.int32))
        self.gaps = read_only(np.ascontiguousarray(gaps, dtype=np.uint8))
        self.heights = read_only(np.ascontiguousarray(heights, dtype=np.float64))
        self.names = tuple(names)
        _check(self, size)
        places = np.empty(size, dtype=np.int32)
        places[self.order] = np.arange(size, dtype=np.int32)
        self.places = read_only(places)
        self.source, self.below = source, below
        self.separated = int(separated[0]), tuple(map(float, separated[1]))
        self._origin: tuple[Tree, NDArray[np.float64], tuple[str, ...]] | None = None
        starts = np.concatenate([[0], np.flatnonzero(self.gaps) + 1])
        first = np.minimum.reduceat(self.order, starts)
        one = np.repeat(first, np.diff(starts, append=size))
        vectors = self.places.astype(np.float64)[:, None]
        leaves = Vocabulary.trusted(
            vocabulary.words, vectors, vocabulary.prior, vocabulary.language
        )
        if "_ids" in vocabulary.__dict__:
            leaves.__dict__["_ids"] = vocabulary._ids
        representatives = np.empty(size, dtype=np.int32)
        representatives[self.order] = one
        metric = TreeMetric(self.gaps, self.heights)
        content = [leaves.fingerprint(), metric.settings()]
        self.vocabulary, self.metric, self.path = leaves, metric, path
        self.coordinates, self.representatives = vectors, read_only(representatives)
        self.neighbour_ids = np.empty((size, 0), np.int32)
        self.neighbour_steps = np.empty((size, 0), np.int32)
        self.fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self._records = Records(None if path is None else path / RECORDS)

    rounding = Rounding(0.0, 0.0)

    @property
    def space(self) -> str:
        """Name of the distance."""
        return "tree"

    @property
    def diameter_bound(self) -> float:
        """The height of the root."""
        return float(self.heights[-1]) if len(self.heights) else 0.0

    def distance(self, first: str | int, second: str | int) -> float:
        """Height of the lowest node above two words, each given as text or id."""
        pair = (np.array([self.vocabulary.resolve(word)]) for word in (first, second))
        return float(self._paired(*pair)[0])

    def distances_between(self, word: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances from a word to some others."""
        return self._paired(np.full(len(others), word), others)

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

    def distances_of(self, words: NDArray[Any], *, device: str = "cpu") -> NDArray[np.float64]:
        """Distances from some words to every word: shape (len(words), V)."""
        table = np.concatenate([[0.0], self.heights])
        return np.stack([table[self.levels_of(int(word))[self.places]] for word in words])

    def _paired(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
        metric = self.metric
        assert isinstance(metric, TreeMetric)
        ends = (self.places[np.asarray(words)].astype(np.int64) for words in (first, second))
        return metric.table[metric.levels(*ends)]

    @cached_property
    def typical(self) -> dict[int, Typical]:
        """As for an index: the distances within which running words have so many others, words at distance 0 as one."""
        weights = self.vocabulary.prior_weights(
            "zipf" if self.vocabulary.prior is None else "counts"
        )
        return self.nodes.typical(self.heights, weights[self.order])

    @cached_property
    def bands(self) -> RankBands:
        """None: a tree has no lists."""
        return RankBands.none(len(self), 1)

    def group(self, word: int, level: int) -> NDArray[np.int32]:
        """Ids of the words within a height (by its number, from 1) of a word, itself among them, by id."""
        return np.sort(self.order[self.levels_of(word) <= level])

    # Other trees of the same words

    def reheighted(self, heights: ArrayLike, names: Sequence[str] = ()) -> Tree:
        """The same tree with other heights, shape (L,), not falling; levels of equal height become one.

        Raises
        ------
        TextprivError
        """
        given = np.asarray(heights, dtype=np.float64)
        if given.shape != self.heights.shape:
            raise TextprivError(
                f"the tree has {len(self.heights)} heights, and {given.size} were given."
            )
        values, number = np.unique(given, return_inverse=True)
        if (np.diff(given) < 0).any():
            raise TextprivError("heights must not fall towards the root.")
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
        made._origin = self, given, tuple(names)
        return made

    def cut(self, groups: Mapping[str, int]) -> Tree:
        """The tree of a few levels with names: each holds at most so many groups, and height 1 is that of the finest.

        Parameters
        ----------
        groups : mapping from str to int
            The level of all words together is added under the name "any" where it is missing.

        Raises
        ------
        TextprivError
            For numbers that name no level, or the same.
        """
        codes, names = cut_levels(self.heights[self.gaps.astype(int) - 1] * (self.gaps > 0), groups)
        looked, shares = self.separated
        top = [int(self.gaps[codes == level].max()) - 1 for level in range(1, len(names) + 1)]
        return Tree(
            self.vocabulary,
            self.order,
            codes,
            np.arange(1.0, len(names) + 1),
            names=names,
            source=self.source,
            separated=(looked, [shares[at] for at in top] if shares else ()),
        )

    @classmethod
    def build(  # type: ignore[override]
        cls,
        vocabulary: Vocabulary,
        method: str = "auto",
        *,
        heights: str = "distance",
        groups: Mapping[str, int] | None = None,
        metric: str | Metric = "unit_euclidean",
        dimensions: int | None = None,
        progress: bool | Callable[[str, int, int], None] = False,
    ) -> Tree:
        """Find a tree in the vectors of a vocabulary, which must be public.

        Parameters
        ----------
        vocabulary : Vocabulary
        method : {"auto", "ward", "average", "complete", "single", "kmeans"}
            Ward, average and complete linkage take time that grows with the square of the words, average and complete
            linkage also memory: 16 bytes for each pair. Single linkage (the largest ultrametric below the distance) keeps
            the promise epsilon d in the metric of the vectors, too. Bisecting k-means, finished by Ward's method in groups
            of up to 1,024 words, takes any number of them. "auto" is Ward up to 50,000 words, else bisecting k-means.
        heights : {"distance", "rank", "levels"}
            Heights are the distances at which groups were joined; or the logarithm of the mean group's size, as a part of
            that of all words; or 1, 2, ... of the levels of ``groups``. At most 64 are kept, the others rounded down.
        groups : mapping from str to int, optional
            For ``heights="levels"``: names of levels and how many groups each has at most; see :meth:`cut`.
        metric : str or Metric
            In whose coordinates the words are clustered; one that is Euclidean there.
        dimensions : int, optional
            Cluster in so many principal directions only (not for single linkage, whose promise is of the whole distance).
        progress : bool or callable
            As in :meth:`Index.build`.

        Raises
        ------
        MetricError, TextprivError
        """
        from textpriv.index.clustering import built

        with reporter(progress) as report:
            built_tree = built(vocabulary, method, heights, groups, metric, dimensions, report)
        return cls(vocabulary, **built_tree.arrays, **built_tree.labels)

    @classmethod
    def from_paths(
        cls,
        vocabulary: Vocabulary | Sequence[str],
        paths: Sequence[Sequence[str]],
        names: Sequence[str] = (),
        source: str = "given paths",
        language: str | None = None,
    ) -> Tree:
        """The tree of a hierarchy in which each word has its place.

        Parameters
        ----------
        vocabulary : Vocabulary or sequence of str
        paths : sequence of V sequences of str
            The groups of each word, the widest first. Words meet at the last group that they share; a word without a path
            meets the others at the root.
        names : sequence of str
            What the groups of each depth are called, the widest first, as many as the longest path; the root is "any".
        source : str
            What the tree was made from, for its readers.
        language : str, optional
            Of words that are no vocabulary, as spaCy's code.

        Raises
        ------
        TextprivError
            For more than 63 groups above a word, or names that do not fit.
        """
        from textpriv.index.hierarchies import tree_of

        words = vocabulary if isinstance(vocabulary, Vocabulary) else _bare(vocabulary, language)
        order, gaps, depth = tree_of(paths)
        if names and len(names) != depth:
            raise TextprivError(f"the longest path has {depth} groups, and {len(names)} names.")
        titles = [*list(names)[::-1], "any"] if names else []
        used, number = np.unique(gaps, return_inverse=True)
        return cls(
            words,
            order,
            number + 1,
            used.astype(np.float64),
            names=[titles[level - 1] for level in used.tolist()] if titles else (),
            source=source,
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], language: str | None = None) -> Tree:
        """Read a hierarchy from a text file of lines ``word<TAB>group/group/...``, the widest group first.

        A first line whose word is ``word`` gives the names of the depths: ``word<TAB>chapter/block``. Words are ranked as
        they stand. See :meth:`from_paths`.

        Raises
        ------
        VocabularyError
            Naming the line that cannot be read; it is never quoted.
        """
        from textpriv.index.hierarchies import read_paths

        words, paths, names = read_paths(Path(path))
        return cls.from_paths(words, paths, names, f"the file {Path(path).name}", language)

    @classmethod
    def from_wordnet(cls, vocabulary: Vocabulary) -> Tree:
        """WordNet's hierarchy over a vocabulary: each word under the hypernyms of its first noun or else other sense.

        Raises
        ------
        TextprivError
            Where nltk or its WordNet is not installed, with what to install.
        """
        from textpriv.index.hierarchies import wordnet_paths

        return cls.from_paths(vocabulary, wordnet_paths(vocabulary.words), source="WordNet")

    # Files

    def _write(self, target: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {
            "order.npy": self.order,
            "gaps.npy": np.concatenate([self.gaps, np.zeros(1, np.uint8)]),
        }
        meta: dict[str, Any] = {
            "kind": TREE,
            "heights": self.heights.tolist(),
            "names": list(self.names),
            "source": self.source,
            "below": self.below,
            "separated": {"looked_at": self.separated[0], "shares": list(self.separated[1])},
        }
        write_tables(target, self, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Tree:
        """Open a tree's folder; see :meth:`Index.load`."""
        found = Index.load(path, verify=verify)
        if not isinstance(found, Tree):
            raise IndexFolderError(
                f"{path} is an index of vectors and no tree. Open it by Index.load, or make a tree from it."
            )
        return found

    @classmethod
    def opened(cls, found: Found) -> Tree:
        """Return the tree of a folder that was read."""
        meta, arrays, size = found.meta, found.arrays, len(found.words)
        tree = cls(
            Vocabulary.trusted(
                found.words, np.empty((size, 0)), arrays.get("prior.npy"), meta.get("language")
            ),
            arrays["order.npy"],
            arrays["gaps.npy"][:-1],
            meta["heights"],
            names=meta["names"],
            source=meta["source"],
            below=meta["below"],
            separated=(meta["separated"]["looked_at"], meta["separated"]["shares"]),
            path=found.path.resolve(),
        )
        if tree.fingerprint != meta["fingerprint"]:
            refuse(found.path / "index.json", "it has the fingerprint of another tree")
        return tree

    def find_record(self, binding: Mapping[str, Any]) -> dict[str, Any] | None:
        """As for an index; a tree with other heights asks the one that it was made from."""
        return Index.find_record(self if self._origin is None else self._origin[0], binding)

    def keep_record(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """As for an index; a tree with other heights keeps it with the one that it was made from."""
        Index.keep_record(self if self._origin is None else self._origin[0], binding, content)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return super().__reduce__()
        if self._origin is not None:
            return Tree.reheighted, self._origin
        arrays = self.vocabulary, np.array(self.order), np.array(self.gaps), np.array(self.heights)
        return _remade, (arrays, self.names, self.source, self.below, self.separated, self._records)

    def __repr__(self) -> str:
        return f"Tree({len(self)} words, {len(self.heights)} heights, {self.source})"

    def _repr_html_(self) -> str:
        return _card(self)


def _check(tree: Tree, size: int) -> None:
    """Refuse arrays and names that are no tree over so many words."""
    levels = len(tree.heights)
    if tree.order.shape != (size,) or not np.array_equal(np.sort(tree.order), np.arange(size)):
        raise TextprivError(f"order must hold each of the {size:,} word ids once.")
    if levels > LEVELS or not (np.diff(tree.heights, prepend=0.0) > 0).all():
        raise TextprivError(f"heights must be at most {LEVELS} rising numbers above 0.")
    if tree.gaps.shape != (size - 1,) or tree.gaps.max(initial=0) != levels:
        raise TextprivError(
            "gaps must hold a number of a height between every two words, and the last height must be among them."
        )
    if len(tree.names) not in (0, levels):
        raise TextprivError(f"{len(tree.names)} names were given for {levels} heights.")


def cut_levels(
    gaps: NDArray[np.float64], groups: Mapping[str, int]
) -> tuple[NDArray[np.uint8], list[str]]:
    """Numbers of levels between neighbouring leaves for heights between them, shape (V - 1,), and the levels' names.

    Levels that end up without a leaf between them are left out.
    """
    named = dict(groups)
    if not all(type(number) is int and number >= 1 for number in named.values()):
        raise TextprivError("each level has a whole number of groups from 1 up.")
    if 1 not in named.values():
        named["any"] = 1
    ordered = sorted(named.items(), key=lambda each: -each[1])
    if len(set(named.values())) != len(named) or len(named) > LEVELS:
        raise TextprivError(
            f"levels must have different numbers of groups, and be at most {LEVELS}."
        )
    falling = -np.sort(-gaps)
    codes = np.where(gaps > 0, 1, 0).astype(np.uint8)
    for number, (_, count) in enumerate(ordered[:-1], start=2):
        # Above the height with which so many groups are left, words are apart; ties leave fewer groups.
        if count <= len(gaps):
            codes[gaps > falling[count - 1]] = number
        else:
            codes[gaps > 0] = number
    used, number_of = np.unique(codes[codes > 0], return_inverse=True)
    codes[codes > 0] = number_of + 1
    return codes, [ordered[level - 1][0] for level in used.tolist()]


def _bare(words: Sequence[str], language: str | None) -> Vocabulary:
    return Vocabulary(words, np.zeros((len(words), 1)), language=language)


def _remade(
    arrays: tuple[Any, ...],
    names: tuple[str, ...],
    source: str,
    below: str | None,
    separated: tuple[int, tuple[float, ...]],
    records: Records,
) -> Tree:
    tree = Tree(*arrays, names=names, source=source, below=below, separated=separated)
    tree._records = records
    return tree


def _card(tree: Tree) -> str:
    """The tree as a notebook shows it."""
    shown = ", ".join(at_most(float(height), 3) for height in tree.heights[-4:])
    return card(
        "Tree",
        [
            ("words", f"{len(tree):,}"),
            ("made from", tree.source),
            ("heights", f"{len(tree.heights)}, the largest {shown}"),
            ("levels", ", ".join(tree.names) or "without names"),
            ("counts", "stored" if tree.vocabulary.prior is not None else "none"),
            ("folder", "in memory only" if tree.path is None else str(tree.path)),
            ("fingerprint", tree.fingerprint[:16]),
        ],
    )
