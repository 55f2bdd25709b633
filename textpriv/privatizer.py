"""One document from str to str: read its tokens, draw them, join what is released.

Every form of textpriv (the library, spaCy, commands, engines) passes texts through :class:`Privatizer`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import DocumentError, LedgerError, TextprivError, at_position
from textpriv.language.ngrams import symbol_id
from textpriv.ledger import Charge, DocumentName, Ledger, Terms, settings_fingerprint
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.randomness import (
    DocumentKey,
    KeyedStreams,
    Occurrences,
    Stream,
    document_identity,
    framed,
    identity_bytes,
)
from textpriv.spans.detectors import Detector
from textpriv.spans.mechanisms.base import Scopes
from textpriv.spans.plan import DocumentSpans, Labels, SpanPlan
from textpriv.spans.policy import SpanPolicy
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.batches import RawBatch
from textpriv.tokenization.detokenizer import Detokenizer, PrivateTokens
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE, TextEncoder, without_halves
from textpriv.tokenization.policy import TokenPolicy

ReleaseKey = DocumentKey | DocumentName | Stream  # a document's randomness follows from it
KeysOfBatch = Sequence[ReleaseKey | None] | None  # None gives a document fresh randomness

CHANGED = (
    "whether a text has changed since its last release under the same name and key (a document without a name goes by its "
    "own text: equal ones of two releases come out equal)"
)
_WARMED = 10_000  # commonest words that are drawn before a Privatizer serves
_SEEDED = "The draws were seeded: whoever guesses the seed can undo them. For experiments only"


class Privatizer:
    """Make many texts private with one mechanism and one policy.

    Parameters
    ----------
    mechanism : Mechanism
    policy : TokenPolicy, optional
        Default: ``TokenPolicy()``.
    seed : int, optional
        For experiments: the output is repeatable, and the statement says ``proved: false``.
    run_key : bytes, optional
        32 secret bytes. The same text under the same key, name and settings comes out the same; all else is independent.
        So two releases show which texts have changed, and the statement says so. Needs ``keys``.
    ledger : Ledger, optional
        Counts every document before it is drawn, and keeps its randomness: it then comes out the same. Needs ``keys``.
    language : str, optional
        A spaCy language code, for the tokenizer. Default: that of the index, or English.
    spans : SpanPolicy, str or mapping, optional
        Replaces names, dates and the like by mechanisms of their own, as :meth:`SpanPolicy.of` reads it.
    detector : Detector or sequence of Detector, optional
        Finds the spans. None if each text comes with labels.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> rng = np.random.default_rng(0)
    >>> vocabulary = textpriv.Vocabulary(["good", "bad", "film"], rng.normal(size=(3, 5)))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary, "euclidean"), epsilon=30.0)
    >>> textpriv.Privatizer(mechanism, seed=1).privatize("A GOOD film!")
    'bad good film!'
    """

    def __init__(
        self,
        mechanism: Mechanism,
        policy: TokenPolicy | None = None,
        seed: int | None = None,
        *,
        run_key: bytes | None = None,
        ledger: Ledger | None = None,
        language: str | None = None,
        spans: SpanPolicy | str | Mapping[str, Any] | None = None,
        detector: Detector | Sequence[Detector] | None = None,
    ) -> None:
        if not isinstance(mechanism, Mechanism):
            raise TextprivError(
                f"a Privatizer needs a mechanism such as textpriv.TEM(index, epsilon=...); got {type(mechanism).__name__}."
            )
        if not isinstance(policy, TokenPolicy | None):
            raise TextprivError("policy takes a TokenPolicy. Pass a policy of spans as spans=.")
        if spans is None and detector is not None:
            raise TextprivError("a detector needs a policy for the spans it finds: pass spans=.")
        if ledger is not None and (seed is not None or run_key is not None):
            raise TextprivError(
                "a ledger keeps the randomness of every document it counts: give no seed and no run_key with it."
            )
        self.mechanism = mechanism
        self.policy = TokenPolicy() if policy is None else policy
        self.seed = seed
        self.language = language or mechanism.index.language or DEFAULT_LANGUAGE
        self.ledger = ledger
        self.spans = None if spans is None else SpanPlan(SpanPolicy.of(spans), detector)
        self._streams = _DocumentStreams(run_key, seed, ledger)
        self._terms = None if ledger is None else Terms.of(mechanism, self.fingerprint)

    def privatize(
        self, text: str, key: ReleaseKey | None = None, labels: Labels | None = None
    ) -> str:
        """Return one private text.

        Parameters
        ----------
        text : str
        key : str, int, bytes or DocumentName, optional
            Names the document. The same text under the same key is released the same way again, another text
            independently. Without a key the randomness is new every time, except with a seed; a run key requires one.
        labels : iterable of (start, end, kind), or of objects with start, end and label, optional
            Known spans, beside those that the detector finds; offsets count characters.
        """
        keys = None if key is None else [key]
        return next(self.pipe([text], keys, labels=None if labels is None else [labels]))

    def pipe(
        self,
        texts: Iterable[str],
        keys: Iterable[ReleaseKey] | None = None,
        batch_size: int = 1000,
        *,
        labels: Iterable[Labels] | None = None,
    ) -> Iterator[str]:
        """Yield one private text for every text, in order.

        Parameters
        ----------
        texts : iterable of str
        keys : iterable of str, int, bytes or DocumentName, optional
            One for each document, all different; under a ledger, documents with one name are versions of one document. The
            output depends neither on the batch size nor on other documents. Without keys every document gets fresh
            randomness, and with a seed that of its position. A hash of each key is kept, about 150 bytes.
        batch_size : int
            Documents drawn in one call; changes speed only.
        labels : iterable, optional
            For each document its known spans, as in :meth:`privatize`.

        Raises
        ------
        TextprivError
            For a text that is not a string, too few or repeated keys, labels that do not fit, a detector that fails, and a
            document that the ledger refuses. Names the position of the document; nothing of its batch is drawn.
        """
        if isinstance(texts, str):
            raise TextprivError("pipe takes a list of texts, found one. Give it to privatize.")
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            found = type(texts).__name__
            raise TextprivError(f"expected a text or a list of texts, found {found}.")
        if not batch_size >= 1:
            raise TextprivError("batch_size is a whole number from 1 up.")
        source, position, known_keys = iter(texts), 0, Occurrences()
        named = None if keys is None else iter(keys)
        known = None if labels is None else iter(labels)
        while batch := list(islice(source, batch_size)):
            names: list[ReleaseKey] | None = None
            if named is not None:
                names = list(islice(named, len(batch)))
                self._streams.check(names, len(batch), known_keys, position)
            elif self.seed is not None:
                names = list(range(position, position + len(batch)))
            try:
                of_batch = None if known is None else list(islice(known, len(batch)))
                raw, words = self._draw(self.read_batch(batch, of_batch), names)
                yield from self.detokenizer.texts(raw, words)
            except DocumentError as error:
                if error.position is None:
                    raise
                raise error.named(f"document {position + error.position}") from None
            position += len(batch)

    def privatize_span(self, text: str, kind: str, key: ReleaseKey | None = None) -> str:
        """Return a private surface for one span of a kind, for programs that join texts themselves; their losses add up.

        Consistent mechanisms draw the same again within the document and author that ``key`` names; the statement says so.
        The mask ``[SPAN]`` comes back if no mechanism can read the text.
        """
        if self.spans is None or self.ledger is not None:
            raise TextprivError("a single span needs spans= and no ledger, which counts documents.")
        self._streams.repeats |= key is not None
        return self.spans.draw_alone(text, kind, self._streams.scopes(_named([key], 1))[0])

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that depend on every setting which decides, with a key and a text, what is drawn."""
        spans = None if self.spans is None else self.spans.fingerprint
        return settings_fingerprint(self.mechanism, self.policy, self.language, spans)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of the released texts, which names what a repeated release under keys shows."""
        statement = self.mechanism.statement.extended(
            not_protected=self.policy.not_protected(), notes=self.policy.notes()
        )
        if self.spans is not None:
            statement = self.spans.extend(statement)
        if self.language != DEFAULT_LANGUAGE:
            note = f"Texts are tokenized by spaCy's rules of the language {self.language}"
            statement = statement.extended(notes=(note,))
        if self.ledger is not None:
            changed = "whether a document has changed since its last release under the same name"
            return statement.extended(not_protected=(changed,), notes=(self.ledger.statement,))
        if self._streams.repeats:
            statement = statement.extended(not_protected=(CHANGED,))
        if self.seed is not None:
            statement = statement.extended(notes=(_SEEDED,), proved=False)
        return statement

    def warm(self) -> None:
        """Load everything that texts need: compiled code, tables and the rules of the language. Call it before serving."""
        batch = self.reader.encode(["a 1."])
        self.mechanism.sample(range(UNKNOWN, min(_WARMED, len(self.mechanism.index))), Stream())
        self.detokenizer.texts(batch, np.zeros(np.count_nonzero(batch.codes >= UNKNOWN), np.int32))

    def read(self, text: str) -> RawBatch:
        """Tokenize and classify one text."""
        return self.read_batch([text])

    def read_batch(self, texts: Sequence[str], labels: Sequence[Labels] | None = None) -> RawBatch:
        """Find spans, tokenize and classify. The error for a text that is not a string has its ``position``."""
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                with at_position(position):
                    raise DocumentError(f"expected text, found {type(text).__name__}.")
        texts = [text if text.isascii() else without_halves(text) for text in texts]
        if self.spans is not None:
            return self.spans.read(texts, self.reader, labels)
        if labels is not None:
            raise TextprivError("labels need a policy for their spans: pass spans=.")
        return self.reader.encode(texts)

    def release(self, batch: RawBatch, keys: KeysOfBatch = None) -> list[PrivateTokens]:
        """Draw the documents of a batch and return them as tokens. Keys must be different, which :meth:`pipe` checks.

        As a key None gives a document fresh randomness, and a Stream is read as it is.
        """
        batch, words = self._draw(batch, keys)
        return self.detokenizer.tokens(batch, words)

    def release_batch(self, batch: RawBatch, keys: KeysOfBatch = None) -> list[str]:
        """Draw the documents of a batch, as :meth:`release` does, and return private texts."""
        batch, words = self._draw(batch, keys)
        return self.detokenizer.texts(batch, words)

    @cached_property
    def reader(self) -> TextEncoder:
        """The encoder of raw texts."""
        words = TextEncoder(self.mechanism.index.vocabulary.words, self.policy, self.language)
        return words if self.spans is None else self.spans.reader(words)

    @cached_property
    def detokenizer(self) -> Detokenizer:
        """What joins a batch, with word ids for its drawn tokens, to texts."""
        return Detokenizer(self.mechanism.index.vocabulary.words)

    def _draw(self, batch: RawBatch, keys: KeysOfBatch) -> tuple[RawBatch, NDArray[np.int32]]:
        """Draw the spans and words of a batch: return the batch with its spans drawn, and word ids for its words."""
        if keys is None and self._streams.has_run_key:
            raise TextprivError(
                "a run key repeats the draws of every document, so each document needs a key of its own: pass keys=."
            )
        count = len(batch.offsets) - 1
        named = [Stream()] * count if keys is None else _named(keys, count)
        is_word = batch.codes >= UNKNOWN
        ids, offsets = batch.codes[is_word], np.append(0, np.cumsum(is_word))[batch.offsets]
        if self.mechanism.reads_context:  # all tokens: symbols stand for what is released as it is
            ids, offsets = batch.codes.copy(), batch.offsets
            ids[~is_word] = [symbol_id(text) for text in batch.strings]
        spans, scopes = None, list[Scopes]()
        if self.spans is not None:
            scopes = self._streams.scopes(named)
            spans = self.spans.documents(batch, scopes)
        streams = self._streams.of(
            named, ids, offsets, spans, settings=lambda: self.fingerprint, terms=self._terms
        )
        if self.spans is not None:  # from the same stream as the words, before them
            batch = self.spans.draw(batch, streams, scopes)
        if not self.mechanism.reads_context and len({*map(id, streams)}) == 1:
            offsets, streams = offsets[[0, -1]], streams[:1]  # of one stream: drawn as one document
        drawn = self.mechanism.sample_documents(ids, offsets, streams)
        return batch, drawn[ids >= UNKNOWN]

    def __reduce__(self) -> tuple[Any, ...]:
        # The reader has seen raw words, and the streams hold the run key: neither travels.
        if self._streams.has_run_key:
            raise TextprivError(
                "a Privatizer with a run key does not travel between processes: the key is a secret. Make one there."
            )
        options: dict[str, Any] = {"ledger": self.ledger, "language": self.language}
        if self.spans is not None:
            if self.spans.policy.needs_person and self.seed is None and self.ledger is None:
                raise TextprivError(
                    "a mechanism that draws once for a person would draw again in each process: make a Privatizer there, "
                    "with the same run key or ledger everywhere."
                )
            options |= {"spans": self.spans.policy, "detector": self.spans.detectors}
        return partial(type(self), self.mechanism, self.policy, self.seed, **options), ()

    def __repr__(self) -> str:
        return f"Privatizer({self.mechanism!r}, {self.policy!r})"


class _DocumentStreams:
    """The random stream of each document."""

    def __init__(self, run_key: bytes | None, seed: int | None, ledger: Ledger | None) -> None:
        self.has_run_key = run_key is not None
        # Whether a release may be repeated: also once a document was released under a key.
        self.repeats = run_key is not None or seed is not None
        self._ledger = ledger
        self._keyed = KeyedStreams(run_key, seed=seed)
        # Mechanisms that draw the same within a document or a person follow from the ledger's secret, if there is one.
        self._scope_streams = self._keyed if ledger is None else KeyedStreams(ledger.scope_key)

    def of(
        self,
        named: Sequence[DocumentName | Stream],
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        spans: Sequence[DocumentSpans] | None,
        *,
        settings: Callable[[], bytes],
        terms: Terms | None,
    ) -> list[Stream]:
        """Return the stream of each document: given, found from all that is drawn of it, or kept by the ledger."""
        streams, charges = list[Stream](), dict[int, Charge]()
        for number, key in enumerate(named):
            if isinstance(key, Stream):
                if terms is not None:
                    raise LedgerError(
                        "a ledger counts by the names of documents: pass one for each as key= or keys=."
                    )
                streams.append(key)
                continue
            own = ids[offsets[number] : offsets[number + 1]]
            content, found = own.astype("<i4").tobytes(), DocumentSpans(b"")
            if spans is not None:
                found = spans[number]
                content = framed(found.content) + content
            if terms is None:
                self.repeats = True
                identity = document_identity(settings(), _name(key), content)
                streams.append(self._keyed.stream(identity))
                continue
            streams.append(Stream())
            words = int(np.count_nonzero(own >= UNKNOWN))
            if words or found.count:
                losses = found.nats, found.rho, found.shared
                charges[number] = Charge(key, content, words, *losses)
        if self._ledger is not None and terms is not None:
            counted = list(charges)
            try:
                permits = self._ledger.charge_all(terms, list(charges.values()))
            except LedgerError as error:
                if error.position is not None:
                    error.position = counted[error.position]
                error.refused = [counted[place] for place in error.refused]
                raise
            for number, permit in zip(counted, permits, strict=True):
                streams[number] = permit.stream()
        return streams

    def scopes(self, named: Sequence[DocumentName | Stream]) -> list[Scopes]:
        """For each document, the secret functions of it and its author by which mechanisms draw the same again."""
        own = [DocumentName(os.urandom(16)) if isinstance(key, Stream) else key for key in named]
        return [Scopes(self._scope_streams, each.name, each.author) for each in own]

    def check(
        self, keys: Sequence[ReleaseKey], texts: int, known: Occurrences, position: int
    ) -> None:
        """Refuse too few keys, and a key that an earlier document has; a ledger counts versions of one document."""
        if len(keys) < texts:
            raise TextprivError(
                f"there are more texts than keys: document {position + len(keys)} has none. Give one key for every text."
            )
        if self._ledger is not None:
            return
        for number, key in enumerate(_named(keys, len(keys))):
            if isinstance(key, DocumentName) and known.count(_name(key)) > 1:
                raise TextprivError(
                    f"document {position + number} has the key of an earlier document: two equal texts would come out "
                    "equal. Give each document a key of its own."
                )


def _named(keys: Sequence[ReleaseKey | None], count: int) -> list[DocumentName | Stream]:
    """The document that each key names, or the stream given for it; those without a key share a fresh stream."""
    fresh = Stream()
    given = (fresh if key is None else key for _, key in zip(range(count), keys, strict=True))
    return [key if isinstance(key, DocumentName | Stream) else DocumentName(key) for key in given]


def _name(document: DocumentName) -> DocumentKey:
    if document.part is None:
        return document.name
    return framed(identity_bytes(document.name)) + identity_bytes(document.part)
