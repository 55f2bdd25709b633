"""Noisy gradient descent, with sensitivities that hold for every pair of neighbouring tables.

Here live the plan that fixes steps, rate and noise from public numbers alone, and the loop that draws the noise. Sums of
pair gradients are those of ``pairs.sums``, of single records those of ``pointwise``; output perturbation lives in
``giga`` and ``sgd``.

Sensitivity (mechanisms.md 7.1). Replacing one of n records alters n − 1 of the n(n − 1)/2 pairs, or one pair of a
matching. If one pair's gradient moves by at most D, the mean moves by at most 2D/n, or D/⌊n/2⌋. D = 2G always. For the
AUC losses D = G: all gradients of a pair have the form a(x₋ − x₊) with 0 <= a <= G/(2R), so two of them that share the
record z differ by ‖a x − b x' − (a − b) z‖ <= (a + b + |a − b|)R = 2 max(a, b) R <= G when the label stays, and one of
the two is zero when it changes. This halves the noise of the general bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.calibration import calibrate
from pairwise.accounting.events import Adjacency, compose, sampled_event
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.pointwise import RecordSums
from pairwise.errors import InvalidParameterError
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.graph import random_matching
from pairwise.pairs.sums import AUCPairs, MetricPairs, PairSums

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import Domain

__all__ = [
    "Batching",
    "GradientPlan",
    "default_radius",
    "mean_gradient",
    "noisy_descent",
    "plan_gradient",
]

Array = NDArray[np.float64]
Batching = Literal["all-pairs", "matching", "sampled", "records"]

# From here on a random matching per step replaces the sum over all pairs, which costs n²d for a metric (mechanisms.md 7.1).
_MATCHING_FROM = {"auc": 10_000, "metric": 2_000}


def default_radius(
    mu: float, n: int, dimension: int, data_norm: float = 1.0, factor: float = 60.0
) -> float:
    """Return a radius of the parameter ball from public numbers: μn/(60√p), cut to 0.25..20, over the record norm.

    An AUC depends on the direction of w alone. In a small ball the loss is nearly linear, and its minimiser the
    difference of the class means, which is what little budget can find; a larger ball lets the loss bend the
    direction. The factor 60 was chosen on synthetic tables; for losses of single records 30, on tables of the KEEL
    collection.
    """
    if not math.isfinite(mu):
        return 20.0 / data_norm
    return min(20.0, max(0.25, mu * n / (factor * math.sqrt(dimension)))) / data_norm


# --------------------------------------------------------------------------------------------------------------------
# The plan and the loop


@dataclass(frozen=True)
class GradientPlan:
    """Everything that the loop needs besides the data; made of public numbers alone.

    Attributes
    ----------
    n : int
        Number of records.
    shape : tuple of int
        Shape of the parameter.
    batching : {"all-pairs", "matching", "sampled", "records"}
        ``records``: no pairs, the mean over single records.
    batch : int
        Records per step: n, or the size of the secret sample.
    steps : int
        T.
    rate : float
        η.
    noise : GaussianPlan
        The release of one step, whose sensitivity is that of one mean gradient, replace-one (on the sample, where sampled).
    event : DpEvent
        The whole run.
    """

    n: int
    shape: tuple[int, ...]
    batching: Batching
    batch: int
    steps: int
    rate: float
    noise: GaussianPlan
    event: DpEvent

    @property
    def sensitivity(self) -> float:
        """l2 sensitivity Δ of one mean gradient."""
        return self.noise.sensitivity

    @property
    def sigma(self) -> float:
        """Noise standard deviation per coordinate and step; 0 for the non-private reference."""
        return self.noise.sigma


def _mean_sensitivity(pair_change: float, records: int, batching: Batching) -> float:
    if batching == "matching":
        return pair_change / (records // 2)
    return 2.0 * pair_change / records


def _batches(
    sums: PairSums | RecordSums, batching: Batching | Literal["auto"], batch_size: int | None
) -> tuple[Batching, int]:
    """Return how pairs are drawn, with ``auto`` decided, and the records of a step."""
    n = sums.n
    if isinstance(sums, RecordSums):
        return "records", n
    if batch_size is not None:
        if not (2 <= batch_size <= n):
            raise InvalidParameterError(f"batch_size must be in 2..n = {n}; found {batch_size!r}.")
        return "sampled", int(batch_size)
    if batching == "sampled":
        raise InvalidParameterError("sampled batches need batch_size; found None.")
    if batching == "auto":
        kind = "metric" if isinstance(sums, MetricPairs) else "auc"
        cheap = isinstance(sums, AUCPairs) and sums.hinge
        return "matching" if n > _MATCHING_FROM[kind] and not cheap else "all-pairs", n
    if batching not in ("all-pairs", "matching"):
        raise InvalidParameterError(
            f"batching must be 'auto', 'all-pairs', 'matching' or 'sampled'; found {batching!r}."
        )
    return batching, n


def plan_gradient(
    sums: PairSums | RecordSums,
    shape: tuple[int, ...],
    epsilon: float,
    delta: float,
    *,
    path_length: float,
    share: float = 1.0,
    batching: Batching | Literal["auto"] = "auto",
    batch_size: int | None = None,
    steps: int | None = None,
    rate: float | None = None,
    other: DpEvent | None = None,
    hardened: bool = False,
) -> GradientPlan:
    """Fix steps, rate and noise by the rules of mechanisms.md 7.1.

    Parameters
    ----------
    sums : PairSums or RecordSums
        Only its public bounds and n are read.
    shape : tuple of int
        Shape of the parameter; p is its size.
    epsilon, delta : float
        Target for the run together with ``other``.
    path_length : float
        D of the rate rule η = D/√(T(G² + pσ²)).
    share : float, default=1
        Share of μ² left for this run (unsampled runs), the rest being spent by ``other``.
    batching : str, default="auto"
        ``auto``: all pairs, or matchings above 10,000 records (logistic AUC) or 2,000 (metrics).
    batch_size : int, optional
        Size of the secret sample; implies ``sampled``.
    steps : int, optional
        T; default G²μ²/(pΔ²), where noise and signal balance, cut to 10..200 (200 for secret samples), or to 10..400 for
        single records.
    rate : float, optional
        η.
    other : DpEvent, optional
        Whatever else the budget pays for; composed exactly.
    hardened : bool, default=False
        Draw exact noise on a grid at every step (mechanisms.md 2.2). Not for secret samples: what they gain is known
        for continuous noise.
    """
    n, p = sums.n, int(np.prod(shape))
    if n < 4:
        raise InvalidParameterError(
            f"private pairwise learning needs at least 4 records; found n_samples = {n}. Collect more."
        )
    batching, batch = _batches(sums, batching, batch_size)
    sensitivity = _mean_sensitivity(sums.pair_change, batch, batching)
    mu = release_mu(epsilon, delta, hardened=hardened) * math.sqrt(share)
    if steps is None:
        balance = (sums.pair_bound * mu / sensitivity) ** 2 / p
        most = 400.0 if batching == "records" else 200.0
        steps = 200 if batching == "sampled" else int(min(most, max(10.0, balance)))
    if steps < 1:
        raise InvalidParameterError(f"steps must be at least 1; found {steps!r}.")
    if batching == "sampled" and hardened:
        raise InvalidParameterError(
            "secret samples are accounted for continuous noise only; found hardened=True with batch_size. "
            "Leave one of them out."
        )
    if batching == "sampled" and math.isfinite(mu):
        extra = [other] if other is not None else []
        ratio = calibrate(
            lambda z: compose([sampled_event(z, n, batch, steps), *extra]),
            epsilon,
            delta,
            Adjacency.REPLACE_ONE,
        )
        noise = GaussianPlan(sensitivity, ratio * sensitivity)
        event = sampled_event(noise.sigma / noise.sensitivity, n, batch, steps)
    else:
        noise = plan_gaussian(sensitivity, mu / math.sqrt(steps), p, hardened=hardened)
        event = noise.event(steps)
    if rate is None:
        rate = path_length / math.sqrt(steps * (sums.pair_bound**2 + p * noise.sigma**2))
    return GradientPlan(n, tuple(shape), batching, batch, int(steps), float(rate), noise, event)


def mean_gradient(
    sums: PairSums | RecordSums, w: Array, plan: GradientPlan, randomness: Randomness
) -> Array:
    """Return the mean gradient of one step, before noise; its sensitivity is ``plan.sensitivity``."""
    if isinstance(sums, RecordSums):
        return sums.all_records(w) / plan.n
    if plan.batching == "matching":
        return sums.over(w, random_matching(plan.n, randomness)) / (plan.n // 2)
    if plan.batching == "sampled" and plan.batch < plan.n:
        slots = randomness.permutation(plan.n)[: plan.batch]
        return sums.within(w, slots) / (plan.batch * (plan.batch - 1) / 2)
    # The public number of all pairs, not n₊n₋: class counts are private (mechanisms.md 7.1).
    return sums.all_pairs(w) / (plan.n * (plan.n - 1) / 2)


def noisy_descent(
    sums: PairSums | RecordSums,
    plan: GradientPlan,
    domain: Domain,
    start: Array,
    randomness: Randomness,
    keep: list[Any] | None = None,
) -> Array:
    """Run the plan: w ← Π[w − η(g + N(0, σ²I))], and return the mean of the iterates.

    Every iterate is covered by ``plan.event``; which of them are averaged is post-processing.

    Parameters
    ----------
    sums : PairSums or RecordSums
    plan : GradientPlan
    domain : Domain
        Π.
    start : array of ``plan.shape``
        w₀, independent of the data.
    randomness : Randomness
        Of matchings, samples and noise.
    keep : list, optional
        Receives a copy of every iterate, for tests and plots.
    """
    if start.shape != plan.shape:
        raise InvalidParameterError(
            f"the start has shape {start.shape}; the plan is for {plan.shape}."
        )
    w = np.array(start, dtype=np.float64)
    total = np.zeros_like(w)
    symmetric = isinstance(sums, MetricPairs) and sums.parameter == "matrix"
    for _ in range(plan.steps):
        gradient = mean_gradient(sums, w, plan, randomness)
        if plan.sigma > 0:
            gradient = plan.noise.release(gradient, randomness)
            if symmetric:
                # Symmetrising after a full Gaussian matrix is post-processing and halves the dimensions
                # (mechanisms.md 5.2).
                gradient = (gradient + gradient.T) / 2.0
        w = domain.project(w - plan.rate * gradient)
        total += w
        if keep is not None:
            keep.append(w.copy())
    return total / plan.steps
