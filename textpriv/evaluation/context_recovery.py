"""Recovery of words in context: a hidden Markov model of private text.

States are words, transitions a public n-gram model, emissions the exact output distribution of the mechanism. With all words
as candidates the marginals are the Bayes-optimal attacker under that model: of whole documents, or of what is released up to
a position. With the likeliest words of each output it recovers less, and with a better model more. Everything is a function
of released words and public numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation import hidden_markov
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism

__all__ = ["Candidates", "context_posterior", "likeliest_words"]

_LONGEST = 2048  # words that are read at a time; a longer document is read in parts
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Candidates:
    """The words that each output most likely came from.

    Attributes
    ----------
    mechanism : Mechanism
    outputs : ndarray of int64, shape (U,)
        Word ids, rising.
    words : ndarray of int32, shape (U, K)
        Rising; V is a word outside the vocabulary.
    distribution : ndarray of float64, shape (U, K)
        Probability ``P_w(y)`` of the output after each.
    rest : ndarray of float64, shape (U,)
        The mean of ``P_w(y)`` over all other words, by the prior.
    """

    mechanism: Mechanism
    outputs: NDArray[np.int64]
    words: NDArray[np.int32]
    distribution: NDArray[np.float64]
    rest: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        prior: NDArray[np.float64],
        count: int,
        outputs: NDArray[np.integer] | None = None,
    ) -> Candidates:
        """Find the ``count`` largest ``prior[w] P_w(y)`` for some outputs y, or for all.

        Parameters
        ----------
        mechanism : Mechanism
            With a closed output distribution.
        prior : ndarray, shape (V + 1,)
            The last entry is that of words outside the vocabulary.
        count : int
        outputs : ndarray of int, optional
        """
        distribution = OutputDistribution(mechanism)
        size = len(distribution)
        if len(prior) != size + 1:
            raise TextprivError(
                f"the model knows {len(prior) - 1:,} words, and the mechanism {size:,}. Use one vocabulary."
            )
        given = np.arange(size) if outputs is None else np.unique(outputs[outputs >= 0])
        kept = min(count, size + 1)
        words = np.empty((len(given), kept), np.int32)
        found = np.empty((len(given), kept))
        rest = np.empty(len(given))
        unknown = np.exp(mechanism.log_prob(UNKNOWN))
        for some, block in distribution.columns(given):
            block = np.column_stack([block, unknown[given[some]].astype(np.float32)])
            joint = block * prior.astype(np.float32)
            top = np.argpartition(-joint, kept - 1, axis=1)[:, :kept]
            top.sort(axis=1)
            words[some], found[some] = top, np.take_along_axis(block, top, axis=1)
            left = prior.sum() - prior[top].sum(axis=1)
            mass = joint.sum(axis=1, dtype=np.float64)
            mass -= np.take_along_axis(joint, top, axis=1).sum(axis=1, dtype=np.float64)
            rest[some] = np.where(
                left > _ROUNDING, np.maximum(mass, 0) / np.maximum(left, 1e-12), 0
            )
        return cls(mechanism, given, words, found, np.minimum(rest, 1.0))

    def words_at(self, released: NDArray[np.integer]) -> NDArray[np.int32]:
        """Candidates of each released word, shape (T, K)."""
        return self.words[np.searchsorted(self.outputs, released)]

    def arrays(
        self, released: NDArray[np.integer], model: NGrams
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Tokens and emissions of one document for ``hidden_markov``, behind the start of the document.

        A released symbol is its only candidate. A mechanism that reads its context has emissions of its own for each
        position, which also depend on what was released before it.
        """
        drawn = released >= 0
        at = np.searchsorted(self.outputs, released[drawn])
        words, count = self.words[at], self.words.shape[1]
        tokens = np.full((len(released) + 1, count), model.start, np.int32)
        tokens[1:] = model.of_ids(released)[:, None]
        distribution = np.zeros((len(released) + 1, count + 1))
        distribution[:, 0] = 1.0
        given = np.column_stack([self.distribution[at], self.rest[at]])
        if self.mechanism.reads_context:
            given[:, :-1] = self.mechanism.emissions(released, words)
            given[:, -1] = 0.0
        rows = np.flatnonzero(drawn) + 1
        tokens[rows] = np.where(words == len(self.mechanism.index), model.tokens - 1, words)
        distribution[rows] = given
        return tokens, distribution


def context_posterior(
    released: NDArray[np.integer],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
    *,
    later: bool = True,
) -> NDArray[np.float32]:
    """How likely each candidate of each position is, given the released tokens of its document.

    Parameters
    ----------
    released : ndarray of int, shape (T,)
        Word ids of all documents, one after the other; ``-2 - s`` is a released symbol with number s of the model.
    offsets : ndarray of int64, shape (D + 1,)
        Document j is ``released[offsets[j]:offsets[j + 1]]``.
    candidates : Candidates
        Of the mechanism, under the prior of the model, with all released words among its outputs.
    model : NGrams
        Public. Documents are read in parts of 2,048 tokens.
    later : bool
        Read the whole document (forward-backward). If not, only up to the position (forward filter).

    Returns
    -------
    ndarray of float32, shape (T, K)
        Row t is about ``candidates.words_at(released)[t]``; other words have what it lacks of 1. Rows of symbols are 0. Time
        grows with the square of the number of candidates.
    """
    _check(released, candidates, model)
    found = np.zeros((len(released), candidates.words.shape[1] + 1), np.float32)
    for part in _parts(offsets):
        tokens, distribution = candidates.arrays(released[part], model)
        shares = np.zeros(distribution.shape, np.float32)
        hidden_markov.posterior(tokens, distribution, model.arrays, shares, later)
        found[part] = shares[1:]
    found[released < 0] = 0.0
    return found[:, :-1]


def likeliest_words(
    released: NDArray[np.integer],
    offsets: NDArray[np.int64],
    candidates: Candidates,
    model: NGrams,
) -> NDArray[np.int32]:
    """Decode each document to candidates that are likely together; see :func:`context_posterior`. Symbols stay."""
    _check(released, candidates, model)
    found = np.array(released, np.int32)
    for part in _parts(offsets):
        tokens, distribution = candidates.arrays(released[part], model)
        path = hidden_markov.likeliest_path(tokens, distribution, model.arrays)[1:]
        drawn = np.flatnonzero(released[part] >= 0)
        words = candidates.words_at(released[part][drawn])
        found[part.start + drawn] = words[np.arange(len(drawn)), path[drawn]]
    return found


def _parts(offsets: NDArray[np.int64]) -> Iterator[slice]:
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for start in range(begin, end, _LONGEST):
            yield slice(start, min(start + _LONGEST, end))


def _check(released: NDArray[np.integer], candidates: Candidates, model: NGrams) -> None:
    size = len(candidates.mechanism.index)
    if model.size != size:
        raise TextprivError(
            f"the model knows {model.size:,} words, and the mechanism {size:,}. Use one vocabulary."
        )
    if not (np.isin(released, candidates.outputs) | (released < UNKNOWN)).all():
        raise TextprivError("a released word has no candidates. Leave out what was not drawn.")
