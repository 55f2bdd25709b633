"""What is left of an estimator, and of its budget, after a fit that raises."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from pairwise import (
    SMLQ,
    DPPMetricLearner,
    Ftrl,
    Gradient,
    OffPair,
    OnPair,
    Pointwise,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMail,
    PrivateMetricLearner,
    SGDOutput,
)
from pairwise.errors import BudgetExceededError, InvalidParameterError
from pairwise.estimators.projection import PrivatePCA
from pairwise.noise.release import PlannedRelease
from pairwise.statement import UnsoundWarning

LEARNERS = [
    PrivateAUCClassifier(classes=[0, 1]),
    PrivateAUCClassifier(classes=[0, 1], algorithm="gradient"),
    PrivateAUCClassifier(classes=[0, 1], algorithm=OnPair(horizon=60)),
    PrivateMetricLearner(classes=[0, 1]),
    PrivateLDA(classes=[0, 1]),
    PrivateMail(classes=[0, 1]),
    DPPMetricLearner(classes=[0, 1]),
    PrivatePCA(n_components=2),
]
learners = pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: type(each).__name__)


def _table(n=60, d=3):
    r = np.random.default_rng(0)
    return r.normal(size=(n, d)) * 0.3, np.arange(n) % 2


class Broken(Exception):
    """Stands for whatever may end a fit."""


@learners
def test_a_model_whose_refit_is_refused_by_its_budget_is_what_it_was(learner):
    X, y = _table()
    model = clone(learner).fit(X, y)
    with PrivacyBudget(epsilon=0.1) as budget:
        model.set_params(budget=budget)
        before = dict(vars(model))
        with pytest.raises(BudgetExceededError):
            model.fit(X[:, :2], y)
        assert not budget.charges
    assert vars(model) == before


def test_the_scores_of_a_ranking_do_not_change_when_a_refit_is_refused():
    X, y = _table()
    model = PrivateAUCClassifier(classes=[0, 1]).fit(X, y)
    scores, answers = model.decision_function(X), model.predict(X)
    with PrivacyBudget(epsilon=0.1) as budget, pytest.raises(BudgetExceededError):
        model.set_params(budget=budget).fit(X, y)
    assert np.array_equal(model.decision_function(X), scores)
    assert np.array_equal(model.predict(X), answers)


def test_a_ranking_whose_stream_is_refused_is_what_it_was():
    X, y = _table()
    model = PrivateAUCClassifier(classes=[0, 1]).fit(X, y)
    scores = model.decision_function(X)
    with PrivacyBudget(epsilon=0.1) as budget, pytest.raises(BudgetExceededError):
        model.set_params(budget=budget, algorithm=OnPair(horizon=60)).partial_fit(X, y)
    assert np.array_equal(model.decision_function(X), scores)
    assert not hasattr(model, "n_streamed_")


@learners
def test_a_fit_that_breaks_after_its_charge_stays_charged_and_leaves_no_half_of_it(
    learner, monkeypatch
):
    X, y = _table()
    model = clone(learner).fit(X, y)
    release = PlannedRelease.release
    drawn = []

    def breaks(plan, *arguments, **keywords):
        drawn.append(release(plan, *arguments, **keywords))
        raise Broken

    with PrivacyBudget(epsilon=2.0) as budget:
        model.set_params(budget=budget)
        before = dict(vars(model))
        monkeypatch.setattr(PlannedRelease, "release", breaks)
        with pytest.raises(Broken):
            model.fit(X, y)
        assert len(drawn) == 1
        assert len(budget.charges) == 1
    assert vars(model) == before


@learners
def test_a_first_fit_that_is_refused_leaves_nothing_fitted(learner):
    X, y = _table()
    with PrivacyBudget(epsilon=0.1) as budget:
        model = clone(learner).set_params(budget=budget)
        with pytest.raises(BudgetExceededError):
            model.fit(X, y)
    assert [name for name in vars(model) if name.endswith("_")] == []


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (PrivateLDA(n_components=0), "n_components must be a whole number >= 1; found 0"),
        (PrivateLDA(n_components="two"), "n_components must be a whole number"),
        (PrivateMail(n_components=2.5), "n_components must be a whole number"),
        (PrivateMail(algorithm=SMLQ(iterations=2.5)), "iterations must be a whole number >= 0"),
        (
            PrivateMail(algorithm=SMLQ(kernel="neighbours", n_neighbors=0)),
            "n_neighbors must be a whole number >= 1",
        ),
        (PrivatePCA(n_components=2.7), "n_components must be a whole number"),
        (PrivateAUCClassifier(algorithm=Pointwise(rate=np.nan)), "rate must be a positive"),
        (PrivateAUCClassifier(algorithm=Pointwise(rate=-1.0)), "rate must be a positive"),
        (PrivateAUCClassifier(algorithm=Gradient(steps=2.5)), "steps must be a whole number"),
        (PrivateAUCClassifier(algorithm=SGDOutput(steps="a")), "steps must be a whole number"),
        (PrivateMetricLearner(algorithm=OffPair(alpha="a")), "alpha must be a number"),
        (PrivateMetricLearner(delta="1e-5"), "delta must be a number"),
        (PrivateAUCClassifier(data_norm="1"), "data_norm must be a number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_out_of_range_is_refused_before_anything_is_charged(estimator, message):
    with PrivacyBudget(epsilon=9.0) as budget:
        learner = clone(estimator).set_params(budget=budget)
        with pytest.raises(InvalidParameterError, match=message):
            learner.fit(*_table())
        assert not budget.charges


def test_a_first_batch_beyond_the_horizon_is_refused_before_anything_is_charged():
    X, y = _table()
    with PrivacyBudget(epsilon=9.0) as budget:
        stream = PrivateAUCClassifier(classes=[0, 1], algorithm=OnPair(horizon=30), budget=budget)
        with pytest.raises(InvalidParameterError, match="planned for 30 records; found 60"):
            stream.partial_fit(X, y)
        assert not budget.charges
        stream.partial_fit(X[:30], y[:30])
        assert len(budget.charges) == 1


def test_a_fit_ends_a_stream_and_the_next_records_open_another_one():
    X, y = _table()
    with PrivacyBudget(epsilon=9.0) as budget:
        stream = PrivateAUCClassifier(classes=[0, 1], algorithm=OnPair(horizon=60), budget=budget)
        stream.partial_fit(X[:30], y[:30])
        assert stream.fit(X, y).statement_.proved
        assert not hasattr(stream, "n_streamed_")
        assert stream.partial_fit(X[30:], y[30:]).n_streamed_ == 30
        assert len(budget.charges) == 3


def test_a_warning_of_a_published_form_points_at_whoever_fits():
    X, y = _table()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        options = OnPair(horizon=60, allow_vacuous=True)
        PrivateAUCClassifier(algorithm=options, mode="published", classes=[0, 1]).fit(X, y)
        PrivateAUCClassifier(algorithm=options, mode="published", classes=[0, 1]).partial_fit(X, y)
    unsound = [each for each in seen if issubclass(each.category, UnsoundWarning)]
    assert [each.filename for each in unsound] == [__file__, __file__]


@pytest.mark.parametrize("options", [OnPair(horizon=80), Ftrl(horizon=80)])
def test_a_stream_whose_batch_was_cut_off_takes_no_more_since_records_would_count_twice(
    options, monkeypatch
):
    X, y = _table()
    stream = PrivateAUCClassifier(classes=[0, 1], algorithm=options).partial_fit(X[:20], y[:20])
    release, drawn = PlannedRelease.release, []

    def breaks(plan, *arguments, **keywords):
        drawn.append(1)
        if len(drawn) == 10:
            raise KeyboardInterrupt
        return release(plan, *arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(PlannedRelease, "release", breaks)
        with pytest.raises(KeyboardInterrupt):
            stream.partial_fit(X[20:], y[20:])
    with pytest.raises(InvalidParameterError, match="its records would count twice"):
        stream.partial_fit(X[20:], y[20:])
    assert stream.n_streamed_ == 20
