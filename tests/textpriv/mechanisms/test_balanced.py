"""Balanced TEM: its measure against closed values and a dense solution, its choice, and its guarantee by brute force."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import textpriv
from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.mechanisms import TEM, UNKNOWN, BalancedTEM, balanced, registry
from textpriv.mechanisms.balanced import balance, mean_distance
from textpriv.metrics import CallableMetric
from textpriv.statement import UnsoundWarning


def all_laws(mechanism) -> np.ndarray:
    return np.array([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def excess(log_laws, distances, epsilon) -> float:
    """The most by which any ln P_w(y) / P_w'(y) exceeds epsilon d(w, w'): brute force over all w, w' and y."""
    return max(
        float(((law - log_laws).max(axis=1) - epsilon * near).max())
        for law, near in zip(log_laws, distances, strict=True)
    )


# The measure


def test_three_points_have_the_published_weights(three_points):
    assert_allclose(balance(three_points, 2.0), (0.880797, 0.862811, 0.982014), atol=5e-7)


def test_two_words_one_nat_apart_are_kept_as_by_randomised_response(index_of):
    law = np.exp(BalancedTEM(index_of([0.0, 0.25]), 4.0).log_prob(0))
    assert law[0] == pytest.approx(0.731059, abs=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "angular"])
def test_the_measure_solves_the_system(vocabulary_of, metric):
    points = np.random.default_rng(1).normal(size=(300, 6)) * 2
    index = Index.build(vocabulary_of(points), metric, k=4, hnsw=False)
    # Far enough apart that no weight of the solution is negative.
    epsilon = 12.0 if metric == "angular" else 1.6
    exact = np.linalg.solve(np.exp(-epsilon * index.metric.pairwise(points, points)), np.ones(300))
    assert exact.min() > 0
    assert_allclose(balance(index, epsilon), exact, rtol=1e-6)


def test_negative_weights_are_raised_to_a_trillionth_of_the_largest(index_of, clustered_points):
    points = clustered_points(10, 10, 5, 1.0)
    exact = np.linalg.solve(np.exp(-0.5 * cdist(points, points)), np.ones(100))
    assert exact.min() < 0
    found = balance(index_of(points), 0.5)
    assert found.min() == pytest.approx(1e-12 * found.max(), rel=1e-9)
    assert_allclose(found[exact > 0.05], exact[exact > 0.05], rtol=1e-3)


def test_duplicates_share_the_weight_of_one_word(index_of):
    found = balance(index_of([0.0, 1.0, 3.0, 3.0]), 2.0)
    assert_allclose(found, (0.880797, 0.862811, 0.982014 / 2, 0.982014 / 2), atol=5e-7)


def test_on_a_ring_all_weights_are_equal_and_the_whole_budget_is_spent(index_of):
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    mechanism = BalancedTEM(index_of(np.stack([np.cos(angles), np.sin(angles)], 1)), 2.0)
    assert_allclose(mechanism.measure.weights, 1 / 12, rtol=1e-6)
    assert mechanism.t == pytest.approx(2.0, rel=3e-6)


def test_the_mean_distance_is_that_of_the_laws(index_of, tied_points):
    points = tied_points(300)
    mechanism = TEM(index_of(points), 1.5, "zipf", gamma=3.0)
    expected = (np.exp(all_laws(mechanism)) * cdist(points, points)).sum(axis=1).mean()
    found = mean_distance(mechanism.index, mechanism.measure.weights, mechanism.t, mechanism.gamma)
    assert found == pytest.approx(expected, rel=1e-10)


# The choice


@pytest.mark.parametrize(("epsilon", "kept"), [(0.3, "calibrated"), (2.0, "balanced")])
def test_the_law_that_moves_words_less_is_kept(index_of, clustered_points, epsilon, kept):
    mechanism = BalancedTEM(index_of(clustered_points(12, 15, 20, 1.0)), epsilon)
    moved = {law: found["mean_distance"] for law, found in mechanism.evidence.items()}
    assert mechanism.kept == kept == min(moved, key=moved.get)
    assert mechanism.t == mechanism.evidence[kept]["t"]
    laws = np.exp(all_laws(mechanism))
    apart = cdist(mechanism.index.coordinates, mechanism.index.coordinates)
    assert moved[kept] == pytest.approx((laws * apart).sum(axis=1).mean(), rel=1e-6)


def test_the_calibrated_law_is_that_of_tem(index_of, clustered_points):
    index = index_of(clustered_points(12, 15, 20, 1.0))
    mechanism = BalancedTEM(index, 0.3)
    plain = TEM(index, 0.3, "uniform", gamma=np.inf, rate="calibrated")
    assert_allclose(all_laws(mechanism), all_laws(plain), rtol=1e-12)


def test_without_a_solution_the_calibrated_law_is_kept(three_points, monkeypatch):
    monkeypatch.setattr(balanced, "balance", lambda *arguments: None)
    mechanism = BalancedTEM(three_points, 1.7)
    assert mechanism.kept == "calibrated"
    assert list(mechanism.evidence) == ["calibrated"]


def test_a_kernel_that_is_not_positive_definite_has_no_solution_or_a_positive_one(vocabulary_of):
    # In the largest-coordinate distance the corners of a cube about its centre make the kernel indefinite.
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 5)).reshape(5, -1).T
    points = np.concatenate([corners, np.eye(5), -np.eye(5), np.zeros((1, 5))])
    index = Index.build(vocabulary_of(points), "chebyshev", hnsw=False)
    kernel = np.exp(-0.5 * index.metric.pairwise(points, points))
    assert np.linalg.eigvalsh(kernel).min() < 0
    found = balance(index, 0.5)
    assert found is None or (np.isfinite(found).all() and found.min() > 0)


# The guarantee, by brute force over (w, w', y)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("points", ["tied", "clustered"])
def test_the_bound_holds_for_all_triples(index_of, tied_points, clustered_points, points, epsilon):
    vectors = tied_points(240) if points == "tied" else clustered_points(12, 20, 20, 1.0)
    mechanism = BalancedTEM(index_of(vectors, k=16), epsilon)
    assert excess(all_laws(mechanism), cdist(vectors, vectors), epsilon) <= 1e-9


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "angular"])
@pytest.mark.parametrize("gamma", [1.0, None])
def test_the_bound_holds_in_every_metric(vocabulary_of, metric, gamma):
    points = np.random.default_rng(2).normal(size=(120, 4))
    index = Index.build(vocabulary_of(points), metric, k=16, hnsw=False)
    mechanism = BalancedTEM(index, 3.0, gamma=gamma)
    assert excess(all_laws(mechanism), index.metric.pairwise(points, points), 3.0) <= 1e-9


def test_the_bound_check_detects_the_full_rate_without_balance(index_of, clustered_points):
    points = clustered_points(12, 20, 20, 1.0)
    broken = -2.0 * cdist(points, points)
    broken -= np.log(np.exp(broken).sum(axis=1, keepdims=True))
    assert excess(broken, cdist(points, points), 2.0) > 0.1


def test_the_certificate_is_exact_and_nearly_all_is_spent(index_of, clustered_points):
    mechanism = BalancedTEM(index_of(clustered_points(12, 20, 20, 1.0)), 2.0)
    certificate = textpriv.certify(mechanism)
    assert certificate.holds
    assert certificate.exact
    assert 1.99 < certificate.rho <= 2.0
    assert certificate.rho_with_rounding == pytest.approx(mechanism.rho_bound, rel=1e-9)


def test_no_pair_of_words_loses_more_than_the_stated_worst(index_of):
    points = np.random.default_rng(14).normal(size=(80, 3)) * 3
    mechanism = BalancedTEM(index_of(points, k=8), 1.5, gamma=2.0)
    worst = mechanism.statement.figures["worst_word_loss"]
    assert excess(all_laws(mechanism), np.zeros((80, 80)), 1.0) <= worst + 1e-9


# The sampler, by chi-square (false-alarm rate 1e-9 each, see conftest)


@pytest.mark.parametrize("word", [0, 77, UNKNOWN])
def test_samples_follow_the_law(index_of, clustered_points, stream, goodness, level, word):
    mechanism = BalancedTEM(index_of(clustered_points(12, 15, 20, 1.0), k=8), 2.0)
    found = mechanism.sample(np.full(20_000, word), stream("balanced", word))
    assert mechanism.kept == "balanced"
    assert goodness(np.bincount(found, minlength=180), np.exp(mechanism.log_prob(word))) > level


# Records, parameters, statement, copies


def test_the_choice_is_computed_once_and_recorded_with_the_index(
    three_points, tmp_path, monkeypatch
):
    three_points.save(tmp_path / "index")
    index = Index.load(tmp_path / "index")
    first = BalancedTEM(index, 2.0)
    monkeypatch.setattr(balanced, "balance", None)
    again = BalancedTEM(Index.load(tmp_path / "index"), 2.0)
    assert (again.kept, again.t, again.evidence) == (first.kept, first.t, first.evidence)
    assert (again.measure.parts == first.measure.parts).all()
    with pytest.raises(TypeError):
        BalancedTEM(index, 2.1)


HARM = {
    "no law": lambda record: record.pop("kept"),
    "an unknown law": lambda record: record.update(kept="uniform"),
    "no evidence": lambda record: record.update(evidence=None),
    "no rate": lambda record: record["evidence"]["balanced"].pop("t"),
    "a rate above epsilon": lambda record: record["evidence"]["balanced"].update(t=2.5),
    "a rate that is none": lambda record: record["evidence"]["balanced"].update(t="2"),
    "a constant above epsilon": lambda record: record.update(rho_with_rounding=2.1),
    "a constant that is none": lambda record: record.update(rho_with_rounding=float("nan")),
    "a constant that its pair exceeds": lambda record: record.update(
        rho_with_rounding=0.9 * record["rho_with_rounding"]
    ),
    "weights of another law": lambda record: record.update(weights=[1.0] * len(record["weights"])),
    "no pair": lambda record: record.pop("pair"),
    "a weight too few": lambda record: record["weights"].pop(),
    "a negative weight": lambda record: record["weights"].__setitem__(3, -1.0),
    "a weight that is none": lambda record: record["weights"].__setitem__(3, None),
    "no weights": lambda record: record.update(weights=None),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_record_that_does_not_keep_the_promise_is_computed_anew(index_of, clustered_points, harm):
    index = index_of(clustered_points(6, 10, 10, 1.0))
    first = BalancedTEM(index, 2.0)
    assert first.kept == "balanced"
    (binding,) = index._records.bindings.values()
    record = copy.deepcopy(index.find_record(binding))
    harm(record)
    index.keep_record(binding, record)
    again = BalancedTEM(index, 2.0)
    assert (again.kept, again.t, again.rho_bound) == (first.kept, first.t, first.rho_bound)
    assert (again.measure.parts == first.measure.parts).all()


def test_single_precision_finds_nearly_the_same_law_and_a_certified_one(
    index_of, clustered_points, monkeypatch
):
    points = clustered_points(12, 15, 10, 1.0)
    double = BalancedTEM(index_of(points), 2.0)
    monkeypatch.setattr(balanced, "_SMALL", 0)
    single = BalancedTEM(index_of(points), 2.0)
    assert single.kept == double.kept == "balanced"
    assert single.t == pytest.approx(double.t, rel=1e-3)
    assert textpriv.certify(single).rho_with_rounding <= 2.0
    assert_allclose(single.measure.weights, double.measure.weights, rtol=1e-3)


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), True, "6", None])
def test_an_epsilon_that_is_no_finite_positive_number_is_refused(three_points, epsilon):
    with pytest.raises(MechanismError, match="epsilon"):
        BalancedTEM(three_points, epsilon)


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), True, "far"])
def test_a_gamma_that_is_no_positive_number_is_refused(three_points, gamma):
    with pytest.raises(MechanismError, match="gamma"):
        BalancedTEM(three_points, 1.0, gamma=gamma)


def test_approximate_lists_are_refused(index_of):
    index = index_of(np.random.default_rng(0).normal(size=(50, 2)), k=5, backend="hnsw")
    with (
        pytest.warns(UnsoundWarning, match="approximate"),
        pytest.raises(MechanismError, match="BalancedTEM needs exact lists"),
    ):
        BalancedTEM(index, 1.0)


def test_a_metric_of_the_users_own_is_refused(vocabulary_of):
    metric = CallableMetric(lambda a, b: cdist(a, b), "plain")
    index = Index.build(vocabulary_of([[0.0], [1.0]]), metric, k=2)
    with pytest.raises(MechanismError, match="metric of this library"):
        BalancedTEM(index, 1.0)


def test_the_statement_names_the_law_that_was_kept(index_of, clustered_points):
    index = index_of(clustered_points(12, 15, 20, 1.0))
    assert "balanced measure" in BalancedTEM(index, 2.0).statement.mechanism
    assert "calibrated" in BalancedTEM(index, 0.3).statement.mechanism
    statement = BalancedTEM(index, 2.0).statement
    assert (statement.proved, statement.epsilon, statement.delta) == (True, 2.0, 0.0)


def test_a_vocabulary_of_one_word_always_gives_that_word(index_of, stream):
    mechanism = BalancedTEM(index_of([[1.0, 2.0]]), 1.0)
    assert mechanism.sample([0, UNKNOWN, 0], stream("one")).tolist() == [0, 0, 0]


def test_the_registry_passes_every_setting(three_points):
    wanted = {"epsilon": 3.0, "prior": "zipf", "gamma": 0.5}
    made = registry.get("textpriv.BalancedTEM.v1")(**wanted)(three_points)
    assert type(made) is BalancedTEM
    assert made.settings() == wanted


def test_a_copy_draws_the_same(three_points, stream):
    mechanism = BalancedTEM(three_points, 2.0)
    other = pickle.loads(pickle.dumps(mechanism))
    ids = np.array([0, 1, 2, UNKNOWN] * 50)
    assert other.settings() == mechanism.settings()
    assert (other.sample(ids, stream("value")) == mechanism.sample(ids, stream("value"))).all()
