"""Annotations of raw documents: which of them are carried over to private ones, and a warning of those that are lost.

A label says something of the raw text, so none is carried over unasked, and what is carried over is named in the statement.
Categories and extensions are of a document as a whole. An entity is a range of tokens: it is found again by the positions of
the tokens of the raw text, as the privatizer makes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from spacy.tokens import Doc, Span, Token
from spacy.util import filter_spans

from textpriv.errors import MechanismError, RawTextError
from textpriv.pipeline.names import EXTENSION
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy

__all__ = ["Carried", "CarriedAnnotations", "LostAnnotationWarning"]

_PREFIX = "_."


class LostAnnotationWarning(UserWarning):
    """Raw documents had annotations that the private ones have not."""


class Carried(NamedTuple):
    """What is carried over from one raw document; entities as (first character, one past the last, label)."""

    categories: dict[str, float] | None
    entities: list[tuple[int, int, str]]
    extensions: dict[str, Any]


class CarriedAnnotations:
    """The choice of annotations that go from raw to private documents.

    Parameters
    ----------
    names
        ``"cats"``, ``"ents"`` and extensions of documents as ``"_.name"``.
    policy, language
        By which the raw text is tokenized.

    Raises
    ------
    MechanismError
        For another name, an extension that is not set or is computed, or entities where the policy drops tokens.
    """

    def __init__(self, names: Iterable[str], policy: TokenPolicy, language: str) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._encoder = TextEncoder([], policy, language)
        self._warned: set[str] = set()
        self._given: dict[str, Any] | None = None
        self._named: dict[str, Any] = {}
        for name in self.names:
            if name not in ("cats", "ents"):
                _check_extension(name)
        if "ents" in self.names and "drop" in policy.to_dict().values():
            raise MechanismError(
                'carry=["ents"] needs a policy that drops no token: entities are found by counting tokens. '
                'Use "mask" in its place.'
            )

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What the statement says of each that is carried over."""
        told = {
            "cats": "the categories of a document (cats), carried over as they were",
            "ents": "the entities of a document (ents), carried over as they were annotated on the raw text: which tokens "
            "they cover, and their labels",
        }
        return tuple(
            told.get(name, f"the extension {name} of a document, carried over as it was")
            for name in self.names
        )

    def read(self, doc: Doc, typed: bool = False) -> Carried | None:
        """Return what is carried over of a raw document, and warn once of what is lost: no entities that are typed spans."""
        if typed:
            self._warned.add("ents")
        self._warn(doc)
        if not self.names:
            return None
        return Carried(
            dict(doc.cats) if "cats" in self.names else None,
            [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
            if "ents" in self.names
            else [],
            {
                name: _without_tokens(name, doc._.get(name.removeprefix(_PREFIX)))
                for name in self.names
                if name.startswith(_PREFIX)
            },
        )

    def name_in(self, doc: Doc) -> None:
        """Name what is carried over in the statement of a private document that was made without."""
        told = getattr(doc._, EXTENSION)
        if self._given is not told["statement"]:
            self._given = told["statement"]
            exposed = dict.fromkeys([*self._given["not_protected"], *self.not_protected])
            self._named = {
                **self._given,
                "not_protected": type(self._given["not_protected"])(exposed),
            }
        setattr(doc._, EXTENSION, {**told, "statement": self._named})

    def write(self, carried: Carried | None, text: str, doc: Doc) -> None:
        """Annotate the private document of a raw text."""
        if carried is None:
            return
        if carried.categories is not None:
            doc.cats = carried.categories
        for name, value in carried.extensions.items():
            doc._.set(name.removeprefix(_PREFIX), value)
        if carried.entities:
            doc.ents = self._entities(carried.entities, text, doc)

    def _entities(self, entities: list[tuple[int, int, str]], text: str, doc: Doc) -> list[Span]:
        """Return the entities as ranges of private tokens: those whose raw tokens they touch."""
        places = self._encoder.offsets(text)
        begins, ends = places[:, 0], places[:, 1]
        found = []
        for first, last, label in entities:
            touched = np.flatnonzero((ends > first) & (begins < last))
            found.append(Span(doc, int(touched[0]), int(touched[-1]) + 1, label=label))
        return filter_spans(found)

    def _warn(self, doc: Doc) -> None:
        for name, there in (("cats", doc.cats), ("ents", doc.ents), ("spans", doc.spans)):
            if there and name not in self.names and name not in self._warned:
                self._tell(name, _lost(name, name if name != "spans" else ""))
        for key in doc.user_data:
            # Of a document as a whole: those of tokens and spans have positions.
            if isinstance(key, tuple) and key[0] == "._." and key[2] is None:
                name = _PREFIX + key[1]
                if name not in (*self.names, _PREFIX + EXTENSION, *self._warned):
                    self._tell(name, _lost(f"the extension {name}", name))

    def _tell(self, name: str, message: str) -> None:
        self._warned.add(name)
        warnings.warn(message, LostAnnotationWarning, stacklevel=2)


def _lost(what: str, name: str) -> str:
    way = f', or carry it over with carry=["{name}"], which the statement will name' if name else ""
    return (
        f"Private documents are without {what} of the raw ones, which tell of the raw text. Put textpriv before what makes "
        f"them, so that they are made of private text{way}."
    )


def _check_extension(name: str) -> None:
    if not name.startswith(_PREFIX) or name == _PREFIX + EXTENSION:
        raise MechanismError(
            'carry takes "cats", "ents" and extensions of documents such as "_.source"; '
            f"found {name!r}."
        )
    short = name.removeprefix(_PREFIX)
    if not Doc.has_extension(short):
        raise MechanismError(
            f"carry names the extension {name!r}, which is not set: call Doc.set_extension({short!r}, default=None) first."
        )
    _, method, getter, _ = Doc.get_extension(short)
    if method is not None or getter is not None:
        raise MechanismError(
            f"carry names the extension {name!r}, which is computed and holds nothing to carry over. Leave it out."
        )


def _without_tokens(name: str, value: Any) -> Any:
    if isinstance(value, Doc | Span | Token):
        raise RawTextError(
            f"The extension {name!r} holds a part of the raw document, so it cannot be carried over. Leave it out of carry."
        )
    return value
