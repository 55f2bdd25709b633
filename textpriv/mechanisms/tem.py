"""TEM, the truncated exponential mechanism on words, with any public prior: its law, its rate and its statement.

Source: Carvalho, Vasiloudis, Feyisetan, "TEM: High Utility Metric Differential Privacy on Text", Algorithm 2 and Theorems
2 and 3. The output law of a word w is ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)`` with a public prior nu (uniform
as published) and rate t = epsilon / 2. It is drawn exactly, without computing Z, by the sampler of ``tem_sampler``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arithmetic import log
from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, positive
from textpriv.mechanisms.base_measure import BaseMeasure
from textpriv.mechanisms.sampling import drawn_distances
from textpriv.mechanisms.tem_sampler import EnvelopeSampler
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement, UnsoundWarning

__all__ = ["LARGEST_EXPONENT", "TEM", "configure", "truncation"]

# A truncated distance of this many nats is the most that keeps every probability representable to a known relative error
# (mechanisms.md 2.4): "no truncation" means this.
LARGEST_EXPONENT = 30.0


def truncation(beta: float, size: int, rate: float) -> float:
    """Theorem 3: the gamma outside which any word falls with probability at most ``beta`` under the uniform prior.

    Parameters
    ----------
    beta : float
        In (0, 1).
    size : int
        Number of words in the vocabulary.
    rate : float
        The rate t; epsilon / 2 as published.
    """
    if not 0 < beta < 1:
        raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
    odds = (1 - beta) * (size - 1) / beta
    if odds <= 1:
        # Every other word together is rarer than beta at any distance: nothing needs truncating.
        return LARGEST_EXPONENT / rate
    return float(log(odds)) / rate


class TEM(Mechanism):
    """Truncated exponential mechanism: exact draws, any public prior.

    Parameters
    ----------
    index : Index
        With exact lists; approximate ones void the proof, and the statement says so.
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    prior : {"zipf", "uniform", "counts"}, array, mapping or path
        Public base measure, as in :meth:`Vocabulary.prior_weights`. "uniform" is the mechanism as published. Weights
        below 2^-40 of the total are raised to it.
    gamma : float, optional
        Truncation of the distance. Default: Theorem 3 from ``beta`` with the uniform prior, none with any other. At most
        30 / t in any case, so that every probability keeps a known relative precision.
    beta : float
        Used by the default gamma of the uniform prior, which is Theorem 3's at rate epsilon / 2 (it serves larger rates).

    Attributes
    ----------
    t : float
        The rate, half of epsilon.
    gamma : float
        The truncation in use.

    Raises
    ------
    MechanismError
        For parameters without meaning.
    """

    name = "TEM"
    needs_exact_lists = True
    reads_bands = True

    def __init__(
        self,
        index: Index,
        epsilon: float,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "zipf",
        gamma: float | None = None,
        beta: float = 1e-3,
    ) -> None:
        super().__init__(index, epsilon)
        if not index.exact:
            warnings.warn(
                f"TEM over approximate lists (recall {index.recall:.4f}) has no proved guarantee: a missed neighbour "
                "voids it. Build the index with backend='exact'.",
                UnsoundWarning,
                stacklevel=2,
            )
        self.prior = prior
        self.measure = BaseMeasure(index.vocabulary.prior_weights(prior))
        self.beta = positive("beta", beta)
        if self.beta >= 1:
            raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
        self._gamma = gamma
        if gamma is not None:
            wanted = positive("gamma", gamma, infinite=True)
        elif isinstance(prior, str) and prior == "uniform":
            wanted = truncation(beta, len(index), self.epsilon / 2)
        else:
            wanted = math.inf
        self.t = self.epsilon / 2
        self.gamma = min(wanted, LARGEST_EXPONENT / self.t)
        self._sampler = EnvelopeSampler(index, self.measure, self.t, self.gamma)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
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
        """What a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self.measure.parts)
        return bound

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides: the measure, the rate and the truncation."""
        measure = checksum(self.measure.parts)
        return {**super().drawn_from(), "prior": measure, "law": [self.t, self.gamma]}

    # The law

    def exponential_law(self) -> tuple[NDArray[np.float64], float, float]:
        """The base measure, the rate and the truncation."""
        return self.measure.weights, self.t, self.gamma

    def distances(self, word: int) -> NDArray[np.float64]:
        """Distances by which a word's law is drawn, shape (V,): true ones, with exact lists."""
        return drawn_distances(self.index, word)

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        prior = np.log(self.measure.weights)
        if number == UNKNOWN:
            return prior
        score = prior - self.t * np.minimum(self.distances(number), self.gamma)
        peak = score.max()
        return score - (peak + math.log(np.exp(score - peak).sum()))

    # Draws

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        return self._sampler.sample_documents(ids, offsets, streams)

    def compile(self) -> None:
        """Have the compiled code ready by which many words are drawn; what is drawn does not depend on it."""
        self._sampler.compile()

    # The guarantee

    @property
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word and any word of the vocabulary, in nats (mechanisms.md TEM-6)."""
        return self.t * min(self.index.diameter_bound, self.gamma)

    @property
    def worst_word_loss(self) -> float:
        """Largest loss between any two words, in nats (mechanisms.md TEM-12)."""
        diameter = self.index.diameter_bound
        return self.epsilon * min(diameter, self.gamma)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        return self._stated(
            f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, rate t {self.t:.4g})",
            "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; prior and truncation: mechanisms.md 3.1, 3.3",
            "words, vectors, metric and prior",
            self.worst_word_loss,
            self.unknown_word_loss,
            # mechanisms.md TEM-11: at most 9 t tau, distances beyond gamma being all alike; the rest bounds rounding to
            # whole parts and that of the constant over all pairs.
            numerical_slack=9 * self.t * self.index.rounding.at(self.gamma) + 1e-8,
            # mechanisms.md 10.2: the normalisers drop out of how far a loss moves.
            bounded_range=2 * self.t,
            largest_range=self._largest_range,
        )

    @property
    def _largest_range(self) -> float:
        """The range that the loss between no two words exceeds, in nats."""
        return 2 * self.t * min(self.index.diameter_bound, self.gamma)


def configure(
    epsilon: float,
    prior: str = "zipf",
    gamma: float | None = None,
    beta: float = 1e-3,
) -> Callable[[Index], TEM]:
    """Registered as ``textpriv.TEM.v1``: settings of a TEM that is made when its index is known."""
    return partial(TEM, epsilon=epsilon, prior=prior, gamma=gamma, beta=beta)
