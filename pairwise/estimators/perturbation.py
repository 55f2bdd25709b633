"""Plans of output perturbation and of streams: HUAI's GIGA, YANG's SGD and the private leader."""

from __future__ import annotations

from typing import cast

import numpy as np

from pairwise.algorithms import giga, sgd, streams
from pairwise.algorithms.options import Algorithm, Ftrl, OffPair, OnPair, SGDOutput
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import FitPlan
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_gaussian
from pairwise.pairs.clipping import project_to_ball
from pairwise.pairs.losses import AUCPairs, pair_bounds

# SGD compares every record of a block with all earlier ones; only the hinge has a way round that.
_LARGEST_COMPARED = 20_000


def plan_stream(
    options: Algorithm, n: int, d: int, data_norm: float, radius: float, mu: float
) -> giga.OnlinePlan | streams.LeaderPlan:
    """Return the noise of a stream of at most ``n`` records with ``d`` features."""
    bounds = pair_bounds(n, d, getattr(options, "loss", "logistic"), data_norm)
    if isinstance(options, Ftrl):
        return streams.plan_leader(bounds, radius, mu)
    L = cast(float, bounds.smoothness)
    steps = giga.schedule(n, L, cast(OnPair, options).alpha, burn_in=True)
    return giga.plan_online(steps, bounds.change, L, radius, mu)


def plan_output(
    options: Algorithm, sums: AUCPairs, radius: float, mu: float, randomness: Randomness
) -> FitPlan:
    """Return the plan of a learner whose output alone gets noise: ``OffPair`` or ``SGDOutput``.

    Parameters
    ----------
    options : Algorithm
    sums : AUCPairs
    radius : float
        Of the ball that the parameter is kept in.
    mu : float
        What the release may cost.
    randomness : Randomness
        Draws the public sequence of SGD at once, and the noise when the plan runs.
    """
    if isinstance(options, SGDOutput):
        return _plan_sgd(options, sums, radius, mu, randomness)
    L, change = cast(float, sums.bounds.smoothness), sums.bounds.change
    steps = giga.schedule(sums.n, L, cast(OffPair, options).alpha)
    bound = giga.certified_sensitivity(steps, change, L, 2.0 * radius).average
    noise = plan_gaussian(bound, mu, sums.dimension)

    def run() -> np.ndarray:
        average = giga.offline_giga(sums, steps, radius)
        return project_to_ball(noise.release(average, randomness), radius)

    return FitPlan(
        event=noise.event(),
        sensitivity=bound,
        run=run,
        mechanism=f"pairwise GIGA with output perturbation ({options.name}, alpha = {steps.alpha:.3g})",
        proof="certified recursion, head of pairwise.algorithms.giga",
    )


def _plan_sgd(
    options: SGDOutput, sums: AUCPairs, radius: float, mu: float, randomness: Randomness
) -> FitPlan:
    n, L, change = sums.n, sums.bounds.smoothness, sums.bounds.change
    if n > _LARGEST_COMPARED and L is not None:
        raise InvalidParameterError(
            f"sgd-output compares all pairs with this loss; expected n <= {_LARGEST_COMPARED}, found {n}. "
            "Use algorithm='auto', or loss='hinge', which needs one sort a step."
        )
    # Smooth losses do not expand, so few steps suffice; the hinge needs many small ones (its √t term).
    block, passes = max(1, n // 10), 10 if L is not None else 100
    if options.steps is not None:
        passes = max(1, round(options.steps * block / n))
    blocks = sgd.shuffled_blocks(n, passes, block, randomness)
    T = len(blocks)
    # The sum of all steps, public: a mean gradient that never turned would carry w that far.
    rate = 20.0 * radius / change / T
    if L is not None:
        rate = min(rate, 2.0 / L)  # a longer step would expand
    involved = sgd.involvement(blocks, n)
    bound = sgd.average_sensitivity(involved, T, rate, change, smooth=L is not None)
    noise = plan_gaussian(min(bound, 2.0 * radius), mu, sums.dimension)

    def run() -> np.ndarray:
        average = sgd.blocked_sgd(sums, blocks, rate, radius)
        return project_to_ball(noise.release(average, randomness), radius)

    return FitPlan(
        event=noise.event(),
        sensitivity=noise.sensitivity,
        run=run,
        mechanism=(
            f"blocked pairwise SGD with output perturbation ({sums.loss}, {passes} shuffled passes, {T} steps)"
        ),
        proof="head of pairwise.algorithms.sgd, for the sequence that was drawn",
    )
