"""Learners that also take records one at a time: the shared face of GIGA and SGD, and ``partial_fit``.

``StreamingEstimator`` turns settings into a ``Request`` and keeps a stream open between calls. Noise and schedules are
decided in ``perturbation``, steps are taken in ``giga`` and ``ftrl``, and each learner says what its records and its
parameter are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.giga import check_horizon
from pairwise.algorithms.options import Ftrl, OnPair
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.choice import AlgorithmChoice
from pairwise.estimators.perturbation import (
    ConvexTask,
    Request,
    describe_stream,
    plan_perturbation,
    plan_stream,
)
from pairwise.noise.continuous import check_whole
from pairwise.noise.randomness import Randomness
from pairwise.plan import Plan

if TYPE_CHECKING:
    from pairwise.algorithms.ftrl import LeaderPlan
    from pairwise.algorithms.giga import OnlinePlan, PairStream
    from pairwise.pairs.sums import AUCPairs, MetricPairs

__all__ = ["StreamingEstimator"]

Array = NDArray[np.float64]

_REGRET_EXPOSED = "regret_, if it was asked for: it is computed from raw records and must stay with whoever holds them"


def _is_online(estimator: Any) -> bool:
    return isinstance(estimator._options, OnPair | Ftrl)


class StreamingEstimator(AlgorithmChoice):
    """Base of the learners with GIGA and SGD: ``request``, one-shot streams in ``fit``, and ``partial_fit``."""

    # -- what a learner says of itself

    def _check_choices(self) -> None:
        """Refuse settings that do not go together."""
        raise NotImplementedError

    def _check_labels(self, labels: NDArray[Any]) -> None:
        """Refuse a set of classes that cannot be learned from."""
        raise NotImplementedError

    def _encode(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels, all of ``classes_``, as the pair sums take them."""
        raise NotImplementedError

    def _convex_sums(self, table: Array, codes: NDArray[Any]) -> AUCPairs | MetricPairs:
        """Return pair sums in the convex parameter."""
        raise NotImplementedError

    def _task(self, table: Array, codes: NDArray[Any], n: int, mu: float) -> ConvexTask:
        """Return the problem for ``n`` planned records; ``table`` may be a stand-in of fewer."""
        raise NotImplementedError

    def _begin(self, d: int) -> None:
        """Set the fitted attributes that a parameter does not change; nothing by default."""

    def _store(self, parameter: Array) -> None:
        """Set the fitted attributes from a released parameter."""
        raise NotImplementedError

    # -- plans

    def _request(self, delta: float, mu: float) -> Request:
        options = self._options
        return Request(
            algorithm=options.name,
            mode=self.mode,
            epsilon=float(self.epsilon),
            delta=delta,
            mu=mu,
            alpha=getattr(options, "alpha", None),
            rate=getattr(options, "rate", None),
            steps=getattr(options, "steps", None),
            sums=getattr(options, "sums", "square-root"),
            hardened=self._exact,
            allow_vacuous=bool(getattr(options, "allow_vacuous", False)),
        )

    @property
    def _stream_options(self) -> OnPair | Ftrl:
        return cast(OnPair | Ftrl, self._options)

    def _plan_convex(
        self, table: Array, codes: NDArray[Any], delta: float, mu: float, randomness: Randomness
    ) -> Plan:
        """Return the plan of a whole table, taken as a stream by the online algorithms."""
        request = self._request(delta, mu)
        if _is_online(self):
            return self._stream_plan(table, codes, request, randomness)
        task = self._task(table, codes, len(table), mu)
        return plan_perturbation(task, request, randomness)

    def _plan_stream(
        self, d: int, n: int, request: Request
    ) -> tuple[ConvexTask, OnlinePlan | LeaderPlan]:
        stand_in = np.zeros((1, d))
        codes = self._encode(self.classes_[:1])
        task = self._task(stand_in, codes, n, request.mu)
        return task, plan_stream(task, request, n)

    def _new_stream(
        self, task: ConvexTask, online: OnlinePlan | LeaderPlan, randomness: Randomness
    ) -> PairStream:
        # Of the settings that the noise was planned for, whatever is set while the stream goes on.
        fixed = type(self)(**self.get_params(deep=False))
        return online.open(
            fixed._convex_sums,
            task.domain,
            task.anchor,
            randomness,
            random_start=self.mode == "published",
        )

    def _stream_plan(
        self, table: Array, codes: NDArray[Any], request: Request, randomness: Randomness
    ) -> Plan:
        """Return the plan of a whole table taken as a stream."""
        task, online = self._plan_stream(table.shape[1], len(table), request)

        def run() -> Array:
            stream = self._new_stream(task, online, randomness)
            self.n_released_ = len(stream.receive(table, codes))
            return stream.released

        return self._describe(online, request, run)

    def _describe(
        self, online: OnlinePlan | LeaderPlan, request: Request, run: Callable[[], Any]
    ) -> Plan:
        exposed = (_REGRET_EXPOSED,) if self._stream_options.track_regret else ()
        return describe_stream(online, request, run, exposed)

    # -- streams

    @available_if(_is_online)
    @keeps_state_on_error
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, **refused: Any
    ) -> StreamingEstimator:
        """Take further records of a stream, one at a time in order, and release the parameter after each.

        The first call fixes the noise for ``horizon`` records and charges all of it. The estimator holds the
        raw records while it learns; pickling it drops them, and with them the stream.

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
        given = classes if self.classes is None else self.classes
        if not first:
            known = self.classes_
        else:
            known = np.unique(labels) if given is None else declared_classes(given)
        unknown = np.setdiff1d(labels, known)
        if len(unknown):
            raise InvalidParameterError(
                f"y holds {len(unknown)} labels that are not among the classes of this stream. "
                "List every label that may occur in classes."
            )
        if first:
            self._open_stream(table.shape, known, given is None)
        stream = self._stream
        assert stream is not None
        before = stream.released.copy()
        seen = stream.seen
        released = stream.receive(table, self._encode(labels))
        if self._tracks_regret:
            self._add_regret(stream, [before, *released[:-1]], seen)
        self.n_streamed_ = stream.seen
        self._store(stream.released)
        return self

    def _end_stream(self) -> None:
        """Forget a stream: what was fitted since is no part of it, and the next ``partial_fit`` opens another one."""
        self._stream = None
        for name in ("n_streamed_", "regret_"):
            self.__dict__.pop(name, None)

    def _open_stream(self, shape: tuple[int, ...], labels: NDArray[Any], read: bool) -> None:
        self._check_choices()
        horizon = self._stream_options.horizon
        if horizon is None:
            raise InvalidParameterError(
                "partial_fit needs horizon, the largest number of records that will ever come: the noise is fixed by it. "
                "Pass horizon=..., or call fit on the whole table."
            )
        check_whole("horizon", horizon)
        # Before anything is charged: a first batch that is too long would leave nothing but the charge.
        check_horizon(shape[0], horizon)
        delta = self._check_settings(horizon)
        self._check_labels(labels)
        self.classes_ = labels
        self._begin(shape[1])
        self._classes_read = read
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta, hardened=self._exact)
        request = self._request(delta, mu)
        task, online = self._plan_stream(shape[1], horizon, request)
        plan = self._describe(online, request, lambda: self._new_stream(task, online, randomness))
        self._stream = self._execute(plan, delta, randomness, n=horizon, stacklevel=5)
        self.regret_: list[float] = []
        self._tracks_regret = self._stream_options.track_regret  # as the statement says it

    def _add_regret(self, stream: PairStream, used: list[Array], seen: int) -> None:
        """Append each record's mean loss against the earlier ones, at the parameter released before it came."""
        sums = stream.sums()
        for offset, w in enumerate(used):
            t = seen + offset
            if t == 0:
                continue
            pairs = np.stack((np.full(t, t), np.arange(t)), axis=1)
            self.regret_.append(float(sums.values(w, pairs).mean()))

    def __getstate__(self) -> dict[str, Any]:
        # Raw records and the noiseless iterate must not travel with the model.
        state = dict(super().__getstate__())
        state.pop("_stream", None)
        state.pop("regret_", None)
        return state
