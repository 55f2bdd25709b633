"""Zero-concentrated differential privacy: from rho to (epsilon, delta) and back (Canonne, Kamath, Steinke 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from pairwise.accounting.gaussian import _SAFETY, check_privacy_parameters, gaussian_mu
from pairwise.errors import InvalidParameterError


def _zcdp_order(objective: Callable[[float], float]) -> float:
    """Return where a function of log(α − 1) is least, about (golden section on a grid cell); any α gives a valid bound."""
    grid = [-12.0 + 0.25 * i for i in range(120)]
    best = min(range(len(grid)), key=lambda i: objective(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (math.sqrt(5.0) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if objective(left) <= objective(right):
            high = right
        else:
            low = left
    return min((low + high) / 2, grid[best], key=objective)


def renyi_surcharge(t: float, delta: float) -> float:
    """Return what Rényi DP of order α = 1 + e^t costs on top when it becomes (ε, δ)-DP."""
    excess = math.exp(t)
    return (-math.log(delta) - t + (1 + excess) * (t - math.log1p(excess))) / excess


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the ε at δ of a ρ-zCDP mechanism."""
    if rho < 0 or math.isnan(rho) or not 0 <= delta < 1:
        raise InvalidParameterError(
            f"expected rho >= 0 and delta in [0, 1); found {rho!r} and {delta!r}."
        )
    if rho == 0:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf

    def epsilon(t: float) -> float:
        return (1 + math.exp(t)) * rho + renyi_surcharge(t, delta)

    # Beyond the orders that are searched the classic conversion is the smaller bound.
    found = min(epsilon(_zcdp_order(epsilon)), _classic_epsilon(rho, delta))
    return max(0.0, found) * (1 + _SAFETY)


def _classic_epsilon(rho: float, delta: float) -> float:
    """Return ρ + 2√(ρ ln(1/δ)), a looser conversion."""
    if rho < 0 or not 0 < delta < 1:
        raise InvalidParameterError(
            f"expected rho >= 0 and delta in (0, 1); found {rho!r} and {delta!r}."
        )
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def renyi_order(epsilon: float, delta: float) -> float:
    """Return the order α at which (ε, δ) allows the largest ρ of a ρ-zCDP release; public numbers only."""
    rho = zcdp_rho(epsilon, delta)
    return 1 + math.exp(_zcdp_order(lambda t: (1 + math.exp(t)) * rho + renyi_surcharge(t, delta)))


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose conversion by ``zcdp_epsilon`` is at most ε, rounded down."""
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    low = _classic_rho(epsilon, delta)
    high = gaussian_mu(epsilon, delta) ** 2 / 2 * (1 + 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def release_mu(epsilon: float, delta: float) -> float:
    """Return what all releases of a fit may cost together, √(2ρ): squares of parts of it add up. Infinite for ε = inf."""
    return math.sqrt(2.0 * zcdp_rho(epsilon, delta))


def _classic_rho(epsilon: float, delta: float) -> float:
    """Return ρ = (√(ln(1/δ) + ε) − √ln(1/δ))², the inverse of ``_classic_epsilon``."""
    check_privacy_parameters(epsilon, delta)
    log_term = math.log(1 / delta)
    return (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2
