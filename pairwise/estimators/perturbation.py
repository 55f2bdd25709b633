"""Plans of GIGA, of SGD and of the private leader, for any convex pair sums: sound, and as published with what is true.

Here a budget, a schedule, a certified sensitivity and the noise become a ``Plan``. The recursions and the steps live in
``giga``, ``sgd`` and ``ftrl``, pair gradients in ``gradient``, and what users see in ``auc`` and ``metric``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.accounting.gaussian import gaussian_delta
from pairwise.accounting.zcdp import zcdp_rho_classic
from pairwise.algorithms import ftrl, giga, sgd
from pairwise.algorithms.options import (
    ConvexOptions,
    Ftrl,
    Gradient,
    OffPair,
    OnPair,
    Options,
    SGDOutput,
    Statistics,
)
from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_number, check_positive, check_whole
from pairwise.noise.release import GaussianPlan, plan_gaussian
from pairwise.pairs.losses import get_loss
from pairwise.plan import Plan

if TYPE_CHECKING:
    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import L2Ball
    from pairwise.pairs.sums import AUCPairs, MetricPairs

__all__ = [
    "PAIR_LOSS_ALGORITHMS",
    "ConvexTask",
    "Request",
    "check_request",
    "describe_stream",
    "plan_perturbation",
    "plan_stream",
    "unread_in_mode",
]

Array = NDArray[np.float64]

PAIR_LOSS_ALGORITHMS: dict[str, Options] = {
    "gradient": Gradient(),
    "onpairstrc": OnPair(),
    "onpairc": OnPair(strong=False),
    "offpairstrc": OffPair(),
    "offpairc": OffPair(strong=False),
    "sgd-output": SGDOutput(),
    "ftrl": Ftrl(),
    "statistics": Statistics(),
}

# A delta that underflows is not zero.
_SMALLEST = 1e-300

# SGD compares every record of a block with all earlier ones; only the hinge has a way round that.
_LARGEST_COMPARED = 20_000


@dataclass(frozen=True)
class ConvexTask:
    """A pairwise problem in a convex parameter: the data side, the domain, and the length of the path of steps.

    Attributes
    ----------
    sums : AUCPairs or MetricPairs (in M)
        Gradients bounded by clipped records, never clipped one by one.
    domain : L2Ball or FrobeniusBall
    path_length : float
        Sum of all step sizes of an offline run, public: a mean gradient that never turned would carry w that far.
    block : int
        Records per step of SGD.
    passes : tuple of int
        Passes over the records of SGD, for a smooth loss and for one with a kink.
    """

    sums: AUCPairs | MetricPairs
    domain: L2Ball
    path_length: float
    block: int
    passes: tuple[int, int]

    @property
    def anchor(self) -> Array:
        """w₀ = 0, independent of the data."""
        d = self.sums.dimension
        return np.zeros((d, d) if getattr(self.sums, "parameter", "") == "matrix" else d)

    @property
    def smoothness(self) -> float | None:
        """L of the data part of the loss."""
        return self.sums.loss.smoothness(self.sums.data_norm)

    def perturbed(self, w: Array, add: Callable[[Array], Array]) -> Array:
        """Return w with noise, symmetric where it is a matrix, back in the domain: all but the noise is post-processing."""
        noisy = add(w)
        if noisy.ndim == 2:
            # Halves the dimensions of the noise (mechanisms.md 5.2).
            noisy = (noisy + noisy.T) / 2.0
        return np.asarray(self.domain.project(noisy))


@dataclass(frozen=True)
class Request:
    """Settings of a convex algorithm, checked.

    Attributes
    ----------
    algorithm, mode : str
    epsilon, delta : float
    mu : float
        What this part of a fit may cost (``accounting.release_mu``).
    alpha, rate, steps : float, float, int or None
        None: the default from public numbers.
    sums : str
        Of the private leader.
    hardened, allow_vacuous : bool
    """

    algorithm: str
    mode: str
    epsilon: float
    delta: float
    mu: float
    alpha: float | None = None
    rate: float | None = None
    steps: int | None = None
    sums: str = "square-root"
    hardened: bool = False
    allow_vacuous: bool = False

    @property
    def strong(self) -> bool:
        """Whether the algorithm is one for strongly convex losses."""
        return self.algorithm.endswith("strc")

    @property
    def published(self) -> bool:
        """Whether the printed formulas are to be run."""
        return self.mode == "published"

    def regulariser(self, n: int) -> float:
        """Return α: 1 (strongly convex) or n^-1/4 by default, as published 1e-3 or n^-1/2 (mechanisms.md H-2, H-3)."""
        if self.alpha is not None:
            return float(self.alpha)
        if self.published:
            return 1e-3 if self.strong else n**-0.5
        return 1.0 if self.strong else n**-0.25


def check_request(
    options: Options, mode: str, epsilon: float, *, kind: Literal["auc", "metric"], hardened: bool
) -> None:
    """Refuse an algorithm, mode and noise that do not go together, in words that say what does."""
    check_number("epsilon", epsilon)
    for name in ("alpha", "clip", "radius", "rate"):
        value = getattr(options, name, None)
        if value is not None:
            check_positive(**{name: value})
    if getattr(options, "scale_share", None) is not None:
        check_number("scale_share", options.scale_share)  # type: ignore[attr-defined]
    for name in ("steps", "batch_size"):
        if getattr(options, name, None) is not None:
            check_whole(name, getattr(options, name))
    loss = get_loss(options.loss if isinstance(options, ConvexOptions) else "logistic", kind)
    if mode not in ("sound", "published"):
        raise InvalidParameterError(f"mode must be 'sound' or 'published'; found {mode!r}.")
    if mode == "published" and not isinstance(options, OnPair | OffPair | SGDOutput):
        raise InvalidParameterError(
            f"algorithm {options.name!r} has no published form. Use mode='sound'."
        )
    if mode == "published" and not math.isfinite(epsilon):
        raise InvalidParameterError(
            "the published noise formulas need a finite epsilon; found infinity. Use mode='sound'."
        )
    if mode == "published" and hardened:
        raise InvalidParameterError(
            "the published noise is continuous; found hardened=True. Use mode='sound'."
        )
    if loss.smoothness(1.0) is None and isinstance(options, OnPair | OffPair):
        raise InvalidParameterError(
            f"{options.name} needs a smooth loss; found one with a kink. Use loss='logistic', or algorithm='gradient' or "
            "'sgd-output'."
        )


def unread_in_mode(options: Options, mode: str) -> dict[str, str]:
    """Return the options that an algorithm reads in another mode or form only, each with what it does not go with."""
    if not isinstance(options, OffPair):
        return {}
    if options.strong:
        return {"rate": "strong=True, whose step sizes follow from alpha"}
    return {"rate": "mode='published'"} if mode == "published" else {"alpha": "mode='sound'"}


def plan_perturbation(task: ConvexTask, request: Request, randomness: Randomness) -> Plan:
    """Return the plan of an offline algorithm: ``offpairstrc``, ``offpairc`` or ``sgd-output``.

    Parameters
    ----------
    task : ConvexTask
    request : Request
    randomness : Randomness
        Draws the public sequence of SGD at once, and the noise when the plan runs.
    """
    n = task.sums.n
    if request.algorithm == "sgd-output":
        if n > _LARGEST_COMPARED and not getattr(task.sums, "hinge", False):
            raise InvalidParameterError(
                f"sgd-output compares all pairs with this loss; expected n <= {_LARGEST_COMPARED}, found {n}. "
                "Use algorithm='gradient'"
                + (
                    "."
                    if task.anchor.ndim == 2
                    else ", or loss='hinge', which needs one sort a step."
                )
            )
        return (_sgd_published if request.published else _sgd)(task, request, randomness)
    return (_offline_published if request.published else _offline)(task, request, randomness)


def _output(task: ConvexTask, request: Request, bound: float) -> GaussianPlan:
    return plan_gaussian(bound, request.mu, task.anchor.size, hardened=request.hardened)


# --------------------------------------------------------------------------------------------------------------------
# SGD


def _sgd(task: ConvexTask, request: Request, randomness: Randomness) -> Plan:
    sums, L = task.sums, task.smoothness
    # Smooth losses do not expand, so few steps suffice; the hinge needs many small ones (its √t term).
    passes = task.passes[0 if L is not None else 1]
    if request.steps is not None:
        passes = max(1, round(request.steps * task.block / sums.n))
    sequence = sgd.shuffled_blocks(sums.n, passes, task.block, randomness)
    T = sequence.steps
    rate = task.path_length / T if request.rate is None else float(request.rate)
    if L is not None and request.rate is None:
        rate = min(rate, 2.0 / L)
    smooth = L is not None and rate <= 2.0 / L
    weighted, _ = sgd.block_weights(sequence)
    bound = sgd.average_sensitivity(float(weighted.max()), T, rate, sums.pair_change, smooth=smooth)
    noise = _output(task, request, min(bound, task.domain.diameter))

    def run() -> Array:
        average = sgd.blocked_sgd(sums, sequence, rate, task.domain, task.anchor)
        return task.perturbed(average, lambda w: noise.release(w, randomness))

    return Plan(
        event=noise.event(),
        sensitivity=noise.sensitivity,
        run=run,
        mechanism=(
            f"blocked pairwise SGD with output perturbation ({sums.loss.name}, {passes} shuffled passes, {T} steps)"
        ),
        proof="mechanisms.md 6.3 for the sequence that was drawn, " + _conversion(request),
    )


def _sgd_published(task: ConvexTask, request: Request, randomness: Randomness) -> Plan:
    sums, L, n = task.sums, task.smoothness, task.sums.n
    T = 10 * n if request.steps is None else int(request.steps)
    rate = T**-0.5 if request.rate is None else float(request.rate)
    indices = randomness.integers(n, (T,))
    sigma = sgd.published_sigma(n, T, rate, sums.pair_bound, request.epsilon, request.delta)
    bound = sgd.realised_sensitivity(
        indices, n, rate, sums.pair_change, smooth=L is not None and rate <= 2.0 / L
    )
    bound = min(bound, task.domain.diameter)
    noise = GaussianPlan(bound, sigma)
    sequence = sgd.BlockSequence(n, tuple(indices.reshape(-1, 1)))

    def run() -> Array:
        average = sgd.blocked_sgd(sums, sequence, rate, task.domain, task.anchor)
        return task.perturbed(average, lambda w: noise.release(w, randomness))

    true = gaussian_delta(request.epsilon, bound / sigma)
    return Plan(
        event=noise.event(),
        sensitivity=bound,
        run=run,
        mechanism=f"pairwise SGD with the noise of eq. 5 (YANG), T = {T}",
        proof="mechanisms.md 6.3 and 1.1 for the sequence that was drawn; the paper's own proof is broken (Y-1 to Y-4)",
        epsilon=request.epsilon,
        delta=max(true, _SMALLEST),
        proved=False,
        unsound=(
            "the published proof of eq. 5 does not hold (mechanisms.md 6.2); the statement gives the delta that the "
            "certified sensitivity of the sequence drawn implies, and eq. 5 adds far more noise than is needed"
        ),
        notes=(
            f"asked for delta = {request.delta:.3g}; the delta stated is what the noise gives for the sequence "
            "that was drawn",
        ),
    )


# --------------------------------------------------------------------------------------------------------------------
# GIGA, offline


def _certain_smoothness(task: ConvexTask) -> float:
    L = task.smoothness
    assert L is not None  # check_request refuses a loss with a kink
    return L


def _offline(task: ConvexTask, request: Request, randomness: Randomness) -> Plan:
    sums, L, n = task.sums, _certain_smoothness(task), task.sums.n
    if request.strong:
        steps = giga.schedule(n, L, request.regulariser(n))
    else:
        rate = min(task.path_length / n, 2.0 / L) if request.rate is None else float(request.rate)
        steps = giga.schedule(n, L, 0.0, kind="constant", rate=rate)
    bound = giga.certified_sensitivity(steps, sums.pair_change, L, task.domain.diameter).average
    noise = _output(task, request, bound)

    def run() -> Array:
        average = giga.offline_giga(sums, steps, task.domain, task.anchor)
        return task.perturbed(average, lambda w: noise.release(w, randomness))

    return Plan(
        event=noise.event(),
        sensitivity=bound,
        run=run,
        mechanism=f"pairwise GIGA with output perturbation ({request.algorithm}, alpha = {steps.alpha:.3g})",
        proof="mechanisms.md 5.2 (certified recursion), " + _conversion(request),
    )


def _published_constants(
    task: ConvexTask, request: Request, n: int
) -> tuple[float, float, float, int]:
    """Return G, L, α and T₁ of the algorithm as printed (regulariser included in the convex versions)."""
    alpha = request.regulariser(n)
    G = task.sums.pair_bound
    # The regulariser is part of the printed loss: lambda in the strongly convex runs, alpha in the convex ones.
    L = _certain_smoothness(task) + alpha
    if not request.strong:
        G += alpha * task.domain.diameter
    burn_in = giga.published_burn_in(L, alpha)
    if burn_in >= n and not request.allow_vacuous:
        raise InvalidParameterError(
            f"the published burn-in is T1 = {burn_in} steps, not below the {n} records: the output would be random "
            "noise. Use mode='sound', a larger alpha, or allow_vacuous=True to run it all the same."
        )
    return G, L, alpha, burn_in


def _published_schedule(n: int, L: float, alpha: float, burn_in: int) -> giga.GigaSchedule:
    return giga.schedule(n, L, alpha, kind="published", burn_in=min(burn_in, n))


def _offline_published(task: ConvexTask, request: Request, randomness: Randomness) -> Plan:
    sums, n, epsilon = task.sums, task.sums.n, request.epsilon
    G, L, alpha, burn_in = _published_constants(task, request, n)
    steps = _published_schedule(n, L, alpha, burn_in)
    sigma = giga.published_offline_sigma(n, G, alpha, epsilon, request.delta)
    certified = giga.certified_sensitivity(
        steps, sums.pair_change, _certain_smoothness(task), task.domain.diameter
    )
    # The printed average is over all n iterates, the random ones included.
    bound = certified.average * steps.active / n
    noise = GaussianPlan(bound, sigma)
    vacuous = steps.active == 0

    def run() -> Array:
        average = giga.offline_giga(sums, steps, task.domain, task.anchor, random_start=randomness)
        return task.perturbed(average, lambda w: noise.release(w, randomness))

    true = 0.0 if vacuous else gaussian_delta(epsilon, bound / sigma)
    return Plan(
        event=compose([]) if vacuous else noise.event(),
        sensitivity=bound,
        run=run,
        mechanism=f"{request.algorithm} as published (HUAI), T1 = {burn_in}",
        proof="mechanisms.md 5.2, 1.1: certified sensitivity under the published noise",
        epsilon=0.0 if vacuous else epsilon,
        delta=0.0 if vacuous else max(true, _SMALLEST),
        unsound=_published_warning(vacuous),
        notes=_published_notes(vacuous, request.delta),
    )


# --------------------------------------------------------------------------------------------------------------------
# GIGA, online


def plan_stream(task: ConvexTask, request: Request, n: int) -> giga.OnlinePlan | ftrl.LeaderPlan:
    """Return the noise of a stream of at most ``n`` records; only public bounds of ``task.sums`` are read."""
    if request.algorithm == "ftrl":
        sums = task.sums
        return ftrl.plan_leader(
            n,
            sums.pair_change,
            sums.pair_bound,
            task.anchor.size,
            task.domain.radius,
            request.mu,
            sums=request.sums,  # type: ignore[arg-type]
            hardened=request.hardened,
        )
    L, change = _certain_smoothness(task), task.sums.pair_change
    diameter = task.domain.diameter
    if not request.published:
        alpha = request.regulariser(n)
        burn_in = min(giga.sharp_burn_in(L + alpha, alpha), n // 4)
        steps = giga.schedule(n, L, alpha, burn_in=burn_in)
        return giga.plan_online(steps, change, L, diameter, request.mu, hardened=request.hardened)
    G, L_published, alpha, burn_in = _published_constants(task, request, n)
    steps = _published_schedule(n, L_published, alpha, burn_in)
    rho = zcdp_rho_classic(request.epsilon, request.delta)  # exactly (H-8)
    sigmas = np.zeros(n + 1)
    for t in range(steps.first, n + 1):
        sigmas[t] = giga.published_online_sigma(n, burn_in, G, alpha, rho, t)
    bound = giga.certified_sensitivity(steps, change, L, diameter)
    event = giga.published_online_event(n, burn_in, G, alpha, rho)
    return giga.OnlinePlan(steps, sigmas, bound.per_step, event)


def describe_stream(
    online: giga.OnlinePlan | ftrl.LeaderPlan,
    request: Request,
    run: Callable[[], Any],
    not_protected: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of a stream whose noise is fixed and that ``run`` starts or plays."""
    vacuous = online.vacuous
    published = request.published
    return Plan(
        event=online.event,
        sensitivity=online.sensitivity,
        run=run,
        mechanism=(
            f"{request.algorithm}{' as published (HUAI)' if published else ''}, {online.description}"
        ),
        proof=(
            "mechanisms.md 5.1 H-1 (lemma 4), HUAI theorem 1 given the clipped records"
            if published
            else online.proof
        ),
        epsilon=(0.0 if vacuous else request.epsilon) if published else None,
        delta=0.0 if vacuous and published else None,
        unsound=_published_warning(vacuous) if published else "",
        notes=_published_notes(vacuous, None) if published else (),
        not_protected=not_protected,
    )


def _conversion(request: Request) -> str:
    return "2.2 and 1.3" if request.hardened else "1.1"


def _published_warning(vacuous: bool) -> str:
    if vacuous:
        return (
            "the published burn-in covers all records: the output is random and says nothing about the data "
            "(mechanisms.md H-2)"
        )
    return (
        "mode='published' runs HUAI's printed noise, which is many times what the certified sensitivity needs "
        "(mechanisms.md H-2); the statement gives what is true"
    )


def _published_notes(vacuous: bool, asked: float | None) -> tuple[str, ...]:
    if vacuous:
        return ("nothing that depends on the records was released",)
    if asked is None:
        return ()
    return (
        f"asked for delta = {asked:.3g}; the delta stated is that of the printed noise for the certified sensitivity",
    )
