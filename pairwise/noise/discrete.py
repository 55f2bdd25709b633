"""Exact discrete noise: discrete Gaussian and exponential choices, by integer arithmetic.

The samplers are algorithms 1 to 3 of Canonne, Kamath and Steinke 2020.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness, Shape

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


def exponential_choice(counts: NDArray[np.int64], rate: float, randomness: Randomness) -> int:
    """Return an index with probability proportional to exp(rate · count), exactly.

    A uniform proposal is taken with the chance exp(-rate · (largest count − its count)), which is no approximation; the
    rate is read as the fraction that it is.
    """
    exact = Fraction(rate)
    behind = [int(gap) for gap in counts.max() - counts]
    while True:
        proposals = randomness.integers(len(counts), (len(counts),))
        gaps = [behind[int(each)] for each in proposals]
        taken = _bernoulli_exp(
            np.array([gap * exact.numerator for gap in gaps], dtype=object),
            exact.denominator,
            np.exp(-rate * np.array(gaps, dtype=np.float64)),
            randomness,
        )
        if taken.any():
            return int(proposals[int(taken.argmax())])


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


def discrete_gaussian(
    sigma_squared: Fraction | int | float, shape: Shape, randomness: Randomness
) -> NDArray[np.int64]:
    """Return exact draws of the discrete Gaussian, P(x) ∝ exp(-x²/2σ²) on the integers, given shape.

    Guarantee: ρ-zCDP with ρ = Δ²/2σ² when added to integers of l2 sensitivity Δ, the same as for the continuous one
    (Canonne, Kamath, Steinke 2020, theorem 4; the sampler is their algorithm 3). Never pure. A float σ² is taken as the
    rational number that it is.

    Candidates are exact discrete Laplace draws of scale t = ⌊σ⌋ + 1, kept with probability
    exp(-(|y| - σ²/t)²/2σ²), each coin decided by 64 bits where these decide and by exact rational arithmetic otherwise.
    """
    variance = Fraction(sigma_squared)
    if not 0 < variance < 2**78:
        raise InvalidParameterError(
            f"sigma_squared must be in (0, 2^78); found {float(variance)!r}."
        )
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
