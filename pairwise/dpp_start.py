"""Where a metric starts its descent: a public factor raised along the directions in which released class means differ.

Post-processing of ``statistics.Moments`` only: what the release costs is decided by the learner that makes it. For two
classes of equal size the scatter of dissimilar pairs exceeds that of similar ones by exactly δδᵀ, δ the difference of the
class means. So what a contrastive learner looks for in d² noisy numbers is held by d of them, and by the scatter within
the classes, which says how much a unit of length is worth in each direction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pairwise.statistics import Moments

__all__ = ["discriminant_start"]

Array = NDArray[np.float64]


def discriminant_start(moments: Moments, n_components: int | None = None) -> Array:
    """Return W with WᵀW = c(I + Σ_k ρ_k s_k v_k v_kᵀ), v_k the discriminant directions, shape (n_components, d).

    No constant in it is tuned. s_k is such that all discriminant directions together carry half of the expected squared
    distance within a class (less by what regularises that distance where the release is noisy). ρ_k = max(0, 1 −
    noise_k/λ_k) is the share of the direction's strength λ_k (its between-class variance in units of the within-class
    one) that noise and sampling do not explain, so that W is the identity where the release says nothing. c keeps the
    mean squared distance of two records, for which the margin is meant.

    Parameters
    ----------
    moments : Moments
        Of records of norm at most 1.
    n_components : int, optional
        Rows of W, the longest axes first; default d, as a symmetric W.
    """
    n, classes = moments.n, len(moments.counts)
    d = moments.second.shape[0]
    counts = np.maximum(moments.counts, 1.0)
    within = moments.within()
    trace = float(np.trace(within))
    # Two errors of S_w: the noise, of spectral norm about √(2d)·σ/n, and that of n samples, about √(d/n) of its mean.
    ridge = math.sqrt(d) * moments.noise[2] / n + trace / d * math.sqrt(d / n)
    scatter = within + ridge * np.eye(d)
    values, vectors = np.linalg.eigh(scatter)
    whiten = vectors / np.sqrt(values)
    between = moments.between()
    strength, axes = np.linalg.eigh(whiten.T @ between @ whiten)
    kept = min(classes - 1, d)
    order = np.argsort(strength)[::-1][:kept]
    directions = whiten @ axes[:, order]
    directions /= np.linalg.norm(directions, axis=0)
    # What a mean's noise and its sampling add to tr(S_w⁻¹ S_b), spread over the directions.
    priors = moments.priors
    error = moments.noise[0] ** 2 * float((1.0 / values).sum()) / counts**2 + d / counts
    # Taken at three standard deviations above its mean: it is like a chi-square with d degrees of freedom.
    unexplained = 1.0 + 3.0 * math.sqrt(2.0 / d)
    floor = unexplained * float((priors * (1.0 - priors) * error).sum()) / max(kept, 1)
    M = np.eye(d)
    for direction, found in zip(directions.T, strength[order], strict=True):
        share = max(0.0, 1.0 - floor / found) if found > 0 else 0.0
        raised = float(np.trace(scatter)) / (kept * float(direction @ scatter @ direction))
        M += share * raised * np.outer(direction, direction)
    spread = within + between
    M *= float(np.trace(spread)) / float(np.einsum("ij,ji->", M, spread))
    lengths, basis = np.linalg.eigh(M)
    if n_components is None or n_components >= d:
        return np.asarray((basis * np.sqrt(lengths)) @ basis.T)
    longest = np.argsort(lengths)[::-1][:n_components]
    return np.ascontiguousarray((basis[:, longest] * np.sqrt(lengths[longest])).T)
