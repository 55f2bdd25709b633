"""The supervised manifold learning query (SMLQ) of the PrivateMail paper: kernels, Laplacians, iterations, sensitivity.

Here live the iteration of Theorem 1 with its monotone-descent check, kernels that never hold an n x n matrix, and the
correct l2 sensitivity of one step (mechanisms.md 8.2). No noise is drawn here: releases are made in
``pairwise.estimators.mail``, and the paper's own constants stand in ``pairwise.algorithms.published.mail``.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_positive

__all__ = [
    "DenseKernel",
    "LabelKernel",
    "NeighbourKernel",
    "SymmetricKernel",
    "iterate",
    "kernel_floor",
    "laplacian",
    "largest_distance",
    "smlq_sensitivity",
    "smlq_step",
    "unit_rows",
]

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 1 << 22  # 32 MB of float64: a block of rows against all columns


def unit_rows(X: Array) -> Array:
    """Return every row scaled, on its own, to Euclidean norm 1; rows of zeros stay as they are."""
    largest = np.abs(X).max(axis=1, initial=0.0)
    safe = X / np.where(largest > 0, largest, 1.0)[:, None]
    norms = np.linalg.norm(safe, axis=1)
    return np.asarray(safe / np.where(norms > 0, norms, 1.0)[:, None])


def _rate(bandwidth: float) -> float:
    """Return r = 1/2σ² in the kernel exp(-r d²), as in appendix B (mechanisms.md PM-8)."""
    check_positive(bandwidth=bandwidth)
    return 1.0 / (2.0 * bandwidth**2)


def kernel_floor(bandwidth: float) -> float:
    """Return a₀ = e^(-2/σ²), the least kernel value between two points of the unit ball."""
    return math.exp(-4.0 * _rate(bandwidth))


class SymmetricKernel(Protocol):
    """Symmetric non-negative weights between n points, without self weights."""

    @property
    def degree(self) -> Array:
        """Row sums of the weights, shape (n,)."""

    def times(self, Z: Array) -> Array:
        """Return the weights times Z, shape of Z."""


def laplacian(kernel: SymmetricKernel, Z: Array) -> Array:
    """Return (Diag(degree) - weights) Z, shape (n, k)."""
    product = kernel.times(Z)
    return np.asarray(kernel.degree[:, None] * Z - product)


class DenseKernel:
    """Gaussian weights between all pairs, computed anew in blocks of rows: O(n²(d + k)) time, O(n) memory.

    Parameters
    ----------
    X : (n, d) float64 array
    bandwidth : float
        σ > 0.
    """

    def __init__(self, X: Array, bandwidth: float) -> None:
        self._rate = _rate(bandwidth)
        self._points = np.ascontiguousarray(X, dtype=np.float64)
        self._squares = np.einsum("ij,ij->i", self._points, self._points)
        self._degree: Array | None = None

    @property
    def degree(self) -> Array:
        """Row sums of the weights, shape (n,); they come with the first product."""
        if self._degree is None:
            self._degree = self._product(np.ones((len(self._points), 1)))[:, 0]
        return self._degree

    def times(self, Z: Array) -> Array:
        """Return the weights times Z, shape (n, k)."""
        if self._degree is not None:
            return self._product(Z)
        # The row sums are one more column of the pass over all pairs, which is what takes the time.
        both = self._product(np.column_stack((Z, np.ones(len(Z)))))
        self._degree = both[:, -1].copy()
        return np.asarray(both[:, :-1])

    def _product(self, Z: Array) -> Array:
        n = len(self._points)
        step = max(1, _BLOCK_ENTRIES // max(n, 1))
        out = np.empty_like(Z, dtype=np.float64)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            weights = self._points[rows] @ self._points.T
            weights *= 2.0
            weights -= self._squares[rows, None]
            weights -= self._squares[None, :]
            # Rounding can leave a distance just below zero, and a weight just above one.
            np.minimum(weights, 0.0, out=weights)
            weights *= self._rate
            np.exp(weights, out=weights)
            own = np.arange(rows.start, rows.stop)
            weights[own - rows.start, own] = 0.0
            out[rows] = weights @ Z
        return out


class NeighbourKernel:
    """Gaussian weights between nearest neighbours only, symmetrised, as a sparse matrix of O(n · neighbours) entries.

    For data that are public or already released. A record may be the neighbour of any number of others, so the
    sensitivity of ``smlq_sensitivity`` does not hold for it.

    Parameters
    ----------
    X : (n, d) float64 array
    bandwidth : float
        σ > 0.
    neighbours : int
        How many nearest others each row is tied to, at least 1, cut to n - 1.
    """

    def __init__(self, X: Array, bandwidth: float, neighbours: int) -> None:
        from sklearn.neighbors import kneighbors_graph

        if neighbours < 1:
            raise InvalidParameterError(f"n_neighbors must be at least 1; found {neighbours}.")
        count = min(int(neighbours), len(X) - 1)
        graph = kneighbors_graph(X, count, mode="distance", include_self=False)
        graph.data = np.exp(-_rate(bandwidth) * graph.data**2)
        self._weights: Any = graph.maximum(graph.T).tocsr()
        self.degree = np.asarray(self._weights.sum(axis=1)).ravel()

    def times(self, Z: Array) -> Array:
        """Return the weights times Z, shape (n, k)."""
        return np.asarray(self._weights @ Z)


class LabelKernel:
    """Weights between records by their classes alone, in O(nk + C²k) time.

    Parameters
    ----------
    codes : (n,) int array
        Classes as 0..C-1.
    n_classes : int
        C.
    bandwidth : float, optional
        None (default): 1 for equal classes and 0 otherwise. A number: the paper's Gaussian of class *numbers*, which
        makes class 3 near to class 4 for no reason (mechanisms.md PM-8).
    """

    def __init__(
        self, codes: NDArray[np.int64], n_classes: int, bandwidth: float | None = None
    ) -> None:
        self._codes = codes
        if bandwidth is None:
            self._table = np.eye(n_classes)
        else:
            apart = np.subtract.outer(np.arange(n_classes), np.arange(n_classes)).astype(np.float64)
            self._table = np.exp(-_rate(bandwidth) * apart**2)
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        self.degree = (self._table @ counts)[codes] - 1.0

    def times(self, Z: Array) -> Array:
        """Return the weights times Z, shape (n, k)."""
        sums = np.stack(
            [np.bincount(self._codes, column, minlength=len(self._table)) for column in Z.T], axis=1
        )
        # Every class has weight 1 with itself, which the record's own share is taken from.
        return np.asarray((self._table @ sums)[self._codes] - Z)


def smlq_step(
    Z: Array, features: SymmetricKernel, labels: SymmetricKernel | None, alpha: float
) -> Array:
    """Return Z + ½ Diag(L_X)^† (αL_Y - L_X) Z (equation 4), shape (n, k)."""
    by_features, by_labels = _products(Z, features, labels, alpha)
    return _moved(Z, features, alpha * by_labels - by_features)


def _products(
    Z: Array, features: SymmetricKernel, labels: SymmetricKernel | None, alpha: float
) -> tuple[Array, Array]:
    """Return L_X Z and L_Y Z; of labels that count for nothing, zeros."""
    by_features = laplacian(features, Z)
    return by_features, laplacian(labels, Z) if labels is not None and alpha else np.zeros_like(Z)


def _moved(Z: Array, features: SymmetricKernel, towards: Array) -> Array:
    """Return Z + ½ Diag(L_X)^† ``towards``, where a record without ties stays."""
    degree = features.degree
    inverse = np.divide(0.5, degree, out=np.zeros(len(degree)), where=degree > 0)
    return np.asarray(Z + inverse[:, None] * towards)


def _rounding(
    Z: Array, features: SymmetricKernel, labels: SymmetricKernel | None, alpha: float
) -> float:
    weights = features.degree if labels is None else features.degree + alpha * labels.degree
    return 1e-10 * float(np.sum(weights[:, None] * Z * Z))


def iterate(
    Z: Array,
    features: SymmetricKernel,
    labels: SymmetricKernel | None,
    alpha: float,
    iterations: int,
) -> tuple[Array, list[float]]:
    """Return ``iterations`` SMLQ steps from Z (equation 4), and the objective before the first and after each.

    The objective is v = Tr(ZᵀL_X Z) - α Tr(ZᵀL_Y Z) (equation 3).

    Parameters
    ----------
    Z : (n, k) float64 array
        The start.
    features, labels : SymmetricKernel
        L_X and L_Y; without ``labels`` the second term is left out.
    alpha : float
        α >= 0.
    iterations : int

    Returns
    -------
    Z : (n, k) float64 array
    objectives : list of float
        Not increasing (Theorem 1), and *not* bounded below where L_X - αL_Y has a negative eigenvalue: the iterates
        then grow without limit (mechanisms.md PM-7).

    Raises
    ------
    InvalidParameterError
        If the objective rises by more than rounding, or the iterates leave the range of floating point.

    Notes
    -----
    A step costs one product with each Laplacian, from which both the step and the objective at its start are computed.
    """
    objectives: list[float] = []
    size = 0.0
    for step in range(iterations + 1):
        by_features, by_labels = _products(Z, features, labels, alpha)
        drop = float(np.sum(Z * by_features))
        gain = alpha * float(np.sum(Z * by_labels))
        if not (math.isfinite(drop) and math.isfinite(gain)):
            raise InvalidParameterError(
                f"the embedding grew beyond floating point after {step} iterations: the objective has no lower bound "
                "(mechanisms.md PM-7). Use fewer iterations or a smaller alpha."
            )
        value = drop - gain
        # What D Z and A Z lose to rounding before they are subtracted, also where Z is nearly constant.
        size = max(size, _rounding(Z, features, labels, alpha))
        if objectives and value > objectives[-1] + size:
            raise InvalidParameterError(
                "the objective rose during an iteration, which symmetric non-negative kernels do not allow. "
                "Check the kernels."
            )
        objectives.append(value)
        if step < iterations:
            Z = _moved(Z, features, alpha * by_labels - by_features)
    return Z, objectives


def largest_distance(points: Array) -> float:
    """Return the largest Euclidean distance between two rows, exactly, without comparing all pairs.

    Two rows at norms a and b from the centre are at most a + b apart, so once some pair at distance L is known only
    rows with norm at least L minus the largest norm can do better.
    """
    centred = points - points.mean(axis=0)
    peak = float(np.abs(centred).max())
    if peak == 0.0:
        return 0.0
    # Divided out, so that no square of a difference underflows.
    centred = centred / peak
    norms = np.linalg.norm(centred, axis=1)
    best, here = 0.0, int(norms.argmax())
    for _ in range(10):
        apart = np.linalg.norm(centred - centred[here], axis=1)
        there = int(apart.argmax())
        if apart[there] <= best:
            break
        best, here = float(apart[there]), there
    rows = centred[norms >= (best - norms.max()) * (1.0 - 1e-12)]
    step = max(1, _BLOCK_ENTRIES // max(len(rows) * points.shape[1], 1))
    for start in range(0, len(rows), step):
        gap = rows[start : start + step, None, :] - rows[None, :, :]
        best = max(best, math.sqrt(float(np.einsum("ijk,ijk->ij", gap, gap).max())))
    return best * peak


def smlq_sensitivity(Q: Array, alpha: float, bandwidth: float) -> float:
    """Return the l2 sensitivity of one SMLQ step from Q, when one record (features and class) is replaced.

    Δ <= R_Q √((½ + α/a₀)² + c₁²/(n-1)), c₁ = ½[(1-a₀)/a₀ + α(1/a₀ + (1-a₀)/a₀²)]: the row of the record moves by
    at most R_Q(½ + α/a₀), since it hides that record alone, and every other row by R_Q c₁/(n-1).

    Parameters
    ----------
    Q : (n, k) array
        The start, n >= 3; drawn independently of the data.
    alpha : float
        α >= 0.
    bandwidth : float
        σ > 0, of a ``DenseKernel`` of rows of norm at most 1.

    References
    ----------
    mechanisms.md 8.2, "Correct sensitivity of one SMLQ step".
    """
    n = len(Q)
    if n < 3:
        raise InvalidParameterError(f"the sensitivity needs at least 3 records; found {n}.")
    if not (math.isfinite(alpha) and alpha >= 0):
        raise InvalidParameterError(f"alpha must be finite and >= 0; found {alpha!r}.")
    floor = kernel_floor(bandwidth)
    if floor < 1e-150:
        raise InvalidParameterError(
            f"bandwidth {bandwidth:g} lets two records have no tie at all, so one record can move the others without "
            "bound. Use a bandwidth of at least 0.2."
        )
    own = 0.5 + alpha / floor
    # Label weights may be 0: the specification's b₀.
    other = 0.5 * ((1.0 - floor) / floor + alpha * (1.0 / floor + (1.0 - floor) / floor**2))
    return largest_distance(Q) * math.sqrt(own**2 + other**2 / (n - 1)) * (1.0 + 1e-12)
