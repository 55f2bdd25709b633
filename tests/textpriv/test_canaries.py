"""What passes is what the statement names: a mark in every place of an input, and a search for it in all that is written."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_indexes import saved

from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.engines.batch import BatchRelease, release_table
from textpriv.engines.columns import Columns
from textpriv.engines.frames import frame_statement
from textpriv.privatizer import CHANGED

WORDS = ["good", "bad", "film", "music"]
MARK = re.compile(rb"canary[a-z]+", re.IGNORECASE)
DOCUMENTS = "the number and order of documents, and of the tokens of each"
COLUMNS = "other columns, released as written: "
NULLS = "which records have no text: null texts stay null"
FORM = "the form of the files: the order and types of columns, delimiters and line endings"
LEFT_OUT = "how many bad records were left out, and for which reasons"
OWNERS = "what an option has kept beside the output, which is as private as the texts: "
FILES = "the names of files and folders, released as they are, and how many documents stand in each"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return PrivatizerSettings(
        str(saved(tmp_path_factory.mktemp("index"), WORDS)), options={"epsilon": 2.0}
    )


def marks(*paths: Path) -> set[str]:
    """The marks in all bytes below some paths, decompressed, and in the names of files."""
    found = b""
    for path in paths:
        for file in [path, *path.rglob("*")]:
            found += file.name.encode()
            if file.is_file():
                raw = file.read_bytes()
                found += gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
                if raw[:4] == b"PAR1":
                    table = pq.read_table(file)
                    found += (
                        repr(table.to_pylist()).encode()
                        + table.schema.to_string(
                            show_field_metadata=True, truncate_metadata=False
                        ).encode()
                    )
                    described = table.schema.serialize().to_pybytes()
                    found += described
    return {mark.decode().lower() for mark in MARK.findall(found)}


def field(name: str, kind: pa.DataType, mark: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": mark})


def table(texts: list[str | None], **columns: pa.Array) -> pa.Table:
    """With marks in all that stands beside columns, at every depth."""
    kinds = {
        "list": pa.list_(field("item", pa.int64(), "canarylist")),
        "struct": pa.struct([field("inner", pa.int64(), "canarystruct")]),
        "map": pa.map_(pa.string(), field("value", pa.int64(), "canarymap")),
    }
    rows = {"list": [1], "struct": {"inner": 1}, "map": [("a", 1)]}
    given = [pa.array(texts), *(pa.array([rows[name]] * len(texts), kinds[name]) for name in kinds)]
    fields = [
        field("text", pa.string(), "canarytext"),
        *(pa.field(*each) for each in kinds.items()),
    ]
    frame = pandas.DataFrame(
        {"text": texts}, index=pandas.RangeIndex(len(texts), name="canaryrange")
    )
    frame.columns.name = "canarylevel"
    frame.attrs = {"seen": "canaryattrs"}
    told = pa.Table.from_pandas(frame).schema.metadata
    features = {"text": {"dtype": "string", "_type": "Value", "id": "canaryfeature"}}
    described = {"info": {"features": features, "description": "canarydescription"}}
    schema = pa.schema(
        [*fields, *(pa.field(name, each.type) for name, each in columns.items())],
        {**told, "huggingface": json.dumps(described), "more": "canarymore"},
    )
    return pa.table([*given, *columns.values()], schema)


def dictionary(*values: str) -> pa.Array:
    """A dictionary in each record, which holds those of all of them."""
    each = pa.array(values).dictionary_encode()
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), each)


def written(folder: Path, kind: str, content: object) -> Path:
    path = folder / f"raw.{kind}"
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif kind.endswith(".gz"):
        with path.open("wb") as raw, gzip.GzipFile("canarynameingzip", "wb", 6, raw) as packed:
            packed.write(str(content).encode())
    else:
        path.write_bytes(str(content).encode())
    return path


# Format, content, marks that pass, and what the statement says of them.
PLACES = {
    "text": ("txt", "\ufeffgood canaryone film\r\n12 canarytwo", set(), []),
    "gzip": ("txt.gz", "good canaryone\n", set(), []),
    "twice": ("jsonl", '{"text":"canaryone","n":{"a":"good","a":"canaryb"}}\n', {"canaryb"}, ["n"]),
    "nested": (
        "jsonl",
        '{"text":"canaryone","a":{"canaryb":["\\u0063anaryc"]}}\n',
        {"canaryb"},  # the other one is copied as it is written
        ["a"],
    ),
    "semicolons": ("csv", "text;n\r\ncanaryone;canaryb\r\n", {"canaryb"}, ["n"]),
    "header of csv alone": ("csv", "text,canaryb\n", {"canaryb"}, ["canaryb"]),
    "header of tsv alone": ("tsv", "canaryb\ttext\n", {"canaryb"}, ["canaryb"]),
    "metadata": ("parquet", table(["canaryone"]), set(), ["list", "struct", "map"]),
    "no rows": (
        "parquet",
        table([], canaryb=pa.array([], pa.string())),
        {"canaryb"},
        ["list", "struct", "map", "canaryb"],
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", ["file", "folder"])
def test_of_an_input_passes_what_the_statement_names(place, form, settings, tmp_path, caplog):
    kind, content, passing, columns = PLACES[place]
    folder = tmp_path / "raw"
    folder.mkdir()
    source = written(folder, kind, content)
    if form == "folder":
        source = source.rename(folder / f"canaryfile.{kind}").parent
        passing = passing | {"canaryfile"}
    target = tmp_path / "made" / ("out" if form == "folder" else f"out.{kind}")
    target.parent.mkdir()
    privatizer = settings.build()
    with caplog.at_level("DEBUG"):
        report = privatize_corpus(source, target, privatizer)
    assert marks(target.parent) == passing
    assert not MARK.search(caplog.text.encode())
    stated = report.stated(privatizer.statement)
    named = [f"{COLUMNS}{', '.join(columns)}"] * bool(columns) + [FILES] * (form == "folder")
    named += [FORM] * (not kind.startswith("txt"))
    assert set(stated.not_protected) - set(privatizer.statement.not_protected) == set(named)
    assert DOCUMENTS in stated.not_protected
    if form == "folder":
        manifest = json.loads((tmp_path / "made" / "out.manifest.json").read_text())
        assert manifest["statement"] == stated.to_dict()


@pytest.mark.parametrize("on_error", ["skip", "quarantine"])
def test_of_records_that_are_left_out_their_number_passes_and_what_is_kept_of_them_is_named(
    settings, tmp_path, on_error
):
    content = table(["good", "bad\0"], kept=dictionary("fine", "canarybad"))
    target = tmp_path / "made" / "out.parquet"
    target.parent.mkdir()
    source, privatizer = written(tmp_path, "parquet", content), settings.build()
    report = privatize_corpus(source, target, privatizer, on_error=on_error)
    assert marks(target) == set()
    assert not pq.read_schema(target).metadata
    named = set(report.stated(privatizer.statement).not_protected)
    assert LEFT_OUT in named
    is_kept = on_error == "quarantine"
    assert (marks(target.parent) == {"canarybad"}) is is_kept
    assert (f"{OWNERS}bad records as they were" in named) is is_kept


def test_how_many_texts_differ_does_not_pass_by_the_type_of_categories(settings, tmp_path):
    texts = pa.array(["good film"] * 300).dictionary_encode()
    frame = pa.table({"text": texts.cast(pa.dictionary(pa.int8(), pa.string()))}).to_pandas()
    frame.to_parquet(tmp_path / "a.parquet")
    privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", settings.build())
    schema = pq.read_schema(tmp_path / "b.parquet")
    assert schema.field("text").type in (pa.string(), pa.large_string())
    assert not schema.metadata
    assert pandas.read_parquet(tmp_path / "b.parquet")["text"].str.split().str.len().eq(2).all()


def test_a_batch_is_released_without_metadata(settings):
    (batch,) = table(["canaryone"]).to_batches()
    done = BatchRelease(settings.build(), Columns())(batch, [(1,)])
    shown = done.schema.to_string(show_field_metadata=True) + repr(done.schema.metadata)
    assert not MARK.search((shown + repr(done.to_pylist())).encode())


def test_ray_releases_a_table_without_metadata(settings):
    given = table(["canaryone"], id=pa.array(["a"]), spans=pa.array(["[]"]))
    done = release_table(given, settings, Columns("text", "id"))
    assert not MARK.search(done.schema.serialize().to_pybytes())


def test_spark_is_given_a_schema_without_metadata():
    types = pytest.importorskip("pyspark.sql.types")
    from textpriv.engines.spark import _types_alone

    inner = types.StructType([types.StructField("a", types.LongType(), False, {"c": "canarya"})])
    nested = types.MapType(types.StringType(), types.ArrayType(inner, False), False)
    schema = types.StructType([types.StructField("text", nested, False, {"c": "canaryb"})])
    bare = _types_alone(schema)
    assert "canary" not in bare.json()
    assert bare.simpleString() == schema.simpleString()


def test_a_dataset_is_released_without_its_description_and_its_statement_names_splits(
    settings, tmp_path
):
    datasets = pytest.importorskip("datasets")
    from textpriv.engines.datasets import privatize_dataset

    features = datasets.Features({"text": datasets.Value("string", id="canaryfeature")})
    info = datasets.DatasetInfo("canarydescription", "canarycitation", features=features)
    raw = datasets.Dataset.from_dict({"text": ["good canaryone"]}, features, info)
    splits = datasets.DatasetDict({"canarysplit": raw})
    for given in (raw, raw.to_iterable_dataset(), splits):
        made = privatize_dataset(given, settings)
        if given is splits:
            made = made["canarysplit"]
        assert not MARK.search(repr(vars(made.info)).encode())
    made.save_to_disk(tmp_path / "made")
    assert marks(tmp_path / "made") == set()
    assert raw.info.description == "canarydescription"
    stated = frame_statement(settings.build().statement, splits)
    assert stated.not_protected[-1].endswith(
        "the names of its splits, and how many documents stand in each"
    )


def test_a_statement_of_any_table_names_its_columns(settings):
    """Spark has names in ``columns``, Ray a method of that name."""

    class Spark:
        columns = ("text", "id")

        def __getattr__(self, name):  # a column may have any name
            raise AttributeError(name)

    class Ray:
        def columns(self):
            return ["text", "id"]

    statement = settings.build().statement
    for frame in (Spark(), Ray()):
        stated = frame_statement(statement, frame)
        assert stated.not_protected == (*statement.not_protected, f"{COLUMNS}id", NULLS)
    assert {DOCUMENTS, CHANGED} <= set(statement.not_protected)
