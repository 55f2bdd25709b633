"""Gaussian and zero-concentrated privacy in closed form, rounded to the safe side.

Gaussian noise by Balle and Wang 2018; zCDP by Canonne, Kamath and Steinke 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.special import erfcx, ndtr

from pairwise.accounting.parameters import check_privacy_parameters
from pairwise.errors import InvalidParameterError

# Results of floating-point searches are rounded to the safe side by this relative amount.
_SAFETY = 1e-12


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact δ(ε) of a Gaussian mechanism with μ = Δ/σ (Balle & Wang 2018).

    δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), in the scaled form in which e^ε never appears, so that it neither overflows nor
    cancels for large ε.
    """
    if math.isnan(mu) or mu < 0 or math.isnan(epsilon):
        raise InvalidParameterError(
            f"mu must be >= 0 and epsilon a number; found {mu!r} and {epsilon!r}."
        )
    if mu == 0 or epsilon == math.inf:
        return max(0.0, -math.expm1(epsilon)) if mu == 0 else 0.0
    if mu == math.inf:
        return 1.0
    near = epsilon / mu - mu / 2
    far = epsilon / mu + mu / 2
    root = math.sqrt(2.0)
    # x₂² − x₁² = 2ε, so e^ε φ(x₂) = φ(x₁).
    if near < 0:
        if far < 0:
            return float(ndtr(-near) - math.exp(epsilon) * ndtr(-far))
        return float(ndtr(-near) - 0.5 * math.exp(-near * near / 2) * erfcx(far / root))
    return float(0.5 * math.exp(-near * near / 2) * (erfcx(near / root) - erfcx(far / root)))


def _turn(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbouring floats between which what holds of small positive numbers ceases to hold."""
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ = Δ/σ for which Gaussian noise is (ε, δ)-DP; infinite for ε = infinity.

    Found by bisection of ``gaussian_delta`` and rounded down, so that δ(ε) <= δ holds for the value returned.
    """
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    low, _ = _turn(lambda mu: gaussian_delta(epsilon, mu) <= delta)
    return low * (1 - _SAFETY)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε >= 0 with δ(ε) <= delta for a Gaussian of μ = Δ/σ, rounded up."""
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameterError(f"delta must be in [0, 1); found {delta!r}.")
    if mu == 0 or (delta > 0 and gaussian_delta(0.0, mu) <= delta):
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    _, high = _turn(lambda epsilon: gaussian_delta(epsilon, mu) > delta)
    return high * (1 + _SAFETY)


# -- zCDP


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
    classic = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return max(0.0, min(epsilon(_zcdp_order(epsilon)), classic)) * (1 + _SAFETY)


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
    # The classic conversion, turned round: (√(ln(1/δ) + ε) − √ln(1/δ))².
    log_term = math.log(1 / delta)
    low = (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2
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
