"""Typed spans in whole corpora: the same bytes from every worker, resumed or not, and errors that name their record."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from dataclasses import replace
from datetime import date
from functools import partial

import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.engines.identity import document_key
from textpriv.errors import CorpusError, TextprivError
from textpriv.ledger import Document
from textpriv.run_key import RunKey
from textpriv.spans import detectors

POLICY = {
    "kinds": {
        "DATE": {"law": "date-shift", "epsilon": 1 / 365, "scope": "person"},
        "NUMBER": {"law": "number", "epsilon": 0.5, "low": 0, "high": 100},
        "EMAIL": {"law": "mask"},
    }
}
RECORDS = [
    {"id": f"{number}", "who": f"p{number % 3}", "text": text}
    for number, text in enumerate(
        [
            "Seen on 2020-02-28 and on 2020-03-01, mail ann@example.org!",
            "She took 5 of them on 2021-01-31.",
            "The patient was there on 2019-12-24.",
            "Nothing to say",
        ]
        * 6
    )
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    return path


@pytest.fixture
def settings(demo_index):
    return PrivatizerSettings(
        index=str(demo_index),
        options={"epsilon": 20.0},
        spans=POLICY,
        detect=("patterns",),
        run_key=b"K" * 32,
    )


def released(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def days(text):
    return [date.fromisoformat(each) for each in re.findall(r"\d{4}-\d\d-\d\d", text)]


def test_workers_batches_and_single_texts_release_the_same(source, settings, tmp_path):
    seeded = replace(settings, seed=7)
    options = {"settings": seeded, "document_column": "id", "author_column": "who"}
    for name, more in {"one": {}, "two": {"workers": 2, "batch_size": 3}}.items():
        target = tmp_path / name
        report = privatize_corpus(source, target, seeded.build(), format="jsonl", **options, **more)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert report.tokens["span DATE"] == 24
    assert report.tokens["span NUMBER"] == 6
    assert report.tokens["span EMAIL"] == 6
    single = seeded.build()
    for record, private in zip(RECORDS[:4], released(tmp_path / "one"), strict=False):
        key = Document(document_key("text", record["id"]), record["who"])
        assert single.privatize(record["text"], key) == private["text"]


def test_a_patients_dates_keep_their_intervals_and_two_patients_do_not(source, settings, tmp_path):
    privatize_corpus(
        source,
        tmp_path / "out",
        settings.build(),
        format="jsonl",
        document_column="id",
        author_column="who",
    )
    moved = {}
    for raw, private in zip(RECORDS, released(tmp_path / "out"), strict=True):
        for before, after in zip(days(raw["text"]), days(private["text"]), strict=True):
            moved.setdefault(raw["who"], set()).add(after - before)
    assert [len(each) for each in moved.values()] == [1, 1, 1]
    assert len(set.union(*moved.values())) == 3


def test_a_law_of_a_person_needs_to_know_whose_text_it_is(source, settings, tmp_path):
    with pytest.raises(TextprivError, match="whose text it is"):
        privatize_corpus(
            source, tmp_path / "out", settings.build(), format="jsonl", document_column="id"
        )
    with pytest.raises(CorpusError, match="beside documents"):
        privatize_corpus(
            source, tmp_path / "out", settings.build(), format="jsonl", author_column="who"
        )
    assert not (tmp_path / "out").exists()


class Beyond:
    def detect(self, texts):
        for text in texts:
            yield [(0, 99 if text.startswith("Nothing") else 1, "EMAIL")]

    def fingerprint(self):
        return "beyond"


def test_a_span_beyond_its_text_names_the_record_and_nothing_is_published(
    source, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(detectors, "make_detector", lambda *given: Beyond())
    with pytest.raises(TextprivError, match="record 4: span 0"):
        privatize_corpus(source, tmp_path / "out", settings.build(), format="jsonl")
    assert not (tmp_path / "out").exists()


def test_a_run_with_spans_whose_workers_are_killed_goes_on_to_the_same_bytes(settings, tmp_path):
    # More batches than may be in flight at once, so that some are not begun when the workers die.
    records = [RECORDS[n % len(RECORDS)] | {"id": f"{n}"} for n in range(120)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in records))
    key = RunKey.beside(tmp_path / "out.jsonl")
    settings = replace(settings, run_key=key.secret)
    options = {"settings": settings, "document_column": "id", "author_column": "who", "key": key}

    def kill(progress):
        if progress.documents == 6:  # once a part is there
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)

    run = partial(privatize_corpus, source, part_records=3, **options)
    with pytest.raises(CorpusError, match="worker process ended"):
        run(
            tmp_path / "out.jsonl",
            settings.build(),
            workers=2,
            batch_size=1,
            on_progress=kill,
            resume=False,
        )
    assert not (tmp_path / "out.jsonl").exists()
    report = run(tmp_path / "out.jsonl", settings.build(), resume=True)
    assert 0 < report.resumed < report.documents == len(records)
    run(tmp_path / "whole.jsonl", settings.build())
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_the_command_repeats_a_run_with_spans(source, demo_index, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[kinds.DATE]\nlaw = "mask"\n[kinds.NUMBER]\nlaw = "number"\nepsilon = 1\nlow = 0\nhigh = 9\n'
    )
    common = [
        "--index",
        str(demo_index),
        "--epsilon",
        "20",
        "--key",
        str(tmp_path / "key"),
        "--json",
    ]
    spans = ["--detect", "patterns", "--policy", str(policy)]
    outputs = []
    for name in ("a.jsonl", "b.jsonl"):
        result = CliRunner().invoke(
            app, ["privatize", str(source), str(tmp_path / name), *common, *spans]
        )
        assert result.exit_code == 0, result.output
        outputs.append((tmp_path / name).read_bytes())
    assert outputs[0] == outputs[1]
    statement = json.loads(result.stdout)["statement"]
    assert statement["figures"]["span_loss_NUMBER"] == 9
    assert "[DATE]" in outputs[0].decode()
    assert "2020-02-28" not in outputs[0].decode()


@pytest.mark.parametrize("given", [["--detect", "patterns"], ["--policy", "chat"]])
def test_the_command_wants_a_detector_and_a_policy_together(source, demo_index, tmp_path, given):
    command = [
        "privatize",
        str(source),
        str(tmp_path / "out.jsonl"),
        "--index",
        str(demo_index),
        "--epsilon",
        "20",
    ]
    result = CliRunner().invoke(app, [*command, *given])
    assert result.exit_code == 2
    assert "give both" in result.output
