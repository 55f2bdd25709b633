"""Priors over words: from a name, counts, a file of them or an array, to one weight a word."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.readers import decoded, is_number, lines_of, refuse

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Prior: TypeAlias = "str | os.PathLike[str] | Mapping[str, float] | ArrayLike"
"""A prior as users give it: a name, a file of counts, a mapping from word to count, or an array."""

NAMES = ("zipf", "uniform", "counts")
_ZIPF_MANDELBROT_SHIFT = 2.7


def weights_of(
    prior: Prior, words: Sequence[str], carried: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Turn a prior into V weights above 0, not normalised; "counts" are those that the vocabulary carries."""
    if isinstance(prior, str) and prior in NAMES:
        if prior == "uniform":
            return np.ones(len(words))
        if prior == "zipf":
            return 1.0 / (np.arange(1.0, len(words) + 1.0) + _ZIPF_MANDELBROT_SHIFT)
        if carried is None:
            raise VocabularyError(
                'The vocabulary carries no counts for prior="counts". Give public counts when you build or load it, or '
                'choose "zipf" or "uniform".'
            )
        return carried
    if not isinstance(prior, str | os.PathLike | Mapping):
        return _of_array(prior, len(words))
    counts = counts_of(prior)
    weights = np.array([float(counts.get(word, 0.0)) for word in words])
    counted = weights > 0
    if not counted.any():
        raise VocabularyError(
            f"None of the {len(words):,} words has a count above 0. Check that the counts are of this language and case."
        )
    weights[~counted] = weights[counted].min() / 2
    return weights


def counts_of(prior: str | os.PathLike[str] | Mapping[str, float]) -> Mapping[str, float]:
    """Return counts of words that are given as a mapping, or in a file of lines "word count"."""
    if isinstance(prior, Mapping):
        counts = np.array(list(prior.values()), dtype=np.float64)
        if not (np.isfinite(counts) & (counts >= 0)).all():
            raise VocabularyError("A count is not finite or below 0. Correct it or leave it out.")
        return prior
    path = Path(prior)
    if not path.is_file():
        raise VocabularyError(
            f'{os.fspath(prior)!r} is no prior. Use "zipf", "uniform", "counts", an array, or a file or mapping of counts.'
        )
    found: dict[str, float] = {}
    for number, line in lines_of(path):
        fields = line.rsplit(maxsplit=1)
        count = float(fields[1]) if len(fields) == 2 and is_number(fields[1]) else -1.0
        if not 0.0 <= count < np.inf:
            refuse(path, number, "expected a word, a space and a count from 0 up")
        word = decoded(path, number, fields[0])
        if word in found:
            refuse(path, number, "the word has a count further up")
        found[word] = count
    return found


def _of_array(prior: ArrayLike, size: int) -> NDArray[np.float64]:
    weights = np.asarray(prior)
    if weights.dtype.kind not in "fiu" or weights.shape != (size,):
        raise VocabularyError(
            f"A prior must be a name, counts, or real numbers of shape ({size},), one for each word."
        )
    weights = weights.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        raise VocabularyError(
            f"A prior must have finite weights above 0, and that at position {bad[0]} is not. Every word must stay possible."
        )
    return weights
