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

import enum
import json
import math
import os
import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import attr
import dp_accounting
from dp_accounting import dp_event
from dp_accounting.pld import common as pld_common
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from scipy.special import erfcx, ndtr, ndtri
from scipy.stats import binom

from pairwise.errors import BudgetClosed, BudgetExceeded, InvalidParameter, UnsupportedEvent
from pairwise.statement import PrivacyStatement

__all__ = [
    "Adjacency",
    "ApproximateDpEvent",
    "Charge",
    "PrivacyBudget",
    "calibrate",
    "check_privacy_parameters",
    "compose",
    "default_delta",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_event",
    "gaussian_mu",
    "gaussian_sigma",
    "group_poisson_event",
    "group_poisson_sigma",
    "poisson_event",
    "poisson_sigma",
    "pure_event",
    "release_mu",
    "sampled_event",
    "sampled_sigma",
    "total_mu",
    "zcdp_cost",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_epsilon_classic",
    "zcdp_rho",
    "zcdp_rho_classic",
]

# Results of floating-point searches are rounded to the safe side by this relative amount.
_SAFETY = 1e-12


class Adjacency(str, enum.Enum):
    """Between which data sets a guarantee holds.

    ``REPLACE_ONE``: n public, one record changes arbitrarily. ``ZERO_OUT``: one record's contribution is removed, public
    sizes stay (``REPLACE_SPECIAL`` of dp-accounting). ``ADD_REMOVE``: the true size changes.
    """

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"
    ADD_REMOVE = "add/remove"

    def __str__(self) -> str:
        return self.value

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """The same relation in dp-accounting's terms."""
        relations = dp_accounting.NeighboringRelation
        return {
            Adjacency.REPLACE_ONE: relations.REPLACE_ONE,
            Adjacency.ZERO_OUT: relations.REPLACE_SPECIAL,
            Adjacency.ADD_REMOVE: relations.ADD_OR_REMOVE_ONE,
        }[self]


# --------------------------------------------------------------------------------------------------------------------
# The Gaussian mechanism, exactly


def default_delta(n: int) -> float:
    """Return min(1e-5, n^-1.5), the default δ for n records (mechanisms.md 1.5)."""
    if n < 1:
        raise InvalidParameter(f"n must be at least 1; found {n}.")
    return min(1e-5, float(n) ** -1.5)


def check_privacy_parameters(
    epsilon: float,
    delta: float,
    n: int | None = None,
    *,
    allow_pure: bool = False,
    force: bool = False,
) -> None:
    """Refuse settings that promise nothing or cannot be met.

    Parameters
    ----------
    epsilon : float
        > 0; infinity is the non-private reference and passes whatever δ is.
    delta : float
        In (0, 1), and below 1/n: a mechanism that publishes one random record in full satisfies δ = 1/n
        (mechanisms.md 1.5).
    n : int, optional
        Public number of records.
    allow_pure : bool, default=False
        Whether δ = 0 can be met (Laplace-type noise; Gaussian noise cannot).
    force : bool, default=False
        Accept δ >= 1/n all the same.

    Raises
    ------
    InvalidParameter
        With what was expected, what was found and what to do.
    """
    if math.isnan(epsilon) or epsilon <= 0:
        raise InvalidParameter(
            f"epsilon must be > 0; found {epsilon!r}. Use float('inf') for the non-private reference."
        )
    if epsilon == math.inf:
        return
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameter(f"delta must be in [0, 1); found {delta!r}. Use 1e-5 or less.")
    if delta == 0 and not allow_pure:
        raise InvalidParameter(
            "delta = 0 cannot be met with Gaussian noise. Use a delta such as 1e-5, or an algorithm with Laplace noise."
        )
    if n is not None and not force and delta >= 1 / n:
        raise InvalidParameter(
            f"delta must be below 1/n = {1 / n:.3g}; found {delta:.3g}. Publishing one whole record at random would "
            f"satisfy that. Use {default_delta(n):.3g}."
        )


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact δ(ε) of a Gaussian mechanism with μ = Δ/σ (Balle & Wang 2018; mechanisms.md 1.1).

    δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), in the scaled form in which e^ε never appears, so that it neither overflows nor
    cancels for large ε.
    """
    if math.isnan(mu) or mu < 0 or math.isnan(epsilon):
        raise InvalidParameter(
            f"mu must be >= 0 and epsilon a number; found {mu!r} and {epsilon!r}."
        )
    if mu == 0 or epsilon == math.inf:
        return max(0.0, -math.expm1(epsilon)) if mu == 0 else 0.0
    if mu == math.inf:
        return 1.0
    near = epsilon / mu - mu / 2
    far = epsilon / mu + mu / 2
    root = math.sqrt(2.0)
    # x₂² − x₁² = 2ε, so e^ε φ(x₂) = φ(x₁).
    if near < 0:
        if far < 0:
            return float(ndtr(-near) - math.exp(epsilon) * ndtr(-far))
        return float(ndtr(-near) - 0.5 * math.exp(-near * near / 2) * erfcx(far / root))
    return float(0.5 * math.exp(-near * near / 2) * (erfcx(near / root) - erfcx(far / root)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ = Δ/σ for which Gaussian noise is (ε, δ)-DP; infinite for ε = infinity.

    Found by bisection of ``gaussian_delta`` and rounded down, so that δ(ε) <= δ holds for the value returned.
    """
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if gaussian_delta(epsilon, middle) <= delta:
            low = middle
        else:
            high = middle
    return low * (1 - _SAFETY)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0, steps: int = 1) -> float:
    """Return σ = Δ√T/μ(ε, δ), exact for T adaptive releases of sensitivity Δ (mechanisms.md 1.1, 1.2); 0 at ε = inf."""
    if not (math.isfinite(sensitivity) and sensitivity >= 0):
        raise InvalidParameter(f"sensitivity must be finite and >= 0; found {sensitivity!r}.")
    if steps < 1:
        raise InvalidParameter(f"steps must be at least 1; found {steps}.")
    return sensitivity * math.sqrt(steps) / gaussian_mu(epsilon, delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε >= 0 with δ(ε) <= delta for a Gaussian of μ = Δ/σ, rounded up."""
    if math.isnan(delta) or not 0 <= delta < 1:
        raise InvalidParameter(f"delta must be in [0, 1); found {delta!r}.")
    if mu == 0 or (delta > 0 and gaussian_delta(0.0, mu) <= delta):
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if gaussian_delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high * (1 + _SAFETY)


def total_mu(ratios: Iterable[float]) -> float:
    """Return √Σ(Δᵢ/σᵢ)², the one Gaussian that dominates adaptive releases Δᵢ/σᵢ fixed in advance (mechanisms.md 1.2)."""
    return math.sqrt(math.fsum(ratio * ratio for ratio in ratios))


# --------------------------------------------------------------------------------------------------------------------
# Zero-concentrated DP


def _zcdp_order(objective: Callable[[float], float]) -> float:
    """Return where a function of log(α − 1) is least, about (golden section on a grid cell); any α gives a valid bound."""
    grid = [-12.0 + 0.25 * i for i in range(120)]
    best = min(range(len(grid)), key=lambda i: objective(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (math.sqrt(5.0) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if objective(left) <= objective(right):
            high = right
        else:
            low = left
    return min((low + high) / 2, grid[best], key=objective)


def _renyi_surcharge(t: float, delta: float) -> float:
    """Return what Rényi DP of order α = 1 + e^t costs on top when it becomes (ε, δ)-DP (mechanisms.md 1.3)."""
    excess = math.exp(t)
    return (-math.log(delta) - t + (1 + excess) * (t - math.log1p(excess))) / excess


def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return the δ at ε of a ρ-zCDP mechanism, inf over α > 1 of e^((α−1)(αρ−ε))/(α−1) · (1 − 1/α)^α (mechanisms.md 1.3).

    Every α gives a valid bound, so an inexact minimum is only looser.
    """
    if rho == 0:
        return 0.0

    def log_delta(t: float) -> float:
        excess = math.exp(t)
        alpha = 1 + excess
        return excess * (alpha * rho - epsilon) - t + alpha * (t - math.log(alpha))

    return min(1.0, math.exp(min(0.0, log_delta(_zcdp_order(log_delta)))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the ε at δ of a ρ-zCDP mechanism, by the conversion of mechanisms.md 1.3 (Canonne, Kamath, Steinke 2020)."""
    if rho < 0 or math.isnan(rho) or not 0 <= delta < 1:
        raise InvalidParameter(
            f"expected rho >= 0 and delta in [0, 1); found {rho!r} and {delta!r}."
        )
    if rho == 0:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf

    def epsilon(t: float) -> float:
        return (1 + math.exp(t)) * rho + _renyi_surcharge(t, delta)

    return max(0.0, epsilon(_zcdp_order(epsilon))) * (1 + _SAFETY)


def zcdp_epsilon_classic(rho: float, delta: float) -> float:
    """Return ρ + 2√(ρ ln(1/δ)), the looser conversion of HUAI lemma 3 (for its published mode)."""
    if rho < 0 or not 0 < delta < 1:
        raise InvalidParameter(
            f"expected rho >= 0 and delta in (0, 1); found {rho!r} and {delta!r}."
        )
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose conversion by ``zcdp_epsilon`` is at most ε, rounded down."""
    check_privacy_parameters(epsilon, delta)
    if epsilon == math.inf:
        return math.inf
    low = zcdp_rho_classic(epsilon, delta)
    high = gaussian_mu(epsilon, delta) ** 2 / 2 * (1 + 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def release_mu(epsilon: float, delta: float, *, hardened: bool = False) -> float:
    """Return what all Gaussian releases of a fit may cost together, in units in which squares add up.

    μ(ε, δ) exactly (mechanisms.md 1.1, 1.2); for discrete Gaussian noise √(2ρ), ρ(ε, δ) by 1.3, which is up to a tenth less.
    """
    if hardened and math.isfinite(epsilon):
        return math.sqrt(2.0 * zcdp_rho(epsilon, delta))
    return gaussian_mu(epsilon, delta)


def zcdp_rho_classic(epsilon: float, delta: float) -> float:
    """Return ρ = (√(ln(1/δ) + ε) − √ln(1/δ))², the inverse of ``zcdp_epsilon_classic`` (mechanisms.md 1.3, H-8)."""
    check_privacy_parameters(epsilon, delta)
    log_term = math.log(1 / delta)
    return (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2


# --------------------------------------------------------------------------------------------------------------------
# Events


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(dp_event.DpEvent):
    """A mechanism known only to be (epsilon, delta)-DP; dp-accounting's own accountants refuse it, ``epsilon_of`` does not.

    Pure mechanisms without an event of their own (staircase, Duchi, discrete Laplace) are this with δ = 0.
    """

    epsilon: float
    delta: float = 0.0


def pure_event(epsilon: float) -> ApproximateDpEvent:
    """Return the event of a mechanism that is (ε, 0)-DP under the adjacency in use."""
    return ApproximateDpEvent(float(epsilon), 0.0)


def gaussian_event(ratio: float, steps: int = 1) -> dp_event.DpEvent:
    """Return ``steps`` Gaussian releases with z = σ/Δ = ``ratio``; z = 0 is the non-private event.

    Parameters
    ----------
    ratio : float
        σ/Δ, Δ the l2 sensitivity under the adjacency in use.
    steps : int, default=1
        Number of releases.
    """
    if ratio == 0:
        return dp_event.NonPrivateDpEvent()
    event = dp_event.GaussianDpEvent(float(ratio))
    return event if steps == 1 else dp_event.SelfComposedDpEvent(event, int(steps))


def poisson_event(sigma: float, q: float, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Poisson-sampled Gaussian sums; ``sigma`` = σ/C with C the norm bound of one record."""
    if sigma == 0:
        return dp_event.NonPrivateDpEvent()
    event = dp_event.PoissonSampledDpEvent(float(q), dp_event.GaussianDpEvent(float(sigma)))
    return dp_event.SelfComposedDpEvent(event, int(steps))


def group_poisson_event(sigma: float, kappa: int, q: float, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Poisson-sampled Gaussian sums when ``kappa`` records change together (mechanisms.md 1.4).

    Each step is a mixture of Gaussians: of κ records, Binomial(κ, q) are sampled, and the sum moves by at most that many
    times C (Ganesh 2024). Valid for add/remove and zero-out of any κ records, each with its own secret coin in every step.

    Parameters
    ----------
    sigma : float
        σ/C, C the norm bound of one record.
    kappa : int
        Group size, declared in public.
    q : float
        Sampling probability in (0, 1].
    steps : int
        Number of steps.
    """
    if kappa < 1 or int(kappa) != kappa:
        raise InvalidParameter(f"kappa must be a whole number >= 1; found {kappa!r}.")
    if not 0 < q <= 1:
        raise InvalidParameter(f"q must be in (0, 1]; found {q!r}.")
    if sigma == 0:
        return dp_event.NonPrivateDpEvent()
    if q == 1:
        return gaussian_event(sigma / kappa, steps)
    counts = list(range(int(kappa) + 1))
    chances = [float(p) for p in binom.pmf(counts, int(kappa), q)]
    event = dp_event.MixtureOfGaussiansDpEvent(float(sigma), [float(c) for c in counts], chances)
    return dp_event.SelfComposedDpEvent(event, int(steps))


def sampled_event(ratio: float, n: int, batch: int, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Gaussian releases on ``batch`` of ``n`` records drawn without replacement (replace-one only).

    ``ratio`` = σ/Δ, Δ the replace-one sensitivity of the query on the sample. The samples must stay secret.
    """
    if not 1 <= batch <= n:
        raise InvalidParameter(f"batch must be in 1..n; found {batch} of {n}.")
    if ratio == 0:
        return dp_event.NonPrivateDpEvent()
    if batch == n:
        return gaussian_event(ratio, steps)
    event = dp_event.SampledWithoutReplacementDpEvent(
        int(n), int(batch), dp_event.GaussianDpEvent(float(ratio))
    )
    return dp_event.SelfComposedDpEvent(event, int(steps))


def compose(events: Iterable[dp_event.DpEvent]) -> dp_event.DpEvent:
    """Return the composition of events, in the order in which they run."""
    listed = [event for event in events if not isinstance(event, dp_event.NoOpDpEvent)]
    if not listed:
        return dp_event.NoOpDpEvent()
    return listed[0] if len(listed) == 1 else dp_event.ComposedDpEvent(listed)


def _freeze(event: dp_event.DpEvent) -> str:
    """Return a text that two events share exactly when they are equal."""
    return json.dumps(_event_to_plain(event), sort_keys=True)


def _leaves(event: dp_event.DpEvent, count: int = 1) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yield (event, count) for each release inside a composition."""
    if isinstance(event, dp_event.NoOpDpEvent) or count == 0:
        return
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for item in event.events:
            yield from _leaves(item, count)
    else:
        yield event, count


def _merged(leaves: Iterable[tuple[dp_event.DpEvent, int]]) -> list[tuple[dp_event.DpEvent, int]]:
    """Return equal leaves added up: their order does not change what a product of their laws costs."""
    totals: Counter[str] = Counter()
    events: dict[str, dp_event.DpEvent] = {}
    for event, count in leaves:
        key = _freeze(event)
        totals[key] += count
        events[key] = event
    return [(events[key], count) for key, count in totals.items()]


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
    UnsupportedEvent
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
        raise InvalidParameter(f"delta must be in [0, 1); found {delta!r}.")
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
        raise UnsupportedEvent(
            "a mixture of Gaussians covers add/remove and zero-out of a group, not replace-one. Ask for zero-out; a "
            "changed record is then one removal and one insertion, (2ε, (1 + e^ε)δ)."
        )
    if (
        isinstance(event, dp_event.SampledWithoutReplacementDpEvent)
        and adjacency is not Adjacency.REPLACE_ONE
    ):
        raise UnsupportedEvent(
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
            raise UnsupportedEvent(
                f"no accountant analyses {type(leaf).__name__} under {adjacency}. "
                "Use an event listed at the head of pairwise.accounting."
            )
        with_law.append((ApproximateDpEvent(epsilon, share), 1))
    merged = _merged(with_law)
    return _refined(lambda width: _product_epsilon(merged, delta, adjacency, width), interval)


# --------------------------------------------------------------------------------------------------------------------
# Filters: what releases cost when each of them, its noise included, may be chosen by the results of those before


def _renyi_order(epsilon: float, delta: float) -> float:
    """Return the order α at which (ε, δ) leaves the most room for a ρ-zCDP release; public numbers only."""
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


def _refuse_kind(event: dp_event.DpEvent, composition: str, why: str) -> UnsupportedEvent:
    return UnsupportedEvent(
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


def zcdp_cost(event: dp_event.DpEvent) -> float:
    """Return the ρ at which an event is ρ-zCDP, its parts added up.

    Raises
    ------
    UnsupportedEvent
        For a part without such a bound: samples, selections, releases with a δ.
    """
    total = 0.0
    for leaf, count in _leaves(event):
        if isinstance(leaf, dp_event.GaussianDpEvent):
            one = 0.5 / leaf.noise_multiplier**2 if leaf.noise_multiplier > 0 else math.inf
        elif isinstance(leaf, dp_event.ZCDpEvent) and leaf.xi == 0:
            one = leaf.rho
        elif _pure_epsilon(leaf) < math.inf:
            one = _pure_epsilon(leaf) ** 2 / 2  # Bun & Steinke 2016, proposition 1.4
        else:
            raise UnsupportedEvent(
                f"no zCDP bound is known for {type(leaf).__name__}. Use Gaussian, zCDP or pure releases."
            )
        total += count * one
    return total


# --------------------------------------------------------------------------------------------------------------------
# Calibration


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
    InvalidParameter
        If no parameter up to 1e9 reaches the target.
    """
    check_privacy_parameters(epsilon, delta, allow_pure=True)
    if epsilon == math.inf:
        return 0.0

    def gap(log_parameter: float, interval: float | None = None) -> float:
        """Return log(cost/target) at a logarithm of the parameter."""
        parameter = math.exp(log_parameter)
        cost = epsilon_of(make_event(parameter), delta, adjacency, interval=interval)
        return math.log(min(max(cost, 1e-9), 1e9) / epsilon)

    # Secant steps on a rough grid of losses, which costs little.
    start, slope = math.log(guess), -2.0
    rough = gap(start, _WIDTHS[0])
    for _ in range(40):
        if abs(rough) < 0.1 or not -14 < start < 30:
            break
        step = min(max(-rough / slope, -1.5), 1.5)
        before, rough = rough, gap(start + step, _WIDTHS[0])
        start += step
        slope = min(max((rough - before) / step, -20.0), -0.5)
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
            raise InvalidParameter(
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
        lambda ratio: sampled_event(ratio, n, batch, steps),
        epsilon,
        delta,
        Adjacency.REPLACE_ONE,
    )


# --------------------------------------------------------------------------------------------------------------------
# Budgets


def _event_to_plain(event: dp_event.DpEvent) -> dict[str, Any]:
    """Return an event as JSON types."""

    def plain(value: Any) -> Any:
        if isinstance(value, dp_event.DpEvent):
            return _event_to_plain(value)
        if isinstance(value, bool | str) or value is None:
            return value
        if isinstance(value, int):
            return value
        if isinstance(value, Sequence) or hasattr(value, "tolist"):
            items = value.tolist() if hasattr(value, "tolist") else value
            return [plain(item) for item in items] if isinstance(items, Sequence) else items
        return float(value)

    fields = {f.name: plain(getattr(event, f.name)) for f in attr.fields(type(event))}
    return {"class": type(event).__name__, **fields}


def _event_from_plain(content: dict[str, Any]) -> dp_event.DpEvent:
    """Return the event of its JSON types; only event classes of this module and of dp-accounting can come out."""
    name = content["class"]
    cls = ApproximateDpEvent if name == "ApproximateDpEvent" else getattr(dp_event, name, None)
    if not (isinstance(cls, type) and issubclass(cls, dp_event.DpEvent)):
        raise UnsupportedEvent(f"the budget's store holds an unknown event {name!r}.")

    def built(value: Any) -> Any:
        if isinstance(value, dict):
            return _event_from_plain(value)
        if isinstance(value, list):
            return [built(item) for item in value]
        return value

    return cls(**{key: built(value) for key, value in content.items() if key != "class"})


@dataclass(frozen=True)
class Charge:
    """One accepted release: its label and its event."""

    label: str
    event: dp_event.DpEvent


_SCHEMA = """
CREATE TABLE budget (
    identity TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT NOT NULL, composition TEXT NOT NULL, closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE charge (number INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, event TEXT NOT NULL);
"""


_COMPOSITIONS = ("auto", "gaussian", "renyi", "basic")
_FILTERS = {
    "gaussian": "Smith and Thakurta 2022, a filter for Gaussian differential privacy; mechanisms.md 1.2",
    "renyi": "Feldman and Zrnic 2021 and Lécuyer 2021, a filter for Rényi differential privacy; mechanisms.md 1.3",
    "basic": "Rogers, Roth, Ullman and Vadhan 2016, a filter for (epsilon, delta)",
}


class PrivacyBudget:
    """A limit (ε, δ) on everything released about one data set, kept by all copies of one budget together.

    Every private fit charges its event *before* any noise is drawn; the one that would pass the limit is refused with
    ``BudgetExceeded`` and draws nothing. What is charged next, and how much noise it has, may be chosen by the results of
    what was charged before: each way of composing is one for which that is proved.

    Parameters
    ----------
    epsilon : float
        The limit, > 0.
    delta : float, default=1e-5
        In [0, 1); 0 admits pure mechanisms only.
    adjacency : Adjacency or str, default=Adjacency.REPLACE_ONE
        Guarantees under another adjacency cannot be added to this one and are refused.
    unit : str, default="one record"
        Whose change is protected; a charge for another unit is refused.
    composition : {"auto", "gaussian", "renyi", "basic"}, default="auto"
        By which filter charges are added up, see the notes. ``"auto"``: by the first charge, which no result can have led
        to: ``"gaussian"`` if it is all Gaussian, ``"basic"`` if a δ of its own is in it, else ``"renyi"``.
    path : str or Path, optional
        Where to keep the account. A file that exists is continued, provided that its limits are the same. Without a
        path it lives in a temporary folder until the process that created it ends or the ``with`` block is left.

    Notes
    -----
    The state is one SQLite file named by the budget, not by the object: copies made by ``sklearn.base.clone``,
    ``copy.deepcopy`` and ``pickle``, in this or any other process of the machine (``GridSearchCV`` with ``n_jobs=2``),
    are the same budget. Check and entry are one exclusive transaction, so two fits cannot both take the last of it.

    Charges are for fits on the same people: keep one budget per data set. A fit on a part of it (a fold) is charged in
    full. The filters, with the theorems that let events and their noise be chosen by earlier results:

    * ``"gaussian"``: Σ(Δ/σ)² against the μ² of (ε, δ), exact (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023).
      Takes Gaussian releases, and pure ones as the Gaussian that dominates them.
    * ``"renyi"``: Σ D_α against what (ε, δ) leaves at one order α, fixed by (ε, δ) alone (Feldman and Zrnic 2021; Lécuyer
      2021). Takes Gaussian, zCDP and pure releases, selections, and samples, the last at their Rényi cost, or unsampled
      where none is known. For Gaussian and zCDP releases nothing is lost against adding ρ.
    * ``"basic"``: Σεᵢ and Σδᵢ (Rogers, Roth, Ullman and Vadhan 2016). Takes pure and (ε, δ) releases.
    * The sum of pure epsilons is used wherever it is smaller.

    Products of privacy loss distributions are used for a *single* charge only, whose parts are fixed in advance: stopping
    when such a product would pass the limit is no filter, and can exceed δ. A kind that the filter cannot take is refused
    with ``UnsupportedEvent``.

    Examples
    --------
    >>> from pairwise.accounting import PrivacyBudget, gaussian_event
    >>> with PrivacyBudget(epsilon=1.0, delta=1e-5) as budget:
    ...     budget.charge(gaussian_event(ratio=10.0), label="first")
    ...     round(budget.spent(), 3)
    0.341
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
        unit: str = "one record",
        path: str | os.PathLike[str] | None = None,
        composition: str = "auto",
    ) -> None:
        check_privacy_parameters(epsilon, delta, allow_pure=True)
        if composition not in _COMPOSITIONS:
            raise InvalidParameter(
                f"composition must be one of {', '.join(_COMPOSITIONS)}; found {composition!r}."
            )
        self.composition = composition
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self.adjacency = Adjacency(adjacency)
        self.unit = unit
        self._final: tuple[Charge, ...] | None = None
        if path is None:
            folder = tempfile.mkdtemp(prefix="pairwise-budget-")
            self._path = str(Path(folder) / "budget.sqlite")
            # Runs once: at the end of the with block, or when the process that created the folder ends.
            self._remove: Any = weakref.finalize(_KEEPER, _remove_folder, folder, os.getpid())
        else:
            self._path = str(Path(path).absolute())
            self._remove = None
        self.identity = self._open_store()

    # -- store

    def _open_store(self) -> str:
        connection = sqlite3.connect(self._path, timeout=600, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            exists = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'budget'"
            ).fetchone()[0]
            identity = uuid.uuid4().hex
            if exists:
                row = connection.execute(
                    "SELECT identity, epsilon, delta, adjacency, unit, composition, closed FROM budget"
                ).fetchone()
                found = tuple(row[1:6])
                wanted = (
                    self.epsilon,
                    self.delta,
                    self.adjacency.value,
                    self.unit,
                    self.composition,
                )
                if found != wanted:
                    raise InvalidParameter(
                        f"the file at path holds a budget of (epsilon, delta, adjacency, unit, composition) = {found}; "
                        f"asked for {wanted}. Open it with its own limits, or choose another path."
                    )
                if row[6]:
                    raise BudgetClosed("the budget at path is closed. Start a new one elsewhere.")
                identity = row[0]
            else:
                for line in _SCHEMA.strip().split(";"):
                    if line.strip():
                        connection.execute(line)
                connection.execute(
                    "INSERT INTO budget VALUES (?, ?, ?, ?, ?, ?, 0)",
                    (
                        identity,
                        self.epsilon,
                        self.delta,
                        self.adjacency.value,
                        self.unit,
                        self.composition,
                    ),
                )
            connection.execute("COMMIT")
            return str(identity)
        except sqlite3.DatabaseError as error:
            raise InvalidParameter(
                "the file at path is not a budget of this package. Choose another path."
            ) from error
        finally:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the store exclusively; undo everything on an error."""
        try:
            # mode=rw: a store that has gone must not be silently replaced by an empty one.
            connection = sqlite3.connect(
                Path(self._path).as_uri() + "?mode=rw",
                uri=True,
                timeout=600,
                isolation_level=None,
            )
        except sqlite3.OperationalError as error:
            raise BudgetClosed(
                "the budget is closed or its store is gone, so nothing can be charged to it. Keep the with block open "
                "around all fits, or give the budget a path that stays."
            ) from error
        try:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute("SELECT identity, closed FROM budget").fetchone()
            if row is None or row[0] != self.identity or row[1]:
                raise BudgetClosed("the budget is closed, so nothing can be charged to it.")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise BudgetClosed("the budget's store cannot be read or written.") from error
        finally:
            connection.close()

    @staticmethod
    def _read(connection: sqlite3.Connection) -> tuple[Charge, ...]:
        rows = connection.execute("SELECT label, event FROM charge ORDER BY number").fetchall()
        return tuple(Charge(label, _event_from_plain(json.loads(event))) for label, event in rows)

    # -- use

    def charge(
        self,
        event: dp_event.DpEvent,
        label: str = "",
        *,
        adjacency: Adjacency | str | None = None,
        unit: str | None = None,
    ) -> None:
        """Enter a release, or refuse it. Call this before drawing any noise.

        Parameters
        ----------
        event : DpEvent
            The release, written as the head of this module says.
        label : str
            For people; must not hold private text.
        adjacency : Adjacency or str, optional
            What the event is for, checked against the budget's.
        unit : str, optional
            Whose change the event covers, checked against the budget's.

        Raises
        ------
        BudgetExceeded
            If all charges with this one would cost more than the limit; nothing is entered.
        BudgetClosed
            If the budget was closed or its store is gone.
        InvalidParameter
            If the adjacency or the unit is another one.
        """
        if adjacency is not None and Adjacency(adjacency) is not self.adjacency:
            raise InvalidParameter(
                f"the budget is for {self.adjacency}; found a release for {Adjacency(adjacency)}. "
                "Keep a budget of its own for that adjacency."
            )
        if unit is not None and unit != self.unit:
            raise InvalidParameter(
                f"the budget protects {self.unit!r}; found a release for {unit!r}. "
                "Keep a budget of its own for that unit."
            )
        encoded = _freeze(event)
        if self._final is not None:
            raise BudgetClosed("the budget is closed, so nothing can be charged to it.")
        with self._transaction() as connection:
            before = self._read(connection)
            cost = self._cost([*(c.event for c in before), _event_from_plain(json.loads(encoded))])
            # The relative allowance covers rounding in the accountants' searches, nothing else.
            if not cost <= self.epsilon * (1 + 1e-9):
                raise BudgetExceeded(
                    f"the release {label or type(event).__name__!r} was refused: with it the total would be epsilon "
                    f"{cost:.6g} at delta {self.delta:g}; the budget allows {self.epsilon:g}. "
                    f"{len(before)} releases are charged. Nothing was drawn. Lower its epsilon or stop here."
                )
            connection.execute(
                "INSERT INTO charge (label, event) VALUES (?, ?)", (str(label), encoded)
            )

    def _cost(self, events: Sequence[dp_event.DpEvent]) -> float:
        # What no result can have led to, the first charge, costs what it costs. If it does not fit the filter as well,
        # nothing is accepted after it, since every later charge only adds.
        if len(events) < 2:
            return epsilon_of(compose(events), self.delta, self.adjacency)
        leaves = _merged(leaf for event in events for leaf in _leaves(event))
        for leaf, _ in leaves:
            if isinstance(leaf, dp_event.NonPrivateDpEvent):
                return math.inf
            _check_reading(leaf, self.adjacency)
        limit = (self.epsilon, self.delta)
        return _filtered_epsilon(leaves, limit, self.adjacency, self._filter(events[0]))

    def _filter(self, first: dp_event.DpEvent) -> str:
        """Return the filter in use, which the first charge decides where the user did not."""
        if self.composition != "auto":
            return self.composition
        kinds = [leaf for leaf, _ in _leaves(first)]
        if all(isinstance(leaf, dp_event.GaussianDpEvent) for leaf in kinds):
            return "gaussian"
        if any(isinstance(leaf, ApproximateDpEvent) and leaf.delta > 0 for leaf in kinds):
            return "basic"
        return "renyi"

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All accepted releases, in order, by whatever process they were made."""
        if self._final is not None:
            return self._final
        with self._transaction() as connection:
            return self._read(connection)

    def spent(self) -> float:
        """Return the epsilon that all charges take of the limit, at the budget's δ.

        The account, not a guarantee: where results led to further charges, what is guaranteed is the limit.
        """
        return self._cost([charge.event for charge in self.charges])

    @property
    def statement(self) -> PrivacyStatement:
        """What all charged releases guarantee together, however each was chosen: the limit."""
        events = [charge.event for charge in self.charges]
        fixed = epsilon_of(compose(events), self.delta, self.adjacency)
        return PrivacyStatement(
            mechanism=f"composition of {len(events)} charged releases",
            adjacency=self.adjacency.value,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            proved=True,
            proof=_FILTERS[self._filter(events[0] if events else dp_event.NoOpDpEvent())],
            notes=(
                f"{self._cost(events):.6g} of the limit is charged; had all releases been fixed before the first result was "
                f"seen, they would be ({fixed:.6g}, {self.delta:g})-DP",
            ),
            assumptions=(
                "every release about these records was charged here",
                "each release meets the event it was charged with, by randomness that stays secret (no seed)",
            ),
        )

    def close(self) -> None:
        """Refuse all further charges through this object, whose past charges stay readable.

        A budget without a path ends for every copy in every process and its store is removed; one with a path can be opened
        again.
        """
        if self._final is not None:
            return
        with self._transaction() as connection:
            self._final = self._read(connection)
            if self._remove is not None:
                connection.execute("UPDATE budget SET closed = 1")
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> PrivacyBudget:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- copies are the same budget

    def __copy__(self) -> PrivacyBudget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyBudget:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        state = (
            self.epsilon,
            self.delta,
            self.adjacency.value,
            self.unit,
            self._path,
            self.identity,
            self.composition,
        )
        return _reattach, state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivacyBudget) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return (
            f"PrivacyBudget(epsilon={self.epsilon:g}, delta={self.delta:g}, adjacency={self.adjacency.value!r}, "
            f"unit={self.unit!r})"
        )


def _reattach(
    epsilon: float,
    delta: float,
    adjacency: str,
    unit: str,
    path: str,
    identity: str,
    composition: str,
) -> PrivacyBudget:
    """Return another handle on an existing budget, in whatever process this is; never a new one."""
    budget = PrivacyBudget.__new__(PrivacyBudget)
    budget.epsilon, budget.delta, budget.unit = epsilon, delta, unit
    budget.adjacency = Adjacency(adjacency)
    budget._path, budget.identity, budget.composition = path, identity, composition
    budget._remove, budget._final = None, None
    return budget


class _Keeper:
    """Lives as long as the process, so that temporary stores do too, even when the first handle is gone."""


_KEEPER = _Keeper()


def _remove_folder(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child that ends must not take its parent's store along
        shutil.rmtree(folder, ignore_errors=True)
