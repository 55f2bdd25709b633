"""Approximate nearest neighbours by an HNSW graph and its file, for Madlib, whose search is post-processing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import TextprivError, how_to_install
from textpriv.index.folder import refuse
from textpriv.index.neighbours import Progress

__all__ = ["check_graph", "hnsw_index", "need_hnswlib", "read_graph"]

_HEAD = struct.Struct("<6Q i I 3Q d Q")  # as hnswlib writes it, without spaces between
_ROWS = 4096  # rows checked at a time
_EFFORT = 100  # ``ef_construction`` of a graph, and ``ef`` of its queries


def need_hnswlib() -> Any:
    """Import hnswlib, which approximate search alone needs.

    Raises
    ------
    TextprivError
        Where it is not installed; says what else there is.
    """
    try:
        import hnswlib
    except ModuleNotFoundError:
        raise TextprivError(
            f"approximate search needs hnswlib, which is not installed: {how_to_install('hnsw')} (a C++ compiler builds "
            'it), or choose the exact one, search="exact" (--search exact), which is slower on a large vocabulary.'
        ) from None
    return hnswlib


def hnsw_index(coordinates: NDArray[Any], progress: Progress | None = None) -> Any:
    """Build an hnswlib index of Euclidean distances over the rows.

    One thread and a fixed seed, so that the same vocabulary gives the same graph and a seeded experiment can be
    repeated from the vectors alone.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    progress : callable, optional
        Called with (rows done, rows in all).
    """
    hnswlib = need_hnswlib()
    size, dimension = coordinates.shape
    graph = hnswlib.Index(space="l2", dim=dimension)
    graph.init_index(max_elements=size, ef_construction=_EFFORT, M=16, random_seed=100)
    for start in range(0, size, 4096):
        stop = min(start + 4096, size)
        graph.add_items(
            np.asarray(coordinates[start:stop], dtype=np.float32),
            np.arange(start, stop),
            num_threads=1,
        )
        if progress:
            progress(stop, size)
    graph.set_ef(_EFFORT)
    return graph


@njit(cache=True, nogil=True)
def _has_sound_levels(
    words: NDArray[np.uint32], size: int, most: int, top: int, entry: int
) -> bool:
    """Whether the lists of the upper levels are those of ``size`` words, each link to a word that reaches the level."""
    levels, starts = np.empty(size, np.int64), np.empty(size, np.int64)
    place, highest = 0, 0
    for word in range(size):
        if place >= len(words):
            return False
        length = np.int64(words[place])
        place += 1
        if length % (4 * (most + 1)):
            return False
        levels[word], starts[word] = length // (4 * (most + 1)), place
        highest = max(highest, levels[word])
        place += length // 4
    if place != len(words) or highest != top or levels[entry] != top:
        return False
    for word in range(size):
        for level in range(levels[word]):
            at = starts[word] + level * (most + 1)
            count = np.int64(words[at])
            if count > most:
                return False
            for link in range(count):
                other = np.int64(words[at + 1 + link])
                if other >= size or levels[other] < level + 1:
                    return False
    return True


def check_graph(path: Path, coordinates: NDArray[Any]) -> None:
    """Check a saved hnswlib graph before hnswlib follows its links, which it does unchecked.

    Raises
    ------
    IndexFolderError
        If the file is not a whole graph over these coordinates, shape (V, n), with row i under label i.
    """
    size, dimension = coordinates.shape
    if path.stat().st_size < _HEAD.size:
        refuse(path, "it is cut short")
    content = np.memmap(path, dtype=np.uint8, mode="r")
    head = _HEAD.unpack(content[: _HEAD.size].tobytes())
    zero, _, count, each, label_at, data_at, top, entry, most, most_below, most_again, *_ = head
    block = np.dtype(
        [
            ("count", "<u4"),
            ("links", "<u4", (most_below if most_below <= 2 * size + 4096 else 0,)),
            ("row", "<f4", (dimension,)),
            ("label", "<u8"),
        ]
    )
    sizes = zero == 0 and count == size and 1 < most == most_again and most_below == 2 * most
    layout = (each, label_at, data_at) == (block.itemsize, block.itemsize - 8, 4 * most_below + 4)
    middle = _HEAD.size + size * block.itemsize
    if not (sizes and layout and entry < size and 0 <= top < 64) or len(content) < middle:
        refuse(path, "its head is not that of a graph over this vocabulary")
    blocks = content[_HEAD.size : middle].view(block)
    for start in range(0, size, _ROWS):
        part = blocks[start : start + _ROWS]
        listed = np.arange(most_below) < part["count"][:, None]
        wanted = coordinates[start : start + _ROWS].astype(np.float32)
        if (
            (part["count"] > most_below).any()
            or (part["links"][listed] >= size).any()
            or not np.array_equal(part["label"], np.arange(start, start + len(part)))
            or not np.array_equal(part["row"], wanted)
        ):
            refuse(path, "it is not a graph over these coordinates")
    rest = content[middle:]
    if len(rest) % 4 or not _has_sound_levels(
        np.frombuffer(rest.tobytes(), dtype=np.uint32), size, most, top, entry
    ):
        refuse(path, "its upper levels are not those of a graph")


def read_graph(path: Path, coordinates: NDArray[Any]) -> Any:
    """Open a saved hnswlib index over these coordinates, shape (V, n), once it is checked.

    Raises
    ------
    IndexFolderError
    """
    hnswlib = need_hnswlib()
    check_graph(path, coordinates)
    size, dimension = coordinates.shape
    graph = hnswlib.Index(space="l2", dim=dimension)
    graph.load_index(str(path), max_elements=size)
    graph.set_ef(_EFFORT)
    return graph
