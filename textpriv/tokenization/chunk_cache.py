"""The chunk cache: tokens of chunks between blanks that were tokenized before, found by compiled look-ups.

It must give what tokenizing anew gives. What is a chunk, and when one may be cached, is decided in ``tokenization.encoder``.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.tokenization.batches import _DROPPED, _REPLACEMENT, EncodedTexts, RawBatch
from textpriv.tokenization.policy import MASK
from textpriv.tokenization.special_cases import Crossings

_LONGEST_STRETCH = 1_000  # characters without a blank that are still read as words
_MOST_STRETCHES = 400_000  # kept before all are forgotten; some 60 bytes each
_MOST_BYTES = 1 << 25  # of kept stretches, for a run of blanks has no longest


class _Stretches:
    """Different stretches of text, found again by their bytes, and the tokens of each.

    Nothing is removed; who finds it full begins another one.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 13, dtype=np.int32)  # 1 + place of a stretch, by its hash
        self._hashes = np.empty(1 << 12, dtype=np.uint64)
        self._begins = np.zeros((1 << 12) + 1, dtype=np.int64)  # in the bytes
        self._bytes = np.empty(1 << 16, dtype=np.uint8)
        self.count = 0
        # Of each stretch: its only code or where its codes begin, how many there are, the other one (of its only token),
        # and the classes of its last and first token.
        self._records = np.empty((1 << 12, 4), dtype=np.int32)
        self._told = self.kept = 0  # how many were told, and how many have their tokens
        self._codes = np.empty(1 << 12, dtype=np.int32)
        self._others = np.empty(1 << 12, dtype=np.int32)
        self._held = 0
        self._strings = [MASK]
        self._places = {MASK: 0}
        # So that nobody can choose texts that all fall on one slot.
        self._seed = np.uint64(secrets.randbits(64))

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that it is time to forget it."""
        return self.count > _MOST_STRETCHES or int(self._begins[self.count]) > _MOST_BYTES

    def place_of(self, string: str) -> int:
        """The place of a released string among all of them."""
        found = self._places.get(string)
        if found is None:
            found = self._places[string] = len(self._strings)
            self._strings.append(string)
        return found

    def find(self, texts: EncodedTexts) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The stretches of all texts, new ones among them, and where those of each text begin."""
        found = np.empty(max(64, len(texts.data) // 5), dtype=np.int32)
        cuts = np.zeros(len(texts) + 1, dtype=np.int64)
        done, short = 0, _NOTHING_SHORT
        while done < len(texts):
            done, self.count, short = _find(
                texts.data,
                texts.cuts,
                done,
                self.count,
                self._seed,
                self._slots,
                self._hashes,
                self._begins,
                self._bytes,
                _REPLACEMENT,
                found,
                cuts,
            )
            # What was too small for a text is doubled, and the text is begun again.
            if short == _FOUND_SHORT:
                found = _doubled(found)
            elif short == _BYTES_SHORT:
                self._bytes = _doubled(self._bytes)
            elif short == _STRETCHES_SHORT:
                self._hashes = _doubled(self._hashes)
                self._begins = _doubled(self._begins)
                self._records = _doubled(self._records)
                self._slots = np.zeros(2 * len(self._slots), dtype=np.int32)
                _place_all(self._hashes[: self.count], self._slots)
        return found[: cuts[-1]], cuts

    def not_told(self, most: int) -> list[str]:
        """The next stretches whose tokens are to be found; each is told once."""
        first, self._told = self._told, min(self.count, self._told + most)
        cuts = self._begins[first : self._told + 1]
        part = self._bytes[cuts[0] : cuts[-1]].tobytes()
        places = (cuts - cuts[0]).tolist()
        return [part[a:b].decode("utf-8") for a, b in zip(places, places[1:], strict=False)]

    def keep(
        self,
        stretches: list[str],
        owners: NDArray[np.int64],
        codes: NDArray[np.int32],
        others: NDArray[np.int32],
        hashes: NDArray[np.uint64],
        crossings: Crossings,
    ) -> None:
        """Keep the tokens of the next stretches, in the order in which they were told; ``owners`` says whose they are."""
        count = len(stretches)
        begins = np.searchsorted(owners, np.arange(count + 1))
        several = np.diff(begins) > 1
        left = hashes[np.stack([begins[1:] - 1, begins[1:] - 1 - several], axis=1)]
        right = hashes[np.stack([begins[:-1], begins[:-1] + several], axis=1)]
        left[~several, 1] = right[~several, 1] = 0
        classes = [
            crossings.classes(stretches, left, 0),
            crossings.classes(stretches, right, 1),
        ]
        held = codes != _DROPPED
        ends = np.concatenate([[0], np.cumsum(held)])[begins]
        codes, others = codes[held], others[held]
        while self._held + len(codes) > len(self._codes):
            self._codes, self._others = _doubled(self._codes), _doubled(self._others)
        records = self._records[self.kept : self.kept + count]
        records[:, 0] = self._held + ends[:-1]
        records[:, 1] = np.diff(ends)
        records[:, 2] = -1
        records[:, 3] = classes[0] << 16 | classes[1]
        alone = records[:, 1] == 1
        records[alone, 0] = codes[ends[:-1][alone]]
        records[alone, 2] = others[ends[:-1][alone]]
        self._codes[self._held : self._held + len(codes)] = codes
        self._others[self._held : self._held + len(codes)] = others
        self._held += len(codes)
        self.kept += count

    def tokens(
        self, found: NDArray[np.int32], cuts: NDArray[np.int64], crossings: Crossings
    ) -> tuple[RawBatch, list[int]]:
        """The tokens of texts, given their stretches; and which texts may hold a special case over a blank."""
        codes, others, ends, crossed = _tokens_of(
            found, cuts, self._records, self._codes, self._others, crossings.pairs
        )
        places: list[int] = np.flatnonzero(crossed).tolist()
        return RawBatch(codes, ends, others, self._strings), places


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    """The same array with room for as much again."""
    room = np.zeros((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    room[: len(array)] = array
    return room


_NOTHING_SHORT, _FOUND_SHORT, _STRETCHES_SHORT, _BYTES_SHORT = range(4)


def _kinds() -> NDArray[np.uint8]:
    """Of each byte: 1 if it is a blank, 2 if it may begin one of several bytes."""
    kinds = np.zeros(256, dtype=np.uint8)
    kinds[[character for character in range(128) if chr(character).isspace()]] = 1
    kinds[[0xC2, 0xE1, 0xE2, 0xE3]] = 2
    return kinds


_KINDS = _kinds()


@njit(cache=True, nogil=True)
def _long_blank(data: NDArray[np.uint8], place: int) -> int:
    """How many bytes the blank of several bytes at a place has, 0 if it is none; the data is sound UTF-8."""
    lead, second = data[place], data[place + 1]
    if lead == 0xC2:  # next line, no-break space
        return 2 if second == 0x85 or second == 0xA0 else 0
    third = data[place + 2]
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
def _hashed(data: NDArray[np.uint8], begin: int, end: int, seed: np.uint64) -> np.uint64:
    found = seed
    for place in range(begin, end):
        found = (found ^ np.uint64(data[place])) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found ^ (found >> np.uint64(32))


@njit(cache=True, nogil=True)
def _place_all(hashes: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    mask = np.uint64(slots.shape[0] - 1)
    for place in range(hashes.shape[0]):
        slot = hashes[place] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = place + 1


@njit(cache=True, nogil=True)
def _find(
    data: NDArray[np.uint8],
    texts: NDArray[np.int64],
    done: int,
    count: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    begins: NDArray[np.int64],
    kept: NDArray[np.uint8],
    replacement: NDArray[np.uint8],
    found: NDArray[np.int32],
    cuts: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Cut texts at their blanks as spaCy does, and find each stretch, or add it.

    Returns the number of texts done, of stretches kept, and what was too small to go on.
    """
    mask = np.uint64(slots.shape[0] - 1)
    for text in range(done, texts.shape[0] - 1):
        place, end = texts[text], texts[text + 1]
        total = cuts[text]
        after_word = False
        while place < end:
            begin, characters = place, 0
            kind = _KINDS[data[place]]
            width = kind if kind < 2 else _long_blank(data, place)
            is_blank = width != 0
            if is_blank:
                # One blank between two words is no token.
                if after_word and data[place] == 32:
                    begin += 1
                while width != 0:
                    place += width
                    width = 0
                    if place < end:
                        kind = _KINDS[data[place]]
                        width = kind if kind < 2 else _long_blank(data, place)
                after_word = False
                if begin == place:
                    continue
            else:
                while width == 0:
                    # Bytes that go on with a character do not count as one.
                    characters += (data[place] & 0xC0) != 0x80
                    place += 1
                    width = 1
                    if place < end:
                        kind = _KINDS[data[place]]
                        width = kind if kind < 2 else _long_blank(data, place)
                after_word = True
            source, first, last = data, begin, place
            if characters > _LONGEST_STRETCH:
                source, first, last = replacement, 0, replacement.shape[0]
            if total == found.shape[0]:
                return text, count, _FOUND_SHORT
            size = last - first
            hashed = _hashed(source, first, last, seed)
            slot = hashed & mask
            while True:
                stretch = slots[slot] - 1
                if stretch < 0:
                    if count == hashes.shape[0]:
                        return text, count, _STRETCHES_SHORT
                    at = begins[count]
                    if at + size > kept.shape[0]:
                        return text, count, _BYTES_SHORT
                    for step in range(size):
                        kept[at + step] = source[first + step]
                    begins[count + 1] = at + size
                    hashes[count] = hashed
                    stretch = count
                    count += 1
                    slots[slot] = count
                    break
                if hashes[stretch] == hashed:
                    at = begins[stretch]
                    same = begins[stretch + 1] - at == size
                    step = 0
                    while same and step < size:
                        same = kept[at + step] == source[first + step]
                        step += 1
                    if same:
                        break
                slot = (slot + np.uint64(1)) & mask
            found[total] = stretch
            total += 1
        cuts[text + 1] = total
    return texts.shape[0] - 1, count, _NOTHING_SHORT


@njit(cache=True, nogil=True)
def _tokens_of(
    found: NDArray[np.int32],
    cuts: NDArray[np.int64],
    records: NDArray[np.int32],
    codes: NDArray[np.int32],
    others: NDArray[np.int32],
    pairs: NDArray[np.bool_],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Codes of the tokens of texts, what is released for those not drawn, where texts begin, which are to be read again."""
    total = 0
    for place in range(found.shape[0]):
        total += records[found[place], 1]
    all_codes = np.empty(total, np.int32)
    all_others = np.empty(total, np.int32)
    ends = np.zeros(cuts.shape[0], np.int64)
    crossed = np.zeros(cuts.shape[0] - 1, np.bool_)
    token, rest = 0, 0
    for text in range(cuts.shape[0] - 1):
        left = 0
        for place in range(cuts[text], cuts[text + 1]):
            stretch = found[place]
            size, classes = records[stretch, 1], records[stretch, 3]
            if left != 0 and pairs[left, classes & 0xFFFF]:
                crossed[text] = True
            left = classes >> 16
            if size == 1:
                all_codes[token] = records[stretch, 0]
                if records[stretch, 2] >= 0:
                    all_others[rest] = records[stretch, 2]
                    rest += 1
            else:
                first = records[stretch, 0]
                for step in range(size):
                    all_codes[token + step] = codes[first + step]
                    if others[first + step] >= 0:
                        all_others[rest] = others[first + step]
                        rest += 1
            token += size
        ends[text + 1] = token
    return all_codes, all_others[:rest].copy(), ends, crossed
