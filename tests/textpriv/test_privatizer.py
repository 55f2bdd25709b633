"""Texts become private texts: nothing else of the original comes back, and keys decide what is drawn again."""

from __future__ import annotations

import gc
import itertools
import math
import pickle
import statistics
import time

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv import TEM
from textpriv.errors import TextprivError
from textpriv.index import Index
from textpriv.ledger import DocumentName, Ledger
from textpriv.mechanisms import measure
from textpriv.privatizer import CHANGED, Privatizer
from textpriv.spans.detectors import PatternDetector
from textpriv.spans.policy import SpanPolicy
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

PLAIN = "good bad film actor scene music story night river house warm cold slow quick".split()
WORDS = PLAIN + "the of and two seven 1999 . , ! ( ) 's n't Paris NASA punct ORTH".split()
SET = frozenset(WORDS)
RAW = ["zorblax", "quiverneth", "Mumblefrotz", "xyzzyish"]
RUN_KEY = b"K" * 32
SAMPLED = TokenPolicy(punctuation="sample", space="sample")
ENGLISH = spacy.blank("en")
LONG = " ".join(PLAIN * 40)
CORPUS = [
    "The zorblax film, and two more.",
    "",
    "Good\n\nmusic!",
    LONG,
    "... !!!",
    *(" ".join(PLAIN[i:]) for i in range(6)),
]


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)
    return Index.build(Vocabulary(WORDS, vectors), "euclidean", k=8)


@pytest.fixture(scope="module")
def mechanism(index):
    return TEM(index, epsilon=2.0)


@pytest.fixture(scope="module")
def faithful(index):
    """So large an epsilon that every word of the vocabulary comes out as itself."""
    return TEM(index, epsilon=400.0, prior="zipf")


@pytest.fixture(scope="module")
def drawing(mechanism):
    """Draws every token, by a run key."""
    return Privatizer(mechanism, SAMPLED, run_key=RUN_KEY)


@pytest.fixture(scope="module")
def keyed(mechanism):
    return Privatizer(mechanism, run_key=RUN_KEY)


def tokens_of(privatizer, text, key="k"):
    return privatizer.release(privatizer.read(text), [key])[0]


# What never comes back


@given(st.text(max_size=30))
@settings(max_examples=150)
def test_only_vocabulary_words_leave_if_every_class_is_drawn(drawing, text):
    assert set(tokens_of(drawing, text).words) <= SET


@given(st.text(max_size=30))
@settings(max_examples=150)
def test_only_marks_and_canonical_blanks_are_kept_by_default(keyed, text):
    for word in tokens_of(keyed, text).words:
        assert word in SET or word in (" ", "\n", "\n\n") or ENGLISH.vocab[word].is_punct


def test_unknown_words_have_one_output_distribution(drawing):
    for key in range(30):
        texts = ["zorblax quiverneth", "xyzzyish xyzzyish"]
        first, second = (drawing.privatize(text, key=key) for text in texts)
        assert first == second


@given(st.lists(st.sampled_from([*PLAIN, *RAW]), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_casing_and_dropped_blanks_change_nothing(mechanism, words, random):
    blankless = Privatizer(mechanism, TokenPolicy(space="drop"), run_key=RUN_KEY)
    cased = [random.choice([word.upper(), word.title(), word.lower()]) for word in words]
    varied = "".join(each + random.choice([" ", "  ", "\t", "\n \n", "\xa0"]) for each in cased)
    plain = " ".join(word.lower() for word in words)
    assert blankless.privatize(varied, key=1) == blankless.privatize(plain, key=1)


@pytest.mark.parametrize(
    ("text", "released"),
    [
        ("film , night !", "film, night!"),
        ("film( night )scene", "film (night) scene"),
        ("film.\n \n\nNight", "film.\n\nnight"),
        ("film n't", "film n't"),
        ("film\r\n night \u2003 scene", "film\nnight scene"),
    ],
)
def test_spacing_is_that_of_print_whatever_the_original(faithful, text, released):
    assert Privatizer(faithful).privatize(text) == released


def test_counts_do_not_distinguish_unknown_from_other_drawn_words(drawing):
    assert tokens_of(drawing, "zorblax film").counts == tokens_of(drawing, "film film").counts


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("\x00", 1), ("👨‍👩‍👧 film", 6), ("שלום עולם", 2), ("\ud800", 1), ("\u202efilm", 1)],
)
def test_awkward_text_is_drawn_token_by_token(drawing, text, count):
    words = tokens_of(drawing, text).words
    assert len(words) == count
    assert set(words) <= SET


# Randomness


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_output_does_not_depend_on_batches(mechanism, monkeypatch, batch_size):
    for options, keys in (({"seed": 5}, None), ({"run_key": RUN_KEY}, list(range(len(CORPUS))))):
        whole = list(Privatizer(mechanism, **options).pipe(CORPUS, keys))
        with monkeypatch.context() as patched:
            patched.setattr(measure, "_TOGETHER", 7 * batch_size)
            found = list(Privatizer(mechanism, **options).pipe(CORPUS, keys, batch_size))
        assert found == whole


def test_output_does_not_depend_on_other_documents(keyed):
    keys = [f"document {place}" for place in range(len(CORPUS))]
    together = list(keyed.pipe(CORPUS, keys))
    alone = [keyed.privatize(text, key=key) for text, key in zip(CORPUS, keys, strict=True)]
    assert together == alone == list(keyed.pipe(CORPUS[::-1], keys[::-1]))[::-1]
    assert together[1] == ""
    assert alone == [tokens_of(keyed, *each).text for each in zip(CORPUS, keys, strict=True)]


def test_every_part_of_an_identity_changes_the_draws(mechanism, keyed):
    """A shared stream would show where two contents differ; chance makes one pair equal below 1e-30."""
    settings_ = Privatizer(mechanism, TokenPolicy(case="keep"), run_key=RUN_KEY)
    part = DocumentName("1", part="title")
    outputs = [
        keyed.privatize(LONG, key="1"),
        keyed.privatize(LONG, key="2"),
        keyed.privatize(LONG, key=1),
        keyed.privatize(LONG, key=part),
        Privatizer(mechanism, run_key=b"L" * 32).privatize(LONG, key="1"),
        settings_.privatize(LONG, key="1"),
    ]
    assert len(set(outputs)) == len(outputs)
    assert keyed.privatize(LONG, key="1") == outputs[0]
    # As many words, for one more would be read from elsewhere in the same stream.
    first, second = (keyed.privatize(f"{LONG} {word}", key="1") for word in ("film", "good"))
    assert first.split()[:-1] != second.split()[:-1]


def test_unseeded_releases_are_independent(mechanism):
    first, second = Privatizer(mechanism), Privatizer(mechanism)
    again = pickle.loads(pickle.dumps(first))
    outputs = [first.privatize(LONG), first.privatize(LONG), *first.pipe([LONG] * 2)]
    outputs += [each.privatize(LONG, key=1) for each in (first, second, again)]
    assert len(set(outputs)) == len(outputs)


def test_a_seed_repeats_its_run_and_draws_equal_texts_apart(mechanism):
    first, again, other = (list(Privatizer(mechanism, seed=s).pipe([LONG] * 2)) for s in (1, 1, 2))
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_pipe_reads_its_texts_as_they_are_asked_for(mechanism):
    numbers = itertools.count()
    next(Privatizer(mechanism).pipe((f"film {n}" for n in numbers), batch_size=3))
    assert next(numbers) == 3


# Mistakes


@pytest.mark.parametrize("wrong", [None, b"zorblax", ["zorblax"]])
def test_a_wrong_text_is_refused_by_position_and_not_quoted(mechanism, wrong):
    with pytest.raises(TextprivError, match="document 3: expected text") as refusal:
        list(Privatizer(mechanism).pipe(["film"] * 3 + [wrong], batch_size=2))
    assert "zorblax" not in str(refusal.value)


def test_too_few_and_repeated_keys_are_refused_by_position(mechanism, keyed):
    with pytest.raises(TextprivError, match="document 2 has none"):
        list(Privatizer(mechanism).pipe(["film"] * 3, keys=["a", "b"], batch_size=2))
    with pytest.raises(TextprivError, match="document 2 has the key"):
        list(keyed.pipe(["film"] * 3, keys=["a", "b", "a"], batch_size=2))
    with pytest.raises(TextprivError, match="pass keys="):
        keyed.privatize("film")


def test_documents_with_fewer_keys_than_texts_are_not_drawn(mechanism, keyed, tmp_path):
    counted = Privatizer(mechanism, ledger=Ledger(tmp_path / "ledger.sqlite"))
    for privatizer in (keyed, counted):
        with pytest.raises(ValueError, match="shorter"):
            privatizer.release(privatizer.read_batch(["film", "film"]), ["a"])


def test_wrong_arguments_are_refused(mechanism, index):
    for given_ in ("film", {"text": "film"}, b"film", None):
        with pytest.raises(TextprivError, match="a list of texts"):
            list(Privatizer(mechanism).pipe(given_))
    with pytest.raises(TextprivError, match="from 1 up"):
        list(Privatizer(mechanism).pipe(["film"], batch_size=0))
    with pytest.raises(TextprivError, match="not both"):
        Privatizer(mechanism, seed=1, run_key=RUN_KEY)
    with pytest.raises(TextprivError, match=r"needs a mechanism .* got Index"):
        Privatizer(index)
    with pytest.raises(TextprivError, match="policy takes a TokenPolicy"):
        Privatizer(mechanism, "keep")
    with pytest.raises(TextprivError, match="pass spans="):
        Privatizer(mechanism, detector=PatternDetector())
    with pytest.raises(TextprivError, match="detector takes detectors"):
        Privatizer(mechanism, spans=SpanPolicy.preset("chat"), detector="patterns")


def test_words_between_spans_are_read_in_lower_case(faithful):
    options = {"spans": SpanPolicy.of("notes"), "detector": PatternDetector()}
    private = Privatizer(faithful, TokenPolicy(unknown="keep"), seed=1, **options)
    text = "FILM Zorblax ann@example.org DONT Quiverneth"
    author = DocumentName("a", "ann")
    raw, lowered = (private.read(each) for each in (text, text.lower()))
    assert raw.codes.tolist() == lowered.codes.tolist()
    assert raw.strings == lowered.strings
    assert raw.strings[0] == "zorblax"
    assert private.privatize(text, author) == private.privatize(text.lower(), author)


# Secrets


def test_a_pickle_holds_no_raw_word_and_no_run_key(mechanism, keyed):
    privatizer = Privatizer(mechanism, TokenPolicy(unknown="keep"), seed=1)
    privatizer.privatize("zorblax quiverneth")
    packed = pickle.dumps(privatizer)
    assert b"zorblax" not in packed
    again = pickle.loads(packed)
    assert again.privatize(LONG, key=2) == privatizer.privatize(LONG, key=2)
    with pytest.raises(TextprivError, match="the key is a secret"):
        pickle.dumps(keyed)
    assert "KKKK" not in repr(keyed)


def test_a_privatizer_with_the_default_detector_is_picklable(mechanism):
    spans = SpanPolicy.of("notes")
    text = "Paid with 4111 1111 1111 1111 on 3 May 2020 by ann@example.org."
    privatizer = Privatizer(mechanism, seed=1, spans=spans, detector=PatternDetector())
    key = DocumentName("a", "ann")
    released = privatizer.privatize(text, key)
    again = pickle.loads(pickle.dumps(privatizer))
    assert again.privatize(text, key) == released
    assert "4111" not in released


# The statement


def test_the_statement_names_what_policy_keys_and_seed_expose(mechanism):
    policy = TokenPolicy(number="keep", unknown="mask")
    privatizer = Privatizer(mechanism, policy)
    assert set(policy.not_protected()) <= set(privatizer.statement.not_protected)
    assert set(policy.notes()) <= set(privatizer.statement.notes)
    assert privatizer.statement.proved
    assert CHANGED not in privatizer.statement.not_protected
    privatizer.privatize("film", key=1)
    assert CHANGED in privatizer.statement.not_protected
    assert CHANGED in Privatizer(mechanism, run_key=RUN_KEY).statement.not_protected
    seeded = Privatizer(mechanism, seed=0).statement
    assert not seeded.proved
    assert any("seeded" in note for note in seeded.notes)


# Serving


@pytest.mark.alone
def test_no_call_after_warm_stalls(mechanism):
    """Of 2,000 calls the largest in processor time, in the best of five runs.

    That is the first: spaCy needs 10 times the median for a text of 60 words that are all new to it.
    """
    gc.collect()
    gc.freeze()  # what other tests made is not looked through during a call
    rng = np.random.default_rng(0)
    pieces = [*PLAIN, *RAW, *(f"w{n}" for n in range(5000))]
    ratios = [math.inf]
    while min(ratios) > 15 and len(ratios) <= 5:
        privatizer = Privatizer(mechanism)
        privatizer.warm()
        times = []
        for _ in range(2000):
            text = " ".join(rng.choice(pieces, size=60))
            begin = time.thread_time()
            privatizer.privatize(text)
            times.append(time.thread_time() - begin)
        ratios.append(max(times) / statistics.median(times))
    assert min(ratios) <= 15, ratios
