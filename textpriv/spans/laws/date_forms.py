"""Written forms of dates and times: read strictly, and written again in the same form.

A form is public structure, so it must not depend on the date. Every date of the calendar has one surface in every
form and reads back as that date in that form, except that years of two digits are those from 1969 to 2068. So months
are written out, figures get their leading zeros, and weekdays are left out. An incomplete date is not completed, and
no two fields are swapped to make sense of one: that would move dates apart that a shift must move together. Names of
months are English.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, MINYEAR, date
from typing import NamedTuple

from textpriv.errors import MechanismError
from textpriv.spans.laws.base import LONGEST

__all__ = ["ISO", "Clock", "DateForms", "Moment", "day_of", "read_clock", "write_clock"]

ISO = "y-9-9"
_PIVOT = 69  # years of two digits are those from 1969 to 2068, as in POSIX

# By their shape: y is four digits, s eight, 9 one or two, and b a name of a month.
_FORMS = {
    ISO: "{y:04}-{m:02}-{d:02}",
    "y/9/9": "{y:04}/{m:02}/{d:02}",
    "s": "{y:04}{m:02}{d:02}",
    "9.9.y": "{d:02}.{m:02}.{y:04}",
    "9.9.9": "{d:02}.{m:02}.{yy:02}",
    "9 b y": "{d} {b} {y:04}",
    "b 9 y": "{b} {d}, {y:04}",
    "9-b-y": "{d:02}-{b}-{y:04}",
    "9-b-9": "{d:02}-{b}-{yy:02}",
}
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


class Clock(NamedTuple):
    """A time of day: its minute since midnight, without seconds, and its form, "24" or "12" hours."""

    minute: int
    form: str = "24"


class Moment(NamedTuple):
    """A date: the number of its day, 1 for the first of January of the year 1, and its form."""

    day: int
    form: str = ISO


class DateForms:
    """The public forms.

    Parameters
    ----------
    dayfirst : bool
        Whether ``3/4/2020`` is in April. With points, days always come first.

    Examples
    --------
    >>> forms = DateForms()
    >>> forms.write(forms.read("Sat, Feb. 29th 2020"))
    'February 29, 2020'
    """

    def __init__(self, dayfirst: bool = False) -> None:
        order = "{{d:02}}{0}{{m:02}}{0}" if dayfirst else "{{m:02}}{0}{{d:02}}{0}"
        self.forms = dict(_FORMS)
        for mark in "/-":
            self.forms[f"9{mark}9{mark}y"] = order.format(mark) + "{y:04}"
            self.forms[f"9{mark}9{mark}9"] = order.format(mark) + "{yy:02}"

    def read(self, text: str) -> Moment | None:
        """Read a complete date in a public form; a time of day is left out. None for any other text."""
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
        if form not in self.forms:
            return None
        parts = _TOKENS.findall(plain)
        if form == "s":
            parts = [parts[0][:4], parts[0][4:6], parts[0][6:]]
        fields: dict[str, int] = {}
        for name, part in zip(re.findall(r"\{(\w+)", self.forms[form]), parts, strict=True):
            fields[name] = _NUMBERS.get(part, 0) if name == "b" else int(part)
        if "yy" in fields:
            fields["y"] = fields["yy"] + (2000 if fields["yy"] < _PIVOT else 1900)
        try:
            found = date(fields["y"], fields.get("m", fields.get("b", 0)), fields["d"])
        except ValueError:
            return None
        return Moment(found.toordinal(), form)

    def write(self, moment: Moment) -> str:
        """Write a date in its form."""
        day = date.fromordinal(moment.day)
        numbers = {"y": day.year, "yy": day.year % 100, "m": day.month, "d": day.day}
        return self.forms[moment.form].format(**numbers, b=_MONTHS[day.month - 1])


def _shape(match: re.Match[str]) -> str:
    part = match.group()
    if not part[0].isdecimal():
        return "b"
    return {1: "9", 2: "9", 4: "y", 8: "s"}.get(len(part), "x")


def read_clock(text: str) -> Clock | None:
    """Read a time of day such as 22:30 or 10:30 pm; None for any other text. Seconds are left out."""
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


def write_clock(clock: Clock) -> str:
    """Write a time of day in its form."""
    hour, minute = divmod(clock.minute, 60)
    if clock.form == "24":
        return f"{hour:02}:{minute:02}"
    return f"{(hour - 1) % 12 + 1}:{minute:02} {'ap'[hour // 12]}m"


def day_of(name: str, value: str | date) -> int:
    """The number of a public date, given as one or as ``2020-05-31``."""
    try:
        return date.fromisoformat(str(value)).toordinal()
    except ValueError:
        raise MechanismError(
            f"{name} must be a date such as 2020-05-31 of the years {MINYEAR} to {MAXYEAR}; got {value!r}."
        ) from None
