"""Planned releases: sensitivity, noise and privacy event of one release as one object, so that they cannot drift apart.

Every private number of this package leaves through one of them; which values are released is decided by the algorithms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import _as_finite, gaussian
from pairwise.noise.discrete import exponential_choice
from pairwise.noise.lattice import (
    LatticePlan,
    lattice_gaussian,
    lattice_gaussian_plan,
    lattice_laplace,
    lattice_laplace_plan,
)
from pairwise.noise.randomness import Randomness

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "ChoicePlan",
    "GaussianPlan",
    "LaplacePlan",
    "PlannedRelease",
    "plan_choice",
    "plan_gaussian",
    "plan_laplace",
]

# A smaller number may be what is left of a positive one that lost its digits, or all of itself, to underflow.
_LEAST_SENSITIVITY = 1e-280


# --------------------------------------------------------------------------------------------------------------------
# One release: what it assumes, what it draws and what it costs


class PlannedRelease(ABC):
    """A release decided in advance: the sensitivity it assumes, the noise it draws and the event that is charged for it.

    All noise of a sound estimator is drawn by ``release`` of such a plan, and its event is that of the same plan, so noise
    and accounting cannot drift apart. Whether the sensitivity is true is up to whoever clips; the tests watch ``release``
    of every estimator and search for neighbours that move a value further.
    """

    sensitivity: float

    @property
    @abstractmethod
    def norm(self) -> Literal["l1", "l2", "largest", "operator"]:
        """The norm in which neighbouring values are at most ``sensitivity`` apart."""

    @abstractmethod
    def event(self) -> DpEvent:
        """Return what the release costs, computed from what is drawn."""

    @abstractmethod
    def _draw(
        self, value: NDArray[np.float64], randomness: Randomness, rows: bool
    ) -> NDArray[np.float64]:
        """Return the noisy value."""

    def release(
        self, value: ArrayLike, randomness: Randomness, *, rows: bool = False
    ) -> NDArray[np.float64]:
        """Return ``value`` with its noise.

        Parameters
        ----------
        value : array-like
            Neighbouring values are at most ``sensitivity`` apart in ``norm``.
        randomness : Randomness
        rows : bool, default=False
            Each row of a matrix is a release of its own, of another individual's data.
        """
        return self._draw(_as_finite(value), randomness, rows)


def _lattice_of_rows(plan: LatticePlan, value: NDArray[np.float64], rows: bool) -> LatticePlan:
    """Return the plan for all rows at once: their noise is independent and the same."""
    if not rows:
        return plan
    if value.ndim != 2 or value.shape[1] != plan.dimension:
        raise InvalidParameterError(
            f"rows must have {plan.dimension} coordinates; found shape {value.shape}."
        )
    return replace(plan, dimension=value.size)


@dataclass(frozen=True)
class GaussianPlan(PlannedRelease):
    """A Gaussian release, in floating point or exactly on a grid.

    Attributes
    ----------
    sensitivity : float
        l2 sensitivity Δ of the query in real arithmetic.
    sigma : float
        Standard deviation of the noise per coordinate; 0 for no noise.
    lattice : LatticePlan or None
        The grid of exact noise.
    """

    sensitivity: float
    sigma: float
    lattice: LatticePlan | None = None

    @property
    def norm(self) -> Literal["l2"]:
        """The norm of ``sensitivity``."""
        return "l2"

    def event(self, steps: int = 1) -> DpEvent:
        """Return the event of that many such releases."""
        from dp_accounting import SelfComposedDpEvent

        from pairwise.accounting.events import gaussian_event

        if self.lattice is None:
            return gaussian_event(self.sigma / self.sensitivity if self.sigma else 0.0, steps)
        once = self.lattice.event
        return once if steps == 1 else SelfComposedDpEvent(once, int(steps))

    def _draw(
        self, value: NDArray[np.float64], randomness: Randomness, rows: bool
    ) -> NDArray[np.float64]:
        if self.lattice is None:
            return gaussian(value, self.sigma, randomness)
        return lattice_gaussian(value, _lattice_of_rows(self.lattice, value, rows), randomness)


def plan_gaussian(
    sensitivity: float, mu: float, dimension: int, *, hardened: bool = False
) -> GaussianPlan:
    """Return the Gaussian release of a query at a cost of ``mu``.

    Parameters
    ----------
    sensitivity : float
        l2 sensitivity Δ, > 0.
    mu : float
        The cost: σ = Δ/μ in floating point. On the grid ρ = μ²/2 and σ = (Δ + g√p)/μ, at most 0.1 % more; take μ
        from ``accounting.release_mu``, which knows both. Infinity: no noise.
    dimension : int
        p, the number of released coordinates.
    hardened : bool, default=False
        Draw exact noise on a grid (mechanisms.md 2.2).
    """
    if not mu > 0:
        raise InvalidParameterError(f"mu must be > 0; found {mu!r}.")
    if math.isfinite(mu) and not _LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise InvalidParameterError(
            f"the sensitivity must be finite and at least {_LEAST_SENSITIVITY:g}; found {sensitivity!r}, for which floats "
            "hold no noise. Use a larger clip, rate or data_norm, or a finite one."
        )
    if not hardened or not math.isfinite(mu):
        return GaussianPlan(sensitivity, sensitivity / mu)
    lattice = lattice_gaussian_plan(sensitivity, dimension, rho=mu * mu / 2.0)
    return GaussianPlan(sensitivity, lattice.scale, lattice)


@dataclass(frozen=True)
class LaplacePlan(PlannedRelease):
    """A release with exact discrete Laplace noise, once or in several passes over disjoint batches.

    Attributes
    ----------
    sensitivity : float
        l1 sensitivity Δ₁ of the query in real arithmetic, or of all batches of one pass together.
    epsilon : float
        Pure epsilon of all passes together; infinity for no noise.
    scale : float
        b per coordinate; 0 for no noise.
    lattice : LatticePlan or None
        The grid; None without noise.
    """

    sensitivity: float
    epsilon: float
    scale: float
    lattice: LatticePlan | None

    @property
    def norm(self) -> Literal["l1"]:
        """The norm of ``sensitivity``."""
        return "l1"

    def event(self) -> DpEvent:
        """Return the event of all passes together."""
        from pairwise.accounting.events import gaussian_event, pure_event

        return pure_event(self.epsilon) if self.lattice is not None else gaussian_event(0.0)

    def _draw(
        self, value: NDArray[np.float64], randomness: Randomness, rows: bool
    ) -> NDArray[np.float64]:
        if self.lattice is None:
            return value.copy()
        return lattice_laplace(value, _lattice_of_rows(self.lattice, value, rows), randomness)


def plan_laplace(
    sensitivity: float, epsilon: float, dimension: int, *, passes: int = 1, touched: int = 1
) -> LaplacePlan:
    """Return the exact Laplace release of a query.

    Parameters
    ----------
    sensitivity : float
        l1 sensitivity Δ₁, > 0, of the batches of one pass together.
    epsilon : float
        Pure epsilon of all passes together; infinity: no noise.
    dimension : int
        p, the number of coordinates of one release.
    passes : int, default=1
        How often every batch is released; each pass costs epsilon/passes.
    touched : int, default=1
        How many disjoint batches of one pass the change of a neighbour may touch. Rounding to the grid costs its
        surcharge in each of them, the change itself only once (mechanisms.md DPP-8).
    """
    if not math.isfinite(epsilon):
        return LaplacePlan(sensitivity, epsilon, 0.0, None)
    share = epsilon / passes
    lattice = lattice_laplace_plan(sensitivity, dimension, epsilon=share)
    if touched > 1:
        paid = sensitivity + lattice.surcharge
        spread = paid / (sensitivity + touched * lattice.surcharge)
        lattice = lattice_laplace_plan(sensitivity, dimension, epsilon=share * spread)
    return LaplacePlan(sensitivity, epsilon, lattice.scale, lattice)


@dataclass(frozen=True)
class ChoicePlan(PlannedRelease):
    """A choice among public candidates by the exponential mechanism: P(k) ∝ exp(r uₖ), u whole numbers that count.

    Replacing a record moves every u by at most Δ, so the privacy loss L of all candidates lies in one interval of length
    2rΔ: r(uₖ − u'ₖ) does, and the ratio of the normalisers is the same for all k. With f(α) = ln E e^(αL) under the
    neighbour, f(0) = f(1) = 0 and f'' is a variance of such numbers, at most r²Δ². So f(α) <= α(α − 1) r²Δ²/2, which is
    zCDP of ρ = r²Δ²/2, as of a Gaussian of μ = rΔ (bounded range: Cesar and Rogers 2021); the pure epsilon is 2rΔ.

    Attributes
    ----------
    sensitivity : float
        Δ, of each count.
    rate : float
        r; infinity takes the best.
    mu : float
        What the choice costs, beside Gaussian releases: √(2ρ), or that of the Gaussian that dominates 2rΔ.
    zcdp : bool
        Whether ``mu`` is √(2ρ), which Gaussians accounted exactly cannot stand beside.
    """

    sensitivity: float
    rate: float
    mu: float
    zcdp: bool

    @property
    def norm(self) -> Literal["largest"]:
        """The norm of ``sensitivity``."""
        return "largest"

    def event(self) -> DpEvent:
        """Return what the choice costs."""
        from dp_accounting import ZCDpEvent

        from pairwise.accounting.events import gaussian_event

        if not math.isfinite(self.rate):
            return gaussian_event(0.0)
        return ZCDpEvent(self.mu**2 / 2.0) if self.zcdp else gaussian_event(1.0 / self.mu)

    def _draw(
        self, value: NDArray[np.float64], randomness: Randomness, rows: bool
    ) -> NDArray[np.float64]:
        if not math.isfinite(self.rate):
            return np.array(float(value.argmax()))
        return np.array(float(exponential_choice(value.astype(np.int64), self.rate, randomness)))


def plan_choice(sensitivity: float, mu: float, *, hardened: bool = False) -> ChoicePlan:
    """Return the choice by counts of sensitivity Δ at a cost of ``mu``.

    Parameters
    ----------
    sensitivity : float
        Δ, > 0, of each count.
    mu : float
        The cost. Beside exact noise, which is accounted by zCDP, r = μ/Δ. Beside Gaussian noise accounted
        exactly a pure epsilon of 2rΔ = ln(Φ(μ/2)/Φ(-μ/2)), since what is ε-DP comes out of randomised response, and
        that out of a Gaussian of this μ (Dong, Roth and Su 2022). Infinity: the best candidate.
    hardened : bool, default=False
        Accounted beside exact noise.
    """
    if not mu > 0:
        raise InvalidParameterError(f"mu must be > 0; found {mu!r}.")
    if not math.isfinite(mu):
        return ChoicePlan(sensitivity, math.inf, math.inf, hardened)
    if hardened:
        return ChoicePlan(sensitivity, mu / sensitivity, mu, True)
    epsilon = float(log_ndtr(mu / 2.0) - log_ndtr(-mu / 2.0))
    return ChoicePlan(sensitivity, epsilon / (2.0 * sensitivity), mu, False)
