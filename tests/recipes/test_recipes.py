"""Every recipe runs to its end in its quick form: with a folder of data, made here, and without one."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import textpriv

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("datasets")

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "aeio")][:400]


def loaded(name: str):
    """A recipe as a module, under a name that its worker processes do not need."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def app_of(module) -> typer.Typer:
    """The commands of a recipe; one that is a function becomes an app of one command."""
    if hasattr(module, "app"):
        return module.app
    app = typer.Typer()
    app.command()(module.main)
    return app


@pytest.fixture(scope="module", autouse=True)
def _recipes_importable():
    """Let recipes import one another, as scripts in one folder do, and forget them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(RECIPES))
    yield
    sys.path.remove(str(RECIPES))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(RECIPES) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def _reviews(path: Path, rng: np.random.Generator) -> None:
    lines = []
    for label in (0, 1) * 120:
        own = np.where(rng.random(20) < 0.8, label, 1 - label)
        text = " ".join(
            WORDS[2 * i + side] for i, side in zip(rng.integers(200, size=20), own, strict=True)
        )
        lines.append(json.dumps({"text": text, "label": label}) + "\n")
    path.write_bytes(gzip.compress("".join(lines).encode(), 1))


def _table(table, data, rng: np.random.Generator, rows: int = 160) -> pd.DataFrame:
    """A legal table whose numbers tell its classes apart."""
    label = np.arange(rows) % 2
    columns = {}
    for name, kind in table.columns.items():
        if isinstance(kind, data.Number):
            at = np.clip(0.35 + 0.3 * label + 0.15 * rng.normal(size=rows), 0, 1)
            columns[name] = np.round(kind.low + (kind.high - kind.low) * at, 4)
        else:
            columns[name] = rng.choice(kind.values, rows)
    return pd.DataFrame({**columns, table.target: np.array(list(table.classes)[:2])[label]})


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    """A folder of the recipes' layout: vectors of 400 words, 240 reviews a split, the UCI tables with 160 rows."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("embeddings", "imdb", "uci"):
        (folder / name).mkdir()
    vectors = (
        rng.normal(size=(len(WORDS), 8)) + np.where(np.arange(len(WORDS)) % 2, 0.5, -0.5)[:, None]
    )
    rows = b"".join(
        word.encode() + b" " + row.astype("<f4").tobytes()
        for word, row in zip(WORDS, vectors, strict=True)
    )
    (folder / VECTORS).write_bytes(gzip.compress(f"{len(WORDS)} 8\n".encode() + rows, 1))
    for split in ("train", "test"):
        _reviews(folder / "imdb" / f"{split}.jsonl.gz", rng)
    data = loaded("data")
    for table in data.SETS.values():
        for stem in table.files:
            _table(table, data, rng).to_csv(folder / "uci" / f"{stem}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def index(data_dir, tmp_path_factory) -> Path:
    import textpriv

    folder = tmp_path_factory.mktemp("index") / "small.idx"
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=150)
    textpriv.Index.build(vocabulary, hnsw=False).save(folder)
    return folder


class _Threads(ThreadPoolExecutor):
    """Stands for new processes, which load for seconds what is here: what these would be given goes the same way."""

    def __init__(self, workers: int, mp_context: object) -> None:
        super().__init__(workers)

    def submit(self, *call, **options):
        function, *given = pickle.loads(pickle.dumps(call))
        return super().submit(function, *given, **options)


@pytest.fixture
def no_hub(monkeypatch, data_dir):
    """The hub of data sets answers from the made folder, so that a recipe without --data-dir needs no network."""
    import datasets

    load = datasets.load_dataset

    def load_dataset(name, **options):
        if name != "stanfordnlp/imdb":
            return load(name, **options)
        files = {split: str(data_dir / "imdb" / f"{split}.jsonl.gz") for split in ("train", "test")}
        return load("json", data_files=files, **options)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


def run(name: str, *arguments: object) -> str:
    """Run a recipe in this process to its end; what it printed."""
    done = CliRunner().invoke(app_of(loaded(name)), [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def _with(given: bool, data_dir: Path) -> list[object]:
    return ["--data-dir", data_dir] if given else []


pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.usefixtures("no_hub"),
]


def test_every_recipe_is_run_here():
    # What holds data sets, and what runs inside the environment of another package, are no recipes of their own.
    parts = {"data", "keel", "peers", "ranking_peers", "survival", "text_sets"}
    assert {path.stem for path in RECIPES.glob("*.py")} - parts == {
        "benchmark",
        "published_pairwise",
        "retrieval",
        "spans",
        "uci",
    }


def test_spans(data_dir, tmp_path):
    pytest.importorskip("presidio_analyzer")
    pytest.importorskip("phonenumbers")
    marked = {"user_query": "Write to jo@example.org.", "pii_units": "['jo@example.org', 'absent']"}
    plain = {"text": "Seen on 12.03.2020."}
    for name, row in {
        "pupa/prompts": marked,
        "tab/legal25": plain,
        "bios/synthetic": plain,
    }.items():
        file = tmp_path / f"{name}.jsonl.gz"
        file.parent.mkdir()
        file.write_bytes(gzip.compress(json.dumps(row).encode()))
    shown = run("spans", "survival", "--data-dir", tmp_path, "--draws", "1")
    assert "pupa/prompts, chat, patterns, all: 0.00% (+- 0.00%) of 1 units stay" in shown
    # By three detectors all units, and those of the one kind that there are.
    assert shown.count("of 1 units") == 3 * 3 * 2
    shown = run("spans", "rate", "--data-dir", data_dir, "--reviews", "60")
    assert re.search(r"patterns, tickets: .* of the rate without", shown)
    assert shown.count("on top") == 2


def write_sets(data_dir, folder, counts, reviews):
    """The sets that laws are compared on: vectors, word counts and IMDb, with questions and reviews that are made up."""
    rng = np.random.default_rng(4)
    for name in ("embeddings", "yelp", "banking77"):
        (folder / name).mkdir()

    def write(path, rows):
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode(), 1))

    for split in ("train", "test"):
        texts = [{"text": " ".join(rng.choice(WORDS, 6)), "label": at % 3} for at in range(30)]
        write(folder / "banking77" / f"{split}.jsonl.gz", texts)
    (folder / VECTORS).symlink_to(data_dir / VECTORS)
    (folder / "imdb").symlink_to(data_dir / "imdb")
    listed = "".join(f"{word} {1000 - at}\n" for at, word in enumerate(WORDS))
    (folder / counts).write_bytes(gzip.compress(listed.encode(), 1))
    rows = (
        {"text": " ".join(rng.choice(WORDS, 4)), "stars": at % 5 + 1, "category": "ab"[at % 2]}
        for at in range(reviews)
    )
    write(folder / "yelp" / "reviews.jsonl.gz", rows)


@pytest.fixture
def network(tmp_path, monkeypatch):
    """What the text sets are fetched from, made up, and how often the hub was asked."""
    import datasets

    recipe, rng, asked = loaded("text_sets"), np.random.default_rng(5), []
    texts = [" ".join(rng.choice(WORDS[:60], 20)) for _ in range(40)]
    labelled = datasets.Dataset.from_dict({"text": texts, "label": [0] * 20 + [1] * 20})
    splits = {"train": labelled, "test": labelled, "unsupervised": labelled}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or splits)
    source = tmp_path / "network"
    source.mkdir()
    (source / "categories.json").write_text('["lost card", "top up"]')
    for split in ("train", "test"):
        (source / f"{split}.csv").write_text(
            f'text,category\n"{texts[0]}, 1",top up\nb,lost card\n'
        )
    reviews = f"text,label1,label2\n{texts[1]},Business Category: Bars,Review Stars: 4.0\n"
    (source / "yelp.csv").write_text(reviews)
    monkeypatch.setattr(recipe, "BANKING77", str(source))
    monkeypatch.setattr(recipe, "YELP", str(source / "yelp.csv"))
    monkeypatch.setitem(recipe.TRAINING, "vector_size", 8)
    return asked


def test_text_sets_are_fetched_once_into_the_layout_of_a_local_copy(network, tmp_path):
    recipe, folder = loaded("text_sets"), tmp_path / "fetched"
    assert recipe.fetched_texts(folder) == folder
    assert recipe.fetched_texts(folder) == folder
    assert network == [recipe.IMDB] * 2  # for reviews, and for those that vectors are trained on

    def lines(path):
        return [
            json.loads(line)
            for line in gzip.decompress((folder / path).read_bytes()).split(b"\n")[:-1]
        ]

    labels = [row["label"] for row in lines("imdb/train.jsonl.gz")]
    assert sorted(labels) == [0] * 20 + [1] * 20 != labels
    assert [row["label"] for row in lines("banking77/test.jsonl.gz")] == [1, 0]
    (review,) = lines("yelp/reviews.jsonl.gz")
    assert (review["stars"], review["category"]) == (4, "Bars")
    vocabulary = textpriv.Vocabulary.load(folder / recipe.VECTORS, prior=folder / recipe.COUNTS)
    assert vocabulary.vectors.shape == (60, 8)
    assert vocabulary.prior_weights("counts").argmax() == 0
    assert not [file for file in folder.rglob("*") if "tmp" in file.name]


def test_a_text_set_that_cannot_be_fetched_names_the_option(network, tmp_path, monkeypatch):
    recipe = loaded("text_sets")
    monkeypatch.setattr(recipe, "YELP", str(tmp_path / "nowhere.csv"))
    with pytest.raises(loaded("data").DataUnavailable, match=r"Yelp .*--data-dir"):
        recipe.fetched_texts(tmp_path / "fetched")


@pytest.mark.parametrize("given", [True, False])
def test_uci(data_dir, tmp_path, monkeypatch, given):
    recipe = loaded("uci")
    monkeypatch.setattr(recipe, "ProcessPoolExecutor", _Threads)
    monkeypatch.setattr(recipe, "EPSILONS", (1.0,))
    chosen = ["--sets", "hepatitis" if given else "breast_cancer", "--splits", 1, "--jobs", 1]
    run("uci", "auc", "--out", tmp_path, *chosen, *_with(given, data_dir))
    assert len(pd.read_csv(tmp_path / "auc.csv"))


def test_published_pairwise():
    assert "Theorem 1" in run("published_pairwise")


def test_benchmark(data_dir, tmp_path):
    # All parts are measured by the tests of the recipe itself.
    options = ["--quick", "--part", "growth", "--output", tmp_path / "b"]
    run("benchmark", *options, "--data-dir", data_dir)
    assert "## Growth" in (tmp_path / "b.md").read_text()


def test_benchmark_without_data(tmp_path):
    # The parts differ only in what is measured; the vectors are built in, the texts come with gensim.
    run("benchmark", "--quick", "--part", "rates", "--output", tmp_path / "b")
    assert "## Side by side" in (tmp_path / "b.md").read_text()
