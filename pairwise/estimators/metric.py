"""``PrivateMetricLearner``: a Mahalanobis metric from individuals and their classes, under differential privacy.

Here lives the choice of algorithm. The algorithms live in ``gradient``, ``giga``, ``sgd`` and ``statistics``, streams in
``streaming``, what a learned metric is asked in ``mahalanobis``; metrics from lists of pairs live in ``dpp``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.gradient import MetricPairs, noisy_descent, plan_gradient
from pairwise.algorithms.moments import discriminant, moment_size, plan_moments, release_moments
from pairwise.errors import InvalidParameter
from pairwise.estimators.base import Plan, refuse_unread
from pairwise.estimators.mahalanobis import MahalanobisMixin
from pairwise.estimators.perturbation import (
    CONVEX_ALGORITHMS,
    CONVEX_OPTIONS,
    ONLINE_ALGORITHMS,
    ConvexTask,
    check_request,
    plan_perturbation,
    unread_in_mode,
)
from pairwise.estimators.streaming import StreamingEstimator
from pairwise.noise.randomness import Randomness
from pairwise.pairs.domains import FrobeniusBall, PSDNuclearBall
from pairwise.pairs.losses import get_loss

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["PrivateMetricLearner"]

Array = NDArray[np.float64]

_ALGORITHMS = ("gradient", *CONVEX_ALGORITHMS, "statistics")
# Which algorithms read what; an option that the chosen one would not read is refused.
_READ_BY = {
    "loss": ("gradient", *CONVEX_ALGORITHMS),
    "clip": ("gradient",),
    "radius": ("gradient", *CONVEX_ALGORITHMS),
    **CONVEX_OPTIONS,
    "steps": ("gradient", "sgd-output"),
    "rate": ("gradient", "offpairc", "sgd-output"),
    "batching": ("gradient",),
    "batch_size": ("gradient",),
    "device": ("gradient",),
}


_SQUARE = 512  # features up to which the factor is trained square


def _orthonormal_rows(rows: int, columns: int, randomness: Randomness) -> Array:
    """Return a data-independent start, shape (rows, columns): the identity if square, else a random subspace."""
    if rows == columns:
        return np.eye(columns)
    basis, _ = np.linalg.qr(randomness.normal((columns, rows)))
    return np.ascontiguousarray(basis.T)


def _longest_axes(W: Array, k: int) -> Array:
    """Return the k x d factor nearest to W, its longest axes; post-processing."""
    if k >= len(W):
        return W
    _, lengths, axes = np.linalg.svd(W, full_matrices=False)
    return np.asarray(lengths[:k, None] * axes[:k])


class PrivateMetricLearner(MahalanobisMixin, TransformerMixin, StreamingEstimator):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    Classes are protected like features: whether two records are similar is computed from both.

    Parameters
    ----------
    epsilon : float, default=1.0
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    n_components : int, default=16
        Rows of the map; at most d are used. ``gradient`` trains all d (up to 512) and keeps the longest axes.
    loss : {"logistic", "hinge", "contrastive"}, default="logistic"
        Metric loss; the contrastive one only for ``gradient``; the GIGA algorithms need the smooth one; ``statistics``
        has none.
    algorithm : str, default="gradient"
        ``gradient``: noisy descent on a low-rank factor (mechanisms.md 7.1). ``onpairstrc``, ``onpairc``: online GIGA
        in M, also by ``partial_fit`` (HUAI algorithms 1, 2). ``offpairstrc``, ``offpairc``: GIGA in M with output
        perturbation (3, 4). ``ftrl``: a private leader on a tree of gradients in M, also by ``partial_fit``.
        ``sgd-output``: blocked SGD in M with output perturbation (YANG algorithm 2). ``statistics``: discriminant
        directions of one moment release.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it.
    mode : {"sound", "published"}, default="sound"
        ``published`` runs the printed formulas of the GIGA algorithms or of ``sgd-output``, warns, and states what is true
        of them.
    clip : float, optional
        Of ``gradient``: bound on one pair's gradient in the factor; default R².
    radius : float, optional
        Frobenius bound on the factor or on M; default √k/R or 1/R².
    classes : array-like, optional
        Public list of labels; without it the list is read from y and the statement says so.
    preprocessor : (N, d) array-like or callable, optional
        Records that the index pairs of ``pair_distance`` refer to, as in metric-learn. Not learned from; printed by its
        shape, and not pickled with a fitted learner.
    alpha, steps, rate, batching, batch_size, horizon, hardened, device, allow_vacuous, track_regret
        As in ``PrivateAUCClassifier``.
    allow_large_delta : bool, default=False
        Accept delta >= 1/n.
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
    >>> from pairwise.estimators.metric import PrivateMetricLearner
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 50, axis=0)
    >>> metric = PrivateMetricLearner(epsilon=2.0, classes=[0, 1]).fit(X, np.repeat([0, 1], 50))
    >>> metric.transform(X).shape, metric.get_mahalanobis_matrix().shape
    ((100, 2), (2, 2))
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_components: int = 16,
        loss: str = "logistic",
        algorithm: str = "gradient",
        data_norm: float = 1.0,
        mode: str = "sound",
        clip: float | None = None,
        radius: float | None = None,
        classes: Any = None,
        preprocessor: Any = None,
        alpha: float | None = None,
        steps: int | None = None,
        rate: float | None = None,
        batching: str = "auto",
        batch_size: int | None = None,
        horizon: int | None = None,
        hardened: bool | None = None,
        device: str = "cpu",
        allow_vacuous: bool = False,
        track_regret: bool = False,
        allow_large_delta: bool = False,
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_components = n_components
        self.loss = loss
        self.algorithm = algorithm
        self.data_norm = data_norm
        self.mode = mode
        self.clip = clip
        self.radius = radius
        self.classes = classes
        self.preprocessor = preprocessor
        self.alpha = alpha
        self.steps = steps
        self.rate = rate
        self.batching = batching
        self.batch_size = batch_size
        self.horizon = horizon
        self.hardened = hardened
        self.device = device
        self.allow_vacuous = allow_vacuous
        self.track_regret = track_regret
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -- fitting

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateMetricLearner:
        """Learn the metric from individuals.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4, dense and finite.
        y : (n,) array-like
            Class labels.
        """
        table, labels = self._check_table(X, y)
        self._check_choices()
        n = len(table)
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._check_labels(self.classes_)
        codes = self._encode(labels)
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta, hardened=self._exact)
        plan = self._plan(table, codes, delta, mu, randomness)
        self._stream = None
        self._store(self._execute(plan, delta, randomness, n=n))
        return self

    def _store(self, parameter: Array) -> None:
        d = self.n_features_in_
        k = min(int(self.n_components), d)
        in_matrix = self.algorithm in CONVEX_ALGORITHMS
        self.components_ = self._factor(parameter, k) if in_matrix else parameter
        self._n_features_out = len(self.components_)

    def _check_choices(self) -> None:
        check_request(
            self.algorithm,
            self.mode,
            self.epsilon,
            smooth=get_loss(self.loss, "metric").smoothness(1.0) is not None,
            hardened=self._exact,
            known=_ALGORITHMS,
        )
        if not isinstance(self.n_components, int | np.integer) or self.n_components < 1:
            raise InvalidParameter(
                f"n_components must be a whole number >= 1; found {self.n_components!r}."
            )
        refuse_unread(self, _READ_BY, unread_in_mode(self.algorithm, self.mode))

    def _check_labels(self, labels: NDArray[Any]) -> None:
        if len(labels) < 2:
            raise InvalidParameter("a metric needs two classes at least; found one class. Check y.")

    def _encode(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.classes_, labels).astype(np.int64)

    def _convex_sums(self, table: Array, codes: NDArray[Any]) -> MetricPairs:
        return MetricPairs(table, codes, self.loss, float(self.data_norm), "matrix")

    def _task(self, table: Array, codes: NDArray[Any], n: int, mu: float) -> ConvexTask:
        R = float(self.data_norm)
        domain = FrobeniusBall(R**-2 if self.radius is None else float(self.radius))
        return ConvexTask(
            sums=self._convex_sums(table, codes),
            domain=domain,
            reach=4.0 * domain.radius / R**2,
            block=max(1, n // 5),
            passes=(4, 20),
        )

    def _plan(
        self,
        table: Array,
        codes: NDArray[np.int64],
        delta: float,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        k = min(int(self.n_components), table.shape[1])
        if self.algorithm == "gradient":
            return self._plan_gradient(table, codes, k, delta, randomness)
        if self.algorithm == "statistics":
            return self._plan_statistics(table, codes, k, mu, randomness)
        request = self._request(delta, mu)
        if self.algorithm in ONLINE_ALGORITHMS:
            return self._stream_plan(table, codes, request, randomness)
        task = self._task(table, codes, len(table), mu)
        return plan_perturbation(task, request, randomness)

    def _plan_gradient(
        self, table: Array, codes: NDArray[np.int64], k: int, delta: float, randomness: Randomness
    ) -> Plan:
        R = float(self.data_norm)
        clip = R * R if self.clip is None else float(self.clip)
        sums = MetricPairs(table, codes, self.loss, R, "factor", clip, str(self.device))
        # A random subspace of few dimensions has lost most of what tells the classes apart before the first step, and
        # descent does not bring it back. So the whole space is trained, from the identity, and cut down at the end.
        d = table.shape[1]
        rows = d if d <= _SQUARE else k
        start = _orthonormal_rows(rows, d, randomness) / R
        radius = 2.0 * math.sqrt(rows) / R if self.radius is None else float(self.radius)
        domain = FrobeniusBall(radius)
        steps = plan_gradient(
            sums,
            start.shape,
            float(self.epsilon),
            delta,
            travel=domain.diameter,
            batching=self.batching,  # type: ignore[arg-type]
            batch_size=self.batch_size,
            steps=self.steps,
            rate=self.rate,
            hardened=self._exact,
        )
        return Plan(
            event=steps.event,
            sensitivity=steps.sensitivity,
            run=lambda: _longest_axes(
                noisy_descent(sums, steps, domain, domain.project(start), randomness), k
            ),
            mechanism=(
                f"noisy pairwise gradient descent on a {rows} x {d} factor ({sums.loss.name}, {steps.batching}, "
                f"{steps.steps} steps)"
            ),
            proof=f"mechanisms.md 7.1, {'2.2' if self._exact else '1.2'}, pair gradients clipped",
            assumptions=("the sampled batches stay secret",) if self.batch_size else (),
        )

    def _plan_statistics(
        self,
        table: Array,
        codes: NDArray[np.int64],
        k: int,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n_classes = len(self.classes_)
        size = moment_size(table.shape[1], n_classes)
        release = plan_moments(mu, size=size, hardened=self._exact)
        R = float(self.data_norm)

        def run() -> Array:
            self.moments_ = release_moments(
                table, codes, n_classes, release, randomness, data_norm=R
            )
            rows, _ = discriminant(self.moments_, min(k, n_classes - 1))
            return rows / R

        return Plan(
            event=release.event,
            sensitivity=release.sensitivity,
            run=run,
            mechanism="Gaussian release of class sums, counts and second moment; discriminant metric from it",
            proof=(
                "mechanisms.md 8.3 B with the replace-one sensitivity of pairwise.algorithms.moments, "
                + ("2.2 and 1.3" if self._exact else "1.1")
            ),
        )

    def _factor(self, M: Array, k: int) -> Array:
        """Return W of rank k with WᵀW nearest to M in the PSD cone; post-processing."""
        bound = max(float(np.abs(np.linalg.eigvalsh((M + M.T) / 2)).sum()), 1e-12)
        values, vectors = np.linalg.eigh(PSDNuclearBall(bound).project(M))
        top = np.argsort(values)[::-1][:k]
        return np.asarray((vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0))).T)

    # -- using

    def transform(self, X: ArrayLike) -> Array:
        """Return W x for records clipped as in training, shape (n, k)."""
        return np.asarray(self._check_records(X) @ self.components_.T)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names privatemetriclearner0, ..."""
        check_is_fitted(self)
        return np.array(
            [f"privatemetriclearner{i}" for i in range(len(self.components_))], dtype=object
        )
