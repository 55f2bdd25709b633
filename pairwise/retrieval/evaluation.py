"""What retrieval is measured with: exact nearest neighbours, Kabsch-Umeyama alignment, recall and precision at k.

Nothing here is private or draws anything. Who may see which of these numbers is decided where queries are made
(``pairwise.retrieval.subset``, ``pairwise.estimators.mail``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd

from pairwise.errors import InvalidParameterError

__all__ = ["Alignment", "align", "nearest", "precision_at_k", "recall_at_k"]

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True)
class Alignment:
    """The map x -> scale · x rotation + shift, for row vectors.

    Attributes
    ----------
    rotation : (k, k) array
        Orthogonal, of determinant +1.
    scale : float
    shift : (k,) array
    """

    rotation: Array
    scale: float
    shift: Array

    def apply(self, points: ArrayLike) -> Array:
        """Return the mapped rows, shape (m, k)."""
        return np.asarray(
            self.scale * np.asarray(points, dtype=np.float64) @ self.rotation + self.shift
        )


def align(source: ArrayLike, target: ArrayLike, *, scaling: bool = True) -> Alignment:
    """Return the rotation, scale and shift that bring ``source`` nearest to ``target`` (Kabsch-Umeyama).

    Parameters
    ----------
    source, target : (m, k) array-like
        Matching rows.
    scaling : bool, default=True
        Fit a scale too; otherwise it is 1.

    Returns
    -------
    Alignment
        The least-squares optimum over rotations without reflection.

    References
    ----------
    Umeyama 1991, equations 34 to 43; step "Align" of the PrivateMail paper's Algorithm 1.
    """
    a, b = (np.asarray(points, dtype=np.float64) for points in (source, target))
    if a.shape != b.shape or a.ndim != 2 or len(a) == 0:
        raise InvalidParameterError(
            f"source and target must be matching tables of at least one row; found shapes {a.shape} and {b.shape}."
        )
    mean_a, mean_b = a.mean(axis=0), b.mean(axis=0)
    a, b = a - mean_a, b - mean_b
    left, values, right = svd(a.T @ b)
    signs = np.ones(len(values))
    # Of the two nearest orthogonal matrices the one that does not mirror.
    signs[-1] = 1.0 if np.linalg.det(left @ right) >= 0 else -1.0
    rotation = (left * signs) @ right
    size = float(np.sum(a * a))
    scale = float(values @ signs) / size if scaling and size > 0 else 1.0
    return Alignment(rotation, scale, mean_b - scale * mean_a @ rotation)


def nearest(queries: ArrayLike, records: ArrayLike, k: int) -> NDArray[np.int64]:
    """Return the rows of ``records`` nearest to each query, nearest first, shape (q, min(k, n)); exact, in blocks."""
    q, x = (np.asarray(points, dtype=np.float64) for points in (queries, records))
    if k < 1 or len(x) == 0:
        raise InvalidParameterError(
            f"k must be at least 1 and records not empty; found {k} and {len(x)}."
        )
    k = min(k, len(x))
    squares = np.einsum("ij,ij->i", x, x)
    out = np.empty((len(q), k), dtype=np.int64)
    step = max(1, _BLOCK_ENTRIES // len(x))
    for start in range(0, len(q), step):
        score = squares - 2.0 * (q[start : start + step] @ x.T)
        best = np.argpartition(score, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(score, best, axis=1), axis=1, kind="stable")
        out[start : start + step] = np.take_along_axis(best, order, axis=1)
    return out


def _first(relevant: ArrayLike, k: int) -> NDArray[np.bool_]:
    table = np.asarray(relevant, dtype=bool)
    if table.ndim != 2 or not 1 <= k <= table.shape[1] or len(table) == 0:
        raise InvalidParameterError(
            f"relevant must have a row for each query and at least k columns; found shape {table.shape} and k = {k}."
        )
    return table[:, :k]


def recall_at_k(relevant: ArrayLike, k: int) -> float:
    """Return the share of queries with at least one relevant result among the first k.

    The Recall@k of the image retrieval literature and of the PrivateMail paper.

    Parameters
    ----------
    relevant : (q, m) bool array-like
        Whether each result is relevant, best first, m >= k; a missing result counts as not relevant.
    k : int
    """
    return float(_first(relevant, k).any(axis=1).mean())


def precision_at_k(relevant: ArrayLike, k: int) -> float:
    """Return the share of relevant results among the first k, over all queries; arguments as ``recall_at_k``."""
    return float(_first(relevant, k).mean())
