"""The plan of a document: which of it are typed spans, which are words, and how both are read and drawn.

A text is split at its spans, and the pieces are tokenized one by one, so no word's reading depends on what is in a span.
Each span becomes one token whose mechanism draws its surface. Everything outside of spans is words.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import SpanError, TextprivError, at_position
from textpriv.ledger import Shared
from textpriv.mechanisms.base import UNKNOWN
from textpriv.randomness import Stream, framed
from textpriv.spans.detectors import Detector
from textpriv.spans.mechanisms.base import WHOSE, Scopes
from textpriv.spans.mechanisms.surrogates import Mask
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.spans.span import ReadSpan, Span, checked, read_labels, without_overlaps
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.batches import SPAN, RawBatch
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import MASK, TokenPolicy

Labels = Iterable[Any]  # spans of one text, as read_labels takes them

# Reads what is released as written: no word is in this vocabulary.
_NOTHING = ["\0"]
_AS_WRITTEN = TokenPolicy("keep", "keep", "keep", "keep", "keep", case="keep")
_MASKED = ("",)  # the one value of a mask
_ADD_LABELS = (
    'Add them, with the kind that they mean: spans={"preset": "chat", "labels": {"PATIENT": "PERSON"}}, or in a TOML file '
    'preset = "chat" and PATIENT = "PERSON" under [labels]. "words" in place of a kind says that words are right.'
)


class UnknownLabelWarning(UserWarning):
    """A detector finds spans whose label the policy does not know."""


@dataclass(frozen=True)
class DocumentSpans:
    """The part of the spans of a document that an account needs."""

    content: bytes  # all that is drawn of the document
    count: int = 0  # of spans
    nats: float = 0.0  # the most that they lose, each by itself
    rho: float = 0.0  # in zCDP
    shared: tuple[Shared, ...] = ()  # lost once for all that a person or the document releases


class SpanPlan:
    """How texts are read as spans and words, and how the spans are drawn.

    Parameters
    ----------
    policy : SpanPolicy
    detectors : Detector, sequence of Detector or None
        Their spans are put together. None if labels come with the texts.
    """

    def __init__(
        self, policy: SpanPolicy, detectors: Detector | Sequence[Detector] | None = None
    ) -> None:
        self.policy = policy
        self.detectors = (detectors,) if isinstance(detectors, Detector) else tuple(detectors or ())
        if not all(isinstance(each, Detector) for each in self.detectors):
            raise SpanError('detector takes detectors, such as make_detector("patterns").')
        self._passes = policy.undetected == UNDETECTED_PASS
        # If words pass, what is found and no mechanism can read must not pass with them.
        self._kinds = (*policy.mechanisms, *("SPAN",) * self._passes)
        self._mechanisms = (*policy.mechanisms.values(), *(Mask("SPAN"),) * self._passes)
        declared = (label for each in self.detectors for label in getattr(each, "labels", ()))
        self._unknown = self._unknown_of(declared)
        self._warned: set[str] = set()
        self._warn_of(self._unknown)

    def extend(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of words and spans together, which names the detectors."""
        labels = "labels that came with the texts" + (", if any" if self.detectors else "")
        found = f"Spans were found by: {'; '.join([*map(_named, self.detectors), labels])}"
        missing = "Spans with a label that the policy does not know are drawn as words"
        if self._unknown:
            missing += f", such as {', '.join(self._unknown)}"
        return self.policy.extend(statement).extended(
            notes=(found, *(missing,) * (not self._passes))
        )

    @cached_property
    def fingerprint(self) -> list[Any]:
        """Everything that decides, with a key and a text, what is drawn, in JSON types."""
        return [self.policy.fingerprint(), [each.fingerprint() for each in self.detectors]]

    # Reading

    def reader(self, words: TextEncoder) -> TextEncoder:
        """Return the encoder of the pieces between the spans."""
        if self._passes:
            return TextEncoder(_NOTHING, _AS_WRITTEN, words.language)
        return words

    def read(
        self, texts: Sequence[str], reader: TextEncoder, labels: Sequence[Labels] | None = None
    ) -> RawBatch:
        """Find the spans of texts, beside those that are known, and read the pieces between them.

        A SpanError tells of a span that does not fit its text and of a detector that fails; ``position`` is the text's.
        """
        found = self._find(texts, labels)
        spans_of = np.array([len(each) for each in found], dtype=np.int64)
        spans = [span for each in found for span in each]
        pairs = zip(texts, found, strict=True)
        surfaces = [text[span.start : span.end] for text, each in pairs for span in each]
        codes = np.array([SPAN - span.mechanism for span in spans], dtype=np.int32)
        pieces = reader.encode([*itertools.chain.from_iterable(map(_pieces, texts, found))])
        joined = _joined(pieces, spans_of, codes)
        values = [span.value for span in spans]
        return replace(joined, kinds=self._kinds, values=values, surfaces=surfaces)

    def _find(self, texts: Sequence[str], labels: Sequence[Labels] | None) -> list[list[ReadSpan]]:
        """The spans of each text that their mechanisms draw, in order."""
        sources = [_detected(detector, texts) for detector in self.detectors]
        if labels is not None and len(labels) != len(texts):
            raise SpanError(f"there are {len(texts)} texts and the labels of {len(labels)}.")
        if labels is None and not sources:
            raise SpanError("nothing finds spans: give a detector, or labels with the texts.")
        done = []
        for position, text in enumerate(texts):
            with at_position(position):
                found = [span for source in sources for span in checked(text, source[position])]
                spans = self.with_known_labels(found)
                if labels is not None:
                    spans += self._all_known(checked(text, read_labels(labels[position])))
                read = [each for span in spans if (each := self._read(text, span)) is not None]
                stay = without_overlaps(read, len(text))
                if self._passes:
                    stay = self._with_rests(stay, read)
                done.append(stay)
        return done

    def with_known_labels(self, found: Labels) -> list[Span]:
        """Return spans of a detector without those of unknown labels, which are drawn as words; warn once of each label."""
        spans = [Span(*each) for each in found]
        unknown = {*self._unknown_of(span.kind for span in spans)}
        self._warn_of(unknown - self._warned)
        return [span for span in spans if span.kind not in unknown]

    def _unknown_of(self, labels: Iterable[str]) -> list[str]:
        """The labels that the policy does not know; none where it masks them."""
        if self._passes:
            return []
        return sorted({label for label in labels if self.policy.kind_of(label) is None})

    def _warn_of(self, labels: Collection[str]) -> None:
        self._warned.update(labels)
        if labels:
            warnings.warn(
                f"the policy of spans does not know these labels of a detector: {', '.join(sorted(labels))}. What they mark "
                f"is drawn as words. {_ADD_LABELS}",
                UnknownLabelWarning,
                stacklevel=2,
            )

    def _all_known(self, given: list[Span]) -> list[Span]:
        """Return spans that came with a text; refuse a label that is not known, and quote none: it may be private."""
        for number, span in enumerate(given):
            if self._unknown_of([span.kind]):
                known = ", ".join(self.policy.known_labels)
                raise SpanError(
                    f"the policy of spans does not know the label of span {number}. It knows {known}. {_ADD_LABELS}"
                )
        return given

    def _read(self, text: str, span: Span) -> ReadSpan | None:
        kind = self.policy.kind_of(span.kind)
        if kind is not None and kind in self.policy.mechanisms:
            value = self.policy.mechanisms[kind].parse(text[span.start : span.end])
            if value is not None:
                return ReadSpan(span.start, span.end, self._kinds.index(kind), value)
        if self._passes:
            return ReadSpan(span.start, span.end, len(self._mechanisms) - 1, _MASKED)
        return None

    def _with_rests(self, stay: list[ReadSpan], found: Sequence[ReadSpan]) -> list[ReadSpan]:
        """Add a mask for each part that was found and is in no span that stays, so that it does not pass."""
        mask, size = len(self._mechanisms) - 1, max((span.end for span in found), default=0)
        rest = np.zeros(size + 1, dtype=np.int8)
        for span in found:
            rest[span.start : span.end] = 1
        for span in stay:
            rest[span.start : span.end] = 0
        edges = np.flatnonzero(np.diff(rest, prepend=0)).reshape(-1, 2).tolist()
        return sorted([*stay, *(ReadSpan(start, end, mask, _MASKED) for start, end in edges)])

    def draw_alone(self, text: str, kind: str, scopes: Scopes) -> str:
        """Draw a private surface for the text of one span; the mask if no mechanism can read it."""
        span = self._read(text, Span(0, len(text), kind))
        if span is None:
            return "[SPAN]"
        return self._mechanisms[span.mechanism].draw([span.value], Stream(), scopes)[0]

    # Drawing

    def documents(self, batch: RawBatch, scopes: Sequence[Scopes]) -> list[DocumentSpans]:
        """Return what an account needs of each document.

        A document of nobody with a span that is drawn once for a person is an error; ``position`` is the document's.
        """
        done = []
        for number, (first, last) in enumerate(_spans_of(batch)):
            codes = batch.codes[batch.offsets[number] : batch.offsets[number + 1]]
            counts = Counter((SPAN - codes[codes <= SPAN]).tolist())
            if scopes[number].person is None:
                with at_position(number):
                    if any(self._mechanisms[mechanism].scope == "person" for mechanism in counts):
                        raise SpanError(WHOSE)
            written = (framed(text.encode()) for text in batch.surfaces[first:last])
            content = framed(codes.astype("<i4").tobytes()) + b"".join(written)
            done.append(DocumentSpans(content, last - first, *self.policy.account(counts)))
        return done

    def draw(
        self, batch: RawBatch, streams: Sequence[Stream], scopes: Sequence[Scopes]
    ) -> RawBatch:
        """Return the batch with a private surface for each span, drawn from its document's stream."""
        is_span = batch.codes <= SPAN
        mechanisms = (SPAN - batch.codes[is_span]).tolist()
        surfaces = [""] * len(mechanisms)
        for number, (first, last) in enumerate(_spans_of(batch)):
            # Mechanism by mechanism, in their order: so a document's stream is read.
            for mechanism in sorted(set(mechanisms[first:last])):
                chosen = [span for span in range(first, last) if mechanisms[span] == mechanism]
                values = [batch.values[span] for span in chosen]
                drawn = self._mechanisms[mechanism].draw(values, streams[number], scopes[number])
                for span, surface in zip(chosen, drawn, strict=True):
                    surfaces[span] = surface
        strings = list(batch.strings)
        places = np.flatnonzero(is_span[batch.codes < UNKNOWN]).tolist()
        for place, surface in zip(places, surfaces, strict=True):
            strings[place] = surface
        return replace(batch, strings=strings)


def _named(detector: Detector) -> str:
    """Name a detector, and what it says that it cannot find."""
    missing = getattr(detector, "finds_no", "")
    return type(detector).__name__ + (f", which finds no {missing}" if missing else "")


def _spans_of(batch: RawBatch) -> Iterator[tuple[int, int]]:
    """The range of each document in the spans of the batch."""
    before = np.concatenate([[0], np.cumsum(batch.codes <= SPAN)])
    return itertools.pairwise(before[batch.offsets].tolist())


def _detected(detector: Detector, texts: Sequence[str]) -> list[Labels]:
    """The spans that a detector finds in each text; an error quotes no text and names the position of its text."""
    try:
        found: list[Labels] = [list(each) for each in detector.detect(texts)]
        if len(found) == len(texts):
            return found
        failed = f"spans for {len(found)} texts of {len(texts)}"
    except TextprivError:
        raise
    except Exception as error:
        failed = type(error).__name__
    # Look for the text by which it fails.
    for position, text in enumerate(texts if len(texts) > 1 else ()):
        with at_position(position):
            _detected(detector, [text])
    refused = SpanError(f"{type(detector).__name__}: finding spans failed with {failed}.")
    refused.position = 0 if len(texts) == 1 else None
    raise refused from None


def _pieces(text: str, spans: Sequence[ReadSpan]) -> Iterator[str]:
    """The text before, between and after spans; one blank after a span belongs to no token."""
    starts = [0, *(span.end for span in spans)]
    ends = [*(span.start for span in spans), len(text)]
    for start, end in zip(starts, ends, strict=True):
        yield text[start + (start > 0 and text.startswith(" ", start, end)) : end]


def _joined(pieces: RawBatch, spans_of: NDArray[np.int64], codes: NDArray[np.int32]) -> RawBatch:
    """Documents of pieces with a token for each span between them."""
    last = np.cumsum(spans_of + 1)  # after each document's last piece
    followed = np.ones(len(pieces), dtype=np.bool_)
    followed[last - 1] = False
    at = pieces.offsets[1:][followed]
    undrawn = np.concatenate([[0], np.cumsum(pieces.codes < UNKNOWN)])[at]
    strings = np.insert(np.array(pieces.strings, dtype=object), undrawn, MASK)
    offsets = pieces.offsets[np.concatenate([[0], last])]
    offsets[1:] += np.cumsum(spans_of)
    return replace(
        pieces,
        codes=np.insert(pieces.codes, at, codes),
        offsets=offsets,
        strings=strings.tolist(),
    )
