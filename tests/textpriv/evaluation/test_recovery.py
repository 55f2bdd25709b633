"""The best attacker's success, in all and word by word, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import small_trees as trees
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.recovery import WordRecovery, hidden_words, word_recovery
from textpriv.index import Index
from textpriv.mechanisms import TEM, TreeTEM
from textpriv.vocabulary import Vocabulary


def brute_force(mechanism, prior, chosen):
    """How often each of some words is guessed by an attacker who knows that it is one of them."""
    laws = np.exp([mechanism.log_prob(word) for word in range(len(mechanism.index))])
    own = np.where(chosen, prior, 0)
    joint = own[:, None] * laws
    guess = joint.argmax(axis=0)
    right = np.zeros(len(prior))
    np.add.at(right, guess, laws[guess, np.arange(len(prior))])
    return joint.max(axis=0).sum() / own.sum(), right


@pytest.mark.parametrize("prior", ["uniform", "zipf"])
def test_success_and_its_table_are_those_of_brute_force(prior):
    vectors = np.random.default_rng(4).normal(size=(60, 4))
    index = Index.build(Vocabulary([f"w{i}" for i in range(60)], vectors), k=20, hnsw=False)
    mechanism = TEM(index, 2.0, prior=prior)
    written = index.vocabulary.prior_weights("zipf")
    found = word_recovery(mechanism, common=10)
    everything, by_word = brute_force(mechanism, written, np.ones(60, dtype=bool))
    content, told = brute_force(mechanism, written, np.arange(60) >= 10)
    assert_allclose([found.everything, found.content], [everything, content], rtol=1e-5)
    assert_allclose(found.by_word, np.where(np.arange(60) >= 10, told, by_word), atol=1e-5)
    worst = found.worst(20)
    assert len(worst) == 20
    assert_allclose([share for _, share in worst], np.sort(told[10:])[::-1][:20], atol=1e-5)
    assert all(int(word[1:]) >= 10 for word, _ in worst)


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 30),
    epsilon=st.sampled_from([0.01, 0.5, 3.0, 20.0, 300.0]),
    gamma=st.sampled_from([0.5, 2.0, None]),
    same=st.integers(0, 4),
    left_out=st.integers(0, 39),
)
def test_short_lists_find_the_likeliest_words_of_all(
    metric, seed, k, epsilon, gamma, same, left_out
):
    """Words that a list leaves out, truncated distances, equal vectors and words that are never written.

    Scores are at most 1,000 nats, in single precision: off by 6e-5, and a joint probability by that part of it.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 3)).astype(np.float32)
    vectors[:same] = vectors[-1]
    vocabulary = Vocabulary([f"w{i}" for i in range(40)], vectors)
    index = Index.build(vocabulary, metric=metric, k=k, hnsw=False)
    mechanism = TEM(index, epsilon, gamma=gamma)
    laws = np.exp([mechanism.log_prob(word) for word in range(40)])
    some = rng.permutation(rng.random(40) ** 8 * (np.arange(40) >= left_out))
    priors = [index.vocabulary.prior_weights("zipf"), some / some.sum()]
    for prior, (guess, value) in zip(priors, Law(mechanism).likeliest_under(priors), strict=True):
        joint = prior[:, None] * laws
        assert_allclose(value, joint.max(axis=0), rtol=1e-4)
        assert_allclose(joint[guess, np.arange(40)], joint.max(axis=0), rtol=1e-4)


@pytest.mark.parametrize("name", trees.HARD)
def test_over_a_tree_the_likeliest_words_are_those_of_all_pairs(name):
    mechanism = TreeTEM(trees.HARD[name](), 1.3, prior="zipf")
    law = Law(mechanism)
    joint = law.prior[:, None] * np.exp(
        [mechanism.log_prob(word) for word in range(len(mechanism.index))]
    )
    guess, value = law.likeliest()
    assert_allclose(value, joint.max(axis=0), rtol=1e-9)
    assert_allclose(joint[guess, np.arange(len(joint))], value, rtol=1e-9)


def test_a_vocabulary_of_common_words_alone_has_no_content_words():
    with pytest.raises(TextprivError, match="cannot be left out as common ones"):
        word_recovery(TreeTEM(trees.star(40), 1.0))


def test_bands_hold_every_word_once_by_how_often_it_is_guessed():
    by_word = np.array([1.0, 0.5, 0.51, 0.0, 0.02])
    is_content = np.array([True, True, True, False, True])
    found = WordRecovery(list("abcde"), 0.5, 0.5, by_word, is_content, np.arange(5))
    prior = np.array([0.1, 0.2, 0.3, 0.3, 0.1])
    bands = hidden_words(found, prior, np.array([1, 2, 3, 4, 5, 99]), edges=(1.0, 0.5, 0.01))
    assert [(band.words, band.examples, band.tokens) for band in bands] == [
        (2, ("c", "a"), 4),
        (2, ("b", "e"), 7),
        (1, (), 4),
    ]
    assert [band.running for band in bands] == pytest.approx([0.4, 0.3, 0.3])
    assert (bands[0].least, bands[0].most, bands[-1].least) == (0.5, 1.0, 0.0)
    assert hidden_words(found, prior)[0].tokens is None
