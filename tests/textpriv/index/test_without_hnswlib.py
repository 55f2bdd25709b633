"""Without hnswlib all but approximate search works, and that says which extra to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from textpriv import TEM, Index, Madlib, Privatizer, Vocabulary
from textpriv.errors import TextprivError


@pytest.fixture(autouse=True)
def missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "hnswlib", None)


@pytest.fixture
def index() -> Index:
    vectors = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    return Index.build(Vocabulary([f"w{i}" for i in range(60)], vectors), "euclidean")


def test_an_index_is_built_kept_and_drawn_from(index, tmp_path):
    index.save(tmp_path / "small.idx")
    loaded = Index.load(tmp_path / "small.idx")
    assert len(Privatizer(TEM(loaded, epsilon=2.0)).privatize("w1 w2 w3").split()) == 3


def test_madlib_searches_exactly_and_its_default_names_both_ways(index):
    assert Madlib(index, epsilon=100.0, search="exact").sample(
        np.arange(5, dtype=np.int32), np.random.default_rng(0)
    ).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(TextprivError, match=r"pip install .*hnsw.*search=\"exact\""):
        Madlib(index, epsilon=10.0)
