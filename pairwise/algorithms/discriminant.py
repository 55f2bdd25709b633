"""A metric from released class moments: features weighted by what they tell of the class, discriminant directions raised.

For two classes of equal size the scatter of dissimilar pairs exceeds that of similar ones by exactly δδᵀ, δ the
difference of the class means. So what a contrastive learner looks for in d² noisy numbers is held by d of them and by
the scatter within the classes, which says how much a unit of length is worth in each direction. Of that scatter the d
variances are known far better than the correlations: noise in an entry is √d times smaller than in the matrix. So
features are weighted one by one, and directions across features are used only as far as correlations are known. Class
moments tell nothing of classes that differ in shape alone, so a part of the metric stays Euclidean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pairwise.algorithms.moments import Moments

Array = NDArray[np.float64]

# Share of the expected squared distance that stays Euclidean. How it was found: docs/results/uci.md.
_EUCLIDEAN = 0.25

# How many standard deviations of noise a quantity must exceed before it counts.
_DEVIATIONS = 3.0


def discriminant_metric(moments: Moments, n_components: int | None = None) -> Array:
    """Return W with WᵀW = ¼I + ¾c((1 − ρ)I + ρD + Σ_k ρ_k s_k v_k v_kᵀ), shape (n_components, d).

    D is diagonal with D_jj ∝ |β_j|, where β_j = δ_j/σ_j² is the slope in feature j of the discriminant that takes
    features as independent: δ_j the difference of the class means (of many classes, its root mean square), σ_j² the
    variance within a class. Weights by the size of the gradient are those of Kpotufe, Boularias, Schultz, Kim (Gradients
    Weights improve Regression and Classification, JMLR 2016). v_k are the discriminant directions under correlations R
    that are shrunk to (R + rI)/(1 + r), r the size of their noise and sampling error; s_k is such that all of them
    together carry 1/(1 + r) of the expected squared distance within a class that D carries. ρ and ρ_k = max(0, 1 −
    noise/λ) are the shares of the between-class variance λ, in units of the within-class one, that noise and sampling do
    not explain: W is the identity where the release says nothing. c keeps the mean squared distance of two records, for
    which the margin is meant.

    Parameters
    ----------
    moments : Moments
        Of records of norm at most 1.
    n_components : int, optional
        Rows of W, those first along which records lie farthest apart; default d, as a symmetric W.
    """
    n, classes = moments.n, len(moments.counts)
    d = moments.second.shape[0]
    counts = np.maximum(moments.counts, 1.0)
    priors, between = moments.priors, moments.between()
    raw = moments.raw_within()
    entry = moments.noise[2] / n
    # Never below its own noise, so that no feature looks narrow by chance; above zero for constant features.
    variances = np.maximum(np.diag(raw), 0.0) + entry + 1e-9
    spreads = np.sqrt(variances)
    # What noise and sampling of the means add to each feature's between-class variance.
    apart = priors * (1.0 - priors)
    error = float((apart * (moments.noise[0] / counts) ** 2).sum())
    error_in_spreads = error / variances + float((apart / counts).sum())
    strengths = np.diag(between) / variances
    # Taken at three standard deviations above its mean: it is like a chi-square with d degrees of freedom.
    unexplained = 1.0 + _DEVIATIONS * math.sqrt(2.0 / d)
    total = float(strengths.sum())
    M = np.eye(d)
    if total > 0:
        share = max(0.0, 1.0 - unexplained * float(error_in_spreads.sum()) / total)
        weights = np.sqrt(np.maximum(strengths - error_in_spreads, 0.0)) / spreads
        carried = float(weights @ variances)
        if carried > 0:
            M *= 1.0 - share
            M += share * np.diag(weights * float(variances.sum()) / carried)
    M += _directions(raw, between, spreads, error_in_spreads * unexplained, entry, n, classes)
    spread = moments.within() + between
    M *= float(np.trace(spread)) / float(np.einsum("ij,ji->", M, spread))
    M = _EUCLIDEAN * np.eye(d) + (1.0 - _EUCLIDEAN) * M
    lengths, basis = np.linalg.eigh((M + M.T) / 2.0)
    root = np.asarray((basis * np.sqrt(np.maximum(lengths, 0.0))) @ basis.T)
    if n_components is None or n_components >= d:
        return root
    # The best approximation of all squared distances by so many rows: principal axes of the transformed records.
    _, axes = np.linalg.eigh(root @ spread @ root)
    return np.ascontiguousarray(axes[:, ::-1][:, :n_components].T @ root)


def _directions(
    raw: Array, between: Array, spreads: Array, error: Array, entry: float, n: int, classes: int
) -> Array:
    """Return Σ_k ρ_k s_k v_k v_kᵀ, shape (d, d); strengths must exceed ``error``, ``entry`` is the noise of a moment / n."""
    d = len(spreads)
    scale = np.outer(spreads, spreads)
    correlations = raw / scale
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    correlations = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # Two errors of the correlations: the spectral norm of their noise, whose entries are larger where spreads are small
    # (at most twice the largest norm of a row of standard deviations), and about √(d/n) of n samples.
    row = entry / math.sqrt(2.0) * math.sqrt(float((1.0 / spreads**2).sum())) / spreads.min()
    ridge = 2.0 * row + math.sqrt(d / n)
    shrunk = (correlations + ridge * np.eye(d)) / (1.0 + ridge)
    values, vectors = np.linalg.eigh(shrunk)
    whiten = vectors / np.sqrt(values)
    strength, axes = np.linalg.eigh(whiten.T @ (between / scale) @ whiten)
    rank = min(classes - 1, d)
    order = np.argsort(strength)[::-1][:rank]
    directions = (whiten @ axes[:, order]) / spreads[:, None]
    floor = float((whiten**2).sum(axis=1) @ error) / max(rank, 1)
    raised = np.zeros((d, d))
    for direction, value in zip(directions.T, strength[order], strict=True):
        share = max(0.0, 1.0 - floor / value) if value > 0 else 0.0
        # Whitened, so that the direction carries 1: the squared length of its axis in units of the spreads.
        raised += share * np.outer(direction, direction)
    known = 1.0 / (1.0 + ridge)
    return known * float((spreads**2).sum()) / max(rank, 1) * raised
