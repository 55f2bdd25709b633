"""Features from what is declared in public: bounds of numbers, lists of categories, and a rule for what is missing.

Nothing here is learned from the records. ``fit`` reads how many columns there are and what they are called, and each record
is encoded on its own, so a private learner behind these transformers keeps its guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from pairwise.accounting.gaussian import release_mu
from pairwise.accounting.parameters import resolved_delta
from pairwise.errors import InvalidParameterError, check_whole, without_context
from pairwise.estimators.base import is_missing, validated

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array = NDArray[np.float64]

# Chosen on letter and ring (KEEL, whole) and on skewed synthetic tables.
_MOST_WAVES, _SPREAD = 4, 1000.0


class PublicTransformer(TransformerMixin, BaseEstimator):
    """Base of the transformers: tables checked without showing their values, declarations by the names of columns."""

    n_features_in_: int
    missing: Any = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The number of features and their names are all that fit reads.
        tags.requires_fit = True
        tags.input_tags.allow_nan = self.missing is not None
        return tags

    def _by_column(self, name: str, declared: Any, *, partly: bool = False) -> Any:
        """Return what a mapping declares for each column, in their order; what is no mapping as it is.

        With ``partly``, columns may be left out, and get NaN.
        """
        if not isinstance(declared, Mapping):
            return declared
        columns = getattr(self, "feature_names_in_", None)
        if columns is None:
            raise InvalidParameterError(
                f"{name} names columns, and the table has no names. Pass a pandas or polars frame, or a list in the order "
                "of the columns."
            )
        absent, more = set(columns) - set(declared), set(declared) - set(columns)
        if partly and any(map(is_missing, declared.values())):
            raise InvalidParameterError(f"{name} must be finite numbers, declared in public.")
        absent = set() if partly else absent
        if more or absent:
            raise InvalidParameterError(
                f"{name} must name the columns of the table and no other: {len(absent)} left out{_quoted(absent)}, "
                f"{len(more)} unknown{_quoted(more)}."
            )
        return [declared.get(column, math.nan) for column in columns]


def _quoted(names: set[str]) -> str:
    return f" ({', '.join(repr(name) for name in sorted(names)[:5])})" if names else ""


class PublicScaler(OneToOneFeatureMixin, PublicTransformer):
    """Scale features by bounds declared in public, each record on its own; nothing is learned from the records.

    A value at ``low`` becomes ``output_range[0]`` and one at ``high`` ``output_range[1]``; what lies outside is cut to the
    bounds. So a private learner behind it sees records that depend on one individual each, and its guarantee stands.

    Parameters
    ----------
    low, high : float, (d,) array-like or dict of column name to float, default=0.0 and 1.0
        Bounds of the features, from public knowledge: ages lie in 0..120 whatever the table says. Never the smallest and
        largest value found in it.
    output_range : tuple of float, default=(0.0, 1.0)
        (0, 1) or (−1, 1), say. With (−b, b) records have a Euclidean norm of at most b√d.
    missing : None, "middle", float, (d,) array-like or dict of column name to float, default=None
        The public rule for values that are missing (NaN): None refuses them, "middle" takes the middle of the bounds, a
        number stands for itself, in the units of the table. A dict may leave out columns, whose missing values are refused.
        The mean of a column would be learned from the records.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : (d,) array of str
        Where the table had names.
    scale_ : (d,) array
        What a difference is multiplied with.
    norm_bound_ : float
        The largest Euclidean norm of an output record; a ``data_norm`` at which no record is clipped.

    Examples
    --------
    >>> from pairwise import PublicScaler
    >>> ages_and_incomes = [[30, 20_000.0], [150, 5_000.0]]
    >>> PublicScaler([0, 0], [120, 100_000]).fit_transform(ages_and_incomes).tolist()
    [[0.25, 0.2], [1.0, 0.05]]
    >>> PublicScaler(0, 120, missing="middle").fit_transform([[30], [float("nan")]]).tolist()
    [[0.25], [0.5]]
    """

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        output_range: tuple[float, float] = (0.0, 1.0),
        missing: Any = None,
    ) -> None:
        self.low = low
        self.high = high
        self.output_range = output_range
        self.missing = missing

    def fit(self, X: ArrayLike, y: Any = None) -> PublicScaler:
        """Check the bounds against the number of columns of ``X``, whose values are not used; ``y`` is ignored."""
        table = self._table(X, reset=True)
        self._ends = low, high = self._bounds()
        self._outputs = first, last = self._range()
        self._fill = self._fill_values(low, high)
        self._filled(table)
        with np.errstate(over="ignore"):
            self.scale_ = (last - first) / (high - low)
        if not np.isfinite(self.scale_).all():
            raise InvalidParameterError(
                "high is so close to low that no float scales their difference. Give the feature in another unit."
            )
        self.norm_bound_ = max(abs(first), abs(last)) * math.sqrt(self.n_features_in_)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return scaled records, cut to ``output_range``, shape (n, d)."""
        check_is_fitted(self)
        table = self._filled(self._table(X, reset=False))
        (low, high), (first, last) = self._ends, self._outputs
        # Cut first: no value, however large, then overflows.
        scaled = (np.clip(table, low, high) - low) * self.scale_ + first
        return np.asarray(np.clip(scaled, first, last))

    def _table(self, X: Any, *, reset: bool) -> Array:
        finite = True if self.missing is None else "allow-nan"
        return np.asarray(
            validated(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)
        )

    def _numbers(self, name: str) -> Array:
        d = self.n_features_in_
        declared = self._by_column(name, getattr(self, name), partly=name == "missing")
        numbers = without_context(
            lambda: np.asarray(declared, dtype=np.float64),
            lambda _: InvalidParameterError(f"{name} must hold numbers; found something else."),
        )
        if numbers.shape not in ((), (d,)):
            raise InvalidParameterError(
                f"{name} must be one number, or one for each of {d} features; found shape {numbers.shape}."
            )
        return np.broadcast_to(numbers, (d,))

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self._numbers("low"), self._numbers("high")
        with np.errstate(over="ignore", invalid="ignore"):
            spread = high - low
        if not (np.isfinite(low).all() and np.isfinite(spread).all() and (spread > 0).all()):
            raise InvalidParameterError(
                "low must be below high for every feature, and both finite, with a finite difference."
            )
        return low, high

    def _range(self) -> tuple[float, float]:
        first, last = map(float, self.output_range)
        if not -math.inf < first < last < math.inf:
            raise InvalidParameterError(
                f"output_range must be two finite numbers in order; found {self.output_range!r}."
            )
        return first, last

    def _filled(self, table: Array) -> Array:
        """Return the table with missing values filled; refuse those without a rule."""
        filled = np.where(np.isnan(table), self._fill, table)
        refused = np.isnan(filled).any(axis=0)
        if refused.any():
            names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_).astype(str))
            raise InvalidParameterError(
                "X contains NaN in columns that missing does not name"
                f"{_quoted(set(names[refused]))}. Name them too, or drop such records."
            )
        return filled

    def _fill_values(self, low: Array, high: Array) -> Array:
        """Return what stands for a missing value of each feature, NaN where such are refused."""
        if self.missing is None:
            return np.full_like(low, math.nan)
        if isinstance(self.missing, str):
            if self.missing != "middle":
                raise InvalidParameterError(
                    f"missing must be None, 'middle' or numbers declared in public; found {self.missing!r}."
                )
            return low + (high - low) / 2.0
        fill = self._numbers("missing")
        named = isinstance(self.missing, Mapping)
        if not (np.isfinite(fill) | (np.isnan(fill) & named)).all():
            raise InvalidParameterError("missing must be finite numbers, declared in public.")
        return fill


class PublicFeatures(PublicTransformer):
    """Scale numbers by declared bounds and add cosine waves of each: a linear ranking can then follow curves.

    Each number becomes itself, scaled to (−1, 1), then cos πku for k = 1 to ``waves_``, where u is its place between its
    bounds, 0 to 1, and as many waves of log(1 + 1000 u)/log 1001, for amounts that are far below their bound. Waves
    pay on large tables. By default their number follows from public numbers: all columns together are at most (μn/4)^(2/3),
    where μ is what ``epsilon`` and ``delta`` allow and n the number of records.

    Parameters
    ----------
    low, high : float, (d,) array-like or dict of column name to float, default=0.0 and 1.0
        Bounds of the numbers, as of ``PublicScaler``.
    waves : int, optional
        Waves of each kind; 0 for none. Default: up to 4 by the rule, which needs ``epsilon``.
    epsilon, delta : float, optional
        What the learner behind will be given.
    beside : int, default=0
        Further columns that the learner is given, such as those of ``PublicOneHot``; the rule counts them.
    missing : None, "middle", float, (d,) array-like or dict of column name to float, default=None
        As of ``PublicScaler``.

    Attributes
    ----------
    waves_ : int
    norm_bound_ : float
        The largest Euclidean norm of an output record; a ``data_norm`` at which no record is clipped.
    n_features_in_ : int

    Examples
    --------
    >>> from pairwise import PublicFeatures
    >>> PublicFeatures(0, 120, waves=1).fit_transform([[60.0]]).round(2).tolist()
    [[0.0, 0.0, -0.95]]
    """

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        *,
        waves: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        beside: int = 0,
        missing: Any = None,
    ) -> None:
        self.low = low
        self.high = high
        self.waves = waves
        self.epsilon = epsilon
        self.delta = delta
        self.beside = beside
        self.missing = missing

    def fit(self, X: ArrayLike, y: Any = None) -> PublicFeatures:
        """Read how many records and columns ``X`` has, whose values are not used; ``y`` is ignored."""
        scaler = PublicScaler(self.low, self.high, (-1.0, 1.0), self.missing)
        self._scaler = scaler.fit(X)
        self.n_features_in_ = d = scaler.n_features_in_
        if hasattr(scaler, "feature_names_in_"):
            self.feature_names_in_ = scaler.feature_names_in_
        if self.waves is not None:
            check_whole("waves", self.waves, least=0)
            self.waves_ = int(self.waves)
        else:
            self.waves_ = self._rule(len(np.asarray(X)), d)
        self.norm_bound_ = math.sqrt(d * (1 + 2 * self.waves_))
        return self

    def _rule(self, n: int, d: int) -> int:
        """Return the number of waves that public numbers allow."""
        if self.epsilon is None:
            raise InvalidParameterError(
                "the number of waves follows from epsilon, which was not given. Pass the learner's epsilon, or waves."
            )
        check_whole("beside", self.beside, least=0)
        mu = release_mu(self.epsilon, resolved_delta(self.epsilon, self.delta, n))
        if math.isinf(mu):
            return _MOST_WAVES
        most = int(((mu * n / 4.0) ** (2.0 / 3.0) - self.beside - d) / (2 * d))
        return max(0, min(_MOST_WAVES, most))

    def transform(self, X: ArrayLike) -> Array:
        """Return scaled numbers and their waves, shape (n, d(1 + 2 waves_))."""
        check_is_fitted(self)
        scaled = self._scaler.transform(X)
        place = (scaled + 1.0) / 2.0
        places = np.stack((place, np.log1p(_SPREAD * place) / math.log1p(_SPREAD)), axis=2)
        waves = np.cos(np.pi * places[..., None] * np.arange(1, self.waves_ + 1))
        return np.hstack((scaled, waves.reshape(len(scaled), -1)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the output's columns: the table's, then ``<name>_wave<k>`` and ``<name>_log_wave<k>``."""
        check_is_fitted(self)
        names = list(_check_feature_names_in(self, input_features))
        numbers, kinds = range(1, self.waves_ + 1), ("wave", "log_wave")
        waves = [f"{name}_{kind}{k}" for name in names for kind in kinds for k in numbers]
        return np.asarray([*names, *waves], dtype=object)


class PublicOneHot(PublicTransformer):
    """Encode categories that are declared in public as columns of 0 and 1; nothing is learned from the records.

    The encoding is that of scikit-learn's ``OneHotEncoder`` with its categories given. A list of categories that is read off
    the records would tell who is the only one of a rare one.

    Parameters
    ----------
    categories : list, list of lists, or dict of column name to list
        Every value that a column may hold: one list for all columns, one for each, or one by name. ``None`` or NaN among
        them makes a missing value a category of its own, whether the table has it as None, as NaN or as pandas' NA.
    other : {"refuse", "zeros"}, default="refuse"
        The public rule for a value that is not declared, a missing one among them: an error that names the column and the
        row, or no column of its block set.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : (d,) array of str
        Where the table had names.
    norm_bound_ : float
        The largest Euclidean norm of an output record, √d: each column of the table sets at most one of the output.

    Examples
    --------
    >>> from pairwise import PublicOneHot
    >>> encoder = PublicOneHot([["no", "yes"], ["red", "green"]], other="zeros").fit([["no", "red"]])
    >>> encoder.get_feature_names_out(["smokes", "colour"]).tolist()
    ['smokes_no', 'smokes_yes', 'colour_red', 'colour_green']
    >>> encoder.transform([["yes", "blue"]]).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, categories: Any, *, other: str = "refuse") -> None:
        self.categories = categories
        self.other = other

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> PublicOneHot:
        """Check the categories against the number of columns of ``X``, whose values are not used; ``y`` is ignored."""
        self._table(X, reset=True)
        if self.other not in ("refuse", "zeros"):
            raise InvalidParameterError(f"other must be 'refuse' or 'zeros'; found {self.other!r}.")
        declared = self._declared()
        self._encoder = OneHotEncoder(
            categories=declared, handle_unknown="ignore", sparse_output=False, dtype=np.float64
        )
        # One row of declared values, so that not even a check sees a record.
        self._encoder.fit(np.array([[each[0] for each in declared]], dtype=object))
        self.norm_bound_ = math.sqrt(self.n_features_in_)
        return self

    def transform(self, X: Any) -> Array:
        """Return the encoded records, shape (n, number of declared categories)."""
        check_is_fitted(self)
        table = self._table(X, reset=False)
        encoded = np.asarray(self._encoder.transform(self._with_declared_missing(table)))
        if self.other == "zeros":
            return encoded
        ends = np.cumsum([len(each) for each in self._encoder.categories_])
        names = _check_feature_names_in(self)
        for name, block in zip(names, np.split(encoded, ends[:-1], axis=1), strict=True):
            rows = np.flatnonzero(block.sum(axis=1) == 0)
            if len(rows):
                raise InvalidParameterError(
                    f"the column {name!r} holds values that are not among its categories, first in row "
                    f"{rows[0]} ({len(rows)} such rows). Declare every value that may occur, None for a missing one, or "
                    "choose other='zeros'."
                )
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the output's columns: the column of the table, an underscore and the category."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.asarray(self._encoder.get_feature_names_out(names), dtype=object)

    def _table(self, X: Any, *, reset: bool) -> NDArray[np.object_]:
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":
            raise InvalidParameterError(
                "Complex data not supported: categories are words or real numbers."
            )
        settings = {"dtype": object, "ensure_all_finite": "allow-nan"}
        return np.asarray(validated(self, X, reset=reset, **settings))

    def _with_declared_missing(self, table: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the table with missing values as they were declared: libraries of frames have each their own."""
        table = table.copy()
        for column, declared in enumerate(self._encoder.categories_):
            for value in filter(is_missing, declared):
                cells = table[:, column]
                cells[np.frompyfunc(is_missing, 1, 1)(cells).astype(bool)] = value
        return table

    def _declared(self) -> list[NDArray[np.object_]]:
        d = self.n_features_in_
        given = self._by_column("categories", self.categories)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidParameterError(
                "categories must list every value that a column may hold: one list, or one for each column."
            )
        lists = list(given)
        if not any(
            isinstance(each, Iterable) and not isinstance(each, str | bytes) for each in lists
        ):
            lists = [lists] * d
        if len(lists) != d:
            raise InvalidParameterError(
                f"categories must be one list, or one for each of {d} columns; found {len(lists)} lists."
            )
        declared = []
        for number, each in enumerate(lists):
            values = np.empty(len(each), dtype=object)
            values[:] = list(each)
            # Whatever is missing is one category, though NaN does not equal itself.
            kinds = {"missing" if is_missing(value) else (value,) for value in values}
            if not len(values) or len(kinds) < len(values):
                raise InvalidParameterError(
                    f"the categories of column {number} must be at least one value, and each of them once."
                )
            declared.append(values)
        return declared
