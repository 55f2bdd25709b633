"""Documents of typed spans and words: one guarantee, one stream, one account, and nothing leaves by a detector's mistake."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import LimitError, SpanError, TextprivError
from textpriv.ledger import Document, Ledger, Terms
from textpriv.mechanisms import TEM
from textpriv.privatizer import CHANGED, Privatizer
from textpriv.randomness import Stream
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.laws.mask import Mask
from textpriv.spans.laws.numbers import Number
from textpriv.spans.patterns import PATTERN_KINDS, PatternDetector
from textpriv.spans.plan import FoundSpans, _pieces, piece_start
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.spans.span import ReadSpan
from textpriv.tokenization.policy import TokenPolicy

RUN_KEY = b"K" * 32
DIGITS = Number(0.7, low=0, high=2, kind="NUMBER")
POLICY = SpanPolicy({"NUMBER": DIGITS, "CODE": Mask("CODE")})
DETECTOR = RegexDetector({"NUMBER": r"\b[0-9]+\b", "CODE": "[A-Z]{2,}"})


@pytest.fixture(scope="module")
def mechanism(three_points):
    return TEM(three_points, epsilon=0.8)


@pytest.fixture(scope="module")
def privatizer(mechanism):
    return Privatizer(mechanism, spans=POLICY, detector=DETECTOR)


class Missing:
    """A detector that finds every other one."""

    def detect(self, texts):
        for spans in DETECTOR.detect(texts):
            yield spans[::2]

    def fingerprint(self):
        return "every other"


@pytest.fixture(scope="module")
def blind(mechanism):
    return Privatizer(mechanism, spans=POLICY, detector=Missing())


class Failing:
    def detect(self, texts):
        raise KeyError(texts[0])

    def fingerprint(self):
        return "failing"


# The joint guarantee


def test_two_documents_of_equal_structure_lose_at_most_the_sum_of_their_words_and_spans(
    mechanism, privatizer, goodness, level
):
    """All documents 'word number word code', all outputs: the released law is the product, and its ratios obey the bound."""
    words, numbers = ["w0", "w1", "w2"], ["0", "1", "2"]
    law = {word: np.exp(mechanism.log_prob(word)) for word in words}
    spans = {each: np.exp(DIGITS.log_prob(DIGITS.parse(each))) for each in numbers}
    documents = list(itertools.product(words, numbers, words))

    def joint(document):
        first, number, second = document
        return np.einsum("i,j,k->ijk", law[first], spans[number], law[second]).ravel()

    # What the product says is what comes out.
    names = [f"{a} {b} {c} [CODE]" for a, b, c in itertools.product(words, numbers, words)]
    for document in (documents[0], documents[14]):
        text = "{} {} {} XYZ".format(*document)
        raw = privatizer.read_batch([text] * 4_000)
        released = list(privatizer.release_batch(raw))
        counts = [released.count(name) for name in names]
        assert sum(counts) == 4_000
        assert goodness(counts, joint(document)) > level

    # And the product obeys the sum of the claims, attained by some pair.
    claim = DIGITS.claim()
    distance = {"w0": 0.0, "w1": 1.0, "w2": 3.0}
    slack = 0.0
    for one, other in itertools.permutations(documents, 2):
        lost = np.max(np.log(joint(one)) - np.log(joint(other)))
        moved = sum(abs(distance[one[at]] - distance[other[at]]) for at in (0, 2))
        bound = 0.8 * moved + claim.epsilon * abs(int(one[1]) - int(other[1]))
        assert lost <= bound + 1e-9
        slack = max(slack, lost / bound)
    assert slack > 0.6


def test_the_statement_says_what_spans_lose_and_what_is_structure(privatizer):
    statement = privatizer.statement
    assert "equal structure" in statement.adjacency
    assert statement.figures["span_loss_NUMBER"] == pytest.approx(1.4)
    assert statement.figures["span_loss_CODE"] == 0
    assert any("kinds and places of the spans" in each for each in statement.not_protected)
    assert "0.7 nats a step" in statement.paragraph()
    assert statement.proved


class Unproved(Mask):
    """A law without a proof that shows something and assumes something."""

    def claim(self):
        told = {"not_protected": ("the colour of the ink",), "assumptions": ("ink is black",)}
        return replace(super().claim(), proved=False, **told)


def test_the_statement_has_what_a_law_shows_and_assumes_and_is_proved_no_more_than_it(mechanism):
    policy = SpanPolicy({"NUMBER": DIGITS, "CODE": Unproved("CODE")})
    statement = Privatizer(mechanism, spans=policy, detector=DETECTOR).statement
    assert "spans of kind CODE: the colour of the ink" in statement.not_protected
    assert "ink is black" in statement.assumptions
    assert not statement.proved


# Words are never let through


@given(st.lists(st.sampled_from(["w0", "12", "secret", "ABC", "x@y.z", "é", "\n"]), max_size=6))
def test_no_token_leaves_because_a_detector_missed_it(privatizer, blind, tokens):
    allowed = {"w0", "w1", "w2", "0", "1", "2", "[CODE]"}
    for each in (privatizer, blind):
        released = set(each.privatize(" ".join(tokens)).split())
        assert released <= allowed | set("@.[]")


def test_a_span_is_read_without_what_stands_around_it_and_words_without_what_stands_in_it(
    privatizer,
):
    first, second = (privatizer.read_batch([text]) for text in ("w0 7, w1.", "w0 123, w1."))
    np.testing.assert_array_equal(first.codes, second.codes)
    assert first.strings == second.strings


def test_words_pass_only_where_the_policy_names_it_and_the_statement_says_so(mechanism):
    policy = SpanPolicy({"CODE": Mask("CODE")}, undetected=UNDETECTED_PASS)
    passing = Privatizer(mechanism, spans=policy, detector=DETECTOR)
    assert passing.privatize("Secret w0, XYZ (7) ab!") == "Secret w0, [CODE] ([SPAN]) ab!"
    assert "everything the detector misses" in passing.statement.not_protected
    assert passing.statement.epsilon is None
    # What is found and cannot be read is masked, not passed.
    assert passing.privatize("Ann 12", labels=[(0, 3, "PERSON"), (4, 6, "CODE")]) == "[SPAN] [CODE]"
    with pytest.raises(SpanError, match="undetected"):
        SpanPolicy({"CODE": Mask("CODE")}, undetected="pass")


ALL_MASKED = SpanPolicy({kind: Mask(kind) for kind in PATTERN_KINDS}, undetected=UNDETECTED_PASS)
# Examples of kinds, to be run into each other.
SURFACES = [
    "jane.doe+x@example.org", "ann@example.org", "https://a.example.com/x?y=1", "192.168.0.1", "2001:db8::7334",
    "DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "4111 1111 1111 1111", "378282246310005", "+61 2 5550 1234",
    "(415) 555-2671", "2021-03-04", "3/4/21", "March 3rd, 2020", "10:30", "9:05 pm", "45-year-old", "aged 45", "1,000.5",
]  # fmt: skip


def test_what_sticks_out_of_overlapping_spans_is_masked_where_words_pass(mechanism):
    passing = Privatizer(mechanism, spans=ALL_MASKED, detector=PatternDetector())
    text = "Pay DE89 3704 0044 0532 0130 00-ann@example.org"
    assert passing.privatize(text) == "Pay [IBAN] [SPAN]"


@given(
    st.lists(st.sampled_from(SURFACES), min_size=1, max_size=3),
    st.sampled_from(["", "-", "/", ".", " ", ":", "@"]),
)
def test_of_all_that_is_found_nothing_passes_where_words_pass(mechanism, surfaces, between):
    text = "see " + between.join(surfaces) + " here"
    passing = Privatizer(mechanism, spans=ALL_MASKED, detector=PatternDetector())
    (found,) = passing.spans.find([text])
    covered = {place for span in found.spans for place in range(span.start, span.end)}
    released = {place for span in found.stay for place in range(span.start, span.end)}
    assert covered == released
    assert sum(span.end - span.start for span in found.stay) == len(released)


def test_a_span_by_itself_is_drawn_by_its_law(mechanism, privatizer, tmp_path):
    assert privatizer.privatize_span("XYZ", "CODE") == "[CODE]"
    assert {privatizer.privatize_span("1", "NUMBER") for _ in range(60)} == {"0", "1", "2"}
    assert privatizer.privatize_span("one", "NUMBER") == "[SPAN]"
    with pytest.raises(TextprivError, match="needs spans="):
        Privatizer(mechanism).privatize_span("1", "NUMBER")


def test_a_span_by_itself_under_a_key_says_what_its_repetition_shows(mechanism):
    fresh = Privatizer(mechanism, spans=POLICY, detector=DETECTOR)
    fresh.privatize_span("1", "NUMBER")
    assert CHANGED not in fresh.statement.not_protected
    fresh.privatize_span("1", "NUMBER", key="letter")
    assert CHANGED in fresh.statement.not_protected


@given(
    st.lists(st.text("a é\u20ac👍 ", max_size=6), max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 6)), max_size=6),
)
def test_pieces_are_what_stands_between_spans_without_the_blank_after_one(texts, places):
    spans = [[] for _ in texts]
    for number, start, size in sorted(places):
        inside = number < len(texts) and start + size <= len(texts[number])
        if inside and (not spans[number] or spans[number][-1].end <= start):
            spans[number].append(ReadSpan(start, start + size, 0, ""))
    found = [FoundSpans(text, stay) for text, stay in zip(texts, spans, strict=True)]
    slowly = []
    for text, stay in zip(texts, spans, strict=True):
        starts, ends = (
            [0, *(span.end for span in stay)],
            [*(span.start for span in stay), len(text)],
        )
        slowly += [text[piece_start(text, a, b) : b] for a, b in zip(starts, ends, strict=True)]
    assert [piece for each in found for piece in _pieces(each)] == slowly


# Streams


def test_under_a_key_the_output_depends_on_neither_batches_nor_neighbours_nor_the_process(
    mechanism,
):
    texts = ["w0 1 w1", "2", "", "w2 w2 AB", "AB 1 2 w0\nw1"] * 3
    keyed = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    keys = range(len(texts))
    whole = list(keyed.pipe(texts, keys))
    assert list(keyed.pipe(texts, keys, batch_size=1)) == whole
    again = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    assert [again.privatize(text, key) for key, text in enumerate(texts)] == whole


@pytest.mark.parametrize(("changed"), ["w0 2 w1", "w0 1 w1 AB", "1 w0 w1", "w0 01 w1"])
def test_another_content_of_a_document_is_drawn_from_another_stream(mechanism, changed):
    keyed = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    batch = keyed.read_batch(["w0 1 w1", changed])
    first, second = keyed.spans.documents(batch)
    assert first.content != second.content


def test_two_parts_of_a_document_are_drawn_from_two_streams(mechanism):
    keyed = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    # By chance a hundred draws of three words are twice the same with probability below 1e-9.
    parts = [Document("letter", part=part) for part in ("subject", "body", None)]
    assert len(set(keyed.pipe(["w0 w1 w2 1 " * 25] * 3, parts))) == 3


def test_names_and_parts_that_read_alike_together_are_two_documents(mechanism):
    keyed = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    # The "s" stands for text, before the bytes of either name.
    alike = [Document("a", part="bsc"), Document("asb", part="c")]
    assert len(set(keyed.pipe(["w0 w1 w2 1 " * 25] * 2, alike))) == 2


def test_words_are_drawn_from_another_stream_where_only_a_span_differs(mechanism):
    keyed = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    text = "w0 w1 w2 " * 25
    first, second = (keyed.privatize(f"{text}{number}", key="letter") for number in (0, 2))
    # As above: by chance all words are the same with probability below 1e-9.
    assert first.split()[:-1] != second.split()[:-1]


def test_documents_without_a_key_are_shifted_apart_though_each_as_a_whole(mechanism):
    policy = SpanPolicy({"DATE": DateShift(1 / 3650, scope="document")})
    private = Privatizer(mechanism, spans=policy, detector=RegexDetector({"DATE": "[0-9-]{10}"}))
    drawn = [text.split() for text in private.pipe(["2000-01-02 2000-01-02"] * 20)]
    assert all(first == second for first, second in drawn)
    # By chance all twenty shifts are equal with probability below 1e-60.
    assert len({first for first, _ in drawn}) > 1


def test_another_policy_draws_otherwise_under_the_same_key(mechanism):
    other = SpanPolicy({"NUMBER": Number(0.9, low=0, high=2), "CODE": Mask("CODE")})
    prints = {
        Privatizer(mechanism, **settings).fingerprint
        for settings in (
            {},
            {"spans": POLICY, "detector": DETECTOR},
            {"spans": other, "detector": DETECTOR},
            {"spans": POLICY, "detector": Missing()},
        )
    }
    assert len(prints) == 4


def test_a_plan_travels_between_processes(mechanism):
    seeded = Privatizer(mechanism, seed=1, spans=POLICY, detector=DETECTOR)
    copy = pickle.loads(pickle.dumps(seeded))
    assert copy.privatize("w0 1 AB", key=1) == seeded.privatize("w0 1 AB", key=1)


def test_what_is_kept_within_a_person_does_not_travel_without_its_key(mechanism):
    shift = SpanPolicy({"DATE": DateShift(0.1)})
    packed = pickle.dumps(Privatizer(mechanism, spans=shift, detector=DETECTOR))
    with pytest.raises(TextprivError, match="draw again in each process"):
        pickle.loads(packed)


def test_a_document_of_nobody_is_refused_before_a_ledger_counts_it(mechanism, tmp_path):
    policy, detector = SpanPolicy({"DATE": DateShift(0.1)}), RegexDetector({"DATE": "[0-9-]{10}"})
    with Ledger(tmp_path / "ledger") as ledger:
        private = Privatizer(mechanism, spans=policy, detector=detector, ledger=ledger)
        with pytest.raises(SpanError, match=r"document 1: .*whose text it is"):
            list(private.pipe(["w0", "w0 2020-01-02"], ["a", "b"]))
        assert ledger.totals().releases == 0
        assert private.privatize("w0 2020-01-02", Document("b", "ann"))


def test_casing_shows_in_what_is_found_and_the_statement_says_so(mechanism, privatizer):
    assert privatizer.privatize("w0 AB") != privatizer.privatize("w0 ab")
    notes = privatizer.statement.notes
    assert any("casing" in note and "detector" in note for note in notes)
    assert not any("neither what is released nor" in note for note in notes)


def test_numbers_of_a_law_are_rounded_up_in_the_statement(mechanism):
    law = Number(0.12345649, low=0, high=1621)
    said = Privatizer(mechanism, spans=SpanPolicy({"NUMBER": law})).statement.notes[-1]
    epsilon, largest = map(float, re.findall(r"(?:at most |span, |grid, )([0-9.]+)", said))
    assert epsilon >= law.epsilon
    assert largest >= law.claim().largest


# Labels and hostile spans


def test_labels_that_come_with_the_texts_are_spans_like_those_of_a_detector(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    texts, labels = ["w0 ann w1", "w1"], [[(3, 6, "CODE")], []]
    released = list(labelled.pipe(texts, labels=labels))
    assert released[0].split()[1] == "[CODE]"
    with pytest.raises(SpanError, match="nothing finds spans"):
        labelled.privatize("w0")
    with pytest.raises(SpanError, match="2 texts"):
        list(labelled.pipe(texts, labels=labels[:1]))
    with pytest.raises(TextprivError, match="labels need a policy"):
        Privatizer(mechanism).privatize("w0", labels=[])


@pytest.mark.parametrize("span", [(0, 99, "CODE"), (-3, 2, "CODE"), (2, 1, "CODE"), (0, 1)])
def test_a_span_that_does_not_fit_names_its_document_and_those_before_it_are_released(
    mechanism, span
):
    labelled = Privatizer(mechanism, spans=POLICY)
    released = labelled.pipe(["w0", "w1", "w2"], batch_size=1, labels=[[], [span], []])
    assert next(released)
    with pytest.raises(SpanError, match="document 1: span 0"):
        next(released)


def test_overlapping_empty_and_unreadable_spans_go_by_the_rule(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    labels = [(0, 3, "CODE"), (2, 7, "CODE"), (4, 4, "NUMBER"), (8, 10, "NUMBER"), (8, 9, "OTHER")]
    raw = labelled.read_batch(["abcdefg w0"], [labels])
    # 2 to 7 is the longest; "w0" is no number, and so is read as words like the rest.
    assert raw.spans.texts == ["cdefg"]
    assert raw.counts == {"sampled": 2, "span CODE": 1}


def test_a_detector_that_fails_quotes_no_text(mechanism):
    failing = Privatizer(mechanism, spans=POLICY, detector=Failing())
    with pytest.raises(SpanError, match=r"document 0: Failing: .* KeyError") as caught:
        failing.privatize("secret")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_text_of_a_hundred_thousand_spans_loses_none(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    text = "ab " * 100_000
    labels = [(at, at + 2, "CODE") for at in range(0, len(text), 3)]
    assert labelled.privatize(text, labels=labels) == " ".join(["[CODE]"] * 100_000)


# The account


def test_one_account_counts_words_and_spans(mechanism, tmp_path):
    worst = Terms.of(mechanism, TokenPolicy()).word_loss
    with Ledger(tmp_path / "ledger", document_nats_limit=2 * worst + 2 * 1.4 + 0.01) as ledger:
        counted = Privatizer(mechanism, ledger=ledger, spans=POLICY, detector=DETECTOR)
        first = counted.privatize("w0 1 w1 2 AB", Document("a", "ann"))
        spent = ledger.spent(author="ann")
        assert spent.nats == pytest.approx(2 * worst + 2 * 1.4, abs=1e-5)
        assert spent.tokens == 2
        assert counted.privatize("w0 1 w1 2 AB", Document("a", "ann")) == first
        with pytest.raises(LimitError, match="document 0"):
            counted.privatize("1", Document("a", "ann"))
        # A document of spans alone pays for them, too.
        counted.privatize("1", Document("b", "ann"))
        assert ledger.spent(document="b").nats == pytest.approx(1.4, abs=1e-5)


def test_a_span_alone_is_drawn_from_a_given_stream(privatizer):
    raw = privatizer.read_batch(["1"])
    released = [
        next(iter(privatizer.release_batch(raw, [Stream(bytes([number]) * 32)])))
        for number in range(64)
    ]
    assert set(released) == {"0", "1", "2"}
    assert math.isfinite(privatizer.statement.figures["span_loss_NUMBER"])
