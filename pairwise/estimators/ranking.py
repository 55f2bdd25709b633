"""What a released linear ranking does with records: scores, a cut into two classes that was paid for, and the AUC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from pairwise.accounting.events import compose
from pairwise.algorithms.threshold import candidates, right_answers
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import Plan
from pairwise.estimators.choice import AlgorithmChoice
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan
from pairwise.pairs.clipping import clip_records

Array = NDArray[np.float64]


class LinearRanking(ClassifierMixin, AlgorithmChoice):
    """Base of linear rankings of records around a centre, with a threshold where one was paid for."""

    threshold_share: float
    classes_: NDArray[Any]
    centre_: Array
    scale_: float
    basis_: Array | None
    coef_: Array
    intercept_: Array
    threshold_: float | None

    def __getattr__(self, name: str) -> Any:
        if name == "predict_proba":
            raise AttributeError(
                "a ranking has no probabilities, so there is no predict_proba. Rank by decision_function; for probabilities "
                "calibrate its scores on records that are public, or whose use is charged to the same budget."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _begin(self, d: int) -> None:
        self.centre_, self.scale_ = np.zeros(d), float(self.data_norm)
        self.basis_: Array | None = None
        self.threshold_: float | None = None if self.threshold_share == 0 else 0.0

    def _store(self, parameter: Array) -> None:
        self.coef_ = np.array(parameter, dtype=np.float64).reshape(1, -1)
        self.intercept_ = np.array([-float(self.threshold_ or 0.0)])

    def _check_two_classes(self) -> None:
        if len(self.classes_) > 2:
            raise InvalidParameterError(
                "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
                f"{len(self.classes_)}. Compare one class with the rest."
            )
        if len(self.classes_) < 2:
            raise InvalidParameterError(
                "an AUC needs two classes; found one class. Check the labels, or pass classes=[negative, positive]."
            )

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
            thresholds = candidates(float(np.linalg.norm(w)) * self.scale_)
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
        """Return the scores of records before the threshold is subtracted."""
        clipped = clip_records(records, float(self.data_norm))
        around = clip_records(clipped - self.centre_, self.scale_)
        scores = np.asarray(around @ w)
        if self.basis_ is None:
            return scores
        # As it was learned: records that are long in the scaled features count by their direction.
        lengths = np.linalg.norm(around @ (self.basis_.T / self.scale_), axis=1)
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
        from sklearn.metrics import roc_auc_score

        scores = self.decision_function(X)
        labels = np.asarray(y)
        if len(np.setdiff1d(labels, self.classes_)):
            raise InvalidParameterError(
                "y holds labels that the ranking was not given, or of another type. Score on the labels that it was fitted "
                "for."
            )
        positive = labels == self.classes_[1]
        return float(roc_auc_score(positive, scores, sample_weight=sample_weight))
