"""Re-identification and linkage find what a release keeps, and nothing when it keeps nothing."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.reidentification import (
    link_authors,
    log_likelihoods,
    reidentify,
    similarities,
)
from textpriv.evaluation.utility import count_matrix
from textpriv.mechanisms import TEM

DOCUMENTS, LENGTH = 60, 15


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(20, 10, 6, 1.5), k=16)


@pytest.fixture(scope="module")
def documents(index):
    """Every document speaks of three clusters of its own."""
    rng = np.random.default_rng(2)
    topics = rng.integers(0, 20, (DOCUMENTS, 3))
    words = topics[np.arange(DOCUMENTS)[:, None], rng.integers(0, 3, (DOCUMENTS, LENGTH))]
    ids = (10 * words + rng.integers(0, 10, words.shape)).astype(np.int32)
    return ids.ravel(), np.arange(DOCUMENTS + 1) * LENGTH


def private_of(index, ids, epsilon, stream, *names):
    return TEM(index, epsilon).sample(ids, stream(*names))


def attacks(index, documents, out, table=None):
    ids, offsets = documents
    size = len(index)
    scores = similarities(count_matrix(out, offsets, size), count_matrix(ids, offsets, size), table)
    return reidentify(scores, np.arange(DOCUMENTS))


@pytest.mark.parametrize("embedded", [False, True])
def test_nearest_neighbours_find_documents_that_keep_their_topic(
    index, documents, stream, embedded
):
    table = index.vocabulary.vectors if embedded else None
    out = private_of(index, documents[0], 12.0, stream, "reidentify", 12)
    assert attacks(index, documents, out, table).success.low > 0.5


def test_nothing_is_found_when_the_words_say_nothing(index, documents, stream):
    # Outputs are drawn without the words: 60 guesses of 1 in 60; 9 hits or more have probability below 1e-6.
    out = TEM(index, 3.0).sample(np.full(len(documents[0]), -1), stream("blind"))
    found = attacks(index, documents, out)
    assert found.success.value * DOCUMENTS < 9


def test_the_likelihood_is_that_of_the_law_word_by_word(index, stream):
    mechanism = TEM(index, 3.0)
    ids = np.array([3, 50, 7, 9, -1, 4], dtype=np.int32)
    offsets = np.array([0, 3, 4, 6])
    out = mechanism.sample(ids, stream("likelihood"))
    found = log_likelihoods(out, offsets, ids, offsets, Law(mechanism))
    expected = sum(mechanism.log_prob(int(w))[y] for w, y in zip(ids[:3], out[:3], strict=True))
    assert found[0, 0] == pytest.approx(expected, rel=1e-4)
    # The unknown word adds nothing.
    assert found[2, 2] == pytest.approx(mechanism.log_prob(4)[out[5]], rel=1e-4)
    # Another number of words rules a candidate out.
    assert np.isneginf(found[[0, 1], [1, 2]]).all()


def test_the_likelihood_attack_is_at_least_as_good_as_similarity(index, documents, stream):
    ids, offsets = documents
    mechanism = TEM(index, 4.0)
    out = mechanism.sample(ids, stream("best"))
    scores = log_likelihoods(out, offsets, ids, offsets, Law(mechanism))
    best = reidentify(scores, np.arange(DOCUMENTS))
    assert best.success.value >= attacks(index, documents, out).success.value
    assert best.success.value > 0.5


def test_one_author_is_linked_across_two_releases(index, documents, stream):
    ids, offsets = documents
    first, second = (private_of(index, ids, 12.0, stream, "link", part) for part in (1, 2))
    found = link_authors(first, offsets, second, offsets, len(index))
    assert found.success.low > 0.3
    assert found.auc.low > 0.8


def test_equal_scores_are_a_guess_at_random():
    found = reidentify(np.zeros((40, 4)), np.zeros(40, dtype=np.int64))
    assert found.success.value == 0.25
    assert found.auc.value == 0.5


def test_the_ceiling_of_a_guess_among_candidates():
    scores = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = reidentify(scores, np.array([0, 1]), loss=1.0)
    # Two candidates are randomised response.
    assert found.success.ceiling == pytest.approx(1 / (1 + np.exp(-1)))
    assert found.auc.ceiling == pytest.approx(1 / (1 + np.exp(-1)))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(TextprivError, match="one row a document"):
        reidentify(np.zeros((3, 1)), np.zeros(3, dtype=np.int64))
    with pytest.raises(TextprivError, match="true candidates"):
        reidentify(np.zeros((3, 2)), np.full(3, 2))
    with pytest.raises(TextprivError, match="every author"):
        link_authors(np.zeros(2, int), np.array([0, 2]), np.zeros(2, int), np.array([0, 1, 2]), 3)
