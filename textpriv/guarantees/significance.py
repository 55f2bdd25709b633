"""Statistical tests of draws against a distribution, another sample or a claimed ratio, at a stated rate of error."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from scipy.stats import binom, chi2

LEVEL = 1e-9  # false-alarm rate of one statistical test
_THRESHOLDS = 32
_POOLED = 8.0  # draws expected of a pool of outputs


def least_of(p_values: Mapping[str, float]) -> tuple[bool, str]:
    """Return whether all p-values are above the level, and the least of them in words."""
    where = min(p_values, key=lambda each: p_values[each])
    least = p_values[where]
    return least > LEVEL, f"least p-value {least:.3g} of {len(p_values)}, for {where}"


def largest_ratios(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest log-ratio over outputs, along the last axis of two arrays that broadcast.

    An output that only the first can give makes it infinite, and so does NaN.
    """
    with np.errstate(invalid="ignore"):
        ratios = rows - others
    np.copyto(ratios, -np.inf, where=rows == -np.inf)
    largest = ratios.max(axis=-1)
    return np.where(np.isnan(largest), np.inf, largest)


def ratio_bound(
    first: NDArray[np.int64], second: NDArray[np.int64], lean: NDArray[np.float64], error: float
) -> float:
    """Lower bound on ``ln P_first(E) / P_second(E)`` of the most telling event, from how often two inputs gave each output.

    ``lean`` is lower for outputs nearer to the first input. Events are single outputs, and all outputs up to some lean. All
    that could have been counted share ``error``, the probability that the bound is wrong.
    """
    thresholds = np.quantile(lean, np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    order = np.argsort(lean, kind="stable")
    ends = np.searchsorted(lean[order], thresholds, side="right") - 1
    seen = np.flatnonzero(first)
    hits = np.concatenate([first[seen], np.cumsum(first[order])[ends]])
    misses = np.concatenate([second[seen], np.cumsum(second[order])[ends]])
    hits, misses = hits[hits > 0], misses[hits > 0]
    # Clopper and Pearson's intervals.
    share = error / (2 * (len(lean) + _THRESHOLDS))
    low = betaincinv(hits, first.sum() - hits + 1, share)
    high = betaincinv(misses + 1, np.maximum(second.sum() - misses, 1e-300), 1 - share)
    ratios = np.log(low) - np.log(np.where(misses >= second.sum(), 1.0, high))
    return float(ratios.max(initial=-np.inf))


def excess_of(count: int, draws: int, mean: float) -> float:
    """Upper bound on the probability that independent events happen ``count`` times or more."""
    # A binomial distribution with the mean probability bounds the tail beyond its mean plus one (Hoeffding 1956, theorem 4).
    return 1.0 if count <= draws * mean + 1 else float(binom.sf(count - 1, draws, mean))


def smallest_excess(draws: int, mean: float) -> float:
    """Share of draws that, if every such draw made the event happen, :func:`excess_of` finds with 99.8 % probability."""
    if mean >= 1:
        return 1.0
    needed = max(float(binom.isf(LEVEL, draws, mean)), draws * mean + 1) + 1
    needed += 3 * math.sqrt(needed)
    return min(1.0, (needed / draws - mean) / (1 - mean))


def goodness_of_fit(counts: NDArray[np.int64], chances: NDArray[np.float64]) -> float:
    """p-value of Pearson's test; rare outputs are pooled. 0 if an impossible output was drawn, or a probability is NaN."""
    if np.isnan(chances).any() or (counts[chances == 0] > 0).any():
        return 0.0
    expected = chances * counts.sum()
    return _pearson(counts - expected, expected, expected)


def two_samples(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """p-value of Pearson's test that two samples of equal size have one distribution; rare outputs are pooled."""
    both = first + second
    return _pearson(first - second, both, both / 2)


def _pearson(
    gaps: NDArray[np.number], variances: NDArray[np.number], expected: NDArray[np.float64]
) -> float:
    """p-value of the sum of squared gaps over variances, of outputs pooled until each pool is expected 8 times."""
    order = np.argsort(expected, kind="stable")
    starts, pooled = [0], 0.0
    for position, value in enumerate(expected[order].tolist()):
        if pooled >= _POOLED:
            starts.append(position)
            pooled = 0.0
        pooled += value
    if pooled < _POOLED and len(starts) > 1:
        starts.pop()
    if len(starts) < 2:
        return 1.0
    gap, variance = (np.add.reduceat(each[order], starts) for each in (gaps, variances))
    return float(chi2.sf((gap**2 / variance).sum(), len(starts) - 1))
