"""The pair sweep: the distances of all pairs of words, block by block, and computations that share their sweeps.

Distances are made on all processors and handed to visitors; what these do with them is not decided here. Making them takes
most of the time of a sweep, so computations that run together (:func:`together`) have theirs made once.

Distances on which a search depends are the same on every processor (``portable``): in single precision from products of
whole numbers, which no order of summation and no fused operation can round; in double precision from direct differences.
Those that only confirm a verdict come from products in double precision, which each processor rounds in its own way.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import arctangent
from textpriv.index.neighbours import product_threads
from textpriv.metrics import (
    ANGULAR,
    EUCLIDEAN,
    INTERPRETED,
    Metric,
    pairwise_distances,
    row_distance,
)

__all__ = ["BLOCK", "Progress", "sharing", "sweep", "together"]

Progress = Callable[[int, int], None]
# Called with the rows, the columns and the distances of a block. Columns start at the first row, so that every unordered
# pair is met once, except among the rows themselves, where it is met twice.
Visit = Callable[[slice, slice, NDArray[Any]], None]
Result = TypeVar("Result")
_Kind = tuple[int, int, type, bool]

_ROWS, _COLUMNS = 256, 2048
BLOCK = _ROWS * _COLUMNS  # distances in a block, at most
_CLOSE = 1e-6  # squared distances below this part of the squared lengths are computed again by differences
# So are squared distances below this many squares of the grid: there rounding to it may move a distance by 5e-6 of itself.
_NEAR = 2.0**36
_MEMORY = 4e8  # bytes of distances that a task alone may cache: those of 9,900 words in float64


@dataclass(eq=False)
class _Request:
    """A sweep that is asked for, and its end."""

    coordinates: NDArray[Any]
    metric: Metric
    visit: Visit
    progress: Progress | None
    precision: type
    portable: bool
    done: bool = False
    error: BaseException | None = None

    @property
    def kind(self) -> _Kind:
        """What requests must have in common to be served by one sweep."""
        return id(self.coordinates), id(self.metric), self.precision, self.portable


def sweep(
    coordinates: NDArray[Any],
    metric: Metric,
    visit: Visit,
    progress: Progress | None = None,
    *,
    precision: type = np.float64,
    portable: bool = False,
) -> None:
    """Visit the distances of all pairs of rows, block by block, in parallel.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
    metric : Metric
    visit : callable
        Called from several threads. It may overwrite the block it is given.
    progress : callable, optional
        Called with (pairs done, pairs in all), scaled to rows.
    precision : {numpy.float64, numpy.float32}
        Of the distances. Single precision is for searches whose result is certified later: coordinates are rounded to a
        grid first. It is always portable.
    portable : bool
        Have distances that are the same on every processor. In double precision that takes several times as long, unless
        they are cached (:func:`together`).
    """
    request = _Request(
        coordinates, metric, visit, progress, precision, portable or precision is np.float32
    )
    shared = _shared.get()
    if shared is None:
        _run([request])
    else:
        shared.wait_for(request)


def sharing(task: Callable[[], Result]) -> Result:
    """Run a task of many sweeps: beside other tasks it shares theirs, alone it caches the distances of small tables."""
    if _shared.get() is not None:
        return task()
    (result,) = together([task], memory=_MEMORY)
    return result


def together(tasks: Sequence[Callable[[], Result]], *, memory: float = 0) -> list[Result]:
    """Run tasks side by side, such that one sweep serves all that wait for one.

    Parameters
    ----------
    tasks : sequence of callables
        Each is called once, in a thread of its own. While they run, none of them may wait for another.
    memory : float
        Bytes that portable distances may take: if those of all pairs fit, they are made once. In single precision 40,731
        words take 3.5e9.

    Returns
    -------
    list
        What each returned: what it would find alone.

    Raises
    ------
    Exception
        The first error of a task, when all have ended.
    """
    if not tasks:
        return []
    shared = _SharedSweeps(len(tasks), memory)

    def run(task: Callable[[], Result]) -> Result:
        _shared.set(shared)
        try:
            return task()
        finally:
            shared.finish()

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        shared.serve()
    return [future.result() for future in futures]


class _SharedSweeps:
    """The sweeps that some tasks share: one is made when all of them wait for one or have ended."""

    def __init__(self, size: int, memory: float) -> None:
        self.working = size
        self.memory = memory
        self.cached: dict[_Kind, dict[tuple[int, int], NDArray[Any]]] = {}
        self.waiting: list[_Request] = []
        self.changed = threading.Condition()

    def wait_for(self, request: _Request) -> None:
        with self.changed:
            self.waiting.append(request)
            self.working -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: request.done)
        if request.error is not None:
            raise request.error

    def finish(self) -> None:
        with self.changed:
            self.working -= 1
            self.changed.notify_all()

    def serve(self) -> None:
        """Make sweeps until every task has ended."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.working == 0)
                if not self.waiting:
                    return
                batch = self._largest()
                self.waiting = [request for request in self.waiting if request not in batch]
            try:
                _run(batch, self._cache_of(batch[0]))
            except BaseException as error:  # else those who wait would wait for ever
                for request in batch:
                    request.error = error
            with self.changed:
                for request in batch:
                    request.done = True
                self.working += len(batch)
                self.changed.notify_all()

    def _cache_of(self, request: _Request) -> dict[tuple[int, int], NDArray[Any]] | None:
        """The cache of the blocks of such a sweep; None if there is no memory for it."""
        rows = request.coordinates
        # Half of all pairs and half of the blocks on the diagonal.
        size = np.dtype(request.precision).itemsize
        wanted = float(size) * len(rows) * (len(rows) + _ROWS) / 2
        kind = request.kind
        if not request.portable or (kind not in self.cached and wanted > self.memory):
            return None
        if kind not in self.cached:
            self.memory -= wanted
            self.cached[kind] = {}
        return self.cached[kind]

    def _largest(self) -> list[_Request]:
        """The most requests that one sweep can serve; the others wait for more of their kind."""
        kinds: dict[_Kind, list[_Request]] = {}
        for request in self.waiting:
            kinds.setdefault(request.kind, []).append(request)
        return max(kinds.values(), key=len)


_shared: ContextVar[_SharedSweeps | None] = ContextVar("_shared", default=None)


def _run(
    requests: Sequence[_Request], cached: dict[tuple[int, int], NDArray[Any]] | None = None
) -> None:
    """Make one sweep for requests of the same rows, metric and precision, perhaps from cached blocks."""
    first = requests[0]
    coordinates, metric, precision = first.coordinates, first.metric, first.precision
    size = len(coordinates)
    fill: Callable[[int, int, NDArray[Any]], None] | None = None
    if metric.kind in (EUCLIDEAN, ANGULAR) and not (first.portable and precision is np.float64):
        products = _whole_products if first.portable else _products
        fill = products(coordinates, metric.kind)
    blocks = [(start, min(start + _ROWS, size)) for start in range(0, size, _ROWS)]
    local = threading.local()

    def run(block: tuple[int, int]) -> int:
        start, stop = block
        if not hasattr(local, "buffer"):
            local.buffer = np.empty(BLOCK, dtype=precision)
            local.copy = np.empty(BLOCK if len(requests) > 1 else 0, dtype=precision)
        for left in range(start, size, _COLUMNS):
            right = min(left + _COLUMNS, size)
            shape = (stop - start, right - left)
            distances = local.buffer[: shape[0] * shape[1]].reshape(shape)
            known = None if cached is None else cached.get((start, left))
            if known is not None:
                np.copyto(distances, known)
            elif fill is not None:
                fill(start, left, distances)
            elif metric.kind == INTERPRETED:
                distances[:] = metric.pairwise(coordinates[start:stop], coordinates[left:right])
            else:
                distances[:] = pairwise_distances(
                    metric.kind, coordinates[start:stop], coordinates[left:right]
                )
            if cached is not None and known is None:
                cached[start, left] = distances.copy()
            for request in requests[1:]:
                # A visitor may overwrite what it is given: all but the last get a copy.
                copied = local.copy[: distances.size].reshape(distances.shape)
                np.copyto(copied, distances)
                request.visit(slice(start, stop), slice(left, right), copied)
            first.visit(slice(start, stop), slice(left, right), distances)
        return (stop - start) * (size - start)

    everything = sum((b - a) * (size - a) for a, b in blocks)
    done = 0
    with product_threads() as pool:
        for finished in pool.map(run, blocks):
            done += finished
            for request in requests:
                if request.progress:
                    request.progress(done, everything)


def _products(coordinates: NDArray[Any], kind: int) -> Callable[[int, int, NDArray[Any]], None]:
    """The function that fills a block with distances by products in double precision."""
    angular = kind == ANGULAR
    # An angle needs the vectors from the origin; a length is the more precise for being taken about the centre.
    centre = 0.0 if angular else coordinates.mean(axis=0, dtype=np.float64)
    centred = coordinates.astype(np.float64) - centre
    squares = np.einsum("ij,ij->i", centred, centred)

    def fill(start: int, left: int, distances: NDArray[Any]) -> None:
        height, width = distances.shape
        rows, columns = slice(start, start + height), slice(left, left + width)
        np.dot(centred[rows], centred[columns].T, out=distances)
        distances *= -2.0
        if angular:
            # The same form as the compiled distance, which keeps its digits at every angle.
            opposite = np.negative(distances)
            _complete(opposite, centred, squares, start, left, 1.0)
        _complete(distances, centred, squares, start, left, -1.0)
        if angular:
            np.arctan2(distances, opposite, out=distances)
            distances *= 2.0

    return fill


def _whole_products(
    coordinates: NDArray[Any], kind: int
) -> Callable[[int, int, NDArray[Any]], None]:
    """The function that fills a block with distances of coordinates on a grid, the same on every processor.

    In units of the grid coordinates are whole numbers, so few bits long that no sum of their products exceeds 2^53: every
    product of blocks is exact, in whichever order and with whatever operations it is taken.
    """
    given = coordinates.astype(np.float64)
    if kind == ANGULAR:
        centred = given
    else:
        centred = given - (0.5 * given.max(axis=0) + 0.5 * given.min(axis=0))
    bits = (53 - (given.shape[1] - 1).bit_length()) // 2
    largest = float(np.abs(centred).max(initial=0.0))
    unit = math.ldexp(1.0, max(math.frexp(largest)[1] - bits, -900))
    whole = np.rint(centred / unit)
    squares = np.square(whole).sum(axis=1)
    local = threading.local()

    def fill(start: int, left: int, distances: NDArray[Any]) -> None:
        if not hasattr(local, "products"):
            local.products = np.empty(BLOCK)
        height, width = distances.shape
        products = local.products[: distances.size].reshape(distances.shape)
        np.dot(whole[start : start + height], whole[left : left + width].T, out=products)
        _from_products(kind, coordinates, squares, unit, start, left, products, distances)

    return fill


@njit(cache=True, nogil=True)
def _from_products(
    kind: int,
    coordinates: NDArray[Any],
    squares: NDArray[np.float64],
    unit: float,
    first_row: int,
    first_column: int,
    products: NDArray[np.float64],
    distances: NDArray[Any],
) -> None:
    """Distances by exact products; of what is too near for the grid, or opposite, by differences."""
    for i in range(distances.shape[0]):
        row_square = squares[first_row + i]
        for j in range(distances.shape[1]):
            both = row_square + squares[first_column + j]
            apart = both - 2.0 * products[i, j]
            near = apart < _NEAR
            distance = np.sqrt(max(apart, 0.0)) * unit
            if kind == ANGULAR:
                together = both + 2.0 * products[i, j]
                near |= together < _NEAR
                distance = 2.0 * arctangent(np.sqrt(max(apart, 0.0)), np.sqrt(max(together, 0.0)))
            if near:
                distance = row_distance(
                    kind, coordinates, first_row + i, coordinates, first_column + j
                )
            distances[i, j] = distance


def _complete(
    products: NDArray[Any],
    centred: NDArray[np.float64],
    squares: NDArray[np.float64],
    first_row: int,
    first_column: int,
    sign: float,
) -> None:
    """Turn ``sign`` times twice the inner products of a block into the lengths ``|x + sign y|``, in place.

    What the expansion of the square has cancelled is computed again from the vectors, in double precision.
    """
    rows = squares[first_row : first_row + products.shape[0]]
    columns = squares[first_column : first_column + products.shape[1]]
    products += rows[:, None]
    products += columns[None]
    row, column = np.nonzero(products < _CLOSE * 2 * float(rows.max() + columns.max()))
    for start in range(0, len(row), 4096):
        i, j = row[start : start + 4096], column[start : start + 4096]
        sums = centred[first_row + i] + sign * centred[first_column + j]
        products[i, j] = np.einsum("ij,ij->i", sums, sums)
    np.sqrt(products, out=products)
