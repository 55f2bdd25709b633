"""The IMDB recipe measures what it says: halves, cells that resume, tables and figures."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import textpriv

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def recipe():
    import sys

    spec = importlib.util.spec_from_file_location("imdb_recipe", ROOT / "recipes" / "imdb.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["imdb_recipe"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def setting(recipe, tmp_path_factory):
    """Two hundred reviews a split over eighty words in two clusters, a cluster for each class."""
    folder = tmp_path_factory.mktemp("imdb")
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(size=(40, 6)) + 1, rng.normal(size=(40, 6)) - 1])
    vocabulary = textpriv.Vocabulary([f"w{i}" for i in range(80)], vectors)
    textpriv.Index.build(vocabulary).save(folder / "a.idx")
    held = {}
    for split in ("train", "test"):
        labels = np.repeat([0, 1], 100)
        own = rng.random((200, 15)) < 0.8
        ids = rng.integers(0, 40, (200, 15)) + 40 * (labels[:, None] ^ ~own)
        held[f"{split}_ids"] = ids.astype(np.int32).ravel()
        held[f"{split}_offsets"] = np.arange(201) * 15
        held[f"{split}_labels"] = labels
    np.savez(folder / "reviews.npz", **held)
    return recipe.Setting(str(folder / "a.idx"), str(folder / "reviews.npz"), str(folder))


def test_halves_share_nothing_and_keep_the_classes(recipe, setting):
    _, reviews, _, _ = recipe.shared(setting)
    marked = recipe.Reviews(
        np.repeat(np.arange(200, dtype=np.int32), 15),
        reviews["train"].offsets,
        reviews["train"].labels,
    )
    first, second = marked.halves(3)
    assert set(first.ids) | set(second.ids) == set(range(200))
    assert not set(first.ids) & set(second.ids)
    assert first.labels.mean() == second.labels.mean() == 0.5
    again = marked.halves(3)[0]
    np.testing.assert_array_equal(first.ids, again.ids)
    assert set(marked.halves(4)[0].ids) != set(first.ids)


def test_a_cell_measures_accuracy_and_attacks(recipe, setting):
    found = recipe.measure(recipe.Cell(recipe.BEST, 6.0, 0), setting)
    assert {"accuracy", "channel", "word_counts", "shadow", "channel_shadow", "lira"} <= set(found)
    assert found["word_counts"] > 0.8
    assert 0.5 <= found["shadow"]["auc"]["ceiling"] <= 1
    clear = recipe.measure(recipe.Cell(recipe.CLEAR, 0.0, 0), setting)
    assert clear["documents"] == 100
    json.dumps(found)


def test_scales_are_chosen_without_the_halves_that_are_measured(recipe, setting, monkeypatch):
    from dataclasses import replace

    whole = recipe.parts

    def parts(*given):
        return replace(whole(*given), tr1=None, te1=None, test=None, members=None, tested=None)

    monkeypatch.setattr(recipe, "parts", parts)
    lines = recipe.validation(setting, [6.0], 1).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "unprivatized, standardized vectors, counts",
        "unprivatized, whitened vectors, counts",
        "unprivatized, standardized vectors",
        "unprivatized",
        "TEM, best law, epsilon 6",
        "TEM, best law, through the channel, epsilon 6",
        "TEM as published, epsilon 6",
        "TEM as published, through the channel, epsilon 6",
        "Madlib, exact search, epsilon 6",
    ]
    assert all(0 <= float(value) <= 1 for value in lines[5].strip("| ").split(" | ")[1:])


def test_madlib_is_measured_by_both_searches(recipe, setting):
    for name in (recipe.MADLIB, recipe.MADLIB_HNSW):
        found = recipe.measure(recipe.Cell(name, 20.0, 1, reviews=60), setting)
        assert found["documents"] == 60
        assert found["word_counts"] > 0.7


def test_a_run_that_stops_goes_on_where_it_was(recipe, setting, tmp_path, monkeypatch):
    cells = [recipe.Cell(recipe.CLEAR, 0.0, trial) for trial in (0, 1)]
    cells[0].file(tmp_path).write_text(json.dumps({"mechanism": recipe.CLEAR, "accuracy": 0.123}))
    # No time at all: nothing is started, and what is there is read.
    rows = recipe.run(cells, setting, tmp_path, 1, print, 0.0)
    assert [row["accuracy"] for row in rows] == [0.123]


def test_the_plan_does_whole_trials_first(recipe):
    cells = recipe.plan([2.0, 4.0], 3, 100, 1)
    assert len(set(cells)) == len(cells)
    full = [cell for cell in cells if not cell.reviews]
    assert [cell.trial for cell in full] == sorted(cell.trial for cell in full)
    assert {cell.mechanism for cell in cells} == {
        recipe.PUBLISHED,
        recipe.BEST,
        recipe.MADLIB,
        recipe.MADLIB_HNSW,
        recipe.CLEAR,
    }


def test_intervals_are_students(recipe):
    mean, half = recipe.interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.302653 / np.sqrt(3)), rel=1e-6)
    assert np.isnan(recipe.interval([1.0])[1])


def test_table_and_figures_show_every_measured_series(recipe, tmp_path):
    attack = {
        "auc": {"value": 0.5, "low": 0.49, "high": 0.51, "ceiling": 1.0},
        "tpr": {
            rate: {"value": 0.01, "low": 0.0, "high": 0.02, "ceiling": 1.0}
            for rate in ("0.01", "0.001")
        },
    }
    rows = []
    for trial in (0, 1):
        base = {
            "trial": trial,
            "tuned": False,
            "reviews": 0,
            "documents": 10,
            "training_accuracy": 1.0,
        }
        values = {"accuracy": 0.8 + trial / 100, "word_counts": 0.7, "shadow": attack}
        rows.append({**base, **values, "mechanism": recipe.CLEAR, "epsilon": 0.0, "lira": attack})
        for epsilon in (2.0, 4.0):
            for name in (recipe.PUBLISHED, recipe.BEST, recipe.MADLIB):
                rows.append({**base, **values, "mechanism": name, "epsilon": epsilon})
    text = recipe.tables(rows, [2.0, 4.0])
    assert "| TEM, best law | 0.805 ± 0.064 | 0.805 ± 0.064 | 2 |" in text
    assert "less Madlib, same trial | 0.000 ± 0.000 | 0.000 ± 0.000 | 2 |" in text
    recipe.figures(rows, [2.0, 4.0], tmp_path)
    recipe.write_csv(rows, tmp_path / "table.csv")
    for name in ("accuracy", "membership"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text()
    assert len((tmp_path / "table.csv").read_text().splitlines()) > len(rows)
