"""Blocked pairwise SGD: sensitivity of the sequence that was drawn, and eq. 5 of the paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.accounting.gaussian import gaussian_mu
from pairwise.algorithms import sgd
from pairwise.noise.randomness import Randomness
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.sums import AUCPairs, MetricPairs

MU = gaussian_mu(1.0, 1e-5)


@pytest.mark.parametrize(
    ("n", "steps", "rate", "published", "replaced", "shuffled"),
    [
        (350, 350**2, 350**-1.5, 287, 1.54, 1.34),
        (1000, 10_000, 0.01, 431, 14.5, 12.4),
        (1000, 1000**2, 1000**-1.5, 198, 0.852, 0.789),
        (3000, 3000**2, 3000**-1.5, 131, 0.479, 0.455),
    ],
)
def test_the_table_of_sigmas(n, steps, rate, published, replaced, shuffled):
    # mechanisms.md 6.3 at epsilon 1, delta 1e-5, G = 2; D = 2G. The drawn sequence moves the second number a little.
    assert sgd.published_sigma(n, steps, rate, 2.0, 1.0, 1e-5) == pytest.approx(published, rel=5e-3)
    source = Randomness(1)
    drawn = sgd.realised_sensitivity(source.integers(n, (steps,)), n, rate, 4.0)
    assert drawn / MU == pytest.approx(replaced, rel=0.08)
    passes = sgd.realised_sensitivity(sgd.shuffled_indices(n, steps, source), n, rate, 4.0)
    assert passes / MU == pytest.approx(shuffled, rel=0.02)


def _direct_weights(indices, n):
    T = len(indices)
    upper, exact = np.zeros(n), np.zeros(n)
    for step in range(1, T):
        history = np.bincount(indices[:step], minlength=n) / step
        own = np.bincount(indices[step : step + 1], minlength=n)
        upper += (T - step) * (own + history)
        exact += (T - step) * np.where(own > 0, 1.0, history)
    return upper, exact


def test_history_weights_equal_direct_summation_at_T_50():
    T = 50
    for k in range(T):
        marked = np.ones(T, dtype=int)
        marked[k] = 0
        upper, _ = _direct_weights(marked, 2)
        assert sgd.history_weights(T)[k] == pytest.approx(upper[0], rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=40))
def test_the_formula_equals_the_upper_bounds_and_covers_the_exact_shares(values):
    indices = np.array(values)
    T = len(indices)
    upper, exact = _direct_weights(indices, 5)
    root = sum(math.sqrt(t) for t in range(1, T))
    got = sgd.realised_sensitivity(indices, 5, 0.1, 4.0)
    assert got == pytest.approx(0.4 / T * (root + upper.max()), rel=1e-9)
    assert got >= 0.4 / T * (root + exact.max()) * (1 - 1e-12)


@pytest.mark.parametrize("passes", [1, 3])
def test_block_weights_cover_the_pairs_of_each_record_and_are_exact_in_one_pass(passes):
    sequence = sgd.shuffled_blocks(11, passes, 3, Randomness(passes))
    T, blocks = sequence.steps, sequence.blocks
    weighted, plain = sgd.block_weights(sequence)
    exact = np.zeros((2, 11))
    for step in range(1, T):
        history = np.concatenate(blocks[:step])
        involved = np.zeros(11)
        for new, old in itertools.product(blocks[step], history):
            involved[list({new, old})] += 1.0 / (len(blocks[step]) * len(history))
        exact += [(T - step) * involved, involved]
    if passes == 1:
        np.testing.assert_allclose([weighted, plain], exact, atol=1e-12)
    assert np.all(np.array([weighted, plain]) >= exact - 1e-12)


def last_sensitivity(
    fractions: float, updates: int, rate: float, pair_change: float, *, smooth: bool = False
) -> float:
    """Return ηD(√t + Σ_l Y_l) after ``updates`` = t steps, ``fractions`` = max_j Σ_l Y_l."""
    return rate * pair_change * ((0.0 if smooth else math.sqrt(updates)) + fractions)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_recursion_in_u_stays_below_its_closed_form(shares):
    u = 0.0
    for t, share in enumerate(shares, start=1):
        u = (1 - share) * math.sqrt(u * u + 1) + share * (u + 1)
        assert u <= last_sensitivity(sum(shares[:t]), t, 1.0, 1.0) + 1e-9


def test_every_record_appears_once_per_shuffled_pass():
    blocks = sgd.shuffled_blocks(10, 3, 4, Randomness(0)).blocks
    assert np.array_equal(np.bincount(np.concatenate(blocks)), np.full(10, 3))
    indices = sgd.shuffled_indices(10, 25, Randomness(0))
    assert np.bincount(indices).max() == 3


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_block_step_equals_the_mean_over_its_pairs(loss):
    r = np.random.default_rng(2)
    X, y, w = r.normal(size=(12, 3)) * 0.4, r.random(12) < 0.5, r.normal(size=3) * 2
    sums = AUCPairs(X, y, loss)
    block, past = np.array([0, 3, 5, 3]), np.array([1, 2, 2, 7, 11, 5])
    history = np.bincount(past, minlength=12).astype(float)
    pairs = np.array([(i, j) for i in block for j in past])
    expected = sum(sums.over(w, pair[None]) for pair in pairs) / len(pairs)
    np.testing.assert_allclose(sgd._auc_block(sums, w, block, history, 6.0), expected, atol=1e-12)


def test_a_metric_block_step_equals_the_mean_over_its_pairs():
    r = np.random.default_rng(3)
    X, y, M = r.normal(size=(8, 2)) * 0.5, r.integers(2, size=8), np.eye(2)
    sums = MetricPairs(X, y, "hinge", 1.0, "matrix")
    block, past = np.array([0, 3]), np.array([1, 2, 2, 7])
    history = np.bincount(past, minlength=8).astype(float)
    pairs = np.array([(i, j) for i in block for j in past])
    expected = sum(sums.over(M, pair[None]) for pair in pairs) / len(pairs)
    np.testing.assert_allclose(
        sgd._metric_block(sums, M, block, history, 4.0), expected, atol=1e-12
    )


@pytest.mark.parametrize(("loss", "block"), [("hinge", 1), ("hinge", 5), ("logistic", 5)])
def test_no_adversarial_neighbour_moves_average_or_last_iterate_past_the_bound(loss, block):
    r = np.random.default_rng(4)
    n, d, rate = 10, 2, 0.1
    smooth = loss == "logistic"
    worst_average = worst_last = 0.0
    for trial in range(120):
        u = r.normal(size=d)
        u /= np.linalg.norm(u)
        X = np.where(r.random((n, 1)) < r.choice([0.1, 0.5]), u, -u)
        y = r.random(n) < r.choice([0.1, 0.5])
        X2, y2 = X.copy(), y.copy()
        X[0], y[0] = u, True
        X2[0], y2[0] = u * r.choice([1, -1]), r.random() < 0.5
        sequence = sgd.shuffled_blocks(n, 4, block, Randomness(trial))
        weighted, plain = sgd.block_weights(sequence)
        outs, lasts = [], []
        for table, labels in ((X, y), (X2, y2)):
            kept: list[np.ndarray] = []
            sums = AUCPairs(table, labels, loss)
            outs.append(sgd.blocked_sgd(sums, sequence, rate, L2Ball(50.0), np.zeros(d), keep=kept))
            lasts.append(kept[-1])
        D, T = sums.pair_change, sequence.steps
        average = sgd.average_sensitivity(float(weighted.max()), T, rate, D, smooth=smooth)
        last = last_sensitivity(float(plain.max()), T - 1, rate, D, smooth=smooth)
        worst_average = max(worst_average, float(np.linalg.norm(outs[0] - outs[1])) / average)
        worst_last = max(worst_last, float(np.linalg.norm(lasts[0] - lasts[1])) / last)
    assert 0.1 <= worst_average <= 1.0
    assert 0.1 <= worst_last <= 1.0
