"""The commands of every page: each is one that the program takes, and those of the first pages run as they stand."""

from __future__ import annotations

import gzip
import re
import shlex
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from textpriv.cli import messages
from textpriv.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GROUP = typer.main.get_command(app)
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "textpriv " in "".join(BLOCK.findall(page.read_text(encoding="utf-8")))
)
RUN = ("README.md", "docs/guide/tutorial.md")
# They run in tests of their own, or need what is not here: a hub, a store, docker, processes, half a minute, an end.
ELSEWHERE = re.compile(
    r"demo|certify|report|playground|doctor|choose|index builtin|index fasttext:|s3:|--workers|imdb\.idx"
    r"|docker"
)


def lines_of(page: str) -> list[str]:
    """The lines of a page's blocks that call the program; what is said behind # is no part of them."""
    text = "".join(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))
    text = re.sub(r"\\\n\s*", " ", text)
    return [line.split(" #")[0].strip() for line in text.splitlines() if "textpriv " in line]


def called(line: str) -> tuple[str, list[str], str]:
    """The command and arguments of a line, and what is piped into it."""
    before, _, after = line.rpartition("textpriv ")
    name, *arguments = shlex.split(re.split(r"[|;>]|&&", after)[0])
    piped = re.match(r'echo "(.*)" \| ', before)
    return name, arguments, piped[1] + "\n" if piped else ""


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one_that_the_program_takes(page):
    for line in lines_of(page):
        if "textpriv privatize" in line or ("docker" not in line and "pip " not in line):
            name, arguments, _ = called(line)
            with GROUP.commands[name].make_context(name, arguments):
                pass  # every option is known


def test_exit_codes_of_the_program_are_in_one_table():
    tables = {
        page.name: re.findall(r"^\| (\d+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
        for page in (ROOT / "docs").rglob("*.md")
        if "| exit code |" in page.read_text(encoding="utf-8")
    }
    ends = (0, messages.FAILED, 2, messages.SKIPPED, messages.INTERRUPTED, 128 + signal.SIGTERM)
    assert tables == {"commands.md": [str(int(each)) for each in ends]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files that the first pages speak of."""
    words = "the hospital told family on tuesday that test was clear movie".split()
    words += [f"word{number}" for number in range(300)]  # enough for a recovery of 0.1
    rows = np.random.default_rng(0).normal(size=(len(words), 3))
    with gzip.open(tmp_path / "glove.6B.300d.txt.gz", "wt") as file:
        for word, row in zip(words, rows, strict=True):
            file.write(f"{word} {' '.join(f'{x:.3f}' for x in row)}\n")
    (tmp_path / "shards").mkdir()
    for name in ("reviews.jsonl", "tickets.jsonl", "shards/one.jsonl"):
        (tmp_path / name).write_text('{"id": 1, "text": "The movie was clear."}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_the_first_pages_run_as_they_stand(page, place):
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    for block in blocks:
        if block.startswith("cat >"):  # makes a file
            subprocess.run(["sh", "-e", "-c", block.split("\ntextpriv ")[0]], check=True)
    done = 0
    for line in lines_of(page):
        if not ELSEWHERE.search(line):
            name, arguments, given = called(line)
            result = CliRunner().invoke(app, [name, *arguments], input=given)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            done += 1
    assert done >= 3
