"""The envelope sampler of TEM: exact draws from exponential laws over nearest lists, as kernels and as a plain reference.

A round proposes a word, from the nearest list or from a band of the vocabulary, and accepts it with an exact coin
(mechanisms.md 3.4): any word is returned with a probability in proportion to its weight, so the law does not depend on the
bands. :func:`reference_sample` is the same sampler as one reads it; the kernels draw the same words from the same stream.
The law, its rate and its statement stand in ``tem``; the measure in ``base_measure``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp, exps, fixed_sum
from textpriv.index.index import Index
from textpriv.index.quantized import (
    QuantizedRows,
    all_squares,
    decided,
    displacement,
    leading_squares,
    surely_beyond,
)
from textpriv.index.rank_bands import NO_WORD, RankBands
from textpriv.mechanisms.base_measure import (
    PARTS,
    BaseMeasure,
    Ranges,
    bernoulli,
    draw,
    find,
    integer_parts,
    quantiles,
    upper_half,
)
from textpriv.mechanisms.sampling import ROOM, draw_documents, drawn_distances, fetch, listed
from textpriv.metrics import INTERPRETED, row_distance
from textpriv.randomness import RandomWords, Stream

__all__ = ["EnvelopeSampler", "reference_sample"]

_NEW, _ENVELOPE, _ROW = np.uint8(0), np.uint8(1), np.uint8(2)
# A word with more expected rounds than this is drawn from its full row: a row costs about as much as thousands of them.
_MAX_ROUNDS = 4096.0
# Parts below this are accepted against their exact real weight, so that rounding to whole parts never changes a
# probability by more than 2^-32 of itself.
_COARSE = np.uint64(1 << 32)
_ROUNDING = 1e-12  # far more than sums and products of some weights are rounded by
# Tokens of a document whose rounds are drawn together, so that the rows they read arrive together.
_TOGETHER = 256
# Tokens from where a word's row of the tables is prefetched to where it is drawn, and from where its units are; these only
# if no more than such a part of its draws stays in its list.
_AHEAD, _NEXT, _SELDOM = 8, 4, np.uint64(PARTS // 2)
_SPARE = 8  # random words a token read ahead
_UNITS = 65535  # into which the envelope of the bands is divided, with at least one for each that has words to draw
# Columns of a word's row of the table, first what every draw reads, so that it comes in one cache line: the end of the head,
# and as floats the edge, the reach, the scale and the unit; then the cumulative parts of the head.
_END, _EDGE, _REACH, _SCALE, _UNIT, _HEAD = range(6)


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
        The columns ``_END`` to ``_UNIT``, and from ``_HEAD`` the cumulative parts of the head.
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
        table = np.empty((size, -(-(k + _HEAD) // 8) * 8), dtype=np.uint64)
        return cls(
            np.full(size, _NEW),
            np.zeros(size, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            table,
            table.view(np.float64),
            np.empty((size, bands), dtype=np.uint16),
        )


class SamplerState(NamedTuple):
    """All that the kernels read, and the tables that they fill."""

    words: IndexArrays
    prior: MeasureArrays
    ranges: Ranges
    quantized: QuantizedRows
    tables: Tables
    t: float
    gamma: float


@njit(cache=True, nogil=True)
def _state(state: tuple[Any, ...]) -> SamplerState:
    """The state under its names. Kernels are given plain tuples: named ones take longer to recognise than some draws."""
    words, prior, ranges, quantized, tables, t, gamma = state
    return SamplerState(
        IndexArrays(*words),
        MeasureArrays(*prior),
        Ranges(*ranges),
        QuantizedRows(*quantized),
        Tables(*tables),
        t,
        gamma,
    )


@njit(cache=True, nogil=True)
def _expected_acceptance(
    state: SamplerState, probes: NDArray[np.int32], word: int, edge: float
) -> float:
    """What a proposal outside the list of a word is accepted with on average, estimated on a fixed public sample."""
    words, t, gamma = state.words, state.t, state.gamma
    kind, coordinates = words.kind, words.coordinates
    accepted = 0.0
    for probe in probes:
        if not listed(words.neighbours, np.int64(word), np.int64(probe)):
            distance = row_distance(kind, coordinates, np.int64(word), coordinates, np.int64(probe))
            accepted += exp(-t * min(max(distance, edge), gamma))
    return accepted / probes.shape[0]


@njit(cache=True, nogil=True)
def _prepare(state: SamplerState, known: RankBands, probes: NDArray[np.int32], word: int) -> None:
    """Give a word its row of the tables.

    The row holds the cumulative whole parts of the word's head. What is left of 2^62 is the envelope of the bands; the units
    into which that is divided are at least as many for each band as the words in it can weigh.
    """
    words, prior, ranges, _, tables, t, gamma = state
    ids, distances = words.neighbours, words.distances
    nearest, weights, parts = known.nearest, ranges.weights, prior.parts
    table, floats, units = tables.table, tables.floats, tables.units
    k, bands = ids.shape[1], nearest.shape[1]
    head, expected = np.empty(k), np.empty(bands)
    total, most = 0.0, 0.0
    for rank in range(k):
        exponent = t * min(np.float64(distances[word, rank]), gamma)
        head[rank] = parts[ids[word, rank]] * 2.0**-62 * exp(-exponent)
        total += head[rank]
    # Rounded down, so that no word outside the list is nearer than the edge and no acceptance exceeds one.
    edge = min(np.float64(distances[word, k - 1]) * (1.0 - 2.0**-23), gamma)
    for band in range(bands):
        expected[band] = 0.0
        if nearest[word, band] != NO_WORD:
            exponent = t * min(max(nearest[word, band] * known.step, edge), gamma)
            expected[band] = weights[band] * exp(-exponent)
        most += expected[band]
    quantum = most * (1.0 + _ROUNDING) / (_UNITS - bands)
    running = 0
    per_unit = (1.0 + _ROUNDING) / quantum if quantum > 0.0 else 0.0
    for band in range(bands):
        running += np.int64(np.ceil(expected[band] * per_unit))
        expected[band] = running
    most = running * quantum
    everything = total + most
    # First by an upper bound on the rounds, then by what is accepted: the choice is the same on every run.
    if everything / total > _MAX_ROUNDS:
        certain = total + _expected_acceptance(state, probes, word, edge)
        if everything / certain > _MAX_ROUNDS:
            tables.mode[word] = _ROW
            return
    row = tables.used[0]
    tables.used[0] += 1
    tables.row_of[word] = row
    tables.mode[word] = _ENVELOPE
    for band in range(bands):
        units[row, band] = np.uint16(expected[band])
    factor = float(PARTS) / everything
    floats[row, _SCALE] = factor
    floats[row, _UNIT] = quantum
    floats[row, _EDGE] = edge
    # Rounded up: whatever lies beyond is not in the list.
    floats[row, _REACH] = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
    table[row, _END] = _fill_head(
        table[row, _HEAD : _HEAD + k], head * factor, _whole(most * factor)
    )


@njit(cache=True, nogil=True)
def _fill_head(
    cumulative: NDArray[np.uint64], parts: NDArray[np.float64], outside: np.uint64
) -> np.uint64:
    """Write the cumulative whole parts of a head, with ``outside`` left of 2^62 in all; returns their sum."""
    largest, remaining = 0, np.uint64(PARTS)
    for rank in range(parts.shape[0]):
        cumulative[rank] = _whole(parts[rank])
        remaining -= cumulative[rank]
        if cumulative[rank] > cumulative[largest]:
            largest = rank
    # What is over or missing, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around
    # makes a negative number subtract.
    if cumulative[largest] >= outside:
        cumulative[largest] += remaining - outside
    running = np.uint64(0)
    for rank in range(parts.shape[0]):
        running += cumulative[rank]
        cumulative[rank] = running
    return running


@njit(cache=True, nogil=True)
def _whole(real: float) -> np.uint64:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)


@njit(cache=True, nogil=True)
def _fill_rows(
    state: tuple[Any, ...],
    bands: tuple[Any, ...],
    probes: NDArray[np.int32],
    ids: NDArray[np.int32],
) -> None:
    """Give each word that has none its row of the tables."""
    named, known = _state(state), RankBands(*bands)
    for token in range(ids.shape[0]):
        if ids[token] >= 0:
            word = named.words.representatives[ids[token]]
            if named.tables.mode[word] == _NEW:
                _prepare(named, known, probes, word)


# A round of many tokens at a time: first each proposes, whereby the rows that it needs are prefetched, then each accepts, so
# that one wait serves all. A token is done when its output is no longer -1.


@njit(cache=True, nogil=True)
def _fetch_units(table: NDArray[np.uint64], units: NDArray[np.uint16], row: int) -> None:
    """Prefetch the units of a row whose draws are likely to leave the list; its head is there by now, and tells."""
    if table[row, _END] < _SELDOM:
        for line in range((2 * units.shape[1] + 63) >> 6):
            fetch(units, row, line)  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def _fetch_rows(rows: NDArray[np.int8], word: int, candidate: int) -> None:
    """Prefetch the quantized rows of two words."""
    for line in range(rows.shape[1] >> 6):
        fetch(rows, candidate, line)  # type: ignore[call-arg]
        fetch(rows, word, line)


@njit(cache=True, nogil=True)
def _rank_of(table: NDArray[np.uint64], row: int, k: int, part: np.uint64) -> int:
    """The list rank to which a part of a head belongs."""
    low, high = 0, k - 1
    while low < high:
        middle = (low + high) >> 1
        if table[row, _HEAD + middle] > part:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def _propose(
    state: SamplerState,
    ids: NDArray[np.int32],
    active: NDArray[np.int64],
    number: int,
    random: NDArray[np.uint64],
    at: int,
    end: int,
    waiting: NDArray[np.int64],
    out: NDArray[np.int32],
) -> tuple[int, int]:
    """One round of each active token up to the word that it proposes, if its list has not decided.

    Returns the offset of the next random word, or -1 where they ran out, and how many tokens wait for acceptance: of each
    ``waiting`` holds the token, the word proposed, its band and the offset of the coin.
    """
    words, prior, ranges, quantized, tables, t, gamma = state
    representatives, neighbours = words.representatives, words.neighbours
    parts, uneven = prior.parts, ranges.uneven
    row_of, table, units = tables.row_of, tables.table, tables.units
    bands, count = uneven.shape[0], 0
    for step in range(number):
        if at > end:
            return -1, step
        token = active[step]
        if step + _AHEAD < number:
            fetch(table, row_of[representatives[ids[active[step + _AHEAD]]]], 0)  # type: ignore[call-arg]
        if step + _NEXT < number:
            _fetch_units(table, units, row_of[representatives[ids[active[step + _NEXT]]]])
        word = representatives[ids[token]]
        row = row_of[word]
        first, last = table[row, _HEAD], table[row, _END]
        part = random[at] >> np.uint64(2)
        at += 1
        if part < first and first >= _COARSE:
            # Most draws keep the word, which stands first in its own list: no need to look further into the row.
            out[token] = word
            continue
        if part < last:
            rank = _rank_of(table, row, neighbours.shape[1], part)
            width = table[row, _HEAD + rank] - table[row, _HEAD + rank - 1] if rank > 0 else first
            candidate = neighbours[word, rank]
            if width < _COARSE:
                near = min(np.float64(words.distances[word, rank]), gamma)
                weight = parts[candidate] * 2.0**-62 * exp(-t * near) * tables.floats[row, _SCALE]
                at += 2
                if not bernoulli(weight / width, random[at - 2], random[at - 1]):
                    continue
            out[token] = candidate
            continue
        total_units = np.uint64(units[row, bands - 1])
        outside = np.uint64(PARTS) - last
        if outside < _COARSE:
            weight = total_units * tables.floats[row, _UNIT] * tables.floats[row, _SCALE]
            at += 2
            if not bernoulli(weight / outside, random[at - 2], random[at - 1]):
                continue
        which = np.uint16(((random[at] >> np.uint64(16)) * total_units) >> np.uint64(48))
        at += 1
        # The band to which a unit belongs is the number of those that end before it.
        band = np.int32(0)
        for other in range(bands):
            band = np.int32(band + (units[row, other] <= which))
        choice = ranges.choices[band]
        while random[at] * choice < uneven[band] and at < end + 8:
            at += 1
        if at >= end + 8:
            return -1, step
        part = upper_half(random[at], choice)  # type: ignore[call-arg]
        if ranges.firsts[band] >= 0:
            candidate = ranges.firsts[band] + np.int64(part)
        else:
            part += ranges.first_parts[band]
            candidate = np.int64(find(part, prior.cumulative, prior.guide, prior.shift))
        fetch(parts, candidate, 0)
        _fetch_rows(quantized.rows, word, candidate)
        waiting[count, 0], waiting[count, 1] = token, candidate
        waiting[count, 2], waiting[count, 3] = band, at + 1
        at, count = at + 3, count + 1
    return at, count


@njit(cache=True, nogil=True)
def _accept(
    state: SamplerState,
    ids: NDArray[np.int32],
    random: NDArray[np.uint64],
    waiting: NDArray[np.int64],
    count: int,
    out: NDArray[np.int32],
) -> None:
    """The end of that round: whether the word proposed is accepted."""
    words, prior, ranges, quantized, tables, t, gamma = state
    kind, coordinates, representatives = words.kind, words.coordinates, words.representatives
    rows, leading, scales = quantized.rows, quantized.leading, quantized.scales
    floats, units = tables.floats, tables.units
    for step in range(count):
        token, candidate, band, at = waiting[step]
        word = representatives[ids[token]]
        row = tables.row_of[word]
        edge = floats[row, _EDGE]
        weight = ranges.weights[band]
        if ranges.firsts[band] >= 0:
            weight = prior.parts[candidate] * 2.0**-62 * ranges.choices[band]
        share = units[row, band] - (units[row, band - 1] if band > 0 else 0)
        envelope = share * floats[row, _UNIT]
        # The coin fails if its first word, as a part of 2^64, is no less than the probability; smaller probabilities than
        # these ask the second word.
        part_of_one = np.float64(random[at]) * 2.0**-64
        # Accepted is what is nearer than this. Most words are far beyond, as their quantized rows tell. What these leave
        # undecided goes the exact way with the same coin, so that the draw is the same.
        limit = -np.log(part_of_one * envelope / weight) / t
        known, near = 0, 0.0
        if rows.shape[0] > 0 and part_of_one >= 2.0**-19 and edge < limit < gamma:
            squares = leading_squares(rows, leading, word, candidate)
            if surely_beyond(squares, limit, scales[0], scales[1]):
                known = -1
            else:
                near = np.sqrt(
                    all_squares(rows, leading, word, candidate, squares, scales[0], scales[2])
                )
                moved = displacement(rows, word, candidate)
                known = decided(near, moved, limit, t, scales[3], scales[4], scales[5])
        if known == 0:
            distance = max(
                row_distance(kind, coordinates, np.int64(word), coordinates, candidate), edge
            )
            weight *= exp(-t * min(distance, gamma))
            if bernoulli(weight / envelope, random[at], random[at + 1]):
                known = 1
        # A word of the list is drawn with the head alone; here it fails like any other, and the round is over.
        if known > 0 and (
            near - scales[3] > floats[row, _REACH]
            or not listed(words.neighbours, np.int64(word), candidate)
        ):
            out[token] = candidate


@njit(cache=True, nogil=True)
def _sample(
    state: tuple[Any, ...],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> list[tuple[int, int]]:
    """Draw until a document is finished or its random words run out; a round that ran out starts over with the same.

    Returns the tokens to be drawn from full rows, each with the offset of its four random words.
    """
    named = _state(state)
    words, prior, tables = named.words, named.prior, named.tables
    rows = [(np.int64(0), np.int64(0)) for _ in range(0)]
    active, waiting = np.empty(_TOGETHER, np.int64), np.empty((_TOGETHER, 4), np.int64)
    for slot in range(pending.shape[0]):
        document = pending[slot]
        at = starts[slot]
        end = starts[slot + 1] - ROOM
        first, stop = offsets[document], offsets[document + 1]
        # Which tokens stand in one group does not depend on where random words ran out.
        first += (done[document] - first) // _TOGETHER * _TOGETHER
        while first < stop:
            group = min(first + _TOGETHER, stop)
            number = np.int64(0)
            for token in range(first, group):
                if out[token] >= 0:
                    continue
                if ids[token] >= 0 and tables.mode[words.representatives[ids[token]]] != _ROW:
                    active[number] = token
                    number += 1
                elif at > end:
                    break
                elif ids[token] < 0:
                    out[token] = draw(random[at], prior.cumulative, prior.guide, prior.shift)
                    at += 1
                else:
                    rows.append((np.int64(token), np.int64(at)))
                    out[token] = 0
                    at += 4
            while number > 0:
                then, count = _propose(named, ids, active, number, random, at, end, waiting, out)
                if then < 0:
                    for step in range(count):
                        out[active[step]] = -1
                    break
                at = then
                _accept(named, ids, random, waiting, count, out)
                left = 0
                for step in range(number):
                    active[left] = active[step]
                    left += out[active[step]] < 0
                number = left
            while first < group and out[first] >= 0:
                first += 1
            if first < group:
                break
        done[document] = first
        position[slot] = at
    return rows


class EnvelopeSampler:
    """Draws from ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)``, by tables that grow with the words in use.

    Parameters
    ----------
    index : Index
    measure : BaseMeasure
        The base measure nu.
    t, gamma : float
    """

    def __init__(self, index: Index, measure: BaseMeasure, t: float, gamma: float) -> None:
        self.index, self.measure, self.t, self.gamma = index, measure, t, gamma
        self.ranges = measure.ranges(index.bands.starts)
        self._words = IndexArrays(
            index.metric.kind,
            index.coordinates,
            index.representatives,
            index.neighbours.ids,
            index.neighbours.distances,
        )
        self._prior = MeasureArrays(measure.parts, *measure.tables())
        self.tables = Tables.empty(len(index), index.k, len(self.ranges.weights))
        if index.metric.kind == INTERPRETED:
            self.tables.mode[:] = _ROW
        self._probes = quantiles(measure.cumulative, min(64, len(index)))
        self._rows: OrderedDict[int, tuple[NDArray[np.uint64], NDArray[np.float64]]] = OrderedDict()
        self._lock = threading.Lock()

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`textpriv.mechanisms.base.Mechanism.sample_documents`."""
        with self._lock:
            state = self._filled(ids)

        def sampler(pending: Any, *rest: Any) -> list[tuple[int, int]]:
            deferred: list[tuple[int, int]] = _sample(state, ids, offsets, pending, *rest)
            return deferred

        # Other threads may draw and fill in more rows meanwhile: what stands in a row never changes.
        out, deferred = draw_documents(sampler, offsets, streams, _SPARE)
        with self._lock:
            for token, key in deferred:
                out[token] = self.draw_from_row(int(ids[token]), key)
        return out

    def _filled(self, ids: NDArray[np.int32]) -> tuple[Any, ...]:
        """Fill in the rows that these words lack; return what the kernels read (see :func:`_state`)."""
        named = self._words, self._prior, self.ranges, self.index.quantized, self.tables
        state = *map(tuple, named), self.t, self.gamma
        _fill_rows(state, tuple(self.index.bands), self._probes, np.ascontiguousarray(ids))
        return state

    def row(self, word: int) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Cumulative whole parts of a word's full row, and the real number of parts of each output."""
        row = int(self.index.representatives[word])
        if row in self._rows:
            self._rows.move_to_end(row)
            return self._rows[row]
        distances = drawn_distances(self.index, word)
        weights = self.measure.weights * exps(-self.t * np.minimum(distances, self.gamma))
        real = weights * (float(PARTS) / fixed_sum(weights))
        parts = integer_parts(np.where(real < float(_COARSE), np.ceil(real), real))
        self._rows[row] = np.cumsum(parts, dtype=np.uint64), real
        if len(self._rows) > 64:
            self._rows.popitem(last=False)
        return self._rows[row]

    def draw_from_row(self, word: int, key: bytes) -> int:
        """Draw from a full row with a stream of the token's own."""
        cumulative, real = self.row(word)
        stream = Stream(key)
        while True:
            first, second, third = stream.words(3)
            output = int(np.searchsorted(cumulative, first >> np.uint64(2), side="right"))
            parts = int(cumulative[output]) - (int(cumulative[output - 1]) if output else 0)
            if parts >= int(_COARSE) or bernoulli(real[output] / parts, second, third):
                return output


def reference_sample(sampler: EnvelopeSampler, ids: NDArray[np.int32], stream: Stream) -> list[int]:
    """What the kernels draw for one document, plainly: no short cut, no quantized rows, a distance for every proposal."""
    sampler._filled(ids)
    mode, out = sampler.tables.mode, [-1] * len(ids)
    for first in range(0, len(ids), _TOGETHER):
        active = []
        for token, word in enumerate(ids[first : first + _TOGETHER].tolist(), start=first):
            if word < 0:
                out[token] = draw(stream.words(1)[0], *sampler.measure.tables())
            elif mode[sampler.index.representatives[word]] == _ROW:
                out[token] = sampler.draw_from_row(word, stream.words(4).tobytes())
            else:
                active.append(token)
        while active:
            for token in active:
                out[token] = _reference_round(sampler, ids[token], stream)
            active = [token for token in active if out[token] < 0]
    return out


def _reference_round(sampler: EnvelopeSampler, word: int, stream: Stream) -> int:
    """One round of a word: the output, or -1 where the proposal is not accepted (mechanisms.md 3.4)."""
    index, tables, ranges = sampler.index, sampler.tables, sampler.ranges
    word = int(index.representatives[word])
    row, ids = tables.row_of[word], index.neighbours.ids[word]
    ends = tables.table[row, _HEAD : _HEAD + index.k]
    scale, unit, edge = tables.floats[row, [_SCALE, _UNIT, _EDGE]]
    part = stream.words(1)[0] >> np.uint64(2)
    units = np.diff(tables.units[row].astype(np.int64), prepend=0)
    if part < ends[-1]:
        rank = int(np.searchsorted(ends, part, side="right"))
        near = min(float(index.neighbours.distances[word, rank]), sampler.gamma)
        weight = sampler.measure.weights[ids[rank]] * exp(-sampler.t * near) * scale
        parts = int(np.diff(ends, prepend=np.uint64(0))[rank])
        output = int(ids[rank])
        return output if parts >= _COARSE or bernoulli(weight / parts, *stream.words(2)) else -1
    outside = PARTS - int(ends[-1])
    if outside < _COARSE and not bernoulli(units.sum() * unit * scale / outside, *stream.words(2)):
        return -1
    which = (int(stream.words(1)[0]) >> 16) * int(units.sum()) >> 48
    band = int(np.searchsorted(np.cumsum(units), which, side="right"))
    choices, first = int(ranges.choices[band]), int(ranges.firsts[band])
    while (product := int(stream.words(1)[0]) * choices) % 2**64 < ranges.uneven[band]:
        continue
    part = np.uint64(product >> 64)
    weight = ranges.weights[band]
    if first < 0:
        output = find(ranges.first_parts[band] + part, *sampler.measure.tables())
    else:
        output = first + int(part)
        weight = sampler.measure.weights[output] * ranges.choices[band]
    distance = min(max(index.distance(word, output), edge), sampler.gamma)
    probability = weight * exp(-sampler.t * distance) / (units[band] * unit)
    accepted = bernoulli(probability, *stream.words(2))
    return output if accepted and output not in ids else -1
