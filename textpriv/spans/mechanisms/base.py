"""The interface of a mechanism of typed spans, and the registry by which policies and the audit find mechanisms.

A mechanism reads a surface as a value: a tuple of what is protected and of its *structure*, which is public (a unit, a
written form). What it draws depends on the values, on public settings and on random words alone. The proofs are in
``mechanisms.md``, section 10.4.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import catalogue
import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.randomness import (
    DocumentKey,
    KeyedStreams,
    RandomWords,
    Stream,
    framed,
    identity_bytes,
)

__all__ = ["ALGORITHM", "LONGEST", "WHOSE", "Scopes", "SpanClaim", "SpanMechanism", "registry"]

# Other packages add a mechanism by the entry point group ``textpriv_span_mechanisms``, under a name of its own.
registry = catalogue.create("textpriv", "span_mechanisms", entry_points=True)

ALGORITHM = 3  # raise it when the same settings draw otherwise under the same key
LONGEST = 100  # characters of a number or a date
WHOSE = (
    "a mechanism that is consistent within a person needs to know whose text it is: name the author of each document "
    "(DocumentName(name, author), --author), or make the mechanism consistent within a document."
)


@dataclass(frozen=True)
class SpanClaim:
    """The guarantee of a mechanism for the spans that it draws."""

    mechanism: str  # with its settings
    epsilon: float  # nats per unit; 0 if a surface does not depend on the value
    unit: str  # "step of the grid", "day", or "span" if the loss has no measure
    largest: float  # nats, between any two values of one structure
    per: Literal["span", "document", "person"] = "span"  # what pays once
    proof: str = "mechanisms.md 10.4"
    proved: bool = True
    not_protected: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scopes:
    """Secret functions of a document and of its person: the same in every text, run and worker under one run key."""

    streams: KeyedStreams = field(repr=False)
    document: DocumentKey = field(repr=False)
    person: DocumentKey | None = field(default=None, repr=False)

    def stream(self, scope: Literal["document", "person"], label: bytes) -> Stream:
        """Return the stream of a scope under a label, from its beginning."""
        name = self.document if scope == "document" else self.person
        if name is None:
            raise MechanismError(WHOSE)
        parts = (b"span law", scope.encode(), identity_bytes(name), label)
        return self.streams.stream(b"".join(map(framed, parts)))


class SpanMechanism(ABC):
    """A randomised map from the values of one kind of span to surfaces."""

    name: str  # in the registry
    scope: Literal["document", "person"] | None = None  # within which what is drawn is kept

    def __init__(self, kind: str | None = None) -> None:
        self.kind = self.name.upper() if kind is None else kind

    @abstractmethod
    def parse(self, text: str) -> Any | None:
        """Return the value of a surface, a tuple; None if this mechanism cannot read it, which is public structure."""

    @abstractmethod
    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Draw a private surface for every value: all those of a document, from its stream or its scopes."""

    def structure(self, value: Any) -> Hashable:
        """Return the public part of a value: the loss is bounded between values of one structure only."""
        return tuple(value[1:])

    @abstractmethod
    def loss(self, first: Any, second: Any) -> float:
        """Largest loss between two values drawn alone, in nats: a proved bound; infinite across structures."""

    def joint_loss(self, first: Sequence[Any], second: Sequence[Any]) -> float:
        """Largest loss between two sequences of values of a scope or document; infinite if they are not adjacent."""
        if len(first) != len(second):
            return math.inf
        return math.fsum(map(self.loss, first, second))

    def stays(self) -> dict[str, float]:
        """How likely a value comes out as it was read, at most, by where it lies; empty if that is not known."""
        return {}

    @abstractmethod
    def outputs(self, structure: Any) -> Sequence[str]:
        """All surfaces that values of a structure can get; a MechanismError if there is no such list."""

    @abstractmethod
    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Natural logarithm of the probabilities of the :meth:`outputs`, for one value drawn alone."""

    @abstractmethod
    def claim(self) -> SpanClaim:
        """Return what is guaranteed, and what stays visible."""

    @classmethod
    @abstractmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Mechanisms with small public settings, each with surfaces by which the audit attacks it."""

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this mechanism, in JSON types: attributes of the same names."""
        given = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
        }

    def of_kind(self, kind: str) -> SpanMechanism:
        """The same mechanism for another kind, whose draws within a scope are independent of this one's."""
        return self if kind == self.kind else type(self)(**{**self.settings(), "kind": kind})

    def drawn_once(self) -> bytes:
        """What the one draw of a scope follows from, besides a key and a name: an account counts equal ones once."""
        return self.fingerprint().encode()

    def fingerprint(self) -> str:
        """Everything that decides, with a key, what is drawn: for run keys and ledgers (64 hexadecimal digits)."""
        mechanism = f"{type(self).__module__}.{type(self).__qualname__}"
        content = json.dumps([ALGORITHM, mechanism, self.settings()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.settings()), ()  # engines send it to their workers
