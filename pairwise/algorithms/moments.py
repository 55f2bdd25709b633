"""One Gaussian release of class sums, counts and second moment, and what can be learned from it at no further cost.

Here live the release with its exact sensitivity, the linear discriminant and metric computed from noisy
moments, and ``PrivateLDA``. Losses and gradients live elsewhere: nothing here iterates over the data.

The contribution of a record with ‖x‖ <= 1 and class y is u = (w₁ e_y ⊗ x, w₂ e_y, w₃ svec(xxᵀ)) with w₁² + w₂²
+ w₃² = 1, of norm at most 1 and exactly 1 at ‖x‖ = 1 (mechanisms.md 8.3 B). Zero-out moves the sum by at most
1. Replacement moves it by less than the 2 of the triangle inequality: for two classes by ‖u‖² + ‖u'‖² −
2w₃²(x·x')² <= 2, within a class by w₁²‖x − x'‖² + w₃²‖xxᵀ − x'x'ᵀ‖², which for w₁² >= w₃²/2 is largest at unit
norms and there at most 2w₁² + 2w₃² + w₁⁴/(2w₃²) (4w₁² when w₁² > 2w₃²). The larger of the two bounds is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import Adjacency
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "DEFAULT_WEIGHTS",
    "MomentPlan",
    "Moments",
    "auc_direction",
    "discriminant",
    "exact_moments",
    "moment_proof",
    "moment_sensitivity",
    "moment_size",
    "plan_moments",
    "release_moments",
    "svec",
    "symmetric",
]

Array = NDArray[np.float64]

DEFAULT_WEIGHTS = (0.70, 0.30, 0.65)  # mechanisms.md 8.3 B, scaled to norm 1 where used


def _unit_weights(weights: tuple[float, float, float]) -> tuple[float, float, float]:
    try:
        values = [float(v) for v in weights]
    except (TypeError, ValueError):
        values = []
    if len(values) != 3 or not all(math.isfinite(v) and v > 0 for v in values):
        raise InvalidParameterError(
            f"weights must be three positive numbers (sums, counts, second moment); found {weights!r}."
        )
    norm = math.sqrt(sum(v * v for v in values))
    return values[0] / norm, values[1] / norm, values[2] / norm


def moment_sensitivity(
    weights: tuple[float, float, float] = DEFAULT_WEIGHTS,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
) -> float:
    """Return the l2 sensitivity of the weighted release (head of this module); 1 for zero-out, at most 2 for replacement."""
    w1, _, w3 = _unit_weights(weights)
    if adjacency is Adjacency.ZERO_OUT:
        return 1.0
    if adjacency is not Adjacency.REPLACE_ONE:
        raise InvalidParameterError(
            "the release shows the number of records, so add/remove is not covered. Use replace-one or zero-out."
        )
    ratio = w1**2 / w3**2
    if ratio < 0.5:
        return 2.0  # the triangle inequality; the sharper argument needs w1² >= w3²/2
    if ratio > 2.0:
        within = 4.0 * w1**2
    else:
        within = 2.0 * w1**2 + 2.0 * w3**2 + w1**4 / (2.0 * w3**2)
    return math.sqrt(min(4.0, max(2.0, within)))


@dataclass(frozen=True)
class MomentPlan:
    """The release, from public numbers.

    Attributes
    ----------
    weights : tuple of float
        (w₁, w₂, w₃), norm 1.
    noise : GaussianPlan
        Of the weighted moments as one vector; block i gets σ/wᵢ.
    """

    weights: tuple[float, float, float]
    noise: GaussianPlan

    @property
    def sensitivity(self) -> float:
        """Of the weighted moments."""
        return self.noise.sensitivity

    @property
    def sigma(self) -> float:
        """Noise per weighted coordinate."""
        return self.noise.sigma

    @property
    def event(self) -> DpEvent:
        """What the release costs."""
        return self.noise.event()


def moment_size(dimension: int, n_classes: int) -> int:
    """Return the number of released coordinates, C·d + C + d(d + 1)/2."""
    return n_classes * (dimension + 1) + dimension * (dimension + 1) // 2


def plan_moments(
    mu: float,
    weights: tuple[float, float, float] = DEFAULT_WEIGHTS,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    *,
    size: int | None = None,
    hardened: bool = False,
) -> MomentPlan:
    """Return the release with one Gaussian of parameter ``mu`` (infinity: no noise).

    Parameters
    ----------
    mu : float
        From ``accounting.release_mu``.
    weights : tuple of float
    adjacency : Adjacency
    size : int, optional
        ``moment_size``; needed where ``hardened``.
    hardened : bool, default=False
    """
    if hardened and size is None:
        raise InvalidParameterError(
            "a hardened release needs size, the number of its coordinates; found None. Use moment_size."
        )
    sensitivity = moment_sensitivity(weights, adjacency)
    noise = plan_gaussian(sensitivity, mu, size or 1, hardened=hardened)
    return MomentPlan(_unit_weights(weights), noise)


def moment_proof(exact: bool) -> str:
    """Return where the guarantee of released moments is proved, with exact or with floating-point noise."""
    conversion = "2.2 and 1.3" if exact else "1.1"
    return f"mechanisms.md 8.3 B with the replace-one sensitivity of pairwise.algorithms.moments, {conversion}"


@dataclass(frozen=True)
class Moments:
    """Released moments; everything computed from them is post-processing.

    Attributes
    ----------
    sums : (C, d) float64 array
        Class sums of x/R.
    counts : (C,) float64 array
    second : (d, d) float64 array
        Σ xxᵀ/R².
    n : int
        Public number of records.
    noise : tuple of float
        Standard deviation per entry of sums, counts and (off-diagonal: /√2) second moment.
    """

    sums: Array
    counts: Array
    second: Array
    n: int
    noise: tuple[float, float, float]

    @property
    def means(self) -> Array:
        """Class means, counts floored at 1; clipped to the unit ball, where the true ones lie."""
        means = self.sums / np.maximum(self.counts, 1.0)[:, None]
        return clip_records(means, 1.0)

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

    def within(self, floor: float | None = None) -> Array:
        """Return S_w from the noisy moments, eigenvalues floored at 2√d × noise/n by default, shape (d, d)."""
        means, priors = self.means, self.priors
        raw = self.second / self.n - (priors[:, None] * means).T @ means
        values, vectors = np.linalg.eigh((raw + raw.T) / 2.0)
        d = len(values)
        if floor is None:
            floor = 2.0 * math.sqrt(d) * self.noise[2] / self.n
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


def exact_moments(X: Array, codes: NDArray[np.int64], n_classes: int) -> tuple[Array, Array, Array]:
    """Return class sums (C, d), counts (C,) and Σ xxᵀ (d, d) of records of norm at most 1."""
    sums = np.zeros((n_classes, X.shape[1]))
    for c in range(n_classes):
        sums[c] = X[codes == c].sum(axis=0)
    counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
    return sums, counts, X.T @ X


def release_moments(
    X: Array,
    codes: NDArray[np.int64],
    n_classes: int,
    plan: MomentPlan,
    randomness: Randomness,
    *,
    data_norm: float = 1.0,
) -> Moments:
    """Release the moments of records clipped to ``data_norm`` and divided by it, once and for all.

    The weighted moments are one vector, to which the noise of the plan is added; weights are undone afterwards.
    """
    sums, counts, second = exact_moments(clip_records(X, data_norm) / data_norm, codes, n_classes)
    w1, w2, w3 = plan.weights
    vector = np.concatenate((w1 * sums.ravel(), w2 * counts, w3 * svec(second)))
    noisy = plan.noise.release(vector, randomness)
    first, middle = sums.size, sums.size + len(counts)
    return Moments(
        noisy[:first].reshape(sums.shape) / w1,
        noisy[first:middle] / w2,
        symmetric(noisy[middle:] / w3, len(second)),
        len(X),
        (plan.sigma / w1, plan.sigma / w2, plan.sigma / w3),
    )


def discriminant(moments: Moments, n_components: int) -> tuple[Array, Array]:
    """Return the top generalised eigenvectors of (S_b, S_w), shape (k, d), scaled to ‖A‖_op = 1, and the eigenvalues."""
    values, vectors = np.linalg.eigh(moments.within())
    whiten = vectors / np.sqrt(values)
    strength, directions = np.linalg.eigh(whiten.T @ moments.between() @ whiten)
    order = np.argsort(strength)[::-1][:n_components]
    A = (whiten @ directions[:, order]).T
    largest = np.linalg.norm(A, 2)
    return np.asarray(A / largest if largest > 0 else A), np.asarray(strength[order])


def auc_direction(moments: Moments) -> Array:
    """Return the minimiser of the square-loss AUC under a pooled covariance, of norm 1, shape (d,).

    Σ (1 − w·(x₊ − x₋))² over pairs is minimised along (Σ₊ + Σ₋ + mmᵀ)⁻¹m, m the difference of the class means,
    which has the direction of S_w⁻¹m when the classes share S_w. With noise S_w is regularised by the noise
    level.
    """
    means = moments.means
    m = means[1] - means[0]
    d = len(m)
    ridge = math.sqrt(d) * moments.noise[2] / moments.n
    w = np.linalg.solve(moments.within() + ridge * np.eye(d), m)
    norm = np.linalg.norm(w)
    return np.asarray(w / norm if norm > 0 else w)
