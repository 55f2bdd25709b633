"""Spans that come with a text, as tools for annotation export them: a list of starts, ends and labels.

Which column of a record holds them is the matter of ``corpus`` and ``engines``; whether they fit their text is checked in
``textpriv.spans.span``, like those of a detector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from textpriv.errors import SpanError

__all__ = ["read_labels"]

_WANTED = '[{"start": 0, "end": 4, "label": "PERSON"}], or [[0, 4, "PERSON"]]'


def read_labels(given: Any) -> list[tuple[Any, Any, Any]]:
    """Read the spans of one text.

    Parameters
    ----------
    given : str, list or None
        A list, or JSON of one, of objects with ``start``, ``end`` and ``label``, or of such triples; offsets count
        characters from 0. None and an empty text are no spans.

    Raises
    ------
    SpanError
        For anything else; nothing of it is quoted.

    Examples
    --------
    >>> read_labels('[{"start": 0, "end": 4, "label": "PERSON"}]')
    [(0, 4, 'PERSON')]
    """
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except (ValueError, RecursionError):
            raise SpanError(f"the labels are no JSON: expected {_WANTED}.") from None
    if given is None:
        return []
    if not isinstance(given, list):
        raise SpanError(f"the labels are no list: expected {_WANTED}.")
    return [_triple(number, span) for number, span in enumerate(given)]


def _triple(number: int, span: Any) -> tuple[Any, Any, Any]:
    if isinstance(span, Mapping) and {"start", "end", "label"} <= span.keys():
        return span["start"], span["end"], span["label"]
    if isinstance(span, list) and len(span) == 3:
        return span[0], span[1], span[2]
    raise SpanError(f"label {number} has no start, end and label: expected {_WANTED}.")
