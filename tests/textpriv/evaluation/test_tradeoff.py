"""Laws are set to one success of the attackers, which is what it is said to be, and compared with honest intervals."""

from __future__ import annotations

import numpy as np
import pytest

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.ngrams import NGrams
from textpriv.evaluation.tradeoff import (
    Attackers,
    Context,
    Documents,
    Task,
    epsilon_at,
    interval,
    sampled_recovery,
    similarity,
)

SIZE = 40
PRIOR = np.arange(SIZE, 0, -1.0) / np.arange(SIZE, 0, -1.0).sum()


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(0).normal(size=(SIZE, 3))
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(SIZE)], vectors, prior=PRIOR)
    return textpriv.Index.build(vocabulary, hnsw=False)


@pytest.fixture(scope="module")
def make(index):
    return lambda epsilon: textpriv.TEM(index, epsilon, prior="uniform")


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(1)
    ids = rng.choice(SIZE, size=20_000, p=PRIOR).astype(np.int32)
    return Documents(ids, np.arange(0, 20_001, 100), rng.integers(0, 2, size=200))


def best_guess(mechanism, content):
    """Success of the attacker by brute force."""
    law = np.exp([mechanism.log_prob(word) for word in range(SIZE)])
    return float((content[:, None] * law).max(axis=0).sum())


def test_the_epsilon_lets_as_many_content_words_be_got_back_as_was_asked_for(make):
    attackers = Attackers(PRIOR, common=5)
    for share in (0.2, 0.5):
        found = best_guess(make(epsilon_at(make, share, attackers)[0]), attackers.content)
        assert found == pytest.approx(share, rel=0.02)


def test_the_epsilon_for_all_words_is_about_all_words(make):
    epsilon, _ = epsilon_at(make, 0.4, Attackers(PRIOR, common=5), everything=True)
    assert best_guess(make(epsilon), PRIOR) == pytest.approx(0.4, rel=0.02)


def test_a_share_that_no_epsilon_gives_is_refused(make):
    for share in (0.0, 1e-4):
        with pytest.raises(TextprivError):
            epsilon_at(make, share, Attackers(PRIOR, common=5))


def test_a_reader_without_context_gets_back_what_the_attacker_of_lone_words_does(make, documents):
    # All words as candidates, and a model that knows no pairs: both are one attacker.
    model = NGrams.alone(np.append(PRIOR, 1e-12))
    attackers = Attackers(PRIOR, 5, Context(model, documents, candidates=SIZE + 1))
    mechanism = make(3.0)
    read, alone = attackers.in_context(mechanism), best_guess(mechanism, attackers.content)
    told = int((documents.ids >= 5).sum())
    # Seven deviations of a share: below one false alarm in a million.
    assert read == pytest.approx(alone, abs=3.5 / np.sqrt(told))


def test_the_better_attacker_counts(make):
    # Each word is always followed by the next: whoever reads knows more than the word says.
    ids = np.tile(np.arange(SIZE, dtype=np.int32), 50)
    documents = Documents(ids, np.array([0, len(ids)]), np.array([0]))
    model = NGrams.train(ids, documents.offsets, SIZE, order=2)
    alone, read = Attackers(PRIOR, 5), Attackers(PRIOR, 5, Context(model, documents))
    epsilon, success = epsilon_at(make, 0.5, read)
    assert epsilon < 0.9 * epsilon_at(make, 0.5, alone)[0]
    assert success.best == success.context == pytest.approx(0.5, abs=0.02)
    assert success.content < 0.5


def test_recovery_by_draws_is_that_of_the_law_and_no_more(make):
    mechanism = make(4.0)

    def draw(ids, seed):
        return mechanism.sample(ids, np.random.default_rng(seed))

    exact = best_guess(mechanism, PRIOR)
    found = sampled_recovery(draw, PRIOR, draws=3000)
    assert found == pytest.approx(exact, abs=0.02)
    assert sampled_recovery(lambda ids, seed: np.full_like(ids, -1), PRIOR, draws=2) == 0.0


def test_a_task_is_learned_from_clear_words_and_not_from_noise():
    rng = np.random.default_rng(2)
    labels = np.arange(300) % 3
    ids = (labels[:, None] * 10 + rng.integers(0, 10, size=(300, 8))).ravel().astype(np.int32)
    documents = Documents(ids, np.arange(0, 2401, 8), labels)
    task = Task(documents.between(0, 200), documents.between(200, 300), SIZE, 1.0)
    assert task.right(task.train.ids).all()
    assert task.right(rng.integers(0, SIZE, size=1600).astype(np.int32)).mean() < 0.7
    assert task.guessing == pytest.approx(0.34)


def test_a_document_is_similar_to_itself_alone(documents):
    table = np.random.default_rng(3).normal(size=(SIZE, 8)).astype(np.float32)
    few = documents.between(0, 50)
    assert similarity(few, few.ids, table) == pytest.approx(1.0, abs=1e-5)
    assert similarity(few, few.ids[::-1].copy(), table) < 0.9


def test_an_interval_holds_what_is_true_and_not_what_is_far():
    rng = np.random.default_rng(4)
    better, worse = rng.random((4, 2000)) < 0.8, rng.random((4, 2000)) < 0.7
    mean, low, high = interval(better, worse)
    assert low < 0.1 < high
    assert low > 0.05
    assert mean == pytest.approx(better.mean() - worse.mean())
    assert interval(better)[1] < 0.8 < interval(better)[2]
