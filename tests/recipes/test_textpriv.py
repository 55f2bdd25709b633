"""The recipes about private text run to their ends on made-up data, and their tables say what they should."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import catalogue
import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

import textpriv
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.language import NGrams
from textpriv.mechanisms import registry

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
WORDS = [f"{first}{second}" for first in "bdfgklm" for second in ("an", "el", "ix", "or", "ut")]
for package in ("sklearn", "pandas", "matplotlib", "datasets"):
    pytest.importorskip(package)


@pytest.fixture(scope="module", autouse=True)
def _recipes_importable():
    sys.path.insert(0, str(RECIPES))
    yield
    sys.path.remove(str(RECIPES))


def loaded(name: str):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def run(name: str, *arguments: object) -> str:
    module = loaded(name)
    app = getattr(module, "app", None)
    if app is None:
        app = Typer()
        app.command()(module.main)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode(), 1))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    """All sets in small: texts of two classes that prefer other words."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    half = len(WORDS) // 2

    def text(label: int, length: int = 20) -> str:
        own = rng.integers(0, half, length) + half * (rng.random(length) < 0.15 + 0.7 * label)
        return " ".join(WORDS[at] for at in own)

    def texts(count: int, **fields: list[object]) -> list[dict[str, object]]:
        made = [{"text": text(at % 2), "label": at % 2} for at in range(count)]
        return [row | {k: v[at % len(v)] for k, v in fields.items()} for at, row in enumerate(made)]

    for split in ("train", "test"):
        write(folder / f"imdb/{split}.jsonl.gz", texts(240))
        write(folder / f"banking77/{split}.jsonl.gz", texts(60))
    write(folder / "ag_news/articles.jsonl.gz", texts(60))
    write(folder / "yelp/reviews.jsonl.gz", texts(60, stars=[2, 5], category=["a", "b"]))
    marked = {"user_query": "Write to jo@example.org.", "pii_units": "['jo@example.org', 'none']"}
    write(folder / "pupa/prompts.jsonl.gz", [marked])
    write(folder / "bios/synthetic.jsonl.gz", [{"text": "Ann Lee was seen on 12.03.2020."}])
    for name in loaded("text_sets").SHORT_SETS:
        for split in ("train", "test"):
            write(folder / f"{name}/{split}.jsonl.gz", texts(60))
    vectors = rng.normal(size=(len(WORDS), 8)).astype("<f4")
    rows = [w.encode() + b" " + row.tobytes() for w, row in zip(WORDS, vectors, strict=True)]
    packed = gzip.compress(f"{len(WORDS)} 8\n".encode() + b"".join(rows), 1)
    (folder / loaded("imdb").VECTORS).parent.mkdir()
    (folder / loaded("imdb").VECTORS).write_bytes(packed)
    return folder


@pytest.fixture
def made_up_words(data_dir, monkeypatch) -> None:
    """Make the built-in index one of the made-up words."""
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    words = textpriv.Vocabulary(WORDS, vectors, language="en", function_words=WORDS[:4])
    with gzip.open(data_dir / "imdb/train.jsonl.gz", "rt") as lines:
        model = NGrams.count([json.loads(line)["text"] for line in lines], words)
    index = textpriv.Index.build(words, model=model)
    monkeypatch.setattr(textpriv.Index, "builtin", lambda language: index)


@pytest.mark.usefixtures("made_up_words")
def test_the_trade_off_is_at_the_recovery_asked_for(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(loaded("tradeoff"), "FORMS", ["SanText"])
    options = ["--draws", 1, "--only", "Messages", "--peers", "--recovery", 0.3]
    shown = run("tradeoff", "--data-dir", data_dir, "--out", tmp_path / "t", *options)
    import pandas as pd

    found = pd.read_csv(tmp_path / "t.csv")
    attacked = found.dropna(subset=["epsilon"])
    assert (attacked.loc[attacked["mechanism"] != "ContextualTEM", "alone"] <= 0.3001).all()
    assert {"clear text", "function words only", "SanText"} <= set(found["mechanism"])
    assert (found[["by_own_cost", "by_three_times", "channel"]].count() == 1).all()
    assert (tmp_path / "t.md").read_text() in shown
    assert (tmp_path / "t.svg").is_file()


@pytest.mark.usefixtures("made_up_words")
def test_axes_are_compared_at_the_same_recovery(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(loaded("axes"), "RECOVERY", 0.3)
    run("axes", "--data-dir", data_dir, "--out", tmp_path / "a", "--only", "imdb")
    rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert [row[4] for row in rows] == ["plain", "axes"]
    assert float(rows[0][5]) != float(rows[1][5])
    assert all(0.5 < float(row[7]) <= 1 for row in rows)


def test_forms_of_other_packages_are_distributions_and_drawn_as_such():
    peers = loaded("peers")
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    index = textpriv.Index.build(textpriv.Vocabulary(WORDS[:30], vectors), "euclidean")
    for form in peers.FORMS:
        mechanism = peers.Peer(index, 1.5, form)
        rows = np.exp([mechanism.log_prob(word) for word in range(30)])
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)
        drawn = mechanism.sample(np.full(20_000, 3), np.random.default_rng(1))
        shares = np.bincount(drawn, minlength=30) / 20_000
        # Seven deviations.
        assert (np.abs(shares - rows[3]) < 7 * np.sqrt(rows[3] / 20_000) + 1e-9).all()
        _, most = OutputDistribution(mechanism).likeliest()
        joint = OutputDistribution(mechanism).prior[:, None] * rows
        np.testing.assert_allclose(most, joint.max(axis=0), rtol=1e-5)
    law = textpriv.TEM(index, 1.5, prior="uniform", gamma=20.0)
    wanted = np.exp([law.log_prob(word) for word in range(30)])
    found = np.exp([peers.Peer(index, 1.5, "SanText").log_prob(word) for word in range(30)])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_imdb_without_a_folder_says_which_files_it_needs():
    app = Typer()
    app.command()(loaded("imdb").main)
    done = CliRunner().invoke(app, ["--quick"])
    assert done.exit_code == 2
    assert "imdb/train.jsonl.gz" in done.output


def test_imdb_learns_from_private_reviews(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(loaded("imdb"), "EPOCHS", 400)  # of few documents each
    own = registry.get("textpriv.TEM.v1")
    monkeypatch.setitem(catalogue.REGISTRY, (*registry.namespace, "mine.Own.v1"), own)
    options = ["--epsilons", "3", "--trials", 1, "--out", tmp_path / "i"]
    shown = run("imdb", "--data-dir", data_dir, *options, "--mechanism", "mine.Own.v1")
    assert (tmp_path / "i.md").read_text() in shown
    lines = [line.split("|") for line in shown.splitlines() if line.startswith("| ")]
    clear = next(line for line in lines if "unprivatized" in line[1])
    assert float(clear[2].split("±")[0]) > 60
    assert sum("TEM" in line[1] for line in lines) == 2
    assert sum("mine.Own.v1" in line[1] for line in lines) == 1


def test_decoding_says_how_texts_read(data_dir, tmp_path):
    options = ["--limit", len(WORDS), "--reviews", 20, "--public", 100, "--recovery", 0.5]
    shown = run("decoding", "--data-dir", data_dir, "--out", tmp_path / "d", *options)
    assert (tmp_path / "d.md").read_text() in shown
    assert "| original | 100.0 | 100.0 | " in shown
    assert "| decoded | " in shown


def test_spans_counts_marked_units_that_the_patterns_find(tmp_path):
    text = "Call 415-555-2671 or 078-05-1120, aged 41, on page 7."
    marks = [("PHONE_NUMBER", 5, 17), ("US_SSN", 21, 32), ("AGE", 39, 41), ("AGE", 51, 52)]
    names = "entity_type", "start_position", "end_position"
    record = {"full_text": text, "spans": [dict(zip(names, each, strict=True)) for each in marks]}
    (tmp_path / "set.json").write_text(json.dumps([record]))
    shown = run("spans", "found", tmp_path / "set.json")
    assert "SSN: found 1 of 1; 0 of 1 spans are none" in shown
    assert "AGE: found 1 of 2; 0 of 1 spans are none" in shown


@pytest.fixture
def people(data_dir, monkeypatch):
    """The recipe about people, over few texts with marked units."""
    pytest.importorskip("phonenumbers")
    module = loaded("people")
    for name, value in {"DRAWS": 1, "RECOVERIES": (0.1,), "EPSILONS": (4.0,), "AUTHORS": 3}.items():
        monkeypatch.setattr(module, name, value)
    text = "Mrs Zyx Quiverneth has cancer. Mail jo@example.org."
    person = {"start": 0, "end": 18, "type": "PERSON", "identifier": "DIRECT"}
    write(data_dir / "tab/spans144.jsonl.gz", [{"text": text, "spans": [person]}])
    says = ["i like the red car", "you went to rome", "my old dog sleeps", "no film is good"]
    rows = [
        {"author": at, "comments": [f"{say} {at}" for say in says], "labels": {}} for at in range(4)
    ]
    rows[0]["labels"] = {"city_country": {"estimate": "rome, italy"}}
    write(data_dir / "synthpai/comments.jsonl.gz", rows)
    return module


def test_people_counts_name_words_identifiers_and_illnesses(people, data_dir):
    (found,) = people.marked(data_dir, "court cases")
    assert found[1] == [
        ("direct identifier", "mrs zyx quiverneth"),
        ("full name", "mrs zyx quiverneth"),
        ("illness", "cancer"),
        ("name word", "quiverneth"),
        ("name word", "zyx"),
    ]
    assert people.found_in("Ann Lee", "by ann\n lee.")
    assert not people.found_in("Ann", "Anna")


def test_people_prints_what_stays_by_kind_and_setting(people, data_dir, tmp_path):
    only = "court cases,prompts,biographies,comments"
    shown = run(
        "people", "stay", "--data-dir", data_dir, "--out", tmp_path / "p.csv", "--only", only
    )
    assert "stays,court cases,name word,none,-,recovery 0.1,2,0.0000,0.0000,1,0.0000" in shown
    assert "stays,prompts,marked unit,patterns,chat,recovery 0.1,1,0.0000" in shown
    assert "stays,comments,place,none,-,recovery 0.1,1," in shown
    assert (tmp_path / "p.csv").read_text().startswith("question,set,kind,detector,policy,setting")


def test_people_guesses_authors_and_members(people, data_dir, tmp_path):
    options = ["--data-dir", data_dir, "--out", tmp_path / "p.csv"]
    shown = run("people", "authors", *options)
    assert "author of all texts,comments,commonest author,none,-,-,3,0.3333" in shown
    assert shown.count("word by word") == shown.count("new records") == 2
    shown = run("people", "members", *options)
    assert "is a known text in the release (AUC),comments,word by word" in shown


def test_a_released_text_is_found_by_equal_words_in_equal_places(people):
    assert people.likeness([["a", "b", "c"], ["x", "y"]], [["a", "q", "c"], ["a", "b"]]) == [
        2 / 3,
        0.0,
    ]


def test_the_benchmark_says_which_limits_are_met(data_dir, tmp_path, monkeypatch):
    benchmark = loaded("benchmark")
    monkeypatch.setattr(benchmark, "starts", lambda runs: [benchmark.Limit("start", "s", 7, 6)])
    monkeypatch.setattr(benchmark, "files", lambda index, texts: [])
    monkeypatch.setattr(benchmark, "EPSILONS", (2.0,))
    options = ["--data-dir", data_dir, "--quick", "--output", tmp_path / "b"]
    shown = run("benchmark", *options)
    assert (tmp_path / "b.md").read_text() == shown
    assert "| start | 7 s | at most 6 | **no** |" in shown
    assert "words a second | at least 400,000 |" in shown


def test_text_sets_that_cannot_be_fetched_name_the_option(tmp_path, monkeypatch):
    recipe = loaded("text_sets")
    monkeypatch.setattr(recipe, "_GITHUB", (tmp_path / "nowhere").as_uri())
    monkeypatch.setattr(recipe, "_from_hub", lambda *which: pytest.fail("asked"))
    for name in ("imdb/train.jsonl.gz", "imdb/test.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(loaded("data").DataUnavailable, match=r"Banking77 .*--data-dir"):
        recipe.fetched_texts(tmp_path)


def test_text_sets_part_into_train_and_test_texts(tmp_path, monkeypatch):
    recipe = loaded("text_sets")
    monkeypatch.setattr(recipe, "_GITHUB", tmp_path.as_uri())
    (tmp_path / recipe.MESSAGES).parent.mkdir(parents=True)
    (tmp_path / recipe.MESSAGES).write_text("".join(f"ham\ttext {at}\n" for at in range(8)))
    train, test = map(list, recipe.SHORT_SETS["messages"]())
    assert (len(train), len(test)) == (6, 2)
    assert sorted(train + test) == [(f"text {at}", "ham") for at in range(8)]
