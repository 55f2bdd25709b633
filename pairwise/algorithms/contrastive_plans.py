"""Plans of private contrastive metric learning: from individuals, from an edge list, and as published.

What a release costs is decided here: which adjacency, which sensitivity, how much noise, and what the statement says. The
gradients and what happens to a noisy gradient live in ``algorithms.contrastive``, the published noise in
``algorithms.published.dpp``, the local baseline's perturbation in ``algorithms.input_perturbation``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.calibration import group_poisson_sigma
from pairwise.accounting.events import (
    Adjacency,
    compose,
    gaussian_event,
    group_poisson_event,
    pure_event,
)
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.contrastive import DriftDescent, clipped_gradient_sum, orthonormal_rows
from pairwise.algorithms.contrastive_start import discriminant_start
from pairwise.algorithms.input_perturbation import perturb_individuals
from pairwise.algorithms.moments import moment_size, plan_moments, release_moments
from pairwise.algorithms.options import (
    ContrastiveOptions,
    EdgeListOptions,
    Edges,
    Matching,
    NodeDP,
    Published,
    Pure,
)
from pairwise.algorithms.published.dpp import Variant, publish, step_sizes, true_epsilon
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import CHEAP_PATH_NOTE, HARDENED_NOTE, Randomness, numerical_claim
from pairwise.noise.release import GaussianPlan, plan_gaussian, plan_laplace
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.graph import PairGraph, random_matching
from pairwise.plan import Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "ContrastiveTask",
    "Individuals",
    "PairList",
    "group_size",
    "plan_edges",
    "plan_matching",
    "plan_perturbation",
    "plan_published",
    "plan_pure",
]

Array = NDArray[np.float64]
Batch = tuple[Array, NDArray[np.int64], NDArray[np.bool_]]

# Share of the squared noise ratio 1/z² that an adaptive clip spends on learning where the norms lie. The count it needs
# is one number against d·d' of the gradient, so a twentieth leaves it far more precise than the gradient.
_CLIP_SHARE = 0.05
_CLIP_RATE = 0.2
_CLIP_QUANTILE = 0.5

# D of a descent from a released W, over the length of W. Fixed on sets of other origin than those of the results
# (docs/results/uci.md).
_PATH_SHARE = 0.25


@dataclass(frozen=True)
class Individuals:
    """Records and their classes: clipped points, codes that serve to compare classes, and how many classes are public.

    ``declared`` is whether the list of classes was.
    """

    points: Array
    codes: NDArray[np.int64]
    count: int
    declared: bool


@dataclass(frozen=True)
class PairList:
    """Pairs as the algorithms use them: clipped points, indices into them, and which pairs are dissimilar."""

    points: Array
    index: NDArray[np.int64]
    dissimilar: NDArray[np.bool_]
    graph: PairGraph


@dataclass(frozen=True)
class ContrastiveTask:
    """Options, budget, bounds and shape of W of a contrastive fit, checked.

    Attributes
    ----------
    options : ContrastiveOptions
    epsilon, delta, data_norm : float
    shape : tuple of int
        Of W.
    exact : bool
        Whether Gaussian noise is drawn on a grid.
    kappa : int
        Pairs that change together; 1 for individuals.
    """

    options: ContrastiveOptions
    epsilon: float
    delta: float
    data_norm: float
    shape: tuple[int, int]
    exact: bool
    kappa: int = 1

    @property
    def clip(self) -> float:
        """Bound on one pair's gradient, C."""
        if self.options.clip is not None:
            return float(self.options.clip)
        return 0.5 if isinstance(self.options, Published) else 0.1 * self.data_norm**2

    @property
    def margin(self) -> float:
        """M of the contrastive loss."""
        margin = self.options.margin
        return math.sqrt(2.0) * self.data_norm if margin is None else float(margin)

    @property
    def step(self) -> float:
        """Step size in units of the clip."""
        rate = 60.0 if self.options.learning_rate is None else float(self.options.learning_rate)
        return rate / math.sqrt(self.options.n_steps)

    @property
    def private(self) -> bool:
        """Whether any noise is drawn."""
        return math.isfinite(self.epsilon)

    def initial(self, randomness: Randomness) -> Array:
        """Return the public initial W."""
        init = self.options.init
        if init is None:
            return orthonormal_rows(*self.shape, randomness)
        return np.array(init, dtype=np.float64)


@dataclass(frozen=True)
class _StepNoise:
    """Noise of one step, in units of the clip C, which may move.

    Attributes
    ----------
    factor : float
        How many clips a neighbour moves the sum of clipped gradients by.
    mu : float
        What a step may cost; infinity for no noise.
    dimension : int
        Entries of the sum.
    exact : bool
        Noise on a grid.
    adaptive : bool
        Whether a count is released beside the sum. Their μ² add up to that of the step.
    """

    factor: float
    mu: float
    dimension: int
    exact: bool = False
    adaptive: bool = False

    def gradient(self, clip: float) -> GaussianPlan:
        """Return the release of a sum of gradients clipped to ``clip``."""
        mu = self.mu * math.sqrt(1.0 - _CLIP_SHARE) if self.adaptive else self.mu
        return plan_gaussian(self.factor * clip, mu, self.dimension, hardened=self.exact)

    def count(self) -> GaussianPlan:
        """Return the release of the votes ±½ for a larger or smaller clip (mechanisms.md 4.3 B)."""
        mu = self.mu * math.sqrt(_CLIP_SHARE)
        return plan_gaussian(self.factor / 2.0, mu, 1, hardened=self.exact)

    def scale(self, clip: float) -> float:
        """Return the standard deviation on a sum of gradients, in units of the clip."""
        return self.gradient(clip).sigma / clip


# --------------------------------------------------------------------------------------------------------------------
# Descent


def _descend(
    task: ContrastiveTask,
    randomness: Randomness,
    noise: _StepNoise | None,
    batch: float,
    draw: Callable[[], Batch],
    released: Array | None = None,
    classes: int = 2,
) -> Array:
    """Run noisy gradient descent on the pairs that ``draw`` returns in each step; ``batch`` is the public normaliser.

    ``noise`` is None where the pairs were released already. ``released`` is an initial W that was paid for, and ``classes``
    the public number of classes.
    """
    options, step, clip = task.options, task.step, task.clip
    initial = task.initial(randomness) if released is None else released
    if released is not None and options.learning_rate is None:
        # η = D/√(T(G² + pσ²)) of mechanisms.md 7.1 in units of the clip, D a share of the length of W: where the direction
        # is known already, a short path suffices.
        spread = initial.size * ((noise.scale(clip) if noise else 0.0) / batch) ** 2
        length = _PATH_SHARE * float(np.linalg.norm(initial))
        step = length / math.sqrt(options.n_steps * (1.0 + spread))
    # A random pair is dissimilar C − 1 times as often as similar; the paper's lists hold as many of either.
    dissimilar_share = 1.0 / max(1, classes - 1)
    shrinkage = getattr(options, "shrinkage", True)
    descent = DriftDescent(initial, step, shrinkage=shrinkage, randomness=randomness)
    for _ in range(options.n_steps):
        points, index, dissimilar = draw()
        total, norms = clipped_gradient_sum(
            descent.W,
            points,
            index,
            dissimilar,
            margin=task.margin,
            clip=clip,
            dissimilar_share=dissimilar_share,
        )
        if noise is None:
            descent.descend(total / (batch * clip), 0.0)
            continue
        once = noise.gradient(clip)
        descent.descend(
            once.release(total, randomness) / (batch * clip), once.sigma / (batch * clip)
        )
        if noise.adaptive:
            votes = np.array(float(np.sum((norms <= clip) - 0.5)))
            below = 0.5 + float(noise.count().release(votes, randomness)) / batch
            # A noisy share of norms below the clip may lie far outside [0, 1]; cut to it, the clip does not leap.
            clip *= math.exp(-_CLIP_RATE * (min(max(below, 0.0), 1.0) - _CLIP_QUANTILE))
    return descent.W


def _every_pair_noise(
    task: ContrastiveTask, factor: float, share: float = 1.0
) -> tuple[_StepNoise, DpEvent]:
    """Return the noise of a step whose sum moves by ``factor`` clips, and the event of all steps for ``share`` of μ²."""
    options = cast(Matching | Edges | NodeDP, task.options)
    steps, adaptive = int(options.n_steps), bool(options.adaptive_clip)
    mu = release_mu(task.epsilon, task.delta, hardened=task.exact) * math.sqrt(share)
    size = task.shape[0] * task.shape[1]
    noise = _StepNoise(factor, mu / math.sqrt(steps), size, exact=task.exact, adaptive=adaptive)
    # The event is the same for every clip: σ is proportional to it.
    events = [noise.gradient(task.clip).event(steps)]
    if adaptive:
        events.append(noise.count().event(steps))
    return noise, compose(events) if task.private and len(events) > 1 else events[0]


def _pure_or_none(epsilon: float) -> DpEvent:
    """Return the event of a pure release, or of a non-private one at infinity."""
    return pure_event(epsilon) if math.isfinite(epsilon) else gaussian_event(0.0)


# --------------------------------------------------------------------------------------------------------------------
# From individuals


def plan_matching(data: Individuals, task: ContrastiveTask, randomness: Randomness) -> Plan:
    """Return the plan of descent on a fresh matching each step (mechanisms.md 4.3 A).

    Replacing an individual changes one clipped gradient, by 2C.
    """
    options = cast(Matching, task.options)
    n = len(data.points)
    spent = float(options.start_share) if options.init is None else 0.0
    # The sum has sensitivity 2C under replace-one.
    noise, event = _every_pair_noise(task, 2.0, 1.0 - spent)
    count = data.count if data.declared or spent else 2
    first: Callable[[], Array] | None = None
    if spent:
        first, cost = _plan_initial(data, task, spent, randomness)
        event = compose([cost, event]) if task.private else event

    def draw() -> Batch:
        index = random_matching(n, randomness)
        return data.points, index, data.codes[index[:, 0]] != data.codes[index[:, 1]]

    def run() -> Array:
        released = None if first is None else first()
        return _descend(task, randomness, noise, float(n // 2), draw, released, count)

    return Plan(
        event=event,
        sensitivity=2.0 * task.clip,
        run=run,
        mechanism=f"contrastive metric learning on random matchings ({options.n_steps} steps, Gaussian noise"
        + (", started from class moments)" if spent else ")"),
        proof="mechanisms.md 4.3 A and 1.2: each record is in at most one clipped pair a step"
        + (
            "; the start by 8.3 B with the sensitivity of pairwise.algorithms.moments"
            if spent
            else ""
        ),
        epsilon=task.epsilon,
        assumptions=("the number of records is public",),
        notes=("classes are protected, since they are part of the record",),
        noise_scale=noise.scale(task.clip),
    )


def _plan_initial(
    data: Individuals, task: ContrastiveTask, share: float, randomness: Randomness
) -> tuple[Callable[[], Array], DpEvent]:
    """Return the release of class moments that gives the initial W, and its cost."""
    mu = release_mu(task.epsilon, task.delta, hardened=task.exact) * math.sqrt(share)
    size = moment_size(data.points.shape[1], data.count)
    plan = plan_moments(mu, size=size, hardened=task.exact)

    def run() -> Array:
        moments = release_moments(
            data.points, data.codes, data.count, plan, randomness, data_norm=task.data_norm
        )
        return discriminant_start(moments, task.shape[0])

    return run, plan.event


def plan_perturbation(data: Individuals, task: ContrastiveTask, randomness: Randomness) -> Plan:
    """Return the plan of DPP-13: each individual perturbed once, half of epsilon on the features and half on the class.

    ``data.points`` are not clipped yet.
    """
    epsilon = task.epsilon

    def run() -> Array:
        noisy, labels = data.points, data.codes
        if task.private:
            noisy, labels = perturb_individuals(
                noisy,
                labels,
                data.count,
                epsilon_features=epsilon / 2,
                epsilon_class=epsilon / 2,
                bound=task.data_norm,
                randomness=randomness,
            )
        # Post-processing from here on: brought back to the scale the margin is meant for.
        points = clip_records(noisy, task.data_norm)

        def draw() -> Batch:
            index = random_matching(len(points), randomness)
            return points, index, labels[index[:, 0]] != labels[index[:, 1]]

        return _descend(task, randomness, None, float(len(points) // 2), draw)

    return Plan(
        event=_pure_or_none(epsilon),
        sensitivity=2.0 * task.data_norm,
        run=run,
        mechanism="metric learning on individuals perturbed once each (discrete Laplace, k-ary randomised response)",
        proof="mechanisms.md DPP-13 (sound form) and 2.2; pairs are post-processing",
        epsilon=epsilon,
        delta=0.0,
        assumptions=("the number of records and the list of classes are public",),
        notes=("holds locally, also against whoever collects the records",),
        arithmetic=("exact", HARDENED_NOTE),
    )


# --------------------------------------------------------------------------------------------------------------------
# From an edge list


def group_size(
    options: EdgeListOptions, declared: int | None, epsilon: float, graph: PairGraph
) -> int:
    """Return κ, how many pairs may change together: declared, or computed from a topology that is public."""
    node = isinstance(options, NodeDP)
    if options.topology == "private":
        if declared is None and not math.isfinite(epsilon):
            return 1
        if declared is None:
            raise InvalidParameterError(
                "kappa must be declared when the topology is private: computed from the pairs it would reveal them "
                "(mechanisms.md DPP-3). Give a public bound on how many pairs change together"
                + (", here the degree cap." if node else ", or topology='public' if it is.")
            )
        return int(declared)
    relationship = cast(
        Literal["transitive", "intransitive"], getattr(options, "relationship", "transitive")
    )
    true = graph.max_degree if node else graph.kappa_bound(relationship)
    if declared is not None and declared < true:
        raise InvalidParameterError(
            f"kappa must be at least {true}, the {'largest degree' if node else 'bound'} of the public topology; "
            f"found {declared}. Raise kappa, or leave it out to use {true}."
        )
    return true if declared is None else int(declared)


def _adjacency(options: Edges | Pure | NodeDP) -> tuple[Adjacency, float]:
    """Return the adjacency of an edge list and how far one pair moves a sum, in units of the clip."""
    if options.adjacency == "replace-one":
        return Adjacency.REPLACE_ONE, 2.0
    return Adjacency.ZERO_OUT, 1.0


def _group(kappa: int) -> str:
    return "any one pair" if kappa == 1 else f"any {kappa} pairs"


def _unit(task: ContrastiveTask) -> str:
    if isinstance(task.options, NodeDP):
        return "all pairs of one individual"
    return _group(task.kappa)


def _assumptions(task: ContrastiveTask) -> tuple[str, ...]:
    options = cast(EdgeListOptions, task.options)
    common = ("the number of pairs is public",)
    if options.topology == "public":
        return (*common, "the topology of the pairs is public")
    if isinstance(options, NodeDP):
        return (
            *common,
            f"no individual can be in more than {task.kappa} pairs, declared in public",
        )
    return (*common, f"kappa = {task.kappa} was declared without looking at the pairs")


def _exposures(task: ContrastiveTask) -> tuple[str, ...]:
    public = cast(EdgeListOptions, task.options).topology == "public"
    return ("who is paired with whom",) if public else ()


def _notes(task: ContrastiveTask, graph: PairGraph) -> tuple[str, ...]:
    if isinstance(task.options, NodeDP):
        return ()
    if cast(EdgeListOptions, task.options).topology == "public" and graph.max_degree <= task.kappa:
        return (
            "nobody is in more pairs than kappa, so all pairs of one individual are covered together",
        )
    return (
        f"an individual in more than {task.kappa} pairs is not protected as a whole, only any {task.kappa} of the pairs "
        "(mechanisms.md DPP-12)",
    )


def plan_edges(pairs: PairList, task: ContrastiveTask, randomness: Randomness) -> Plan:
    """Return the plan of descent on all pairs or on a sample of them (mechanisms.md 4.3 B).

    Every pair enters a step by its own coin; kappa clipped gradients move the sum by at most kappa C.
    """
    options = cast(Edges | NodeDP, task.options)
    adjacency, factor = _adjacency(options)
    q, steps, m = float(options.sampling_rate), int(options.n_steps), len(pairs.index)
    if q == 1.0:
        noise, event = _every_pair_noise(task, factor * task.kappa)
    elif adjacency is Adjacency.REPLACE_ONE:
        raise InvalidParameterError(
            "adjacency='replace-one' needs sampling_rate = 1: groups of sampled pairs are accounted for zero-out only. "
            "Use zero-out (a changed pair then costs (2ε, (1 + e^ε)δ)) or sampling_rate=1."
        )
    else:
        # z = σ/C of sum and count together.
        z = group_poisson_sigma(task.epsilon, task.delta, task.kappa, q, steps)
        event = group_poisson_event(z, task.kappa, q, steps)
        mu = task.kappa / z if z > 0 else math.inf
        size = task.shape[0] * task.shape[1]
        noise = _StepNoise(task.kappa, mu, size, adaptive=bool(options.adaptive_clip))

    def draw() -> Batch:
        if q == 1.0:
            return pairs.points, pairs.index, pairs.dissimilar
        chosen = randomness.uniform(m) < q
        return pairs.points, pairs.index[chosen], pairs.dissimilar[chosen]

    sampling = "all pairs" if q == 1.0 else f"Poisson sampling at rate {q:g}"
    return Plan(
        event=event,
        sensitivity=factor * task.kappa * task.clip,
        run=lambda: _descend(task, randomness, noise, q * m, draw),
        mechanism=(
            f"contrastive metric learning on an edge list ({steps} steps, {sampling}, Gaussian noise, kappa = {task.kappa})"
        ),
        proof="mechanisms.md 4.3 B; groups of pairs by 1.2 (all pairs) or 1.4 (mixtures of Gaussians)",
        adjacency=adjacency,
        unit=_unit(task),
        epsilon=task.epsilon,
        assumptions=_assumptions(task)
        + (() if q == 1.0 else ("the sampling coins are secret and independent",)),
        not_protected=_exposures(task),
        notes=_notes(task, pairs.graph),
        noise_scale=noise.scale(task.clip),
    )


def plan_pure(pairs: PairList, task: ContrastiveTask, randomness: Randomness) -> Plan:
    """Return the plan of descent with Laplace noise (mechanisms.md 4.3 C).

    Joint l1 clip, disjoint batches, exact discrete Laplace noise; losses add up over an epoch.
    """
    options = cast(Pure | NodeDP, task.options)
    adjacency, factor = _adjacency(options)
    m, batches, epochs, clip = len(pairs.index), options.n_batches, options.n_steps, task.clip
    sensitivity = factor * task.kappa * clip
    # The shift itself is paid for once in a pass, whatever number of batches it is spread over (DPP-8).
    noise = plan_laplace(
        sensitivity,
        task.epsilon,
        task.shape[0] * task.shape[1],
        passes=epochs,
        touched=min(task.kappa, batches),
    )

    def run() -> Array:
        initial = task.initial(randomness)
        step = task.step / batches
        descent = DriftDescent(initial, step, shrinkage=options.shrinkage, randomness=randomness)
        # The position in the list, not what stands there, decides the batch (DPP-7).
        batch_of = randomness.integers(batches, m)
        normaliser = m / batches * clip
        for batch in [*range(batches)] * epochs:
            members = np.flatnonzero(batch_of == batch)
            total, _ = clipped_gradient_sum(
                descent.W,
                pairs.points,
                pairs.index[members],
                pairs.dissimilar[members],
                margin=task.margin,
                clip=clip,
                order=1,
            )
            spread = math.sqrt(2.0) * noise.scale / normaliser
            descent.descend(noise.release(total, randomness) / normaliser, spread)
        return descent.W

    return Plan(
        event=noise.event(),
        sensitivity=sensitivity,
        run=run,
        mechanism=(
            f"contrastive metric learning on an edge list ({epochs} epochs of {batches} disjoint batches, discrete Laplace "
            f"noise, kappa = {task.kappa})"
        ),
        proof="mechanisms.md 4.3 C and DPP-8; exact noise on a lattice by 2.2",
        adjacency=adjacency,
        unit=_unit(task),
        epsilon=task.epsilon,
        delta=0.0,
        assumptions=_assumptions(task),
        not_protected=_exposures(task),
        notes=_notes(task, pairs.graph),
        arithmetic=numerical_claim(True, m),
        noise_scale=noise.scale / clip,
    )


# --------------------------------------------------------------------------------------------------------------------
# As published

_WHY = {
    "dpp_thm1": "each of the d' rows of a batch spends the budget again (mechanisms.md DPP-2)",
    "dpp_s": "the noise scale is computed from the private batch and reveals it (mechanisms.md DPP-1)",
    "scdf": "independent staircase noise costs its epsilon on every coordinate of every touched batch (mechanisms.md DPP-4)",
    "duchi": "each row of every touched batch costs the whole budget (mechanisms.md DPP-2, DPP-5)",
}


def plan_published(pairs: PairList, task: ContrastiveTask, randomness: Randomness) -> Plan:
    """Return the plan of Algorithm 1 as printed, with the true guarantee of mechanisms.md 4.3."""
    options = cast(Published, task.options)
    variant, epsilon = cast(Variant, options.variant), task.epsilon
    m, size = len(pairs.index), int(options.batch_size)
    batches = math.ceil(m / size)
    rows, columns = task.shape
    truth = true_epsilon(
        variant, epsilon, kappa=task.kappa, n_rows=rows, n_columns=columns, batches=batches
    )
    rate = 1.0 if options.learning_rate is None else float(options.learning_rate)

    def run() -> Array:
        return publish(
            variant,
            task.initial(randomness),
            pairs.points,
            pairs.index,
            pairs.dissimilar,
            epsilon=epsilon,
            kappa=task.kappa,
            margin=task.margin,
            clip=task.clip,
            batch_size=size,
            epochs=int(options.n_steps),
            steps=rate * step_sizes(options.n_steps * batches),
            randomness=randomness,
        )

    # Duchi's output takes finitely many values whatever the input, so float64 noise artefacts do not arise.
    exact = variant == "duchi"
    true = "nothing is proved" if truth is None else f"the true bound is epsilon = {truth:g}"
    return Plan(
        event=_pure_or_none(math.inf if truth is None else truth),
        sensitivity=2.0 * task.kappa * task.clip / min(size, m),
        run=run,
        mechanism=f"Algorithm 1 of the DPP paper as published ({variant}), sold as epsilon = {epsilon:g}",
        proof="mechanisms.md 4.3, published modes" if truth is not None else "",
        unit=f"{_group(task.kappa)} replaced in place",
        epsilon=truth,
        delta=0.0,
        proved=exact and truth is not None,
        unsound=f"Algorithm 1 as published, variant={variant!r}, does not guarantee epsilon = {epsilon:g}: "
        f"{_WHY[variant]}; {true}",
        assumptions=_assumptions(task),
        not_protected=_exposures(task),
        notes=(_WHY[variant],),
        arithmetic=("exact", "") if exact else ("real", CHEAP_PATH_NOTE),
    )
