"""The kernels that draw for TEM: rounds of many tokens at a time, by the tables of ``tem_tables``.

They draw from the same random words what ``tem_sampler`` draws one round after the other, which says what a round is. They
take seconds to compile, so they are called where there is enough to draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp
from textpriv.index.quantized import (
    QuantizedRows,
    all_squares,
    decided,
    displacement,
    leading_squares,
    surely_beyond,
)
from textpriv.mechanisms.base_measure import PARTS, Ranges, bernoulli, draw, find, upper_half
from textpriv.mechanisms.sampling import ROOM, fetch, listed
from textpriv.mechanisms.tem_tables import (
    COARSE,
    EDGE,
    END,
    HEAD,
    REACH,
    ROW,
    SCALE,
    TOGETHER,
    UNIT,
    IndexArrays,
    MeasureArrays,
    SamplerState,
    Tables,
)
from textpriv.metrics import row_distance

__all__ = ["sample"]

# Tokens from where a word's row of the tables is prefetched to where it is drawn, and from where its units are; these only
# if no more than such a part of its draws stays in its list.
_AHEAD, _NEXT, _SELDOM = 8, 4, np.uint64(PARTS // 2)


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


# A round of many tokens at a time: first each proposes, whereby the rows that it needs are prefetched, then each accepts, so
# that one wait serves all. A token is done when its output is no longer -1.


@njit(cache=True, nogil=True)
def _fetch_units(table: NDArray[np.uint64], units: NDArray[np.uint16], row: int) -> None:
    """Prefetch the units of a row whose draws are likely to leave the list; its head is there by now, and tells."""
    if table[row, END] < _SELDOM:
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
        if table[row, HEAD + middle] > part:
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
        first, last = table[row, HEAD], table[row, END]
        part = random[at] >> np.uint64(2)
        at += 1
        if part < first and first >= COARSE:
            # Most draws keep the word, which stands first in its own list: no need to look further into the row.
            out[token] = word
            continue
        if part < last:
            rank = _rank_of(table, row, neighbours.shape[1], part)
            width = table[row, HEAD + rank] - table[row, HEAD + rank - 1] if rank > 0 else first
            candidate = neighbours[word, rank]
            if width < COARSE:
                near = min(np.float64(words.distances[word, rank]), gamma)
                weight = parts[candidate] * 2.0**-62 * exp(-t * near) * tables.floats[row, SCALE]
                at += 2
                if not bernoulli(weight / width, random[at - 2], random[at - 1]):
                    continue
            out[token] = candidate
            continue
        total_units = np.uint64(units[row, bands - 1])
        outside = np.uint64(PARTS) - last
        if outside < COARSE:
            weight = total_units * tables.floats[row, UNIT] * tables.floats[row, SCALE]
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
        edge = floats[row, EDGE]
        weight = ranges.weights[band]
        if ranges.firsts[band] >= 0:
            weight = prior.parts[candidate] * 2.0**-62 * ranges.choices[band]
        share = units[row, band] - (units[row, band - 1] if band > 0 else 0)
        envelope = share * floats[row, UNIT]
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
            near - scales[3] > floats[row, REACH]
            or not listed(words.neighbours, np.int64(word), candidate)
        ):
            out[token] = candidate


@njit(cache=True, nogil=True)
def sample(
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
    active, waiting = np.empty(TOGETHER, np.int64), np.empty((TOGETHER, 4), np.int64)
    for slot in range(pending.shape[0]):
        document = pending[slot]
        at = starts[slot]
        end = starts[slot + 1] - ROOM
        first, stop = offsets[document], offsets[document + 1]
        # Which tokens stand in one group does not depend on where random words ran out.
        first += (done[document] - first) // TOGETHER * TOGETHER
        while first < stop:
            group = min(first + TOGETHER, stop)
            number = np.int64(0)
            for token in range(first, group):
                if out[token] >= 0:
                    continue
                if ids[token] >= 0 and tables.mode[words.representatives[ids[token]]] != ROW:
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
