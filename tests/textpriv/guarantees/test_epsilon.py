"""Epsilon from odds, from the share of words that stay and from recovery; and the comparison at equal recovery."""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import textpriv
from textpriv import TEM, ContextualTEM, Madlib, TreeTEM
from textpriv.errors import MechanismError, TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, attackers_in_words, sampled_text
from textpriv.evaluation.recovery import content_prior, word_recovery
from textpriv.guarantees.epsilon import (
    choose,
    choose_epsilon,
    epsilon_for,
    keep_share,
)
from textpriv.index import Index, Tree
from textpriv.language.general_english import general_english
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder of records that no earlier run wrote."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(autouse=True)
def _own_records(records, monkeypatch):
    monkeypatch.setattr("textpriv.guarantees.epsilon.cache_folder", lambda: records)
    monkeypatch.setattr("textpriv.evaluation.best_attacker._READ", 1_000)


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(30, 20, 4, 1.5), k=32)


@pytest.fixture(scope="module")
def tree(index):
    return Tree.build(index.vocabulary, space="euclidean")


@pytest.mark.parametrize("odds", [1.5, 20.0, 1e6])
def test_no_mechanism_exceeds_the_odds_asked_for(index, tree, odds):
    epsilon = epsilon_for(index, odds=odds)
    for mechanism in (TEM(index, epsilon), Madlib(index, epsilon, "exact")):
        loss = mechanism.statement.loss_at(index.reference_distance)
        assert math.log(odds) * (1 - 1e-6) <= loss <= math.log(odds)
    for distance in (index.reference_distance_90, 0.5):
        loss = TEM(index, epsilon_for(index, odds=odds, distance=distance)).statement.loss_at(
            distance
        )
        assert loss <= math.log(odds)
    mechanism = TreeTEM(tree, epsilon_for(tree, odds=odds))
    assert mechanism.statement.loss_at(tree.reference_distance) <= math.log(odds)


def keep_by_hand(mechanism, weights) -> float:
    laws = [math.exp(mechanism.log_prob(word)[word]) for word in range(len(weights))]
    return float(np.dot(laws, weights))


@pytest.mark.parametrize("wanted", [0.2, 0.5, 0.9])
def test_words_stay_as_often_as_asked(index_of, clustered_points, wanted):
    small = index_of(clustered_points(12, 20, 4, 1.5), k=32)  # all words are looked at
    weights = small.vocabulary.prior_weights("zipf")
    for settings in ({}, {"prior": "uniform"}, {"gamma": 2.0}):
        epsilon = epsilon_for(small, keep=wanted, **settings)
        assert keep_by_hand(TEM(small, epsilon, **settings), weights) == pytest.approx(
            wanted, abs=1e-5
        )


def test_a_share_over_a_sample_is_known_to_its_error(index):
    weights = index.vocabulary.prior_weights("zipf")
    mechanism = TEM(index, 3.0)
    share, error = keep_share(mechanism, 200)
    assert 0 < error < 0.05
    assert abs(share - keep_by_hand(mechanism, weights)) <= 6 * error


def recovered_of(mechanism, of: str) -> float:
    """The share of words that the likeliest word of each output is."""
    prior = mechanism.index.word_frequency
    if of == "content":
        prior = content_prior(prior, mechanism.index.vocabulary.is_content)
    laws = np.exp([mechanism.log_prob(word) for word in range(len(prior))])
    return float((prior[:, None] * laws).max(axis=0).sum())


@pytest.mark.parametrize("of", ["content", "all"])
def test_the_attacker_recovers_no_more_than_asked(index, tree, of):
    found = choose_epsilon(index, recovery=0.3, of=of)
    for epsilon, most in ((found.epsilon, True), (found.epsilon * 1.002, False)):
        assert (recovered_of(TEM(index, epsilon), of) <= 0.3) == most
    over_tree = epsilon_for(tree, recovery=0.4, of=of, prior="zipf")
    assert recovered_of(TreeTEM(tree, over_tree, prior="zipf"), of) <= 0.4


def test_an_answer_is_kept_for_just_this_question(index, monkeypatch):
    first = choose_epsilon(index, recovery=0.33)
    monkeypatch.setattr("textpriv.guarantees.epsilon.largest_epsilon", None)
    assert choose_epsilon(index, recovery=0.33) == first
    for other in ({"of": "all"}, {"prior": "zipf"}):
        with pytest.raises(TypeError):
            choose_epsilon(index, recovery=0.33, **other)


def test_a_long_search_is_announced_and_a_kept_answer_is_not(index, records, monkeypatch):
    monkeypatch.setattr("textpriv.guarantees.epsilon._LARGE", len(index))
    with pytest.warns(UserWarning, match=f"about a minute. It is kept in {records}"):
        choose_epsilon(index, recovery=0.36)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose_epsilon(index, recovery=0.36)
        choose_epsilon(index, keep=0.5)


def test_a_damaged_record_is_computed_again(index, records):
    first = choose_epsilon(index, recovery=0.34)
    (file,) = (
        each
        for each in (records / "epsilons").iterdir()
        if json.loads(each.read_text())["content"]["wanted"] == 0.34
    )
    file.write_text(file.read_text().replace("chosen epsilon", "something"))
    with pytest.warns(UserWarning, match="damaged"):
        assert choose_epsilon(index, recovery=0.34) == first


def test_an_epsilon_is_found_again_by_what_the_index_holds(index, tmp_path, monkeypatch):
    first = choose_epsilon(index, recovery=0.35)
    index.save(tmp_path / "small.idx")
    monkeypatch.setattr("textpriv.guarantees.epsilon.largest_epsilon", None)
    assert choose_epsilon(Index.load(tmp_path / "small.idx"), recovery=0.35) == first


@pytest.fixture(scope="module")
def english() -> Index:
    """The 800 commonest English words."""
    words = Vocabulary.builtin("en")
    return Index.build(
        Vocabulary(words.words[:800], words.vectors[:800], language="en"), "euclidean", k=32
    )


def test_an_estimated_recovery_is_below_the_wanted_by_its_error(english, monkeypatch):
    found = choose_epsilon(english, recovery=0.3, mechanism="contextual")
    mechanism, model = (
        ContextualTEM(english, found.epsilon),
        general_english(english.vocabulary.words),
    )
    searched, shown = (
        BestAttacker(
            english.vocabulary.prior_weights("zipf"),
            text=text,
            is_content=english.vocabulary.is_content,
        ).alone(mechanism)
        for text in (sampled_text(model), sampled_text(model, 1_000, seed=1))
    )
    assert 0.2 < searched[0] < searched[0] + 1.96 * searched[1] <= 0.3
    assert shown == (found.value, found.standard_error)  # not the words that were searched on
    monkeypatch.setattr("textpriv.guarantees.epsilon.largest_epsilon", None)
    assert choose_epsilon(english, recovery=0.3, mechanism="contextual") == found


def repeated(index, epsilon: float, words: int) -> float:
    """The share of content words that come out as they are, of words that the model of general English wrote."""
    text = sampled_text(general_english(index.vocabulary.words), words, seed=2)
    content = index.vocabulary.is_content[text.ids]
    stream = KeyedStreams(seed=1).stream("repeated")
    out = ContextualTEM(index, epsilon).sample_documents(text.ids, text.offsets, [stream])
    return float((out == text.ids)[content & (text.ids >= 0)].mean())


@pytest.mark.parametrize("wanted", [0.05, 0.1, 0.2])
def test_who_repeats_words_recovers_no_more_than_recorded(wanted):
    index = Index.builtin("en")
    found = choose_epsilon(index, recovery=wanted, mechanism="contextual")
    # Some 1,800 content words; six deviations of both estimates.
    most = found.value + 6 * math.hypot(found.standard_error, math.sqrt(wanted / 1_800))
    assert repeated(index, found.epsilon, 6_000) <= most


def test_both_attackers_are_said_with_their_intervals():
    told = attackers_in_words((0.0998, 0.0), (0.22, 0.01))
    assert "word by word recovers 10.0% of content words" in told
    assert "A reader of whole texts: 22.0% (20.0 to 24.0%)" in told
    assert "may recover more" in told
    alone = attackers_in_words((0.09, 0.01), None)
    assert "9.0% (7.0 to 11.0%)" in alone
    assert "textpriv choose --context FILE" in alone


def test_the_reader_of_whole_texts_is_tried_where_the_model_fits(english, index):
    found = choose_epsilon(english, recovery=0.3)
    vocabulary = english.vocabulary
    attacker = BestAttacker(vocabulary.prior_weights("zipf"), is_content=vocabulary.is_content)
    whole = attacker.reader(TEM(english, found.epsilon))
    assert found.rates == ((found.value, 0.0), whole)
    assert whole is not None
    assert choose_epsilon(index, recovery=0.3).reader is None


def test_figures_of_the_pages_are_those_of_the_records():
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools/make_builtin_vocabulary.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for page in tool.PAGES:
        text = page.read_text(encoding="utf-8")
        assert tool.filled(text) == text, page.name
        assert "| word by word, % | whole texts, % |" in text


def test_recorded_epsilons_of_the_built_in_index_hold(monkeypatch):
    index = Index.builtin("en")
    monkeypatch.setattr("textpriv.guarantees.epsilon.largest_epsilon", None)
    found = [choose_epsilon(index, recovery=each) for each in (0.05, 0.1, 0.2)]
    assert [each.epsilon for each in found] == sorted({each.epsilon for each in found})
    for each in found:
        assert each.value < each.wanted
    zipf, is_content = index.vocabulary.prior_weights("zipf"), index.vocabulary.is_content
    exact = BestAttacker(zipf, is_content=is_content)
    assert 0.0995 < exact.alone(TEM(index, found[1].epsilon))[0] <= 0.1
    text = sampled_text(general_english(index.vocabulary.words), 1_000)
    contextual = choose_epsilon(index, recovery=0.1, mechanism="contextual")
    share, error = BestAttacker(zipf, text=text, is_content=is_content).alone(
        ContextualTEM(index, contextual.epsilon)
    )
    assert abs(share - contextual.value) < 6 * error  # other draws: false alarms below 1e-6
    compared = textpriv.choose(recovery=0.1).candidates
    assert {(each.mechanism, each.prior) for each in compared} == {
        ("tem", "uniform"),
        ("tem", "zipf"),
    }
    assert textpriv.choose(recovery=0.1).best.command == (
        f"textpriv privatize IN OUT --epsilon {found[1].epsilon:g}"
    )


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"keep": 0.5, "odds": 20},
        {"keep": 1.5},
        {"keep": 0},
        {"odds": 1.0},
        {"odds": 20, "distance": 0.0},
        {"odds": 1 + 1e-12},
        {"recovery": -0.1},
        {"recovery": 1.2},
        {"keep": 1e-9, "prior": "uniform"},
    ],
)
def test_a_target_without_meaning_is_refused(index, wanted):
    with pytest.raises(TextprivError):
        epsilon_for(index, **wanted)


# The comparison at equal recovery


def test_candidates_recover_no_more_and_the_default_is_first(index, tree):
    found = choose({"a": index, "b": tree}, recovery=0.3)
    assert {each.index for each in found.candidates} == {"a", "b"}
    assert all(each.recovered <= 0.3 for each in found.candidates)
    order = [(not each.is_default, each.distance) for each in found.candidates]
    assert order == sorted(order)
    assert {each.prior for each in found.candidates[:2]} == {"uniform", "full"}
    for each in found.candidates:
        made = (TEM if each.index == "a" else TreeTEM)(
            {"a": index, "b": tree}[each.index], each.epsilon, prior=each.prior
        )
        assert word_recovery(made).content <= 0.3
    assert found.best.command.startswith("textpriv privatize IN OUT --index ")
    assert f"--epsilon {found.best.epsilon:g}" in found.best.command
    assert found.to_dict()["command"] == found.best.command


def test_a_candidate_keeps_what_it_says(index):
    best = next(each for each in choose(index, recovery=0.3).candidates if each.prior == "zipf")
    weights = index.vocabulary.prior_weights("zipf")
    mechanism = TEM(index, best.epsilon, prior="zipf")
    laws = np.exp([mechanism.log_prob(word) for word in range(len(index))])
    apart = index.distances_of(np.arange(len(index)))
    expected = weights @ (laws * apart).sum(axis=1) / (weights @ apart @ weights)
    assert best.kept == pytest.approx(weights @ np.diagonal(laws), abs=0.02)
    assert best.distance == pytest.approx(expected, abs=0.02)


def test_a_protection_out_of_reach_is_refused_with_reasons(index):
    with pytest.raises(MechanismError, match="no mechanism gives this protection"):
        choose(index, recovery=1e-6)


def test_indexes_of_other_words_do_not_compare(index):
    vectors = np.random.default_rng(0).normal(size=(30, 3))
    other = Index.build(Vocabulary([f"x{i}" for i in range(30)], vectors), "euclidean")
    with pytest.raises(MechanismError, match="other words"):
        choose({"a": index, "b": other}, recovery=0.3)


def test_the_package_offers_these_names():
    assert textpriv.epsilon_for is epsilon_for
    assert textpriv.choose is choose
