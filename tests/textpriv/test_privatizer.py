"""Texts become private texts: what is drawn, what is kept, and that nothing else of the original comes back."""

from __future__ import annotations

import itertools
import pickle
import time

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv import privatizer as module
from textpriv.errors import MechanismError, TextprivError
from textpriv.index import Index
from textpriv.mechanisms import TEM, UNKNOWN, Madlib
from textpriv.privatizer import Privatizer
from textpriv.tokenization.batches import EncodedTexts
from textpriv.tokenization.policy import ACTIONS, CLASSES, MASK, TokenPolicy
from textpriv.vocabulary import Vocabulary

PLAIN = (
    "good bad film actor scene music story night river house warm cold slow quick letter".split()
)
# Names that spaCy keeps as numbers of its own, stop words, numbers, marks, and words with capital letters.
SYMBOLS = ["punct", "nsubj", "ORTH", "dobj", "lemma"]
OTHERS = "the of and two seven 1999 . , ! ( ) 's n't Paris NASA".split()
WORDS = PLAIN + SYMBOLS + OTHERS
SET = frozenset(WORDS)
RAW = ["zorblax", "quiverneth", "Mumblefrotz", "xyzzyish"]
RUN_KEY = b"K" * 32
SAMPLED = TokenPolicy(punctuation="sample", space="sample")
# One token of every class: unknown, number, punctuation, space, stop word, word of the vocabulary.
EVERY_CLASS = "zorblax 42 ; \n the film"
OF_CLASS = dict(zip(CLASSES, ["zorblax", "42", ";", "\n", "the"], strict=True))

ENGLISH = spacy.blank("en")

# Pieces of text that meet every class and the meetings of classes (a number that is a stop word, a mark in the
# vocabulary, a symbol in lower case, an abbreviation with its point).
pieces = st.sampled_from(
    [
        *WORDS,
        *RAW,
        "The",
        "FILM",
        "two",
        "Twelve",
        "3,5",
        "10%",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "…",
        "—",
        "u.s.",
        "orth",
    ]
)
texts = st.lists(pieces, max_size=12).map(" ".join)
any_text = st.text(st.characters(), max_size=30)
policies = st.builds(
    TokenPolicy,
    **{name: st.sampled_from(ACTIONS) for name in CLASSES},
    case=st.sampled_from(["lower", "keep"]),
)


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)
    return Index.build(Vocabulary(WORDS, vectors), k=8)


@pytest.fixture(scope="module")
def mechanism(index):
    return TEM(index, epsilon=2.0)


@pytest.fixture(scope="module")
def faithful(index):
    """So large an epsilon that every word of the vocabulary comes out as itself."""
    return TEM(index, epsilon=400.0)


@pytest.fixture(scope="module")
def drawing(mechanism):
    """Draws every token, by a run key."""
    return Privatizer(mechanism, SAMPLED, run_key=RUN_KEY)


@pytest.fixture(scope="module")
def blankless(mechanism):
    return Privatizer(mechanism, TokenPolicy(space="drop"), run_key=RUN_KEY)


@pytest.fixture(scope="module")
def keyed(mechanism):
    return Privatizer(mechanism, run_key=RUN_KEY)


def tokens_of(privatizer, text, key="k"):
    return privatizer.release([privatizer.read(text)], [key])[0]


# What a token is


def class_of(token, policy):
    """The class of a token by the words of TokenPolicy, in plain Python."""
    if token.is_space:
        return "space"
    if token.is_punct:
        return "punctuation"
    if token.like_num and (policy.number, policy.stopword, policy.unknown) != ("sample",) * 3:
        return "number"
    if token.is_stop and policy.stopword != "sample":
        return "stopword"
    return "word" if token.text in SET else "unknown"


def expected_of(text, policy):
    """For each token that is released: its id if it is drawn, MASK, or the string that is kept."""
    for token in ENGLISH(text.lower() if policy.case == "lower" else text):
        kind = class_of(token, policy)
        action = "sample" if kind == "word" else getattr(policy, kind)
        word = token.text
        if action == "sample":
            yield WORDS.index(word) if word in SET else UNKNOWN
        elif action == "mask":
            yield MASK
        elif action == "keep" and kind == "space":
            breaks = token.text.count("\n")
            yield "\n" * min(breaks, 2) if breaks else " "
        elif action == "keep":
            yield word


@given(st.lists(st.one_of(texts, st.text(max_size=20)), min_size=1, max_size=12), policies)
@settings(max_examples=50, deadline=None)
def test_tokens_are_read_as_the_policy_says(mechanism, several, policy):
    # Several texts to a policy: to make a privatizer takes longer than to read.
    read = Privatizer(mechanism, policy).read
    for text in several:
        raw = read(text)
        kept = iter(raw.kept)
        found = [
            code if code >= UNKNOWN else MASK if code == -2 else next(kept)
            for code in raw.codes.tolist()
        ]
        assert found == list(expected_of(text, policy))
        assert list(kept) == []


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_does_to_every_class_what_it_says(faithful, name, action):
    policy = TokenPolicy(**(dict.fromkeys(CLASSES, "keep") | {name: action}))
    original = OF_CLASS[name]
    released = tokens_of(Privatizer(faithful, policy, seed=1), EVERY_CLASS).words
    whole = ["zorblax", "42", ";", "\n", "the", "film"]
    place = whole.index(original)
    if action == "drop":
        assert released == whole[:place] + whole[place + 1 :]
        return
    assert released[:place] + released[place + 1 :] == whole[:place] + whole[place + 1 :]
    if action == "keep":
        assert released[place] == original
    elif action == "mask":
        assert released[place] == MASK
    else:
        assert released[place] in SET


@pytest.mark.parametrize("policy", [TokenPolicy(stopword="keep"), TokenPolicy(stopword="mask")])
def test_a_number_that_is_also_a_stop_word_is_drawn_as_a_number(mechanism, policy):
    codes = Privatizer(mechanism, policy).read("two of").codes
    assert codes[0] == WORDS.index("two")
    assert codes[1] < UNKNOWN


@pytest.mark.parametrize(
    ("case", "kept"),
    [("lower", ["the", "zorblax", "of", "42"]), ("keep", ["THE", "Zorblax", "OF", "42"])],
)
def test_kept_words_come_out_in_the_case_in_which_they_are_read(mechanism, case, kept):
    policy = TokenPolicy(stopword="keep", number="keep", unknown="keep", case=case)
    assert Privatizer(mechanism, policy).read("THE Zorblax OF 42").kept == kept


@pytest.mark.parametrize("word", SYMBOLS)
def test_vocabulary_words_that_are_symbols_of_spacy_are_found(mechanism, word):
    read = Privatizer(mechanism, TokenPolicy(case="keep", unknown="mask")).read
    assert read(f"a {word}").codes[1] == WORDS.index(word)


def test_a_cased_vocabulary_is_looked_up_as_written_with_case_keep(mechanism):
    read = Privatizer(mechanism, TokenPolicy(case="keep")).read
    assert read("Paris NASA paris Film").codes.tolist() == [
        WORDS.index("Paris"),
        WORDS.index("NASA"),
        UNKNOWN,
        UNKNOWN,
    ]


def test_a_capital_letter_is_not_looked_up_with_case_lower(mechanism):
    assert Privatizer(mechanism).read("FILM Film film Paris").codes.tolist() == [
        *[WORDS.index("film")] * 3,
        UNKNOWN,
    ]


# What never comes back


@given(any_text)
@settings(max_examples=200, deadline=None)
def test_nothing_but_vocabulary_words_leaves_where_everything_is_drawn(drawing, text):
    assert set(tokens_of(drawing, text).words) <= SET


@given(any_text)
@settings(max_examples=200, deadline=None)
def test_nothing_but_marks_and_canonical_blanks_is_kept_by_default(keyed, text):
    released = tokens_of(keyed, text).words
    for word in released:
        known = word in SET or word in (" ", "\n", "\n\n")
        assert known or ENGLISH.vocab[word].is_punct


@given(st.lists(st.from_regex(r"zq[a-z]{1,8}", fullmatch=True), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_unknown_words_never_leave_unless_the_policy_keeps_them(drawing, raw):
    released = tokens_of(drawing, " ".join(raw)).words
    assert len(released) == len(raw)
    assert not set(released) & set(raw)


def test_unknown_words_have_one_law(drawing):
    texts_of_length = ["zorblax quiverneth", "xyzzyish xyzzyish"]
    for key in range(30):
        first, second = (drawing.privatize(text, key=key) for text in texts_of_length)
        assert first == second


@given(
    st.lists(
        st.tuples(st.sampled_from([*PLAIN, *RAW]), st.sampled_from([str, str.upper, str.title]))
    ),
    st.lists(st.sampled_from([" ", "  ", "\t", "\n", "\n \n", "\u00a0"]), min_size=12, max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_casing_and_blanks_change_nothing_where_blanks_are_dropped(blankless, words, blanks):
    words = words[:10]
    plain = " ".join(word.lower() for word, _ in words)
    varied = "".join(
        itertools.chain.from_iterable(
            (blank, change(word)) for blank, (word, change) in zip(blanks, words, strict=False)
        )
    )
    varied += blanks[-1]
    assert blankless.privatize(varied, key=1) == blankless.privatize(plain, key=1)


@given(st.lists(st.sampled_from([*PLAIN, *RAW]), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_casing_changes_nothing_by_default(keyed, words, random):
    cased = [random.choice([word.upper(), word.title(), word.lower()]) for word in words]
    plain = " ".join(word.lower() for word in words)
    assert keyed.privatize(" ".join(cased), key=1) == keyed.privatize(plain, key=1)


@pytest.mark.parametrize(
    ("blank", "kept"),
    [
        ("\n", "\n"),
        ("\n\n", "\n\n"),
        ("\n\n\n\n", "\n\n"),
        ("\r\n", "\n"),
        (" \t ", " "),
        ("\u2003", " "),
    ],
)
def test_kept_blanks_are_reduced_to_a_blank_a_line_break_or_two(faithful, blank, kept):
    assert Privatizer(faithful).privatize(f"film{blank}  night") == f"film{kept}night"


def test_a_single_blank_is_no_token(faithful):
    assert Privatizer(faithful).privatize("film night") == "film night"


# Spacing and text


@given(texts, st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_the_text_of_private_tokens_equals_privatize(keyed, text, key):
    tokens = tokens_of(keyed, text, key)
    assert tokens.text == keyed.privatize(text, key=key)
    assert len(tokens) == len(tokens.words) == len(tokens.spaces)


def test_spacing_is_a_function_of_the_neighbouring_private_tokens(mechanism):
    # Words and marks come out at random, drawn and kept; the same two neighbours always stand at the same distance.
    rng = np.random.default_rng(0)
    parts = [*WORDS, *RAW, "\n", "\n\n", "-", '"']
    seen = {}
    for policy in (TokenPolicy(), TokenPolicy(punctuation="sample", unknown="mask", space="drop")):
        privatizer = Privatizer(mechanism, policy, run_key=RUN_KEY)
        for key in range(150):
            glue = rng.choice(["", " ", "  "], size=12, p=[0.2, 0.6, 0.2])
            text = "".join(a + b for a, b in zip(rng.choice(parts, size=12), glue, strict=True))
            tokens = tokens_of(privatizer, text, key)
            assert not tokens.spaces or not tokens.spaces[-1]
            for left, right, space in zip(
                tokens.words, tokens.words[1:], tokens.spaces, strict=False
            ):
                assert seen.setdefault((left, right), space) == space
    assert len(set(seen.values())) == 2


@pytest.mark.parametrize(
    ("text", "released"),
    [
        ("film , night !", "film, night!"),
        ("film( night )scene", "film (night) scene"),
        ("film.\n\nNight", "film.\n\nnight"),
        ("film n't", "film n't".replace(" ", "")),
    ],
)
def test_marks_are_spaced_as_in_print_whatever_the_original(faithful, text, released):
    assert Privatizer(faithful).privatize(text) == released


def test_counts_tell_how_tokens_were_released(mechanism):
    policy = TokenPolicy(unknown="mask", number="mask", stopword="keep")
    tokens = tokens_of(
        Privatizer(mechanism, policy), "The zorblax film, 42 nights of cold!\n\nEnd."
    )
    assert tokens.counts == {"sampled": 2, "masked": 4, "punctuation": 3, "space": 1, "stopword": 2}
    assert sum(tokens.counts.values()) == len(tokens)


def test_counts_do_not_tell_unknown_words_from_others_that_are_drawn(drawing):
    assert tokens_of(drawing, "zorblax film").counts == tokens_of(drawing, "film film").counts


# Randomness


CORPUS = [
    "The zorblax film, and two more.",
    "",
    "Good\n\nmusic!",
    " ".join(PLAIN * 40),
    "quiverneth",
    "... !!!",
    *(" ".join(PLAIN[i:]) for i in range(12)),
]


@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000])
def test_output_does_not_depend_on_the_batch_size(mechanism, batch_size):
    for options, keys in (({"seed": 5}, None), ({"run_key": RUN_KEY}, list(range(len(CORPUS))))):
        whole = list(Privatizer(mechanism, **options).pipe(CORPUS, keys))
        found = list(Privatizer(mechanism, **options).pipe(CORPUS, keys, batch_size=batch_size))
        assert found == whole


@pytest.mark.parametrize("search", ["hnsw", "exact"])
def test_output_of_madlib_does_not_depend_on_the_batch_size(index, search):
    privatizer = Privatizer(Madlib(index, 5.0, search=search), seed=3)
    assert list(privatizer.pipe(CORPUS)) == list(privatizer.pipe(CORPUS, batch_size=2))


def test_output_does_not_depend_on_the_other_documents(keyed):
    keys = [f"document {place}" for place in range(len(CORPUS))]
    together = list(keyed.pipe(CORPUS, keys))
    alone = [keyed.privatize(text, key=key) for text, key in zip(CORPUS, keys, strict=True)]
    backwards = list(keyed.pipe(CORPUS[::-1], keys[::-1]))[::-1]
    assert together == alone == backwards


def test_the_same_document_under_another_key_is_released_otherwise(keyed):
    text = CORPUS[3]
    assert keyed.privatize(text, key=1) != keyed.privatize(text, key=2)
    assert keyed.privatize(text, key=1) != keyed.privatize(text, key="1")


def test_another_run_key_releases_otherwise(mechanism, keyed):
    other = Privatizer(mechanism, run_key=b"L" * 32)
    assert other.privatize(CORPUS[3], key=1) != keyed.privatize(CORPUS[3], key=1)


def test_unseeded_releases_differ_every_time(mechanism):
    privatizer = Privatizer(mechanism)
    assert privatizer.privatize(CORPUS[3]) != privatizer.privatize(CORPUS[3])


def test_two_unseeded_privatizers_differ_also_under_the_same_key(mechanism):
    first, second = Privatizer(mechanism), Privatizer(mechanism)
    assert first.privatize(CORPUS[3], key=1) != second.privatize(CORPUS[3], key=1)


def test_equal_documents_of_one_seeded_run_are_drawn_independently(mechanism):
    first, second = Privatizer(mechanism, seed=1).pipe([CORPUS[3]] * 2)
    assert first != second


def test_a_seed_repeats_its_run_and_another_seed_does_not(mechanism):
    first, again, other = (list(Privatizer(mechanism, seed=s).pipe(CORPUS)) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_pipe_reads_its_texts_as_they_are_asked_for(mechanism):
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield "film"

    stream = Privatizer(mechanism).pipe(endless(), batch_size=3)
    next(stream)
    assert read == [0, 1, 2]


# Awkward texts


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" ", 1),
        ("\x00", 1),
        ("film\x00night", 1),
        ("👨‍👩‍👧 film", 6),
        ("שלום עולם", 2),
        ("مرحبا film", 2),
        ("e\u0301\u0301\u0301 film", 2),
        ("\ud800", 1),
        ("film \udfff\ud800 night", 4),
        ("\ufeff film", 2),
        ("\u202efilm", 1),
    ],
)
def test_awkward_text_is_drawn_token_by_token(drawing, text, count):
    words = tokens_of(drawing, text).words
    assert len(words) == count
    assert set(words) <= SET


@pytest.mark.parametrize("text", ["...", "?!", "\n\n", "; ;"])
def test_a_text_of_kept_tokens_only_is_released_without_a_draw(mechanism, text):
    tokens = tokens_of(Privatizer(mechanism), text)
    assert tokens.counts["sampled"] == 0
    assert len(tokens) > 0


@pytest.mark.parametrize("character", ["x", "é", "."])
def test_a_token_of_a_million_characters_takes_seconds(drawing, character):
    begin = time.perf_counter()
    words = tokens_of(drawing, character * 1_000_000).words
    assert time.perf_counter() - begin < 10
    assert set(words) <= SET


def test_an_empty_text_among_others_stays_empty(keyed):
    found = list(keyed.pipe(["", "film", ""], [1, 2, 3]))
    assert found[0] == found[2] == ""
    assert found[1] in SET


def test_no_texts_give_no_texts(keyed):
    assert list(keyed.pipe([], [])) == []
    assert keyed.release([], []) == []


# Mistakes


@pytest.mark.parametrize("few", [-1, 100], ids=["compiled", "few"])
@pytest.mark.parametrize("drawn", [[0], [0, 1, 2], [0, 1 << 20], [-1, 0]])
def test_draws_that_are_not_one_word_for_each_token_are_refused(mechanism, monkeypatch, drawn, few):
    privatizer = Privatizer(mechanism)
    privatizer._few = few
    wrong = np.array(drawn, dtype=np.int32)
    monkeypatch.setattr(mechanism, "sample_documents", lambda *_: wrong)
    raw = privatizer.read_batch(EncodedTexts.of(["film bad"]))
    for release in (privatizer.release, privatizer.release_batch):
        with pytest.raises(MechanismError, match="one word id for every token"):
            release(raw)


@pytest.mark.parametrize("wrong", [None, 5, b"zorblax", ["zorblax"]])
def test_what_is_no_text_is_refused_with_its_position_and_without_being_quoted(mechanism, wrong):
    with pytest.raises(TextprivError, match="document 3 is of type") as refusal:
        list(Privatizer(mechanism).pipe(["film"] * 3 + [wrong], batch_size=2))
    assert "zorblax" not in str(refusal.value)


def test_too_few_keys_are_refused_with_the_position(mechanism):
    with pytest.raises(TextprivError, match="document 2 has none"):
        list(Privatizer(mechanism).pipe(["film"] * 3, keys=["a", "b"], batch_size=2))


def test_one_text_is_not_taken_for_several(mechanism):
    with pytest.raises(TextprivError, match="Put one text in a list"):
        list(Privatizer(mechanism).pipe("film"))


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_of_no_documents_is_refused(mechanism, batch_size):
    with pytest.raises(TextprivError, match="from 1 up"):
        list(Privatizer(mechanism).pipe(["film"], batch_size=batch_size))


def test_a_run_key_without_keys_is_refused(keyed):
    with pytest.raises(TextprivError, match="pass keys="):
        keyed.privatize("film")


def test_a_run_key_and_a_seed_exclude_each_other(mechanism):
    with pytest.raises(TextprivError, match="not both"):
        Privatizer(mechanism, seed=1, run_key=RUN_KEY)


def test_what_is_no_mechanism_is_refused(index):
    with pytest.raises(TextprivError, match=r"needs a mechanism .* got Index"):
        Privatizer(index)


def test_what_is_no_policy_is_refused(mechanism):
    with pytest.raises(TextprivError, match=r"TokenPolicy.from_dict"):
        Privatizer(mechanism, {"unknown": "mask"})


def test_an_unknown_language_is_refused(mechanism):
    with pytest.raises(TextprivError, match="no language 'qq'"):
        Privatizer(mechanism, language="qq").privatize("film")


# Secrets


def test_a_pickled_privatizer_holds_no_raw_word_that_it_has_read(mechanism):
    privatizer = Privatizer(mechanism, TokenPolicy(unknown="keep"), seed=1)
    privatizer.privatize("zorblax quiverneth")
    packed = pickle.dumps(privatizer)
    assert b"zorblax" not in packed
    assert b"quiverneth" not in packed
    again = pickle.loads(packed)
    assert (again.policy, again.seed) == (privatizer.policy, 1)
    assert again.mechanism.settings() == mechanism.settings()


def test_a_run_key_does_not_travel(keyed):
    packed = pickle.dumps(keyed)
    assert RUN_KEY not in packed
    with pytest.raises(TextprivError, match="the key is a secret"):
        pickle.loads(packed)


def test_a_pickled_unseeded_privatizer_takes_new_randomness(mechanism):
    privatizer = Privatizer(mechanism)
    again = pickle.loads(pickle.dumps(privatizer))
    assert again.privatize(CORPUS[3], key=1) != privatizer.privatize(CORPUS[3], key=1)


def test_raw_words_stay_out_of_a_vocabulary_that_others_use(mechanism):
    nlp = spacy.blank("en")
    Privatizer(mechanism).privatize("frobnicatorish words")
    assert "frobnicatorish" not in nlp.vocab.strings
    assert "frobnicatorish" not in spacy.blank("en").vocab.strings


def test_repr_shows_no_secret(keyed):
    assert "KKKK" not in repr(keyed)


def test_raw_tokens_hold_no_string_that_is_not_released(mechanism):
    assert Privatizer(mechanism).read("Zorblax quiverneth 42, the").kept == [","]


# The statement


def test_the_statement_names_what_the_policy_does_not_protect(mechanism):
    policy = TokenPolicy(number="keep", unknown="mask")
    statement = Privatizer(mechanism, policy).statement
    assert set(policy.not_protected()) <= set(statement.not_protected)
    assert set(policy.notes()) <= set(statement.notes)
    assert statement.epsilon == mechanism.epsilon


def test_a_seed_takes_the_proof_away(mechanism):
    assert Privatizer(mechanism).statement.proved
    assert Privatizer(mechanism, run_key=RUN_KEY).statement.proved
    statement = Privatizer(mechanism, seed=0).statement
    assert not statement.proved
    assert any("seeded" in note for note in statement.notes)


@pytest.mark.parametrize("mark", ["!", "(", "a.b-", "\N{GRINNING FACE}"])
def test_a_stretch_that_is_too_long_for_a_word_is_one_unknown_word_and_read_at_once(mark):
    # Cutting by rules would take time that grows with the square of the stretch: minutes for these.
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary(["good", "film"], rng.normal(size=(2, 3)))
    mechanism = TEM(Index.build(vocabulary, hnsw=False), 1.0)
    privatizer = Privatizer(mechanism, TokenPolicy(unknown="mask"))
    read = privatizer.read("good " + mark * 200_000 + " film")
    assert read.counts == {"sampled": 2, "masked": 1}


@pytest.mark.parametrize("number", range(3))
def test_texts_are_put_together_as_their_tokens_say(mechanism, number):
    policy = [TokenPolicy(), TokenPolicy(unknown="keep"), TokenPolicy(unknown="mask")][number]
    texts = ["good (film) !", "", "( the ) zorblax's  film\n\n\n", "!", "film", "« the » ’s"]
    whole = list(Privatizer(mechanism, policy, seed=4).pipe(texts))
    assert whole == [
        tokens_of(Privatizer(mechanism, policy, seed=4), text, place).text
        for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize("tokens", [1, 7, 40])
def test_draws_do_not_depend_on_how_many_tokens_are_drawn_at_a_time(mechanism, monkeypatch, tokens):
    texts = ["good film", "", "the bad actor and the music of seven", "!", *["night river"] * 20]
    whole = list(Privatizer(mechanism, seed=4).pipe(texts))
    monkeypatch.setattr(module, "_TOKENS", tokens)
    assert list(Privatizer(mechanism, seed=4).pipe(texts)) == whole


def test_words_that_never_arrive_as_one_token_are_counted_and_named(tmp_path):
    words = ["good", "well-known", "film", "gonna", "Paris"]
    index = Index.build(Vocabulary(words, np.random.default_rng(0).normal(size=(5, 3))))

    def named(privatizer):
        return [note for note in privatizer.statement.notes if "as one token" in note]

    mechanism = TEM(index, 2.0)
    (note,) = named(Privatizer(mechanism))
    assert note.startswith("3 of the 5 words")
    assert '"well-known"' in note
    (note,) = named(Privatizer(mechanism, TokenPolicy(case="keep")))
    assert note.startswith("2 of the 5 words")
    plain = Index.build(Vocabulary(["good", "film"], np.eye(2)))
    assert named(Privatizer(TEM(plain, 2.0))) == []


def test_the_count_of_words_that_are_cut_lies_beside_the_index(tmp_path, monkeypatch):
    words = ["good", "well-known", "film"]
    index = Index.build(Vocabulary(words, np.eye(3)))
    statement = Privatizer(TEM(index, 2.0)).statement
    index.save(tmp_path / "saved")
    monkeypatch.setattr("textpriv.tokenization.encoder.split_words", lambda *given: 1 / 0)
    loaded = Index.load(tmp_path / "saved")
    assert Privatizer(TEM(loaded, 2.0)).statement.notes == statement.notes
