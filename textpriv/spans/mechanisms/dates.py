"""Dates and times of day, moved by two-sided geometric noise: each alone, or all dates of a person by one shift.

A written form is public structure, so every date has one surface in every form and reads back as that date: months are
written out, figures get leading zeros, weekdays are left out. Before a shift nothing is clamped, completed or rounded:
that would change the intervals of a history.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Any, Literal, NamedTuple

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.mechanisms.base import ALGORITHM, LONGEST, Scopes, SpanClaim, SpanMechanism
from textpriv.spans.mechanisms.numbers import GridMechanism

_PIVOT = 69  # years of two digits are those from 1969 to 2068, as in POSIX
# By their shape: y is four digits, s eight, 9 one or two, and b a name of a month.
_COMMON = {
    "y-9-9": "{y:04}-{m:02}-{d:02}",
    "y/9/9": "{y:04}/{m:02}/{d:02}",
    "s": "{y:04}{m:02}{d:02}",
    "9.9.y": "{d:02}.{m:02}.{y:04}",
    "9.9.9": "{d:02}.{m:02}.{yy:02}",
    "9 b y": "{d} {b} {y:04}",
    "b 9 y": "{b} {d}, {y:04}",
    "9-b-y": "{d:02}-{b}-{y:04}",
    "9-b-9": "{d:02}-{b}-{yy:02}",
}


def _forms(order: str) -> dict[str, str]:
    years = {"y": "{y:04}", "9": "{yy:02}"}
    return _COMMON | {
        f"9{mark}9{mark}{shape}": (order + year).replace("/", mark)
        for mark in "/-"
        for shape, year in years.items()
    }


# Whether 3/4/2020 is in April; with points, days always come first.
FORMS = {False: _forms("{m:02}/{d:02}/"), True: _forms("{d:02}/{m:02}/")}
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_NUMBERS = {"sept": 9}
for _number, _month in enumerate(_MONTHS, 1):
    _NUMBERS |= {_month.casefold(): _number, _month[:3].casefold(): _number}
_DAYS = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b[.,]?\s*")
_FILLERS = re.compile(r"\b(?:of|the|de|del)\b|,")
_ORDINALS = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)\b|(?<=[^\W\d_])\.|(?<=[0-9])\.(?= )")
_TOKENS = re.compile(r"[0-9]+|[^\W\d_]+")
_CLOCK = re.compile(
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::[0-9]{2}(?:\.[0-9]+)?)?(?P<half>\s*[ap]\.?m\.?)?",
    re.IGNORECASE,
)
_AT = re.compile(r"(?P<date>.*?)(?:T|,?\s+(?:at\s+)?)(?P<clock>[0-9]{1,2}:.*)", re.DOTALL)
_LAST_MINUTE = 24 * 60 - 1
_VISIBLE = "in which of the public forms they are written"


class Moment(NamedTuple):
    """A date: the number of its day, 1 for the first of January of the year 1, and its form."""

    day: int
    form: str = "y-9-9"


class Clock(NamedTuple):
    """A time of day: its minute since midnight, without seconds, and its form, "24" or "12" hours."""

    minute: int
    form: str = "24"


def read_date(text: str, dayfirst: bool = False) -> Moment | None:
    """Read a complete date in a public form, without a time of day; None for any other text."""
    if len(text) > LONGEST:
        return None
    timed = _AT.fullmatch(text.strip())
    if timed is not None:
        if read_clock(timed["clock"]) is None:
            return None
        text = timed["date"]
    plain = _DAYS.sub("", text.casefold().strip(), count=1)
    plain = " ".join(_ORDINALS.sub("", _FILLERS.sub(" ", plain)).split())
    form = _TOKENS.sub(_shape, plain)
    if form not in FORMS[dayfirst]:
        return None
    parts = _TOKENS.findall(plain)
    if form == "s":
        parts = [parts[0][:4], parts[0][4:6], parts[0][6:]]
    fields: dict[str, int] = {}
    for name, part in zip(re.findall(r"\{(\w+)", FORMS[dayfirst][form]), parts, strict=True):
        fields[name] = _NUMBERS.get(part, 0) if name == "b" else int(part)
    if "yy" in fields:
        fields["y"] = fields["yy"] + (2000 if fields["yy"] < _PIVOT else 1900)
    try:
        found = date(fields["y"], fields.get("m", fields.get("b", 0)), fields["d"])
    except ValueError:
        return None
    return Moment(found.toordinal(), form)


def _shape(match: re.Match[str]) -> str:
    part = match.group()
    if not part[0].isdecimal():
        return "b"
    return {1: "9", 2: "9", 4: "y", 8: "s"}.get(len(part), "x")


def write_date(moment: Moment, dayfirst: bool = False) -> str:
    """Write a date in its form."""
    day = date.fromordinal(moment.day)
    numbers = {"y": day.year, "yy": day.year % 100, "m": day.month, "d": day.day}
    return FORMS[dayfirst][moment.form].format(**numbers, b=_MONTHS[day.month - 1])


def read_clock(text: str) -> Clock | None:
    """Read a time of day such as 22:30 or 10:30 pm; None for any other text."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    hour, minute = int(found["hour"]), int(found["minute"])
    half = (found["half"] or "").strip().casefold()
    if minute > 59 or hour > 23 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + 12 * half.startswith("p")
    return Clock(60 * hour + minute, "12" if half else "24")


class Date(GridMechanism):
    """Two-sided geometric noise on the day of each date alone.

    Parameters
    ----------
    epsilon : float
        Nats a day: 0.1 for noise of about ten days.
    low, high : str or date
        The public range, which dates outside of it are clamped to.
    dayfirst : bool
        Whether ``3/4/2020`` is in April. With points, days always come first.
    kind : str, optional
    """

    name = "date"

    def __init__(
        self, epsilon: float, low: Any, high: Any, dayfirst: bool = False, kind: str | None = None
    ) -> None:
        self.low, self.high, self.dayfirst = str(low), str(high), dayfirst
        try:
            first, last = (date.fromisoformat(each).toordinal() for each in (self.low, self.high))
        except ValueError:
            first = last = 0
        if first >= last:
            raise MechanismError(
                f"a range of dates needs low < high, such as 2020-05-31; got {low} and {high}."
            )
        super().__init__(epsilon, first, last, kind)

    def parse(self, text: str) -> Moment | None:
        """Read a date with day, month and year in a public form, clamped to the range; None for anything else."""
        moment = read_date(text, self.dayfirst)
        return moment and moment._replace(day=min(max(moment.day, self.first), self.last))

    def _surface(self, cell: int, structure: tuple[str]) -> str:
        return write_date(Moment(cell, *structure), self.dayfirst)

    def claim(self) -> SpanClaim:
        """Epsilon a day, for each date."""
        return SpanClaim(
            f"two-sided geometric noise on days, {self.low} to {self.high}",
            self.epsilon,
            "day",
            self.epsilon * (self.last - self.first),
            not_protected=(_VISIBLE,),
            assumptions=(f"the range of {self.kind} spans was fixed before any text was seen",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Ten days around the end of a February, in several forms and with times."""
        ends: dict[str, Any] = {"low": "2020-02-25", "high": "2020-03-05"}
        days = ["2020-02-28", "2020-03-01", "2019-01-01", "Feb 29, 2020", "March 1, 2020 10:00"]
        short = ["3/1/20", "2/29/20", "3/2/20 9:30 am"]
        return [(cls(0.5, **ends), days), (cls(1.0, **ends), short)]


class DateShift(Date):
    """One two-sided geometric shift, in whole days, for all dates of a person or of a document.

    Parameters
    ----------
    epsilon : float
        Nats a day that a history is moved by as a whole: 1 / 365 for noise of about a year.
    scope : "person" or "document"
        Whose dates move together.
    low, high : str or date
        The public range: dates outside of it are not read, and what the shift moves beyond it is written as its end. Make
        it wide.
    dayfirst, kind
        As for :class:`Date`.
    """

    name = "date-shift"

    def __init__(
        self,
        epsilon: float,
        scope: Literal["person", "document"] = "person",
        low: Any = "1900-01-01",
        high: Any = "2099-12-31",
        dayfirst: bool = False,
        kind: str | None = None,
    ) -> None:
        if scope not in ("person", "document"):
            raise MechanismError(f"scope is 'person' or 'document'; got {scope!r}.")
        super().__init__(epsilon, low, high, dayfirst, kind)
        self.scope: Literal["person", "document"] = scope

    def parse(self, text: str) -> Moment | None:
        """Read a date with day, month and year in a public form and in the range; None for anything else."""
        moment = read_date(text, self.dayfirst)
        return moment if moment and self.first <= moment.day <= self.last else None

    def shift(self, scopes: Scopes) -> int:
        """The days by which all dates of a scope are moved. As secret as the dates themselves."""
        return int(self._noise.draw(1, scopes.stream(self.scope, self.drawn_once()))[0])

    def drawn_once(self) -> bytes:
        """Epsilon, range and kind: noise of two amounts or ranges from one stream would not be independent."""
        decides = ALGORITHM, self.epsilon, self.first, self.last, self.kind
        return f"date shift {decides!r}".encode()

    def draw(
        self, values: Sequence[Moment], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Move every date by the one shift of its scope; the document's stream is not read."""
        assert scopes is not None
        return self._moved(values, [self.shift(scopes)] * len(values)) if values else []

    def joint_loss(self, first: Sequence[Moment], second: Sequence[Moment]) -> float:
        """``epsilon |D|`` between a history and the same moved by D days, however many dates it has."""
        moved = {later.day - earlier.day for earlier, later in zip(first, second, strict=False)}
        alike = list(map(self.structure, first)) == list(map(self.structure, second))
        if not alike or len(moved) > 1:
            return math.inf
        return self.epsilon * abs(moved.pop()) if moved else 0.0

    def claim(self) -> SpanClaim:
        """Epsilon a day, once for all dates of the scope."""
        whose = self.scope
        return SpanClaim(
            f"one two-sided geometric shift, in days, for all dates of a {whose}, {self.low} to {self.high}",
            self.epsilon,
            f"day that all dates of a {whose} are moved by together",
            self.epsilon * (self.last - self.first),
            per=whose,
            not_protected=(
                f"intervals between those of a {whose}, their order, and which are equal",
                f"the shift and so all dates of a {whose}, if one is known elsewhere or follows from a weekday, age or "
                "holiday in the text",
                _VISIBLE,
            ),
            assumptions=(f"a name of a {whose} stands for one of them",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Shifts of some days within a person and a document."""
        ends: dict[str, Any] = {"low": "2020-02-20", "high": "2020-03-10"}
        days = ["2020-02-28", "2020-03-01", "2020-03-03"]
        return [(cls(0.5, **ends), days), (cls(1.0, "document", **ends), days)]


class TimeOfDay(GridMechanism):
    """Two-sided geometric noise on the minute of a day, between midnight and midnight.

    Parameters
    ----------
    epsilon : float
        Nats a minute: 1 / 60 for noise of about an hour.
    kind : str, optional
    """

    name = "time"

    def __init__(self, epsilon: float, kind: str | None = None) -> None:
        super().__init__(epsilon, 0, _LAST_MINUTE, kind)

    def parse(self, text: str) -> Clock | None:
        """Read a time such as 22:30 or 10:30 pm; None for any other text."""
        return read_clock(text)

    def _surface(self, cell: int, structure: tuple[str]) -> str:
        hour, minute = divmod(cell, 60)
        if structure == ("24",):
            return f"{hour:02}:{minute:02}"
        return f"{(hour - 1) % 12 + 1}:{minute:02} {'ap'[hour // 12]}m"

    def claim(self) -> SpanClaim:
        """Epsilon a minute, for each time."""
        return SpanClaim(
            "two-sided geometric noise on minutes of a day",
            self.epsilon,
            "minute",
            self.epsilon * _LAST_MINUTE,
            not_protected=("whether they are written in twelve or twenty-four hours",),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Times around midnight and noon, in both forms."""
        return [(cls(0.02), ["00:00", "00:59", "12:01", "23:59:59", "12:00 am", "12:30 p.m."])]
