"""N-gram models: counts against hand-made ones, laws that sum to one, and ARPA files, whole and damaged."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.language.ngrams import NGrams

IDS = np.array([0, 1, 0, 1, 0, 2, -1, 1, 0, 1], dtype=np.int32)


def test_a_trained_model_discounts_counts_and_backs_off_to_one_word_less():
    model = NGrams.train(IDS, np.array([0, 5, 10]), 3, discount=0.5)
    assert_allclose(model.single, (np.array([4, 4, 1, 1]) + 1) / 14)
    # After 0 in a document: 1 three times and, across the border of documents, nothing.
    after_0 = np.array([0.0, (3 - 0.5) / 3, 0.0, 0.0]) + 0.5 / 3 * model.single
    assert_allclose(model.after(0), after_0)
    # After 0, 1: 0 twice, and the end of a document.
    assert_allclose(model.after(0, 1), [(2 - 0.5) / 2, 0, 0, 0] + 0.25 * model.after(1))
    # After a pair that is not there: what the last word says.
    assert_allclose(model.after(2, 0), model.after(0))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_law_of_a_trained_model_sums_to_one(order):
    ids = np.random.default_rng(1).integers(-1, 6, 300).astype(np.int32)
    model = NGrams.train(ids, np.array([0, 100, 100, 300]), 6, order=order)
    for first in range(7):
        assert model.after(first).sum() == pytest.approx(1.0)
        for second in range(7):
            assert model.after(first, second).sum() == pytest.approx(1.0)


def test_the_probability_of_documents_is_that_of_their_words_in_turn():
    model = NGrams.train(IDS, np.array([0, 5, 10]), 3)
    ids, offsets = np.array([0, 1, 0, -1, 2, 2]), np.array([0, 4, 4, 6])
    wanted = [model.single[0], model.after(0)[1], model.after(0, 1)[0], model.after(1, 0)[3]]
    wanted += [model.single[2], model.after(2)[2]]
    assert_allclose(model.log_probabilities(ids, offsets), np.log(wanted))
    assert model.perplexity(ids, offsets) == pytest.approx(np.prod(wanted) ** (-1 / 6))


def test_a_word_between_others_is_scored_by_all_that_it_changes():
    model = NGrams.train(IDS, np.array([0, 5, 10]), 3)
    wanted = [model.after(2, 0)[w] * model.after(0, w)[1] * model.after(w, 1)[2] for w in range(3)]
    assert_allclose(model.between([1, 2, 0], [1, 2, 0]), np.log(wanted))
    assert_allclose(model.between([], []), np.log(model.single[:3]))


@pytest.mark.parametrize("wrong", [{"discount": 1.0}, {"size": 2}, {"order": 4}])
def test_what_cannot_be_counted_is_refused(wrong):
    with pytest.raises(TextprivError):
        NGrams.train(IDS, np.array([0, 10]), **{"size": 3, **wrong})


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


@pytest.mark.parametrize("packed", [False, True])
def test_an_arpa_file_is_read_with_its_back_off_and_scaled_to_laws(tmp_path, packed):
    path = tmp_path / ("small.arpa.gz" if packed else "small.arpa")
    path.write_bytes(gzip.compress(ARPA.encode()) if packed else ARPA.encode())
    model = NGrams.read_arpa(path, ["red", "green"])
    raw = np.array([10**-0.7, 10**-0.6, 10**-0.9 + 10**-1.0 + 10**-1.1])
    assert_allclose(model.single, raw / raw.sum())
    law = 10**-0.2 * model.single
    law[1] = 10**-0.3
    assert_allclose(model.after(0), law / law.sum())
    law = 10**0.1 * model.after(1)
    law[1] = 10**-0.1
    assert_allclose(model.after(0, 1), law / law.sum())
    assert_allclose(model.backoff[2] * model.single, model.after(2))
    for first in range(3):
        for second in range(3):
            assert model.after(first, second).sum() == pytest.approx(1.0)
    assert (len(model.pairs), len(model.triples)) == (2, 1)
    short = NGrams.read_arpa(path, ["red", "green"], order=2)
    assert_allclose(short.after(0, 1), model.after(1))


HEAD = "\\1-grams:\n-1 red -0.1\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\\1-grams:\nx red\n", "line 2"),
        (HEAD + "nan green\n", "line 3: .* up to 0"),
        (HEAD + "-inf green\n", "line 3"),
        (HEAD + "0.1 green\n", "line 3"),
        (HEAD + "-1 green nan\n", "line 3: .* from -99 to 99"),
        (HEAD + "-1 green inf\n", "line 3"),
        (HEAD + "-1 green 0 0\n", "line 3: expected a logarithm, 1 words"),
        (HEAD + "\n\\2-grams:\n-1 red\n", "line 5: expected a logarithm, 2 words"),
        (HEAD + "\\3-grams:\n-1 red green red\n", "line 4: the first two words are no bigram"),
        ("ngram 1=2\n" + HEAD, "holds 1: is it whole"),
        ("no model", "no unigrams"),
        ("\\1-grams:\n-1 \udcff\n", "no UTF-8"),
    ],
)
def test_what_is_no_arpa_file_is_refused_by_its_line(tmp_path, content, said):
    path = tmp_path / "wrong.arpa"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(TextprivError, match=said):
        NGrams.read_arpa(path, ["red", "green"])


def test_a_file_that_cannot_be_opened_or_unpacked_is_named(tmp_path):
    cut = tmp_path / "cut.arpa.gz"
    cut.write_bytes(gzip.compress(ARPA.encode())[:60])
    for path in (tmp_path / "none.arpa", cut):
        with pytest.raises(TextprivError, match=f"{path.name} cannot be read"):
            NGrams.read_arpa(path, ["red"])
    with pytest.raises(TextprivError, match="order"):
        NGrams.read_arpa(cut, ["red"], order=4)
