"""Private scores, selection and search: their prices, and what no trial may do."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from pairwise import (
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PrivateScorer,
    PrivateSearchCV,
    PublicScaler,
    UnsoundWarning,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import Adjacency, dp_event, gaussian_event
from pairwise.errors import (
    BudgetClosedError,
    BudgetExceededError,
    InvalidParameterError,
    UnsupportedEventError,
)
from pairwise.estimators.scores import private_accuracy_score, private_auc_score
from pairwise.estimators.search import _split
from pairwise.estimators.trials import (
    MEAN_TRIALS,
    chances,
    number_of_trials,
    private_selection,
    search_event,
    trial_price,
)
from pairwise.noise.randomness import Randomness


def table(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) / 4
    X[:, 0] += 0.6 * (y - 0.5)
    return X, y


GRID = {"data_norm": [0.5, 1.0, 2.0], "algorithm": ["auto", "gradient"]}


def search(**settings) -> PrivateSearchCV:
    learner = PrivateAUCClassifier(1.0, classes=[0, 1])
    return PrivateSearchCV(learner, GRID, **{"epsilon": 2.0, "delta": 1e-5, **settings})


# -- scores


def test_private_scores_are_near_the_true_ones():
    from sklearn.metrics import roc_auc_score

    X, y = table(4000)
    settings = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    true = roc_auc_score(y, X[:, 0])
    assert private_auc_score(y, X[:, 0], **settings) == pytest.approx(true, abs=0.02)
    guess = (X[:, 0] > 0).astype(int)
    true = (guess == y).mean()
    assert private_accuracy_score(y, guess, **settings) == pytest.approx(true, abs=0.02)


def test_text_is_not_compared_with_numbers():
    y, budget = np.arange(100) % 2, PrivacyBudget(3.0, delta=1e-4)
    settings = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0, "budget": budget}
    with pytest.raises(InvalidParameterError, match="both be numbers or both be text"):
        private_accuracy_score(y.astype(str), y, **settings)
    assert not budget.charges
    assert private_accuracy_score(y.astype(object), y, **settings) > 0.9


@pytest.mark.parametrize("wrong", ["y_true", "y_pred"])
def test_accuracy_of_labels_not_declared_is_refused_uncharged(wrong):
    arrays = {"y_true": np.arange(100) % 2, "y_pred": np.arange(100) % 2}
    arrays[wrong] = arrays[wrong] + 1
    with PrivacyBudget(5.0) as budget:
        settings = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1], "budget": budget}
        with pytest.raises(InvalidParameterError, match=wrong):
            private_accuracy_score(**arrays, **settings)
        assert not budget.charges


def test_accuracy_of_declared_text_labels_is_scored():
    labels = np.array(["no", "yes"])[np.arange(4000) % 2]
    settings = {"epsilon": 2.0, "delta": 1e-6, "classes": ["no", "yes"], "random_state": 0}
    assert private_accuracy_score(labels, labels, **settings) == pytest.approx(1.0, abs=0.02)


def test_scores_of_one_class_are_a_half_and_no_error():
    assert 0 <= private_auc_score(np.zeros(50), np.arange(50.0), epsilon=1.0, delta=1e-5) <= 1


@pytest.mark.parametrize(
    ("y", "scores"),
    [
        (np.zeros(10), np.zeros(9)),
        (np.zeros(3), np.zeros(3)),
        (np.full(10, np.nan), np.zeros(10)),
        (np.zeros(10), np.full(10, np.nan)),
    ],
)
def test_scores_of_nonsense_are_refused_uncharged(y, scores):
    with PrivacyBudget(5.0) as budget:
        with pytest.raises(InvalidParameterError):
            private_auc_score(y, scores, epsilon=1.0, delta=1e-5, budget=budget)
        assert not budget.charges


@pytest.mark.parametrize("classes", [("no", "yes"), (1, 2), (2, 4), (-1, 1)])
def test_auc_counts_the_larger_declared_class_as_positive(classes):
    X, y = table(4000)
    settings = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    expected = private_auc_score(y, X[:, 0], **settings)
    labels = np.array(classes)[y]
    assert private_auc_score(labels, X[:, 0], classes=classes, **settings) == expected


def test_auc_takes_boolean_labels_undeclared():
    X, y = table(4000)
    settings = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    expected = private_auc_score(y, X[:, 0], **settings)
    assert private_auc_score(y == 1, X[:, 0], **settings) == expected


@pytest.mark.parametrize("classes", [("no", "yes"), (1, 2), (2, 4), (-1, 1), ("0", "1")])
def test_auc_of_labels_not_declared_is_refused_uncharged(classes):
    X, y = table()
    with PrivacyBudget(5.0) as budget:
        with pytest.raises(InvalidParameterError, match=r"classes=\[negative, positive\]"):
            private_auc_score(np.array(classes)[y], X[:, 0], epsilon=1.0, delta=1e-5, budget=budget)
        assert not budget.charges


@pytest.mark.parametrize("classes", [(1, 0), ("yes", "no"), (0, 1, 2), (1,), 1, None])
def test_auc_classes_that_are_no_ascending_pair_are_refused(classes):
    X, y = table()
    with pytest.raises(InvalidParameterError, match="classes must"):
        private_auc_score(y, X[:, 0], classes=classes, epsilon=1.0, delta=1e-5)


def test_auc_of_text_with_a_missing_label_is_refused():
    X, y = table()
    labels = np.array(["no", "yes"], dtype=object)[y]
    labels[0] = None
    with pytest.raises(InvalidParameterError, match="missing"):
        private_auc_score(labels, X[:, 0], classes=["no", "yes"], epsilon=1.0, delta=1e-5)


def test_scorer_charges_each_fold_beside_its_fit():
    X, y = table(90)
    with PrivacyBudget(9.0) as budget:
        model = PrivateAUCClassifier(1.0, 1e-6, classes=[0, 1], budget=budget)
        for metric in ("auc", "accuracy"):
            scorer = PrivateScorer(metric, epsilon=0.5, delta=1e-6, budget=budget)
            assert len(cross_val_score(model, X, y, scoring=scorer, cv=KFold(3))) == 3
        assert len(budget.charges) == 12
    with pytest.raises(InvalidParameterError, match="metric"):
        PrivateScorer("f1", epsilon=1.0)(model, X, y)


# -- the number of trials


def test_number_of_trials_follows_its_law():
    law = [float(p) for p in itertools.islice(chances(), 4000)]
    mean = sum(k * p for k, p in enumerate(law, 1))
    assert sum(law) == pytest.approx(1.0, abs=1e-9)
    assert MEAN_TRIALS * (1 - 1e-9) < mean <= MEAN_TRIALS
    source = Randomness(0)
    drawn = [number_of_trials(source) for _ in range(4000)]
    # The standard deviation of a draw is below 4 times the mean: 6 deviations of the average, false alarms below 1e-8.
    assert np.mean(drawn) == pytest.approx(MEAN_TRIALS, abs=6 * 4 * MEAN_TRIALS / math.sqrt(4000))
    assert np.mean(np.array(drawn) == 1) == pytest.approx(law[0], abs=6 * 0.5 / math.sqrt(4000))


def test_price_of_a_trial_reaches_the_price_of_the_search():
    limit, event = trial_price(2.0, 1e-5)
    assert 0 < limit < 0.2
    assert epsilon_of(event, 1e-5) <= 2.0
    assert epsilon_of(search_event(limit * 1.01), 1e-5) > 2.0


def test_theorem_of_papernot_and_steinke_is_what_is_charged():
    # rho' of the selection at every order is at least that of one trial, and grows with the mean.
    dearer = dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(0.01), 100.0, 0.0)
    events = gaussian_event(1 / math.sqrt(0.02)), search_event(0.01), dearer
    costs = [epsilon_of(event, 1e-5) for event in events]
    assert costs == sorted(costs)


# -- selection


def test_selection_returns_the_best_of_what_was_tried():
    tried = []

    def trial(candidate, account):
        account.charge(gaussian_event(1 / math.sqrt(2 * account.rho)))
        tried.append(candidate)
        return candidate, -candidate

    found = private_selection(trial, range(100), epsilon=2.0, random_state=3)
    assert (found.candidate, found.result, found.score) == (max(tried), -max(tried), max(tried))
    assert found.statement.epsilon == 2.0
    assert not found.statement.proved


def test_trial_cannot_spend_more_than_its_share():
    def greedy(_, account):
        account.charge(gaussian_event(1 / math.sqrt(2 * account.rho)))
        account.charge(gaussian_event(1000.0))

    with pytest.raises(BudgetExceededError, match="was refused"):
        private_selection(greedy, [1], epsilon=2.0)


def test_parts_of_a_trial_may_each_spend_the_whole():
    def trial(_, account):
        for name in ("training", "validation"):
            account.part(name).charge(gaussian_event(1 / math.sqrt(2 * account.rho)))
        return 0.0, None

    private_selection(trial, [1], epsilon=2.0)

    def mixed(_, account):
        account.charge(gaussian_event(1000.0))
        account.part("training")

    with pytest.raises(InvalidParameterError, match="parts"):
        private_selection(mixed, [1], epsilon=2.0)


@pytest.mark.parametrize(
    ("event", "terms", "error"),
    [
        (search_event(1e-6), {}, UnsupportedEventError),
        (gaussian_event(1e3), {"adjacency": Adjacency.ZERO_OUT}, InvalidParameterError),
        (gaussian_event(1e3), {"unit": "any 2 pairs"}, InvalidParameterError),
    ],
)
def test_trial_refuses_what_has_no_price(event, terms, error):
    with pytest.raises(error):
        private_selection(lambda _, account: account.charge(event, **terms), [1], epsilon=2.0)


def test_ended_trial_and_its_copies_charge_nothing():
    kept = []

    def trial(_, account):
        kept.append(account)
        return 0.0, pickle.loads(pickle.dumps(account))

    found = private_selection(trial, [1], epsilon=2.0)
    for account in (kept[-1], found.result):
        with pytest.raises(BudgetClosedError):
            account.charge(gaussian_event(1e3))


# -- search


@pytest.mark.parametrize("n", [10, 601])
def test_no_record_is_both_fitted_and_scored(n):
    training, tested = _split(n)
    assert len(tested) == round(0.3 * n)
    np.testing.assert_array_equal(np.sort(np.concatenate((training, tested))), np.arange(n))


def test_search_charges_once_and_states_its_own_price():
    X, y = table()
    with PrivacyBudget(3.0) as budget:
        found = search(budget=budget).fit(X, y)
        assert len(budget.charges) == 1
    for statement in (found.statement_, found.best_estimator_.statement_):
        assert (statement.epsilon, statement.delta, statement.proved) == (2.0, 1e-5, True)
    assert set(found.best_params_) == set(GRID)
    assert found.predict(X).shape == (600,)
    assert found.decision_function(X).shape == (600,)
    assert any("0.5, 1 or 2" in each for each in found.statement_.assumptions)


def test_search_is_a_classifier_as_its_learner_is():
    from sklearn.base import is_classifier

    pandas = pytest.importorskip("pandas")
    X, y = table()
    found = search(random_state=0)
    assert is_classifier(found)
    assert get_tags(found).target_tags.required
    found.fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    assert (found.n_features_in_, list(found.feature_names_in_)) == (2, ["a", "b"])


def test_score_of_a_search_is_the_exact_auc_of_the_winner():
    X, y = table()
    found = search(random_state=0).fit(X, y)
    assert found.score(X, y) == found.best_estimator_.score(X, y) > 0.7


def test_search_looks_into_pipelines_and_names_steps_that_learn():
    X, y = table()
    learner = PrivateAUCClassifier(1.0, classes=[0, 1])
    public = make_pipeline(PublicScaler(-2, 2, (-1.0, 1.0)), learner)
    grid = {"privateaucclassifier__data_norm": [1.0, 2.0]}
    assert PrivateSearchCV(public, grid, epsilon=2.0).fit(X, y).statement_.proved
    learned = make_pipeline(StandardScaler(), learner)
    with pytest.warns(UnsoundWarning, match="standardscaler"):
        found = PrivateSearchCV(learned, grid, epsilon=2.0).fit(X, y)
    assert not found.statement_.proved


@pytest.mark.parametrize(
    "settings",
    [
        {"scoring": "f1"},
        {"param_grid": {"epsilon": [1.0, 2.0]}},
        {"estimator": PrivateMetricLearner(1.0)},
        {"epsilon": math.inf},
        {"scoring": "accuracy", "param_grid": {"threshold_share": [0.0]}},
    ],
)
def test_search_refuses_what_it_cannot_price_uncharged(settings):
    X, y = table(100)
    with PrivacyBudget(9.0) as budget:
        with pytest.raises((InvalidParameterError, UnsupportedEventError)):
            search(budget=budget).set_params(**settings).fit(X, y)
        assert not budget.charges


def test_seeds_of_trials_do_not_travel_with_the_search():
    X, y = table()
    found = search(random_state=5).fit(X, y)
    kept = pickle.loads(pickle.dumps(found))
    assert kept.random_state is None
    assert not found.statement_.proved
