"""Exact lists and rank bands of some words, by numpy alone: number for number those of ``index.neighbours``.

A page of text has some hundred different words. Their lists take a millisecond each here, while those of a whole vocabulary
take seconds, and compiling what finds them takes as long again. Products in double precision leave open which words are
near only where their rounding does, and there distances by differences decide, as they do in ``index.neighbours``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.index.rank_bands import whole_steps
from textpriv.metrics import EUCLIDEAN
from textpriv.uncompiled import row_distances

__all__ = ["Screen", "WordLists"]

_ROWS = 64  # words at a time
_BOUND = 1e-9  # the part of a distance by which bounds keep off it, for all that rounds in double precision


class WordLists(NamedTuple):
    """Rows of an index's tables, one for each of some words.

    Attributes
    ----------
    ids : ndarray of int32, shape (m, k)
    distances : ndarray of float32 or float64, shape (m, k)
    nearest : ndarray of uint8, shape (m, B)
        As of :class:`textpriv.index.rank_bands.RankBands`.
    """

    ids: NDArray[np.int32]
    distances: NDArray[Any]
    nearest: NDArray[np.uint8]


class Screen:
    """Finds lists of some words under the Euclidean metric.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    k : int
        Length of a list, below V.
    starts : ndarray of int32, shape (B + 1,)
        Of the rank bands.
    step : float
        Of the rank bands.
    """

    def __init__(
        self, coordinates: NDArray[Any], k: int, starts: NDArray[np.int32], step: float
    ) -> None:
        self._coordinates, self._k, self._starts, self._step = coordinates, k, starts, step
        # Distances do not change when all points are moved together, and shorter vectors round less.
        self._centred = coordinates - coordinates.mean(axis=0, dtype=np.float64)
        self._squares = np.einsum("ij,ij->i", self._centred, self._centred)
        # A squared distance by products errs by less than this: (n + 3) u |x||y| and what rounds the squares, in any order
        # of summation, with u = 2^-53 and four times as much to spare.
        dimension = coordinates.shape[1]
        self._error = 16 * (dimension + 7) * 2.0**-53 * float(self._squares.max())

    def lists(self, words: NDArray[np.int64]) -> WordLists:
        """The lists of some words, and how near the words are that they leave out."""
        parts = [self._lists(words[at : at + _ROWS]) for at in range(0, len(words), _ROWS)]
        return WordLists(*map(np.concatenate, zip(*parts, strict=True)))

    def _lists(self, words: NDArray[np.int64]) -> WordLists:
        bands = len(self._starts) - 1
        ids = np.empty((len(words), self._k), dtype=np.int32)
        distances = np.empty((len(words), self._k), dtype=self._coordinates.dtype)
        nearest = np.empty((len(words), bands), dtype=np.uint8)
        apart = self._centred[words] @ self._centred.T
        apart *= -2.0
        apart += self._squares[words, None]
        apart += self._squares
        for row, word in enumerate(words.tolist()):
            ids[row], distances[row] = self._list(word, apart[row])
            apart[row, ids[row]] = np.inf
            nearest[row] = self._nearest(word, apart[row])
        return WordLists(ids, distances, nearest)

    def _list(self, word: int, apart: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The list of a word, by its squared distances to all, of which its own is made the least."""
        apart[word] = -np.inf
        bound = np.partition(apart, self._k - 1)[self._k - 1] + 2 * self._error
        near = np.flatnonzero(apart <= bound)
        near = near[near != word]
        exact = self._exact(word, near)
        order = np.lexsort((near, exact))[: self._k - 1]
        return np.append(word, near[order]), np.append(0.0, exact[order])

    def _nearest(self, word: int, apart: NDArray[np.float64]) -> NDArray[np.int64]:
        """How near the words of each band are, by squared distances to all, which are infinite for those listed."""
        least = np.minimum.reduceat(apart, self._starts[:-1])
        low = np.sqrt(np.maximum(least - self._error, 0.0)) * (1.0 - _BOUND)
        high = np.sqrt(least + self._error) * (1.0 + _BOUND)
        steps = whole_steps(low, self._step)
        for band in np.flatnonzero(steps != whole_steps(high, self._step)).tolist():
            members = np.arange(self._starts[band], self._starts[band + 1])
            members = members[np.isfinite(apart[members])]
            steps[band] = whole_steps(self._exact(word, members).min(keepdims=True), self._step)[0]
        return steps

    def _exact(self, word: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        return row_distances(EUCLIDEAN, self._coordinates[word], self._coordinates[others])
