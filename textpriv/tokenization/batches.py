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
    kinds : tuple of str
        The kinds of typed spans, by their numbers in the codes.
    values : list
        For each typed span, in order, what its mechanism read, and draws from.
    surfaces : list of str
        The typed spans as written.
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    strings: list[str] = field(repr=False)
    kinds: tuple[str, ...] = ()
    values: Sequence[Any] = field(default=(), repr=False)
    surfaces: Sequence[str] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> dict[str, int]:
        """Number of tokens by class: sampled, masked, kept ones by class, and spans by kind."""
        return counts_by_class(self.codes, self.kinds)


def counts_by_class(codes: NDArray[np.int32], kinds: Sequence[str]) -> dict[str, int]:
    """Count tokens by the name of their class; only "sampled" may be 0."""
    names = ("sampled", "masked", *CLASSES, *(f"span {kind}" for kind in kinds))
    counts = np.bincount(UNKNOWN - np.minimum(codes, UNKNOWN), minlength=len(names)).tolist()
    named = zip(names, counts, strict=True)
    return {name: count for name, count in named if count or name == "sampled"}
