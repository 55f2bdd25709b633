"""The function of a batch, and datasets that it is mapped over: the same bytes as a corpus, and independent streams."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_runs import WORDS, run

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.batch import BatchRelease, release_in_process
from textpriv.engines.columns import Columns, Record
from textpriv.errors import CorpusError, TextprivError
from textpriv.run_key import RunKey

# datasets


def test_a_dataset_gets_the_texts_of_the_corpus_it_is(table, settings, shards, tmp_path, key):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    made = run(tmp_path / "out", shards, settings, key)
    corpus_texts = [
        text for n in range(3) for text in pq.read_table(made / f"{n}.parquet")["text"].to_pylist()
    ]
    dataset = datasets.Dataset(table)
    done = privatize_dataset(dataset, settings)
    assert done["text"][:] == corpus_texts
    assert done.features == dataset.features
    streamed = privatize_dataset(dataset.to_iterable_dataset(), settings)
    assert [row["text"] for row in streamed] == corpus_texts


def test_a_dataset_with_names_gets_the_texts_of_its_documents(table, settings, private):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    done = privatize_dataset(datasets.Dataset(table), settings, document_column="id")
    assert dict(zip(done["id"], done["text"], strict=True)) == private


# The function itself


def _release(settings, batch, columns) -> list[str]:
    return BatchRelease(settings.build(), columns)(batch)["text"].to_pylist()


def test_a_named_document_is_released_the_same_way_in_any_batch(table, settings, private):
    columns = Columns("text", "id")
    shuffled = table.take(np.random.default_rng(3).permutation(120))
    for batch in shuffled.to_batches(max_chunksize=11):
        made = _release(settings, batch, columns)
        assert made == [private[name] for name in batch["id"].to_pylist()]


@pytest.mark.parametrize("name", ["name", "numbers"])
def test_equal_texts_of_two_documents_are_drawn_independently(settings, name):
    columns = Columns(document_column="id" if name == "name" else None)
    values = {"name": ["a", "a", "b"], "numbers": [(1,), (1,), (2,)]}[name]
    records = [Record([" ".join(WORDS)], **{name: value}) for value in values]
    ((one, again, other),) = BatchRelease(settings.build(), columns).rows(records).texts
    assert one == again != other


def _same_words(first: str, second: str) -> int:
    return sum(a == b for a, b in zip(first.split(), second.split(), strict=True))


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
        ({"id": ["a"], "text": [5]}, "row 1 of a batch: expected a text"),
        ({"id": [""], "text": ["zanzibar"]}, "expected a name"),
        ({"text": ["zanzibar"]}, "one column named 'id', found 0"),
    ],
)
def test_a_batch_that_cannot_be_released_is_told_without_its_text(settings, rows, match):
    batch = pa.RecordBatch.from_pydict(rows)
    with pytest.raises(TextprivError, match=match) as error:
        _release(settings, batch, Columns("text", "id"))
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
    release = BatchRelease(settings.build(), Columns("text", "id"))
    assert release(batch).schema == schema


@pytest.mark.parametrize("replaced", ["key", "index"])
def test_a_process_reads_a_replaced_key_or_index_anew(index, tmp_path, replaced):
    folder, place = tmp_path / "a.idx", tmp_path / "key"
    shutil.copytree(index, folder)
    RunKey.open(place).keep()
    settings = PrivatizerSettings(str(folder), options={"epsilon": 4.0}, key_file=str(place))
    first = release_in_process(settings, Columns("text", "id"))
    assert release_in_process(settings, Columns("text", "id")) is first
    if replaced == "key":
        place.unlink()
        RunKey.open(place).keep()
    else:
        shutil.move(folder, tmp_path / "old.idx")
        shutil.copytree(index, folder)
    assert release_in_process(settings, Columns("text", "id")) is not first


def test_a_process_refuses_settings_of_another_privatizer(settings):
    columns, known = Columns("text", "id"), settings.build().fingerprint
    assert release_in_process(settings, columns, known).privatizer.fingerprint == known
    other = replace(settings, options={"epsilon": 3.0})
    with pytest.raises(CorpusError, match="just the Privatizer"):
        release_in_process(other, columns, known)


def test_a_ledger_is_kept_to_this_machine(settings):
    from textpriv.engines import ray, spark

    counted = replace(settings, ledger="somewhere")
    for make in (spark.privatize_dataframe, ray.privatize_dataset):
        with pytest.raises(CorpusError, match="ledger counts on one machine"):
            make(None, counted, document_column="id")
