"""Forward-backward passes over a hidden Markov model of second order.

States are pairs of candidates of neighbouring positions; the last candidate of a position stands for all other words, and
says nothing about its neighbours. Callers put the start of the document at the first position. Loops over single numbers
compile several times as fast as the same over arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.language.ngrams import ONE
from textpriv.mechanisms.measure import first_above

_RARE = 1e-7  # probability of a pair of candidates whose triples are not looked up


@njit
def _weight(ends: NDArray[np.uint32], at: int, low: int) -> float:
    """The weight at a position of a context that begins at ``low``."""
    before = np.int64(ends[at - 1]) if at > low else np.int64(0)
    return (np.int64(ends[at]) - before) / ONE


@njit
def _backoff(ends: NDArray[np.uint32], low: int, high: int) -> float:
    return 1.0 - np.int64(ends[high - 1]) / ONE if high > low else 1.0


@njit
def _pairs(
    before: NDArray[np.int32],
    words: NDArray[np.int32],
    model: tuple[Any, ...],
    listed: NDArray[np.int32],
    after: NDArray[np.float64],
) -> None:
    """Fill which pair of the model two neighbouring candidates are, or -1, and how likely the second is after the first."""
    single, offsets, seconds, pairs = model[:4]
    last = words.shape[0]
    for i in range(last + 1):
        low = high = 0
        if i < last:
            low, high = offsets[before[i]], offsets[before[i] + 1]
        scale, at, left = _backoff(pairs, low, high), low, 1.0
        for j in range(last):
            listed[i, j], after[i, j] = -1, 0.0
            if j and words[j] == words[j - 1]:  # fills up a short list of candidates
                continue
            after[i, j] = scale * _weight(single, words[j], 0)
            at = first_above(seconds, words[j] - 1, at, high)
            if at < high and seconds[at] == words[j]:
                listed[i, j] = at
                after[i, j] += _weight(pairs, at, low)
            left -= after[i, j]
        listed[i, last], after[i, last] = -1, max(left, 0.0)


@njit
def _thirds(
    pair: int, words: NDArray[np.int32], model: tuple[Any, ...], excess: NDArray[np.float64]
) -> float:
    """Fill the weight of each candidate after a listed pair, others last; return the back-off weight."""
    pair_offsets, thirds, triples = model[4:]
    low, high = pair_offsets[pair], pair_offsets[pair + 1]
    excess[:] = 0.0
    if low == high:
        return 1.0
    scale, at = _backoff(triples, low, high), low
    left = 1.0 - scale
    for k in range(words.shape[0]):
        at = first_above(thirds, words[k] - 1, at, high)
        if at < high and thirds[at] == words[k] and not (k and words[k] == words[k - 1]):
            excess[k] = _weight(triples, at, low)
            left -= excess[k]
    excess[-1] = max(left, 0.0)
    return scale


@njit
def _rescale(table: NDArray[np.float64], total: float, distribution: NDArray[np.float64]) -> None:
    """Divide by a total, or begin again with a distribution where numbers are too small to tell from 0."""
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            table[row, column] = table[row, column] / total if total > 0 else distribution[column]


@njit
def _forward(
    words: NDArray[np.int32], distribution: NDArray[np.float64], model: tuple[Any, ...]
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """How likely each pair of candidates is by all outputs up to the second, and what :func:`_pairs` fills."""
    length, kept = distribution.shape
    ahead = np.zeros((length, kept, kept))
    listed, after = np.empty((length, kept, kept), np.int32), np.empty((length, kept, kept))
    excess = np.empty(kept)
    for step in range(1, length):
        _pairs(words[step - 1], words[step], model, listed[step], after[step])
        total = 0.0
        for j in range(kept):
            weight, shared = ahead[step, j], 0.0
            for i in range(kept if step > 1 else 0):
                before, scale = ahead[step - 1, i, j], 1.0
                if listed[step - 1, i, j] >= 0 and before > _RARE:
                    scale = _thirds(listed[step - 1, i, j], words[step], model, excess)
                    if scale < 1.0:
                        for k in range(kept):
                            weight[k] += before * excess[k]
                shared += before * scale
            if step == 1:
                shared = distribution[0, j]
            for k in range(kept):
                weight[k] = (weight[k] + shared * after[step, j, k]) * distribution[step, k]
                total += weight[k]
        _rescale(ahead[step], total, distribution[step])
    return ahead, listed, after


@njit(cache=True, nogil=True, error_model="numpy")
def posterior(
    words: NDArray[np.int32],
    distribution: NDArray[np.float64],
    model: tuple[Any, ...],
    later: bool,
) -> NDArray[np.float32]:
    """How likely each candidate of each position is, given the outputs of the document; shape (T, K + 1).

    ``words`` (T, K) are candidates of each position, rising; a token that is repeated counts once. ``distribution``
    (T, K + 1) says how likely each gives the output of its position, last of all other words. With ``later`` outputs after a
    position count (forward-backward), else those up to it alone (forward filter).
    """
    length, kept = distribution.shape
    found = np.zeros((length, kept), np.float32)
    ahead, listed, after = _forward(words, distribution, model)
    back, fresh = np.ones((kept, kept)), np.empty((kept, kept))
    weight, excess, equal = np.empty(kept), np.empty(kept), np.ones(kept)
    for step in range(length - 1, 0, -1):
        total = 0.0
        for j in range(kept if later and step < length - 1 else 0):
            shared = 0.0
            for k in range(kept):
                weight[k] = distribution[step + 1, k] * back[j, k]
                shared += weight[k] * after[step + 1, j, k]
            for i in range(kept):
                fresh[i, j] = shared
                if listed[step, i, j] >= 0 and ahead[step, i, j] > _RARE:
                    fresh[i, j] *= _thirds(listed[step, i, j], words[step + 1], model, excess)
                    for k in range(kept):
                        fresh[i, j] += weight[k] * excess[k]
                total += fresh[i, j] * ahead[step, i, j]
        if later and step < length - 1:
            _rescale(fresh, total, equal)
            back, fresh = fresh, back
        total = 0.0
        for k in range(kept):
            weight[k] = 0.0
            for j in range(kept):
                weight[k] += ahead[step, j, k] * back[j, k]
            total += weight[k]
        for k in range(kept):
            found[step, k] = weight[k] / total
    return found


@njit(cache=True, nogil=True)
def likeliest_path(
    words: NDArray[np.int32], distribution: NDArray[np.float64], model: tuple[Any, ...]
) -> NDArray[np.int64]:
    """The candidates of a document that are likeliest together, by Viterbi's algorithm, shape (T,); see :func:`posterior`.

    Other words are left out.
    """
    length, kept = distribution.shape
    came = np.zeros((length, kept, kept), np.int32)
    score, fresh = np.zeros((kept, kept)), np.zeros((kept, kept))
    listed, later = np.empty((kept, kept), np.int32), np.empty((kept, kept), np.int32)
    after, excess = np.empty((kept, kept)), np.zeros(kept)
    for step in range(1, length):
        _pairs(words[step - 1], words[step], model, later, after)
        fresh[:] = 0.0
        highest = 0.0
        for j in range(kept - 1):
            best, first = distribution[0, j] if step == 1 else 0.0, 0
            for i in range(kept - 1 if step > 1 else 0):
                if score[i, j] <= 0:
                    continue
                shared = score[i, j]
                if listed[i, j] >= 0 and score[i, j] > _RARE:
                    shared *= _thirds(listed[i, j], words[step], model, excess)
                    for k in range(kept - 1):
                        value = shared * after[j, k] + score[i, j] * excess[k]
                        if excess[k] > 0 and value > fresh[j, k]:
                            fresh[j, k], came[step, j, k] = value, i
                if shared > best:
                    best, first = shared, i
            # One word before is the best for all candidates that follow no listed pair.
            for k in range(kept - 1):
                if best * after[j, k] > fresh[j, k]:
                    fresh[j, k], came[step, j, k] = best * after[j, k], first
                fresh[j, k] *= distribution[step, k]
                highest = max(highest, fresh[j, k])
        _rescale(fresh, highest, distribution[step])
        score, fresh, listed, later = fresh, score, later, listed
    path = np.zeros(length, np.int64)
    for j in range(kept - 1 if length > 1 else 0):
        for k in range(kept - 1):
            if score[j, k] > score[path[length - 2], path[length - 1]]:
                path[length - 2], path[length - 1] = j, k
    for step in range(length - 1, 1, -1):
        path[step - 2] = came[step, path[step - 1], path[step]]
    return path
