"""The statements that users read, word by word, and that they change whenever what is protected changes.

The expected statements stand in ``tests/golden/statements.json``. After a wanted change, write them anew with

    TEXTPRIV_WRITE_GOLDEN=1 python -m pytest tests/textpriv/test_statement_golden.py

and read the difference before it is kept: it is what users will be promised.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from textpriv.errors import TextprivError
from textpriv.index import Index, Tree
from textpriv.mechanisms import TEM, Madlib, TreeTEM
from textpriv.privatizer import Privatizer
from textpriv.statement import PrivacyStatement, UnsoundWarning
from textpriv.tokenization.policy import ACTIONS, CLASSES, TokenPolicy
from textpriv.vocabulary import Vocabulary

GOLDEN = Path(__file__).parents[1] / "golden" / "statements.json"
WRITE = bool(os.environ.get("TEXTPRIV_WRITE_GOLDEN"))


def build(metric="euclidean", backend="exact") -> Index:
    """Words on an uneven grid: every distance is the same on every machine up to the last digits."""
    points = [(x * x, 3 * y + x, (x * y) % 5) for x in range(1, 9) for y in range(1, 6)]
    words = [f"w{number}" for number in range(len(points))]
    vectors = np.array(points, dtype=np.float64)
    return Index.build(Vocabulary(words, vectors), metric=metric, k=12, backend=backend)


def grown() -> Tree:
    """A tree over the same words, by single linkage, which compares distances and adds none up, with whole heights."""
    groups = {"synonyms": 12, "kind": 4}
    words = build().vocabulary
    return Tree.build(words, "single", metric="euclidean", heights="levels", groups=groups)


def single() -> Tree:
    return Tree.build(build().vocabulary, "single", metric="euclidean")


@pytest.fixture(scope="module")
def index() -> Index:
    return build()


MECHANISMS = {
    "TEM": lambda: TEM(build(), 2.0),
    "TEM, uniform": lambda: TEM(build(), 2.0, prior="uniform"),
    "TEM, uniform, beta 0.1": lambda: TEM(build(), 2.0, prior="uniform", beta=0.1),
    "TEM, given prior": lambda: TEM(build(), 2.0, prior=np.arange(1.0, 41.0)),
    "TEM, gamma": lambda: TEM(build(), 2.0, gamma=3.0),
    "TEM, epsilon 4": lambda: TEM(build(), 4.0),
    "TEM, manhattan": lambda: TEM(build("manhattan"), 2.0),
    "TEM, approximate lists": lambda: TEM(build(backend="hnsw"), 2.0),
    "Madlib, hnsw": lambda: Madlib(build(), 20.0),
    "Madlib, exact": lambda: Madlib(build(), 20.0, search="exact"),
    "Madlib, projection": lambda: Madlib(build(), 20.0, search="exact", projection=2),
    "TreeTEM": lambda: TreeTEM(single(), 2.0),
    "TreeTEM, zipf": lambda: TreeTEM(grown(), 0.5, prior="zipf"),
    "TreeTEM, levels": lambda: TreeTEM(grown(), levels={"synonyms": 3, "kind": 30, "any": 3000}),
}

POLICIES = {
    **{f"{name}={action}": {name: action} for name in CLASSES for action in ACTIONS},
    "case=keep": {"case": "keep"},
}


def rounded(value):
    """Numbers to five digits: the last ones of a sum depend on the processor."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@cache
def statement_of(name: str) -> PrivacyStatement:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsoundWarning)
        return MECHANISMS[name]().statement


def policy_lines(mechanism, settings) -> dict[str, list[str]]:
    """What a policy adds to the statement of a mechanism."""
    statement = Privatizer(mechanism, TokenPolicy(**settings)).statement
    content, own = statement.to_dict(), mechanism.statement.to_dict()
    assert {key: content[key] for key in content if key not in ("not_protected", "notes")} == {
        key: own[key] for key in own if key not in ("not_protected", "notes")
    }
    return {
        key: [line for line in content[key] if line not in own[key]]
        for key in ("not_protected", "notes")
    }


@pytest.fixture(scope="module")
def golden(index) -> dict:
    if WRITE:
        mechanism = TEM(index, 2.0)
        content = {
            "mechanisms": {name: rounded(statement_of(name).to_dict()) for name in MECHANISMS},
            "policies": {
                name: policy_lines(mechanism, settings) for name, settings in POLICIES.items()
            },
        }
        GOLDEN.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return json.loads(GOLDEN.read_text("utf-8"))


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_statement_of_a_mechanism_is_the_expected_one(golden, name):
    found, expected = rounded(statement_of(name).to_dict()), golden["mechanisms"][name]
    figures = found.pop("figures")
    assert figures == pytest.approx(expected.pop("figures"), rel=1e-4)
    assert found == expected


@pytest.mark.parametrize("name", POLICIES)
def test_the_statement_of_a_policy_is_the_expected_one(golden, index, name):
    assert policy_lines(TEM(index, 2.0), POLICIES[name]) == golden["policies"][name]


def test_the_golden_file_holds_nothing_else(golden):
    assert set(golden["mechanisms"]) == set(MECHANISMS)
    assert set(golden["policies"]) == set(POLICIES)


def test_mechanisms_that_protect_differently_are_stated_differently():
    stated = {name: statement_of(name).to_json() for name in MECHANISMS}
    assert len(set(stated.values())) == len(stated)


def test_all_policies_are_stated_differently(index):
    mechanism = TEM(index, 2.0)
    stated = set()
    settings = itertools.product(*[ACTIONS] * len(CLASSES), ("lower", "keep"))
    for number, chosen in enumerate(settings):
        policy = TokenPolicy(**dict(zip((*CLASSES, "case"), chosen, strict=True)))
        content = Privatizer(mechanism, policy).statement.to_dict()
        stated.add(json.dumps([content["not_protected"], content["notes"]]))
        assert len(stated) == number + 1, chosen


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", CLASSES)
def test_whatever_is_not_sampled_is_named_as_not_protected(index, name, action):
    everything = dict.fromkeys(CLASSES, "sample")
    base = Privatizer(TEM(index, 2.0), TokenPolicy(**everything)).statement
    chosen = Privatizer(TEM(index, 2.0), TokenPolicy(**{**everything, name: action})).statement
    more = set(chosen.not_protected) - set(base.not_protected)
    assert len(more) == (0 if action == "sample" else 1)


def test_a_seed_and_approximate_lists_take_the_proof_away(index):
    assert Privatizer(TEM(index, 2.0)).statement.proved
    assert not Privatizer(TEM(index, 2.0), seed=1).statement.proved
    assert not statement_of("TEM, approximate lists").proved


# What the guarantee of a word means for documents and people (mechanisms.md TEM-12)


def test_documents_and_authors_add_up(index):
    statement = TEM(index, 2.0).statement
    worst = statement.figures["worst_word_loss"] + statement.figures["numerical_slack"]
    assert statement.local_dp_epsilon == statement.figures["local_dp_epsilon"] == worst
    assert statement.document_loss(7) == pytest.approx(7 * worst)
    assert statement.author_loss([7, 0, 3]) == pytest.approx(10 * worst)
    assert statement.document_loss(0) == statement.author_loss([]) == 0.0


def test_the_loss_at_a_distance_is_capped_by_truncation(index):
    statement = TEM(index, 2.0, gamma=3.0).statement
    assert statement.loss_at(0.0) == 0.0
    assert statement.loss_at(1.5) == pytest.approx(3.0)
    assert statement.loss_at(100.0) == statement.loss_at(math.inf) == pytest.approx(6.0)


def test_the_loss_at_the_reference_distance_is_the_one_in_the_figures(index):
    for statement in (TEM(index, 2.0).statement, Madlib(index, 20.0).statement):
        reference = statement.figures["reference_distance"]
        assert statement.loss_at(reference) == pytest.approx(statement.figures["reference_loss"])


def test_without_an_epsilon_there_is_no_bound():
    statement = PrivacyStatement("m", "a", None, 0.0, "u", proved=False)
    assert statement.loss_at(0.1) == statement.document_loss(1) == math.inf


@pytest.mark.parametrize("tokens", [-1, 1.5, True, "3"])
def test_a_number_of_tokens_without_meaning_is_refused(index, tokens):
    with pytest.raises(TextprivError):
        TEM(index, 2.0).statement.document_loss(tokens)


@pytest.mark.parametrize("distance", [-1.0, math.nan])
def test_a_distance_without_meaning_is_refused(index, distance):
    with pytest.raises(TextprivError):
        TEM(index, 2.0).statement.loss_at(distance)
