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

from textpriv.tokenization.batches import EncodedTexts, RawBatch
from textpriv.tokenization.chunk_cache import ChunkCache, tokens_of
from textpriv.tokenization.key_table import KeyTable, doubled, number_of

__all__ = ["DocTokens", "TokenRuns"]

_MAX_RUNS = 400_000  # remembered, some 60 bytes each
_MAX_TOKENS = 1 << 22  # of all runs that are remembered

_NO_TOKENS = np.empty((0, 2), dtype=np.uint64)

Chunks = tuple[NDArray[np.int32], NDArray[np.int64]]  # by number, and their offsets by text

_DONE, _NEW_RUNS, _BLANKS_MEET, _CROSSED = range(4)  # what came of reading, if nothing was full


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
        self._known = 1  # runs whose chunks and tokens have been found
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

    def read(
        self,
        documents: Sequence[DocTokens],
        cache: ChunkCache,
        find: Callable[[EncodedTexts], Chunks],
        join: Callable[[NDArray[np.int32], NDArray[np.int64]], RawBatch],
    ) -> RawBatch | None:
        """The tokens of all documents; None where only the texts tell them.

        Parameters
        ----------
        documents : sequence of DocTokens
        cache : ChunkCache
        find : callable
            Finds the chunks of texts, and sees to it that the cache has their tokens.
        join : callable
            Finds the tokens of chunks some of which may hold a special case with the one before them.
        """
        parts = [each.columns for each in documents]
        # One document at a time is how a pipeline is called, and each call of numpy takes as long as ten tokens.
        columns = parts[0] if len(parts) == 1 else np.concatenate([_NO_TOKENS, *parts])
        ends = np.array([0, *accumulate(map(len, parts))])
        table = self._table
        while True:
            state = self._known, table.count, *table.arrays, *self._arrays, *cache.arrays
            table.count, outcome, first, offsets, strings = _read(columns, ends, *state)
            if outcome >= _DONE:
                break
            table.grow(outcome)
        if outcome == _NEW_RUNS:
            self._add_new(documents, find)
            found = first, offsets, *self._arrays, *cache.arrays
            outcome, first, offsets, strings = _tokens_of(*found)
        if outcome == _CROSSED:
            return join(first, offsets)
        return RawBatch(first, offsets, strings, cache.strings) if outcome == _DONE else None

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self._starts, self._chunks, self._is_open

    def _add_new(
        self, documents: Sequence[DocTokens], find: Callable[[EncodedTexts], Chunks]
    ) -> None:
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
def _read(
    columns: NDArray[np.uint64],
    ends: NDArray[np.int64],
    known: int,
    count: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    own_hashes: NDArray[np.uint64],
    own_offsets: NDArray[np.int64],
    letters: NDArray[np.uint64],
    starts: NDArray[np.int64],
    chunks: NDArray[np.int32],
    is_open: NDArray[np.bool_],
    *cached: Any,
) -> tuple[int, int, NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Find the runs of documents by their tokens, or add them; and where none is new what :func:`_tokens_of` finds.

    Returns the number of runs and what was full; or that some are new, and all of them with their offsets.
    """
    hashes, blanks = columns[:, 0].copy(), columns[:, 1]
    runs = np.empty(columns.shape[0] + ends.shape[0], np.int32)
    offsets = np.zeros(ends.shape[0], np.int64)
    total = 0
    for document in range(ends.shape[0] - 1):
        at, end = ends[document], ends[document + 1]
        first = at
        while at < end:
            at += 1
            if at < end and blanks[at - 1] == 0:
                continue
            run = number_of(hashes, first, at, count, seed, slots, own_hashes, own_offsets, letters)
            if run < 0:
                return count, run, runs, offsets, runs
            count = max(count, run + 1)
            runs[total] = run
            total += 1
            first = at
        if at > ends[document] and blanks[at - 1] != 0:
            runs[total] = 0
            total += 1
        offsets[document + 1] = total
    if count > known:
        return count, _NEW_RUNS, runs, offsets, runs
    outcome, codes, token_offsets, string_ids = _tokens_of(
        runs, offsets, starts, chunks, is_open, *cached
    )
    return count, outcome, codes, token_offsets, string_ids


@njit(cache=True, nogil=True)
def _tokens_of(
    runs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    starts: NDArray[np.int64],
    chunks: NDArray[np.int32],
    is_open: NDArray[np.bool_],
    *cached: Any,
) -> tuple[int, NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Codes of the tokens of runs, their offsets and strings; or what hinders, and the runs' chunks and their offsets."""
    found, found_offsets, blanks_meet = _chunks_of(runs, offsets, starts, chunks, is_open)
    codes, token_offsets, string_ids, crossed = tokens_of(found, found_offsets, *cached)
    if blanks_meet or crossed.any():
        return _BLANKS_MEET if blanks_meet else _CROSSED, found, found_offsets, found
    return _DONE, codes, token_offsets, string_ids


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
