"""What the output of a run may take the place of: nothing that it reads, and nothing that it cannot make again."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from echo import Echo
from small_indexes import saved
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

pytestmark = pytest.mark.usefixtures("without_torch")

WORDS = ["".join(parts) for parts in itertools.product("bdfgk", "aeiou", "nrst", "ao")]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """The current folder of a run: texts, counts of words, and a policy of spans."""
    monkeypatch.chdir(tmp_path)
    rows = ({"id": str(n), "text": " ".join(WORDS[n : n + 8])} for n in range(20))
    Path("raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("counts.jsonl").write_text("".join(f"{word} 2\n" for word in WORDS))
    Path("policy.jsonl").write_text('[kinds.PERSON]\nlaw = "mask"\n')
    return tmp_path


def command(index: Path, target: str, *options: object, source: str = "raw.jsonl"):
    given = ["privatize", source, target, "--index", index, "--epsilon", 2, *options]
    return CliRunner().invoke(app, [str(each) for each in given])


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, whatever it is called; folders as none."""
    return {
        str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


SPANS = ("--detect", "patterns", "--policy", "policy.jsonl")
LEDGER = ("--ledger", "book", "--document", "id")


@pytest.mark.parametrize("force", [(), ("--force",), ("--resume", "--force")])
@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("policy.jsonl", SPANS),
        ("counts.jsonl", ("--prior", "counts.jsonl")),
        ("link.jsonl", ("--prior", "counts.jsonl")),
        ("out.jsonl.key", ("--key", "out.jsonl.key", "--format", "jsonl")),
        ("book", (*LEDGER, "--format", "jsonl")),
        ("book-wal", (*LEDGER, "--format", "jsonl")),
        ("out.jsonl", (*SPANS, "--offsets", "policy.jsonl")),
        ("out.jsonl", (*SPANS, "--offsets", "raw.jsonl")),
        ("out.jsonl", (*LEDGER, *SPANS, "--offsets", "book")),
        ("out.jsonl", ("--key", "out.jsonl.quarantine.jsonl", "--on-error", "quarantine")),
    ],
)
def test_what_a_command_reads_or_keeps_is_never_written_over_and_nothing_is_made(
    index, work, target, options, force
):
    os.link("counts.jsonl", "link.jsonl")
    before = files(work)
    result = command(index, target, *options, *force)
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    assert any(said in result.stderr for said in ("must lie elsewhere", "written over"))
    assert files(work) == before


def test_an_index_is_never_written_over(index, work):
    before = files(index)
    result = command(index, str(index / "words.json"), "--format", "jsonl", "--force")
    assert result.exit_code == 1
    assert "must lie elsewhere" in result.stderr
    assert files(index) == before


def test_the_input_is_never_written_over_by_what_is_set_aside(index, work):
    Path("out.jsonl.quarantine.jsonl").write_text('{"text": 7}\n')
    before = files(work)
    options = ("--on-error", "quarantine", "--force")
    result = command(index, "out.jsonl", *options, source="out.jsonl.quarantine.jsonl")
    assert result.exit_code == 1
    assert "must lie elsewhere" in result.stderr
    assert files(work) == before


@pytest.mark.parametrize(
    "options",
    [(), ("--seed", 1), LEDGER, ("--key", "mine.key")],
    ids=["key", "seed", "book", "own"],
)
def test_a_file_that_the_run_did_not_make_stays_unless_forced(index, work, options):
    Path("out.jsonl").write_text("a thesis\n")
    before = files(work)
    result = command(index, "out.jsonl", *options)
    assert result.exit_code == 1
    assert "out.jsonl exists" in result.stderr
    assert "--force" in result.stderr
    assert files(work) == before
    assert command(index, "out.jsonl", *options, "--force").exit_code == 0
    assert len(Path("out.jsonl").read_text().splitlines()) == 20


def test_offsets_that_are_there_stay_unless_forced(index, work):
    Path("moved.jsonl").write_text("a thesis\n")
    before = files(work)
    options = (*SPANS, "--offsets", "moved.jsonl")
    result = command(index, "out.jsonl", *options)
    assert result.exit_code == 1
    assert "moved.jsonl exists" in result.stderr
    assert files(work) == before
    assert command(index, "out.jsonl", *options, "--force").exit_code == 0


def test_a_command_that_is_given_again_replaces_its_own_output(index, work):
    made = []
    for _ in range(2):
        assert command(index, "out.jsonl").exit_code == 0
        made.append(files(work))
    assert made[0] == made[1]
    # Without the key nobody can tell whose file it is.
    Path("out.jsonl.key").unlink()
    assert command(index, "out.jsonl").exit_code == 1
    assert command(index, "out.jsonl", "--resume").exit_code == 0


def test_an_empty_file_and_a_device_are_nobodys_data(index, work):
    Path("out.jsonl").touch()
    assert command(index, "out.jsonl").exit_code == 0
    assert command(index, "/dev/null").exit_code == 0


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_folder_is_never_replaced(index, work, force):
    Path("in").mkdir()
    Path("raw.jsonl").rename("in/a.jsonl")
    Path("out").mkdir()
    Path("out/thesis.txt").write_text("a thesis\n")
    before = files(work)
    for options in ((), LEDGER):
        result = command(index, "out", *options, *force, source="in")
        assert result.exit_code == 1
        assert "exists. Choose another folder" in result.stderr
        assert files(work) == before


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("none.jsonl", "out.jsonl", "No such file"),
        ("raw.jsonl", "out.csv", "format of the input"),
        ("raw.jsonl", "none/out.jsonl", "folder does not exist"),
        ("raw.jsonl", "raw.jsonl", "same file"),
        (".", "out", "lies in the other"),
    ],
)
def test_a_run_that_is_refused_leaves_no_ledger(index, work, source, target, said):
    before = files(work)
    result = command(index, target, *LEDGER, source=source)
    assert result.exit_code == 1
    assert said in result.stderr
    assert files(work) == before


def test_a_refused_run_to_a_store_leaves_no_folder_of_state(index, work, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "state"))
    result = command(index, "memory://bucket/out.jsonl", source="none.jsonl")
    assert result.exit_code == 1
    assert not (work / "state").exists()


def test_the_function_replaces_a_file_only_where_it_is_asked_to(work):
    Path("out.jsonl").write_text("a thesis\n")
    with pytest.raises(CorpusError, match=r"overwrite=True"):
        privatize_corpus("raw.jsonl", "out.jsonl", Echo())
    assert Path("out.jsonl").read_text() == "a thesis\n"
    assert privatize_corpus("raw.jsonl", "out.jsonl", Echo(), overwrite=True).documents == 20


def test_the_function_repeats_a_release_whose_key_lies_beside_it(index, work):
    def run(key: RunKey) -> None:
        settings = PrivatizerSettings(str(index), options={"epsilon": 2.0}, run_key=key.secret)
        privatize_corpus("raw.jsonl", "out.jsonl", settings.build(), key=key, resume=False)

    for _ in range(2):
        run(RunKey.beside("out.jsonl"))
    with pytest.raises(CorpusError, match="exists"):
        run(RunKey.open("other.key"))


def test_the_function_never_writes_over_what_it_reads(index, work):
    settings = PrivatizerSettings(
        str(index), options={"epsilon": 2.0, "prior": "counts.jsonl"}, seed=1
    )
    before = files(work)
    for target, format in (("counts.jsonl", None), (index / "words.json", "jsonl")):
        with pytest.raises(CorpusError, match="must lie elsewhere"):
            privatize_corpus(
                "raw.jsonl",
                target,
                settings.build(),
                settings=settings,
                format=format,
                overwrite=True,
            )
    assert files(work) == before
