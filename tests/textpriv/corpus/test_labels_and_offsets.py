"""Labels in a column are spans of their record, and where spans went is told to their owner alone."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.engines.frames import privatize_frame
from textpriv.engines.identity import document_key
from textpriv.errors import CorpusError, SpanError
from textpriv.ledger import Document, Ledger
from textpriv.privatizer import Privatizer
from textpriv.run_key import RunKey
from textpriv.spans.span import read_labels

NAMES = [f"Name{number}" for number in range(500)]
SPANS = {
    "kinds": {
        "PERSON": {"law": "surrogate", "entries": NAMES, "consistent": "person"},
        "DATE": {"law": "date-shift", "epsilon": 0.01, "scope": "person"},
    }
}
TEXTS = {
    "Åsa saw Bob on 2020-02-28.": [(0, 3, "PERSON"), (8, 11, "PERSON"), (15, 25, "DATE")],
    "nobody was there": [],
    "On 2021-01-02 Åsa 👍 came": [(3, 13, "DATE"), (14, 17, "PERSON")],
}
ROWS = [
    {"id": f"d{number}", "who": f"p{number % 3}", "text": text, "spans": spans}
    for number, (text, spans) in enumerate([*TEXTS.items()] * 20)
]
NAMED = {"document_column": "id", "author_column": "who", "labels_column": "spans"}


@pytest.fixture(scope="module")
def settings(demo_index):
    return PrivatizerSettings(str(demo_index), options={"epsilon": 20.0}, spans=SPANS, seed=3)


def objects(spans):
    return [dict(zip(("start", "end", "label"), span, strict=True)) for span in spans]


def written(folder, kind: str):
    """The rows in a file of a format, with labels as such files have them."""
    rows = [{**row, "spans": objects(row["spans"])} for row in ROWS]
    path = folder / f"in.{kind.split('-')[0]}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "jsonl-triples":
        path.write_text(
            "".join(json.dumps({**row, "spans": json.dumps(row["spans"])}) + "\n" for row in ROWS)
        )
    elif kind == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(
                {**row, "spans": json.dumps(row["spans"]) if row["spans"] else ""} for row in rows
            )
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def private_rows(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with open(path, newline="") as file:
        return list(csv.DictReader(file)) if path.suffix == ".csv" else list(map(json.loads, file))


@pytest.fixture(scope="module")
def expected(settings):
    """Each text released by itself, with its labels."""
    single = settings.build()
    keys = [Document(document_key("text", row["id"]), row["who"]) for row in ROWS]
    return [
        {
            "id": row["id"],
            "who": row["who"],
            "text": single.privatize(row["text"], key, row["spans"]),
        }
        for row, key in zip(ROWS, keys, strict=True)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl-triples", "csv", "parquet"])
def test_labels_in_a_column_are_those_of_the_library_and_stay_behind(
    kind, settings, expected, tmp_path
):
    source = written(tmp_path, kind)
    target = tmp_path / f"out{source.suffix}"
    report = privatize_corpus(source, target, settings.build(), **NAMED)
    assert private_rows(target) == expected
    assert report.tokens["span PERSON"] == 60
    assert report.unprotected == ("id", "who")


def test_labels_of_a_frame_are_those_of_files(settings, expected):
    pandas = pytest.importorskip("pandas")

    table = pa.Table.from_pylist([{**row, "spans": objects(row["spans"])} for row in ROWS])
    frame = pandas.DataFrame(table.to_pylist())
    assert privatize_frame(frame, settings=settings, **NAMED).to_dict("records") == expected
    arrays = table.to_pandas()  # labels as numpy arrays
    assert privatize_frame(arrays, settings=settings, **NAMED).to_dict("records") == expected


@pytest.mark.parametrize(
    "labels",
    ["no JSON", "7", {"start": 0}, [[0, 1]], [[0, 99, "A"]], [["0", 1, "A"]], [[-1, 2, "A"]], [[3, 1, "A"]], [[0, 1, None]]],
)  # fmt: skip
def test_labels_that_do_not_fit_name_their_record_and_can_be_set_aside(labels, settings, tmp_path):
    rows = [{"id": str(number), "text": "secret words", "spans": []} for number in range(3)]
    rows[1]["spans"] = labels
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"document_column": "id", "labels_column": "spans"}
    with pytest.raises(CorpusError, match=r"record 2\)") as caught:
        privatize_corpus(source, target, settings.build(), **named)
    assert "secret" not in str(caught.value)
    report = privatize_corpus(source, target, settings.build(), on_error="skip", **named)
    assert (report.documents, report.skipped) == (2, {"labels": 1})


def test_a_record_without_its_labels_is_none_with_no_spans(settings, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "Bob"}\n')
    with pytest.raises(CorpusError, match=r"record 1\): expected labels in 'spans'"):
        privatize_corpus(
            tmp_path / "in.jsonl", tmp_path / "out.jsonl", settings.build(), labels_column="spans"
        )


def test_labels_need_a_policy_and_one_text(settings, tmp_path):
    source = written(tmp_path, "jsonl")
    with pytest.raises(CorpusError, match="policy of spans"):
        privatize_corpus(
            source,
            tmp_path / "out.jsonl",
            replace(settings, spans=None).build(),
            labels_column="spans",
        )
    with pytest.raises(CorpusError, match="one by one"):
        privatize_corpus(
            source,
            tmp_path / "out.jsonl",
            settings.build(),
            text_column=["text", "id"],
            labels_column="spans",
        )


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.floats(),
        lambda each: st.lists(each, max_size=4),
    )
)
def test_no_labels_end_otherwise_than_in_spans_or_an_error(given):
    for form in (given, json.dumps(given)):
        with contextlib.suppress(SpanError):
            assert all(len(span) == 3 for span in read_labels(form))


# Offsets


def carried(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_offsets_lead_from_each_span_to_its_surface_and_are_their_owners(
    settings, expected, tmp_path
):
    source, owners = written(tmp_path, "jsonl"), tmp_path / "moved.jsonl"
    made = {}
    for workers in (1, 2):
        target = tmp_path / f"out{workers}.jsonl"
        privatizer = settings.build()
        report = privatize_corpus(
            source,
            target,
            privatizer,
            offsets=owners,
            settings=settings,
            workers=workers,
            batch_size=7,
            overwrite=workers > 1,  # the offsets of the run before
            **NAMED,
        )
        assert private_rows(target) == expected
        made[workers] = owners.read_bytes()
        stated = report.stated(privatizer.statement).not_protected
        assert stated[-1].endswith(": where spans stood in the raw texts")
    assert made[1] == made[2]
    assert stat.S_IMODE(os.stat(owners).st_mode) == 0o600
    rows = carried(owners)
    assert [(row["document"], row["start"], row["end"], row["kind"]) for row in rows] == [
        (row["id"], *span) for row in ROWS for span in row["spans"]
    ]
    for row in rows:
        text = expected[row["record"] - 1]["text"]
        surface = text[row["private_start"] : row["private_end"]]
        assert surface in NAMES if row["kind"] == "PERSON" else len(surface) == 10
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "in.jsonl",
        "moved.jsonl",
        "out1.jsonl",
        "out2.jsonl",
    ]


@pytest.mark.parametrize("where", ["out/moved", "in/a.jsonl", "key", "out.quarantine.jsonl"])
def test_offsets_are_refused_in_the_output_and_over_other_files_of_the_run(
    where, settings, tmp_path
):
    (tmp_path / "in").mkdir()
    written(tmp_path, "jsonl").rename(tmp_path / "in" / "a.jsonl")
    key = RunKey.open(tmp_path / "key")
    secret = replace(settings, seed=None, run_key=key.secret)
    with pytest.raises(CorpusError, match="Name another file"):
        privatize_corpus(
            tmp_path / "in",
            tmp_path / "out",
            secret.build(),
            key=key,
            offsets=tmp_path / where,
            resume=False,
            **NAMED,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["ledger", "ledger-wal", "ledger-shm"])
def test_offsets_are_refused_over_a_ledger_and_what_it_has_counted_last(name, settings, tmp_path):
    made = replace(settings, seed=None).build()
    counted = Privatizer(
        made.mechanism, ledger=Ledger(tmp_path / "ledger"), spans=made.spans.policy
    )
    source, offsets = written(tmp_path, "jsonl"), tmp_path / name
    with pytest.raises(CorpusError, match="Name another file"):
        privatize_corpus(source, tmp_path / "out.jsonl", counted, offsets=offsets, **NAMED)


def test_offsets_may_go_to_another_file_system(settings, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    owners, replaced = tmp_path / "other" / "moved", os.replace

    def replace_within(old, new):
        if (Path(old).parent == tmp_path / "other") != (Path(new).parent == tmp_path / "other"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replaced(old, new)

    monkeypatch.setattr(os, "replace", replace_within)
    source = written(tmp_path, "jsonl")
    privatize_corpus(source, tmp_path / "out.jsonl", settings.build(), offsets=owners, **NAMED)
    assert carried(owners)


def test_a_resumed_run_has_the_offsets_of_a_whole_one(settings, tmp_path):
    source, options = written(tmp_path, "jsonl"), {**NAMED, "part_records": 10, "batch_size": 5}
    whole, owners = tmp_path / "whole.jsonl", tmp_path / "whole.moved"
    privatize_corpus(source, whole, settings.build(), offsets=owners, **options)
    target, moved = tmp_path / "out.jsonl", tmp_path / "out.moved"

    def stop(progress):
        if progress.documents >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privatize_corpus(
            source,
            target,
            settings.build(),
            offsets=moved,
            resume=False,
            on_progress=stop,
            **options,
        )
    assert not moved.exists()
    private = [
        each for each in (tmp_path / "out.jsonl.partial").iterdir() if each.suffix == ".moved"
    ]
    assert private
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in private)
    with pytest.raises(CorpusError, match="differing: offsets"):
        privatize_corpus(source, target, settings.build(), resume=True, **options)
    private[0].write_bytes(b"")  # a part whose offsets were lost is made anew
    report = privatize_corpus(
        source, target, settings.build(), offsets=moved, resume=True, **options
    )
    assert 0 < report.resumed < 30
    assert target.read_bytes() == whole.read_bytes()
    assert moved.read_bytes() == owners.read_bytes()


def test_the_command_takes_labels_from_a_column_and_writes_offsets(demo_index, tmp_path):
    source, owners = written(tmp_path, "csv"), tmp_path / "moved.jsonl"
    (tmp_path / "policy.toml").write_text('[kinds.PERSON]\nlaw = "mask"\n')
    common = [
        "--index",
        str(demo_index),
        "--epsilon",
        "20",
        "--policy",
        str(tmp_path / "policy.toml"),
    ]
    command = [
        "privatize",
        str(source),
        str(tmp_path / "out.csv"),
        *common,
        "--offsets",
        str(owners),
    ]
    result = CliRunner().invoke(app, [*command, "--detect", "column:spans", "--detect", "patterns"])
    assert result.exit_code == 0, result.output
    assert {row["kind"] for row in carried(owners)} == {"PERSON"}
    assert len(carried(owners)) == 60
    assert "spans" not in private_rows(tmp_path / "out.csv")[0]
    result = CliRunner().invoke(
        app, [*command, "--detect", "column:spans", "--detect", "column:who"]
    )
    assert result.exit_code == 2
    assert "one column" in result.output
    policy = tmp_path / "policy.toml"
    over = [*command[:-1], str(tmp_path / "." / policy.name), "--detect", "patterns"]
    result = CliRunner().invoke(app, over)
    assert result.exit_code == 1
    assert "written over" in result.output
    assert policy.read_text().startswith("[kinds")


@pytest.mark.parametrize("more", [["--detect", "column:spans"], ["--offsets", "moved"]])
def test_a_report_reads_no_labels_and_writes_no_offsets(more):
    arguments = ["--epsilon", "20", "--policy", "chat", "--detect", "patterns", *more]
    result = CliRunner().invoke(app, ["report", "--output", "page.html", *arguments])
    assert result.exit_code == 2, result.output
    assert "privatize" in result.output if "--detect" in more else "--offsets" in result.output
