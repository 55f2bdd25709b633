"""Domains: the projections are exact, idempotent and 1-Lipschitz."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pairwise.errors import InvalidParameterError
from pairwise.pairs.domains import FrobeniusBall, L2Ball, PSDNuclearBall

DOMAINS = {
    "l2": L2Ball(1.3),
    "frobenius": FrobeniusBall(0.7),
    "psd": PSDNuclearBall(1.1),
}
seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e4])


def sample(seed, scale, d=4):
    return np.random.default_rng(seed).standard_normal((d, d)) * scale


def inside(name, w, slack=1e-9):
    if name in ("l2", "frobenius"):
        return np.linalg.norm(w) <= DOMAINS[name].radius * (1 + slack)
    values = np.linalg.eigvalsh(w)
    symmetric = np.array_equal(w, w.T)
    return symmetric and values.min() >= -slack and values.sum() <= 1.1 * (1 + slack)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(DOMAINS)), seed=seeds, scale=scales)
def test_projection_lands_inside_and_is_idempotent(name, seed, scale):
    once = DOMAINS[name].project(sample(seed, scale))
    assert inside(name, once)
    assert np.abs(DOMAINS[name].project(once) - once).max() <= 1e-12 * max(1.0, np.abs(once).max())


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(sorted(DOMAINS)),
    first=seeds,
    second=seeds,
    scale=scales,
    near=st.booleans(),
)
def test_projection_is_one_lipschitz(name, first, second, scale, near):
    a = sample(first, scale)
    b = a + 1e-3 * sample(second, scale) if near else sample(second, scale)
    moved = np.linalg.norm(DOMAINS[name].project(a) - DOMAINS[name].project(b))
    assert moved <= np.linalg.norm(a - b) * (1 + 1e-9) + 1e-12 * scale


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(DOMAINS)), seed=seeds, scale=scales)
def test_no_point_of_the_set_is_nearer(name, seed, scale):
    """The optimality condition ⟨w − Pw, v − Pw⟩ <= 0 over all v: its maximum over the set has a closed form."""
    w = sample(seed, scale)
    projected = DOMAINS[name].project(w)
    rest = w - projected
    if name in ("l2", "frobenius"):
        support = DOMAINS[name].radius * np.linalg.norm(rest)
    else:
        support = 1.1 * max(0.0, np.linalg.eigvalsh((rest + rest.T) / 2).max())
    assert support - np.sum(rest * projected) <= 1e-9 * max(1.0, np.linalg.norm(w))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.2, 2.0])
def test_psd_projection_equals_a_numerical_minimum(seed, scale):
    w = sample(seed, scale, d=2)

    def matrix(parameters):
        factor = parameters.reshape(2, 2)
        return factor @ factor.T

    found = min(
        (
            minimize(
                lambda p: np.sum((matrix(p) - w) ** 2),
                np.random.default_rng(start).standard_normal(4) * 0.5,
                constraints={"type": "ineq", "fun": lambda p: 1.1 - np.trace(matrix(p))},
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            for start in range(3)
        ),
        key=lambda result: result.fun,
    )
    ours = DOMAINS["psd"].project(w)
    assert np.sum((ours - w) ** 2) == pytest.approx(found.fun, abs=1e-6)
    assert np.abs(ours - matrix(found.x)).max() < 2e-3


@pytest.mark.parametrize("name", ["l2", "frobenius", "psd"])
def test_the_diameter_is_attained_and_never_exceeded(name):
    domain = DOMAINS[name]
    ends = {
        "l2": [(0, 0, 1), (0, 0, -1)],
        "frobenius": [(0, 0, 1), (0, 0, -1)],
        "psd": [(0, 0, 1), (1, 1, 1)],
    }[name]
    points = []
    for row, column, sign in ends:
        point = np.zeros((3, 3))
        point[row, column] = 100.0 * sign
        points.append(domain.project(point))
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(domain.diameter, rel=1e-12)
    assert np.linalg.norm(points[0]) == pytest.approx(domain.norm_bound, rel=1e-12)
    rng = np.random.default_rng(5)
    cloud = [domain.project(rng.standard_normal((3, 3)) * 10) for _ in range(60)]
    assert max(np.linalg.norm(a - b) for a in cloud for b in cloud) <= domain.diameter * (1 + 1e-12)
    assert max(np.linalg.norm(a) for a in cloud) <= domain.norm_bound * (1 + 1e-12)


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_the_container_is_kept_and_the_argument_is_not_changed(name):
    w = sample(1, 3.0)
    before = w.copy()
    result = DOMAINS[name].project(w)
    assert isinstance(result, np.ndarray)
    assert np.array_equal(w, before)
    assert not np.shares_memory(result, w)
    tensor = DOMAINS[name].project(torch.as_tensor(before.astype(np.float32)))
    assert tensor.dtype == torch.float64
    assert np.allclose(tensor.numpy(), result, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e200, 0.0])
def test_extreme_magnitudes_neither_overflow_nor_vanish(scale):
    projected = L2Ball(1.0).project(np.array([3.0, 4.0]) * scale)
    if scale == 1e200:
        assert projected == pytest.approx([0.6, 0.8])
    else:
        assert np.array_equal(projected, np.array([3.0, 4.0]) * scale)


@pytest.mark.parametrize(
    "call",
    [
        lambda: L2Ball(0.0),
        lambda: FrobeniusBall(math.inf),
        lambda: PSDNuclearBall(math.nan),
        lambda: L2Ball(1.0).project(np.array([1.0, math.nan])),
        lambda: PSDNuclearBall(1.0).project(np.zeros((2, 3))),
    ],
)
def test_what_cannot_be_projected_is_refused(call):
    with pytest.raises(InvalidParameterError):
        call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize("name", ["l2", "psd"])
def test_projection_on_a_gpu_stays_there_in_float64_and_equals_that_on_the_processor(name):
    domain = {"l2": L2Ball(0.7), "psd": PSDNuclearBall(0.7)}[name]
    w = torch.as_tensor(np.random.default_rng(3).normal(size=(5, 5)), dtype=torch.float64)
    there = domain.project(w.cuda())
    assert there.is_cuda
    assert there.dtype == torch.float64
    np.testing.assert_allclose(there.cpu().numpy(), domain.project(w).numpy(), atol=1e-11)
