"""What the estimators of this package share: checked settings, a budget that is charged first, a statement at the end.

No learning happens here. A private fit has three acts: *plan* (public numbers only), *charge* (the plan's
event, before any draw) and *run*; ``pairwise.plan.Plan`` passes between them. ``PrivateEstimator._execute`` is the one place
that charges and runs a plan.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.budget import charge_to
from pairwise.accounting.gaussian import check_privacy_parameters, default_delta
from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_flag, check_number
from pairwise.noise.randomness import Randomness, numerical_claim
from pairwise.pairs.clipping import clip_records
from pairwise.plan import Plan
from pairwise.statement import PrivacyStatement, UnsoundWarning

__all__ = [
    "CLASSES_READ",
    "MINIMUM_RECORDS",
    "UNREADABLE",
    "PrivateEstimator",
    "check_data_norm",
    "declared_classes",
    "keeps_state_on_error",
    "refuse_fit_parameters",
    "refuse_mixed_labels",
    "refuse_sparse",
    "without_seed",
    "without_values",
]

MINIMUM_RECORDS = 4

# A smaller bound leaves the range in which floats keep their digits, a larger one overflows when squared.
_BOUNDS = (1e-100, 1e100)

# What reading a table may raise.
UNREADABLE = (ValueError, TypeError, OverflowError)

CLASSES_READ = (
    "classes was not given, so the set of labels was read from y: it is taken as public, and a neighbour with another set "
    "of labels is not covered"
)


def without_seed(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a fitted estimator without its seed: a seed that travels with a result takes its noise off."""
    if "statement_" in state and state.get("random_state") is not None:
        state = {**state, "random_state": None}
    return state


Fit = TypeVar("Fit", bound=Callable[..., Any])


def keeps_state_on_error(fit: Fit) -> Fit:
    """Return a fit that leaves an estimator as it was where it raises: whose refit a budget refuses is used as before."""

    @wraps(fit)
    def kept(self: Any, *arguments: Any, **keywords: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *arguments, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, kept)


def check_data_norm(data_norm: float) -> None:
    """Refuse a bound on the records that is none, or that floats cannot keep."""
    check_number("data_norm", data_norm)
    if not (math.isfinite(data_norm) and data_norm > 0):
        raise InvalidParameterError(
            f"data_norm must be a positive finite number, declared in public; found {data_norm!r}. "
            "Without a bound on the records no guarantee holds."
        )
    if not _BOUNDS[0] <= data_norm <= _BOUNDS[1]:
        raise InvalidParameterError(
            f"data_norm must lie in {_BOUNDS[0]:g}..{_BOUNDS[1]:g}, where rounding leaves the bound standing; found "
            f"{data_norm!r}. Give the records in another unit."
        )


def _kind(label: Any) -> type:
    if isinstance(label, str):
        return str
    return numbers.Number if isinstance(label, numbers.Number | np.bool_) else type(label)


def refuse_mixed_labels(y: Any) -> None:
    """Refuse strings beside other labels, which numpy would turn into strings without a word, and missing ones."""
    unchecked = isinstance(y, list | tuple) or getattr(getattr(y, "dtype", None), "kind", "") == "O"
    kinds = {_kind(value) for value in y} if unchecked else set()
    if len(kinds) > 1:
        raise InvalidParameterError(
            "the classes in y must be of one type; found strings or missing values beside other types. "
            "Make them all numbers or all strings."
        )


def declared_classes(classes: Any) -> NDArray[Any]:
    """Return the labels that were declared, sorted; refuse what is no list of different labels of one type."""
    listed = list(classes) if np.ndim(np.asarray(classes, dtype=object)) else []
    kinds = {_kind(label) for label in listed}
    if (kinds != {str} and kinds != {numbers.Number}) or any(label != label for label in listed):
        raise InvalidParameterError(
            "classes must list labels, all of them numbers or all of them text; found something else, missing values or "
            "nothing."
        )
    labels = np.unique(np.asarray(listed))
    if len(labels) < len(listed):
        raise InvalidParameterError(
            f"classes must list different labels; found {len(listed) - len(labels)} repetitions."
        )
    return labels


def refuse_fit_parameters(given: Mapping[str, Any]) -> None:
    """Refuse what else was passed to a fit: sample weights with the reason, all other names as Python does."""
    named = [name for name, value in given.items() if value is not None]
    if "sample_weight" in named:
        raise InvalidParameterError(
            "sample_weight is refused: noise is made for records that all count alike, and one that counts w times would "
            "move the release w times as far, so its guarantee would be weaker than what is stated. Leave the weights out."
        )
    if named:
        raise TypeError(f"fit got an unexpected keyword argument {named[0]!r}.")


def refuse_sparse(X: Any) -> None:
    """Refuse a sparse table with the way out."""
    if issparse(X):
        raise TypeError(
            "Sparse data was passed, but dense data is required: noise is added to every coordinate, so many columns cost "
            "more than they tell. Use few of them, such as HashingVectorizer(n_features=256), and pass X.toarray()."
        )


def without_values(error: Exception, X: Any) -> Exception:
    """Return scikit-learn's complaint about a table, with the row to look at and without what stands there."""
    message = str(error)
    if "NAType" in message:
        return InvalidParameterError(
            "X holds missing values (pandas' NA). Drop such records, or fill them by a public rule: "
            "PublicScaler(missing=...)."
        )
    if isinstance(error, OverflowError):
        return InvalidParameterError(
            "X holds a number beyond all floats. Give such features in another unit."
        )
    if "could not convert" in message:
        return InvalidParameterError(
            "features must be numbers; found text in X. Encode or drop such columns first."
        )
    if "Complex data" in message:
        return InvalidParameterError(
            "Complex data not supported: features must be real numbers. Give the two parts a column each."
        )
    if "array=" in message:
        return InvalidParameterError(
            f"Expected 2D array, one row per record; found {np.ndim(X)} dimensions. Reshape your data: "
            "array.reshape(1, -1) for one record, array.reshape(-1, 1) for one feature."
        )
    if "contains NaN" in message or "contains infinity" in message:
        # Of a pandas frame, which alone turns its NA into NaN.
        values = np.asarray(X.astype(np.float64) if hasattr(X, "astype") else X, dtype=np.float64)
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        rows = np.flatnonzero(~finite)
        if not len(rows):
            return InvalidParameterError(
                "y contains NaN or infinity. Drop such records before fitting."
            )
        return InvalidParameterError(
            f"X contains NaN or infinity, first in row {rows[0]} ({len(rows)} such rows). Drop them, or fill them by "
            "a public rule: PublicScaler(missing=...)."
        )
    return error


def clipped_to(norms: Sequence[float]) -> str:
    """Say to which public norm records are clipped: the one there is, or one of several."""
    return f"every record is clipped, on its own, to the public norm {_one_of(norms)}"


def _one_of(norms: Sequence[float]) -> str:
    *first, last = (f"{norm:g}" for norm in norms)
    return f"{', '.join(first)} or {last}" if first else last


class PrivateEstimator(BaseEstimator):
    """Base of the estimators; subclasses hold ``epsilon``, ``delta``, ``data_norm``, ``classes``, ``budget`` and so on."""

    epsilon: float
    delta: float | None
    data_norm: float
    budget: Any
    random_state: Any
    allow_large_delta: bool
    classes: Any
    hardened: bool | None = None
    mode: str = "sound"
    _classes_read: bool = False
    _clips: ClassVar[bool] = True

    def __getstate__(self) -> dict[str, Any]:
        return without_seed(dict(super().__getstate__()))

    @property
    def _exact(self) -> bool:
        """Whether noise is drawn exactly: by default wherever that is defined, so not in published forms."""
        if self.hardened is None:
            return self.mode == "sound"
        check_flag("hardened", self.hardened)
        return bool(self.hardened)

    @property
    def _clip_order(self) -> int:
        """The norm that records are clipped in: Euclidean, or l1 where a subclass says so."""
        return 2

    # -- plan

    def _check_table(
        self, X: ArrayLike, y: Any, *, reset: bool = True, few: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return validated X, shape (n, d) float64, and y, shape (n,)."""
        refuse_mixed_labels(y)
        refuse_sparse(X)
        try:
            table, labels = validate_data(
                self, X, y, dtype=np.float64, ensure_min_samples=1, reset=reset, y_numeric=False
            )
        except UNREADABLE as error:
            raise without_values(error, X) from None
        check_classification_targets(labels)
        if not few and len(table) < MINIMUM_RECORDS:
            raise InvalidParameterError(
                f"private pairwise learning needs at least {MINIMUM_RECORDS} records; found n_samples = {len(table)}. "
                "Collect more records."
            )
        return table, labels

    def _check_records(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return validated X of a prediction, clipped as in training."""
        check_is_fitted(self)
        refuse_sparse(X)
        try:
            table = validate_data(self, X, dtype=np.float64, reset=False)
        except UNREADABLE as error:
            raise without_values(error, X) from None
        return clip_records(table, float(self.data_norm), self._clip_order)

    def _check_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the sorted class list: declared, or read from y (which the statement then says)."""
        occurring = np.unique(y)
        self._classes_read = self.classes is None
        if self.classes is None:
            return occurring
        declared = declared_classes(self.classes)
        unknown = np.setdiff1d(occurring, declared)
        if len(unknown):
            raise InvalidParameterError(
                f"classes lists {len(declared)} labels, but y holds {len(unknown)} that are not among them. "
                "List every label that may occur."
            )
        return declared

    def _check_settings(self, n: int) -> float:
        """Return δ after checking ε, δ and the record norm."""
        check_number("epsilon", self.epsilon)
        if self.delta is not None:
            check_number("delta", self.delta)
        check_flag("allow_large_delta", self.allow_large_delta)
        delta = default_delta(n) if self.delta is None else float(self.delta)
        check_privacy_parameters(float(self.epsilon), delta, n, force=bool(self.allow_large_delta))
        check_data_norm(self.data_norm)
        return delta

    # -- charge, run, state

    def _execute(
        self,
        plan: Plan,
        delta: float,
        randomness: Randomness,
        *,
        n: int | None = None,
        stacklevel: int = 4,
    ) -> Any:
        """Charge the plan, run it, and set ``statement_``, ``privacy_event_`` and what ``sensitivity`` returns.

        ``n`` is how many terms a sum has at most, or None where that is not known; ``stacklevel`` is that of the user.
        """
        if plan.unsound:
            warnings.warn(plan.unsound, UnsoundWarning, stacklevel=stacklevel)
        label = type(self).__name__
        charge_to(self.budget, plan.event, label=label, adjacency=plan.adjacency, unit=plan.unit)
        result = plan.run()
        self._record(plan, delta, randomness, n=n)
        return result

    def _record(
        self, plan: Plan, delta: float, randomness: Randomness, *, n: int | None = None
    ) -> None:
        self.privacy_event_ = plan.event
        self._sensitivity_ = float(plan.sensitivity)
        true_delta = delta if plan.delta is None else plan.delta
        if plan.epsilon is not None or not plan.proved:
            epsilon = plan.epsilon
        else:
            epsilon = min(epsilon_of(plan.event, true_delta, plan.adjacency), math.inf)
            # The calibration aims at epsilon; its last digits are the accountant's rounding.
            if math.isfinite(self.epsilon) and epsilon <= self.epsilon * (1 + 1e-6):
                epsilon = float(self.epsilon)
        notes = list(plan.notes)
        arithmetic, numerical = numerical_claim(self._exact, n)
        if plan.arithmetic is not None:
            arithmetic, numerical = plan.arithmetic
        private = epsilon is not None and math.isfinite(epsilon)
        if private and numerical:
            notes.append(numerical)
        # A seed is for experiments: whoever knows or guesses it takes the noise off again, so nothing is proved.
        seeded = randomness.note is not None and (epsilon is None or math.isfinite(epsilon))
        if seeded and randomness.note:
            notes.append(randomness.note)
        not_protected = list(plan.not_protected)
        assumptions = list(plan.assumptions)
        if self._classes_read:
            not_protected.append("the set of class labels")
            assumptions.append(CLASSES_READ)
        not_protected.append("the number of records and of features, and all settings")
        if self._clips:
            assumptions.append(clipped_to([float(self.data_norm)]))
        self.statement_ = PrivacyStatement(
            mechanism=plan.mechanism,
            adjacency=plan.adjacency.value,
            epsilon=epsilon,
            delta=true_delta if private else 0.0,
            unit=plan.unit,
            proved=plan.proved and not seeded,
            proof=plan.proof,
            assumptions=tuple(assumptions),
            not_protected=tuple(not_protected),
            notes=tuple(notes),
            arithmetic=arithmetic,
        )
        if n is not None:
            self.n_records_ = n

    def sensitivity(self) -> float:
        """Return the sensitivity of what noise was added to, under the statement's adjacency and unit.

        For the gradient algorithm that is the l2 norm of one mean gradient; for output perturbation and moments, of the
        released array; for a stream, the largest certified movement of any iterate, or of all nodes of a tree together.
        For contrastive descents it is the l2 norm (Gaussian noise) or l1 norm (Laplace noise) of the change of one sum of
        clipped gradients at the initial clip, for input perturbation of one record, for published forms of one row of a
        batch mean; a release that gives the initial W has one of its own (``algorithms.moments.moment_sensitivity``).
        """
        check_is_fitted(self)
        return self._sensitivity_
