"""The base of all learners: checked tables, a budget that is charged first, and a statement at the end.

A private fit has three acts: *plan* (public numbers only), *charge* (the plan's event, before any noise is drawn) and *run*.
``PrivateEstimator._charge_and_run`` is the one place that charges and runs a plan. The number of classes of a metric is a
public number too: it is read from y unless declared, and the statement then says so.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.budget import charge_to
from pairwise.accounting.parameters import resolved_delta
from pairwise.algorithms.plan import FitPlan
from pairwise.errors import InvalidParameterError, check_scale, warn_user, without_context
from pairwise.estimators.parts import warn_of_parts
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records
from pairwise.statement import DataSetStatement, UnsoundWarning

if TYPE_CHECKING:
    from sklearn.utils import Tags

MINIMUM_RECORDS = 4

# Up to here a sum of terms added one after another errs by less than the slack of the clipping.
_LARGEST_COVERED = 90_000

CLASSES_READ = (
    "classes was not given, so the set of labels was read from y: it is taken as public, and a neighbour with another set "
    "of labels is not covered"
)
NOT_SCALED = (
    "the table was not scaled, filled or selected by anything learned from itself: bounds and categories were declared in "
    "public (PublicScaler, PublicOneHot)"
)
_ONLY_FIT = (
    "this is the only fit on these people: every further fit adds its epsilon, whatever part of the records it sees. Share "
    "a PrivacyBudget to have them counted"
)
_BUDGETED = "all other fits on these people are charged to the same budget"
_REFUSED = (
    "what fit refuses: missing or infinite values, text in X, and labels that were not declared"
)

_TIME = "how long the fit took, which can tell how many records each class has"

_EXACT = (
    "noise was drawn exactly on a grid and pays for the rounding to it, so the guarantee holds for the bits that were "
    "released; rounding inside the sums is covered by the slack of the clipping"
)
_EXACT_LARGE = (
    "noise was drawn exactly on a grid and pays for the rounding to it; with so many records rounding inside the sums may "
    "exceed the slack of the clipping, so about the bits of the sums there is no proof"
)
# Fits without a budget of each lineage of clones, in this process.
_FITS: Counter[str] = Counter()


def without_seed(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a fitted estimator without its seed: a seed that travels with a result takes its noise off."""
    if "statement_" in state and state.get("random_state") is not None:
        state = {**state, "random_state": None}
    return state


Fit = TypeVar("Fit", bound=Callable[..., Any])


def keeps_state_on_error(fit: Fit) -> Fit:
    """Return a fit that leaves an estimator as it was where it raises, so that a refused refit loses nothing.

    Nothing that numpy warns of while it reads records is shown: a warning would tell of them.
    """

    @wraps(fit)
    def kept(self: Any, *arguments: Any, **keywords: Any) -> Any:
        before = dict(vars(self))
        try:
            with np.errstate(all="ignore"):
                return fit(self, *arguments, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, kept)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas' NA."""
    return not isinstance(value, str) and (
        value is None or is_scalar_nan(value) or is_pandas_na(value)
    )


def labels_of(y: Any) -> NDArray[Any]:
    """Return labels as an array; refuse missing ones."""
    labels = np.asarray(y)
    if labels.dtype.kind not in "biu" and labels.ndim:
        # From y itself: in an array of text, the NaN of a list is the word "nan".
        values = np.asarray(y, dtype=object)
        if np.frompyfunc(is_missing, 1, 1)(values).any():
            raise InvalidParameterError(
                "every record needs a label; found missing ones (NaN, None or NA). Label these records, or drop them."
            )
    return labels


def declared_classes(classes: Any) -> NDArray[Any]:
    """Return the labels that were declared, sorted; refuse what is no list of different labels of one type."""
    listed = list(classes) if np.ndim(np.asarray(classes, dtype=object)) else []
    texts = [isinstance(label, str) for label in listed]
    if not listed or any(texts) != all(texts) or any(label != label for label in listed):
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


def _fault_of(X: Any, *labels: Any) -> str | None:
    """Return what is wrong with a table of numbers and its labels, without anything that stands in them; None if unknown."""
    missing = "Drop such records, or fill them by a public rule: PublicScaler(missing=...)."
    table = np.asarray(X)
    if table.dtype.kind == "c":
        return "Complex data not supported: features must be real numbers. Give the two parts a column each."
    try:
        numbers = table.astype(np.float64)
    except OverflowError:
        return "X holds a number beyond all floats. Give such features in another unit."
    except ValueError:
        return "features must be numbers; found text in X. Encode or drop such columns first."
    except TypeError:
        absent = np.frompyfunc(is_pandas_na, 1, 1)(table).any()
        return f"X holds missing values (pandas' NA). {missing}" if absent else None
    if not np.isfinite(numbers).all():
        return f"X contains NaN or infinity. {missing}"
    if any(np.asarray(y).dtype.kind == "f" and np.isinf(y).any() for y in labels):
        return "y contains infinity. Give these records another label."
    return None


def validated(estimator: Any, X: Any, *labels: Any, **settings: Any) -> Any:
    """Return what scikit-learn's ``validate_data`` does; a refusal shows nothing of the table."""

    def refusal(error: Exception) -> Exception:
        fault, dimensions = None, 0
        with contextlib.suppress(ValueError):
            dimensions = np.ndim(X)
        if dimensions != 2:
            fault = (
                "Expected 2D array, one row per record; found another shape. Reshape your data: array.reshape(1, -1) for "
                "one record, array.reshape(-1, 1) for one feature."
            )
        elif settings["dtype"] is np.float64 and not issparse(X):
            fault = _fault_of(X, *labels)
        # Otherwise the words of scikit-learn, which name shapes and columns, without the errors that they grew out of.
        known = TypeError if isinstance(error, TypeError) else ValueError
        return known(str(error)) if fault is None else InvalidParameterError(fault)

    return without_context(lambda: validate_data(estimator, X, *labels, **settings), refusal)


def _refuse_sparse(X: Any) -> None:
    if issparse(X):
        raise TypeError(
            "Sparse data was passed, but dense data is required: noise is added to every coordinate, so many columns cost "
            "more than they tell. Use few of them, such as HashingVectorizer(n_features=256), and pass X.toarray()."
        )


def clipped_to(norms: list[float]) -> str:
    """Say to which public norm records are clipped: the one there is, or one of several."""
    *first, last = (f"{norm:g}" for norm in norms)
    either = f"{', '.join(first)} or {last}" if first else last
    return f"every record is clipped, on its own, to the public norm {either}"


class PrivateEstimator(BaseEstimator):
    """Base of the learners; subclasses hold ``epsilon``, ``delta``, ``data_norm``, ``budget`` and ``random_state``."""

    # Of scikit-learn's checks: no estimator is made without it.
    _required_parameters = ("epsilon",)

    epsilon: float
    delta: float | None
    data_norm: float
    budget: Any
    random_state: Any
    classes: Any = None
    _classes_read: bool = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return without_seed(dict(super().__getstate__()))

    def __sklearn_clone__(self) -> Any:
        # Clones know that they come from one learner: they mostly see the same people.
        copy = super().__sklearn_clone__()
        copy._lineage = self._lineage = getattr(self, "_lineage", None) or uuid.uuid4().hex
        return copy

    # -- plan

    def _check_table(
        self, X: ArrayLike, y: Any, *, reset: bool = True, few: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return validated X, shape (n, d) float64, and y, shape (n,)."""
        _refuse_sparse(X)
        labels_of(y)
        table, labels = validated(self, X, y, dtype=np.float64, reset=reset)
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
        _refuse_sparse(X)
        table = validated(self, X, dtype=np.float64, reset=False)
        return clip_records(table, float(self.data_norm))

    def _check_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the sorted class list: declared, or read from y."""
        if self.classes is None:
            return np.unique(y)
        declared = declared_classes(self.classes)
        if len(np.setdiff1d(y, declared)):
            raise InvalidParameterError(
                f"y holds labels that are not among the {len(declared)} declared classes. List every label that may occur."
            )
        return declared

    def _check_settings(self, n: int) -> float:
        """Return δ after checking ε, δ and the record norm."""
        delta = resolved_delta(self.epsilon, self.delta, n)
        check_scale("data_norm", self.data_norm)
        return delta

    # -- charge, run, state

    def _charge_and_run(
        self, plan: FitPlan, delta: float, randomness: Randomness, records: Any
    ) -> Any:
        """Charge the plan, run it on private records, and set ``statement_`` and what else tells of it."""
        if math.isfinite(self.epsilon):
            warn_of_parts()
            self._warn_of_another_fit()
        label = type(self).__name__
        charge_to(self.budget, plan.event, label=label, adjacency=plan.adjacency, unit=plan.unit)
        result = plan.run(records, randomness)
        self._record(plan, delta, randomness)
        return result

    def _warn_of_another_fit(self) -> None:
        """Warn once where a learner or its clones were fitted before without a budget."""
        if self.budget is not None:
            return
        self._lineage = getattr(self, "_lineage", None) or uuid.uuid4().hex
        _FITS[self._lineage] += 1
        if _FITS[self._lineage] == 2:
            warn_user(
                "this learner, or a clone of it, was fitted before without a budget. Fits on the same people add up, as in "
                "cross_val_score, searches, ensembles and calibration: share budget=PrivacyBudget(epsilon) and choose parts "
                "by KFold, or search by PrivateSearchCV.",
                UnsoundWarning,
            )

    def _record(self, plan: FitPlan, delta: float, randomness: Randomness) -> None:
        self.privacy_event_ = plan.event
        self._sensitivity_ = float(plan.sensitivity)
        epsilon = epsilon_of(plan.event, delta)
        # The calibration aims at epsilon; its last digits are the accountant's rounding.
        if math.isfinite(self.epsilon) and epsilon <= self.epsilon * (1 + 1e-6):
            epsilon = float(self.epsilon)
        private = math.isfinite(epsilon)
        exact = plan.terms <= _LARGEST_COVERED
        notes = list(plan.notes)
        if private:
            notes.append(_EXACT if exact else _EXACT_LARGE)
        # A seed is for experiments: whoever knows or guesses it takes the noise off again, so nothing is proved.
        seeded = private and randomness.note is not None
        if private and randomness.note is not None:
            notes.append(randomness.note)
        assumptions = [*plan.assumptions, clipped_to([float(self.data_norm)]), NOT_SCALED]
        assumptions.append(_ONLY_FIT if self.budget is None else _BUDGETED)
        not_protected = [*plan.not_protected]
        if self._classes_read:
            not_protected.append("the set of class labels")
            assumptions.append(CLASSES_READ)
        not_protected += [
            "the number of records and of features, and all settings",
            _TIME,
            _REFUSED,
        ]
        self.statement_ = DataSetStatement(
            mechanism=plan.mechanism,
            adjacency=plan.adjacency.value,
            epsilon=epsilon,
            delta=delta if private else 0.0,
            unit=plan.unit,
            proved=not seeded,
            proof=plan.proof,
            assumptions=tuple(assumptions),
            not_protected=tuple(not_protected),
            notes=tuple(notes),
            arithmetic="exact" if exact else "real",
        )

    def sensitivity(self) -> float:
        """Return the sensitivity of what noise was added to, under the statement's adjacency and unit.

        Of one mean gradient or one sum of clipped gradients, where steps are noisy; of the released array, where the
        output is; of a stream, the largest certified movement of any iterate (``OnPair``), or of all releases together
        (``Ftrl``).
        """
        check_is_fitted(self)
        return self._sensitivity_


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
