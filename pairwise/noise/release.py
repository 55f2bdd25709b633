"""Planned releases: sensitivity, noise and privacy event of one release as one object.

Every private number of this package leaves through ``PlannedRelease.release``. Noise is exact: values are rounded to a grid
of a power of two, integer noise is added, and the rounding is paid for in the sensitivity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidParameterError, check_whole
from pairwise.noise.discrete import discrete_gaussian, exponential_choice
from pairwise.noise.randomness import Randomness

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Array = NDArray[np.float64]
NoiseSteps = NDArray[np.int64]  # noise in steps of a plan's grid, whole numbers

_GRID_BITS = 10  # a grid is at most 2^-10 of what it is compared with

# A smaller sensitivity may be what is left of a larger one that lost its digits to underflow.
_LEAST_SENSITIVITY = 1e-280


class PlannedRelease(ABC):
    """A release decided in advance: its assumed sensitivity, its noise and the event that is charged for it.

    Whether the sensitivity is true is up to whoever clips. The tests watch ``release`` of every estimator and search for
    neighbours that move a value further.
    """

    sensitivity: float

    @abstractmethod
    def event(self) -> DpEvent:
        """Return what the release costs, computed from what is drawn."""

    @abstractmethod
    def _draw(self, value: Array, randomness: Randomness, noise_steps: NoiseSteps | None) -> Array:
        """Return the noisy value, or the index that was chosen."""

    def release(
        self, value: ArrayLike, randomness: Randomness, noise_steps: NoiseSteps | None = None
    ) -> Array:
        """Return a value with its noise; a ``ChoicePlan`` takes counts and returns the index that it chose.

        ``noise_steps`` were drawn before, for this release alone. Neighbouring values are at most ``sensitivity`` apart.
        """
        array = np.asarray(value, dtype=np.float64)
        if not np.all(np.isfinite(array)):
            raise InvalidParameterError(
                "a value to release must be finite; found NaN or infinity. Clip records first."
            )
        return self._draw(array, randomness, noise_steps)


@dataclass(frozen=True)
class GaussianPlan(PlannedRelease):
    """A Gaussian release, exactly on a grid."""

    sensitivity: float  # l2 sensitivity of the query in real arithmetic
    sigma: float  # deviation of the noise per coordinate; 0 for no noise
    dimension: int = 1  # number of released coordinates
    grid: float = 0.0  # its step, a power of two; 0 without noise
    rho: float = math.inf  # zCDP parameter of the exact release

    def event(self, steps: int = 1) -> DpEvent:
        """Return the event of that many such releases."""
        from pairwise.accounting.events import dp_event, gaussian_event

        if not self.sigma:
            return gaussian_event(0.0)
        once = dp_event.ZCDpEvent(self.rho)
        return once if steps == 1 else dp_event.SelfComposedDpEvent(once, int(steps))

    def draw_steps(self, releases: int, randomness: Randomness) -> NoiseSteps:
        """Return the noise of many exact releases, one row each, in steps of the grid: quicker than one after the other."""
        variance = (Fraction(self.sigma) / Fraction(self.grid)) ** 2
        return discrete_gaussian(variance, (releases, self.dimension), randomness)

    def _draw(self, value: Array, randomness: Randomness, noise_steps: NoiseSteps | None) -> Array:
        if self.sigma == 0:
            return value.copy()
        if value.size != self.dimension:
            raise InvalidParameterError(
                f"the plan is for {self.dimension} coordinates; found {value.size}. Plan again for this shape."
            )
        # Division by a power of two is exact, so the only rounding is the one that the sensitivity pays for.
        steps = np.round(value / self.grid)
        if np.any(np.abs(steps) > 2.0**51):
            raise InvalidParameterError(
                "a value is more than 2^51 grid steps from zero, where float64 no longer holds every step. Clip records, "
                "or release fewer coordinates at once."
            )
        noise = self.draw_steps(1, randomness)[0] if noise_steps is None else noise_steps
        return (steps + noise.reshape(steps.shape)) * self.grid


def plan_gaussian(sensitivity: float, mu: float, dimension: int) -> GaussianPlan:
    """Return the exact Gaussian release of p = ``dimension`` numbers at a cost of ``mu``, rho = mu^2/2.

    The grid g is at most D/(2^10 sqrt(p)) for an l2 sensitivity D, so rounding adds at most 2^-10 D and sigma = (D + g
    sqrt(p))/mu. An infinite ``mu`` adds no noise.
    """
    if not mu > 0:
        raise InvalidParameterError(f"mu must be > 0; found {mu!r}.")
    if math.isinf(mu):
        return GaussianPlan(sensitivity, 0.0, dimension)
    _, total = _rounded(sensitivity, dimension)
    return exact_gaussian(sensitivity, total / mu * (1.0 + 1e-15), dimension, rho=mu * mu / 2.0)


def _rounded(sensitivity: float, dimension: int) -> tuple[float, float]:
    """Return the grid and the sensitivity after rounding to it."""
    if not _LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise InvalidParameterError(
            f"the sensitivity must be finite and at least {_LEAST_SENSITIVITY:g}; found {sensitivity!r}, for which floats "
            "hold no noise. Use a larger rate or data_norm, or a finite one."
        )
    check_whole("dimension", dimension)
    spread = math.sqrt(dimension)
    grid = 2.0 ** math.floor(math.log2(sensitivity / (2**_GRID_BITS * spread)))
    # Each coordinate rounds by at most half a step in each of two data sets.
    return grid, (sensitivity + grid * spread) * (1.0 + 1e-15)


def exact_gaussian(
    sensitivity: float, sigma: float, dimension: int, *, rho: float = 0.0
) -> GaussianPlan:
    """Return the exact Gaussian release with noise ``sigma``; its rho follows, or is ``rho`` where that is larger."""
    if not 0 < sigma < math.inf:
        raise InvalidParameterError(f"sigma must be a positive finite number; found {sigma!r}.")
    grid, total = _rounded(sensitivity, dimension)
    true = total * total / (2.0 * sigma * sigma) * (1.0 + 1e-15)
    return GaussianPlan(sensitivity, sigma, dimension, grid, max(true, rho))


@dataclass(frozen=True)
class ChoicePlan(PlannedRelease):
    """A choice among public candidates by the exponential mechanism: P(k) ~ exp(r u_k), u whole numbers that count.

    Replacing a record moves every u by at most D, so the privacy loss L of all candidates lies in one interval of length
    2rD: r(u_k - u'_k) does, and the ratio of the normalisers is the same for all k. With f(a) = ln E e^(aL) under the
    neighbour, f(0) = f(1) = 0 and f'' is a variance of such numbers, at most r^2 D^2. So f(a) <= a(a - 1) r^2 D^2/2, which
    is zCDP of rho = r^2 D^2/2, as of a Gaussian of mu = rD (bounded range: Cesar and Rogers 2021).
    """

    sensitivity: float  # D, of each count
    rate: float  # r; infinity takes the best

    def event(self) -> DpEvent:
        """Return what the choice costs."""
        from pairwise.accounting.events import dp_event, gaussian_event

        if math.isinf(self.rate):
            return gaussian_event(0.0)
        return dp_event.ZCDpEvent((self.rate * self.sensitivity) ** 2 / 2.0)

    def _draw(self, value: Array, randomness: Randomness, noise_steps: NoiseSteps | None) -> Array:
        if math.isinf(self.rate):
            return np.array(float(value.argmax()))
        return np.array(float(exponential_choice(value.astype(np.int64), self.rate, randomness)))


def plan_choice(sensitivity: float, mu: float) -> ChoicePlan:
    """Return the choice by counts of a given sensitivity at a cost of ``mu``; infinity takes the best candidate."""
    if not mu > 0:
        raise InvalidParameterError(f"mu must be > 0; found {mu!r}.")
    return ChoicePlan(sensitivity, mu / sensitivity)
