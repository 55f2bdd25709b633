"""Plausible deniability is what the output distribution says, and what draws show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from textpriv.errors import MechanismError, TextprivError
from textpriv.evaluation.deniability import WordSample, deniability
from textpriv.mechanisms import TEM, Madlib


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(20, 10, 6, 1.5), k=32)


def test_two_words_have_their_closed_form(index_of):
    found = deniability(TEM(index_of([0.0, 1.0]), 1.0, prior="uniform"), draws=2, eta=0.3)
    keep = 1 / (1 + math.exp(-0.5))
    assert found.keep == pytest.approx(keep)
    # Two draws show a second output unless they agree.
    assert found.distinct == pytest.approx(1 + 2 * keep * (1 - keep))
    assert found.support.tolist() == [2, 2]


def test_distinct_agrees_with_draws(index):
    mechanism, rng = TEM(index, 5.0), np.random.default_rng(4)
    draws = mechanism.sample(np.full(400 * 200, 3), rng).reshape(400, 200)
    seen = np.array([len(np.unique(row)) for row in draws])
    expected = deniability(mechanism, words=[3], draws=200).distinct[0]
    # Five standard errors: a false alarm has probability 6e-7.
    assert abs(seen.mean() - expected) < 5 * seen.std(ddof=1) / math.sqrt(400)


@pytest.mark.parametrize("eta", [0.01, 0.1, 0.5])
def test_support_is_the_least_set_of_outputs_with_the_rest(index, eta):
    mechanism = TEM(index, 5.0)
    found = int(deniability(mechanism, words=["w3"], eta=eta).support[0])
    law = np.sort(np.exp(mechanism.log_prob(3)))[::-1]
    assert law[:found].sum() >= 1 - eta - 1e-12
    assert law[: found - 1].sum() < 1 - eta


def test_words_count_as_often_as_they_are_written(index):
    mechanism = TEM(index, 5.0)
    found, prior = deniability(mechanism), index.vocabulary.prior_weights("zipf")
    keep = np.array([math.exp(mechanism.log_prob(word)[word]) for word in range(len(index))])
    assert found.keep == pytest.approx(keep)
    assert found.sample.mean(found.keep) == pytest.approx(prior @ keep)
    assert found.sample.standard_error(found.keep) == 0


def test_a_sample_is_public_and_always_the_same():
    weights = 1 / np.arange(1.0, 2001.0)
    weights /= weights.sum()
    one, two = WordSample.of(weights, 100), WordSample.of(weights, 100)
    assert one.ids.tolist() == two.ids.tolist()
    assert one.shares.sum() == pytest.approx(1.0)
    assert set(range(12)) <= set(one.ids[: one.certain].tolist())
    assert len(one.ids) == 100
    # The mean over strata has the error that it states: six of them are 2e-9 beyond.
    values = np.sin(np.arange(2000.0))
    error = one.standard_error(values[one.ids])
    assert abs(one.mean(values[one.ids]) - weights @ values) < 6 * error


def test_no_output_distribution_and_no_words_are_refused(index):
    with pytest.raises(MechanismError, match="in closed form"):
        deniability(Madlib(index, 20.0, search="exact"))
    for words in ([], [-1]):
        with pytest.raises(TextprivError):
            deniability(TEM(index, 5.0), words=words)
