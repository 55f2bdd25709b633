"""What is promised holds for the vectors that were given: distances within their bounds, laws within what is charged.

Distances are measured here from the vectors themselves, in extended precision, and never by what an index holds.
"""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import textpriv
from textpriv.errors import IndexFolderError
from textpriv.guarantees.audit import audit
from textpriv.index import Index, storage
from textpriv.mechanisms import TEM, Madlib
from textpriv.metrics import METRICS, CallableMetric, Mahalanobis, Projection, get_metric
from textpriv.vocabulary import Vocabulary

FACTOR = np.random.default_rng(7).normal(size=(5, 5))
NAMES = sorted(METRICS)


def metric_of(name, matrix=None):
    if name == "projection":
        return Projection(FACTOR[:3], base="unit_euclidean")
    if name != "mahalanobis":
        return get_metric(name)
    return Mahalanobis(FACTOR @ FACTOR.T if matrix is None else matrix)


def build(points, metric="euclidean", k=8, dtype=np.float64, quiet=False):
    vectors = np.asarray(points, dtype=dtype)
    vocabulary = Vocabulary([f"w{i}" for i in range(len(vectors))], vectors)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        return Index.build(vocabulary, metric, k=k, hnsw=False)


def true_distances(index):
    """All distances between the words of an index, from their vectors, in extended precision."""
    metric = index.metric
    wide = np.asarray(index.vocabulary.vectors).astype(np.longdouble)
    if metric.name in ("angular", "unit_euclidean", "projection"):
        wide = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True))
    difference = wide[:, None] - wide[None]
    if metric.name == "mahalanobis":
        difference = difference @ metric._factor.astype(np.longdouble)
    if metric.name == "projection":
        difference = difference @ metric.directions.T.astype(np.longdouble)
    if metric.name == "manhattan":
        return np.abs(difference).sum(axis=-1)
    if metric.name == "chebyshev":
        return np.abs(difference).max(axis=-1)
    chord = np.sqrt((difference**2).sum(axis=-1))
    if metric.name == "angular":
        return 2 * np.arctan2(chord, np.sqrt(((wide[:, None] + wide[None]) ** 2).sum(axis=-1)))
    return chord


def laws_of(mechanism):
    return np.stack([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def excess(mechanism):
    """By how much the loss of the worst pair, measured by its vectors, exceeds what is stated; 0 or less is as promised."""
    laws = laws_of(mechanism)
    lost = (laws[:, None] - laws[None]).max(axis=2)
    claimed = mechanism.epsilon * true_distances(mechanism.index)
    return float((lost - claimed).max()) - mechanism.statement.figures["numerical_slack"]


# Distances


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "shift"), [("f4", 0), ("f4", 1e3), ("f8", 0), ("f8", 1e6)])
def test_every_distance_in_use_is_that_of_the_given_vectors_within_its_bound(name, dtype, shift):
    points = np.random.default_rng(3).normal(size=(60, 5)) * [3, 1, 1, 0.1, 0.01] + shift
    points[50:] = points[40:50] + 1e-3 * np.eye(10, 5)
    index = build(points, metric_of(name), k=9, dtype=dtype)
    true = true_distances(index)
    limit = np.vectorize(index.rounding.at)(true.astype(float)) * (1 + 1e-9)
    words = np.arange(60)
    assert (np.abs(index.distances_of(words) - true[index.representatives]) <= limit).all()
    listed = np.abs(index.neighbours.distances - np.take_along_axis(true, index.neighbours.ids, 1))
    assert (listed <= np.take_along_axis(limit, index.neighbours.ids, 1)).all()
    assert np.abs(index.distances_of(words) - true).max() <= index.tau
    assert true.max() <= index.diameter_bound
    # The bound is no excuse: it is a small part of what lies between near words, wherever the origin is.
    precision = 2.0**-24 if dtype == "f4" and name in ("angular", "unit_euclidean") else 2.0**-40
    assert index.rounding.absolute <= 16 * precision * max(1.0, float(true.max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["angular", "unit_euclidean"])
def test_directions_of_any_length_are_told_apart(name, dtype):
    points = np.random.default_rng(5).normal(size=(30, 4)).astype(dtype)
    lengths = np.array([1e-30, 1.0, 1e30] if dtype == np.float32 else [1e-200, 1.0, 1e200])
    index = build(points, name, dtype=dtype)
    stretched = points * lengths[np.arange(30) % 3, None].astype(dtype)
    found = build(stretched, name, dtype=dtype).distances_of(np.arange(30))
    assert np.abs(found - index.distances_of(np.arange(30))).max() <= 4 * index.tau


def test_the_factor_of_a_mahalanobis_matrix_is_the_matrix_up_to_rounding():
    metric = metric_of("mahalanobis")
    wrong = np.abs(metric._factor @ metric._factor.T - metric.matrix).max()
    assert wrong <= 5 * 16 * np.finfo(float).eps * np.abs(metric.matrix).max()


@pytest.mark.parametrize("base", ["euclidean", "unit_euclidean"])
def test_a_projected_law_keeps_its_promise_in_the_original_metric_and_in_the_angle(base):
    points = np.random.default_rng(4).normal(size=(40, 6)) + 0.5
    vocabulary = Vocabulary([f"w{i}" for i in range(40)], points)
    index = Index.build(vocabulary, base, projection=2, radius=1.5, hnsw=False)
    mechanism = TEM(index, 3.0)
    laws = laws_of(mechanism)
    lost = (laws[:, None] - laws[None]).max(axis=2) - mechanism.statement.figures["numerical_slack"]
    short = index.metric.pairwise(points, points)
    assert (lost <= 3 * short + 1e-12).all()
    assert (lost > 2.99 * short)[~np.eye(40, dtype=bool)].any()  # the bound is attained
    for name in ("euclidean",) if base == "euclidean" else ("unit_euclidean", "angular"):
        assert (lost <= 3 * get_metric(name).pairwise(points, points) + 1e-12).all()
        assert name == "angular" or f"per unit of {name} distance" in mechanism.statement.unit


def test_a_projected_index_opens_again_as_it_was_saved(tmp_path):
    points = np.random.default_rng(4).normal(size=(20, 6))
    index = Index.build(Vocabulary([f"w{i}" for i in range(20)], points), projection=2, hnsw=False)
    index.save(tmp_path / "words")
    again = Index.load(tmp_path / "words")
    assert again.metric == index.metric
    np.testing.assert_array_equal(again.coordinates, index.coordinates)


# Words at distance zero


@pytest.mark.parametrize("k", [1, 2, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["angular", "unit_euclidean"])
def test_words_of_one_direction_have_one_law_whatever_their_lengths(name, dtype, k):
    # Whole numbers, so that the vectors are multiples of each other exactly; what is stored of their directions need not be.
    points = np.random.default_rng(1).integers(-500, 500, size=(20, 5))
    index = build(np.concatenate([points, 3 * points, 7 * points]), name, k=k, dtype=dtype)
    assert (index.representatives == np.tile(np.arange(20), 3)).all()
    assert len(index.wide) == 0
    assert index.width <= 4 * index.rounding.absolute


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_words_that_differ_where_a_singular_matrix_sees_nothing_have_one_law(dtype, shift):
    # Whole numbers, so that words differ by a multiple of the direction exactly.
    blind = np.array([3, -1, 2, 0, 1])
    matrix = np.eye(5) - np.outer(blind, blind) / (blind @ blind)
    points = np.random.default_rng(3).integers(-9, 9, size=(20, 5)) + shift
    index = build(np.concatenate([points, points + 64 * blind]), Mahalanobis(matrix), dtype=dtype)
    assert (index.representatives[20:] == index.representatives[:20]).all()
    assert len(np.unique(index.representatives)) == len(np.unique(points @ matrix.round(9), axis=0))
    assert excess(TEM(index, 2.0)) <= 0


# One outlier, and words beside each other


def chain(outlier):
    """100 words from 0 to 4.95, 0.05 apart, one more at 5.25, and perhaps one very far away."""
    line = np.concatenate([np.arange(100) * 0.05, [5.25], [outlier] if outlier else []])
    return np.stack([line, np.ones_like(line)], axis=1)


@pytest.mark.parametrize("k", [8, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["euclidean", "manhattan", "chebyshev", "mahalanobis"])
def test_a_far_word_joins_no_words_that_are_told_apart(name, dtype, k):
    index = build(chain(3e6), metric_of(name, np.eye(2)), k=k, dtype=dtype)
    assert (index.representatives == np.arange(len(index))).all()
    assert index.width == 0


@pytest.mark.parametrize("kind", [TEM])
@pytest.mark.parametrize("outlier", [None, 3e6])
@pytest.mark.parametrize("k", [8, 200])
def test_no_pair_loses_more_than_is_stated_for_its_vectors_beside_a_far_word(kind, outlier, k):
    mechanism = kind(build(chain(outlier), k=k, dtype=np.float32), 2.0)
    assert excess(mechanism) <= 0
    assert mechanism.statement.figures["numerical_slack"] < 1e-3


def test_a_calibrated_rate_does_not_suffer_from_a_far_word():
    alone, beside = (
        TEM(build(chain(outlier), k=200, dtype=np.float32), 2.0) for outlier in (None, 3e6)
    )
    assert beside.t == pytest.approx(alone.t, rel=0.02)
    assert excess(beside) <= 0
    assert textpriv.certify(beside).holds


def joined(points, groups, folder):
    """An index folder as an earlier version wrote it, in which every group of words has the law of its first."""
    build(points, k=8, dtype=np.float32).save(folder)
    meta = json.loads((folder / "index.json").read_text())
    representatives = np.load(folder / "representatives.npy")
    for group in groups:
        representatives[group] = group[0]
    np.save(folder / "representatives.npy", representatives)
    del meta["rounding"]
    entry = meta["files"]["representatives.npy"]
    entry["sha256"] = storage.checksum(folder / "representatives.npy")
    meta["checksum"] = storage.meta_checksum(meta)
    (folder / "index.json").write_text(json.dumps(meta))
    return folder


@pytest.fixture(scope="module")
def chained(tmp_path_factory):
    """A folder in which 100 words from 0 to 4.95 have the law of the first, and the word at 5.25 one of its own."""
    return joined(chain(None), [np.arange(100)], tmp_path_factory.mktemp("chained") / "i")


@pytest.fixture(scope="module")
def wide(chained):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Index.load(chained)


def test_an_earlier_folder_with_wide_groups_is_warned_of(chained):
    with pytest.warns(UserWarning, match=r"share the law of another word up to 4\.95 away"):
        Index.load(chained)


@pytest.mark.parametrize("kind", [TEM])
def test_the_width_of_a_group_is_charged(wide, kind):
    mechanism = kind(wide, 2.0)
    figures = mechanism.statement.figures
    assert wide.width == pytest.approx(4.95, rel=1e-6)
    assert figures["numerical_slack"] >= 2 * 2.0 * 4.95
    assert mechanism.statement.local_dp_epsilon >= figures["worst_word_loss"] + 2 * 2.0 * 4.95
    # Without the charge the promise would be broken, with it it is kept.
    assert excess(mechanism) + figures["numerical_slack"] > 0
    assert excess(mechanism) <= 0
    assert any("share the law" in note for note in mechanism.statement.notes)


def test_a_certificate_measures_words_that_share_a_law_by_their_own_vectors(wide, monkeypatch):
    for most in (1500, 99):
        monkeypatch.setattr("textpriv.guarantees.certificate._EXHAUSTIVE", most)
        found = textpriv.certify(TEM(wide, 2.0))
        assert not found.holds
        # The last word of the chain has the law of the first, and stands 0.3 from a word with a law of its own.
        assert found.rho > 4.0
        assert "w100" in found.worst_pair
        assert found.distance == pytest.approx(0.3, rel=1e-4)


def test_the_audit_measures_words_that_share_a_law_by_their_own_vectors(wide):
    (check,) = (c for c in audit(TEM, index=wide).checks if c.name == "search")
    assert not check.passed


def test_a_chain_of_directions_that_rounding_cannot_tell_apart_is_warned_of_and_charged():
    turns = np.concatenate([np.arange(100) * 5e-8, [1e-3, 2e-3]])
    points = np.stack([np.ones(102), turns], axis=1)
    with pytest.warns(UserWarning, match="share the law of another word"):
        index = build(points, "unit_euclidean", dtype=np.float32)
    assert 99 * 5e-8 <= index.width <= 105 * 5e-8
    assert excess(TEM(index, 3e5)) <= 0


# Random small vocabularies


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(NAMES),
    dtype=st.sampled_from(["f4", "f8"]),
    far=st.sampled_from([0.0, 50.0, 1e5]),
    kind=st.just(TEM),
)
def test_no_pair_loses_more_than_is_stated_for_its_vectors(seed, name, dtype, far, kind):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(24, 5)) + rng.choice([0.0, 10.0])
    near = 10.0 ** -rng.integers(1, 9, size=(8, 1))
    points[8:16] = points[:8] + near * rng.normal(size=(8, 5))
    points[16:20] = points[:4]
    points[20] = points[4] * 2
    points[23] += far
    index = build(points, metric_of(name), k=int(rng.integers(1, 25)), dtype=dtype, quiet=True)
    assert excess(kind(index, 3.0)) <= 0


@pytest.mark.parametrize("projection", [None, 3])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_madlib_moves_points_no_farther_apart_than_it_states(projection, shift):
    points = np.random.default_rng(4).normal(size=(80, 5)) + shift
    for name in ("euclidean", "unit_euclidean", "mahalanobis"):
        index = build(points, metric_of(name), dtype=np.float32)
        mechanism = Madlib(index, 40.0, "exact", projection=projection)
        moved = mechanism.points.astype(np.longdouble)
        apart = np.sqrt(((moved[:, None] - moved[None]) ** 2).sum(axis=-1))
        beyond = 40.0 * (apart - true_distances(index)).max()
        assert beyond <= mechanism.statement.figures["numerical_slack"] < 1e-3


# Folders of earlier versions


def test_an_earlier_folder_is_loaded_with_bounds_found_anew(tmp_path):
    for name in ("euclidean", "angular"):
        index = build(np.random.default_rng(0).normal(size=(30, 4)), name, dtype=np.float32)
        index.save(tmp_path / name)
        meta = json.loads((tmp_path / name / "index.json").read_text())
        del meta["rounding"]
        meta["checksum"] = storage.meta_checksum(meta)
        (tmp_path / name / "index.json").write_text(json.dumps(meta))
        again = Index.load(tmp_path / name)
        assert (again.rounding, again.width) == (index.rounding, index.width)


def test_an_earlier_mahalanobis_folder_is_refused_with_the_reason(tmp_path):
    build(np.random.default_rng(0).normal(size=(30, 5)), metric_of("mahalanobis")).save(
        tmp_path / "i"
    )
    shutil.copytree(tmp_path / "i", tmp_path / "new")
    meta = json.loads((tmp_path / "i" / "index.json").read_text())
    del meta["rounding"]
    meta["checksum"] = storage.meta_checksum(meta)
    (tmp_path / "i" / "index.json").write_text(json.dumps(meta))
    with pytest.raises(IndexFolderError, match=r"mahalanobis.*Build the index again"):
        Index.load(tmp_path / "i")
    assert Index.load(tmp_path / "new").coordinates.dtype == np.float64


def test_a_metric_of_ones_own_is_charged_what_sums_would_round():
    metric = CallableMetric(lambda a, b: np.abs(a[:, None] - b[None]).sum(-1), "sums")
    index = build(np.random.default_rng(0).normal(size=(20, 4)), metric)
    assert 0 < index.rounding.absolute < 1e-13
