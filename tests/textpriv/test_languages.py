"""Languages: the index knows its own, texts are cut by its rules everywhere, and it is a part of what a run is known by."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import spacy
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.errors import TextprivError, VocabularyError
from textpriv.index import Index
from textpriv.index.tree import Tree
from textpriv.settings import PrivatizerSettings
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

TEXTS = {
    "fr": (
        "L'hôpital d'Anne est fermé aujourd'hui, a-t-on dit.",
        "l' hôpital d' anne est fermé aujourd'hui a -t -on dit",
    ),
    "de": (
        "Der Patient wurde am 3. Tag z.B. mit Fieber entlassen.",
        "der patient wurde am 3. tag z.b. mit fieber entlassen",
    ),
    "ja": ("「患者」は病院で熱が出た。", "患者 は 病院 で 熱 が 出 た"),
}
NEEDS_SUDACHI = pytest.mark.skipif(
    find_spec("sudachipy") is None, reason="spaCy's Japanese needs sudachipy: spacy[ja]"
)
KEEPING = 1e4  # an epsilon at which every word of these vectors stays, but for a flat prior: one in a thousand changes


@pytest.fixture(scope="module", params=["fr", "de", pytest.param("ja", marks=NEEDS_SUDACHI)])
def language(request):
    return request.param


@pytest.fixture(scope="module")
def folder(language, tmp_path_factory):
    """An index of a language, made by the command from a file of vectors."""
    place = tmp_path_factory.mktemp(language)
    words = TEXTS[language][1].split()
    rows = np.random.default_rng(0).normal(size=(len(words), 4))
    lines = (f"{w} {' '.join(f'{x:.4f}' for x in r)}" for w, r in zip(words, rows, strict=True))
    (place / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["index", str(place / "vectors.txt"), str(place / "own.idx"), "--language"]
    result = CliRunner().invoke(app, [*arguments, language])
    assert result.exit_code == 0, result.output
    return place / "own.idx"


def test_a_text_is_read_by_the_language_of_its_index(folder, language):
    text = TEXTS[language][0]
    privatizer = textpriv.Privatizer(textpriv.TEM(Index.load(folder), KEEPING, "zipf"))
    assert privatizer.language == language
    assert privatizer.privatize(text) == text.lower()
    settings = {"epsilon": KEEPING, "prior": "zipf"}
    built = PrivatizerSettings(str(folder), options=settings).build()
    assert built.privatize(text, key="a") == text.lower()
    read = privatizer.read(text)
    assert [token.text for token in spacy.blank(language)(text.lower())] == privatizer.release(
        read
    )[0].words


def test_a_word_behind_an_elided_article_is_found(folder, language):
    if language != "fr":
        return
    index = Index.load(folder)
    known = [index.vocabulary.id(word) for word in ("l'", "hôpital")]
    for chosen, expected in ((None, known), ("en", [-1])):
        privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0), language=chosen)
        assert privatizer.read("L'hôpital").codes.tolist() == expected


def test_the_command_line_follows_the_index_or_its_option(folder, language, tmp_path):
    text = TEXTS[language][0]
    options = ["--index", str(folder), "--epsilon", str(KEEPING), "--prior", "zipf"]
    run = ["privatize", "-", "-", *options]
    shown = CliRunner().invoke(app, run, input=text + "\n")
    assert shown.stdout == text.lower() + "\n"
    assert f"language {language}" in shown.stderr
    other = CliRunner().invoke(app, [*run, "--language", "en"], input=text + "\n")
    assert other.stdout != shown.stdout
    assert "language" not in other.stderr


def test_the_fingerprint_depends_on_the_language(folder, language):
    mechanism = textpriv.TEM(Index.load(folder), epsilon=1.0)
    own = textpriv.Privatizer(mechanism)
    assert own.fingerprint == textpriv.Privatizer(mechanism, language=language).fingerprint
    assert own.fingerprint != textpriv.Privatizer(mechanism, language="en").fingerprint
    built = PrivatizerSettings(str(folder), options={"epsilon": 1.0}, language="en").build()
    assert built.fingerprint == textpriv.Privatizer(mechanism, language="en").fingerprint


def test_the_statement_names_a_language_that_is_not_english(folder, language):
    mechanism = textpriv.TEM(Index.load(folder), epsilon=1.0)
    named = f"rules of the language {language}"
    assert named in " ".join(str(textpriv.Privatizer(mechanism).statement).split())
    english = str(textpriv.Privatizer(mechanism, language="en").statement)
    assert "rules of the language" not in english


def test_a_pipeline_of_another_language_refuses_the_index(folder, language):
    chosen = {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": KEEPING, "prior": "zipf"}
    config = {"mechanism": chosen, "index": str(folder)}
    nlp = spacy.blank(language)
    nlp.add_pipe("textpriv", config=config)
    assert nlp(TEXTS[language][0]).text == TEXTS[language][0].lower()
    other = spacy.blank("en")
    with pytest.raises(VocabularyError, match=f'spacy.blank."{language}"'):
        other.add_pipe("textpriv", config=config)


def test_a_tree_has_the_language_of_its_words_also_when_saved(tmp_path):
    tree = Tree.from_paths(["gut", "böse", "haus"], [["a"], ["a"], ["b"]], language="de")
    tree.save(tmp_path / "tree")
    assert Index.load(tmp_path / "tree").language == "de"


@pytest.mark.parametrize("code", ["", "German", "de-DE", 7])
def test_a_language_is_a_code(code):
    with pytest.raises(VocabularyError, match="code of a language"):
        Vocabulary(["a"], [[1.0]], language=code)


def test_a_missing_language_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sudachipy", None)
    with pytest.raises(TextprivError, match=r"pip install 'spacy\[ja\]'"):
        TextEncoder([], TokenPolicy(), "ja").encode(["熱"])


def test_the_built_in_index_is_english():
    assert Index.builtin("en").language == "en"


def test_a_language_without_built_in_index_says_what_to_do():
    result = CliRunner().invoke(
        app, ["privatize", "-", "-", "--epsilon", "3", "--language", "de"], input="Haus\n"
    )
    assert result.exit_code == 1
    assert "textpriv index" in " ".join(result.stderr.split())
