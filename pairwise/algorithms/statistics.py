"""What is learned from one Gaussian release of class moments: a ranking (``Statistics``), and a metric.

*The metric.* For two classes of equal size the scatter of dissimilar pairs exceeds that of similar ones by exactly δδᵀ, δ
the difference of the class means. So what a contrastive learner looks for in d² noisy numbers is held by d of them and by
the scatter within the classes, which says how much a unit of length is worth in each direction. Of that scatter the d
variances are known far better than the correlations: noise in an entry is √d times smaller than in the matrix. So
features are weighted one by one, and directions across features are used only as far as correlations are known. Class
moments tell nothing of classes that differ in shape alone, so a part of the metric stays Euclidean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.algorithms.coordinates import CoordinatePlan, Ranking, plan_coordinates
from pairwise.algorithms.moments import Moments, plan_moments, release_moments
from pairwise.algorithms.options import Statistics
from pairwise.algorithms.plan import ClippedRecords, FitPlan, PublicTask
from pairwise.noise.release import GaussianPlan

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]

# Share of the expected squared distance that stays Euclidean. How it was found: docs/results/uci.md.
_EUCLIDEAN = 0.25


@dataclass(frozen=True, kw_only=True)
class StatisticsPlan(FitPlan):
    """The release of coordinates, and of class moments in them."""

    coordinates: CoordinatePlan
    moments: GaussianPlan

    def run(self, records: ClippedRecords, randomness: Randomness) -> Ranking:
        """Return the ranking that the moments give."""
        found = self.coordinates.release(records, randomness)
        codes = records.positive.astype(np.int64)
        moments = release_moments(found.of(records.rows), codes, 2, self.moments, randomness)
        return Ranking(found.pull_back(auc_direction(moments)), found)


def plan_statistics(options: Statistics, public: PublicTask) -> StatisticsPlan:
    """Return the plan of releasing coordinates, and class moments in them."""
    coordinates = plan_coordinates(public, options.centre_share)
    moments = plan_moments(coordinates.left, public.d, 2)
    return StatisticsPlan(
        coordinates=coordinates,
        moments=moments,
        event=compose([*coordinates.events(), moments.event()]),
        sensitivity=moments.sensitivity,
        terms=public.n,
        mechanism=(
            "Gaussian release of class sums, counts and second moment"
            f"{coordinates.description}; square-loss AUC from it"
        ),
        proof=f"head of pairwise.algorithms.moments{coordinates.proof}",
    )


def auc_direction(moments: Moments) -> Array:
    """Return the minimiser of the square-loss AUC under a pooled covariance, of norm 1, shape (d,).

    Σ (1 − w·(x₊ − x₋))² over pairs is minimised along (Σ₊ + Σ₋ + mmᵀ)⁻¹m, m the difference of the class means, which has the
    direction of S_w⁻¹m when the classes share S_w. S_w is regularised by the level of its noise.
    """
    means = moments.means
    m = means[1] - means[0]
    ridge = math.sqrt(len(m)) * moments.noise.second / moments.n
    w = np.linalg.solve(moments.within() + ridge * np.eye(len(m)), m)
    norm = np.linalg.norm(w)
    return np.asarray(w / norm if norm > 0 else w)


@dataclass(frozen=True, kw_only=True)
class MetricPlan(FitPlan):
    """One release of class moments, and the metric that follows from it."""

    moments: GaussianPlan
    classes: int
    n_components: int | None

    def run(self, records: tuple[Array, NDArray[np.int64]], randomness: Randomness) -> Array:
        """Return W from rows of norm at most 1, and the place of the class of each."""
        rows, codes = records
        moments = release_moments(rows, codes, self.classes, self.moments, randomness)
        return discriminant_metric(moments, self.n_components)


def plan_metric(mu: float, n: int, d: int, classes: int, n_components: int | None) -> MetricPlan:
    """Return the plan of a metric from n records of d features at a cost of ``mu``.

    ``classes``, their number, comes from y where they were not declared; the statement then says so.
    """
    moments = plan_moments(mu, d, classes)
    return MetricPlan(
        moments=moments,
        classes=classes,
        n_components=n_components,
        event=moments.event(),
        sensitivity=moments.sensitivity,
        terms=n,
        mechanism="Gaussian release of class sums, counts and second moment; metric from it",
        proof="head of pairwise.algorithms.moments",
        notes=("classes are protected, since they are part of the record",),
    )


def discriminant_metric(moments: Moments, n_components: int | None = None) -> Array:
    """Return W with WᵀW = ¼I + ¾c((1 − ρ)I + ρD + s Σ_k ρ_k v_k v_kᵀ), shape (n_components, d).

    D is diagonal with D_jj ∝ |β_j|, where β_j = δ_j/σ_j² is the slope in feature j of the discriminant that takes
    features as independent: δ_j the difference of the class means (of many classes, its root mean square), σ_j² the
    variance within a class. Weights by the size of the gradient are those of Kpotufe, Boularias, Schultz, Kim (Gradients
    Weights improve Regression and Classification, JMLR 2016). v_k are the discriminant directions under correlations R
    that are shrunk to (R + rI)/(1 + r), r the size of their noise and sampling error; s is such that all of them
    together carry 1/(1 + r) of the expected squared distance within a class that D carries. ρ and ρ_k = max(0, 1 −
    chance/λ) are the shares of the between-class variance λ, in units of the within-class one, that noise and sampling do
    not explain: W is the identity where the release says nothing. c keeps the mean squared distance of two records, for
    which the margin is meant.

    The rows of W are those along which records lie farthest apart; by default d of them, as a symmetric W.
    """
    d = moments.second.shape[0]
    counts = np.maximum(moments.counts, 1.0)
    priors, between = moments.priors, moments.between()
    # σ², never below its own noise, so that no feature looks narrow by chance; above zero for constant features.
    entry = moments.noise.second / moments.n
    variances = np.maximum(np.diag(moments.raw_within()), 0.0) + entry + 1e-9
    sigma = np.sqrt(variances)
    lambdas = np.diag(between) / variances
    # What noise and sampling of the means add to each λ on average.
    apart = priors * (1.0 - priors)
    error = float((apart * (moments.noise.sums / counts) ** 2).sum())
    chance = error / variances + float((apart / counts).sum())
    # Taken at three standard deviations above its mean: it is like a chi-square with d degrees of freedom.
    above = 1.0 + 3.0 * math.sqrt(2.0 / d)
    beta = np.sqrt(np.maximum(lambdas - chance, 0.0)) / sigma
    carried = float(beta @ variances)
    M = np.eye(d)
    if carried > 0:
        rho = max(0.0, 1.0 - above * float(chance.sum()) / float(lambdas.sum()))
        D = np.diag(beta * float(variances.sum()) / carried)
        M = (1.0 - rho) * np.eye(d) + rho * D
    M += _directions(moments, sigma, chance * above)
    total = moments.within() + between
    c = float(np.trace(total)) / float(np.einsum("ij,ji->", M, total))
    M = _EUCLIDEAN * np.eye(d) + (1.0 - _EUCLIDEAN) * (c * M)
    lengths, basis = np.linalg.eigh((M + M.T) / 2.0)
    root = np.asarray((basis * np.sqrt(np.maximum(lengths, 0.0))) @ basis.T)
    if n_components is None or n_components >= d:
        return root
    # The best approximation of all squared distances by so many rows: principal axes of the transformed records.
    _, axes = np.linalg.eigh(root @ total @ root)
    return np.ascontiguousarray(axes[:, ::-1][:, :n_components].T @ root)


def _directions(moments: Moments, sigma: Array, chance: Array) -> Array:
    """Return s Σ_k ρ_k v_k v_kᵀ, shape (d, d), for deviations σ and what chance makes of λ, of each feature."""
    d = len(sigma)
    scale = np.outer(sigma, sigma)
    R = moments.raw_within() / scale
    np.fill_diagonal(R, 1.0)
    values, vectors = np.linalg.eigh(R)
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # Two errors of the correlations: the spectral norm of their noise, whose entries are larger where σ is small (at most
    # twice the largest norm of a row of standard deviations), and about √(d/n) of n samples.
    entry = moments.noise.second / moments.n
    row = entry / math.sqrt(2.0) * math.sqrt(float((1.0 / sigma**2).sum())) / sigma.min()
    r = 2.0 * row + math.sqrt(d / moments.n)
    values, vectors = np.linalg.eigh((R + r * np.eye(d)) / (1.0 + r))
    whiten = vectors / np.sqrt(values)
    lambdas, axes = np.linalg.eigh(whiten.T @ (moments.between() / scale) @ whiten)
    rank = min(len(moments.counts) - 1, d)
    order = np.argsort(lambdas)[::-1][:rank]
    v = (whiten @ axes[:, order]) / sigma[:, None]
    mean_chance = float((whiten**2).sum(axis=1) @ chance) / rank
    raised = np.zeros((d, d))
    for v_k, lambda_k in zip(v.T, lambdas[order], strict=True):
        rho_k = max(0.0, 1.0 - mean_chance / lambda_k) if lambda_k > 0 else 0.0
        raised += rho_k * np.outer(v_k, v_k)
    # Every v_k is whitened, so it carries 1.
    s = 1.0 / (1.0 + r) * float((sigma**2).sum()) / rank
    return s * raised
