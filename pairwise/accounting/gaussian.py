"""Zero-concentrated costs of Gaussian noise, rounded to the safe side."""

from __future__ import annotations

import math
from functools import lru_cache

from pairwise.accounting.parameters import check_privacy_parameters
from textpriv.statement import epsilon_of_zcdp, zcdp_order


def renyi_order(epsilon: float, delta: float) -> float:
    """Return the order α at which (ε, δ) allows the largest ρ of a ρ-zCDP release; public numbers only."""
    return zcdp_order(zcdp_rho(epsilon, delta), delta)


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose conversion by ``epsilon_of_zcdp`` is at most ε, rounded down."""
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    # The classic conversion, turned round: (√(ln(1/δ) + ε) − √ln(1/δ))².
    log_term = math.log(1 / delta)
    low = (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2
    high = 2.0 * low
    while epsilon_of_zcdp(high, delta) <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2
        if epsilon_of_zcdp(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def release_mu(epsilon: float, delta: float) -> float:
    """Return what all releases of a fit may cost together, √(2ρ): squares of parts of it add up. Infinite for ε = inf."""
    return math.sqrt(2.0 * zcdp_rho(epsilon, delta))
