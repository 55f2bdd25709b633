"""Function words: which list a language has, that an index keeps it, and that everything that speaks of it agrees."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import textpriv
from textpriv import TEM, Madlib, TreeTEM
from textpriv.errors import IndexFolderError, VocabularyError
from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon
from textpriv.evaluation.recovery import word_recovery
from textpriv.guarantees.certificate import certify
from textpriv.guarantees.epsilon import choose_epsilon
from textpriv.index import Index, Tree
from textpriv.mechanisms.pairs import stay_bounds
from textpriv.vocabulary import Vocabulary
from textpriv.web.report import report_page

TELLING = "police killed bank women iraq court monday school".split()
DOCS = Path(__file__).parents[3] / "docs"


def vocabulary(words, language=None, function_words=None) -> Vocabulary:
    vectors = np.random.default_rng(0).normal(size=(len(words), 4))
    return Vocabulary(words, vectors, language=language, function_words=function_words)


@pytest.fixture(scope="module")
def small() -> Index:
    words = ["the", "she", "Will", "will", "police", "bank", *(f"w{i}" for i in range(44))]
    return Index.build(vocabulary(words, "en"), k=16)


@pytest.fixture(scope="module")
def english() -> Index:
    return Index.builtin("en")


def test_english_function_words_are_of_closed_classes(english):
    listed = set(english.vocabulary.function_words.words)
    assert {"the", "she", "not", "n't", "'s", "will", "may", "ca", "without"} <= listed
    assert not listed & {*TELLING, "said", "million", "one", "amount", "name", "serious", "call"}


def test_german_takes_the_stop_words_of_spacy():
    found = vocabulary(["die", "haus", "und", "polizei"], "de").function_words
    assert found.words == ("die", "und")
    assert "spaCy's stop words of 'de'" in found.sentence


def test_a_language_without_a_list_names_its_commonest_words():
    words = [f"w{i}" for i in range(30)]
    for language in (None, "zz"):
        found = vocabulary(words, language).function_words
        assert found.words == ("w0", "w1", "w2")
        assert "no list of function words for this language" in found.sentence
        assert found.sentence.endswith("w0, w1, w2")


def test_a_list_of_ones_own_replaces_that_of_the_language(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("# without pronouns\nthe not\nwill\n")
    words = vocabulary(["the", "she", "Will", "police"], "en", file)
    assert words.function_words.words == ("the",)
    assert "the list own.txt" in words.function_words.sentence
    assert words.lowered().without(["the"]).function_words.words == ("will",)
    with pytest.raises(VocabularyError, match="no readable file"):
        vocabulary(["the"], "en", tmp_path / "none.txt")


@pytest.mark.parametrize("kind", [Index, Tree])
def test_an_index_keeps_its_function_words(kind, tmp_path):
    words = vocabulary(["a", "b", "c", "d", "e"], "en", ["b", "d"])
    built = kind.build(words)
    built.save(tmp_path / "idx")
    loaded = Index.load(tmp_path / "idx")
    assert loaded.vocabulary.function_words == words.function_words
    assert loaded.vocabulary.is_content.tolist() == [True, False, True, False, True]
    other = kind.build(vocabulary(words.words, "en", ["b", "e"]))
    assert loaded.fingerprint == built.fingerprint != other.fingerprint


def test_an_altered_list_is_refused(small, tmp_path):
    small.save(tmp_path / "idx")
    (tmp_path / "idx/function.json").write_text(json.dumps(["the", "police"]))
    with pytest.raises(IndexFolderError, match="altered"):
        Index.load(tmp_path / "idx")
    (tmp_path / "idx/function.json").write_text(json.dumps(["the", "absent"]))
    with pytest.raises(IndexFolderError, match="no words of the index"):
        Index.load(tmp_path / "idx", verify=False)


def test_the_recommended_space_moves_function_words_alone(small):
    apart = small.distances_of(np.arange(6))
    own = small.vocabulary.is_content
    assert own[:6].tolist() == [False, False, True, False, True, True]
    assert apart[~own[:6]][:, own].min() > 2 * apart[own[:6]][:, own].max()


@pytest.mark.parametrize("prior", ["uniform", "zipf"])
def test_ten_percent_holds_of_all_words_outside_the_list(english, prior):
    found = choose_epsilon(english, recovery=0.1, mechanism="tem", prior=prior)
    recovered = word_recovery(TEM(english, found.epsilon, prior=prior))
    assert 0.0995 < recovered.content <= 0.1
    telling = recovered.by_word[english.vocabulary.ids(TELLING)]
    assert telling.max() < 0.5


@pytest.mark.parametrize("groups", [None, {"synonyms": 8000, "kind": 800}])
def test_ten_percent_by_a_tree_covers_telling_words(english, groups):
    tree = Tree.build(english.vocabulary, groups=groups)
    words = tree.vocabulary
    alone = BestAttacker(words.prior_weights("zipf"), is_content=words.is_content).alone
    for prior in ("full", "zipf"):
        make = partial(TreeTEM, tree, prior=prior)
        recovered = word_recovery(make(largest_epsilon(make, 0.1, alone).epsilon))
        assert 0.0995 < recovered.content <= 0.1
        assert recovered.by_word[english.vocabulary.ids(TELLING)].max() < 0.5


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 30.0])
def test_statement_and_certificate_count_content_words_that_stay(small, epsilon):
    mechanism = TEM(small, epsilon)
    keep = np.exp([mechanism.log_prob(word)[word] for word in range(len(small))])
    kept = np.flatnonzero((keep > 0.5) & small.vocabulary.is_content)
    assert f"half of their uses: {len(kept)} of 47" in " ".join(mechanism.statement.not_protected)
    named = ", ".join(small.vocabulary.words[word] for word in kept[:20])
    notes = " ".join(certify(mechanism).notes)
    assert (
        f"{len(kept)} content words stay in more than half of their uses: {named}" in notes
    ) == (len(kept) > 0)


def test_a_mechanism_without_a_form_is_drawn_to_see_what_stays(small):
    assert "of their uses: Will, police, bank" in " ".join(
        certify(Madlib(small, 5e3, "exact")).notes
    )


def test_stay_probabilities_are_those_of_the_distributions(small):
    tree = Tree.build(small.vocabulary)
    for mechanism in (TEM(small, 2.0), TreeTEM(tree, 2.0)):
        exact = np.exp([mechanism.log_prob(word)[word] for word in range(len(small))])
        np.testing.assert_allclose(mechanism.stay_probabilities(), exact, rtol=1e-9)
    for prior in ("zipf", "uniform"):
        mechanism = TEM(small, 1.0, prior=prior)
        low, high = stay_bounds(small, *mechanism.exponential_decay())
        exact = mechanism.stay_probabilities()
        assert (low <= exact * (1 + 1e-9)).all()
        assert (exact <= high * (1 + 1e-9)).all()


def test_a_report_calls_commonest_words_no_function_words():
    index = Index.build(vocabulary([f"w{i}" for i in range(40)]), k=16)
    page = report_page(textpriv.Privatizer(TEM(index, 3.0)))
    assert "Commonest words often stay:" in page
    assert "all but the 4 commonest words" in page
    assert "4 function words" not in page


def test_page_statement_and_report_agree_on_the_list(english):
    listed = english.vocabulary.function_words
    number, privatizer = len(listed.words), textpriv.Privatizer(TEM(english, 3.0))
    first = f"{number} function words ({', '.join(listed.words[:4])}, ...)"
    assert any(each.startswith(first) for each in privatizer.statement.not_protected)
    assert first in report_page(privatizer)
    for page in ("guide/officers.md", "guide/terms.md", "mechanisms.md"):
        named = re.findall(r"(\d+) function words", (DOCS / page).read_text("utf-8"))
        assert set(named) == {str(number)}, page
