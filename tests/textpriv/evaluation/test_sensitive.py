"""Names: how often they stay and are recovered, against a full table; and what a statement says of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from textpriv import TEM, Madlib
from textpriv.evaluation.recovery import can_compare, exposure
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary
from textpriv.vocabulary.builtin import LISTS, words_in

WORDS = "the of a to in john mary Smith asthma cancer film house dog rain".split()


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(4).normal(size=(len(WORDS), 5))
    return Index.build(Vocabulary(WORDS, vectors, np.arange(len(WORDS), 0, -1.0)), "euclidean", k=6)


def chances_of(mechanism):
    return np.exp([mechanism.log_prob(word) for word in range(len(WORDS))])


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_a_hundred_words_in_lower_case(name):
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


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_figures_are_those_of_a_full_table(index, epsilon, monkeypatch):
    mechanism = TEM(index, epsilon)
    law, prior = chances_of(mechanism), index.vocabulary.prior_weights("counts")
    guess = (prior[:, None] * law).argmax(axis=0)
    for found in exposure(mechanism, guess):
        ids = [WORDS.index(word) for word in found.words]
        assert found.keep == pytest.approx(law[ids, ids])
        assert found.guessed == pytest.approx([law[word, guess == word].sum() for word in ids])
        assert found.draws == 0
    assert can_compare(mechanism)
    monkeypatch.setattr("textpriv.evaluation.recovery._COMPARED", 5)
    assert not can_compare(mechanism)


def test_a_mechanism_without_a_distribution_is_drawn(index):
    names = exposure(Madlib(index, 100.0, search="exact"), None)[0]
    assert names.words == ("john", "mary")
    assert names.draws > 0
    assert names.guessed is None
    assert 0.5 < names.keep.min() <= names.keep.max() <= 1  # noise of 0.05 at distances above 2


def test_a_statement_says_how_often_names_stay(index):
    for epsilon in (0.5, 2.0, 4.0, 8.0, 30.0):
        mechanism = TEM(index, epsilon)
        keep = sorted(chances_of(mechanism)[at, at] for at in map(WORDS.index, ("john", "mary")))
        lines = [line for line in mechanism.statement.not_protected if "first names" in line]
        half = float(re.search(r"probability (\S+) or more", lines[0])[1])
        assert half <= keep[-1] < half * 1.1 + 1e-3
