"""What is learned from private documents is what it is said to be, and compared with honest intervals."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.evaluation.tradeoff import Documents, Task, interval, similarity

SIZE = 40
PRIOR = np.arange(SIZE, 0, -1.0) / np.arange(SIZE, 0, -1.0).sum()


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(1)
    ids = rng.choice(SIZE, size=20_000, p=PRIOR).astype(np.int32)
    return Documents(ids, np.arange(0, 20_001, 100), rng.integers(0, 2, size=200))


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
