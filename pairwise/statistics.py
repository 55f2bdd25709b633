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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, TransformerMixin

from pairwise.accounting import Adjacency, release_mu
from pairwise.clipping import clip_records
from pairwise.errors import InvalidParameter
from pairwise.estimator import Plan, PrivateEstimator
from pairwise.noise import GaussianPlan, Randomness, plan_gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "DEFAULT_WEIGHTS",
    "MomentPlan",
    "Moments",
    "PrivateLDA",
    "auc_direction",
    "contributions",
    "discriminant",
    "exact_moments",
    "moment_sensitivity",
    "moment_size",
    "plan_moments",
    "release_moments",
]

Array = NDArray[np.float64]

DEFAULT_WEIGHTS = (0.70, 0.30, 0.65)  # mechanisms.md 8.3 B, scaled to norm 1 where used


def _unit_weights(weights: tuple[float, float, float]) -> tuple[float, float, float]:
    values = [float(v) for v in weights]
    if len(values) != 3 or not all(math.isfinite(v) and v > 0 for v in values):
        raise InvalidParameter(
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
        raise InvalidParameter(
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


def contributions(
    X: Array, codes: NDArray[np.int64], n_classes: int, weights: tuple[float, float, float]
) -> Array:
    """Return each record's weighted contribution, shape (n, C·d + C + d(d+1)/2), for tests and for small tables."""
    w1, w2, w3 = _unit_weights(weights)
    n, d = X.shape
    sums = np.zeros((n, n_classes, d))
    sums[np.arange(n), codes] = X
    counts = np.zeros((n, n_classes))
    counts[np.arange(n), codes] = 1.0
    rows, columns = np.triu_indices(d)
    factor = np.where(rows == columns, 1.0, math.sqrt(2.0))
    second = X[:, rows] * X[:, columns] * factor
    return np.concatenate((w1 * sums.reshape(n, -1), w2 * counts, w3 * second), axis=1)


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
        raise InvalidParameter(
            "a hardened release needs size, the number of its coordinates; found None. Use moment_size."
        )
    sensitivity = moment_sensitivity(weights, adjacency)
    noise = plan_gaussian(sensitivity, mu, size or 1, hardened=hardened)
    return MomentPlan(_unit_weights(weights), noise)


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
    d = len(second)
    rows, columns = np.triu_indices(d)
    # An off-diagonal entry stands twice in the norm of svec.
    factor = w3 * np.where(rows == columns, 1.0, math.sqrt(2.0))
    vector = np.concatenate((w1 * sums.ravel(), w2 * counts, factor * second[rows, columns]))
    noisy = plan.noise.release(vector, randomness)
    first, middle = sums.size, sums.size + len(counts)
    symmetric = np.zeros((d, d))
    symmetric[rows, columns] = symmetric[columns, rows] = noisy[middle:] / factor
    spread = (plan.sigma / w1, plan.sigma / w2, plan.sigma / w3)
    return Moments(
        noisy[:first].reshape(sums.shape) / w1, noisy[first:middle] / w2, symmetric, len(X), spread
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


def auc_direction(moments: Moments, floor_factor: float = 1.0) -> Array:
    """Return the minimiser of the square-loss AUC under a pooled covariance, of norm 1, shape (d,).

    Σ (1 − w·(x₊ − x₋))² over pairs is minimised along (Σ₊ + Σ₋ + mmᵀ)⁻¹m, m the difference of the class means,
    which has the direction of S_w⁻¹m when the classes share S_w. With noise S_w is regularised by the noise
    level.
    """
    means = moments.means
    m = means[1] - means[0]
    d = len(m)
    ridge = floor_factor * math.sqrt(d) * moments.noise[2] / moments.n
    w = np.linalg.solve(moments.within() + ridge * np.eye(d), m)
    norm = np.linalg.norm(w)
    return np.asarray(w / norm if norm > 0 else w)


class PrivateLDA(ClassifierMixin, TransformerMixin, PrivateEstimator):
    """Private linear discriminant analysis from one Gaussian release of moments (mechanisms.md 8.3 B).

    Labels are protected like the rest of a record. Once fitted, other numbers of components or other classifiers can be
    derived from ``moments_`` at no further cost.

    Parameters
    ----------
    n_components : int, optional
        k <= C − 1 rows of the projection; default C − 1 (at most d).
    epsilon : float, default=1.0
        Infinity gives ordinary LDA.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    data_norm : float, default=1.0
        R; every record is clipped to it. Declare it from public knowledge.
    classes : array-like, optional
        Public list of labels. Without it the list is read from y, and the statement says so.
    weights : tuple of float, default=(0.70, 0.30, 0.65)
        How the noise is spread over sums, counts and second moment.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
    hardened : bool or None, default=None
        Draw exact noise on a grid (mechanisms.md 2.2), so that the guarantee holds to the last bit released, for about 8 %
        more noise. None: wherever it is defined. False: floating-point noise, proved in real arithmetic only.
    allow_large_delta : bool, default=False
        Accept delta >= 1/n.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    moments_ : Moments
    scalings_ : (k, d) array
        A, ‖A‖_op = 1.
    classes_, means_, priors_, statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.statistics import PrivateLDA
    >>> X = np.repeat([[0.9, 0.0], [-0.9, 0.1]], 200, axis=0)
    >>> lda = PrivateLDA(epsilon=2.0, classes=[0, 1]).fit(X, np.repeat([0, 1], 200))
    >>> lda.transform(X).shape, lda.statement_.epsilon
    ((400, 1), 2.0)
    """

    def __init__(
        self,
        n_components: int | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        data_norm: float = 1.0,
        classes: Any = None,
        weights: tuple[float, float, float] = DEFAULT_WEIGHTS,
        adjacency: str = "replace-one",
        hardened: bool | None = None,
        allow_large_delta: bool = False,
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.classes = classes
        self.weights = weights
        self.adjacency = adjacency
        self.hardened = hardened
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateLDA:
        """Release the moments of the table and compute the discriminant from them.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4.
        y : (n,) array-like
            Class labels.
        """
        table, labels = self._check_table(X, y)
        delta = self._check_settings(len(table))
        if self.adjacency not in ("replace-one", "zero-out"):
            raise InvalidParameter(
                f"adjacency must be 'replace-one' or 'zero-out'; found {self.adjacency!r}."
            )
        adjacency = Adjacency(self.adjacency)
        classes = self._check_classes(labels)
        if len(classes) < 2:
            raise InvalidParameter(
                f"a discriminant needs at least 2 classes; found {len(classes)} class. Check y."
            )
        randomness = Randomness(self.random_state)
        release = plan_moments(
            release_mu(float(self.epsilon), delta, hardened=self._exact),
            self.weights,
            adjacency,
            size=moment_size(table.shape[1], len(classes)),
            hardened=self._exact,
        )
        codes = np.searchsorted(classes, labels)
        R = float(self.data_norm)
        plan = Plan(
            event=release.event,
            sensitivity=release.sensitivity,
            run=lambda: release_moments(
                table, codes, len(classes), release, randomness, data_norm=R
            ),
            mechanism="Gaussian release of class sums, counts and second moment (DP-LDA)",
            proof=(
                "mechanisms.md 8.3 B with the replace-one sensitivity of pairwise.statistics, "
                + ("2.2 and 1.3" if self._exact else "1.1")
            ),
        )
        self.moments_ = self._execute(plan, delta, randomness, adjacency=adjacency, n=len(table))
        self.classes_ = classes
        self._derive()
        return self

    def _derive(self) -> None:
        moments = self.moments_
        limit = min(len(self.classes_) - 1, moments.sums.shape[1])
        k = limit if self.n_components is None else int(self.n_components)
        if not k >= 1:
            raise InvalidParameter(f"n_components must be at least 1; found {self.n_components!r}.")
        k = min(k, limit)
        self.scalings_, self.eigenvalues_ = discriminant(moments, k)
        self.means_ = moments.means * float(self.data_norm)
        self.priors_ = moments.priors
        self._offset_ = self.priors_ @ self.means_
        self._n_features_out = k
        # Bayes' rule with a common covariance; records enter in units of R.
        inverse = np.linalg.inv(moments.within())
        self._slope_ = moments.means @ inverse / float(self.data_norm)
        self._constant_ = np.log(self.priors_) - 0.5 * np.einsum(
            "ij,jk,ik->i", moments.means, inverse, moments.means
        )

    def refit(self, n_components: int) -> PrivateLDA:
        """Return a copy with another number of components, from the same release: it costs nothing."""
        from copy import copy

        self.sensitivity()
        other = copy(self)
        other.n_components = n_components
        other._derive()
        return other

    def transform(self, X: ArrayLike) -> Array:
        """Return A(x − x̄) for records clipped as in training, shape (n, k)."""
        return np.asarray((self._check_records(X) - self._offset_) @ self.scalings_.T)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return log-posteriors up to a constant, shape (n, C); for two classes their difference, shape (n,)."""
        scores = self._check_records(X) @ self._slope_.T + self._constant_
        return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of the largest posterior, shape (n,)."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names privatelda0, privatelda1, ..."""
        self.sensitivity()
        return np.array([f"privatelda{i}" for i in range(self._n_features_out)], dtype=object)
