"""Noisy gradient descent on pairs or on single records: the learners ``Gradient`` and ``Pointwise``.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.algorithms.auto import default_radius, default_scale_share, default_steps
from pairwise.algorithms.coordinates import CoordinatePlan, Ranking, plan_coordinates
from pairwise.algorithms.options import Gradient, Pointwise
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import project_to_ball
from pairwise.pairs.losses import AUCPairs, PairBounds

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]
MeanGradient = Callable[[Array], Array]

# From here on a random matching per step replaces the sum over all pairs of the logistic loss.
_MATCHING_FROM = 10_000

_CUT, _INTERCEPT = 0.5, 0.3  # of residuals, and β
# No gradient of a single record is longer.
LONGEST_OF_RECORDS = _CUT * math.hypot(1.0, _INTERCEPT)


class RecordGradients:
    """Gradients of single records of norm at most 1 in (w, intercept), shape (d + 1,)."""

    def __init__(self, z: Array, positive: NDArray[np.bool_]) -> None:
        self.X = np.hstack((z, np.full((len(z), 1), _INTERCEPT)))
        self.labels = np.where(positive, 0.5, -0.5)

    def mean(self, w: Array) -> Array:
        """Return the mean of all gradients, shape of ``w``."""
        residuals = np.clip(self.X @ w - self.labels, -_CUT, _CUT)
        return np.asarray(residuals @ self.X / len(self.X))


class PairGradients:
    """Gradients of pairs of records of norm at most 1 in w, shape (d,)."""

    def __init__(
        self, z: Array, positive: NDArray[np.bool_], loss: str, randomness: Randomness
    ) -> None:
        self._pairs, self._randomness = AUCPairs(z, positive, loss), randomness

    def mean(self, w: Array) -> Array:
        """Return the mean over all pairs, or over a matching that is drawn for this step."""
        pairs, n = self._pairs, self._pairs.n
        if by_matching(pairs.loss, n):
            return pairs.over(w, random_matching(n, self._randomness)) / (n // 2)
        # The public number of all pairs, not n₊n₋: class counts are private.
        return pairs.all_pairs(w) / (n * (n - 1) / 2)


def by_matching(loss: str, n: int) -> bool:
    """Whether a step takes a random matching of the records, and not all pairs."""
    return loss == "logistic" and n > _MATCHING_FROM


@dataclass(frozen=True)
class DescentPlan:
    """Everything that the loop needs besides the data; made of public numbers alone."""

    steps: int
    rate: float
    radius: float  # of the ball that the parameter is kept in
    noise: GaussianPlan  # of the mean gradient of one step


def plan_descent(
    *,
    longest: float,
    sensitivity: float,
    dimension: int,
    mu: float,
    radius: float,
    steps: int | None,
    most_steps: int = 200,
) -> DescentPlan:
    """Fix steps, rate and noise at a cost of ``mu``.

    No gradient of a term is longer than ``longest``; ``sensitivity`` is that of the mean gradient of one step.
    """
    if steps is None:
        steps = default_steps((longest * mu / sensitivity) ** 2 / dimension, most_steps)
    noise = plan_gaussian(sensitivity, mu / math.sqrt(steps), dimension)
    # Twice the diameter: real gradients are well below their bound.
    path = 4.0 * radius
    rate = path / math.sqrt(steps * (longest**2 + dimension * noise.sigma**2))
    return DescentPlan(int(steps), rate, radius, noise)


@dataclass(frozen=True, kw_only=True)
class RankingDescent(FitPlan):
    """The release of coordinates, and a descent in them."""

    coordinates: CoordinatePlan
    descent: DescentPlan
    loss: str | None  # of pairs; None for a descent on single records

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the ranking that the descent ends at."""
        found = self.coordinates.release(records, randomness)
        z = found.of(records.rows)
        if self.loss is None:
            mean_gradient = RecordGradients(z, records.positive).mean
        else:
            mean_gradient = PairGradients(z, records.positive, self.loss, randomness).mean
        w = noisy_descent(mean_gradient, self.descent, randomness)
        # The intercept of single records is no part of a ranking.
        return Ranking(found.pull_back(w[: z.shape[1]]), found)


def plan_pointwise(options: Pointwise, public: PublicTask) -> FitPlan:
    """Return the plan of a descent on single records."""
    n, d = public.n, public.d
    scale_share = options.scale_share
    if scale_share is None:
        scale_share = default_scale_share(public.mu, n, d)
    coordinates = plan_coordinates(public, options.centre_share, scale_share)
    left = coordinates.left
    descent = plan_descent(
        longest=LONGEST_OF_RECORDS,
        sensitivity=2.0 * LONGEST_OF_RECORDS / n,
        dimension=d + 1,
        mu=left,
        radius=_radius(options, public, default_radius(left, n, d, 30.0)),
        steps=options.steps,
        most_steps=400,
    )
    return _ranking_descent("pointwise", "records", coordinates, descent, n, None)


def plan_gradient(options: Gradient, public: PublicTask) -> FitPlan:
    """Return the plan of a descent on pairs."""
    n, d = public.n, public.d
    coordinates = plan_coordinates(public, options.centre_share)
    left = coordinates.left
    change = PairBounds(n, d, options.loss).change
    matched = by_matching(options.loss, n)
    descent = plan_descent(
        longest=change,
        sensitivity=change / (n // 2) if matched else 2.0 * change / n,
        dimension=d,
        mu=left,
        radius=_radius(options, public, default_radius(left, n, d)),
        steps=options.steps,
    )
    what, batching = f"pairwise ({options.loss})", "matching" if matched else "all pairs"
    return _ranking_descent(what, batching, coordinates, descent, n, options.loss)


def _radius(options: Pointwise | Gradient, public: PublicTask, default: float) -> float:
    """Return the radius for records of norm 1."""
    return default if options.radius is None else options.radius * public.data_norm


def _ranking_descent(
    what: str,
    batching: str,
    coordinates: CoordinatePlan,
    descent: DescentPlan,
    n: int,
    loss: str | None,
) -> RankingDescent:
    return RankingDescent(
        coordinates=coordinates,
        descent=descent,
        loss=loss,
        event=compose([*coordinates.events(), descent.noise.event(descent.steps)]),
        sensitivity=descent.noise.sensitivity,
        terms=n,
        mechanism=(
            f"noisy {what} gradient descent ({batching}, {descent.steps} steps{coordinates.description})"
        ),
        proof=f"head of pairwise.algorithms.noisy_descent{coordinates.proof}",
    )


def random_matching(n: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a uniformly random perfect matching of the slots 0..n−1, shape (n // 2, 2); one slot stays out for odd n.

    Independent of all data, so it may be published.
    """
    half = n // 2
    return randomness.permutation(n)[: 2 * half].reshape(half, 2)


def noisy_descent(mean_gradient: MeanGradient, plan: DescentPlan, randomness: Randomness) -> Array:
    """Run w ← Π[w − η(g + noise)] from 0, and return the mean of the iterates, all of which are paid for."""
    noise = plan.noise
    w = np.zeros(noise.dimension)
    total = np.zeros_like(w)
    noise_steps = noise.draw_steps(plan.steps, randomness) if noise.sigma > 0 else None
    for step in range(plan.steps):
        gradient = mean_gradient(w)
        if noise_steps is not None:
            gradient = noise.release(gradient, randomness, noise_steps[step])
        w = project_to_ball(w - plan.rate * gradient, plan.radius)
        total += w
    return np.asarray(total / plan.steps)
