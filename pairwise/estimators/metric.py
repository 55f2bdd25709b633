"""``PrivateMetricLearner``: a Mahalanobis metric from individuals and their classes, under differential privacy.

Here lives the choice of algorithm. The algorithms live in ``contrastive_plans``, ``gradient``, ``giga``, ``sgd`` and
``moments``, streams in ``streaming``, what a learned metric is asked in ``mahalanobis``; metrics from lists of pairs live
in ``dpp``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.contrastive import orthonormal_rows
from pairwise.algorithms.contrastive_plans import Individuals, plan_matching
from pairwise.algorithms.gradient import noisy_descent, plan_gradient
from pairwise.algorithms.moments import (
    discriminant,
    moment_proof,
    moment_size,
    plan_moments,
    release_moments,
)
from pairwise.algorithms.options import ConvexOptions, Gradient, Matching, Options, Statistics
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.contrastive import check_contrastive, contrastive_task, unread_with_init
from pairwise.estimators.mahalanobis import MahalanobisMixin
from pairwise.estimators.perturbation import (
    PAIR_LOSS_ALGORITHMS,
    ConvexTask,
    check_request,
    unread_in_mode,
)
from pairwise.estimators.streaming import StreamingEstimator
from pairwise.noise.continuous import check_whole
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.domains import FrobeniusBall, PSDNuclearBall
from pairwise.pairs.sums import MetricPairs
from pairwise.plan import Plan

if TYPE_CHECKING:
    from pairwise.accounting.budget import PrivacyBudget

__all__ = ["PrivateMetricLearner"]

Array = NDArray[np.float64]

_SQUARE = 512  # features up to which the factor is trained square


def _longest_axes(W: Array, k: int) -> Array:
    """Return the k x d factor nearest to W, its longest axes; post-processing."""
    if k >= len(W):
        return W
    _, lengths, axes = np.linalg.svd(W, full_matrices=False)
    return np.asarray(lengths[:k, None] * axes[:k])


class PrivateMetricLearner(
    MahalanobisMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, StreamingEstimator
):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    Classes are protected like features: whether two records are similar is computed from both.

    Parameters
    ----------
    epsilon : float, default=1.0
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    n_components : int, default=16
        Rows of the map; at most d are used. ``gradient`` trains all d (up to 512) and keeps the longest axes. ``init`` of
        ``Matching`` has rows of its own.
    algorithm : str or options, default="auto"
        ``"auto"`` is the one to take: ``Matching()``, contrastive descent on random matchings from a released start, as in
        ``DPPMetricLearner``. Others are for comparison and for streams, as in ``PrivateAUCClassifier``: ``Gradient()``
        descends on a low-rank factor (mechanisms.md 7.1), ``OnPair()``, ``OffPair()``, ``Ftrl()`` and ``SGDOutput()`` learn
        M, ``Statistics()`` takes discriminant directions of one moment release.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it.
    mode : {"sound", "published"}, default="sound"
        ``published`` runs the printed formulas of the GIGA algorithms or of ``sgd-output``, warns, and states what is true
        of them.
    classes : array-like, optional
        Public list of labels; without it the list is read from y and the statement says so.
    preprocessor : (N, d) array-like or callable, optional
        Records that the index pairs of ``pair_distance`` refer to, as in metric-learn. Not learned from; printed by its
        shape, and not pickled with a fitted learner.
    hardened : bool or None, default=None
    allow_large_delta : bool, default=False
    budget : PrivacyBudget, optional
    random_state : int, RandomState or None, default=None
        As in ``PrivateAUCClassifier``.
    **deprecated
        Options of the algorithm.

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

    _algorithms: ClassVar[dict[str, Options]] = {
        **PAIR_LOSS_ALGORITHMS,
        "auto": Matching(),
        "matching": Matching(),
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_components: int = 16,
        *,
        algorithm: str | Options = "auto",
        data_norm: float = 1.0,
        mode: str = "sound",
        classes: Any = None,
        preprocessor: Any = None,
        hardened: bool | None = None,
        allow_large_delta: bool = False,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
        **deprecated: Any,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_components = n_components
        self.algorithm = self._chosen(algorithm, deprecated)
        self.data_norm = data_norm
        self.mode = mode
        self.classes = classes
        self.preprocessor = preprocessor
        self.hardened = hardened
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    # -- fitting

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
        self._check_choices()
        n = len(table)
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._check_labels(self.classes_)
        codes = self._encode(labels)
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta, hardened=self._exact)
        plan = self._plan(table, codes, delta, mu, randomness)
        self._end_stream()
        self._store(self._execute(plan, delta, randomness, n=n))
        return self

    def _store(self, parameter: Array) -> None:
        d = self.n_features_in_
        k = min(int(self.n_components), d)
        factor = isinstance(self._options, Gradient | Matching | Statistics)
        self.components_ = parameter if factor else self._factor(parameter, k)
        self._n_features_out = len(self.components_)

    def _check_choices(self) -> None:
        options = self._options
        check_request(options, self.mode, self.epsilon, kind="metric", hardened=self._exact)
        check_whole("n_components", self.n_components)
        unread = unread_in_mode(options, self.mode)
        if isinstance(options, Matching):
            check_contrastive(options)
            unread |= unread_with_init(options)
        elif not isinstance(options, Gradient):
            unread["clip"] = (
                f"algorithm {options.name!r}, whose gradients in M clipped records bound"
            )
        self._refuse_unread(unread)

    def _check_labels(self, labels: NDArray[Any]) -> None:
        if len(labels) < 2:
            raise InvalidParameterError(
                "a metric needs two classes at least; found one class. Check y."
            )

    def _encode(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.classes_, labels).astype(np.int64)

    def _convex_sums(self, table: Array, codes: NDArray[Any]) -> MetricPairs:
        loss = cast(ConvexOptions, self._options).loss
        return MetricPairs(table, codes, loss, float(self.data_norm), "matrix")

    def _task(self, table: Array, codes: NDArray[Any], n: int, mu: float) -> ConvexTask:
        R = float(self.data_norm)
        radius = cast(ConvexOptions, self._options).radius
        domain = FrobeniusBall(R**-2 if radius is None else float(radius))
        return ConvexTask(
            sums=self._convex_sums(table, codes),
            domain=domain,
            path_length=4.0 * domain.radius / R**2,
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
        options = self._options
        if isinstance(options, Gradient):
            return self._plan_gradient(options, table, codes, k, delta, randomness)
        if isinstance(options, Statistics):
            return self._plan_statistics(table, codes, k, mu, randomness)
        if isinstance(options, Matching):
            return self._plan_matching(options, table, codes, delta, randomness)
        return self._plan_convex(table, codes, delta, mu, randomness)

    def _plan_gradient(
        self,
        options: Gradient,
        table: Array,
        codes: NDArray[np.int64],
        k: int,
        delta: float,
        randomness: Randomness,
    ) -> Plan:
        R = float(self.data_norm)
        clip = R * R if options.clip is None else float(options.clip)
        sums = MetricPairs(table, codes, options.loss, R, "factor", clip, options.device)
        # A random subspace of few dimensions has lost most of what tells the classes apart before the first step, and
        # descent does not bring it back. So the whole space is trained, from the identity, and cut down at the end.
        d = table.shape[1]
        rows = d if d <= _SQUARE else k
        start = orthonormal_rows(rows, d, randomness) / R
        radius = 2.0 * math.sqrt(rows) / R if options.radius is None else float(options.radius)
        domain = FrobeniusBall(radius)
        steps = plan_gradient(
            sums,
            start.shape,
            float(self.epsilon),
            delta,
            path_length=domain.diameter,
            batching=options.batching,  # type: ignore[arg-type]
            batch_size=options.batch_size,
            steps=options.steps,
            rate=options.rate,
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
            assumptions=("the sampled batches stay secret",) if options.batch_size else (),
        )

    def _plan_matching(
        self,
        options: Matching,
        table: Array,
        codes: NDArray[np.int64],
        delta: float,
        randomness: Randomness,
    ) -> Plan:
        R = float(self.data_norm)
        declared = not self._classes_read
        data = Individuals(clip_records(table, R), codes, len(self.classes_), declared)
        task = contrastive_task(
            options,
            epsilon=float(self.epsilon),
            delta=delta,
            data_norm=R,
            n_components=int(self.n_components),
            n_features=table.shape[1],
            exact=self._exact,
        )
        return plan_matching(data, task, randomness)

    def _plan_statistics(
        self, table: Array, codes: NDArray[np.int64], k: int, mu: float, randomness: Randomness
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
            proof=moment_proof(self._exact),
        )

    def _factor(self, M: Array, k: int) -> Array:
        """Return W of rank k with WᵀW nearest to M in the PSD cone; post-processing."""
        bound = max(float(np.abs(np.linalg.eigvalsh((M + M.T) / 2)).sum()), 1e-12)
        values, vectors = np.linalg.eigh(PSDNuclearBall(bound).project(M))
        top = np.argsort(values)[::-1][:k]
        return np.asarray((vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0))).T)
