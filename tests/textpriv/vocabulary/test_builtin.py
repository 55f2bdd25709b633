"""The built-in vocabulary: its files are the recorded ones, its source is named, and it holds whole tokens."""

from __future__ import annotations

import ast
import hashlib
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import spacy

from textpriv import Vocabulary
from textpriv.errors import VocabularyError
from textpriv.vocabulary import builtin

TOOL = Path(__file__).resolve().parents[3] / "tools" / "make_builtin_vocabulary.py"
ENDINGS = {"'s", "n't", "'re", "'ve", "'ll", "'d", "'m"}


@pytest.fixture(scope="module")
def english() -> Vocabulary:
    return Vocabulary.builtin("en")


def test_shipped_files_have_the_recorded_checksums(english):
    manifest = builtin.read_manifest("en")
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((builtin.DATA / name).read_bytes()).hexdigest() == digest
    assert english.fingerprint() == manifest["fingerprint"]
    packed = [len(zlib.compress(path.read_bytes())) for path in builtin.DATA.iterdir()]
    assert sum(packed) <= 2_500_000


def test_altered_files_are_refused(tmp_path, monkeypatch):
    shutil.copytree(builtin.DATA, tmp_path / "data")
    monkeypatch.setattr(builtin, "DATA", tmp_path / "data")
    numbers = tmp_path / "data" / "en-numbers.npy"
    numbers.write_bytes(numbers.read_bytes()[:-1] + b"\0")
    with pytest.raises(VocabularyError, match="install textpriv again"):
        Vocabulary.builtin("en")


def test_words_are_letters_or_endings_read_as_one_token(english):
    plain = [word for word in english.words if word not in ENDINGS]
    assert len(plain) == len(english) - len(ENDINGS)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in plain)
    some = plain[::5]
    assert [token.text for token in spacy.blank("en")(" ".join(some))] == some


def test_source_licence_and_checksum_are_named():
    source = builtin.read_manifest("en")["source"]
    tree = ast.walk(ast.parse(TOOL.read_text()))
    assert set(source.values()) <= {node.value for node in tree if isinstance(node, ast.Constant)}
    assert source["licence"] == "PDDL-1.0"
    assert "Public Domain Dedication and License 1.0" in (builtin.DATA / "LICENSE.txt").read_text()


def test_near_words_are_near(english):
    doctor, physician, banana = english.vectors[english.ids(["doctor", "physician", "banana"])]
    assert np.linalg.norm(doctor - physician) < 0.7 * np.linalg.norm(doctor - banana)


@pytest.mark.parametrize("language", ["de", "", "../en"])
def test_other_languages_are_refused_with_what_to_do(language):
    with pytest.raises(VocabularyError, match=r"only of: en.*textpriv index"):
        Vocabulary.builtin(language)
