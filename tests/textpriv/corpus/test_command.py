"""``textpriv privatize`` over whole corpora: its key, its engines, how it goes on, and what it says meanwhile."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_indexes import saved
from typer.testing import CliRunner

from textpriv.cli import messages
from textpriv.cli.app import app
from textpriv.cli.messages import shown_progress
from textpriv.corpus import Progress
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey, read_run_key

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)


@pytest.fixture
def source(tmp_path) -> Path:
    rng = np.random.default_rng(1)
    path = tmp_path / "raw.jsonl"
    rows = [
        {"id": n, "text": " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=20))}
        for n in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(index, source, tmp_path):
    """``run("out.jsonl", *options)``: privatize the source, and return the result of the command."""

    def invoke(name: str, *options, given: Path = source, epsilon: str = "2"):
        arguments = [str(given), str(tmp_path / name), "--index", str(index), "-e", epsilon]
        return CliRunner().invoke(app, ["privatize", *arguments, *map(str, options)])

    return invoke


def _texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


# The key


def test_the_key_lies_beside_the_output_for_its_owner_alone_and_is_told(run, tmp_path):
    result = run("out.jsonl")
    assert result.exit_code == 0, result.stderr
    key = tmp_path / "out.jsonl.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.stat().st_size == 32
    assert (
        "out.jsonl.key. Anyone with the key and the output can undo the protection"
        in result.stderr.replace("\n", " ")
    )
    assert sorted(os.listdir(tmp_path)) == [
        "out.jsonl",
        "out.jsonl.key",
        "out.jsonl.manifest.json",
        "raw.jsonl",
    ]


def test_the_same_key_repeats_a_release_and_another_does_not(run, tmp_path):
    run("a.jsonl")
    run("b.jsonl", "--key", tmp_path / "a.jsonl.key")
    run("c.jsonl")
    run("a2.jsonl", "--key", tmp_path / "a.jsonl.key", "--stopword", "keep")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert _texts(tmp_path / "a.jsonl") != _texts(tmp_path / "c.jsonl")
    # Nothing is a stop word here, so only the settings differ: they draw independently.
    assert _texts(tmp_path / "a.jsonl") != _texts(tmp_path / "a2.jsonl")


def test_forget_key_destroys_it_when_all_is_done(run, tmp_path):
    result = run("out.jsonl", "--forget-key")
    assert result.exit_code == 0, result.stderr
    (told,) = (line for line in result.stderr.splitlines() if "was destroyed" in line)
    assert "can repeat this release" in told
    assert "the statement above bounds what each one gives away" in told
    assert "undo" not in told
    assert not (tmp_path / "out.jsonl.key").exists()


def test_a_failed_run_keeps_a_key_that_it_did_not_make(run, tmp_path):
    run("out.jsonl")
    (tmp_path / "bad.jsonl").write_text("zanzibar\n")
    result = run("out.jsonl", "--forget-key", given=tmp_path / "bad.jsonl")
    assert result.exit_code == 1
    assert (tmp_path / "out.jsonl.key").exists()


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path):
    key = RunKey.open(tmp_path / "a.key")
    key.keep()
    assert read_run_key(tmp_path / "a.key") == key.secret
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(CorpusError, match="chmod 600"):
        RunKey.open(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o600)
    (tmp_path / "a.key").write_bytes(b"short")
    with pytest.raises(CorpusError, match="expected 32 bytes"):
        RunKey.open(tmp_path / "a.key")


@pytest.mark.parametrize("kind", ["folder", "pipe", "empty", "long"])
def test_what_is_no_key_where_the_key_should_be_is_refused_in_a_sentence(run, tmp_path, kind):
    key = tmp_path / "out.jsonl.key"
    if kind == "folder":
        key.mkdir(mode=0o700)
    elif kind == "pipe":
        os.mkfifo(key, mode=0o600)
    else:
        key.touch(mode=0o600)
        key.write_bytes(b"" if kind == "empty" else bytes(10_000))
    result = run("out.jsonl")
    assert result.exit_code == 1
    assert "run key" in result.stderr.replace("\n", " ")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_mounted_key_that_the_own_group_reads_is_accepted_with_a_warning(tmp_path):
    key = RunKey.open(tmp_path / "a.key")
    key.keep()
    (tmp_path / "a.key").chmod(0o440)
    with pytest.warns(UserWarning, match="can be read by the group of this process"):
        assert RunKey.open(tmp_path / "a.key").secret == key.secret
    for mode in (0o460, 0o444, 0o640):
        (tmp_path / "a.key").chmod(mode)
        with pytest.raises(CorpusError, match="chmod 600"):
            RunKey.open(tmp_path / "a.key")


def test_a_key_comes_from_an_environment_variable(run, tmp_path, monkeypatch):
    secret = bytes(range(32))
    monkeypatch.setenv("MY_KEY", secret.hex())
    assert run("a.jsonl", "--key", "env:MY_KEY").exit_code == 0
    (tmp_path / "b.key").write_bytes(secret)
    (tmp_path / "b.key").chmod(0o600)
    assert run("b.jsonl", "--key", tmp_path / "b.key").exit_code == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert not (tmp_path / "a.jsonl.key").exists()
    for value in (None, "zanzibar"):
        monkeypatch.delenv("MY_KEY") if value is None else monkeypatch.setenv("MY_KEY", value)
        result = run("c.jsonl", "--key", "env:MY_KEY")
        assert result.exit_code == 1
        assert "MY_KEY" in result.stderr
        assert "zanzibar" not in result.stderr


def test_a_key_is_never_written_over(tmp_path):
    first, second = RunKey.open(tmp_path / "a.key"), RunKey.open(tmp_path / "a.key")
    first.keep()
    with pytest.raises(CorpusError, match="Cannot write the run key"):
        second.keep()
    assert read_run_key(tmp_path / "a.key") == first.secret


def test_a_forgotten_key_was_overwritten_before_its_name_was_removed(tmp_path):
    key = RunKey.open(tmp_path / "a.key")
    key.keep()
    os.link(tmp_path / "a.key", tmp_path / "seen")
    assert key.forget()
    assert not (tmp_path / "a.key").exists()
    assert (tmp_path / "seen").read_bytes() != key.secret
    assert not key.forget()


def test_a_key_shows_itself_nowhere(tmp_path):
    key = RunKey.open(tmp_path / "a.key")
    assert repr(key.secret) not in repr(key)


# Going on


def test_an_interrupted_command_says_how_to_go_on_and_does(run, source, tmp_path, monkeypatch):
    from textpriv import corpus

    whole = corpus.run_corpus

    def stopped(plan, privatizer):
        def stop(progress):
            if progress.documents >= 12:
                raise KeyboardInterrupt

        often = replace(plan.options, part_records=5, batch_size=4, on_progress=stop)
        return whole(replace(plan, options=often), privatizer)

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "run_corpus", stopped)
        result = run("out.jsonl")
    assert result.exit_code == 130
    assert "continue with --resume" in result.stderr
    assert "No output file was written" in result.stderr
    for options in ((), ("--resume", "--stopword", "keep")):
        refused = run("out.jsonl", *options)
        assert (refused.exit_code, refused.stderr.count("--resume")) == (1, 1)
    monkeypatch.setattr(
        corpus,
        "run_corpus",
        lambda plan, privatizer: whole(
            replace(plan, options=replace(plan.options, part_records=5)), privatizer
        ),
    )
    result = run("out.jsonl", "--resume")
    assert result.exit_code == 0, result.stderr
    assert "of them were done by the earlier run" in result.stderr
    assert "tokens per second" not in result.stderr
    run("again.jsonl", "--key", tmp_path / "out.jsonl.key")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


# Records and columns


def test_bad_records_are_set_aside_on_request(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text":"ba"}\nzanzibar\n')
    result = run("out.jsonl", "--on-error", "quarantine", given=tmp_path / "bad.jsonl")
    assert result.exit_code == 3, result.stderr  # done, with records left out
    assert "left out: 1 malformed" in result.stderr
    assert "out.jsonl.quarantine.jsonl" in result.stderr
    assert "zanzibar" not in result.stderr
    assert "zanzibar" in (tmp_path / "out.jsonl.quarantine.jsonl").read_text()


# What is shown


def test_json_events_are_lines_of_json_on_standard_error(run):
    result = run("out.jsonl", "--json")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert [event["event"] for event in events][:2] == ["progress", "unprotected"]
    assert events[1]["columns"] == ["id"]
    assert events[0]["fraction"] == 0.0
    assert set(events[0]) == {
        *["event", "documents", "tokens", "fraction", "seconds"],
        *["tokens_per_second", "seconds_left"],
    }
    assert json.loads(result.stdout)["report"]["documents"] == 30


def test_the_rate_of_a_continued_run_is_its_own(capsys, monkeypatch):
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(messages.time, "monotonic", lambda: next(clock))
    shown_progress(True)(Progress(documents=3, tokens=1000, fraction=0.5, resumed=800))
    event = json.loads(capsys.readouterr().err)
    assert event["tokens"] == 1000
    assert event["tokens_per_second"] == 20
    assert event["seconds_left"] == 50.0  # a tenth of the input in 10 seconds, and half of it to go


def test_nothing_is_shown_where_nobody_watches(capsys):
    assert shown_progress(False) is None


# What a process loads and holds


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from textpriv.cli.app import main; main()", *map(str, arguments)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(index, tmp_path):
    # A long unknown word makes a text large and takes no time.
    texts = [f"{WORDS[n]} {'x' * 9_000}" for n in range(100)]
    peaks = []
    for documents in (500, 4_000):
        source = tmp_path / f"{documents}.jsonl"
        with open(source, "w", encoding="utf-8") as out:
            for n in range(documents):
                out.write(json.dumps({"text": texts[n % 100]}) + "\n")
        target = tmp_path / f"{documents}.out.jsonl"
        command = _command("privatize", source, target, "--index", index, "-e", 2, "--seed", 1)
        with open(os.devnull, "wb") as nothing:
            process = subprocess.Popen(command, stdout=nothing, stderr=nothing)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(used.ru_maxrss)
    assert peaks[1] <= 1.1 * peaks[0]


def test_log_json_says_all_in_lines_of_json(run, tmp_path):
    result = run("out.jsonl", "--log-json")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert (result.exit_code, result.stdout) == (0, "")
    assert events[-1]["event"] == "done"
    assert events[-1]["report"]["documents"] == 30
    result = run("out.jsonl", "--log-json", "--resume", epsilon="3")
    (failed,) = map(json.loads, result.stderr.splitlines())
    assert (result.exit_code, failed["event"]) == (1, "failed")
    assert "changed: epsilon" in failed["error"]
    result = run("no.jsonl", "--log-json", given=tmp_path / "missing.jsonl")
    (failed,) = map(json.loads, result.stderr.splitlines())
    assert (result.exit_code, failed["kind"]) == (1, "FileNotFoundError")
    (tmp_path / "late.jsonl").write_text(
        '{"text":"bana"}\n' * 1000 + '{"text":"bana","email":"x"}\n'
    )
    result = run("some.jsonl", "--log-json", given=tmp_path / "late.jsonl")
    assert all("event" in json.loads(line) for line in result.stderr.splitlines())


def _events(result) -> list[dict]:
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("zanzibar")])
def test_log_json_ends_with_failed_however_it_ends(run, monkeypatch, error):
    from textpriv import corpus

    def stopped(*arguments, **options):
        raise error

    monkeypatch.setattr(corpus, "run_corpus", stopped)
    result = run("out.jsonl", "--log-json")
    assert _events(result)[-1]["event"] == "failed"
    assert result.exit_code in (1, 130, 143)
    assert ("Ended by a signal" in result.stderr) == isinstance(error, SystemExit)
    assert "zanzibar" not in result.stderr


def test_log_json_ends_with_failed_for_wrong_usage(run):
    result = run("out.jsonl", "--log-json", "--document-limit", 3)
    assert json.loads(result.stderr.splitlines()[0])["event"] == "failed"
    assert result.exit_code == 2


def test_quiet_says_only_warnings(run, tmp_path):
    result = run("out.jsonl", "--quiet")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if not line.startswith("warning: ")] == []


def test_an_input_without_records_is_warned_of(run, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    result = run("out.jsonl", given=tmp_path / "empty.jsonl")
    assert result.exit_code == 0
    assert "warning: the input has no records" in result.stderr
    result = run("b.jsonl", "--log-json", given=tmp_path / "empty.jsonl")
    assert "the input has no records" in [each.get("text", "")[:24] for each in _events(result)]


def test_a_key_beside_a_ledger_is_refused_with_the_reason(run, tmp_path):
    more = ("--ledger", tmp_path / "l", "--document", "id", "--key", tmp_path / "k")
    result = run("out.jsonl", *more)
    assert result.exit_code == 2
    assert "Leave out --key" in " ".join(result.stderr.replace("│", " ").split())


def test_several_files_on_the_command_line_become_a_folder(index, source, tmp_path):
    (tmp_path / "more.jsonl").write_text('{"id":1,"text":"bana"}\n')
    arguments = [str(source), str(tmp_path / "more.jsonl"), str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["privatize", *arguments, "--index", str(index), "-e", "2"])
    assert result.exit_code == 0, result.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["more.jsonl", "raw.jsonl"]


def test_a_limit_on_file_sizes_is_named():
    error = OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    assert "ulimit -f" in messages.describe(error)


def test_new_columns_are_an_option(run, tmp_path):
    rows = ['{"text":"bana"}\n'] * 1000 + ['{"text":"bana","email":"x"}\n']
    (tmp_path / "late.jsonl").write_text("".join(rows))
    assert run("c.jsonl", given=tmp_path / "late.jsonl").exit_code == 1
    more = ("--keep", "*")
    assert run("d.jsonl", *more, given=tmp_path / "late.jsonl").exit_code == 0


def test_a_new_shard_is_added_to_a_finished_folder(run, source, tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    lines = source.read_text().splitlines(keepends=True)
    (shards / "1.jsonl").write_text("".join(lines[:10]))
    assert run("out", given=shards).exit_code == 0
    first = (tmp_path / "out" / "1.jsonl").read_bytes()
    (shards / "2.jsonl").write_text("".join(lines[10:]))
    assert "--resume" in run("out", given=shards).stderr
    assert run("out", "--resume", given=shards).exit_code == 0
    assert (tmp_path / "out" / "1.jsonl").read_bytes() == first
    whole = run("whole", "--key", tmp_path / "out.key", given=shards)
    assert whole.exit_code == 0, whole.stderr
    for name in ("1.jsonl", "2.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
