"""Passes over blocks of laws at several rates: how likely words stay, and how many different outputs they have.

What the figures mean, and which rate is wanted, is the business of ``epsilon``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["TINY", "different_outputs", "keep_probabilities"]

_STRIP = 1024
# No factor of a law is let below this: products of subnormal numbers are slow, and every law is floored far above it.
TINY = 1e-200
_FAST = {"reassoc", "contract", "nsz"}


def keep_probabilities(
    power: NDArray[np.float64],
    ratio: NDArray[np.float64],
    weights: NDArray[np.float64],
    own: NDArray[np.int32],
    floors: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write, for each row and rate, the probability of the word itself; arguments as of :func:`different_outputs`."""
    floored = np.empty(power.shape)
    for k, floor in enumerate(floors.tolist()):
        if k:
            np.multiply(power, ratio, out=power)
            np.maximum(power, TINY, out=power)
        np.maximum(power, floor, out=floored)
        out[:, k] = weights[own] * floored[np.arange(len(own)), own] / (floored @ weights)


@njit(cache=True, nogil=True, fastmath=_FAST)
def different_outputs(
    power: NDArray[np.float64],
    ratio: NDArray[np.float64],
    weights: NDArray[np.float64],
    floors: NDArray[np.float64],
    draws: int,
    out: NDArray[np.float64],
) -> None:
    """Write, for each row and rate, the expected number of different outputs.

    ``power`` holds exp(-t d) of the first rate and is overwritten; ``ratio`` is what it is multiplied by from rate to rate.
    """
    size = power.shape[1]
    missed = np.empty(_STRIP)
    base = np.empty(_STRIP)
    for row in range(power.shape[0]):
        for k in range(floors.shape[0]):
            floor = floors[k]
            total = 0.0
            if k > 0:
                for j in range(size):
                    value = power[row, j] * ratio[row, j]
                    power[row, j] = value if value > TINY else TINY
            for j in range(size):
                value = power[row, j]
                total += weights[j] * (value if value > floor else floor)
            met = 0.0
            for left in range(0, size, _STRIP):
                width = min(_STRIP, size - left)
                for j in range(width):
                    value = power[row, left + j]
                    law = weights[left + j] * (value if value > floor else floor) / total
                    base[j] = 1.0 - law if law < 1.0 else 0.0
                    missed[j] = 1.0
                # (1 - p)^draws by repeated squaring.
                left_over = draws
                while left_over > 0:
                    if left_over & 1:
                        for j in range(width):
                            missed[j] *= base[j]
                    left_over >>= 1
                    if left_over > 0:
                        for j in range(width):
                            base[j] *= base[j]
                for j in range(width):
                    met += 1.0 - missed[j]
            out[row, k] = met
