"""Streams: an estimator that takes records one at a time by ``partial_fit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.options import Ftrl, OnPair
from pairwise.algorithms.streams import PairStream
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    Plan,
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.perturbation import plan_stream
from pairwise.estimators.ranking import LinearRanking
from pairwise.noise.randomness import Randomness
from pairwise.pairs.sums import AUCPairs

Array = NDArray[np.float64]


def is_online(estimator: Any) -> bool:
    """Return whether the algorithm of an estimator takes streams."""
    return isinstance(estimator._options, OnPair | Ftrl)


class StreamingRanking(LinearRanking):
    """Base of rankings that also take streams: the stream stays open between calls of ``partial_fit``."""

    _stream: PairStream | None = None

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
    ) -> StreamingRanking:
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
