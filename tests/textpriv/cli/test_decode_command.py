"""``textpriv decode``: files of every format, the label and the statement, and what is refused before a byte is written."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary

WORDS = [f"w{chr(97 + i)}" for i in range(20)]
TEXT = "wa wb wc, wd!"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("decode")
    vectors = np.random.default_rng(0).normal(size=(20, 3))
    Index.build(Vocabulary(WORDS, vectors), k=8, hnsw=False).save(base / "small.idx")
    rng = np.random.default_rng(1)
    lines = [" ".join(WORDS[i] for i in rng.integers(0, 20, 30)) for _ in range(30)]
    (base / "public.txt").write_text("\n".join(lines) + "\n")
    (base / "model.arpa").write_text(
        "\\data\\\n\\1-grams:\n" + "\n".join(f"-1.3 {word}" for word in WORDS) + "\n\\end\\\n"
    )
    return base


def decode(folder, source, target, *more, epsilon=200):
    chosen = () if {"--public", "--model"} & set(more) else ("--public", folder / "public.txt")
    index = "--index", folder / "small.idx", "--epsilon", epsilon
    return run("decode", source, target, *index, *chosen, *more)


FILES = {
    "a.txt": (TEXT + "\n", f"[decoded] {TEXT}\n"),
    "a.jsonl": (
        json.dumps({"id": 7, "text": TEXT}) + "\n",
        json.dumps({"id": 7, "text": f"[decoded] {TEXT}"}, separators=(",", ":")) + "\n",
    ),
    "a.csv": (f'id,text\n7,"{TEXT}"\n', f'id,text\n7,"[decoded] {TEXT}"\n'),
}


@pytest.mark.parametrize("name", FILES)
def test_files_keep_their_form_and_every_text_is_labelled(folder, tmp_path, name):
    private, out = tmp_path / name, tmp_path / f"out-{name}"
    private.write_text(FILES[name][0])
    done = decode(folder, private, out)
    assert done.exit_code == 0
    assert out.read_text() == FILES[name][1]
    assert "1 decoded documents. Of " in done.stderr
    assert "decoding gives most of the original back" in done.stderr
    assert "Every protected word was drawn by TEM" in done.stderr


def test_json_holds_the_recovery_of_held_out_public_text_and_the_statement(folder, tmp_path):
    private, out = tmp_path / "a.txt", tmp_path / "b.txt"
    private.write_text(TEXT + "\n")
    given = json.loads(decode(folder, private, out, "--json", epsilon=1).stdout)
    assert given["recovery"]["words"] == 90  # of 30 texts of 30 words every tenth is held out
    assert 0 < given["recovery"]["restored"] < 0.9
    assert "decoded from private text" in given["statement"]["notes"][-1]


def test_without_public_text_it_is_drawn_from_the_model(folder, tmp_path):
    private, out = tmp_path / "a.txt", tmp_path / "b.txt"
    private.write_text(TEXT + "\n")
    given = json.loads(
        decode(folder, private, out, "--json", "--model", folder / "model.arpa").stdout
    )
    assert given["recovery"]["words"] == 2_000
    assert given["recovery"]["restored"] == 1


@pytest.mark.parametrize(
    ("source", "target", "more", "said"),
    [
        ("a.txt", "a.txt", (), "same file"),
        ("a.txt", "b.csv", (), "format of the input"),
        ("none.txt", "b.txt", (), "No such file"),
        (".", "b.txt", (), "folder"),
        ("a.txt", "s3://bucket/b.txt", (), "files of this machine"),
        ("bad.jsonl", "b.jsonl", (), "line 2"),
        ("a.txt", "b.txt", ("--model", "none.arpa"), "cannot be read as an ARPA file"),
        ("a.txt", "b.txt", ("--public", "a.txt"), "fewer than two texts"),
        ("a.txt", "b.txt", ("--mechanism", "madlib", "--search", "exact"), "no closed"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_left(
    folder, tmp_path, monkeypatch, source, target, more, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT + "\n")
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": TEXT}) + "\nnonsense\n")
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    done = decode(folder, source, target, *more)
    assert done.exit_code == 1
    assert said in " ".join(done.stderr.split())
    assert TEXT not in done.stderr
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("target", "more", "code"),
    [
        ("there.txt", (), 1),
        ("public.txt", ("--public", "public.txt", "--force"), 1),
        ("words.arpa", ("--model", "words.arpa", "--format", "text", "--force"), 1),
        ("counts.txt", ("--prior", "counts.txt", "--force"), 1),
    ],
)
def test_nothing_is_written_over_what_is_there_or_read(
    folder, tmp_path, monkeypatch, target, more, code
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "there.txt", "public.txt", "words.arpa", "counts.txt"):
        (tmp_path / name).write_text(TEXT + "\n")
    done = decode(folder, "a.txt", target, *more)
    assert done.exit_code == code
    assert ("exists" if target == "there.txt" else "must lie elsewhere") in done.stderr
    assert (tmp_path / target).read_text() == TEXT + "\n"
