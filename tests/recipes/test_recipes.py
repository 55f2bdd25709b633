"""Every recipe runs to its end in its quick form: with a folder of data, made here, and without one."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import pickle
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

    folder = tmp_path_factory.mktemp("index") / "small.idx"
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=150)
    textpriv.Index.build(vocabulary, "euclidean").save(folder)
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


@pytest.fixture
def few_draws(monkeypatch):
    """Few texts are drawn, and no epsilon is searched for."""
    from textpriv.synthesis import generator

    monkeypatch.setattr(generator, "_MATCHED", 50)
    monkeypatch.setattr(loaded("records"), "DRAWN", 100)
    monkeypatch.setattr(textpriv, "privatize", lambda texts, recovery: texts)


RECORDS = ["--only", "imdb", "--sizes", 100, "--epsilons", 4]


@pytest.mark.usefixtures("few_draws")
def test_records(data_dir, tmp_path):
    out = ["--data-dir", data_dir, "--out", tmp_path / "found", "--draws", 1]
    printed = run("records", *RECORDS, *out)
    found = pd.read_csv(tmp_path / "found.csv")
    assert set(found["method"]) == {*loaded("records").STYLES, loaded("records").WITH_NEW}
    assert (tmp_path / "found.md").read_text() in printed
    assert (tmp_path / "found.svg").stat().st_size


@pytest.mark.usefixtures("few_draws")
def test_records_audit(data_dir):
    printed = run("records", *RECORDS, "--data-dir", data_dir, "--audit")
    assert "'training runs in new texts': 0" in printed
