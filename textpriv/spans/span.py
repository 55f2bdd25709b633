"""Spans of a text, by kind and offsets: read from labels, checked, and freed of overlaps.

Offsets count characters (code points). Empty spans are left out, and a boundary between a letter and its combining marks
moves outwards. Spans that their mechanism cannot read are as if not found. Of those that overlap the longest stays, of equal
lengths the leftmost, of equal spans the kind that the policy declares first.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from textpriv.errors import SpanError

__all__ = ["ReadSpan", "Span", "checked", "read_labels", "without_overlaps"]

_MARKS = {"Mn", "Mc", "Me"}
_LABELS = '[{"start": 0, "end": 4, "label": "PERSON"}], or [[0, 4, "PERSON"]]'


class Span(NamedTuple):
    """One span that a detector found: offsets in characters, ``text[start:end]``, and its kind, such as "PERSON"."""

    start: int
    end: int
    kind: str


class ReadSpan(NamedTuple):
    """A span with its mechanism's number in the policy, and the value that the mechanism read."""

    start: int
    end: int
    mechanism: int
    value: Any


def read_labels(given: Any) -> list[tuple[Any, Any, Any]]:
    """Read the spans that come with a text, as tools for annotation export them.

    That is a list, or JSON of one, of objects with ``start``, ``end`` and ``label``, or of such triples; offsets count
    characters from 0. None and an empty text are no spans. Errors quote nothing of it.
    """
    try:
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else None
        read = []
        for span in [] if given is None else given:
            if isinstance(span, Mapping):
                span = span["start"], span["end"], span["label"]
            start, end, label = span
            read.append((start, end, label))
        return read
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SpanError(f"the labels cannot be read: expected {_LABELS}.") from None


def checked(text: str, spans: Iterable[Sequence[Any]]) -> list[Span]:
    """Return the spans of a text with whole characters; a SpanError names what is none, and quotes nothing of the text."""
    done = []
    for number, span in enumerate(spans):
        match span:
            case [int(start), int(end), str(kind)] if 0 <= start <= end <= len(text):
                pass
            case _:
                raise SpanError(
                    f"span {number} is no start, end and kind within the text: offsets count characters from 0, not bytes, "
                    "and belong to this very text. Correct the detector or the labels."
                )
        if start < end:
            while start > 0 and _is_mark(text[start]):
                start -= 1
            while end < len(text) and _is_mark(text[end]):
                end += 1
            done.append(Span(start, end, kind))
    return list(dict.fromkeys(done))


def _is_mark(character: str) -> bool:
    """Whether a character belongs to the letter before it."""
    return character >= "\u0300" and unicodedata.category(character) in _MARKS


def without_overlaps(spans: Sequence[ReadSpan], size: int) -> list[ReadSpan]:
    """The spans that stay by the rule above, in the order of the text of so many characters."""
    taken = bytearray(size)
    left = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start, span.mechanism)):
        # What was taken is at least as long: where it overlaps it covers one of the ends.
        if not (taken[span.start] or taken[span.end - 1]):
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            left.append(span)
    return sorted(left)
