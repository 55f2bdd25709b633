"""The search for a base measure: what it finds keeps the promise, and keeps more words than what it started from."""

import numpy as np
import pytest

import textpriv
from textpriv.mechanisms.calibration.prior_search import search_prior
from textpriv.mechanisms.tem import LARGEST_EXPONENT

EPSILON = 3.0


@pytest.fixture(scope="module")
def index():
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(20, 12)), 15, axis=0)
    vectors = centres + 0.4 * rng.normal(size=(300, 12))
    words = [f"w{i}" for i in range(300)]
    return textpriv.Index.build(textpriv.Vocabulary(words, vectors), k=30, hnsw=False)


def expected_keep(mechanism, prior):
    return sum(p * np.exp(mechanism.log_prob(w)[w]) for w, p in enumerate(prior))


def largest_ratio(mechanism):
    """The largest log-ratio per unit of distance over all triples, from the laws themselves."""
    size = len(mechanism.index)
    laws = np.array([mechanism.log_prob(word) for word in range(size)])
    apart = mechanism.index.distances_of(np.arange(size))
    np.fill_diagonal(apart, np.inf)
    return max(float(((laws[w] - laws).max(axis=1) / apart[w]).max()) for w in range(size))


@pytest.mark.parametrize("prior", ["zipf", "uniform"])
def test_the_best_law_keeps_the_promise_over_all_triples(index, prior):
    mechanism = textpriv.TEM(index, EPSILON, prior=prior, rate="best")
    assert largest_ratio(mechanism) <= EPSILON * (1 - 9e-7)


def test_the_certificate_of_the_best_law_is_exact_and_holds(index):
    certificate = textpriv.certify(textpriv.TEM(index, EPSILON, rate="best"))
    assert certificate.exact
    assert certificate.holds
    assert certificate.rho == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("prior", ["zipf", "uniform"])
def test_each_rate_keeps_more_words_than_the_one_before_it(index, prior):
    base = index.vocabulary.prior_weights(prior)
    kept = [
        expected_keep(textpriv.TEM(index, EPSILON, prior=prior, rate=rate), base)
        for rate in ("half", "calibrated", "best")
    ]
    assert kept[0] < kept[1] < kept[2]


def test_the_measure_taken_is_the_one_that_keeps_the_most_words(index):
    prior = index.vocabulary.prior_weights("zipf")
    found = search_prior(index, prior, EPSILON, lambda rate: LARGEST_EXPONENT / rate)
    best = max(found.evidence, key=lambda entry: entry["keep"])
    assert (found.start, found.steps) == (best["start"], best["steps"])


def test_the_search_starts_from_the_prior_and_from_the_uniform_measure(index):
    prior = index.vocabulary.prior_weights("zipf")
    found = search_prior(index, prior, EPSILON, lambda rate: LARGEST_EXPONENT / rate)
    for start in ("prior", "uniform"):
        steps = [entry["steps"] for entry in found.evidence if entry["start"] == start]
        assert steps == list(range(13))


def test_a_large_vocabulary_is_searched_from_its_prior_alone(index, monkeypatch):
    monkeypatch.setattr("textpriv.mechanisms.calibration.prior_search._SMALL", 100)
    prior = index.vocabulary.prior_weights("zipf")
    found = search_prior(index, prior, EPSILON, lambda rate: LARGEST_EXPONENT / rate)
    assert [(e["start"], e["steps"]) for e in found.evidence] == [("prior", n) for n in range(5)]


def test_half_steps_level_the_normaliser(index):
    half = textpriv.TEM(index, EPSILON)
    best = textpriv.TEM(index, EPSILON, rate="best")

    def spread(mechanism):
        rate = 0.7 * EPSILON
        kernel = np.exp(-rate * index.distances_of(np.arange(len(index))))
        return np.ptp(np.log(kernel @ mechanism.measure.weights))

    assert spread(best) < 0.8 * spread(half)


def test_the_search_is_recorded_with_the_index_and_not_repeated(index, monkeypatch):
    first = textpriv.TEM(index, EPSILON, rate="best")

    def fail(*args, **kwargs):
        raise AssertionError("searched again")

    monkeypatch.setattr("textpriv.mechanisms.tem.search_prior", fail)
    monkeypatch.setattr("textpriv.mechanisms.tem.largest_rate", fail)
    again = textpriv.TEM(index, EPSILON, rate="best")
    assert again.t == first.t
    np.testing.assert_array_equal(again.measure.parts, first.measure.parts)


def test_another_epsilon_is_searched_anew(index):
    first = textpriv.TEM(index, EPSILON, rate="best")
    other = textpriv.TEM(index, 2 * EPSILON, rate="best")
    assert other.t != first.t
    assert largest_ratio(other) <= 2 * EPSILON


def test_draws_follow_the_law_of_the_best_rate(index):
    # Chi-square, 300 cells; threshold at a false-alarm rate of 1e-7 (scipy.stats.chi2.isf(1e-7, 299) = 441).
    mechanism = textpriv.TEM(index, EPSILON, rate="best")
    draws = mechanism.sample(np.full(200_000, 7), textpriv.randomness.Stream(bytes(32)))
    expected = np.exp(mechanism.log_prob(7)) * len(draws)
    counts = np.bincount(draws, minlength=300)
    common = expected >= 5
    rest = expected[~common].sum()
    statistic = ((counts[common] - expected[common]) ** 2 / expected[common]).sum()
    if rest > 0:
        statistic += (counts[~common].sum() - rest) ** 2 / max(rest, 1)
    assert statistic < 441


@pytest.mark.filterwarnings("ignore::textpriv.UnsoundWarning")
@pytest.mark.parametrize("rate", ["calibrated", "best"])
def test_a_rate_that_spends_what_is_proved_refuses_approximate_lists(rate):
    rng = np.random.default_rng(1)
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(100)], rng.normal(size=(100, 4)))
    approximate = textpriv.Index.build(vocabulary, k=10, backend="hnsw")
    with pytest.raises(textpriv.TextprivError, match="exact lists"):
        textpriv.TEM(approximate, EPSILON, rate=rate)


@pytest.mark.parametrize("rate", ["calibrated", "best"])
def test_the_statement_names_the_rate_and_its_own_proof(index, rate):
    statement = textpriv.TEM(index, EPSILON, rate=rate).statement
    assert rate in statement.mechanism
    assert "constant over all pairs" in statement.proof
    assert statement.epsilon == EPSILON
