"""Runs of a small corpus on any engine, and tasks that fail or kill: what the tests of Spark and of Ray share.

Executors get these by value, for they cannot import tests.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.corpus import run as corpus
from textpriv.corpus.parts import make_file
from textpriv.run_key import RunKey

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


COLUMNS = ["text", "subject"]


def run(target, source, settings, key, resume=False, **options):
    key = RunKey.open(key.path)
    options = {"part_records": 20, "settings": settings, **options}
    privatize_corpus(source, target, settings.build(), key=key, resume=resume, **options)
    return target


def run_apart(index: str, key: str, source: str, target: str, resume: bool) -> None:
    """What a process that may be killed does of a run whose documents have names."""
    sent = RunKey.open(Path(key))
    settings = PrivatizerSettings(index, options={"epsilon": 4.0}, run_key=sent.secret)
    options = {"part_records": 10, "document_column": "id"}
    run(target, source, settings, sent, resume, **options)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".json"}


@dataclass(frozen=True)
class KilledOnce:
    """Kills its own process at the first task that any process begins."""

    marker: str

    def __call__(self, plan, folder, task):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return make_file(plan, folder, task)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True)
class FailingAt:
    """Fails always at one task."""

    place: int

    def __call__(self, plan, folder, task):
        if 40 * task["file"] == self.place:
            raise OSError(5, "zanzibar")
        return make_file(plan, folder, task)


@dataclass(frozen=True)
class KillingTheDriver:
    """Kills the process that leads the run at one task."""

    driver: int
    place: int

    def __call__(self, plan, folder, task):
        if 40 * task["file"] == self.place:
            os.kill(self.driver, signal.SIGKILL)
        return make_file(plan, folder, task)


def lead_and_be_killed(engine: str, target: str, shards: str, index: str, key: str) -> None:
    """What the process does that a task of its own run kills."""
    pickles = import_module({"spark": "pyspark", "ray": "ray"}[engine]).cloudpickle
    pickles.register_pickle_by_value(sys.modules[__name__])
    sent = RunKey.open(Path(key))
    settings = PrivatizerSettings(index, options={"epsilon": 4.0}, run_key=sent.secret)
    corpus.make_file = KillingTheDriver(driver=os.getpid(), place=80)
    run(Path(target), Path(shards), settings, sent, engine=engine, workers=2)


def a_killed_driver_is_continued(engine, target: Path, shards: Path, index: Path, key, settings):
    """Let a task kill the process that leads its run, and go on in this one; the folder that comes of it."""
    given = [engine, *map(str, (target, shards, index, key.path))]
    code = f"import engine_runs; engine_runs.lead_and_be_killed(*{given!r})"
    # What it leaves behind may hold its output open: that goes to a file.
    with open(target.with_name("told"), "wb") as told:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            stdout=told,
            stderr=told,
            cwd=Path(__file__).parent,
            timeout=200,
            check=False,
        ).returncode
    assert ended == -signal.SIGKILL, target.with_name("told").read_text("utf-8", "replace")
    assert not target.exists()
    return run(target, shards, settings, key, resume=True)
