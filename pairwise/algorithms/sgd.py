"""Pairwise SGD with output perturbation (YANG): realised-sequence sensitivity, shuffled passes, blocked steps.

Here live the index sequences, the certified sensitivity of the average for the sequence that was drawn, the run
itself and the published noise of eq. 5. Pair gradients come from ``gradient``.

Sensitivity (mechanisms.md 6.3). Let step t average gradients over pairs of which a fraction Y_t involves record
j, and let one pair's gradient move by at most D when a record is replaced (2G; G for the AUC losses, whose two
gradients at one pair also differ by at most G). Monotonicity of a convex loss gives u_{t+1} <= √(u_t² + 1) +
Y_t for Δ_t = ηD u_t, hence Δ_{t+1} <= ηD(√t + Σ_{l<=t} Y_l); for L-smooth losses and η <= 2/L the unaffected
part does not expand and √t falls away. The index sequence does not depend on the data, so the noise may be
fitted to the sequence that was drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import Domain
    from pairwise.pairs.sums import AUCPairs, MetricPairs

__all__ = [
    "BlockSequence",
    "average_sensitivity",
    "block_weights",
    "blocked_sgd",
    "history_weights",
    "published_sigma",
    "realised_sensitivity",
    "shuffled_blocks",
    "shuffled_indices",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def published_sigma(
    n: int, steps: int, rate: float, G: float, epsilon: float, delta: float
) -> float:
    """Return σ of eq. 5: √(8η²G² ln(2.5/δ)/ε² · (T + 3T² ln²(eT) ln²(2/δ)/n²))."""
    T = float(steps)
    growth = T + 3.0 * T**2 * (1.0 + math.log(T)) ** 2 * math.log(2.0 / delta) ** 2 / n**2
    return rate * G * math.sqrt(8.0 * math.log(2.5 / delta) * growth) / epsilon


def history_weights(steps: int) -> Array:
    """Return a_1..a_T: what one use of a record as i_k adds to Σ_l (T − l)Y_l in algorithm 2, shape (T,).

    a_k = 1[k >= 2](T − k + 1) + T(H_{T−1} − H_{k−1}) − (T − k), H the harmonic numbers (mechanisms.md 6.3).
    """
    T = int(steps)
    k = np.arange(1, T + 1, dtype=np.float64)
    harmonic = np.concatenate(([0.0], np.cumsum(1.0 / k)))
    own = np.where(k >= 2, T - k + 1.0, 0.0)
    return own + T * (harmonic[T - 1] - harmonic[:T]) - (T - k)


def realised_sensitivity(
    indices: Indices, n: int, rate: float, pair_change: float, *, smooth: bool = False
) -> float:
    """Return the sensitivity of the average of algorithm 2 for the indices i_1..i_T that were drawn, O(T).

    Parameters
    ----------
    indices : (T,) int array
        0-based slots; i_{T+1} only affects w_{T+1}, which is not averaged.
    n : int
    rate : float
        η.
    pair_change : float
        D (2G as published).
    smooth : bool, default=False
        The loss is L-smooth and η <= 2/L.
    """
    T = len(indices)
    involved = np.bincount(indices, weights=history_weights(T), minlength=n)
    return average_sensitivity(float(involved.max()), T, rate, pair_change, smooth=smooth)


def average_sensitivity(
    involved: float, steps: int, rate: float, pair_change: float, *, smooth: bool = False
) -> float:
    """Return (ηD/T)[Σ_{t<T} √t + max_j Σ_l (T − l)Y_l], the √t only for losses that are not smooth.

    ``involved`` is the second sum, maximised over records.
    """
    expansion = 0.0 if smooth else float(np.sqrt(np.arange(1.0, steps)).sum())
    return rate * pair_change / steps * (expansion + involved)


# --------------------------------------------------------------------------------------------------------------------
# Sequences


def shuffled_indices(n: int, steps: int, randomness: Randomness) -> Indices:
    """Return T indices from independent random orders of 0..n−1, one pass after another, shape (T,)."""
    passes = [randomness.permutation(n) for _ in range(-(-steps // n))]
    return np.concatenate(passes)[:steps]


@dataclass(frozen=True)
class BlockSequence:
    """Blocks of new indices; step l pairs block l + 1 with every index of the blocks up to l.

    Attributes
    ----------
    n : int
    blocks : tuple of int arrays
        The first block only fills the history, so T blocks give T − 1 updates and T iterates to average.
    """

    n: int
    blocks: tuple[Indices, ...]

    @property
    def steps(self) -> int:
        """T, the number of iterates that are averaged."""
        return len(self.blocks)


def shuffled_blocks(n: int, passes: int, block: int, randomness: Randomness) -> BlockSequence:
    """Return blocks of at most ``block`` indices cut from shuffled passes; every record appears ``passes`` times."""
    if not 1 <= block <= n:
        raise InvalidParameterError(f"block must be in 1..n = {n}; found {block!r}.")
    if passes < 1:
        raise InvalidParameterError(f"passes must be at least 1; found {passes!r}.")
    order = np.concatenate([randomness.permutation(n) for _ in range(passes)])
    return BlockSequence(
        n, tuple(order[start : start + block] for start in range(0, len(order), block))
    )


def block_weights(sequence: BlockSequence) -> tuple[Array, Array]:
    """Return Σ_l (T − l)Y_l and Σ_l Y_l of every record, shapes (n,), for blocked steps.

    Of the |B|·m pairs of block B with a history of m indices, record j is in at most the share f/|B| + c/m, f and c its
    uses in the block and in the history.
    """
    T, n = sequence.steps, sequence.n
    weighted, plain = np.zeros(n), np.zeros(n)
    history = np.zeros(n)
    seen = 0
    for step in range(1, T):
        history += np.bincount(sequence.blocks[step - 1], minlength=n)
        seen += len(sequence.blocks[step - 1])
        block = sequence.blocks[step]
        share = np.minimum(1.0, np.bincount(block, minlength=n) / len(block) + history / seen)
        weighted += (T - step) * share
        plain += share
    return weighted, plain


# --------------------------------------------------------------------------------------------------------------------
# The run


def _auc_block(sums: AUCPairs, w: Array, block: Indices, history: Array, seen: float) -> Array:
    """Return the mean AUC gradient of block × history, O(nd + n log n) for the hinge, O(|B|n) for the logistic loss.

    ``history`` holds multiplicities, shape (n,).
    """
    new = np.bincount(block, minlength=sums.n).astype(np.float64)
    scores = sums.X @ w
    coefficient = np.zeros(sums.n)
    positive, negative = np.flatnonzero(sums.positive), np.flatnonzero(~sums.positive)
    # Each ordered combination once: new positives with old negatives, then old positives with new negatives.
    for left, right in ((new, history), (history, new)):
        p = positive[left[positive] > 0]
        q = negative[right[negative] > 0]
        if not len(p) or not len(q):
            continue
        if sums.hinge:
            shifted = scores[p] - 1.0
            by_negative, by_shifted = np.argsort(scores[q]), np.argsort(shifted)
            below = np.concatenate(([0.0], np.cumsum(right[q][by_negative])))
            passed = np.concatenate(([0.0], np.cumsum(left[p][by_shifted])))
            a = below[-1] - below[np.searchsorted(scores[q][by_negative], shifted, side="right")]
            b = passed[np.searchsorted(shifted[by_shifted], scores[q], side="left")]
            a, b = a * float(sums.slope(np.array(0.0))), b * float(sums.slope(np.array(0.0)))
        else:
            slope = sums.slope(np.subtract.outer(scores[p], scores[q]))
            a, b = slope @ right[q], left[p] @ slope
        coefficient[p] -= left[p] * a
        coefficient[q] += right[q] * b
    return np.asarray(coefficient @ sums.X / (len(block) * seen))


def _metric_block(
    sums: MetricPairs, w: Array, block: Indices, history: Array, seen: float
) -> Array:
    """Return the mean metric gradient in M of block × history, O(|B|n(d + d²/…)) in one pass over block rows."""
    used = np.flatnonzero(history)
    total = np.zeros_like(w)
    for i in block:
        apart = sums.X[used] - sums.X[i]
        image = apart @ w
        q = np.einsum("ij,ij->i", apart, image)
        sign = np.where(sums.labels[used] == sums.labels[i], 1.0, -1.0)
        slope = sums.loss.derivative(q, sign).numpy() * history[used]
        total += (slope[:, None] * apart).T @ apart
    return total / (len(block) * seen)


def blocked_sgd(
    sums: AUCPairs | MetricPairs,
    sequence: BlockSequence,
    rate: float,
    domain: Domain,
    start: Array,
    *,
    keep: list[Array] | None = None,
) -> Array:
    """Return the average w̄_T of algorithm 2 on blocks, before noise.

    With blocks of one index this is algorithm 2 itself, on the multiset of the indices seen.

    Parameters
    ----------
    sums : AUCPairs or MetricPairs (in M)
    sequence : BlockSequence
    rate : float
        η, constant: the proof of the sensitivity needs that.
    domain : Domain
    start : array
        w₁, independent of the data.
    keep : list, optional
        Receives a copy of every iterate.
    """
    from pairwise.pairs.sums import AUCPairs

    w = np.array(start, dtype=np.float64)
    total = w.copy()
    history = np.zeros(sums.n)
    seen = 0.0
    for step in range(1, sequence.steps):
        history += np.bincount(sequence.blocks[step - 1], minlength=sums.n)
        seen += len(sequence.blocks[step - 1])
        block = sequence.blocks[step]
        if isinstance(sums, AUCPairs):
            gradient = _auc_block(sums, w, block, history, seen)
        else:
            gradient = _metric_block(sums, w, block, history, seen)
        w = np.asarray(domain.project(w - rate * gradient))
        total += w
        if keep is not None:
            keep.append(w.copy())
    return total / sequence.steps
