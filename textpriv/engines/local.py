"""Work that is done in this process, or in several of this machine, in order."""

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
from multiprocessing.connection import wait
from typing import Any, TypeVar

from textpriv.engines.batch import without_trace
from textpriv.errors import CorpusError

Job = TypeVar("Job")
Value = TypeVar("Value")

_AHEAD = 4  # jobs in flight for each worker


def mapped(
    jobs: Iterable[Job],
    work: Callable[[Job], Value],
    workers: int = 1,
    elsewhere: Callable[[Job], Value] | None = None,
) -> Generator[Value, None, None]:
    """Yield what some work makes of each job, in the order of the jobs.

    Several workers share the memory-mapped index. Forked ones take ``work`` over as it is. Where a process cannot be forked,
    ``elsewhere`` is pickled, which does the same; or the work itself.
    """
    if workers == 1:
        yield from map(work, jobs)
        return
    pending: deque[Future[Value]] = deque()
    # A forked worker has all that this process has loaded. Beside other threads it might find a lock closed for ever.
    forks = sys.platform == "linux" and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (work if forks else elsewhere or work,))
    try:
        with warnings.catch_warnings(), _explained():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            # All forked workers start with the first job: now, before the caller may start a thread.
            pool.submit(int)
        for job in jobs:
            with _explained():
                pending.append(pool.submit(_worked, job))
            while pending and (len(pending) > _AHEAD * workers or pending[0].done()):
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[Value]) -> Value:
    with _explained():
        return future.result()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say what to do where a worker has died."""
    try:
        yield
    except BrokenProcessPool:
        raise CorpusError(
            "A worker process ended before its work was done (out of memory, killed, or a script without "
            "'if __name__ == \"__main__\":'). The output is not complete. Try fewer workers or a smaller batch size."
        ) from None


_work: Callable[[Any], Any]  # of this worker


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A pool that has lost a worker ends the others by this signal.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _work = work


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    wait([sentinel])
    os._exit(1)


def _worked(job: Any) -> Any:
    """Do the work of this worker; an error carries no private text back."""
    return without_trace(_work, job)
