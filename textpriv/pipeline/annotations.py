"""The record behind ``doc._.textpriv``, and annotations that private documents keep.

A label reveals something of the raw text. So annotations are lost unless they are asked for, and the statement names those.
A document has only the name of its statement, and each process keeps each statement once. Otherwise workers of ``nlp.pipe``
would send a statement with every document.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from textpriv.errors import MechanismError
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy

RECORD: Any = ("._.", "textpriv", None, None)  # the key of the record in ``Doc.user_data``

forms: WeakSet[Any] = WeakSet()  # of this process; each keeps its statements when it is prepared
_statements: dict[str, dict[str, Any]] = {}

_TOLD = {
    "cats": "the categories of a document (cats), carried over as they were",
    "ents": "the entities of a document (ents), carried over as they were annotated on the raw text: which tokens "
    "they cover, and their labels",
}


class LostAnnotationWarning(UserWarning):
    """Raw documents had annotations that the private ones have not."""


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


def is_private(doc: Doc) -> bool:
    """Whether a form made this document, or it is empty."""
    return len(doc) == 0 or doc.user_data.get(RECORD) is not None


if not Doc.has_extension(RECORD[1]):
    Doc.set_extension(RECORD[1], getter=record_of)


class Carried(NamedTuple):
    """The annotations that one raw document passes on; entities as (first character, one past the last, label)."""

    categories: dict[str, float]
    entities: list[tuple[int, int, str]]


class CarriedAnnotations:
    """The choice of annotations, "cats" and "ents", that go from raw to private documents.

    ``policy`` and ``language`` are those by which the raw text is tokenized.
    """

    def __init__(self, names: Iterable[str], policy: TokenPolicy, language: str) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._encoder = TextEncoder([], policy, language)
        self._warned: set[str] = set()
        if strange := set(self.names) - set(_TOLD):
            raise MechanismError(f'carry takes "cats" and "ents"; found {min(strange)!r}.')
        if "ents" in self.names and "drop" in policy.to_dict().values():
            raise MechanismError(
                'carry=["ents"] needs a policy that drops no token: entities are found by counting tokens. '
                'Use "mask" in its place.'
            )

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Items of the statement, one for each annotation that is kept."""
        return tuple(_TOLD[name] for name in self.names)

    def read(self, doc: Doc, typed: bool = False) -> Carried:
        """Return the annotations of a raw document that are kept, and warn once of others; typed spans are not lost."""
        kept = {*self.names, *(["ents"] if typed else [])}
        lost = [name for name in _TOLD if getattr(doc, name) and name not in kept]
        lost += ["spans"] * bool(doc.spans)
        # Extensions of a document as a whole: those of tokens and spans have positions.
        lost += [
            f"_.{key[1]}"
            for key in doc.user_data
            if isinstance(key, tuple) and key[0] == "._." and key[2] is None and key != RECORD
        ]
        if new := [name for name in lost if name not in self._warned]:
            self._warned.update(new)
            warnings.warn(
                f"Private documents are without {', '.join(new)} of the raw ones, which reveal something of the raw text. "
                'Put textpriv before the component that makes them, or replace entities with spans="chat". Or keep cats and '
                'ents with carry=["cats", "ents"], which the statement will name.',
                LostAnnotationWarning,
                stacklevel=2,
            )
        entities = doc.ents if "ents" in self.names else ()
        return Carried(
            dict(doc.cats) if "cats" in self.names else {},
            [(ent.start_char, ent.end_char, ent.label_) for ent in entities],
        )

    def name_in(self, doc: Doc) -> None:
        """Name the kept annotations in the statement of a private document that was made without them."""
        record = doc.user_data[RECORD]
        stated = _statements[record["statement"]]
        exposed = [*dict.fromkeys([*stated["not_protected"], *self.not_protected])]
        name = keep_statement({**stated, "not_protected": exposed})
        doc.user_data[RECORD] = {**record, "statement": name}

    def write(self, carried: Carried, text: str, doc: Doc) -> None:
        """Annotate the private document of a raw text; an entity covers the tokens whose raw ones it touches."""
        doc.cats = carried.categories
        if not carried.entities:
            return
        begins, ends = self._encoder.offsets(text).T
        found = []
        for first, last, label in carried.entities:
            touched = np.flatnonzero((ends > first) & (begins < last))
            if len(touched):
                found.append(Span(doc, int(touched[0]), int(touched[-1]) + 1, label=label))
        doc.ents = filter_spans(found)
