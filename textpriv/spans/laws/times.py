"""Times of day, each alone: the minute is moved by two-sided geometric noise between midnight and midnight.

Proof. A time is read as its minute of the day, 0 to 1439, without seconds. Two times m minutes apart within a day
lose ``epsilon m`` (:mod:`textpriv.spans.laws.grid`). Whether it is written in twelve or in twenty-four hours is
structure.
"""

from __future__ import annotations

from textpriv.spans.laws.base import SpanClaim, SpanLaw
from textpriv.spans.laws.date_forms import Clock, read_clock, write_clock
from textpriv.spans.laws.grid import GridLaw

__all__ = ["TimeOfDay"]

_LAST = 24 * 60 - 1


class TimeOfDay(GridLaw):
    """Two-sided geometric noise on the minute of a day.

    Parameters
    ----------
    epsilon : float
        Nats a minute: 1 / 60 for noise of about an hour.
    kind : str, optional

    Examples
    --------
    >>> law = TimeOfDay(1 / 60)
    >>> law.parse("10:30 pm"), law.loss(law.parse("09:00"), law.parse("10:00"))
    (Clock(minute=1350, form='12'), 1.0)
    """

    name = "time"

    def __init__(self, epsilon: float, kind: str | None = None) -> None:
        super().__init__(epsilon, 0, _LAST, kind)

    def parse(self, text: str) -> Clock | None:
        """Read a time such as 22:30 or 10:30 pm; None for any other text."""
        return read_clock(text)

    def _surface(self, cell: int, structure: tuple[str]) -> str:
        return write_clock(Clock(cell, *structure))

    def claim(self) -> SpanClaim:
        """Epsilon a minute, for each time."""
        return SpanClaim(
            "two-sided geometric noise on minutes of a day",
            self.epsilon,
            "minute",
            self.epsilon * _LAST,
            not_protected=("whether they are written in twelve or twenty-four hours",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Times around midnight and noon, in both forms."""
        return [(cls(0.02), ["00:00", "00:59", "12:01", "23:59:59", "12:00 am", "12:30 p.m."])]
