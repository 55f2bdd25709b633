"""The start of a metric from released class moments: it finds what separates the classes, and nothing where nothing is."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from pairwise import DPPMetricLearner, Matching
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.contrastive_start import discriminant_start
from pairwise.algorithms.moments import Moments, plan_moments, release_moments
from pairwise.noise.randomness import Randomness


def table(seed, n, apart, d=12, classes=2):
    """Classes that differ along one axis each, in a space where other axes are three times wider."""
    r = np.random.default_rng(seed)
    y = r.integers(classes, size=n)
    X = r.normal(size=(n, d)) * 0.15
    X[:, :classes] = 0.05 * r.normal(size=(n, classes))
    X[np.arange(n), y] += apart
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None], y


def start(X, y, mu, classes=2, seed=0, rows=None):
    moments = release_moments(X, y, classes, plan_moments(mu), Randomness(seed))
    return discriminant_start(moments, rows)


def stretched(W):
    values = np.linalg.eigvalsh(W.T @ W)
    return values[-1] / values[0]


def exact(apart, variances, correlation=0.0, n=10**12):
    """Moments without noise of two equal classes at ±apart/2, with one common correlation between all features."""
    spreads = np.sqrt(variances)
    within = np.outer(spreads, spreads) * (correlation + (1 - correlation) * np.eye(len(spreads)))
    half = np.asarray(apart) / 2
    return Moments(
        sums=np.stack((-half, half)) * n / 2,
        counts=np.array([n / 2, n / 2]),
        second=n * (within + np.outer(half, half)),
        n=n,
        noise=(0.0, 0.0, 0.0),
    ), within


def test_without_noise_features_weigh_as_slopes_and_the_discriminant_carries_as_much_as_they_do():
    apart, variances = np.array([0.2, -0.1, 0.05, 0.02]), np.array([0.04, 0.01, 0.001, 0.02])
    moments, within = exact(apart, variances)
    slopes = apart / variances
    weights = np.abs(slopes) * variances.sum() / (np.abs(slopes) @ variances)
    along = np.outer(slopes, slopes) / (slopes @ apart)
    learned = np.diag(weights) + variances.sum() * along
    spread = within + np.outer(apart, apart) / 4
    # Scaled to the mean squared distance of the Euclidean metric, of which a quarter stays.
    learned *= np.trace(spread) / np.trace(learned @ spread)
    W = discriminant_start(moments)
    np.testing.assert_allclose(
        W.T @ W, 0.25 * np.eye(4) + 0.75 * learned, rtol=1e-4, atol=1e-5 * np.trace(learned)
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, math.inf])
def test_no_direction_is_left_with_less_than_a_quarter_of_its_euclidean_squared_length(mu):
    X, y = table(12, 3000, 0.12)
    W = start(X, y, mu)
    assert np.linalg.eigvalsh(W.T @ W).min() >= 0.25 - 1e-9


def test_directions_lose_weight_as_the_size_of_an_error_of_the_correlations_grows():
    # Without noise the error is that of n samples, √(d/n), and the directions carry 1/(1 + √(d/n)) of the whole.
    def off_diagonal(n):
        moments, _ = exact(np.array([0.2, 0.1, 0.1]), np.array([0.04, 0.01, 0.02]), n=n)
        W = discriminant_start(moments)
        M = W.T @ W - 0.25 * np.eye(3)
        return M[0, 1] / np.sqrt(M[0, 0] * M[1, 1])

    assert off_diagonal(100) < 0.95 * off_diagonal(10**12)


def test_a_variance_counts_as_one_deviation_of_its_noise_more_than_was_released():
    n, noise = 10**6, 100.0
    variances = np.array([0.01, 0.0])
    moments, _ = exact(np.array([0.02, 0.02]), variances, n=n)
    W = discriminant_start(dataclasses.replace(moments, noise=(1e-9, 1e-9, noise)))
    M = W.T @ W - 0.25 * np.eye(2)
    # Slopes β enter as aβ_j on the diagonal and as bβ_jβ_k in all of M, so this is the ratio of the two.
    ratio = (M[1, 1] + M[0, 1]) / (M[0, 0] + M[0, 1])
    counted = variances + noise / n
    assert ratio == pytest.approx(counted[0] / counted[1], rel=0.01)


def test_the_direction_accounts_for_correlations_where_these_are_known():
    apart, variances = np.array([0.2, 0.0, 0.0]), np.array([0.04, 0.01, 0.02])
    moments, within = exact(apart, variances, correlation=0.5)
    W = discriminant_start(moments)
    M = W.T @ W
    # Only the direction has entries off the diagonal: those of ββᵀ, β the slopes of the discriminant with correlations.
    slopes = np.linalg.solve(within, apart)
    off = ~np.eye(3, dtype=bool)
    expected = np.outer(slopes, slopes)[off]
    np.testing.assert_allclose(M[off] / M[0, 1], expected / expected[0], rtol=1e-3)


def test_correlations_that_drown_in_their_noise_are_not_used_while_the_weight_of_a_feature_stays():
    # Means differ in the first feature alone, so whatever else the metric does with the others comes of correlations.
    moments, _ = exact(np.array([0.2, 0.0, 0.0]), np.full(3, 0.01), correlation=0.5, n=20_000)
    known = discriminant_start(moments)
    noisy = discriminant_start(dataclasses.replace(moments, noise=(1.0, 1.0, 300.0)))
    (M, N) = (W.T @ W for W in (known, noisy))
    assert abs(N[0, 1]) / N[0, 0] < 0.2 * abs(M[0, 1]) / M[0, 0]
    assert N[0, 0] > 5 * N[1, 1]


@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_the_longest_axes_lie_where_the_classes_differ(classes):
    X, y = table(1, 4000, 0.12, classes=classes)
    W = start(X, y, math.inf, classes)
    values, vectors = np.linalg.eigh(W.T @ W)
    assert np.linalg.norm(vectors[:classes, -classes:]) ** 2 > 0.99 * classes
    assert values[-classes] > 5 * values[-classes - 1]


@pytest.mark.parametrize("mu", [0.02, 0.3, math.inf])
def test_constant_features_and_any_noise_leave_the_metric_finite(mu):
    X, y = table(11, 60, 0.12)
    X[:, 3] = 0.0
    for seed in range(20):
        W = start(X, y, mu, seed=seed)
        assert np.isfinite(W).all()
        assert np.linalg.norm(W) > 0


@pytest.mark.parametrize("seed", range(5))
def test_classes_that_do_not_differ_leave_the_metric_almost_euclidean(seed):
    X, y = table(seed, 2000, 0.0)
    # A real difference gives 30 and more here.
    assert stretched(start(X, y, math.inf)) < 12


def test_a_release_that_is_all_noise_gives_the_euclidean_metric_exactly():
    # The noise explains more than there is, so nothing is raised.
    moments = Moments(
        sums=np.array([[1.0, 0.0], [-1.0, 0.0]]),
        counts=np.array([5.0, 5.0]),
        second=np.eye(2),
        n=10,
        noise=(50.0, 50.0, 50.0),
    )
    np.testing.assert_allclose(discriminant_start(moments), np.eye(2), atol=1e-12)


def test_the_mean_squared_distance_stays_that_of_the_euclidean_metric():
    X, y = table(2, 3000, 0.12)
    W = start(X, y, math.inf)
    a, b = X[::2], X[1::2]
    before = ((a - b) ** 2).sum(axis=1).mean()
    assert (((a - b) @ W.T) ** 2).sum(axis=1).mean() == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("rows", [1, 3, 12, 40])
def test_rows_asked_for_keep_the_most_of_the_squared_distance_under_the_full_metric(rows):
    X, y = table(4, 2000, 0.12)
    moments = release_moments(X, y, 2, plan_moments(1.0), Randomness(0))
    full, some = discriminant_start(moments), discriminant_start(moments, rows)
    spread = moments.within() + moments.between()
    values = np.linalg.eigvalsh(full @ spread @ full.T)[::-1]
    kept = min(rows, 12)
    assert some.shape == (kept, 12)
    np.testing.assert_allclose(np.trace(some @ spread @ some.T), values[:kept].sum(), rtol=1e-8)
    # Rows are those of the full metric after a rotation: no distance grows.
    assert np.linalg.eigvalsh(full.T @ full - some.T @ some).min() > -1e-9


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_a_started_metric_beats_the_euclidean_one_where_classes_differ(epsilon):
    # Stated: at n = 3000 and every epsilon here, 5 nearest neighbours gain 0.03 or more.
    (X, y), (Z, z) = table(5, 3000, 0.12), table(6, 1500, 0.12)
    learner = DPPMetricLearner(epsilon, algorithm="matching", classes=[0, 1], random_state=0)
    W = learner.fit(X, y).components_
    near = KNeighborsClassifier(5)
    assert near.fit(X @ W.T, y).score(Z @ W.T, z) > near.fit(X, y).score(Z, z) + 0.03


def test_a_tiny_budget_is_not_worse_than_the_euclidean_metric_by_more_than_chance():
    # Standard error of a difference of accuracies on 1500 records: about 0.01.
    (X, y), (Z, z) = table(7, 1000, 0.12), table(8, 1500, 0.12)
    W = (
        DPPMetricLearner(0.05, algorithm="matching", classes=[0, 1], random_state=0)
        .fit(X, y)
        .components_
    )
    near = KNeighborsClassifier(5)
    assert near.fit(X @ W.T, y).score(Z @ W.T, z) > near.fit(X, y).score(Z, z) - 0.03


def test_the_budget_of_the_start_reaches_the_release(monkeypatch):
    import pairwise.algorithms.contrastive_plans as dpp

    seen = []
    real = dpp.plan_moments
    monkeypatch.setattr(dpp, "plan_moments", lambda mu, **k: seen.append(mu) or real(mu, **k))
    X, y = table(9, 200, 0.12)
    DPPMetricLearner(2.0, algorithm=Matching(start_share=0.25), classes=[0, 1], random_state=0).fit(
        X, y
    )
    assert seen == [pytest.approx(release_mu(2.0, 1e-5, hardened=True) / 2)]
