"""Datasets and their splits: one corpus, and no result from the cache of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

datasets = pytest.importorskip("datasets")

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


def test_no_release_is_taken_from_the_cache_of_another(stored, settings, tmp_path):
    """One path has another key in turn, as ``datasets`` goes by the name of what it maps."""
    sent = replace(settings, run_key=b"", key_file=str(tmp_path / "run.key"))
    made = []
    for secret in (settings.run_key, bytes(32)):
        Path(sent.key_file).unlink(missing_ok=True)
        RunKey(Path(sent.key_file), secret, fresh=True).keep()
        made.append(privatize_dataset(stored, sent))
    assert made[0]["text"][:] != made[1]["text"][:]
    assert made[0]["text"][:] == privatize_dataset(stored, settings)["text"][:]
    files = [each.cache_files[0]["filename"] for each in made]
    assert files[0] != files[1]
    assert settings.run_key.hex() not in "".join(files)


def test_labels_in_a_column_come_out_of_a_dataset_as_of_this_process(labelled):
    table, settings, rows = labelled
    named = {"document_column": "id", "author_column": "who", "labels_column": "spans"}
    assert privatize_dataset(datasets.Dataset(table), settings, **named).to_list() == rows
    stream = datasets.Dataset(table).to_iterable_dataset()
    assert list(privatize_dataset(stream, settings, **named)) == rows
