"""The start of a metric from released class moments: it finds what separates the classes, and nothing where nothing is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from pairwise import DPPMetricLearner
from pairwise.accounting import gaussian_mu
from pairwise.dpp_start import discriminant_start
from pairwise.noise import Randomness
from pairwise.statistics import Moments, plan_moments, release_moments


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


@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_the_longest_axes_are_the_discriminant_directions(classes):
    X, y = table(1, 4000, 0.12, classes=classes)
    W = start(X, y, math.inf, classes)
    values, vectors = np.linalg.eigh(W.T @ W)
    longest = vectors[:, -(classes - 1) :]
    # All of what is longest lies in the first few coordinates, where the classes differ.
    assert np.linalg.norm(longest[:classes]) ** 2 > 0.99 * (classes - 1)
    assert values[-(classes - 1)] > 5 * values[-classes]


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


def test_the_discriminant_carries_nearly_half_of_the_distance_within_a_class_and_not_more():
    X, y = table(3, 40_000, 0.12)
    W = start(X, y, math.inf)
    values, vectors = np.linalg.eigh(W.T @ W)
    inside = X[y == 1] - X[y == 1].mean(axis=0)
    total = ((inside @ W.T) ** 2).sum(axis=1).mean()
    along = values[-1] * ((inside @ vectors[:, -1]) ** 2).mean()
    # The regularised scatter exceeds the true one, so the share stays below one half.
    assert 0.4 < along / total < 0.52


@pytest.mark.parametrize("rows", [1, 3, 12, 40])
def test_rows_asked_for_are_the_longest_axes_of_the_full_metric(rows):
    X, y = table(4, 2000, 0.12)
    full, some = start(X, y, 1.0), start(X, y, 1.0, rows=rows)
    values = np.linalg.eigvalsh(full.T @ full)[::-1]
    kept = min(rows, 12)
    assert some.shape == (kept, 12)
    np.testing.assert_allclose(np.linalg.eigvalsh(some @ some.T)[::-1], values[:kept], rtol=1e-8)


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
    import pairwise.dpp as dpp

    seen = []
    real = dpp.plan_moments
    monkeypatch.setattr(dpp, "plan_moments", lambda mu, **k: seen.append(mu) or real(mu, **k))
    X, y = table(9, 200, 0.12)
    DPPMetricLearner(
        2.0, algorithm="matching", classes=[0, 1], start_share=0.25, random_state=0
    ).fit(X, y)
    assert seen == [pytest.approx(gaussian_mu(2.0, 1e-5) / 2)]
