"""Tables and kernels of the next word in context: draws and probabilities under an n-gram model and a decay.

See :mod:`textpriv.mechanisms.contextual` for the mechanism and the argument that draws are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.language.ngrams import ONE, NGrams
from textpriv.mechanisms.measure import PARTS, MeasureTables, coin, find
from textpriv.mechanisms.near import Decay, Rows, attempt, decay, steps_between, steps_from

__all__ = ["ATTEMPT", "ModelTables", "draw_document", "masses", "next_word"]

ATTEMPT = 8  # random words of one attempt
_ENVELOPE = float(1 << 32)  # successors are drawn by whole multiples of 1 / _ENVELOPE


class ModelTables(NamedTuple):
    """What the sampler reads of an n-gram model over words; weights are whole multiples of ``1 / ONE``."""

    offsets: NDArray[np.int64]
    seconds: NDArray[np.int32]
    pair_words: NDArray[np.int32]
    pairs: NDArray[np.uint32]
    backoff: NDArray[np.float64]
    pair_offsets: NDArray[np.int64]
    triple_words: NDArray[np.int32]
    triples: NDArray[np.uint32]
    pair_backoff: NDArray[np.float64]

    @classmethod
    def of(cls, model: NGrams) -> ModelTables:
        """Read the tables of a model whose every draw is a word."""
        pairs, backoff = _apart(model.pairs, model.offsets)
        triples, pair_backoff = _apart(model.triples, model.pair_offsets)
        # Symbols have no weight, and any word stands for them.
        second, third = (np.minimum(each, model.size - 1) for each in (model.seconds, model.thirds))
        own = model.offsets, model.seconds, second, pairs, backoff
        return cls(*own, model.pair_offsets, third, triples, pair_backoff)


def _apart(
    sums: NDArray[np.uint32], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Return the weights behind the running sums of each context, and what a context leaves to its back-off."""
    weights = np.diff(sums, prepend=np.uint32(0)).view(np.uint32)
    first = offsets[:-1][np.diff(offsets) > 0]
    weights[first] = sums[first]
    last = np.where(np.diff(offsets) > 0, np.asarray(sums)[offsets[1:] - 1], 0) if len(sums) else 0
    return weights, (ONE - np.asarray(last, np.float64)) / ONE + np.zeros(len(offsets) - 1)


# Draws


@njit(cache=True, nogil=True)
def _envelopes(
    law: Decay,
    points: NDArray[Any],
    word: int,
    successors: NDArray[np.int32],
    weights: NDArray[np.uint32],
    sums: NDArray[np.uint64],
) -> np.uint64:
    """Write running sums of the envelopes of a context's successors, and return the last one."""
    steps_from(points, word, successors, law.root, sums)
    total = np.uint64(0)
    for at in range(successors.shape[0]):
        total += _ceiling(decay(np.int64(sums[at]), law)) * np.uint64(weights[at])
        sums[at] = total
    return total


@njit(cache=True, nogil=True)
def _ceiling(weight: float) -> np.uint64:
    """Return a whole number above a weight in parts of ``1 / _ENVELOPE``."""
    return np.uint64(np.int64(weight * _ENVELOPE) + 1)


@njit(cache=True, nogil=True)
def _first_is_chosen(first: float, second: float, a: np.uint64, b: np.uint64) -> bool:
    """Choose the first of two masses; the coin is that of the smaller one, which so keeps its precision."""
    if first <= second:
        return coin(first / (first + second), a, b)
    return not coin(second / (first + second), a, b)


@njit(cache=True, nogil=True)
def _successor(
    law: Decay,
    points: NDArray[Any],
    word: int,
    successors: NDArray[np.int32],
    sums: NDArray[np.uint64],
    random: NDArray[np.uint64],
) -> int:
    """Draw a successor by its weight with three random words, or return -1."""
    total = sums[-1]
    part = (random[0] >> np.uint64(2)) // (np.uint64(1 << 62) // total)
    if part >= total:
        return -1
    output = np.int64(successors[np.searchsorted(sums, part, side="right")])
    weight = decay(steps_between(points, word, output, law.root), law)
    real = weight * _ENVELOPE / np.float64(_ceiling(weight))
    return output if coin(real, random[1], random[2]) else -1


@njit(cache=True, nogil=True)
def _mass(total: np.uint64) -> float:
    """Return the mass of a context's envelopes, so that :func:`_successor` draws each of them by its share of it."""
    return 1.0 / float(np.uint64(1 << 62) // total) if total else 0.0


@njit(cache=True, nogil=True)
def _context(model: ModelTables, earlier: int, before: int) -> int:
    """Return the place of a pair of tokens in the model, or -1."""
    low, high = model.offsets[earlier], model.offsets[earlier + 1]
    while low < high:
        middle = (low + high) >> 1
        if model.seconds[middle] < before:
            low = middle + 1
        else:
            high = middle
    if low < model.offsets[earlier + 1] and model.seconds[low] == before:
        return low
    return -1


@njit(cache=True, nogil=True)
def _unknown(
    model: ModelTables,
    measure: MeasureTables,
    before: int,
    pair: int,
    random: NDArray[np.uint64],
) -> int:
    """Draw the output of an unknown word: the next word under the model, by three random words."""
    if pair >= 0:
        output = _listed(model.triple_words, model.triples, model.pair_offsets, pair, random[0])
        if output >= 0:
            return output
    output = _listed(model.pair_words, model.pairs, model.offsets, before, random[1])
    return output if output >= 0 else find(random[2] >> np.uint64(2), measure)


@njit(cache=True, nogil=True)
def _listed(
    successors: NDArray[np.int32],
    weights: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    context: int,
    word: np.uint64,
) -> int:
    """Draw a successor of a context by its weight, or return -1 for the back-off."""
    part, total = word >> np.uint64(34), np.uint64(0)
    for at in range(offsets[context], offsets[context + 1]):
        total += np.uint64(weights[at])
        if part < total:
            return np.int64(successors[at])
    return -1


@njit(cache=True, nogil=True)
def draw_document(
    law: Decay,
    points: NDArray[Any],
    rows: Rows,
    block: int,
    measure: MeasureTables,
    model: ModelTables,
    ids: NDArray[np.int32],
    context: NDArray[np.int64],
    random: NDArray[np.uint64],
    sums: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> int:
    """Draw the tokens of one document from left to right until the random words run out; return how many are done.

    ``context`` holds the two tokens before the first of them, and is moved on.
    """
    size, at = points.shape[0], 0
    for token in range(ids.shape[0]):
        word, before = ids[token], context[1]
        output = np.int64(size - 2 - word) if word < -1 else np.int64(-1)  # a released symbol
        if word >= -1:
            pair = _context(model, context[0], before)
            seconds = slice(model.offsets[before], model.offsets[before + 1])
            thirds = slice(0, 0)
            share = 1.0
            if pair >= 0:
                thirds = slice(model.pair_offsets[pair], model.pair_offsets[pair + 1])
                share = model.pair_backoff[pair]
            two = sums[: seconds.stop - seconds.start]
            three = sums[len(two) : len(two) + thirds.stop - thirds.start]
            mass = listed = third = 0.0
            if word >= 0:
                successors, weights = model.pair_words[seconds], model.pairs[seconds]
                second = share * _mass(_envelopes(law, points, word, successors, weights, two))
                successors, weights = model.triple_words[thirds], model.triples[thirds]
                third = _mass(_envelopes(law, points, word, successors, weights, three))
                listed = second + third
                mass = share * model.backoff[before] * float(PARTS) / rows.scale[word]
            while output < 0:
                if at + ATTEMPT > random.shape[0]:
                    return token
                own = random[at : at + ATTEMPT]
                at += ATTEMPT
                if word < 0:
                    output = _unknown(model, measure, before, pair, own)
                elif not _first_is_chosen(listed, mass, own[0], own[1]):
                    output = attempt(law, measure, points, rows, block, word, own[4:])
                elif _first_is_chosen(third, listed - third, own[2], own[3]):
                    output = _successor(
                        law, points, word, model.triple_words[thirds], three, own[4:]
                    )
                else:
                    output = _successor(law, points, word, model.pair_words[seconds], two, own[4:])
            out[token] = output
        else:
            out[token] = word
        context[0], context[1] = before, output
    return ids.shape[0]


@njit(cache=True, nogil=True)
def masses(
    law: Decay,
    points: NDArray[Any],
    model: ModelTables,
    alone: NDArray[np.float64],
    earlier: int,
    before: int,
    words: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None:
    """Write the normaliser of some words after two tokens; ``alone`` holds their normalisers without context."""
    pair, share = _context(model, earlier, before), 1.0
    if pair >= 0:
        share = model.pair_backoff[pair]
    for place in range(words.shape[0]):
        total = share * model.backoff[before] * alone[place]
        for at in range(model.offsets[before], model.offsets[before + 1]):
            steps = steps_between(points, words[place], model.pair_words[at], law.root)
            total += share * model.pairs[at] * decay(steps, law) / ONE
        if pair >= 0:
            for at in range(model.pair_offsets[pair], model.pair_offsets[pair + 1]):
                steps = steps_between(points, words[place], model.triple_words[at], law.root)
                total += model.triples[at] * decay(steps, law) / ONE
        out[place] = total


def next_word(
    model: ModelTables, single: NDArray[np.float64], tokens: Sequence[int]
) -> NDArray[np.float64]:
    """Return the distribution of the word after two tokens, as it is drawn."""
    earlier, before = tokens
    own = slice(model.offsets[before], model.offsets[before + 1])
    found = model.backoff[before] * single
    np.add.at(found, model.pair_words[own], model.pairs[own] / ONE)
    pair = int(_context(model, earlier, before))
    if pair >= 0:
        own = slice(model.pair_offsets[pair], model.pair_offsets[pair + 1])
        found *= model.pair_backoff[pair]
        np.add.at(found, model.triple_words[own], model.triples[own] / ONE)
    return found
