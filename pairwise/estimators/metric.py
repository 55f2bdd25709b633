"""Metric learners: distances and scores of pairs under a learned M, and ``PrivateMetricLearner`` from classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.statistics import plan_metric
from pairwise.errors import InvalidPairsError, InvalidParameterError, check_whole, finite_numbers
from pairwise.estimators.base import (
    PrivateEstimator,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from pairwise.accounting.budget import PrivacyBudget

Array = NDArray[np.float64]


class Points:
    """The points that index pairs refer to. They print as their shape, and no fitted learner carries them away.

    Parameters
    ----------
    table : (n, d) array-like
    """

    def __init__(self, table: Any) -> None:
        self.table: Any = table
        self.shape: tuple[int, ...] = np.shape(table)

    @property
    def dropped(self) -> Points:
        """The shape alone."""
        empty = Points(np.empty(0))
        empty.table, empty.shape = None, self.shape
        return empty

    def rows(self) -> Array:
        """Return the table as finite numbers, shape (n, d)."""
        if self.table is None:
            raise InvalidPairsError(
                "index pairs need the table they refer to, which a saved learner does not carry since it may be private. "
                "Pass points of shape (m, 2, d), or set it again: set_params(preprocessor=X)."
            )
        return finite_numbers(self.table, InvalidPairsError)

    def __repr__(self) -> str:
        return f"<table of shape {self.shape}>"


class MahalanobisMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):
    """Base of the metric learners: distances under M = WᵀW, of records clipped to ``data_norm`` as in training.

    So ``pair_distance`` is the Euclidean distance of what ``transform`` returns: √((x − x')ᵀM(x − x')) within ``data_norm``.
    """

    components_: Array
    n_features_in_: int

    @property
    def preprocessor(self) -> Points | None:
        """The table of index pairs. It prints as its shape."""
        return self.__dict__.get("_preprocessor")

    @preprocessor.setter
    def preprocessor(self, table: Any) -> None:
        is_table = not isinstance(table, Points) and np.ndim(table) == 2
        self.__dict__["_preprocessor"] = Points(table) if is_table else table

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        records = state.get("_preprocessor")
        if "statement_" in state and isinstance(records, Points):
            state = {**state, "_preprocessor": records.dropped}
        return state

    def transform(self, X: ArrayLike) -> Array:
        """Return X Wᵀ for records clipped as in training, shape (n, k); Euclidean distance there is the learned one.

        Parameters
        ----------
        X : (n, d) array-like
        """
        return np.asarray(self._check_records(X) @ self.components_.T)

    def get_mahalanobis_matrix(self) -> Array:
        """Return M = WᵀW, shape (d, d)."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Array:
        """Return ‖W(x − x')‖ of each pair, shape (m,), for records clipped to ``data_norm`` as in training.

        Parameters
        ----------
        pairs : (m, 2, d) array-like, or (m, 2) indices into ``preprocessor``

        Raises
        ------
        InvalidPairsError
            For another shape, for anything but finite numbers, and for indices without a table.
        """
        check_is_fitted(self)
        points, index = self._points_and_index(pairs)
        if points.shape[1] != self.n_features_in_:
            raise InvalidPairsError(
                f"expected points with {self.n_features_in_} features; found {points.shape[1]}."
            )
        image = clip_records(points, float(self.data_norm)) @ self.components_.T
        return np.asarray(np.linalg.norm(image[index[:, 0]] - image[index[:, 1]], axis=1))

    def _points_and_index(self, pairs: Any) -> tuple[Array, NDArray[np.int64]]:
        """Return points (n, d), and pairs (m, 2) of their rows."""
        if hasattr(pairs, "toarray"):
            raise InvalidPairsError(
                "pairs must be a dense array; found a sparse one. Pass (m, 2) indices and preprocessor=."
            )
        array = np.asarray(pairs)
        if array.ndim == 3 and array.shape[1] == 2 and array.size:
            points = finite_numbers(array, InvalidPairsError).reshape(-1, array.shape[2])
            return points, np.arange(len(points)).reshape(-1, 2)
        records = self.preprocessor
        if array.ndim == 2 and array.shape[1] == 2 and len(array) and isinstance(records, Points):
            table = records.rows()
            whole = np.issubdtype(array.dtype, np.integer)
            if not whole or array.min() < 0 or array.max() >= len(table):
                raise InvalidPairsError(
                    f"index pairs must be whole numbers in 0..{len(table) - 1}; found others."
                )
            return table, array.astype(np.int64)
        raise InvalidPairsError(
            f"expected pairs of shape (m, 2, d), or (m, 2) indices with preprocessor=; found shape {array.shape}."
        )


class PrivateMetricLearner(MahalanobisMetric):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    One release of class sums, counts and second moment; the metric follows from it (``algorithms.statistics``).
    Classes are protected like features. The Euclidean metric costs nothing and is hard to beat: learn one where public
    bounds are known to scale features badly.

    Parameters
    ----------
    epsilon : float
        Bound on the privacy loss of one record, in nats; infinity adds no noise.
    delta : float, optional
        Below 1/n; default min(1e-5, n^-1.5).
    n_components : int or None, default=16
        Rows of the map, at most d; None means d.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it. Scale with ``PublicScaler`` and pass its ``norm_bound_``.
    classes : array-like, optional
        Public list of labels; without it the list is read from y and the statement says so.
    preprocessor : (N, d) array-like, optional
        Records that the index pairs of ``pair_distance`` refer to, as in metric-learn. Not learned from; printed as its
        shape, and not pickled with a fitted learner.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    components_ : (k, d) array
        W, with M = WᵀW.
    classes_ : (C,) array
    statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import PrivateMetricLearner
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 50, axis=0)
    >>> metric = PrivateMetricLearner(epsilon=2.0, classes=[0, 1]).fit(X, np.repeat([0, 1], 50))
    >>> metric.transform(X).shape, metric.get_mahalanobis_matrix().shape
    ((100, 2), (2, 2))
    """

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        n_components: int | None = 16,
        *,
        data_norm: float = 1.0,
        classes: Any = None,
        preprocessor: Any = None,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_components = n_components
        self.data_norm = data_norm
        self.classes = classes
        self.preprocessor = preprocessor
        self.budget = budget
        self.random_state = random_state

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateMetricLearner:
        """Learn the metric from individuals.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4, dense and finite.
        y : (n,) array-like
            Class labels.
        """
        refuse_fit_parameters(refused)
        table, labels = self._check_table(X, y)
        if self.n_components is not None:
            check_whole("n_components", self.n_components)
        n, d = table.shape
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._classes_read = self.classes is None
        if len(self.classes_) < 2:
            raise InvalidParameterError(
                "a metric needs two classes at least; found one class. Check y, or pass classes."
            )
        mu = release_mu(float(self.epsilon), delta)
        plan = plan_metric(mu, n, d, len(self.classes_), self.n_components)
        R, randomness = float(self.data_norm), Randomness(self.random_state)
        rows, codes = clip_records(table, R) / R, np.searchsorted(self.classes_, labels)
        self.components_ = self._charge_and_run(plan, delta, randomness, (rows, codes))
        self._n_features_out = len(self.components_)
        return self
