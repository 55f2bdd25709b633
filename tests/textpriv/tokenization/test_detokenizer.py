"""Where blanks stand between private tokens, and that a few texts are put together as many are."""

from __future__ import annotations

import numpy as np

from textpriv.tokenization.batches import MASKED, counts_of
from textpriv.tokenization.detokenizer import Spelling, arrange, marks_of, spell, spell_few

WORDS = ["film", "n't", "(", ")", ".", "é", "\u201c", "the", "\n"]


def drawn(seed: int):
    """Tokens of some texts, two of them empty, a third of them not drawn."""
    rng = np.random.default_rng(seed)
    outputs = np.where(rng.random(60) < 0.3, -1, rng.integers(len(WORDS), size=60)).astype(np.int32)
    offsets = np.array([0, 0, 7, 20, 20, 59, 60])
    others = ["[MASK]", ",", "(", "42"]
    string_ids = rng.integers(len(others), size=(outputs < 0).sum()).astype(np.int32)
    return outputs, offsets, string_ids, Spelling.of(WORDS), Spelling.of(others), others


def plainly(outputs, offsets, string_ids, others) -> list[str]:
    """The texts, token by token."""
    ids, texts = iter(string_ids.tolist()), []
    closing = {"n't", ")", ".", ",", "\n"}
    opening = {"(", "\u201c", "\n"}
    for begin, end in zip(offsets, offsets[1:], strict=False):
        text, opens = "", True
        for word in outputs[begin:end].tolist():
            token = WORDS[word] if word >= 0 else others[next(ids)]
            text += token if opens or token in closing else " " + token
            opens = token in opening
        texts.append(text)
    return texts


def arranged(call, outputs, offsets, string_ids, others):
    """What a form of ``arrange`` writes of tokens whose words are these."""
    codes = np.where(outputs < 0, MASKED - np.arange(60) % 3, outputs).astype(np.int32)
    written = (
        np.empty(60, dtype=np.int32),
        np.empty(60, dtype=np.bool_),
        np.zeros((6, 8), dtype=int),
    )
    marks = marks_of(WORDS), marks_of([others[each] for each in string_ids])
    call(codes, offsets, outputs[outputs >= 0], *marks, *written)
    return codes, *written


def test_a_blank_stands_between_tokens_but_not_where_one_opens_or_closes():
    for seed in range(20):
        outputs, offsets, string_ids, *_, others = drawn(seed)
        _, _, blanks, _ = arranged(arrange, outputs, offsets, string_ids, others)
        few = spell_few(outputs, blanks, offsets, string_ids, WORDS, others)
        assert list(few) == plainly(outputs, offsets, string_ids, others)


def test_drawn_words_go_where_a_token_is_drawn_and_each_text_is_counted():
    for seed in range(20):
        outputs, offsets, string_ids, *_, others = drawn(seed)
        codes, found, _, counts = arranged(arrange, outputs, offsets, string_ids, others)
        assert found.tolist() == outputs.tolist()
        for row, begin, end in zip(counts.tolist(), offsets, offsets[1:], strict=False):
            expected = counts_of(codes[begin:end])
            assert [each for each in row if each] == [each for each in expected.values() if each]


def test_a_few_tokens_are_arranged_as_many_are():
    for seed in range(20):
        outputs, offsets, string_ids, *_, others = drawn(seed)
        many = arranged(arrange, outputs, offsets, string_ids, others)
        few = arranged(arrange.py_func, outputs, offsets, string_ids, others)
        for one, other in zip(many, few, strict=True):
            assert one.tolist() == other.tolist()


def test_a_few_texts_are_put_together_as_many_are():
    for seed in range(20):
        outputs, offsets, string_ids, words, spelled, others = drawn(seed)
        _, _, blanks, _ = arranged(arrange, outputs, offsets, string_ids, others)
        letters = words.letters, words.offsets, spelled.letters, spelled.offsets
        data, ends = spell(outputs, blanks, offsets, string_ids, *letters)
        few = spell_few(outputs, blanks, offsets, string_ids, WORDS, others)
        assert few.data.tobytes() == data.tobytes()
        assert few.offsets.tolist() == ends.tolist()
