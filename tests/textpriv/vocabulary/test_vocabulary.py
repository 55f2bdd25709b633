"""Vocabularies: what they read, what they refuse and with which line, and their priors."""

from __future__ import annotations

import gzip
import pickle
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from textpriv import Vocabulary
from textpriv.errors import VocabularyError

WORDS = ["the", "cat", "sat", "mat"]
VECTORS = np.array(
    [[0.5, -1.25, 3.0], [0.0, 2.0, -0.125], [1.0, 1.0, 1.0], [-4.0, 0.25, 8.0]], dtype=np.float32
)
TOKENS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \n\ufeff"), min_size=1, max_size=8
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def text_of(words, vectors, *, header=False) -> bytes:
    rows = zip(words, vectors.tolist(), strict=True)
    lines = [f"{word} {' '.join(map(repr, row))}" for word, row in rows]
    head = [f"{len(words)} {vectors.shape[1]}"] if header else []
    return "".join(f"{line}\n" for line in head + lines).encode()


def binary_of(words, vectors, row_end=b"") -> bytes:
    rows = zip(words, vectors.astype("<f4"), strict=True)
    head = f"{len(words)} {vectors.shape[1]}\n".encode()
    return head + b"".join(word.encode() + b" " + row.tobytes() + row_end for word, row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("vectors")


def load_bytes(folder, data: bytes, **options) -> Vocabulary:
    (folder / "vectors").write_bytes(data)
    return Vocabulary.load(folder / "vectors", **options)


# Construction


@pytest.mark.parametrize(
    ("kind", "kept"),
    [("f4", "f4"), ("f8", "f8"), (">f8", "f8"), ("f2", "f4"), ("i8", "f4")],
)
def test_double_precision_is_kept_else_single(kind, kept):
    vocabulary = Vocabulary(["a", "b"], np.array([[1, 2], [3, 4]], dtype=kind))
    assert vocabulary.vectors.dtype == np.dtype(kept)
    assert vocabulary.vectors.tolist() == [[1, 2], [3, 4]]


def test_vectors_are_read_only_views_of_the_callers_array():
    mine = VECTORS.copy()
    vocabulary = Vocabulary(WORDS, mine)
    assert np.shares_memory(vocabulary.vectors, mine)
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.vectors[0, 0] = 1.0
    mine[0, 0] = 7.0


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        ([], np.empty((0, 3)), r"shape \(V, n\)"),
        (["a", "b"], np.zeros(2), r"shape \(V, n\)"),
        (["a"], np.zeros((2, 3)), "1 words and 2 vectors"),
        (["a", ""], np.zeros((2, 3)), "id 1 is empty"),
        (["a", 7], np.zeros((2, 3)), "id 1 is empty or no text"),
        (["a", "\ud800"], np.zeros((2, 3)), "surrogate"),
        (["a", "b", "a"], np.zeros((3, 3)), "id 2 repeats the one with id 0"),
        (["a", "b"], [[0.0, 1.0], [np.nan, 0.0]], "id 1 has a value that is not finite"),
        (["a", "b"], [[0.0, 1.0], [0.0]], "real numbers"),
        (["a"], np.zeros((1, 2), dtype=complex), "real numbers"),
    ],
)
def test_what_is_no_vocabulary_is_refused(words, vectors, message):
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(words, vectors)


def test_words_can_be_left_out():
    whole = Vocabulary(["a", "b", "c"], np.arange(3.0)[:, None], [5, 4, 3], "de")
    left = whole.without(["b", "z"])
    assert (left.words, left.prior.tolist(), left.language) == (["a", "c"], [5, 3], "de")
    assert left.vectors[:, 0].tolist() == [0, 2]
    with pytest.raises(VocabularyError, match="Every word"):
        whole.without("abc")


def test_lower_case_keeps_the_first_word_and_all_counts():
    words = ["Haus", "gut", "haus", "Gut", "rot"]
    lowered = Vocabulary(words, np.arange(5.0)[:, None], [5, 4, 3, 2, 1], "de").lowered()
    assert lowered.words == ["haus", "gut", "rot"]
    assert lowered.vectors[:, 0].tolist() == [0, 1, 4]
    assert lowered.prior.tolist() == [8, 6, 1]


def test_words_are_found_by_text_or_id():
    vocabulary = Vocabulary(WORDS, VECTORS)
    assert vocabulary.ids(WORDS[::-1]).tolist() == [3, 2, 1, 0]
    assert (vocabulary.resolve("cat"), vocabulary.resolve(1)) == (1, 1)
    assert "cat" in vocabulary
    assert "Cat" not in vocabulary
    for word in ("dog", 4, -1):
        with pytest.raises(VocabularyError, match=r"lacks|from 0 to 3"):
            vocabulary.resolve(word)


def test_fingerprint_changes_with_every_part():
    changed = VECTORS.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], np.float32(9))
    vocabularies = [
        Vocabulary(WORDS, VECTORS),
        Vocabulary(WORDS, changed),
        Vocabulary(WORDS, VECTORS.astype(np.float64)),
        Vocabulary(["th", "ecat", "sat", "mat"], VECTORS),
        Vocabulary(WORDS[::-1], VECTORS[::-1]),
        Vocabulary(WORDS[:2], VECTORS.reshape(2, 6)),
    ]
    assert len({vocabulary.fingerprint() for vocabulary in vocabularies}) == 6
    again = pickle.loads(pickle.dumps(vocabularies[0]))
    assert again.fingerprint() == vocabularies[0].fingerprint()


# Files


@given(
    st.lists(TOKENS, min_size=1, max_size=8, unique=True).flatmap(
        lambda words: st.tuples(
            st.just(words), hnp.arrays(np.float32, (len(words), 5), elements=FLOATS)
        )
    ),
    st.sampled_from(["text", "header", "binary", "binary with line ends"]),
    st.booleans(),
)
def test_files_give_back_what_was_written(folder, table, form, packed):
    words, vectors = table
    data = {
        "text": text_of(words, vectors),
        "header": text_of(words, vectors, header=True),
        "binary": binary_of(words, vectors),
        "binary with line ends": binary_of(words, vectors, b"\n"),
    }[form]
    found = load_bytes(folder, gzip.compress(data) if packed else data)
    assert found.words == words
    np.testing.assert_array_equal(found.vectors, vectors)
    few = load_bytes(folder, data, limit=1)
    assert few.words == words[:1]


def test_words_may_contain_spaces(folder):
    found = load_bytes(folder, b"the 0.5 1\n. . . 2 3\nat name@domain.com 4 5\n")
    assert found.words == ["the", ". . .", "at name@domain.com"]
    assert found.vectors.tolist() == [[0.5, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SECRET 1 2\nb 1\n", "line 2: expected a word and 2 values"),
        (b"SECRET 1 2\nb 1 2 3\n", "line 2: expected a word and 2 values"),
        (b"SECRET 1 2\nb  1 2\n", "line 2: expected a word and 2 values"),
        (b"SECRET 1 2\nb 1 x\n", "line 2: expected a word and 2 values"),
        (b"SECRET 1 2\nb 1 1_0\n", "line 2: expected a word and 2 values"),
        (b"SECRET 1 2\n\nb 1 2\n", "line 2: the line is empty"),
        (b"SECRET 1 2\n\xff 1 2\n", "line 2: the word is not UTF-8"),
        (b"SECRET 1 2\nb nan 2\n", "not finite"),
        (b"SECRET 1 2\nb 1e39 2\n", "not finite"),
        (b"SECRET 1 2\nSECRET 1 2\n", "id 1 repeats"),
        (b"3 2\nSECRET 1 2\nb 1 2\n", "promises 3 words, and the file has 2"),
        (b"1 2\nSECRET 1 2\nb 1 2\n", "line 3: the header promises 1"),
        (b"SECRET prose\nmore SECRET prose\n", "line 1: expected a word"),
        (b"\xef\xbb\xbfSECRET 1 2\n", "byte order mark"),
        (b"1 2 3\n4 5 6\n", "line 1: whole numbers alone"),
        (b"2 2\n1 2 3\n4 5 6\n", "line 2: whole numbers alone"),
        (b"", "empty"),
        (binary_of(["SECRET", "b"], VECTORS[:2])[:-1], "promises 2 words, and the file has 1"),
        (binary_of(["SECRET", "b"], VECTORS[:2]) + b"xy", "the file has more"),
        (gzip.compress(b"SECRET 1 2\n" * 900, mtime=0)[:-30], "gzip"),
    ],
)
def test_damaged_files_are_refused_and_never_quoted(folder, data, message):
    with pytest.raises(VocabularyError, match=message) as caught:
        load_bytes(folder, data)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_is_never_opened_but_refused_with_what_to_do(folder, protocol):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("opened",)

    data = pickle.dumps(Trap(), protocol)
    for content in (data, gzip.compress(data)):
        with pytest.raises(VocabularyError, match=r"it is a pickle.*save_word2vec_format"):
            load_bytes(folder, content)


def test_binary_values_that_look_like_numbers_are_read(folder):
    row = np.frombuffer(struct.pack("<f", 1.0) + b"1 2 3 4 5 6 ", "<f4")[None]
    found = load_bytes(folder, binary_of(["a"], row))
    np.testing.assert_array_equal(found.vectors, row)


def test_missing_sources_are_refused(tmp_path):
    for source in (tmp_path / "none.txt", "no_such_package", 3, tmp_path):
        with pytest.raises(VocabularyError):
            Vocabulary.load(source)
    with pytest.raises(VocabularyError, match="at least 1"):
        Vocabulary.load("builtin:en", limit=0)


# gensim and spaCy


def test_keyed_vectors_and_models_are_taken_over():
    keyed = SimpleNamespace(index_to_key=WORDS, vectors=VECTORS)
    for source in (keyed, SimpleNamespace(wv=keyed)):
        found = Vocabulary.load(source, limit=3)
        assert found.words == WORDS[:3]
        np.testing.assert_array_equal(found.vectors, VECTORS[:3])


def pipeline():
    nlp = spacy.blank("de")
    nlp.vocab.reset_vectors(shape=(3, 2))
    for row, words in enumerate([["gut", "super"], ["Haus"], ["rot"]]):
        for word in words:
            nlp.vocab.vectors.add(nlp.vocab.strings.add(word), row=row)
        nlp.vocab.vectors.data[row] = row + 1.0
    return nlp


def test_spacy_tables_give_one_word_a_row(tmp_path):
    found = Vocabulary.load(pipeline())
    assert (found.words, found.language) == (["gut", "Haus", "rot"], "de")
    assert found.vectors[:, 0].tolist() == [1, 2, 3]
    counted = Vocabulary.load(pipeline(), prior={"super": 9, "gut": 1, "rot": 20})
    assert counted.words == ["rot", "super", "Haus"]
    pipeline().to_disk(tmp_path / "saved")
    assert Vocabulary.load(tmp_path / "saved", limit=2).words == ["gut", "Haus"]


def test_spacy_without_a_word_table_is_refused():
    with pytest.raises(VocabularyError, match="no table"):
        Vocabulary.load(spacy.blank("en"))
    nlp = pipeline()
    nlp.vocab.vectors.add(12345, row=0)
    with pytest.raises(VocabularyError, match="without a string"):
        Vocabulary.load(nlp)


# Priors


def test_zipf_uniform_and_counts_are_the_named_priors():
    vocabulary = Vocabulary(WORDS, VECTORS, prior=[4, 3, 2, 1])
    zipf = vocabulary.prior_weights("zipf")
    np.testing.assert_allclose(zipf / zipf[0], 3.7 / (np.arange(1, 5) + 2.7))
    assert vocabulary.prior_weights("uniform").tolist() == [0.25] * 4
    np.testing.assert_allclose(vocabulary.prior_weights("counts"), [0.4, 0.3, 0.2, 0.1])
    with pytest.raises(VocabularyError, match="carries no counts"):
        Vocabulary(WORDS, VECTORS).prior_weights("counts")
    with pytest.raises(VocabularyError, match="to the mechanism"):
        Vocabulary(WORDS, VECTORS, prior="zipf")


def test_words_without_a_count_get_half_of_the_smallest(tmp_path):
    (tmp_path / "counts").write_bytes(gzip.compress(b"the 6\ncat 0\nmat 2\nother 99\n"))
    vocabulary = Vocabulary(WORDS, VECTORS)
    for prior in ({"the": 6, "cat": 0, "mat": 2}, tmp_path / "counts"):
        assert (vocabulary.prior_weights(prior) * 10).round(12).tolist() == [6, 1, 1, 2]
    loaded = load_bytes(tmp_path, text_of(WORDS, VECTORS), prior=tmp_path / "counts", limit=2)
    assert loaded.prior.tolist() == [6, 3]


@given(hnp.arrays(np.float64, 4, elements=st.floats(1e-100, 1e100)))
def test_every_prior_is_positive_and_sums_to_one(weights):
    found = Vocabulary(WORDS, VECTORS).prior_weights(weights)
    assert (found > 0).all()
    assert abs(found.sum() - 1) < 1e-12


@pytest.mark.parametrize(
    "prior",
    [
        [1, 2, 3],
        [1, 0, 2, 3],
        [1, -1, 2, 3],
        [1, np.inf, 2, 3],
        [[1, 2, 3, 4]],
        ["a", "b", "c", "d"],
        {"the": -1},
        {"the": float("nan")},
        {"dog": 3},
        {},
        "zipff",
        [1e308, 1e-308, 1, 1],
    ],
)
def test_prior_that_would_make_a_word_impossible_is_refused(prior):
    with pytest.raises(VocabularyError):
        Vocabulary(WORDS, VECTORS).prior_weights(prior)


@pytest.mark.parametrize("prior", [[1, 0, 2, 3], [1, np.nan, 2, 3], {"the": 0}])
def test_carried_prior_that_would_make_a_word_impossible_is_refused(prior):
    with pytest.raises(VocabularyError):
        Vocabulary(WORDS, VECTORS, prior)


@pytest.mark.parametrize("content", ["SECRET\n", "SECRET 1_000\n", "a -1\n", "a 1\na 2\n", ""])
def test_bad_count_files_are_refused_with_the_line(tmp_path, content):
    (tmp_path / "counts").write_text(content)
    with pytest.raises(VocabularyError, match=r"counts, line \d") as caught:
        Vocabulary(WORDS, VECTORS).prior_weights(tmp_path / "counts")
    assert "SECRET" not in str(caught.value)


# Real vectors


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("glove-840B-2k.300d.txt.gz", (2_200, 300)),
        ("glove-twitter27B-12k.25d.txt.gz", (11_925, 25)),
        ("imdb-unsup-sg-40k.300d.bin.gz", (40_731, 300)),
    ],
)
def test_real_files_are_read_as_gensim_reads_them(real_data, name, shape):
    path = real_data / "embeddings" / name
    found = Vocabulary.load(path)
    assert found.vectors.shape == shape
    models = pytest.importorskip("gensim.models")
    binary = ".bin" in name
    expected = models.KeyedVectors.load_word2vec_format(
        str(path), limit=2_000, binary=binary, no_header=not binary
    )
    assert found.words[:2_000] == expected.index_to_key
    np.testing.assert_array_equal(found.vectors[:2_000], expected.vectors)
