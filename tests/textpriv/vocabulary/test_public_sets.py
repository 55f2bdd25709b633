"""Public sets: got once, compared with their checksums, found where they lie, and named where there is no network."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import spacy
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.errors import VocabularyError
from textpriv.files import CACHE_VARIABLE
from textpriv.vocabulary import Vocabulary, public_sets
from textpriv.vocabulary.public_sets import SETS, get, set_named, where

TEXT = "2 3\nhaus 1 0 0\nbaum 0 1 0\n"
GERMAN = "spacy:de_core_news_md"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder that stands for the hubs, and a cache folder that is not there yet."""
    folder = tmp_path / "hub"
    folder.mkdir()
    for name in ("gensim", "spacy", "fasttext"):
        pattern = public_sets.HUBS[name].rpartition("/")[2]
        monkeypatch.setitem(public_sets.HUBS, name, f"{folder.as_uri()}/{pattern}")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder


@pytest.fixture
def gensim_hub(hub, monkeypatch):
    """gensim's own downloader, with that folder for its hub and a data folder that is not there yet."""
    downloader = pytest.importorskip("gensim.downloader")
    name = "glove-wiki-gigaword-300"
    (hub / name).mkdir()
    file = hub / name / f"{name}.gz"
    file.write_text(TEXT)
    (hub / name / "__init__.py").touch()
    known = {
        "checksum": hashlib.md5(file.read_bytes()).hexdigest(),
        "parts": 1,
        "file_name": file.name,
    }
    (hub / "list.json").write_text(json.dumps({"corpora": {}, "models": {name: known}}))
    monkeypatch.setattr(downloader, "BASE_DIR", str(hub.parent / "gensim-data"))
    addresses = ((hub / "list.json").as_uri(), "utf-8")  # bound when it was imported
    monkeypatch.setattr(downloader._load_info, "__defaults__", addresses)
    monkeypatch.setattr(downloader, "DOWNLOAD_BASE_URL", hub.as_uri())
    publish(monkeypatch, f"gensim:{name}", f"md5:{known['checksum']}")
    return f"gensim:{name}"


def publish(monkeypatch, name, checksum):
    sets = tuple(replace(each, checksum=checksum) if each.name == name else each for each in SETS)
    monkeypatch.setattr(public_sets, "SETS", sets)


def pack(folder, monkeypatch, name=GERMAN):
    """A package of spaCy as its archive has it."""
    title = f"{name.split(':')[1]}-3.8.0"
    nlp = spacy.blank("de")
    for word, row in (("haus", [1.0, 0, 0]), ("baum", [0, 1.0, 0])):
        nlp.vocab.set_vector(word, np.array(row, dtype=np.float32))
    inner = folder / title / name.split(":")[1] / title
    inner.parent.mkdir(parents=True)
    nlp.to_disk(inner)
    archive = folder / f"{title}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / title, arcname=title)
    publish(monkeypatch, name, f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}")
    return archive


# The list


def test_every_listed_set_has_a_language_a_size_and_a_licence_and_all_but_fasttexts_a_checksum():
    for each in SETS:
        assert set_named(each.name) is each
        assert each.language
        assert each.megabytes > 0
        assert each.licence
        kind, _, digits = each.checksum.partition(":")
        assert each.hub == "fasttext" or len(digits) == {"md5": 32, "sha256": 64}[kind]
    assert {each.language for each in SETS} >= {"en", "de", "fr", "es", "it"}


def test_the_sets_of_a_language_are_listed(hub):
    result = CliRunner().invoke(app, ["vectors", "--language", "de", "--json"])
    sets = json.loads(result.stdout)["sets"]
    assert {each["language"] for each in sets} == {"de"}
    assert GERMAN in {each["name"] for each in sets}
    assert "MIT" in CliRunner().invoke(app, ["vectors", "--language", "de"]).stdout
    assert CliRunner().invoke(app, ["vectors", "--language", "qq"]).exit_code == 2


# Getting


def test_a_set_of_fasttext_is_fetched_once_and_read_under_its_name(hub):
    (hub / "cc.de.300.vec.gz").write_text(TEXT)
    vocabulary = Vocabulary.load("fasttext:cc.de.300")
    assert (vocabulary.words, vocabulary.language) == (["haus", "baum"], "de")
    (hub / "cc.de.300.vec.gz").unlink()
    assert Vocabulary.load("fasttext:cc.de.300", limit=1).words == ["haus"]


def test_a_set_of_gensim_comes_by_its_downloader_and_prints_no_result(gensim_hub, capsys):
    vocabulary = Vocabulary.load(gensim_hub)
    assert (vocabulary.words, vocabulary.language) == (["haus", "baum"], "en")
    assert capsys.readouterr().out == ""


def test_a_package_of_spacy_is_unpacked_beside_no_other(hub, monkeypatch):
    pack(hub, monkeypatch)
    vocabulary = Vocabulary.load(GERMAN)
    assert sorted(vocabulary.words) == ["baum", "haus"]
    assert vocabulary.language == "de"
    assert [path.name for path in where(set_named(GERMAN)).parent.iterdir()] == [
        "de_core_news_md-3.8.0"
    ]


def test_an_archive_that_was_put_in_its_place_is_used_where_there_is_no_network(hub, monkeypatch):
    archive = pack(hub, monkeypatch)
    place = where(set_named(GERMAN)).parent
    place.mkdir(parents=True)
    archive.rename(place / archive.name)
    assert Vocabulary.load(GERMAN).language == "de"


def test_an_installed_package_is_taken_as_it_is(hub, monkeypatch):
    monkeypatch.setattr(public_sets, "_is_installed", lambda package: package == "de_core_news_md")
    assert get(set_named(GERMAN)) == "de_core_news_md"


def test_the_command_gets_a_set_and_says_what_comes_next(hub):
    (hub / "cc.de.300.vec.gz").write_text(TEXT)
    result = CliRunner().invoke(app, ["vectors", "fasttext:cc.de.300"])
    assert result.exit_code == 0
    assert "no checksum" in result.stderr
    assert "textpriv index fasttext:cc.de.300" in result.stderr


# What goes wrong


@pytest.mark.parametrize("name", ["fasttext:cc.de.300", GERMAN])
def test_without_a_network_it_is_said_what_to_fetch_and_where_to_put_it(hub, name, monkeypatch):
    monkeypatch.setitem(public_sets.HUBS, name.split(":")[0], "http://127.0.0.1:9/{0}.vec.gz")
    with pytest.raises(VocabularyError, match="could not be fetched") as raised:
        Vocabulary.load(name)
    chosen = set_named(name)
    assert chosen.url in str(raised.value)
    assert str(where(chosen).parent) in str(raised.value)


def test_without_a_network_gensims_folder_is_named_and_no_traceback_printed(
    gensim_hub, hub, capsys
):
    (hub / "list.json").unlink()
    with pytest.raises(VocabularyError, match="could not be fetched") as raised:
        Vocabulary.load(gensim_hub)
    assert str(where(set_named(gensim_hub))) in str(raised.value)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fasttext:cc.de.300", GERMAN])
def test_what_is_not_as_published_is_refused_and_not_kept(hub, name, monkeypatch):
    if name == GERMAN:
        pack(hub, monkeypatch)
    else:
        (hub / "cc.de.300.vec.gz").write_text(TEXT)
    publish(monkeypatch, name, "sha256:" + "0" * 64)
    with pytest.raises(VocabularyError, match="not what was published"):
        Vocabulary.load(name)
    assert list(where(set_named(name)).parent.iterdir()) == []


def test_a_file_that_was_put_in_its_place_is_compared_too(hub, monkeypatch):
    place = where(set_named("fasttext:cc.de.300"))
    place.parent.mkdir(parents=True)
    place.write_text(TEXT)
    publish(monkeypatch, "fasttext:cc.de.300", "sha256:" + "0" * 64)
    with pytest.raises(VocabularyError, match="not what was published"):
        Vocabulary.load("fasttext:cc.de.300")


def test_an_archive_never_writes_outside_its_folder(hub, monkeypatch):
    title = "de_core_news_md-3.8.0"
    (hub / "evil").write_text("x")
    archive = hub / f"{title}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(hub / "evil", arcname=f"{title}/de_core_news_md/{title}/../../../../evil")
    publish(monkeypatch, GERMAN, f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}")
    with pytest.raises(VocabularyError, match="outside"):
        Vocabulary.load(GERMAN)
    assert not (hub.parent / "cache" / "evil").exists()


def test_a_name_without_a_hub_is_answered_with_examples():
    result = CliRunner().invoke(app, ["vectors", "glove"])
    assert result.exit_code == 1
    assert "gensim:glove-wiki-gigaword-300" in result.stderr
