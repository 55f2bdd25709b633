"""scikit-learn's contract, and budgets under model selection."""

from __future__ import annotations

import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairwise import PrivacyBudget, PrivateAUCClassifier, PrivateLDA, PrivateMetricLearner
from pairwise.errors import BudgetExceeded


def _expected(estimator):
    if getattr(estimator, "algorithm", "") == "onpairc":
        return {
            "check_classifiers_train": (
                "a stream of 200 records at epsilon 1 releases every iterate, with noise above its signal"
            )
        }
    return {}


@parametrize_with_checks(
    [
        PrivateAUCClassifier(),
        PrivateAUCClassifier(algorithm="statistics"),
        PrivateAUCClassifier(algorithm="offpairc"),
        PrivateAUCClassifier(algorithm="sgd-output"),
        PrivateAUCClassifier(algorithm="onpairc", horizon=500),
        PrivateLDA(),
        PrivateMetricLearner(),
        PrivateMetricLearner(algorithm="statistics"),
    ],
    expected_failed_checks=_expected,
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", [PrivateAUCClassifier, PrivateLDA])
def test_a_grid_search_with_sixteen_fits_charges_sixteen_fits(cls):
    X, y = make_classification(80, 4, random_state=0)
    with PrivacyBudget(epsilon=20.0, delta=1e-3) as budget:
        model = cls(epsilon=0.5, delta=1e-4, budget=budget, classes=[0, 1])
        grid = {"data_norm": [0.5, 1.0, 1.5, 2.0, 3.0]}
        GridSearchCV(model, grid, cv=3).fit(X, y)  # 15 folds and the refit
        assert len(budget.charges) == 16


def test_the_fit_that_would_pass_the_limit_is_refused_also_on_a_clone():
    X, y = make_classification(80, 4, random_state=0)
    with PrivacyBudget(epsilon=1.0, delta=1e-4) as budget:
        model = PrivateAUCClassifier(epsilon=0.9, delta=1e-4, budget=budget).fit(X, y)
        with pytest.raises(BudgetExceeded):
            clone(model).fit(X, y)


def test_estimators_work_inside_a_pipeline():
    X, y = make_classification(80, 4, random_state=0)
    pipeline = make_pipeline(Normalizer(), PrivateAUCClassifier(random_state=0)).fit(X, y)
    assert pipeline.decision_function(X).shape == (80,)
