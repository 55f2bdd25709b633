"""Sums of gradients of a loss of single records, for a ranking learned by noisy descent; the loop is ``gradient``'s.

A record z with ‖z‖ <= 1 and label y in {−½, ½} enters as φ = (z, β) with a small public constant β, which takes up what the
released centre missed. Its gradient is r φ, with the residual r of the loss at the score w·φ cut to [−½, ½]: w·φ − y for the
square loss, and 1/(1 + e^(−w·φ)) − ½ − y for the logistic one. Cut residuals still grow with the score, so the loss stays
convex.

Sensitivity. Replacing one of n records moves the mean gradient by ‖r φ − r' φ'‖/n <= (|r| ‖φ‖ + |r'| ‖φ'‖)/n <= √(1 + β²)/n,
which two labels of one record attain at the score 0. At w ≈ 0 the mean is p(1 − p) times the difference of the class means,
half of what the mean over pairs holds, whose sensitivity is four times as large (mechanisms.md 10.6).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_number
from pairwise.pairs.clipping import clip_records

__all__ = ["RecordSums"]

Array = NDArray[np.float64]

_CUT = 0.5
_LOSSES = ("square", "logistic")


class RecordSums:
    """Gradients of single records in (w, intercept), shape (d + 1,).

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to norm 1.
    positive : (n,) bool array
    loss : {"square", "logistic"}
    intercept : float, default=0.3
        β; 0 leaves the intercept out, and the shape is (d,).
    """

    def __init__(
        self, X: Array, positive: NDArray[np.bool_], loss: str = "square", intercept: float = 0.3
    ) -> None:
        if loss not in _LOSSES:
            raise InvalidParameterError(
                f"loss of single records must be 'square' or 'logistic'; found {loss!r}."
            )
        check_number("intercept", intercept)
        if not (math.isfinite(intercept) and 0 <= intercept <= 1):
            raise InvalidParameterError(f"intercept must be in [0, 1]; found {intercept!r}.")
        self.loss = loss
        z = clip_records(np.ascontiguousarray(X, dtype=np.float64), 1.0)
        constant = np.full((len(z), 1), float(intercept))
        self.X = np.hstack((z, constant)) if intercept else z
        self.n, self.dimension = self.X.shape
        self.labels = np.where(positive, 0.5, -0.5)
        # The names of the pairwise engine: the bound of one gradient, and half of what a replacement moves the sum by.
        self.pair_bound = self.pair_change = _CUT * math.hypot(1.0, intercept)

    def residuals(self, w: Array) -> Array:
        """Return the cut residual of each record, shape (n,)."""
        scores = self.X @ w
        if self.loss == "logistic":
            scores = 0.5 * np.tanh(0.5 * scores)
        return np.asarray(np.clip(scores - self.labels, -_CUT, _CUT))

    def all_records(self, w: Array) -> Array:
        """Return the sum of all gradients, shape of ``w``."""
        return np.asarray(self.residuals(w) @ self.X)
