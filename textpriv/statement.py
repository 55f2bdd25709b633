"""The statement of a release: what is guaranteed, for whom, what is not protected, and under which assumptions.

Sentences about tokens, such as punctuation, are in ``tokenization/policy.py``, those about spans in ``spans/``. Printed
bounds are rounded up, so the printed number is a bound as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from html import escape
from itertools import islice
from textwrap import wrap
from typing import Any, NamedTuple

from textpriv.errors import TextprivError

_SHOWN = 20  # columns of a statement
_WIDTH, _HEADING = 100, 15  # of the table, and of its headings
DOCUMENT_WORDS, DOCUMENT_DELTA = 100, 1e-6  # of the line about documents
_ROUNDED = 1e-9  # relative: more than the arithmetic of a conversion is off by


class UnsoundWarning(UserWarning):
    """Warn that a guarantee is weaker than one would expect; the statement says what is true."""


class Together(NamedTuple):
    """The loss of several draws: outcomes are at most exp(epsilon) times as likely under other inputs, plus delta."""

    epsilon: float  # in nats
    delta: float  # 0 if the sum of the largest losses is the lesser bound
    total: float  # this sum, which holds with a delta of 0


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of a mechanism, an estimator, or a release made with it.

    ``epsilon`` is in ``unit``, which with ``by_distance=False`` names whose change is covered, such as "one record". It is
    None if there is no finite bound, and infinite without noise. ``adjacency`` says between which inputs the guarantee
    holds, and ``by_distance`` whether the loss grows with their distance, as of words. ``proved`` says whether the guarantee
    as stated here is proved for what runs; ``proof`` has paper, section and equation, and ``assumptions`` what it takes for
    granted about the world. ``not_protected`` lists what stays visible, or is released as it is.

    ``figures`` has derived numbers: ``worst_word_loss`` (nats); ``unknown_word_loss`` (nats, a word outside the vocabulary
    against any word of it); ``reference_distance`` and ``reference_distance_90`` (half and nine tenths of all tokens have
    their 10th nearest word within it); ``reference_loss`` and ``reference_loss_90`` (nats there); ``numerical_slack`` (nats
    that rounding may add); ``bounded_range`` and ``largest_range`` (width in nats of the interval of a loss, per unit of
    distance and at most).
    """

    mechanism: str
    adjacency: str
    epsilon: float | None
    delta: float
    unit: str
    proved: bool
    proof: str = ""
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_distance: bool = True

    def __post_init__(self) -> None:
        if self.by_distance and self.delta:
            raise TextprivError("a guarantee that grows with the distance has no delta.")

    def extended(
        self,
        *,
        assumptions: Iterable[str] = (),
        not_protected: Iterable[str] = (),
        notes: Iterable[str] = (),
        proved: bool | None = None,
    ) -> PrivacyStatement:
        """Return a copy with further assumptions, exposures and notes, each listed once."""
        return replace(
            self,
            assumptions=tuple(dict.fromkeys((*self.assumptions, *assumptions))),
            not_protected=tuple(dict.fromkeys((*self.not_protected, *not_protected))),
            notes=tuple(dict.fromkeys((*self.notes, *notes))),
            proved=self.proved if proved is None else proved,
        )

    def with_columns(self, columns: Collection[str]) -> PrivacyStatement:
        """Return a copy that names columns which are released as written, the first 20 of them."""
        if not columns:
            return self
        names = ", ".join(islice(columns, _SHOWN)) + (", ..." if len(columns) > _SHOWN else "")
        return self.extended(not_protected=(f"other columns, released as written: {names}",))

    # Every word is drawn by itself, so the losses of words add up. These figures are proved if ``proved`` is true.

    def loss_at(self, distance: float) -> float:
        """Largest loss, in nats, between two words at a distance: odds of at most ``exp(loss)`` to 1.

        Words at distance 0 have the same output distribution: 0. Infinite if the statement has no epsilon.
        """
        if self.epsilon is None:
            return math.inf
        if not distance >= 0:
            raise TextprivError(f"a distance is a number from 0 up; got {distance}.")
        worst = self.figures.get("worst_word_loss", math.inf)
        return min(self.epsilon * distance, worst) + self._slack if distance else 0.0

    def range_at(self, distance: float) -> float:
        """Width, in nats, of the interval in which the loss between two words at a distance moves over all outputs."""
        width = 2 * self.loss_at(distance)
        if distance > 0:
            slope = self.figures.get("bounded_range", math.inf)
            widest = self.figures.get("largest_range", math.inf)
            width = min(width, min(slope * distance, widest) + 2 * self._slack)
        return width

    @property
    def _slack(self) -> float:
        return self.figures.get("numerical_slack", 0.0)

    def documents_within(
        self, words: int, distance: float = math.inf, delta: float = DOCUMENT_DELTA
    ) -> Together:
        """Largest loss between documents that differ in a number of words, each within a distance.

        Documents with different numbers of tokens, or that differ in tokens which are not drawn, can be distinguished
        for certain: no figure covers them.

        The documents are equal otherwise; words of several documents count together. The lesser of two bounds: the sum of
        all losses, and at a ``delta`` above 0 zCDP by bounded range, of which a range of eta is eta^2 / 8 (Cesar and
        Rogers, "Bounding, Concentrating, and Truncating", 2021).
        """
        if not (words >= 0 and 0 <= delta < 1):
            raise TextprivError(
                f"words and delta are numbers from 0 up, delta below 1; got {words} and {delta}."
            )
        total = words * self.loss_at(distance) if words else 0.0
        if not (delta and 0 < total < math.inf):
            return Together(total, 0.0, total)
        epsilon = epsilon_of_zcdp(words * self.range_at(distance) ** 2 / 8, delta)
        return min(Together(total, 0.0, total), Together(epsilon, delta, total))

    @property
    def verdict(self) -> str:
        """Whether the guarantee is proved, in two words."""
        return "bound proved" if self.proved else "NOT PROVED"

    @property
    def table(self) -> list[tuple[str, list[str]]]:
        """Headings of the statement, each with its sentences; without those that have none."""
        rows = [
            ("guaranteed", self.guaranteed),
            ("for whom", self.for_whom),
            ("not protected", [*self.not_protected]),
            ("assumed", [*self.assumptions]),
            ("proof", [self.proof] if self.proof else []),
            ("notes", [*self.notes]),
        ]
        return [row for row in rows if row[1]]

    @property
    def guaranteed(self) -> list[str]:
        """Sentences about the bound."""
        if self.epsilon is None:
            return ["Nothing that can be stated as a number."]
        claim = at_most(self.epsilon)
        if not self.by_distance:
            if not math.isfinite(self.epsilon):
                return ["Nothing: it is not private, since no noise was added."]
            plus = f", plus {at_most(self.delta, 3)}" if self.delta > 0 else ""
            lines = [
                f"Two data sets differ by {self.unit} ({self.adjacency}).",
                f"Any set of outcomes is at most exp({claim}) = {factor_in_words(self.epsilon)} times as likely under one "
                f"as under the other{plus}.",
            ]
            # P(loss > epsilon) - e^epsilon Q(loss > epsilon) is at most delta; P(loss > epsilon) by itself is larger.
            chance = (
                f"The {at_most(self.delta, 3)} is added to a probability. The chance that odds exceed exp({claim}) may be "
                "many times that."
            )
            return [*lines, chance] if plus else lines
        slack = f" Rounding adds at most {at_most(self._slack, 2)} nats." if self._slack else ""
        lines = [
            "Seeing a released word changes anyone's odds between two possible originals by at most a factor of "
            f"exp({claim} x d). Here d is their distance.",
            f"Epsilon is {claim} {self.unit}.{slack}",
            "All odds below start from 1 to 1 before the word was seen.",
        ]
        lines += [self.typical_odds] if self.typical_odds else []
        if "worst_word_loss" in self.figures:
            odds = odds_in_words(self.loss_at(math.inf))
            lines.append(f"The two most different words: odds of at most {odds}.")
        return lines

    @property
    def for_whom(self) -> list[str]:
        """Sentences about the inputs that the bound covers, and how losses add up."""
        if not self.by_distance:
            return []
        lines = [f"{self.adjacency[:1].upper()}{self.adjacency[1:]}."]
        if self.epsilon is not None:
            lines.append(
                "The factors of all changed words multiply, over a document and over all documents of a person."
            )
        return [*lines, *self.documents]

    @property
    def documents(self) -> list[str]:
        """Sentences about documents that differ in 100 words; none without such figures."""
        distance = self.figures.get("reference_distance", math.inf)
        if self.epsilon is None or not 0 < distance < math.inf:
            return []
        reach = at_most(distance, 4)  # the bound is computed for the distance as it is printed
        found = self.documents_within(DOCUMENT_WORDS, float(reach))
        lines = [
            f"Documents that differ in {DOCUMENT_WORDS} words, each by a distance of up to {reach}: odds of at most "
            f"{odds_in_words(found.total)}."
        ]
        factor = factor_in_words(found.epsilon)
        if found.delta and factor != factor_in_words(found.total):
            lines.append(
                f"Any set of outcomes is at most {factor} times as likely for one of them as for the other, plus "
                f"{at_most(found.delta)}. This is zCDP by bounded range."
            )
        if found.epsilon > -math.log(DOCUMENT_DELTA):
            lines.append(
                "A bound so large protects nothing: assume that such documents can be distinguished."
            )
        return lines

    @property
    def typical_odds(self) -> str:
        """The sentences about tokens and their neighbours; empty without such figures."""
        names = [
            f"reference_{what}{share}" for what in ("loss", "distance") for share in ("", "_90")
        ]
        if not self.figures.keys() >= {*names}:
            return ""
        losses_and_distances = [self.figures[name] for name in names]
        half, most = map(odds_in_words, losses_and_distances[:2])
        near, far = (at_most(distance, 4) for distance in losses_and_distances[2:])
        return (
            f"A token and its 10th nearest word: odds of at most {half} for half of all tokens (distance up to {near}). For "
            f"nine tenths: at most {most} (up to {far})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON types; an infinite epsilon becomes "inf", and infinite figures are left out."""
        lists = {name: list(value) for name, value in vars(self).items() if type(value) is tuple}
        figures = {name: value for name, value in self.figures.items() if math.isfinite(value)}
        epsilon = "inf" if self.epsilon == math.inf else self.epsilon
        return {**vars(self), **lists, "figures": figures, "epsilon": epsilon}

    def __str__(self) -> str:
        lines = wrap(f"{self.mechanism}: {self.verdict}", _WIDTH)
        for heading, sentences in self.table:
            for at, sentence in enumerate(sentences):
                lead = f"{'' if at else heading:<{_HEADING}}"
                hanging = " " * _HEADING
                lines += wrap(sentence, _WIDTH, initial_indent=lead, subsequent_indent=hanging)
        return "\n".join(lines)

    def __repr__(self) -> str:
        claim = "none" if self.epsilon is None else at_most(self.epsilon)
        claim += "" if self.by_distance else f", delta {at_most(self.delta)} for"
        return (
            f"PrivacyStatement({self.mechanism}: epsilon {claim} {self.unit}, "
            f"{self.verdict}, {len(self.not_protected)} not protected)"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """Return the epsilon at a delta in (0, 1) of what is rho-zCDP, rho from 0 up; rounded up.

    By Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12.
    """
    if not (rho >= 0 and 0 < delta < 1):
        raise TextprivError(
            f"rho is a number from 0 up and delta one between 0 and 1; got {rho} and {delta}."
        )
    if rho == 0:
        return 0.0
    order = zcdp_order(rho, delta)
    # Near zero the two terms cancel, so their rounding is absolute.
    return max((rho * order + renyi_surcharge(order, delta)) * (1 + _ROUNDED) + 1e-15, 0.0)


def zcdp_order(rho: float, delta: float) -> float:
    """Return the order above 1 at which rho, above 0, converts to the least epsilon; every other one is good as well."""

    def epsilon(order: float) -> float:
        return rho * order + renyi_surcharge(order, delta)

    # Around the order at which the simpler conversion, rho + 2 sqrt(rho ln(1 / delta)), is least.
    order, octaves = 1 + min(math.sqrt(-math.log(delta) / rho), 1e100), 4.0
    for _ in range(12):
        steps = (2.0 ** (step * octaves / 8) for step in range(-8, 9))
        # A huge rho has its best order where floats no longer tell it from 1.
        order = min((1 + max((order - 1) * step, 1e-9) for step in steps), key=epsilon)
        octaves /= 4
    return order


def renyi_surcharge(order: float, delta: float) -> float:
    """Return what a Renyi divergence of an order above 1 costs on top when it becomes an epsilon at a delta."""
    return -(math.log(delta) + math.log(order)) / (order - 1) + math.log1p(-1 / order)


def at_most(value: float, digits: int = 6) -> str:
    """Write a number rounded up to some significant digits, as ``format(value, ".6g")`` does.

    >>> at_most(2.0), at_most(1.2341, 3), at_most(1234567.0, 3)
    ('2', '1.24', '1.24e+06')
    """
    return _written(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 6) -> str:
    """Write a number rounded down to some significant digits."""
    return _written(value, digits, ROUND_FLOOR)


def _written(value: float, digits: int, way: str) -> str:
    if not math.isfinite(value):
        return format(value, "g")
    # The shortest decimal that reads back as the value: 0.1 stays 0.1, although the float is a little above a tenth.
    return format(float(_context(digits, way).plus(Decimal(repr(float(value))))), f".{digits}g")


def odds_in_words(nats: float) -> str:
    """Write odds of at most ``exp(nats)`` to 1, rounded up by less than 10 %.

    >>> odds_in_words(3.0), odds_in_words(14.9), odds_in_words(60.0), odds_in_words(math.inf)
    ('20.1 to 1', '3.0 million to 1', '1.2 x 10^26 to 1', 'no bound')
    """
    return "no bound" if math.isnan(nats) or nats == math.inf else f"{factor_in_words(nats)} to 1"


def factor_in_words(nats: float) -> str:
    """Write the factor ``exp(nats)`` of a finite number as :func:`odds_in_words` does."""
    if nats > 1e6:  # the power of ten says all
        return f"10^{math.ceil(nats / math.log(10) * (1 + 1e-15)):,}"
    exact = Decimal(nats).exp(_context(30, ROUND_CEILING))
    odds = exact.next_plus(_context(30, ROUND_CEILING)) if nats else exact
    rounded = _context(3, ROUND_CEILING).plus(odds)
    if rounded < 1000:
        return f"{float(rounded):.3g}"
    whole = int(odds.to_integral_value(ROUND_CEILING))
    if whole < 10**6:
        return f"{whole:,}"
    rounded = _context(2, ROUND_CEILING).plus(odds)
    power = rounded.adjusted()
    size = power - power % 3
    if name := {6: "million", 9: "billion", 12: "trillion"}.get(size):
        return f"{rounded.scaleb(-size):.{int(power == size)}f} {name}"
    return f"{rounded.scaleb(-power):.1f} x 10^{power}"


def _context(digits: int, way: str) -> Context:
    return Context(prec=digits, rounding=way, Emax=MAX_EMAX, Emin=MIN_EMIN)
