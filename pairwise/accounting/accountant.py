"""What releases cost: epsilon of releases fixed in advance, of a filter, and the zCDP of a part.

Gaussian and zCDP formulas are exact; selections go through dp-accounting. Sensitivities are computed by the algorithms;
nothing here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import get_epsilon_gaussian
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from numpy.typing import NDArray

from pairwise.accounting.events import PureDpEvent, dp_event, leaves_of
from pairwise.accounting.gaussian import renyi_order
from pairwise.errors import InvalidParameterError, UnsupportedEventError
from textpriv.statement import epsilon_of_zcdp, renyi_surcharge

ORDERS = tuple(float(order) for order in DEFAULT_RDP_ORDERS if order > 1)


def epsilon_of(event: dp_event.DpEvent, delta: float) -> float:
    """Return an epsilon at which an event is (epsilon, delta)-DP: never too small up to rounding, infinity if unbounded.

    The first rule that applies: all Gaussian, exactly; all Gaussian, zCDP or pure, by adding rho; Rényi accounting. A sum of
    pure epsilons is used wherever it is smaller. ``UnsupportedEventError`` for an event that cannot be analysed.
    """
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameterError(f"delta must be in [0, 1); found {delta!r}.")
    leaves = leaves_of(event)
    pure = _pure_epsilon(event)
    if delta == 0:
        return pure
    if leaves and all(isinstance(leaf, dp_event.GaussianDpEvent) for leaf, _ in leaves):
        return gaussian_epsilon(math.sqrt(2.0 * zcdp_cost(event)), delta)
    if all(_rho(leaf) is not None for leaf, _ in leaves):
        return min(pure, epsilon_of_zcdp(zcdp_cost(event), delta))
    surcharges = [renyi_surcharge(order, delta) for order in ORDERS]
    return min(pure, max(0.0, float(np.min(_divergences(event, ORDERS) + surcharges))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε >= 0 at which a Gaussian of μ = Δ/σ is (ε, delta)-DP (Balle and Wang 2018), rounded up."""
    if not 1e-9 < mu < 1e100:  # the search is not exact there, or does not converge
        return epsilon_of_zcdp(mu * mu / 2, delta)
    # The search errs by at most 1e-12.
    epsilon = get_epsilon_gaussian(1.0 / mu, delta)
    return float((epsilon + 1e-12) * (1 + 1e-12)) if epsilon else 0.0


def filtered_epsilon(event: dp_event.DpEvent, epsilon: float, delta: float) -> float:
    """Return the epsilon of a Rényi filter for the limit (epsilon, delta).

    While it stays within the limit, all releases are (epsilon, delta)-DP together, although each of them may be chosen by
    the results of those before (Feldman and Zrnic 2021; Lécuyer 2021). The order is fixed by the limit alone. The sum of
    pure epsilons is a filter with delta = 0, so it may stand in for the other at every point.
    """
    pure = _pure_epsilon(event)
    if delta == 0:
        return pure
    order = renyi_order(epsilon, delta)
    # A selection is bounded at one order by what one trial costs at the others.
    spent = float(_divergences(event, (*ORDERS, order))[-1])
    return min(pure, max(0.0, spent + renyi_surcharge(order, delta)))


def zcdp_cost(event: dp_event.DpEvent) -> float:
    """Return the rho at which an event is rho-zCDP, its parts added up; selections have no such bound."""
    rhos = [(_rho(leaf), count, leaf) for leaf, count in leaves_of(event)]
    for rho, _, leaf in rhos:
        if rho is None:
            raise UnsupportedEventError(
                f"no zCDP bound is known for {type(leaf).__name__}. Use Gaussian, zCDP or pure releases."
            )
    return math.fsum(count * rho for rho, count, _ in rhos if rho is not None)


def _pure_epsilon(event: dp_event.DpEvent) -> float:
    """Return the sum of the pure epsilons of all parts, infinity where one has none."""
    return math.fsum(
        count * (leaf.epsilon if isinstance(leaf, PureDpEvent) else math.inf)
        for leaf, count in leaves_of(event)
    )


def _rho(leaf: dp_event.DpEvent) -> float | None:
    """Return the rho at which one release is rho-zCDP, None where none is known."""
    if isinstance(leaf, dp_event.NonPrivateDpEvent):
        return math.inf
    if isinstance(leaf, dp_event.GaussianDpEvent):
        return 0.5 / leaf.noise_multiplier**2 if leaf.noise_multiplier > 0 else math.inf
    if isinstance(leaf, dp_event.ZCDpEvent) and leaf.xi == 0:
        return float(leaf.rho)
    if isinstance(leaf, PureDpEvent):
        return leaf.epsilon**2 / 2  # Bun and Steinke 2016, proposition 1.4
    return None


def _divergences(event: dp_event.DpEvent, orders: Sequence[float]) -> NDArray[np.float64]:
    """Return bounds on the Rényi divergence of an event at several orders, shape of ``orders``."""
    alphas, total = np.array(orders), np.zeros(len(orders))
    for leaf, count in leaves_of(event):
        rho = _rho(leaf)
        if rho is None:
            total += count * _selection_divergences(leaf, orders)
        else:
            pure = leaf.epsilon if isinstance(leaf, PureDpEvent) else math.inf
            total += count * np.minimum(alphas * rho, pure)
    return total


def _selection_divergences(leaf: dp_event.DpEvent, orders: Sequence[float]) -> NDArray[np.float64]:
    accountant = RdpAccountant(list(orders))
    if not (isinstance(leaf, dp_event.RepeatAndSelectDpEvent) and accountant.supports(leaf)):
        raise UnsupportedEventError(
            f"no accountant analyses {type(leaf).__name__}. Use an event listed at the head of "
            "pairwise.accounting.events."
        )
    accountant.compose(leaf)
    return np.array(accountant.rdp)
