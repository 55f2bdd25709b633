"""Parts of the records that labels or repetitions chose: what a budget does not cover is warned of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_predict,
    cross_val_score,
)

from pairwise import PrivacyBudget, PrivateAUCClassifier, PrivateScorer, UnsoundWarning

X = np.random.default_rng(0).normal(size=(120, 2)) / 3
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def model():
    with PrivacyBudget(30.0) as budget:
        yield PrivateAUCClassifier(1.0, 1e-5, classes=[0, 1], budget=budget, random_state=0)


def test_one_label_moves_other_records_between_stratified_parts():
    # Why: the parts of two neighbouring tables differ in more than the record that changed.
    def part_of(labels):
        parts = np.zeros(120, dtype=int)
        for number, (_, tested) in enumerate(StratifiedKFold(3).split(X, labels)):
            parts[tested] = number
        return parts

    changed = [np.where(np.arange(120) == i, 1 - Y, Y) for i in range(120)]
    assert max(np.count_nonzero(part_of(each) != part_of(Y)) for each in changed) == 4


@pytest.mark.parametrize(
    "cv",
    [None, 3, StratifiedKFold(3), StratifiedShuffleSplit(2), RepeatedStratifiedKFold(n_splits=2)],
    ids=str,
)
def test_parts_that_read_labels_are_warned_of(model, cv):
    with pytest.warns(UnsoundWarning, match="chooses the parts by private labels"):
        cross_val_score(model, X, Y, cv=cv)


@pytest.mark.parametrize(
    "fit",
    [
        lambda model: cross_val_predict(model, X, Y, cv=3),
        lambda model: GridSearchCV(model, {}, cv=2).fit(X, Y),
        lambda model: CalibratedClassifierCV(model, cv=2).fit(X, Y),
    ],
    ids=["predict", "search", "calibration"],
)
def test_every_user_of_a_splitter_is_seen(model, fit):
    with pytest.warns(UnsoundWarning, match="chooses the parts by private labels"):
        fit(model)


def test_bootstrap_is_warned_of(model):
    with pytest.warns(UnsoundWarning, match="a bootstrap repeats records"):
        BaggingClassifier(model, n_estimators=2).fit(X, Y)


def test_parts_by_position_pass_in_silence(model):
    scorer = PrivateScorer("auc", epsilon=1.0, delta=1e-5, budget=model.budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_val_score(model, X, Y, scoring=scorer, cv=KFold(3))
        BaggingClassifier(model, n_estimators=2, bootstrap=False, random_state=0).fit(X, Y)


def test_reference_without_noise_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_val_score(PrivateAUCClassifier(float("inf")), X, Y, cv=3)
