"""Public sets of vectors: what is listed, and that they are fetched once and compared with their checksums."""

from __future__ import annotations

import gzip
import hashlib
import io
from email.message import Message

import pytest

from textpriv import Vocabulary
from textpriv.errors import VocabularyError
from textpriv.vocabulary.public_sets import SETS, PublicSet, set_named

CONTENT = gzip.compress(b"2 2\ngut 1 2\nrot 3 4\n")


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A cache folder of its own and a network that has one file; returns the addresses that were asked for."""
    asked: list[str] = []

    def fetch(url, timeout):
        asked.append(url)
        answer = io.BytesIO(CONTENT)
        answer.headers = Message()
        return answer

    monkeypatch.setenv("TEXTPRIV_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", fetch)
    return asked


def test_listed_sets_have_language_size_licence_and_checksum():
    assert len(SETS) > 20
    for each in SETS:
        assert each.language
        assert each.dimensions > 0
        assert each.licence
        assert each.checksum.startswith(("md5:", "sha256:")) or each.name.startswith("fasttext:")
        assert set_named(each.name) is each


def test_set_is_fetched_once_and_read_in_its_language(network):
    for _ in range(2):
        found = Vocabulary.load("fasttext:cc.de.300")
        assert (found.words, found.language) == (["gut", "rot"], "de")
    assert len(network) == 1
    assert set_named("fasttext:cc.de.300").fetched().read_bytes() == CONTENT


@pytest.mark.parametrize("right", [True, False])
def test_only_the_published_file_is_taken(network, right):
    digest = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    chosen = PublicSet("gensim:made-up", checksum=f"md5:{digest if right else '0' * 32}")
    if right:
        assert chosen.fetched().read_bytes() == CONTENT
        return
    for _ in range(2):
        with pytest.raises(VocabularyError, match="not what was published"):
            chosen.fetched()


def test_cut_transfers_leave_no_file(network, monkeypatch, tmp_path):
    def fetch(url, timeout):
        answer = io.BytesIO(CONTENT)
        answer.headers = Message()
        answer.headers["Content-Length"] = str(len(CONTENT) + 1)
        return answer

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    with pytest.raises(VocabularyError, match=r"Fetch https://.*cc\.de\.300.* put it here as"):
        set_named("fasttext:cc.de.300").fetched()
    assert not list((tmp_path / "vectors").iterdir())


def test_missing_spacy_package_names_the_command(monkeypatch):
    with pytest.raises(VocabularyError, match="spacy download xx_none_md"):
        Vocabulary.load("spacy:xx_none_md")
    monkeypatch.setattr("spacy.util.is_package", lambda name: True)
    assert set_named("spacy:de_core_news_md").fetched() == "de_core_news_md"


def test_names_without_a_hub_are_refused():
    assert set_named("glove-wiki-gigaword-300") is None
    with pytest.raises(VocabularyError, match="index --list"):
        Vocabulary.load("glove-wiki-gigaword-300")
