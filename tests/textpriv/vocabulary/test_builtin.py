"""The vocabulary that comes with the package: what it holds, that it is the recorded one, and what is said of others."""

from __future__ import annotations

import ast
import hashlib
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import spacy

from textpriv.errors import VocabularyError
from textpriv.vocabulary import Vocabulary, builtin

TOOL = Path(__file__).resolve().parents[3] / "tools" / "make_builtin_vocabulary.py"


@pytest.fixture(scope="module")
def english() -> Vocabulary:
    return Vocabulary.builtin("en")


def test_the_shipped_files_have_the_recorded_checksums():
    recorded = builtin.read_manifest("en")["files"]
    assert set(recorded) == {path.name for path in builtin.DATA.iterdir()} - {
        "en.json",
        "LICENSE.txt",
        "public_sets.csv",
    }
    for name, digest in recorded.items():
        assert hashlib.sha256((builtin.DATA / name).read_bytes()).hexdigest() == digest


def test_an_altered_file_is_refused(tmp_path, monkeypatch):
    shutil.copytree(builtin.DATA, tmp_path / "data")
    monkeypatch.setattr(builtin, "DATA", tmp_path / "data")
    numbers = tmp_path / "data" / "en-numbers.npy"
    content = bytearray(numbers.read_bytes())
    content[-1] ^= 1
    numbers.write_bytes(content)
    with pytest.raises(VocabularyError, match="install textpriv again"):
        Vocabulary.builtin("en")


def test_the_recorded_fingerprint_is_that_of_the_vocabulary(english):
    assert english.fingerprint() == builtin.read_manifest("en")["fingerprint"]


def test_words_are_letters_or_endings_that_the_tokenizer_reads_as_one_token(english):
    endings = {"'s", "n't", "'re", "'ve", "'ll", "'d", "'m"}
    plain = [word for word in english.words if word not in endings]
    assert len(english) == 25_000
    assert len(plain) == len(english) - len(endings)
    assert [
        word for word in plain if not (word.isascii() and word.isalpha() and word.islower())
    ] == []
    tokenizer = spacy.blank("en").tokenizer
    assert [word for word in plain if len(tokenizer(word)) != 1] == []
    assert [token.text for token in tokenizer("he doesn't")][1:] == ["does", "n't"]


def test_it_takes_at_most_two_and_a_half_megabytes_of_the_wheel():
    packed = [len(zlib.compress(path.read_bytes())) for path in builtin.DATA.iterdir()]
    assert sum(packed) <= 2_500_000


def test_source_licence_and_checksum_are_named():
    source = builtin.read_manifest("en")["source"]
    constants = {
        node.value
        for node in ast.walk(ast.parse(TOOL.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert set(source.values()) <= constants
    assert source["licence"] == "PDDL-1.0"
    assert "Public Domain Dedication and License 1.0" in (builtin.DATA / "LICENSE.txt").read_text()


def test_near_words_are_near(english):
    ids = english.ids(["doctor", "physician", "banana"])
    doctor, physician, banana = english.vectors[ids]
    assert np.linalg.norm(doctor - physician) < 0.7 * np.linalg.norm(doctor - banana)


@pytest.mark.parametrize("language", ["de", "", "../en"])
def test_another_language_is_refused_with_what_there_is_and_what_to_do(language):
    with pytest.raises(VocabularyError, match=r"only of: en.*textpriv index"):
        Vocabulary.builtin(language)
