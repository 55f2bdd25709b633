"""The tables by which TEM is drawn: of each word its list as cumulative whole parts, and the envelope of the rest.

Filled by numpy for the words that are drawn for, many at a time; the numbers are the same wherever they are computed. What
is drawn by them stands in ``tem_sampler``, and in ``tem_kernels`` for many tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.index.quantized import QuantizedRows
from textpriv.index.rank_bands import NO_WORD
from textpriv.mechanisms.base_measure import PARTS, BaseMeasure, Ranges, quantiles
from textpriv.uncompiled import exps, row_distances

__all__ = ["IndexArrays", "MeasureArrays", "SamplerState", "Tables", "fill"]

NEW, ENVELOPE, ROW = np.uint8(0), np.uint8(1), np.uint8(2)  # how a word is drawn
# A word with more expected rounds than this is drawn from its full row: a row costs about as much as thousands of them.
_MAX_ROUNDS = 4096.0
# Parts below this are accepted against their exact real weight, so that rounding to whole parts never changes a
# probability by more than 2^-32 of itself.
COARSE = np.uint64(1 << 32)
_ROUNDING = 1e-12  # far more than sums and products of some weights are rounded by
# Tokens of a document whose rounds are drawn together, so that the rows they read arrive together.
TOGETHER = 256
_UNITS = 65535  # into which the envelope of the bands is divided, with at least one for each that has words to draw
_ROWS = 128  # words filled in at a time, so that their numbers stay in a processor's own cache
# Columns of a word's row of the table, first what every draw reads, so that it comes in one cache line: the end of the head,
# and as floats the edge, the reach, the scale and the unit; then the cumulative parts of the head.
END, EDGE, REACH, SCALE, UNIT, HEAD = range(6)


class IndexArrays(NamedTuple):
    """What the kernels read of an index: the kind of its metric, and arrays under their names there."""

    kind: int
    coordinates: NDArray[Any]
    representatives: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    distances: NDArray[Any]


class MeasureArrays(NamedTuple):
    """What the kernels read of a :class:`BaseMeasure`."""

    parts: NDArray[np.uint64]
    cumulative: NDArray[np.uint64]
    guide: NDArray[np.int32]
    shift: np.uint64


class Tables(NamedTuple):
    """What is prepared for words: rows in the order in which words are first drawn for, so that only these take memory.

    Attributes
    ----------
    mode : ndarray of uint8, shape (V,)
        How a word is drawn: not prepared yet, by its row and the envelope, or from its full law.
    row_of : ndarray of int32, shape (V,)
        The row of each word.
    used : ndarray of int64, shape (1,)
        How many rows are in use.
    table, floats : ndarray of uint64, and the same memory as float64, shape (V, w)
        The columns ``END`` to ``UNIT``, and from ``HEAD`` the cumulative parts of the head.
    units : ndarray of uint16, shape (V, B)
        Where each band ends among the units of the envelope.
    """

    mode: NDArray[np.uint8]
    row_of: NDArray[np.int32]
    used: NDArray[np.int64]
    table: NDArray[np.uint64]
    floats: NDArray[np.float64]
    units: NDArray[np.uint16]

    @classmethod
    def empty(cls, size: int, k: int, bands: int) -> Tables:
        """Return tables in which no word is prepared."""
        table = np.empty((size, -(-(k + HEAD) // 8) * 8), dtype=np.uint64)
        return cls(
            np.full(size, NEW),
            np.zeros(size, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            table,
            table.view(np.float64),
            np.empty((size, bands), dtype=np.uint16),
        )


class SamplerState(NamedTuple):
    """All that the kernels read."""

    words: IndexArrays
    prior: MeasureArrays
    ranges: Ranges
    quantized: QuantizedRows
    tables: Tables
    t: float
    gamma: float


def fill(
    tables: Tables,
    words: NDArray[np.int64],
    index: Index,
    measure: BaseMeasure,
    ranges: Ranges,
    t: float,
    gamma: float,
) -> None:
    """Give different words that have none their rows of the tables, in the order in which they are given."""
    for at in range(0, len(words), _ROWS):
        some = words[at : at + _ROWS]
        _fill(tables, some, index.lists_of(some), index, measure, ranges, t, gamma)


def _fill(
    tables: Tables,
    words: NDArray[np.int64],
    lists: Any,
    index: Index,
    measure: BaseMeasure,
    ranges: Ranges,
    t: float,
    gamma: float,
) -> None:
    """Give some words their rows.

    A row holds the cumulative whole parts of the word's head. What is left of 2^62 is the envelope of the bands; the units
    into which that is divided are at least as many for each band as the words in it can weigh.
    """
    distances, bands = lists.distances.astype(np.float64), lists.nearest.shape[1]
    head = measure.weights[lists.ids] * exps(-(t * np.minimum(distances, gamma)))
    total = _row_sums(head)
    # Rounded down, so that no word outside the list is nearer than the edge and no acceptance exceeds one.
    edge = np.minimum(distances[:, -1] * (1.0 - 2.0**-23), gamma)
    nearest = np.maximum(lists.nearest * index.band_step, edge[:, None])
    expected = ranges.weights * exps(-(t * np.minimum(nearest, gamma)))
    expected[lists.nearest == NO_WORD] = 0.0
    most = _row_sums(expected)
    unit = most * (1.0 + _ROUNDING) / (_UNITS - bands)
    per_unit = np.divide(1.0 + _ROUNDING, unit, out=np.zeros(len(unit)), where=unit > 0.0)
    units = np.cumsum(np.ceil(expected * per_unit[:, None]).astype(np.int64), axis=1)
    most = units[:, -1] * unit
    everything = total + most
    # First by an upper bound on the rounds, then by what is accepted: the choice is the same on every run.
    whole = everything / total > _MAX_ROUNDS
    for row in np.flatnonzero(whole).tolist():
        outside = _expected_acceptance(
            index, measure, int(words[row]), lists.ids[row], edge[row], t, gamma
        )
        whole[row] = everything[row] / (total[row] + outside) > _MAX_ROUNDS
    scale = float(PARTS) / everything
    heads = _cumulative_parts(head * scale[:, None], _whole_parts(most * scale))
    kept = ~whole
    rows = np.arange(tables.used[0], tables.used[0] + np.count_nonzero(kept))
    tables.used[0] += len(rows)
    tables.units[rows] = units[kept]
    tables.floats[rows, SCALE], tables.floats[rows, UNIT] = scale[kept], unit[kept]
    tables.floats[rows, EDGE] = edge[kept]
    # Rounded up: whatever lies beyond is not in the list.
    tables.floats[rows, REACH] = distances[kept, -1] * (1.0 + 2.0**-22)
    tables.table[rows, END] = heads[kept, -1]
    tables.table[rows, HEAD : HEAD + heads.shape[1]] = heads[kept]
    tables.row_of[words[kept]] = rows
    tables.mode[words] = np.where(whole, ROW, ENVELOPE)


def _row_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over rows from the left to the right, the same on every processor."""
    return np.asarray(np.cumsum(values, axis=1)[:, -1])


def _expected_acceptance(
    index: Index,
    measure: BaseMeasure,
    word: int,
    listed: NDArray[np.int32],
    edge: float,
    t: float,
    gamma: float,
) -> float:
    """What a proposal outside the list of a word is accepted with on average, estimated on a fixed public sample."""
    probes = quantiles(measure.cumulative, min(64, len(index)))
    others = probes[~np.isin(probes, listed)]
    distances = row_distances(index.metric.kind, index.coordinates[word], index.coordinates[others])
    accepted = exps(-t * np.minimum(np.maximum(distances, edge), gamma))
    return float(_row_sums(accepted[None])[0] if len(others) else 0.0) / len(probes)


def _cumulative_parts(
    parts: NDArray[np.float64], outside: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """The cumulative whole parts of heads, with ``outside`` left of 2^62 in all."""
    whole, rows = _whole_parts(parts), np.arange(len(parts))
    largest = whole.argmax(axis=1)
    # What is over or missing, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around
    # makes a negative number subtract.
    left = np.uint64(PARTS) - whole.sum(axis=1, dtype=np.uint64) - outside
    whole[rows, largest] += np.where(whole[rows, largest] >= outside, left, np.uint64(0))
    return np.cumsum(whole, axis=1, dtype=np.uint64)


def _whole_parts(real: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.where(real < COARSE, np.ceil(real), real).astype(np.uint64)
