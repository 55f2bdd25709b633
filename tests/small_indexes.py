"""Indexes of made-up words, such as most tests of whole runs need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from textpriv.index import Index
from textpriv.index.axes import Axes
from textpriv.vocabulary import Vocabulary


def saved(folder: Path, words: Sequence[str], dimension: int = 8) -> Path:
    """Save an index of words with random vectors, the same ones every time, in a folder; return its path."""
    vectors = np.random.default_rng(0).normal(size=(len(words), dimension))
    Index.build(Vocabulary(words, vectors), "euclidean", k=16).save(folder / "small.idx")
    return folder / "small.idx"


def learned(words: Sequence[str], dimension: int = 8) -> Index:
    """Return an index of words with random vectors and axes; in their domain the last words are the commonest ones."""
    vectors = np.random.default_rng(0).normal(size=(len(words), dimension))
    vocabulary = Vocabulary(words, vectors, language="en")
    values = np.where(np.arange(len(words)) % 2, 1.5, -1.5)[:, None] * [[1.0, -1.0]]
    frequency = vocabulary.prior_weights(vocabulary.prior_weights("zipf")[::-1] ** 2)
    known = ("one record", 1.0, 1e-5, 1.5, vocabulary.fingerprint())
    return Index.build(vocabulary, k=16, axes=Axes(("neg", "pos"), values, frequency, *known))
