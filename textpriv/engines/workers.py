"""The Arrow-batch function in several processes of this machine: a process pool in which each worker tokenizes and samples.

Batches go in one after the other and come out in the same order. The memory-mapped index is shared by all processes. What a
batch becomes is in ``textpriv.engines.batch``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeVar

from textpriv.engines.batch import (
    BatchRelease,
    Columns,
    PrivatizerSettings,
    release_in_process,
    without_trace,
)
from textpriv.engines.local import EMPTY, Released, release_batch
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WorkerPool"]

Job = TypeVar("Job")

# In flight for each worker, as long as their texts are not larger than so many bytes.
_BATCHES, _BYTES = 16, 8 << 20

_Recipe = tuple[PrivatizerSettings, Columns, bytes]

# What this worker releases with: taken over by a fork, or made from the recipe with the first batch.
_given: BatchRelease | _Recipe | None = None


class WorkerPool:
    """A process pool that releases batches; results come in order and few batches are in flight.

    Parameters
    ----------
    release : BatchRelease
        What forked workers take over as it is.
    settings, columns, context
        What workers that begin from nothing make their own from, as in :class:`BatchRelease`.
    workers : int
    """

    def __init__(
        self,
        release: BatchRelease,
        settings: PrivatizerSettings,
        columns: Columns,
        context: bytes,
        workers: int,
    ) -> None:
        self._workers = workers
        # A forked worker has all that this process has loaded. Beside other threads it might find a lock closed for ever.
        forks = sys.platform == "linux" and threading.active_count() == 1
        if forks:
            release.privatizer.warm()
        self._pool = ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("fork" if forks else "spawn"),
            _begin,
            (release if forks else (settings, columns, context),),
        )
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            # All forked workers start with the first job: now, before the caller may start a thread.
            self._pool.submit(int)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch, in the order of the jobs; one without a batch passes through.

        Raises
        ------
        CorpusError
            If a worker process dies.
        """
        pending: deque[tuple[Job, Future[Released] | None, int]] = deque()
        size = 0
        try:
            for job, batch in jobs:
                future = None if batch is None else self._pool.submit(_released, batch)
                pending.append((job, future, 0 if batch is None else batch.nbytes))
                size += pending[-1][2]
                while pending and (self._is_full(len(pending), size) or _is_done(pending[0][1])):
                    job, future, nbytes = pending.popleft()
                    size -= nbytes
                    yield job, EMPTY if future is None else future.result()
            for job, future, _ in pending:
                yield job, EMPTY if future is None else future.result()
        except BrokenProcessPool:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a "
                "script without 'if __name__ == \"__main__\":'). The output is not complete. Try "
                "fewer workers or a smaller batch size."
            ) from None

    def _is_full(self, batches: int, size: int) -> bool:
        return batches > _BATCHES * self._workers or size > _BYTES * self._workers


def _is_done(future: Future[Released] | None) -> bool:
    return future is None or future.done()


def _begin(given: BatchRelease | _Recipe) -> None:
    """Prepare a worker process."""
    global _given
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _given = given


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    wait([sentinel])
    os._exit(1)


def _released(batch: pa.RecordBatch) -> Released:
    """Release a batch in a worker; what goes wrong carries no private text back."""

    def work(batch: pa.RecordBatch) -> Released:
        assert _given is not None
        try:
            release = release_in_process(*_given) if isinstance(_given, tuple) else _given
        except TextprivError as error:
            return Released(None, Counter(), error)
        return release_batch(release, batch)

    return without_trace(work, batch)
