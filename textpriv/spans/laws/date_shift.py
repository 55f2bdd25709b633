"""One shift for all dates of a person: drawn once, kept by the key, so that intervals stay what they are to the day.

Proof (mechanisms.md 10.4). Let a person's dates be the days ``x_1 .. x_n``, over all documents. One N with ``P(N = n)``
proportional to ``exp(-epsilon |n|)`` is drawn for the person, and ``x_1 + N .. x_n + N`` are released. Adjacent is the
history moved as a whole, ``x_i + D`` for all i. For every released y, ``P(N = y_1 - x_1) / P(N = y_1 - x_1 - D) <=
exp(epsilon |D|)`` where y has the intervals of x, which x + D has too, and both are impossible where not: the loss is
``epsilon |D|``, once for all dates. A date outside a public range is not read (it goes to the words, and that it does is
structure), so D is at most the width of the range; one that the shift moves beyond the range is written as its end,
*after* the shift, which is a function of what is released. Before it nothing is clamped, completed or rounded: clamping
would give two adjacent histories other intervals, and no bound would hold.

N is a function of the run key, of epsilon, range, kind and the person's name, by a keyed stream (:class:`Scopes`): the
same in every document, run, worker and engine, so a second release repeats the first and costs nothing (that this holds
of documents chosen by looking at earlier releases, too, is proved in :mod:`textpriv.ledger.ledger`); two persons'
shifts, and those under two keys, are independent. Two kinds of dates move independently, so that their losses add up: give
one kind to all that must move together. Under a ledger the key is the ledger's.

A uniform shift has no epsilon. Its support moves with the history: for a shift of 0 to m days, a date that is released m
days after x cannot come from x - 1. It is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import ALGORITHM, Scopes, SpanClaim, SpanLaw
from textpriv.spans.laws.date_forms import Moment
from textpriv.spans.laws.dates import DatedLaw

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
    noise : str
        "geometric". "uniform" is refused.
    form, times, language, dayfirst, kind
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
        noise: str = "geometric",
        form: Literal["own", "iso"] = "own",
        times: Literal["drop", "keep"] = "drop",
        language: str = "en",
        dayfirst: bool | None = None,
        kind: str | None = None,
    ) -> None:
        if noise != "geometric":
            raise MechanismError(
                f"a {noise} shift is not offered: its support moves with the dates, so one released date may rule a history "
                "out for sure, and no epsilon bounds that. Use noise='geometric'."
                if noise == "uniform"
                else f"noise is 'geometric'; got {noise!r}."
            )
        if scope not in ("person", "document"):
            raise MechanismError(f"scope is 'person' or 'document'; got {scope!r}.")
        super().__init__(epsilon, low, high, form, times, language, dayfirst, kind)
        self.scope = scope

    def parse(self, text: str) -> Moment | None:
        """As :meth:`DatedLaw.parse`; None outside of the range, too."""
        moment = super().parse(text)
        return moment if moment and self.first <= moment.day <= self.last else None

    def shift(self, scopes: Scopes) -> int:
        """The days by which all dates of a scope are moved. As secret as the dates themselves."""
        assert self.scope is not None
        stream = scopes.stream(self.scope, self.drawn_once())
        return int(self._noise.draw(1, stream)[0])

    def drawn_once(self) -> bytes:
        """Epsilon, range and kind.

        Not the form, which may change between releases. Noise of two amounts or ranges from one stream would be two
        releases that depend on each other.
        """
        law = ALGORITHM, self.epsilon, self.first, self.last, self.kind
        return f"date shift {law!r}".encode()

    def draw(
        self, values: Sequence[Moment], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Every date moved by the one shift of its scope; the document's stream is not read."""
        if not values:
            return []
        if scopes is None:
            raise MechanismError(f"a shift kept within a {self.scope} needs to know which: scopes.")
        return self._moved(values, np.array([self.shift(scopes)]))

    def joint_loss(self, first: Sequence[Moment], second: Sequence[Moment]) -> float:
        """``epsilon |D|`` between a history and the same moved by D days, however many dates it has."""
        moved = {later.day - earlier.day for earlier, later in zip(first, second, strict=False)}
        alike = list(map(self.structure, first)) == list(map(self.structure, second))
        if not alike or len(moved) > 1:
            return math.inf
        return self.epsilon * abs(moved.pop()) if moved else 0.0

    def claim(self) -> SpanClaim:
        """Epsilon a day, once for all dates of the scope."""
        assert self.scope is not None
        whose = self.scope
        return SpanClaim(
            f"one two-sided geometric shift, in days, for all dates of a {whose}, {self._range}",
            self.epsilon,
            f"day that all dates of a {whose} are moved by together",
            self.epsilon * (self.last - self.first),
            per=whose,
            not_protected=(
                f"intervals between those of a {whose}, their order, and which are equal",
                f"the shift itself, and with it all dates of a {whose}, where one of them is known from elsewhere, or is "
                "given away by a weekday, an age or a feast in the text",
                *self._visible(),
            ),
            assumptions=(
                f"the run key stays secret, and a name of a {whose} stands for one of them",
            ),
        )

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this law."""
        return {**super().settings(), "scope": self.scope}

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Shifts of some days within a person and a document."""
        low, high = "2020-02-20", "2020-03-10"
        days = ["2020-02-28", "2020-03-01", "2020-03-03"]
        return [
            (cls(0.5, low=low, high=high), days),
            (cls(1.0, "document", low, high, times="keep"), [*days[:2], "2020-03-01 10:30"]),
        ]
