"""``PrivateAUCClassifier``: private linear rankings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import roc_auc_score
from sklearn.utils.metaestimators import available_if

from pairwise.accounting.events import compose
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.coordinates import (
    CoordinatePlan,
    Coordinates,
    default_scale_share,
    plan_coordinates,
)
from pairwise.algorithms.descent import RecordSums, default_radius, noisy_descent, plan_descent
from pairwise.algorithms.moments import auc_direction, plan_moments, release_moments
from pairwise.algorithms.options import (
    Ftrl,
    Gradient,
    OffPair,
    OnPair,
    Options,
    Pointwise,
    SGDOutput,
    Statistics,
)
from pairwise.algorithms.threshold import candidates, right_answers
from pairwise.errors import InvalidParameterError, check_share
from pairwise.estimators.base import (
    Plan,
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.choice import AlgorithmChoice
from pairwise.estimators.perturbation import plan_output, plan_stream
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan, plan_choice
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.sums import AUCPairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget
    from pairwise.algorithms.streams import PairStream

__all__ = ["PrivateAUCClassifier"]

Array = NDArray[np.float64]

_LONG_RECORDS = (
    "by a private count, more than half of the records are longer than twice data_norm, and clipping leaves little of them. "
    "Scale by bounds that are public: PublicScaler(low, high, output_range=(-1, 1)) in front, and data_norm=its norm_bound_."
)


def _is_online(estimator: Any) -> bool:
    return isinstance(estimator._options, OnPair | Ftrl)


class PrivateAUCClassifier(ClassifierMixin, AlgorithmChoice):
    """A linear ranking with a high AUC, under differential privacy (replace-one).

    Parameters
    ----------
    epsilon : float
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Below 1/n; default min(1e-5, n^-1.5).
    algorithm : str or options, default="auto"
        ``"auto"`` is the one to take: ``Pointwise()``, with steps, radius and what is spent on scaling chosen by a
        public rule of n, d, epsilon and delta. Others are for streams (``OnPair()``, ``Ftrl()``) and for comparison:
        ``Gradient()``, ``Statistics()``, ``OffPair()`` and ``SGDOutput()`` (``pairwise.algorithms.options``). Names mean
        their defaults: ``"pointwise"``, ``"gradient"``, ``"statistics"``, ``"onpairstrc"``, ``"offpairstrc"``,
        ``"ftrl"``, ``"sgd-output"``.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it, in ``fit`` and in ``decision_function``. Scale with
        ``PublicScaler`` and pass its ``norm_bound_``.
    classes : array-like of 2 labels, optional
        Public; the larger is the positive one. Without it the labels are read from y and the statement says so.
    threshold_share : float, default=0.05
        Share of μ² that pays for the threshold of ``predict``: of 65 public candidates one is drawn at which most records
        are answered rightly. It is part of epsilon. 0 spends all on the ranking, and ``predict`` then refuses.
        ``partial_fit`` cuts at the score 0.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

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

    Notes ----- ``score`` is the AUC, not an accuracy. There is no ``predict_proba``: a ranking orders records and has no
    probabilities. Rank by ``decision_function``; for probabilities calibrate on records that are public, or paid for
    separately.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import PrivateAUCClassifier
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 200, axis=0)
    >>> y = np.repeat([1, 0], 200)
    >>> clf = PrivateAUCClassifier(epsilon=2.0, classes=[0, 1]).fit(X, y)
    >>> clf.decision_function(X).shape, clf.statement_.epsilon, clf.sensitivity()
    ((400,), 2.0, 0.0026...)
    """

    _algorithms: ClassVar[dict[str, Options]] = {
        "auto": Pointwise(),
        "pointwise": Pointwise(),
        "gradient": Gradient(),
        "statistics": Statistics(),
        "onpairstrc": OnPair(),
        "offpairstrc": OffPair(),
        "sgd-output": SGDOutput(),
        "ftrl": Ftrl(),
    }

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        *,
        algorithm: str | Options = "auto",
        data_norm: float = 1.0,
        classes: Any = None,
        threshold_share: float = 0.05,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.data_norm = data_norm
        self.classes = classes
        self.threshold_share = threshold_share
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def __getattr__(self, name: str) -> Any:
        if name == "predict_proba":
            raise AttributeError(
                "a ranking has no probabilities, so there is no predict_proba. Rank by decision_function; for probabilities "
                "calibrate its scores on records that are public, or whose use is charged to the same budget."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
        self._options.check()
        check_share(threshold_share=self.threshold_share)
        n, d = table.shape
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._check_two_classes()
        positive = np.asarray(labels == self.classes_[1])
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta)
        share = float(self.threshold_share)
        choice = plan_choice(1.0, mu * math.sqrt(share)) if share else None
        self._begin(d)
        plan = self._plan(table, positive, delta, mu, choice, randomness)
        if choice is not None:
            plan = self._with_threshold(plan, choice, table, positive, randomness)
        self._end_stream()
        self._store(self._execute(plan, delta, randomness, n))
        return self

    def _begin(self, d: int) -> None:
        self.centre_, self.scale_ = np.zeros(d), float(self.data_norm)
        self.basis_: Array | None = None
        self.threshold_: float | None = None if self.threshold_share == 0 else 0.0

    def _store(self, parameter: Array) -> None:
        self.coef_ = np.array(parameter, dtype=np.float64).reshape(1, -1)
        self.intercept_ = np.array([-float(self.threshold_ or 0.0)])

    def _check_two_classes(self) -> None:
        if len(self.classes_) > 2:
            raise InvalidParameterError(
                "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
                f"{len(self.classes_)}. Compare one class with the rest."
            )
        if len(self.classes_) < 2:
            raise InvalidParameterError(
                "an AUC needs two classes; found one class. Check the labels, or pass classes=[negative, positive]."
            )

    # -- plans

    def _plan(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        choice: ChoicePlan | None,
        randomness: Randomness,
    ) -> Plan:
        options = self._options
        if isinstance(options, Gradient | Pointwise):
            return self._plan_descent(options, table, positive, delta, mu, choice, randomness)
        if isinstance(options, Statistics):
            return self._plan_statistics(options, table, positive, mu, randomness)
        left = mu * math.sqrt(1.0 - float(self.threshold_share))
        n, d = table.shape
        radius, R = self._radius(left, n, d), float(self.data_norm)
        if _is_online(self):
            stream = plan_stream(options, n, d, R, radius, left)

            def run() -> Array:
                opened = stream.open(self._pair_sums, d, randomness)
                opened.receive(table, positive)
                return opened.released

            return self._stream_plan(stream, run)
        sums = self._pair_sums(table, positive)
        return plan_output(options, sums, radius, left, randomness)

    def _plan_descent(
        self,
        options: Gradient | Pointwise,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        choice: ChoicePlan | None,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        spent, coordinates = self._plan_coordinates(options, n, d, mu)
        left = mu * math.sqrt(1.0 - spent)

        def sums_of(records: Array, labels: NDArray[np.bool_]) -> AUCPairs | RecordSums:
            if isinstance(options, Pointwise):
                return RecordSums(records, labels)
            return AUCPairs(records, labels, options.loss)

        # Sensitivity, steps and noise are planned for records of norm 1 and do not depend on the released scale.
        unit = sums_of(np.zeros((1, d)), np.zeros(1, dtype=bool))
        unit.n = n
        first = [] if coordinates is None else coordinates.events()
        aside = first if choice is None else [*first, choice.event()]
        batch_size = options.batch_size if isinstance(options, Gradient) else None
        steps = plan_descent(
            unit,
            left,
            self._radius(left, n, d) * float(self.data_norm),
            steps=options.steps,
            batch_size=batch_size,
            sampled_for=(float(self.epsilon), delta, compose(aside)),
        )

        def run() -> Array:
            found = self._coordinates(coordinates, table, randomness)
            z = found.of(clip_records(table, float(self.data_norm)))
            # The intercept, where there is one, is no part of a ranking.
            return found.pull_back(noisy_descent(sums_of(z, positive), steps, randomness)[:d])

        what = "pointwise" if isinstance(options, Pointwise) else f"pairwise ({options.loss})"
        described = "" if coordinates is None else coordinates.description
        return Plan(
            event=compose([*first, steps.event]),
            sensitivity=steps.noise.sensitivity,
            run=run,
            mechanism=f"noisy {what} gradient descent ({steps.batching}, {steps.steps} steps{described})",
            proof=_head_of("descent", coordinates),
            exact=not options.sampled,
            assumptions=("the sampled batches stay secret",) if options.sampled else (),
        )

    def _radius(self, mu: float, n: int, d: int) -> float:
        """Return the radius of the parameter ball, in the units of the records."""
        options = self._options
        given = getattr(options, "radius", None)
        if given is not None:
            return float(given)
        R = float(self.data_norm)
        if isinstance(options, Ftrl) and math.isfinite(mu):
            # In so small a ball the loss is nearly linear and its minimiser the difference of the class means, which is
            # what noisy sums of gradients can find. The best of four radii on synthetic tables.
            return 0.25 / R
        return default_radius(mu, n, d, 30.0 if isinstance(options, Pointwise) else 60.0) / R

    def _plan_coordinates(
        self, options: Gradient | Pointwise | Statistics, n: int, d: int, mu: float
    ) -> tuple[float, CoordinatePlan | None]:
        """Return the share of μ² that is spent beside the learning, and the private coordinates, if any."""
        share, centre = float(self.threshold_share), float(options.centre_share)
        if centre == 0:
            return share, None
        scale = 0.0
        if isinstance(options, Pointwise):
            given = options.scale_share
            scale = default_scale_share(mu, n, d) if given is None else float(given)
        spent = share + centre + scale
        if not spent < 1:
            raise InvalidParameterError(
                f"threshold_share, centre_share and scale_share must be below 1 together; found {spent:.3g}. Leave a part "
                "for the ranking."
            )
        return spent, plan_coordinates(n, d, float(self.data_norm), mu, centre, scale)

    def _coordinates(
        self, plan: CoordinatePlan | None, table: Array, randomness: Randomness
    ) -> Coordinates:
        """Release the coordinates, and keep what records are clipped around."""
        if plan is None:
            return Coordinates(self.centre_, self.scale_)
        found = plan.release(table, randomness)
        self.centre_, self.scale_, self.basis_ = found.centre, found.scale, found.basis
        if found.mostly_long:
            # Computed from what was released, so that the warning reveals nothing more.
            warnings.warn(_LONG_RECORDS, UserWarning, stacklevel=7)
        return found

    def _plan_statistics(
        self,
        options: Statistics,
        table: Array,
        positive: NDArray[np.bool_],
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        spent, coordinates = self._plan_coordinates(options, n, d, mu)
        release = plan_moments(mu * math.sqrt(1.0 - spent), d, 2)

        def run() -> Array:
            found = self._coordinates(coordinates, table, randomness)
            z = found.of(clip_records(table, float(self.data_norm)))
            moments = release_moments(z, positive.astype(np.int64), 2, release, randomness)
            return found.pull_back(auc_direction(moments))

        described = "" if coordinates is None else coordinates.description
        first = [] if coordinates is None else coordinates.events()
        return Plan(
            event=compose([*first, release.noise.event()]),
            sensitivity=release.noise.sensitivity,
            run=run,
            mechanism=f"Gaussian release of class sums, counts and second moment{described}; square-loss AUC from it",
            proof=_head_of("moments", coordinates),
        )

    def _with_threshold(
        self,
        plan: Plan,
        choice: ChoicePlan,
        table: Array,
        positive: NDArray[np.bool_],
        randomness: Randomness,
    ) -> Plan:
        """Return the plan followed by the choice of a threshold for what it learned."""

        def run() -> Array:
            w = np.asarray(plan.run())
            thresholds = candidates(float(np.linalg.norm(w)) * self.scale_)
            counts = right_answers(self._scores(table, w), positive, thresholds)
            self.threshold_ = float(thresholds[int(choice.release(counts, randomness))])
            return w

        return replace(
            plan,
            event=compose([plan.event, choice.event()]),
            run=run,
            mechanism=f"{plan.mechanism}, threshold by the exponential mechanism for {self.threshold_share:g} of μ²",
            proof=f"{plan.proof}; heads of pairwise.algorithms.threshold and of ChoicePlan",
        )

    # -- streams

    def _pair_sums(self, table: Array, positive: NDArray[Any]) -> AUCPairs:
        loss = getattr(self._options, "loss", "logistic")
        return AUCPairs(table, positive.astype(bool), loss, float(self.data_norm))

    def _stream_plan(self, stream: Any, run: Callable[[], Any]) -> Plan:
        return Plan(
            event=stream.event,
            sensitivity=stream.sensitivity,
            run=run,
            mechanism=f"{self._options.name}, {stream.description}",
            proof=stream.proof,
        )

    @available_if(_is_online)
    @keeps_state_on_error
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, **refused: Any
    ) -> PrivateAUCClassifier:
        """Take further records of a stream, one at a time in order, and release the parameter after each.

        The first call fixes the noise for ``horizon`` records and charges all of it. The estimator holds the raw records
        while it learns; pickling it drops them, and with them the stream.

        Parameters
        ----------
        X : (m, d) array-like
        y : (m,) array-like
        classes : array-like, optional
            The labels, public, for the first call. Without them and without the parameter ``classes`` they are read
            from the first batch, and the statement says so.
        """
        refuse_fit_parameters(refused)
        first = getattr(self, "_stream", None) is None
        if first and hasattr(self, "n_streamed_"):
            raise InvalidParameterError(
                "this stream was closed by pickling or copying, which drop the raw records. Start again with a new "
                "estimator and a new budget."
            )
        table, labels = self._check_table(X, y, reset=first, few=True)
        if first:
            given = classes if self.classes is None else self.classes
            self.classes_ = np.unique(labels) if given is None else declared_classes(given)
            self._classes_read = given is None
        if len(np.setdiff1d(labels, self.classes_)):
            raise InvalidParameterError(
                "y holds labels that are not among the classes of this stream. List every label that may occur in classes."
            )
        if first:
            self._stream = self._open_stream(*table.shape)
        stream = self._stream
        assert stream is not None
        stream.receive(table, labels == self.classes_[1])
        self.n_streamed_ = stream.seen
        self._store(stream.released)
        return self

    _stream: PairStream | None = None

    def _open_stream(self, m: int, d: int) -> PairStream:
        options = self._options
        options.check()
        horizon = options.horizon  # type: ignore[attr-defined]
        if horizon is None or horizon < m:
            raise InvalidParameterError(
                f"partial_fit needs horizon, the largest number of records that will ever come, at least {m}; found "
                f"{horizon!r}. The noise is fixed by it. Or call fit on the whole table."
            )
        delta = self._check_settings(horizon)
        self._check_two_classes()
        self._begin(d)
        self.threshold_ = 0.0
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta)
        radius, R = self._radius(mu, horizon, d), float(self.data_norm)
        planned = plan_stream(options, horizon, d, R, radius, mu)
        # Of the settings that the noise was planned for, whatever is set while the stream goes on.
        fixed = type(self)(**self.get_params(deep=False))
        plan = self._stream_plan(planned, lambda: planned.open(fixed._pair_sums, d, randomness))
        return self._execute(plan, delta, randomness, horizon)

    def _end_stream(self) -> None:
        """Forget a stream: what was fitted since is no part of it, and the next ``partial_fit`` opens another one."""
        self._stream = None
        self.__dict__.pop("n_streamed_", None)

    def __getstate__(self) -> dict[str, Any]:
        # Raw records and the noiseless iterate must not travel with the model.
        return {k: v for k, v in super().__getstate__().items() if k != "_stream"}

    # -- using

    def _scores(self, records: Array, w: Array) -> Array:
        """Return the scores of records before the threshold is subtracted."""
        clipped = clip_records(records, float(self.data_norm))
        around = clip_records(clipped - self.centre_, self.scale_)
        scores = np.asarray(around @ w)
        if self.basis_ is None:
            return scores
        # As it was learned: records that are long in the scaled features count by their direction.
        lengths = np.linalg.norm(around @ (self.basis_.T / self.scale_), axis=1)
        return np.asarray(scores / np.maximum(lengths, 1.0))

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores, shape (n,), of records clipped as in training; larger means the positive class."""
        return self._scores(self._check_records(X), self.coef_[0]) + self.intercept_[0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the positive class where the score is above the threshold that was paid for, shape (n,).

        Raises
        ------
        InvalidParameterError
            After a fit with ``threshold_share=0``.
        """
        scores = self.decision_function(X)
        if self.threshold_ is None:
            raise InvalidParameterError(
                "predict needs a threshold, and threshold_share=0 paid for none. Rank by decision_function, or fit with a "
                "threshold_share above 0."
            )
        return np.asarray(self.classes_[(scores > 0).astype(int)])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the AUC of the ranking on ``(X, y)``, and not an accuracy: a ranking is learned, a threshold only added.

        Exact, so for labels that may be shown; ``private_auc_score`` is for those that may not.

        Parameters
        ----------
        X : (n, d) array-like
        y : (n,) array-like
            Both classes.
        sample_weight : (n,) array-like, optional
            Of the records that are scored on; nothing is learned here.
        """
        scores = self.decision_function(X)
        labels = np.asarray(y)
        if len(np.setdiff1d(labels, self.classes_)):
            raise InvalidParameterError(
                "y holds labels that the ranking was not given, or of another type. Score on the labels that it was fitted "
                "for."
            )
        positive = labels == self.classes_[1]
        return float(roc_auc_score(positive, scores, sample_weight=sample_weight))


def _head_of(module: str, coordinates: CoordinatePlan | None) -> str:
    """Return where the sensitivities are proved."""
    proof = f"head of pairwise.algorithms.{module}"
    return proof if coordinates is None else f"{proof}; head of pairwise.algorithms.coordinates"
