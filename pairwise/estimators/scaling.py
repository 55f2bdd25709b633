"""Scaling by bounds declared in public, and a check of pipelines that scale by what they read from private records.

A scaler that is *fitted* on private records (``StandardScaler``, ``MinMaxScaler``, ``PCA``) releases what it learned from
them through everything that comes after it, and no statement of a learner behind it covers that: the learner sees a table,
not where it came from. Here live the scaler to use instead, the check that finds the others, and the pipeline that runs this
check whenever it is fitted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import without_values
from pairwise.statement import UnsoundWarning

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["PrivatePipeline", "PublicScaler", "check_pipeline"]

Array = NDArray[np.float64]


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale features by bounds declared in public, each record on its own; nothing is learned from the records.

    A value at ``low`` becomes ``output_range[0]`` and one at ``high`` ``output_range[1]``; what lies outside is cut to the
    bounds. So a private learner behind it sees records that depend on one individual each, and its guarantee stands.

    Parameters
    ----------
    low, high : float or (d,) array-like, default=0.0 and 1.0
        Bounds of the features, from public knowledge: ages lie in 0..120 whatever the table says. Never the smallest and
        largest value found in it.
    output_range : tuple of float, default=(0.0, 1.0)
        (0, 1) or (−1, 1), say. With (−b, b) records have a Euclidean norm of at most b√d.

    Attributes
    ----------
    n_features_in_ : int
    scale_ : (d,) array
        What a difference is multiplied with.

    Examples
    --------
    >>> from pairwise import PublicScaler
    >>> ages_and_incomes = [[30, 20_000.0], [150, 5_000.0]]
    >>> PublicScaler([0, 0], [120, 100_000]).fit_transform(ages_and_incomes).tolist()
    [[0.25, 0.2], [1.0, 0.05]]
    """

    def __init__(
        self,
        low: ArrayLike = 0.0,
        high: ArrayLike = 1.0,
        output_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.low = low
        self.high = high
        self.output_range = output_range

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The number of features is all that fit reads.
        tags.requires_fit = True
        return tags

    def fit(self, X: ArrayLike, y: Any = None) -> PublicScaler:
        """Check the bounds against the number of columns of ``X``, whose values are not used; ``y`` is ignored."""
        self._checked(X, reset=True)
        low, high = self._bounds()
        first, last = self._range()
        self.scale_ = (last - first) / (high - low)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return scaled records, cut to ``output_range``, shape (n, d)."""
        check_is_fitted(self)
        table = self._checked(X, reset=False)
        low, high = self._bounds()
        first, last = self._range()
        # Cut first: no value, however large, then overflows.
        scaled = (np.clip(table, low, high) - low) * self.scale_ + first
        return np.asarray(np.clip(scaled, first, last))

    def _checked(self, X: ArrayLike, *, reset: bool) -> Array:
        try:
            return np.asarray(validate_data(self, X, dtype=np.float64, reset=reset))
        except ValueError as error:
            raise without_values(error, X) from None

    def _bounds(self) -> tuple[Array, Array]:
        d = self.n_features_in_
        bounds = []
        for name in ("low", "high"):
            bound = np.asarray(getattr(self, name), dtype=np.float64)
            if bound.shape not in ((), (d,)):
                raise InvalidParameterError(
                    f"{name} must be one number, or one for each of {d} features; found shape {bound.shape}."
                )
            bounds.append(np.broadcast_to(bound, (d,)))
        low, high = bounds
        with np.errstate(over="ignore", invalid="ignore"):
            spread = high - low
        if not (np.isfinite(low).all() and np.isfinite(spread).all() and (spread > 0).all()):
            raise InvalidParameterError(
                "low must be below high for every feature, and both finite, with a finite difference."
            )
        return low, high

    def _range(self) -> tuple[float, float]:
        first, last = (float(end) for end in self.output_range)
        if not (math.isfinite(first) and math.isfinite(last) and first < last):
            raise InvalidParameterError(
                f"output_range must be two finite numbers in order; found {self.output_range!r}."
            )
        return first, last


# Estimators that hold steps, and where they hold them.
_HOLDERS = (
    (Pipeline, "steps"),
    (FeatureUnion, "transformer_list"),
    (ColumnTransformer, "transformers"),
)


def _learns(step: Any) -> bool:
    """Return whether a step of a pipeline keeps something of the records that no statement covers."""
    if step is None or isinstance(step, str | PublicScaler):
        return False
    # Its own statement says what a private step has released.
    if type(step).__module__.split(".")[0] == "pairwise":
        return False
    return bool(get_tags(step).requires_fit)


def _steps(estimator: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return the named steps of a pipeline, of pipelines inside it and of the branches of unions and column transformers."""
    inner = next(
        (getattr(estimator, at) for cls, at in _HOLDERS if isinstance(estimator, cls)), None
    )
    if inner is None:
        return [(name, estimator)]
    return [
        nested
        for step, each, *_ in inner
        for nested in _steps(each, f"{name}.{step}" if name else step)
    ]


def check_pipeline(pipeline: Any, *, public: Collection[str] = ()) -> list[str]:
    """Warn of steps that learn from private records in front of a private learner.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted or not.
    public : collection of str, default=()
        Names of steps that are known to keep nothing of the records, or were fitted on public ones and are frozen. What a
        nested step is called joins the names by a point.

    Returns
    -------
    list of str
        Names of the steps that learn, empty for a pipeline without any.

    Warns
    -----
    UnsoundWarning
        If the list is not empty: the statement of the learner at the end then does not hold for the records that the
        pipeline was fitted on.

    Notes
    -----
    A step counts as learning if scikit-learn's tag ``requires_fit`` says so and it is no estimator of this package, whose
    releases have statements and charges of their own. A ``FunctionTransformer`` is believed to look at each record on its
    own; a function that takes a mean over the table cannot be told from one that does not. Nor can a table that was scaled
    before it came. A learner sees neither the pipeline around it nor the past of its table, so it runs no check by itself;
    :class:`PrivatePipeline` does.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer, StandardScaler
    >>> from pairwise import PrivateAUCClassifier, PublicScaler, check_pipeline
    >>> check_pipeline(make_pipeline(PublicScaler(0, 120), Normalizer(), PrivateAUCClassifier()))
    []
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     check_pipeline(make_pipeline(StandardScaler(), PrivateAUCClassifier()))
    ['standardscaler']
    """
    if not isinstance(pipeline, Pipeline):
        raise InvalidParameterError(
            f"expected a Pipeline; found {type(pipeline).__name__}. Pass the pipeline that ends in the learner."
        )
    return _check(pipeline, public, stacklevel=3)


def _check(pipeline: Pipeline, public: Collection[str], *, stacklevel: int) -> list[str]:
    steps = _steps(pipeline)
    private = [
        number
        for number, (_, step) in enumerate(steps)
        if type(step).__module__.split(".")[0] == "pairwise" and not isinstance(step, PublicScaler)
    ]
    last = private[-1] if private else 0
    names = [name for name, step in steps[:last] if _learns(step) and name not in public]
    if names:
        warnings.warn(
            f"the steps {', '.join(names)} learn from the records in front of a private learner, and its statement does not "
            "cover what they learn. Use PublicScaler with declared bounds, or name them in public= if they were fitted on "
            "public records.",
            UnsoundWarning,
            stacklevel=stacklevel,
        )
    return names


class PrivatePipeline(Pipeline):
    """A ``Pipeline`` that warns, whenever it is fitted, of steps that learn from records before a private learner.

    In every other way the pipeline of scikit-learn: a search over its settings warns as well.

    Parameters
    ----------
    steps : list of (str, estimator)
        As of ``Pipeline``.
    public : collection of str, default=()
        As of :func:`check_pipeline`.
    transform_input, memory, verbose
        As of ``Pipeline``.

    Warns
    -----
    UnsoundWarning
        As :func:`check_pipeline` does, before anything is fitted.

    Examples
    --------
    >>> from pairwise import PrivateAUCClassifier, PrivatePipeline, PublicScaler
    >>> learner = PrivateAUCClassifier(classes=[0, 1])
    >>> PrivatePipeline([("scale", PublicScaler(0, 120)), ("learn", learner)]).public
    ()
    """

    def __init__(
        self,
        steps: list[tuple[str, Any]],
        *,
        public: Collection[str] = (),
        transform_input: list[str] | None = None,
        memory: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.public = public

    def fit(self, X: Any, y: Any = None, **params: Any) -> PrivatePipeline:
        """Warn of steps that learn, then fit as ``Pipeline.fit`` does."""
        _check(self, self.public, stacklevel=3)
        super().fit(X, y, **params)
        return self

    @available_if(lambda self: hasattr(super(), "fit_transform"))
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Warn of steps that learn, then do what ``Pipeline.fit_transform`` does."""
        _check(self, self.public, stacklevel=3)
        return super().fit_transform(X, y, **params)

    @available_if(lambda self: hasattr(super(), "fit_predict"))
    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Warn of steps that learn, then do what ``Pipeline.fit_predict`` does."""
        _check(self, self.public, stacklevel=3)
        return super().fit_predict(X, y, **params)
