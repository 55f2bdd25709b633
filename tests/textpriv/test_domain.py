"""Recovery on the words of public texts: an index weighs words as these texts write them."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pytest
from small_indexes import learned
from small_trees import random_tree
from typer.testing import CliRunner

from textpriv import TEM, Index
from textpriv.cli.app import app
from textpriv.errors import TextprivError
from textpriv.evaluation import compare
from textpriv.evaluation.comparison import Documents, Task
from textpriv.guarantees import epsilon as choosing
from textpriv.guarantees.epsilon import choose_epsilon, epsilon_for
from textpriv.vocabulary import Vocabulary

WORDS = ["the", "of", *(f"{first}{second}en" for first in "bdfgklmnprst" for second in "aeiou")]
TEXTS = [" ".join(WORDS[50:])] * 20 + ["the " + " ".join(WORDS[10:])]
OTHER = [" ".join(WORDS[2:9])] * 4


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    return Index.build(Vocabulary(WORDS, vectors, language="en"), k=16)


@pytest.fixture(scope="module")
def folder(index, tmp_path_factory):
    path = tmp_path_factory.mktemp("domain") / "own.idx"
    index.save(path)
    return path


@pytest.fixture
def public(tmp_path):
    path = tmp_path / "public.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in TEXTS))
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setattr("textpriv.guarantees.epsilon.cache_folder", lambda: tmp_path / "records")
    monkeypatch.setattr("textpriv.evaluation.best_attacker._READ", 500)


def run(*arguments, code=0) -> tuple[str, str]:
    """Run a command; return what it prints and what it says, each in one line."""
    done = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="textpriv")
    assert done.exit_code == code, done.stderr
    return done.stdout, " ".join(done.stderr.replace("│", " ").split())


def recovered(mechanism: TEM, written: np.ndarray) -> float:
    """Return the attacker's rate on content words, from the whole matrix."""
    law = np.exp([mechanism.log_prob(word) for word in WORDS])
    own = written * mechanism.index.vocabulary.is_content
    return (law * own[:, None]).max(axis=0).sum() / own.sum()


def written_in(texts: list[str]) -> np.ndarray:
    """Count words, and share as many among all as were seen once."""
    said = " ".join(texts).split()
    counts = np.array([said.count(word) for word in WORDS])
    zipf = 1 / (np.arange(len(WORDS)) + 3.7)
    counts = counts + max(1, (counts == 1).sum()) * zipf / zipf.sum()
    return counts / counts.sum()


def test_epsilon_is_that_of_an_attacker_who_knows_the_domain(index):
    chosen, own = choose_epsilon(index.in_domain(TEXTS), recovery=0.3), written_in(TEXTS)
    assert chosen.value <= 0.3 < recovered(TEM(index, chosen.epsilon * 1.01), own)
    assert chosen.value == pytest.approx(recovered(TEM(index, chosen.epsilon), own))
    zipf = index.vocabulary.prior_weights("zipf")
    assert chosen.general == pytest.approx(recovered(TEM(index, chosen.epsilon), zipf))
    assert abs(chosen.value / chosen.general - 1) > 0.05


def test_a_choice_is_kept_for_its_domain_alone(index, monkeypatch):
    domains = [index, index.in_domain(TEXTS), index.in_domain(OTHER)]
    found = [epsilon_for(each, recovery=0.3) for each in domains]
    assert len({*found}) == 3
    monkeypatch.setattr(choosing, "largest_epsilon", None)
    assert [epsilon_for(each, recovery=0.3) for each in domains] == found


def test_texts_of_another_language_are_refused(index):
    with pytest.raises(TextprivError, match="content word"):
        index.in_domain(["the of", "zanzibar"])


def test_texts_replace_the_domain_of_axes():
    index = learned(WORDS)
    assert np.allclose(index.in_domain(TEXTS).domain, written_in(TEXTS))
    assert np.array_equal(index.domain, index.axes.frequency)


def test_a_tree_keeps_the_domain_with_other_heights():
    own = random_tree(90, 3, 1)
    own.domain = np.full(len(own), 1 / len(own))
    assert own.reheighted(own.heights * 2).domain is own.domain


def test_a_process_that_opens_the_folder_keeps_the_domain(folder):
    sent = Index.load(folder).in_domain(TEXTS)
    assert np.array_equal(pickle.loads(pickle.dumps(sent)).word_frequency, sent.word_frequency)


def test_compare_weighs_words_as_the_texts_do(index):
    own = index.in_domain(TEXTS)
    documents = Documents.read(TEXTS[:4], ["a", "b"] * 2, index.vocabulary)
    rows = compare({"own": TEM(own, 2.0)}, Task(documents, documents), recovery=[0.3], draws=1)
    row = rows[rows["mechanism"] == "own"].iloc[0]
    assert row["alone"] == pytest.approx(recovered(TEM(index, row["epsilon"]), written_in(TEXTS)))


def test_commands_set_the_recovery_of_public_texts(index, folder, public, tmp_path):
    given = ("--index", folder, "--recovery", 0.3, "--recovery-on", public)
    own = choose_epsilon(index.in_domain(TEXTS), recovery=0.3)
    (tmp_path / "in.txt").write_text(f"{WORDS[5]} {WORDS[6]}\n")
    report = tmp_path / "report.html"
    for command in (
        ("privatize", tmp_path / "in.txt", tmp_path / "out.txt"),
        ("decode", tmp_path / "in.txt", tmp_path / "read.txt"),
        ("report", "--output", report),
        ("explain", WORDS[5]),
        ("certify",),
    ):
        told = " ".join(run(*command, *given))
        assert f"epsilon {own.epsilon:g}: in the domain, an attacker who guesses word" in told
        assert f"recovers {own.value:.1%} of content words" in told
        assert f"In general English, guessing recovers {own.general:.1%}." in told
    shown = re.search("<b>([0-9.]+)[^<]*</b>[^<]* of content words", report.read_text())
    assert float(shown[1]) == pytest.approx(100 * own.value, rel=0.01)
    best = json.loads(run("choose", *given, "--json")[0])["candidates"][0]
    assert (best["epsilon"], best["recovered"]) == (own.epsilon, own.value)


def test_the_statement_names_the_domain(index):
    (told,) = (each for each in TEM(index.in_domain(TEXTS), 2.0).statement.notes if "SHA" in each)
    assert told.startswith("Recovery rates are about words as texts of the domain write them")
    assert told not in TEM(index.in_domain(OTHER), 2.0).statement.notes
    assert (
        "the texts of the domain are public"
        in TEM(index.in_domain(OTHER), 2.0).statement.assumptions
    )
    assert "domain" not in str(TEM(index, 2.0).statement)


def test_public_texts_without_a_recovery_are_refused(folder, public):
    command = ("privatize", "in.txt", "out.txt", "--epsilon", 2)
    said = run(*command, "--index", folder, "--recovery-on", public, code=2)[1]
    assert "--recovery-on" in said
    assert "need" in said


def test_a_run_is_not_continued_with_other_public_texts(folder, public, tmp_path):
    (tmp_path / "in.txt").write_text(f"{WORDS[5]} {WORDS[6]}\n")
    given = ("privatize", tmp_path / "in.txt", tmp_path / "out.txt", "--index", folder)
    given = (*given, "--recovery", 0.3, "--recovery-on", public, "--resume")
    run(*given)
    before = (tmp_path / "out.txt").read_bytes()
    run(*given)
    public.write_text("".join(json.dumps({"text": each}) + "\n" for each in OTHER))
    assert "changed: epsilon" in run(*given, code=1)[1]
    assert (tmp_path / "out.txt").read_bytes() == before


def test_a_run_is_not_continued_where_other_texts_give_its_epsilon(folder, public, tmp_path):
    (tmp_path / "in.txt").write_text(f"{WORDS[5]} {WORDS[6]}\n")
    given = ("privatize", tmp_path / "in.txt", tmp_path / "out.txt", "--index", folder)
    given = (*given, "--recovery", 0.3, "--recovery-on", public, "--resume")
    run(*given)
    with public.open("a") as file:
        file.write('{"text": "the of the"}\n')
    assert "changed: domain" in run(*given, code=1)[1]


def test_private_texts_are_not_read_as_public(folder, public, tmp_path):
    given = ("--index", folder, "--recovery", 0.3, "--recovery-on", public)
    said = run("privatize", public, tmp_path / "out.jsonl", *given, code=1)[1]
    assert "cannot be read as public" in said
    assert "epsilon" not in said
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("command", ["privatize", "decode", "report"])
def test_public_texts_are_never_written_over(command, folder, public, tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": WORDS[5]}) + "\n")
    ends = ("--output", public) if command == "report" else (tmp_path / "in.jsonl", public)
    before = public.read_bytes()
    given = ("--index", folder, "--recovery", 0.3, "--recovery-on", public, "--force")
    said = run(command, *ends, *given, code=2 if command == "report" else 1)[1]
    assert "be written over" in said
    assert public.read_bytes() == before
