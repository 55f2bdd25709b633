"""The DPP paper's Algorithm 1 as published: what it really guarantees, shown on the neighbours that break its promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pairwise.algorithms.published.dpp as published
from pairwise import BudgetExceededError, DPPMetricLearner, PrivacyBudget, Published, UnsoundWarning
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import Adjacency
from pairwise.algorithms.contrastive import clipped_row_gradient_sum
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness

ROWS, MARGIN, CLIP = 3, 1.0, 0.05

# mechanisms.md DPP-2: one pair at D = m/2 with |W_r Δ| equal in all rows, so that every row is clipped whichever its label.
W0 = np.full((ROWS, 1), MARGIN / 2 / math.sqrt(ROWS))
POINTS = np.array([[0.5], [-0.5], [0.0], [0.0]])


@pytest.fixture
def rows_released(monkeypatch):
    """Each (row mean, scale) handed to the Laplace mechanism, and that the mechanism is handed that ratio."""
    seen = []
    real, real_laplace = published._noised, published.laplace

    def noised(variant, mean, scales, clip, share, randomness):
        seen.extend((row.copy(), float(scale)) for row, scale in zip(mean, scales, strict=True))
        return real(variant, mean, scales, clip, share, randomness)

    def laplace(value, scale, randomness):
        last = seen[-len(value) :]
        np.testing.assert_allclose(value, [row / (scale * own) for row, own in last])
        return real_laplace(value, scale, randomness)

    monkeypatch.setattr(published, "_noised", noised)
    monkeypatch.setattr(published, "laplace", laplace)
    return seen


def one_batch(variant, dissimilar, points=POINTS, index=((0, 1),), epsilon=1.0, kappa=1):
    return published.publish(
        variant,
        W0,
        points,
        np.array(index),
        np.array(dissimilar),
        epsilon=epsilon,
        kappa=kappa,
        margin=MARGIN,
        clip=CLIP,
        batch_size=50,
        epochs=1,
        steps=np.ones(1),
        randomness=Randomness(0),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clip=st.floats(1e-3, 5.0))
def test_row_clipping_by_matrix_products_equals_a_loop(seed, clip):
    rng = np.random.default_rng(seed)
    W, points = rng.normal(size=(3, 4)), rng.normal(size=(12, 4))
    index, dissimilar = rng.permutation(12).reshape(-1, 2), rng.random(6) < 0.5
    expected, largest = np.zeros_like(W), np.zeros(3)
    for (i, j), apart in zip(index, dissimilar, strict=True):
        difference = points[i] - points[j]
        distance = np.linalg.norm(W @ difference)
        factor = (min(distance - 2.0, 0.0) / distance) if apart else 1.0
        for r in range(3):
            row = factor * (W[r] @ difference) * difference
            norm = np.abs(row).sum()
            expected[r] += row / max(1.0, norm / clip)
            largest[r] = max(largest[r], min(norm, clip))
    total, found = clipped_row_gradient_sum(W, points, index, dissimilar, margin=2.0, clip=clip)
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, largest, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_theorem_1_loses_exactly_the_number_of_rows_times_epsilon(rows_released, epsilon):
    # A label flip shifts every row by 2h; the largest Laplace loss of a shift s at scale b is |s|/b, summed over rows.
    for apart in (False, True):
        one_batch("dpp_thm1", [apart], epsilon=epsilon)
    first, second = rows_released[:ROWS], rows_released[ROWS:]
    loss = sum(
        np.abs(a - b).sum() / scale for (a, scale), (b, _) in zip(first, second, strict=True)
    )
    assert loss == pytest.approx(ROWS * epsilon, rel=1e-12)
    truth = published.true_epsilon(
        "dpp_thm1", epsilon, kappa=1, n_rows=ROWS, n_columns=1, batches=1
    )
    assert truth == pytest.approx(loss)


def test_the_noise_scale_of_theorem_2_doubles_when_one_gradient_appears(rows_released):
    # mechanisms.md DPP-1: a batch of zero gradients, and its neighbour with one pair at norm h.
    silent = np.zeros((4, 1))
    silent[2] = 1e-300  # two pairs whose difference vanishes
    one_batch("dpp_s", [False, False], points=silent, index=((0, 1), (2, 3)))
    one_batch("dpp_s", [False, False], points=POINTS, index=((0, 1), (2, 3)))
    quiet, loud = (
        np.array([scale for _, scale in part])
        for part in (rows_released[:ROWS], rows_released[ROWS:])
    )
    np.testing.assert_allclose(loud / quiet, 2.0, rtol=1e-12)
    assert published.true_epsilon("dpp_s", 1.0, kappa=1, n_rows=3, n_columns=1, batches=1) is None


def test_the_scale_of_theorem_1_does_not_depend_on_the_batch(rows_released):
    one_batch("dpp_thm1", [False])
    one_batch("dpp_thm1", [False], points=np.zeros((4, 1)))
    assert len({scale for _, scale in rows_released}) == 1
    assert rows_released[0][1] == pytest.approx(2 * CLIP)  # kappa = 1, one pair, epsilon = 1


@pytest.mark.parametrize(("kappa", "epochs"), [(3, 1), (1, 4)])
def test_the_scale_of_theorem_1_grows_with_kappa_and_with_the_epochs(kappa, epochs):
    kept: list = []
    published.publish(
        "dpp_thm1",
        W0,
        POINTS,
        np.array([[0, 1]]),
        np.array([False]),
        epsilon=1.0,
        kappa=kappa,
        margin=MARGIN,
        clip=CLIP,
        batch_size=50,
        epochs=epochs,
        steps=np.ones(epochs),
        randomness=Randomness(0),
        keep=kept,
    )
    assert len(kept) == epochs
    for _, scales in kept:
        np.testing.assert_allclose(scales, 2 * CLIP * kappa * epochs)


def test_rows_stay_in_the_cube_of_the_corrected_duchi_mechanism():
    W = one_batch("duchi", [False], epsilon=1.0)
    # One coordinate a row: the output is ±h B with B = (e + 1)/(e - 1).
    step = np.abs(W0 - W) / CLIP
    np.testing.assert_allclose(step, (math.e + 1) / (math.e - 1), rtol=1e-9)


def test_scalar_staircase_noise_has_its_variance():
    # 200,000 draws at epsilon = sensitivity = 1: variance 1.918 is met to within 0.011; the alarm is at six times that.
    noise = published.staircase_coordinates((200_000,), 1.0, 1.0, Randomness(1))
    assert np.var(noise) == pytest.approx(1.918, abs=0.066)


@pytest.mark.parametrize("shift", [0.1, 0.5, 1.0])
def test_a_small_shift_costs_staircase_noise_its_whole_epsilon(shift):
    # mechanisms.md DPP-4, on the density that staircase_coordinates draws from: just inside the top step against outside it.
    from pairwise.noise.continuous import staircase_start

    start = staircase_start(1.0, 1.0)

    def log_density(x):
        return -math.ceil(max(abs(x) - start, 0.0))

    x = start - 1e-9
    assert log_density(x) - log_density(x + shift) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("variant", "kappa", "batches", "truth"),
    [
        ("dpp_thm1", 5, 3, 4 * 2.0),
        ("scdf", 5, 3, 3 * 7 * 4 * 2.0),
        ("scdf", 2, 3, 2 * 7 * 4 * 2.0),
        ("duchi", 5, 3, 3 * 4 * 2.0),
        ("dpp_s", 5, 3, None),
    ],
)
def test_true_guarantees_are_those_of_the_errata(variant, kappa, batches, truth):
    found = published.true_epsilon(
        variant, 2.0, kappa=kappa, n_rows=4, n_columns=7, batches=batches
    )
    assert found == truth


def test_literal_step_sizes_stall():
    literal = published.step_sizes(40, "literal")
    assert literal[9] == pytest.approx(5e-4, rel=0.06)
    assert literal[19] == pytest.approx(6e-10, rel=0.08)
    assert literal[4] == pytest.approx(1 / math.sqrt(math.factorial(5)))
    assert literal.sum() == pytest.approx(2.4695, abs=5e-5)


def test_intended_step_sizes_fall_like_one_over_the_root():
    np.testing.assert_allclose(published.step_sizes(9), 1 / np.sqrt(np.arange(1, 10)))
    with pytest.raises(InvalidParameterError, match="rule"):
        published.step_sizes(3, "other")


def test_slots_do_not_depend_on_the_pairs(monkeypatch):
    seen = []
    real = published.clipped_row_gradient_sum

    def spy(W, points, index, *args, **kwargs):
        seen.append(index[:, 0].tolist())
        return real(W, points, index, *args, **kwargs)

    monkeypatch.setattr(published, "clipped_row_gradient_sum", spy)
    index = np.arange(20).reshape(-1, 2)
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        published.publish(
            "dpp_thm1",
            np.eye(2),
            rng.normal(size=(20, 2)),
            index,
            rng.random(10) < 0.5,
            epsilon=1.0,
            kappa=1,
            margin=1.0,
            clip=0.5,
            batch_size=4,
            epochs=2,
            steps=np.ones(6),
            randomness=Randomness(9),
        )
    assert seen[:6] == seen[6:]
    assert [len(batch) for batch in seen[:3]] == [4, 4, 2]


@pytest.mark.parametrize("variant", published.VARIANTS)
def test_only_the_noise_of_finitely_many_values_is_proved_for_its_bits(variant):
    X, index = np.zeros((8, 2)), np.arange(8).reshape(-1, 2)
    learner = DPPMetricLearner(
        algorithm=Published(variant=variant, n_steps=1), kappa=1, preprocessor=X
    )
    with pytest.warns(UnsoundWarning):
        learner.fit(index, np.ones(4))
    assert learner.statement_.proved == (variant == "duchi")


@pytest.mark.parametrize("variant", published.VARIANTS)
def test_the_estimator_warns_and_states_what_is_true(variant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * 0.2
    index = rng.permutation(60).reshape(-1, 2)
    signs = rng.choice([-1, 1], size=30)
    learner = DPPMetricLearner(
        epsilon=1.0,
        algorithm=Published(variant=variant, n_steps=2, batch_size=10),
        kappa=2,
        n_components=3,
        preprocessor=X,
        random_state=0,
    )
    with pytest.warns(UnsoundWarning, match="does not guarantee epsilon = 1"):
        learner.fit(index, signs)
    statement = learner.statement_
    truth = {"dpp_thm1": 3.0, "dpp_s": None, "scdf": 2 * 4 * 3.0, "duchi": 2 * 3.0}[variant]
    assert statement.epsilon == truth
    assert statement.adjacency == Adjacency.REPLACE_ONE
    assert "replaced in place" in statement.unit
    cost = epsilon_of(learner.privacy_event_, 0.0)
    assert cost == (math.inf if truth is None else pytest.approx(truth))
    assert learner.components_.shape == (3, 4)


def test_a_budget_never_admits_a_release_without_a_guarantee():
    X = np.random.default_rng(0).normal(size=(20, 3))
    index = np.arange(20).reshape(-1, 2)
    unit = "any one pair replaced in place"
    with PrivacyBudget(epsilon=100.0, delta=1e-5, unit=unit) as budget:
        learner = DPPMetricLearner(
            algorithm=Published(variant="dpp_s"), kappa=1, preprocessor=X, budget=budget
        )
        with pytest.raises(BudgetExceededError):
            learner.fit(index, np.ones(10))


def test_published_mode_needs_a_declared_kappa():
    X = np.random.default_rng(0).normal(size=(20, 3))
    learner = DPPMetricLearner(algorithm="published", preprocessor=X)
    with pytest.raises(InvalidParameterError, match="kappa must be declared"):
        learner.fit(np.arange(20).reshape(-1, 2), np.ones(10))
