"""A policy of spans says which mechanism each kind goes to, is read from TOML, and states what all of them lose."""

from __future__ import annotations

import re

import pytest

from textpriv import TEM
from textpriv.errors import SpanError
from textpriv.ledger import Shared
from textpriv.privatizer import Privatizer
from textpriv.spans.detectors import PATTERN_KINDS, PatternDetector
from textpriv.spans.mechanisms.base import registry
from textpriv.spans.mechanisms.numbers import Number
from textpriv.spans.mechanisms.surrogates import Mask
from textpriv.spans.policy import LABELS, PRESETS, SpanPolicy


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_a_proved_mechanism_for_each_kind_and_is_rebuilt_from_its_settings(name):
    policy = SpanPolicy.preset(name)
    assert SpanPolicy.from_dict(policy.to_dict()).fingerprint() == policy.fingerprint()
    assert set(LABELS.values()) - {"NUMBER", "words"} <= set(policy.mechanisms)
    assert set(PATTERN_KINDS) <= set(policy.known_labels)
    kinds = list(policy.mechanisms)
    assert kinds.index("SSN") < kinds.index("PHONE")
    assert name == "chat" or kinds.index("YEAR") < kinds.index("NUMBER")
    assert all(claim.proved for claim in policy.claims.values())
    assert policy.undetected == "words"


def test_a_label_goes_to_its_kind_by_the_policy_before_the_usual_names():
    policy = SpanPolicy(
        {"PERSON": Mask("PERSON"), "DATE": Mask("DATE")},
        labels={"PATIENT": "PERSON", "GPE": "DATE"},
    )
    labels = ["PERSON", "PER", "PATIENT", "DATE_TIME", "GPE", "LOC", "nonsense"]
    kinds = [*["PERSON"] * 3, *["DATE"] * 2, None, None]
    assert [policy.kind_of(label) for label in labels] == kinds


@pytest.mark.parametrize("label", ["person", "B-PER", "I-Patient", "PATIENT"])
def test_a_label_is_compared_without_case_and_prefix(label):
    policy = SpanPolicy({"PERSON": Mask("PERSON")}, labels={"Patient": "PERSON"})
    assert policy.kind_of(label) == "PERSON"


def test_a_label_of_words_is_known_and_has_no_mechanism():
    policy = SpanPolicy.from_dict({"preset": "chat", "labels": {"PRICE": "words"}})
    assert [policy.kind_of(each) for each in ("PRICE", "CARDINAL", "MONEY")] == ["words"] * 3
    assert policy.kind_of("FEE") is None


def test_labels_and_kinds_are_added_to_a_preset(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(
        'preset = "chat"\n[kinds.WARD]\nmethod = "mask"\n[labels]\nHOSP = "WARD"\nPATIENT = "PERSON"\n'
    )
    policy, chat = SpanPolicy.of(path), SpanPolicy.preset("chat")
    assert [*policy.mechanisms] == [*chat.mechanisms, "WARD"]
    assert [policy.kind_of(each) for each in ("HOSP", "PATIENT")] == ["WARD", "PERSON"]
    assert policy.kind_of("NUMBER") == "words"
    assert SpanPolicy.from_dict(policy.to_dict()).fingerprint() == policy.fingerprint()


def test_a_policy_is_read_from_a_file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(
        'labels = {DOSE = "NUMBER"}\n[kinds.NUMBER]\nmethod = "number"\nepsilon = 0.5\nlow = 0\nhigh = 4\n'
        '[kinds.CODE]\nmethod = "mask"\n'
    )
    policy = SpanPolicy.of(path)
    expected = SpanPolicy(
        {"NUMBER": Number(0.5, low=0, high=4, kind="NUMBER"), "CODE": Mask("CODE")},
        labels={"DOSE": "NUMBER"},
    )
    assert policy.fingerprint() == expected.fingerprint()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[kinds", "no TOML"),
        ("[kinds.A]\nepsilon = 1", "the method of A"),
        ('[kinds.A]\nmethod = "nonsense"', "the method of A: .*mask"),
        ('[kinds.A]\nmethod = "mask"\nwidth = 3', "the method of A"),
        ('[kinds.A]\nmethod = "number"\nepsilon = -1\nlow = 0\nhigh = 1', "the method of A"),
        ('others = 1\n[kinds.A]\nmethod = "mask"', "'others'"),
        ('labels = {B = "C"}\n[kinds.A]\nmethod = "mask"', "'C', which has no mechanism"),
        ("kinds = 5", "has tables of kinds"),
        ('labels = [1]\n[kinds.A]\nmethod = "mask"', "has tables of kinds"),
        ('labels = {B = ["A"]}\n[kinds.A]\nmethod = "mask"', "has tables of kinds"),
        ('undetected = "keep"\n[kinds.A]\nmethod = "mask"', "undetected is"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "policy.toml"
    path.write_text(content)
    with pytest.raises(SpanError, match=message):
        SpanPolicy.of(path)


def test_a_missing_file_and_an_unknown_preset_are_named(tmp_path):
    with pytest.raises(SpanError, match="cannot read the policy"):
        SpanPolicy.of(tmp_path / "none.toml")
    with pytest.raises(SpanError, match="notes, tickets, chat"):
        SpanPolicy.preset("other")


def test_presets_keep_years_ages_phones_and_whole_numbers_what_they_are(three_points):
    made = Privatizer(
        TEM(three_points, epsilon=0.8),
        seed=1,
        spans=SpanPolicy.preset("tickets"),
        detector=PatternDetector(),
    )
    text = "In 1998 aged 79, 40 calls to 0490 39 07 81 for 12.50"
    for private in made.pipe([text] * 20):
        assert re.search(r"\b(19|20)\d\d\b", private)
        assert re.search(r"\b\d{4} \d\d \d\d \d\d\b", private)
        whole = [each for each in re.findall(r"\b\d[\d.]*", private) if "." not in each]
        assert len(whole) >= 7


def test_the_account_adds_spans_and_counts_what_is_drawn_once_only_once():
    shift = registry.get("date-shift")(epsilon=0.5, scope="person", kind="DATE")
    policy = SpanPolicy({"NUMBER": Number(0.5, low=0, high=4), "DATE": shift})
    number, once = 2.0, shift.claim().largest
    assert policy.account({}) == (0.0, 0.0, ())
    assert policy.account({0: 3}) == (3 * number, 3 * number**2 / 2, ())
    *alone, shared = policy.account({0: 1, 1: 7})
    assert alone == [number, number**2 / 2]
    assert shared == (Shared(shift.drawn_once(), "person", once, once**2 / 2),)
