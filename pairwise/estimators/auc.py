"""``PrivateAUCClassifier``: a ranking in use, and its streams. Its algorithms are in ``estimators.rankings``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.coordinates import Coordinates, Ranking
from pairwise.algorithms.options import Algorithm
from pairwise.algorithms.plan import ClippedRecords, PublicTask
from pairwise.algorithms.streams import PairStream
from pairwise.errors import InvalidParameterError, check_share, warn_user
from pairwise.estimators.base import (
    PrivateEstimator,
    declared_classes,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.rankings import STREAM_PLANNERS, options_of, plan_ranking
from pairwise.noise.randomness import Randomness

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget

Array = NDArray[np.float64]

_LONG_RECORDS = (
    "by a private count, more than half of the records are longer than twice data_norm, and clipping leaves little of them. "
    "Scale by bounds that are public: PublicScaler(low, high, output_range=(-1, 1)) in front, and data_norm=its norm_bound_."
)


class PrivateAUCClassifier(ClassifierMixin, PrivateEstimator):
    """A linear ranking with a high AUC, under differential privacy (replace-one).

    Parameters
    ----------
    epsilon : float
        Bound on the privacy loss of one record, in nats; infinity adds no noise.
    delta : float, optional
        Below 1/n; default min(1e-5, n^-1.5).
    algorithm : str or options, default="auto"
        ``"auto"`` is recommended: ``Pointwise()`` with steps, radius and a share for scaling, which a public rule of n, d,
        epsilon and delta chooses. ``OnPair()`` and ``Ftrl()`` are for streams, ``Gradient()``, ``Statistics()``,
        ``OffPair()`` and ``SGDOutput()`` for comparison. A name means the defaults of one: ``"pointwise"``,
        ``"gradient"``, ``"statistics"``, ``"onpairstrc"``, ``"offpairstrc"``, ``"ftrl"``, ``"sgd-output"``.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it, in ``fit`` and in ``decision_function``. Scale with
        ``PublicScaler`` and pass its ``norm_bound_``.
    classes : array-like of 2 labels, optional
        Public; the larger is the positive one. Without it the labels are read from y and the statement says so.
    threshold_share : float, default=0.05
        Share of μ² for the threshold of ``predict``: one of 65 public candidates, chosen privately to be right on most
        records. It is part of epsilon. 0 spends all on the ranking, and ``predict`` then raises an error.
        ``partial_fit`` cuts at the score 0.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    coef_ : (1, d) array
    intercept_ : (1,) array
        The score of a record that no clipping shortens is ``coef_ @ x + intercept_``.
    threshold_ : float or None
        Subtracted from the score; None if nothing was spent on it.
    centre_ : (d,) array
        Subtracted from a record after clipping to ``data_norm``.
    scale_ : float
        Norm to which the difference is clipped again.
    basis_ : (d, d) array or None
        Map of the difference over ``scale_`` to scaled features. If their norm is above 1, the score is divided by it. None
        without scaling.
    classes_, statement_, privacy_event_, n_features_in_

    Notes
    -----
    ``score`` is the AUC, not an accuracy. There is no ``predict_proba``: a ranking orders records and has no probabilities.

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

    # Stays open between calls of partial_fit.
    _stream: PairStream | None = None

    classes_: NDArray[Any]
    centre_: Array
    scale_: float
    basis_: Array | None
    coef_: Array
    intercept_: Array
    threshold_: float | None

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        *,
        algorithm: str | Algorithm = "auto",
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
        options = options_of(self.algorithm)
        options.check()
        check_share("threshold_share", self.threshold_share)
        n, d = table.shape
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._classes_read = self.classes is None
        _check_two(self.classes_)
        randomness = Randomness(self.random_state)
        plan = plan_ranking(
            options, self._public_task(n, d, delta, float(self.threshold_share), randomness)
        )
        positive = np.asarray(labels == self.classes_[1])
        records = ClippedRecords.of(table, positive, float(self.data_norm))
        ranking = self._charge_and_run(plan, delta, randomness, records)
        self._end_stream()
        self._store(ranking)
        if ranking.coordinates.mostly_long:
            # Computed from what was released, so that the warning reveals nothing more.
            warn_user(_LONG_RECORDS, UserWarning)
        return self

    def _public_task(
        self, n: int, d: int, delta: float, threshold_share: float, randomness: Randomness
    ) -> PublicTask:
        return PublicTask(
            n=n,
            d=d,
            data_norm=float(self.data_norm),
            mu=release_mu(float(self.epsilon), delta),
            threshold_share=threshold_share,
            shuffle=randomness.permutation,
        )

    def _store(self, ranking: Ranking) -> None:
        found = ranking.coordinates
        self.centre_, self.scale_, self.basis_ = found.centre, found.scale, found.basis
        self.threshold_ = ranking.threshold
        self.coef_ = np.array(ranking.w, dtype=np.float64).reshape(1, -1)
        around = float(self.centre_ @ self.coef_[0])
        self.intercept_ = np.array([-around - float(self.threshold_ or 0.0)])

    def __getattr__(self, name: str) -> Any:
        if name == "predict_proba":
            raise AttributeError(
                "a ranking has no probabilities, so there is no predict_proba. Rank by decision_function; for probabilities "
                "calibrate its scores on records that are public, or whose use is charged to the same budget."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores, shape (n,), of records clipped as in training; larger means the positive class.

        Of a record that no clipping shortens, ``coef_ @ x + intercept_``.
        """
        records = self._check_records(X)
        coordinates = Coordinates(self.centre_, self.scale_, self.basis_)
        scores = Ranking(self.coef_[0], coordinates).scores(records)
        return scores - float(self.threshold_ or 0.0)

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

    @available_if(lambda self: type(options_of(self.algorithm)) in STREAM_PLANNERS)
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
        # By the norm that the noise was planned for, whatever is set while the stream goes on.
        norm = stream.bounds.data_norm
        stream.receive(ClippedRecords.of(table, labels == self.classes_[1], norm))
        self.n_streamed_ = stream.seen
        self._store(replace(stream.ranking, threshold=0.0))
        return self

    def _open_stream(self, m: int, d: int) -> PairStream:
        options = options_of(self.algorithm)
        options.check()
        horizon = options.horizon  # type: ignore[attr-defined]
        if horizon is None or horizon < m:
            raise InvalidParameterError(
                f"partial_fit needs horizon, the largest number of records that will ever come, at least {m}; found "
                f"{horizon!r}. The noise is fixed by it. Or call fit on the whole table."
            )
        delta = self._check_settings(horizon)
        _check_two(self.classes_)
        randomness = Randomness(self.random_state)
        task = self._public_task(horizon, d, delta, 0.0, randomness)
        stream = STREAM_PLANNERS[type(options)](options, task)
        opened: PairStream = self._charge_and_run(stream.opening(), delta, randomness, None)
        return opened

    def _end_stream(self) -> None:
        """Forget a stream: what was fitted since is no part of it, and the next ``partial_fit`` opens another one."""
        self._stream = None
        self.__dict__.pop("n_streamed_", None)

    def __getstate__(self) -> dict[str, Any]:
        # Raw records and the noiseless iterate must not travel with the model.
        return {k: v for k, v in super().__getstate__().items() if k != "_stream"}


def _check_two(classes: NDArray[Any]) -> None:
    """Refuse class lists that have no AUC."""
    if len(classes) > 2:
        raise InvalidParameterError(
            "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
            f"{len(classes)}. Compare one class with the rest."
        )
    if len(classes) < 2:
        raise InvalidParameterError(
            "an AUC needs two classes; found one class. Check the labels, or pass classes=[negative, positive]."
        )
