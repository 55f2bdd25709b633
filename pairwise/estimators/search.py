"""``PrivateSearchCV``: scikit-learn's search over settings, with one stated price for all fits and scores."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from pairwise.accounting.parameters import resolved_delta
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import (
    CLASSES_READ,
    MINIMUM_RECORDS,
    PrivateEstimator,
    clipped_to,
    declared_classes,
    keeps_state_on_error,
    labels_of,
    refuse_fit_parameters,
    without_seed,
)
from pairwise.estimators.pipelines import check_pipeline, held_by, holds_private
from pairwise.estimators.trials import (
    READ_BY,
    PrivateScorer,
    TrialAccount,
    private_selection,
    trial_price,
)
from pairwise.noise.randomness import Randomness
from textpriv.statement import PrivacyStatement

if TYPE_CHECKING:
    from sklearn.utils import Tags

# Delta at which a trial's share is handed to fit and score as an epsilon; exact noise costs the same at any.
_TRIAL_DELTA = 1e-6
_VALIDATION = 0.3  # share of the rows that are scored and not fitted
_PAID = ("epsilon", "delta", "budget")


def _has(name: str) -> Any:
    """Whether the winner, or before the fit the estimator, has a method."""

    def check(search: PrivateSearchCV) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    return available_if(check)


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Find the best of many settings, fitted and scored privately, at one (ε, δ) for any number of them.

    The search tries a random number of settings. Each is drawn at random, fitted on 70 % of the rows and scored on the
    others. It releases the trial with the highest private score (``pairwise.estimators.trials``). The parts are disjoint,
    and each may spend the whole price of a trial.

    Parameters
    ----------
    estimator : PrivateEstimator, or Pipeline with one
        Its epsilon, delta and budget are set by the search.
    param_grid : dict or list of dicts
        As of ``GridSearchCV``; public, and fixed without looking at the records.
    epsilon : float
        Of the whole search.
    delta : float, optional
        Default min(1e-5, n^-1.5); 1/n and above are refused.
    scoring : {"auc", "accuracy"}, default="auc"
    budget : PrivacyBudget, optional
        Charged for the whole search before the first trial.
    random_state : int, RandomState or None, default=None
        Draws the number of trials, their settings and the noise of scores. None draws from the operating system, the only
        private setting.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted on the rows for training.
    best_params_ : dict
    best_score_ : float
        The highest of many noisy scores, so it flatters: score again for a number to report.
    statement_, privacy_event_
        Of the whole search, also where ``best_estimator_`` is asked for them.
    classes_, n_features_in_, feature_names_in_
        Where ``best_estimator_`` has them.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import PrivateAUCClassifier, PrivateSearchCV
    >>> X, y = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 300, axis=0), np.repeat([1, 0], 300)
    >>> grid = {"data_norm": [0.5, 1.0, 2.0], "algorithm": ["gradient", "pointwise"]}
    >>> search = PrivateSearchCV(PrivateAUCClassifier(1.0, classes=[0, 1]), grid, epsilon=2.0).fit(X, y)
    >>> sorted(search.best_params_), search.statement_.epsilon
    (['algorithm', 'data_norm'], 2.0)
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float,
        delta: float | None = None,
        scoring: str = "auc",
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.budget = budget
        self.random_state = random_state

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateSearchCV:
        """Try settings, and keep the best trial.

        Parameters
        ----------
        X : (n, d) array-like
        y : (n,) array-like
            Two classes.

        Raises
        ------
        PairwiseError
            A ValueError that says what was expected and what to do; what a trial refuses is refused here.
        """
        refuse_fit_parameters(refused)
        prefix = self._check()
        randomness = Randomness(self.random_state)
        rows = labels_of(y)
        if np.ndim(rows) != 1 or len(rows) != _num_samples(X):
            raise InvalidParameterError("X and y must have one row and one label for each record.")
        total = resolved_delta(self.epsilon, self.delta, len(rows))
        training, tested = _split(len(rows))
        settings = list(ParameterGrid(self.param_grid))
        models = [clone(self.estimator).set_params(**setting) for setting in settings]
        for each in models:
            self._check_trial(each, prefix, rows)
        unpaid = _unpaid_steps(models)
        limit, _ = trial_price(self.epsilon, total)
        delta = min(_TRIAL_DELTA, 0.1 / len(rows))

        def fitted(model: Any, account: TrialAccount, budget: Any, part: Any) -> Any:
            paid = (account.epsilon(delta), delta, budget)
            names = (prefix + name for name in _PAID)
            model = clone(model).set_params(**dict(zip(names, paid, strict=True)))
            return model.fit(_safe_indexing(X, part), rows[part])

        # Whatever may be refused without a release is, for each setting, before the search is charged.
        for model, part in itertools.product(models, (np.arange(len(rows)), training)):
            account = TrialAccount(limit)
            with contextlib.suppress(_NothingDrawn):
                fitted(model, account, _ChecksOnly(account), part)
                raise InvalidParameterError(
                    "a trial must charge what it learns; found a fit without a charge."
                )

        def trial(number: int, account: TrialAccount) -> tuple[float, Any]:
            first, second = account.part("training"), account.part("validation")
            model = fitted(models[number], first, first, training)
            # Noise of scores must not repeat from trial to trial.
            seed = None if randomness.secure else int(randomness.integers(2**31))
            scorer = PrivateScorer(self.scoring, second.epsilon(delta), delta, second, seed)
            return scorer(model, _safe_indexing(X, tested), rows[tested]), model

        found = private_selection(
            trial,
            range(len(models)),
            epsilon=float(self.epsilon),
            delta=float(total),
            budget=self.budget,
            random_state=randomness,
        )
        self.best_estimator_, self.best_score_ = found.result, found.score
        self.best_params_, self.privacy_event_ = dict(settings[found.candidate]), found.event
        learner = _learner(found.result, prefix)
        learners = [_learner(model, prefix) for model in models]
        self.statement_ = _for_all(found.statement, learner, learners, unpaid)
        learner.statement_, learner.privacy_event_ = self.statement_, self.privacy_event_
        learner.budget = None
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(found.result, name):
                setattr(self, name, getattr(found.result, name))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = without_seed(dict(super().__getstate__()))
        if "statement_" not in state:
            return state
        # Trials were fitted with the seeds of their template and of the settings.
        seed = _prefix_of(self.estimator) + "random_state"

        def unseeded(settings: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in settings.items() if name != seed}

        grid = self.param_grid
        return {
            **state,
            "estimator": clone(self.estimator).set_params(**{seed: None}),
            "param_grid": unseeded(grid)
            if isinstance(grid, Mapping)
            else list(map(unseeded, grid)),
            "best_params_": unseeded(self.best_params_),
        }

    def _check(self) -> str:
        """Return the prefix of the private learner's parameters, or refuse settings."""
        prefix = _prefix_of(self.estimator)
        method = READ_BY.get(self.scoring) if isinstance(self.scoring, str) else None
        if method is None:
            raise InvalidParameterError(
                f"scoring must be one of {', '.join(READ_BY)}; found {self.scoring!r}."
            )
        if not hasattr(self.estimator, method):
            raise InvalidParameterError(
                f"scoring {self.scoring!r} reads {method}, which {type(self.estimator).__name__} has not. Search over a "
                "classifier, or score trials yourself with private_selection."
            )
        if self.delta == 0:
            raise InvalidParameterError(
                f"scores are released with Gaussian noise; delta must be above 0, found {self.delta!r}."
            )
        for setting in ParameterGrid(self.param_grid):
            taken = [name for name in _PAID if prefix + name in setting]
            if taken:
                raise InvalidParameterError(
                    f"{taken[0]} of a trial follows from the price of the search. Leave it out of param_grid."
                )
        return prefix

    def _check_trial(self, model: Any, prefix: str, labels: NDArray[Any]) -> None:
        """Refuse a setting whose trials could not be priced or scored, before the search is charged."""
        if _prefix_of(model) != prefix:
            raise InvalidParameterError(
                "param_grid moves the private learner to another step. Keep it in one."
            )
        if any(step.memory is not None for step in _pipelines(model)):
            raise InvalidParameterError(
                "a pipeline with memory would release the same fit in several trials, which must be independent. Use "
                "memory=None."
            )
        learner = _learner(model, prefix)
        fewest = min(len(part) for part in _split(len(labels)))
        if fewest < MINIMUM_RECORDS:
            raise InvalidParameterError(
                f"trials need at least {MINIMUM_RECORDS} records to fit and as many to score; found {fewest} in one of the "
                "parts. Collect more records."
            )
        given = learner.classes
        classes = np.unique(labels) if given is None else declared_classes(given)
        if self.scoring == "auc" and len(classes) > 2:
            raise InvalidParameterError(
                f"scoring 'auc' needs two classes; found {len(classes)}. Use scoring='accuracy'."
            )
        if self.scoring == "accuracy" and getattr(learner, "threshold_share", 1.0) == 0:
            raise InvalidParameterError(
                "scoring 'accuracy' needs a threshold; found threshold_share=0, which pays for none. Use scoring='auc'."
            )

    # -- using

    @_has("predict")
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the winner's predictions, shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    @_has("decision_function")
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the winner's scores, shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.decision_function(X))

    @_has("score")
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the winner's exact score, an AUC: for labels that may be shown."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y, sample_weight=sample_weight))

    @_has("transform")
    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the winner's image of records, shape (n, k)."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.transform(X))


class _NothingDrawn(Exception):
    """Ends a fit that is only checked."""


class _ChecksOnly:
    """A budget whose charge ends the fit: what a learner refuses it has refused by then, and nothing is drawn."""

    def __init__(self, account: TrialAccount) -> None:
        self._account = account

    def charge(self, event: Any, label: str = "", **terms: Any) -> None:
        self._account.charge(event, label, **terms)
        raise _NothingDrawn


def _unpaid_steps(models: Sequence[Any]) -> list[str]:
    """Return the steps of pipelines that learn what no statement covers, under any setting, after a warning of them."""
    found = (
        check_pipeline(each, public=getattr(each, "public", ()))
        for each in models
        if isinstance(each, Pipeline)
    )
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def _pipelines(model: Any) -> list[Pipeline]:
    return [each for each in held_by(model) if isinstance(each, Pipeline)]


def _for_all(
    price: PrivacyStatement, best: Any, candidates: Sequence[Any], unpaid: Sequence[str]
) -> PrivacyStatement:
    """What the search guarantees: at its own price, since that of the winner was true of a trial that no score chose.

    It holds for all that might have been tried: what was tried is not to be seen from it.
    """
    seeds = [getattr(each, "random_state", None) for each in candidates]
    read = any(getattr(each, "classes", ()) is None for each in candidates)
    own = clipped_to([float(best.data_norm)])
    norms = clipped_to(sorted({float(each.data_norm) for each in candidates}))
    # What the winner takes for granted and leaves open is true of the search as well.
    winner = best.statement_
    granted = [norms if each == own else each for each in winner.assumptions]
    notes = list(dict.fromkeys(note for each in seeds if (note := Randomness(each).note)))
    if unpaid:
        notes.append(
            f"the steps {', '.join(unpaid)} learned from the records, and nothing was charged for that"
        )
    return price.extended(
        assumptions=(*granted, *((CLASSES_READ,) if read else ())),
        not_protected=(*winner.not_protected, *(("the set of class labels",) if read else ())),
        notes=tuple(notes),
        proved=price.proved and winner.proved and not notes,
    )


def _prefix_of(estimator: Any) -> str:
    if isinstance(estimator, PrivateEstimator):
        return ""
    steps = estimator.steps if isinstance(estimator, Pipeline) else []
    # What is frozen releases nothing more.
    fitted = [(name, step) for name, step in steps if not isinstance(step, FrozenEstimator)]
    private = [name for name, step in fitted if holds_private(step)]
    if len(private) != 1 or not isinstance(estimator.named_steps[private[0]], PrivateEstimator):
        raise InvalidParameterError(
            "a private search needs one private learner, alone or as a step of a Pipeline; found "
            f"{type(estimator).__name__} with {len(private)} such steps. Scale in public (PublicScaler), and learn in one."
        )
    return private[0] + "__"


def _learner(estimator: Any, prefix: str) -> Any:
    return estimator.named_steps[prefix.removesuffix("__")] if prefix else estimator


def _split(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows for training and for validation: a shuffle that depends on n alone, so the parts are public."""
    order = np.random.default_rng(n).permutation(n)
    tested = max(1, round(_VALIDATION * n))
    return np.sort(order[tested:]), np.sort(order[:tested])
