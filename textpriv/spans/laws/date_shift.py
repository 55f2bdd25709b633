"""One shift for all dates of a person: drawn once, kept by the key, so that intervals stay the same to the day.

Proof. Let a person's dates be the days ``x_1 .. x_n``, over all documents. One N with ``P(N = n)`` proportional to
``exp(-epsilon |n|)`` is drawn for the person, and ``x_1 + N .. x_n + N`` are released. Adjacent is the history moved
as a whole, ``x_i + D`` for all i. For every released y, ``P(N = y_1 - x_1) / P(N = y_1 - x_1 - D) <= exp(epsilon
|D|)`` if y has the intervals of x, which x + D has too; both are impossible if not. The loss is ``epsilon |D|``, once
for all dates. A date outside a public range is not read (that it goes to the words is structure), so D is at most the
width of the range. A date that the shift moves beyond the range is written as its end, *after* the shift, which is a
function of what is released. Before it nothing is clamped, completed or rounded: clamping would give two adjacent
histories other intervals, and no bound would hold.

N is a function of the run key, of epsilon, range, kind and the person's name, by a keyed stream: the same in every
document, run, worker and engine, so a second release repeats the first and costs nothing (also of documents that were
chosen by looking at earlier releases, see :mod:`textpriv.ledger.ledger`). Two persons' shifts, and those under two
keys, are independent. Two kinds of dates move independently, so their losses add up: give one kind to all that must
move together.

A uniform shift has no epsilon and is not offered: its support moves with the history, so one released date can rule
histories out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import ALGORITHM, Scopes, SpanClaim, SpanLaw
from textpriv.spans.laws.date_forms import Moment
from textpriv.spans.laws.dates import VISIBLE, DatedLaw

__all__ = ["DateShift"]


class DateShift(DatedLaw):
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
        As for :class:`textpriv.spans.laws.dates.DatedLaw`.

    Examples
    --------
    >>> from textpriv.randomness import KeyedStreams, Stream
    >>> law = DateShift(epsilon=1 / 365)
    >>> visits = [law.parse("2020-02-28"), law.parse("March 1, 2020")]
    >>> scopes = Scopes(KeyedStreams(seed=1), document="letter", person="Ann")
    >>> first, second = (law.parse(each).day for each in law.draw(visits, Stream(), scopes))
    >>> second - first
    2
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
        """As :meth:`DatedLaw.parse`; None outside of the range, too."""
        moment = super().parse(text)
        return moment if moment and self.first <= moment.day <= self.last else None

    def shift(self, scopes: Scopes) -> int:
        """The days by which all dates of a scope are moved. As secret as the dates themselves."""
        return int(self._noise.draw(1, scopes.stream(self.scope, self.drawn_once()))[0])

    def drawn_once(self) -> bytes:
        """Epsilon, range and kind: noise of two amounts or ranges from one stream would not be independent."""
        law = ALGORITHM, self.epsilon, self.first, self.last, self.kind
        return f"date shift {law!r}".encode()

    def draw(
        self, values: Sequence[Moment], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Move every date by the one shift of its scope; the document's stream is not read."""
        if scopes is None:
            raise MechanismError(f"a shift kept within a {self.scope} needs to know which: scopes.")
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
                f"the shift itself, and with it all dates of a {whose}, where one of them is known from elsewhere, or is "
                "given away by a weekday, an age or a feast in the text",
                VISIBLE,
            ),
            assumptions=(
                f"the run key stays secret, and a name of a {whose} stands for one of them",
            ),
        )

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Shifts of some days within a person and a document."""
        ends: dict[str, Any] = {"low": "2020-02-20", "high": "2020-03-10"}
        days = ["2020-02-28", "2020-03-01", "2020-03-03"]
        return [(cls(0.5, **ends), days), (cls(1.0, "document", **ends), days)]
