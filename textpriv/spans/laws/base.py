"""What every law of a typed span is: a reading of its text, private surfaces, a loss between two values, and a claim.

A law sees the surface of one span after another and random words, never the text around them, a detector or a file. What
all laws share stands here; each law is a file of its own with its proof. Which law a kind of span goes to is the policy's.

The proof that they share
-------------------------
A value has a *structure*, which is public: what two adjacent documents have in common at this span (a unit, a written
form). Spans are drawn independently given the documents, so the loss of a document is at most the sum over its spans
(mechanisms.md 10.4), except where a law draws once for a whole person or document: :meth:`SpanLaw.joint_loss` is the bound
for all values of one kind together, and what an account adds up. A surface is a function of the value, of public settings
and of random words alone; so it stays what it is whatever stands elsewhere in the text.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

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

__all__ = ["ALGORITHM", "LARGEST_LIST", "LONGEST", "Scopes", "SpanClaim", "SpanLaw"]

# The version of the laws and their samplers: raised when the same settings draw otherwise under the same key.
ALGORITHM = 2
LARGEST_LIST = 1 << 20  # outputs that a law writes down at most
WHOSE = (
    "a law that is consistent within a person needs to know whose text it is: name the author of each document "
    "(Document(name, author), --author), or make the law consistent within a document."
)
LONGEST = 100  # characters of a number or a date; what is longer is none


@dataclass(frozen=True)
class SpanClaim:
    """What a law guarantees of the spans that it draws.

    Attributes
    ----------
    law : str
        Which law, with its settings.
    epsilon : float
        Nats per ``unit``; 0 where a surface does not depend on the value.
    unit : str
        What the loss is measured in: "step of the grid", "day", or "span" where it has no measure.
    largest : float
        Largest loss between any two values of one structure, in nats.
    per : str
        What pays once: "span"; or "document" or "person" for a law that draws once for all spans of one.
    proof : str
        Where the proof stands.
    proved : bool
    not_protected : tuple of str
        What stays visible.
    assumptions : tuple of str
    """

    law: str
    epsilon: float
    unit: str
    largest: float
    per: Literal["span", "document", "person"] = "span"
    proof: str = "mechanisms.md 10.4"
    proved: bool = True
    not_protected: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scopes:
    """Secret functions of a document and of its person, for laws that draw the same again.

    A stream of a scope depends on the run key, the name of the document or person and a label: not on what the document
    holds, nor on what was drawn before. So it is the same in every text, run, worker and engine under one run key.

    Parameters
    ----------
    streams : KeyedStreams
        Of the run key.
    document : str, int or bytes
    person : str, int or bytes, optional
        Whose text it is.
    """

    streams: KeyedStreams = field(repr=False)
    document: DocumentKey = field(repr=False)
    person: DocumentKey | None = field(default=None, repr=False)

    def stream(self, scope: Literal["document", "person"], label: bytes) -> Stream:
        """The stream of a scope under a label, from its beginning.

        Raises
        ------
        MechanismError
            For the scope of a person where nobody is named.
        """
        name = self.document if scope == "document" else self.person
        if name is None:
            raise MechanismError(WHOSE)
        parts = (b"span law", scope.encode(), identity_bytes(name), label)
        return self.streams.stream(b"".join(map(framed, parts)))


class SpanLaw(ABC):
    """A randomised map from the values of one kind of span to surfaces.

    Parameters
    ----------
    kind : str, optional
        What detectors call these spans, such as "DATE"; default the law's name in capitals.

    Attributes
    ----------
    name : str
        The law's registered name.
    scope : str or None
        "document" or "person" where what is drawn is kept within one; :meth:`draw` then needs ``scopes``.
    """

    name: str
    scope: Literal["document", "person"] | None = None

    def __init__(self, kind: str | None = None) -> None:
        self.kind = self.name.upper() if kind is None else kind

    @abstractmethod
    def parse(self, text: str) -> Any | None:
        """The value of a span's surface, hashable; None where this law cannot read it.

        A span that cannot be read goes through the word mechanism, so whether it can be read is public structure.
        """

    @abstractmethod
    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Draw a private surface for every value.

        Parameters
        ----------
        values : sequence
            As :meth:`parse` gives them: all spans of one document that this law draws, in order.
        stream : RandomWords
            The document's, read on from where it stands.
        scopes : Scopes, optional
            Needed where ``scope`` is not None.

        Returns
        -------
        list of str
            Functions of the value, public settings and random words alone.
        """

    def draw_documents(
        self,
        values: Sequence[Any],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
        scopes: Sequence[Scopes | None],
    ) -> list[str]:
        """What :meth:`draw` gives for one document after another, that have values here.

        Parameters
        ----------
        values : sequence
            Those of all documents.
        offsets : ndarray of int64, shape (D + 1,)
            Of the documents in the values.
        streams, scopes : sequence
            One for each document.
        """
        drawn: list[str] = []
        for number, (first, last) in enumerate(pairwise(offsets.tolist())):
            drawn += self.draw(values[first:last], streams[number], scopes[number])
        return drawn

    @abstractmethod
    def loss(self, first: Any, second: Any) -> float:
        """Largest loss between two values drawn alone, in nats: exact or a proved bound; infinite across structures."""

    def joint_loss(self, first: Sequence[Any], second: Sequence[Any]) -> float:
        """Largest loss between two sequences of values: all of a scope, or of a document where there is no scope.

        Infinite between sequences that are not adjacent.
        """
        if len(first) != len(second):
            return math.inf
        return math.fsum(map(self.loss, first, second))

    def stays(self) -> dict[str, float]:
        """How likely it is at most that a value comes out as it was read, by where it lies; empty where that is not known.

        Where the structure decides, as in a format of an identifier, it is not known before a value is.
        """
        return {}

    def structure(self, value: Any) -> Hashable:
        """What of a value is public: the loss is bounded between values of one structure only."""
        return ()

    @abstractmethod
    def outputs(self, structure: Hashable) -> Sequence[str]:
        """All surfaces that values of a structure can get, in the order of :meth:`log_prob`.

        Raises
        ------
        MechanismError
            If they are more than ``LARGEST_LIST``, or the law has no list of them.
        """

    @abstractmethod
    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Natural logarithm of the law of one value drawn alone, over its :meth:`outputs`.

        Raises
        ------
        MechanismError
            As :meth:`outputs`.
        """

    @abstractmethod
    def claim(self) -> SpanClaim:
        """What is guaranteed, what stays visible, and where the proof stands."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this law, in JSON types."""

    @classmethod
    @abstractmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Laws with small public settings, each with surfaces by which the audit kit attacks it."""

    def of_kind(self, kind: str) -> SpanLaw:
        """The same law for another kind: what it keeps within a scope is independent of what this one keeps."""
        return self if kind == self.kind else type(self)(**{**self.settings(), "kind": kind})

    def drawn_once(self) -> bytes:
        """For a law whose claim is not per span: what its one draw follows from, with a key and the name of a scope.

        Laws with the same bytes draw the same for one name, and an account counts them once together.
        """
        return self.fingerprint().encode()

    def fingerprint(self) -> str:
        """Everything that decides, with a key, what is drawn: for run keys and ledgers (64 hexadecimal digits)."""
        law = f"{type(self).__module__}.{type(self).__qualname__}"
        content = json.dumps([ALGORITHM, law, self.settings()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.settings()), ()  # engines send a law to their workers

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({given})"
