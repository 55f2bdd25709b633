"""The compiled sums of the AUC hinge agree with brute force, and a step costs little more than reading the table."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from pairwise.noise.randomness import Randomness
from pairwise.pairs.hinge import weighted_sum, within_margin
from pairwise.pairs.sums import AUCPairs


def brute(scores, positive):
    shifted = scores[positive] - 1.0
    inside = shifted[:, None] < scores[~positive][None]
    counts = np.empty(len(scores))
    counts[positive], counts[~positive] = inside.sum(axis=1), inside.sum(axis=0)
    return counts


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    kind=st.sampled_from(["normal", "grid", "tied", "tiny", "huge", "signed zero"]),
)
def test_counts_equal_brute_force_at_ties_near_ties_and_extremes(seed, n, kind):
    r = np.random.default_rng(seed)
    scores = {
        "normal": lambda: r.normal(size=n),
        "grid": lambda: r.integers(-3, 4, n) / 2.0,
        "tied": lambda: np.full(n, r.normal()),
        # Differences that only the lowest bits of a float show.
        "tiny": lambda: 1.0 + r.integers(-3, 4, n) * 2.0**-52,
        "huge": lambda: r.normal(size=n) * 10.0 ** r.integers(-300, 300, n),
        "signed zero": lambda: r.choice([0.0, -0.0, 1.0, -1.0], n),
    }[kind]()
    positive = r.random(n) < 0.5
    np.testing.assert_array_equal(within_margin(scores, positive), brute(scores, positive))


def test_counts_stay_exact_where_thousands_of_scores_differ_in_their_lowest_bits_only():
    # All keys agree in the bits that a first sort sees, in falling order: the case that an insertion would make quadratic.
    n = 6000
    scores = 1.0 - np.arange(n) * 2.0**-53
    positive = np.arange(n) % 3 == 0
    start = time.process_time()
    counts = within_margin(scores, positive)
    assert time.process_time() - start < 10.0
    np.testing.assert_array_equal(counts, brute(scores, positive))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 2), (1023, 5), (1024, 5), (5000, 7)])
def test_a_weighted_sum_of_rows_is_the_matrix_product(n, d):
    r = np.random.default_rng(n)
    X, w = r.normal(size=(n, d)), r.normal(size=n)
    np.testing.assert_allclose(weighted_sum(w, X), w @ X, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cap", [None, 0.5])
def test_a_full_batch_step_is_the_sum_over_all_pairs(cap):
    r = np.random.default_rng(4)
    X, y, w = r.normal(size=(40, 3)) * 0.2, r.random(40) < 0.4, r.normal(size=3) * 3
    sums = AUCPairs(X, y, "hinge", clip=cap)
    pairs = np.stack(np.triu_indices(40, 1), axis=1)
    np.testing.assert_allclose(sums.all_pairs(w), sums.over(w, pairs), atol=1e-12)


def _median(task, repeats):
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        spent.append(time.perf_counter() - start)
    return float(np.median(spent))


@pytest.mark.alone
@pytest.mark.parametrize("threads", [1, 2])
def test_a_full_batch_step_costs_at_most_four_times_a_product_and_a_sort(threads):
    r = np.random.default_rng(16)
    X, w = r.normal(size=(200_000, 100)) * 0.05, r.normal(size=100)
    numbers = r.random(200_000)
    sums = AUCPairs(X, r.random(200_000) < 0.4, "hinge")
    sums.all_pairs(w)
    ratios = []
    with threadpool_limits(threads, "blas"):
        # All three in turn, so that other work on the machine slows them alike.
        for _ in range(7):
            step = _median(lambda: sums.all_pairs(w), 5)
            base = _median(lambda: X @ w, 5) + _median(lambda: np.sort(numbers), 5)
            ratios.append(step / base)
    assert np.median(ratios) <= 4.0, ratios


def test_matching_steps_are_linear_in_the_number_of_records():
    source = Randomness(3)
    r = np.random.default_rng(5)
    spent = {}
    for n in (50_000, 400_000):
        X, w = r.normal(size=(n, 10)) * 0.1, r.normal(size=10)
        sums = AUCPairs(X, r.random(n) < 0.5, "logistic")
        spent[n] = min(
            _median(lambda s=sums, w=w, n=n: s.over(w, source.permutation(n).reshape(-1, 2)), 3)
            for _ in range(4)
        )
    # Eight times the records in at most 24 times the time: caches cost a factor, a square would be 64.
    assert spent[400_000] <= 24 * spent[50_000], spent
