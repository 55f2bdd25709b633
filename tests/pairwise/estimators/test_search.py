"""PrivateSearchCV: one price for any number of settings, disjoint rows, and nothing of the trials that lost."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from pairwise import (
    Gradient,
    Pointwise,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMetricLearner,
    PrivatePipeline,
    PrivateSearchCV,
    PublicOneHot,
    PublicScaler,
    TrialCount,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.zcdp import zcdp_epsilon
from pairwise.errors import BudgetExceededError, InvalidParameterError
from pairwise.estimators import search as module
from pairwise.estimators.projection import PrivatePCA
from pairwise.estimators.selection import TrialAccount
from pairwise.noise.release import PlannedRelease
from pairwise.statement import UnsoundWarning

LEARNER = PrivateAUCClassifier(classes=[0, 1], algorithm="pointwise")
GRID = {"data_norm": [0.5, 1.0, 2.0], "centre_share": [0.1, 0.3]}


def table(n=200, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return rng.normal(size=(n, d)) * 0.2 + np.outer(2 * y - 1, [0.3, 0.1, 0.0]), y


def test_fifty_settings_cost_less_than_three_times_one_fit_by_the_theorem():
    grid = {"data_norm": np.linspace(0.5, 2.0, 10), "centre_share": [0.05, 0.1, 0.15, 0.2, 0.3]}
    search = PrivateSearchCV(LEARNER, grid, epsilon=2.0, delta=1e-5, count=TrialCount(mean=50))
    search.fit(*table())
    assert epsilon_of(search.privacy_event_, 1e-5) <= 2.0 * (1 + 1e-6)
    # The trial's rho is what the event repeats.
    one = zcdp_epsilon(search.privacy_event_.event.rho, 1e-5)
    assert 3.0 * one >= 2.0


def test_the_budget_is_charged_once_for_all_trials_and_refuses_a_search_beforehand():
    X, y = table()
    with PrivacyBudget(epsilon=2.0, delta=1e-5) as budget:
        search = PrivateSearchCV(LEARNER, GRID, epsilon=2.0, delta=1e-5, budget=budget).fit(X, y)
        assert len(budget.charges) == 1
        assert budget.charges[0].event == search.privacy_event_
        with pytest.raises(BudgetExceededError):
            PrivateSearchCV(LEARNER, GRID, epsilon=0.5, delta=1e-6, budget=budget).fit(X, y)


def test_every_trial_fits_and_scores_disjoint_rows_at_the_price_of_a_trial(monkeypatch):
    seen = []
    fit = PrivateAUCClassifier.fit
    score = module.PrivateScorer.__call__

    def fitted(self, X, y):
        if isinstance(self.budget, TrialAccount):  # and not one that only checks
            seen.append(("fit", self.epsilon, self.delta, X.copy()))
        return fit(self, X, y)

    def scored(self, estimator, X, y):
        seen.append(("score", self.epsilon, self.delta, X.copy()))
        return score(self, estimator, X, y)

    monkeypatch.setattr(PrivateAUCClassifier, "fit", fitted)
    monkeypatch.setattr(module.PrivateScorer, "__call__", scored)
    X, y = table()
    search = PrivateSearchCV(LEARNER, GRID, epsilon=2.0, delta=1e-5, validation=0.25)
    search.fit(X, y)
    rho = search.privacy_event_.event.rho
    rows = {row.tobytes() for row in X}
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        assert (first[0], second[0]) == ("fit", "score")
        for _, epsilon, delta, _ in (first, second):
            assert epsilon == pytest.approx(zcdp_epsilon(rho, delta), rel=1e-6)
        parts = [{row.tobytes() for row in part[3]} for part in (first, second)]
        assert [len(part) for part in parts] == [150, 50]
        assert not parts[0] & parts[1]
        assert parts[0] | parts[1] == rows


def test_the_split_depends_on_the_number_of_rows_alone():
    first, second = module._split(101, 0.3)
    assert sorted([*first, *second]) == list(range(101))
    assert len(second) == 30
    np.testing.assert_array_equal(module._split(101, 0.3)[0], first)


def test_what_is_released_says_what_the_search_costs_and_holds_no_account():
    search = PrivateSearchCV(LEARNER, GRID, epsilon=2.0).fit(*table())
    winner = search.best_estimator_
    assert winner.statement_ is search.statement_
    assert winner.privacy_event_ is search.privacy_event_
    assert winner.budget is None
    assert search.statement_.epsilon == 2.0
    assert search.statement_.proved
    assert set(search.best_params_) == set(GRID)
    kept = {name for name in vars(search) if name.endswith("_") and not name.startswith("_")}
    assert kept == {
        "best_estimator_",
        "best_params_",
        "best_score_",
        "classes_",
        "privacy_event_",
        "statement_",
    }
    again = pickle.loads(pickle.dumps(search))
    X, _ = table()
    np.testing.assert_array_equal(again.decision_function(X), search.decision_function(X))


def test_a_class_list_that_was_read_is_named():
    search = PrivateSearchCV(PrivateAUCClassifier(), GRID, epsilon=2.0).fit(*table())
    assert "the set of class labels" in search.statement_.not_protected


@pytest.mark.parametrize(
    ("seed", "grid"),
    [(0, GRID), (None, {"random_state": [None, 0]}), (None, {"random_state": [0]})],
)
def test_a_search_of_seeded_trials_is_not_called_proved(seed, grid):
    search = PrivateSearchCV(clone(LEARNER).set_params(random_state=seed), grid, epsilon=2.0)
    statement = search.fit(*table()).statement_
    assert not statement.proved
    assert any("random_state" in note for note in statement.notes)


def test_a_search_takes_for_granted_and_leaves_open_what_its_winner_does():
    statement = PrivateSearchCV(LEARNER, {"data_norm": [0.5]}, epsilon=2.0).fit(*table()).statement_
    assert "every record is clipped, on its own, to the public norm 0.5" in statement.assumptions
    assert "the number of records and of features, and all settings" in statement.not_protected


def test_a_search_names_the_norms_of_all_settings_whichever_was_the_best():
    statement = PrivateSearchCV(LEARNER, GRID, epsilon=2.0).fit(*table()).statement_
    clipped = [each for each in statement.assumptions if "clipped" in each]
    assert clipped == ["every record is clipped, on its own, to the public norm 0.5, 1 or 2"]


def test_a_search_says_that_classes_are_read_if_any_setting_reads_them():
    grid = {"classes": [None, *[[0, 1]] * 9]}
    for _ in range(3):
        statement = PrivateSearchCV(LEARNER, grid, epsilon=2.0).fit(*table()).statement_
        assert "the set of class labels" in statement.not_protected


@pytest.mark.parametrize("many", [False, True], ids=["one-grid", "grids"])
@pytest.mark.parametrize("piped", [False, True], ids=["alone", "pipeline"])
def test_a_search_is_pickled_without_any_seed(many, piped):
    learner = clone(LEARNER).set_params(random_state=5)
    prefix = "privateaucclassifier__" if piped else ""
    grid = {prefix + "random_state": [7, 9]}
    search = PrivateSearchCV(
        make_pipeline(PublicScaler(-1, 1, (-1, 1)), learner) if piped else learner,
        [grid] if many else grid,
        epsilon=2.0,
        random_state=3,
    ).fit(*table())
    loaded = pickle.loads(pickle.dumps(search))
    assert loaded.random_state is None
    assert loaded.estimator.get_params()[prefix + "random_state"] is None
    assert loaded.best_estimator_.get_params()[prefix + "random_state"] is None
    assert loaded.best_params_ == {}
    assert loaded.param_grid == ([{}] if many else {})
    assert search.best_params_[prefix + "random_state"] in (7, 9)


def test_it_is_used_like_a_search_of_scikit_learn():
    X, y = table(400)
    grid = [{"algorithm": [Gradient(steps=20), Pointwise()]}, {"data_norm": [0.5, 1.0]}]
    search = clone(PrivateSearchCV(LEARNER, grid, epsilon=8.0, random_state=3)).fit(X, y)
    assert set(np.unique(search.predict(X))) <= {0, 1}
    assert search.decision_function(X).shape == (400,)
    assert not hasattr(search, "transform")
    other = clone(search).fit(X, y)
    assert other.best_params_ == search.best_params_
    assert not search.statement_.proved  # a seed is for experiments


def test_it_searches_over_a_pipeline_and_warns_of_a_step_that_learns():
    X, y = table()
    grid = {"privateaucclassifier__data_norm": [0.5, 1.0]}
    pipeline = make_pipeline(PublicScaler(-1, 1, (-1, 1)), LEARNER)
    search = PrivateSearchCV(pipeline, grid, epsilon=2.0).fit(X, y)
    assert search.best_estimator_[-1].statement_.epsilon == 2.0
    with pytest.warns(UnsoundWarning):
        PrivateSearchCV(make_pipeline(StandardScaler(), LEARNER), grid, epsilon=2.0).fit(X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": StandardScaler()}, "one private learner"),
        ({"param_grid": {"epsilon": [1.0, 2.0]}}, "epsilon of a trial follows"),
        ({"validation": 1.0}, r"validation must be in \(0, 1\)"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"count": TrialCount(10, math.inf)}, "may be 0"),
        ({"scoring": "f1"}, "scoring must be one of auc, accuracy"),
        ({"estimator": PrivateMetricLearner(classes=[0, 1])}, "has not. Search over a classifier"),
        ({"epsilon": math.inf}, "a search has a price"),
    ],
)
def test_settings_without_meaning_are_refused(change, message):
    with pytest.raises(InvalidParameterError, match=message):
        PrivateSearchCV(**{"estimator": LEARNER, "param_grid": GRID, **change}).fit(*table())
    with pytest.raises(InvalidParameterError, match="one label for each record"):
        PrivateSearchCV(LEARNER, GRID).fit(np.eye(3), [0, 1])


RANKED = PrivateAUCClassifier(classes=[0, 1], threshold_share=0)
THREE = PrivateLDA(classes=[0, 1, 2])
SAMPLED = PrivateAUCClassifier(classes=[0, 1], algorithm=Gradient(batch_size=10))


@pytest.mark.parametrize(
    ("change", "n", "message"),
    [
        ({"estimator": SAMPLED}, 60, "trials are priced by zCDP, for exact noise"),
        ({"param_grid": {"hardened": [None, False]}}, 60, "found a setting with hardened=False"),
        ({"estimator": PrivateLDA(adjacency="zero-out")}, 60, "found adjacency='zero-out'"),
        ({"estimator": RANKED, "scoring": "accuracy"}, 60, "found threshold_share=0"),
        ({"estimator": THREE, "param_grid": {"data_norm": [1.0]}}, 60, "found 3. Use scoring="),
        ({}, 10, "found 3 in one of the parts"),
        ({"param_grid": {"nonsense": [1]}}, 60, "nonsense"),
    ],
)
def test_a_trial_that_could_not_be_priced_or_scored_is_refused_before_the_charge(
    change, n, message
):
    X, y = table()
    with PrivacyBudget(epsilon=2.0) as budget:
        settings = {"estimator": LEARNER, "param_grid": {"data_norm": [1.0]}, **change}
        search = PrivateSearchCV(**settings, epsilon=2.0, budget=budget)
        with pytest.raises(ValueError, match=message):
            search.fit(X[:n], y[:n])
        assert not budget.charges


@pytest.mark.parametrize("n", [200, 3000])
def test_delta_is_that_of_a_fit_by_default_and_one_over_n_is_refused(n):
    X, y = table(n)
    search = PrivateSearchCV(LEARNER, {"data_norm": [1.0]}, epsilon=2.0)
    assert search.fit(X, y).statement_.delta == min(1e-5, n**-1.5)
    with pytest.raises(InvalidParameterError, match="delta must be below 1/n"):
        clone(search).set_params(delta=1.0 / n).fit(X, y)


def test_a_table_that_no_trial_would_take_is_refused_before_the_charge():
    X, y = table()
    holed = X.copy()
    holed[3, 0] = np.nan
    with PrivacyBudget(epsilon=2.0) as budget:
        search = PrivateSearchCV(LEARNER, GRID, epsilon=2.0, budget=budget)
        with pytest.raises(TypeError, match="dense data is required"):
            search.fit(csr_matrix(X), y)
        with pytest.raises(InvalidParameterError, match="X contains NaN or infinity"):
            search.fit(holed, y)
        with pytest.raises(InvalidParameterError, match="y contains NaN or infinity"):
            search.fit(X, np.where(y, np.nan, 0.0))
        assert not budget.charges


PIPED = Pipeline([("scale", PublicScaler(-1, 1, (-1, 1))), ("learn", LEARNER)])
LETTERS = Pipeline([("encode", PublicOneHot(["a", "b"])), ("learn", LEARNER)])


def _spoilt(kind):
    X, y = table()
    if kind == "nan":
        X[3, 0] = np.nan
    elif kind == "nan in the rows that are scored":
        X[module._split(len(X), 0.3)[1][0], 0] = np.nan
    elif kind == "text":
        X = X.astype(object)
        X[3, 0] = "word"
    elif kind == "huge":
        X = X.tolist()
        X[3][0] = 10**400
    elif kind == "one class":
        y = np.zeros(len(y), int)
    elif kind == "one class in the rows that are fitted":
        y = np.isin(np.arange(len(y)), module._split(len(y), 0.3)[1][:1]).astype(int)
    elif kind == "a label without a number":
        y = np.where(y, np.nan, 0.0)
    elif kind == "three classes":
        y = np.arange(len(y)) % 3
    return X, y


@pytest.mark.parametrize(
    "kind",
    [
        "nan",
        "nan in the rows that are scored",
        "text",
        "huge",
        "one class",
        "one class in the rows that are fitted",
        "a label without a number",
        "three classes",
    ],
)
def test_a_table_that_a_step_of_a_pipeline_refuses_is_refused_before_the_charge(kind):
    pipeline = clone(PIPED).set_params(learn__classes=None if "class" in kind else [0, 1])
    with PrivacyBudget(epsilon=2.0) as budget:
        search = PrivateSearchCV(pipeline, {"learn__data_norm": [1.0]}, epsilon=2.0, budget=budget)
        with pytest.raises(ValueError, match=r"NaN|number|floats|class"):
            search.fit(*_spoilt(kind))
        assert not budget.charges


def test_a_value_that_is_not_declared_is_refused_before_the_charge():
    letters = np.array([["a"], ["b"]] * 30, dtype=object)
    letters[module._split(60, 0.3)[1][0]] = "c"
    with PrivacyBudget(epsilon=2.0) as budget:
        search = PrivateSearchCV(LETTERS, {"learn__data_norm": [1.0]}, epsilon=2.0, budget=budget)
        with pytest.raises(InvalidParameterError, match="not among its categories"):
            search.fit(letters, np.arange(60) % 2)
        assert not budget.charges


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"learn__algorithm": [Pointwise(), Pointwise(rate=-1.0)]}, "rate must be a positive"),
        ({"learn__classes": [[0, 1], [0, None]]}, "classes must list labels"),
        ({"learn__classes": [[5, 6]]}, "not among them"),
        ({"scale__low": [-1.0, 7.0]}, "low must be below high"),
        ({"learn__random_state": ["seed"]}, "random_state must be None"),
    ],
)
def test_a_setting_that_only_some_trials_have_is_refused_before_the_charge(grid, message):
    with PrivacyBudget(epsilon=2.0) as budget:
        search = PrivateSearchCV(PIPED, grid, epsilon=2.0, budget=budget)
        with pytest.raises(InvalidParameterError, match=message):
            search.fit(*table())
        assert not budget.charges


def test_nothing_is_drawn_before_a_search_is_charged(monkeypatch):
    order = []
    release = PlannedRelease.release

    class Ledger(PrivacyBudget):
        def charge(self, *arguments, **terms):
            order.append("charge")
            super().charge(*arguments, **terms)

    def drawn(plan, *arguments, **terms):
        order.append("release")
        return release(plan, *arguments, **terms)

    monkeypatch.setattr(PlannedRelease, "release", drawn)
    with Ledger(epsilon=2.0) as budget:
        PrivateSearchCV(PIPED, {"learn__data_norm": [1.0, 2.0]}, epsilon=2.0, budget=budget).fit(
            *table()
        )
    assert order[0] == "charge"
    assert order.count("charge") == 1
    assert "release" in order


@pytest.mark.parametrize(
    "first",
    [PrivatePCA(2, epsilon=50.0), SelectFromModel(PrivateLDA(classes=[0, 1], epsilon=50.0))],
    ids=lambda each: type(each).__name__,
)
def test_a_search_refuses_a_second_step_that_releases_what_its_price_does_not_cover(first):
    pipeline = Pipeline([("first", first), ("learn", LEARNER)])
    with pytest.raises(InvalidParameterError, match="found Pipeline with 2 such steps"):
        PrivateSearchCV(pipeline, {"learn__data_norm": [1.0]}).fit(*table())
    with pytest.raises(InvalidParameterError, match="found Pipeline with 2 such steps"):
        PrivateSearchCV(PIPED, {"scale": [first]}).fit(*table())


def test_a_step_that_learns_and_is_only_in_the_grid_makes_a_search_not_proved():
    grid = {"scale": [PublicScaler(-1, 1), StandardScaler()]}
    with pytest.warns(UnsoundWarning, match="scale learn"):
        search = PrivateSearchCV(PIPED, grid, epsilon=2.0).fit(*table())
    assert not search.statement_.proved


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"learn": [LogisticRegression()]}, "found Pipeline with 0"),
        ({"scale": [LEARNER], "learn": [LogisticRegression()]}, "moves the private learner"),
        ({"memory": ["a folder"]}, "memory"),
    ],
)
def test_a_grid_that_takes_the_learner_away_or_repeats_its_fits_is_refused(grid, message):
    with pytest.raises(InvalidParameterError, match=message):
        PrivateSearchCV(PIPED, grid).fit(*table())


@pytest.mark.parametrize(
    "steps", [(StandardScaler(), LEARNER), (PrivateLDA(classes=[0, 1]), LogisticRegression())]
)
def test_a_search_over_a_step_that_was_not_paid_for_is_not_called_proved(steps):
    pipeline = make_pipeline(*steps)
    name = next(name for name, step in pipeline.steps if hasattr(step, "budget"))
    unpaid = next(other for other, _ in pipeline.steps if other != name)
    search = PrivateSearchCV(pipeline, {f"{name}__data_norm": [1.0]}, epsilon=2.0)
    with pytest.warns(UnsoundWarning):
        search.fit(*table())
    assert not search.statement_.proved
    assert f"the steps {unpaid} learned from the records" in search.statement_.paragraph()


@pytest.mark.filterwarnings("error")
def test_a_step_that_a_private_pipeline_calls_public_is_so_to_a_search_too():
    X, y = table()
    scaler = StandardScaler().fit(np.random.default_rng(1).normal(size=(9, X.shape[1])))
    pipeline = PrivatePipeline(
        [("scale", FrozenEstimator(scaler)), ("learn", LEARNER)], public=("scale",)
    )
    assert PrivateSearchCV(pipeline, {"learn__data_norm": [1.0]}).fit(X, y).statement_.proved


def test_a_private_step_that_is_frozen_releases_nothing_more_and_may_stand_in_front():
    X, y = table()
    frozen = FrozenEstimator(PrivatePCA(2).fit(X))
    pipeline = Pipeline([("axes", frozen), ("learn", LEARNER)])
    search = PrivateSearchCV(pipeline, {"learn__data_norm": [1.0]}, epsilon=2.0).fit(X, y)
    assert search.statement_.proved
