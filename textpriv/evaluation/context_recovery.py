"""How many words an attacker gets back who reads them in context: a hidden Markov model of private text.

States are words, transitions are a public bigram model, emissions the exact law of the mechanism (mechanisms.md 10.3). With
all words as candidates the marginals are the Bayes-optimal attacker under that model; with the likeliest of each output, or
against a better model, a lower bound on the best one. Everything is a function of the released words and public numbers, so
no guarantee changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.bigrams import Bigrams
from textpriv.evaluation.law import Law
from textpriv.mechanisms.base import UNKNOWN, Mechanism

__all__ = ["Candidates", "Marginals", "context_marginals", "likeliest_paths"]

_ROWS = 512  # of a law at a time


class Candidates(NamedTuple):
    """For each output the words that it most likely came from, and how likely each gives it.

    Attributes
    ----------
    words : ndarray of int32, shape (V, K)
        Rising; V stands for a word outside the vocabulary.
    law : ndarray of float64, shape (V, K)
        ``P_w(y)``.
    """

    words: NDArray[np.int32]
    law: NDArray[np.float64]

    @classmethod
    def of(cls, mechanism: Mechanism, prior: NDArray[np.float64], count: int) -> Candidates:
        """The ``count`` largest ``prior[w] P_w(y)`` for every output y; ``prior`` has V + 1 entries, the last unknown."""
        if count < 1:
            raise TextprivError(f"count is a whole number of candidates from 1 up; got {count}.")
        table = Law(mechanism)
        size = len(table)
        kept = min(count, size + 1)
        joint = np.full((size, kept), -1.0, dtype=np.float32)
        words = np.full((size, kept), size, dtype=np.int32)
        law = np.zeros((size, kept), dtype=np.float32)
        least = np.zeros(size, dtype=np.int64)
        for begin in range(0, size, _ROWS):
            block = np.arange(begin, min(begin + _ROWS, size))
            _keep(table.rows(block), prior[block], begin, joint, words, law, least)
        unknown = np.exp(mechanism.log_prob(UNKNOWN)).astype(np.float32)
        _keep(unknown[None], prior[size:], size, joint, words, law, least)
        order = np.argsort(words, axis=1, kind="stable")
        return cls(
            np.take_along_axis(words, order, axis=1),
            np.take_along_axis(law, order, axis=1).astype(np.float64),
        )


@njit(cache=True, nogil=True)
def _keep(
    rows: NDArray[np.float32],
    prior: NDArray[np.float64],
    begin: int,
    joint: NDArray[np.float32],
    words: NDArray[np.int32],
    law: NDArray[np.float32],
    least: NDArray[np.int64],
) -> None:
    """Put words from ``begin`` on among the likeliest of each output; ``least`` is where its least likely one stands."""
    for row in range(rows.shape[0]):
        weight = np.float32(prior[row])
        for output in range(rows.shape[1]):
            value = rows[row, output] * weight
            at = least[output]
            if value > joint[output, at]:
                joint[output, at], words[output, at] = value, begin + row
                law[output, at] = rows[row, output]
                least[output] = np.argmin(joint[output])


class Marginals(NamedTuple):
    """What the model says about each place.

    Attributes
    ----------
    guess : ndarray of int32, shape (T,)
        The likeliest word, V for one outside the vocabulary.
    probability : ndarray of float64, shape (T,)
        How likely it is.
    """

    guess: NDArray[np.int32]
    probability: NDArray[np.float64]


@njit(cache=True, nogil=True)
def _transition(
    first: int,
    second: int,
    single: NDArray[np.float64],
    backoff: NDArray[np.float64],
    offsets: NDArray[np.int64],
    seconds: NDArray[np.int32],
    pairs: NDArray[np.float64],
) -> float:
    """How likely a word is after another."""
    low, high = offsets[first], offsets[first + 1]
    while low < high:
        middle = (low + high) >> 1
        if seconds[middle] < second:
            low = middle + 1
        else:
            high = middle
    if low < offsets[first + 1] and seconds[low] == second:
        return pairs[low]
    return backoff[first] * single[second]


@njit(cache=True, nogil=True)
def _forward_backward(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
    guess: NDArray[np.int32],
    probability: NDArray[np.float64],
) -> None:
    """The likeliest word of each place by its marginal, document by document."""
    kept = words.shape[1]
    longest = 0
    for document in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[document + 1] - offsets[document])
    ahead, back, weight = np.empty((longest, kept)), np.empty(kept), np.empty(kept)
    for document in range(offsets.shape[0] - 1):
        begin, length = offsets[document], offsets[document + 1] - offsets[document]
        for step in range(length):
            own = words[outputs[begin + step]]
            total = 0.0
            for j in range(kept):
                if step == 0:
                    reached = model[0][own[j]]
                else:
                    before = words[outputs[begin + step - 1]]
                    reached = 0.0
                    for i in range(kept):
                        if ahead[step - 1, i] > 0:
                            reached += ahead[step - 1, i] * _transition(before[i], own[j], *model)
                ahead[step, j] = reached * law[outputs[begin + step], j]
                total += ahead[step, j]
            for j in range(kept):
                ahead[step, j] /= total
        back[:] = 1.0
        for step in range(length - 1, -1, -1):
            own = words[outputs[begin + step]]
            if step < length - 1:
                after, output = words[outputs[begin + step + 1]], outputs[begin + step + 1]
                for j in range(kept):
                    weight[j] = back[j] * law[output, j]
                total = 0.0
                for i in range(kept):
                    back[i] = 0.0
                    if ahead[step, i] > 0:
                        for j in range(kept):
                            if weight[j] > 0:
                                back[i] += weight[j] * _transition(own[i], after[j], *model)
                    total += back[i] * ahead[step, i]
                for i in range(kept):
                    back[i] /= total
            best, where, whole = -1.0, 0, 0.0
            for j in range(kept):
                value = ahead[step, j] * back[j]
                whole += value
                if value > best:
                    best, where = value, j
            guess[begin + step], probability[begin + step] = own[where], best / whole


@njit(cache=True, nogil=True)
def _viterbi(
    outputs: NDArray[np.int32],
    words: NDArray[np.int32],
    law: NDArray[np.float64],
    model: tuple[Any, ...],
) -> NDArray[np.int32]:
    """The likeliest words of one document, all together."""
    length, kept = outputs.shape[0], words.shape[1]
    score, came = np.full(kept, -np.inf), np.zeros((length, kept), np.int32)
    fresh = np.empty(kept)
    for step in range(length):
        own = words[outputs[step]]
        for j in range(kept):
            emitted = law[outputs[step], j]
            fresh[j] = -np.inf
            if emitted <= 0:
                continue
            if step == 0:
                fresh[j] = np.log(model[0][own[j]]) + np.log(emitted)
                continue
            before = words[outputs[step - 1]]
            for i in range(kept):
                if score[i] > -np.inf:
                    value = score[i] + np.log(_transition(before[i], own[j], *model))
                    if value > fresh[j]:
                        fresh[j], came[step, j] = value, i
            fresh[j] += np.log(emitted)
        score[:] = fresh
    path = np.empty(length, np.int32)
    at = int(np.argmax(score))
    for step in range(length - 1, -1, -1):
        path[step] = words[outputs[step], at]
        at = came[step, at]
    return path


def _model(bigrams: Bigrams) -> tuple[Any, ...]:
    return bigrams.single, bigrams.backoff, bigrams.offsets, bigrams.seconds, bigrams.pairs


def context_marginals(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    bigrams: Bigrams,
) -> Marginals:
    """The likeliest word of each place, given all released words of its document, by forward-backward.

    Parameters
    ----------
    outputs : ndarray of int32, shape (T,)
        Released word ids of all documents, one after the other.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds ``outputs[offsets[j]:offsets[j + 1]]``.
    candidates : Candidates
        Of the mechanism, under ``bigrams.single``.
    bigrams : Bigrams
        Public.

    Returns
    -------
    Marginals
        ``np.mean(found.guess == written)`` is the context recovery of the words that were written, where words outside
        the vocabulary are written as V. Time grows with the square of the candidates.
    """
    _check(outputs, candidates, bigrams)
    guess, probability = np.empty(len(outputs), np.int32), np.empty(len(outputs))
    _forward_backward(
        np.ascontiguousarray(outputs, dtype=np.int32),
        np.ascontiguousarray(offsets, dtype=np.int64),
        candidates.words,
        candidates.law,
        _model(bigrams),
        guess,
        probability,
    )
    return Marginals(guess, probability)


def likeliest_paths(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    bigrams: Bigrams,
) -> NDArray[np.int32]:
    """The likeliest words of each document, all of them together, by Viterbi's algorithm; see :func:`context_marginals`."""
    _check(outputs, candidates, bigrams)
    released = np.ascontiguousarray(outputs, dtype=np.int32)
    parts = [
        _viterbi(released[begin:end], candidates.words, candidates.law, _model(bigrams))
        for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        if end > begin
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _check(outputs: NDArray[np.int32], candidates: Candidates, bigrams: Bigrams) -> None:
    size = len(candidates.words)
    if len(bigrams.single) != size + 1:
        raise TextprivError(
            f"the model knows {len(bigrams.single) - 1:,} words, and the mechanism {size:,}: use one vocabulary."
        )
    if len(outputs) and not 0 <= int(outputs.min()) <= int(outputs.max()) < size:
        raise TextprivError(
            "a released word has no id of the vocabulary; leave out what was not drawn."
        )
