"""Composition: from bounds on the loss of each of several draws to an epsilon and a delta of all."""

from __future__ import annotations

import math
from typing import NamedTuple

from textpriv.errors import TextprivError

__all__ = ["Together", "epsilon_of_zcdp", "together"]

_ROUNDED = 1e-9  # relative: more than the arithmetic of a conversion is off by


class Together(NamedTuple):
    """What some draws lose together.

    Attributes
    ----------
    epsilon : float
        Nats: any set of outcomes is at most exp(epsilon) times as likely under other inputs, plus ``delta``.
    delta : float
        0 where the sum of the largest losses is what counts.
    by : str
        "sum" or "zcdp".
    total : float
        The sum of the largest losses, which holds with a delta of 0.
    """

    epsilon: float
    delta: float
    by: str
    total: float


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """The least epsilon that the conversions of zCDP at these orders give.

    By Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12: at every order
    alpha above 1 it is ``rho alpha + (ln(1 / delta) + (alpha - 1) ln(1 - 1 / alpha) - ln(alpha)) / (alpha - 1)``.

    Parameters
    ----------
    rho : float
        0 or more.
    delta : float
        In (0, 1).

    Raises
    ------
    TextprivError
        For what is outside these ranges.
    """
    if not (rho >= 0 and 0 < delta < 1):
        raise TextprivError(
            f"rho is a number from 0 up and delta one between 0 and 1; got {rho} and {delta}."
        )
    if rho == 0:
        return 0.0
    # Around the order at which the simpler conversion, rho + 2 sqrt(rho ln(1 / delta)), is least.
    usual = math.sqrt(math.log(1 / delta) / rho)
    # Any order above 1 is good; a huge rho has its best one where floats no longer tell it from 1.
    orders = [1 + max(usual * 2.0 ** (step / 16), 1e-9) for step in range(-64, 65)]
    found = min(
        rho * a + (-math.log(delta) + (a - 1) * math.log1p(-1 / a) - math.log(a)) / (a - 1)
        for a in orders
    )
    return max(found * (1 + _ROUNDED), 0.0)


def together(draws: int, loss: float, spread: float, delta: float) -> Together:
    """Return the lesser bound on equal draws: the sum of their losses, or zCDP by bounded range.

    Parameters
    ----------
    draws : int
        0 or more.
    loss : float
        The largest loss of one draw, in nats; infinite where there is no bound.
    spread : float
        Within how many nats the loss of one draw between two given inputs moves, at most ``2 * loss``: a spread of eta is
        eta^2 / 8-zCDP (Cesar and Rogers, "Bounding, Concentrating, and Truncating", 2021).
    delta : float
        In [0, 1).
    """
    total = draws * loss if draws else 0.0
    candidates = [Together(total, 0.0, "sum", total)]
    if 0 < delta < 1 and 0 < total < math.inf:
        rho = draws * min(spread, 2 * loss) ** 2 / 8
        candidates.append(Together(epsilon_of_zcdp(rho, delta), delta, "zcdp", total))
    return min(candidates)
