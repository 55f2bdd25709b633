"""Of what a fit warns, and that no single record makes it warn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score

from pairwise import (
    PrivacyBudget,
    PrivateAUCClassifier,
    UnsoundWarning,
)

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


def table(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d)) / 3
    return X, (X[:, 0] > 0).astype(int)


def test_huge_records_are_clipped_in_silence_and_keep_their_direction():
    X, y = table(d=8)
    X[0] = 1.5e308
    model = PrivateAUCClassifier(epsilon=float("inf"), classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y)
    from pairwise.pairs.clipping import clip_records

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
