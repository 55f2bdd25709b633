"""The shared engine: sums of pair gradients, their sensitivity, the plan and the loop."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.gaussian import gaussian_mu
from pairwise.algorithms.gradient import (
    mean_gradient,
    noisy_descent,
    plan_gradient,
    random_matching,
)
from pairwise.errors import PairwiseError
from pairwise.estimators.perturbation import ConvexTask
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import CLIP_SLACK, clip_records
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.losses import get_loss
from pairwise.pairs.sums import (
    AUCPairs,
    MetricPairs,
    _logistic_weights_on,
    auc_hinge_counts,
    auc_logistic_weights,
)


def _table(seed: int, n: int, d: int, norm: float = 1.0):
    r = np.random.default_rng(seed)
    X = clip_records(r.normal(size=(n, d)), norm)
    y = r.random(n) < 0.4
    y[:2] = [True, False]
    return X, y, r.normal(size=d)


def _by_pairs(sums, w):
    pairs = np.array(list(itertools.combinations(range(sums.n), 2)))
    return sum(sums.over(w, pair[None]) for pair in pairs)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_the_auc_sum_over_all_pairs_is_the_autograd_gradient(loss):
    import torch

    X, y, w = _table(0, 23, 3)
    sums = AUCPairs(X, y, loss)
    p = torch.tensor(w, requires_grad=True)
    scores = torch.tensor(sums.X) @ p
    total = sums.loss.value(scores[y][:, None] - scores[~y][None, :], torch.ones(1)).sum()
    total.backward()
    np.testing.assert_allclose(sums.all_pairs(w), p.grad.numpy(), atol=1e-10)
    np.testing.assert_allclose(_by_pairs(sums, w), p.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("parameter", ["factor", "matrix"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_metric_sum_over_all_pairs_is_the_autograd_gradient(loss, parameter):
    import torch

    X, _, _ = _table(1, 15, 3)
    labels = np.arange(15) % 3
    W = np.random.default_rng(2).normal(size=(2, 3)) * 1.5
    start = W if parameter == "factor" else W.T @ W
    sums = MetricPairs(X, labels, loss, 1.0, parameter, 1e6 if parameter == "factor" else None)
    p = torch.tensor(start, requires_grad=True)
    i, j = np.triu_indices(15, 1)
    apart = torch.tensor(sums.X[i] - sums.X[j])
    M = p.T @ p if parameter == "factor" else p
    q = ((apart @ M) * apart).sum(1)
    sign = torch.tensor(np.where(labels[i] == labels[j], 1.0, -1.0))
    sums.loss.value(q, sign).sum().backward()
    np.testing.assert_allclose(sums.all_pairs(start), p.grad.numpy(), atol=1e-9)
    np.testing.assert_allclose(_by_pairs(sums, start), p.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("norm", [0.5, 1.0, 3.0])
def test_opposite_records_attain_the_bound_of_a_pair_at_every_norm(norm):
    X, labels = np.array([[norm], [-norm]]), np.array([1, 0])
    ranking = AUCPairs(X, labels == 1, "hinge", norm)
    metric = MetricPairs(X, np.zeros(2, int), "hinge", norm, "matrix")
    for sums, w in ((ranking, np.zeros(1)), (metric, np.zeros((1, 1)))):
        assert np.linalg.norm(sums.all_pairs(w)) == pytest.approx(sums.pair_bound, rel=1e-5)
        assert np.linalg.norm(sums.all_pairs(w)) <= sums.pair_bound
    task = ConvexTask(AUCPairs(X, labels == 1, "logistic", norm), L2Ball(1.0), 1.0, 1, (1, 1))
    # At equal scores the slope of the logistic weight is 1, and the gradient changes by the squared distance of the pair.
    assert task.smoothness == pytest.approx((2.0 * norm) ** 2)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30))
def test_hinge_counts_equal_brute_force_even_on_a_grid_of_near_ties(seed, n_positive, n_negative):
    r = np.random.default_rng(seed)
    p = r.integers(-20, 20, n_positive) * 0.1
    q = r.integers(-20, 20, n_negative) * 0.1
    active = q[None, :] > (p - 1.0)[:, None]
    a, b = auc_hinge_counts(p, q)
    assert np.array_equal(a, active.sum(1))
    assert np.array_equal(b, active.sum(0))


def test_logistic_weights_stay_finite_and_exact_at_large_scores():
    p, q = np.array([800.0, -800.0, 0.0]), np.array([0.0, 799.0])
    a, b = auc_logistic_weights(p, q)
    with np.errstate(over="ignore"):
        exact = 2.0 / (1.0 + np.exp(2.0 * np.subtract.outer(p, q)))
    np.testing.assert_allclose(a, exact.sum(1), atol=1e-12)
    np.testing.assert_allclose(b, exact.sum(0), atol=1e-12)


def test_a_clipped_factor_gradient_equals_clipping_pair_by_pair():
    X, _, _ = _table(3, 14, 4)
    labels = np.arange(14) % 2
    W = np.random.default_rng(4).normal(size=(3, 4)) * 2
    loose = MetricPairs(X, labels, "contrastive", 1.0, "factor", 1e9)
    tight = MetricPairs(X, labels, "contrastive", 1.0, "factor", 0.3)
    total = np.zeros_like(W)
    clipped = 0
    for pair in itertools.combinations(range(14), 2):
        g = loose.over(W, np.array([pair]))
        norm = np.linalg.norm(g)
        clipped += norm > 0.3
        total += g * min(1.0, 0.3 / max(norm, 1e-300))
    assert clipped > 10
    np.testing.assert_allclose(tight.all_pairs(W), total, atol=1e-4)


def test_exhaustive_replacement_at_n_4_attains_the_auc_bound_2G_over_n_and_never_4G_over_n():
    points = [np.array([-1.0, 0.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.zeros(2)]
    records = [(x, label) for x in points for label in (True, False)]
    plan_of = AUCPairs(np.zeros((4, 2)), np.zeros(4, bool), "hinge")
    bound = 2 * plan_of.pair_change / 4
    worst = 0.0
    w = np.array([0.05, 0.02])
    for rest in itertools.combinations_with_replacement(records, 3):
        gradients = []
        for own in records:
            X = np.array([r[0] for r in (*rest, own)])
            y = np.array([r[1] for r in (*rest, own)])
            gradients.append(AUCPairs(X, y, "hinge").all_pairs(w) / 6)
        g = np.array(gradients)
        worst = max(worst, np.linalg.norm(g[:, None] - g[None], axis=2).max())
    assert worst <= bound
    assert worst >= 0.999 * bound
    assert bound <= 4 * plan_of.pair_bound / 4


def _every_value_of_one_record(r, n, d, values):
    """Return a table and many values of its first record: any two of them make neighbours."""
    u = r.normal(size=d)
    u /= np.linalg.norm(u)
    X = np.where(r.random((n, 1)) < 0.7, -u, clip_records(r.normal(size=(n, d)), 1.0))
    y = (r.random(n) < r.choice([0.0, 0.0, 0.4])).astype(int)
    own = np.where(
        r.random((values, 1)) < 0.5,
        u * r.choice([1, -1, 0.5], size=(values, 1)),
        clip_records(r.normal(size=(values, d)) * 3, 1.0),
    )
    return u, X, y, own, r.integers(2, size=values)


@pytest.mark.parametrize(
    "kind", ["hinge", "logistic", "clipped logistic", "metric hinge", "contrastive"]
)
@pytest.mark.parametrize("batching", ["all-pairs", "matching"])
def test_none_of_twenty_thousand_neighbours_moves_a_mean_gradient_past_its_sensitivity(
    kind, batching
):
    r = np.random.default_rng(20)
    n, d, values = 9, 2, 64
    neighbours, worst, bound = 0, 0.0, math.nan

    def sums_of(X, y):
        if kind in ("metric hinge", "contrastive"):
            return MetricPairs(X, y, kind.removeprefix("metric "), 1.0, "factor", 0.3)
        clip = 2.0 if kind.startswith("clipped") else None
        return AUCPairs(X, y == 1, kind.removeprefix("clipped "), 1.0, clip)

    for _ in range(10):
        u, X, y, own, labels = _every_value_of_one_record(r, n, d, values)
        factor = kind in ("metric hinge", "contrastive")
        w = np.eye(2) * r.choice([0.6, 1.5]) if factor else u * r.choice([-6.0, 0.1, 1.0])
        gradients = []
        pairs = random_matching(n, Randomness(int(r.integers(10**6))))
        for x, label in zip(own, labels, strict=True):
            X[0], y[0] = x, label
            sums = sums_of(X.copy(), y.copy())
            total = sums.all_pairs(w) / 36 if batching == "all-pairs" else sums.over(w, pairs) / 4
            gradients.append(total.ravel())
        g = np.array(gradients)
        worst = max(worst, np.linalg.norm(g[:, None] - g[None], axis=2).max())
        neighbours += values * (values - 1) // 2
        bound = sums.pair_change * (2 / n if batching == "all-pairs" else 1 / 4)
    assert neighbours >= 20_000
    assert 0.8 * bound <= worst <= bound


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize("kind", ["auc", "factor", "matrix"])
def test_sums_on_a_gpu_equal_those_on_the_processor_to_float64(kind):
    X, y, w = _table(21, 400, 6)
    results = []
    for device in ("cpu", "cuda"):
        if kind == "auc":
            sums = AUCPairs(X, y, "logistic", 1.0, 2.0, device)
            results.append(sums.all_pairs(w))
            continue
        start = np.outer(w, w) + np.eye(6)
        clip = 0.3 if kind == "factor" else None
        sums = MetricPairs(X, y.astype(int), "logistic", 1.0, kind, clip, device)
        results.append(sums.all_pairs(start))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-11, atol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize(
    "name", ["auc-logistic", "auc-hinge", "metric-logistic", "metric-hinge", "contrastive"]
)
def test_losses_on_a_gpu_stay_there_in_float64_and_equal_those_on_the_processor(name):
    loss = get_loss(name)
    inner = torch.linspace(0.0, 3.0, 200, dtype=torch.float32)
    sign = torch.where(torch.arange(200) % 2 == 0, 1.0, -1.0)
    for function in (loss.value, loss.derivative):
        there = function(inner.cuda(), sign)
        assert there.is_cuda
        assert there.dtype == torch.float64
        np.testing.assert_allclose(there.cpu().numpy(), function(inner, sign).numpy(), rtol=1e-12)


def test_the_block_of_weights_for_another_device_equals_the_one_of_the_processor():
    # The same code as on a GPU, on the only device that is always there.
    r = np.random.default_rng(22)
    p, q = r.normal(size=300) * 3, r.normal(size=200) * 3
    for cap in (1.0, 2.0):
        for got, expected in zip(
            _logistic_weights_on(p, q, cap, "cpu"), auc_logistic_weights(p, q, cap), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_words(device):
    with pytest.raises(PairwiseError, match="device"):
        AUCPairs(*_table(23, 20, 2)[:2], "logistic", device=device).all_pairs(np.zeros(2))


def test_a_matching_moves_by_at_most_one_pair_change_over_half_n():
    r = np.random.default_rng(7)
    n, worst = 9, 0.0
    for _ in range(2000):
        u = r.normal(size=2)
        u /= np.linalg.norm(u)
        X = np.where(r.random((n, 1)) < 0.5, u, -u)
        y = r.random(n) < 0.5
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = u * r.choice([1, -1]), r.random() < 0.5
        pairs = random_matching(n, Randomness(int(r.integers(10**6))))
        w = u * 0.1
        g = AUCPairs(X, y, "hinge").over(w, pairs) - AUCPairs(X2, y2, "hinge").over(w, pairs)
        worst = max(worst, np.linalg.norm(g) / (n // 2))
    bound = AUCPairs(X, y, "hinge").pair_change / (n // 2)
    assert 0.9 * bound <= worst <= bound


@pytest.mark.parametrize("batching", ["matching", "sampled"])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_no_replacement_moves_the_mean_of_a_step_past_the_plan_and_one_comes_close(loss, batching):
    n, w = 8, np.array([1e-3])
    size = 4 if batching == "sampled" else None
    worst = 0.0
    for labels, sign in itertools.product(itertools.product([False, True], repeat=3), (1.0, -1.0)):
        X, y = np.full((n, 1), -1.0), np.array(labels)[np.arange(n) % 3]
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = sign, ~y[0]
        sums = [AUCPairs(*table, loss) for table in ((X, y), (X2, y2))]
        plan = plan_gradient(
            sums[0],
            (1,),
            math.inf,
            1e-5,
            path_length=1.0,
            batching="auto" if size else "matching",
            batch_size=size,
        )
        for seed in range(20):
            one, two = (mean_gradient(each, w, plan, Randomness(seed)) for each in sums)
            worst = max(worst, abs(float(one[0] - two[0])) / plan.sensitivity)
    assert (0.9 if loss == "hinge" else 0.45) < worst <= 1.0


def test_a_sample_of_records_is_drawn_anew_and_each_record_is_as_likely():
    seen = []

    class Sums:
        n = 10

        def within(self, w, slots):
            seen.append(slots)
            return w

    plan = SimpleNamespace(n=10, batch=3, batching="sampled")
    source = Randomness(4)
    for _ in range(3000):
        mean_gradient(Sums(), np.zeros(1), plan, source)
    assert all(len(set(slots.tolist())) == 3 for slots in seen)
    # 900 of each expected, deviation 25: six of these are passed in fewer than 1e-7 of the runs, ten records together.
    assert np.abs(np.bincount(np.concatenate(seen), minlength=10) - 900).max() < 150


def test_matching_and_all_pairs_agree_in_expectation():
    X, y, w = _table(8, 4, 2)
    sums = AUCPairs(X, y, "logistic")
    matchings = [[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)]]
    mean = np.mean([sums.over(w, np.array(m)) / 2 for m in matchings], axis=0)
    np.testing.assert_allclose(mean, sums.all_pairs(w) / 6, atol=1e-12)


def test_random_matchings_of_four_slots_are_uniform():
    source = Randomness(9)
    counts: dict[frozenset, int] = {}
    for _ in range(3000):
        key = frozenset(frozenset(map(int, p)) for p in random_matching(4, source))
        counts[key] = counts.get(key, 0) + 1
    # Three matchings of probability 1/3 each: 6 standard deviations are 155; false alarms below 1e-8.
    assert len(counts) == 3
    assert all(abs(c - 1000) < 155 for c in counts.values())


def test_the_plan_spends_exactly_what_was_asked_for():
    X, y, _ = _table(10, 200, 4)
    sums = AUCPairs(X, y, "logistic", 1.0, 2.0)
    plan = plan_gradient(sums, (4,), 1.0, 1e-5, path_length=2.0)
    mu = gaussian_mu(1.0, 1e-5)
    assert plan.sigma == pytest.approx(plan.sensitivity * math.sqrt(plan.steps) / mu)
    assert plan.steps == int((200 * mu) ** 2 / (4 * 4))
    assert epsilon_of(plan.event, 1e-5) == pytest.approx(1.0, rel=1e-9)


def test_the_step_rule_is_cut_to_ten_and_two_hundred():
    few = AUCPairs(*_table(11, 20, 5)[:2])
    assert plan_gradient(few, (5,), 0.5, 1e-3, path_length=1.0).steps == 10
    assert plan_gradient(few, (5,), math.inf, 1e-3, path_length=1.0).steps == 200


def test_secret_samples_are_accounted_within_the_target_and_beat_unsampled_noise():
    sums = AUCPairs(*_table(12, 400, 3)[:2])
    plan = plan_gradient(sums, (3,), 1.0, 1e-5, path_length=1.0, batch_size=40, steps=20)
    assert 0.9 < epsilon_of(plan.event, 1e-5) <= 1.0
    assert plan.sensitivity == pytest.approx(2 * sums.pair_change / 40)
    unsampled = math.sqrt(20) / gaussian_mu(1.0, 1e-5)
    assert plan.sigma / plan.sensitivity < unsampled
    out = noisy_descent(sums, plan, L2Ball(1.0), np.zeros(3), Randomness(0))
    assert np.linalg.norm(out) <= 1


def test_a_step_on_200000_records_is_a_matching_and_takes_memory_linear_in_n():
    import tracemalloc

    r = np.random.default_rng(13)
    X = r.normal(size=(200_000, 10)) * 0.1
    sums = AUCPairs(X, r.random(200_000) < 0.5, "logistic")
    plan = plan_gradient(sums, (10,), 1.0, 1e-7, path_length=1.0, steps=2)
    assert plan.batching == "matching"
    tracemalloc.start()
    mean_gradient(sums, np.ones(10), plan, Randomness(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * X.nbytes / 10


def test_noiseless_descent_lowers_the_loss_to_near_its_minimum():
    r = np.random.default_rng(14)
    X = r.normal(size=(150, 3)) * 0.4
    y = X[:, 0] + 0.2 * r.normal(size=150) > 0
    sums = AUCPairs(X, y, "logistic")
    plan = plan_gradient(sums, (3,), math.inf, 1e-3, path_length=40.0)
    kept: list[np.ndarray] = []
    noisy_descent(sums, plan, L2Ball(5.0), np.zeros(3), Randomness(0), keep=kept)
    w = kept[-1]
    tangent = -sums.all_pairs(w)
    tangent -= (tangent @ w) / (w @ w) * w if tangent @ w > 0 else 0
    assert np.linalg.norm(tangent) < 0.02 * np.linalg.norm(sums.all_pairs(np.zeros(3)))


def test_fewer_than_four_records_are_refused_with_the_number_found():
    with pytest.raises(PairwiseError, match="n_samples = 3"):
        plan_gradient(AUCPairs(*_table(15, 3, 2)[:2]), (2,), 1.0, 1e-5, path_length=1.0)


def test_clipped_records_keep_their_direction_and_never_pass_the_bound():
    X = np.array([[3.0, 4.0], [1e200, 1e200], [0.0, 0.0], [0.1, 0.0], [5e-324, 0.0]])
    out = clip_records(X, 1.0)
    assert np.all(np.linalg.norm(out, axis=1) <= 1.0)
    np.testing.assert_allclose(out[0], [0.6, 0.8], rtol=1e-5)
    assert np.array_equal(out[2:4], X[2:4])


@pytest.mark.parametrize("slack", [0.0, CLIP_SLACK, 0.25])
@pytest.mark.parametrize("order", [1, 2])
def test_records_of_any_size_are_clipped_to_bounds_of_any_size(order, slack):
    X = np.array([[1e308, 0.0], [1e307, -1e307], [1.0, 2.0]])
    for bound in (1e-3, 1e-12, 3e-16, 1e-100):
        clipped = clip_records(X, bound, order, slack=slack)
        norms = np.linalg.norm(clipped / bound, ord=order, axis=1)
        np.testing.assert_allclose(norms, 1.0 - slack, rtol=1e-12)


@pytest.mark.parametrize("apart", [1e-4, 1e-7, 1e-8])
def test_records_that_differ_by_less_than_rounding_never_pass_the_clip(apart):
    # W sees nothing of what they have in common, so WΔ is exact while ‖Δ‖² drowns in ‖x‖².
    X = np.array([[apart / 2, 0.9], [-apart / 2, 0.9]])
    loss = get_loss("contrastive", margin=10.0 / apart)
    sums = MetricPairs(X, np.array([0, 1]), loss, 1.0, "factor", 1.0)
    assert np.linalg.norm(sums.all_pairs(np.array([[1.0, 0.0]]))) <= 1.0


@pytest.mark.parametrize("seen", [0.0, 1e-14, 1e-12, 1e-8, 1e-2])
def test_a_difference_that_w_hardly_sees_never_passes_the_clip(seen):
    r = np.random.default_rng(0)
    for _ in range(100):
        W, v = r.normal(size=(1, 4)), r.normal(size=4)
        W /= np.linalg.norm(W)
        v -= (W[0] @ v) * W[0]
        X = np.array([0.9 * (v / np.linalg.norm(v) + seen * W[0]), np.zeros(4)])
        sums = MetricPairs(X, np.array([0, 1]), "contrastive", 1.0, "factor", 0.5)
        assert np.linalg.norm(sums.all_pairs(W)) <= 0.5
        assert np.linalg.norm(sums.over(W, np.array([[0, 1]]))) <= 0.5
