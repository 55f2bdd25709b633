"""``textpriv synthesize``: one measurement and one output, whatever happens, and one sentence for bad input."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from textpriv import TextSynthesizer
from textpriv.synthesis import generator
from textpriv.synthesis.release import Measurement, NoisySums

TESTS = Path(__file__).parents[2]
TEXTS = {"neg": "The film was bad, and the plot was dull.", "pos": "A good film with a fine story."}


@pytest.fixture(autouse=True)
def small_draws(monkeypatch):
    monkeypatch.setattr(generator, "_MATCHED", 40)


def records(count=40, **more):
    labels = ["neg", "pos"] * (count // 2)
    return [{"text": TEXTS[label], "label": label, **more} for label in labels]


def write(path, given):
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


@pytest.fixture
def reviews(tmp_path):
    return write(tmp_path / "reviews.jsonl", records())


@pytest.fixture
def synthesize(run, demo_index):
    """Run the command with all that it needs; later options overrule."""

    def call(*arguments, labels="neg,pos", epsilon="4", **options):
        more = ["--index", demo_index, "--records", "20"]
        if "--from" not in arguments:
            more += [] if epsilon is None else ["--epsilon", epsilon]
            more += ["--label-column", "label", "--labels", labels] if labels else []
        return run("synthesize", *arguments, *more, **options)

    return call


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_new_records_have_a_text_and_a_declared_label(synthesize, reviews, tmp_path):
    done = synthesize(reviews, tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.stderr
    made = rows(tmp_path / "out.jsonl")
    assert len(made) == 20
    assert {tuple(row) for row in made} == {("text", "label")}
    assert {row["label"] for row in made} <= {"neg", "pos"}
    assert "Two data sets differ by one record" in done.stderr


def test_the_manifest_names_no_exact_number_of_private_records(synthesize, reviews, tmp_path):
    synthesize(reviews, tmp_path / "out.jsonl")
    manifest = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())
    assert sorted(manifest) == ["bytes", "format", "records", "sha256", "statement", "textpriv"]
    assert manifest["records"] == 20


def read_csv(path, delimiter):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


READERS = {
    "out.csv": lambda path: read_csv(path, ","),
    "out.tsv": lambda path: read_csv(path, "\t"),
    "out.parquet": lambda path: pq.read_table(path).to_pylist(),
    "out.jsonl.gz": lambda path: [
        *map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    ],
}


@pytest.mark.parametrize("name", READERS)
def test_the_suffix_of_the_output_is_its_format(synthesize, reviews, tmp_path, name):
    done = synthesize(reviews, tmp_path / name)
    assert done.exit_code == 0, done.stderr
    made = READERS[name](tmp_path / name)
    assert (len(made), {*made[0]}) == (20, {"text", "label"})


def test_texts_without_labels_are_lines_of_a_text_file(synthesize, reviews, tmp_path):
    assert synthesize(reviews, tmp_path / "out.txt", labels=None).exit_code == 0
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 20


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_of_shards_is_one_measurement(synthesize, tmp_path, suffix):
    (tmp_path / "shards").mkdir()
    for n in range(2):
        path = tmp_path / "shards" / f"{n}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist(records()), path)
        else:
            lines = [f'"{row["text"]}",{row["label"]}' for row in records()]
            path.write_text("\n".join(["text,label", *lines, ""]))
    done = synthesize(tmp_path / "shards", tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.stderr
    assert len(rows(tmp_path / "out.jsonl")) == 20


def test_streams_at_both_ends_need_a_place_for_the_measurement(synthesize, tmp_path):
    given = "".join(json.dumps(row) + "\n" for row in records())
    stream = {"input": given}
    refused = synthesize("-", "-", "--format", "jsonl", **stream)
    assert refused.exit_code == 2
    done = synthesize("-", "-", "--format", "jsonl", "--model", tmp_path / "m", **stream)
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 20


def test_an_object_of_a_store_is_read_and_one_is_written(synthesize, monkeypatch, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = fsspec.filesystem("memory")
    store.pipe("/synthesis/in.jsonl", b"".join(json.dumps(r).encode() + b"\n" for r in records()))
    done = synthesize("memory://synthesis/in.jsonl", "memory://synthesis/out.jsonl")
    assert done.exit_code == 0, done.stderr
    assert len(store.cat("/synthesis/out.jsonl").splitlines()) == 20
    assert store.exists("/synthesis/out.jsonl.manifest.json")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_json_has_the_statement_and_no_exact_count(synthesize, reviews, tmp_path):
    told = json.loads(synthesize(reviews, tmp_path / "out.jsonl", "--json").stdout)
    assert {*told} == {"output", "records", "model", "statement", "seed"}
    assert (told["records"], told["statement"]["epsilon"]) == (20, 4.0)


def test_whole_numbers_are_labels_that_stay_whole_numbers(synthesize, tmp_path):
    numbered = [{**row, "label": int(row["label"] == "pos")} for row in records()]
    path = write(tmp_path / "in.jsonl", numbered)
    assert synthesize(path, tmp_path / "out.jsonl", labels="0,1").exit_code == 0
    assert {row["label"] for row in rows(tmp_path / "out.jsonl")} <= {0, 1}


# One measurement


@pytest.fixture
def measured(monkeypatch):
    """Count the measurements that are made."""
    made, noisy = [], Measurement.noisy
    monkeypatch.setattr(
        Measurement, "noisy", lambda *a, **k: made.append(noisy(*a, **k)) or made[-1]
    )
    return made


@pytest.fixture
def killed(synthesize, reviews, tmp_path, measured, monkeypatch):
    """Leave what a run leaves that ends as soon as texts are drawn."""

    def end(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(generator.Generator, "texts", end)
        done = synthesize(reviews, tmp_path / "out.jsonl")
    assert "run the same command again" in done.stderr
    return tmp_path / "out.jsonl.sums"


def test_the_measurement_is_on_the_disk_before_a_text_is_drawn(killed, measured, tmp_path):
    (made,) = measured
    assert np.array_equal(NoisySums.read_file(killed)[0].words, made.words)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_run_that_ended_early_goes_on_from_its_measurement(
    killed, synthesize, reviews, measured, tmp_path
):
    done = synthesize(reviews, tmp_path / "out.jsonl", "--model", tmp_path / "kept.model")
    assert "Nothing is measured again" in done.stderr
    assert len(measured) == 1
    kept, _ = NoisySums.read_file(tmp_path / "kept.model")
    assert np.array_equal(kept.words, measured[0].words)
    assert not killed.exists()


def test_a_kept_model_says_nothing_of_the_input_but_its_sums(synthesize, reviews, tmp_path):
    synthesize(reviews, tmp_path / "out.jsonl", "--model", tmp_path / "kept.model")
    _, header = NoisySums.read_file(tmp_path / "kept.model")
    assert [*header] == ["vocabulary"]


@pytest.mark.parametrize("change", ["epsilon", "input"])
def test_what_was_measured_otherwise_is_not_measured_again(
    killed, synthesize, reviews, measured, tmp_path, change
):
    if change == "input":
        write(reviews, records(42))
    done = synthesize(reviews, tmp_path / "out.jsonl", epsilon="1" if change == "epsilon" else "4")
    assert done.exit_code == 1
    assert f"changed: {change}" in done.stderr
    assert len(measured) == 1


def test_a_second_run_over_an_output_says_that_its_loss_adds(
    synthesize, reviews, measured, tmp_path
):
    synthesize(reviews, tmp_path / "out.jsonl")
    refused = synthesize(reviews, tmp_path / "out.jsonl")
    assert refused.exit_code == 1
    assert "adds its loss to the first" in refused.stderr
    assert len(measured) == 1
    forced = synthesize(reviews, tmp_path / "out.jsonl", "--force")
    assert forced.exit_code == 0
    assert "add their loss" in forced.stderr
    assert len(measured) == 2


def test_more_texts_come_from_a_kept_model_at_no_cost(synthesize, reviews, measured, tmp_path):
    model = tmp_path / "kept.model"
    synthesize(reviews, tmp_path / "out.jsonl", "--model", model, "--seed", 3)
    reviews.unlink()
    assert synthesize(tmp_path / "more.jsonl", "--from", model, "--seed", 3).exit_code == 0
    assert (tmp_path / "more.jsonl").read_text() == (tmp_path / "out.jsonl").read_text()
    assert len(measured) == 1


def test_a_seed_does_not_repeat_the_noise(synthesize, reviews, measured, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        synthesize(reviews, tmp_path / name, "--seed", 3)
    assert not np.array_equal(measured[0].words, measured[1].words)


@pytest.mark.parametrize("author", [None, "author"])
def test_several_workers_give_the_same_sums(synthesize, tmp_path, monkeypatch, author):
    totals, noisy = [], Measurement.noisy
    given = [{**row, "author": n} for n, row in enumerate(records(9_000))]
    path = write(tmp_path / "in.jsonl", given)

    def seen(self, sums, **more):
        totals.append(sums.total().copy())
        return noisy(self, sums, **more)

    monkeypatch.setattr(Measurement, "noisy", seen)
    more = [] if author is None else ["--author", author]
    for workers in (1, 3):
        done = synthesize(path, tmp_path / f"{workers}.jsonl", "--workers", workers, *more)
        assert done.exit_code == 0, done.stderr
    assert np.array_equal(*totals)
    assert totals[0].any()


@pytest.mark.parametrize("workers", [1, 3])
def test_new_words_come_in_and_stay_in_the_model(synthesize, tmp_path, workers):
    given = [{**row, "text": f"Quiverneth. {row['text']}"} for row in records(9_000)]
    path, model = write(tmp_path / "in.jsonl", given), tmp_path / "own.model"
    more = ["--new-words", "0.1", "--model", model, "--workers", workers, "--seed", 3]
    done = synthesize(path, tmp_path / "out.jsonl", *more)
    assert done.exit_code == 0, done.stderr
    assert "a share of 0.1 of its cost" in " ".join(done.stderr.split())
    assert NoisySums.read_file(model)[0].new_words[-1] == "quiverneth"
    assert "quiverneth" in (tmp_path / "out.jsonl").read_text().lower()
    synthesize(tmp_path / "more.jsonl", "--from", model, "--seed", 3)
    assert (tmp_path / "more.jsonl").read_text() == (tmp_path / "out.jsonl").read_text()


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ("-", ["0.1"], "name files"),
        ("in.jsonl", ["0.1", "--engine", "ray"], "twice"),
        ("in.jsonl", ["1.5"], "share of the budget"),
    ],
)
def test_new_words_that_cannot_be_counted_are_refused(synthesize, tmp_path, source, more, message):
    path = source if source == "-" else write(tmp_path / source, records(2))
    given = [path, tmp_path / "out.jsonl", "--new-words", *more]
    done = synthesize(*given, input="{}")
    assert done.exit_code != 0
    assert message in " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("author", [None, "author"])
def test_any_engine_gives_the_same_sums(synthesize, tmp_path, monkeypatch, author):
    totals, noisy = {}, Measurement.noisy
    given = [{**row, "author": n // 2} for n, row in enumerate(records(400))]
    (tmp_path / "in").mkdir()
    for number in range(4):
        write(tmp_path / f"in/{number}.jsonl", given[number::4])
    more = [] if author is None else ["--author", author, "--records-per-author", "2"]
    engines = {"here": [], "four": ["--workers", 4], "spark": [], "ray": []}
    for name, options in engines.items():
        if name in ("spark", "ray"):
            pytest.importorskip({"spark": "pyspark", "ray": "ray"}[name])
            options = ["--engine", name, "--workers", 2]

        def seen(self, sums, *, name=name, **rest):
            totals[name] = sums.total().copy()
            return noisy(self, sums, **rest)

        monkeypatch.setattr(Measurement, "noisy", seen)
        done = synthesize(tmp_path / "in", tmp_path / f"{name}.jsonl", *options, *more)
        assert done.exit_code == 0, done.stderr
    assert totals["here"].any()
    for name in engines:
        assert np.array_equal(totals[name], totals["here"])


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_a_stream_is_not_handed_to_an_engine(synthesize, tmp_path, engine):
    done = synthesize("-", tmp_path / "out.jsonl", "--engine", engine, input="{}")
    assert done.exit_code == 2
    assert "a stream is read here" in done.stderr


# Bad input

GOOD = records(2)
BAD = {
    "a label that is not declared": ([*GOOD, {"text": "a", "label": "Quiverneth"}], []),
    "a missing text": ([*GOOD, {"label": "neg"}], []),
    "a null text": ([*GOOD, {"text": None, "label": "neg"}], []),
    "a null label": ([*GOOD, {"text": "a", "label": None}], []),
    "a null author": ([{**row, "by": None} for row in GOOD], ["--author", "by"]),
    "an empty author": ([{**row, "by": ""} for row in GOOD], ["--author", "by"]),
    "delta of one": (GOOD, ["--delta", "1"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence_and_no_measurement(
    synthesize, measured, monkeypatch, tmp_path, case
):
    monkeypatch.setattr(Measurement, "topics", lambda *_: pytest.fail("measured"))
    given, options = BAD[case]
    done = synthesize(write(tmp_path / "in.jsonl", given), tmp_path / "out.jsonl", *options)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "Quiverneth" not in done.stderr
    assert measured == []
    assert [each.name for each in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("epsilon", [None, "0", "-1", "inf", "nan"])
def test_epsilon_must_be_given_and_above_zero(synthesize, reviews, tmp_path, epsilon):
    done = synthesize(reviews, tmp_path / "out.jsonl", epsilon=epsilon)
    assert done.exit_code == 2
    assert "--epsilon" in done.stderr


def test_an_output_is_never_written_over_the_input(synthesize, reviews):
    before = reviews.read_bytes()
    done = synthesize(reviews, reviews, "--force")
    assert done.exit_code == 1
    assert reviews.read_bytes() == before


def test_a_misspelt_column_measures_nothing(run, reviews, demo_index, tmp_path):
    given = ("--epsilon", "1", "--index", demo_index, "--author", "custommer")
    done = run("synthesize", reviews, tmp_path / "out.jsonl", *given, "--on-error", "skip")
    assert done.exit_code == 1
    assert "every record was left out (missing_name), so nothing was measured" in " ".join(
        done.stderr.split()
    )
    assert not list(tmp_path.glob("out.jsonl*"))


def test_a_record_that_is_skipped_does_not_end_the_run(synthesize, tmp_path):
    strange = [{"text": "a", "label": "Quiverneth"}] * 2
    path = write(tmp_path / "in.jsonl", [*records(), {"label": "neg"}, *strange])
    done = synthesize(path, tmp_path / "out.jsonl", "--on-error", "skip")
    assert done.exit_code == 3
    assert "left out: 1 missing_text, 2 undeclared_label" in done.stderr
    assert "Quiverneth" not in done.stderr
    assert {row["label"] for row in rows(tmp_path / "out.jsonl")} <= {"neg", "pos"}


@pytest.mark.parametrize("labels", ["neg,pos", None])
def test_records_without_labels_are_said_to_be_so(synthesize, reviews, tmp_path, labels):
    done = synthesize(reviews, tmp_path / "out.jsonl", labels=labels)
    assert ("20 new records without labels" in done.stderr) == (labels is None)
    assert done.stderr.startswith("warning: no --label-column") == (labels is None)


@pytest.mark.parametrize("count", [40, 4_000])
def test_a_class_of_few_records_is_warned_of(synthesize, tmp_path, count):
    path = write(tmp_path / "in.jsonl", records(count))
    done = synthesize(path, tmp_path / "out.jsonl")
    assert ("some thousands of records" in done.stderr) == (count == 40)


# The page of words


def test_the_page_shows_words_with_ranges_and_new_texts(synthesize, reviews, tmp_path):
    page = tmp_path / "words.html"
    done = synthesize(reviews, tmp_path / "out.jsonl", "--report", page)
    assert done.exit_code == 0, done.stderr
    text = page.read_text()
    assert "script-src" in text
    assert "<script" not in text
    assert text.count('class="bar"') == 40
    for expected in ("neg", "pos", "New texts", "What is guaranteed", " to "):
        assert expected in text


def test_a_label_on_the_page_is_no_markup(synthesize, tmp_path):
    hostile = [{"text": "a film", "label": "<img src=x>"}, {"text": "a plot", "label": "b"}]
    path = write(tmp_path / "in.jsonl", hostile)
    page = tmp_path / "words.html"
    synthesize(path, tmp_path / "out.jsonl", "--report", page, labels="<img src=x>,b")
    assert "<img" not in page.read_text()
    assert "&lt;img src=x&gt;" in page.read_text()


# Kills

KILLER = """
import os, random, signal, sys, time
import numpy as np
from textpriv.cli.app import app
from textpriv.synthesis import generator
from textpriv.synthesis.release import NoisySums

index, source, folder = sys.argv[1:]
generator._MATCHED = 40
moments = random.Random(7)

def child(number):
    os.chdir(folder)
    pid = os.fork()
    if pid:
        return pid
    given = ["synthesize", source, f"{number}.jsonl", "--model", f"{number}.model", "--seed", "3"]
    given += ["--index", index, "--epsilon", "4", "--label-column", "label", "--labels", "neg,pos"]
    try:
        app(given + ["--records", "2000"], standalone_mode=False)
        os._exit(0)
    except BaseException:
        os._exit(1)

os.waitpid(child("warm"), 0)
started = time.monotonic()
os.waitpid(child("timed"), 0)
lasts = time.monotonic() - started
for number in range(10):
    pid = child(number)
    time.sleep(moments.uniform(0.0, lasts))
    os.kill(pid, signal.SIGKILL)
    killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    seen = [each for each in (f"{number}.jsonl.sums", f"{number}.model") if os.path.exists(each)]
    before = NoisySums.read_file(seen[0])[0].words if seen else None
    if not os.path.exists(f"{number}.jsonl.manifest.json"):
        assert os.waitpid(child(number), 0)[1] == 0
    after = NoisySums.read_file(f"{number}.model")[0].words
    print(int(killed), int(before is not None), int(before is None or np.array_equal(before, after)))
"""


@pytest.mark.slow
def test_ten_runs_that_are_killed_measure_once_and_write_one_output(demo_index, tmp_path):
    source = write(tmp_path / "in.jsonl", records(2_000))
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *map(str, (demo_index, source, tmp_path / "out"))],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(found) == 10
    assert all(same for *_, same in found)
    assert sum(killed for killed, *_ in found) >= 5
    for number in range(10):
        model = TextSynthesizer.load(tmp_path / f"out/{number}.model", index=demo_index)
        drawn = [{"text": text, "label": label} for text, label in model.records(2_000, 3)]
        assert rows(tmp_path / f"out/{number}.jsonl") == drawn


@pytest.fixture
def own_index(run, synthesize, reviews, tmp_path):
    """Make an index with the axes of a saved measurement."""
    synthesize(reviews, tmp_path / "out.jsonl", "--model", tmp_path / "reviews.model")
    made = "builtin:en", tmp_path / "own.idx", "--limit", 2000
    done = run("index", *made, "--axes-from", tmp_path / "reviews.model")
    assert done.exit_code == 0, done.stderr
    assert "Axes of the labels neg, pos." in done.stderr
    return tmp_path / "own.idx"


def test_a_saved_measurement_gives_axes_of_an_index(run, own_index, reviews, tmp_path):
    private = tmp_path / "private.jsonl"
    done = run("privatize", reviews, private, "--index", own_index, "--recovery", 0.9)
    assert done.exit_code == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "in the domain, an attacker" in told
    assert "In general English, guessing recovers" in told
    assert "metric and words together" in told
    assert len(rows(private)) == 40


def test_the_commands_of_the_page_on_axes_run(run, demo_index, reviews, tmp_path, monkeypatch):
    page = (TESTS.parent / "docs/guide/learned-metric.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    quicker = {
        "synthesize": ("--index", demo_index, "--records", 20),
        "index": ("--limit", 2000),
        "privatize": (),
    }
    monkeypatch.chdir(tmp_path)
    # So few different words give no smaller share.
    for line in block.replace("--recovery 0.1", "--recovery 0.9").splitlines():
        _, name, *arguments = line.split()
        done = run(name, *arguments, *quicker.pop(name))
        assert done.exit_code == 0, done.stderr
    assert not quicker
    assert len(rows(tmp_path / "private.jsonl")) == 40


def test_axes_of_other_words_are_refused(run, own_index, tmp_path):
    made = "builtin:en", tmp_path / "other.idx", "--limit", 1000
    done = run("index", *made, "--axes-from", tmp_path / "reviews.model")
    assert done.exit_code == 1
    assert "another vocabulary" in done.stderr
