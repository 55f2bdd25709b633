"""Checks of the values in an index folder: ranges, order, finiteness, and a sample of distances.

They see to it that no file can crash a process or end in a traceback, and find the damage that a look at every value, or at
a sample of distances, shows. They cannot tell whether vectors, lists and bounds are those of an honest build: take indexes
from those whom you trust. Whether a mechanism over an index keeps its promise is a certificate's matter.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index.neighbours import processors
from textpriv.index.storage import META, Tables, refuse
from textpriv.metrics import GRAPH, INTERPRETED, Metric, row_distance

__all__ = ["check_sample", "check_values"]

_ROWS = 4096  # rows checked at a time
_SAMPLE = 16  # words whose listed distances are computed again


# Each has an inner loop without a way out, so that the compiler takes many values at a time.


@njit(cache=True, nogil=True)
def _bad_ids(ids: NDArray[np.int32], start: int, stop: int) -> int:
    """First of some rows whose ids do not begin with its own or are out of range; -1 if there is none."""
    size = ids.shape[0]
    for row in range(start, stop):
        largest = np.uint32(0)
        for place in range(ids.shape[1]):
            largest = max(largest, np.uint32(ids[row, place]))  # a negative one becomes large
        if largest >= size or ids[row, 0] != row:
            return row
    return -1


@njit(cache=True, nogil=True)
def _repeated_ids(ids: NDArray[np.int32], start: int, stop: int) -> int:
    """First of some rows, whose ids are in range, that has an id twice; -1 if there is none."""
    seen = np.zeros(ids.shape[0], np.uint8)
    for row in range(start, stop):
        mark = np.uint8(row % 255 + 1)
        if mark == 1:
            seen[:] = 0
        repeated = 0
        for place in range(ids.shape[1]):
            word = np.uint64(ids[row, place])
            repeated += seen[word] == mark
            seen[word] = mark
        if repeated:
            return row
    return -1


@njit(cache=True, nogil=True)
def _bad_distances(distances: NDArray[Any], start: int, stop: int, low: float) -> int:
    """First of some rows that does not begin with 0, rises and stays finite; -1 if there is none."""
    last = distances.shape[1] - 1
    for row in range(start, stop):
        falls = 0
        for place in range(2, last + 1):
            falls += not distances[row, place - 1] <= distances[row, place]
        nearest = distances[row, min(1, last)]
        if (
            falls
            or distances[row, 0] != 0
            or not low <= nearest
            or not distances[row, last] < np.inf
        ):
            return row
    return -1


def check_values(folder: Path, tables: Tables, kind: int) -> None:
    """Look at every value once: ranges, order, finiteness.

    Parameters
    ----------
    folder : Path
        Named in the error.
    tables : Tables
    kind : int
        Of the metric: distances of the user's own function may round below 0.

    Raises
    ------
    IndexFolderError
    """
    size = len(tables.words)
    if kind == GRAPH:
        _check_graph(folder / "coordinates.npy", tables.coordinates, size)
    own = tables.representatives
    if int(own.min()) < 0 or int(own.max()) >= size or not np.array_equal(own[own], own):
        refuse(folder / "representatives.npy", "a representative is no word, or has another one")
    prior = tables.prior
    if prior is not None and not (np.isfinite(prior).all() and (prior > 0).all()):
        refuse(folder / "prior.npy", "a weight is not finite and above 0")
    low = -np.inf if kind == INTERPRETED else 0.0
    ids, distances = tables.ids, tables.distances

    def bad_list(rows: tuple[int, int]) -> int:
        bad = max(_bad_ids(ids, *rows), _bad_distances(distances, *rows, low))
        return bad if bad >= 0 else _repeated_ids(ids, *rows)

    share = -(-size // processors())  # one part a thread, for each needs a note of all words
    with ThreadPoolExecutor(processors()) as pool:
        for bad in pool.map(bad_list, [(s, min(s + share, size)) for s in range(0, size, share)]):
            if bad >= 0:
                refuse(
                    folder / "neighbours.npy",
                    f"with distances.npy: the list of word {bad} is not of different words in order of distance",
                )
        named = {"vectors.npy": tables.vectors}
        if tables.coordinates is not tables.vectors:
            named["coordinates.npy"] = tables.coordinates
        for name, array in named.items():
            if not _is_finite(array, pool):
                refuse(folder / name, "a value is not finite")
    for array in (ids, distances, *named.values()):
        _release(array)


def _check_graph(path: Path, table: NDArray[Any], size: int) -> None:
    """See to it that a graph's rows begin with the number of their word and have a distance to each."""
    if table.shape[1] != 1 + size or not np.array_equal(table[:, 0], np.arange(size)):
        refuse(path, "its rows are not words and their distances to all words")
    if any(float(row.min()) < 0 for row in table):
        refuse(path, "a distance is below 0")


def _release(array: NDArray[Any]) -> None:
    """Take the pages of a mapped array out of this process; the system has them still, for whoever needs one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _is_finite(array: NDArray[Any], pool: ThreadPoolExecutor) -> bool:
    parts = (array[start : start + _ROWS] for start in range(0, len(array), _ROWS))
    return all(pool.map(lambda part: bool(np.isfinite(part).all()), parts))


def check_sample(folder: Path, meta: Mapping[str, Any], tables: Tables, metric: Metric) -> None:
    """Compute some listed distances again, from the vectors and from the coordinates, and test the bounds on some others.

    Files that belong to different indexes, a metric that was exchanged, or rows that were moved show in nearly every word,
    and so in a sample; a single altered value mostly does not. The sample is public and always the same.

    Raises
    ------
    IndexFolderError, MetricError
    """
    size, k = tables.ids.shape
    rows = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
    random = np.random.default_rng(0)
    for row in rows.tolist():
        places = np.unique(np.linspace(0, k - 1, min(k, _SAMPLE)).astype(np.int64))
        listed, given = tables.ids[row, places], tables.distances[row, places].astype(np.float64)
        others = random.choice(size, size=min(size, 4 * _SAMPLE), replace=False)
        others = others[~np.isin(others, tables.ids[row])]
        both = np.concatenate([listed, others])
        if (
            metric.kind == GRAPH
        ):  # vectors alone do not tell distances; those from the other words do
            found = tables.coordinates[both, 1 + row].astype(np.float64)
        else:
            found = metric.pairwise(tables.vectors[[row]], tables.vectors[both])[0]
        # Far more than rounding ever makes of a distance, and far less than between any two words.
        scale = float(np.abs(tables.coordinates[both]).max())
        slack = 4 * meta["tau"] + 1e-3 * found + 1e-5 * (meta["diameter_bound"] + scale)
        if not (np.abs(found - _own_distances(tables, metric, row, both, found)) <= slack).all():
            refuse(folder, "coordinates are not those of the vectors")
        near, far = found[: len(listed)], found[len(listed) :]
        if not (np.abs(near - given) <= slack[: len(listed)]).all():
            refuse(folder, "listed distances are not those of the vectors")
        if not (found <= meta["diameter_bound"] + slack).all():
            refuse(folder / META, "words are farther apart than the diameter")
        least = given[-1] if meta["backend"] == "exact" else 0.0
        least = np.maximum(least, _band_bounds(tables, row, others))
        least = np.maximum(least, _quantized_bounds(tables, row, others))
        if not (far + slack[len(listed) :] >= least).all():
            refuse(folder, "a word that is not listed is nearer than the lists tell")


def _own_distances(
    tables: Tables, metric: Metric, row: int, words: NDArray[Any], found: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distances by the coordinates; those found, where the metric is the user's own and has no others."""
    if metric.kind == INTERPRETED:
        return found
    table = tables.coordinates
    return np.array([row_distance(metric.kind, table, row, table, int(word)) for word in words])


def _band_bounds(tables: Tables, row: int, words: NDArray[Any]) -> NDArray[np.float64]:
    if tables.bands is None or not len(words):
        return np.zeros(len(words))
    band = np.searchsorted(tables.bands.starts[1:-1], words, side="right")
    return np.asarray(tables.bands.nearest[row, band] * tables.bands.step)


def _quantized_bounds(tables: Tables, row: int, words: NDArray[Any]) -> NDArray[np.float64]:
    rows, leading, scales = tables.quantized
    if not len(rows):
        return np.zeros(len(words))
    apart = rows[words, :leading].astype(np.float64) - rows[row, :leading]
    return np.asarray(scales[0] * np.linalg.norm(apart, axis=1) - scales[1])
