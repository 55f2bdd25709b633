"""The default delta, and what an (epsilon, delta) must be to promise something."""

from __future__ import annotations

import math

from pairwise.errors import InvalidParameterError, check_number

# Of a smaller epsilon the formulas lose all digits, of a larger one they overflow.
_RANGE = (1e-100, 1e100)


def default_delta(n: int) -> float:
    """Return min(1e-5, n^-1.5), the default δ for n records."""
    if n < 1:
        raise InvalidParameterError(f"n must be at least 1; found {n}.")
    return min(1e-5, float(n) ** -1.5)


def resolved_delta(epsilon: float, delta: float | None, n: int) -> float:
    """Return δ, by default that for n records, after checking (ε, δ)."""
    delta = default_delta(n) if delta is None else delta
    check_privacy_parameters(epsilon, delta, n)
    return float(delta)


def check_privacy_parameters(
    epsilon: float, delta: float, n: int | None = None, *, allow_pure: bool = False
) -> None:
    """Refuse settings that promise nothing or cannot be met: ε beyond 1e-100..1e100, δ outside (0, 1) or from 1/n on.

    An infinite ε is the non-private reference and passes with any δ. Gaussian noise cannot meet δ = 0.
    """
    check_number("epsilon", epsilon)
    check_number("delta", delta)
    if math.isnan(epsilon) or epsilon <= 0:
        raise InvalidParameterError(
            f"epsilon must be > 0; found {epsilon!r}. Use float('inf') for the non-private reference."
        )
    if epsilon == math.inf:
        return
    if not _RANGE[0] <= epsilon <= _RANGE[1]:
        raise InvalidParameterError(
            f"epsilon must lie in {_RANGE[0]:g}..{_RANGE[1]:g}, or be infinite; found {epsilon!r}. Use float('inf') for the "
            "non-private reference."
        )
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameterError(f"delta must be in [0, 1); found {delta!r}. Use 1e-5 or less.")
    if delta == 0 and not allow_pure:
        raise InvalidParameterError(
            "delta = 0 cannot be met with Gaussian noise. Use a delta such as 1e-5."
        )
    if n is not None and delta >= 1 / n:
        raise InvalidParameterError(
            f"delta must be below 1/n = {1 / n:.3g}; found {delta:.3g}. Publishing one whole record at random would "
            f"satisfy that. Use {default_delta(n):.3g}."
        )
