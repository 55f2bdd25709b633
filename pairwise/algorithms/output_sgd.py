"""The learner ``SGDOutput`` (YANG): blocked pairwise SGD whose output alone gets noise, fitted to the sequence drawn.

Let step t average gradients over pairs of which a fraction Y_t involves record j, and let one pair's gradient move by at
most D when a record is replaced. Monotonicity of a convex loss gives u_{t+1} <= √(u_t² + 1) + Y_t for Δ_t = ηD u_t,
hence Δ_{t+1} <= ηD(√t + Σ_{l<=t} Y_l), by induction, since (√t + S)² + 1 <= (√(t + 1) + S)². For L-smooth losses and η
<= 2/L the unaffected part does not expand and √t falls away. The index sequence does not depend on the data, so the
noise may be fitted to the sequence that was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.auto import radius_in_records
from pairwise.algorithms.coordinates import Ranking, around_origin
from pairwise.algorithms.options import SGDOutput
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.errors import InvalidParameterError
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import project_to_ball
from pairwise.pairs.losses import AUCPairs, PairBounds, hinge_counts, slope

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# SGD compares every record of a block with all earlier ones; only the hinge has a way round that.
_LARGEST_COMPARED = 20_000


@dataclass(frozen=True, kw_only=True)
class SGDOutputPlan(FitPlan):
    """Steps on public blocks, with noise on their average alone."""

    loss: str
    blocks: list[Indices]
    rate: float
    radius: float
    data_norm: float
    noise: GaussianPlan

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the noisy average of all steps as a ranking."""
        pairs = AUCPairs(records.rows, records.positive, self.loss)
        average = blocked_sgd(pairs, self.blocks, self.rate, self.radius)
        w = project_to_ball(self.noise.release(average, randomness), self.radius)
        return Ranking(w, around_origin(pairs.dimension, self.data_norm))


def plan_sgd_output(options: SGDOutput, public: PublicTask) -> SGDOutputPlan:
    """Return the plan of the average of all steps, with noise on it alone."""
    n, d, mu = public.n, public.d, public.left()
    bounds = PairBounds(n, d, options.loss, public.data_norm)
    smooth = math.isfinite(bounds.smoothness)
    if n > _LARGEST_COMPARED and smooth:
        raise InvalidParameterError(
            f"sgd-output compares all pairs with this loss; expected n <= {_LARGEST_COMPARED}, found {n}. "
            "Use algorithm='auto', or loss='hinge', which needs one sort a step."
        )
    # Smooth losses do not expand, so few steps suffice; the hinge needs many small ones (its √t term).
    block, passes = max(1, n // 10), 10 if smooth else 100
    if options.steps is not None:
        passes = max(1, round(options.steps * block / n))
    blocks = shuffled_blocks(n, passes, block, public.shuffle)
    T = len(blocks)
    radius = radius_in_records(options.radius, public)
    # The sum of all steps, public: a mean gradient that never turned would carry w that far.
    rate = 20.0 * radius / bounds.change / T
    if smooth:
        rate = min(rate, 2.0 / bounds.smoothness)  # a longer step would expand
    moved = average_sensitivity(involvement(blocks, n), T, rate, bounds.change, smooth=smooth)
    noise = plan_gaussian(min(moved, 2.0 * radius), mu, d)
    return SGDOutputPlan(
        loss=options.loss,
        blocks=blocks,
        rate=rate,
        radius=radius,
        data_norm=public.data_norm,
        noise=noise,
        event=noise.event(),
        sensitivity=noise.sensitivity,
        terms=n,
        mechanism=(
            f"blocked pairwise SGD with output perturbation ({options.loss}, {passes} shuffled passes, {T} steps)"
        ),
        proof="head of pairwise.algorithms.output_sgd, for the sequence that was drawn",
    )


def shuffled_blocks(
    n: int, passes: int, block: int, shuffle: Callable[[int], Indices]
) -> list[Indices]:
    """Return public blocks of at most ``block`` indices cut from shuffled passes; every record appears ``passes`` times.

    Step l pairs block l + 1 with every index of the blocks up to l. The first block only fills the history, so T blocks
    give T − 1 updates and T iterates to average.
    """
    order = np.concatenate([shuffle(n) for _ in range(passes)])
    return [order[start : start + block] for start in range(0, len(order), block)]


def involvement(blocks: list[Indices], n: int) -> float:
    """Return max_j Σ_l (T − l)Y_l for blocked steps.

    Of the |B|·m pairs of block B with a history of m indices, record j is in at most the share f/|B| + c/m, f and c its
    uses in the block and in the history.
    """
    T = len(blocks)
    weighted, history = np.zeros(n), np.zeros(n)
    seen = 0
    for step in range(1, T):
        history += np.bincount(blocks[step - 1], minlength=n)
        seen += len(blocks[step - 1])
        uses = np.bincount(blocks[step], minlength=n) / len(blocks[step])
        weighted += (T - step) * np.minimum(1.0, uses + history / seen)
    return float(weighted.max())


def average_sensitivity(
    involved: float, steps: int, rate: float, pair_change: float, *, smooth: bool
) -> float:
    """Return (ηD/T)[Σ_{t<T} √t + max_j Σ_l (T − l)Y_l], the √t only for losses that are not smooth.

    ``involved`` is the second sum.
    """
    expansion = 0.0 if smooth else float(np.sqrt(np.arange(1.0, steps)).sum())
    return rate * pair_change / steps * (expansion + involved)


def _block_gradient(sums: AUCPairs, w: Array, block: Indices, history: Array) -> Array:
    """Return the mean gradient of block × history, O(nd + n log n) for the hinge, O(|B|n) for the logistic loss.

    ``history`` holds multiplicities, shape (n,).
    """
    new = np.bincount(block, minlength=sums.n).astype(np.float64)
    scores = sums.X @ w
    coefficient = np.zeros(sums.n)
    # Each ordered combination once: new positives with old negatives, then old positives with new negatives.
    for left, right in ((new, history), (history, new)):
        p = np.flatnonzero(sums.positive & (left > 0))
        q = np.flatnonzero(~sums.positive & (right > 0))
        if sums.loss == "hinge":
            a, b = hinge_counts(scores[p], scores[q], left[p], right[q])
        else:
            weights = slope(sums.loss, np.subtract.outer(scores[p], scores[q]))
            a, b = weights @ right[q], left[p] @ weights
        coefficient[p] -= left[p] * a
        coefficient[q] += right[q] * b
    return np.asarray(coefficient @ sums.X / (len(block) * history.sum()))


def blocked_sgd(sums: AUCPairs, blocks: list[Indices], rate: float, radius: float) -> Array:
    """Return the average w̄_T of algorithm 2 on blocks from w = 0, before noise; η = ``rate`` is constant."""
    w = np.zeros(sums.dimension)
    total = w.copy()
    history = np.zeros(sums.n)
    for step in range(1, len(blocks)):
        history += np.bincount(blocks[step - 1], minlength=sums.n)
        w = project_to_ball(w - rate * _block_gradient(sums, w, blocks[step], history), radius)
        total += w
    return np.asarray(total / len(blocks))
