"""Plausible deniability is what the law says, and what draws show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from textpriv.errors import MechanismError, TextprivError
from textpriv.evaluation.deniability import (
    WordSample,
    deniabilities,
    deniability,
    sampled_deniability,
)
from textpriv.mechanisms import TEM, Madlib


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(20, 10, 6, 1.5), k=32)


def test_two_words_have_their_closed_form(index_of):
    # mechanisms.md 3.6, oracle 2: d = 1, t = 1/2.
    found = deniability(TEM(index_of([0.0, 1.0]), 1.0, prior="uniform"), draws=2, eta=0.3)
    keep = 1 / (1 + math.exp(-0.5))
    assert found.keep == pytest.approx(keep)
    # Two draws show a second output unless they agree.
    assert found.distinct == pytest.approx(1 + 2 * keep * (1 - keep))
    assert found.support.tolist() == [2, 2]


def test_keep_is_the_probability_of_the_word_itself(index):
    mechanism = TEM(index, 4.0)
    found = deniability(mechanism, words=[0, 7, 199])
    expected = [math.exp(mechanism.log_prob(word)[word]) for word in (0, 7, 199)]
    assert found.keep == pytest.approx(expected)


def test_distinct_agrees_with_draws(index):
    # 99.9 % interval under a fixed seed.
    mechanism, rng = TEM(index, 5.0), np.random.default_rng(4)
    draws = mechanism.sample(np.full(400 * 200, 3), rng).reshape(400, 200)
    seen = np.array([len(np.unique(row)) for row in draws])
    expected = deniability(mechanism, words=[3], draws=200).distinct[0]
    assert abs(seen.mean() - expected) < 3.29 * seen.std(ddof=1) / math.sqrt(400)


@pytest.mark.parametrize("eta", [0.01, 0.1, 0.5])
def test_support_is_the_least_set_of_outputs_that_holds_the_rest(index, eta):
    mechanism = TEM(index, 5.0)
    found = int(deniability(mechanism, words=[3], eta=eta).support[0])
    law = np.sort(np.exp(mechanism.log_prob(3)))[::-1]
    assert law[:found].sum() >= 1 - eta - 1e-12
    assert law[: found - 1].sum() < 1 - eta


def test_a_larger_epsilon_keeps_more_and_varies_less(index):
    low, high = (deniability(TEM(index, epsilon, prior="uniform")) for epsilon in (2.0, 8.0))
    assert (low.keep < high.keep).all()
    assert (low.distinct > high.distinct).all()
    assert (low.support >= high.support).all()


def test_the_mean_follows_the_word_prior(index):
    mechanism = TEM(index, 5.0)
    prior = np.full(len(index), 1e-9)
    prior[5] = 1.0
    found = deniability(mechanism, word_prior=prior, sample=None).to_dict()
    assert found["keep"]["mean"] == pytest.approx(math.exp(mechanism.log_prob(5)[5]), abs=1e-6)
    assert found["keep"]["standard_error"] == 0


def test_words_can_be_given_by_name(index):
    mechanism = TEM(index, 5.0)
    assert deniability(mechanism, words=["w5"]).keep == deniability(mechanism, words=[5]).keep


def test_a_sample_is_public_and_always_the_same():
    weights = 1 / np.arange(1.0, 2001.0)
    weights /= weights.sum()
    one, two = WordSample.of(weights, 100), WordSample.of(weights, 100)
    assert one.ids.tolist() == two.ids.tolist()
    assert one.shares.sum() == pytest.approx(1.0)
    assert set(range(12)) <= set(one.ids[: one.certain].tolist())
    assert len(one.ids) == 100


def test_a_mechanism_without_a_law_is_refused(index):
    with pytest.raises(MechanismError, match="no closed"):
        deniability(Madlib(index, 20.0, search="exact"))


def test_sampled_figures_agree_with_the_exact_ones(index, stream):
    # 5 standard errors of 4,000 draws for each of four words: a false alarm has probability below 3e-6.
    mechanism = TEM(index, 5.0)
    words = [0, 3, 40, 199]
    exact = deniability(mechanism, words=words, draws=4000)
    shown = sampled_deniability(mechanism, stream("deniability"), words=words, draws=4000)
    error = np.sqrt(exact.keep * (1 - exact.keep) / 4000)
    assert (np.abs(shown.keep - exact.keep) < 5 * error).all()
    # The number of different outputs has a variance below its mean.
    assert (np.abs(shown.distinct - exact.distinct) < 5 * np.sqrt(exact.distinct)).all()
    assert (shown.support <= exact.support + 5 * np.sqrt(exact.support)).all()


def test_madlib_is_sampled_in_one_dimension_to_its_known_keep_probability(index_of, stream):
    # mechanisms.md 3.6, oracle 5: two words at distance 1 keep with 1 - exp(-epsilon / 2) / 2; 5 standard errors.
    mechanism = Madlib(index_of([0.0, 1.0]), 2.0, search="exact")
    shown = sampled_deniability(mechanism, stream("madlib deniability"), draws=20_000, sample=None)
    keep = 1 - math.exp(-1) / 2
    assert np.abs(shown.keep - keep).max() < 5 * math.sqrt(keep * (1 - keep) / 20_000)
    assert shown.distinct.tolist() == [2, 2]


@pytest.mark.parametrize(
    "options",
    [{"draws": 0}, {"eta": 0.0}, {"eta": 1.0}, {"sample": 1}, {"words": []}, {"words": [-1]}],
)
def test_parameters_without_meaning_are_refused(index, options):
    with pytest.raises(TextprivError):
        deniability(TEM(index, 5.0), **options)


def test_several_mechanisms_looked_at_together_have_the_figures_of_each(index_of):
    index = index_of(np.random.default_rng(2).normal(size=(60, 3)), k=8)
    mechanisms = [TEM(index, epsilon=epsilon) for epsilon in (0.5, 2.0, 8.0)]
    for found, mechanism in zip(deniabilities(mechanisms, sample=20), mechanisms, strict=True):
        assert found.to_dict() == deniability(mechanism, sample=20).to_dict()


def test_a_row_that_is_asked_for_again_was_not_changed_by_who_had_it(index_of):
    index = index_of(np.random.default_rng(2).normal(size=(60, 3)), k=8)
    first = index.distances_of(np.array([7]))
    expected = first.copy()
    first[:] = 0.0
    assert (index.distances_of(np.array([7])) == expected).all()
    assert (index.distances_of(np.array([7, 8]))[:1] == expected).all()
