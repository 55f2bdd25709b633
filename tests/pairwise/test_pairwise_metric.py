"""``PrivateMetricLearner``: metrics, metric-learn's methods, guarantees and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pairwise import PrivacyBudget, PrivateMetricLearner
from pairwise.accounting import epsilon_of
from pairwise.errors import BudgetExceeded, PairwiseError

ALGORITHMS = ["gradient", "onpairc", "offpairc", "sgd-output", "statistics"]


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


@pytest.mark.parametrize("algorithm", ["gradient", "statistics"])
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
        ({"loss": "hinge", "algorithm": "offpairc"}, "smooth"),
        ({"loss": "contrastive", "algorithm": "sgd-output"}, "convex"),
        ({"clip": -1.0}, "clip"),
        ({"delta": 0.1}, "1/n"),
    ],
)
def test_bad_settings_are_refused_by_name(change, message):
    with pytest.raises(PairwiseError, match=message):
        PrivateMetricLearner(**change).fit(*_table(40))


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
        with pytest.raises(BudgetExceeded):
            metric.fit(X, y)


def test_feature_names_match_the_columns_of_the_transform():
    X, y = _table(40)
    metric = PrivateMetricLearner(n_components=3).fit(X, y)
    assert len(metric.get_feature_names_out()) == metric.transform(X).shape[1] == 3
