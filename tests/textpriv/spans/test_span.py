"""Spans are read, checked against their text, and freed of overlaps by one rule."""

from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv import TEM
from textpriv.errors import SpanError
from textpriv.privatizer import Privatizer
from textpriv.spans.mechanisms.numbers import Number
from textpriv.spans.mechanisms.surrogates import Mask
from textpriv.spans.policy import SpanPolicy
from textpriv.spans.span import ReadSpan, checked, read_labels, without_overlaps


@pytest.fixture(scope="module")
def labelled(three_points):
    policy = SpanPolicy({"A": Mask("A"), "N": Number(1.0, low=0, high=9, kind="N")})
    return Privatizer(TEM(three_points, epsilon=0.8), spans=policy)


# Overlaps


@given(
    st.lists(
        st.builds(
            lambda start, size, mechanism: ReadSpan(start, start + size, mechanism, None),
            st.integers(0, 8),
            st.integers(1, 5),
            st.integers(0, 2),
        ),
        max_size=7,
    )
)
def test_of_overlapping_spans_those_stay_that_the_rule_prefers(spans):
    expected = []
    for span in sorted(spans, key=lambda each: (each.start - each.end, each.start, each.mechanism)):
        if all(span.end <= other.start or other.end <= span.start for other in expected):
            expected.append(span)
    assert without_overlaps(spans, 20) == sorted(expected)


def test_overlaps_take_time_that_grows_with_their_number():
    started = time.process_time()
    many = [ReadSpan(at, at + 1 + at % 3, at % 2, None) for at in range(200_000)]
    left = without_overlaps(many, 200_004)
    assert all(first.end <= second.start for first, second in zip(left, left[1:], strict=False))
    assert time.process_time() - started < 6


# Checks


def slowly(text, spans):
    """The rule of boundaries, for each span by itself."""
    for start, end, kind in spans:
        if start < end:
            while start > 0 and unicodedata.category(text[start]) in {"Mn", "Mc", "Me"}:
                start -= 1
            while end < len(text) and unicodedata.category(text[end]) in {"Mn", "Mc", "Me"}:
                end += 1
            yield start, end, kind


@given(
    st.text("ab \u0301\u0903\u20dd\ud83d\udc4d👍", max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from("AN")), max_size=6),
)
def test_boundaries_move_out_of_characters_and_empty_spans_are_left_out(text, spans):
    spans = [(min(a, b, len(text)), min(max(a, b), len(text)), kind) for a, b, kind in spans]
    assert [*map(tuple, checked(text, spans))] == [*dict.fromkeys(slowly(text, spans))]


@pytest.mark.parametrize(
    "span",
    [(0, 99, "A"), (-1, 2, "A"), (3, 2, "A"), (0.0, 2, "A"), (0, 2, None), (0, 2), 7],
)  # fmt: skip
def test_what_is_no_span_of_the_text_names_its_document(labelled, span):
    released = labelled.pipe(["Anna", "secret"], labels=[[], [(0, 4, "A"), span]], batch_size=1)
    assert next(released)
    with pytest.raises(SpanError, match=r"^document 1: (span 1|the labels)") as caught:
        next(released)
    assert "secret" not in str(caught.value)


@given(
    st.text("7 a\u0301\ud83d\udc4d👍\n", max_size=8),
    st.lists(
        st.tuples(st.integers(-2, 10), st.integers(-2, 10), st.sampled_from(["A", "N", "MONEY"])),
        max_size=5,
    ),
)
def test_any_spans_end_in_a_release_or_in_an_error_of_this_library(labelled, text, spans):
    if all(0 <= start <= end <= len(text) for start, end, _ in spans):
        labelled.privatize(text, labels=spans).encode("utf-8")
    else:
        with pytest.raises(SpanError, match="no start, end and kind within the text"):
            labelled.privatize(text, labels=spans)


def test_labels_are_read_from_json_and_lists_and_nothing_else():
    wanted = [(0, 4, "PERSON")]
    for given_labels in ([[0, 4, "PERSON"]], [{"start": 0, "end": 4, "label": "PERSON"}]):
        assert read_labels(given_labels) == read_labels(json.dumps(given_labels)) == wanted
    assert read_labels(None) == read_labels(" ") == []
    for wrong in ("secret", 7, {"start": 0}, [[0, 4]], [{"start": 0, "end": 4}], ["secret"]):
        with pytest.raises(SpanError, match="expected") as caught:
            read_labels(wrong)
        assert "secret" not in str(caught.value)
