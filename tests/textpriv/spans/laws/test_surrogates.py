"""Surrogates: a keyed function within a scope, independent of the original elsewhere."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from textpriv.errors import TextprivError
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.laws.base import Scopes
from textpriv.spans.laws.surrogates import SOURCES, Surrogate

NAMES = ["Ann", "Bob Hall", "ANN", "bob  hall"]


def drawn(law, texts, document="letter", person="ann", seed=1):
    scopes = Scopes(KeyedStreams(seed=seed), document, person)
    stream = KeyedStreams(seed=seed).stream(document)
    return law.draw([law.parse(each) for each in texts], stream, scopes)


@pytest.mark.parametrize("scope", ["document", "person"])
def test_equal_names_get_equal_surrogates_within_the_scope_and_only_there(scope):
    law = Surrogate([f"n{i}" for i in range(10_000)], consistent=scope)
    here = drawn(law, NAMES)
    assert here[0] == here[2] != here[1] == here[3]
    assert drawn(law, NAMES[::-1])[::-1] == here
    assert (drawn(law, NAMES, document="other") == here) == (scope == "person")
    assert (drawn(law, NAMES, person="zoe") == here) == (scope == "document")
    assert drawn(law, NAMES, seed=2) != here


def test_two_kinds_have_independent_surrogates_within_a_person():
    law = Surrogate([f"n{i}" for i in range(10_000)], consistent="person", kind="PERSON")
    names = [f"name {i}" for i in range(50)]
    persons, places = drawn(law, names), drawn(law.of_kind("PLACE"), names)
    # By chance a pair is equal once in 10,000: three of fifty with probability below 1e-7.
    assert sum(map(str.__eq__, persons, places)) < 3


def test_the_joint_law_is_that_of_a_random_function():
    """Over 4,000 keys: two distinct names are as two uniform draws, whichever names they are."""
    law = Surrogate(["a", "b", "c"], consistent="document")
    pairs = [tuple(drawn(law, ["Ann", "Bob"], document=i)) for i in range(4_000)]
    counts = Counter(pairs)
    expected = 4_000 / 9
    statistic = sum(
        (counts[pair] - expected) ** 2 / expected for pair in itertools.product("abc", repeat=2)
    )
    assert statistic < 60  # chi-squared with 8 degrees of freedom: 1e-9 at 59.7


def test_a_loss_is_nothing_between_equal_patterns_of_equality_and_unbounded_between_others():
    kept, anew = Surrogate(["a", "b"], consistent="person"), Surrogate(["a", "b"])
    one, same, other = (
        [kept.parse(each) for each in names]
        for names in (["Ann", "Bob", "ann"], ["Zoe", "Kim", "Zoe"], ["Zoe", "Kim", "Kim"])
    )
    assert kept.joint_loss(one, same) == 0
    assert kept.joint_loss(one, other) == math.inf
    assert anew.joint_loss(one, other) == 0
    assert any("equal" in each for each in kept.claim().not_protected)
    assert not anew.claim().not_protected


def test_case_is_structure_where_it_is_kept():
    law = Surrogate(["Kim"], consistent="document", case="own")
    assert drawn(law, ["Ann", "ANN", "ann"]) == ["Kim", "KIM", "kim"]
    assert law.loss(law.parse("Ann"), law.parse("BOB")) == math.inf
    assert drawn(Surrogate(["Kim"]), ["ANN"]) == ["Kim"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_draws_from_the_stream_alone(source):
    pytest.importorskip("faker")
    law = Surrogate(source)
    key = bytes([3]) * 32
    first, again = (law.draw([law.parse(n)] * 3, Stream(key)) for n in ("Ann", "Bob"))
    assert first == again
    assert all(each.strip() and "\n" not in each for each in first)
    assert law.draw([law.parse("Ann")] * 3, Stream(bytes(32))) != first


@pytest.mark.parametrize(
    "wrong",
    [{"entries": []}, {"entries": ["a", ""]}, {"entries": "dogs"}, {"consistent": "town"},
     {"case": "upper"}, {"locale": "xx_XX"}],
)  # fmt: skip
def test_settings_without_meaning_are_refused(wrong):
    pytest.importorskip("faker")
    with pytest.raises(TextprivError):
        Surrogate(**wrong)
