"""The record behind ``doc._.textpriv``, and annotations that private documents keep.

A label reveals something of the raw text. So annotations are lost unless they are asked for, and the statement names those.
A document has only the name of its statement, which each process keeps once.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from textpriv.errors import MechanismError
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy

RECORD: Any = ("._.", "textpriv", None, None)  # the key of the record in ``Doc.user_data``

forms: WeakSet[Any] = WeakSet()  # of this process; each keeps its statements when it is prepared
_statements: dict[str, dict[str, Any]] = {}

_COVERED = (
    "carried over as they were annotated on the raw text: which tokens they cover, and their labels"
)
_TOLD = {
    "cats": "the categories of a document (cats), carried over as they were",
    "ents": f"the entities of a document (ents), {_COVERED}",
    "spans": f"the span groups of a document (spans), {_COVERED}",
}
_EXTENSION = "_."  # before the name of an extension of a document
_TOLD_OF_EXTENSION = "the extension {} of a document, carried over as it was"


class LostAnnotationWarning(UserWarning):
    """Warn that private documents lack annotations of the raw ones."""


def keep_statement(content: dict[str, Any]) -> str:
    """Keep a statement in this process, and return the name that documents carry."""
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    _statements.setdefault(name, content)
    return name


def record_of(doc: Doc) -> dict[str, Any] | None:
    """Return the statement and the token counts of a private document, None of a raw one."""
    record = doc.user_data.get(RECORD)
    if record is None:
        return None
    if record["statement"] not in _statements:
        for form in list(forms):
            form.prepare()
    if record["statement"] not in _statements:
        told = "The statement of this Doc is with the pipeline that made it: spacy.load the pipeline first."
        warnings.warn(told, stacklevel=2)
    return {"statement": _statements.get(record["statement"]), "counts": record["counts"]}


def is_private(doc: Doc) -> bool:
    """Whether a form made this document, or it is empty."""
    return len(doc) == 0 or doc.user_data.get(RECORD) is not None


def _detach(docs: Iterable[Doc]) -> Iterator[Doc]:
    for doc in docs:
        doc._context = (doc.user_data.pop(RECORD, None), doc._context)
        yield doc


def receive(nlp: Language, texts: Any, pipes: Iterable[Any], *settings: int) -> Iterator[Doc]:
    """Do what ``Language._multiprocessing_pipe`` does, and let records go beside the documents.

    spaCy takes as long for one entry of ``user_data`` as for the rest of a document.
    """
    for doc in type(nlp)._multiprocessing_pipe(nlp, texts, [*pipes, _detach], *settings):
        record, doc._context = doc._context
        if record is not None:
            doc.user_data[RECORD] = record
        yield doc


if not Doc.has_extension(RECORD[1]):
    Doc.set_extension(RECORD[1], getter=record_of)


class Carried(NamedTuple):
    """The annotations that one raw document passes on; spans as (first character, one past the last, label)."""

    categories: dict[str, float]
    entities: list[tuple[int, int, str]]
    groups: dict[str, list[tuple[int, int, str]]]
    extensions: dict[Any, Any]  # as in ``Doc.user_data``


class CarriedAnnotations:
    """The choice of annotations, "cats", "ents", "spans" and "_.NAME", that go from raw to private documents.

    ``policy`` and ``language`` are those by which the raw text is tokenized.
    """

    def __init__(self, names: Iterable[str], policy: TokenPolicy, language: str) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._encoder = TextEncoder([], policy, language)
        self._warned: set[str] = set()
        extensions = [each for each in self.names if each.startswith(_EXTENSION)]
        plain = (each.removeprefix(_EXTENSION) for each in extensions)
        self._keys: list[Any] = [("._.", name, None, None) for name in plain]
        if strange := set(self.names) - {*_TOLD, *extensions}:
            raise MechanismError(
                f'carry takes "cats", "ents", "spans" and extensions such as "_.origin"; found {min(strange)!r}.'
            )
        if {"ents", "spans"} & {*self.names} and "drop" in policy.to_dict().values():
            raise MechanismError(
                'To carry "ents" or "spans" needs a policy that drops no token: they are found by counting tokens. '
                'Use "mask" in its place.'
            )

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Items of the statement, one for each annotation that is kept."""
        return tuple(_TOLD.get(name) or _TOLD_OF_EXTENSION.format(name) for name in self.names)

    def read(self, doc: Doc, typed: bool = False) -> Carried:
        """Return the annotations of a raw document that are kept, and warn once of others; typed spans are not lost."""
        kept = {*self.names, *(["ents"] if typed else [])}
        lost = [name for name in _TOLD if getattr(doc, name) and name not in kept]
        keys = (key for key in doc.user_data if isinstance(key, tuple) and key != RECORD)
        # Extensions of a document as a whole: those of tokens and spans have positions.
        own = [f"{_EXTENSION}{key[1]}" for key in keys if key[0] == "._." and key[2] is None]
        lost += [name for name in own if name not in kept]
        if new := [name for name in lost if name not in self._warned]:
            self._warned.update(new)
            warnings.warn(
                f"Private documents are without {', '.join(new)} of the raw ones, which reveal something of the raw text. "
                'Put textpriv before the component that makes them, or replace entities with spans="chat". Or name in carry '
                'what to keep, such as carry=["cats", "ents"]. The statement will name it.',
                LostAnnotationWarning,
                stacklevel=2,
            )
        groups = doc.spans if "spans" in self.names else {}
        return Carried(
            categories=dict(doc.cats) if "cats" in self.names else {},
            entities=_places(doc.ents) if "ents" in self.names else [],
            groups={name: _places(group) for name, group in groups.items()},
            extensions={key: doc.user_data[key] for key in self._keys if key in doc.user_data},
        )

    def name_in(self, doc: Doc) -> None:
        """Name the kept annotations in the statement of a private document that was made without them."""
        record = doc.user_data[RECORD]
        stated = _statements[record["statement"]]
        exposed = [*dict.fromkeys([*stated["not_protected"], *self.not_protected])]
        name = keep_statement({**stated, "not_protected": exposed})
        doc.user_data[RECORD] = {**record, "statement": name}

    def write(self, carried: Carried, text: str, doc: Doc) -> None:
        """Annotate the private document of a raw text; a span covers the tokens whose raw ones it touches."""
        doc.cats = carried.categories
        doc.user_data.update(carried.extensions)
        if not carried.entities and not carried.groups:
            return
        begins, ends = self._encoder.offsets(text).T

        def moved(places: list[tuple[int, int, str]]) -> Iterator[Span]:
            for first, last, label in places:
                touched = np.flatnonzero((ends > first) & (begins < last))
                if len(touched):
                    yield Span(doc, int(touched[0]), int(touched[-1]) + 1, label=label)

        doc.ents = filter_spans(moved(carried.entities))
        for name, places in carried.groups.items():
            doc.spans[name] = list(moved(places))


def _places(spans: Iterable[Span]) -> list[tuple[int, int, str]]:
    return [(span.start_char, span.end_char, span.label_) for span in spans]
