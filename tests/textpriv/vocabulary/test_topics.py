"""Words of one subject lie near each other, and words that share nothing near nobody."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.errors import VocabularyError
from textpriv.vocabulary.topics import topic_vectors

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
