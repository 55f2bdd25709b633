"""The recipe on typed spans counts whole units, and only those that stood in the original."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "recipes" / "spans.py"


def recipe():
    spec = importlib.util.spec_from_file_location("recipe_spans", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_units_are_whole_and_stand_in_their_text(tmp_path):
    spans = recipe()
    for name, record in {
        "pupa/prompts": {"user_query": "Ask Ann Kay.", "pii_units": ["ann kay", "an", "bob"]},
        "bios/synthetic": {"text": "Ann Kay, born 12/03/1980, is 7. She likes Rome."},
    }.items():
        path = tmp_path / f"{name}.jsonl.gz"
        path.parent.mkdir()
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    assert spans.units_of(tmp_path, "pupa/prompts") == [("Ask Ann Kay.", [(4, 11, "marked")])]
    ((text, found),) = spans.units_of(tmp_path, "bios/synthetic")
    assert [(text[start:end], kind) for start, end, kind in found] == [
        ("Ann Kay", "name"),
        ("12/03/1980", "date"),
    ]
