"""What releases cost: epsilon of an event, and the noise for a target.

Gaussian and zCDP formulas are exact; everything else goes through dp-accounting. Sensitivities are computed by the
algorithms; nothing here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr

from pairwise.accounting.events import (
    Adjacency,
    PureDpEvent,
    dp_event,
    event_of_text,
    leaves_of,
    text_of_event,
)
from pairwise.accounting.gaussian import (
    gaussian_epsilon,
    renyi_surcharge,
    total_mu,
    zcdp_epsilon,
)
from pairwise.accounting.parameters import check_privacy_parameters
from pairwise.errors import InvalidParameterError, UnsupportedEventError

Leaves = Sequence[tuple[dp_event.DpEvent, int]]

# The error of a grid of privacy losses is about the number of releases times its squared width. Every width gives a valid
# bound; with these an epsilon of 1 is within 0.2 %.
_WIDTH, _ERROR = 1e-2, 2e-3
# Of the logarithm of calibrated noise.
_TOLERANCE = 2e-4


def epsilon_of(
    event: dp_event.DpEvent, delta: float, adjacency: Adjacency | str = Adjacency.REPLACE_ONE
) -> float:
    """Return an epsilon at which an event is (epsilon, delta)-DP; never too small up to rounding.

    Parameters
    ----------
    event : DpEvent
        Written as the head of ``accounting.events`` says.
    delta : float
        In [0, 1).
    adjacency : Adjacency or str
        The adjacency that the event's numbers are for.

    Returns
    -------
    float
        Infinity where nothing finite is known.

    Raises
    ------
    UnsupportedEventError
        If some event cannot be analysed under that adjacency.

    Notes
    -----
    The first rule that applies: all Gaussian, exactly; all Gaussian, zCDP or pure, by adding rho; all Gaussian or
    Poisson-sampled, by the product of their privacy loss distributions; Rényi accounting. A sum of pure epsilons is used
    wherever it is smaller.
    """
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameterError(f"delta must be in [0, 1); found {delta!r}.")
    return _epsilon_of_text(text_of_event(event), float(delta), Adjacency(adjacency))


@lru_cache(maxsize=256)
def _epsilon_of_text(text: str, delta: float, adjacency: Adjacency) -> float:
    """Return ``epsilon_of``; one fit asks for it to calibrate, to charge and to state."""
    leaves = leaves_of(event_of_text(text))
    if any(isinstance(leaf, dp_event.NonPrivateDpEvent) for leaf, _ in leaves):
        return math.inf
    check_reading(leaves, adjacency)
    pure = math.fsum(count * pure_epsilon(leaf) for leaf, count in leaves)
    if delta == 0 or not leaves:
        return pure
    if all(isinstance(leaf, dp_event.GaussianDpEvent) for leaf, _ in leaves):
        mu = total_mu(math.sqrt(2.0 * count * _known(_rho(leaf))) for leaf, count in leaves)
        return gaussian_epsilon(mu, delta)
    if all(_rho(leaf) is not None for leaf, _ in leaves):
        rho = math.fsum(count * _known(_rho(leaf)) for leaf, count in leaves)
        return min(pure, zcdp_epsilon(rho, delta))
    if all(isinstance(leaf, _WITH_DISTRIBUTION) for leaf, _ in leaves):
        width = min(_WIDTH, math.sqrt(_ERROR / sum(count for _, count in leaves)))
        rough = _product_epsilon(leaves, delta, adjacency, width)
        if rough >= 0.5:
            return min(pure, rough)
        fine = width * math.sqrt(max(1e-3, rough))
        return min(pure, rough, _product_epsilon(leaves, delta, adjacency, fine))
    return min(pure, _renyi_epsilon(leaves, delta, adjacency))


_SAMPLED = (dp_event.PoissonSampledDpEvent, dp_event.MixtureOfGaussiansDpEvent)
_WITH_DISTRIBUTION = (dp_event.GaussianDpEvent, *_SAMPLED)


def _known(value: float | None) -> float:
    assert value is not None
    return value


def pure_epsilon(event: dp_event.DpEvent) -> float:
    """Return the pure epsilon of a release, infinity where it has none."""
    return event.epsilon if isinstance(event, PureDpEvent) else math.inf


def _rho(event: dp_event.DpEvent) -> float | None:
    """Return the rho at which one release is rho-zCDP, None where none is known."""
    if isinstance(event, dp_event.GaussianDpEvent):
        return 0.5 / event.noise_multiplier**2 if event.noise_multiplier > 0 else math.inf
    if isinstance(event, dp_event.ZCDpEvent) and event.xi == 0:
        return float(event.rho)
    if isinstance(event, PureDpEvent):
        return event.epsilon**2 / 2  # Bun and Steinke 2016, proposition 1.4
    return None


def check_reading(leaves: Leaves, adjacency: Adjacency) -> None:
    """Refuse an event that has no meaning under an adjacency, or no analysis at all."""
    for leaf, _ in leaves:
        replaced = adjacency is Adjacency.REPLACE_ONE
        if isinstance(leaf, dp_event.MixtureOfGaussiansDpEvent) and replaced:
            raise UnsupportedEventError(
                "a mixture of Gaussians covers add/remove and zero-out of a group, not replace-one. Ask for zero-out; a "
                "changed record is then one removal and one insertion, (2ε, (1 + e^ε)δ)."
            )
        known = _rho(leaf) is not None or isinstance(
            leaf, (*_SAMPLED, dp_event.RepeatAndSelectDpEvent, dp_event.NonPrivateDpEvent)
        )
        sampled = isinstance(leaf, dp_event.PoissonSampledDpEvent)
        if not known or (sampled and not isinstance(leaf.event, dp_event.GaussianDpEvent)):
            raise UnsupportedEventError(
                f"no accountant analyses {type(leaf).__name__}. Use an event listed at the head of "
                "pairwise.accounting.events."
            )


def _product_epsilon(leaves: Leaves, delta: float, adjacency: Adjacency, width: float) -> float:
    """Return epsilon of the product of all privacy loss distributions, pessimistic.

    Built here rather than by ``PLDAccountant``, which reads an unsampled Gaussian under replace-one as 2C/sigma.
    """
    total: pld_lib.PrivacyLossDistribution | None = None
    step = {"value_discretization_interval": width}
    for leaf, count in leaves:
        if isinstance(leaf, dp_event.GaussianDpEvent):
            part = pld_lib.from_gaussian_mechanism(leaf.noise_multiplier / math.sqrt(count), **step)
        elif isinstance(leaf, dp_event.MixtureOfGaussiansDpEvent):
            part = pld_lib.from_mixture_gaussian_mechanism(
                leaf.standard_deviation, leaf.sensitivities, leaf.sampling_probs, **step
            ).self_compose(count)
        else:
            part = pld_lib.from_gaussian_mechanism(
                leaf.event.noise_multiplier,
                sampling_prob=leaf.sampling_probability,
                neighboring_relation=adjacency.relation,
                **step,
            ).self_compose(count)
        total = part if total is None else total.compose(part)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def _renyi_epsilon(leaves: Leaves, delta: float, adjacency: Adjacency) -> float:
    """Return epsilon by Rényi accounting at the best of many orders."""
    orders = tuple(float(order) for order in DEFAULT_RDP_ORDERS if order > 1)
    total = sum(count * divergences(leaf, orders, adjacency) for leaf, count in leaves)
    surcharges = np.array([renyi_surcharge(math.log(order - 1), delta) for order in orders])
    return max(0.0, float(np.min(total + surcharges)))


def divergences(event: dp_event.DpEvent, orders: tuple[float, ...], adjacency: Adjacency) -> Any:
    """Return bounds on the Rényi divergence of one release at several orders, shape of ``orders``."""
    alphas = np.array(orders)
    rho = _rho(event)
    if rho is not None:
        return np.minimum(alphas * rho, pure_epsilon(event))
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        z, q = event.event.noise_multiplier, event.sampling_probability
        if adjacency is Adjacency.REPLACE_ONE:
            # No bound for samples is used here: a changed record moves the unsampled sum by 2C, and z is sigma/C.
            return alphas * 0.5 / (z / 2) ** 2
        return np.array([_mixture_divergence(z, (0.0, 1.0), (1 - q, q), a) for a in orders])
    if isinstance(event, dp_event.MixtureOfGaussiansDpEvent):
        largest = max(event.sensitivities)
        z = event.standard_deviation / largest
        sizes = tuple(each / largest for each in event.sensitivities)
        chances = tuple(event.sampling_probs)
        return np.array([_mixture_divergence(z, sizes, chances, a) for a in orders])
    accountant = RdpAccountant(list(orders), adjacency.relation)
    if not accountant.supports(event):
        raise UnsupportedEventError(f"no accountant analyses {type(event).__name__}.")
    accountant.compose(event)
    return np.array(accountant.rdp)


@lru_cache(maxsize=4096)
def _mixture_divergence(
    z: float, sizes: tuple[float, ...], chances: tuple[float, ...], order: float
) -> float:
    """Return a bound on the Rényi divergence, in both directions, of a mixture of Gaussians and N(0, z²).

    The mixture has components N(s, z²), 0 <= s <= 1, with the given chances. Its likelihood ratio r rises with x, so on a
    cell of a grid E r^α is at most the mass of the cell times its value at the right end, and E r^(1-α) at the left end.
    Beyond the grid r is at most that of the component s = 1, whose tail is known in closed form, and at least the chance
    of s = 0. So the sums are upper bounds whatever the grid. Never more than unsampled: α/(2z²).
    """
    plain = order / (2.0 * z * z)
    p = np.array(chances)
    if sizes[0] != 0 or p[0] <= 0 or order > 1e6:
        return plain
    s = np.array(sizes)[p > 0] / z
    p = p[p > 0]
    floor = (order - 1.0) * -math.log(p[0])
    edges = np.linspace(-12.0 - math.sqrt(2.0 * floor), 12.0 + max(order / z, z + 1.0 / z), 1 << 17)
    log_ratio = logsumexp(np.multiply.outer(edges, s) + (np.log(p) - s * s / 2.0), axis=1)
    mass = np.maximum(np.diff(ndtr(edges)), 0.0)
    # Of large arguments differences of the other tail keep their digits.
    upper = edges[:-1] > 0
    mass[upper] = np.maximum(-np.diff(ndtr(-edges)), 0.0)[upper]
    with np.errstate(divide="ignore", under="ignore"):
        log_mass = np.log(mass * (1 + 1e-9))
    last = float(edges[-1] - order / z)
    forward = [
        logsumexp(log_mass + order * log_ratio[1:]),
        math.log(ndtr(edges[0]) + 1e-300) + order * log_ratio[0],
        order * (order - 1.0) / (2.0 * z * z) + math.log(ndtr(-last) + 1e-300),
    ]
    backward = [
        logsumexp(log_mass + (1.0 - order) * log_ratio[:-1]),
        math.log(ndtr(edges[0]) + 1e-300) + floor,
        math.log(ndtr(-edges[-1]) + 1e-300) + (1.0 - order) * log_ratio[-1],
    ]
    worst = max(float(logsumexp(forward)), float(logsumexp(backward)))
    return min(plain, max(0.0, worst) / (order - 1.0))


def zcdp_cost(event: dp_event.DpEvent) -> float:
    """Return the rho at which an event is rho-zCDP, its parts added up.

    Raises
    ------
    UnsupportedEventError
        For a part without such a bound: samples and selections.
    """
    total = 0.0
    for leaf, count in leaves_of(event):
        rho = math.inf if isinstance(leaf, dp_event.NonPrivateDpEvent) else _rho(leaf)
        if rho is None:
            raise UnsupportedEventError(
                f"no zCDP bound is known for {type(leaf).__name__}. Use Gaussian, zCDP or pure releases."
            )
        total += count * rho
    return total


def calibrate(
    make_event: Callable[[float], dp_event.DpEvent],
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    *,
    guess: float = 1.0,
) -> float:
    """Return nearly the least noise parameter whose event costs at most (epsilon, delta).

    Parameters
    ----------
    make_event : callable
        Noise parameter (larger is more private) to event.
    epsilon, delta : float
        The target; epsilon = infinity gives 0.
    adjacency : Adjacency
        What the events are for.
    guess : float, default=1.0
        Where to start.
    """
    check_privacy_parameters(epsilon, delta)
    if math.isinf(epsilon):
        return 0.0

    def excess(logarithm: float) -> float:
        # A search for a root wants finite numbers.
        return min(epsilon_of(make_event(math.exp(logarithm)), delta, adjacency), 1e9) - epsilon

    low = math.log(guess)
    while low > -14 and excess(low) <= 0:
        low -= 1.0
    high = low + 1.0
    while excess(high) > 0:
        high += 1.0
        if high > 30:
            raise InvalidParameterError(
                f"no noise reaches epsilon {epsilon:g} at delta {delta:g} with this event. Use fewer steps."
            )
    # In logarithms, so that one tolerance serves small and large noise.
    found = float(brentq(excess, high - 1.0, high, xtol=_TOLERANCE))
    while excess(found) > 0:
        found += _TOLERANCE
    return math.exp(found)
