"""Lists and bounds of some words are those that are found for all words together."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.index.some_lists import Screen

SHAPES = {
    "words": lambda rng: rng.normal(size=(700, 12)),
    "a grid, full of ties": lambda rng: rng.integers(0, 4, size=(700, 4)).astype(float),
    "far from the origin": lambda rng: 1e4 + rng.normal(size=(700, 6)),
    "on a line": lambda rng: np.arange(700.0)[:, None] ** 2,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 30])
def test_they_are_those_of_the_whole_index(index_of, shape, dtype, k):
    index = index_of(SHAPES[shape](np.random.default_rng(1)), dtype=dtype, k=k)
    screen = Screen(index.coordinates, index.k, index.band_starts, index.band_step)
    words = np.random.default_rng(2).permutation(700)[:150]
    for found, expected in zip(screen.lists(words), index.lists_of(words), strict=True):
        assert found.dtype == expected.dtype
        assert (found == expected).all()
