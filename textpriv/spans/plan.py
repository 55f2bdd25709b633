"""The plan of a document: which of it are typed spans, which are words, and how both are read and drawn.

A text is split at its spans. What stands between them is tokenized piece by piece like any text, so that no word's reading
depends on what stands in a span; each span becomes one token whose law draws its surface. No token leaves because a detector
missed it: whatever is in no span is a word. Which random stream a document has is the matter of ``document_streams``.
"""

from __future__ import annotations

import itertools
import sys
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

__all__ = ["OUTCOMES", "DocumentSpans", "FoundSpans", "SpanPlan", "piece_start"]

# What becomes of a span: its law draws it, it is masked for want of one that could, a longer one covers it, or it goes
# through the word mechanism, for its law cannot read it or there is none.
OUTCOMES = ("drawn", "masked", "covered", "unreadable", "no law")

# Where what the detector misses is to be released as written: no word is in this vocabulary.
_NOTHING = ["\0"]
_AS_WRITTEN = TokenPolicy("keep", "keep", "keep", "keep", "keep", case="keep")


@dataclass(frozen=True)
class DocumentSpans:
    """What an account needs of the spans of a document.

    Attributes
    ----------
    content : bytes
        All that is drawn of the document.
    count : int
        How many spans there are.
    nats, rho : float
        What they lose in the worst case, each by itself; rho in zCDP.
    shared : tuple of Shared
        What is lost besides, once for all that a person or the document releases.
    """

    content: bytes
    count: int = 0
    nats: float = 0.0
    rho: float = 0.0
    shared: tuple[Shared, ...] = ()


class FoundSpans(NamedTuple):
    """What was found in a text.

    Attributes
    ----------
    text : str
    stay : sequence of ReadSpan
        Those that their laws draw, in order.
    spans : sequence of Span
        All.
    read : sequence of ReadSpan or None
        What its law read of each.
    """

    text: str
    stay: Sequence[ReadSpan] = ()
    spans: Sequence[Span] = ()
    read: Sequence[ReadSpan | None] = ()


class SpanPlan:
    """How texts are read as spans and words, and how the spans are drawn.

    Parameters
    ----------
    policy : SpanPolicy
    detectors : sequence of Detector
        What they find is put together. None at all where labels come with the texts.

    Attributes
    ----------
    passes : bool
        Whether what the detectors miss is released as written.
    """

    @classmethod
    def of(cls, policy: SpanPolicy, detector: Detector | Sequence[Detector] | None) -> SpanPlan:
        """That of a policy and one detector, several or none."""
        if not isinstance(policy, SpanPolicy):
            raise SpanError(f"spans must be a SpanPolicy; got {type(policy).__name__}.")
        if detector is None or isinstance(detector, Detector):
            return cls(policy, () if detector is None else (detector,))
        return cls(policy, tuple(detector))

    def __init__(self, policy: SpanPolicy, detectors: Sequence[Detector] = ()) -> None:
        for detector in detectors:
            if not isinstance(detector, Detector):
                raise SpanError(
                    f"a detector has detect(texts) and fingerprint(); got {type(detector).__name__}."
                )
        self.policy = policy
        self.detectors = tuple(detectors)
        self.passes = policy.undetected == UNDETECTED_PASS
        # Where words pass, what is found and no law can read must not pass with them.
        self._kinds = (*policy.kinds, *("SPAN",) * self.passes)
        self._laws = (*policy.laws.values(), *(Mask("SPAN"),) * self.passes)
        self._law_of: dict[str, int | None] = {}

    @cached_property
    def fingerprint(self) -> list[Any]:
        """What decides, with a key and a text, what is drawn, in JSON types."""
        return [self.policy.fingerprint(), [each.fingerprint() for each in self.detectors]]

    @property
    def needs_person(self) -> bool:
        """Whether a law draws the same for all documents of a person."""
        return any(law.scope == "person" for law in self._laws)

    def extend(self, statement: PrivacyStatement) -> PrivacyStatement:
        """The statement of words and spans together, from that of the words."""
        return self.policy.extend(statement)

    # Reading

    def reader(self, words: TextEncoder) -> TextEncoder:
        """What reads the pieces between the spans."""
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
        sources = [_Watched(detector, texts) for detector in self.detectors]
        if labels is not None:
            if len(labels) != len(texts):
                raise SpanError(f"there are {len(texts)} texts and the labels of {len(labels)}.")
            sources.append(_Watched(None, labels))
        if not sources:
            raise SpanError("nothing finds spans: give a detector, or labels with the texts.")
        done = []
        known: dict[tuple[str, str], Any] = {}  # what the laws read of a text, once in a batch
        for position, text in enumerate(texts):
            try:
                spans = [span for source in sources for span in checked(text, source.next())]
                if not spans:
                    done.append(FoundSpans(text))
                    continue
                read = [self._read(text, span, known) for span in spans]
                readable = list(filter(None, read))
                stay = without_overlaps(readable, len(text))
                if self.passes:
                    stay = self._with_rests(stay, readable)
                done.append(FoundSpans(text, stay, spans, read))
            except DocumentError as error:
                error.position = position
                raise
        return done

    def outcomes(self, found: Iterable[FoundSpans]) -> Counter[tuple[str, str]]:
        """How many spans of each kind the detectors found, by what became of them: one of ``OUTCOMES``."""
        counts: Counter[tuple[str, str]] = Counter()
        for each in found:
            left = Counter(each.stay)
            for span, read in zip(each.spans, each.read, strict=True):
                law = self._law_of[span.kind]
                kind = span.kind if law is None else self._kinds[law]
                masked = self.passes and read is not None and read.law == len(self._laws) - 1
                if read is None:
                    outcome = "no law" if law is None else "unreadable"
                elif left[read] > 0:
                    left[read] -= 1
                    outcome = "masked" if masked else "drawn"
                else:
                    outcome = "covered"
                counts[kind, outcome] += 1
        return counts

    def _read(self, text: str, span: Span, known: dict[tuple[str, str], Any]) -> ReadSpan | None:
        if span.kind not in self._law_of:
            self._law_of[span.kind] = self.policy.law_of(span.kind)
        law = self._law_of[span.kind]
        value = None
        if law is not None:
            surface = span.kind, text[span.start : span.end]
            if surface not in known:
                known[surface] = self._laws[law].parse(surface[1])
            value = known[surface]
        if law is not None and value is not None:
            return ReadSpan(span.start, span.end, law, value)
        return ReadSpan(span.start, span.end, len(self._laws) - 1, "") if self.passes else None

    def _with_rests(self, stay: list[ReadSpan], found: Sequence[ReadSpan]) -> list[ReadSpan]:
        """Add a mask for each part that was found and is in no span that stays, so that it does not pass."""
        mask = len(self._laws) - 1
        kept = iter([*stay, ReadSpan(sys.maxsize, sys.maxsize, mask, "")])
        following, end, rests = next(kept), 0, []
        for span in sorted(found):
            end = max(end, span.start)
            while end < span.end:
                if following.start <= end:
                    end, following = max(end, following.end), next(kept)
                    continue
                rest = min(span.end, following.start)
                rests.append(ReadSpan(end, rest, mask, ""))
                end = rest
        return sorted([*stay, *rests])

    def draw_alone(self, text: str, kind: str, scopes: Scopes) -> str:
        """A private surface for the text of one span, drawn anew; the mask where no law can read it."""
        span = self._read(text, Span(0, len(text), kind), {})
        if span is None:
            return "[SPAN]"
        return self._laws[span.law].draw([span.value], Stream(), scopes)[0]

    # Drawing

    def documents(self, batch: RawBatch) -> list[DocumentSpans]:
        """What an account needs of each document."""
        assert batch.spans is not None
        done, offsets = [], self._offsets(batch)
        laws = (SPAN - batch.codes[batch.codes <= SPAN]).tolist()
        for number, (first, last) in enumerate(itertools.pairwise(offsets)):
            codes = batch.codes[batch.offsets[number] : batch.offsets[number + 1]]
            written = (framed(text.encode()) for text in batch.spans.texts[first:last])
            content = framed(codes.astype("<i4").tobytes()) + b"".join(written)
            losses = self.policy.account(Counter(laws[first:last]))
            done.append(DocumentSpans(content, last - first, *losses))
        return done

    def require_persons(self, batch: RawBatch, scopes: Sequence[Scopes]) -> None:
        """Refuse a document of nobody with a span that is drawn once for a person; ``position`` is the document's."""
        if not self.needs_person:
            return
        of_person = np.array([law.scope == "person" for law in self._laws])
        of_span = of_person[SPAN - batch.codes[batch.codes <= SPAN]]
        for number, (first, last) in enumerate(itertools.pairwise(self._offsets(batch))):
            if scopes[number].person is None and of_span[first:last].any():
                error = SpanError(WHOSE)
                error.position = number
                raise error

    def draw(
        self, batch: RawBatch, streams: Sequence[Stream], scopes: Sequence[Scopes | None]
    ) -> RawBatch:
        """The batch with a private surface for each span, drawn from its document's stream."""
        assert batch.spans is not None
        is_span = batch.codes <= SPAN
        if not is_span.any():
            return batch
        laws = SPAN - batch.codes[is_span]
        surfaces = [""] * len(laws)
        offsets = self._offsets(batch)
        # Law by law, so that each document's stream is read in the order of the laws.
        for law in np.unique(laws).tolist():
            chosen = np.flatnonzero(laws == law)
            bounds = np.searchsorted(chosen, offsets)
            documents = np.flatnonzero(np.diff(bounds)).tolist()
            drawn = self._laws[law].draw_documents(
                [batch.spans.values[span] for span in chosen.tolist()],
                np.append(bounds[documents], len(chosen)),
                [streams[document] for document in documents],
                [scopes[document] for document in documents],
            )
            for span, surface in zip(chosen.tolist(), drawn, strict=True):
                surfaces[span] = surface
        strings = list(batch.strings)
        for place, surface in zip(
            np.flatnonzero(is_span[batch.codes < UNKNOWN]).tolist(), surfaces, strict=True
        ):
            strings[place] = surface
        return replace(batch, strings=strings)

    @staticmethod
    def _offsets(batch: RawBatch) -> list[int]:
        """Offsets of the documents in the spans of the batch."""
        before = np.concatenate([[0], np.cumsum(batch.codes <= SPAN)])
        return before[batch.offsets].tolist()


class _Watched:
    """The spans of one source, text by text; what goes wrong in it quotes no text."""

    def __init__(self, detector: Detector | None, given: Sequence[Any]) -> None:
        self._detector = detector
        self._given = given
        self._source: Any = None

    def next(self) -> Iterable[Sequence[Any]]:
        """Those of the next text."""
        try:
            if self._source is None:
                found = (
                    self._given if self._detector is None else self._detector.detect(self._given)
                )
                self._source = iter(found)
            return list(next(self._source))
        except TextprivError:
            raise
        except StopIteration:
            raise SpanError("the detector gave spans for fewer texts than it was given.") from None
        except Exception as error:
            what = "labels" if self._detector is None else type(self._detector).__name__
            raise SpanError(f"{what}: finding spans failed with {type(error).__name__}.") from None


def piece_start(text: str, start: int, end: int) -> int:
    """Where begins what stands between two spans: a blank that parts it from the span before it belongs to no token."""
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
