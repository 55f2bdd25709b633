"""Of what a fit warns: parts that labels chose, repeated fits, long records; and that no single record makes it warn."""

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
from pairwise.pairs.clipping import clip_records

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


# -- other warnings, and none


def table(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d)) / 3
    return X, (X[:, 0] > 0).astype(int)


def test_warnings_point_at_the_line_of_the_user(model):
    X, y = table(n=800)
    again = PrivateAUCClassifier(1.0, 1e-5, classes=[0, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(model, X, y, cv=3)
        again.fit(100 * X, y).fit(100 * X, y)
    assert {each.filename for each in caught} == {__file__}
    assert {str(each.message).split()[0] for each in caught} == {"StratifiedKFold", "by", "this"}


def test_huge_records_are_clipped_in_silence_and_keep_their_direction():
    X, y = table(d=8)
    X[0] = 1.5e308
    model = PrivateAUCClassifier(epsilon=float("inf"), classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y)
    with np.errstate(all="raise"):
        clipped = clip_records(X[:1], 1.0)[0]
    assert np.linalg.norm(clipped) == pytest.approx(1.0, rel=2e-6)
    assert np.ptp(clipped) == 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("algorithm", ["auto", "gradient", "statistics", "offpairstrc", "ftrl"])
def test_no_record_makes_a_fit_warn(algorithm):
    X, y = table(n=60)
    for odd in (1.5e308, -1.5e308, 5e-324, 0.0):
        X[0] = odd
        model = PrivateAUCClassifier(
            epsilon=1.0, delta=1e-5, algorithm=algorithm, classes=[0, 1], random_state=0
        )
        model.fit(X, y)


def test_clones_fitted_again_without_a_budget_warn_once():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(model, X, y, cv=4)
    assert [each.category for each in caught if "without a budget" in str(each.message)] == [
        UnsoundWarning
    ]


def test_clones_that_share_a_budget_do_not_warn():
    X, y = table()
    with PrivacyBudget(9.0) as budget, warnings.catch_warnings():
        warnings.simplefilter("error")
        # Seeded: by chance, one fit in fifty on so few records warns that they are long.
        model = PrivateAUCClassifier(
            epsilon=1.0, delta=1e-5, classes=[0, 1], budget=budget, random_state=0
        )
        cross_val_score(model, X, y, cv=KFold(3))


def test_records_far_beyond_data_norm_are_warned_of_by_a_private_count():
    X, y = table(n=800)
    with pytest.warns(UserWarning, match="PublicScaler"):
        PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(100 * X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y)
