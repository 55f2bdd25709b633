"""Approximate nearest neighbours by an HNSW graph and its file, for Madlib, whose search is post-processing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError, how_to_install
from textpriv.index.folder import refuse

_HEAD = struct.Struct("<6Q i I 3Q d Q")  # as hnswlib writes it, without spaces between
_ROWS = 4096  # rows checked at a time
_EFFORT = 100  # ``ef_construction`` of a graph, and ``ef`` of its queries


def need_hnswlib() -> Any:
    """Import hnswlib, which approximate search alone needs; if it is missing, say what else there is."""
    try:
        import hnswlib
    except ModuleNotFoundError:
        raise TextprivError(
            f"approximate search needs hnswlib, which is not installed: {how_to_install('hnsw')} (a C++ compiler builds "
            'it), or choose the exact one, search="exact" (--search exact), which is slower on a large vocabulary.'
        ) from None
    return hnswlib


def build_graph(coordinates: NDArray[np.float32]) -> Any:
    """Build an hnswlib index of Euclidean distances over rows, shape (V, n).

    One thread and a fixed seed give the same graph for the same vocabulary.
    """
    size, dimension = coordinates.shape
    graph = need_hnswlib().Index(space="l2", dim=dimension)
    graph.init_index(max_elements=size, ef_construction=_EFFORT, M=16, random_seed=100)
    graph.add_items(coordinates, np.arange(size), num_threads=1)
    graph.set_ef(_EFFORT)
    return graph


def read_graph(path: Path, coordinates: NDArray[np.float32]) -> Any:
    """Open a saved hnswlib index over these coordinates, shape (V, n), once it is checked."""
    size, dimension = coordinates.shape
    graph = need_hnswlib().Index(space="l2", dim=dimension)
    _check_graph(path, coordinates)
    graph.load_index(str(path), max_elements=size)
    graph.set_ef(_EFFORT)
    return graph


def _check_graph(path: Path, coordinates: NDArray[np.float32]) -> None:
    """Refuse a file that is no whole graph over these coordinates: hnswlib follows its links unchecked."""
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
        if (
            (part["count"] > most_below).any()
            or (part["links"][listed] >= size).any()
            or not np.array_equal(part["label"], np.arange(start, start + len(part)))
            or not np.array_equal(part["row"], coordinates[start : start + _ROWS])
        ):
            refuse(path, "it is not a graph over these coordinates")
    try:
        has_sound_levels = _has_sound_levels(content[middle:].view("<u4"), size, most, top, entry)
    except (IndexError, ValueError):  # lists that end too early or too late
        has_sound_levels = False
    if not has_sound_levels:
        refuse(path, "its upper levels are not those of a graph")


def _has_sound_levels(
    numbers: NDArray[np.uint32], size: int, most: int, top: int, entry: int
) -> bool:
    """Whether the lists of the upper levels are those of all words, each link to a word that reaches the level.

    For each word there is the number of bytes of its lists, one list a level. A list is its length and room for links.
    """
    place, lists = 0, []
    for _ in range(size):
        length, rest = divmod(int(numbers[place]), 4)
        if rest:
            return False
        lists.append(numbers[place + 1 : place + 1 + length].reshape(-1, most + 1))
        place += 1 + length
    levels = np.array([len(each) for each in lists])
    level = np.concatenate([np.arange(1, count + 1) for count in levels])
    rows = np.concatenate(lists)
    listed = np.arange(most) < rows[:, :1]
    links = rows[:, 1:][listed]
    return bool(
        place == len(numbers)
        and levels.max() == levels[entry] == top
        and (rows[:, 0] <= most).all()
        and (levels[links] >= np.repeat(level, listed.sum(axis=1))).all()
    )
