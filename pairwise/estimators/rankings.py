"""Plans of linear rankings: public numbers decide noise and cost, and a run returns the ``Ranking`` that it released."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import compose
from pairwise.algorithms.auto import default_radius, default_scale_share
from pairwise.algorithms.coordinates import CoordinatePlan, Coordinates, plan_coordinates
from pairwise.algorithms.descent import RecordSums, noisy_descent, plan_descent, record_bounds
from pairwise.algorithms.moments import auc_direction, plan_moments, release_moments
from pairwise.algorithms.options import Algorithm, Ftrl, Gradient, OnPair, Pointwise, Statistics
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import FitPlan
from pairwise.estimators.perturbation import plan_output, plan_stream
from pairwise.estimators.threshold import candidates, right_answers
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_choice
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.losses import AUCPairs, pair_bounds

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """A released linear ranking of records that are clipped to ``data_norm``, then around a centre.

    Attributes
    ----------
    w : (d,) array
    coordinates : Coordinates
        What was released of the features: the centre, the norm around it, and the scaling.
    data_norm : float
    threshold : float or None
        What is subtracted from the score; None where nothing was paid for it.
    """

    w: Array
    coordinates: Coordinates
    data_norm: float
    threshold: float | None = None

    def scores(self, records: Array) -> Array:
        """Return the scores of records before the threshold is subtracted, shape (n,)."""
        scale, basis = self.coordinates.scale, self.coordinates.basis
        clipped = clip_records(records, self.data_norm)
        around = clip_records(clipped - self.coordinates.centre, scale)
        scores = np.asarray(around @ self.w)
        if basis is None:
            return scores
        # As it was learned: records that are long in the scaled features count by their direction.
        lengths = np.linalg.norm(around @ (basis.T / scale), axis=1)
        return np.asarray(scores / np.maximum(lengths, 1.0))


def check_two_classes(classes: NDArray[Any]) -> None:
    """Refuse class lists that have no AUC."""
    if len(classes) > 2:
        raise InvalidParameterError(
            "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
            f"{len(classes)}. Compare one class with the rest."
        )
    if len(classes) < 2:
        raise InvalidParameterError(
            "an AUC needs two classes; found one class. Check the labels, or pass classes=[negative, positive]."
        )


def uncentred(d: int, data_norm: float) -> Coordinates:
    """Return the coordinates of which nothing is released."""
    return Coordinates(np.zeros(d), data_norm)


def is_online(options: Algorithm) -> bool:
    """Return whether an algorithm takes streams."""
    return isinstance(options, OnPair | Ftrl)


def parameter_radius(options: Algorithm, data_norm: float, mu: float, n: int, d: int) -> float:
    """Return the radius of the parameter ball, in the units of the records."""
    given = getattr(options, "radius", None)
    if given is not None:
        return float(given)
    if isinstance(options, Ftrl) and math.isfinite(mu):
        # In so small a ball the loss is nearly linear and its minimiser the difference of the class means, which is
        # what noisy sums of gradients can find. The best of four radii on synthetic tables.
        return 0.25 / data_norm
    factor = 30.0 if isinstance(options, Pointwise) else 60.0
    return default_radius(mu, n, d, factor) / data_norm


def pair_sums(options: Algorithm, data_norm: float) -> Callable[[Array, NDArray[Any]], AUCPairs]:
    """Return what makes pair gradients of a table and its labels, by settings that are fixed here."""
    loss = getattr(options, "loss", "logistic")
    return lambda table, positive: AUCPairs(table, positive.astype(bool), loss, data_norm)


def stream_fit(options: Algorithm, stream: Any, run: Callable[[], Any]) -> FitPlan:
    """Return the plan of a fit that opens a stream."""
    return FitPlan(
        event=stream.event,
        sensitivity=stream.sensitivity,
        run=run,
        mechanism=f"{options.name}, {stream.description}",
        proof=stream.proof,
    )


@dataclass(frozen=True)
class RankingTask:
    """A table to be ranked, and what its ranking may cost: ``mu`` with the threshold's share of μ² in it."""

    options: Algorithm
    table: Array
    positive: NDArray[np.bool_]
    data_norm: float
    mu: float
    threshold_share: float
    randomness: Randomness

    def plan(self) -> FitPlan:
        """Return the plan of the ranking, and of its threshold where one is paid for; its run returns a ``Ranking``."""
        if isinstance(self.options, Gradient | Pointwise):
            plan = self._descent(self.options)
        elif isinstance(self.options, Statistics):
            plan = self._statistics(self.options)
        else:
            plan = self._perturbation()
        return self._with_threshold(plan) if self.threshold_share else plan

    def _left(self, spent: float) -> float:
        return self.mu * math.sqrt(1.0 - spent)

    def _with_threshold(self, plan: FitPlan) -> FitPlan:
        """Return the plan followed by the choice of a threshold for what it learned."""
        mu, share = self.mu, self.threshold_share
        choice = plan_choice(1.0, mu * math.sqrt(share))

        def run() -> Ranking:
            ranking: Ranking = plan.run()
            largest = float(np.linalg.norm(ranking.w)) * ranking.coordinates.scale
            thresholds = candidates(largest)
            counts = right_answers(ranking.scores(self.table), self.positive, thresholds)
            chosen = int(choice.release(counts, self.randomness))
            return replace(ranking, threshold=float(thresholds[chosen]))

        return replace(
            plan,
            event=compose([plan.event, choice.event()]),
            run=run,
            mechanism=f"{plan.mechanism}, threshold by the exponential mechanism for {share:g} of μ²",
            proof=f"{plan.proof}; heads of pairwise.estimators.threshold and of ChoicePlan",
        )

    def _coordinate_plan(
        self, options: Gradient | Pointwise | Statistics
    ) -> tuple[float, CoordinatePlan | None]:
        """Return the share of μ² that is spent beside the learning, and the private coordinates, if any."""
        (n, d), mu = self.table.shape, self.mu
        share, centre = self.threshold_share, float(options.centre_share)
        if centre == 0:
            return share, None
        scale = 0.0
        if isinstance(options, Pointwise):
            given = options.scale_share
            scale = default_scale_share(mu, n, d) if given is None else float(given)
        spent = share + centre + scale
        if not spent < 1:
            raise InvalidParameterError(
                f"threshold_share, centre_share and scale_share must be below 1 together; found {spent:.3g}. Leave a part "
                "for the ranking."
            )
        return spent, plan_coordinates(n, d, self.data_norm, mu, centre, scale)

    def _released(self, plan: CoordinatePlan | None) -> tuple[Coordinates, Array]:
        """Release the coordinates, if any, and return them with the records in them."""
        found = uncentred(self.table.shape[1], self.data_norm)
        if plan is not None:
            found = plan.release(self.table, self.randomness)
        return found, found.of(clip_records(self.table, self.data_norm))

    def _ranking(self, w: Array, coordinates: Coordinates) -> Ranking:
        return Ranking(coordinates.pull_back(w), coordinates, self.data_norm)

    def _descent(self, options: Gradient | Pointwise) -> FitPlan:
        n, d = self.table.shape
        spent, coordinates = self._coordinate_plan(options)
        left = self._left(spent)

        # Sensitivity, steps and noise are planned for records of norm 1 and do not depend on the released scale.
        radius = parameter_radius(options, self.data_norm, left, n, d) * self.data_norm
        if isinstance(options, Pointwise):
            what, bounds = "pointwise", record_bounds(n, d)
        else:
            what, bounds = f"pairwise ({options.loss})", pair_bounds(n, d, options.loss)
        steps = plan_descent(bounds, left, radius, steps=options.steps)

        def run() -> Ranking:
            found, z = self._released(coordinates)
            if isinstance(options, Pointwise):
                sums: AUCPairs | RecordSums = RecordSums(z, self.positive)
            else:
                sums = AUCPairs(z, self.positive, options.loss)
            w = noisy_descent(sums, steps, self.randomness)
            # The intercept, where there is one, is no part of a ranking.
            return self._ranking(w[:d], found)

        described = "" if coordinates is None else coordinates.description
        return FitPlan(
            event=compose([*_events(coordinates), steps.event]),
            sensitivity=steps.noise.sensitivity,
            run=run,
            mechanism=f"noisy {what} gradient descent ({steps.batching}, {steps.steps} steps{described})",
            proof=_head_of("descent", coordinates),
        )

    def _statistics(self, options: Statistics) -> FitPlan:
        spent, coordinates = self._coordinate_plan(options)
        release = plan_moments(self._left(spent), self.table.shape[1], 2)

        def run() -> Ranking:
            found, z = self._released(coordinates)
            codes = self.positive.astype(np.int64)
            moments = release_moments(z, codes, 2, release, self.randomness)
            return self._ranking(auc_direction(moments), found)

        described = "" if coordinates is None else coordinates.description
        return FitPlan(
            event=compose([*_events(coordinates), release.event()]),
            sensitivity=release.sensitivity,
            run=run,
            mechanism=f"Gaussian release of class sums, counts and second moment{described}; square-loss AUC from it",
            proof=_head_of("moments", coordinates),
        )

    def _perturbation(self) -> FitPlan:
        """Return the plan of an algorithm of the papers, on records around the origin."""
        options, R, (n, d) = self.options, self.data_norm, self.table.shape
        left = self._left(self.threshold_share)
        radius = parameter_radius(options, R, left, n, d)
        make_sums = pair_sums(options, R)
        if is_online(options):
            stream = plan_stream(options, n, d, R, radius, left)

            def released() -> Array:
                opened = stream.open(make_sums, d, self.randomness)
                opened.receive(self.table, self.positive)
                return opened.released

            plan = stream_fit(options, stream, released)
        else:
            sums = make_sums(self.table, self.positive)
            plan = plan_output(options, sums, radius, left, self.randomness)
        return replace(plan, run=lambda: Ranking(np.asarray(plan.run()), uncentred(d, R), R))


def _events(coordinates: CoordinatePlan | None) -> list[Any]:
    return [] if coordinates is None else coordinates.events()


def _head_of(module: str, coordinates: CoordinatePlan | None) -> str:
    """Return where the sensitivities are proved."""
    proof = f"head of pairwise.algorithms.{module}"
    return proof if coordinates is None else f"{proof}; head of pairwise.algorithms.coordinates"
