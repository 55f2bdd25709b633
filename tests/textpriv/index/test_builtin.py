"""The index over a built-in vocabulary: built once, kept, checked when opened, and at hand where nothing can be written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from textpriv.errors import VocabularyError
from textpriv.files import CACHE_VARIABLE
from textpriv.index import Index, builtin
from textpriv.index.neighbours import exact_lists
from textpriv.vocabulary import Vocabulary


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A built-in vocabulary of few words, and a cache folder that is not there yet; tells how often it was read."""
    vectors = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    vocabulary = Vocabulary([f"w{i}" for i in range(200)], vectors)
    reads = []
    record = {"binding": {"kind": "test"}, "content": {"value": 1}}
    monkeypatch.setattr(
        builtin, "read_builtin", lambda language: reads.append(language) or vocabulary
    )
    monkeypatch.setattr(
        builtin,
        "read_manifest",
        lambda language: {"fingerprint": vocabulary.fingerprint(), "records": [record]},
    )
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    builtin._open.cache_clear()
    yield reads
    builtin._open.cache_clear()


def test_it_is_built_once_and_then_opened_from_the_cache(small, tmp_path):
    first = Index.builtin("en")
    builtin._open.cache_clear()
    second = Index.builtin("en")
    assert small == ["en"]
    assert second.path is not None
    assert second.path.parent == (tmp_path / "cache").resolve()
    assert first.fingerprint == second.fingerprint
    assert second.find_record({"kind": "test"}) == {"value": 1}


def test_one_process_opens_it_once(small):
    assert Index.builtin("en") is Index.builtin("en")


@pytest.mark.parametrize("name", ["neighbours.npy", "index.json"])
def test_a_damaged_index_is_built_again(small, name):
    path = Index.builtin("en").path
    builtin._open.cache_clear()
    (path / name).write_bytes((path / name).read_bytes()[:-1] + b"?")
    again = Index.builtin("en")
    assert small == ["en", "en"]
    assert json.loads((again.path / "index.json").read_text())["words"] == 200
    Index.load(again.path)


def test_an_index_of_other_words_under_its_name_is_not_used(small):
    index = Index.builtin("en")
    builtin._open.cache_clear()
    other = Vocabulary([f"x{i}" for i in range(200)], np.array(index.vocabulary.vectors))
    Index.build(other, k=8, hnsw=False).save(index.path, overwrite=True)
    assert Index.builtin("en").vocabulary.words[0] == "w0"


def test_where_nothing_can_be_written_it_is_built_in_memory(small, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder would be")
    index = Index.builtin("en")
    assert index.path is None
    assert index.find_record({"kind": "test"}) == {"value": 1}


def test_a_name_opens_it_where_a_folder_is_named(small, tmp_path):
    index = builtin.open_index("builtin:en")
    index.save(tmp_path / "copy")
    assert builtin.open_index(tmp_path / "copy").fingerprint == index.fingerprint


def test_an_unknown_language_is_refused():
    with pytest.raises(VocabularyError, match="only of: en"):
        Index.builtin("de")


def test_the_english_index_has_the_lists_of_an_exact_search_and_a_law_a_word():
    index = Index.builtin("en")
    rows = np.arange(0, len(index), 5000)
    assert index.exact
    assert not len(index.wide)
    for row in rows:
        distances = index.distances_of(np.array([row]))[0]
        nearest = np.sort(distances)[: index.k]
        assert np.allclose(index.neighbours.distances[row], nearest, rtol=1e-6)
    assert exact_lists(index.coordinates[:400], index.metric, 4).ids.shape == (400, 4)
