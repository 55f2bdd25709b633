"""Tables in memory: type in, type out, and one key gives the same bytes wherever it is used."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_runs import run

import textpriv
from textpriv.engines import datasets, spark
from textpriv.engines.batch import release_table
from textpriv.engines.columns import Columns
from textpriv.engines.frames import frame_statement
from textpriv.errors import CorpusError, MechanismError, TextprivError
from textpriv.settings import PrivatizerSettings

pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
NULLS = "which records have no text: null texts stay null"
duckdb = pytest.importorskip("duckdb")
FRAMES = {"pandas": pa.Table.to_pandas, "polars": polars.from_arrow}
TABLES = {"pyarrow": lambda table: table, "duckdb": duckdb.from_arrow}


def _corpus(table, settings, folder, key):
    (folder / "raw").mkdir()
    pq.write_table(table, folder / "raw" / "a.parquet")
    made = run(folder / "out", folder / "raw", settings, key, document_column="id")
    return pq.read_table(made / "a.parquet").to_pydict()


def _framed(kind, table, settings):
    frame = {**FRAMES, **TABLES}[kind](table)
    return textpriv.privatize_frame(frame, settings=settings, document_column="id")


# What Spark and Ray are given by themselves is in their own tests: here is the function that they map.
TABLE = {
    "pandas": lambda t, s, *_: _framed("pandas", t, s).to_dict("list"),
    "polars": lambda t, s, *_: _framed("polars", t, s).to_dict(as_series=False),
    "pyarrow": lambda t, s, *_: _framed("pyarrow", t, s).to_pydict(),
    "duckdb": lambda t, s, *_: _framed("duckdb", t, s).to_arrow_table().to_pydict(),
    "spark": lambda t, s, *_: pa.Table.from_batches(
        spark._released(iter(t.to_batches()), s, Columns("text", "id"))
    ).to_pydict(),
    "ray": lambda t, s, *_: release_table(t, s, Columns("text", "id")).to_pydict(),
    "datasets": lambda t, s, *_: datasets._released(
        t, list(range(len(t))), s, Columns("text", "id"), {}
    ).to_pydict(),
    "files": _corpus,
}


@pytest.mark.parametrize("engine", TABLE)
def test_one_key_gives_the_same_bytes_in_every_engine(
    engine, table, settings, private, tmp_path, key
):
    made = TABLE[engine](table, settings, tmp_path, key)
    assert dict(zip(made["id"], made["text"], strict=True)) == private
    assert made["stars"] == table["stars"].to_pylist()


@pytest.mark.parametrize("kind", FRAMES)
def test_documents_without_names_are_those_of_a_dataset(kind, table, settings):
    hub = pytest.importorskip("datasets")
    expected = datasets.privatize_dataset(hub.Dataset(table), settings)["text"][:]
    given = FRAMES[kind](table)
    assert list(textpriv.privatize_frame(given, settings=settings)["text"]) == expected
    series = textpriv.privatize_frame(given["text"].rename("body"), settings=settings)
    assert type(series) is type(given["text"])
    assert (series.name, series.to_list()) == ("body", expected)


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_a_frame_keeps_its_index_its_columns_and_itself(dtype, settings):
    words = pandas.Series(["baba lota", "dene"], index=[7, 7]).astype(dtype)
    given = pandas.DataFrame({"stars": [1, 2], "text": words}, index=[7, 7])
    before = given.copy(deep=True)
    made = textpriv.privatize_frame(given, settings=settings)
    pandas.testing.assert_frame_equal(given, before)
    pandas.testing.assert_frame_equal(given[["stars"]], made[["stars"]])
    assert list(made.columns) == ["stars", "text"]
    assert not made["text"].isna().any()
    if dtype != "category":
        assert made["text"].dtype == given["text"].dtype


@pytest.mark.parametrize("kind", FRAMES)
def test_what_cannot_be_released_is_named_by_its_row(kind, settings):
    module = {"pandas": pandas, "polars": polars}[kind]
    frame = module.DataFrame({"id": ["a", "a"], "text": ["baba", "lota"], "n": [1, 2]})
    with pytest.raises(TextprivError, match="row 1: expected a text"):
        textpriv.privatize_frame(frame, settings=settings, text_column="n")
    frame = module.DataFrame({"id": ["a", "a"], "text": ["baba", "lota"]})
    with pytest.raises(CorpusError, match="row 2: a document before it"):
        textpriv.privatize_frame(frame, settings=settings, document_column="id")
    frame = module.DataFrame({"id": ["a", ""], "text": ["baba", "lota"]})
    with pytest.raises(TextprivError, match="row 2: expected a name"):
        textpriv.privatize_frame(frame, settings=settings, document_column="id")
    with pytest.raises(CorpusError, match="'body', found 0"):
        textpriv.privatize_frame(frame, settings=settings, text_column="body")


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_without_rows_comes_back_with_its_types(kind, table, settings):
    frame = FRAMES[kind](table)[:0]
    private = textpriv.privatize_frame(frame, settings=settings, document_column="id")
    assert list(private.dtypes) == list(frame.dtypes)


def test_what_pandas_keeps_beside_a_frame_does_not_pass(settings):
    frame = pandas.DataFrame({"text": ["one two"]})
    frame.attrs = {"source": ["one two"]}
    for given in (frame, frame["text"]):
        assert textpriv.privatize_frame(given, settings=settings).attrs == {}
    assert frame.attrs == {"source": ["one two"]}


def test_a_recovery_of_a_frame_gives_the_epsilon_that_the_library_finds(monkeypatch):
    made = []
    build = PrivatizerSettings.build
    monkeypatch.setattr(
        PrivatizerSettings, "build", lambda self: made.append(build(self)) or made[-1]
    )
    textpriv.privatize_frame(pandas.DataFrame({"text": ["a film"]}), recovery=0.1)
    (mechanism,) = (each.mechanism for each in made)
    assert (type(mechanism), mechanism.prior) == (textpriv.TEM, "uniform")
    assert mechanism.epsilon == textpriv.epsilon_for(textpriv.Index.builtin("en"), recovery=0.1)


def test_a_frame_needs_one_epsilon_and_is_a_frame(settings):
    frame = pandas.DataFrame({"text": ["baba"]})
    for options in ({}, {"epsilon": 1.0, "settings": settings}, {"epsilon": 1.0, "recovery": 0.1}):
        with pytest.raises(MechanismError, match="epsilon"):
            textpriv.privatize_frame(frame, **options)
    for given in ([["baba"]], polars.LazyFrame({"text": ["baba"]})):
        with pytest.raises(CorpusError, match="DataFrame or Series"):
            textpriv.privatize_frame(given, settings=settings)


SHAPED = {
    "default": (lambda frame: frame, ["other columns, released as written: id, stars"]),
    "index": (
        lambda frame: frame.set_index("id"),
        [
            "other columns, released as written: stars",
            "what a table has besides columns, released as it is: its index id",
        ],
    ),
    "levels": (
        lambda frame: frame.set_index(["id", "stars"]),
        ["what a table has besides columns, released as it is: its index id, stars"],
    ),
    "rows by date": (
        lambda frame: frame[["text"]].set_axis(pandas.date_range("2026", periods=len(frame))),
        ["what a table has besides columns, released as it is: its index"],
    ),
    "cut out": (
        lambda frame: frame[["text"]].iloc[3:],
        ["what a table has besides columns, released as it is: its index"],
    ),
    "named rows": (
        lambda frame: frame[["text"]].rename_axis("ward 3"),
        ["what a table has besides columns, released as it is: its index ward 3"],
    ),
    "named columns": (
        lambda frame: frame[["text"]].rename_axis("ward 3", axis=1),
        ["what a table has besides columns, released as it is: the names of its levels of columns"],
    ),
    "series": (lambda frame: frame["text"].rename(None), []),
    "named series": (
        lambda frame: frame.set_index("id")["text"].rename("ward 3"),
        ["what a table has besides columns, released as it is: its name, its index id"],
    ),
}


@pytest.mark.parametrize("shape", SHAPED)
def test_the_statement_of_a_frame_names_all_that_passes(shape, table, settings):
    make, named = SHAPED[shape]
    frame = make(table.to_pandas())
    private, statement = (
        textpriv.privatize_frame(frame, settings=settings),
        settings.build().statement,
    )
    pandas.testing.assert_index_equal(private.index, frame.index)
    if hasattr(frame, "columns"):
        pandas.testing.assert_index_equal(private.columns, frame.columns)
    else:
        assert private.name == frame.name
    stated = frame_statement(statement, frame)
    assert {*stated.not_protected} == {*statement.not_protected, *named, NULLS}
    assert frame_statement(statement, private) == stated


def test_the_statement_of_a_frame_of_polars_names_its_columns_and_the_name_of_a_series(
    table, settings
):
    frame, statement = polars.from_arrow(table), settings.build().statement
    stated = frame_statement(statement, frame, labels_column="stars")
    assert "other columns, released as written: id" in stated.not_protected
    series = frame_statement(statement, frame["text"])
    assert series.not_protected[-1].endswith(": its name")
    unnamed = frame_statement(statement, frame["text"].rename(""))
    assert unnamed == statement.extended(not_protected=(NULLS,))


def test_categories_of_rows_that_are_gone_are_left_out(settings):
    index = pandas.CategoricalIndex(["r", "s"], name="ward")
    columns = {"text": ["good", "bad"], "name": ["ann", "bob"]}
    frame = pandas.DataFrame(columns, index, dtype="category")
    private = textpriv.privatize_frame(frame.iloc[:1], settings=settings)
    assert list(private["name"].cat.categories) == ["ann"]
    assert list(private.index.categories) == ["r"]
    assert list(frame["name"].cat.categories) == ["ann", "bob"]


def test_levels_of_an_index_that_are_gone_are_left_out(settings):
    index = pandas.MultiIndex.from_tuples([("ann", 1), ("bob", 2)])
    frame = pandas.DataFrame({"text": ["good", "bad"]}, index)
    private = textpriv.privatize_frame(frame.iloc[:1], settings=settings)
    assert [list(each) for each in private.index.levels] == [["ann"], [1]]


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_comes_back_as_one_of_its_kind(kind, table, settings):
    given = TABLES[kind](table)
    made = textpriv.privatize_frame(given, settings=settings)
    assert type(made) is type(given)
    frame = textpriv.privatize_frame(table.to_pandas(), settings=settings)
    made = made.to_arrow_table() if kind == "duckdb" else made
    assert made["text"].to_pylist() == list(frame["text"])
    assert made["stars"].to_pylist() == list(frame["stars"])


@pytest.mark.parametrize("kind", TABLES)
def test_the_statement_of_a_table_names_its_columns_and_nulls(kind, settings):
    given = TABLES[kind](pa.table({"stars": [1, 2], "text": ["baba", None]}))
    lines = frame_statement(settings.build().statement, given).not_protected
    assert NULLS in lines
    assert any("stars" in line for line in lines)
