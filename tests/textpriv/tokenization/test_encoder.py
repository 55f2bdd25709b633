"""A chunk between blanks has the tokens that spaCy finds in it alone, and the classes that the policy names."""

from __future__ import annotations

import pickle
import re
import string
import threading
from itertools import pairwise

import numpy as np
import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from textpriv.errors import PolicyError, TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization import encoder as module
from textpriv.tokenization.encoder import TextEncoder, without_halves
from textpriv.tokenization.policy import ACTIONS, CLASSES, MASK, TokenPolicy

WORDS = ["good", "film", "the", "it", "'s", ".", "Paris", "a.m.", ":)", "seven", "punct", "ORTH"]
ENGLISH = spacy.blank("en")
SPECIALS = sorted(ENGLISH.tokenizer.rules)
KEEPS = TokenPolicy(unknown="keep", number="keep", stopword="keep")
BLANKS = [" ", "  ", "\n", "\n\n\n", " \n", "\n ", "\t", "\r\n", "\x1c", "\x85", "\xa0", "\u2003"]
PIECES = st.one_of(
    st.sampled_from([*WORDS, *BLANKS, *string.punctuation]),
    st.sampled_from(SPECIALS),
    st.sampled_from(["<br", "/><br", "film,", "zorblax", "42", "two", "é", "😀", "http://a.b/c"]),
    st.text(max_size=3),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
POLICIES = st.builds(
    TokenPolicy,
    **{name: st.sampled_from(ACTIONS) for name in CLASSES},
    case=st.sampled_from(["lower", "keep"]),
)


def released(policy: TokenPolicy, texts: list[str], language: str = "en") -> list[list[int | str]]:
    """For each token of each text the id that is drawn, or the string that is released."""
    batch = TextEncoder(WORDS, policy, language).encode(texts)
    strings = iter(batch.strings)
    tokens = [code if code >= UNKNOWN else next(strings) for code in batch.codes.tolist()]
    return [tokens[a:b] for a, b in pairwise(batch.offsets.tolist())]


def expected(policy: TokenPolicy, text: str) -> list[int | str]:
    """The same by the words of TokenPolicy, chunk by chunk, from a pipeline of spaCy's own."""
    found: list[int | str] = []
    for chunk in re.findall(r"\S+|\s\s+|[^\S ]", text.lower() if policy.case == "lower" else text):
        for token in [chunk] if chunk.isspace() else ENGLISH(chunk):
            word = str(token)
            if word.isspace():
                name, word = "space", "\n" * min(word.count("\n"), 2) or " "
            elif token.is_punct:
                name = "punctuation"
            elif token.like_num:
                name = "number"
            elif token.is_stop:
                name = "stopword"
            else:
                name = "sampled" if word in WORDS else "unknown"
            action = getattr(policy, name, "sample")
            if action == "sample":
                found.append(WORDS.index(word) if word in WORDS else UNKNOWN)
            elif action != "drop":
                found.append(MASK if action == "mask" else word)
    return found


@given(st.lists(TEXTS.map(without_halves), max_size=5), POLICIES)
@example(["film :) film", ": )", "(Mr. a.m.)", "it 's", " it", "it ", "", "it\n's"], KEEPS)
@settings(max_examples=200)
def test_every_chunk_is_read_alone_as_the_policy_says(texts, policy):
    assert released(policy, texts) == [expected(policy, text) for text in texts]


@pytest.mark.parametrize("language", ["de", "fr", "ru", "tr"])
def test_equal_lower_case_gives_equal_tokens(language):
    pieces = [*spacy.blank(language).tokenizer.rules, "ΟΔΟΣ", "İstanbul", "STRASSE", "ﬁ K Å ŉ ǅ"]
    for special in pieces:
        forms = [special, special.lower(), special.upper(), special.title(), f"({special} X)"]
        alike = [each for each in forms if each.lower() == special.lower()]
        found = released(KEEPS, alike, language)
        assert all(each == found[0] for each in found)


@pytest.mark.parametrize(
    ("words", "case"),
    [(["GOOD", "Bad", "film"], "lower"), (["new york", "a\tb", "film"], "keep")],
)
def test_words_that_no_token_can_be_are_refused(words, case):
    with pytest.raises(PolicyError, match="2 of 3 words have capitals or blanks"):
        TextEncoder(words, TokenPolicy(case=case), "en")
    assert TextEncoder([*words, "bad"], TokenPolicy(case=case), "en")


def test_casing_shows_only_if_the_policy_keeps_it():
    cased = TextEncoder(WORDS, TokenPolicy(case="keep"), "en")
    assert [len(cased.encode([text]).codes) for text in ("dont", "DONT")] == [2, 1]
    assert released(KEEPS, ["DONT"]) == released(KEEPS, ["dont"])


@given(TEXTS.map(without_halves), st.sampled_from(["lower", "keep"]))
@example("İİ don't " + "x" * 1001 + "  ok", "lower")
def test_offsets_mark_each_token_in_the_text(text, case):
    encoder = TextEncoder([], TokenPolicy(*["keep"] * 5, case=case), "en")
    places, batch = encoder.offsets(text), encoder.encode([text])
    assert len(places) == len(batch.codes)
    for (start, end), token in zip(places.tolist(), batch.strings, strict=True):
        written = text[start:end]
        if not written.isspace() and len(written) <= 1000 and text.lower().upper() == text.upper():
            assert token in (written, written.lower()) or len(written.lower()) != len(written)


@pytest.mark.parametrize("mark", ["!", "(", "a.b-", "\N{GRINNING FACE}"])
def test_a_chunk_too_long_for_a_word_is_one_unknown_word(mark):
    # By rules it would take minutes.
    assert released(TokenPolicy(unknown="mask"), ["good " + mark * 200_000]) == [[0, MASK]]


def test_a_chunk_that_lower_case_makes_too_long_is_read_alike_alone_and_in_a_text():
    long = "\u0130" * 600  # 1,200 characters in lower case
    encoder = TextEncoder([], KEEPS, "en")
    alone, beside = encoder.encode([long]), encoder.encode([f"{long} {'x ' * 500}"])
    assert alone.strings[0] == beside.strings[0]
    assert len(encoder.offsets(long)) == len(alone.codes)


def test_a_language_without_blanks_is_tokenized_by_its_own_tokenizer():
    assert len(released(KEEPS, ["我喜欢 film。"], "zh")[0]) == 8
    assert len(released(KEEPS, ["我" * 1001], "zh")[0]) == 1001


def test_an_unknown_language_is_refused():
    with pytest.raises(TextprivError, match="no language 'qq'"):
        released(KEEPS, ["film"], "qq")


@pytest.mark.parametrize("limit", ["_MOST_CHUNKS", "_MOST_CHARACTERS"])
def test_the_dictionary_is_emptied_when_it_is_full(monkeypatch, limit):
    monkeypatch.setattr(module, limit, 40)
    encoder = TextEncoder(WORDS, KEEPS, "en")
    for number in range(30):
        batch = encoder.encode([f"zorblax{number} film {number}", "good  film"])
        assert batch.strings == [f"zorblax{number}", str(number), " "]
        assert len(encoder._numbers) <= 50
    assert "zorblax0" not in repr(vars(encoder))


def test_raw_words_stay_in_no_store_of_spacy_and_no_pickle():
    encoder = TextEncoder(WORDS, KEEPS, "en")
    encoder.encode(["frobnicatorish words"])
    assert "frobnicatorish" not in module._rules("en").tokenizer.vocab.strings
    assert "frobnicatorish" not in spacy.blank("en").vocab.strings
    assert b"frobnicatorish" not in pickle.dumps(encoder)


def test_an_interrupt_leaves_an_encoder_that_reads_rightly(monkeypatch):
    encoder, code = TextEncoder(WORDS, KEEPS, "en"), TextEncoder._code

    def interrupted(self, token, name):
        if token == "quiverneth":
            raise KeyboardInterrupt
        return code(self, token, name)

    with monkeypatch.context() as broken:
        broken.setattr(TextEncoder, "_code", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(["plumquat quiverneth zorblax"])
    assert encoder.encode(["quiverneth plumquat film"]).strings == ["quiverneth", "plumquat"]


def test_threads_that_share_an_encoder_find_the_same_tokens():
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{n}" for n in rng.integers(5000, size=400)) for _ in range(20)]
    alone = TextEncoder(WORDS, KEEPS, "en").encode(texts).strings
    encoder, found = TextEncoder(WORDS, KEEPS, "en"), []
    threads = [
        threading.Thread(target=lambda: found.append(encoder.encode(texts).strings))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 4
