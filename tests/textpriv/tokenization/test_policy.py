"""What a policy releases, and that it names whatever it does not protect."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from textpriv.errors import PolicyError
from textpriv.tokenization.policy import ACTIONS, CLASSES, TokenPolicy

DEFAULTS = {
    "unknown": "sample",
    "number": "sample",
    "punctuation": "keep",
    "space": "keep",
    "stopword": "sample",
    "case": "lower",
}
SAMPLED = TokenPolicy(punctuation="sample", space="sample")


def test_defaults_draw_every_word_and_keep_punctuation_and_line_breaks():
    assert TokenPolicy().to_dict() == DEFAULTS


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("action", ["Sample", "", None, "redact", ["keep"]])
def test_unknown_action_is_refused_with_the_class(name, action):
    with pytest.raises(
        PolicyError, match=f"for {name} tokens; use one of: sample, mask, drop, keep"
    ):
        TokenPolicy(**{name: action})


@pytest.mark.parametrize("case", ["upper", "", None])
def test_unknown_case_is_refused(case):
    with pytest.raises(PolicyError, match="'lower' or 'keep'"):
        TokenPolicy(case=case)


def test_unknown_class_is_refused_with_the_known_ones():
    with pytest.raises(PolicyError, match=r"'adverb'.*known: unknown, number"):
        TokenPolicy.from_dict({"adverb": "mask"})


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_policy_survives_the_way_through_a_mapping(name, action):
    policy = TokenPolicy(**{name: action})
    assert TokenPolicy.from_dict(policy.to_dict()) == policy


def test_a_mapping_may_leave_classes_to_their_defaults():
    assert TokenPolicy.from_dict({"number": "mask"}) == TokenPolicy(number="mask")


def test_a_policy_cannot_be_changed_after_a_statement_was_made_of_it():
    with pytest.raises(FrozenInstanceError):
        TokenPolicy().unknown = "keep"


def test_what_is_always_visible_is_named_even_if_everything_is_drawn():
    assert SAMPLED.not_protected() == (
        "the number and order of documents, and of the tokens of each",
    )


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_not_protected_changes_with_every_action(name):
    exposed = {replace(SAMPLED, **{name: action}).not_protected() for action in ACTIONS}
    assert len(exposed) == len(ACTIONS)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("action", [a for a in ACTIONS if a != "sample"])
def test_a_class_that_is_not_drawn_adds_its_own_item(name, action):
    policy = replace(SAMPLED, **{name: action})
    others = {
        item
        for other in CLASSES
        if other != name
        for item in replace(SAMPLED, **{other: action}).not_protected()
    }
    added = set(policy.not_protected()) - set(SAMPLED.not_protected())
    assert len(added) == 1
    assert not added & others


@pytest.mark.parametrize("action", [a for a in ACTIONS if a != "sample"])
def test_every_class_that_is_not_drawn_is_named(action):
    policy = TokenPolicy(**dict.fromkeys(CLASSES, action))
    assert len(policy.not_protected()) == 1 + len(CLASSES)


def test_lower_casing_is_noted():
    assert any("lower-cased" in note for note in TokenPolicy().notes())
    assert not any("lower-cased" in note for note in TokenPolicy(case="keep").notes())


def test_the_shared_law_of_unknown_words_is_noted_where_they_are_drawn():
    assert any("outside the vocabulary" in note for note in TokenPolicy().notes())
    assert not any("vocabulary" in note for note in TokenPolicy(unknown="mask").notes())
