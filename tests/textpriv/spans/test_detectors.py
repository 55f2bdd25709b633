"""Detectors give the spans that the libraries behind them find, with offsets of the text as it is written."""

from __future__ import annotations

import pickle
import re

import phonenumbers
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.errors import SpanError
from textpriv.spans import detectors
from textpriv.spans.detectors import (
    Detector,
    PresidioDetector,
    RegexDetector,
    SpacyDetector,
    make_detector,
)
from textpriv.spans.patterns import _COMPILED, PATTERN_KINDS, PatternDetector
from textpriv.spans.span import Span

# What stands in a text for each kind, and what looks like one and is none.
EXAMPLES = {
    "EMAIL": (["jane.doe+x@example.org", "b@example.org"], ["jane@doe", "a @ b.org"]),
    "URL": (["https://a.example.com/x?y=1", "www.example.org", "example.com"], ["end.Next", "a.b"]),
    "IP": (["192.168.0.1", "2001:db8::7334"], ["192.168.0.256", "10:30"]),
    "IBAN": (["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"], ["DE88370400440532013000"]),
    "CARD": (["4111 1111 1111 1111", "378282246310005"], ["4111 1111 1111 1112"]),
    "PHONE": (["+61 2 5550 1234", "(415) 555-2671"], ["12345"]),
    "DATE": (["2021-03-04", "3/4/21", "March 3rd, 2020", "3rd of may 2020"], ["2021-3", "1/2"]),
    "TIME": (["10:30", "9:05 pm"], ["10:3"]),
    "AGE": (["45"], []),
    "NUMBER": (["1,000.5", "7", "-3"], ["a7"]),
}


def found(detector, text):
    (spans,) = detector.detect([text])
    return [(text[span.start : span.end], span.kind) for span in spans]


@pytest.mark.parametrize("kind", PATTERN_KINDS)
def test_patterns_find_what_a_kind_is_and_not_what_only_looks_like_it(kind):
    detector = PatternDetector([kind])
    right, wrong = EXAMPLES[kind]
    before = "" if kind == "PHONE" else "("
    after = "-year-old man" if kind == "AGE" else "), or so"
    for each in right:
        assert found(detector, f"é: {before}{each}{after}") == [(each, kind)]
    for each in wrong:
        assert found(detector, f"see {each} here") == []


@given(st.text(alphabet="a1@.:/ -+(éDE\n", max_size=40))
def test_what_patterns_find_lies_within_the_text_and_a_text_is_read_by_itself(text):
    detector = PatternDetector()
    first, _, again = detector.detect([text, "x@example.org 1", text])
    assert first == again
    assert all(0 <= span.start < span.end <= len(text) for span in first)


PIECES = [each for right, wrong in EXAMPLES.values() for each in right + wrong]
PIECES += [
    "abcd:beef:cafe:dead:beef::1",
    "http://x",
    "x" * 39,
    "word ",
    " ",
    "a",
    "é",
    "aged ",
    " years old",
    "12 AUG 1999",
    "\ud83d",
    "ı.de",
    "@",
]
ADDRESS = re.compile(r"@|://|\.[A-Za-z]{2}")


def found_everywhere(detector, text):
    """What each pattern finds in the whole of a text, whatever stands around it."""
    spans = list(detector._addresses(text, [each.start() for each in ADDRESS.finditer(text)]))
    for kind, pattern in _COMPILED.items():
        check = detector._checks.get(kind, bool)
        spans += [Span(*each.span(), kind) for each in pattern.finditer(text) if check(each[0])]
    if re.search(r"[0-9](?:[ ()./-]{0,3}[0-9]){6}", text):
        phones = phonenumbers.PhoneNumberMatcher(text, "US")
        spans += [Span(each.start, each.end, "PHONE") for each in phones]
    return spans


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=4))
def test_what_is_found_around_digits_and_marks_is_what_is_found_in_each_whole_text(texts):
    detector = PatternDetector()
    assert list(detector.detect(texts)) == [found_everywhere(detector, text) for text in texts]


def test_many_texts_are_looked_through_in_parts_and_each_keeps_its_own():
    texts = ["at 10:30 see a@example.org"] * 1001
    texts[999:] = ["é 7", "8"]
    spans = list(PatternDetector().detect(texts))
    assert [len(each) for each in spans] == [4] * 999 + [1, 1]
    assert spans[999:] == [[Span(2, 3, "NUMBER")], [Span(0, 1, "NUMBER")]]


@pytest.mark.parametrize(
    "text", ["1" * 20_000, "a.bc" * 5_000, "1:" * 10_000, "@" * 20_000, "D" * 20_000, "1 " * 10_000]
)
def test_long_runs_take_no_time_that_grows_with_their_square(text):
    (spans,) = PatternDetector().detect([text])
    assert len(spans) <= 40_000


def test_spacy_gives_entities_and_groups():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DRUG", "pattern": "aspirin"}])
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sites"})
    ruler.add_patterns([{"label": "SITE", "pattern": "left knee"}])
    text = "Took  aspirin for the left knee"
    assert found(SpacyDetector(nlp), text) == [("aspirin", "DRUG")]
    assert found(SpacyDetector(nlp, groups=("sites",)), text)[1] == ("left knee", "SITE")
    before = SpacyDetector(nlp).fingerprint()
    assert SpacyDetector(nlp).fingerprint() == before
    nlp.get_pipe("entity_ruler").add_patterns([{"label": "DRUG", "pattern": "ibuprofen"}])
    assert SpacyDetector(nlp).fingerprint() != before


def test_spacy_keeps_no_word_that_it_has_read():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DRUG", "pattern": "aspirin"}])
    list(SpacyDetector(nlp).detect(["Zorblax took aspirin"]))
    assert "Zorblax" not in nlp.vocab.strings


@pytest.fixture(scope="module")
def presidio():
    tldextract = pytest.importorskip("tldextract")
    pytest.importorskip("presidio_analyzer")
    patch = pytest.MonkeyPatch()
    # Its list of domains as it comes with the package: a test asks no network.
    patch.setattr(
        tldextract.tldextract, "TLD_EXTRACTOR", tldextract.TLDExtract(suffix_list_urls=())
    )
    patch.setattr(tldextract, "extract", tldextract.TLDExtract(suffix_list_urls=()))
    yield PresidioDetector()
    patch.undo()


def test_presidio_finds_by_its_patterns_over_a_blank_pipeline(presidio):
    text = "Mail jane.doe@example.org, card 4111111111111111, IBAN DE89370400440532013000 on 2021-03-04."
    kinds = {kind: surface for surface, kind in found(presidio, text)}
    assert kinds["EMAIL_ADDRESS"] == "jane.doe@example.org"
    assert kinds["CREDIT_CARD"] == "4111111111111111"
    assert kinds["IBAN_CODE"] == "DE89370400440532013000"
    assert presidio.fingerprint() == presidio.fingerprint()


def test_presidio_keeps_no_word_that_it_has_read_and_pickles_none(presidio):
    assert found(presidio, "Zorblax: jane.doe@example.org")
    (nlp,) = presidio._analyzer.nlp_engine.nlp.values()
    assert "Zorblax" not in nlp.vocab.strings
    assert b"Zorblax" not in pickle.dumps(presidio)


def test_patterns_travel_between_processes():
    text = "4111 1111 1111 1111, DE89 3704 0044 0532 0130 00, (415) 555-2671"
    copy = pickle.loads(pickle.dumps(PatternDetector()))
    assert found(copy, text) == found(PatternDetector(), text)


def test_a_detector_of_a_name_is_that_of_the_command_line():
    assert isinstance(make_detector("patterns"), Detector)
    for name in ("nonsense", "patterns:x"):
        with pytest.raises(SpanError, match="unknown detector"):
            make_detector(name)
    with pytest.raises(SpanError, match="spaCy finds no pipeline"):
        make_detector("spacy:no_such_pipeline")
    with pytest.raises(SpanError, match="could find anything"):
        SpacyDetector(spacy.blank("en"))


def test_what_cannot_be_looked_for_is_refused():
    with pytest.raises(SpanError, match="unknown pattern"):
        PatternDetector(["NAME"])
    with pytest.raises(SpanError, match="regular expression"):
        RegexDetector({"A": "("})


@pytest.mark.parametrize(("package", "kind"), [("phonenumbers", "PHONE"), ("stdnum", "CARD")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch, package, kind):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(SpanError, match=r"pip install '.*textpriv\[spans\]'"):
        PatternDetector([kind])
    assert str(detectors.missing("It", "spans")).startswith("It is not installed")
