"""Draws by which attackers are tried: of the law, and moving little where the law does."""

from __future__ import annotations

import numpy as np
import pytest
import small_trees as trees
from scipy.stats import chisquare

import textpriv
from textpriv.evaluation.law import Law
from textpriv.mechanisms.base import UNKNOWN

SIZE, TIMES = 30, 20_000


@pytest.fixture(scope="module")
def make():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(SIZE)]
    vocabulary = textpriv.Vocabulary(words, rng.normal(size=(SIZE, 3)))
    index = textpriv.Index.build(vocabulary, hnsw=False)
    return lambda epsilon: textpriv.TEM(index, epsilon, prior="zipf")


@pytest.mark.parametrize("word", [0, 17, UNKNOWN])
@pytest.mark.parametrize("over_a_tree", [False, True])
def test_draws_follow_the_law_of_each_word_also_of_one_outside_the_vocabulary(
    make, over_a_tree, word
):
    tree = trees.random_tree(SIZE, 4, 2)
    mechanism = textpriv.TreeTEM(tree, 2.0, prior="zipf") if over_a_tree else make(2.0)
    others = np.arange(SIZE, dtype=np.int32)  # that stand between, and are not counted
    ids = np.insert(np.tile(others, 3), 50, np.full(TIMES, word))
    drawn = Law(mechanism).draws(ids, np.random.default_rng(1))[50 : 50 + TIMES]
    expected = np.exp(mechanism.log_prob(word)) * TIMES
    frequent = expected >= 8
    seen = np.bincount(drawn, minlength=SIZE)
    seen = np.append(seen[frequent], seen[~frequent].sum())
    wanted = np.append(expected[frequent], TIMES - expected[frequent].sum())
    # One false alarm in ten million.
    assert chisquare(seen[wanted > 0], wanted[wanted > 0]).pvalue > 1e-7


def test_draws_of_two_near_laws_differ_in_few_places(make):
    ids = np.random.default_rng(2).integers(0, SIZE, size=TIMES).astype(np.int32)
    first, second = (Law(make(e)).draws(ids, np.random.default_rng(3)) for e in (2.0, 2.002))
    laws = [np.exp([make(e).log_prob(word) for word in range(SIZE)]) for e in (2.0, 2.002)]
    # A place's draw moves with a probability of at most twice the laws' total variation; seven deviations beyond.
    moved = np.abs(laws[0] - laws[1]).sum(axis=1).max()
    assert 0 < (first != second).sum() < TIMES * moved + 7 * np.sqrt(TIMES * moved)


@pytest.mark.parametrize("metric", ["angular", "euclidean"])
def test_the_likeliest_words_are_found_with_no_more_cells_at_once_than_allowed(monkeypatch, metric):
    size, cells = 200, 2_000
    rng = np.random.default_rng(4)
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(size)], rng.normal(size=(size, 3)))
    index = textpriv.Index.build(vocabulary, hnsw=False, metric=metric, k=5)
    mechanism = textpriv.TEM(index, 1.0, prior="uniform")
    mechanism.log_normalisers()
    prior = np.where(np.arange(size) < 3, 1000.0, 1.0)  # few words that are likely from afar
    joint = (prior / prior.sum())[:, None] * np.exp([mechanism.log_prob(w) for w in range(size)])
    asked = []
    distances_of = type(index).distances_of

    def counted(self, words, **named):
        asked.append(len(words) * size)
        return distances_of(self, words, **named)

    monkeypatch.setattr("textpriv.evaluation.law._CELLS", cells)
    monkeypatch.setattr(type(index), "distances_of", counted)
    guess, most = Law(mechanism).likeliest(prior / prior.sum())
    # Distances of single precision, a rate of one nat a unit.
    np.testing.assert_allclose(most, joint.max(axis=0), rtol=1e-4)
    np.testing.assert_allclose(joint[guess, np.arange(size)], joint.max(axis=0), rtol=1e-4)
    assert max(asked, default=0) <= cells
