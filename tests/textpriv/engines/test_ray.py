"""Ray releases the same bytes as this process, also when an actor or the driver is killed."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import engine_runs
import pyarrow as pa
import pytest
from engine_runs import COLUMNS, bytes_of, run

from textpriv.engines.frames import frame_statement
from textpriv.errors import CorpusError

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ray_job.py"


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray.data", reason="ray is not installed")
    from ray import cloudpickle

    from textpriv.engines.ray import cluster

    cloudpickle.register_pickle_by_value(engine_runs)
    with cluster(workers=2):
        yield
    cloudpickle.unregister_pickle_by_value(engine_runs)


def test_ray_releases_the_same_bytes_also_when_an_actor_is_killed(
    ray, tmp_path, shards, settings, key, expected, killed_once
):
    made = run(tmp_path / "out", shards, settings, key, engine="ray", workers=2)
    assert killed_once.exists()
    assert bytes_of(made) == expected


def test_a_ray_dataset_keeps_its_columns_and_gets_the_same_texts(
    ray, table, settings, key, private
):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    sent = replace(settings, run_key=b"", key_file=str(key.path))
    done = privatize_dataset(ray.data.from_arrow(table), sent, document_column="id")
    rows = done.map_batches(lambda batch: batch).take_all()
    assert {row["id"]: row["text"] for row in rows} == private
    assert sorted(row["stars"] for row in rows) == list(range(120))
    some = ray.data.from_items([{"id": "a", "text": "bana"}, {"id": "b", "text": None}])
    stated = frame_statement(settings.build().statement, some, document_column="id")
    assert "which records have no text: null texts stay null" in stated.not_protected


def test_ray_releases_two_columns_as_this_process_does(ray, tmp_path, two_columns, settings, key):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    table, folder, private = two_columns
    options = {"text_column": COLUMNS, "document_column": "id", "engine": "ray"}
    made = run(tmp_path / "out", folder / "raw", settings, key, **options)
    assert bytes_of(made) == bytes_of(folder / "out")
    dataset = ray.data.from_arrow(table.select(["id", *COLUMNS]))
    rows = privatize_dataset(
        dataset, settings, document_column="id", text_column=COLUMNS
    ).take_all()
    assert {row["id"]: row for row in rows} == private


def test_every_mechanism_comes_out_of_ray_as_of_this_process(ray, table, other):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    settings, private = other
    done = privatize_dataset(ray.data.from_arrow(table), settings, document_column="id")
    assert {row["id"]: row["text"] for row in done.take_all()} == private


def test_typed_spans_come_out_of_ray_as_of_this_process(ray, typed):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    table, settings, private = typed
    done = privatize_dataset(
        ray.data.from_arrow(table), settings, document_column="id", author_column="who"
    )
    assert {row["id"]: row["text"] for row in done.take_all()} == private


def test_labels_in_a_column_come_out_of_ray_as_of_this_process(ray, labelled):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    table, settings, rows = labelled
    named = {"document_column": "id", "author_column": "who", "labels_column": "spans"}
    done = privatize_dataset(ray.data.from_arrow(table), settings, **named)
    assert sorted(done.take_all(), key=str) == sorted(rows, key=str)


def test_a_ray_dataset_with_a_repeated_name_is_refused(ray, settings):
    import ray.data

    from textpriv.engines.ray import privatize_dataset

    dataset = ray.data.from_arrow(pa.table({"id": ["a", "b", "a"], "text": ["ba"] * 3}))
    with pytest.raises(CorpusError, match="row 3: a document before it has the same name"):
        privatize_dataset(dataset, settings, document_column="id")


def test_the_example_of_a_job_runs_and_prints(ray, demo_index, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, str(demo_index)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "\n2 " in capsys.readouterr().out


# Without the cluster of the others: a process of its own starts one, and is killed.


def test_a_run_whose_driver_was_killed_is_continued_to_the_same_bytes(
    tmp_path, shards, index, settings, key, expected
):
    pytest.importorskip("ray.data", reason="ray is not installed")
    made = engine_runs.a_killed_driver_is_continued(
        "ray", tmp_path / "out", shards, index, key, settings
    )
    assert bytes_of(made) == expected
