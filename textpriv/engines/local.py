"""The Arrow-batch function in this process, or in a few worker processes of this machine.

Batches go in one after the other and come out in the same order. The processes share the memory-mapped index. What a
batch is made of, and what becomes of it, is not known here.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from textpriv.engines.batch import BatchRelease, Columns, PrivatizerSettings, release_in_process
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

__all__ = ["InProcess", "Released", "WorkerPool"]

Job = TypeVar("Job")


@dataclass(frozen=True)
class Released:
    """A batch after its release: the batch itself, tokens by class, or the error instead."""

    batch: pa.RecordBatch | None
    tokens: Counter[str]
    error: Exception | None = None

    def result(self) -> tuple[pa.RecordBatch | None, Counter[str]]:
        """Return the batch and the tokens, or raise."""
        if self.error is not None:
            raise self.error
        return self.batch, self.tokens


def _release(release: BatchRelease, batch: pa.RecordBatch) -> Released:
    try:
        done = release(batch)
    except TextprivError as error:
        return Released(None, Counter(), error)
    tokens, release.tokens = release.tokens, Counter()
    return Released(done, tokens)


class InProcess:
    """Releases batches in this process."""

    def __init__(self, release: BatchRelease) -> None:
        self._release = release

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave nothing behind."""

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch; a job without a batch passes through."""
        for job, batch in jobs:
            yield job, _NOTHING if batch is None else _release(self._release, batch)


_NOTHING = Released(None, Counter())
_HELPED = 4  # most workers among which this process is one
_worker: BatchRelease | TextprivError | OSError | None = None


def _start_worker(
    given: PrivatizerSettings | BatchRelease, columns: Columns, context: bytes
) -> None:
    """Take over this process's release, or build it once; a failure is kept and told at the first batch."""
    import multiprocessing
    import signal

    global _worker
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    if isinstance(given, BatchRelease):
        _worker = given
        return
    try:
        _worker = release_in_process(given, columns, context)
    except (TextprivError, OSError) as error:
        _worker = error


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)


def _work(batch: pa.RecordBatch) -> Released:
    if isinstance(_worker, Exception):
        raise _worker
    assert _worker is not None
    return _release(_worker, batch)


class WorkerPool:
    """A few processes that release batches; results come in order and few batches are in flight.

    Of up to four workers this process is one: else a machine of few cores would have it wait, and read, beside as many
    busy processes as it has cores. It also works while the others still load.
    """

    def __init__(
        self,
        release: BatchRelease,
        settings: PrivatizerSettings,
        columns: Columns,
        context: bytes,
        workers: int,
    ) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self._here = release if workers <= _HELPED else None
        others = workers - (self._here is not None)
        # A forked process has all that this one has loaded, at once and without a copy. But a fork beside other threads
        # may leave a lock closed for ever, so then processes load everything themselves.
        forks = sys.platform == "linux" and threading.active_count() == 1
        self._pool = ProcessPoolExecutor(
            max_workers=others,
            mp_context=multiprocessing.get_context("fork" if forks else "spawn"),
            initializer=_start_worker,
            initargs=(release if forks else settings, columns, context),
        )
        self._most_given = 2 * others
        self._most_waiting = 8 * workers

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        # On failure the batches that have begun still end, but none begins any more.
        self._pool.shutdown(wait=True, cancel_futures=True)

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch, in the order of the jobs; one without a batch passes through.

        Raises
        ------
        CorpusError
            If a worker process dies.
        """
        from concurrent.futures.process import BrokenProcessPool

        waiting: deque[tuple[Job, Future[Released] | Released]] = deque()
        try:
            for job, batch in jobs:
                waiting.append((job, _NOTHING if batch is None else self._given(batch, waiting)))
                while waiting and (_is_done(waiting[0][1]) or self._is_full(waiting)):
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        except BrokenProcessPool:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a "
                "script without 'if __name__ == \"__main__\":'). The output is not complete. Try "
                "fewer workers or a smaller batch size."
            ) from None

    def _given(
        self, batch: pa.RecordBatch, waiting: Iterable[tuple[object, Future[Released] | Released]]
    ) -> Future[Released] | Released:
        """Give a batch to the other processes; where they have enough to do, release it here."""
        given = sum(not _is_done(found) for _, found in waiting)
        if self._here is not None and given >= self._most_given:
            return _release(self._here, batch)
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._pool.submit(_work, batch)

    def _is_full(self, waiting: deque[tuple[Job, Future[Released] | Released]]) -> bool:
        most = self._most_given if self._here is None else self._most_waiting
        return len(waiting) >= most


def _is_done(found: Future[Released] | Released) -> bool:
    return isinstance(found, Released) or found.done()


def _finished(job: Job, found: Future[Released] | Released) -> tuple[Job, Released]:
    return job, found if isinstance(found, Released) else found.result()
