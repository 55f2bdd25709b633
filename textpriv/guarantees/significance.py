"""Statistical tests of draws against a distribution, another sample or a claimed ratio, at a stated rate of error."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEVEL",
    "excess_of",
    "goodness_of_fit",
    "largest_ratios",
    "ratio_bound",
    "smallest_excess",
    "two_samples",
]

# False-alarm rate of one statistical test.
LEVEL = 1e-9
_THRESHOLDS = 32


def largest_ratios(laws: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest log-ratio over outputs, along the last axis of two arrays that broadcast.

    An output that only the first can give makes it infinite, and so does NaN.
    """
    with np.errstate(invalid="ignore"):
        ratios = laws - others
    np.copyto(ratios, -np.inf, where=laws == -np.inf)
    largest = ratios.max(axis=-1)
    return np.where(np.isnan(largest), np.inf, largest)


def ratio_bound(
    first: NDArray[np.int64], second: NDArray[np.int64], lean: NDArray[np.float64], error: float
) -> float:
    """Lower bound on ``ln P_first(E) / P_second(E)`` of the most telling event, from the counts of two samples.

    Parameters
    ----------
    first, second : ndarray of int, shape (V,)
        How often each output was drawn for each of the two inputs.
    lean : ndarray, shape (V,)
        Lower for outputs nearer to the first input. Events are single outputs, and all outputs up to some lean.
    error : float
        Probability with which the bound may be wrong, shared by all events that could have been counted.
    """
    from scipy.stats import beta

    thresholds = np.quantile(lean, np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    order = np.argsort(lean, kind="stable")
    ends = np.searchsorted(lean[order], thresholds, side="right") - 1
    seen = np.flatnonzero(first)
    hits = np.concatenate([first[seen], np.cumsum(first[order])[ends]])
    misses = np.concatenate([second[seen], np.cumsum(second[order])[ends]])
    hits, misses = hits[hits > 0], misses[hits > 0]
    share = error / (2 * (len(lean) + _THRESHOLDS))
    low = beta.ppf(share, hits, first.sum() - hits + 1)
    high = beta.ppf(1 - share, misses + 1, np.maximum(second.sum() - misses, 1e-300))
    ratios = np.log(low) - np.log(np.where(misses >= second.sum(), 1.0, high))
    return float(ratios.max(initial=-np.inf))


def excess_of(count: int, draws: int, mean: float) -> float:
    """Upper bound on the probability that independent events happen ``count`` times or more.

    Notes
    -----
    The binomial distribution with the mean probability bounds the tail beyond its mean plus one (Hoeffding 1956, theorem 4).
    """
    from scipy.stats import binom

    return 1.0 if count <= draws * mean + 1 else float(binom.sf(count - 1, draws, mean))


def smallest_excess(draws: int, mean: float) -> float:
    """Share of draws that, if every such draw made the event happen, :func:`excess_of` finds with 99.8 % probability."""
    from scipy.stats import binom

    if mean >= 1:
        return 1.0
    needed = max(float(binom.isf(LEVEL, draws, mean)), draws * mean + 1) + 1
    needed += 3 * math.sqrt(needed)
    return min(1.0, (needed / draws - mean) / (1 - mean))


def goodness_of_fit(counts: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """p-value of Pearson's test; outputs expected fewer than 8 times are pooled."""
    from scipy.stats import chi2

    expected = law * counts.sum()
    order = np.argsort(expected, kind="stable")
    starts = _pools(expected[order])
    wanted = np.add.reduceat(expected[order], starts)
    seen = np.add.reduceat(counts[order], starts)
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def two_samples(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """p-value of Pearson's test that two samples of equal size have one law; rare outputs are pooled."""
    from scipy.stats import chi2

    both = first + second
    order = np.argsort(both, kind="stable")
    starts = _pools(both[order] / 2.0)
    together = np.add.reduceat(both[order], starts)
    gap = np.add.reduceat(first[order] - second[order], starts)
    if len(together) < 2:
        return 1.0
    return float(chi2.sf((gap**2 / together).sum(), len(together) - 1))


def _pools(expected: NDArray[np.float64]) -> list[int]:
    """Where groups start, so that each is expected at least 8 times; ``expected`` ascends."""
    starts, pooled = [0], 0.0
    for position, value in enumerate(expected.tolist()):
        if pooled >= 8.0:
            starts.append(position)
            pooled = 0.0
        pooled += value
    if pooled < 8.0 and len(starts) > 1:
        starts.pop()
    return starts
