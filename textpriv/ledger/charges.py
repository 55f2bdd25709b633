"""What is asked of a ledger and what it answers: documents and their losses in, permissions and sums out.

Plain values. What the sums bound is proved at the top of ``ledger.ledger``, which adds them up.
"""

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
    """The name of a document and of its author: what a ledger counts by.

    Names must not be made from the text: two documents of one name are two versions of one document.

    Attributes
    ----------
    name : str, int or bytes
        ``"7"`` and ``7`` are two documents.
    author : str, int or bytes, optional
        Whose text it is. ``"7"`` and ``7`` are two authors, to a ledger and to laws that draw once for a person; a corpus
        reads names as text, so name them by text here, too.
    part : str, int or bytes, optional
        Which text of the document it is, where there are several: two parts of equal text are drawn independently, and
        both are counted for the one document.
    """

    name: DocumentKey = field(repr=False)
    author: DocumentKey | None = field(default=None, repr=False)
    part: DocumentKey | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Shared:
    """A loss by one draw that documents share: counted once for all that a scope releases under the ledger.

    Attributes
    ----------
    drawn : bytes
        What the draw follows from besides the ledger's key and the name of the scope; public.
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
        What the mechanism is given of the document. Only the same content gets a stored key again: under one key, two
        contents would show where they differ. It is stored as a keyed hash.
    tokens : int
        How many words are drawn.
    nats, rho : float
        What typed spans of it lose in the worst case, besides the words; rho in zCDP.
    shared : tuple of Shared
        What it loses besides by draws that it shares with other releases.
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
        32 secret bytes: the key of the one random stream that the document is drawn from.
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
    """Sums over releases; what they bound is said at the top of :mod:`textpriv.ledger`.

    Attributes
    ----------
    documents, releases, tokens : int
        Documents, independent releases of them, and words drawn.
    nats : float
        Sum of ``tokens * word_loss`` and of what spans lose, what is drawn once for a person once: the log-odds between
        any two collections of the same shape are at most this.
    epsilon : mapping of str to float
        For each distance the sum of epsilon, in units of 1/distance.
    rho : float
        Sum of ``tokens * word_rho`` and of that of spans, in zCDP.
    """

    documents: int
    releases: int
    tokens: int
    nats: float
    epsilon: Mapping[str, float]
    rho: float = 0.0

    def nats_at(self, delta: float = DELTA) -> float:
        """The smaller of ``nats`` and the nats that ``rho`` converts to at a delta.

        Any set of outcomes is at most ``exp`` of it times as likely for one collection as for another of the same shape,
        plus delta.

        Parameters
        ----------
        delta : float
            In (0, 1).
        """
        return min(self.nats, epsilon_of_zcdp(self.rho, delta))

    def to_dict(self) -> dict[str, Any]:
        """Return the sums as JSON types."""
        return {
            "documents": self.documents,
            "releases": self.releases,
            "tokens": self.tokens,
            "nats": self.nats,
            "epsilon": dict(self.epsilon),
            "rho": self.rho,
            "nats_with_delta": {f"{DELTA:g}": self.nats_at()},
        }
