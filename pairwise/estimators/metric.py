"""``PrivateMetricLearner``: a Mahalanobis metric from individuals and their classes, under differential privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.discriminant import discriminant_metric
from pairwise.algorithms.moments import plan_moments, release_moments
from pairwise.errors import InvalidParameterError, check_whole
from pairwise.estimators.base import Plan, keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.mahalanobis import MahalanobisMetric
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget


class PrivateMetricLearner(MahalanobisMetric):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    One release of class sums, counts and second moment; the metric follows from it (``algorithms.discriminant``).
    Classes are protected like features. The Euclidean metric costs nothing and is hard to beat: learn one where public
    bounds are known to scale features badly.

    Parameters
    ----------
    epsilon : float
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Below 1/n; default min(1e-5, n^-1.5).
    n_components : int or None, default=16
        Rows of the map; at most d, and d where it is None.
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

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
        if len(self.classes_) < 2:
            raise InvalidParameterError(
                "a metric needs two classes at least; found one class. Check y, or pass classes."
            )
        codes = np.searchsorted(self.classes_, labels).astype(np.int64)
        randomness = Randomness(self.random_state)
        release = plan_moments(release_mu(float(self.epsilon), delta), d, len(self.classes_))
        R = float(self.data_norm)

        def run() -> NDArray[np.float64]:
            z = clip_records(table, R) / R
            moments = release_moments(z, codes, len(self.classes_), release, randomness)
            return discriminant_metric(moments, self.n_components)

        plan = Plan(
            event=release.noise.event(),
            sensitivity=release.noise.sensitivity,
            run=run,
            mechanism="Gaussian release of class sums, counts and second moment; metric from it",
            proof="head of pairwise.algorithms.moments",
            notes=("classes are protected, since they are part of the record",),
        )
        self.components_ = self._execute(plan, delta, randomness, n)
        self._n_features_out = len(self.components_)
        return self
