"""Linear rankings: the choice of an algorithm, scores, a threshold that was paid for, streams (``partial_fit``), the AUC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from pairwise.accounting.events import compose
from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.options import Ftrl, OnPair, Options
from pairwise.algorithms.streams import PairStream
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    Plan,
    PrivateEstimator,
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.perturbation import plan_stream
from pairwise.estimators.threshold import candidates, right_answers
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.losses import AUCPairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array = NDArray[np.float64]

_PREFIX = "algorithm__"


def is_online(estimator: Any) -> bool:
    """Return whether the algorithm of an estimator takes streams."""
    return isinstance(estimator._options, OnPair | Ftrl)


class LinearRanking(ClassifierMixin, PrivateEstimator):
    """Base of linear rankings around a centre, whose ``algorithm`` is an option object or a name in ``_algorithms``."""

    algorithm: str | Options
    _algorithms: ClassVar[Mapping[str, Options]] = {}
    # Stays open between calls of partial_fit.
    _stream: PairStream | None = None

    threshold_share: float
    classes_: NDArray[Any]
    centre_: Array
    scale_: float
    basis_: Array | None
    coef_: Array
    intercept_: Array
    threshold_: float | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _options(self) -> Options:
        """The options that ``algorithm`` means, of a type that this estimator has."""
        options = self.algorithm
        if isinstance(options, str) and options in self._algorithms:
            return self._algorithms[options]
        if type(options) in {type(each) for each in self._algorithms.values()}:
            return options  # type: ignore[return-value]
        raise InvalidParameterError(
            f"algorithm must be one of {', '.join(self._algorithms)}, or options such as "
            f"{type(next(iter(self._algorithms.values()))).__name__}(); found {options!r}."
        )

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``algorithm__<option>`` sets an option of the algorithm, also of one given by name.

        Parameters
        ----------
        **params : dict
        """
        nested = {k: params.pop(k) for k in list(params) if k.startswith(_PREFIX)}
        super().set_params(**params)
        if nested:
            changes = {name.removeprefix(_PREFIX): value for name, value in nested.items()}
            known = self._options.get_params()
            for name in changes:
                if name not in known:
                    raise ValueError(
                        f"Invalid parameter {name!r} for algorithm {self._options.name!r}. Valid parameters are: "
                        f"{sorted(known)!r}."
                    )
            self.algorithm = replace(self._options, **changes)
        return self

    # -- a ranking in use

    def __getattr__(self, name: str) -> Any:
        if name == "predict_proba":
            raise AttributeError(
                "a ranking has no probabilities, so there is no predict_proba. Rank by decision_function; for probabilities "
                "calibrate its scores on records that are public, or whose use is charged to the same budget."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _begin(self, d: int) -> None:
        self.centre_, self.scale_ = np.zeros(d), float(self.data_norm)
        self.basis_: Array | None = None
        self.threshold_: float | None = None if self.threshold_share == 0 else 0.0

    def _store(self, parameter: Array) -> None:
        self.coef_ = np.array(parameter, dtype=np.float64).reshape(1, -1)
        around = float(self.centre_ @ self.coef_[0])
        self.intercept_ = np.array([-around - float(self.threshold_ or 0.0)])

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
            proof=f"{plan.proof}; heads of pairwise.estimators.threshold and of ChoicePlan",
        )

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
        """Return scores, shape (n,), of records clipped as in training; larger means the positive class.

        Of a record that no clipping shortens, ``coef_ @ x + intercept_``.
        """
        return self._scores(self._check_records(X), self.coef_[0]) - float(self.threshold_ or 0.0)

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
        from sklearn.metrics import roc_auc_score

        scores = self.decision_function(X)
        labels = np.asarray(y)
        if len(np.setdiff1d(labels, self.classes_)):
            raise InvalidParameterError(
                "y holds labels that the ranking was not given, or of another type. Score on the labels that it was fitted "
                "for."
            )
        positive = labels == self.classes_[1]
        return float(roc_auc_score(positive, scores, sample_weight=sample_weight))

    # -- streams

    def _radius(self, mu: float, n: int, d: int) -> float:
        """Return the radius of the parameter ball, in the units of the records."""
        raise NotImplementedError

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

    @available_if(is_online)
    @keeps_state_on_error
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, **refused: Any
    ) -> LinearRanking:
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
