"""The wheel, the image, the action, the hook, and work without a network."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import spacy
import typer
import yaml
from packaging.requirements import Requirement
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
# What the base installation asks for; all of it has wheels for every Python and system that is supported.
BASE = """spacy numpy scipy numba threadpoolctl cryptography pyarrow typer rich jinja2 packaging platformdirs""".split()
TEXT = "The patient was admitted with chest pain."


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel as it is released, built by the backend that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"import setuptools.build_meta as b; print(b.build_wheel({str(folder)!r}))"
    # setuptools leaves its build folder where it is called: built from a copy.
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "textpriv", "pairwise"):
        copied = ["cp", "-r", str(ROOT / name), str(source / name)]
        subprocess.run(copied, check=True)
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def closed_network(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("the network is closed")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# The wheel


def test_the_wheel_needs_no_compiler_and_has_at_most_four_megabytes(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size <= 4_000_000


def test_the_wheel_holds_the_vocabulary_the_pages_and_the_licences(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    data = "textpriv/vocabulary/data/"
    for wanted in (data + "en-numbers.npy", data + "en-names.txt", "textpriv/py.typed"):
        assert wanted in names
    assert any(name.startswith("textpriv/web/templates/") for name in names)
    assert any(name.endswith("licenses/textpriv/vocabulary/data/LICENSE.txt") for name in names)
    assert not any(name.startswith(("tests", "recipes", "docs")) for name in names)


def test_the_base_installation_asks_for_no_more_than_before(wheel):
    packed = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
    lines = packed.read(metadata).decode().splitlines()
    asked = [Requirement(line.split(": ", 1)[1]) for line in lines if line[:14] == "Requires-Dist:"]
    assert {each.name for each in asked if each.marker is None} <= set(BASE)


# Where the network is closed


def test_two_lines_of_python_and_of_spacy_and_the_command_need_no_network(closed_network):
    # Seven words; which of them change is chance.
    assert len(textpriv.privatize(TEXT, epsilon=60.0).split()) == 7
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 60.0})
    assert len(nlp(TEXT)) == 8
    done = CliRunner().invoke(app, ["privatize", "-", "-", "--epsilon", "60"], input=TEXT + "\n")
    assert done.exit_code == 0
    assert len(done.stdout.split()) == 7


# The image


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def value_of(name: str) -> str:
    """What the last instruction of a name says."""
    return [rest for each, rest in instructions() if each == name][-1]


def test_the_image_runs_as_nobody_in_particular_and_is_warm():
    user = value_of("USER").split(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    after = [name for name, _ in instructions()].index("USER")
    assert "RUN" not in [name for name, _ in instructions()[after:]]
    assert json.loads(value_of("ENTRYPOINT")) == ["textpriv"]
    assert any(name == "RUN" and "textpriv" in rest for name, rest in instructions())


def test_the_image_installs_no_compiler_and_no_source_package():
    steps = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "--only-binary :all:" in steps
    assert not re.search(r"apt|gcc|g\+\+|build-essential", steps)


def test_what_is_built_from_is_let_into_the_build():
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert rules[0] == "*"
    for rule in rules[1:]:
        if rule.startswith("!"):
            assert (ROOT / rule[1:]).exists(), rule


# The action and the hook


def run_step(name, tmp_path, code, **given):
    """Run a step of the action as GitHub does: its shell, its environment, and the file of its outputs.

    In the place of the program stands one that prints its arguments, a line each, and ends with a code.
    """
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (step,) = (step for step in steps if step.get("name") == name)
    own = {
        key: re.sub(r"\$\{\{ inputs\.(\S+) \}\}", lambda match: given[match[1]], value)
        for key, value in step["env"].items()
    }
    tools, output = tmp_path / "bin", tmp_path / "output"
    tools.mkdir(exist_ok=True)
    (tools / "textpriv").write_text(f"#!/bin/sh\nprintf '%s|' \"$@\"\nexit {code}\n")
    (tools / "textpriv").chmod(0o755)
    environment = {**os.environ, **own, "GITHUB_OUTPUT": str(output)}
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    return done.returncode, output.read_text()


@pytest.mark.parametrize("code", [0, 1])
def test_the_action_hands_on_arguments_certificate_and_exit_code(tmp_path, code):
    more = {"index": "a folder.idx", "arguments": "--prior uniform"}
    ended, output = run_step("certify", tmp_path, code, epsilon="2", **more)
    assert ended == code
    expected = "certify|--index|a folder.idx|--epsilon|2|--json|--prior|uniform|"
    assert output == f"certificate={expected}\n"
    command, *arguments = expected[:-1].split("|")
    group = typer.main.get_command(app)
    with group.commands[command].make_context(command, arguments) as context:
        assert context.params["prior"] == "uniform"


def test_no_input_of_the_action_is_read_as_shell_code(tmp_path):
    hostile = "$(touch ran)`touch ran`; touch ran"
    _, output = run_step("certify", tmp_path, 0, epsilon=hostile, index="", arguments=hostile)
    assert hostile in output
    assert not (tmp_path / "ran").exists()


def test_the_hook_is_one_that_pre_commit_takes_and_its_command_is_there():
    clientlib = pytest.importorskip("pre_commit.clientlib")
    (hook,) = clientlib.load_manifest(ROOT / ".pre-commit-hooks.yaml")
    program, command, *options = hook["entry"].split()
    (script,) = entry_points(group="console_scripts", name=program)
    assert script.value == "textpriv.cli.app:main"
    assert CliRunner().invoke(app, [command, *options, "--help"]).exit_code == 0
    assert not hook["pass_filenames"]
