"""Exact noise for real vectors: values rounded to a lattice, integer noise added, the rounding paid for in the sensitivity.

Plans say which lattice and what scale; what a release costs is in the accounting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import _GRID_BITS, _as_finite, check_positive
from pairwise.noise.discrete import discrete_gaussian, discrete_laplace
from pairwise.noise.randomness import Randomness

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "LatticePlan",
    "lattice_gaussian",
    "lattice_gaussian_plan",
    "lattice_laplace",
    "lattice_laplace_plan",
]


@dataclass(frozen=True)
class LatticePlan:
    """A hardened release decided in advance: everything but the data and the draw.

    Attributes
    ----------
    grid : float
        g, a power of two.
    scale : float
        σ (Gaussian) or b (Laplace) of the noise in the units of the data.
    sensitivity : float
        Sensitivity of the rounded query: Δ + g√p (l2) or Δ₁ + gp (l1); each coordinate rounds by at most g/2 in each
        of two data sets.
    surcharge : float
        What rounding adds to the sensitivity.
    rho : float or None
        zCDP parameter of the release (Gaussian).
    epsilon : float or None
        Pure epsilon of the release (Laplace).
    dimension : int
        p, the number of coordinates.
    """

    grid: float
    scale: float
    sensitivity: float
    surcharge: float
    rho: float | None
    epsilon: float | None
    dimension: int
    noise: str

    @property
    def event(self) -> DpEvent:
        """The release as a privacy event, to be charged before anything is drawn."""
        if self.rho is not None:
            from dp_accounting import ZCDpEvent

            return ZCDpEvent(self.rho)
        from pairwise.accounting.events import pure_event

        assert self.epsilon is not None
        return pure_event(self.epsilon)


def _lattice_grid(sensitivity: float, spread: float) -> float:
    """Return the largest power of two at most sensitivity/(2^10 · spread)."""
    return float(2.0 ** math.floor(math.log2(sensitivity / (2**_GRID_BITS * spread))))


def lattice_gaussian_plan(
    sensitivity: float, dimension: int, *, rho: float | None = None, sigma: float | None = None
) -> LatticePlan:
    """Plan a hardened Gaussian release: first the grid, g <= Δ/(2^10 √p), then σ (mechanisms.md 2.2).

    Parameters
    ----------
    sensitivity : float
        l2 sensitivity Δ of the query in real arithmetic, > 0.
    dimension : int
        p, the number of released coordinates.
    rho : float
        Target zCDP parameter; σ = (Δ + g√p)/√(2ρ). Give this or ``sigma``. For (ε, δ) take it from
        ``accounting.zcdp_rho(epsilon, delta)``.
    sigma : float
        Noise standard deviation; ρ follows.
    """
    check_positive(sensitivity=sensitivity)
    if dimension < 1:
        raise InvalidParameterError(f"dimension must be at least 1; found {dimension}.")
    if (rho is None) == (sigma is None):
        raise InvalidParameterError("give exactly one of rho and sigma.")
    spread = math.sqrt(dimension)
    grid = _lattice_grid(sensitivity, spread)
    total = (sensitivity + grid * spread) * (1.0 + 1e-15)
    if sigma is None:
        assert rho is not None
        check_positive(rho=rho)
        sigma = total / math.sqrt(2.0 * rho) * (1.0 + 1e-15)
    check_positive(sigma=sigma)
    rho_true = total * total / (2.0 * sigma * sigma) * (1.0 + 1e-15)
    if rho is not None:
        rho_true = max(rho_true, rho)
    return LatticePlan(
        grid=grid,
        scale=sigma,
        sensitivity=total,
        surcharge=grid * spread,
        rho=rho_true,
        epsilon=None,
        dimension=dimension,
        noise="discrete Gaussian",
    )


def lattice_laplace_plan(sensitivity: float, dimension: int, *, epsilon: float) -> LatticePlan:
    """Plan a hardened Laplace release with a pure guarantee: g <= Δ₁/(2^10 p), b >= (Δ₁ + gp)/ε (mechanisms.md 2.2).

    Parameters
    ----------
    sensitivity : float
        l1 sensitivity Δ₁ of the query in real arithmetic, > 0.
    dimension : int
        p, the number of released coordinates.
    epsilon : float
        Target pure epsilon. The scale b/g is rounded up to a whole number, which gives slightly more noise than needed.
    """
    check_positive(sensitivity=sensitivity, epsilon=epsilon)
    if dimension < 1:
        raise InvalidParameterError(f"dimension must be at least 1; found {dimension}.")
    grid = _lattice_grid(sensitivity, float(dimension))
    total = (sensitivity + grid * dimension) * (1.0 + 1e-15)
    steps = math.ceil(total / (epsilon * grid) * (1.0 + 1e-15))
    if steps > 2**40:
        raise InvalidParameterError(
            f"the scale is {steps} grid steps, more than 2^40; use a larger epsilon or fewer coordinates."
        )
    return LatticePlan(
        grid=grid,
        scale=steps * grid,
        sensitivity=total,
        surcharge=grid * dimension,
        rho=None,
        epsilon=epsilon,
        dimension=dimension,
        noise="discrete Laplace",
    )


def _to_lattice(value: ArrayLike, plan: LatticePlan, noise: str) -> NDArray[np.float64]:
    array = _as_finite(value)
    if plan.noise != noise:
        raise InvalidParameterError(f"the plan is for {plan.noise} noise; found a {noise} release.")
    if array.size != plan.dimension:
        raise InvalidParameterError(
            f"the plan is for {plan.dimension} coordinates; found {array.size}. Plan again for this shape."
        )
    # Division by a power of two is exact, so the only rounding is the one the surcharge pays for.
    steps = np.round(array / plan.grid)
    if np.any(np.abs(steps) > 2.0**51):
        raise InvalidParameterError(
            "a value is more than 2^51 grid steps from zero, where float64 no longer holds every step. Clip records, "
            "or release fewer coordinates at once."
        )
    return steps


def lattice_gaussian(
    value: ArrayLike, plan: LatticePlan, randomness: Randomness
) -> NDArray[np.float64]:
    """Return g·(round(value/g) + N), N exact discrete Gaussian with variance (σ/g)²; shape of ``value``.

    Guarantee: ``plan.rho``-zCDP, proved for what is computed here; account with ``plan.event`` (mechanisms.md 2.2).
    """
    steps = _to_lattice(value, plan, "discrete Gaussian")
    variance = (Fraction(plan.scale) / Fraction(plan.grid)) ** 2
    return (steps + discrete_gaussian(variance, steps.shape, randomness)) * plan.grid


def lattice_laplace(
    value: ArrayLike, plan: LatticePlan, randomness: Randomness
) -> NDArray[np.float64]:
    """Return g·(round(value/g) + N), N exact discrete Laplace with scale b/g; shape of ``value``.

    Guarantee: (``plan.epsilon``, 0), proved for what is computed here (mechanisms.md 2.2).
    """
    steps = _to_lattice(value, plan, "discrete Laplace")
    scale = round(plan.scale / plan.grid)
    return (steps + discrete_laplace(scale, steps.shape, randomness)) * plan.grid
