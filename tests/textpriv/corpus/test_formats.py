"""Formats: only the texts change, and a bad record is named and never quoted."""

from __future__ import annotations

import base64
import csv
import json
import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from echo import Echo
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.corpus import RunOptions, privatize_corpus, read_records, records
from textpriv.corpus.formats import corpus_format, parquet
from textpriv.corpus.plan import Plan
from textpriv.corpus.records import RecordError
from textpriv.errors import CorpusError

SECRET = "zanzibar"


def _texts(path: Path, **options) -> list[str]:
    return [text for batch in read_records(path, **options) for text in batch.texts]


def _write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _parquet(path: Path, columns: dict, **options) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("jsonl", None)),
        ("a.ndjson.gz", ("jsonl", "gzip")),
        ("a.CSV", ("csv", None)),
        ("a.b.txt.gz", ("text", "gzip")),
        ("-", (None, None)),
    ],
)
def test_the_extension_names_format_and_compression(name, expected):
    assert corpus_format(name) == expected


def test_an_unknown_extension_asks_for_the_format():
    with pytest.raises(CorpusError, match="--format"):
        corpus_format("notes.docx")
    assert corpus_format("notes.docx", "text") == ("text", None)


@pytest.mark.parametrize("extension", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", '{"id":1,"text":"one"}\n', '{"id":1,"text":"[one]"}\n'),
        ("a.csv", 'id,text\n1,"one, two"\n', 'id,text\n1,"[one, two]"\n'),
        ("a.txt", "one\n\ntwo\n", "[one]\n[]\n[two]\n"),
    ],
)
def test_only_the_text_changes_in_each_format_and_compression(
    tmp_path, name, content, expected, extension
):
    plain = _write(tmp_path / f"in-{name}", content)
    packed, back = tmp_path / f"mid-{name}{extension}", tmp_path / f"out-{name}"
    privatize_corpus(plain, packed, Echo())
    assert extension == "" or packed.read_bytes() != expected.encode()
    privatize_corpus(packed, back, Echo())
    assert back.read_text() == expected.replace("[", "[[").replace("]", "]]")


def test_gzip_output_is_the_same_bytes_each_time(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    for name in ("x.txt.gz", "y.txt.gz"):
        privatize_corpus(source, tmp_path / name, Echo())
    assert (tmp_path / "x.txt.gz").read_bytes() == (tmp_path / "y.txt.gz").read_bytes()


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    assert _texts(_write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n")) == ["one"]
    assert _texts(_write(tmp_path / "a.csv", b"\xef\xbb\xbftext\none\n")) == ["one"]


def test_only_line_feeds_separate_lines(tmp_path):
    content = "one\u2028two\x0cthree\x85four\r\nfive"
    assert _texts(_write(tmp_path / "a.txt", content)) == ["one\u2028two\x0cthree\x85four", "five"]


def test_half_a_surrogate_pair_in_another_field_is_written_as_it_was(tmp_path):
    source = _write(tmp_path / "a.jsonl", '{"id":"\\ud800","text":"one"}\n')
    privatize_corpus(source, tmp_path / "b.jsonl", Echo())
    assert (tmp_path / "b.jsonl").read_bytes() == b'{"id":"\\ud800","text":"[one]"}\n'


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\0", codec="utf-8"))] * 2),
        max_size=4,
    )
)
def test_any_csv_row_survives(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("csv")
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    privatize_corpus(folder / "a.csv", folder / "b.csv", Echo())
    with (folder / "b.csv").open(newline="", encoding="utf-8") as written:
        assert list(csv.reader(written))[1:] == [[a, f"[{b}]"] for a, b in rows]


def test_csv_keeps_its_line_ending_and_its_embedded_newlines(tmp_path):
    source = _write(tmp_path / "a.csv", b'text,n\r\n"a ""b""\r\nc\nd",1\r\n\r\n')
    privatize_corpus(source, tmp_path / "b.csv", Echo())
    assert (tmp_path / "b.csv").read_bytes() == b'text,n\r\n"[a ""b""\r\nc\nd]","1"\r\n'


def test_a_csv_header_alone_is_a_file_without_records(tmp_path):
    report = privatize_corpus(_write(tmp_path / "a.csv", "text,n\n"), tmp_path / "b.csv", Echo())
    assert (report.documents, (tmp_path / "b.csv").read_text()) == (0, "text,n\n")


def test_a_released_line_break_does_not_split_a_line(tmp_path):
    source = _write(tmp_path / "a.txt", "one\rtwo\n")
    privatize_corpus(source, tmp_path / "b.txt", Echo())
    assert (tmp_path / "b.txt").read_bytes() == b"[one two]\n"


# Bad records. Each file has one good record, the bad one on line 2 or 3, and another good one.

BAD = {
    "encoding": ("a.txt", f"one\n{SECRET} \xff\ntwo\n".encode("latin-1"), 2),
    "encoding-csv": ("a.csv", f"text,n\none,1\n{SECRET} \xff,2\ntwo,3\n".encode("latin-1"), 3),
    "encoding-json": ("a.jsonl", b'{"text":"one"}\n{"text":"\\ud800"}\n{"text":"two"}\n', 2),
    "null_byte": ("a.txt", f"one\n{SECRET}\0\ntwo\n".encode(), 2),
    "null_byte-csv": ("a.csv", f'text,n\none,1\n"{SECRET}\0\n",2\ntwo,3\n'.encode(), 3),
    "null_byte-json": ("a.jsonl", b'{"text":"one"}\n{"text":"\\u0000"}\n{"text":"two"}\n', 2),
    "malformed": ("a.jsonl", b'{"text":"one"}\n{"text":"zanzibar\n{"text":"two"}\n', 2),
    "malformed-array": ("a.jsonl", b'{"text":"one"}\n["zanzibar"]\n{"text":"two"}\n', 2),
    "malformed-depth": (
        "a.jsonl",
        b'{"text":"one"}\n' + b"[" * 200_000 + b'\n{"text":"two"}\n',
        2,
    ),
    "missing_text": ("a.jsonl", b'{"text":"one"}\n{"zanzibar":"x"}\n{"text":"two"}\n', 2),
    "wrong_type": ("a.jsonl", b'{"text":"one"}\n{"text":["zanzibar"]}\n{"text":"two"}\n', 2),
    "null": ("a.jsonl", b'{"text":"one"}\n{"text":null}\n{"text":"two"}\n', 2),
    "columns": ("a.csv", b"text,n\none,1\nzanzibar\ntwo,3\n", 3),
    "columns-many": ("a.csv", b"text,n\none,1\nzanzibar,2,3\ntwo,3\n", 3),
    "too_large": ("a.txt", b"one\n" + b"zanzibar " * 20 + b"\ntwo\n", 2),
    "too_large-csv": ("a.csv", b"text,n\none,1\n" + b"zanzibar " * 20 + b",2\ntwo,3\n", 3),
    "too_large-json": (
        "a.jsonl",
        b'{"text":"one"}\n{"text":"%s"}\n{"text":"two"}\n' % (b"z" * 101),
        2,
    ),
    "too_large-line": (
        "a.jsonl",
        b'{"text":"one"}\n{"text":"%s"}\n{"text":"two"}\n' % (b"z" * 9000),
        2,
    ),
}


@pytest.fixture
def small(monkeypatch):
    """Let a text have at most 100 bytes."""
    monkeypatch.setattr(records, "MAX_TEXT_BYTES", 100)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_named_by_its_line_and_never_quoted(tmp_path, case, request):
    name, content, line = BAD[case]
    if "large" in case:
        request.getfixturevalue("small")
    with pytest.raises(CorpusError, match=rf"{name}, line {line} \(record 2\)") as error:
        _texts(_write(tmp_path / name, content))
    assert SECRET not in str(error.value)
    assert "--on-error skip" in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("case", BAD)
def test_skip_leaves_a_bad_record_out_and_counts_it(tmp_path, case, request):
    name, content, _ = BAD[case]
    if "large" in case:
        request.getfixturevalue("small")
    reader = read_records(_write(tmp_path / name, content), on_error="skip")
    batches = list(reader)
    assert [(b.positions, b.texts) for b in batches] == [([0, 2], ["one", "two"])]
    assert [bad.reason for b in batches for bad in b.bad] == [case.split("-")[0]]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    "content",
    [
        b'text,n\none,1\n"zanzibar" x,2\ntwo,3\n',
        b'text,n\none,1\n"zanzibar,2\ntwo,3\n',
    ],
)
def test_a_broken_csv_quote_ends_the_run(tmp_path, content, on_error):
    source = _write(tmp_path / "a.csv", content)
    with pytest.raises(CorpusError, match=r"a\.csv, line 3: expected quotes") as error:
        _texts(source, on_error=on_error)
    assert SECRET not in str(error.value)


def test_a_damaged_compressed_file_is_named(tmp_path):
    name = "a.txt.gz"
    source = _write(tmp_path / "a.txt", os.urandom(50_000).hex())
    privatize_corpus(source, tmp_path / name, Echo())
    cut = (tmp_path / name).read_bytes()[:20_000]
    with pytest.raises(CorpusError, match="damaged or cut short"):
        _texts(_write(tmp_path / name, cut))


def test_batches_are_bounded_by_records_and_by_characters(tmp_path):
    source = _write(tmp_path / "a.txt", "x\n" * 5)
    reader = Plan.of(str(source), "-", RunOptions(batch_size=2)).reader(0)
    assert [len(b) for b in reader] == [2, 2, 1]
    source = _write(tmp_path / "b.txt", ("x" * 3_000_000 + "\n") * 3)
    assert [len(b.texts) for b in read_records(source)] == [2, 1]


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
    assert read.schema.names == before.schema.names
    assert read["text"].to_pylist() == ["[one]", "[two]", "[three]"]
    others = before.drop_columns("text").cast(read.drop_columns("text").schema)
    assert read.drop_columns("text").equals(others)
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
    assert pq.read_table(tmp_path / "b.parquet").schema.names == ["text", "n"]


BAD_ROWS = {
    "null": pa.array(["one", None, "two"]),
    "null_byte": pa.array(["one", f"{SECRET}\0", "two"]),
    "too_large": pa.array(["one", SECRET * 20, "two"]),
    "encoding": pa.array([b"one", SECRET.encode() + b"\xff", b"two"]).cast(pa.string(), safe=False),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_is_named_by_its_number_and_never_quoted(tmp_path, reason, small):
    source = _parquet(tmp_path / "a.parquet", {"text": BAD_ROWS[reason]})
    with pytest.raises(CorpusError, match=r"a\.parquet, record 2: ") as error:
        _texts(source)
    assert SECRET not in str(error.value)
    (batch,) = read_records(source, on_error="skip")
    assert (batch.positions, batch.texts) == ([0, 2], ["one", "two"])
    assert [bad.reason for bad in batch.bad] == [reason]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"zanzibar"])
def test_what_is_no_parquet_is_told(tmp_path, content):
    with pytest.raises(CorpusError, match="expected a Parquet file") as error:
        _texts(_write(tmp_path / "a.parquet", content))
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("wrap", [lambda value: {SECRET: value}, lambda value: [{SECRET: value}]])
def test_a_column_of_another_type_is_refused_without_the_names_of_its_fields(tmp_path, wrap):
    pq.write_table(pa.table({"text": [wrap("one")]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"found type (dict|list)") as caught:
        privatize_corpus(tmp_path / "a.parquet", tmp_path / "b.parquet", Echo())
    assert SECRET not in str(caught.value)


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


def test_a_damaged_file_that_refers_to_values_it_does_not_hold_is_refused(tmp_path):
    source, result = tmp_path / "a.parquet", 0
    columns = {"text": pa.array(["a", "b", "a"]).dictionary_encode()}
    _parquet(source, columns, compression="none", write_statistics=False)
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


@pytest.mark.parametrize("extension", [".bz2", ".zst"])
def test_packed_files_are_read_and_written(tmp_path, extension):
    plain = _write(tmp_path / "a.jsonl", '{"text":"one"}\n')
    packed = tmp_path / f"b.jsonl{extension}"
    privatize_corpus(plain, packed, Echo())
    assert packed.read_bytes()[:3] in (b"BZh", b"\x28\xb5\x2f")
    hidden = packed.rename(tmp_path / "no-extension.jsonl")  # known by its first bytes
    assert _texts(hidden) == ["[one]"]
    with pytest.raises(CorpusError, match="damaged or cut short"):
        _texts(_write(tmp_path / "c.jsonl", hidden.read_bytes()[:-6]))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_an_input_of_a_named_encoding_comes_out_as_utf8(tmp_path, encoding, name):
    content = {"a.txt": "café\u00a0\n", "a.csv": "text\ncafé\u00a0\n"}
    content["a.jsonl"] = '{"text":"café\u00a0"}\n'
    source = _write(tmp_path / name, content[name].encode(encoding))
    privatize_corpus(source, tmp_path / f"b-{name}", Echo(), encoding=encoding)
    assert _texts(tmp_path / f"b-{name}") == ["[café\u00a0]"]


def test_utf16_without_its_name_is_refused_with_the_option(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n".encode("utf-16"))
    with pytest.raises(CorpusError, match="--encoding utf-16"):
        _texts(source, on_error="skip")


def test_an_encoding_that_does_not_fit_is_refused(tmp_path):
    source = _write(tmp_path / "a.txt", b"\xff\xfeo\0\n\0\x00\xd8\n\0\n")
    with pytest.raises(CorpusError, match="no encoding 'zanzibar'"):
        privatize_corpus(source, tmp_path / "b.txt", Echo(), encoding="zanzibar")
    with pytest.raises(CorpusError, match="expected utf-16, found other bytes"):
        privatize_corpus(source, tmp_path / "b.txt", Echo(), encoding="utf-16")


def test_a_copied_column_of_json_keeps_its_bytes(tmp_path):
    line = (
        '{"a":12345678901234567.123456789,"b":1.10,"c":1E3,"d":1e400,"text":"one",'
        '"e":"\\u00e9\\/","f":[1, {"x" : 1.0}],"g":-0}\n'
    )
    privatize_corpus(_write(tmp_path / "a.jsonl", line), tmp_path / "b.jsonl", Echo())
    assert (tmp_path / "b.jsonl").read_text() == line.replace('"one"', '"[one]"')


@settings(max_examples=200, deadline=None)
@given(line=st.text(st.sampled_from('{}[]",:\\ \t1etrue.-u00dtext\x0b')))
def test_a_line_is_an_object_as_pythons_reader_says(line):
    try:
        expected = json.loads(line)
    except ValueError:
        expected = None
    reader = read_records("none.jsonl", text_column="text", format="jsonl")
    with pytest.raises(RecordError) if not isinstance(expected, dict) else nullcontext():
        try:
            _, record = reader.parse(line.encode())
            assert {name: value for name, (_, value, _) in record.items()} == expected
        except RecordError as error:
            if error.reason != "missing_text":
                raise


def test_a_text_in_an_object_is_named_with_a_dot(tmp_path):
    content = '{"id":1,"meta":{"body":"one","lang":"en"}}\n{"meta.body":"two","id":2}\n'
    source = _write(tmp_path / "a.jsonl", content)
    report = privatize_corpus(source, tmp_path / "b.jsonl", Echo(), text_column="meta.body")
    expected = content.replace("one", "[one]").replace("two", "[two]")
    assert (tmp_path / "b.jsonl").read_text() == expected
    assert report.unprotected == ("id", "meta.lang")


@pytest.mark.parametrize(
    "line",
    [
        '{"meta":{"body":"one"},"meta.body":"zanzibar"}',
        '{"meta":"zanzibar","meta":{"body":"one"}}',
        '{"meta":{"body":"one"},"meta":"zanzibar"}',
        '{"meta":{"body":"one"},"meta":{"lang":"zanzibar"}}',
        '{"id":1,"id":"zanzibar","meta":{"body":"one"}}',
        '{"meta":{"body":"one","body":"zanzibar"}}',
    ],
)
def test_a_column_that_is_there_twice_is_a_bad_record(tmp_path, line):
    source = _write(tmp_path / "a.jsonl", line)
    options = {"text_column": "meta.body"}
    with pytest.raises(CorpusError, match="expected each member of the object once") as error:
        privatize_corpus(source, tmp_path / "b.jsonl", Echo(), **options)
    assert SECRET not in str(error.value)
    report = privatize_corpus(source, tmp_path / "b.jsonl", Echo(), on_error="skip", **options)
    assert report.skipped == {"malformed": 1}


@pytest.mark.parametrize("digits", [10, 5_000])
def test_a_whole_number_of_any_length_keeps_its_digits(tmp_path, digits):
    line = '{"n":' + "7" * digits + ',"text":"one"}\n'
    source = _write(tmp_path / "a.jsonl", line)
    privatize_corpus(source, tmp_path / "b.jsonl", Echo())
    assert (tmp_path / "b.jsonl").read_text() == line.replace("one", "[one]")


@pytest.mark.parametrize("column", ["text_column", "document_column"])
def test_a_number_of_5000_digits_is_no_text_or_name(tmp_path, column):
    source = _write(tmp_path / "a.jsonl", '{"n":' + "7" * 5_000 + ',"text":"one"}')
    with pytest.raises(CorpusError, match=r"expected a (text|name or a number) in 'n'"):
        privatize_corpus(source, tmp_path / "b.jsonl", Echo(), **{column: "n"})


def test_row_groups_are_as_large_as_those_that_were_read(tmp_path):
    columns = {"text": ["one"] * 7_000, "n": list(range(7_000))}
    source = _parquet(tmp_path / "a.parquet", columns, row_group_size=3_000)
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), batch_size=70, part_records=500)
    written = pq.ParquetFile(tmp_path / "b.parquet")
    sizes = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert sizes == [3_000, 3_000, 1_000]
    assert written.read()["n"].to_pylist() == columns["n"]


def test_row_groups_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 100_000)
    source = _parquet(tmp_path / "a.parquet", {"text": ["x" * 100] * 5_000})
    privatize_corpus(source, tmp_path / "b.parquet", Echo())
    assert pq.ParquetFile(tmp_path / "b.parquet").num_row_groups == 5


def test_dictionary_columns_stay_so_without_values_of_rows_left_out(tmp_path):
    kinds = pa.array(["a", SECRET, "b"]).dictionary_encode()
    texts = pa.array(["one", "bad\0", "two"]).dictionary_encode()
    source = _parquet(tmp_path / "a.parquet", {"text": texts, "kind": kinds})
    privatize_corpus(source, tmp_path / "b.parquet", Echo(), on_error="skip")
    read = pq.read_table(tmp_path / "b.parquet")
    assert read["kind"].type == pa.dictionary(pa.int32(), pa.string())
    assert read["text"].type == pa.string()
    assert read["kind"].to_pylist() == ["a", "b"]
    assert SECRET not in str(read["kind"].chunks)
