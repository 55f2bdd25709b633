"""Learning through the channel, and mechanisms at equal recovery."""

from __future__ import annotations

import catalogue
import numpy as np
import pytest
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.evaluation import compare
from textpriv.evaluation.best_attacker import BestAttacker
from textpriv.evaluation.comparison import CLEAR, COMMON_ONLY, Documents, Task, interval
from textpriv.evaluation.learning import ChannelNB
from textpriv.index import Index
from textpriv.language import NGrams
from textpriv.mechanisms import TEM, find_mechanism, registry
from textpriv.vocabulary import Vocabulary

SIZE, LENGTH = 60, 25


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(0).normal(size=(SIZE, 4))
    return Index.build(Vocabulary([f"w{i}" for i in range(SIZE)], vectors), "euclidean", k=30)


def made(index, count: int, seed: int) -> Documents:
    """Documents of two classes that prefer other words, with the same neighbours."""
    rng = np.random.default_rng(seed)
    prior = index.vocabulary.prior_weights("zipf")
    labels = np.arange(count) % 2
    tilt = np.where(np.random.default_rng(9).random(SIZE) < 0.5, 3.0, 1.0)
    laws = np.stack([prior * tilt, prior / tilt])
    laws /= laws.sum(axis=1, keepdims=True)
    ids = np.stack([rng.choice(SIZE, LENGTH, p=laws[label]) for label in labels])
    offsets = np.arange(0, count * LENGTH + 1, LENGTH)
    return Documents(ids.astype(np.int32).ravel(), offsets, np.array(["a", "b"])[labels])


@pytest.fixture(scope="module")
def task(index):
    model = NGrams.from_ids(made(index, 50, 3).ids, np.array([0, 50 * LENGTH]), SIZE)
    return Task(made(index, 400, 1), made(index, 400, 2), model)


def test_the_channel_learner_finds_the_words_before_privatization(index):
    documents, mechanism = made(index, 4000, 5), TEM(index, 4.0)
    private = mechanism.sample(documents.ids, np.random.default_rng(0))
    model = ChannelNB(mechanism, smoothing=1e-4, iterations=300)
    model.fit(documents.counts(SIZE, private), documents.labels)
    for law, name in zip(model.words_, model.classes_, strict=True):
        rows = np.repeat(documents.labels == name, LENGTH)
        clear = np.bincount(documents.ids[rows], minlength=SIZE) / rows.sum()
        seen = np.bincount(private[rows], minlength=SIZE) / rows.sum()
        assert np.abs(law - clear).sum() < 0.5 * np.abs(seen - clear).sum()


def test_the_channel_learner_classifies_clear_text(index, task):
    mechanism = TEM(index, 4.0)
    drawn = mechanism.sample(task.train.ids, np.random.default_rng(0))
    counts = task.train.counts(SIZE, drawn)
    model = ChannelNB(mechanism).fit(counts, task.train.labels)
    assert model.score(task.test.counts(SIZE), task.test.labels) > 0.8
    with pytest.raises(TextprivError, match="400 documents and 9 classes"):
        model.fit(counts, task.train.labels[:9])


def test_mechanisms_are_compared_at_the_recovery_that_was_asked_for(index, task):
    attacker = BestAttacker(index.vocabulary.prior_weights("zipf"), common=5)
    mechanisms = {"zipf": TEM(index, 1.0), "flat": TEM(index, 9.0, prior="uniform")}
    found = compare(mechanisms, task, recovery=(0.3, 0.6), attacker=attacker, draws=2, channel=True)
    assert found["mechanism"].tolist() == [CLEAR, COMMON_ONLY, "zipf", "zipf", "flat", "flat"]
    rows = found.iloc[2:]
    assert_allclose(rows["alone"], rows["asked"], rtol=0.01)
    assert (rows["alone"] <= rows["asked"]).all()
    assert (rows["low"] <= rows["accuracy"]).all()
    assert (rows["accuracy"] <= rows["high"]).all()
    zipf = rows[rows["mechanism"] == "zipf"]
    assert zipf["kept"].is_monotonic_increasing
    assert zipf["cosine"].is_monotonic_increasing
    assert (rows["channel"] > 0.5).all()
    assert found["accuracy"][0] > rows["accuracy"].max() - 0.05
    pytest.importorskip("matplotlib")
    assert len(found.plot().lines) == 4
    # A recovery out of reach is an empty row.
    assert np.isnan(compare([TEM(index, 1.0)], task, recovery=(1e-6,)).iloc[2]["epsilon"])


def test_an_own_mechanism_is_compared_by_its_registered_name(index, task):
    name = "mine.Flat.v1"
    registry.register(name, func=lambda epsilon: lambda index: TEM(index, epsilon, prior="uniform"))
    try:
        named = {name: find_mechanism(name)(epsilon=1.0)(index), "flat": TEM(index, 1.0, "uniform")}
        own, flat = (
            row for _, row in compare(named, task, recovery=(0.4,), draws=1)[2:].iterrows()
        )
    finally:
        del catalogue.REGISTRY[(*registry.namespace, name)]
    assert own["mechanism"] == name
    assert own["epsilon"] == flat["epsilon"]
    assert own["alone"] == pytest.approx(0.4, rel=0.01)


def test_documents_are_read_without_symbols(index):
    read = Documents.read(["w1, w2!", "", "w3 zzz"], [0, 1, 0], index.vocabulary)
    assert read.ids.tolist() == [1, 2, 3, -1]
    assert read.offsets.tolist() == [0, 2, 2, 4]


def test_an_interval_covers_draws_and_documents():
    rng = np.random.default_rng(1)
    right = rng.random((5, 400)) < 0.8
    found = interval(right)
    assert found["low"] < found["accuracy"] == right.mean() < found["high"]
    assert 0.01 < found["high"] - found["low"] < 0.08
