"""``textpriv choose`` prints what the library finds, and a command that runs."""

from __future__ import annotations

import json
import shlex

import numpy as np

import textpriv
from textpriv.index import Index
from textpriv.mechanisms import registry

from .conftest import WORDS


def choose(run, folder, *more):
    result = run("choose", "--index", folder, *more)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_last_line_is_a_command_that_runs(run, folder, texts, tmp_path):
    for more in (("--recovery", 0.3), ()):
        line = choose(run, folder, *more).splitlines()[-1]
        program, *arguments = shlex.split(line)
        paths = {"IN": texts, "OUT": tmp_path / "out.txt"}
        done = run(*(paths.get(each, each) for each in arguments), "--seed", 1, "--force")
        assert (program, done.exit_code) == ("textpriv", 0), done.output


def test_a_recovery_compares_the_mechanisms_of_the_library(run, folder):
    given = json.loads(choose(run, folder, "--recovery", 0.3, "--json"))
    found = textpriv.choose({str(folder): Index.load(folder)}, recovery=0.3)
    assert given["candidates"] == list(found.to_dict()["candidates"])


def test_a_named_mechanism_out_of_reach_ends_with_1(run, folder):
    import catalogue

    plain = registry.get("textpriv.TEM.v1")
    registry.register("mine.Still.v1", func=lambda epsilon: plain(epsilon=min(epsilon, 1e-3)))
    try:
        asked = ("--mechanism", "mine.Still.v1", "--recovery", 0.3)
        result = run("choose", "--index", folder, *asked)
    finally:
        del catalogue.REGISTRY[(*registry.namespace, "mine.Still.v1")]
    assert result.exit_code == 1
    assert "error: mine.Still.v1 cannot be set to this recovery" in result.stderr
    assert "Recommended" in result.stdout  # of those that can


def test_an_attacker_in_context_is_tried_on_public_text(run, folder, tmp_path):
    rows = np.random.default_rng(1).integers(len(WORDS), size=(40, 20))
    (tmp_path / "public.txt").write_text("\n".join(" ".join(WORDS[i] for i in r) for r in rows))
    given = ("--recovery", 0.5)
    shown = choose(run, folder, *given, "--context", tmp_path / "public.txt")
    assert "the better of two attackers" in shown
    assert "an attacker who guesses word by word" in choose(run, folder, *given)
