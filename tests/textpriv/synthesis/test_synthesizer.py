"""``TextSynthesizer`` as users call it: fit, sample, words, files."""

from __future__ import annotations

import pickle
import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from small_synthesis import WORDS, public

from textpriv import TextprivError, TextSynthesizer
from textpriv.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.synthesis.features import EDGES
from textpriv.synthesis.release import NoisySums
from textpriv.synthesis.shrinkage import Prior, shrunk
from textpriv.vocabulary import Vocabulary

GOOD = ["the film was good", "good music and a good story", "a fine actor was good"]
BAD = ["the plot was bad", "a dull bad story", "bad music was dull"]


def made(epsilon=8.0, **settings):
    side = public()
    return TextSynthesizer(epsilon, 1e-5, index=side.index, model=side.model, **settings)


@pytest.fixture(scope="module")
def fitted():
    """Return a synthesizer of 6,000 short texts of two classes."""
    labels = np.repeat(["pos", "neg"], 3000)
    return made(classes=["neg", "pos"]).fit([*GOOD, ""] * 750 + [*BAD, ""] * 750, labels)


def test_drawn_records_have_the_words_of_their_class(fitted):
    frame = fitted.sample(2000, random_state=1)
    assert frame.columns.tolist() == ["text", "label"]
    shares = {
        (label, word): own.str.contains(word, case=False).mean()
        for label, own in frame.groupby("label").text
        for word in ("good", "bad")
    }
    assert shares["pos", "good"] > 4 * shares["neg", "good"]
    assert shares["neg", "bad"] > 4 * shares["pos", "bad"]
    assert (frame.label == "pos").mean() == pytest.approx(0.5, abs=0.06)


def test_drawn_texts_look_like_text(fitted):
    for text in fitted.sample(200, random_state=2).text:
        assert text == text[0].upper() + text[1:]
        assert text.endswith((".", "!", "?"))
        assert set(re.sub("[.,;:!?]", "", text.lower()).split()) <= set(WORDS)


def test_sentences_before_the_last_have_three_words(fitted):
    for text in fitted.sample(200, random_state=2).text:
        assert all(len(each.split()) >= 3 for each in re.split("[.!?]", text)[:-2])


def test_not_is_drawn_after_verbs_alone():
    words = ["did", "n't", "film"]
    vocabulary = Vocabulary(words, np.eye(3))
    index = Index.build(vocabulary, "euclidean", k=2)
    model = NGrams.count(["n't film n't did n't film."], vocabulary)
    fitted = TextSynthesizer(8.0, index=index, model=model).fit(["film n't did n't film"] * 3000)
    texts = " ".join(fitted.sample(200, random_state=0).text).lower()
    assert "didn't" in texts
    assert "n't" not in texts.replace("didn't", "")


def test_draws_repeat_with_a_seed_and_differ_without(fitted):
    assert fitted.sample(50, random_state=3).equals(fitted.sample(50, random_state=3))
    assert not fitted.sample(50).equals(fitted.sample(50))


def test_words_tell_classes_apart_with_standard_errors(fitted):
    found = fitted.words(top=2)
    assert found.columns.tolist() == ["label", "word", "tilt", "standard_error"]
    of_class = {label: set(own.word) for label, own in found.groupby("label")}
    assert "good" in of_class["pos"]
    assert "bad" in of_class["neg"]
    assert (found.standard_error > 0).all()


def test_words_come_by_falling_tilt_less_error(fitted):
    for _, own in fitted.words(top=len(WORDS)).groupby("label"):
        assert (own.tilt - own.standard_error).is_monotonic_decreasing


def test_words_of_one_class_are_compared_with_the_model():
    found = made().fit(["a film was good"] * 3000).words(top=12).set_index("word").tilt
    # Eight in nine of the model's texts lack it, none of the records.
    assert found["good"] > 0.5
    assert found["bad"] < 0


def test_the_classes_are_in_the_representation():
    assert repr(TextSynthesizer(1.0)) == "TextSynthesizer(epsilon=1.0, delta=1e-06)"
    assert repr(TextSynthesizer(1.0, classes=["a"])).endswith("classes=['a'])")


def test_records_without_labels_have_no_label():
    assert made().fit(GOOD * 100).sample(5, random_state=0).columns.tolist() == ["text"]


def test_labels_may_be_numbers():
    frame = made(classes=[0, 1]).fit(GOOD + BAD, np.array([1, 1, 1, 0, 0, 0])).sample(20, 0)
    assert set(frame.label) <= {0, 1}


def test_corpora_without_records_or_words_can_be_drawn():
    for texts in ([], [""] * 50, ["unheard"] * 50):
        assert len(made(1.0).fit(texts).sample(3, random_state=0)) == 3


def test_infinite_epsilon_is_stated_to_protect_nothing():
    statement = made(float("inf")).fit(GOOD).statement_
    assert not statement.proved
    assert "not private" in str(statement)


def test_a_saved_model_draws_the_same_texts(fitted, tmp_path):
    side, path = public(), tmp_path / "reviews.model"
    fitted.save(path)
    again = TextSynthesizer.load(path, index=side.index, model=side.model)
    assert again.sample(20, random_state=4).equals(fitted.sample(20, random_state=4))
    assert str(again.statement_) == str(fitted.statement_)
    assert [each.name for each in tmp_path.iterdir()] == ["reviews.model"]


def test_a_pickled_model_draws_the_same_texts(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.sample(20, random_state=4).equals(fitted.sample(20, random_state=4))


def test_a_model_over_other_words_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "reviews.model")
    other = Vocabulary([*WORDS[:-1], "book"], np.random.default_rng(0).normal(size=(12, 4)))
    index = Index.build(other, "euclidean", k=4)
    with pytest.raises(TextprivError, match="of another vocabulary"):
        TextSynthesizer.load(tmp_path / "reviews.model", index=index)


@pytest.mark.parametrize("damage", ["cut", "not one", "not finite"])
def test_a_damaged_file_is_refused(fitted, tmp_path, damage):
    path = tmp_path / "reviews.model"
    fitted.save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "not one":
        path.write_text("nothing")
    else:
        noisy, header = NoisySums.read_file(path)
        noisy.rows[0] = np.nan
        noisy.write(path, **header)
    with pytest.raises(TextprivError, match="no file of noisy sums"):
        TextSynthesizer.load(path, index=public().index)


def test_nothing_is_drawn_before_a_fit():
    with pytest.raises(TextprivError, match="Call fit or load first"):
        made().sample(3)


def test_tilts_are_found_again_where_noise_is_small():
    rng = np.random.default_rng(0)
    true = rng.normal(size=200) * 0.7
    expected = rng.uniform(50, 5000, size=200)
    noise = np.full(200, 4.0)
    seen = expected * np.exp(true) + rng.normal(size=200) * 2
    vectors = rng.normal(size=(200, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = shrunk(seen, expected, noise, vectors, Prior(0.5, 0.5))
    assert np.abs((found.tilts - true) / found.errors).mean() < 1.5
    # With nothing but noise, tilts stay near zero.
    lost = shrunk(seen, expected, noise * 1e9, vectors, Prior(0.5, 0.5))
    assert np.abs(lost.tilts).max() < 0.3


def test_a_word_of_one_class_of_many_keeps_its_tilt():
    # Of twenty classes one has nearly all of the first word; the others have their usual share.
    expected = np.append(1.0, np.full(199, 30.0))
    seen = np.append(20.0, np.full(199, 30.0))
    vectors = np.random.default_rng(0).normal(size=(200, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = shrunk(seen, expected, 1.5 + 0.35 * seen, vectors, Prior(0.3, 0.4))
    assert found.tilts[0] > 2
    assert np.abs(found.tilts[1:]).max() < 0.3


def test_an_index_of_another_language_needs_a_model():
    index = Index.build(Vocabulary(["ja", "nein"], np.eye(2), language="de"), "euclidean", k=2)
    with pytest.raises(TextprivError, match="no language model"):
        TextSynthesizer(1.0, index=index).fit(["ja"])
    words = NGrams.count(["ja nein."], index.vocabulary)
    assert len(TextSynthesizer(1.0, index=index, model=words).fit(["ja"]).sample(2)) == 2


def test_the_statement_says_that_facts_go_and_numbers_show(fitted):
    told = " ".join(str(fitted.statement_).split())
    assert "Facts do not survive" in told
    assert "their number" in told


def test_a_length_that_noise_alone_may_show_is_not_drawn(fitted):
    sigma, found = fitted.noisy_.lengths_sigma, np.zeros(len(EDGES))
    found[EDGES == 8], found[EDGES == 16], found[EDGES == 4096] = (
        900 * sigma,
        4.1 * sigma,
        3.9 * sigma,
    )
    generator = copy(fitted._generator)
    for lengths, most in ((found, 22), (found * 0, 22)):
        vars(generator).pop("_lengths", None)
        generator.noisy = replace(fitted.noisy_, lengths=lengths)
        drawn = generator._draw_lengths(2_000, np.random.default_rng(0))
        assert 16 <= drawn.max() <= most
