"""What documents lose: against brute force over all outputs, simulation, and closed forms.

The test by simulation compares a mean with its expectation at a false-alarm rate of 1e-9 under a fixed key.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import small_trees as trees
from conftest import LEVEL

from textpriv import TEM, ContextualTEM, Madlib, TreeTEM
from textpriv.errors import MechanismError, TextprivError
from textpriv.guarantees.documents import compare_documents, compare_texts
from textpriv.index import Index
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.randomness import KeyedStreams
from textpriv.statement import PrivacyStatement, at_most, epsilon_of_zcdp
from textpriv.vocabulary import Vocabulary

pytest.importorskip("dp_accounting")

WORDS = ["red", "green", "blue", "pink"]


def index_of(size: int, seed: int = 0) -> Index:
    names = WORDS if size == len(WORDS) else [f"w{word}" for word in range(size)]
    vectors = np.random.default_rng(seed).normal(size=(size, 3))
    return Index.build(Vocabulary(names, vectors), "euclidean", k=min(size, 8))


def joint(mechanism, document) -> np.ndarray:
    """The probability of every output of a document."""
    laws = [np.exp(mechanism.log_prob(word)) for word in document]
    return reduce(lambda made, law: np.multiply.outer(made, law).ravel(), laws, np.ones(1))


def least_delta(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    orders = ((first, second), (second, first))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in orders)


# Two documents


def test_a_mechanism_that_reads_its_context_is_refused():
    with pytest.raises(MechanismError, match="--mechanism tem"):
        compare_documents(ContextualTEM(index_of(4), 2.0), [0, 1], [1, 1])


def test_deltas_are_those_of_all_outputs():
    mechanism = TEM(index_of(4), 2.0)
    first, second = [0, 1, 2], [1, 3, 0]
    one, other = joint(mechanism, first), joint(mechanism, second)
    found = compare_documents(mechanism, first, second)
    for epsilon in np.linspace(0, found.total + 0.1, 30):
        low, high = found.delta(epsilon)
        assert low <= least_delta(one, other, epsilon) <= high
        assert high - low <= 7 * found.grid


def test_deltas_are_those_of_a_million_drawn_documents():
    mechanism = TreeTEM(trees.random_tree(30, 4, 2), 0.8, prior="zipf")
    first, second, draws = [0, 5, 9], [7, 6, 2], 1_000_000
    laws = [
        mechanism.log_prob(a) - mechanism.log_prob(b) for a, b in zip(first, second, strict=True)
    ]
    ids = np.tile(np.array(first, dtype=np.int32), draws)
    out = mechanism.sample(ids, KeyedStreams(seed=2).stream("documents")).reshape(draws, 3)
    lost = sum(law[out[:, at]] for at, law in enumerate(laws))
    found = compare_documents(mechanism, first, second)
    # Hoeffding's bound for means of numbers between 0 and 1.
    room = math.sqrt(math.log(2 / LEVEL) / (2 * draws))
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        mean = float(np.maximum(-np.expm1(epsilon - lost), 0).mean())
        low, high = (
            each._pmf_remove.get_delta_for_epsilon(epsilon) for each in (found._lower, found._upper)
        )
        assert low - room <= mean <= high + room
        assert high - low <= 7 * found.grid


def test_documents_of_one_law_are_never_told_apart():
    found = compare_documents(TEM(index_of(4), 2.0), [0, UNKNOWN], [0, UNKNOWN])
    assert found.words == 0
    assert found.delta(0.0) == (0.0, 0.0)
    assert found.epsilon(0.0) == 0.0
    assert found.sentences() == [
        "The documents have the same output distribution: no output distinguishes them."
    ]


def test_what_cannot_be_compared_is_said():
    mechanism = TEM(index_of(4), 2.0)
    with pytest.raises(TextprivError, match="differ in length"):
        compare_documents(mechanism, [0], [0, 1])
    with pytest.raises(MechanismError, match="closed"):
        compare_documents(Madlib(index_of(4), 2.0, search="exact"), [0], [1])


def test_no_epsilon_is_above_the_total_which_covers_the_rounding_of_the_sampler():
    mechanism = TEM(index_of(4), 2.0)
    found = compare_documents(mechanism, [0, 1, 2], [1, 3, 0])
    laws = [mechanism.log_prob(word) for word in range(4)]
    ideal = sum((laws[a] - laws[b]).max() for a, b in ((0, 1), (1, 3), (2, 0)))
    back = sum((laws[b] - laws[a]).max() for a, b in ((0, 1), (1, 3), (2, 0)))
    slack = 3 * mechanism.statement.figures["numerical_slack"]
    assert slack > 0
    assert found.total == pytest.approx(max(ideal, back) + slack, rel=1e-12)
    assert found.epsilon(0.0) <= found.total


def test_texts_are_compared_by_what_is_drawn_of_them_and_refused_where_more_differs():
    privatizer = Privatizer(TEM(index_of(4), 2.0))
    found = compare_texts(privatizer, "Red, green zanzibar.", "red, PINK ouagadougou.")
    direct = compare_documents(privatizer.mechanism, ["green"], ["pink"])
    assert found.words == 1
    assert found.delta(0.5) == direct.delta(0.5)
    for other, said in (
        ("red green", "tokens, which the output shows"),
        ("red! green zanzibar.", "released as they are"),
        ("red, green , ,", "the class of a token"),
    ):
        with pytest.raises(TextprivError, match=said) as error:
            compare_texts(privatizer, "Red, green zanzibar.", other)
        assert "zanzibar" not in str(error.value)


class Rounded(TEM):
    """States that rounding may add a tenth of a nat to each loss."""

    @property
    def statement(self):
        stated = super().statement
        return replace(stated, figures={**stated.figures, "numerical_slack": 0.1})


def test_upper_bounds_cover_what_rounding_in_the_sampler_may_add():
    mechanism = Rounded(index_of(4), 2.0)
    first, second = [0, 1], [1, 3]
    found = compare_documents(mechanism, first, second)
    drawn = []
    for document, sign in ((first, 1), (second, -1)):
        # Laws as far off as is stated, in the direction that distinguishes best.
        laws = []
        for word, other in zip(document, second if sign > 0 else first, strict=True):
            lean = np.sign(mechanism.log_prob(word) - mechanism.log_prob(other))
            law = np.exp(mechanism.log_prob(word) + 0.025 * lean)
            laws.append(law / law.sum())
        drawn.append(np.multiply.outer(*laws).ravel())
    for epsilon in (0.0, 0.5, 1.0, found.total - 0.21, found.total - 0.05):
        true = least_delta(*drawn, epsilon)
        assert true <= found.delta(epsilon)[1]
        ideal = least_delta(joint(mechanism, first), joint(mechanism, second), epsilon)
        assert true > ideal or ideal == 0
    assert found.delta(found.total - 0.15)[1] > 0
    assert found._slack == pytest.approx(0.2)


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-9])
def test_an_epsilon_is_the_least_at_which_the_upper_bound_is_met(delta):
    for mechanism in (Rounded(index_of(4), 2.0), TEM(index_of(4), 3.0)):
        found = compare_documents(mechanism, [0, 1, 2], [1, 3, 0])
        epsilon = found.epsilon(delta)
        assert found.delta(epsilon)[1] <= delta * (1 + 1e-9) < found.delta(epsilon - 1e-3)[1]


def test_bounds_leave_room_for_the_error_of_the_convolution():
    found = compare_documents(TEM(index_of(4), 3.0), [0, 1, 2], [1, 3, 0])
    for epsilon in (0.0, 1.0, 2.0):
        low, high = found.delta(epsilon)
        above = found._upper.get_delta_for_epsilon(epsilon - found._slack)
        above *= math.exp(found._slack)
        below = found._lower.get_delta_for_epsilon(epsilon)
        assert high - above >= 2.9e-10
        assert below - low >= 2.9e-10


# All documents


def test_long_documents_lose_no_more_than_is_stated_and_far_less_than_the_sum(monkeypatch):
    monkeypatch.setattr("textpriv.guarantees.documents.GRID", 1e-3)
    mechanism = TEM(index_of(8, 1), 0.5)
    rng = np.random.default_rng(7)
    first, second = rng.integers(0, 8, (2, 150)).tolist()
    found = compare_documents(mechanism, first, second)
    reach = float(at_most(found.distance, 3))
    assert f"each by a distance of up to {reach:g}." in found.sentences()[0]
    within = mechanism.statement.documents_within(found.words, reach)
    assert within.delta == 1e-6
    assert found.delta(within.epsilon)[1] <= 1e-6
    assert found.epsilon(1e-6) < within.epsilon < within.total / 1.5


def test_the_conversion_of_zcdp_is_below_the_simple_one_and_above_that_of_the_gaussian():
    from scipy.stats import norm

    for rho in (1e-4, 0.1, 3.0, 400.0):
        for delta in (1e-9, 1e-3):
            found = epsilon_of_zcdp(rho, delta)
            assert 0 <= found <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
            # A Gaussian of this rho needs so much at least (Balle and Wang 2018).
            s = math.sqrt(2 * rho)
            a, b = s / 2 - found / s, -s / 2 - found / s
            assert norm.cdf(a) - math.exp(found + norm.logcdf(b)) <= delta
    assert epsilon_of_zcdp(0.0, 1e-6) == 0.0


@pytest.mark.parametrize(
    ("rho", "delta"),
    [(-0.1, 1e-6), (math.nan, 1e-6), (0.1, 0.0), (0.1, 1.0), (0.1, math.nan)],
)
def test_a_rho_or_a_delta_out_of_range_has_no_epsilon(rho, delta):
    with pytest.raises(TextprivError, match="from 0 up and delta one between 0 and 1"):
        epsilon_of_zcdp(rho, delta)


def stated(loss: float, spread: float) -> PrivacyStatement:
    figures = {"worst_word_loss": loss, "bounded_range": spread}
    return PrivacyStatement("a mechanism", "two words", loss, 0.0, "a unit", True, figures=figures)


def test_the_example_of_230_words_comes_out_as_in_the_specification():
    for spread, simple in ((1.0, 68.6), (2.0, 194.7)):
        rho = 230 * spread**2 / 8
        assert rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(simple, abs=0.1)
        found = stated(1.0, spread).documents_within(230, 1.0, 1e-6)
        assert epsilon_of_zcdp(rho, 1e-6) < simple
        assert found.epsilon == min(epsilon_of_zcdp(rho, 1e-6), found.total)
        assert found.total == 230.0


def test_by_no_delta_and_no_bound_the_sum_counts():
    assert stated(2.0, 1.0).documents_within(5, 1.0, 0.0) == (10.0, 0.0, 10.0)
    assert stated(2.0, 1.0).documents_within(0, 1.0, 1e-6).epsilon == 0.0
    assert stated(math.inf, math.inf).documents_within(3, 1.0, 1e-6).delta == 0.0
