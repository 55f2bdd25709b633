"""A small vocabulary with a language model, and the releases of a measurement as they are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from pairwise.noise.release import PlannedRelease
from textpriv.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.synthesis.synthesizer import PublicSide
from textpriv.vocabulary import Vocabulary

WORDS = "the a film was good bad fine dull plot actor music story".split()
PUBLIC = ["the film was good.", "a dull story.", "the plot was bad.", "fine music.", "the actor."]


@cache
def public() -> PublicSide:
    """Return twelve words with vectors, and a model of five public sentences."""
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 4))
    vocabulary = Vocabulary(WORDS, vectors)
    model = NGrams.count(PUBLIC, vocabulary)
    return PublicSide(Index.build(vocabulary, "euclidean", k=4), model)


@dataclass
class Drawn:
    """One release: its plan, the private value, and what came out."""

    plan: Any
    value: np.ndarray
    output: np.ndarray


@contextmanager
def transcript(past: list[Drawn] | None = None) -> Iterator[list[Drawn]]:
    """Record every release. Outputs are those of ``past``, or the values themselves."""
    seen: list[Drawn] = []

    def release(plan: Any, value: Any, randomness: Any, ahead: Any = None) -> np.ndarray:
        value = np.array(value, dtype=float)
        seen.append(Drawn(plan, value, value if past is None else past[len(seen)].output))
        return np.copy(seen[-1].output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedRelease, "release", release)
        yield seen


class Till:
    """Takes every charge and writes it down."""

    def __init__(self) -> None:
        self.charges: list[dict[str, Any]] = []

    def charge(self, event: Any, **terms: Any) -> None:
        self.charges.append({"event": event, **terms})
