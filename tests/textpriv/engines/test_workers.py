"""A pool of workers releases what one process releases, in order, and says what went wrong without a private text."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
from echo import another_thread

from textpriv.engines import local
from textpriv.engines.batch import BatchRelease, release_records
from textpriv.engines.columns import Columns, Record
from textpriv.engines.local import mapped
from textpriv.errors import CorpusError, DocumentError
from textpriv.index import Index
from textpriv.settings import PrivatizerSettings
from textpriv.tokenization.encoder import TextEncoder
from textpriv.vocabulary import Vocabulary

HERE = Path(__file__).resolve().parent
WORDS = ["good", "film", "the", "night", ".", "it", "'s", "seven", "a.m."]
COLUMNS = Columns("text", "id")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("index") / "w.idx"
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 4))
    Index.build(Vocabulary(WORDS, vectors), "euclidean").save(path)
    return path


def settings(folder: Path, **more) -> PrivatizerSettings:
    return PrivatizerSettings(str(folder), options={"epsilon": 3.0}, run_key=bytes(32), **more)


def batches(count: int) -> list[list[Record]]:
    """Texts with new words in every batch, special cases over blanks, and runs of blanks."""
    pieces = [*WORDS, "Good,", ": )", "a.m .", ":)", "  ", "\n\n", "(42)", "it's", "x" * 1001, ""]
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        texts = [
            " ".join([*rng.choice(pieces, size=12), f"new{number}", f"new{rng.integers(300)}."])
            for _ in range(9)
        ]
        texts = enumerate([*texts[:8], ""])
        found.append([Record([text], f"{number}-{row}") for row, text in texts])
    return found


def results_of(given, recipe: PrivatizerSettings, workers: int):
    """Release batches in workers, whether or not this process can be copied."""
    release = BatchRelease(recipe.build(), COLUMNS)
    known = release.privatizer.fingerprint
    other = partial(release_records, recipe, COLUMNS, known, False)
    return mapped(given, release.rows, workers, other)


def released(given, recipe: PrivatizerSettings, workers=1) -> tuple[list[list[str]], Counter[str]]:
    texts, tokens = [], Counter()
    for done in results_of(given, recipe, workers):
        texts.append(done.texts)
        tokens += Counter(done.tokens)
    return texts, tokens


POLICIES = [{}, {"unknown": "keep", "stopword": "keep"}, {"unknown": "drop", "space": "mask"}]


def compare(folder: Path, policy: dict[str, str], workers: int, start: str, **more: str) -> None:
    """A pool of workers releases what one process does; its processes are forked, or begin from nothing."""
    recipe, given = settings(folder, policy=policy, **more), batches(30)
    alone = released(given, recipe)
    kinds = set()

    def watched():
        for rows in given:
            kinds.update(type(each).__name__ for each in active_children())
            yield rows

    assert released(watched(), recipe, workers) == alone
    assert kinds == {f"{start}Process"}


def test_a_pool_that_begins_from_nothing_releases_what_one_process_does(folder):
    # Beside another thread no process is copied.
    with another_thread():
        compare(folder, POLICIES[1], 2, start="Spawn")


def test_a_mechanism_that_reads_its_context_is_drawn_the_same_in_a_pool(folder):
    with another_thread():
        compare(folder, {}, 2, start="Spawn", mechanism="textpriv.ContextualTEM.v1")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
def test_a_pool_of_copies_releases_what_one_process_does(folder):
    """In a process of its own, beside which no thread runs, so that it can be copied."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\n"
        "import test_workers as here\n"
        "for workers, policy in zip((2, 3, 5), here.POLICIES):\n"
        "    here.compare(Path(sys.argv[3]), policy, workers, start='Fork')\n"
        "print('the same')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(HERE), str(HERE.parents[1]), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == "the same\n", answer.stderr


def test_a_batch_that_cannot_be_read_or_drawn_is_told_in_its_place(folder):
    wrong = {"a text": [Record(["good"], "a"), Record([5], "b")], "a name": [Record(["good"], "")]}
    for match, records in wrong.items():
        given = [*batches(2), records, *batches(1)]
        with contextlib.closing(results_of(given, settings(folder), 2)) as results:
            assert len([next(results), next(results)]) == 2
            with pytest.raises(DocumentError, match=match) as told:
                next(results)
        assert told.value.position == len(records) - 1


def test_what_goes_wrong_in_a_worker_is_told_without_a_private_text(folder, monkeypatch):
    def fail(self, texts):
        raise ValueError(f"cannot cut {texts}")

    release = BatchRelease(settings(folder).build(), COLUMNS)
    monkeypatch.setattr(local, "_work", release.rows, raising=False)
    monkeypatch.setattr(TextEncoder, "encode", fail)
    with pytest.raises(RuntimeError, match="textpriv failed with ValueError") as told:
        local._worked(batches(1)[0])
    assert "new0" not in str(told.value)


def test_a_worker_that_dies_is_told_with_what_to_do(folder):
    # Closed here: a pool that the garbage collector ends, whenever it runs, may wait for ever.
    with contextlib.closing(results_of(batches(40), settings(folder), 2)) as results:
        next(results)
        for worker in active_children():
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(CorpusError, match="fewer workers or a smaller batch size"):
            list(results)
