"""Recovery of words in context: a hidden Markov model of private text.

States are words, transitions a public n-gram model, emissions the exact output distribution of the mechanism. With all words
as candidates the marginals are the Bayes-optimal attacker under that model. With the likeliest words of each output it
recovers less, and with a better model more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation import hidden_markov
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism

__all__ = ["ContextModel"]

_LONGEST = 2048  # words that are read at a time; a longer document is read in parts
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ContextModel:
    """A model of private text over the words that each output most likely came from.

    Documents are ``released[offsets[j]:offsets[j + 1]]``: word ids among ``outputs``, and ``-2 - s`` for symbol number s.

    Attributes
    ----------
    mechanism : Mechanism
    language : NGrams
        Public. Documents are read in parts of 2,048 tokens.
    outputs : ndarray of int64, shape (U,)
        Word ids, rising.
    words : ndarray of int32, shape (U, K)
        Candidates, rising; V is a word outside the vocabulary.
    distribution : ndarray of float64, shape (U, K + 1)
        Probability ``P_w(y)`` of the output after each, and last the mean of it over all other words, by the prior.
    """

    mechanism: Mechanism
    language: NGrams
    outputs: NDArray[np.int64]
    words: NDArray[np.int32]
    distribution: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        language: NGrams,
        prior: NDArray[np.float64],
        count: int,
        outputs: NDArray[np.integer] | None = None,
    ) -> ContextModel:
        """Find the ``count`` largest ``prior[w] P_w(y)`` for some outputs y, or for all.

        Parameters
        ----------
        mechanism : Mechanism
            With a closed output distribution.
        language : NGrams
        prior : ndarray, shape (V + 1,)
            The last entry is that of words outside the vocabulary.
        count : int
        outputs : ndarray of int, optional
        """
        matrix = OutputDistribution(mechanism)
        size = len(matrix)
        if language.size != size:
            raise TextprivError(
                f"the model knows {language.size:,} words, and the mechanism {size:,}. Use one vocabulary."
            )
        given = np.arange(size) if outputs is None else np.unique(outputs[outputs >= 0])
        kept = min(count, size + 1)
        words = np.empty((len(given), kept), np.int32)
        found = np.empty((len(given), kept + 1))
        unknown = np.exp(mechanism.log_prob(UNKNOWN))
        for some, block in matrix.columns(given):
            block = np.column_stack([block, unknown[given[some]].astype(np.float32)])
            joint = block * prior.astype(np.float32)
            top = np.argpartition(-joint, kept - 1, axis=1)[:, :kept]
            top.sort(axis=1)
            words[some], found[some, :-1] = top, np.take_along_axis(block, top, axis=1)
            left = prior.sum() - prior[top].sum(axis=1)
            mass = joint.sum(axis=1, dtype=np.float64)
            mass -= np.take_along_axis(joint, top, axis=1).sum(axis=1, dtype=np.float64)
            rest = np.where(left > _ROUNDING, np.maximum(mass, 0) / np.maximum(left, 1e-12), 0)
            found[some, -1] = np.minimum(rest, 1.0)
        return cls(mechanism, language, given, words, found)

    def words_at(self, released: NDArray[np.integer]) -> NDArray[np.int32]:
        """Candidates of each released word, shape (T, K)."""
        return self.words[np.searchsorted(self.outputs, released)]

    def posterior(
        self, released: NDArray[np.integer], offsets: NDArray[np.int64], *, later: bool = True
    ) -> NDArray[np.float32]:
        """How likely each candidate of each position is, given the released tokens of its document.

        Without ``later``, only those up to the position count (forward filter). Time grows with the square of the number of
        candidates.

        Returns
        -------
        ndarray of float32, shape (T, K)
            Row t is about ``words_at(released)[t]``; other words have what it lacks of 1. Rows of symbols are 0.
        """
        found = np.zeros((len(released), self.words.shape[1] + 1), np.float32)
        for part, tokens, emissions in self._parts(released, offsets):
            arrays = self.language.arrays
            found[part] = hidden_markov.posterior(tokens, emissions, arrays, later)[1:]
        found[released < 0] = 0.0
        return found[:, :-1]

    def likeliest_words(
        self, released: NDArray[np.integer], offsets: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Decode each document to candidates that are likely together. Symbols stay."""
        found = np.array(released, np.int32)
        for part, tokens, emissions in self._parts(released, offsets):
            path = hidden_markov.likeliest_path(tokens, emissions, self.language.arrays)[1:]
            drawn = np.flatnonzero(released[part] >= 0)
            words = self.words_at(released[part][drawn])
            found[part.start + drawn] = words[np.arange(len(drawn)), path[drawn]]
        return found

    def _parts(
        self, released: NDArray[np.integer], offsets: NDArray[np.int64]
    ) -> Iterator[tuple[slice, NDArray[np.int32], NDArray[np.float64]]]:
        """Yield parts of documents with their tokens and emissions, behind the start of the document."""
        for begin, end in itertools.pairwise(offsets.tolist()):
            for start in range(begin, end, _LONGEST):
                part = slice(start, min(start + _LONGEST, end))
                yield part, *self._arrays(released[part])

    def _arrays(
        self, released: NDArray[np.integer]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return tokens and emissions of a part; a released symbol is its only candidate."""
        model, drawn = self.language, released >= 0
        at = np.searchsorted(self.outputs, released[drawn])
        words, count = self.words[at], self.words.shape[1]
        tokens = np.full((len(released) + 1, count), model.start, np.int32)
        tokens[1:] = model.of_ids(released)[:, None]
        emissions = np.zeros((len(released) + 1, count + 1))
        emissions[:, 0] = 1.0
        given = self.distribution[at]
        if self.mechanism.reads_context:  # then they differ at each position
            given[:, :-1] = self.mechanism.emissions(released, words)
            given[:, -1] = 0.0
        rows = np.flatnonzero(drawn) + 1
        tokens[rows] = np.where(words == len(self.mechanism.index), model.tokens - 1, words)
        emissions[rows] = given
        return tokens, emissions
