"""Questions to a ledger and its answers: documents, settings and their losses in, keys and sums out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from textpriv.errors import LedgerError
from textpriv.randomness import DocumentKey, Stream

if TYPE_CHECKING:
    from textpriv.mechanisms.base import Mechanism
    from textpriv.tokenization.policy import TokenPolicy

DELTA = 1e-6  # of which statements speak


@dataclass(frozen=True)
class DocumentName:
    """Name of a document and of its author, for a ledger or a run key.

    Do not make names from the text: two documents of one name are two versions of one document. ``"7"`` and ``7`` are two
    names.

    Attributes
    ----------
    name : str, int or bytes
    author : str, int or bytes, optional
        Whose text it is, to a ledger and to mechanisms that draw once for a person.
    part : str, int or bytes, optional
        Which text of the document it is, if there are several. Two parts of equal text are drawn independently, and both
        are counted for the one document.
    """

    name: DocumentKey = field(repr=False)
    author: DocumentKey | None = field(default=None, repr=False)
    part: DocumentKey | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Terms:
    """The settings of a release, and what they cost."""

    settings: bytes  # fingerprint of everything that decides, with a key, what is drawn
    distance: str  # that epsilon is measured by; epsilons add only under one distance
    epsilon: float  # in units of 1/distance
    word_loss: float  # the largest of one drawn word, in nats
    word_rho: float | None = None  # the same in zCDP; default: word_loss**2 / 2, which always holds

    @classmethod
    def of(cls, mechanism: Mechanism, settings: bytes) -> Terms:
        """Return the terms of releases with a mechanism; a LedgerError if nothing finite is proved of it."""
        statement = mechanism.statement
        loss = statement.figures.get("worst_word_loss")
        if not statement.proved or statement.epsilon is None or loss is None:
            raise LedgerError(
                f"a ledger adds up proved guarantees, and {mechanism.name} as configured has none. Use a "
                "mechanism whose statement is proved (Madlib with search='exact')."
            )
        return cls(
            settings=settings,
            distance=f"{mechanism.index.space} {mechanism.index.fingerprint[:16]}",
            epsilon=statement.epsilon,
            word_loss=loss + statement.figures.get("numerical_slack", 0.0),
            word_rho=statement.range_at(math.inf) ** 2 / 8,
        )


def settings_fingerprint(
    mechanism: Mechanism, policy: TokenPolicy, language: str = "en", spans: Any = None
) -> bytes:
    """Return 32 bytes that stand for everything that decides, with a key, what is drawn.

    That is everything that the sampler reads, and the version of the package, since a new one may draw in another order.
    Of typed spans these are their policy and detectors, in JSON types.
    """
    from textpriv import __version__

    settings = {
        "version": __version__,
        "mechanism": mechanism.binding(),
        "policy": policy.to_dict(),
        "language": language,
        **({} if spans is None else {"spans": spans}),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Shared:
    """A loss by one draw that documents share, counted once for all releases of its scope."""

    drawn: bytes  # what the draw follows from besides the ledger's key and the name of the scope; public
    scope: str  # "person" for the author's draw, "document" for that of all its versions
    nats: float
    rho: float  # in zCDP


@dataclass(frozen=True)
class Charge:
    """One document that is to be released."""

    document: DocumentName
    content: bytes = field(repr=False)  # of the document; only the same gets a stored key again
    tokens: int  # how many words are drawn
    nats: float = 0.0  # the most that is lost besides the words
    rho: float = 0.0  # the same in zCDP
    shared: tuple[Shared, ...] = ()  # what draws lose that this release shares with others


@dataclass(frozen=True)
class Permit:
    """The permission to release one document, and the secret key of its random stream."""

    key: bytes = field(repr=False)
    charged: bool  # False if the same release was counted before

    def stream(self) -> Stream:
        """Return the release's random stream, from its beginning."""
        return Stream(self.key)


@dataclass(frozen=True)
class Spent:
    """Sums over releases; what they bound is proved in ``mechanisms.md``, section 10.5.

    After a measurement of an author's records, nats are infinite, and rho is the bound.
    """

    documents: int
    releases: int
    tokens: int
    nats: float
    epsilon: Mapping[str, float]  # by distance, in units of 1/distance
    rho: float = 0.0  # in zCDP
