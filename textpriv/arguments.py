"""Numbers as arguments: what of all that a caller may give is one, and how what is none is called in a message.

Numbers of numpy, fractions and decimals are numbers; a truth value and a whole number beyond all floats are none. Which
range has a meaning is said by whoever takes the argument.
"""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from textpriv.errors import TextprivError

__all__ = ["MOST", "real", "shown", "whole"]

MOST = 2**53  # whole numbers up to here are floats


def real(value: Any) -> float:
    """Return a number as a float; nan, which is in no range, for what is none or beyond all floats."""
    if not isinstance(value, Real | Decimal) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def whole(name: str, value: Any, least: int = 1, error: type[TextprivError] = TextprivError) -> int:
    """Return a whole number of so many at least, and at most ``MOST``.

    Raises
    ------
    TextprivError
        Of the class that is given.
    """
    if (
        not isinstance(value, Integral)
        or isinstance(value, bool)
        or not least <= int(value) <= MOST
    ):
        raise error(f"{name} is a whole number from {least} up; got {shown(value)}.")
    return int(value)


def shown(value: Any) -> str:
    """Return a number as it is written, if it is short; of anything else the type, for it may be a text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return f"a value of type {type(value).__name__}"
    if isinstance(value, Integral) and int(value).bit_length() > 64:
        return f"a whole number of {int(value).bit_length():,} bits"
    return str(value)
