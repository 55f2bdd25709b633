"""A learned Mahalanobis metric in use: distances and scores of pairs, M, and a function for scikit-learn.

Here live metric-learn's methods, with one meaning for all learners, and the table that index pairs refer to, which no
fitted learner carries away. How W is learned is the business of ``metric`` and ``dpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairwise.errors import InvalidPairsError
from pairwise.pairs.clipping import clip_records

__all__ = ["DroppedTable", "MahalanobisMixin", "finite_numbers"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DroppedTable:
    """What a fitted learner has left of its ``preprocessor``: the shape, which is public.

    Parameters
    ----------
    shape : tuple of int, optional
        None for a callable, which has none.
    """

    shape: tuple[int, ...] | None = None

    @classmethod
    def of(cls, table: Any) -> DroppedTable:
        """Return the outline of a table, of a callable, or of an outline itself."""
        if isinstance(table, DroppedTable):
            return table
        return cls(None if callable(table) else np.shape(table))

    def __repr__(self) -> str:
        return "<callable>" if self.shape is None else f"<table of shape {self.shape}>"


def finite_numbers(array: NDArray[Any]) -> Array:
    """Return finite float64 numbers, or say what is wrong without repeating a value."""
    if array.dtype.kind not in "biuf" and array.dtype.kind != "O":
        raise InvalidPairsError(
            f"features must be numbers; found dtype {array.dtype}. Encode them first."
        )
    try:
        out = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidPairsError(
            "features must be numbers; found mixed or non-numeric entries. Encode them first."
        ) from None
    if not np.all(np.isfinite(out)):
        raise InvalidPairsError(
            "features must be finite; found NaN or infinity. Fill or drop these first."
        )
    return out


class MahalanobisMixin:
    """Distances under M = WᵀW, of records clipped to ``data_norm`` as in training, whichever learner found W.

    So ``pair_distance`` is the Euclidean distance of what ``transform`` returns, and the function of ``get_metric`` is the
    same. For records within ``data_norm`` it is √((x − x')ᵀM(x − x')).

    ``preprocessor`` never leaves with what was learned: a fitted learner is pickled and copied with its shape alone, and
    its text and HTML forms print the shape. (A search or a pipeline that prints a learner which is *not fitted* prints its
    settings itself; give such a one points instead of indices.)
    """

    components_: Array
    n_features_in_: int
    data_norm: float
    preprocessor: Any
    _clip_order: int

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[misc]
        if "statement_" in state and state.get("preprocessor") is not None:
            state["preprocessor"] = DroppedTable.of(state["preprocessor"])
        return state

    # -- what is printed

    def _outlined(self) -> Any:
        """Return an unfitted twin that holds the shape of the table instead of the table."""
        settings = self.get_params(deep=False)  # type: ignore[attr-defined]
        if settings["preprocessor"] is not None:
            settings["preprocessor"] = DroppedTable.of(settings["preprocessor"])
        return type(self)(**settings)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return BaseEstimator.__repr__(self._outlined(), N_CHAR_MAX)

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        # Where scikit-learn (1.7 and later) takes the table of settings from that a notebook shows.
        return BaseEstimator._get_params_html(self._outlined(), *args, **kwargs)

    # -- distances

    def transform(self, X: ArrayLike) -> Array:
        """Return X Wᵀ for records clipped as in training, shape (n, k); Euclidean distance there is the learned one.

        Parameters
        ----------
        X : (n, d) array-like
        """
        return np.asarray(self._check_records(X) @ self.components_.T)  # type: ignore[attr-defined]

    def _clipped(self, records: Array) -> Array:
        return clip_records(records, float(self.data_norm), self._clip_order)

    def get_mahalanobis_matrix(self) -> Array:
        """Return M = WᵀW, shape (d, d)."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Array:
        """Return ‖W(x − x')‖ of each pair, shape (m,), for records clipped to ``data_norm`` as in training.

        Parameters
        ----------
        pairs : (m, 2, d) array-like, or (m, 2) indices into ``preprocessor``
            Repeated pairs and pairs of a record with itself are fine here.

        Raises
        ------
        InvalidPairsError
            For another shape, for anything but finite numbers, and for indices without a table.
        """
        check_is_fitted(self)
        array = np.asarray(pairs)
        if array.ndim == 2 and array.shape[1] == 2 and self.preprocessor is not None:
            array = self._rows_of(array)
        if array.ndim != 3 or array.shape[1] != 2 or array.shape[2] != self.n_features_in_:
            raise InvalidPairsError(
                f"expected pairs of shape (m, 2, {self.n_features_in_}), or (m, 2) indices with preprocessor=; found "
                f"shape {array.shape}."
            )
        array = finite_numbers(array)
        apart = self._clipped(array[:, 0]) - self._clipped(array[:, 1])
        return np.asarray(np.linalg.norm(apart @ self.components_.T, axis=1))

    def pair_score(self, pairs: ArrayLike) -> Array:
        """Return minus the distance of each pair, shape (m,), metric-learn's score: larger is more similar."""
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[[ArrayLike, ArrayLike], float]:
        """Return the learned distance as a function of two records, as scikit-learn's neighbours take it."""
        check_is_fitted(self)
        W, R, order = self.components_.copy(), float(self.data_norm), self._clip_order

        def distance(u: ArrayLike, v: ArrayLike) -> float:
            pair = clip_records(np.array([u, v], dtype=np.float64), R, order)
            return float(np.linalg.norm(W @ (pair[0] - pair[1])))

        return distance

    # -- index pairs

    def _table(self) -> Any:
        """Return ``preprocessor``, a callable or a matrix of finite numbers."""
        if isinstance(self.preprocessor, DroppedTable):
            raise InvalidPairsError(
                "index pairs need the table they refer to, which was dropped after fitting since it may be private. Pass "
                "points of shape (m, 2, d), or set it again: set_params(preprocessor=X)."
            )
        if callable(self.preprocessor):
            return self.preprocessor
        table = finite_numbers(np.asarray(self.preprocessor))
        if table.ndim != 2:
            raise InvalidPairsError(f"preprocessor must have shape (n, d); found {table.shape}.")
        return table

    def _rows_of(self, index: NDArray[Any]) -> NDArray[Any]:
        """Return the points of index pairs, shape (m, 2, d)."""
        table = self._table()
        if callable(table):
            return np.stack([np.asarray(table(index[:, side])) for side in (0, 1)], axis=1)
        if not np.issubdtype(index.dtype, np.integer) or not (
            index.size == 0 or (index.min() >= 0 and index.max() < len(table))
        ):
            raise InvalidPairsError(
                f"index pairs must be whole numbers in 0..{len(table) - 1}; found others."
            )
        return np.asarray(table[index])
