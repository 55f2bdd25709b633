"""The threshold of a ranking: public candidates, and how many records each answers rightly.

Sensitivity of the threshold. Each record is answered rightly or wrongly at a threshold, whatever the others are: its score
is that of a released ranking, its threshold public. So replacing one of n records moves the number of right answers by at
most 1 at every threshold, which a record attains whose label changes. With k candidates, the one that the exponential
mechanism chooses at rate r has at most (ln k + t)/r right answers fewer than the best, but for a chance of e^-t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.algorithms.coordinates import Ranking
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.noise.release import ChoicePlan, plan_choice

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]

# Scores of records of many features crowd near 0, and thresholds with them: sinh of evenly spaced numbers in [-2, 2], over
# sinh(2). On synthetic tables 17, 33 and 65 of them, more crowded and less, came out alike.
_COUNT, _SPREAD = 65, 2.0


@dataclass(frozen=True, kw_only=True)
class ThresholdPlan(FitPlan):
    """A ranking, and then the choice of a threshold for it."""

    learner: FitPlan  # of the ranking
    choice: ChoicePlan  # of the threshold

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the ranking that the learner releases, with its threshold."""
        ranking: Ranking = self.learner.run(records, randomness)
        thresholds = candidates(float(np.linalg.norm(ranking.w)) * ranking.coordinates.scale)
        counts = right_answers(ranking.scores(records.rows), records.positive, thresholds)
        chosen = int(self.choice.release(counts, randomness))
        return replace(ranking, threshold=float(thresholds[chosen]))


def with_threshold(learner: FitPlan, public: PublicTask) -> ThresholdPlan:
    """Return the plan of a ranking followed by the choice of a threshold for what it learned."""
    share = public.threshold_share
    choice = plan_choice(1.0, public.mu * math.sqrt(share))
    return ThresholdPlan(
        learner=learner,
        choice=choice,
        event=compose([learner.event, choice.event()]),
        sensitivity=learner.sensitivity,
        terms=learner.terms,
        mechanism=f"{learner.mechanism}, threshold by the exponential mechanism for {share:g} of μ²",
        proof=f"{learner.proof}; heads of pairwise.algorithms.threshold and of ChoicePlan",
    )


def candidates(largest: float) -> Array:
    """Return thresholds in ascending order, shape (65,): the first lies below every score, the last above.

    ``largest`` bounds the absolute score: public once the ranking is, and 0 if that gives every record the score 0.
    """
    steps = np.sinh(np.linspace(-_SPREAD, _SPREAD, _COUNT)) / np.sinh(_SPREAD)
    steps[[0, -1]] = -2.0, 2.0
    return np.asarray((largest or 1.0) * steps)


def right_answers(scores: Array, positive: NDArray[np.bool_], thresholds: Array) -> Array:
    """Return how many records are answered rightly at each threshold, where above it is positive, shape (k,)."""
    above = scores[:, None] > thresholds
    return np.asarray((above == positive[:, None]).sum(axis=0), dtype=np.float64)
