"""Every sentence that a statement can print stands in ``docs/guide/statements.md`` beside what backs it.

The sentences are read from the source (``statement_sentences.py``) and compared with the statements of the golden file, so
that neither a new sentence nor a lost one passes unseen. A failure prints the row that is to be added.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from statement_sentences import ROOT, sentences

from pairwise import PrivateAUCClassifier, PrivateLDA
from textpriv.ledger import Ledger
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer

PAGE = ROOT / "docs" / "guide" / "statements.md"
PROOFS = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parents[1] / "golden" / "statements.json"
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
LISTS = ("assumptions", "not_protected", "notes")


def rows(package: str) -> dict[str, list[str]]:
    """Sentence to what backs it, of a package's part of the page."""
    parts = re.split(
        r"^## (textpriv|pairwise)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    part = dict(zip(parts[1::2], parts[2::2], strict=True))[package]
    return {
        sentence.replace("\\|", "|"): backing.split("; ")
        for sentence, backing in ROW.findall(part)
        if sentence != "sentence" and not sentence.startswith("---")
    }


@cache
def names_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def missing(backing: str) -> str | None:
    """What is wrong with a reference to a section or to a test; None if it is there."""
    test = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", backing)
    if test:
        file = ROOT / test[1]
        if not file.is_file():
            return f"there is no file {test[1]}"
        return None if test[2] in names_of(file) else f"{test[1]} has no test {test[2]}"
    section = re.fullmatch(r"mechanisms\.md (\S+)", backing)
    if not section:
        return f"{backing!r} is neither `tests/FILE.py::test_NAME` nor mechanisms.md SECTION"
    return None if is_section(section[1]) else f"docs/mechanisms.md has no section {section[1]}"


def is_section(name: str) -> bool:
    """Whether a heading, a numbered paragraph, an item of a section's list, or an erratum has this name."""
    if re.search(rf"^(?:#+ |\*\*|\* \*\*|\| )\(?{re.escape(name)}[. |*),]", PROOFS, re.MULTILINE):
        return True
    chapter, dot, item = name.partition(".")
    body = re.search(
        rf"^## {re.escape(chapter)}\. .*?(?=^## |\Z)", PROOFS, re.MULTILINE | re.DOTALL
    )
    return bool(dot and body and re.search(rf"^{re.escape(item)}\. ", body[0], re.MULTILINE))


@pytest.mark.parametrize("package", ["textpriv", "pairwise"])
def test_every_sentence_of_a_statement_is_in_the_table(package):
    table, found = rows(package), sentences(package)
    lost = [
        f"{sentence!r} of {', '.join(sorted(files))}: add to the part {package} of docs/guide/statements.md the row\n"
        f"| {sentence.replace('|', chr(92) + '|')} | mechanisms.md SECTION; `tests/FILE.py::test_NAME` |"
        for sentence, files in found.items()
        if sentence not in table
    ]
    assert not lost, "\n\n" + "\n\n".join(lost)
    gone = sorted(set(table) - set(found))
    assert not gone, "remove these rows, which no statement prints any more:\n" + "\n".join(gone)


@pytest.mark.parametrize("package", ["textpriv", "pairwise"])
def test_what_backs_a_sentence_exists(package):
    wrong = [
        f"{sentence!r}: {problem}"
        for sentence, backings in rows(package).items()
        for backing in backings
        if (problem := missing(backing)) is not None
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def covered(items: set[str], package: str) -> list[str]:
    """Those of some printed items that fit no sentence of the table."""
    forms = [
        re.compile(".*".join(re.escape(part) for part in sentence.split("{}")), re.DOTALL)
        for sentence in rows(package)
    ]
    return sorted(item for item in items if not any(form.fullmatch(item) for form in forms))


def items_of(statement: dict) -> set[str]:
    return {item for name in LISTS for item in statement[name]}


def test_whatever_a_statement_of_the_golden_file_prints_is_in_the_table():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    items = set().union(*map(items_of, golden["mechanisms"].values()))
    for lines in golden["policies"].values():
        items |= {line for name in lines for line in lines[name]}
    assert covered(items, "textpriv") == []


def test_whatever_a_release_prints_is_in_the_table(tmp_path, three_points):
    mechanism = TEM(three_points, 2.0)
    items: set[str] = set()
    for privatizer in (
        Privatizer(mechanism),
        Privatizer(mechanism, seed=1),
        Privatizer(
            mechanism, ledger=Ledger(tmp_path / "l", document_limit=4.0, author_rho_limit=9.0)
        ),
    ):
        items |= items_of(privatizer.statement.to_dict())
    assert covered(items, "textpriv") == []


def test_whatever_a_learner_prints_is_in_the_table():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.repeat([0, 1], 30)
    items: set[str] = set()
    for learner in (
        PrivateLDA(epsilon=1.0, delta=1e-5),
        PrivateLDA(epsilon=1.0, delta=1e-5, classes=[0, 1], random_state=1),
        PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1], algorithm="statistics"),
    ):
        items |= items_of(learner.fit(X, y).statement_.to_dict())
    assert items
    assert covered(items, "pairwise") == []


def test_a_new_sentence_is_found_wherever_it_is_written(tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "one.py").write_text(
        "from made.two import WRITTEN\n"
        'HERE = "a constant of the module"\n'
        "class A:\n"
        "    def _notes(self, n):\n"
        '        return (f"a method says {n}",)\n'
        "    def f(self, statement, n):\n"
        '        listed = ["in a list"]\n'
        '        listed.append("put at its end")\n'
        "        return statement.extended(notes=(HERE, WRITTEN, *self._notes(n)), not_protected=tuple(listed))\n"
        "    def g(self):\n"
        '        raise ValueError("no sentence of a statement")\n'
    )
    (tmp_path / "made" / "two.py").write_text('WRITTEN = "of another " + "module there"\n')
    monkeypatch.setattr("statement_sentences.ROOT", tmp_path)
    assert set(sentences("made")) == {
        "a constant of the module",
        "of another module there",
        "a method says {}",
        "in a list",
        "put at its end",
    }


def test_references_that_lead_nowhere_are_found():
    assert (
        missing("mechanisms.md 3.1")
        is missing("mechanisms.md TEM-12")
        is missing("mechanisms.md 2.2")
        is None
    )
    assert (
        missing("`tests/textpriv/test_statement_table.py::test_what_backs_a_sentence_exists`")
        is None
    )
    for wrong in ("mechanisms.md 99", "mechanisms.md TEM-99", "`tests/none.py::test_a`", "because"):
        assert missing(wrong)
    assert missing("`tests/textpriv/test_statement.py::test_none`")
