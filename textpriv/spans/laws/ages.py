"""Ages in years: whole numbers from 0 to a public oldest age, which all older ones are counted as.

Proof: :mod:`textpriv.spans.laws.numbers`; older ages are clamped before the noise, as numbers are. An age is given away by a
date of birth and the date of the text: where dates keep their intervals, so do they.
"""

from __future__ import annotations

from typing import Any

from textpriv.spans.laws.base import SpanLaw
from textpriv.spans.laws.numbers import Number

__all__ = ["Age"]

_WORDS = "-year-old", "-years-old", "years old", "year old", "years", "year", "y/o", "yo", "y"


class Age(Number):
    """Two-sided geometric noise on an age in years.

    Parameters
    ----------
    epsilon : float
        Nats a step.
    high : int
        The oldest age.
    step : int
        Years a step.
    kind : str, optional

    Examples
    --------
    >>> law = Age(0.5)
    >>> law.parse("45-year-old"), law.parse("97").cell
    (Quantity(cell=45, unit='-year-old', before=False, negative=False), 90)
    """

    name = "age"

    def __init__(
        self, epsilon: float, high: Any = 90, step: Any = 1, kind: str | None = None
    ) -> None:
        super().__init__(epsilon, 0, high, step, units=_WORDS, kind=kind)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this law."""
        given = super().settings()
        return {name: given[name] for name in ("epsilon", "high", "step", "kind")}

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Ages of up to ten in steps of two."""
        return [(cls(0.6, high=10, step=2), ["0", "3", "5-year-old", "8 years old", "12"])]
