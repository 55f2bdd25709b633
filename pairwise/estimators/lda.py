"""PrivateLDA: linear discriminant analysis from one private release of moments.

The release and its sensitivity stand in ``algorithms.moments``; here is scikit-learn's interface to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from pairwise.accounting.events import Adjacency, compose
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.coordinates import Coordinates, described, plan_coordinates, proof_of
from pairwise.algorithms.moments import (
    DEFAULT_WEIGHTS,
    Array,
    Moments,
    discriminant,
    moment_proof,
    moment_size,
    plan_moments,
    release_moments,
)
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    PrivateEstimator,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.noise.continuous import check_number, check_whole
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records
from pairwise.plan import Plan

__all__ = ["PrivateLDA"]


class PrivateLDA(
    ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator
):
    """Private linear discriminant analysis from one Gaussian release of moments (mechanisms.md 8.3 B).

    Labels are protected like the rest of a record. Once fitted, other numbers of components or other classifiers can be
    derived from ``moments_`` at no further cost.

    Parameters
    ----------
    n_components : int, optional
        k <= C − 1 rows of the projection; default C − 1 (at most d).
    epsilon : float, default=1.0
        Infinity gives ordinary LDA where ``centre_share`` is 0 too, and of records clipped around their mean otherwise.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    data_norm : float, default=1.0
        R; every record is clipped to it. Declare it from public knowledge.
    classes : array-like, optional
        Public list of labels. Without it the list is read from y, and the statement says so.
    weights : tuple of float, default=(0.70, 0.30, 0.65)
        How the noise is spread over sums, counts and second moment.
    centre_share : float, default=0.1
        Share of μ² with which the mean record and the mean distance to it are released first; moments are then taken around
        that centre, of records clipped to 0.7 times that distance. 0 takes them around the origin.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
    hardened : bool or None, default=None
    allow_large_delta : bool, default=False
    budget : PrivacyBudget, optional
    random_state : int, RandomState or None, default=None
        As in ``PrivateAUCClassifier``.

    Attributes
    ----------
    moments_ : Moments
        Of records in the released coordinates.
    scalings_ : (k, d) array
        A, ‖A‖_op = 1.
    classes_, means_, priors_, statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.estimators.lda import PrivateLDA
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
        centre_share: float = 0.1,
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
        self.centre_share = centre_share
        self.adjacency = adjacency
        self.hardened = hardened
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateLDA:
        """Release the moments of the table and compute the discriminant from them.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4.
        y : (n,) array-like
            Class labels.
        """
        refuse_fit_parameters(refused)
        table, labels = self._check_table(X, y)
        delta = self._check_settings(len(table))
        if self.adjacency not in ("replace-one", "zero-out"):
            raise InvalidParameterError(
                f"adjacency must be 'replace-one' or 'zero-out'; found {self.adjacency!r}."
            )
        adjacency = Adjacency(self.adjacency)
        classes = self._check_classes(labels)
        if len(classes) < 2:
            raise InvalidParameterError(
                f"a discriminant needs at least 2 classes; found {len(classes)} class. Check y."
            )
        check_number("centre_share", self.centre_share)
        if not 0 <= self.centre_share < 1:
            raise InvalidParameterError(
                f"centre_share must be in [0, 1); found {self.centre_share!r}."
            )
        self._check_components()
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta, hardened=self._exact)
        n, d = table.shape
        R = float(self.data_norm)
        centring = None
        if self.centre_share:
            share = float(self.centre_share)
            centring = plan_coordinates(
                n, d, R, mu, share, adjacency=adjacency, hardened=self._exact
            )
        release = plan_moments(
            mu * math.sqrt(1.0 - float(self.centre_share)),
            self.weights,
            adjacency,
            size=moment_size(d, len(classes)),
            hardened=self._exact,
        )
        codes = np.searchsorted(classes, labels)

        def run() -> tuple[Coordinates, Moments]:
            found = Coordinates(np.zeros(d), R)
            if centring is not None:
                found = centring.release(table, randomness)
            z = found.of(clip_records(table, R))
            return found, release_moments(z, codes, len(classes), release, randomness)

        plan = Plan(
            event=compose([*([] if centring is None else centring.events()), release.event]),
            sensitivity=release.sensitivity,
            run=run,
            mechanism="Gaussian release of class sums, counts and second moment (DP-LDA)"
            + described(centring),
            proof=moment_proof(self._exact) + proof_of(centring),
            adjacency=adjacency,
        )
        self._coordinates_, self.moments_ = self._execute(plan, delta, randomness, n=n)
        self.classes_ = classes
        self._derive()
        return self

    def _check_components(self) -> None:
        if self.n_components is not None:
            check_whole("n_components", self.n_components)

    def _derive(self) -> None:
        moments = self.moments_
        limit = min(len(self.classes_) - 1, moments.sums.shape[1])
        k = limit if self.n_components is None else int(self.n_components)
        k = min(k, limit)
        self.scalings_, self.eigenvalues_ = discriminant(moments, k)
        centre, scale = self._coordinates_.centre, self._coordinates_.scale
        self.means_ = centre + moments.means * scale
        self.priors_ = moments.priors
        self._offset_ = self.priors_ @ moments.means
        self._n_features_out = k
        # Bayes' rule with a common covariance; records enter in the released coordinates.
        inverse = np.linalg.inv(moments.within())
        self._slope_ = moments.means @ inverse
        self._constant_ = np.log(self.priors_) - 0.5 * np.einsum(
            "ij,jk,ik->i", moments.means, inverse, moments.means
        )

    def refit(self, n_components: int) -> PrivateLDA:
        """Return a copy with another number of components, from the same release: it costs nothing."""
        from copy import copy

        self.sensitivity()
        other = copy(self)
        other.n_components = n_components
        other._check_components()
        other._derive()
        return other

    def transform(self, X: ArrayLike) -> Array:
        """Return A(x − x̄) for records clipped as in training, shape (n, k)."""
        records = self._check_records(X)
        around = self._coordinates_.of(records) - self._offset_
        return np.asarray(self._coordinates_.scale * (around @ self.scalings_.T))

    def decision_function(self, X: ArrayLike) -> Array:
        """Return log-posteriors up to a constant, shape (n, C); for two classes their difference, shape (n,)."""
        records = self._check_records(X)
        scores = self._coordinates_.of(records) @ self._slope_.T + self._constant_
        return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of the largest posterior, shape (n,)."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])
