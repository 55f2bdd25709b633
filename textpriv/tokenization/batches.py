"""Batches of texts and of tokens: encoded texts, token codes with offsets, and counts by class.

Plain containers. How tokens are found stands in ``tokenization.encoder``, how they are drawn in the mechanisms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.policy import CLASSES, MASK

__all__ = [
    "DROPPED",
    "KEPT",
    "MASKED",
    "REPLACEMENT",
    "SPAN",
    "EncodedTexts",
    "RawBatch",
    "RawTokens",
    "SpanTokens",
    "code_names",
    "counts_of",
    "named_counts",
    "several_texts",
    "string_ids_of",
]

# Codes of a token that is not drawn; UNKNOWN and the ids of words lie above.
MASKED, KEPT = -2, -3  # a kept token of class number c has code KEPT - c
DROPPED = KEPT - len(CLASSES)  # in no batch: the encoder leaves such tokens out
SPAN = DROPPED - 1  # a typed span of kind number k has code SPAN - k, and is one token
REPLACEMENT = np.frombuffer("\N{REPLACEMENT CHARACTER}".encode(), dtype=np.uint8)


def several_texts(given: Any) -> Iterator[Any]:
    """Return an iterator over texts; what would yield something else in their place is refused.

    Raises
    ------
    TextprivError
        For one string, whose letters are no texts, and for tables and mappings, which yield the names of columns.
    """
    if isinstance(given, str | bytes | Mapping) or hasattr(given, "columns"):
        raise TextprivError(
            f"expected several texts, as a list or another iterable of strings; got {type(given).__name__}. Put one text in "
            "a list; for a table: textpriv.privatize_frame."
        )
    if not isinstance(given, Iterable):
        raise TextprivError(
            f"expected texts, a string or an iterable of strings; got {type(given).__name__}."
        )
    return iter(given)


@dataclass(frozen=True)
class RawTokens:
    """One tokenized document: for each token a word id, ``UNKNOWN``, ``MASKED``, or ``KEPT - c`` where class c is kept.

    ``kept`` has the strings of the kept tokens; no other string of the text is in it.
    """

    codes: NDArray[np.int32]
    kept: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by what is done with them; see :func:`counts_of`."""
        return counts_of(self.codes)


@dataclass(frozen=True)
class SpanTokens:
    """What was read of the typed spans of a batch, in order.

    Attributes
    ----------
    kinds : tuple of str
        By their numbers in the codes.
    values : list
        What the law of each span read, for the law to draw from.
    texts : list of str
        The spans as written.
    offsets : ndarray of int64, shape (S, 2)
        Start and end of each in its raw text, in characters.
    """

    kinds: tuple[str, ...]
    values: list[Any] = field(repr=False)
    texts: list[str] = field(repr=False)
    offsets: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class RawBatch:
    """Tokenized documents, one after another.

    Attributes
    ----------
    codes : ndarray of int32, shape (T,)
        As in :class:`RawTokens`.
    offsets : ndarray of int64, shape (D + 1,)
        Offsets of the documents in the codes.
    string_ids : ndarray of int32
        For each token that is not drawn, in order, its index in ``strings``.
    strings : list of str
        What is released for tokens that are not drawn; a typed span has the mask until its law has drawn.
    spans : SpanTokens, optional
        The typed spans, where there may be some.
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    string_ids: NDArray[np.int32]
    strings: list[str]
    spans: SpanTokens | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> dict[str, int]:
        """Tokens of all documents by what is done with them; see :func:`counts_of`."""
        return counts_of(self.codes, self.kinds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of typed spans, by their numbers in the codes."""
        return self.spans.kinds if self.spans else ()

    def spans_between(self, first: int, last: int) -> dict[int, str]:
        """The kind of each typed span among the tokens from one number up to (without) another, counted from the first."""
        if self.spans is None:
            return {}
        codes = self.codes[first:last]
        at = np.flatnonzero(codes <= SPAN)
        kinds = (self.spans.kinds[SPAN - code] for code in codes[at].tolist())
        return dict(zip(at.tolist(), kinds, strict=True))

    def compact(self) -> RawBatch:
        """The same batch without the strings that it does not use."""
        used, string_ids = np.unique(self.string_ids, return_inverse=True)
        strings = [self.strings[index] for index in used.tolist()]
        return replace(self, string_ids=string_ids.astype(np.int32), strings=strings)

    @classmethod
    def of(cls, documents: Sequence[RawTokens]) -> RawBatch:
        """Concatenate documents."""
        offsets = np.zeros(len(documents) + 1, dtype=np.int64)
        np.cumsum([len(document.codes) for document in documents], out=offsets[1:])
        if len(documents) == 1:
            codes = documents[0].codes
        else:
            codes = np.concatenate([np.empty(0, np.int32), *(each.codes for each in documents)])
        strings = [MASK, *(string for document in documents for string in document.kept)]
        return cls(codes, offsets, string_ids_of(codes, 1), strings)


@dataclass(frozen=True)
class EncodedTexts:
    """Texts as UTF-8, one after another, as Arrow keeps them.

    Attributes
    ----------
    data : ndarray of uint8
    offsets : ndarray of int64, shape (D + 1,)
        Of the texts in the data, in bytes.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        for begin, end in zip(offsets, offsets[1:], strict=False):
            yield data[begin:end].decode("utf-8")

    def part(self, start: int, stop: int) -> EncodedTexts:
        """The texts from one number up to (without) another."""
        offsets = self.offsets[start : stop + 1]
        return EncodedTexts(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])

    @classmethod
    def joined(cls, parts: Sequence[EncodedTexts]) -> EncodedTexts:
        """Concatenate; without a copy where there is one part."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(np.concatenate([part.data for part in parts]), offsets)

    def lowered(self) -> EncodedTexts:
        """The same texts in lower case, each as a whole: ``str.lower`` depends on what stands around a letter."""
        data = self.data.tobytes()
        lowered = np.frombuffer(data.lower(), dtype=np.uint8)  # of ASCII alone
        if data.isascii():
            return EncodedTexts(lowered, self.offsets)
        wide = np.flatnonzero(self.data >= 0x80)
        texts = np.unique(np.searchsorted(self.offsets, wide, side="right") - 1).tolist()
        whole = {number: self[number].lower().encode("utf-8") for number in texts}
        data, offsets = lowered.tobytes(), self.offsets.tolist()
        sizes = np.diff(self.offsets)
        parts, end = [], 0
        for number, text in whole.items():
            parts += [data[end : offsets[number]], text]
            end = offsets[number + 1]
            sizes[number] = len(text)
        moved = np.concatenate([[0], np.cumsum(sizes)])
        return EncodedTexts(np.frombuffer(b"".join([*parts, data[end:]]), dtype=np.uint8), moved)

    @classmethod
    def of(cls, texts: Iterable[str]) -> EncodedTexts:
        """Encode texts; half a surrogate pair, which has no UTF-8 form, becomes the replacement character."""
        return cls.of_bytes(map(_encoded, texts))

    @classmethod
    def of_bytes(cls, texts: Iterable[bytes]) -> EncodedTexts:
        """Concatenate texts that are valid UTF-8."""
        encoded = list(texts)
        offsets = np.array([0, *accumulate(map(len, encoded))], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def string_ids_of(codes: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    """For each token that is not drawn the number of its string: 0 if masked; those of kept ones count up from ``first``."""
    kept = codes[codes < UNKNOWN] != MASKED
    return np.where(kept, first - 1 + np.cumsum(kept), 0).astype(np.int32)


def counts_of(codes: NDArray[np.int32], kinds: Sequence[str] = ()) -> dict[str, int]:
    """Tokens by their codes: sampled, masked, kept ones by class, and spans by kind; only "sampled" may be 0."""
    names = code_names(kinds)
    tally = np.bincount(UNKNOWN - np.minimum(codes, UNKNOWN), minlength=len(names))
    return named_counts(names, tally.tolist())


def code_names(kinds: Sequence[str] = ()) -> tuple[str, ...]:
    """What is done with tokens of the code ``UNKNOWN`` and all above it, and of each code below it."""
    return ("sampled", "masked", *CLASSES, "dropped", *(f"span {kind}" for kind in kinds))


def named_counts(names: Sequence[str], tally: Sequence[int]) -> dict[str, int]:
    """What :func:`counts_of` gives, from how many tokens each of the :func:`code_names` has."""
    counted = zip(names, tally, strict=True)
    return {name: count for name, count in counted if count or name == "sampled"}
