"""``textpriv decode``: what it writes, what it says of it, and what is refused before a byte is written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from textpriv.evaluation import decoding
from textpriv.evaluation.decoding import Recovery

from .conftest import WORDS

TEXT = f"{WORDS[0]} {WORDS[1]} {WORDS[2]}, {WORDS[3]}!"


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    rows = np.random.default_rng(1).integers(0, 40, (30, 30))
    path = tmp_path_factory.mktemp("decode") / "public.txt"
    path.write_text("\n".join(" ".join(WORDS[i] for i in row) for row in rows) + "\n")
    words = "\n".join(f"-1.3 {word}" for word in WORDS)
    path.with_name("model.arpa").write_text(f"\\data\\\n\\1-grams:\n{words}\n\\end\\\n")
    return path


@pytest.fixture
def decode(run, folder, public, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT + "\n")

    def call(source, target, *more, epsilon=200):
        chosen = () if {"--public", "--model"} & {*more} else ("--public", public)
        given = ("--index", folder, "--epsilon", epsilon, *chosen, *more)
        return run("decode", tmp_path / source, tmp_path / target, *given)

    return call


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.txt", "{}\n", "[decoded] {}\n"),
        ("a.csv", 'id,text\n7,"{}"\n', 'id,text\n7,"[decoded] {}"\n'),
        ("a.jsonl", '{{"id":7,"text":"{}"}}\n', '{{"id":7,"text":"[decoded] {}"}}\n'),
    ],
)
def test_files_keep_their_form_and_texts_are_marked(decode, tmp_path, name, before, after):
    (tmp_path / name).write_text(before.format(TEXT))
    done = decode(name, f"out-{name}")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / f"out-{name}").read_text() == after.format(TEXT)
    assert "decoding recovers most content words" in done.stderr


def test_function_words_that_come_back_warn_of_nothing(decode, tmp_path, monkeypatch):
    measured = Recovery(900, 0.66, 0.72, 0.23)
    monkeypatch.setattr(decoding, "expected_recovery", lambda *_: measured)
    (tmp_path / "a.txt").write_text(f"{TEXT}\n")
    said = decode("a.txt", "b.txt").stderr
    assert "recovers 23.0% of content words" in said
    assert "recovers most" not in said


def test_the_statement_names_the_columns_that_are_copied(decode, tmp_path):
    for name, text in (
        ("a.csv", f'id,text\n7,"{TEXT}"\n'),
        ("a.jsonl", json.dumps({"text": TEXT}) + "\n" + json.dumps({"id": 7, "text": TEXT}) + "\n"),
    ):
        (tmp_path / name).write_text(text)
        told = json.loads(decode(name, f"out-{name}", "--json").stdout)
        copied = "other columns, released as written: id"
        assert copied in told["statement"]["not_protected"]


def test_progress_is_told_while_documents_are_decoded(decode, tmp_path):
    (tmp_path / "many.txt").write_text("good film\n" * 120)
    events = [
        json.loads(line) for line in decode("many.txt", "b.txt", "--json").stderr.split("\n")[:-1]
    ]
    assert {"event": "progress", "documents": 50}.items() <= events[0].items()


def test_words_sampled_from_a_model_are_not_called_public_text(decode, public):
    model = public.with_name("model.arpa")
    said = decode("a.txt", "b.txt", "--model", model).stderr
    assert "4,000 words sampled from the language model" in said
    assert "public text" not in said.split("\n\n")[0]
    told = json.loads(decode("a.txt", "b.txt", "--model", model, "--force", "--json").stdout)
    assert "sampled from the language model" in told["recovery"]["measured_on"]


def test_recovery_is_measured_on_public_text_that_was_not_counted(decode):
    result = decode("a.txt", "b.txt", "--json", epsilon=0.1)
    told = json.loads(result.stdout)
    assert told["recovery"]["words"] == 180  # every fifth of 30 texts of 30 words
    assert told["recovery"]["measured_on"] == "words of public text"
    assert 0 < told["recovery"]["restored"] < 0.9


@pytest.mark.parametrize(
    ("source", "target", "more", "said"),
    [
        ("a.txt", "a.txt", (), "be written over"),
        ("a.txt", "b.csv", (), "format of the input"),
        ("none.txt", "b.txt", (), "No such file"),
        (".", "b.txt", (), "folder"),
        ("bad.jsonl", "b.jsonl", (), "line 2"),
        ("a.txt", "there.txt", (), "exists"),
        ("a.txt", "b.txt", ("--model", "none.arpa"), "cannot be read as an ARPA file"),
        (
            "a.txt",
            "b.txt",
            ("--mechanism", "madlib", "--option", "search=exact"),
            "no output distribution",
        ),
        (
            "a.txt",
            "words.arpa",
            ("--model", "words.arpa", "--format", "text", "--force"),
            "elsewhere",
        ),
        ("a.txt", "counts.txt", ("--prior", "counts.txt", "--force"), "elsewhere"),
    ],
)
def test_what_cannot_be_done_leaves_everything_as_it_was(
    decode, tmp_path, monkeypatch, source, target, more, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": TEXT}) + "\nnonsense\n")
    for name in ("there.txt", "words.arpa", "counts.txt"):
        (tmp_path / name).write_text(TEXT + "\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = decode(source, target, *more)
    assert done.exit_code == 1
    assert said in " ".join(done.stderr.split())
    assert TEXT not in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
