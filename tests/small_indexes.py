"""A saved index of made-up words, such as most tests of whole runs need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from textpriv.index import Index
from textpriv.vocabulary import Vocabulary


def saved(folder: Path, words: Sequence[str], dimension: int = 8) -> Path:
    """Save an index of words with random vectors, the same ones every time, in a folder; return its path."""
    vectors = np.random.default_rng(0).normal(size=(len(words), dimension))
    Index.build(Vocabulary(words, vectors), "euclidean", k=16).save(folder / "small.idx")
    return folder / "small.idx"
