"""Private texts are joined from released tokens alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError
from textpriv.tokenization.batches import KEPT, MASKED, RawBatch
from textpriv.tokenization.detokenizer import Detokenizer

WORDS = ["film", "n't", "(", ")", ".", "é", "\u201c", "the", "\n", "l'", "映画", "do", "-"]
OTHERS = ["[MASK]", ",", "(", "42", "\n\n", '"', "-"]
CLOSING = {")", ".", ",", "\n", "\n\n", "映画", "-"}
OPENING = {"(", "\u201c", "\n", "\n\n", "l'", "映画", "-"}
TOKENS = st.lists(st.sampled_from([*range(len(WORDS)), *OTHERS]), max_size=9)


def batch_of(documents: list[list[int | str]]) -> tuple[RawBatch, np.ndarray]:
    tokens = [token for document in documents for token in document]
    codes = [
        0 if isinstance(token, int) else MASKED if token == "[MASK]" else KEPT for token in tokens
    ]
    offsets = np.cumsum([0, *map(len, documents)])
    strings = [token for token in tokens if isinstance(token, str)]
    drawn = np.array([token for token in tokens if isinstance(token, int)], dtype=np.int32)
    return RawBatch(np.array(codes, dtype=np.int32), offsets, strings), drawn


def plainly(document: list[int | str]) -> str:
    words = [WORDS[token] if isinstance(token, int) else token for token in document]
    text = "".join(words[:1])
    for at, (left, right) in enumerate(pairwise(words), 1):
        joined = left in OPENING or right in CLOSING or (left, right) == ("do", "n't")
        joined |= left == '"' and words[:at].count('"') % 2 == 1
        joined |= right == '"' and words[:at].count('"') % 2 == 1
        text += right if joined else f" {right}"
    return text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (['"', "good", "film", '"', "."], '"good film".'),
        (["well", "-", "known"], "well-known"),
        (["film", "n't"], "film n't"),
        (["do", "n't"], "don't"),
    ],
)
def test_quotes_hyphens_and_contractions_are_joined(words, text):
    batch, drawn = batch_of([list(words)])
    assert Detokenizer(WORDS).texts(batch, drawn) == [text]


@given(st.lists(TOKENS, max_size=6))
def test_blanks_follow_from_neighbouring_released_tokens(documents):
    batch, drawn = batch_of(documents)
    texts = [plainly(document) for document in documents]
    detokenizer = Detokenizer(WORDS)
    assert detokenizer.texts(batch, drawn) == texts
    tokens = detokenizer.tokens(batch, drawn)
    assert [each.text for each in tokens] == texts
    for document, each in zip(documents, tokens, strict=True):
        ids = [token if isinstance(token, int) else -1 for token in document]
        assert each.outputs.tolist() == ids
        assert each.counts["sampled"] == sum(token >= 0 for token in ids)
        assert sum(each.counts.values()) == len(each) == len(document)


@pytest.mark.parametrize("drawn", [[0], [0, 1, 2], [0, 1 << 20], [-1, 0]])
def test_draws_that_are_not_one_word_a_token_are_refused(drawn):
    batch, _ = batch_of([[0, 1]])
    for join in (Detokenizer(WORDS).texts, Detokenizer(WORDS).tokens):
        with pytest.raises(MechanismError, match="one word id for every token"):
            join(batch, np.array(drawn, dtype=np.int32))
