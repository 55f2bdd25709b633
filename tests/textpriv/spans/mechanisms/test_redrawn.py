"""Surrogates, identifiers and masks: keyed functions within a scope, independent of the original elsewhere."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest

from textpriv.errors import TextprivError
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.base import Scopes
from textpriv.spans.mechanisms.surrogates import SOURCES, Identifier, Mask, Surrogate

NAMES = ["Ann", "Bob Hall", "ANN", "bob  hall"]


def drawn(mechanism, texts, document="letter", person="ann", seed=1):
    scopes = Scopes(KeyedStreams(seed=seed), document, person)
    stream = KeyedStreams(seed=seed).stream(document)
    return mechanism.draw([mechanism.parse(each) for each in texts], stream, scopes)


# Consistency


@pytest.mark.parametrize("scope", ["document", "person"])
def test_equal_names_get_equal_surrogates_within_the_scope_and_only_there(scope):
    mechanism = Surrogate([f"n{i}" for i in range(10_000)], consistent=scope)
    here = drawn(mechanism, NAMES)
    assert here[0] == here[2] != here[1] == here[3]
    assert drawn(mechanism, NAMES[::-1])[::-1] == here
    assert (drawn(mechanism, NAMES, document="other") == here) == (scope == "person")
    assert (drawn(mechanism, NAMES, person="zoe") == here) == (scope == "document")
    assert drawn(mechanism, NAMES, seed=2) != here


def test_two_kinds_have_independent_surrogates_within_a_person():
    mechanism = Surrogate([f"n{i}" for i in range(10_000)], consistent="person", kind="PERSON")
    names = [f"name {i}" for i in range(50)]
    persons, places = drawn(mechanism, names), drawn(mechanism.of_kind("PLACE"), names)
    # By chance a pair is equal once in 10,000: three of fifty with probability below 1e-7.
    assert sum(map(str.__eq__, persons, places)) < 3


def test_the_joint_distribution_is_that_of_a_random_function():
    """Over 4,000 keys, two distinct names are as two uniform draws."""
    mechanism = Surrogate(["a", "b", "c"], consistent="document")
    pairs = Counter(tuple(drawn(mechanism, ["Ann", "Bob"], document=i)) for i in range(4_000))
    expected = 4_000 / 9
    cells = itertools.product("abc", repeat=2)
    statistic = sum((pairs[pair] - expected) ** 2 / expected for pair in cells)
    assert statistic < 60  # chi-squared with 8 degrees of freedom: 1e-9 at 59.7


def test_a_loss_is_nothing_between_equal_patterns_and_unbounded_between_others():
    kept, anew = Surrogate(["a", "b"], consistent="person"), Surrogate(["a", "b"])
    one, same, other = (
        [kept.parse(each) for each in names]
        for names in (["Ann", "Bob", "ann"], ["Zoe", "Kim", "Zoe"], ["Zoe", "Kim", "Kim"])
    )
    assert kept.joint_loss(one, same) == 0
    assert kept.joint_loss(one, other) == math.inf
    assert anew.joint_loss(one, other) == 0
    assert any("equal" in each for each in kept.claim().not_protected)
    assert not anew.claim().not_protected


def test_one_number_in_two_formats_stays_one_number():
    pytest.importorskip("phonenumbers")
    mechanism = Identifier("phone", consistent="person")
    texts = ["(415) 555-2671", "415.555.2671", "+1 415 555 2671", "(415) 555-2672"]
    figures = [re.sub(r"[^0-9]", "", each)[-10:] for each in drawn(mechanism, texts)]
    assert figures[0] == figures[1] == figures[2] != figures[3]


# One person under several names


PEOPLE = Surrogate([f"n{i}" for i in range(10_000)], consistent="document", kind="PERSON")


@pytest.mark.parametrize(
    ("names", "persons"),
    [
        (["John Doe", "Mr Doe", "doe", "John"], "0000"),
        (["Doe", "Dr. John Doe", "DOE, JOHN"], "000"),
        (["John Doe", "Jane Doe", "Doe"], "012"),  # Doe may be either
        (["John Doe", "Mr Doe", "Mrs Doe"], "012"),
        (["Mr Doe", "Doe", "Mr Roe"], "001"),
        (["Mr", "Dr", "J. Doe", "John Doe"], "0123"),
    ],
)
def test_names_of_a_document_are_one_person_where_their_parts_say_so(names, persons):
    surrogates = drawn(PEOPLE, names)
    assert "".join(str([*dict.fromkeys(surrogates)].index(each)) for each in surrogates) == persons
    assert drawn(PEOPLE, names[::-1])[::-1] == surrogates


def test_parts_of_names_are_one_person_in_documents_and_of_people_alone():
    for mechanism in (PEOPLE.of_kind("PLACE"), Surrogate(PEOPLE.entries, consistent="person")):
        assert len(set(drawn(mechanism, ["John Doe", "Doe"]))) == 2


def test_a_loss_is_unbounded_where_parts_of_names_differ():
    one, same, other = (
        [PEOPLE.parse(each) for each in names]
        for names in (["John Doe", "Doe"], ["Ann Lee", "Ms Lee"], ["Ann Lee", "Roe"])
    )
    assert PEOPLE.joint_loss(one, same) == 0
    assert PEOPLE.joint_loss(one, other) == math.inf
    assert any("longer name" in each for each in PEOPLE.claim().not_protected)


# Public mechanisms


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_draws_from_the_stream_alone(source):
    pytest.importorskip("faker")
    mechanism = Surrogate(source)
    first, again = (
        mechanism.draw([mechanism.parse(n)] * 3, Stream(bytes([3]) * 32)) for n in ("Ann", "Bob")
    )
    assert first == again
    assert all(each.strip() and "\n" not in each for each in first)
    assert mechanism.draw([mechanism.parse("Ann")] * 3, Stream(bytes(32))) != first


def shape(text):
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "9", text)))


@pytest.mark.parametrize(
    ("check", "text", "passes"),
    [
        ("luhn", "4111 1111 1111 1111", True),
        ("luhn", "4111 1111 1111 1112", False),
        ("iban", "GB82 WEST 1234 5698 7654 32", True),
        ("iban", "BE31 4354 1116 1155", True),  # Belgium and Spain check a second time
        ("iban", "ES9121000418450200051332", True),
        ("phone", "(415) 555-2671", True),
        ("phone", "+49 30 901820", True),
        ("phone", "0490 39 07 81", False),
        ("us.ssn", "536-90-4399", True),
        (None, "MRN-00123/x", False),
    ],
)
def test_a_drawn_identifier_has_format_and_prefix_and_passes_as_before(check, text, passes):
    pytest.importorskip("stdnum")
    mechanism = Identifier(check)
    value = mechanism.parse(text)
    assert value.passes == passes
    surfaces = mechanism.draw([value] * 40, KeyedStreams(seed=1).stream(text))
    assert len(set(surfaces)) > 20
    for each in surfaces:
        assert shape(each) == shape(text)
        assert each.startswith(value.prefix)
        assert not passes or mechanism.parse(each).passes


def test_an_identifier_is_uniform_over_what_passes():
    pytest.importorskip("stdnum")
    mechanism = Identifier("luhn")
    value = mechanism.parse("18")
    probabilities = dict(
        zip(mechanism.outputs(mechanism.structure(value)), mechanism.log_prob(value), strict=True)
    )
    assert math.exp(probabilities.pop("[IDENTIFIER]")) < 1e-300
    passing = [text for text in probabilities if mechanism.parse(text).passes]
    assert len(passing) == 10
    assert all(probabilities[text] == pytest.approx(-math.log(10)) for text in passing)
    assert mechanism.loss(value, mechanism.parse("26")) == 0
    assert mechanism.loss(value, mechanism.parse("27")) == math.inf


def test_what_stays_of_an_identifier_is_said():
    assert len(Identifier().claim().not_protected) == 1
    said = " ".join(Identifier("iban").claim().not_protected)
    assert "the places of their digits" in said
    assert "which prefix" in said
    assert "whether they pass iban" in said


def test_a_mask_is_one_surface_whatever_the_value():
    mechanism = Mask("PERSON")
    value = mechanism.parse("Ann")
    assert mechanism.outputs(mechanism.structure(value)) == ("[PERSON]",)
    assert (mechanism.log_prob(value).tolist(), mechanism.claim().largest) == ([0.0], 0)


@pytest.mark.parametrize("text", ["ann@example.org", "--", "x" * 65, "١٢٣", ""])
def test_what_has_no_format_is_not_read(text):
    assert Identifier().parse(text) is None


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        (Surrogate, {"entries": []}),
        (Surrogate, {"entries": ["a", ""]}),
        (Surrogate, {"entries": "dogs"}),
        (Surrogate, {"consistent": "town"}),
        (Surrogate, {"locale": "xx_XX"}),
        (Identifier, {"check": "dogs"}),
        (Identifier, {"check": "Luhn!"}),
        (Identifier, {"check": "exceptions"}),
    ],
)
def test_settings_without_meaning_are_refused(mechanism, wrong):
    pytest.importorskip("faker")
    with pytest.raises(TextprivError):
        mechanism(**wrong)
