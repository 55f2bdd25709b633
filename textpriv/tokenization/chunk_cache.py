"""The chunk cache: tokens of chunks between blanks that were tokenized before, found by compiled look-ups.

It must give what tokenizing anew gives. What is a chunk, and when one may be cached, is decided in ``tokenization.encoder``.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.tokenization.batches import DROPPED, REPLACEMENT, EncodedTexts, RawBatch
from textpriv.tokenization.key_table import KeyTable, doubled, number_of
from textpriv.tokenization.policy import MASK
from textpriv.tokenization.special_cases import SpecialCases

LONGEST_CHUNK = 1_000  # characters without a blank that are still read as words
_MAX_CHUNKS = 400_000  # of a cache, some 60 bytes each
_MAX_BYTES = 1 << 25  # of all chunks of a cache, for a run of blanks has no longest


class ChunkCache:
    """The tokens of different chunks, by their bytes: append-only; the owner replaces it when full."""

    def __init__(self, special_cases: SpecialCases) -> None:
        self._special_cases = special_cases
        self._table = KeyTable(np.uint8)
        # Of each chunk: its only code or the offset of its codes, how many there are, the string of its only token or -1,
        # and the classes of its end and its start.
        self._records = np.empty((1 << 12, 4), dtype=np.int32)
        self._emitted = self._tokenized = (
            0  # chunks handed out by `pending`, and given back with tokens
        )
        self._codes = np.empty(1 << 12, dtype=np.int32)
        self._string_ids = np.empty(1 << 12, dtype=np.int32)
        self._token_count = 0
        self.strings = [MASK]  # what is released for tokens that are not drawn
        self._string_ids_of = {MASK: 0}

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What :func:`tokens_of` takes after the chunks and their offsets."""
        return self._records, self._codes, self._string_ids, self._special_cases.pairs

    @property
    def is_full(self) -> bool:
        """Whether so much is cached that it is time to forget it."""
        return self._table.count > _MAX_CHUNKS or self._table.size > _MAX_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether there are chunks without tokens."""
        return self._tokenized < self._table.count

    def string_id(self, string: str) -> int:
        """The number of a released string, a new one where it is new."""
        number = self._string_ids_of.setdefault(string, len(self.strings))
        if number == len(self.strings):
            self.strings.append(string)
        return number

    def find(self, texts: EncodedTexts) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The chunks of all texts by number, new ones among them, and the offsets of those of each text."""
        chunks = np.empty(max(64, len(texts.data) // 5), dtype=np.int32)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        table, done = self._table, 0
        while done < len(texts):
            done, table.count, full = _find(
                texts.data,
                texts.offsets,
                done,
                REPLACEMENT,
                chunks,
                offsets,
                table.count,
                *table.arrays,
            )
            # What was too small for a text is doubled, and the text is begun again.
            if full == _NUMBERS:
                chunks = doubled(chunks)
            elif full != _NOTHING:
                table.grow(full)
        self._make_room()
        return chunks[: offsets[-1]], offsets

    def _make_room(self) -> None:
        """Have a record for each chunk."""
        while len(self._records) < self._table.count:
            self._records = doubled(self._records)

    def pending(self, limit: int) -> list[str]:
        """The next chunks without tokens, at most so many; each is handed out once."""
        first, self._emitted = self._emitted, min(self._table.count, self._emitted + limit)
        letters, offsets = self._table.keys(first, self._emitted)
        part = letters.tobytes()
        return [
            part[start:end].decode("utf-8") for start, end in itertools.pairwise(offsets.tolist())
        ]

    def add_tokens(
        self,
        chunks: list[str],
        chunk_of: NDArray[np.int64],
        codes: NDArray[np.int32],
        string_ids: NDArray[np.int32],
        hashes: NDArray[np.uint64],
    ) -> None:
        """Store the tokens of the next chunks, in the order of :meth:`pending`; ``chunk_of`` each token is rising."""
        starts = np.searchsorted(chunk_of, np.arange(len(chunks) + 1))
        several = np.diff(starts) > 1
        last = hashes[np.stack([starts[1:] - 1, starts[1:] - 1 - several], axis=1)]
        first = hashes[np.stack([starts[:-1], starts[:-1] + several], axis=1)]
        last[~several, 1] = first[~several, 1] = 0
        end_class = self._special_cases.classes(chunks, last, 0)
        start_class = self._special_cases.classes(chunks, first, 1)
        present = codes != DROPPED
        offsets = np.concatenate([[0], np.cumsum(present)])[starts]
        codes, string_ids = codes[present], string_ids[present]
        end = self._token_count + len(codes)
        while end > len(self._codes):
            self._codes, self._string_ids = doubled(self._codes), doubled(self._string_ids)
        records = self._records[self._tokenized : self._tokenized + len(chunks)]
        records[:, 0] = self._token_count + offsets[:-1]
        records[:, 1] = np.diff(offsets)
        records[:, 2] = -1
        records[:, 3] = end_class << 16 | start_class
        single = records[:, 1] == 1
        records[single, 0] = codes[offsets[:-1][single]]
        records[single, 2] = string_ids[offsets[:-1][single]]
        self._codes[self._token_count : end] = codes
        self._string_ids[self._token_count : end] = string_ids
        self._token_count = end
        self._tokenized += len(chunks)

    def join(
        self, chunks: NDArray[np.int32], offsets: NDArray[np.int64], crossed: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Make one chunk of those that may hold a special case over the blanks between them.

        Parameters
        ----------
        chunks, offsets : ndarray
            As from :meth:`find`.
        crossed : ndarray of int64
            Offsets of chunks that go with the one before, rising.
        """
        kept = np.ones(len(chunks), dtype=np.bool_)
        kept[crossed] = False
        table, joined = self._table, chunks.copy()
        for chain in np.split(crossed, np.flatnonzero(np.diff(crossed) > 1) + 1):
            first, last = int(chain[0]) - 1, int(chain[-1])
            keys = [table.keys(each, each + 1)[0].tobytes() for each in chunks[first : last + 1]]
            joined[first] = table.number(np.frombuffer(b" ".join(keys), dtype=np.uint8))
        self._make_room()
        return joined[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]

    def tokens(
        self, chunks: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> tuple[RawBatch, NDArray[np.int64]]:
        """The tokens of texts, given their chunks; and the chunks that may hold a special case with the one before them."""
        codes, token_offsets, string_ids, crossed = tokens_of(chunks, offsets, *self.arrays)
        return RawBatch(codes, token_offsets, string_ids, self.strings), crossed.nonzero()[0]


_NOTHING, _NUMBERS = 0, 1  # what was full, beside what a table of keys says


def _kinds() -> NDArray[np.uint8]:
    """Of each byte: 1 if it is a blank, 2 if it may begin one of several bytes."""
    kinds = np.zeros(256, dtype=np.uint8)
    kinds[[character for character in range(128) if chr(character).isspace()]] = 1
    kinds[[0xC2, 0xE1, 0xE2, 0xE3]] = 2
    return kinds


_KINDS = _kinds()


@njit(cache=True, nogil=True)
def _blank_width(data: NDArray[np.uint8], at: int) -> int:
    """Bytes of the blank at an offset, 0 if there is none; the data is valid UTF-8."""
    lead = data[at]
    kind = _KINDS[lead]
    if kind < 2:
        return kind
    second = data[at + 1]
    if lead == 0xC2:  # next line, no-break space
        return 2 if second == 0x85 or second == 0xA0 else 0
    third = data[at + 2]
    if lead == 0xE1:  # ogham space mark
        return 3 if second == 0x9A and third == 0x80 else 0
    if lead == 0xE3:  # ideographic space
        return 3 if second == 0x80 and third == 0x80 else 0
    if second == 0x81:  # medium mathematical space
        return 3 if third == 0x9F else 0
    if second != 0x80:
        return 0
    # The spaces by width, the separators of lines and paragraphs, the narrow no-break space.
    return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0


@njit(cache=True, nogil=True)
def _find(
    data: NDArray[np.uint8],
    texts: NDArray[np.int64],
    done: int,
    replacement: NDArray[np.uint8],
    chunks: NDArray[np.int32],
    chunk_offsets: NDArray[np.int64],
    count: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    cached: NDArray[np.uint8],
) -> tuple[int, int, int]:
    """Split texts into chunks at their blanks as spaCy does, and find each chunk in the cache, or add it.

    Returns the number of texts done, of chunks cached, and what was full.
    """
    for text in range(done, texts.shape[0] - 1):
        at, end = texts[text], texts[text + 1]
        total = chunk_offsets[text]
        after_word = False
        while at < end:
            start, characters = at, 0
            width = _blank_width(data, at)
            if width != 0:
                # One blank between two words is no token.
                start += after_word and data[at] == 32
                while width != 0:
                    at += width
                    width = _blank_width(data, at) if at < end else 0
                after_word = False
                if start == at:
                    continue
            else:
                while width == 0:
                    # Bytes that go on with a character do not count as one.
                    characters += (data[at] & 0xC0) != 0x80
                    at += 1
                    width = _blank_width(data, at) if at < end else 1
                after_word = True
            source, first, last = data, start, at
            if characters > LONGEST_CHUNK:
                source, first, last = replacement, 0, replacement.shape[0]
            if total == chunks.shape[0]:
                return text, count, _NUMBERS
            chunk = number_of(source, first, last, count, seed, slots, hashes, offsets, cached)
            if chunk < 0:
                return text, count, chunk
            count = max(count, chunk + 1)
            chunks[total] = chunk
            total += 1
        chunk_offsets[text + 1] = total
    return texts.shape[0] - 1, count, _NOTHING


@njit(cache=True, nogil=True)
def tokens_of(
    chunks: NDArray[np.int32],
    chunk_offsets: NDArray[np.int64],
    records: NDArray[np.int32],
    codes: NDArray[np.int32],
    string_ids: NDArray[np.int32],
    pairs: NDArray[np.bool_],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """Codes of the tokens of texts, their offsets, strings of those not drawn; and chunks that may hold a special case."""
    total = 0
    for at in range(chunks.shape[0]):
        total += records[chunks[at], 1]
    all_codes = np.empty(total, np.int32)
    all_string_ids = np.empty(total, np.int32)
    offsets = np.zeros(chunk_offsets.shape[0], np.int64)
    crossed = np.zeros(chunks.shape[0], np.bool_)
    token, undrawn = 0, 0
    for text in range(chunk_offsets.shape[0] - 1):
        left = 0
        for at in range(chunk_offsets[text], chunk_offsets[text + 1]):
            chunk = chunks[at]
            size, classes = records[chunk, 1], records[chunk, 3]
            if left != 0 and pairs[left, classes & 0xFFFF]:
                crossed[at] = True
            left = classes >> 16
            if size == 1:
                all_codes[token] = records[chunk, 0]
                if records[chunk, 2] >= 0:
                    all_string_ids[undrawn] = records[chunk, 2]
                    undrawn += 1
            else:
                first = records[chunk, 0]
                for step in range(size):
                    all_codes[token + step] = codes[first + step]
                    if string_ids[first + step] >= 0:
                        all_string_ids[undrawn] = string_ids[first + step]
                        undrawn += 1
            token += size
        offsets[text + 1] = token
    return all_codes, offsets, all_string_ids[:undrawn].copy(), crossed
