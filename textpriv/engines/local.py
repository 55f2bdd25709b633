"""The Arrow-batch function in this process, or in a few worker processes of this machine.

Batches go in one after the other and come out in the same order. The processes share the memory-mapped index, the tables of
words, and what is to be done: who finds, who cuts, who draws is decided here. How each of these is done is not known here.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from textpriv.engines.batch import (
    BatchRelease,
    Columns,
    PrivatizerSettings,
    release_in_process,
)
from textpriv.engines.cutters import cutters_for, cutting, rules_of
from textpriv.engines.workers import Asked, GoneError, Worker, can_copy
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from textpriv.tokenization.batches import EncodedTexts, RawBatch
    from textpriv.tokenization.encoder import NewStretches, Reading, TokenReader
    from textpriv.tokenization.spacy_tokenizer import Rules

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
_IN_FLIGHT = 8 << 20  # bytes of text for each worker; and so many batches:
_BATCHES = 64
_GIVEN = 2  # batches to draw that a process has at a time, so that it need not wait for the next
_CUTS_GIVEN = 4.0  # and as much to cut: this process gives nothing while it draws, and cutting may be faster than thought
_LAST_CUTS = 2.0  # what is left to cut when a process is started that draws while this one does
_LIKELY = 40_000  # words at the head of a vocabulary that a corpus is likely to have
_AT_ONCE = 500  # of them, prepared while there is nothing else to do
_Recipe = tuple[PrivatizerSettings, Columns, bytes]


def _draw(
    given: BatchRelease | None, recipe: _Recipe | None, batch: pa.RecordBatch, raw: RawBatch
) -> tuple[EncodedTexts | TextprivError, Counter[str]]:
    """Draw a batch that was read elsewhere."""
    if recipe is not None:
        given = release_in_process(*recipe)
    assert given is not None
    return _drawn(given, batch, raw)


def _drawn(
    release: BatchRelease, batch: pa.RecordBatch, raw: RawBatch
) -> tuple[EncodedTexts | TextprivError, Counter[str]]:
    try:
        texts = release.released(batch, raw)
    except TextprivError as error:
        return error, Counter()
    tokens, release.tokens = release.tokens, Counter()
    return texts, tokens


class _Task(Generic[Job]):
    """A batch on its way: found, cut, read, drawn."""

    __slots__ = ("again", "batch", "drawn", "job", "raw", "reading", "released", "whole")

    def __init__(self, job: Job, batch: pa.RecordBatch | None) -> None:
        self.job = job
        self.batch = batch
        self.reading: Reading | None = None
        self.raw: RawBatch | None = None
        self.whole: Asked[list[NDArray[np.uint64]]] | None = None
        self.again: tuple[list[int], list[str]] = ([], [])
        self.drawn: Asked[tuple[EncodedTexts | TextprivError, Counter[str]]] | None = None
        self.released: Released | None = None


class WorkerPool:
    """A few processes that release batches; results come in order and few batches are in flight.

    Of up to four workers this process is one: else a machine of few cores would have it wait, and read, beside as many
    busy processes as it has cores. This process finds the stretches of all texts, for so each different one is cut once and
    not once in every process, and makes once what all need of a word to draw it. Others draw; this one draws where they have
    enough to do. Few more cut what is new, which becomes ever less: they alone load spaCy, and nothing else.
    """

    def __init__(
        self,
        release: BatchRelease,
        settings: PrivatizerSettings,
        columns: Columns,
        context: bytes,
        workers: int,
    ) -> None:
        self._release = release
        self._recipe: _Recipe | None = (settings, columns, context)
        self._workers = workers
        self._helps = workers <= _HELPED
        self._shares = False
        self._mechanism = release.privatizer.mechanism
        self._likely = iter(range(0, min(_LIKELY, len(self._mechanism.index)), _AT_ONCE))
        self._is_drawing = False
        self._most_drawers = workers - 1 if self._helps else workers
        self._drawers: list[Worker] = []
        self._cutters = cutters_for(workers)
        self._to_cut: deque[Asked[Any]] = deque()
        self._cuts: deque[tuple[NewStretches, Asked[list[NDArray[np.uint64]]]]] = deque()
        self._rules: Asked[Rules] | None = None
        if not self._reader.is_ready:
            # Asked for at once: nothing can be read before they are there.
            self._rules = rules_of(self._reader.cutter, self._reader.words)
            self._to_cut.append(self._rules)
            with contextlib.suppress(GoneError):  # told when the work begins
                self._have_cut()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        # On failure the batches that have begun still end, but none begins any more.
        everyone = (*self._cutters, *self._drawers)
        for worker in everyone:
            worker.close()
        for worker in everyone:
            worker.join()
        self._mechanism.stop_sharing()

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
                for worker in (*self._cutters, *self._drawers):
                    worker.hear()
                self._keep_cuts()
                self._have_cut()
                while tasks and (done := self._released(tasks[0])) is not None:
                    yield tasks.popleft().job, done
                if self._give(tasks):
                    continue
                if not is_over and self._has_room(tasks):
                    given = next(source, None)
                    is_over = given is None
                    if given is not None:
                        tasks.append(self._begun(_Task(*given)))
                elif not self._is_drawing:
                    # Not before there is something to cut meanwhile.
                    self._begin_drawing()
                elif self._lacks_a_drawer(tasks, is_over):
                    self._start_drawer()
                elif not self._draw_here(tasks) and tasks and not self._prepare_ahead():
                    self._wait()
            is_done = True
            # What comes after, they need not wait for.
            for worker in (*self._cutters, *self._drawers):
                worker.close()
        except GoneError:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a "
                "script without 'if __name__ == \"__main__\":'). The output is not complete. Try "
                "fewer workers or a smaller batch size."
            ) from None
        finally:
            if not is_done:
                self._reader.forget()

    def _begin_drawing(self) -> None:
        """Start the processes that draw; where this one helps, the last of them only when it is needed."""
        from textpriv.tokenization.batches import RawBatch, RawTokens

        # The compiled code is kept on disk. Made or loaded once here, it need not be in all of them. What is drawn here
        # is not counted, for it is no document.
        given = self._release.privatizer
        uncounted = type(given)(given.mechanism, given.policy)
        uncounted.release_batch(RawBatch.of([RawTokens(np.zeros(1, dtype=np.int32), [])]))
        # A forked process has all that this one has loaded, at once and without a copy; and what this one prepares of
        # words. One that begins from nothing loads everything itself.
        self._shares = can_copy()
        if self._shares:
            self._recipe = None
            self._mechanism.share_memory()
        self._is_drawing = True
        for _ in range(self._most_drawers - self._helps):
            self._start_drawer()

    def _start_drawer(self) -> None:
        started = [*self._cutters, *self._drawers]
        self._drawers.append(Worker(started, self._release) if self._shares else Worker(None))

    def _lacks_a_drawer(self, tasks: deque[_Task[Job]], is_over: bool) -> bool:
        """Whether those that cut wait for those that draw, or soon will for ever: at first it is the other way round."""
        if len(self._drawers) == self._most_drawers or self._to_cut:
            return False
        # Whoever follows the progress may have begun a thread, and no copy can be made any more.
        if self._shares and not can_copy():
            return False
        ready = sum(map(_is_read, tasks))
        left = sum(cutter.busy for cutter in self._cutters)
        return ready > 1 and left <= (_LAST_CUTS if is_over else 0.0)

    def _have_cut(self) -> None:
        """Give those that cut the next of what is to be cut; all that waits stays here, where the order can still change."""
        while self._to_cut:
            worker = min(self._cutters, key=lambda each: each.busy)
            if worker.busy >= _CUTS_GIVEN:
                return
            worker.ask(self._to_cut.popleft())

    def _wait(self) -> None:
        """Wait until one of the others has done something."""
        from multiprocessing.connection import wait

        wait([worker.pipe for worker in (*self._cutters, *self._drawers)])

    @property
    def _reader(self) -> TokenReader:
        return self._release.privatizer.reader

    def _has_room(self, tasks: deque[_Task[Job]]) -> bool:
        if len(tasks) >= _BATCHES * self._workers:
            return False
        sizes = (task.batch.nbytes for task in tasks if task.batch is not None)
        return sum(sizes) < _IN_FLIGHT * self._workers

    def _prepare_ahead(self) -> bool:
        """Prepare words that a corpus is likely to have, if there are any left; the first batches wait for spaCy to load."""
        first = next(self._likely, None) if self._shares else None
        if first is not None:
            last = min(first + _AT_ONCE, len(self._mechanism.index))
            self._mechanism.prepare(np.arange(first, last, dtype=np.int32))
        return first is not None

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
        task.reading = reader.find(texts)
        for new in reader.new_stretches():
            self._cuts.append((new, cutting(cutter, new.texts)))
            self._to_cut.append(self._cuts[-1][1])
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
                    # Before all others: it is the last thing that this batch waits for.
                    task.whole = cutting(reader.cutter, texts)
                    self._to_cut.appendleft(task.whole)
                return True
            if not _is_read(task) or not self._drawers:
                continue
            idle = min(self._drawers, key=lambda worker: worker.busy)
            # The last one does not wait for the others to be done while this process has nothing to do.
            at_most = 1 if self._helps and task is tasks[-1] else _GIVEN
            if idle.busy < at_most:
                assert task.batch is not None
                assert task.raw is not None
                rest = self._release.without_texts(task.batch)
                if self._shares:
                    self._mechanism.prepare(task.raw.codes)
                task.drawn = Asked(_draw, self._recipe, rest, task.raw.compact())
                idle.ask(task.drawn)
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
