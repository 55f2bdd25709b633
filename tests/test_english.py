"""User-facing text: short sentences, in the words of the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import textpriv
from textpriv.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
GUIDE = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "corpora.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "algorithms").glob("*.md")),
]
LONGEST = 30  # words of a sentence
# Words of a dialect that only the makers speak; the field has others.
DIALECT = re.compile(
    r"\b(got back|gets back|guessed back|lone words?|running words|tells? apart|told apart|tells? of|chosen by a hair|"
    r"draws? anew|drawn anew|drawn alike|hardly|whatever|by which|so many of|which of them)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown page, without code, tables, formulas and headings."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|\||!\[)", line)]
    text = re.sub(r"\n\s*(\n|[-*] |\d+\. |> )", "\n\n", "\n".join(lines))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    found = []
    for block in text.split("\n\n"):
        found += re.split(r"(?<=[.:;?!])\s+", " ".join(block.split()))
    return [sentence for sentence in found if sentence]


def help_texts() -> dict[str, str]:
    """The help of every command, with that of its options."""
    group = typer.main.get_command(app)
    texts = {"textpriv": group.help or ""}
    for name, command in group.commands.items():
        options = [getattr(option, "help", None) or "" for option in command.params]
        texts[name] = "\n\n".join([command.help or "", *options])
    return texts


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.name)
def test_sentences_of_a_page_are_short_and_plain(page):
    found = sentences(page.read_text(encoding="utf-8"))
    assert [each for each in found if len(each.split()) > LONGEST] == []
    assert [each for each in found if DIALECT.search(each)] == []


def test_sentences_of_help_are_short_and_plain():
    for name, text in help_texts().items():
        found = sentences(text)
        assert [each for each in found if len(each.split()) > LONGEST] == [], name
        assert [each for each in found if DIALECT.search(each)] == [], name


def test_sentences_of_a_statement_are_short_and_plain():
    index = textpriv.Index.builtin("en")
    statement = textpriv.Privatizer(textpriv.ContextualTEM(index, 2.0)).statement
    for _, lines in statement.table:
        found = sentences("\n\n".join(lines))
        assert [each for each in found if len(each.split()) > LONGEST] == []
        assert [each for each in found if DIALECT.search(each)] == []
