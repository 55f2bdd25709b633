"""What the samplers over nearest lists share: the loop over documents, and prefetching.

A compiled sampler draws the tokens of several documents until their random words run out; the loop here supplies them and
goes on where it stopped. No law stands here, and nothing here decides what a draw is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.randomness import RandomWords

__all__ = ["ROOM", "Sampler", "draw_documents", "drawn_distances", "fetch", "listed"]

ROOM = 16  # random words that one step of a sampler may use at most
# Random words that are made for one document at a time; twice as many stay in a processor's own cache.
_AT_ONCE = 1 << 15
_LINE = 64  # bytes that a processor brings at a time

# Called with the unfinished documents, the first unfinished token of every document (to advance), random words, their
# offsets by unfinished document, the offsets reached (to write), and the outputs (to write; -1 where nothing has been
# drawn). A token for which words do not suffice starts over with the same ones. Returns tokens to be drawn from full rows,
# each with the offset of its four random words.
Sampler = Callable[
    [
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.uint64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int32],
    ],
    list[tuple[int, int]],
]


def draw_documents(
    sampler: Sampler,
    offsets: NDArray[np.int64],
    streams: Sequence[RandomWords],
    words_per_token: int,
) -> tuple[NDArray[np.int32], list[tuple[int, bytes]]]:
    """Draw one output for every token of several documents.

    Parameters
    ----------
    sampler : callable
        See ``Sampler``.
    offsets : ndarray of int64, shape (D + 1,)
    streams : sequence of D random streams
    words_per_token : int
        Random words a token in the first round; twice as many in every further one. No draw depends on it.

    Returns
    -------
    outputs : ndarray of int32, shape (T,)
    deferred : list of (int, bytes)
        Tokens whose output is still to be drawn from a full row, each with the key of a stream of its own.
    """
    out = np.empty(int(offsets[-1]), dtype=np.int32)
    out.fill(-1)
    done = offsets[:-1].copy()
    deferred: list[tuple[int, bytes]] = []
    buffer = np.empty(0, dtype=np.uint64)
    ends = offsets[1:].tolist()
    for pending in _groups(offsets, words_per_token):
        carried: dict[int, NDArray[np.uint64]] = {}
        each = words_per_token
        while pending:
            # In plain numbers: one document at a time is how a tokenizer is called, and arrays of one number are slow.
            bounds, most = [0], 0
            for document in pending:
                fresh = each * (ends[document] - int(done[document])) + 2 * ROOM
                most = max(most, fresh)
                bounds.append(bounds[-1] + len(carried.get(document, ())) + min(fresh, _AT_ONCE))
            if bounds[-1] > len(buffer):
                buffer = np.empty(bounds[-1], dtype=np.uint64)
            for document, start, end in zip(pending, bounds, bounds[1:], strict=False):
                left = carried.get(document, buffer[:0])
                # The words left over, then the next of its stream.
                buffer[start : start + len(left)] = left
                streams[document].fill(buffer[start + len(left) : end])
            starts = np.array(bounds)
            position = starts[:-1].copy()
            for token, offset in sampler(np.array(pending), done, buffer, starts, position, out):
                deferred.append((int(token), buffer[offset : offset + 4].tobytes()))
            carried = {
                document: buffer[int(position[slot]) : bounds[slot + 1]].copy()
                for slot, document in enumerate(pending)
                if done[document] < ends[document]
            }
            pending = list(carried)
            if most <= _AT_ONCE:
                each *= 2
    return out, deferred


def drawn_distances(index: Index, word: int) -> NDArray[np.float64]:
    """Distances by which draws over an index's lists are made, shape (V,): true ones, with exact lists."""
    found: NDArray[np.float64] = index.distances_of(np.array([word]))[0]
    if not index.exact:
        # A word that an approximate list has missed is drawn as if it stood at the list's edge; the law that is
        # stated must be the law that is drawn.
        row = int(index.representatives[word])
        unlisted = np.ones(len(found), dtype=np.bool_)
        unlisted[index.neighbours.ids[row]] = False
        edge = float(index.neighbours.distances[row, -1])
        np.maximum(found, edge, out=found, where=unlisted)
    return found


def _groups(offsets: NDArray[np.int64], words_per_token: int) -> list[list[int]]:
    """Documents in order, in groups whose random words stay in the cache."""
    documents = np.arange(len(offsets) - 1)
    if len(documents) < 2:
        return [documents.tolist()]
    before = (words_per_token * offsets[:-1] + 2 * ROOM * documents) // _AT_ONCE
    parts = np.split(documents, np.flatnonzero(np.diff(before)) + 1)
    return [part.tolist() for part in parts]


# The compiled functions take whole tables and numbers of rows: the reference count of a row that is sliced from a table in a
# sampler's loop would take as long as the draw.


@intrinsic
def fetch(context: Any, table: Any, row: Any, line: Any) -> tuple[Any, Callable[..., Any]]:
    """``fetch(table, row, line)``: have the processor bring a line of 64 bytes of a row into its cache, and go on meanwhile.

    Only a hint: a row that there is not does no harm.
    """
    # Needed only to compile, not to load from numba's cache.
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.np.arrayobj import make_array

    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows = make_array(signature.args[0])(context, builder, values[0])
        step = cgutils.unpack_tuple(builder, rows.strides)[0]
        pointer, number = cgutils.voidptr_t, ir.IntType(32)
        address = builder.bitcast(rows.data, pointer)
        start = builder.mul(values[2], ir.Constant(values[2].type, _LINE))
        offset = builder.add(builder.mul(values[1], step), start)
        address = cgutils.pointer_add(builder, address, offset, pointer)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # A read, with the highest locality, of data.
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp), compiled


@njit(cache=True, nogil=True)
def listed(lists: NDArray[np.int32], row: int, word: int) -> bool:
    """Whether a word stands in a list."""
    count = 0
    for rank in range(lists.shape[1]):
        count += lists[row, rank] == word
    return count > 0
