"""The envelope sampler of TEM: the tables of words and the compiled functions that draw with them.

A round proposes a word, from the nearest list or from a band of the vocabulary, and accepts it with an exact coin
(mechanisms.md 3.4). The law, its rate and its statement stand in ``tem``; the measure in ``base_measure``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp
from textpriv.index.neighbours import NO_WORD, Bands
from textpriv.index.quantized import (
    Sketch,
    all_squares,
    leading_squares,
    moves,
    settled,
    surely_beyond,
)
from textpriv.mechanisms.base_measure import (
    PARTS,
    Ranges,
    bernoulli,
    draw,
    find,
    upper_half,
)
from textpriv.mechanisms.sampling import ROOM, fetch, listed
from textpriv.metrics import row_distance

_NEW, _ENVELOPE, _ROW = np.uint8(0), np.uint8(1), np.uint8(2)
# A word whose expected number of rounds exceeds this is drawn from its full row instead: a row costs about as much as some
# thousands of them.
_PATIENCE = 4096.0
# Parts below this are accepted against their exact real weight, so that rounding to whole parts never changes a
# probability by more than 2^-32 of itself.
_COARSE = np.uint64(1 << 32)
_ROUNDING = 1e-12  # far more than sums and products of some weights are rounded by
# Tokens of a document whose rounds are drawn together, so that the rows they look at arrive together.
_TOGETHER = 256
# Tokens from where a word's row of the tables is asked for to where it is drawn, and from where its units are; these only if
# no more than such a part of its draws stays in its list.
_AHEAD, _NEXT, _SELDOM = 8, 4, np.uint64(PARTS // 2)
_SPARE = 8  # random words a token read ahead
_UNITS = 65535  # into which the envelope of the bands is divided, with at least one for each that has words to draw
# A word's row of the table begins with what every draw asks for, so that it comes in one cache line: the end of the head,
# the edge, the reach, the scale and the unit as floats, and then the cumulative parts of the head.
_END, _EDGE, _REACH, _SCALE, _UNIT, _HEAD = range(6)


class _Words(NamedTuple):
    """What a compiled sampler needs of an index: the kind of its metric, and arrays under their names there."""

    kind: int
    coordinates: NDArray[Any]
    representatives: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    distances: NDArray[Any]


class _Prior(NamedTuple):
    """What it needs of the measure, as :class:`BaseMeasure` holds it."""

    parts: NDArray[np.uint64]
    cumulative: NDArray[np.uint64]
    guide: NDArray[np.int32]
    shift: np.uint64


class _Tables(NamedTuple):
    """What is prepared for words, each of which gets the next row when it is first met.

    So only rows in use take memory, and those of common words lie together.

    Attributes
    ----------
    mode : ndarray of uint8, shape (V,)
        How a word is drawn: not prepared yet, by its row and the envelope, or from its full law.
    places : ndarray of int32, shape (V,)
        The row of a word.
    used : ndarray of int64, shape (1,)
        How many rows are in use.
    table, floats : ndarray of uint64, and the same memory as float64, shape (V, w)
        What a draw asks for first, in one cache line (``_END`` to ``_UNIT``), and the cumulative parts of the head.
    units : ndarray of uint16, shape (V, B)
        Where each band ends among the units of the envelope.
    """

    mode: NDArray[np.uint8]
    places: NDArray[np.int32]
    used: NDArray[np.int64]
    table: NDArray[np.uint64]
    floats: NDArray[np.float64]
    units: NDArray[np.uint16]

    @classmethod
    def empty(cls, size: int, k: int, bands: int) -> _Tables:
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


class _Held(NamedTuple):
    """All that the compiled functions read, and what they fill in."""

    words: _Words
    prior: _Prior
    ranges: Ranges
    sketch: Sketch
    tables: _Tables
    t: float
    gamma: float


@njit(cache=True, nogil=True)
def _named(held: tuple[Any, ...]) -> _Held:
    """What is held, under its names. Plain tuples are given: named ones take longer to recognise than some draws."""
    words, prior, ranges, sketch, tables, t, gamma = held
    return _Held(
        _Words(*words), _Prior(*prior), Ranges(*ranges), Sketch(*sketch), _Tables(*tables), t, gamma
    )


@njit(cache=True, nogil=True)
def _prepare(held: _Held, known: Bands, probes: NDArray[np.int32], word: int) -> None:
    """Give a word its row of the tables.

    They hold the cumulative whole parts of its head; what is left of 2^62 is the envelope of the bands, and the units into
    which that is divided, of which each band has at least as many as the words in it can weigh.
    """
    words, prior, ranges, _, tables, t, gamma = held
    ids, distances = words.neighbours, words.distances
    nearest, weights, parts = known.nearest, ranges.weights, prior.parts
    table, floats, units = tables.table, tables.floats, tables.units
    k, bands = ids.shape[1], nearest.shape[1]
    unit = 2.0**-62
    head, expected = np.empty(k), np.empty(bands)
    total, most = 0.0, 0.0
    for place in range(k):
        exponent = t * min(np.float64(distances[word, place]), gamma)
        head[place] = parts[ids[word, place]] * unit * exp(-exponent)
        total += head[place]
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
    if everything / total > _PATIENCE:
        # That was an upper bound on the rounds; what is accepted decides, as estimated on a fixed public sample so that the
        # choice is the same on every run.
        certain = 0.0
        for probe in probes:
            if not listed(ids, np.int64(word), np.int64(probe)):
                distance = max(
                    row_distance(
                        words.kind,
                        words.coordinates,
                        np.int64(word),
                        words.coordinates,
                        np.int64(probe),
                    ),
                    edge,
                )
                certain += exp(-t * min(distance, gamma))
        certain = total + certain / probes.shape[0]
        if everything / certain > _PATIENCE:
            tables.mode[word] = _ROW
            return
    row = tables.used[0]
    tables.used[0] += 1
    tables.places[word] = row
    tables.mode[word] = _ENVELOPE
    for band in range(bands):
        units[row, band] = np.uint16(expected[band])
    factor = float(PARTS) / everything
    floats[row, _SCALE] = factor
    floats[row, _UNIT] = quantum
    floats[row, _EDGE] = edge
    # Rounded up: whatever lies beyond is not in the list.
    floats[row, _REACH] = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
    largest, remaining = 0, np.uint64(PARTS)
    for place in range(k):
        whole = _whole(head[place] * factor)
        table[row, _HEAD + place] = whole
        remaining -= whole
        if whole > table[row, _HEAD + largest]:
            largest = place
    # What is over or missing, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around
    # makes a negative number subtract.
    outside = _whole(most * factor)
    if table[row, _HEAD + largest] >= outside:
        table[row, _HEAD + largest] += remaining - outside
    running_parts = np.uint64(0)
    for place in range(k):
        running_parts += table[row, _HEAD + place]
        table[row, _HEAD + place] = running_parts
    table[row, _END] = running_parts


@njit(cache=True, nogil=True)
def _fill(
    held: tuple[Any, ...],
    bands: tuple[Any, ...],
    probes: NDArray[np.int32],
    ids: NDArray[np.int32],
) -> None:
    """Give each word that has none its row of the tables."""
    named, known = _named(held), Bands(*bands)
    for token in range(ids.shape[0]):
        if ids[token] >= 0:
            word = named.words.representatives[ids[token]]
            if named.tables.mode[word] == _NEW:
                _prepare(named, known, probes, word)


@njit(cache=True, nogil=True)
def _whole(real: float) -> np.uint64:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)


# A round of many tokens at a time: first what each draws, whereby the rows that it needs are sent for, then the looks at
# them, so that one wait serves all. Whether a token is done, its output tells: it is -1 until then.


@njit(cache=True, nogil=True)
def _choose(
    held: _Held,
    ids: NDArray[np.int32],
    active: NDArray[np.int64],
    number: int,
    random: NDArray[np.uint64],
    place: int,
    end: int,
    waiting: NDArray[np.int64],
    out: NDArray[np.int32],
) -> tuple[int, int]:
    """One round of each active token up to the word that it looks at, if its list has not decided.

    Returns the place of the next random word, or -1 where they ran out, and how many tokens wait for a look: of each
    ``waiting`` holds the token, the word looked at, its band and the place of the coin.
    """
    words, prior, ranges, sketch, tables, t, gamma = held
    representatives, neighbours = words.representatives, words.neighbours
    parts, rows, uneven = prior.parts, sketch.rows, ranges.uneven
    places, table, units = tables.places, tables.table, tables.units
    k, bands = neighbours.shape[1], uneven.shape[0]
    unit = 2.0**-62
    count = 0
    for step in range(number):
        if place > end:
            return -1, step
        token = active[step]
        if step + _AHEAD < number:
            fetch(table, places[representatives[ids[active[step + _AHEAD]]]], 0)  # type: ignore[call-arg]
        if step + _NEXT < number:
            # Its row is there by now, and tells whether a draw is likely to leave the list.
            row = places[representatives[ids[active[step + _NEXT]]]]
            if table[row, _END] < _SELDOM:
                for line in range((2 * bands + 63) >> 6):
                    fetch(units, row, line)  # type: ignore[call-arg]
        word = representatives[ids[token]]
        own = places[word]
        first, last = table[own, _HEAD], table[own, _END]
        part = random[place] >> np.uint64(2)
        place += 1
        if part < first and first >= _COARSE:
            # Most draws keep the word, which stands first in its own list: no need to look further into the row.
            out[token] = word
            continue
        if part < last:
            low, high = 0, k - 1
            while low < high:
                middle = (low + high) >> 1
                if table[own, _HEAD + middle] > part:
                    high = middle
                else:
                    low = middle + 1
            width = table[own, _HEAD + low] - table[own, _HEAD + low - 1] if low > 0 else first
            candidate = neighbours[word, low]
            if width < _COARSE:
                weight = (
                    parts[candidate]
                    * unit
                    * exp(-t * min(np.float64(words.distances[word, low]), gamma))
                    * tables.floats[own, _SCALE]
                )
                place += 2
                if not bernoulli(weight / width, random[place - 2], random[place - 1]):
                    continue
            out[token] = candidate
            continue
        total_units = np.uint64(units[own, bands - 1])
        outside = np.uint64(PARTS) - last
        if outside < _COARSE:
            weight = total_units * tables.floats[own, _UNIT] * tables.floats[own, _SCALE]
            place += 2
            if not bernoulli(weight / outside, random[place - 2], random[place - 1]):
                continue
        which = np.uint16(((random[place] >> np.uint64(16)) * total_units) >> np.uint64(48))
        place += 1
        # The band to which a unit belongs is the number of those that end before it.
        band = np.int32(0)
        for other in range(bands):
            band = np.int32(band + (units[own, other] <= which))
        choice = ranges.choices[band]
        while random[place] * choice < uneven[band] and place < end + 8:
            place += 1
        if place >= end + 8:
            return -1, step
        part = upper_half(random[place], choice)  # type: ignore[call-arg]
        if ranges.firsts[band] >= 0:
            candidate = ranges.firsts[band] + np.int64(part)
        else:
            candidate = np.int64(
                find(ranges.begins[band] + part, prior.cumulative, prior.guide, prior.shift)
            )
        fetch(parts, candidate, 0)
        for line in range(rows.shape[1] >> 6):
            fetch(rows, candidate, line)
            fetch(rows, word, line)
        waiting[count, 0] = token
        waiting[count, 1] = candidate
        waiting[count, 2] = band
        waiting[count, 3] = place + 1
        count += 1
        place += 3
    return place, count


@njit(cache=True, nogil=True)
def _look(
    held: _Held,
    ids: NDArray[np.int32],
    random: NDArray[np.uint64],
    waiting: NDArray[np.int64],
    count: int,
    out: NDArray[np.int32],
) -> None:
    """The end of that round: whether the word looked at is accepted."""
    words, prior, ranges, sketch, tables, t, gamma = held
    kind, coordinates, representatives = words.kind, words.coordinates, words.representatives
    rows, leading, grain = sketch.rows, sketch.leading, sketch.grain
    floats, units = tables.floats, tables.units
    for step in range(count):
        token, candidate, band, place = waiting[step]
        word = representatives[ids[token]]
        own = tables.places[word]
        edge = floats[own, _EDGE]
        weight = ranges.weights[band]
        if ranges.firsts[band] >= 0:
            weight = prior.parts[candidate] * 2.0**-62 * ranges.choices[band]
        share = units[own, band] - (units[own, band - 1] if band > 0 else 0)
        envelope = share * floats[own, _UNIT]
        # The coin fails if its first word, as a part of 2^64, is no less than the probability; smaller probabilities than
        # these ask the second word.
        part_of_one = np.float64(random[place]) * 2.0**-64
        # Accepted is what is nearer than this. Most words are far beyond, which a look at the short forms tells. What they
        # do not settle goes the exact way with the same coin, so that the draw is the same.
        limit = -np.log(part_of_one * envelope / weight) / t
        known, near = 0, 0.0
        if rows.shape[0] > 0 and part_of_one >= 2.0**-19 and edge < limit < gamma:
            squares = leading_squares(rows, leading, word, candidate)
            if surely_beyond(squares, limit, grain[0], grain[1]):
                known = -1
            else:
                near = np.sqrt(
                    all_squares(rows, leading, word, candidate, squares, grain[0], grain[2])
                )
                moved = moves(rows, word, candidate)
                known = settled(near, moved, limit, t, grain[3], grain[4], grain[5])
        if known == 0:
            distance = max(
                row_distance(kind, coordinates, np.int64(word), coordinates, candidate), edge
            )
            weight *= exp(-t * min(distance, gamma))
            if bernoulli(weight / envelope, random[place], random[place + 1]):
                known = 1
        # A word of the list is drawn with the head alone; here it fails like any other, and the round is over.
        if known > 0 and (
            near - grain[3] > floats[own, _REACH]
            or not listed(words.neighbours, np.int64(word), candidate)
        ):
            out[token] = candidate


@njit(cache=True, nogil=True)
def _sample(
    held: tuple[Any, ...],
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

    Returns the tokens to be drawn from full rows, each with the place of its four random words.
    """
    named = _named(held)
    words, prior, tables = named.words, named.prior, named.tables
    rows = [(np.int64(0), np.int64(0)) for _ in range(0)]
    active, waiting = np.empty(_TOGETHER, np.int64), np.empty((_TOGETHER, 4), np.int64)
    for slot in range(pending.shape[0]):
        document = pending[slot]
        place = starts[slot]
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
                elif place > end:
                    break
                elif ids[token] < 0:
                    out[token] = draw(random[place], prior.cumulative, prior.guide, prior.shift)
                    place += 1
                else:
                    rows.append((np.int64(token), np.int64(place)))
                    out[token] = 0
                    place += 4
            while number > 0:
                then, count = _choose(
                    named,
                    ids,
                    active,
                    number,
                    random,
                    place,
                    end,
                    waiting,
                    out,
                )
                if then < 0:
                    for step in range(count):
                        out[active[step]] = -1
                    break
                place = then
                _look(
                    named,
                    ids,
                    random,
                    waiting,
                    count,
                    out,
                )
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
        position[slot] = place
    return rows
