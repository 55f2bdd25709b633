"""Randomness and noise: a cryptographic source, and Gaussian, Laplace, staircase, Duchi and exact discrete noise.

Every sampler takes the source as an argument and states its guarantee for a given sensitivity; which sensitivity a release
has, and what several of them cost together, is decided elsewhere (the algorithms and ``pairwise.accounting``). Sound
algorithms draw through a ``PlannedRelease`` only, which holds sensitivity, noise and event together.

Two numerical paths (mechanisms.md section 2). The *cheap* path (``gaussian``, ``laplace``, ``staircase``) adds float64 noise
and rounds the output to a power-of-two grid: that hides the low-order bits in practice and is not a proof. The *hardened*
path (``lattice_gaussian``, ``lattice_laplace``) rounds the input to the grid, adds exact integer noise and pays for the
rounding in its sensitivity: that is a proof. ``duchi`` returns corners of a cube, whose bits hold nothing else.
"""

from __future__ import annotations

import decimal
import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pairwise.errors import InvalidParameter

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "CHEAP_PATH_NOTE",
    "HARDENED_LARGE_NOTE",
    "HARDENED_NOTE",
    "GaussianPlan",
    "LaplacePlan",
    "LatticePlan",
    "PlannedRelease",
    "Randomness",
    "discrete_gaussian",
    "discrete_laplace",
    "duchi",
    "duchi_scale",
    "gaussian",
    "laplace",
    "lattice_gaussian",
    "lattice_gaussian_plan",
    "lattice_laplace",
    "lattice_laplace_plan",
    "plan_gaussian",
    "plan_laplace",
    "staircase",
    "staircase_l1",
    "staircase_start",
]

CHEAP_PATH_NOTE = (
    "noise was added in float64 and the output rounded to a grid; this hides floating-point artefacts in practice "
    "but is not a proof about them (mechanisms.md 2.2)"
)

HARDENED_NOTE = (
    "noise was drawn exactly on a grid and pays for the rounding to it, so the guarantee holds for the bits that were "
    "released; rounding inside the sums is covered by the slack of the clipping (mechanisms.md 2.2, 2.3)"
)

HARDENED_LARGE_NOTE = (
    "noise was drawn exactly on a grid and pays for the rounding to it; with so many records rounding inside the sums may "
    "exceed the slack of the clipping, so about the bits of the sums there is no proof (mechanisms.md 2.2, 2.3)"
)

_SEEDED_NOTE = (
    "random_state was given: the noise can be repeated by whoever knows or guesses it, so this release is for "
    "experiments and protects nobody"
)

Shape = int | tuple[int, ...]

_CHUNK = memoryview(bytes(1 << 16))
_GRID_BITS = 10  # a grid at most 2^-10 of what it is compared with (mechanisms.md 2.2)

# A smaller number may be what is left of a positive one that lost its digits, or all of itself, to underflow.
_LEAST_SENSITIVITY = 1e-280


class Randomness:
    """A source of uniform words and what is made of them, in float64.

    Parameters
    ----------
    random_state : None, int, numpy Generator, numpy RandomState or Randomness, default=None
        ``None``: ChaCha20 keyed from the operating system, the only setting that protects anybody. Anything else is
        repeatable, hence for experiments; ``secure`` is then False and ``note`` says so, for the privacy statement.
        A ``Randomness`` is shared, not copied.

    Notes
    -----
    A secure source cannot be pickled or copied, and starts afresh in a forked process: two processes that shared a
    stream would add the same noise twice, which cancels in a difference.
    """

    def __init__(self, random_state: Any = None) -> None:
        self._generator: np.random.Generator | None = None
        self._encryptor: Any = None
        self._pid = -1
        if random_state is None:
            self._rekey()
        elif isinstance(random_state, Randomness):
            self.__dict__ = random_state.__dict__
        elif isinstance(random_state, np.random.Generator):
            self._generator = random_state
        elif isinstance(random_state, np.random.RandomState):
            words = random_state.randint(0, 2**32, size=4, dtype=np.uint32)
            self._generator = np.random.Generator(np.random.PCG64([int(w) for w in words]))
        elif isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
            if random_state < 0:
                raise InvalidParameter(
                    f"random_state must be >= 0; found {int(random_state)}. Use None for private releases."
                )
            self._generator = np.random.Generator(np.random.PCG64(int(random_state)))
        else:
            raise InvalidParameter(
                "random_state must be None, a whole number, a numpy Generator or RandomState; "
                f"found {type(random_state).__name__}. Use None for private releases."
            )

    @property
    def secure(self) -> bool:
        """Whether the words come from a cryptographic stream keyed by the operating system."""
        return self._generator is None

    @property
    def note(self) -> str | None:
        """A line for the privacy statement when the source is repeatable, else None."""
        return None if self.secure else _SEEDED_NOTE

    def _rekey(self) -> None:
        cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None)
        self._encryptor = cipher.encryptor()
        self._pid = os.getpid()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform 64-bit words, shape (count,)."""
        if self._generator is not None:
            return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
        if self._pid != os.getpid():
            self._rekey()
        out = np.empty(count, dtype=np.uint64)
        view = out.data.cast("B") if count else memoryview(b"")
        for start in range(0, len(view), len(_CHUNK)):
            part = view[start : start + len(_CHUNK)]
            self._encryptor.update_into(_CHUNK[: len(part)], part)
        return out

    def uniform(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return uniforms of the open interval (0, 1) on the odd multiples of 2^-53, given shape."""
        size = int(np.prod(shape))
        # 52 bits: with 53, the largest number plus one half would round up to 1.
        raw = self.words(size) >> np.uint64(12)
        return ((raw.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def tail(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return uniforms of (0, 1) that resolve down to 2^-129, for inverse distribution functions with long tails."""
        size = int(np.prod(shape))
        raw = self.words(2 * size).astype(np.float64)
        fine = (raw[:size] + (raw[size:] + 0.5) * 2.0**-64) * 2.0**-64
        # 2^64 - 1 rounds up to 2^64: keep the interval open at 1.
        return np.minimum(fine, 1.0 - 2.0**-53).reshape(shape)

    def signs(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return independent fair signs ±1.0, given shape."""
        size = int(np.prod(shape))
        raw = self.words((size + 63) // 64)
        bits = np.unpackbits(raw.view(np.uint8))[:size]
        return (1.0 - 2.0 * bits.astype(np.float64)).reshape(shape)

    def normal(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return standard normals, given shape.

        A sign and the inverse distribution function of a uniform that resolves to 2^-130: the tails reach 13 standard
        deviations, where a plain 53-bit uniform stops at 8.2.
        """
        return self.signs(shape) * -ndtri(0.5 * self.tail(shape))

    def exponential(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return standard exponentials, given shape."""
        return -np.log(self.tail(shape))

    def integers(self, high: int, shape: Shape = ()) -> NDArray[np.int64]:
        """Return unbiased integers of [0, high), given shape; ``high`` at most 2^63."""
        if not 1 <= high <= 2**63:
            raise InvalidParameter(f"high must be in 1..2^63; found {high}.")
        size = int(np.prod(shape))
        limit = (2**64 // high) * high
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            raw = self.words(size - filled)
            if limit < 2**64:
                raw = raw[raw < np.uint64(limit)]
            good = (raw % np.uint64(high)).astype(np.int64)
            out[filled : filled + len(good)] = good
            filled += len(good)
        return out.reshape(shape)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return a uniformly random permutation of 0..n-1, shape (n,).

        Sorts 64-bit keys and draws again on a tie, so every order is equally likely.
        """
        while True:
            keys = self.words(n)
            order = np.argsort(keys, kind="stable")
            ranked = keys[order]
            if not np.any(ranked[1:] == ranked[:-1]):
                return order.astype(np.int64)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Randomness cannot be pickled or copied: a copy would repeat the same noise. "
            "Create a new one with Randomness() where it is used."
        )

    def __repr__(self) -> str:
        return "Randomness(<secret>)" if self.secure else "Randomness(<seeded, for experiments>)"


# --------------------------------------------------------------------------------------------------------------------
# Cheap path: float64 noise, output rounded to a grid.


def _grid_below(scale: float) -> float:
    """Return the largest power of two at most ``scale`` / 2^10."""
    return 2.0 ** (math.floor(math.log2(scale)) - _GRID_BITS)


def _release(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    grid = _grid_below(scale)
    return np.asarray(np.round(values / grid) * grid)


def _as_finite(value: ArrayLike, what: str = "value") -> NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise InvalidParameter(f"{what} must be finite; found NaN or infinity. Clip records first.")
    return array


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise InvalidParameter(f"{name} must be a positive finite number; found {number!r}.")


def gaussian(value: ArrayLike, sigma: float, randomness: Randomness) -> NDArray[np.float64]:
    """Return ``value`` plus independent N(0, sigma²) on every entry, rounded to a grid of at most sigma/2^10.

    Guarantee: with l2 sensitivity Δ, one Gaussian of μ = Δ/sigma (mechanisms.md 1.1), on the cheap path. ``sigma`` = 0
    returns the value itself, for the non-private reference.
    """
    array = _as_finite(value)
    if sigma == 0:
        return array.copy()
    _check_positive(sigma=sigma)
    return _release(array + sigma * randomness.normal(array.shape), sigma)


def laplace(value: ArrayLike, scale: float, randomness: Randomness) -> NDArray[np.float64]:
    """Return ``value`` plus independent Laplace noise of the given scale, rounded to a grid of at most scale/2^10.

    Guarantee: (Δ₁/scale, 0) for l1 sensitivity Δ₁, on the cheap path; a shift s costs s/scale. Use ``lattice_laplace``
    where the pure guarantee must hold to the last bit.
    """
    array = _as_finite(value)
    if scale == 0:
        return array.copy()
    _check_positive(scale=scale)
    noise = randomness.signs(array.shape) * randomness.exponential(array.shape)
    return _release(array + scale * noise, scale)


def staircase_start(sensitivity: float, epsilon: float) -> float:
    """Return m₀, the half width of the top step of the staircase density (mechanisms.md DPP-4).

    With height ε/2Δ on |x| <= m₀ and a factor e^-ε on each further step of width Δ, this m₀ gives mass 1.
    """
    _check_positive(sensitivity=sensitivity, epsilon=epsilon)
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
        raise InvalidParameter(
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
        raise InvalidParameter("value must have at least one entry; found an empty array.")
    start = staircase_start(sensitivity, epsilon)
    # Beyond its mode near p/ε the log-weight falls at least by ε/2 a step from twice the mode on.
    last = math.ceil(2 * size / epsilon + 2 * 100 * math.log(2) / epsilon) + 2
    if last > 10**7:
        raise InvalidParameter(
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
    _check_positive(epsilon=epsilon)
    if dimension < 1:
        raise InvalidParameter(f"dimension must be at least 1; found {dimension}.")
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
    InvalidParameter
        If an entry lies outside [-1, 1].
    """
    array = _as_finite(value)
    if array.size == 0 or np.any(np.abs(array) > 1.0):
        raise InvalidParameter(
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


# --------------------------------------------------------------------------------------------------------------------
# Hardened path: exact integer noise (Canonne, Kamath, Steinke 2020, algorithms 1 to 3) on a lattice.

# Half width of the band around a probability inside which a 64-bit uniform does not decide and exact arithmetic does.
# The floating-point errors of the probabilities compared here are below 2^-45.
_UNDECIDED = 2.0**-40


def _exp_below(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds of exp(-exponent), about ``digits`` digits apart."""
    with decimal.localcontext() as context:
        context.prec = digits
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        context.traps[decimal.Inexact] = False
        argument = decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)
        middle = Fraction((-argument).exp())
        # Division and exponential are correctly rounded; the argument's error is at most exponent · 10^-digits.
        slack = middle * (2 + 2 * (math.ceil(exponent) + 1)) * Fraction(1, 10 ** (digits - 1))
        return middle - slack, middle + slack


def _decide_exactly(word: int, exponent: Fraction, randomness: Randomness) -> bool:
    """Return whether a uniform number whose first 64 bits are ``word`` lies below exp(-exponent), with more bits."""
    bits = 64
    while True:
        low, high = _exp_below(exponent, 20 + bits // 2)
        if Fraction(word + 1, 2**bits) <= low:
            return True
        if Fraction(word, 2**bits) >= high:
            return False
        word = (word << 64) | int(randomness.words(1)[0])
        bits += 64


def _bernoulli_exp(
    numerators: NDArray[np.object_] | NDArray[np.int64],
    denominator: int,
    approximate: NDArray[np.float64],
    randomness: Randomness,
) -> NDArray[np.bool_]:
    """Return exact Bernoulli(exp(-numerator/denominator)) draws, shape of the input.

    ``approximate`` holds exp(-numerator/denominator) in float64. It decides all draws but those that fall within 2^-40 of
    it; those are decided in exact arithmetic with as many further bits as it takes, so the law is exact.
    """
    words = randomness.words(approximate.size)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    below = uniform < approximate
    for i in np.flatnonzero(np.abs(uniform - approximate) < _UNDECIDED):
        exponent = Fraction(int(numerators[i]), denominator)
        below[i] = _decide_exactly(int(words[i]), exponent, randomness)
    return np.asarray(below)


def _discrete_laplace_flat(scale: int, count: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return ``count`` exact draws of P(x) ∝ exp(-|x|/scale), scale a whole number (CKS algorithm 2 with s = 1)."""
    out = np.empty(count, dtype=np.int64)
    filled = 0
    inverse_e = math.exp(-1.0)
    while filled < count:
        size = max(64, int(1.7 * (count - filled)))
        remainder = randomness.integers(scale, size)
        keep = _bernoulli_exp(remainder, scale, np.exp(-remainder / scale), randomness)
        remainder = remainder[keep]
        whole = np.zeros(len(remainder), dtype=np.int64)
        alive = np.arange(len(remainder))
        while len(alive):
            ones = np.ones(len(alive), dtype=np.int64)
            more = _bernoulli_exp(ones, 1, np.full(len(alive), inverse_e), randomness)
            alive = alive[more]
            whole[alive] += 1
        magnitude = remainder + scale * whole
        sign = randomness.signs(len(magnitude)).astype(np.int64)
        # One of the two zeros must go, or zero would be drawn twice as often as it should.
        drawn = (sign * magnitude)[~((sign < 0) & (magnitude == 0))][: count - filled]
        out[filled : filled + len(drawn)] = drawn
        filled += len(drawn)
    return out


def discrete_laplace(scale: int, shape: Shape, randomness: Randomness) -> NDArray[np.int64]:
    """Return exact draws of the discrete Laplace law, P(x) ∝ exp(-|x|/scale) on the integers, given shape.

    Guarantee: (Δ₁/scale, 0) when added to integers of l1 sensitivity Δ₁.

    Parameters
    ----------
    scale : int
        A whole number from 1 to 2^40 (round a real scale up).
    """
    if isinstance(scale, bool) or int(scale) != scale or not 1 <= scale <= 2**40:
        raise InvalidParameter(f"scale must be a whole number in 1..2^40; found {scale!r}.")
    return _discrete_laplace_flat(int(scale), int(np.prod(shape)), randomness).reshape(shape)


def discrete_gaussian(
    sigma_squared: Fraction | int | float, shape: Shape, randomness: Randomness
) -> NDArray[np.int64]:
    """Return exact draws of the discrete Gaussian, P(x) ∝ exp(-x²/2σ²) on the integers, given shape.

    Guarantee: ρ-zCDP with ρ = Δ²/2σ² when added to integers of l2 sensitivity Δ, the same as for the continuous one
    (Canonne, Kamath, Steinke 2020, theorem 4; the sampler is their algorithm 3). Never pure.

    Parameters
    ----------
    sigma_squared : Fraction, int or float
        σ² > 0 as a rational number; a float is taken as the rational number it is.
    shape : int or tuple of int
        Shape of the result.
    randomness : Randomness
        The source.

    Notes
    -----
    Candidates are exact discrete Laplace draws of scale t = ⌊σ⌋ + 1, kept with probability
    exp(-(|y| - σ²/t)²/2σ²), each coin decided by 64 bits where these decide and by exact rational arithmetic otherwise.
    """
    variance = Fraction(sigma_squared)
    if not 0 < variance < 2**78:
        raise InvalidParameter(f"sigma_squared must be in (0, 2^78); found {float(variance)!r}.")
    top, bottom = variance.numerator, variance.denominator
    scale = math.isqrt(top // bottom) + 1
    count = int(np.prod(shape))
    out = np.empty(count, dtype=np.int64)
    filled = 0
    variance_float = float(variance)
    centre = float(variance / scale)
    denominator = 2 * top * bottom * scale * scale
    while filled < count:
        candidates = _discrete_laplace_flat(scale, max(64, int(1.5 * (count - filled))), randomness)
        magnitude = np.abs(candidates)
        # Errors: 2^-53 σ in the difference, hence below 2^-45 in the probability for |y| up to 40σ; beyond, it is 0.
        distance = magnitude.astype(np.float64) - centre
        approximate = np.exp(-(distance**2) / (2.0 * variance_float))
        keep = _bernoulli_exp(
            _LazySquares(magnitude, scale * bottom, top),  # type: ignore[arg-type]
            denominator,
            approximate,
            randomness,
        )
        drawn = candidates[keep][: count - filled]
        out[filled : filled + len(drawn)] = drawn
        filled += len(drawn)
    return out.reshape(shape)


@dataclass(frozen=True)
class _LazySquares:
    """(|y|·a - b)², a whole number that may exceed 64 bits, computed only for the few coins that need it."""

    magnitude: NDArray[np.int64]
    factor: int
    offset: int

    def __getitem__(self, i: int) -> int:
        return (int(self.magnitude[i]) * self.factor - self.offset) ** 2


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
        from pairwise.accounting import pure_event

        assert self.epsilon is not None
        return pure_event(self.epsilon)


def _lattice_grid(sensitivity: float, spread: float) -> float:
    """Return the largest power of two at most sensitivity/(2^10 · spread)."""
    return float(2.0 ** math.floor(math.log2(sensitivity / (2**_GRID_BITS * spread))))


def lattice_gaussian_plan(
    sensitivity: float,
    dimension: int,
    *,
    rho: float | None = None,
    sigma: float | None = None,
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
    _check_positive(sensitivity=sensitivity)
    if dimension < 1:
        raise InvalidParameter(f"dimension must be at least 1; found {dimension}.")
    if (rho is None) == (sigma is None):
        raise InvalidParameter("give exactly one of rho and sigma.")
    spread = math.sqrt(dimension)
    grid = _lattice_grid(sensitivity, spread)
    total = (sensitivity + grid * spread) * (1.0 + 1e-15)
    if sigma is None:
        assert rho is not None
        _check_positive(rho=rho)
        sigma = total / math.sqrt(2.0 * rho) * (1.0 + 1e-15)
    _check_positive(sigma=sigma)
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
    _check_positive(sensitivity=sensitivity, epsilon=epsilon)
    if dimension < 1:
        raise InvalidParameter(f"dimension must be at least 1; found {dimension}.")
    grid = _lattice_grid(sensitivity, float(dimension))
    total = (sensitivity + grid * dimension) * (1.0 + 1e-15)
    steps = math.ceil(total / (epsilon * grid) * (1.0 + 1e-15))
    if steps > 2**40:
        raise InvalidParameter(
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
        raise InvalidParameter(f"the plan is for {plan.noise} noise; found a {noise} release.")
    if array.size != plan.dimension:
        raise InvalidParameter(
            f"the plan is for {plan.dimension} coordinates; found {array.size}. Plan again for this shape."
        )
    # Division by a power of two is exact, so the only rounding is the one the surcharge pays for.
    steps = np.round(array / plan.grid)
    if np.any(np.abs(steps) > 2.0**51):
        raise InvalidParameter(
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
    def norm(self) -> Literal["l1", "l2", "operator"]:
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
        raise InvalidParameter(
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

    @property
    def mu(self) -> float:
        """What the release costs: Δ/σ, or √(2ρ) of exact noise; infinity without noise."""
        if self.sigma == 0:
            return math.inf
        if self.lattice is None:
            return self.sensitivity / self.sigma
        assert self.lattice.rho is not None
        return math.sqrt(2.0 * self.lattice.rho)

    def event(self, steps: int = 1) -> DpEvent:
        """Return the event of that many such releases."""
        from dp_accounting import SelfComposedDpEvent

        from pairwise.accounting import gaussian_event

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
        raise InvalidParameter(f"mu must be > 0; found {mu!r}.")
    if math.isfinite(mu) and not _LEAST_SENSITIVITY <= sensitivity < math.inf:
        raise InvalidParameter(
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
        from pairwise.accounting import gaussian_event, pure_event

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
