"""Common names, found by a list that comes with the package."""

from __future__ import annotations

import pytest

from textpriv.spans.detectors import best_detectors, make_detector
from textpriv.spans.names import NAMES
from textpriv.vocabulary.builtin import DATA, FIRST_NAMES


def found(text: str) -> list[str]:
    (spans,) = make_detector("names").detect([text])
    assert {each.kind for each in spans} <= {"PERSON"}
    return [text[each.start : each.end] for each in spans]


def test_names_with_a_capital_are_found_whole():
    text = "I met John F. Kennedy, MARIA Garcia-Lopez and Sean O'Brien; Mary's doctor is Ann."
    names = ["John F. Kennedy", "MARIA Garcia-Lopez", "Sean O'Brien", "Mary", "Ann"]
    assert found(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "Will it rain in May? Rose petals cost a Price in Paris.",
        "Don't ask john or mary.",
        "A. B. I went there.",
    ],
)
def test_words_that_are_ordinary_or_in_lower_case_are_no_names(text):
    assert not found(text)


def test_ordinary_words_beside_a_name_are_part_of_it():
    assert found("Then Will Smith met Linda May.") == ["Will Smith", "Linda May"]


def test_nearly_all_of_the_commonest_first_names_count_alone():
    alone = [name for name in FIRST_NAMES if found(name.capitalize())]
    assert len(alone) >= 0.95 * len(FIRST_NAMES)


def test_the_list_is_small_and_its_origin_is_named():
    assert NAMES.stat().st_size < 300_000
    licence = (DATA / "LICENSE.txt").read_text(encoding="ascii")
    assert "en-names.txt" in licence
    assert "public domain" in licence


def test_the_list_is_best_for_english_without_a_pipeline(monkeypatch):
    monkeypatch.setattr("textpriv.spans.detectors.finders_of_names", lambda language: [])
    assert best_detectors("en") == ["names", "patterns"]
    assert best_detectors("de") == ["patterns"]
