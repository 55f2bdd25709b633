"""The end-to-end recipe runs on what ships with the packages, without a network, and states both guarantees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("torch")
pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def recipe():
    import importlib.util

    spec = importlib.util.spec_from_file_location("end_to_end", ROOT / "recipes" / "end_to_end.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_documents_are_split_by_article(recipe):
    texts, groups, training = recipe.shipped()
    assert len(texts) == len(groups) == len(training) > 3000
    assert set(groups.tolist()) == set(range(recipe.GROUPS))
    assert 0.5 < training.mean() < 0.9
    assert all(len(text.split()) == recipe.PIECE for text in texts[:50])


def test_every_combination_is_measured_and_stated(recipe, index_of, capsys, tmp_path):
    import textpriv

    rng = np.random.default_rng(0)
    words = [f"{kind}{i}" for kind in ("good", "bad") for i in range(20)]
    vectors = np.concatenate([rng.normal(size=(20, 8)) + 1, rng.normal(size=(20, 8)) - 1])
    index = textpriv.Index.build(textpriv.Vocabulary(words, vectors), hnsw=False)
    labels = rng.integers(0, 2, 300)
    texts = [
        " ".join(words[20 * (1 - label) + i] for i in rng.integers(0, 20, 12)) for label in labels
    ]
    training = np.arange(300) < 200
    recipe.run(index, texts, labels, training, 4.0, 4.0, 1, tmp_path / "table")
    shown = capsys.readouterr().out
    assert shown.count("| clear |") == 2
    assert shown.count("| private (epsilon 4) |") == 2
    assert shown.count("through the channel (epsilon 4) |") == 2
    assert "odds of at most" in shown
    assert "epsilon 4, delta" in shown
    rows = (tmp_path / "table.csv").read_text().splitlines()
    assert len(rows) == 7
    # Without any protection the classes are far apart.
    assert float(rows[1].split(",")[3]) > 0.95
    assert not any(text in shown for text in texts)


def test_missing_reviews_are_a_message_and_no_traceback(tmp_path):
    answer = subprocess.run(
        [
            sys.executable,
            str(ROOT / "recipes" / "end_to_end.py"),
            "--data-dir",
            str(tmp_path),
            "--vectors",
            str(tmp_path / "none.txt"),
        ],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert "Traceback" not in answer.stderr
