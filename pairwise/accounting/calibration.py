"""Calibration: the noise at which an event costs at most what was asked, for plain and for sampled releases.

The search only; costs come from ``accounting.accountant``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dp_accounting import dp_event

from pairwise.accounting.accountant import _WIDTHS, epsilon_of
from pairwise.accounting.events import Adjacency, group_poisson_event, poisson_event, sampled_event
from pairwise.accounting.gaussian import check_privacy_parameters
from pairwise.errors import InvalidParameterError

__all__ = ["calibrate", "group_poisson_sigma", "poisson_sigma", "sampled_sigma"]

# --------------------------------------------------------------------------------------------------------------------
# Calibration


def _rough_root(gap: Callable[[float], float], start: float) -> tuple[float, float]:
    """Return where a rough gap is below a tenth, and its slope there: secant steps, which a coarse grid makes cheap."""
    slope, rough = -2.0, gap(start)
    for _ in range(40):
        if abs(rough) < 0.1 or not -14 < start < 30:
            break
        step = min(max(-rough / slope, -1.5), 1.5)
        before, rough = rough, gap(start + step)
        start += step
        slope = min(max((rough - before) / step, -20.0), -0.5)
    return start, slope


def calibrate(
    make_event: Callable[[float], dp_event.DpEvent],
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    *,
    tolerance: float = 5e-4,
    guess: float = 1.0,
) -> float:
    """Return the least noise parameter, up to a relative tolerance, whose event costs at most (ε, δ).

    Parameters
    ----------
    make_event : callable
        Noise parameter (larger is more private) to event.
    epsilon, delta : float
        The target; ε = infinity gives 0.
    adjacency : Adjacency or str
        What the events are for.
    tolerance : float, default=5e-4
        Relative width at which the bisection stops; the safe end is returned.
    guess : float, default=1.0
        Where to start.

    Raises
    ------
    InvalidParameterError
        If no parameter up to 1e9 reaches the target.
    """
    check_privacy_parameters(epsilon, delta, allow_pure=True)
    if epsilon == math.inf:
        return 0.0

    def gap(log_parameter: float, interval: float | None = None) -> float:
        """Return log(cost/target) at a logarithm of the parameter."""
        parameter = math.exp(log_parameter)
        cost = epsilon_of(make_event(parameter), delta, adjacency, interval=interval)
        # Cut, and relatively: of a cost that falls off a cliff, to 0 where delta covers all, chords go nowhere.
        return math.log(min(max(cost / epsilon, 1e-3), 1e3))

    start, slope = _rough_root(lambda x: gap(x, _WIDTHS[0]), math.log(guess))
    low = high = start
    low_gap = high_gap = gap(start)
    spread = 0.01
    while low_gap <= 0 and low > -14:
        high, high_gap = low, low_gap
        low -= spread - min(-low_gap, 1.0) / slope
        low_gap = gap(low)
        spread *= 2
    while high_gap > 0:
        low, low_gap = high, high_gap
        high += spread - min(high_gap, 1.0) / slope
        if high > 30:
            raise InvalidParameterError(
                f"no noise reaches epsilon {epsilon:g} at delta {delta:g} with this event. Use fewer steps."
            )
        high_gap = gap(high)
        spread *= 2
    if low_gap <= 0:
        return math.exp(high)
    # Illinois steps: cost falls smoothly with noise, so a few chords do what bisection does in many evaluations.
    side = 0
    low_weight, high_weight = low_gap, high_gap
    while high - low > tolerance:
        chord = low + (high - low) * low_weight / (low_weight - high_weight)
        # A chord that lands on the root would leave the far end where it is: step a little past it.
        middle = min(max(chord + side * tolerance / 2, low + tolerance / 4), high - tolerance / 4)
        value = gap(middle)
        if value > 0:
            low, low_weight = middle, value
            if side == 1:
                high_weight /= 2
            side = 1
        else:
            high, high_weight = middle, value
            if side == -1:
                low_weight /= 2
            side = -1
    return math.exp(high)


def poisson_sigma(
    epsilon: float,
    delta: float,
    q: float,
    steps: int,
    adjacency: Adjacency | str = Adjacency.ZERO_OUT,
) -> float:
    """Return σ/C of ``poisson_event`` for a target (ε, δ)."""
    return calibrate(lambda sigma: poisson_event(sigma, q, steps), epsilon, delta, adjacency)


def group_poisson_sigma(
    epsilon: float,
    delta: float,
    kappa: int,
    q: float,
    steps: int,
    adjacency: Adjacency | str = Adjacency.ZERO_OUT,
) -> float:
    """Return σ/C of ``group_poisson_event`` for a target (ε, δ) (mechanisms.md 1.4)."""
    return calibrate(
        lambda sigma: group_poisson_event(sigma, kappa, q, steps), epsilon, delta, adjacency
    )


def sampled_sigma(epsilon: float, delta: float, n: int, batch: int, steps: int) -> float:
    """Return σ/Δ of ``sampled_event`` for a target (ε, δ), replace-one."""
    return calibrate(
        lambda ratio: sampled_event(ratio, n, batch, steps), epsilon, delta, Adjacency.REPLACE_ONE
    )
