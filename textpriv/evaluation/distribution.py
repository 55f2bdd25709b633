"""Output distributions of a mechanism in blocks, and the exact Bayes attacker on single words.

The distributions over V words are a V x V matrix that is never held whole. Attacks and learning read it; draws and
certificates do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.randomness import KeyedStreams, Stream

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_CELLS = 1 << 23  # of the matrix held at a time
_LISTED = 512  # outputs of a word, at most


def word_distribution(mechanism: Mechanism, word: int, draws: int) -> NDArray[np.float64]:
    """Return the output distribution of a word, shape (V,); without a closed form, from draws under a public key."""
    if mechanism.has_log_prob:
        return np.exp(mechanism.log_prob(word))
    return count_draws(mechanism, word, draws, KeyedStreams(seed=0).stream(word)) / draws


def count_draws(mechanism: Mechanism, word: int, draws: int, stream: Stream) -> NDArray[np.int64]:
    """Draw a word many times, each time as its own document if context is read, and count its outputs, shape (V,)."""
    ids = np.full(draws, word, dtype=np.int32)
    if mechanism.reads_context:
        outputs = mechanism.sample_documents(ids, np.arange(draws + 1), [stream] * draws)
    else:
        outputs = mechanism.sample(ids, stream)
    if outputs.shape != (draws,) or outputs.min() < 0 or outputs.max() >= len(mechanism.index):
        raise MechanismError("The sampler must draw one word of the vocabulary for every token.")
    return np.bincount(outputs, minlength=len(mechanism.index))


class OutputDistribution:
    """The matrix ``P[w, y] = P_w(y)`` of a mechanism; words are written as often as :attr:`Index.word_frequency` says.

    Raises
    ------
    MechanismError
        If the mechanism has no closed output distribution.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.index = mechanism.index
        self.prior = self.index.word_frequency
        self._exponential = mechanism.exponential_decay()
        if self._exponential is None:
            mechanism.log_prob(0)

    def __len__(self) -> int:
        return len(self.index)

    def _kernel(self, words: NDArray[np.integer]) -> NDArray[np.float32]:
        """``-t min(d, gamma)`` between some words and all, shape (len(words), V), of an exponential mechanism."""
        assert self._exponential is not None
        _, rate, gamma = self._exponential
        falls = self.index.distances_of(words).astype(np.float32)
        np.minimum(falls, np.float32(gamma), out=falls)
        falls *= np.float32(-rate)
        return falls

    def rows(self, words: NDArray[np.integer]) -> NDArray[np.float32]:
        """Output distributions of some words, shape (len(words), V)."""
        if self._exponential is None:
            return np.exp([self.mechanism.log_prob(int(word)) for word in words]).astype(np.float32)
        rows = np.exp(self._kernel(words))
        rows *= self._exponential[0].astype(np.float32)
        rows /= rows.sum(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
        return rows

    def columns(self, outputs: NDArray[np.integer]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """How likely each word gives some outputs: which of the outputs, and a block of shape (outputs, V)."""
        for some in self._parts(len(outputs)):
            if self._exponential is None:
                block = np.empty((some.stop - some.start, len(self)), np.float32)
                for words in self._parts(len(self)):
                    block[:, words] = self.rows(np.arange(len(self))[words])[:, outputs[some]].T
            else:
                block = self._kernel(outputs[some])
                block -= self.mechanism.log_normalisers.astype(np.float32)
                np.exp(block, out=block)
                block *= self._exponential[0][outputs[some], None].astype(np.float32)
            yield some, block

    def _parts(self, count: int) -> Iterator[slice]:
        step = max(1, _CELLS // len(self))
        for start in range(0, count, step):
            yield slice(start, min(start + step, count))

    @cached_property
    def sparse_rows(self) -> tuple[csr_matrix, NDArray[np.float64]]:
        """The likeliest outputs of every word, shape (V, V), and how often each word comes out beside them, shape (V,)."""
        # A command with a recorded epsilon needs no matrix, and should not wait for the import.
        from scipy.sparse import csr_matrix, vstack

        blocks, others = [], np.zeros(len(self))
        for some in self._parts(len(self)):
            rows = self.rows(np.arange(len(self))[some])
            prior = self.prior[some].astype(np.float32)
            others += prior @ rows
            if len(self) > _LISTED:
                # Outputs as likely as the first that is left out are left out, too.
                most = np.partition(rows, -_LISTED - 1, axis=1)[:, [-_LISTED - 1]]
                rows[rows <= most] = 0.0
            blocks.append(csr_matrix(rows))
            others -= blocks[-1].T @ prior
        return csr_matrix(vstack(blocks)), np.maximum(others, 0.0)

    def draws(self, ids: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw an output for each word, or ``UNKNOWN``; under one seed few draws move when the mechanism moves a little.

        The output whose exponential clock over its probability is least comes out. A search over epsilon needs this.
        """
        drawn = np.empty(len(ids), dtype=np.int32)
        order = np.argsort(ids, kind="stable")  # places of one word share its row
        for some in self._parts(len(ids)):
            places = order[some]
            words, at = np.unique(ids[places], return_inverse=True)
            known = words != UNKNOWN
            distribution = np.empty((len(words), len(self)), dtype=np.float32)
            distribution[known] = self.rows(words[known])
            if not known.all():
                distribution[~known] = np.exp(self.mechanism.log_prob(UNKNOWN))
            clocks = rng.standard_exponential((len(places), len(self)))
            with np.errstate(divide="ignore"):
                clocks /= distribution[at]
            drawn[places] = clocks.argmin(axis=1)
        return drawn

    def likeliest(
        self, prior: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For each output the likeliest word under a prior and their joint probability, both of shape (V,)."""
        prior = self.prior if prior is None else prior
        closed = self.mechanism.likeliest_inputs(prior)
        if closed is not None:
            return closed
        if self._exponential is not None:
            return self._likeliest_by_lists(prior)
        words = np.arange(len(self))
        guess, most = np.zeros(len(self), np.int64), np.zeros(len(self))
        for some in self._parts(len(self)):
            joint = self.rows(words[some]) * prior[some, None].astype(np.float32)
            first, largest = joint.argmax(axis=0), joint.max(axis=0)
            better = largest > most
            guess[better], most[better] = words[some][first[better]], largest[better]
        return guess, most

    def _likeliest_by_lists(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """:meth:`likeliest` of an exponential mechanism, looking beyond its neighbour list only where an output needs it."""
        # The joint probability of w and y is nu(y) exp(a(w) - t min(d, gamma)) with a(w) = ln pi(w) - ln Z(w). Words outside
        # the list of y are no nearer than its last one.
        assert self._exponential is not None
        measure, rate, gamma = self._exponential
        with np.errstate(divide="ignore"):
            ahead = np.log(prior) - self.mechanism.log_normalisers
        guess, most = np.empty(len(self), np.int64), np.empty(len(self))
        for some in self._parts(len(self)):
            ids = self.index.neighbour_ids[some]
            apart = self.index.length(self.index.neighbour_steps[some])
            score = ahead[ids] - rate * np.minimum(apart, gamma)
            best = score.argmax(axis=1)[:, None]
            guess[some] = np.take_along_axis(ids, best, axis=1)[:, 0]
            most[some] = np.take_along_axis(score, best, axis=1)[:, 0]
        last = self.index.length(self.index.neighbour_steps[:, -1])
        open_ = np.flatnonzero(ahead.max() - rate * np.minimum(last, gamma) > most)
        for some in self._parts(len(open_)):
            outputs = open_[some]
            score = self._kernel(outputs) + ahead.astype(np.float32)
            guess[outputs], most[outputs] = score.argmax(axis=1), score.max(axis=1)
        return guess, np.exp(most) * measure
