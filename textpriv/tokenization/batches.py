"""Batches of tokenized documents: one code for each token, and the tokens that are released as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.policy import CLASSES

# Codes below UNKNOWN are of tokens that are not drawn.
MASKED, KEPT = -2, -3  # a kept token of class number c has the code KEPT - c
SPAN = KEPT - len(CLASSES)  # a typed span of kind number k has the code SPAN - k, and is one token


@dataclass(frozen=True)
class SpanTokens:
    """The typed spans of a batch, in order.

    Attributes
    ----------
    kinds : tuple of str
        By their numbers in the codes.
    values : list
        The value that the mechanism of each span read, and draws from.
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
        For each token a word id, ``UNKNOWN``, ``MASKED``, ``KEPT - c`` for a kept token of class c, or ``SPAN - k``.
    offsets : ndarray of int64, shape (D + 1,)
        Offsets of the documents in the codes.
    strings : list of str
        For each token with a code below ``UNKNOWN``, in order, what is released: the mask, the token as written, or the
        surface of a typed span (the mask until its mechanism has drawn).
    spans : SpanTokens, optional
        The typed spans, if the texts were searched for them.
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    strings: list[str] = field(repr=False)
    spans: SpanTokens | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of typed spans, by their numbers in the codes."""
        return self.spans.kinds if self.spans else ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of tokens by class: sampled, masked, kept ones by class, and spans by kind."""
        rows = tally(self.codes, np.array([0, len(self.codes)]), len(class_names(self.kinds)))
        return named_counts(self.kinds, rows[0].tolist())


def class_names(kinds: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the classes by which tokens are counted; the first is of codes from UNKNOWN up, the next of codes below."""
    return ("sampled", "masked", *CLASSES, *(f"span {kind}" for kind in kinds))


def tally(codes: NDArray[np.int32], offsets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Count the tokens of each document by class, shape (D, classes)."""
    documents = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    cells = documents * classes + (UNKNOWN - np.minimum(codes, UNKNOWN))
    counts = np.bincount(cells, minlength=(len(offsets) - 1) * classes)
    return counts.reshape(len(offsets) - 1, classes)


def named_counts(kinds: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Counts by the name of their class; only "sampled" may be 0."""
    named = zip(class_names(kinds), counts, strict=True)
    return {name: count for name, count in named if count or name == "sampled"}
