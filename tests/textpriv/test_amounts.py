"""What amounts of privacy mean: computed as the law says, recorded with an index, shown as a table."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.amounts import (
    AMOUNTS_BINDING,
    SHARES,
    Amount,
    amounts,
    amounts_table,
    builtin_amounts,
    explain_missing,
    keep_share,
)
from textpriv.evaluation.recovery import word_recovery
from textpriv.index import Index
from textpriv.mechanisms.tem import TEM
from textpriv.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(0).normal(size=(500, 6))
    return Index.build(Vocabulary([f"w{i}" for i in range(500)], vectors), k=32)


def test_the_share_that_stays_is_that_of_the_law(index):
    mechanism = TEM(index, epsilon=3.0)
    own = [np.exp(mechanism.log_prob(word)[word]) for word in range(len(index))]
    expected = float(np.dot(own, index.vocabulary.prior_weights("zipf")))
    assert keep_share(mechanism, len(index)) == pytest.approx(expected, rel=1e-9)
    assert keep_share(mechanism, 200) == pytest.approx(expected, abs=0.02)


def test_three_amounts_have_the_wanted_shares_and_are_kept(index):
    found = amounts(index)
    assert [each.keep for each in found] == pytest.approx(SHARES, abs=0.04)
    assert [each.epsilon for each in found] == sorted(each.epsilon for each in found)
    assert amounts(index) == found
    assert index.find_record(AMOUNTS_BINDING) is not None


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_amounts_follow_the_scale_of_the_vectors(index, scale):
    scaled = Vocabulary(index.vocabulary.words, index.vocabulary.vectors * scale)
    found = amounts(Index.build(scaled, k=32))
    ratios = [a.epsilon / b.epsilon for a, b in zip(amounts(index), found, strict=True)]
    assert ratios == pytest.approx([scale] * 3, rel=0.1)


def test_the_table_has_a_line_for_each_amount(index):
    lines = amounts_table(amounts(index)).splitlines()
    assert len(lines) == 6
    assert [line.split()[0] for line in lines[1:4]] == [
        f"{each.epsilon:g}" for each in amounts(index)
    ]


def test_the_table_says_what_is_guessed_where_that_is_recorded_and_fits_a_terminal(index):
    found = amounts(Index.builtin("en"))
    lines = amounts_table(found).splitlines()
    assert [line.split()[-1] for line in lines[:4]] == [
        "guessed",
        *(f"{each.recovered:.0%}" for each in found),
    ]
    assert max(map(len, lines)) <= 76  # within the frame of a usage error of 80 columns
    assert "guessed" not in amounts_table(amounts(index)).lower()


def test_what_is_recorded_of_the_built_in_index_holds():
    index = Index.builtin("en")
    for each in amounts(index):
        again = Amount.of(index, each.epsilon, recovered=each.recovered)
        assert again.keep == pytest.approx(each.keep, abs=0.02)
        assert (again.loss, again.loss_90) == (each.loss, each.loss_90)


def test_the_recorded_success_of_the_best_guess_is_that_of_the_exact_law():
    index = Index.builtin("en")
    middle = amounts(index)[1]
    found = word_recovery(TEM(index, epsilon=middle.epsilon))
    assert found.everything == pytest.approx(middle.recovered, abs=2e-4)


def test_what_is_recorded_is_told_without_building_the_index(monkeypatch):
    monkeypatch.setattr("textpriv.amounts.open_index", lambda name: pytest.fail("built"))
    told = explain_missing("builtin:en")
    assert [f"{each.epsilon:g}" in told for each in builtin_amounts("en")] == [True] * 3
    assert "no default" in told


def test_where_nothing_can_be_shown_the_reason_is_told(tmp_path):
    assert "only of: en" in explain_missing("builtin:de")
    assert "does not exist" in explain_missing(tmp_path / "none")
