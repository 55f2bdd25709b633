"""The command line: exit codes, what goes to which stream, and that no message quotes a text."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app

pytestmark = pytest.mark.usefixtures("without_torch")

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]
SECRET = "zanzibar"
COMMANDS = ("demo", "index", "privatize", "explain")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    lines = (f"{w} {' '.join(f'{x:.4f}' for x in r)}" for w, r in zip(WORDS, rows, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(vectors) -> Path:
    out = vectors.with_name("small.idx")
    result = _run("index", vectors, out, "--k", 16)
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text(f"{' '.join(WORDS[:30])}.\n{' '.join(WORDS[50:90])} {SECRET}\n")
    return path


def _run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def _privatize(source, target, folder, *more, **options):
    return _run("privatize", source, target, "--index", folder, "--epsilon", 6, *more, **options)


def _failed(result, code=1):
    """Check that a command failed with a message and without a traceback."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert SECRET not in result.output
    if code == 1:
        assert result.stderr.startswith("error: ")
        assert result.stdout == ""
    return result.stderr


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    result = _run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: textpriv {command}" in result.stdout


def test_the_command_is_there_as_a_module_too():
    command = [sys.executable, "-m", "textpriv", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == _run("--version").stdout


def test_the_version_is_told():
    result = _run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("textpriv ")


def test_help_loads_no_heavy_package():
    heavy = "{'numpy', 'spacy', 'numba', 'gensim', 'pyarrow', 'scipy'}"
    code = f"import sys, textpriv.cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# index


def test_index_tells_what_it_made(vectors, tmp_path):
    result = _run("index", vectors, tmp_path / "a.idx", "--k", 8, "--limit", 100, "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["words"], told["dimensions"], told["metric"], told["k"]) == (
        100,
        8,
        "euclidean",
        8,
    )


def test_index_replaces_a_folder_only_with_force(vectors, folder):
    assert "--force" in _failed(_run("index", vectors, folder))
    assert _run("index", vectors, folder, "--k", 16, "--force").exit_code == 0


def test_index_refuses_vectors_that_are_none(tmp_path):
    (tmp_path / "a.txt").write_text(f"{SECRET} is no vector\n")
    _failed(_run("index", tmp_path / "a.txt", tmp_path / "a.idx"))
    assert not (tmp_path / "a.idx").exists()


def test_index_names_a_file_of_words_that_is_no_text(vectors, tmp_path):
    (tmp_path / "words.txt").write_bytes(SECRET.encode() + b"\xff\n")
    for name, said in (("words.txt", "is not UTF-8 text"), ("none.txt", "cannot be read")):
        result = _run("index", vectors, tmp_path / "a.idx", "--without", tmp_path / name)
        assert said in _failed(result)
    assert not (tmp_path / "a.idx").exists()


# privatize


def test_privatize_writes_words_of_the_vocabulary_only(texts, folder, tmp_path):
    result = _privatize(texts, tmp_path / "out.txt", folder)
    assert result.exit_code == 0, result.stderr
    first, second = (tmp_path / "out.txt").read_text().splitlines()
    assert len(first.removesuffix(".").split()) == 30
    assert len(second.split()) == 41
    assert {*first.removesuffix(".").split(), *second.split()} <= set(WORDS)


def test_privatize_says_on_standard_error_what_it_did_and_guarantees(texts, folder, tmp_path):
    result = _privatize(texts, tmp_path / "out.txt", folder)
    assert result.stdout == ""
    assert "2 documents" in result.stderr
    assert "tokens per second" in result.stderr
    assert "Not protected: " in result.stderr


def test_privatize_prints_one_json_object(texts, folder, tmp_path):
    result = _privatize(texts, tmp_path / "out.txt", folder, "--json")
    told = json.loads(result.stdout)
    assert told["report"]["documents"] == 2
    assert sum(told["report"]["tokens"].values()) == 72
    assert told["statement"]["epsilon"] == 6.0


def test_other_columns_are_kept_and_warned_about_by_name_only(folder, tmp_path):
    with (tmp_path / "a.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("who", "review"), (SECRET, f'{WORDS[0]}, "{WORDS[1]}"\n')])
    result = _privatize(
        tmp_path / "a.csv", tmp_path / "b.csv.gz", folder, "--text-column", "review"
    )
    assert result.exit_code == 0, result.stderr
    assert "copied as they are: who" in result.stderr
    assert "; other columns, released as written: who; the form of the files" in result.stderr
    assert SECRET not in result.stderr
    with gzip.open(tmp_path / "b.csv.gz", "rt", newline="") as written:
        header, row = csv.reader(written)
    assert header == ["who", "review"]
    assert row[0] == SECRET


def test_a_seed_repeats_the_output_and_is_warned_about(texts, folder, tmp_path):
    outputs = []
    for name in ("a.txt", "b.txt"):
        result = _privatize(texts, tmp_path / name, folder, "--seed", 1, "--batch-size", len(name))
        assert "experiments only" in result.stderr
        outputs.append((tmp_path / name).read_text())
    assert outputs[0] == outputs[1]


def test_without_a_seed_two_runs_differ(texts, folder, tmp_path):
    for name in ("a.txt", "b.txt"):
        _privatize(texts, tmp_path / name, folder, "--prior", "uniform")
    assert (tmp_path / "a.txt").read_text() != (tmp_path / "b.txt").read_text()


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_madlib_is_a_mechanism(texts, folder, tmp_path, search):
    result = _privatize(
        texts, tmp_path / "out.txt", folder, "--mechanism", "madlib", "--search", search
    )
    assert result.exit_code == 0, result.stderr
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2


def test_policy_options_reach_the_policy(texts, folder, tmp_path):
    result = _privatize(texts, tmp_path / "out.txt", folder, "--unknown", "drop")
    assert result.exit_code == 0, result.stderr
    assert len((tmp_path / "out.txt").read_text().splitlines()[1].split()) == 40


def test_standard_input_to_standard_output(texts, folder):
    result = _privatize("-", "-", folder, input=texts.read_text())
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_skip_tells_how_many_records_were_left_out(folder, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\n" + WORDS[0].encode() + b"\n")
    result = _privatize(tmp_path / "a.txt", tmp_path / "b.txt", folder, "--on-error", "skip")
    assert result.exit_code == 0, result.stderr
    assert "left out: 1 encoding" in result.stderr


# Failures


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf"])
def test_an_epsilon_without_meaning_fails(texts, folder, tmp_path, epsilon):
    arguments = ("--index", folder, "--epsilon", epsilon)
    message = _failed(_run("privatize", texts, tmp_path / "out.txt", *arguments))
    assert "epsilon" in message
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", "much"),
        (),
        ("--epsilon", 6, "--search", "exact"),
        ("--epsilon", 6, "--mechanism", "madlib", "--gamma", 1),
        ("--epsilon", 6, "--format", "xml"),
        ("--epsilon", 6, "--workers", 0),
        ("--epsilon", 6, "--address", "spark://host:7077"),
        ("--epsilon", 6, "--no-such-option"),
    ],
)
def test_wrong_usage_ends_with_2(texts, folder, tmp_path, arguments):
    result = _run("privatize", texts, tmp_path / "out.txt", "--index", folder, *arguments)
    _failed(result, code=2)


def test_json_and_texts_cannot_share_standard_output(texts, folder):
    _failed(_privatize(texts, "-", folder, "--json"), code=2)


def test_a_missing_index_is_named(texts, tmp_path):
    assert "none.idx" in _failed(_privatize(texts, tmp_path / "b.txt", tmp_path / "none.idx"))


def test_a_missing_input_is_named(folder, tmp_path):
    assert "none.txt" in _failed(_privatize(tmp_path / "none.txt", tmp_path / "b.txt", folder))


@pytest.mark.parametrize(
    ("name", "content", "target", "expected"),
    [
        ("a.docx", b"zanzibar", "b.docx", "--format"),
        ("a.txt", b"zanzibar", "a.txt", "same file"),
        ("a.txt", b"zanzibar", "none/b.txt", "folder does not exist"),
        ("a.txt", b"zanzibar", "b.jsonl", "format of the input"),
        ("a.txt", b"fine\nzanzibar \xff\n", "b.txt", "line 2"),
        ("a.txt", b"fine\nzanzibar \0\n", "b.txt", "NUL"),
        ("a.txt.gz", b"zanzibar", "b.txt", "damaged"),
        ("a.csv", b"", "b.csv", "is empty"),
        ("a.csv", b"zanzibar,body\nx,y\n", "b.csv", "--text-column"),
        ("a.csv", b"zanzibar\nx\n", "b.csv", "1 column"),
        ("a.csv", b'text\n"zanzibar" x\n', "b.csv", "quotes"),
        ("a.jsonl", b'{"text":"x"}\n{"text":"zanzibar\n', "b.jsonl", "line 2"),
        ("a.jsonl", b'{"text":["zanzibar"]}\n', "b.jsonl", "expected a string"),
    ],
)
def test_a_bad_file_is_told_without_its_content(folder, tmp_path, name, content, target, expected):
    (tmp_path / name).write_bytes(content)
    assert expected in _failed(_privatize(tmp_path / name, tmp_path / target, folder))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_interrupt_ends_with_130_and_one_line(texts, folder, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("textpriv.corpus.privatize_corpus", interrupted)
    result = _privatize(texts, tmp_path / "b.txt", folder)
    assert result.exit_code == 130
    assert result.stderr.split() == ["interrupted;", "no", "output", "file", "was", "written"]


def test_the_installed_command_fails_without_a_traceback(tmp_path):
    code = "from textpriv.cli.app import main; main()"
    arguments = ["explain", str(tmp_path), SECRET, "--epsilon", "6"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""


def test_a_reader_that_goes_away_ends_the_run_quietly(folder, tmp_path):
    (tmp_path / "a.txt").write_text(f"{WORDS[0]}\n" * 50_000)
    code = "from textpriv.cli.app import main; main()"
    arguments = ["privatize", str(tmp_path / "a.txt"), "-", "--index", str(folder), "-e", "6"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdout.read(1)
        run.stdout.close()
        messages = run.stderr.read()
        assert run.wait() == 1
    assert messages == b""


# explain


def test_explain_shows_the_law_of_a_word(folder):
    result = _run("explain", folder, WORDS[3], "--epsilon", 6, "-n", 5, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    probabilities = [output["probability"] for output in told["outputs"]]
    kept = [o["probability"] for o in told["outputs"] if o["word"] == WORDS[3]]
    assert len(probabilities) == 5
    assert sum(probabilities) <= 1
    assert kept == pytest.approx([told["keep_probability"]])


def test_explain_says_that_madlib_has_no_closed_law(folder):
    message = _failed(_run("explain", folder, WORDS[3], "-e", 6, "--mechanism", "madlib"))
    assert "no closed output law" in message


def test_explain_tells_how_well_two_texts_are_told_apart_and_quotes_neither(folder, tmp_path):
    pytest.importorskip("dp_accounting")
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(" ".join(WORDS[:4]), encoding="utf-8")
    second.write_text(" ".join([WORDS[5], *WORDS[1:4]]), encoding="utf-8")
    options = ["explain", folder, "--documents", first, second, "--epsilon", 2]
    told = json.loads(_run(*options, "--json").stdout)
    assert told["words"] == 1
    low, high = told["total_variation"]
    assert 0 < low <= high < low + 1e-3
    assert told["epsilon"]["0.001"] < told["epsilon"]["1e-06"] <= told["total"] + 1e-3
    shown = _run(*options)
    assert "The documents differ in 1 word, " in shown.stdout
    assert "as private as they are" in shown.stderr
    second.write_text("!", encoding="utf-8")
    assert "tokens, which the output shows" in _failed(_run(*options))
    second.unlink()
    assert "cannot be read" in _failed(_run(*options))
    for wrong in (["explain", folder, "--epsilon", 2], [*options, WORDS[0]]):
        assert _run(*wrong).exit_code in (1, 2)


# certify


@pytest.mark.parametrize("command", ["certify", "audit"])
def test_what_could_not_be_found_out_is_no_refutation(folder, command):
    arguments = {"certify": (folder, "--epsilon", -3), "audit": ("tem", "--epsilon", 1e31)}
    result = _run(command, *arguments[command])
    _failed(result, 2)
    assert "epsilon" in result.stderr


def test_explain_prints_a_table(folder):
    result = _run("explain", folder, WORDS[3], "--epsilon", 6)
    assert result.stdout.startswith(f"{WORDS[3]} stays as it is with probability 0.")
    assert "all other words" in result.stdout


def test_explain_refuses_a_word_outside_the_vocabulary(folder):
    result = _run("explain", folder, "nosuchword", "--epsilon", 6)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")


def test_warm_says_where_it_keeps_compiled_code_and_the_index(folder):
    done = json.loads(_run("warm", "--index", folder, "--json").stdout)
    assert done["index_kept"]
    assert Path(done["index"]).samefile(folder)
    assert done["compiled_kept"]
    assert Path(done["compiled"]).is_dir()


def test_without_an_index_the_built_in_one_is_used():
    result = _run("privatize", "-", "-", "--epsilon", 60, input="The patient was admitted.\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "the patient was admitted.\n"
    assert "25,000 words" in result.stderr


def test_a_run_of_two_processes_finds_the_built_in_index(tmp_path):
    (tmp_path / "in.txt").write_text("The patient was admitted.\n" * 20)
    arguments = (tmp_path / "in.txt", tmp_path / "out.txt", "--epsilon", 60, "--workers", 2)
    result = _run("privatize", *arguments, "--batch-size", 5, "--forget-key")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "out.txt").read_text() == "the patient was admitted.\n" * 20


def test_explain_takes_a_word_alone_or_after_a_folder(folder):
    alone = _run("explain", "movie", "--epsilon", 3, "--json")
    assert json.loads(alone.stdout)["word"] == "movie"
    assert (
        json.loads(_run("explain", folder, WORDS[3], "-e", 6, "--json").stdout)["word"] == WORDS[3]
    )
    _failed(_run("explain", folder, WORDS[3], WORDS[4], "--epsilon", 6), 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("privatize", "-", "-"),
        ("explain", "movie"),
        ("certify",),
        ("leaks", "-"),
        ("report", "--output", "page.html"),
    ],
)
def test_without_an_epsilon_three_amounts_are_shown(arguments):
    result = _run(*arguments, input=f"{SECRET}\n")
    _failed(result, 2)
    assert "no default" in result.stderr
    assert "about 50%" in result.stderr
    assert SECRET not in result.output


def test_the_amounts_are_those_of_the_index_that_is_named(folder):
    result = _run("certify", folder)
    _failed(result, 2)
    assert str(folder)[:20] in result.stderr
    epsilons = [line.split()[1] for line in result.stderr.splitlines() if "about" in line]
    assert len(epsilons) == 3
    assert all(0 < float(each) < 50 for each in epsilons)
