"""Every release of every estimator at its default settings: its noise fits its sensitivity, and its sensitivity the data.

All noise of a sound estimator passes one site, ``PlannedRelease.release``. The tests stand there: they see what is released
and under which plan, and they choose what comes out, so all neighbours share one past and one public randomness, as the
definition of privacy has it. Three claims are tested for each estimator: what all plans cost together is what was asked for
and what was charged; no neighbour moves a value further than its plan says; and some neighbour moves it nearly as far. The
mutations at the end are mistakes of the kind that such claims exist to catch.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import Adjacency
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.options import Gradient, Matching
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import ChoicePlan, GaussianPlan, LaplacePlan, PlannedRelease

EPSILON, DELTA = 1.0, 1e-5
REACH = 0.9


# --------------------------------------------------------------------------------------------------------------------
# The one site


@dataclass
class Drawn:
    """One release: under which plan, of what, and what came out."""

    plan: PlannedRelease
    value: np.ndarray
    rows: bool
    output: np.ndarray


def noise_of(drawn: Drawn, source: np.random.Generator) -> np.ndarray:
    """Return noise of the size of the plan, from the test's own source."""
    plan, shape = drawn.plan, drawn.value.shape
    if isinstance(plan, GaussianPlan):
        return plan.sigma * source.normal(size=shape)
    if isinstance(plan, LaplacePlan):
        return source.laplace(scale=plan.scale, size=shape)
    raise AssertionError(f"a plan of a new kind: {type(plan).__name__}")


@contextmanager
def transcript(
    source: np.random.Generator, past: list[Drawn] | None = None
) -> Iterator[list[Drawn]]:
    """Record every release. Outputs are those of ``past``, or values with noise from ``source``.

    The estimator's own randomness is never used for noise, so matchings and starts are those of its seed whatever the data.
    """
    seen: list[Drawn] = []

    def release(plan, value, randomness, *, rows=False):
        drawn = Drawn(plan, np.array(value, dtype=float), rows, np.empty(0))
        if past is not None:
            drawn.output = past[len(seen)].output
        elif drawn.plan.norm == "operator":  # an axis, any of which may have come out
            axis = source.normal(size=len(drawn.value))
            drawn.output = axis / np.linalg.norm(axis)
        elif isinstance(plan, ChoicePlan):
            drawn.output = source.integers(len(drawn.value))
        else:
            drawn.output = drawn.value + noise_of(drawn, source)
        seen.append(drawn)
        return np.copy(drawn.output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedRelease, "release", release)
        yield seen


def moved(one: Drawn, two: Drawn) -> float:
    """Return how far two values are apart in the norm of their plan; of rows, how far the worst of them."""
    apart = one.value - two.value
    if one.plan.norm == "largest":
        return float(np.abs(apart).max())
    if one.plan.norm == "operator":
        return float(np.linalg.norm(apart, 2))
    order = 1 if one.plan.norm == "l1" else 2
    if one.rows:
        return float(np.linalg.norm(apart, ord=order, axis=1).max())
    return float(np.linalg.norm(apart.ravel(), ord=order))


# --------------------------------------------------------------------------------------------------------------------
# Estimators and their neighbours

Table = tuple[np.ndarray, np.ndarray]


class Till:
    """Takes every charge and writes it down."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def charge(self, event: Any, **_: Any) -> None:
        self.events.append(event)


def replaced(source: np.random.Generator, d: int, n: int = 5) -> list[Table]:
    """Return tables of which any two differ in one record: its place, its value and its class."""
    u = source.normal(size=d)
    u /= np.linalg.norm(u)
    others = source.choice([-1.0, 1.0], size=(n - 1, 1), p=source.dirichlet((0.5, 0.5))) * u
    labels = source.integers(2, size=n - 1) if source.random() < 0.5 else np.zeros(n - 1, int)
    place = int(source.integers(n))
    own = [u, -u, 0 * u, 3.0 * u]
    if d > 1:
        turns = source.normal(size=(3, d))
        own += list(turns / np.linalg.norm(turns, axis=1)[:, None])
    tables = []
    for x, label in itertools.product(own, (0, 1)):
        X, y = np.insert(others, place, x, axis=0), np.insert(labels, place, label)
        tables.append((X, y))
    return tables


def in_another_unit(source: np.random.Generator, d: int) -> list[Table]:
    """Return tables as ``replaced`` does, for a bound of 3 on the records."""
    return [(3.0 * X, y) for X, y in replaced(source, d)]


def unpaired(source: np.random.Generator, d: int, kappa: int = 2) -> list[Table]:
    """Return points of an edge list, the first without what ``kappa`` pairs of the others contribute.

    Pairs are (0, 1), (2, 3) and so on; two individuals at one point have no gradient, whatever W.
    """
    rest = source.normal(size=(4, d))
    signs = np.array([1, -1, *source.choice([1, -1], size=kappa)])
    tables = [(np.concatenate((rest, np.zeros((2 * kappa, d)))), np.array([1, -1] + [1] * kappa))]
    for length in (0.05, 0.3, 1.0, 5.0):
        for _ in range(3):
            u = source.normal(size=d)
            pairs = np.concatenate([[v, -v] for v in [length * u / np.linalg.norm(u)] * kappa])
            tables.append((np.concatenate((rest, pairs)), signs))
    return tables


@dataclass(frozen=True)
class Case:
    """An estimator at its default settings, and where to look for its worst neighbours.

    ``fit`` takes an estimator's module by name, so that a mutated one can stand in; ``star`` says that only the first table
    of a family is a neighbour of the others.
    """

    fit: Callable[[Table, Till], Any]
    family: Callable[[np.random.Generator, int], list[Table]] = replaced
    dimensions: tuple[int, ...] = (1, 2)
    star: bool = False
    families: int = 4
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    reach: float = REACH
    aside: float = 0.0  # epsilon that is spent on something else than noise


def of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"pairwise.estimators.{module}"), name)


def estimator(module: str, name: str, **settings: Any) -> Callable[[Table, Till], Any]:
    def fit(table: Table, till: Till) -> Any:
        made = of(module, name)(epsilon=EPSILON, delta=DELTA, random_state=0, **settings)
        if "classes" in made.get_params() and made.classes is None:
            made.set_params(classes=[0, 1])
        return made.set_params(budget=till).fit(*table)

    return fit


def edges(algorithm: str, **settings: Any) -> Callable[[Table, Till], Any]:
    def fit(table: Table, till: Till) -> Any:
        points, signs = table
        made = of("dpp", "DPPMetricLearner")(
            algorithm=algorithm,
            epsilon=EPSILON,
            delta=DELTA,
            kappa=2,
            preprocessor=points,
            random_state=0,
            budget=till,
            **settings,
        )
        return made.fit(np.arange(len(points)).reshape(-1, 2), signs)

    return fit


def axes(table: Table, till: Till) -> Any:
    made = of("projection", "PrivatePCA")(epsilon=EPSILON, random_state=0, budget=till)
    return made.fit(table[0])


def projection(table: Table, till: Till) -> Any:
    made = of("projection", "PrivateRandomProjection")(epsilon=EPSILON, delta=DELTA, random_state=0)
    made.fit(table[0])
    till.charge(made.privacy_event_)
    made.release(table[0])
    return made


def score(name: str) -> Callable[[Table, Till], Any]:
    def fit(table: Table, till: Till) -> Any:
        X, y = table
        other = X[:, 0] if name == "private_auc_score" else (X[:, 0] > 0).astype(int)
        return of("scores", name)(
            y, other, epsilon=EPSILON, delta=DELTA, budget=till, random_state=0
        )

    return fit


CASES = {
    "PrivateAUCClassifier": Case(estimator("auc", "PrivateAUCClassifier")),
    "PrivateAUCClassifier, not centred": Case(
        estimator("auc", "PrivateAUCClassifier", centre_share=0.0)
    ),
    "PrivateAUCClassifier, gradient": Case(
        estimator("auc", "PrivateAUCClassifier", algorithm="gradient")
    ),
    "PrivateAUCClassifier, statistics": Case(
        estimator("auc", "PrivateAUCClassifier", algorithm="statistics")
    ),
    "PrivateMetricLearner": Case(estimator("metric", "PrivateMetricLearner")),
    "PrivateMetricLearner, gradient": Case(
        estimator("metric", "PrivateMetricLearner", algorithm="gradient")
    ),
    "PrivateMetricLearner, statistics, in another unit": Case(
        estimator("metric", "PrivateMetricLearner", algorithm="statistics", data_norm=3.0),
        in_another_unit,
    ),
    "PrivateLDA": Case(estimator("lda", "PrivateLDA")),
    "PrivateLDA, in another unit": Case(
        estimator("lda", "PrivateLDA", data_norm=3.0), in_another_unit
    ),
    "DPPMetricLearner, matching": Case(estimator("dpp", "DPPMetricLearner", algorithm="matching")),
    "DPPMetricLearner, matching, adaptive_clip": Case(
        estimator("dpp", "DPPMetricLearner", algorithm=Matching(adaptive_clip=True))
    ),
    "DPPMetricLearner, input-perturbation": Case(
        estimator("dpp", "DPPMetricLearner", algorithm="input-perturbation"), aside=EPSILON / 2
    ),
    "DPPMetricLearner, edges": Case(
        edges("edges"), unpaired, star=True, adjacency=Adjacency.ZERO_OUT
    ),
    "DPPMetricLearner, pure": Case(
        edges("pure"), unpaired, star=True, adjacency=Adjacency.ZERO_OUT
    ),
    "DPPMetricLearner, node-dp": Case(
        edges("node-dp"), unpaired, star=True, adjacency=Adjacency.ZERO_OUT
    ),
    # The bound of mechanisms.md 8.2 adds up worst cases of one record's row that no record attains together.
    "PrivateMail": Case(estimator("mail", "PrivateMail"), reach=0.24),
    "PrivatePCA": Case(axes),
    "PrivateRandomProjection": Case(projection),
    "private_auc_score": Case(score("private_auc_score"), families=8),
    "private_accuracy_score": Case(score("private_accuracy_score")),
}


@dataclass
class Found:
    """What a search saw: of each plan how far a value moved at most, as a share of its sensitivity, and one fit."""

    shares: dict[str, float] = field(default_factory=dict)
    sample: list[Drawn] = field(default_factory=list)
    charged: list[Any] = field(default_factory=list)


def search(case: Case, seed: int = 0) -> Found:
    """Return how far neighbours move the releases of an estimator."""
    source = np.random.default_rng(seed)
    found = Found()
    for _, d in itertools.product(range(case.families), case.dimensions):
        tables = case.family(source, d)
        till = Till()
        with transcript(source) as past:
            case.fit(tables[0], till)
        runs = []
        for table in tables:
            with transcript(source, past) as seen:
                case.fit(table, Till())
            # How much is released, and under which plan, is public.
            assert [(run.plan, run.value.shape) for run in seen] == [
                (run.plan, run.value.shape) for run in past
            ]
            runs.append(seen)
        found.sample, found.charged = past, till.events
        pairs = [(0, j) for j in range(1, len(runs))]
        if not case.star:
            pairs = list(itertools.combinations(range(len(runs)), 2))
        plans = [drawn.plan for drawn in past]
        for place, plan in enumerate(plans):
            assert plan.sensitivity > 0
            # Releases of one kind share a plan; they are named after the first of them.
            key = f"release {plans.index(plan)}"
            longest = max(moved(runs[i][place], runs[j][place]) for i, j in pairs)
            found.shares[key] = max(found.shares.get(key, 0.0), longest / plan.sensitivity)
    return found


def spent(sample: list[Drawn]) -> tuple[float, float]:
    """Return μ² of all Gaussian releases and choices, and epsilon of all others, from what is drawn."""
    squares, epsilon = 0.0, 0.0
    for drawn in sample:
        plan = drawn.plan
        if isinstance(plan, GaussianPlan):
            squares += (plan.sensitivity / plan.sigma) ** 2
        elif isinstance(plan, ChoicePlan):
            squares += (plan.sensitivity * plan.rate) ** 2
        elif isinstance(plan, LaplacePlan):
            epsilon += plan.sensitivity / plan.scale
        else:
            epsilon += 2.0 * plan.sensitivity * plan.rate
    return squares, epsilon


# --------------------------------------------------------------------------------------------------------------------
# The claims


@pytest.fixture(scope="module")
def searched() -> Callable[[str], Found]:
    """Return the search of each case, made once."""
    done: dict[str, Found] = {}

    def once(name: str) -> Found:
        if name not in done:
            done[name] = search(CASES[name])
        return done[name]

    return once


@pytest.mark.parametrize("name", CASES)
def test_noise_is_sensitivity_over_cost_and_the_costs_add_up_to_what_was_asked_and_charged(
    name, searched
):
    case, found = CASES[name], searched(name)
    squares, epsilon = spent(found.sample)
    asked = release_mu(EPSILON, DELTA, hardened=True) ** 2 if squares else 0.0
    # The grid adds at most 2^-10 to a sensitivity, and the scale of Laplace noise is rounded up to whole steps of it.
    assert (1.0 - 2.0**-8) * asked <= squares <= asked * (1.0 + 1e-9)
    if not squares:
        pure = EPSILON - case.aside
        assert (1.0 - 2.0**-8) * pure <= epsilon <= pure * (1.0 + 1e-9)
    assert len(found.charged) == 1
    charged = epsilon_of(found.charged[0], DELTA if squares else 0.0, case.adjacency)
    assert 0.999 * EPSILON <= charged <= EPSILON * (1.0 + 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_no_neighbour_moves_a_release_past_its_sensitivity_and_one_comes_close(name, searched):
    case, found = CASES[name], searched(name)
    assert found.shares
    for release, share in found.shares.items():
        assert share <= 1.0 + 1e-9, f"{release} moves {share:.3f} times its sensitivity"
        assert share >= case.reach, f"{release} moves {share:.3f} of its sensitivity at most"


# Randomised responses are drawn from the estimator's own randomness, not by a release.
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.aside])
def test_whatever_is_kept_of_a_fit_is_a_function_of_what_was_released(name):
    case, source = CASES[name], np.random.default_rng(3)
    tables = case.family(source, 2)
    with transcript(source) as past:
        case.fit(tables[0], Till())
    kept = set()
    for table in (tables[0], tables[1], tables[-1]):
        with transcript(source, past):
            made = case.fit(table, Till())
        state = made if isinstance(made, float) else {**vars(made), "budget": None}
        kept.add(joblib.hash(state))
    assert len(kept) == 1


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_has_the_scale_of_the_plan(name, searched):
    # 4,000 draws: the sample variance of Gaussian noise errs by 2.2 % (one deviation), of Laplace noise by 3.5 %; 0.25 is
    # seven of these, hence a false alarm in 1e-11 of the runs.
    plans = list(dict.fromkeys(drawn.plan for drawn in searched(name).sample))
    for plan in plans[:3]:
        if not isinstance(plan, GaussianPlan | LaplacePlan):
            continue
        count = plan.lattice.dimension
        source = Randomness(5)
        draws = plan.release(np.zeros((-(-4000 // count), count)), source, rows=True)
        variance = plan.sigma**2 if isinstance(plan, GaussianPlan) else 2.0 * plan.scale**2
        assert np.mean(np.square(draws)) == pytest.approx(variance, rel=0.25)


# Proved in real arithmetic only: one computes a step whose rounding nobody analysed, the other draws in floating point.
REAL = {"PrivateMail", "PrivatePCA"}


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("private_")])
def test_a_default_is_proved_for_its_bits_or_says_that_it_is_not(name):
    case = CASES[name]
    (table, *_) = case.family(np.random.default_rng(0), 2)
    # Unseeded, for a seed proves nothing; the table is too small to mean anything.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomness, "note", None)
        statement = case.fit(table, Till()).statement_
    assert statement.proved
    assert statement.arithmetic == ("real" if name in REAL else "exact")
    assert ("Proved in real arithmetic only" in statement.paragraph()) == (name in REAL)
    assert ("proved in real arithmetic)" in repr(statement)) == (name in REAL)
    assert ("✓ proved in real arithmetic" in statement._repr_html_()) == (name in REAL)


@pytest.mark.parametrize(
    ("module", "name", "settings"),
    [
        ("auc", "PrivateAUCClassifier", {"hardened": False}),
        ("auc", "PrivateAUCClassifier", {"algorithm": Gradient(batch_size=4)}),
        ("lda", "PrivateLDA", {"hardened": False}),
        ("dpp", "DPPMetricLearner", {"algorithm": "matching", "hardened": False}),
    ],
)
def test_floating_point_noise_is_proved_in_real_arithmetic_only(module, name, settings):
    (table, *_) = replaced(np.random.default_rng(0), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomness, "note", None)
        statement = estimator(module, name, **settings)(table, Till()).statement_
    assert (statement.proved, statement.arithmetic) == (True, "real")
    assert "Proved in real arithmetic only" in str(statement)


SAMPLERS = {
    "gaussian",
    "laplace",
    "staircase",
    "staircase_l1",
    "duchi",
    "discrete_gaussian",
    "discrete_laplace",
    "lattice_gaussian",
    "lattice_laplace",
    "exponential_choice",
}


def test_no_module_draws_noise_but_by_a_plan():
    package = Path(inspect.getfile(importlib.import_module("pairwise"))).parent
    modules = [
        path
        for path in package.rglob("*.py")
        if not {"published", "noise"} & set(path.relative_to(package).parts)
    ]
    assert len(modules) > 20
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "pairwise.noise"
            ):
                taken = SAMPLERS & {alias.name for alias in node.names}
                assert not taken, f"{path.name} takes {taken} from pairwise.noise"


# --------------------------------------------------------------------------------------------------------------------
# Mistakes that the claims above must catch


@dataclass(frozen=True)
class Mutation:
    """A mistake in the text of one module, and the estimator that it breaks."""

    case: str
    module: str
    right: str
    wrong: str


MUTATIONS = {
    "the centre's bound is halved": Mutation(
        "PrivateLDA",
        "algorithms.coordinates",
        "bound = 2.0 * data_norm / n",
        "bound = data_norm / n",
    ),
    "the centre's bound is divided by 50": Mutation(
        "PrivateAUCClassifier",
        "algorithms.coordinates",
        "bound = 2.0 * data_norm / n",
        "bound = 2.0 * data_norm / n / 50",
    ),
    "the second moment's bound is that of a sum of positive numbers": Mutation(
        "PrivateAUCClassifier", "algorithms.coordinates", "(math.sqrt(2.0) if", "(1.0 if"
    ),
    "records are not clipped around the centre before their second moment is taken": Mutation(
        "PrivateAUCClassifier",
        "algorithms.coordinates",
        "clip_records((records - self.centre) / self.scale, 1.0)",
        "(records - self.centre) / self.scale",
    ),
    "what scaling costs is not paid for": Mutation(
        "PrivateAUCClassifier",
        "estimators.auc",
        "spent = share + centre_share + scale_share",
        "spent = share + centre_share",
    ),
    "the threshold's bound is divided by 50": Mutation(
        "PrivateAUCClassifier", "estimators.auc", "plan_choice(1.0,", "plan_choice(1.0 / 50,"
    ),
    "the threshold is not paid for": Mutation(
        "PrivateAUCClassifier, not centred",
        "estimators.auc",
        "return share, None",
        "return 0.0, None",
    ),
    "a right answer counts twice": Mutation(
        "PrivateAUCClassifier, not centred",
        "algorithms.threshold",
        "(above == positive[:, None])",
        "2 * (above == positive[:, None])",
    ),
    "a threshold is chosen at three times its rate": Mutation(
        "PrivateAUCClassifier",
        "noise.release",
        "ChoicePlan(sensitivity, mu / sensitivity, mu, True)",
        "ChoicePlan(sensitivity, 3.0 * mu / sensitivity, mu, True)",
    ),
    "0.1 for the square root of 2 in private_auc_score": Mutation(
        "private_auc_score",
        "estimators.scores",
        "plan_gaussian(math.sqrt(2.0), mu, 2",
        "plan_gaussian(0.1, mu, 2",
    ),
    "0.1 for 1 in private_accuracy_score": Mutation(
        "private_accuracy_score",
        "estimators.scores",
        "plan_gaussian(1.0, mu, 1",
        "plan_gaussian(0.1, mu, 1",
    ),
    "records are scaled by 3 before the moments of the start are released": Mutation(
        "DPPMetricLearner, matching",
        "algorithms.moments",
        "exact_moments(clip_records(X, data_norm) / data_norm,",
        "exact_moments(3.0 * clip_records(X, data_norm) / data_norm,",
    ),
    "a noisy count takes the name of the factor of clipped gradients": Mutation(
        "DPPMetricLearner, matching, adaptive_clip",
        "algorithms.contrastive_plans",
        "below = 0.5",
        "dissimilar_share = below = 0.5",
    ),
    "the count of an adaptive clip is not paid for": Mutation(
        "DPPMetricLearner, matching, adaptive_clip",
        "algorithms.contrastive_plans",
        "mu = self.mu * math.sqrt(1.0 - _CLIP_SHARE) if self.adaptive else self.mu",
        "mu = self.mu",
    ),
    "a gradient is clipped to twice the clip": Mutation(
        "DPPMetricLearner, edges",
        "algorithms.contrastive",
        "bound = clip * (1.0 - CLIP_SLACK)",
        "bound = 2.0 * clip",
    ),
    "the bound of a pointwise gradient is halved": Mutation(
        "PrivateAUCClassifier",
        "algorithms.pointwise",
        "self.pair_change = _CUT *",
        "self.pair_change = _CUT / 2.0 *",
    ),
    "a pointwise residual is not cut": Mutation(
        "PrivateAUCClassifier",
        "algorithms.pointwise",
        "np.clip(scores - self.labels, -_CUT, _CUT)",
        "(scores - self.labels)",
    ),
    "steps are not counted": Mutation(
        "PrivateMetricLearner, gradient",
        "algorithms.gradient",
        "plan_gaussian(sensitivity, mu / math.sqrt(steps), p",
        "plan_gaussian(sensitivity, mu, p",
    ),
    "noise is drawn at half its size": Mutation(
        "PrivateLDA",
        "noise.lattice",
        "variance = (Fraction(plan.scale) / Fraction(plan.grid)) ** 2",
        "variance = (Fraction(plan.scale) / Fraction(plan.grid)) ** 2 / 4",
    ),
}


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Run with one module rewritten; whatever another module has taken from it is replaced too."""
    original = importlib.import_module(f"pairwise.{mutation.module}")
    text = inspect.getsource(original)
    assert text.count(mutation.right) == 1, (
        f"the text to mutate is not in pairwise.{mutation.module}"
    )
    copy = types.ModuleType(original.__name__)
    copy.__file__ = original.__file__
    exec(
        compile(text.replace(mutation.right, mutation.wrong), str(original.__file__), "exec"),
        vars(copy),
    )
    mine = {
        name: thing
        for name, thing in vars(original).items()
        if getattr(thing, "__module__", None) == original.__name__
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for name, m in sys.modules.items() if name.startswith("pairwise")]:
            for name, thing in list(vars(module).items()):
                if mine.get(name) is thing and name in mine:
                    patch.setattr(module, name, vars(copy)[name])
        yield


def verdicts(name: str) -> None:
    """Make all claims about one estimator."""
    found = search(CASES[name])
    for claim in (
        test_noise_is_sensitivity_over_cost_and_the_costs_add_up_to_what_was_asked_and_charged,
        test_no_neighbour_moves_a_release_past_its_sensitivity_and_one_comes_close,
        test_what_is_drawn_has_the_scale_of_the_plan,
    ):
        claim(name, lambda _: found)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(name):
    mutation = MUTATIONS[name]
    with mutated(mutation), pytest.raises((AssertionError, InvalidParameterError)):
        verdicts(mutation.case)


def test_an_unchanged_module_rewritten_is_not_caught():
    unchanged = Mutation(
        "PrivateAUCClassifier, statistics",
        "algorithms.coordinates",
        "bound = 2.0 * data_norm / n",
        "bound = 2.0 * data_norm / n",
    )
    with mutated(unchanged):
        verdicts(unchanged.case)
