"""Pairwise GIGA (HUAI, for strongly convex losses) with certified sensitivities: offline average, and online releases.

The recursion. Let one pair's gradient move by at most D when one of its records is replaced. With active steps w_t =
Π[w_{t−1} − η_t(∇L̂_t(w_{t−1}) + αw_{t−1})] a replaced record j moves w_j by at most η_j D, and from then on

    Δ_t <= c_t Δ_{t−1} + η_t D/(t−1),   c_t = max(|1 − η_t α|, |1 − η_t(α + L(t−2)/(t−1))|),

capped at the diameter of the domain. It needs a convex, L-smooth loss whose gradients are not clipped one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.streams import PairStream, check_horizon, mean_with_earlier
from pairwise.noise.release import GaussianPlan, exact_gaussian
from pairwise.pairs.clipping import project_to_ball

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.losses import AUCPairs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Schedule:
    """Public steps of a run on n records.

    Attributes
    ----------
    rates : (n + 1,) float64 array
        η_t at index t; 0 where step t is inactive.
    alpha : float
        Strength of the regulariser α/2 ‖w‖².
    first : int
        The first active step.
    """

    rates: Array
    alpha: float
    first: int

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.rates) - 1

    @property
    def active(self) -> int:
        """Number of active steps."""
        return self.n - self.first + 1


def schedule(n: int, smoothness: float, alpha: float, *, burn_in: bool = False) -> Schedule:
    """Return the steps η_t = min(2/(αt), 2/(L + 2α)).

    Parameters
    ----------
    n : int
        Number of records, or the horizon of a stream.
    smoothness : float
        L of the data part of the loss.
    alpha : float
        Regulariser, > 0.
    burn_in : bool, default=False
        Begin where the published steps contract, after max(⌈1 + (L + α)/α⌉, 7) records, or a quarter of them if that is
        less.
    """
    check_horizon(n)
    waits = min(max(math.ceil(1.0 + (smoothness + alpha) / alpha), 7), n // 4) if burn_in else 0
    first = max(waits + 1, 2)
    t = np.maximum(np.arange(n + 1, dtype=np.float64), 1.0)
    rates = np.minimum(2.0 / (alpha * t), 2.0 / (smoothness + 2.0 * alpha))
    rates[:first] = 0.0
    return Schedule(rates, float(alpha), first)


@dataclass(frozen=True)
class Sensitivity:
    """Certified bounds on how far a replaced record moves the iterates.

    Attributes
    ----------
    per_step : (n + 1,) float64 array
        max_j Δ_t at index t.
    average : float
        max_j of the mean of Δ_t over the active steps.
    joint : float
        max_j √Σ_t (Δ_t/max_j Δ_t)²: the cost of releasing every iterate with noise in proportion to ``per_step``.
    """

    per_step: Array
    average: float
    joint: float


def _run_recursion(
    steps: Schedule,
    pair_change: float,
    smoothness: float,
    diameter: float,
    visit: Callable[[int, Array], None],
) -> None:
    """Call ``visit(t, Δ)`` for every active t, Δ of shape (t,) over the records j = 1..t."""
    moved = np.zeros(steps.n)
    for t in range(steps.first, steps.n + 1):
        rate = float(steps.rates[t])
        contraction = max(
            abs(1.0 - rate * steps.alpha),
            abs(1.0 - rate * (steps.alpha + (t - 2) / (t - 1) * smoothness)),
        )
        old = moved[: t - 1]
        old *= contraction
        old += rate * pair_change / (t - 1)
        moved[t - 1] = rate * pair_change
        np.minimum(moved[:t], diameter, out=moved[:t])
        visit(t, moved[:t])


def certified_sensitivity(
    steps: Schedule, pair_change: float, smoothness: float, diameter: float = math.inf
) -> Sensitivity:
    """Run the recursion for all records at once, twice, O(n) numbers per step.

    Parameters
    ----------
    steps : Schedule
    pair_change : float
        D.
    smoothness : float
        L of the data part.
    diameter : float, default=inf
        Of the domain.
    """
    per_step, total, squares = np.zeros(steps.n + 1), np.zeros(steps.n), np.zeros(steps.n)

    def sum_up(t: int, moved: Array) -> None:
        per_step[t] = moved.max()
        total[:t] += moved

    def square(t: int, moved: Array) -> None:
        squares[:t] += (moved / per_step[t]) ** 2

    for visit in (sum_up, square):
        _run_recursion(steps, pair_change, smoothness, diameter, visit)
    average = float(total.max()) / steps.active
    return Sensitivity(per_step, average, math.sqrt(float(squares.max())))


def _step(sums: AUCPairs, w: Array, t: int, steps: Schedule, radius: float) -> Array:
    """Return w_t from w_{t−1} and the t−1 pairs of record t (1-based, in slot order) with the earlier ones."""
    gradient = mean_with_earlier(sums, w, t) + steps.alpha * w
    return project_to_ball(w - steps.rates[t] * gradient, radius)


def offline_giga(sums: AUCPairs, steps: Schedule, radius: float) -> Array:
    """Return the average over the active iterates, before noise; records in public slot order."""
    w = np.zeros(sums.dimension)
    total = np.zeros_like(w)
    for t in range(steps.first, steps.n + 1):
        w = _step(sums, w, t, steps, radius)
        total += w
    return np.asarray(total / steps.active)


@dataclass(frozen=True)
class OnlinePlan:
    """Noise of a stream whose every iterate is released, fixed before its first record.

    Attributes
    ----------
    steps : Schedule
    radius : float
    sensitivities : (n + 1,) float64 array
        Certified max_j Δ_t.
    scale : float
        σ_t is so many times the sensitivity of step t; 0 for no noise.
    event : DpEvent
        The whole stream, all of the horizon.
    """

    steps: Schedule
    radius: float
    sensitivities: Array
    scale: float
    event: DpEvent

    proof = "errata H-1, H-4 (certified recursion, head of pairwise.algorithms.giga)"

    @property
    def sensitivity(self) -> float:
        """The largest certified movement of any iterate."""
        return float(self.sensitivities.max())

    @property
    def description(self) -> str:
        """What the statement says of the stream."""
        return (
            f"every iterate released, alpha = {self.steps.alpha:.3g}, first step {self.steps.first}, "
            f"horizon {self.steps.n}"
        )

    def open(
        self, make_sums: Callable[..., AUCPairs], d: int, randomness: Randomness
    ) -> PairStream:
        """Return the stream of records with ``d`` features."""
        return _OnlineGiga(make_sums, self, d, randomness)

    def noise(self, t: int, size: int) -> GaussianPlan:
        """Return the release of the iterate of step t."""
        sensitivity = float(self.sensitivities[t])
        if self.scale == 0:
            return GaussianPlan(sensitivity, 0.0, size)
        return exact_gaussian(sensitivity, sensitivity * self.scale, size)


def plan_online(
    steps: Schedule, pair_change: float, smoothness: float, radius: float, mu: float
) -> OnlinePlan:
    """Return σ_t = max_j Δ_t · c with the smallest c for which the whole stream costs ``mu``.

    The internal iterate is noiseless, so the stream is one Gaussian release of (w_t)_t; record j costs Σ_t (Δ_t/σ_t)².
    The grid of step t is at most 2^-10 Δ_t/√p, so rounding moves step t by at most 2^-10 Δ_t more. By the triangle
    inequality over steps the whole costs at most (joint + 2^-10 √active)/c, and ρ = ``mu``²/2 pays for that.
    """
    from pairwise.accounting.events import dp_event

    bound = certified_sensitivity(steps, pair_change, smoothness, 2.0 * radius)
    if math.isinf(mu):
        return OnlinePlan(steps, radius, bound.per_step, 0.0, dp_event.NonPrivateDpEvent())
    scale = (bound.joint + 2.0**-10 * math.sqrt(steps.active)) / mu * (1.0 + 1e-12)
    return OnlinePlan(steps, radius, bound.per_step, scale, dp_event.ZCDpEvent(mu * mu / 2.0))


class _OnlineGiga(PairStream):
    """One noiseless iterate inside, released with noise after each record."""

    def __init__(
        self, make_sums: Callable[..., AUCPairs], plan: OnlinePlan, d: int, randomness: Randomness
    ) -> None:
        super().__init__(make_sums, plan.steps.n, d)
        self._plan, self._randomness, self._w = plan, randomness, np.zeros(d)

    def _advance(self, sums: AUCPairs, t: int) -> None:
        plan = self._plan
        if t >= plan.steps.first:
            self._w = _step(sums, self._w, t, plan.steps, plan.radius)
            noisy = plan.noise(t, len(self._w)).release(self._w, self._randomness)
            self.released = project_to_ball(noisy, plan.radius)
