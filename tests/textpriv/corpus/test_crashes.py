"""Crashes: killed, raced or out of room, a run goes on to the same bytes, and nothing half made is published."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_corpora import content, rows, run, stop_at, write

from textpriv.corpus import run as runs
from textpriv.corpus.checkpoint import Checkpoint, only_writer
from textpriv.errors import CorpusError

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return write(tmp_path_factory.mktemp("lines") / "raw.jsonl", rows(160))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for n in range(4):
        write(folder / f"{n}.parquet", rows(160)[40 * n : 40 * n + 40])
    return folder


# A process that has compiled everything lets children run, and kills each at a random moment of its work.
KILLER = """
import json, os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small_corpora import content, run

index, folder, moments = sys.argv[2], Path(sys.argv[3]), random.Random(7)

def child(source, target, **options):
    pid = os.fork()
    if pid:
        return pid
    try:
        run(index, Path(source), target, **options)
        os._exit(0)
    except BaseException as error:
        print(type(error), error, file=sys.stderr)
        os._exit(1)

for source, name in [(sys.argv[4], "out"), (sys.argv[5], "out.jsonl.gz")]:
    key = folder / (name + ".key")
    run(index, Path(source), folder / ("whole-" + name), key=key)
    started = time.monotonic()
    os.waitpid(child(source, folder / ("timed-" + name), key=key), 0)
    lasts = time.monotonic() - started
    for trial in range(5):
        target = folder / f"{trial}-{name}"
        partial = target.with_name(target.name + ".partial")
        pid = child(source, target, key=key, resume=True)
        while not partial.exists() and not target.exists():
            time.sleep(0.0005)
        time.sleep(moments.uniform(0.0, 0.6 * lasts))
        os.kill(pid, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        status = os.waitpid(child(source, target, key=key, resume=True), 0)[1]
        same = content(target) == content(folder / ("whole-" + name))
        print(json.dumps([killed, status, same, sorted(os.listdir(folder))]))
"""


@pytest.mark.slow
def test_ten_runs_that_are_killed_go_on_to_the_same_bytes(index, shards, lines, tmp_path):
    arguments = map(str, (TESTS, index, tmp_path, shards, lines))
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 10
    for _, status, same, names in found:
        assert (status, same) == (0, True), done.stderr
        assert not [name for name in names if name.endswith((".partial", ".tmp", "-lock"))]
    # Most of the kills fall into the work.
    assert sum(killed for killed, *_ in found) >= 5


def test_a_killed_worker_ends_the_run_which_then_goes_on(index, lines, tmp_path):
    target = tmp_path / "out.jsonl"

    def kill(progress):
        if progress.documents == 20:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    # The command answers this signal, and forked workers take over how: the other worker must end by it all the same.
    answered = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(CorpusError, match="worker process ended"):
            run(index, lines, target, workers=2, batch_size=1, on_progress=kill)
    finally:
        signal.signal(signal.SIGTERM, answered)
    assert not target.exists()
    report = run(index, lines, target, resume=True)
    assert 0 < report.resumed < report.documents == 160
    run(index, lines, tmp_path / "again.jsonl", key=tmp_path / "out.jsonl.key")
    assert content(target) == content(tmp_path / "again.jsonl")


def test_a_full_disk_ends_the_run_which_then_goes_on(index, tmp_path):
    source = write(tmp_path / "raw.jsonl", rows(400))
    target, before = tmp_path / "out.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        # Each part is small enough, and the whole is not.
        with pytest.raises(OSError, match="File too large"):
            run(index, source, target, part_records=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not target.exists()
    assert run(index, source, target, part_records=100, resume=True).resumed == 400


@pytest.mark.parametrize("step", ["the manifest", "the end"])
def test_a_run_that_ends_while_it_publishes_goes_on(index, shards, tmp_path, step, monkeypatch):
    def ends(*given, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "the manifest":
            patch.setattr(runs, "atomic_write", ends)
        else:
            remove, target = Checkpoint.remove, tmp_path / "out"
            patch.setattr(
                Checkpoint, "remove", lambda own: (ends if target.exists() else remove)(own)
            )
        with pytest.raises(KeyboardInterrupt):
            run(index, shards, tmp_path / "out")
    report = run(index, shards, tmp_path / "out", resume=True)
    assert report.resumed == report.documents == 160
    run(index, shards, tmp_path / "again", key=tmp_path / "out.key")
    assert content(tmp_path / "out") == content(tmp_path / "again")
    assert not (tmp_path / "out.partial").exists()


def test_one_run_at_a_time_writes_to_an_output(index, lines, tmp_path):
    def second(progress):
        with pytest.raises(CorpusError, match="Another run is writing"):
            run(index, lines, tmp_path / "out.jsonl", key=tmp_path / "key", resume=True)

    run(index, lines, tmp_path / "out.jsonl", key=tmp_path / "key", on_progress=second)


RACERS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small_corpora import run
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

index, source, folder = sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
for race in range(2):
    racers = []
    for _ in range(3):
        racers.append(os.fork())
        if not racers[-1]:
            try:
                run(index, source, folder / f"{race}.jsonl")
                os._exit(0)
            except CorpusError:
                os._exit(3)
            except BaseException as error:
                print(type(error), error, file=sys.stderr)
                os._exit(1)
    print(*sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers))
"""


@pytest.mark.slow
def test_of_runs_that_race_on_one_output_one_wins(index, lines, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RACERS, *map(str, (TESTS, index, lines, tmp_path))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == ["0 3 3"] * 2, done.stderr
    wanted = sorted(f"{n}.jsonl{more}" for n in range(2) for more in ("", ".key", ".manifest.json"))
    assert sorted(os.listdir(tmp_path)) == wanted


def test_a_foreign_folder_in_the_place_of_a_checkpoint_stays(index, lines, tmp_path):
    mine = tmp_path / "out.jsonl.partial"
    mine.mkdir()
    (mine / "job.json").write_text("{}")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(CorpusError, match="no job file"):
            run(index, lines, tmp_path / "out.jsonl", **options)
    assert (mine / "job.json").read_text() == "{}"


def test_a_failure_before_anything_was_finished_leaves_nothing(index, lines, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(index, lines, tmp_path / "out.jsonl", on_progress=stop_at(5))
    assert os.listdir(tmp_path) == []


def test_a_lock_that_was_left_keeps_nobody_away(tmp_path):
    (tmp_path / ".out.textpriv-lock").write_text("")
    with only_writer(tmp_path / "out"):
        pass
    assert os.listdir(tmp_path) == []


ORPHANS = """
import multiprocessing, sys, time
from textpriv.engines.batch import BatchRelease
from textpriv.engines.local import mapped
from textpriv.engines.columns import Columns, Record
from textpriv.settings import PrivatizerSettings

settings = PrivatizerSettings(sys.argv[1], options={"epsilon": 1.0}, seed=1)
jobs = ([Record(["a"], "a")] for n in range(9))
release = BatchRelease(settings.build(), Columns("text", "id"))
for n, _ in enumerate(mapped(jobs, release.rows, 3)):
    if n == 8:
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        time.sleep(60)
"""


def test_workers_end_with_the_process_that_leads_them(index):
    import time

    with subprocess.Popen(
        [sys.executable, "-c", ORPHANS, str(index)], stdout=subprocess.PIPE, text=True
    ) as leader:
        workers = list(map(int, leader.stdout.readline().split()))
        assert len(workers) == 3
        leader.kill()
    for _ in range(200):
        # An ended process may keep its entry for a while, as a zombie.
        entries = [Path(f"/proc/{worker}/stat") for worker in workers]
        left = [entry.read_text() for entry in entries if entry.exists()]
        if all(entry.rpartition(")")[2].split()[0] == "Z" for entry in left):
            return
        time.sleep(0.1)
    pytest.fail("a worker still runs")
