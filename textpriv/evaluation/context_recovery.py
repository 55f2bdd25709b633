"""How many words an attacker gets back who reads them in context: a hidden Markov model of private text.

States are words, transitions are a public n-gram model, emissions the exact law of the mechanism (mechanisms.md 10.3). With
all words as candidates the marginals are the Bayes-optimal attacker under that model; with the likeliest of each output, or
against a better model, a lower bound on the best one. Everything is a function of the released words and public numbers, so
no guarantee changes. The passes over a document are in ``hidden_markov``; what people read is made in ``decoding``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation import hidden_markov
from textpriv.evaluation.law import Law
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism

__all__ = [
    "Candidates",
    "Marginals",
    "context_marginals",
    "context_posterior",
    "likeliest_paths",
    "sampled_paths",
]

_ROWS = 512  # of a law at a time
_ROUNDING = 1e-6  # of probabilities that were summed up in float32
_LONGEST = 2048  # words that are read at a time; a longer document is read in parts


class Candidates(NamedTuple):
    """For each output the words that it most likely came from, and how likely each gives it.

    Attributes
    ----------
    words : ndarray of int32, shape (V, K)
        Rising; V stands for a word outside the vocabulary.
    law : ndarray of float64, shape (V, K)
        ``P_w(y)``.
    rest : ndarray of float64, shape (V,)
        The mean of ``P_w(y)`` over all other words, by the prior.
    """

    words: NDArray[np.int32]
    law: NDArray[np.float64]
    rest: NDArray[np.float64]

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
        least, whole = np.zeros(size, dtype=np.int64), np.zeros(size)
        for begin in range(0, size, _ROWS):
            block = np.arange(begin, min(begin + _ROWS, size))
            _keep(table.rows(block), prior[block], begin, joint, words, law, least, whole)
        unknown = np.exp(mechanism.log_prob(UNKNOWN)).astype(np.float32)
        _keep(unknown[None], prior[size:], size, joint, words, law, least, whole)
        order = np.argsort(words, axis=1, kind="stable")
        words = np.take_along_axis(words, order, axis=1)
        given = np.take_along_axis(law, order, axis=1).astype(np.float64)
        left = prior.sum() - prior[words].sum(axis=1)
        rest = np.maximum(whole - (prior[words] * given).sum(axis=1), 0.0)
        # Where hardly any word is left, what is left of both is rounding.
        rest = np.divide(rest, left, out=np.zeros(size), where=left > _ROUNDING)
        return cls(words, given, np.minimum(rest, 1.0))

    def arrays(self, *, others: bool) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Words and law with one more column for all other words; without others it has law 0."""
        size = len(self.words)
        rest = self.rest if others else np.zeros(size)
        words = np.column_stack([self.words, np.full(size, size + 1, np.int32)])
        return np.ascontiguousarray(words), np.ascontiguousarray(np.column_stack([self.law, rest]))


@njit(cache=True, nogil=True)
def _keep(
    rows: NDArray[np.float32],
    prior: NDArray[np.float64],
    begin: int,
    joint: NDArray[np.float32],
    words: NDArray[np.int32],
    law: NDArray[np.float32],
    least: NDArray[np.int64],
    whole: NDArray[np.float64],
) -> None:
    """Put words from ``begin`` on among the likeliest of each output, whose least likely one is ``least``; sum up all."""
    for row in range(rows.shape[0]):
        weight = np.float32(prior[row])
        for output in range(rows.shape[1]):
            value = rows[row, output] * weight
            whole[output] += rows[row, output] * prior[row]
            at = least[output]
            if value > joint[output, at]:
                joint[output, at], words[output, at] = value, begin + row
                law[output, at] = rows[row, output]
                least[output] = np.argmin(joint[output])


class Marginals(NamedTuple):
    """What the model says about each position.

    Attributes
    ----------
    guess : ndarray of int32, shape (T,)
        The likeliest word, V for one outside the vocabulary.
    probability : ndarray of float32, shape (T,)
        How likely it is.
    """

    guess: NDArray[np.int32]
    probability: NDArray[np.float32]


def context_posterior(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
) -> NDArray[np.float32]:
    """How likely each candidate of each position is, given the released words of its document.

    Parameters
    ----------
    outputs : ndarray of int32, shape (T,)
        Released word ids of all documents, one after the other.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds ``outputs[offsets[j]:offsets[j + 1]]``.
    candidates : Candidates
        Of the mechanism, under the prior of the model.
    model : NGrams or LanguageModel
        Public. With n-grams all released words of the document count, by forward-backward, in parts of 2,048 words; words
        that are no candidates count together, as words that say nothing about their neighbours. A language model is asked
        for each position with the released words around it, and multiplied by the law.
    words : sequence of str
        The vocabulary, for a language model, which reads text.

    Returns
    -------
    ndarray of float32, shape (T, K)
        Row t is about ``candidates.words[outputs[t]]``; with n-grams all other words have what a row lacks of 1. Time grows
        with the square of the candidates.
    """
    released = _checked(outputs, candidates, model)
    found = np.zeros((len(released), candidates.words.shape[1] + 1), np.float32)
    arrays = candidates.arrays(others=True)
    for part in _parts(offsets):
        hidden_markov.posterior(released[part], *arrays, model.arrays, found[part])
    return found[:, :-1]


def context_marginals(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
    *,
    among: NDArray[np.bool_] | None = None,
) -> Marginals:
    """The likeliest word of each position, given the released words of its document; see :func:`context_posterior`.

    Parameters
    ----------
    outputs, offsets, candidates, model, words
        As there.
    among : ndarray of bool, shape (V + 1,), optional
        The attacker is told that what was written is one of these words, such as the content words.

    Returns
    -------
    Marginals
        ``np.mean(found.guess == written)`` is the context recovery of the words that were written, where words outside
        the vocabulary are written as V.
    """
    shares = context_posterior(outputs, offsets, candidates, model)
    choice = candidates.words[outputs]
    if among is not None:
        shares = np.where(among[choice], shares, 0.0).astype(np.float32)
    rows, best = np.arange(len(shares)), shares.argmax(axis=1)
    return Marginals(choice[rows, best], shares[rows, best])


def likeliest_paths(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
) -> NDArray[np.int32]:
    """The likeliest candidates of each document, all together, by Viterbi's algorithm; see :func:`context_posterior`."""
    released = _checked(outputs, candidates, model)
    path, arrays = np.empty(len(released), np.int32), candidates.arrays(others=False)
    for part in _parts(offsets):
        hidden_markov.viterbi(released[part], *arrays, model.arrays, path[part])
    return path


def sampled_paths(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Candidates drawn for each document together, given its released words; see :func:`context_posterior`."""
    released = _checked(outputs, candidates, model)
    path, uniforms = np.empty(len(released), np.int32), rng.random(len(released))
    arrays = candidates.arrays(others=False)
    for part in _parts(offsets):
        hidden_markov.sample(released[part], *arrays, model.arrays, uniforms[part], path[part])
    return path


def _parts(offsets: NDArray[np.int64]) -> Iterator[slice]:
    """The documents, long ones in parts."""
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for start in range(begin, end, _LONGEST):
            yield slice(start, min(start + _LONGEST, end))


def _checked(
    outputs: NDArray[np.int32], candidates: Candidates, model: NGrams
) -> NDArray[np.int32]:
    size = len(candidates.words)
    if model.size != size:
        raise TextprivError(
            f"the model knows {model.size:,} words, and the mechanism {size:,}: use one vocabulary."
        )
    if len(outputs) and not 0 <= int(outputs.min()) <= int(outputs.max()) < size:
        raise TextprivError(
            "a released word has no id of the vocabulary; leave out what was not drawn."
        )
    return np.ascontiguousarray(outputs, dtype=np.int32)
