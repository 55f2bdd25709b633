"""Identifiers: the format stays, check digits are right, and nothing else of the original is looked at."""

from __future__ import annotations

import math
import re

import pytest

from textpriv.errors import MechanismError, TextprivError
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.laws.base import Scopes
from textpriv.spans.laws.identifiers import Identifier

pytest.importorskip("stdnum")
pytest.importorskip("phonenumbers")

ORIGINALS = [
    ("luhn", "4111 1111 1111 1111"),
    ("iban", "GB82 WEST 1234 5698 7654 32"),
    ("iban", "DE89370400440532013000"),
    ("phone", "(415) 555-2671"),
    ("phone", "+49 30 901820"),
    ("us.ssn", "536-90-4399"),
    (None, "MRN-00123/x"),
]


def shape(text):
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "9", text)))


@pytest.mark.parametrize(("check", "text"), ORIGINALS)
def test_a_drawn_identifier_has_the_format_and_passes_the_check(check, text):
    law = Identifier(check)
    value = law.parse(text)
    drawn = law.draw([value] * 3, KeyedStreams(seed=1).stream(text))
    assert len(set(drawn)) > 1
    for each in drawn:
        assert shape(each) == shape(text)
        assert each.startswith(value.prefix)
        assert law.structure(law.parse(each)) == law.structure(value)


# Belgium checks its account numbers a second time.
@pytest.mark.parametrize("iban", ["BE31 4354 1116 1155", "ES9121000418450200051332"])
def test_a_drawn_iban_always_has_right_check_digits(iban):
    law = Identifier("iban")
    drawn = law.draw([law.parse(iban)] * 60, KeyedStreams(seed=1).stream("iban"))
    assert all(law.parse(each) for each in drawn)
    assert len(set(drawn)) > 50


def test_two_originals_of_one_format_get_the_same_under_one_stream():
    law = Identifier("luhn")
    first, second = (law.parse(each) for each in ("4111-1111-1111-1111", "5500-0000-0000-0004"))
    assert law.loss(first, second) == 0
    assert law.draw([first], Stream(bytes(32))) == law.draw([second], Stream(bytes(32)))


def test_the_format_and_a_prefix_of_a_public_list_are_said_to_stay():
    (format_alone,) = Identifier("luhn").claim().not_protected
    assert format_alone == "where their digits, letters and marks stand"
    (with_prefix,) = Identifier("iban").claim().not_protected
    assert with_prefix.startswith(format_alone + ", and with which prefix")


def test_the_law_is_uniform_over_what_passes():
    law = Identifier("luhn")
    value = law.parse("18")
    probabilities = dict(zip(law.outputs(law.structure(value)), law.log_prob(value), strict=True))
    assert math.exp(probabilities.pop("[IDENTIFIER]")) < 1e-300
    passing = [text for text in probabilities if law.parse(text)]
    assert len(passing) == 10
    assert all(probabilities[text] == pytest.approx(-math.log(10)) for text in passing)


def test_one_number_in_two_formats_stays_one_number_where_it_is_consistent():
    law = Identifier("phone", consistent="person")
    scopes = Scopes(KeyedStreams(seed=1), "letter", "ann")
    texts = ["(415) 555-2671", "415.555.2671", "+1 415 555 2671", "(415) 555-2672"]
    drawn = law.draw([law.parse(each) for each in texts], Stream(), scopes)
    figures = [re.sub(r"[^0-9]", "", each)[-10:] for each in drawn]
    assert figures[0] == figures[1] == figures[2] != figures[3]


@pytest.mark.parametrize(
    ("check", "text"),
    [("luhn", "4111 1111 1111 1112"), ("iban", "GB00 WEST 1234 5698 7654 32"), ("phone", "12"),
     (None, "ann@example.org"), (None, "--"), (None, "x" * 65), (None, "١٢٣")],
)  # fmt: skip
def test_what_has_no_format_or_the_wrong_check_digits_is_not_read(check, text):
    assert Identifier(check).parse(text) is None


@pytest.mark.parametrize("check", ["dogs", "Luhn!", "exceptions"])
def test_a_check_that_does_not_exist_is_refused(check):
    with pytest.raises(TextprivError):
        Identifier(check)


@pytest.mark.parametrize("region", [7, None, "Germany", "de"])
def test_a_region_that_is_no_country_is_refused(region):
    with pytest.raises(MechanismError, match="ISO 3166"):
        Identifier(region=region)
