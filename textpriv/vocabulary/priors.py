"""How common the words of a vocabulary are: from counts, a file of them or an array, to one weight a word.

What uses the weights stands with the mechanisms; files are read in ``vocabulary.readers``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.readers import check_counts, read_counts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Prior", "counts_of", "weights_of"]

Prior: TypeAlias = "str | os.PathLike[str] | Mapping[str, float] | ArrayLike"
"""A prior as users give it: a name, a file of counts, a mapping from word to count, or an array."""


def weights_of(prior: Prior, words: Sequence[str]) -> NDArray[np.float64]:
    """Turn an array, a mapping or a file into V weights above 0, not normalised."""
    if isinstance(prior, str | os.PathLike | Mapping):
        return _of_counts(counts_of(prior), words)
    return _of_array(prior, words)


def counts_of(prior: str | os.PathLike[str] | Mapping[str, float]) -> Mapping[str, float]:
    """Return counts of words that are given as a mapping or in a file."""
    if isinstance(prior, Mapping):
        check_counts(prior)
        return prior
    path = Path(prior)
    if not path.is_file():
        raise VocabularyError(
            f"Expected a prior, found {os.fspath(prior)!r}, which is no file and not one "
            'of "zipf", "uniform" and "counts". Check the name, or pass an array or a '
            "mapping from words to counts."
        )
    return read_counts(path)


def _of_counts(counts: Mapping[str, float], words: Sequence[str]) -> NDArray[np.float64]:
    weights = np.array([float(counts.get(word, 0.0)) for word in words])
    counted = weights > 0
    if not counted.any():
        raise VocabularyError(
            "Expected counts for words of the vocabulary, found a positive one for none of "
            f"its {len(words):,} words. Check that the counts are of this language and written "
            "alike, lower case for instance."
        )
    weights[~counted] = weights[counted].min() / 2
    return weights


def _of_array(prior: ArrayLike, words: Sequence[str]) -> NDArray[np.float64]:
    try:
        given = np.asarray(prior)
    except ValueError:
        given = np.empty(0, dtype=object)
    if given.dtype.kind not in "fiu":
        raise VocabularyError(
            "Expected a prior of real numbers, one a word, or a mapping from words to counts, "
            f"found {type(prior).__name__}. Pass an array of shape ({len(words)},)."
        )
    weights = given.astype(np.float64)
    if weights.shape != (len(words),):
        raise VocabularyError(
            f"Expected a prior of shape ({len(words)},), one weight a word, found shape "
            f"{weights.shape}. Pass the weights in the order of the words."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        raise VocabularyError(
            f"Expected a prior of finite weights above 0, found {len(bad):,} that are not, "
            f"the first at position {bad[0]}. Every word must stay possible: give each a "
            "small positive weight."
        )
    return weights
