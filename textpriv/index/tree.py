"""A public rooted tree whose leaves are the words, in place of grid points and nearest lists.

The distance of two words is the height of the lowest node above both, an ultrametric. With the leaves in depth-first order
it is the largest of the heights between them. So an order of the words and one height between each two neighbours in it are
the whole tree, and any such numbers are a tree. There are at most 64 different heights.
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

from textpriv.errors import IndexFolderError, TextprivError
from textpriv.index.clustering import clustered, cut_levels, rounded_down
from textpriv.index.folder import LEVELS, RECORDS, TREE, Found, refuse, write_tables
from textpriv.index.grid import Grid
from textpriv.index.index import Index
from textpriv.index.progress import reporter
from textpriv.index.records import Records
from textpriv.index.tree_nodes import Nodes
from textpriv.index.typical import Typical
from textpriv.statement import card
from textpriv.vocabulary.vocabulary import Vocabulary, read_only

__all__ = ["Tree"]

_NEAREST, _SAMPLE = 10, 1000  # neighbours that are looked for, and words for which they are


class Tree(Index):
    """Vocabulary and a rooted tree over it.

    Make one with :meth:`build`, :meth:`from_file`, :meth:`from_paths` or :meth:`from_wordnet`, or open a saved one with
    :meth:`load`. Like an :class:`Index` it has distances and a fingerprint, but neither points nor nearest lists.

    Parameters
    ----------
    vocabulary : Vocabulary
        Words and perhaps a prior.
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
    order : ndarray of int32, shape (V,)
    places : ndarray of int32, shape (V,)
        The place of each word in that order.
    gaps : ndarray of uint8, shape (V - 1,)
    heights : ndarray of float64, shape (L,)
    names : tuple of str
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
        size = len(vocabulary)
        self.vocabulary, self.source, self.path = vocabulary, source, path
        self.order = read_only(np.ascontiguousarray(order, dtype=np.int32))
        self.gaps = read_only(np.ascontiguousarray(gaps, dtype=np.uint8))
        self.heights = read_only(np.ascontiguousarray(heights, dtype=np.float64))
        self.names = tuple(names)
        self.separated = int(separated[0]), tuple(map(float, separated[1]))
        _check(self, size)
        places = np.empty(size, dtype=np.int32)
        places[self.order] = np.arange(size, dtype=np.int32)
        self.places = read_only(places)
        self.neighbour_ids = self.neighbour_steps = np.empty((size, 0), np.int32)
        self._records = Records(None if path is None else path / RECORDS)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over words, order and heights."""
        content = [self.vocabulary.words, self.order.tolist(), self.gaps.tolist()]
        return hashlib.sha256(json.dumps([*content, self.heights.tolist()]).encode()).hexdigest()

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
        """Distances from some words to every word, shape (len(words), V)."""
        table = np.concatenate([[0.0], self.heights])
        return np.stack([table[self.levels_of(int(word))[self.places]] for word in words])

    def distance(self, first: str | int, second: str | int) -> float:
        """Distance between two words, each given as text or id."""
        row, column = map(self.vocabulary.resolve, (first, second))
        return float(self.distances_of(np.array([row]))[0, column])

    @property
    def diameter_bound(self) -> float:
        """The height of the root."""
        return float(self.heights[-1]) if len(self.heights) else 0.0

    @cached_property
    def typical(self) -> dict[int, Typical]:
        """As for an index."""
        prior = "zipf" if self.vocabulary.prior is None else "counts"
        return self.nodes.typical(self.heights, self.vocabulary.prior_weights(prior)[self.order])

    def group(self, word: int, level: int) -> NDArray[np.int32]:
        """Ids of the words within a height (by its number, from 1) of a word, itself among them, by id."""
        return np.sort(self.order[self.levels_of(word) <= level])

    # Other trees of the same words

    def reheighted(self, heights: ArrayLike, names: Sequence[str] = ()) -> Tree:
        """Return the same tree with other heights, shape (L,), not falling; levels of equal height become one.

        Raises
        ------
        TextprivError
        """
        given = np.asarray(heights, dtype=np.float64)
        if given.shape != self.heights.shape:
            raise TextprivError(
                f"The tree has {len(self.heights)} heights, and {given.size} were given."
            )
        values, number = np.unique(given, return_inverse=True)
        if (np.diff(given) < 0).any():
            raise TextprivError("Heights must not fall towards the root.")
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
        made._records = self._records
        return made

    @classmethod
    def build(  # type: ignore[override]
        cls,
        vocabulary: Vocabulary,
        method: str = "ward",
        *,
        groups: Mapping[str, int] | None = None,
        space: str = "unit",
        projection: int | None = None,
        progress: bool | Callable[[str, int, int], None] = False,
        metric: str | None = None,
        heights: str | None = None,
    ) -> Tree:
        """Find a tree in the vectors of a vocabulary, which must be public.

        Parameters
        ----------
        vocabulary : Vocabulary
        method : {"ward", "average", "complete", "single"}
            How clusters are joined. Above 8,192 words k-means first makes groups of about 2,048 words.
        groups : mapping from str to int, optional
            Names of levels and how many groups each has at most; the level of all words together is added under the name
            "any". Heights are then 1, 2, ...; without groups, up to 64 distances at which clusters were joined.
        space, projection
            As of :meth:`Index.build`.
        progress : bool or callable
            As of :meth:`Index.build`.

        Raises
        ------
        MetricError, TextprivError
        """
        space = {"unit_euclidean": "unit"}.get(metric or space, metric or space)
        grid, _ = Grid.of(vocabulary, space, projection, fine=True)
        with reporter(progress) as report:
            order, gaps = clustered(grid, method, report("clustering"))
        names: list[str] = []
        if groups is None:
            codes, values = rounded_down(gaps)
        else:
            codes, names = cut_levels(gaps, groups)
            values = np.arange(1.0, len(names) + 1)
        source = f"{method} clustering of {len(vocabulary):,} words by {space} distance"
        made = cls(vocabulary, order, codes, values, names=names, source=source)
        made.separated = _separated(made, grid)
        return made

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

        words = vocabulary
        if not isinstance(words, Vocabulary):
            words = Vocabulary(words, np.zeros((len(words), 1)), language=language)
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
            separated=(meta["separated"]["looked_at"], meta["separated"]["shares"]),
            path=found.path.resolve(),
        )
        if tree.fingerprint != meta["fingerprint"]:
            refuse(found.path / "index.json", "it has the fingerprint of another tree")
        return tree

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return super().__reduce__()
        arrays = np.array(self.order), np.array(self.gaps), np.array(self.heights)
        return _remade, (self.vocabulary, *arrays, self.names, self.source, self.separated)

    def __repr__(self) -> str:
        return f"Tree({len(self):,} words, {len(self.heights)} heights, {self.source})"

    def _repr_html_(self) -> str:
        shown = ", ".join(f"{height:.3g}" for height in self.heights[-4:].tolist())
        return card(
            "Tree",
            [
                ("words", f"{len(self):,}"),
                ("made from", self.source),
                ("heights", f"{len(self.heights)}, the largest {shown}"),
                ("levels", ", ".join(self.names) or "without names"),
                ("counts", "stored" if self.vocabulary.prior is not None else "none"),
                ("folder", "in memory only" if self.path is None else str(self.path)),
                ("fingerprint", self.fingerprint[:16]),
            ],
        )


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


def _separated(tree: Tree, grid: Grid) -> tuple[int, tuple[float, ...]]:
    """Number of words looked at, and the share of their ten nearest words outside their group, by height."""
    size, levels = len(tree), len(tree.heights)
    if not levels:
        return 0, ()
    words = np.unique(np.linspace(0, size - 1, _SAMPLE).astype(np.int64))
    nearest = min(_NEAREST, size - 1)
    met = []
    for word in words.tolist():
        steps = grid.steps(np.array([word]))[0]
        steps[word] = np.iinfo(np.int32).max
        near = np.argpartition(steps, nearest - 1)[:nearest]
        met.append(tree.levels_of(word)[tree.places[near]])
    shares = [float((np.concatenate(met) > level).mean()) for level in range(1, levels + 1)]
    return len(words), tuple(shares)


def _remade(
    vocabulary: Vocabulary,
    order: NDArray[np.int32],
    gaps: NDArray[np.uint8],
    heights: NDArray[np.float64],
    names: tuple[str, ...],
    source: str,
    separated: tuple[int, tuple[float, ...]],
) -> Tree:
    return Tree(vocabulary, order, gaps, heights, names=names, source=source, separated=separated)
