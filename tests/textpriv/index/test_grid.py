"""The grid metric: exact distances of rounded vectors, exact lists, and how far rounding moves points."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from textpriv import Index, Vocabulary
from textpriv.errors import TextprivError
from textpriv.index.grid import Grid, processors
from textpriv.index.spaces import SPACES, transformed


def vocabulary(size: int, dimension: int, seed: int = 0, spread: float = 1.0) -> Vocabulary:
    vectors = spread * (np.random.default_rng(seed).normal(size=(size, dimension)) + 3.0)
    return Vocabulary([f"w{i}" for i in range(size)], vectors)


def steps_by_integers(index: Index) -> np.ndarray:
    """All distances in steps, by Python's own integers."""
    points = index.points.astype(object)
    between = points[:, None] - points[None]
    parts = np.abs(between) if index.space == "manhattan" else between**2
    return parts.sum(axis=2).astype(np.int64)


@pytest.mark.parametrize("space", SPACES)
def test_distances_equal_whole_number_arithmetic(space):
    index = Index.build(vocabulary(120, 40), space, k=8)
    every = np.arange(len(index))
    expected = steps_by_integers(index)
    assert np.array_equal(index.steps_of(every), expected)
    lengths = expected if space == "manhattan" else np.sqrt(expected)
    np.testing.assert_allclose(index.distances_of(every), index.unit * lengths, rtol=1e-15)
    assert index.distance("w3", 7) == index.distances_of([3])[0, 7]


def test_distances_in_1500_dimensions_are_exact():
    """Where float32 no longer holds every inner product of bytes."""
    extreme = np.full((4, 1500), 127.0)
    extreme[1] = -127.0
    extreme[2, 0], extreme[3, ::2] = 126.0, -127.0
    index = Index.build(Vocabulary(list("abcd"), extreme), "euclidean", k=4)
    assert np.array_equal(index.steps_of(np.arange(4)), steps_by_integers(index))


@given(some.integers(2, 60), some.integers(1, 5), some.integers(1, 70), some.integers(0, 2**16))
def test_lists_are_the_k_least_by_steps_and_id(size, dimension, k, seed):
    """On vectors of few different whole numbers, full of ties and duplicates."""
    vectors = np.random.default_rng(seed).integers(0, 3, size=(size, dimension)).astype(float)
    index = Index.build(Vocabulary([f"w{i}" for i in range(size)], vectors), "euclidean", k=k)
    expected = steps_by_integers(index)
    assert index.k == min(k, size)
    for word in range(size):
        others = sorted(set(range(size)) - {word}, key=lambda other: (expected[word, other], other))
        ids = [word, *others][: index.k]
        assert index.neighbour_ids[word].tolist() == ids
        assert index.neighbour_steps[word].tolist() == expected[word, ids].tolist()


def test_lists_do_not_depend_on_blocks(monkeypatch):
    small = Index.build(vocabulary(700, 6), "euclidean", k=9)
    monkeypatch.setattr("textpriv.index.grid._CELLS", 7 * 700)
    again = Index.build(vocabulary(700, 6), "euclidean", k=9)
    assert np.array_equal(small.neighbour_ids, again.neighbour_ids)
    assert np.array_equal(small.neighbour_steps, again.neighbour_steps)


def test_inexact_products_are_noticed(monkeypatch):
    exact = Grid.steps
    monkeypatch.setattr(Grid, "steps", lambda *given: exact(*given) + 1)
    with pytest.raises(ArithmeticError, match="not exact"):
        Index.build(vocabulary(20, 3), "euclidean")


@given(some.integers(0, 2**16), some.floats(1e-20, 1e20))
def test_coordinates_are_the_nearest_grid_points(seed, spread):
    words = vocabulary(50, 7, seed, spread)
    index = Index.build(words, "euclidean")
    centre = (words.vectors.max(axis=0) + words.vectors.min(axis=0)) / 2
    away = (words.vectors - centre) / index.unit - index.points
    assert np.abs(away).max() <= 0.5 + 1e-9
    assert 126 <= np.abs(index.points.astype(int)).max() <= 127


def test_whole_number_vectors_stay_as_they_are():
    index = Index.build(Vocabulary(list("abc"), [[0.0], [1.0], [3.0]]), "euclidean")
    assert index.distances_of([0])[0].tolist() == [0.0, 1.0, 3.0]


def test_rounding_moves_the_builtin_points_little():
    """At most .2 % of the distance of a random pair in the median, .4 % of a neighbour's, 2.6 % in 99 of 100."""
    index = Index.builtin("en")
    rows = transformed(index.vocabulary, index.space, None)
    words = np.arange(0, len(index), 12)
    random = np.random.default_rng(0).permutation(len(index))[: len(words)]
    for others, most in ((random, 0.002), (index.neighbour_ids[words, 1], 0.004)):
        before = np.linalg.norm(rows[words] - rows[others], axis=1)
        steps = np.linalg.norm(index.points[words] - index.points[others].astype(float), axis=1)
        apart = before > 0
        changes = np.abs(steps * index.unit / before - 1)[apart]
        assert np.median(changes) < most
        assert np.quantile(changes, 0.99) < 0.026


def test_unit_space_ranks_as_cosine():
    words = vocabulary(80, 12)
    index = Index.build(words, "unit")
    unit = words.vectors / np.linalg.norm(words.vectors, axis=1)[:, None]
    chords = np.sqrt(np.maximum(2 - 2 * unit @ unit.T, 0))
    np.testing.assert_allclose(index.distances_of(np.arange(80)), chords, atol=4 * index.unit)


@pytest.mark.parametrize("space", ["euclidean", "unit"])
def test_projection_lengthens_no_distance(space):
    words = vocabulary(80, 12)
    whole = Index.build(words, space)
    index = Index.build(words, space, projection=4)
    every = np.arange(80)
    assert index.points.shape == (80, 4)
    slack = 4 * (whole.unit + index.unit)
    assert (index.distances_of(every) <= whole.distances_of(every) + slack).all()
    # The leading directions keep at least their share of the variance.
    assert (index.distances_of(every) ** 2).sum() >= (whole.distances_of(every) ** 2).sum() * 4 / 12


def test_recommended_space_sets_function_words_apart():
    plain = vocabulary(3000, 30)
    words = Vocabulary(plain.words, plain.vectors, function_words=plain.words[7:207])
    index = Index.build(words, "recommended")
    assert index.points.shape == (3000, 17)
    apart = index.distances_of(np.arange(7, 207))[:, words.is_content]
    content = index.distances_of(np.arange(300, 400))[:, words.is_content]
    assert apart.min() > 2 * content.max()


def test_the_commonest_words_stand_in_for_a_list():
    plain = vocabulary(3000, 30)
    assert plain.function_words.words == tuple(plain.words[:250])
    counted = Vocabulary(plain.words, plain.vectors, np.arange(1.0, 3001.0))
    assert counted.function_words.words == tuple(plain.words[2750:])
    assert "no list of function words" in counted.function_words.sentence


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        ("cosine", {}, "no space 'cosine'"),
        ("manhattan", {"projection": 2}, "lengthen"),
        ("euclidean", {"projection": 9}, "from 1 to 4"),
        ("euclidean", {"k": 0}, "at least 1"),
    ],
)
def test_unusable_settings_are_refused(space, options, message):
    with pytest.raises(TextprivError, match=message):
        Index.build(vocabulary(10, 4), space, **options)


def test_zero_vectors_have_no_direction():
    with pytest.raises(TextprivError, match="row 2"):
        Index.build(Vocabulary(["a", "b"], [[1.0, 0.0], [0.0, 0.0]]), "unit")


def test_processors_are_counted_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()
