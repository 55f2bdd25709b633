"""The learner ``Statistics``: a ranking from one Gaussian release of class moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.algorithms.coordinates import CoordinatePlan, Ranking, plan_coordinates
from pairwise.algorithms.moments import Moments, plan_moments, release_moments
from pairwise.algorithms.options import Statistics
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.noise.release import GaussianPlan

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StatisticsPlan(FitPlan):
    """The release of coordinates, and of class moments in them."""

    coordinates: CoordinatePlan
    moments: GaussianPlan

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the ranking that the moments give."""
        found = self.coordinates.release(records, randomness)
        codes = records.positive.astype(np.int64)
        moments = release_moments(found.of(records.rows), codes, 2, self.moments, randomness)
        return Ranking(found.pull_back(auc_direction(moments)), found)


def plan_statistics(options: Statistics, public: PublicTask) -> StatisticsPlan:
    """Return the plan of releasing coordinates, and class moments in them."""
    coordinates = plan_coordinates(public, options.centre_share)
    moments = plan_moments(coordinates.left, public.d, 2)
    return StatisticsPlan(
        coordinates=coordinates,
        moments=moments,
        event=compose([*coordinates.events(), moments.event()]),
        sensitivity=moments.sensitivity,
        terms=public.n,
        mechanism=(
            "Gaussian release of class sums, counts and second moment"
            f"{coordinates.description}; square-loss AUC from it"
        ),
        proof=f"head of pairwise.algorithms.moments{coordinates.proof}",
    )


def auc_direction(moments: Moments) -> Array:
    """Return the minimiser of the square-loss AUC under a pooled covariance, of norm 1, shape (d,).

    Σ (1 − w·(x₊ − x₋))² over pairs is minimised along (Σ₊ + Σ₋ + mmᵀ)⁻¹m, m the difference of the class means, which has the
    direction of S_w⁻¹m when the classes share S_w. S_w is regularised by the level of its noise.
    """
    means = moments.means
    m = means[1] - means[0]
    ridge = math.sqrt(len(m)) * moments.noise[2] / moments.n
    w = np.linalg.solve(moments.within() + ridge * np.eye(len(m)), m)
    norm = np.linalg.norm(w)
    return np.asarray(w / norm if norm > 0 else w)
