"""Exact lists are those of brute force in float64, whatever the data; approximate ones say how good they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.errors import TextprivError
from textpriv.index import neighbours as module
from textpriv.index.hnsw import approximate_lists, hnsw_index, measure_recall
from textpriv.index.neighbours import Neighbourhoods, exact_lists
from textpriv.index.rank_bands import NO_WORD, RankBands, band_starts
from textpriv.metrics import CallableMetric, Mahalanobis, get_metric, row_distance
from textpriv.vocabulary import Vocabulary

DATA = Path(
    os.environ.get("TEXTPRIV_DATA", Path(__file__).resolve().parents[3].parent / "shared/data")
)
REAL = DATA / "embeddings" / "imdb-unsup-sg-40k.300d.bin.gz"

NAMES = ["euclidean", "manhattan", "chebyshev", "angular", "unit_euclidean", "mahalanobis"]
EUCLIDEAN = get_metric("euclidean")


def metric_of(name, dimension):
    if name == "mahalanobis":
        return Mahalanobis(np.diag(np.arange(1.0, dimension + 1)))
    return get_metric(name)


def brute_force(coordinates, metric, rows):
    return np.array(
        [
            [
                row_distance(metric.kind, coordinates, i, coordinates, j)
                for j in range(len(coordinates))
            ]
            for i in rows
        ]
    )


def assert_exact(lists, coordinates, metric, k, rows=None):
    """The k least distances, each belonging to the word listed, and the word itself first."""
    rows = range(len(coordinates)) if rows is None else rows
    for i, true in zip(rows, brute_force(coordinates, metric, rows), strict=True):
        ids, distances = lists.ids[i], lists.distances[i]
        assert ids[0] == i
        assert distances[0] == 0
        assert len(set(ids.tolist())) == k
        true[i] = 0.0
        # Bit by bit: a distance has one value, whoever computes it, and of equal ones the lower ids come first.
        np.testing.assert_array_equal(distances, true[ids].astype(coordinates.dtype))
        true[i] = -1.0
        np.testing.assert_array_equal(ids, np.argsort(true, kind="stable")[:k])
        true[i] = 0.0
        if lists.bands is not None:
            assert_bounded(lists.bands, i, ids, true)


def assert_bounded(bands, i, ids, true):
    """A band says how many whole steps away the nearest unlisted word is, a millionth kept off, or that it has none."""
    outside = true.copy()
    outside[ids] = np.inf
    least = np.minimum.reduceat(outside, bands.starts[:-1])
    empty = bands.nearest[i] == NO_WORD
    np.testing.assert_array_equal(empty, np.isinf(least))
    assert (bands.nearest[i][~empty] * bands.step <= least[~empty]).all()
    whole = np.minimum(least[~empty] * ((1 - 1e-6) / bands.step), 254).astype(np.uint8)
    np.testing.assert_array_equal(bands.nearest[i][~empty], whole)


def clustered(rng, size=700, dimension=12):
    centres = rng.normal(size=(9, dimension))
    return centres[rng.integers(9, size=size)] + rng.normal(size=(size, dimension)) * 1e-3


def grid(rng):
    return np.stack(np.meshgrid(*[np.arange(1.0, 9)] * 3), axis=-1).reshape(-1, 3)


def duplicated(rng):
    # Most words share one of a few vectors, and there are more of them than a list holds.
    vectors = rng.normal(size=(600, 6))
    vectors[50:450] = vectors[0]
    vectors[500:] = vectors[1]
    return vectors


def far_away(rng):
    return rng.normal(size=(600, 10)) + 1e3


def mixed_lengths(rng):
    return rng.normal(size=(600, 10)) * 10.0 ** rng.uniform(-6, 3, size=(600, 1))


SHAPES = {
    "gaussian": lambda rng: rng.normal(size=(700, 16)),
    "clustered": clustered,
    "grid": grid,
    "duplicated": duplicated,
    "far_away": far_away,
    "mixed_lengths": mixed_lengths,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_exact_lists_equal_brute_force(shape, dtype, name):
    vectors = SHAPES[shape](np.random.default_rng(3)).astype(dtype)
    metric = metric_of(name, vectors.shape[1])
    coordinates = metric.coordinates(vectors)
    lists = exact_lists(coordinates, metric, 20)
    assert lists.bands is not None
    assert_exact(lists, coordinates, metric, 20, range(0, len(vectors), 7))


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 60),
    dimension=st.integers(1, 5),
    values=st.integers(1, 4),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e30]),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_exact_lists_equal_brute_force_on_random_lattices(
    seed, size, dimension, values, scale, data
):
    k = data.draw(st.integers(1, size))
    rng = np.random.default_rng(seed)
    coordinates = rng.integers(0, values, size=(size, dimension)) * scale
    assert_exact(exact_lists(coordinates, EUCLIDEAN, k), coordinates, EUCLIDEAN, k)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e25, 1e100])
def test_exact_lists_do_not_depend_on_the_unit_of_the_vectors(scale):
    vectors = np.random.default_rng(0).normal(size=(300, 8))
    coordinates = vectors * scale
    lists = exact_lists(coordinates, EUCLIDEAN, 7)
    assert_exact(lists, coordinates, EUCLIDEAN, 7)


@pytest.mark.parametrize("k", [1, 2, 150, 151, 299, 300])
def test_exact_lists_of_any_length_equal_brute_force(k):
    coordinates = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    assert_exact(exact_lists(coordinates, EUCLIDEAN, k), coordinates, EUCLIDEAN, k)


def test_a_vocabulary_of_one_word_has_one_list():
    lists = exact_lists(np.ones((1, 3), np.float32), EUCLIDEAN, 1)
    assert lists.ids.tolist() == [[0]]
    assert lists.distances.tolist() == [[0.0]]


def test_exact_lists_hold_when_all_vectors_are_equal():
    coordinates = np.full((900, 4), 2.5, np.float32)
    lists = exact_lists(coordinates, EUCLIDEAN, 5)
    assert_exact(lists, coordinates, EUCLIDEAN, 5, range(0, 900, 50))


def test_every_word_stands_first_in_its_list_also_among_its_duplicates():
    coordinates = np.repeat(np.random.default_rng(2).normal(size=(30, 5)), 40, axis=0)
    lists = exact_lists(coordinates, EUCLIDEAN, 8)
    assert np.array_equal(lists.ids[:, 0], np.arange(1200))
    assert not lists.distances.any()


def test_screening_keeps_near_ties_that_float32_products_cannot_order():
    # The others lie on a sphere around the first word, but for differences far below the error of a float32 product.
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(2000, 40))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    coordinates = np.vstack(
        [np.zeros(40), directions * (1 + 1e-9 * rng.permutation(2000)[:, None])]
    )
    lists = exact_lists(coordinates, EUCLIDEAN, 50)
    assert_exact(lists, coordinates, EUCLIDEAN, 50, [0])


@pytest.mark.parametrize("name", ["euclidean", "angular", "manhattan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["gaussian", "far_away"])
def test_bounds_of_bands_are_near_the_least_distances(shape, dtype, name):
    vectors = SHAPES[shape](np.random.default_rng(3)).astype(dtype)
    metric = get_metric(name)
    coordinates = metric.coordinates(vectors)
    lists = exact_lists(coordinates, metric, 20)
    bands = lists.bands
    slack = []
    for i in range(0, len(vectors), 7):
        true = brute_force(coordinates, metric, [i])[0]
        true[lists.ids[i]] = np.inf
        least = np.minimum.reduceat(true, bands.starts[:-1])
        slack.append(np.median((least / bands.step - bands.nearest[i])[np.isfinite(least)]))
    # In steps; products of float32 err by more only where the points are far from each other, or all of them together.
    assert np.median(slack) < (1 if shape == "gaussian" else 2)


@pytest.mark.parametrize("k", [8, 200])
def test_bounds_that_float32_cannot_hold_do_not_stand_for_bands_without_words(k):
    # Distances beyond the largest float32 number between coordinates that are below it.
    coordinates = np.random.default_rng(0).uniform(-3e38, 3e38, size=(300, 8)).astype(np.float32)
    with np.errstate(over="ignore"):
        lists = exact_lists(coordinates, EUCLIDEAN, k)
    assert np.isinf(lists.distances).any()
    for i, true in zip(range(300), brute_force(coordinates, EUCLIDEAN, range(300)), strict=True):
        assert_bounded(lists.bands, i, lists.ids[i], true)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 700, 100_000])
def test_bands_hold_all_words_and_about_equal_shares_of_the_zipf_law(size):
    starts = band_starts(size)
    assert starts[0] == 0
    assert starts[-1] == size
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= 65
    law = 1.0 / (np.arange(1, size + 1) + 2.7)
    shares = np.add.reduceat(law, starts[:-1]) / law.sum()
    assert (shares <= 1 / 64 + law[starts[:-1]] / law.sum()).all()


def test_one_far_word_does_not_lengthen_the_steps():
    coordinates = np.random.default_rng(2).normal(size=(5000, 4))
    coordinates[77] = 1e6
    bands = exact_lists(coordinates, EUCLIDEAN, 20).bands
    assert bands.step < 10 / 254
    assert (bands.nearest[77] == NO_WORD - 1).all()


@pytest.mark.parametrize("name", ["euclidean", "angular"])
def test_a_bound_is_the_same_however_much_products_are_rounded(monkeypatch, name):
    metric = get_metric(name)
    coordinates = metric.coordinates(np.random.default_rng(6).normal(size=(900, 20)))
    found = exact_lists(coordinates, metric, 12)
    rng, product = np.random.default_rng(7), np.dot

    def rounded(queries, columns, out=None):
        """Products as another processor may round them, at most as far as the bound allows."""
        block = product(queries, columns, out=out)
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(columns, axis=0)
        block += (rng.uniform(-20, 20, block.shape) * 2.0**-24 * lengths).astype(np.float32)
        return block

    monkeypatch.setattr(module.np, "dot", rounded)
    again = exact_lists(coordinates, metric, 12)
    assert np.array_equal(again.ids, found.ids)
    assert np.array_equal(again.distances, found.distances)
    assert again.bands.digest() == found.bands.digest()


def test_bands_of_nothing_known_say_only_whether_lists_are_complete():
    some, whole = RankBands.none(5, 3), RankBands.none(5, 5)
    assert some.nearest.tolist() == [[0]] * 5
    assert whole.nearest.tolist() == [[NO_WORD]] * 5
    assert some.starts.tolist() == [0, 5]


def test_a_digest_stands_for_starts_bounds_and_step():
    starts = np.array([0, 2, 4], dtype=np.int32)
    bands = RankBands(starts, np.full((4, 2), 7, dtype=np.uint8), 0.5)
    others = [
        bands._replace(starts=np.array([0, 1, 4], dtype=np.int32)),
        bands._replace(nearest=bands.nearest - np.uint8(1)),
        bands._replace(step=2 * bands.step),
        RankBands.none(4, 2),
    ]
    assert bands.digest() == bands._replace().digest()
    assert len({found.digest() for found in (bands, *others)}) == 5


def test_screening_is_exact_across_blocks_of_rows_and_columns(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 37)
    monkeypatch.setattr(module, "_COLUMNS", 101)
    coordinates = np.random.default_rng(4).normal(size=(500, 8)).astype(np.float32)
    lists = exact_lists(coordinates, EUCLIDEAN, 12)
    assert_exact(lists, coordinates, EUCLIDEAN, 12)


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_lists_do_not_depend_on_the_number_of_threads(monkeypatch, name):
    metric = get_metric(name)
    coordinates = grid(None).astype(np.float32)
    results = []
    for threads in (1, 5):
        monkeypatch.setattr(module, "processors", lambda threads=threads: threads)
        results.append(exact_lists(coordinates, metric, 16))
    assert np.array_equal(results[0].ids, results[1].ids)
    assert np.array_equal(results[0].distances, results[1].distances)
    assert results[0].bands.digest() == results[1].bands.digest()


def _interpreted():
    return CallableMetric(lambda a, b: np.abs(a[:, None] - b[None]).sum(-1), "sum")


@pytest.mark.parametrize("metric", [EUCLIDEAN, get_metric("manhattan"), _interpreted()], ids=repr)
def test_progress_is_reported_upwards_and_ends_at_the_number_of_words(metric):
    seen = []
    exact_lists(
        np.random.default_rng(0).normal(size=(600, 3)), metric, 4, lambda *at: seen.append(at)
    )
    done = [at for at, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == (600, 600)


def test_a_callable_metric_gives_the_lists_of_the_compiled_one():
    coordinates = np.random.default_rng(0).normal(size=(150, 3))
    coordinates[100:] = coordinates[0]
    lists = exact_lists(coordinates, _interpreted(), 9)
    assert_exact(lists, coordinates, get_metric("manhattan"), 9)
    assert lists.bands is None


def test_an_array_that_a_callable_metric_keeps_is_left_as_it_is():
    coordinates = np.arange(20.0)[:, None]
    table = np.abs(coordinates - coordinates.T)
    table.setflags(write=False)
    lists = exact_lists(coordinates, CallableMetric(lambda a, b: table, "table"), 3)
    assert np.array_equal(lists.ids[:, 0], np.arange(20))


def test_approximate_lists_hold_each_word_first_and_rank_by_distance():
    coordinates = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    lists = approximate_lists(coordinates, EUCLIDEAN, 10, hnsw_index(coordinates))
    assert np.array_equal(lists.ids[:, 0], np.arange(400))
    assert (np.diff(lists.distances, axis=1) >= 0).all()


def test_approximate_lists_hold_each_word_that_the_graph_misses():
    class Blind:
        ef = 10

        def set_ef(self, effort):
            pass

        def knn_query(self, rows, k):
            return np.tile(np.arange(k), (len(rows), 1)), None

    coordinates = np.random.default_rng(0).normal(size=(50, 3))
    lists = approximate_lists(coordinates, EUCLIDEAN, 5, Blind())
    assert np.array_equal(lists.ids[:, 0], np.arange(50))
    assert all(len(set(row)) == 5 for row in lists.ids.tolist())


def test_approximate_lists_leave_the_search_effort_of_the_graph_as_it_was():
    coordinates = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    graph = hnsw_index(coordinates)
    before = graph.ef
    approximate_lists(coordinates, EUCLIDEAN, 200, graph)
    assert graph.ef == before


def test_approximate_lists_refuse_a_metric_that_is_not_euclidean():
    with pytest.raises(TextprivError, match="backend='exact'"):
        approximate_lists(np.ones((3, 2)), get_metric("manhattan"), 2, None)


def test_the_approximate_index_is_the_same_every_time():
    coordinates = np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
    queries = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
    first, second = (hnsw_index(coordinates).knn_query(queries, k=5)[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_recall_of_exact_lists_is_one_also_with_ties():
    coordinates = grid(None)
    assert measure_recall(exact_lists(coordinates, EUCLIDEAN, 11), coordinates, EUCLIDEAN) == 1


def test_recall_is_the_share_of_true_neighbours():
    coordinates = np.random.default_rng(0).normal(size=(200, 6))
    exact = exact_lists(coordinates, EUCLIDEAN, 200)
    # Three of the ten nearest, the word among them, and seven of the farthest.
    ids = np.concatenate([exact.ids[:, :3], exact.ids[:, -7:]], axis=1)
    distances = np.concatenate([exact.distances[:, :3], exact.distances[:, -7:]], axis=1)
    found = measure_recall(Neighbourhoods(ids, distances), coordinates, EUCLIDEAN)
    assert found == pytest.approx(0.3)


@pytest.mark.real_data
@pytest.mark.skipif(not REAL.exists(), reason="the real vectors are not here")
def test_exact_lists_of_real_vectors_equal_brute_force():
    vectors = Vocabulary.load(REAL, limit=8000).vectors
    lists = exact_lists(vectors, EUCLIDEAN, 64)
    rows = np.random.default_rng(0).choice(len(vectors), 20, replace=False)
    wide = vectors.astype(np.float64)
    for i in rows:
        true = np.linalg.norm(wide - wide[i], axis=1)
        assert lists.ids[i, 0] == i
        np.testing.assert_allclose(lists.distances[i], np.sort(true)[:64], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(lists.distances[i], true[lists.ids[i]], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 400])
@pytest.mark.parametrize("different", [2, 1000])
def test_candidates_are_sorted_by_distance_and_ties_by_id(size, different):
    rng = np.random.default_rng(size)
    distances, ids = rng.integers(0, different, size).astype(float), rng.permutation(size)
    order = np.lexsort((ids, distances))
    sorted_distances, sorted_ids = distances.copy(), ids.astype(np.int32)
    module._sort(sorted_distances, sorted_ids, size)
    assert sorted_distances.tolist() == distances[order].tolist()
    assert sorted_ids.tolist() == ids[order].tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 17, 400])
@pytest.mark.parametrize("different", [2, 1000])
def test_the_score_of_a_rank_is_that_of_a_sorted_row(size, different):
    scores = np.random.default_rng(size).integers(0, different, size).astype(np.float32)
    ranked = [module._smallest(scores, size, rank) for rank in range(size)]
    assert ranked == np.sort(scores).tolist()
