"""Privacy filters: what releases cost when each of them, its noise included, may be chosen by the results of those before.

What releases that were fixed beforehand cost is computed in ``accounting.accountant``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache

import dp_accounting
from dp_accounting import dp_event
from scipy.special import ndtri

from pairwise.accounting.accountant import _pure_epsilon
from pairwise.accounting.events import Adjacency, ApproximateDpEvent, _event_from_plain, _freeze
from pairwise.accounting.gaussian import _SAFETY, gaussian_epsilon, total_mu
from pairwise.accounting.zcdp import _renyi_surcharge, _zcdp_order, zcdp_rho
from pairwise.errors import UnsupportedEventError

# --------------------------------------------------------------------------------------------------------------------
# Filters: what releases cost when each of them, its noise included, may be chosen by the results of those before


def _renyi_order(epsilon: float, delta: float) -> float:
    """Return the order α at which (ε, δ) allows the largest ρ of a ρ-zCDP release; public numbers only."""
    rho = zcdp_rho(epsilon, delta)
    return 1 + math.exp(_zcdp_order(lambda t: (1 + math.exp(t)) * rho + _renyi_surcharge(t, delta)))


def _dominating_mu(epsilon: float) -> float:
    """Return the μ of a Gaussian that dominates every ε-DP release.

    Errors of the two kinds are traded along straight lines from (0, 1) over (q, q) to (1, 0), q = 1/(1 + e^ε). A Gaussian
    whose curve passes through (q, q) lies below them, since it is convex: Φ(−μ/2) = q.
    """
    return -2 * float(ndtri(1 / (1 + math.exp(min(epsilon, 700.0))))) * (1 + _SAFETY)


def _unsampled(event: dp_event.DpEvent, adjacency: Adjacency) -> dp_event.DpEvent:
    """Return a release that costs at least as much, without the samples for which no Rényi bound is known.

    The law is a mixture over samples, in each of which the unsampled Gaussian dominates, and Rényi divergence is jointly
    quasi-convex.
    """
    if isinstance(event, dp_event.MixtureOfGaussiansDpEvent):
        return dp_event.GaussianDpEvent(event.standard_deviation / max(event.sensitivities))
    if isinstance(event, dp_event.PoissonSampledDpEvent) and adjacency is Adjacency.REPLACE_ONE:
        # z = σ/C, and a record that changes moves the sum by 2C.
        return dp_event.GaussianDpEvent(event.event.noise_multiplier / 2)
    return event


@lru_cache(maxsize=1024)
def _renyi_divergence(text: str, order: float, adjacency: Adjacency) -> float:
    """Return a bound on the Rényi divergence of one release at one order, infinity where none is known."""
    event = _event_from_plain(json.loads(text))
    pure = _pure_epsilon(event)
    known = _unsampled(event, adjacency)
    if pure < math.inf:
        known = dp_event.ZCDpEvent(pure**2 / 2)  # Bun & Steinke 2016, proposition 1.4
    # A selection is bounded at one order by what one trial costs at the others.
    orders = [*dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS, order]
    accountant = dp_accounting.rdp.RdpAccountant(orders, adjacency.relation)
    if not accountant.supports(known):
        return pure
    accountant.compose(known)
    return min(pure, float(accountant.rdp[-1]))


def _refuse_kind(event: dp_event.DpEvent, composition: str, why: str) -> UnsupportedEventError:
    return UnsupportedEventError(
        f"this budget composes by {composition!r}, to which {type(event).__name__} cannot be added where earlier results "
        f"may have led to it: {why}. Nothing was drawn. Keep a budget of its own for it, or start this one with "
        "composition='renyi'."
    )


def _filtered_epsilon(
    leaves: Sequence[tuple[dp_event.DpEvent, int]],
    limit: tuple[float, float],
    adjacency: Adjacency,
    composition: str,
) -> float:
    """Return the epsilon of a filter for the limit (ε, δ): while it stays within ε, all releases are (ε, δ)-DP together.

    The sum of pure epsilons is a filter with δ = 0, so it may stand in for the other at every point: transcripts that end
    within one of the two filters are events of the two filtered processes, whose δ add up.
    """
    epsilon, delta = limit
    pure = math.fsum(count * _pure_epsilon(leaf) for leaf, count in leaves)
    if delta == 0:
        return pure
    if composition == "basic":
        total, spare = 0.0, delta * (1 + 1e-9)
        for leaf, count in leaves:
            approximate = isinstance(leaf, ApproximateDpEvent)
            if not approximate and _pure_epsilon(leaf) == math.inf:
                raise _refuse_kind(
                    leaf, composition, "epsilons and deltas add up only where they are given"
                )
            total += count * (leaf.epsilon if approximate else _pure_epsilon(leaf))
            spare -= count * (leaf.delta if approximate else 0.0)
        return total if spare >= 0 else math.inf
    if composition == "gaussian":
        ratios = []
        for leaf, count in leaves:
            if isinstance(leaf, dp_event.GaussianDpEvent):
                ratio = 1 / leaf.noise_multiplier if leaf.noise_multiplier > 0 else math.inf
            elif _pure_epsilon(leaf) < math.inf:
                ratio = _dominating_mu(_pure_epsilon(leaf))
            else:
                raise _refuse_kind(leaf, composition, "no Gaussian is known to dominate it")
            ratios.append(math.sqrt(count) * ratio)
        return min(pure, gaussian_epsilon(total_mu(ratios), delta))
    order = _renyi_order(epsilon, delta)
    spent = 0.0
    for leaf, count in leaves:
        if isinstance(leaf, ApproximateDpEvent) and leaf.delta > 0:
            raise _refuse_kind(
                leaf, composition, "its delta would have to be set aside from the start"
            )
        spent += count * _renyi_divergence(_freeze(leaf), order, adjacency)
    return min(pure, max(0.0, spent + _renyi_surcharge(math.log(order - 1), delta)))
