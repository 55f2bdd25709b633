"""A mutant whose text is gone from the code would test nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "tests/mutants").glob("*.toml")), ids=lambda f: f.stem
)
def test_every_mutant_finds_the_text_that_it_changes(file):
    for mutant in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]:
        assert (ROOT / mutant["file"]).read_text(encoding="utf-8").count(mutant["old"]) == 1, mutant
