"""The search for a public base measure that lets the rate rise: prior words where they cost nothing, others where they pay.

The constant of an exponential law is its rate plus the steepest slope of ``ln Z`` (mechanisms.md 3.3), and the slope is
steep because a prior concentrates on few words: hubs have a large normaliser, outlying words a small one. Dividing the
measure by a power of its own normaliser flattens ``Z``, towards the balanced measure on which it is constant. A few half
steps raise the rate by more than the moved mass costs; more steps cost more than they raise. The steps to take are
chosen by a public figure, the expected probability of keeping a word drawn from the prior. Everything here is computed
from public tables, from distances in single precision, since the law that comes out is certified like any other, and is the
same on every processor, since every draw hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arithmetic import exps, fixed_sum, logs
from textpriv.index.index import Index
from textpriv.mechanisms.base_measure import BaseMeasure
from textpriv.mechanisms.calibration.privacy_constant import log_normalisers, tight_constants

__all__ = ["SearchedPrior", "search_prior"]

_STEPS = 4
# Where a pair sweep takes no time, the search also starts from the uniform measure and takes more steps. On
# small vocabularies that often wins; on large ones it spends the mass on rare words.
_SMALL, _MANY_STEPS = 8192, 12
# Normalisers are taken at this part of epsilon, near the rates that searched measures reach.
_AT = 0.7
_GRID = (0.56, 0.7, 0.9)
_FINE_GRID = (0.56, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class SearchedPrior:
    """The base measure that a search has found.

    Attributes
    ----------
    weights : ndarray, shape (V,)
    start : {"prior", "uniform"}
        Where the steps begin.
    steps : int
        Half steps taken; 0 is the start itself.
    evidence : tuple of dict
        For each start and number of steps the rate that was found sound and the expected probability of keeping a word.
    """

    weights: NDArray[np.float64]
    start: str
    steps: int
    evidence: tuple[dict[str, Any], ...]


def search_prior(
    index: Index, prior: NDArray[np.float64], epsilon: float, truncated: Callable[[float], float]
) -> SearchedPrior:
    """Search the half steps ``nu <- nu Z^(-1/2)`` from a prior for the measure that keeps the most words.

    Up to 8,192 words the search also starts from the uniform measure, and takes 12 half steps instead of 4.

    Parameters
    ----------
    index : Index
    prior : ndarray, shape (V,)
        Public; it is also the distribution of words over which the figure is an expectation.
    epsilon : float
    truncated : callable
        The truncation in use at a rate.

    Returns
    -------
    SearchedPrior
        Its rate is an estimate between grid points; the mechanism that uses it calibrates and certifies its own.
    """
    starts = {"prior": prior}
    many = _STEPS
    if len(index) <= _SMALL:
        starts["uniform"] = np.full(len(prior), 1 / len(prior))
        many = _MANY_STEPS
    now = np.array(list(starts.values()))
    measures, names = [*now], [(start, 0) for start in starts]
    at = _AT * epsilon
    for step in range(1, many + 1):
        (log_z,) = log_normalisers(index, now, [at], [truncated(at)], precision=np.float32)
        moved = logs(now) - 0.5 * log_z
        now = np.array([BaseMeasure(exps(row - row.max())).weights for row in moved])
        measures += [*now]
        names += [(start, step) for start in starts]
    rates = [part * epsilon for part in (_FINE_GRID if len(index) <= _SMALL else _GRID)]
    gammas = [truncated(rate) for rate in rates]
    log_z = log_normalisers(index, np.array(measures), rates, gammas, precision=np.float32)
    laws = [(i, j) for i in range(len(rates)) for j in range(len(measures))]
    constants = tight_constants(
        index,
        [rates[i] for i, _ in laws],
        [gammas[i] for i, _ in laws],
        np.stack([log_z[i, j] for i, j in laws]),
        precision=np.float32,
    )
    value = {law: constant.value for law, constant in zip(laws, constants, strict=True)}
    evidence: list[dict[str, Any]] = []
    for number, (weights, (start, steps)) in enumerate(zip(measures, names, strict=True)):
        rate = _crossing(rates, [value[i, number] for i in range(len(rates))], epsilon)
        keep = fixed_sum(prior * weights * exps(-_between(rate, rates, log_z[:, number])))
        evidence.append({"start": start, "steps": steps, "rate": rate, "keep": keep})
    best = max(range(len(evidence)), key=lambda number: float(evidence[number]["keep"]))
    return SearchedPrior(measures[best], *names[best], tuple(evidence))


def _between(
    rate: float, rates: Sequence[float], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Values at a rate, shape (V,), by a straight line between those at grid points, shape (m, V); the first below all."""
    last = max((i for i, known in enumerate(rates) if known <= rate), default=-1)
    if last < 0 or last == len(rates) - 1:
        return values[max(last, 0)]
    part = (rate - rates[last]) / (rates[last + 1] - rates[last])
    return values[last] + part * (values[last + 1] - values[last])


def _crossing(rates: Sequence[float], constants: Sequence[float], epsilon: float) -> float:
    """The rate at which the constant reaches epsilon, between grid points by a straight line; epsilon / 2 at least."""
    if constants[0] > epsilon:
        return epsilon / 2
    last = max(i for i, constant in enumerate(constants) if constant <= epsilon)
    if last == len(rates) - 1:
        return float(rates[-1])
    rise = (epsilon - constants[last]) / (constants[last + 1] - constants[last])
    return float(rates[last] + rise * (rates[last + 1] - rates[last]))
