"""Detectors find what the libraries behind them find, by offsets of the text as written, and remember nothing."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
from pathlib import Path

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from textpriv.cli.options import ReleaseOptions
from textpriv.errors import SpanError, TextprivError
from textpriv.spans.detectors import (
    DETECTORS,
    PATTERN_KINDS,
    Detector,
    PatternDetector,
    PresidioDetector,
    SpacyDetector,
    WordsDetector,
    make_detector,
)
from textpriv.spans.span import Span

# Texts in which a kind is found, between bars, and texts in which it is not.
EXAMPLES = {
    "EMAIL": (["é: (|jane.doe+x@example.org|), |b@example.org|"], ["jane@doe", "a @ b.org"]),
    "URL": (["|https://a.example.com/x?y=1|, |www.example.org|"], ["end.Next", "a.b"]),
    "IP": (["(|192.168.0.1|) é |2001:db8::7334|"], ["192.168.0.256", "10:30"]),
    "IBAN": (["|DE89 3704 0044 0532 0130 00|, |GB82WEST12345698765432|"], ["DE88370400440532013000"]),
    "CARD": (["|4111 1111 1111 1111| or |378282246310005|"], ["4111 1111 1111 1112"]),
    "SSN": (["é |536-90-4399|,", "My SSN: |536904399|", "social security number is |536 90 4399|"],
            ["536-904-399", "536904399", "5536-90-4399"]),
    "PHONE": (
        ["|+61 2 5550 1234|", "|(415) 555-2671|", "phone: |444 1234|", "Call me back at |0490 39 07 81|",
         "they are not answering at |723 813 266|", "|555-0199-88| office", "Fax: |001-518-647-0000x123| é"],
        ["12345", "in 1998 2003", "see 10.1234/5678", "12345.67 89012.34", "2021-03-04 and 3/4/2021"],
    ),
    "DATE": (["|2021-03-04|, |3/4/21|, |March 3rd, 2020| and |3rd of may 2020|"], ["2021-3", "1/2"]),
    "TIME": (["at |10:30| or |9:05 pm|"], ["10:3"]),
    "AGE": (
        ["a |45|-year-old man", "|79| years old", "I'm |31| y/o", "just turned |60|.", "at the age of |66|",
         "when he was |78|.", "aged |9|, she", "|4| yrs old"],
        ["turned 90 degrees", "I am 5 minutes late", "it was 12", "aged 12.5", "for 30 years"],
    ),
    "YEAR": (["é since |1998|, in |2014|."], ["$1998", "2014-03-04", "2000 km", "1850", "12014", "1998.5"]),
    "NUMBER": (["|1,000.5| or |7|, |-3|"], ["a7"]),
}  # fmt: skip


def found(detector, text):
    (spans,) = detector.detect([text])
    return [(text[span.start : span.end], span.kind) for span in sorted(spans)]


@pytest.mark.parametrize("kind", PATTERN_KINDS)
def test_patterns_find_a_kind_and_not_what_only_looks_like_it(kind):
    def of_kind(text):
        return [
            surface for surface, found_kind in found(PatternDetector(), text) if found_kind == kind
        ]

    for text in EXAMPLES[kind][0]:
        assert of_kind(text.replace("|", "")) == text.split("|")[1::2]
    for text in EXAMPLES[kind][1]:
        assert of_kind(f"see {text} here") == []


PIECES = [text.replace("|", "") for right, wrong in EXAMPLES.values() for text in right + wrong]
PIECES += ["x" * 63, "word ", " ", "a", "\ud83d", "ı.de", "@", "call number number number "]


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_patterns_find_in_a_text_what_they_find_in_it_alone(text):
    detector = PatternDetector()
    first, other, again = detector.detect([text, "x@example.org 1", text])
    assert (first, other) == (again, [Span(0, 13, "EMAIL"), Span(14, 15, "NUMBER")])
    assert all(0 <= span.start < span.end <= len(text) for span in first)


@pytest.mark.parametrize(
    "text",
    ["1" * 20_000, "a.bc" * 5_000, "1:" * 10_000, "@" * 20_000, "D" * 20_000, "1 " * 10_000,
     "call at " * 5_000 + "1", "aged " * 4_000 + "1"],
)  # fmt: skip
def test_long_runs_take_no_time_that_grows_with_their_square(text):
    (spans,) = PatternDetector().detect([text])
    assert len(spans) <= 40_000


def test_spacy_gives_entities_and_groups_and_keeps_no_word():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DRUG", "pattern": "aspirin"}])
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sites"})
    ruler.add_patterns([{"label": "SITE", "pattern": "left knee"}])
    text = "Zorblax took  aspirin for the left knee"
    assert found(SpacyDetector(nlp), text) == [("aspirin", "DRUG"), ("left knee", "SITE")]
    assert sorted(SpacyDetector(nlp).labels) == ["DRUG", "SITE"]
    assert "Zorblax" not in nlp.vocab.strings
    before = SpacyDetector(nlp).fingerprint()
    assert SpacyDetector(nlp).fingerprint() == before
    nlp.get_pipe("entity_ruler").add_patterns([{"label": "DRUG", "pattern": "ibuprofen"}])
    assert SpacyDetector(nlp).fingerprint() != before


@pytest.fixture(scope="module")
def presidio():
    tldextract = pytest.importorskip("tldextract")
    pytest.importorskip("presidio_analyzer")
    patch = pytest.MonkeyPatch()
    # Its list of domains as it comes with the package: a test asks no network.
    extract = tldextract.TLDExtract(suffix_list_urls=())
    patch.setattr(tldextract.tldextract, "TLD_EXTRACTOR", extract)
    patch.setattr(tldextract, "extract", extract)
    yield PresidioDetector()
    patch.undo()


def test_presidio_finds_by_its_patterns_and_keeps_no_word(presidio):
    text = "Zorblax: jane.doe@example.org, card 4111111111111111, IBAN DE89370400440532013000."
    kinds = {kind: surface for surface, kind in found(presidio, text)}
    assert kinds["EMAIL_ADDRESS"] == "jane.doe@example.org"
    assert kinds["CREDIT_CARD"] == "4111111111111111"
    assert kinds["IBAN_CODE"] == "DE89370400440532013000"
    assert presidio.fingerprint() == presidio.fingerprint()
    (nlp,) = presidio._analyzer.nlp_engine.nlp.values()
    assert "Zorblax" not in nlp.vocab.strings
    assert b"Zorblax" not in pickle.dumps(presidio)


def test_patterns_travel_between_processes():
    text = "4111 1111 1111 1111, DE89 3704 0044 0532 0130 00, (415) 555-2671"
    assert found(pickle.loads(pickle.dumps(PatternDetector())), text) == found(
        PatternDetector(), text
    )


def test_a_detector_has_a_name_and_others_are_refused():
    assert isinstance(make_detector("patterns"), Detector)
    for name in ("nonsense", "patterns:x", "words", "regex:A"):
        with pytest.raises(SpanError, match="unknown detector"):
            make_detector(name)
    with pytest.raises(SpanError, match="spaCy finds no pipeline"):
        make_detector("spacy:no_such_pipeline")
    with pytest.raises(SpanError, match="finds anything"):
        SpacyDetector(spacy.blank("en"))


def test_the_command_and_its_guide_list_every_detector():
    guide = Path(__file__).parents[3] / "docs" / "guide" / "typed-spans.md"
    shown = (guide.read_text(), inspect.getsource(ReleaseOptions))
    assert all(re.search(rf"\b{name}\b", text) for name in DETECTORS for text in shown)


@pytest.mark.parametrize("package", ["phonenumbers", "stdnum"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package):
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TextprivError, match=r"pip install '.*spans"):
        PatternDetector()


@pytest.mark.parametrize("date", ["05/03/2024", "05-03-2024", "14.03.2024"])
def test_a_date_is_no_phone_number(date):
    (spans,) = PatternDetector().detect([f"Seen on {date} again. Call 415-555-2671."])
    assert {each.kind for each in spans if each.end <= 19} >= {"DATE"}
    assert [each.start for each in spans if each.kind == "PHONE"] == [31]


def test_a_list_is_found_in_any_case_and_over_several_words():
    detector = WordsDetector(["Ann", "mary ann O'Brien", "Smith"])
    text = "ANN's note: Mary Ann\nO’Brien, ann-smith and Annie. mary, ann"
    names = [surface for surface, kind in found(detector, text)]
    assert names == ["ANN", "Mary Ann\nO’Brien", "Ann", "ann", "smith", "ann"]


def test_a_list_is_read_from_a_file_and_named_on_the_command_line(tmp_path):
    (tmp_path / "names.txt").write_text("Ann\n\nBo Li\n")
    detector = make_detector(f"words:{tmp_path / 'names.txt'}")
    assert found(detector, "bo li and ann") == [("bo li", "PERSON"), ("ann", "PERSON")]
    assert detector.fingerprint() == WordsDetector(["bo LI", "ann"]).fingerprint()
    assert detector.fingerprint() != WordsDetector(["bo", "li", "ann"]).fingerprint()


def test_a_regular_expression_is_named_as_other_detectors_are():
    detector = make_detector("regex:TICKET=#[0-9]+=?")
    assert found(detector, "see #42= and #7") == [("#42=", "TICKET"), ("#7", "TICKET")]
    with pytest.raises(SpanError, match="no regular expression"):
        make_detector("regex:TICKET=(")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"7\n", "has no words"), (b"\xff", "not UTF-8")],
)
def test_a_list_that_cannot_be_used_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(SpanError, match=message):
        make_detector(f"words:{tmp_path / 'names.txt'}")
