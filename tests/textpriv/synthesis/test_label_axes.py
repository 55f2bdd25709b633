"""Axes learned from labels: they follow from the release, add up with the words, and set recovery in their domain."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import spacy
from damage import break_copy
from scipy.stats import norm
from small_synthesis import WORDS, Drawn, Till, public, transcript

import textpriv
from textpriv import TEM, Index, LabelAxes, TextprivError, certify, epsilon_for
from textpriv.errors import IndexFolderError, MechanismError
from textpriv.guarantees.epsilon import choose, choose_epsilon
from textpriv.statement import at_most
from textpriv.synthesis import generator
from textpriv.web.report import report_page

DELTA = 1e-5
CLASSES = ["neg", "pos"]
TEXTS = [
    "the film was good",
    "good music",
    "a fine actor",
    "the plot was bad",
    "a dull story",
    "bad",
]
LABELS = ["pos"] * 3 + ["neg"] * 3


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(generator, "_MATCHED", 40)
    monkeypatch.setattr("textpriv.guarantees.epsilon.cache_folder", lambda: tmp_path / "records")
    monkeypatch.setattr("textpriv.evaluation.best_attacker._READ", 500)


def learned(epsilon=8.0, texts=TEXTS, labels=LABELS, past=None, **settings):
    """Fit axes; return them and the releases that were made."""
    side = public()
    axes = LabelAxes(
        epsilon,
        DELTA,
        settings.pop("classes", CLASSES),
        index=side.index,
        model=side.model,
        **settings,
    )
    with transcript(past) as seen:
        axes.fit(texts, labels)
    return axes.axes_, seen


@cache
def index_with(epsilon=8.0, times=300):
    side = public()
    axes = LabelAxes(epsilon, DELTA, CLASSES, index=side.index, model=side.model)
    found = axes.fit(TEXTS * times, LABELS * times).axes_
    return Index.build(side.index.vocabulary, axes=found, k=4, model=side.model)


def plain():
    return Index.build(public().index.vocabulary, k=4, model=public().model)


def test_words_of_other_labels_move_away():
    index, before = index_with(), plain()
    apart = {pair: index.distance(*pair) / before.distance(*pair) for pair in PAIRS}
    assert apart["good", "bad"] > 1.2 * apart["good", "fine"]
    assert apart["good", "bad"] > 1.2 * apart["bad", "dull"]


PAIRS = [("good", "bad"), ("good", "fine"), ("bad", "dull")]


def test_axes_follow_from_the_release_alone():
    axes, past = learned()
    other, _ = learned(texts=["a fine plot"] * 6, past=past)
    assert axes.digest == other.digest
    changed = [replace(each, output=each.output + 5) for each in past]
    assert learned(past=changed)[0].digest != axes.digest


def test_metric_and_words_keep_the_joint_bound():
    # All that a coarse release makes of two sums, and the word that is drawn under each metric.
    epsilon, rate, pair = 1.0, 0.05, ("good", "bad")
    (axes, first), (_, second) = (learned(epsilon, [word, *TEXTS[1:]]) for word in pair)
    before, after = (np.array(each[-1].value) for each in (first, second))
    at, plan = np.flatnonzero(before != after), first[-1].plan
    assert len(at) == 2
    middles = [np.linspace(-1.5, 1.5, 4) * plan.sigma + before[each] for each in at]
    outcomes = []
    for cells in np.ndindex(4, 4):
        output = before.copy()
        output[at] = [middle[cell] for middle, cell in zip(middles, cells, strict=True)]
        past = [first[0], Drawn(plan, before, output)]
        found = learned(epsilon, past=past)[0]
        mechanism = TEM(Index.build(public().index.vocabulary, axes=found), rate)
        laws = [np.exp(mechanism.log_prob(word)) for word in pair]
        outcomes.append((cells, laws, rate * mechanism.index.distance(*pair)))

    def excess(sigma):
        chances = [
            [
                cell_probabilities(middle, value[each], sigma)
                for middle, each in zip(middles, at, strict=True)
            ]
            for value in (before, after)
        ]
        total = 0.0
        for (row, column), laws, loss in outcomes:
            one, two = (
                own[0][row] * own[1][column] * law for own, law in zip(chances, laws, strict=True)
            )
            total += np.maximum(one - math.exp(axes.changed + loss) * two, 0).sum()
        return total

    assert excess(plan.sigma) <= DELTA
    assert excess(plan.sigma / 10) > 0.01


def cell_probabilities(middles, value, sigma):
    """Return the probability of each of some middles that a noisy value is nearest to it."""
    edges = [-np.inf, *(middles[1:] + middles[:-1]) / 2, np.inf]
    return np.diff(norm.cdf(edges, value, sigma))


def test_loss_of_the_metric_is_that_of_a_replaced_record():
    axes, _ = learned(1.0)
    side = public()
    same = textpriv.TextSynthesizer(1.0, DELTA, CLASSES, index=side.index, model=side.model)
    assert f"exp({at_most(axes.changed, 3)})" in same.fit(TEXTS, LABELS).statement_.notes[0]
    assert axes.changed > axes.epsilon == 1.0


def test_a_fit_is_charged_once():
    till = Till()
    learned(budget=till)
    assert [each["unit"] for each in till.charges] == ["one record"]


def test_saved_sums_give_the_same_axes(tmp_path):
    side = public()
    made = LabelAxes(2.0, DELTA, CLASSES, index=side.index, model=side.model).fit(TEXTS, LABELS)
    made.save(tmp_path / "sums")
    again = LabelAxes.load(tmp_path / "sums", index=side.index, model=side.model)
    assert again.axes_.digest == made.axes_.digest


def test_one_class_has_no_axes():
    with pytest.raises(TextprivError, match="two or more"):
        learned(labels=["pos"] * 6, classes=["pos"])


def test_recovery_is_that_of_the_words_of_the_domain():
    index = index_with()
    chosen = choose_epsilon(index, recovery=0.5)
    mechanism = TEM(index, chosen.epsilon)
    law = np.exp([mechanism.log_prob(word) for word in WORDS])
    for prior, share in (
        (index.axes.frequency, chosen.value),
        (index.vocabulary.prior_weights("zipf"), chosen.general),
    ):
        written = prior * index.vocabulary.is_content
        own = (law * written[:, None]).max(axis=0).sum() / written.sum()
        assert share == pytest.approx(own, rel=1e-5)
    assert 0.49 < chosen.value <= 0.5
    assert epsilon_for(index, recovery=0.5) == chosen.epsilon


def test_frequencies_are_those_of_the_texts():
    frequency = dict(zip(WORDS, index_with(50.0).axes.frequency, strict=True))
    assert frequency["good"] > 2 * frequency["fine"]
    assert sum(frequency.values()) == pytest.approx(1.0)


def test_a_saved_index_keeps_its_axes(tmp_path):
    index = index_with()
    index.save(tmp_path / "own.idx")
    again = Index.load(tmp_path / "own.idx")
    assert again.fingerprint == index.fingerprint
    assert again.axes.digest == index.axes.digest


@pytest.mark.parametrize(
    "change", [{"unit": "nobody"}, {"epsilon": 1e-3}, {"labels": ["neg"]}, None]
)
def test_altered_axes_of_a_folder_are_refused(tmp_path, change):
    index_with().save(tmp_path / "own.idx")

    def alter(folder, meta):
        meta["axes"] = change if change is None else {**meta["axes"], **change}

    break_copy(tmp_path / "own.idx", tmp_path / "altered.idx", alter)
    with pytest.raises(IndexFolderError, match="build the index again"):
        Index.load(tmp_path / "altered.idx")


def test_axes_suit_only_their_words_and_space():
    axes, vocabulary = index_with().axes, public().index.vocabulary
    for words, space in ((vocabulary, "euclidean"), (vocabulary.without(["good"]), "recommended")):
        with pytest.raises(TextprivError, match="Axes suit only"):
            Index.build(words, space, axes=axes)
    with pytest.raises(TextprivError, match="LabelAxes"):
        replace(axes, frequency=axes.frequency * 2)


def test_the_statement_says_how_metric_and_words_add_up():
    statement = TEM(index_with(1.0, 10), 2.0).statement
    text = str(statement).replace("\n" + " " * 15, " ")
    assert "reach the metric only by noisy sums, with epsilon 1 and delta 1e-05" in text
    assert "metric and words together are at most exp(1.4" in text
    assert "the label of a text (neg, pos)" in text
    assert "axes" not in str(TEM(plain(), 2.0).statement)


def test_axes_without_noise_ask_for_public_texts():
    statement = TEM(index_with(math.inf, 10), 2.0).statement
    assert "axes of the metric were learned are public" in " ".join(str(statement).split())


def test_certificates_and_comparisons_take_axes():
    index = index_with()
    certificate = certify(TEM(index, 2.0))
    assert certificate.holds
    assert certificate.exact
    assert choose(index, recovery=0.5).best.recovered <= 0.5
    with pytest.raises(MechanismError, match="same axes"):
        choose({"own": index, "plain": plain()}, recovery=0.5)


def test_reports_and_components_take_axes(tmp_path):
    index_with().save(tmp_path / "own.idx")
    config = {
        "index": str(tmp_path / "own.idx"),
        "mechanism": {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 2.0},
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config=config)
    doc = nlp("The film was good.")
    assert {token.lower_ for token in doc if token.is_alpha} <= set(WORDS)
    private = textpriv.Privatizer(TEM(index_with(), 2.0))
    assert "the label of a text" in report_page(private)
