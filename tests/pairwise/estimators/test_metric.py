"""``PrivateMetricLearner``: metrics, metric-learn's methods, guarantees and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from pairwise import (
    DPPMetricLearner,
    Gradient,
    Matching,
    OffPair,
    OnPair,
    PrivacyBudget,
    PrivateMetricLearner,
    SGDOutput,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.errors import BudgetExceededError, PairwiseError
from pairwise.estimators.metric import _longest_axes

CONVEX_ALGORITHMS = ("onpairstrc", "onpairc", "offpairstrc", "offpairc", "sgd-output", "ftrl")

ALGORITHMS = ["gradient", *CONVEX_ALGORITHMS, "statistics", "matching"]


def _table(n=240, seed=0):
    """One informative direction among five; the others are wider noise."""
    r = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = r.normal(size=(n, 5)) * [0.08, 0.3, 0.3, 0.3, 0.3]
    X[:, 0] += 0.3 * (2 * y - 1)
    return X, y


def _share(metric):
    M = metric.get_mahalanobis_matrix()
    return M[0, 0] / np.trace(M)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_noise_the_informative_direction_gains_weight(algorithm):
    metric = PrivateMetricLearner(epsilon=math.inf, algorithm=algorithm).fit(*_table())
    assert _share(metric) > 0.4


@pytest.mark.parametrize("algorithm", ["auto", "gradient", "statistics"])
def test_with_enough_records_the_private_metric_finds_it_too(algorithm):
    metric = PrivateMetricLearner(epsilon=4.0, algorithm=algorithm, random_state=0)
    assert _share(metric.fit(*_table(4000))) > 0.4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_spends_at_most_epsilon(algorithm):
    metric = PrivateMetricLearner(epsilon=0.9, delta=1e-5, algorithm=algorithm).fit(*_table(60))
    assert 0.89 < epsilon_of(metric.privacy_event_, 1e-5) <= 0.9 * (1 + 1e-9)
    assert metric.statement_.epsilon == 0.9
    assert metric.sensitivity() > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_metric_is_positive_semidefinite_of_the_asked_rank(algorithm):
    metric = PrivateMetricLearner(n_components=2, algorithm=algorithm).fit(*_table(60))
    values = np.linalg.eigvalsh(metric.get_mahalanobis_matrix())
    assert values.min() > -1e-9 * max(values.max(), 1e-300)
    assert (values > 1e-9 * max(values.max(), 1e-300)).sum() <= 2


def test_pair_distances_are_distances_of_transformed_records_also_by_index():
    X, y = _table(40)
    metric = PrivateMetricLearner(data_norm=5.0, preprocessor=X).fit(X, y)
    index = np.array([[0, 1], [3, 7], [5, 5]])
    Z = metric.transform(X)
    expected = np.linalg.norm(Z[index[:, 0]] - Z[index[:, 1]], axis=1)
    np.testing.assert_allclose(metric.pair_distance(X[index]), expected, atol=1e-12)
    np.testing.assert_allclose(metric.pair_distance(index), expected, atol=1e-12)
    np.testing.assert_allclose(metric.pair_score(index), -expected, atol=1e-12)
    distance = metric.get_metric()
    assert [distance(*X[pair]) for pair in index] == pytest.approx(list(expected))
    apart = X[0] - X[1]
    squared = apart @ metric.get_mahalanobis_matrix() @ apart
    assert expected[0] == pytest.approx(math.sqrt(squared))


@pytest.mark.parametrize("pairs", [np.zeros((3, 2, 4)), np.zeros((3, 3, 5)), [[0, 99]], [[0.5, 1]]])
def test_malformed_pairs_are_refused(pairs):
    X, y = _table(40)
    metric = PrivateMetricLearner(preprocessor=X).fit(X, y)
    with pytest.raises(PairwiseError, match="pairs"):
        metric.pair_distance(pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"algorithm": "magic"}, "algorithm"),
        ({"algorithm": OffPair(loss="hinge", strong=False)}, "smooth"),
        ({"algorithm": SGDOutput(loss="contrastive")}, "convex"),
        ({"algorithm": Gradient(clip=-1.0)}, "clip"),
        ({"algorithm": Matching(margin=-1.0)}, "margin must be"),
        ({"algorithm": Matching(start_share=1.0)}, "start_share must be"),
        ({"algorithm": Matching(init=np.eye(4))}, "init must be"),
        ({"algorithm": Matching(init=np.eye(5)), "n_components": 2}, "init, which is the start"),
        ({"delta": 0.1}, "1/n"),
    ],
)
def test_bad_settings_are_refused_by_name(change, message):
    with pytest.raises(PairwiseError, match=message):
        PrivateMetricLearner(**change).fit(*_table(40))


def test_by_default_it_learns_what_the_learner_for_distances_learns():
    X, y = _table()
    settings = {"epsilon": 2.0, "delta": 1e-5, "n_components": 3, "random_state": 5}
    mine = PrivateMetricLearner(classes=[0, 1], **settings).fit(X, y)
    other = DPPMetricLearner(classes=[0, 1], **settings).fit(X, y)
    np.testing.assert_array_equal(mine.components_, other.components_)
    assert mine.privacy_event_ == other.privacy_event_
    assert mine.sensitivity() == other.sensitivity()


def test_one_class_and_three_records_are_refused():
    X, y = _table(40)
    with pytest.raises(ValueError, match="one class"):
        PrivateMetricLearner().fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="n_samples = 3"):
        PrivateMetricLearner().fit(X[:3], y[:3])


def test_a_second_fit_beyond_the_budget_is_refused():
    X, y = _table(40)
    with PrivacyBudget(1.0, 1e-5) as budget:
        metric = PrivateMetricLearner(delta=1e-5, budget=budget).fit(X, y)
        with pytest.raises(BudgetExceededError):
            metric.fit(X, y)


def test_feature_names_match_the_columns_of_the_transform():
    X, y = _table(40)
    metric = PrivateMetricLearner(n_components=3).fit(X, y)
    assert len(metric.get_feature_names_out()) == metric.transform(X).shape[1] == 3


# -- streams


def test_a_metric_takes_records_one_at_a_time_as_well_as_all_at_once():
    X, y = _table(40)
    outs = []
    for size in (40, 1):
        metric = PrivateMetricLearner(
            algorithm=OnPair(strong=False, horizon=50, track_regret=True),
            classes=[0, 1],
            random_state=0,
        )
        for start in range(0, 40, size):
            metric.partial_fit(X[start : start + size], y[start : start + size])
        outs.append((metric.get_mahalanobis_matrix(), metric.regret_))
    np.testing.assert_allclose(outs[0][0], outs[1][0], atol=1e-10)
    np.testing.assert_allclose(outs[0][1], outs[1][1], atol=1e-10)
    assert len(outs[0][1]) == 39


def test_the_regret_of_a_record_is_its_mean_loss_at_the_metric_before_it():
    X, y = _table(4)
    metric = PrivateMetricLearner(
        algorithm=OnPair(strong=False, horizon=10, track_regret=True), classes=[0, 1]
    )
    metric.partial_fit(X[:1], y[:1]).partial_fit(X[1:2], y[1:2])
    # Nothing was released yet, so M = 0 and a pair of two classes costs log(1 + e).
    assert metric.regret_ == [pytest.approx(math.log(1 + math.e))]


def test_classes_given_to_the_first_call_are_public_and_later_ones_must_be_among_them():
    X, y = _table(20)
    metric = PrivateMetricLearner(algorithm=OnPair(horizon=50))
    metric.partial_fit(X, y, classes=[0, 1, 2])
    assert "the set of class labels" not in metric.statement_.not_protected
    with pytest.raises(PairwiseError, match="not among the classes of this stream"):
        metric.partial_fit(X, y + 7)
    with PrivacyBudget(2.0, 1e-5) as budget:
        refused = PrivateMetricLearner(algorithm=OnPair(strong=False, horizon=50), budget=budget)
        with pytest.raises(PairwiseError, match="not among the classes"):
            refused.partial_fit(X, y, classes=[0, 7])
        assert budget.charges == ()
    read = PrivateMetricLearner(algorithm=OnPair(horizon=50)).partial_fit(X, y)
    assert "the set of class labels" in read.statement_.not_protected


def test_only_streams_have_partial_fit_and_only_published_ones_may_be_vacuous():
    assert not hasattr(PrivateMetricLearner(), "partial_fit")
    with pytest.raises(PairwiseError, match="T1"):
        PrivateMetricLearner(algorithm="offpairstrc", mode="published").fit(*_table(60))
    with pytest.raises(PairwiseError, match="no published form"):
        PrivateMetricLearner(mode="published").fit(*_table(60))


def test_few_components_keep_what_the_whole_space_has_learned():
    signal, y = make_blobs(600, n_features=3, centers=3, cluster_std=1.5, random_state=1)
    noise = np.random.default_rng(1).normal(size=(600, 17)) * 6
    X = np.hstack([signal, noise]) / 40
    learner = PrivateMetricLearner(
        epsilon=float("inf"), n_components=3, classes=range(3), algorithm=Gradient(steps=60)
    )
    W = learner.fit(X, y).components_
    assert W.shape == (3, 20)
    # Most of the map lies in the three features that tell the classes apart.
    assert np.sum(W[:, :3] ** 2) > 0.8 * np.sum(W**2)


def test_the_longest_axes_are_the_nearest_factor_of_their_rank():
    W = np.random.default_rng(2).normal(size=(6, 9))
    cut = _longest_axes(W, 2)
    lengths = np.linalg.svd(W, compute_uv=False)
    M, N = W.T @ W, cut.T @ cut
    assert cut.shape == (2, 9)
    assert np.linalg.norm(M - N) == pytest.approx(np.linalg.norm(lengths[2:] ** 2))
