"""A statement says what is guaranteed in JSON and in words, and no more."""

from __future__ import annotations

import json
import math
import re
from decimal import Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textpriv.errors import TextprivError
from textpriv.statement import (
    PrivacyStatement,
    at_least,
    at_most,
    epsilon_of_zcdp,
    factor_in_words,
    odds_in_words,
)


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


def test_losses_contain_what_rounding_may_add():
    figures = {"worst_word_loss": 60.0, "numerical_slack": 0.25}
    statement = make(figures=figures)
    assert statement.loss_at(2.0) == 12.25
    assert statement.loss_at(100.0) == 60.25
    assert statement.documents_within(3, delta=0).total == 3 * 60.25
    # Words at distance 0 have one output distribution, and no words lose nothing.
    assert statement.loss_at(0.0) == statement.documents_within(0).total == 0.0


def shown(statement):
    """The printed statement on one line."""
    return " ".join(str(statement).split())


def test_the_table_gives_odds_of_half_and_nine_tenths_of_tokens():
    told = shown(make())
    assert "at most 20.1 to 1 for half of all tokens (distance up to 2)" in told
    assert "For nine tenths: at most 3.0 million to 1 (up to 3.502)" in told


def test_the_document_line_gives_the_sum_and_the_composition():
    assert make(figures={}).documents == make(epsilon=None).documents == []
    figures = {"worst_word_loss": 60.0, "reference_distance": 0.5, "bounded_range": 6.0}
    statement = make(figures=figures)
    # 100 words that each lose 3 nats, within a range of 3: 112.5-zCDP.
    assert statement.documents_within(100, 0.5).total == 300.0
    assert statement.documents_within(100, 0.5).epsilon == epsilon_of_zcdp(112.5, 1e-6)
    line = " ".join(statement.documents)
    assert line in shown(statement)
    assert "100 words, each by a distance of up to 0.5:" in line
    exact = epsilon_of_zcdp(112.5, 1e-6)
    assert f"odds of at most {odds_in_words(300.0)}." in line
    assert f"at most {factor_in_words(exact)} times as likely" in line
    assert "zCDP by bounded range" in line
    # Without a bounded range the loss moves by twice the largest one.
    bare = make(figures={name: figures[name] for name in ("worst_word_loss", "reference_distance")})
    assert bare.range_at(0.5) == 6.0
    assert bare.documents_within(100, 0.5).epsilon > exact


def test_the_document_line_holds_at_the_distance_it_prints():
    # Printed as 0.5001: at that distance 100 words lose 300.06 nats, and at .50001 they lose 300.006.
    line = make(figures={"worst_word_loss": 60.0, "reference_distance": 0.50001}).documents[0]
    reach = float(re.search(r"up to ([\d.]+):", line).group(1))
    assert f"odds of at most {odds_in_words(100 * 6 * reach)}." in line
    assert odds_in_words(100 * 6 * reach) != odds_in_words(100 * 6 * 0.50001)


@pytest.mark.parametrize(("epsilon", "hides"), [(0.01, True), (0.05, True), (1.0, False)])
def test_the_document_line_says_if_its_bound_protects_nothing(epsilon, hides):
    figures = {"worst_word_loss": 60.0, "reference_distance": 3.0}
    line = " ".join(make(epsilon=epsilon, figures=figures).documents)
    found = min(epsilon_of_zcdp(100 * (6.0 * epsilon) ** 2 / 8, 1e-6), 300.0 * epsilon)
    assert (found <= math.log(1e6)) == hides
    assert line.endswith("assume that such documents can be distinguished.") != hides
    assert "e+" not in line


def test_a_range_is_capped_and_0_at_distance_0():
    statement = make(figures={"bounded_range": 6.0, "largest_range": 9.0, "numerical_slack": 0.25})
    assert statement.range_at(0.0) == 0.0
    assert statement.range_at(1.0) == 6.5
    assert statement.range_at(50.0) == statement.range_at(math.inf) == 9.5


def test_json_holds_every_field_and_is_valid_without_finite_numbers():
    statement = make(epsilon=math.inf, figures={"worst_word_loss": math.nan, "tau": 0.5})
    found = statement.to_dict()
    json.dumps(found, allow_nan=False)
    assert set(found) == set(PrivacyStatement.__dataclass_fields__)
    assert found["epsilon"] == "inf"
    assert found["figures"] == {"tau": 0.5}


def test_the_table_gives_every_list_and_the_verdict():
    statement = make()
    told = shown(statement)
    assert told.startswith("TEM (epsilon 6): bound proved guaranteed Seeing a released word")
    for line in (*statement.guaranteed, *statement.for_whom, "One note"):
        assert line in told
    assert "exp(6 x d)" in statement.guaranteed[0]
    assert "per unit of euclidean distance" in statement.guaranteed[1]
    assert "not protected the number and order of tokens punctuation marks assumed" in told
    assert max(map(len, str(statement).splitlines())) <= 100
    assert shown(make(proved=False)) == told.replace("bound proved", "NOT PROVED")
    none = shown(make(epsilon=None, figures={}))
    assert "Nothing that can be stated as a number" in none
    assert "odds" not in none


def test_a_statement_may_lack_figures():
    again = PrivacyStatement(**make(figures={"worst_word_loss": math.inf}).to_dict())
    assert again.loss_at(2.0) == make(figures={}).loss_at(2.0)
    assert "10th nearest" not in str(make(figures={"reference_loss": 1.0}))


def test_a_guarantee_by_distance_has_no_delta():
    with pytest.raises(TextprivError, match="has no delta"):
        make(delta=0.05)


def test_a_statement_about_data_sets_gives_factor_and_delta():
    changes = {"by_distance": False, "unit": "one record", "adjacency": "replace-one"}
    statement = make(epsilon=3.0, delta=1e-5, figures={}, **changes)
    lines = " ".join(statement.guaranteed)
    assert "differ by one record (replace-one)" in lines
    assert "exp(3) = 20.1 times as likely under one as under the other, plus 1e-05." in lines
    assert "may be many times that" in lines
    assert "distance" not in shown(statement)
    assert "no noise was added" in shown(make(epsilon=math.inf, **changes))


def test_extended_lists_items_once_and_keeps_the_rest():
    found = make().extended(
        not_protected=("punctuation marks", "line breaks", "line breaks"), notes=("One note", "B")
    )
    assert found.not_protected == (*make().not_protected, "line breaks")
    assert found.notes == ("One note", "B")
    assert found.assumptions == make().assumptions
    assert found.proved
    assert not found.extended(proved=False).proved
    columns = make().with_columns([f"c{n}" for n in range(30)]).not_protected[-1]
    assert columns.endswith("c19, ...")


def test_bounds_without_meaning_are_refused():
    statement = make()
    for given_ in (-1, math.nan):
        for bound in (statement.loss_at, statement.documents_within):
            with pytest.raises(TextprivError):
                bound(given_)
    with pytest.raises(TextprivError):
        statement.documents_within(3, 1.0, 1.0)
    bare = PrivacyStatement("m", "a", None, 0.0, "u", proved=False)
    assert bare.loss_at(0.1) == bare.documents_within(1).total == math.inf


# Bounds as text

WIDE = Context(prec=60, Emax=10**9, Emin=-(10**9))
NAMES = {"million": 6, "billion": 9, "trillion": 12}


@given(st.one_of(st.floats(0, 40), st.floats(0, 1e4)))
@example(5e-324)
@example(math.nextafter(math.log(1000), 0))
@example(math.nextafter(math.log(1e6), 99))
@example(math.log(1e12))
def test_printed_odds_are_at_most_a_tenth_above_the_true_ones(nats):
    pattern = r"([\d,.]+)(?: (million|billion|trillion)| x 10\^(\d+))? to 1"
    number, name, power = re.fullmatch(pattern, odds_in_words(nats)).groups()
    printed = Decimal(number.replace(",", "")).scaleb(NAMES.get(name, int(power or 0)), WIDE)
    true = Decimal(nats).exp(WIDE)
    assert true <= printed <= true * Decimal("1.1")


def test_odds_are_readable():
    given_ = (0.0, 3.0, 10.0, 14.9, 20.0, 60.0, 2e6, math.inf)
    assert [odds_in_words(nats) for nats in given_] == [
        "1 to 1",
        "20.1 to 1",
        "22,027 to 1",
        "3.0 million to 1",
        "490 million to 1",
        "1.2 x 10^26 to 1",
        "10^868,589 to 1",
        "no bound",
    ]


@given(st.floats(0, 1e300), st.integers(1, 15))
@example(0.1, 6)
def test_a_printed_bound_is_a_bound(value, digits):
    printed = float(at_most(value, digits))
    assert float(at_least(value, digits)) <= value
    assert value <= printed <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12) + 5e-324
    assert at_most(0.1) == "0.1"


def test_short_forms_round_epsilon_up_and_html_escapes():
    statement = make(epsilon=1.2345612, mechanism="<b>")
    assert "1.23457" in repr(statement)
    assert "1.23457" in statement._repr_html_()
    assert "<b>" not in statement._repr_html_().replace("<b style", "")
