"""Zero-concentrated differential privacy: from rho to (epsilon, delta) and back, by the best order and in the classic form.

Which releases satisfy it is said where they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from pairwise.accounting.gaussian import _SAFETY, check_privacy_parameters, gaussian_mu
from pairwise.errors import InvalidParameterError

__all__ = [
    "release_mu",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_epsilon_classic",
    "zcdp_rho",
    "zcdp_rho_classic",
]

# --------------------------------------------------------------------------------------------------------------------
# Zero-concentrated DP


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


def _renyi_surcharge(t: float, delta: float) -> float:
    """Return what Rényi DP of order α = 1 + e^t costs on top when it becomes (ε, δ)-DP (mechanisms.md 1.3)."""
    excess = math.exp(t)
    return (-math.log(delta) - t + (1 + excess) * (t - math.log1p(excess))) / excess


def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return the δ at ε of a ρ-zCDP mechanism, inf over α > 1 of e^((α−1)(αρ−ε))/(α−1) · (1 − 1/α)^α (mechanisms.md 1.3).

    Every α gives a valid bound, so an inexact minimum is only looser.
    """
    if rho == 0:
        return 0.0

    def log_delta(t: float) -> float:
        excess = math.exp(t)
        alpha = 1 + excess
        return excess * (alpha * rho - epsilon) - t + alpha * (t - math.log(alpha))

    return min(1.0, math.exp(min(0.0, log_delta(_zcdp_order(log_delta)))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the ε at δ of a ρ-zCDP mechanism, by the conversion of mechanisms.md 1.3 (Canonne, Kamath, Steinke 2020)."""
    if rho < 0 or math.isnan(rho) or not 0 <= delta < 1:
        raise InvalidParameterError(
            f"expected rho >= 0 and delta in [0, 1); found {rho!r} and {delta!r}."
        )
    if rho == 0:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf

    def epsilon(t: float) -> float:
        return (1 + math.exp(t)) * rho + _renyi_surcharge(t, delta)

    # Beyond the orders that are searched the classic conversion is the smaller bound.
    found = min(epsilon(_zcdp_order(epsilon)), zcdp_epsilon_classic(rho, delta))
    return max(0.0, found) * (1 + _SAFETY)


def zcdp_epsilon_classic(rho: float, delta: float) -> float:
    """Return ρ + 2√(ρ ln(1/δ)), the looser conversion of HUAI lemma 3 (for its published mode)."""
    if rho < 0 or not 0 < delta < 1:
        raise InvalidParameterError(
            f"expected rho >= 0 and delta in (0, 1); found {rho!r} and {delta!r}."
        )
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose conversion by ``zcdp_epsilon`` is at most ε, rounded down."""
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    low = zcdp_rho_classic(epsilon, delta)
    high = gaussian_mu(epsilon, delta) ** 2 / 2 * (1 + 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def release_mu(epsilon: float, delta: float, *, hardened: bool = False) -> float:
    """Return what all Gaussian releases of a fit may cost together, in units in which squares add up.

    μ(ε, δ) exactly (mechanisms.md 1.1, 1.2); for discrete Gaussian noise √(2ρ), ρ(ε, δ) by 1.3, which is up to a tenth less.
    """
    if hardened and math.isfinite(epsilon):
        return math.sqrt(2.0 * zcdp_rho(epsilon, delta))
    return gaussian_mu(epsilon, delta)


def zcdp_rho_classic(epsilon: float, delta: float) -> float:
    """Return ρ = (√(ln(1/δ) + ε) − √ln(1/δ))², the inverse of ``zcdp_epsilon_classic`` (mechanisms.md 1.3, H-8)."""
    check_privacy_parameters(epsilon, delta)
    log_term = math.log(1 / delta)
    return (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2
