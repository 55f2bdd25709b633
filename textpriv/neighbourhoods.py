"""Exact k-nearest lists over a vocabulary, and the approximate index beside them.

Lists are built by blocked float32 matrix products that only *screen*: every candidate within a proved bound of the
product's rounding error is kept and ranked again by float64 direct differences, so the lists are those of exact
arithmetic on the given coordinates, up to ties. The approximate index (hnswlib) answers nearest-neighbour queries for
mechanisms whose guarantee does not rest on the search. No laws, no words, no files here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from textpriv.errors import TextprivError
from textpriv.metrics import ANGULAR, EUCLIDEAN, INTERPRETED, Metric, distances_from, row_distance

__all__ = [
    "Neighbourhoods",
    "approximate_lists",
    "exact_lists",
    "hnsw_index",
    "measure_recall",
    "processors",
]

Progress = Callable[[int, int], None]

# A thread multiplies this many rows by this many columns at a time, so that it still finds the product in its cache
# when it screens it.
_ROWS = 256
_COLUMNS = 4096
_DEVICE_ROWS = 1024
_STRIP = 1024  # columns compared with one bound before it may tighten


@dataclass(frozen=True)
class Neighbourhoods:
    """Nearest lists of every word.

    Attributes
    ----------
    ids : ndarray of int32, shape (V, k)
        Column 0 is the word itself, then its k - 1 nearest others in order of distance.
    distances : ndarray of float32 or float64, shape (V, k)
        Their distances, rounded to the precision of the coordinates.
    """

    ids: NDArray[np.int32]
    distances: NDArray[Any]


def processors() -> int:
    """How many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def _over_blocks(rows: int, work: Callable[[int, int], None], progress: Progress | None) -> None:
    """Run ``work(start, stop)`` over blocks of rows, one thread a processor and one product a thread."""
    blocks = [(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
    done = 0

    def run(block: tuple[int, int]) -> int:
        work(*block)
        return block[1] - block[0]

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(processors()) as pool:
        for finished in pool.map(run, blocks):
            done += finished
            if progress:
                progress(done, rows)


@njit(cache=True, nogil=True)
def _kth_smallest(values: NDArray[np.float32], count: int, k: int) -> float:
    """Value of rank ``k`` (from 0) among the first ``count``; reorders them (Hoare's selection)."""
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(cache=True, nogil=True)
def _tighten(
    ids: NDArray[np.int32],
    scores: NDArray[np.float32],
    scratch: NDArray[np.float32],
    count: int,
    k: int,
    slack: np.float32,
) -> tuple[int, np.float32]:
    """Drop the candidates that cannot be among the k least; return how many stay and the new bound."""
    scratch[:count] = scores[:count]
    bound = np.float32(_kth_smallest(scratch, count, k - 1) + slack)
    kept = 0
    for c in range(count):
        if scores[c] <= bound:
            ids[kept] = ids[c]
            scores[kept] = scores[c]
            kept += 1
    return kept, bound


@njit(cache=True, nogil=True)
def _screen(
    products: NDArray[np.float32],
    halves: NDArray[np.float32],
    first_column: int,
    k: int,
    slack: NDArray[np.float32],
    bound: NDArray[np.float32],
    count: NDArray[np.int64],
    ids: NDArray[np.int32],
    scores: NDArray[np.float32],
    scratch: NDArray[np.float32],
) -> None:
    """Add to each row's candidates the columns whose score ``|y|^2/2 - x.y`` is within reach of its k least."""
    width = products.shape[1]
    room = ids.shape[1]
    # One byte a column, written by a loop the compiler turns into vector instructions and read eight at a time: most
    # stretches hold no candidate and are dismissed without a branch each.
    within = np.zeros(_STRIP, np.uint8)
    stretches = within.view(np.uint64)
    for row in range(products.shape[0]):
        line = products[row]
        limit = bound[row]
        held = count[row]
        for left in range(0, width, _STRIP):
            if held < 0:
                break
            columns = min(_STRIP, width - left)
            for j in range(columns):
                within[j] = np.uint8(halves[left + j] - line[left + j] <= limit)
            within[columns:] = 0
            for stretch in range(stretches.shape[0]):
                if stretches[stretch] == 0 or held < 0:
                    continue
                for j in range(8 * stretch, 8 * stretch + 8):
                    if within[j] == 0:
                        continue
                    score = halves[left + j] - line[left + j]
                    if score > limit:
                        continue
                    if held == room:
                        held, limit = _tighten(ids[row], scores[row], scratch, held, k, slack[row])
                        if held == room:
                            # More ties within the error bound than there is room for: this row is done in full.
                            held = -1
                            break
                        if score > limit:
                            continue
                    ids[row, held] = first_column + left + j
                    scores[row, held] = score
                    held += 1
        bound[row] = limit
        count[row] = held


@njit(cache=True, nogil=True)
def _finish(
    k: int,
    slack: NDArray[np.float32],
    count: NDArray[np.int64],
    ids: NDArray[np.int32],
    scores: NDArray[np.float32],
    scratch: NDArray[np.float32],
) -> None:
    """Leave each row only the candidates that the final bound admits."""
    for row in range(count.shape[0]):
        if count[row] > k:
            count[row], _ = _tighten(ids[row], scores[row], scratch, count[row], k, slack[row])


@njit(cache=True, nogil=True)
def _rank(
    kind: int,
    coordinates: NDArray[Any],
    first_row: int,
    k: int,
    order: NDArray[np.int32],
    count: NDArray[np.int64],
    candidates: NDArray[np.int32],
    out_ids: NDArray[np.int32],
    out_distances: NDArray[Any],
) -> None:
    """Rank each row's candidates by float64 distances; a row without candidates is ranked over the vocabulary."""
    size = coordinates.shape[0]
    for row in range(count.shape[0]):
        word = first_row + row
        total = size if count[row] < 0 else count[row]
        found = np.empty(total, np.int32)
        exact = np.empty(total, np.float64)
        filled = 0
        for c in range(total):
            other = c if count[row] < 0 else order[candidates[row, c]]
            if other == word:
                continue
            found[filled] = other
            exact[filled] = row_distance(kind, coordinates, word, coordinates, other)
            filled += 1
        ranking = np.argsort(exact[:filled], kind="mergesort")
        out_ids[word, 0] = word
        out_distances[word, 0] = 0.0
        for place in range(k - 1):
            out_ids[word, place + 1] = found[ranking[place]]
            out_distances[word, place + 1] = exact[ranking[place]]


def exact_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    progress: Progress | None = None,
    *,
    device: str = "cpu",
) -> Neighbourhoods:
    """Exact nearest lists (mechanisms.md 3.4, "Exact lists").

    Parameters
    ----------
    coordinates : ndarray of float32 or float64, shape (V, n)
        From ``metric.coordinates``.
    metric : Metric
        Euclidean and angular metrics are screened by matrix products, others computed directly.
    k : int
        Length of a list, the word itself included; at most V.
    progress : callable, optional
        Called with (rows done, rows in all).
    device : str
        "cpu", or a CUDA device of torch on which the products of the screening are taken. Candidates are kept by the same
        bound and ranked by the same float64 distances, so the lists are the same up to ties.

    Returns
    -------
    Neighbourhoods

    Raises
    ------
    TextprivError
        For a device that is not there or does not suit.
    """
    size = len(coordinates)
    ids = np.empty((size, k), dtype=np.int32)
    distances = np.empty((size, k), dtype=coordinates.dtype)
    if metric.kind == INTERPRETED:
        _interpreted_lists(coordinates, metric, k, ids, distances, progress)
    elif metric.kind in (EUCLIDEAN, ANGULAR) and size > 2 * k:
        if device == "cpu":
            _screened_lists(coordinates, metric, k, ids, distances, progress)
        else:
            _device_lists(coordinates, metric, k, ids, distances, progress, device)
    else:

        def rank(start: int, stop: int) -> None:
            everybody = np.full(stop - start, -1, dtype=np.int64)
            unused = np.empty((stop - start, 0), dtype=np.int32)
            order = np.empty(0, dtype=np.int32)
            _rank(metric.kind, coordinates, start, k, order, everybody, unused, ids, distances)

        _over_blocks(size, rank, progress)
    return Neighbourhoods(ids, distances)


def _scores(
    coordinates: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]]:
    """Centred rows and their squared lengths, by which products screen, and for each row the slack of its scores."""
    dimension = coordinates.shape[1]
    # Distances do not change when all points are moved together, and shorter vectors round less.
    centred = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    # A power of two changes no digit and keeps float32 products clear of overflow and underflow.
    np.ldexp(centred, -int(np.frexp(np.abs(centred).max())[1]), out=centred)
    squares = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
    longest = float(np.sqrt(squares.max()))
    # |fl(x.y) - x.y| <= (n + 3) u |x||y| in any order of summation, plus the rounding of both factors, of |y|^2/2 and
    # of the difference; u = 2^-24. Two scores may err in opposite directions, hence the factor 2 in the slack. Angles
    # order rows as scores do but for the rounding of the rows' unit length, which moves a score by 2u longest^2 at most.
    unit = 2.0**-24
    error = 1.01 * unit * ((dimension + 7) * np.sqrt(squares) * longest + 4 * longest**2)
    return centred, squares, np.nextafter((2 * error).astype(np.float32), np.float32(np.inf))


def _room(size: int, k: int) -> int:
    """Candidates that a row may hold before it is done in full."""
    return min(size, 2 * k + 256)


def _screened_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    ids: NDArray[np.int32],
    distances: NDArray[Any],
    progress: Progress | None,
) -> None:
    size = len(coordinates)
    centred, squares, slack = _scores(coordinates)
    # A public shuffle of the columns: a frequency-sorted vocabulary would otherwise fill the lists with words that
    # later ones displace, and every displacement costs a pass over the list.
    order = np.random.default_rng(0).permutation(size).astype(np.int32)
    columns = centred[order].astype(np.float32)
    halves = (squares[order] / 2).astype(np.float32)
    room = _room(size, k)

    def search(start: int, stop: int) -> None:
        rows = stop - start
        queries = centred[start:stop].astype(np.float32)
        products = np.empty((rows, min(_COLUMNS, size)), dtype=np.float32)
        candidates = np.empty((rows, room), dtype=np.int32)
        scores = np.empty((rows, room), dtype=np.float32)
        scratch = np.empty(room, dtype=np.float32)
        bound = np.full(rows, np.inf, dtype=np.float32)
        count = np.zeros(rows, dtype=np.int64)
        for left in range(0, size, _COLUMNS):
            right = min(left + _COLUMNS, size)
            block = products if right - left == products.shape[1] else None
            block = np.dot(queries, columns[left:right].T, out=block)
            _screen(
                block,
                halves[left:right],
                left,
                k,
                slack[start:stop],
                bound,
                count,
                candidates,
                scores,
                scratch,
            )
        _finish(k, slack[start:stop], count, candidates, scores, scratch)
        _rank(metric.kind, coordinates, start, k, order, count, candidates, ids, distances)

    _over_blocks(size, search, progress)


def _device_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    ids: NDArray[np.int32],
    distances: NDArray[Any],
    progress: Progress | None,
    device: str,
) -> None:
    import torch

    from textpriv.device import candidates, choose_device, full_precision

    chosen = choose_device(device)
    size = len(coordinates)
    centred, squares, slack = _scores(coordinates)
    room = _room(size, k)
    own_order = np.arange(size, dtype=np.int32)
    columns = torch.from_numpy(centred.astype(np.float32)).to(chosen)
    halves = torch.from_numpy((squares / 2).astype(np.float32)).to(chosen)

    def rank(start: int, found: NDArray[np.int32], scores: NDArray[np.float32]) -> int:
        limit = scores[:, k - 1].astype(np.float64) + slack[start : start + len(found)]
        count = (scores <= limit[:, None]).sum(axis=1)
        # More ties within the error bound than there is room for: this row is done in full.
        count[(count == room) & (room < size)] = -1
        _rank(metric.kind, coordinates, start, k, own_order, count, found, ids, distances)
        return len(found)

    done = 0
    waiting: deque[Future[int]] = deque()
    with full_precision(chosen), ThreadPoolExecutor(processors()) as pool:
        for start in range(0, size, _DEVICE_ROWS):
            queries = centred[start : start + _DEVICE_ROWS].astype(np.float32)
            found, scores = candidates(chosen, queries, columns, halves, room)
            waiting.append(pool.submit(rank, start, found, scores))
            # The device goes on while the processors rank, a few blocks ahead at most.
            while len(waiting) > (2 * processors() if start + _DEVICE_ROWS < size else 0):
                done += waiting.popleft().result()
                if progress:
                    progress(done, size)


def _interpreted_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    ids: NDArray[np.int32],
    distances: NDArray[Any],
    progress: Progress | None,
) -> None:
    size = len(coordinates)
    for start in range(0, size, 64):
        stop = min(start + 64, size)
        # A copy, for the array belongs to the user's function.
        block = metric.pairwise(coordinates[start:stop], coordinates).copy()
        own = np.arange(start, stop)
        block[
            own - start, own
        ] = -1.0  # the word itself comes first, also before its exact duplicates
        nearest = np.argsort(block, axis=1, kind="stable")[:, :k]
        block[own - start, own] = 0.0
        ids[start:stop] = nearest
        distances[start:stop] = np.take_along_axis(block, nearest, axis=1)
        if progress:
            progress(stop, size)


def hnsw_index(
    coordinates: NDArray[Any], *, effort: int = 100, progress: Progress | None = None
) -> Any:
    """Build an hnswlib index of Euclidean distances over the rows.

    One thread and a fixed seed, so that the same vocabulary gives the same graph and a seeded experiment can be
    repeated from the vectors alone.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    effort : int
        ``ef_construction``; queries use it too unless changed.
    progress : callable, optional
        Called with (rows done, rows in all).
    """
    import hnswlib

    size, dimension = coordinates.shape
    graph = hnswlib.Index(space="l2", dim=dimension)
    graph.init_index(max_elements=size, ef_construction=effort, M=16, random_seed=100)
    for start in range(0, size, 4096):
        stop = min(start + 4096, size)
        graph.add_items(
            np.asarray(coordinates[start:stop], dtype=np.float32),
            np.arange(start, stop),
            num_threads=1,
        )
        if progress:
            progress(stop, size)
    graph.set_ef(max(effort, 64))
    return graph


def approximate_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    graph: Any,
    progress: Progress | None = None,
) -> Neighbourhoods:
    """Nearest lists by the approximate index: fast, incomplete, and no basis for a proof (mechanisms.md TEM-1).

    The word itself is always put first; the rest is what the graph returned, ranked by float64 distances.
    """
    if metric.kind not in (EUCLIDEAN, ANGULAR):
        raise TextprivError(
            f"backend='hnsw' searches Euclidean space; the metric {metric.name!r} needs backend='exact'."
        )
    size = len(coordinates)
    effort = graph.ef
    graph.set_ef(max(2 * k, effort))
    ids = np.empty((size, k), dtype=np.int32)
    distances = np.empty((size, k), dtype=coordinates.dtype)
    order = np.arange(size, dtype=np.int32)
    for start in range(0, size, 4096):
        stop = min(start + 4096, size)
        found, _ = graph.knn_query(np.asarray(coordinates[start:stop], dtype=np.float32), k=k)
        candidates = np.ascontiguousarray(found.astype(np.int32))
        own = np.arange(start, stop, dtype=np.int32)
        missed = ~(candidates == own[:, None]).any(axis=1)
        candidates[missed, -1] = own[missed]
        count = np.full(stop - start, k, dtype=np.int64)
        _rank(
            metric.kind,
            coordinates,
            start,
            k,
            order,
            count,
            candidates,
            ids,
            distances,
        )
        if progress:
            progress(stop, size)
    graph.set_ef(effort)
    return Neighbourhoods(ids, distances)


def measure_recall(
    lists: Neighbourhoods, coordinates: NDArray[Any], metric: Metric, *, sample: int = 256
) -> float:
    """Share of true neighbours that the lists hold, over a fixed public sample of words."""
    size, k = lists.ids.shape
    rows = np.random.default_rng(1).choice(size, size=min(sample, size), replace=False)
    held = 0
    exact = np.empty(size, dtype=np.float64)
    for row in rows:
        distances_from(metric.kind, coordinates, int(row), exact)
        reach = np.partition(exact, k - 1)[k - 1]
        held += int((exact[lists.ids[row]] <= reach * (1 + 1e-12)).sum())
    return held / (len(rows) * k)
