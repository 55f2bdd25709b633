"""Permute-and-flip: its law by enumeration, its guarantee by brute force, and its sampler against its law."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.spatial.distance import cdist

import textpriv
from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.mechanisms import TEM, UNKNOWN, PermuteAndFlip, permute_and_flip, registry
from textpriv.mechanisms.permute_and_flip import _log_law, _next
from textpriv.metrics import INTERPRETED, CallableMetric
from textpriv.statement import UnsoundWarning


def law_of(mechanism, word) -> np.ndarray:
    return np.exp(mechanism.log_prob(word))


def all_laws(mechanism) -> np.ndarray:
    return np.array([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def excess(log_laws, distances, epsilon) -> float:
    """The most by which any ln P_w(y) / P_w'(y) exceeds epsilon d(w, w'): brute force over all w, w' and y."""
    return max(
        float(((law - log_laws).max(axis=1) - epsilon * near).max())
        for law, near in zip(log_laws, distances, strict=True)
    )


def enumerated(accept, own: int) -> np.ndarray:
    """The law by all outcomes of all coins."""
    others = [i for i in range(len(accept)) if i != own]
    law = np.zeros(len(accept))
    for coins in product([0, 1], repeat=len(others)):
        up = [own, *(i for i, coin in zip(others, coins, strict=True) if coin)]
        weight = np.prod(
            [accept[i] if c else 1 - accept[i] for i, c in zip(others, coins, strict=True)]
        )
        law[up] += weight / len(up)
    return law


def counted(accept, own: int) -> np.ndarray:
    """The law by the distribution of the number of other words that are accepted."""
    law = np.empty(len(accept))
    for word in range(len(accept)):
        number = np.ones(1)
        for other in set(range(len(accept))) - {word, own}:
            number = np.convolve(number, [1 - accept[other], accept[other]])
        least = 1 if word == own else 2
        law[word] = accept[word] * (number / (np.arange(len(number)) + least)).sum()
    return law


class Script:
    """A stream that hands out the given words and then the largest."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def fill(self, out: np.ndarray) -> None:
        out[:] = 2**64 - 1
        take = min(len(out), len(self.words))
        out[:take] = self.words[:take]
        del self.words[:take]


# The law


def test_three_words_have_the_published_keep_probability(three_points):
    law = law_of(PermuteAndFlip(three_points, 2.0), "w0")
    a, b = np.exp(-1), np.exp(-3)
    keep = (1 - a) * (1 - b) + (a * (1 - b) + b * (1 - a)) / 2 + a * b / 3
    assert_allclose(law, [keep, a * ((1 - b) / 2 + b / 3), b * ((1 - a) / 2 + a / 3)], rtol=1e-13)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-14, 1e-3, 0.3, 2.0, 11.0, 30.0]), min_size=1, max_size=9),
    st.data(),
)
def test_the_law_is_that_of_all_outcomes(exponents, data):
    own = data.draw(st.integers(0, len(exponents) - 1))
    exponents[own] = 0.0
    expected = enumerated(np.exp(-np.array(exponents)), own)
    assert_allclose(np.exp(_log_law(np.array(exponents), own)), expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.1, 2.0, 30.0])
def test_the_law_of_many_words_is_that_of_the_number_accepted(scale):
    exponents = np.random.default_rng(1).random(120) * scale
    exponents[[7, 9]] = 0.0
    expected = counted(np.exp(-exponents), 7)
    assert_allclose(np.exp(_log_law(exponents, 7)), expected, rtol=1e-11)


@pytest.mark.parametrize("near", [0.0, 4.0, 12.0])
def test_the_law_of_a_large_vocabulary_sums_to_one(near):
    exponents = near + np.random.default_rng(2).random(3000)
    exponents[5] = 0.0
    assert np.exp(_log_law(exponents, 5)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 2.0, None, np.inf])
def test_the_input_is_kept_more_often_than_by_tem(index_of, clustered_points, gamma):
    index = index_of(clustered_points(10, 15, 4, 2.0))
    kept = np.diag(all_laws(PermuteAndFlip(index, 2.0, gamma=gamma)))
    by_tem = np.diag(all_laws(TEM(index, 2.0, "uniform", gamma=gamma)))
    assert (kept > by_tem).all()


def test_duplicates_have_one_law_in_which_they_are_equal(index_of):
    mechanism = PermuteAndFlip(index_of([0.0, 2.0, 0.0, 5.0], k=2), 1.0)
    assert (mechanism.log_prob(0) == mechanism.log_prob(2)).all()
    assert law_of(mechanism, 0)[0] == pytest.approx(law_of(mechanism, 0)[2], rel=1e-14)


def test_an_unknown_word_becomes_any_word_alike(three_points):
    assert_allclose(law_of(PermuteAndFlip(three_points, 2.0), UNKNOWN), 1 / 3)


def test_the_default_truncation_is_left_with_no_more_than_beta(index_of, clustered_points):
    index = index_of(clustered_points(20, 10, 3, 40.0), k=8)
    mechanism = PermuteAndFlip(index, 1.0, beta=0.2)
    apart = cdist(index.coordinates, index.coordinates)
    outside = (np.exp(all_laws(mechanism)) * (apart > mechanism.gamma)).sum(axis=1)
    assert 0 < outside.max() <= 0.2


# The guarantee, by brute force over (w, w', y)


@pytest.mark.parametrize("gamma", [0.4, 2.0, None, np.inf])
def test_the_bound_holds_for_all_triples_of_250_words(index_of, tied_points, gamma):
    points = tied_points(250)
    mechanism = PermuteAndFlip(index_of(points, k=16), 2.0, gamma=gamma)
    apart = cdist(points, points)
    assert excess(all_laws(mechanism), np.minimum(apart, mechanism.gamma), 2.0) <= 1e-9


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "angular", "unit_euclidean"])
def test_the_bound_holds_in_every_metric(vocabulary_of, metric):
    points = np.random.default_rng(3).normal(size=(120, 4))
    index = Index.build(vocabulary_of(points), metric, k=16, hnsw=False)
    apart = index.metric.pairwise(points, points)
    assert excess(all_laws(PermuteAndFlip(index, 5.0)), apart, 5.0) <= 1e-9


def test_the_bound_check_detects_twice_the_rate(index_of, clustered_points):
    points = clustered_points(10, 15, 4, 2.0)
    apart = cdist(points, points)
    broken = np.array([_log_law(2.0 * row, word) for word, row in enumerate(apart)])
    assert excess(broken, apart, 2.0) > 0.5


def test_the_certificate_is_exact_and_holds(index_of, clustered_points):
    mechanism = PermuteAndFlip(index_of(clustered_points(8, 12, 3, 2.0)), 2.0)
    certificate = textpriv.certify(mechanism)
    assert certificate.holds
    assert certificate.exact
    assert 1.0 < certificate.rho <= 2.0


# The sampler, by chi-square (false-alarm rate 1e-9 each, see conftest)


def drawn(mechanism, word: int, count: int, stream, *names) -> np.ndarray:
    found = mechanism.sample(np.full(count, word), stream("flip", *names, word))
    return np.bincount(found, minlength=len(mechanism.index))


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("gamma", [1.0, None, np.inf])
@pytest.mark.parametrize("k", [1, 8, 60, 256])
def test_samples_follow_the_law(index_of, tied_points, stream, goodness, level, k, gamma, epsilon):
    mechanism = PermuteAndFlip(index_of(tied_points(250), k=k), epsilon, gamma=gamma)
    for word in (0, 125):
        counts = drawn(mechanism, word, 8_000, stream, k, gamma, epsilon)
        assert goodness(counts, law_of(mechanism, word)) > level


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("k", [1, 2, 64])
def test_a_crowd_outside_the_list_is_drawn_by_the_law(
    index_of, stream, goodness, level, k, epsilon
):
    points = np.concatenate([np.zeros(1), np.linspace(0.5, 1.5, 60), np.linspace(3.0, 9.0, 1500)])
    mechanism = PermuteAndFlip(index_of(points, k=k), epsilon)
    counts = drawn(mechanism, 0, 60_000, stream, "crowd", k, epsilon)
    law = law_of(mechanism, 0)
    parts = [*range(62), *range(62, len(points), 30)]
    assert goodness(np.add.reduceat(counts, parts), np.add.reduceat(law, parts)) > level


def test_many_duplicates_outside_the_list_are_drawn_by_the_law(index_of, stream, goodness, level):
    points = np.concatenate([np.zeros(40), np.full(10, 0.7), [2.0, 3.0]])
    mechanism = PermuteAndFlip(index_of(points, k=4), 2.0)
    counts = drawn(mechanism, 0, 60_000, stream, "duplicates")
    assert goodness(counts, law_of(mechanism, 0)) > level


def test_words_that_are_rarely_accepted_are_drawn_as_often_as_they_should(
    index_of, stream, goodness, level
):
    # 1,000 words, each accepted with e^-8: most draws find none.
    points = np.concatenate([[0.0], 4.0 + 1e-3 * np.arange(1000)])
    mechanism = PermuteAndFlip(index_of(points, k=3), 4.0, gamma=np.inf)
    counts = drawn(mechanism, 0, 60_000, stream, "rare")
    law = law_of(mechanism, 0)
    assert 0.05 < 1 - law[0] < 0.1
    grouped = np.add.reduceat(counts, range(0, 1001, 50)), np.add.reduceat(law, range(0, 1001, 50))
    assert goodness(*grouped) > level


def test_a_full_row_takes_two_words_for_a_rare_coin(stream):
    row = permute_and_flip._Row(np.array([0.0, 16.0, 1.0]))
    below = np.exp(-16.0) * 2.0**84
    assert row.first[1] == 2**44
    assert int(row.second[1]) == pytest.approx(below, rel=1e-12)
    assert row.certain.tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["float32", "angular", "callable"])
def test_every_kind_of_distance_is_sampled_by_the_law(vocabulary_of, stream, goodness, level, kind):
    points = np.random.default_rng(11).normal(size=(300, 4))
    metric: object = "angular" if kind == "angular" else "euclidean"
    if kind == "callable":
        metric = CallableMetric(lambda a, b: cdist(a, b, "minkowski", p=3), "minkowski-3")
    vocabulary = vocabulary_of(points, dtype=np.float32 if kind == "float32" else np.float64)
    mechanism = PermuteAndFlip(Index.build(vocabulary, metric, k=16, hnsw=False), 5.0)
    counts = drawn(mechanism, 7, 6_000, stream, kind)
    assert goodness(counts, law_of(mechanism, 7)) > level


def test_unknown_words_are_drawn_alike(index_of, stream, goodness, level):
    mechanism = PermuteAndFlip(index_of(np.arange(50.0), k=4), 2.0)
    assert goodness(drawn(mechanism, UNKNOWN, 20_000, stream), np.full(50, 1 / 50)) > level


@pytest.mark.parametrize("bound", [0.003, 0.05, 0.45, 0.7])
def test_skips_make_every_slot_a_candidate_with_one_probability(stream, goodness, level, bound):
    slots, runs = 40, 4_000
    random = stream("skip", bound).words(700 * runs // 4)
    hits, numbers, place = np.zeros(slots), np.zeros(slots + 1), 0
    for _ in range(runs):
        slot = number = 0
        while slot < slots:
            passed, found, place = _next(bound, slots - slot, random, place)
            slot += passed
            if found:
                hits[slot] += 1
                number += 1
                slot += 1
        assert slot == slots
        numbers[number] += 1
    assert goodness(numbers, stats.binom.pmf(np.arange(slots + 1), slots, bound)) > level
    spread = ((hits - runs * bound) ** 2).sum() / (runs * bound * (1 - bound))
    assert stats.chi2.sf(spread, slots) > level


def test_a_coin_comes_up_exactly_below_its_probability(index_of):
    mechanism = PermuteAndFlip(index_of([0.0, 2.0], k=2), 2.0)
    below, above = (int(np.exp(-2.0) * (1 + error) * 2.0**64) for error in (-1e-12, 1e-12))
    # Two words for the input's own coin, two for the other's, one for its place, one for the choice.
    assert mechanism.sample([0], Script(0, 0, below, 0, 0, 1))[0] == 1
    assert mechanism.sample([0], Script(0, 0, below, 0, 0, 0))[0] == 0
    assert mechanism.sample([0], Script(0, 0, above, 0, 1))[0] == 0


# Streams


@pytest.fixture(scope="module", params=["euclidean", "callable"])
def mixed(vocabulary_of, request):
    """A mechanism with words near and in a crowd; under a metric of the user's own each draw takes a full row."""
    points = np.concatenate([np.linspace(0, 40, 60), np.linspace(100, 101, 800)])
    metric = CallableMetric(cdist, "own") if request.param == "callable" else "euclidean"
    return PermuteAndFlip(Index.build(vocabulary_of(points), metric, k=4, hnsw=False), 2.0)


def test_documents_drawn_together_are_those_drawn_alone(mixed, stream):
    rng = np.random.default_rng(4)
    documents = [rng.integers(-1, 860, size=n).astype(np.int32) for n in (0, 1, 30, 5, 0, 12)]
    offsets = np.cumsum([0, *map(len, documents)])
    streams = [stream("alone", i) for i in range(6)]
    together = mixed.sample_documents(np.concatenate(documents), offsets, streams)
    alone = [mixed.sample(d, stream("alone", i)) for i, d in enumerate(documents)]
    assert together.tolist() == np.concatenate(alone).tolist()
    assert (len(mixed._rows) > 0) == (mixed.index.metric.kind == INTERPRETED)


@pytest.mark.parametrize("spare", [1, 7, 1000])
def test_draws_do_not_depend_on_how_many_random_words_are_read_ahead(
    mixed, stream, monkeypatch, spare
):
    ids = np.random.default_rng(5).integers(-1, 860, size=60).astype(np.int32)
    usual = mixed.sample(ids, stream("ahead"))
    monkeypatch.setattr(permute_and_flip, "_SPARE", spare)
    assert mixed.sample(ids, stream("ahead")).tolist() == usual.tolist()


# Parameters, statement, copies


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), True, "6", None])
def test_an_epsilon_that_is_no_finite_positive_number_is_refused(three_points, epsilon):
    with pytest.raises(MechanismError, match="epsilon"):
        PermuteAndFlip(three_points, epsilon)


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), True, "far"])
def test_a_gamma_that_is_no_positive_number_is_refused(three_points, gamma):
    with pytest.raises(MechanismError, match="gamma"):
        PermuteAndFlip(three_points, 1.0, gamma=gamma)


@pytest.mark.parametrize("beta", [0, 1, -0.1, float("nan")])
def test_a_beta_outside_0_to_1_is_refused(three_points, beta):
    with pytest.raises(MechanismError, match="beta"):
        PermuteAndFlip(three_points, 1.0, beta=beta)


def test_a_vocabulary_of_one_word_always_gives_that_word(index_of, stream):
    mechanism = PermuteAndFlip(index_of([[1.0, 2.0]]), 1.0)
    assert mechanism.sample([0, UNKNOWN, 0], stream("one")).tolist() == [0, 0, 0]
    assert mechanism.log_prob(0).tolist() == [0.0]


def test_approximate_lists_void_the_proof_and_the_certificate(index_of):
    index = index_of(np.random.default_rng(0).normal(size=(50, 2)), k=5, backend="hnsw")
    with pytest.warns(UnsoundWarning, match="approximate"):
        mechanism = PermuteAndFlip(index, 1.0)
    assert not mechanism.statement.proved
    assert not textpriv.certify(mechanism).holds


@pytest.mark.parametrize("gamma", [0.5, None, np.inf])
def test_no_pair_of_words_loses_more_than_the_stated_worst(index_of, gamma):
    points = np.random.default_rng(14).normal(size=(80, 3)) * 3
    mechanism = PermuteAndFlip(index_of(points, k=8), 1.5, gamma=gamma)
    worst = mechanism.statement.figures["worst_word_loss"]
    laws = np.vstack([all_laws(mechanism), mechanism.log_prob(UNKNOWN)])
    assert excess(laws[:-1], np.zeros((80, 80)), 1.0) <= worst + 1e-9
    assert np.abs(laws[:-1] - laws[-1]).max() <= 1.5 * mechanism.gamma + 1e-9


def test_the_statement_claims_epsilon_and_no_delta(three_points):
    statement = PermuteAndFlip(three_points, 2.5).statement
    assert (statement.proved, statement.epsilon, statement.delta) == (True, 2.5, 0.0)
    assert "PermuteAndFlip" in statement.mechanism


def test_the_registry_passes_every_setting(three_points):
    wanted = {"epsilon": 3.0, "gamma": 0.5, "beta": 0.1}
    made = registry.get("textpriv.PermuteAndFlip.v1")(**wanted)(three_points)
    assert type(made) is PermuteAndFlip
    assert made.settings() == wanted


def test_a_copy_draws_the_same(mixed, stream):
    copy = pickle.loads(pickle.dumps(mixed))
    ids = np.arange(-1, 100)
    assert copy.settings() == mixed.settings()
    assert (copy.sample(ids, stream("copy")) == mixed.sample(ids, stream("copy"))).all()
