"""A tree's folder where other commands take an index: made, explained, certified, drawn from, reported, in every form."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import spacy
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.corpus import PrivatizerSettings
from textpriv.mechanisms import TreeTEM
from textpriv.web.report import report_page

WORDS = ["".join(parts) for parts in itertools.product("bdfgk", "aeiou", "nrst", "ao")]
ODDS = "synonyms=3,kind=30,any=3000"
ICD = """word\tchapter/block/category
j450\trespiratory/lower/asthma
j451\trespiratory/lower/asthma
j449\trespiratory/lower/obstruction
j00\trespiratory/upper/cold
i10\tcirculatory/pressure/essential
i11\tcirculatory/pressure/heart
"""


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("trees")
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 6))
    lines = (f"{w} {' '.join(f'{x:.4f}' for x in r)}" for w, r in zip(WORDS, rows, strict=True))
    (path / "vectors.txt").write_text("\n".join(lines) + "\n")
    made = run(
        "tree", path / "vectors.txt", path / "tree", "--groups", "synonyms=60,kind=12", "--json"
    )
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert told["levels"] == ["synonyms", "kind", "any"]
    assert told["words"] == len(WORDS)
    assert 1 >= told["neighbours_outside"][0] > told["neighbours_outside"][1]
    return path / "tree"


@pytest.fixture(scope="module")
def mechanism(folder) -> TreeTEM:
    return TreeTEM(textpriv.Index.load(folder), levels={"synonyms": 3, "kind": 30, "any": 3000})


@pytest.mark.parametrize("name", ["index", "tree"])
def test_a_folder_with_what_is_read_and_what_is_no_index_are_never_replaced(folder, tmp_path, name):
    source = folder / "words.json"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.txt").write_text("a thesis")
    for out, code, said in (
        (folder, 2, "which is read"),
        (tmp_path / "thesis", 1, "not an index folder"),
    ):
        before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
        result = run(name, source, out, "--force")
        assert result.exit_code == code
        assert said in " ".join(result.stderr.replace("│", " ").split())
        assert all(path.read_bytes() == content for path, content in before.items())


def test_a_folder_that_is_there_is_not_replaced_unless_asked(folder, tmp_path):
    result = run("tree", folder.parent / "vectors.txt", folder)
    assert result.exit_code == 1
    assert "--force" in result.stderr
    done("tree", folder.parent / "vectors.txt", tmp_path / "tree", "--method", "single")
    shown = done("tree", folder.parent / "vectors.txt", tmp_path / "tree", "--force")
    assert "ward clustering" in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--groups", "synonyms"], "NAME=NUMBER"),
        (["--groups", "synonyms=2.5"], "no number of groups"),
        (["--groups", "a=2,a=3"], "different names"),
        (["--method", "best"], "best"),
    ],
)
def test_options_of_tree_without_meaning_are_usage_errors(folder, tmp_path, given, said):
    result = run("tree", folder.parent / "vectors.txt", tmp_path / "out", *given)
    assert result.exit_code == 2
    assert said in result.stderr


def test_explain_draws_the_groups_of_a_word_with_the_odds_asked_for(folder, mechanism):
    shown = done("explain", folder, "bana", "--mechanism", "tree", "--levels", ODDS)
    flat = " ".join(shown.split())
    assert f"any: {len(WORDS)} words, told apart by odds of at most 3,000 to 1" in flat
    assert "words, told apart by odds of at most 30 to 1" in flat
    told = json.loads(
        done("explain", folder, "bana", "--mechanism", "tree-tem", "--levels", ODDS, "--json")
    )
    law = np.exp(mechanism.log_prob("bana"))
    assert told["keep_probability"] == pytest.approx(law[mechanism.resolve("bana")])
    assert len(mechanism.groups("bana", most=2)) == 2
    for group, wanted in zip(told["groups"], mechanism.groups("bana"), strict=True):
        assert group["words"] == wanted.words
        assert group["probability"] == pytest.approx(wanted.probability)


def test_certify_and_report_say_what_the_tree_does_not(folder, mechanism):
    (parted,) = mechanism.caveats()
    shown = done("certify", folder, "--mechanism", "tree", "--levels", ODDS)
    assert "THE CLAIM HOLDS" in shown
    assert parted in shown
    page = report_page(mechanism, words=20, certificate=textpriv.certify(mechanism))
    assert parted.replace("'", "&#39;") in page
    assert mechanism.levels_in_words.replace("'", "&#39;") in page


@pytest.mark.parametrize(
    ("given", "said", "code"),
    [
        (["--levels", ODDS], "belongs to --mechanism tree", 2),
        (["--mechanism", "tree", "--levels", "any=x"], "no number", 2),
        (["--mechanism", "tree", "--levels", ODDS, "--epsilon", "3"], "more than once", 2),
        (["--mechanism", "tree", "--levels", "synonyms=3"], "the last must have odds", 1),
        (["--epsilon", "3"], "Use TreeTEM (--mechanism tree)", 1),
    ],
)
def test_odds_and_mechanisms_that_do_not_fit_are_refused_in_a_sentence(folder, given, said, code):
    result = run("explain", folder, "bana", *given)
    assert result.exit_code == code
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_an_index_of_vectors_is_refused_with_the_command_that_makes_a_tree(folder, tmp_path):
    done("index", folder.parent / "vectors.txt", tmp_path / "index", "--k", 8)
    result = run("explain", tmp_path / "index", "bana", "--mechanism", "tree", "--epsilon", 3)
    assert result.exit_code == 1
    assert "textpriv tree SOURCE OUT" in result.stderr


def test_texts_are_made_private_over_a_tree_and_the_levels_are_said(folder, tmp_path):
    (tmp_path / "in.txt").write_text("bana bara zzz!\nkuso kuto\n")
    law = ("--index", folder, "--mechanism", "tree", "--levels", ODDS)
    result = run("privatize", tmp_path / "in.txt", tmp_path / "out.txt", *law, "--seed", 5)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "'synonyms' are told apart by odds of at most 3 to 1" in said
    assert "any two words, an unknown one included, by odds of at most 3,000 to 1" in said
    again = tmp_path / "again.txt"
    done("privatize", tmp_path / "in.txt", again, *law, "--seed", 5, "--batch-size", 1)
    text = again.read_text()
    assert text == (tmp_path / "out.txt").read_text()
    assert set(text.replace("!", "").split()) <= set(WORDS)
    assert len(text.split()) == 5


def test_codes_of_a_hierarchy_are_protected_by_chapter_by_the_same_command(tmp_path):
    (tmp_path / "icd.tsv").write_text(ICD)
    done("tree", tmp_path / "icd.tsv", tmp_path / "icd", "--method", "file")
    law = ("--mechanism", "tree", "--levels", "category=3,block=10,chapter=100,any=100000")
    told = json.loads(done("explain", tmp_path / "icd", "j450", *law, "--json"))
    assert {group["name"]: group["words"] for group in told["groups"]} == {
        "category": 2,
        "block": 3,
        "chapter": 4,
        "any": 6,
    }
    (tmp_path / "codes.txt").write_text("j450 i10\n" * 2_000)
    done(
        *("privatize", tmp_path / "codes.txt", tmp_path / "out.txt", "--index", tmp_path / "icd"),
        *(*law, "--seed", 1),
    )
    codes = [line.split() for line in (tmp_path / "out.txt").read_text().splitlines()]
    respiratory = {"j450", "j451", "j449", "j00"}
    stays = [(first in respiratory, second not in respiratory) for first, second in codes]
    # A code leaves its chapter less than once in 10,000 draws, and is seldom the one that was written.
    assert np.mean(stays) > 0.995
    assert 0.4 < np.mean([first == "j450" for first, _ in codes]) < 0.8


def test_engines_are_handed_settings_that_open_the_tree(folder, mechanism):
    levels = {"synonyms": 3.0, "kind": 30.0, "any": 3000.0}
    settings = PrivatizerSettings(
        index=str(folder), mechanism="textpriv.TreeTEM.v1", options={"levels": levels}, seed=3
    )
    built = pickle.loads(pickle.dumps(settings)).build()
    assert built.mechanism.binding() == TreeTEM(mechanism.index, levels=levels).binding()
    wanted = textpriv.Privatizer(mechanism, seed=3).privatize("bana kuto", key=4)
    assert built.privatize("bana kuto", key=4) == wanted


def test_the_spacy_forms_draw_from_a_tree_and_bring_it_along(folder, tmp_path):
    law = {"@textpriv_mechanisms": "textpriv.TreeTEM.v1", "levels": {"synonyms": 3, "any": 3000}}
    nlp = spacy.blank("en")
    nlp.add_pipe(
        "textpriv", config={"index": str(folder), "mechanism": law, "save_raw_words": True}
    )
    assert {token.text for token in nlp("bana kuto")} <= set(WORDS)
    nlp.to_disk(tmp_path / "pipeline")
    doc = spacy.load(tmp_path / "pipeline")("bana kuto")
    assert {token.text for token in doc} <= set(WORDS)
    assert "told apart by odds of at most 3 to 1" in str(doc._.textpriv["statement"]["notes"])
