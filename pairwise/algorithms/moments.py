"""One Gaussian release of class sums, counts and second moment, and what follows from it by post-processing.

The contribution of a record with ‖x‖ <= 1 and class y is u = (w₁ e_y ⊗ x, w₂ e_y, w₃ svec(xxᵀ)) with w₁² + w₂² + w₃² = 1, of
norm at most 1 and exactly 1 at ‖x‖ = 1. Replacement moves the sum by less than the 2 of the triangle inequality.

* Between classes: by ‖u‖² + ‖u'‖² − 2w₃²(x·x')² <= 2, which two orthogonal unit records attain.
* Within a class: by w₁²(a + b − 2s) + w₃²(a² + b² − 2s²), with a = ‖x‖², b = ‖x'‖² and s = x·x'. For a given s it rises with
  a and b, and larger ones admit the same s, so it is largest at a = b = 1. There 2w₁²(1 − s) + 2w₃²(1 − s²) is largest at
  s = −w₁²/(2w₃²) with 2w₁² + 2w₃² + w₁⁴/(2w₃²), or at s = −1 with 4w₁² where w₁² > 2w₃².

The larger of the two bounds is the square of the sensitivity; records of two dimensions or more attain it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]

# How the noise is spread over sums, counts and second moment; scaled to norm 1 where used.
WEIGHTS = (0.70, 0.30, 0.65)


def _unit(weights: tuple[float, float, float]) -> tuple[float, float, float]:
    norm = math.hypot(*weights)
    return weights[0] / norm, weights[1] / norm, weights[2] / norm


def moment_sensitivity(weights: tuple[float, float, float] = WEIGHTS) -> float:
    """Return the replace-one l2 sensitivity of the weighted moments (head of this module)."""
    w1, _, w3 = _unit(weights)
    if w1**2 > 2.0 * w3**2:
        within = 4.0 * w1**2
    else:
        within = 2.0 * w1**2 + 2.0 * w3**2 + w1**4 / (2.0 * w3**2)
    return math.sqrt(max(2.0, within))


def plan_moments(mu: float, dimension: int, n_classes: int) -> GaussianPlan:
    """Return the release of moments of ``dimension`` features and ``n_classes`` classes at a cost of ``mu``."""
    size = n_classes * (dimension + 1) + dimension * (dimension + 1) // 2
    return plan_gaussian(moment_sensitivity(), mu, size)


class MomentNoise(NamedTuple):
    """Standard deviations of the noise in an entry of released moments."""

    sums: float
    counts: float
    second: float  # on the diagonal; off it √2 times smaller


@dataclass(frozen=True)
class Moments:
    """Released moments of records of norm at most 1; everything computed from them is post-processing."""

    sums: Array  # of each class, shape (C, d)
    counts: Array  # of each class
    second: Array  # Σ xxᵀ
    n: int  # public
    noise: MomentNoise

    @property
    def means(self) -> Array:
        """Class means, counts floored at 1; clipped to the unit ball, where the true ones are."""
        return clip_records(self.sums / np.maximum(self.counts, 1.0)[:, None], 1.0)

    @property
    def priors(self) -> Array:
        """Class shares, from floored counts."""
        counts = np.maximum(self.counts, 1.0)
        return np.asarray(counts / counts.sum())

    def between(self) -> Array:
        """Return S_b = Σ_c π_c (m_c − m̄)(m_c − m̄)ᵀ, shape (d, d)."""
        means, priors = self.means, self.priors
        apart = means - priors @ means
        return np.asarray((priors[:, None] * apart).T @ apart)

    def raw_within(self) -> Array:
        """Return the noisy S_w as it is, which may have negative eigenvalues, shape (d, d)."""
        means, priors = self.means, self.priors
        raw = self.second / self.n - (priors[:, None] * means).T @ means
        return np.asarray((raw + raw.T) / 2.0)

    def within(self) -> Array:
        """Return S_w with eigenvalues floored at 2√d × noise/n, shape (d, d)."""
        values, vectors = np.linalg.eigh(self.raw_within())
        floor = 2.0 * math.sqrt(len(values)) * self.noise.second / self.n
        largest = max(float(values.max(initial=0.0)), 1e-12)
        return np.asarray((vectors * np.maximum(values, max(floor, 1e-12 * largest))) @ vectors.T)


def svec(matrix: Array) -> Array:
    """Return the upper triangle of a symmetric matrix, off-diagonal entries times √2: a vector of the matrix's norm."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)))


def symmetric(vector: Array, d: int) -> Array:
    """Return the symmetric matrix of a ``svec``, shape (d, d)."""
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    entries = vector / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrix[rows, columns] = matrix[columns, rows] = entries
    return matrix


def release_moments(
    z: Array, codes: NDArray[np.int64], n_classes: int, plan: GaussianPlan, randomness: Randomness
) -> Moments:
    """Release the moments of records of norm at most 1: one vector with the noise of the plan, then weights undone."""
    members = codes[None, :] == np.arange(n_classes)[:, None]
    sums, counts = members @ z, members.sum(axis=1)
    w1, w2, w3 = _unit(WEIGHTS)
    vector = np.concatenate((w1 * sums.ravel(), w2 * counts, w3 * svec(z.T @ z)))
    noisy = plan.release(vector, randomness)
    first, middle = sums.size, sums.size + len(counts)
    sigma = plan.sigma
    return Moments(
        noisy[:first].reshape(sums.shape) / w1,
        noisy[first:middle] / w2,
        symmetric(noisy[middle:] / w3, z.shape[1]),
        len(z),
        MomentNoise(sigma / w1, sigma / w2, sigma / w3),
    )
