"""Errors of this package and checks of settings.

Every message says what was expected, what was found and what to do. None holds a value taken from private data.
"""

from __future__ import annotations

import numbers
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray


class PairwiseError(ValueError):
    """Base of all errors raised on purpose by this package."""


class InvalidParameterError(PairwiseError):
    """A setting is outside the range in which its guarantee or its meaning holds."""


class InvalidPairsError(PairwiseError):
    """A list of pairs has the wrong shape, or indices out of range."""


class UnsupportedEventError(PairwiseError):
    """A privacy event has no accountant that can analyse it under the adjacency asked for."""


class BudgetExceededError(PairwiseError):
    """A release was refused because it would pass the limit of its budget; nothing was drawn."""


class BudgetClosedError(PairwiseError):
    """A release was refused because its budget is closed or its store cannot be reached."""


class ServiceError(PairwiseError):
    """A server refused a request, cannot be reached, or answered with something that is no answer."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, whatever of scikit-learn is between."""
    frame, level = sys._getframe(1), 2
    libraries = ("pairwise", "sklearn", "joblib")
    while frame.f_back and str(frame.f_globals.get("__name__")).split(".")[0] in libraries:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_number(name: str, value: object) -> None:
    """Refuse a setting that is no real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameterError(f"{name} must be a number; found {type(value).__name__}.")


def check_scale(name: str, value: float) -> None:
    """Refuse a scale that is not positive, or at which squares and quotients of floats lose their digits."""
    check_number(name, value)
    if not 1e-50 <= value <= 1e50:
        raise InvalidParameterError(
            f"{name} must be a positive finite number in 1e-50..1e50, where floats keep their digits; found {value!r}. Use "
            "another unit."
        )


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse a setting that is no whole number, or smaller than ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidParameterError(f"{name} must be a whole number >= {least}; found {value!r}.")


def check_share(name: str, value: float) -> None:
    """Refuse a setting that is no share in [0, 1)."""
    check_number(name, value)
    if not 0 <= value < 1:
        raise InvalidParameterError(f"{name} must be in [0, 1); found {value!r}.")


Read = TypeVar("Read")


def without_context(read: Callable[[], Read], refusal: Callable[[Exception], Exception]) -> Read:
    """Return ``read()``; where it raises, raise what ``refusal`` makes of the error instead.

    The new error is raised outside the handler. ``raise ... from None`` would keep the old one, which may quote private
    values, as ``__context__``.
    """
    try:
        return read()
    except (ValueError, TypeError, OverflowError) as error:
        refused = refusal(error)
    raise refused


def finite_numbers(
    values: Any, refused: type[PairwiseError] = InvalidParameterError
) -> NDArray[np.float64]:
    """Return private features as finite float64 numbers; a refusal repeats none of them."""
    out = without_context(
        lambda: np.asarray(values, dtype=np.float64),
        lambda _: refused(
            "features must be rows of numbers; found text or mixed entries. Encode them."
        ),
    )
    if not np.all(np.isfinite(out)):
        raise refused("features must be finite; found NaN or infinity. Fill or drop these first.")
    return out
