"""ContextualTEM: TEM whose public prior is a language model of what the document has already released.

Let c be the last two released tokens of the document and nu_c > 0 the distribution of the next word under a public
language model. A word w becomes y with probability ``nu_c(y) exp(-t min(d(w, y), gamma)) / Z_c(w)``, t = epsilon / 2.

Proof: for every fixed c this is TEM with the prior nu_c, and the proof of TEM (Theorem 2) never uses where the prior comes
from. The probability of a whole output is the product over positions, and c is a function of the output alone. So the
losses of positions add as for TEM. The model must be public, c must hold released tokens only, and no position is drawn
again.

How it is drawn: the model interpolates its orders, ``nu_c = e3 + b3 (e2 + b2 nu_1)``, where e3 and e2 list the successors of
the last two and of the last token. An attempt chooses one of three parts by its mass. A listed successor is drawn by whole
numbers that are at least its weight, and accepted by a coin. The part of nu_1 is one attempt of TEM. So every attempt
returns each y with a probability proportional to its weight in context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.language.ngrams import ONE, NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, positive
from textpriv.mechanisms.measure import PARTS, BaseMeasure, MeasureTables, coin, find
from textpriv.mechanisms.near import (
    SLACK,
    Decay,
    NearTables,
    Rows,
    attempt,
    decay,
    steps_between,
    steps_from,
)
from textpriv.mechanisms.tem import LARGEST_EXPONENT
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["ContextualTEM", "Prior", "configure"]

Prior = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # released prefix -> weights, shape (V,)

_WORDS = 8  # random words of one attempt
_LEAST = 2.0**-24  # probability of a word without context: rarer words would need many attempts
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
    weights = np.diff(np.asarray(sums), prepend=np.uint32(0))
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
def _draw(
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
                if at + _WORDS > random.shape[0]:
                    return token
                own = random[at : at + _WORDS]
                at += _WORDS
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


# The mechanism


class ContextualTEM(Mechanism):
    """TEM with the next word of a public language model as its prior.

    Parameters
    ----------
    index : Index
    epsilon : float
        Constant of the guarantee ``P_w(y | c) <= exp(epsilon d(w, w')) P_w'(y | c)`` for every released context c.
    model : NGrams, path or callable, optional
        Public. An n-gram model, an ARPA file, or a function from the released prefix (ids; -2 and below for symbols) to
        positive weights, shape (V,). Default: the model of the index, or general English.
    gamma : float, optional
        Truncation of the distance. Default: none, that is 30 / t.

    Attributes
    ----------
    t : float
        The rate, half of epsilon.
    gamma : float
        The truncation in use.
    model : NGrams or None
        The n-gram model in use, of words alone; None with a callable.

    Raises
    ------
    MechanismError
        For parameters without meaning, or without a model.
    """

    name = "ContextualTEM"
    reads_context = True

    def __init__(
        self,
        index: Index,
        epsilon: float,
        model: NGrams | str | PathLike[str] | Prior | None = None,
        gamma: float | None = None,
    ) -> None:
        super().__init__(index, epsilon)
        self._given, self._gamma = model, gamma
        self.t = self.epsilon / 2
        wanted = LARGEST_EXPONENT / self.t
        if gamma is not None:
            wanted = min(wanted, positive("gamma", gamma))
        self.decay = Decay.of(index, self.t, wanted)
        self.gamma = float(index.length(self.decay.cap))
        self.prior: Prior | None = model if callable(model) else None
        self.model = None if self.prior else open_model(model, index).words_only(other=False)
        single = np.ones(len(index)) if self.model is None else self.model.after()[: len(index)]
        self.measure = BaseMeasure(np.maximum(single, _LEAST))
        self.tables = NearTables(index, self.decay, self.measure)

    def settings(self) -> dict[str, Any]:
        """Return keyword arguments that rebuild this mechanism on the same index."""
        return {"epsilon": self.epsilon, "model": self._given, "gamma": self._gamma}

    def __repr__(self) -> str:
        return f"ContextualTEM(epsilon={self.epsilon:g}, gamma={self.gamma:.4g}, t={self.t:.4g})"

    def binding(self) -> dict[str, Any]:
        """Return what a record about this mechanism is bound to; the model by its exact weights."""
        bound = super().binding()
        if self.model is not None:
            bound["settings"]["model"] = [checksum(array) for array in self.model.arrays]
        return bound | {"decay": list(self.decay)}

    def symbol(self, text: str) -> int:
        """Return the number of a released token in the language model; with a callable, 1 for all."""
        return 1 if self.model is None else self.model.symbol(text)

    # The output distribution

    def context_weights(self, context: Sequence[int] = ()) -> NDArray[np.float64]:
        """Return the prior of the next word after a released prefix, shape (V,).

        Parameters
        ----------
        context : sequence of int
            Released ids, oldest first; -2 - s for symbol number s.
        """
        if self.prior is not None:
            return _checked(self.prior(np.asarray(context, dtype=np.int64)), len(self.index))
        assert self.model is not None
        start = [self.model.start] * 2
        tokens = [*start, *self.model.of_ids(np.asarray(context, dtype=np.int64)).tolist()][-2:]
        single = self.measure.weights
        return _interpolated(self._model_tables, single, tokens)

    def log_prob(self, word: str | int, context: Sequence[int] = ()) -> NDArray[np.float64]:
        """Return the natural logarithm of a word's output distribution after a released prefix, shape (V,)."""
        number = self.resolve(word)
        score = np.log(self.context_weights(context))
        if number != UNKNOWN:
            score = score - self.t * np.minimum(self.distances(number), self.gamma)
        return np.asarray(score - np.logaddexp.reduce(score))

    def exponential_law(
        self, context: Sequence[int] = ()
    ) -> tuple[NDArray[np.float64], float, float]:
        """Return the prior after a released prefix (default: at the start of a document), the rate and the truncation."""
        weights = self.context_weights(context)
        return weights / weights.sum(), self.t, self.gamma

    @cached_property
    def _model_tables(self) -> ModelTables:
        assert self.model is not None
        return ModelTables.of(self.model)

    # Draws

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token, from left to right; see :meth:`Mechanism.sample_documents`."""
        out = np.array(ids, dtype=np.int32)
        draw = self._draw_by_prior if self.model is None else self._draw_by_model
        self.tables.prepare(ids[ids >= 0])
        for stream, first, last in zip(streams, offsets[:-1], offsets[1:], strict=True):
            draw(ids[first:last], stream, out[first:last])
        return out

    def _draw_by_model(
        self, ids: NDArray[np.int32], stream: RandomWords, out: NDArray[np.int32]
    ) -> None:
        assert self.model is not None
        near = self.tables
        tables = self.decay, self.index.points, near.rows, near.block, self.measure.tables
        context = np.full(2, self.model.start, dtype=np.int64)
        sums = np.empty(self._room, dtype=np.uint64)  # not shared: threads share the mechanism
        done = 0
        while done < len(ids):
            random = np.empty(_WORDS * (2 * (len(ids) - done) + 8), dtype=np.uint64)
            stream.fill(random)
            rest = ids[done:], context, random, sums, out[done:]
            done += _draw(*tables, self._model_tables, *rest)

    def _sums(self) -> NDArray[np.uint64]:
        """Return room for the running sums of one token; its own, since threads share the mechanism."""
        return np.empty(self._room, dtype=np.uint64)

    @cached_property
    def _room(self) -> int:
        tables = self._model_tables
        return int(
            sum(np.diff(each).max(initial=0) for each in (tables.offsets, tables.pair_offsets))
        )

    def _draw_by_prior(
        self, ids: NDArray[np.int32], stream: RandomWords, out: NDArray[np.int32]
    ) -> None:
        assert self.prior is not None
        for at in np.flatnonzero(ids >= UNKNOWN).tolist():
            weights = _checked(self.prior(out[:at].astype(np.int64)), len(self.index))
            tables = NearTables(self.index, self.decay, BaseMeasure(weights))
            out[at : at + 1] = tables.draw(ids[at : at + 1], np.array([0, 1]), [stream])

    # The guarantee

    @property
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word and any word of the vocabulary, in nats."""
        return self.t * min(self.index.diameter_bound, self.gamma)

    @property
    def worst_word_loss(self) -> float:
        """Largest loss between any two words, in nats."""
        return self.epsilon * min(self.index.diameter_bound, self.gamma)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word, in every context."""
        return self._stated(
            f"ContextualTEM (epsilon {self.epsilon:g}, gamma {self.gamma:.4g}, rate t {self.t:.4g})",
            "for every released context, TEM (Theorem 2) with the model's next word as prior; losses of positions add, "
            "since the context is a function of the output",
            "words, vectors, metric and language model",
            self.worst_word_loss,
            self.unknown_word_loss,
            numerical_slack=SLACK,
            # The normalisers drop out of how far a loss moves: Cesar and Rogers 2021, bounded range.
            bounded_range=2 * self.t,
            largest_range=2 * self.t * min(self.index.diameter_bound, self.gamma),
        )


def _interpolated(
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


def _checked(weights: Any, size: int) -> NDArray[np.float64]:
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (size,) or not (np.isfinite(found) & (found > 0)).all():
        raise MechanismError(
            f"A language model must return {size:,} positive weights, one for each word. Add a floor to words it rules out."
        )
    return found


def open_model(model: NGrams | str | PathLike[str] | None, index: Index) -> NGrams:
    """Return the n-gram model that was given, that of an ARPA file, that of the index, or general English."""
    from textpriv.language.arpa import read_arpa
    from textpriv.language.general_english import general_english

    if isinstance(model, NGrams):
        return model
    if model is not None:
        return read_arpa(model, index.vocabulary.words)
    return general_english(index.vocabulary.words)


def configure(
    epsilon: float, model: str | None = None, gamma: float | None = None
) -> Callable[[Index], ContextualTEM]:
    """Registered as ``textpriv.ContextualTEM.v1``: settings of a mechanism that is made when its index is known."""
    return partial(ContextualTEM, epsilon=epsilon, model=model, gamma=gamma)
