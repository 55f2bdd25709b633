"""Typical distances are those of running words to other vectors, against a search through all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import textpriv
from textpriv.index import Index
from textpriv.index.typical import typical_distances, weighted_quantiles
from textpriv.mechanisms import TEM
from textpriv.vocabulary import Vocabulary


def index_over(points, prior=None, **options) -> Index:
    words = [f"w{number}" for number in range(len(points))]
    return Index.build(Vocabulary(words, points, prior), hnsw=False, **options)


def by_search(points, weights, rank, share):
    """The quantile, word by word: the rank-th smallest distance to another vector."""
    different = np.unique(points, axis=0)
    apart = np.sort(cdist(points, different), axis=1)
    found = apart[:, min(rank, len(different) - 1)]
    return min(value for value in found if weights[found <= value].sum() >= share - 1e-12)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(5).normal(size=(150, 4))


def counted(size):
    weights = 1.0 / np.arange(1, size + 1) ** 1.3
    return weights / weights.sum()


@pytest.mark.parametrize("k", [3, 12, 150])
@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize("stored", [True, False])
def test_the_reference_distance_is_over_running_words_and_other_vectors(points, k, copies, stored):
    table = np.concatenate([points, np.repeat(points[:40], copies, axis=0)])
    prior = counted(len(table)) if stored else None
    index = index_over(table, prior, k=min(k, len(table)))
    weights = index.vocabulary.prior_weights("counts" if stored else "zipf")
    for rank in (1, 10):
        expected = [by_search(table, weights, rank, share) for share in (0.5, 0.9)]
        assert index.typical[rank] == pytest.approx(expected, rel=1e-6)
    assert (index.reference_distance, index.reference_distance_90) == index.typical[10]


def test_a_row_alone_that_its_list_does_not_serve_is_searched(points):
    # 30 words on one vector fill its list; the other 149 lists hold ten other vectors.
    table = np.concatenate([points, np.repeat(points[:1], 30, axis=0)])
    index = index_over(table, k=32)
    weights = index.vocabulary.prior_weights("zipf")
    assert index.typical[10] == pytest.approx(
        [by_search(table, weights, 10, share) for share in (0.5, 0.9)], rel=1e-6
    )


@pytest.mark.parametrize("metric", ["angular", "manhattan"])
def test_other_metrics_are_searched_alike(points, metric):
    table = np.repeat(points, 12, axis=0)
    once, often = index_over(points, metric=metric, k=64), index_over(table, metric=metric, k=8)
    lengths = np.bincount(np.repeat(np.arange(150), 12), often.vocabulary.prior_weights("zipf"))
    arguments = (once.neighbours, once.representatives, once.coordinates, once.metric, lengths)
    assert often.typical[10] == pytest.approx(typical_distances(*arguments)[10], rel=1e-5)


def test_common_words_decide_and_rare_ones_do_not():
    # 200 rare words in a clump, 12 common ones far apart: over types the median is the clump's.
    rng = np.random.default_rng(0)
    table = np.concatenate([rng.normal(size=(12, 3)) * 50, rng.normal(size=(200, 3)) * 0.1 + 500])
    index = index_over(table, np.r_[np.full(12, 1000.0), np.ones(200)])
    assert np.median(index.neighbours.distances[:, 10]) < 0.2
    assert index.reference_distance > 20


def test_words_that_share_vectors_never_give_odds_of_one_to_one(points):
    # As in a small spaCy package: 3,000 words on 150 vectors, whole lists at distance 0.
    table = np.repeat(points, 20, axis=0)
    index = index_over(table, k=16)
    assert (index.neighbours.distances == 0).all()
    statement = TEM(index, epsilon=6.0).statement
    assert statement.figures["reference_loss"] > 1
    assert "at most 1 to 1" not in statement.paragraph()
    assert math.isfinite(textpriv.epsilon_for(index, odds=20))


def test_approximate_lists_are_taken_for_the_diameter_where_they_end(points):
    table = np.repeat(points, 40, axis=0)
    words = [f"w{number}" for number in range(len(table))]
    index = Index.build(Vocabulary(words, table), k=8, backend="hnsw")
    assert index.typical[10].ninety == index.diameter_bound


def test_the_100th_neighbour_is_left_out_where_lists_are_too_short(points):
    assert set(index_over(points, k=150).typical) == {1, 10, 100}
    assert set(index_over(points, k=50).typical) == {1, 10}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_words_have_their_farthest_for_a_tenth(size):
    index = index_over(np.arange(size, dtype=float)[:, None] ** 2)
    assert index.typical[10].ninety == by_search(
        index.vocabulary.vectors, index.vocabulary.prior_weights("zipf"), 10, 0.9
    )


def test_an_older_folder_without_typical_distances_gets_them_when_they_are_asked_for(
    points, tmp_path
):
    import json

    from textpriv.index.storage import meta_checksum

    index = index_over(points, k=32)
    index.save(tmp_path / "i")
    meta = json.loads((tmp_path / "i" / "index.json").read_text())
    del meta["typical"]
    meta["reference_distance"] = 0.0
    meta["checksum"] = meta_checksum(meta)
    (tmp_path / "i" / "index.json").write_text(json.dumps(meta))
    assert Index.load(tmp_path / "i").typical == index.typical


def test_a_weighted_quantile_holds_its_share_and_no_smaller_value_does():
    rng = np.random.default_rng(1)
    for _ in range(200):
        values, weights = rng.integers(0, 8, 12).astype(float), rng.random(12)
        for share in (0.1, 0.5, 0.9):
            (found,) = weighted_quantiles(values, weights, (share,))
            assert weights[values <= found].sum() >= share * weights.sum()
            assert weights[values < found].sum() < share * weights.sum()
