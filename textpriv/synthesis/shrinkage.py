"""From noisy sums to tilts: how much likelier each word is than under the public model. All of it is post-processing.

A tilt is a logarithm. The noise is known, so how far a tilt is drawn to its centre follows from the noise and is tuned on
nothing private.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDS = 40
_STEP = 1.0  # of one round of Newton's method, at most
_LARGEST = 6.0  # of a tilt


class Prior(NamedTuple):
    """How far tilts are from their centre: a part that follows from word vectors, and each word's own part."""

    shared: float
    own: float


class Tilts(NamedTuple):
    """Tilts of words and their standard errors, of shape (V,) or (rows, V)."""

    tilts: Array
    errors: Array


def fitted(noisy: Array, expected: Array, variance: Array, centre: Array, spread: float) -> Tilts:
    """Return the tilts that are likeliest after the sums were seen.

    Minimises ``(noisy - expected exp(t))^2 / (2 variance) + (t - centre)^2 / (2 spread^2)`` by damped Newton steps.
    """
    # Where a sum is surely above zero, the start is its own logarithm: from afar the slope is nearly flat.
    deviation = np.sqrt(variance)
    own = np.log(np.maximum(noisy, deviation) / expected)
    tilts = np.where(noisy > 2 * deviation, own, centre).clip(-_LARGEST, _LARGEST)
    for _ in range(_ROUNDS):
        mean = expected * np.exp(tilts)
        slope = (noisy - mean) * mean / variance - (tilts - centre) / spread**2
        bend = mean**2 / variance + 1 / spread**2
        tilts = np.clip(tilts + np.clip(slope / bend, -_STEP, _STEP), -_LARGEST, _LARGEST)
    mean = expected * np.exp(tilts)
    return Tilts(tilts, 1 / np.sqrt(mean**2 / variance + 1 / spread**2))


def shrunk(noisy: Array, expected: Array, variance: Array, vectors: Array, prior: Prior) -> Tilts:
    """Return tilts from 0, drawn to what word vectors say of them by ridge regression.

    Parameters
    ----------
    noisy, expected : ndarray, shape (V,)
        Sums, and what they would be without a tilt.
    variance : ndarray, shape (V,)
        Of ``noisy``.
    vectors : ndarray, shape (V, d)
        Of length one.
    prior : Prior
    """
    wide = float(np.hypot(prior.shared, prior.own))
    centre = np.zeros(len(noisy))
    tilts = fitted(noisy, expected, variance, centre, wide).tilts
    for _ in range(2):
        mean = expected * np.exp(tilts)
        wanted = tilts + (noisy - mean) / mean
        precision = 1 / (variance / mean**2 + prior.own**2)
        weighted = vectors * precision[:, None]
        inner = vectors.T @ weighted + np.eye(vectors.shape[1]) / prior.shared**2
        centre = np.clip(vectors @ np.linalg.solve(inner, weighted.T @ wanted), -3, 3)
        tilts = fitted(noisy, expected, variance, centre, prior.own).tilts
    return fitted(noisy, expected, variance, centre, prior.own)
