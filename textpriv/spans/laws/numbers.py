"""Numbers on a public grid: integers, decimals, amounts, ages and years, moved by two-sided geometric noise.

Proof. A number x is clamped to the public range and read as a cell of a grid of step s:

- linear: ``k = floor(x / s + 1/2)``;
- logarithmic, for a number that is written with a decimal mark: ``k = floor(ln(x) / s + 1/2)``;
- logarithmic, for a whole number: ``k = floor(ln(1 + s x) / s + 1/2)``, steps of about 1 for small numbers and of a
  share s for large ones. The cell is written as the nearest whole number, and different cells have different ones,
  for ``(exp(s k) - 1) / s`` rises by more than 1 a cell.

Half a step always goes up, so no two numbers less than a step apart lie more than a cell apart. Cells lose ``epsilon
|k - k'|`` (:mod:`textpriv.spans.laws.grid`), on a linear grid at most ``epsilon ceil(|x - x'| / s)``. This is *not*
bounded by ``epsilon |x - x'| / s``: .49 and .51 lie in neighbouring cells of the whole numbers. Cells are decided by
exact arithmetic: rationals on a linear grid; on a logarithmic one decimals of as many digits as it takes, which end,
since ``ln(r) / s + 1/2`` is no whole number for rational r other than 1 and rational s (Lindemann).

How many digits, separators and exponents were written is a function of the number, so it is rewritten. Kept as
structure are a unit of a public list and its side, and on a logarithmic grid the sign and whether the number is
whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

from textpriv.errors import MechanismError
from textpriv.spans.laws.base import LONGEST, SpanClaim, SpanLaw
from textpriv.spans.laws.grid import GridLaw, digits_context

__all__ = ["UNITS", "Number", "Quantity"]

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


class Quantity(NamedTuple):
    """A number as its law sees it: its cell, and its structure.

    Attributes
    ----------
    cell : int
        Of the grid.
    unit : str
        One of the public list; empty for none.
    before : bool
        Whether the unit is written before the number.
    negative, whole : bool
        On a logarithmic grid.
    """

    cell: int
    unit: str = ""
    before: bool = False
    negative: bool = False
    whole: bool = False


class Number(GridLaw):
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
    marks : str
        Decimal mark and mark between thousands.
    kind : str, optional

    Examples
    --------
    >>> law = Number(0.5, low=0, high=500, step=5, units=["mg"])
    >>> law.parse("1,250.5 mg").cell, law.parse("5 Johnson"), law.claim().largest
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
        marks: str = ".,",
        kind: str | None = None,
    ) -> None:
        self.grid, self.marks = grid, marks
        self.units = UNITS.get(units, ()) if isinstance(units, str) else tuple(units)
        self.low, self.high, self.step = str(low), str(high), str(step)
        self._low, self._high, self._step = (
            _constant(name, getattr(self, name)) for name in ("low", "high", "step")
        )
        if (isinstance(units, str) and not self.units) or not all(self.units):
            raise MechanismError('units are "usual", "age" or a list such as ["mg", "ml"].')
        if grid not in ("linear", "log"):
            raise MechanismError(f"grid is 'linear' or 'log'; got {grid!r}.")
        if len(set(marks)) != 2 or any(each.isalnum() for each in marks):
            raise MechanismError("marks are two: for decimals and between thousands, such as '.,'.")
        if not self._low < self._high or self._step <= 0 or (grid == "log" and self._low <= 0):
            raise MechanismError(
                f"a range needs low < high and a step above 0, a logarithmic one low above 0; got {low}..{high}, {step}."
            )
        self._whole = self._cell(self._low, whole=True), self._cell(self._high, whole=True)
        width = self._whole[1] - self._whole[0]
        super().__init__(epsilon, self._cell(self._low), self._cell(self._high), kind, width)

    def ends(self, structure: Any) -> tuple[int, int]:
        """The first and last cell, of whole numbers or of all."""
        return self._whole if structure[-1] else (self.first, self.last)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        decimal, thousands = (re.escape(each) for each in self.marks)
        longest = sorted(self.units, key=len, reverse=True)
        unit = "|".join(map(re.escape, longest)) or "(?!)"
        digits = rf"(?:[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|[0-9]+)"
        return re.compile(
            rf"\s*(?P<sign>[+−-]?)\s*(?P<before>{unit})?\s*"
            rf"(?P<number>(?:{digits}(?P<decimals>{decimal}[0-9]+)?|{decimal}[0-9]+)(?P<exponent>e[+-]?[0-9]{{1,3}})?)"
            rf"\s*(?P<after>{unit})?\s*",
            re.IGNORECASE,
        )

    def parse(self, text: str) -> Quantity | None:
        """Read the cell of a number in figures, with its unit; None for anything else, or a unit that is not listed."""
        match = self._pattern.fullmatch(text) if len(text) <= LONGEST else None
        if match is None or (match["before"] and match["after"]):
            return None
        written = (match["before"] or match["after"] or "").casefold()
        unit = next((each for each in self.units if each.casefold() == written), "")
        decimal, thousands = tuple(self.marks)
        digits = match["number"].replace(thousands, "").replace(decimal, ".")
        x, negative = Decimal(digits), match["sign"] in ("-", "−")
        whole = self.grid == "log" and digits.isdecimal()
        if self.grid == "log":
            negative = negative and x != 0
        elif negative:
            x, negative = x.copy_negate(), False  # a minus sign would round by the process's digits
        cell = self._cell(min(max(x, self._low), self._high), whole)
        return Quantity(cell, unit, bool(match["before"]), negative, whole)

    def _cell(self, x: Decimal, whole: bool = False) -> int:
        """The cell of a number inside the range."""
        step = Fraction(self._step)
        if self.grid == "linear":
            return math.floor(Fraction(x) / step + Fraction(1, 2))
        if whole:
            r = 1 + step * math.floor(x)
            if r == 1:
                return 0
        else:
            r = Fraction(x)
        digits = 40
        while True:
            context = digits_context(digits)
            ratio = context.divide(Decimal(r.numerator), Decimal(r.denominator))
            cells = Fraction(context.ln(ratio)) / step + Fraction(1, 2)
            error = Fraction(10) ** (10 - digits) * (1 + abs(cells) + 1 / step)
            low, high = math.floor(cells - error), math.floor(cells + error)
            if low == high:
                return low
            digits *= 2

    def _written(self, cell: int, whole: bool) -> str:
        """The number that a cell is written as."""
        exact = digits_context(400)
        product = exact.multiply(Decimal(cell), self._step)
        if self.grid == "linear":
            number = product
        elif whole:
            raised = exact.subtract(digits_context(80).exp(product), Decimal(1))
            number = exact.divide(raised, self._step).quantize(Decimal(1), ROUND_HALF_UP, exact)
        else:
            # So many digits that neighbours differ: their ratio is above 1 + step.
            number = digits_context(2 + max(0, -self._step.adjusted())).exp(product)
        return f"{number:f}".replace(".", self.marks[0])

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
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """A linear grid with halves of a step and numbers beyond the range, one of logarithms, and ages."""
        beyond = ["-1", "0.249", "0.25", "0.74999", "0.75", "1e3", "-7", ".1"]
        doses = ["0.0 mg", "1.0 mg", "1.28 mg", "1.29 mg", "3.0 mg", "1 mg", "2 mg", "1,000 mg"]
        ages = ["0", "3", "5-year-old", "8 years old", "12"]
        return [
            (cls(0.7, low=-1, high=2, step="0.5"), beyond),
            (cls(0.5, low=1, high=20, step="0.5", grid="log", units=["mg"]), [*doses, "-4"]),
            (cls(0.6, low=0, high=10, step=2, units="age", kind="AGE"), ages),
        ]


def _constant(name: str, written: str) -> Decimal:
    """A public number, exactly as it is written."""
    try:
        number = Decimal(written)
    except ArithmeticError:
        number = Decimal("nan")
    if not number.is_finite() or not -300 < number.adjusted() < 300:
        raise MechanismError(f"{name} must be a finite number; got {written}.")
    return number
