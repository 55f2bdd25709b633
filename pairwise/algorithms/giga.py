"""Online and offline pairwise GIGA (HUAI) with certified sensitivities, and the published noise formulas.

Here live the step sizes, burn-ins, the recursion that bounds how far one record moves every iterate, the
offline average and the online stream. Pair gradients come from ``gradient``; thresholds and the scikit-learn
face from ``auc`` and ``metric``.

The recursion (mechanisms.md 5.2, errata H-1, H-2, H-9). Let one pair's gradient move by at most D when one of
its records is replaced (2G, or G for the AUC losses; see ``gradient``). With active steps w_t = Π[w_{t−1} −
η_t(∇L̂_t(w_{t−1}) + α(w_{t−1} − w₀))] a replaced record j moves w_j by at most η_j D, and from then on Δ_t <=
c_t Δ_{t−1} + η_t D/(t−1), c_t = max(|1 − η_t α|, |1 − η_t(α + L(t−2)/(t−1))|), capped at the diameter of the
domain. It needs a convex, L-smooth loss whose gradients are not clipped one by one.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose, gaussian_event
from pairwise.errors import InvalidParameterError
from pairwise.noise.lattice import lattice_gaussian_plan
from pairwise.noise.release import GaussianPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import Domain
    from pairwise.pairs.sums import AUCPairs, MetricPairs

__all__ = [
    "GigaSchedule",
    "GigaSensitivity",
    "OnlineGiga",
    "OnlinePlan",
    "PairStream",
    "certified_sensitivity",
    "check_horizon",
    "largest_horizon",
    "offline_giga",
    "plan_online",
    "published_burn_in",
    "published_offline_sigma",
    "published_online_sigma",
    "schedule",
    "sharp_burn_in",
]

Array = NDArray[np.float64]

# The recursion keeps one number per record and step; beyond this GIGA itself takes hours.
_LARGEST_HORIZON = 50_000


def published_burn_in(smoothness: float, alpha: float) -> int:
    """Return T₁ = max(⌈16L²/α²⌉, 7) (HUAI algorithm 1)."""
    return max(math.ceil(16.0 * smoothness**2 / alpha**2), 7)


def sharp_burn_in(smoothness: float, alpha: float) -> int:
    """Return max(⌈1 + L/α⌉, 7), from where the published step contracts (mechanisms.md H-1, H-2)."""
    return max(math.ceil(1.0 + smoothness / alpha), 7)


@dataclass(frozen=True)
class GigaSchedule:
    """Steps of a run on n records, public.

    Attributes
    ----------
    rates : (n + 1,) float64 array
        η_t at index t; 0 where step t is inactive (t = 0, 1 and the burn-in).
    alpha : float
        Strength of the regulariser α/2 ‖w − w₀‖².
    burn_in : int
        T₁; the active steps are max(T₁ + 1, 2)..n.
    """

    rates: Array
    alpha: float
    burn_in: int

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.rates) - 1

    @property
    def first(self) -> int:
        """The first active step."""
        return max(self.burn_in + 1, 2)

    @property
    def active(self) -> int:
        """Number of active steps."""
        return max(0, self.n - self.first + 1)


def largest_horizon(n: int) -> None:
    """Refuse a horizon at which comparing every record with all earlier ones takes hours."""
    if n > _LARGEST_HORIZON:
        raise InvalidParameterError(
            f"every record is compared with all earlier ones; expected n <= {_LARGEST_HORIZON}, found {n}. "
            "Use algorithm='gradient'."
        )


def check_horizon(records: int, horizon: int) -> None:
    """Refuse more records than a stream was planned for."""
    if records > horizon:
        raise InvalidParameterError(
            f"the stream was planned for {horizon} records; found {records}. Set horizon to the largest number that may "
            "come: the noise depends on it."
        )


def schedule(
    n: int,
    smoothness: float,
    alpha: float,
    *,
    kind: Literal["published", "recommended", "constant"] = "recommended",
    burn_in: int | None = None,
    rate: float | None = None,
) -> GigaSchedule:
    """Return a public schedule of steps.

    Parameters
    ----------
    n : int
        Number of records, or the horizon of a stream.
    smoothness : float
        L of the data part of the loss, regulariser excluded.
    alpha : float
        Regulariser, >= 0.
    kind : {"published", "recommended", "constant"}
        η_t = (t−1)/(t−2) · 2/(αt) (HUAI), min(2/(αt), 2/(L + 2α)), or ``rate`` <= 2/L (mechanisms.md 5.2).
    burn_in : int, optional
        T₁; default ``sharp_burn_in`` for the published rates, else 0.
    rate : float, optional
        For ``constant``.
    """
    if n < 4:
        raise InvalidParameterError(
            f"private pairwise learning needs at least 4 records; found n_samples = {n}. Collect more."
        )
    largest_horizon(n)
    t = np.arange(n + 1, dtype=np.float64)
    if kind == "constant":
        if rate is None or not 0 < rate <= 2.0 / smoothness:
            raise InvalidParameterError(
                f"expected a rate in (0, 2/L = {2.0 / smoothness:g}]; found {rate!r}."
            )
        rates = np.full(n + 1, float(rate))
        burn_in = 0 if burn_in is None else burn_in
    else:
        if alpha <= 0:
            raise InvalidParameterError(f"these rates need alpha > 0; found {alpha!r}.")
        if kind == "published":
            # The regulariser counts into the smoothness of the published lemma.
            burn_in = sharp_burn_in(smoothness + alpha, alpha) if burn_in is None else burn_in
            if burn_in < 2:
                raise InvalidParameterError(
                    "the published rate is infinite at t = 2; use burn_in >= 2."
                )
            safe = np.maximum(t, 3.0)
            rates = (safe - 1.0) / (safe - 2.0) * 2.0 / (alpha * safe)
        else:
            burn_in = 0 if burn_in is None else burn_in
            rates = np.minimum(2.0 / (alpha * np.maximum(t, 1.0)), 2.0 / (smoothness + 2.0 * alpha))
    rates[: min(max(burn_in + 1, 2), n + 1)] = 0.0
    return GigaSchedule(rates, float(alpha), int(burn_in))


@dataclass(frozen=True)
class GigaSensitivity:
    """Certified bounds on how far a replaced record moves the iterates.

    Attributes
    ----------
    per_step : (n + 1,) float64 array
        max_j Δ_t at index t.
    average : float
        max_j of the mean of Δ_t over the active steps.
    joint : float
        max_j √Σ_t (Δ_t/max_j Δ_t)²: the cost of releasing every iterate with noise in proportion to ``per_step``.
    """

    per_step: Array
    average: float
    joint: float


def _run_recursion(
    steps: GigaSchedule,
    pair_change: float,
    smoothness: float,
    diameter: float,
    visit: Callable[[int, Array], None],
) -> None:
    """Call ``visit(t, Δ)`` for every active t, Δ of shape (t,) over the records j = 1..t."""
    moved = np.zeros(steps.n)
    for t in range(steps.first, steps.n + 1):
        rate = float(steps.rates[t])
        contraction = max(
            abs(1.0 - rate * steps.alpha),
            abs(1.0 - rate * (steps.alpha + (t - 2) / (t - 1) * smoothness)),
        )
        old = moved[: t - 1]
        old *= contraction
        old += rate * pair_change / (t - 1)
        moved[t - 1] = rate * pair_change
        np.minimum(moved[:t], diameter, out=moved[:t])
        visit(t, moved[:t])


def certified_sensitivity(
    steps: GigaSchedule,
    pair_change: float,
    smoothness: float,
    diameter: float = math.inf,
    *,
    joint: bool = False,
) -> GigaSensitivity:
    """Run the recursion of mechanisms.md 5.2 for all records at once, O(n) numbers per step.

    Parameters
    ----------
    steps : GigaSchedule
    pair_change : float
        D: 2G in general, G for the AUC losses.
    smoothness : float
        L of the data part.
    diameter : float, default=inf
        Of the domain.
    joint : bool, default=False
        Also compute ``joint``, by a second pass.
    """
    per_step = np.zeros(steps.n + 1)
    total = np.zeros(steps.n)

    def sum_up(t: int, moved: Array) -> None:
        per_step[t] = moved.max()
        total[:t] += moved

    _run_recursion(steps, pair_change, smoothness, diameter, sum_up)
    squares = np.zeros(steps.n)
    if joint:

        def square(t: int, moved: Array) -> None:
            squares[:t] += (moved / per_step[t]) ** 2

        _run_recursion(steps, pair_change, smoothness, diameter, square)
    average = float(total.max()) / steps.active if steps.active else 0.0
    return GigaSensitivity(
        per_step, average, math.sqrt(float(squares.max())) if joint else math.nan
    )


# --------------------------------------------------------------------------------------------------------------------
# Published noise


def published_online_sigma(
    n: int, burn_in: int, G: float, alpha: float, rho: float, t: int
) -> float:
    """Return σ_t = √(32G²(n − T₁)/(α²t²ρ)) (HUAI algorithm 1, line 12)."""
    return math.sqrt(32.0 * G * G * (n - burn_in) / (alpha**2 * t**2 * rho))


def published_offline_sigma(n: int, G: float, alpha: float, epsilon: float, delta: float) -> float:
    """Return √(128G² ln²n ln(1.25/δ))/(αnε) (HUAI algorithm 3, line 9)."""
    return math.sqrt(128.0 * math.log(1.25 / delta)) * G * math.log(n) / (alpha * n * epsilon)


# --------------------------------------------------------------------------------------------------------------------
# Offline


def _random_point(domain: Domain, shape: tuple[int, ...], randomness: Randomness) -> Array:
    """Return a data-independent point of the domain, as the published burn-in draws them."""
    direction = randomness.normal(shape)
    if len(shape) == 2:
        direction = (direction + direction.T) / 2.0
    radius = domain.norm_bound * float(randomness.uniform())
    return np.asarray(domain.project(direction / np.linalg.norm(direction) * radius))


def _step(
    sums: AUCPairs | MetricPairs,
    w: Array,
    t: int,
    steps: GigaSchedule,
    anchor: Array,
    domain: Domain,
) -> Array:
    """Return w_t from w_{t−1} and the t−1 pairs of record t (1-based, in slot order) with the earlier ones."""
    gradient = PairStream.mean_with_earlier(sums, w, t) + steps.alpha * (w - anchor)
    return np.asarray(domain.project(w - steps.rates[t] * gradient))


def offline_giga(
    sums: AUCPairs | MetricPairs,
    steps: GigaSchedule,
    domain: Domain,
    anchor: Array,
    *,
    random_start: Randomness | None = None,
) -> Array:
    """Return the average iterate before noise.

    Parameters
    ----------
    sums : AUCPairs or MetricPairs (in M)
        Records in public slot order.
    steps : GigaSchedule
    domain : Domain
    anchor : array
        w₀, centre of the regulariser and starting point; independent of the data.
    random_start : Randomness, optional
        Given, the burn-in draws random points and the average includes them, as published (H-2); otherwise the burn-in
        stands still and the average is over the active iterates alone.
    """
    w = np.array(anchor, dtype=np.float64)
    total = np.zeros_like(w)
    if random_start is not None:
        for _ in range(min(steps.burn_in, steps.n)):
            w = _random_point(domain, anchor.shape, random_start)
            total += w
    for t in range(steps.first, steps.n + 1):
        w = _step(sums, w, t, steps, anchor, domain)
        total += w
    return total / (steps.n if random_start is not None else max(steps.active, 1))


# --------------------------------------------------------------------------------------------------------------------
# Online


@dataclass(frozen=True)
class OnlinePlan:
    """Noise of a stream, fixed before its first record.

    Attributes
    ----------
    steps : GigaSchedule
    sigmas : (n + 1,) float64 array
        σ_t at index t, 0 where nothing is released.
    sensitivities : (n + 1,) float64 array
        Certified max_j Δ_t.
    event : DpEvent
        The whole stream, all of the horizon.
    hardened : bool
        Exact noise on a grid at every step (mechanisms.md 2.2).
    """

    steps: GigaSchedule
    sigmas: Array
    sensitivities: Array
    event: DpEvent = field(repr=False)
    hardened: bool = False

    @property
    def vacuous(self) -> bool:
        """Whether nothing that depends on the records is released."""
        return self.steps.active == 0

    @property
    def sensitivity(self) -> float:
        """The largest certified movement of any iterate."""
        return float(self.sensitivities.max())

    @property
    def proof(self) -> str:
        """Where the proof of the noise stands."""
        return f"mechanisms.md 5.2 (certified recursion), {'2.2' if self.hardened else '1.2'}"

    @property
    def description(self) -> str:
        """What the statement says of the stream."""
        return (
            f"every iterate released, alpha = {self.steps.alpha:.3g}, burn-in {self.steps.burn_in}, "
            f"horizon {self.steps.n}"
        )

    def open(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
        *,
        random_start: bool = False,
    ) -> OnlineGiga:
        """Return the stream; ``random_start`` is the published burn-in."""
        return OnlineGiga(make_sums, self, domain, anchor, randomness, random_start=random_start)

    def noise(self, t: int, size: int) -> GaussianPlan:
        """Return the release of the iterate of step t, of ``size`` coordinates."""
        sensitivity, sigma = float(self.sensitivities[t]), float(self.sigmas[t])
        lattice = None
        if self.hardened and sigma > 0:
            lattice = lattice_gaussian_plan(sensitivity, size, sigma=sigma)
        return GaussianPlan(sensitivity, sigma, lattice)


def plan_online(
    steps: GigaSchedule,
    pair_change: float,
    smoothness: float,
    diameter: float,
    mu: float,
    *,
    hardened: bool = False,
) -> OnlinePlan:
    """Return σ_t = max_j Δ_t · c with the smallest c for which the whole stream is one Gaussian of ``mu``.

    The internal iterate is noiseless, so the stream is one Gaussian release of (w_t)_t; record j costs Σ_t (Δ_t/σ_t)²
    (mechanisms.md H-4, 1.2). This is the published shape with 8G/(αt) replaced by the certified bound.

    On the hardened path the grid of step t is at most 2^-10 Δ_t/√p, so rounding moves step t by at most 2^-10 Δ_t more. By
    the triangle inequality over steps the whole costs at most (joint + 2^-10 √active)/c, and ρ = ``mu``²/2 pays for that.
    """
    bound = certified_sensitivity(steps, pair_change, smoothness, diameter, joint=True)
    if not (hardened and math.isfinite(mu)):
        event = gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0)
        return OnlinePlan(steps, bound.per_step * (bound.joint / mu), bound.per_step, event)
    from dp_accounting import ZCDpEvent

    scale = (bound.joint + 2.0**-10 * math.sqrt(steps.active)) / mu * (1.0 + 1e-12)
    event = ZCDpEvent(mu * mu / 2.0)
    return OnlinePlan(steps, bound.per_step * scale, bound.per_step, event, hardened=True)


class PairStream:
    """Records that arrive one at a time, and a private parameter after each.

    The object holds the raw records: only ``released`` may leave. It refuses to be pickled. Subclasses say what a record
    does by ``_advance``.

    Parameters
    ----------
    make_sums : callable
        (X, y) → AUCPairs or MetricPairs over the records so far.
    n : int
        Horizon.
    anchor : array
        w₀, independent of the data.
    """

    def __init__(
        self, make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs], n: int, anchor: Array
    ) -> None:
        self._make_sums = make_sums
        self._horizon = n
        self._anchor = np.array(anchor, dtype=np.float64)
        self._X: list[Array] = []
        self._y: list[object] = []
        self.released = self._anchor.copy()
        self.seen = 0
        self._whole = threading.Lock()

    def _advance(self, sums: AUCPairs | MetricPairs, t: int) -> None:
        """Take record t (1-based) and set ``released``."""
        raise NotImplementedError

    def receive(self, X: Array, y: NDArray) -> list[Array]:
        """Take records one at a time, in order, and return what is released after each; shapes (m, d), (m,)."""
        check_horizon(self.seen + len(X), self._horizon)
        # Held for ever where a batch is cut off: its records would be counted again with the batch that follows.
        if not self._whole.acquire(blocking=False):
            raise InvalidParameterError(
                "a batch of this stream was cut off, or is being taken elsewhere, and its records would count twice. Start "
                "again with a new estimator and a new budget."
            )
        self._X.extend(np.asarray(X, dtype=np.float64))
        self._y.extend(y)
        sums = self.sums()
        out = []
        for _ in range(len(X)):
            self.seen += 1
            self._advance(sums, self.seen)
            out.append(self.released.copy())
        self._whole.release()
        return out

    def sums(self) -> AUCPairs | MetricPairs:
        """Return the pair sums over all records so far: raw data, for regret on request."""
        return self._make_sums(np.array(self._X), np.array(self._y))

    @staticmethod
    def mean_with_earlier(sums: AUCPairs | MetricPairs, w: Array, t: int) -> Array:
        """Return the mean gradient over the t−1 pairs of record t (1-based, in slot order) with the earlier ones."""
        pairs = np.stack((np.full(t - 1, t - 1), np.arange(t - 1)), axis=1)
        return sums.over(w, pairs) / (t - 1)

    def __reduce__(self) -> str:
        raise TypeError(
            "a stream holds raw records and cannot be pickled or copied. Keep what it released instead."
        )


class OnlineGiga(PairStream):
    """OnPairStrC, and OnPairC with a regulariser: one noiseless iterate inside, released with noise after each record.

    Parameters
    ----------
    make_sums : callable
        (X, y) → AUCPairs or MetricPairs over the records so far.
    plan : OnlinePlan
    domain : Domain
    anchor : array
    randomness : Randomness
    random_start : bool, default=False
        Draw a random point at every step of the burn-in, as published.
    """

    def __init__(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        plan: OnlinePlan,
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
        *,
        random_start: bool = False,
    ) -> None:
        super().__init__(make_sums, plan.steps.n, anchor)
        self.plan = plan
        self._domain = domain
        self._w = self._anchor.copy()
        self._randomness = randomness
        self._random_start = random_start

    def _advance(self, sums: AUCPairs | MetricPairs, t: int) -> None:
        steps = self.plan.steps
        if t >= steps.first:
            self._w = _step(sums, self._w, t, steps, self._anchor, self._domain)
            noisy = self.plan.noise(t, self._w.size).release(self._w, self._randomness)
            if noisy.ndim == 2:
                noisy = (noisy + noisy.T) / 2.0
            self.released = np.asarray(self._domain.project(noisy))
        elif self._random_start:
            self._w = _random_point(self._domain, self._anchor.shape, self._randomness)
            self.released = self._w.copy()


def published_online_event(n: int, burn_in: int, G: float, alpha: float, rho: float) -> DpEvent:
    """Return the published stream as an event: Gaussian steps with the lemma's sensitivities 8G/(αt)."""
    if burn_in >= n:
        return compose([])
    ratio = published_online_sigma(n, burn_in, G, alpha, rho, 1) / (8.0 * G / alpha)
    return gaussian_event(ratio, n - burn_in)
