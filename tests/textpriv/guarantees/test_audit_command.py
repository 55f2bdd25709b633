"""The command that attacks installed mechanisms: its verdict, what it could not have seen, and its exit code."""

from __future__ import annotations

import json

import pytest
from catalogue import REGISTRY
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.mechanisms import TEM, registry


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def broken():
    class Broken(TEM):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.t *= 2

    @registry.register("tests.BrokenCommand.v1")
    def configure(epsilon):
        return lambda index: Broken(index, epsilon)

    yield "tests.BrokenCommand.v1"
    del REGISTRY["textpriv", "mechanisms", "tests.BrokenCommand.v1"]


def test_the_command_prints_the_verdict_and_what_it_could_not_have_seen():
    result = run("tem", "--epsilon", 4, "--option", "prior=uniform")
    assert result.exit_code == 0, result.output
    assert "textpriv.TEM.v1 with prior='uniform' withstood" in result.stdout
    assert "What this could not have seen:" in result.stdout
    assert "released as it is" in result.stdout


def test_the_command_ends_with_1_for_a_broken_mechanism(broken):
    result = run(broken)
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_the_command_prints_json():
    result = run("textpriv.TEM.v1", "--json")
    content = json.loads(result.stdout)["textpriv.TEM.v1"]
    assert content["passed"] is True
    assert content["unseen"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.v1"], "no mechanism is installed"),
        (["tem", "--option", "prior"], "NAME=VALUE"),
        (["--option", "prior=uniform"], "name the mechanism"),
        (["tem", "--option", "colour=red"], "has no setting colour"),
        *(
            (["tem", "--epsilon", each], "epsilon must be")
            for each in (0, -3, "nan", "inf", "1e400")
        ),
        (["--epsilon", -3], "epsilon must be a finite number above 0"),
        (["tem", "--epsilon", "much"], "is no number"),
        (["tem", "--option", "gamma=-1"], "gamma must be a finite number above 0"),
        (["tem", "--option", "prior=none"], "prior"),
        (["span:number", "--epsilon", 4], "--epsilon is for mechanisms"),
        (["span:number", "--index", "some.idx"], "--index is for mechanisms"),
        (["span:number", "--option", "prior=uniform"], "--option is for mechanisms"),
    ],
)
def test_wrong_usage_is_named(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
