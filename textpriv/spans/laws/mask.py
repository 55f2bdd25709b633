"""The mask: a span becomes the name of its kind in brackets.

Proof. The surface is one public string for every value, so every ratio of probabilities is 1 and the loss is 0. That
there was a span of this kind here is structure.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import Scopes, SpanClaim, SpanLaw

__all__ = ["Mask"]


class Mask(SpanLaw):
    """The mask of a kind: ``[KIND]`` for every span.

    Parameters
    ----------
    kind : str, optional
        What is written in the brackets.

    Examples
    --------
    >>> from textpriv.randomness import Stream
    >>> law = Mask("PERSON")
    >>> law.draw([law.parse("Ann"), law.parse("Bob Hall")], Stream())
    ['[PERSON]', '[PERSON]']
    """

    name = "mask"

    def parse(self, text: str) -> str:
        """Any surface; they all are one value."""
        return ""

    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Return the kind in brackets, for each."""
        return [f"[{self.kind}]"] * len(values)

    def loss(self, first: Any, second: Any) -> float:
        """Nothing."""
        return 0.0

    def stays(self) -> dict[str, float]:
        """Never."""
        return {"": 0.0}

    def outputs(self, structure: Hashable) -> Sequence[str]:
        """The one surface."""
        return (f"[{self.kind}]",)

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Certainty, shape (1,)."""
        return np.zeros(1)

    def claim(self) -> SpanClaim:
        """A loss of 0."""
        return SpanClaim(f"mask of {self.kind}", 0.0, "span", 0.0)

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Two names under one mask."""
        return [(cls("PERSON"), ["Ann", "Bob Hall"])]
