"""The Arrow-batch function in this process: batches in, in order, private batches out.

What a batch becomes is in ``textpriv.engines.batch``; several processes of this machine are in ``textpriv.engines.workers``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from textpriv.engines.batch import BatchRelease
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EMPTY", "InProcess", "Released", "release_batch"]

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


EMPTY = Released(None, Counter())


def release_batch(release: BatchRelease, batch: pa.RecordBatch) -> Released:
    """Release one batch and count its tokens; an error of this library becomes part of the result."""
    try:
        done = release(batch)
    except TextprivError as error:
        return Released(None, Counter(), error)
    tokens, release.tokens = release.tokens, Counter()
    return Released(done, tokens)


class InProcess:
    """The engine that releases batches in this process."""

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
            yield job, EMPTY if batch is None else release_batch(self._release, batch)
