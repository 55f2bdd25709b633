"""Spans of a text, by kind and offsets: how they are checked, and the one rule by which overlaps are resolved.

How spans are found is in ``textpriv.spans.detectors``, what is released for them in ``textpriv.spans.laws``.

The rule
--------
Offsets count characters (code points) and stand between 0 and the length of the text; others are an error, for they are
those of another text. Empty spans are left out. A boundary between a letter and its combining marks moves outwards. Spans
whose kind has no law, or that their law cannot read, are as if not found. Of those that overlap the longest stays, of equal
lengths the leftmost, of equal spans the kind that is declared first. A text whose spans together are more than a thousand
times as long as it is an error.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from textpriv.errors import SpanError

__all__ = ["ReadSpan", "Span", "checked", "without_overlaps"]

_MARKS = {"Mn", "Mc", "Me"}
_DEEPEST = 1000  # times the length of a text that its spans may have together, for each is read


class Span(NamedTuple):
    """One span that a detector found.

    Attributes
    ----------
    start, end : int
        Offsets in characters, ``text[start:end]``.
    kind : str
        What the detector calls it, such as "PERSON".
    """

    start: int
    end: int
    kind: str


class ReadSpan(NamedTuple):
    """A span with its law's number in the policy and what the law read."""

    start: int
    end: int
    law: int
    value: Any


def checked(text: str, spans: Iterable[Sequence[Any]]) -> list[Span]:
    """Spans of a text with whole characters, without the empty ones.

    Raises
    ------
    SpanError
        For what is no span of this text; says which one it is and nothing of the text.
    """
    size, done, whole = len(text), [], text.isascii()
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for number, span in enumerate(spans):
        try:
            start, end, kind = span
        except (TypeError, ValueError):
            raise SpanError(f"span {number} is not a start, an end and a kind.") from None
        if type(start) is not int or type(end) is not int or not isinstance(kind, str):
            raise SpanError(
                f"span {number}: expected whole numbers as start and end, and text as the kind."
            )
        if not 0 <= start <= end <= size:
            raise SpanError(
                f"span {number} does not lie within the text: offsets count characters from 0, not bytes, and belong to "
                "this very text. Correct the detector or the labels."
            )
        if start == end:
            continue
        if not whole:  # in ASCII there are no marks that belong to a letter
            start, end = _moved(text, start, -1, starts), _moved(text, end, 1, ends)
        done.append(Span(start, end, kind))
    different = list(dict.fromkeys(done))
    if sum(end - start for start, end, _ in different) > _DEEPEST * size:
        raise SpanError(
            f"its spans overlap more than {_DEEPEST:,} deep. Correct the detector or the labels."
        )
    return different


def _moved(text: str, offset: int, step: int, known: dict[int, int]) -> int:
    """A boundary moved outwards to where no character is cut; each place of a text is looked at once for all spans."""
    passed = []
    while 0 < offset < len(text) and offset not in known and _joined(text, offset):
        passed.append(offset)
        offset += step
    if passed or offset in known:
        offset = known.get(offset, offset)
        known.update(dict.fromkeys(passed, offset))
    return offset


def _joined(text: str, offset: int) -> bool:
    """Whether what stands before and after an offset is one character to its reader."""
    return text[offset] >= "\u0300" and unicodedata.category(text[offset]) in _MARKS


def without_overlaps(spans: Sequence[ReadSpan], size: int) -> list[ReadSpan]:
    """The spans that stay by the rule above, in the order of the text of so many characters."""
    if len(spans) < 2:
        return list(spans)
    taken = bytearray(size)
    left = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start, span.law)):
        # What was taken is at least as long: where it overlaps it covers one of the ends.
        if not (taken[span.start] or taken[span.end - 1]):
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            left.append(span)
    return sorted(left)
