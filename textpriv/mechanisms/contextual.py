"""ContextualTEM: TEM whose public prior is a language model of what the document has already released.

Let c be the last two released tokens of the document and nu_c > 0 the distribution of the next word under a public
language model. A word w becomes y with probability ``nu_c(y) exp(-t min(d(w, y), gamma)) / Z_c(w)``, t = epsilon / 2.

Proof (``docs/mechanisms.md``, 11.1): for every fixed c this is TEM with the prior nu_c, and c is a function of the output
alone. So the losses of positions add. c must hold released tokens only, and no position is drawn again.

How it is drawn: the model interpolates its orders, ``nu_c = e3 + b3 (e2 + b2 nu_1)``, where e3 and e2 list the successors of
the last two and of the last token. An attempt chooses one of three parts by its mass. A listed successor is drawn by whole
numbers that are at least its weight, and accepted by a coin; where there are many, those far from the original share one
such number, until so many attempts have failed that to weigh them all is quicker. The part of nu_1 is one attempt of TEM.
So every attempt, whatever failed before it, returns each y with a probability proportional to its weight in context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.language.arpa import read_arpa
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import ONE, SYMBOLS, NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, configured
from textpriv.mechanisms.measure import PARTS, WORDS, BaseMeasure, coin, find, first_above
from textpriv.mechanisms.near import Decay, Rows, attempts, decayed, holds, steps_between
from textpriv.mechanisms.tem import TEM
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

NextWord = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # released prefix -> weights, (V,)

_LEAST = 2.0**-24  # probability of a word without context: rarer words would need many attempts
_SHORT = 32  # successors of a context that are all weighed one by one
_NEAR = 16  # of a longer list: words of a nearest list that are
_WORTH = 64  # successors that are weighed in the time of a failed attempt


class _Model(NamedTuple):
    """What the sampler reads of an n-gram model over words: its successors with running sums of their weights."""

    offsets: NDArray[np.int64]
    seconds: NDArray[np.int32]
    pairs: NDArray[np.uint32]
    pair_offsets: NDArray[np.int64]
    thirds: NDArray[np.int32]
    triples: NDArray[np.uint32]
    symbols: NDArray[np.int64]  # tokens by their numbers


@njit
def _pair_of(model: _Model, earlier: int, before: int) -> int:
    low, high = model.offsets[earlier], model.offsets[earlier + 1]
    at = first_above(model.seconds, before - 1, low, high)
    return at if at < high and model.seconds[at] == before else -1


class _Envelopes(NamedTuple):
    """Whole numbers that are at least the weights of a context's successors after a word: own ones, and one for the rest."""

    places: NDArray[np.int64]  # of those with one of their own
    sums: NDArray[np.uint64]  # running sums of these, weighted, and at last of all
    rest: np.uint64
    mass: float  # _successor returns each successor by its share of it


@njit
def _envelopes(
    points: NDArray[Any],
    decay: Decay,
    word: int,
    near_ids: NDArray[np.int32],
    near_steps: NDArray[np.int32],
    successors: NDArray[np.int32],
    ends: NDArray[np.uint32],
    most: int,
) -> _Envelopes:
    """Weigh the successors of a list of at most ``most`` one by one, of a longer list those close to the word."""
    own, rest, short = 0, np.uint64(0), len(successors) <= most
    close = near_ids[:_NEAR]
    places = np.empty(len(successors) if short else len(close), np.int64)
    if short:
        for row in range(len(successors)):
            places[row] = row
        own = len(successors)
    else:
        for other in close:
            row = first_above(successors, other - 1, np.int64(0), len(successors))
            if row < len(successors) and successors[row] == other:
                places[own] = row
                own += 1
        # A successor that is not close is at least as far as the last one that is.
        farther = decayed(np.int64(near_steps[len(close) - 1]), decay)
        rest = np.uint64(math.ceil(farther * ONE))
    places = places[:own]
    sums, total = np.empty(own + 1, np.uint64), np.uint64(0)
    for row in range(own):
        at = places[row]
        weight = ends[at] - (ends[at - 1] if at else np.uint32(0))
        if weight:  # symbols have none, and no point
            steps = steps_between(points, word, np.int64(successors[at]), decay.root)
            envelope = np.uint64(math.ceil(decayed(np.int64(steps), decay) * ONE))
            total += envelope * np.uint64(weight)
        sums[row] = total
    if rest:
        total += rest * np.uint64(ends[-1])
    sums[-1] = total
    mass = PARTS / ONE**2 / float(np.uint64(PARTS) // total) if total else 0.0
    return _Envelopes(places, sums, rest, mass)


@njit
def _successor(
    points: NDArray[Any],
    decay: Decay,
    word: int,
    given: _Envelopes,
    successors: NDArray[np.int32],
    ends: NDArray[np.uint32],
    random: NDArray[np.uint64],
    row: int,
) -> int:
    """Draw a successor by its weight with three random words, or return -1."""
    part = (random[row, 0] >> np.uint64(2)) // (np.uint64(PARTS) // given.sums[-1])
    if part >= given.sums[-1]:
        return -1
    which = first_above(given.sums, part, np.int64(0), len(given.sums))
    own = which < len(given.places)
    if own:
        at = given.places[which]
    else:
        before = given.sums[which - 1] if which else np.uint64(0)
        at = first_above(ends, (part - before) // given.rest, np.int64(0), len(ends))
        if holds(given.places, at):
            return -1
    steps = steps_between(points, word, np.int64(successors[at]), decay.root)
    weight = decayed(np.int64(steps), decay) * ONE
    envelope = np.uint64(math.ceil(weight)) if own else given.rest
    accepted = coin(weight / np.float64(envelope), random[row, 1], random[row, 2])
    return np.int64(successors[at]) if accepted else -1


@njit
def _first_is_chosen(first: float, second: float, a: np.uint64, b: np.uint64) -> bool:
    """Choose the first of two masses; the coin is that of the smaller one, which so keeps its precision."""
    if first <= second:
        return coin(first / (first + second), a, b)
    return not coin(second / (first + second), a, b)


@njit
def _undecayed(successors: NDArray[np.int32], ends: NDArray[np.uint32], random: np.uint64) -> int:
    """Draw a successor of a context by the model alone, or return -1 for the back-off."""
    at = first_above(ends, random >> np.uint64(34), np.int64(0), len(ends))
    return np.int64(successors[at]) if at < len(ends) else -1


@njit(cache=True, nogil=True)
def _draw(
    near: Rows,
    model: _Model,
    ids: NDArray[np.int32],
    context: NDArray[np.int64],
    random: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> int:
    """Draw the tokens of one document from left to right until the random words run out; return how many are done.

    ``context``, the two tokens before the first of them, is moved on. An attempt reads two rows of ``random``: one to choose
    a part of the distribution, one to draw from it.
    """
    at, first = 0, np.empty(1, np.int64)
    first[0] = 0
    # Taken out of the rows once, which are large to hand on.
    points, decay, near_ids, near_steps = near.points, near.decay, near.ids, near.steps
    for token in range(len(ids)):
        word, before, alone = np.int64(ids[token]), context[1], slice(token, token + 1)
        if word < -1:  # a released symbol
            out[token] = word
            context[0], context[1] = before, model.symbols[-2 - word]
            continue
        pair = _pair_of(model, context[0], before)
        seconds, thirds = slice(model.offsets[before], model.offsets[before + 1]), slice(0, 0)
        if pair >= 0:
            thirds = slice(model.pair_offsets[pair], model.pair_offsets[pair + 1])
        words2, ends2 = model.seconds[seconds], model.pairs[seconds]
        words3, ends3 = model.thirds[thirds], model.triples[thirds]
        # What the successors of a context leave to a shorter one.
        left2 = 1.0 - ends2[-1] / ONE if len(ends2) else 1.0
        left3 = 1.0 - ends3[-1] / ONE if len(ends3) else 1.0
        second, third, mass = 0.0, 0.0, 0.0
        output, tries, patience = np.int64(-1), 0, 0
        while output < 0:
            if at == len(random):
                return token
            if word >= 0 and tries == patience:
                most, patience = max(_SHORT, _WORTH * tries), 2 * tries + 8
                listed = near_ids[word], near_steps[word]
                near2 = _envelopes(points, decay, word, *listed, words2, ends2, most)
                near3 = _envelopes(points, decay, word, *listed, words3, ends3, most)
                second, third = left3 * near2.mass, near3.mass
                mass = left3 * left2 * float(PARTS) / near.scale[word]
            tries += 1
            row, at = at, at + 2
            if word < 0:  # an unknown word: the next word under the model
                output = _undecayed(words3, ends3, random[row, 0])
                if output < 0:
                    output = _undecayed(words2, ends2, random[row, 1])
                if output < 0:
                    output = find(random[row, 2] >> np.uint64(2), near.measure)
            elif not _first_is_chosen(second + third, mass, random[row, 0], random[row, 1]):
                out[token] = -1
                attempts(near, ids[alone], first, random[row + 1 : at], out[alone])
                output = np.int64(out[token])
            elif _first_is_chosen(third, second, random[row, 2], random[row, 3]):
                output = _successor(points, decay, word, near3, words3, ends3, random, row + 1)
            else:
                output = _successor(points, decay, word, near2, words2, ends2, random, row + 1)
        out[token] = output
        context[0], context[1] = before, output
    return len(ids)


class ContextualTEM(Mechanism):
    """TEM with the next word of a public language model as its prior.

    Parameters
    ----------
    index : Index
    epsilon : float
        Constant of the guarantee ``P_w(y | c) <= exp(epsilon d(w, w')) P_w'(y | c)`` for every released context c.
    model : NGrams, path or callable, optional
        Public. An n-gram model, an ARPA file, or a function from the released prefix (ids; -2 and below for symbols) to
        positive weights, shape (V,); below 2^-40 of their sum they are raised to it. With keys, a ledger or a certificate
        the function needs a method ``fingerprint()``, which returns another text for other weights. Default: the model of
        the index, else general English.
    gamma : float, optional
        Truncation of the distance. Default: none, that is 30 / t.
    """

    name = "ContextualTEM"
    reads_context = True

    def __init__(
        self,
        index: Index,
        epsilon: float,
        model: NGrams | str | PathLike[str] | NextWord | None = None,
        gamma: float | None = None,
    ) -> None:
        super().__init__(index, epsilon, model=model, gamma=gamma)
        given, words = model, index.vocabulary.words
        self._given, self.model, base = model, None, np.ones(len(words))
        if not callable(given):
            if given is None:
                given = index.model or general_english(words)
            elif not isinstance(given, NGrams):
                given = read_arpa(Path(given), words)
            self.model = given.words_only(other=False)
            tables: Any = (*self.model.arrays[1:], self.model.symbol_tokens)
            self._tables = _Model(*tables)
            base = np.maximum(self.model.after()[: len(words)], _LEAST)
        self._alone = TEM(index, epsilon, BaseMeasure(base), gamma)
        self.t, self.gamma, self.measure = self._alone.t, self._alone.gamma, self._alone.measure
        self.prior = self.measure.weights  # of the next word without any context
        # Normalisers under it, filled in as they are asked for.
        self._base_sums = np.full(len(index), np.nan)

    def binding(self) -> dict[str, Any]:
        """Return what a record about this mechanism is bound to; the model by its exact weights or its fingerprint."""
        bound = super().binding()
        if self.model is not None:
            bound["settings"]["model"] = [checksum(array) for array in self.model.arrays]
        elif (fingerprint := getattr(self._given, "fingerprint", None)) is None:
            raise MechanismError(
                "Keys, ledgers and certificates hold for one language model. Give this one a method fingerprint() that "
                "returns another text for other weights."
            )
        else:
            bound["settings"]["model"] = fingerprint()
        return bound | {"decay": list(self._alone.decay)}

    def average(self) -> TEM:
        """TEM with the base measure as its prior: the output distribution over all contexts, nearly."""
        return self._alone

    def _after(self, context: ArrayLike) -> tuple[float, NDArray[Any], NDArray[np.float64]]:
        """Return the share of the base measure in the next word, and listed words with their own weights."""
        size, released = len(self.index), np.asarray(context, dtype=np.int64)
        if callable(self._given):
            weights = np.asarray(self._given(released), dtype=np.float64)
            if weights.shape != (size,) or not (np.isfinite(weights) & (weights > 0)).all():
                raise MechanismError(
                    f"A language model must return {size:,} positive weights, one for each word. Add a floor to words it "
                    "rules out."
                )
            return 0.0, np.arange(size), BaseMeasure(weights).weights  # as it is drawn from
        assert self.model is not None
        model, (_, pairs, triples, backoff, pair_backoff) = self.model, self.model.weights
        earlier, before = [*[model.start] * 2, *model.of_ids(released[-2:])][-2:]
        own = slice(model.offsets[before], model.offsets[before + 1])
        share, words, weights = backoff[before], model.seconds[own], pairs[own]
        pair = int(model.find(0, earlier, before))
        if pair >= 0:
            own = slice(model.pair_offsets[pair], model.pair_offsets[pair + 1])
            words = np.append(words, model.thirds[own])
            weights = np.append(pair_backoff[pair] * weights, triples[own])
            share = share * pair_backoff[pair]
        return share, words[words < size], weights[words < size]

    def context_weights(self, context: ArrayLike = ()) -> NDArray[np.float64]:
        """Return the prior of the next word, shape (V,), after released ids, oldest first; -2 - s for symbol number s."""
        share, words, weights = self._after(context)
        found: NDArray[np.float64] = share * self.measure.weights
        np.add.at(found, words, weights)
        return found

    def exponential_decay(self) -> tuple[NDArray[np.float64], float, float]:
        """Return the prior at the start of a document, the rate and the truncation."""
        weights = self.context_weights()
        return weights / weights.sum(), self.t, self.gamma

    def log_prob(self, word: str | int, context: ArrayLike = ()) -> NDArray[np.float64]:
        """Return the natural logarithm of a word's output distribution after a released prefix, shape (V,)."""
        return self._alone.log_prob_under(word, self.context_weights(context))

    def emissions(
        self, released: NDArray[np.integer], words: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Return the probability of each drawn word after candidates; see :meth:`Mechanism.emissions`."""
        size = len(self.index)

        def decays(words: NDArray[np.integer], outputs: Any = slice(None)) -> NDArray[np.float64]:
            apart = self.index.length(self.index.steps_of(words, outputs))
            return np.asarray(np.exp(-self.t * np.minimum(apart, self.gamma)))

        known = np.unique(words[words < size])
        missing = known[np.isnan(self._base_sums[known])]
        for some in np.array_split(missing, 1 + len(missing) // 256):
            self._base_sums[some] = decays(some) @ self.measure.weights
        found = np.empty(words.shape)
        for row, at in enumerate(np.flatnonzero(np.asarray(released) >= 0).tolist()):
            output, own = int(released[at]), np.flatnonzero(words[row] < size)
            share, listed, weights = self._after(released[:at])
            near = words[row, own]
            mass = share * self.measure.weights[output] + weights[listed == output].sum()
            found[row] = mass / (share + weights.sum())
            normalisers = share * self._base_sums[near] + decays(near, listed) @ weights
            found[row, own] = mass * decays(near, np.array([output]))[:, 0] / normalisers
        return found

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token, from left to right; see :meth:`Mechanism.sample_documents`."""
        out = np.array(ids, dtype=np.int32)
        if out.min(initial=0) < -1 - len(SYMBOLS):
            raise MechanismError("An id stands for no symbol. Use language.ngrams.symbol_id.")
        draw = self._draw_by_callable if self.model is None else self._draw_by_model
        self._alone.tables.prepare(ids[ids >= 0])
        for stream, first, last in zip(streams, offsets[:-1], offsets[1:], strict=True):
            draw(ids[first:last], stream, out[first:last])
        return out

    def _draw_by_model(
        self, ids: NDArray[np.int32], stream: RandomWords, out: NDArray[np.int32]
    ) -> None:
        assert self.model is not None
        context, done, failed = np.full(2, self.model.start, dtype=np.int64), 0, 0
        while done < len(ids):
            # A token that used up all its words gets twice as many: it weighs more successors the more attempts it has.
            rows = 2 * failed or 4 * (len(ids) - done) + 16
            random = np.empty((rows, WORDS), dtype=np.uint64)
            stream.fill(random)
            rest = ids[done:], context, random, out[done:]
            drawn = _draw(self._alone.tables.rows, self._tables, *rest)
            done, failed = done + drawn, 0 if drawn else rows

    def _draw_by_callable(
        self, ids: NDArray[np.int32], stream: RandomWords, out: NDArray[np.int32]
    ) -> None:
        for at in np.flatnonzero(ids >= UNKNOWN).tolist():
            prior = BaseMeasure(self.context_weights(out[:at]))
            alone = TEM(self.index, self.epsilon, prior, self.gamma)
            out[at] = alone.sample_documents(ids[at : at + 1], np.array([0, 1]), [stream])[0]

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word, in every context."""
        return self._stated(
            f"ContextualTEM (epsilon {self.epsilon:g}, gamma {self.gamma:.4g}, rate t {self.t:.4g})",
            "for every released context, TEM (Theorem 2) with the model's next word as prior; losses of positions add, "
            "since the context is a function of the output",
            "words, vectors, metric and language model",
            **self._alone.figures,
        )


configure = configured(ContextualTEM)
