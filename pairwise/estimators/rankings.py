"""The algorithms of a ranking: their names, and the planner of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pairwise.algorithms.auto import AUTO
from pairwise.algorithms.giga import plan_off_pair, plan_on_pair
from pairwise.algorithms.noisy_descent import plan_gradient, plan_pointwise
from pairwise.algorithms.options import (
    Algorithm,
    Ftrl,
    Gradient,
    OffPair,
    OnPair,
    Pointwise,
    SGDOutput,
    Statistics,
)
from pairwise.algorithms.output_sgd import plan_sgd_output
from pairwise.algorithms.plan import FitPlan, PublicTask
from pairwise.algorithms.statistics import plan_statistics
from pairwise.algorithms.streams import StreamPlan, plan_ftrl
from pairwise.algorithms.threshold import with_threshold
from pairwise.errors import InvalidParameterError

# Algorithms that release a ranking after each record, also by partial_fit.
STREAM_PLANNERS: Mapping[type[Algorithm], Callable[[Any, PublicTask], StreamPlan]] = {
    OnPair: plan_on_pair,
    Ftrl: plan_ftrl,
}
PLANNERS: Mapping[type[Algorithm], Callable[[Any, PublicTask], FitPlan]] = {
    Pointwise: plan_pointwise,
    Gradient: plan_gradient,
    Statistics: plan_statistics,
    OffPair: plan_off_pair,
    SGDOutput: plan_sgd_output,
}
_TYPES = (*PLANNERS, *STREAM_PLANNERS)
ALGORITHMS: Mapping[str, Algorithm] = {"auto": AUTO, **{each.name: each() for each in _TYPES}}


def options_of(algorithm: str | Algorithm) -> Algorithm:
    """Return the options that an algorithm of a ranking means, or refuse it."""
    if isinstance(algorithm, str) and algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if isinstance(algorithm, Algorithm) and type(algorithm) in _TYPES:
        return algorithm
    raise InvalidParameterError(
        f"algorithm must be one of {', '.join(ALGORITHMS)}, or options such as Pointwise(); found {algorithm!r}."
    )


def plan_ranking(options: Algorithm, public: PublicTask) -> FitPlan:
    """Return the plan of a ranking, and of its threshold where one is paid for; its run takes ``ClippedRecords``."""
    planners = {**PLANNERS, **STREAM_PLANNERS}
    plan = planners[type(options)](options, public)
    return with_threshold(plan, public) if public.threshold_share else plan
