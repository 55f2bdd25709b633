"""One release of moments: contributions, sensitivity, linear discriminant, refits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.budget import PrivacyBudget
from pairwise.accounting.events import Adjacency
from pairwise.accounting.gaussian import gaussian_mu
from pairwise.algorithms.moments import (
    DEFAULT_WEIGHTS,
    Moments,
    _unit_weights,
    auc_direction,
    exact_moments,
    moment_sensitivity,
    plan_moments,
    release_moments,
)
from pairwise.errors import PairwiseError
from pairwise.estimators.lda import PrivateLDA
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records


def contributions(X, codes, n_classes, weights):
    """Return each record's weighted contribution, shape (n, C·d + C + d(d+1)/2)."""
    w1, w2, w3 = _unit_weights(weights)
    n, d = X.shape
    sums = np.zeros((n, n_classes, d))
    sums[np.arange(n), codes] = X
    counts = np.zeros((n, n_classes))
    counts[np.arange(n), codes] = 1.0
    rows, columns = np.triu_indices(d)
    factor = np.where(rows == columns, 1.0, math.sqrt(2.0))
    second = X[:, rows] * X[:, columns] * factor
    return np.concatenate((w1 * sums.reshape(n, -1), w2 * counts, w3 * second), axis=1)


def _unit(r, n, d):
    X = r.normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_a_contribution_has_norm_one_at_unit_records_and_less_inside():
    r = np.random.default_rng(0)
    X = _unit(r, 500, 5)
    codes = r.integers(3, size=500)
    norms = np.linalg.norm(contributions(X, codes, 3, DEFAULT_WEIGHTS), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-12)
    inside = contributions(X * r.random((500, 1)), codes, 3, DEFAULT_WEIGHTS)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0 + 1e-12


@pytest.mark.parametrize("weights", [DEFAULT_WEIGHTS, (0.6, 0.5, 0.6), (0.9, 0.1, 0.3), (1, 1, 1)])
def test_five_thousand_replacements_never_pass_the_sensitivity_and_come_close(weights):
    r = np.random.default_rng(1)
    d, trials = 3, 5000
    X = _unit(r, trials, d)
    # Collinear, opposite and partly opposite partners at many lengths.
    angle = r.uniform(-1, 1, size=(trials, 1))
    other = angle * X + np.sqrt(1 - angle**2) * _unit(r, trials, d)
    other /= np.maximum(1.0, np.linalg.norm(other, axis=1, keepdims=True))
    lengths = np.where(r.random((trials, 2)) < 0.7, 1.0, r.random((trials, 2)))
    own = contributions(X * lengths[:, :1], r.integers(2, size=trials), 2, weights)
    new = contributions(other * lengths[:, 1:], r.integers(2, size=trials), 2, weights)
    moved = np.linalg.norm(own - new, axis=1).max()
    bound = moment_sensitivity(weights)
    assert 0.97 * bound <= moved <= bound * (1 + 1e-12)
    assert bound < 2


@settings(deadline=None, max_examples=200)
@given(st.floats(0.05, 1), st.floats(0.05, 1), st.floats(0.05, 1), st.integers(0, 10**6))
def test_the_sensitivity_holds_for_any_weights_and_records(w1, w2, w3, seed):
    r = np.random.default_rng(seed)
    X = _unit(r, 60, 2) * r.choice([1.0, 0.9, 0.5, 0.1], size=(60, 1))
    u = contributions(X, r.integers(2, size=60), 2, (w1, w2, w3))
    moved = np.linalg.norm(u[:, None] - u[None], axis=2).max()
    assert moved <= moment_sensitivity((w1, w2, w3)) * (1 + 1e-9)


def test_zero_out_costs_one_and_add_remove_is_refused():
    assert moment_sensitivity(adjacency=Adjacency.ZERO_OUT) == 1.0
    with pytest.raises(PairwiseError, match="add/remove"):
        moment_sensitivity(adjacency=Adjacency.ADD_REMOVE)


def test_the_release_is_the_exact_moments_plus_noise_of_the_stated_size():
    r = np.random.default_rng(2)
    X, codes = np.zeros((50, 4)), r.integers(2, size=50)
    plan = plan_moments(0.5)
    draws = [release_moments(X, codes, 2, plan, Randomness(i)) for i in range(400)]
    s1, s2, s3 = draws[0].noise
    assert (s1, s2, s3) == tuple(plan.sigma / w for w in plan.weights)
    upper = np.array([m.second[0, 1] for m in draws])
    diagonal = np.array([m.second[0, 0] for m in draws])
    # 400 draws: a ratio outside 1 ± 0.25 has probability below 1e-10.
    assert np.std(upper) / (s3 / math.sqrt(2)) == pytest.approx(1, abs=0.25)
    assert np.std(diagonal) / s3 == pytest.approx(1, abs=0.25)
    assert all(np.array_equal(m.second, m.second.T) for m in draws[:5])


def test_records_of_any_length_enter_the_moments_at_the_public_norm():
    r = np.random.default_rng(12)
    X, codes = r.normal(size=(9, 2)) * 20, np.arange(9) % 2
    plan = plan_moments(math.inf)
    long, clipped = (
        release_moments(each, codes, 2, plan, Randomness(0), data_norm=3.0)
        for each in (X, clip_records(X, 3.0))
    )
    np.testing.assert_allclose(long.second, clipped.second, atol=1e-12)
    np.testing.assert_allclose(long.sums, clipped.sums, atol=1e-12)


def test_infinite_epsilon_recovers_linear_discriminant_analysis():
    r = np.random.default_rng(3)
    y = r.integers(3, size=400)
    X = (r.normal(size=(400, 4)) @ np.diag([1, 0.4, 0.8, 0.6]) + np.eye(4)[y] * 2) * 0.1
    ours = PrivateLDA(epsilon=math.inf, centre_share=0.0).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    a, b = ours.transform(X), theirs.transform(X)
    for k in range(2):
        assert abs(np.corrcoef(a[:, k], b[:, k])[0, 1]) == pytest.approx(1.0, abs=1e-6)
    assert np.linalg.norm(ours.scalings_, 2) == pytest.approx(1.0)


def test_exact_moments_give_the_direction_of_the_square_loss_auc_under_a_shared_covariance():
    r = np.random.default_rng(4)
    half = r.normal(size=(300, 3)) * [0.2, 0.05, 0.1]
    shift = np.array([0.1, 0.05, -0.02])
    X = np.concatenate((half + shift, half - shift))
    codes = np.repeat([1, 0], 300)
    moments = Moments(*exact_moments(X, codes, 2), 600, (0.0, 0.0, 0.0))
    apart = (X[codes == 1][:, None] - X[codes == 0][None]).reshape(-1, 3)
    exact = np.linalg.lstsq(apart, np.ones(len(apart)), rcond=None)[0]
    cosine = auc_direction(moments) @ exact / np.linalg.norm(exact)
    assert cosine == pytest.approx(1.0, abs=1e-9)


def test_refits_cost_nothing_and_labels_far_from_the_table_are_refused():
    r = np.random.default_rng(5)
    X, y = r.normal(size=(60, 4)) * 0.3, np.arange(60) % 4
    with PrivacyBudget(1.0, 1e-4) as budget:
        lda = PrivateLDA(epsilon=1.0, delta=1e-4, classes=range(4), budget=budget).fit(X, y)
        smaller = lda.refit(2)
        assert len(budget.charges) == 1
    assert smaller.transform(X).shape == (60, 2)
    assert smaller.moments_ is lda.moments_
    with pytest.raises(PairwiseError, match="not among them"):
        PrivateLDA(classes=[0, 1]).fit(X, y)


def test_declared_classes_that_do_not_occur_are_kept_and_the_set_of_labels_is_protected():
    r = np.random.default_rng(6)
    lda = PrivateLDA(classes=[0, 1, 2], random_state=0).fit(
        r.normal(size=(40, 2)) * 0.3, np.arange(40) % 2
    )
    assert list(lda.classes_) == [0, 1, 2]
    assert not any("labels" in line for line in lda.statement_.not_protected)


def test_the_event_costs_exactly_epsilon():
    r = np.random.default_rng(7)
    lda = PrivateLDA(epsilon=0.7, delta=1e-6).fit(r.normal(size=(40, 2)), np.arange(40) % 2)
    assert epsilon_of(lda.privacy_event_, 1e-6) == pytest.approx(0.7, rel=1e-9)
    assert plan_moments(gaussian_mu(0.7, 1e-6)).sensitivity == lda.sensitivity()


def test_neighbouring_tables_move_the_weighted_release_by_at_most_the_sensitivity():
    r = np.random.default_rng(8)
    X, codes = _unit(r, 6, 2), r.integers(2, size=6)
    base = contributions(X, codes, 2, DEFAULT_WEIGHTS).sum(axis=0)
    worst = 0.0
    for angle, label in itertools.product(np.linspace(0, 2 * np.pi, 400), (0, 1)):
        X2, c2 = X.copy(), codes.copy()
        X2[0], c2[0] = [np.cos(angle), np.sin(angle)], label
        moved = contributions(X2, c2, 2, DEFAULT_WEIGHTS).sum(axis=0) - base
        worst = max(worst, float(np.linalg.norm(moved)))
    assert 0.95 * moment_sensitivity() <= worst <= moment_sensitivity() * (1 + 1e-12)
