"""An index folder comes back equal, is written whole or not at all, and says which part of it is broken."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from textpriv.errors import IndexFolderError, MetricError, TextprivError, VocabularyError
from textpriv.index import index as module
from textpriv.index import storage
from textpriv.index.index import FORMAT, Index
from textpriv.metrics import (
    ANGULAR,
    CallableMetric,
    Mahalanobis,
    distances_from,
    get_metric,
)
from textpriv.vocabulary import Vocabulary

STRANGE = [
    "New York",
    "line\nbreak",
    "tab\there",
    '"quoted"',
    "日本語",
    "😀",
    "e\u0301",
    "\u00e9",
    "\\",
    " ",
]
ARRAYS = [
    "vectors.npy",
    "coordinates.npy",
    "neighbours.npy",
    "distances.npy",
    "representatives.npy",
    "prior.npy",
    "sketch.npy",
    "bands.npy",
]
FILES = [*ARRAYS, "words.json"]


def make_vocabulary(size=120, dimension=6, dtype=np.float32, prior=None):
    words = STRANGE + [f"w{i}" for i in range(size - len(STRANGE))]
    vectors = np.random.default_rng(0).normal(size=(size, dimension)).astype(dtype)
    return Vocabulary(words, vectors, prior)


def of_points(points, **options):
    points = np.asarray(points)
    words = [f"w{i}" for i in range(len(points))]
    return Index.build(Vocabulary(words, points), **({"hnsw": False} | options))


@pytest.fixture(scope="module")
def built():
    vocabulary = make_vocabulary(prior=np.arange(1.0, 121.0))
    return Index.build(vocabulary, metric="unit_euclidean", k=9)


@pytest.fixture(scope="module")
def saved(built, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "words.idx"
    built.save(path)
    return path


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the saved folder that a test may break."""
    return Path(shutil.copytree(saved, tmp_path / "copy.idx"))


def rewrite_meta(folder, change):
    """Change index.json and make its checksum right again."""
    meta = json.loads((folder / "index.json").read_text())
    change(meta)
    meta["checksum"] = storage.meta_checksum(meta)
    (folder / "index.json").write_text(json.dumps(meta))


def assert_equal(first, second):
    assert first.vocabulary.words == second.vocabulary.words
    for a, b in [
        (first.vocabulary.vectors, second.vocabulary.vectors),
        (first.coordinates, second.coordinates),
        (first.neighbours.ids, second.neighbours.ids),
        (first.neighbours.distances, second.neighbours.distances),
        (first.representatives, second.representatives),
    ]:
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    for name in (
        "metric",
        "k",
        "backend",
        "recall",
        "tau",
        "typical",
        "rounding",
        "width",
        "diameter_bound",
        "fingerprint",
    ):
        assert getattr(first, name) == getattr(second, name), name
    assert np.array_equal(first.vocabulary.prior, second.vocabulary.prior)


# Saving and loading


def test_a_saved_index_comes_back_equal(built, saved):
    assert_equal(built, Index.load(saved))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan", "chebyshev"])
def test_an_index_of_any_metric_and_precision_comes_back_equal(tmp_path, metric, dtype):
    index = Index.build(make_vocabulary(dtype=dtype), metric=metric, k=5, hnsw=False)
    index.save(tmp_path / "i")
    assert_equal(index, Index.load(tmp_path / "i"))


def test_a_mahalanobis_index_comes_back_with_its_matrix(tmp_path):
    metric = Mahalanobis(np.diag([1.0, 2.0, 3.0, 4.0, 5.0, 1 / 3]))
    Index.build(make_vocabulary(), metric=metric, k=5).save(tmp_path / "i")
    assert Index.load(tmp_path / "i").metric == metric


def test_words_with_blanks_line_breaks_and_any_script_survive(saved):
    loaded = Index.load(saved)
    assert loaded.vocabulary.words[: len(STRANGE)] == STRANGE
    assert [loaded.vocabulary.id(word) for word in STRANGE] == list(range(len(STRANGE)))


def test_loaded_arrays_are_mapped_and_not_read(saved):
    loaded = Index.load(saved)
    for array in (
        loaded.vocabulary.vectors,
        loaded.vocabulary.prior,
        loaded.coordinates,
        loaded.neighbours.ids,
        loaded.neighbours.distances,
        loaded.representatives,
    ):
        base = array
        while isinstance(base, np.ndarray):
            assert not base.flags.owndata
            assert not base.flags.writeable
            base = base.base
        assert isinstance(base, mmap.mmap)


def test_a_loaded_index_can_be_saved_elsewhere(built, saved, tmp_path):
    Index.load(saved).save(tmp_path / "again.idx")
    assert_equal(built, Index.load(tmp_path / "again.idx"))
    assert (tmp_path / "again.idx" / "hnsw.bin").read_bytes() == (saved / "hnsw.bin").read_bytes()


def test_a_loaded_index_can_replace_its_own_folder(built, folder):
    index = Index.load(folder)
    index.save(folder, overwrite=True)
    assert_equal(index, built)
    assert_equal(Index.load(folder), built)


def test_a_folder_is_made_with_its_parents_and_ordinary_permissions(built, tmp_path):
    path = tmp_path / "a" / "b" / "i"
    built.save(path)
    plain = tmp_path / "plain"
    plain.mkdir()
    assert path.stat().st_mode == plain.stat().st_mode


# What is broken


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    with pytest.raises(IndexFolderError, match=rf"{name} has \d+ bytes where .* truncated"):
        Index.load(folder, verify=False)


@pytest.mark.parametrize("name", FILES)
def test_an_altered_byte_is_found_and_its_file_named(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(IndexFolderError, match=rf"{name} was altered"):
        Index.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(IndexFolderError, match=rf"{name} is missing"):
        Index.load(folder)


def test_an_altered_byte_far_inside_a_large_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_LEAF", 64)
    of_points(np.random.default_rng(0).normal(size=(60, 3)), k=4).save(tmp_path / "i")
    Index.load(tmp_path / "i")
    with open(tmp_path / "i" / "vectors.npy", "r+b") as file:
        file.seek(1000)
        byte = file.read(1)[0]
        file.seek(1000)
        file.write(bytes([byte ^ 128]))
    with pytest.raises(IndexFolderError, match=r"vectors.npy was altered"):
        Index.load(tmp_path / "i")


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_another_shape_is_named(folder, name):
    array = np.load(folder / name)
    np.save(folder / name, array[:-1])
    size = (folder / name).stat().st_size
    rewrite_meta(folder, lambda meta: meta["files"][name].update(bytes=size))
    with pytest.raises(IndexFolderError, match=rf"{name} has shape"):
        Index.load(folder, verify=False)


def test_an_array_that_is_none_is_named(folder):
    size = (folder / "vectors.npy").stat().st_size
    (folder / "vectors.npy").write_bytes(b"x" * size)
    with pytest.raises(IndexFolderError, match=r"vectors.npy is damaged"):
        Index.load(folder, verify=False)


@pytest.mark.parametrize("content", [b"[", b'["one"]', b"\xff\xfe"])
def test_words_that_are_not_as_many_strings_are_refused(folder, content):
    (folder / "words.json").write_bytes(content)
    rewrite_meta(folder, lambda meta: meta["files"]["words.json"].update(bytes=len(content)))
    with pytest.raises(IndexFolderError, match=r"words.json"):
        Index.load(folder, verify=False)


@pytest.mark.parametrize("field", ["tau", "k", "backend", "diameter_bound", "metric", "recall"])
def test_altered_settings_are_refused(folder, field):
    meta = json.loads((folder / "index.json").read_text())
    meta[field] = 1
    (folder / "index.json").write_text(json.dumps(meta))
    with pytest.raises(IndexFolderError, match=r"index.json was altered"):
        Index.load(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "1"}', "\x00"])
def test_a_damaged_index_json_is_named(folder, content):
    (folder / "index.json").write_text(content)
    with pytest.raises(IndexFolderError, match=r"index.json is damaged"):
        Index.load(folder)


def test_a_newer_format_is_refused_with_its_number(folder):
    rewrite_meta(folder, lambda meta: meta.update(format=FORMAT + 1))
    with pytest.raises(IndexFolderError, match=rf"format {FORMAT + 1}.*Upgrade"):
        Index.load(folder)


def test_a_missing_folder_is_said_to_be_missing(tmp_path):
    with pytest.raises(IndexFolderError, match=r"nowhere does not exist.*textpriv index"):
        Index.load(tmp_path / "nowhere")


def test_a_folder_of_something_else_is_said_to_be_none(tmp_path):
    with pytest.raises(IndexFolderError, match="is not an index folder"):
        Index.load(tmp_path)


def test_a_file_is_said_to_be_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(IndexFolderError, match="is a file, not an index folder"):
        Index.load(tmp_path / "file")


def test_another_metric_than_asked_for_is_refused(saved):
    with pytest.raises(IndexFolderError, match=r"'unit_euclidean', not 'euclidean'"):
        Index.load(saved, metric="euclidean")


def test_the_metric_asked_for_is_accepted(saved):
    assert Index.load(saved, metric="unit_euclidean").metric.name == "unit_euclidean"


# Saving whole or not at all


@pytest.fixture
def failing_save(monkeypatch):
    """Make the second array fail to be written, as on a full disk."""
    write, calls = np.save, []

    def save(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(module.np, "save", save)


@pytest.mark.usefixtures("failing_save")
def test_a_failure_while_writing_leaves_nothing(built, tmp_path):
    with pytest.raises(OSError, match="No space"):
        built.save(tmp_path / "i")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("failing_save")
def test_a_failure_while_overwriting_leaves_the_old_index(built, folder):
    other = of_points(np.eye(4), k=2)
    with pytest.raises(OSError, match="No space"):
        other.save(folder, overwrite=True)
    assert_equal(Index.load(folder), built)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_failure_while_moving_into_place_leaves_the_old_index(built, folder, monkeypatch):
    move, calls = os.replace, []

    def replace(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        move(*arguments)

    monkeypatch.setattr(module.os, "replace", replace)
    with pytest.raises(OSError, match="Input/output"):
        of_points(np.eye(4), k=2).save(folder, overwrite=True)
    assert_equal(Index.load(folder), built)
    assert list(folder.parent.iterdir()) == [folder]


def test_an_existing_index_is_replaced_only_when_told_to(folder):
    index = of_points(np.eye(4), k=2)
    with pytest.raises(IndexFolderError, match="overwrite=True"):
        index.save(folder)
    index.save(folder, overwrite=True)
    assert_equal(Index.load(folder), index)
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_no_index_is_never_replaced(built, tmp_path, kind):
    target = tmp_path / "precious"
    if kind == "folder":
        target.mkdir()
        (target / "thesis.txt").write_text("text")
    else:
        target.write_text("text")
    with pytest.raises(IndexFolderError, match="not an index folder; choose another name"):
        built.save(target, overwrite=True)
    assert target.exists()
    assert kind == "file" or (target / "thesis.txt").read_text() == "text"


# Building


def test_a_list_longer_than_the_vocabulary_is_a_complete_one():
    assert of_points(np.eye(5), k=256).k == 5


@pytest.mark.parametrize("k", [0, -1, 2.0, "8", True, None])
def test_a_list_length_that_is_no_positive_whole_number_is_refused(k):
    with pytest.raises(TextprivError, match="whole number from 1 up"):
        of_points(np.eye(5), k=k)


def test_an_unknown_backend_is_refused():
    with pytest.raises(TextprivError, match="unknown backend 'faiss'"):
        of_points(np.eye(5), backend="faiss")


def test_what_is_no_metric_is_refused():
    with pytest.raises(MetricError, match="triangle inequality"):
        of_points(np.eye(5), metric="cosine")


def test_a_callable_that_is_no_metric_is_refused():
    squared = CallableMetric(lambda a, b: cdist(a, b) ** 2, "squared")
    with pytest.raises(MetricError, match="triangle inequality"):
        of_points(np.arange(8.0)[:, None], metric=squared)


def test_a_callable_metric_must_be_given_again_to_load(tmp_path):
    metric = CallableMetric(lambda a, b: cdist(a, b, "minkowski", p=3), "minkowski3")
    index = of_points(np.random.default_rng(0).normal(size=(40, 3)), metric=metric, k=6)
    index.save(tmp_path / "i")
    with pytest.raises(MetricError, match="pass the same CallableMetric"):
        Index.load(tmp_path / "i")
    assert_equal(Index.load(tmp_path / "i", metric=metric), index)


def test_approximate_lists_state_a_recall_between_zero_and_one():
    index = Index.build(make_vocabulary(400), k=20, backend="hnsw")
    assert 0 < index.recall <= 1
    assert not index.exact
    assert "approximate, recall" in repr(index)


def test_exact_lists_state_recall_one(built):
    assert built.recall == 1
    assert built.exact
    assert "exact" in repr(built)


def test_approximate_lists_refuse_a_metric_that_is_not_euclidean():
    with pytest.raises(TextprivError, match="needs backend='exact'"):
        of_points(np.eye(5), metric="manhattan", backend="hnsw")


def test_progress_is_reported_by_stage_up_to_the_number_of_words():
    seen = []
    Index.build(make_vocabulary(), k=4, progress=lambda *at: seen.append(at))
    last = {stage: (done, of) for stage, done, of in seen}
    assert last == {"approximate index": (120, 120), "exact lists": (120, 120)}


def test_progress_bars_go_to_standard_error(capsys):
    of_points(np.eye(5), k=2, progress=True)
    assert capsys.readouterr().out == ""


# The approximate index


def test_a_saved_graph_answers_as_the_built_one_does(built, saved):
    queries = np.random.default_rng(1).normal(size=(300, 6)).astype(np.float32)
    loaded = Index.load(saved)
    assert np.array_equal(
        loaded.graph.knn_query(queries, k=3)[0], built.graph.knn_query(queries, k=3)[0]
    )


def test_loading_leaves_the_graph_alone_until_it_is_used(saved):
    loaded = Index.load(saved)
    assert "graph" not in vars(loaded)
    assert loaded.graph is loaded.graph


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "truncated"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\x01"), "altered"),
        (lambda file: file.unlink(), "missing"),
    ],
)
def test_a_broken_graph_is_named_when_it_is_first_used(folder, harm, problem):
    harm(folder / "hnsw.bin")
    loaded = Index.load(folder)
    with pytest.raises(IndexFolderError, match=rf"hnsw.bin .*{problem}"):
        loaded.graph  # noqa: B018


def test_a_graph_that_was_left_out_is_built_when_it_is_needed(tmp_path):
    index = of_points(np.random.default_rng(0).normal(size=(50, 3)), k=4)
    index.save(tmp_path / "i")
    assert not (tmp_path / "i" / "hnsw.bin").exists()
    assert Index.load(tmp_path / "i").graph.get_current_count() == 50


@pytest.mark.parametrize("metric", ["angular", "manhattan"])
def test_a_metric_that_is_not_euclidean_has_no_graph(metric):
    with pytest.raises(MetricError, match="search='exact'"):
        of_points(np.eye(5), metric=metric).graph  # noqa: B018


# Pickling


def test_a_pickled_index_of_a_folder_is_small_and_opens_the_folder_again(built, saved):
    packed = pickle.dumps(Index.load(saved))
    assert len(packed) < 1000
    assert_equal(pickle.loads(packed), built)


def test_a_pickled_index_without_a_folder_travels_by_value(built):
    again = pickle.loads(pickle.dumps(built))
    assert_equal(again, built)
    assert again.path is None
    assert again.graph.get_current_count() == len(built)


def test_a_pickled_index_notices_that_its_folder_was_replaced(folder):
    packed = pickle.dumps(Index.load(folder))
    of_points(np.eye(4), k=2).save(folder, overwrite=True)
    with pytest.raises(IndexFolderError, match="replaced by another index"):
        pickle.loads(packed)


# Representatives and bounds


def test_distinct_words_represent_themselves(built):
    assert np.array_equal(built.representatives, np.arange(len(built)))


@pytest.mark.parametrize("k", [1, 3, 60])
def test_exact_duplicates_share_the_first_of_them(k):
    points = np.random.default_rng(0).normal(size=(60, 4))
    points[20:40] = points[7]
    points[50] = points[41]
    index = of_points(points, k=k)
    expected = np.arange(60)
    expected[20:40] = 7
    expected[50] = 41
    assert np.array_equal(index.representatives, expected)


@pytest.mark.parametrize("k", [1, 2, 8])
@pytest.mark.parametrize("parts", [0.5, 4])
def test_words_closer_than_the_rounding_of_their_coordinates_share_one_and_others_do_not(k, parts):
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    directions = of_points(points, metric="unit_euclidean", k=k)
    points = directions.coordinates.copy()
    points[10] = points[3]
    # Across the direction, so that the angle is what is meant.
    points[10, 1] += np.float32(parts * directions.rounding.absolute)
    index = of_points(points, metric="unit_euclidean", k=k)
    expected = np.arange(40)
    expected[10] = 3 if parts < 1 else 10
    assert np.array_equal(index.representatives, expected)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_different_vectors_never_share_one_where_no_coordinate_is_rounded(metric):
    points = np.random.default_rng(0).normal(size=(60, 3)) * 1000
    points[10:20] = points[0]
    points[20:30] = points[0] + [0, 1e-13, 0]
    index = of_points(points, metric=metric, k=4)
    assert (index.representatives[10:20] == 0).all()
    assert (index.representatives[20:30] == 20).all()


def test_words_closer_than_the_rounding_share_one_also_where_duplicates_fill_their_lists():
    points = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    points[10:20] = points[0]
    points[20:30] = 3 * points[0]
    index = of_points(points, metric="unit_euclidean", k=4)
    assert (index.representatives[10:30] == 0).all()


def true_distances(points, metric):
    """All distances in extended precision, from the vectors themselves where the metric is one of directions."""
    wide = points.astype(np.longdouble)
    if metric.kind == ANGULAR:
        wide = wide / np.sqrt((wide**2).sum(1))[:, None]
        chord = np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(-1))
        return 2 * np.arctan2(chord, np.sqrt(((wide[:, None] + wide[None]) ** 2).sum(-1)))
    wide = metric.coordinates(points).astype(np.longdouble)
    difference = np.abs(wide[:, None] - wide[None])
    if metric.name == "manhattan":
        return difference.sum(-1)
    return difference.max(-1) if metric.name == "chebyshev" else np.sqrt((difference**2).sum(-1))


@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan", "chebyshev"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [2, 20])
def test_tau_bounds_the_error_of_every_distance_in_use(metric, dtype, dimension):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, dimension)) * rng.uniform(1, 9, size=(60, 1))
    # Opposite and nearly equal directions are where angles lose their digits.
    points = np.concatenate([points, -3 * points[:20], points[:20] + 1e-7]).astype(dtype)
    index = of_points(points, metric=metric, k=12)
    true = true_distances(points, index.metric)
    stored = np.take_along_axis(true, index.neighbours.ids, axis=1)
    assert np.abs(index.neighbours.distances - stored).max() <= index.tau
    out = np.empty(len(points))
    for row in range(len(points)):
        distances_from(index.metric.kind, index.coordinates, row, out)
        assert np.abs(out - true[row]).max() <= index.tau


@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan", "chebyshev"])
def test_the_diameter_is_bounded_to_a_factor_of_two(metric):
    points = np.random.default_rng(2).standard_t(2, size=(150, 5))
    index = of_points(points, metric=metric, k=3)
    diameter = get_metric(metric).pairwise(points, points).max()
    assert diameter <= index.diameter_bound <= 2 * diameter * (1 + 1e-12)


def test_an_index_of_one_word_is_built_and_saved(tmp_path):
    of_points(np.ones((1, 3)), hnsw=True).save(tmp_path / "i")
    assert len(Index.load(tmp_path / "i")) == 1


# The short form of rows


def scattered():
    return np.random.default_rng(3).normal(size=(400, 90)) * np.linspace(2, 0.01, 90)


def test_a_saved_sketch_is_the_built_one(tmp_path):
    points = scattered()
    here = of_points(points, k=5)
    here.save(tmp_path / "saved.idx")
    there = Index.load(tmp_path / "saved.idx")
    for mine, yours in zip(here.quantized, there.quantized, strict=True):
        np.testing.assert_array_equal(mine, yours)
    assert (tmp_path / "saved.idx" / "sketch.npy").is_file()


@pytest.mark.parametrize("kept", [None, {"leading": 64, "grain": [0.1, 0.2]}])
def test_a_folder_of_an_earlier_version_has_an_empty_sketch(tmp_path, kept):
    of_points(scattered(), k=5).save(tmp_path / "saved.idx")

    def forget(meta):
        del meta["sketch"]
        if kept is not None:
            meta["sketch"] = kept

    rewrite_meta(tmp_path / "saved.idx", forget)
    assert Index.load(tmp_path / "saved.idx").quantized.rows.shape[0] == 0


def test_an_index_takes_its_sketch_along_as_it_is(tmp_path):
    here = of_points(scattered(), k=5)
    there = pickle.loads(pickle.dumps(here))
    assert there._stored_quantized is not None
    for mine, yours in zip(here.quantized, there.quantized, strict=True):
        np.testing.assert_array_equal(mine, yours)


@pytest.mark.parametrize("leading", [0, 192, 10_000])
def test_a_sketch_that_is_said_to_be_longer_than_it_is_is_refused(tmp_path, leading):
    of_points(scattered(), k=5).save(tmp_path / "saved.idx")

    def lengthen(meta):
        meta["sketch"]["leading"] = leading

    rewrite_meta(tmp_path / "saved.idx", lengthen)
    with pytest.raises(IndexFolderError, match=r"sketch\.npy.*build the index again"):
        Index.load(tmp_path / "saved.idx")


# What is known of the words that a list leaves out


def test_saved_bands_are_the_built_ones(tmp_path):
    here = of_points(scattered(), k=5)
    here.save(tmp_path / "saved.idx")
    there = Index.load(tmp_path / "saved.idx")
    assert there.bands.digest() == here.bands.digest()
    assert there.bands.nearest.shape[1] > 40
    again = pickle.loads(pickle.dumps(here))
    assert again.bands.digest() == here.bands.digest()


@pytest.mark.parametrize("kept", ["nothing", "None"])
def test_a_folder_without_bands_has_one_that_says_nothing(tmp_path, kept):
    of_points(scattered(), k=5).save(tmp_path / "saved.idx")

    def forget(meta):
        del meta["bands"]
        if kept == "None":
            meta["bands"] = None

    rewrite_meta(tmp_path / "saved.idx", forget)
    bands = Index.load(tmp_path / "saved.idx").bands
    assert bands.starts.tolist() == [0, 400]
    assert not bands.nearest.any()


def test_approximate_lists_are_saved_without_bands(tmp_path):
    of_points(scattered(), k=5, backend="hnsw").save(tmp_path / "saved.idx")
    assert not (tmp_path / "saved.idx" / "bands.npy").exists()
    assert Index.load(tmp_path / "saved.idx").bands.nearest.shape == (400, 1)


@pytest.mark.parametrize(
    "harm",
    [
        lambda bands: bands["starts"].__setitem__(0, 1),
        lambda bands: bands["starts"].__setitem__(-1, 401),
        lambda bands: bands["starts"].__setitem__(2, bands["starts"][1]),
        lambda bands: bands["starts"].pop(3),
        lambda bands: bands.update(step=0.0),
        lambda bands: bands.update(step=float("nan")),
    ],
)
def test_bands_that_do_not_fit_the_words_are_refused(tmp_path, harm):
    of_points(scattered(), k=5).save(tmp_path / "saved.idx")
    rewrite_meta(tmp_path / "saved.idx", lambda meta: harm(meta["bands"]))
    with pytest.raises(IndexFolderError, match=r"bands\.npy.*build the index again"):
        Index.load(tmp_path / "saved.idx")


def test_a_distance_is_between_words_given_as_text_or_id(built):
    first, last = built.vocabulary.words[0], np.int64(len(built) - 1)
    assert built.distance(first, last) == built.distance(0, built.vocabulary.words[-1])
    for wrong in ("missing", -1, len(built), 0.5):
        with pytest.raises(VocabularyError):
            built.distance(first, wrong)
