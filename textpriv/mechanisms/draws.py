"""What the samplers over nearest lists share: the loop over documents, and the two looks at a word outside a list.

A compiled sampler draws the tokens of several documents until their random words run out; the loop here supplies them and
goes on where it stopped. No law stands here, and nothing here decides what a draw is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index import Index
from textpriv.metrics import row_distance
from textpriv.randomness import RandomWords

__all__ = [
    "ROOM",
    "Sampler",
    "apart",
    "draw_documents",
    "drawn_distances",
    "listed",
    "surely_below",
]

ROOM = 16  # random words that one step of a sampler may use at most

# Called with the unfinished documents, the next token of every document (to move on), random words, where each unfinished
# document's begin, how far each came (to write), and the outputs (to write). A token whose words run out is left to start
# over with the same. Returns tokens to be drawn from full rows, each with the place of its four random words.
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
    generous: int,
) -> tuple[NDArray[np.int32], list[tuple[int, bytes]]]:
    """Draw one output for every token of several documents.

    Parameters
    ----------
    sampler : callable
        See ``Sampler``.
    offsets : ndarray of int64, shape (D + 1,)
    streams : sequence of D random streams
    generous : int
        Random words a token to begin with; twice as many in every further round. No draw depends on it.

    Returns
    -------
    outputs : ndarray of int32, shape (T,)
    deferred : list of (int, bytes)
        Tokens whose output is still to be drawn from a full row, each with the key of a stream of its own.
    """
    out = np.empty(int(offsets[-1]), dtype=np.int32)
    done = offsets[:-1].copy()
    pending = np.arange(len(offsets) - 1)
    carried: dict[int, NDArray[np.uint64]] = {}
    deferred: list[tuple[int, bytes]] = []
    while len(pending):
        random, starts = _fill(pending, done, offsets, streams, carried, generous)
        position = starts[:-1].copy()
        for token, place in sampler(pending, done, random, starts, position, out):
            deferred.append((int(token), random[place : place + 4].tobytes()))
        left = done[pending] < offsets[pending + 1]
        carried = {
            int(document): random[position[slot] : starts[slot + 1]]
            for slot, document in enumerate(pending)
            if left[slot]
        }
        pending = pending[left]
        generous *= 2
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


def _fill(
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    offsets: NDArray[np.int64],
    streams: Sequence[RandomWords],
    carried: dict[int, NDArray[np.uint64]],
    generous: int,
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Random words for every unfinished document: what it had left, then the next of its stream."""
    if len(pending) == 1:
        # One document at a time is how a tokenizer is called, and array arithmetic on one number is slow.
        document = int(pending[0])
        rest = carried.get(document)
        held = 0 if rest is None else len(rest)
        more = generous * int(offsets[document + 1] - done[document]) + 2 * ROOM
        random = np.empty(held + more, dtype=np.uint64)
        if rest is not None:
            random[:held] = rest
        streams[document].fill(random[held:])
        return random, np.array([0, held + more], dtype=np.int64)
    fresh = generous * (offsets[pending + 1] - done[pending]) + 2 * ROOM
    kept = [carried.get(int(document)) for document in pending] if carried else None
    lengths = fresh + np.array([len(k) if k is not None else 0 for k in kept]) if kept else fresh
    starts = np.zeros(len(pending) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    random = np.empty(starts[-1], dtype=np.uint64)
    for slot, document in enumerate(pending.tolist()):
        begin = int(starts[slot])
        rest = kept[slot] if kept else None
        if rest is not None:
            random[begin : begin + len(rest)] = rest
            begin += len(rest)
        streams[document].fill(random[begin : int(starts[slot + 1])])
    return random, starts


# The compiled functions take whole tables and numbers of rows: a row cut out of a table in a sampler's loop is counted as
# a reference, once more and once less, and that would take as long as the draw.


@njit(cache=True, nogil=True)
def listed(lists: NDArray[np.int32], row: int, word: int) -> bool:
    """Whether a word stands in a list."""
    found = 0
    for place in range(lists.shape[1]):
        found += lists[row, place] == word
    return found > 0


@njit(cache=True, nogil=True)
def apart(kind: int, coordinates: NDArray[Any], word: int, other: int) -> float:
    """Distance between two words."""
    return row_distance(kind, coordinates[word], coordinates[other])


@njit(cache=True, nogil=True)
def surely_below(
    sketch: NDArray[np.int8],
    word: int,
    other: int,
    least: float,
    t: float,
    gamma: float,
    edge: float,
    reach: float,
    grain: NDArray[np.float64],
) -> bool:
    """Whether a lower bound on a distance d already settles that ``exp(-t (min(d, gamma) - edge))`` is below ``least``.

    It is below beyond the distance ``edge - ln(least) / t``. Most words outside a list are that far, and reading a whole row
    to find out is what they would cost. A bound that does not settle it, or a word that might be in the list, goes the
    exact way with the same random words, so the draws are the same with and without this.
    """
    limit = max(edge - np.log(least) / t, reach)
    if limit >= gamma:
        return False
    return _squares(sketch, word, other) > ((limit + grain[1]) / grain[0]) ** 2


# Whole numbers of 32 bits throughout, in a function of its own: the compiler then takes many bytes at a time.
@njit(cache=True, nogil=True)
def _squares(sketch: NDArray[np.int8], word: int, other: int) -> int:
    """Sum of squared differences of two rows of at most 33,000 bytes."""
    total = np.int32(0)
    for j in range(np.int32(sketch.shape[1])):
        difference = np.int32(np.int32(sketch[word, j]) - np.int32(sketch[other, j]))
        total = np.int32(total + np.int32(difference * difference))
    return total
