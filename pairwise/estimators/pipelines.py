"""A check of pipelines that learn from private records what no statement covers, and the pipeline that runs it.

A scaler that is *fitted* on private records (``StandardScaler``, ``MinMaxScaler``, ``PCA``) releases what it learned from
them through everything that comes after it, and no statement of a learner behind it covers that: the learner sees a table,
not where it came from. Here live the check that finds such steps, and the pipeline that runs it whenever it is fitted; what
to use instead is in ``features``.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from pairwise.errors import InvalidParameterError
from pairwise.estimators.features import PublicOneHot, PublicScaler
from pairwise.statement import UnsoundWarning

__all__ = ["PrivatePipeline", "check_pipeline"]

_PUBLIC = (PublicScaler, PublicOneHot)

# Estimators that hold steps, and where they hold them.
_HOLDERS = (
    (Pipeline, "steps"),
    (FeatureUnion, "transformer_list"),
    (ColumnTransformer, "transformers"),
)


def _learns(step: Any) -> bool:
    """Return whether a step of a pipeline keeps something of the records that no statement covers."""
    if step is None or isinstance(step, str | PublicScaler | PublicOneHot):
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
    if isinstance(estimator, ColumnTransformer):
        inner = [*inner, ("remainder", estimator.remainder)]
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
        if type(step).__module__.split(".")[0] == "pairwise" and not isinstance(step, _PUBLIC)
    ]
    last = private[-1] if private else 0
    names = [name for name, step in steps[:last] if _learns(step) and name not in public]
    if names:
        warnings.warn(
            f"the steps {', '.join(names)} learn from the records in front of a private learner, and its statement does not "
            "cover what they learn. Use PublicScaler and PublicOneHot with what you declare, or name them in public= if "
            "they were fitted on public records.",
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
