"""Documents of typed spans and words: one guarantee, one stream, one account, and nothing leaves by a detector's mistake."""

from __future__ import annotations

import datetime
import itertools
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from textpriv import TEM
from textpriv.errors import LimitError, SpanError, TextprivError
from textpriv.ledger import DocumentName, Ledger, Terms
from textpriv.privatizer import CHANGED, Privatizer
from textpriv.randomness import KeyedStreams
from textpriv.spans.detectors import (
    PATTERN_KINDS,
    PatternDetector,
    PresidioDetector,
    RegexDetector,
    SpacyDetector,
)
from textpriv.spans.mechanisms.base import Scopes
from textpriv.spans.mechanisms.dates import DateShift
from textpriv.spans.mechanisms.numbers import Number
from textpriv.spans.mechanisms.surrogates import Mask, Surrogate
from textpriv.spans.plan import UnknownLabelWarning
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy

RUN_KEY = b"K" * 32
DIGITS = Number(0.7, low=0, high=2, kind="NUMBER")
POLICY = SpanPolicy({"NUMBER": DIGITS, "CODE": Mask("CODE")})
DETECTOR = RegexDetector({"NUMBER": r"\b[0-9]+\b", "CODE": "[A-Z]{2,}"})
# A person's dates move together, and names are kept within a person.
OF_PERSONS = SpanPolicy(
    {
        "DATE": DateShift(0.01),
        "PERSON": Surrogate([f"N{i:05}" for i in range(99_999)], consistent="person"),
        "NUMBER": Number(1.0, low=0, high=9),
    }
)
PERSONAL = RegexDetector(
    {"DATE": r"\d{4}-\d\d-\d\d", "PERSON": r"\b[A-Z][a-z]+\b", "NUMBER": r"\b\d\b"}
)


@pytest.fixture(scope="module")
def mechanism(three_points):
    return TEM(three_points, epsilon=0.8)


@pytest.fixture(scope="module")
def privatizer(mechanism):
    return Privatizer(mechanism, spans=POLICY, detector=DETECTOR)


@pytest.fixture(scope="module")
def keyed(mechanism):
    return Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)


class Missing:
    """A detector that finds every other one."""

    def detect(self, texts):
        for spans in DETECTOR.detect(texts):
            yield spans[::2]

    def fingerprint(self):
        return "every other"


class Failing(Missing):
    """A detector that fails at a text with a secret."""

    def detect(self, texts):
        return [{"secret": None}.get(text, [])[:] for text in texts]


# The joint guarantee


def test_the_loss_of_a_document_is_at_most_the_sum_over_words_and_spans(
    mechanism, privatizer, goodness, level
):
    """All documents 'word number word code', all outputs."""
    words, numbers = ["w0", "w1", "w2"], ["0", "1", "2"]
    chances = {word: np.exp(mechanism.log_prob(word)) for word in words}
    spans = {each: np.exp(DIGITS.log_prob(DIGITS.parse(each))) for each in numbers}
    documents = list(itertools.product(words, numbers, words))

    def joint(document):
        first, number, second = document
        return np.einsum("i,j,k->ijk", chances[first], spans[number], chances[second]).ravel()

    # What the product says is what comes out.
    names = [f"{a} {b} {c} [CODE]" for a, b, c in itertools.product(words, numbers, words)]
    for document in (documents[0], documents[14]):
        raw = privatizer.read_batch(["{} {} {} XYZ".format(*document)] * 4_000)
        released = list(privatizer.release_batch(raw))
        counts = [released.count(name) for name in names]
        assert sum(counts) == 4_000
        assert goodness(counts, joint(document)) > level

    # And the product obeys the sum of the claims.
    distance = {"w0": 0.0, "w1": 1.0, "w2": 3.0}
    largest = 0.0
    for one, other in itertools.permutations(documents, 2):
        lost = np.max(np.log(joint(one)) - np.log(joint(other)))
        moved = sum(abs(distance[one[at]] - distance[other[at]]) for at in (0, 2))
        bound = 0.8 * moved + DIGITS.claim().epsilon * abs(int(one[1]) - int(other[1]))
        assert lost <= bound + 1e-6
        largest = max(largest, lost / bound)
    assert largest > 0.6


def test_the_statement_says_what_spans_lose_and_what_is_structure(privatizer):
    statement = privatizer.statement
    assert "equal structure" in statement.adjacency
    assert statement.figures["span_loss_NUMBER"] == pytest.approx(1.4)
    assert statement.figures["span_loss_CODE"] == 0
    assert any("kinds and places of the spans" in each for each in statement.not_protected)
    assert "0.7 nats a step" in " ".join(str(statement).split())
    assert any("casing" in note and "detector" in note for note in statement.notes)
    assert statement.proved


def test_the_statement_has_what_a_mechanism_shows_and_assumes(mechanism):
    class Unproved(Mask):
        def claim(self):
            told = {"not_protected": ("the colour of the ink",), "assumptions": ("ink is black",)}
            return replace(super().claim(), proved=False, **told)

    policy = SpanPolicy({"NUMBER": DIGITS, "CODE": Unproved("CODE")})
    statement = Privatizer(mechanism, spans=policy, detector=DETECTOR).statement
    assert "spans of kind CODE: the colour of the ink" in statement.not_protected
    assert "ink is black" in statement.assumptions
    assert not statement.proved


# Words


@given(st.lists(st.sampled_from(["w0", "12", "secret", "ABC", "x@y.z", "é", "\n"]), max_size=6))
def test_no_token_leaves_because_a_detector_missed_it(mechanism, privatizer, tokens):
    allowed = {"w0", "w1", "w2", "0", "1", "2", "[CODE]"}
    for each in (privatizer, Privatizer(mechanism, spans=POLICY, detector=Missing())):
        released = set(each.privatize(" ".join(tokens)).split())
        assert released <= allowed | set("@.[]")


def test_words_are_read_without_what_is_in_a_span(privatizer):
    first, second = (privatizer.read_batch([text]) for text in ("w0 7, w1.", "w0 123, w1."))
    np.testing.assert_array_equal(first.codes, second.codes)
    assert first.strings == second.strings


# Words pass


def test_words_pass_only_if_the_policy_names_it_and_the_statement_says_so(mechanism):
    policy = SpanPolicy({"CODE": Mask("CODE")}, undetected=UNDETECTED_PASS)
    passing = Privatizer(mechanism, spans=policy, detector=DETECTOR)
    assert passing.privatize("Secret w0, XYZ (7) ab!") == "Secret w0, [CODE] ([SPAN]) ab!"
    assert "everything the detector misses" in passing.statement.not_protected
    assert passing.statement.epsilon is None
    # What is found and cannot be read is masked, not passed.
    assert passing.privatize("Ann 12", labels=[(0, 3, "PERSON"), (4, 6, "CODE")]) == "[SPAN] [CODE]"


ALL_MASKED = SpanPolicy({kind: Mask(kind) for kind in PATTERN_KINDS}, undetected=UNDETECTED_PASS)
# Examples of kinds, to be run into each other.
SURFACES = [
    "jane.doe+x@example.org", "ann@example.org", "https://a.example.com/x?y=1", "192.168.0.1", "2001:db8::7334",
    "DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "4111 1111 1111 1111", "378282246310005", "+61 2 5550 1234",
    "(415) 555-2671", "2021-03-04", "3/4/21", "March 3rd, 2020", "10:30", "9:05 pm", "45-year-old", "aged 45", "1,000.5",
]  # fmt: skip


def test_what_sticks_out_of_overlapping_spans_is_masked(mechanism):
    passing = Privatizer(mechanism, spans=ALL_MASKED, detector=PatternDetector())
    text = "Pay DE89 3704 0044 0532 0130 00-ann@example.org"
    assert passing.privatize(text) == "Pay [IBAN] [SPAN]"


@given(
    st.lists(st.sampled_from(SURFACES), min_size=1, max_size=3),
    st.sampled_from(["", "-", "/", ".", " ", ":", "@"]),
)
def test_nothing_that_is_found_passes(mechanism, surfaces, between):
    text = "see " + between.join(surfaces) + " here"
    passing = Privatizer(mechanism, spans=ALL_MASKED, detector=PatternDetector())
    (found,) = PatternDetector().detect([text])
    covered = {place for span in found for place in range(span.start, span.end)}
    (replaced,) = passing.spans._find([text], None)
    assert sorted(covered) == [place for span in replaced for place in range(*span[:2])]


# Streams and scopes


def test_under_a_key_the_output_depends_on_nothing_else(mechanism, keyed):
    texts = ["w0 1 w1", "2", "", "w2 w2 AB", "AB 1 2 w0\nw1"] * 3
    keys = range(len(texts))
    whole = list(keyed.pipe(texts, keys))
    assert list(keyed.pipe(texts, keys, batch_size=1)) == whole
    again = Privatizer(mechanism, run_key=RUN_KEY, spans=POLICY, detector=DETECTOR)
    assert [again.privatize(text, key) for key, text in enumerate(texts)] == whole
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(keyed.privatize, texts, keys)) == whole


@pytest.mark.parametrize("changed", ["w0 2 w1", "w0 1 w1 AB", "1 w0 w1", "w0 01 w1"])
def test_another_content_is_drawn_from_another_stream(keyed, changed):
    scopes = [Scopes(KeyedStreams(seed=1), "letter")] * 2
    batch = keyed.read_batch(["w0 1 w1", changed])
    first, second = keyed.spans.documents(batch, scopes)
    assert first.content != second.content


def test_words_are_drawn_from_another_stream_if_only_a_span_differs(keyed):
    text = "w0 w1 w2 " * 25
    first, second = (keyed.privatize(f"{text}{number}", key="letter") for number in (0, 2))
    # By chance all words are the same with probability below 1e-9.
    assert first.split()[:-1] != second.split()[:-1]


def test_names_and_parts_give_streams_of_their_own(keyed):
    # The "s" stands for text, before the bytes of either name. By chance a hundred draws of words are twice the same with
    # probability below 1e-9.
    documents = [DocumentName("letter", part=part) for part in ("subject", "body", None)]
    documents += [DocumentName("a", part="bsc"), DocumentName("asb", part="c")]
    assert len(set(keyed.pipe(["w0 w1 w2 1 " * 25] * 5, documents))) == 5


def test_documents_without_a_key_are_shifted_apart_though_each_as_a_whole(mechanism):
    policy = SpanPolicy({"DATE": DateShift(1 / 3650, scope="document")})
    private = Privatizer(mechanism, spans=policy, detector=RegexDetector({"DATE": "[0-9-]{10}"}))
    drawn = [text.split() for text in private.pipe(["2000-01-02 2000-01-02"] * 20)]
    assert all(first == second for first, second in drawn)
    # By chance all twenty shifts are equal with probability below 1e-60.
    assert len({first for first, _ in drawn}) > 1


def test_another_policy_or_detector_draws_otherwise_under_the_same_key(mechanism):
    other = SpanPolicy({"NUMBER": Number(0.9, low=0, high=2), "CODE": Mask("CODE")})
    settings = [(POLICY, DETECTOR), (other, DETECTOR), (POLICY, Missing())]
    prints = {Privatizer(mechanism, spans=s, detector=d).fingerprint for s, d in settings}
    assert len({*prints, Privatizer(mechanism).fingerprint}) == 4


def days(first, second):
    return (datetime.date.fromisoformat(first) - datetime.date.fromisoformat(second)).days


def test_a_persons_dates_and_names_are_kept_over_documents_and_runs(mechanism):
    def release(names, texts):
        made = Privatizer(mechanism, run_key=RUN_KEY, spans=OF_PERSONS, detector=PERSONAL)
        keys = [DocumentName(f"{author} {name}", author) for name, author in names]
        return [text.split() for text in made.pipe(texts, keys)]

    notes = ["Smith w1 2020-02-28", "Jones 2021-03-01 Smith", "Smith w1 2020-02-28"]
    one, two, of_bob = release([(1, "ann"), (2, "ann"), (1, "bob")], notes)
    assert one[0] == two[2] != two[0]
    assert of_bob[0] != one[0]
    assert days(one[2], "2020-02-28") == days(two[1], "2021-03-01") != days(of_bob[2], "2020-02-28")
    ((changed,),) = release([(3, "ann")], ["2024-12-31"])
    assert days(changed, "2024-12-31") == days(one[2], "2020-02-28")


def test_two_kinds_of_one_mechanism_move_independently(mechanism):
    shift = DateShift(0.01)
    detector = RegexDetector({"DATE": r"\d{4}-\d\d-\d\d", "BIRTH": r"(?<=born )\d{4}-\d\d-\d\d"})

    def moved(**labels):
        policy = SpanPolicy({"BIRTH": shift, "DATE": shift}, labels=labels)
        made = Privatizer(mechanism, spans=policy, detector=detector, run_key=RUN_KEY)
        text = made.privatize("born 1980-02-28 w0 2020-02-28", DocumentName("visit", "ann"))
        born, seen = re.findall(r"\d{4}-\d\d-\d\d", text)
        return days(born, "1980-02-28"), days(seen, "2020-02-28")

    assert len(set(moved())) == 2
    assert len(set(moved(BIRTH="DATE"))) == 1


def test_a_document_of_nobody_is_refused_before_a_ledger_counts_it(mechanism, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    private = Privatizer(mechanism, spans=OF_PERSONS, detector=PERSONAL, ledger=ledger)
    with pytest.raises(SpanError, match=r"document 1: .*whose text it is"):
        list(private.pipe(["w0", "w0 2020-01-02"], ["a", "b"]))
    assert ledger.spent().releases == 0
    assert private.privatize("w0 2020-01-02", DocumentName("b", "ann"))


def test_a_plan_travels_between_processes_but_not_without_its_key(mechanism):
    seeded = Privatizer(mechanism, seed=1, spans=OF_PERSONS, detector=PERSONAL)
    copy = pickle.loads(pickle.dumps(seeded))
    text, key = "Smith 1 2020-01-02", DocumentName("a", "ann")
    assert copy.privatize(text, key) == seeded.privatize(text, key)
    with pytest.raises(TextprivError, match="in each process"):
        pickle.dumps(Privatizer(mechanism, spans=OF_PERSONS, detector=PERSONAL))


# Spans by themselves


def test_a_span_by_itself_is_drawn_by_its_mechanism(mechanism, privatizer):
    assert privatizer.privatize_span("XYZ", "CODE") == "[CODE]"
    assert {privatizer.privatize_span("1", "NUMBER") for _ in range(60)} == {"0", "1", "2"}
    assert privatizer.privatize_span("one", "NUMBER") == "[SPAN]"
    with pytest.raises(TextprivError, match="needs spans="):
        Privatizer(mechanism).privatize_span("1", "NUMBER")


def test_a_span_by_itself_under_a_key_is_that_of_its_document(mechanism):
    fresh = Privatizer(mechanism, spans=OF_PERSONS, detector=PERSONAL)
    key = DocumentName("note", "ann")
    surface = fresh.privatize_span("Smith", "PERSON", key)
    assert CHANGED in fresh.statement.not_protected
    assert fresh.privatize("Smith 1", key).split()[0] == surface
    assert fresh.privatize_span("Smith", "PERSON", DocumentName("other", "ann")) == surface


# Labels and failures


def test_labels_that_come_with_the_texts_are_spans(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    texts, labels = ["w0 ann w1", "w1"], [[(3, 6, "CODE")], []]
    objects = [[{"start": 3, "end": 6, "label": "CODE", "id": 1}], None]
    for spans in (labels, objects):
        assert next(labelled.pipe(texts, labels=spans)).split()[1] == "[CODE]"
    for given_labels, message in ((None, "nothing finds spans"), (labels[:1], "2 texts")):
        with pytest.raises(SpanError, match=message):
            list(labelled.pipe(texts, labels=given_labels))
    for wrong in (3, [{"start": 3, "end": 6}], [(3, 6)]):
        with pytest.raises(SpanError, match="labels cannot be read: expected"):
            labelled.privatize(texts[0], labels=wrong)
    with pytest.raises(TextprivError, match="labels need a policy"):
        Privatizer(mechanism).privatize("w0", labels=[])


def test_overlapping_empty_and_unreadable_spans_go_by_the_rule(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    labels = [(0, 3, "CODE"), (2, 7, "CODE"), (4, 4, "NUMBER"), (8, 10, "NUMBER"), (8, 9, "MONEY")]
    raw = labelled.read_batch(["abcdefg w0"], [labels])
    # 2 to 7 is the longest; "w0" is no number, and so is read as words like the rest.
    assert raw.surfaces == ["cdefg"]
    assert raw.counts == {"sampled": 2, "span CODE": 1}


@pytest.mark.parametrize("label", ["PATIENT", "DATE", "w1 secret"])
def test_a_label_of_a_text_that_is_not_known_is_refused(mechanism, label):
    labelled = Privatizer(mechanism, spans=POLICY)
    with pytest.raises(
        SpanError, match=r"label of span 1\. It knows NUMBER, CODE, .*labels"
    ) as caught:
        labelled.privatize("ann w0", labels=[(0, 3, "CODE"), (4, 6, label)])
    assert label not in str(caught.value).partition("Add them")[0]


class Other(Missing):
    """A detector that finds labels which it does not declare."""

    def detect(self, texts):
        return [[(0, 3, "HOSP"), (0, 3, "b-code")] for _ in texts]


def test_a_detectors_label_that_is_not_known_warns_once(mechanism):
    private = Privatizer(mechanism, spans=POLICY, detector=Other())
    with pytest.warns(UnknownLabelWarning, match=r"labels of a detector: HOSP\.") as warned:
        assert list(private.pipe(["ann", "bob"])) == ["[CODE]"] * 2
    assert len(warned) == 1


def test_labels_that_a_detector_declares_are_in_the_statement(mechanism):
    with pytest.warns(UnknownLabelWarning, match="HOSP, WARD"):
        private = Privatizer(
            mechanism, spans=POLICY, detector=RegexDetector({"WARD": "w", "HOSP": "h", "code": "c"})
        )
    assert private.statement.notes[-1] == (
        "Spans with a label that the policy does not know are drawn as words, such as HOSP, WARD"
    )


def test_a_label_that_is_not_known_is_masked_where_words_pass(mechanism, recwarn):
    passing = SpanPolicy({"CODE": Mask("CODE")}, undetected=UNDETECTED_PASS)
    private = Privatizer(mechanism, spans=passing, detector=RegexDetector({"HOSP": "ann"}))
    assert private.privatize("ann w0", labels=[(4, 6, "OTHER")]) == "[SPAN] [SPAN]"
    assert not recwarn.list


def test_a_privatizer_takes_a_preset_with_labels_of_ones_own(mechanism):
    own = {"preset": "chat", "labels": {"PATIENT": "PERSON"}}
    private = Privatizer(mechanism, spans=own)
    assert private.privatize("john", labels=[(0, 4, "PATIENT")]) == "[PERSON]"


def test_a_detector_that_fails_names_the_text_and_quotes_nothing(mechanism):
    failing = Privatizer(mechanism, spans=POLICY, detector=Failing())
    with pytest.raises(SpanError, match=r"document 1: Failing: .* TypeError") as caught:
        list(failing.pipe(["fine", "secret", "fine"]))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_text_of_many_spans_loses_none(mechanism):
    labelled = Privatizer(mechanism, spans=POLICY)
    text = "ab " * 20_000
    labels = [(at, at + 2, "CODE") for at in range(0, len(text), 3)]
    assert labelled.privatize(text, labels=labels) == " ".join(["[CODE]"] * 20_000)


# The account


def test_one_account_counts_words_and_spans(mechanism, tmp_path):
    worst = Terms.of(mechanism, b"").word_loss
    ledger = Ledger(tmp_path / "ledger", document_nats_limit=2 * worst + 2 * 1.4 + 0.01)
    counted = Privatizer(mechanism, ledger=ledger, spans=POLICY, detector=DETECTOR)
    first = counted.privatize("w0 1 w1 2 AB", DocumentName("a", "ann"))
    spent = ledger.spent(author="ann")
    assert spent.nats == pytest.approx(2 * worst + 2 * 1.4, abs=1e-5)
    assert spent.tokens == 2
    assert counted.privatize("w0 1 w1 2 AB", DocumentName("a", "ann")) == first
    with pytest.raises(LimitError, match="document 0"):
        counted.privatize("1", DocumentName("a", "ann"))
    # A document of spans alone pays for them, too.
    counted.privatize("1", DocumentName("b", "ann"))
    assert ledger.spent(document="b").nats == pytest.approx(1.4, abs=1e-5)


class NumberBlind(Missing):
    """A detector that says what it cannot find."""

    finds_no = "numbers"


def of_rules():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler")
    return SpacyDetector(nlp)


def presidio(**options):
    pytest.importorskip("presidio_analyzer")
    return PresidioDetector(**options)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (PatternDetector, "PatternDetector, which finds no names"),
        (
            lambda: RegexDetector({"A": "a", "B": "b"}),
            "RegexDetector, which finds no kinds but A, B",
        ),
        (of_rules, "SpacyDetector"),
        (presidio, "PresidioDetector, which finds no names"),
        (lambda: presidio(analyzer=SimpleNamespace()), "PresidioDetector"),
        (Missing, "Missing"),
        (NumberBlind, "NumberBlind, which finds no numbers"),
        (lambda: [Missing(), NumberBlind()], "Missing; NumberBlind, which finds no numbers"),
    ],
)
def test_a_statement_says_what_the_detectors_cannot_find(mechanism, make, named):
    private = Privatizer(mechanism, spans=SpanPolicy.preset("chat"), detector=make())
    found = f"Spans were found by: {named}; labels that came with the texts, if any"
    assert found in private.statement.notes


def test_a_statement_without_detectors_names_labels_alone(mechanism):
    private = Privatizer(mechanism, spans=SpanPolicy.preset("chat"))
    assert "Spans were found by: labels that came with the texts" in private.statement.notes
