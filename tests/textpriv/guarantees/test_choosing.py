"""Choosing epsilon: what is asked for is what the law then gives, and what the sampler then draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

import textpriv
from textpriv.amounts import builtin_amounts
from textpriv.errors import MechanismError, TextprivError
from textpriv.evaluation.deniability import WordSample, deniability
from textpriv.guarantees.epsilon import choose_epsilon, eps_from_odds, epsilon_for
from textpriv.index import Index
from textpriv.mechanisms import TEM
from textpriv.vocabulary import Vocabulary

Z_999 = 3.2905  # two-sided 99.9 % of the normal law


@pytest.fixture(scope="module")
def index(index_of, clustered_points) -> Index:
    return index_of(clustered_points(20, 15, 6, 1.5), k=32)


@pytest.fixture(scope="module")
def large(index_of) -> Index:
    """Too many words for the first search to hold them all."""
    return index_of(np.random.default_rng(3).normal(size=(1200, 8)), k=16, dtype=np.float32)


def mean_of(mechanism, name, word_prior="zipf", draws=1000):
    found = deniability(mechanism, sample=None, word_prior=word_prior, draws=draws)
    return found.to_dict()[name]["mean"]


def simulate(mechanism, word_prior, tokens, rng):
    """Share of words of the word prior that the sampler leaves as they are."""
    weights = mechanism.index.vocabulary.prior_weights(word_prior)
    ids = rng.choice(len(weights), size=tokens, p=weights)
    return float(np.mean(mechanism.sample(ids, rng) == ids))


# Odds


def test_odds_at_a_distance_are_what_the_epsilon_allows():
    assert math.exp(eps_from_odds(20.0, 1.7) * 1.7) == pytest.approx(20.0)


def test_the_letters_of_one_text_are_no_public_texts(index):
    with pytest.raises(TextprivError, match="expected several texts"):
        epsilon_for(index, recovery=0.5, context="w1 w2 w3 w4 w5 w6")


@pytest.mark.parametrize("distance", [1e-300, 1e30, 1e308])
def test_a_distance_that_no_epsilon_is_for_is_named_and_no_epsilon(index, distance):
    with pytest.raises(MechanismError) as found:
        epsilon_for(index, odds=1.5, distance=distance)
    assert f"at distance {distance:.4g}" in str(found.value)
    assert "got" not in str(found.value)


@pytest.mark.parametrize(("odds", "distance"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.0), (2.0, -1.0)])
def test_odds_without_meaning_are_refused(odds, distance):
    with pytest.raises(MechanismError):
        eps_from_odds(odds, distance)


@pytest.mark.parametrize("mechanism", ["tem", "madlib"])
def test_odds_default_to_the_reference_distance(index, mechanism):
    found = epsilon_for(index, odds=10.0, mechanism=mechanism)
    assert found == pytest.approx(math.log(10) / index.reference_distance)
    assert epsilon_for(index, odds=10.0, distance=2.0) == pytest.approx(math.log(10) / 2)


def test_odds_are_those_of_the_statement(index):
    epsilon = epsilon_for(index, odds=7.0)
    statement = TEM(index, epsilon=epsilon).statement
    assert math.exp(statement.figures["reference_loss"]) == pytest.approx(7.0)


def test_odds_hold_for_half_of_all_running_words_and_for_nine_tenths_at_the_other_distance(
    index_of, clustered_points
):
    # Common words far apart, rare ones close together, and each vector twice.
    points = np.concatenate([clustered_points(40, 1, 5, 9.0), clustered_points(6, 30, 5, 0.5)])
    index = index_of(np.repeat(points, 2, axis=0), k=64)
    for share, distance in ((0.5, None), (0.9, index.reference_distance_90)):
        mechanism = TEM(index, epsilon_for(index, odds=20.0, distance=distance))
        held = 0.0
        for word, weight in enumerate(index.vocabulary.prior_weights("zipf")):
            apart = mechanism.distances(word)
            tenth = int(np.argsort(apart, kind="stable")[21])  # 2 at distance 0, then pairs
            lost = np.abs(mechanism.log_prob(word) - mechanism.log_prob(tenth)).max()
            held += weight * (lost <= math.log(20.0) * (1 + 1e-9))
        assert held >= share


# Targets on the law


@pytest.mark.parametrize("prior", ["zipf", "uniform"])
@pytest.mark.parametrize("word_prior", ["zipf", "uniform"])
@pytest.mark.parametrize(("name", "wanted"), [("keep", 0.5), ("keep", 0.95), ("distinct", 60.0)])
def test_the_law_has_the_mean_that_was_asked_for(index, prior, word_prior, name, wanted):
    epsilon = epsilon_for(index, prior=prior, word_prior=word_prior, **{name: wanted})
    mechanism = TEM(index, epsilon=epsilon, prior=prior)
    assert mean_of(mechanism, name, word_prior) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan"])
@pytest.mark.parametrize(("name", "wanted"), [("keep", 0.4), ("distinct", 100.0)])
def test_a_pass_over_many_words_meets_the_target(metric, name, wanted):
    vectors = np.random.default_rng(3).normal(size=(1200, 8)).astype(np.float32)
    vocabulary = Vocabulary([f"w{i}" for i in range(1200)], vectors)
    index = Index.build(vocabulary, metric=metric, k=16, hnsw=False)
    choice = choose_epsilon(index, **{name: wanted})
    assert (choice.words, choice.standard_error) == (1200, 0.0)
    assert mean_of(TEM(index, epsilon=choice.epsilon), name) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("gamma", [1.5, 4.0])
def test_a_given_gamma_is_used(index, gamma):
    mechanism = TEM(index, epsilon=epsilon_for(index, keep=0.6, gamma=gamma), gamma=gamma)
    assert mean_of(mechanism, "keep") == pytest.approx(0.6, rel=1e-5)


def test_an_array_as_prior_is_used(index):
    prior = np.linspace(1.0, 2.0, len(index))
    mechanism = TEM(index, epsilon=epsilon_for(index, keep=0.6, prior=prior), prior=prior)
    assert mean_of(mechanism, "keep") == pytest.approx(0.6, rel=1e-5)


def test_words_at_distance_zero_share_a_row(index_of, tied_points):
    index = index_of(tied_points(150), k=16)
    mechanism = TEM(index, epsilon=epsilon_for(index, keep=0.3))
    assert mean_of(mechanism, "keep") == pytest.approx(0.3, rel=1e-5)


@pytest.mark.parametrize("draws", [50, 1000])
def test_distinct_follows_the_number_of_draws(index, draws):
    mechanism = TEM(index, epsilon=epsilon_for(index, distinct=20.0, draws=draws))
    assert mean_of(mechanism, "distinct", draws=draws) == pytest.approx(20.0, rel=1e-5)


def test_epsilon_is_in_units_of_the_distance(index_of, clustered_points):
    points = clustered_points(20, 15, 6, 1.5)
    one, thousand = (epsilon_for(index_of(points * s), keep=0.5) for s in (1.0, 1000.0))
    assert one == pytest.approx(1000 * thousand, rel=1e-6)


def test_of_several_epsilons_the_largest_is_chosen(index_of):
    # One word takes nearly all of the prior: 29 different outputs without regard to the input, up to 53 with some.
    index = index_of(np.random.default_rng(1).normal(size=(300, 4)))
    prior = np.r_[1e4, np.ones(299)]

    def distinct(epsilon):
        return mean_of(TEM(index, epsilon, prior=prior), "distinct", "uniform")

    epsilon = epsilon_for(index, distinct=40.0, prior=prior, word_prior="uniform")
    assert distinct(0.01) < 40
    assert distinct(epsilon) == pytest.approx(40.0, rel=1e-5)
    assert distinct(epsilon / 1.1) > 40 > distinct(1.1 * epsilon)


# Against the sampler


@pytest.mark.parametrize("prior", ["zipf", "uniform"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_keep_agrees_with_simulation(index, stream, prior, keep):
    # False-alarm rate 0.001 under a fixed seed.
    mechanism = TEM(index, epsilon=epsilon_for(index, keep=keep, prior=prior), prior=prior)
    tokens = 200_000
    found = simulate(mechanism, "zipf", tokens, np.random.default_rng(11))
    assert abs(found - keep) < Z_999 * math.sqrt(keep * (1 - keep) / tokens)


def test_distinct_agrees_with_simulation(index):
    # False-alarm rate 0.001 under a fixed seed: words of the prior, 1,000 draws of each.
    wanted, rng = 60.0, np.random.default_rng(12)
    mechanism = TEM(index, epsilon=epsilon_for(index, distinct=wanted))
    words = rng.choice(len(index), size=1500, p=index.vocabulary.prior_weights("zipf"))
    draws = mechanism.sample(np.repeat(words, 1000), rng).reshape(len(words), 1000)
    found = np.array([len(np.unique(row)) for row in draws])
    assert abs(found.mean() - wanted) < Z_999 * found.std(ddof=1) / math.sqrt(len(words))


@pytest.mark.real_data
def test_keep_agrees_with_simulation_on_real_vectors(real_data):
    source = real_data / "embeddings" / "glove-6B-8k.50d.txt.gz"
    index = Index.build(Vocabulary.load(source, limit=3000), k=64, hnsw=False)
    mechanism = TEM(index, epsilon=epsilon_for(index, keep=0.5, word_prior="zipf"))
    tokens = 400_000
    found = simulate(mechanism, "zipf", tokens, np.random.default_rng(13))
    assert abs(found - 0.5) < Z_999 * 0.5 / math.sqrt(tokens)


# A sample of words


@pytest.mark.parametrize(("name", "wanted"), [("keep", 0.5), ("distinct", 100.0)])
def test_a_sample_of_words_is_right_within_its_standard_error(large, name, wanted):
    choice = choose_epsilon(large, sample=300, **{name: wanted})
    assert choice.words == 300
    assert choice.value == pytest.approx(wanted, rel=1e-6)
    assert 0 < choice.standard_error < 0.05 * wanted
    truth = mean_of(TEM(large, epsilon=choice.epsilon), name)
    assert abs(truth - wanted) < Z_999 * choice.standard_error


def test_the_standard_error_of_a_sample_is_honest():
    # The design over many populations: squared errors are on average what the standard errors say (within 25 %).
    weights = 1 / (np.arange(1, 3001) + 2.7)
    weights /= weights.sum()
    sample = WordSample.of(weights, 200)
    values = np.random.default_rng(5).random((3000, 400))
    errors = sample.mean(values[sample.ids]) - weights @ values
    told = sample.standard_error(values[sample.ids])
    assert np.mean(errors**2) == pytest.approx(np.mean(told**2), rel=0.25)


def test_all_words_have_no_standard_error():
    weights = np.array([0.5, 0.3, 0.2])
    sample = WordSample.of(weights, 10)
    assert sample.mean(np.array([1.0, 2.0, 3.0])) == pytest.approx(1.7)
    assert sample.standard_error(np.array([1.0, 2.0, 3.0])) == 0


# What cannot be had


def test_something_else_than_an_index_is_refused():
    with pytest.raises(MechanismError, match="Index"):
        epsilon_for("glove.idx", keep=0.5)


def test_approximate_lists_are_refused_for_what_needs_the_law(index_of):
    index = index_of(np.random.default_rng(0).normal(size=(100, 3)), k=8, backend="hnsw")
    with pytest.raises(MechanismError, match="exact"):
        epsilon_for(index, keep=0.5)
    assert epsilon_for(index, odds=3.0) > 0


def test_a_target_out_of_reach_names_the_end_that_it_is_beyond(index):
    # Theorem 3 lets a word leave gamma with probability up to 0.001, so 0.9999 cannot be reached.
    with pytest.raises(MechanismError, match=r"at most 0\.999.*smaller"):
        epsilon_for(index, keep=0.9999, prior="uniform")
    with pytest.raises(MechanismError, match=r"at least 0\.0.*larger"):
        epsilon_for(index, keep=1e-5)
    with pytest.raises(MechanismError, match=r"at least 1\.9.*larger"):
        epsilon_for(index, distinct=1.001, prior="uniform")


def test_the_names_are_in_the_package():
    assert textpriv.epsilon_for is epsilon_for
    assert textpriv.eps_from_odds is eps_from_odds


# What is recorded


def refusing(monkeypatch):
    """Make every search fail, so that only what is recorded can be returned."""
    monkeypatch.setattr("textpriv.guarantees.epsilon._Search.solve", lambda *given: 1 / 0)


def test_a_choice_is_recorded_with_the_index_and_not_searched_again(
    index_of, tmp_path, monkeypatch
):
    points = np.random.default_rng(3).normal(size=(50, 3))
    index_of(points, k=8).save(tmp_path / "index")
    first = choose_epsilon(Index.load(tmp_path / "index"), keep=0.4)
    refusing(monkeypatch)
    assert choose_epsilon(Index.load(tmp_path / "index"), keep=0.4) == first


@pytest.mark.parametrize(
    "other",
    [
        {"keep": 0.41},
        {"prior": "uniform"},
        {"gamma": 1.0},
        {"word_prior": "uniform"},
        {"sample": 9},
    ],
    ids=str,
)
def test_another_question_is_not_answered_by_what_is_recorded(index_of, monkeypatch, other):
    index = index_of(np.random.default_rng(3).normal(size=(50, 3)), k=8)
    choose_epsilon(index, keep=0.4)
    refusing(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        choose_epsilon(index, **{"keep": 0.4, **other})


def test_an_altered_record_is_not_believed(index_of, tmp_path):
    index_of(np.random.default_rng(3).normal(size=(50, 3)), k=8).save(tmp_path / "index")
    first = choose_epsilon(Index.load(tmp_path / "index"), keep=0.4)
    (file,) = (tmp_path / "index" / "records").glob("*.json")
    file.write_text(file.read_text().replace(f"{first.epsilon}", f"{2 * first.epsilon}"))
    with pytest.warns(UserWarning, match="is ignored"):
        assert choose_epsilon(Index.load(tmp_path / "index"), keep=0.4) == first


def test_a_large_vocabulary_is_sampled_with_an_error_that_is_told():
    low, middle, high = builtin_amounts("en")  # over all words
    choice = choose_epsilon(Index.builtin("en"), keep=middle.keep)
    assert 512 <= choice.words <= 4096
    slopes = [(each.keep - middle.keep) / (each.epsilon - middle.epsilon) for each in (low, high)]
    assert abs(choice.epsilon - middle.epsilon) < 6 * choice.standard_error / min(slopes)
