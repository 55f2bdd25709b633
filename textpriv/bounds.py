"""How a bound is written: what is printed under "at most" is rounded up, so that the printed number is a bound as well.

Here numbers become text and nothing else; which bound holds is computed by whoever states it.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["at_least", "at_most", "factor_in_words", "odds_in_words"]

_NAMED = ((12, "trillion"), (9, "billion"), (6, "million"))
# Beyond this many nats the power of ten says all there is to say, and its own rounding matters no more.
_LARGEST = 1e6


def at_most(value: float, digits: int = 6) -> str:
    """Write a number rounded up to some significant digits.

    Parameters
    ----------
    value : float
    digits : int
        1 to 15.

    Returns
    -------
    str
        As ``format(value, f".{digits}g")``, but read back it is never below the value, and above it by less than one unit of
        the last digit.

    Examples
    --------
    >>> at_most(2.0), at_most(1.2341, 3), at_most(1234567.0, 3)
    ('2', '1.24', '1.24e+06')
    """
    return _written(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 6) -> str:
    """Write a number rounded down to some significant digits; see :func:`at_most`.

    Examples
    --------
    >>> at_least(0.99461, 3)
    '0.994'
    """
    return _written(value, digits, ROUND_FLOOR)


def _written(value: float, digits: int, way: str) -> str:
    if not math.isfinite(value):
        return format(value, "g")
    # The shortest decimal that reads back as the value: 0.1 stays 0.1, although the float lies a little above a tenth.
    return format(float(_rounded(Decimal(repr(float(value))), digits, way)), f".{digits}g")


def odds_in_words(nats: float) -> str:
    """Write odds of at most ``exp(nats)`` to 1 so that a person can read them.

    Parameters
    ----------
    nats : float
        A bound on the loss; infinite where there is none.

    Returns
    -------
    str
        Rounded up: never below ``exp(nats)``, and up to a million nats above it by less than 10 %.

    Examples
    --------
    >>> odds_in_words(3.0), odds_in_words(14.9), odds_in_words(60.0), odds_in_words(math.inf)
    ('20.1 to 1', '3.0 million to 1', '1.2 x 10^26 to 1', 'no bound')
    """
    return "no bound" if math.isnan(nats) or nats == math.inf else f"{factor_in_words(nats)} to 1"


def factor_in_words(nats: float) -> str:
    """Write the factor ``exp(nats)`` as :func:`odds_in_words` does.

    Parameters
    ----------
    nats : float
        Finite.

    Examples
    --------
    >>> factor_in_words(3.0), factor_in_words(1030.0)
    ('20.1', '2.2 x 10^447')
    """
    if nats > _LARGEST:
        return f"10^{math.ceil(nats / math.log(10) * (1 + 1e-15)):,}"
    odds = _exp(nats)
    if odds < 1000:
        odds = _rounded(odds, 3, ROUND_CEILING)
    if odds < 1000:
        return f"{float(odds):.3g}"
    whole = int(odds.to_integral_value(ROUND_CEILING))
    if whole < 10**6:
        return f"{whole:,}"
    odds = _rounded(odds, 2, ROUND_CEILING)
    power = odds.adjusted()
    for size, name in _NAMED:
        if size <= power < size + 3:
            count = odds.scaleb(-size)
            return f"{count:.1f} {name}" if power == size else f"{count:.0f} {name}"
    return f"{odds.scaleb(-power):.1f} x 10^{power}"


def _exp(value: float) -> Decimal:
    """``exp`` of a float, rounded up in the 30th digit."""
    context = Context(prec=30, Emax=MAX_EMAX, Emin=MIN_EMIN)
    found = Decimal(value).exp(context)
    return found.next_plus(context) if value else found


def _rounded(value: Decimal, digits: int, way: str) -> Decimal:
    context = Context(prec=digits, rounding=way, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return context.plus(value)
