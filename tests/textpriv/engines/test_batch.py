"""The function of a batch, and datasets that it is mapped over: the same bytes as a corpus, and independent streams."""

from __future__ import annotations

import shutil
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_runs import WORDS, run

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.batch import BatchRelease, Columns, release_in_process
from textpriv.engines.identity import document_key
from textpriv.errors import CorpusError, MechanismError
from textpriv.files import CACHE_VARIABLE, one_at_a_time
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
        (Columns("text", occurrence="n"), {"n": [2]}),
    ],
)
def test_equal_texts_of_two_documents_are_drawn_independently(settings, columns, change):
    batch = {"id": ["a"], "n": [1], "text": [" ".join(WORDS)]}
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


def test_a_process_of_an_engine_has_compiled_code_before_its_first_batch(settings):
    released = release_in_process(settings, Columns())
    assert "_state" in vars(released.privatizer.mechanism._sampler)


def test_the_processes_of_a_machine_compile_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    inside, most = [], []

    def work(number: int) -> None:
        with one_at_a_time("test"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(number)

    with ThreadPoolExecutor(4) as pool:  # each opens the file anew, as a process would
        list(pool.map(work, range(8)))
    assert max(most) == 1


def test_where_no_lock_can_be_kept_no_process_waits(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder would be")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    with one_at_a_time("test"), one_at_a_time("test"):
        pass


def test_a_mechanism_is_named_in_short_and_one_that_is_not_there_is_answered_with_those_that_are(
    settings,
):
    full = settings.build()
    assert replace(settings, mechanism="tem").build().fingerprint == full.fingerprint
    with pytest.raises(MechanismError, match=r"'mine.Law.v1'.*tem, balanced"):
        replace(settings, mechanism="mine.Law.v1").build()


@pytest.mark.parametrize(("words", "warned"), [(f"{WORDS[0]} {WORDS[1]}", 0), ("wetter regen", 1)])
def test_texts_of_another_language_are_warned_of_once_and_not_quoted(settings, words, warned):
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    texts = [" ".join([words] * 100)] * 4
    batch = pa.RecordBatch.from_pydict({"id": list("abcd"), "text": texts})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            release.released(batch, release.privatizer.read_batch(release.encoded(batch)))
    said = [str(each.message) for each in caught if "another language" in str(each.message)]
    assert len(said) == warned
    assert "regen" not in "".join(said)
