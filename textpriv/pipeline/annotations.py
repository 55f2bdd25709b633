"""Annotations of raw documents: which of them private documents keep, and a warning of those that are lost.

A label says something of the raw text. So none is kept unless it is asked for, and the statement names each that is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from textpriv.errors import MechanismError
from textpriv.pipeline.record import RECORD, keep_statement, record_of
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy

__all__ = ["Carried", "CarriedAnnotations", "LostAnnotationWarning"]

_TOLD = {
    "cats": "the categories of a document (cats), carried over as they were",
    "ents": "the entities of a document (ents), carried over as they were annotated on the raw text: which tokens "
    "they cover, and their labels",
}


class LostAnnotationWarning(UserWarning):
    """Raw documents had annotations that the private ones have not."""


class Carried(NamedTuple):
    """The annotations that one raw document passes on; entities as (first character, one past the last, label)."""

    categories: dict[str, float] | None
    entities: list[tuple[int, int, str]]


class CarriedAnnotations:
    """The choice of annotations that go from raw to private documents.

    Parameters
    ----------
    names
        ``"cats"`` and ``"ents"``.
    policy, language
        By which the raw text is tokenized.

    Raises
    ------
    MechanismError
        For another name, or entities if the policy drops tokens.
    """

    def __init__(self, names: Iterable[str], policy: TokenPolicy, language: str) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._encoder = TextEncoder([], policy, language)
        self._warned: set[str] = set()
        strange = set(self.names) - set(_TOLD)
        if strange:
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

    def read(self, doc: Doc, typed: bool = False) -> Carried | None:
        """Return the annotations of a raw document that are kept, and warn once of others; typed spans are not lost."""
        if typed:
            self._warned.add("ents")
        self._warn(doc)
        if not self.names:
            return None
        entities = doc.ents if "ents" in self.names else ()
        return Carried(
            dict(doc.cats) if "cats" in self.names else None,
            [(ent.start_char, ent.end_char, ent.label_) for ent in entities],
        )

    def name_in(self, doc: Doc) -> None:
        """Name the kept annotations in the statement of a private document that was made without them."""
        record = record_of(doc)
        assert record is not None
        stated = record["statement"]
        exposed = [*dict.fromkeys([*stated["not_protected"], *self.not_protected])]
        name = keep_statement({**stated, "not_protected": exposed})
        doc.user_data[RECORD] = {"statement": name, "counts": record["counts"]}

    def write(self, carried: Carried | None, text: str, doc: Doc) -> None:
        """Annotate the private document of a raw text."""
        if carried is None:
            return
        if carried.categories is not None:
            doc.cats = carried.categories
        if carried.entities:
            doc.ents = self._entities(carried.entities, text, doc)

    def _entities(self, entities: list[tuple[int, int, str]], text: str, doc: Doc) -> list[Span]:
        """Return the entities as ranges of private tokens: those whose raw tokens they touch."""
        begins, ends = self._encoder.offsets(text).T
        found = []
        for first, last, label in entities:
            touched = np.flatnonzero((ends > first) & (begins < last))
            if len(touched):
                found.append(Span(doc, int(touched[0]), int(touched[-1]) + 1, label=label))
        return filter_spans(found)

    def _warn(self, doc: Doc) -> None:
        for name, there in (("cats", doc.cats), ("ents", doc.ents), ("spans", doc.spans)):
            if there and name not in self.names:
                self._tell(name, name, "" if name == "spans" else name)
        for key in doc.user_data:
            # Of a document as a whole: those of tokens and spans have positions.
            if isinstance(key, tuple) and key[0] == "._." and key[2] is None and key != RECORD:
                self._tell(f"_.{key[1]}", f"the extension _.{key[1]}", "")

    def _tell(self, name: str, lost: str, keep: str) -> None:
        if name in self._warned:
            return
        self._warned.add(name)
        way = f', or keep it with carry=["{keep}"], which the statement will name' if keep else ""
        warnings.warn(
            f"Private documents are without {lost} of the raw ones, which reveal something of the raw text. Put textpriv "
            f"before the component that makes them{way}.",
            LostAnnotationWarning,
            stacklevel=2,
        )
