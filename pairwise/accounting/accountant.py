"""What releases cost: events in, epsilon out, and budgets that refuse.

The Gaussian formulas are exact (mechanisms.md 1.1, 1.2); everything else goes through ``dp_accounting``, behind one
function, ``epsilon_of``, that fixes how an event is to be read under each adjacency (mechanisms.md 1.4). Sensitivities are
computed by the algorithms; nothing here sees data.

**How to write an event.** All numbers are for the adjacency that is passed beside the event:

* ``GaussianDpEvent(z)``: z = σ/Δ, Δ the l2 sensitivity under that adjacency.
* ``LaplaceDpEvent(z)``: z = b/Δ₁, Δ₁ the l1 sensitivity under that adjacency.
* ``ZCDpEvent(rho)``, ``ApproximateDpEvent(epsilon, delta)``: for that adjacency.
* ``PoissonSampledDpEvent(q, GaussianDpEvent(z))``: z = σ/C, C the norm bound of one record, under every adjacency.
* ``MixtureOfGaussiansDpEvent``: add/remove or zero-out only (``group_poisson_event``).
* ``SampledWithoutReplacementDpEvent(n, b, GaussianDpEvent(z))``: replace-one only, z = σ/Δ with Δ the sensitivity of the
  query on the sample.

Items of a ``ComposedDpEvent`` run one after the other, each possibly computed from what came before, with parameters fixed
in advance. Where the parameters themselves may be chosen by earlier results, a ``PrivacyBudget`` composes by a filter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import dp_accounting
from dp_accounting import dp_event
from dp_accounting.pld import common as pld_common
from dp_accounting.pld import privacy_loss_distribution as pld_lib

from pairwise.accounting.events import (
    Adjacency,
    ApproximateDpEvent,
    _event_from_plain,
    _freeze,
    _leaves,
    _merged,
    check_event,
    compose,
)
from pairwise.accounting.gaussian import gaussian_epsilon, total_mu
from pairwise.accounting.zcdp import zcdp_epsilon
from pairwise.errors import InvalidParameterError, UnsupportedEventError

__all__ = ["epsilon_of", "zcdp_cost"]

# Widths of the grid of privacy losses. Every width gives a valid bound; a narrower one is tighter and slower.
_WIDTHS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


def _refined(bound: Callable[[float], float], interval: float | None) -> float:
    """Return a bound on the given grid, or on grids refined until about 0.1 % of it can be gained.

    The surplus falls with the square of the width, so the last gain, over nine, tells what is left.
    """
    if interval is not None:
        return bound(interval)
    best = bound(_WIDTHS[0])
    for width in _WIDTHS[1:]:
        finer = bound(width)
        gain = best - finer
        best = min(best, finer)
        if not gain > 9e-3 * best:
            break
    return best


def _loss_distribution(
    event: dp_event.DpEvent, count: int, adjacency: Adjacency, interval: float
) -> pld_lib.PrivacyLossDistribution:
    """Return the privacy loss distribution of ``count`` such releases, pessimistic.

    Built here rather than by ``PLDAccountant``, since that one reads an unsampled Gaussian under replace-one as 2C/σ
    (mechanisms.md 1.4) and refuses a Laplace release whose sensitivity is already that of the replacement.
    """
    step = {"value_discretization_interval": interval}
    if isinstance(event, dp_event.GaussianDpEvent):
        return pld_lib.from_gaussian_mechanism(event.noise_multiplier / math.sqrt(count), **step)
    if isinstance(event, dp_event.LaplaceDpEvent):
        one = pld_lib.from_laplace_mechanism(event.noise_multiplier, **step)
    elif isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        one = pld_lib.from_discrete_laplace_mechanism(
            event.noise_parameter, sensitivity=event.sensitivity, **step
        )
    elif isinstance(event, ApproximateDpEvent):
        parameters = pld_common.DifferentialPrivacyParameters(event.epsilon, event.delta)
        one = pld_lib.from_privacy_parameters(parameters, **step)
    elif isinstance(event, dp_event.RandomizedResponseDpEvent):
        # Its cost under replacement covers the other relations.
        one = pld_lib.from_randomized_response(event.noise_parameter, event.num_buckets, **step)
    elif isinstance(event, dp_event.MixtureOfGaussiansDpEvent):
        one = pld_lib.from_mixture_gaussian_mechanism(
            event.standard_deviation, event.sensitivities, event.sampling_probs, **step
        )
    else:
        one = pld_lib.from_gaussian_mechanism(
            event.event.noise_multiplier,
            sampling_prob=event.sampling_probability,
            neighboring_relation=adjacency.relation,
            **step,
        )
    return one.self_compose(count)


def _renyi_event(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Return an event that ``RdpAccountant`` knows and that covers the given one; itself where none is needed."""
    if isinstance(event, ApproximateDpEvent) and event.delta == 0:
        return dp_event.ZCDpEvent(event.epsilon**2 / 2)  # Bun & Steinke 2016, proposition 1.4
    return event


def _renyi_epsilon(
    leaves: Sequence[tuple[dp_event.DpEvent, int]], delta: float, adjacency: Adjacency
) -> float | None:
    """Return epsilon by Rényi accounting, or None where some event is not supported."""
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=adjacency.relation)
    for event, count in leaves:
        known = _renyi_event(event)
        if not accountant.supports(known):
            return None
        try:
            accountant.compose(known, count)
        except ValueError:
            # With very much noise the accountant's expansion for samples leaves the range of its logarithms.
            if not isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
                raise
            accountant.compose(event.event, count)
    return float(accountant.get_epsilon(delta))


def _pure_epsilon(event: dp_event.DpEvent) -> float:
    """Return the pure epsilon of a release, infinity where it has none."""
    if isinstance(event, dp_event.LaplaceDpEvent):
        return 1.0 / event.noise_multiplier if event.noise_multiplier > 0 else math.inf
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return float(event.noise_parameter * event.sensitivity)
    if isinstance(event, ApproximateDpEvent) and event.delta == 0:
        return event.epsilon
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        if event.num_buckets == 1:
            return 0.0
        if event.noise_parameter == 0:
            return math.inf
        spread = event.noise_parameter / event.num_buckets
        return math.log((1 - event.noise_parameter + spread) / spread)
    return math.inf


def epsilon_of(
    event: dp_event.DpEvent,
    delta: float,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    *,
    interval: float | None = None,
) -> float:
    """Return an epsilon at which an event is (epsilon, delta)-DP; never too small up to rounding.

    Parameters
    ----------
    event : DpEvent
        Written as the head of this module says.
    delta : float
        In [0, 1).
    adjacency : Adjacency or str
        The adjacency that the event's numbers are for.
    interval : float, optional
        Grid of the privacy loss distributions. Every value gives a valid bound; by default it is refined from 1e-2 down
        to 1e-4 until a finer one would lower the result by about 0.1 % at most.

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
    The first rule that applies, and the smaller value where a sum of pure epsilons is available too:

    1. all Gaussian: exactly, one Gaussian of μ = √ΣΔᵢ²/σᵢ² (mechanisms.md 1.2);
    2. all Gaussian or zCDP: ρ adds up, converted by ``zcdp_epsilon`` (1.3);
    3. all with a privacy loss distribution: their product (pessimistic discretisation);
    4. all with a Rényi bound: ``RdpAccountant``; or the sum of pure epsilons plus that bound for the rest; or the cost
       as if nothing were sampled;
    5. otherwise each release known to Rényi accounting alone becomes one (εᵢ, δ/2k)-DP mechanism, k of them, and these
       enter the product of rule 3 at δ.
    """
    relation = Adjacency(adjacency)
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameterError(f"delta must be in [0, 1); found {delta!r}.")
    return _epsilon_of_text(_freeze(event), float(delta), relation, interval)


@lru_cache(maxsize=256)
def _epsilon_of_text(
    text: str, delta: float, adjacency: Adjacency, interval: float | None
) -> float:
    """Return ``epsilon_of`` the event that a text stands for; one fit asks for it to calibrate, to charge and to state."""
    listed = list(_leaves(_event_from_plain(json.loads(text))))
    leaves = _merged(listed)
    if not leaves:
        return 0.0
    if any(isinstance(leaf, dp_event.NonPrivateDpEvent) for leaf, _ in leaves):
        return math.inf
    for leaf, _ in leaves:
        _check_reading(leaf, adjacency)
    pure = math.fsum(count * _pure_epsilon(leaf) for leaf, count in leaves)
    if delta == 0:
        return pure
    ratio = total_mu(
        math.sqrt(count) / leaf.noise_multiplier if leaf.noise_multiplier > 0 else math.inf
        for leaf, count in leaves
        if isinstance(leaf, dp_event.GaussianDpEvent)
    )
    others = [(leaf, n) for leaf, n in leaves if not isinstance(leaf, dp_event.GaussianDpEvent)]
    if not others:
        return min(pure, gaussian_epsilon(ratio, delta))
    if ratio == math.inf:
        return math.inf
    if all(isinstance(leaf, dp_event.ZCDpEvent) and leaf.xi == 0 for leaf, _ in others):
        rho = ratio**2 / 2 + math.fsum(count * leaf.rho for leaf, count in others)
        return zcdp_epsilon(rho, delta)
    if ratio > 0:
        others.append((dp_event.GaussianDpEvent(1 / ratio), 1))
    if _has_product(others):
        return min(
            pure,
            _refined(lambda width: _product_epsilon(others, delta, adjacency, width), interval),
        )
    renyi = _renyi_epsilon(others, delta, adjacency)
    if renyi is not None:
        # A pure release only scales all odds, so its epsilon may also be added to that of the rest at the full delta.
        rest = [(leaf, count) for leaf, count in others if _pure_epsilon(leaf) == math.inf]
        result = min(pure, renyi)
        if len(rest) < len(others):
            apart = math.fsum(
                c * _pure_epsilon(leaf) for leaf, c in others if (leaf, c) not in rest
            )
            impure = compose(dp_event.SelfComposedDpEvent(leaf, count) for leaf, count in rest)
            result = min(result, apart + epsilon_of(impure, delta, adjacency, interval=interval))
        # A secret sample never costs more than everybody's turn: the law is a mixture over samples, each of them
        # dominated by the same Gaussian. For large samples the Rényi bound is the looser one.
        if any(isinstance(leaf, dp_event.SampledWithoutReplacementDpEvent) for leaf, _ in others):
            unsampled = compose(
                dp_event.SelfComposedDpEvent(
                    leaf.event
                    if isinstance(leaf, dp_event.SampledWithoutReplacementDpEvent)
                    else leaf,
                    count,
                )
                for leaf, count in others
            )
            result = min(result, epsilon_of(unsampled, delta, adjacency, interval=interval))
        return result
    return min(pure, _mixed_epsilon(listed, delta, adjacency, interval))


def _check_reading(event: dp_event.DpEvent, adjacency: Adjacency) -> None:
    """Refuse an event that has no meaning under an adjacency, in words that say what to do."""
    if isinstance(event, dp_event.MixtureOfGaussiansDpEvent) and adjacency is Adjacency.REPLACE_ONE:
        raise UnsupportedEventError(
            "a mixture of Gaussians covers add/remove and zero-out of a group, not replace-one. Ask for zero-out; a "
            "changed record is then one removal and one insertion, (2ε, (1 + e^ε)δ)."
        )
    if (
        isinstance(event, dp_event.SampledWithoutReplacementDpEvent)
        and adjacency is not Adjacency.REPLACE_ONE
    ):
        raise UnsupportedEventError(
            "sampling a fixed number of records without replacement is analysed for replace-one only; "
            f"found {adjacency}. Ask for replace-one, or sample by independent coins."
        )


def _has_product(leaves: Sequence[tuple[dp_event.DpEvent, int]]) -> bool:
    """Return whether every release has a privacy loss distribution; those that no adjacency admits are refused before."""
    return all(
        isinstance(
            leaf,
            dp_event.GaussianDpEvent
            | dp_event.LaplaceDpEvent
            | dp_event.DiscreteLaplaceDpEvent
            | dp_event.RandomizedResponseDpEvent
            | dp_event.MixtureOfGaussiansDpEvent
            | ApproximateDpEvent,
        )
        or (
            isinstance(leaf, dp_event.PoissonSampledDpEvent)
            and isinstance(leaf.event, dp_event.GaussianDpEvent)
        )
        for leaf, _ in leaves
    )


def _product_epsilon(
    leaves: Sequence[tuple[dp_event.DpEvent, int]],
    delta: float,
    adjacency: Adjacency,
    interval: float,
) -> float:
    """Return epsilon of the product of all privacy loss distributions."""
    total: pld_lib.PrivacyLossDistribution | None = None
    for leaf, count in leaves:
        if isinstance(leaf, ApproximateDpEvent) and leaf.epsilon > 500:
            return math.inf  # the odds overflow, and nobody is protected by them anyway
        part = _loss_distribution(leaf, count, adjacency, interval)
        total = part if total is None else total.compose(part)
    return 0.0 if total is None else float(total.get_epsilon_for_delta(delta))


def _mixed_epsilon(
    leaves: Sequence[tuple[dp_event.DpEvent, int]],
    delta: float,
    adjacency: Adjacency,
    interval: float | None,
) -> float:
    """Return epsilon by rule 5 of ``epsilon_of``: an (ε, δ)-DP mechanism has a dominating pair too (Kairouz et al. 2015)."""
    with_law = [(leaf, count) for leaf, count in leaves if _has_product([(leaf, count)])]
    renyi_only = [(leaf, count) for leaf, count in leaves if not _has_product([(leaf, count)])]
    for leaf, count in renyi_only:
        share = delta / (2 * len(renyi_only))
        epsilon = _renyi_epsilon([(leaf, count)], share, adjacency)
        if epsilon is None:
            raise UnsupportedEventError(
                f"no accountant analyses {type(leaf).__name__} under {adjacency}. "
                "Use an event listed at the head of pairwise.accounting."
            )
        with_law.append((ApproximateDpEvent(epsilon, share), 1))
    merged = _merged(with_law)
    return _refined(lambda width: _product_epsilon(merged, delta, adjacency, width), interval)


def zcdp_cost(event: dp_event.DpEvent) -> float:
    """Return the ρ at which an event is ρ-zCDP, its parts added up.

    Raises
    ------
    UnsupportedEventError
        For a part without such a bound: samples, selections, releases with a δ.
    """
    check_event(event)
    total = 0.0
    for leaf, count in _leaves(event):
        if isinstance(leaf, dp_event.GaussianDpEvent):
            one = 0.5 / leaf.noise_multiplier**2 if leaf.noise_multiplier > 0 else math.inf
        elif isinstance(leaf, dp_event.ZCDpEvent) and leaf.xi == 0:
            one = leaf.rho
        elif _pure_epsilon(leaf) < math.inf:
            one = _pure_epsilon(leaf) ** 2 / 2  # Bun & Steinke 2016, proposition 1.4
        else:
            raise UnsupportedEventError(
                f"no zCDP bound is known for {type(leaf).__name__}. Use Gaussian, zCDP or pure releases."
            )
        total += count * one
    return total
