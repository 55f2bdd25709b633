"""Clipping of records to a public norm, each on its own, which is what every sensitivity of this package begins with.

The only function that bounds a record lives here, for learning and for prediction alike. Gradients are clipped where they
are computed (``pairs.sums``, ``algorithms.contrastive``).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLIP_SLACK", "clip_records"]

# Clipping to R(1 - 1e-6) leaves room for the rounding of norms and sums, so that R bounds what is computed and not only
# real numbers (mechanisms.md 2.3).
CLIP_SLACK = 1e-6


def clip_records(
    X: NDArray[np.float64], bound: float, order: int = 2, *, slack: float = CLIP_SLACK
) -> NDArray[np.float64]:
    """Return every row scaled down, on its own, to norm at most ``bound`` (mechanisms.md section 0).

    Parameters
    ----------
    X : (n, d) float64 array
    bound : float
        R > 0; infinity leaves the rows as they are.
    order : {1, 2}, default=2
        The norm: l1 or Euclidean.
    slack : float, default=CLIP_SLACK
        Rows longer than R(1 - slack) are scaled to R(1 - slack), so that no rounding carries a record, or a sum of many,
        past R. With 0 the norm of a clipped row may exceed R in its last digits: then R bounds nothing that noise is
        calibrated to.

    Returns
    -------
    (n, d) float64 array
        ``X`` itself where nothing had to be scaled.
    """
    if bound == math.inf:
        return X
    # A row near the largest float overflows when squared, unless its largest entry is divided out first.
    largest = np.abs(X).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    norms = safe * np.linalg.norm(X / safe[:, None], ord=order, axis=1)
    limit = bound * (1.0 - slack)
    long = norms > limit
    if not long.any():
        return X
    # Divided first: a quotient limit/norm below the smallest normal number would have lost its digits.
    clipped = X / np.where(long, norms, 1.0)[:, None]
    clipped *= np.where(long, limit, 1.0)[:, None]
    return np.asarray(clipped)
