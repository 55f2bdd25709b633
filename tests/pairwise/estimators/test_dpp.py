"""DPPMetricLearner: sensitivities met by adversarial neighbours, noise that matches its event, and a metric that learns.

Statistical tests fix their seed; each has a false-alarm rate below 1e-6 over fresh seeds.
"""

import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import pairwise.algorithms.contrastive_plans as dpp
import pairwise.algorithms.input_perturbation
from pairwise import (
    BudgetExceededError,
    DPPMetricLearner,
    Edges,
    Matching,
    NodeDP,
    PairwiseError,
    PrivacyBudget,
    Pure,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import Adjacency
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.contrastive import (
    DriftDescent,
    _clip_factors,
    clipped_gradient_sum,
    orthonormal_rows,
    reachable_part,
    shrink_singular_values,
)
from pairwise.algorithms.input_perturbation import perturb_individuals, randomised_response
from pairwise.errors import InvalidPairsError, InvalidParameterError
from pairwise.noise.continuous import gaussian
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import PlannedRelease
from pairwise.pairs.clipping import CLIP_SLACK, clip_records
from pairwise.pairs.graph import PairGraph, random_pairs
from pairwise.pairs.losses import Contrastive

FULL = 1.0 - CLIP_SLACK  # what clipping to C leaves of C
GRID = 2.0**-10  # what rounding to a grid may add to a sensitivity


def pair_gradient(W, difference, dissimilar, margin):
    """One gradient by DPP eq. 8, as a full matrix."""
    projected = W @ difference
    distance = np.linalg.norm(projected)
    if distance == 0:
        return np.zeros_like(W)
    if dissimilar:
        factor = (distance - margin) / distance if distance < margin else 0.0
    else:
        factor = 1.0
    return factor * np.outer(projected, difference)


def some_pairs(seed, m=40, d=5, k=3, n=30):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    return (
        rng.normal(size=(k, d)),
        points,
        random_pairs(n, m, Randomness(seed)),
        rng.random(m) < 0.5,
    )


def individuals(seed, n=200, d=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, d)) * 0.3
    X[:, 0] += 0.4 * y
    return X, y


def edges(seed, n=100, m=150, d=4):
    X, y = individuals(seed, n, d)
    index = random_pairs(n, m, Randomness(seed))
    return X, index, np.where(y[index[:, 0]] == y[index[:, 1]], 1, -1)


@pytest.fixture
def released(monkeypatch):
    """What is released during a descent: (value, plan) of each; the moments of a start, a vector, are left out."""
    seen = []
    real = PlannedRelease.release

    def release(plan, value, randomness, *, rows=False):
        if np.ndim(value) != 1:
            seen.append((np.array(value), plan))
        return real(plan, value, randomness, rows=rows)

    monkeypatch.setattr(PlannedRelease, "release", release)
    return seen


# --------------------------------------------------------------------------------------------------------------------
# Gradients and clipping


def test_weighing_dissimilar_pairs_keeps_every_gradient_within_the_clip():
    rng = np.random.default_rng(8)
    W, X = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    index = rng.permutation(20).reshape(-1, 2)
    apart = rng.random(10) < 0.5
    whole = np.zeros((3, 4))
    for pair, dissimilar in zip(index, apart, strict=True):
        one, _ = clipped_gradient_sum(
            W, X, pair[None], np.array([dissimilar]), margin=3.0, clip=0.2, dissimilar_share=0.25
        )
        plain, _ = clipped_gradient_sum(
            W, X, pair[None], np.array([dissimilar]), margin=3.0, clip=0.2
        )
        np.testing.assert_allclose(one, plain * (0.25 if dissimilar else 1.0))
        assert np.linalg.norm(one) <= 0.2
        whole += one
    total, _ = clipped_gradient_sum(W, X, index, apart, margin=3.0, clip=0.2, dissimilar_share=0.25)
    np.testing.assert_allclose(total, whole, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.floats(1e-3, 10.0),
    margin=st.floats(0.1, 5.0),
    order=st.sampled_from([1, 2]),
)
def test_clipping_by_matrix_products_equals_a_loop_over_pairs(seed, clip, margin, order):
    W, points, index, dissimilar = some_pairs(seed)
    expected = np.zeros_like(W)
    for (i, j), apart in zip(index, dissimilar, strict=True):
        gradient = pair_gradient(W, points[i] - points[j], apart, margin)
        norm = np.linalg.norm(gradient.ravel(), ord=order)
        expected += gradient * min(1.0, clip * FULL / max(norm, 1e-300))
    total, _ = clipped_gradient_sum(
        W, points, index, dissimilar, margin=margin, clip=clip, order=order
    )
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-12)


def test_unclipped_gradients_are_those_of_the_contrastive_loss():
    import torch

    W, points, index, dissimilar = some_pairs(3)
    tensor = torch.tensor(W, requires_grad=True)
    difference = torch.tensor(points[index[:, 0]] - points[index[:, 1]])
    squared = ((difference @ tensor.T) ** 2).sum(dim=1)
    Contrastive(margin=1.7).value(squared, np.where(dissimilar, -1.0, 1.0)).sum().backward()
    total, norms = clipped_gradient_sum(W, points, index, dissimilar, margin=1.7, clip=math.inf)
    np.testing.assert_allclose(total, tensor.grad.numpy(), rtol=1e-10)
    assert norms.shape == (len(index),)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3), order=st.sampled_from([1, 2]))
def test_a_sum_of_jointly_clipped_gradients_is_at_most_the_number_of_pairs_times_the_clip(
    seed, scale, order
):
    W, points, index, dissimilar = some_pairs(seed)
    total, _ = clipped_gradient_sum(
        scale * W, points, index, dissimilar, margin=scale, clip=0.3, order=order
    )
    assert np.linalg.norm(total.ravel(), ord=order) <= len(index) * 0.3


def test_no_factor_lifts_a_gradient_above_the_clip_however_long_it_is():
    norms = np.geomspace(1e-3, 1.7e308, 999)
    for clip in (1.3e-15, 1.0, 1e300):
        assert np.all(_clip_factors(norms, clip) * norms <= clip * (1.0 + 2.0**-50))


def test_blocks_do_not_change_the_sum(monkeypatch):
    import pairwise.algorithms.contrastive as descent

    W, points, index, dissimilar = some_pairs(5)
    whole, _ = clipped_gradient_sum(W, points, index, dissimilar, margin=1.0, clip=0.2)
    monkeypatch.setattr(descent, "_BLOCK", 7)
    parts, _ = clipped_gradient_sum(W, points, index, dissimilar, margin=1.0, clip=0.2)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


@pytest.mark.parametrize("length", [0.0, 5e-324, 1e-200, 3e-162, 1e-160, 1e-90])
def test_a_vanishing_projected_distance_gives_a_finite_gradient_within_the_clip(length):
    W = np.eye(2) * length
    points = np.array([[0.8, 0.6], [0.0, 0.0]])
    total, _ = clipped_gradient_sum(
        W, points, np.array([[0, 1]]), np.array([True]), margin=1.0, clip=0.1
    )
    assert np.all(np.isfinite(total))
    assert np.linalg.norm(total) <= 0.1


@pytest.mark.parametrize("order", [1, 2])
def test_records_are_clipped_each_on_its_own_even_near_overflow(order):
    X = np.array([[3.0, 4.0], [0.0, 0.0], [0.1, 0.2], [1e300, 1e300]])
    clipped = clip_records(X, 1.0, order)
    assert np.all(np.linalg.norm(clipped, ord=order, axis=1) <= 1.0)
    np.testing.assert_array_equal(clipped[1:3], X[1:3])
    np.testing.assert_allclose(clipped[0], FULL * X[0] / np.linalg.norm(X[0], ord=order))


# --------------------------------------------------------------------------------------------------------------------
# Sensitivity


def test_zero_out_of_kappa_pairs_never_moves_a_sum_by_more_than_kappa_clips_over_ten_thousand_neighbours():
    rng = np.random.default_rng(0)
    kappa, clip, worst = 3, 0.1, 0.0
    W, points, index, dissimilar = some_pairs(11)
    for round_ in range(500):
        if round_ % 50 == 0:
            W, points, index, dissimilar = some_pairs(round_)
            points *= rng.choice([0.1, 1.0, 10.0])
        keep = np.ones(len(index), dtype=bool)
        for _ in range(20):
            keep[:] = True
            keep[rng.choice(len(index), kappa, replace=False)] = False
            moved, _ = clipped_gradient_sum(
                W, points, index[~keep], dissimilar[~keep], margin=1.0, clip=clip
            )
            worst = max(worst, np.linalg.norm(moved))
    assert 0.5 * kappa * clip < worst <= kappa * clip


def test_replacing_one_individual_never_moves_a_matching_sum_by_more_than_two_clips_over_ten_thousand_neighbours():
    rng = np.random.default_rng(1)
    clip, worst, n = 0.1, 0.0, 12
    for _ in range(100):
        W = rng.normal(size=(3, 4)) * rng.choice([0.3, 1.0, 3.0])
        X, y = rng.normal(size=(n, 4)), rng.integers(3, size=n)
        matching = rng.permutation(n).reshape(-1, 2)

        def total(X, y, W=W, matching=matching):
            apart = y[matching[:, 0]] != y[matching[:, 1]]
            return clipped_gradient_sum(W, X, matching, apart, margin=2.0, clip=clip)[0]

        base = total(X, y)
        for _ in range(100):
            X2, y2 = X.copy(), y.copy()
            i = rng.integers(n)
            if rng.random() < 0.5:
                X2[i] = rng.choice([-X[i], 5 * rng.normal(size=4), np.zeros(4)])
            y2[i] = rng.integers(3)
            worst = max(worst, np.linalg.norm(total(X2, y2) - base))
    assert 0.9 * 2 * clip < worst <= 2 * clip


@pytest.mark.parametrize("kappa", [1, 2, 5])
def test_aligned_similar_pairs_attain_the_zero_out_sensitivity(released, kappa):
    # kappa pairs along one axis: every gradient is the same multiple of one matrix.
    points = np.zeros((2 * kappa + 2, 2))
    points[: 2 * kappa : 2, 0] = 0.9
    index = np.arange(2 * kappa + 2).reshape(-1, 2)
    for dropped in (False, True):
        kept = points.copy()
        if dropped:  # zero-out: the pair stays in the list and contributes nothing
            kept[: 2 * kappa] = 0.0
        learner = DPPMetricLearner(
            kappa=kappa, preprocessor=kept, algorithm=Edges(n_steps=1), delta=1e-6, random_state=0
        ).fit(index, np.ones(kappa + 1))
    moved = np.linalg.norm(released[0][0] - released[1][0])
    assert moved == pytest.approx(
        kappa * learner.clip * FULL if learner.clip else kappa * 0.1 * FULL
    )
    assert moved <= learner.sensitivity()
    assert moved >= 0.999 * learner.sensitivity()


def test_a_changed_class_attains_the_replacement_sensitivity_of_a_matching(released):
    X = np.array([[0.45, 0.0], [-0.45, 0.0]])
    for classes in ([0, 0], [0, 1]):
        learner = DPPMetricLearner(algorithm=Matching(n_steps=1), random_state=0).fit(X, classes)
    moved = np.linalg.norm(released[0][0] - released[1][0])
    assert moved == pytest.approx(2 * 0.1 * FULL)
    assert moved <= learner.sensitivity()


def test_changed_pairs_attain_the_replacement_sensitivity_of_an_edge_list(released):
    X = np.array([[0.45, 0.0], [-0.45, 0.0], [0.45, 0.0], [-0.45, 0.0]])
    index = [[0, 1], [2, 3]]
    for signs in ([1, 1], [-1, -1]):
        learner = DPPMetricLearner(
            kappa=2,
            algorithm=Edges(adjacency="replace-one", n_steps=1),
            preprocessor=X,
            random_state=0,
        ).fit(index, signs)
    moved = np.linalg.norm(released[0][0] - released[1][0])
    assert moved == pytest.approx(2 * 2 * 0.1 * FULL)
    assert moved <= learner.sensitivity()


def test_whole_fits_on_neighbouring_tables_stay_within_the_stated_sensitivity(released):
    # The first release of two fits with one seed: same start, same matching, one record apart.
    X, y = individuals(4, n=20)
    rng = np.random.default_rng(5)
    for _ in range(60):
        X2, y2 = X.copy(), y.copy()
        i = rng.integers(len(X))
        X2[i], y2[i] = 3 * rng.normal(size=X.shape[1]), 1 - y[i]
        released.clear()
        for table, classes in ((X, y), (X2, y2)):
            learner = DPPMetricLearner(algorithm=Matching(n_steps=1), random_state=7)
            learner.fit(table, classes)
        assert np.linalg.norm(released[0][0] - released[1][0]) <= learner.sensitivity()


@pytest.mark.parametrize("direction", [[0.9, 0.0, 0.0], [0.5, 0.5, 0.5]], ids=["axis", "between"])
def test_l1_clipping_attains_and_never_exceeds_the_pure_sensitivity(direction, released):
    X = np.zeros((6, 3))
    X[[0, 2]] = direction
    index = np.arange(6).reshape(-1, 2)
    gone = X.copy()
    gone[:4] = 0.0
    for points in (X, gone):
        learner = DPPMetricLearner(
            algorithm=Pure(n_steps=1), kappa=2, preprocessor=points, random_state=0
        ).fit(index, np.ones(3))
    moved = np.abs(released[0][0] - released[1][0]).sum()
    assert moved == pytest.approx(2 * 0.1 * FULL)
    assert moved <= learner.sensitivity()


# --------------------------------------------------------------------------------------------------------------------
# Noise and accounting: the noise that was drawn, its event and the promised epsilon agree


@pytest.mark.parametrize("hardened", [None, False])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    "settings_",
    [
        {"algorithm": Matching(n_steps=6, start_share=0.0)},
        {"algorithm": Edges(n_steps=6), "kappa": 4},
        {"algorithm": Edges(n_steps=6, adjacency="replace-one"), "kappa": 3},
        {"algorithm": NodeDP(n_steps=6), "kappa": 7},
    ],
    ids=str,
)
def test_the_noise_of_all_steps_together_spends_exactly_epsilon(
    released, settings_, epsilon, hardened
):
    X, index, signs = edges(1)
    if isinstance(settings_["algorithm"], Matching):
        data = individuals(1)
    else:
        data, settings_ = (index, signs), {**settings_, "preprocessor": X}
    learner = DPPMetricLearner(epsilon=epsilon, random_state=0, hardened=hardened, **settings_)
    learner.fit(*data)
    spent = math.sqrt(sum((learner.sensitivity() / plan.sigma) ** 2 for _, plan in released))
    assert len(released) == 6
    asked = release_mu(epsilon, 1e-5, hardened=hardened is None)
    assert (1 - GRID) * asked <= spent <= asked * (1 + 1e-9)
    stated = epsilon_of(learner.privacy_event_, 1e-5, learner.statement_.adjacency)
    assert stated == pytest.approx(epsilon, rel=1e-6)
    assert stated <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_started_descent_and_its_start_together_spend_exactly_epsilon(
    released, monkeypatch, share
):
    moments = []
    real = dpp.plan_moments
    monkeypatch.setattr(
        dpp, "plan_moments", lambda *a, **k: moments.append(real(*a, **k)) or moments[-1]
    )
    learner = DPPMetricLearner(
        epsilon=1.0, algorithm=Matching(start_share=share, n_steps=6), random_state=0
    ).fit(*individuals(1))
    steps = sum((learner.sensitivity() / plan.sigma) ** 2 for _, plan in released)
    (start,) = moments
    first = (start.sensitivity / start.sigma) ** 2
    whole = release_mu(1.0, 1e-5, hardened=True) ** 2
    assert first == pytest.approx(share * whole, rel=2 * GRID)
    assert (1 - 2 * GRID) * whole <= first + steps <= whole
    stated = epsilon_of(learner.privacy_event_, 1e-5, learner.statement_.adjacency)
    assert stated == pytest.approx(1.0, rel=1e-6)
    assert stated <= 1.0 + 1e-9


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_step_from_a_released_start_is_no_longer_than_a_quarter_of_it(monkeypatch, epsilon):
    # The mean of clipped gradients is at most 1 in units of the clip, so the factor bounds the step; noise shortens it.
    starts, steps = [], []
    real_start, real_walk = dpp.discriminant_start, dpp.DriftDescent

    def walk(start, step, **more):
        steps.append(step)
        return real_walk(start, step, **more)

    monkeypatch.setattr(
        dpp, "discriminant_start", lambda *a: starts.append(real_start(*a)) or starts[-1]
    )
    monkeypatch.setattr(dpp, "DriftDescent", walk)
    learner = DPPMetricLearner(epsilon=epsilon, algorithm=Matching(n_steps=1), random_state=0)
    learner.fit(*individuals(1))
    (start,), (step,) = starts, steps
    bound = np.linalg.norm(start) / 4
    assert np.linalg.norm(learner.components_ - start) <= bound
    assert step == pytest.approx(bound) if math.isinf(epsilon) else step < bound


@pytest.mark.parametrize(("classes", "share"), [(None, 1.0), (range(5), 0.25)])
def test_how_many_classes_occur_is_not_read_where_they_are_neither_declared_nor_paid_for(
    classes, share, monkeypatch
):
    shares = []
    real = dpp.clipped_gradient_sum

    def spy(*arguments, dissimilar_share, **keywords):
        shares.append(dissimilar_share)
        return real(*arguments, dissimilar_share=dissimilar_share, **keywords)

    monkeypatch.setattr(dpp, "clipped_gradient_sum", spy)
    X, _ = individuals(3, n=50)
    DPPMetricLearner(algorithm=Matching(n_steps=1, start_share=0.0), classes=classes).fit(
        X, np.arange(50) % 5
    )
    assert shares == [share]


def test_a_start_from_undeclared_classes_says_that_it_shows_which_occur():
    X, y = individuals(1)
    silent = DPPMetricLearner(algorithm="matching", random_state=0).fit(X, y)
    declared = DPPMetricLearner(algorithm="matching", classes=[0, 1], random_state=0).fit(X, y)
    public = DPPMetricLearner(algorithm=Matching(start_share=0.0), random_state=0).fit(X, y)
    exposed = "the set of class labels"
    assert exposed in silent.statement_.not_protected
    assert exposed not in declared.statement_.not_protected
    assert exposed not in public.statement_.not_protected


@pytest.mark.parametrize("algorithm", ["matching", "edges"])
def test_an_adaptive_clip_and_the_gradient_together_spend_the_same_epsilon(released, algorithm):
    X, index, signs = edges(2)
    common = {"adaptive_clip": True, "n_steps": 5, "clip": 0.02}
    if algorithm == "matching":
        data, more = individuals(2), {"algorithm": Matching(start_share=0.0, **common)}
    else:
        more = {"preprocessor": X, "kappa": 3, "algorithm": Edges(**common)}
        data = (index, signs)
    learner = DPPMetricLearner(random_state=0, **more).fit(*data)
    gradients, counts = released[0::2], released[1::2]
    assert all(value.ndim == 0 for value, _ in counts)
    moves = learner.sensitivity() / 0.02  # in clips; a count moves half as often
    assert all(plan.sensitivity == moves / 2 for _, plan in counts)
    spent = sum((plan.sensitivity / plan.sigma) ** 2 for _, plan in released)
    asked = release_mu(1.0, 1e-5, hardened=True)
    assert (1 - GRID) * asked <= math.sqrt(spent) <= asked
    assert len({plan.sensitivity for _, plan in gradients}) == 5


@pytest.mark.parametrize("algorithm", ["matching", "edges"])
def test_every_summand_of_every_step_of_an_adaptive_clip_is_within_the_clip(algorithm, monkeypatch):
    lengths, real = [], dpp.clipped_gradient_sum

    def one_by_one(W, points, index, dissimilar, **settings):
        for place in range(len(index)):
            alone = slice(place, place + 1)
            summand, _ = real(W, points, index[alone], dissimilar[alone], **settings)
            lengths.append(np.linalg.norm(summand) / settings["clip"])
        return real(W, points, index, dissimilar, **settings)

    monkeypatch.setattr(dpp, "clipped_gradient_sum", one_by_one)
    X, y = individuals(3, n=10)
    # Few records, so the noisy count that moves the clip often lies far outside [0, 1].
    options = {"adaptive_clip": True, "clip": 1e-3}
    if algorithm == "matching":
        matching = Matching(**options)
        DPPMetricLearner(algorithm=matching, classes=[0, 1, 2], random_state=3).fit(X, y)
    else:
        index = np.arange(10).reshape(-1, 2)
        signs = np.where(y[index[:, 0]] == y[index[:, 1]], 1, -1)
        learner = DPPMetricLearner(
            kappa=1, preprocessor=X, algorithm=Edges(**options), random_state=3
        )
        learner.fit(index, signs)
    assert len(lengths) == 5 * 10
    assert max(lengths) <= 1.0
    assert max(lengths) > 0.999


@pytest.mark.parametrize("share", [0.0, -0.3, 1.0 + 1e-9, 7.0, math.nan])
def test_a_share_that_would_lift_clipped_gradients_above_the_clip_is_refused(share):
    with pytest.raises(InvalidParameterError, match=r"dissimilar_share must be in \(0, 1\]"):
        clipped_gradient_sum(
            np.eye(2),
            np.eye(2),
            np.array([[0, 1]]),
            np.array([True]),
            margin=1.0,
            clip=0.1,
            dissimilar_share=share,
        )


def test_an_adaptive_clip_moves_towards_the_median_norm():
    X, y = individuals(3, n=4000)
    learner = DPPMetricLearner(
        epsilon=math.inf,
        algorithm=Matching(adaptive_clip=True, clip=1e-4, n_steps=90),
        random_state=0,
    )
    seen = []
    original = dpp.clipped_gradient_sum

    def spy(*args, **kwargs):
        total, norms = original(*args, **kwargs)
        seen.append((kwargs["clip"], float(np.median(norms))))
        return total, norms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dpp, "clipped_gradient_sum", spy)
        learner.fit(X, y)
    first, last = seen[0], seen[-1]
    assert abs(math.log(last[0] / last[1])) < 0.5 * abs(math.log(first[0] / first[1]))


def test_sampled_pairs_are_accounted_as_groups_by_a_mixture_of_gaussians(released, monkeypatch):
    # Calibration of mixtures is tested with the accountant; here a fixed multiplier keeps the test quick.
    monkeypatch.setattr(dpp, "group_poisson_sigma", lambda *_: 9.0)
    X, index, signs = edges(3)
    learner = DPPMetricLearner(
        kappa=3,
        algorithm=Edges(sampling_rate=0.25, n_steps=4, clip=0.1),
        preprocessor=X,
        random_state=0,
    ).fit(index, signs)
    event = learner.privacy_event_
    assert isinstance(event, dp_event.SelfComposedDpEvent)
    assert event.count == 4
    mixture = event.event
    assert list(mixture.sensitivities) == [0, 1, 2, 3]
    np.testing.assert_allclose(mixture.sampling_probs, stats.binom.pmf(range(4), 3, 0.25))
    assert mixture.standard_deviation == 9.0
    assert [plan.sigma for _, plan in released] == pytest.approx([0.9] * 4)
    assert learner.statement_.adjacency == Adjacency.ZERO_OUT


def test_every_pair_has_its_own_coin_in_every_step(monkeypatch):
    # 40 steps of 150 pairs at rate 1/4: a count outside 1500 ± 190 has probability below 1e-7 (Bernstein).
    monkeypatch.setattr(dpp, "group_poisson_sigma", lambda *_: 0.0)
    X, index, signs = edges(4)
    chosen = []
    original = dpp.clipped_gradient_sum

    def spy(W, points, index, *args, **kwargs):
        chosen.append(frozenset(map(tuple, index.tolist())))
        return original(W, points, index, *args, **kwargs)

    monkeypatch.setattr(dpp, "clipped_gradient_sum", spy)
    DPPMetricLearner(
        epsilon=math.inf,
        algorithm=Edges(sampling_rate=0.25, n_steps=40),
        preprocessor=X,
        random_state=1,
    ).fit(index, signs)
    assert len(set(chosen)) == 40
    assert abs(sum(map(len, chosen)) - 1500) < 190


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_pure_noise_covers_the_shift_and_its_rounding_in_every_touched_batch(
    released, batches, adjacency
):
    X, index, signs = edges(5)
    kappa, epochs = 3, 4
    learner = DPPMetricLearner(
        epsilon=2.0,
        algorithm=Pure(adjacency=adjacency, n_steps=epochs, n_batches=batches),
        kappa=kappa,
        preprocessor=X,
        random_state=0,
    ).fit(index, signs)
    assert len(released) == epochs * batches
    plan = released[0][1]
    moves = {"zero-out": 1, "replace-one": 2}[adjacency]
    shift = kappa * moves * 0.1
    rounding = plan.lattice.grid * 16 * min(kappa, batches)  # a 4 x 4 matrix
    loss = epochs * (shift + rounding) / plan.scale
    assert learner.sensitivity() == pytest.approx(shift)
    assert 0.99 * 2.0 <= loss <= 2.0
    assert epsilon_of(learner.privacy_event_, 0.0, adjacency) == pytest.approx(2.0)
    assert learner.statement_.delta == 0.0


def test_batches_depend_on_the_place_in_the_list_only(monkeypatch):
    X, index, signs = edges(6)
    seen = []
    original = dpp.clipped_gradient_sum

    def spy(W, points, index, *args, **kwargs):
        seen.append(len(index))
        return original(W, points, index, *args, **kwargs)

    monkeypatch.setattr(dpp, "clipped_gradient_sum", spy)
    for points, labels in ((X, signs), (-3 * X, -signs)):
        DPPMetricLearner(
            algorithm=Pure(n_steps=1, n_batches=5), kappa=1, preprocessor=points, random_state=3
        ).fit(index, labels)
    assert seen[:5] == seen[5:]
    assert sum(seen[:5]) == len(index)


def test_a_budget_is_charged_before_any_noise_and_refuses_what_would_pass_it(released):
    X, y = individuals(7)
    with PrivacyBudget(epsilon=1.2, delta=1e-5) as budget:
        learner = DPPMetricLearner(algorithm="matching", budget=budget, random_state=0)
        learner.fit(X, y)
        drawn = len(released)
        with pytest.raises(BudgetExceededError):
            clone(learner).fit(X, y)
        assert len(released) == drawn
        assert budget.spent() == pytest.approx(1.0, rel=1e-6)


def test_grid_search_charges_every_fit():
    X, y = individuals(8)
    with PrivacyBudget(epsilon=50.0, delta=1e-5) as budget:
        pipeline = make_pipeline(
            DPPMetricLearner(algorithm=Matching(n_steps=2), budget=budget), KNeighborsClassifier()
        )
        grid = {"dppmetriclearner__clip": [0.05, 0.1]}
        GridSearchCV(pipeline, grid, cv=2, refit=True).fit(X, y)
        assert len(budget.charges) == 5


def test_an_infinite_epsilon_adds_no_noise_and_says_so(released):
    X, y = individuals(9)
    learner = DPPMetricLearner(epsilon=math.inf, algorithm="matching", random_state=0).fit(X, y)
    assert all(plan.sigma == 0 for _, plan in released)
    assert isinstance(learner.privacy_event_, dp_event.NonPrivateDpEvent)
    assert "not private" in learner.statement_.paragraph()


# --------------------------------------------------------------------------------------------------------------------
# An audit from outside


def _lower_bound_of_epsilon(hits, misses, runs, delta, confidence=1 - 5e-8):
    """Clopper-Pearson lower bound of epsilon from how often an event happened under two neighbours."""
    low = stats.beta.ppf(1 - confidence, hits, runs - hits + 1)
    high = stats.beta.ppf(confidence, misses + 1, runs - misses)
    return math.log((low - delta) / high) if low > delta else -math.inf


def _audit(noise_factor, monkeypatch):
    """Tell a similar from a dissimilar pair by the released step; the threshold is fixed in advance by theory."""
    runs = 6000

    def release(plan, value, randomness, **_):
        return gaussian(value, plan.sigma * noise_factor, randomness)

    monkeypatch.setattr(PlannedRelease, "release", release)
    X = np.array([[0.45, 0.0], [-0.45, 0.0]])
    learner = DPPMetricLearner(
        algorithm=Matching(n_steps=1, shrinkage=False, learning_rate=1.0, start_share=0.0),
        delta=1e-5,
    )
    learner._check_parameters()
    source = Randomness(12)
    moved = {}
    for classes in ((0, 0), (0, 1)):
        plan, _ = learner._plan(X, np.array(classes), source)
        moved[classes] = np.array([plan.run()[0, 0] - 1.0 for _ in range(runs)])
    # A similar pair moves W[0, 0] by -1, a dissimilar one by +1, with deviation 2/mu.
    threshold = -1.0 + 2.33 * noise_factor * 2.0 / release_mu(1.0, 1e-5, hardened=True)
    hits, misses = (int(np.sum(moved[c] > threshold)) for c in ((0, 1), (0, 0)))
    return _lower_bound_of_epsilon(hits, misses, runs, 1e-5)


def test_a_distinguishing_audit_at_epsilon_one_finds_no_more_than_one(monkeypatch):
    assert _audit(1.0, monkeypatch) < 1.0


def test_the_same_audit_flags_a_copy_with_a_quarter_of_the_noise(monkeypatch):
    assert _audit(0.25, monkeypatch) > 1.0


# --------------------------------------------------------------------------------------------------------------------
# Post-processing


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5))
def test_sums_of_gradients_are_reachable_and_projection_onto_those_is_orthogonal(seed, rows):
    W, points, index, dissimilar = some_pairs(seed, k=rows)
    total, _ = clipped_gradient_sum(W, points, index, dissimilar, margin=1.0, clip=0.5)
    np.testing.assert_allclose(reachable_part(W, total), total, rtol=1e-6, atol=1e-8)
    noise = np.random.default_rng(seed).normal(size=W.shape)
    part = reachable_part(W, noise)
    np.testing.assert_allclose(reachable_part(W, part), part, rtol=1e-6, atol=1e-8)
    assert abs(np.sum((noise - part) * part)) <= 1e-6 * np.sum(noise**2)


def test_at_a_square_start_the_projection_halves_a_matrix_to_its_symmetric_part():
    G = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(reachable_part(np.eye(4), G), (G + G.T) / 2, atol=1e-12)


def test_shrinking_removes_values_below_the_threshold_and_keeps_the_energy_above():
    matrix = np.diag([5.0, 3.0, 1.0])
    np.testing.assert_allclose(
        shrink_singular_values(matrix, 3.0), np.diag([4.0, 0.0, 0.0]), atol=1e-12
    )


def test_where_there_is_only_noise_the_metric_stays_close_to_the_euclidean_one():
    # Of pure noise at most the few largest directions can pass a threshold at 1.1 times those of another noise matrix.
    walk = DriftDescent(np.eye(12), 1.0, shrinkage=True, randomness=Randomness(1))
    plain = DriftDescent(np.eye(12), 1.0, shrinkage=False, randomness=Randomness(1))
    noise = np.random.default_rng(2)
    for _ in range(20):
        released_ = 0.3 * noise.normal(size=(12, 12))
        walk.descend(released_, 0.3)
        plain.descend(released_, 0.3)
    moved = np.linalg.norm(walk.W - np.eye(12))
    assert moved < 0.5 * np.linalg.norm(plain.W - np.eye(12))


def test_the_start_is_orthonormal_and_does_not_depend_on_the_data():
    start = orthonormal_rows(3, 7, Randomness(0))
    np.testing.assert_allclose(start @ start.T, np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(orthonormal_rows(4, 4, Randomness(0)), np.eye(4))
    walks = []
    for seed in (0, 1):
        X, y = individuals(seed)
        learner = DPPMetricLearner(
            algorithm=Matching(learning_rate=1e-12, start_share=0.0), n_components=2, random_state=5
        )
        walks.append(learner.fit(X, y).components_)
    np.testing.assert_allclose(walks[0], walks[1], atol=1e-8)


# --------------------------------------------------------------------------------------------------------------------
# Learning


def _table(rng, n, d=20):
    """Three classes in three directions, drowned in seventeen wider ones; scaled by public constants."""
    y = rng.integers(3, size=n)
    X = 1.8 * rng.normal(size=(n, d))
    X[:, :3] = 2.2 * np.eye(3)[y] + 0.7 * rng.normal(size=(n, 3))
    return X / (2.0 * math.sqrt(d)), y


@pytest.mark.parametrize("rows", [None, 5])
def test_a_private_metric_comes_close_to_the_non_private_one_on_a_synthetic_table(rows):
    # The check of mechanisms.md 4.3 A in small. Stated: at epsilon 4 within 0.03 and at epsilon 1 within 0.08 of the
    # non-private metric, and above the Euclidean one by 0.03 or more.
    rng = np.random.default_rng(3)
    (X, y), (Z, z) = _table(rng, 4000), _table(rng, 1500)

    def accuracy(train, test):
        return KNeighborsClassifier(5, algorithm="brute").fit(train, y).score(test, z)

    scores = {}
    for epsilon in (math.inf, 4.0, 1.0):
        learner = DPPMetricLearner(
            epsilon=epsilon, algorithm="matching", n_components=rows, random_state=0
        ).fit(X, y)
        scores[epsilon] = accuracy(learner.transform(X), learner.transform(Z))
    raw = accuracy(X, Z)
    assert scores[math.inf] > raw + 0.05
    assert scores[4.0] > scores[math.inf] - 0.03
    assert scores[1.0] > scores[math.inf] - 0.08
    assert scores[1.0] > raw + 0.03


def test_an_edge_list_teaches_the_direction_that_separates_the_classes():
    X, index, signs = edges(10, n=2000, m=4000)
    learner = DPPMetricLearner(
        epsilon=4.0, kappa=4, preprocessor=X, delta=1e-6, random_state=0
    ).fit(index, signs)
    M = learner.get_mahalanobis_matrix()
    assert M[0, 0] > 1.5 * np.max(np.diag(M)[1:])


# --------------------------------------------------------------------------------------------------------------------
# Interface


def test_scikit_learn_accepts_the_estimator_of_individuals():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(DPPMetricLearner(algorithm="matching"))


def test_points_and_indices_give_the_same_metric():
    X, index, signs = edges(11)
    given_ = DPPMetricLearner(kappa=3, random_state=0).fit(X[index], signs)
    looked_up = DPPMetricLearner(kappa=3, preprocessor=X, random_state=0).fit(index, signs)
    called = DPPMetricLearner(kappa=3, preprocessor=lambda i: X[i], random_state=0)
    called.fit(index, signs)
    np.testing.assert_allclose(given_.components_, looked_up.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(called.components_, looked_up.components_, rtol=1e-6, atol=1e-9)


def test_distances_scores_matrix_and_transform_agree():
    X, index, signs = edges(12)
    learner = DPPMetricLearner(kappa=2, n_components=3, preprocessor=X, random_state=0)
    learner.fit(index, signs)
    embedded = learner.transform(X)
    expected = np.linalg.norm(embedded[index[:, 0]] - embedded[index[:, 1]], axis=1)
    np.testing.assert_allclose(learner.pair_distance(X[index]), expected)
    np.testing.assert_allclose(learner.pair_score(X[index]), -expected)
    learner.set_params(preprocessor=X)
    np.testing.assert_allclose(learner.pair_distance(index), expected)
    difference = X[0] - X[1]
    squared = difference @ learner.get_mahalanobis_matrix() @ difference
    assert learner.get_metric()(X[0], X[1]) == pytest.approx(math.sqrt(squared))
    assert learner.get_feature_names_out().tolist() == [f"dppmetriclearner{i}" for i in range(3)]


def test_a_fitted_learner_survives_pickling():
    X, y = individuals(13)
    learner = DPPMetricLearner(algorithm="matching", random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.transform(X), learner.transform(X))
    assert again.statement_ == learner.statement_


def test_nothing_is_answered_before_fit():
    learner = DPPMetricLearner()
    for question in (learner.sensitivity, learner.get_mahalanobis_matrix, learner.get_metric):
        with pytest.raises(NotFittedError):
            question()


@pytest.mark.parametrize(("kappa", "covered"), [(3, False), (4, True)])
def test_individuals_are_called_covered_only_where_none_is_in_more_pairs_than_kappa(kappa, covered):
    # A star of four pairs in a public topology, in which no path implies anything: kappa' is 1.
    index = np.array([[0, leaf] for leaf in range(1, 5)])
    learner = DPPMetricLearner(
        algorithm=Edges(topology="public", n_steps=1),
        kappa=kappa,
        preprocessor=individuals(3, n=5)[0],
    ).fit(index, np.array([1, -1, 1, -1]))
    notes = " ".join(learner.statement_.notes)
    assert ("all pairs of one individual are covered together" in notes) == covered
    assert ("is not protected as a whole" in notes) != covered


@pytest.mark.parametrize(("relationship", "kappa"), [("transitive", 3), ("intransitive", 2)])
def test_a_public_topology_gives_kappa_and_refuses_a_smaller_one(relationship, kappa):
    # A wheel on three spokes is K4: kappa' = 3, and two if similarity does not travel.
    index = [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3], [3, 1]]
    X = np.random.default_rng(0).normal(size=(4, 3))
    signs = [1, 1, -1, -1, 1, -1]
    assert PairGraph(index).kappa_bound(relationship) >= kappa
    bound = PairGraph(index).kappa_bound(relationship)
    public = Edges(topology="public", relationship=relationship)
    options = {"algorithm": public, "preprocessor": X}
    learner = DPPMetricLearner(**options).fit(index, signs)
    assert learner.kappa_ == bound
    assert "who is paired with whom" in learner.statement_.not_protected
    with pytest.raises(InvalidParameterError, match="at least"):
        DPPMetricLearner(kappa=bound - 1, **options).fit(index, signs)


def test_node_dp_takes_the_degree_of_a_public_topology_and_refuses_a_smaller_cap():
    index = [[0, i] for i in range(1, 6)]  # a star: kappa' = 1, but the hub is in five pairs
    X = np.random.default_rng(0).normal(size=(6, 2))
    common = {"preprocessor": X, "delta": 1e-6}
    public = DPPMetricLearner(algorithm=Edges(topology="public"), **common)
    assert public.fit(index, [1] * 5).kappa_ == 1
    options = {"algorithm": NodeDP(topology="public"), **common}
    node = DPPMetricLearner(**options).fit(index, [1] * 5)
    assert node.kappa_ == 5
    assert node.statement_.unit == "all pairs of one individual"
    with pytest.raises(InvalidParameterError, match="largest degree"):
        DPPMetricLearner(kappa=4, **options).fit(index, [1] * 5)


def test_a_private_topology_is_never_read_for_kappa():
    # A path and a cycle have different kappa', but a declared bound gives both the same noise.
    X = np.random.default_rng(0).normal(size=(5, 2))
    path, cycle = [[0, 1], [1, 2], [2, 3], [3, 4]], [[0, 1], [1, 2], [2, 0], [3, 4]]
    scales = {
        DPPMetricLearner(kappa=2, preprocessor=X).fit(index, [1] * 4).noise_scale_
        for index in (path, cycle)
    }
    assert len(scales) == 1


def test_an_individual_beyond_kappa_pairs_is_named_as_unprotected():
    X, index, signs = edges(14)
    learner = DPPMetricLearner(kappa=1, preprocessor=X, random_state=0).fit(index, signs)
    assert any("not protected as a whole" in note for note in learner.statement_.notes)


def test_a_seed_is_confessed_in_the_statement():
    X, y = individuals(15)
    seeded = DPPMetricLearner(algorithm="matching", random_state=1).fit(X, y)
    secret = DPPMetricLearner(algorithm="matching").fit(X, y)
    assert any("experiments" in note for note in seeded.statement_.notes)
    assert not any("experiments" in note for note in secret.statement_.notes)


def test_one_class_only_is_learned_from_without_a_word():
    # Refusing it would tell that everybody is of one class.
    X, _ = individuals(16)
    learner = DPPMetricLearner(algorithm="matching", random_state=0).fit(X, np.zeros(len(X)))
    assert np.all(np.isfinite(learner.components_))


# --------------------------------------------------------------------------------------------------------------------
# Input perturbation


def test_randomised_response_has_the_odds_of_epsilon():
    # 60,000 draws; a chi-square p-value below 1e-9 is the alarm.
    epsilon, k = 1.3, 4
    codes = np.full(60_000, 2)
    drawn = randomised_response(codes, k, epsilon, Randomness(3))
    keep = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    expected = np.full(k, (1 - keep) / (k - 1))
    expected[2] = keep
    counts = np.bincount(drawn, minlength=k)
    assert stats.chisquare(counts, expected * len(codes)).pvalue > 1e-9
    assert math.log(expected[2] / expected[0]) == pytest.approx(epsilon)


@pytest.mark.parametrize("k", [2, 5])
def test_the_chance_of_a_true_answer_is_rounded_so_that_the_odds_stay_below_epsilon(k):
    # A uniform number a little below the true chance, where rounding down leaves the answer and rounding up would not.
    keep = math.exp(1.3) / (math.exp(1.3) + k - 1)
    source = SimpleNamespace(
        uniform=lambda shape: np.full(shape, keep * (1.0 - 5e-13)),
        integers=lambda high, shape: np.zeros(shape, dtype=np.int64),
    )
    assert randomised_response(np.array([0]), k, 1.3, source).tolist() == [1]


def test_features_and_classes_of_perturbed_individuals_together_spend_exactly_epsilon(
    released, monkeypatch
):
    spent = []

    def spy(codes, n_classes, epsilon, randomness):
        spent.append(epsilon)
        return codes

    monkeypatch.setattr(pairwise.algorithms.input_perturbation, "randomised_response", spy)
    X, y = individuals(3)
    learner = DPPMetricLearner(
        epsilon=2.0, algorithm="input-perturbation", classes=[0, 1], random_state=0
    ).fit(X, y)
    assert len(released) == len(spent) == 1
    assert released[0][1].epsilon + spent[0] == learner.statement_.epsilon == 2.0


def test_individuals_are_perturbed_once_with_laplace_noise_of_the_full_range():
    # Mean absolute value of 40,000 Laplace draws: deviation b/200, so 6 deviations are 3 percent.
    X = np.zeros((4000, 10))
    noisy, labels = perturb_individuals(
        X,
        np.zeros(4000, dtype=np.int64),
        1,
        epsilon_features=0.5,
        epsilon_class=0.5,
        bound=1.0,
        randomness=Randomness(4),
    )
    assert np.mean(np.abs(noisy)) == pytest.approx(2.0 / 0.5, rel=0.03)
    assert not labels.any()


def test_features_are_clipped_in_l1_before_they_are_perturbed():
    quiet = perturb_individuals(
        np.array([[30.0, -10.0]]),
        np.zeros(1, dtype=np.int64),
        1,
        epsilon_features=1e6,
        epsilon_class=1.0,
        bound=1.0,
        randomness=Randomness(5),
    )[0]
    np.testing.assert_allclose(quiet, [[0.75, -0.25]], atol=0.02)


def test_input_perturbation_states_a_pure_local_guarantee():
    X, y = individuals(17)
    learner = DPPMetricLearner(
        epsilon=2.0, algorithm="input-perturbation", classes=[0, 1], random_state=0
    ).fit(X, y)
    assert (learner.statement_.epsilon, learner.statement_.delta) == (2.0, 0.0)
    assert epsilon_of(learner.privacy_event_, 0.0) == pytest.approx(2.0)


# --------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": -1.0}, "epsilon must be > 0"),
        ({"epsilon": math.nan}, "epsilon must be > 0"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"delta": 0.0}, "delta = 0"),
        ({"delta": 0.01}, "below 1/n"),
        ({"delta": -1e-5}, "delta must be"),
        ({"kappa": 0}, "kappa must be"),
        ({"kappa": 1.5}, "kappa must be"),
        ({"kappa": None}, "kappa must be declared"),
        ({"n_components": 0}, "n_components must be"),
        ({"algorithm": Edges(n_steps=0)}, "n_steps must be"),
        ({"algorithm": Edges(sampling_rate=1.5)}, "sampling_rate"),
        ({"algorithm": Edges(clip=0.0)}, "clip must be"),
        ({"algorithm": Edges(margin=math.inf)}, "margin must be"),
        ({"data_norm": math.inf}, "data_norm must be"),
        ({"noise": "laplace"}, "noise for algorithm 'edges'"),
        ({"noise": "staircase"}, "noise for algorithm 'edges'"),
        ({"algorithm": "pure", "noise": "gaussian"}, "noise for algorithm 'pure'"),
        (
            {"algorithm": "pure", "adaptive_clip": True},
            "adaptive_clip was set, but algorithm 'pure'",
        ),
        ({"algorithm": "magic"}, "algorithm must be one of"),
        ({"mode": "fast"}, "mode must be 'sound' or"),
        (
            {"algorithm": Edges(sampling_rate=0.5, adjacency="replace-one")},
            "sampling_rate = 1",
        ),
        ({"algorithm": Edges(init=np.ones((2, 9)))}, "init must be a finite matrix"),
        ({"preprocessor": None}, "algorithm='matching'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_in_words(options, message):
    X, index, signs = edges(20)
    settings_ = {"kappa": 2, "preprocessor": X, "random_state": 0, **options}
    with pytest.raises(PairwiseError, match=message):
        DPPMetricLearner(**settings_).fit(index, signs)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1], [2, 2]], "self pairs"),
        ([[0, 1], [1, 0]], "repetitions"),
        ([[0, 1], [0, 1]], "repetitions"),
        ([[0, 1], [2, 100]], "below the"),
        ([[0, 1], [2, -1]], "must be >= 0"),
        ([[0, 1], [2, 1.5]], "whole-number"),
        ([[0, 1, 2], [3, 4, 5]], "learns from pairs"),
        (np.empty((0, 2)), "must not be empty"),
    ],
)
def test_malformed_index_pairs_are_refused(pairs, message):
    X, _, _ = edges(21)
    with pytest.raises(InvalidPairsError, match=message):
        DPPMetricLearner(kappa=1, preprocessor=X).fit(pairs, [1, -1][: len(pairs)])


def test_point_pairs_that_repeat_or_join_a_point_to_itself_are_refused():
    a, b, c = np.eye(3)
    with pytest.raises(InvalidPairsError, match="self pairs"):
        DPPMetricLearner(kappa=1).fit(np.array([[a, b], [c, c]]), [1, 1])
    with pytest.raises(InvalidPairsError, match="repetitions"):
        DPPMetricLearner(kappa=1).fit(np.array([[a, b], [b, a]]), [1, 1])


@pytest.mark.parametrize("labels", [[1, 0], [1, 2], ["a", "b"], [1.0, math.nan], [1], [[1], [1]]])
def test_labels_of_pairs_other_than_plus_and_minus_one_are_refused(labels):
    X, _, _ = edges(22)
    with pytest.raises(InvalidPairsError, match="y must"):
        DPPMetricLearner(kappa=1, preprocessor=X).fit([[0, 1], [2, 3]], labels)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "word"])
def test_features_that_are_not_finite_numbers_are_refused_without_repeating_them(bad):
    X, index, signs = edges(23)
    points = X.astype(object)
    points[0, 0] = bad
    with pytest.raises(InvalidPairsError) as caught:
        DPPMetricLearner(kappa=1, preprocessor=points).fit(index, signs)
    assert "word" not in str(caught.value)
    with pytest.raises(ValueError):  # noqa: PT011  scikit-learn's own words
        DPPMetricLearner(algorithm="matching").fit(points, np.zeros(len(points)))


def test_classes_of_mixed_types_are_refused():
    X, y = individuals(24)
    mixed = [str(v) if i % 2 else int(v) for i, v in enumerate(y)]
    with pytest.raises(InvalidParameterError, match="one type"):
        DPPMetricLearner(algorithm="matching").fit(X, mixed)


def test_individuals_given_to_the_edge_algorithm_are_sent_to_the_right_one():
    X, y = individuals(25)
    with pytest.raises(InvalidPairsError, match="algorithm='matching'"):
        DPPMetricLearner(kappa=1).fit(X, y)


@pytest.mark.parametrize(
    ("classes", "message"),
    [(None, "needs classes"), ([0], "every class in y"), ([0, 0, 1], "different labels")],
)
def test_input_perturbation_needs_the_whole_public_list_of_classes(classes, message):
    X, y = individuals(26)
    with pytest.raises(InvalidParameterError, match=message):
        DPPMetricLearner(algorithm="input-perturbation", classes=classes).fit(X, y)


def test_the_default_takes_individuals_for_a_matching_and_pairs_for_an_edge_list():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)) * 0.3, np.arange(40) % 2
    index, signs = np.arange(40).reshape(-1, 2), np.where(np.arange(20) % 2, 1, -1)
    common = {"random_state": 0, "delta": 1e-5}
    public = {"algorithm__topology": "public"}
    learned = {
        "matching": [DPPMetricLearner(**common).fit(X, y)],
        "edges": [
            DPPMetricLearner(kappa=1, **common).fit(X[index], signs),
            DPPMetricLearner(kappa=1, preprocessor=X, **common).fit(index, signs),
        ],
    }
    for name, found in learned.items():
        settings = {} if name == "matching" else {"kappa": 1}
        named = DPPMetricLearner(algorithm=name, **settings, **common)
        named = named.fit(X, y) if name == "matching" else named.fit(X[index], signs)
        for learner in found:
            assert np.array_equal(learner.components_, named.components_)
    with_public = DPPMetricLearner(preprocessor=X, **common).set_params(**public)
    assert with_public.algorithm.topology == "public"
