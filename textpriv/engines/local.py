"""The Arrow-batch function in this process, or in a few worker processes of this machine.

Batches go in one after the other and come out in the same order. The processes share the memory-mapped index and what is
to be done: who finds, who cuts, who draws is decided here. How each of these is done is not known here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from textpriv.cutting import Cutter, Rules, load_spacy_alone
from textpriv.engines.batch import (
    BatchRelease,
    Columns,
    PrivatizerSettings,
    release_in_process,
    without_trace,
)
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from textpriv.tokens import EncodedTexts, NewStretches, RawBatch, Reading, TokenReader

__all__ = ["InProcess", "Released", "WorkerPool"]

Job = TypeVar("Job")
Found = TypeVar("Found")


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
_AHEAD = 4  # batches for each cutting process whose stretches are being cut
_GIVEN = 2  # batches that a process has at a time, so that it need not wait for the next
_FOR_ONE_CUTTER = 3  # processes that one can keep busy with what it has cut
_Recipe = tuple[PrivatizerSettings, Columns, bytes]
_given: BatchRelease | None = None
_cutter: tuple[tuple[str, tuple[str, ...]], Cutter] | None = None


def _serve(pipe: Connection, given: BatchRelease | None, not_ours: Sequence[Connection]) -> None:
    """Do what comes through a pipe and send the answers, until it is closed.

    Jobs are taken and answers sent by threads: so neither side of the pipe ever waits for the other to read, and the next
    job is there when one is done.
    """
    import multiprocessing
    import signal

    global _given
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in not_ours:
        other.close()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _given = given
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
        answers.put(_answer(job))


def _answer(job: bytes) -> bytes:
    """What was done, or what went wrong: as it is where it says nothing private, else by its kind alone."""
    work, given = pickle.loads(job)  # noqa: S301 - made by the process that leads
    answer: tuple[Any, Exception | None]
    try:
        answer = without_trace(lambda own: work(*own), given), None
    except Exception as error:
        answer = None, error
    return pickle.dumps(answer, protocol=5)


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone: a killed parent cannot tell its workers to."""
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)


def _cutter_for(language: str, attributes: tuple[str, ...]) -> Cutter:
    global _cutter
    wanted = (language, attributes)
    if _cutter is None or _cutter[0] != wanted:
        load_spacy_alone()
        _cutter = wanted, Cutter(language, attributes)
    return _cutter[1]


def _rules(language: str, attributes: tuple[str, ...], words: Sequence[str]) -> Rules:
    return _cutter_for(language, attributes).rules(words)


def _cut(language: str, attributes: tuple[str, ...], texts: list[str]) -> list[NDArray[np.uint64]]:
    return _cutter_for(language, attributes).columns(texts)


def _work(
    recipe: _Recipe | None, batch: pa.RecordBatch, raw: RawBatch
) -> tuple[EncodedTexts | TextprivError, Counter[str]]:
    """Draw a batch that was read elsewhere."""
    if recipe is None:
        assert _given is not None
        return _drawn(_given, batch, raw)
    return _drawn(release_in_process(*recipe), batch, raw)


def _drawn(
    release: BatchRelease, batch: pa.RecordBatch, raw: RawBatch
) -> tuple[EncodedTexts | TextprivError, Counter[str]]:
    try:
        texts = release.released(batch, raw)
    except TextprivError as error:
        return error, Counter()
    tokens, release.tokens = release.tokens, Counter()
    return texts, tokens


class _Asked(Generic[Found]):
    """What a worker was asked to do, and its answer when that has come."""

    __slots__ = ("_answer", "done")

    def __init__(self) -> None:
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


class _GoneError(Exception):
    """A worker process has ended."""


class _Worker:
    """A process that does one thing after another.

    Parameters
    ----------
    given : BatchRelease or None
        What a copy of this process takes over; None for one that begins from nothing.
    others : sequence of _Worker
        Those that were started before.
    """

    def __init__(self, given: BatchRelease | None, others: Sequence[_Worker]) -> None:
        import multiprocessing

        context: Any = multiprocessing.get_context("spawn" if given is None else "fork")
        self.pipe, theirs = context.Pipe()
        # A copy of this process also has our ends of all pipes.
        ours = [] if given is None else [self.pipe, *(other.pipe for other in others)]
        self._process = context.Process(target=_serve, args=(theirs, given, ours), daemon=True)
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread at a fork; those of the linear algebra look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()
        self._asked: deque[_Asked[Any]] = deque()

    @property
    def busy(self) -> int:
        """How much it has been asked that it has not answered."""
        return len(self._asked)

    def ask(self, work: Callable[..., Found], *given: Any) -> _Asked[Found]:
        """Have it do something.

        Raises
        ------
        _GoneError
            If the process has ended.
        """
        job = pickle.dumps((work, given), protocol=5)
        try:
            self.pipe.send_bytes(job)
        except OSError:
            raise _GoneError from None
        asked: _Asked[Found] = _Asked()
        self._asked.append(asked)
        return asked

    def hear(self) -> None:
        """Take the answers that have come.

        Raises
        ------
        _GoneError
            If the process has ended.
        """
        while self.pipe.poll():
            try:
                answer = self.pipe.recv_bytes()
            except (EOFError, OSError):
                raise _GoneError from None
            self._asked.popleft().answered(answer)

    def end(self) -> None:
        """End it; what it does now is still done."""
        self.pipe.close()
        self._process.join()


class _Task(Generic[Job]):
    """A batch on its way: found, cut, read, drawn."""

    __slots__ = ("again", "batch", "drawn", "job", "raw", "reading", "released", "whole")

    def __init__(self, job: Job, batch: pa.RecordBatch | None) -> None:
        self.job = job
        self.batch = batch
        self.reading: Reading | None = None
        self.raw: RawBatch | None = None
        self.whole: _Asked[list[NDArray[np.uint64]]] | None = None
        self.again: tuple[list[int], list[str]] = ([], [])
        self.drawn: _Asked[tuple[EncodedTexts | TextprivError, Counter[str]]] | None = None
        self.released: Released | None = None


class WorkerPool:
    """A few processes that release batches; results come in order and few batches are in flight.

    Of up to four workers this process is one: else a machine of few cores would have it wait, and read, beside as many
    busy processes as it has cores. This process finds the stretches of all texts, for so each different one is cut once and
    not once in every process. The others cut what is new, and draw; this one draws where they have enough to do.
    """

    def __init__(
        self,
        release: BatchRelease,
        settings: PrivatizerSettings,
        columns: Columns,
        context: bytes,
        workers: int,
    ) -> None:
        # A forked process has all that this one has loaded, at once and without a copy. But a fork beside other threads
        # may leave a lock closed for ever, so then processes load everything themselves.
        forks = sys.platform == "linux" and threading.active_count() == 1
        others = workers - 1 if workers <= _HELPED else workers
        self._workers: list[_Worker] = []
        for _ in range(others):
            self._workers.append(_Worker(release if forks else None, self._workers))
        # Few cut, and load spaCy for it; they draw, too, where the rest have enough to do.
        self._cutters = self._workers[: -(-others // _FOR_ONE_CUTTER)]
        self._release = release
        self._helps = workers <= _HELPED
        self._recipe = None if forks else (settings, columns, context)
        self._most_waiting = 8 * workers
        self._rules: _Asked[Rules] | None = None
        self._cuts: deque[tuple[NewStretches, _Asked[list[NDArray[np.uint64]]]]] = deque()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        # On failure the batches that have begun still end, but none begins any more.
        for worker in self._workers:
            worker.end()

    def ordered(
        self, jobs: Iterable[tuple[Job, pa.RecordBatch | None]]
    ) -> Generator[tuple[Job, Released], None, None]:
        """Yield each job with its released batch, in the order of the jobs; one without a batch passes through.

        Raises
        ------
        CorpusError
            If a worker process dies.
        """
        source = iter(jobs)
        tasks: deque[_Task[Job]] = deque()
        is_over = is_done = False
        try:
            while tasks or not is_over:
                for worker in self._workers:
                    worker.hear()
                self._keep_cuts()
                while tasks and (done := self._released(tasks[0])) is not None:
                    yield tasks.popleft().job, done
                if self._give(tasks):
                    continue
                if not is_over and self._has_room(tasks):
                    given = next(source, None)
                    is_over = given is None
                    if given is not None:
                        tasks.append(self._begun(_Task(*given)))
                elif not self._draw_here(tasks) and tasks:
                    self._wait()
            is_done = True
        except _GoneError:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a "
                "script without 'if __name__ == \"__main__\":'). The output is not complete. Try "
                "fewer workers or a smaller batch size."
            ) from None
        finally:
            if not is_done:
                self._reader.forget()

    def _ask(
        self, workers: Sequence[_Worker], work: Callable[..., Found], *given: Any
    ) -> _Asked[Found]:
        """Have the one that has least to do among some workers do something."""
        return min(workers, key=lambda worker: worker.busy).ask(work, *given)

    def _cut(self, texts: list[str]) -> _Asked[list[NDArray[np.uint64]]]:
        cutter = self._reader.cutter
        return self._ask(self._cutters, _cut, cutter.language, cutter.attributes, texts)

    def _wait(self) -> None:
        """Wait until one of the others has done something."""
        from multiprocessing.connection import wait

        wait([worker.pipe for worker in self._workers])

    @property
    def _reader(self) -> TokenReader:
        return self._release.privatizer.reader

    def _has_room(self, tasks: deque[_Task[Job]]) -> bool:
        unread = sum(task.reading is not None and task.raw is None for task in tasks)
        return len(tasks) < self._most_waiting and unread < _AHEAD * len(self._cutters)

    def _begun(self, task: _Task[Job]) -> _Task[Job]:
        """Find the stretches of a batch, and have the new ones cut."""
        if task.batch is None:
            task.released = _NOTHING
            return task
        try:
            texts = self._release.encoded(task.batch)
        except TextprivError as error:
            task.released = Released(None, Counter(), error)
            return task
        reader, cutter = self._reader, self._reader.cutter
        if not reader.is_ready and self._rules is None:
            self._rules = self._ask(
                self._cutters, _rules, cutter.language, cutter.attributes, reader.words
            )
        task.reading = reader.find(texts)
        for new in reader.new_stretches():
            self._cuts.append((new, self._cut(new.texts)))
        return task

    def _keep_cuts(self) -> None:
        if self._rules is not None and self._rules.done:
            self._reader.take(self._rules.result())
            self._rules = None
        while self._cuts and self._reader.is_ready and self._cuts[0][1].done:
            new, columns = self._cuts.popleft()
            self._reader.keep(new, columns.result())

    def _give(self, tasks: deque[_Task[Job]]) -> bool:
        """Take the next step with a batch, if there is one to be taken; the other processes draw what they have time for."""
        reader = self._reader
        for task in tasks:
            if task.reading is None or task.drawn is not None:
                continue
            if task.whole is not None and task.whole.done:
                assert task.raw is not None
                task.raw = reader.mend(task.raw, *task.again, task.whole.result())
                task.whole = None
                return True
            if task.raw is None and reader.is_known(task.reading):
                task.raw, places = reader.tokens(task.reading)
                if places:
                    texts = reader.texts_of(task.reading, places)
                    task.again = places, texts
                    task.whole = self._cut(texts)
                return True
            # Those that do not cut come first.
            idle = min(reversed(self._workers), key=lambda worker: worker.busy)
            if _is_read(task) and idle.busy < _GIVEN:
                assert task.batch is not None
                assert task.raw is not None
                rest = self._release.without_texts(task.batch)
                task.drawn = idle.ask(_work, self._recipe, rest, task.raw.compact())
                return True
        return False

    def _draw_here(self, tasks: deque[_Task[Job]]) -> bool:
        """Draw the next batch that is read, if this process helps."""
        if self._helps:
            for task in tasks:
                if _is_read(task):
                    assert task.batch is not None
                    assert task.raw is not None
                    drawn = _drawn(self._release, task.batch, task.raw)
                    task.released = self._put_together(task.batch, *drawn)
                    return True
        return False

    def _released(self, task: _Task[Job]) -> Released | None:
        if task.released is None and task.drawn is not None and task.drawn.done:
            assert task.batch is not None
            task.released = self._put_together(task.batch, *task.drawn.result())
        return task.released

    def _put_together(
        self, batch: pa.RecordBatch, texts: EncodedTexts | TextprivError, tokens: Counter[str]
    ) -> Released:
        if isinstance(texts, TextprivError):
            return Released(None, tokens, texts)
        return Released(self._release.with_texts(batch, texts), tokens)


def _is_read(task: _Task[Any]) -> bool:
    """Whether a batch is ready to be drawn, and nobody draws it yet."""
    ready = task.raw is not None and task.whole is None
    return ready and task.drawn is None and task.released is None
