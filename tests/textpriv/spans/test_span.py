"""Spans are checked against their text, and overlaps resolved by the one stated rule."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import SpanError
from textpriv.spans.span import ReadSpan, Span, checked, without_overlaps

spans = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(0, 2)).map(
        lambda given: ReadSpan(given[0], given[0] + given[1], given[2], None)
    ),
    max_size=7,
)


def overlap(first, second):
    return first.start < second.end and second.start < first.end


@given(spans)
def test_what_stays_is_disjoint_and_all_else_yields_to_what_the_rule_prefers(given_spans):
    left = without_overlaps(given_spans, 20)
    assert left == sorted(left)
    # By the definition itself: in the order of the rule each stays that overlaps none before it.
    expected = []
    for span in sorted(given_spans, key=lambda each: (each.start - each.end, each.start, each.law)):
        if not any(overlap(span, other) for other in expected):
            expected.append(span)
    assert left == sorted(expected)


@pytest.mark.parametrize(
    "span",
    [
        (0, 9, "A"),
        (-1, 2, "A"),
        (3, 2, "A"),
        (0.0, 2, "A"),
        (True, 2, "A"),
        ("0", 2, "A"),
        (0, 2, None),
        (0, 2),
        7,
    ],
)
def test_what_is_no_span_of_the_text_is_refused_by_its_number(span):
    with pytest.raises(SpanError, match="span 1") as caught:
        checked("Anna Kay", [(0, 4, "A"), span])
    assert "Anna" not in str(caught.value)


def test_empty_spans_are_left_out_and_boundaries_move_out_of_characters():
    text = "Cafe\N{COMBINING ACUTE ACCENT}s"
    assert checked(text, [(2, 2, "A"), (0, 4, "B"), (4, 6, "C")]) == [
        Span(0, 5, "B"),
        Span(3, 6, "C"),
    ]


def test_spans_of_one_text_are_resolved_in_time_that_grows_with_their_number():
    started = time.process_time()
    many = [ReadSpan(at, at + 1 + at % 3, at % 2, None) for at in range(200_000)]
    left = without_overlaps(many, 200_004)
    assert all(first.end <= second.start for first, second in zip(left, left[1:], strict=False))
    assert time.process_time() - started < 6
