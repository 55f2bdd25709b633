"""Learning through the channel, and mechanisms at equal recovery."""

from __future__ import annotations

import math

import catalogue
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import textpriv
from textpriv import TEM, ContextualTEM, TreeTEM
from textpriv.evaluation import compare
from textpriv.evaluation.best_attacker import BestAttacker
from textpriv.evaluation.comparison import CLEAR, FUNCTION_ONLY, Documents, Task, interval
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.evaluation.learning import ChannelClassifier, _Originals
from textpriv.index import Index, Tree
from textpriv.language import NGrams
from textpriv.mechanisms import find_mechanism, registry
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
    return Task(made(index, 400, 1), made(index, 400, 2))


def test_the_channel_classifier_finds_the_words_before_privatization(index):
    documents, mechanism = made(index, 4000, 5), TEM(index, 4.0)
    private = mechanism.sample(documents.ids, np.random.default_rng(0))
    model = ChannelClassifier(mechanism, C=1.0).fit(
        documents.counts(SIZE, private), documents.labels
    )
    clear, seen = (np.bincount(ids, minlength=SIZE) / len(ids) for ids in (documents.ids, private))
    assert np.abs(model.words_ - clear).sum() < 0.25 * np.abs(seen - clear).sum()


def test_the_channel_classifier_counts_no_masks(index):
    texts = ["w1 w2 w2"] * 10 + ["w3 [W1] w4"] * 10
    model = ChannelClassifier(TEM(index, 4.0), C=1.0).fit(texts, [0, 1] * 10)
    plain = ChannelClassifier(TEM(index, 4.0), C=1.0).fit(
        [text.replace("[W1] ", "") for text in texts], [0, 1] * 10
    )
    assert np.array_equal(model.words_, plain.words_)


def test_the_channel_classifier_gives_probabilities(index, task):
    model = ChannelClassifier(TEM(index, 4.0), C=1.0).fit(
        task.train.counts(SIZE), task.train.labels
    )
    counts = task.test.counts(SIZE)
    found = model.predict_proba(counts)
    assert_allclose(found.sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[found.argmax(axis=1)], model.predict(counts))


def test_the_channel_classifier_is_scored_as_others_are(index, task):
    counts, good = task.train.counts(SIZE), task.train.labels == "b"
    model = ChannelClassifier(TEM(index, 4.0), C=1.0)
    assert cross_val_score(model, counts, good, scoring="roc_auc", cv=2).min() > 0.8
    with pytest.raises(NotFittedError):
        model.predict(counts)
    third = np.where(np.arange(len(good)) % 3, good, 2)
    assert model.fit(counts, third).decision_function(counts).shape == (len(good), 3)


TWO = ["w1", "w2"]


@pytest.mark.parametrize(
    ("message", "texts", "labels", "weights", "cost"),
    [
        ("list of texts", "w1 w2", [0, 1], None, 1.0),
        ("list of texts", pd.DataFrame({"text": TWO}), [0, 1], None, 1.0),
        ("no texts", ["w1", None], [0, 1], None, 1.0),
        ("no label", TWO, ["a", None], None, 1.0),
        ("no label", TWO, [0.0, math.nan], None, 1.0),
        ("no label", TWO, pd.Series([1, pd.NA], dtype="Int64"), None, 1.0),
        ("at least 2 classes", TWO, [1, 1], None, 1.0),
        ("inconsistent numbers", TWO, [0, 1, 1], None, 1.0),
        ("inconsistent numbers", TWO, [0, 1], [1.0], 1.0),
        ("0 or more", TWO, [0, 1], [1.0, -1.0], 1.0),
        ("0 or more", TWO, [0, 1], [1.0, math.nan], 1.0),
        ("above 0", TWO, [0, 1], None, -1.0),
    ],
)
def test_the_channel_classifier_refuses_what_it_cannot_learn_from(
    index, message, texts, labels, weights, cost
):
    with pytest.raises(ValueError, match=message):
        ChannelClassifier(TEM(index, 4.0), C=cost).fit(texts, labels, sample_weight=weights)


def test_the_channel_classifier_reads_labels_of_a_column(index, task):
    counts, labels = task.train.counts(SIZE), task.train.labels
    model = ChannelClassifier(TEM(index, 4.0), C=1.0)
    with pytest.warns(DataConversionWarning):
        found = model.fit(counts, labels[:, None]).predict(counts)
    assert np.array_equal(found, model.fit(counts, labels).predict(counts))


def test_the_channel_classifier_reads_a_weight_of_two_as_a_copy(index, task):
    counts, labels = task.train.counts(SIZE)[:60], task.train.labels[:60]
    times = np.arange(60) % 3
    model, copies = (ChannelClassifier(TEM(index, 4.0), C=1.0) for _ in range(2))
    model.fit(counts, labels, sample_weight=times)
    copies.fit(counts[np.repeat(np.arange(60), times)], np.repeat(labels, times))
    assert_allclose(model.words_, copies.words_)
    assert_allclose(model.coef_, copies.coef_, atol=1e-4 * np.abs(copies.coef_).max())


def test_clones_of_a_channel_classifier_list_the_outputs_once(index, monkeypatch):
    passes, parts = [], OutputDistribution._parts

    def counted(self, count):
        passes.append(self.mechanism.epsilon)
        return parts(self, count)

    monkeypatch.setattr(OutputDistribution, "_parts", counted)
    for epsilon in (3.5, 4.5):
        model = ChannelClassifier(TEM(index, epsilon), C=1.0)
        for own in (model, clone(model)):
            own.fit(["w1", "w2"], [0, 1])
    assert passes == [3.5, 4.5]


@pytest.mark.parametrize("most", [SIZE, 10])
def test_originals_follow_from_bayes_rule(index, most, monkeypatch):
    law, outputs = (
        OutputDistribution(TEM(index, 4.0)),
        np.random.default_rng(1).uniform(10, 20, SIZE),
    )
    monkeypatch.setattr("textpriv.evaluation.distribution._LISTED", most)
    originals = _Originals(law, outputs)
    found = originals.matmat(np.eye(SIZE))
    assert_allclose(originals.rmatmat(np.eye(SIZE)), found.T, atol=1e-12)
    found /= originals.scale.T
    assert_allclose(found.sum(axis=1), 1.0)
    joint = originals.words[:, None] * law.rows(np.arange(SIZE))
    error = np.abs(found - (joint / joint.sum(axis=0)).T).sum(axis=1)
    assert error.mean() < (1e-4 if most == SIZE else 0.25)


def test_the_channel_classifier_reads_clear_text_better_than_one_on_private_words(index, task):
    mechanism, better = TEM(index, 1.0), []
    for seed in range(4):
        drawn = mechanism.sample(task.train.ids, np.random.default_rng(seed))
        counts = task.train.counts(SIZE, drawn)
        models = ChannelClassifier(mechanism), LogisticRegression(max_iter=1000)
        clear = task.test.counts(SIZE), task.test.labels
        right, plain = (model.fit(counts, task.train.labels).score(*clear) for model in models)
        better.append(right - plain)
    assert np.mean(better) > 0.02


def test_the_channel_classifier_learns_from_words_drawn_in_context(index, task):
    model = NGrams.from_ids(made(index, 50, 3).ids, np.array([0, 50 * LENGTH]), SIZE)
    mechanism = ContextualTEM(index, 1.0, model)
    drawn = mechanism.sample(task.train.ids, np.random.default_rng(0))
    model = ChannelClassifier(mechanism).fit(task.train.counts(SIZE, drawn), task.train.labels)
    clear, seen = (np.bincount(ids, minlength=SIZE) / len(ids) for ids in (task.train.ids, drawn))
    assert np.abs(model.words_ - clear).sum() < 0.75 * np.abs(seen - clear).sum()
    assert model.score(task.test.counts(SIZE), task.test.labels) > 0.8


def test_mechanisms_are_compared_at_the_recovery_that_was_asked_for(index, task):
    attacker = BestAttacker(
        index.vocabulary.prior_weights("zipf"), is_content=index.vocabulary.is_content
    )
    mechanisms = {"zipf": TEM(index, 1.0), "flat": TEM(index, 9.0, prior="uniform")}
    found = compare(mechanisms, task, recovery=(0.3, 0.6), attacker=attacker, draws=2, channel=True)
    assert found["mechanism"].tolist() == [CLEAR, FUNCTION_ONLY, "zipf", "zipf", "flat", "flat"]
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


def test_a_mechanism_that_reads_its_context_is_compared_by_both_attackers(index, task):
    english = textpriv.Index.builtin("en").vocabulary.words[:SIZE]
    own = Index.build(Vocabulary(english, index.vocabulary.vectors), "euclidean", k=30)
    found = compare({"context": ContextualTEM(own, 1.0)}, task, recovery=(0.3,), draws=1)
    row = found.iloc[2]
    assert max(row["alone"], row["context"]) == pytest.approx(0.3, rel=0.1)


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


def test_levels_of_a_tree_are_compared_scaled_alike(task):
    words = Vocabulary(
        [f"w{i}" for i in range(SIZE)], np.random.default_rng(0).normal(size=(SIZE, 4))
    )
    tree = Tree.build(words, groups={"kind": 12})
    names = dict.fromkeys(tree.names, 0)
    odds = {name: 3.0 * 10**at for at, name in enumerate(names)}
    found = compare({"levels": TreeTEM(tree, levels=odds)}, task, recovery=(0.2,), draws=1)
    row = found[found["mechanism"] == "levels"].iloc[0]
    assert row["alone"] == pytest.approx(0.2, rel=0.01)
