"""Pairwise GIGA (HUAI, for strongly convex losses) with certified sensitivities: offline average, and online releases.

The recursion. Let one pair's gradient move by at most D when one of its records is replaced. With active steps w_t =
Π[w_{t−1} − η_t(∇L̂_t(w_{t−1}) + αw_{t−1})] a replaced record j moves w_j by at most η_j D, and from then on

    Δ_t <= c_t Δ_{t−1} + η_t D/(t−1),   c_t = max(|1 − η_t α|, |1 − η_t(α + L(t−2)/(t−1))|),

capped at the diameter of the domain. It needs a convex, L-smooth loss whose gradients are not clipped one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import dp_event
from pairwise.algorithms.auto import radius_in_records
from pairwise.algorithms.coordinates import Ranking, around_origin
from pairwise.algorithms.options import OffPair, OnPair
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.algorithms.streams import PairStream, StreamPlan, check_horizon, mean_with_earlier
from pairwise.noise.release import GaussianPlan, exact_gaussian, plan_gaussian
from pairwise.pairs.clipping import project_to_ball
from pairwise.pairs.losses import AUCPairs, PairBounds

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Schedule:
    """Public steps of a run on n records."""

    rates: Array  # η_t at index t of n + 1; 0 where step t is inactive
    alpha: float  # of the regulariser α/2 ‖w‖²
    first: int  # active step

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.rates) - 1

    @property
    def active(self) -> int:
        """Number of active steps."""
        return self.n - self.first + 1


def schedule(n: int, smoothness: float, alpha: float, *, burn_in: bool = False) -> Schedule:
    """Return the steps η_t = min(2/(αt), 2/(L + 2α)), L of the data part of the loss.

    With ``burn_in`` they begin where the published steps contract, after max(⌈1 + (L + α)/α⌉, 7) records, or a quarter of
    them if that is less.
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
    """Certified bounds on how far a replaced record j moves the iterates."""

    per_step: Array  # max_j Δ_t at index t
    average: float  # max_j of the mean of Δ_t over the active steps
    joint: float  # max_j √Σ_t (Δ_t/max_j Δ_t)²: the cost of every iterate, with noise in proportion to per_step


def _movements(
    steps: Schedule, pair_change: float, smoothness: float, diameter: float
) -> Iterator[tuple[int, Array]]:
    """Yield every active t with Δ_t of the records 1..t, shape (t,)."""
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
        yield t, moved[:t]


def certified_sensitivity(
    steps: Schedule, pair_change: float, smoothness: float, diameter: float = math.inf
) -> Sensitivity:
    """Run the recursion for all records at once, twice, with D = ``pair_change``, L and the diameter of the domain."""
    per_step, total, squares = np.zeros(steps.n + 1), np.zeros(steps.n), np.zeros(steps.n)
    for t, moved in _movements(steps, pair_change, smoothness, diameter):
        per_step[t] = moved.max()
        total[:t] += moved
    for t, moved in _movements(steps, pair_change, smoothness, diameter):
        squares[:t] += (moved / per_step[t]) ** 2
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


@dataclass(frozen=True, kw_only=True)
class OffPairPlan(FitPlan):
    """Steps on all records, with noise on their average alone."""

    steps: Schedule
    radius: float
    data_norm: float
    noise: GaussianPlan

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the noisy average of the iterates as a ranking."""
        pairs = AUCPairs(records.rows, records.positive)
        average = offline_giga(pairs, self.steps, self.radius)
        w = project_to_ball(self.noise.release(average, randomness), self.radius)
        return Ranking(w, around_origin(pairs.dimension, self.data_norm))


def plan_off_pair(options: OffPair, public: PublicTask) -> OffPairPlan:
    """Return the plan of the average with noise on it alone."""
    mu, radius = public.left(), radius_in_records(options.radius, public)
    bounds = PairBounds(public.n, public.d, data_norm=public.data_norm)
    steps = schedule(public.n, bounds.smoothness, options.alpha)
    diameter = 2.0 * radius
    bound = certified_sensitivity(steps, bounds.change, bounds.smoothness, diameter).average
    noise = plan_gaussian(bound, mu, public.d)
    return OffPairPlan(
        steps=steps,
        radius=radius,
        data_norm=public.data_norm,
        noise=noise,
        event=noise.event(),
        sensitivity=bound,
        terms=public.n,
        mechanism=f"pairwise GIGA with output perturbation ({options.name}, alpha = {steps.alpha:.3g})",
        proof="certified recursion, head of pairwise.algorithms.giga",
    )


@dataclass(frozen=True, kw_only=True)
class OnlinePlan(StreamPlan):
    """Noise of a stream whose every iterate is released, with the largest certified movement of any of them."""

    steps: Schedule
    sensitivities: Array  # certified max_j Δ_t at index t
    scale: float  # σ_t is that many times the sensitivity of step t; 0 for no noise

    def open(self, randomness: Randomness) -> PairStream:
        """Return the stream, before its first record."""
        return _OnlineGiga(self, randomness)

    def noise(self, t: int, size: int) -> GaussianPlan:
        """Return the release of the iterate of step t."""
        sensitivity = float(self.sensitivities[t])
        if self.scale == 0:
            return GaussianPlan(sensitivity, 0.0, size)
        return exact_gaussian(sensitivity, sensitivity * self.scale, size)


def plan_on_pair(options: OnPair, public: PublicTask) -> OnlinePlan:
    """Return the noise of a stream whose every iterate is released."""
    bounds = PairBounds(public.n, public.d, data_norm=public.data_norm)
    steps = schedule(public.n, bounds.smoothness, options.alpha, burn_in=True)
    radius = radius_in_records(options.radius, public)
    return plan_online(steps, bounds, radius, public.left())


def plan_online(steps: Schedule, bounds: PairBounds, radius: float, mu: float) -> OnlinePlan:
    """Return σ_t = max_j Δ_t · c with the smallest c for which the whole stream costs ``mu``.

    The internal iterate is noiseless, so the stream is one Gaussian release of (w_t)_t; record j costs Σ_t (Δ_t/σ_t)².
    The grid of step t is at most 2^-10 Δ_t/√p, so rounding moves step t by at most 2^-10 Δ_t more. By the triangle
    inequality over steps the whole costs at most (joint + 2^-10 √active)/c, and ρ = ``mu``²/2 pays for that.
    """
    moved = certified_sensitivity(steps, bounds.change, bounds.smoothness, 2.0 * radius)
    scale, event = 0.0, dp_event.NonPrivateDpEvent()
    if math.isfinite(mu):
        scale = (moved.joint + 2.0**-10 * math.sqrt(steps.active)) / mu * (1.0 + 1e-12)
        event = dp_event.ZCDpEvent(mu * mu / 2.0)
    return OnlinePlan(
        bounds=bounds,
        radius=radius,
        event=event,
        sensitivity=float(moved.per_step.max()),
        terms=bounds.n,
        mechanism=(
            f"onpairstrc, every iterate released, alpha = {steps.alpha:.3g}, first step {steps.first}, "
            f"horizon {steps.n}"
        ),
        proof="errata H-1, H-4 (certified recursion, head of pairwise.algorithms.giga)",
        steps=steps,
        sensitivities=moved.per_step,
        scale=scale,
    )


class _OnlineGiga(PairStream):
    """One noiseless iterate inside, released with noise after each record."""

    def __init__(self, plan: OnlinePlan, randomness: Randomness) -> None:
        super().__init__(plan)
        self._plan, self._randomness, self._w = plan, randomness, np.zeros(plan.bounds.d)

    def _advance(self, pairs: AUCPairs, t: int) -> None:
        plan = self._plan
        if t >= plan.steps.first:
            self._w = _step(pairs, self._w, t, plan.steps, plan.radius)
            noisy = plan.noise(t, len(self._w)).release(self._w, self._randomness)
            self.released = project_to_ball(noisy, plan.radius)
