"""Batches of texts and of tokens: encoded texts, token codes with offsets, and counts by class.

Plain containers. How tokens are found stands in ``tokenization.encoder``, how they are drawn in the mechanisms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.policy import CLASSES, MASK

__all__ = ["EncodedTexts", "RawBatch", "RawTokens", "counts_of"]

# Codes of a token that is not drawn; UNKNOWN and the ids of words lie above.
_MASKED, _KEPT = -2, -3  # a kept token of the class at place c has code _KEPT - c
_DROPPED = _KEPT - len(CLASSES)  # never leaves this module
_REPLACEMENT = np.frombuffer("\N{REPLACEMENT CHARACTER}".encode(), dtype=np.uint8)


@dataclass(frozen=True)
class RawTokens:
    """One document as the mechanism sees it: codes, and the strings of tokens that the policy keeps.

    It holds no string that the policy does not release.
    """

    codes: NDArray[np.int32]
    kept: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by what is to be done with them: sampled, masked, and kept ones by class."""
        return counts_of(self.codes)


@dataclass(frozen=True)
class RawBatch:
    """Documents as the mechanism sees them, one after another.

    Attributes
    ----------
    codes : ndarray of int32, shape (T,)
        As in :class:`RawTokens`.
    cuts : ndarray of int64, shape (D + 1,)
        Where each document begins, and the end.
    others : ndarray of int32
        For each token that is not drawn, in order, its place in ``strings``.
    strings : list of str
        What is released for tokens that are not drawn.
    """

    codes: NDArray[np.int32]
    cuts: NDArray[np.int64]
    others: NDArray[np.int32]
    strings: list[str]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    @property
    def counts(self) -> dict[str, int]:
        """Tokens of all documents by what is to be done with them."""
        return counts_of(self.codes)

    def compact(self) -> RawBatch:
        """The same batch with no string that is not used in it, to be sent."""
        used, others = np.unique(self.others, return_inverse=True)
        strings = [self.strings[place] for place in used.tolist()]
        return RawBatch(self.codes, self.cuts, others.astype(np.int32), strings)

    @classmethod
    def of(cls, documents: Sequence[RawTokens]) -> RawBatch:
        """Put documents one after another."""
        cuts = np.zeros(len(documents) + 1, dtype=np.int64)
        np.cumsum([len(document.codes) for document in documents], out=cuts[1:])
        if len(documents) == 1:
            codes = documents[0].codes
        else:
            codes = np.concatenate([np.empty(0, np.int32), *(each.codes for each in documents)])
        rest = codes[codes < UNKNOWN]
        others = np.zeros(len(rest), dtype=np.int32)
        strings = [MASK, *(string for document in documents for string in document.kept)]
        others[rest != _MASKED] = np.arange(1, len(strings), dtype=np.int32)
        return cls(codes, cuts, others, strings)


@dataclass(frozen=True)
class EncodedTexts:
    """Texts as UTF-8, one after another, as Arrow keeps them.

    Attributes
    ----------
    data : ndarray of uint8
    cuts : ndarray of int64, shape (D + 1,)
        Where each text begins in the data, and the end.
    """

    data: NDArray[np.uint8]
    cuts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, place: int) -> str:
        return self.data[self.cuts[place] : self.cuts[place + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        data, cuts = self.data.tobytes(), self.cuts.tolist()
        for begin, end in zip(cuts, cuts[1:], strict=False):
            yield data[begin:end].decode("utf-8")

    def lowered(self) -> EncodedTexts:
        """The same texts in lower case, each as a whole by ``str.lower``, which may look at what stands around a letter."""
        data, cuts = self.data.tobytes(), self.cuts.tolist()
        if data.isascii():
            return EncodedTexts(np.frombuffer(data.lower(), dtype=np.uint8), self.cuts)
        parts = (data[begin:end] for begin, end in itertools.pairwise(cuts))
        return EncodedTexts.of_bytes(
            part.lower() if part.isascii() else part.decode("utf-8").lower().encode("utf-8")
            for part in parts
        )

    @classmethod
    def of(cls, texts: Iterable[str]) -> EncodedTexts:
        """Encode texts; half a surrogate pair, which has no UTF-8 form, becomes the replacement character."""
        return cls.of_bytes(map(_encoded, texts))

    @classmethod
    def of_bytes(cls, texts: Iterable[bytes]) -> EncodedTexts:
        """Put texts that are sound UTF-8 one after another."""
        encoded = list(texts)
        cuts = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=cuts[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), cuts)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _repaired(text).encode("utf-8")


def _repaired(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counts_of(codes: NDArray[np.int32]) -> dict[str, int]:
    """Tokens by their codes: sampled, masked, and kept ones by class."""
    lowest = _KEPT - len(CLASSES) + 1
    tally = np.bincount(
        np.minimum(codes, UNKNOWN) - lowest, minlength=UNKNOWN - lowest + 1
    ).tolist()
    counts = {"sampled": tally[UNKNOWN - lowest]}
    if tally[_MASKED - lowest]:
        counts["masked"] = tally[_MASKED - lowest]
    for place, name in enumerate(CLASSES):
        if tally[_KEPT - place - lowest]:
            counts[name] = tally[_KEPT - place - lowest]
    return counts
