"""Private coordinates: a released centre, a released scale, and features scaled by a released second moment.

Sensitivities, n public, replace-one, records clipped to ‖x‖ <= R.

* The mean record moves by ‖x − x'‖/n <= 2R/n, which x' = −x attains.
* The distance to the released centre is cut to [0, 2R], so its mean moves by at most 2R/n. Beside it, a share of w·2R is
  counted of records that were longer than 2R before clipping, which moves by at most w·2R/n. Both together move by at
  most √(1 + w²)·2R/n.
* The second moment is taken of z = (x − c)/s, clipped to norm 1, for the centre c and the scale s that are released
  already: ‖zzᵀ − z'z'ᵀ‖² = ‖z‖⁴ + ‖z'‖⁴ − 2(z·z')² <= 2, which two orthogonal unit vectors attain, so its mean moves by
  at most √2/n. As a vector, svec counts off-diagonal entries √2 times, so its norm is that of the matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.moments import svec, symmetric
from pairwise.algorithms.plan import ClippedRecords, PublicTask
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]

# Of the share spent on centring, what the mean gets; the rest is for the scale.
_CENTRE = 0.7
# w, the weight of the share of long records beside the mean distance.
_LONG = 0.3
# Records are clipped around the private centre to this share of their mean distance. The value is the best of three on
# synthetic tables; that records are centred at all was decided after a look at Pima, where it matters most.
_CLIP_AROUND = 0.7
# In scaled coordinates, to this share of the root of the mean squared norm. Between 0.6 and 1.1 it made no difference.
_CLIP_SCALED = 0.8
# What is added to every eigenvalue of the second moment, in units of √d times the noise of an entry. The best of four on
# tables of the KEEL collection (docs/results/ranking.md).
_FLOOR = 0.5


@dataclass(frozen=True)
class Coordinates:
    """A linear map that was released: z = B(x − c)/s, with what comes before B clipped to norm 1, and what comes after."""

    centre: Array  # c
    scale: float  # s
    basis: Array | None = None  # B; None for the identity
    mostly_long: bool = (
        False  # by a released share, more than half of the records were longer than 2R
    )

    def around(self, records: Array) -> Array:
        """Return (x − c)/s of records of norm at most R, clipped to norm 1."""
        return clip_records((records - self.centre) / self.scale, 1.0)

    def of(self, records: Array) -> Array:
        """Return z of records of norm at most R, clipped to norm 1."""
        z = self.around(records)
        return z if self.basis is None else clip_records(z @ self.basis.T, 1.0)

    def pull_back(self, w: Array) -> Array:
        """Return the direction in records of the direction ``w`` in z."""
        return (w if self.basis is None else w @ self.basis) / self.scale


@dataclass(frozen=True)
class Ranking:
    """A released linear ranking."""

    w: Array  # direction in records
    coordinates: Coordinates
    threshold: float | None = None  # subtracted from the score; None where nothing was paid for it

    def scores(self, records: Array) -> Array:
        """Return the scores of clipped records before the threshold is subtracted, shape (n,)."""
        scale, basis = self.coordinates.scale, self.coordinates.basis
        around = clip_records(records - self.coordinates.centre, scale)
        scores = np.asarray(around @ self.w)
        if basis is None:
            return scores
        # As it was learned: records that are long in the scaled features count by their direction.
        lengths = np.linalg.norm(around @ (basis.T / scale), axis=1)
        return np.asarray(scores / np.maximum(lengths, 1.0))


@dataclass(frozen=True)
class CoordinatePlan:
    """The releases that centre and scale a table. Without them records stay around the origin."""

    data_norm: float
    left: float  # what the learning in these coordinates may cost
    centre: GaussianPlan | None = None  # of the mean record
    spread: GaussianPlan | None = None  # of the mean distance to it and the share of long records
    moment: GaussianPlan | None = None  # of the second moment around it, where features are scaled

    def events(self) -> list[DpEvent]:
        """Return what the releases cost, one by one."""
        plans = (self.centre, self.spread, self.moment)
        return [plan.event() for plan in plans if plan is not None]

    @property
    def description(self) -> str:
        """What a statement says of the coordinates."""
        centred = ", centred privately" if self.centre else ""
        return centred + (", features scaled privately" if self.moment else "")

    @property
    def proof(self) -> str:
        """What a statement adds to the proof."""
        return "; head of pairwise.algorithms.coordinates" if self.centre else ""

    def release(self, records: ClippedRecords, randomness: Randomness) -> Coordinates:
        """Release the coordinates of a table."""
        R, x = self.data_norm, records.rows
        d = x.shape[1]
        if self.centre is None or self.spread is None:
            return around_origin(d, R)
        centre = clip_records(self.centre.release(x.mean(axis=0), randomness)[None, :], R)[0]
        distances = np.minimum(np.linalg.norm(x - centre, axis=1), 2.0 * R)
        weight = _LONG * 2.0 * R
        queries = np.array([distances.mean(), weight * records.long.mean()])
        mean_distance, weighted = map(float, self.spread.release(queries, randomness))
        long_share = weighted / weight
        # Two standard deviations of the noise of the share above one half.
        mostly_long = long_share - 2.0 * self.spread.sigma / weight > 0.5
        scale = scale_from(mean_distance, d * self.centre.sigma**2, R)
        centred = Coordinates(centre, scale, None, mostly_long)
        if self.moment is None:
            return centred
        z = centred.around(x)
        released = symmetric(self.moment.release(svec(z.T @ z / len(z)), randomness), d)
        return replace(centred, basis=scaling(released, self.moment.sigma))


def around_origin(d: int, data_norm: float) -> Coordinates:
    """Return the coordinates of which nothing is released."""
    return Coordinates(np.zeros(d), data_norm)


def scale_from(mean_distance: float, added: float, data_norm: float) -> float:
    """Return s for a noisy mean distance, whose square the noise of the centre lengthens by ``added``; post-processing."""
    square = max(mean_distance * abs(mean_distance) - added, 0.0)
    return min(data_norm, max(_CLIP_AROUND * math.sqrt(square), 0.05 * data_norm))


def scaling(second: Array, sigma: float) -> Array:
    """Return B = (A + λI)^-½/t for a noisy second moment A; post-processing.

    λ is what noise may make of an eigenvalue. ``sigma`` is the noise of a diagonal entry; off the diagonal it is √2 times
    smaller. Where features are not known to differ, all are scaled alike; where there is no noise they come out
    uncorrelated and of one variance. t is such that norms of 1 are usual.
    """
    d = len(second)
    values, vectors = np.linalg.eigh(second)
    positive = np.maximum(values, 0.0)
    floor = _FLOOR * sigma * math.sqrt(d) + 1e-9 * max(float(positive[-1]), 1e-9)
    roots = 1.0 / np.sqrt(positive + floor)
    # The mean squared norm, by the noisy A itself, whose noise has the mean 0.
    usual = float((values * roots**2).sum())
    largest = float((positive * roots**2).sum())
    length = _CLIP_SCALED * math.sqrt(max(usual, 0.1 * largest, 1e-9))
    return np.asarray((vectors * (roots / length)) @ vectors.T)


def plan_coordinates(
    public: PublicTask, centre_share: float, scale_share: float = 0.0
) -> CoordinatePlan:
    """Return the releases for two shares of μ².

    Without a share for the centre records stay around the origin, without one for the scaling features stay as they are.
    """
    n, d, mu, data_norm = public.n, public.d, public.mu, public.data_norm
    if centre_share == 0:
        return CoordinatePlan(data_norm, public.left())
    left = public.left(centre_share, scale_share)
    bound = 2.0 * data_norm / n
    around = mu * math.sqrt(centre_share)
    moment = None
    if scale_share > 0:
        cost = mu * math.sqrt(scale_share)
        moment = plan_gaussian(math.sqrt(2.0) / n, cost, d * (d + 1) // 2)
    return CoordinatePlan(
        data_norm,
        left,
        plan_gaussian(bound, around * math.sqrt(_CENTRE), d),
        plan_gaussian(bound * math.hypot(1.0, _LONG), around * math.sqrt(1.0 - _CENTRE), 2),
        moment,
    )
