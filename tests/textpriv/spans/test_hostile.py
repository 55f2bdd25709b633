"""Spans that nobody sane would give end in the stated rule or in an error that names the text, and in linear time."""

from __future__ import annotations

import itertools
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import SpanError
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.spans import span as module
from textpriv.spans.laws.mask import Mask
from textpriv.spans.laws.numbers import Number
from textpriv.spans.policy import SpanPolicy
from textpriv.spans.span import checked

POLICY = SpanPolicy({"A": Mask("A"), "N": Number(1.0, low=0, high=9, kind="N")})
COUNT = 5_000  # spans of a text: the time of all that is here grows with it


@pytest.fixture(scope="module")
def made(three_points):
    return Privatizer(TEM(three_points, epsilon=0.8), spans=POLICY)


def test_many_spans_of_a_text_come_out_each_in_its_place(made):
    labels = [(3 * number, 3 * number + 1, "A") for number in range(COUNT)]
    assert made.privatize("7, " * COUNT, labels=labels) == "[A], " * (COUNT - 1) + "[A],"


def looks(monkeypatch):
    """Count how often a place of a text is looked at."""
    asked = []
    joined = module._joined
    monkeypatch.setattr(module, "_joined", lambda *at: asked.append(at) or joined(*at))
    return asked


def test_each_place_is_looked_at_once_for_all_spans_inside_one_character(monkeypatch):
    asked = looks(monkeypatch)
    text = "a" + "\u0301" * COUNT + "b"
    assert checked(text, [(i, i + 1, "A") for i in range(COUNT)]) == [(0, COUNT + 1, "A")]
    assert len(asked) <= 4 * COUNT


def test_spans_that_overlap_too_deep_are_an_error_that_quotes_nothing(made):
    labels = [(i, COUNT, "N") for i in range(COUNT)]
    with pytest.raises(
        SpanError, match=r"^document 1: its spans overlap more than 1,000 deep"
    ) as caught:
        list(made.pipe(["fine", "s" * COUNT], labels=[[], labels]))
    assert "sss" not in str(caught.value)
    assert made.privatize("s" * 100, labels=[(i, 100, "A") for i in range(100)]) == "[A]"


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
def test_boundaries_in_a_character_move_outwards_and_empty_spans_are_left_out(text, spans):
    spans = [(min(a, b, len(text)), min(max(a, b), len(text)), kind) for a, b, kind in spans]
    assert [*map(tuple, checked(text, spans))] == [*dict.fromkeys(slowly(text, spans))]


@given(
    st.text("7 a\u0301\ud83d\udc4d👍\n", max_size=8),
    st.lists(
        st.tuples(st.integers(-2, 10), st.integers(-2, 10), st.sampled_from(["A", "N", "strange"])),
        max_size=5,
    ),
)
def test_any_spans_of_any_text_end_in_a_release_or_an_error_of_this_library(made, text, spans):
    if all(0 <= start <= end <= len(text) for start, end, _ in spans):
        made.privatize(text, labels=spans).encode("utf-8")
    else:
        with pytest.raises(SpanError, match="does not lie within the text"):
            made.privatize(text, labels=spans)


def test_half_a_surrogate_pair_shifts_no_span(made):
    text = "\ud83d 7 \udc4d"
    assert made.privatize(text, labels=[(2, 3, "A")]).split()[1] == "[A]"


@pytest.mark.parametrize(
    "span",
    [(0, 5), (0, 5, 7), (None, 1, "A"), (0, True, "A"), (0.0, 1, "A"), (2, 1, "A"), (0, 99, "A")],
)
def test_a_record_with_bad_spans_is_named_and_what_was_done_is_kept(three_points, span):
    made = Privatizer(TEM(three_points, epsilon=0.8), spans=POLICY)
    texts = ["first 7", "second 7", "secret 7"]
    out = made.pipe(texts, labels=iter([[], [(0, 6, "A")], [span]]), batch_size=1)
    done = list(itertools.islice(out, 2))
    assert done[1].startswith("[A]")
    with pytest.raises(SpanError, match=r"^document 2: span 0") as caught:
        next(out)
    assert "secret" not in json.dumps(str(caught.value))
