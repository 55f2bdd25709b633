"""The retrieval recipe, once and small, without any data folder: its tables, its files and its words."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "retrieval.py"


@pytest.fixture(scope="module")
def app():
    """The command of the recipe; its processes find the module by its name."""
    sys.path.insert(0, str(RECIPE.parent))
    try:
        yield import_module("retrieval").app
    finally:
        sys.path.remove(str(RECIPE.parent))
        del sys.modules["retrieval"]


@pytest.fixture(scope="module")
def made(app, tmp_path_factory):
    """Standard output, standard error and the folder of one small run."""
    folder = tmp_path_factory.mktemp("retrieval")
    # As many texts as by default: all that ship.
    options = ("--out", str(folder / "small"), "--seeds", "1", "--queries", "40")
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout, done.stderr, folder


def _lines(report):
    """The method and the guarantees of every line of a table."""
    rows = [line.split("|")[1:-1] for line in report.splitlines() if line.startswith("|")]
    return {tuple(cell.strip() for cell in row[:3]) for row in rows}


@pytest.mark.parametrize(
    "line",
    [
        ("raw features", "none", "none"),
        ("PCA", "none", "none"),
        ("t-SNE", "none", "none"),
        ("SMLQ without noise", "none", "none"),
        ("LDA", "none", "none"),
        ("PrivateMail, published", "none", "none"),
        ("published, features discarded", "none", "none"),
        ("PrivateMail, repaired", "(epsilon, 1e-5)", "(epsilon, 1e-5)"),
        ("SubsetQuery", "(epsilon, 0)", "none"),
        ("8 random cells, no query sent", "(0, 0)", "none"),
        ("random projection + noise", "(epsilon, 1e-5)", "none"),
        ("private PCA", "none", "(epsilon, 0)"),
        ("PrivateLDA embedding", "none", "(epsilon, 1e-5)"),
    ],
)
def test_the_table_of_digits_shows_every_method_with_its_true_guarantee(made, line):
    assert line in _lines(made[0])


@pytest.mark.parametrize(
    ("method", "promise"),
    [
        ("8 nearest cells, unprotected", "none"),
        ("8 random cells, no query sent", "(0, 0)"),
        ("SubsetQuery", "(4, 0) for the review"),
        ("TEM on every word", "4 d(w, w') for each word"),
    ],
)
def test_the_table_of_text_shows_every_method_with_its_true_guarantee(made, method, promise):
    assert (method, promise) in {line[:2] for line in _lines(made[0])}


def test_the_query_crosses_a_server_process_and_a_budget_ends_it(made):
    assert "through a server process over HTTP" in made[0]
    assert "may ask 2 queries at epsilon 4; the next one is refused" in made[0]


def test_the_output_says_that_seeded_draws_protect_nobody(made):
    assert "Drawn with fixed seeds, for experiments: this run protects nobody." in made[0]


def test_progress_goes_to_standard_error_alone(made):
    assert "digits" in made[1]
    assert "━" in made[1]
    assert "━" not in made[0]


def test_the_saved_table_is_the_printed_one(made):
    assert (made[2] / "small.md").read_text(encoding="utf-8").strip() == made[0].strip()


def test_every_measurement_is_saved(made):
    with open(made[2] / "small.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = {row["method"] for row in rows if row["part"] == "digits"}
    assert len(methods) == 13
    assert all(0 <= float(row["recall1"]) <= 1 for row in rows)
    by_seed = [row for row in rows if row["method"] == "subset" and row["part"] == "digits"]
    assert len(by_seed) == 5


def test_the_figure_has_titles_units_and_every_drawn_method(made):
    assert (made[2] / "small.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = " ".join(ElementTree.parse(made[2] / "small.svg").getroot().itertext())
    for words in (
        "share of queries",
        "epsilon of one query or fit (nats)",
        "epsilon of each word (nats per unit of distance)",
        "dotted: nobody",
        "SubsetQuery",
        "PrivateMail, published",
    ):
        assert words in text


def test_a_folder_without_data_is_refused_before_any_work(app, tmp_path):
    done = CliRunner().invoke(app, ["--data-dir", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert f"{tmp_path} has no" in " ".join(done.stderr.split())


def test_a_missing_folder_is_refused_before_any_work_without_a_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, str(RECIPE), "--out", "nowhere/r"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        timeout=120,
    )
    assert done.returncode == 2
    assert "no folder nowhere" in done.stderr
    assert "Traceback" not in done.stderr
