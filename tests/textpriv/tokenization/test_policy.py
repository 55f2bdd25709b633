"""A policy names everything that it does not protect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from textpriv.errors import PolicyError
from textpriv.tokenization.policy import ACTIONS, CLASSES, SPLIT, TokenPolicy

SAMPLED = TokenPolicy(punctuation="sample", space="sample")


def test_by_default_words_are_drawn_and_marks_kept():
    policy = TokenPolicy()
    assert [policy.unknown, policy.number, policy.stopword] == ["sample"] * 3
    assert (policy.punctuation, policy.space, policy.case) == ("keep", "keep", "lower")


def test_unknown_actions_and_cases_are_refused():
    for name in CLASSES:
        with pytest.raises(PolicyError, match=f"for {name} tokens; use one of: sample, mask"):
            TokenPolicy(**{name: "redact"})
    with pytest.raises(PolicyError, match="'lower' or 'keep'"):
        TokenPolicy(case="upper")


def test_number_and_order_of_documents_and_tokens_are_always_named():
    named = "the number and order of documents, and of the tokens of each"
    assert SAMPLED.not_protected() == (named,)


def test_every_class_and_action_that_is_not_drawn_has_its_own_item():
    items = []
    for name in CLASSES:
        for action in ACTIONS[1:]:
            named = replace(SAMPLED, **{name: action}).not_protected()
            items += set(named) - set(SAMPLED.not_protected())
    assert len(set(items)) == len(items) == len(CLASSES) * 3


def test_notes_say_how_case_unknown_and_split_words_are_read():
    lower, split, unknown = TokenPolicy().notes()
    assert "lower-cased" in lower
    assert "outside the vocabulary" in unknown
    assert TokenPolicy(case="keep", unknown="mask").notes() == (SPLIT,) == (split,)
