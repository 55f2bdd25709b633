"""The demo: its samples, what it shows of three amounts, and the commands that it ends with."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from rich.console import Console

from textpriv import demo
from textpriv.amounts import builtin_amounts
from textpriv.errors import TextprivError
from textpriv.index import Index
from textpriv.mechanisms.tem import TEM
from textpriv.privatizer import Privatizer
from textpriv.statement import odds_in_words
from textpriv.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def shown() -> str:
    screen = io.StringIO()
    demo.run_demo(Console(file=screen, width=140))
    return screen.getvalue()


def test_every_sample_word_is_in_the_vocabulary():
    vocabulary = Vocabulary.builtin("en")
    tokens = spacy.blank("en").tokenizer(" ".join(demo.SAMPLES.values()).lower())
    assert [t.text for t in tokens if not t.is_punct and t.text not in vocabulary] == []


def test_three_amounts_stand_side_by_side_with_their_odds_and_the_best_guess(shown):
    # Drawn words may be any, so a row is known by its first cell alone.
    table = {}
    for block in re.split(r"[┏┡├└][━─┳╇┼┴]+[┓┩┤┘]", shown):
        cells = [re.split("[│┃]", line)[1:-1] for line in block.splitlines() if line.strip()]
        if cells and cells[0]:
            label, *columns = (" ".join(part).split() for part in zip(*cells, strict=True))
            table[" ".join(label)] = [" ".join(words) for words in columns]
    found = builtin_amounts("en")
    assert table[""] == ["original", *(f"epsilon {each.epsilon:g}" for each in found)]
    for label, values in (
        ("words that stay", [f"{each.keep:.0%}" for each in found]),
        ("for nine tenths", [odds_in_words(each.loss_90) for each in found]),
        ("the best guess is right", [f"{each.recovered:.0%}" for each in found]),
    ):
        assert table[label] == ["", *values], label


def test_more_of_the_samples_stays_at_a_larger_amount():
    index = Index.builtin("en")
    changed = []
    for each in builtin_amounts("en"):
        private = Privatizer(TEM(index, epsilon=each.epsilon), seed=1)
        (shown,) = zip(*demo._shown([private]).values(), strict=True)
        changed.append(sum(len(text.spans) for text in shown))
    assert changed[0] > changed[1] > changed[2]


@pytest.mark.usefixtures("without_torch")
def test_the_commands_that_come_next_work_as_printed(shown):
    commands = [line.strip() for line in shown.split("Next:")[1].splitlines() if line.strip()]
    assert len(commands) == 2
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    root = str(Path(demo.__file__).resolve().parents[1])
    paths = os.pathsep.join([os.environ["PYTHONPATH"], root])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": paths}
    printed = [
        subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=True, env=environment
        ).stdout
        for command in commands
    ]
    assert printed[0].endswith(".\n")
    assert "pain stays as it is with probability" in printed[1]


def test_the_index_can_be_kept(tmp_path):
    demo.run_demo(Console(file=io.StringIO(), width=100), save=tmp_path / "demo.idx")
    assert Index.load(tmp_path / "demo.idx").fingerprint == Index.builtin("en").fingerprint


def test_a_folder_that_is_there_is_refused_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(Index, "builtin", lambda language: pytest.fail("opened"))
    with pytest.raises(TextprivError, match="is there already"):
        demo.run_demo(Console(file=io.StringIO()), save=tmp_path)
