"""All estimators alike: scikit-learn's contract, budgets under model selection, seeds, exact noise, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import ZCDpEvent
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairwise import (
    DPPMetricLearner,
    Gradient,
    OffPair,
    OnPair,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMetricLearner,
    SGDOutput,
    UnsoundWarning,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import Adjacency, gaussian_event
from pairwise.accounting.gaussian import gaussian_delta
from pairwise.algorithms import giga, sgd
from pairwise.errors import BudgetExceededError, PairwiseError
from pairwise.noise import release
from pairwise.noise.randomness import (
    CHEAP_PATH_NOTE,
    HARDENED_LARGE_NOTE,
    HARDENED_NOTE,
    Randomness,
)
from pairwise.plan import Plan

PERTURBATION_ALGORITHMS = ("onpairstrc", "onpairc", "offpairstrc", "offpairc", "sgd-output")
CONVEX_ALGORITHMS = (*PERTURBATION_ALGORITHMS, "ftrl")

ALGORITHMS = ("gradient", *CONVEX_ALGORITHMS, "statistics")
EVERY = [
    *(PrivateAUCClassifier(algorithm=a, classes=[0, 1]) for a in ALGORITHMS),
    *(PrivateMetricLearner(algorithm=a, classes=[0, 1]) for a in (*ALGORITHMS, "matching")),
    PrivateLDA(classes=[0, 1]),
    DPPMetricLearner(algorithm="matching"),
]


def _name(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'algorithm', '')}"


def _table(n=60, d=3, seed=0):
    r = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = r.normal(size=(n, d)) * 0.2
    X[:, 0] += 0.3 * (2 * y - 1)
    return X, y


every_estimator = pytest.mark.parametrize("estimator", EVERY, ids=_name)


# --------------------------------------------------------------------------------------------------------------------
# scikit-learn's contract


@parametrize_with_checks(
    [
        PrivateAUCClassifier(),
        PrivateAUCClassifier(algorithm="pointwise"),
        # A threshold for 200 records is private at epsilon 1 too, and one in ten of them is below the accuracy asked for.
        PrivateAUCClassifier(2.0, algorithm="statistics"),
        PrivateAUCClassifier(algorithm="offpairc"),
        PrivateAUCClassifier(algorithm="sgd-output"),
        # A stream of 200 records releases every iterate; at epsilon 1 that is more noise than signal.
        PrivateAUCClassifier(algorithm=OnPair(strong=False, horizon=500), epsilon=200.0),
        PrivateAUCClassifier(hardened=True),
        PrivateLDA(),
        PrivateMetricLearner(),
        PrivateMetricLearner(algorithm="gradient"),
        PrivateMetricLearner(algorithm="statistics"),
        PrivateMetricLearner(algorithm="offpairstrc"),
        PrivateMetricLearner(algorithm=OnPair(strong=False, horizon=500)),
        DPPMetricLearner(algorithm="matching"),
    ]
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@every_estimator
def test_a_fit_says_what_it_promises_and_what_it_cost(estimator):
    fitted = clone(estimator).set_params(epsilon=0.8, delta=1e-5).fit(*_table())
    assert fitted.statement_.epsilon == 0.8
    assert fitted.statement_.delta == 1e-5
    assert fitted.statement_.proved
    assert fitted.statement_.unit == "one record"
    assert 0.79 < epsilon_of(fitted.privacy_event_, 1e-5) <= 0.8 * (1 + 1e-9)
    assert fitted.sensitivity() > 0


def test_estimators_work_inside_a_pipeline():
    X, y = make_classification(80, 4, random_state=0)
    pipeline = make_pipeline(Normalizer(), PrivateAUCClassifier(random_state=0)).fit(X, y)
    assert pipeline.decision_function(X).shape == (80,)


def test_feature_names_are_kept_and_checked():
    pandas = pytest.importorskip("pandas")
    X, y = _table()
    table = pandas.DataFrame(X, columns=["a", "b", "c"])
    for estimator in (EVERY[0], EVERY[7], PrivateLDA(), DPPMetricLearner(algorithm="matching")):
        fitted = clone(estimator).fit(table, y)
        assert list(fitted.feature_names_in_) == ["a", "b", "c"]
        use = getattr(fitted, "transform", None) or fitted.decision_function
        with pytest.raises(ValueError, match="feature names"):
            use(table[["c", "b", "a"]])


# --------------------------------------------------------------------------------------------------------------------
# Budgets


def _agreement(estimator, X, y):
    """Score a metric without looking at anything private: any number will do."""
    return float(estimator.components_[0, 0])


@pytest.mark.parametrize(
    "estimator",
    [
        PrivateAUCClassifier(classes=[0, 1]),
        PrivateMetricLearner(classes=[0, 1]),
        PrivateLDA(classes=[0, 1]),
        DPPMetricLearner(algorithm="matching"),
    ],
    ids=_name,
)
def test_a_grid_search_with_sixteen_fits_charges_sixteen_fits(estimator):
    X, y = make_classification(80, 4, random_state=0)
    scoring = None if hasattr(estimator, "predict") else _agreement
    with PrivacyBudget(epsilon=20.0, delta=1e-3) as budget:
        model = clone(estimator).set_params(epsilon=0.5, delta=1e-4, budget=budget)
        grid = {"data_norm": [0.5, 1.0, 1.5, 2.0, 3.0]}
        GridSearchCV(model, grid, cv=3, scoring=scoring).fit(X, y)  # 15 folds and the refit
        assert len(budget.charges) == 16
        assert 0.5 < budget.spent() < 16 * 0.5


@every_estimator
def test_the_fit_that_would_pass_the_limit_is_refused_also_on_a_clone(estimator):
    X, y = _table()
    with PrivacyBudget(epsilon=1.0, delta=1e-4) as budget:
        model = clone(estimator).set_params(epsilon=0.9, delta=1e-4, budget=budget).fit(X, y)
        with pytest.raises(BudgetExceededError):
            clone(model).fit(X, y)
        assert len(budget.charges) == 1


@every_estimator
def test_a_budget_for_the_change_of_several_records_refuses_a_fit_for_one(estimator):
    X, y = _table()
    with PrivacyBudget(epsilon=10.0, delta=1e-4, unit="any 3 records") as budget:
        with pytest.raises(PairwiseError, match="protects 'any 3 records'"):
            clone(estimator).set_params(delta=1e-4, budget=budget).fit(X, y)
        assert len(budget.charges) == 0


# --------------------------------------------------------------------------------------------------------------------
# Seeds


@every_estimator
def test_a_seeded_fit_is_called_not_proved_and_says_why(estimator):
    X, y = _table()
    seeded = clone(estimator).set_params(random_state=3).fit(X, y).statement_
    assert not seeded.proved
    assert any("random_state" in note for note in seeded.notes)
    assert "NOT PROVED" in seeded.paragraph()


@every_estimator
def test_a_fit_without_a_seed_is_called_proved(estimator):
    assert clone(estimator).fit(*_table()).statement_.proved


@every_estimator
def test_the_same_seed_repeats_a_fit_and_no_seed_never_does(estimator):
    if isinstance(estimator, PrivateLDA):
        pytest.skip("its parameter has another name")
    # Of fewer records shrinkage may leave nothing but the Euclidean metric, every time; scores are never shrunk so far.
    X, y = _table(n=150 if isinstance(estimator, PrivateAUCClassifier) else 600)

    # How many steps follow one another changes nothing of what is asked here.
    few = Gradient(steps=5) if estimator.algorithm == "gradient" else estimator.algorithm

    def learned(seed):
        fitted = clone(estimator).set_params(random_state=seed, algorithm=few).fit(X, y)
        return getattr(fitted, "components_", getattr(fitted, "coef_", None))

    assert np.array_equal(learned(5), learned(5))
    assert not np.array_equal(learned(None), learned(None))


@every_estimator
def test_a_seed_does_not_travel_with_what_was_fitted(estimator):
    import pickle

    model = clone(estimator).set_params(random_state=5)
    assert pickle.loads(pickle.dumps(model)).random_state == 5
    assert pickle.loads(pickle.dumps(model.fit(*_table()))).random_state is None


def test_a_plan_that_costs_more_than_was_asked_for_is_stated_at_its_cost():
    event = gaussian_event(0.5)
    plan = Plan(event, 1.0, lambda: None, "a release with too little noise", "")
    learner = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1])
    learner._execute(plan, 1e-5, Randomness())
    assert learner.statement_.epsilon == epsilon_of(event, 1e-5) > 1.0


def test_a_fit_without_noise_needs_no_confession():
    fitted = PrivateAUCClassifier(epsilon=math.inf, random_state=1).fit(*_table())
    assert not any("random_state" in note for note in fitted.statement_.notes)


# --------------------------------------------------------------------------------------------------------------------
# Exact noise


@every_estimator
def test_exact_noise_is_stated_and_costs_at_most_epsilon(estimator):
    fitted = clone(estimator).set_params(hardened=True, epsilon=0.8, delta=1e-5).fit(*_table())
    assert HARDENED_NOTE in fitted.statement_.notes
    assert CHEAP_PATH_NOTE not in fitted.statement_.notes
    assert fitted.statement_.proved
    assert fitted.statement_.epsilon == 0.8
    assert 0.79 < epsilon_of(fitted.privacy_event_, 1e-5) <= 0.8 * (1 + 1e-6)
    assert "ZCDpEvent" in repr(fitted.privacy_event_)


def test_exact_noise_on_very_many_records_says_what_is_not_covered():
    X, y = np.full((100_000, 1), 0.5), np.arange(100_000) % 2
    notes = PrivateLDA(hardened=True, classes=[0, 1]).fit(X, y).statement_.notes
    assert HARDENED_LARGE_NOTE in notes


@every_estimator
@pytest.mark.parametrize("hardened", [None, True])
def test_no_float_noise_is_drawn_unless_it_was_asked_for(estimator, hardened, monkeypatch):
    def refuse(value, sigma, randomness):
        raise AssertionError("noise in floating point")

    # Where releases look it up: they do not read the name of the package.
    monkeypatch.setattr(release, "gaussian", refuse)
    clone(estimator).set_params(hardened=hardened).fit(*_table())


@pytest.mark.parametrize(
    "estimator",
    [
        PrivateAUCClassifier(hardened=True, algorithm=Gradient(batch_size=10)),
        PrivateAUCClassifier(hardened=True, algorithm="offpairc", mode="published"),
        PrivateMetricLearner(hardened=True, algorithm=Gradient(batch_size=10)),
        PrivateMetricLearner(hardened=True, algorithm="sgd-output", mode="published"),
    ],
    ids=_name,
)
def test_exact_noise_is_refused_where_its_cost_is_not_known(estimator):
    with pytest.raises(PairwiseError, match="hardened"):
        estimator.fit(*_table())


def test_the_rounding_of_a_whole_stream_is_paid_for(monkeypatch):
    released = []
    real = release.lattice_gaussian

    def spy(value, plan, randomness):
        released.append((value.copy(), plan))
        return real(value, plan, randomness)

    monkeypatch.setattr(release, "lattice_gaussian", spy)
    X, y = np.full((8, 1), -0.999), np.zeros(8, int)
    y[1] = 1
    paths = []
    for first, label in ((0.999, 1), (-0.999, 0)):
        X[0], y[0] = first, label
        released.clear()
        fitted = PrivateAUCClassifier(
            algorithm="onpairc", hardened=True, classes=[0, 1], threshold_share=0.0
        ).fit(X, y)
        rounded = [np.round(v / p.grid) * p.grid / p.scale for v, p in released]
        paths.append(np.concatenate(rounded))
    moved = float(np.linalg.norm(paths[0] - paths[1]))
    assert isinstance(fitted.privacy_event_, ZCDpEvent)
    rho = fitted.privacy_event_.rho
    assert 0.5 * math.sqrt(2 * rho) < moved <= math.sqrt(2 * rho)


# --------------------------------------------------------------------------------------------------------------------
# Published forms, alike for rankings and metrics


@pytest.mark.parametrize("cls", [PrivateAUCClassifier, PrivateMetricLearner])
@pytest.mark.parametrize("algorithm", PERTURBATION_ALGORITHMS)
def test_published_forms_warn_and_state_what_is_true_of_them(cls, algorithm):
    X, y = _table()
    published = cls(algorithm=algorithm, mode="published", classes=[0, 1])
    if algorithm == "sgd-output":
        published.set_params(algorithm__steps=60)  # steps of one record in M take time
    else:
        published.set_params(algorithm__allow_vacuous=True)
    with pytest.warns(UnsoundWarning):
        statement = published.fit(X, y).statement_
    if algorithm == "sgd-output":
        assert not statement.proved
        assert 0 < statement.delta < 1e-5
    else:
        # T1 covers all 60 records: nothing that depends on them was released.
        assert statement.epsilon == 0.0
        assert any("nothing that depends" in note for note in statement.notes)


def _assert_stated(learner, moved, sigma):
    """That a published form states its true sensitivity and delta, of noise of this size, at epsilon 1."""
    assert learner.sensitivity() == pytest.approx(moved, rel=1e-9)
    true = gaussian_delta(1.0, moved / sigma)
    assert 0 < true < learner.delta
    assert learner.statement_.delta == pytest.approx(true, rel=1e-6, abs=0.0)


def test_a_published_offline_metric_states_the_delta_of_its_certified_sensitivity():
    # Of records of norm R pair gradients in M have G = 4R² and L = 4R⁴, and differ by 2G at most.
    X, y = _table()
    R, n = 0.3, len(X)
    G, L = 4 * R**2, 4 * R**4
    learner = PrivateMetricLearner(
        algorithm=OffPair(alpha=1.0), mode="published", data_norm=R, classes=[0, 1], delta=1e-5
    )
    with pytest.warns(UnsoundWarning, match="H-2"):
        learner.fit(X, y)
    steps = giga.schedule(
        n, L + 1.0, 1.0, kind="published", burn_in=giga.published_burn_in(L + 1, 1)
    )
    moved = giga.certified_sensitivity(steps, 2 * G, L, 2 * R**-2).average * steps.active / n
    sigma = giga.published_offline_sigma(n, G, 1.0, 1.0, 1e-5)
    _assert_stated(learner, moved, sigma)


def test_a_published_run_of_sgd_states_the_delta_of_the_sequence_that_was_drawn():
    X, y = _table()
    R, n, T = 0.3, len(X), 60
    learner = PrivateMetricLearner(
        algorithm=SGDOutput(steps=T, radius=1e6),
        mode="published",
        data_norm=R,
        classes=[0, 1],
        delta=1e-2,
        random_state=0,
    )
    with pytest.warns(UnsoundWarning):
        learner.fit(X, y)
    indices = Randomness(0).integers(n, (T,))
    moved = sgd.realised_sensitivity(indices, n, T**-0.5, 8 * R**2, smooth=True)
    sigma = sgd.published_sigma(n, T, T**-0.5, 4 * R**2, 1.0, 1e-2)
    _assert_stated(learner, moved, sigma)


def test_the_sensitivity_of_an_offline_metric_is_certified_for_gradients_that_turn_round():
    X, y = _table()
    options = OffPair(strong=False, rate=1e-3)
    learner = PrivateMetricLearner(algorithm=options, classes=[0, 1]).fit(X, y)
    steps = giga.schedule(len(X), 4.0, 0.0, kind="constant", rate=1e-3)
    expected = giga.certified_sensitivity(steps, 2 * 4.0, 4.0, 2.0).average
    assert learner.sensitivity() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("algorithm", [OnPair(strong=False, alpha=1.0), OffPair(alpha=1.0)])
def test_a_published_metric_with_a_burn_in_below_n_states_its_cost(algorithm):
    # Records of norm 0.3 have 4R⁴ = 0.03, so T₁ = ⌈16 (1 + 0.03)²⌉ = 18 at α = 1.
    X, y = _table()
    learner = PrivateMetricLearner(
        algorithm=algorithm, mode="published", data_norm=0.3, classes=[0, 1]
    )
    with pytest.warns(UnsoundWarning, match="H-2"):
        fitted = learner.fit(X, y)
    assert fitted.statement_.epsilon == 1.0
    assert 0 < fitted.statement_.delta <= 1e-5
    spent = epsilon_of(fitted.privacy_event_, 1e-5, Adjacency.REPLACE_ONE)
    assert spent <= 1.0
