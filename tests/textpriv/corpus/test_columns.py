"""Columns: texts are released, names identify, others pass by rule; nulls and bad names are what the options say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from echo import Echo
from small_corpora import read, rows, run, write

from textpriv.corpus import ColumnRule, PrivatizerSettings, privatize_corpus, read_records
from textpriv.errors import CorpusError

SECRET = "zanzibar"
KINDS = ["jsonl", "csv", "tsv", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_column_comes_out_as_if_it_were_the_only_one(index, tmp_path, kind):
    given = [{**row, "body": row["text"][::-1]} for row in rows(11)]
    source = write(tmp_path / f"in.{kind}", given)
    options = {"key": tmp_path / "key", "part_records": 4}
    both = tmp_path / f"both.{kind}"
    run(index, source, both, text_column=["text", "body"], **options)
    for name in ("text", "body"):
        run(index, source, tmp_path / f"{name}.{kind}", text_column=name, **options)
        alone = read(tmp_path / f"{name}.{kind}")
        assert [row[name] for row in read(both)] == [row[name] for row in alone]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (ColumnRule(), ["id", "text", "email"]),
        (ColumnRule(keep=("i*",)), ["id", "text"]),
        (ColumnRule(drop=("*mail",)), ["id", "text"]),
        (ColumnRule(drop=("*",)), ["text"]),
    ],
)
def test_other_columns_pass_or_are_dropped_by_rule(tmp_path, rule, names, kind):
    source = write(tmp_path / f"a.{kind}", [{"id": "1", "text": "one", "email": "a@b"}] * 3)
    told = []
    target = tmp_path / f"b.{kind}"
    report = privatize_corpus(source, target, Echo(), columns=rule, on_unprotected=told.append)
    assert all(list(row) == names for row in read(target))
    others = tuple(name for name in names if name != "text")
    assert report.unprotected == others
    assert told == ([others] if others else [])
    if "email" not in names:
        assert b"email" not in target.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", [ColumnRule(drop=("emial", "i?")), ColumnRule(keep=("emial",))])
def test_a_rule_that_matches_no_column_leaves_no_output(index, tmp_path, rule, kind):
    source = write(tmp_path / f"a.{kind}", rows(9))
    target, options = tmp_path / f"b.{kind}", {"key": tmp_path / "key", "part_records": 2}
    with pytest.raises(CorpusError, match=r"no column matches 'emial'.* id, text"):
        run(index, source, target, columns=rule, **options)
    assert sorted(each.name for each in tmp_path.iterdir()) == [source.name]
    run(index, source, target, columns=ColumnRule(drop=("i?",)), **options)


def test_a_mistyped_rule_stops_a_stream_before_it_writes(tmp_path, capfdbinary):
    source = write(tmp_path / "a.jsonl", rows(9))
    with pytest.raises(CorpusError, match="no column matches 'emial'"):
        privatize_corpus(source, "-", Echo(), columns=ColumnRule(drop=("emial",)))
    assert capfdbinary.readouterr().out == b""


def test_a_rule_may_name_the_text_or_a_late_column(tmp_path):
    source = write(tmp_path / "a.jsonl", [*rows(1005), {"text": "one", "email": SECRET}])
    rule = ColumnRule(keep=("text",), drop=("*", "email"))
    privatize_corpus(source, tmp_path / "b.jsonl", Echo(), columns=rule)
    assert SECRET not in (tmp_path / "b.jsonl").read_text()


def test_an_added_shard_may_lack_a_dropped_column(index, tmp_path):
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw" / "a.jsonl", [{"id": "1", "text": "bana", "email": SECRET}])
    options = {"document_column": "id", "key": tmp_path / "key", "rotates": True}
    options |= {"columns": ColumnRule(drop=("email",)), "resume": True}
    run(index, tmp_path / "raw", tmp_path / "out", **options)
    (tmp_path / "raw" / "a.jsonl").unlink()
    write(tmp_path / "raw" / "b.jsonl", [{"id": "2", "text": "dena"}])
    report = run(index, tmp_path / "raw", tmp_path / "out", **options)
    assert report.documents == 2


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_late_column_ends_the_run_unless_it_is_named(index, tmp_path, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    given = [{"text": "bana", "a": 1}] * 1005
    given[999] = {**given[0], "b": 1}
    given[1003] = {**given[0], "email": SECRET}
    source = write(tmp_path / "a.jsonl", given)
    told = []
    with pytest.raises(CorpusError, match="record 1004: the column 'email' is new") as error:
        run(
            index, source, tmp_path / "b.jsonl", engine=engine, batch_size=10,
            part_records=500, on_unprotected=told.append,
        )  # fmt: skip
    assert SECRET not in str(error.value)
    assert told == [("a",), ("b",)]
    if engine == "ray":
        return
    for n, rule in enumerate([ColumnRule(keep=("*",)), ColumnRule(drop=("email",))]):
        target = tmp_path / f"{n}.jsonl"
        report = privatize_corpus(source, target, Echo(), columns=rule)
        assert ("email" in report.unprotected) == (n < 1)


# Nulls


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_null_text_is_kept_and_counted(tmp_path, kind):
    source = write(tmp_path / f"a.{kind}", [{"text": "one"}, {"text": None}, {"text": "two"}])
    target = tmp_path / f"b.{kind}"
    report = privatize_corpus(source, target, Echo())
    assert [row["text"] for row in read(target)] == ["[one]", None, "[two]"]
    assert (report.nulls, report.skipped) == (1, {})
    assert any("which records have no text: 1 null" in line for line in report.besides)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_null_text_that_is_only_read_is_a_bad_record(tmp_path, kind):
    source = write(tmp_path / f"a.{kind}", [{"text": "one"}, {"text": None}])
    with pytest.raises(CorpusError, match=r"2.*found none"):
        list(read_records(source))


def test_nulls_of_one_of_two_columns_leave_the_others_where_they_are(index, tmp_path):
    given = [{"text": "bana", "body": None}, {"text": None, "body": "dena"}]
    source = write(tmp_path / "a.jsonl", given)
    run(
        index, source, tmp_path / "b.jsonl", text_column=["text", "body"], epsilon=1e4, prior="zipf"
    )
    assert read(tmp_path / "b.jsonl") == given


# Names


@pytest.mark.parametrize("value", [None, "", True, 1.5, [1]])
def test_a_record_without_a_name_is_a_bad_one(tmp_path, value):
    source = write(tmp_path / "a.jsonl", [{"id": 1, "text": "one"}, {"id": value, "text": "x"}])
    target = tmp_path / "b.jsonl"
    report = privatize_corpus(source, target, Echo(), document_column="id", on_error="skip")
    assert (report.documents, report.skipped) == (1, {"missing_name": 1})


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_repeated_name_goes_to_on_error(index, tmp_path, kind, workers):
    given = [{"id": name, "text": "bana"} for name in (SECRET, "b", SECRET, "c")]
    source = write(tmp_path / f"a.{kind}", given)
    target = tmp_path / f"b.{kind}"
    options = {"document_column": "id", "workers": workers, "batch_size": 1, "part_records": 2}
    with pytest.raises(
        CorpusError, match=r"record 3\)?: a document before it has the same"
    ) as error:
        run(index, source, target, **options)
    assert SECRET not in str(error.value)
    report = run(index, source, target, on_error="quarantine", overwrite=True, **options)
    assert report.skipped == {"repeated_name": 1}
    assert [row["id"] for row in read(target)] == [SECRET, "b", "c"]
    (aside,) = read(Path(report.quarantine))
    assert (aside["record"], aside["reason"]) == (3, "repeated_name")
    assert SECRET in aside["raw"]


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_an_engine_leaves_out_a_repeated_name_as_told(index, tmp_path, engine, monkeypatch):
    def each(tasks, work, **_):
        yield from map(work, tasks)

    monkeypatch.setattr(f"textpriv.engines.{engine}.each", each)
    given = [{"id": name, "text": "bana"} for name in ("a", "b", "a", "c")]
    source, target = write(tmp_path / "a.jsonl", given), tmp_path / "b.jsonl"
    options = {"document_column": "id", "on_error": "skip", "engine": engine}
    report = run(index, source, target, key=tmp_path / "key", part_records=2, **options)
    assert report.skipped == {"repeated_name": 1}
    assert [row["id"] for row in read(target)] == ["a", "b", "c"]


def test_a_text_cannot_be_its_own_name(tmp_path):
    source = write(tmp_path / "a.jsonl", rows(1))
    with pytest.raises(CorpusError, match="cannot name documents"):
        privatize_corpus(source, tmp_path / "b.jsonl", Echo(), document_column="text")


def test_a_ledger_counts_versions_of_one_document(index, tmp_path):
    given = [{"id": "a", "text": "bana"}, {"id": "a", "text": "bana dene"}]
    source = write(tmp_path / "a.jsonl", given)
    settings = PrivatizerSettings(
        str(index), options={"epsilon": 1.0}, ledger=str(tmp_path / "ledger")
    )
    private = settings.build()
    privatize_corpus(source, tmp_path / "b.jsonl", private, document_column="id")
    assert private.ledger.spent(document="a").releases == 2


# Folders


@pytest.mark.parametrize("kind", ["formats", "nothing", "link", "_delta_log"])
def test_a_folder_that_is_no_corpus_is_refused(tmp_path, kind):
    raw = tmp_path / "raw"
    raw.mkdir()
    if kind != "nothing":
        write(raw / "a.jsonl", rows(1))
    if kind == "formats":
        write(raw / "b.csv", rows(1))
    elif kind == "link":
        (tmp_path / "other").mkdir()
        (raw / "more").symlink_to(tmp_path / "other")
    elif kind == "_delta_log":
        (raw / kind).mkdir()
    with pytest.raises(CorpusError, match=r"formats|no files|links are not|with a log"):
        privatize_corpus(raw, tmp_path / "out", Echo())


def test_a_parquet_file_keeps_nothing_beside_its_columns(tmp_path):
    table = pa.table({"text": ["one"]}).replace_schema_metadata({"pandas": SECRET, SECRET: "x"})
    pq.write_table(table, tmp_path / "a.parquet")
    privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", Echo())
    assert SECRET.encode() not in (tmp_path / "b.parquet").read_bytes()
