"""What the command line says of itself: few options, plain sentences, examples that work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from textpriv.cli import messages
from textpriv.cli.app import app

GROUP = typer.main.get_command(app)
COMMANDS = ["certify", "choose", "decode", "demo", "doctor", "explain", "index", "playground"]
COMMANDS += ["privatize", "report", "synthesize"]
JARGON = (
    r"\blaws?\b|got back|guessed back|lone words?|running words|tell apart|told apart|\banew\b|drawn alike|\bsurely\b"
    r"|\bby which\b|\bstands for\b|best attacker"
)


def helps(name):
    """All texts of a command's help."""
    command = GROUP.commands[name]
    text = command.help.split("**Example:**")[0]
    return [text, *(each.help or "" for each in command.params)]


def test_there_are_eleven_commands():
    assert sorted(GROUP.commands) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_shows_at_most_20_options(name):
    shown = [
        each
        for each in GROUP.commands[name].params
        if each.param_type_name == "option" and not getattr(each, "hidden", False)
    ]
    assert len(shown) + 1 <= 20  # with --help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_uses_an_index_takes_it_as_an_option(name):
    named = [each.opts for each in GROUP.commands[name].params if each.name == "index"]
    assert named == ([] if name == "index" else [["--index"]])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_plain_english(name):
    for text in helps(name):
        assert text
        assert not re.search(JARGON, text, re.IGNORECASE), text
        for sentence in re.split(r"[.:;]\s|\n\n", text):
            assert len(sentence.split()) <= 30, sentence


def test_messages_of_the_commands_are_plain_english():
    for module in Path(messages.__file__).parent.glob("*.py"):
        source = module.read_text(encoding="utf-8")
        assert not re.search(JARGON, source.replace("law", ""), re.IGNORECASE), module


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_is_a_line_that_the_command_takes(name):
    found = re.search(r"\*\*Example:\*\*\s+(.*)", GROUP.commands[name].help)
    program, command, *arguments = shlex.split(found[1])
    assert (program, command) == ("textpriv", name)
    with GROUP.commands[name].make_context(name, arguments):
        pass


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_given_twice_is_refused(run, name):
    for each in GROUP.commands[name].params:
        if each.param_type_name == "option" and not each.is_eager and not each.multiple:
            value = [] if each.is_flag else ["1"] * each.nargs
            given = [each.opts[0], *value, [*each.opts, *each.secondary_opts][-1], *value]
            result = run(name, *given)
            assert (result.exit_code, "more than once" in result.stderr) == (2, True), each.name


def test_help_all_shows_what_help_leaves_out(run):
    short, long = (run("privatize", each).stdout for each in ("--help", "--help-all"))
    assert "--engine" not in short
    assert "--engine" in long
    assert "--engine" not in run("privatize", "--help").stdout


def test_a_misspelt_command_is_answered_with_the_nearest(run):
    assert "privatize" in run("privatise").stderr


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.txt"), "Check the name"),
        (PermissionError(13, "Permission denied", "a.txt"), "Check its permissions"),
        (OSError(28, "No space left on device"), "make room"),
    ],
)
def test_an_error_of_the_system_says_what_to_do(error, wanted):
    assert wanted in messages.describe(error)


def test_help_loads_no_heavy_package():
    heavy = "{'numpy', 'spacy', 'numba', 'gensim', 'pyarrow', 'scipy'}"
    code = f"import sys, textpriv.cli.app; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
