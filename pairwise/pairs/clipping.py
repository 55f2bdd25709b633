"""Clipping of records to a public norm, each on its own: every sensitivity of this package begins with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Clipping to R(1 - 1e-6) leaves room for the rounding of norms and sums, so that R bounds what is computed and not only
# real numbers.
CLIP_SLACK = 1e-6

Array = NDArray[np.float64]


def clip_records(X: Array, bound: float) -> Array:
    """Return every row scaled down, on its own, to Euclidean norm at most ``bound``.

    ``X`` itself where nothing had to be scaled. An infinite bound leaves the rows as they are.
    """
    if bound == math.inf:
        return X
    limit = bound * (1.0 - CLIP_SLACK)
    long, unit, length = _longer(X, limit)
    if not long.any():
        return X
    with np.errstate(all="ignore"):
        shorter = unit * (limit / length)[:, None]
    return np.asarray(np.where(long[:, None], shorter, X))


def is_long(X: Array, bound: float) -> NDArray[np.bool_]:
    """Return whether each row is longer than a bound, shape (n,)."""
    return _longer(X, bound)[0]


def lengths(X: Array) -> Array:
    """Return the Euclidean norm of each row, shape (n,), also where squares of its entries leave the range of floats."""
    largest, _, length = _scaled(X)
    with np.errstate(all="ignore"):
        return largest * length


def _longer(X: Array, bound: float) -> tuple[NDArray[np.bool_], Array, Array]:
    """Return which rows are longer than a bound, the rows over their largest entry, and the lengths of these, or 1."""
    largest, unit, length = _scaled(X)
    with np.errstate(all="ignore"):
        return largest > bound / length, unit, length


def _scaled(X: Array) -> tuple[Array, Array, Array]:
    """Return the largest entry of each row, the rows over it, and the lengths of these, or 1.

    In two steps no square overflows or underflows, and no direction is lost.
    """
    # Nothing a record holds may be seen in a warning: neither overflow nor underflow is told of.
    with np.errstate(all="ignore"):
        largest = np.abs(X).max(axis=1, initial=0.0)
        unit = X / np.where(largest > 0, largest, 1.0)[:, None]
        length = np.linalg.norm(unit, axis=1)
        length[length == 0] = 1.0
        return largest, unit, length


def project_to_ball(w: Array, radius: float) -> Array:
    """Return the point of the Euclidean ball nearest to ``w``, exactly: the proofs need a 1-Lipschitz map."""
    norm = float(np.linalg.norm(w))
    return w if norm <= radius else w * (radius / norm)
