"""Decoded text is a function of private text and public models, is what its form says, and says how often it is right."""

from __future__ import annotations

import numpy as np
import pytest
import small_trees as trees
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.evaluation.context_recovery import Candidates, context_posterior, likeliest_paths
from textpriv.evaluation.decoding import FORMS, MARK, Decoder, expected_recovery
from textpriv.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms import TEM, TreeTEM
from textpriv.privatizer import Privatizer
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

SIZE = 12
WORDS = "red green blue sea sky sun dog cat fox tea milk oil".split()


@pytest.fixture(scope="module")
def index():
    vectors = np.random.default_rng(1).normal(size=(SIZE, 3))
    return Index.build(Vocabulary(WORDS, vectors), k=8, hnsw=False)


@pytest.fixture(scope="module")
def model():
    ids = np.random.default_rng(2).integers(-1, SIZE, 400).astype(np.int32)
    return NGrams.train(ids, np.array([0, 400]), SIZE)


@pytest.mark.parametrize("form", FORMS)
def test_equal_private_text_is_decoded_alike_whatever_the_original(index, model, form):
    originals = {name: Privatizer(TEM(index, 1.0)) for name in ("Red, milk!", "Zanzibar, oil!")}
    # Of 1,000 releases of each original many are equal, since only 144 can come out.
    released = [set(privatizer.pipe([name] * 1000)) for name, privatizer in originals.items()]
    common = sorted(set.intersection(*released))[:5]
    assert common
    first, second = (
        [Decoder(privatizer, model, form=form, seed=3).texts([text]) for text in common]
        for privatizer in originals.values()
    )
    assert first == second


def test_the_probable_form_is_the_likeliest_path_and_no_word_is_unknown(index, model):
    privatizer = Privatizer(TEM(index, 1.0))
    decoder = Decoder(privatizer, model)
    outputs, offsets = np.array([0, 3, 5, 5]), np.array([0, 3, 4])
    prior = np.append(model.single[:-1], 0)
    candidates = Candidates.of(privatizer.mechanism, prior, SIZE)
    found = decoder.words(outputs, offsets)
    assert found.tolist() == likeliest_paths(outputs, offsets, candidates, model).tolist()
    assert found.max() < SIZE
    assert decoder.texts(["red sea sun", "sun"]) == [
        MARK + " ".join(WORDS[i] for i in part) for part in (found[:3], found[3:])
    ]


@pytest.mark.parametrize("tree", [False, True])
def test_the_nearest_form_has_the_least_expected_distance(index, tree):
    mechanism = TreeTEM(trees.random_tree(12, 4, 3), 1.0) if tree else TEM(index, 1.0)
    ids = np.random.default_rng(2).integers(0, 12, 300).astype(np.int32)
    model = NGrams.train(ids, np.array([0, 300]), 12)
    outputs, offsets = np.array([0, 3, 5, 0, 11]), np.array([0, 5])
    found = Decoder(Privatizer(mechanism), model, form="nearest").words(outputs, offsets)
    candidates = Candidates.of(mechanism, np.append(model.single[:-1], 0), 12)
    shares = context_posterior(outputs, offsets, candidates, model)
    apart = np.array([mechanism.index.distances_of(np.array([w]))[0] for w in range(12)])
    expected = shares @ apart
    assert_allclose(expected[np.arange(5), found], expected.min(axis=1), rtol=1e-6)


def test_sampled_words_are_drawn_anew_and_again_with_the_seed(index, model):
    privatizer, private = Privatizer(TEM(index, 0.5)), ["red sea sun dog milk"] * 4
    first, again = (Decoder(privatizer, model, form="sampled", seed=1) for _ in range(2))
    texts = first.texts(private)
    assert texts == again.texts(private)
    assert len(set(texts)) > 1


def test_what_was_kept_or_masked_stands_and_the_statement_is_repeated(index, model):
    policy = TokenPolicy(unknown="mask", number="keep")
    privatizer = Privatizer(TEM(index, 60.0), policy)
    decoder = Decoder(privatizer, model)
    assert decoder.texts(["red [MASK], 17 dog!", "", "[MASK]"]) == [
        MARK + "red [MASK], 17 dog!",
        MARK,
        MARK + "[MASK]",
    ]
    ours, theirs = decoder.statement.to_dict(), privatizer.statement.to_dict()
    assert "was decoded from private text" in ours["notes"][-1]
    ours["notes"] = ours["notes"][:-1]
    assert ours == {**theirs, "notes": list(theirs["notes"])}


def test_numbers_and_marks_outside_the_vocabulary_stand(index, model):
    decoder = Decoder(Privatizer(TEM(index, 60.0), TokenPolicy(punctuation="sample")), model)
    text = "red 31 three ; [PERSON] 1,250 dog!"
    assert decoder.texts([text, "red"]) == [MARK + text.replace(" ;", ";"), MARK + "red"]


def test_numbers_of_the_vocabulary_are_guessed_where_numbers_are_drawn():
    vectors = np.array([[0.0], [0.1], [9.0]])
    index = Index.build(Vocabulary(["two", "three", "far"], vectors), k=3, hnsw=False)
    model = NGrams.train(np.zeros(50, np.int32), np.array([0, 50]), 3)
    assert Decoder(Privatizer(TEM(index, 1.0)), model).texts(["three 7"]) == [MARK + "two 7"]
    kept = Privatizer(TEM(index, 1.0), TokenPolicy(number="keep"))
    assert Decoder(kept, model).texts(["three 7"]) == [MARK + "three 7"]


def test_recovery_is_everything_where_nothing_is_replaced_and_little_where_all_is(index, model):
    ids = np.random.default_rng(5).integers(-1, SIZE, 300).astype(np.int32)
    offsets = np.array([0, 100, 300])
    all_of_it = expected_recovery(Decoder(Privatizer(TEM(index, 500.0)), model), ids, offsets)
    assert (all_of_it.words, all_of_it.kept, all_of_it.restored) == ((ids >= 0).sum(), 1.0, 1.0)
    assert np.isnan(all_of_it.content_restored)
    assert "nan" not in str(all_of_it)
    blind = expected_recovery(Decoder(Privatizer(TEM(index, 1e-6)), model), ids, offsets)
    assert blind.restored < 0.4
    with pytest.raises(TextprivError, match="no word of the public text"):
        expected_recovery(Decoder(Privatizer(TEM(index, 1.0)), model), ids[:0], offsets[:1])


def test_what_cannot_be_decoded_is_refused(index, model):
    privatizer = Privatizer(TEM(index, 1.0))
    with pytest.raises(TextprivError, match="form is one of"):
        Decoder(privatizer, model, form="best")
    with pytest.raises(TextprivError, match="use one vocabulary"):
        Decoder(privatizer, NGrams.alone(np.ones(5) / 5))
    with pytest.raises(TextprivError, match="from 1 up"):
        Decoder(privatizer, model, count=0)
