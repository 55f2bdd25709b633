"""Spark releases the same bytes as this process, also when a task or the driver is killed."""

from __future__ import annotations

import runpy
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import engine_runs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from echo import Echo
from engine_runs import COLUMNS, FailingAt, bytes_of, run

from textpriv.corpus import run as corpus
from textpriv.engines.frames import frame_statement
from textpriv.errors import CorpusError

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="Spark needs a Java runtime, and there is no java here"
)
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark_job.py"
# So short a run is over before the second compiler, or several threads that collect garbage, would pay.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@pytest.fixture(scope="module", autouse=True)
def _short_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", JAVA)
        patch.setenv("SPARK_LAUNCHER_OPTS", JAVA)
        yield


@pytest.fixture(scope="module")
def spark():
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from pyspark import SparkContext, cloudpickle

    from textpriv.engines.spark import session

    cloudpickle.register_pickle_by_value(engine_runs)
    with session("local[2,4]") as spark:
        yield spark
    cloudpickle.unregister_pickle_by_value(engine_runs)
    # Beside a thread that stays no pool of workers is copied: each worker of every later test would begin from nothing.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(20)
    for thread in threading.enumerate():
        if type(thread).__module__ == "py4j.clientserver":
            thread.join(20)


@pytest.mark.slow
def test_spark_releases_the_same_bytes_also_when_a_task_is_killed(
    spark, tmp_path, shards, settings, key, expected, killed_once
):
    made = run(tmp_path / "out", shards, settings, key, engine="spark", workers=2)
    assert killed_once.exists()
    assert bytes_of(made) == expected


@pytest.mark.parametrize("extension", ["jsonl", "csv", "parquet"])
def test_spark_reads_a_private_folder_and_its_partitions(spark, tmp_path, extension):
    for year in (2025, 2026):
        path = tmp_path / "in" / f"year={year}" / f"a.{extension}"
        path.parent.mkdir(parents=True)
        if extension == "parquet":
            pq.write_table(pa.table({"text": [f"text {year}"]}), path)
        else:
            lines = {"jsonl": f'{{"text": "text {year}"}}\n', "csv": f"text\ntext {year}\n"}
            path.write_text(lines[extension])
    corpus.privatize_corpus(tmp_path / "in", tmp_path / "out", Echo())
    options = {"header": True} if extension == "csv" else {}
    kind = {"jsonl": "json"}.get(extension, extension)
    rows = spark.read.format(kind).options(**options).load(str(tmp_path / "out")).collect()
    assert sorted((row.text, int(row.year)) for row in rows) == [
        ("[text 2025]", 2025),
        ("[text 2026]", 2026),
    ]


def test_a_run_that_spark_gave_up_is_continued_to_the_same_bytes(
    spark, tmp_path, shards, settings, key, expected, monkeypatch, capfd
):
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "make_file", FailingAt(place=40))
        with pytest.raises(CorpusError, match="continue with --resume") as error:
            run(tmp_path / "out", shards, settings, key, engine="spark", workers=2)
    assert not (tmp_path / "out").exists()
    assert "zanzibar" not in str(error.value) + capfd.readouterr().err
    made = run(tmp_path / "out", shards, settings, key, resume=True)
    assert bytes_of(made) == expected


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
    some = spark.createDataFrame([("a", "bana"), ("b", None)], "id string, text string")
    stated = frame_statement(settings.build().statement, some, document_column="id")
    assert "which records have no text: null texts stay null" in stated.not_protected


def test_a_stream_that_is_written_batch_by_batch_gets_the_same_texts(
    spark, tmp_path, shards, settings, private
):
    from textpriv.engines.spark import privatize_dataframe

    def release(batch, number):
        done = privatize_dataframe(batch, settings, document_column="id")
        done.write.mode("append").parquet(str(tmp_path / "out"))

    schema = "id string, text string, stars long"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(shards))
    writer = stream.writeStream.foreachBatch(release).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(60)
    assert len(query.recentProgress) == 2
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(rows) == len(private)
    assert {row.id: row.text for row in rows} == private


def test_spark_releases_two_columns_as_this_process_does(
    spark, tmp_path, two_columns, settings, key
):
    from textpriv.engines.spark import privatize_dataframe

    table, folder, private = two_columns
    options = {"text_column": COLUMNS, "document_column": "id", "engine": "spark"}
    made = run(tmp_path / "out", folder / "raw", settings, key, **options)
    assert bytes_of(made) == bytes_of(folder / "out")
    frame = spark.createDataFrame(
        list(zip(*table.to_pydict().values(), strict=True)), table.schema.names
    )
    done = privatize_dataframe(frame, settings, document_column="id", text_column=COLUMNS)
    rows = [row.asDict() for row in done.select("id", *COLUMNS).collect()]
    assert {row["id"]: row for row in rows} == private


def test_every_mechanism_comes_out_of_spark_as_of_this_process(spark, table, other):
    from textpriv.engines.spark import privatize_dataframe

    settings, private = other
    columns = table.select(["id", "text"]).to_pydict().values()
    frame = spark.createDataFrame(list(zip(*columns, strict=True)), "id string, text string")
    done = privatize_dataframe(frame.repartition(2), settings, document_column="id")
    assert {row.id: row.text for row in done.collect()} == private


def test_typed_spans_come_out_of_spark_as_of_this_process(spark, typed):
    from textpriv.engines.spark import privatize_dataframe

    table, settings, private = typed
    columns = table.to_pydict().values()
    frame = spark.createDataFrame(list(zip(*columns, strict=True)), table.schema.names)
    done = privatize_dataframe(frame, settings, document_column="id", author_column="who")
    assert {row.id: row.text for row in done.collect()} == private


def test_labels_in_a_column_come_out_of_spark_as_of_this_process(spark, labelled):
    from textpriv.engines.spark import privatize_dataframe

    table, settings, rows = labelled
    columns = table.to_pydict().values()
    spans = "array<struct<start: bigint, end: bigint, label: string>>"
    schema = f"id string, who string, text string, spans {spans}"
    frame = spark.createDataFrame(list(zip(*columns, strict=True)), schema)
    named = {"document_column": "id", "author_column": "who", "labels_column": "spans"}
    done = privatize_dataframe(frame, settings, **named)
    assert sorted((row.asDict() for row in done.collect()), key=str) == sorted(rows, key=str)


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


def test_the_example_of_a_job_runs_and_prints(spark, demo_index, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, str(demo_index)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "\n2 " in capsys.readouterr().out


# Without the session of the others: a process of its own starts one, and is killed.


@pytest.mark.slow
def test_a_run_whose_driver_was_killed_is_continued_to_the_same_bytes(
    tmp_path, shards, index, settings, key, expected
):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    made = engine_runs.a_killed_driver_is_continued(
        "spark", tmp_path / "out", shards, index, key, settings
    )
    assert bytes_of(made) == expected
