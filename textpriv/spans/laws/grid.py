"""The noise that laws on cells share: two-sided geometric, drawn exactly, on a public range of whole numbers.

*Loss.* A value is a cell k of ``first..last`` and a public structure. Released is ``max(first, min(k + N, last))``
with ``P(N = n) = (1 - q) / (1 + q) q^|n|``, ``q = exp(-epsilon)``, also called discrete Laplace (Ghosh, Roughgarden
and Sundararajan 2012). For every y, ``P(k + N = y) / P(k' + N = y) = exp(epsilon (|y - k'| - |y - k|)) <= exp(epsilon
|k - k'|)``; clamping and writing are functions of y, the structure and public numbers, so the loss between k and k'
of one structure is at most ``epsilon |k - k'|``. It is exactly that, for ``P(k + N >= last) = q^(last - k) / (1 +
q)``.

*Draws.* N is 0 with probability ``(1 - q) / (1 + q)``. Otherwise it has a fair sign, and ``|N| - 1`` is geometric,
``P(G = g) = (1 - q) q^g``. The binary digits of G are independent, digit i is 1 with probability ``q^(2^i) / (1 +
q^(2^i))``, since ``prod_i (1 + q^(2^i)) = 1 / (1 - q)``; and G reaches ``2^B`` with probability ``q^(2^B)``, whatever
its lower digits are. Coins are exact: a coin of probability p compares the digits of a uniform number with those of
p, 64 at a time, and takes as many more as it needs. Epsilon is the rational number that its float is, so every p is
irrational (e to a rational power other than 0 is transcendental) and the comparison ends. No float decides, and a
draw takes the same number of words whatever was drawn, except with probability ``2^-64`` a coin.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import LARGEST_LIST, Scopes, SpanLaw

__all__ = ["GridLaw", "TwoSidedGeometric", "digits_context"]

_LARGEST_BOUND = 1 << 40
_LARGEST_EPSILON = 1000.0
_GUARD = 40  # decimal digits that the arithmetic of a probability may lose: rates stay below 2^51
_WORD = 64
_FAIR = np.uint64(1 << 63)


def digits_context(digits: int) -> Context:
    """Decimal arithmetic of some digits that no setting of the process changes."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


class TwoSidedGeometric:
    """Two-sided geometric noise, cut at a bound: ``max(-bound, min(N, bound))``.

    Parameters
    ----------
    epsilon : float
        Nats per unit; above 0, at most 1000.
    bound : int
        From 1 to ``2^40``.
    """

    def __init__(self, epsilon: float, bound: int) -> None:
        if not 0 < epsilon <= _LARGEST_EPSILON or not 1 <= bound <= _LARGEST_BOUND:
            raise MechanismError(
                f"epsilon is above 0 and at most {_LARGEST_EPSILON:g} a unit, and a range at most 2^40 units wide; got "
                f"{epsilon} and {bound:,}. Take a coarser grid."
            )
        self.epsilon, self.bound = float(epsilon), int(bound)
        self._digits = (self.bound - 1).bit_length()

    @cached_property
    def _thresholds(self) -> NDArray[np.uint64]:
        """First words of the probabilities of the coins: of 0, of each binary digit, and of what lies beyond."""
        coins = range(self._digits + 2)
        return np.array([self._expansion(coin, 1) for coin in coins], dtype=np.uint64)

    def _probability(self, coin: int, context: Context) -> Decimal:
        power = 0 if coin == 0 else 1 << (coin - 1)  # the last coin: 2^B
        rate = context.multiply(Decimal(self.epsilon), Decimal(power or 1))
        q = context.exp(rate.copy_negate())  # a minus sign would round by the process's digits
        if coin == self._digits + 1:
            return q
        numerator = context.subtract(Decimal(1), q) if coin == 0 else q
        return context.divide(numerator, context.add(Decimal(1), q))

    def _expansion(self, coin: int, words: int) -> int:
        """The first ``64 * words`` binary digits of a coin's probability, as a whole number."""
        digits = 20 * words + 2 * _GUARD
        while True:
            context = digits_context(digits)
            scale = Decimal(1 << (_WORD * words))
            scaled = context.multiply(self._probability(coin, context), scale)
            error = context.scaleb(scaled, _GUARD - digits)
            low = math.floor(context.subtract(scaled, error))
            if low == math.floor(context.add(scaled, error)):
                return low
            digits *= 2

    def draw(self, count: int, stream: RandomWords) -> NDArray[np.int64]:
        """Draw independent noise, shape (count,)."""
        words = np.empty((count, self._digits + 3), dtype=np.uint64)
        stream.fill(words)
        coins = words[:, 1:] < self._thresholds
        for row, coin in np.argwhere(words[:, 1:] == self._thresholds).tolist():
            coins[row, coin] = self._decide(coin, int(words[row, coin + 1]), stream)
        powers = 1 << np.arange(self._digits, dtype=np.int64)
        size = np.minimum(1 + coins[:, 1:-1] @ powers, self.bound)
        size[coins[:, -1]] = self.bound
        size[coins[:, 0]] = 0
        return np.where(words[:, 0] < _FAIR, -size, size)

    def _decide(self, coin: int, drawn: int, stream: RandomWords) -> bool:
        """A coin whose first words are those of its probability: read on."""
        more = np.empty(1, dtype=np.uint64)
        words = 1
        while True:
            stream.fill(more)
            words += 1
            drawn = (drawn << _WORD) | int(more[0])
            expected = self._expansion(coin, words)
            if drawn != expected:
                return drawn < expected

    def log_law(self, cell: int, low: int, high: int) -> NDArray[np.float64]:
        """Natural logarithm of the law of ``max(low, min(cell + N, high))`` over low..high, shape (high - low + 1,).

        ``P(N >= m) = q^m / (1 + q)`` for m from 0 up. The bound must reach beyond both ends.
        """
        if low == high:
            return np.zeros(1)
        both = math.log1p(math.exp(-self.epsilon))
        law = -self.epsilon * np.abs(np.arange(low, high + 1) - float(cell))
        law += math.log(-math.expm1(-self.epsilon)) - both
        law[0] = -self.epsilon * (cell - low) - both
        law[-1] = -self.epsilon * (high - cell) - both
        return law


class GridLaw(SpanLaw):
    """Two-sided geometric noise on cells; a value is a tuple of its cell and its structure.

    Parameters
    ----------
    epsilon : float
        Nats a cell.
    first, last : int
        The public range.
    kind : str, optional
    width : int
        Of the widest range of a structure, if that is not the public one.
    """

    def __init__(
        self, epsilon: float, first: int, last: int, kind: str | None, width: int = 1
    ) -> None:
        super().__init__(kind)
        self.first, self.last = first, last
        # Beyond the width of the range more noise changes nothing.
        self._noise = TwoSidedGeometric(epsilon, max(width, last - first))
        self.epsilon = self._noise.epsilon

    @abstractmethod
    def _surface(self, cell: int, structure: Any) -> str:
        """Write a cell."""

    def ends(self, structure: Any) -> tuple[int, int]:
        """The first and last cell of a structure."""
        return self.first, self.last

    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Draw a surface for each, by noise of its own."""
        return self._moved(values, self._noise.draw(len(values), stream).tolist())

    def _moved(self, values: Sequence[Any], noise: Sequence[int]) -> list[str]:
        surfaces = []
        for (cell, *structure), moved in zip(values, noise, strict=True):
            first, last = self.ends(tuple(structure))
            surfaces.append(self._surface(max(first, min(cell + moved, last)), tuple(structure)))
        return surfaces

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
        return {"": (1 - q) / (1 + q), "at the ends of the range": 1 / (1 + q)}

    def outputs(self, structure: Hashable) -> Sequence[str]:
        """The surfaces of all cells, ascending."""
        first, last = self.ends(structure)
        if last - first >= LARGEST_LIST:
            raise MechanismError(
                f"the range has {last - first + 1:,} cells, too many for a list of all outputs."
            )
        return [self._surface(cell, structure) for cell in range(first, last + 1)]

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Exact law over the cells of the range, shape (cells,)."""
        return self._noise.log_law(value[0], *self.ends(self.structure(value)))
