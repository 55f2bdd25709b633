"""Written forms of dates and times: read strictly, and written again in the same form.

A form is public structure, so it must not depend on the date: every date of the calendar has one surface in every form, and
reads back as that date in that form, but that years of two digits are those from 1969 to 2068. So months are written out in
full, however they were written, figures have their leading zeros, and names of weekdays are left out. What a date lacks is
not completed, and no two fields are swapped to make sense of one, as lenient parsers do: that would move dates apart that a
shift must move together. Whether a calendar has such a day says ``datetime``; names of months in other languages than
English are those of the Unicode CLDR (Babel). What is drawn stands in the laws.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, date
from functools import cached_property
from typing import NamedTuple

from textpriv.errors import MechanismError
from textpriv.optional import needs
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
_ENGLISH = (
    "January February March April May June July August September October November December".split()
)
_SHORT = {each[:3].casefold(): number for number, each in enumerate(_ENGLISH, 1)}
_DAYS = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b[.,]?\s*")
_FILLERS = re.compile(r"\b(?:of|the|de|del)\b|,")
_ORDINALS = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)\b|(?<=[^\W\d_])\.|(?<=[0-9])\.(?= )")
_TOKENS = re.compile(r"[0-9]+|[^\W\d_]+")
_CLOCK = re.compile(
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::[0-9]{2}(?:\.[0-9]+)?)?(?P<half>\s*[ap]\.?m\.?)?",
    re.IGNORECASE,
)
_AT = re.compile(r"(?P<date>.*?)(?P<between>T|,?\s+(?:at\s+)?)(?P<clock>[0-9]{1,2}:.*)", re.DOTALL)


class Clock(NamedTuple):
    """A time of day.

    Attributes
    ----------
    minute : int
        Since midnight; seconds are left out.
    form : str
        "24" or "12".
    """

    minute: int
    form: str = "24"


class Moment(NamedTuple):
    """A date.

    Attributes
    ----------
    day : int
        1 for the first of January of the year 1.
    form : str
        A shape of the public list.
    clock : Clock, optional
        A time of day that is kept.
    between : str
        What stands before it: "T" or a blank.
    """

    day: int
    form: str = ISO
    clock: Clock | None = None
    between: str = ""


class DateForms:
    """The public forms of a language.

    Parameters
    ----------
    language : str
        Whose names of months are read and written; other languages than "en" need Babel (extra ``spans``).
    dayfirst : bool, optional
        Whether ``3/4/2020`` is in April. Default: in every language but English. With points, days always come first.

    Examples
    --------
    >>> forms = DateForms(dayfirst=False)
    >>> forms.write(forms.read("Sat, Feb. 29th 2020"))
    'February 29, 2020'
    """

    def __init__(self, language: str = "en", dayfirst: bool | None = None) -> None:
        self.language = language
        self.dayfirst = language != "en" if dayfirst is None else dayfirst
        order = "{{d:02}}{0}{{m:02}}{0}" if self.dayfirst else "{{m:02}}{0}{{d:02}}{0}"
        self.forms = dict(_FORMS)
        for mark in "/-":
            self.forms[f"9{mark}9{mark}y"] = order.format(mark) + "{y:04}"
            self.forms[f"9{mark}9{mark}9"] = order.format(mark) + "{yy:02}"
        if language != "en":
            self.forms["9 b y"] = self._written_out()
        self._fields = {
            form: re.findall(r"\{(\w+)", pattern) for form, pattern in self.forms.items()
        }

    def _written_out(self) -> str:
        """How the language writes a date out, where the day comes first: with a point after it, or words between."""
        dates = needs("babel.dates", "spans")
        try:
            pattern = dates.get_date_format("long", self.language).pattern
        except (ValueError, needs("babel.core").UnknownLocaleError) as error:
            raise MechanismError(
                f"no names of months are known for the language {self.language!r} ({type(error).__name__})."
            ) from None
        between = re.fullmatch(r"d(\.?)((?: 'de')?) MMMM((?: 'de')?) y.*", pattern)
        point, before, after = (
            (each.replace("'", "") for each in between.groups()) if between else ("",) * 3
        )
        return f"{{d}}{point}{before} {{b}}{after} {{y:04}}"

    @cached_property
    def _months(self) -> tuple[Mapping[str, int], Mapping[int, str]]:
        """Numbers of months by the names that are read, and the names that are written."""
        if self.language == "en":
            names = {each.casefold(): number for number, each in enumerate(_ENGLISH, 1)}
            return {**names, **_SHORT, "sept": 9}, dict(enumerate(_ENGLISH, 1))
        dates = needs("babel.dates", "spans")
        listed = [
            dates.get_month_names(width, context, self.language)
            for context in ("stand-alone", "format")
            for width in ("abbreviated", "wide")
        ]
        read = {
            name.casefold().strip("."): number for names in listed for number, name in names.items()
        }
        return read, listed[-1]

    def read(self, text: str, clocks: bool = True) -> Moment | None:
        """A date that is written in full in a public form, with or without a time of day; None for any other text.

        Parameters
        ----------
        text : str
        clocks : bool
            Whether a time of day is kept; else it is read over.
        """
        if len(text) > LONGEST:
            return None
        found = _AT.fullmatch(text.strip())
        clock = None
        written = text
        if found is not None:
            clock, written = read_clock(found["clock"]), found["date"]
            if clock is None:
                return None
        day = self._date(written)
        if day is None:
            return None
        if found is None or not clocks:
            return Moment(*day)
        return Moment(*day, clock, "T" if found["between"] == "T" else " ")

    def _date(self, text: str) -> tuple[int, str] | None:
        plain = _DAYS.sub("", text.casefold().strip(), count=1) if self.language == "en" else text
        plain = _ORDINALS.sub("", _FILLERS.sub(" ", plain.casefold()))
        plain = " ".join(plain.split())
        form = _TOKENS.sub(_shape, plain)
        if form not in self.forms:
            return None
        parts = _TOKENS.findall(plain)
        if form == "s":
            parts = [parts[0][:4], parts[0][4:6], parts[0][6:]]
        months = self._months[0] if "b" in form else {}
        fields = {
            name: months.get(part, 0) if name == "b" else int(part)
            for name, part in zip(self._fields[form], parts, strict=True)
        }
        if "yy" in fields:
            fields["y"] = fields["yy"] + (2000 if fields["yy"] < _PIVOT else 1900)
        try:
            return date(
                fields["y"], fields.get("m", fields.get("b", 0)), fields["d"]
            ).toordinal(), form
        except ValueError:
            return None

    def write(self, moment: Moment) -> str:
        """A date in its form."""
        day = date.fromordinal(moment.day)
        month = self._months[1][day.month] if "b" in moment.form else ""
        written = self.forms[moment.form].format(
            y=day.year, yy=day.year % 100, m=day.month, d=day.day, b=month
        )
        return (
            written
            if moment.clock is None
            else written + moment.between + write_clock(moment.clock)
        )


def _shape(match: re.Match[str]) -> str:
    part = match.group()
    if not part[0].isdecimal():
        return "b"
    return {1: "9", 2: "9", 4: "y", 8: "s"}.get(len(part), "x")


def read_clock(text: str) -> Clock | None:
    """A time of day such as 22:30 or 10:30 pm; None for any other text. Seconds are left out."""
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
    """A time of day in its form."""
    hour, minute = divmod(clock.minute, 60)
    if clock.form == "24":
        return f"{hour:02}:{minute:02}"
    return f"{(hour - 1) % 12 + 1}:{minute:02} {'ap'[hour // 12]}m"


def day_of(name: str, value: str | date) -> int:
    """The number of a public date, given as one or as ``2020-05-31``."""
    try:
        given = value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise MechanismError(
            f"{name} must be a date such as 2020-05-31 of the years {MINYEAR} to {MAXYEAR}; got {value!r}."
        ) from None
    return date(given.year, given.month, given.day).toordinal()
