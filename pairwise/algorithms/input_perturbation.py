"""Local perturbation of individuals: features by Laplace noise, classes by randomised response, once each.

The sound form of the DPP paper's baseline InputPer. As published, every *pair* gets a fresh noisy label, so the noisy
labels of an individual's pairs compose (mechanisms.md DPP-13). Here every individual is perturbed once and all pairs are
post-processing. What is learned from the result is not decided here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pairwise.noise.continuous import check_positive
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_laplace
from pairwise.pairs.clipping import clip_records

__all__ = ["perturb_individuals", "randomised_response"]


def randomised_response(
    codes: NDArray[np.int64], n_classes: int, epsilon: float, randomness: Randomness
) -> NDArray[np.int64]:
    """Return each class kept with probability e^ε/(e^ε + k − 1), else one of the others, uniformly (k-ary Warner).

    Parameters
    ----------
    codes : (n,) int array
        Classes as 0..k−1.
    n_classes : int
        k, from a public list of classes; with k = 1 there is nothing to hide.
    epsilon : float
        Cost per individual, (ε, 0).
    """
    if n_classes < 2:
        return codes.copy()
    # Rounded down, so that the odds of what is computed stay below e^ε.
    keep = math.exp(-math.log1p((n_classes - 1) * math.exp(-epsilon))) * (1.0 - 1e-12)
    other = (codes + 1 + randomness.integers(n_classes - 1, codes.shape)) % n_classes
    return np.where(randomness.uniform(codes.shape) < keep, codes, other)


def perturb_individuals(
    X: NDArray[np.float64],
    codes: NDArray[np.int64],
    n_classes: int,
    *,
    epsilon_features: float,
    epsilon_class: float,
    bound: float,
    randomness: Randomness,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Perturb each individual once; (ε_x + ε_y, 0)-DP for each, also against whoever collects the data.

    Parameters
    ----------
    X : (n, d) float64 array
    codes : (n,) int array
        Classes as 0..k−1.
    n_classes : int
        k, public.
    epsilon_features, epsilon_class : float
        ε_x and ε_y.
    bound : float
        R: features are clipped to ‖x‖₁ <= R, so replacing an individual moves them by 2R in l1.
    randomness : Randomness

    Returns
    -------
    X : (n, d) float64 array
        On a grid, with exact discrete Laplace noise (the hardened path of mechanisms.md 2.2).
    codes : (n,) int array

    References
    ----------
    mechanisms.md DPP-13.
    """
    check_positive(bound=bound)
    clipped = clip_records(X, bound, order=1)
    noise = plan_laplace(2.0 * bound, epsilon_features, X.shape[1])
    noisy = noise.release(clipped, randomness, rows=True)
    return noisy, randomised_response(codes, n_classes, epsilon_class, randomness)
