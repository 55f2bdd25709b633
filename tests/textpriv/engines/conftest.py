"""A small corpus and what this process releases of it, to which every engine is compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_runs import COLUMNS, WORDS, KilledOnce, bytes_of, run
from small_indexes import learned, saved

from textpriv.corpus import PrivatizerSettings
from textpriv.corpus import run as corpus
from textpriv.engines.batch import BatchRelease
from textpriv.engines.columns import Columns, Record
from textpriv.index import Index, Tree
from textpriv.run_key import RunKey


@pytest.fixture(scope="session")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)


@pytest.fixture(scope="session")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    texts = [" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=25)) for _ in range(120)]
    names = [f"document {n}" for n in range(120)]
    return pa.table({"id": names, "text": texts, "stars": list(range(120))})


@pytest.fixture(scope="session")
def shards(tmp_path_factory, table) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "raw"
    folder.mkdir()
    for n in range(3):
        pq.write_table(table.slice(40 * n, 40), folder / f"{n}.parquet")
    return folder


@pytest.fixture(scope="session")
def key(tmp_path_factory) -> RunKey:
    key = RunKey.open(tmp_path_factory.mktemp("key") / "run.key")
    key.keep()
    return key


@pytest.fixture(scope="session")
def settings(index, key) -> PrivatizerSettings:
    return PrivatizerSettings(str(index), options={"epsilon": 4.0}, run_key=key.secret)


@pytest.fixture(scope="session")
def expected(tmp_path_factory, shards, settings, key) -> dict[str, bytes]:
    return bytes_of(run(tmp_path_factory.mktemp("local") / "out", shards, settings, key))


@pytest.fixture(scope="session")
def private(table, settings) -> dict[str, str]:
    """The private text of each named document."""
    return released(table, settings)


def released(table, settings) -> dict[str, str]:
    release = BatchRelease(settings.build(), Columns("text", "id"))
    (batch,) = table.to_batches()
    done = release(batch)
    return dict(zip(done["id"].to_pylist(), done["text"].to_pylist(), strict=True))


@pytest.fixture(scope="session")
def two_columns(tmp_path_factory, table, settings, key) -> tuple[pa.Table, Path, dict]:
    """A table in which each text stands in a second column too, its folder, and what this process releases of it."""
    table = table.append_column("subject", table["text"])
    folder = tmp_path_factory.mktemp("columns")
    (folder / "raw").mkdir()
    pq.write_table(table, folder / "raw" / "a.parquet")
    run(folder / "out", folder / "raw", settings, key, text_column=COLUMNS, document_column="id")
    made = pq.read_table(folder / "out" / "a.parquet").select(["id", *COLUMNS])
    assert made["text"] != made["subject"]
    return table, folder, {row["id"]: row for row in made.to_pylist()}


@pytest.fixture(scope="session")
def tree_settings(tmp_path_factory, index, settings, key) -> PrivatizerSettings:
    """A mechanism over a tree, by the odds of its levels."""
    path = tmp_path_factory.mktemp("tree") / "small.tree"
    vocabulary = Index.load(index).vocabulary
    Tree.build(vocabulary, groups={"kind": 9}).save(path)
    return replace(
        settings,
        index=str(path),
        mechanism="textpriv.TreeTEM.v1",
        options={"levels": {"kind": 20, "any": 300}},
    )


@pytest.fixture(scope="session")
def axes_settings(tmp_path_factory, settings) -> PrivatizerSettings:
    """An index with axes."""
    path = tmp_path_factory.mktemp("axes") / "own.idx"
    learned(WORDS).save(path)
    return replace(settings, index=str(path))


@pytest.fixture(scope="session")
def contextual_settings(settings) -> PrivatizerSettings:
    """A mechanism that reads the words it has released."""
    return replace(settings, mechanism="textpriv.ContextualTEM.v1")


@pytest.fixture(scope="session", params=["tree", "axes", "contextual"])
def other(request, table) -> tuple[PrivatizerSettings, dict[str, str]]:
    """Settings of another kind of mechanism, and the private text of each named document under them."""
    settings = request.getfixturevalue(f"{request.param}_settings")
    return settings, released(table, settings)


@pytest.fixture(scope="session")
def typed(settings) -> tuple[pa.Table, PrivatizerSettings, dict[str, str]]:
    """Documents with dates of three persons, settings that move them, and what this process releases."""
    kinds = {
        "DATE": {"method": "date-shift", "epsilon": 0.01, "scope": "person"},
        "NUMBER": {"method": "number", "epsilon": 0.5, "low": 0, "high": 100},
    }
    settings = replace(settings, spans={"kinds": kinds}, detect=("patterns",))
    rows = range(12)
    table = pa.table(
        {
            "id": [f"{row}" for row in rows],
            "who": [f"person {row % 3}" for row in rows],
            "text": [f"baba 2020-0{1 + row % 9}-28 lota {row} dene" for row in rows],
        }
    )
    release = BatchRelease(settings.build(), Columns("text", "id", "who"))
    given = table.to_pydict()
    rows_of = zip(given["text"], given["id"], given["who"], strict=True)
    done = release.rows([Record([text], name, who) for text, name, who in rows_of])
    assert done.tokens["span DATE"] == done.tokens["span NUMBER"] == len(rows)
    return table, settings, dict(zip(given["id"], done.texts[0], strict=True))


@pytest.fixture(scope="session")
def labelled(typed) -> tuple[pa.Table, PrivatizerSettings, list[dict[str, str]]]:
    """The same documents with their dates in a column of labels, and the rows that this process releases."""
    table, settings, _ = typed
    settings = replace(settings, detect=())
    spans = [[{"start": 5, "end": 15, "label": "DATE"}]] * table.num_rows
    table = table.append_column("spans", pa.array(spans))
    release = BatchRelease(settings.build(), Columns("text", "id", "who", "spans"))
    (batch,) = table.to_batches()
    rows = release(batch).to_pylist()
    assert all("2020" not in row["text"] or "spans" not in row for row in rows)
    return table, settings, rows


@pytest.fixture
def killed_once(monkeypatch, tmp_path) -> Path:
    marker = tmp_path / "killed"
    monkeypatch.setattr(corpus, "make_file", KilledOnce(str(marker)))
    return marker
