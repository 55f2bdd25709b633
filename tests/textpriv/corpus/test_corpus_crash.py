"""A run that is cut short: nothing is mistaken for complete, and going on gives the same bytes."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_indexes import saved

from textpriv.corpus import ColumnRule, PrivatizerSettings, privatize_corpus
from textpriv.corpus.records import part_end, part_of
from textpriv.corpus.run import PART_RECORDS
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

pytestmark = pytest.mark.usefixtures("without_torch")

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS)


def _rows(count: int) -> list[dict]:
    rng = np.random.default_rng(1)
    return [
        {"id": n, "text": " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=25))}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "raw"
    folder.mkdir()
    for n in range(4):
        pq.write_table(
            pa.Table.from_pylist(_rows(160)[40 * n : 40 * n + 40]), folder / f"{n}.parquet"
        )
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "raw.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in _rows(160)))
    return path


def _run(index, source, target, resume, key=None, **options):
    key = RunKey.beside(target) if key is None else RunKey.open(key)
    settings = PrivatizerSettings(str(index), options={"epsilon": 4.0}, run_key=key.secret)
    options = {"part_records": 10, "batch_size": 7, "settings": settings, **options}
    return privatize_corpus(source, target, settings.build(), key=key, resume=resume, **options)


def _bytes(path: Path) -> dict[str, bytes]:
    """The content of an output file or folder, without what names the run."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".json"}


# A process that has compiled everything already lets children run, and kills each at a random moment.
KILLER = """
import json, os, random, shutil, signal, sys, time
sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], "../..")]
from test_corpus_crash import _bytes, _run
from pathlib import Path

index, folder, moments = sys.argv[2], Path(sys.argv[3]), random.Random(7)

def child(*arguments):
    pid = os.fork()
    if pid:
        return pid
    try:
        _run(index, *arguments)
        os._exit(0)
    except BaseException as error:
        print(type(error), error, file=sys.stderr)
        os._exit(1)

told = []
lasts = {}
for source, name in [(sys.argv[4], "out"), (sys.argv[5], "out.jsonl.gz")]:
    warm = folder / f"warm-{name}"
    _run(index, source, warm, False)
    started = time.monotonic()
    os.waitpid(child(source, folder / f"time-{name}", False), 0)
    lasts[name] = time.monotonic() - started
    for trial in range(10):
        target = folder / f"{trial}-{name}"
        key = target.with_name(target.name + ".key")
        if trial % 2:  # under a key that is there already; else the run makes its own
            shutil.copy(warm.with_name(warm.name + ".key"), key)
        partial = target.with_name(target.name + ".partial")
        pid = child(source, target, False)
        # Every other moment is counted from the beginning of the work, so that a busy machine cannot move all of them
        # out of it.
        while trial % 2 and not partial.exists() and not target.exists():
            time.sleep(0.0005)
        time.sleep(moments.uniform(0.0, lasts[name] * (0.5 if trial % 2 else 1.0)))
        os.kill(pid, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        absent = not target.exists()
        begun = partial.exists()
        status = os.waitpid(child(source, target, True), 0)[1]
        again = warm
        if not trial % 2:
            again = folder / f"again-{trial}-{name}"
            started = time.monotonic()
            os.waitpid(child(source, again, False, key), 0)
            lasts[name] = time.monotonic() - started
        told.append([killed, absent, begun, status, _bytes(target) == _bytes(again)])
print(json.dumps(told))
"""


def test_a_run_killed_at_any_of_20_moments_goes_on_to_the_same_bytes(
    index, shards, lines, tmp_path
):
    # In memory where that is possible: a killed process loses nothing that it has handed to the system.
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=place) as folder:
        arguments = [str(Path(__file__).parent), str(index), folder, str(shards), str(lines)]
        done = subprocess.run(
            [sys.executable, "-c", KILLER, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result) == 20
    for killed, absent, _, status, same in result:
        # The output appears in one step, so a killed run may at most be killed after that.
        assert absent or not killed or same
        assert status == 0, done.stderr
        assert same
    # Many moments fall into the work, also where other tests run beside this one: it would be empty otherwise.
    assert sum(killed and begun for killed, _, begun, _, _ in result) >= 6


def test_what_a_killed_run_left_half_written_is_not_published(index, shards, tmp_path):
    target, seen = tmp_path / "out", []

    def stop(progress):
        seen.append(progress)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(index, shards, target, False, on_progress=stop)
    half = tmp_path / "out.partial" / "result"
    half.mkdir(exist_ok=True)
    (half / ".0123456789abcdef.tmp").write_text("half")
    _run(index, shards, target, True)
    _run(index, shards, tmp_path / "again", False, key=tmp_path / "out.key")
    assert _bytes(target) == _bytes(tmp_path / "again")


def test_a_killed_worker_ends_the_run_which_then_goes_on_to_the_same_bytes(index, lines, tmp_path):
    target = tmp_path / "out.jsonl"

    def kill(progress):
        # Once two parts are there.
        if progress.documents == 14:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)

    # More batches than are on their way at a time, so that some are still to come then.
    options = {"part_records": 7, "batch_size": 1}
    with pytest.raises(CorpusError, match="worker process ended"):
        _run(index, lines, target, False, workers=2, on_progress=kill, **options)
    assert not target.exists()
    report = _run(index, lines, target, True, part_records=7)
    assert 0 < report.resumed < report.documents == 160
    _run(index, lines, tmp_path / "again.jsonl", False, key=tmp_path / "out.jsonl.key")
    assert _bytes(target) == _bytes(tmp_path / "again.jsonl")


ORPHANS = """
import multiprocessing, sys, time
import pyarrow as pa
from textpriv.engines.batch import BatchRelease, Columns
from textpriv.engines.workers import WorkerPool
from textpriv.index import Index
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer

privatizer = Privatizer(TEM(Index.load(sys.argv[1]), 1.0), seed=1)
batch = pa.RecordBatch.from_pydict({"text": ["a"], "id": ["a"]})
columns = Columns("text", document="id")
with WorkerPool(BatchRelease(privatizer, columns), None, columns, b"", 3) as pool:
    for _ in pool.ordered((n, batch) for n in range(9)):
        pass
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    time.sleep(60)
"""


def test_workers_end_when_the_process_that_leads_them_is_killed(index):
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANS, str(index)], stdout=subprocess.PIPE, text=True
    ) as leader:
        workers = list(map(int, leader.stdout.readline().split()))
        assert len(workers) == 3
        for worker in workers:
            os.kill(worker, 0)  # it lives
        leader.kill()
    for _ in range(200):
        # Whoever adopts an ended process may leave its entry standing for a while, as a zombie.
        entries = [Path(f"/proc/{worker}/stat") for worker in workers]
        left = [entry.read_text() for entry in entries if entry.exists()]
        if all(entry.rpartition(")")[2].split()[0] == "Z" for entry in left):
            return
        time.sleep(0.1)
    pytest.fail("a worker still runs")


@contextmanager
def _little_room(folder: Path, size: int):
    """A folder on a disk with room for ``size`` bytes; where none can be mounted, a limit on the size of a file."""
    folder.mkdir()
    mounted = (
        shutil.which("mount") is not None
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))

    def widen():
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    try:
        yield widen
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if mounted:
            subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_ends_the_run_which_then_goes_on_to_the_same_bytes(index, tmp_path):
    source = tmp_path / "raw.jsonl"
    # Parts of growing size, so that some fit under either kind of limit.
    rows = [{"text": " ".join(WORDS) * (1 + n // 20)} for n in range(200)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with _little_room(tmp_path / "disk", 300 * 1024) as widen:
        target = tmp_path / "disk" / "out.jsonl"
        with pytest.raises(OSError, match=r"No space left|File too large"):
            _run(index, source, target, False, part_records=2)
        assert not target.exists()
        widen()
        report = _run(index, source, target, True, part_records=2)
        assert 0 < report.resumed < 200
        _run(index, source, tmp_path / "again.jsonl", False, key=RunKey.beside(target).path)
        assert _bytes(target) == _bytes(tmp_path / "again.jsonl")


# What a run can and cannot go on from


def _interrupted(index, source, target, after=3, **options):
    """Begin a run and stop it after some batches."""
    calls = []

    def stop(progress):
        calls.append(progress)
        if len(calls) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(index, source, target, False, on_progress=stop, **options)


def test_an_interrupted_run_is_not_begun_again_unasked(index, lines, tmp_path):
    _interrupted(index, lines, tmp_path / "out.jsonl")
    with pytest.raises(CorpusError, match="Continue it with --resume"):
        _run(index, lines, tmp_path / "out.jsonl", False)


def test_without_its_key_a_run_is_not_continued(index, lines, tmp_path):
    _interrupted(index, lines, tmp_path / "out.jsonl")
    RunKey.beside(tmp_path / "out.jsonl").forget()
    with pytest.raises(CorpusError, match="run key that is gone"):
        _run(index, lines, tmp_path / "out.jsonl", True)


def test_a_run_is_continued_only_with_the_same_input_key_and_settings(index, lines, tmp_path):
    source = tmp_path / "raw.jsonl"
    shutil.copy(lines, source)
    target = tmp_path / "out.jsonl"
    _interrupted(index, source, target)
    with pytest.raises(CorpusError, match="differing: part"):
        _run(index, source, target, True, part_records=11)
    with pytest.raises(CorpusError, match="differing: columns"):
        _run(index, source, target, True, document_column="id")
    RunKey.open(tmp_path / "other.key").keep()
    with pytest.raises(CorpusError, match="differing: key"):
        _run(index, source, target, True, key=tmp_path / "other.key")
    source.write_bytes(source.read_bytes() + b"\n")
    with pytest.raises(CorpusError, match="differing: input"):
        _run(index, source, target, True)


def test_a_damaged_part_is_made_anew(index, lines, tmp_path):
    target = tmp_path / "out.jsonl"
    _interrupted(index, lines, target, after=8)
    (part, *_) = sorted((tmp_path / "out.jsonl.partial").glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1])
    report = _run(index, lines, target, True)
    assert report.documents == 160
    _run(index, lines, tmp_path / "again.jsonl", False, key=tmp_path / "out.jsonl.key")
    assert _bytes(target) == _bytes(tmp_path / "again.jsonl")


@given(full=st.integers(1, 60_000), records=st.integers(0, 300_000))
def test_every_record_is_in_the_part_that_ends_behind_it(full, records):
    ends = list(itertools.takewhile(lambda end: end <= records, _ends(full)))
    assert part_of(records, full) == len(ends)
    assert part_end(records, full) > records
    assert part_of(part_end(records, full) - 1, full) == len(ends)


def _ends(full):
    """Where parts end: 1,250 and its doubles below a full part, then its multiples."""
    early = itertools.takewhile(lambda end: end < full, (1_250 * 2**n for n in itertools.count()))
    return itertools.chain(early, itertools.count(full, full))


@pytest.mark.parametrize("extension", ["jsonl", "parquet"])
def test_of_a_run_that_ends_in_its_first_seconds_what_is_done_is_kept(index, tmp_path, extension):
    source, target = tmp_path / f"raw.{extension}", tmp_path / f"out.{extension}"
    if extension == "jsonl":
        source.write_text('{"text": "one"}\n' * 3_000)
    else:
        pq.write_table(pa.table({"text": ["one"] * 3_000}), source)
    options = {"part_records": PART_RECORDS, "batch_size": 500}
    _interrupted(index, source, target, after=4, **options)
    report = _run(index, source, target, True, **options)
    assert (report.resumed, report.documents) == (1_250, 3_000)
    again = tmp_path / f"again.{extension}"
    _run(index, source, again, False, key=tmp_path / f"out.{extension}.key", part_records=3_000)
    assert _bytes(target) == _bytes(again)


def test_a_run_that_is_told_to_end_says_how_to_go_on(index, tmp_path):
    source, target = tmp_path / "raw.txt", tmp_path / "out.txt"
    source.write_text("one two three\n" * 400_000)
    partial = tmp_path / "out.txt.partial"
    command = [sys.executable, "-c", "from textpriv.cli.app import main; main()", "privatize"]
    command += [str(source), str(target), "--index", str(index), "--epsilon", "4"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE)
    while run.poll() is None and not list(partial.glob("0*.json")):
        time.sleep(0.001)
    run.terminate()
    said = run.communicate()[1].decode()
    assert run.returncode == 128 + signal.SIGTERM
    assert f"What was done is kept in {partial}: go on with --resume." in " ".join(said.split())


def test_two_runs_cannot_write_to_one_output(index, lines, tmp_path):
    target = tmp_path / "out.jsonl"

    def again(progress):
        with pytest.raises(CorpusError, match="Another run"):
            _run(index, lines, target, True)

    _run(index, lines, target, False, on_progress=again)


def test_a_failure_before_anything_was_finished_leaves_nothing(index, tmp_path):
    source = tmp_path / "a.txt"
    source.write_bytes(b"\xff\n")
    with pytest.raises(CorpusError, match="line 1"):
        _run(index, source, tmp_path / "b.txt", False)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_finished_folder_is_known_to_be_complete(index, shards, tmp_path):
    first = _run(index, shards, tmp_path / "out", False)
    second = _run(index, shards, tmp_path / "out", True)
    assert second.resumed == first.documents == 160
    assert second.tokens == first.tokens
    with pytest.raises(CorpusError, match="exists"):
        _run(index, shards, tmp_path / "out", False)


def test_a_run_that_ended_between_its_last_two_steps_is_complete(
    index, shards, tmp_path, monkeypatch
):
    from textpriv.corpus.checkpoint import Checkpoint

    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            _run(index, shards, tmp_path / "out", False)
    before = _bytes(tmp_path / "out")
    assert _run(index, shards, tmp_path / "out", True).resumed == 160
    assert _bytes(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == ["out", "out.key", "out.manifest.json"]


def test_a_run_that_ended_between_its_manifest_and_its_folder_goes_on(
    index, shards, tmp_path, monkeypatch
):
    replace = os.replace

    def killed(made, name):
        if Path(name) == tmp_path / "out":
            raise KeyboardInterrupt
        replace(made, name)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            _run(index, shards, tmp_path / "out", False)
    manifest = (tmp_path / "out.manifest.json").read_bytes()
    assert not (tmp_path / "out").exists()
    assert _run(index, shards, tmp_path / "out", True).resumed == 160
    assert (tmp_path / "out.manifest.json").read_bytes() == manifest
    names = {file["name"] for file in json.loads(manifest)["files"]}
    assert names == set(os.listdir(tmp_path / "out"))


@pytest.mark.parametrize("step", ["part", "publish_folder"])
def test_a_continued_run_reports_the_columns_of_all_its_records(tmp_path, index, monkeypatch, step):
    from textpriv.corpus.checkpoint import Checkpoint

    raw = tmp_path / "raw"
    raw.mkdir()
    rows = [{"text": "bana", "one": 1}] * 4 + [{"text": "bana", "two": 2}] * 4
    (raw / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = getattr(Checkpoint, step)
    rule = ColumnRule(keep=("one", "two", "three"))

    def fail(self, *given):
        if step == "publish_folder" or given == (0, 3):
            raise OSError(28, "No space left on device")
        return made(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, step, fail)
        with pytest.raises(OSError, match="No space"):
            _run(index, raw, tmp_path / "out", False, part_records=2, batch_size=1, columns=rule)
    result = []
    report = _run(
        index,
        raw,
        tmp_path / "out",
        True,
        part_records=2,
        batch_size=1,
        columns=rule,
        on_unprotected=result.append,
    )
    assert report.resumed >= 6
    assert report.unprotected == ("one", "two")
    assert report.unmatched == ("three",)
    assert result == [("one",)]
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["unprotected"] == ["one", "two"]


def test_a_seeded_run_can_be_continued_without_a_key(index, lines, tmp_path):
    settings = PrivatizerSettings(str(index), options={"epsilon": 4.0}, seed=5)

    def run(target, resume, **more):
        return privatize_corpus(
            lines,
            target,
            settings.build(),
            settings=settings,
            resume=resume,
            part_records=10,
            batch_size=7,
            **more,
        )

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.jsonl", False, on_progress=_stop_at(20))
    assert run(tmp_path / "a.jsonl", True).resumed
    run(tmp_path / "b.jsonl", None)
    assert _bytes(tmp_path / "a.jsonl") == _bytes(tmp_path / "b.jsonl")


def _stop_at(documents):
    def stop(progress):
        if progress.documents >= documents:
            raise KeyboardInterrupt

    return stop


def test_continuing_needs_something_that_repeats_the_draws(index, lines, tmp_path):
    privatizer = PrivatizerSettings(str(index), options={"epsilon": 4.0}).build()
    with pytest.raises(CorpusError, match="run key, a seed or a ledger"):
        privatize_corpus(lines, tmp_path / "b.jsonl", privatizer, resume=True)
