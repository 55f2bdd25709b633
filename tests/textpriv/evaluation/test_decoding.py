"""Decoded text is a function of private text and public models, and says how often it is right."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv import TEM
from textpriv.errors import TextprivError
from textpriv.evaluation.decoding import MARK, Decoder, expected_recovery
from textpriv.index import Index
from textpriv.language import NGrams
from textpriv.privatizer import Privatizer
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

SIZE = 12
WORDS = "red green blue sea sky sun dog cat fox tea milk oil".split()


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(1).normal(size=(SIZE, 3))
    return Index.build(Vocabulary(WORDS, vectors), "euclidean", k=8)


@pytest.fixture(scope="module")
def model():
    ids = np.random.default_rng(2).integers(-1, SIZE, 400)
    return NGrams.from_ids(ids, np.array([0, 400]), SIZE)


def test_equal_private_text_is_decoded_alike_whatever_the_original(index, model):
    originals = {name: Privatizer(TEM(index, 1.0)) for name in ("Red, milk!", "Zanzibar, oil!")}
    # Of 1,000 releases of each original many are equal, since only 144 can come out.
    released = [set(privatizer.pipe([name] * 1000)) for name, privatizer in originals.items()]
    common = sorted(set.intersection(*released))[:5]
    assert common
    first, second = (
        [Decoder(privatizer, model).texts([text]) for text in common]
        for privatizer in originals.values()
    )
    assert first == second


def test_what_was_kept_or_masked_stays_and_the_statement_is_repeated(index, model):
    policy = TokenPolicy(unknown="mask", number="keep")
    privatizer = Privatizer(TEM(index, 60.0), policy)
    decoder = Decoder(privatizer, model)
    given = ["red [MASK], 17 dog!", "", "[MASK]"]
    assert decoder.texts(given) == [MARK + text for text in given]
    ours, theirs = decoder.statement.to_dict(), privatizer.statement.to_dict()
    assert "was decoded from private text" in ours["notes"][-1]
    ours["notes"] = ours["notes"][:-1]
    assert ours == {**theirs, "notes": list(theirs["notes"])}


def test_numbers_of_the_vocabulary_are_guessed_where_numbers_are_drawn():
    vectors = np.array([[0.0], [0.1], [9.0]])
    index = Index.build(Vocabulary(["two", "three", "far"], vectors), "euclidean", k=3)
    model = NGrams.from_ids(np.zeros(50, np.int32), np.array([0, 50]), 3)
    assert Decoder(Privatizer(TEM(index, 1.0)), model).texts(["three 7"]) == [MARK + "two 7"]
    kept = Privatizer(TEM(index, 1.0), TokenPolicy(number="keep"))
    assert Decoder(kept, model).texts(["three 7"]) == [MARK + "three 7"]


def test_recovery_is_everything_where_nothing_is_replaced(index, model):
    ids = np.random.default_rng(5).integers(-1, SIZE, 300).astype(np.int32)
    offsets = np.array([0, 100, 300])
    whole = expected_recovery(Decoder(Privatizer(TEM(index, 500.0)), model), ids, offsets)
    assert (whole.words, whole.kept, whole.restored) == ((ids >= 0).sum(), 1.0, 1.0)
    blind = expected_recovery(Decoder(Privatizer(TEM(index, 1e-6)), model), ids, offsets)
    assert blind.restored < 0.4
    with pytest.raises(TextprivError, match="no word of the public text"):
        expected_recovery(Decoder(Privatizer(TEM(index, 1.0)), model), ids[:0], offsets[:1])


def test_a_model_of_other_words_is_refused(index):
    other = NGrams.from_ids(np.zeros(9, np.int32), np.array([0, 9]), SIZE + 1)
    with pytest.raises(TextprivError, match="Use one vocabulary"):
        Decoder(Privatizer(TEM(index, 1.0)), other).texts(["red"])
