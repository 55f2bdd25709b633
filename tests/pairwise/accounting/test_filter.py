"""What a budget accepts where every release, its noise included, may be chosen by the results of those before."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.budget import PrivacyBudget
from pairwise.accounting.events import (
    Adjacency,
    ApproximateDpEvent,
    compose,
    gaussian_event,
    group_poisson_event,
    poisson_event,
    pure_event,
    sampled_event,
)
from pairwise.accounting.filters import _dominating_mu, _renyi_order
from pairwise.accounting.gaussian import gaussian_delta, gaussian_sigma
from pairwise.accounting.zcdp import zcdp_rho
from pairwise.errors import BudgetExceededError, InvalidParameterError, UnsupportedEventError
from pairwise.estimators.selection import TrialAccount

DELTA = 1e-5


def _response(epsilon):
    """Randomised response between two data sets: what each of its two outcomes is drawn with under either."""
    true = math.exp(epsilon) / (1 + math.exp(epsilon))
    return {0: (true, 1 - true), 1: (1 - true, true)}


def _leak(delta):
    """(0, delta)-DP: says which data set it is, or nothing."""
    return {"p": (delta, 0.0), "q": (0.0, delta), "-": (1 - delta, 1 - delta)}


def _hockey_stick(first, then, epsilon):
    """The exact delta at epsilon of two releases, the second of which depends on what came out of the first."""
    total = 0.0
    for outcome, (p, q) in first.items():
        for p2, q2 in then(outcome).values():
            total += max(0.0, p * p2 - math.exp(epsilon) * q * q2)
    return total


def _least_rate(first, target, epsilon):
    """The epsilon of a randomised response that brings a product with ``first`` to a delta."""

    def excess(rate):
        return _hockey_stick(first, lambda _: _response(rate), epsilon) - target

    return brentq(excess, 0.0, 5.0) * (1 - 1e-9)


def test_a_budget_refuses_what_would_let_an_adaptive_analyst_pass_its_delta():
    # The limit is (1, 0.05). Either continuation alone stays within it, yet choosing between them by the first result
    # does not: so a rule that adds up whatever was charged, in whatever order it was chosen, is no filter.
    epsilon, delta = 1.0, 0.05
    first = _response(0.5)
    rate = _least_rate(first, delta, epsilon)
    harmless = _hockey_stick(first, lambda _: _leak(delta * 0.999), epsilon)
    assert _hockey_stick(first, lambda _: _response(rate), epsilon) <= delta
    assert harmless <= delta
    chosen = _hockey_stick(
        first, lambda seen: _response(rate) if seen == 0 else _leak(delta * 0.999), epsilon
    )
    assert chosen > 1.2 * delta
    # What was done before: every product is within the limit by its own account.
    for second in (pure_event(rate * 0.99), ApproximateDpEvent(0.0, delta * 0.99)):
        assert epsilon_of(compose([pure_event(0.5), second]), delta, interval=1e-4) <= epsilon
    accepted = 0
    for second in (pure_event(rate * 0.99), ApproximateDpEvent(0.0, delta * 0.99)):
        with PrivacyBudget(epsilon, delta) as budget:
            budget.charge(pure_event(0.5))
            try:
                budget.charge(second)
                accepted += 1
            except (BudgetExceededError, UnsupportedEventError):
                pass
    assert accepted <= 1


@pytest.mark.parametrize("count", [1, 3, 10])
def test_equal_gaussian_releases_fill_a_budget_exactly(count):
    step = gaussian_event(gaussian_sigma(1.0, DELTA, steps=count))
    with PrivacyBudget(1.0, DELTA) as budget:
        for _ in range(count):
            budget.charge(step)
        assert budget.spent() == pytest.approx(1.0, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            budget.charge(gaussian_event(500.0))


@pytest.mark.parametrize("count", [1, 3, 10])
def test_equal_zcdp_releases_fill_a_budget_exactly(count):
    step = dp_event.ZCDpEvent(zcdp_rho(1.0, DELTA) / count)
    with PrivacyBudget(1.0, DELTA) as budget:
        for _ in range(count):
            budget.charge(step)
        assert budget.spent() == pytest.approx(1.0, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            budget.charge(dp_event.ZCDpEvent(1e-4))


@given(st.floats(1e-3, 30.0), st.floats(-35.0, 35.0))
def test_the_gaussian_that_stands_for_a_pure_release_dominates_it(epsilon, threshold):
    # δ at every threshold: that of the extreme pair of the pure release is at most that of the Gaussian.
    p, q = _response(epsilon)[0]
    odds = math.exp(threshold)
    pure = max(0.0, p - odds * q) + max(0.0, q - odds * p)
    assert pure <= gaussian_delta(threshold, _dominating_mu(epsilon)) * (1 + 1e-9) + 1e-15


KINDS = {
    "gaussian": gaussian_event(40.0),
    "zcdp": dp_event.ZCDpEvent(0.001),
    "pure": pure_event(0.05),
    "laplace": dp_event.LaplaceDpEvent(20.0),
    "discrete laplace": dp_event.DiscreteLaplaceDpEvent(0.05, 1),
    "response": dp_event.RandomizedResponseDpEvent(0.9, 2),
    "sampled": sampled_event(4.0, 1000, 50, 10),
    "selection": dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(0.0002), 5.0, 0.0),
}


@pytest.mark.parametrize(
    "order", list(itertools.islice(itertools.permutations(KINDS), 0, None, 9001))
)
def test_all_kinds_with_a_rényi_bound_add_up_in_any_order(order):
    with PrivacyBudget(3.0, DELTA, composition="renyi") as budget:
        for name in order:
            budget.charge(KINDS[name], label=name)
        fixed = epsilon_of(compose(KINDS[name] for name in KINDS), DELTA)
        # One order for all of them is a bound that the best order for this very list can only improve on.
        assert 0.9 * fixed <= budget.spent() < 3.0


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (group_poisson_event(3.0, 2, 0.1, 2), Adjacency.ZERO_OUT),
        (poisson_event(3.0, 0.1, 3), Adjacency.ZERO_OUT),
        (poisson_event(3.0, 0.1, 3), Adjacency.REPLACE_ONE),
    ],
)
def test_samples_without_a_rényi_bound_cost_as_much_as_without_sampling(event, adjacency):
    with PrivacyBudget(30.0, DELTA, adjacency=adjacency, composition="renyi") as budget:
        budget.charge(event)
        alone = budget.spent()
        budget.charge(event)
        assert alone < budget.spent() < 30.0
        assert budget.spent() >= epsilon_of(compose([event, event]), DELTA, adjacency) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gaussian_event(20.0), dp_event.ZCDpEvent(0.001)),
        (gaussian_event(20.0), ApproximateDpEvent(0.1, 1e-7)),
        (dp_event.ZCDpEvent(0.001), ApproximateDpEvent(0.1, 1e-7)),
        (ApproximateDpEvent(0.1, 1e-7), gaussian_event(20.0)),
    ],
)
def test_a_kind_that_the_filter_cannot_take_is_refused_and_nothing_is_entered(first, second):
    with PrivacyBudget(3.0, DELTA) as budget:
        budget.charge(first)
        with pytest.raises(UnsupportedEventError, match="Nothing was drawn"):
            budget.charge(second)
        assert len(budget.charges) == 1


def test_releases_with_a_delta_of_their_own_add_up():
    with PrivacyBudget(1.0, DELTA) as budget:
        budget.charge(ApproximateDpEvent(0.4, 6e-6))
        budget.charge(pure_event(0.2))
        budget.charge(ApproximateDpEvent(0.4, 4e-6))
        assert budget.spent() == pytest.approx(1.0)
    with PrivacyBudget(1.0, DELTA) as budget:
        budget.charge(ApproximateDpEvent(0.1, 6e-6))
        with pytest.raises(BudgetExceededError):
            budget.charge(ApproximateDpEvent(0.1, 6e-6))


@pytest.mark.parametrize("composition", ["gaussian", "renyi", "basic"])
def test_pure_releases_always_add_up_to_no_more_than_their_sum(composition):
    with PrivacyBudget(1.0, DELTA, composition=composition) as budget:
        for _ in range(4):
            budget.charge(pure_event(0.25))
        assert budget.spent() == pytest.approx(1.0)


def test_the_statement_claims_the_limit_and_names_the_theorem():
    for event, theorem in (
        (gaussian_event(20.0), "Smith and Thakurta"),
        (KINDS["zcdp"], "Feldman"),
    ):
        with PrivacyBudget(2.0, DELTA) as budget:
            budget.charge(event)
            budget.charge(event)
            assert budget.statement.epsilon == 2.0
            assert theorem in budget.statement.proof
            assert f"{epsilon_of(compose([event, event]), DELTA):.6g}" in budget.statement.notes[0]


def test_the_filter_belongs_to_the_budget_in_every_copy_and_in_its_file(tmp_path):
    path = tmp_path / "budget.sqlite"
    budget = PrivacyBudget(2.0, DELTA, path=path, composition="renyi")
    assert pickle.loads(pickle.dumps(budget)).composition == "renyi"
    with pytest.raises(InvalidParameterError, match="its own limits"):
        PrivacyBudget(2.0, DELTA, path=path)
    with pytest.raises(InvalidParameterError, match="composition must be one of"):
        PrivacyBudget(2.0, DELTA, composition="advanced")


def test_the_order_depends_on_public_numbers_only():
    orders = [_renyi_order(e, d) for e in (0.1, 1.0, 10.0) for d in (1e-9, 1e-5, 1e-2)]
    assert np.all(np.array(orders) > 1)
    assert orders == [_renyi_order(e, d) for e in (0.1, 1.0, 10.0) for d in (1e-9, 1e-5, 1e-2)]


NEGATIVE = {
    "pure": pure_event(-5.0),
    "delta": ApproximateDpEvent(0.1, -1e-6),
    "no number": pure_event(math.nan),
    "noise": dp_event.GaussianDpEvent(-3.0),
    "rho": dp_event.ZCDpEvent(-1.0),
    "times": dp_event.SelfComposedDpEvent(pure_event(0.5), -3),
    "half a time": dp_event.SelfComposedDpEvent(pure_event(0.5), 0.5),
    "response": dp_event.RandomizedResponseDpEvent(1.5, 2),
    "laplace": dp_event.DiscreteLaplaceDpEvent(-1.0, 1),
    "sample": dp_event.PoissonSampledDpEvent(2.0, dp_event.GaussianDpEvent(1.0)),
    "mixture": dp_event.MixtureOfGaussiansDpEvent(1.0, [-1.0], [1.0]),
    "inside": dp_event.ComposedDpEvent([gaussian_event(9.0), pure_event(-1.0)]),
}


@pytest.mark.parametrize("composition", ["auto", "gaussian", "renyi", "basic"])
@pytest.mark.parametrize("event", NEGATIVE.values(), ids=NEGATIVE)
def test_an_event_that_no_release_has_is_refused_and_pays_for_nothing(event, composition):
    with PrivacyBudget(1.0, DELTA, composition=composition) as budget:
        budget.charge(pure_event(0.5))
        spent = budget.spent()
        with pytest.raises(InvalidParameterError, match="which no release has"):
            budget.charge(event)
        assert budget.spent() == spent
    for pure in (False, True):
        account = TrialAccount(0.1, pure, Adjacency.REPLACE_ONE, "one record")
        with pytest.raises(InvalidParameterError, match="which no release has"):
            account.charge(event)
    with pytest.raises(InvalidParameterError, match="which no release has"):
        epsilon_of(event, DELTA)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 9.0), ("delta", 0.5), ("unit", "one pair"), ("adjacency", Adjacency.ZERO_OUT)],
)
def test_the_limits_of_a_budget_cannot_be_set_past_its_copies_and_its_file(name, value):
    with PrivacyBudget(1.0, DELTA) as budget:
        with pytest.raises(InvalidParameterError, match="fixed when it is made"):
            setattr(budget, name, value)
        with pytest.raises(InvalidParameterError, match="fixed when it is made"):
            setattr(pickle.loads(pickle.dumps(budget)), name, value)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-101, 1e101, 1.7e308])
def test_an_epsilon_for_which_floats_have_no_digits_is_refused_in_words(epsilon):
    with pytest.raises(InvalidParameterError, match=r"must lie in 1e-100\.\.1e\+100"):
        gaussian_sigma(epsilon, DELTA)
    assert gaussian_sigma(1e100, DELTA) > 0


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6, 1e12, 1e15, 1e50, 1e100])
def test_a_budget_takes_a_release_that_was_planned_for_all_of_it(epsilon):
    with PrivacyBudget(epsilon, DELTA) as budget:
        budget.charge(dp_event.ZCDpEvent(zcdp_rho(epsilon, DELTA)))
        assert budget.spent() <= epsilon * (1 + 1e-9)
