"""The distances between words of an index: of pairs, of rows, and of words that share a law.

The metrics themselves are in ``textpriv.metrics``; lists of near words are made in ``index.neighbours``.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.metrics import (
    GRAPH,
    INTERPRETED,
    Metric,
    Rounding,
    distances_from,
    paired_distances,
)
from textpriv.uncompiled import row_distances
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["WordDistances"]

_CALL = 5000  # coordinates that are compared in the time that a call takes


class WordDistances:
    """What an index has of a metric space: distances by the words' own coordinates, and by those of their laws.

    Attributes
    ----------
    metric, coordinates, representatives, rounding, diameter_bound
        As of :class:`textpriv.index.Index`.
    vocabulary
        The words, in the order of their rows.
    """

    vocabulary: Vocabulary
    metric: Metric
    coordinates: NDArray[Any]
    representatives: NDArray[np.int32]
    rounding: Rounding
    diameter_bound: float
    # Coordinates that numpy compares before anything is compiled or loaded for it, which takes as long: half a second.
    _few = 100_000_000

    def _is_little(self, distances: int) -> bool:
        """Whether so many distances, with all that were asked for before, are too little to compile for."""
        self._few = max(self._few - distances * self.coordinates.shape[1] - _CALL, -1)
        return self._few >= 0

    @property
    def tau(self) -> float:
        """Bound on the error of the distance between any two words."""
        return self.rounding.at(self.diameter_bound)

    @property
    def wide(self) -> NDArray[np.int64]:
        """Ids of the words whose law is that of a word farther away than the rounding of coordinates explains."""
        return self._members[self._apart > 4 * self.rounding.absolute]

    @cached_property
    def _members(self) -> NDArray[np.int64]:
        """Ids of the words that use the law of another word."""
        return np.flatnonzero(self.representatives != np.arange(len(self.representatives)))

    @cached_property
    def _apart(self) -> NDArray[np.float64]:
        """Their distances from the words whose laws they use."""
        return self._paired(self._members, self.representatives[self._members])

    def _paired(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
        """Distances between the words of two arrays, pair by pair."""
        if self.metric.kind == INTERPRETED:
            pairs = zip(self.coordinates[first], self.coordinates[second], strict=True)
            return np.array([float(self.metric.pairwise(a, b)[0, 0]) for a, b in pairs])
        if self.metric.kind == GRAPH:  # without a copy of rows as long as the vocabulary
            return np.asarray(self.coordinates[first, 1 + np.asarray(second)], dtype=np.float64)
        if self._is_little(len(first)):
            return row_distances(
                self.metric.kind, self.coordinates[first], self.coordinates[second]
            )
        pair = (np.ascontiguousarray(words, dtype=np.int64) for words in (first, second))
        return paired_distances(self.metric.kind, self.coordinates, *pair)

    @cached_property
    def width(self) -> float:
        """The largest distance of a word from the word whose law it uses."""
        if not len(self._members):
            return 0.0
        return float(self._apart.max()) * (1 + self.rounding.relative) + self.rounding.absolute

    def distance(self, first: str | int, second: str | int) -> float:
        """Distance between two words, each given as text or id, by their own coordinates.

        Raises
        ------
        VocabularyError
            For what is no word of the index.
        """
        pair = (np.array([self.vocabulary.resolve(word)]) for word in (first, second))
        return float(self._paired(*pair)[0])

    def distances_between(self, word: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances from a word to some others, by their own coordinates: shape (len(others),)."""
        return self._paired(np.full(len(others), word), others)

    def distances_of(self, words: NDArray[np.int64], *, device: str = "cpu") -> NDArray[np.float64]:
        """Distances by which some words' laws are made, to every word: shape (len(words), V), float64 by differences.

        Those of a word that shares another one's law are the other one's. ``device`` is as in :meth:`build`.
        """
        rows = self.representatives[words]
        if len(rows) == 1 and device == "cpu":
            return self._row(int(rows[0]))
        return self._distances(rows, device)

    def _row(self, row: int) -> NDArray[np.float64]:
        """Distances from one row, of which each thread keeps the last: laws of a word are asked for one after the other."""
        last = self.__dict__.setdefault("_last", threading.local())
        if getattr(last, "row", None) != row:
            last.distances = self._distances(np.array([row]), "cpu")
            last.row = row
        return last.distances.copy()

    def _distances(self, rows: NDArray[np.int32], device: str) -> NDArray[np.float64]:
        if device != "cpu":
            from textpriv.index.torch_distances import choose_device, distance_rows

            return distance_rows(choose_device(device), self.metric.kind, self.coordinates, rows)
        if self.metric.kind == INTERPRETED:
            out = self.metric.pairwise(self.coordinates[rows], self.coordinates).copy()
            out[np.arange(len(rows)), rows] = 0.0
            return out
        if self.metric.kind == GRAPH:
            return self.coordinates[rows, 1:].astype(np.float64)
        out = np.empty((len(rows), len(self.representatives)))
        if self._is_little(out.size):
            for row, distances in zip(rows.tolist(), out, strict=True):
                distances[:] = row_distances(
                    self.metric.kind, self.coordinates[row], self.coordinates
                )
            return out
        for row, distances in zip(rows.tolist(), out, strict=True):
            distances_from(self.metric.kind, self.coordinates, row, distances)
        return out
