"""Parquet and folders of shards, columns that are dropped, records that are set aside; and what fuzzing has found."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from echo import Echo
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.corpus import ColumnRule, privatize_corpus, read_records, unnamed_key
from textpriv.corpus.formats import parquet
from textpriv.corpus.formats.parquet import _has_all_values
from textpriv.corpus.records import Cursor
from textpriv.errors import CorpusError

SECRET = "zanzibar"


def _write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _parquet(path: Path, columns: dict, **options) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def _texts(path: Path, **options) -> list[str]:
    return [text for batch in read_records(path, **options) for text in batch.texts]


# Parquet

EVERY_TYPE = {
    "id": pa.array([1, None, 3], pa.uint8()),
    "text": pa.array(["one", "two", "three"]),
    "when": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    "tags": pa.array([["a"], [], None]),
    "more": pa.array([{"x": 1}, None, {"x": 3}]),
    "kind": pa.array(["a", None, "a"]).dictionary_encode(),
    "raw": pa.array([b"\xff", b"", None]),
    "price": pa.array([None, "1.10", "2.00"]).cast(pa.decimal128(9, 2)),
}


def test_only_the_text_changes_in_parquet_whatever_the_other_columns_are(tmp_path):
    source = _parquet(tmp_path / "a.parquet", EVERY_TYPE)
    report = privatize_corpus(source, tmp_path / "b.parquet", Echo(), batch_size=2)
    read = pq.read_table(tmp_path / "b.parquet")
    before = pq.read_table(source)
    assert read.schema == before.schema
    assert read["text"].to_pylist() == ["[one]", "[two]", "[three]"]
    assert read.drop_columns("text").equals(before.drop_columns("text"))
    assert report.unprotected == ("id", "when", "tags", "more", "kind", "raw", "price")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["one", "two"], pa.large_string()),
        pa.array(["one", "two"]).dictionary_encode(),
        pa.array(["one", "two"], pa.string_view()),
    ],
    ids=["large", "dictionary", "view"],
)
def test_every_arrow_type_of_text_is_a_text(tmp_path, column):
    source = _parquet(tmp_path / "a.parquet", {"text": column, "n": [1, 2]}, row_group_size=1)
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), batch_size=1)
    assert pq.read_table(tmp_path / "b.parquet")["text"].to_pylist() == ["[one]", "[two]"]


def test_a_parquet_file_without_rows_keeps_its_columns(tmp_path):
    source = _parquet(tmp_path / "a.parquet", {"text": pa.array([], pa.string()), "n": []})
    report = privatize_corpus(source, tmp_path / "b.parquet", Echo())
    assert report.documents == 0
    assert pq.read_table(tmp_path / "b.parquet").schema == pq.read_table(source).schema


BAD_ROWS = {
    "wrong_type": pa.array(["one", None, "two"]),
    "null_byte": pa.array(["one", f"{SECRET}\0", "two"]),
    "too_large": pa.array(["one", SECRET * 20, "two"]),
    "encoding": pa.array([b"one", SECRET.encode() + b"\xff", b"two"]).cast(pa.string(), safe=False),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_is_named_by_its_number_and_never_quoted(tmp_path, reason):
    source = _parquet(tmp_path / "a.parquet", {"text": BAD_ROWS[reason]})
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: ") as error:
        _texts(source, max_text_bytes=100)
    assert SECRET not in str(error.value)
    reader = read_records(source, on_error="skip", max_text_bytes=100)
    assert [(b.positions, b.texts) for b in reader] == [([0, 2], ["one", "two"])]
    assert dict(reader.skipped) == {reason: 1}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"text": pa.array([1, 2])}, "wrong_type"),
        ({"text": pa.array([["a"], ["b"]])}, "wrong_type"),
        ({"text": pa.nulls(2)}, "wrong_type"),
        ({"body": pa.array(["a", "b"])}, "missing_text"),
    ],
)
def test_all_rows_are_bad_where_the_column_is_not_one_of_texts(tmp_path, columns, reason):
    source = _parquet(tmp_path / "a.parquet", columns)
    reader = read_records(source, on_error="skip")
    assert [batch.texts for batch in reader] == [[]]
    assert dict(reader.skipped) == {reason: 2}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"zanzibar"])
def test_what_is_no_parquet_is_told(tmp_path, content):
    with pytest.raises(CorpusError, match="expected a Parquet file") as error:
        _texts(_write(tmp_path / "a.parquet", content))
    assert SECRET not in str(error.value)


def test_a_compressed_parquet_file_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="Parquet compresses"):
        read_records(tmp_path / "a.parquet.gz")


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    parts=st.integers(1, 12),
    batches=st.integers(1, 6),
    group=st.integers(1, 5),
)
def test_the_bytes_of_parquet_do_not_depend_on_groups_batches_and_parts(
    tmp_path_factory, sizes, parts, batches, group
):
    folder = tmp_path_factory.mktemp("parquet")
    rows = sum(sizes)
    columns = {
        "text": [f"text {n}" for n in range(rows)],
        "kind": pa.array(["a" if n % 3 else "b" for n in range(rows)]).dictionary_encode(),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_GROUP_ROWS", 4)
        made = []
        for name, options in [
            ("a", {}),
            ("b", {"part_records": parts, "batch_size": batches}),
        ]:
            source = _parquet(folder / f"{name}.parquet", columns, row_group_size=group)
            privatize_corpus(source, folder / f"out-{name}.parquet", Echo(), **options)
            made.append((folder / f"out-{name}.parquet").read_bytes())
    assert made[0] == made[1]
    found = pq.ParquetFile(io.BytesIO(made[0])).metadata
    groups = [found.row_group(n).num_rows for n in range(found.num_row_groups)]
    assert groups == [4] * (rows // 4) + [rows % 4] * (rows % 4 > 0)


@pytest.mark.parametrize("wrap", [lambda value: {SECRET: value}, lambda value: [{SECRET: value}]])
def test_a_column_of_another_type_is_refused_without_the_names_of_its_fields(tmp_path, wrap):
    pq.write_table(pa.table({"text": [wrap("one")]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"values of the type (struct|list)") as caught:
        privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", Echo())
    assert SECRET not in str(caught.value)


def test_a_row_group_also_closes_at_a_number_of_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 100)
    source = _parquet(tmp_path / "a.parquet", {"text": ["x" * 40] * 9})
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), batch_size=2)
    found = pq.ParquetFile(tmp_path / "b.parquet").metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [3, 3, 3]


@pytest.mark.parametrize(
    "other",
    [["x" * 40] * 9, [{"bytes": b"x" * 40, "n": 1}] * 9],
    ids=["string", "struct"],
)
def test_the_strings_of_other_columns_fill_a_row_group_too(tmp_path, monkeypatch, other):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 100)
    source = _parquet(tmp_path / "a.parquet", {"text": [""] * 9, "other": other})
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), batch_size=2)
    found = pq.ParquetFile(tmp_path / "b.parquet").metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [3, 3, 3]


@pytest.mark.parametrize("parts", [2, 100])
def test_ordered_categories_keep_their_order(tmp_path, parts):
    order = pa.array(["low", "mid", "high", "unused"])
    sizes = pa.DictionaryArray.from_arrays(
        pa.array([2, 0, 2, 1, 0], pa.int8()), order, ordered=True
    )
    source = _parquet(tmp_path / "a.parquet", {"text": ["x"] * 5, "size": sizes}, row_group_size=3)
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), part_records=parts)
    read = pq.read_table(tmp_path / "b.parquet")["size"]
    assert read.equals(pq.read_table(source)["size"])
    assert all(chunk.dictionary.equals(order) for chunk in read.chunks)


# Places: reading from the middle


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.csv", "a.txt", "a.parquet", "a.jsonl.gz", "a.csv.zst"]
)
@pytest.mark.parametrize("cut", [1, 3, 10])
def test_a_file_read_from_place_to_place_is_the_file(tmp_path, name, cut):
    texts = [f"text\u00e9 {n}" for n in range(10)]
    kind = name.split(".")[1]
    source = tmp_path / f"plain.{kind}"
    if kind == "parquet":
        _parquet(source, {"text": texts}, row_group_size=4)
    elif kind == "csv":
        _write(source, "\ufefftext\r\n" + "".join(f'"{text}"\r\n\r\n' for text in texts))
    else:
        line = {"jsonl": '{{"text":"{}"}}\n \n', "txt": "{}\n"}[kind]
        _write(source, "".join(line.format(text) for text in texts))
    if name != source.name:
        privatize_corpus(source, tmp_path / name, Echo())
        source, texts = tmp_path / name, [f"[{text}]" for text in texts]
    cursors = [Cursor(), *read_records(source, cut=cut).cursors()]
    assert [place.record for place in cursors] == [*range(0, 10, cut), 10]
    pieces = [
        _texts(source, start=start, stop=stop.record)
        for start, stop in zip(cursors, cursors[1:], strict=False)
    ]
    assert [len(piece) for piece in pieces[:-1]] == [cut] * (len(pieces) - 1)
    assert [text for piece in pieces for text in piece] == texts


# Folders


def _folder(path: Path, names: list[str], each: int = 3) -> Path:
    for place, name in enumerate(names):
        texts = range(each * place, each * place + each)
        _write(path / name, "".join(f'{{"text":"text {n}"}}\n' for n in texts))
    return path


def test_a_folder_becomes_a_folder_of_the_same_files_with_their_checksums(tmp_path):
    source = _folder(tmp_path / "raw", ["a.jsonl", "b.jsonl"])
    (source / "deep").mkdir()
    (source / "deep" / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text":"last"}\n'))
    _write(source / "_SUCCESS", "")
    _write(source / ".a.jsonl.crc", "x")
    report = privatize_corpus(source, tmp_path / "out", Echo())
    assert (report.documents, report.files) == (7, 3)
    assert (tmp_path / "out" / "a.jsonl").read_text().startswith('{"text":"[text 0]"}\n')
    last = (tmp_path / "out" / "deep" / "c.jsonl.gz").read_bytes()
    assert gzip.decompress(last) == b'{"text":"[last]"}\n'
    manifest = json.loads((tmp_path / "out.manifest.json").read_bytes())
    import hashlib

    for result in manifest["files"]:
        content = (tmp_path / "out" / result["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            result["bytes"],
            result["sha256"],
        )
    assert manifest["documents"] == 7
    assert sorted(os.listdir(tmp_path)) == ["out", "out.manifest.json", "raw"]


def test_shards_are_taken_by_the_numbers_in_their_names(tmp_path):
    source = _folder(tmp_path / "raw", ["part-2.jsonl", "part-10.jsonl", "part-100.jsonl"], each=1)
    echo = Echo()
    privatize_corpus(source, tmp_path / "out", echo)
    assert (tmp_path / "out" / "part-10.jsonl").read_text() == '{"text":"[text 1]"}\n'
    assert echo.keys == [unnamed_key("text", f"text {number}") for number in range(3)]


def test_unnamed_documents_keep_their_keys_however_a_corpus_is_cut(tmp_path):
    keys = []
    for name, names, each in [("x", ["1.jsonl"], 12), ("y", [f"{n}.jsonl" for n in range(4)], 3)]:
        echo = Echo()
        privatize_corpus(_folder(tmp_path / name, names, each), tmp_path / f"out-{name}", echo)
        keys.append(echo.keys)
    assert keys[0] == keys[1] == [unnamed_key("text", f"text {n}") for n in range(12)]


@pytest.mark.parametrize(
    ("target", "match"),
    [("raw/out", "lies in the other"), (".", "lies in the other"), ("full", "exists")],
)
def test_a_folder_is_never_written_over_or_into_another(tmp_path, target, match):
    source = _folder(tmp_path / "raw", ["a.jsonl"])
    _write(tmp_path / "full" / "x", "")
    with pytest.raises(CorpusError, match=match):
        privatize_corpus(source, tmp_path / target, Echo())


def test_a_digit_of_another_script_is_a_letter_of_a_shards_name(tmp_path):
    for name in ("\u06631.txt", "a10.txt", "a9.txt"):
        _write(tmp_path / "in" / name, name)
    privatize_corpus(tmp_path / "in", tmp_path / "out", Echo())
    found = json.loads((tmp_path / "out.manifest.json").read_text())
    assert [file["name"] for file in found["files"]] == ["a9.txt", "a10.txt", "\u06631.txt"]


def test_a_shard_may_have_a_name_that_is_no_utf8(tmp_path):
    name = os.fsdecode(b"caf\xe9.jsonl")
    _write(tmp_path / "in" / name, '{"text":"one"}\n{}\n')
    privatize_corpus(tmp_path / "in", tmp_path / "out", Echo(), on_error="quarantine")
    assert os.listdir(tmp_path / "out") == [name]
    found = json.loads((tmp_path / "out.manifest.json").read_text())
    assert [file["name"] for file in found["files"]] == [name]
    quarantine = json.loads((tmp_path / "out.quarantine.jsonl").read_text())
    assert quarantine["file"] == "caf\N{REPLACEMENT CHARACTER}.jsonl"


def test_a_link_to_a_folder_of_shards_is_not_left_out_unsaid(tmp_path):
    _write(tmp_path / "in" / "a.txt", "one\n")
    _write(tmp_path / "more" / "b.txt", "two\n")
    (tmp_path / "in" / "more").symlink_to(tmp_path / "more")
    with pytest.raises(CorpusError, match="a link to a folder"):
        privatize_corpus(tmp_path / "in", tmp_path / "out", Echo())


def test_a_folder_of_several_formats_or_of_none_is_refused(tmp_path):
    source = _folder(tmp_path / "raw", ["a.jsonl"])
    _write(source / "b.csv", "text\nx\n")
    with pytest.raises(CorpusError, match="several formats"):
        privatize_corpus(source, tmp_path / "out", Echo())
    _write(source / "c.docx", "x")
    with pytest.raises(CorpusError, match="Cannot tell the format"):
        privatize_corpus(source, tmp_path / "out", Echo())
    (tmp_path / "none").mkdir()
    with pytest.raises(CorpusError, match="holds no files"):
        privatize_corpus(tmp_path / "none", tmp_path / "out", Echo())


# Columns


@pytest.mark.parametrize("columns", [{"text": ["one"]}, {"text": ["one"], "label": ["x"]}])
@pytest.mark.parametrize("parts", [1, 100])
def test_where_columns_are_dropped_a_parquet_file_keeps_nothing_beside_them(
    tmp_path, columns, parts
):
    fields = [pa.field(name, pa.string(), metadata={"seen": "secret one"}) for name in columns]
    schema = pa.schema(fields, metadata={"PANDAS_ATTRS": "secret two"})
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns, schema), source)
    rule = ColumnRule(drop=("*",))
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), columns=rule, part_records=parts)
    assert b"secret" in source.read_bytes()
    assert b"secret" not in (tmp_path / "b.parquet").read_bytes()
    assert pq.read_schema(tmp_path / "b.parquet").metadata is None


def test_of_what_a_parquet_file_keeps_beside_its_columns_only_types_and_indexes_pass(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["one", "two"]}, index=pandas.Index([7, 9], name="place"))
    frame.attrs = {"seen": "secret one"}
    table = pa.Table.from_pandas(frame)
    features = {"text": {"dtype": "string", "_type": "Value"}}
    described = {"info": {"features": features, "description": "secret two"}}
    more = {"notes": "secret three", "huggingface": json.dumps(described)}
    unknown = {"ARROW:extension:name": "some.type", "seen": "secret four"}
    fields = [table.schema.field("text").with_metadata(unknown)]
    schema = pa.schema([*fields, table.schema.field("place")], {**table.schema.metadata, **more})
    pq.write_table(table.cast(schema), tmp_path / "a.parquet")
    privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", Echo())
    found = pq.read_schema(tmp_path / "b.parquet")
    assert set(found.metadata) == {b"pandas", b"huggingface"}
    assert json.loads(found.metadata[b"huggingface"]) == {"info": {"features": features}}
    assert found.field("text").metadata == {b"ARROW:extension:name": b"some.type"}
    assert not any(b"secret" in value for value in found.metadata.values())
    private = pandas.read_parquet(tmp_path / "b.parquet")
    assert private.index.equals(frame.index)
    assert private.attrs == {}


@pytest.mark.parametrize("content", ["no JSON", "[]", "3", '{"info": []}'])
def test_a_parquet_file_with_broken_descriptions_of_types_is_released_without_them(
    tmp_path, content
):
    both = dict.fromkeys(("pandas", "huggingface"), content)
    table = pa.table({"text": ["one"]}).replace_schema_metadata(both)
    pq.write_table(table, tmp_path / "a.parquet")
    privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", Echo())
    assert pq.read_table(tmp_path / "b.parquet").column("text").to_pylist() == ["[one]"]


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (ColumnRule(), ["id", "text", "meta_a", "meta_b"]),
        (ColumnRule(drop=("meta_*",)), ["id", "text"]),
        (ColumnRule(drop=("*",)), ["text"]),
        (ColumnRule(keep=("id", "meta_?"), drop=("meta_b",)), ["id", "text", "meta_a"]),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_other_columns_pass_or_are_dropped_by_rule(tmp_path, rule, names, kind):
    row = {"id": "1", "text": "one", "meta_a": "a", "meta_b": "b"}
    source = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        _write(source, json.dumps(row))
    elif kind == "csv":
        _write(source, ",".join(row) + "\n" + ",".join(row.values()) + "\n")
    else:
        _parquet(source, {name: [value] for name, value in row.items()})
    target = tmp_path / f"b.{kind}"
    report = privatize_corpus(source, target, Echo(), columns=rule)
    wanted = {name: row[name] for name in names} | {"text": "[one]"}
    if kind == "jsonl":
        found = json.loads(target.read_bytes())
    elif kind == "csv":
        header, values = target.read_text().splitlines()
        found = dict(zip(header.split(","), values.split(","), strict=True))
    else:
        found = pq.read_table(target).to_pylist()[0]
    assert found == wanted
    assert list(found) == names
    assert report.unprotected == tuple(name for name in names if name != "text")
    assert report.unmatched == ()


@pytest.mark.parametrize(
    ("rule", "unmatched"),
    [
        (ColumnRule(), ()),
        (ColumnRule(drop=("id", "emial", "*_x")), ("emial", "*_x")),
        (ColumnRule(keep=("id", "naem")), ("naem",)),
        (ColumnRule(keep=("emial",), drop=("emial",)), ("emial",)),
        (ColumnRule(drop=("text",)), ("text",)),  # what it is for, a rule cannot drop
        (ColumnRule(drop=("*",)), ()),
    ],
)
@pytest.mark.parametrize("content", ["id,email,text\n1,a@b,one\n", "text\none\n"])
def test_a_rule_that_no_column_follows_is_told(tmp_path, rule, unmatched, content):
    source = tmp_path / "a.csv"
    source.write_text(content)
    report = privatize_corpus(source, tmp_path / "b.csv", Echo(), columns=rule)
    if "id" not in content:
        patterns = dict.fromkeys([*(rule.keep or ()), *rule.drop])
        unmatched = tuple(pattern for pattern in patterns if pattern != "*")
    assert report.unmatched == unmatched
    assert report.to_dict()["unmatched"] == list(unmatched)


def test_a_column_of_a_later_record_follows_its_rule(tmp_path):
    source = _write(tmp_path / "a.jsonl", '{"text":"one"}\n{"text":"two","email":"a@b"}\n')
    report = privatize_corpus(
        source, tmp_path / "b.jsonl", Echo(), batch_size=1, columns=ColumnRule(drop=("email",))
    )
    assert report.unmatched == ()


def test_a_rule_is_followed_by_the_last_of_very_many_names(tmp_path):
    row = {"text": "one"} | {f"n{number}": 1 for number in range(1500)} | {"email": "a@b"}
    source = _write(tmp_path / "a.jsonl", json.dumps(row))
    rule = ColumnRule(drop=("email", "emial"))
    report = privatize_corpus(source, tmp_path / "b.jsonl", Echo(), columns=rule)
    assert report.unmatched == ("emial",)


def test_names_of_columns_that_are_left_out_are_written_nowhere(tmp_path):
    (tmp_path / "raw").mkdir()
    _write(tmp_path / "raw" / "a.jsonl", '{"text":"one","ann@home":1,"id":1}\n')
    report = privatize_corpus(
        tmp_path / "raw", tmp_path / "out", Echo(), columns=ColumnRule(keep=("id",))
    )
    files = [*(tmp_path / "out").iterdir(), tmp_path / "out.manifest.json"]
    written = [path.read_text() for path in files]
    assert len(written) == 2
    assert "ann@home" not in "".join(written) + json.dumps(report.to_dict())


# Quarantine


def test_bad_records_are_set_aside_with_their_bytes_for_their_owner_alone(tmp_path):
    source = _write(
        tmp_path / "a.jsonl",
        b'{"text":"one"}\n{"text":"zanzibar\n{"text":"two"}\n{"text":"\xff"}\n',
    )
    report = privatize_corpus(
        source, tmp_path / "b.jsonl", Echo(), on_error="quarantine", part_records=2
    )
    assert report.documents == 2
    assert report.skipped == {"malformed": 1, "encoding": 1}
    quarantine = Path(str(report.quarantine))
    assert quarantine == tmp_path / "b.jsonl.quarantine.jsonl"
    assert stat.S_IMODE(quarantine.stat().st_mode) == 0o600
    first, second = map(json.loads, quarantine.read_bytes().splitlines())
    assert first == {
        "file": "a.jsonl",
        "record": 2,
        "line": 2,
        "reason": "malformed",
        "raw": '{"text":"zanzibar\n',
    }
    assert (second["record"], second["reason"]) == (4, "encoding")
    assert base64.b64decode(second["raw_base64"]) == b'{"text":"\xff"}\n'


@pytest.mark.parametrize(
    ("name", "content", "raw"),
    [
        ("a.csv", 'text,n\n"a\nb",1\n"c\nd",2,3\n', '"c\nd",2,3\n'),
        ("a.txt", "a\nb\0\n", "b\0\n"),
    ],
)
def test_a_record_is_set_aside_as_it_stands_in_the_file(tmp_path, name, content, raw):
    report = privatize_corpus(
        _write(tmp_path / name, content), tmp_path / f"b-{name}", Echo(), on_error="quarantine"
    )
    (line,) = Path(str(report.quarantine)).read_bytes().splitlines()
    assert json.loads(line)["raw"] == raw


def test_a_row_of_parquet_is_set_aside_with_its_other_columns(tmp_path):
    source = _parquet(tmp_path / "a.parquet", {"id": [7, 8], "text": ["one", None]})
    report = privatize_corpus(source, tmp_path / "b.parquet", Echo(), on_error="quarantine")
    (line,) = Path(str(report.quarantine)).read_bytes().splitlines()
    assert json.loads(json.loads(line)["raw"]) == {"id": 8, "text": None}


def test_a_row_that_has_no_json_form_is_set_aside_without_its_bytes(tmp_path):
    late = pa.array([10**7, 0], pa.int32()).cast(pa.date32())  # after the year 9999
    source = _parquet(tmp_path / "a.parquet", {"text": [None, "one"], "when": late})
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), on_error="quarantine")
    (line,) = (tmp_path / "b.parquet.quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "wrong_type"
    assert "raw" not in json.loads(line)
    assert pq.read_table(tmp_path / "b.parquet")["when"].equals(pa.chunked_array([late[1:]]))


def test_without_bad_records_nothing_is_set_aside(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    report = privatize_corpus(source, tmp_path / "b.txt", Echo(), on_error="quarantine")
    assert report.quarantine is None
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


# Names


@pytest.mark.parametrize("value", ["null", '""', "true", "1.5", "[1]", '"\\ud800"'])
def test_a_record_without_a_name_is_a_bad_one(tmp_path, value):
    source = _write(
        tmp_path / "a.jsonl", f'{{"id":"a","text":"x"}}\n{{"id":{value},"text":"zanzibar"}}\n'
    )
    reader = read_records(source, on_error="skip", names=["id"])
    assert [batch.texts for batch in reader] == [["x"]]
    with pytest.raises(CorpusError, match=r"record 2\)") as error:
        privatize_corpus(source, tmp_path / "b.jsonl", Echo(), document_column="id")
    assert SECRET not in str(error.value)


# What fuzzing has found


@pytest.mark.parametrize("damaged", ["text", "other"])
def test_a_damaged_file_that_refers_to_values_it_does_not_hold_is_told(tmp_path, damaged):
    columns = {name: pa.array(["a", "b", "a"]).dictionary_encode() for name in ("text", "other")}
    source, result = tmp_path / "a.parquet", 0
    _parquet(source, {damaged: columns[damaged]}, compression="none", write_statistics=False)
    content = source.read_bytes()
    for place in range(40):
        for bit in range(8):
            raw = bytearray(content)
            raw[place] ^= 1 << bit
            source.write_bytes(raw)
            try:
                for batch in pq.ParquetFile(source).iter_batches():
                    batch.column(0).dictionary_decode()
            except pa.ArrowIndexError:
                result += 1
                with pytest.raises(CorpusError, match=r"a\.parquet: .* damaged"):
                    privatize_corpus(source, tmp_path / "b.parquet", Echo(), on_error="skip")
            except (pa.ArrowException, OSError):
                continue  # told by whoever reads the file
    assert result > 0


def test_values_are_looked_for_inside_of_lists_and_structs():
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 2]), ["a", "b"], safe=False)
    right = pa.DictionaryArray.from_arrays(pa.array([0, None]), ["a"])
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))
    for column, found in ((wrong, False), (right, True), (empty, True)):
        inside = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
        struct = pa.StructArray.from_arrays([column], ["x"])
        for each in (column, inside, struct, struct.slice(1) if found else inside.slice(0)):
            assert _has_all_values(each) == found


def test_a_date_is_no_name(tmp_path):
    late = pa.array([10**7], pa.int32()).cast(pa.date32())  # Python has no such date
    source = _parquet(tmp_path / "a.parquet", {"text": ["one"], "when": late})
    report = privatize_corpus(
        source, tmp_path / "b.parquet", Echo(), document_column="when", on_error="skip"
    )
    assert report.skipped == {"missing_name": 1}


def test_a_byte_order_mark_alone_is_no_record(tmp_path):
    assert _texts(_write(tmp_path / "a.txt", b"\xef\xbb\xbf")) == []


def test_rows_of_a_string_view_can_be_skipped(tmp_path):
    column = pa.array([None, "one"], pa.string_view())
    source = _parquet(tmp_path / "a.parquet", {"text": column, "id": [1, 2]})
    assert _texts(source, on_error="skip") == ["one"]


def test_a_number_that_no_double_holds_makes_a_bad_record(tmp_path):
    source = _write(tmp_path / "a.jsonl", '{"text":"a","x":1e999}\n{"text":"b","x":1e99}\n')
    assert _texts(source, on_error="skip") == ["b"]


@pytest.mark.parametrize("ending", ["", "\n", "\nnext\n"])
def test_a_byte_order_mark_takes_no_room_from_the_first_line(tmp_path, ending):
    source = _write(tmp_path / "a.txt", "\ufeff" + "x" * 50 + ending)
    assert _texts(source, max_text_bytes=50) == ["x" * 50, *ending.split()]
    with pytest.raises(CorpusError, match="line 1"):
        _texts(source, max_text_bytes=49)
