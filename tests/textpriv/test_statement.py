"""A statement says what is guaranteed in JSON and in words, and no more."""

from __future__ import annotations

import json
import math
import re

import pytest

from textpriv.bounds import factor_in_words, odds_in_words
from textpriv.composition import together
from textpriv.errors import TextprivError
from textpriv.statement import PrivacyStatement, UnsoundWarning


def make(**changes):
    settings = {
        "mechanism": "TEM (epsilon 6)",
        "adjacency": "any two words in one place",
        "epsilon": 6.0,
        "delta": 0.0,
        "unit": "per unit of euclidean distance",
        "proved": True,
        "assumptions": ("the vectors are public",),
        "not_protected": ("the number and order of tokens", "punctuation marks"),
        "figures": {
            "worst_word_loss": 60.0,
            "reference_distance": 2.0,
            "reference_loss": 3.0,
            "reference_distance_90": 3.5011,
            "reference_loss_90": 14.9,
        },
        "notes": ("One note",),
    }
    return PrivacyStatement(**(settings | changes))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_is_valid_also_where_a_number_is_not_finite(value):
    statement = make(epsilon=value, figures={"worst_word_loss": value, "tau": 0.5})
    found = json.loads(statement.to_json(), parse_constant=pytest.fail)
    assert found["epsilon"] is None
    assert found["figures"] == {"worst_word_loss": None, "tau": 0.5}


def test_json_holds_every_field():
    found = json.loads(make().to_json())
    assert found == make().to_dict()
    assert set(found) == set(PrivacyStatement.__dataclass_fields__)
    assert found["proved"] is True
    assert found["not_protected"] == ["the number and order of tokens", "punctuation marks"]


def test_paragraph_names_every_item_that_is_not_protected_and_every_assumption():
    paragraph = make().paragraph()
    for item in ("the number and order of tokens", "punctuation marks", "the vectors are public"):
        assert item in paragraph
    assert "One note." in paragraph


def test_paragraph_of_a_proved_statement_gives_the_constant_and_its_unit():
    paragraph = make().paragraph()
    assert "exp(6 x d)" in paragraph
    assert "per unit of euclidean distance" in paragraph
    assert "NO PROVED GUARANTEE" not in paragraph


def test_paragraph_of_an_unproved_statement_says_so_first():
    assert make(proved=False).paragraph().startswith("NO PROVED GUARANTEE.")


def test_paragraph_without_an_epsilon_gives_no_number():
    paragraph = make(epsilon=None, figures={}).paragraph()
    assert "no guarantee that can be stated as a number" in paragraph
    assert "odds" not in paragraph


@pytest.mark.parametrize(
    ("nats", "odds"),
    [(0.0, "1 to 1"), (3.0, "20.1 to 1"), (10.0, "22,027 to 1"), (14.9, "3.0 million to 1")],
)
def test_paragraph_writes_a_loss_as_odds_that_a_person_can_read(nats, odds):
    assert f" {odds}." in make(figures={"worst_word_loss": nats}).paragraph()


def test_losses_contain_what_rounding_may_add():
    figures = {"worst_word_loss": 60.0, "numerical_slack": 0.25}
    statement = make(figures=figures)
    assert statement.loss_at(2.0) == 12.25
    assert statement.loss_at(100.0) == statement.local_dp_epsilon == 60.25
    assert statement.document_loss(3) == 3 * 60.25
    assert statement.author_loss([3, 1]) == 4 * 60.25
    # Words at distance 0 share one law, and no words lose nothing.
    assert statement.loss_at(0.0) == statement.document_loss(0) == 0.0


def test_paragraph_gives_the_odds_of_half_and_of_nine_tenths_of_the_running_words():
    paragraph = make().paragraph()
    assert "at most 20.1 to 1 for half of all running words (a distance of up to 2)" in paragraph
    assert "at most 3.0 million to 1 for nine tenths of them (up to 3.51)" in paragraph


def test_the_line_about_documents_gives_the_sum_and_what_is_proved_below_it():
    assert make(figures={}).document_line == ""
    assert make(epsilon=None).document_line == ""
    figures = {"worst_word_loss": 60.0, "reference_distance": 0.5, "bounded_range": 6.0}
    statement = make(figures=figures)
    # 100 words that each lose 3 nats, within a range of 3: 112.5-zCDP.
    assert statement.documents_within(100, 0.5).total == 300.0
    assert statement.documents_within(100, 0.5) == together(100, 3.0, 3.0, 1e-6)
    line = statement.document_line
    assert line in statement.paragraph()
    assert "100 words, each by a distance of up to 0.5," in line
    exact = together(100, 3.0, 3.0, 1e-6).epsilon
    assert f"at most {odds_in_words(300.0)}, the product over these words" in line
    assert f"at most {factor_in_words(exact)} times as likely" in line
    assert "bounded range, as zCDP" in line
    # Without a bounded range the loss moves by twice the largest one.
    bare = make(figures={**figures, "bounded_range": None})
    assert bare.range_at(0.5) == 6.0
    assert bare.documents_within(100, 0.5).epsilon > exact


def test_the_line_about_documents_holds_at_the_distance_that_it_prints():
    # Printed as 0.501: at that distance 100 words lose 300.6 nats, and at .5001 they lose 300.06.
    line = make(figures={"worst_word_loss": 60.0, "reference_distance": 0.5001}).document_line
    reach = float(re.search(r"up to ([\d.]+),", line).group(1))
    assert f"odds of at most {odds_in_words(100 * 6 * reach)}," in line
    assert odds_in_words(100 * 6 * reach) != odds_in_words(100 * 6 * 0.5001)


@pytest.mark.parametrize(("epsilon", "hides"), [(0.01, True), (0.05, True), (1.0, False)])
def test_the_line_about_documents_says_where_its_bound_protects_nothing(epsilon, hides):
    figures = {"worst_word_loss": 60.0, "reference_distance": 3.0}
    line = make(epsilon=epsilon, figures=figures).document_line
    found = together(100, 3.0 * epsilon, 6.0 * epsilon, 1e-6).epsilon
    assert (found <= math.log(1e6)) == hides
    assert line.endswith("take it that such documents can be told apart.") != hides
    assert "e+" not in line


def test_the_short_forms_of_a_statement_round_its_epsilon_up():
    statement = make(epsilon=1.2345612)
    assert "1.23457" in repr(statement)
    assert "1.23457" in statement._repr_html_()


def test_a_range_is_at_most_the_largest_one_and_nothing_at_distance_0():
    statement = make(figures={"bounded_range": 6.0, "largest_range": 9.0, "numerical_slack": 0.25})
    assert statement.range_at(0.0) == 0.0
    assert statement.range_at(1.0) == 6.5
    assert statement.range_at(50.0) == statement.range_at(math.inf) == 9.5


@pytest.mark.parametrize(
    ("words", "delta"), [(-1, 0.1), (1.5, 0.1), (True, 0.1), (3, 1.0), (3, -1)]
)
def test_documents_without_meaning_are_refused(words, delta):
    with pytest.raises(TextprivError):
        make().documents_within(words, 1.0, delta)


def test_a_constant_that_is_printed_shorter_is_rounded_up():
    assert "exp(1.23457 x d)" in make(epsilon=1.2345611).paragraph()


def test_str_is_the_paragraph():
    assert str(make()) == make().paragraph()


def test_extended_adds_items_once_and_keeps_their_order():
    found = make().extended(
        not_protected=("punctuation marks", "line breaks", "line breaks"),
        assumptions=("the vectors are public", "the key is secret"),
        notes=("One note", "Another"),
    )
    assert found.not_protected == (
        "the number and order of tokens",
        "punctuation marks",
        "line breaks",
    )
    assert found.assumptions == ("the vectors are public", "the key is secret")
    assert found.notes == ("One note", "Another")


def test_extended_leaves_the_original_and_its_proof_as_they_are():
    statement = make()
    assert statement.extended(notes=("Another",)).proved
    assert statement.notes == ("One note",)


def test_extended_can_take_the_proof_away():
    assert not make().extended(proved=False).proved


def test_an_unsound_warning_is_a_user_warning():
    assert issubclass(UnsoundWarning, UserWarning)
