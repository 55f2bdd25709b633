"""Two or three runs on one output at once, and what is not ours beside it: one run wins, and nothing of others is lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from small_indexes import saved
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

pytestmark = pytest.mark.usefixtures("without_torch")

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst")]
DOCUMENTS = 12


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("index"), WORDS, 4)


def _raw(folder: Path, is_folder: bool) -> Path:
    lines = [json.dumps({"id": n, "text": " ".join(WORDS[n : n + 9])}) for n in range(DOCUMENTS)]
    source = folder / ("raw" if is_folder else "raw.jsonl")
    if is_folder:
        source.mkdir()
        for n in range(2):
            (source / f"{n}.jsonl").write_text("\n".join(lines[n::2]) + "\n")
    else:
        source.write_text("\n".join(lines) + "\n")
    return source


def _run(index, source, target, resume, key=None, **options):
    key = RunKey.beside(target) if key is None else key
    settings = PrivatizerSettings(str(index), options={"epsilon": 4.0}, run_key=key.secret)
    return privatize_corpus(
        source,
        target,
        settings.build(),
        key=key,
        resume=resume,
        part_records=4,
        batch_size=2,
        **options,
    )


# A process that has loaded everything copies itself; the copies wait for one signal and then run on one output.
RACERS = """
import contextlib, json, os, shutil, sys, time
sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], "../..")]
from pathlib import Path
from test_corpus_races import _raw, _run
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.corpus import run as corpus_run
from textpriv.errors import CorpusError
from textpriv.run_key import RunKey

only_writer = corpus_run.only_writer
writing = []  # when this run alone may write, and until when

@contextlib.contextmanager
def timed(target):
    with only_writer(target):
        writing.append(time.monotonic_ns())
        yield
        writing.append(time.monotonic_ns())

corpus_run.only_writer = timed
index, place, races = sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
sources = [_raw(place, False), _raw(place, True)]
_run(index, sources[0], place / "warm.jsonl", False)
plain = PrivatizerSettings(index, options={"epsilon": 4.0}, seed=3).build()

def racer(mode, folder, signal, told):
    os.close(signal[1])
    source, target = sources[mode == "folder"], folder / ("out" if mode == "folder" else "out.jsonl")
    key = RunKey.beside(target) if mode == "own key" else None  # each has drawn one of its own
    writing.clear()
    os.read(signal[0], 1)
    try:
        if mode == "no key":
            privatize_corpus(source, target, plain)
        else:
            _run(index, source, target, mode == "resumed", key=key)
        outcome = "done"
    except CorpusError as error:
        outcome = f"refused: {error}"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    os.write(told, (json.dumps([outcome, *writing]) + "\\n").encode())
    os._exit(0)

def stop(progress):
    raise KeyboardInterrupt

for race in range(races):
    mode = ("own key", "folder", "no key", "beside", "resumed")[race % 5]
    folder = place / str(race)
    folder.mkdir()
    if mode == "resumed":
        try:
            stopped = lambda progress: stop(progress) if progress.documents >= 6 else None
            _run(index, sources[0], folder / "out.jsonl", False, on_progress=stopped)
        except KeyboardInterrupt:
            pass
    signal, answers, racers = os.pipe(), os.pipe(), []
    for _ in range(2 + race // 5 % 2):
        racers.append(os.fork())
        if not racers[-1]:
            racer(mode, folder, signal, answers[1])
    os.close(answers[1])
    os.close(signal[0])
    os.close(signal[1])
    ends = [os.waitpid(pid, 0)[1] for pid in racers]
    with os.fdopen(answers[0]) as file:
        told = [json.loads(line) for line in file]
    target = folder / ("out" if mode == "folder" else "out.jsonl")
    files = sorted(target.glob("*.jsonl")) if target.is_dir() else [target]
    lines = sum(len(file.read_text().splitlines()) for file in files if file.exists())
    print(json.dumps([mode, ends, told, lines, sorted(os.listdir(folder))]))
    shutil.rmtree(folder)
"""


def race(index: Path, tmp_path: Path, races: int) -> list[list]:
    """Run so many races, of two and of three runs in turn; what each came to."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=place) as folder:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                RACERS,
                str(Path(__file__).parent),
                str(index),
                folder,
                str(races),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_of_runs_that_race_on_one_output_one_wins_and_the_others_are_refused(index, tmp_path):
    # TEXTPRIV_RACES asks for more of them.
    wanted = int(os.environ.get("TEXTPRIV_RACES", "20"))
    seen = race(index, tmp_path, wanted)
    assert len(seen) == wanted
    together = 0
    for mode, ends, told, lines, left in seen:
        assert set(ends) == {0}
        won = sorted(tuple(writing) for outcome, *writing in told if outcome == "done")
        lost = [outcome for outcome, *_ in told if outcome != "done"]
        assert len(told) == len(ends)
        assert all(outcome.startswith("refused: ") for outcome in lost), lost
        assert won, (mode, lost)
        # One that begins when another has ended writes anew, or finds all done; a new key or a new folder it cannot have.
        assert all(end < begun for (_, end), (begun, _) in itertools.pairwise(won)), (mode, won)
        assert len(won) == 1 or mode not in ("own key", "folder")
        assert lines == DOCUMENTS
        target = "out" if mode == "folder" else "out.jsonl"
        beside = [f"{target}.key"] * (mode != "no key") + ["out.manifest.json"] * (mode == "folder")
        assert left == [target, *beside]
        together += len(lost) > 0
    # Most are races indeed.
    assert together > wanted / 2


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _foreign(kind: str, path: Path) -> None:
    """Something of somebody else's at the place of a work folder."""
    if kind == "file":
        path.write_text("a thesis")
        return
    if kind == "link":
        elsewhere = path.with_name("elsewhere")
        elsewhere.mkdir()
        (elsewhere / "thesis.txt").write_text("a thesis")
        path.symlink_to(elsewhere)
        return
    path.mkdir()
    if kind != "empty":
        (path / "thesis.txt").write_text("a thesis")
        (path / "result").mkdir()
        (path / "result" / "figure.txt").write_text("a figure")
    if kind == "its own job":
        (path / "job.json").write_text('{"name": "nightly", "run": 7}')
    if kind == "broken job":
        (path / "job.json").write_text("[" * 100_000)
    if kind == "job folder":
        (path / "job.json").mkdir()


KINDS = ["file", "link", "empty", "plain", "its own job", "broken job", "job folder"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_of_somebody_elses_in_the_place_of_a_run_is_neither_taken_nor_removed(
    index, tmp_path, kind, resume, is_folder
):
    source = _raw(tmp_path, is_folder)
    target = tmp_path / ("out" if is_folder else "out.jsonl")
    _foreign(kind, target.with_name(target.name + ".partial"))
    before = _content(tmp_path), sorted(os.listdir(tmp_path))
    with pytest.raises(CorpusError, match="carries no job file of a run"):
        _run(index, source, target, resume)
    assert (_content(tmp_path), sorted(os.listdir(tmp_path))) == before


def test_a_foreign_folder_beside_a_finished_output_stays(index, tmp_path):
    source, target = _raw(tmp_path, True), tmp_path / "out"
    _run(index, source, target, False)
    _foreign("plain", tmp_path / "out.partial")
    before = _content(tmp_path)
    with pytest.raises(CorpusError, match="carries no job file"):
        _run(index, source, target, True)
    assert _content(tmp_path) == before


def test_the_command_does_not_offer_to_go_on_with_a_folder_of_somebody_elses(index, tmp_path):
    source = _raw(tmp_path, False)
    _foreign("plain", tmp_path / "out.jsonl.partial")
    arguments = ["privatize", str(source), str(tmp_path / "out.jsonl"), "--index", str(index)]
    told = CliRunner().invoke(app, [*arguments, "--epsilon", "4", "--resume"])
    assert told.exit_code == 1
    assert "carries no job file" in told.output
    assert "What was done" not in told.output


def test_a_run_whose_key_another_has_destroyed_meanwhile_does_not_begin(index, tmp_path):
    source, target = _raw(tmp_path, False), tmp_path / "out.jsonl"
    RunKey.beside(target).keep()
    key = RunKey.beside(target)
    RunKey.beside(target).forget()
    with pytest.raises(CorpusError, match="Cannot read the run key"):
        _run(index, source, target, False, key=key)
    RunKey.beside(target).keep()
    with pytest.raises(CorpusError, match="is another one than when it was read"):
        _run(index, source, target, False, key=key)


def test_a_lock_that_a_killed_run_has_left_keeps_nobody_away(index, tmp_path):
    source, target = _raw(tmp_path, False), tmp_path / "out.jsonl"
    (tmp_path / ".out.jsonl.textpriv-lock").touch()
    assert _run(index, source, target, False).documents == DOCUMENTS
    assert sorted(os.listdir(tmp_path)) == ["out.jsonl", "out.jsonl.key", "raw.jsonl"]


DAMAGES = {
    "no object": lambda entry: [],
    "a missing count": lambda entry: entry.pop("documents") and entry,
    "a negative count": lambda entry: {**entry, "documents": -3},
    "a count that is text": lambda entry: {**entry, "tokens": {"word": "many"}},
    "a place without a record": lambda entry: {**entry, "end": {"record": None}},
    "a place that is a list": lambda entry: {**entry, "end": [1, 2]},
    "columns without names": lambda entry: {**entry, "unprotected": [3]},
    "another part's": lambda entry: {**entry, "part": 1},
    "a checksum that is a number": lambda entry: {**entry, "sha256": 0},
    "more fields": lambda entry: {**entry, "colour": "red"},
    "too deep": None,
    "a folder": None,
}


@pytest.fixture(scope="module")
def stopped(index, tmp_path_factory) -> tuple[Path, bytes]:
    """A folder with a run that was stopped after two parts, and what comes of it in the end."""

    def stop(progress):
        if progress.documents >= 8:
            raise KeyboardInterrupt

    folder = tmp_path_factory.mktemp("stopped")
    source, target = _raw(folder, False), folder / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        _run(index, source, target, False, on_progress=stop)
    again = tmp_path_factory.mktemp("again") / "out.jsonl"
    _run(index, source, again, False, key=RunKey.beside(target))
    return folder, again.read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_counts_as_not_finished_and_its_part_is_made_anew(
    index, tmp_path, stopped, damage
):
    shutil.copytree(stopped[0], tmp_path, dirs_exist_ok=True)
    source, target = tmp_path / "raw.jsonl", tmp_path / "out.jsonl"
    folder = tmp_path / "out.jsonl.partial"
    place = folder / "000000-000000.json"
    (folder / "notes.json").write_text("[]")  # not one of ours, and in nobody's way
    if damage == "too deep":
        place.write_text('{"end":' * 100_000)
    elif damage == "a folder":
        place.unlink()
        place.mkdir()
        with pytest.raises(CorpusError, match="is a folder or a link"):
            _run(index, source, target, True)
        return
    else:
        place.write_text(json.dumps(DAMAGES[damage](json.loads(place.read_text()))))
    assert _run(index, source, target, True).documents == DOCUMENTS
    assert target.read_bytes() == stopped[1]
