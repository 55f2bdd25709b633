"""What the command line says of itself: help with an example that works, errors that say what to do, completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from textpriv.cli.app import app

GROUP = typer.main.get_command(app)
COMMANDS = sorted(GROUP.commands)
INDEXED = [
    name for name in COMMANDS if any(p.metavar == "DIR" for p in GROUP.commands[name].params)
]
SECRET = "zanzibar"


def run(*arguments, **options):
    options.setdefault("prog_name", "textpriv")
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def example_of(name: str) -> list[str]:
    """The example in a command's help, as a shell would cut it."""
    text = GROUP.commands[name].help.replace("\n", " ")
    found = re.search(r"\[bold\]Example:\[/bold\]\s+(.*)", text)
    assert found, f"the help of {name} has no example"
    return shlex.split(found[1])


def usage(result):
    """The message of a usage error, its box removed and its lines joined."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert re.search(r"Try 'textpriv.* (-h|--help)' for help", result.stderr)
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())


# Options


def twice(name: str, parameter) -> list[str]:
    """A command line that gives an option two times, by different spellings where it has some."""
    spellings = [*parameter.opts, *parameter.secondary_opts]
    value = [] if parameter.is_flag else ["1"] * parameter.nargs
    return [name, spellings[0], *value, spellings[-1], *value]


OPTIONS = [
    pytest.param(name, parameter, id=f"{name} {parameter.opts[0]}")
    for name in COMMANDS
    for parameter in GROUP.commands[name].params
    if parameter.param_type_name == "option" and not parameter.is_eager
]


@pytest.mark.parametrize(("name", "parameter"), OPTIONS)
def test_an_option_of_one_value_given_twice_is_refused(name, parameter):
    result = run(*twice(name, parameter))
    if parameter.multiple:
        assert "given more than once" not in result.output
        return
    assert "given more than once" in usage(result)
    assert parameter.opts[0] in result.stderr


def test_an_option_of_several_values_may_be_repeated():
    options = [("privatize", name) for name in ("drop", "keep", "text_column")]
    for name, parameter in [*options, ("report", "word")]:
        (found,) = (p for p in GROUP.commands[name].params if p.name == parameter)
        assert found.multiple


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_shows_its_example(name):
    result = run(name, "--help", env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert f"Example: textpriv {name}" in " ".join(result.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_a_command_line_that_the_command_takes(name, monkeypatch):
    program, command, *arguments = example_of(name)
    assert (program, command) == ("textpriv", name)
    with GROUP.commands[name].make_context(name, arguments) as context:
        assert context.params


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_every_argument_is_explained(name):
    for parameter in GROUP.commands[name].params:
        assert parameter.help, f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_in_one_sentence_what_it_is_for(name):
    first = GROUP.commands[name].help.split("\n\n")[0]
    assert first.strip().endswith(".")
    assert "Example" not in first


# Errors


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_named_and_help_is_offered(name):
    assert "--frobnicate" in usage(run(name, "--frobnicate"))


@pytest.mark.parametrize(
    "name", [n for n in COMMANDS if any(p.required for p in GROUP.commands[n].params)]
)
def test_what_is_missing_is_named(name):
    message = usage(run(name))
    assert "Missing" in message
    required = [p for p in GROUP.commands[name].params if p.required]
    shown = [
        p.opts[0] if p.param_type_name == "option" else p.metavar or p.name.upper()
        for p in required
    ]
    assert any(each.lower() in message.lower() for each in shown)


@pytest.mark.parametrize(
    "name", [n for n in COMMANDS if any(p.name == "epsilon" for p in GROUP.commands[n].params)]
)
def test_an_epsilon_that_is_no_number_is_quoted_with_what_was_expected(name):
    _, _, *arguments = example_of(name)
    place = next(i for i, each in enumerate(arguments) if each in ("-e", "--epsilon"))
    arguments[place + 1] = "many"
    message = usage(run(name, *arguments))
    assert "'many'" in message
    assert "give one above 0" in message


@pytest.mark.parametrize(
    "name", [n for n in COMMANDS if any(p.name == "mechanism" for p in GROUP.commands[n].params)]
)
def test_an_unknown_mechanism_is_quoted_with_those_there_are(name):
    _, _, *arguments = example_of(name)
    message = usage(run(name, *arguments, "--mechanism", "magic"))
    assert "'magic'" in message
    assert all(each in message for each in ("tem", "madlib"))


@pytest.mark.parametrize("name", INDEXED)
def test_a_folder_that_is_no_index_is_named_with_what_to_do(name, tmp_path):
    _, _, *arguments = example_of(name)
    missing = str(tmp_path / "missing.idx")
    given = [missing if each.endswith(".idx") else each for each in arguments]
    result = run(name, *given)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert missing in result.stderr.replace("\n", "")
    assert "textpriv index" in result.stderr or "Index" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.txt"), "Check the name"),
        (PermissionError(13, "Permission denied", "a.txt"), "Check who may read or write it"),
        (IsADirectoryError(21, "Is a directory", "a.txt"), "name a file"),
        (OSError(28, "No space left on device", "a.txt"), "make room"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_what_to_do(error, wanted):
    from textpriv.cli.messages import describe

    message = describe(error)
    assert "a.txt" in message
    assert wanted in message


def test_a_full_disk_is_told_in_words_where_the_system_names_no_file():
    from textpriv.cli.messages import describe

    error = OSError(28, "No space left on device")
    assert describe(error) == (
        "No space left on device. The disk is full: make room, or name another place."
    )


def test_a_misspelt_command_is_answered_with_the_nearest():
    assert "privatize" in usage(run("privatise"))


# Completion


def complete(*words):
    """What bash would be offered after some words."""
    environment = {
        **os.environ,
        "_TEXTPRIV_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("textpriv", *words)),
        "COMP_CWORD": str(len(words)),
    }
    code = "import sys; sys.argv = ['textpriv']; import textpriv.cli.app; textpriv.cli.app.main()"
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in answer.stderr
    return answer.stdout.split()


def test_commands_options_and_choices_are_completed():
    assert complete("pri") == ["privatize"]
    assert set(complete("")) >= set(COMMANDS)
    assert "--epsilon" in complete("certify", "--eps")
    assert "madlib" in complete("certify", "--mechanism", "mad")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell, monkeypatch):
    import shellingham

    monkeypatch.setattr(shellingham, "detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    result = run("--show-completion")
    assert result.exit_code == 0
    assert "_COMPLETE" in result.stdout
    assert "complete_" + shell in result.stdout
