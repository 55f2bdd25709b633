"""Continuous noise in floating point: Gaussian, Laplace, staircase and Duchi, rounded to a power-of-two grid.

That hides low-order bits in practice and is proved in real arithmetic only; exact noise is in ``noise.lattice``.
"""

from __future__ import annotations

import math
import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness

__all__ = [
    "check_flag",
    "check_number",
    "check_positive",
    "check_whole",
    "duchi",
    "duchi_scale",
    "gaussian",
    "laplace",
    "staircase",
    "staircase_l1",
    "staircase_start",
]

_GRID_BITS = 10  # a grid at most 2^-10 of what it is compared with (mechanisms.md 2.2)


# --------------------------------------------------------------------------------------------------------------------
# Cheap path: float64 noise, output rounded to a grid.


def _grid_below(scale: float) -> float:
    """Return the largest power of two at most ``scale`` / 2^10."""
    return 2.0 ** (math.floor(math.log2(scale)) - _GRID_BITS)


def _release(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    grid = _grid_below(scale)
    return np.asarray(np.round(values / grid) * grid)


def _as_finite(value: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise InvalidParameterError(
            "value must be finite; found NaN or infinity. Clip records first."
        )
    return array


def check_number(name: str, value: object) -> None:
    """Refuse a setting that is no real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameterError(f"{name} must be a number; found {type(value).__name__}.")


def check_flag(name: str, value: object) -> None:
    """Refuse a setting that is neither True nor False: "no" and NaN would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameterError(f"{name} must be True or False; found {type(value).__name__}.")


def check_positive(**settings: float) -> None:
    """Refuse a setting that is no positive finite number, by its name."""
    for name, number in settings.items():
        check_number(name, number)
        if not (math.isfinite(number) and number > 0):
            raise InvalidParameterError(
                f"{name} must be a positive finite number; found {number!r}."
            )


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse a setting that is no whole number, or a smaller one than ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidParameterError(f"{name} must be a whole number >= {least}; found {value!r}.")


def gaussian(value: ArrayLike, sigma: float, randomness: Randomness) -> NDArray[np.float64]:
    """Return ``value`` plus independent N(0, sigma²) on every entry, rounded to a grid of at most sigma/2^10.

    Guarantee: with l2 sensitivity Δ, one Gaussian of μ = Δ/sigma (mechanisms.md 1.1), on the cheap path. ``sigma`` = 0
    returns the value itself, for the non-private reference.
    """
    array = _as_finite(value)
    if sigma == 0:
        return array.copy()
    check_positive(sigma=sigma)
    return _release(array + sigma * randomness.normal(array.shape), sigma)


def laplace(value: ArrayLike, scale: float, randomness: Randomness) -> NDArray[np.float64]:
    """Return ``value`` plus independent Laplace noise of the given scale, rounded to a grid of at most scale/2^10.

    Guarantee: (Δ₁/scale, 0) for l1 sensitivity Δ₁, on the cheap path; a shift s costs s/scale. Use ``lattice_laplace``
    where the pure guarantee must hold to the last bit.
    """
    array = _as_finite(value)
    if scale == 0:
        return array.copy()
    check_positive(scale=scale)
    noise = randomness.signs(array.shape) * randomness.exponential(array.shape)
    return _release(array + scale * noise, scale)


def staircase_start(sensitivity: float, epsilon: float) -> float:
    """Return m₀, the half width of the top step of the staircase density (mechanisms.md DPP-4).

    With height ε/2Δ on |x| <= m₀ and a factor e^-ε on each further step of width Δ, this m₀ gives mass 1.
    """
    check_positive(sensitivity=sensitivity, epsilon=epsilon)
    decay = math.exp(-epsilon)
    if epsilon < 1e-4:  # 1 - e^-ε - εe^-ε = ε²/2 - ε³/3 + ..., which cancels in floating point
        return sensitivity * (0.5 - epsilon / 12.0)
    rise = -math.expm1(-epsilon)
    return sensitivity * (rise - epsilon * decay) / (epsilon * rise)


def staircase(
    value: float, sensitivity: float, epsilon: float, randomness: Randomness
) -> NDArray[np.float64]:
    """Return a scalar plus staircase (SCDF) noise, variance 1.918 at ε = Δ = 1 against 2 of Laplace.

    Guarantee: (ε, 0) for a *scalar* of sensitivity Δ, and ε in full for every smaller shift too. Independent draws on
    the coordinates of a vector cost (number of coordinates)·ε, so a vector is refused: use ``staircase_l1``
    (mechanisms.md DPP-4).
    """
    array = _as_finite(value)
    if array.ndim != 0:
        raise InvalidParameterError(
            f"staircase noise is for one number; found an array of shape {array.shape}. Coordinate by coordinate it "
            "would cost epsilon for each of them. Use staircase_l1 for a vector."
        )
    start = staircase_start(sensitivity, epsilon)
    if float(randomness.uniform()) < epsilon * start / sensitivity:
        magnitude = start * float(randomness.uniform())
    else:
        step = math.floor(float(randomness.exponential()) / epsilon)
        magnitude = start + sensitivity * (step + float(randomness.uniform()))
    return _release(array + float(randomness.signs()) * magnitude, sensitivity / epsilon)


def staircase_l1(
    value: ArrayLike, sensitivity: float, epsilon: float, randomness: Randomness
) -> NDArray[np.float64]:
    """Return a vector plus noise whose density is a staircase in the l1 norm.

    Guarantee: (ε, 0) for l1 sensitivity Δ whatever the dimension, since ‖x‖₁ and ‖x + s‖₁ differ by at most Δ, hence
    by at most one step (mechanisms.md DPP-4).

    Notes
    -----
    A density with decreasing steps is a mixture of uniform laws on l1 balls: radius r_j = m₀ + jΔ with weight
    e^-jε r_j^p. The index j is drawn from that law by inverse distribution function, cut where the rest is below 2^-100.
    """
    array = _as_finite(value)
    size = array.size
    if size == 0:
        raise InvalidParameterError("value must have at least one entry; found an empty array.")
    start = staircase_start(sensitivity, epsilon)
    # Beyond its mode near p/ε the log-weight falls at least by ε/2 a step from twice the mode on.
    last = math.ceil(2 * size / epsilon + 2 * 100 * math.log(2) / epsilon) + 2
    if last > 10**7:
        raise InvalidParameterError(
            f"{size} coordinates at epsilon {epsilon:g} need {last} steps, more than 10^7. Use laplace."
        )
    steps = np.arange(last + 1, dtype=np.float64)
    radii = start + sensitivity * steps
    log_weight = size * np.log(radii / sensitivity) - epsilon * steps
    cumulative = np.cumsum(np.exp(log_weight - log_weight.max()))
    index = int(np.searchsorted(cumulative, float(randomness.uniform()) * cumulative[-1]))
    radius = radii[min(index, last)] * float(randomness.tail()) ** (1.0 / size)
    shares = randomness.exponential(size)
    noise = radius * randomness.signs(size) * shares / shares.sum()
    return _release(array + noise.reshape(array.shape), sensitivity / epsilon)


def _positive_corners(dimension: int) -> int:
    """Return C_d, how many t in {±1}^d have t·v > 0 for a corner v."""
    if dimension % 2:
        return int(2 ** (dimension - 1))
    return int(2 ** (dimension - 1)) - math.comb(dimension, dimension // 2) // 2


def duchi_scale(dimension: int, epsilon: float) -> float:
    """Return B, the factor that makes Duchi's mechanism unbiased (mechanisms.md DPP-5)."""
    check_positive(epsilon=epsilon)
    if dimension < 1:
        raise InvalidParameterError(f"dimension must be at least 1; found {dimension}.")
    odds = math.expm1(epsilon)
    choices = math.comb(dimension - 1, dimension // 2)
    # Two quotients of whole numbers: each is rounded once, also where numerator and denominator exceed a float.
    return 2**dimension / choices / odds + _positive_corners(dimension) / choices


def duchi(value: ArrayLike, epsilon: float, randomness: Randomness) -> NDArray[np.float64]:
    """Return Duchi's unbiased release of a vector of [-1, 1]^d: one of the 2^d corners times B (mechanisms.md DPP-5).

    Guarantee: (ε, 0), log-ratio exactly ε, between *any two* vectors of the cube, in any dimension (the published form
    with two closed half-spaces is wrong for even d). A vector clipped to h enters as x/h and comes back times h.

    Raises
    ------
    InvalidParameterError
        If an entry lies outside [-1, 1].
    """
    array = _as_finite(value)
    if array.size == 0 or np.any(np.abs(array) > 1.0):
        raise InvalidParameterError(
            "entries must lie in [-1, 1] and there must be at least one. Clip to h and divide by h first."
        )
    size = array.size
    scale = duchi_scale(size, epsilon)
    corner = np.where(randomness.uniform(size) < (1.0 + array.ravel()) / 2.0, 1.0, -1.0)
    share = _positive_corners(size) / 2**size
    # e^ε C/((e^ε - 1) C + 2^d), written so that a large ε does not overflow.
    chance = share / (share + math.exp(-epsilon) * (1.0 - share))
    positive = float(randomness.uniform()) < chance
    while True:
        output = randomness.signs(size)
        if (float(output @ corner) > 0) == positive:
            return (scale * output).reshape(array.shape)
