"""A check of pipelines that learn from private records what no statement covers, and the pipeline that runs it.

A scaler that is *fitted* on private records (``StandardScaler``, ``MinMaxScaler``, ``PCA``) releases what it learned
from them through everything that comes after it, and no statement of a learner behind it covers that: the learner sees a
table, not where it came from. A step behind a private one is fitted on the records themselves, mapped by what was
learned. What to use instead is in ``features``.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from pairwise.errors import InvalidParameterError
from pairwise.estimators.features import PublicTransformer
from pairwise.statement import UnsoundWarning

# Estimators that hold steps, and where they hold them.
_HOLDERS = (
    (Pipeline, "steps"),
    (FeatureUnion, "transformer_list"),
    (ColumnTransformer, "transformers"),
)

_BEFORE = (
    "learn from the records in front of a private learner, and its statement does not cover what they learn. Use "
    "PublicScaler and PublicOneHot with what you declare, or name them in public= if they were fitted on public records."
)
_BEHIND = (
    "learn from the records behind the last private learner, whose statement covers its own release and not what they keep "
    "of the records that it maps. Fit them on public records and name them in public=, or end the pipeline in the private "
    "learner."
)
_AROUND = (
    "hold a private learner: they fit it several times, on parts or repetitions of the records, or learn from its scores, "
    "and no statement covers that. Take the learner itself, search by PrivateSearchCV, or name them in public= if all that "
    "they do with the records is charged to a budget."
)


def _is_ours(step: Any) -> bool:
    """Return whether a step is an estimator of this package, or of a class that somebody derived from one."""
    return any(cls.__module__.split(".")[0] == "pairwise" for cls in type(step).__mro__)


def _is_private(step: Any) -> bool:
    """Return whether a step is a private learner, of this package or derived from one of its."""
    return (
        isinstance(step, BaseEstimator)
        and _is_ours(step)
        and not isinstance(step, (PublicTransformer, Pipeline))
    )


def held_by(value: Any) -> Iterator[Any]:
    """Yield a step and all that it holds in its parameters, and in lists and mappings among them."""
    yield value
    inner: Any = ()
    if hasattr(value, "get_params") and not isinstance(value, type):
        inner = value.get_params(deep=False).values()
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    for each in inner:
        yield from held_by(each)


def holds_private(step: Any) -> bool:
    """Return whether a step is a private learner or holds one, as searches, calibrations and ensembles do."""
    return any(map(_is_private, held_by(step)))


def _is_public(step: Any) -> bool:
    """Return whether a step scales or encodes by declarations alone; who overrides how it is fitted may do anything."""
    if not isinstance(step, PublicTransformer):
        return False
    ours = next(c for c in type(step).__mro__ if c.__module__ == PublicTransformer.__module__)
    methods = ("fit", "transform", "fit_transform")
    return all(getattr(type(step), name) is getattr(ours, name) for name in methods)


def _learns(step: Any) -> bool:
    """Return whether a step without a private learner keeps something of the records, which no statement covers."""
    if step is None or isinstance(step, str) or _is_public(step):
        return False
    return not holds_private(step) and bool(get_tags(step).requires_fit)


def _steps(estimator: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return the named steps of a pipeline, of pipelines inside it and of the branches of unions and column transformers."""
    while isinstance(estimator, FrozenEstimator):
        # Fits nothing, and keeps what is in it.
        estimator = estimator.estimator
    inner = next(
        (getattr(estimator, at) for cls, at in _HOLDERS if isinstance(estimator, cls)), None
    )
    if inner is None:
        return [(name, estimator)]
    if isinstance(estimator, ColumnTransformer):
        inner = [*inner, ("remainder", estimator.remainder)]
    return [
        nested
        for step, each, *_ in inner
        for nested in _steps(each, f"{name}.{step}" if name else step)
    ]


def check_pipeline(pipeline: Any, *, public: Collection[str] = ()) -> list[str]:
    """Warn of steps that learn from private records beside a private learner: in front of it, behind, or around it.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted or not.
    public : collection of str, default=()
        Names of steps that are known to keep nothing of the records, or nothing that is not charged to a budget, or were
        fitted on public ones and are frozen. What a nested step is called joins the names by a point.

    Returns
    -------
    list of str
        Names of the steps that learn, empty for a pipeline without any.

    Warns
    -----
    UnsoundWarning
        If the list is not empty. In front of a private learner its statement then does not hold for the records that the
        pipeline was fitted on. Behind the last one it holds, but covers nothing of what that step keeps. Around one, such as
        a calibration, an ensemble or a search of scikit-learn, each statement is of one fit of several.

    Notes
    -----
    A step counts as learning if scikit-learn's tag ``requires_fit`` says so and it is no estimator of this package, nor
    derived from one. Whatever else holds a private learner is named. A ``FunctionTransformer`` is believed to look at each
    record on its own; one that takes a mean over the table cannot be told from one that does not, nor can a table that was
    scaled before it came.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer, StandardScaler
    >>> from pairwise import PrivateAUCClassifier, PublicScaler
    >>> from pairwise.estimators.pipelines import check_pipeline
    >>> check_pipeline(make_pipeline(PublicScaler(0, 120), Normalizer(), PrivateAUCClassifier(1.0)))
    []
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     check_pipeline(make_pipeline(StandardScaler(), PrivateAUCClassifier(1.0)))
    ['standardscaler']
    """
    if not isinstance(pipeline, Pipeline):
        raise InvalidParameterError(
            f"expected a Pipeline; found {type(pipeline).__name__}. Pass the pipeline that ends in the learner."
        )
    return _check(pipeline, public)


def _check(pipeline: Pipeline, public: Collection[str]) -> list[str]:
    public = {public} if isinstance(public, str) else public
    if not isinstance(public, Collection):
        raise InvalidParameterError(
            f"public must be a list of names of steps; found {type(public).__name__}."
        )
    pairs = pipeline.steps if isinstance(pipeline.steps, list | tuple) else [()]
    if not all(isinstance(each, list | tuple) and len(each) == 2 for each in pairs):
        raise InvalidParameterError("steps must be a list of pairs (name, estimator).")
    steps = _steps(pipeline)
    private = [number for number, (_, step) in enumerate(steps) if holds_private(step)]
    if not private:
        return []
    before, behind = (
        [name for name, step in part if _learns(step) and name not in public]
        for part in (steps[: private[-1]], steps[private[-1] + 1 :])
    )
    around = [
        name
        for name, step in (steps[number] for number in private)
        if not _is_private(step) and name not in public
    ]
    for names, problem in ((before, _BEFORE), (behind, _BEHIND), (around, _AROUND)):
        if names:
            warnings.warn(f"the steps {', '.join(names)} {problem}", UnsoundWarning, stacklevel=3)
    return before + behind + around


class PrivatePipeline(Pipeline):
    """A ``Pipeline`` that warns, whenever it is fitted, of steps that learn from records beside a private learner.

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
    >>> learner = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1])
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
        _check(self, self.public)
        super().fit(X, y, **params)
        return self

    @available_if(lambda self: hasattr(super(), "fit_transform"))
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Warn of steps that learn, then do what ``Pipeline.fit_transform`` does."""
        _check(self, self.public)
        return super().fit_transform(X, y, **params)

    @available_if(lambda self: hasattr(super(), "fit_predict"))
    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Warn of steps that learn, then do what ``Pipeline.fit_predict`` does."""
        _check(self, self.public)
        return super().fit_predict(X, y, **params)
