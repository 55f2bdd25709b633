"""The exact constant: against brute force over words and outputs, against closed values, and the calibrated rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from textpriv.index import Index
from textpriv.mechanisms import TEM
from textpriv.mechanisms.calibration.pair_sweep import sweep
from textpriv.mechanisms.calibration.privacy_constant import (
    LOGARITHMS,
    inputs,
    largest_rate,
    log_normalisers,
    tight_constants,
)
from textpriv.metrics import METRICS, Mahalanobis, Projection, Rounding, get_metric
from textpriv.vocabulary import Vocabulary

SIZE = 500
STEEP = np.random.default_rng(3).permutation(np.logspace(0, 6, SIZE))


def metric_of(name: str, dimension: int = 5):
    if name not in ("mahalanobis", "projection"):
        return name
    factor = np.random.default_rng(1).normal(size=(dimension, dimension))
    return Mahalanobis(factor @ factor.T) if name == "mahalanobis" else Projection(factor[:3])


@pytest.fixture(scope="module")
def points():
    """500 words with duplicates, near-duplicates at several scales, opposites, and a far one."""
    rng = np.random.default_rng(11)
    table = np.repeat(rng.normal(size=(25, 5)), 20, axis=0) + 0.2 * rng.normal(size=(SIZE, 5))
    table[40:44] = table[40]
    table[50:55] = table[60] * (1 + np.array([1e-15, 1e-11, 1e-8, 1e-6, 1e-4])[:, None])
    table[70:75] = -table[80:85]
    table[75:80] = -table[85:90] * (1 + 1e-7)
    table[99] *= 40
    return table


@pytest.fixture(scope="module")
def indexed(points, index_of):
    kept: dict = {}

    def make(metric="euclidean", k=20, dtype=np.float64) -> Index:
        key = (metric, k, dtype)
        if key not in kept:
            kept[key] = index_of(points, dtype=dtype, metric=metric_of(metric), k=k)
        return kept[key]

    return make


def constant_of(mechanism: TEM):
    weights, rate, gamma = mechanism.exponential_law()
    log_z = log_normalisers(mechanism.index, weights, [rate], [gamma])
    return tight_constants(mechanism.index, [rate], [gamma], log_z)[0]


def brute_force(mechanism: TEM) -> float:
    """Largest log-ratio per unit of distance over every w, w' and y, from the laws alone, less what arithmetic may add."""
    index = mechanism.index
    apart = index.distances_of(np.arange(len(index)))[:, index.representatives]
    laws = np.array([mechanism.log_prob(word) for word in range(len(index))])
    worst = 0.0
    for law, near in zip(laws, apart, strict=True):
        loss = (law - laws).max(axis=1)
        assert np.abs(loss[near == 0]).max() <= 1e-12
        lost = np.maximum(loss[near > 0] - LOGARITHMS[np.float64], 0)
        worst = max(worst, float((lost / near[near > 0]).max()))
    return worst


# The sweep


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
def test_single_precision_keeps_six_digits_of_distances_and_four_of_those_between_near_duplicates(
    metric,
):
    rng = np.random.default_rng(8)
    points = rng.normal(size=(300, 20)) + 5.0
    points[200:] = points[100:200] + 1e-4 * rng.normal(size=(100, 20))
    index = Index.build(Vocabulary([f"w{i}" for i in range(300)], points), metric, hnsw=False)
    found = {}
    for precision in (np.float32, np.float64):
        table = found[precision] = np.full((300, 300), np.nan)

        def keep(rows, columns, distances, table=table, precision=precision):
            assert distances.dtype == precision
            table[rows, columns] = distances

        sweep(index.coordinates, index.metric, keep, precision=precision)
    met = ~np.isnan(found[np.float64])
    np.fill_diagonal(met, False)
    single, double = found[np.float32][met], found[np.float64][met]
    wrong = np.abs(single - double) / double
    assert wrong.max() < 1e-4
    assert wrong[double > 0.01].max() < 1e-5


# Against brute force


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", METRICS)
def test_the_constant_is_that_of_brute_force_under_every_metric(indexed, metric, dtype):
    mechanism = TEM(indexed(metric, dtype=dtype), 4.0)
    assert constant_of(mechanism).value == pytest.approx(brute_force(mechanism), rel=1e-9, abs=0)


@pytest.mark.parametrize("prior", ["uniform", "zipf", "steep"])
@pytest.mark.parametrize("gamma", [0.3, 1.0, None, np.inf])
def test_the_constant_is_that_of_brute_force_for_every_prior_and_truncation(indexed, prior, gamma):
    mechanism = TEM(indexed(), 3.0, STEEP if prior == "steep" else prior, gamma=gamma)
    assert constant_of(mechanism).value == pytest.approx(brute_force(mechanism), rel=1e-9, abs=0)


@pytest.mark.parametrize("k", [1, 3, 500])
def test_the_constant_does_not_depend_on_the_length_of_the_lists(indexed, k):
    found = constant_of(TEM(indexed(k=k), 3.0))
    assert found == constant_of(TEM(indexed(), 3.0))


def test_the_named_pair_attains_the_constant_in_its_order(indexed):
    mechanism = TEM(indexed(), 3.0)
    found = constant_of(mechanism)
    first, second = found.pair
    loss = (mechanism.log_prob(first) - mechanism.log_prob(second)).max()
    assert loss / mechanism.index.distance(first, second) == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("relative", [1e-3, 1e-6])
@pytest.mark.parametrize("absolute", [0.0, 1e-4])
@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_the_rounding_charged_covers_every_law_of_rounded_distances(
    indexed, relative, absolute, gamma
):
    # What is drawn and what the constant is computed from are distances that rounding has moved, each by its own amount.
    index, rng = indexed(), np.random.default_rng(0)
    weights, rate = index.vocabulary.prior_weights("zipf")[:150], 3.0
    points = index.coordinates[:150]
    true = cdist(points, points)
    rounding = Rounding(relative, absolute)

    def moved():
        errors = rng.choice([-1.0, 1.0], size=true.shape) * rounding.at(true)
        return np.maximum(true + np.triu(errors, 1) + np.triu(errors, 1).T, 0)

    def law(apart):
        score = np.log(weights) - rate * np.minimum(apart, gamma)
        return score - np.logaddexp.reduce(score, axis=1, keepdims=True)

    for _ in range(5):
        computed, drawn = moved(), law(moved())
        log_z = np.log((weights * np.exp(-rate * np.minimum(computed, gamma))).sum(axis=1))
        gap = np.abs(log_z[:, None] - log_z)
        far = computed > 2 * rounding.at(computed)
        ratio = (rate * np.minimum(computed, gamma) + gap) / np.where(far, computed, np.inf)
        constant = ratio.max() / (1 - relative)
        lost = (drawn[:, None] - drawn[None]).max(axis=2)
        charged = constant * true + 9 * rate * rounding.at(gamma)
        assert (lost <= charged)[far].all()


def test_several_rates_in_one_pass_are_as_each_alone(indexed):
    index = indexed()
    weights = TEM(index, 1.0).measure.weights
    rates, gammas = [0.5, 1.5, 6.0], [np.inf, 1.0, 0.4]
    together = tight_constants(index, rates, gammas, log_normalisers(index, weights, rates, gammas))
    for place, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
        log_z = log_normalisers(index, weights, [rate], [gamma])
        (alone,) = tight_constants(index, [rate], [gamma], log_z)
        assert together[place].value == pytest.approx(alone.value, rel=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_law_without_truncation_is_as_one_truncated_beyond_the_diameter(indexed):
    index = indexed()
    weights = TEM(index, 1.0).measure.weights
    log_z = log_normalisers(index, weights, [0.1] * 2, [np.inf, 1e6])
    untruncated, beyond = tight_constants(index, [0.1] * 2, [np.inf, 1e6], log_z)
    assert untruncated == beyond
    assert untruncated.value >= 0.1


def test_a_vocabulary_of_many_blocks_is_met_whole(index_of):
    points = np.random.default_rng(2).normal(size=(2700, 2))
    mechanism = TEM(index_of(points, k=8), 2.0)
    weights, rate, gamma = mechanism.exponential_law()
    apart = cdist(points, points)
    log_z = np.log(np.exp(-rate * np.minimum(apart, gamma)) @ weights)
    np.fill_diagonal(apart, np.inf)
    gap = np.abs(log_z[:, None] - log_z[None])
    expected = ((rate * np.minimum(apart, gamma) + gap) / apart).max()
    assert constant_of(mechanism).value == pytest.approx(expected, rel=1e-9)
    assert log_normalisers(mechanism.index, weights, [rate], [gamma])[0] == pytest.approx(
        log_z, abs=1e-12
    )


@pytest.mark.parametrize("metric", METRICS)
def test_a_sweep_gives_the_distances_of_the_metric(points, metric):
    chosen = get_metric(metric_of(metric))
    coordinates = chosen.coordinates(points)
    found = np.full((SIZE, SIZE), np.nan)

    def visit(rows, columns, distances):
        found[rows, columns] = distances

    sweep(coordinates, chosen, visit)
    upper = np.triu_indices(SIZE)
    expected = chosen.pairwise(points, points)
    np.testing.assert_allclose(found[upper], expected[upper], rtol=2e-9, atol=1e-12)


def test_a_sweep_tells_its_progress_to_the_end(points):
    told = []
    sweep(points, get_metric("euclidean"), lambda *block: None, lambda *at: told.append(at))
    done = [at[0] for at in told]
    assert done == sorted(done)
    assert told[-1] == (told[0][1], told[0][1])


# Closed values


def test_three_points_have_the_constant_of_the_oracle(three_points):
    assert constant_of(TEM(three_points, 2.0, "uniform", gamma=2.0)).value == pytest.approx(
        1.084031, abs=5e-7
    )


def test_three_points_have_the_calibrated_rate_of_the_oracle(three_points):
    mechanism = TEM(three_points, 2.0, "uniform", gamma=2.0, rate="calibrated")
    # Below the oracle's, which is rounded to six digits, by what the promise keeps off and a step of the grid at most.
    assert -5e-7 < 1.944324 - mechanism.t < 2e-6 + 2.0 * 2**-20 + 5e-7
    assert (mechanism.t * 2**19).is_integer()


@pytest.mark.parametrize("distance", [0.01, 1.0, 40.0])
def test_two_calibrated_words_are_randomised_response(index_of, distance):
    mechanism = TEM(index_of([0.0, distance]), 1 / distance, "uniform", rate="calibrated")
    assert np.exp(mechanism.log_prob(0)[0]) == pytest.approx(0.731059, abs=2e-6)


@pytest.mark.parametrize("dimension", [2, 5])
@pytest.mark.parametrize("gamma", [None, 1.5])
def test_a_metric_that_is_the_same_from_every_word_spends_the_whole_budget(
    index_of, dimension, gamma
):
    cube = np.array(list(itertools.product([0.0, 1.0], repeat=dimension)))
    mechanism = TEM(
        index_of(cube, metric="manhattan"), 3.0, "uniform", gamma=gamma, rate="calibrated"
    )
    assert mechanism.t == pytest.approx(3.0, rel=2e-6)


def test_a_crowd_and_a_distant_word_lose_what_the_statement_says(index_of):
    crowd = np.eye(201)[:200] * (0.1 / np.sqrt(2))
    distant = np.eye(201)[200] * np.sqrt(25 - 0.005)
    index = index_of(np.vstack([crowd, distant]), k=20)
    mechanism = TEM(index, 2.0, "uniform", gamma=1.0, rate="calibrated")
    assert index.distance(0, 200) == pytest.approx(5.0)
    assert mechanism.t == pytest.approx(2.0, rel=2e-6)
    loss = np.abs(mechanism.log_prob(0) - mechanism.log_prob(200)).max()
    assert loss == pytest.approx(3.77, abs=0.005)
    # More than epsilon gamma, which is what half the rate would promise.
    assert 2.0 < loss <= mechanism.statement.figures["worst_word_loss"]


# Bounds of the theory


@st.composite
def laws(draw):
    """A few distinct points of a coarse grid, so that no pair is near the rounding, with counts and a truncation."""
    dimension = draw(st.integers(1, 3))
    corner = st.tuples(*[st.integers(-40, 40)] * dimension)
    rows = draw(st.lists(corner, min_size=2, max_size=12, unique=True))
    counts = draw(
        st.lists(st.floats(1e-3, 1e3), min_size=len(rows), max_size=len(rows)).map(np.array)
    )
    metric = draw(st.sampled_from(["euclidean", "manhattan", "chebyshev"]))
    gamma = draw(st.sampled_from([0.2, 1.0, 5.0, np.inf]))
    return np.array(rows, dtype=float) / 16, counts / counts.sum(), metric, gamma


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(law=laws(), rate=st.floats(0.05, 20))
def test_the_constant_lies_between_one_rate_and_two(index_of, law, rate):
    points, weights, metric, gamma = law
    index = index_of(points, metric=metric)
    gamma = min(gamma, 30 / rate)
    log_z = log_normalisers(index, weights, [rate], [gamma])
    (found,) = tight_constants(index, [rate], [gamma], log_z)
    assert found.value <= 2 * rate * (1 + 1e-9)
    apart = index.distances_of(np.arange(len(index)))
    if apart[apart > 0].min() <= gamma:
        assert found.value >= rate * (1 - 1e-9)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(law=laws(), epsilon=st.floats(0.1, 20))
def test_a_calibrated_rate_is_the_largest_that_keeps_the_promise(index_of, law, epsilon):
    points, weights, metric, wanted = law
    index = index_of(points, metric=metric)
    rate, told = largest_rate(index, weights, epsilon, wanted, 30.0)
    assert epsilon / 2 <= rate <= epsilon

    def constant(at: float) -> float:
        gamma = min(wanted, 30.0 / at)
        log_z = log_normalisers(index, weights, [at], [gamma])
        return tight_constants(index, [at], [gamma], log_z)[0].value

    assert constant(rate) == pytest.approx(told.value, rel=1e-9)
    # Half of epsilon is sound whatever rounding would charge it.
    assert constant(rate) <= epsilon * (1 - 1e-6) * (1 + 1e-12) or rate == epsilon / 2
    if rate < epsilon:
        assert constant(rate * (1 + 1e-5)) > epsilon * (1 - 1e-6)


@pytest.mark.parametrize("prior", ["uniform", "zipf", "steep"])
def test_the_calibrated_rate_of_clusters_is_tight(indexed, prior):
    index = indexed(k=20)
    mechanism = TEM(index, 4.0, STEEP if prior == "steep" else prior, rate="calibrated")
    assert 2.0 < mechanism.t < 4.0
    assert constant_of(mechanism).value <= 4.0 * (1 - 1e-6)
    mechanism.t *= 1 + 1e-5
    mechanism.gamma = min(mechanism.gamma, 30 / mechanism.t)
    assert brute_force(mechanism) > 4.0 * (1 - 1e-6)


def test_words_that_cannot_be_told_apart_are_one_input(indexed):
    index = indexed()
    words = inputs(index)
    assert {41, 42, 43} & set(words.tolist()) == set()
    assert (index.representatives[words] == words).all()


def test_one_word_alone_has_no_constant(index_of):
    assert constant_of(TEM(index_of([[1.0, 2.0]]), 1.0)).value == 0.0
