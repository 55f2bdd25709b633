"""The statements that users read, word by word.

After a wanted change, write ``tests/golden/statements.json`` again with

    TEXTPRIV_WRITE_GOLDEN=1 python -m pytest tests/textpriv/test_statement_golden.py

and read the difference before you keep it: it is what users are promised.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from textpriv import TEM, Madlib, TreeTEM
from textpriv.index import Index, Tree
from textpriv.privatizer import Privatizer
from textpriv.tokenization.policy import ACTIONS, CLASSES, TokenPolicy
from textpriv.vocabulary import Vocabulary

GOLDEN = Path(__file__).parents[1] / "golden" / "statements.json"


@pytest.fixture(scope="module")
def index() -> Index:
    points = [(x * x, 3 * y + x, (x * y) % 5) for x in range(1, 9) for y in range(1, 6)]
    words = [f"w{number}" for number in range(len(points))]
    return Index.build(Vocabulary(words, np.array(points, dtype=float)), "euclidean", k=12)


@pytest.fixture(scope="module")
def stated(index) -> dict[str, dict]:
    """The statement of each mechanism, and the lines that each policy adds to that of TEM."""
    tree = Tree.from_paths(["a", "b", "c", "d"], [["x"], ["x"], ["y"], ["z"]])
    tem = TEM(index, 2.0)
    mechanisms = {
        "TEM": tem,
        "TEM, zipf": TEM(index, 2.0, prior="zipf"),
        "TEM, gamma": TEM(index, 2.0, gamma=3.0),
        "Madlib, hnsw": Madlib(index, 20.0),
        "Madlib, exact": Madlib(index, 20.0, search="exact"),
        "TreeTEM": TreeTEM(tree, 2.0),
    }
    found = {name: each.statement.to_dict() for name, each in mechanisms.items()}
    own = found["TEM"]
    choices = [{name: action} for name in CLASSES for action in ACTIONS] + [{"case": "keep"}]
    for chosen in choices:
        content = Privatizer(tem, TokenPolicy(**chosen)).statement.to_dict()
        assert content | {key: own[key] for key in ("not_protected", "notes")} == own
        found[str(chosen)] = {
            key: [line for line in content[key] if line not in own[key]]
            for key in ("not_protected", "notes")
        }
    return json.loads(json.dumps(found))


def test_statements_are_the_expected_ones(stated):
    if os.environ.get("TEXTPRIV_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(stated, indent=1, ensure_ascii=False) + "\n", "utf-8")
    golden = json.loads(GOLDEN.read_text("utf-8"))
    assert set(golden) == set(stated)
    for name, expected in golden.items():
        # The last digits of a sum depend on the processor.
        figures = expected.pop("figures", {})
        assert stated[name].pop("figures", {}) == pytest.approx(figures, rel=1e-4)
        assert stated[name] == expected


def test_mechanisms_and_policies_are_stated_differently(stated, index):
    assert len({json.dumps(each) for each in list(stated.values())[:6]}) == 6
    mechanism, seen = TEM(index, 2.0), set()
    for chosen in itertools.product(*[ACTIONS] * len(CLASSES), ("lower", "keep")):
        policy = TokenPolicy(*chosen)
        seen.add((policy.not_protected(), policy.notes()))
    assert len(seen) == 2 * len(ACTIONS) ** len(CLASSES)
    assert policy.not_protected() == Privatizer(mechanism, policy).statement.not_protected[-6:]


def test_losses_add_up_and_are_capped_by_truncation(index):
    statement = TEM(index, 2.0, gamma=3.0).statement
    worst = statement.loss_at(math.inf)
    assert worst == statement.loss_at(math.inf) == pytest.approx(6.0)
    assert statement.loss_at(1.5) == pytest.approx(3.0)
    assert statement.loss_at(0.0) == statement.documents_within(0).total == 0.0
    assert statement.documents_within(10).total == pytest.approx(10 * worst)
    for each in (TEM(index, 2.0).statement, Madlib(index, 20.0).statement):
        loss = each.loss_at(each.figures["reference_distance"])
        assert loss == pytest.approx(each.figures["reference_loss"])
