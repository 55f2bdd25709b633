"""Choosing by what the best attacker gets back: the promise is kept, and nothing larger keeps it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import small_trees as trees

import textpriv
from textpriv.errors import MechanismError, OutOfReachError, TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText, largest_epsilon
from textpriv.evaluation.recovery import word_recovery
from textpriv.guarantees.epsilon import choose_epsilon
from textpriv.guarantees.protection import choose
from textpriv.index import Index, Tree
from textpriv.mechanisms import TEM, TreeTEM
from textpriv.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def index() -> Index:
    """400 words, whose names are words of a text."""
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]
    vectors = np.random.default_rng(0).normal(size=(400, 6))
    return Index.build(Vocabulary(words, vectors), k=16, hnsw=False)


@pytest.fixture(scope="module")
def texts(index) -> list[str]:
    """Texts in which each word says what comes next, nine times in ten."""
    rng = np.random.default_rng(1)
    follows, found = rng.permutation(400), []
    for _ in range(40):
        word, text = int(rng.integers(400)), []
        for _ in range(60):
            text.append(index.vocabulary.words[word])
            word = int(follows[word]) if rng.random() < 0.9 else int(rng.integers(400))
        found.append(" ".join(text))
    return found


@pytest.mark.parametrize("of", ["content", "all"])
@pytest.mark.parametrize("prior", ["zipf", "uniform"])
def test_at_the_epsilon_the_best_attacker_gets_the_share_and_at_a_larger_one_more(index, of, prior):
    def share(epsilon: float) -> float:
        found = word_recovery(TEM(index, epsilon, prior=prior))
        return found.content if of == "content" else found.everything

    found = choose_epsilon(index, recovery=0.3, of=of, prior=prior)
    assert found.value == pytest.approx(share(found.epsilon), rel=1e-12)
    assert share(found.epsilon) <= 0.3 < share(found.epsilon * 1.001)


def test_over_a_tree_it_is_the_epsilon_of_its_law():
    tree = trees.random_tree(300, 4, 2)
    found = choose_epsilon(tree, recovery=0.4, prior="full")
    assert word_recovery(TreeTEM(tree, found.epsilon)).content <= 0.4
    assert word_recovery(TreeTEM(tree, found.epsilon * 1.001)).content > 0.4


def test_it_is_recorded_with_the_index_for_just_this_question(index, texts, monkeypatch):
    first = choose_epsilon(index, recovery=0.33)
    monkeypatch.setattr("textpriv.guarantees.epsilon.largest_epsilon", lambda *given: 1 / 0)
    assert choose_epsilon(index, recovery=0.33) == first
    for other in ({"of": "all"}, {"prior": np.arange(1, 401)}, {"context": texts}):
        with pytest.raises(ZeroDivisionError):
            choose_epsilon(index, recovery=0.33, **other)


def test_an_attacker_in_context_who_does_better_makes_the_epsilon_smaller(index, texts):
    text = PublicText.read(texts, index)
    alone = choose_epsilon(index, recovery=0.3)
    found = choose_epsilon(index, recovery=0.3, context=text)
    attacker = BestAttacker(index.vocabulary.prior_weights("zipf"), text=text)
    assert attacker.in_context(TEM(index, alone.epsilon))[0] > 0.3
    assert found.epsilon < alone.epsilon
    assert attacker.success(TEM(index, found.epsilon))[0] == found.value <= 0.3
    assert attacker.in_context(TEM(index, found.epsilon * 1.001))[0] > 0.3
    assert 0 < found.standard_error < 0.05


def test_the_attacked_text_is_not_the_text_that_was_counted():
    documents = [np.full(50, number, dtype=np.int32) for number in range(10)]
    text = PublicText.of(documents, 10)
    counted = np.flatnonzero(np.diff(text.model.offsets)[:10])
    assert set(text.ids.tolist()) == {0, 5}
    assert not set(counted.tolist()) & {0, 5}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"recovery": 1.0}, TextprivError),
        ({"recovery": 0.0}, MechanismError),
        ({"recovery": 0.1, "of": "names"}, TextprivError),
        ({"recovery": 1e-6}, OutOfReachError),
        ({"keep": 0.1, "context": ["a"]}, MechanismError),
        ({"recovery": 0.1, "context": ["waa wab"]}, TextprivError),
    ],
)
def test_what_has_no_meaning_or_cannot_be_had_is_refused(index, wanted, error):
    with pytest.raises(error):
        choose_epsilon(index, **wanted)


# Laws at equal protection


def test_all_candidates_give_the_protection_and_the_best_keeps_words_nearest(index):
    tree = Tree.build(index.vocabulary)
    found = choose({"vectors": index, "tree": tree}, recovery=0.3)
    assert {(each.mechanism, each.prior) for each in found.candidates} == {
        ("tem", "zipf"),
        ("tem", "uniform"),
        ("tree", "full"),
        ("tree", "zipf"),
        ("tree", "uniform"),
    }
    for each in found.candidates:
        law = (
            TEM(index, each.epsilon, prior=each.prior)
            if each.mechanism == "tem"
            else TreeTEM(tree, each.epsilon, prior=each.prior)
        )
        assert word_recovery(law).content <= each.recovered <= 0.3
    distances = [each.distance for each in found.candidates]
    assert found.best.distance == min(distances)
    assert distances == sorted(distances)


def test_what_is_kept_is_the_mean_over_running_words(index):
    (found, *_) = choose(index, recovery=0.3, priors=["zipf"]).candidates
    assert "--index INDEX " in found.command  # in memory alone, it has no folder to name
    weights = index.vocabulary.prior_weights("zipf")
    law = np.exp([TEM(index, found.epsilon).log_prob(word) for word in range(400)])
    apart = index.distances_of(np.arange(400))
    edge = np.sort(apart, axis=1)[:, 10, None]
    assert found.kept == pytest.approx(weights @ np.diag(law), rel=1e-4)
    assert found.near == pytest.approx(weights @ (law * (apart <= edge)).sum(axis=1), rel=1e-4)
    unrelated = weights @ apart @ weights
    assert found.distance == pytest.approx(
        weights @ (law * apart).sum(axis=1) / unrelated, rel=1e-4
    )


def test_a_law_that_cannot_give_it_is_named_and_where_none_can_it_is_an_error(index):
    # By Theorem 3 a word leaves gamma once in a thousand times, so under the uniform prior less than this is ever got back.
    found = choose(index, recovery=0.9995)
    assert [each.prior for each in found.candidates] == ["zipf"]
    assert "prior uniform: no epsilon" in found.left_out[0]
    with pytest.raises(MechanismError, match="no law gives"):
        choose(index, recovery=1e-7)


def test_indexes_of_other_words_do_not_compare(index):
    other = Index.build(Vocabulary(["a", "b"], np.eye(2)), hnsw=False)
    with pytest.raises(MechanismError, match="other words"):
        choose({"one": index, "other": other}, recovery=0.3)


def test_the_name_is_in_the_package():
    assert textpriv.choose is choose


def test_the_share_of_the_better_attacker_is_told_also_where_both_stay_below_the_wish():
    class Attacker:
        text = True

        def alone(self, epsilon):
            return 1 - math.exp(-epsilon)  # so that the search ends below the wish and not at it

        def in_context(self, epsilon):
            return 0.1, 0.01

    found = largest_epsilon(lambda epsilon: epsilon, 0.1, Attacker())
    assert 1 - math.exp(-found.epsilon) < 0.1
    assert (found.share, found.error) == (0.1, 0.01)
