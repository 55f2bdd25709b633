"""A learned Mahalanobis metric in use: distances and scores of pairs, M, and a function for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pairwise.errors import InvalidPairsError, without_context
from pairwise.estimators.base import PrivateEstimator
from pairwise.pairs.clipping import clip_records

Array = NDArray[np.float64]


class Records:
    """The table that index pairs refer to, which prints as its shape and which no fitted learner carries away.

    Parameters
    ----------
    table : (n, d) array-like
    """

    def __init__(self, table: Any) -> None:
        self.table: Any = table
        self.shape: tuple[int, ...] = np.shape(table)

    @property
    def dropped(self) -> Records:
        """The shape alone."""
        empty = Records(np.empty(0))
        empty.table, empty.shape = None, self.shape
        return empty

    def rows(self) -> Array:
        """Return the table as finite numbers, shape (n, d)."""
        if self.table is None:
            raise InvalidPairsError(
                "index pairs need the table they refer to, which a saved learner does not carry since it may be private. "
                "Pass points of shape (m, 2, d), or set it again: set_params(preprocessor=X)."
            )
        return finite_numbers(self.table)

    def __repr__(self) -> str:
        return f"<table of shape {self.shape}>"


def finite_numbers(values: Any) -> Array:
    """Return finite float64 numbers, or say what is wrong without repeating a value."""
    out = without_context(
        lambda: np.asarray(values, dtype=np.float64),
        lambda _: InvalidPairsError(
            "features must be numbers; found text or mixed entries. Encode them first."
        ),
    )
    if not np.all(np.isfinite(out)):
        raise InvalidPairsError(
            "features must be finite; found NaN or infinity. Fill or drop these first."
        )
    return out


class MahalanobisMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):
    """Base of the metric learners: distances under M = WᵀW, of records clipped to ``data_norm`` as in training.

    So ``pair_distance`` is the Euclidean distance of what ``transform`` returns, and the function of ``get_metric`` is the
    same. For records within ``data_norm`` it is √((x − x')ᵀM(x − x')).
    """

    components_: Array
    n_features_in_: int

    @property
    def preprocessor(self) -> Records | None:
        """The table of index pairs. It prints as its shape."""
        return self.__dict__.get("_preprocessor")

    @preprocessor.setter
    def preprocessor(self, table: Any) -> None:
        is_table = not isinstance(table, Records) and np.ndim(table) == 2
        self.__dict__["_preprocessor"] = Records(table) if is_table else table

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        records = state.get("_preprocessor")
        if "statement_" in state and isinstance(records, Records):
            state = {**state, "_preprocessor": records.dropped}
        return state

    def transform(self, X: ArrayLike) -> Array:
        """Return X Wᵀ for records clipped as in training, shape (n, k); Euclidean distance there is the learned one.

        Parameters
        ----------
        X : (n, d) array-like
        """
        return np.asarray(self._check_records(X) @ self.components_.T)

    def get_mahalanobis_matrix(self) -> Array:
        """Return M = WᵀW, shape (d, d)."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Array:
        """Return ‖W(x − x')‖ of each pair, shape (m,), for records clipped to ``data_norm`` as in training.

        Parameters
        ----------
        pairs : (m, 2, d) array-like, or (m, 2) indices into ``preprocessor``

        Raises
        ------
        InvalidPairsError
            For another shape, for anything but finite numbers, and for indices without a table.
        """
        check_is_fitted(self)
        points, index = self._points_and_index(pairs)
        if points.shape[1] != self.n_features_in_:
            raise InvalidPairsError(
                f"expected points with {self.n_features_in_} features; found {points.shape[1]}."
            )
        image = clip_records(points, float(self.data_norm)) @ self.components_.T
        return np.asarray(np.linalg.norm(image[index[:, 0]] - image[index[:, 1]], axis=1))

    def pair_score(self, pairs: ArrayLike) -> Array:
        """Return minus the distance of each pair, shape (m,), metric-learn's score: larger is more similar."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[[ArrayLike, ArrayLike], float]:
        """Return the learned distance as a function of two records, as scikit-learn's neighbours take it."""
        check_is_fitted(self)
        W, R = self.components_.copy(), float(self.data_norm)

        def distance(u: ArrayLike, v: ArrayLike) -> float:
            pair = clip_records(np.array([u, v], dtype=np.float64), R)
            return float(np.linalg.norm(W @ (pair[0] - pair[1])))

        return distance

    def _points_and_index(self, pairs: Any) -> tuple[Array, NDArray[np.int64]]:
        """Return points (n, d), and pairs (m, 2) of their rows."""
        if hasattr(pairs, "toarray"):
            raise InvalidPairsError(
                "pairs must be a dense array; found a sparse one. Pass (m, 2) indices and preprocessor=."
            )
        array = np.asarray(pairs)
        if array.ndim == 3 and array.shape[1] == 2 and array.size:
            points = finite_numbers(array).reshape(-1, array.shape[2])
            return points, np.arange(len(points)).reshape(-1, 2)
        records = self.preprocessor
        if array.ndim == 2 and array.shape[1] == 2 and len(array) and isinstance(records, Records):
            table = records.rows()
            whole = np.issubdtype(array.dtype, np.integer)
            if not whole or array.min() < 0 or array.max() >= len(table):
                raise InvalidPairsError(
                    f"index pairs must be whole numbers in 0..{len(table) - 1}; found others."
                )
            return table, array.astype(np.int64)
        raise InvalidPairsError(
            f"expected pairs of shape (m, 2, d), or (m, 2) indices with preprocessor=; found shape {array.shape}."
        )
