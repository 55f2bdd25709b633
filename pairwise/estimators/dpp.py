"""``DPPMetricLearner``: private contrastive metric learning from individuals or from an edge list.

What a release costs is decided here: which adjacency, which sensitivity, how much noise, and the statement that says so.
The gradients and what happens to a noisy gradient live in ``pairwise.algorithms.contrastive``, the published forms in
``pairwise.algorithms.published.dpp``, the local baseline in ``pairwise.algorithms.input_perturbation``.

Source: Li, Pan, Sui, Tsang, *Secure Metric Learning via Differential Pairwise Privacy*, as corrected by mechanisms.md
section 4.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from pairwise.accounting.calibration import group_poisson_sigma
from pairwise.accounting.events import (
    Adjacency,
    compose,
    gaussian_event,
    group_poisson_event,
    pure_event,
)
from pairwise.accounting.gaussian import check_privacy_parameters
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.contrastive import DriftDescent, clipped_gradient_sum, orthonormal_rows
from pairwise.algorithms.contrastive_start import discriminant_start
from pairwise.algorithms.input_perturbation import perturb_individuals
from pairwise.algorithms.moments import moment_size, plan_moments, release_moments
from pairwise.algorithms.published.dpp import VARIANTS, Variant, publish, step_sizes, true_epsilon
from pairwise.errors import InvalidPairs, InvalidParameter
from pairwise.estimators.base import (
    check_data_norm,
    check_number,
    numerical_claim,
    refuse_mixed_labels,
    refuse_unread,
    without_seed,
    without_values,
)
from pairwise.estimators.mahalanobis import DroppedTable, MahalanobisMixin, finite_numbers
from pairwise.noise.randomness import CHEAP_PATH_NOTE, Randomness
from pairwise.noise.release import GaussianPlan, plan_gaussian, plan_laplace
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.graph import PairGraph, random_matching
from pairwise.statement import PrivacyStatement, UnsoundWarning

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.accounting.budget import PrivacyBudget

__all__ = ["DPPMetricLearner"]

Algorithm = Literal["edges", "matching", "pure", "node-dp", "input-perturbation"]
_ALGORITHMS = ("edges", "matching", "pure", "node-dp", "input-perturbation")
_OF_PAIRS = ("edges", "pure", "node-dp")
# Which algorithms read what in sound mode; an option that the chosen one would not read is refused. ``hardened`` is none of
# them: Laplace noise is always drawn exactly, so what it asks for is met.
_READ_BY = {
    "kappa": _OF_PAIRS,
    "topology": _OF_PAIRS,
    "relationship": ("edges", "pure"),
    "sampling_rate": ("edges", "node-dp"),
    "n_batches": ("pure", "node-dp"),
    "start_share": ("matching",),
    "classes": ("matching", "input-perturbation"),
    "shrinkage": ("matching", *_OF_PAIRS),
    "variant": (),
    "batch_size": (),
}
_UNREAD_AS_PUBLISHED = (
    "algorithm",
    "sampling_rate",
    "n_batches",
    "shrinkage",
    "start_share",
    "classes",
)
_OF_INDIVIDUALS = ("matching", "input-perturbation")
_NOISE = {
    "edges": ("gaussian",),
    "matching": ("gaussian",),
    "pure": ("laplace",),
    "node-dp": ("gaussian", "laplace"),
    "input-perturbation": ("laplace",),
}
_PUBLISHED_NOISE = {
    "dpp_thm1": "laplace",
    "dpp_s": "laplace",
    "scdf": "staircase",
    "duchi": "duchi",
}

# Share of the squared noise ratio 1/z² that an adaptive clip spends on learning where the norms lie. The count it needs
# is one number against d·d' of the gradient, so a twentieth leaves it far more precise than the gradient.
_CLIP_SHARE = 0.05
_CLIP_RATE = 0.2
_CLIP_QUANTILE = 0.5

# D of a descent from a released start, over the length of W. Fixed on sets of other origin than those of the results
# (docs/results/uci.md).
_REACH = 0.25


@dataclass(frozen=True)
class _Pairs:
    """Pairs as the algorithms use them: clipped points, indices into them, and which pairs are dissimilar."""

    points: NDArray[np.float64]
    index: NDArray[np.int64]
    dissimilar: NDArray[np.bool_]
    graph: PairGraph | None = None


@dataclass(frozen=True)
class _Release:
    """Everything about a release that is fixed before any noise is drawn."""

    event: DpEvent
    adjacency: Adjacency
    unit: str
    sensitivity: float
    statement: PrivacyStatement
    run: Callable[[Randomness], NDArray[np.float64]]


@dataclass(frozen=True)
class _StepNoise:
    """Noise of one step, in units of the clip C, which may move.

    Attributes
    ----------
    factor : float
        How many clips a neighbour moves the sum of clipped gradients by.
    mu : float
        What a step may cost; infinity for no noise.
    dimension : int
        Entries of the sum.
    exact : bool
        Noise on a grid.
    adaptive : bool
        Whether a count is released beside the sum. Their μ² add up to that of the step.
    """

    factor: float
    mu: float
    dimension: int
    exact: bool = False
    adaptive: bool = False

    def gradient(self, clip: float) -> GaussianPlan:
        """Return the release of a sum of gradients clipped to ``clip``."""
        mu = self.mu * math.sqrt(1.0 - _CLIP_SHARE) if self.adaptive else self.mu
        return plan_gaussian(self.factor * clip, mu, self.dimension, hardened=self.exact)

    def count(self) -> GaussianPlan:
        """Return the release of the votes ±½ for a larger or smaller clip (mechanisms.md 4.3 B)."""
        mu = self.mu * math.sqrt(_CLIP_SHARE)
        return plan_gaussian(self.factor / 2.0, mu, 1, hardened=self.exact)


class DPPMetricLearner(
    MahalanobisMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Learn a Mahalanobis metric M = WᵀW by private contrastive gradient descent.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one fit, > 0; ``float("inf")`` is the non-private reference.
    delta : float, default=1e-5
        Below one over the number of individuals (or of pairs, with an edge list). Not used by the pure algorithms.
    kappa : int or None, default=None
        With an edge list: how many pairs may change together, a declared public bound. It protects an *individual* only
        if nobody can be in more than kappa pairs. May be left out if the topology is public; with ``"node-dp"`` it is the
        declared degree cap.
    n_components : int or None, default=None
        d', the rows of W; at most d. None: d, which starts at the Euclidean metric.
    noise : {"gaussian", "laplace", "staircase", "duchi"} or None, default=None
        None: what the algorithm needs, Gaussian for (ε, δ) and Laplace for pure ε. Staircase and Duchi exist in
        published mode only, for the comparison with the paper (mechanisms.md DPP-4, DPP-5).
    algorithm : {"edges", "matching", "pure", "node-dp", "input-perturbation"}, default="edges"
        ``"matching"``: ``fit(X, y)`` with individuals and classes; every step pairs all of them by a fresh random perfect
        matching, so an individual is in one pair a step and no graph quantity matters (mechanisms.md 4.3 A). Protects
        individuals, classes included; the one to choose when individuals are given.
        ``"edges"``: ``fit(pairs, y)``; noisy gradient descent on the edge list, accounted for groups of ``kappa`` pairs
        (4.3 B).
        ``"pure"``: the same with exact discrete Laplace noise and δ = 0 (4.3 C).
        ``"node-dp"``: the baseline that charges ``kappa`` = a declared degree cap, with Gaussian noise as in ``"edges"``
        or with ``noise="laplace"`` as in ``"pure"`` (DPP-13).
        ``"input-perturbation"``: ``fit(X, y)``; the baseline that perturbs each individual once (DPP-13).
    mode : {"sound", "published"}, default="sound"
        ``"published"``: the paper's Algorithm 1 on an edge list. Warns; the statement says what is true.
    variant : {"dpp_thm1", "dpp_s", "scdf", "duchi"}, default="dpp_thm1"
        Which noise of the paper, in published mode.
    adjacency : {"zero-out", "replace-one"} or None, default=None
        With an edge list: whether the kappa pairs are removed (default) or changed in place, at twice the noise; in-place
        change needs ``sampling_rate=1``. ``"matching"`` and ``"input-perturbation"`` always mean replace-one.
    topology : {"private", "public"}, default="private"
        Whether it is public *who is paired with whom*. If it is, the statement says so, and a kappa below the true bound
        of the graph is refused.
    relationship : {"transitive", "intransitive"}, default="transitive"
        What a public topology implies for kappa: in classes similarity travels along paths, among friends it does not.
    margin : float or None, default=None
        m of the contrastive loss, public. None: √2 · ``data_norm``, the distance of two orthogonal records at the bound.
    data_norm : float, default=1.0
        Every record is clipped to this l2 norm (l1 in published mode and for input perturbation). Scale features by
        public bounds first.
    clip : float or None, default=None
        Norm to which the gradient of each pair is clipped, as a whole matrix: Frobenius, or l1 with Laplace noise. None:
        a tenth of ``data_norm``², small enough to bind for most pairs, so that a pair counts by its direction; 0.5, the
        paper's h, in published mode.
    adaptive_clip : bool, default=False
        Move ``clip`` towards the median gradient norm by a noisy count at every step, paid from the same budget
        (Andrew et al. 2021). Gaussian noise only.
    hardened : bool or None, default=None
        Draw Gaussian noise exactly on a grid (mechanisms.md 2.2), so that the guarantee holds to the last bit released, for
        about 8 % more noise. None: wherever it is defined, which is not with ``sampling_rate`` < 1 or in published mode.
        False: floating-point noise, proved in real arithmetic only. Laplace noise is always exact.
    n_steps : int, default=10
        Gradient steps; epochs (T_max) with Laplace noise and in published mode.
    sampling_rate : float, default=1.0
        With ``"edges"`` and ``"node-dp"``: chance of each pair to enter a step. 1 uses every pair in every step, which
        gives the least noise for what it costs in time; smaller rates are faster per step.
    n_batches : int, default=1
        With Laplace noise: disjoint batches per epoch, to which pairs are assigned by coins independent of the data.
    batch_size : int, default=50
        |B| of the published algorithm.
    learning_rate : float or None, default=None
        Factor on the noisy mean gradient, in units of ``clip`` and divided by √``n_steps``. None: 60, or from public
        numbers and the length of W where a release gave the start; in published mode 1, with the step size 1/√τ.
    shrinkage : bool, default=True
        Use of the noisy walk only what exceeds noise of the same size. Post-processing: without it W is the plain sum of
        noisy steps. Without noise nothing is shrunk.
    init : ndarray of shape (n_components, n_features) or None, default=None
        Public start of W. None: what ``start_share`` pays for, or the identity, or random orthonormal rows if
        ``n_components`` < d.
    start_share : float, default=0.8
        With ``"matching"`` and no ``init``: share of μ² for one release of class moments, from which W starts
        (``pairwise.algorithms.contrastive_start``). 0 starts at a public W and spends all on the descent.
    classes : sequence or None, default=None
        Public list of classes, needed by ``"input-perturbation"``, whose randomised response draws from it. For the start
        of ``"matching"`` it is otherwise read from y, and the statement says so. With C known classes a dissimilar pair
        counts 1/(C − 1) times as much as a similar one, since it is that much more frequent.
    preprocessor : array-like of shape (n, d), callable or None, default=None
        Points that (m, 2) index pairs refer to (metric-learn's convention). They are private, so ``fit`` replaces them by
        their shape, which is then what ``get_params``, ``clone``, pickles and the printed form hold. To fit again, or
        to ask ``pair_distance`` of indices, set it again: ``set_params(preprocessor=X)``. This departs from
        scikit-learn's rule that ``fit`` leaves settings alone, so that a model can be handed on without its data. Cloning
        before the fit, as searches do, works as ever.
    budget : PrivacyBudget or None, default=None
        Charged before any noise is drawn.
    random_state : int, Generator, RandomState or None, default=None
        None draws from the operating system. Anything else is for experiments, and the statement says so.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        W.
    statement_ : PrivacyStatement
    privacy_event_ : DpEvent
        As ``pairwise.accounting`` reads it under ``statement_.adjacency``.
    kappa_ : int or None
        Group size that was used.
    noise_scale_ : float or None
        Standard deviation (Gaussian) or scale (Laplace) on the sum of clipped gradients, in units of the clip; None if
        the noise is not of this form.
    n_features_in_ : int

    Raises
    ------
    InvalidParameter, InvalidPairs
        Both ``ValueError``; they say what was expected, what was found and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import DPPMetricLearner
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3)) * [0.1, 0.5, 0.5]
    >>> y = (X[:, 0] > 0).astype(int)
    >>> learner = DPPMetricLearner(epsilon=1.0, algorithm="matching", random_state=0).fit(X, y)
    >>> learner.transform(X).shape
    (400, 3)
    >>> learner.statement_.unit
    'one record'
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        kappa: int | None = None,
        n_components: int | None = None,
        *,
        noise: str | None = None,
        algorithm: str = "edges",
        mode: str = "sound",
        variant: str = "dpp_thm1",
        adjacency: str | None = None,
        topology: str = "private",
        relationship: str = "transitive",
        margin: float | None = None,
        data_norm: float = 1.0,
        clip: float | None = None,
        adaptive_clip: bool = False,
        hardened: bool | None = None,
        n_steps: int = 10,
        sampling_rate: float = 1.0,
        n_batches: int = 1,
        batch_size: int = 50,
        learning_rate: float | None = None,
        shrinkage: bool = True,
        init: ArrayLike | None = None,
        start_share: float = 0.8,
        classes: Any = None,
        preprocessor: Any = None,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.kappa = kappa
        self.n_components = n_components
        self.noise = noise
        self.algorithm = algorithm
        self.mode = mode
        self.variant = variant
        self.adjacency = adjacency
        self.topology = topology
        self.relationship = relationship
        self.margin = margin
        self.data_norm = data_norm
        self.clip = clip
        self.adaptive_clip = adaptive_clip
        self.hardened = hardened
        self.n_steps = n_steps
        self.sampling_rate = sampling_rate
        self.n_batches = n_batches
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.shrinkage = shrinkage
        self.init = init
        self.start_share = start_share
        self.classes = classes
        self.preprocessor = preprocessor
        self.budget = budget
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        return without_seed(dict(super().__getstate__()))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if not self._of_individuals:
            tags.input_tags.three_d_array = True
            tags.input_tags.two_d_array = False
        return tags

    kappa_: int | None
    noise_scale_: float | None
    components_: NDArray[np.float64]

    # ----------------------------------------------------------------------------------------------------------------
    # Fitting

    def fit(self, X: Any, y: Any) -> DPPMetricLearner:
        """Learn W.

        Parameters
        ----------
        X : array-like
            Individuals of shape (n, d) for ``"matching"`` and ``"input-perturbation"``. Otherwise pairs: (m, 2, d)
            points, or (m, 2) indices into ``preprocessor``. Points that are equal in all features count as one
            individual; give indices if several individuals may be equal.
        y : array-like
            Class of each individual, or +1 (similar) / −1 (dissimilar) for each pair.

        Returns
        -------
        self
        """
        self._check_parameters()
        randomness = Randomness(self.random_state)
        if self._of_individuals:
            points, classes = self._individuals(X, y)
            plan = self._plan_matching if self.algorithm == "matching" else self._plan_perturbation
            release = plan(points, classes)
        else:
            pairs = self._edge_list(X, y)
            if self.mode == "published":
                release = self._plan_published(pairs)
            elif self._noise == "laplace":
                release = self._plan_pure(pairs)
            else:
                release = self._plan_edges(pairs)
        if self.budget is not None:
            self.budget.charge(
                release.event,
                label=f"DPPMetricLearner({self.algorithm})",
                adjacency=release.adjacency,
                unit=release.unit,
            )
        if self.mode == "published":
            warnings.warn(
                f"mode='published', variant={self.variant!r} does not guarantee epsilon = {self.epsilon:g}. "
                f"What is true: {release.statement.paragraph()}",
                UnsoundWarning,
                stacklevel=2,
            )
        note = randomness.note
        # A seed is for experiments: whoever knows or guesses it takes the noise off again, so nothing is proved.
        seeded = note is not None and release.statement.epsilon != math.inf
        self.statement_ = release.statement.extended(
            notes=(note,) if note and seeded else (), proved=False if seeded else None
        )
        self.privacy_event_ = release.event
        self._sensitivity = release.sensitivity
        self.components_ = release.run(randomness)
        self._n_features_out = len(self.components_)
        if self.preprocessor is not None:
            self.preprocessor = DroppedTable.of(self.preprocessor)
        return self

    # -- settings

    @property
    def _clip_order(self) -> int:
        return 1 if self.mode == "published" or self.algorithm == "input-perturbation" else 2

    @property
    def _of_individuals(self) -> bool:
        return self.algorithm in _OF_INDIVIDUALS and self.mode != "published"

    @property
    def _exact(self) -> bool:
        """Whether Gaussian noise is drawn on a grid."""
        if self.hardened is None:
            return self.mode == "sound" and self.sampling_rate == 1
        return bool(self.hardened)

    @property
    def _noise(self) -> str:
        if self.mode == "published":
            return _PUBLISHED_NOISE[self.variant]
        return self.noise or _NOISE[self.algorithm][0]

    def _check_parameters(self) -> None:
        _check_choice("mode", self.mode, ("sound", "published"))
        _check_choice("algorithm", self.algorithm, _ALGORITHMS)
        _check_choice("variant", self.variant, VARIANTS)
        _check_choice("topology", self.topology, ("private", "public"))
        _check_choice("relationship", self.relationship, ("transitive", "intransitive"))
        _check_choice("adjacency", self.adjacency, (None, "zero-out", "replace-one"))
        _check_choice("noise", self.noise, (None, "gaussian", "laplace", "staircase", "duchi"))
        if self.mode == "published":
            allowed: tuple[str, ...] = (_PUBLISHED_NOISE[self.variant],)
            place = f"variant {self.variant!r}"
        else:
            allowed, place = _NOISE[self.algorithm], f"algorithm {self.algorithm!r}"
        if self.noise is not None and self.noise not in allowed:
            raise InvalidParameter(
                f"noise for {place} must be {' or '.join(allowed)}; found {self.noise!r}. Laplace noise belongs to "
                "algorithm='pure'; staircase and Duchi noise to mode='published'."
            )
        for name in ("epsilon", "delta", "data_norm", "start_share"):
            check_number(name, getattr(self, name))
        if not 0 <= self.start_share < 1:
            raise InvalidParameter(
                f"start_share must be in [0, 1); found {self.start_share!r}. It is the share of the budget for the start."
            )
        check_data_norm(self.data_norm)
        for name in ("margin", "clip", "learning_rate", "sampling_rate"):
            value = getattr(self, name)
            if value is None and name != "sampling_rate":
                continue
            check_number(name, value)
            if not (math.isfinite(value) and value > 0):
                raise InvalidParameter(f"{name} must be a positive finite number; found {value!r}.")
        if self.sampling_rate > 1:
            raise InvalidParameter(
                f"sampling_rate must be in (0, 1]; found {self.sampling_rate!r}."
            )
        for name in ("n_steps", "n_batches", "batch_size", "kappa", "n_components"):
            value = getattr(self, name)
            if value is None and name in ("kappa", "n_components"):
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise InvalidParameter(f"{name} must be a whole number >= 1; found {value!r}.")
        if self.adaptive_clip and (self._noise != "gaussian" or self.mode == "published"):
            raise InvalidParameter(
                "adaptive_clip needs Gaussian noise, with which the count and the gradient are accounted together. "
                "Set clip, or use algorithm='matching' or 'edges'."
            )
        if self.hardened and (self.sampling_rate < 1 or self.mode == "published"):
            raise InvalidParameter(
                "hardened noise is accounted for all pairs in every step; found hardened=True with sampling_rate < 1 or "
                "mode='published'. Leave one of them out."
            )
        self._refuse_unread()
        if self.mode == "published" and not self.epsilon > 0:
            raise InvalidParameter(f"epsilon must be > 0; found {self.epsilon!r}.")
        if (self._of_individuals or self.mode == "published") and self.adjacency == "zero-out":
            raise InvalidParameter(
                f"algorithm {self.algorithm!r} in mode {self.mode!r} is for replace-one; found adjacency 'zero-out'. "
                "Leave adjacency out."
            )

    def _refuse_unread(self) -> None:
        unread: dict[str, str] = {}
        if self.init is not None:
            unread |= dict.fromkeys(("start_share", "n_components"), "init, which is the start")
        if self.topology == "private":
            unread["relationship"] = "topology='private', where kappa is declared"
        if self.mode == "published":
            unread |= dict.fromkeys(_UNREAD_AS_PUBLISHED, "mode='published'")
            refuse_unread(self, {}, unread)
            return
        if self._noise == "laplace":
            unread["sampling_rate"] = "Laplace noise"
        else:
            unread["n_batches"] = "Gaussian noise"
        refuse_unread(self, _READ_BY, unread)

    def _check_privacy(self, n: int) -> None:
        pure = self._noise != "gaussian"
        # A pure guarantee holds for every delta, so the user's delta is not judged where it is not used.
        check_privacy_parameters(
            self.epsilon, 0.0 if pure else self.delta, None if pure else n, allow_pure=pure
        )

    @property
    def _clip(self) -> float:
        if self.clip is not None:
            return float(self.clip)
        return 0.5 if self.mode == "published" else 0.1 * float(self.data_norm) ** 2

    @property
    def _margin(self) -> float:
        return math.sqrt(2.0) * self.data_norm if self.margin is None else float(self.margin)

    @property
    def _step(self) -> float:
        rate = 60.0 if self.learning_rate is None else float(self.learning_rate)
        return rate / math.sqrt(self.n_steps)

    def _start(self, randomness: Randomness) -> NDArray[np.float64]:
        d = self.n_features_in_
        k = d if self.n_components is None else min(int(self.n_components), d)
        if self.init is None:
            return orthonormal_rows(k, d, randomness)
        start = np.array(self.init, dtype=np.float64)
        if start.ndim != 2 or start.shape[1] != d or not np.all(np.isfinite(start)):
            raise InvalidParameter(
                f"init must be a finite matrix with {d} columns; found shape {start.shape}. "
                "It must be public: nothing computed from the private records."
            )
        return start

    # -- inputs

    def _individuals(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
        refuse_mixed_labels(y)
        try:
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        except ValueError as error:
            raise without_values(error, X) from None
        if self.preprocessor is not None:
            raise InvalidPairs(
                f"algorithm {self.algorithm!r} learns from individuals; found a preprocessor. "
                "Pass the points themselves and their classes, or use algorithm='edges'."
            )
        self._check_privacy(len(X))
        return X, column_or_1d(y)

    def _edge_list(self, X: Any, y: Any) -> _Pairs:
        points, index = self._points_and_index(X)
        signs = _pair_signs(y, len(index))
        self.n_features_in_ = points.shape[1]
        self._check_privacy(len(index))
        graph = PairGraph(index, len(points))
        return _Pairs(self._clipped(points), index, signs < 0, graph)

    def _points_and_index(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if hasattr(X, "toarray"):
            raise InvalidPairs(
                "pairs must be a dense array; found a sparse one. Pass (m, 2) indices and preprocessor=."
            )
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
        if array.ndim == 3 and array.shape[1] == 2:
            if array.shape[2] == 0 or len(array) == 0:
                raise InvalidPairs(f"pairs must not be empty; found shape {array.shape}.")
            flat = finite_numbers(array).reshape(-1, array.shape[2])
            points, codes = _distinct_rows(flat)
            return points, codes.reshape(-1, 2)
        if array.ndim == 2 and array.shape[1] == 2 and self.preprocessor is not None:
            if len(array) == 0:
                raise InvalidPairs("pairs must not be empty; found none.")
            return self._looked_up(array)
        raise InvalidPairs(
            f"algorithm {self.algorithm!r} learns from pairs of shape (m, 2, d), or (m, 2) indices with preprocessor=; "
            f"found shape {array.shape}. For individuals and their classes use algorithm='matching'."
        )

    def _looked_up(self, array: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        index = PairGraph(array).pairs
        table = self._table()
        if not callable(table):
            if index.max() >= len(table):
                raise InvalidPairs(
                    f"indices must be below the {len(table)} rows of preprocessor; found larger ones."
                )
            return table, index
        used, codes = np.unique(index, return_inverse=True)
        points = finite_numbers(np.asarray(table(used)))
        if points.ndim != 2 or len(points) != len(used):
            raise InvalidPairs(
                f"preprocessor must return one row for each of {len(used)} indices; found shape {points.shape}."
            )
        return points, codes.reshape(index.shape)

    def _group_size(self, pairs: _Pairs) -> int:
        """Return κ: declared, or computed from a topology that is public."""
        node = self.algorithm == "node-dp" and self.mode == "sound"
        if self.topology == "private":
            if self.kappa is None and not math.isfinite(self.epsilon):
                return 1
            if self.kappa is None:
                raise InvalidParameter(
                    "kappa must be declared when the topology is private: computed from the pairs it would reveal them "
                    "(mechanisms.md DPP-3). Give a public bound on how many pairs change together"
                    + (", here the degree cap." if node else ", or topology='public' if it is.")
                )
            return int(self.kappa)
        assert pairs.graph is not None
        relationship = cast(Literal["transitive", "intransitive"], self.relationship)
        true = pairs.graph.max_degree if node else pairs.graph.kappa_bound(relationship)
        if self.kappa is not None and self.kappa < true:
            raise InvalidParameter(
                f"kappa must be at least {true}, the {'largest degree' if node else 'bound'} of the public topology; "
                f"found {self.kappa}. Raise kappa, or leave it out to use {true}."
            )
        return true if self.kappa is None else int(self.kappa)

    # -- releases

    def _descend(
        self,
        randomness: Randomness,
        noise: _StepNoise | None,
        batch: float,
        draw: Callable[[], tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]],
        start: NDArray[np.float64] | None = None,
        classes: int = 2,
    ) -> NDArray[np.float64]:
        """Run noisy gradient descent; ``batch`` is the public normaliser.

        ``noise`` is None where the pairs were released already. ``start`` is a released W, and ``classes`` the public number
        of classes.
        """
        step, clip = self._step, self._clip
        self.noise_scale_ = None if noise is None else noise.gradient(clip).sigma / clip
        if start is None:
            start = self._start(randomness)
        elif self.learning_rate is None:
            # η = D/√(T(G² + pσ²)) of mechanisms.md 7.1 in units of the clip, D a share of the length of W: a start that
            # knows the direction needs no long way.
            spread = start.size * ((self.noise_scale_ or 0.0) / batch) ** 2
            reach = _REACH * float(np.linalg.norm(start))
            step = reach / math.sqrt(self.n_steps * (1.0 + spread))
        # A random pair is dissimilar C − 1 times as often as similar; the paper's lists hold as many of either.
        dissimilar_share = 1.0 / max(1, classes - 1)
        walk = DriftDescent(start, step, shrinkage=self.shrinkage, randomness=randomness)
        for _ in range(self.n_steps):
            points, index, dissimilar = draw()
            total, norms = clipped_gradient_sum(
                walk.W,
                points,
                index,
                dissimilar,
                margin=self._margin,
                clip=clip,
                dissimilar_share=dissimilar_share,
            )
            if noise is None:
                walk.descend(total / (batch * clip), 0.0)
                continue
            once = noise.gradient(clip)
            walk.descend(
                once.release(total, randomness) / (batch * clip), once.sigma / (batch * clip)
            )
            if noise.adaptive:
                votes = np.array(float(np.sum((norms <= clip) - 0.5)))
                below = 0.5 + float(noise.count().release(votes, randomness)) / batch
                # A noisy share of norms below the clip may lie far outside [0, 1]; cut to it, the clip does not leap.
                clip *= math.exp(-_CLIP_RATE * (min(max(below, 0.0), 1.0) - _CLIP_QUANTILE))
        return walk.W

    def _factor_size(self) -> int:
        """Return the number of entries of W."""
        d = self.n_features_in_
        rows = d if self.n_components is None else min(int(self.n_components), d)
        if self.init is not None:
            rows = len(np.asarray(self.init))
        return rows * d

    def _all_pairs_noise(self, factor: float, share: float = 1.0) -> tuple[_StepNoise, DpEvent]:
        """Return the noise of a step whose sum moves by ``factor`` clips, and the event of all steps.

        ``share`` of μ² is spent.
        """
        mu = release_mu(self.epsilon, self.delta, hardened=self._exact) * math.sqrt(share)
        noise = _StepNoise(
            factor,
            mu / math.sqrt(self.n_steps),
            self._factor_size(),
            exact=self._exact,
            adaptive=bool(self.adaptive_clip),
        )
        # The event is the same for every clip: σ is proportional to it.
        events = [noise.gradient(self._clip).event(self.n_steps)]
        if self.adaptive_clip:
            events.append(noise.count().event(self.n_steps))
        private = math.isfinite(self.epsilon)
        return noise, compose(events) if private and len(events) > 1 else events[0]

    def _plan_matching(self, X: NDArray[np.float64], classes: NDArray[Any]) -> _Release:
        """4.3 A: a fresh matching of slots each step; replacing an individual changes one clipped gradient, by 2C."""
        n, half = len(X), len(X) // 2
        self.kappa_ = None
        points = clip_records(X, self.data_norm)
        # One class only is not refused: whether there is a second one is a fact about the records.
        codes = _class_codes(classes)
        spent = float(self.start_share) if self.init is None else 0.0
        # The sum has sensitivity 2C under replace-one.
        noise, event = self._all_pairs_noise(2.0, 1.0 - spent)
        first: Callable[[Randomness], NDArray[np.float64]] | None = None
        exposed: tuple[str, ...] = ()
        count = 2
        if self.classes is not None:
            codes, count = _public_codes(classes, self.classes)
        elif spent:
            count = int(codes.max()) + 1
            exposed = ("which classes occur, since the list of classes was read from y",)
        if spent:
            first, cost = self._plan_start(points, codes, count, spent)
            event = compose([cost, event]) if math.isfinite(self.epsilon) else event

        def run(randomness: Randomness) -> NDArray[np.float64]:
            def draw() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
                index = random_matching(n, randomness)
                return points, index, codes[index[:, 0]] != codes[index[:, 1]]

            start = None if first is None else first(randomness)
            return self._descend(randomness, noise, float(half), draw, start, count)

        return _Release(
            event=event,
            adjacency=Adjacency.REPLACE_ONE,
            unit="one record",
            sensitivity=2.0 * self._clip,
            statement=self._statement(
                f"contrastive metric learning on random matchings ({self.n_steps} steps, Gaussian noise"
                + (", started from class moments)" if spent else ")"),
                Adjacency.REPLACE_ONE,
                "one record",
                proof="mechanisms.md 4.3 A and 1.2: each record is in at most one clipped pair a step"
                + (
                    "; the start by 8.3 B with the sensitivity of pairwise.algorithms.moments"
                    if spent
                    else ""
                ),
                assumptions=("the number of records is public",),
                not_protected=exposed,
                notes=("classes are protected, since they are part of the record",),
                records=n,
            ),
            run=run,
        )

    def _plan_start(
        self,
        points: NDArray[np.float64],
        codes: NDArray[np.int64],
        count: int,
        share: float,
    ) -> tuple[Callable[[Randomness], NDArray[np.float64]], DpEvent]:
        """Return the release of class moments that gives the first W, and its cost; ``count`` classes are public."""
        mu = release_mu(self.epsilon, self.delta, hardened=self._exact) * math.sqrt(share)
        size = moment_size(points.shape[1], count)
        plan = plan_moments(mu, size=size, hardened=self._exact)

        def run(randomness: Randomness) -> NDArray[np.float64]:
            moments = release_moments(
                points, codes, count, plan, randomness, data_norm=float(self.data_norm)
            )
            return discriminant_start(moments, self.n_components)

        return run, plan.event

    def _edge_adjacency(self) -> tuple[Adjacency, float]:
        """Return the adjacency of an edge list and how far one pair moves a sum, in units of the clip."""
        if self.adjacency == "replace-one":
            return Adjacency.REPLACE_ONE, 2.0
        return Adjacency.ZERO_OUT, 1.0

    def _edge_unit(self, kappa: int) -> str:
        if self.algorithm == "node-dp":
            return "all pairs of one individual"
        return "any one pair" if kappa == 1 else f"any {kappa} pairs"

    def _plan_edges(self, pairs: _Pairs) -> _Release:
        """4.3 B: every pair enters a step by its own coin; kappa clipped gradients move the sum by at most kappa C."""
        kappa = self.kappa_ = self._group_size(pairs)
        adjacency, factor = self._edge_adjacency()
        q, steps, m = float(self.sampling_rate), int(self.n_steps), len(pairs.index)
        unit = self._edge_unit(kappa)
        if q == 1.0:
            noise, event = self._all_pairs_noise(factor * kappa)
        elif adjacency is Adjacency.REPLACE_ONE:
            raise InvalidParameter(
                "adjacency='replace-one' needs sampling_rate = 1: groups of sampled pairs are accounted for zero-out only. "
                "Use zero-out (a changed pair then costs (2ε, (1 + e^ε)δ)) or sampling_rate=1."
            )
        else:
            # z = σ/C of sum and count together.
            z = group_poisson_sigma(self.epsilon, self.delta, kappa, q, steps)
            event = group_poisson_event(z, kappa, q, steps)
            noise = _StepNoise(
                kappa,
                kappa / z if z > 0 else math.inf,
                self._factor_size(),
                adaptive=bool(self.adaptive_clip),
            )

        def run(randomness: Randomness) -> NDArray[np.float64]:
            def draw() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
                if q == 1.0:
                    return pairs.points, pairs.index, pairs.dissimilar
                chosen = randomness.uniform(m) < q
                return pairs.points, pairs.index[chosen], pairs.dissimilar[chosen]

            return self._descend(randomness, noise, q * m, draw)

        sampling = "all pairs" if q == 1.0 else f"Poisson sampling at rate {q:g}"
        return _Release(
            event=event,
            adjacency=adjacency,
            unit=unit,
            sensitivity=factor * kappa * self._clip,
            statement=self._statement(
                f"contrastive metric learning on an edge list ({steps} steps, {sampling}, Gaussian noise, kappa = {kappa})",
                adjacency,
                unit,
                proof="mechanisms.md 4.3 B; groups of pairs by 1.2 (all pairs) or 1.4 (mixtures of Gaussians)",
                assumptions=self._edge_assumptions(kappa)
                + (() if q == 1.0 else ("the sampling coins are secret and independent",)),
                not_protected=self._edge_exposures(),
                notes=self._edge_notes(kappa, pairs),
                records=m,
            ),
            run=run,
        )

    def _plan_pure(self, pairs: _Pairs) -> _Release:
        """4.3 C: joint l1 clip, disjoint batches, exact discrete Laplace noise; losses add up over an epoch."""
        kappa = self.kappa_ = self._group_size(pairs)
        adjacency, factor = self._edge_adjacency()
        unit = self._edge_unit(kappa)
        m, batches, epochs = len(pairs.index), int(self.n_batches), int(self.n_steps)
        clip, epsilon = self._clip, float(self.epsilon)
        sensitivity = factor * kappa * clip
        # The shift itself is paid for once in a pass, whatever number of batches it is spread over (DPP-8).
        noise = plan_laplace(
            sensitivity, epsilon, self._factor_size(), passes=epochs, touched=min(kappa, batches)
        )

        def run(randomness: Randomness) -> NDArray[np.float64]:
            start = self._start(randomness)
            self.noise_scale_ = noise.scale / clip
            walk = DriftDescent(
                start, self._step / batches, shrinkage=self.shrinkage, randomness=randomness
            )
            # The position in the list, not what stands there, decides the batch (DPP-7).
            batch_of = randomness.integers(batches, m)
            normaliser = m / batches * clip
            for _ in range(epochs):
                for batch in range(batches):
                    members = np.flatnonzero(batch_of == batch)
                    total, _ = clipped_gradient_sum(
                        walk.W,
                        pairs.points,
                        pairs.index[members],
                        pairs.dissimilar[members],
                        margin=self._margin,
                        clip=clip,
                        order=1,
                    )
                    walk.descend(
                        noise.release(total, randomness) / normaliser,
                        math.sqrt(2.0) * noise.scale / normaliser,
                    )
            return walk.W

        statement = self._statement(
            f"contrastive metric learning on an edge list ({epochs} epochs of {batches} disjoint batches, discrete Laplace "
            f"noise, kappa = {kappa})",
            adjacency,
            unit,
            delta=0.0,
            proof="mechanisms.md 4.3 C and DPP-8; exact noise on a lattice by 2.2",
            assumptions=self._edge_assumptions(kappa),
            not_protected=self._edge_exposures(),
            notes=self._edge_notes(kappa, pairs),
            exact=True,
            records=m,
        )
        return _Release(noise.event(), adjacency, unit, sensitivity, statement, run)

    def _plan_perturbation(self, X: NDArray[np.float64], classes: NDArray[Any]) -> _Release:
        """DPP-13: each individual perturbed once, half of epsilon on the features and half on the class."""
        self.kappa_ = None
        self.noise_scale_ = None
        if self.classes is None:
            raise InvalidParameter(
                "algorithm 'input-perturbation' needs classes=, the public list of classes: randomised response draws from "
                "it, and a list read off the data would reveal which classes occur."
            )
        codes, count = _public_codes(classes, self.classes)
        epsilon = float(self.epsilon)

        def run(randomness: Randomness) -> NDArray[np.float64]:
            if math.isfinite(epsilon):
                noisy, labels = perturb_individuals(
                    X,
                    codes,
                    count,
                    epsilon_features=epsilon / 2,
                    epsilon_class=epsilon / 2,
                    bound=float(self.data_norm),
                    randomness=randomness,
                )
            else:
                noisy, labels = X, codes
            # Post-processing from here on: brought back to the scale the margin is meant for.
            points = clip_records(noisy, self.data_norm)

            def draw() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
                index = random_matching(len(points), randomness)
                return points, index, labels[index[:, 0]] != labels[index[:, 1]]

            return self._descend(randomness, None, float(len(points) // 2), draw)

        return _Release(
            event=_pure_or_none(epsilon),
            adjacency=Adjacency.REPLACE_ONE,
            unit="one record",
            sensitivity=2.0 * float(self.data_norm),
            statement=self._statement(
                "metric learning on individuals perturbed once each (discrete Laplace, k-ary randomised response)",
                Adjacency.REPLACE_ONE,
                "one record",
                delta=0.0,
                proof="mechanisms.md DPP-13 (sound form) and 2.2; pairs are post-processing",
                assumptions=("the number of records and the list of classes are public",),
                notes=("holds locally, also against whoever collects the records",),
                exact=True,
            ),
            run=run,
        )

    def _plan_published(self, pairs: _Pairs) -> _Release:
        """Algorithm 1 as printed; the statement carries the true guarantee of mechanisms.md 4.3."""
        kappa = self.kappa_ = self._group_size(pairs)
        self.noise_scale_ = None
        variant = cast(Variant, self.variant)
        m, size = len(pairs.index), int(self.batch_size)
        batches = math.ceil(m / size)
        d = self.n_features_in_
        rows = d if self.n_components is None else min(int(self.n_components), d)
        if self.init is not None:
            rows = len(np.asarray(self.init))
        epsilon = float(self.epsilon)
        truth = true_epsilon(
            variant, epsilon, kappa=kappa, n_rows=rows, n_columns=d, batches=batches
        )
        rate = 1.0 if self.learning_rate is None else float(self.learning_rate)
        steps = rate * step_sizes(self.n_steps * batches)

        def run(randomness: Randomness) -> NDArray[np.float64]:
            return publish(
                variant,
                self._start(randomness),
                pairs.points,
                pairs.index,
                pairs.dissimilar,
                epsilon=epsilon,
                kappa=kappa,
                margin=self._margin,
                clip=self._clip,
                batch_size=size,
                epochs=int(self.n_steps),
                steps=steps,
                randomness=randomness,
            )

        why = {
            "dpp_thm1": "each of the d' rows of a batch spends the budget again (mechanisms.md DPP-2)",
            "dpp_s": "the noise scale is computed from the private batch and reveals it (mechanisms.md DPP-1)",
            "scdf": "independent staircase noise costs its epsilon on every coordinate of every touched batch "
            "(mechanisms.md DPP-4)",
            "duchi": "each row of every touched batch costs the whole budget (mechanisms.md DPP-2, DPP-5)",
        }[variant]
        # Duchi's output takes finitely many values whatever the input, so float64 noise artefacts do not arise.
        exact = variant == "duchi"
        unit = "any one pair" if kappa == 1 else f"any {kappa} pairs"
        statement = PrivacyStatement(
            mechanism=f"Algorithm 1 of the DPP paper as published ({variant}), sold as epsilon = {epsilon:g}",
            adjacency=Adjacency.REPLACE_ONE,
            epsilon=truth,
            delta=0.0,
            unit=f"{unit} replaced in place",
            proved=exact and truth is not None,
            proof="mechanisms.md 4.3, published modes" if truth is not None else "",
            assumptions=self._edge_assumptions(kappa),
            not_protected=self._edge_exposures(),
            notes=(why,) + (() if exact or truth is None else (CHEAP_PATH_NOTE,)),
            arithmetic="exact" if exact else "real",
        )
        sensitivity = 2.0 * kappa * self._clip / min(size, m)
        return _Release(
            event=_pure_or_none(math.inf if truth is None else truth),
            adjacency=Adjacency.REPLACE_ONE,
            unit=statement.unit,
            sensitivity=sensitivity,
            statement=statement,
            run=run,
        )

    # -- statements

    def _statement(
        self,
        mechanism: str,
        adjacency: Adjacency,
        unit: str,
        *,
        proof: str,
        assumptions: tuple[str, ...] = (),
        not_protected: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        delta: float | None = None,
        exact: bool | None = None,
        records: int = 0,
    ) -> PrivacyStatement:
        """Return the statement; ``records`` is how many terms a sum may have, ``exact`` defaults to Gaussian noise's."""
        private = math.isfinite(self.epsilon)
        arithmetic, numerical = numerical_claim(self._exact if exact is None else exact, records)
        return PrivacyStatement(
            mechanism=mechanism,
            adjacency=adjacency,
            epsilon=float(self.epsilon),
            delta=(float(self.delta) if delta is None else delta) if private else 0.0,
            unit=unit,
            proved=True,
            proof=proof,
            assumptions=(*assumptions, "data_norm, margin, clip and all other settings are public"),
            not_protected=not_protected,
            notes=notes + ((numerical,) if private else ()),
            arithmetic=arithmetic,
        )

    def _edge_assumptions(self, kappa: int) -> tuple[str, ...]:
        common = ("the number of pairs is public",)
        if self.topology == "public":
            return (*common, "the topology of the pairs is public")
        if self.algorithm == "node-dp" and self.mode == "sound":
            return (*common, f"no individual can be in more than {kappa} pairs, declared in public")
        return (*common, f"kappa = {kappa} was declared without looking at the pairs")

    def _edge_exposures(self) -> tuple[str, ...]:
        return ("who is paired with whom",) if self.topology == "public" else ()

    def _edge_notes(self, kappa: int, pairs: _Pairs) -> tuple[str, ...]:
        if self.algorithm == "node-dp":
            return ()
        assert pairs.graph is not None
        if self.topology == "public" and pairs.graph.max_degree <= kappa:
            return (
                "nobody is in more pairs than kappa, so all pairs of one individual are covered together",
            )
        return (
            f"an individual in more than {kappa} pairs is not protected as a whole, only any {kappa} of the pairs "
            "(mechanisms.md DPP-12)",
        )

    # ----------------------------------------------------------------------------------------------------------------
    # The learned metric

    def sensitivity(self) -> float:
        """Return how far one released quantity moves under ``statement_.adjacency`` and ``statement_.unit``.

        The l2 norm (Gaussian noise) or l1 norm (Laplace noise) of the change of one sum of clipped gradients, at the
        initial clip; of one perturbed record for input perturbation; of one row of a batch mean in published mode. The
        release that gives a start has a sensitivity of its own, ``pairwise.algorithms.moments.moment_sensitivity``.
        """
        check_is_fitted(self)
        return float(self._sensitivity)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return X Wᵀ for records clipped as in training; Euclidean distance there is the learned one.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        check_is_fitted(self)
        try:
            if self._of_individuals:
                table = validate_data(self, X, dtype=np.float64, reset=False)
            else:
                table = check_array(X, dtype=np.float64)
        except ValueError as error:
            raise without_values(error, X) from None
        if table.shape[1] != self.n_features_in_:
            raise InvalidParameter(
                f"X must have {self.n_features_in_} features, as in fit; found {table.shape[1]}."
            )
        return np.asarray(self._clipped(table) @ self.components_.T)


def _pure_or_none(epsilon: float) -> DpEvent:
    """Return the event of a pure release, or of a non-private one at infinity."""
    return pure_event(epsilon) if math.isfinite(epsilon) else gaussian_event(0.0)


def _check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(
            f"{name} must be one of {', '.join(repr(a) for a in allowed)}; found {value!r}."
        )


def _distinct_rows(flat: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the different rows and for each row which of them it is; compares bytes, so it is fast for wide rows."""
    rows = np.ascontiguousarray(flat + 0.0)  # -0.0 becomes 0.0, which has other bytes
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], codes.reshape(-1).astype(np.int64)


def _pair_signs(y: Any, m: int) -> NDArray[np.int64]:
    array = np.asarray(y)
    if array.shape != (m,):
        raise InvalidPairs(
            f"y must hold one label for each of {m} pairs; found shape {array.shape}."
        )
    if array.dtype.kind not in "iuf" or not np.all((array == 1) | (array == -1)):
        raise InvalidPairs(
            "y must be +1 (similar) or -1 (dissimilar) for each pair; found other labels. "
            "From 0/1 use 2 * y - 1."
        )
    return array.astype(np.int64)


def _class_codes(y: Any) -> NDArray[np.int64]:
    """Return classes as whole numbers that serve only to compare them: which codes occur is used for nothing."""
    array = column_or_1d(y)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise InvalidParameter("y must be finite; found NaN or infinity.")
    try:
        _, codes = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise InvalidParameter(
            "the classes in y must be of one type; found mixed types. Make them all numbers or all strings."
        ) from error
    return codes.reshape(-1).astype(np.int64)


def _public_codes(classes: NDArray[Any], declared: Any) -> tuple[NDArray[np.int64], int]:
    """Return each class as its place in the declared list, and the length of that list."""
    known = np.asarray(declared)
    if known.ndim != 1 or len(known) == 0 or len(np.unique(known)) != len(known):
        raise InvalidParameter(
            f"classes must be a list of different classes; found an array of shape {known.shape} with repetitions or none."
        )
    matches = classes[:, None] == known[None, :]
    if not np.all(np.any(matches, axis=-1)):
        raise InvalidParameter(
            f"every class in y must be in classes; found one that is not among its {len(known)} entries. "
            "List all classes that may occur."
        )
    return np.argmax(matches, axis=1).astype(np.int64), len(known)
