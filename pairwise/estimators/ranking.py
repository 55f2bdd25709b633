"""What a released ranking does with records: scores, a cut into two classes that a private choice made, and the AUC.

How the ranking is learned is no business of this module. Which thresholds there are, and why their counts have the
sensitivity 1, stands in ``algorithms.threshold``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import roc_auc_score

from pairwise.accounting.events import compose
from pairwise.algorithms.threshold import candidates, right_answers
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import PrivateEstimator
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan
from pairwise.pairs.clipping import clip_records
from pairwise.plan import Plan

__all__ = ["Ranking"]

Array = NDArray[np.float64]


class Ranking(ClassifierMixin, PrivateEstimator):
    """Base of linear rankings of records around a centre, with a threshold where one was paid for."""

    threshold_share: float
    centre_: Array
    scale_: float
    basis_: Array | None
    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    threshold_: float | None

    def _with_threshold(
        self,
        plan: Plan,
        choice: ChoicePlan,
        table: Array,
        positive: NDArray[np.bool_],
        randomness: Randomness,
    ) -> Plan:
        """Return the plan followed by the choice of a threshold for what it learned."""

        def run() -> Array:
            w = np.asarray(plan.run())
            largest = float(np.linalg.norm(w)) * self.scale_
            thresholds = candidates(largest)
            counts = right_answers(self._scores(table, w), positive, thresholds)
            self.threshold_ = float(thresholds[int(choice.release(counts, randomness))])
            return w

        return replace(
            plan,
            event=compose([plan.event, choice.event()]),
            run=run,
            mechanism=f"{plan.mechanism}, threshold by the exponential mechanism for {self.threshold_share:g} of μ²",
            proof=f"{plan.proof}; heads of pairwise.algorithms.threshold and of ChoicePlan",
        )

    def _scores(self, records: Array, w: Array) -> Array:
        """Return the scores of records of norm at most ``data_norm``, before the threshold is subtracted."""
        around = clip_records(
            clip_records(records, float(self.data_norm)) - self.centre_, self.scale_
        )
        scores = np.asarray(around @ w)
        # Fits that were pickled before features were scaled have no basis.
        basis = getattr(self, "basis_", None)
        if basis is None:
            return scores
        # As it was learned: records that are long in the scaled features count by their direction.
        lengths = np.linalg.norm(around @ (basis.T / self.scale_), axis=1)
        return np.asarray(scores / np.maximum(lengths, 1.0))

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores, shape (n,), of records clipped as in training; larger means the positive class."""
        return self._scores(self._check_records(X), self.coef_[0]) + self.intercept_[0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the positive class where the score is above the threshold that was paid for, shape (n,).

        Raises
        ------
        InvalidParameterError
            After a fit with ``threshold_share=0``.
        """
        scores = self.decision_function(X)
        if self.threshold_ is None:
            raise InvalidParameterError(
                "predict needs a threshold, and threshold_share=0 paid for none. Rank by decision_function, or fit with a "
                "threshold_share above 0."
            )
        return np.asarray(self.classes_[(scores > 0).astype(int)])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the AUC of the ranking on ``(X, y)``, and not an accuracy: a ranking is learned, a threshold only added.

        Exact, so for labels that may be shown; ``private_auc_score`` is for those that may not.

        Parameters
        ----------
        X : (n, d) array-like
        y : (n,) array-like
            Both classes.
        sample_weight : (n,) array-like, optional
            Of the records that are scored on; nothing is learned here.
        """
        scores = self.decision_function(X)
        labels = np.asarray(y)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InvalidParameterError(
                f"y holds {len(unknown)} labels that the ranking was not given, or of another type. Score on the labels "
                "that it was fitted for."
            )
        positive = labels == self.classes_[1]
        return float(roc_auc_score(positive, scores, sample_weight=sample_weight))
