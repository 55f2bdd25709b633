"""Private PCA and private random projection, from their definitions: the classical baselines of private retrieval.

They protect different people, and their statements say so. ``PrivatePCA`` protects the records that the axes were learned
from and nothing about what is projected later; ``PrivateRandomProjection`` protects each projected query from whoever
receives it. Supervised projections live in ``pairwise.algorithms.moments``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pairwise.accounting.budget import charge_to
from pairwise.accounting.events import Adjacency, gaussian_event, pure_event
from pairwise.accounting.gaussian import check_privacy_parameters
from pairwise.accounting.zcdp import release_mu
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    UNREADABLE,
    check_data_norm,
    keeps_state_on_error,
    without_seed,
    without_values,
)
from pairwise.noise.continuous import check_number, check_whole
from pairwise.noise.randomness import Randomness, numerical_claim
from pairwise.noise.release import PlannedRelease, plan_gaussian
from pairwise.pairs.clipping import clip_records
from pairwise.statement import PrivacyStatement

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["PrivatePCA", "PrivateRandomProjection", "bingham"]

Array = NDArray[np.float64]

_MOST_PROPOSALS = 100_000


def _envelope(drop: Array) -> tuple[Array, float]:
    """Return Ω, shape (q,), and the log of the bound on e^(-λ·v²)(Ω·v²)^(q/2) over unit vectors v."""
    q = len(drop)
    # At b = 1 the sum is at least the term of λ = 0, which is 1; at b = q it is at most 1.
    b = brentq(lambda b: float(np.sum(1.0 / (b + 2.0 * drop))) - 1.0, 1.0, float(q))
    return 1.0 + 2.0 * drop / b, -(q - b) / 2.0 + q / 2.0 * math.log(q / b)


def bingham(concentration: Array, randomness: Randomness) -> Array:
    """Return a unit vector with density proportional to exp(vᵀCv), shape (q,), by exact rejection.

    Parameters
    ----------
    concentration : (q, q) symmetric array
        C.
    randomness : Randomness

    Notes
    -----
    Proposals from the angular central Gaussian law, the envelope of Kent, Ganeiban and Mardia (2013): with eigenvalues
    λ = max C - C and b the root of Σ 1/(b + 2λᵢ) = 1, Ω = I + 2λ/b and bound e^(-(q-b)/2) (q/b)^(q/2).
    """
    q = len(concentration)
    values, vectors = np.linalg.eigh((concentration + concentration.T) / 2.0)
    drop = values[-1] - values
    if q == 1:
        return np.asarray(vectors[:, 0] * randomness.signs())
    omega, log_bound = _envelope(drop)
    for _ in range(_MOST_PROPOSALS):
        y = randomness.normal((q,)) / np.sqrt(omega)
        y /= np.linalg.norm(y)
        squares = y * y
        log_ratio = -float(drop @ squares) + q / 2.0 * math.log(float(omega @ squares))
        if math.log(float(randomness.tail())) < log_ratio - log_bound:
            return np.asarray(vectors @ y)
    raise InvalidParameterError(
        "the sampler found no direction; lower epsilon or the number of features."
    )


@dataclass(frozen=True)
class _AxisPlan(PlannedRelease):
    """Axes by the exponential mechanism, one after the other: v with density exp(ε vᵀAv / 2Δk).

    Attributes
    ----------
    sensitivity : float
        Δ, how far a neighbour moves vᵀAv for any unit vector v.
    epsilon : float
        Of all axes together; infinity draws none.
    axes : int
        k.
    """

    sensitivity: float
    epsilon: float
    axes: int

    @property
    def norm(self) -> Literal["operator"]:
        """The norm of ``sensitivity``."""
        return "operator"

    @property
    def rate(self) -> float:
        """What A is multiplied by."""
        return self.epsilon / self.axes / (2.0 * self.sensitivity)

    def event(self) -> DpEvent:
        """Return the event of all axes together."""
        return pure_event(self.epsilon) if math.isfinite(self.epsilon) else gaussian_event(0.0)

    def _draw(self, value: Array, randomness: Randomness, rows: bool) -> Array:
        return bingham(self.rate * value, randomness)


class PrivatePCA(TransformerMixin, BaseEstimator):
    """Principal axes by the exponential mechanism: (ε, 0) for the records they were learned from.

    The axes are drawn one after the other, each by exp(ε vᵀAv/2k) in the complement of the earlier ones, A = Σxxᵀ and
    ‖x‖ <= 1: replacing a record moves vᵀAv by at most 1, so k axes cost ε (the mechanism of Chaudhuri, Sarwate and
    Sinha 2013, for one axis at a time). What is projected with them later is **not** protected.

    Parameters
    ----------
    n_components : int, default=8
        k <= d.
    epsilon : float, default=1.0
        Infinity gives the axes of A.
    data_norm : float, default=1.0
        Every record is clipped to it.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    components_ : (k, d) array
        Orthonormal rows.
    statement_, privacy_event_, n_features_in_
    """

    def __init__(
        self,
        n_components: int = 8,
        epsilon: float = 1.0,
        data_norm: float = 1.0,
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.data_norm = data_norm
        self.budget = budget
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        return without_seed(dict(super().__getstate__()))

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: Any = None) -> PrivatePCA:
        """Draw the axes; ``y`` is ignored.

        Parameters
        ----------
        X : (n, d) array-like
        """
        table = _checked(self, X)
        check_number("epsilon", self.epsilon)
        check_privacy_parameters(float(self.epsilon), 0.0, allow_pure=True)
        check_data_norm(self.data_norm)
        d = table.shape[1]
        check_whole("n_components", self.n_components)
        k = int(self.n_components)
        k = min(k, d)
        private = math.isfinite(self.epsilon)
        plan = _AxisPlan(1.0, float(self.epsilon), k)
        event = plan.event()
        randomness = Randomness(self.random_state)
        replaced = Adjacency.REPLACE_ONE
        charge_to(self.budget, event, label="PrivatePCA", adjacency=replaced, unit="one record")
        records = clip_records(table, float(self.data_norm)) / float(self.data_norm)
        second = records.T @ records
        if private:
            axes = np.empty((0, d))
            free = np.eye(d)
            for _ in range(k):
                axis = free @ plan.release(free.T @ second @ free, randomness)
                axes = np.vstack((axes, axis))
                # The complement of the axes so far, from public numbers.
                free = np.linalg.svd(axes, full_matrices=True)[2][len(axes) :].T
        else:
            axes = np.linalg.eigh(second)[1][:, ::-1][:, :k].T
        self.components_ = axes
        self.privacy_event_ = event
        note = randomness.note if private else None
        self.statement_ = PrivacyStatement(
            mechanism=f"{k} principal axes by the exponential mechanism",
            adjacency=Adjacency.REPLACE_ONE.value,
            epsilon=float(self.epsilon),
            delta=0.0,
            unit="one record of the fit",
            proved=note is None,
            proof="Chaudhuri, Sarwate, Sinha 2013, one axis at a time with sequential composition",
            assumptions=(
                f"every record is clipped, on its own, to the public norm {float(self.data_norm):g}",
            ),
            not_protected=(
                "anything that is projected with the axes",
                "the number of records and of features",
            ),
            notes=(
                "directions are drawn in floating point, without a proof about rounding: (epsilon, 0) is a claim about "
                "real numbers, and of the bits released nothing is proved",
                *((note,) if note else ()),
            ),
        )
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return the coordinates of clipped records on the axes, shape (n, k)."""
        check_is_fitted(self)
        table = _checked(self, X, reset=False)
        return np.asarray(clip_records(table, float(self.data_norm)) @ self.components_.T)


class PrivateRandomProjection(BaseEstimator):
    """A random projection with Gaussian noise: (ε, δ) for each projected query, against whoever receives it.

    x -> Px + N(0, σ²I), P with independent N(0, 1/k) entries, public (Kenthapadi, Korolova, Mironov and Mishra 2012).
    Their neighbours differ in one attribute; here any feature may be replaced by any other of the same norm bound, so
    Δ = 2R‖P‖_op, with exact Gaussian noise on a grid (mechanisms.md 1.3, 2.2).

    Parameters
    ----------
    n_components : int, default=8
        k.
    epsilon : float, default=1.0
        Cost of one query. Infinity adds no noise.
    delta : float, default=1e-5
    data_norm : float, default=1.0
        R; every feature is clipped to it.
    projection_state : int, default=0
        Seed of P, which is public.
    random_state : int, RandomState or None, default=None
        For the noise. None draws from the operating system, the only private setting.

    Attributes
    ----------
    components_ : (k, d) array
        P.
    statement_, privacy_event_, n_features_in_
    """

    def __init__(
        self,
        n_components: int = 8,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        data_norm: float = 1.0,
        projection_state: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.projection_state = projection_state
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        return without_seed(dict(super().__getstate__()))

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: Any = None) -> PrivateRandomProjection:
        """Draw P for the number of columns of ``X``, whose values are not used; ``y`` is ignored."""
        table = _checked(self, X)
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta)
        check_privacy_parameters(float(self.epsilon), float(self.delta))
        check_data_norm(self.data_norm)
        check_whole("n_components", self.n_components)
        check_whole("projection_state", self.projection_state, least=0)
        k = int(self.n_components)
        public = Randomness(int(self.projection_state))
        self.components_ = public.normal((k, table.shape[1])) / math.sqrt(k)
        mu = release_mu(float(self.epsilon), float(self.delta), hardened=True)
        sensitivity = 2.0 * float(self.data_norm) * float(np.linalg.norm(self.components_, 2))
        self._noise_ = plan_gaussian(sensitivity, mu, k, hardened=True)
        self.noise_scale_ = self._noise_.sigma
        randomness = Randomness(self.random_state)
        private = math.isfinite(self.epsilon)
        self.privacy_event_ = self._noise_.event()
        arithmetic, numerical = numerical_claim(True, 1)
        note = randomness.note if private else None
        self.statement_ = PrivacyStatement(
            mechanism=f"random projection to {k} dimensions with Gaussian noise",
            adjacency=Adjacency.REPLACE_ONE.value,
            epsilon=float(self.epsilon),
            delta=float(self.delta) if private else 0.0,
            unit="the whole feature of one query",
            proved=note is None,
            proof="mechanisms.md 1.3 and 2.2 with sensitivity 2R‖P‖_op",
            assumptions=(
                f"every feature is clipped, on its own, to the public norm {float(self.data_norm):g}",
            ),
            not_protected=("that a query was asked", "the number of features, and all settings"),
            notes=((numerical,) if private else ()) + ((note,) if note else ()),
            arithmetic=arithmetic,
        )
        self._norm_, self._seeded_ = float(self.data_norm), self.random_state is not None
        return self

    def sensitivity(self) -> float:
        """Return 2R‖P‖_op, how far two queries can be apart before the noise."""
        check_is_fitted(self)
        return self._noise_.sensitivity

    def project(self, X: ArrayLike) -> Array:
        """Return Px without noise, for records that need no protection, shape (n, k)."""
        check_is_fitted(self)
        table = _checked(self, X, reset=False)
        # To the norm that the noise was planned for, whatever was set since. Earlier pickles have the setting alone.
        norm = getattr(self, "_norm_", float(self.data_norm))
        return np.asarray(clip_records(table, norm) @ self.components_.T)

    def release(self, X: ArrayLike) -> Array:
        """Return Px plus noise for each row as one query of its own, shape (n, k).

        Raises
        ------
        InvalidParameterError
            If a seed was set after ``fit``, whose statement says that there is none.
        """
        clean = self.project(X)
        if self.random_state is not None and not getattr(self, "_seeded_", True):
            raise InvalidParameterError(
                "random_state was set after fit, and the statement is of releases without a seed. Fit again."
            )
        # Made here and not in fit: a source of randomness cannot be copied with the estimator. A seed repeats the noise.
        return self._noise_.release(clean, Randomness(self.random_state), rows=True)


def _checked(estimator: BaseEstimator, X: ArrayLike, *, reset: bool = True) -> Array:
    """Return a validated table, shape (n, d); complaints repeat nothing of it."""
    try:
        return np.asarray(validate_data(estimator, X, dtype=np.float64, reset=reset))
    except UNREADABLE as error:
        raise without_values(error, X) from None
