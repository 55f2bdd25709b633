"""The output law of a mechanism as blocks of a matrix, and what a public word prior makes of it by Bayes' rule.

A law over V words is a V x V matrix that is never held whole: blocks of rows go by. Distances come from matrix products in
single precision, those of the nearest words, where that is too coarse, from the index's lists. This serves attacks and
learning, which post-process the law; draws and certificates have exact arithmetic of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.metrics import EUCLIDEAN
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["Law"]

_CELLS = 1 << 24  # of the law held at a time
_ROUNDING = 1e-6  # of distances in single precision
_CACHED = 1 << 17  # of them that are worked on at a time: as many as fit into a processor's cache


class Law:
    """The matrix ``P[w, y] = P_w(y)`` of a mechanism, with a public prior on the words that were written.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed law.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written. Public.

    Attributes
    ----------
    prior : ndarray of float64, shape (V,)
        The word prior; sums to 1.
    """

    def __init__(self, mechanism: Mechanism, word_prior: Prior = "zipf") -> None:
        self.mechanism = mechanism
        self.index = mechanism.index
        self.prior = self.index.vocabulary.prior_weights(word_prior)
        self._exponential = mechanism.exponential_law()
        if self._exponential is None:
            mechanism.log_prob(0)  # says what is wrong with a mechanism that has no law

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def _points(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        points = self.index.coordinates
        centred = (points - points.mean(axis=0, dtype=np.float64)).astype(np.float32)
        return centred, np.einsum("ij,ij->i", centred, centred)

    def distances(self, words: NDArray[np.int64]) -> NDArray[np.float32]:
        """Distances from some words, as inputs, to all: shape (len(words), V)."""
        index = self.index
        rows = index.representatives[words].astype(np.int64)
        if index.metric.kind != EUCLIDEAN or not index.exact:
            return index.distances_of(words).astype(np.float32)
        distances = self._distances_between(rows, np.arange(len(self)))
        np.put_along_axis(
            distances,
            index.neighbours.ids[rows].astype(np.int64),
            index.neighbours.distances[rows].astype(np.float32),
            axis=1,
        )
        return distances

    def _distances_between(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Distances of some words from others, coarse where they are near: shape (len(rows), len(columns))."""
        if self.index.metric.kind != EUCLIDEAN:
            found = np.empty((len(rows), len(columns)), dtype=np.float32)
            step = max(
                1, _CELLS // len(self)
            )  # they come to all words, however few columns are asked for
            for start in range(0, len(rows), step):
                some = slice(start, start + step)
                found[some] = self.index.distances_of(rows[some])[:, columns]
            return found
        points, squares = self._points
        distances: NDArray[np.float32] = points[rows] @ points[columns].T
        for some, part in _parts(distances):
            part *= -2
            part += squares[columns]
            part += squares[rows[some], None]
            np.maximum(part, 0, out=part)
            np.sqrt(part, out=part)
        return distances

    def rows(self, words: NDArray[np.int64]) -> NDArray[np.float32]:
        """The law of some words, shape (len(words), V); every row sums to 1."""
        if self._exponential is None or not self.index.exact:
            return np.exp([self.mechanism.log_prob(int(word)) for word in words]).astype(np.float32)
        measure, rate, gamma = self._exponential
        rows = self.distances(words)
        weights = measure.astype(np.float32)
        for _, part in _parts(rows):
            np.minimum(part, np.float32(gamma), out=part)
            part *= np.float32(-rate)
            np.exp(part, out=part)
            part *= weights
            part /= part.sum(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
        return rows

    def draws(self, ids: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw an output for each word so that under one seed the draws of two laws differ where the laws do.

        Every place has an exponential clock for each output, and the one whose clock over its probability is least comes
        out (an exponential race). A law that moves a little moves few draws, so what is measured on them can be searched
        for. Takes a clock for each place and output; to draw many words is the business of ``mechanism.sample``.

        Parameters
        ----------
        ids : ndarray of int32, shape (T,)
            -1 for a word outside the vocabulary.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int32, shape (T,)
        """
        drawn = np.empty(len(ids), dtype=np.int32)
        order = np.argsort(ids, kind="stable")  # places of one word share its row of the law
        step = max(1, _CACHED // len(self))
        for start in range(0, len(ids), step):
            places = order[start : start + step]
            words, at = np.unique(ids[places], return_inverse=True)
            known = words != UNKNOWN
            law = np.empty((len(words), len(self)), dtype=np.float32)
            if known.any():
                law[known] = self.rows(words[known].astype(np.int64))
            if not known.all():
                law[~known] = np.exp(self.mechanism.log_prob(UNKNOWN))
            # In double precision: a clock of single precision stands at 0 once in eight million times.
            clocks = rng.standard_exponential((len(places), len(self)))
            with np.errstate(divide="ignore"):
                clocks /= law[at]
            drawn[places] = clocks.argmin(axis=1)
        return drawn

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """All words in order: ids (B,) and their law (B, V)."""
        step = max(1, _CELLS // len(self))
        for start in range(0, len(self), step):
            words = np.arange(start, min(start + step, len(self)))
            yield words, self.rows(words)

    @cached_property
    def marginal(self) -> NDArray[np.float64]:
        """How often each word comes out, shape (V,)."""
        marginal = np.zeros(len(self))
        for words, law in self.blocks():
            marginal += self.prior[words] @ law
        return marginal

    def posterior_means(self, table: NDArray[np.floating]) -> NDArray[np.float32]:
        """The mean row of a table over the words that an output may come from (mechanisms.md 3.4b).

        Parameters
        ----------
        table : ndarray, shape (V, n)

        Returns
        -------
        ndarray of float32, shape (V, n)
            Row y is the sum over w of pi(w | y) table[w].
        """
        if len(table) != len(self):
            raise TextprivError(
                f"the table must have one row a word: {len(self)}; got {len(table)}."
            )
        given = np.asarray(table, dtype=np.float32)
        total = np.zeros(given.shape, dtype=np.float64)
        marginal = np.zeros(len(self))
        for words, law in self.blocks():
            weight = self.prior[words]
            marginal += weight @ law
            total += law.T @ (weight[:, None] * given[words]).astype(np.float32)
        self.__dict__["marginal"] = marginal
        return (total / marginal[:, None]).astype(np.float32)

    def posterior(self, floor: float = 0.01) -> csr_matrix:
        """The probabilities of the words an output may come from, shape (V outputs, V words).

        Parameters
        ----------
        floor : float
            Smaller probabilities are left out, in (0, 1]; so no row has more than ``1 / floor`` entries, and its sum says
            what is left.
        """
        if not 0 < floor <= 1:
            raise TextprivError(f"floor is a probability above 0; got {floor}.")
        limit = (floor * self.marginal).astype(np.float32)
        outputs, inputs, values = [], [], []
        for words, law in self.blocks():
            law *= self.prior[words, None].astype(np.float32)
            row, column = np.nonzero(law >= limit)
            outputs.append(column)
            inputs.append(words[row])
            values.append(law[row, column] / self.marginal[column])
        return csr_matrix(
            (
                np.concatenate(values).astype(np.float32),
                (np.concatenate(outputs), np.concatenate(inputs)),
            ),
            shape=(len(self), len(self)),
        )

    def likeliest(
        self, prior: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For each output the likeliest word, shape (V,), and the joint probability of the two, shape (V,).

        Parameters
        ----------
        prior : ndarray, shape (V,), optional
            In place of the law's own, such as that of some words only.
        """
        (found,) = self.likeliest_under([self.prior if prior is None else prior])
        return found

    def likeliest_under(
        self, priors: Sequence[NDArray[np.float64]]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """:meth:`likeliest` under each of some priors, from one pass over all pairs of words."""
        found = [self.mechanism.likeliest_inputs(prior) for prior in priors]
        known = [each for each in found if each is not None]
        if len(known) == len(priors):
            return known
        # A word that uses the law of another one has no distances of its own.
        if self._exponential is not None and self.index.exact and not len(self.index.wide):
            return self._likeliest_by_lists(priors, *self._exponential)
        best = [
            (np.zeros(len(self), dtype=np.int64), np.zeros(len(self), dtype=np.float32))
            for _ in priors
        ]
        joint = np.empty(len(self), dtype=np.float32)
        for words, law in self.blocks():
            for word, row in zip(words.tolist(), law, strict=True):
                for prior, (guess, most) in zip(priors, best, strict=True):
                    np.multiply(row, np.float32(prior[word]), out=joint)
                    better = np.flatnonzero(joint > most)
                    most[better] = joint[better]
                    guess[better] = word
        return [(guess, most.astype(np.float64)) for guess, most in best]

    def _likeliest_by_lists(
        self,
        priors: Sequence[NDArray[np.float64]],
        measure: NDArray[np.float64],
        rate: float,
        gamma: float,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """:meth:`likeliest_under` of an exponential law, without looking at most pairs of words.

        The joint probability of w and y is ``nu(y) exp(a(w) - t min(d(w, y), gamma))`` with
        ``a(w) = ln pi(w) - ln Z(w)``. A word that the list of y leaves out is no nearer than the last one in it, so it is
        looked at only where ``a(w)`` exceeds the best of the list even from there.
        """
        with np.errstate(divide="ignore"):
            ahead = np.log(np.stack(priors)) - self.mechanism.log_normalisers()
        lists = self.index.neighbours
        guess = np.empty(ahead.shape, dtype=np.int64)
        most = np.empty(ahead.shape)
        step = max(1, _CELLS // lists.ids.shape[1])
        for start in range(0, len(self), step):
            some = slice(start, start + step)
            fall = rate * np.minimum(lists.distances[some], gamma)
            for law in range(len(priors)):
                score = ahead[law, lists.ids[some]] - fall
                best = score.argmax(axis=1)[:, None]
                guess[law, some] = np.take_along_axis(lists.ids[some], best, axis=1)[:, 0]
                most[law, some] = np.take_along_axis(score, best, axis=1)[:, 0]
        least = np.minimum(lists.distances[:, -1] * (1 - _ROUNDING), gamma).astype(np.float32)
        furthest = ahead.max(axis=0)
        order = np.argsort(-furthest, kind="stable")
        candidates = np.searchsorted(-furthest[order], -(most.min(axis=0) + rate * least))
        outputs = np.argsort(-candidates, kind="stable")[: np.count_nonzero(candidates)]
        while len(outputs):
            words = order[: candidates[outputs[0]]]
            rows, outputs = np.split(outputs, [max(1, _CELLS // len(words))])
            distances = self._distances_between(rows, words)
            gains = ahead[:, words].astype(np.float32)
            for some, part in _parts(distances):
                each = rows[some]
                np.clip(part, least[each, None], np.float32(gamma), out=part)
                part *= np.float32(-rate)
                for law, gain in enumerate(gains):
                    score = part + gain
                    best = score.argmax(axis=1)
                    value = np.take_along_axis(score, best[:, None], axis=1)[:, 0]
                    better = value > most[law, each]
                    guess[law, each[better]] = words[best[better]]
                    most[law, each[better]] = value[better]
        return list(zip(guess, np.exp(most) * measure, strict=True))


def _parts(rows: NDArray[np.float32]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Rows a few at a time, with which they are."""
    step = max(1, _CACHED // rows.shape[1])
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        yield some, rows[some]
