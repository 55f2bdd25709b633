"""The public tables of a mechanism: a vocabulary, its points on the grid and exact nearest lists."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError, TextprivError
from textpriv.files import cache_folder
from textpriv.index import folder
from textpriv.index.axes import Axes
from textpriv.index.grid import (
    REFERENCE,
    Grid,
    Typical,
    exact_lists,
    typical_distances,
)
from textpriv.index.spaces import SPACES
from textpriv.language.ngrams import NGrams, token_ids
from textpriv.vocabulary.vocabulary import Vocabulary, read_only


@contextmanager
def progress_bar(stage: str, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar on standard error; yields a function of the number done and the number in all."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True, disable=not shown) as bars:
        task = bars.add_task(stage)
        yield lambda done, everything: bars.update(task, completed=done, total=everything)


class Index:
    """Public words with their vectors, and the nearest neighbours of each.

    Build one with :meth:`build` or open a saved one with :meth:`load`.

    Attributes
    ----------
    vocabulary : Vocabulary
    space : str
        "recommended", "euclidean", "unit" or "manhattan".
    points : ndarray of int8 or int16, shape (V, n)
        The rounded vectors, in steps of length ``unit``. Distances between them are the metric of every guarantee.
    neighbour_ids, neighbour_steps : ndarray of int32, shape (V, k)
        The word itself first, then its nearest others by (steps, id); and their distances: squared Euclidean distances in
        grid steps, or sums of absolute differences in "manhattan".
    model : NGrams or None
        Language model of its own, which ContextualTEM uses.
    axes : Axes or None
        Coordinates beside the space, along which the words of different labels are apart.
    domain : ndarray of float64, shape (V,), or None
        How often texts like yours write each word: from the axes, or by :meth:`in_domain`.
    path : Path or None
        The folder that the index was loaded from.
    """

    space: str
    unit: float
    model: NGrams | None = None
    axes: Axes | None = None
    domain: NDArray[np.float64] | None = None

    def __init__(
        self,
        vocabulary: Vocabulary,
        grid: Grid,
        neighbours: tuple[NDArray[np.int32], NDArray[np.int32]],
        *,
        model: NGrams | None = None,
        axes: Axes | None = None,
        path: Path | None = None,
    ) -> None:
        self.vocabulary, self.model, self.path = vocabulary, model, path
        self.axes, self.domain = axes, None if axes is None else axes.frequency
        self._grid, self.space, self.points, self.unit = grid, grid.space, grid.points, grid.unit
        self.neighbour_ids, self.neighbour_steps = map(read_only, neighbours)

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        space: str = "recommended",
        k: int = 256,
        *,
        projection: int | None = None,
        model: NGrams | None = None,
        axes: Axes | None = None,
        progress: bool = False,
    ) -> Index:
        """Round the vectors of a vocabulary to a grid and find all nearest lists.

        Parameters
        ----------
        space : {"recommended", "euclidean", "unit", "manhattan"}
            "recommended" projects vectors of length one to 16 dimensions and sets function words apart. "unit"
            scales them to length one, which ranks words as the cosine does.
        k : int
            Length of a nearest list, the word itself included. Longer lists make sampling faster, never different.
        projection : int, optional
            Keep so many principal directions of the vectors. This lengthens no distance.
        model : NGrams, optional
            Language model for ContextualTEM, counted in public text: ``NGrams.count(texts, vocabulary)``.
        axes : Axes, optional
            Coordinates beside the recommended space: those of :class:`textpriv.LabelAxes`.
        progress : bool
            Draw progress bars on standard error.
        """
        if model is not None and model.size != len(vocabulary):
            raise TextprivError("The language model is of another vocabulary.")
        grid = Grid.of(vocabulary, space, projection, axes)
        if k < 1:
            raise TextprivError(f"k= must be at least 1, not {k}.")
        with progress_bar("exact lists", progress) as report:
            lists = exact_lists(grid, min(k, len(vocabulary)), report)
        return cls(vocabulary, grid, lists, model=model, axes=axes)

    @classmethod
    def builtin(cls, language: str = "en") -> Index:
        """Open the index over :meth:`Vocabulary.builtin`; it is built once and kept in the user's cache folder.

        The environment variable TEXTPRIV_CACHE_DIR names another folder. If it cannot be written, the index stays in
        memory.
        """
        from textpriv.index.builtin import open_builtin

        return open_builtin(language, cache_folder())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Index:
        """Open an index folder; the arrays are mapped from disk and shared between processes.

        Parameters
        ----------
        path : path
        verify : bool
            Compare the checksum of every file, and the fingerprint. Arrays and lists are always checked.
        """
        from textpriv.index.tree import Tree

        with folder.refusing_damage(Path(path)):
            found = folder.read(Path(path), verify=verify)
            kind = Tree if found.meta["kind"] == folder.TREE else Index
            index = kind._opened(found)
            if not verify and re.fullmatch("[0-9a-f]{64}", found.meta["fingerprint"]):
                index.fingerprint = found.meta["fingerprint"]
            elif index.fingerprint != found.meta["fingerprint"]:
                folder.refuse(found.path, "it has the fingerprint of other words or vectors")
        return index

    @staticmethod
    def _opened(found: folder.FolderContent) -> Index:
        meta, arrays = found.meta, found.arrays
        if meta["space"] not in SPACES or not 0 < meta["unit"] < math.inf:
            folder.refuse(found.path, "it has no space or no unit of length")
        grid = Grid(meta["space"], arrays["points.npy"], float(meta["unit"]))
        lists = arrays["neighbours.npy"], arrays["steps.npy"]
        folder.check_lists(found.path, grid, *lists)
        more: dict[str, Any] = {"model": found.model, "axes": found.axes, "path": found.path}
        return Index(found.vocabulary, grid, lists, **more)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index as a new folder, whole or not at all; ``overwrite`` replaces an index folder and nothing else."""
        folder.write(Path(path), self, overwrite=overwrite)

    def folder_content(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays of a folder by file name, and what its listing says."""
        arrays = {
            "vectors.npy": self.vocabulary.vectors,
            "points.npy": self.points,
            "neighbours.npy": self.neighbour_ids,
            "steps.npy": self.neighbour_steps,
        }
        meta: dict[str, Any] = {"space": self.space, "unit": self.unit}
        if self.axes is not None:
            arrays |= self.axes.arrays
            meta["axes"] = self.axes.listing
        return arrays, {"kind": folder.INDEX, **meta}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over words, function words, vectors, points, space, unit, language model and axes."""
        grid = [self.space, self.unit.hex(), self.points.dtype.name, *self.points.shape]
        model = self.model
        symbols, arrays = ((), ()) if model is None else (model.symbols, model.arrays)
        named = [self.vocabulary.fingerprint(), self.vocabulary.function_words, *grid, *symbols]
        if self.axes is not None:
            named.append(self.axes.digest)
        found = hashlib.sha256(json.dumps(named).encode())
        for array in (self.points, *arrays):
            found.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        return found.hexdigest()

    @property
    def language(self) -> str | None:
        """Code of the language of the words; None if it is not known."""
        return self.vocabulary.language

    @property
    def k(self) -> int:
        """Length of each list, the word itself included."""
        return int(self.neighbour_ids.shape[1])

    def __len__(self) -> int:
        return len(self.vocabulary)

    # Distances

    def steps_of(
        self, words: NDArray[Any], others: slice | NDArray[Any] = slice(None)
    ) -> NDArray[np.int32]:
        """Exact distances from some words to every word, or to some, in steps as in `neighbour_steps`."""
        return self._grid.steps(np.asarray(words), others)

    def length(self, steps: Any) -> Any:
        """Length of a number of steps, or of an array of them: ``unit * sqrt(steps)``; in "manhattan" ``unit * steps``."""
        return self._grid.length(steps)

    def distances_of(
        self, words: NDArray[Any], others: slice | NDArray[Any] = slice(None)
    ) -> NDArray[np.float64]:
        """Distances from some words to every word, shape (len(words), V), or to some."""
        return np.asarray(self.length(self.steps_of(words, others)))

    def distance(self, first: str | int, second: str | int) -> float:
        """Distance between two words, each given as text or id."""
        row, column = (np.array([self.vocabulary.resolve(word)]) for word in (first, second))
        return float(self.distances_of(row, column)[0, 0])

    def groups_of(self, word: int, chances: Any, loss_at: Any) -> list[Any]:
        """Return nothing: only a :class:`Tree` has groups."""
        return []

    @property
    def word_frequency(self) -> NDArray[np.float64]:
        """How often words are written, shape (V,): in the domain, by the vocabulary's counts, or by Zipf's law."""
        return self._token_weights if self.domain is None else self.domain

    def in_domain(self, texts: Iterable[str]) -> Index:
        """Return the same index, whose recovery rates are about words as public texts like yours write them.

        The metric is the same. :meth:`save` does not keep the frequencies.
        """
        ids, _ = token_ids(texts, self.vocabulary)
        counts = np.bincount(ids[ids >= 0], minlength=len(self))
        if not counts[self.vocabulary.is_content].any():
            raise TextprivError(
                "The public texts have no content word of the index. Give texts of its language."
            )
        # Good and Turing: as many words of other texts are new as were seen once.
        new = max(1, int((counts == 1).sum())) * self.vocabulary.prior_weights("zipf")
        other: Index = object.__new__(type(self))
        vars(other).update(vars(self), domain=self.vocabulary.prior_weights(counts + new))
        return other

    @property
    def diameter_bound(self) -> float:
        """No two words are farther apart."""
        return self._grid.diameter_bound

    @cached_property
    def typical(self) -> dict[int, Typical]:
        """Median and 90 % of distances from tokens (by counts or Zipf's law) to the 1st, 10th and 100th nearest words."""
        return typical_distances(self._grid, self.neighbour_steps, self._token_weights)

    @property
    def _token_weights(self) -> NDArray[np.float64]:
        prior = "zipf" if self.vocabulary.prior is None else "counts"
        return self.vocabulary.prior_weights(prior)

    @property
    def reference_distance(self) -> float:
        """Half of all tokens have their 10th nearest word within this distance."""
        return self.typical[REFERENCE].median

    @property
    def reference_distance_90(self) -> float:
        """Nine tenths of all tokens have their 10th nearest word within this distance."""
        return self.typical[REFERENCE].ninety

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # A worker opens the folder again and shares its pages; only an index without one travels by value.
        if self.path is not None:
            return _reopened, (self.path, self.fingerprint), {"domain": self.domain}
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        dimensions = self.points.shape[1]
        return f"Index({len(self):,} words, {self.space}, {dimensions} dimensions, k={self.k})"


def _reopened(path: Path, fingerprint: str) -> Index:
    # The process that sends the path has compared the checksums.
    index = Index.load(path, verify=False)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(
            f"{path} was replaced by another index while it was in use. Load it again."
        )
    return index
