"""Compiled sums for the AUC hinge: opponents within the margin by one sort, and a weighted sum of rows.

Here live loops and nothing else; which records are clipped, and what a sum means for privacy, is
``pairs.sums``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["weighted_sum", "within_margin"]

Array = NDArray[np.float64]

# Rows that are added up on their own before they join the total: rounding then grows with _BLOCK + n/_BLOCK, not with n.
_BLOCK = 1024


def within_margin(scores: Array, positive: NDArray[np.bool_]) -> Array:
    """Return #{q : s_q > s_p − 1} for each positive p and #{p : s_p − 1 < s_q} for each negative q, shape (n,).

    Both counts compare with the *same* rounded s_p − 1, so they count the same pairs and the sum over pairs stays a
    subgradient (mechanisms.md 6.4). O(n log n), no array of size n₊ × n₋.

    Parameters
    ----------
    scores : (n,) float64 array
        Finite.
    positive : (n,) bool array
    """
    # + 0.0 turns -0.0, which has other bits, into 0.0.
    shifted = scores - positive + 0.0
    n = len(shifted)
    bits = np.uint64(max(1, (n - 1).bit_length()))
    # Sorting numbers is several times faster than sorting places, so the place travels in the low bits of the number. Of
    # the number that leaves some 46 bits, and what they do not tell apart is put right afterwards.
    keys = _pack(shifted.view(np.int64), bits)
    keys.sort()
    order = np.empty(n, dtype=np.int64)
    ordered = np.empty(n, dtype=np.float64)
    if not _unpack(keys, bits, shifted, order, ordered):
        order = np.argsort(shifted)
        ordered = shifted[order]
    counts = np.empty(n, dtype=np.float64)
    _count(order, ordered, np.asarray(positive, dtype=np.bool_), counts)
    return counts


@njit(cache=True)
def _pack(bits: NDArray[np.int64], places: np.uint64) -> NDArray[np.uint64]:
    """Return keys in the order of the floats that have these bits, the low bits replaced by the place."""
    keys = np.empty(len(bits), dtype=np.uint64)
    top = np.uint64(1) << np.uint64(63)
    for i in range(len(bits)):
        key = np.uint64(bits[i])
        # IEEE numbers are ordered like their bits; negative ones the other way round, and below.
        key = ~key if bits[i] < 0 else key | top
        keys[i] = ((key >> places) << places) | np.uint64(i)
    return keys


@njit(cache=True)
def _unpack(
    keys: NDArray[np.uint64],
    places: np.uint64,
    values: Array,
    order: NDArray[np.int64],
    ordered: Array,
) -> bool:
    """Fill order and ordered values; finish the sort by insertion. False where that would take more than 4n moves."""
    n = len(keys)
    mask = (np.uint64(1) << places) - np.uint64(1)
    moves = 0
    for k in range(n):
        index = np.int64(keys[k] & mask)
        value = values[index]
        j = k
        while j > 0 and ordered[j - 1] > value:
            ordered[j] = ordered[j - 1]
            order[j] = order[j - 1]
            j -= 1
            moves += 1
            if moves > 4 * n:
                return False
        ordered[j] = value
        order[j] = index
    return True


@njit(cache=True)
def _count(
    order: NDArray[np.int64], ordered: Array, positive: NDArray[np.bool_], counts: Array
) -> None:
    """Walk through the sorted values once; a group of equal values is counted as one."""
    n = len(order)
    negatives = 0
    for i in range(n):
        negatives += not positive[i]
    passed_negatives = 0
    passed_positives = 0
    start = 0
    while start < n:
        i = order[start]
        if start + 1 == n or ordered[start + 1] != ordered[start]:
            # Nearly every group is one record: written without a branch on its class, which nobody can predict.
            own = np.int64(positive[i])
            passed_negatives += 1 - own
            counts[i] = own * (negatives - passed_negatives) + (1 - own) * passed_positives
            passed_positives += own
            start += 1
            continue
        end = start
        positives = 0
        while end < n and ordered[end] == ordered[start]:
            if positive[order[end]]:
                positives += 1
            else:
                passed_negatives += 1
            end += 1
        for k in range(start, end):
            i = order[k]
            counts[i] = negatives - passed_negatives if positive[i] else passed_positives
        passed_positives += positives
        start = end


@njit(cache=True, fastmath={"contract"})
def weighted_sum(weights: Array, rows: Array) -> Array:
    """Return Σ_i weights_i rows_i, shape (d,), in one pass over the C-ordered (n, d) array ``rows``.

    One core reads memory here as fast as two do in a BLAS product of a vector with a tall matrix.
    """
    n, d = rows.shape
    total = np.zeros(d)
    for start in range(0, n - n % _BLOCK, _BLOCK):
        part = np.zeros(d)
        block = rows[start : start + _BLOCK]
        w = weights[start : start + _BLOCK]
        for i in range(0, _BLOCK, 4):
            one, two, three, four = block[i], block[i + 1], block[i + 2], block[i + 3]
            a, b, c, e = w[i], w[i + 1], w[i + 2], w[i + 3]
            for j in range(d):
                part[j] += (a * one[j] + b * two[j]) + (c * three[j] + e * four[j])
        total += part
    for i in range(n - n % _BLOCK, n):
        for j in range(d):
            total[j] += weights[i] * rows[i, j]
    return total
