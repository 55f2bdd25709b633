"""Moments, coordinates, the discriminant metric and the threshold: sensitivities, exact limits and post-processing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.algorithms.auto import default_scale_share
from pairwise.algorithms.coordinates import Coordinates, plan_coordinates, scaling
from pairwise.algorithms.moments import (
    WEIGHTS,
    Moments,
    moment_sensitivity,
    plan_moments,
    release_moments,
    svec,
    symmetric,
)
from pairwise.algorithms.plan import ClippedRecords, PublicTask
from pairwise.algorithms.statistics import auc_direction, discriminant_metric
from pairwise.algorithms.threshold import candidates, right_answers
from pairwise.noise.randomness import Randomness


def contribution(x: np.ndarray, label: int, weights: tuple[float, float, float]) -> np.ndarray:
    w1, w2, w3 = np.array(weights) / np.linalg.norm(weights)
    sums = np.zeros((2, len(x)))
    sums[label] = x
    return np.concatenate((w1 * sums.ravel(), w2 * np.eye(2)[label], w3 * svec(np.outer(x, x))))


@settings(max_examples=300)
@given(st.tuples(*[st.floats(0.05, 1.0)] * 3), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_no_replacement_moves_the_moments_past_their_sensitivity(weights, seed, same, unit):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, 2))
    for each in (x, z):
        each /= np.linalg.norm(each) * (1.0 if unit else rng.uniform(1, 3))
    one, two = contribution(x, 0, weights), contribution(z, 0 if same else 1, weights)
    assert np.linalg.norm(one) <= 1 + 1e-12
    assert np.linalg.norm(one - two) <= moment_sensitivity(weights) * (1 + 1e-12)


@pytest.mark.parametrize("weights", [WEIGHTS, (0.9, 0.1, 0.2), (0.1, 0.5, 0.8), (0.3, 0.1, 0.9)])
def test_some_replacement_attains_the_sensitivity_of_moments(weights):
    angles = np.linspace(0, np.pi, 721)
    turned = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    one = contribution(np.array([1.0, 0.0]), 0, weights)
    longest = max(
        np.linalg.norm(one - contribution(x, label, weights)) for x in turned for label in (0, 1)
    )
    assert longest == pytest.approx(moment_sensitivity(weights), rel=1e-4)


def test_moments_with_small_weight_on_sums_have_the_sharp_sensitivity():
    for weights in ((0.1, 0.8, 0.6), (0.3, 0.7, 0.65)):
        w1, _, w3 = np.array(weights) / np.linalg.norm(weights)
        assert w1**2 < w3**2 / 2
        worst = 0.0
        # Two classes with orthogonal records, and one class at every angle of unit records.
        for s in np.linspace(-1, 1, 2001):
            worst = max(worst, 2 * w1**2 * (1 - s) + 2 * w3**2 * (1 - s * s))
        worst = np.sqrt(max(2.0, worst))
        assert worst <= moment_sensitivity(weights) <= worst * (1 + 1e-6)


def test_release_is_the_exact_moments_plus_noise_of_the_stated_size():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(50, 2)) / 3, rng.integers(2, size=50)
    plan = plan_moments(2.0, 2, 2)
    draws = [release_moments(X, codes, 2, plan, Randomness(seed)) for seed in range(6000)]
    for name, true in (
        ("sums", np.array([X[codes == c].sum(axis=0) for c in (0, 1)])),
        ("counts", np.bincount(codes)),
    ):
        values = np.array([getattr(each, name) for each in draws])
        sigma = getattr(draws[0].noise, name)
        # 6,000 draws of fixed seeds: means within 6 deviations. The spread of N numbers errs by 1/√(2N), 0.65 % of the
        # 12,000 counts, so 4 % is six of them. With fresh seeds a false alarm would have probability below 1e-7.
        assert np.abs(values.mean(axis=0) - true).max() < 6 * sigma / math.sqrt(6000)
        assert np.std(values - true) == pytest.approx(sigma, rel=0.04)


def test_svec_keeps_the_norm_and_comes_back():
    A = np.random.default_rng(0).normal(size=(4, 4))
    A = A + A.T
    assert np.linalg.norm(svec(A)) == pytest.approx(np.linalg.norm(A))
    np.testing.assert_allclose(symmetric(svec(A), 4), A)


def exact(X: np.ndarray, codes: np.ndarray) -> Moments:
    count = int(codes.max()) + 1
    plan = plan_moments(math.inf, X.shape[1], count)
    return release_moments(X, codes, count, plan, Randomness(0))


def test_direction_without_noise_is_that_of_the_discriminant():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1], 500)
    X = rng.normal(size=(1000, 3)) @ np.diag([0.05, 0.1, 0.02])
    X[codes == 1] += [0.1, 0.05, 0.03]
    w = auc_direction(exact(X, codes))
    other = LinearDiscriminantAnalysis().fit(X, codes).coef_[0]
    assert abs(w @ other) / np.linalg.norm(other) == pytest.approx(1.0, abs=1e-6)


# -- coordinates


def test_scaled_features_without_noise_are_uncorrelated_and_of_one_variance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3)) @ np.array([[1.0, 0.5, 0], [0, 0.2, 0], [0, 0, 0.05]])
    B = scaling(X.T @ X / len(X), 0.0)
    second = B @ (X.T @ X / len(X)) @ B.T
    np.testing.assert_allclose(second / second[0, 0], np.eye(3), atol=1e-6)


def test_second_moment_hidden_by_noise_prefers_no_feature():
    B = scaling(np.diag([0.3, 0.2, 0.1]), 1e6)
    np.testing.assert_allclose(B / B[0, 0], np.eye(3), atol=1e-5)


def test_direction_pulled_back_ranks_like_the_direction_itself():
    rng = np.random.default_rng(1)
    B = rng.normal(size=(3, 3)) / 10
    map_ = Coordinates(rng.normal(size=3) / 10, 3.0, B)
    X, w = rng.normal(size=(20, 3)) / 10, rng.normal(size=3)
    expected = map_.of(X) @ w
    found = (X - map_.centre) @ map_.pull_back(w)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(("share", "expected"), [(0.0, False), (0.3, False), (0.9, True)])
def test_long_records_are_told_of_where_they_are_more_than_half(share, expected):
    n = 1000
    X = np.random.default_rng(0).normal(size=(n, 2)) / 10
    X[: int(share * n)] *= 1e3
    shuffle = Randomness(0).permutation
    public = PublicTask(n=n, d=2, data_norm=1.0, mu=1.0, threshold_share=0.0, shuffle=shuffle)
    records = ClippedRecords.of(X, np.zeros(n, bool), 1.0)
    assert plan_coordinates(public, 0.1).release(records, Randomness(0)).mostly_long is expected


def test_scale_share_depends_on_public_numbers_and_ends_where_noise_hides_all():
    assert default_scale_share(0.2, 1000, 8) > 0
    assert default_scale_share(0.001, 100, 50) == 0


# -- the metric


def test_metric_without_information_is_euclidean():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(200, 4)) / 5, rng.integers(2, size=200)
    plan = plan_moments(1e-6, 4, 2)
    W = discriminant_metric(release_moments(X, codes, 2, plan, Randomness(1)))
    np.testing.assert_allclose(W, W[0, 0] * np.eye(4), atol=1e-6)


def test_metric_weighs_the_feature_that_tells_the_classes_apart():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1], 2000)
    X = rng.normal(size=(4000, 3)) / 20
    X[:, 1] += codes / 5
    W = discriminant_metric(exact(X, codes), 1)
    assert W.shape == (1, 3)
    assert abs(W[0, 1]) > 5 * abs(W[0, [0, 2]]).max()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 10.0), st.integers(2, 5))
def test_metric_keeps_a_quarter_of_every_direction_and_stays_finite(seed, mu, classes):
    rng = np.random.default_rng(seed)
    X, codes = rng.normal(size=(60, 3)), rng.integers(classes, size=60)
    X[:, 0] = 0.3
    plan = plan_moments(mu, 3, classes)
    W = discriminant_metric(release_moments(X, codes, classes, plan, Randomness(seed)))
    assert np.isfinite(W).all()
    assert np.linalg.eigvalsh(W.T @ W).min() >= 0.25 * (1 - 1e-9)


# -- the threshold


def test_first_and_last_threshold_answer_all_records_alike():
    scores = np.random.default_rng(0).uniform(-1, 1, size=50)
    positive = scores > 0.2
    counts = right_answers(scores, positive, candidates(1.0))
    assert counts[0] == positive.sum()
    assert counts[-1] == (~positive).sum()
    assert counts.max() > 45
    assert len(candidates(0.0)) == 65
