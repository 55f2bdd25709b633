"""Public transforms: how the vectors of a vocabulary become the coordinates of a space, before they are rounded."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.index.axes import Axes
from textpriv.vocabulary.vocabulary import Vocabulary

SPACES = ("recommended", "euclidean", "unit", "manhattan")
RECOMMENDED, EUCLIDEAN, UNIT, MANHATTAN = SPACES

_DIMENSIONS = 16  # of the recommended space
_STRETCH = 4.0  # how much larger distances between function words become
_OFFSET = 3 * _STRETCH  # how far function words are from all others, in root mean square lengths
_LENGTH = 4.0  # that root mean square, so that an epsilon means about the same for all vectors
_DIRECTIONS = 2.0**-24  # principal directions are rounded to multiples of this


def transformed(
    vocabulary: Vocabulary, space: str, projection: int | None, axes: Axes | None = None
) -> NDArray[np.float64]:
    """Return the coordinates of a space before rounding, shape (V, n)."""
    if space not in SPACES:
        raise TextprivError(
            f"There is no space {space!r}. Use one of {', '.join(SPACES)}. For a distance of your own, transform the "
            'vectors so that it is Euclidean, and use space="euclidean"; unit vectors rank words as angles do.'
        )
    if projection is not None and space == MANHATTAN:
        raise TextprivError(
            'A projection may lengthen Manhattan distances. Use space="euclidean" or "unit" with projection=.'
        )
    if axes is not None and (space, vocabulary.fingerprint()) != (RECOMMENDED, axes.vocabulary):
        raise TextprivError(
            'Axes suit only the vocabulary that they were learned over, and space="recommended".'
        )
    rows = vocabulary.vectors.astype(np.float64)
    if space in (UNIT, RECOMMENDED):
        rows = _unit_rows(rows)
    if space == RECOMMENDED:
        size = projection or min(_DIMENSIONS, rows.shape[1])
        rows = _projected(rows, size)
        # To a root mean square length of one.
        rows = rows / (math.sqrt(float(np.square(rows).sum(axis=1).mean())) or 1.0)
        if axes is not None:
            rows = np.hstack([rows, axes.values])
        return _function_words_apart(rows, vocabulary.is_content)
    return rows if projection is None else _projected(rows, projection)


def _unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    zero = np.flatnonzero(lengths == 0)
    if zero.size:
        raise TextprivError(
            f"{zero.size} vectors are zero and have no direction; the first is row {zero[0] + 1}. Remove those words, or "
            'use space="euclidean".'
        )
    return np.asarray(rows / lengths)


def _projected(rows: NDArray[np.float64], dimensions: int) -> NDArray[np.float64]:
    """Project rows on the directions in which they vary most; this lengthens no distance but by rounding."""
    size = rows.shape[1]
    if not 1 <= dimensions <= size:
        raise TextprivError(f"projection= must be from 1 to {size} dimensions, not {dimensions}.")
    centred = rows - rows.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    leading = directions[:, ::-1][:, :dimensions]
    # One of the two signs, and few digits: the last ones differ between processors.
    leading = leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(dimensions)])
    return np.asarray(centred @ (np.rint(leading / _DIRECTIONS) * _DIRECTIONS))


def _function_words_apart(
    rows: NDArray[np.float64], is_content: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Move function words far from all others, by one coordinate more, and from each other."""
    out = np.hstack([rows, np.zeros((len(rows), 1))])
    out[~is_content] *= _STRETCH
    out[~is_content, -1] = _OFFSET
    return out * _LENGTH
