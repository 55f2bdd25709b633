"""Two-sided geometric noise, drawn exactly, and the law of a whole number with it on a public range.

``P(N = n) = (1 - q) / (1 + q) q^|n|`` with ``q = exp(-epsilon)``, also called discrete Laplace (Ghosh, Roughgarden and
Sundararajan 2012). How it is drawn: N is 0 with probability ``(1 - q) / (1 + q)``; otherwise it has a fair sign and
``|N| - 1`` is geometric, ``P(G = g) = (1 - q) q^g``. The binary digits of G are independent, digit i is 1 with
probability ``q^(2^i) / (1 + q^(2^i))``, since ``prod_i (1 + q^(2^i)) = 1 / (1 - q)``; and G reaches ``2^B`` with
probability ``q^(2^B)``, whatever its lower digits are. So some coins give N up to a bound, and beyond it that it is beyond.

Coins are exact: a coin of probability p compares the digits of a uniform number with those of p, 64 at a time, and takes
as many more as it needs. Epsilon is read as the rational number that its float is, and every p here is irrational (e to a
rational power other than 0 is transcendental), so the comparison ends. No float decides, and a draw takes the same number of
words whatever was drawn, but with probability ``2^-64`` a coin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.mechanisms.base import positive
from textpriv.randomness import RandomWords

__all__ = ["LARGEST_BOUND", "TwoSidedGeometric", "digits_context"]

LARGEST_BOUND = 1 << 40
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

    Raises
    ------
    MechanismError
        For parameters without meaning.
    """

    def __init__(self, epsilon: float, bound: int) -> None:
        self.epsilon = positive("epsilon", epsilon)
        if self.epsilon > _LARGEST_EPSILON or not 1 <= bound <= LARGEST_BOUND:
            raise MechanismError(
                f"epsilon is at most {_LARGEST_EPSILON:g} a unit, and a range at most 2^40 units wide; got "
                f"{self.epsilon:g} and {bound:,}. Take a coarser grid."
            )
        self.bound = int(bound)
        self._digits = (self.bound - 1).bit_length()

    @cached_property
    def _thresholds(self) -> NDArray[np.uint64]:
        """First words of the probabilities of the coins: of 0, of each binary digit, and of what lies beyond."""
        return np.array(
            [self._expansion(coin, 1) for coin in range(self._digits + 2)], dtype=np.uint64
        )

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
            scaled = context.multiply(
                self._probability(coin, context), Decimal(1 << (_WORD * words))
            )
            error = context.scaleb(scaled, _GUARD - digits)
            low, high = (
                math.floor(each)
                for each in (context.subtract(scaled, error), context.add(scaled, error))
            )
            if low == high:
                return low
            digits *= 2

    def draw(self, count: int, stream: RandomWords) -> NDArray[np.int64]:
        """Draw independent noise, shape (count,); takes ``2 + B`` words and a sign each, ``B = log2(bound)`` rounded up."""
        return self.draw_each(np.array([0, count]), [stream])

    def draw_each(
        self, offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int64]:
        """What :meth:`draw` gives from one stream after another, shape (offsets[-1],)."""
        words = np.empty((int(offsets[-1]), self._digits + 3), dtype=np.uint64)
        for stream, (first, last) in zip(streams, pairwise(offsets.tolist()), strict=True):
            stream.fill(words[first:last])
        coins = words[:, 1:] < self._thresholds
        ties = words[:, 1:] == self._thresholds
        if ties.any():
            for row, coin in np.argwhere(ties).tolist():
                stream = streams[int(np.searchsorted(offsets, row, side="right")) - 1]
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
        for end, tail in ((0, cell - low), (-1, high - cell)):
            if tail >= 0:
                law[end] = -self.epsilon * tail - both
            else:
                law[end] = math.log1p(-math.exp(-self.epsilon * (1 - tail) - both))
        return law
