"""Private text in two lines on the built-in index: the function, the spaCy forms, and how they ask for an epsilon."""

from __future__ import annotations

import pytest
import spacy

import textpriv
from textpriv.errors import MechanismError, TextprivError, VocabularyError

TEXT = "The patient was admitted with chest pain."
STRICT = """
[nlp]
lang = "en"
[nlp.tokenizer]
@tokenizers = "textpriv.PrivateTokenizer.v1"
epsilon = 30.0
"""


def test_one_text_gives_one_and_several_give_a_list():
    assert textpriv.privatize(TEXT, epsilon=60.0) == "the patient was admitted with chest pain."
    assert textpriv.privatize(iter([TEXT, ""]), epsilon=60.0) == [
        "the patient was admitted with chest pain.",
        "",
    ]


def test_a_mapping_and_bytes_are_no_texts():
    for given in ({"text": TEXT}, TEXT.encode()):
        with pytest.raises(TextprivError, match="a list or another iterable") as raised:
            textpriv.privatize(given, epsilon=60.0)
        assert "chest" not in str(raised.value)


def test_an_index_may_be_given_as_an_object_or_a_folder(tmp_path):
    words = textpriv.Vocabulary(["good", "film"], [[0.0], [1.0]])
    index = textpriv.Index.build(words, hnsw=False)
    index.save(tmp_path / "two.idx")
    for given in (index, tmp_path / "two.idx", str(tmp_path / "two.idx")):
        (first, second) = textpriv.privatize("pain pain", epsilon=1.0, index=given).split()
        assert {first, second} <= {"good", "film"}


def test_the_policy_is_followed():
    policy = textpriv.TokenPolicy(unknown="mask")
    assert textpriv.privatize("Qwxyzz.", epsilon=60.0, policy=policy) != "qwxyzz."


def test_a_pipeline_needs_one_line_and_an_epsilon():
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 60.0})
    doc = nlp(TEXT)
    assert doc.text == TEXT.lower()
    assert doc._.textpriv["statement"]["epsilon"] == 60.0
    assert "TEM" in doc._.textpriv["statement"]["mechanism"]


def test_the_strict_tokenizer_takes_an_epsilon_too():
    nlp = spacy.util.load_model_from_config(spacy.Config().from_str(STRICT), auto_fill=True)
    assert nlp(TEXT)._.textpriv["statement"]["epsilon"] == 30.0


def test_a_saved_pipeline_brings_its_index_and_its_epsilon(tmp_path):
    words = textpriv.Vocabulary(["good", "film"], [[0.0], [1.0]])
    textpriv.Index.build(words, hnsw=False).save(tmp_path / "two.idx")
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 2.0, "index": str(tmp_path / "two.idx")})
    nlp.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    assert {token.text for token in again("pain")} <= {"good", "film"}
    assert again.get_pipe_config("textpriv")["epsilon"] == 2.0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: textpriv.privatize(TEXT),
        lambda: spacy.blank("en").add_pipe("textpriv"),
        lambda: textpriv.privatize(TEXT, index=textpriv.Index.builtin("en")),
    ],
)
def test_without_an_epsilon_three_amounts_are_shown_and_no_text(ask):
    with pytest.raises(MechanismError, match="no default") as raised:
        ask()
    message = str(raised.value)
    assert "about 50%" in message
    assert "odds, nine tenths" in message
    assert "chest" not in message


def test_an_epsilon_beside_a_mechanism_is_refused():
    mechanism = {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 6.0}
    with pytest.raises(MechanismError, match="not both"):
        spacy.blank("en").add_pipe("textpriv", config={"epsilon": 2.0, "mechanism": mechanism})


def test_a_language_without_a_vocabulary_says_what_to_do():
    nlp = spacy.blank("de")
    nlp.add_pipe("textpriv", config={"epsilon": 2.0})
    with pytest.raises(VocabularyError, match="textpriv index NAME"):
        nlp("Ein Satz.")
    with pytest.raises(VocabularyError, match="only of: en"):
        textpriv.privatize("Ein Satz.", epsilon=2.0, language="de")
