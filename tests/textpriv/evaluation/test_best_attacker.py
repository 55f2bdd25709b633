"""A law is set to one success of the best attacker, and that is what brute force finds."""

from __future__ import annotations

import numpy as np
import pytest

import textpriv
from textpriv.errors import OutOfReachError, TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText, largest_epsilon
from textpriv.language.ngrams import NGrams

SIZE, COMMON = 40, 5
PRIOR = np.arange(SIZE, 0, -1.0) / np.arange(SIZE, 0, -1.0).sum()
CONTENT = np.where(np.arange(SIZE) < COMMON, 0.0, PRIOR) / PRIOR[COMMON:].sum()


@pytest.fixture(scope="module")
def make():
    vectors = np.random.default_rng(0).normal(size=(SIZE, 3))
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(SIZE)], vectors, prior=PRIOR)
    index = textpriv.Index.build(vocabulary, hnsw=False)
    return lambda epsilon: textpriv.TEM(index, epsilon, prior="uniform")


def best_guess(mechanism, prior):
    """Success of the attacker by brute force."""
    law = np.exp([mechanism.log_prob(word) for word in range(SIZE)])
    return float((prior[:, None] * law).max(axis=0).sum())


@pytest.mark.parametrize(("of", "prior"), [("content", CONTENT), ("all", PRIOR)])
def test_the_largest_epsilon_is_that_by_brute_force(make, of, prior):
    found = largest_epsilon(make, 0.4, BestAttacker(PRIOR, of, common=COMMON))
    assert best_guess(make(found.epsilon), prior) == pytest.approx(found.share, abs=1e-6)
    assert found.share <= 0.4 < best_guess(make(found.epsilon * 1.001), prior)


def test_a_share_that_no_epsilon_gives_is_refused(make):
    with pytest.raises(TextprivError, match="between 0 and 1"):
        largest_epsilon(make, 0.0, BestAttacker(PRIOR, common=COMMON))
    least = best_guess(make(1e-6), CONTENT)
    with pytest.raises(OutOfReachError, match=f"at least {least:.4g}. Choose a larger"):
        largest_epsilon(make, 1e-4, BestAttacker(PRIOR, common=COMMON))


def test_a_reader_without_context_gets_back_what_the_attacker_of_lone_words_does(make):
    # All words as candidates, and a model that knows no pairs: both are one attacker.
    ids = np.random.default_rng(1).choice(SIZE, size=20_000, p=PRIOR).astype(np.int32)
    text = PublicText(NGrams.alone(np.append(PRIOR, 1e-12)), ids, np.arange(0, 20_001, 100))
    mechanism = make(3.0)
    read, _ = BestAttacker(PRIOR, "content", text, COMMON, SIZE + 1).in_context(mechanism)
    told = int((ids >= COMMON).sum())
    # Seven deviations of a share: below one false alarm in a million.
    assert read == pytest.approx(best_guess(mechanism, CONTENT), abs=3.5 / np.sqrt(told))


def test_the_better_attacker_counts(make):
    # Each word is always followed by the next: whoever reads knows more than the word says.
    ids = np.tile(np.arange(SIZE, dtype=np.int32), 50)
    offsets = np.array([0, len(ids)])
    text = PublicText(NGrams.train(ids, offsets, SIZE, order=2), ids, offsets)
    alone, reader = BestAttacker(PRIOR, common=COMMON), BestAttacker(PRIOR, "content", text, COMMON)
    found = largest_epsilon(make, 0.5, reader)
    assert found.epsilon < 0.9 * largest_epsilon(make, 0.5, alone).epsilon
    assert reader.alone(make(found.epsilon)) < found.share <= 0.5
    assert reader.success(make(found.epsilon)) == reader.in_context(make(found.epsilon))
    # What is met is the share, not only its order: laws are compared at equal shares.
    assert found.share == pytest.approx(0.5, rel=0.01)
    assert reader.in_context(make(found.epsilon * 1.001))[0] > 0.5


class Steady:
    """An attacker whose share a mechanism, here an epsilon, is: alone, and more in context."""

    def __init__(self, share, text=None, in_context=None):
        self.share, self.text, self.read = share, text, in_context

    def alone(self, epsilon):
        return self.share(epsilon)

    def in_context(self, epsilon):
        return self.read(epsilon), epsilon


@pytest.mark.parametrize("at_once", [0.0, 1.0])
def test_a_share_above_the_wanted_one_by_less_than_odds_tell_is_above_it(at_once):
    wanted = 1 - 1e-13

    def share(epsilon):
        return wanted - at_once * 0.1 if epsilon < 7 else 1.0

    found = largest_epsilon(lambda epsilon: epsilon, wanted, Steady(share), start=9.0)
    assert found.epsilon <= 7 < found.epsilon * 1.001
    assert found.share <= wanted


def test_the_error_is_that_of_the_share_that_was_found():
    attacker = Steady(lambda e: e / (e + 9), "any", lambda e: e / (e + 1))
    found = largest_epsilon(lambda epsilon: epsilon, 0.3, attacker)
    assert found.share == found.epsilon / (found.epsilon + 1)
    assert found.error == found.epsilon
