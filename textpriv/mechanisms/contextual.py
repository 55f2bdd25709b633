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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, positive
from textpriv.mechanisms.measure import BaseMeasure
from textpriv.mechanisms.near import SLACK, Decay, NearTables, decays
from textpriv.mechanisms.successors import ATTEMPT, ModelTables, draw_document, masses, next_word
from textpriv.mechanisms.tem import LARGEST_EXPONENT
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["ContextualTEM", "Prior", "configure"]

Prior = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # released prefix -> weights, shape (V,)

_LEAST = 2.0**-24  # probability of a word without context: rarer words would need many attempts


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

    def context_weights(
        self, context: Sequence[int] | NDArray[np.integer] = ()
    ) -> NDArray[np.float64]:
        """Return the prior of the next word after a released prefix, shape (V,).

        Parameters
        ----------
        context : sequence of int
            Released ids, oldest first; -2 - s for symbol number s.
        """
        if self.prior is not None:
            return _checked(self.prior(np.asarray(context, dtype=np.int64)), len(self.index))
        return next_word(self._model_tables, self.measure.weights, self._tokens(context))

    def _tokens(self, context: Sequence[int] | NDArray[np.integer]) -> list[int]:
        """Return the last two tokens of a released prefix; a document begins after two starts."""
        assert self.model is not None
        last = self.model.of_ids(np.asarray(context[-2:], dtype=np.int64)).tolist()
        return [*[self.model.start] * 2, *last][-2:]

    def log_prob(self, word: str | int, context: Sequence[int] = ()) -> NDArray[np.float64]:
        """Return the natural logarithm of a word's output distribution after a released prefix, shape (V,)."""
        number = self.resolve(word)
        score = np.log(self.context_weights(context))
        if number != UNKNOWN:
            score = score - self.t * np.minimum(self.distances(number), self.gamma)
        return np.asarray(score - np.logaddexp.reduce(score))

    def emissions(
        self,
        released: NDArray[np.integer],
        words: NDArray[np.integer],
        positions: NDArray[np.integer] | None = None,
    ) -> NDArray[np.float64]:
        """Return the probability of each drawn word of a document after candidates for its original, shape (D, K).

        Parameters
        ----------
        released : ndarray of int, shape (T,)
            All released tokens; -2 - s for symbol number s. D of them were drawn.
        words : ndarray of int, shape (D, K)
            Candidates; V stands for an unknown word.
        positions : ndarray of int, shape (D,), optional
            Drawn tokens that are looked at. Default: all.
        """
        known = np.unique(words[words < len(self.index)])
        alone = np.zeros(len(self.index))
        for some in np.array_split(known, 1 + len(known) // 256):
            alone[some] = decays(self.index.steps_of(some), self.decay) @ self.measure.weights
        found = np.empty(words.shape)
        if positions is None:
            positions = np.flatnonzero(np.asarray(released) >= 0)
        for row, at in enumerate(positions.tolist()):
            context, output = released[:at], int(released[at])
            weights = self.context_weights(context)
            found[row] = weights[output] / weights.sum()
            own = np.flatnonzero(words[row] < len(self.index))
            near = words[row, own].astype(np.int32)
            decayed = decays(self.index.steps_of(np.array([output])), self.decay)[0]
            if self.model is None:
                rows = decays(self.index.steps_of(near.astype(np.int64)), self.decay)
                normalisers = rows @ weights
            else:
                normalisers = np.empty(len(near))
                earlier, before = self._tokens(context)
                tables = self.index.points, self._model_tables, alone[near]
                masses(self.decay, *tables, earlier, before, near, normalisers)
            found[row, own] = weights[output] * decayed[near] / normalisers
        return found

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
            random = np.empty(ATTEMPT * (2 * (len(ids) - done) + 8), dtype=np.uint64)
            stream.fill(random)
            rest = ids[done:], context, random, sums, out[done:]
            done += draw_document(*tables, self._model_tables, *rest)

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


def _checked(weights: Any, size: int) -> NDArray[np.float64]:
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (size,) or not (np.isfinite(found) & (found > 0)).all():
        raise MechanismError(
            f"A language model must return {size:,} positive weights, one for each word. Add a floor to words it rules out."
        )
    return found


def open_model(model: Any, index: Index) -> NGrams:
    """Return the n-gram model that was given, that of an ARPA file, that of the index, or general English."""
    from textpriv.language.arpa import read_arpa
    from textpriv.language.general_english import general_english

    if isinstance(model, NGrams):
        return model
    if model is not None:
        return read_arpa(Path(model), index.vocabulary.words)
    return general_english(index.vocabulary.words)


def configure(
    epsilon: float, model: str | None = None, gamma: float | None = None
) -> Callable[[Index], ContextualTEM]:
    """Registered as ``textpriv.ContextualTEM.v1``: settings of a mechanism that is made when its index is known."""
    return partial(ContextualTEM, epsilon=epsilon, model=model, gamma=gamma)
