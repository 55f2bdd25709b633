"""A Privatizer for tests of files, which shows the texts it was given; and a thread that stands in the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np

from textpriv import TEM, Index, Privatizer, Vocabulary


class Read:
    """Texts that also have codes, as a privatizer reads them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        codes = [np.frombuffer(text.encode("utf-32-le"), "<i4") for text in self.texts]
        self.codes = np.concatenate([np.empty(0, "<i4"), *codes])
        self.offsets = np.concatenate([[0], np.cumsum(list(map(len, codes)))]).astype(np.int64)
        self.counts = {"word": len(self.texts)}


@cache
def _mechanism() -> TEM:
    return TEM(Index.build(Vocabulary(["a", "b", "c"], np.eye(3)), "euclidean"), epsilon=1.0)


class Echo(Privatizer):
    """Returns every text in brackets, and remembers the keys."""

    def __init__(self) -> None:
        super().__init__(_mechanism(), seed=0)
        self.keys: list[object] = []

    def read_batch(self, texts: Sequence[str], labels: None = None) -> Read:
        return Read(texts)

    def release_batch(self, batch: Read, keys: Sequence[object]) -> list[str]:
        assert len(batch.texts) == len(keys)
        self.keys += keys
        return [f"[{text}]" for text in batch.texts]


@contextmanager
def another_thread() -> Iterator[None]:
    """Have a second thread while the block lasts, beside which no process is copied."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
