"""What is written can be read by whatever reads files and folders: delimiters, partitions, nothing but records."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from echo import Echo

from textpriv.corpus import privatize_corpus
from textpriv.errors import CorpusError

KINDS = {"jsonl": "json", "csv": "csv", "tsv": "csv", "parquet": "parquet"}
ROWS = [("[text 2025]", 0, 2025), ("[text 2026]", 1, 2026)]


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(delimiter=delimiter))


@pytest.fixture(scope="module", params=list(KINDS))
def private(request, tmp_path_factory) -> Path:
    """A private folder of one format, partitioned by year; its name is that of the format."""
    folder = tmp_path_factory.mktemp("corpus")
    for year in (2025, 2026):
        path = folder / "in" / f"year={year}" / f"a.{request.param}"
        write(path, [{"text": f"text {year}", "stars": year % 5}])
    privatize_corpus(folder / "in", folder / request.param, Echo())
    return folder / request.param


def test_pyarrow_reads_a_private_folder_and_its_partitions(private):
    kind: object = KINDS[private.name]
    if private.name == "tsv":
        kind = ds.CsvFileFormat(parse_options=pyarrow.csv.ParseOptions(delimiter="\t"))
    table = ds.dataset(private, format=kind, partitioning="hive").to_table()
    found = [(row["text"], row["stars"], row["year"]) for row in table.to_pylist()]
    assert sorted(found) == ROWS


def test_datasets_reads_a_private_folder(private, tmp_path):
    options = {"sep": "\t"} if private.name == "tsv" else {}
    kind, data = KINDS[private.name], str(private)
    rows = load_dataset(kind, data_dir=data, split="train", cache_dir=str(tmp_path), **options)
    assert sorted((row["text"], row["stars"]) for row in rows) == [row[:2] for row in ROWS]


def test_pandas_reads_a_private_folder_of_parquet_and_its_partitions(private):
    if private.name == "parquet":
        table = pd.read_parquet(private)
    else:  # pandas reads folders of Parquet only, and other files one by one
        options = {"jsonl": {"lines": True}, "tsv": {"sep": "\t"}}.get(private.name, {})
        reader = pd.read_json if private.name == "jsonl" else pd.read_csv
        files = sorted(path for path in private.rglob("*") if path.is_file())
        table = pd.concat(
            reader(path, **options).assign(year=path.parent.name[5:]) for path in files
        )
    found = zip(table.text, table.stars, table.year.astype(int), strict=True)
    assert sorted(found) == ROWS


def test_polars_reads_a_private_folder(private):
    scan = {
        "parquet": partial(pl.scan_parquet, hive_partitioning=True),
        "jsonl": pl.scan_ndjson,
        "csv": pl.scan_csv,
        "tsv": partial(pl.scan_csv, separator="\t"),
    }[private.name]
    table = scan(private).collect()
    columns = 3 if private.name == "parquet" else 2
    assert sorted(table.rows()) == [row[:columns] for row in ROWS]


def test_nothing_but_records_is_in_a_private_folder_and_its_manifest_stands_beside_it(private):
    names = {path.name for path in private.rglob("*") if path.is_file()}
    assert names == {f"a.{private.name}"}
    manifest = json.loads(private.with_name(private.name + ".manifest.json").read_text())
    assert [file["name"] for file in manifest["files"]] == [
        f"year={year}/a.{private.name}" for year in (2025, 2026)
    ]


def test_a_private_folder_can_be_private_once_more(private, tmp_path):
    report = privatize_corpus(private, tmp_path / "again", Echo())
    assert (report.documents, report.files) == (2, 2)


def test_a_manifest_of_an_earlier_version_is_no_record(tmp_path):
    write(tmp_path / "in" / "a.jsonl", [{"text": "one"}])
    (tmp_path / "in" / "manifest.json").write_text("{}")
    assert privatize_corpus(tmp_path / "in", tmp_path / "out", Echo()).files == 1


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_the_files_of_a_table_with_a_log_are_not_taken_for_its_rows(tmp_path, log):
    write(tmp_path / "in" / "a.parquet", [{"text": "deleted"}])
    (tmp_path / "in" / log).mkdir()
    with pytest.raises(CorpusError, match="rows that were deleted"):
        privatize_corpus(tmp_path / "in", tmp_path / "out", Echo())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_file_keeps_the_delimiter_that_its_header_shows(tmp_path, delimiter):
    rows = [["note", "text"], ['"a, b; c"', '"one, two; three"']]
    source = tmp_path / "a.csv"
    source.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    privatize_corpus(source, tmp_path / "b.csv", Echo())
    table = pd.read_csv(tmp_path / "b.csv", sep=delimiter)
    assert table.to_dict("records") == [{"note": "a, b; c", "text": "[one, two; three]"}]


def test_commas_come_first_where_a_header_could_be_read_in_two_ways(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("a;b,text\n1;2,one\n")
    privatize_corpus(source, tmp_path / "b.csv", Echo())
    assert (tmp_path / "b.csv").read_text() == "a;b,text\n1;2,[one]\n"


def test_tabs_alone_part_the_columns_of_a_tsv_file(tmp_path):
    (tmp_path / "a.tsv").write_text('label\ttext\n1,5\t"one\ttwo"\n')
    privatize_corpus(tmp_path / "a.tsv", tmp_path / "b.tsv", Echo())
    assert (tmp_path / "b.tsv").read_text() == 'label\ttext\n1,5\t"[one\ttwo]"\n'
    (tmp_path / "c.tsv").write_text("label,text\n1,one\n")
    with pytest.raises(CorpusError, match=r"line 1 .* and tabs between the columns"):
        privatize_corpus(tmp_path / "c.tsv", tmp_path / "d.tsv", Echo())


def test_an_error_in_a_row_names_its_line_whatever_the_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text("note;text\n1;one\n1;2;three\n")
    with pytest.raises(CorpusError, match=r"a\.csv, line 3 .*: expected 2 column"):
        privatize_corpus(tmp_path / "a.csv", tmp_path / "b.csv", Echo())
