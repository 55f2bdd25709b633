"""``textpriv choose`` prints what the library finds, and a command that runs."""

from __future__ import annotations

import json
import math
import shlex

import numpy as np
import pytest

import textpriv
from textpriv.index import Index
from textpriv.mechanisms import registry

from .conftest import WORDS


def choose(run, folder, *more):
    result = run("choose", "--index", folder, *more)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_last_line_is_a_command_that_runs(run, folder, texts, tmp_path):
    for more in (("--recovery", 0.3, "--of", "all"), ("--keep", 0.5), ("--odds", 20), ()):
        line = choose(run, folder, *more).splitlines()[-1]
        program, *arguments = shlex.split(line)
        paths = {"IN": texts, "OUT": tmp_path / "out.txt"}
        done = run(*(paths.get(each, each) for each in arguments), "--seed", 1, "--force")
        assert (program, done.exit_code) == ("textpriv", 0), done.output


def test_a_recovery_compares_the_mechanisms_of_the_library(run, folder):
    given = json.loads(choose(run, folder, "--recovery", 0.3, "--of", "all", "--json"))
    found = textpriv.choose({str(folder): Index.load(folder)}, recovery=0.3, of="all")
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


def test_an_epsilon_for_a_share_that_stays_is_the_librarys(run, folder):
    found = json.loads(choose(run, folder, "--keep", 0.5, "--json"))
    wanted = textpriv.epsilon_for(Index.load(folder), keep=0.5)
    assert wanted * 0.999 < found["epsilon"] <= wanted


def test_an_epsilon_for_odds_keeps_them_between_the_words(run, folder):
    index = Index.load(folder)
    shown = json.loads(choose(run, folder, "--odds", 20, "--json"))
    assert 19.9 < math.exp(shown["epsilon"] * index.reference_distance) <= 20


def test_an_attacker_in_context_is_tried_on_public_text(run, folder, tmp_path):
    rows = np.random.default_rng(1).integers(len(WORDS), size=(40, 20))
    (tmp_path / "public.txt").write_text("\n".join(" ".join(WORDS[i] for i in r) for r in rows))
    given = ("--recovery", 0.5, "--of", "all")
    shown = choose(run, folder, *given, "--context", tmp_path / "public.txt")
    assert "the better of two attackers" in shown
    assert "an attacker who guesses word by word" in choose(run, folder, *given)


@pytest.mark.parametrize(
    "more",
    [("--odds", 3, "--keep", 0.2), ("--keep", 0.5, "--context", "a.txt")],
)
def test_figures_that_mean_nothing_together_are_refused(run, failed, folder, more):
    failed(run("choose", "--index", folder, *more), 2)
