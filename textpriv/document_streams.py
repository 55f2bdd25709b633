"""Which random stream each document is drawn from: a fresh one, one that follows from its key, or the one a ledger keeps.

Two documents share a stream only where they are one: known by one name, under one key and one set of settings, with the same
words to be drawn. What is read from a stream is the business of the mechanism and of the laws of spans.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import LedgerError, TextprivError
from textpriv.ledger import Charge, Document, Ledger, Terms
from textpriv.randomness import (
    DistinctKeys,
    DocumentKey,
    KeyedStreams,
    Stream,
    document_identity,
    framed,
    identity_bytes,
)
from textpriv.spans.laws import Scopes
from textpriv.spans.plan import DocumentSpans

__all__ = ["DocumentStreams", "ReleaseKey"]

ReleaseKey = DocumentKey | Document | Stream  # what a document's randomness follows from


class DocumentStreams:
    """The random streams of the documents that one privatizer releases.

    Parameters
    ----------
    fingerprint : callable
        Gives 32 bytes that stand for all settings: part of every document's identity.
    run_key : bytes, optional
    seed : int, optional
    ledger : Ledger, optional
    terms : Terms, optional
        What the ledger counts by.
    has_spans : bool
        Whether laws of spans may ask for a document's author.

    Attributes
    ----------
    named_run : bool
        Whether there is a run key.
    repeats : bool
        Whether a release may be repeated: with a run key or a seed, or once a document was known by a key.
    """

    def __init__(
        self,
        fingerprint: Callable[[], bytes],
        run_key: bytes | None,
        seed: int | None,
        ledger: Ledger | None,
        terms: Terms | None,
        has_spans: bool,
    ) -> None:
        self._fingerprint = fingerprint
        self._ledger, self._terms, self._has_spans = ledger, terms, has_spans
        self.named_run = run_key is not None
        self.repeats = run_key is not None or seed is not None
        self._streams = KeyedStreams(run_key, seed=seed)
        # What a law keeps within a document or a person follows from the ledger's secret, where there is one.
        self._scope_streams = self._streams if ledger is None else KeyedStreams(ledger.scope_key)

    def refuse_repeated(
        self, keys: Sequence[ReleaseKey | None], distinct: DistinctKeys, position: int
    ) -> None:
        """Refuse a key that a document before has had; a ledger counts such documents as versions of one."""
        if self._ledger is not None:
            return
        for number, key in enumerate(keys):
            if key is None or isinstance(key, Stream):
                continue
            if not distinct.add(_name(key)):
                raise TextprivError(
                    f"document {position + number} has the key of a document before it: equal texts would come out equal, "
                    "and so betray that they are. Give each document a key of its own."
                )

    def streams(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        keys: Sequence[ReleaseKey | None] | None,
        spans: Sequence[DocumentSpans] | None,
    ) -> list[Stream]:
        """The random stream of each document. With a ledger, its leave is asked here, before anything is drawn.

        Documents without a key go on reading from one fresh stream, which is all that is returned where no document has a
        key.
        """
        count = len(offsets) - 1
        if self._ledger is not None:
            assert self._terms is not None
            names = [None] * count if keys is None else keys
            return _counted_streams(self._ledger, self._terms, ids, offsets, names, spans)
        if keys is None:
            if self.named_run:
                raise TextprivError(
                    "a run key repeats the draws of every document it is used for, so each document needs a key of its "
                    "own: pass keys=."
                )
            return [Stream()]
        fresh = Stream()
        streams = []
        for number, key in enumerate(keys):
            if key is None:
                streams.append(fresh)
            elif isinstance(key, Document) and not self._has_spans:
                raise TextprivError(
                    "a Document names an author for a ledger or for laws of spans, and this privatizer has neither: pass "
                    "ledger= or spans=."
                )
            elif isinstance(key, Stream):
                streams.append(key)
            else:
                self.repeats = True
                drawn = (
                    _content(ids[offsets[number] : offsets[number + 1]])
                    if spans is None
                    else spans[number].content
                )
                identity = document_identity(self._fingerprint(), _name(key), drawn)
                streams.append(self._streams.stream(identity))
        return streams

    def scopes(self, keys: Sequence[ReleaseKey | None] | None, count: int) -> list[Scopes]:
        """What laws draw the same again by: secret functions of each document and its author."""
        scopes = []
        for key in [None] * count if keys is None else keys:
            if isinstance(key, Document):
                scopes.append(Scopes(self._scope_streams, key.name, key.author))
            else:
                name = os.urandom(16) if key is None or isinstance(key, Stream) else key
                scopes.append(Scopes(self._scope_streams, name))
        return scopes


def _content(ids: NDArray[np.int32]) -> bytes:
    """What the mechanism is given of a document, as bytes."""
    return ids.astype("<i4").tobytes()


def _name(key: DocumentKey | Document) -> DocumentKey:
    """What a document is known by where no ledger counts it."""
    if not isinstance(key, Document):
        return key
    if key.part is None:
        return key.name
    return framed(identity_bytes(key.name)) + identity_bytes(key.part)


def _counted_streams(
    ledger: Ledger,
    terms: Terms,
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    keys: Sequence[ReleaseKey | None],
    spans: Sequence[DocumentSpans] | None,
) -> list[Stream]:
    """Ask the ledger's leave for each document, and return the stream that it keeps for it."""
    charges, counted = [], []
    for number, key in enumerate(keys):
        if key is None or isinstance(key, Stream):
            raise LedgerError(
                "a ledger counts by the names of documents: pass one for each as key= or keys=."
            )
        own = ids[offsets[number] : offsets[number + 1]]
        drawn = spans[number] if spans is not None else DocumentSpans(_content(own))
        # A document of which nothing is drawn releases nothing that is protected.
        if len(own) or drawn.count:
            document = key if isinstance(key, Document) else Document(key)
            losses = drawn.nats, drawn.rho, drawn.shared
            charges.append(Charge(document, drawn.content, len(own), *losses))
            counted.append(number)
    try:
        releases = ledger.charge_all(terms, charges)
    except LedgerError as error:
        if error.position is not None:
            error.position = counted[error.position]
        raise
    streams = [Stream() for _ in keys]
    for number, release in zip(counted, releases, strict=True):
        streams[number] = release.stream()
    return streams
