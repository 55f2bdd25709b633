"""Pair losses: gradients, and the constants that privacy rests on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.errors import InvalidParameterError
from pairwise.pairs.losses import get_loss

AUC = ["auc-logistic", "auc-hinge"]
METRIC = ["metric-logistic", "metric-hinge", "contrastive"]
SMOOTH = ["auc-logistic", "metric-logistic"]


def t(values):
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def pair_gradient(loss, parameter, x, x2, sign):
    """Return the gradient of one pair in the parameter of the loss, by its derivative."""
    difference = t(x) - t(x2)
    w = t(parameter)
    if loss.parameter == "vector":
        return loss.derivative(w @ difference, sign) * difference
    if loss.parameter == "matrix":
        inner = difference @ w @ difference
        return loss.derivative(inner, sign) * torch.outer(difference, difference)
    image = w @ difference
    return 2 * loss.derivative(image @ image, sign) * torch.outer(image, difference)


def pair_value(loss, w, x, x2, sign):
    difference = t(x) - t(x2)
    if loss.parameter == "vector":
        return loss.value(w @ difference, sign)
    if loss.parameter == "matrix":
        return loss.value(difference @ w @ difference, sign)
    image = w @ difference
    return loss.value(image @ image, sign)


def shape_of(loss, d):
    return (d,) if loss.parameter == "vector" else (d, d)


def unit_rows(rng, count, d, R):
    rows = rng.standard_normal((count, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * R


@pytest.mark.parametrize("name", AUC + METRIC)
@pytest.mark.parametrize("sign", [-1, 1])
def test_gradient_equals_automatic_differentiation(name, sign):
    loss = get_loss(name)
    rng = np.random.default_rng(3)
    for _ in range(50):
        x, x2 = rng.standard_normal((2, 4))
        w = torch.tensor(rng.standard_normal(shape_of(loss, 4)) * 0.3, requires_grad=True)
        (automatic,) = torch.autograd.grad(pair_value(loss, w, x, x2, sign), w)
        ours = pair_gradient(loss, w.detach(), x, x2, sign)
        assert torch.allclose(ours, automatic, atol=1e-10)


@pytest.mark.parametrize("name", AUC + METRIC)
@pytest.mark.parametrize("sign", [-1, 1])
def test_derivative_equals_finite_differences_of_the_value(name, sign):
    loss = get_loss(name)
    # Kinks lie at 1 (hinges, contrastive margin) and at 0 (contrastive): the grid avoids both.
    inner = t(np.linspace(0.013, 3.017, 211))
    step = 1e-6
    slope = (loss.value(inner + step, sign) - loss.value(inner - step, sign)) / (2 * step)
    assert torch.allclose(loss.derivative(inner, sign), slope, atol=1e-7)


@pytest.mark.parametrize("name", AUC)
def test_pairs_of_one_class_have_no_gradient(name):
    loss = get_loss(name)
    assert torch.equal(loss.derivative(t([-3.0, 0.0, 3.0]), 0), t([0.0, 0.0, 0.0]))
    assert len(loss.value(t([-3.0, 0.0, 3.0]), 0).unique()) == 1


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from([*AUC, "metric-logistic", "metric-hinge"]),
    seed=st.integers(0, 2**32 - 1),
    R=st.floats(0.1, 5.0),
    scale=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    sign=st.sampled_from([-1, 1]),
)
def test_no_pair_exceeds_g(name, seed, R, scale, sign):
    loss = get_loss(name)
    rng = np.random.default_rng(seed)
    G = loss.lipschitz(R)
    for x, x2 in zip(unit_rows(rng, 5, 3, R), unit_rows(rng, 5, 3, R), strict=True):
        w = rng.standard_normal(shape_of(loss, 3)) * scale
        for other in (x2, -x):
            assert pair_gradient(loss, w, x, other, sign).norm() <= G * (1 + 1e-12)


@pytest.mark.parametrize("name", [*AUC, "metric-logistic", "metric-hinge"])
@pytest.mark.parametrize("R", [0.5, 1.0, 3.0])
def test_g_is_attained_by_opposite_records(name, R):
    loss = get_loss(name)
    x = np.array([R, 0.0, 0.0])
    far = 1e3 if name.endswith("logistic") else 0.0
    w = np.zeros(shape_of(loss, 3))
    w.flat[0] = -far  # score difference, or squared distance, as far below zero as it takes
    sign = 1 if loss.kind == "auc" else -1
    assert pair_gradient(loss, w, x, -x, sign).norm() == pytest.approx(loss.lipschitz(R), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(SMOOTH),
    seed=st.integers(0, 2**32 - 1),
    R=st.floats(0.1, 3.0),
    sign=st.sampled_from([-1, 1]),
)
def test_no_two_parameters_break_smoothness(name, seed, R, sign):
    loss = get_loss(name)
    L = loss.smoothness(R)
    rng = np.random.default_rng(seed)
    x = unit_rows(rng, 1, 3, R)[0]
    first = rng.standard_normal(shape_of(loss, 3)) * rng.uniform(0, 2)
    for other in (
        rng.standard_normal(first.shape),
        first + 1e-3 * rng.standard_normal(first.shape),
    ):
        change = pair_gradient(loss, first, x, -x, sign) - pair_gradient(loss, other, x, -x, sign)
        assert change.norm() <= L * np.linalg.norm(first - other) * (1 + 1e-9)


@pytest.mark.parametrize("name", SMOOTH)
def test_l_is_attained_at_the_steepest_point(name):
    loss, R = get_loss(name), 0.8
    x = np.array([R, 0.0])
    centre = np.zeros(shape_of(loss, 2))
    if loss.kind == "metric":  # curvature peaks where the squared distance is 1
        centre[0, 0] = 1 / (4 * R * R)
    moved = centre.copy()
    moved.flat[0] += 1e-5
    change = pair_gradient(loss, moved, x, -x, 1) - pair_gradient(loss, centre, x, -x, 1)
    assert change.norm() / 1e-5 == pytest.approx(loss.smoothness(R), rel=1e-6)


@pytest.mark.parametrize("name", AUC + METRIC[:2])
def test_convex_losses_are_convex_in_their_number(name):
    loss = get_loss(name)
    assert loss.convex
    inner = t(np.linspace(-4, 4, 401))
    for sign in (-1, 1):
        slopes = loss.derivative(inner, sign)
        assert bool((slopes.diff() >= -1e-15).all())


def test_the_contrastive_loss_has_no_bound_without_a_bounded_factor_and_is_not_convex():
    loss = get_loss("contrastive")
    assert loss.lipschitz(1.0) == math.inf
    assert not loss.convex
    assert loss.smoothness(1.0) is None
    # Not convex along W: value at the midpoint of W and -W exceeds the mean of the ends.
    assert loss.value(t(0.0), -1) > loss.value(t(0.49), -1)


def test_the_contrastive_gradient_at_zero_distance_is_zero():
    loss = get_loss("contrastive")
    x = np.array([0.3, 0.4])
    for sign in (-1, 1):
        assert pair_gradient(loss, np.eye(2), x, x, sign).norm() == 0.0
        assert pair_gradient(loss, np.zeros((2, 2)), x, -x, sign).norm() == 0.0


def test_contrastive_cases_follow_the_paper():
    loss = get_loss("contrastive", margin=2.0)
    image, difference = t([0.6, 0.8]), t([1.0, 2.0])
    for sign, factor in ((1, 1.0), (-1, (1.0 - 2.0) / 1.0)):
        expected = factor * torch.outer(image, difference)
        ours = 2 * loss.derivative(image @ image, sign) * torch.outer(image, difference)
        assert torch.allclose(ours, expected)
    assert float(loss.derivative(t(4.1), -1)) == 0.0


@pytest.mark.parametrize("name", AUC + METRIC)
def test_extreme_numbers_stay_finite(name):
    loss = get_loss(name)
    inner = t([-1e8, -800.0, 0.0, 800.0, 1e8])
    for sign in (-1, 1):
        assert bool(torch.isfinite(loss.value(inner, sign)).all())
        assert bool(torch.isfinite(loss.derivative(inner, sign)).all())


@pytest.mark.parametrize("name", AUC + METRIC)
def test_everything_is_computed_in_float64_and_in_the_shape_given(name):
    loss = get_loss(name)
    inner = torch.rand(3, 4, dtype=torch.float32)
    sign = torch.ones(3, 4, dtype=torch.int64)
    for result in (loss.value(inner, sign), loss.derivative(inner, sign)):
        assert result.dtype == torch.float64
        assert result.shape == (3, 4)


def test_short_names_follow_their_context():
    assert get_loss("logistic").name == "auc-logistic"
    assert get_loss("hinge", kind="metric").name == "metric-hinge"
    loss = get_loss("contrastive", margin=0.5)
    assert get_loss(loss) is loss
    assert loss.margin == 0.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: get_loss("squared"),
        lambda: get_loss("contrastive", margin=0.0),
        lambda: get_loss("logistic").lipschitz(0.0),
        lambda: get_loss("logistic").lipschitz(math.inf),
        lambda: get_loss("hinge").smoothness(-1.0),
    ],
)
def test_settings_without_a_constant_are_refused(call):
    with pytest.raises(InvalidParameterError):
        call()
