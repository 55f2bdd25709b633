"""The DPP paper's Algorithm 1 as printed, with its four noises, and what each of them really guarantees.

For comparison only. The paper's promise holds for none of the four (mechanisms.md DPP-1, DPP-2, DPP-4, DPP-5);
``true_epsilon`` says what does. Sound forms live in ``pairwise.estimators.dpp``. The published choices kept here:
gradients clipped row by row in l1, the budget of an epoch spent again on each row, disjoint batches of consecutive
slots. Changed so that a guarantee can be stated at all: kappa, margin and h are declared, and the slots are shuffled
once, independently of the data (DPP-3, DPP-6, DPP-7).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.contrastive import clipped_row_gradient_sum
from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import duchi, laplace, staircase_start
from pairwise.noise.randomness import Randomness

__all__ = [
    "VARIANTS",
    "publish",
    "row_scales",
    "staircase_coordinates",
    "step_sizes",
    "true_epsilon",
]

Variant = Literal["dpp_thm1", "dpp_s", "scdf", "duchi"]
VARIANTS: tuple[Variant, ...] = ("dpp_thm1", "dpp_s", "scdf", "duchi")


def step_sizes(
    count: int, rule: Literal["intended", "literal"] = "intended"
) -> NDArray[np.float64]:
    """Return Algorithm 1's step sizes η_1..η_count for η_0 = 1 (mechanisms.md DPP-10).

    Parameters
    ----------
    count : int
        Number of steps.
    rule : {"intended", "literal"}, default="intended"
        Line 5 as printed divides the previous step by √τ, which gives 1/√(τ!) and a total travel of 2.4695 however long
        it runs; meant is surely 1/√τ.
    """
    tau = np.arange(1, count + 1, dtype=np.float64)
    if rule == "intended":
        return 1.0 / np.sqrt(tau)
    if rule == "literal":
        return np.asarray(np.exp(-0.5 * np.cumsum(np.log(tau))))
    raise InvalidParameterError(f"rule must be 'intended' or 'literal'; found {rule!r}.")


def row_scales(
    variant: Variant,
    W: NDArray[np.float64],
    largest: NDArray[np.float64],
    *,
    kappa: int,
    margin: float,
    clip: float,
    batch: int,
    epsilon: float,
) -> NDArray[np.float64]:
    """Return the noise scale κΔg_r/ε' of each row, shape (d',), by Theorem 1 or Theorem 2.

    Parameters
    ----------
    variant : str
        ``"dpp_s"``: Δg_r = (g'_r + g''_r)/b, g'_r the largest clipped norm in *this* batch, so that the scale itself
        tells what is in the batch (mechanisms.md DPP-1). Others: Δg_r = 2h/b.
    W : (d', d) array
    largest : (d',) array
        g'_r. Private, and used by ``"dpp_s"`` all the same.
    kappa, margin, clip, batch, epsilon
        κ, m, h, number of pairs in the batch, and ε' = ε/T_max.
    """
    if variant == "dpp_s":
        bound = np.maximum(
            4.0 * np.abs(W).sum(axis=1), 2.0 * margin * math.sqrt(len(W))
        )  # line 9; looser than need be (DPP-9), as printed
        spread = largest + np.minimum(clip, bound)
    else:
        spread = np.full(len(W), 2.0 * clip)
    return kappa * spread / (batch * epsilon)


def staircase_coordinates(
    shape: tuple[int, ...], sensitivity: float, epsilon: float, randomness: Randomness
) -> NDArray[np.float64]:
    """Return independent scalar staircase draws for every coordinate: the misuse that the published comparison made.

    A vector with these costs up to (number of coordinates) · ε (mechanisms.md DPP-4); ``pairwise.noise`` therefore
    offers them for single numbers only.
    """
    start = staircase_start(sensitivity, epsilon)
    top = randomness.uniform(shape) < epsilon * start / sensitivity
    within = randomness.uniform(shape)
    step = np.floor(randomness.exponential(shape) / epsilon)
    magnitude = np.where(top, start * within, start + sensitivity * (step + within))
    return np.asarray(randomness.signs(shape) * magnitude)


def true_epsilon(
    variant: Variant, epsilon: float, *, kappa: int, n_rows: int, n_columns: int, batches: int
) -> float | None:
    """Return the true ε of a run published as ε-DP, for κ pairs replaced in place; None if no finite one holds.

    Parameters
    ----------
    variant : str
    epsilon : float
        The number the paper would print.
    kappa, n_rows, n_columns, batches : int
        κ, d', d and the batches of one epoch.

    References
    ----------
    mechanisms.md 4.3, "Published modes": d'ε (Theorem 1), none (Theorem 2), κ* d d' ε (staircase), κ* d' ε (Duchi), with
    κ* = min(κ, batches per epoch).
    """
    touched = min(kappa, batches)
    if variant == "dpp_thm1":
        return n_rows * epsilon
    if variant == "scdf":
        return touched * n_columns * n_rows * epsilon
    if variant == "duchi":
        return touched * n_rows * epsilon
    if variant == "dpp_s":
        return None
    raise InvalidParameterError(f"variant must be one of {', '.join(VARIANTS)}; found {variant!r}.")


def publish(
    variant: Variant,
    start: NDArray[np.float64],
    points: NDArray[np.float64],
    index: NDArray[np.int64],
    dissimilar: NDArray[np.bool_],
    *,
    epsilon: float,
    kappa: int,
    margin: float,
    clip: float,
    batch_size: int,
    epochs: int,
    steps: NDArray[np.float64],
    randomness: Randomness,
    keep: list[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None,
) -> NDArray[np.float64]:
    """Run Algorithm 1 and return W, shape (d', d).

    Parameters
    ----------
    variant : {"dpp_thm1", "dpp_s", "scdf", "duchi"}
        Which noise: Laplace by Theorem 1, Laplace by Theorem 2, staircase on every coordinate, Duchi on every row (in the
        corrected form that is private for even d too).
    start : (d', d) array
        Data-independent.
    points, index, dissimilar
        As in ``pairwise.algorithms.contrastive``.
    epsilon : float
        The published budget of the run; infinity adds no noise.
    kappa, margin, clip, batch_size, epochs
        κ, m, h, |B|, T_max; all public.
    steps : array
        Step size of each batch, at least epochs · batches of them.
    randomness : Randomness
    keep : list, optional
        Receives W after each batch and the noise scales of its rows (empty without noise), for figures.
    """
    W = start.copy()
    slots = randomness.permutation(len(index))
    share = epsilon / epochs
    tau = 0
    for _ in range(epochs):
        for first in range(0, len(slots), batch_size):
            members = slots[first : first + batch_size]
            total, largest = clipped_row_gradient_sum(
                W, points, index[members], dissimilar[members], margin=margin, clip=clip
            )
            mean = total / len(members)
            scales = np.empty(0)
            if math.isfinite(share):
                scales = row_scales(
                    variant,
                    W,
                    largest,
                    kappa=kappa,
                    margin=margin,
                    clip=clip,
                    batch=len(members),
                    epsilon=share,
                )
                mean = _noised(variant, mean, scales, clip, share, randomness)
            W -= steps[tau] * mean
            tau += 1
            if keep is not None:
                keep.append((W.copy(), scales))
    return W


def _noised(
    variant: Variant,
    mean: NDArray[np.float64],
    scales: NDArray[np.float64],
    clip: float,
    share: float,
    randomness: Randomness,
) -> NDArray[np.float64]:
    if variant == "duchi":
        # Rounding may lift a mean of clipped rows just above h, and the corners are for the cube only.
        inside = np.clip(mean / clip, -1.0, 1.0)
        return clip * np.stack([duchi(row, share, randomness) for row in inside])
    if variant == "scdf":
        sensitivity = float(scales[0]) * share
        return mean + staircase_coordinates(mean.shape, sensitivity, share, randomness)
    # One draw in units of each row's scale.
    spread = scales[:, None]
    return np.asarray(spread * laplace(mean / spread, 1.0, randomness))
