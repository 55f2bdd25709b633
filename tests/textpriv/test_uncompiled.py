"""What numpy computes where there is too little to compile for is digit for digit what compiled code computes."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv import arithmetic, metrics, uncompiled
from textpriv.metrics import ANGULAR, CHEBYSHEV, EUCLIDEAN, MANHATTAN

RNG = np.random.default_rng(4)


def test_exponentials_are_the_same():
    points = np.concatenate(
        [RNG.uniform(-720, 709, 20_000), RNG.uniform(-1e-9, 1e-9, 2000), [0.0, -0.0, -708.0]]
    )
    expected = arithmetic.exps(points)
    assert (uncompiled.exps(points) == expected).all()
    assert [uncompiled.exp(x) for x in points.tolist()] == expected.tolist()


@pytest.mark.parametrize("kind", [EUCLIDEAN, MANHATTAN, CHEBYSHEV, ANGULAR])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 3, 4, 15, 16, 17, 50, 67])
def test_distances_are_the_same(kind, dtype, columns):
    table = RNG.normal(size=(1100, columns)).astype(dtype)
    table[7] = table[3]
    table[9] = -table[3]
    expected = np.empty(len(table))
    metrics.distances_from(kind, table, 3, expected)
    found = uncompiled.row_distances(kind, table[3], table)
    assert (np.delete(found, 3) == np.delete(expected, 3)).all()
    first, second = np.arange(1099), np.arange(1, 1100)
    pairs = metrics.paired_distances(kind, table, first, second)
    assert (uncompiled.row_distances(kind, table[first], table[second]) == pairs).all()
