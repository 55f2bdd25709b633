"""Numbers on a public grid: integers, decimals and amounts, moved by two-sided geometric noise inside a public range.

Proof (mechanisms.md 10.4). A number x is clamped to the public range and read as the cell ``k = floor(x / s + 1/2)`` of a
grid of step s, or ``floor(ln(x) / s + 1/2)`` of a logarithmic one: half a step always goes up, so that no two numbers less
than a step apart lie more than a cell apart. Cells lose ``epsilon |k - k'|`` (:mod:`textpriv.spans.laws.grid`), at most
``epsilon ceil(|x - x'| / s)``. It is *not* bounded by ``epsilon |x - x'| / s``: .49 and .51 lie in neighbouring cells of the
whole numbers. Which cell a number lies in is decided by exact arithmetic on its digits: rationals on a linear
grid; on a logarithmic one decimals of as many digits as it takes, which end, since ``ln(x) / s + 1/2`` is no whole number
for rational x and s (Lindemann).

How many digits, separators and exponents stood there is a function of the number, so it is rewritten: surfaces have the
decimals of the grid. A unit of a public list, and on which side it stands, is kept as structure; so is the sign where asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

from textpriv.errors import MechanismError
from textpriv.spans.laws.base import LONGEST, SpanClaim, SpanLaw
from textpriv.spans.laws.geometric import digits_context
from textpriv.spans.laws.grid import GridLaw

__all__ = ["USUAL_UNITS", "Number", "Quantity"]

USUAL_UNITS = tuple(
    "% $ € £ ¥ EUR USD GBP g kg mg µg mcg ng l ml dl mm cm m km °C °F K mmHg bpm kPa IU mmol mol mmol/l mg/dl mg/kg g/dl "
    "ml/min s min h hours minutes days weeks months years tablets".split()
)


class Quantity(NamedTuple):
    """A number as its law sees it.

    Attributes
    ----------
    cell : int
        Of the grid.
    unit : str
        One of the public list; empty for none.
    before : bool
        Whether the unit stands before the number.
    negative : bool
        Where the sign is structure.
    """

    cell: int
    unit: str = ""
    before: bool = False
    negative: bool = False


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
    units : sequence of str or "usual"
        Units that are kept as structure; a number with another one is not read. Default: none.
    sign : "number" or "structure"
        Whether the sign is drawn with the number, or kept.
    marks : str
        Decimal mark and mark between thousands, as they are read.
    kind : str, optional

    Examples
    --------
    >>> law = Number(0.5, low=0, high=500, step=5, units=["mg"])
    >>> law.parse("1,250.5 mg"), law.parse("5 Johnson"), law.claim().largest
    (Quantity(cell=100, unit='mg', before=False, negative=False), None, 50.0)
    """

    name = "number"

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        step: Any = 1,
        grid: Literal["linear", "log"] = "linear",
        units: Sequence[str] | Literal["usual"] = (),
        sign: Literal["number", "structure"] = "number",
        marks: str = ".,",
        kind: str | None = None,
    ) -> None:
        self.grid, self.sign, self.marks = grid, sign, marks
        self.units = USUAL_UNITS if units == "usual" else tuple(units)
        self.low, self.high, self.step = (
            _constant(name, each) for name, each in (("low", low), ("high", high), ("step", step))
        )
        if not all(isinstance(each, str) and each for each in self.units):
            raise MechanismError("units are texts, such as ['mg', 'ml'].")
        if grid not in ("linear", "log") or sign not in ("number", "structure"):
            raise MechanismError(
                f"grid is 'linear' or 'log' and sign 'number' or 'structure'; got {grid!r} and {sign!r}."
            )
        if len(marks) != 2 or marks[0] == marks[1] or any(each.isalnum() for each in marks):
            raise MechanismError("marks are two: for decimals and between thousands, such as '.,'.")
        if not self.low < self.high or self.step <= 0 or (grid == "log" and self.low <= 0):
            raise MechanismError(
                f"a range needs low < high and a step above 0, a logarithmic one low above 0; got {low}..{high}, {step}."
            )
        if sign == "structure" and self.low < 0:
            raise MechanismError(
                "where the sign is structure the range is that of sizes: low is 0 or more."
            )
        ends = self._cell(self.low), self._cell(self.high)
        super().__init__(epsilon, *ends, kind)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        decimal, thousands = (re.escape(each) for each in self.marks)
        longest = sorted(self.units, key=len, reverse=True)
        unit = "|".join(map(re.escape, longest)) or "(?!)"
        digits = rf"(?:[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|[0-9]+)"
        return re.compile(
            rf"\s*(?P<sign>[+−-]?)\s*(?P<before>{unit})?\s*"
            rf"(?P<number>(?:{digits}(?:{decimal}[0-9]+)?|{decimal}[0-9]+)(?:e[+-]?[0-9]{{1,3}})?)"
            rf"\s*(?P<after>{unit})?\s*",
            re.IGNORECASE,
        )

    @cached_property
    def _listed(self) -> dict[str, str]:
        return {each.casefold(): each for each in reversed(self.units)}

    def parse(self, text: str) -> Quantity | None:
        """The cell of a number in figures, with its unit; None for what is not one, or has a unit that is not listed."""
        match = self._pattern.fullmatch(text) if len(text) <= LONGEST else None
        if match is None or (match["before"] and match["after"]):
            return None
        written = (match["before"] or match["after"] or "").casefold()
        unit = self._listed.get(written) if written else ""
        if unit is None:
            return None
        decimal, thousands = self.marks[0], self.marks[1]
        number = Decimal(match["number"].replace(thousands, "").replace(decimal, "."))
        negative = match["sign"] in ("-", "−") and number != 0
        kept = self.sign == "structure"
        # A minus sign would round by the process's digits.
        x = number.copy_negate() if negative and not kept else number
        cell = self._cell(min(max(x, self.low), self.high))
        return Quantity(cell, unit, bool(match["before"]), negative and kept)

    def _cell(self, x: Decimal) -> int:
        """The cell of a number inside the range."""
        if self.grid == "linear":
            (number, per), (step, per_step) = x.as_integer_ratio(), self.step.as_integer_ratio()
            return (2 * number * per_step + per * step) // (2 * per * step)
        # Double precision decides only what its error, and a thousand times its error, cannot change.
        rough = math.log(x) / float(self.step) + 0.5
        margin = 1e-12 * (abs(rough) + 1 / float(self.step) + 1)
        if math.floor(rough - margin) == math.floor(rough + margin):
            return math.floor(rough)
        digits = 40
        while True:
            cells = Fraction(digits_context(digits).ln(x)) / Fraction(self.step) + Fraction(1, 2)
            error = Fraction(10) ** (10 - digits) * (1 + abs(cells) + 1 / Fraction(self.step))
            low, high = math.floor(cells - error), math.floor(cells + error)
            if low == high:
                return low
            digits *= 2

    def _written(self, cell: int) -> str:
        """The number that stands for a cell, in the public form."""
        product = digits_context(400).multiply(Decimal(cell), self.step)
        if self.grid == "linear":
            return f"{product:f}".replace(".", self.marks[0])
        # So many digits that neighbours differ: their ratio is above 1 + step.
        rounded = digits_context(2 + max(0, -self.step.adjusted())).exp(product)
        return f"{rounded:f}".replace(".", self.marks[0])

    def _surface(self, cell: int, structure: tuple[str, bool, bool]) -> str:
        unit, before, negative = structure
        number = ("-" if negative else "") + self._written(cell)
        if before:
            return unit + number
        return f"{number} {unit}" if unit[:1].isalnum() else number + unit

    def claim(self) -> SpanClaim:
        """Epsilon a step; half a step always goes up, so numbers closer than a step may lose a whole one."""
        visible = []
        if self.units:
            visible.append("which unit of a public list they have, and on which side")
        if self.sign == "structure":
            visible.append("their sign")
        of = "logarithms" if self.grid == "log" else "numbers"
        return SpanClaim(
            f"two-sided geometric noise on a grid of {of} of step {self.step}, {self.low} to {self.high}",
            self.epsilon,
            "step of the grid",
            self.epsilon * (self.last - self.first),
            not_protected=tuple(visible),
            assumptions=(
                f"range and grid of {self.kind} spans were fixed before any text was seen",
            ),
        )

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this law."""
        return {
            "epsilon": self.epsilon,
            **{name: str(getattr(self, name)) for name in ("low", "high", "step")},
            "grid": self.grid,
            "units": list(self.units),
            "sign": self.sign,
            "marks": self.marks,
            "kind": self.kind,
        }

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """A linear grid with halves of a step and numbers beyond the range, one of logarithms, and one of sizes."""
        return [
            (
                cls(0.7, low=-1, high=2, step="0.5"),
                ["-1", "0.249", "0.25", "0.74999", "0.75", "1e3", "-7", ".1"],
            ),
            (
                cls(0.5, low=1, high=20, step="0.5", grid="log", units=["mg"]),
                ["0", "1 mg", "1.28 mg", "1.29 mg", "3 mg", "1,000 mg"],
            ),
            (cls(1.0, low=0, high=3, sign="structure"), ["-2", "-3", "2", "3", "0"]),
        ]


def _constant(name: str, value: Any) -> Decimal:
    """A public number, exactly as it is written."""
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite() or not -300 < number.adjusted() < 300:
        raise MechanismError(f"{name} must be a finite number; got {value!r}.")
    return number
