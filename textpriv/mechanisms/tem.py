"""TEM, the truncated exponential mechanism on words, with any public prior.

Source: Carvalho, Vasiloudis, Feyisetan, "TEM: High Utility Metric Differential Privacy on Text", Algorithm 2 and Theorems
2 and 3. A word w becomes y with probability ``nu(y) exp(-t min(d(w, y), gamma)) / Z(w)``: nu is a public prior (uniform as
published) and t = epsilon / 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, configured, positive
from textpriv.mechanisms.default import DEFAULT_PRIORS
from textpriv.mechanisms.measure import BaseMeasure, draw_in_rounds
from textpriv.mechanisms.near import SLACK, Decay, NearTables, attempts
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement
from textpriv.vocabulary.priors import Prior

# "No truncation" means a truncation at this many nats: every probability then keeps a known relative precision.
LARGEST_EXPONENT = 30.0
_EXPONENT_PARTS = 1 << 20  # of a nat


def truncation(beta: float, size: int, rate: float) -> float:
    """Return the gamma beyond which a word falls with probability at most ``beta`` under a uniform prior (Theorem 3)."""
    if not 0 < beta < 1:
        raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
    odds = (1 - beta) * (size - 1) / beta
    # With lower odds all other words together are rarer than beta, at any distance.
    if odds <= 1:
        return LARGEST_EXPONENT / rate
    # Rounded up to whole parts: libraries differ in the last bits of a logarithm, and draws and keys must not.
    return math.ceil(math.log(odds) * _EXPONENT_PARTS) / _EXPONENT_PARTS / rate


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
        Truncation of the distance. Default: Theorem 3 from ``beta`` with the uniform prior, none with any other. At most
        30 / t.
    beta : float
        For the default gamma of the uniform prior: the probability that a word falls beyond it.
    """

    name = "TEM"

    def __init__(
        self,
        index: Index,
        epsilon: float,
        prior: Prior | BaseMeasure = DEFAULT_PRIORS["tem"],
        gamma: float | None = None,
        beta: float = 1e-3,
    ) -> None:
        super().__init__(index, epsilon, prior=prior, gamma=gamma, beta=beta)
        self.prior = prior
        self.t = self.epsilon / 2
        published = truncation(beta, len(index), self.t)
        wanted = published if isinstance(prior, str) and prior == "uniform" else math.inf
        if gamma is not None:
            wanted = positive("gamma", gamma)
        if not isinstance(prior, BaseMeasure):
            prior = BaseMeasure(index.vocabulary.prior_weights(prior))
        self.measure: BaseMeasure = prior
        self.gamma = min(wanted, LARGEST_EXPONENT / self.t)
        self.decay = Decay.of(index, self.t, self.gamma)
        self.tables = NearTables(index, self.decay, self.measure)

    def binding(self) -> dict[str, Any]:
        """Return what a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self.measure.parts)
        return bound | {"decay": list(self.decay)}

    def exponential_decay(self) -> tuple[NDArray[np.float64], float, float]:
        """Return the base measure, the rate and the truncation."""
        return self.measure.weights, self.t, self.gamma

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Return the natural logarithm of a word's output distribution, shape (V,)."""
        return self.log_prob_under(word, self.measure.weights)

    def log_prob_under(self, word: str | int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return :meth:`log_prob` under another prior."""
        number, score = self.resolve(word), np.log(weights)
        if number != UNKNOWN:
            score = score - self.t * np.minimum(self.distances(number), self.gamma)
        return np.asarray(score - np.logaddexp.reduce(score))

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        self.tables.prepare(ids)
        return draw_in_rounds(attempts, self.tables.rows, ids, offsets, streams)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        return self._stated(
            f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, rate t {self.t:.4g})",
            "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; any public prior and truncation keep it",
            "words, vectors, metric and prior",
            **self.figures,
        )

    @property
    def figures(self) -> dict[str, float]:
        """Figures of the statement, which hold for every prior."""
        farthest = min(self.index.diameter_bound, self.gamma)
        return {
            "worst_word_loss": self.epsilon * farthest,
            "unknown_word_loss": self.t * farthest,
            "numerical_slack": SLACK,
            # The normalisers drop out of how far a loss moves: Cesar and Rogers 2021, bounded range.
            "bounded_range": 2 * self.t,
            "largest_range": 2 * self.t * farthest,
        }


configure = configured(TEM)
