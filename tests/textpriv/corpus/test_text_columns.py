"""Several columns of texts in one run: each comes out as if it were the only one, and all of them are counted."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LEVEL
from echo import Echo
from scipy.stats import binom
from small_indexes import saved
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.corpus import (
    ColumnRule,
    PrivatizerSettings,
    document_key,
    privatize_corpus,
    unnamed_key,
)
from textpriv.engines.batch import BatchRelease, Columns
from textpriv.errors import CorpusError, LimitError
from textpriv.ledger import Ledger
from textpriv.privatizer import Privatizer
from textpriv.run_key import RunKey

pytestmark = pytest.mark.usefixtures("without_torch")
WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "ae", "nrst", "o")]
TEXT = " ".join(WORDS * 4)
FORMATS = ["jsonl", "csv", "tsv", "parquet"]
COLUMNS = ["subject", "body", "reply"]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS, 6)


@pytest.fixture
def settings(index) -> PrivatizerSettings:
    return PrivatizerSettings(str(index), options={"epsilon": 0.5}, run_key=b"K" * 32)


def rows(count: int) -> list[dict]:
    rng = np.random.default_rng(1)
    draw = lambda: " ".join(rng.choice(WORDS, size=6))
    return [
        {"id": f"n{number}", "stars": number, **{name: draw() for name in COLUMNS}}
        for number in range(count)
    ]


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        between = "\t" if path.suffix == ".tsv" else ";"
        lines = [rows[0], *(row.values() for row in rows)]
        path.write_text("".join(between.join(map(str, line)) + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    between = "\t" if path.suffix == ".tsv" else ";"
    header, *lines = (line.split(between) for line in path.read_text().splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def run(source, target, settings, columns, **options) -> Path:
    key = RunKey(target.with_name("run.key"), settings.run_key, fresh=False)
    key.path.write_bytes(key.secret)
    key.path.chmod(0o600)
    options = {"resume": False, "part_records": 4, "batch_size": 3, **options}
    privatize_corpus(source, target, settings.build(), text_column=columns, key=key, **options)
    return target


@pytest.mark.parametrize("extension", FORMATS)
def test_each_text_is_known_by_its_column_and_stands_in_it(tmp_path, extension):
    source, together, alone = write(tmp_path / f"in.{extension}", rows(11)), Echo(), Echo()
    options = {"part_records": 4, "batch_size": 3}
    for document in ("id", None):
        options["document_column"] = document
        target = tmp_path / f"{document}.{extension}"
        privatize_corpus(source, target, together, text_column=COLUMNS, overwrite=True, **options)
        for name in COLUMNS:
            one = tmp_path / f"{name} {document}.{extension}"
            privatize_corpus(source, one, alone, text_column=name, **options)
        wanted = read(source)
        for row in wanted:
            row |= {name: f"[{row[name]}]" for name in COLUMNS}
        assert read(target) == wanted
    assert Counter(together.keys) == Counter(alone.keys)


def test_each_column_comes_out_as_if_it_were_the_only_one(tmp_path, settings):
    source = write(tmp_path / "in.jsonl", rows(11))
    made = run(source, tmp_path / "all.jsonl", settings, COLUMNS)
    for name in COLUMNS:
        alone = run(source, tmp_path / f"{name}.jsonl", settings, name)
        assert [row[name] for row in read(made)] == [row[name] for row in read(alone)]


@pytest.mark.parametrize("document", ["id", None], ids=["names", "numbers"])
def test_equal_texts_in_the_columns_of_a_row_come_out_independently(tmp_path, settings, document):
    source = write(tmp_path / "in.jsonl", [{"id": "a", **dict.fromkeys(COLUMNS, TEXT)}])
    (row,) = read(run(source, tmp_path / "out.jsonl", settings, COLUMNS, document_column=document))
    mechanism = settings.build().mechanism
    agree = max(float(np.exp(mechanism.log_prob(word)).max()) for word in WORDS)
    for first, second in itertools.combinations(COLUMNS, 2):
        pairs = zip(row[first].split(), row[second].split(), strict=True)
        assert sum(a == b for a, b in pairs) <= binom.isf(LEVEL, len(WORDS) * 4, agree)


def test_what_documents_are_known_by_stays_what_it_was():
    framed, digest = b"\x00" * 7 + b"\x04body", hashlib.sha256(b"one").digest()
    assert document_key("body", "a") == framed + b"d" + b"\x00" * 7 + b"\x01a"
    assert unnamed_key("body", "one", 2) == framed + b"t" + digest + b"\x00" * 7 + b"\x02"


def test_a_batch_of_the_engines_has_the_keys_of_each_column_alone(settings):
    made = rows(7)
    batch, private = pa.RecordBatch.from_pylist(made), settings.build()
    for columns in (COLUMNS[:2], COLUMNS):
        done = BatchRelease(private, Columns(columns, document="id"))(batch).to_pylist()
        for row, released in zip(made, done, strict=True):
            for name in COLUMNS:
                alone = private.privatize(row[name], key=document_key(name, row["id"]))
                assert released[name] == (alone if name in columns else row[name])


def test_a_folder_partitioned_by_columns_is_kept_as_it_is(tmp_path):
    for extension in FORMATS:
        source = tmp_path / extension / "in"
        for year in (2025, 2026):
            write(source / f"year={year}" / "lang=en" / f"a.{extension}", rows(2))
        privatize_corpus(source, tmp_path / extension / "out", Echo(), text_column=COLUMNS)
        for year in (2025, 2026):
            path = Path(f"year={year}", "lang=en", f"a.{extension}")
            wanted = [
                {**row, **{name: f"[{row[name]}]" for name in COLUMNS}}
                for row in read(source / path)
            ]
            assert read(tmp_path / extension / "out" / path) == wanted


def test_a_ledger_counts_every_column_of_a_document(tmp_path, settings):
    source = write(tmp_path / "in.jsonl", rows(3))
    counted = replace(settings, ledger=str(tmp_path / "ledger"))
    for target in ("one.jsonl", "two.jsonl"):
        private = counted.build()
        privatize_corpus(
            source, tmp_path / target, private, text_column=COLUMNS, document_column="id"
        )
        spent = private.ledger.spent(document="n0")
        assert (spent.releases, list(spent.epsilon.values())) == (3, [1.5])
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_a_limit_that_the_columns_pass_together_names_the_record_and_nothing_is_released(
    tmp_path, settings
):
    source = write(tmp_path / "in.jsonl", rows(3))
    with Ledger(tmp_path / "ledger", document_limit=1.2) as ledger:
        private = Privatizer(settings.build().mechanism, ledger=ledger)
        options = {"text_column": COLUMNS, "document_column": "id"}
        with pytest.raises(LimitError, match="record 1"):
            privatize_corpus(source, tmp_path / "out.jsonl", private, **options)
        assert ledger.spent(document="n0").releases == 0
    assert not (tmp_path / "out.jsonl").exists()


def test_a_run_of_several_columns_that_was_cut_short_goes_on_to_the_same_bytes(tmp_path, settings):
    source = write(tmp_path / "in.parquet", rows(30))
    (tmp_path / "whole").mkdir()
    whole = run(source, tmp_path / "whole" / "out.parquet", settings, COLUMNS)

    def stop(progress):
        if progress.documents > 12:
            raise KeyboardInterrupt

    target = tmp_path / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        run(source, target, settings, COLUMNS, on_progress=stop)
    with pytest.raises(CorpusError, match=r"begun otherwise .*columns"):
        run(source, target, settings, COLUMNS[:2], resume=True)
    run(source, target, settings, COLUMNS, resume=True)
    assert target.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("extension", FORMATS)
def test_a_column_that_is_missing_is_named_with_its_record(tmp_path, extension):
    source = write(tmp_path / f"in.{extension}", rows(2))
    where = {"jsonl": "line 1 .*", "parquet": "row 1.*"}.get(extension, r"line 1 \(the header\).*")
    with pytest.raises(CorpusError, match=where + "'title'"):
        privatize_corpus(
            source, tmp_path / "out", Echo(), format=extension, text_column=["body", "title"]
        )


def test_a_record_with_one_bad_text_is_left_out_whole(tmp_path):
    good = dict.fromkeys(COLUMNS, "one")
    source = write(tmp_path / "in.jsonl", [good, {**good, "reply": None}, good])
    report = privatize_corpus(
        source, tmp_path / "out.jsonl", Echo(), text_column=COLUMNS, on_error="skip"
    )
    assert (report.documents, report.skipped) == (2, {"wrong_type": 1})
    assert read(tmp_path / "out.jsonl") == [dict.fromkeys(COLUMNS, "[one]")] * 2


def test_all_other_columns_may_be_dropped(tmp_path):
    for extension in FORMATS:
        source = write(tmp_path / f"in.{extension}", rows(2))
        options = {"text_column": COLUMNS[1:], "columns": ColumnRule(drop=("*",))}
        report = privatize_corpus(source, tmp_path / f"out.{extension}", Echo(), **options)
        assert report.unprotected == ()
        assert [list(row) for row in read(tmp_path / f"out.{extension}")] == [COLUMNS[1:]] * 2


@pytest.mark.parametrize(
    ("columns", "document", "match"),
    [
        (["body", "body"], None, "'body' is named twice"),
        (["body", "id"], "id", "'id' holds the texts"),
        ([], None, "No column of texts"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(tmp_path, columns, document, match):
    source = write(tmp_path / "in.jsonl", rows(1))
    with pytest.raises(CorpusError, match=match):
        privatize_corpus(
            source, tmp_path / "out.jsonl", Echo(), text_column=columns, document_column=document
        )


def test_a_text_file_has_no_columns(tmp_path):
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.raises(CorpusError, match="a text file has none"):
        privatize_corpus(tmp_path / "in.txt", tmp_path / "out.txt", Echo(), text_column=COLUMNS)


def test_the_command_takes_several_columns(tmp_path, index):
    source = write(tmp_path / "in.csv", rows(2))
    columns = ["--text-column", "subject", "--text-column", "body"]
    more = ["--index", str(index), "--epsilon", "0.5", "--seed", "1", "--json"]
    result = CliRunner().invoke(
        app, ["privatize", str(source), str(tmp_path / "out.csv"), *columns, *more]
    )
    assert result.exit_code == 0, result.output
    before, after = read(source), read(tmp_path / "out.csv")
    for old, new in zip(before, after, strict=True):
        assert {name for name in old if old[name] != new[name]} == {"subject", "body"}
