"""Records clipped to a norm, and sums of pair gradients against direct summation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.errors import InvalidParameterError
from pairwise.pairs.clipping import CLIP_SLACK, clip_records, project_to_ball
from pairwise.pairs.losses import LOSSES, AUCPairs, PairBounds, hinge_counts


def loss_value(loss: str, margin: float) -> float:
    """Return the loss of one pair of two classes: logistic losses are linear where the order is wrong."""
    if loss == "hinge":
        return max(0.0, 1.0 - margin)
    return float(np.log(2.0) - margin if margin < 0 else np.log1p(np.exp(-2 * margin)))


def table(seed: int, n: int = 9, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.random(n) < 0.5


# -- clipping


@settings(max_examples=200)
@given(
    st.lists(st.floats(-1e300, 1e300, allow_subnormal=True), min_size=1, max_size=6),
    st.floats(1e-90, 1e90),
)
def test_clipped_records_never_pass_the_bound_and_keep_their_direction(row, bound):
    X = np.array([row])
    clipped = clip_records(X, bound)
    peak = np.abs(X).max() or 1.0
    length = peak * np.linalg.norm(X / peak)
    scaled = np.abs(clipped).max() or 1.0
    assert scaled * np.linalg.norm(clipped / scaled) <= bound
    if length <= bound * (1 - CLIP_SLACK) * (1 - 1e-12):
        np.testing.assert_array_equal(clipped, X)
    else:
        expected = X / peak / np.linalg.norm(X / peak)
        found = clipped / scaled / np.linalg.norm(clipped / scaled)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_unbounded_clipping_leaves_records_alone():
    X = np.array([[1e9, 2.0]])
    assert clip_records(X, np.inf) is X


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.floats(0.1, 5.0))
def test_projection_is_nearest_and_one_lipschitz(seed, radius):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 4)) * 3
    p, q = project_to_ball(a, radius), project_to_ball(b, radius)
    assert np.linalg.norm(p) <= radius * (1 + 1e-12)
    assert np.linalg.norm(p - q) <= np.linalg.norm(a - b) * (1 + 1e-12)
    assert np.linalg.norm(project_to_ball(p, radius) - p) <= 1e-12


# -- sums


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(0, 8), st.integers(0, 8), st.booleans())
def test_hinge_counts_are_those_of_brute_force_even_at_ties(seed, n, m, gridded):
    rng = np.random.default_rng(seed)
    positive, negative = rng.normal(size=n), rng.normal(size=m)
    if gridded:
        positive, negative = np.round(positive, 1), np.round(negative, 1)
    a, b = hinge_counts(positive, negative)
    within = negative[None, :] > (positive - 1.0)[:, None]
    np.testing.assert_array_equal(a, within.sum(axis=1))
    np.testing.assert_array_equal(b, within.sum(axis=0))


@pytest.mark.parametrize("loss", LOSSES)
def test_sum_over_all_pairs_is_the_gradient_of_the_summed_loss(loss):
    X, positive = table(0)
    sums = AUCPairs(X, positive, loss)
    w = np.array([0.3, -0.2, 0.5])

    def total(w):
        scores = sums.X @ w
        pairs = itertools.product(np.flatnonzero(positive), np.flatnonzero(~positive))
        return sum(loss_value(loss, scores[p] - scores[q]) for p, q in pairs)

    step = 1e-6
    numeric = [(total(w + step * e) - total(w - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(sums.all_pairs(w), numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_listed_pairs_are_parts_of_the_whole(loss):
    X, positive = table(1)
    sums = AUCPairs(X, positive, loss)
    w = np.array([0.3, -0.2, 0.5])
    pairs = np.array(list(itertools.combinations(range(9), 2)))
    np.testing.assert_allclose(sums.over(w, pairs), sums.all_pairs(w), atol=1e-12)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.floats(0.1, 10.0))
def test_no_pair_passes_its_bound_and_no_replacement_its_change(seed, loss, norm):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, 2)) * norm
    labels = rng.random(3) < 0.5
    w = rng.normal(size=2) / norm
    sums, bounds = AUCPairs(clip_records(X, norm), labels, loss), PairBounds(3, 2, loss, norm)
    # Records 1 and 2 are two values of one record, paired with record 0.
    one, two = (sums.over(w, np.array([[0, k]])) for k in (1, 2))
    assert np.linalg.norm(one) <= bounds.change
    assert np.linalg.norm(one - two) <= bounds.change


def test_opposite_records_attain_the_bound():
    for loss in LOSSES:
        sums = AUCPairs(np.array([[3.0], [-3.0]]), np.array([False, True]), loss)
        gradient = sums.over(np.zeros(1), np.array([[0, 1]]))
        assert abs(gradient[0]) == pytest.approx(PairBounds(2, 1, loss, 3.0).change)


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.floats(0.1, 5.0))
def test_no_two_parameters_break_the_smoothness(seed, norm):
    rng = np.random.default_rng(seed)
    records = clip_records(rng.normal(size=(2, 3)) * norm, norm)
    sums = AUCPairs(records, np.array([True, False]))
    v, w = rng.normal(size=(2, 3)) / norm
    apart = np.linalg.norm(sums.all_pairs(v) - sums.all_pairs(w))
    assert apart <= PairBounds(2, 3, data_norm=norm).smoothness * np.linalg.norm(v - w) * (1 + 1e-9)


def test_losses_of_one_class_and_of_far_scores_are_finite():
    X, _ = table(2)
    for labels in (np.ones(9, bool), np.zeros(9, bool)):
        for loss in LOSSES:
            assert not AUCPairs(X, labels, loss).all_pairs(np.full(3, 1e6)).any()
    far = AUCPairs(X, np.arange(9) < 4).all_pairs(np.full(3, 1e6))
    assert np.isfinite(far).all()


def test_unknown_loss_is_refused():
    with pytest.raises(InvalidParameterError, match="logistic"):
        PairBounds(2, 1, "square")
