"""Exact k-nearest lists over a vocabulary.

Lists are built by blocked float32 matrix products that only *screen*: every candidate within a proved bound of the
product's rounding error is kept and ranked again by float64 direct differences, ties by id. From the same products come
bounds on how near the words are that a list leaves out (``index.rank_bands``); where a product's rounding error leaves open
which step it is, distances by differences decide. So lists and bounds are the same on every processor and device, as
distances are (:mod:`textpriv.arithmetic`). No laws, no words, no files here.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from textpriv.index.rank_bands import (
    RankBands,
    band_starts,
    bands_of_words,
    decide,
    step_length,
    whole_steps,
)
from textpriv.metrics import ANGULAR, EUCLIDEAN, GRAPH, INTERPRETED, Metric, row_distance
from textpriv.vocabulary.vocabulary import read_only

__all__ = ["Neighbourhoods", "exact_lists", "processors", "product_threads", "rank_candidates"]

Progress = Callable[[int, int], None]

# A thread multiplies this many rows by this many columns at a time, so that it still finds the product in its cache
# when it screens it.
_ROWS = 256
_COLUMNS = 4096
_DEVICE_ROWS = 1024
_STRIP = 1024  # columns compared with one bound before it may tighten
_BOUND = 1e-9  # the part of a distance by which bounds keep off it, for all that rounds in double precision


@dataclass(frozen=True)
class Neighbourhoods:
    """Nearest lists of every word.

    Attributes
    ----------
    ids : ndarray of int32, shape (V, k)
        Column 0 is the word itself, then its k - 1 nearest others in order of distance.
    distances : ndarray of float32 or float64, shape (V, k)
        Their distances, rounded to the precision of the coordinates.
    bands : Bands, optional
        Bounds on the distances of all others, where these are known.
    """

    ids: NDArray[np.int32]
    distances: NDArray[Any]
    bands: RankBands | None = None


def processors() -> int:
    """How many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


@functools.cache
def _libraries() -> ThreadpoolController:
    """The libraries of this process; to look for them takes longer than a small index, and NumPy's is there at once."""
    return ThreadpoolController()


@contextmanager
def product_threads() -> Iterator[ThreadPoolExecutor]:
    """One thread a processor, each of which multiplies matrices by itself."""
    limit = _libraries().limit(limits=1, user_api="blas")
    with limit, ThreadPoolExecutor(processors()) as pool:
        yield pool


def _over_blocks(rows: int, work: Callable[[int, int], None], progress: Progress | None) -> None:
    """Run ``work(start, stop)`` over blocks of rows, one thread a processor and one product a thread."""
    blocks = [(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
    done = 0

    def run(block: tuple[int, int]) -> int:
        work(*block)
        return block[1] - block[0]

    with product_threads() as pool:
        for finished in pool.map(run, blocks):
            done += finished
            if progress:
                progress(done, rows)


@njit(cache=True, nogil=True)
def _smallest(values: NDArray[np.float32], count: int, rank: int) -> float:
    """Value of a rank, from 0, among the first ``count``.

    Hoare's selection: numpy's partition takes 5 s to compile, more than all else that a first index needs.
    """
    scratch = np.empty(count, np.float32)
    for c in range(count):
        scratch[c] = values[c]
    low, high = 0, count - 1
    while low < high:
        pivot = scratch[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while scratch[i] < pivot:
                i += 1
            while scratch[j] > pivot:
                j -= 1
            if i <= j:
                scratch[i], scratch[j] = scratch[j], scratch[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return scratch[rank]


@njit(cache=True, nogil=True)
def _tighten(
    ids: NDArray[np.int32],
    scores: NDArray[np.float32],
    count: int,
    k: int,
    slack: np.float32,
    band_of: NDArray[np.uint8],
    least: NDArray[np.float32],
) -> tuple[int, np.float32]:
    """Drop the candidates that cannot be among the k least; return how many stay and the new bound.

    The scores of those that are dropped count among the least of their bands.
    """
    bound = np.float32(_smallest(scores, count, k - 1) + slack)
    kept = 0
    for c in range(count):
        if scores[c] <= bound:
            ids[kept] = ids[c]
            scores[kept] = scores[c]
            kept += 1
        else:
            band = band_of[ids[c]]
            least[band] = min(least[band], scores[c])
    return kept, bound


@njit(cache=True, nogil=True)
def _least_beyond(
    line: NDArray[np.float32],
    halves: NDArray[np.float32],
    edges: NDArray[np.int64],
    limit: np.float32,
    beyond: NDArray[np.float32],
    least: NDArray[np.float32],
) -> None:
    """Lower a row's least score of every band by those of a block of columns that are beyond the limit."""
    nothing = np.float32(np.inf)
    # A loop that the compiler turns into vector instructions; it does not where the least is sought at the same time.
    for j in range(line.shape[0]):
        score = halves[j] - line[j]
        beyond[j] = score if score > limit else nothing
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for band in range(least.shape[0]):
        # Four at a time, none of which waits for another.
        first = second = third = fourth = nothing
        j, end = np.uint64(edges[band]), np.uint64(edges[band + 1])
        while j + four <= end:
            first = min(first, beyond[j])
            second = min(second, beyond[j + one])
            third = min(third, beyond[j + two])
            fourth = min(fourth, beyond[j + three])
            j += four
        while j < end:
            first = min(first, beyond[j])
            j += one
        least[band] = min(min(least[band], first), min(second, min(third, fourth)))


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
    edges: NDArray[np.int64],
    band_of: NDArray[np.uint8],
    least: NDArray[np.float32],
) -> None:
    """Add to each row's candidates the columns whose score ``|y|^2/2 - x.y`` is within reach of its k least.

    All others count among the least of their bands, which lie between ``edges`` in the block of columns.
    """
    width = products.shape[1]
    capacity = ids.shape[1]
    # One byte a column, written by a loop the compiler turns into vector instructions and read eight at a time: most
    # groups hold no candidate and are dismissed without a branch each.
    within = np.zeros(_STRIP, np.uint8)
    groups = within.view(np.uint64)
    beyond = np.empty(width, np.float32)
    for row in range(products.shape[0]):
        line = products[row]
        limit = bound[row]
        filled = count[row]
        for left in range(0, width, _STRIP):
            if filled < 0:
                break
            columns = min(_STRIP, width - left)
            for j in range(columns):
                within[j] = np.uint8(halves[left + j] - line[left + j] <= limit)
            within[columns:] = 0
            for group in range(groups.shape[0]):
                if groups[group] == 0 or filled < 0:
                    continue
                for j in range(8 * group, 8 * group + 8):
                    if within[j] == 0:
                        continue
                    score = halves[left + j] - line[left + j]
                    if score > limit:
                        continue
                    if filled == capacity:
                        filled, limit = _tighten(
                            ids[row], scores[row], filled, k, slack[row], band_of, least[row]
                        )
                        if filled == capacity:
                            # More ties within the error bound than the row can hold: it is done in full.
                            filled = -1
                            break
                        if score > limit:
                            continue
                    ids[row, filled] = first_column + left + j
                    scores[row, filled] = score
                    filled += 1
        bound[row] = limit
        count[row] = filled
        if filled >= 0:
            # What is beyond the bound now is no candidate; what an earlier block has left and this one drops, was counted.
            _least_beyond(line, halves, edges, limit, beyond, least[row])


@njit(cache=True, nogil=True)
def _finish(
    k: int,
    slack: NDArray[np.float32],
    count: NDArray[np.int64],
    ids: NDArray[np.int32],
    scores: NDArray[np.float32],
    band_of: NDArray[np.uint8],
    least: NDArray[np.float32],
) -> None:
    """Leave each row only the candidates that the final bound admits."""
    for row in range(count.shape[0]):
        if count[row] > k:
            count[row], _ = _tighten(
                ids[row], scores[row], count[row], k, slack[row], band_of, least[row]
            )


@njit(cache=True, nogil=True)
def _sort(distances: NDArray[np.float64], ids: NDArray[np.int32], count: int) -> None:
    """Sort the first ``count`` words by distance, ties by id, so that the order in which they were screened does not show.

    A heap sort of both arrays: numpy's sorts take longer to compile than all else here.
    """
    for step in range(count // 2 + count):
        # The first steps make a heap, with the largest on top; then each moves the top behind the rest.
        if step < count // 2:
            parent, end = count // 2 - 1 - step, count
        else:
            parent, end = 0, count - 1 - (step - count // 2)
            distances[0], distances[end] = distances[end], distances[0]
            ids[0], ids[end] = ids[end], ids[0]
        distance, word = distances[parent], ids[parent]
        while 2 * parent + 1 < end:
            child = 2 * parent + 1
            if child + 1 < end and (
                distances[child] < distances[child + 1]
                or (distances[child] == distances[child + 1] and ids[child] < ids[child + 1])
            ):
                child += 1
            if distances[child] < distance or (distances[child] == distance and ids[child] < word):
                break
            distances[parent], ids[parent] = distances[child], ids[child]
            parent = child
        distances[parent], ids[parent] = distance, word


@njit(cache=True, nogil=True)
def rank_candidates(
    kind: int,
    coordinates: NDArray[Any],
    first_row: int,
    k: int,
    order: NDArray[np.int32],
    count: NDArray[np.int64],
    candidates: NDArray[np.int32],
    out_ids: NDArray[np.int32],
    out_distances: NDArray[Any],
    starts: NDArray[np.int32],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """Rank each row's candidates by float64 distances, ties by id; one without candidates is ranked over the vocabulary.

    What is not listed then lowers the bounds of its band, from below and above, of all that were no candidates.
    """
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
            exact[filled] = row_distance(
                kind, coordinates, np.int64(word), coordinates, np.int64(other)
            )
            filled += 1
        _sort(exact, found, filled)
        out_ids[word, 0] = word
        out_distances[word, 0] = 0.0
        for rank in range(k - 1):
            out_ids[word, rank + 1] = found[rank]
            out_distances[word, rank + 1] = exact[rank]
        if starts.shape[0] == 0:
            continue
        if count[row] < 0:
            for band in range(low.shape[1]):
                low[row, band] = high[row, band] = np.inf
        for rank in range(k - 1, filled):
            band = 0
            while starts[band + 1] <= found[rank]:
                band += 1
            low[row, band] = min(low[row, band], exact[rank])
            high[row, band] = min(high[row, band], exact[rank])


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
        bound and ranked by the same float64 distances, so that lists and bounds are the same.

    Raises
    ------
    TextprivError
        For a device that is not there or does not suit.
    """
    coordinates, size = read_only(coordinates), len(coordinates)
    ids = np.empty((size, k), dtype=np.int32)
    distances = np.empty((size, k), dtype=coordinates.dtype)
    if metric.kind == INTERPRETED:
        _interpreted_lists(coordinates, metric, k, ids, distances, progress)
        return Neighbourhoods(ids, distances)
    starts = band_starts(size)
    step = step_length(metric.kind, coordinates, k, starts)
    out = _Lists(ids, distances, starts, np.empty((size, len(starts) - 1), dtype=np.uint8), step)
    if metric.kind == GRAPH:
        _over_blocks(
            size, lambda start, stop: _rank_listed(coordinates, start, stop, out), progress
        )
        return Neighbourhoods(ids, distances, RankBands(starts, out.nearest, step))
    if metric.kind in (EUCLIDEAN, ANGULAR) and size > 2 * k:
        if device == "cpu":
            _screened_lists(coordinates, metric, k, out, progress)
        else:
            _device_lists(coordinates, metric, k, out, progress, device)
    else:

        def rank(start: int, stop: int) -> None:
            everybody = np.full(stop - start, -1, dtype=np.int64)
            unused = np.empty((stop - start, 0), dtype=np.int32)
            order = np.empty(0, dtype=np.int32)
            bounds = np.empty((stop - start, len(starts) - 1))
            out.fill(metric, coordinates, start, order, everybody, unused, bounds, bounds.copy())

        _over_blocks(size, rank, progress)
    return Neighbourhoods(ids, distances, RankBands(starts, out.nearest, step))


class _Lists(NamedTuple):
    """The lists and bounds of all words, filled row by row."""

    ids: NDArray[np.int32]
    distances: NDArray[Any]
    starts: NDArray[np.int32]
    nearest: NDArray[np.uint8]
    step: float

    def fill(
        self,
        metric: Metric,
        coordinates: NDArray[Any],
        first_row: int,
        order: NDArray[np.int32],
        count: NDArray[np.int64],
        candidates: NDArray[np.int32],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
    ) -> None:
        """Rank the candidates of some rows, and find the bounds on what is not listed."""
        k = self.ids.shape[1]
        lists = self.ids, self.distances, self.starts
        rank_candidates(
            metric.kind, coordinates, first_row, k, order, count, candidates, *lists, low, high
        )
        decide(
            metric.kind,
            coordinates,
            first_row,
            self.ids,
            self.starts,
            low,
            high,
            self.step,
            self.nearest,
        )


def _bounds(
    kind: int,
    least: NDArray[np.float32],
    squares: NDArray[np.float64],
    slack: NDArray[np.float32],
    scale: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds on distances from below and above, by the least scores of some rows of scaled points, shapes (rows, B)."""
    # In float64, for a bound that overflowed would stand for a band without words to draw. A score errs by half of the slack
    # at most, so that twice a score errs by the slack.
    apart = 2 * least.astype(np.float64) + squares[:, None]
    bounds = []
    for sign in (-1.0, 1.0):
        found = np.sqrt(np.maximum(apart + sign * slack[:, None], 0.0)) * scale
        if kind == ANGULAR:
            reached = np.isfinite(found)
            found[reached] = 2 * np.arcsin(np.minimum(found[reached] / 2, 1.0))
        # What rounds this and the distance itself.
        bounds.append(found * (1 + sign * _BOUND))
    return bounds[0], bounds[1]


def _scores(
    coordinates: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32], float]:
    """Centred and scaled rows, their squared lengths, for each row the slack of its scores, and the scale."""
    dimension = coordinates.shape[1]
    # Distances do not change when all points are moved together, and shorter vectors round less.
    centred = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    # A power of two changes no digit and keeps float32 products clear of overflow and underflow.
    power = int(np.frexp(np.abs(centred).max())[1])
    np.ldexp(centred, -power, out=centred)
    squares = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
    longest = float(np.sqrt(squares.max()))
    # |fl(x.y) - x.y| <= (n + 3) u |x||y| in any order of summation, plus the rounding of both factors, of |y|^2/2 and
    # of the difference; u = 2^-24. Two scores may err in opposite directions, hence the factor 2 in the slack. Angles
    # order rows as scores do but for the rounding of the rows' unit length, which moves a score by 2u longest^2 at most.
    unit = 2.0**-24
    error = 1.01 * unit * ((dimension + 7) * np.sqrt(squares) * longest + 4 * longest**2)
    slack = np.nextafter((2 * error).astype(np.float32), np.float32(np.inf))
    return centred, squares, slack, float(np.ldexp(1.0, power))


def _capacity(size: int, k: int) -> int:
    """Candidates that a row can hold before it is done in full."""
    return min(size, 2 * k + 256)


def _screened_lists(
    coordinates: NDArray[Any], metric: Metric, k: int, out: _Lists, progress: Progress | None
) -> None:
    size, starts = len(coordinates), out.starts
    centred, squares, slack, scale = _scores(coordinates)
    # A public shuffle of the columns: a frequency-sorted vocabulary would otherwise fill the lists with words that
    # later ones displace, and every displacement costs a pass over the list.
    order = np.random.default_rng(0).permutation(size).astype(np.int32)
    lefts = range(0, size, _COLUMNS)
    for left in lefts:
        # In order within a block, where the words of a band then stand together.
        order[left : left + _COLUMNS].sort()
    edges = [np.searchsorted(order[left : left + _COLUMNS], starts) for left in lefts]
    band_of = bands_of_words(starts)[order]
    columns = centred[order].astype(np.float32)
    halves = (squares[order] / 2).astype(np.float32)
    capacity = _capacity(size, k)

    def search(start: int, stop: int) -> None:
        rows = stop - start
        queries = centred[start:stop].astype(np.float32)
        products = np.empty((rows, min(_COLUMNS, size)), dtype=np.float32)
        candidates = np.empty((rows, capacity), dtype=np.int32)
        scores = np.empty((rows, capacity), dtype=np.float32)
        bound = np.full(rows, np.inf, dtype=np.float32)
        count = np.zeros(rows, dtype=np.int64)
        least = np.full((rows, len(starts) - 1), np.inf, dtype=np.float32)
        for block_edges, left in zip(edges, lefts, strict=True):
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
                block_edges,
                band_of,
                least,
            )
        _finish(k, slack[start:stop], count, candidates, scores, band_of, least)
        bounds = _bounds(metric.kind, least, squares[start:stop], slack[start:stop], scale)
        out.fill(metric, coordinates, start, order, count, candidates, *bounds)

    _over_blocks(size, search, progress)


def _device_lists(
    coordinates: NDArray[Any],
    metric: Metric,
    k: int,
    out: _Lists,
    progress: Progress | None,
    device: str,
) -> None:
    import torch

    from textpriv.index.torch_distances import candidates, choose_device, full_precision

    chosen = choose_device(device)
    size, starts = len(coordinates), out.starts
    centred, squares, slack, scale = _scores(coordinates)
    capacity = _capacity(size, k)
    own_order = np.arange(size, dtype=np.int32)
    columns = torch.from_numpy(centred.astype(np.float32)).to(chosen)
    halves = torch.from_numpy((squares / 2).astype(np.float32)).to(chosen)
    band_of_words = bands_of_words(starts)
    band_of = torch.from_numpy(band_of_words.astype(np.int64)).to(chosen)

    def rank(
        start: int,
        found: NDArray[np.int32],
        scores: NDArray[np.float32],
        least: NDArray[np.float32],
    ) -> int:
        rows = slice(start, start + len(found))
        limit = scores[:, k - 1].astype(np.float64) + slack[rows]
        count = (scores <= limit[:, None]).sum(axis=1)
        # More ties within the error bound than the row can hold: it is done in full.
        count[(count == capacity) & (capacity < size)] = -1
        # Candidates that are not ranked count among the least of their bands.
        dropped = np.arange(capacity) >= count[:, None]
        bands = np.where(dropped, band_of_words[found], 0)
        np.minimum.at(
            least, (np.arange(len(found))[:, None], bands), np.where(dropped, scores, np.inf)
        )
        bounds = _bounds(metric.kind, least, squares[rows], slack[rows], scale)
        out.fill(metric, coordinates, start, own_order, count, found, *bounds)
        return len(found)

    done = 0
    waiting: deque[Future[int]] = deque()
    with full_precision(chosen), ThreadPoolExecutor(processors()) as pool:
        for start in range(0, size, _DEVICE_ROWS):
            queries = centred[start : start + _DEVICE_ROWS].astype(np.float32)
            found = candidates(chosen, queries, columns, halves, capacity, band_of)
            waiting.append(pool.submit(rank, start, *found))
            # The device goes on while the processors rank, a few blocks ahead at most.
            while len(waiting) > (2 * processors() if start + _DEVICE_ROWS < size else 0):
                done += waiting.popleft().result()
                if progress:
                    progress(done, size)


def _rank_listed(coordinates: NDArray[Any], start: int, stop: int, out: _Lists) -> None:
    """Lists and bounds of some rows in a graph, whose coordinates are their distances to all words."""
    k = out.ids.shape[1]
    for word in range(start, stop):
        apart = coordinates[word, 1:].astype(np.float64)
        apart[word] = -1.0  # first, also before its exact duplicates
        near = np.flatnonzero(apart <= np.partition(apart, k - 1)[k - 1])
        listed = near[np.argsort(apart[near], kind="stable")[:k]]
        out.ids[word], out.distances[word] = listed, np.maximum(apart[listed], 0.0)
        apart[listed] = np.inf
        out.nearest[word] = whole_steps(np.minimum.reduceat(apart, out.starts[:-1]), out.step)


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
