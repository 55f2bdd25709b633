"""Runs: an output is whole or absent, is continued to the same bytes, and is never replaced unasked."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from echo import Echo
from small_corpora import content, read, rows, run, stop_at, write

from textpriv.corpus import ColumnRule, PrivatizerSettings, Progress, privatize_corpus, unnamed_key
from textpriv.errors import CorpusError, LimitError
from textpriv.ledger import DocumentName
from textpriv.run_key import RunKey


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return write(tmp_path_factory.mktemp("lines") / "raw.jsonl", rows(40))


@pytest.fixture
def shards(tmp_path):
    for n in range(3):
        write(tmp_path / "raw" / f"{n}.parquet", rows(90)[30 * n : 30 * n + 30])
    return tmp_path / "raw"


class _Failing(Echo):
    """Fails at the second batch."""

    def release_batch(self, batch, keys):
        if self.keys:
            raise OSError("no space left")
        return super().release_batch(batch, keys)


# Whole or absent


def test_a_failure_leaves_no_file_and_the_old_output_untouched(tmp_path):
    source = write(tmp_path / "a.jsonl", rows(4))
    (tmp_path / "b.jsonl").write_text("old")
    private = _Failing()
    private.seed = None
    with pytest.raises(OSError, match="no space"):
        privatize_corpus(source, tmp_path / "b.jsonl", private, batch_size=1, overwrite=True)
    assert (tmp_path / "b.jsonl").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "b.jsonl"]


def test_while_running_the_output_is_hidden_and_private(tmp_path):
    seen = []

    def look(progress):
        for path in (tmp_path / "out.jsonl.partial").rglob("*"):
            seen.append(stat.S_IMODE(path.stat().st_mode) & 0o077)
        assert not (tmp_path / "out.jsonl").exists()

    source = write(tmp_path / "a.jsonl", rows(9))
    privatize_corpus(source, tmp_path / "out.jsonl", Echo(), batch_size=2, on_progress=look)
    assert set(seen) == {0}
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o666 & ~mask


def test_the_manifest_has_the_checksums_the_counts_and_the_statement(index, shards, tmp_path):
    run(index, shards, tmp_path / "out")
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert [each["name"] for each in manifest["files"]] == ["0.parquet", "1.parquet", "2.parquet"]
    for each in manifest["files"]:
        assert (tmp_path / "out" / each["name"]).stat().st_size == each["bytes"]
    assert manifest["documents"] == 90
    assert "id" in " ".join(manifest["statement"]["not_protected"])
    assert sorted(os.listdir(tmp_path / "out")) == ["0.parquet", "1.parquet", "2.parquet"]


@pytest.mark.parametrize("key", ["two keys", "one key"])
def test_the_manifest_confirms_no_guess_of_the_input(index, lines, tmp_path, key):
    """Of two runs over one input nothing in the manifests that follows from the input is equal."""
    for name in ("a.jsonl", "b.jsonl"):
        own = {"key": tmp_path / "k"} if key == "one key" else {}
        run(index, lines, tmp_path / name, **own)
    first, second = (
        json.loads((tmp_path / f"{name}.jsonl.manifest.json").read_text())["job"]
        for name in ("a", "b")
    )
    assert first["input"] != second["input"]
    assert not {str(v) for v in first.values()} & {str(v) for v in second.values()}


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "folder"])
def test_an_output_never_replaces_its_input(tmp_path, link):
    source = write(tmp_path / "raw" / "a.jsonl", rows(1))
    target = tmp_path / "b.jsonl"
    if link == "symbolic":
        target.symlink_to(source)
    elif link == "hard":
        target.hardlink_to(source)
    elif link == "folder":
        source, target = tmp_path / "raw", tmp_path / "raw" / "out"
    else:
        target = source
    with pytest.raises(CorpusError, match=r"written over|is in"):
        privatize_corpus(source, target, Echo(), overwrite=True)


@pytest.mark.parametrize("what", ["key", "ledger"])
def test_no_secret_is_put_into_the_output(index, shards, tmp_path, what):
    place = tmp_path / "out" / "secret"
    settings = PrivatizerSettings(str(index), options={"epsilon": 2.0}, run_key=b"K" * 32)
    options = {"document_column": "id", "overwrite": True}
    if what == "key":
        options["key"] = RunKey(place, b"K" * 32, fresh=True)
    elif what == "ledger":
        (tmp_path / "out").mkdir()
        settings = PrivatizerSettings(str(index), options={"epsilon": 2.0}, ledger=str(place))
    with pytest.raises(CorpusError, match="must be elsewhere"):
        privatize_corpus(shards, tmp_path / "out", settings.build(), **options)


# Streams


def test_standard_input_and_output_carry_records(tmp_path, monkeypatch):
    given, taken = io.BytesIO(b"one\ntwo\n"), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken))
    report = privatize_corpus("-", "-", Echo())
    assert (taken.getvalue(), report.documents) == (b"[one]\n[two]\n", 2)


@pytest.mark.parametrize("ends", [("-", "b.jsonl"), ("a.jsonl", "-")])
def test_a_stream_without_names_has_no_run_key(tmp_path, ends):
    write(tmp_path / "a.jsonl", rows(1))
    ends = [end if end == "-" else tmp_path / end for end in ends]
    with pytest.raises(CorpusError, match="passes only once"):
        privatize_corpus(*ends, Echo(), key=RunKey.open(tmp_path / "key"))
    assert os.listdir(tmp_path) == ["a.jsonl"]


# Documents


def test_an_unnamed_document_has_the_key_of_its_text_and_occurrence(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\none\n")
    echo = Echo()
    privatize_corpus(tmp_path / "a.txt", tmp_path / "b.txt", echo, on_error="skip", batch_size=2)
    wanted = [("one", 1), ("two", 1), ("one", 2)]
    assert echo.keys == [DocumentName(unnamed_key("text", *each)) for each in wanted]


def test_a_corpus_comes_out_the_same_however_it_is_cut_and_by_several_workers(
    index, shards, tmp_path
):
    whole = write(tmp_path / "whole" / "a.parquet", rows(90))
    run(index, shards, tmp_path / "out", workers=2)
    run(index, whole.parent, tmp_path / "b", key=tmp_path / "out.key", part_records=1000)
    cut = [row for n in range(3) for row in read(tmp_path / "out" / f"{n}.parquet")]
    assert cut == read(tmp_path / "b" / "a.parquet")


# Continued


def test_an_interrupted_run_goes_on_to_the_same_bytes(index, shards, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(index, shards, tmp_path / "out", on_progress=stop_at(50))
    assert not (tmp_path / "out").exists()
    with pytest.raises(CorpusError, match="--resume, or begin again with --force"):
        run(index, shards, tmp_path / "out")
    report = run(index, shards, tmp_path / "out", resume=True)
    assert 0 < report.resumed < report.documents == 90
    run(index, shards, tmp_path / "again", key=tmp_path / "out.key")
    assert content(tmp_path / "out") == content(tmp_path / "again")
    assert not (tmp_path / "out.partial").exists()


def test_a_damaged_part_is_made_again(index, lines, tmp_path):
    for damaged in ("*.part", "*-*.json"):
        target = tmp_path / damaged.replace("*", "x") / "out.jsonl"
        target.parent.mkdir()
        with pytest.raises(KeyboardInterrupt):
            run(index, lines, target, on_progress=stop_at(30))
        path = sorted(target.with_name("out.jsonl.partial").glob(damaged))[0]
        path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))
        run(index, lines, target, resume=True)
        run(index, lines, target.with_name("b.jsonl"), key=target.with_name("out.jsonl.key"))
        assert content(target) == content(target.with_name("b.jsonl"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": 5.0}, "epsilon"),
        ({"document_column": "id"}, "columns"),
        ({"columns": ColumnRule(drop=("*",))}, "columns"),
        ({"part_records": 11}, "part"),
        ({"on_error": "skip"}, "bad records"),
        ({"key": "other.key"}, "key or seed, or the key was destroyed"),
    ],
)
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_run_under_other_settings_is_refused_and_says_what_changed(
    index, lines, tmp_path, change, named, is_finished
):
    if "key" in change:
        change = {"key": tmp_path / "other.key"}
    target = tmp_path / "out.jsonl"
    if is_finished:
        run(index, lines, target)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(index, lines, target, on_progress=stop_at(20))
    before = content(target) if is_finished else None
    with pytest.raises(CorpusError, match=rf"changed: {named}\)\. .* adds to their privacy loss"):
        run(index, lines, target, resume=True, **change)
    assert not is_finished or content(target) == before
    run(index, lines, target, overwrite=True, **change)
    assert named in ("part", "bad records") or content(target) != before


def test_a_finished_folder_under_other_settings_is_refused_too(index, shards, tmp_path):
    run(index, shards, tmp_path / "out")
    before = content(tmp_path / "out")
    with pytest.raises(CorpusError, match=r"changed: epsilon\)\. .* adds to their privacy loss"):
        run(index, shards, tmp_path / "out", resume=True, epsilon=5.0)
    assert content(tmp_path / "out") == before
    with pytest.raises(CorpusError, match="exists"):
        run(index, shards, tmp_path / "out", epsilon=5.0, overwrite=True)
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_finished_output_is_recognised_in_under_a_second(index, lines, shards, tmp_path, kind):
    source, target = (lines, tmp_path / "o.jsonl") if kind == "file" else (shards, tmp_path / "o")
    first = run(index, source, target)
    before, started = content(target), time.perf_counter()
    report = run(index, source, target, resume=True)
    assert time.perf_counter() - started < 1.0
    assert report.documents == report.resumed == first.documents
    assert report.tokens == first.tokens
    assert report.besides == first.besides
    assert content(target) == before


def test_an_output_that_is_there_stays_unless_it_is_forced(index, lines, tmp_path):
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    for options in ({}, {"resume": True}):
        with pytest.raises(CorpusError, match="exists"):
            run(index, lines, target, **options)
    assert target.read_text() == "mine"
    run(index, lines, target, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("mine")
    with pytest.raises(CorpusError, match="exists"):
        run(index, lines.parent, tmp_path / "mine", overwrite=True)


def test_continuing_needs_something_that_repeats_the_draws(index, lines, tmp_path):
    privatizer = PrivatizerSettings(str(index), options={"epsilon": 4.0}).build()
    with pytest.raises(CorpusError, match="run key, a seed or a ledger"):
        privatize_corpus(lines, tmp_path / "b.jsonl", privatizer, resume=True)


def test_a_changed_shard_of_a_finished_folder_is_refused(index, shards, tmp_path):
    run(index, shards, tmp_path / "out")
    write(shards / "1.parquet", rows(200)[170:])
    write(shards / "3.parquet", rows(100)[90:])
    with pytest.raises(CorpusError, match=r"changed: input 1.parquet, input 3.parquet"):
        run(index, shards, tmp_path / "out", resume=True)


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_change_in_the_middle_of_a_large_input_is_refused(index, tmp_path, is_finished):
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": "a word", "note": "a" * 1000}) + "\n" for _ in range(400)]
    source.write_text("".join(lines))
    stop = {} if is_finished else {"on_progress": stop_at(20)}
    with contextlib.nullcontext() if is_finished else pytest.raises(KeyboardInterrupt):
        run(index, source, tmp_path / "out.jsonl", **stop)
    lines[200] = lines[200].replace("a" * 1000, "b" * 1000)
    source.write_text("".join(lines))
    with pytest.raises(CorpusError, match="changed: input"):
        run(index, source, tmp_path / "out.jsonl", resume=True)


def test_new_shards_are_added_to_a_finished_folder(index, shards, tmp_path):
    out, options = tmp_path / "out", {"document_column": "id", "on_error": "quarantine"}
    later = rows(150)[90:]
    for name, new in (("1a", later[:30]), ("9", later[30:])):
        write(tmp_path / "later" / f"{name}.parquet", [*new, {"id": "n0", "text": "bana"}])
    run(index, shards, out, **options)
    before = content(out)
    for path in (tmp_path / "later").iterdir():
        path.rename(shards / path.name)
    with pytest.raises(CorpusError, match="exists"):
        run(index, shards, out, **options)
    for documents in (110, 130):  # interrupted twice
        with pytest.raises(KeyboardInterrupt):
            run(index, shards, out, resume=True, on_progress=stop_at(documents), **options)
    assert content(out) == before
    report = run(index, shards, out, resume=True, **options)
    run(index, shards, tmp_path / "whole", key=tmp_path / "out.key", **options)
    assert content(out) == content(tmp_path / "whole")
    manifests = (tmp_path / f"{name}.manifest.json" for name in ("out", "whole"))
    added, whole = (json.loads(each.read_text()) for each in manifests)
    assert [each["name"] for each in added["files"]][-2:] == ["1a.parquet", "9.parquet"]
    for name in ("documents", "tokens", "skipped", "statement"):
        assert added[name] == whole[name], name
    aside = [(tmp_path / f"{name}.quarantine.jsonl").read_text() for name in ("out", "whole")]
    assert sorted(aside[0].splitlines()) == sorted(aside[1].splitlines())
    assert report.documents == 150
    assert run(index, shards, out, resume=True, **options).resumed == 150


def test_equal_texts_of_an_added_shard_are_drawn_independently(index, tmp_path):
    given = [{"text": row["text"]} for row in rows(20)]
    for n in range(2):
        write(tmp_path / "raw" / f"{n}.jsonl", given)
        run(index, tmp_path / "raw", tmp_path / "out", epsilon=0.1, resume=True)
    first, second = (read(tmp_path / "out" / f"{n}.jsonl") for n in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_shards_that_come_after_an_interrupted_run_began_are_added(index, shards, tmp_path):
    options = {"document_column": "id"}
    with pytest.raises(KeyboardInterrupt):
        run(index, shards, tmp_path / "out", on_progress=stop_at(40), **options)
    write(shards / "0a.parquet", rows(100)[90:])
    report = run(index, shards, tmp_path / "out", resume=True, **options)
    assert 0 < report.resumed < 90 < report.documents == 100
    run(index, shards, tmp_path / "whole", key=tmp_path / "out.key", **options)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


# Stores


def test_a_store_gets_the_objects_that_a_folder_gets(index, shards, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = fsspec.filesystem("memory")
    for path in shards.iterdir():
        store.pipe_file(f"/raw/{path.name}", path.read_bytes())
    options = {"key": tmp_path / "key", "resume": True}
    with pytest.raises(KeyboardInterrupt):
        run(index, "memory://raw", "memory://out", on_progress=stop_at(50), **options)
    assert not store.exists("/out")
    report = run(index, "memory://raw", "memory://out", **options)
    assert 0 < report.resumed < report.documents == 90
    run(index, shards, tmp_path / "out", **options)
    made = {name.removeprefix("/out/"): store.cat_file(name) for name in store.find("/out")}
    assert made == content(tmp_path / "out")
    assert run(index, "memory://raw", "memory://out", **options).resumed == 90
    assert json.loads(store.cat_file("/out.manifest.json"))["documents"] == 90
    with pytest.raises(FileNotFoundError, match="memory://none"):
        run(index, "memory://none.jsonl", "memory://b.jsonl", key=tmp_path / "key")


# Progress


@pytest.mark.parametrize(
    ("workers", "kind", "cuts"),
    [(1, "jsonl", (0, 30, 100, 300, 420, 500)), (2, "parquet", range(0, 600, 100))],
)
def test_the_fraction_is_that_of_the_records_written(index, tmp_path, workers, kind, cuts):
    whole = rows(500)
    for n, (begin, end) in enumerate(itertools.pairwise(cuts)):
        write(tmp_path / "raw" / f"{n}.{kind}", whole[begin:end])
    seen: list[Progress] = []
    options = {"workers": workers, "part_records": 50, "on_progress": seen.append}
    run(index, tmp_path / "raw", tmp_path / "out", **options)
    assert (seen[0].fraction, seen[0].documents) == (0.0, 0)
    assert len(seen) > 50
    for progress in seen:
        assert abs(progress.fraction - progress.documents / 500) < 0.05


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_first_fraction_of_a_continued_run_counts_what_is_finished(index, tmp_path, kind):
    for n in range(3):
        write(tmp_path / "raw" / f"{n}.{kind}", rows(90)[30 * n : 30 * n + 30])
    with pytest.raises(KeyboardInterrupt):
        run(index, tmp_path / "raw", tmp_path / "out", on_progress=stop_at(50))
    seen: list[Progress] = []
    run(index, tmp_path / "raw", tmp_path / "out", resume=True, on_progress=seen.append)
    assert 30 < seen[0].documents < 90
    assert abs(seen[0].fraction - seen[0].documents / 90) < 0.02
    assert [each.fraction for each in seen] == sorted(each.fraction for each in seen)


def test_the_first_event_comes_before_anything_is_released(index, tmp_path):
    source = write(tmp_path / "a.jsonl", rows(3))
    with pytest.raises(KeyboardInterrupt):
        run(index, source, tmp_path / "b.jsonl", on_progress=stop_at(0))


# Inputs


@pytest.mark.parametrize("change", ["append", "overwrite", "replace"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_input_that_changes_while_it_is_read_stops_the_run(index, tmp_path, change, kind):
    source = write(tmp_path / f"a.{kind}", rows(40))

    def spoil(progress):
        if progress.documents < 10:
            return
        content = source.read_bytes()
        if change == "append":
            with source.open("ab") as file:
                file.write(b"\n")
        elif change == "overwrite":
            time.sleep(0.02)
            source.write_bytes(content)
        else:
            os.replace(write(tmp_path / f"b.{kind}", rows(41)), source)

    with pytest.raises(CorpusError, match=rf"a.{kind} changed while it was read"):
        run(index, source, tmp_path / f"c.{kind}", on_progress=spoil)
    assert not (tmp_path / f"c.{kind}").exists()


@pytest.mark.parametrize(
    ("begin", "kind"),
    [('{"text":"one"}', "jsonl"), ("id,text", "csv"), ("text", "csv"), ("id\ttext", "tsv")],
)
@pytest.mark.parametrize("target", ["-", "out.txt"])
def test_standard_input_with_columns_is_not_read_as_text(
    tmp_path, monkeypatch, begin, kind, target
):
    monkeypatch.chdir(tmp_path)
    given = f"{begin}\n1,one\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(CorpusError, match=rf"begins like {kind}, .* --format {kind}"):
        privatize_corpus("-", target, Echo())
    assert os.listdir(tmp_path) == []


def test_a_stream_of_a_named_format_is_not_guessed(monkeypatch):
    given, taken = io.BytesIO(b'{"text":"one"}\n'), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken))
    privatize_corpus("-", "-", Echo(), format="text")
    assert taken.getvalue() == b'[{"text":"one"}]\n'


STREAM = """
import sys
sys.path.insert(0, sys.argv[1])
from echo import Echo
from textpriv.corpus import privatize_corpus
privatize_corpus("-", "-", Echo(), format="jsonl")
"""


def test_a_record_of_a_stream_does_not_wait_for_the_next():
    command = [sys.executable, "-c", STREAM, str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stdin=-1, stdout=-1, bufsize=0) as process:
        for text in ("one", "two"):
            process.stdin.write(b'{"text":"%s"}\n' % text.encode())
            assert process.stdout.readline() == b'{"text":"[%s]"}\n' % text.encode()


def test_several_inputs_and_patterns_become_a_folder(tmp_path):
    for name in ("a/1.jsonl", "a/2.jsonl", "b/3.jsonl"):
        write(tmp_path / name, rows(2))
    privatize_corpus([tmp_path / "a" / "*.jsonl", tmp_path / "b/3.jsonl"], tmp_path / "out", Echo())
    assert sorted(content(tmp_path / "out")) == ["1.jsonl", "2.jsonl", "3.jsonl"]
    with pytest.raises(CorpusError, match=r"No file matches .*\.csv"):
        privatize_corpus(tmp_path / "a" / "*.csv", tmp_path / "c", Echo())
    write(tmp_path / "b" / "1.jsonl", rows(1))
    with pytest.raises(CorpusError, match=r"second file named 1\.jsonl"):
        privatize_corpus(
            [tmp_path / "a" / "1.jsonl", tmp_path / "b/1.jsonl"], tmp_path / "d", Echo()
        )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_shards_with_other_columns_stop_before_anything_is_made(index, tmp_path, kind):
    write(tmp_path / "raw" / f"1.{kind}", rows(3))
    write(tmp_path / "raw" / f"2.{kind}", [{**row, "mail": "x"} for row in rows(3)])
    with pytest.raises(CorpusError, match=rf"2\.{kind} has other columns than .*: mail"):
        run(index, tmp_path / "raw", tmp_path / "out")
    assert os.listdir(tmp_path) == ["raw"]
    run(index, tmp_path / "raw", tmp_path / "out", columns=ColumnRule(drop=("mail",)))


def test_a_shard_that_rotated_away_does_not_stop_the_next_run(index, tmp_path):
    options = {"document_column": "id", "resume": True, "rotates": True}
    for n in range(3):
        write(tmp_path / "raw" / f"{n}.jsonl", rows(30)[10 * n : 10 * n + 10])
        report = run(index, tmp_path / "raw", tmp_path / "out", **options)
        (tmp_path / "raw" / f"{n - 1}.jsonl").unlink(missing_ok=True)
    assert (report.documents, report.resumed) == (30, 20)
    assert sorted(content(tmp_path / "out")) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert run(index, tmp_path / "raw", tmp_path / "out", **options).resumed == 30
    with pytest.raises(CorpusError, match=r"changed: input 1\.jsonl, input 0\.jsonl"):
        run(index, tmp_path / "raw", tmp_path / "out", **{**options, "rotates": False})
    write(tmp_path / "raw" / "2.jsonl", rows(3))
    with pytest.raises(CorpusError, match=r"changed: input 2\.jsonl"):
        run(index, tmp_path / "raw", tmp_path / "out", **options)


def test_an_input_that_rotates_needs_named_documents(index, shards, tmp_path):
    with pytest.raises(CorpusError, match="needs named documents"):
        run(index, shards, tmp_path / "out", resume=True, rotates=True)


def test_documents_over_a_limit_are_left_out_and_named(index, tmp_path):
    given = [
        {**row, "who": "ann" if n in (3, 8, 15) else f"a{n}"} for n, row in enumerate(rows(20))
    ]
    source, options = write(tmp_path / "a.jsonl", given), {"document_column": "id"}
    settings = PrivatizerSettings(
        str(index), options={"epsilon": 2.0}, ledger=str(tmp_path / "l"), limits={"author_limit": 0}
    )
    loss = settings.build()._terms.word_loss
    settings = replace(settings, limits={"author_limit": 25.5 * loss})
    options |= {"author_column": "who", "settings": settings, "batch_size": 10}
    with pytest.raises(LimitError, match=r"record 9: the limit of this author"):
        privatize_corpus(source, tmp_path / "b.jsonl", settings.build(), **options)
    options |= {"on_error": "quarantine", "resume": True}
    report = privatize_corpus(source, tmp_path / "b.jsonl", settings.build(), **options)
    assert (report.documents, report.skipped) == (18, {"limit": 2})
    assert report.refused == (f"{source}, record 9", f"{source}, record 16")
    kept = [row["id"] for row in read(tmp_path / "b.jsonl")]
    assert kept == [f"n{n}" for n in range(20) if n not in (8, 15)]
    aside = list(map(json.loads, Path(report.quarantine).read_text().splitlines()))
    assert [json.loads(each["raw"]) for each in aside] == [given[8], given[15]]


def test_all_documents_of_a_batch_over_a_limit_are_named(index, tmp_path):
    source = write(tmp_path / "a.jsonl", rows(4))
    limits = {"document_nats_limit": 1}
    settings = PrivatizerSettings(
        str(index), options={"epsilon": 2.0}, ledger=str(tmp_path / "l"), limits=limits
    )
    with pytest.raises(LimitError, match=r"record 1: .* of 2, 3, 4, too"):
        privatize_corpus(source, tmp_path / "b.jsonl", settings.build(), document_column="id")


def test_an_engine_of_another_name_is_refused(tmp_path):
    (tmp_path / "in.txt").write_text("a text\n")
    with pytest.raises(CorpusError, match="engine must be local, spark or ray"):
        privatize_corpus(tmp_path / "in.txt", tmp_path / "out.txt", Echo(), engine="Spark")
    assert not (tmp_path / "out.txt.partial").exists()
