"""The envelope sampler of TEM: exact draws from exponential laws over nearest lists, round by round and by kernels.

A round proposes a word, from the nearest list or from a band of the vocabulary, and accepts it with an exact coin
(mechanisms.md 3.4): any word is returned with a probability in proportion to its weight, so the law does not depend on the
bands. What a round is stands here as one reads it; a few texts are drawn by it. For more the kernels of ``tem_kernels`` are
compiled, which draw the same words from the same stream. The tables of both are in ``tem_tables``, the law, its rate and its
statement in ``tem``, the measure in ``base_measure``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arithmetic import fixed_sum
from textpriv.index.index import Index
from textpriv.mechanisms.base_measure import PARTS, BaseMeasure, accepts, integer_parts
from textpriv.mechanisms.sampling import ROOM, draw_documents, drawn_distances
from textpriv.mechanisms.tem_kernels import sample
from textpriv.mechanisms.tem_tables import (
    COARSE,
    EDGE,
    HEAD,
    NEW,
    ROW,
    SCALE,
    TOGETHER,
    UNIT,
    Tables,
    fill,
)
from textpriv.metrics import INTERPRETED
from textpriv.randomness import RandomWords, Stream
from textpriv.uncompiled import exp, exps, row_distances

__all__ = ["FEW_ROUNDS", "EnvelopeSampler", "reference_sample"]

# Rounds that a sampler draws one by one, which take half a second in all; to compile or load the kernels takes longer.
FEW_ROUNDS = 10_000
_ready: set[Any] = set()  # types of coordinates for which this process has run the kernels
_SPARE = 8  # random words a token read ahead


class _OutOfWords(Exception):
    """The random words at hand do not suffice for a round."""


class _Reader:
    """Reads random words one after the other.

    Parameters
    ----------
    random : ndarray of uint64
    at : int
        Offset of the next word.
    end : int
        Offset of the last word with which a round may begin: ``ROOM`` from the end of the words.
    """

    __slots__ = ("at", "end", "random")

    def __init__(self, random: NDArray[np.uint64], at: int, end: int) -> None:
        self.random, self.at, self.end = random, at, end

    def begin(self) -> None:
        """See to it that there are words for a round."""
        if self.at > self.end:
            raise _OutOfWords

    def take(self) -> int:
        """The next word."""
        if self.at >= self.end + ROOM:
            raise _OutOfWords
        self.at += 1
        return int(self.random[self.at - 1])

    def accepts(self, probability: float) -> bool:
        """A coin of the next two words."""
        return accepts(probability, self.take(), self.take())


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
        self.ranges = measure.ranges(index.band_starts)
        self.tables = Tables.empty(len(index), index.k, len(self.ranges.weights))
        # Whether a word's representative is prepared; the last entry stands for words without an id.
        self._prepared = np.zeros(len(index) + 1, dtype=np.bool_)
        self._prepared[-1] = True
        if index.metric.kind == INTERPRETED:
            self.tables.mode[:] = ROW
            self._prepared[:] = True
        # Where this process has them compiled, and all lists are there, nothing is gained without the kernels.
        ready = index.coordinates.dtype in _ready and "neighbours" in vars(index)
        self._rounds = -1 if ready else FEW_ROUNDS
        self._rows: OrderedDict[int, tuple[NDArray[np.uint64], NDArray[np.float64]]] = OrderedDict()
        self._lock = threading.Lock()

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`textpriv.mechanisms.base.Mechanism.sample_documents`."""
        self.prepare(ids)
        draw = self._kernels if len(ids) > self._rounds else self._round_by_round
        # Other threads may draw and fill in more rows meanwhile: what stands in a row never changes.
        out, deferred = draw_documents(partial(draw, ids, offsets), offsets, streams, _SPARE)
        with self._lock:
            for token, key in deferred:
                out[token] = self.draw_from_row(int(ids[token]), key)
        return out

    def prepare(self, ids: NDArray[np.int32]) -> None:
        """Fill in the rows of the tables that these words lack."""
        # Among bytes a zero is found sooner than by a reduction, which for one short text takes as long as its draws.
        if 0 not in self._prepared[ids].tobytes():
            return
        with self._lock:
            missing = np.unique(ids[~self._prepared[ids]])
            words = self.index.representatives[missing]
            new = np.unique(words[self.tables.mode[words] == NEW]).astype(np.int64)
            fill(self.tables, new, self.index, self.measure, self.ranges, self.t, self.gamma)
            self._prepared[missing] = True

    def compile(self) -> None:
        """Have whatever is drawn from now on drawn by the kernels, and have these ready."""
        self._rounds = -1
        self.sample_documents(np.zeros(1, dtype=np.int32), np.array([0, 1]), [Stream()])

    def _kernels(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], *state: Any
    ) -> list[tuple[int, int]]:
        """Draw by compiled code; see :data:`textpriv.mechanisms.sampling.Sampler`."""
        deferred: list[tuple[int, int]] = sample(self._state, ids, offsets, *state)
        return deferred

    @cached_property
    def _state(self) -> tuple[Any, ...]:
        """What the kernels read: a :class:`SamplerState` of plain tuples."""
        index, measure = self.index, self.measure
        lists = index.neighbours
        words = index.metric.kind, index.coordinates, index.representatives
        prior = measure.parts, *measure.tables()
        tables = tuple(self.ranges), tuple(index.quantized), tuple(self.tables)
        _ready.add(index.coordinates.dtype)
        return (*words, lists.ids, lists.distances), prior, *tables, self.t, self.gamma

    def _round_by_round(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        pending: NDArray[np.int64],
        done: NDArray[np.int64],
        random: NDArray[np.uint64],
        starts: NDArray[np.int64],
        position: NDArray[np.int64],
        out: NDArray[np.int32],
    ) -> list[tuple[int, int]]:
        """Draw the same without compiled code, as long as it is little; the kernels go on where it becomes much."""
        rows: list[tuple[int, int]] = []
        for slot, document in enumerate(pending.tolist()):
            reader = _Reader(random, int(starts[slot]), int(starts[slot + 1]) - ROOM)
            finished = self._document(ids, offsets, document, done, reader, out, rows)
            position[slot] = reader.at
            if not finished:
                words = np.array([reader.at, starts[slot + 1]])
                this = slice(slot, slot + 1)
                state = pending[this], done, random, words, position[this], out
                rows += self._kernels(ids, offsets, *state)
        return rows

    def _document(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        document: int,
        done: NDArray[np.int64],
        reader: _Reader,
        out: NDArray[np.int32],
        rows: list[tuple[int, int]],
    ) -> bool:
        """Draw a document until it is finished or its random words run out; False where it takes too many rounds."""
        first, stop = int(done[document]), int(offsets[document + 1])
        while first < stop:
            start = int(offsets[document])
            group = min(start + ((first - start) // TOGETHER + 1) * TOGETHER, stop)
            active = []
            for token in range(first, group):
                word = int(ids[token])
                if out[token] >= 0:
                    continue
                if word >= 0 and self.tables.mode[self.index.representatives[word]] != ROW:
                    active.append(token)
                elif reader.at > reader.end:
                    break
                elif word < 0:
                    out[token] = self.measure.at(reader.take() >> 2)
                else:
                    rows.append((token, reader.at))
                    out[token] = 0
                    reader.at += 4
            while active and self._rounds >= 0:
                begin = reader.at
                try:
                    drawn = [self.round_of(int(ids[token]), reader) for token in active]
                except _OutOfWords:
                    reader.at = begin
                    break
                self._rounds -= len(active)
                out[active] = drawn
                active = [token for token in active if out[token] < 0]
            open_tokens = np.flatnonzero(out[first:group] < 0)
            first = done[document] = first + int(open_tokens[0]) if len(open_tokens) else group
            if first < group:
                return self._rounds >= 0
        return True

    def round_of(self, word: int, reader: _Reader) -> int:
        """One round of a word: the output, or -1 where what it proposes is not accepted (mechanisms.md 3.4)."""
        reader.begin()
        index, tables, ranges = self.index, self.tables, self.ranges
        word = int(index.representatives[word])
        row = tables.row_of[word]
        ends, units = tables.table[row, HEAD : HEAD + index.k], tables.units[row]
        scale, unit, edge = tables.floats[row, [SCALE, UNIT, EDGE]].tolist()
        part, last = reader.take() >> 2, int(ends[-1])
        if part < last:
            rank = int(np.searchsorted(ends, np.uint64(part), side="right"))
            lists = index.lists_of(np.array([word]))
            output = int(lists.ids[0, rank])
            width = int(ends[rank]) - (int(ends[rank - 1]) if rank else 0)
            near = min(float(lists.distances[0, rank]), self.gamma)
            weight = float(self.measure.weights[output]) * exp(-self.t * near) * scale
            return output if width >= COARSE or reader.accepts(weight / width) else -1
        outside, total = PARTS - last, int(units[-1])
        if outside < COARSE and not reader.accepts(total * unit * scale / outside):
            return -1
        which = (reader.take() >> 16) * total >> 48
        band = int(np.searchsorted(units, which, side="right"))
        share = int(units[band]) - (int(units[band - 1]) if band else 0)
        choices, first = int(ranges.choices[band]), int(ranges.firsts[band])
        while (product := reader.take() * choices) % 2**64 < ranges.uneven[band]:
            continue
        part, weight = product >> 64, float(ranges.weights[band])
        if first < 0:
            output = self.measure.at(int(ranges.first_parts[band]) + part)
        else:
            output = first + part
            weight = float(self.measure.weights[output]) * choices
        rows = index.coordinates[[word, output]]
        distance = float(row_distances(index.metric.kind, rows[0], rows[1:])[0])
        weight *= exp(-self.t * min(max(distance, edge), self.gamma))
        if not reader.accepts(weight / (share * unit)):
            return -1
        # A word of the list is drawn with the head alone; here it fails like any other.
        return -1 if output in index.lists_of(np.array([word])).ids else output

    def row(self, word: int) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Cumulative whole parts of a word's full row, and the real number of parts of each output."""
        row = int(self.index.representatives[word])
        if row in self._rows:
            self._rows.move_to_end(row)
            return self._rows[row]
        distances = drawn_distances(self.index, word)
        weights = self.measure.weights * exps(-self.t * np.minimum(distances, self.gamma))
        real = weights * (float(PARTS) / fixed_sum(weights))
        parts = integer_parts(np.where(real < float(COARSE), np.ceil(real), real))
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
            if parts >= int(COARSE) or accepts(
                float(real[output]) / parts, int(second), int(third)
            ):
                return output


def reference_sample(sampler: EnvelopeSampler, ids: NDArray[np.int32], stream: Stream) -> list[int]:
    """What the kernels draw for one document, plainly: no short cut, no quantized rows, a distance for every proposal."""
    sampler.prepare(ids)
    mode, out = sampler.tables.mode, [-1] * len(ids)
    words = _Reader(stream.words(1 << 20), 0, (1 << 20) - ROOM)
    for first in range(0, len(ids), TOGETHER):
        active = []
        for token, word in enumerate(ids[first : first + TOGETHER].tolist(), start=first):
            if word < 0:
                out[token] = sampler.measure.at(words.take() >> 2)
            elif mode[sampler.index.representatives[word]] == ROW:
                key = words.random[words.at : words.at + 4].tobytes()
                words.at += 4
                out[token] = sampler.draw_from_row(word, key)
            else:
                active.append(token)
        while active:
            for token in active:
                out[token] = sampler.round_of(ids[token], words)
            active = [token for token in active if out[token] < 0]
    return out
