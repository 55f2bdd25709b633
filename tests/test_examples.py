"""Every example runs as it stands, is short enough to copy from, and shows what its first lines promise."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# What each example must print without arguments.
RUNS = {
    "choose_epsilon.py": "odds of 20 to 1",
    "latency.py": "processor time of 2000 calls: p50",
    "new_mechanism.py": "withstood",
    "private_auc.py": "epsilon inf: AUC 0.9",
    "private_metric.py": "epsilon inf: 0.9",
    "private_retrieval.py": "cells asked for",
    "privatize_dataset.py": "(5 stars)",
    "spacy_pipeline.py": "2 sentences, 13 tokens",
    "synthesize_reviews.py": "Two data sets differ by one record",
    "train_through_channel.py": "epsilon 8: accuracy",
    "typed_spans.py": "[PHONE]",
}
# Run by the tests of the engines, in their sessions.
ELSEWHERE = ["ray_job.py", "spark_job.py"]
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_every_example_is_run():
    assert sorted([*RUNS, *ELSEWHERE]) == NAMES


@pytest.mark.parametrize("name", sorted(RUNS))
def test_example_runs_without_arguments(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert RUNS[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_example_is_under_sixty_lines_and_says_how_to_run_it(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.count("\n") < 60
    assert f"python examples/{name}" in text
