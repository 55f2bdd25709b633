"""The two shortest ways: one call for texts, one line for a spaCy pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import spacy

import textpriv
from textpriv.errors import MechanismError, TextprivError, VocabularyError

TEXT = "The patient was admitted with chest pain."


def is_close(private: str) -> bool:
    """Whether most words stay: a word leaves this epsilon with probability .001, so four of seven never do."""
    words = private.removesuffix(".").split()
    kept = sum(a == b for a, b in zip(words, TEXT.lower().removesuffix(".").split(), strict=True))
    return kept >= 4


def test_one_text_gives_one_and_several_give_a_list():
    assert is_close(textpriv.privatize(TEXT, epsilon=60.0))
    first, empty = textpriv.privatize(iter([TEXT, ""]), epsilon=60.0)
    assert is_close(first)
    assert empty == ""
    for given in ({"text": TEXT}, TEXT.encode(), None, 3):
        expected = f"expected a text or a list of texts, found {type(given).__name__}"
        with pytest.raises(TextprivError, match=expected) as raised:
            textpriv.privatize(given, epsilon=60.0)
        assert "chest" not in str(raised.value)


def test_a_recovery_takes_the_place_of_epsilon():
    words = [f"w{number}" for number in range(300)]
    vectors = np.random.default_rng(0).normal(size=(300, 4))
    index = textpriv.Index.build(textpriv.Vocabulary(words, vectors))
    assert set(textpriv.privatize("w1 w2", recovery=0.5, index=index).split()) <= set(words)
    with pytest.raises(MechanismError, match="exactly one"):
        textpriv.privatize(TEXT, epsilon=1.0, recovery=0.1)


def test_an_index_may_be_an_object_or_a_folder(tmp_path):
    words = textpriv.Vocabulary(["good", "film"], [[-1.0], [1.0]])
    index = textpriv.Index.build(words)
    index.save(tmp_path / "two.idx")
    for given in (index, str(tmp_path / "two.idx")):
        drawn = textpriv.privatize("pain pain", epsilon=1.0, index=given).split()
        assert set(drawn) <= {"good", "film"}
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 2.0, "index": str(tmp_path / "two.idx")})
    nlp.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    assert {token.text for token in again("pain")} <= {"good", "film"}


def test_a_pipeline_needs_one_line_and_an_epsilon():
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 60.0})
    doc = nlp(TEXT)
    assert doc.text == TEXT.lower()
    assert doc._.textpriv["statement"]["epsilon"] == 60.0
    mechanism = {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 6.0}
    with pytest.raises(MechanismError, match="exactly one of"):
        spacy.blank("en").add_pipe("textpriv", config={"epsilon": 2.0, "mechanism": mechanism})


def test_without_an_epsilon_the_error_names_recovery_and_quotes_no_text():
    for ask in (lambda: textpriv.privatize(TEXT), lambda: spacy.blank("en").add_pipe("textpriv")):
        with pytest.raises(MechanismError, match="no default") as raised:
            ask()
        assert "recovery of 0.1" in str(raised.value)
        assert "chest" not in str(raised.value)


def test_a_language_without_a_vocabulary_says_what_to_do():
    nlp = spacy.blank("de")
    with pytest.raises(VocabularyError, match="textpriv index NAME"):
        nlp.add_pipe("textpriv", config={"epsilon": 2.0})
    with pytest.raises(VocabularyError, match="only of: en"):
        textpriv.Index.builtin("de")


@pytest.mark.parametrize("amount", [{"epsilon": 2.0}, {"recovery": 0.2}])
def test_a_tree_has_a_default_mechanism(amount):
    vectors = np.random.default_rng(0).normal(size=(300, 4))
    tree = textpriv.Tree.build(textpriv.Vocabulary([f"w{i}" for i in range(300)], vectors))
    assert textpriv.privatize("w1 w2", index=tree, **amount).startswith("w")
