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
from textpriv.mechanisms.base_measure import BaseMeasure, numbers
from textpriv.mechanisms.calibration.prior_search import search_prior
from textpriv.mechanisms.calibration.privacy_constant import largest_rate
from textpriv.mechanisms.sampling import drawn_distances
from textpriv.mechanisms.tem_sampler import EnvelopeSampler
from textpriv.metrics import INTERPRETED
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
    rate : {"half", "calibrated", "best"}
        "half": t = epsilon / 2, as published. "calibrated": the largest t in [epsilon / 2, epsilon] whose exact
        constant over all pairs is at most epsilon (1 - 1e-6), computed once and recorded with the index; it needs exact
        lists. "best": first moves the prior some half steps towards the measure on which the normaliser is constant, as
        many as keep the most words (:mod:`textpriv.mechanisms.calibration.prior_search`; a small vocabulary may start
        from the uniform measure), then calibrates. The guarantee is the same.

    Attributes
    ----------
    t : float
        The rate in use.
    gamma : float
        The truncation in use.
    rho_bound : float
        Nothing tells two words apart by more than this per unit of distance: epsilon at the half rate, the constant over
        all pairs, with the rounding of distances charged, at a calibrated one.

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
        rate: str = "half",
    ) -> None:
        super().__init__(index, epsilon)
        if rate not in ("half", "calibrated", "best"):
            raise MechanismError(
                f"unknown rate {rate!r}; use 'half' (t = epsilon / 2), 'calibrated' or 'best'."
            )
        self.rate = rate
        self.rho_bound = self.epsilon
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
        self.t = self._find_rate(wanted)
        self.gamma = min(wanted, LARGEST_EXPONENT / self.t)
        self._sampler = EnvelopeSampler(index, self.measure, self.t, self.gamma)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {
            "epsilon": self.epsilon,
            "prior": self.prior,
            "gamma": self._gamma,
            "beta": self.beta,
            "rate": self.rate,
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
        """What the sampler reads besides: the measure, which a prior search may have found, the rate and the truncation."""
        measure = checksum(self.measure.parts)
        return {**super().drawn_from(), "prior": measure, "law": [self.t, self.gamma]}

    def _find_rate(self, gamma: float) -> float:
        """Fix the measure for a wanted truncation, and return the rate."""
        if self.rate == "half":
            return self.epsilon / 2
        if self.rate == "best":
            self._search_prior(gamma)
        return self._calibrate(gamma)

    def _search_prior(self, gamma: float) -> None:
        """Replace the prior by the one that a prior search finds: recorded for exactly this prior, or searched now."""
        self._refuse_unproved()
        binding = {"kind": "levelling", **self.binding()}
        record = self.index.find_record(binding)
        weights = None if record is None else numbers(record.get("weights"), len(self.index))
        if record is None or weights is None or not (weights > 0).all():
            searched = search_prior(
                self.index,
                self.measure.weights,
                self.epsilon,
                lambda rate: min(gamma, LARGEST_EXPONENT / rate),
            )
            record = {
                "start": searched.start,
                "steps": searched.steps,
                "evidence": list(searched.evidence),
                "weights": searched.weights.tolist(),
            }
            self.index.keep_record(binding, record)
            weights = searched.weights
        self.measure = BaseMeasure(weights)

    def _refuse_unproved(self) -> None:
        if not self.index.exact or self.index.metric.kind == INTERPRETED:
            spender = f"rate={self.rate!r}" if self.name == TEM.name else self.name
            raise MechanismError(
                f"{spender} needs exact lists and a metric of this library, since it spends what is proved and nothing "
                "else. Use TEM with rate='half'."
            )

    def _calibrate(self, gamma: float) -> float:
        """The largest rate that keeps the promise: recorded for exactly this law, or computed now."""
        self._refuse_unproved()
        index = self.index
        binding = {"kind": "calibration", **self.binding()}
        record = index.find_record(binding)
        if record is None or not (
            self._keeps_promise(record.get("t"), record.get("rho_with_rounding"))
            and self._confirmed(
                record.get("pair"),
                record["rho_with_rounding"],
                record["t"],
                gamma,
                self.measure.weights,
            )
        ):
            rate, constant = largest_rate(
                index, self.measure.weights, self.epsilon, gamma, LARGEST_EXPONENT
            )
            record = {"t": rate, "rho_with_rounding": constant.value, "pair": list(constant.pair)}
            index.keep_record(binding, record)
        self.rho_bound = float(record["rho_with_rounding"])
        return float(record["t"])

    def _keeps_promise(self, t: Any, rho: Any) -> bool:
        """Whether a recorded rate and constant keep the promise, as everything that is computed does."""
        if not (
            isinstance(t, float)
            and isinstance(rho, float)
            and self.epsilon / 2 <= t <= self.epsilon
        ):
            return False
        # Half of epsilon is proved for every measure; only the rounding charged may put its constant above.
        return 0 < rho <= (self.epsilon if t > self.epsilon / 2 else math.inf)

    def _confirmed(
        self,
        pair: Any,
        rho: float,
        rate: float,
        gamma: float,
        weights: NDArray[np.float64],
        kappa: NDArray[np.float64] | None = None,
    ) -> bool:
        """Whether a recorded constant is what its pair loses by the law, so that no record is believed unseen.

        It shows that rate, constant and law belong together, not that no other pair is worse: that takes a certificate.
        With a background ``kappa`` (V,) that is 0 for some word the constant is an upper bound, else it is attained.
        """
        size = len(self.index)
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            return size == 1  # no pair to compare
        if not all(type(word) is int and 0 <= word < size for word in pair):
            return False
        words = np.array(pair)
        scores = -rate * np.minimum(
            self.index.distances_of(words), min(gamma, LARGEST_EXPONENT / rate)
        )
        if kappa is not None and kappa.any():
            with np.errstate(divide="ignore"):
                scores = np.logaddexp(scores, np.log(kappa[words])[:, None])
        first, second = scores - np.log(np.exp(scores) @ weights)[:, None]
        loss = float(np.abs(first - second).max())
        stated = rho * self.index.distance(*pair)
        attained = kappa is None or bool((kappa > 0).all()) or not kappa.any()
        return loss <= (1 + 1e-9) * stated + 1e-9 and not (
            attained and loss < (1 - 1e-6) * stated - 1e-9
        )

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
        if self.rate == "half":
            return self.epsilon * min(diameter, self.gamma)
        # A calibrated rate promises epsilon d, and beyond the truncation no more than twice its own exponent.
        return min(self.epsilon * diameter, 2 * self.t * self.gamma)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        return self._stated(
            f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, {self.rate} rate t {self.t:.4g})",
            "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; prior and truncation: mechanisms.md 3.1, 3.3"
            if self.rate == "half"
            else "the exact constant over all pairs of words, computed for this vocabulary: mechanisms.md 3.3",
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
    rate: str = "half",
) -> Callable[[Index], TEM]:
    """Registered as ``textpriv.TEM.v1``: settings of a TEM that is made when its index is known."""
    return partial(TEM, epsilon=epsilon, prior=prior, gamma=gamma, beta=beta, rate=rate)
