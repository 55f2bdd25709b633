"""An index: what it reports, and that it comes back from a folder and from other processes as it was."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from textpriv import Index, Vocabulary
from textpriv.errors import IndexFolderError, TextprivError, VocabularyError
from textpriv.index.grid import Grid
from textpriv.index.spaces import SPACES
from textpriv.language import NGrams

EQUAL = ("points", "neighbour_ids", "neighbour_steps")


def build(space="euclidean", prior=None, **options) -> Index:
    vectors = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
    words = Vocabulary([f"w{i}" for i in range(60)], vectors, prior, language="en")
    return Index.build(words, space, k=7, **options)


def assert_equal(one: Index, other: Index) -> None:
    for name in EQUAL:
        assert np.array_equal(getattr(one, name), getattr(other, name))
    for name in ("space", "unit", "fingerprint", "diameter_bound", "typical", "language"):
        assert getattr(one, name) == getattr(other, name)
    assert one.vocabulary.words == other.vocabulary.words
    assert np.array_equal(one.vocabulary.vectors, other.vocabulary.vectors)


@pytest.mark.parametrize("space", SPACES)
def test_saved_index_loads_as_it_was(space, tmp_path):
    built = build(space, prior=np.arange(1.0, 61.0))
    built.save(tmp_path / "an.idx")
    loaded = Index.load(tmp_path / "an.idx")
    assert_equal(built, loaded)
    assert np.array_equal(loaded.vocabulary.prior, built.vocabulary.prior)
    assert loaded.path == (tmp_path / "an.idx").resolve()


def test_tables_are_read_only_and_mapped(tmp_path):
    build().save(tmp_path / "an.idx")
    loaded = Index.load(tmp_path / "an.idx")
    for name in EQUAL:
        with pytest.raises(ValueError, match="read-only"):
            getattr(loaded, name)[0, 0] = 1
        assert isinstance(getattr(loaded, name).base, np.ndarray)


def test_index_travels_by_value_or_by_folder(tmp_path):
    built = build()
    assert_equal(built, pickle.loads(pickle.dumps(built)))
    built.save(tmp_path / "an.idx")
    loaded = Index.load(tmp_path / "an.idx")
    travelled = pickle.dumps(loaded)
    assert len(travelled) < 1000
    assert_equal(loaded, pickle.loads(travelled))
    build("unit").save(tmp_path / "an.idx", overwrite=True)
    with pytest.raises(IndexFolderError, match="replaced by another index"):
        pickle.loads(travelled)


def test_fingerprint_tells_whatever_changes_a_distance():
    built = build()
    words, points, unit = built.vocabulary, built.points, built.unit

    def with_grid(*grid) -> Index:
        return Index(words, Grid(*grid), (built.neighbour_ids, built.neighbour_steps))

    assert with_grid("euclidean", points, unit).fingerprint == build().fingerprint
    turned = Vocabulary(words.words[::-1], words.vectors)
    others = [
        with_grid("unit", points, unit),
        with_grid("euclidean", points, 2 * unit),
        with_grid("euclidean", -points, unit),
        with_grid("euclidean", points.astype(np.int16), unit),
        Index.build(turned, "euclidean", k=7),
    ]
    assert len({built.fingerprint, *(other.fingerprint for other in others)}) == 6


def model() -> NGrams:
    ids = np.random.default_rng(2).integers(-1, 60, 500)
    return NGrams.from_ids(ids, np.array([0, 250, 500]), 60)


def test_a_language_model_comes_back_with_its_index(tmp_path):
    built = build(model=model())
    assert built.fingerprint != build().fingerprint
    assert build().model is None
    built.save(tmp_path / "an.idx")
    loaded = Index.load(tmp_path / "an.idx")
    for other in (loaded, *(pickle.loads(pickle.dumps(each)) for each in (built, loaded))):
        assert_equal(built, other)
        assert other.model.symbols == built.model.symbols
        assert all(map(np.array_equal, other.model.arrays, built.model.arrays))
    build().save(tmp_path / "an.idx", overwrite=True)
    with pytest.raises(IndexFolderError, match="replaced by another index"):
        pickle.loads(pickle.dumps(loaded))


def test_a_language_model_of_other_words_is_refused():
    with pytest.raises(TextprivError, match="another vocabulary"):
        build(model=NGrams.from_ids(np.arange(5), np.array([0, 5]), 5))


def test_existing_folders_are_not_replaced_unasked(tmp_path):
    build().save(tmp_path / "an.idx")
    with pytest.raises(IndexFolderError, match="exists already"):
        build().save(tmp_path / "an.idx")
    build("unit").save(tmp_path / "an.idx", overwrite=True)
    assert Index.load(tmp_path / "an.idx").space == "unit"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("x")
    with pytest.raises(IndexFolderError, match="not an index folder"):
        build().save(tmp_path / "other", overwrite=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["an.idx", "other"]


def test_failed_save_leaves_the_old_folder(tmp_path, monkeypatch):
    build().save(tmp_path / "an.idx")

    def fail(*given, **options):
        raise OSError("disk full")

    monkeypatch.setattr("textpriv.index.folder.np.save", fail)
    with pytest.raises(OSError, match="disk full"):
        build("unit").save(tmp_path / "an.idx", overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["an.idx"]
    assert Index.load(tmp_path / "an.idx").space == "euclidean"


@pytest.mark.parametrize("name", ["vectors.npy", "points.npy", "steps.npy", "words.json"])
def test_one_altered_byte_is_refused(name, tmp_path):
    build().save(tmp_path / "an.idx")
    content = bytearray((tmp_path / "an.idx" / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / "an.idx" / name).write_bytes(content)
    with pytest.raises(IndexFolderError, match="it was altered after it was written"):
        Index.load(tmp_path / "an.idx")


def test_lists_that_are_not_those_of_the_points_are_refused(tmp_path):
    """With the right fingerprint and checksums, as a maker of folders may give them."""
    built = build()
    ids, steps = built.neighbour_ids, built.neighbour_steps
    without_nearest = np.delete(ids, 1, axis=1), np.delete(steps, 1, axis=1)
    for number, (points, lists, message) in enumerate(
        [
            (built.points.astype(np.int16) * 200, (ids, steps), "longer than any"),
            (built.points, (ids, 2 * steps), "not those of the points"),
            (built.points, without_nearest, "is missing in it"),
        ]
    ):
        grid = Grid("euclidean", points, built.unit)
        Index(built.vocabulary, grid, lists).save(tmp_path / str(number))
        with pytest.raises(IndexFolderError, match=message):
            Index.load(tmp_path / str(number))


def test_missing_folder_names_the_command(tmp_path):
    with pytest.raises(IndexFolderError, match="textpriv index"):
        Index.load(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(IndexFolderError, match="textpriv index"):
        Index.load(tmp_path / "file")


def test_typical_distances_skip_duplicates_and_weigh_tokens():
    """Two equal words and three others on a line: the nearest word at another place counts."""
    words = Vocabulary(list("aabcd".replace("aa", "ae")), [[0.0], [0.0], [1.0], [3.0], [7.0]])
    index = Index.build(words, "euclidean", k=2)
    nearest = index.typical[1]
    assert nearest.median == 1.0
    counted = Vocabulary(words.words, words.vectors, np.array([1.0, 1.0, 1.0, 1.0, 96.0]))
    assert Index.build(counted, "euclidean", k=2).typical[1].median == 4.0
    # The 10th of 4 others is the farthest.
    assert Index.build(counted, "euclidean", k=2).reference_distance == 7.0
    assert 100 not in index.typical


def test_typical_distances_do_not_depend_on_list_lengths():
    short, long = (Index.build(build().vocabulary, "euclidean", k=k) for k in (1, 60))
    assert short.typical == long.typical


def test_no_distance_exceeds_the_diameter_bound():
    for space in SPACES:
        index = build(space)
        assert index.distances_of(np.arange(60)).max() <= index.diameter_bound


def test_unknown_words_are_named():
    with pytest.raises(VocabularyError, match="'nowhere'"):
        build().distance("w1", "nowhere")
    with pytest.raises(VocabularyError, match="60"):
        build().distance("w1", 60)
