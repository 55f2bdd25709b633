"""The Rényi filter of a privacy budget: what releases cost together when later ones depend on earlier ones."""

from __future__ import annotations

import math
from functools import lru_cache

from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

from pairwise.accounting.accountant import check_reading, divergences, pure_epsilon
from pairwise.accounting.events import (
    Adjacency,
    dp_event,
    event_of_text,
    leaves_of,
    text_of_event,
)
from pairwise.accounting.gaussian import renyi_order, renyi_surcharge


def filtered_epsilon(
    event: dp_event.DpEvent, limit: tuple[float, float], adjacency: Adjacency
) -> float:
    """Return the epsilon of a Rényi filter for the limit (epsilon, delta).

    While it stays within epsilon, all releases are (epsilon, delta)-DP together, although each of them may be chosen by the
    results of those before (Feldman and Zrnic 2021; Lécuyer 2021). The order is fixed by the limit alone. The sum of pure
    epsilons is a filter with delta = 0, so it may stand in for the other at every point.
    """
    epsilon, delta = limit
    leaves = leaves_of(event)
    if any(isinstance(leaf, dp_event.NonPrivateDpEvent) for leaf, _ in leaves):
        return math.inf
    check_reading(leaves, adjacency)
    pure = math.fsum(count * pure_epsilon(leaf) for leaf, count in leaves)
    if delta == 0:
        return pure
    order = renyi_order(epsilon, delta)
    spent = math.fsum(
        count * _divergence_at(text_of_event(leaf), order, adjacency) for leaf, count in leaves
    )
    return min(pure, max(0.0, spent + renyi_surcharge(math.log(order - 1), delta)))


@lru_cache(maxsize=1024)
def _divergence_at(text: str, order: float, adjacency: Adjacency) -> float:
    event = event_of_text(text)
    orders: tuple[float, ...] = (order,)
    if isinstance(event, dp_event.RepeatAndSelectDpEvent):
        # A selection is bounded at one order by what one trial costs at the others.
        orders = (*DEFAULT_RDP_ORDERS, order)
    return float(divergences(event, orders, adjacency)[-1])
