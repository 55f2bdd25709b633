"""One pass over the distances of all pairs of words, and several computations that share their passes.

Distances are made block by block, on all processors, and handed to whoever visits them; what is done with them stands
elsewhere. Making them takes most of the time of a pass, so computations that run together (:func:`together`) have theirs
made once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from textpriv.metrics import ANGULAR, EUCLIDEAN, INTERPRETED, Metric, pairwise_distances
from textpriv.neighbourhoods import processors

__all__ = ["BLOCK", "Progress", "sweep", "together"]

Progress = Callable[[int, int], None]
# Called with the rows, the columns and the distances of a block. Columns start at the first row, so that every unordered
# pair is met once, except among the rows themselves, where it is met twice.
Visit = Callable[[slice, slice, NDArray[Any]], None]
Found = TypeVar("Found")

_ROWS, _COLUMNS = 256, 2048
BLOCK = _ROWS * _COLUMNS  # distances in a block, at most
# Squared distances below this part of the squared lengths are computed again by differences.
_CLOSE = {np.float64: 1e-6, np.float32: 1e-3}


@dataclass(eq=False)
class _Request:
    coordinates: NDArray[Any]
    metric: Metric
    visit: Visit
    progress: Progress | None
    precision: type
    done: bool = False
    error: BaseException | None = None


def sweep(
    coordinates: NDArray[Any],
    metric: Metric,
    visit: Visit,
    progress: Progress | None = None,
    *,
    precision: type = np.float64,
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
        Of the distances. Single precision takes half the time and is for searches whose result is certified later.
    """
    request = _Request(coordinates, metric, visit, progress, precision)
    company = _company.get()
    if company is None:
        _run([request])
    else:
        company.join(request)


def together(tasks: Sequence[Callable[[], Found]], *, memory: float = 0) -> list[Found]:
    """Run tasks side by side, such that one pass serves all that wait for one.

    Parameters
    ----------
    tasks : sequence of callables
        Each is called once, in a thread of its own. While they run, none of them may wait for another.
    memory : float
        Bytes that distances in single precision may take: if those of all pairs fit, they are made once. 40,731 words
        take 3.5e9.

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
    company = _Company(len(tasks), memory)

    def run(task: Callable[[], Found]) -> Found:
        _company.set(company)
        try:
            return task()
        finally:
            company.leave()

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        company.conduct()
    return [future.result() for future in futures]


class _Company:
    """Tasks that share passes: a pass is made when all of them wait for one or have ended."""

    def __init__(self, size: int, memory: float) -> None:
        self.working = size
        self.memory = memory
        self.kept: dict[tuple[int, int], dict[tuple[int, int], NDArray[Any]]] = {}
        self.waiting: list[_Request] = []
        self.changed = threading.Condition()

    def join(self, request: _Request) -> None:
        with self.changed:
            self.waiting.append(request)
            self.working -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: request.done)
        if request.error is not None:
            raise request.error

    def leave(self) -> None:
        with self.changed:
            self.working -= 1
            self.changed.notify_all()

    def conduct(self) -> None:
        """Make passes until every task has ended."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.working == 0)
                if not self.waiting:
                    return
                batch = self._largest()
                self.waiting = [request for request in self.waiting if request not in batch]
            try:
                _run(batch, self._keep(batch[0]))
            except BaseException as error:  # whoever waits must hear of it, or would wait forever
                for request in batch:
                    request.error = error
            with self.changed:
                for request in batch:
                    request.done = True
                self.working += len(batch)
                self.changed.notify_all()

    def _keep(self, request: _Request) -> dict[tuple[int, int], NDArray[Any]] | None:
        """Where the blocks of such a pass are kept; None if they are not."""
        rows = request.coordinates
        # Half of all pairs and half of the blocks on the diagonal.
        wanted = 4.0 * len(rows) * (len(rows) + _ROWS) / 2
        kind = (id(rows), id(request.metric))
        if request.precision is not np.float32 or (kind not in self.kept and wanted > self.memory):
            return None
        if kind not in self.kept:
            self.memory -= wanted
            self.kept[kind] = {}
        return self.kept[kind]

    def _largest(self) -> list[_Request]:
        """The most requests that one pass can serve; the others wait for more of their kind."""
        kinds: dict[tuple[int, int, type], list[_Request]] = {}
        for request in self.waiting:
            kind = (id(request.coordinates), id(request.metric), request.precision)
            kinds.setdefault(kind, []).append(request)
        return max(kinds.values(), key=len)


_company: ContextVar[_Company | None] = ContextVar("_company", default=None)


def _run(
    requests: Sequence[_Request], kept: dict[tuple[int, int], NDArray[Any]] | None = None
) -> None:
    """Make one pass for requests of the same rows, metric and precision, perhaps from blocks that were kept."""
    first = requests[0]
    coordinates, metric, precision = first.coordinates, first.metric, first.precision
    size = len(coordinates)
    product = metric.kind in (EUCLIDEAN, ANGULAR)
    angular = metric.kind == ANGULAR
    centred, squares = np.empty((0, 0)), np.empty(0)
    if product:
        # An angle needs the vectors from the origin; a length is the more precise for being taken about the centre.
        centre = 0.0 if angular else coordinates.mean(axis=0, dtype=np.float64)
        centred = coordinates.astype(np.float64) - centre
        squares = np.einsum("ij,ij->i", centred, centred)
    factors: NDArray[Any] = centred.astype(precision, copy=False)
    lengths: NDArray[Any] = squares.astype(precision, copy=False)
    blocks = [(start, min(start + _ROWS, size)) for start in range(0, size, _ROWS)]
    local = threading.local()

    def run(block: tuple[int, int]) -> int:
        start, stop = block
        if not hasattr(local, "buffer"):
            local.buffer = np.empty(BLOCK, dtype=precision)
            kind = precision if product else np.float64
            local.copy = np.empty(BLOCK if len(requests) > 1 else 0, dtype=kind)
            local.opposite = np.empty(BLOCK if angular else 0, dtype=precision)
        for left in range(start, size, _COLUMNS):
            right = min(left + _COLUMNS, size)
            shape = (stop - start, right - left)
            known = None if kept is None else kept.get((start, left))
            if known is not None:
                distances = local.buffer[: known.size].reshape(shape)
                np.copyto(distances, known)
            elif product:
                distances = local.buffer[: shape[0] * shape[1]].reshape(shape)
                np.dot(factors[start:stop], factors[left:right].T, out=distances)
                distances *= -2.0
                if angular:
                    # The same form as the compiled distance, which keeps its digits at every angle.
                    opposite = local.opposite[: distances.size].reshape(shape)
                    np.negative(distances, out=opposite)
                    _complete(opposite, centred, lengths, start, left, 1.0)
                _complete(distances, centred, lengths, start, left, -1.0)
                if angular:
                    np.arctan2(distances, opposite, out=distances)
                    distances *= 2.0
            elif metric.kind == INTERPRETED:
                distances = metric.pairwise(coordinates[start:stop], coordinates[left:right])
            else:
                distances = pairwise_distances(
                    metric.kind, coordinates[start:stop], coordinates[left:right]
                )
            if kept is not None and known is None:
                kept[start, left] = distances.astype(precision)
            for request in requests[1:]:
                # A visitor may overwrite what it is given: all but the last get a copy.
                copied = local.copy[: distances.size].reshape(distances.shape)
                np.copyto(copied, distances)
                request.visit(slice(start, stop), slice(left, right), copied)
            first.visit(slice(start, stop), slice(left, right), distances)
        return (stop - start) * (size - start)

    everything = sum((b - a) * (size - a) for a, b in blocks)
    done = 0
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(processors()) as pool:
        for finished in pool.map(run, blocks):
            done += finished
            for request in requests:
                if request.progress:
                    request.progress(done, everything)


def _complete(
    products: NDArray[Any],
    centred: NDArray[np.float64],
    squares: NDArray[Any],
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
    row, column = np.nonzero(
        products < _CLOSE[products.dtype.type] * 2 * float(rows.max() + columns.max())
    )
    for start in range(0, len(row), 4096):
        i, j = row[start : start + 4096], column[start : start + 4096]
        sums = centred[first_row + i] + sign * centred[first_column + j]
        products[i, j] = np.einsum("ij,ij->i", sums, sums)
    np.sqrt(products, out=products)
