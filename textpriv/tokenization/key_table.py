"""A table that numbers different keys, each a few numbers of one type, and finds them again by compiled look-ups.

What a key stands for, and what is kept of it, is the business of the caches that own a table.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["KEYS", "LETTERS", "KeyTable", "doubled", "insert_all", "number_of"]

KEYS, LETTERS = -1, -2  # what was full


class KeyTable:
    """Keys by the numbers 0, 1, ... in the order in which they were first met: append-only; the owner replaces it when full.

    Parameters
    ----------
    kind : dtype
        Of the numbers that a key consists of: bytes, or 64 bits.
    """

    def __init__(self, kind: Any) -> None:
        self.slots = np.zeros(1 << 13, dtype=np.int32)  # 1 + number of a key, by its hash
        self.hashes = np.empty(1 << 12, dtype=np.uint64)
        self.offsets = np.zeros((1 << 12) + 1, dtype=np.int64)  # of the keys in the letters
        self.letters = np.empty(1 << 16, dtype=kind)
        self.count = 0
        # So that nobody can choose texts that all fall on one slot.
        self.seed = np.uint64(secrets.randbits(64))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What :func:`number_of` takes after the key and how many there are."""
        return self.seed, self.slots, self.hashes, self.offsets, self.letters

    @property
    def size(self) -> int:
        """The length of all keys together."""
        return int(self.offsets[self.count])

    def number(self, key: NDArray[Any]) -> int:
        """The number of a key, a new one where it is new."""
        while (number := number_of(key, 0, len(key), self.count, *self.arrays)) < 0:
            self.grow(number)
        self.count = max(self.count, number + 1)
        return int(number)

    def grow(self, full: int) -> None:
        """Make room for twice as much of what was full."""
        if full == LETTERS:
            self.letters = doubled(self.letters)
            return
        self.hashes, self.offsets = doubled(self.hashes), doubled(self.offsets)
        self.slots = np.zeros(2 * len(self.slots), dtype=np.int32)
        insert_all(self.hashes[: self.count], self.slots)

    def keys(self, first: int, last: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Keys from one number up to (without) another, one after the other, and their offsets."""
        offsets = self.offsets[first : last + 1]
        return self.letters[offsets[0] : offsets[-1]], offsets - offsets[0]


def doubled(array: NDArray[Any]) -> NDArray[Any]:
    """The array with room for twice as many rows, the new ones empty."""
    new = np.empty((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    new[: len(array)] = array
    return new


@njit(cache=True, nogil=True)
def insert_all(hashes: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    """Enter keys 0, 1, ... into empty slots."""
    mask = np.uint64(slots.shape[0] - 1)
    for number in range(hashes.shape[0]):
        slot = hashes[number] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number + 1


@njit(cache=True, nogil=True)
def number_of(
    source: NDArray[Any],
    first: int,
    last: int,
    count: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    letters: NDArray[Any],
) -> int:
    """The number of the key that stands between two offsets: ``count`` if it is new and was entered, or what was full."""
    own_hash = seed
    for at in range(first, last):
        own_hash = (own_hash ^ np.uint64(source[at])) * np.uint64(0x9E3779B97F4A7C15)
        own_hash ^= own_hash >> np.uint64(29)
    own_hash ^= own_hash >> np.uint64(32)
    size = last - first
    mask = np.uint64(slots.shape[0] - 1)
    slot = own_hash & mask
    while True:
        number = slots[slot] - 1
        if number < 0:
            break
        if hashes[number] == own_hash:
            start = offsets[number]
            same = offsets[number + 1] - start == size
            step = 0
            while same and step < size:
                same = letters[start + step] == source[first + step]
                step += 1
            if same:
                return number
        slot = (slot + np.uint64(1)) & mask
    if count == hashes.shape[0]:
        return KEYS
    start = offsets[count]
    if start + size > letters.shape[0]:
        return LETTERS
    for step in range(size):
        letters[start + step] = source[first + step]
    offsets[count + 1] = start + size
    hashes[count] = own_hash
    slots[slot] = count + 1
    return count
