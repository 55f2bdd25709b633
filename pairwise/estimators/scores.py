"""Private scores of a ranking or a classifier on private labels: AUC and accuracy with noise, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.accounting.budget import charge_to
from pairwise.accounting.events import Adjacency
from pairwise.accounting.gaussian import release_mu
from pairwise.accounting.parameters import resolved_delta
from pairwise.errors import InvalidParameterError, without_context
from pairwise.estimators.base import declared_classes, labels_of
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan, plan_gaussian


def _check_evaluation(
    y: ArrayLike, other: ArrayLike, epsilon: float, delta: float | None
) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Return labels, scores or answers, and δ: all that can be refused is, before anything is charged."""
    labels, values = labels_of(y), np.asarray(other)
    if labels.ndim != 1 or labels.shape != values.shape or len(labels) < 4:
        raise InvalidParameterError(
            f"expected two arrays of one length n >= 4; found shapes {labels.shape} and {values.shape}."
        )
    return labels, values, resolved_delta(epsilon, delta, len(labels))


def _charge(budget: Any, noise: GaussianPlan, label: str) -> None:
    relation = Adjacency.REPLACE_ONE
    charge_to(budget, noise.event(), label=label, adjacency=relation, unit="one record")


def _positive(labels: NDArray[Any], classes: Any) -> NDArray[np.bool_]:
    """Return which labels are the larger of two declared ones; refuse others before anything is charged."""
    declared = declared_classes(classes)
    if len(declared) != 2 or declared[0] != next(iter(classes)):
        raise InvalidParameterError(
            "classes must be two labels in ascending order, [negative, positive]; found another number or order. To "
            "count the smaller label as positive, pass y_true == label instead."
        )
    # As objects, numbers and text are compared one by one.
    found = labels.astype(object)
    positive = np.asarray(found == declared[1], dtype=bool)
    if not np.all(positive | (found == declared[0])):
        raise InvalidParameterError(
            f"y_true must hold the labels {declared.tolist()} alone; found others. Pass classes=[negative, positive], the "
            "two labels that may occur. Nothing was charged."
        )
    return positive


def private_auc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    epsilon: float,
    delta: float | None = None,
    classes: Any = (0, 1),
    budget: Any = None,
    random_state: Any = None,
) -> float:
    """Return an AUC on private records, with noise; replace-one, n public.

    Releases U/n, U the number of correctly ordered pairs (ties half), and n₊, by one Gaussian: replacing a
    record moves U by at most n − 1 and n₊ by at most 1, so (U/n, n₊) by at most √2.

    Parameters
    ----------
    y_true : (n,) array-like
    y_score : (n,) array-like
        Scores by a model that does not depend on these records, or whose cost is charged elsewhere.
    epsilon, delta : float
        Delta defaults to min(1e-5, n^-1.5).
    classes : array-like of 2 labels, default=(0, 1)
        Public, as of ``PrivateAUCClassifier``: [negative, positive] in ascending order. Other labels are refused. Booleans
        are 0 and 1. Whether both occur is a fact about the records, and no error.
    budget : PrivacyBudget, optional
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting; a seed is for experiments.
    """
    labels, scores, delta = _check_evaluation(y_true, y_score, epsilon, delta)
    unusable = InvalidParameterError(
        "y_score must be numbers; found text or NaN. Give every record a score."
    )
    scores = without_context(lambda: scores.astype(np.float64), lambda _: unusable)
    if np.isnan(scores).any():
        raise unusable
    chosen = _positive(labels, classes)
    randomness = Randomness(random_state)
    mu = release_mu(float(epsilon), delta)
    noise = plan_gaussian(math.sqrt(2.0), mu, 2)
    _charge(budget, noise, "private_auc_score")
    n = len(labels)
    count = float(chosen.sum())
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    wins = float(ranks[chosen].sum()) - count * (count + 1) / 2.0
    noisy = noise.release(np.array([wins / n, count]), randomness)
    pairs = noisy[1] * (n - noisy[1])
    if pairs <= 0:
        return 0.5
    return float(np.clip(noisy[0] * n / pairs, 0.0, 1.0))


def private_accuracy_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    epsilon: float,
    delta: float | None = None,
    classes: Any = None,
    budget: Any = None,
    random_state: Any = None,
) -> float:
    """Return an accuracy on private records with Gaussian noise of sensitivity 1/n, cut to [0, 1]; replace-one.

    Parameters
    ----------
    y_true, y_pred : (n,) array-like
    epsilon, delta : float
    classes : array-like, optional
        Public list of labels; others are refused. Left out, every label counts as one that may occur.
    budget : PrivacyBudget, optional
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting; a seed is for experiments.
    """
    labels, predicted, delta = _check_evaluation(y_true, y_pred, epsilon, delta)
    kinds = {"text" if each.dtype.kind in "US" else each.dtype.kind for each in (labels, predicted)}
    if "text" in kinds and kinds & set("biuf"):
        raise InvalidParameterError(
            "y_true and y_pred must both be numbers or both be text; found one of each. Nothing was charged."
        )
    if classes is not None:
        declared = declared_classes(classes)
        for name, each in (("y_true", labels), ("y_pred", predicted)):
            if not np.isin(each.astype(object), declared.astype(object)).all():
                raise InvalidParameterError(
                    f"{name} must hold the labels {declared.tolist()} alone; found others. List every label that may occur "
                    "in classes. Nothing was charged."
                )
    randomness = Randomness(random_state)
    mu = release_mu(float(epsilon), delta)
    noise = plan_gaussian(1.0, mu, 1)
    _charge(budget, noise, "private_accuracy_score")
    hits = float((labels == predicted).sum())
    noisy = float(noise.release(hits, randomness)) / len(labels)
    return min(1.0, max(0.0, noisy))
