"""What notebooks show: private documents, and the cards of indices, certificates and statements."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc

import textpriv
import textpriv.pipeline
from textpriv.errors import TextprivError
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary

HOSTILE = "<img src=x onerror=alert(1)>"
WORDS = [*"good bad fine film book song actor scene music story".split(), HOSTILE]
TEXT = "A good film, 7 bad songs!\nA zanzibar book."


class Tree(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Index:
    vectors = np.random.default_rng(3).normal(size=(len(WORDS), 6))
    built = Index.build(Vocabulary(WORDS, vectors), "euclidean", k=8)
    folder = tmp_path_factory.mktemp("rendering") / "a.idx"
    built.save(folder)
    return Index.load(folder)


@pytest.fixture(scope="module")
def mechanism(index):
    return textpriv.TEM(index, epsilon=2.0)


def doc_of(index, text=TEXT, options=None, **policy):
    settings = {
        "index": str(index.path),
        "mechanism": {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 2.0},
        "policy": policy,
        **(options or {}),
    }
    nlp = spacy.blank(
        "en",
        config={"nlp": {"tokenizer": {"@tokenizers": "textpriv.PrivateTokenizer.v1", **settings}}},
    )
    return nlp(text)


def legend(page):
    """Tokens by kind, as the picture's first line counts them."""
    first = re.search(r"<p[^>]*>(.*?)</p>", page)[1]
    counts = re.findall(r">([\d,]+) ([^<]+)</span>", first)
    return {kind: int(count) for count, kind in counts}


def sound(source):
    """An element whose tags close in order, with nothing in it that runs or loads."""
    tree = Tree(source)
    assert tree.crossed == []
    assert tree.open == []
    assert not {"script", "img", "link", "iframe", "style"} & set(tree.tags)
    return tree


# Documents


def test_the_tokens_of_a_doc_are_counted_by_kind(index):
    page = textpriv.render(doc_of(index, number="mask"))
    assert legend(page) == {"drawn": 8, "masked": 1, "kept: punctuation": 3, "kept: blank": 1}
    sound(page)


def test_the_private_words_are_shown_and_in_order(index):
    doc = doc_of(index)
    assert "".join(doc.text.split()) in "".join(sound(textpriv.render(doc)).text.split())


def test_a_drawn_word_that_looks_kept_is_said_to_be_unsure(index, monkeypatch):
    doc = doc_of(index, "good film , bad")
    doc._.textpriv["counts"].update({"punctuation": 0, "sampled": 4})
    kinds = legend(textpriv.render(doc))
    assert kinds == {"drawn": 3, "drawn, or punctuation kept": 1}


def test_a_masked_span_of_a_doc_is_called_a_typed_span(index):
    options = {"spans": "chat", "detect": ["patterns"]}
    page = textpriv.render(doc_of(index, "good film from ann@example.org", options))
    assert legend(page) == {"drawn": 3, "typed span: EMAIL": 1}


def test_hostile_words_are_escaped(index):
    doc = doc_of(index, "good")
    hostile = Doc(doc.vocab, [HOSTILE], user_data=doc.user_data)
    assert HOSTILE in sound(textpriv.render(hostile)).text


def test_the_statement_stands_below_a_doc(index):
    text = sound(textpriv.render(doc_of(index))).text
    assert "epsilon 2 per unit of" in text
    assert "Not protected: the 1 commonest words, which no recovery figure counts" in text
    assert "the number and order of documents, and of the tokens of each" in text


def test_a_raw_doc_is_refused_and_not_shown():
    with pytest.raises(TextprivError, match="document is not private") as refused:
        textpriv.render(spacy.blank("en")("zanzibar"))
    assert "zanzibar" not in str(refused.value)


@pytest.mark.parametrize("given", ["zanzibar", ["zanzibar"], None])
def test_what_is_no_doc_is_refused_and_not_shown(given):
    with pytest.raises(TextprivError, match=f"one Doc of spaCy, found {type(given).__name__}"):
        textpriv.render(given)


def test_an_empty_document_is_shown_as_such_by_itself(index):
    page = textpriv.render(doc_of(index, ""))
    assert "no tokens" in page
    assert page._repr_html_() == page


def test_a_certificate_shows_its_verdict_and_constant(mechanism):
    certificate = textpriv.certify(mechanism)
    for text in (repr(certificate), str(certificate)):
        assert "THE CLAIM HOLDS" in text
        assert dict(certificate.rows())["constant"] in text
    broken = dataclasses.replace(certificate, holds=False, exact=False)
    assert "THE CLAIM DOES NOT HOLD" in repr(broken)


def test_a_statement_shows_whether_it_is_proved_and_what_is_not_protected(mechanism):
    statement = textpriv.Privatizer(mechanism).statement
    text = "".join(sound(statement._repr_html_()).text.split())
    assert "boundproved" in text
    for each in (*statement.not_protected, *statement.assumptions, *statement.notes):
        assert "".join(each.split()) in text
    assert "epsilon 2 per unit of" in repr(statement)
    unproved = statement.extended(proved=False)
    assert "NOT PROVED" in unproved._repr_html_()
    assert "NOT PROVED" in repr(unproved)
