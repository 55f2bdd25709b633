"""A saved index of the made-up words."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_corpora import WORDS
from small_indexes import saved


@pytest.fixture(scope="session")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)
