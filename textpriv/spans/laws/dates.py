"""Dates, each alone: the number of its day is moved by two-sided geometric noise inside a public range.

Proof. A date is read as the number of its day, clamped to the public range. Cells are days, and two dates d days
apart lose ``epsilon d`` (:mod:`textpriv.spans.laws.grid`). The form is structure and does not depend on the date.
Every date draws noise of its own, so the losses of all dates of a person add up, and intervals and order are drawn,
too.
"""

from __future__ import annotations

from typing import Any

from textpriv.errors import MechanismError
from textpriv.spans.laws.base import SpanClaim, SpanLaw
from textpriv.spans.laws.date_forms import DateForms, Moment, day_of
from textpriv.spans.laws.grid import GridLaw

__all__ = ["Date", "DatedLaw"]

VISIBLE = "in which of the public forms they are written"


class DatedLaw(GridLaw):
    """The part that laws of dates share: the public forms, and how a date is read and written.

    Parameters
    ----------
    epsilon : float
        Nats a day.
    low, high : str or date
        The public range.
    dayfirst : bool
        Whether ``3/4/2020`` is in April. With points, days always come first.
    kind : str, optional
    """

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        dayfirst: bool,
        kind: str | None,
    ) -> None:
        self.low, self.high, self.dayfirst = str(low), str(high), dayfirst
        ends = day_of("low", self.low), day_of("high", self.high)
        if ends[0] >= ends[1]:
            raise MechanismError(f"a range of dates needs low < high; got {low} and {high}.")
        super().__init__(epsilon, *ends, kind)
        self._forms = DateForms(dayfirst)

    def parse(self, text: str) -> Moment | None:
        """Read a date with day, month and year in a public form; None for anything else."""
        return self._forms.read(text)

    def _surface(self, cell: int, structure: tuple[str]) -> str:
        return self._forms.write(Moment(cell, *structure))


class Date(DatedLaw):
    """Two-sided geometric noise on the day of each date alone.

    Parameters
    ----------
    epsilon : float
        Nats a day: 0.1 for noise of about ten days.
    low, high : str or date
        The public range, which dates outside of it are clamped to.
    dayfirst, kind
        As for :class:`DatedLaw`.

    Examples
    --------
    >>> law = Date(0.1, low="1900-01-01", high="2030-12-31")
    >>> round(law.loss(law.parse("May 3, 2020"), law.parse("Sunday, May 10, 2020")), 12)
    0.7
    >>> law.loss(law.parse("May 3, 2020"), law.parse("10 May 2020")), law.parse("May 2020")
    (inf, None)
    """

    name = "date"

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        dayfirst: bool = False,
        kind: str | None = None,
    ) -> None:
        super().__init__(epsilon, low, high, dayfirst, kind)

    def parse(self, text: str) -> Moment | None:
        """As :meth:`DatedLaw.parse`, clamped to the range."""
        moment = super().parse(text)
        return moment and moment._replace(day=min(max(moment.day, self.first), self.last))

    def claim(self) -> SpanClaim:
        """Epsilon a day, for each date."""
        return SpanClaim(
            f"two-sided geometric noise on days, {self.low} to {self.high}",
            self.epsilon,
            "day",
            self.epsilon * (self.last - self.first),
            not_protected=(VISIBLE,),
            assumptions=(f"the range of {self.kind} spans was fixed before any text was seen",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Ten days around the end of a February, in several forms and with times."""
        ends: dict[str, Any] = {"low": "2020-02-25", "high": "2020-03-05"}
        days = ["2020-02-28", "2020-03-01", "2019-01-01", "Feb 29, 2020", "March 1, 2020 10:00"]
        short = ["3/1/20", "2/29/20", "3/2/20 9:30 am"]
        return [(cls(0.5, **ends), days), (cls(1.0, **ends), short)]
