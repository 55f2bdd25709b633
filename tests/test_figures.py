"""Figures about people on the pages are those of the table, and the rates and odds are those that the package computes."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import pytest

import textpriv
from textpriv.guarantees.epsilon import choose_epsilon

DOCS = Path(__file__).resolve().parents[1] / "docs"
TABLE = [*csv.DictReader((DOCS / "results/people.csv").open(encoding="utf-8"))]
OFFICERS = (DOCS / "guide/officers.md").read_text(encoding="utf-8")
PEOPLE = (DOCS / "results/people.md").read_text(encoding="utf-8")
RESULTS = sorted((DOCS / "results").glob("*.md"))
MEASURED = [DOCS.parent / "README.md", DOCS / "results.md", *RESULTS]
PAGES = [*MEASURED, *sorted((DOCS / "guide").glob("*.md"))]
SETS = {row["set"] for row in TABLE if row["question"] == "stays"}


def sections(page: Path) -> list[str]:
    """The sections of a page, each with its heading, without blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.split(r"^(?=##+ )", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_a_results_page_answers_first_and_ends_with_how(page):
    first, *others = sections(page)
    answer = re.sub(r"[*`]", "", first.split("\n\n")[1])
    assert len(re.findall(r"[.?!](?=\s|$)", answer)) == 2
    assert len(re.findall(r"^(?:!\[|\|---)", first, re.MULTILINE)) == 1  # a chart, or a table
    headings = [each.partition("\n")[0] for each in others if each.startswith("## ")]
    assert headings[:2] == ["## What it means for you", "## How it was measured"]
    assert headings[2:] in ([], ["## Tried and left out"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_shares_are_in_percent_and_only_other_figures_fractions(page):
    for section in sections(page):
        assert re.findall(r"(?<![\w.])[.]\d+|\d ?± | ±\d", section) == []
        if page in MEASURED and not re.search(r"AUC|cosine", section):
            assert re.findall(r"\b0\.\d{3}\b", section) == []


def rows(page: str) -> list[list[str]]:
    """The cells of all lines of tables."""
    lines = re.findall(r"^\| (.*) \|$", page, re.MULTILINE)
    return [line.split(" | ") for line in lines]


def percent(value: str | float) -> str:
    return f"{float(value):.1%}".removesuffix("%")


@pytest.mark.parametrize("page", [OFFICERS, PEOPLE], ids=["officers", "people"])
def test_shares_that_stay_are_those_of_the_table(page):
    found = 0
    for first, *cells in rows(page):
        name, _, kind = first.partition(": ")
        if name not in SETS or not kind:
            continue
        units = cells.pop(0) if len(cells) == 6 else None
        detector, _, policy = cells[0].partition(", ")
        for place, recovery in enumerate(("0.05", "0.1", "0.2"), 1):
            wanted = (name, kind, detector, policy or "-", f"recovery {recovery}")
            keys = ("set", "kind", "detector", "policy", "setting")
            (row,) = [row for row in TABLE if tuple(map(row.get, keys)) == wanted]
            shown = percent(row["share"])
            assert cells[place].split("±")[0] == shown, wanted
            if units is not None:
                assert units == f"{int(row['units']):,}"
                assert cells[place] == f"{shown}±{100 * float(row['error']):.1f}"
            if recovery == "0.1":
                assert cells[4] == percent(row["of_texts"])
        found += 1
    assert found >= 10


def test_authors_and_members_are_those_of_the_table():
    shown = {tuple(cells[:2]): cells[2:] for cells in rows(PEOPLE) if len(cells) == 4}
    for row in TABLE:
        key = row["kind"], row["setting"]
        if row["question"].startswith("author"):
            place = ("author of one text", "author of all texts").index(row["question"])
            assert shown[key][place] == percent(row["share"]), key
    members = {
        (row["kind"], row["setting"]): f"{float(row['share']):.3f}"
        for row in TABLE
        if row["question"].startswith("is a known")
    }
    assert len(members) == 5
    for key, value in members.items():
        assert [*key, value] in rows(PEOPLE)


def test_figures_in_sentences_of_officers_are_those_of_the_table():
    """Each sentence on linking names its figure in full."""
    for question, kind, setting, form in (
        ("is a known text in the release (AUC)", "word by word", "recovery 0.1", "AUC {:.3f}"),
        ("is a known text in the release (AUC)", "new records", "epsilon 1", "AUC {:.3f}"),
        ("author of all texts", "word by word", "recovery 0.1", "{:.0%}"),
        ("author of all texts", "new records", "epsilon 1", "{:.0%}"),
    ):
        keys = ("question", "kind", "setting")
        (row,) = [row for row in TABLE if tuple(map(row.get, keys)) == (question, kind, setting)]
        shown = form.format(float(row["share"])).replace("%", " %")
        assert shown in OFFICERS, (question, kind)


def test_rates_and_certainty_of_officers_are_those_of_the_package():
    index = textpriv.Index.builtin("en")
    for recovery in (0.05, 0.1, 0.2):
        found = choose_epsilon(index, recovery=recovery)
        statement = textpriv.TEM(index, found.epsilon).statement
        certain = 100 / (1 + math.exp(-statement.loss_at(index.reference_distance)))
        whole = f"{percent(found.reader)}±{196 * found.reader_error:.1f}"
        (row,) = [cells for cells in rows(OFFICERS) if cells[0] == f"{recovery:g}"]
        assert row[1:3] == [percent(found.value), whole]
        shown = row[3]
        digits = len(shown.partition(".")[2])
        assert float(shown) == pytest.approx(math.ceil(certain * 10**digits) / 10**digits)
