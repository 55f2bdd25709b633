"""The choice among public candidates by counts: the law it is drawn from, and that it costs what its event says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import logsumexp

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.filters import _dominating_mu
from pairwise.accounting.gaussian import gaussian_delta, gaussian_epsilon
from pairwise.accounting.zcdp import zcdp_epsilon
from pairwise.errors import InvalidParameterError
from pairwise.noise.discrete import exponential_choice
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_choice


def law(counts, rate):
    scores = rate * np.asarray(counts, dtype=float)
    return scores - logsumexp(scores)


def test_a_choice_is_drawn_from_its_exponential_law():
    counts, rate = np.array([40, 43, 45, 45, 20]), 0.3
    source = Randomness(4)
    drawn = np.bincount([exponential_choice(counts, rate, source) for _ in range(20_000)])
    expected = 20_000 * np.exp(law(counts, rate))
    seen = np.append(drawn, np.zeros(len(counts) - len(drawn)))
    # The last candidate is expected 3 times, so it is joined to the first; chi-square at a false-alarm rate of 1e-7.
    seen, expected = (np.append(v[0] + v[4], v[1:4]) for v in (seen, expected))
    assert stats.chi2.sf(np.sum((seen - expected) ** 2 / expected), 3) > 1e-7


def test_a_choice_between_far_and_very_many_counts_ends():
    counts = np.array([0, 2**52, 2**52 - 1])
    assert exponential_choice(counts, 1e3, Randomness(0)) == 1
    assert exponential_choice(np.zeros(65, dtype=np.int64), 1e-9, Randomness(0)) < 65


moves = arrays(np.int64, 9, elements=st.integers(-1, 1))
counted = arrays(np.int64, 9, elements=st.integers(0, 60))


@given(counted, moves, st.sampled_from([0.01, 0.3, 1.0, 4.0]))
def test_no_neighbour_is_told_apart_better_than_the_cost_in_zcdp_allows(counts, move, mu):
    plan = plan_choice(1.0, mu, hardened=True)
    one, two = law(counts, plan.rate), law(counts + move, plan.rate)
    assert plan.event().rho == mu**2 / 2
    for alpha in (1.001, 1.5, 2.0, 8.0, 64.0):
        divergence = logsumexp(alpha * one + (1 - alpha) * two) / (alpha - 1)
        # Both laws are sums of 9 terms: each log is right to some 1e-13, of which the order 1.001 keeps 1e-10.
        assert divergence <= alpha * mu**2 / 2 + 1e-9
    assert np.abs(one - two).max() <= 2 * mu + 1e-12


@given(counted, moves, st.sampled_from([0.01, 0.3, 1.0, 4.0]), st.floats(0.0, 3.0))
def test_no_neighbour_is_told_apart_better_than_by_a_gaussian_of_its_cost(counts, move, mu, at):
    plan = plan_choice(1.0, mu)
    one, two = (np.exp(law(c, plan.rate)) for c in (counts, counts + move))
    told = np.maximum(one - math.exp(at * mu) * two, 0).sum()
    assert told <= gaussian_delta(at * mu, mu) + 1e-12


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0])
def test_some_neighbours_come_near_what_a_choice_may_cost(mu):
    # One candidate gains a count and the other loses one, so the loss is ±μ up to a constant: the largest variance there is.
    plan = plan_choice(1.0, mu, hardened=True)
    one, two = law([5, 5], plan.rate), law([6, 4], plan.rate)
    loss = logsumexp(1.01 * one - 0.01 * two) / 0.01
    assert loss > (0.98 if mu < 1 else 0.6) * 1.01 * mu**2 / 2
    assert plan_choice(1.0, mu).rate * 2 == pytest.approx(_pure_of(mu), rel=1e-9)


def _pure_of(mu):
    """The pure epsilon whose Gaussian, by the filter's own formula, is ``mu``."""
    from scipy.optimize import brentq

    return brentq(lambda epsilon: _dominating_mu(epsilon) - mu, 1e-9, 50.0, xtol=1e-14)


def test_the_event_of_a_choice_stands_beside_exact_noise_or_beside_gaussians():
    assert epsilon_of(plan_choice(1.0, 0.3, hardened=True).event(), 1e-6) == pytest.approx(
        zcdp_epsilon(0.045, 1e-6)
    )
    assert epsilon_of(plan_choice(1.0, 0.3).event(), 1e-6) == pytest.approx(
        gaussian_epsilon(0.3, 1e-6)
    )


def test_without_noise_the_best_is_chosen_and_called_not_private():
    plan = plan_choice(1.0, math.inf)
    assert int(plan.release([3, 9, 4], Randomness())) == 1
    assert epsilon_of(plan.event(), 1e-6) == math.inf


@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan])
def test_a_choice_that_costs_nothing_is_refused(mu):
    with pytest.raises(InvalidParameterError, match="mu must be > 0"):
        plan_choice(1.0, mu)
