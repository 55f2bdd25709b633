"""Every estimator, attacked from outside: neighbours that move what it releases, and tests that tell two neighbours apart.

The attacker hands whole tables to ``fit`` and sees what the Gaussian and Laplace mechanisms are given. Neighbours share all
public randomness (one seed), so what differs is what the record did. From the worst pair found, the distinguishing audit
draws the release many times, applies the likelihood-ratio test at a threshold fixed in advance by theory, and turns error
counts into a lower bound on epsilon. Clopper-Pearson limits at 1e-8 per side keep the false alarms of all audits of a run
together below 1e-6.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

import pairwise.algorithms.contrastive_plans
from pairwise import (
    DPPMetricLearner,
    Edges,
    Ftrl,
    Gradient,
    InputPerturbation,
    Matching,
    NodeDP,
    Pointwise,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMetricLearner,
    Pure,
    SGDOutput,
)
from pairwise.accounting.gaussian import gaussian_epsilon, gaussian_mu
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.coordinates import Coordinates, centre_queries
from pairwise.algorithms.gradient import noisy_descent, plan_gradient
from pairwise.algorithms.moments import svec
from pairwise.noise.continuous import gaussian
from pairwise.noise.lattice import lattice_gaussian, lattice_laplace
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan, LaplacePlan, PlannedRelease
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.sums import AUCPairs

DELTA = 1e-5
CONFIDENCE = 1e-8
RECORDS = 4  # of every table: few others to hide among


def lower_bounds(
    hits: np.ndarray, false: np.ndarray, runs: int, delta: float = DELTA
) -> np.ndarray:
    """Return lower bounds on epsilon from how often events happened under the one and the other neighbour."""
    low = np.where(hits > 0, beta.ppf(CONFIDENCE, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(
        false < runs, beta.ppf(1 - CONFIDENCE, false + 1, np.maximum(runs - false, 1)), 1.0
    )
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)


def lower_bound(hits: int, false: int, runs: int, delta: float = DELTA) -> float:
    """Return the lower bound of one event."""
    return float(lower_bounds(np.array(hits), np.array(false), runs, delta))


# --------------------------------------------------------------------------------------------------------------------
# What an estimator hands to its noise


@dataclass
class Release:
    """One release: what it is of, and its plan."""

    value: np.ndarray
    plan: GaussianPlan | LaplacePlan

    @property
    def laplace(self) -> bool:
        return isinstance(self.plan, LaplacePlan)

    @property
    def sigma(self) -> float:
        """Scale of the noise."""
        return self.plan.scale if isinstance(self.plan, LaplacePlan) else self.plan.sigma

    def draw(self, coordinate: int, runs: int, factor: float, source: Randomness) -> np.ndarray:
        """Draw one coordinate many times, with the estimator's own mechanism at ``factor`` times its noise."""
        values = np.full(runs, self.value[coordinate])
        lattice = self.plan.lattice
        if lattice is None:
            return gaussian(values, self.sigma * factor, source)
        plan = replace(lattice, scale=lattice.scale * factor, dimension=runs)
        return (lattice_laplace if self.laplace else lattice_gaussian)(values, plan, source)


@dataclass
class Seen:
    """The releases of one fit, and all of them one after another in units of their noise."""

    releases: list[Release]
    scaled: np.ndarray
    sensitivity: float


def watch(patch: pytest.MonkeyPatch, apart: bool = False) -> list[Release]:
    """Record every release from now on, at the one site that noise passes.

    ``apart``: noise around 0 comes out, the same whatever the data. So two neighbours share one past, given which their
    later releases are compared, as where releases are made in coordinates that were released before.
    """
    seen: list[Release] = []

    def release(plan, value, randomness, *, rows=False):
        if apart:
            value, shown = np.zeros_like(value), value
        else:
            shown = value
        seen.append(Release(np.array(shown, dtype=float).ravel(), plan))
        if isinstance(plan, LaplacePlan):
            return lattice_laplace(value, plan.lattice, randomness)
        return gaussian(value, plan.sigma, randomness)

    patch.setattr(PlannedRelease, "release", release)
    return seen


COMMON = {"epsilon": 1.0, "delta": DELTA, "classes": [0, 1], "random_state": 0}


def _auc(**settings):
    # One release each: the centre and the threshold are releases of their own, searched below.
    alone = {"threshold_share": 0.0}
    if settings["algorithm"] == "statistics" or isinstance(
        settings["algorithm"], Gradient | Pointwise
    ):
        alone["centre_share"] = 0.0
    return lambda: PrivateAUCClassifier(**{**COMMON, **alone, **settings})


def _metric(**settings):
    return lambda: PrivateMetricLearner(**{**COMMON, **settings})


def _matching():
    # The release that gives a start is that of PrivateLDA, which is searched by itself.
    return DPPMetricLearner(
        algorithm=Matching(n_steps=1, start_share=0.0), delta=DELTA, random_state=0
    )


# What each estimator releases, and the least share of its bound that the search has to reach. The share is of the whole
# run in units of its noise, where several things are released, and of ``sensitivity()`` otherwise.
ESTIMATORS = {
    "auc gradient, hinge, four steps": (_auc(algorithm=Gradient(loss="hinge", steps=4)), 0.99),
    "auc gradient, logistic": (_auc(algorithm=Gradient(steps=1)), 0.99),
    "auc gradient, floating point": (_auc(algorithm=Gradient(steps=1), hardened=False), 0.99),
    "auc onpairstrc": (_auc(algorithm="onpairstrc"), 0.9),
    "auc onpairc": (_auc(algorithm="onpairc"), 0.9),
    "auc onpairc, floating point": (_auc(algorithm="onpairc", hardened=False), 0.9),
    # The hinge is linear in so small a ball, so the gradients of two neighbours differ alike whatever was released.
    "auc ftrl": (_auc(algorithm=Ftrl(loss="hinge")), 0.99),
    "auc ftrl, floating point": (_auc(algorithm=Ftrl(loss="hinge"), hardened=False), 0.99),
    "auc ftrl, tree": (_auc(algorithm=Ftrl(loss="hinge", sums="tree")), 0.99),
    "metric ftrl": (_metric(algorithm=Ftrl(loss="hinge", radius=0.1)), 0.99),
    "auc offpairstrc": (_auc(algorithm="offpairstrc"), 0.89),
    "auc offpairc": (_auc(algorithm="offpairc"), 0.9),
    "auc sgd-output": (_auc(algorithm=SGDOutput(steps=16)), 0.88),
    "auc sgd-output, hinge": (_auc(algorithm=SGDOutput(loss="hinge", steps=16)), 0.88),
    "auc pointwise": (_auc(algorithm=Pointwise(steps=1)), 0.99),
    "auc statistics": (_auc(algorithm="statistics"), 0.99),
    "metric gradient": (_metric(algorithm=Gradient(steps=1)), 0.83),
    "metric onpairstrc": (_metric(algorithm="onpairstrc"), 0.52),
    "metric onpairc": (_metric(algorithm="onpairc"), 0.57),
    "metric offpairstrc": (_metric(algorithm="offpairstrc"), 0.5),
    "metric offpairc": (_metric(algorithm="offpairc"), 0.78),
    "metric sgd-output": (_metric(algorithm=SGDOutput(steps=16)), 0.65),
    "metric sgd-output, hinge": (_metric(algorithm=SGDOutput(loss="hinge", steps=16)), 0.9),
    "metric statistics": (_metric(algorithm="statistics"), 0.99),
    "auc auto, one step": (
        lambda: PrivateAUCClassifier(
            **COMMON, algorithm=Pointwise(steps=1), threshold_share=0.0, centre_share=0.15
        ),
        0.85,
    ),
    "auc statistics, centred": (
        lambda: PrivateAUCClassifier(**COMMON, algorithm="statistics", threshold_share=0.0),
        0.95,
    ),
    "lda": (lambda: PrivateLDA(centre_share=0.0, **COMMON), 0.99),
    "lda, floating point": (lambda: PrivateLDA(centre_share=0.0, hardened=False, **COMMON), 0.99),
    "lda, centred": (lambda: PrivateLDA(**COMMON), 0.95),
    "dpp matching": (_matching, 0.99),
}
# Here sensitivity() is of many releases together, so single moves say little; the share of the whole does.
CENTRED = {"auc auto, one step", "auc statistics, centred", "lda, centred"}
JOINT = CENTRED | {
    "auc statistics",
    "metric statistics",
    "lda",
    "lda, floating point",
    "auc ftrl",
    "auc ftrl, floating point",
    "auc ftrl, tree",
    "metric ftrl",
}


def _fit(make, X, y, seen) -> Seen:
    seen.clear()
    estimator = make().fit(X, y)
    scaled = np.concatenate([release.value / release.sigma for release in seen])
    return Seen(list(seen), scaled, estimator.sensitivity())


@dataclass
class Found:
    """The worst pair of neighbours of an estimator."""

    neighbours: int
    distance: float
    moved: float
    sensitivity: float
    one: Seen
    two: Seen


@cache
def worst_neighbours(name: str) -> Found:
    """Search all tables of four records ±1 on a line, and tables in the plane in which one record takes many values."""
    make, _ = ESTIMATORS[name]
    families: list[list[Seen]] = []
    with pytest.MonkeyPatch.context() as patch:
        seen = watch(patch, name in CENTRED)
        # On a line, every table; two of them are neighbours if they differ in one place.
        records = list(itertools.product((-1.0, 1.0), (0, 1)))
        tables = {}
        for chosen in itertools.product(range(4), repeat=RECORDS):
            X = np.array([[records[c][0]] for c in chosen])
            y = np.array([records[c][1] for c in chosen])
            tables[chosen] = _fit(make, X, y, seen)
        for place in range(RECORDS):
            for rest in itertools.product(range(4), repeat=RECORDS - 1):
                family = [(*rest[:place], c, *rest[place:]) for c in range(4)]
                families.append([tables[key] for key in family])
        # In the plane, any two values of one record make neighbours: 67 values are 2,211 pairs.
        r = np.random.default_rng(1)
        for place in range(RECORDS):
            u = np.array([math.cos(place), math.sin(place)])
            X = np.where(r.random((RECORDS, 1)) < 0.4, u, -u)
            y = (r.random(RECORDS) < 0.4).astype(int)
            family = []
            for k in range(67):
                angle = r.choice([0.0, math.pi, r.uniform(0, 2 * math.pi)])
                turn = np.array(
                    [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
                )
                X2, y2 = X.copy(), y.copy()
                X2[place], y2[place] = turn @ u * r.choice([1.0, 1.0, 0.5]), k % 2
                family.append(_fit(make, X2, y2, seen))
            families.append(family)
    best = Found(0, -1.0, 0.0, families[0][0].sensitivity, *families[0][:2])
    for family in families:
        values = np.array([s.scaled for s in family])
        apart = np.linalg.norm(values[:, None] - values[None], axis=2)
        i, j = np.unravel_index(apart.argmax(), apart.shape)
        best.neighbours += len(family) * (len(family) - 1) // 2
        for place in range(len(family[0].releases)):
            moves = np.array([s.releases[place].value for s in family])
            longest = np.linalg.norm(moves[:, None] - moves[None], axis=2).max()
            best.moved = max(best.moved, float(longest))
        # The audit takes the pair on the line, where the release has the fewest coordinates.
        if apart[i, j] > best.distance * (1 + 1e-6):
            best.distance, best.one, best.two = float(apart[i, j]), family[i], family[j]
    return best


def _allowed(name: str) -> float:
    return release_mu(1.0, DELTA, hardened=ESTIMATORS[name][0]()._exact)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_none_of_ten_thousand_neighbours_moves_a_fit_past_its_bound_and_one_comes_close(name):
    found = worst_neighbours(name)
    assert found.neighbours >= 10_000
    share = found.distance / _allowed(name)
    assert ESTIMATORS[name][1] <= share <= 1.0 + 1e-12
    if name not in JOINT:
        assert ESTIMATORS[name][1] * found.sensitivity <= found.moved <= found.sensitivity


# --------------------------------------------------------------------------------------------------------------------
# Telling two neighbours apart


RUNS = (30_000, 100_000, 300_000, 1_000_000)


def best_cut(mu: float, runs: int) -> float:
    """The threshold with the best bound that so many runs can prove, by theory and hence fixed in advance."""
    cuts = np.linspace(0.0, 5.0, 101)
    hits, false = (np.rint(runs * norm.sf(cuts - at)).astype(int) for at in (mu, 0.0))
    return float(cuts[lower_bounds(hits, false, runs).argmax()])


def flagged_for_sure(mu: float, runs: int) -> bool:
    """Whether so many runs prove an epsilon above one, but with probability 2e-8; for all 25 together below 1e-6."""
    cut = best_cut(mu, runs)
    hits, false = binom.ppf(1e-8, runs, norm.sf(cut - mu)), binom.isf(1e-8, runs, norm.sf(cut))
    return lower_bound(int(hits), int(false), runs) > 1.0


def audit(name: str, factor: float) -> float:
    """Return a lower bound on epsilon for an estimator whose noise is multiplied by ``factor``."""
    found = worst_neighbours(name)
    # As many runs as show a quarter of the noise; the copies with all of it are drawn as often.
    runs = next(n for n in RUNS if flagged_for_sure(4 * found.distance, n))
    direction = found.one.scaled - found.two.scaled
    distance = np.linalg.norm(direction)
    direction = direction / distance
    # In units of the noise that is drawn the neighbours are this far apart.
    cut = best_cut(float(distance) / factor, runs)
    # The likelihood ratio depends on the projection on the direction in which the neighbours differ.
    counts = []
    for side, seen in enumerate((found.one, found.two)):
        source = Randomness(1000 + side)
        score, start = np.zeros(runs), 0
        for release, other in zip(seen.releases, found.two.releases, strict=True):
            for i in np.flatnonzero(direction[start : start + len(release.value)]):
                drawn = release.draw(i, runs, factor, source) - other.value[i]
                score += direction[start + i] * drawn / (release.sigma * factor)
            start += len(release.value)
        counts.append(int((score > cut).sum()))
    return lower_bound(counts[0], counts[1], runs)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_audit_at_epsilon_one_finds_less_than_one(name):
    assert audit(name, 1.0) < 1.0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_audit_flags_a_copy_with_a_quarter_of_the_noise(name):
    assert audit(name, 0.25) > 1.0


# --------------------------------------------------------------------------------------------------------------------
# Edge lists and individuals perturbed at home: Gaussian and Laplace noise, groups of pairs


def _edge_learner(points, options, noise, kappa=1, **settings):
    return DPPMetricLearner(
        algorithm=options(n_steps=1, **settings),
        noise=noise,
        kappa=kappa,
        preprocessor=points,
        delta=DELTA,
        random_state=0,
    )


EDGES = [(Edges, None), (Pure, None), (NodeDP, None), (NodeDP, "laplace")]


@pytest.mark.parametrize(("options", "noise"), EDGES)
def test_none_of_ten_thousand_changed_pairs_moves_an_edge_list_past_its_bound(
    options, noise, monkeypatch
):
    seen = watch(monkeypatch)
    r = np.random.default_rng(2)
    neighbours, longest, bound = 0, 0.0, 0.0
    for _ in range(5):
        others = r.normal(size=(4, 2)) * 0.5
        u = r.normal(size=2)
        u /= np.linalg.norm(u)
        values = []
        for k in range(67):
            # One pair takes many values, long and short, along one line mostly, similar and dissimilar.
            v = u if r.random() < 0.6 else r.normal(size=2)
            own = np.outer([0.5, -0.5], v) * r.choice([2.0, 1.0, 0.3])
            learner = _edge_learner(
                np.concatenate((own, others)), options, noise, adjacency="replace-one"
            )
            seen.clear()
            learner.fit([[0, 1], [2, 3], [4, 5]], [1 - 2 * (k % 2), 1, -1])
            values.append(seen[0].value)
        moves = np.array(values)[:, None] - np.array(values)[None]
        order = 2 if learner._noise == "gaussian" else 1
        longest = max(longest, float(np.linalg.norm(moves, ord=order, axis=2).max()))
        bound = learner.sensitivity()
        neighbours += 67 * 66 // 2
    assert neighbours >= 10_000
    assert 0.95 * bound <= longest <= bound


def _edge_audit(options, noise, factor) -> float:
    """Two pairs of one individual are there, or contribute nothing: zero-out, kappa = 2."""
    released = []
    with pytest.MonkeyPatch.context() as patch:
        seen = watch(patch)
        # Dissimilar points further apart than the margin have no gradient.
        for points, sign in (([[0.5], [-0.5], [-0.4]], 1), ([[1.0], [-1.0], [-0.99]], -1)):
            seen.clear()
            learner = _edge_learner(np.array(points), options, noise, kappa=2)
            learner.fit([[0, 1], [0, 2]], [sign, sign])
            released.append(seen[0])
    shift = float(released[0].value[0] - released[1].value[0])
    assert 0.999 * learner.sensitivity() <= abs(shift) <= learner.sensitivity()
    runs = 400_000
    if released[0].laplace:
        cut = 1.0  # at the further neighbour: beyond it the odds are constant
    else:
        cut = 2.6 * factor * released[0].sigma / abs(shift)
    counts = []
    for side, release in enumerate(released):
        drawn = release.draw(0, runs, factor, Randomness(2000 + side))
        counts.append(int(((drawn - released[1].value[0]) / shift >= cut).sum()))
    return lower_bound(counts[0], counts[1], runs, 0.0 if released[0].laplace else DELTA)


@pytest.mark.parametrize(("options", "noise"), EDGES)
def test_the_audit_of_an_edge_list_finds_less_than_one_and_flags_a_quarter_of_the_noise(
    options, noise
):
    assert _edge_audit(options, noise, 1.0) < 1.0
    assert _edge_audit(options, noise, 0.25) > 1.0


@pytest.mark.parametrize(("factor", "flagged"), [(1.0, False), (0.25, True)])
def test_the_audit_of_perturbed_individuals_flags_only_a_quarter_of_the_noise(factor, flagged):
    runs = 200_000
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        real = pairwise.algorithms.contrastive_plans.perturb_individuals

        def spy(X, codes, n_classes, **settings):
            calls.append((X, codes, n_classes, settings))
            return real(X, codes, n_classes, **settings)

        patch.setattr(pairwise.algorithms.contrastive_plans, "perturb_individuals", spy)
        for x, y in ((1.0, 0), (-1.0, 1)):
            DPPMetricLearner(
                algorithm=InputPerturbation(n_steps=1), classes=[0, 1], random_state=0
            ).fit([[x], [0.0]], [y, 0])
    counts = []
    for side, (X, codes, n_classes, settings) in enumerate(calls):
        many = {
            **settings,
            "epsilon_features": settings["epsilon_features"] / factor,
            "randomness": Randomness(3000 + side),
        }
        noisy, labels = real(
            np.repeat(X[:1], runs, 0), np.repeat(codes[:1], runs), n_classes, **many
        )
        counts.append(int(((noisy[:, 0] > 1.0) & (labels == 0)).sum()))
    found = lower_bound(counts[0], counts[1], runs, 0.0)
    assert (found > 1.0) == flagged
    # Odds of exactly e are attained, so nearly all of epsilon is found.
    assert found > 0.9


# --------------------------------------------------------------------------------------------------------------------
# What else a default fit releases, and a run from end to end


def test_none_of_ten_thousand_neighbours_moves_centre_distance_or_second_moment_past_its_bound():
    r = np.random.default_rng(4)
    n, R, neighbours = 5, 1.0, 0
    longest = np.zeros(3)
    for _ in range(3):
        rest = clip_records(r.normal(size=(n - 1, 3)), R)
        own = clip_records(r.normal(size=(90, 3)) * r.choice([0.1, 9.0], size=(90, 1)), R)
        own[1] = -own[0] / np.linalg.norm(own[0])
        own[0] = -own[1] * (1 - 1e-6)
        tables = [np.concatenate((x[None], rest)) for x in own]
        for place, centre in enumerate((None, own[0])):
            values = np.array([centre_queries(X, centre, R).ravel() for X in tables])
            moved = np.linalg.norm(values[:, None] - values[None], axis=2).max()
            longest[place] = max(longest[place], moved)
        around = [Coordinates(0.1 * own[0], 0.5).around(X) for X in tables]
        values = np.array([svec(z.T @ z / n) for z in around])
        moved = np.linalg.norm(values[:, None] - values[None], axis=2).max()
        longest[2] = max(longest[2], moved)
        neighbours += 90 * 89 // 2
    assert neighbours >= 10_000
    bounds = np.array([2 * R, 2 * R, math.sqrt(2.0)]) / n
    assert np.all(0.99 * bounds <= longest)
    assert np.all(longest <= bounds)


@pytest.mark.parametrize(("factor", "flagged"), [(1.0, False), (0.25, True)])
def test_a_whole_run_from_records_to_parameter_is_flagged_only_with_a_quarter_of_the_noise(
    factor, flagged
):
    # One positive among negatives at the antipode, which becomes a negative there.
    X = np.tile([[-1.0]], (12, 1))
    y = np.zeros(12, bool)
    changed, labels = X.copy(), y.copy()
    changed[0], labels[0] = 1.0, True
    runs, outs = 4_000, []
    for side, table in enumerate(((changed, labels), (X, y))):
        sums = AUCPairs(*table, "hinge")
        plan = plan_gradient(sums, (1,), 1.0, DELTA, path_length=1.0, steps=2, rate=1e-3)
        plan = replace(plan, noise=GaussianPlan(plan.sensitivity, plan.sigma * factor))
        source = Randomness(100 + side)
        outs.append([])
        for _ in range(runs):
            kept: list[np.ndarray] = []
            noisy_descent(sums, plan, L2Ball(1e6), np.zeros(1), source, keep=kept)
            outs[-1].append(kept[-1][0] / plan.rate)
    # Two steps move the two apart by √2 in units of the noise of their sum.
    first, second = np.array(outs)
    spread = plan.sigma * math.sqrt(2.0)
    cut = 2.0 * spread
    shift = 2.0 * plan.sensitivity
    assert shift / spread == pytest.approx(gaussian_mu(1.0, DELTA) / factor)
    found = lower_bound(int((first > cut).sum()), int((second > cut).sum()), runs)
    assert (found > 1.0) == flagged
    if flagged:
        assert gaussian_epsilon(shift / spread, DELTA) > 1.0
