"""TEM, the truncated exponential mechanism on words, with any public prior.

Source: Carvalho, Vasiloudis, Feyisetan, "TEM: High Utility Metric Differential Privacy on Text", Algorithm 2 and Theorems
2 and 3. A word w becomes y with probability ``nu(y) exp(-t min(d(w, y), gamma)) / Z(w)``: nu is a public prior (uniform as
published) and t = epsilon / 2.

How it is drawn
---------------
Distances are whole steps of the grid, so a weight is a function of a whole number (:func:`decay`). One attempt chooses a word
of the nearest list by its weight, or else proposes a word of the whole measure under the envelope ``nu(y) exp(-t d_k)``, d_k
being the distance of the last listed word. A proposal that is listed fails; any other is accepted with ``exp(-t (d - d_k))``.
So one attempt returns every y with a probability proportional to its weight, whatever the list's length, and a token that no
attempt has decided may be drawn from its full row of weights: the output distribution is the same.

Weights of listed words are whole parts of 2^62. Those below 2^32 parts are rounded up and accepted by a coin, so no weight is
off by more than r = 2^-32 of itself, and no loss by more than 4.1 r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, positive
from textpriv.mechanisms.measure import PARTS, BaseMeasure, MeasureTables, coin, exp, find
from textpriv.mechanisms.rounds import ROUNDS, draw_in_rounds
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["LARGEST_EXPONENT", "TEM", "Decay", "NearTables", "configure", "decay", "truncation"]

# "No truncation" means a truncation at this many nats: every probability then keeps a known relative precision.
LARGEST_EXPONENT = 30.0
SLACK = 2e-9  # nats that whole parts and coins may add to a loss: 4.1 x 2^-32, and as much again for the floats in them
_COARSE = float(1 << 32)  # parts below it are accepted by a coin
_MARGIN = float(1 << 30)  # parts that a row leaves to its envelope, more than its sums round by
_ROWS = 256  # rows of the tables that are filled in at a time


def truncation(beta: float, size: int, rate: float) -> float:
    """Return the gamma beyond which a word falls with probability at most ``beta`` under a uniform prior (Theorem 3)."""
    if not 0 < beta < 1:
        raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
    odds = (1 - beta) * (size - 1) / beta
    # With lower odds all other words together are rarer than beta, at any distance.
    return math.log(odds) / rate if odds > 1 else LARGEST_EXPONENT / rate


# Weights and draws


class Decay(NamedTuple):
    """The function of steps that weights are made of: ``exp(-rate * length)``, with steps cut off at ``cap``."""

    rate: float  # per step, or per root of a step
    cap: int
    root: bool  # whether a distance is the root of its steps

    @classmethod
    def of(cls, index: Index, t: float, gamma: float) -> Decay:
        """Return the decay at a rate, truncated at the first whole step from gamma up."""
        root = index.space != "manhattan"
        steps = gamma / index.unit
        most = np.iinfo(np.int32).max
        return cls(t * index.unit, min(math.ceil(min(steps * steps if root else steps, most)), most), root)


@njit(cache=True, nogil=True)
def decay(steps: int, law: Decay) -> float:
    """Return the weight of a word so many steps away, as a part of that of the word itself."""
    cut = min(np.int64(steps), np.int64(law.cap))
    return exp(-law.rate * (math.sqrt(cut) if law.root else float(cut)))


@njit(cache=True, nogil=True)
def _decays(steps: NDArray[np.int32], law: Decay) -> NDArray[np.float64]:
    """Return :func:`decay` of every entry of a table."""
    out = np.empty(steps.shape)
    for row in range(steps.shape[0]):
        for column in range(steps.shape[1]):
            out[row, column] = decay(steps[row, column], law)
    return out


@njit(cache=True, nogil=True)
def steps_between(points: NDArray[Any], first: int, second: int, root: bool) -> int:
    """Return the distance of two points in steps, as an index counts them."""
    total = np.int32(0)
    for column in range(points.shape[1]):
        apart = np.int32(np.int32(points[first, column]) - np.int32(points[second, column]))
        total = np.int32(total + (np.int32(apart * apart) if root else np.int32(abs(apart))))
    return total


class NearRows(NamedTuple):
    """Rows by which words are drawn: their listed words, and the envelope of all others.

    Attributes
    ----------
    ids, steps : ndarray of int32, shape (m, k)
        Listed words and their distances, nearest first.
    ends : ndarray of uint64, shape (m, k)
        Cumulative whole parts of their weights; the envelope has what is left of 2^62.
    scale : ndarray of float64, shape (m,)
        Parts of a weight of 1.
    tail : ndarray of float64, shape (m,)
        A proposal is accepted with its decay times this; 0 where all words are listed.
    """

    ids: NDArray[np.int32]
    steps: NDArray[np.int32]
    ends: NDArray[np.uint64]
    scale: NDArray[np.float64]
    tail: NDArray[np.float64]


def _row_parts(
    decays: NDArray[np.float64], weights: NDArray[np.float64], everything: bool
) -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.float64]]:
    """Return ends, scale and tail of rows with these decays and prior weights, both of shape (m, k)."""
    head = decays * weights
    # Sums from the left to the right, the same on every processor.
    total = np.cumsum(head, axis=1)[:, -1] + (0.0 if everything else decays[:, -1])
    scale = (PARTS - _MARGIN) / total
    real = head * scale[:, None]
    ends = np.cumsum(np.where(real < _COARSE, np.ceil(real), real).astype(np.uint64), axis=1)
    left = (np.uint64(PARTS) - ends[:, -1]).astype(np.float64)
    return ends, scale, np.zeros(len(ends)) if everything else PARTS * scale / left


class NearTables:
    """The rows of all words of an index under one decay and measure, filled in as words are met.

    Parameters
    ----------
    index : Index
    law : Decay
    measure : BaseMeasure
    """

    def __init__(self, index: Index, law: Decay, measure: BaseMeasure) -> None:
        self.index, self.law, self.measure = index, law, measure
        size, k = index.neighbour_ids.shape
        # Pages of rows that no word asks for take no memory.
        parts = np.empty((size, k), np.uint64), np.empty(size), np.empty(size)
        self.rows = NearRows(index.neighbour_ids, index.neighbour_steps, *parts)
        self._ready = np.zeros(size, dtype=np.bool_)
        self._lock = Lock()

    def prepare(self, ids: NDArray[np.int32]) -> None:
        """Fill in the rows of these words."""
        known = ids[ids >= 0]
        if self._ready[known].all():
            return
        with self._lock:  # other threads may draw meanwhile: a row that is ready never changes
            missing = np.unique(known[~self._ready[known]])
            for start in range(0, len(missing), _ROWS):
                some = missing[start : start + _ROWS]
                listed = self.index.neighbour_ids[some]
                decays = _decays(self.index.neighbour_steps[some], self.law)
                everything = listed.shape[1] == len(self.index)
                parts = _row_parts(decays, self.measure.weights[listed], everything)
                for table, values in zip(self.rows[2:], parts, strict=True):
                    table[some] = values
                self._ready[some] = True

    def full_row(self, word: int) -> NearRows:
        """Return the row of one word with all words listed."""
        steps = self.index.steps_of(np.array([word]))
        ids = np.arange(len(self.index), dtype=np.int32)[None]
        parts = _row_parts(_decays(steps, self.law), self.measure.weights[None], True)
        return NearRows(ids, steps, *parts)

    def draw(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        self.prepare(ids)
        out = np.full(len(ids), -1, dtype=np.int32)

        def attempt(
            pending: NDArray[np.int64], words: NDArray[np.uint64], out: NDArray[np.int32]
        ) -> None:
            self._attempt(self.rows, ids[pending], ids, pending, words, out)

        left = draw_in_rounds(attempt, offsets, streams, out)
        if len(left):
            self._draw_from_full_rows(ids, left, offsets, streams, out)
        return out

    def _draw_from_full_rows(
        self,
        ids: NDArray[np.int32],
        left: NDArray[np.int64],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
        out: NDArray[np.int32],
    ) -> None:
        full = {word: self.full_row(word) for word in np.unique(ids[left]).tolist()}

        def attempt(
            pending: NDArray[np.int64], words: NDArray[np.uint64], out: NDArray[np.int32]
        ) -> None:
            for word in np.unique(ids[pending]).tolist():
                own = ids[pending] == word
                first = np.zeros(int(own.sum()), dtype=np.int32)
                self._attempt(full[word], first, ids, pending[own], words[own], out)

        while len(left):
            left = draw_in_rounds(attempt, offsets, streams, out, ROUNDS)

    def _attempt(self, rows: NearRows, *given: Any) -> None:
        _attempts(self.law, self.measure.tables, self.index.points, rows, *given)


@njit(cache=True, nogil=True)
def _rank_of(ends: NDArray[np.uint64], row: int, part: np.uint64) -> int:
    """Return the list rank that a part below the last end belongs to."""
    low, high = 0, ends.shape[1] - 1
    while low < high:
        middle = (low + high) >> 1
        if ends[row, middle] > part:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def _attempt_one(
    law: Decay,
    measure: MeasureTables,
    points: NDArray[Any],
    rows: NearRows,
    row: int,
    word: int,
    random: NDArray[np.uint64],
) -> int:
    """Make one attempt by four random words: the output, or -1 where none is accepted."""
    if word < 0:  # an unknown word
        return find(random[0] >> np.uint64(2), measure)
    k = rows.ends.shape[1]
    part = random[0] >> np.uint64(2)
    if part < rows.ends[row, k - 1]:
        rank = _rank_of(rows.ends, row, part)
        output = np.int64(rows.ids[row, rank])
        width = rows.ends[row, rank] - (rows.ends[row, rank - 1] if rank else np.uint64(0))
        if width >= _COARSE:
            return output
        real = measure.parts[output] * 2.0**-62 * decay(rows.steps[row, rank], law)
        return output if coin(real * rows.scale[row] / width, random[2], random[3]) else -1
    output = find(random[1] >> np.uint64(2), measure)
    steps, last = steps_between(points, word, output, law.root), rows.steps[row, k - 1]
    if steps < last:
        return -1  # listed
    if not coin(decay(steps, law) * rows.tail[row], random[2], random[3]):
        return -1
    if steps == last:
        for rank in range(k):
            if rows.ids[row, rank] == output:
                return -1
    return output


@njit(cache=True, nogil=True)
def _attempts(
    law: Decay,
    measure: MeasureTables,
    points: NDArray[Any],
    rows: NearRows,
    row_of: NDArray[np.int32],
    ids: NDArray[np.int32],
    pending: NDArray[np.int64],
    words: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Write the outputs of tokens for which one of their attempts succeeds."""
    for place in range(pending.shape[0]):
        token = pending[place]
        for at in range(0, words.shape[1], 4):
            random = words[place, at : at + 4]
            output = _attempt_one(law, measure, points, rows, row_of[place], ids[token], random)
            if output >= 0:
                out[token] = output
                break


# The mechanism


class TEM(Mechanism):
    """Truncated exponential mechanism: exact draws, any public prior.

    Parameters
    ----------
    index : Index
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    prior : {"zipf", "uniform", "counts"}, array, mapping or path
        Public base measure, as in :meth:`Vocabulary.prior_weights`. "uniform" is the mechanism as published. Weights below
        2^-40 of the total are raised to it.
    gamma : float, optional
        Truncation of the distance, rounded up to a whole step. Default: Theorem 3 from ``beta`` with the uniform prior, none
        with any other. At most 30 / t.
    beta : float
        For the default gamma of the uniform prior: the probability that a word falls beyond it.

    Attributes
    ----------
    t : float
        The rate, half of epsilon.
    gamma : float
        The truncation in use.
    measure : BaseMeasure
        The prior in whole parts.

    Raises
    ------
    MechanismError
        For parameters without meaning.
    """

    name = "TEM"

    def __init__(
        self,
        index: Index,
        epsilon: float,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "zipf",
        gamma: float | None = None,
        beta: float = 1e-3,
    ) -> None:
        super().__init__(index, epsilon)
        self.prior, self._gamma, self.beta = prior, gamma, beta
        self.t = self.epsilon / 2
        published = truncation(beta, len(index), self.t)
        wanted = published if isinstance(prior, str) and prior == "uniform" else math.inf
        if gamma is not None:
            wanted = positive("gamma", gamma)
        self.measure = BaseMeasure(index.vocabulary.prior_weights(prior))
        self.decay = Decay.of(index, self.t, min(wanted, LARGEST_EXPONENT / self.t))
        self.gamma = float(index.length(self.decay.cap))
        self.tables = NearTables(index, self.decay, self.measure)

    def settings(self) -> dict[str, Any]:
        """Return keyword arguments that rebuild this mechanism on the same index."""
        return {
            "epsilon": self.epsilon,
            "prior": self.prior,
            "gamma": self._gamma,
            "beta": self.beta,
        }

    def __repr__(self) -> str:
        prior = self.prior if isinstance(self.prior, str) else f"<{type(self.prior).__name__}>"
        return f"TEM(epsilon={self.epsilon:g}, prior={prior!r}, gamma={self.gamma:.4g}, t={self.t:.4g})"

    def binding(self) -> dict[str, Any]:
        """Return what a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self.measure.parts)
        return bound | {"decay": list(self.decay)}

    def exponential_law(self) -> tuple[NDArray[np.float64], float, float]:
        """Return the base measure, the rate and the truncation."""
        return self.measure.weights, self.t, self.gamma

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Return the natural logarithm of the output distribution of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        prior = np.log(self.measure.weights)
        if number == UNKNOWN:
            return prior
        score = prior - self.t * np.minimum(self.distances(number), self.gamma)
        return np.asarray(score - np.logaddexp.reduce(score))

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        return self.tables.draw(ids, offsets, streams)

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
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        return self._stated(
            f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, rate t {self.t:.4g})",
            "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; any public prior and truncation keep it",
            "words, vectors, metric and prior",
            self.worst_word_loss,
            self.unknown_word_loss,
            numerical_slack=SLACK,
            # The normalisers drop out of how far a loss moves: Cesar and Rogers 2021, bounded range.
            bounded_range=2 * self.t,
            largest_range=2 * self.t * min(self.index.diameter_bound, self.gamma),
        )


def configure(
    epsilon: float, prior: str = "zipf", gamma: float | None = None, beta: float = 1e-3
) -> Callable[[Index], TEM]:
    """Registered as ``textpriv.TEM.v1``: settings of a TEM that is made when its index is known."""
    return partial(TEM, epsilon=epsilon, prior=prior, gamma=gamma, beta=beta)
