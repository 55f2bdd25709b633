"""The compiled sampler of TEM over a tree, and the tables that it reads.

A draw picks an ancestor of the word by its weight, in whole parts, and then a word below it by the measure (mechanisms.md
10.7). It is exact: parts too coarse for a weight are accepted against the real one. What the law is stands in ``tree_law``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp
from textpriv.index.tree import Tree
from textpriv.mechanisms.base_measure import bernoulli, upper_half
from textpriv.mechanisms.sampling import fetch
from textpriv.mechanisms.tree_law import TreeLaw, measure_before

__all__ = ["SPARE", "Tables", "filled", "sample"]

SPARE = 3  # random words a token read ahead
_ALONE = np.uint64(1 << 63)
_COARSE = np.uint64(1 << 32)  # parts below it are accepted against their real weight
# Tokens from where a word's row is asked for to where it is drawn, and from where its atom's is.
_AHEAD, _NEXT = 16, 8


class Tables(NamedTuple):
    """What the compiled sampler reads: what a draw asks for together stands in one row.

    Attributes
    ----------
    words : ndarray of uint64, shape (V, 2)
        By id: the row of its atom, plus 2^63 where it is the only word of it; and whole parts of that atom's own weight.
    nodes : ndarray of uint64, shape (N, 4)
        Whole parts of what lies outside a node, over all its ancestors (0 for the root); its parent; and the parts of the
        measure before it and before what follows it. A node is followed by all that is below it, so that most steps towards
        the root stay in the cache.
    level : ndarray of uint8, shape (N,)
    before, order, guide, shift
        As in :class:`Tree` and :class:`BaseMeasure`; ``before`` is the cumulative measure with a 0 before it.
    reach : ndarray of float64, shape (L + 1,)
    scale : float
        Whole parts of a weight of 1.
    """

    words: NDArray[np.uint64]
    nodes: NDArray[np.uint64]
    level: NDArray[np.uint8]
    before: NDArray[np.uint64]
    order: NDArray[np.int32]
    guide: NDArray[np.int32]
    shift: np.uint64
    reach: NDArray[np.float64]
    scale: float

    @classmethod
    def of(cls, tree: Tree, law: TreeLaw) -> Tables:
        """The tables of a law over a tree."""
        nodes, before = tree.nodes, measure_before(law.measure)
        # So that no total has more than 62 bits.
        scale = 2.0**62 * exp(-float(law.log_z.max())) * (1 - 2.0**-20)
        # Depth first: of nodes that begin together the widest comes first.
        rank = np.lexsort((-nodes.level.astype(np.int16), nodes.start))
        words, rows, level = filled(*nodes, tree.places, rank, before, law.reach, scale)
        guide, shift = law.measure.guide, law.measure.shift
        return cls(words, rows, level, before, tree.order, guide, shift, law.reach, scale)


@njit(cache=True, nogil=True)
def _edge(
    nodes: NDArray[np.uint64],
    reach: NDArray[np.float64],
    level: NDArray[np.uint8],
    node: int,
    up: int,
) -> float:
    """The weight of what a node's parent has below it and the node has not."""
    parts = nodes[up, 3] - nodes[up, 2] - (nodes[node, 3] - nodes[node, 2])
    return parts * 2.0**-62 * exp(-reach[level[up]])


@njit(cache=True, nogil=True)
def _whole(real: float) -> np.uint64:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)


@njit(cache=True, nogil=True)
def filled(
    start: NDArray[np.int32],
    end: NDArray[np.int32],
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    atom: NDArray[np.int32],
    places: NDArray[np.int32],
    rank: NDArray[np.int64],
    before: NDArray[np.uint64],
    reach: NDArray[np.float64],
    scale: float,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
    """The rows of words and of nodes; these in the order ``rank``, parents before children."""
    count = level.shape[0]
    words, nodes = np.empty((places.shape[0], 2), np.uint64), np.zeros((count, 4), np.uint64)
    row, levels = np.empty(count, np.int64), level[rank]
    for at in range(count):
        row[rank[at]] = at
    for at in range(count):
        node = rank[at]
        nodes[at, 2], nodes[at, 3] = before[start[node]], before[end[node]]
        if at > 0:
            up = row[parent[node]]
            nodes[at, 1] = up
            nodes[at, 0] = nodes[up, 0] + _whole(_edge(nodes, reach, levels, at, up) * scale)
    for word in range(places.shape[0]):
        own = atom[places[word]]
        alone = end[own] - start[own] == 1
        at = row[own]
        words[word, 0] = np.uint64(at) | (_ALONE if alone else np.uint64(0))
        words[word, 1] = _whole((nodes[at, 3] - nodes[at, 2]) * 2.0**-62 * scale)
    return words, nodes, levels


@njit(cache=True, nogil=True)
def _leaf(
    part: np.uint64, before: NDArray[np.uint64], guide: NDArray[np.int32], shift: np.uint64
) -> int:
    """The place to which a part of the measure belongs."""
    cell = np.int64(part >> shift)
    low = np.int64(guide[cell])
    high = np.int64(guide[cell + 1]) + 1 if cell + 1 < guide.shape[0] else before.shape[0] - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if before[middle] <= part:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def sample(
    state: tuple[Any, ...],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Draw the tokens of documents in order until their random words run out; see ``sampling.Sampler``."""
    words, nodes, level, before, order, guide, shift, reach, scale = state
    for slot in range(pending.shape[0]):
        document = pending[slot]
        at, limit = starts[slot], starts[slot + 1]
        token, stop = done[document], offsets[document + 1]
        restart = at
        while token < stop and at + 4 <= limit:
            if token + _AHEAD < stop:
                fetch(words, max(ids[token + _AHEAD], 0), 0)  # type: ignore[call-arg]
            if token + _NEXT < stop:
                row = np.int64(words[max(ids[token + _NEXT], 0), 0] & ~_ALONE)
                fetch(nodes, row, 0)  # type: ignore[call-arg]
            if ids[token] < 0:
                part = random[at] >> np.uint64(2)
                at += 1
                out[token] = order[_leaf(part, before, guide, shift)]
                token, restart = token + 1, at
                continue
            leaf, mine = np.int64(words[ids[token], 0] & ~_ALONE), words[ids[token], 1]
            total = mine + nodes[leaf, 0]
            # An unbiased whole number below the total (Lemire 2019); one that rounding favours starts over.
            low = random[at] * total
            chosen: Any = upper_half(random[at], total)  # type: ignore[call-arg]
            at += 1
            if low < total and low < (~total + np.uint64(1)) % total:
                continue
            node, up = np.int64(-1), leaf
            if chosen < mine:
                width, real = mine, 0.0
                if width < _COARSE:
                    real = (nodes[leaf, 3] - nodes[leaf, 2]) * 2.0**-62 * scale
            else:
                chosen -= mine
                node, up = leaf, np.int64(nodes[leaf, 1])
                while chosen < nodes[up, 0]:
                    node, up = up, np.int64(nodes[up, 1])
                width, real = nodes[node, 0] - nodes[up, 0], 0.0
                if width < _COARSE:
                    real = _edge(nodes, reach, level, node, up) * scale
            if width < _COARSE:
                at += 2
                if not bernoulli(real / width, random[at - 2], random[at - 1]):
                    continue
            if node < 0 and words[ids[token], 0] >= _ALONE:
                out[token] = ids[token]
                token, restart = token + 1, at
                continue
            begin, count = nodes[up, 2], nodes[up, 3] - nodes[up, 2]
            if node >= 0:
                count -= nodes[node, 3] - nodes[node, 2]
            # This draw may have to be repeated, too, without a look at the first choice.
            drawn = False
            while not drawn and at < limit:
                low = random[at] * count
                part = upper_half(random[at], count)
                at += 1
                drawn = not (low < count and low < (~count + np.uint64(1)) % count)
            if not drawn:
                break
            part += begin
            if node >= 0 and part >= nodes[node, 2]:
                part += nodes[node, 3] - nodes[node, 2]
            out[token] = order[_leaf(part, before, guide, shift)]
            token, restart = token + 1, at
        done[document] = token
        position[slot] = restart
