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
_LARGEST = 10.0  # of a tilt
_FREEDOM = 3.0  # degrees of Student's t


class Prior(NamedTuple):
    """How far tilts are from their centre: a part that follows from word vectors, and each word's own part."""

    shared: float
    own: float


class Tilts(NamedTuple):
    """Tilts of words and their standard errors, of shape (V,) or (rows, V)."""

    tilts: Array
    errors: Array


def fitted(
    noisy: Array, expected: Array, variance: Array, centre: Array, spread: float | Array
) -> Tilts:
    """Return the tilts that are likeliest after the sums were seen.

    Minimises ``(noisy - expected exp(t))^2 / (2 variance)`` plus the cost of a tilt by damped Newton steps. The cost is that
    of Student's t, so words that a few classes of many have to themselves are not drawn to their centre.
    """

    def descended(tilts: Array) -> Array:
        """Return the minimum that damped Newton steps reach."""
        tilts = tilts.clip(-_LARGEST, _LARGEST)
        for _ in range(_ROUNDS):
            mean, pull = expected * np.exp(tilts), _pull(tilts - centre, spread)
            slope = (noisy - mean) * mean / variance - (tilts - centre) * pull
            step = slope / (mean**2 / variance + pull)
            tilts = np.clip(tilts + np.clip(step, -_STEP, _STEP), -_LARGEST, _LARGEST)
        return tilts

    # From afar the slope is nearly flat, and there may be two minima: one near the centre, one near the sum's own logarithm.
    deviation = np.sqrt(variance)
    own = np.log(np.maximum(noisy, deviation) / expected)
    ends = [descended(centre), descended(np.where(noisy > 2 * deviation, own, centre))]
    near, far = (
        (noisy - expected * np.exp(end)) ** 2 / (2 * variance)
        + (_FREEDOM + 1) / 2 * np.log1p((end - centre) ** 2 / (_FREEDOM * spread**2))
        for end in ends
    )
    tilts = np.where(far < near, ends[1], ends[0])
    mean = expected * np.exp(tilts)
    return Tilts(tilts, 1 / np.sqrt(mean**2 / variance + _pull(tilts - centre, spread)))


def _pull(distance: Array, spread: float | Array) -> Array:
    """Return how strongly a tilt is drawn to its centre from a distance; less from afar."""
    return (_FREEDOM + 1) / (_FREEDOM * spread**2 + distance**2)


def shrunk(noisy: Array, expected: Array, variance: Array, vectors: Array, prior: Prior) -> Tilts:
    """Return tilts from 0, drawn to what word vectors say of them by ridge regression.

    ``noisy`` are sums and ``variance`` that of their noise, ``expected`` what they would be without a tilt, all of shape
    (V,). ``vectors``, of shape (V, d), have length one, or are zeros: such a word's tilt has its own part alone.
    """
    wide = float(np.hypot(prior.shared, prior.own))
    own = np.where(vectors.any(axis=1), prior.own, wide)
    centre = np.zeros(len(noisy))
    tilts = fitted(noisy, expected, variance, centre, wide).tilts
    for _ in range(2):
        mean = expected * np.exp(tilts)
        wanted = tilts + (noisy - mean) / mean
        precision = 1 / (variance / mean**2 + prior.own**2)
        weighted = vectors * precision[:, None]
        inner = vectors.T @ weighted + np.eye(vectors.shape[1]) / prior.shared**2
        centre = np.clip(vectors @ np.linalg.solve(inner, weighted.T @ wanted), -3, 3)
        tilts = fitted(noisy, expected, variance, centre, own).tilts
    return fitted(noisy, expected, variance, centre, own)
