"""What a vocabulary reads, what it refuses and with which place, and what its priors are."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from textpriv.errors import TextprivError, VocabularyError
from textpriv.vocabulary import Vocabulary
from textpriv.vocabulary import vocabulary as module

DATA = Path(
    os.environ.get("TEXTPRIV_DATA", Path(__file__).resolve().parents[3].parent / "shared/data")
)
EMBEDDINGS = DATA / "embeddings"

WORDS = ["the", "cat", "sat", "mat"]
VECTORS = np.array(
    [[0.5, -1.25, 3.0], [0.0, 2.0, -0.125], [1.0, 1.0, 1.0], [-4.0, 0.25, 8.0]], dtype=np.float32
)

# Any characters but those that end a word or a line in the formats, and the byte order mark.
TOKENS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \n\ufeff"), min_size=1, max_size=8
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 8) -> tuple[list[str], np.ndarray]:
    words = draw(st.lists(TOKENS, min_size=1, max_size=max_rows, unique=True))
    columns = draw(st.integers(2, 6))
    return words, draw(hnp.arrays(np.float32, (len(words), columns), elements=FLOATS))


def text_of(words, vectors, *, header: bool = False, line_end: str = "\n") -> bytes:
    lines = [
        f"{word} " + " ".join(repr(float(x)) for x in row)
        for word, row in zip(words, vectors, strict=True)
    ]
    if header:
        lines.insert(0, f"{len(words)} {vectors.shape[1]}")
    return "".join(line + line_end for line in lines).encode()


def binary_of(words, vectors, *, row_end: bytes = b"") -> bytes:
    rows = [
        word.encode() + b" " + row.astype("<f4").tobytes() + row_end
        for word, row in zip(words, vectors, strict=True)
    ]
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


def load_bytes(folder: Path, data: bytes, **options) -> Vocabulary:
    path = folder / "vectors"
    path.write_bytes(data)
    return Vocabulary.load(path, **options)


def assert_holds(vocabulary: Vocabulary, words, vectors) -> None:
    assert vocabulary.words == list(words)
    assert vocabulary.vectors.dtype == np.float32
    np.testing.assert_array_equal(vocabulary.vectors, vectors)


def refusal(folder: Path, data: bytes, **options) -> str:
    with pytest.raises(VocabularyError) as caught:
        load_bytes(folder, data, **options)
    return str(caught.value)


# Construction


def test_words_can_be_left_out_also_of_the_built_in_ones():
    given = Vocabulary(["a", "b", "c"], np.arange(3.0)[:, None], [5, 4, 3], "de")
    left = given.without(["b", "z"])
    assert (left.words, left.prior.tolist(), left.language) == (["a", "c"], [5, 3], "de")
    assert left.vectors[:, 0].tolist() == [0, 2]
    with pytest.raises(VocabularyError, match="Every word"):
        given.without("abc")
    few = Vocabulary.load("builtin:en", limit=3)
    assert (few.words, few.language) == (["the", "of", "to"], "en")


def test_in_lower_case_the_first_of_equal_words_stays_with_the_counts_of_all():
    words = ["Haus", "gut", "haus", "Gut", "rot"]
    given = Vocabulary(words, np.arange(5.0)[:, None], [5, 4, 3, 2, 1], "de")
    lowered = given.lowered()
    assert lowered.words == ["haus", "gut", "rot"]
    assert lowered.vectors[:, 0].tolist() == [0, 1, 4]
    assert lowered.prior.tolist() == [8, 6, 1]
    assert lowered.language == "de"


def test_the_refusal_is_an_error_of_the_users_kind():
    assert issubclass(VocabularyError, TextprivError)


@pytest.mark.parametrize(
    ("given_type", "kept_type"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (">f8", np.float64),
        (">f4", np.float32),
        (np.float16, np.float32),
        (np.int64, np.float32),
    ],
)
def test_double_precision_is_kept_and_all_else_becomes_single(given_type, kept_type):
    vocabulary = Vocabulary(["a", "b"], np.array([[1, 2], [3, 4]], dtype=given_type))
    assert vocabulary.vectors.dtype == kept_type
    assert vocabulary.vectors.dtype.isnative
    assert vocabulary.vectors.tolist() == [[1, 2], [3, 4]]


def test_vectors_are_contiguous_and_read_only():
    vocabulary = Vocabulary(WORDS, np.asfortranarray(VECTORS))
    assert vocabulary.vectors.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.vectors[0, 0] = 1.0


def test_the_callers_array_stays_writable_and_unchanged():
    given_array = VECTORS.copy()
    vocabulary = Vocabulary(WORDS, given_array, prior=[1, 2, 3, 4])
    vocabulary.duplicate_groups()
    vocabulary.fingerprint()
    assert given_array.flags.writeable
    assert given_array.tobytes() == VECTORS.tobytes()


def test_a_contiguous_array_is_not_copied():
    given_array = VECTORS.copy()
    assert np.shares_memory(Vocabulary(WORDS, given_array).vectors, given_array)


def test_a_memory_mapped_array_stays_mapped(tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    vocabulary = Vocabulary(WORDS, mapped)
    assert np.shares_memory(vocabulary.vectors, mapped)


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        ([], np.empty((0, 3)), "at least one word"),
        (["a"], np.empty((1, 0)), "at least one value"),
        (["a", "b"], np.zeros(2), r"shape \(V, n\)"),
        (["a"], np.zeros((2, 3)), "1 words and 2 vectors"),
        (["a", ""], np.zeros((2, 3)), "id 1 is empty"),
        (["a", 7], np.zeros((2, 3)), "id 1 is of type int"),
        (["a", "\ud800"], np.zeros((2, 3)), "id 1 holds half of a surrogate"),
        (["a", "b", "a", "b"], np.zeros((4, 3)), "id 2 repeats the word with id 0, and 2 repeated"),
        (["a", "b"], [[0.0, 1.0], [np.nan, 0.0]], "vector of the word with id 1"),
        (["a", "b"], [[0.0, np.inf], [0.0, 0.0]], "vector of the word with id 0"),
        (["a", "b"], [[0.0, 1.0], [0.0]], "ragged"),
        (["a"], np.zeros((1, 2), dtype=complex), "real numbers"),
        (["a"], [["x", "y"]], "real numbers"),
        ("ab", np.zeros((2, 3)), "one string"),
    ],
)
def test_what_cannot_be_a_vocabulary_is_refused(words, vectors, message):
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(words, vectors)


def test_a_value_too_large_for_single_precision_is_refused():
    with pytest.raises(VocabularyError, match="too large for float32"):
        Vocabulary(["a"], np.array([[2**130]], dtype=np.longdouble))


def test_the_first_bad_row_is_named_in_a_table_of_many_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_VALUES", 4)
    vectors = np.zeros((11, 2))
    vectors[[7, 9], 1] = np.nan
    with pytest.raises(VocabularyError, match="with id 7"):
        Vocabulary([f"w{i}" for i in range(11)], vectors)


# Looking up


def test_ids_are_positions():
    vocabulary = Vocabulary(WORDS, VECTORS)
    assert len(vocabulary) == 4
    assert [vocabulary.id(word) for word in WORDS] == [0, 1, 2, 3]
    ids = vocabulary.ids(word for word in ["mat", "the", "mat"])
    assert ids.dtype == np.int32
    assert ids.tolist() == [3, 0, 3]
    assert vocabulary.ids([]).shape == (0,)


@pytest.mark.parametrize("wrong", ["dog", -1, 4, 0.5, True, None, [0]])
def test_a_word_is_given_as_text_or_id_and_by_nothing_else(wrong):
    vocabulary = Vocabulary(WORDS, VECTORS)
    assert [vocabulary.resolve(word) for word in ["mat", 0, np.int32(3)]] == [3, 0, 3]
    with pytest.raises(VocabularyError):
        vocabulary.resolve(wrong)


def test_membership_is_that_of_words_as_written():
    vocabulary = Vocabulary(WORDS, VECTORS)
    assert "cat" in vocabulary
    assert "Cat" not in vocabulary
    assert 1 not in vocabulary
    assert ["cat"] not in vocabulary


@pytest.mark.parametrize("look_up", [lambda v: v.id("dog"), lambda v: v.ids(["cat", "dog"])])
def test_an_absent_word_is_refused_by_name(look_up):
    with pytest.raises(VocabularyError, match="lacks 'dog'"):
        look_up(Vocabulary(WORDS, VECTORS))


# Reading files


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.gz", "v"])
@pytest.mark.parametrize(
    "data",
    [
        text_of(WORDS, VECTORS),
        text_of(WORDS, VECTORS, header=True),
        text_of(WORDS, VECTORS, header=True, line_end=" \n"),
        text_of(WORDS, VECTORS, line_end="\r\n"),
        text_of(WORDS, VECTORS) + b"\n \n",
        text_of(WORDS, VECTORS).rstrip(),
        binary_of(WORDS, VECTORS),
        binary_of(WORDS, VECTORS, row_end=b"\n"),
    ],
    ids=["glove", "header", "trailing-space", "crlf", "blank-end", "no-end", "binary", "binary-nl"],
)
def test_the_content_and_not_the_name_tells_the_format(tmp_path, data, name, packed):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if packed else data)
    assert_holds(Vocabulary.load(path), WORDS, VECTORS)
    assert_holds(Vocabulary.load(str(path)), WORDS, VECTORS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), header=st.booleans())
def test_text_gives_back_what_was_written(tmp_path, table, header):
    assert_holds(load_bytes(tmp_path, text_of(*table, header=header)), *table)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), row_end=st.sampled_from([b"", b"\n"]))
def test_binary_gives_back_what_was_written(tmp_path, table, row_end):
    assert_holds(load_bytes(tmp_path, binary_of(*table, row_end=row_end)), *table)


def test_binary_rows_may_lie_across_the_pieces_in_which_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("textpriv.vocabulary.readers._READ_BYTES", 5)
    assert_holds(load_bytes(tmp_path, binary_of(WORDS, VECTORS)), WORDS, VECTORS)


@pytest.mark.parametrize("binary", [False, True])
def test_files_that_gensim_writes_are_read_as_gensim_reads_them(tmp_path, binary):
    models = pytest.importorskip("gensim.models")
    rng = np.random.default_rng(5)
    written = models.KeyedVectors(20)
    words = [f"wörd{i}" for i in range(300)]
    written.add_vectors(words, rng.standard_normal((300, 20), dtype=np.float32))
    path = str(tmp_path / "v")
    written.save_word2vec_format(path, binary=binary)
    expected = models.KeyedVectors.load_word2vec_format(path, binary=binary)
    assert_holds(Vocabulary.load(path), expected.index_to_key, expected.vectors)


def test_a_word_may_contain_spaces(tmp_path):
    words = ["the", ". . .", "at name@domain.example", "and"]
    for header in (False, True):
        assert_holds(load_bytes(tmp_path, text_of(words, VECTORS, header=header)), words, VECTORS)


def test_a_first_word_with_spaces_does_not_set_the_number_of_values(tmp_path):
    words = [". . .", "the", "cat", "sat"]
    assert_holds(load_bytes(tmp_path, text_of(words, VECTORS)), words, VECTORS)


def test_a_word_may_look_like_a_number_or_hold_odd_blanks(tmp_path):
    words = ["3", "nan", "a\xa0b", "\x85"]
    assert_holds(load_bytes(tmp_path, text_of(words, VECTORS)), words, VECTORS)


@pytest.mark.parametrize(
    "write",
    [
        text_of,
        lambda words, vectors: text_of(words, vectors, header=True),
        binary_of,
    ],
    ids=["glove", "header", "binary"],
)
def test_limit_keeps_the_first_words(tmp_path, write):
    data = write(WORDS, VECTORS)
    for limit in range(1, 7):
        vocabulary = load_bytes(tmp_path, data, limit=limit)
        assert_holds(vocabulary, WORDS[:limit], VECTORS[:limit])


@pytest.mark.parametrize("header", [False, True])
def test_limit_reads_no_further_than_needed(tmp_path, header):
    data = text_of(WORDS, VECTORS, header=header).replace(b"sat ", b"sat not-a-number ")
    assert load_bytes(tmp_path, data, limit=2).words == WORDS[:2]
    with pytest.raises(VocabularyError):
        load_bytes(tmp_path, text_of(WORDS, VECTORS).replace(b"sat 1.0", b"sat x"), limit=3)


@pytest.mark.parametrize("limit", [0, -1, 2.0, True, "3"])
def test_a_limit_that_is_no_positive_whole_number_is_refused(tmp_path, limit):
    assert "above 0" in refusal(tmp_path, text_of(WORDS, VECTORS), limit=limit)


# Refusing files. SECRET stands for what a wrong file may hold; no message may repeat it.

GOOD = "SECRET0 0.5 0.25\nSECRET1 0.75 1.5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "SECRET2 0.5\n", "line 3: expected a word and 2 values .* found 1 values"),
        (GOOD + "SECRET2\n", "line 3: .* found 0 values"),
        (GOOD + "SECRET2 0.5 0.5 0.5\n", "line 3: .* more values"),
        (GOOD + "SECRET2  0.5 0.5\n", "line 3: .* stray spaces"),
        (GOOD + " SECRET2 0.5 0.5\n", "line 3: .* stray spaces"),
        (GOOD + "SECRET2 0.5 SECRET\n", "line 3: value 2 of 2 is not a number"),
        (GOOD + "SECRET2 SECRET 0.5\n", "line 3: value 1 of 2 is not a number"),
        (GOOD + "SECRET2 0.5 1_0\n", "line 3: value 2 of 2 is not a number"),
        (GOOD + "SECRET2 0.5 \n", "line 3: .* found 1 values"),
        (GOOD + "SECRET2 nan 0.5\n", "not, or is too large .* line 3"),
        (GOOD + "SECRET2 0.5 -inf\n", "not, or is too large .* line 3"),
        (GOOD + "SECRET2 1e39 0.5\n", "too large for float32.* line 3"),
        (GOOD + "SECRET2 1e400 0.5\n", "too large for float32.* line 3"),
        (GOOD + "SECRET0 0.5 0.5\n", "line 3 .* repeats the word on line 1 "),
        (GOOD + " 0.5 0.5\n", "line 3 .* is empty"),
        (GOOD + "\nSECRET2 0.5 0.5\n", "line 3: the line is empty"),
        ("3 2\n" + GOOD, "line 3: the header says 3 rows and the file ends after 2"),
        ("3 2\n", "line 1: the header says 3 rows and the file ends after 0"),
        ("1 2\n" + GOOD, "line 3: the header says 1 rows, and here is one more"),
        ("2 2\n" + GOOD.replace("0.75", "SECRET"), "line 3: value 1 of 2 is not a number"),
        ("2 2\n" + GOOD.replace("SECRET1", "SECRET0"), "line 3 .* repeats the word on line 2 "),
        ("0 2\n", "at least 1 word"),
        ("2 0\n" + GOOD, "1 to 65,536 values"),
        ("2 99999999\n" + GOOD, "1 to 65,536 values"),
        ("SECRET\nSECRET\n", "lines without values"),
        ("SECRET0\t0.5\t0.5\n", "lines without values"),
        ("\n\n", "lines without values"),
        ("SECRET is no vector file\nbut SECRET prose in lines\n", "is not a number"),
        ("\ufeff" + GOOD, "byte order mark"),
        ("", "empty file"),
    ],
)
def test_bad_text_is_refused_with_its_place_and_without_quoting_it(tmp_path, text, message):
    with pytest.raises(VocabularyError, match=message) as caught:
        load_bytes(tmp_path, text.encode())
    assert "SECRET" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_text_with_a_bad_first_row_under_a_header_is_still_read_as_text(tmp_path):
    data = b"1 6\na 0.5 x 0.5 0.5 y 0.5\n"
    assert "line 2: value 2 of 6 is not a number" in refusal(tmp_path, data)


def test_binary_values_whose_bytes_look_like_a_short_number_are_not_read_as_text(tmp_path):
    vectors = np.frombuffer(b"0\nKI0\nKI", dtype="<f4").reshape(1, 2)
    assert_holds(load_bytes(tmp_path, binary_of(["a"], vectors)), ["a"], vectors)


def test_a_word_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    with pytest.raises(VocabularyError, match="line 2: the word is not UTF-8") as caught:
        load_bytes(tmp_path, b"a 0.5 0.5\n\xff\xfe 0.5 0.5\n")
    assert "byte 0xff" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (binary_of(["a", "b", "a"], VECTORS[:3]), "row 3 .* repeats the word on row 1 "),
        (binary_of(["a", "b"], VECTORS[:2] * [[1], [np.nan]]), "row 2 "),
        (binary_of(["a", ""], VECTORS[:2]), "row 2 .* is empty"),
        (binary_of(["a", "b"], VECTORS[:2]) + b"\nc", "row 2: the header says 2 rows, and more"),
        (b"3" + binary_of(["a", "b"], VECTORS[:2])[1:], "row 3: .* end of the file"),
        (binary_of(["a", "b"], VECTORS[:2]).replace(b"b ", b"\xff "), "row 2: .* not UTF-8"),
    ],
    ids=["repeated", "nan", "empty-word", "more", "fewer", "not-utf8"],
)
def test_bad_binary_data_are_refused_with_their_row(tmp_path, data, message):
    with pytest.raises(VocabularyError, match=message):
        load_bytes(tmp_path, data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(max_rows=4), share=st.floats(0, 1, exclude_max=True))
def test_a_binary_file_cut_anywhere_is_refused(tmp_path, table, share):
    data = binary_of(*table)
    refusal(tmp_path, data[: int(share * len(data))])


@pytest.mark.parametrize("write", [text_of, binary_of])
def test_a_packed_file_cut_anywhere_is_refused(tmp_path, write):
    data = gzip.compress(write(WORDS, VECTORS))
    for length in range(len(data)):
        refusal(tmp_path, data[:length])


def test_a_cut_packed_file_is_refused_with_the_last_whole_line(tmp_path):
    # Stored without compression, the lines before the cut can still be read.
    data = gzip.compress(text_of([f"w{i}" for i in range(200)], np.ones((200, 9))), 0)
    message = refusal(tmp_path, data[:-100])
    assert "cut short or damaged after line 19" in message


def test_packed_data_with_a_wrong_checksum_are_refused(tmp_path):
    data = bytearray(gzip.compress(text_of(WORDS, VECTORS)))
    data[-6] ^= 1
    assert "damaged" in refusal(tmp_path, bytes(data))


def test_a_pickle_is_refused_and_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        message = refusal(tmp_path, pickle.dumps(Trap(), protocol))
        assert protocol < 2 or "load it yourself" in message
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("head", "remedy"),
    [
        (b"PK\x03\x04", "Unpack"),
        (b"BZh91AY&SY", "Unpack"),
        (b"\xfd7zXZ\x00", "Unpack"),
        (b"\x28\xb5\x2f\xfd", "Unpack"),
        (b"\x93NUMPY", "numpy.load"),
        (struct.pack("<i", 793712314), "load_facebook_vectors"),
    ],
)
def test_other_kinds_of_file_are_refused_by_name(tmp_path, head, remedy):
    assert remedy in refusal(tmp_path, head + bytes(64))


def test_a_source_that_is_nothing_known_is_refused(tmp_path):
    with pytest.raises(VocabularyError, match="found dict"):
        Vocabulary.load({"a": [1.0]})
    with pytest.raises(VocabularyError, match="Check the path"):
        Vocabulary.load(str(tmp_path / "absent.txt"))
    with pytest.raises(VocabularyError, match="Check the path"):
        Vocabulary.load("no_such_package_xy")


def test_a_missing_path_object_is_refused(tmp_path):
    with pytest.raises(VocabularyError, match="absent"):
        Vocabulary.load(tmp_path / "absent.txt")


# gensim and spaCy objects


def test_keyed_vectors_and_models_that_hold_them_are_taken_over():
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(3)
    keyed.add_vectors(WORDS, VECTORS)
    assert_holds(Vocabulary.load(keyed), WORDS, VECTORS)
    assert_holds(Vocabulary.load(keyed, limit=2), WORDS[:2], VECTORS[:2])
    assert_holds(Vocabulary.load(SimpleNamespace(wv=keyed)), WORDS, VECTORS)


def test_keyed_vectors_with_a_bad_row_are_refused():
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(3)
    keyed.add_vectors(["a", "b"], np.array([[0, 0, 0], [0, np.nan, 0]], dtype=np.float32))
    with pytest.raises(VocabularyError, match="index 1 in the KeyedVectors"):
        Vocabulary.load(keyed)


@pytest.fixture
def language():
    spacy = pytest.importorskip("spacy")
    from spacy.vectors import Vectors

    nlp = spacy.blank("en")
    nlp.vocab.vectors = Vectors(strings=nlp.vocab.strings, data=VECTORS.copy(), keys=WORDS)
    for word in WORDS:
        nlp.vocab.strings.add(word)
    return nlp


def test_a_spacy_language_is_read_in_the_order_of_its_rows(language):
    assert_holds(Vocabulary.load(language), WORDS, VECTORS)
    assert_holds(Vocabulary.load(language, limit=3), WORDS[:3], VECTORS[:3])


def test_of_words_that_share_a_spacy_row_the_first_is_taken(language):
    for row, word in enumerate(["a", "kitten"]):
        language.vocab.vectors.add(word, row=row)
        language.vocab.strings.add(word)
    assert_holds(Vocabulary.load(language), WORDS, VECTORS)


def test_of_words_that_share_a_spacy_row_the_commonest_by_a_prior_is_taken(language):
    for row, word in enumerate(["a", "kitten"]):
        language.vocab.vectors.add(word, row=row)
        language.vocab.strings.add(word)
    counts = {"mat": 9, "kitten": 7, "cat": 3, "sat": 2, "the": 8, "a": 5}
    vocabulary = Vocabulary.load(language, prior=counts)
    assert_holds(vocabulary, ["mat", "the", "kitten", "sat"], VECTORS[[3, 0, 1, 2]])
    assert Vocabulary.load(language, prior=counts, limit=2).words == ["mat", "the"]


def test_a_spacy_key_without_its_string_is_refused(language):
    language.vocab.vectors.add(123456789, row=1)
    with pytest.raises(VocabularyError, match="1 keys without one"):
        Vocabulary.load(language)


def test_a_saved_pipeline_is_read_from_its_folder(language, tmp_path):
    language.to_disk(tmp_path / "pipeline")
    assert_holds(Vocabulary.load(tmp_path / "pipeline"), WORDS, VECTORS)


def test_an_installed_package_is_found_by_name(language, monkeypatch):
    import spacy

    monkeypatch.setattr(spacy.util, "is_package", lambda name: name == "xx_words_md")
    monkeypatch.setattr(spacy, "load", lambda name: language)
    assert_holds(Vocabulary.load("xx_words_md"), WORDS, VECTORS)


def test_a_folder_that_is_no_pipeline_is_refused(tmp_path):
    with pytest.raises(VocabularyError, match="spaCy cannot load it"):
        Vocabulary.load(tmp_path)


def test_a_pipeline_without_a_word_table_is_refused(language):
    spacy = pytest.importorskip("spacy")
    with pytest.raises(VocabularyError, match="without any"):
        Vocabulary.load(spacy.blank("en"))
    floret = SimpleNamespace(mode="floret", key2row={}, data=VECTORS)
    with pytest.raises(VocabularyError, match="floret"):
        Vocabulary.load(SimpleNamespace(vocab=SimpleNamespace(vectors=floret, strings={})))


# Equal and zero rows


def test_zero_rows_are_allowed_and_listed():
    vectors = np.array([[0.0, 0.0], [0.0, 1e-40], [-0.0, 0.0], [1.0, -1.0]], dtype=np.float32)
    assert Vocabulary(WORDS, vectors).zero_rows().tolist() == [0, 2]
    assert Vocabulary(WORDS, VECTORS).zero_rows().tolist() == []


def brute_force_groups(vectors) -> list[int]:
    first: dict[tuple[float, ...], int] = {}
    return [first.setdefault(tuple(row), i) for i, row in enumerate(vectors.tolist())]


@pytest.mark.parametrize("collide", [False, True])
@given(
    vectors=st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.tuples(st.integers(1, 40), st.integers(1, 3)),
            elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, 2.5]),
        )
    )
)
def test_duplicate_groups_agree_with_brute_force_whatever_the_hash(collide, vectors):
    vocabulary = Vocabulary([str(i) for i in range(len(vectors))], vectors)
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(module, "_row_hashes", lambda rows: np.zeros(len(rows), np.uint64))
        groups = vocabulary.duplicate_groups()
    assert groups.dtype == np.int32
    assert groups.tolist() == brute_force_groups(vectors)


def test_signs_alone_spread_over_the_low_bits_of_the_hash():
    # The signs are the highest bits of floats; a plain sum of multiples leaves the low bits alike.
    signs = np.sign(np.random.default_rng(1).standard_normal((20_000, 64))).astype(np.float32)
    low_bits = module._row_hashes(signs) & np.uint64(0xFFFF_FFFF)
    assert len(np.unique(low_bits)) > 19_990


# Priors


def test_zipf_is_one_over_rank_plus_2_7():
    weights = Vocabulary(WORDS, VECTORS).prior_weights("zipf")
    np.testing.assert_allclose(weights[0] / weights, [1, 4.7 / 3.7, 5.7 / 3.7, 6.7 / 3.7])
    assert weights.sum() == pytest.approx(1)


def test_uniform_gives_all_words_the_same():
    assert Vocabulary(WORDS, VECTORS).prior_weights("uniform").tolist() == [0.25] * 4


def test_an_array_is_normalised():
    weights = Vocabulary(WORDS, VECTORS).prior_weights([1, 2, 3, 4])
    np.testing.assert_allclose(weights, [0.1, 0.2, 0.3, 0.4])


def test_a_word_without_a_count_gets_half_of_the_smallest():
    vocabulary = Vocabulary(WORDS, VECTORS)
    # "sat" has no count and "mat" none above 0; "dog" is no word of the vocabulary.
    weights = vocabulary.prior_weights({"the": 7, "cat": 2, "mat": 0, "dog": 0.1})
    np.testing.assert_allclose(weights, np.array([7, 2, 1, 1]) / 11)


def test_carried_counts_are_used_by_name():
    vocabulary = Vocabulary(WORDS, VECTORS, prior={"the": 6, "cat": 2})
    assert vocabulary.prior.tolist() == [6, 2, 1, 1]
    assert not vocabulary.prior.flags.writeable
    np.testing.assert_allclose(vocabulary.prior_weights("counts"), [0.6, 0.2, 0.1, 0.1])


def test_counts_by_name_need_a_vocabulary_that_carries_them():
    with pytest.raises(VocabularyError, match="carries none"):
        Vocabulary(WORDS, VECTORS).prior_weights("counts")


@pytest.mark.parametrize("packed", [False, True])
def test_counts_are_read_from_a_file(tmp_path, packed):
    path = tmp_path / "counts"
    data = b"the 6\ncat\t2.0\n. . . 9\ndog 5\n"
    path.write_bytes(gzip.compress(data) if packed else data)
    vocabulary = Vocabulary(["the", "cat", ". . ."], VECTORS[:3], prior=path)
    assert vocabulary.prior.tolist() == [6, 2, 9]
    np.testing.assert_allclose(vocabulary.prior_weights(str(path)), np.array([6, 2, 9]) / 17)


def test_load_takes_a_prior_for_the_words_that_it_keeps(tmp_path):
    data = text_of(WORDS, VECTORS)
    assert load_bytes(tmp_path, data, limit=2, prior=[3.0, 1.0]).prior.tolist() == [3, 1]
    assert "shape (2,)" in refusal(tmp_path, data, limit=2, prior=[1.0, 1.0, 1.0, 1.0])


@given(
    st.dictionaries(st.sampled_from(WORDS), st.floats(1e-100, 1e100), min_size=1),
    st.dictionaries(st.sampled_from(["dog", "bird"]), st.floats(0, 1e300)),
)
def test_every_prior_is_positive_and_sums_to_one(inside, outside):
    weights = Vocabulary(WORDS, VECTORS).prior_weights({**outside, **inside})
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([1, 2, 3], r"shape \(4,\)"),
        ([[1, 2, 3, 4]], r"shape \(4,\)"),
        ([1, 0, -1, 2], "found 2 that are not, the first at position 1"),
        ([1, 2, np.nan, np.inf], "found 2 that are not, the first at position 2"),
        (["a", "b", "c", "d"], "real numbers"),
        ([[1], 2, 3, 4], "real numbers"),
        (7j, "real numbers"),
        (None, "real numbers"),
        ({"the": -1}, "entry 0"),
        ({"the": 1, "dog": np.nan}, "entry 1"),
        ({"the": 1, "cat": np.inf}, "entry 1"),
        ({"the": "many"}, "entry 0"),
        ({"the": None}, "entry 0"),
        ({"dog": 5}, "none of its 4 words"),
        ({}, "none of its 4 words"),
        ("zipff", "no file and not one of"),
        ([1e-320, 1e300, 1, 1], "float64 can normalise"),
    ],
)
def test_a_prior_that_would_not_keep_every_word_possible_is_refused(prior, message):
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(WORDS, VECTORS).prior_weights(prior)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"the 5\ncat\n", "line 2"),
        (b"the 5\ncat many\n", "line 2"),
        (b"the 5\ncat -1\n", "line 2"),
        (b"the 5\ncat nan\n", "line 2"),
        (b"the 5\ncat inf\n", "line 2"),
        (b"the 5\ncat 1_000\n", "line 2"),
        (b"the 5\n\ncat 1\n", "line 2: the line is empty"),
        (b"the 5\nthe 6\n", "line 2: the word has a count already"),
        (b"the 5\n\xff 6\n", "line 2: the word is not UTF-8"),
        (b"", "empty file"),
        # A fixed time: these bytes name the test, which must have one name in every process of the suite.
        (gzip.compress(b"the 5\ncat 2\n", mtime=0)[:-9], "damaged after line"),
    ],
)
def test_a_bad_file_of_counts_is_refused_with_its_line(tmp_path, data, message):
    path = tmp_path / "counts.txt"
    path.write_bytes(data)
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(WORDS, VECTORS).prior_weights(path)


@pytest.mark.parametrize("name", ["zipf", "uniform", "counts"])
def test_a_prior_by_name_belongs_to_the_mechanism(name):
    with pytest.raises(VocabularyError, match="to the mechanism"):
        Vocabulary(WORDS, VECTORS, prior=name)


# Fingerprint


def test_the_fingerprint_is_the_same_for_the_same_vocabulary():
    first = Vocabulary(WORDS, VECTORS)
    second = Vocabulary(tuple(WORDS), np.asfortranarray(VECTORS), prior=[1, 2, 3, 4])
    assert first.fingerprint() == second.fingerprint()
    assert len(bytes.fromhex(first.fingerprint())) == 32


def test_the_fingerprint_changes_with_every_part():
    changed = VECTORS.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], np.float32(9))
    vocabularies = [
        Vocabulary(WORDS, VECTORS),
        Vocabulary(WORDS, changed),
        Vocabulary(WORDS, VECTORS.astype(np.float64)),
        Vocabulary(["the", "cat", "sat", "rat"], VECTORS),
        Vocabulary(["th", "ecat", "sat", "mat"], VECTORS),
        Vocabulary(WORDS[::-1], VECTORS[::-1]),
        Vocabulary(WORDS[:3], VECTORS[:3]),
        Vocabulary(WORDS[:2], VECTORS.reshape(2, 6)),
    ]
    assert len({vocabulary.fingerprint() for vocabulary in vocabularies}) == len(vocabularies)


# Real vectors


def real(name: str) -> Path:
    path = EMBEDDINGS / name
    if not path.is_file():
        pytest.skip("the real vectors are not here; set TEXTPRIV_DATA to their folder")
    return path


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "shape", "first"),
    [
        ("word2vec-googlenews-8k.300d.txt.gz", (8_000, 300), "in"),
        ("glove-6B-3k.300d.txt.gz", (3_008, 300), "the"),
        ("glove-840B-2k.300d.txt.gz", (2_200, 300), ","),
        ("glove-6B-8k.50d.txt.gz", (8_453, 50), "the"),
        ("glove-twitter27B-12k.25d.txt.gz", (11_925, 25), "the"),
        ("imdb-unsup-sg-40k.300d.bin.gz", (40_731, 300), "the"),
    ],
)
def test_real_files_have_the_rows_that_their_description_says(name, shape, first):
    vocabulary = Vocabulary.load(real(name))
    assert vocabulary.vectors.shape == shape
    assert vocabulary.words[0] == first
    assert len(vocabulary.zero_rows()) == 0


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("glove-840B-2k.300d.txt.gz", {"no_header": True}),
        ("glove-twitter27B-12k.25d.txt.gz", {"no_header": True}),
        ("imdb-unsup-sg-40k.300d.bin.gz", {"binary": True}),
    ],
)
def test_real_files_are_read_as_gensim_reads_them(name, options):
    models = pytest.importorskip("gensim.models")
    path = real(name)
    expected = models.KeyedVectors.load_word2vec_format(str(path), limit=5_000, **options)
    assert_holds(Vocabulary.load(path, limit=5_000), expected.index_to_key, expected.vectors)


@pytest.mark.real_data
def test_real_counts_are_those_of_the_vocabulary_in_its_order():
    counts = real("imdb-unsup-sg-40k.counts.txt.gz")
    vocabulary = Vocabulary.load(real("imdb-unsup-sg-40k.300d.bin.gz"), prior=counts)
    lines = gzip.decompress(counts.read_bytes()).decode().splitlines()
    assert [line.rsplit(" ", 1)[0] for line in lines] == vocabulary.words
    assert vocabulary.prior.tolist() == [float(line.rsplit(" ", 1)[1]) for line in lines]
