"""The record of a private document: its statement and its token counts, behind ``doc._.textpriv``.

A document carries the name of its statement alone, and each process keeps each statement once: workers of ``nlp.pipe`` would
else send a statement with every document.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from weakref import WeakSet

from spacy.tokens import Doc

__all__ = ["EXTENSION", "RECORD", "forms", "keep_statement", "record_of"]

EXTENSION = "textpriv"
RECORD: Any = ("._.", EXTENSION, None, None)  # the key of the record in ``Doc.user_data``

forms: WeakSet[Any] = (
    WeakSet()
)  # the spaCy forms of this process; each keeps its statements when it is prepared
_statements: dict[str, dict[str, Any]] = {}


def keep_statement(content: dict[str, Any]) -> str:
    """Keep a statement in this process, and return the name that documents carry."""
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    _statements.setdefault(name, content)
    return name


def record_of(doc: Doc) -> dict[str, Any] | None:
    """Return the statement and the token counts of a private document, None of a raw one.

    The statement is None if no pipeline of this process makes such documents.
    """
    record = doc.user_data.get(RECORD)
    if record is None:
        return None
    if record["statement"] not in _statements:
        for form in list(forms):
            form.prepare()
    return {"statement": _statements.get(record["statement"]), "counts": record["counts"]}


if not Doc.has_extension(EXTENSION):
    Doc.set_extension(EXTENSION, getter=record_of)
