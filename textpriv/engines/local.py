"""Record batches released in this process, or in several of this machine; results come in order."""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeVar

from textpriv.engines.batch import BatchRelease, release_in_process, without_trace
from textpriv.engines.settings import PrivatizerSettings
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.engines.batch import Columns

__all__ = ["InProcess", "Released", "WorkerPool", "local_engine"]

Job = TypeVar("Job")
_Recipe = tuple[PrivatizerSettings, "Columns"]

# In flight for each worker, as long as their texts are not larger than so many bytes.
_BATCHES, _BYTES = 16, 8 << 20


@dataclass(frozen=True)
class Released:
    """A released batch and its tokens by class, or the error instead."""

    batch: pa.RecordBatch | None
    tokens: Counter[str]
    error: Exception | None = None

    def result(self) -> tuple[pa.RecordBatch | None, Counter[str]]:
        """Return the batch and the tokens, or raise."""
        if self.error is not None:
            raise self.error
        return self.batch, self.tokens


def _release(release: BatchRelease, batch: pa.RecordBatch | None) -> Released:
    if batch is None:
        return Released(None, Counter())
    try:
        done = release(batch)
    except TextprivError as error:
        return Released(None, Counter(), error)
    tokens, release.tokens = release.tokens, Counter()
    return Released(done, tokens)


class InProcess(contextlib.AbstractContextManager["InProcess"]):
    """The engine that releases batches in this process."""

    def __init__(self, release: BatchRelease) -> None:
        self._own = release

    def __exit__(self, *exception: object) -> None:
        """Leave nothing behind."""

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch; a job without a batch passes through."""
        for job, batch in jobs:
            yield job, _release(self._own, batch)


class WorkerPool(contextlib.AbstractContextManager["WorkerPool"]):
    """The engine that releases batches in several processes, which share the memory-mapped index.

    Parameters
    ----------
    release : BatchRelease
        Forked workers take it over as it is; others build their own from ``settings``.
    settings : PrivatizerSettings
    workers : int
    """

    def __init__(self, release: BatchRelease, settings: PrivatizerSettings, workers: int) -> None:
        self._workers = workers
        # A forked worker has all that this process has loaded. Beside other threads it might find a lock closed for ever.
        forks = sys.platform == "linux" and threading.active_count() == 1
        if forks:
            release.privatizer.warm()
        self._pool = ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("fork" if forks else "spawn"),
            _begin,
            (release if forks else (settings, release.columns),),
        )
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            # All forked workers start with the first job: now, before the caller may start a thread.
            self._pool.submit(int)

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch, in the order of the jobs; raise CorpusError if a worker dies."""
        pending: deque[tuple[Job, Future[Released] | None, int]] = deque()
        size = 0

        def first() -> tuple[Job, Released]:
            job, future, _ = pending.popleft()
            return job, Released(None, Counter()) if future is None else future.result()

        try:
            for job, batch in jobs:
                future = None if batch is None else self._pool.submit(_released, batch)
                pending.append((job, future, 0 if batch is None else batch.nbytes))
                size += pending[-1][2]
                while pending and (self._is_full(len(pending), size) or _is_done(pending[0][1])):
                    size -= pending[0][2]
                    yield first()
            while pending:
                yield first()
        except BrokenProcessPool:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a script without "
                "'if __name__ == \"__main__\":'). The output is not complete. Try fewer workers or a smaller batch size."
            ) from None

    def _is_full(self, batches: int, size: int) -> bool:
        return batches > _BATCHES * self._workers or size > _BYTES * self._workers


def local_engine(
    release: BatchRelease, settings: PrivatizerSettings | None, workers: int
) -> InProcess | WorkerPool:
    """Return the engine for a number of processes of this machine."""
    if workers == 1 or settings is None:
        return InProcess(release)
    return WorkerPool(release, settings, workers)


def _is_done(future: Future[Released] | None) -> bool:
    return future is None or future.done()


# What this worker releases with: taken over by a fork, or made from the recipe with the first batch.
_given: BatchRelease | _Recipe | None = None


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
    """Release a batch in a worker; an error carries no private text back."""

    def work(batch: pa.RecordBatch) -> Released:
        assert _given is not None
        try:
            release = release_in_process(*_given) if isinstance(_given, tuple) else _given
        except TextprivError as error:
            return Released(None, Counter(), error)
        return _release(release, batch)

    return without_trace(work, batch)
