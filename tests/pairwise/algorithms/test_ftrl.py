"""The private leader: sensitivities of both ways to release sums, the sums, the stream."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pairwise import PrivateAUCClassifier
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.gaussian import gaussian_mu
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.ftrl import (
    plan_leader,
    root_coefficients,
    root_sensitivity,
    tree_sensitivity,
)
from pairwise.errors import PairwiseError
from pairwise.noise.randomness import Randomness
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.sums import AUCPairs

both = pytest.mark.parametrize("sums", ["square-root", "tree"])


def _by_summation(n, first, unfinished=False):
    """Return the same number with all contributions written out; optionally with nodes that reach beyond n."""
    c = np.zeros((n + 1, n + 1))
    for j in range(1, n + 1):
        for t in range(max(first, 2), n + 1):
            c[j, t] = 1.0 if t == j else (1.0 / (t - 1) if t > j else 0.0)
    leaves = n - first + 1
    total, size = np.zeros(n + 1), 1
    while size <= leaves or (unfinished and size < 2 * leaves):
        for start in range(0, leaves, size):
            if start + size <= leaves or unfinished:
                stop = min(first + start + size, n + 1)
                total += c[:, first + start : stop].sum(axis=1) ** 2
        size *= 2
    return math.sqrt(total.max())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 70), st.data())
def test_the_sensitivity_of_a_tree_equals_direct_summation(n, data):
    first = data.draw(st.integers(1, n))
    assert tree_sensitivity(n, first) == pytest.approx(_by_summation(n, first), rel=1e-12)


def test_with_unfinished_nodes_it_is_the_13_3_of_the_specification_and_without_them_less():
    # mechanisms.md 5.2, in units of 2G, leaves 1..350.
    assert _by_summation(350, 1, unfinished=True) == pytest.approx(13.3, abs=0.05)
    assert tree_sensitivity(350) < 13.3


def test_the_sensitivity_grows_far_slower_than_the_root_of_n():
    assert tree_sensitivity(16_000, 3_200) / tree_sensitivity(1_000, 200) < 1.3


def _table(n=40, d=2, seed=0):
    r = np.random.default_rng(seed)
    return r.normal(size=(n, d)) * 0.4, r.random(n) < 0.5


def test_the_coefficients_are_the_square_root_of_the_summing_matrix():
    r = root_coefficients(300)
    np.testing.assert_allclose(np.convolve(r, r)[:300], 1.0, rtol=1e-12)


@given(st.integers(2, 60), st.data())
def test_no_record_moves_the_square_root_past_its_sensitivity_and_the_first_attains_it(n, data):
    first = data.draw(st.integers(2, n))
    r, steps = root_coefficients(n - first + 1), np.arange(first, n + 1)
    norms = []
    for j in range(1, n + 1):
        c = np.where(steps > j, 1.0 / (steps - 1), np.where((steps == j) & (steps > 1), 1.0, 0.0))
        norms.append(np.linalg.norm(np.convolve(r, c)[: len(steps)]))
    bound = root_sensitivity(n, first)
    assert max(norms) <= bound
    assert bound == pytest.approx(norms[first - 1], rel=1e-9)


def test_prefix_sums_of_a_thousand_steps_are_off_by_at_most_half_of_what_the_tree_is():
    # Same guarantee; root mean square over all prefixes, and the largest.
    n, first = 1000, 200
    leaves = n - first + 1
    root = root_sensitivity(n, first) ** 2 * np.cumsum(root_coefficients(leaves) ** 2)
    nodes = np.array([k.bit_count() for k in range(1, leaves + 1)])
    tree = tree_sensitivity(n, first) ** 2 * nodes
    assert root.mean() <= 0.25 * tree.mean()
    assert root.max() <= 0.25 * tree.max()


@both
def test_released_sums_have_the_variance_of_the_plan(sums):
    # The last of 9 prefix sums; a mean of 4,000 squares of a Gaussian is off by a sixth of itself with probability < 1e-12.
    n = 12
    plan = plan_leader(n, 2.0, 2.0, 4000, 0.5, 1.0, sums=sums)
    stream = plan.open(AUCPairs, L2Ball(0.5), np.zeros(4000), Randomness(0))
    leaves = n - plan.first + 1
    for _ in range(leaves):
        total = stream._sum_with(np.zeros(4000))
    terms = leaves.bit_count() if sums == "tree" else np.sum(root_coefficients(leaves) ** 2)
    assert np.mean(total**2) == pytest.approx(terms * plan.release.sigma**2, rel=1 / 6)


def test_a_square_root_that_would_keep_too_much_is_refused_with_the_other_way():
    with pytest.raises(PairwiseError, match=r"Ftrl\(sums='tree'\)"):
        plan_leader(20_000, 2.0, 2.0, 10_000, 0.5, 1.0)
    with pytest.raises(PairwiseError, match="'square-root' or 'tree'"):
        plan_leader(20, 2.0, 2.0, 2, 0.5, 1.0, sums="root")


@both
def test_without_noise_the_parameter_follows_the_sum_of_all_gradients(sums):
    X, y = _table()
    plan = plan_leader(40, 2.0, 2.0, 2, 0.5, math.inf, sums=sums)
    domain = L2Ball(0.5)
    stream = plan.open(AUCPairs, domain, np.zeros(2), Randomness(0))
    released = stream.receive(X, y)
    pairs, total, w = AUCPairs(X, y), np.zeros(2), np.zeros(2)
    for t in range(1, 41):
        if t >= plan.first:
            total += stream.mean_with_earlier(pairs, w, t)
            w = domain.project(-total / plan.strength)
        np.testing.assert_allclose(released[t - 1], w, atol=1e-12)


@both
@pytest.mark.parametrize("hardened", [False, True])
def test_every_release_is_made_once_with_the_noise_of_the_plan(hardened, sums):
    X, y = _table(27)
    mu = release_mu(1.0, 1e-5, hardened=hardened)
    plan = plan_leader(27, 2.0, 2.0, 2, 0.5, mu, sums=sums, hardened=hardened)
    stream = plan.open(AUCPairs, L2Ball(0.5), np.zeros(2), Randomness(0))
    counted = []
    stream._noisy = lambda value: counted.append(value) or value
    stream.receive(X, y)
    leaves = 27 - plan.first + 1
    nodes = sum(leaves // 2**k for k in range(5))
    assert len(counted) == (nodes if sums == "tree" else leaves)
    assert plan.release.sigma == pytest.approx(plan.sensitivity / mu, rel=2e-3)
    assert 0.99 < epsilon_of(plan.event, 1e-5) <= 1.0 + 1e-9


@both
def test_rounding_in_all_releases_together_is_paid_for(sums):
    mu = release_mu(1.0, 1e-5, hardened=True)
    # A grid is a power of two: at some of these horizons it is as wide as it may be.
    for n in range(400, 700, 20):
        plan = plan_leader(n, 2.0, 2.0, 6, 0.5, mu, sums=sums, hardened=True)
        leaves = n - plan.first + 1
        releases = sum(leaves >> k for k in range(10)) if sums == "tree" else leaves
        rounding = math.sqrt(releases) * plan.release.lattice.surcharge
        rho = (plan.sensitivity + rounding) ** 2 / (2 * plan.release.sigma**2)
        assert rho <= plan.event.rho <= rho * 1.003


@both
@pytest.mark.parametrize("seed", range(3))
def test_no_adversarial_neighbour_moves_all_releases_together_past_the_sensitivity(seed, sums):
    # The hinge is linear in this ball, so gradients do not depend on what was released.
    r = np.random.default_rng(seed)
    n, d = 20, 2
    plan = plan_leader(n, 2.0, 2.0, d, 0.2, gaussian_mu(1.0, 1e-5), sums=sums)
    worst, neighbours = 0.0, 0
    for place in (0, plan.first - 2, plan.first - 1, plan.first, n - 1):
        u = r.normal(size=d)
        u /= np.linalg.norm(u)
        X = np.where(r.random((n, 1)) < 0.8, -u, u)
        y = r.random(n) < r.choice([0.0, 0.1])
        paths = []
        for k in range(40):
            own = u * r.choice([1, -1]) if k % 2 else r.normal(size=d)
            X[place], y[place] = own, bool(r.integers(2))
            stream = plan.open(
                lambda a, b: AUCPairs(a, b, "hinge"), L2Ball(0.2), np.zeros(d), Randomness(0)
            )
            seen: list[np.ndarray] = []
            stream._noisy = lambda value, seen=seen: seen.append(value) or value
            stream.receive(X.copy(), y.copy())
            paths.append(np.concatenate(seen))
        moved = np.array(paths)[:, None] - np.array(paths)[None]
        worst = max(worst, float(np.linalg.norm(moved, axis=2).max()))
        neighbours += 40 * 39 // 2
    assert neighbours == 3_900
    assert 0.5 * plan.sensitivity <= worst <= plan.sensitivity


def test_a_stream_of_four_thousand_is_ranked_better_than_by_releasing_every_iterate():
    r = np.random.default_rng(3)
    y = r.integers(2, size=4000)
    X = r.normal(size=(4000, 5)) * 0.2 + np.outer(2 * y - 1, [0.15, 0.1, 0, 0, 0])
    aucs = {}
    for name in ("ftrl", "onpairc"):
        model = PrivateAUCClassifier(epsilon=2.0, algorithm=name, classes=[0, 1], random_state=0)
        aucs[name] = roc_auc_score(y, model.fit(X, y).decision_function(X))
    assert aucs["ftrl"] > 0.8
    assert aucs["ftrl"] > aucs["onpairc"]


def test_a_horizon_of_less_than_four_or_of_many_hours_is_refused():
    for n in (3, 60_000):
        with pytest.raises(PairwiseError, match=r"at least 4|expected n <="):
            plan_leader(n, 2.0, 2.0, 2, 0.5, 1.0)
