"""Every metric is what its name says and obeys the axioms; what is not a metric is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist

from textpriv.errors import MetricError, TextprivError
from textpriv.metrics import (
    METRICS,
    Angular,
    CallableMetric,
    Euclidean,
    Mahalanobis,
    Projection,
    UnitEuclidean,
    check_metric,
    distances_from,
    get_metric,
    row_distance,
)

RNG = np.random.default_rng(7)
FACTOR = RNG.normal(size=(5, 5))
MATRIX = FACTOR @ FACTOR.T
PLAIN = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}
DIRECTIONAL = (Angular(), UnitEuclidean())
GIVEN = {"mahalanobis": Mahalanobis(MATRIX), "projection": Projection(FACTOR[:3], radius=2.0)}
EVERY = [GIVEN.get(name) or get_metric(name) for name in sorted(METRICS)]

coordinates = st.floats(-1e3, 1e3, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
triples = hnp.arrays(np.float64, (3, 5), elements=coordinates)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_plain_metric_equals_scipy(name):
    a, b = RNG.normal(size=(7, 12)), RNG.normal(size=(5, 12))
    np.testing.assert_allclose(get_metric(name).pairwise(a, b), cdist(a, b, PLAIN[name]), 1e-13)


def test_mahalanobis_equals_scipy():
    a, b = RNG.normal(size=(7, 5)), RNG.normal(size=(6, 5))
    np.testing.assert_allclose(
        Mahalanobis(MATRIX).pairwise(a, b), cdist(a, b, "mahalanobis", VI=MATRIX), 1e-10
    )


def test_angular_is_the_arc_cosine_of_the_cosine_similarity():
    a, b = RNG.normal(size=(7, 12)), RNG.normal(size=(5, 12))
    np.testing.assert_allclose(
        get_metric("angular").pairwise(a, b), np.arccos(1 - cdist(a, b, "cosine")), 1e-12
    )


def test_unit_euclidean_is_the_euclidean_distance_of_unit_vectors():
    a, b = RNG.normal(size=(7, 12)), RNG.normal(size=(5, 12))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    np.testing.assert_allclose(get_metric("unit_euclidean").pairwise(a, b), cdist(*unit), 1e-13)


@given(
    points=hnp.arrays(np.float64, (6, 5), elements=st.integers(-20, 20)),
    rows=hnp.arrays(np.float64, (3, 5), elements=st.integers(-3, 3)),
    radius=st.sampled_from([None, 0.5, 10.0]),
)
@settings(max_examples=60, deadline=None)
def test_a_projection_lengthens_no_distance_and_no_angle_whatever_the_directions(
    points, rows, radius
):
    points[:, 0] += 0.5  # none is zero
    for base in ("euclidean", "unit_euclidean"):
        short = Projection(rows, base=base, radius=radius).pairwise(points, points)
        assert (short <= get_metric(base).pairwise(points, points) + 1e-12).all()
    assert (short <= get_metric("angular").pairwise(points, points) + 1e-12).all()


def test_principal_directions_are_those_along_which_vectors_vary_most():
    points = RNG.normal(size=(50, 3)) * [0.1, 5.0, 1.0]
    metric = Projection.principal(points, 1)
    assert abs(metric.directions[0, 1]) > 0.99
    np.testing.assert_allclose(
        Projection.principal(points, 3).pairwise(points, points),
        get_metric("euclidean").pairwise(points, points),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Projection([1.0, 2.0]),
        lambda: Projection([[np.nan]]),
        lambda: Projection(np.eye(2), base="manhattan"),
        lambda: Projection(np.eye(2), radius=0.0),
        lambda: Projection.principal(np.eye(4), 5),
        lambda: Projection(np.eye(2)).coordinates(np.eye(3)),
        lambda: get_metric("projection"),
    ],
)
def test_a_projection_that_means_nothing_is_refused(wrong):
    with pytest.raises(MetricError):
        wrong()


@pytest.mark.parametrize("angle", [1e-7, 1e-3, 1.0, 3.0, np.pi - 1e-3, np.pi])
def test_angular_keeps_its_digits_at_every_angle_of_float32_vectors(angle):
    # The rounding of a float32 direction moves an angle by at most about 2^-22.
    lengths = RNG.uniform(0.1, 10, size=64)
    turn = RNG.uniform(0, 2 * np.pi, size=64)
    a = (lengths * [np.cos(turn), np.sin(turn)]).T.astype(np.float32)
    b = (3 * lengths * [np.cos(turn + angle), np.sin(turn + angle)]).T.astype(np.float32)
    metric = get_metric("angular")
    left, right = metric.coordinates(a), metric.coordinates(b)
    found = [row_distance(metric.kind, left, i, right, i) for i in range(len(left))]
    np.testing.assert_allclose(found, angle, rtol=0, atol=5e-7)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@given(points=triples)
@settings(max_examples=60, deadline=None)
def test_metric_obeys_the_axioms(metric, points):
    if metric in DIRECTIONAL:
        points = points + np.eye(3, 5) * 1e-2 + 2e-2
        points[np.linalg.norm(points, axis=1) < 1e-3] = 1.0
    d = metric.pairwise(points, points)
    tolerance = 1e-9 * max(d.max(), 1e-12)
    assert (d >= 0).all()
    assert np.abs(np.diag(d)).max() <= (2e-7 if metric in DIRECTIONAL else 0)
    assert np.array_equal(d, d.T)
    for middle in range(3):
        assert (d <= d[:, middle, None] + d[middle] + tolerance).all()


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_distance_is_bitwise_symmetric(metric, dtype):
    rows = metric.coordinates(RNG.normal(size=(40, 5)).astype(dtype))
    for i in range(20):
        there = row_distance(metric.kind, rows, i, rows, 20 + i)
        assert there == row_distance(metric.kind, rows, 20 + i, rows, i)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_distances_from_is_a_row_of_all_distances_with_zero_at_itself(metric):
    vectors = RNG.normal(size=(20, 5))
    out = np.empty(20)
    distances_from(metric.kind, metric.coordinates(vectors), 3, out)
    np.testing.assert_allclose(out, metric.pairwise(vectors[3], vectors)[0], 1e-12, 1e-12)
    assert out[3] == 0


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coordinates_keep_the_precision_of_the_vectors_but_for_products(metric, dtype):
    found = metric.coordinates(RNG.normal(size=(6, 5)).astype(dtype))
    assert found.dtype == (np.float64 if metric.name in GIVEN else dtype)
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cosine", "triangle inequality"),
        ("cosine_distance", "triangle inequality"),
        ("cosine_similarity", "triangle inequality"),
        ("Cosine", "triangle inequality"),
        ("sqeuclidean", "triangle inequality"),
        ("squared_euclidean", "triangle inequality"),
        ("l2_squared", "triangle inequality"),
        ("dot", "not a distance"),
        ("ip", "not a distance"),
        ("inner-product", "not a distance"),
    ],
)
def test_what_is_no_metric_is_refused_with_the_reason_and_a_way_out(name, reason):
    with pytest.raises(MetricError, match=f"{reason}.*metric='"):
        get_metric(name)


@pytest.mark.parametrize(
    ("alias", "name"), [("L2", "euclidean"), ("cityblock", "manhattan"), ("linf", "chebyshev")]
)
def test_alias_finds_the_metric(alias, name):
    assert get_metric(alias) == get_metric(name)


def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(MetricError, match=r"unknown metric 'hamming'.*euclidean"):
        get_metric("hamming")


def test_mahalanobis_by_name_asks_for_its_matrix():
    with pytest.raises(MetricError, match="needs its matrix"):
        get_metric("mahalanobis")


def test_metric_object_is_taken_as_it_is():
    metric = Mahalanobis(MATRIX)
    assert get_metric(metric) is metric


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_settings_rebuild_an_equal_metric(metric):
    rebuilt = get_metric(metric.settings())
    assert rebuilt == metric
    assert hash(rebuilt) == hash(metric)


def test_metrics_of_different_matrices_differ():
    assert Mahalanobis(np.eye(2)) != Mahalanobis(2 * np.eye(2))


@pytest.mark.parametrize("name", ["angular", "unit_euclidean"])
def test_zero_vector_is_refused_by_a_metric_of_directions(name):
    with pytest.raises(MetricError, match=r"1 vectors are zero.*row 3"):
        get_metric(name).coordinates(np.array([[1.0, 0], [0, 1], [0, 0], [2, 1]]))


@pytest.mark.parametrize(
    ("matrix", "problem"),
    [
        (np.ones((2, 3)), "square"),
        (np.ones(3), "square"),
        ([[1.0, np.nan], [np.nan, 1.0]], "finite"),
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "positive semi-definite"),
    ],
)
def test_unfit_mahalanobis_matrix_is_refused_with_the_reason(matrix, problem):
    with pytest.raises(MetricError, match=problem):
        Mahalanobis(matrix)


def test_mahalanobis_matrix_of_another_dimension_is_refused():
    with pytest.raises(MetricError, match=r"5 x 5.*4 dimensions"):
        Mahalanobis(MATRIX).coordinates(np.ones((2, 4)))


def test_singular_mahalanobis_matrix_gives_distance_zero_along_its_kernel():
    metric = Mahalanobis([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(metric.pairwise([[2.0, 5.0]], [[2.0, -9.0], [3.0, 5.0]]), [[0, 1]])


def test_check_metric_passes_a_true_metric():
    metric = CallableMetric(lambda a, b: cdist(a, b, "minkowski", p=3), "minkowski3")
    check_metric(metric, RNG.normal(size=(50, 4)))


def test_check_metric_passes_a_pseudometric():
    metric = CallableMetric(lambda a, b: np.abs(a[:, :1] - b[:, 0]), "first")
    check_metric(metric, RNG.normal(size=(50, 4)))


def _asymmetric(a, b):
    d = cdist(a, b)
    return d + 0.3 * (a[:, :1] > b[:, 0])


@pytest.mark.parametrize(
    ("function", "axiom"),
    [
        (lambda a, b: cdist(a, b, "cosine"), "triangle inequality"),
        (lambda a, b: cdist(a, b) ** 2, "triangle inequality"),
        (_asymmetric, "symmetry"),
        (lambda a, b: cdist(a, b) - 0.5, "non-negativity"),
        (lambda a, b: cdist(a, b) + 0.5, r"d\(x, x\) = 0"),
        (lambda a, b: cdist(a, b)[0], "shape"),
        (lambda a, b: np.where(cdist(a, b) > 0, np.nan, 0), "not finite"),
    ],
)
def test_check_metric_names_the_axiom_that_fails(function, axiom):
    with pytest.raises(MetricError, match=axiom):
        check_metric(CallableMetric(function, "mine"), RNG.normal(size=(60, 4)))


def test_callable_metric_needs_a_function():
    with pytest.raises(MetricError, match="needs a function"):
        CallableMetric("euclidean", "mine")


def test_callable_metric_is_not_rebuilt_from_its_settings():
    settings_of = CallableMetric(cdist, "mine").settings()
    with pytest.raises(MetricError, match="pass the same CallableMetric"):
        get_metric(settings_of)


def test_a_metric_error_is_a_user_error():
    assert issubclass(MetricError, TextprivError)
    assert Euclidean() != object()
