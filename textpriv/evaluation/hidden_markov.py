"""Compiled passes over a hidden Markov model of second order: what is in one document, position by position.

States are the candidates of two neighbouring positions, the last of which stands for all words that are none; it says
nothing about its neighbours. K candidates take K squared steps a position, and a little more for each triple of the model
that is met, since all other triples share their back-off. What the numbers mean stands in ``context_recovery``, where these
passes are called.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["posterior", "sample", "viterbi"]


@njit(cache=True, nogil=True)
def _search(row: NDArray[np.int32], wanted: int, low: int, high: int) -> int:
    """The first position of a rising row from ``low`` on at which no smaller number stands."""
    while low < high:
        middle = (low + high) >> 1
        if row[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _pairs(
    before: NDArray[np.int32],
    words: NDArray[np.int32],
    model: tuple[Any, ...],
    listed: NDArray[np.int32],
    after: NDArray[np.float64],
) -> None:
    """For candidates of two neighbours: which pair of the model they are, or -1, and how likely the second then is."""
    single, backoff, offsets, seconds, pairs = model[:5]
    last = words.shape[0] - 1
    for i in range(last + 1):
        low, high, left = 0, 0, 1.0
        if i < last:
            low, high = offsets[before[i]], offsets[before[i] + 1]
        for j in range(last):
            low = _search(seconds, words[j], low, high)
            if low < high and seconds[low] == words[j]:
                listed[i, j], after[i, j] = low, pairs[low]
            else:
                scale = backoff[before[i]] if i < last else 1.0
                listed[i, j], after[i, j] = -1, scale * single[words[j]]
            left -= after[i, j]
        listed[i, last], after[i, last] = -1, max(left, 0.0)


@njit(cache=True, nogil=True)
def _start(
    words: NDArray[np.int32], law: NDArray[np.float64], single: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How likely each candidate of a document's first position is, with its output."""
    found, left = np.empty(words.shape[0]), 1.0
    for j in range(words.shape[0] - 1):
        found[j] = single[words[j]]
        left -= found[j]
    found[-1] = max(left, 0.0)
    return found * law


@njit(cache=True, nogil=True)
def _forward(
    outputs: NDArray[np.int32],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
    ahead: NDArray[np.float64],
    listed: NDArray[np.int32],
    after: NDArray[np.float64],
) -> None:
    """Fill, from the second position on, how likely each pair of candidates is by all outputs up to it."""
    kept = words.shape[1]
    pair_backoff, pair_offsets, thirds, triples = model[5:]
    weight, start = np.empty(kept), _start(words[outputs[0]], law[outputs[0]], model[0])
    for step in range(1, outputs.shape[0]):
        _pairs(words[outputs[step - 1]], words[outputs[step]], model, listed[step], after[step])
        emitted, total = law[outputs[step]], 0.0
        for j in range(kept):
            if step == 1:
                for k in range(kept):
                    ahead[1, j, k] = start[j] * after[1, j, k] * emitted[k]
                    total += ahead[1, j, k]
                continue
            shared = 0.0
            for i in range(kept):
                pair = listed[step - 1, i, j]
                shared += ahead[step - 1, i, j] * (1.0 if pair < 0 else pair_backoff[pair])
            for k in range(kept):
                weight[k] = shared * after[step, j, k]
            for i in range(kept):
                pair = listed[step - 1, i, j]
                if pair < 0 or ahead[step - 1, i, j] <= 0:
                    continue
                low, high = pair_offsets[pair], pair_offsets[pair + 1]
                if low == high:
                    continue
                left = 1.0 - pair_backoff[pair]
                for k in range(kept - 1):
                    low = _search(thirds, words[outputs[step], k], low, high)
                    if low < high and thirds[low] == words[outputs[step], k]:
                        more = triples[low] - pair_backoff[pair] * after[step, j, k]
                        weight[k] += ahead[step - 1, i, j] * more
                        left -= more
                weight[kept - 1] += ahead[step - 1, i, j] * left
            for k in range(kept):
                ahead[step, j, k] = max(weight[k], 0.0) * emitted[k]
                total += ahead[step, j, k]
        for j in range(kept):
            for k in range(kept):
                if total > 0:
                    ahead[step, j, k] /= total
                else:  # numbers too small to be told from 0: begin again with what was put out here
                    ahead[step, j, k] = emitted[k]


@njit(cache=True, nogil=True)
def posterior(
    outputs: NDArray[np.int32],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
    found: NDArray[np.float32],
) -> None:
    """Fill how likely each candidate of each position is, given all outputs of the document: shape (T, K).

    Parameters
    ----------
    outputs : ndarray of int32, shape (T,)
    words : ndarray of int32, shape (V, K)
        Candidates of each output, rising; in the last column any number above.
    law : ndarray of float64, shape (V, K)
        How likely each gives the output; 0 in the last column leaves all other words out.
    model : tuple of ndarray
        The fields of an n-gram model, in their order.
    found : ndarray of float32, shape (T, K)
    """
    length, kept = outputs.shape[0], words.shape[1]
    ahead = np.empty((length, kept, kept))
    listed, after = np.empty((length, kept, kept), np.int32), np.empty((length, kept, kept))
    _forward(outputs, words, law, model, ahead, listed, after)
    pair_backoff, pair_offsets, thirds, triples = model[5:]
    back, fresh = np.ones((kept, kept)), np.empty((kept, kept))
    weight, share = np.empty(kept), np.zeros(kept)
    if length == 1:
        share[:] = _start(words[outputs[0]], law[outputs[0]], model[0])
        found[0] = share / share.sum()
    for step in range(length - 1, 0, -1):
        if step < length - 1:
            total = 0.0
            for j in range(kept):
                shared = 0.0
                for k in range(kept):
                    weight[k] = law[outputs[step + 1], k] * back[j, k]
                    shared += weight[k] * after[step + 1, j, k]
                for i in range(kept):
                    pair = listed[step, i, j]
                    scale = 1.0 if pair < 0 else pair_backoff[pair]
                    value = scale * shared
                    if pair >= 0 and ahead[step, i, j] > 0:
                        low, high = pair_offsets[pair], pair_offsets[pair + 1]
                        left = 1.0 - scale
                        for k in range(kept - 1):
                            if low == high:
                                break
                            word = words[outputs[step + 1], k]
                            low = _search(thirds, word, low, high)
                            if low < high and thirds[low] == word:
                                more = triples[low] - scale * after[step + 1, j, k]
                                value += weight[k] * more
                                left -= more
                        value += weight[kept - 1] * left
                    fresh[i, j] = max(value, 0.0)
                    total += fresh[i, j] * ahead[step, i, j]
            if total > 0:
                back[:] = fresh / total
            else:
                back[:] = 1.0
        share[:] = 0.0
        for i in range(kept):
            for j in range(kept):
                share[j] += ahead[step, i, j] * back[i, j]
        found[step] = share / share.sum()
        if step == 1:
            for i in range(kept):
                share[i] = 0.0
                for j in range(kept):
                    share[i] += ahead[1, i, j] * back[i, j]
            found[0] = share / share.sum()


@njit(cache=True, nogil=True)
def _third(pair: int, word: int, low_order: float, model: tuple[Any, ...]) -> float:
    """How likely a word is after a pair, or after two words that are none of the model's pairs."""
    if pair < 0:
        return low_order
    pair_backoff, pair_offsets, thirds, triples = model[5:]
    at = _search(thirds, word, pair_offsets[pair], pair_offsets[pair + 1])
    if at < pair_offsets[pair + 1] and thirds[at] == word:
        return triples[at]
    return pair_backoff[pair] * low_order


@njit(cache=True, nogil=True)
def _drawn(weights: NDArray[np.float64], uniform: float) -> int:
    """The position at which the running sum passes a share of the whole."""
    left = uniform * weights.sum()
    last = 0
    for position in range(weights.shape[0]):
        if weights[position] > 0:
            last = position
            left -= weights[position]
            if left < 0:
                break
    return last


@njit(cache=True, nogil=True)
def sample(
    outputs: NDArray[np.int32],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
    uniforms: NDArray[np.float64],
    path: NDArray[np.int32],
) -> None:
    """Draw the words of one document together, given all its outputs; all others are left out. See :func:`posterior`."""
    length, kept = outputs.shape[0], words.shape[1]
    ahead = np.empty((length, kept, kept))
    listed, after = np.empty((length, kept, kept), np.int32), np.empty((length, kept, kept))
    _forward(outputs, words, law, model, ahead, listed, after)
    weight = _start(words[outputs[0]], law[outputs[0]], model[0])
    if length == 1:
        path[0] = words[outputs[0], _drawn(weight, uniforms[0])]
        return
    later = _drawn(ahead[length - 1].sum(axis=0), uniforms[length - 1])
    now = _drawn(ahead[length - 1, :, later], uniforms[length - 2])
    path[length - 1], path[length - 2] = words[outputs[-1], later], words[outputs[-2], now]
    for step in range(length - 2, 0, -1):
        word = words[outputs[step + 1], later]
        for i in range(kept):
            weight[i] = ahead[step, i, now] * _third(
                listed[step, i, now], word, after[step + 1, now, later], model
            )
        later, now = now, _drawn(weight, uniforms[step - 1])
        path[step - 1] = words[outputs[step - 1], now]


@njit(cache=True, nogil=True)
def viterbi(
    outputs: NDArray[np.int32],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
    path: NDArray[np.int32],
) -> None:
    """Find the likeliest words of one document, all together; all others are left out. See :func:`posterior`."""
    length, kept = outputs.shape[0], words.shape[1]
    pair_backoff, pair_offsets, thirds, triples = model[5:]
    came = np.zeros((length, kept, kept), np.int32)
    score, fresh = np.zeros((kept, kept)), np.zeros((kept, kept))
    listed, new_listed = np.empty((kept, kept), np.int32), np.empty((kept, kept), np.int32)
    after = np.empty((kept, kept))
    start = _start(words[outputs[0]], law[outputs[0]], model[0])
    if length == 1:
        path[0] = words[outputs[0], np.argmax(start)]
        return
    for step in range(1, length):
        _pairs(words[outputs[step - 1]], words[outputs[step]], model, new_listed, after)
        emitted, highest = law[outputs[step]], 0.0
        for j in range(kept):
            if step == 1:
                fresh[j] = start[j] * after[j]
            else:
                # All that back off share one best, whatever comes next.
                shared, shared_i = 0.0, 0
                for i in range(kept):
                    pair = listed[i, j]
                    if pair < 0 or pair_offsets[pair] == pair_offsets[pair + 1]:
                        value = score[i, j] * (1.0 if pair < 0 else pair_backoff[pair])
                        if value > shared:
                            shared, shared_i = value, i
                for k in range(kept):
                    fresh[j, k], came[step, j, k] = shared * after[j, k], shared_i
                for i in range(kept):
                    pair = listed[i, j]
                    if pair < 0 or score[i, j] <= 0:
                        continue
                    low, high = pair_offsets[pair], pair_offsets[pair + 1]
                    if low == high:
                        continue
                    scale = score[i, j] * pair_backoff[pair]
                    for k in range(kept):
                        word = words[outputs[step], k]
                        low = _search(thirds, word, low, high)
                        if low < high and thirds[low] == word:
                            value = score[i, j] * triples[low]
                        else:
                            value = scale * after[j, k]
                        if value > fresh[j, k]:
                            fresh[j, k], came[step, j, k] = value, i
            for k in range(kept):
                fresh[j, k] *= emitted[k]
                highest = max(highest, fresh[j, k])
        for j in range(kept):
            for k in range(kept):
                score[j, k] = fresh[j, k] / highest if highest > 0 else emitted[k]
        listed[:] = new_listed
    at = int(np.argmax(score))
    now, later = at // kept, at % kept
    path[length - 1], path[length - 2] = words[outputs[-1], later], words[outputs[-2], now]
    for step in range(length - 1, 1, -1):
        later, now = now, came[step, now, later]
        path[step - 2] = words[outputs[step - 2], now]
