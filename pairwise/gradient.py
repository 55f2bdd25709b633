"""The shared engine: noisy gradient descent on pairs, with sensitivities that hold for every pair of neighbouring tables.

Here live the sums of pair gradients (all pairs, a random matching, all pairs inside a secret sample), the plan
that fixes steps, rate and noise from public numbers alone, and the loop that draws the noise. Estimators,
thresholds and everything that users see live in ``auc`` and ``metric``; output perturbation lives in ``giga``
and ``sgd``.

Sensitivity (mechanisms.md 7.1). Replacing one of n records alters n − 1 of the n(n − 1)/2 pairs, or one pair of
a matching. If one pair's gradient moves by at most D, the mean moves by at most 2D/n, or D/⌊n/2⌋. D = 2G
always. For the AUC losses D = G: all gradients of a pair have the form a(x₋ − x₊) with 0 <= a <= G/(2R), so two
of them that share the record z differ by ‖a x − b x' − (a − b) z‖ <= (a + b + |a − b|)R = 2 max(a, b) R <= G
when the label stays, and one of the two is zero when it changes. This halves the noise of the general bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting import (
    Adjacency,
    calibrate,
    compose,
    gaussian_event,
    gaussian_mu,
    sampled_event,
)
from pairwise.errors import InvalidParameter
from pairwise.losses import PairLoss, get_loss
from pairwise.noise import gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.domains import Domain
    from pairwise.noise import Randomness

__all__ = [
    "AUCPairs",
    "Batching",
    "GradientPlan",
    "MetricPairs",
    "PairSums",
    "auc_hinge_counts",
    "auc_logistic_weights",
    "clip_records",
    "default_radius",
    "mean_gradient",
    "noisy_descent",
    "plan_gradient",
    "random_matching",
]

Array = NDArray[np.float64]
Batching = Literal["all-pairs", "matching", "sampled"]

# Clipping to C(1 − 1e-6) leaves room for the rounding of norms and sums, so that C bounds what is computed
# (mechanisms.md 2.3).
CLIP_SLACK = 1e-6

# Entries of one block of the pair matrix: 32 MiB of float64, whatever n is.
_BLOCK_ENTRIES = 1 << 22

# From here on a random matching per step replaces the full sum over pairs (mechanisms.md 7.1 for the logistic
# AUC; a sum over pairs of a metric costs n²d).
_MATCHING_FROM = {"auc": 10_000, "metric": 2_000}

# Squared distances come from inner products; below this share of the squared norms their relative error passes
# the clip slack.
_DISTANCE_FLOOR = 1e-8


def clip_records(X: Array, bound: float) -> Array:
    """Return every row scaled down, on its own, to Euclidean norm at most ``bound``.

    Parameters
    ----------
    X : (n, d) float64 array
    bound : float
        R > 0; infinity leaves the rows as they are.

    Returns
    -------
    (n, d) float64 array
        ``X`` itself where nothing had to be scaled.
    """
    if bound == math.inf:
        return X
    # A row near the largest float overflows when squared, unless its largest entry is divided out first.
    largest = np.abs(X).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    norms = safe * np.linalg.norm(X / safe[:, None], axis=1)
    limit = bound * (1.0 - CLIP_SLACK)
    long = norms > limit
    if not long.any():
        return X
    factor = np.divide(limit, norms, out=np.ones_like(norms), where=long)
    return np.asarray(X * factor[:, None])


def random_matching(n: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a uniformly random matching of the slots 0..n−1, shape (⌊n/2⌋, 2); independent of the data."""
    order = randomness.permutation(n)
    return order[: n - n % 2].reshape(-1, 2)


# --------------------------------------------------------------------------------------------------------------------
# Weights of the AUC losses: what each record's features are multiplied with


def auc_hinge_counts(positive: Array, negative: Array) -> tuple[Array, Array]:
    """Return how many opponents of each record are within the margin of 1, in O(n log n).

    Parameters
    ----------
    positive, negative : (n₊,) and (n₋,) float64 arrays
        Scores of the two classes.

    Returns
    -------
    (n₊,) and (n₋,) float64 arrays
        #{q : s_q > s_p − 1} and #{p : s_p − 1 < s_q}. Both compare with the *same* rounded s_p − 1, so they count the
        same pairs and the sum stays a subgradient (mechanisms.md 6.4).
    """
    shifted = positive - 1.0
    # One sort of all n numbers (by class), then searches for sorted numbers, which stay in the cache; nothing of size
    # n₊ × n₋ exists. Counting by value keeps equal scores independent of the rest of the table.
    by_shifted, by_negative = np.argsort(shifted), np.argsort(negative)
    passed = np.searchsorted(negative[by_negative], shifted[by_shifted], side="right")
    a, b = np.empty(len(shifted)), np.empty(len(negative))
    a[by_shifted] = len(negative) - passed
    # The k-th smallest negative is above exactly the positives that passed at most k negatives.
    b[by_negative] = np.cumsum(np.bincount(passed, minlength=len(negative)))[: len(negative)]
    return a, b


def auc_logistic_weights(positive: Array, negative: Array, cap: float = 2.0) -> tuple[Array, Array]:
    """Return row and column sums of min(cap, 2/(1 + e^(2(s_p − s_q)))) over all pairs of the two classes, in blocks.

    Parameters
    ----------
    positive, negative : (n₊,) and (n₋,) float64 arrays
        Scores.
    cap : float, default=2
        Largest weight of one pair; 2 is no cap. A cap of 1 makes the loss linear where the order is wrong,
        which keeps it convex and halves G.
    """
    a = np.zeros(len(positive))
    b = np.zeros(len(negative))
    if not len(positive) or not len(negative):
        return a, b
    step = max(1, _BLOCK_ENTRIES // len(negative))
    # e^(2(s − t)) is a product of n exponentials rather than n₊n₋ of them, as long as neither factor overflows.
    span = max(np.abs(positive).max(), np.abs(negative).max())
    factor = np.exp(-2.0 * negative) if span < 150.0 else None
    for start in range(0, len(positive), step):
        part = positive[start : start + step]
        if factor is not None:
            weights = np.multiply.outer(np.exp(2.0 * part), factor)
        else:
            with np.errstate(over="ignore"):
                weights = np.exp(2.0 * np.subtract.outer(part, negative))
        weights += 1.0
        np.divide(2.0, weights, out=weights)
        if cap < 2.0:
            np.minimum(weights, cap, out=weights)
        a[start : start + step] = weights.sum(axis=1)
        b += weights.sum(axis=0)
    return a, b


def default_radius(mu: float, n: int, dimension: int, data_norm: float = 1.0) -> float:
    """Return a radius of the parameter ball from public numbers: μn/(60√p), cut to 0.25..20, over the record norm.

    An AUC depends on the direction of w alone. In a small ball the loss is nearly linear, and its minimiser the
    difference of the class means, which is what little budget can find; a larger ball lets the loss bend the
    direction. The factor was chosen on synthetic tables.
    """
    if not math.isfinite(mu):
        return 20.0 / data_norm
    return min(20.0, max(0.25, mu * n / (60.0 * math.sqrt(dimension)))) / data_norm


class PairSums(Protocol):
    """The data side of the engine: sums of pair gradients and the public bounds that hold for any data."""

    n: int
    pair_bound: float
    pair_change: float

    def all_pairs(self, w: Array) -> Array:
        """Return Σ_{i<j} ∇ℓ_ij(w), shape of ``w``."""

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs, (m, 2) slots, shape of ``w``."""

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots, shape of ``w``."""


class AUCPairs:
    """Pair gradients of an AUC loss in w, shape (d,).

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to ``data_norm``.
    positive : (n,) bool array
    loss : PairLoss or str
        ``auc-logistic`` or ``auc-hinge``.
    data_norm : float
        R.
    clip : float, optional
        Bound on one pair's gradient norm, at most G; the weight of each pair is cut at clip/(2R). For both
        losses the cut loss is convex again, so output perturbation stays proved. Default: G of the loss.
    """

    def __init__(
        self,
        X: Array,
        positive: NDArray[np.bool_],
        loss: PairLoss | str = "auc-logistic",
        data_norm: float = 1.0,
        clip: float | None = None,
    ) -> None:
        self.loss = get_loss(loss, "auc")
        if self.loss.kind != "auc":
            raise InvalidParameter(
                f"expected an AUC loss; found {self.loss.name!r}. Use 'logistic' or 'hinge'."
            )
        self.hinge = self.loss.name == "auc-hinge"
        if not self.hinge and self.loss.name != "auc-logistic":
            raise InvalidParameter(
                f"no pair sums are known for the loss {self.loss.name!r}. Use 'logistic' or 'hinge'."
            )
        self.data_norm = float(data_norm)
        largest = self.loss.lipschitz(self.data_norm)
        if clip is not None and not 0 < clip <= largest * (1 + 1e-12):
            raise InvalidParameter(
                f"clip must be in (0, G] with G = {largest:g}; found {clip!r}. Leave it out for G."
            )
        self.pair_bound = largest if clip is None else min(float(clip), largest)
        self.pair_change = self.pair_bound
        self._cap = self.pair_bound / (2.0 * self.data_norm)
        clipped = clip_records(np.ascontiguousarray(X, dtype=np.float64), self.data_norm)
        self.n, self.dimension = clipped.shape
        # Slots keep their public order; the sums over all pairs use a copy sorted by class, so a step copies no
        # rows.
        self.X = clipped
        self.positive = np.asarray(positive, dtype=bool)
        self._classes = np.flatnonzero(self.positive), np.flatnonzero(~self.positive)

    def _weights(self, positive: Array, negative: Array) -> tuple[Array, Array]:
        if self.hinge:
            a, b = auc_hinge_counts(positive, negative)
            if self._cap < 1.0:
                a *= self._cap
                b *= self._cap
            return a, b
        return auc_logistic_weights(positive, negative, self._cap)

    def slope(self, margin: Array) -> Array:
        """Return the weight of single pairs, 0 <= weight <= clip/(2R), at score differences s₊ − s₋."""
        if self.hinge:
            return np.asarray((margin < 1.0) * min(self._cap, 1.0), dtype=np.float64)
        with np.errstate(over="ignore"):
            return np.asarray(
                np.minimum(self._cap, 2.0 / (1.0 + np.exp(2.0 * margin))), dtype=np.float64
            )

    def all_pairs(self, w: Array) -> Array:
        """Return the sum over all pairs: O(nd + n log n) for the hinge, n₊n₋ divisions for the logistic loss."""
        scores = self.X @ w
        positive, negative = self._classes
        a, b = self._weights(scores[positive], scores[negative])
        np.negative(a, out=a)
        scores[positive] = a
        scores[negative] = b
        return np.asarray(scores @ self.X)

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs; those of one class add nothing."""
        labels = self.positive[pairs]
        mixed = labels[:, 0] != labels[:, 1]
        flip = labels[mixed, 1]
        chosen = pairs[mixed]
        winner = np.where(flip, chosen[:, 1], chosen[:, 0])
        loser = np.where(flip, chosen[:, 0], chosen[:, 1])
        apart = self.X[winner] - self.X[loser]
        return np.asarray(-(self.slope(apart @ w) @ apart))

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots."""
        X, positive = self.X[slots], self.positive[slots]
        scores = X @ w
        a, b = self._weights(scores[positive], scores[~positive])
        coefficient = np.empty(len(slots))
        coefficient[positive] = -a
        coefficient[~positive] = b
        return np.asarray(coefficient @ X)


class MetricPairs:
    """Pair gradients of a metric loss, in M (shape (d, d)) or in a factor W with M = WᵀW (shape (k, d)).

    One pair with difference Δ and q = ΔᵀMΔ has the gradient ℓ'(q) ΔΔᵀ in M and 2ℓ'(q) (WΔ)Δᵀ in W. Sums over pairs are
    XᵀLX with L a Laplacian of pair weights, formed block by block.

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to ``data_norm``.
    labels : (n,) int array
        Classes; pairs of one class are similar.
    loss : PairLoss or str
        ``metric-logistic``, ``metric-hinge`` or ``contrastive`` (the last only in the factor).
    data_norm : float
        R.
    parameter : {"factor", "matrix"}
    clip : float, optional
        Bound on one pair's gradient norm. In M default 4R², which no pair exceeds; in W required, since the gradient is
        unbounded there.
    """

    def __init__(
        self,
        X: Array,
        labels: NDArray[np.int64],
        loss: PairLoss | str = "metric-logistic",
        data_norm: float = 1.0,
        parameter: Literal["factor", "matrix"] = "factor",
        clip: float | None = None,
    ) -> None:
        self.loss = get_loss(loss, "metric")
        if self.loss.kind != "metric":
            raise InvalidParameter(
                f"expected a metric loss; found {self.loss.name!r}. Use 'logistic', 'hinge' or 'contrastive'."
            )
        if parameter == "matrix" and not self.loss.convex:
            raise InvalidParameter(
                f"the loss {self.loss.name!r} is not convex in M, so it has no proof there. Use 'logistic' or 'hinge'."
            )
        if parameter == "factor" and clip is None:
            raise InvalidParameter(
                "gradients in a factor are unbounded; expected a public clip such as 1.0."
            )
        self.data_norm = float(data_norm)
        if parameter == "matrix":
            largest = self.loss.lipschitz(self.data_norm)
            if clip is not None and clip < largest * (1 - 1e-12):
                raise InvalidParameter(
                    f"in M gradients are bounded by G = {largest:g} without clipping, and clipping would destroy the "
                    f"monotonicity that the proofs use; found clip = {clip!r}. Leave it out."
                )
            self.pair_bound = largest
        else:
            assert clip is not None
            if not (math.isfinite(clip) and clip > 0):
                raise InvalidParameter(f"clip must be positive and finite; found {clip!r}.")
            self.pair_bound = float(clip)
        # A flipped label turns the whole gradient round, so two gradients may differ by twice their bound.
        self.pair_change = 2.0 * self.pair_bound
        self.parameter = parameter
        self.X = clip_records(np.ascontiguousarray(X, dtype=np.float64), self.data_norm)
        self.labels = np.asarray(labels)
        self.n, self.dimension = self.X.shape

    def _weights(self, q: Array, r: Array, scale: Array, similar: NDArray[np.bool_]) -> Array:
        """Return the weight of ΔΔᵀ per pair from q = ΔᵀMΔ, r = ‖Δ‖² and the size of what they were computed from."""
        sign = np.where(similar, 1.0, -1.0)
        slope = self.loss.derivative(q, sign).numpy()
        if self.parameter == "matrix":
            return np.asarray(slope)
        slope = 2.0 * slope
        norm = np.abs(slope) * np.sqrt(q * r)
        limit = self.pair_bound * (1.0 - CLIP_SLACK)
        weights = slope * np.divide(limit, norm, out=np.ones_like(norm), where=norm > limit)
        # Differences lost in rounding have no direction: they are given no gradient, whatever the neighbours
        # are.
        return np.where(q > _DISTANCE_FLOOR * scale, weights, 0.0)

    def _laplacian(self, w: Array, X: Array, labels: NDArray[np.int64]) -> Array:
        """Return Σ_{i<j} weight_ij ΔΔᵀ over all pairs of the rows given, shape (d, d)."""
        n, d = X.shape
        total = np.zeros((d, d))
        Z = X @ w.T
        other = X if self.parameter == "matrix" else Z
        left = np.einsum("ij,ij->i", other, Z)
        plain = np.einsum("ij,ij->i", X, X)
        step = max(1, _BLOCK_ENTRIES // (4 * max(n, 1)))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            scale = left[rows, None] + left[None, :]
            q = scale - 2.0 * (other[rows] @ Z.T)
            r = np.maximum(plain[rows, None] + plain[None, :] - 2.0 * (X[rows] @ X.T), 0.0)
            if self.parameter == "factor":
                q = np.maximum(q, 0.0)
            C = self._weights(q, r, scale, labels[rows, None] == labels[None, :])
            own = np.arange(rows.start, rows.stop)
            C[own - start, own] = 0.0
            total += X[rows].T @ (C.sum(axis=1)[:, None] * X[rows] - C @ X)
        # Ordered pairs give Σ c x_i(x_i − x_j)ᵀ, whose symmetric part is the sum over unordered pairs.
        return (total + total.T) / 2.0

    def _finish(self, w: Array, S: Array) -> Array:
        return S if self.parameter == "matrix" else np.asarray(w @ S)

    def all_pairs(self, w: Array) -> Array:
        """Return the sum over all pairs, O(n²d) in blocks."""
        return self._finish(w, self._laplacian(w, self.X, self.labels))

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs."""
        apart = self.X[pairs[:, 0]] - self.X[pairs[:, 1]]
        similar = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
        image = apart @ w.T
        q = np.einsum("ij,ij->i", apart if self.parameter == "matrix" else image, image)
        r = np.einsum("ij,ij->i", apart, apart)
        weights = self._weights(q, r, q, similar)
        return self._finish(w, (weights[:, None] * apart).T @ apart)

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots."""
        return self._finish(w, self._laplacian(w, self.X[slots], self.labels[slots]))


# --------------------------------------------------------------------------------------------------------------------
# The plan and the loop


@dataclass(frozen=True)
class GradientPlan:
    """Everything that the loop needs besides the data; made of public numbers alone.

    Attributes
    ----------
    n : int
        Number of records.
    shape : tuple of int
        Shape of the parameter.
    batching : {"all-pairs", "matching", "sampled"}
    batch : int
        Records per step: n, or the size of the secret sample.
    steps : int
        T.
    rate : float
        η.
    sensitivity : float
        l2 sensitivity Δ of one mean gradient, replace-one (on the sample, where sampled).
    sigma : float
        Noise standard deviation per coordinate and step; 0 for the non-private reference.
    event : DpEvent
        The whole run.
    """

    n: int
    shape: tuple[int, ...]
    batching: Batching
    batch: int
    steps: int
    rate: float
    sensitivity: float
    sigma: float
    event: DpEvent


def _mean_sensitivity(pair_change: float, records: int, batching: Batching) -> float:
    if batching == "matching":
        return pair_change / (records // 2)
    return 2.0 * pair_change / records


def plan_gradient(
    sums: PairSums,
    shape: tuple[int, ...],
    epsilon: float,
    delta: float,
    *,
    travel: float,
    share: float = 1.0,
    batching: Batching | Literal["auto"] = "auto",
    batch_size: int | None = None,
    steps: int | None = None,
    rate: float | None = None,
    other: DpEvent | None = None,
) -> GradientPlan:
    """Fix steps, rate and noise by the rules of mechanisms.md 7.1.

    Parameters
    ----------
    sums : PairSums
        Only its public bounds and n are read.
    shape : tuple of int
        Shape of the parameter; p is its size.
    epsilon, delta : float
        Target for the run together with ``other``.
    travel : float
        D of the rate rule η = D/√(T(G² + pσ²)).
    share : float, default=1
        Share of μ² left for this run (unsampled runs), the rest being spent by ``other``.
    batching : str, default="auto"
        ``auto``: all pairs, or matchings above 10,000 records (logistic AUC) or 2,000 (metrics).
    batch_size : int, optional
        Size of the secret sample; implies ``sampled``.
    steps : int, optional
        T; default G²μ²/(pΔ²), where noise and signal balance, cut to 10..200 (200 for secret samples).
    rate : float, optional
        η.
    other : DpEvent, optional
        Whatever else the budget pays for; composed exactly.
    """
    n, p = sums.n, int(np.prod(shape))
    if n < 4:
        raise InvalidParameter(
            f"private pairwise learning needs at least 4 records; found n_samples = {n}. Collect more."
        )
    if batch_size is not None:
        if not (2 <= batch_size <= n):
            raise InvalidParameter(f"batch_size must be in 2..n = {n}; found {batch_size!r}.")
        batching = "sampled"
    if batching == "sampled" and batch_size is None:
        raise InvalidParameter("sampled batches need batch_size; found None.")
    if batching == "auto":
        kind = "metric" if isinstance(sums, MetricPairs) else "auc"
        cheap = isinstance(sums, AUCPairs) and sums.hinge
        batching = "matching" if n > _MATCHING_FROM[kind] and not cheap else "all-pairs"
    if batching not in ("all-pairs", "matching", "sampled"):
        raise InvalidParameter(
            f"batching must be 'auto', 'all-pairs', 'matching' or 'sampled'; found {batching!r}."
        )
    batch = int(batch_size) if batching == "sampled" and batch_size is not None else n
    sensitivity = _mean_sensitivity(sums.pair_change, batch, batching)
    mu = gaussian_mu(epsilon, delta) * math.sqrt(share) if math.isfinite(epsilon) else math.inf
    if steps is None:
        balance = (sums.pair_bound * mu / sensitivity) ** 2 / p
        steps = 200 if batching == "sampled" else int(min(200.0, max(10.0, balance)))
    if steps < 1:
        raise InvalidParameter(f"steps must be at least 1; found {steps!r}.")
    if batching == "sampled" and math.isfinite(mu):
        extra = [other] if other is not None else []
        ratio = calibrate(
            lambda z: compose([sampled_event(z, n, batch, steps), *extra]),
            epsilon,
            delta,
            Adjacency.REPLACE_ONE,
        )
        sigma, event = ratio * sensitivity, sampled_event(ratio, n, batch, steps)
    else:
        ratio = math.sqrt(steps) / mu
        sigma, event = ratio * sensitivity, gaussian_event(ratio, steps)
    if rate is None:
        rate = travel / math.sqrt(steps * (sums.pair_bound**2 + p * sigma**2))
    return GradientPlan(
        n, tuple(shape), batching, batch, int(steps), float(rate), sensitivity, sigma, event
    )


def mean_gradient(sums: PairSums, w: Array, plan: GradientPlan, randomness: Randomness) -> Array:
    """Return the mean pair gradient of one step, before noise; its sensitivity is ``plan.sensitivity``."""
    if plan.batching == "matching":
        return sums.over(w, random_matching(plan.n, randomness)) / (plan.n // 2)
    if plan.batching == "sampled" and plan.batch < plan.n:
        slots = randomness.permutation(plan.n)[: plan.batch]
        return sums.within(w, slots) / (plan.batch * (plan.batch - 1) / 2)
    # The public number of all pairs, not n₊n₋: class counts are private (mechanisms.md 7.1).
    return sums.all_pairs(w) / (plan.n * (plan.n - 1) / 2)


def noisy_descent(
    sums: PairSums,
    plan: GradientPlan,
    domain: Domain,
    start: Array,
    randomness: Randomness,
    *,
    alpha: float = 0.0,
    discard: float = 0.0,
    keep: list[Any] | None = None,
) -> Array:
    """Run the plan: w ← Π[w − η(g + α(w − w₀) + N(0, σ²I))], and return the mean of the iterates.

    Every iterate is covered by ``plan.event``; which of them are averaged is post-processing.

    Parameters
    ----------
    sums : PairSums
    plan : GradientPlan
    domain : Domain
        Π.
    start : array of ``plan.shape``
        w₀, independent of the data.
    randomness : Randomness
        Of matchings, samples and noise.
    alpha : float, default=0
        Regulariser; it does not depend on the data and costs nothing.
    discard : float, default=0
        Share of the steps whose iterates are left out of the mean.
    keep : list, optional
        Receives a copy of every iterate, for tests and plots.
    """
    if start.shape != plan.shape:
        raise InvalidParameter(f"the start has shape {start.shape}; the plan is for {plan.shape}.")
    w = np.array(start, dtype=np.float64)
    total = np.zeros_like(w)
    first = min(int(discard * plan.steps), plan.steps - 1)
    symmetric = isinstance(sums, MetricPairs) and sums.parameter == "matrix"
    for step in range(plan.steps):
        gradient = mean_gradient(sums, w, plan, randomness)
        if plan.sigma > 0:
            gradient = gaussian(gradient, plan.sigma, randomness)
            if symmetric:
                # Symmetrising after a full Gaussian matrix is post-processing and halves the dimensions
                # (mechanisms.md 5.2).
                gradient = (gradient + gradient.T) / 2.0
        w = domain.project(w - plan.rate * (gradient + alpha * (w - start)))
        if step >= first:
            total += w
        if keep is not None:
            keep.append(w.copy())
    return total / (plan.steps - first)
