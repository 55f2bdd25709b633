"""The index over a built-in vocabulary: built once, kept, checked when opened, and at hand where nothing can be written."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from textpriv.errors import VocabularyError
from textpriv.files import CACHE_VARIABLE
from textpriv.index import Index, builtin
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.vocabulary import Vocabulary
from textpriv.vocabulary.builtin import read_manifest


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A built-in vocabulary of few words, and a cache folder that is not there yet; tells how often it was read."""
    vectors = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    vocabulary = Vocabulary([f"w{i}" for i in range(200)], vectors)
    built = Index.build(vocabulary, k=builtin.LIST_LENGTH, hnsw=False)
    reads = []
    manifest = {
        "fingerprint": vocabulary.fingerprint(),
        "records": [{"binding": {"kind": "test"}, "content": {"value": 1}}],
        "index": {
            "diameter_bound": built.diameter_bound,
            "typical": built.typical,
            "step": built.band_step,
            "bands": built.bands_digest,
        },
    }
    monkeypatch.setattr(
        builtin, "read_builtin", lambda language: reads.append(language) or vocabulary
    )
    monkeypatch.setattr(builtin, "read_manifest", lambda language: manifest)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    builtin._open.cache_clear()
    yield reads
    builtin._open.cache_clear()


def kept() -> Index:
    """The index after it was built and kept, as the next process opens it."""
    assert Index.builtin("en").neighbours.ids.shape == (200, builtin.LIST_LENGTH)
    builtin._open.cache_clear()
    return Index.builtin("en")


def test_it_is_built_where_all_lists_are_needed_and_then_opened_from_the_cache(small, tmp_path):
    first = Index.builtin("en")
    assert not (tmp_path / "cache").exists()
    second = kept()
    assert small == ["en"]
    assert second.path is not None
    assert second.path.parent == (tmp_path / "cache").resolve()
    assert first.fingerprint == second.fingerprint
    assert second.find_record({"kind": "test"}) == {"value": 1}


def test_before_it_is_built_it_has_the_same_lists_and_figures(small):
    index = Index.builtin("en")
    words = np.array([7, 199, 7, 0])
    lists = index.lists_of(words)
    assert "neighbours" not in vars(index)
    whole = kept()
    for found, expected in zip(lists, whole.lists_of(words), strict=True):
        assert found.dtype == expected.dtype
        assert (found == expected).all()
    for name in ("k", "band_step", "bands_digest", "diameter_bound", "typical", "rounding"):
        assert getattr(index, name) == getattr(whole, name), name
    for name in ("band_starts", "representatives"):
        assert (getattr(index, name) == getattr(whole, name)).all(), name


def test_a_text_is_drawn_alike_before_it_is_built_and_after(small):
    text = " ".join(f"w{i % 200}" for i in range(0, 900, 7))
    drawn = []
    for opened in (Index.builtin, kept):
        index = opened()
        private = Privatizer(TEM(index, epsilon=2.0), run_key=b"r" * 32)
        drawn.append([private.privatize(text, key="a"), private.statement.to_dict()])
        if len(drawn) == 1:
            assert "neighbours" not in vars(index)
    assert drawn[0] == drawn[1]


def test_what_is_recorded_before_it_is_built_is_found_by_the_next_process(small):
    Index.builtin("en").keep_record({"kind": "more"}, {"value": 2})
    builtin._open.cache_clear()
    assert Index.builtin("en").find_record({"kind": "more"}) == {"value": 2}
    assert kept().find_record({"kind": "more"}) == {"value": 2}


def test_lists_of_no_words_are_empty_before_it_is_built_and_after(small):
    none = np.empty(0, dtype=np.int64)
    before = [each.shape for each in Index.builtin("en").lists_of(none)]
    assert before == [each.shape for each in kept().lists_of(none)]


def test_threads_that_need_all_of_it_have_it_built_once(small, monkeypatch):
    built, build = [], Index.build
    monkeypatch.setattr(
        Index, "build", lambda *given, **options: built.append(1) or build(*given, **options)
    )
    index = Index.builtin("en")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index.quantized, range(4)))
    assert len(built) == 1
    assert all(each is found[0] for each in found)


def test_it_travels_by_its_name(small):
    index = Index.builtin("en")
    assert len(pickle.dumps(index)) < 1000
    assert pickle.loads(pickle.dumps(index)) is index


def test_one_process_opens_it_once(small):
    assert Index.builtin("en") is Index.builtin("en")


@pytest.mark.parametrize("name", ["neighbours.npy", "index.json"])
def test_a_damaged_index_is_built_again(small, name):
    path = kept().path
    builtin._open.cache_clear()
    (path / name).write_bytes((path / name).read_bytes()[:-1] + b"?")
    again = kept()
    assert small == ["en", "en"]
    assert json.loads((again.path / "index.json").read_text())["words"] == 200
    Index.load(again.path)


def test_an_index_of_other_words_under_its_name_is_not_used(small):
    index = kept()
    builtin._open.cache_clear()
    other = Vocabulary([f"x{i}" for i in range(200)], np.array(index.vocabulary.vectors))
    Index.build(other, k=8, hnsw=False).save(index.path, overwrite=True)
    assert Index.builtin("en").vocabulary.words[0] == "w0"


def test_where_nothing_can_be_written_it_is_built_in_memory(small, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder would be")
    index = kept()
    assert index.path is None
    assert index.neighbours.ids.shape == (200, builtin.LIST_LENGTH)
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
    recorded = read_manifest("en")["index"]
    whole = Index.build(index.vocabulary, k=index.k, hnsw=False)
    assert recorded["bands"] == whole.bands.digest()
    assert recorded["step"] == whole.bands.step
    assert recorded["diameter_bound"] == whole.diameter_bound
    assert {int(rank): tuple(ends) for rank, ends in recorded["typical"].items()} == whole.typical
