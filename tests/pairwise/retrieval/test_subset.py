"""The subset query: its odds, its price and what only the client sees."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise import PrivacyBudget, SubsetQuery
from pairwise.accounting.accountant import epsilon_of
from pairwise.errors import BudgetExceededError, InvalidParameterError
from pairwise.retrieval.subset import (
    inclusion_threshold,
    nearest,
    subset_size,
)


def log_prob(query, cell, subset):
    """Return ln P(S) of what is drawn for a cell, from the integer odds."""
    cells, whole = len(query.codebook), 1 << 63
    threshold = inclusion_threshold(cells, query.size, query.epsilon)
    share = threshold if cell in subset else whole - threshold
    ways = math.comb(cells - 1, query.size - (cell in subset))
    return math.log(share) - math.log(whole) - math.log(ways)


def test_six_cells_have_a_log_ratio_of_exactly_epsilon():
    query = SubsetQuery(np.eye(6), epsilon=1.3, size=2)
    logs = np.array(
        [
            [log_prob(query, cell, subset) for subset in itertools.combinations(range(6), 2)]
            for cell in range(6)
        ]
    )
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-14)
    assert np.ptp(logs, axis=0).max() == pytest.approx(1.3, abs=1e-14)
    assert np.ptp(logs, axis=0).max() <= 1.3 + 1e-15
    assert query.inclusion == pytest.approx(0.647223, abs=5e-7)


@settings(deadline=None, max_examples=300)
@given(st.integers(2, 400), st.data())
def test_integer_odds_never_exceed_epsilon(cells, data):
    size = data.draw(st.integers(1, cells - 1))
    epsilon = data.draw(st.floats(1e-3, 30.0))
    threshold = inclusion_threshold(cells, size, epsilon)
    odds = Fraction(threshold * (cells - size), ((1 << 63) - threshold) * size)
    # e^ε between two rational bounds of 40 digits.
    import decimal

    with decimal.localcontext() as context:
        context.prec = 50
        exact = Fraction(decimal.Decimal(epsilon).exp())
    assert odds <= exact * (1 + Fraction(1, 10**45))
    assert float(odds / exact) > 1 - 1e-4 * max(1.0, math.exp(epsilon - 25))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 7), st.floats(0.01, 8.0), st.data())
def test_any_two_cells_have_odds_within_epsilon(cells, epsilon, data):
    size = data.draw(st.integers(1, cells))
    query = SubsetQuery(np.eye(cells), epsilon=epsilon, size=size)
    logs = np.array(
        [
            [log_prob(query, c, subset) for subset in itertools.combinations(range(cells), size)]
            for c in range(cells)
        ]
    )
    assert np.ptp(logs, axis=0).max() <= query.statement.epsilon + 1e-12
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-12)


def inclusion_probability(cells, size, epsilon):
    return size / (size + (cells - size) * math.exp(-epsilon))


def test_draws_follow_the_enumerated_law(level, goodness):
    query = SubsetQuery(np.eye(5), epsilon=0.9, size=2, random_state=7)
    subsets = list(itertools.combinations(range(5), 2))
    for cell in (0, 2, 4):
        counts = dict.fromkeys(subsets, 0)
        for _ in range(4000):
            counts[tuple(int(i) for i in query.release(cell))] += 1
        law = [math.exp(log_prob(query, cell, subset)) for subset in subsets]
        # Fixed seed; with fresh ones a false alarm would have probability 3e-9 (three tests at 1e-9).
        assert goodness([counts[s] for s in subsets], law) > level


@pytest.mark.parametrize(("epsilon", "inclusion"), [(1, 0.232), (2, 0.451), (4, 0.858)])
def test_inclusion_at_two_hundred_cells(epsilon, inclusion):
    assert inclusion_probability(200, 20, epsilon) == pytest.approx(inclusion, abs=5e-4)


def test_one_cell_is_randomised_response():
    query = SubsetQuery(np.eye(4), epsilon=1.0, size=1)
    assert query.inclusion == pytest.approx(math.e / (math.e + 3))


def test_all_cells_reveal_nothing_and_cost_nothing():
    with PrivacyBudget(0.1, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(4), epsilon=3.0, size=4, budget=budget)
        assert [list(query.release(cell)) for cell in range(4)] == [[0, 1, 2, 3]] * 4
    assert query.statement.epsilon == 0.0


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 500), st.floats(0.01, 20.0))
def test_size_is_the_smallest_that_includes_often_enough(cells, epsilon):
    size = subset_size(cells, epsilon)
    assert inclusion_probability(cells, size, epsilon) >= 0.9 * (1 - 1e-9)
    if size > 1:
        assert inclusion_probability(cells, size - 1, epsilon) < 0.9 * (1 + 1e-9)
    assert subset_size(cells, epsilon, most=3) == min(3, size)


def test_cells_are_different_and_in_order():
    query = SubsetQuery(np.random.default_rng(0).normal(size=(30, 4)), epsilon=2.0, size=9)
    for _ in range(50):
        asked = query.ask(np.ones(4))
        assert (np.diff(asked) > 0).all()
        assert len(asked) == 9


def test_queries_compose_linearly_until_the_budget_ends():
    with PrivacyBudget(3.0, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(8), epsilon=1.0, budget=budget)
        for asked in range(1, 4):
            query.ask(np.ones(8))
            assert budget.spent() == pytest.approx(asked)
        with pytest.raises(BudgetExceededError):
            query.ask(np.ones(8))
        assert len(budget.charges) == 3


def test_a_budget_of_records_is_not_one_of_queries():
    with PrivacyBudget(3.0, 0.0) as budget, pytest.raises(InvalidParameterError, match="unit"):
        SubsetQuery(np.eye(8), epsilon=1.0, budget=budget).ask(np.ones(8))


def test_statement_is_pure_and_names_what_is_left_open():
    statement = SubsetQuery(np.eye(8), epsilon=1.5).statement
    assert (statement.epsilon, statement.delta, statement.proved) == (1.5, 0.0, True)
    assert epsilon_of(SubsetQuery(np.eye(8), epsilon=1.5).privacy_event, 0.0) == 1.5
    assert any("clicks" in line for line in statement.not_protected)
    assert not SubsetQuery(np.eye(8), 4.0, random_state=1).statement.proved


def test_the_client_ranks_by_its_true_feature():
    r = np.random.default_rng(0)
    x, candidates = r.normal(size=3), r.normal(size=(40, 3))
    order = np.argsort(np.linalg.norm(candidates - x, axis=1))[:5]
    assert list(SubsetQuery(np.eye(3), 4.0).rerank(x, candidates, 5)) == list(order)


@pytest.mark.parametrize("cell", [-1, 6, 1.0, "2"])
def test_what_is_no_cell_is_refused_and_not_charged(
    cell,
):
    with PrivacyBudget(epsilon=2.0, delta=0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(6), 1.0, budget=budget)
        with pytest.raises(InvalidParameterError, match=r"a whole number in 0\.\.5"):
            query.release(cell)
        assert not budget.charges


def test_wrong_shape_is_refused_without_its_values():
    with pytest.raises(InvalidParameterError, match="3 values") as error:
        SubsetQuery(np.eye(3), 4.0).ask([123.456, 1.0])
    assert "123" not in str(error.value)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 70))
def test_nearest_is_a_full_sort(seed, n, k):
    r = np.random.default_rng(seed)
    q, x = r.normal(size=(7, 3)), r.normal(size=(n, 3))
    full = np.argsort(np.linalg.norm(q[:, None] - x[None], axis=2), axis=1)
    assert np.array_equal(nearest(q, x, k), full[:, :k])
