"""Rank bands: bounds from below on the distances to the words that a nearest list leaves out, by ranges of ids.

Bounds are in whole steps, the same on every processor. How near words are is found with the lists, in ``index.neighbours``;
what is drawn with the bounds is known to ``mechanisms.tem_sampler``.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.metrics import distances_from, row_distance

__all__ = [
    "NO_WORD",
    "RankBands",
    "band_starts",
    "bands_of_words",
    "decide",
    "step_length",
    "whole_steps",
]

NO_WORD = 255  # steps of a band whose words are all listed
# Few enough that a draw finds its band in two cache lines; more of them would save few tries.
_BANDS = 64
_SAMPLE = 32  # rows from whose bounds the length of a step is found
_ROUNDING = 1e-6  # the part of a distance by which a bound keeps below it, for all that rounds it


class RankBands(NamedTuple):
    """Bounds from below on how near the words are that a list leaves out.

    Words that follow each other form a band: in a vocabulary by frequency they are alike in how far they are from others.

    Attributes
    ----------
    starts : ndarray of int32, shape (B + 1,)
        Band b holds the words ``starts[b]`` to ``starts[b + 1] - 1``.
    nearest : ndarray of uint8, shape (V, B)
        No word of the band that is missing in the list of the row's word is nearer to it than so many steps; 255 where
        none is missing.
    step : float
        A distance.
    """

    starts: NDArray[np.int32]
    nearest: NDArray[np.uint8]
    step: float

    @classmethod
    def none(cls, size: int, k: int) -> RankBands:
        """Return one band of all words, of which nothing is known but whether lists of length k leave any of them out."""
        known = np.full((size, 1), NO_WORD if k >= size else 0, dtype=np.uint8)
        return cls(np.array([0, size], dtype=np.int32), known, 1.0)

    def digest(self) -> str:
        """Return a checksum of all of it."""
        found = hashlib.blake2b(np.float64(self.step).tobytes() + self.starts.tobytes())
        found.update(np.ascontiguousarray(self.nearest).data)
        return found.hexdigest()


def step_length(kind: int, coordinates: NDArray[Any], k: int, starts: NDArray[np.int32]) -> float:
    """Length of a step, by a public sample of rows; a few with far larger bounds do not make it long."""
    size = len(coordinates)
    found: list[NDArray[np.float64]] = []
    exact = np.empty(size)
    for row in range(0, size, -(-size // _SAMPLE)):
        distances_from(kind, coordinates, row, exact)
        exact[np.argsort(exact, kind="stable")[:k]] = np.inf
        least = np.minimum.reduceat(exact, starts[:-1])
        found.append(least[np.isfinite(least)])
    sample = np.sort(np.concatenate(found))
    largest = float(sample[len(sample) * 99 // 100]) if sample.size else 0.0
    return max(largest / (NO_WORD - 1), float(np.finfo(np.float64).tiny))


def band_starts(size: int) -> NDArray[np.int32]:
    """The starts of all bands, and the end: about equal shares of the Zipf-Mandelbrot law over the ranks."""
    law = np.cumsum(1.0 / (np.arange(1, size + 1) + 2.7))
    starts = np.searchsorted(law, law[-1] * np.arange(1, _BANDS) / _BANDS)
    return np.unique(np.concatenate([[0], starts, [size]])).astype(np.int32)


def bands_of_words(starts: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The band of every word."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.uint8), np.diff(starts))


@njit(cache=True, nogil=True)
def _steps(distance: float, step: float) -> int:
    """Whole steps within a distance, of which no rounding makes more than there are."""
    if distance == np.inf:
        return NO_WORD
    return np.int64(min(distance * ((1.0 - _ROUNDING) / step), NO_WORD - 1.0))


def whole_steps(distances: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """:func:`_steps` of some distances, by numpy."""
    steps = np.minimum(distances * ((1.0 - _ROUNDING) / step), NO_WORD - 1.0)
    return np.where(np.isinf(distances), NO_WORD, steps.astype(np.int64))


@njit(cache=True, nogil=True)
def decide(
    kind: int,
    coordinates: NDArray[Any],
    first_row: int,
    lists: NDArray[np.int32],
    starts: NDArray[np.int32],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    step: float,
    nearest: NDArray[np.uint8],
) -> None:
    """Write the bounds of some rows in whole steps; where those from below and above differ, distances decide."""
    listed = np.zeros(coordinates.shape[0], np.bool_)
    for row in range(low.shape[0]):
        word = first_row + row
        for place in range(lists.shape[1]):
            listed[lists[word, place]] = True
        for band in range(low.shape[1]):
            found = _steps(low[row, band], step)
            if found != _steps(high[row, band], step):
                least = np.inf
                for other in range(starts[band], starts[band + 1]):
                    if not listed[other]:
                        least = min(
                            least,
                            row_distance(
                                kind, coordinates, np.int64(word), coordinates, np.int64(other)
                            ),
                        )
                found = _steps(least, step)
            nearest[word, band] = found
        for place in range(lists.shape[1]):
            listed[lists[word, place]] = False
