"""Words of one subject lie near, common words lie far, and what is drawn keeps its promise in the space that is declared."""

from __future__ import annotations

import numpy as np
import pytest

import textpriv
from textpriv.errors import VocabularyError
from textpriv.vocabulary.topics import common_apart, topic_vectors

WORDS = 30  # ten common ones, then two subjects of ten


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    subject = 10 + 10 * (np.arange(400)[:, None] % 2) + rng.integers(0, 10, size=(400, 4))
    ids = np.c_[rng.integers(0, 10, size=(400, 4)), subject].astype(np.int32)
    return ids.ravel(), np.arange(0, ids.size + 1, 8)


def test_words_of_one_subject_lie_nearer_than_those_of_two(texts):
    vectors = topic_vectors(*texts, WORDS, 4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    near = vectors @ vectors.T
    assert near[10:20, 10:20].min() > near[10:20, 20:].max()


def test_a_word_that_shares_no_documents_is_near_nobody(texts):
    vectors = topic_vectors(*texts, WORDS + 1, 4)
    assert (vectors[:WORDS] @ vectors[WORDS] < 1e-3).all()


def test_texts_that_say_nothing_are_refused(texts):
    with pytest.raises(VocabularyError):
        topic_vectors(*texts, WORDS, 4, shared=1000)
    with pytest.raises(VocabularyError):
        topic_vectors(*texts, WORDS, WORDS)


def test_common_words_stay_where_others_hide_and_no_pair_loses_more_than_its_distance(texts):
    prior = np.r_[np.full(10, 0.08), np.full(20, 0.01)]
    rows = common_apart(topic_vectors(*texts, WORDS, 4), prior, common=10)
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(WORDS)], rows)
    mechanism = textpriv.TEM(textpriv.Index.build(vocabulary, hnsw=False), 4.0, prior="uniform")
    laws = np.array([mechanism.log_prob(word) for word in range(WORDS)])
    stays = np.exp(np.diag(laws))
    assert stays[:10].min() > 2 * stays[10:].max()
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    lost = (laws[:, None] - laws[None]).max(axis=2)
    assert (lost <= 4.0 * apart + mechanism.statement.figures["numerical_slack"] + 1e-9).all()
