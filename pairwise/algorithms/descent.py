"""Noisy gradient descent on pairs or on single records, with sensitivities that hold for every pair of neighbouring tables.

*Pairs.* Replacing one of n records alters n − 1 of the n(n − 1)/2 pairs, or one pair of a matching. If one pair's
gradient moves by at most D, the mean moves by at most 2D/n, or D/⌊n/2⌋ (``pairs.losses`` proves D = G for the AUC losses).

*Single records.* A record z with ‖z‖ <= 1 and label y in {−½, ½} enters as φ = (z, β) with a small public constant β,
which takes up what the released centre missed. Its gradient is r φ, with the residual r = w·φ − y of the square loss cut
to [−½, ½]. A cut residual still grows with the score, so the loss stays convex. Replacing one of n records moves the
mean gradient by ‖r φ − r' φ'‖/n <= (|r| ‖φ‖ + |r'| ‖φ'‖)/n <= √(1 + β²)/n, which two labels of one record attain at the
score 0. At w ≈ 0 the mean is p(1 − p) times the difference of the class means, half of what the mean over pairs holds,
whose sensitivity is four times as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.auto import default_steps
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import clip_records, project_to_ball
from pairwise.pairs.losses import AUCPairs, PairBounds

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]
Batching = Literal["all pairs", "matching", "records"]

# From here on a random matching per step replaces the sum over all pairs of the logistic loss.
_MATCHING_FROM = 10_000

_CUT, _INTERCEPT = 0.5, 0.3  # of residuals, and β


def record_bounds(n: int, d: int) -> PairBounds:
    """Return the bounds of ``RecordSums``: half of what a replacement moves the sum by."""
    return PairBounds(n, d + 1, "records", _CUT * math.hypot(1.0, _INTERCEPT), None)


class RecordSums:
    """Gradients of single records in (w, intercept), shape (d + 1,).

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to norm 1.
    positive : (n,) bool array
    """

    def __init__(self, X: Array, positive: NDArray[np.bool_]) -> None:
        z = clip_records(np.ascontiguousarray(X, dtype=np.float64), 1.0)
        self.X = np.hstack((z, np.full((len(z), 1), _INTERCEPT)))
        self.n, self.dimension = self.X.shape
        self.labels = np.where(positive, 0.5, -0.5)

    def all_records(self, w: Array) -> Array:
        """Return the sum of all gradients, shape of ``w``."""
        residuals = np.clip(self.X @ w - self.labels, -_CUT, _CUT)
        return np.asarray(residuals @ self.X)


@dataclass(frozen=True)
class DescentPlan:
    """Everything that the loop needs besides the data; made of public numbers alone.

    Attributes
    ----------
    n : int
        Number of records.
    batching : str
        Which gradients a step sums.
    steps : int
    rate : float
    radius : float
        Of the ball that the parameter is kept in.
    noise : GaussianPlan
        The release of one step, whose sensitivity is that of one mean gradient.
    event : DpEvent
        The whole run.
    """

    n: int
    batching: Batching
    steps: int
    rate: float
    radius: float
    noise: GaussianPlan
    event: DpEvent


def plan_descent(
    bounds: PairBounds, mu: float, radius: float, *, steps: int | None = None
) -> DescentPlan:
    """Fix steps, rate and noise from public numbers.

    Parameters
    ----------
    bounds : PairBounds
    mu : float
        What the run may cost.
    radius : float
    steps : int, optional
        Default: ``auto.default_steps``.
    """
    n, p = bounds.n, bounds.dimension
    batching: Batching = "records"
    if bounds.loss != "records":
        many = bounds.loss == "logistic" and n > _MATCHING_FROM
        batching = "matching" if many else "all pairs"
    sensitivity = 2.0 * bounds.change / n
    if batching == "matching":
        sensitivity = bounds.change / (n // 2)
    if steps is None:
        balance = (bounds.change * mu / sensitivity) ** 2 / p
        steps = default_steps(balance, records=batching == "records")
    noise = plan_gaussian(sensitivity, mu / math.sqrt(steps), p)
    # Twice the diameter: real gradients are well below their bound.
    path = 4.0 * radius
    rate = path / math.sqrt(steps * (bounds.change**2 + p * noise.sigma**2))
    return DescentPlan(n, batching, int(steps), rate, radius, noise, noise.event(steps))


def random_matching(n: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a uniformly random perfect matching of the slots 0..n−1, shape (n // 2, 2); one slot stays out for odd n.

    Independent of all data, so it may be published.
    """
    half = n // 2
    return randomness.permutation(n)[: 2 * half].reshape(half, 2)


def _mean_gradient(
    sums: AUCPairs | RecordSums, w: Array, plan: DescentPlan, randomness: Randomness
) -> Array:
    """Return the mean gradient of one step, before noise."""
    if isinstance(sums, RecordSums):
        return sums.all_records(w) / plan.n
    if plan.batching == "matching":
        return sums.over(w, random_matching(plan.n, randomness)) / (plan.n // 2)
    # The public number of all pairs, not n₊n₋: class counts are private.
    return sums.all_pairs(w) / (plan.n * (plan.n - 1) / 2)


def noisy_descent(sums: AUCPairs | RecordSums, plan: DescentPlan, randomness: Randomness) -> Array:
    """Run w ← Π[w − η(g + noise)] from 0, and return the mean of the iterates, all of which the plan's event covers."""
    w = np.zeros(sums.dimension)
    total = np.zeros_like(w)
    noise = plan.noise
    ahead = noise.ahead(plan.steps, randomness) if noise.sigma > 0 else None
    for step in range(plan.steps):
        gradient = _mean_gradient(sums, w, plan, randomness)
        if ahead is not None:
            gradient = noise.release(gradient, randomness, ahead[step])
        w = project_to_ball(w - plan.rate * gradient, plan.radius)
        total += w
    return np.asarray(total / plan.steps)
