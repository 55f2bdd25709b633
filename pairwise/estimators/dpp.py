"""``DPPMetricLearner``: private contrastive metric learning from individuals or from an edge list.

Here settings and inputs are checked. What a release costs and what its statement says is decided in
``pairwise.algorithms.contrastive_plans``, the options of each algorithm stand in ``pairwise.algorithms.options``.

Source: Li, Pan, Sui, Tsang, *Secure Metric Learning via Differential Pairwise Privacy*, as corrected by mechanisms.md
section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import column_or_1d

from pairwise.accounting.gaussian import check_privacy_parameters
from pairwise.algorithms.contrastive_plans import (
    ContrastiveTask,
    Individuals,
    PairList,
    group_size,
    plan_edges,
    plan_matching,
    plan_perturbation,
    plan_published,
    plan_pure,
)
from pairwise.algorithms.options import (
    ContrastiveOptions,
    EdgeListOptions,
    Edges,
    InputPerturbation,
    Matching,
    NodeDP,
    Options,
    Published,
    Pure,
)
from pairwise.errors import InvalidPairsError, InvalidParameterError
from pairwise.estimators.base import (
    check_data_norm,
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.choice import AlgorithmChoice
from pairwise.estimators.contrastive import check_contrastive, contrastive_task, unread_with_init
from pairwise.estimators.mahalanobis import DroppedTable, MahalanobisMixin, finite_numbers
from pairwise.noise.continuous import check_number
from pairwise.noise.randomness import Randomness
from pairwise.pairs.graph import PairGraph
from pairwise.plan import Plan

if TYPE_CHECKING:
    from pairwise.accounting.budget import PrivacyBudget

__all__ = ["DPPMetricLearner"]

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


class DPPMetricLearner(
    MahalanobisMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, AlgorithmChoice
):
    """A Mahalanobis metric M = WᵀW by private contrastive gradient descent.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one fit, > 0; ``float("inf")`` is the non-private reference.
    delta : float, default=1e-5
        Below one over the number of individuals (or of pairs, with an edge list). Not used by the pure algorithms.
    kappa : int or None, default=None
        With an edge list: how many pairs may change together, a declared public bound. It protects an *individual* only
        if nobody can be in more than kappa pairs. May be left out if the topology is public; with ``NodeDP`` it is the
        declared degree cap.
    n_components : int or None, default=None
        d', the rows of W; at most d. None: d, which starts at the Euclidean metric.
    noise : {"gaussian", "laplace", "staircase", "duchi"} or None, default=None
        None: what the algorithm needs, Gaussian for (ε, δ) and Laplace for pure ε. Staircase and Duchi exist in the
        published form only, for the comparison with the paper (mechanisms.md DPP-4, DPP-5).
    algorithm : str or options, default="auto"
        ``"auto"`` is the one to take: ``Matching()`` for individuals and their classes, and ``Edges()`` for pairs, which
        are (m, 2, d), or come with a ``preprocessor`` or a ``kappa``. By name, ``Matching()`` or ``InputPerturbation()``
        for ``fit(X, y)`` with individuals; ``Edges()``, ``Pure()``, ``NodeDP()`` or ``Published()`` for ``fit(pairs, y)``
        (``pairwise.algorithms.options``). Names stand for their defaults: ``"matching"``, ``"input-perturbation"``,
        ``"edges"``, ``"pure"``, ``"node-dp"``, ``"published"``.
    data_norm : float, default=1.0
        Every record is clipped to this l2 norm (l1 in the published form and for input perturbation). Scale features by
        public bounds first.
    hardened : bool or None, default=None
        Draw Gaussian noise exactly on a grid (mechanisms.md 2.2), so that the guarantee holds to the last bit released, for
        about 8 % more noise. None: wherever it is defined, which is not with ``sampling_rate`` < 1 or in the published form.
        False: floating-point noise, proved in real arithmetic only. Laplace noise is always exact.
    classes : sequence or None, default=None
        Public list of classes, needed by ``InputPerturbation``, whose randomised response draws from it. For the initial W
        of ``Matching`` it is otherwise read from y, and the statement says so. With C known classes a dissimilar pair
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
    **deprecated
        Options of the algorithm, ``mode="published"`` for ``Published()``.

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
    InvalidParameterError, InvalidPairsError
        Both ``ValueError``; they say what was expected, what was found and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import DPPMetricLearner, Matching
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3)) * [0.1, 0.5, 0.5]
    >>> y = (X[:, 0] > 0).astype(int)
    >>> learner = DPPMetricLearner(algorithm=Matching(n_steps=5), random_state=0).fit(X, y)
    >>> learner.transform(X).shape
    (400, 3)
    >>> learner.statement_.unit
    'one record'
    """

    _algorithms: ClassVar[dict[str, Options]] = {
        "edges": Edges(),
        "matching": Matching(),
        "pure": Pure(),
        "node-dp": NodeDP(),
        "input-perturbation": InputPerturbation(),
        "published": Published(),
        "auto": Matching(),
    }

    _aliases: ClassVar[dict[str, Any]] = {"mode": "sound"}
    _pairs_came: bool = False

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        kappa: int | None = None,
        n_components: int | None = None,
        *,
        noise: str | None = None,
        algorithm: str | Options = "auto",
        data_norm: float = 1.0,
        hardened: bool | None = None,
        classes: Any = None,
        preprocessor: Any = None,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
        **deprecated: Any,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.kappa = kappa
        self.n_components = n_components
        self.noise = noise
        self.algorithm = self._chosen(algorithm, deprecated)
        self.data_norm = data_norm
        self.hardened = hardened
        self.classes = classes
        self.preprocessor = preprocessor
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if not self._of_individuals:
            tags.input_tags.three_d_array = True
            tags.input_tags.two_d_array = False
        return tags

    delta: float
    kappa_: int | None
    noise_scale_: float | None
    components_: NDArray[np.float64]

    # -- fitting

    @keeps_state_on_error
    def fit(self, X: Any, y: Any, **refused: Any) -> DPPMetricLearner:
        """Learn W.

        Parameters
        ----------
        X : array-like
            Individuals of shape (n, d) for ``Matching`` and ``InputPerturbation``. Otherwise pairs: (m, 2, d)
            points, or (m, 2) indices into ``preprocessor``. Points that are equal in all features count as one
            individual; give indices if several individuals may be equal.
        y : array-like
            Class of each individual, or +1 (similar) / −1 (dissimilar) for each pair.

        Returns
        -------
        self
        """
        refuse_fit_parameters(refused)
        # Whether pairs or individuals come is public, like the shape of every input.
        shape = getattr(X, "shape", None)
        depth = np.asarray(X, dtype=object).ndim if shape is None else len(shape)
        self._pairs_came = depth == 3
        self._check_parameters()
        randomness = Randomness(self.random_state)
        plan, n = self._plan(X, y, randomness)
        self.components_ = self._execute(plan, float(self.delta), randomness, n=n)
        self.noise_scale_ = plan.noise_scale
        self._n_features_out = len(self.components_)
        if self.preprocessor is not None:
            self.preprocessor = DroppedTable.of(self.preprocessor)
        return self

    def _plan(self, X: Any, y: Any, randomness: Randomness) -> tuple[Plan, int]:
        """Return the plan and the number of records or pairs."""
        if self._of_individuals:
            data = self._individuals(X, y)
            self.kappa_ = None
            matching = isinstance(self._options, Matching)
            plan = plan_matching if matching else plan_perturbation
            return plan(data, self._task(), randomness), len(data.points)
        pairs = self._pair_list(X, y)
        options = cast(EdgeListOptions, self._options)
        self.kappa_ = group_size(options, self.kappa, float(self.epsilon), pairs.graph)
        task = self._task(self.kappa_)
        if isinstance(options, Published):
            return plan_published(pairs, task, randomness), len(pairs.index)
        of_pairs = plan_pure if self._noise == "laplace" else plan_edges
        return of_pairs(pairs, task, randomness), len(pairs.index)

    def _task(self, kappa: int = 1) -> ContrastiveTask:
        return contrastive_task(
            cast(ContrastiveOptions, self._options),
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            data_norm=float(self.data_norm),
            n_components=self.n_components,
            n_features=int(self.n_features_in_),
            exact=self._exact,
            kappa=kappa,
        )

    # -- settings

    @property
    def mode(self) -> str:  # type: ignore[override]
        """``"published"`` for the form of the paper, else ``"sound"``."""
        return "published" if isinstance(self._options, Published) else "sound"

    def _with_flat(self, algorithm: Any, flat: Mapping[str, Any]) -> Any:
        # ``mode="published"`` used to choose the algorithm of the paper.
        flat = dict(flat)
        mode = flat.pop("mode", "sound")
        if mode not in ("sound", "published"):
            raise InvalidParameterError(f"mode must be 'sound' or 'published'; found {mode!r}.")
        if mode == "published" and not isinstance(algorithm, Published):
            if algorithm not in ("auto", "edges", "published"):
                raise InvalidParameterError(
                    "algorithm was set, but it is not read with mode='published'. Leave algorithm out."
                )
            algorithm = "published"
        return super()._with_flat(algorithm, flat)

    @property
    def _options(self) -> Options:
        if self.algorithm != "auto":
            return super()._options
        pairs = self.preprocessor is not None or self.kappa is not None or self._pairs_came
        return Edges() if pairs else Matching()

    @property
    def _clip_order(self) -> int:  # type: ignore[override]
        return 1 if isinstance(self._options, Published | InputPerturbation) else 2

    @property
    def _of_individuals(self) -> bool:
        return isinstance(self._options, Matching | InputPerturbation)

    @property
    def _noise(self) -> str:
        return self.noise or self._noises()[0]

    def _noises(self) -> tuple[str, ...]:
        """Return the kinds of noise that the algorithm may draw."""
        options = self._options
        if isinstance(options, Published):
            return (_PUBLISHED_NOISE[options.variant],)
        return _NOISE[options.name]

    def _check_parameters(self) -> None:
        """Refuse settings out of their range, and such as do not go together."""
        check_contrastive(
            cast(ContrastiveOptions, self._options),
            kappa=self.kappa,
            n_components=self.n_components,
            noise=self.noise,
        )
        for name in ("epsilon", "delta", "data_norm"):
            check_number(name, getattr(self, name))
        check_data_norm(self.data_norm)
        self._check_combination()

    def _check_combination(self) -> None:
        options, allowed = self._options, self._noises()
        if self.noise is not None and self.noise not in allowed:
            raise InvalidParameterError(
                f"noise for algorithm {options.name!r} must be {' or '.join(allowed)}; found {self.noise!r}. Laplace noise "
                "belongs to algorithm='pure'; staircase and Duchi noise to variants of the published form."
            )
        if self.hardened and (options.sampled or self.mode == "published"):
            raise InvalidParameterError(
                "hardened noise is accounted for all pairs in every step; found hardened=True with sampling_rate < 1 or "
                "the published form. Leave one of them out."
            )
        if self.mode == "published" and not self.epsilon > 0:
            raise InvalidParameterError(f"epsilon must be > 0; found {self.epsilon!r}.")
        unread = unread_with_init(cast(ContrastiveOptions, options))
        if getattr(options, "topology", "") == "private":
            unread["relationship"] = "topology='private', where kappa is declared"
        if self._noise == "laplace":
            unread |= dict.fromkeys(("sampling_rate", "adaptive_clip"), "Laplace noise")
        elif isinstance(options, NodeDP):
            unread["n_batches"] = "Gaussian noise"
        # The algorithms that read what all of them have as a parameter.
        if self._of_individuals:
            unread["kappa"] = f"algorithm {options.name!r}, which needs no bound on pairs"
        else:
            unread["classes"] = f"algorithm {options.name!r}, which learns from pairs"
        self._refuse_unread(unread)

    def _check_privacy(self, n: int) -> None:
        pure = self._noise != "gaussian"
        # A pure guarantee holds for every delta, so the user's delta is not judged where it is not used.
        check_privacy_parameters(
            self.epsilon, 0.0 if pure else self.delta, None if pure else n, allow_pure=pure
        )

    # -- inputs

    def _individuals(self, X: Any, y: Any) -> Individuals:
        table, labels = self._check_table(X, y, few=True)
        if len(table) < 2:
            raise InvalidParameterError(
                f"a metric needs at least 2 individuals; found n_samples = {len(table)}. Collect more records."
            )
        if self.preprocessor is not None:
            raise InvalidPairsError(
                f"algorithm {self._options.name!r} learns from individuals; found a preprocessor. "
                "Pass the points themselves and their classes, or use algorithm='edges'."
            )
        self._check_privacy(len(table))
        codes = _class_codes(labels)
        count = int(codes.max()) + 1
        options, declared = self._options, self.classes is not None
        if declared:
            codes, count = _public_codes(column_or_1d(labels), self.classes)
        elif isinstance(options, InputPerturbation):
            raise InvalidParameterError(
                "algorithm 'input-perturbation' needs classes=, the public list of classes: randomised response draws from "
                "it, and a list read off the data would reveal which classes occur."
            )
        # One class only is not refused: whether there is a second one is a fact about the records.
        reads = isinstance(options, Matching) and options.init is None and options.start_share > 0
        self._classes_read = reads and not declared
        # Input perturbation clips what it perturbs, and what it has perturbed.
        points = self._clipped(table) if isinstance(options, Matching) else table
        return Individuals(points, codes, count, declared)

    def _pair_list(self, X: Any, y: Any) -> PairList:
        points, index = self._points_and_index(X)
        signs = _pair_signs(y, len(index))
        self.n_features_in_ = points.shape[1]
        self._check_privacy(len(index))
        graph = PairGraph(index, len(points))
        return PairList(self._clipped(points), index, signs < 0, graph)

    def _points_and_index(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if hasattr(X, "toarray"):
            raise InvalidPairsError(
                "pairs must be a dense array; found a sparse one. Pass (m, 2) indices and preprocessor=."
            )
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
        if array.ndim == 3 and array.shape[1] == 2:
            if array.shape[2] == 0 or len(array) == 0:
                raise InvalidPairsError(f"pairs must not be empty; found shape {array.shape}.")
            flat = finite_numbers(array).reshape(-1, array.shape[2])
            points, codes = _distinct_rows(flat)
            return points, codes.reshape(-1, 2)
        if array.ndim == 2 and array.shape[1] == 2 and self.preprocessor is not None:
            if len(array) == 0:
                raise InvalidPairsError("pairs must not be empty; found none.")
            return _looked_up(array, self._table())
        raise InvalidPairsError(
            f"algorithm {self._options.name!r} learns from pairs of shape (m, 2, d), or (m, 2) indices with preprocessor=; "
            f"found shape {array.shape}. For individuals and their classes use algorithm='matching'."
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
        raise InvalidPairsError(
            f"y must hold one label for each of {m} pairs; found shape {array.shape}."
        )
    if array.dtype.kind not in "iuf" or not np.all((array == 1) | (array == -1)):
        raise InvalidPairsError(
            "y must be +1 (similar) or -1 (dissimilar) for each pair; found other labels. "
            "From 0/1 use 2 * y - 1."
        )
    return array.astype(np.int64)


def _class_codes(y: Any) -> NDArray[np.int64]:
    """Return classes as whole numbers that serve only to compare them: which codes occur is used for nothing."""
    array = column_or_1d(y)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise InvalidParameterError("y must be finite; found NaN or infinity.")
    try:
        _, codes = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise InvalidParameterError(
            "the classes in y must be of one type; found mixed types. Make them all numbers or all strings."
        ) from error
    return codes.reshape(-1).astype(np.int64)


def _public_codes(classes: NDArray[Any], declared: Any) -> tuple[NDArray[np.int64], int]:
    """Return each class as its place in the declared list, and the length of that list."""
    known = declared_classes(declared)
    matches = classes[:, None] == known[None, :]
    if not np.all(np.any(matches, axis=-1)):
        raise InvalidParameterError(
            f"every class in y must be in classes; found one that is not among its {len(known)} entries. "
            "List all classes that may occur."
        )
    return np.argmax(matches, axis=1).astype(np.int64), len(known)


def _looked_up(array: NDArray[Any], table: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The points that pairs of indices name in a table or by a function, and the pairs by their number among them."""
    index = PairGraph(array).pairs
    if not callable(table):
        if index.max() >= len(table):
            raise InvalidPairsError(
                f"indices must be below the {len(table)} rows of preprocessor; found larger ones."
            )
        return table, index
    used, codes = np.unique(index, return_inverse=True)
    points = finite_numbers(np.asarray(table(used)))
    if points.ndim != 2 or len(points) != len(used):
        raise InvalidPairsError(
            f"preprocessor must return one row for each of {len(used)} indices; found shape {points.shape}."
        )
    return points, codes.reshape(index.shape)
