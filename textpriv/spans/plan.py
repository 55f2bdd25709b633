"""The plan of a document: which of it are typed spans, which are words, and how both are read and drawn.

A text is split at its spans. The pieces between them are tokenized one by one like any text, so no word's reading depends on
what is in a span. Each span becomes one token whose law draws its surface. No token leaves because a detector missed it:
everything outside of spans is words.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import DocumentError, SpanError, TextprivError
from textpriv.ledger import Shared
from textpriv.mechanisms.base import UNKNOWN
from textpriv.randomness import Stream, framed
from textpriv.spans.detectors import Detector
from textpriv.spans.laws import Scopes
from textpriv.spans.laws.base import WHOSE
from textpriv.spans.laws.mask import Mask
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.spans.span import ReadSpan, Span, checked, without_overlaps
from textpriv.tokenization.batches import SPAN, RawBatch, SpanTokens
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import MASK, TokenPolicy

if TYPE_CHECKING:
    from textpriv.statement import PrivacyStatement

# What becomes of a span: its law draws it, it is masked, other spans cover it, or it goes through the word mechanism.
OUTCOMES = ("drawn", "masked", "covered", "unreadable", "no law")

__all__ = ["OUTCOMES", "DocumentSpans", "FoundSpans", "SpanPlan", "piece_start"]

# Reads what is released as written: no word is in this vocabulary.
_NOTHING = ["\0"]
_AS_WRITTEN = TokenPolicy("keep", "keep", "keep", "keep", "keep", case="keep")


@dataclass(frozen=True)
class DocumentSpans:
    """The part of the spans of a document that an account needs.

    Attributes
    ----------
    content : bytes
        All that is drawn of the document.
    count : int
        How many spans there are.
    nats, rho : float
        The most that they lose, each by itself; rho in zCDP.
    shared : tuple of Shared
        What is lost once for all that a person or the document releases.
    """

    content: bytes
    count: int = 0
    nats: float = 0.0
    rho: float = 0.0
    shared: tuple[Shared, ...] = ()


class FoundSpans(NamedTuple):
    """The spans of a text that their laws draw, in order, and all that were found."""

    text: str
    stay: Sequence[ReadSpan] = ()
    spans: Sequence[Span] = ()


class SpanPlan:
    """How texts are read as spans and words, and how the spans are drawn.

    Parameters
    ----------
    policy : SpanPolicy
    detectors : sequence of Detector
        Their spans are put together. None at all if labels come with the texts.

    Attributes
    ----------
    passes : bool
        Whether everything that the detectors miss is released as written.
    """

    @classmethod
    def of(cls, policy: SpanPolicy, detector: Detector | Sequence[Detector] | None) -> SpanPlan:
        """Make the plan of a policy and one detector, several or none."""
        if detector is None or isinstance(detector, Detector):
            return cls(policy, () if detector is None else (detector,))
        return cls(policy, tuple(detector))

    def __init__(self, policy: SpanPolicy, detectors: Sequence[Detector] = ()) -> None:
        if not isinstance(policy, SpanPolicy):
            raise SpanError(f"spans must be a SpanPolicy; got {type(policy).__name__}.")
        for detector in detectors:
            if not isinstance(detector, Detector):
                raise SpanError(
                    f"a detector has detect(texts) and fingerprint(); got {type(detector).__name__}."
                )
        self.policy, self.detectors = policy, tuple(detectors)
        self.passes = policy.undetected == UNDETECTED_PASS
        # If words pass, what is found and no law can read must not pass with them.
        self._kinds = (*policy.kinds, *("SPAN",) * self.passes)
        self._laws = (*policy.laws.values(), *(Mask("SPAN"),) * self.passes)

    @cached_property
    def fingerprint(self) -> list[Any]:
        """Everything that decides, with a key and a text, what is drawn, in JSON types."""
        return [self.policy.fingerprint(), [each.fingerprint() for each in self.detectors]]

    @property
    def needs_person(self) -> bool:
        """Whether a law draws the same for all documents of a person."""
        return any(law.scope == "person" for law in self._laws)

    def extend(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of words and spans together, from that of the words."""
        return self.policy.extend(statement)

    # Reading

    def reader(self, words: TextEncoder) -> TextEncoder:
        """Return the encoder of the pieces between the spans."""
        if self.passes:
            return TextEncoder(_NOTHING, _AS_WRITTEN, words.language)
        return words

    def read(
        self,
        texts: Sequence[str],
        reader: TextEncoder,
        labels: Sequence[Iterable[Sequence[Any]]] | None = None,
    ) -> RawBatch:
        """Find the spans of texts, and read the pieces between them.

        Parameters
        ----------
        texts : sequence of str
        reader : TextEncoder
        labels : sequence, optional
            For each text spans that are known already: start, end and kind.

        Raises
        ------
        SpanError
            For a span that does not fit its text, and a detector that fails; ``position`` is the text's.
        """
        return self.split(texts, self.find(texts, labels), reader)

    def split(
        self, texts: Sequence[str], found: Sequence[FoundSpans], reader: TextEncoder
    ) -> RawBatch:
        """Read the pieces of texts between the spans that were found."""
        spans = [span for each in found for span in each.stay]
        offsets = np.array([span[:2] for span in spans], dtype=np.int64).reshape(-1, 2)
        written = [each.text[span.start : span.end] for each in found for span in each.stay]
        tokens = SpanTokens(self._kinds, [span.value for span in spans], written, offsets)
        spans_of = np.array([len(each.stay) for each in found], dtype=np.int64)
        pieces = reader.encode([piece for each in found for piece in _pieces(each)])
        codes = np.array([SPAN - span.law for span in spans], dtype=np.int32)
        return replace(_joined(pieces, spans_of, codes), spans=tokens)

    def find(
        self,
        texts: Sequence[str],
        labels: Sequence[Iterable[Sequence[Any]]] | None = None,
    ) -> list[FoundSpans]:
        """Find the spans of texts; as :meth:`read`."""
        sources = [_detected(detector, texts) for detector in self.detectors]
        if labels is not None:
            if len(labels) != len(texts):
                raise SpanError(f"there are {len(texts)} texts and the labels of {len(labels)}.")
            sources.append(list(labels))
        if not sources:
            raise SpanError("nothing finds spans: give a detector, or labels with the texts.")
        done = []
        for position, text in enumerate(texts):
            with _named(position):
                spans = [span for source in sources for span in checked(text, source[position])]
                read = [each for span in spans if (each := self._read(text, span)) is not None]
                stay = without_overlaps(read, len(text))
                if self.passes:
                    stay = self._with_rests(stay, read)
                done.append(FoundSpans(text, stay, spans))
        return done

    def outcomes(self, found: Iterable[FoundSpans]) -> Counter[tuple[str, str]]:
        """Count the spans of each kind that the detectors found, by what became of them."""
        counts: Counter[tuple[str, str]] = Counter()
        for each in found:
            stay = set(each.stay)
            for span in each.spans:
                law, read = self.policy.law_of(span.kind), self._read(each.text, span)
                kind = span.kind if law is None else self._kinds[law]
                if read is None:
                    outcome = "no law" if law is None else "unreadable"
                elif read not in stay:
                    outcome = "covered"
                else:
                    outcome = "masked" if read.law >= len(self.policy.kinds) else "drawn"
                counts[kind, outcome] += 1
        return counts

    def _read(self, text: str, span: Span) -> ReadSpan | None:
        law = self.policy.law_of(span.kind)
        value = None if law is None else self._laws[law].parse(text[span.start : span.end])
        if law is not None and value is not None:
            return ReadSpan(span.start, span.end, law, value)
        return ReadSpan(span.start, span.end, len(self._laws) - 1, "") if self.passes else None

    def _with_rests(self, stay: list[ReadSpan], found: Sequence[ReadSpan]) -> list[ReadSpan]:
        """Add a mask for each part that was found and is in no span that stays, so that it does not pass."""
        mask, size = len(self._laws) - 1, max((span.end for span in found), default=0)
        rest = np.zeros(size + 1, dtype=np.int8)
        for span in found:
            rest[span.start : span.end] = 1
        for span in stay:
            rest[span.start : span.end] = 0
        edges = np.flatnonzero(np.diff(rest, prepend=0)).reshape(-1, 2).tolist()
        # A blank before or after what is masked belongs to no token.
        return sorted([*stay, *(ReadSpan(start, end, mask, "") for start, end in edges)])

    def draw_alone(self, text: str, kind: str, scopes: Scopes) -> str:
        """Draw a private surface for the text of one span; the mask if no law can read it."""
        span = self._read(text, Span(0, len(text), kind))
        if span is None:
            return "[SPAN]"
        return self._laws[span.law].draw([span.value], Stream(), scopes)[0]

    # Drawing

    def documents(self, batch: RawBatch) -> list[DocumentSpans]:
        """Return what an account needs of each document."""
        assert batch.spans is not None
        done = []
        for number, (first, last) in enumerate(self._spans_of(batch)):
            codes = batch.codes[batch.offsets[number] : batch.offsets[number + 1]]
            written = (framed(text.encode()) for text in batch.spans.texts[first:last])
            content = framed(codes.astype("<i4").tobytes()) + b"".join(written)
            losses = self.policy.account(Counter((SPAN - codes[codes <= SPAN]).tolist()))
            done.append(DocumentSpans(content, last - first, *losses))
        return done

    def require_persons(self, batch: RawBatch, scopes: Sequence[Scopes]) -> None:
        """Refuse a document of nobody with a span that is drawn once for a person; ``position`` is the document's."""
        laws = (SPAN - batch.codes[batch.codes <= SPAN]).tolist()
        for position, (first, last) in enumerate(self._spans_of(batch)):
            if scopes[position].person is None:
                with _named(position):
                    if any(self._laws[law].scope == "person" for law in laws[first:last]):
                        raise SpanError(WHOSE)

    def draw(
        self, batch: RawBatch, streams: Sequence[Stream], scopes: Sequence[Scopes]
    ) -> RawBatch:
        """Return the batch with a private surface for each span, drawn from its document's stream."""
        assert batch.spans is not None
        is_span = batch.codes <= SPAN
        laws = (SPAN - batch.codes[is_span]).tolist()
        surfaces = [""] * len(laws)
        for number, (first, last) in enumerate(self._spans_of(batch)):
            # Law by law, in their order: so a document's stream is read.
            for law in sorted(set(laws[first:last])):
                chosen = [span for span in range(first, last) if laws[span] == law]
                values = [batch.spans.values[span] for span in chosen]
                drawn = self._laws[law].draw(values, streams[number], scopes[number])
                for span, surface in zip(chosen, drawn, strict=True):
                    surfaces[span] = surface
        strings = list(batch.strings)
        places = np.flatnonzero(is_span[batch.codes < UNKNOWN]).tolist()
        for place, surface in zip(places, surfaces, strict=True):
            strings[place] = surface
        return replace(batch, strings=strings)

    @staticmethod
    def _spans_of(batch: RawBatch) -> Iterator[tuple[int, int]]:
        """The range of each document in the spans of the batch."""
        before = np.concatenate([[0], np.cumsum(batch.codes <= SPAN)])
        return itertools.pairwise(before[batch.offsets].tolist())


class _named:
    """Gives an error the position of its document."""

    def __init__(self, position: int) -> None:
        self._position = position

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DocumentError):
            error.position = self._position


def _detected(detector: Detector, texts: Sequence[str]) -> list[Iterable[Sequence[Any]]]:
    """The spans that a detector finds in each text; an error quotes no text and names the position of its text."""
    name = type(detector).__name__
    try:
        found: list[Iterable[Sequence[Any]]] = [list(each) for each in detector.detect(texts)]
        if len(found) == len(texts):
            return found
        failed = f"spans for {len(found)} texts of {len(texts)}"
    except TextprivError:
        raise
    except Exception as error:
        failed = type(error).__name__
    # Look for the text by which it fails.
    for position, text in enumerate(texts if len(texts) > 1 else ()):
        with _named(position):
            _detected(detector, [text])
    refused = SpanError(f"{name}: finding spans failed with {failed}.")
    refused.position = 0 if len(texts) == 1 else None
    raise refused from None


def piece_start(text: str, start: int, end: int) -> int:
    """Where the piece between two spans begins: a blank after the span before it belongs to no token."""
    return start + (start > 0 and text.startswith(" ", start, end))


def _pieces(found: FoundSpans) -> Iterator[str]:
    """The text before, between and after its spans, as :func:`piece_start` separates them."""
    end = 0
    for span in found.stay:
        yield found.text[piece_start(found.text, end, span.start) : span.start]
        end = span.end
    yield found.text[piece_start(found.text, end, len(found.text)) :]


def _joined(pieces: RawBatch, spans_of: NDArray[np.int64], codes: NDArray[np.int32]) -> RawBatch:
    """Documents of pieces with a token for each span between them."""
    last = np.cumsum(spans_of + 1)  # after each document's last piece
    followed = np.ones(len(pieces), dtype=np.bool_)
    followed[last - 1] = False
    at = pieces.offsets[1:][followed]
    undrawn = np.concatenate([[0], np.cumsum(pieces.codes < UNKNOWN)])[at].tolist()
    strings, end = [], 0
    for place in undrawn:
        strings += [*pieces.strings[end:place], MASK]
        end = place
    offsets = pieces.offsets[np.concatenate([[0], last])]
    offsets[1:] += np.cumsum(spans_of)
    return replace(
        pieces,
        codes=np.insert(pieces.codes, at, codes),
        offsets=offsets,
        strings=strings + pieces.strings[end:],
    )
