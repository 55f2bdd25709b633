"""``PrivateMetricLearner``: a Mahalanobis metric from individuals and their classes, under differential privacy.

Here live the choice of algorithm, its plan and metric-learn's methods. The algorithms live in ``gradient``,
``giga``, ``sgd`` and ``statistics``; metrics from lists of pairs live in ``dpp``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from pairwise import giga, sgd
from pairwise.accounting import gaussian_event, gaussian_mu
from pairwise.domains import FrobeniusBall, PSDNuclearBall
from pairwise.errors import InvalidPairs, InvalidParameter
from pairwise.estimator import Plan, PrivateEstimator
from pairwise.gradient import MetricPairs, clip_records, noisy_descent, plan_gradient
from pairwise.losses import get_loss
from pairwise.noise import Randomness, gaussian
from pairwise.statistics import discriminant, plan_moments, release_moments

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["PrivateMetricLearner"]

Array = NDArray[np.float64]

_ALGORITHMS = ("gradient", "onpairc", "offpairc", "sgd-output", "statistics")


def _orthonormal_rows(rows: int, columns: int, randomness: Randomness) -> Array:
    """Return a data-independent start, shape (rows, columns): the identity if square, else a random subspace."""
    if rows == columns:
        return np.eye(columns)
    basis, _ = np.linalg.qr(randomness.normal((columns, rows)))
    return np.ascontiguousarray(basis.T)


class PrivateMetricLearner(TransformerMixin, PrivateEstimator):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    Classes are protected like features: whether two records are similar is computed from both.

    Parameters
    ----------
    epsilon : float, default=1.0
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    n_components : int, default=16
        Rows of the map; at most d are used.
    loss : {"logistic", "hinge", "contrastive"}, default="logistic"
        Metric loss; the contrastive one only for ``gradient``; the GIGA algorithms need the smooth one; ``statistics``
        has none.
    algorithm : str, default="gradient"
        ``gradient``: noisy descent on a low-rank factor (mechanisms.md 7.1). ``onpairc``, ``offpairc``: GIGA in
        M (HUAI), ``sgd-output``: blocked SGD in M with output perturbation (YANG). ``statistics``: discriminant
        directions of one moment release.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it.
    clip : float, optional
        Of ``gradient``: bound on one pair's gradient in the factor; default R².
    radius : float, optional
        Frobenius bound on the factor or on M; default √k/R or 1/R².
    classes : array-like, optional
        Public list of labels; without it the list is read from y and the statement says so.
    preprocessor : (N, d) array-like, optional
        Public records that index pairs refer to, as in metric-learn.
    steps, rate, batching, batch_size
        Of ``gradient``, as in ``PrivateAUCClassifier``.
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
    statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.metric import PrivateMetricLearner
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
        clip: float | None = None,
        radius: float | None = None,
        classes: Any = None,
        preprocessor: Any = None,
        steps: int | None = None,
        rate: float | None = None,
        batching: str = "auto",
        batch_size: int | None = None,
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
        self.clip = clip
        self.radius = radius
        self.classes = classes
        self.preprocessor = preprocessor
        self.steps = steps
        self.rate = rate
        self.batching = batching
        self.batch_size = batch_size
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
        if self.algorithm not in _ALGORITHMS:
            raise InvalidParameter(
                f"algorithm must be one of {', '.join(_ALGORITHMS)}; found {self.algorithm!r}."
            )
        if not isinstance(self.n_components, int | np.integer) or self.n_components < 1:
            raise InvalidParameter(
                f"n_components must be a whole number >= 1; found {self.n_components!r}."
            )
        n, d = table.shape
        delta = self._check_settings(n)
        classes = self._check_classes(labels)
        if len(classes) < 2:
            raise InvalidParameter("a metric needs two classes at least; found one class. Check y.")
        codes = np.searchsorted(classes, labels).astype(np.int64)
        randomness = Randomness(self.random_state)
        mu = gaussian_mu(float(self.epsilon), delta)
        k = min(int(self.n_components), d)
        plan = self._plan(table, codes, len(classes), k, delta, mu, randomness)
        self.components_ = self._execute(plan, delta, randomness, n=n)
        self._n_features_out = len(self.components_)
        return self

    def _plan(
        self,
        table: Array,
        codes: NDArray[np.int64],
        n_classes: int,
        k: int,
        delta: float,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        if self.algorithm == "gradient":
            return self._plan_gradient(table, codes, k, delta, randomness)
        if self.algorithm == "statistics":
            return self._plan_statistics(table, codes, n_classes, k, mu, randomness)
        sums = MetricPairs(table, codes, self.loss, float(self.data_norm), "matrix")
        radius = float(self.data_norm) ** -2 if self.radius is None else float(self.radius)
        domain = FrobeniusBall(radius)
        if self.algorithm == "sgd-output":
            return self._plan_sgd(sums, domain, k, mu, randomness)
        return self._plan_giga(sums, domain, k, mu, randomness)

    def _plan_gradient(
        self, table: Array, codes: NDArray[np.int64], k: int, delta: float, randomness: Randomness
    ) -> Plan:
        R = float(self.data_norm)
        clip = R * R if self.clip is None else float(self.clip)
        sums = MetricPairs(table, codes, self.loss, R, "factor", clip)
        start = _orthonormal_rows(k, table.shape[1], randomness) / R
        radius = 2.0 * math.sqrt(k) / R if self.radius is None else float(self.radius)
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
        )
        return Plan(
            event=steps.event,
            sensitivity=steps.sensitivity,
            run=lambda: noisy_descent(sums, steps, domain, domain.project(start), randomness),
            mechanism=(
                f"noisy pairwise gradient descent on a {k} x {table.shape[1]} factor ({sums.loss.name}, {steps.batching}, "
                f"{steps.steps} steps)"
            ),
            proof="mechanisms.md 7.1, 1.2, pair gradients clipped",
            assumptions=("the sampled batches stay secret",) if self.batch_size else (),
        )

    def _plan_statistics(
        self,
        table: Array,
        codes: NDArray[np.int64],
        n_classes: int,
        k: int,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        release = plan_moments(mu)
        R = float(self.data_norm)
        records = clip_records(table, R) / R

        def run() -> Array:
            self.moments_ = release_moments(records, codes, n_classes, release, randomness)
            rows, _ = discriminant(self.moments_, min(k, n_classes - 1))
            return rows / R

        return Plan(
            event=release.event,
            sensitivity=release.sensitivity,
            run=run,
            mechanism="Gaussian release of class sums, counts and second moment; discriminant metric from it",
            proof="mechanisms.md 8.3 B with the replace-one sensitivity of pairwise.statistics, 1.1",
        )

    def _factor(self, M: Array, k: int) -> Array:
        """Return W of rank k with WᵀW nearest to M in the PSD cone; post-processing."""
        bound = max(float(np.abs(np.linalg.eigvalsh((M + M.T) / 2)).sum()), 1e-12)
        values, vectors = np.linalg.eigh(PSDNuclearBall(bound).project(M))
        top = np.argsort(values)[::-1][:k]
        return np.asarray((vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0))).T)

    def _release(self, M: Array, sigma: float, randomness: Randomness) -> Array:
        noisy = gaussian(M, sigma, randomness)
        # Symmetrising is post-processing and halves the dimensions of the noise (mechanisms.md 5.2).
        return np.asarray((noisy + noisy.T) / 2.0)

    def _plan_sgd(
        self,
        sums: MetricPairs,
        domain: FrobeniusBall,
        k: int,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = sums.n, sums.dimension
        R = float(self.data_norm)
        L = sums.loss.smoothness(R)
        sequence = sgd.shuffled_blocks(n, 4 if L is not None else 20, max(1, n // 5), randomness)
        rate = 4.0 * domain.radius / (sequence.steps * R * R)
        if self.rate is not None:
            rate = float(self.rate)
        elif L is not None:
            rate = min(rate, 2.0 / L)
        smooth = L is not None and rate <= 2.0 / L
        weighted, _ = sgd.block_weights(sequence)
        bound = sgd.average_sensitivity(
            float(weighted.max()), sequence.steps, rate, sums.pair_change, smooth=smooth
        )
        bound = min(bound, domain.diameter)

        def run() -> Array:
            average = sgd.blocked_sgd(sums, sequence, rate, domain, np.zeros((d, d)))
            return self._factor(self._release(average, bound / mu, randomness), k)

        return Plan(
            event=gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            sensitivity=bound,
            run=run,
            mechanism=f"blocked pairwise SGD with output perturbation ({sums.loss.name}, {sequence.steps} steps)",
            proof="mechanisms.md 6.3 for the sequence that was drawn, 1.1",
        )

    def _plan_giga(
        self,
        sums: MetricPairs,
        domain: FrobeniusBall,
        k: int,
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = sums.n, sums.dimension
        R = float(self.data_norm)
        L = get_loss(self.loss, "metric").smoothness(R)
        if L is None:
            raise InvalidParameter(
                f"{self.algorithm} needs a smooth loss; found {self.loss!r}. Use loss='logistic'."
            )
        anchor = np.zeros((d, d))
        if self.algorithm == "onpairc":
            alpha = n**-0.25
            steps = giga.schedule(
                n, L, alpha, burn_in=min(giga.sharp_burn_in(L + alpha, alpha), n // 4)
            )
            online = giga.plan_online(steps, sums.pair_change, L, domain.diameter, mu)

            def stream() -> Array:
                run = giga.OnlineGiga(lambda X, y: sums, online, domain, anchor, randomness)
                run.receive(sums.X, sums.labels)
                return self._factor(run.released, k)

            return Plan(
                event=online.event,
                sensitivity=float(online.sensitivities.max()),
                run=stream,
                mechanism=f"onpairc in M, every iterate released, alpha = {alpha:.3g}, horizon {n}",
                proof="mechanisms.md 5.2 (certified recursion), 1.2",
            )
        rate = min(4.0 * domain.radius / (n * R * R), 2.0 / L)
        if self.rate is not None:
            rate = float(self.rate)
        steps = giga.schedule(n, L, 0.0, kind="constant", rate=rate)
        bound = giga.certified_sensitivity(steps, sums.pair_change, L, domain.diameter).average

        def run() -> Array:
            average = giga.offline_giga(sums, steps, domain, anchor)
            return self._factor(self._release(average, bound / mu, randomness), k)

        return Plan(
            event=gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            sensitivity=bound,
            run=run,
            mechanism="pairwise GIGA in M with output perturbation (offpairc)",
            proof="mechanisms.md 5.2 (certified recursion), 1.1",
        )

    # -- using

    def transform(self, X: ArrayLike) -> Array:
        """Return W x for records clipped as in training, shape (n, k)."""
        return np.asarray(self._check_records(X) @ self.components_.T)

    def get_mahalanobis_matrix(self) -> Array:
        """Return M = WᵀW, shape (d, d)."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Array:
        """Return ‖W(x − x')‖ of each pair, shape (m,), for records clipped as in training.

        Parameters
        ----------
        pairs : (m, 2, d) array-like, or (m, 2) indices into ``preprocessor``
        """
        check_is_fitted(self)
        array = np.asarray(pairs)
        if array.ndim == 2 and array.shape[1:] == (2,) and self.preprocessor is not None:
            table = check_array(self.preprocessor, dtype=np.float64)
            if not np.issubdtype(array.dtype, np.integer) or not (
                array.size == 0 or (array.min() >= 0 and array.max() < len(table))
            ):
                raise InvalidPairs(
                    f"index pairs must be whole numbers in 0..{len(table) - 1}; found others."
                )
            array = table[array]
        if array.ndim != 3 or array.shape[1] != 2 or array.shape[2] != self.n_features_in_:
            raise InvalidPairs(
                f"expected pairs of shape (m, 2, {self.n_features_in_}), or (m, 2) indices with preprocessor=X; found "
                f"shape {array.shape}."
            )
        array = np.asarray(array, dtype=np.float64)
        if not np.all(np.isfinite(array)):
            raise InvalidPairs("pairs must be finite; found NaN or infinity.")
        R = float(self.data_norm)
        apart = clip_records(array[:, 0], R) - clip_records(array[:, 1], R)
        return np.asarray(np.linalg.norm(apart @ self.components_.T, axis=1))

    def pair_score(self, pairs: ArrayLike) -> Array:
        """Return minus the distance of each pair, shape (m,), metric-learn's score."""
        return -self.pair_distance(pairs)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names privatemetriclearner0, ..."""
        check_is_fitted(self)
        return np.array(
            [f"privatemetriclearner{i}" for i in range(len(self.components_))], dtype=object
        )
