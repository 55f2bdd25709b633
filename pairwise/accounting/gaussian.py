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
from textpriv.statement import epsilon_of_zcdp, zcdp_order

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
    high = gaussian_mu(epsilon, delta) ** 2 / 2 * (1 + 1e-9)
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
