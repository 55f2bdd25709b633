"""User-facing text: short sentences, in the words of the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt

import textpriv
from textpriv.cli.app import app
from textpriv.index import Tree
from textpriv.spans.detectors import PatternDetector
from textpriv.spans.policy import SpanPolicy
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.policy import ACTIONS, TokenPolicy

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name != "mechanisms.md"),
]
LONGEST = 30  # words of a sentence
# Words of a dialect that only the makers speak; the field has others.
DIALECT = re.compile(
    r"\b((?<!a form, a )(?<!by )(?<!'s )(?<!’s )laws?(?! firm)|got back|gets? back|guessed back|lone words?|running words|"
    r"words of text|best attackers?|(near|far) words|tells? apart|told apart|tells? of|chosen by a hair|anew|drawn alike|"
    r"surely|hardly|mostly|whatever|by which|so many of|which of them)\b|\bWhat of\b",
    re.IGNORECASE,
)


def blocks(page: str) -> list[str]:
    """The texts of a rendered page: paragraphs, items, headings and cells, with "code" for each piece of code."""
    found, page = [], re.sub(r"^(?::::| {4}).*$", "", page, flags=re.MULTILINE)
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type == "inline":
            shown = {"code_inline": "code", "softbreak": " ", "hardbreak": " ", "html_inline": ""}
            children = token.children or []
            found.append("".join(shown.get(each.type, each.content) for each in children))
    return found


def sentences(block: str) -> list[str]:
    """The sentences of a text; formulas are one word each."""
    text = re.sub(r"\$[^$]*\$", "x", block)
    return re.split(r"(?<=[.:;?!])\s+", " ".join(text.split()))


def faults(texts: list[str]) -> list[str]:
    """The sentences that are too long or in the dialect."""
    found = [sentence for text in texts for sentence in sentences(text)]
    return [each for each in found if len(each.split()) > LONGEST or DIALECT.search(each)]


def help_texts() -> dict[str, list[str]]:
    """The help of every command: its own text, and that of each option, hidden ones included."""
    group = typer.main.get_command(app)
    texts = {"textpriv": [group.help or ""]}
    for name, command in group.commands.items():
        options = [getattr(option, "help", None) or "" for option in command.params]
        texts[name] = [*(command.help or "").split("\n\n"), *options]
    return texts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_a_page_are_short_and_plain(page):
    assert faults(blocks(page.read_text(encoding="utf-8"))) == []


def test_sentences_of_help_are_short_and_plain():
    texts = help_texts()
    assert len(texts) == 12
    for name, found in texts.items():
        assert faults(found) == [], name


def statements() -> dict[str, PrivacyStatement]:
    """The statements of each mechanism, policy of spans, and action for tokens."""
    index = textpriv.Index.builtin("en")
    tree = Tree.from_paths(["a", "b", "c", "d"], [["x"], ["x"], ["y"], ["z"]])
    contextual = textpriv.ContextualTEM(index, 2.0)
    made = {
        "contextual": contextual,
        "tem": textpriv.TEM(index, 3.0),
        "madlib": textpriv.Madlib(index, 20.0, search="exact"),
        "tree": textpriv.TreeTEM(tree, 2.0),
    }
    found = {name: textpriv.Privatizer(each).statement for name, each in made.items()}
    for action in ACTIONS:
        policy = TokenPolicy(action, action, action, action, action, "keep")
        found[action] = textpriv.Privatizer(contextual, policy).statement
    for name in ("chat", "tickets", "notes"):
        given = {"spans": SpanPolicy.preset(name), "detector": PatternDetector()}
        found[name] = textpriv.Privatizer(contextual, run_key=bytes(32), **given).statement
    return found


def test_sentences_of_statements_are_short_and_plain():
    for name, statement in statements().items():
        for heading, lines in statement.table:
            assert faults(lines) == [], (name, heading)


@pytest.mark.parametrize(
    "text",
    ["The law of a word.", "Words are drawn anew.", "It is mostly so.", " ".join(["word"] * 31)],
)
def test_these_tests_would_see_a_fault(text):
    assert faults([text]) == [text]
