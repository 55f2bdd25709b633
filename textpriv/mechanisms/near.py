"""Tables and kernels that draw exactly from ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)``.

Distances are whole steps of the grid, so a weight is a function of a whole number (:func:`decayed`). One attempt chooses
a word of the nearest list by its weight, or else proposes a word of the whole measure under the envelope ``nu(y) exp(-t
d_k)``, d_k being the distance of the last listed word. A proposal that is listed fails; any other is accepted with
``exp(-t (d - d_k))``. So one attempt returns every y with a probability proportional to its weight, whatever the length
of the list. Where most attempts would fail, the weights of all words are summed up by blocks of words once. An attempt
then chooses a block by its sum and a word of it by its weight.

Weights of listed words are whole parts of 2^62, rounded up. Those below 2^32 parts are accepted by a coin, so no weight
is off by more than r = 2^-32 of itself, and no loss by more than 4.1 r.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.index.spaces import MANHATTAN
from textpriv.mechanisms.measure import (
    PARTS,
    WORDS,
    BaseMeasure,
    MeasureTables,
    coin,
    exp,
    find,
    first_above,
)
from textpriv.vocabulary.vocabulary import read_only

SLACK = 2e-9  # nats that whole parts and coins may add to a loss: 4.1 x 2^-32, and as much again for the floats in them
COARSE = float(1 << 32)  # parts below it are accepted by a coin
_MARGIN = float(1 << 30)  # parts that a row leaves to its envelope, more than its sums round by
_ATTEMPTS = 1024.0  # a word that needs more on average is drawn by blocks: their row costs thousands of attempts
_PROBES = 64  # words of the measure by which that is estimated
_BLOCK, _MOST_BLOCKS = 64, 1024  # words of a block, and blocks of a large vocabulary
_TOGETHER = 256  # words whose rows are filled in at a time


class Decay(NamedTuple):
    """The function of steps that weights are made of: ``exp(-min(rate * length, most))``."""

    rate: float  # per step, or per root of a step
    most: float
    root: bool  # whether a distance is the root of its steps

    @classmethod
    def of(cls, index: Index, t: float, gamma: float) -> Decay:
        """Return the decay at a rate, truncated at gamma."""
        return cls(t * index.unit, t * gamma, index.space != MANHATTAN)


@njit
def decayed(steps: int, decay: Decay) -> float:
    """Return the weight of a word so many steps away, as a part of that of the word itself."""
    count = np.int64(steps)
    return exp(-min(decay.rate * (math.sqrt(count) if decay.root else float(count)), decay.most))


@njit
def steps_between(points: NDArray[Any], first: int, second: int, root: bool) -> int:
    """Return the distance of two points in steps, as an index counts them."""
    # Unsigned numbers need no check for negative ones. Sums that stay 32 bits long are added eight at a time.
    a, b, total = np.uint64(first), np.uint64(second), np.int32(0)
    for column in range(np.uint64(points.shape[1])):
        apart = np.int32(np.int32(points[a, column]) - np.int32(points[b, column]))
        total = np.int32(total + np.int32(apart * apart if root else abs(apart)))
    return total


@njit(cache=True, nogil=True)
def _fill_decays(
    points: NDArray[Any],
    decay: Decay,
    words: NDArray[np.int64],
    others: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None:
    for row, word in enumerate(words):
        for column in range(others.shape[1]):
            steps = steps_between(points, word, np.int64(others[row, column]), decay.root)
            out[row, column] = decayed(np.int64(steps), decay)


class Rows(NamedTuple):
    """Rows by which words are drawn, by word id, and what they are made of."""

    decay: Decay
    measure: MeasureTables
    points: NDArray[Any]  # (V, n), in grid steps
    block: int  # words of a block
    ids: NDArray[np.int32]  # (V, k): listed words, nearest first
    steps: NDArray[np.int32]  # their distances
    ends: NDArray[np.uint64]  # running sums of their whole parts; the rest of 2^62 is all others'
    scale: NDArray[np.float64]  # parts of a weight of 1
    # About exp(t d_k), the inverse of the envelope: a proposal is accepted with its decay times this.
    tail: NDArray[np.float64]
    block_row: NDArray[np.int32]  # row of blocks of a word that is drawn by them, else -1
    blocks: NDArray[np.uint64]  # (m, B): running sums of parts of blocks, without listed words


class NearTables:
    """The rows of all words of an index under one decay and measure, filled in as words are met."""

    def __init__(self, index: Index, decay: Decay, measure: BaseMeasure) -> None:
        size, k = index.neighbour_ids.shape
        block = max(_BLOCK, math.ceil(size / _MOST_BLOCKS))
        # Pages of rows that no word asks for take no memory. Unpickled arrays are writable, which numba compiles for anew.
        self.rows = Rows(
            decay=decay,
            measure=measure.tables,
            points=read_only(index.points),
            block=block,
            ids=read_only(index.neighbour_ids),
            steps=read_only(index.neighbour_steps),
            ends=np.empty((size, k), np.uint64),
            scale=np.empty(size),
            tail=np.empty(size),
            block_row=np.full(size, -1, np.int32),
            blocks=np.empty((0, math.ceil(size / block)), np.uint64),
        )
        odd = np.arange(1, 2 * _PROBES, 2, dtype=np.uint64)
        quantiles = odd * np.uint64(PARTS // (2 * _PROBES))
        probes = np.searchsorted(measure.cumulative, quantiles, side="right")
        self._probes, self._weights = probes.astype(np.int32), measure.weights
        self._every = np.arange(size, dtype=np.int32)[None]
        self._ready = np.zeros(size, dtype=np.bool_)
        self._lock = Lock()

    def prepare(self, ids: NDArray[np.int32]) -> None:
        """Fill in the rows of these words."""
        known = ids[ids >= 0]
        if self._ready[known].all():
            return
        with self._lock:  # other threads may draw meanwhile: a row that is ready never changes
            missing = np.unique(known[~self._ready[known]]).astype(np.int64)
            if not len(missing):  # another thread has just filled them in
                return
            hard = np.concatenate(
                [
                    self._fill_near(missing[start : start + _TOGETHER])
                    for start in range(0, len(missing), _TOGETHER)
                ]
            )
            made = [self._fill_blocks(word) for word in hard]
            before = self.rows.blocks
            self.rows.block_row[hard] = len(before) + np.arange(len(hard))
            self.rows = self.rows._replace(blocks=np.vstack([before, *made]))
            self._ready[missing] = True

    def _fill_near(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Fill in the rows of some words, and return those that would take too many attempts."""
        listed = self.rows.ids[words]
        near = self._decays(words, listed)
        weights = self._weights[listed] * near
        head, envelope = _sum(weights), near[:, -1] * (listed.shape[1] < len(self._weights))
        probed = self._decays(words, np.tile(self._probes, (len(words), 1)))
        accepted = _sum(probed * (probed <= near[:, -1:])) / _PROBES
        hard = head + envelope > _ATTEMPTS * (head + accepted)
        hard &= envelope > 0
        scales = (PARTS - _MARGIN) / (head + envelope)
        self._fill_rows(words[~hard], weights[~hard], scales[~hard])
        return words[hard]

    def _decays(self, words: NDArray[np.int64], others: NDArray[np.int32]) -> NDArray[np.float64]:
        found = np.empty(others.shape)
        _fill_decays(self.rows.points, self.rows.decay, words, others, found)
        return found

    def _fill_rows(
        self, words: NDArray[np.int64], weights: NDArray[np.float64], scales: NDArray[np.float64]
    ) -> None:
        ends = np.cumsum(np.ceil(weights * scales[:, None]).astype(np.uint64), axis=1)
        self.rows.ends[words] = ends
        self.rows.scale[words] = scales
        self.rows.tail[words] = scales / (np.uint64(PARTS) - ends[:, -1])

    def _fill_blocks(self, word: np.int64) -> NDArray[np.uint64]:
        """Fill in the row of a word, and return its running sums of whole parts of all blocks of words."""
        rows, one = self.rows, np.array([word])
        listed = rows.ids[word]
        weights = self._weights * self._decays(one, self._every)[0]
        scale = (PARTS - _MARGIN) / _sum(weights)
        self._fill_rows(one, weights[listed][None], scale[None])
        weights[listed] = 0.0
        starts = np.arange(0, len(weights), rows.block)
        sums = np.add.reduceat(np.ceil(weights * scale).astype(np.uint64), starts)
        return rows.ends[word, -1] + np.cumsum(sums)


def _sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the last axis from left to right: ``sum`` may add in another order on another processor."""
    return np.cumsum(values, axis=-1)[..., -1]


@njit
def fits(real: float, first: np.uint64, second: np.uint64) -> bool:
    """Toss the coin that makes up for rounding up."""
    return real >= COARSE or coin(real / math.ceil(real), first, second)


@njit
def holds(values: NDArray[Any], value: int) -> bool:
    """Whether a value is in an array."""
    for each in values:  # noqa: SIM110
        if each == value:
            return True
    return False


@njit
def _listed(ids: NDArray[np.int32], last: int, other: int, steps: int) -> bool:
    """Whether a word so many steps away is in a list whose last word is at ``last``."""
    return steps < last or (steps == last and holds(ids, other))


@njit
def _from_block(rows: Rows, word: int, part: np.uint64, random: NDArray[np.uint64], at: int) -> int:
    """Draw an unlisted word of a word that has blocks; -1 where the attempt fails."""
    # What the loop needs is taken out of the rows once: they are large to hand on.
    points, parts, decay = rows.points, rows.measure.parts, rows.decay
    listed, last, scale = rows.ids[word], rows.steps[word, -1], rows.scale[word]
    sums = rows.blocks[rows.block_row[word]]
    if part >= sums[-1]:
        return -1
    which = first_above(sums, part, np.int64(0), len(sums))
    end = sums[which - 1] if which else rows.ends[word, -1]
    for other in range(which * rows.block, len(points)):
        steps = steps_between(points, word, other, decay.root)
        if _listed(listed, last, other, steps):
            continue
        real = parts[other] * 2.0**-62 * decayed(np.int64(steps), decay) * scale
        end += np.uint64(math.ceil(real))
        if end > part:
            return other if fits(real, random[at + 2], random[at + 3]) else -1
    return -1


@njit(cache=True, nogil=True)
def attempts(
    rows: Rows,
    ids: NDArray[np.int32],
    pending: NDArray[np.int64],
    random_words: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Write the outputs of tokens for which one of their attempts succeeds. An attempt reads four random words."""
    # Taken out of the rows once: to take an array out of a tuple takes longer than the rest of an attempt.
    decay, measure, points, listed = rows.decay, rows.measure, rows.points, rows.ids
    ends, scale, tail, block_row = rows.ends, rows.scale, rows.tail, rows.block_row
    steps, k = rows.steps, rows.ids.shape[1]
    for place in range(len(pending)):
        token, random = pending[place], random_words[place]
        word = np.int64(ids[token])
        for at in range(0, len(random), WORDS):
            output, part = np.int64(-1), random[at] >> np.uint64(2)
            if word < 0:  # an unknown word
                output = find(random[at + 1] >> np.uint64(2), measure)
            elif part < ends[word, k - 1]:
                rank, before = 0, np.uint64(0)
                if part >= ends[word, 0]:
                    rank = first_above(ends[word], part, np.int64(1), k)
                    before = ends[word, rank - 1]
                accepted = ends[word, rank] - before > np.uint64(COARSE)  # not rounded up: no coin
                if not accepted:
                    weight = decayed(np.int64(steps[word, rank]), decay)
                    real = measure.parts[listed[word, rank]] * 2.0**-62 * weight * scale[word]
                    accepted = fits(real, random[at + 2], random[at + 3])
                if accepted:
                    output = np.int64(listed[word, rank])
            elif block_row[word] >= 0:
                output = _from_block(rows, word, part, random, at)
            else:
                other = find(random[at + 1] >> np.uint64(2), measure)
                apart, last = steps_between(points, word, other, decay.root), steps[word, k - 1]
                chance = decayed(np.int64(apart), decay) * tail[word]
                accepted = apart >= last and coin(chance, random[at + 2], random[at + 3])
                if accepted and not _listed(listed[word], last, other, apart):
                    output = other
            if output >= 0:
                out[token] = output
                break
