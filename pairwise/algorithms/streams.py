"""Streams of records with a private parameter after each, and private follow-the-regularised-leader on them.

The leader. Step t takes the mean gradient g_t of record t with all earlier ones, at a parameter that was released
before. A replaced record j changes it by at most c_j(t)·D: 1 at t = j, 1/(t − 1) later, nothing before. Given what was
released before, the parameters of these steps are fixed, so all releases together cost one Gaussian with the largest
root of their summed squared changes.

Sums of gradients are released through the square root of the summing matrix, which is Toeplitz with the coefficients r_k
= binom(2k, k)/4^k (Henzinger, Upadhyay, Upadhyay, "Almost Tight Error Bounds on Differentially Private Continual
Counting", 2023). Released is y_t = Σ_s r_(t−s) g_s + noise after each step; the prefix sum is Σ_s r_(t−s) y_s,
post-processing (Denisov, McMahan, Rush, Smith, Thakurta 2022, theorem 2.1, for streams that react). All r_k are
positive, so the worst record turns all its gradients one way and moves y by D·‖r * c_j‖. Counted from its own step on,
c_j falls in every place as j grows, and fewer steps are left: the record of the first active step is the worst. One from
before it has the same later entries without its first one.
"""

from __future__ import annotations

import math
import os
import threading
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.auto import radius_in_records
from pairwise.algorithms.coordinates import Ranking, around_origin
from pairwise.algorithms.options import Ftrl
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.errors import InvalidParameterError
from pairwise.noise.release import GaussianPlan, exact_gaussian
from pairwise.pairs.clipping import project_to_ball
from pairwise.pairs.losses import AUCPairs, PairBounds

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]

# Comparing every record with all earlier ones takes hours beyond this.
_LARGEST_HORIZON = 50_000
# Numbers that a stream keeps of its gradients: twice 0.8 GB.
_LARGEST_KEPT = 100_000_000
# Share of the horizon that only fills the history: without the first records, whose every pair weighs much, the sensitivity
# is smaller. The best of four shares on synthetic tables.
_BURN_IN = 0.2


def check_horizon(n: int) -> None:
    """Refuse a horizon with too few records, or with so many that comparing all of them takes hours."""
    if not 4 <= n <= _LARGEST_HORIZON:
        raise InvalidParameterError(
            f"every record is compared with all earlier ones; expected 4 <= n <= {_LARGEST_HORIZON}, found n_samples = {n}. "
            "Use algorithm='auto' for more."
        )


def mean_with_earlier(sums: AUCPairs, w: Array, t: int) -> Array:
    """Return the mean gradient over the t−1 pairs of record t (1-based, in slot order) with the earlier ones."""
    pairs = np.stack((np.full(t - 1, t - 1), np.arange(t - 1)), axis=1)
    return sums.over(w, pairs) / (t - 1)


@dataclass(frozen=True, kw_only=True)
class StreamPlan(FitPlan):
    """Noise of a stream, fixed before its first record. Its event is of the whole horizon."""

    bounds: PairBounds  # of a table of n records, the horizon
    radius: float

    @abstractmethod
    def open(self, randomness: Randomness) -> PairStream:
        """Return the stream, before its first record."""

    def opening(self) -> StreamOpening:
        """Return the plan of the same releases for records that come later."""
        return StreamOpening(
            stream=self,
            event=self.event,
            sensitivity=self.sensitivity,
            terms=self.terms,
            mechanism=self.mechanism,
            proof=self.proof,
        )

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Take a whole table as a stream, and return its last ranking."""
        stream = self.open(randomness)
        stream.receive(records)
        return stream.ranking


@dataclass(frozen=True, kw_only=True)
class StreamOpening(FitPlan):
    """A stream that is charged as a whole before its records are there."""

    stream: StreamPlan

    def run(self, records: None, randomness: Randomness) -> PairStream:
        """Return the stream, before its first record."""
        return self.stream.open(randomness)


class PairStream:
    """Records that arrive one at a time, and a private parameter after each.

    The object holds private records: only ``released`` may leave. It refuses to be pickled, and to go on in a forked
    process. Subclasses define ``_advance``.
    """

    def __init__(self, plan: StreamPlan) -> None:
        self.bounds = plan.bounds
        self._rows: list[Array] = []
        self._positive: list[np.bool_] = []
        self.released = np.zeros(plan.bounds.d)
        self.seen = 0
        self._whole = threading.Lock()
        self._process = os.getpid()

    @property
    def ranking(self) -> Ranking:
        """The ranking that was released last."""
        return Ranking(self.released, around_origin(self.bounds.d, self.bounds.data_norm))

    def _advance(self, sums: AUCPairs, t: int) -> None:
        """Take record t (1-based) and set ``released``."""
        raise NotImplementedError

    def receive(self, records: ClippedRecords) -> None:
        """Take records one at a time, in order."""
        if self._process != os.getpid():
            raise InvalidParameterError(
                "this is a copy of a stream in a forked process, and would release again what was charged once. "
                "Go on in the process that opened it."
            )
        after = self.seen + len(records.rows)
        if after > self.bounds.n:
            raise InvalidParameterError(
                f"the stream was planned for {self.bounds.n} records; found {after}. Set horizon to the largest number "
                "that may come: the noise depends on it."
            )
        # Held for ever where a batch is cut off: its records would be counted again with the batch that follows.
        if not self._whole.acquire(blocking=False):
            raise InvalidParameterError(
                "a batch of this stream was cut off, or is being taken elsewhere, and its records would count twice. Start "
                "again with a new estimator and a new budget."
            )
        self._rows.extend(records.rows)
        self._positive.extend(records.positive)
        pairs = AUCPairs(np.array(self._rows), np.array(self._positive), self.bounds.loss)
        while self.seen < after:
            self.seen += 1
            self._advance(pairs, self.seen)
        self._whole.release()

    def __reduce__(self) -> str:
        raise TypeError(
            "a stream holds raw records and cannot be pickled or copied. Keep what it released instead."
        )


def root_coefficients(n: int) -> Array:
    """Return r_k = binom(2k, k)/4^k for k < n, shape (n,): their convolution with themselves is 1, 1, 1, ..."""
    k = np.arange(1, n)
    return np.concatenate(([1.0], np.cumprod((2 * k - 1) / (2 * k))))


def root_sensitivity(n: int, first: int = 2) -> float:
    """Return max_j ‖r * c_j‖ over the active steps ``first``..n, in units of D; the record of step 1 has no pair there."""
    from scipy.signal import fftconvolve

    worst = 1.0 / np.arange(first - 1, n)
    worst[0] = 1.0
    moved = fftconvolve(root_coefficients(len(worst)), worst)[: len(worst)]
    # The transform is off by less than 1e-13 of the largest term at these lengths.
    return float(np.linalg.norm(moved)) * (1.0 + 1e-10)


@dataclass(frozen=True, kw_only=True)
class LeaderPlan(StreamPlan):
    """Noise of a stream's sums, with the sensitivity of all releases together."""

    first: int  # active step
    strength: float  # λ of the regulariser: w_t = Π[−S_t/λ]
    noise: GaussianPlan  # of one step, with the sensitivity and the cost of all releases together

    def open(self, randomness: Randomness) -> PairStream:
        """Return the stream, before its first record."""
        return _Leader(self, randomness)


def plan_ftrl(options: Ftrl, public: PublicTask) -> LeaderPlan:
    """Return the noise of the leader's stream."""
    mu, radius = public.left(), options.radius
    if radius is None and math.isfinite(mu):
        # In so small a ball the loss is nearly linear and its minimiser the difference of the class means, which is
        # what noisy sums of gradients can find. The best of four radii on synthetic tables.
        radius = 0.25 / public.data_norm
    bounds = PairBounds(public.n, public.d, options.loss, public.data_norm)
    return plan_leader(bounds, radius_in_records(radius, public), mu)


def plan_leader(bounds: PairBounds, radius: float, mu: float) -> LeaderPlan:
    """Fix the first step, the noise of a release and the regulariser from public numbers, at a cost of ``mu``.

    The grid is at most 2^-10 Δ/√(releases·p), so rounding in all releases together moves the stream by at most 2^-10 Δ
    more.
    """
    n, size = bounds.n, bounds.d
    check_horizon(n)
    if n * size > _LARGEST_KEPT:
        raise InvalidParameterError(
            f"the square root keeps all gradients, here {n} of {size} numbers each, more than {_LARGEST_KEPT:.0e} in all. "
            "Use a shorter horizon or fewer features."
        )
    first = max(2, int(_BURN_IN * n))
    releases = n - first + 1
    sensitivity = bounds.change * root_sensitivity(n, first)
    noise = GaussianPlan(sensitivity, 0.0, size)
    if math.isfinite(mu):
        sigma = sensitivity * (1.0 + 2.0**-10) / mu * (1.0 + 1e-12)
        once = exact_gaussian(sensitivity / math.sqrt(releases), sigma, size)
        noise = GaussianPlan(sensitivity, sigma, size, once.grid, mu * mu / 2.0)
    # The usual regulariser of the leader: the root of the summed squares of what is added, noise included.
    growth = float(np.sum(root_coefficients(releases) ** 2))
    spread = n * bounds.change**2 + size * noise.sigma**2 * growth
    return LeaderPlan(
        bounds=bounds,
        radius=radius,
        event=noise.event(),
        sensitivity=sensitivity,
        terms=n,
        mechanism=f"ftrl, square-root factorisation of gradients, first step {first}, horizon {n}",
        proof="square root of the summing matrix, head of pairwise.algorithms.streams",
        first=first,
        strength=math.sqrt(spread) / radius,
        noise=noise,
    )


class _Leader(PairStream):
    """The stream whose sums of gradients are released through the square root of the summing matrix."""

    def __init__(self, plan: LeaderPlan, randomness: Randomness) -> None:
        super().__init__(plan)
        self._plan, self._randomness = plan, randomness
        shape = (plan.bounds.n - plan.first + 1, plan.bounds.d)
        self._coefficients = root_coefficients(shape[0])[::-1]
        self._exact, self._terms, self._taken = np.zeros(shape), np.zeros(shape), 0

    def _advance(self, sums: AUCPairs, t: int) -> None:
        if t < self._plan.first:
            return
        # The gradient is taken at what was released, so its sums are all that touches the data.
        self._exact[self._taken] = mean_with_earlier(sums, self.released, t)
        weights = self._coefficients[-self._taken - 1 :]
        term = weights @ self._exact[: self._taken + 1]
        self._terms[self._taken] = self._plan.noise.release(term, self._randomness)
        self._taken += 1
        total = weights @ self._terms[: self._taken]
        self.released = project_to_ball(-total / self._plan.strength, self._plan.radius)
