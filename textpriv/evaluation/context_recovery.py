"""How many words an attacker gets back who reads them in context: a hidden Markov model of private text.

States are words, transitions are a public n-gram model, emissions the exact law of the mechanism (mechanisms.md 10.3). With
all words as candidates the marginals are the Bayes-optimal attacker under that model; with the likeliest of each output, or
against a better model, a lower bound on the best one. Everything is a function of the released words and public numbers, so
no guarantee changes. The passes over a document are in ``hidden_markov``; what people read is made in ``decoding``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation import hidden_markov
from textpriv.evaluation.language_models import LanguageModel, score_in_context
from textpriv.evaluation.law import Law
from textpriv.evaluation.ngrams import NGrams
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
_LONGEST = 2048  # words that are read at a time; a longer document is read in parts


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
    model: NGrams | LanguageModel,
    *,
    words: Sequence[str] | None = None,
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
        Public. With n-grams all released words of the document count, by forward-backward, in parts of 2,048 words. A
        language model is asked for each position with the released words around it, and multiplied by the law.
    words : sequence of str
        The vocabulary, for a language model, which reads text.

    Returns
    -------
    ndarray of float32, shape (T, K)
        Row t is about ``candidates.words[outputs[t]]``. Time grows with the square of the candidates.
    """
    released = _checked(outputs, candidates, model)
    found = np.zeros((len(released), candidates.words.shape[1]), np.float32)
    if isinstance(model, NGrams):
        for part in _parts(offsets):
            hidden_markov.posterior(released[part], *candidates, _arrays(model), found[part])
        return found
    known = len(candidates.words)
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for at in range(begin, end):
            choice, law = candidates.words[released[at]], candidates.law[released[at]]
            inside = choice < known
            score = np.full(len(choice), -np.inf)
            score[inside] = score_in_context(model, released, begin, end, at, words, choice[inside])
            peak = score.max()
            # Where the model knows none of the candidates the law alone is left.
            weight = law * np.exp(score - peak) if np.isfinite(peak) else law
            found[at] = weight / weight.sum() if weight.sum() > 0 else law / law.sum()
    return found


def context_marginals(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams | LanguageModel,
    *,
    words: Sequence[str] | None = None,
) -> Marginals:
    """The likeliest word of each position, given the released words of its document; see :func:`context_posterior`.

    Returns
    -------
    Marginals
        ``np.mean(found.guess == written)`` is the context recovery of the words that were written, where words outside
        the vocabulary are written as V.
    """
    shares = context_posterior(outputs, offsets, candidates, model, words=words)
    rows, best = np.arange(len(shares)), shares.argmax(axis=1)
    return Marginals(candidates.words[outputs][rows, best], shares[rows, best])


def likeliest_paths(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
) -> NDArray[np.int32]:
    """The likeliest words of each document, all of them together, by Viterbi's algorithm; see :func:`context_posterior`."""
    released = _checked(outputs, candidates, model)
    path = np.empty(len(released), np.int32)
    for part in _parts(offsets):
        hidden_markov.viterbi(released[part], *candidates, _arrays(model), path[part])
    return path


def sampled_paths(
    outputs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Words drawn for each document together, given its released words; see :func:`context_posterior`."""
    released = _checked(outputs, candidates, model)
    path, uniforms = np.empty(len(released), np.int32), rng.random(len(released))
    for part in _parts(offsets):
        hidden_markov.sample(
            released[part], *candidates, _arrays(model), uniforms[part], path[part]
        )
    return path


def _arrays(model: NGrams) -> tuple[Any, ...]:
    return tuple(getattr(model, field.name) for field in fields(model))


def _parts(offsets: NDArray[np.int64]) -> Iterator[slice]:
    """The documents, long ones in parts."""
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for start in range(begin, end, _LONGEST):
            yield slice(start, min(start + _LONGEST, end))


def _checked(
    outputs: NDArray[np.int32], candidates: Candidates, model: NGrams | LanguageModel
) -> NDArray[np.int32]:
    size = len(candidates.words)
    if isinstance(model, NGrams) and model.size != size:
        raise TextprivError(
            f"the model knows {model.size:,} words, and the mechanism {size:,}: use one vocabulary."
        )
    if len(outputs) and not 0 <= int(outputs.min()) <= int(outputs.max()) < size:
        raise TextprivError(
            "a released word has no id of the vocabulary; leave out what was not drawn."
        )
    return np.ascontiguousarray(outputs, dtype=np.int32)
