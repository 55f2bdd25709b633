"""``textpriv epsilon``, ``choose`` and ``distance``: what they print is what the library finds, and no word is repeated."""

from __future__ import annotations

import json
import math
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary

SECRET = "zanzibar"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    vectors = np.random.default_rng(0).normal(size=(60, 3))
    vectors[59] = vectors[58]
    vocabulary = Vocabulary([f"w{i}" for i in range(60)], vectors)
    path = tmp_path_factory.mktemp("choosing") / "small.idx"
    Index.build(vocabulary, k=16, hnsw=False).save(path)
    return path


@pytest.mark.parametrize(("name", "wanted"), [("keep", 0.5), ("distinct", 20.0), ("odds", 20.0)])
def test_the_epsilon_is_the_librarys(folder, name, wanted):
    given = json.loads(run("epsilon", "--index", folder, f"--{name}", wanted, "--json").stdout)
    assert given["epsilon"] == textpriv.epsilon_for(Index.load(folder), **{name: wanted})
    assert given["target"] == name


def test_a_printed_epsilon_keeps_the_odds_that_were_asked_for(folder):
    index = Index.load(folder)
    given = {"half": index.reference_distance, "nine-tenths": index.reference_distance_90, 1.7: 1.7}
    for asked, distance in given.items():
        result = run("epsilon", "--index", folder, "--odds", 20, "--distance", asked)
        found = float(result.stdout.split()[1])
        assert 19.9 < math.exp(found * distance) <= 20


def test_odds_between_two_words_are_about_their_distance(folder):
    between = ["--between", "w3", "w7", "--json"]
    given = json.loads(run("epsilon", "--index", folder, "--odds", 20, *between).stdout)
    assert given["distance"] == Index.load(folder).distance(3, 7)
    assert math.exp(given["epsilon"] * given["distance"]) == pytest.approx(20)


def test_without_a_wish_three_amounts_are_shown():
    shown = run("epsilon").stdout
    assert "about 50%" in shown
    amounts = json.loads(run("epsilon", "--json").stdout)["amounts"]
    assert [f"{each['epsilon']:g}" in shown for each in amounts] == [True] * 3


@pytest.mark.parametrize(
    "more",
    [
        ("--odds", 3, "--keep", 0.2),
        ("--distance", 1),
        ("--odds", 3, "--distance", 1, "--between", "w1", "w2"),
    ],
)
def test_wishes_that_mean_nothing_together_are_refused(folder, more):
    result = run("epsilon", "--index", folder, *more)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_distance_comes_with_ranks_and_with_the_odds_of_the_statement(folder):
    index = Index.load(folder)
    more = ["--index", folder, "--epsilon", 2, "--json"]
    given = json.loads(run("distance", "w3", "w7", *more).stdout)
    assert given["distance"] == pytest.approx(
        np.linalg.norm(index.vocabulary.vectors[3] - index.vocabulary.vectors[7])
    )
    order = np.argsort(index.distances_of(np.array([3]))[0])
    assert order[given["rank_of_second"]] == 7
    assert given["loss"] == textpriv.TEM(index, epsilon=2.0).statement.loss_at(given["distance"])
    assert "odds of at most" in run("distance", "w3", "w7", *more[:-1]).stdout


def test_words_of_one_vector_are_said_to_share_a_law(folder):
    assert "share one law" in run("distance", "w58", "w59", "--index", folder).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("distance", SECRET, "w1"),
        ("distance", "w1", SECRET),
        ("epsilon", "--odds", 20, "--between", "w1", SECRET),
    ],
)
def test_an_unknown_word_is_not_repeated(folder, arguments):
    result = run(*arguments, "--index", folder)
    assert result.exit_code == 1
    assert "60 words of this index" in " ".join(result.stderr.split())
    assert SECRET not in result.output


def test_a_word_that_is_there_in_lower_case_is_hinted_at(folder):
    assert "lower case" in run("distance", "W1", "w2", "--index", folder).stderr


def test_a_law_is_chosen_by_recovery_and_its_printed_command_runs(folder, tmp_path):
    result = run("choose", folder, "--recovery", 0.3, "--of", "all")
    assert result.exit_code == 0, result.stderr
    (tmp_path / "in.txt").write_text("w1 w2 w3\nw4 w5\n")
    program, *line = shlex.split(result.stdout.splitlines()[-1])
    assert program == "textpriv"
    paths = {"IN": str(tmp_path / "in.txt"), "OUT": str(tmp_path / "out.txt")}
    released = run(*(paths.get(part, part) for part in line), "--seed", 1)
    assert released.exit_code == 0, released.stderr
    assert len((tmp_path / "out.txt").read_text().split()) == 5
    given = json.loads(run("choose", folder, "--recovery", 0.3, "--of", "all", "--json").stdout)
    assert shlex.join(line) == given["command"].removeprefix("textpriv ")
    found = textpriv.choose({str(folder): Index.load(folder)}, recovery=0.3, of="all")
    assert given["candidates"] == found.to_dict()["candidates"]


@pytest.mark.parametrize(
    ("next_one", "said"), [(0.0, "that was tried, no more"), (0.6, "a better one, more")]
)
def test_an_epsilon_by_recovery_reads_public_text_and_says_whether_context_helped(
    folder, tmp_path, next_one, said
):
    """In the texts a word is so often followed by the one after it in the vocabulary."""
    rng = np.random.default_rng(1)
    steps = np.where(rng.random((40, 20)) < next_one, 1, rng.integers(60, size=(40, 20)))
    lines = [" ".join(f"w{i % 60}" for i in row) for row in steps.cumsum(axis=1)]
    (tmp_path / "public.txt").write_text("\n".join(lines))
    asked = ["--of", "all", "--context", tmp_path / "public.txt"]
    result = run("epsilon", "--index", folder, "--recovery", 0.5, *asked)
    assert said in result.stdout
    laws = run("choose", folder, "--recovery", 0.5, *asked).stdout
    assert (
        "the best attacker of lone words, exactly, and a reader of words in context, from below"
        in laws
    )
    assert run("epsilon", "--keep", 0.5, *asked).exit_code == 2


def test_only_the_attacker_of_lone_words_is_called_the_best(folder):
    for command in (("epsilon", "--index", folder), ("choose", folder)):
        shown = run(*command, "--recovery", 0.5, "--of", "all").stdout
        assert "the best attacker of lone words" in shown.lower()
        assert "in context more may be guessed (--context)" in shown
