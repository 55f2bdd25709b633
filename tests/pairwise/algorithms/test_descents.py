"""Noisy descent, GIGA, SGD and the leader: schedules, certificates and what adversarial neighbours reach."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.auto import default_radius
from pairwise.algorithms.giga import certified_sensitivity, offline_giga, plan_online, schedule
from pairwise.algorithms.noisy_descent import (
    LONGEST_OF_RECORDS,
    RecordGradients,
    plan_descent,
    plan_gradient,
    random_matching,
)
from pairwise.algorithms.options import Gradient, SGDOutput
from pairwise.algorithms.output_sgd import (
    average_sensitivity,
    blocked_sgd,
    involvement,
    plan_sgd_output,
    shuffled_blocks,
)
from pairwise.algorithms.plan import ClippedRecords, PublicTask
from pairwise.algorithms.streams import plan_leader, root_coefficients, root_sensitivity
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import PlannedRelease
from pairwise.pairs.losses import LOSSES, AUCPairs, PairBounds


def neighbours(seed: int, n: int = 6, d: int = 2):
    """Yield pairs of tables that differ in one record; records are collinear or turned."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=d)
    u /= np.linalg.norm(u)
    X = rng.choice([-1.0, 1.0], size=(n, 1)) * u
    y = rng.random(n) < 0.5
    for place in range(n):
        for sign, label in itertools.product((-1.0, 1.0), (True, False)):
            Z, z = X.copy(), y.copy()
            Z[place], z[place] = sign * u, label
            yield (X, y), (Z, z)


def public(n: int, d: int, mu: float) -> PublicTask:
    return PublicTask(
        n=n, d=d, data_norm=1.0, mu=mu, threshold_share=0.0, shuffle=Randomness(0).permutation
    )


def records(X, y) -> ClippedRecords:
    return ClippedRecords.of(np.asarray(X, float), np.asarray(y, bool), 1.0)


def pairs_of(X, y, loss="logistic") -> AUCPairs:
    return AUCPairs(records(X, y).rows, y, loss)


# -- noisy descent


def test_pointwise_sum_is_the_gradient_of_the_cut_square_loss():
    rng = np.random.default_rng(0)
    sums = RecordGradients(rng.normal(size=(7, 2)) / 3, rng.random(7) < 0.5)
    w = np.array([0.2, -0.1, 0.3])

    def total(w):
        residual = sums.X @ w - sums.labels
        size = np.abs(residual)
        return np.where(size <= 0.5, residual**2 / 2, size / 2 - 1 / 8).mean()

    numeric = [(total(w + 1e-6 * e) - total(w - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(sums.mean(w), numeric, atol=1e-6)


def test_plan_costs_what_was_asked():
    plan = plan_gradient(Gradient(centre_share=0.0, steps=20), public(60, 3, release_mu(1.0, 1e-5)))
    assert 0.99 <= epsilon_of(plan.event, 1e-5) <= 1.0 + 1e-9
    assert plan.sensitivity == pytest.approx(2 * 2.0 / 60)


def test_steps_follow_the_budget_within_their_bounds():
    numbers = {"longest": LONGEST_OF_RECORDS, "sensitivity": 0.001, "dimension": 3, "radius": 1.0}
    plans = [plan_descent(**numbers, mu=mu, steps=None, most_steps=400) for mu in (1e-3, 1e3)]
    assert [plan.steps for plan in plans] == [10, 400]
    assert default_radius(1e-6, 100, 4, 30.0) == 0.25
    assert default_radius(math.inf, 100, 4, 30.0) == 20.0


def test_large_tables_take_matchings_whose_pair_moves_once():
    plan = plan_gradient(Gradient(centre_share=0.0, steps=1), public(10_001, 2, 1.0))
    assert "matching" in plan.mechanism
    assert plan.sensitivity == pytest.approx(2.0 / 5000)


@pytest.mark.parametrize("n", [2, 7, 100])
def test_a_matching_uses_every_slot_at_most_once(n):
    pairs = random_matching(n, Randomness(1))
    assert pairs.shape == (n // 2, 2)
    assert len(np.unique(pairs)) == 2 * (n // 2)
    assert pairs.max() < n


def test_matchings_are_uniform():
    source = Randomness(2)
    counts = {}
    for _ in range(3000):
        key = frozenset(frozenset(pair) for pair in random_matching(4, source).tolist())
        counts[key] = counts.get(key, 0) + 1
    # Three matchings of four slots, 1000 each; a deviation of 140 is 5.4 standard errors, false alarm below 1e-6.
    assert len(counts) == 3
    assert all(abs(count - 1000) < 140 for count in counts.values())


def test_descent_without_noise_comes_near_the_minimum():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2)) / 3
    plan = plan_gradient(
        Gradient(centre_share=0.0, radius=5.0, steps=400), public(200, 2, math.inf)
    )
    w = plan.run(records(X, X[:, 0] > 0), Randomness(0)).w
    assert abs(w[0]) > 10 * abs(w[1])


# -- GIGA


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_no_neighbour_moves_giga_past_its_certificate(alpha):
    n = 6
    steps = schedule(n, 4.0, alpha)
    bound = certified_sensitivity(steps, 2.0, 4.0, 2.0)
    worst = 0.0
    for seed in range(8):
        for (X, y), (Z, z) in neighbours(seed, n):
            runs = [offline_giga(pairs_of(*each), steps, 1.0) for each in ((X, y), (Z, z))]
            worst = max(worst, float(np.linalg.norm(runs[0] - runs[1])))
    assert 0.2 * bound.average < worst <= bound.average


def test_certified_average_is_that_of_the_specification():
    # n = 2000, alpha = 0.1, G = L = 4, two gradients of one pair apart by 2G, without a cap and capped at 2.
    steps = schedule(2000, 4.0, 0.1)
    assert certified_sensitivity(steps, 8.0, 4.0).average == pytest.approx(0.446, abs=5e-4)
    assert certified_sensitivity(steps, 8.0, 4.0, 2.0).average == pytest.approx(0.313, abs=5e-4)


def test_stream_costs_its_mu_with_the_worst_record_at_every_step():
    mu = release_mu(1.0, 1e-5)
    plan = plan_online(schedule(50, 4.0, 1.0, burn_in=True), PairBounds(50, 3), 1.0, mu)
    noise = [plan.noise(t, 3) for t in range(plan.steps.first, 51)]
    assert all(each.sigma == pytest.approx(each.sensitivity * plan.scale) for each in noise)
    assert epsilon_of(plan.event, 1e-5) == pytest.approx(1.0, rel=1e-6)
    joint = certified_sensitivity(plan.steps, 2.0, 4.0, 2.0).joint
    # Rounding to the grid of every step is paid for.
    paid = (joint + 2.0**-10 * math.sqrt(plan.steps.active)) / plan.scale
    assert mu * (1 - 1e-9) <= paid <= mu


def test_horizons_without_meaning_are_refused():
    for n in (3, 50_001):
        with pytest.raises(InvalidParameterError):
            schedule(n, 4.0, 1.0)
        with pytest.raises(InvalidParameterError):
            plan_leader(PairBounds(n, 3), 1.0, 1.0)


# -- SGD


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_recursion_of_sgd_stays_below_its_closed_form(shares):
    u, total = 0.0, 0.0
    for t, share in enumerate(shares, 1):
        u = (1 - share) * math.sqrt(u * u + 1) + share * (u + 1)
        total += share
        assert u <= math.sqrt(t) + total + 1e-12


def test_expansion_is_paid_for_unless_the_loss_is_smooth():
    bound = average_sensitivity(3.0, 100, 0.1, 2.0, smooth=False)
    expansion = np.sqrt(np.arange(1, 100)).sum()
    assert bound == pytest.approx(0.1 * 2.0 / 100 * (expansion + 3.0))
    assert average_sensitivity(3.0, 100, 0.1, 2.0, smooth=True) == pytest.approx(0.2 / 100 * 3.0)


@pytest.mark.parametrize("passes", [1, 3])
def test_involvement_covers_the_exact_shares_of_pairs(passes):
    n, block = 12, 4
    blocks = shuffled_blocks(n, passes, block, Randomness(0).permutation)
    assert all(np.bincount(np.concatenate(blocks)) == passes)
    T, exact = len(blocks), np.zeros(n)
    for step in range(1, T):
        history = np.concatenate(blocks[:step])
        pairs = list(itertools.product(blocks[step], history))
        for j in range(n):
            exact[j] += (T - step) * np.mean([j in pair for pair in pairs])
    assert exact.max() <= involvement(blocks, n) + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbour_moves_sgd_past_its_bound(loss):
    n, rate = 6, 0.2
    worst, bound = 0.0, 0.0
    for seed in range(8):
        blocks = shuffled_blocks(n, 3, 2, Randomness(seed).permutation)
        change = average_sensitivity(
            involvement(blocks, n), len(blocks), rate, 2.0, smooth=loss == "logistic"
        )
        for (X, y), (Z, z) in neighbours(seed, n):
            runs = [blocked_sgd(pairs_of(*t, loss), blocks, rate, 5.0) for t in ((X, y), (Z, z))]
            moved = float(np.linalg.norm(runs[0] - runs[1]))
            assert moved <= change
            worst, bound = max(worst, moved), max(bound, change)
    assert worst > 0.2 * bound


@pytest.mark.parametrize("loss", LOSSES)
def test_block_step_is_the_mean_over_its_pairs(loss):
    rng = np.random.default_rng(4)
    sums = AUCPairs(rng.normal(size=(8, 2)), rng.random(8) < 0.5, loss)
    blocks = [np.array([0, 1, 2]), np.array([3, 1]), np.array([4, 5, 6])]
    w, total = np.zeros(2), np.zeros(2)
    for step in (1, 2):
        history = np.concatenate(blocks[:step])
        pairs = np.array(list(itertools.product(blocks[step], history)))
        w = w - 0.3 * sums.over(w, pairs) / len(pairs)
        total += w
    np.testing.assert_allclose(blocked_sgd(sums, blocks, 0.3, 99.0), total / 3, atol=1e-12)


def test_hinge_of_sgd_pays_for_the_expansion_of_its_steps():
    # Steps of 20 · 0.2/2/200 = 0.01.
    options = SGDOutput(loss="hinge", steps=200, radius=0.2)
    plan = plan_sgd_output(options, public(100, 3, 1.0))
    # 200 steps with 10 blocks a pass; the gradient of one pair of unit records moves by at most 2. The recursion
    # u <- sqrt(u² + 1) without any record involved is a lower bound of what must be paid.
    T, change = 200, 2.0
    u, total = 0.0, 0.0
    for _ in range(T):
        total += u
        u = np.sqrt(u * u + 1)
    assert plan.sensitivity >= min(0.01 * change * total / T, 2 * 0.2) * 0.99


def test_steps_of_a_smooth_loss_are_never_too_long_to_contract():
    one, two = (
        plan_sgd_output(SGDOutput(steps=50, radius=radius), public(100, 3, 1.0)).sensitivity
        for radius in (1e6, 1e9)
    )
    # 50 steps of 2/L = 1/2, each within (1/2) · 2 of its neighbour's: at the largest every step involves the record.
    assert two == one <= 50.0


# -- the leader


def test_coefficients_are_the_square_root_of_the_summing_matrix():
    r = root_coefficients(30)
    np.testing.assert_allclose(np.convolve(r, r)[:30], 1.0, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(4, 60), st.data())
def test_no_record_moves_the_leader_past_its_sensitivity(n, data):
    first = data.draw(st.integers(2, n))
    r = root_coefficients(n - first + 1)
    worst = 0.0
    for j in range(1, n + 1):
        t = np.arange(first, n + 1)
        change = np.where(t == j, 1.0, np.where(t > j, 1.0 / np.maximum(t - 1, 1), 0.0))
        worst = max(worst, float(np.linalg.norm(np.convolve(r, change)[: len(t)])))
    assert worst == pytest.approx(root_sensitivity(n, first), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_neighbour_moves_all_releases_of_the_leader_past_its_price(seed, monkeypatch):
    n, mu = 8, 0.7
    plan = plan_leader(PairBounds(n, 2, "hinge"), 0.01, mu)

    def releases(table, past=None):
        seen = []

        def release(_, value, randomness):
            seen.append(np.array(value))
            return np.zeros_like(value) if past is None else past[len(seen) - 1]

        monkeypatch.setattr(PlannedRelease, "release", release)
        plan.open(Randomness(0)).receive(records(*table))
        return np.array(seen)

    worst = 0.0
    for one, two in neighbours(seed, n):
        apart = releases(one) - releases(two)
        worst = max(worst, float(np.linalg.norm(apart)) / plan.noise.sigma)
    assert 0.2 * mu < worst <= mu


def test_leader_pays_for_the_rounding_of_all_its_releases():
    for n, size, mu in ((8, 2, 0.7), (1000, 30, 3.0)):
        plan = plan_leader(PairBounds(n, size), 1.0, mu)
        releases = n - plan.first + 1
        rounded = plan.noise.sensitivity + plan.noise.grid * math.sqrt(releases * size)
        assert rounded / plan.noise.sigma <= mu


def test_stream_refuses_too_many_records_and_to_be_pickled():
    plan = plan_leader(PairBounds(5, 2), 1.0, 1.0)
    stream = plan.open(Randomness(0))
    stream.receive(records(np.zeros((5, 2)), np.arange(5) % 2))
    with pytest.raises(InvalidParameterError, match="planned for 5"):
        stream.receive(records(np.zeros((1, 2)), [0]))
    with pytest.raises(TypeError, match="raw records"):
        pickle.dumps(stream)
