"""Spark, Ray and datasets release the same bytes as this process, also when a task or an actor is killed."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.corpus import run as corpus
from textpriv.engines.batch import BatchRelease, Columns, document_key, release_in_process
from textpriv.errors import CorpusError
from textpriv.index import Index
from textpriv.run_key import RunKey
from textpriv.tokenization.batches import EncodedTexts
from textpriv.vocabulary import Vocabulary

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    path = tmp_path_factory.mktemp("index") / "small.idx"
    Index.build(Vocabulary(WORDS, vectors), k=16, hnsw=False).save(path)
    return path


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    texts = [" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=25)) for _ in range(120)]
    names = [f"document {n}" for n in range(120)]
    return pa.table({"id": names, "text": texts, "stars": list(range(120))})


@pytest.fixture(scope="module")
def shards(tmp_path_factory, table) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "raw"
    folder.mkdir()
    for n in range(3):
        pq.write_table(table.slice(40 * n, 40), folder / f"{n}.parquet")
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> RunKey:
    key = RunKey.open(tmp_path_factory.mktemp("key") / "run.key")
    key.keep()
    return key


@pytest.fixture(scope="module")
def settings(index, key) -> PrivatizerSettings:
    return PrivatizerSettings(str(index), options={"epsilon": 4.0}, run_key=key.secret)


@pytest.fixture(scope="module")
def expected(tmp_path_factory, shards, settings, key) -> dict[str, bytes]:
    return _bytes(_run(tmp_path_factory.mktemp("local") / "out", shards, settings, key))


@pytest.fixture(scope="module")
def private(table, settings) -> dict[str, str]:
    """The private text of each named document."""
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    (batch,) = table.to_batches()
    done = release(batch)
    return dict(zip(done["id"].to_pylist(), done["text"].to_pylist(), strict=True))


def _run(target: Path, source: Path, settings, key, resume=False, **options) -> Path:
    key = RunKey.open(key.path)
    options = {"part_records": 20, "settings": settings, **options}
    privatize_corpus(source, target, settings.build(), key=key, resume=resume, **options)
    return target


def _bytes(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".json"}


@dataclass(frozen=True)
class KilledOnce(corpus.PartRunner):
    """Kills its own process at the first task that any process begins."""

    marker: str = ""

    def __call__(self, task):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().__call__(task)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True)
class FailingAt(corpus.PartRunner):
    """Fails always at one task."""

    place: int = 0

    def __call__(self, task):
        if task["base"] == self.place:
            raise OSError(5, "zanzibar")
        return super().__call__(task)


@dataclass(frozen=True)
class KillingTheDriver(corpus.PartRunner):
    """Kills the process that leads the run at one task."""

    driver: int = 0
    place: int = 0

    def __call__(self, task):
        if task["base"] == self.place:
            os.kill(self.driver, signal.SIGKILL)
        return super().__call__(task)


def lead_and_be_killed(engine: str, target: str, shards: str, index: str, key: str) -> None:
    """What the process does that a task of its own run kills."""
    pickles = import_module({"spark": "pyspark", "ray": "ray"}[engine]).cloudpickle
    pickles.register_pickle_by_value(sys.modules[__name__])
    sent = RunKey.open(Path(key))
    settings = PrivatizerSettings(index, options={"epsilon": 4.0}, run_key=sent.secret)
    corpus.PartRunner = lambda *given: KillingTheDriver(*given, driver=os.getpid(), place=80)
    _run(Path(target), Path(shards), settings, sent, engine=engine, workers=2)


@pytest.fixture
def killed_once(monkeypatch, tmp_path) -> Path:
    marker = tmp_path / "killed"
    monkeypatch.setattr(
        corpus,
        "PartRunner",
        lambda *arguments: KilledOnce(*arguments, marker=str(marker)),
    )
    return marker


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_a_run_whose_driver_was_killed_is_continued_to_the_same_bytes(
    engine, tmp_path, shards, index, settings, key, expected
):
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no java here")
    pytest.importorskip({"spark": "pyspark", "ray": "ray.data"}[engine])
    given = [engine, *map(str, (tmp_path / "out", shards, index, key.path))]
    code = f"import test_engines; test_engines.lead_and_be_killed(*{given!r})"
    # What it leaves behind may hold its output open: that goes to a file.
    with open(tmp_path / "told", "wb") as told:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            stdout=told,
            stderr=told,
            cwd=Path(__file__).parent,
            timeout=200,
            check=False,
        ).returncode
    assert ended == -signal.SIGKILL, (tmp_path / "told").read_text("utf-8", "replace")
    assert not (tmp_path / "out").exists()
    made = _run(tmp_path / "out", shards, settings, key, resume=True)
    assert _bytes(made) == expected


# Spark


@pytest.fixture(scope="module")
def spark():
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no java here")
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from pyspark import cloudpickle

    from textpriv.engines.spark import session

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with session("local[2,4]") as spark:
        yield spark
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_spark_releases_the_same_bytes_also_when_a_task_is_killed(
    spark, tmp_path, shards, settings, key, expected, killed_once
):
    made = _run(tmp_path / "out", shards, settings, key, engine="spark", workers=2)
    assert killed_once.exists()
    assert _bytes(made) == expected


def test_a_run_that_spark_gave_up_is_continued_to_the_same_bytes(
    spark, tmp_path, shards, settings, key, expected, monkeypatch, capfd
):
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "PartRunner", lambda *given: FailingAt(*given, place=40))
        with pytest.raises(CorpusError, match="continue with --resume") as error:
            _run(tmp_path / "out", shards, settings, key, engine="spark", workers=2)
    assert not (tmp_path / "out").exists()
    assert "zanzibar" not in str(error.value) + capfd.readouterr().err
    made = _run(tmp_path / "out", shards, settings, key, resume=True)
    assert _bytes(made) == expected


def test_a_spark_dataframe_keeps_its_columns_and_gets_the_same_texts(
    spark, table, settings, key, private
):
    from textpriv.engines.spark import privatize_dataframe

    frame = spark.createDataFrame(
        list(zip(*table.to_pydict().values(), strict=True)), "id string, text string, stars long"
    )
    sent = replace(settings, run_key=b"", key_file=str(key.path))
    done = privatize_dataframe(frame.repartition(3), sent, document_column="id")
    assert done.schema == frame.schema
    rows = done.collect()
    assert {row.id: row.text for row in rows} == private
    assert sorted(row.stars for row in rows) == list(range(120))


def test_a_spark_dataframe_needs_a_column_of_names(spark, settings):
    from textpriv.engines.spark import privatize_dataframe

    frame = spark.createDataFrame([("a",)], "text string")
    with pytest.raises(CorpusError, match="one column named 'id', found 0"):
        privatize_dataframe(frame, settings, document_column="id")


def test_a_spark_dataframe_with_a_repeated_name_is_refused(spark, settings):
    from textpriv.engines.spark import privatize_dataframe

    frame = spark.createDataFrame(
        [("a", "ba"), ("b", "ba"), ("a", "ba")], "`i.d` string, text string"
    )
    with pytest.raises(CorpusError, match="a document before it has the same name"):
        privatize_dataframe(frame, settings, document_column="i.d")


# Ray


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray.data", reason="ray is not installed")
    from ray import cloudpickle

    from textpriv.engines.ray import cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with cluster(workers=2):
        yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_ray_releases_the_same_bytes_also_when_an_actor_is_killed(
    ray, tmp_path, shards, settings, key, expected, killed_once
):
    made = _run(tmp_path / "out", shards, settings, key, engine="ray", workers=2)
    assert killed_once.exists()
    assert _bytes(made) == expected


def test_a_ray_dataset_keeps_its_columns_and_gets_the_same_texts(
    ray, table, settings, key, private
):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    sent = replace(settings, run_key=b"", key_file=str(key.path))
    done = privatize_dataset(ray.data.from_arrow(table), sent, document_column="id", batch_size=50)
    rows = done.take_all()
    assert {row["id"]: row["text"] for row in rows} == private
    assert sorted(row["stars"] for row in rows) == list(range(120))


def test_a_ray_dataset_with_a_repeated_name_is_refused(ray, settings):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    dataset = ray.data.from_arrow(pa.table({"id": ["a", "b", "a"], "text": ["ba"] * 3}))
    with pytest.raises(CorpusError, match="row 3: a document before it has the same name"):
        privatize_dataset(dataset, settings, document_column="id")


# datasets


def test_a_dataset_gets_the_texts_of_the_corpus_it_is(table, settings, shards, tmp_path, key):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    made = _run(tmp_path / "out", shards, settings, key)
    corpus_texts = [
        text for n in range(3) for text in pq.read_table(made / f"{n}.parquet")["text"].to_pylist()
    ]
    dataset = datasets.Dataset(table)
    done = privatize_dataset(dataset, settings, batch_size=50)
    assert done["text"][:] == corpus_texts
    assert done.features == dataset.features
    streamed = privatize_dataset(dataset.to_iterable_dataset(), settings, batch_size=50)
    assert [row["text"] for row in streamed] == corpus_texts


@pytest.mark.parametrize(
    "form", [{"type": "pandas"}, {"type": "arrow"}, {"type": "numpy", "columns": ["stars"]}]
)
def test_the_format_of_a_dataset_stays_and_changes_no_text(table, settings, form):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    plain = datasets.Dataset(table)
    dataset = plain.with_format(**form)
    done = privatize_dataset(dataset, settings)
    assert done.format == dataset.format
    assert done.with_format(None)["text"][:] == privatize_dataset(plain, settings)["text"][:]


def test_a_dataset_with_names_gets_the_texts_of_its_documents(table, settings, private):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    done = privatize_dataset(datasets.Dataset(table), settings, document_column="id")
    assert dict(zip(done["id"], done["text"], strict=True)) == private


# The function itself


def _release(settings, batch, columns) -> list[str]:
    return BatchRelease(settings.build(), columns)(batch)[columns.text].to_pylist()


def test_a_named_document_is_released_the_same_way_in_any_batch(table, settings, private):
    columns = Columns("text", document="id")
    shuffled = table.take(np.random.default_rng(3).permutation(120))
    for batch in shuffled.to_batches(max_chunksize=11):
        made = _release(settings, batch, columns)
        assert made == [private[name] for name in batch["id"].to_pylist()]


@pytest.mark.parametrize(
    ("columns", "change"),
    [
        (Columns("text", document="id"), {"id": ["b"]}),
        (Columns("text", number="n"), {"n": [1]}),
    ],
)
def test_equal_texts_of_two_documents_are_drawn_independently(settings, columns, change):
    batch = {"id": ["a"], "n": [0], "text": [" ".join(WORDS)]}
    one = _release(settings, pa.RecordBatch.from_pydict(batch), columns)
    again = _release(settings, pa.RecordBatch.from_pydict(batch), columns)
    other = _release(settings, pa.RecordBatch.from_pydict({**batch, **change}), columns)
    assert one == again != other


def test_two_versions_of_a_document_are_drawn_independently(index, key):
    # At this epsilon words leave their place often, so that one stream would show in the words that did not change.
    settings = PrivatizerSettings(str(index), options={"epsilon": 0.1}, run_key=key.secret)
    columns = Columns("text", document="id")
    texts = [" ".join(WORDS), " ".join([*WORDS[:-1], WORDS[0]])]
    first, second = (
        _release(settings, pa.RecordBatch.from_pydict({"id": ["a"], "text": [text]}), columns)[0]
        for text in texts
    )
    same = sum(a == b for a, b in zip(first.split(), second.split(), strict=True))
    # Independent draws over 280 words at a small epsilon agree in about one place in 280; more than 40 of 280 by chance
    # has probability below 1e-20 even if one word had a tenth of the mass.
    assert same <= 80


def _same_words(first: str, second: str) -> int:
    return sum(a == b for a, b in zip(first.split(), second.split(), strict=True))


@pytest.mark.parametrize(
    "change", [{"options": {"epsilon": 0.1001}}, {"policy": {"number": "mask"}}]
)
def test_two_settings_draw_independently_under_one_key(index, key, change):
    settings = PrivatizerSettings(str(index), options={"epsilon": 0.1}, run_key=key.secret)
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "text": [" ".join(WORDS)]})
    columns = Columns("text", document="id")
    (first,) = _release(settings, batch, columns)
    (second,) = _release(replace(settings, **change), batch, columns)
    assert _same_words(first, second) <= 80  # as above


def test_two_text_columns_of_a_document_are_drawn_independently(index, key):
    settings = PrivatizerSettings(str(index), options={"epsilon": 0.1}, run_key=key.secret)
    text = " ".join(WORDS)
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "body": [text], "subject": [text]})
    (body,) = _release(settings, batch, Columns("body", document="id"))
    (subject,) = _release(settings, batch, Columns("subject", document="id"))
    assert _same_words(body, subject) <= 80
    assert body == settings.build().privatize(text, key=document_key("body", "a"))


def test_a_dataset_with_a_repeated_name_is_refused(settings):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    given = datasets.Dataset.from_dict({"id": ["a", "b", "a"], "text": ["ba", "ba", "ba"]})
    for dataset in (given, given.to_iterable_dataset()):
        with pytest.raises(CorpusError, match="row 3: a document before it has the same name"):
            privatize_dataset(dataset, settings, document_column="id")


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ({"id": ["a"], "body": ["x"]}, "one column named 'text', found 0"),
        ({"id": ["a"], "text": [None]}, "row 1 of a batch: expected a text"),
        ({"id": [""], "text": ["zanzibar"]}, "expected a name"),
        ({"text": ["zanzibar"]}, "one column named 'id', found 0"),
    ],
)
def test_a_batch_that_cannot_be_released_is_told_without_its_text(settings, rows, match):
    schema = pa.schema([(name, pa.string()) for name in rows])
    batch = pa.RecordBatch.from_pydict(rows, schema=schema)
    with pytest.raises(CorpusError, match=match) as error:
        _release(settings, batch, Columns("text", document="id"))
    assert "zanzibar" not in str(error.value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_the_schema_of_a_batch_stays(settings, kind):
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("text", kind, nullable=False),
            ("x", pa.list_(pa.int8())),
        ]
    )
    batch = pa.RecordBatch.from_pydict({"id": [1], "text": [WORDS[0]], "x": [[1]]}, schema=schema)
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    assert release(batch).schema == schema


def _of_two_gigabytes() -> EncodedTexts:
    """A text too long for places of 32 bits; nobody looks at its letters, so that it takes no memory."""
    return EncodedTexts(np.zeros(2**31, dtype=np.uint8), np.array([0, 2**31]))


def test_texts_too_large_for_a_string_column_are_refused(settings):
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "text": ["x"]})
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    with pytest.raises(CorpusError, match="a batch of 1 rows take 2 GiB or more"):
        release.with_texts(batch, _of_two_gigabytes())


def test_a_large_string_column_holds_texts_of_any_size(settings):
    schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "text": ["x"]}, schema=schema)
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    column = release.with_texts(batch, _of_two_gigabytes()).column(1)
    assert np.frombuffer(column.buffers()[1], np.int64).tolist() == [0, 2**31]


@pytest.mark.parametrize("replaced", ["key", "index"])
def test_a_process_reads_a_replaced_key_or_index_anew(index, tmp_path, replaced):
    folder, place = tmp_path / "a.idx", tmp_path / "key"
    shutil.copytree(index, folder)
    RunKey.open(place).keep()
    settings = PrivatizerSettings(str(folder), options={"epsilon": 4.0}, key_file=str(place))
    first = release_in_process(settings, Columns(document="id"))
    assert release_in_process(settings, Columns(document="id")) is first
    if replaced == "key":
        place.unlink()
        RunKey.open(place).keep()
    else:
        shutil.move(folder, tmp_path / "old.idx")
        shutil.copytree(index, folder)
    assert release_in_process(settings, Columns(document="id")) is not first


def test_a_column_cannot_hold_both_texts_and_names():
    with pytest.raises(CorpusError, match="Name another column"):
        Columns("text", document="text")


def test_a_ledger_is_kept_to_this_machine(settings):
    from textpriv.engines import ray, spark

    counted = replace(settings, ledger="somewhere")
    for make in (spark.privatize_dataframe, ray.privatize_dataset):
        with pytest.raises(CorpusError, match="ledger lies on a local disk"):
            make(None, counted, document_column="id")
