"""Certificates: the exact constant over all pairs, and refutations of broken mechanisms."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from broken_mechanisms import DoubledRate, OutsideTheVocabulary, Quiet, WithoutSelf

from textpriv import TEM, Madlib
from textpriv.errors import MechanismError
from textpriv.guarantees.certificate import Certificate, certify


@pytest.fixture(scope="module")
def points(clustered_points):
    """120 words in the plane, six of them duplicates."""
    table = clustered_points(12, 10, 2, 2.0)
    table[60:66] = table[0]
    return table


@pytest.fixture
def index(index_of, points):
    """A fresh index, so that no record of another test is met."""
    return index_of(points, k=16)


def brute_force(mechanism) -> float:
    size = len(mechanism.index)
    laws = np.stack([mechanism.log_prob(word) for word in range(size)])
    apart = mechanism.index.distances_of(np.arange(size))
    losses = np.stack([(laws[word] - laws).max(axis=1) for word in range(size)])
    return float((losses[apart > 0] / apart[apart > 0]).max(initial=0.0))


def assert_refuted(mechanism) -> Certificate:
    """The certificate refutes the claim, and its witness does by itself."""
    found = certify(mechanism)
    assert not found.holds
    assert found.rho > mechanism.epsilon
    first, second = (mechanism.log_prob(word) for word in found.worst_pair)
    loss = (first - second).max()
    assert loss > mechanism.epsilon * found.distance + 1e-6
    assert found.distance == 0 or loss == pytest.approx(found.rho * found.distance, rel=1e-6)
    return found


@pytest.mark.parametrize(
    "settings", [{}, {"prior": "uniform"}, {"gamma": 0.5}, {"epsilon": 0.01}, {"epsilon": 90.0}]
)
def test_the_constant_of_tem_is_that_of_all_triples(index, settings):
    mechanism = TEM(index, **{"epsilon": 3.0, **settings})
    found = certify(mechanism)
    assert (found.holds, found.exact, found.pairs) == (True, True, 120 * 119 // 2)
    assert found.rho == pytest.approx(brute_force(mechanism), rel=1e-7)
    assert found.rho <= mechanism.epsilon


def test_a_constant_over_many_blocks_is_that_of_single_rows(index_of):
    # More words than a block has rows or columns.
    index = index_of(np.random.default_rng(0).normal(size=(2500, 3)), k=4)
    mechanism = TEM(index, 2.0)
    found = certify(mechanism)
    ids = [index.vocabulary.id(word) for word in found.worst_pair]
    first, second = (mechanism.log_prob(word) for word in ids)
    assert (first - second).max() / index.distance(*ids) == pytest.approx(found.rho, rel=1e-9)
    normalisers = mechanism.log_normalisers
    apart = index.distances_of(np.arange(0, 2500, 50))
    ratio = mechanism.t * np.minimum(apart, mechanism.gamma)
    ratio += np.abs(normalisers[::50, None] - normalisers)
    assert (ratio[apart > 0] / apart[apart > 0]).max() <= found.rho * (1 + 1e-9)


@pytest.mark.parametrize("words", [1, 2])
def test_a_vocabulary_of_one_or_two_words_has_a_certificate(index_of, words):
    found = certify(TEM(index_of(np.arange(float(words))), 1.0))
    assert found.holds
    assert found.pairs == words - 1
    assert (found.rho > 0) == (words == 2)


# Broken mechanisms


class Understated(TEM):
    """Draws as it says, and claims half of what it loses."""

    def __init__(self, index, epsilon):
        super().__init__(index, 2 * epsilon, "uniform")
        self.epsilon = epsilon


class WrongBottom(TEM):
    """Scores the bottom ln(|W| / |L|) in place of ln|W outside L|."""

    def log_prob(self, word):
        apart = self.distances(self.resolve(word))
        listed = apart <= self.gamma
        size, inside = len(apart), int(listed.sum())
        score = -self.t * np.where(listed, apart, self.gamma)
        if inside < size:
            score[~listed] += math.log(size / inside) - math.log(size - inside)
        return score - np.logaddexp.reduce(score)


class SelfAtTheEdge(TEM):
    """Leaves a word out of its own list, and draws it as one of the rest."""

    def log_prob(self, word):
        number = self.resolve(word)
        score = super().log_prob(number).copy()
        score[number] -= self.t * self.gamma
        return score - np.logaddexp.reduce(score)


class NotANumber(TEM):
    """Has a law with a hole."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        law[7] = np.nan if word == 5 else law[7]
        return law


class ReturnsItsInput(TEM):
    """States a law and draws nothing."""

    def sample_documents(self, ids, offsets, streams):
        return np.maximum(ids, 0)


class Halved(TEM):
    """Releases a statement of half of what it loses."""

    factor = 0.5

    @property
    def statement(self):
        stated = super().statement
        return replace(stated, epsilon=stated.epsilon * self.factor)


class Doubled(Halved):
    """Releases a statement of twice its epsilon."""

    factor = 2.0


def test_the_claim_checked_is_that_of_the_released_statement(index):
    found = certify(Halved(index, 3.0, "uniform"))
    assert (found.holds, found.epsilon, found.asked) == (False, 1.5, 3.0)
    assert found.rho > found.epsilon


@pytest.mark.parametrize("kind", [Halved, Doubled])
def test_a_statement_of_another_epsilon_is_the_verdict(index, kind):
    found = certify(kind(index, 3.0))
    assert not found.holds
    assert found.verdict == "THE STATEMENT HAS ANOTHER EPSILON THAN THE MECHANISM"
    assert "the mechanism's is 3" in dict(found.rows())["claimed"]


def test_a_statement_without_an_epsilon_has_no_certificate(index):
    class Silent(TEM):
        statement = replace(TEM(index, 3.0).statement, epsilon=None)

    with pytest.raises(MechanismError, match="no claim to check"):
        certify(Silent(index, 3.0))


def test_a_doubled_rate_is_refuted(index):
    assert_refuted(DoubledRate(index, 3.0, "uniform"))
    found = assert_refuted(Understated(index, 3.0))
    assert "fit their output distributions" in str(found)  # the constant alone refutes it


def test_a_wrong_bottom_score_is_refuted(index_of, index, clustered_points):
    assert_refuted(WrongBottom(index, 3.0, "uniform", gamma=0.8))
    large = index_of(clustered_points(40, 50, 3, 3.0), k=32)
    assert not assert_refuted(WrongBottom(large, 3.0, "uniform", gamma=0.8)).exact


def test_a_word_left_out_of_its_own_list_is_refuted(index):
    assert_refuted(SelfAtTheEdge(index, 3.0, "uniform", gamma=3.0))
    found = certify(WithoutSelf(index, 3.0))
    assert (found.holds, found.rho) == (False, math.inf)


def test_a_law_that_is_no_number_does_not_hold(index):
    assert not certify(NotANumber(index, 3.0)).holds


def test_a_sampler_that_draws_no_word_is_named(index):
    with pytest.raises(MechanismError, match="must draw one word of the vocabulary"):
        certify(OutsideTheVocabulary(index, 3.0))


def test_a_sampler_that_returns_its_input_is_not_certified(index):
    found = certify(ReturnsItsInput(index, 3.0))
    assert not found.holds
    assert "does not draw from the stated output distribution" in str(found)


@pytest.mark.parametrize("harm", ["missed", "moved", "self"])
def test_an_index_with_a_wrong_list_is_not_certified(index_of, points, harm):
    index = index_of(points, k=17)
    ids, steps = index.neighbour_ids.copy(), index.neighbour_steps.copy()
    kept = {"missed": np.r_[:3, 4:17], "moved": np.arange(17), "self": np.r_[1:17]}[harm]
    index.neighbour_ids = ids[:, kept]
    index.neighbour_steps = steps[:, kept] + (harm == "moved")
    found = certify(TEM(index, 3.0))
    assert not found.holds
    assert "nearest list" in str(found)


# Mechanisms without a closed form


def test_madlib_is_bounded_by_samples_and_says_so(index_of, points):
    index = index_of(points, k=16)
    found = certify(Madlib(index, 3.0, "exact"))
    assert (found.holds, found.exact, found.confidence) == (True, False, 0.999)
    assert 0.5 < found.rho <= 3.0
    assert "cannot establish" in found.notes[0]
    assert certify(Madlib(index, 3.0, "exact")).rho == found.rho  # the same draws in every run


def test_a_madlib_with_too_little_noise_is_refuted(index_of, points):
    found = certify(Quiet(index_of(points, k=16), 3.0))
    assert not found.holds
    assert found.rho > 6.0


# Words


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("rho", [1.9999999999, 2.0000000001, 2 / 3])
def test_a_constant_is_rounded_to_the_side_that_stays_true(index, exact, rho):
    found = replace(certify(TEM(index, 3.0)), rho=rho, exact=exact)
    relation, printed = dict(found.rows())["constant"].rpartition(" ")[::2]
    assert relation == ("" if exact else "at least")
    assert rho <= float(printed) if exact else float(printed) <= rho
    assert float(printed) == pytest.approx(rho, rel=1e-8)


def test_a_certificate_says_when_it_was_computed_and_looked_at_what(index):
    found = certify(TEM(index, 3.0))
    assert "UTC by textpriv" in found.computed
    assert "draws each of 8 words and of an unknown one fit" in str(found)
    assert "nearest lists of 32 words agree" in str(found)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["binding"] == TEM(index, 3.0).binding()
    assert (told["rho"], told["worst_pair"]) == (found.rho, list(found.worst_pair))
