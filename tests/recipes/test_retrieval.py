"""The retrieval recipe: what it prints and writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "retrieval.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Standard output and the folder of one small run."""
    pytest.importorskip("hnswlib")
    folder = tmp_path_factory.mktemp("retrieval")
    options = ["--out", str(folder / "small"), "--seeds", "1", "--queries", "20"]
    call = [sys.executable, str(RECIPE), *options]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return done.stdout, folder


@pytest.mark.parametrize(
    "line",
    [
        "| raw features | none | none |",
        "| 8 random cells, no query sent | (0, 0) | none |",
        "| SubsetQuery | (epsilon, 0) | none |",
        "| random projection + noise | (epsilon, 1e-5) | none |",
        "| PrivateMetricLearner | none | (epsilon, 1e-5) |",
    ],
)
def test_every_line_says_what_is_guaranteed_and_to_whom(made, line):
    assert line in made[0]


def test_budget_and_files_follow_the_table(made):
    shown, folder = made
    assert "A budget of 12 allows 3 queries at epsilon 4." in shown
    assert (folder / "small.md").read_text() in shown
    assert (folder / "small.csv").read_text().count("SubsetQuery") == 5
