"""From the tokens of spaCy's documents to the chunks of their texts, without the texts.

The text of a document is its *runs*, joined by single blanks: a run is the tokens up to one that spaCy says a blank follows,
without a blank between them, whoever cut them. Lower-casing looks no farther than to a blank. So a run holds whole chunks,
which are found once, in its text; but where its text ends in a blank, or is empty, the blank after it belongs to the same
chunk, and the document must be read as a text. What is a chunk, and what its tokens are, is in ``tokenization.chunk_cache``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.tokenization.batches import EncodedTexts
from textpriv.tokenization.key_table import KeyTable, doubled, number_of

__all__ = ["DocTokens", "TokenRuns"]

_MAX_RUNS = 400_000  # remembered, some 60 bytes each
_MAX_TOKENS = 1 << 22  # of all runs that are remembered

_NO_TOKENS = np.empty((0, 2), dtype=np.uint64)

FindChunks = Callable[[EncodedTexts], tuple[NDArray[np.int32], NDArray[np.int64]]]


class DocTokens(NamedTuple):
    """The tokens of a document of spaCy.

    Attributes
    ----------
    columns : ndarray of uint64, shape (T, 2)
        Of each token spaCy's hash of its text, and whether a blank follows.
    strings : StringStore
        Or another mapping from hashes to texts.
    """

    columns: NDArray[np.uint64]
    strings: Any

    @property
    def text(self) -> str:
        """What ``Doc.text`` gives."""
        words = map(self.strings.__getitem__, self.columns[:, 0].tolist())
        blanks = self.columns[:, 1].tolist()
        return "".join(word + " " if b else word for word, b in zip(words, blanks, strict=True))


class TokenRuns:
    """The runs that were met before, by their tokens, and their chunks: append-only; the owner replaces it when full."""

    def __init__(self) -> None:
        self._table = KeyTable(np.uint64)
        self._table.count = (
            1  # number 0 is the empty run, with which a text ends whose last token a blank follows
        )
        self._known = 1  # runs whose chunks have been found
        self._starts = np.zeros(
            1 << 12, dtype=np.int64
        )  # of the chunks of each run, and where those of the next will start
        self._chunks = np.empty(1 << 12, dtype=np.int32)
        self._is_open = np.zeros(
            1 << 12, dtype=np.bool_
        )  # whether a run ends in a blank, or in nothing

    @property
    def is_full(self) -> bool:
        """Whether so much is remembered that it is time to forget it."""
        return self._table.count > _MAX_RUNS or self._table.size > _MAX_TOKENS

    def chunks(
        self, documents: Sequence[DocTokens], find: FindChunks
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
        """The chunks of all documents by number, and the offsets of those of each; None where only the texts tell them.

        Parameters
        ----------
        documents : sequence of DocTokens
        find : callable
            Finds the chunks of texts (:meth:`ChunkCache.find`).
        """
        parts = [each.columns for each in documents]
        # One document at a time is how a pipeline is called, and each call of numpy takes as long as ten tokens.
        columns = parts[0] if len(parts) == 1 else np.concatenate([_NO_TOKENS, *parts])
        ends = np.array(list(accumulate(map(len, parts), initial=0)))
        runs = np.empty(len(columns) + len(documents), dtype=np.int32)
        offsets = np.zeros(len(documents) + 1, dtype=np.int64)
        table, done = self._table, 0
        while done < len(documents):
            state = table.count, *table.arrays
            done, table.count, full = _find(columns, ends, done, runs, offsets, *state)
            if done < len(documents):
                table.grow(full)
        if table.count > self._known:
            self._add_new(documents, find)
        chunks, ends, blanks_meet = _chunks_of(
            runs, offsets, self._starts, self._chunks, self._is_open
        )
        return None if blanks_meet else (chunks, ends)

    def _add_new(self, documents: Sequence[DocTokens], find: FindChunks) -> None:
        """Find the chunks of the runs that were added, by their texts."""
        first, last = self._known, self._table.count
        hashes, offsets = self._table.keys(first, last)
        words = _texts_of(hashes.tolist(), documents)
        texts = ["".join(words[start:end]) for start, end in pairwise(offsets.tolist())]
        chunks, starts = find(EncodedTexts.of(texts))
        starts += self._starts[first]
        while last >= len(self._is_open):
            self._starts, self._is_open = doubled(self._starts), doubled(self._is_open)
        while starts[-1] > len(self._chunks):
            self._chunks = doubled(self._chunks)
        self._chunks[starts[0] : starts[-1]] = chunks
        self._starts[first : last + 1] = starts
        # One without text, of empty tokens, stands between two blanks or begins with one.
        self._is_open[first:last] = [text == "" or text[-1].isspace() for text in texts]
        self._known = last


def _texts_of(hashes: list[int], documents: Sequence[DocTokens]) -> list[str]:
    """The texts of tokens, each of which is in the store of some document."""
    stores = list({id(each.strings): each.strings for each in documents}.values())
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, hashes))
    return [next(store[each] for store in stores if each in store) for each in hashes]


@njit(cache=True, nogil=True)
def _find(
    columns: NDArray[np.uint64],
    ends: NDArray[np.int64],
    done: int,
    runs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    count: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    own_hashes: NDArray[np.uint64],
    own_offsets: NDArray[np.int64],
    letters: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Find the runs of documents by their tokens, or add them.

    Returns the number of documents done, of runs, and what was full.
    """
    hashes, blanks = columns[:, 0].copy(), columns[:, 1]
    for document in range(done, ends.shape[0] - 1):
        at, end = ends[document], ends[document + 1]
        total = offsets[document]
        first = at
        while at < end:
            at += 1
            if at < end and blanks[at - 1] == 0:
                continue
            run = number_of(hashes, first, at, count, seed, slots, own_hashes, own_offsets, letters)
            if run < 0:
                return document, count, run
            count = max(count, run + 1)
            runs[total] = run
            total += 1
            first = at
        if at > ends[document] and blanks[at - 1] != 0:
            runs[total] = 0
            total += 1
        offsets[document + 1] = total
    return ends.shape[0] - 1, count, 0


@njit(cache=True, nogil=True)
def _chunks_of(
    runs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    starts: NDArray[np.int64],
    chunks: NDArray[np.int32],
    is_open: NDArray[np.bool_],
) -> tuple[NDArray[np.int32], NDArray[np.int64], bool]:
    """The chunks of runs, their offsets by document, and whether a blank follows a run that ends in one."""
    total = 0
    for at in range(offsets[-1]):
        total += starts[runs[at] + 1] - starts[runs[at]]
    found = np.empty(total, np.int32)
    found_offsets = np.zeros(offsets.shape[0], np.int64)
    total, blanks_meet = 0, False
    for document in range(offsets.shape[0] - 1):
        last = offsets[document + 1] - 1
        for at in range(offsets[document], last + 1):
            run = runs[at]
            blanks_meet |= is_open[run] and at < last
            for chunk in range(starts[run], starts[run + 1]):
                found[total] = chunks[chunk]
                total += 1
        found_offsets[document + 1] = total
    return found, found_offsets, blanks_meet
