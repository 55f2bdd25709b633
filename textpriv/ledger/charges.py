"""Questions to a ledger and its answers: documents and their losses in, keys and sums out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from textpriv.composition import epsilon_of_zcdp
from textpriv.randomness import DocumentKey, Stream

__all__ = ["DELTA", "Charge", "Document", "Release", "Shared", "Spent"]

DELTA = 1e-6  # of which statements speak


@dataclass(frozen=True)
class Document:
    """The name of a document and of its author, by which a ledger counts.

    Do not make names from the text: two documents of one name are two versions of one document. ``"7"`` and ``7`` are two
    names.

    Attributes
    ----------
    name : str, int or bytes
    author : str, int or bytes, optional
        Whose text it is, to a ledger and to laws that draw once for a person.
    part : str, int or bytes, optional
        Which text of the document it is, if there are several. Two parts of equal text are drawn independently, and both
        are counted for the one document.
    """

    name: DocumentKey = field(repr=False)
    author: DocumentKey | None = field(default=None, repr=False)
    part: DocumentKey | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Shared:
    """A loss by one draw that documents share, counted once for all releases of its scope.

    Attributes
    ----------
    drawn : bytes
        What the draw follows from besides the ledger's key and the name of the scope. Public.
    scope : "person" or "document"
        Whose draw it is: the author's, or that of all versions of the document.
    nats, rho : float
        The most that it loses; rho in zCDP.
    """

    drawn: bytes
    scope: str
    nats: float
    rho: float


@dataclass(frozen=True)
class Charge:
    """One document that is to be released.

    Attributes
    ----------
    document : Document
    content : bytes
        What the mechanism is given of the document. Only the same content gets a stored key again. It is stored as a keyed
        hash.
    tokens : int
        How many words are drawn.
    nats, rho : float
        The most that is lost besides the words; rho in zCDP.
    shared : tuple of Shared
        What is lost by draws that this release shares with others.
    """

    document: Document
    content: bytes = field(repr=False)
    tokens: int
    nats: float = 0.0
    rho: float = 0.0
    shared: tuple[Shared, ...] = ()


@dataclass(frozen=True)
class Release:
    """The permission to release one document.

    Attributes
    ----------
    key : bytes
        32 secret bytes: the key of the random stream that the document is drawn from.
    charged : bool
        Whether this was counted now; False if the same release was counted before.
    """

    key: bytes = field(repr=False)
    charged: bool

    def stream(self) -> Stream:
        """Return the release's random stream, from its beginning."""
        return Stream(self.key)


@dataclass(frozen=True)
class Spent:
    """Sums over releases. What they bound is proved in :mod:`textpriv.ledger.ledger`.

    Attributes
    ----------
    documents, releases, tokens : int
    nats : float
        The log-odds between any two collections of the same shape are at most this.
    epsilon : mapping of str to float
        For each distance the sum of epsilon, in units of 1/distance.
    rho : float
        In zCDP.
    """

    documents: int
    releases: int
    tokens: int
    nats: float
    epsilon: Mapping[str, float]
    rho: float = 0.0

    def nats_at(self, delta: float = DELTA) -> float:
        """Return the smaller of ``nats`` and the nats that ``rho`` converts to at a delta in (0, 1).

        Any set of outcomes is at most ``exp`` of it times as likely for one collection as for another of the same shape,
        plus delta.
        """
        return min(self.nats, epsilon_of_zcdp(self.rho, delta))

    def to_dict(self) -> dict[str, Any]:
        """Return the sums as JSON types."""
        return {
            **vars(self),
            "epsilon": dict(self.epsilon),
            "nats_with_delta": {f"{DELTA:g}": self.nats_at()},
        }
