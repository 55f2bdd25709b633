"""Names that tell: no two classes of both packages bear one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_no_two_classes_bear_one_name():
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in ("textpriv", "pairwise"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    # A private class beside a public one of its name is as hard to tell.
                    places[node.name.lstrip("_")].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert [where for where in places.values() if len(where) > 1] == []
