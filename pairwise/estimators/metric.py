"""Metric learners: distances and scores of pairs under a learned M, and ``PrivateMetricLearner`` from classes.

*The metric.* For two classes of equal size the scatter of dissimilar pairs exceeds that of similar ones by exactly δδᵀ, δ
the difference of the class means. So what a contrastive learner looks for in d² noisy numbers is held by d of them and by
the scatter within the classes, which says how much a unit of length is worth in each direction. Of that scatter the d
variances are known far better than the correlations: noise in an entry is √d times smaller than in the matrix. So
features are weighted one by one, and directions across features are used only as far as correlations are known. Class
moments tell nothing of classes that differ in shape alone, so a part of the metric stays Euclidean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.moments import Moments, plan_moments, release_moments
from pairwise.algorithms.plan import FitPlan
from pairwise.errors import InvalidPairsError, InvalidParameterError, check_whole, finite_numbers
from pairwise.estimators.base import (
    PrivateEstimator,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from pairwise.accounting.budget import PrivacyBudget

Array = NDArray[np.float64]

# Share of the expected squared distance that stays Euclidean. How it was found: docs/results/uci.md.
_EUCLIDEAN = 0.25

# How many standard deviations of noise a quantity must exceed before it counts.
_DEVIATIONS = 3.0


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


@dataclass(frozen=True, kw_only=True)
class MetricPlan(FitPlan):
    """One release of class moments, and the metric that follows from it."""

    moments: GaussianPlan
    classes: int
    data_norm: float
    n_components: int | None

    def run(self, records: tuple[Array, NDArray[np.int64]], randomness: Randomness) -> Array:
        """Return W from clipped rows and the place of the class of each."""
        rows, codes = records
        unit = rows / self.data_norm
        moments = release_moments(unit, codes, self.classes, self.moments, randomness)
        return discriminant_metric(moments, self.n_components)


class PrivateMetricLearner(MahalanobisMetric):
    """A linear map under which records of one class are close, under differential privacy (replace-one).

    One release of class sums, counts and second moment; the metric follows from it (``algorithms.moments``).
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
        if len(self.classes_) < 2:
            raise InvalidParameterError(
                "a metric needs two classes at least; found one class. Check y, or pass classes."
            )
        classes, R = len(self.classes_), float(self.data_norm)
        release = plan_moments(release_mu(float(self.epsilon), delta), d, classes)
        plan = MetricPlan(
            moments=release,
            classes=classes,
            data_norm=R,
            n_components=self.n_components,
            event=release.event(),
            sensitivity=release.sensitivity,
            terms=n,
            mechanism="Gaussian release of class sums, counts and second moment; metric from it",
            proof="head of pairwise.algorithms.moments",
            notes=("classes are protected, since they are part of the record",),
        )
        rows, codes = clip_records(table, R), np.searchsorted(self.classes_, labels)
        self.components_ = self._charge_and_run(
            plan, delta, Randomness(self.random_state), (rows, codes)
        )
        self._n_features_out = len(self.components_)
        return self


def discriminant_metric(moments: Moments, n_components: int | None = None) -> Array:
    """Return W with WᵀW = ¼I + ¾c((1 − ρ)I + ρD + Σ_k ρ_k s_k v_k v_kᵀ), shape (n_components, d).

    D is diagonal with D_jj ∝ |β_j|, where β_j = δ_j/σ_j² is the slope in feature j of the discriminant that takes
    features as independent: δ_j the difference of the class means (of many classes, its root mean square), σ_j² the
    variance within a class. Weights by the size of the gradient are those of Kpotufe, Boularias, Schultz, Kim (Gradients
    Weights improve Regression and Classification, JMLR 2016). v_k are the discriminant directions under correlations R
    that are shrunk to (R + rI)/(1 + r), r the size of their noise and sampling error; s_k is such that all of them
    together carry 1/(1 + r) of the expected squared distance within a class that D carries. ρ and ρ_k = max(0, 1 −
    noise/λ) are the shares of the between-class variance λ, in units of the within-class one, that noise and sampling do
    not explain: W is the identity where the release says nothing. c keeps the mean squared distance of two records, for
    which the margin is meant.

    The rows of W are those along which records lie farthest apart; by default d of them, as a symmetric W.
    """
    n, classes = moments.n, len(moments.counts)
    d = moments.second.shape[0]
    counts = np.maximum(moments.counts, 1.0)
    priors, between = moments.priors, moments.between()
    raw = moments.raw_within()
    entry = moments.noise[2] / n
    # Never below its own noise, so that no feature looks narrow by chance; above zero for constant features.
    variances = np.maximum(np.diag(raw), 0.0) + entry + 1e-9
    spreads = np.sqrt(variances)
    # What noise and sampling of the means add to each feature's between-class variance.
    apart = priors * (1.0 - priors)
    error = float((apart * (moments.noise[0] / counts) ** 2).sum())
    error_in_spreads = error / variances + float((apart / counts).sum())
    strengths = np.diag(between) / variances
    # Taken at three standard deviations above its mean: it is like a chi-square with d degrees of freedom.
    unexplained = 1.0 + _DEVIATIONS * math.sqrt(2.0 / d)
    total = float(strengths.sum())
    M = np.eye(d)
    if total > 0:
        share = max(0.0, 1.0 - unexplained * float(error_in_spreads.sum()) / total)
        weights = np.sqrt(np.maximum(strengths - error_in_spreads, 0.0)) / spreads
        carried = float(weights @ variances)
        if carried > 0:
            M *= 1.0 - share
            M += share * np.diag(weights * float(variances.sum()) / carried)
    M += _directions(raw, between, spreads, error_in_spreads * unexplained, entry, n, classes)
    spread = moments.within() + between
    M *= float(np.trace(spread)) / float(np.einsum("ij,ji->", M, spread))
    M = _EUCLIDEAN * np.eye(d) + (1.0 - _EUCLIDEAN) * M
    lengths, basis = np.linalg.eigh((M + M.T) / 2.0)
    root = np.asarray((basis * np.sqrt(np.maximum(lengths, 0.0))) @ basis.T)
    if n_components is None or n_components >= d:
        return root
    # The best approximation of all squared distances by so many rows: principal axes of the transformed records.
    _, axes = np.linalg.eigh(root @ spread @ root)
    return np.ascontiguousarray(axes[:, ::-1][:, :n_components].T @ root)


def _directions(
    raw: Array, between: Array, spreads: Array, error: Array, entry: float, n: int, classes: int
) -> Array:
    """Return Σ_k ρ_k s_k v_k v_kᵀ, shape (d, d); strengths must exceed ``error``, ``entry`` is the noise of a moment / n."""
    d = len(spreads)
    scale = np.outer(spreads, spreads)
    correlations = raw / scale
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    correlations = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # Two errors of the correlations: the spectral norm of their noise, whose entries are larger where spreads are small
    # (at most twice the largest norm of a row of standard deviations), and about √(d/n) of n samples.
    row = entry / math.sqrt(2.0) * math.sqrt(float((1.0 / spreads**2).sum())) / spreads.min()
    ridge = 2.0 * row + math.sqrt(d / n)
    shrunk = (correlations + ridge * np.eye(d)) / (1.0 + ridge)
    values, vectors = np.linalg.eigh(shrunk)
    whiten = vectors / np.sqrt(values)
    strength, axes = np.linalg.eigh(whiten.T @ (between / scale) @ whiten)
    rank = min(classes - 1, d)
    order = np.argsort(strength)[::-1][:rank]
    directions = (whiten @ axes[:, order]) / spreads[:, None]
    floor = float((whiten**2).sum(axis=1) @ error) / max(rank, 1)
    raised = np.zeros((d, d))
    for direction, value in zip(directions.T, strength[order], strict=True):
        share = max(0.0, 1.0 - floor / value) if value > 0 else 0.0
        # Whitened, so that the direction carries 1: the squared length of its axis in units of the spreads.
        raised += share * np.outer(direction, direction)
    known = 1.0 / (1.0 + ridge)
    return known * float((spreads**2).sum()) / max(rank, 1) * raised
