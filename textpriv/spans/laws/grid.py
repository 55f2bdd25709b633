"""What laws on a public range of cells share: the noise, the draws, the loss and the law over all cells.

Proof. A value is a cell k of ``first..last`` (whole numbers) and a public structure. Released is
``max(first, min(k + N, last))``, ``P(N = n)`` proportional to ``exp(-epsilon |n|)``. For every y, ``P(k + N = y) / P(k' + N
= y) = exp(epsilon (|y - k'| - |y - k|)) <= exp(epsilon |k - k'|)``; clamping and writing are functions of y, the structure
and public numbers, so the loss between k and k' of one structure is at most ``epsilon |k - k'|``. It is exactly that, for
``P(k + N >= last) = q^(last - k) / (1 + q)`` with ``q = exp(-epsilon)``. How a span is read as a cell, and what a cell is
written as, is each law's own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import LARGEST_LIST, Scopes, SpanLaw
from textpriv.spans.laws.geometric import TwoSidedGeometric

__all__ = ["GridLaw"]


class GridLaw(SpanLaw):
    """Two-sided geometric noise on cells; a value is a tuple of its cell and its structure.

    Parameters
    ----------
    epsilon : float
        Nats a cell.
    first, last : int
        The public range.
    kind : str, optional
    """

    def __init__(self, epsilon: float, first: int, last: int, kind: str | None) -> None:
        super().__init__(kind)
        self.first, self.last = first, last
        # Beyond the width of the range more noise changes nothing.
        self._noise = TwoSidedGeometric(epsilon, max(1, last - first))
        self.epsilon = self._noise.epsilon

    @abstractmethod
    def _surface(self, cell: int, structure: Any) -> str:
        """What a cell is written as."""

    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """A surface for each, from noise of its own."""
        return self._moved(values, self._noise.draw(len(values), stream)) if values else []

    def draw_documents(
        self,
        values: Sequence[Any],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
        scopes: Sequence[Scopes | None],
    ) -> list[str]:
        """As :meth:`SpanLaw.draw_documents`, at once for all."""
        if type(self).draw is not GridLaw.draw:  # a law that draws otherwise, such as one shift
            return super().draw_documents(values, offsets, streams, scopes)
        return self._moved(values, self._noise.draw_each(offsets, streams))

    def _moved(self, values: Sequence[Any], noise: NDArray[np.int64]) -> list[str]:
        cells = np.array([each[0] for each in values], dtype=np.int64) + noise
        drawn = np.minimum(np.maximum(cells, self.first), self.last).tolist()
        moved = [(cell, each[1:]) for cell, each in zip(drawn, values, strict=True)]
        written = {each: self._surface(*each) for each in set(moved)}
        return [written[each] for each in moved]

    def structure(self, value: Any) -> Hashable:
        """All of a value but its cell."""
        return tuple(value[1:])

    def loss(self, first: Any, second: Any) -> float:
        """``epsilon |k - k'|``: exact."""
        if first[1:] != second[1:]:
            return math.inf
        return self.epsilon * abs(first[0] - second[0])

    def stays(self) -> dict[str, float]:
        """``(1 - q) / (1 + q)`` within the range, ``1 / (1 + q)`` at its ends, where all beyond is counted, too."""
        q = math.exp(-self.epsilon)
        if self.first == self.last:
            return {"": 1.0}
        return {"": (1 - q) / (1 + q), "at the ends of the range": 1 / (1 + q)}

    def outputs(self, structure: Hashable) -> Sequence[str]:
        """The surfaces of all cells, ascending."""
        if self.last - self.first >= LARGEST_LIST:
            raise MechanismError(
                f"the range has {self.last - self.first + 1:,} cells, too many for a list of all outputs."
            )
        return [self._surface(cell, structure) for cell in range(self.first, self.last + 1)]

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Exact law over the cells of the range, shape (cells,)."""
        return self._noise.log_law(value[0], self.first, self.last)
