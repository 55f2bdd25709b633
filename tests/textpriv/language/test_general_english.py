"""The model that pocketsphinx ships is read as its own library writes it; a small one takes its place here."""

from __future__ import annotations

import sys

import pytest
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.language import general_english as module
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import NGrams

ARPA = """\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-99 <s> -0.3
-0.7 red -0.2
-0.6 green -0.1
-1.0 </s>

\\2-grams:
-0.3 red green -0.1
-0.8 green green

\\3-grams:
-0.1 red green green

\\end\\
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A cache folder, and a small binary model in place of the shipped one."""
    package = pytest.importorskip("pocketsphinx")
    source, packed = tmp_path / "small.arpa", tmp_path / "small.lm.bin"
    source.write_text(ARPA, encoding="utf-8")
    package.NGramModel.readfile(str(source)).write(str(packed))
    monkeypatch.setattr(module, "_MODEL", str(packed))
    monkeypatch.setenv("TEXTPRIV_CACHE_DIR", str(tmp_path / "cache"))
    return source


def test_the_model_is_that_of_the_package_and_kept(small, monkeypatch):
    words = ["green", "blue", "red"]
    found, wanted = general_english(words), NGrams.read_arpa(small, words)
    monkeypatch.setattr(module, "_write_apart", None)  # so the second comes from the cache
    for model in (found, general_english(words)):
        for before in ((), (0,), (2, 0), (1, 0)):
            assert_allclose(model.after(*before), wanted.after(*before), rtol=1e-3)


def test_a_model_that_the_library_cannot_write_is_named_and_nothing_kept(small, monkeypatch):
    monkeypatch.setattr(module, "_MODEL", str(small))  # which is not what it is taken for
    small.write_text("nothing")
    with pytest.raises(TextprivError, match=r"cannot write .*small\.arpa"):
        general_english(["red"])
    assert not [*(small.parent / "cache").glob("*.gz")]


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(TextprivError, match=r"textpriv\[language-model\]"):
        general_english(["red"])
