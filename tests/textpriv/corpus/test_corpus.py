"""Files in, files out: records, their errors, atomic writing and the worker processes."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import multiprocessing
import os
import signal
import stat
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from echo import Echo, another_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from small_indexes import saved

from textpriv.corpus import (
    ColumnRule,
    PrivatizerSettings,
    corpus_format,
    privatize_corpus,
    read_records,
    unnamed_key,
)
from textpriv.engines.workers import WorkerPool
from textpriv.errors import CorpusError, IndexFolderError, MechanismError
from textpriv.run_key import RunKey
from textpriv.statement import PrivacyStatement

SECRET = "zanzibar"


class _Failing(Echo):
    """Fails at the second batch."""

    def release_batch(self, batch, keys):
        if self.keys:
            raise OSError("no space left")
        return super().release_batch(batch, keys)


def _texts(path: Path, **options) -> list[str]:
    return [text for batch in read_records(path, **options) for text in batch.texts]


def _write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Formats


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("jsonl", None)),
        ("a.ndjson.gz", ("jsonl", "gzip")),
        ("a.CSV", ("csv", None)),
        ("a.b.txt.zst", ("text", "zstd")),
        ("-", (None, None)),
    ],
)
def test_the_extension_names_format_and_compression(name, expected):
    assert corpus_format(name) == expected


def test_an_unknown_extension_asks_for_the_format():
    with pytest.raises(CorpusError, match="--format"):
        corpus_format("notes.docx")
    assert corpus_format("notes.docx", "text") == ("text", None)


def test_an_unknown_format_is_refused():
    with pytest.raises(CorpusError, match="jsonl, csv, tsv, text"):
        corpus_format("a.csv", "xml")


@pytest.mark.parametrize("extension", ["", ".gz", ".zst"])
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


def test_the_output_must_have_the_format_of_the_input(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    with pytest.raises(CorpusError, match="format of the input"):
        privatize_corpus(source, tmp_path / "b.csv", Echo())


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    assert _texts(_write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n")) == ["one"]
    assert _texts(_write(tmp_path / "a.csv", b"\xef\xbb\xbftext\none\n")) == ["one"]


def test_only_line_feeds_separate_lines(tmp_path):
    content = "one\u2028two\x0cthree\x85four\r\nfive"
    assert _texts(_write(tmp_path / "a.txt", content)) == ["one\u2028two\x0cthree\x85four", "five"]


def test_emoji_and_right_to_left_text_pass_through(tmp_path):
    record = {"שם": "تجربة", "text": "👩‍👩‍👧 שלום عالم"}
    line = json.dumps(record, ensure_ascii=False)
    source = _write(tmp_path / "a.jsonl", line + "\n" + json.dumps(record) + "\n")
    privatize_corpus(source, tmp_path / "b.jsonl", Echo())
    written = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert written == [{**record, "text": f"[{record['text']}]"}] * 2


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


def test_a_one_column_csv_is_enough(tmp_path):
    assert _texts(_write(tmp_path / "a.csv", "text\none\n\ntwo\n")) == ["one", "two"]


def test_a_large_csv_field_is_read(tmp_path):
    source = _write(tmp_path / "a.csv", "text\n" + "word " * 100_000 + "\n")
    assert len(_texts(source)[0]) == 500_000


# Empty files


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_file_without_records_gives_one_without_records(tmp_path, name):
    report = privatize_corpus(_write(tmp_path / name, ""), tmp_path / f"out-{name}", Echo())
    assert (report.documents, (tmp_path / f"out-{name}").read_bytes()) == (0, b"")


def test_a_csv_header_alone_is_a_file_without_records(tmp_path):
    report = privatize_corpus(_write(tmp_path / "a.csv", "text,n\n"), tmp_path / "b.csv", Echo())
    assert (report.documents, (tmp_path / "b.csv").read_text()) == (0, "text,n\n")


def test_an_empty_csv_file_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="is empty: expected a CSV header"):
        _texts(_write(tmp_path / "a.csv", ""))


# Bad records. Each file holds one good record, the bad one on line 2 or 3, and another good one.

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
    "wrong_type-null": ("a.jsonl", b'{"text":"one"}\n{"text":null}\n{"text":"two"}\n', 2),
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
if hasattr(
    sys, "get_int_max_str_digits"
):  # the first releases of Python 3.10 read numbers of any length
    BAD["malformed-digits"] = (
        "a.jsonl",
        b'{"text":"one"}\n{"n":' + b"1" * 5000 + b'}\n{"text":"two"}\n',
        2,
    )


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_named_by_its_line_and_never_quoted(tmp_path, case):
    name, content, line = BAD[case]
    size = 100 if "large" in case else 1 << 20
    with pytest.raises(CorpusError, match=rf"{name}, line {line} \(record 2\)") as error:
        _texts(_write(tmp_path / name, content), max_text_bytes=size)
    assert SECRET not in str(error.value)
    assert "--on-error skip" in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("case", BAD)
def test_skip_leaves_a_bad_record_out_and_counts_it(tmp_path, case):
    name, content, _ = BAD[case]
    size = 100 if "large" in case else 1 << 20
    reader = read_records(_write(tmp_path / name, content), on_error="skip", max_text_bytes=size)
    batches = list(reader)
    assert [(b.positions, b.texts) for b in batches] == [([0, 2], ["one", "two"])]
    assert dict(reader.skipped) == {case.split("-")[0]: 1}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    "content",
    [
        b'text,n\none,1\n"zanzibar" x,2\ntwo,3\n',
        b'text,n\none,1\n"zanzibar,2\ntwo,3\n',
        b'text,n\none,1\n"zanzibar\n' + b"x\n" * 1000 + b'",2\n',
    ],
)
def test_a_broken_csv_quote_ends_the_run(tmp_path, content, on_error):
    source = _write(tmp_path / "a.csv", content)
    with pytest.raises(CorpusError, match=r"a\.csv, line 3: expected quotes") as error:
        _texts(source, on_error=on_error, max_text_bytes=100)
    assert SECRET not in str(error.value)


def test_a_missing_csv_column_is_refused_without_naming_the_others(tmp_path):
    source = _write(tmp_path / "a.csv", "zanzibar,body\n1,one\n")
    with pytest.raises(CorpusError, match="none among 2") as error:
        _texts(source)
    assert SECRET not in str(error.value)
    assert _texts(source, text_column="body") == ["one"]


def test_two_columns_of_the_same_name_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="more than one"):
        _texts(_write(tmp_path / "a.csv", "text,text\n1,one\n"))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst"])
def test_a_damaged_compressed_file_is_named(tmp_path, name):
    source = _write(tmp_path / "a.txt", os.urandom(50_000).hex())
    privatize_corpus(source, tmp_path / name, Echo())
    cut = (tmp_path / name).read_bytes()[:20_000]
    with pytest.raises(CorpusError, match="damaged or cut short"):
        _texts(_write(tmp_path / name, cut))


def test_a_file_that_is_no_gzip_is_named(tmp_path):
    with pytest.raises(CorpusError, match="damaged or cut short"):
        _texts(_write(tmp_path / "a.txt.gz", "one\n"))


@pytest.mark.parametrize("options", [{"on_error": "ignore"}, {"batch_size": 0}])
def test_wrong_options_are_refused(tmp_path, options):
    with pytest.raises(CorpusError, match=r"must be|is a whole number"):
        read_records(tmp_path / "a.txt", **options)


# Batches


def test_batches_are_bounded_by_records_and_by_characters(tmp_path):
    source = _write(tmp_path / "a.txt", "x\n" * 5)
    assert [len(b.texts) for b in read_records(source, batch_size=2)] == [2, 2, 1]
    source = _write(tmp_path / "b.txt", ("x" * 3_000_000 + "\n") * 3)
    assert [len(b.texts) for b in read_records(source)] == [2, 1]


def test_what_stands_beside_the_text_fills_a_batch_too(tmp_path):
    row = json.dumps({"text": "x", "page": "y" * 3_000_000}) + "\n"
    source = _write(tmp_path / "a.jsonl", row * 3)
    assert [len(b.texts) for b in read_records(source)] == [2, 1]


def test_a_reader_can_be_read_again(tmp_path):
    reader = read_records(
        _write(tmp_path / "a.txt", "one\n\xff\n".encode("latin-1")), on_error="skip"
    )
    assert [b.texts for b in reader] == [b.texts for b in reader] == [["one"]]
    assert dict(reader.skipped) == {"encoding": 1}


# Randomness


def test_an_unnamed_document_has_the_key_of_its_text_and_occurrence(tmp_path):
    source = _write(tmp_path / "a.txt", b"one\n\xff\ntwo\none\n")
    echo = Echo()
    privatize_corpus(source, tmp_path / "b.txt", echo, on_error="skip", batch_size=2)
    wanted = [("one", 1), ("two", 1), ("one", 2)]
    assert echo.keys == [unnamed_key("text", *each) for each in wanted]


def test_without_a_seed_two_runs_share_no_document_key(tmp_path):
    source = _write(tmp_path / "a.txt", "one\ntwo\n")
    echo = Echo()
    echo.seed = None
    for name in ("b.txt", "c.txt"):
        privatize_corpus(source, tmp_path / name, echo)
    assert len(set(echo.keys)) == 4


@pytest.mark.parametrize("ends", [("-", "b.jsonl"), ("a.jsonl", "-")])
def test_a_stream_without_names_has_no_run_key(tmp_path, ends):
    _write(tmp_path / "a.jsonl", '{"text":"one"}\n')
    ends = [end if end == "-" else tmp_path / end for end in ends]
    with pytest.raises(CorpusError, match="passes only once"):
        privatize_corpus(*ends, Echo(), key=RunKey.open(tmp_path / "key"))
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_text_cannot_be_its_own_name(tmp_path):
    source = _write(tmp_path / "a.jsonl", '{"text":"one"}\n')
    with pytest.raises(CorpusError, match="equal texts would come out equal"):
        privatize_corpus(source, tmp_path / "b.jsonl", Echo(), document_column="text")


# Unprotected columns


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,text,who\n1,one,me\n"),
        ("a.jsonl", '{"text":"one"}\n{"id":1,"text":"two","who":"me"}\n'),
    ],
)
def test_other_columns_are_told_once(tmp_path, name, content):
    told: list[tuple[str, ...]] = []
    report = privatize_corpus(
        _write(tmp_path / name, content),
        tmp_path / f"out-{name}",
        Echo(),
        batch_size=1,
        on_unprotected=told.append,
    )
    assert told == [("id", "who")]
    assert report.unprotected == ("id", "who")


@pytest.mark.parametrize("batch_size", [1, 5])
def test_all_other_columns_are_reported_also_those_of_later_records(tmp_path, batch_size):
    source = _write(tmp_path / "a.jsonl", '{"text":"one","a":1}\n{"b":1,"text":"two","a":1}\n')
    told: list[tuple[str, ...]] = []
    report = privatize_corpus(
        source, tmp_path / "b.jsonl", Echo(), batch_size=batch_size, on_unprotected=told.append
    )
    assert told == [("a",)]
    assert report.unprotected == ("a", "b")


NAMES = "the names of files and folders, released as they are, and how many documents stand in each"
FORM = "the form of the files: the order and types of columns, delimiters and line endings"


def test_the_statement_of_a_run_names_all_other_columns_as_not_protected(tmp_path):
    made = Echo()
    made.statement = PrivacyStatement("m", "a", 1.0, 0.0, "u", True, not_protected=("marks",))
    for number, columns in enumerate([(), ("a", "b"), tuple(f"c{n}" for n in range(30))]):
        record = json.dumps({"text": "one", **dict.fromkeys(columns, 1)})
        (tmp_path / f"raw{number}").mkdir()
        source = _write(tmp_path / f"raw{number}" / "a.jsonl", f'{{"text":"one"}}\n{record}\n')
        report = privatize_corpus(source.parent, tmp_path / f"out{number}", made)
        named = report.stated(made.statement).not_protected
        shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        assert named == (
            "marks",
            *([f"other columns, released as written: {shown}"] if columns else []),
            NAMES,
            FORM,
        )
        manifest = json.loads((tmp_path / f"out{number}.manifest.json").read_text())
        assert manifest["statement"]["not_protected"] == list(named)


def test_the_statement_of_a_folder_names_what_the_names_of_files_show(tmp_path):
    made = Echo()
    made.statement = PrivacyStatement("m", "a", 1.0, 0.0, "u", True)
    (tmp_path / "raw" / "ward 3").mkdir(parents=True)
    source = _write(tmp_path / "raw" / "ward 3" / "ann miller.txt", "one\n")
    report = privatize_corpus(tmp_path / "raw", tmp_path / "out", made)
    assert (tmp_path / "out" / "ward 3" / "ann miller.txt").is_file()
    assert report.stated(made.statement).not_protected == (NAMES,)
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["statement"]["not_protected"] == [NAMES]
    # A file is called what its owner says.
    report = privatize_corpus(source, tmp_path / "out.txt", made)
    assert report.stated(made.statement).not_protected == ()


def test_a_text_column_alone_leaves_nothing_to_tell(tmp_path):
    report = privatize_corpus(_write(tmp_path / "a.csv", "text\none\n"), tmp_path / "b.csv", Echo())
    assert report.unprotected == ()


# Writing


def _leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_a_failure_leaves_no_file_and_the_old_output_untouched(tmp_path):
    source = _write(tmp_path / "a.txt", "one\ntwo\n")
    old = _write(tmp_path / "b.txt", "old\n")
    for target in (old, tmp_path / "new.txt"):
        with pytest.raises(OSError, match="no space left"):
            privatize_corpus(source, target, _Failing(), batch_size=1, overwrite=True)
    assert old.read_text() == "old\n"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_while_running_the_output_is_hidden_and_private(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    seen: list[int] = []

    def look(progress):
        (name,) = _leftovers(tmp_path)
        assert name.startswith(".b.txt.")
        assert not (tmp_path / "b.txt").exists()
        seen.append(stat.S_IMODE((tmp_path / name).stat().st_mode))
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / name).iterdir())

    privatize_corpus(source, tmp_path / "b.txt", Echo(), on_progress=look)
    assert seen == [0o700, 0o600, 0o600, 0o600, 0o600]
    assert _leftovers(tmp_path) == []


def test_the_output_has_the_permissions_of_an_ordinary_file(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    before = os.umask(0o027)
    try:
        privatize_corpus(source, tmp_path / "b.txt", Echo())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b.txt").stat().st_mode) == 0o640


def test_an_old_output_keeps_its_permissions(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    (old := _write(tmp_path / "b.txt", "old\n")).chmod(0o600)
    privatize_corpus(source, old, Echo(), overwrite=True)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    (tmp_path / "link.txt").symlink_to(_write(tmp_path / "real.txt", "old\n"))
    privatize_corpus(source, tmp_path / "link.txt", Echo(), overwrite=True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "[one]\n"


@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
def test_input_and_output_must_differ(tmp_path, link):
    source = _write(tmp_path / "a.txt", "one\n")
    target = source if link == "same" else tmp_path / "b.txt"
    if link == "symbolic":
        target.symlink_to(source)
    elif link == "hard":
        os.link(source, target)
    with pytest.raises(CorpusError, match="same file"):
        privatize_corpus(source, target, Echo())
    assert source.read_text() == "one\n"


def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    source = _write(tmp_path / "a.txt", "one\n")
    with pytest.raises(CorpusError, match="folder does not exist"):
        privatize_corpus(source, tmp_path / "none" / "b.txt", Echo())
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(CorpusError, match="it is a folder"):
        privatize_corpus(source, tmp_path / "folder.txt", Echo())


def test_a_missing_input_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        privatize_corpus(tmp_path / "none.txt", tmp_path / "b.txt", Echo())
    assert os.listdir(tmp_path) == []


def test_standard_input_and_output_carry_lines(tmp_path, monkeypatch):
    sent = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sent))
    privatize_corpus("-", "-", Echo())
    assert sent.getvalue() == b"[one]\n[two]\n"


def test_the_other_end_names_the_format_of_a_standard_stream(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text":"one"}\n')))
    privatize_corpus("-", tmp_path / "b.jsonl.gz", Echo())
    assert gzip.decompress((tmp_path / "b.jsonl.gz").read_bytes()) == b'{"text":"[one]"}\n'


def test_a_released_line_break_does_not_split_a_line(tmp_path):
    source = _write(tmp_path / "a.txt", "one\rtwo\n")
    privatize_corpus(source, tmp_path / "b.txt", Echo())
    assert (tmp_path / "b.txt").read_bytes() == b"[one two]\n"


def test_the_report_counts_what_was_done(tmp_path):
    source = _write(tmp_path / "a.txt", b"one\n\xff\ntwo\n")
    report = privatize_corpus(source, tmp_path / "b.txt", Echo(), on_error="skip")
    assert (report.documents, report.tokens, report.skipped) == (2, {"word": 2}, {"encoding": 1})
    assert json.loads(json.dumps(report.to_dict()))["documents"] == 2


# The real privatizer, and worker processes

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)


def _corpus(path: Path, documents: int) -> Path:
    rng = np.random.default_rng(1)
    lines = [
        " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=20)) for _ in range(documents)
    ]
    return _write(path, "\n".join(lines) + "\n")


def test_one_text_alone_is_released_as_it_is_in_a_file(tmp_path, folder):
    source = _corpus(tmp_path / "a.txt", 5)
    privatizer = PrivatizerSettings(str(folder), options={"epsilon": 4.0}, seed=3).build()
    report = privatize_corpus(source, tmp_path / "b.txt", privatizer, batch_size=2)
    alone = [
        privatizer.privatize(text, key=unnamed_key("text", text))
        for text in source.read_text().splitlines()
    ]
    assert (tmp_path / "b.txt").read_text().splitlines() == alone
    assert report.tokens == {"sampled": 100}


@pytest.mark.usefixtures("without_torch")
def test_the_output_does_not_depend_on_the_number_of_workers(tmp_path, folder):
    source = _corpus(tmp_path / "a.txt", 50)
    settings = PrivatizerSettings(str(folder), options={"epsilon": 4.0}, seed=3)
    written = []
    for workers in (1, 2):
        target = tmp_path / f"{workers}.txt"
        privatize_corpus(
            source,
            target,
            settings.build(),
            batch_size=7,
            workers=workers,
            settings=settings,
        )
        written.append(target.read_text())
    assert written[0] == written[1]


def test_a_worker_that_dies_is_told(tmp_path, folder, monkeypatch):
    source = _corpus(tmp_path / "a.txt", 5)
    settings = PrivatizerSettings(str(folder), options={"epsilon": 4.0})
    ordered = WorkerPool.ordered

    def killed(self, jobs):
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        yield from ordered(self, jobs)

    monkeypatch.setattr(WorkerPool, "ordered", killed)
    with pytest.raises(CorpusError, match="worker process ended"):
        privatize_corpus(source, tmp_path / "b.txt", settings.build(), workers=2, settings=settings)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_worker_that_begins_from_nothing_and_cannot_build_its_privatizer_tells_why(
    tmp_path, folder
):
    source = _corpus(tmp_path / "a.txt", 5)
    settings = PrivatizerSettings(str(folder), options={"epsilon": 4.0})
    gone = replace(settings, index=str(folder) + ".gone")
    with another_thread(), pytest.raises(IndexFolderError):
        privatize_corpus(source, tmp_path / "b.txt", settings.build(), workers=3, settings=gone)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_settings_are_checked_when_they_are_built(folder):
    with pytest.raises(MechanismError, match="epsilon"):
        PrivatizerSettings(str(folder), options={"epsilon": -1.0}).build()


def test_settings_show_no_secret(folder):
    settings = PrivatizerSettings(str(folder))
    assert repr(settings.run_key) not in repr(settings)


def test_more_than_one_worker_needs_settings(tmp_path):
    with pytest.raises(CorpusError, match="settings="):
        privatize_corpus(tmp_path / "a.txt", tmp_path / "b.txt", Echo(), workers=2)


# Folders that are named by a column


@pytest.fixture
def partitioned(tmp_path) -> Path:
    source = tmp_path / "raw"
    for label, year in [(0, 2001), (1, 2001), (1, 2002)]:
        folder = source / f"label={label}" / f"the%20year={year}"
        folder.mkdir(parents=True)
        _write(folder / "a.jsonl", '{"text":"one","stars":3}\n')
    return source


def test_a_column_in_the_names_of_folders_is_named_as_not_protected(tmp_path, partitioned):
    told = []
    report = privatize_corpus(partitioned, tmp_path / "out", Echo(), on_unprotected=told.append)
    assert report.unprotected == ("label", "the year", "stars")
    assert told == [("label", "the year", "stars")]
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["unprotected"] == ["label", "the year", "stars"]
    assert (tmp_path / "out" / "label=1" / "the%20year=2002" / "a.jsonl").is_file()


def test_a_column_in_the_names_of_folders_of_plain_text_is_named_too(tmp_path):
    (tmp_path / "raw" / "label=0").mkdir(parents=True)
    _write(tmp_path / "raw" / "label=0" / "a.txt", "one\n")
    assert privatize_corpus(tmp_path / "raw", tmp_path / "out", Echo()).unprotected == ("label",)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (ColumnRule(drop=("*",)), "label"),
        (ColumnRule(drop=("lab?l",)), "label"),
        (ColumnRule(drop=("the year",)), "the year"),
        (ColumnRule(keep=("label", "stars")), "the year"),
    ],
)
def test_a_column_in_the_names_of_folders_cannot_be_left_out(tmp_path, partitioned, rule, name):
    with pytest.raises(CorpusError, match=rf"named by the column {name}"):
        privatize_corpus(partitioned, tmp_path / "out", Echo(), columns=rule)
    assert os.listdir(tmp_path) == ["raw"]


def test_a_text_in_the_names_of_folders_is_refused(tmp_path):
    (tmp_path / "raw" / f"text={SECRET}").mkdir(parents=True)
    _write(tmp_path / "raw" / f"text={SECRET}" / "a.jsonl", '{"text":"one"}\n')
    with pytest.raises(CorpusError, match="named by the column text") as caught:
        privatize_corpus(tmp_path / "raw", tmp_path / "out", Echo())
    assert SECRET not in str(caught.value)


def test_what_is_let_pass_by_name_may_stand_in_the_names_of_folders(tmp_path, partitioned):
    rule = ColumnRule(keep=("label", "the*"))
    report = privatize_corpus(partitioned, tmp_path / "out", Echo(), columns=rule)
    assert report.unprotected == ("label", "the year")
    assert report.unmatched == ()
