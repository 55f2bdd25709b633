"""The map of unknown words is a function of the word alone, and what is drawn keeps the guarantee of the images."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rapidfuzz")

from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.errors import CorpusError, TextprivError
from textpriv.index import Index
from textpriv.ledger import settings_fingerprint
from textpriv.mechanisms import TEM
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.run_key import RunKey
from textpriv.tokenization import nearest
from textpriv.tokenization.batches import EncodedTexts
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.nearest import NearestWords
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

WORDS = ["film", "films", "Paris", "garden", "gardens", "walking", "farm", "can't", "the"]
POLICY = TokenPolicy(unknown="nearest")
MISSPELT = ["flim", "fillm", "filmz", "paris", "gadren", "garedns", "walkign", "zorblax", "farmm", "qarden"]  # fmt: skip


@pytest.fixture(scope="module")
def index(vocabulary_of):
    vectors = np.random.default_rng(3).normal(size=(len(WORDS), 3))
    return Index.build(Vocabulary(WORDS, vectors))


@pytest.fixture(scope="module")
def mechanism(index):
    return TEM(index, epsilon=2.0)


def alone(word: str) -> int:
    """The image of a word by a map that has met no other."""
    return NearestWords(WORDS, "en").ids([word])[0]


def distance(first: str, second: str) -> int:
    """Optimal string alignment by its recursion (Herranz, Nin and Sole 2011), written out."""
    rows = [[i + j for j in range(len(second) + 1)] for i in range(len(first) + 1)]
    for i, j in itertools.product(range(1, len(first) + 1), range(1, len(second) + 1)):
        same = first[i - 1] == second[j - 1]
        least = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (not same))
        if i > 1 and j > 1 and first[i - 1] == second[j - 2] and first[i - 2] == second[j - 1]:
            least = min(least, rows[i - 2][j - 2] + 1)
        rows[i][j] = least
    return rows[-1][-1]


def slowly(word: str) -> int:
    """The map as its module says it, in words of one case and without tables."""
    folded = [each.casefold() for each in WORDS]
    if any(map(str.isdigit, word)):
        return UNKNOWN
    if word.casefold() in folded:
        return folded.index(word.casefold())
    if not 4 <= len(word) <= 64:
        return UNKNOWN
    most = 1 if len(word) < 8 else 2
    near = [(distance(word, each), i) for i, each in enumerate(folded) if each[0] == word[0]]
    return min((pair for pair in near if pair[0] <= most), default=(0, UNKNOWN))[1]


@given(
    st.one_of(
        st.text("abdefgilmnoprstw1'", max_size=9),
        st.tuples(st.sampled_from(WORDS), st.integers(0, 6), st.sampled_from("afs1"), st.booleans()).map(
            lambda edit: edit[0][: edit[1]] + edit[2] + edit[0][edit[1] + edit[3] :]
        ),
    ).map(str.lower)
)  # fmt: skip
def test_the_map_is_what_its_rules_say(word):
    assert alone(word) == slowly(word)


def test_of_words_that_are_as_near_the_first_of_the_vocabulary_is_taken():
    # One letter from film, and from films.
    assert NearestWords(["film", "films"], "en").ids(["filmt"]) == [0]
    assert NearestWords(["films", "film"], "en").ids(["filmt"]) == [0]


def test_an_image_depends_neither_on_the_words_before_nor_on_their_number(monkeypatch):
    monkeypatch.setattr(nearest, "_KEPT", 3)
    words = [*MISSPELT, *MISSPELT[::-1]]
    assert NearestWords(WORDS, "en").ids(words) == list(map(alone, words))


def test_a_long_word_is_left_without_being_compared(monkeypatch):
    words = NearestWords(WORDS, "en")
    monkeypatch.setattr(words, "_compare", None)
    assert words.ids(["g" * 10**6, "gar", "garden1"]) == [UNKNOWN] * 3
    assert max(map(len, words._known)) <= 64  # nor is it remembered


def test_lemmas_come_from_spacys_table_and_are_part_of_what_the_map_is_known_by(
    monkeypatch, mechanism
):
    from spacy.strings import get_string_id

    before, name = settings_fingerprint(mechanism, POLICY), nearest.map_name("en")
    nearest.map_name.cache_clear()
    monkeypatch.setattr(nearest, "lemmas", lambda language: {get_string_id("strolled"): "walking"})
    assert WORDS[alone("strolled")] == "walking"
    assert nearest.map_name("en") != name
    assert settings_fingerprint(mechanism, POLICY) != before
    nearest.map_name.cache_clear()


def test_chunks_and_whole_texts_are_mapped_alike_and_numbers_not_at_all():
    texts = ["A flim, fillm.", "can't Walkign 1987 the  paris", "zorblax gadren's"]
    apart = [TextEncoder(WORDS, POLICY, "en").encode(text).codes.tolist() for text in texts]
    chunked = TextEncoder(WORDS, POLICY, "en")
    chunked.compile()
    batch = chunked.encode_batch(EncodedTexts.of(texts))
    assert [part.tolist() for part in np.split(batch.codes, batch.offsets[1:-1])] == apart
    assert UNKNOWN in apart[1]
    assert {WORDS.index("walking"), WORDS.index("Paris")} <= set(apart[1])


def test_a_word_is_compared_once_however_often_it_stands(monkeypatch):
    met = []
    whole = NearestWords._image
    monkeypatch.setattr(
        NearestWords, "_image", lambda self, word: met.append(word) or whole(self, word)
    )
    reader = TextEncoder(WORDS, POLICY, "en")
    for _ in range(2):
        reader.encode("flim " * 1000 + "gadren")
    assert sorted(met) == ["flim", "gadren"]


def test_every_loss_is_that_between_the_images_and_within_the_statement(index, mechanism):
    """All pairs of words and misspellings, all outputs: the losses are at most epsilon times the distance of the images."""
    reader = Privatizer(mechanism, POLICY)
    words = [*WORDS[:2], "garden", *MISSPELT]
    codes = [int(reader.read(word).codes[0]) for word in words]
    assert codes == [alone(word) for word in words]
    laws = [mechanism.log_prob(code) for code in codes]
    figures, epsilon = reader.statement.figures, reader.statement.epsilon
    slack = figures["numerical_slack"] + 1e-9
    largest = 0.0
    for (one, law), (two, other) in itertools.product(zip(codes, laws, strict=True), repeat=2):
        loss = float(np.max(law - other))
        largest = max(largest, loss)
        if UNKNOWN not in (one, two):
            first, second = index.vocabulary.vectors[[one, two]]
            assert loss <= epsilon * np.linalg.norm(first - second) + slack
        elif one != two:
            assert loss <= figures["unknown_word_loss"] + slack
        if one == two:
            assert loss == 0
    assert 0 < largest <= figures["worst_word_loss"] + slack


def test_the_statement_names_the_map_and_says_that_images_are_what_is_protected(mechanism):
    (note,) = [
        each for each in Privatizer(mechanism, POLICY).statement.notes if "mapped to a word" in each
    ]
    assert nearest.map_name("en") in note
    assert "holds between the images" in note
    # Of two words outside the vocabulary that are mapped to two words, nobody may say that they share a law.
    (shared,) = [each for each in POLICY.notes() if "share one law" in each]
    assert shared.startswith("All words outside the vocabulary that are mapped to none share")
    assert not any("mapped" in note for note in Privatizer(mechanism).statement.notes)


def test_another_map_is_another_setting(mechanism, monkeypatch):
    text, key = "flim gadren the", b"K" * 32
    made = Privatizer(mechanism, POLICY, run_key=key)
    before = made.fingerprint
    assert before != Privatizer(mechanism, run_key=key).fingerprint
    monkeypatch.setattr("textpriv.tokenization.nearest.map_name", lambda language: "nearest 2")
    assert Privatizer(mechanism, POLICY, run_key=key).fingerprint != before
    assert made.privatize(text, key="a") == made.privatize("film garden the", key="a")


def test_without_rapidfuzz_the_error_says_how_to_get_it(mechanism, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rapidfuzz", None)
    with pytest.raises(TextprivError, match="rapidfuzz"):
        Privatizer(mechanism, POLICY)


@pytest.fixture
def corpus(tmp_path, demo_index):
    """A file of misspelt words, and the settings of a run over it."""
    rng = random.Random(5)
    words = [each for each in Index.load(demo_index).vocabulary.words if len(each) > 4][:50]
    rows = [
        " ".join(word[:-1] + rng.choice("xz") for word in rng.sample(words, 5)) for _ in range(30)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    settings = PrivatizerSettings(
        str(demo_index), options={"epsilon": 20.0}, policy={"unknown": "nearest"}, seed=1
    )
    return source, settings


def test_workers_release_the_same_and_other_words_than_without_the_map(corpus, tmp_path):
    source, settings = corpus
    for name, workers in {"one": 1, "two": 2}.items():
        privatize_corpus(
            source,
            tmp_path / name,
            settings.build(),
            format="jsonl",
            settings=settings,
            workers=workers,
            batch_size=7,
        )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_run_that_was_begun_with_another_map_is_not_continued(corpus, tmp_path, monkeypatch):
    source, settings = corpus
    key = RunKey.open(tmp_path / "key")
    settings = PrivatizerSettings(
        settings.index, options=settings.options, policy=settings.policy, run_key=key.secret
    )
    target = tmp_path / "out.jsonl"
    options = {"key": key, "part_records": 10, "batch_size": 5}

    def stop(progress):
        if progress.documents >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privatize_corpus(
            source, target, settings.build(), resume=False, on_progress=stop, **options
        )
    monkeypatch.setattr("textpriv.tokenization.nearest.map_name", lambda language: "nearest 2")
    with pytest.raises(CorpusError, match="settings"):
        privatize_corpus(source, target, settings.build(), resume=True, **options)
    monkeypatch.undo()
    report = privatize_corpus(source, target, settings.build(), resume=True, **options)
    assert report.resumed >= 10


def test_a_pipeline_maps_words_as_the_library_does(index, tmp_path):
    import spacy

    index.save(tmp_path / "index")
    config = {"index": str(tmp_path / "index"), "epsilon": 200.0, "policy": {"unknown": "nearest"}}
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config=config)
    assert nlp("flim gadren").text == "film garden"
