"""The built-in index: built once, kept in the cache folder and never taken from a damaged or foreign folder."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv import Index, Vocabulary
from textpriv.errors import VocabularyError
from textpriv.index import builtin


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of its own and a small vocabulary in the place of the English one."""
    words = Vocabulary([f"w{i}" for i in range(90)], np.random.default_rng(0).normal(size=(90, 4)))
    monkeypatch.setenv("TEXTPRIV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(builtin, "read_builtin", lambda language: words)
    builtin.open_builtin.cache_clear()
    yield tmp_path / "cache"
    builtin.open_builtin.cache_clear()


def test_builtin_index_is_built_once_and_then_loaded(cache, monkeypatch):
    built = Index.builtin("en")
    assert built is Index.builtin("en")
    assert built.k == builtin.LIST_LENGTH
    builtin.open_builtin.cache_clear()
    monkeypatch.setattr(Index, "build", None)
    loaded = Index.builtin("en")
    assert loaded.path is not None
    assert cache in loaded.path.parents
    assert loaded.fingerprint == built.fingerprint


@pytest.mark.parametrize("name", ["index.json", "points.npy", "words.json"])
def test_damaged_cache_is_built_again(cache, name):
    folder = Index.builtin("en").path
    (folder / name).write_bytes(b"x")
    builtin.open_builtin.cache_clear()
    assert len(Index.builtin("en")) == 90
    assert len(Index.load(folder)) == 90


def test_unwritable_cache_leaves_the_index_in_memory(cache):
    cache.write_text("a file where the folder should be")
    index = Index.builtin("en")
    assert index.path is None
    assert len(index) == 90


def test_names_open_the_builtin_index_or_a_folder(cache, tmp_path):
    index = builtin.open_index("builtin:en")
    assert index is Index.builtin("en")
    index.save(tmp_path / "an.idx")
    assert builtin.open_index(tmp_path / "an.idx").fingerprint == index.fingerprint
    assert builtin.absolute_name("builtin:en") == "builtin:en"
    assert builtin.absolute_name("an.idx").endswith("/an.idx")


def test_unknown_languages_are_refused(cache):
    with pytest.raises(VocabularyError, match="'xx'"):
        Index.builtin("xx")
