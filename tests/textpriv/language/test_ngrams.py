"""N-gram models: counts by hand, distributions, exact draws and ARPA files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from textpriv.errors import TextprivError
from textpriv.language import NGrams
from textpriv.language.arpa import read_arpa
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import ONE, read_model, symbol_id, write_model
from textpriv.vocabulary import Vocabulary

MARKS = ("<s>", "<other>", ".")
IDS = np.array([0, 1, 0, 1, 0, 2, -1, 1, -4, 1], dtype=np.int32)  # -4 is the full stop
ENDS = np.array([0, 5, 10])
START, STOP, REST = 3, 5, 6  # tokens of three words and three symbols


def counted(size: int = 3) -> NGrams:
    return NGrams.from_ids(IDS, ENDS, size, symbols=MARKS)


def test_counts_are_discounted_and_back_off_to_one_token_less():
    model = counted()
    single = (np.array([3, 4, 1, 0, 0, 1, 1]) + 1) / 17
    assert_allclose(model.probability(np.arange(7)), single, atol=1e-8)
    # After 0: 1 twice, and no pair across the border of documents.
    after_0 = [0, 1.25 / 2, 0, 0, 0, 0, 0] + 0.375 * single
    assert_allclose(model.after(0), after_0, atol=1e-8)
    # After 0, 1: 0 twice.
    assert_allclose(
        model.after(0, 1), [1.25 / 2, 0, 0, 0, 0, 0, 0] + 0.375 * model.after(1), atol=1e-8
    )
    # After a pair that does not occur: as after its last token.
    assert_allclose(model.after(2, 0), model.after(0))
    # A document begins after the start, and its second word after start and first.
    assert model.probability(0, START) > 0.3
    assert model.probability(1, 0, START) > model.probability(1, 0)


def test_every_context_gives_each_word_weight_and_one_in_all():
    ids = np.random.default_rng(1).integers(-4, 6, 300)
    model = NGrams.from_ids(ids, np.array([0, 100, 100, 300]), 6, symbols=MARKS)
    for form, kept in ((model, slice(None)), (model.words_only(), [*range(6), 9])):
        for first in range(10):
            for context in ([first], *([first, second] for second in range(10))):
                law = form.after(*context)
                assert law.sum() == pytest.approx(1.0)
                assert law[kept].min() >= 1 / ONE / ONE / ONE


def test_neither_a_word_that_never_occurs_nor_one_after_a_certain_one_is_impossible():
    weights, certain = np.array([1.0, 0, 1, 0]), (np.array([0]), np.array([2]), np.array([1.0]))
    model = NGrams.from_probabilities(2, ("<s>",), weights, certain)
    assert model.after().min() > 0
    assert model.after(0).min() > 0


def test_words_only_is_the_model_given_that_a_word_follows():
    model = counted()
    for other in (True, False):
        kept = np.array([1, 1, 1, 0, 0, 0, other], bool)
        for context in ((0,), (0, 1), (STOP,), (1, STOP), (2, 2), (START, 0)):
            wanted = np.where(kept, model.after(*context), 0)
            found = model.words_only(other=other).after(*context)
            assert_allclose(found, wanted / wanted.sum(), atol=1e-7)


def test_a_tilted_model_is_the_model_times_factors_in_every_context():
    model, factors = counted(), np.array([0.1, 3, 1, 0, 0, 1, 7])
    for context in ((), (0,), (0, 1), (STOP,), (1, STOP), (2, 2), (START, 0)):
        wanted = factors * model.after(*context)
        found = model.tilted(factors).after(*context)
        assert_allclose(found, wanted / wanted.sum(), atol=1e-7)
        assert not found[factors == 0].any()


def test_draws_follow_the_distribution_of_their_context():
    model, rng = counted().words_only(), np.random.default_rng(0)
    for context in ((START, START), (START, 0), (0, 1), (2, 0), (1, STOP)):
        earlier, before = (np.full(20_000, token) for token in context)
        law = model.after(*context)
        times = np.bincount(model.draw(before, earlier, rng), minlength=7)
        assert not times[law == 0].any()
        # Five tests under one seed; a correct draw fails one of them with probability 5e-9.
        assert chisquare(times[law > 0], 20_000 * law[law > 0]).pvalue > 1e-9
    assert set(model.sample(500, rng).tolist()) == {-1, 0, 1, 2}


def test_perplexity_is_the_geometric_mean_over_words():
    model = counted()
    ids, offsets = np.array([0, 1, 0, -1, -4, 2, 2]), np.array([0, 5, 7])
    wanted = [model.after(START)[0], model.after(START, 0)[1], model.after(0, 1)[0]]
    wanted += [model.after(START)[2], model.after(START, 2)[2]]
    assert model.perplexity(ids, offsets) == pytest.approx(np.prod(wanted) ** (-1 / 5))


def test_text_is_counted_in_tokens_of_the_tokenizer():
    vocabulary = Vocabulary(["good", "film", "n't"], np.eye(3))
    model = NGrams.count(["A good film.", "Don't, good film!"], vocabulary)
    film, stop, comma = model.of_ids([1, symbol_id("."), symbol_id(",")])
    assert model.probability(film, 0) > 0.5
    assert model.probability(stop, film) > 0.15
    assert model.probability(comma, 2) > 0.15
    assert symbol_id("@") == symbol_id("<other>")


def test_ids_beyond_the_vocabulary_are_refused():
    with pytest.raises(TextprivError):
        counted(size=2)


ARPA = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=2

\\1-grams:
-99 <s> -0.3
-0.7 red -0.2
-0.6 green -0.1
-0.9 zanzibar -0.4
-1.0 </s>
-1.1 <unk>\t-0.5

\\2-grams:
-0.3 red green 0.1
-0.8 green green
-0.2 zanzibar red
-0.4 <s> red -0.1

\\3-grams:
-0.1 red green green
-0.2 <s> red green

\\end\\
"""


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "model.arpa"
    path.write_text(ARPA)
    return path


def test_an_arpa_file_keeps_its_probabilities_of_listed_words(arpa):
    model = read_arpa(arpa, ["green", "red", "blue"])
    single = np.array([10**-0.6, 10**-0.7, 0, 10**-1, 0, 10**-0.9 + 10**-1.1])
    assert_allclose(model.probability(np.arange(6)), single / single.sum(), atol=1e-8)
    assert model.of_ids([symbol_id(".")]) == model.start
    # What is listed keeps its probability; all others share the rest as with one word less.
    single /= single.sum()
    others = (1 - 10**-0.3) / (1 - single[0]) * single
    assert_allclose(model.after(1), np.where(np.arange(6) == 0, 10**-0.3, others), atol=1e-7)
    assert model.probability(0, 0, 1) == pytest.approx(10**-0.1, abs=1e-6)
    assert model.probability(0, 1, model.start) == pytest.approx(10**-0.2, abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.8 green", "0.8 green", "line 16: expected"),
        ("-0.8 green", "x green", "line 16: expected"),
        ("\n\\end\\\n", "", "Is it whole"),
        ("red green green", "green red green", "no bigram"),
    ],
)
def test_a_damaged_arpa_file_is_refused(arpa, old, new, message):
    arpa.write_text(ARPA.replace(old, new))
    with pytest.raises(TextprivError, match=message):
        read_arpa(arpa, ["green", "red"])


@pytest.mark.parametrize("words", [None, ["house", "white", "zzz", "the", "says"]])
def test_general_english_knows_what_follows_over_any_vocabulary(words):
    words = words or Vocabulary.builtin("en").words
    model = general_english(words)
    the, white, house = map(words.index, ("the", "white", "house"))
    assert model.probability(house, white, the) > 100 * model.probability(house)
    assert model.probability(the, model.start) > model.probability(white, model.start)
    assert model.of_ids([symbol_id(".")]) == len(words) + 2
    assert model.after(the, white).sum() == pytest.approx(1)
    assert model.after(the, white).min() > 0


def test_a_symbol_that_a_model_lacks_ends_a_sentence_or_is_another_token():
    model = general_english(["house", "white"])
    ids = [symbol_id(text) for text in (".", "!", ",", "--")]
    full_stop, other = model.size + 2, model.size + 1
    assert model.of_ids(ids).tolist() == [full_stop, model.start, other, other]


def test_a_file_brings_back_the_same_model(tmp_path):
    model = counted()
    write_model(tmp_path / "model.npz", model)
    again = read_model(tmp_path / "model.npz", 3)
    assert again.symbols == model.symbols
    assert all(map(np.array_equal, again.arrays, model.arrays))


DAMAGES = {
    "single": lambda a: np.append(a[:-1], ONE - 1).astype("u4"),
    "offsets": lambda a: a + 1,
    "seconds": lambda a: np.append(a[:-1], 90).astype("i4"),
    "pairs": lambda a: np.full_like(a, ONE),
    "pair_offsets": lambda a: a[::-1].copy(),
    "thirds": lambda a: a.astype("i8"),
    "triples": lambda a: a[:-1],
    "symbols": lambda a: a.astype(object),
    "size": lambda a: a + 1,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_refused(tmp_path, name):
    write_model(tmp_path / "model.npz", counted())
    with np.load(tmp_path / "model.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "model.npz", **{**arrays, name: DAMAGES[name](arrays[name])})
    with pytest.raises(ValueError, match=r"no language model|allow_pickle"):
        read_model(tmp_path / "model.npz", 3)
