"""A pool of workers releases what one process releases, in order, and says what went wrong without a private text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from echo import another_thread

from textpriv.engines import local as pool_of_workers
from textpriv.engines.batch import BatchRelease, Columns, PrivatizerSettings
from textpriv.engines.local import InProcess, WorkerPool
from textpriv.errors import CorpusError
from textpriv.index import Index
from textpriv.tokenization.encoder import TextEncoder
from textpriv.vocabulary import Vocabulary

HERE = Path(__file__).resolve().parent
WORDS = ["good", "film", "the", "night", ".", "it", "'s", "seven", "a.m."]
COLUMNS = Columns("text", document="id", null="fail")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("index") / "w.idx"
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 4))
    Index.build(Vocabulary(WORDS, vectors)).save(path)
    return path


def settings(folder: Path, **more) -> PrivatizerSettings:
    return PrivatizerSettings(str(folder), options={"epsilon": 3.0}, run_key=bytes(32), **more)


def batches(count: int) -> list[pa.RecordBatch]:
    """Texts with new words in every batch, special cases over blanks, and runs of blanks."""
    pieces = [*WORDS, "Good,", ": )", "a.m .", ":)", "  ", "\n\n", "(42)", "it's", "x" * 1001, ""]
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        texts = [
            " ".join([*rng.choice(pieces, size=12), f"new{number}", f"new{rng.integers(300)}."])
            for _ in range(9)
        ]
        ids = [f"{number}-{row}" for row in range(9)]
        found.append(pa.RecordBatch.from_pydict({"id": ids, "text": [*texts[:8], ""]}))
    return found


def released(engine, given) -> tuple[list[list[str]], Counter[str]]:
    texts, tokens = [], Counter()
    with engine:
        for place, (job, done) in enumerate(engine.ordered(enumerate(given))):
            assert job == place
            batch, counts = done.result()
            texts.append(batch["text"].to_pylist())
            assert batch["id"].equals(given[place]["id"])
            tokens += counts
    return texts, tokens


POLICIES = [{}, {"unknown": "keep", "stopword": "keep"}, {"unknown": "drop", "space": "mask"}]


def compare(folder: Path, policy: dict[str, str], workers: int, start: str, **more: str) -> None:
    """A pool of workers releases what one process does; its processes are forked, or begin from nothing."""
    recipe, given = settings(folder, policy=policy, **more), batches(30)
    alone = released(InProcess(BatchRelease(recipe.build(), COLUMNS)), given)
    pool = WorkerPool(BatchRelease(recipe.build(), COLUMNS), recipe, workers)
    assert released(pool, given) == alone
    assert pool._pool._mp_context.get_start_method() == start


def test_a_pool_that_begins_from_nothing_releases_what_one_process_does(folder):
    # Beside another thread no process is copied.
    with another_thread():
        compare(folder, POLICIES[1], 2, start="spawn")


def test_a_mechanism_that_reads_its_context_is_drawn_the_same_in_a_pool(folder):
    with another_thread():
        compare(folder, {}, 2, start="spawn", mechanism="textpriv.ContextualTEM.v1")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
def test_a_pool_of_copies_releases_what_one_process_does(folder):
    """In a process of its own, beside which no thread runs, so that it can be copied."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\n"
        "import test_workers as here\n"
        "for workers, policy in zip((2, 3, 5), here.POLICIES):\n"
        "    here.compare(Path(sys.argv[3]), policy, workers, start='fork')\n"
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
    recipe, given = settings(folder), batches(6)
    given[1] = pa.RecordBatch.from_pydict({"id": ["a"], "text": [None]}, given[1].schema)
    given[3] = pa.RecordBatch.from_pydict({"id": [""], "text": ["good"]}, given[3].schema)
    pool = WorkerPool(BatchRelease(recipe.build(), COLUMNS), recipe, 1)
    with pool:
        errors = [done.error for _, done in pool.ordered(enumerate(given))]
    assert [error is None for error in errors] == [True, False, True, False, True, True]
    assert "row 1 of a batch" in str(errors[1])
    assert "a name" in str(errors[3])


def test_what_goes_wrong_in_a_worker_is_told_without_a_private_text(folder, monkeypatch):
    def fail(self, texts):
        raise ValueError(f"cannot cut {texts}")

    monkeypatch.setattr(pool_of_workers, "_given", BatchRelease(settings(folder).build(), COLUMNS))
    monkeypatch.setattr(TextEncoder, "encode", fail)
    with pytest.raises(RuntimeError, match="textpriv failed with ValueError") as told:
        pool_of_workers._released(batches(1)[0])
    assert "new0" not in str(told.value)


def test_a_worker_that_dies_is_told_with_what_to_do(folder):
    recipe, given = settings(folder), batches(40)
    pool = WorkerPool(BatchRelease(recipe.build(), COLUMNS), recipe, 1)
    with pool:
        results = pool.ordered(enumerate(given))
        next(results)
        for worker in pool._pool._processes:
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(CorpusError, match="fewer workers or a smaller batch size"):
            list(results)
