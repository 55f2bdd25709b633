"""Batches of texts have the tokens that spaCy finds in each text, however their chunks are cached."""

from __future__ import annotations

import itertools
import pickle
import random
import string
import threading

import numpy as np
import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.tokenization import chunk_cache, key_table, spacy_tokenizer, token_runs
from textpriv.tokenization import encoder as module
from textpriv.tokenization.batches import EncodedTexts, RawBatch, RawTokens
from textpriv.tokenization.encoder import TextEncoder, split_words
from textpriv.tokenization.policy import MASK, TokenPolicy
from textpriv.tokenization.spacy_tokenizer import SpacyTokenizer
from textpriv.tokenization.special_cases import SpecialCases
from textpriv.tokenization.token_runs import DocTokens

WORDS = ["good", "film", "the", "it", "'s", ".", "Paris", "a.m.", ":)", "seven", "mr", "mr."]
ENGLISH = spacy.blank("en")
LOWER_CASE = TokenPolicy(unknown="keep", number="keep", stopword="keep")
POLICIES = [
    TokenPolicy(),
    TokenPolicy(unknown="keep", number="keep", stopword="keep", case="keep"),
    TokenPolicy(unknown="keep", stopword="keep", space="mask"),
    TokenPolicy(unknown="drop", punctuation="mask", space="drop", number="mask"),
    TokenPolicy(punctuation="sample", space="sample"),
]
BLANKS = [" ", "  ", "\n", "\n\n\n", " \n", "\n ", "\t", "\r\n", "\x1c", "\x85", "\xa0", "\u2003", "\u3000"]  # fmt: skip
SPECIALS = sorted(ENGLISH.tokenizer.rules)
PIECES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(SPECIALS),
    st.sampled_from(BLANKS),
    st.sampled_from(list(string.punctuation)),
    st.sampled_from(["<br", "/><br", "film,", "(film)", "zorblax", "42", "é", "😀", "http://a.b/c", "U.S.A"]),
    st.text(max_size=3),
)  # fmt: skip
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=5)


def reader(policy: TokenPolicy | None = None, language: str = "en") -> TextEncoder:
    """One that has read so much that it looks for chunks."""
    ours = TextEncoder(WORDS, TokenPolicy() if policy is None else policy, language)
    ours._few = -1
    return ours


def new_cache() -> chunk_cache.ChunkCache:
    return chunk_cache.ChunkCache(SpecialCases({}, list))


def documents(batch: RawBatch) -> list[tuple[list[int], list[str]]]:
    """The codes of each document of a batch, and what is released for its tokens that are not drawn."""
    others = iter([batch.strings[place] for place in batch.string_ids.tolist()])
    found = []
    for begin, end in itertools.pairwise(batch.offsets.tolist()):
        codes = batch.codes[begin:end].tolist()
        found.append((codes, [next(others) for code in codes if code < -1]))
    assert next(others, None) is None
    return found


def expected(found: RawTokens) -> tuple[list[int], list[str]]:
    kept = iter(found.kept)
    rest = [MASK if code == -2 else next(kept) for code in found.codes.tolist() if code < -1]
    return found.codes.tolist(), rest


def assert_read_as_by_spacy(ours: TextEncoder, texts: list[str]) -> None:
    apart = [expected(ours.encode(text)) for text in texts]
    assert documents(ours.encode_batch(EncodedTexts.of(texts))) == apart


def doc_tokens(doc: Doc) -> DocTokens:
    return DocTokens(doc.to_array(["ORTH", "SPACY"]), doc.vocab.strings)


READERS = [reader(policy) for policy in POLICIES]
reader_of_lower_case = reader(LOWER_CASE)


@pytest.mark.parametrize("ours", READERS, ids=range(len(READERS)))
@given(TEXTS)
@example(["film :) film", "film : ) film", ": )", ":", ")", "a.m .", "Mr .", "o . O"])
@example(["it 's", "it's", " it", "it ", "  ", "", "\n", "it\n's", "x" * 1001, ". " + "é" * 1000])
@example(["(Mr. a.m.)", "x:) :)", "<br /><br />", "o.O .O", "\ud800 film", "8- )", "film>.< <"])
@settings(max_examples=150, deadline=None)
def test_a_batch_has_the_tokens_that_spacy_finds_in_each_text(ours, texts):
    assert_read_as_by_spacy(ours, texts)


DOCS = st.lists(st.tuples(st.one_of(PIECES, st.text(min_size=1)).filter(len), st.booleans()))


@pytest.mark.parametrize("ours", READERS, ids=range(len(READERS)))
@given(st.lists(DOCS, max_size=4), st.randoms(use_true_random=False))
@example([[("a", False), (" ", True), ("b", True)], [("a", True), (" ", True)]], random.Random(0))
@example(
    [[("New York", True), ("(Mr.", False), ("X", False), ("\n", False), (" ", True)]],
    random.Random(0),
)
@example(
    [
        [
            ("\n", True),
            (" \n", True),
            (":", True),
            (")", True),
            ("ΣΑΣ", True),
            ("é" * 999, False),
            ("Σx", True),
        ]
    ],
    random.Random(0),
)
@settings(max_examples=100, deadline=None)
def test_documents_of_any_tokens_are_read_as_their_texts(ours, docs, choice):  # fmt: skip
    vocabularies = [ENGLISH.vocab, Vocab()]
    made = [
        Doc(choice.choice(vocabularies), [word for word, _ in doc], [blank for _, blank in doc])
        for doc in docs
    ]
    texts = [doc.text for doc in made]
    tokens = list(map(doc_tokens, made))
    assert [each.text for each in tokens] == texts
    read = documents(ours.encode_docs(tokens))
    assert read == documents(ours.encode_batch(EncodedTexts.of(texts)))


@pytest.mark.parametrize("ours", READERS, ids=range(len(READERS)))
@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_documents_of_spacy_are_read_as_their_texts(ours, texts):
    tokens = [doc_tokens(ENGLISH.make_doc(text)) for text in EncodedTexts.of(texts)]
    read = documents(ours.encode_docs(tokens))
    assert read == documents(ours.encode_batch(EncodedTexts.of(texts)))


def test_few_texts_are_tokenized_whole_and_more_by_their_chunks(monkeypatch):
    monkeypatch.setattr(module, "_FEW", 30)
    monkeypatch.setattr(module, "_CALL", 0)
    ours = TextEncoder(WORDS, LOWER_CASE, "en")
    texts = [["a good film :)", "the film."], ["it 's", ": )", "a.m ."]]
    for batch, chunked in zip(texts, (False, True), strict=True):
        assert_read_as_by_spacy(ours, batch)
        assert (ours._cache is not None) == chunked


def test_an_encoder_that_is_compiled_ahead_looks_for_chunks_at_once():
    ours = TextEncoder(WORDS, LOWER_CASE, "en")
    ours.compile()
    assert ours._cache is not None


def assert_read_alike(ours: TextEncoder, *several: list[str]) -> None:
    """Texts that ``str.lower`` makes equal have the same tokens, read alone and in a batch; several lists of such."""
    texts = list(itertools.chain.from_iterable(several))
    together = iter(documents(ours.encode_batch(EncodedTexts.of(texts))))
    for variants in several:
        assert len({text.lower() for text in variants}) == 1
        first = expected(ours.encode(variants[0]))
        assert all(expected(ours.encode(text)) == first for text in variants[1:])
        assert list(itertools.islice(together, len(variants))) == [first] * len(variants)


def casings(text: str) -> list[str]:
    """A text, and with it those of its lower, upper and mixed forms that are equal to it in lower case."""
    mixed = "".join(each.upper() if place % 2 else each for place, each in enumerate(text))
    forms = [text, text.lower(), text.upper(), text.title(), text.swapcase(), mixed]
    return [each for each in forms if each.lower() == text.lower()]


@pytest.mark.parametrize("language", ["en", "de", "fr", "ru", "tr"])
def test_no_special_case_shows_its_casing_in_the_number_or_classes_of_its_tokens(language):
    ours = reader(LOWER_CASE, language)
    specials = sorted(spacy.blank(language).tokenizer.rules)
    assert_read_alike(ours, *map(casings, specials))
    assert_read_alike(ours, *(casings(f"({special} X {special})") for special in specials))


@given(st.lists(PIECES, max_size=12).map("".join))
@example("DONT Dont dont WE'LL Gonna A.M. U.S. :D XD 5KM Mr. D.C.")
@example("ΟΔΟΣ οδος ΣΑΣ. İstanbul STRASSE straße ŉ ǅ \U00010400 ﬁ K Å")
@settings(max_examples=300, deadline=None)
def test_texts_that_are_equal_in_lower_case_have_the_same_tokens(text):
    assert_read_alike(READERS[-1], casings(text))
    assert_read_alike(reader_of_lower_case, casings(text))


@given(st.text(st.characters(max_codepoint=127), max_size=40))
@settings(max_examples=200, deadline=None)
def test_an_ascii_text_has_the_tokens_of_its_lower_and_upper_form(text):
    forms = [text, text.lower(), text.upper()]
    assert_read_alike(reader_of_lower_case, forms)


@given(st.lists(st.text(), max_size=5))
@settings(deadline=None)
def test_texts_are_lowered_each_as_a_whole(texts):
    encoded = EncodedTexts.of(texts)
    assert list(encoded.lowered()) == [text.lower() for text in encoded]


def test_the_casing_of_a_text_shows_where_the_policy_keeps_it():
    # The check above can fail: under case="keep" spaCy's rules see the casing.
    ours = reader(TokenPolicy(case="keep"))
    assert len(ours.encode("dont").codes) == 2
    assert len(ours.encode("DONT").codes) == 1


@pytest.mark.parametrize("language", ["de", "fr", "es", "ru", "hi", "xx"])
def test_other_languages_of_words_between_blanks_are_tokenized_as_spacy_does_it(language):
    ours = reader(TokenPolicy(unknown="keep", case="keep"), language)
    rng = np.random.default_rng(len(language))
    rules = sorted(ours.tokenizer._current_tokenizer().rules)
    pieces = [*rules, *BLANKS, *string.punctuation, "wort", "l'ami", "d'", "слово", "शब्द", "5km"]
    texts = ["".join(rng.choice(pieces, size=9)) for _ in range(300)]
    assert_read_as_by_spacy(ours, texts)
    assert ours._cache is not None


@pytest.mark.parametrize("language", ["en", "de", "fr", "hi", "ru", "tr", "zh", "xx"])
def test_a_language_has_the_words_rules_and_tokens_of_its_blank_pipeline(language):
    attributes = ("LOWER", "NORM", "IS_STOP", "LIKE_NUM", "IS_PUNCT", "SPACY")
    ours, theirs = SpacyTokenizer(language, attributes), spacy.blank(language)
    assert ours.words_of_rules() == {word.orth_ for word in theirs.vocab}
    rules = getattr(theirs.tokenizer, "rules", {})
    assert getattr(ours._current_tokenizer(), "rules", {}) == rules
    text = " ".join(["(Don't) go: 5km, l'ami d'abord z.B. слово 我喜欢 शब्द.\n ok  ", *rules])
    assert np.array_equal(ours.attributes_of(text), theirs(text).to_array(list(attributes)))


def test_a_language_without_blanks_is_read_text_by_text():
    ours = reader(language="zh")
    assert_read_as_by_spacy(ours, ["我喜欢 film。", "", "good film"])
    assert ours._cache is None


def test_every_special_case_with_blanks_put_into_it_is_tokenized_as_in_the_whole_text():
    texts = []
    for special in SPECIALS:
        for place in range(1, len(special)):
            for blank in (" ", "\n"):
                texts.append(special[:place] + blank + special[place:])
                texts.append(f"({texts[-1]}) {special}")
        texts.append(" ".join(special))
    assert_read_as_by_spacy(reader(POLICIES[1]), texts)


def test_chunks_that_may_hold_a_special_case_over_a_blank_are_few():
    ours = reader()
    texts = ["The film. <br /> It's good, they say, and 'fine'.", "He said: : ) at 5 a.m. ."]
    ours.encode_batch(EncodedTexts.of(texts))
    letters, offsets = ours._cache._table.keys(0, ours._cache._table.count)
    chunks = [bytes(letters[a:b]).decode() for a, b in itertools.pairwise(offsets.tolist())]
    assert [chunk for chunk in chunks if " " in chunk] == [": )"]
    assert_read_as_by_spacy(reader(), texts)


def test_exactly_the_blanks_of_unicode_part_words():
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    chunks = new_cache()
    found, offsets = chunks.find(EncodedTexts.of(f"a{each}b{each}{each}" for each in characters))
    words = [1 if not each.isspace() else 3 if each == " " else 4 for each in characters]
    assert np.diff(offsets).tolist() == words
    assert len(np.unique(found)) == len(chunks.pending(10**6))


def test_a_hundred_thousand_different_chunks_are_found_again_in_any_order():
    rng = np.random.default_rng(1)
    texts = [" ".join(map(str, part)) for part in np.split(rng.permutation(100_000), 100)]
    chunks = new_cache()
    found, _ = chunks.find(EncodedTexts.of(texts))
    assert found.tolist() == list(range(100_000))
    assert chunks.pending(10**6) == " ".join(texts).split()
    again, _ = chunks.find(EncodedTexts.of(texts[::-1]))
    assert np.array_equal(again.reshape(100, -1)[::-1].ravel(), found)


def test_one_text_longer_than_all_room_is_read():
    text = " ".join(f"w{number}" for number in range(60_000)) + " " * 100_000
    assert_read_as_by_spacy(reader(TokenPolicy(unknown="keep")), [text, "film"])


def test_chunks_of_one_hash_are_told_apart_by_their_bytes():
    chunks = new_cache()
    chunks.find(EncodedTexts.of(["one two"]))
    # As if "two" had the hash of "one": the slot of "two" is free, and its own lies behind that of "one".
    table = chunks._table
    table.hashes[1] = table.hashes[0]
    table.slots[:] = 0
    key_table.insert_all(table.hashes[:2], table.slots)
    found, _ = chunks.find(EncodedTexts.of(["one"]))
    assert found.tolist() == [0]
    mask = len(table.slots) - 1
    slot = int(table.hashes[0]) & mask
    table.slots[slot], table.slots[(slot + 1) & mask] = 2, 1
    found, _ = chunks.find(EncodedTexts.of(["one"]))
    assert found.tolist() == [0]


@pytest.mark.parametrize("limit", ["_MAX_CHUNKS", "_MAX_BYTES"])
def test_cached_chunks_are_forgotten_before_they_are_too_many(monkeypatch, limit):
    monkeypatch.setattr(chunk_cache, limit, 40)
    ours, caches = reader(TokenPolicy(unknown="keep")), []
    for number in range(30):
        assert_read_as_by_spacy(ours, [f"zorblax{number} film {number} night !", "good  film"])
        caches.append(ours._cache)
    assert 1 < len(set(map(id, caches))) < 30
    assert b"zorblax0" not in ours._cache._table.letters.tobytes()
    assert max(each._table.count for each in caches) < 60


@pytest.mark.parametrize("limit", ["_MAX_RUNS", "_MAX_TOKENS"])
def test_runs_of_tokens_are_forgotten_before_they_are_too_many(monkeypatch, limit):
    monkeypatch.setattr(token_runs, limit, 40)
    ours, runs = reader(), []
    for number in range(30):
        doc = ENGLISH.make_doc(f"film{number}, night{number}! (it's)")
        assert documents(ours.encode_docs([doc_tokens(doc)]))[0] == expected(ours.encode(doc.text))
        runs.append(ours._runs)
    assert 1 < len(set(map(id, runs))) < 30
    assert max(each._table.count for each in runs) < 60


def test_runs_that_an_error_has_left_without_chunks_are_read_at_the_next_call():
    ours, doc = reader(), ENGLISH.make_doc("good zorblax")
    with pytest.raises(KeyError):
        ours.encode_docs([DocTokens(doc_tokens(doc).columns, {})])
    assert documents(ours.encode_docs([doc_tokens(doc)]))[0] == expected(ours.encode(doc.text))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_documents_with_empty_tokens_are_read_as_their_texts(at):
    # Such as spaCy's retokenizer makes where it splits "ab" into "ab" and "".
    words = ["good", "film", "it"]
    words.insert(at, "")
    strings = dict(enumerate(words))
    document = DocTokens(np.array([[place, 1] for place in strings], dtype=np.uint64), strings)
    ours = reader()
    for _ in range(2):
        assert documents(ours.encode_docs([document]))[0] == expected(ours.encode(document.text))


def test_an_interrupt_in_the_middle_of_a_look_up_leaves_nothing_behind(monkeypatch):
    ours, find = reader(LOWER_CASE), chunk_cache._find

    def interrupted(*given):
        find(*given)
        raise KeyboardInterrupt

    assert_read_as_by_spacy(ours, ["it"])
    with monkeypatch.context() as broken:
        broken.setattr(chunk_cache, "_find", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ours.encode_batch(EncodedTexts.of(["zorblax good film"]))
    # In the place of the first two of those that were entered and not counted a word as long as both, then the last of them.
    assert_read_as_by_spacy(ours, ["it quivernethy film"])


def test_a_store_of_strings_that_has_grown_too_large_is_replaced_and_changes_nothing(monkeypatch):
    ours = reader(TokenPolicy(unknown="keep"))
    ours.encode("quiverneth")
    monkeypatch.setattr(
        spacy_tokenizer, "_LARGEST_STORE", len(ours.tokenizer._tokenizer.vocab.strings) + 4
    )
    stores = [ours.tokenizer._tokenizer]
    for number in range(12):
        text = f"film plumquat{number} 42 night !"
        assert ours.encode(text).kept == [f"plumquat{number}", "night", "!"]
        assert_read_as_by_spacy(ours, [text])
        stores.append(ours.tokenizer._tokenizer)
    assert len(set(map(id, stores))) > 1
    assert "quiverneth" in stores[0].vocab.strings
    assert "quiverneth" not in stores[-1].vocab.strings


def test_readers_share_the_rules_of_a_language_until_the_last_of_them_is_gone():
    first, second = (TextEncoder(["a"], TokenPolicy(), "fi") for _ in range(2))
    first.encode("quiverneth")
    assert second.tokenizer is first.tokenizer
    assert (
        "quiverneth"
        not in pickle.loads(pickle.dumps(first.tokenizer))._current_tokenizer().vocab.strings
    )
    del first, second
    again = TextEncoder(["a"], TokenPolicy(), "fi")
    again.encode("a")
    assert "quiverneth" not in again.tokenizer._tokenizer.vocab.strings


def test_threads_that_share_a_reader_find_the_same_tokens():
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{n}" for n in rng.integers(5000, size=400)) for _ in range(40)]
    alone = [documents(reader(POLICIES[1]).encode_batch(EncodedTexts.of(texts)))]
    ours, found = reader(POLICIES[1]), []
    threads = [
        threading.Thread(
            target=lambda: found.append(documents(ours.encode_batch(EncodedTexts.of(texts))))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone * 8


def test_what_an_error_has_left_without_tokens_gets_them_at_the_next_call(monkeypatch):
    ours = reader()
    with monkeypatch.context() as broken:
        broken.setattr(SpacyTokenizer, "attributes_of", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ours.encode_batch(EncodedTexts.of(["good film"]))
    assert_read_as_by_spacy(ours, ["good film", "film good"])


@given(st.lists(st.text(), max_size=5))
@settings(deadline=None)
def test_encoded_texts_give_back_the_texts_with_half_surrogates_replaced(texts):
    encoded = EncodedTexts.of(texts)
    repaired = [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
    ]
    assert list(encoded) == repaired
    assert [encoded[place] for place in range(len(encoded))] == repaired


def test_a_batch_of_documents_counts_as_they_do_together():
    ours = reader(POLICIES[3])
    texts = ["good zorblax film, 42", "", "!"]
    batch = ours.encode_batch(EncodedTexts.of(texts))
    assert batch.counts == {"sampled": 2, "masked": 3}
    assert len(batch) == 3
    assert documents(RawBatch.of([ours.encode(text) for text in texts])) == documents(batch)
    assert documents(RawBatch.of([])) == []


VOCABULARY = [
    *"good well-known gonna 's n't a.m. Paris don't :) , u.s. mother-in-law x'y 5km good,bad é".split(),
    *(special for special in SPECIALS if not special.isspace()),
]


@pytest.mark.parametrize("language", ["en", "fr", "zh"])
@pytest.mark.parametrize("case", ["lower", "keep"])
def test_words_that_are_split_are_those_that_are_not_read_as_themselves(language, case):
    words = list(dict.fromkeys([*VOCABULARY, "a b", "x" * 1001, "我喜欢", "我"]))
    drawn = TokenPolicy(case=case, punctuation="sample", space="sample")
    ours = TextEncoder(words, drawn, language)
    expected = [
        place for place, word in enumerate(words) if ours.encode(word).codes.tolist() != [place]
    ]
    found = split_words(words, language, case).tolist()
    assert found == expected
    assert words.index("well-known") in found or language == "zh"


def test_how_many_words_are_split_does_not_depend_on_how_many_are_tokenized_at_once(monkeypatch):
    whole = split_words(VOCABULARY, "en", "lower").tolist()
    monkeypatch.setattr(module, "_CHUNKS_AT_ONCE", 7)
    assert split_words(VOCABULARY, "en", "lower").tolist() == whole
    assert split_words([], "en", "lower").tolist() == []
