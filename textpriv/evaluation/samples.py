"""Public samples of words, which stand for all words of a prior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class WordSample:
    """Words that stand for a public word prior: all of them, or a fixed stratified sample."""

    ids: NDArray[np.int32]
    shares: NDArray[np.float64]  # what each counts in a mean; they sum to 1
    certain: (
        int  # so many were taken for sure; each of the others stands for a stratum of equal weight
    )

    @classmethod
    def of(cls, weights: NDArray[np.float64], size: int) -> WordSample:
        """Take ``size`` words in proportion to their weights, which sum to 1, or all of them.

        Words of weight above ``1 / size`` are taken for sure. The rest, in order of weight, is cut into strata of equal
        weight, and one word of each is drawn. The draw is public and always the same.
        """
        if size >= len(weights):
            return cls(np.arange(len(weights), dtype=np.int32), weights, len(weights))
        order = np.argsort(-weights, kind="stable")
        certain = int(np.count_nonzero(weights * size >= 1.0))
        strata = size - certain
        tail = order[certain:]
        cumulative = np.cumsum(weights[tail])
        rest = float(cumulative[-1])
        points = (np.arange(strata) + np.random.default_rng(0).random(strata)) * (rest / strata)
        drawn = tail[np.minimum(np.searchsorted(cumulative, points), len(tail) - 1)]
        shares = np.concatenate([weights[order[:certain]], np.full(strata, rest / strata)])
        return cls(np.concatenate([order[:certain], drawn]).astype(np.int32), shares, certain)

    def mean(self, values: NDArray[np.floating]) -> float:
        """Estimate the mean under the prior of values of shape (m,)."""
        return float(self.shares @ values)

    def standard_error(self, values: NDArray[np.floating]) -> float:
        """Standard error of :meth:`mean`: 0 for all words, else from differences between strata that lie side by side."""
        tail = values[self.certain :]
        if len(tail) < 2:
            # One stratum shows no spread, and no stratum has none.
            return math.nan if len(tail) else 0.0
        differences = np.diff(tail)
        # Each difference has the spread of two strata, and each stratum but two is in two differences.
        scale = len(tail) / (2 * len(differences))
        return float(self.shares[-1] * math.sqrt(scale * (differences @ differences)))
