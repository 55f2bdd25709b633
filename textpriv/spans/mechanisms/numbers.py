"""Numbers on a public grid: amounts, ages and years, moved by two-sided geometric noise that is drawn exactly.

A value is a cell: ``k = floor(x / s + 1/2)`` for a number x that is clamped to the public range and a step s. On a
logarithmic grid ln(x) takes the place of x, and ln(1 + s x) that of a whole number. Exact arithmetic decides cells.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.mechanisms.base import LONGEST, Scopes, SpanClaim, SpanMechanism

UNITS = {
    "usual": tuple(
        "% $ € £ ¥ EUR USD GBP g kg mg µg mcg ng l ml dl mm cm m km °C °F K mmHg bpm kPa IU mmol mol mmol/l mg/dl mg/kg "
        "g/dl ml/min s min h hours minutes days weeks months years tablets".split()
    ),
    "age": (
        *("-year-old", "-years-old", "years old", "year old", "years of age", "years", "year"),
        *("y/o", "yo", "y"),
    ),
}
_LARGEST_BOUND = 1 << 40
_LARGEST_EPSILON = 1000.0
_GUARD = 40  # decimal digits that the arithmetic of a probability may lose: rates stay below 2^51
_WORD = 64
_FAIR = np.uint64(1 << 63)


def _context(digits: int) -> Context:
    """Decimal arithmetic of some digits that no setting of the process changes."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


class TwoSidedGeometric:
    """Two-sided geometric noise (discrete Laplace), cut at a bound: ``max(-bound, min(N, bound))``.

    ``P(N = n) = (1 - q) / (1 + q) q^|n|`` with ``q = exp(-epsilon)``. N is 0, or has a fair sign and a size of 1 plus a
    whole number with independent binary digits. Each is a coin that compares the digits of a uniform number with those of
    its probability, 64 at a time, and takes as many more as it needs. A draw takes the same number of words whatever was
    drawn, except with probability ``2^-64`` a coin.
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
            context = _context(digits)
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
        words, expected = 1, drawn
        while drawn == expected:
            words += 1
            drawn = (drawn << _WORD) | int(stream.words(1)[0])
            expected = self._expansion(coin, words)
        return drawn < expected

    def log_prob(self, cell: int, low: int, high: int) -> NDArray[np.float64]:
        """Log probability of ``max(low, min(cell + N, high))`` over low..high, shape (high - low + 1,).

        ``P(N >= m) = q^m / (1 + q)`` for m from 0 up. The bound must reach beyond both ends.
        """
        if low == high:
            return np.zeros(1)
        both = math.log1p(math.exp(-self.epsilon))
        found = -self.epsilon * np.abs(np.arange(low, high + 1) - float(cell))
        found += math.log(-math.expm1(-self.epsilon)) - both
        found[0] = -self.epsilon * (cell - low) - both
        found[-1] = -self.epsilon * (high - cell) - both
        return found


class GridMechanism(SpanMechanism):
    """Two-sided geometric noise, of epsilon nats a cell, on cells of a public range; a value begins with its cell."""

    def __init__(
        self, epsilon: float, first: int, last: int, kind: str | None, width: int = 1
    ) -> None:
        super().__init__(kind)
        self.first, self.last = first, last
        # Beyond the width of the widest range of a structure more noise changes nothing.
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

    def loss(self, first: Any, second: Any) -> float:
        """``epsilon |k - k'|``: exact."""
        if first[1:] != second[1:]:
            return math.inf
        return self.epsilon * abs(first[0] - second[0])

    def stays(self) -> dict[str, float]:
        """``(1 - q) / (1 + q)`` within the range, ``1 / (1 + q)`` at its ends, where all beyond is counted, too."""
        q = math.exp(-self.epsilon)
        return {"": (1 - q) / (1 + q), "at the ends of the range": 1 / (1 + q)}

    def outputs(self, structure: Any) -> Sequence[str]:
        """The surfaces of all cells, ascending."""
        first, last = self.ends(structure)
        return [self._surface(cell, structure) for cell in range(first, last + 1)]

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Exact output distribution over the cells of the range, shape (cells,)."""
        return self._noise.log_prob(value[0], *self.ends(self.structure(value)))


class Quantity(NamedTuple):
    """A number as its mechanism sees it: its cell, and its structure."""

    cell: int
    unit: str = ""  # of the public list
    before: bool = False  # whether the unit is before the number
    negative: bool = False  # on a logarithmic grid, as the next
    whole: bool = False


class Number(GridMechanism):
    """Two-sided geometric noise on a public grid.

    Parameters
    ----------
    epsilon : float
        Nats per step of the grid.
    low, high : int, float, str or Decimal
        The public range, which numbers outside of it are clamped to. A float means the decimal that it is written as.
    step : int, float, str or Decimal
        Of x, or of ``ln x`` on a logarithmic grid (0.1: about 10 %).
    grid : "linear" or "log"
        A logarithmic grid needs ``low`` above 0.
    units : sequence of str, "usual" or "age"
        Units that are kept as structure; a number with another one is not read. Default: none.
    kind : str, optional

    Examples
    --------
    >>> mechanism = Number(0.5, low=0, high=500, step=5, units=["mg"])
    >>> mechanism.parse("1,250.5 mg").cell, mechanism.parse("5 Johnson"), mechanism.claim().largest
    (100, None, 50.0)
    """

    name = "number"

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        step: Any = 1,
        grid: Literal["linear", "log"] = "linear",
        units: Sequence[str] | str = (),
        kind: str | None = None,
    ) -> None:
        self.grid = grid
        if grid not in ("linear", "log") or (isinstance(units, str) and units not in UNITS):
            raise MechanismError(
                'grid is "linear" or "log", and units are "usual", "age" or a list such as ["mg", "ml"].'
            )
        self.units = UNITS[units] if isinstance(units, str) else tuple(units)
        self.low, self.high, self.step = str(low), str(high), str(step)
        try:
            self._low, self._high, self._step = map(Decimal, (self.low, self.high, self.step))
            is_range = self._low < self._high < Decimal("inf") and self._step > 0
        except ArithmeticError:
            is_range = False
        if not is_range or (grid == "log" and self._low <= 0):
            raise MechanismError(
                f"a range needs low < high and a step above 0, a logarithmic one low above 0; got {low}..{high}, {step}."
            )
        self._whole = self._cell(self._low, whole=True), self._cell(self._high, whole=True)
        width = self._whole[1] - self._whole[0]
        super().__init__(epsilon, self._cell(self._low), self._cell(self._high), kind, width)
        unit = "|".join(map(re.escape, sorted(self.units, key=len, reverse=True))) or "(?!)"
        digits = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
        self._pattern = re.compile(
            rf"\s*(?P<sign>[+−-]?)\s*(?P<before>{unit})?\s*"
            rf"(?P<number>(?:{digits}(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{{1,3}})?)"
            rf"\s*(?P<after>{unit})?\s*",
            re.IGNORECASE,
        )

    def ends(self, structure: Any) -> tuple[int, int]:
        """The first and last cell, of whole numbers or of all."""
        return self._whole if structure[-1] else (self.first, self.last)

    def parse(self, text: str) -> Quantity | None:
        """Read the cell of a number in figures, with its unit; None for anything else, or a unit that is not listed."""
        match = self._pattern.fullmatch(text) if len(text) <= LONGEST else None
        if match is None or (match["before"] and match["after"]):
            return None
        written = (match["before"] or match["after"] or "").casefold()
        unit = next((each for each in self.units if each.casefold() == written), "")
        digits = match["number"].replace(",", "")
        x, negative = Decimal(digits), match["sign"] in ("-", "−")
        whole = self.grid == "log" and digits.isdecimal()
        if self.grid == "log":
            negative = negative and x != 0
        elif negative:
            x, negative = x.copy_negate(), False  # a minus sign would round by the process's digits
        cell = self._cell(min(max(x, self._low), self._high), whole)
        return Quantity(cell, unit, bool(match["before"]), negative, whole)

    def _cell(self, x: Decimal, whole: bool = False) -> int:
        step = Fraction(self._step)
        if self.grid == "linear":
            return math.floor(Fraction(x) / step + Fraction(1, 2))
        r = 1 + step * math.floor(x) if whole else Fraction(x)
        if r == 1:
            return 0
        digits = 40
        while True:
            context = _context(digits)
            ratio = context.divide(Decimal(r.numerator), Decimal(r.denominator))
            cells = Fraction(context.ln(ratio)) / step + Fraction(1, 2)
            error = Fraction(10) ** (10 - digits) * (1 + abs(cells) + 1 / step)
            low, high = math.floor(cells - error), math.floor(cells + error)
            if low == high:
                return low
            digits *= 2

    def _written(self, cell: int, whole: bool) -> str:
        exact = _context(400)
        product = exact.multiply(Decimal(cell), self._step)
        if self.grid == "linear":
            number = product
        elif whole:
            raised = exact.subtract(_context(80).exp(product), Decimal(1))
            number = exact.divide(raised, self._step).quantize(Decimal(1), ROUND_HALF_UP, exact)
        else:
            # So many digits that neighbours differ: their ratio is above 1 + step.
            number = _context(2 + max(0, -self._step.adjusted())).exp(product)
        return f"{number:f}"

    def _surface(self, cell: int, structure: tuple[str, bool, bool, bool]) -> str:
        unit, before, negative, whole = structure
        number = ("-" if negative else "") + self._written(cell, whole)
        if before:
            return unit + number
        return f"{number} {unit}" if unit[:1].isalnum() else number + unit

    def claim(self) -> SpanClaim:
        """Epsilon a step; half a step always goes up, so numbers closer than a step may lose a whole one."""
        visible = ["which unit of a public list they have, and on which side"] * bool(self.units)
        of = "numbers"
        if self.grid == "log":
            visible += ["their sign", "whether they are whole numbers"]
            of = "logarithms (of 1 + step x for whole numbers)"
        return SpanClaim(
            f"two-sided geometric noise on a grid of {of} of step {self.step}, {self.low} to {self.high}",
            self.epsilon,
            "step of the grid",
            self.epsilon * self._noise.bound,
            not_protected=tuple(visible),
            assumptions=(
                f"range and grid of {self.kind} spans were fixed before any text was seen",
            ),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """A linear grid with halves of a step and numbers beyond the range, one of logarithms, and ages."""
        beyond = ["-1", "0.249", "0.25", "0.74999", "0.75", "1e3", "-7", ".1"]
        doses = ["0.0 mg", "1.0 mg", "1.28 mg", "1.29 mg", "3.0 mg", "1 mg", "2 mg", "1,000 mg"]
        ages = ["0", "3", "5-year-old", "8 years old", "12"]
        return [
            (cls(0.7, low=-1, high=2, step="0.5"), beyond),
            (cls(0.5, low=1, high=20, step="0.5", grid="log", units=["mg"]), [*doses, "-4"]),
            (cls(0.6, low=0, high=10, step=2, units="age", kind="AGE"), ages),
        ]
