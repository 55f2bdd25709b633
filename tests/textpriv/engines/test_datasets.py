"""Datasets and their splits: one corpus, and a cache in which results are found by all that decides them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from textpriv.engines.batch import BatchRelease
from textpriv.engines.settings import Columns
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

datasets = pytest.importorskip("datasets")

from textpriv.engines import datasets as engine  # noqa: E402
from textpriv.engines.datasets import privatize_dataset  # noqa: E402

COLUMNS = ["text", "subject"]


@pytest.fixture
def small(table) -> pa.Table:
    table = table.slice(0, 12)
    return table.append_column("subject", table["text"])


def split(table: pa.Table, kind: str):
    parts = {"train": datasets.Dataset(table.slice(0, 7)), "test": datasets.Dataset(table.slice(7))}
    if kind == "map":
        return datasets.DatasetDict(parts)
    return datasets.IterableDatasetDict(
        {name: part.to_iterable_dataset() for name, part in parts.items()}
    )


@pytest.mark.parametrize("document", ["id", None], ids=["names", "numbers"])
def test_splits_are_one_corpus(small, settings, document):
    options = {"text_column": COLUMNS, "document_column": document}
    whole = privatize_dataset(datasets.Dataset(small), settings, **options).to_list()
    for kind in ("map", "stream"):
        given = split(small, kind)
        made = privatize_dataset(given, settings, **options)
        assert type(made) is type(given)
        assert {name: list(part) for name, part in made.items()} == {
            "train": whole[:7],
            "test": whole[7:],
        }


def test_a_name_in_two_splits_is_refused(small, settings):
    twice = pa.concat_tables([small.slice(0, 7), small.slice(0, 2)])
    for kind in ("map", "stream"):
        with pytest.raises(CorpusError, match="row 8: a document before it has the same name"):
            privatize_dataset(split(twice, kind), settings, document_column="id")


@pytest.fixture
def stored(small, tmp_path):
    """A dataset on the disk, whose results go to a cache."""
    datasets.Dataset(small).save_to_disk(str(tmp_path / "data"))
    return datasets.load_from_disk(str(tmp_path / "data"))


def test_the_same_release_is_found_in_the_cache_and_no_other(stored, settings, monkeypatch):
    other_key = replace(settings, run_key=bytes(32))
    changed = [
        replace(settings, options={"epsilon": 5.0}),
        replace(settings, policy={"number": "mask"}),
        replace(settings, seed=1),
        other_key,
    ]
    calls = [(each, {}) for each in (settings, *changed)]
    calls += [(settings, {"text_column": COLUMNS}), (settings, {"document_column": "id"})]
    first = [privatize_dataset(stored, each, **options) for each, options in calls]
    files = [made.cache_files[0]["filename"] for made in first]
    assert len(set(files)) == len(files)
    assert len({str(made["text"][:]) for made in first[:5]}) == 5
    for each in (settings, other_key):
        assert each.run_key.hex() not in "".join(files)
    monkeypatch.setattr(BatchRelease, "__call__", None)  # nothing is drawn again
    again = [privatize_dataset(stored, each, **options) for each, options in calls]
    assert [made.to_list() for made in again] == [made.to_list() for made in first]


def test_two_sets_of_detectors_share_no_cache(stored, settings):
    first, second = (
        engine._fingerprint(stored, replace(settings, detect=detect), Columns(), {}, b"")
        for detect in ((), ("numbers",))
    )
    assert first != second


def test_the_cache_goes_by_what_lies_at_a_path_and_not_by_the_path(stored, settings, tmp_path):
    sent = replace(settings, run_key=b"", key_file=str(tmp_path / "run.key"))
    made = []
    for secret in (settings.run_key, bytes(32)):
        Path(sent.key_file).unlink(missing_ok=True)
        RunKey(Path(sent.key_file), secret, fresh=True).keep()
        made.append(privatize_dataset(stored, sent))
    assert made[0]["text"][:] != made[1]["text"][:]
    assert made[0]["text"][:] == privatize_dataset(stored, settings)["text"][:]
    assert os.path.samefile(
        made[0].cache_files[0]["filename"],
        privatize_dataset(stored, settings).cache_files[0]["filename"],
    )


def test_labels_in_a_column_come_out_of_a_dataset_as_of_this_process(labelled):
    table, settings, rows = labelled
    named = {"document_column": "id", "author_column": "who", "labels_column": "spans"}
    assert privatize_dataset(datasets.Dataset(table), settings, **named).to_list() == rows
    stream = datasets.Dataset(table).to_iterable_dataset()
    assert list(privatize_dataset(stream, settings, **named)) == rows
