"""Languages: the index knows its own, texts are cut by its rules everywhere, and it is a part of what a run is known by."""

from __future__ import annotations

import json
import pickle
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest
import spacy
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.engines import datasets, ray, spark
from textpriv.engines.batch import Columns, PrivatizerSettings
from textpriv.errors import IndexFolderError, TextprivError, VocabularyError
from textpriv.index import Index
from textpriv.index.folder import meta_checksum
from textpriv.index.tree import Tree
from textpriv.tokenization.spacy_tokenizer import SpacyTokenizer
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
KEEPING = 1e4  # an epsilon at which every word of these vectors stays


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


def test_a_text_of_its_language_comes_out_whole_and_no_word_is_unknown(folder, language):
    text = TEXTS[language][0]
    privatizer = textpriv.Privatizer(textpriv.TEM(Index.load(folder), epsilon=KEEPING))
    assert privatizer.language == language
    assert privatizer.privatize(text) == text.lower()
    assert textpriv.privatize(text, epsilon=KEEPING, index=folder) == text.lower()
    read = privatizer.read(text)
    assert [token.text for token in spacy.blank(language)(text.lower())] == privatizer.release(
        [read]
    )[0].words


def test_a_word_behind_an_elided_article_is_no_unknown_one(folder, language):
    if language != "fr":
        return
    index = Index.load(folder)
    known = [index.vocabulary.id(word) for word in ("l'", "hôpital")]
    for chosen, expected in ((None, known), ("en", [-1])):
        privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0), language=chosen)
        assert privatizer.read("L'hôpital").codes.tolist() == expected


def test_the_command_line_follows_the_index_and_another_language_may_be_named(
    folder, language, tmp_path
):
    text = TEXTS[language][0]
    options = ["--index", str(folder), "--epsilon", str(KEEPING)]
    run = ["privatize", "-", "-", *options]
    shown = CliRunner().invoke(app, run, input=text + "\n")
    assert shown.stdout == text.lower() + "\n"
    assert f"language {language}" in shown.stderr
    other = CliRunner().invoke(app, [*run, "--language", "en"], input=text + "\n")
    assert other.stdout != shown.stdout
    assert "language" not in other.stderr


def test_every_engine_cuts_texts_by_the_language(folder, language):
    text = TEXTS[language][0]
    settings = PrivatizerSettings(str(folder), options={"epsilon": KEEPING})
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "text": [text]})
    columns = Columns(document="id")
    travelled = pickle.loads(pickle.dumps(settings))
    table = pa.Table.from_batches([batch])
    released = [
        next(spark._Batches(travelled, columns)(iter([batch]))),
        ray._Batches(travelled, columns)(table),
        datasets._Batches(travelled, columns, bytes(16))(table, [0]),
    ]
    assert [each.column("text").to_pylist() for each in released] == [[text.lower()]] * 3


def test_one_key_draws_the_same_in_every_engine(folder, language):
    pandas = pytest.importorskip("pandas")
    texts = [TEXTS[language][0]] * 8
    batch = pa.RecordBatch.from_pydict({"id": list("abcdefgh"), "text": texts})
    table, columns = pa.Table.from_batches([batch]), Columns(document="id")
    settings = PrivatizerSettings(str(folder), options={"epsilon": 3.0})
    framed = textpriv.privatize_frame(
        pandas.DataFrame(batch.to_pydict()), settings=settings, document_column="id"
    )
    private = framed["text"].to_list()
    assert len({*private, *texts}) > 2
    released = [
        next(spark._Batches(settings, columns)(iter([batch]))),
        ray._Batches(settings, columns)(table),
        datasets._Batches(settings, columns, bytes(16))(table, list(range(8))),
    ]
    assert [each.column("text").to_pylist() for each in released] == [private] * 3


def test_a_run_is_known_by_its_language_too(folder, language):
    mechanism = textpriv.TEM(Index.load(folder), epsilon=1.0)
    own = textpriv.Privatizer(mechanism)
    assert own.fingerprint == textpriv.Privatizer(mechanism, language=language).fingerprint
    assert own.fingerprint != textpriv.Privatizer(mechanism, language="en").fingerprint
    built = PrivatizerSettings(str(folder), options={"epsilon": 1.0}, language="en").build()
    assert built.fingerprint == textpriv.Privatizer(mechanism, language="en").fingerprint


def test_the_statement_names_a_language_that_is_not_english(folder, language):
    mechanism = textpriv.TEM(Index.load(folder), epsilon=1.0)
    named = f"rules of the language {language}"
    assert named in textpriv.Privatizer(mechanism).statement.paragraph()
    english = textpriv.Privatizer(mechanism, language="en").statement.paragraph()
    assert "rules of the language" not in english


def test_a_pipeline_of_the_language_takes_the_index_and_one_of_another_refuses_it(folder, language):
    config = {"epsilon": KEEPING, "index": str(folder)}
    nlp = spacy.blank(language)
    nlp.add_pipe("textpriv", config=config)
    assert nlp(TEXTS[language][0]).text == TEXTS[language][0].lower()
    other = spacy.blank("en")
    with pytest.raises(VocabularyError, match=f'spacy.blank."{language}"'):
        other.add_pipe("textpriv", config=config)


def test_the_language_is_saved_and_a_folder_without_one_still_opens(folder, language):
    listing = json.loads((folder / "index.json").read_text())
    assert listing["language"] == language
    assert Index.load(folder).language == language
    copy = Index.load(folder)
    copy.save(folder.parent / "older.idx", overwrite=True)
    path = folder.parent / "older.idx" / "index.json"
    del listing["language"]
    listing["checksum"] = meta_checksum(listing)
    path.write_text(json.dumps(listing))
    older = Index.load(folder.parent / "older.idx")
    assert older.language is None
    assert textpriv.Privatizer(textpriv.TEM(older, epsilon=1.0)).language == "en"


def test_a_damaged_language_is_refused(folder):
    listing = json.loads((folder / "index.json").read_text())
    Index.load(folder).save(folder.parent / "damaged.idx", overwrite=True)
    listing["language"] = "../x"
    listing["checksum"] = meta_checksum(listing)
    (folder.parent / "damaged.idx" / "index.json").write_text(json.dumps(listing))
    with pytest.raises(IndexFolderError, match="language"):
        Index.load(folder.parent / "damaged.idx")


def test_a_tree_has_the_language_of_its_words_also_when_saved(tmp_path):
    tree = Tree.from_paths(["gut", "böse", "haus"], [["a"], ["a"], ["b"]], language="de")
    tree.save(tmp_path / "tree")
    assert Index.load(tmp_path / "tree").language == "de"


def test_words_with_capitals_are_hinted_at_and_found_in_lower_case(tmp_path):
    (tmp_path / "vectors.txt").write_text("Der 0 0\nPatient 0 9\nhat 9 0\nFieber 9 9\n")
    folders = [str(tmp_path / name) for name in ("as-they-are.idx", "lower.idx")]
    make = ["index", str(tmp_path / "vectors.txt")]
    assert "with --lower" in CliRunner().invoke(app, [*make, folders[0], "--language=de"]).stderr
    made = CliRunner().invoke(app, [*make, folders[1], "--language=de", "--lower"])
    assert "--lower" not in made.stderr
    given = "Der Patient hat Fieber."
    for folder, expected in zip(folders, ([-1, -1, 2, -1], [0, 1, 2, 3]), strict=True):
        privatizer = textpriv.Privatizer(textpriv.TEM(Index.load(folder), epsilon=1.0))
        assert privatizer.read(given).codes.tolist()[:4] == expected


@pytest.mark.parametrize("code", ["", "German", "de-DE", 7])
def test_a_language_is_a_code(code):
    with pytest.raises(VocabularyError, match="code of a language"):
        Vocabulary(["a"], [[1.0]], language=code)


def test_a_language_whose_package_is_missing_is_answered_with_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sudachipy", None)
    with pytest.raises(TextprivError, match=r"pip install 'spacy\[ja\]'"):
        SpacyTokenizer("ja", ()).attributes_of("熱")
    with pytest.raises(TextprivError, match="no language 'xy'"):
        SpacyTokenizer("xy", ()).attributes_of("a")


def test_the_built_in_index_is_english():
    assert Index.builtin("en").language == "en"


def test_a_language_without_a_built_in_index_is_answered_with_what_to_do():
    result = CliRunner().invoke(
        app, ["privatize", "-", "-", "--epsilon", "3", "--language", "de"], input="Haus\n"
    )
    assert result.exit_code == 1
    assert "textpriv index" in " ".join(result.stderr.split())
