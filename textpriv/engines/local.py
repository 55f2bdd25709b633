"""Rows released in this process, or in several of this machine, in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait
from typing import Any, TypeVar

from textpriv.engines.batch import (
    BatchRelease,
    Released,
    TableRows,
    release_in_process,
    without_trace,
)
from textpriv.errors import CorpusError
from textpriv.settings import PrivatizerSettings

Job = TypeVar("Job")
Value = TypeVar("Value")
Result = Callable[[], Released]

# In flight for each worker, as long as their texts are not longer than so many characters.
_BATCHES, _SIZE = 16, 8 << 20


def in_order(
    jobs: Iterable[tuple[Job, TableRows]],
    release: BatchRelease,
    settings: PrivatizerSettings | None = None,
    workers: int = 1,
) -> Generator[tuple[Job, Result], None, None]:
    """Yield each job with a function that returns its released rows or raises, in the order of the jobs.

    Several workers share the memory-mapped index. Forked ones take ``release`` over as it is; others build their own from
    ``settings``.
    """
    if workers == 1 or settings is None:
        for job, rows in jobs:
            yield job, partial(release.rows, rows)
        return
    pending: deque[tuple[Job, Future[Released], int]] = deque()

    def is_full() -> bool:
        size = sum(length for *_, length in pending)
        return len(pending) > _BATCHES * workers or size > _SIZE * workers

    with _pool(release, settings, workers) as pool:
        for job, rows in jobs:
            with _told():
                future = pool.submit(_released, rows)
            pending.append(
                (job, future, sum(len(text or "") for own in rows.texts for text in own))
            )
            while pending and (is_full() or pending[0][1].done()):
                job, future, _ = pending.popleft()
                yield job, partial(_result, future)
        for job, future, _ in pending:
            yield job, partial(_result, future)


def mapped(
    jobs: Iterable[Any], work: Callable[[Any], Value], workers: int
) -> Generator[Value, None, None]:
    """Yield what some work makes of each job, in the order of the jobs; each of several workers has a copy of it."""
    if workers == 1:
        yield from map(work, jobs)
        return
    pending: deque[Future[Value]] = deque()
    with _started(partial(_itself, work), workers) as pool:
        for job in jobs:
            with _told():
                pending.append(pool.submit(_worked, job))
            if len(pending) > 2 * workers:
                yield _result(pending.popleft())
        for future in pending:
            yield _result(future)


@contextlib.contextmanager
def _pool(
    release: BatchRelease, settings: PrivatizerSettings, workers: int
) -> Iterator[ProcessPoolExecutor]:
    forks = _forks()
    if forks:
        release.privatizer.warm()
    own = partial(release_in_process, settings, release.columns, release.privatizer.fingerprint)
    with _started((lambda: release) if forks else own, workers) as pool:
        yield pool


def _forks() -> bool:
    # A forked worker has all that this process has loaded. Beside other threads it might find a lock closed for ever.
    return sys.platform == "linux" and threading.active_count() == 1


@contextlib.contextmanager
def _started(make: Callable[[], Any], workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start workers, each of which does what ``make`` returns in it."""
    context = multiprocessing.get_context("fork" if _forks() else "spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (make,))
    try:
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            # All forked workers start with the first job: now, before the caller may start a thread.
            pool.submit(int)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[Value]) -> Value:
    with _told():
        return future.result()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say what to do where a worker has died."""
    try:
        yield
    except BrokenProcessPool:
        raise CorpusError(
            "A worker process ended before its work was done (out of memory, killed, or a script without "
            "'if __name__ == \"__main__\":'). The output is not complete. Try fewer workers or a smaller batch size."
        ) from None


# Makes the work of this worker: the one that a fork took over, or one from the settings, with the first rows.
_make: Callable[[], Any]


def _begin(make: Callable[[], Any]) -> None:
    global _make
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # a pool that has lost a worker ends the others so
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _make = make


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    wait([sentinel])
    os._exit(1)


def _released(rows: TableRows) -> Released:
    """Release rows in a worker; an error carries no private text back."""
    return without_trace(lambda rows: _make().rows(rows), rows)


def _worked(job: Any) -> Any:
    """Do the work of this worker; an error carries no private text back."""
    return without_trace(_make(), job)


def _itself(work: Any) -> Any:
    return work
