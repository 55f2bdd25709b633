"""``PrivateAUCClassifier``, private rankings.

Here live the choice of algorithm and the private centre. The algorithms live in ``gradient``, ``pointwise``, ``giga``,
``sgd`` and ``moments``, streams in ``streaming``, thresholds and scores in ``ranking``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.accounting.events import compose
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.coordinates import (
    CoordinatePlan,
    Coordinates,
    default_scale_share,
    described,
    plan_coordinates,
    proof_of,
)
from pairwise.algorithms.gradient import default_radius, noisy_descent, plan_gradient
from pairwise.algorithms.moments import (
    auc_direction,
    moment_proof,
    moment_size,
    plan_moments,
    release_moments,
)
from pairwise.algorithms.options import (
    ConvexOptions,
    Ftrl,
    Gradient,
    Options,
    Pointwise,
    Statistics,
)
from pairwise.algorithms.pointwise import RecordSums
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.perturbation import (
    PAIR_LOSS_ALGORITHMS,
    ConvexTask,
    check_request,
    unread_in_mode,
)
from pairwise.estimators.ranking import Ranking
from pairwise.estimators.streaming import StreamingEstimator
from pairwise.noise.continuous import check_number
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan, plan_choice
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.losses import get_loss
from pairwise.pairs.sums import AUCPairs
from pairwise.plan import Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget

__all__ = ["PrivateAUCClassifier"]

Array = NDArray[np.float64]

# In so small a ball the loss is nearly linear and its minimiser the difference of the class means, which is what noisy
# sums of gradients can find. The best of four radii on synthetic tables.
_TREE_RADIUS = 0.25

# The algorithms that see records around a private centre.
_CENTRED = (Gradient, Pointwise, Statistics)


class PrivateAUCClassifier(Ranking, StreamingEstimator):
    """A linear ranking with a high AUC, under differential privacy (replace-one).

    Parameters
    ----------
    epsilon : float, default=1.0
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Default min(1e-5, n^-1.5); 1/n and above are refused unless ``allow_large_delta``.
    algorithm : str or options, default="auto"
        ``"auto"`` is the one to take: ``Pointwise()``, with steps, radius and what is spent on scaling chosen by a public
        rule of n, d, epsilon and delta. Others are for comparison, for streams and for what only they do:
        ``Gradient()``, ``OnPair()``, ``OffPair()``, ``Ftrl()``, ``SGDOutput()`` and ``Statistics()``, each with its own
        options (``pairwise.algorithms.options``). Names stand for their defaults: ``"pointwise"``, ``"gradient"``;
        ``"onpairstrc"``, ``"onpairc"``, ``"offpairstrc"``, ``"offpairc"``; ``"ftrl"``; ``"sgd-output"``;
        ``"statistics"``.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it, in ``fit`` and in ``decision_function``.
    mode : {"sound", "published"}, default="sound"
        ``published`` runs the papers' formulas, warns, and states what is true of them.
    classes : array-like of 2 labels, optional
        Public; the larger is the positive one. Without it the labels are read from y and the statement says so.
    threshold_share : float, default=0.05
        Share of μ² that pays for the threshold of ``predict``: of 65 public candidates one is drawn at which most records
        are answered rightly (``pairwise.algorithms.threshold``). It is part of epsilon, and costs the ranking what a
        fortieth of epsilon would buy. 0 spends all on the ranking, and ``predict`` then refuses. Published forms and
        ``partial_fit`` cut at the score 0.
    centre_share : float, default=0.1
        Share of μ² with which ``pointwise``, ``gradient`` and ``statistics`` first release the mean record and the mean
        distance to it. An AUC sees differences only, so records are then taken around that centre and clipped to 0.7
        times that distance, which lowers G. 0 clips to ``data_norm`` around the origin.
    hardened : bool or None, default=None
        Draw exact noise on a grid (mechanisms.md 2.2), so that the guarantee holds to the last bit released, for about 8 %
        more noise. None: wherever it is defined, which is not with ``batch_size`` nor for
        published forms. False: floating-point noise, proved in real arithmetic only.
    allow_large_delta : bool, default=False
        Accept delta >= 1/n.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.
    **deprecated
        Options of the algorithm.

    Attributes
    ----------
    coef_ : (1, d) array
    intercept_ : (1,) array
    threshold_ : float or None
        What was cut at, and is subtracted from the score as ``-intercept_``; None where nothing was paid for it.
    centre_ : (d,) array
        What is subtracted from a record after clipping to ``data_norm``.
    scale_ : float
        Norm to which the difference is clipped again.
    basis_ : (d, d) array or None
        Map to the features as they were scaled, of the difference over ``scale_``; a score is divided by the length there
        where that is above 1. None where features were not scaled.
    classes_, statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.estimators.auc import PrivateAUCClassifier
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 200, axis=0)
    >>> y = np.repeat([1, 0], 200)
    >>> clf = PrivateAUCClassifier(epsilon=2.0, classes=[0, 1]).fit(X, y)
    >>> clf.decision_function(X).shape, clf.statement_.epsilon, clf.sensitivity()
    ((400,), 2.0, 0.0026...)
    """

    _algorithms: ClassVar[dict[str, Options]] = {
        **PAIR_LOSS_ALGORITHMS,
        "auto": Pointwise(),
        "pointwise": Pointwise(),
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        algorithm: str | Options = "auto",
        data_norm: float = 1.0,
        mode: str = "sound",
        classes: Any = None,
        threshold_share: float = 0.05,
        centre_share: float = 0.1,
        hardened: bool | None = None,
        allow_large_delta: bool = False,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
        **deprecated: Any,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = self._chosen(algorithm, deprecated)
        self.data_norm = data_norm
        self.mode = mode
        self.classes = classes
        self.threshold_share = threshold_share
        self.centre_share = centre_share
        self.hardened = hardened
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- fitting

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateAUCClassifier:
        """Learn a ranking.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4, dense and finite.
        y : (n,) array-like
            Two classes. With ``classes`` declared a table that holds one of them only is fitted like any other: which
            classes occur is a fact about the records. Without, it is refused.

        Raises
        ------
        PairwiseError
            A ValueError that says what was expected, what was found and what to do.
        """
        refuse_fit_parameters(refused)
        table, labels = self._check_table(X, y)
        self._check_choices()
        n = len(table)
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._check_labels(self.classes_)
        positive = self._encode(labels)
        randomness = Randomness(self.random_state)
        share = self._threshold_share()
        mu = release_mu(float(self.epsilon), delta, hardened=self._exact)
        choice = plan_choice(1.0, mu * math.sqrt(share), hardened=self._exact) if share else None
        self._begin(table.shape[1])
        plan = self._plan(table, positive, delta, mu, share, choice, randomness)
        if choice is not None:
            plan = self._with_threshold(plan, choice, table, positive, randomness)
        self._end_stream()
        self._store(self._execute(plan, delta, randomness, n=n))
        return self

    def _begin(self, d: int) -> None:
        self.centre_, self.scale_ = np.zeros(d), float(self.data_norm)
        self.basis_: Array | None = None
        unpaid = self.mode == "sound" and self.threshold_share == 0
        self.threshold_: float | None = None if unpaid else 0.0

    def _store(self, parameter: Array) -> None:
        self.coef_ = np.array(parameter, dtype=np.float64).reshape(1, -1)
        self.intercept_ = np.array([-float(self.threshold_ or 0.0)])

    def _check_choices(self) -> None:
        options = self._options
        check_request(options, self.mode, self.epsilon, kind="auc", hardened=self._exact)
        for name in ("threshold_share", "centre_share"):
            value = getattr(self, name)
            check_number(name, value)
            if not 0 <= value < 1:
                raise InvalidParameterError(f"{name} must be in [0, 1); found {value!r}.")
        unread = unread_in_mode(options, self.mode)
        if self.mode == "published":
            unread["clip"] = "mode='published'"
            if self.threshold_share:  # who pays for no threshold is right that none is charged
                unread["threshold_share"] = "mode='published'"
        if not isinstance(options, _CENTRED):
            unread["centre_share"] = f"algorithm {options.name!r}, which does not centre records"
        elif isinstance(options, Pointwise) and not self.centre_share:
            unread["scale_share"] = "centre_share=0, which leaves records where they are"
        if isinstance(options, Gradient) and options.loss != "logistic":
            unread["device"] = "the hinge loss, which needs one sort a step"
        self._refuse_unread(unread)

    def _centred(self) -> bool:
        return isinstance(self._options, _CENTRED) and self.centre_share > 0

    def _threshold_share(self) -> float:
        return 0.0 if self.mode == "published" else float(self.threshold_share)

    def _check_labels(self, labels: NDArray[Any]) -> None:
        if len(labels) > 2:
            raise InvalidParameterError(
                "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
                f"{len(labels)}. Compare one class with the rest."
            )
        if len(labels) < 2:
            raise InvalidParameterError(
                "an AUC needs two classes; found one class. Check the labels, or pass classes=[negative, positive]."
            )

    def _encode(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(labels == self.classes_[1])

    def _ball(self, options: ConvexOptions, mu: float, n: int, d: int) -> L2Ball:
        R = float(self.data_norm)
        if options.radius is not None:
            return L2Ball(float(options.radius))
        if self.mode == "published":
            return L2Ball(1.0 / R)
        if isinstance(options, Ftrl) and math.isfinite(mu):
            return L2Ball(_TREE_RADIUS / R)
        return L2Ball(default_radius(mu, n, d, R))

    def _sums(
        self, table: Array, positive: NDArray[np.bool_], norm: float | None = None
    ) -> AUCPairs:
        """Return the pair sums of records clipped to ``norm`` (default R); ``clip`` is in units of that norm over R."""
        options = cast(ConvexOptions, self._options)
        R = float(self.data_norm) if norm is None else norm
        largest = get_loss(options.loss, "auc").lipschitz(R)
        if self.mode == "published":
            clip = largest
        elif options.clip is None:
            clip = min(largest, 2.0 * R)
        else:
            clip = float(options.clip) * R / float(self.data_norm)
        device = options.device if isinstance(options, Gradient) else "cpu"
        return AUCPairs(table, positive, options.loss, R, clip, device)

    def _convex_sums(self, table: Array, codes: NDArray[Any]) -> AUCPairs:
        return self._sums(table, codes)

    def _task(self, table: Array, codes: NDArray[Any], n: int, mu: float) -> ConvexTask:
        domain = self._ball(cast(ConvexOptions, self._options), mu, n, table.shape[1])
        return ConvexTask(
            sums=self._sums(table, codes),
            domain=domain,
            path_length=10.0 * domain.radius / float(self.data_norm),
            block=max(1, n // 10),
            passes=(10, 100),
        )

    # -- plans

    def _plan(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        share: float,
        choice: ChoicePlan | None,
        randomness: Randomness,
    ) -> Plan:
        options = self._options
        if isinstance(options, Gradient | Pointwise):
            return self._plan_descent(
                options, table, positive, delta, mu, share, choice, randomness
            )
        if isinstance(options, Statistics):
            return self._plan_statistics(table, positive, mu, share, randomness)
        return self._plan_convex(table, positive, delta, mu * math.sqrt(1.0 - share), randomness)

    def _plan_descent(
        self,
        options: Gradient | Pointwise,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        share: float,
        choice: ChoicePlan | None,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        R = float(self.data_norm)
        spent, plan = self._plan_coordinates(n, d, mu, share)
        first: list[DpEvent] = [] if plan is None else plan.events()
        aside = first if choice is None else [*first, choice.event()]

        def sums(records: Array, labels: NDArray[np.bool_]) -> AUCPairs | RecordSums:
            if isinstance(options, Pointwise):
                return RecordSums(records, labels, options.loss, options.intercept)
            return self._sums(records, labels, 1.0)

        # Sensitivity, steps and noise are planned for records of norm 1 and do not depend on the released
        # scale.
        unit = sums(np.zeros((1, d)), np.zeros(1, dtype=bool))
        unit.n = n
        if options.radius is None:
            factor = 30.0 if isinstance(options, Pointwise) else 60.0
            domain = L2Ball(default_radius(mu * math.sqrt(1.0 - spent), n, d, factor=factor))
        else:
            domain = L2Ball(float(options.radius) * R)
        pairs = options if isinstance(options, Gradient) else Gradient()
        steps = plan_gradient(
            unit,
            (unit.dimension,),
            float(self.epsilon),
            delta,
            # Twice the diameter: real gradients are well below their bound.
            path_length=2.0 * domain.diameter,
            share=1.0 - spent,
            batching=pairs.batching,  # type: ignore[arg-type]
            batch_size=pairs.batch_size,
            steps=options.steps,
            rate=options.rate,
            other=compose(aside) if aside else None,
            hardened=self._exact,
        )

        def run() -> Array:
            coordinates = self._coordinates(plan, table, randomness)
            z = coordinates.of(clip_records(table, R))
            w = noisy_descent(
                sums(z, positive), steps, domain, np.zeros(unit.dimension), randomness
            )
            # The intercept, where there is one, is no part of a ranking.
            return coordinates.pull_back(w[:d])

        if isinstance(unit, RecordSums):
            what = f"noisy pointwise gradient descent ({unit.loss}"
            proof, head = (
                "mechanisms.md 10.6",
                "sensitivity at the head of pairwise.algorithms.pointwise",
            )
        else:
            what = f"noisy pairwise gradient descent ({unit.loss.name}"
            proof = "mechanisms.md 7.1"
            head = "with D = G for AUC losses (head of pairwise.algorithms.gradient)"
        return Plan(
            event=compose([*first, steps.event]) if first else steps.event,
            sensitivity=steps.sensitivity,
            run=run,
            mechanism=f"{what}, {steps.batching}, {steps.steps} steps{described(plan)})",
            proof=f"{proof}, {'2.2' if self._exact else '1.2'}, {head}{proof_of(plan)}",
            assumptions=("the sampled batches stay secret",) if pairs.batch_size else (),
        )

    def _plan_coordinates(
        self, n: int, d: int, mu: float, share: float
    ) -> tuple[float, CoordinatePlan | None]:
        """Return the share of μ² that is spent before anything is learned, and the private coordinates, if any."""
        options = self._options
        if not self._centred():
            return share, None
        scale_share = 0.0
        if isinstance(options, Pointwise):
            given = options.scale_share
            scale_share = default_scale_share(mu, n, d) if given is None else float(given)
        centre_share = float(self.centre_share)
        spent = share + centre_share + scale_share
        if not (scale_share >= 0 and spent < 1):
            raise InvalidParameterError(
                "scale_share must be >= 0, and below 1 together with threshold_share and centre_share; found "
                f"{scale_share:.3g} and {spent:.3g} together. Leave a part for the ranking."
            )
        plan = plan_coordinates(
            n, d, float(self.data_norm), mu, centre_share, scale_share, hardened=self._exact
        )
        return spent, plan

    def _coordinates(
        self, plan: CoordinatePlan | None, table: Array, randomness: Randomness
    ) -> Coordinates:
        """Release the coordinates, and keep what records are clipped around."""
        if plan is None:
            return Coordinates(self.centre_, self.scale_)
        found = plan.release(table, randomness)
        self.centre_, self.scale_, self.basis_ = found.centre, found.scale, found.basis
        return found

    def _plan_statistics(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        mu: float,
        share: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        spent, plan = self._plan_coordinates(n, d, mu, share)
        left = mu * math.sqrt(1.0 - spent)
        release = plan_moments(left, size=moment_size(d, 2), hardened=self._exact)

        def run() -> Array:
            coordinates = self._coordinates(plan, table, randomness)
            z = coordinates.of(clip_records(table, float(self.data_norm)))
            codes = positive.astype(np.int64)
            self.moments_ = release_moments(z, codes, 2, release, randomness)
            return coordinates.pull_back(auc_direction(self.moments_))

        return Plan(
            event=compose([*([] if plan is None else plan.events()), release.event]),
            sensitivity=release.sensitivity,
            run=run,
            mechanism=(
                "Gaussian release of class sums, counts and second moment"
                f"{described(plan)}; square-loss AUC from it"
            ),
            proof=moment_proof(self._exact) + proof_of(plan),
        )
