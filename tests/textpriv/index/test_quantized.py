"""Short forms of rows: bounds that hold for every pair, and verdicts that agree with the distance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from textpriv.index.quantized import (
    all_squares,
    decided,
    displacement,
    leading_squares,
    quantize,
    surely_beyond,
)

KINDS = [
    "plain",
    "far outliers",
    "one far coordinate",
    "few dimensions",
    "a line",
    "equal rows",
    "far from the origin",
    "tiny",
    "as many dimensions as lead",
    "more dimensions than lead",
]


def scattered(kind):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 90)) * np.linspace(2, 0.01, 90)
    if kind == "far outliers":
        rows[:3] *= 1e3
    elif kind == "one far coordinate":
        rows[5, 80] = 1e3
    elif kind == "few dimensions":
        rows = rows[:, :3]
    elif kind == "a line":
        rows = np.outer(rng.normal(size=300), np.ones(70))
    elif kind == "equal rows":
        rows[:] = rows[0]
    elif kind == "far from the origin":
        rows += 1e4
    elif kind == "tiny":
        rows *= 1e-12
    elif kind == "as many dimensions as lead":
        rows = rng.normal(size=(300, 191))
    elif kind == "more dimensions than lead":
        rows = np.hstack([rows, rows[:, ::-1], rng.normal(size=(300, 100))])
    return rows


def bounds(points):
    """Of all pairs: the distance, what leading numbers say at least, and what all coordinates say at least and at most."""
    rows, leading, scales = quantize(points)
    size = len(points)
    first, near, moved = np.zeros((3, size, size))
    for i in range(size):
        for j in range(i, size):
            squares = leading_squares(rows, leading, i, j)
            first[i, j] = scales[0] * np.sqrt(squares)
            near[i, j] = np.sqrt(all_squares(rows, leading, i, j, squares, scales[0], scales[2]))
            moved[i, j] = displacement(rows, i, j)
    first, near, moved = (np.triu(each) + np.triu(each, 1).T for each in (first, near, moved))
    apart = cdist(points.astype(float), points.astype(float))
    return apart, first - scales[1], near - scales[3], near + scales[4] * moved + scales[5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_contradicts_a_distance(kind, dtype):
    apart, by_leading, at_least, at_most = bounds(scattered(kind).astype(dtype))
    # cdist itself loses digits far from the origin, so equality is to rounding.
    rounding = 1e-9 * apart.max()
    assert (by_leading <= apart + rounding).all()
    assert (at_least <= apart + rounding).all()
    assert (at_most >= apart - rounding).all()


@pytest.mark.parametrize("kind", ["plain", "more dimensions than lead"])
def test_bounds_are_near_the_distance_and_those_of_all_coordinates_nearer(kind):
    apart, by_leading, at_least, at_most = (
        values[np.triu_indices(300, 1)] for values in bounds(scattered(kind))
    )
    assert np.median(by_leading / apart) > 0.9
    assert np.median(at_least / apart) > 0.96
    assert np.median(at_most / apart) < 1.04


def test_a_row_that_was_moved_far_has_no_bound_from_above():
    rows, _, _ = quantize(scattered("one far coordinate"))
    assert displacement(rows, 5, 6) > 1e9
    assert displacement(rows, 6, 7) < 254


def test_rows_are_whole_cache_lines():
    for dimension in (1, 63, 64, 191, 192, 300, 700):
        rows, leading, _ = quantize(np.random.default_rng(0).normal(size=(20, dimension)))
        assert rows.shape[1] % 64 == leading % 64 == 0
        assert leading == min(192, -(-(dimension + 1) // 64) * 64)
        assert rows.shape[1] - leading > max(dimension - 191, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_settled_is_what_the_distance_says(kind):
    points = scattered(kind)
    rows, leading, scales = quantize(points)
    apart = cdist(points, points)
    rng = np.random.default_rng(1)
    t = 5.0 / max(apart.max(), 1e-30)
    counts = {-1: 0, 0: 0, 1: 0}
    for i, j in rng.integers(0, 300, size=(4000, 2)):
        limit = rng.uniform(0, 1.2) * apart.max()
        squares = leading_squares(rows, leading, i, j)
        near = np.sqrt(all_squares(rows, leading, i, j, squares, scales[0], scales[2]))
        early = surely_beyond(squares, limit, scales[0], scales[1])
        found = decided(near, displacement(rows, i, j), limit, t, *scales[3:])
        if early or found < 0:
            assert apart[i, j] > limit * (1 - 1e-12)
        elif found > 0:
            assert apart[i, j] < limit
        counts[-1 if early else found] += 1
    if kind == "plain":
        assert counts[0] < 1200
        assert min(counts[-1], counts[1]) > 1000


def test_a_chance_within_rounding_of_the_coin_is_left_to_the_distance():
    points = np.zeros((4, 3))
    points[:, 0] = [0, 1, 2, 3]
    rows, leading, scales = quantize(points)
    squares = leading_squares(rows, leading, 0, 3)
    near = np.sqrt(all_squares(rows, leading, 0, 3, squares, scales[0], scales[2]))
    moved = displacement(rows, 0, 3)
    most = near + scales[4] * moved + scales[5]
    for t, found in ((1e-13, 0), (1.0, 1)):
        assert decided(near, moved, most + 1, t, *scales[3:]) == found
