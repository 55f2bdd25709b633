"""Private selection against exact laws: what the best of a random number of trials reveals, and what it may charge."""

from __future__ import annotations

import copy
import decimal
import itertools
import math
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import chisquare
from sklearn.model_selection import GridSearchCV

from pairwise import (
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateScorer,
    TrialCount,
    private_selection,
)
from pairwise.accounting.accountant import epsilon_of, zcdp_cost
from pairwise.accounting.events import Adjacency, gaussian_event, pure_event, sampled_event
from pairwise.errors import (
    BudgetClosedError,
    BudgetExceededError,
    InvalidParameterError,
    UnsupportedEventError,
)
from pairwise.estimators.scores import private_auc_score
from pairwise.estimators.selection import TrialAccount
from pairwise.noise.randomness import Randomness
from tests.conftest import LEVEL

LAWS = [
    TrialCount(mean, shape) for mean in (1.0, 2.5, 10.0, 30.0) for shape in (0.0, 0.5, 1.0, 4.0)
]
POISSON = [TrialCount(mean, math.inf) for mean in (1.0, 3.0, 10.0)]
ORDERS = [1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0]


def _generating(count, x):
    """E[x^K] in closed form (Papernot and Steinke 2022, definition 1; exp(μ(x − 1)) for a Poisson K)."""
    if math.isinf(count.shape):
        return np.exp(count.mean * (x - 1.0))
    g, eta = count.gamma, count.shape
    if g == 1.0:
        return x
    if eta == 0:
        return np.log1p(-(1 - g) * x) / math.log(g)
    return np.expm1(-eta * np.log1p(-(1 - g) * x)) / math.expm1(-eta * math.log(g))


def _best(law, generating):
    """The law of the best of K trials: outcomes in order of their scores, 'none' first where K may be 0."""
    below = np.concatenate(([0.0], np.cumsum(law)))
    below[-1] = 1.0
    reached = generating(below)
    return np.concatenate(([reached[0]], np.diff(reached)))


def _divergence(p, q, order=math.inf):
    """Rényi divergence of two laws on one finite set, exactly."""
    kept = p > 0
    above, below = np.log(p[kept]), np.log(q[kept])
    if order == math.inf:
        return float((above - below).max())
    return float(logsumexp(order * above + (1 - order) * below)) / (order - 1)


def _both(p, q, order=math.inf):
    return max(_divergence(p, q, order), _divergence(q, p, order))


@st.composite
def _pure_trials(draw):
    """Two laws of one trial on up to six outcomes, and the ε at which neither is likelier than e^ε times the other."""
    size = draw(st.integers(2, 6))
    weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size))
    tilt = draw(st.lists(st.floats(-1.0, 1.0), min_size=size, max_size=size))
    p = np.array(weights) / np.sum(weights)
    q = p * np.exp(tilt)
    q /= q.sum()
    return p, q, max(_both(p, q), 1e-12)


# --------------------------------------------------------------------------------------------------------------------
# The theorem, against exact enumeration


@settings(max_examples=200)
@given(_pure_trials(), st.sampled_from(LAWS))
def test_the_best_of_pure_trials_costs_at_most_two_plus_eta_times_epsilon(trials, count):
    p, q, epsilon = trials
    best = [_best(law, lambda x: _generating(count, x))[1:] for law in (p, q)]
    assert _both(*best) <= (2 + count.shape) * epsilon * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("shape", [0.0, 1.0, 3.0])
def test_the_pure_price_is_reached_so_no_smaller_one_is_true(shape):
    # An outcome that is e^ε times as likely, below outcomes that are e^ε times less likely, each seldom beaten.
    epsilon, above, here = 0.3, 1e-2, 1e-5
    p = np.array([1 - above - here, here, above])
    q = np.array([0.0, here * math.exp(epsilon), above * math.exp(-epsilon)])
    q[0] = 1 - q.sum()
    assert _both(p, q) <= epsilon * (1 + 1e-9)
    count = TrialCount(1e6, shape)
    reached = _both(*(_best(law, lambda x: _generating(count, x))[1:] for law in (p, q)))
    assert 0.97 * (2 + shape) * epsilon < reached <= (2 + shape) * epsilon


def test_the_best_of_a_fixed_number_of_trials_costs_more_than_any_such_bound():
    # Twenty trials of epsilon 0.5: the worst outcome is the best of twenty only if all of them gave it.
    epsilon, k = 0.5, 20
    p = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    q = p[::-1]
    fixed = _both(*(_best(law, lambda x: x**k)[1:] for law in (p, q)))
    assert fixed == pytest.approx(k * epsilon)
    for count in (TrialCount(k, 0.0), TrialCount(k, 1.0)):
        random = _both(*(_best(law, lambda x, c=count: _generating(c, x))[1:] for law in (p, q)))
        assert random <= (2 + count.shape) * epsilon < fixed


@settings(max_examples=40)
@given(_pure_trials(), st.sampled_from(LAWS + POISSON))
def test_the_best_of_trials_keeps_the_rényi_bound_that_is_charged(trials, count):
    p, q, _ = trials
    # The least ρ at which this trial is zCDP, over a fine grid of orders; below and above it the ratio is monotone or flat.
    orders = np.concatenate((1 + np.logspace(-6, 0, 12), np.logspace(0.31, 4, 30)))
    rho = max(_both(p, q, order) / order for order in orders) * 1.01 + 1e-12
    accountant = RdpAccountant(ORDERS, Adjacency.REPLACE_ONE.relation)
    accountant.compose(count.event(rho))
    best = [_best(law, lambda x: _generating(count, x)) for law in (p, q)]
    for order, bound in zip(ORDERS, accountant.rdp, strict=True):
        assert _both(*best, order) <= bound * (1 + 1e-6) + 1e-9


# --------------------------------------------------------------------------------------------------------------------
# The number of trials


@pytest.mark.parametrize("count", LAWS + POISSON, ids=repr)
def test_probabilities_of_the_number_of_trials_sum_to_the_generating_function(count):
    with decimal.localcontext() as context:
        context.prec = 80
        chances = [float(c) for c in itertools.islice(count.probabilities(), 6000)]
    assert sum(chances) == pytest.approx(1.0, abs=1e-9)
    mean = math.fsum(k * c for k, c in enumerate(chances))
    assert mean <= count.mean * (1 + 1e-9)
    assert mean == pytest.approx(count.mean, rel=1e-6)
    for x in (0.0, 0.3, 0.9):
        series = math.fsum(c * x**k for k, c in enumerate(chances))
        assert series == pytest.approx(float(_generating(count, x)), abs=1e-9)


@pytest.mark.parametrize(
    "count", [TrialCount(4.0, 0.0), TrialCount(4.0, 1.0), TrialCount(4.0, math.inf)]
)
def test_the_number_of_trials_has_the_law_that_is_priced(count):
    randomness, draws = Randomness(5), 2000
    drawn = np.bincount([min(count.draw(randomness), 12) for _ in range(draws)], minlength=13)
    with decimal.localcontext() as context:
        context.prec = 80
        law = np.array([float(c) for c in itertools.islice(count.probabilities(), 12)])
    law = np.append(law, 1 - law.sum())
    assert drawn[law == 0].sum() == 0
    kept = law > 0
    assert chisquare(drawn[kept], draws * law[kept]).pvalue > LEVEL
    assert decimal.getcontext().prec == decimal.Context().prec  # left as it was


@pytest.mark.parametrize(
    "bad",
    [{"mean": m} for m in (0.5, 1 + 1e-9, 1e9, math.inf)]
    + [{"shape": s} for s in (-0.5, 1e-300, 1e300, math.nan)],
)
def test_laws_that_are_none_are_refused(bad):
    with pytest.raises(InvalidParameterError, match=next(iter(bad))):
        TrialCount(**bad)


# --------------------------------------------------------------------------------------------------------------------
# The search


def test_what_a_search_releases_has_the_law_that_was_enumerated():
    # Two settings, outcomes 0..2 that are their own scores: one trial has the mean of the two laws.
    laws = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    coin, count, runs = np.random.default_rng(0), TrialCount(3.0, 0.0), 1500

    def trial(setting, account):
        account.charge(pure_event(0.1))
        outcome = int(coin.choice(3, p=laws[setting]))
        return outcome, outcome

    randomness = Randomness(7)
    found = np.bincount(
        [
            private_selection(
                trial, [0, 1], epsilon=1.0, delta=0.0, count=count, random_state=randomness
            ).result
            for _ in range(runs)
        ],
        minlength=3,
    )
    expected = _best(laws.mean(axis=0), lambda x: _generating(count, x))[1:]
    assert chisquare(found, runs * expected).pvalue > LEVEL


@pytest.mark.parametrize("count", [TrialCount(), TrialCount(20.0, 1.0), TrialCount(5.0, math.inf)])
def test_a_search_has_one_price_whatever_the_number_of_settings(count):
    limits = []

    def trial(setting, account):
        limits.append(account.rho)
        account.charge(dp_event.ZCDpEvent(account.rho))
        return 0.0, setting

    for size in (1, 1000):
        found = private_selection(trial, range(size), epsilon=2.0, delta=1e-5, count=count)
        assert found.statement.epsilon == 2.0
        assert found.statement.proved
        assert 1.99 < epsilon_of(found.event, 1e-5) <= 2.0 * (1 + 1e-9)
    assert len(set(limits)) <= 1


def test_the_price_is_charged_before_the_first_trial_and_a_search_that_does_not_fit_is_refused():
    tried = []

    def trial(setting, account):
        tried.append(setting)
        return 0.0, setting

    with PrivacyBudget(2.0, 1e-5) as budget:
        private_selection(trial, [1, 2], epsilon=1.5, delta=1e-5, budget=budget)
        assert [charge.label for charge in budget.charges] == ["private_selection"]
        before = len(tried)
        with pytest.raises(BudgetExceededError):
            private_selection(trial, [1, 2], epsilon=1.5, delta=1e-5, budget=budget)
        assert len(tried) == before
        budget.charge(dp_event.ZCDpEvent(1e-4))  # a selection composes with other releases
        assert 1.5 < budget.spent() <= 2.0


def test_the_best_score_wins_and_a_score_that_is_no_number_never_does():
    scores = iter([0.2, math.nan, 0.9, 0.4] * 100)

    def trial(setting, account):
        score = next(scores)
        return score, score

    found = private_selection(
        trial, ["a"], epsilon=1.0, count=TrialCount(40.0, 4.0), random_state=3
    )
    assert found.score == found.result == 0.9
    assert found.candidate == "a"
    assert not found.statement.proved  # a seed was given


def test_no_trial_at_all_releases_nothing_of_the_records():
    never = TrialCount(1.0, math.inf)
    found = [
        private_selection(lambda s, a: (1.0, s), [1], epsilon=1.0, count=never, random_state=seed)
        for seed in range(12)
    ]
    empty = [each for each in found if each.candidate is None]
    assert empty
    assert all(math.isnan(each.score) and each.result is None for each in empty)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"candidates": []}, "candidates"),
        ({"epsilon": math.inf}, "price"),
        ({"delta": 0.0, "count": TrialCount(3.0, math.inf)}, "Poisson"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_searches_without_a_price_are_refused(change, words):
    given_ = {"candidates": [1], "epsilon": 1.0, **change}
    with pytest.raises(InvalidParameterError, match=words):
        private_selection(lambda s, a: (0.0, s), **given_)


# --------------------------------------------------------------------------------------------------------------------
# What a trial may charge


def _account(limit=0.01, pure=False):
    return TrialAccount(limit, pure, Adjacency.REPLACE_ONE, "one record")


def test_a_trial_that_charges_more_than_its_price_is_refused():
    account = _account()
    account.charge(gaussian_event(1 / math.sqrt(2 * 0.006)))
    with pytest.raises(BudgetExceededError, match="Nothing was drawn"):
        account.charge(dp_event.ZCDpEvent(0.005))
    account.charge(dp_event.ZCDpEvent(0.004 * (1 - 1e-9)))


@pytest.mark.parametrize(
    ("pure", "event"), [(False, sampled_event(4.0, 100, 5, 3)), (True, gaussian_event(1e6))]
)
def test_a_trial_cannot_charge_what_the_price_does_not_cover(pure, event):
    with pytest.raises((UnsupportedEventError, BudgetExceededError)):
        _account(pure=pure).charge(event)


def test_another_adjacency_or_unit_is_refused():
    with pytest.raises(InvalidParameterError, match="replace-one"):
        _account().charge(pure_event(0.01), adjacency="zero-out")
    with pytest.raises(InvalidParameterError, match="one record"):
        _account().charge(pure_event(0.01), unit="any 3 pairs")


def test_parts_of_the_rows_have_the_whole_price_each_and_all_rows_then_none():
    account = _account()
    for name in ("training", "validation"):
        account.part(name).charge(dp_event.ZCDpEvent(0.01))
        with pytest.raises(BudgetExceededError):
            account.part(name).charge(dp_event.ZCDpEvent(0.001))
    with pytest.raises(InvalidParameterError, match="divided into parts"):
        account.charge(dp_event.ZCDpEvent(0.001))
    spent = _account()
    spent.charge(dp_event.ZCDpEvent(0.001))
    with pytest.raises(InvalidParameterError, match="cannot be divided"):
        spent.part("training")


def test_copies_charge_the_same_account_and_other_processes_none():
    account = _account()
    copy.deepcopy(copy.copy(account)).charge(dp_event.ZCDpEvent(0.01))
    with pytest.raises(BudgetExceededError):
        account.charge(dp_event.ZCDpEvent(0.001))
    with pytest.raises(BudgetClosedError):
        pickle.loads(pickle.dumps(_account())).charge(dp_event.ZCDpEvent(0.001))


def test_an_account_ends_with_its_trial():
    left = []

    def trial(setting, account):
        left.append(account)
        left.append(account.part("training"))
        return 0.0, setting

    private_selection(trial, [1], epsilon=1.0, count=TrialCount(1.0))
    for account in left:
        with pytest.raises(BudgetClosedError):
            account.charge(pure_event(1e-6))


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_the_epsilon_of_an_account_is_what_a_fit_may_ask_for(share):
    account = _account(0.02)
    X = np.random.default_rng(0).normal(size=(40, 2)) * 0.3
    epsilon = account.epsilon(1e-6, share)
    model = PrivateAUCClassifier(epsilon=epsilon, delta=1e-6, classes=[0, 1], budget=account)
    model.fit(X, np.arange(40) % 2)
    assert 0.99 * share * 0.02 < zcdp_cost(model.privacy_event_) <= share * 0.02
    assert _account(0.3, pure=True).epsilon(share=share) == pytest.approx(0.3 * share)


def test_a_private_model_is_found_among_settings_at_one_price():
    r = np.random.default_rng(1)
    y = np.arange(800) % 2
    X = r.normal(size=(800, 3)) * 0.3 + np.outer(2 * y - 1, [0.3, 0.0, 0.0])

    def trial(setting, account):
        fit, score = account.part("training"), account.part("validation")
        model = PrivateAUCClassifier(
            epsilon=fit.epsilon(), delta=1e-6, classes=[0, 1], budget=fit, data_norm=setting
        ).fit(X[::2], y[::2])
        auc = private_auc_score(
            y[1::2],
            model.decision_function(X[1::2]),
            epsilon=score.epsilon(),
            delta=1e-6,
            budget=score,
        )
        return auc, model

    with PrivacyBudget(3.0, 1e-5) as budget:
        found = private_selection(trial, [1e-3, 0.5, 1.0], epsilon=3.0, budget=budget)
        assert found.result.data_norm == found.candidate
        assert 0 <= found.score <= 1
        assert len(budget.charges) == 1


# --------------------------------------------------------------------------------------------------------------------
# The scorer


@pytest.mark.parametrize("metric", ["auc", "accuracy"])
def test_a_search_with_a_private_scorer_charges_every_fit_and_every_score(metric):
    X = np.random.default_rng(0).normal(size=(80, 2)) * 0.3
    y = np.where(np.arange(80) % 2, "yes", "no")
    with PrivacyBudget(20.0, 1e-3) as budget:
        model = PrivateAUCClassifier(epsilon=0.5, delta=1e-5, classes=["no", "yes"], budget=budget)
        scorer = PrivateScorer(metric, epsilon=0.5, delta=1e-5, budget=budget)
        search = GridSearchCV(model, {"data_norm": [0.5, 1.0]}, cv=3, scoring=scorer).fit(X, y)
        labels = [charge.label for charge in budget.charges]
    assert labels.count("PrivateAUCClassifier") == 7
    assert labels.count(f"private_{metric}_score") == 6
    assert 0 <= search.best_score_ <= 1


def test_a_score_that_would_pass_the_limit_is_refused():
    X, y = np.zeros((20, 1)), np.arange(20) % 2
    fitted = PrivateAUCClassifier(classes=[0, 1]).fit(X, y)
    with PrivacyBudget(0.1, 1e-3) as budget, pytest.raises(BudgetExceededError):
        PrivateScorer("auc", epsilon=1.0, delta=1e-5, budget=budget)(fitted, X, y)
    with pytest.raises(InvalidParameterError, match="metric"):
        PrivateScorer("f1", epsilon=1.0)(fitted, X, y)


@pytest.mark.parametrize("mean", [1.0, 1.001, 1e6])
@pytest.mark.parametrize("shape", [0.0, 1e-6, 1.0, 1e6])
def test_every_law_that_is_taken_has_its_mean(mean, shape):
    count = TrialCount(mean, shape)
    g = count.gamma
    mass = -math.log(g) if shape == 0 else -math.expm1(shape * math.log(g)) / shape
    # γ is found to 1e-12 of itself, and 1 − γ is at least 1e-3/(1 + η) of what the mean is above 1.
    assert g == 1.0 if mean == 1 else (1 / g - 1) / mass == pytest.approx(mean, rel=1e-2)


class Slow(float):
    """A limit that another thread gets ahead of while it is compared."""

    def __ge__(self, other):
        time.sleep(0.05)
        return float(self) >= other


def test_threads_of_a_trial_cannot_spend_its_price_twice():
    account = _account(Slow(0.01))
    with ThreadPoolExecutor(4) as pool:
        charged = [pool.submit(account.charge, dp_event.ZCDpEvent(0.006)) for _ in range(4)]
    refused = [each.exception() for each in charged if each.exception()]
    assert len(refused) == 3
    assert all(isinstance(each, BudgetExceededError) for each in refused)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_cannot_spend_the_price_of_a_trial_again():
    account = _account()
    child = os.fork()
    if not child:
        try:
            account.charge(dp_event.ZCDpEvent(0.01))
        except BudgetClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    account.charge(dp_event.ZCDpEvent(0.01))
