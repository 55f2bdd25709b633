"""Processes of this machine that do one thing after another, each at the other end of a pipe.

What they do is not known here: whoever asks brings it. Who is to do what is decided in ``textpriv.engines.local``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from textpriv.engines.batch import without_trace

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Asked", "GoneError", "Worker", "can_copy"]

Found = TypeVar("Found")


def can_copy() -> bool:
    """Whether a copy of this process can be made: one beside other threads may find a lock closed for ever."""
    return sys.platform == "linux" and threading.active_count() == 1


def _serve(pipe: Connection, given: Any, not_ours: Sequence[Connection]) -> None:
    """Do what comes through a pipe and send the answers, until it is closed.

    Jobs are taken and answers sent by threads: so neither side of the pipe ever waits for the other to read, and the next
    job is there when one is done.
    """
    import multiprocessing
    import signal

    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in not_ours:
        other.close()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    jobs: SimpleQueue[bytes | None] = SimpleQueue()
    answers: SimpleQueue[bytes] = SimpleQueue()
    over = threading.Event()

    def take() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                jobs.put(pipe.recv_bytes())
        over.set()
        jobs.put(None)

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                pipe.send_bytes(answers.get())

    for work in (take, send):
        threading.Thread(target=work, daemon=True).start()
    while (job := jobs.get()) is not None and not over.is_set():
        answers.put(_answer(given, job))


def _answer(given: Any, job: bytes) -> bytes:
    """What was done, or what went wrong: as it is where it says nothing private, else by its kind alone."""
    work, details = pickle.loads(job)  # noqa: S301 - made by the process that leads
    answer: tuple[Any, Exception | None]
    try:
        answer = without_trace(lambda own: work(given, *own), details), None
    except Exception as error:
        answer = None, error
    return pickle.dumps(answer, protocol=5)


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)


class Asked(Generic[Found]):
    """What a worker is asked to do, and its answer when that has come.

    Parameters
    ----------
    work : callable
        Called with what the worker was given when it started, and with the details.
    *details
    size : float
        How much work it is, in any unit.

    Attributes
    ----------
    done : bool
        Whether the answer has come.
    """

    __slots__ = ("_answer", "details", "done", "size", "work")

    def __init__(self, work: Callable[..., Found], *details: Any, size: float = 1.0) -> None:
        self.work = work
        self.details = details
        self.size = size
        self.done = False
        self._answer: tuple[Any, Exception | None] = None, None

    def answered(self, answer: bytes) -> None:
        """Take the answer."""
        self._answer = pickle.loads(answer)  # noqa: S301 - made by our own process
        self.done = True

    def result(self) -> Found:
        """Return what the worker found, or raise what it raised."""
        found, error = self._answer
        if error is not None:
            raise error
        answer: Found = found
        return answer


class GoneError(Exception):
    """A worker process has ended."""


class Worker:
    """A process that does one thing after another.

    Parameters
    ----------
    others : sequence of Worker or None
        Those that were started before a copy of this process; None for a process that begins from nothing.
    given : object, optional
        What a copy of this process takes over, without a copy of it.
    """

    def __init__(self, others: Sequence[Worker] | None, given: Any = None) -> None:
        import multiprocessing

        context: Any = multiprocessing.get_context("spawn" if others is None else "fork")
        self.pipe, theirs = context.Pipe()
        # A copy of this process also has our ends of all pipes.
        ours = [] if others is None else [self.pipe, *(other.pipe for other in others)]
        self._process = context.Process(target=_serve, args=(theirs, given, ours), daemon=True)
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()
        self._asked: deque[Asked[Any]] = deque()

    @property
    def busy(self) -> float:
        """How much it has been asked that it has not answered."""
        return sum(asked.size for asked in self._asked)

    def ask(self, asked: Asked[Any]) -> None:
        """Have it do something.

        Raises
        ------
        GoneError
            If the process has ended.
        """
        job = pickle.dumps((asked.work, asked.details), protocol=5)
        try:
            self.pipe.send_bytes(job)
        except OSError:
            raise GoneError from None
        asked.details = ()
        self._asked.append(asked)

    def hear(self) -> None:
        """Take the answers that have come.

        Raises
        ------
        GoneError
            If the process has ended.
        """
        while self.pipe.poll():
            try:
                answer = self.pipe.recv_bytes()
            except (EOFError, OSError):
                raise GoneError from None
            self._asked.popleft().answered(answer)

    def close(self) -> None:
        """Have it end when it has done what it does now."""
        self.pipe.close()

    def join(self) -> None:
        """Wait until it has ended."""
        self._process.join()
