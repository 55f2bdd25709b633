"""Dates, each alone: the number of its day is moved by two-sided geometric noise inside a public range.

Proof (mechanisms.md 10.4). A date is read as the number of its day, clamped to the public range; cells are days, and two
dates d days apart lose ``epsilon d`` (:mod:`textpriv.spans.laws.grid`). The form is structure and does not depend on the
date (:mod:`textpriv.spans.laws.date_forms`). Every date draws noise of its own, so the losses of all dates of a person add
up, and intervals and order are drawn, too.
"""

from __future__ import annotations

from typing import Any, Literal

from textpriv.errors import MechanismError
from textpriv.spans.laws.base import SpanClaim, SpanLaw
from textpriv.spans.laws.date_forms import ISO, Clock, DateForms, Moment, day_of
from textpriv.spans.laws.grid import GridLaw

__all__ = ["Date", "DatedLaw"]


class DatedLaw(GridLaw):
    """What laws of dates share: the public forms, and how a date is read and written.

    Parameters
    ----------
    epsilon : float
        Nats a day.
    low, high : str or date
        The public range.
    form : "own" or "iso"
        Whether a date keeps its form, which is then structure, or is written as ``2020-05-31``.
    times : "drop" or "keep"
        Whether a time of day is left out, or kept as it is, which protects nothing of it.
    language : str
    dayfirst : bool, optional
        As for :class:`textpriv.spans.laws.date_forms.DateForms`.
    kind : str, optional
    """

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        form: Literal["own", "iso"],
        times: Literal["drop", "keep"],
        language: str,
        dayfirst: bool | None,
        kind: str | None,
    ) -> None:
        if form not in ("own", "iso") or times not in ("drop", "keep"):
            raise MechanismError(
                f"form is 'own' or 'iso' and times 'drop' or 'keep'; got {form!r} and {times!r}."
            )
        ends = day_of("low", low), day_of("high", high)
        if ends[0] >= ends[1]:
            raise MechanismError(f"a range of dates needs low < high; got {low} and {high}.")
        super().__init__(epsilon, *ends, kind)
        self.form, self.times = form, times
        self._forms = DateForms(language, dayfirst)

    def parse(self, text: str) -> Moment | None:
        """A date with day, month and year in a public form, and its time of day where that is kept; else None."""
        moment = self._forms.read(text, clocks=self.times == "keep")
        if moment is None or self.form == "own":
            return moment
        return moment._replace(form=ISO, between=" " if moment.between else "")

    def _surface(self, cell: int, structure: tuple[str, Clock | None, str]) -> str:
        return self._forms.write(Moment(cell, *structure))

    @property
    def _range(self) -> str:
        return " to ".join(self._forms.write(Moment(cell)) for cell in (self.first, self.last))

    def _visible(self) -> tuple[str, ...]:
        """What is kept as structure."""
        form = ("in which of the public forms they are written",)
        time = ("their time of day, to the minute",)
        return form * (self.form == "own") + time * (self.times == "keep")

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this law."""
        return {
            "epsilon": self.epsilon,
            **dict(zip(("low", "high"), self._range.split(" to "), strict=True)),
            "form": self.form,
            "times": self.times,
            "language": self._forms.language,
            "dayfirst": self._forms.dayfirst,
            "kind": self.kind,
        }


class Date(DatedLaw):
    """Two-sided geometric noise on the day of each date alone.

    Parameters
    ----------
    epsilon : float
        Nats a day: 0.1 for noise of about ten days.
    low, high : str or date
        The public range, which dates outside of it are clamped to.
    form, times, language, dayfirst, kind
        As for :class:`DatedLaw`.

    Examples
    --------
    >>> law = Date(0.1, low="1900-01-01", high="2030-12-31")
    >>> law.loss(law.parse("May 3, 2020"), law.parse("Sunday, 10 May 2020")), law.parse("May 2020")
    (inf, None)
    >>> law = Date(0.1, low="1900-01-01", high="2030-12-31", form="iso")
    >>> round(law.loss(law.parse("May 3, 2020"), law.parse("Sunday, 10 May 2020")), 12)
    0.7
    """

    name = "date"

    def __init__(
        self,
        epsilon: float,
        low: Any,
        high: Any,
        form: Literal["own", "iso"] = "own",
        times: Literal["drop", "keep"] = "drop",
        language: str = "en",
        dayfirst: bool | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(epsilon, low, high, form, times, language, dayfirst, kind)

    def parse(self, text: str) -> Moment | None:
        """As :meth:`DatedLaw.parse`, clamped to the range."""
        moment = super().parse(text)
        return moment and moment._replace(day=min(max(moment.day, self.first), self.last))

    def claim(self) -> SpanClaim:
        """Epsilon a day, for each date."""
        return SpanClaim(
            f"two-sided geometric noise on days, {self._range}",
            self.epsilon,
            "day",
            self.epsilon * (self.last - self.first),
            not_protected=self._visible(),
            assumptions=(f"the range of {self.kind} spans was fixed before any text was seen",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Ten days around the end of a February, in several forms and with times."""
        low, high = "2020-02-25", "2020-03-05"
        return [
            (
                cls(0.5, low, high),
                ["2020-02-28", "2020-03-01", "2019-01-01", "Feb 29, 2020", "March 1, 2020 10:00"],
            ),
            (cls(1.0, low, high, times="keep"), ["3/1/20", "2/29/20", "3/1/20 9:30 am"]),
        ]
