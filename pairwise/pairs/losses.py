"""The losses of pairs, and sums of their gradients over all or listed pairs, with bounds that hold for any records.

A pair of a positive record x and a negative one z has the gradient -a(x - z), where a is the slope of the loss at the score
difference w·(x - z). Both losses have 0 <= a <= 1. The hinge (1 - u)_+ (YANG, eq. 10, symmetrised) has a = 1 where u < 1.
The logistic loss log(1 + e^(-2u)) (HUAI, example 2) has a = 2/(1 + e^(2u)), cut to 1: it is linear where the order is wrong,
stays convex, and has half of the bound. So one gradient is at most 2R long for records of norm R, and the logistic loss is
4R²-smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError

Array = NDArray[np.float64]

LOSSES = ("logistic", "hinge")

# Entries of one block of the pair matrix: 32 MiB of float64, whatever n is.
_BLOCK_ENTRIES = 1 << 22


def hinge_counts(
    positive: Array, negative: Array, left: Array | None = None, right: Array | None = None
) -> tuple[Array, Array]:
    """Return how many opponents of each record are within the margin of 1, in O(n log n).

    #{q : s_q > s_p - 1} of each positive score s_p and #{p : s_p - 1 < s_q} of each negative score s_q. Both compare with
    the *same* rounded s_p - 1, so they count the same pairs and the sum over pairs stays a subgradient. ``left`` and
    ``right`` say how often each positive and negative record counts; default once.
    """
    left = np.ones(len(positive)) if left is None else left
    right = np.ones(len(negative)) if right is None else right
    shifted = positive - 1.0
    by_shifted, by_score = np.argsort(shifted), np.argsort(negative)
    passed = np.concatenate(([0.0], np.cumsum(left[by_shifted])))
    below = np.concatenate(([0.0], np.cumsum(right[by_score])))
    above = below[-1] - below[np.searchsorted(negative[by_score], shifted, side="right")]
    return above, passed[np.searchsorted(shifted[by_shifted], negative, side="left")]


def logistic_weights(positive: Array, negative: Array) -> tuple[Array, Array]:
    """Return row and column sums of min(1, 2/(1 + e^(2(s_p - s_q)))) over all pairs of the two classes, in blocks."""
    a, b = np.zeros(len(positive)), np.zeros(len(negative))
    if not len(positive) or not len(negative):
        return a, b
    step = max(1, _BLOCK_ENTRIES // len(negative))
    for start in range(0, len(positive), step):
        weights = slope("logistic", np.subtract.outer(positive[start : start + step], negative))
        a[start : start + step] = weights.sum(axis=1)
        b += weights.sum(axis=0)
    return a, b


def slope(loss: str, margin: Array) -> Array:
    """Return a, the weight of pairs at score differences s_p - s_q."""
    if loss == "hinge":
        return (margin < 1.0).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(1.0, 2.0 / (1.0 + np.exp(2.0 * margin))))


@dataclass(frozen=True)
class PairBounds:
    """Public bounds of the pair gradients of a table: all that a plan reads.

    All gradients of a pair have the form a(z - x) with 0 <= a <= 1, so two of them that share the record z differ by
    ‖a x - b x' - (a - b) z‖ <= (a + b + |a - b|)R = 2 max(a, b) R when the label stays, and one of the two is zero when it
    changes.
    """

    n: int  # records, or the horizon of a stream
    d: int  # features
    loss: str = "logistic"
    data_norm: float = 1.0  # R

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidParameterError(
                f"loss must be one of {', '.join(map(repr, LOSSES))}; found {self.loss!r}."
            )

    @property
    def change(self) -> float:
        """D = 2R: how far a gradient moves at most when a record in it is replaced, and how long it is at most."""
        return 2.0 * self.data_norm

    @property
    def smoothness(self) -> float:
        """L = 4R², the Lipschitz constant of one gradient; infinite for the hinge, which has a kink."""
        return math.inf if self.loss == "hinge" else 4.0 * self.data_norm**2


class AUCPairs:
    """Pair gradients of an AUC loss in w, shape (d,), of clipped records."""

    def __init__(self, X: Array, positive: NDArray[np.bool_], loss: str = "logistic") -> None:
        self.X, self.positive, self.loss = np.ascontiguousarray(X), positive, loss
        self.n, self.dimension = X.shape

    def all_pairs(self, w: Array) -> Array:
        """Return the sum over all pairs: O(nd + n log n) for the hinge, n₊n₋ exponentials for the logistic loss."""
        scores, positive = self.X @ w, self.positive
        weights = hinge_counts if self.loss == "hinge" else logistic_weights
        a, b = weights(scores[positive], scores[~positive])
        scores[positive] = -a
        scores[~positive] = b
        return np.asarray(scores @ self.X)

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs; those of one class add nothing."""
        labels = self.positive[pairs]
        mixed = labels[:, 0] != labels[:, 1]
        ordered = np.where(labels[mixed, :1], pairs[mixed], pairs[mixed, ::-1])
        apart = self.X[ordered[:, 0]] - self.X[ordered[:, 1]]
        return np.asarray(-(slope(self.loss, apart @ w) @ apart))
