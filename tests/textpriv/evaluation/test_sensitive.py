"""Names: what a statement says of them, and how often they stay and are guessed, against a full table of the law."""

from __future__ import annotations

import re

import numpy as np
import pytest

import textpriv
from textpriv.evaluation.sensitive import exposure
from textpriv.index import Index
from textpriv.mechanisms import TEM, Madlib
from textpriv.vocabulary import Vocabulary
from textpriv.vocabulary.sensitive_words import LISTS, words_in

WORDS = [
    "the",
    "of",
    "a",
    "to",
    "in",
    "john",
    "mary",
    "Smith",
    "asthma",
    "cancer",
    "film",
    "house",
    "dog",
    "rain",
]
NAMES = {"john", "mary"}


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(4).normal(size=(len(WORDS), 5))
    return Index.build(Vocabulary(WORDS, vectors, np.arange(len(WORDS), 0, -1.0)), k=6)


def law_of(mechanism):
    return np.exp([mechanism.log_prob(word) for word in range(len(WORDS))])


# The lists


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_a_hundred_different_words_in_lower_case(name):
    words = LISTS[name]
    assert len(words) == len(set(words)) == 100
    assert all(word.isalpha() and word == word.lower() for word in words)


def test_words_are_found_as_the_vocabulary_writes_them(index):
    found = {name: words_in(index.vocabulary, words) for name, words in LISTS.items()}
    assert found == {
        "first names": ["john", "mary"],
        "surnames": ["Smith"],
        "illnesses": ["cancer", "asthma"],
    }


# The statement


@pytest.mark.parametrize("make", [TEM])
def test_a_statement_says_that_names_stay_exactly_where_half_of_them_mostly_do(index, make):
    seen = set()
    for epsilon in (0.5, 2.0, 4.0, 8.0, 30.0):
        mechanism = make(index, epsilon)
        law = law_of(mechanism)
        keep = sorted(law[WORDS.index(name), WORDS.index(name)] for name in NAMES)
        lines = [line for line in mechanism.statement.not_protected if "first names" in line]
        assert bool(lines) == (keep[-1] > 0.5)
        seen.add(bool(lines))
        if lines:
            half, john = map(
                float, re.search(r"probability (\S+) or more .* with (\S+)\)", lines[0]).groups()
            )
            assert half <= keep[-1] < half * 1.01 + 1e-3
            assert john <= law[WORDS.index("john"), WORDS.index("john")]
            assert lines[0] in mechanism.statement.paragraph()
    assert seen == {True, False}


def test_no_law_is_computed_until_a_statement_is_asked_for(index, monkeypatch):
    asked = []
    own = TEM.log_prob
    monkeypatch.setattr(TEM, "log_prob", lambda self, word: asked.append(word) or own(self, word))
    privatizer = textpriv.Privatizer(TEM(index, 9.0))
    privatizer.privatize("john saw a film")
    assert not asked
    _ = privatizer.statement, privatizer.mechanism.statement, privatizer.mechanism.statement
    assert asked == [WORDS.index("john"), WORDS.index("mary")]


def test_what_a_statement_says_of_names_is_recorded_with_the_index(index, tmp_path, monkeypatch):
    index.save(tmp_path / "i.idx")
    said = TEM(Index.load(tmp_path / "i.idx"), 7.0).statement
    asked, other = [], []
    own = TEM.log_prob
    monkeypatch.setattr(TEM, "log_prob", lambda self, word: asked.append(word) or own(self, word))
    again = TEM(Index.load(tmp_path / "i.idx"), 7.0)
    assert again.statement == said
    assert asked == [WORDS.index("john")]
    # A mechanism under the same name whose law is another one is not taken for that of the record.
    monkeypatch.setattr(
        TEM, "log_prob", lambda self, word: other.append(word) or own(self, word) - 1
    )
    changed = TEM(Index.load(tmp_path / "i.idx"), 7.0).statement
    assert len(other) == 2
    assert changed.not_protected != said.not_protected


def test_a_mechanism_without_a_law_says_that_it_is_not_known(index):
    statement = Madlib(index, 50.0, search="exact").statement
    assert not any("first names" in line for line in statement.not_protected)
    assert any("first names" in note and "no closed law" in note for note in statement.notes)


def test_a_vocabulary_without_names_says_nothing_of_them(three_points):
    for mechanism in (TEM(three_points, 50.0), Madlib(three_points, 50.0)):
        assert "first names" not in mechanism.statement.paragraph()


# How often they stay, and are guessed


@pytest.mark.parametrize("make", [TEM])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_figures_are_those_of_the_law_and_of_the_best_guess(index, make, epsilon):
    mechanism = make(index, epsilon)
    law, prior = law_of(mechanism), index.vocabulary.prior_weights("counts")
    guess = (prior[:, None] * law).argmax(axis=0)
    for found in exposure(mechanism):
        ids = [WORDS.index(word) for word in found.words]
        assert found.keep == pytest.approx(law[ids, ids])
        assert found.guessed == pytest.approx([law[word, guess == word].sum() for word in ids])
        assert found.draws == 0


def test_no_other_guess_is_right_more_often_over_the_prior(index):
    mechanism = TEM(index, 3.0)
    everybody = {"all": tuple(WORDS)}
    (found,) = exposure(mechanism, everybody)
    order = [WORDS.index(word) for word in found.words]
    prior = index.vocabulary.prior_weights("counts")
    success = prior[order] @ found.guessed
    joint = prior[:, None] * law_of(mechanism)
    rng = np.random.default_rng(0)
    for _ in range(200):
        # Blind guesses, the output itself, and mixtures of the two.
        other = np.where(
            rng.random(len(WORDS)) < 0.5, np.arange(len(WORDS)), rng.integers(len(WORDS))
        )
        assert joint[other, np.arange(len(WORDS))].sum() <= success + 1e-7


def test_a_mechanism_without_a_law_is_drawn(index):
    found = {each.name: each for each in exposure(Madlib(index, 100.0, search="exact"))}
    names = found["first names"]
    assert names.draws > 0
    assert names.guessed is None
    assert names.words == ("john", "mary")
    assert ((names.keep >= 0) & (names.keep <= 1)).all()
    assert names.keep.min() > 0.5  # a mean noise of 0.05 at distances of 2 and more


def test_many_words_leave_the_attacker_out(index, monkeypatch):
    monkeypatch.setattr("textpriv.evaluation.sensitive._COMPARED_UP_TO", 5)
    assert all(each.guessed is None for each in exposure(TEM(index, 2.0)))
