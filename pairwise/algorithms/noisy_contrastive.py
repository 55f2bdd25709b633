"""Gradients, joint clipping and post-processing of private contrastive metric learning.

The gradient of one pair with difference Δ is c (WΔ)Δᵀ (Li, Pan, Sui, Tsang, eq. 8). It has rank one, so its norms are
products of the norms of two vectors, and a sum of clipped gradients is two matrix products. Pairs are stored once:
``points`` (n, d) and ``index`` (m, 2) into them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.clipping import CLIP_SLACK, lengths

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

# Sums run over blocks: one after another inside a block, then over blocks. Worst-case rounding is m · _BLOCK · 2^-53 ·
# C, which the slack above covers up to about a million pairs.
_BLOCK = 8192

# A factor on the size of simulated noise: one draw of the largest singular value of pure noise varies by a few percent.
_NOISE_MARGIN = 1.1

_STEPS = 10
# Norm to which the gradient of a pair is clipped, over data_norm²: it binds for most pairs, so each counts by its direction.
_CLIP = 0.1
# Factor on the noisy mean gradient, in units of the clip and divided by the root of the steps.
_RATE = 60.0


@dataclass(frozen=True)
class ContrastivePlan:
    """Descent on a list of pairs of which ``kappa`` may change together, from public numbers."""

    rows: int  # of W
    margin: float  # of the contrastive loss
    clip: float  # of the gradient of one pair
    step: float  # factor on a sum of gradients
    steps: int
    noise: GaussianPlan  # of the sum of one step


def plan_contrastive(
    m: int, d: int, rows: int, *, mu: float, data_norm: float, kappa: int, in_place: bool
) -> ContrastivePlan:
    """Return the plan for ``m`` pairs of records with ``d`` features at a cost of ``mu``.

    kappa clipped gradients move the sum by at most kappa times the clip, twice that where pairs change in place.
    """
    clip = _CLIP * data_norm * data_norm
    moved = (2.0 if in_place else 1.0) * kappa * clip
    noise = plan_gaussian(moved, mu / math.sqrt(_STEPS), rows * d)
    step = _RATE / math.sqrt(_STEPS) / (m * clip)
    return ContrastivePlan(rows, math.sqrt(2.0) * data_norm, clip, step, _STEPS, noise)


def _clip_factors(norms: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """Return min(1, bound/norm) for every norm, without dividing by a vanishing one."""
    factors = np.ones_like(norms)
    np.divide(bound, norms, out=factors, where=norms > bound)
    # A quotient below the smallest normal number has lost its digits.
    factors[factors < np.finfo(np.float64).tiny] = 0.0
    return factors


def orthonormal_rows(n_rows: int, n_columns: int, randomness: Randomness) -> NDArray[np.float64]:
    """Return a data-independent start, shape (n_rows, n_columns), with orthonormal rows.

    The identity when square, since a rotation of it is the same metric; otherwise a uniformly random subspace.
    """
    if n_rows == n_columns:
        return np.eye(n_columns)
    basis, _ = np.linalg.qr(randomness.normal((n_columns, n_rows)))
    return np.ascontiguousarray(basis.T)


def _pulls(
    W: NDArray[np.float64],
    differences: NDArray[np.float64],
    dissimilar: NDArray[np.bool_],
    margin: float,
) -> NDArray[np.float64]:
    """Return the left vectors c WΔ of the rank-one gradients (c WΔ)Δᵀ, shape (m, d').

    Written as a signed length times a unit vector: with c = (D - m)/D the product c WΔ stays finite where c alone does
    not.
    """
    projected = differences @ W.T
    length = np.linalg.norm(projected, axis=1)
    usable = length > 0  # at D_W = 0 the gradient is defined as zero
    pull = np.where(dissimilar, -np.maximum(margin - length, 0.0), length)
    projected *= (np.where(usable, pull, 0.0) / np.where(usable, length, 1.0))[:, None]
    return projected


def clipped_gradient_sum(
    W: NDArray[np.float64],
    points: NDArray[np.float64],
    index: NDArray[np.int64],
    dissimilar: NDArray[np.bool_],
    *,
    margin: float,
    clip: float,
) -> NDArray[np.float64]:
    """Return the sum of the contrastive gradients of all pairs, each clipped as a whole matrix to C = ``clip``.

    Removing any κ pairs changes it by at most κC in Frobenius norm. The norm of a gradient is ‖c WΔ‖ ‖Δ‖.
    """
    total = np.zeros_like(W)
    bound = clip * (1.0 - CLIP_SLACK)
    for start in range(0, len(index), _BLOCK):
        part = slice(start, start + _BLOCK)
        right = points[index[part, 0]] - points[index[part, 1]]
        left = _pulls(W, right, dissimilar[part], margin)
        # Measured on the vectors that are summed, so that the clip holds whatever rounding went into them.
        norm = lengths(left) * lengths(right)
        left *= _clip_factors(norm, bound)[:, None]
        total += left.T @ right
    return total


def reachable_part(W: NDArray[np.float64], G: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix W S, S symmetric, that is nearest to G in Frobenius norm; shape of ``G``.

    Every sum of contrastive gradients at W has the form W S. What of a noisy sum does not is noise, and dropping it is
    post-processing. S solves (WᵀW) S + S (WᵀW) = WᵀG + GᵀW in the eigenbasis of WᵀW.
    """
    values, basis = np.linalg.eigh(W.T @ W)
    right = basis.T @ (W.T @ G + G.T @ W) @ basis
    sums = values[:, None] + values[None, :]
    # Where both eigenvalues vanish S is not seen through W at all.
    seen = sums > 1e-12 * max(float(values[-1]), np.finfo(float).tiny)
    inner = np.where(seen, right / np.where(seen, sums, 1.0), 0.0)
    return np.asarray(W @ (basis @ inner @ basis.T))


def shrink_singular_values(matrix: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return the matrix with singular values s replaced by √(s² − threshold²), or 0 below the threshold."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    shrunk = np.sqrt(np.maximum(values**2 - threshold**2, 0.0))
    return np.asarray((left * shrunk) @ right)


def contrastive_descent(
    plan: ContrastivePlan,
    points: NDArray[np.float64],
    index: NDArray[np.int64],
    dissimilar: NDArray[np.bool_],
    randomness: Randomness,
) -> NDArray[np.float64]:
    """Return W after the noisy steps of a plan, shape (rows, d); only the sums of gradients touch the pairs.

    W is the public start plus a drift. Of the drift only what exceeds noise is used: next to the drift runs a copy made
    of freshly drawn noise of the same size that takes the same steps, and singular values of the drift below the largest
    one of that copy are dropped. Where the data say nothing that the noise would not, W stays at its start, which for a
    square W is the Euclidean metric.
    """
    start = orthonormal_rows(plan.rows, points.shape[1], randomness)
    W, drift, pure_noise = start, np.zeros_like(start), np.zeros_like(start)
    for _ in range(plan.steps):
        total = clipped_gradient_sum(
            W, points, index, dissimilar, margin=plan.margin, clip=plan.clip
        )
        gradient = plan.noise.release(total, randomness)
        if plan.noise.sigma == 0:
            drift -= plan.step * gradient
            W = start + drift
            continue
        copy = plan.noise.sigma * randomness.normal(gradient.shape)
        drift -= plan.step * reachable_part(W, gradient)
        pure_noise -= plan.step * reachable_part(W, copy)
        threshold = _NOISE_MARGIN * float(np.linalg.norm(pure_noise, 2))
        W = start + shrink_singular_values(drift, threshold)
    return W
