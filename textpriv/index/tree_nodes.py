"""The nodes of a tree over words, and its distance: what an order of leaves and the heights between them say.

The distance of two leaves is the height of the lowest node above both: the largest of the heights between them. The tree
as an index, its files and how to make one stand in ``tree``.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from textpriv.index.typical import RANKS, REFERENCE, SHARES, Typical, weighted_quantiles
from textpriv.metrics import TREE as TREE_KIND
from textpriv.metrics import Metric

__all__ = ["Nodes", "TreeMetric"]


class TreeMetric(Metric):
    """The distance in a tree between two leaves, each given by its place in depth-first order.

    Parameters
    ----------
    gaps : ndarray of uint8, shape (V - 1,)
        Between neighbouring leaves: 0 where they are one, else the number of the height, from 1.
    heights : ndarray of float64, shape (L,)
        Rising, above 0.
    """

    name, kind = "tree", TREE_KIND

    def __init__(self, gaps: NDArray[np.uint8], heights: NDArray[np.float64]) -> None:
        self.gaps = gaps
        self.table = np.concatenate([[0.0], heights])

    @cached_property
    def _largest(self) -> list[NDArray[np.uint8]]:
        """The largest gap of each run of 1, 2, 4, ... gaps, by where it begins."""
        tables = [self.gaps]
        while 2 << (len(tables) - 1) <= len(self.gaps):
            last, step = tables[-1], 1 << (len(tables) - 1)
            tables.append(np.maximum(last[:-step], last[step:]))
        return tables

    def levels(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Numbers of the heights at which pairs of leaves meet, pair by pair; 0 for one leaf."""
        low, high = np.minimum(first, second), np.maximum(first, second)
        numbers = np.zeros(low.shape, dtype=np.uint8)
        power = np.frexp((high - low).astype(np.float64))[1] - 1
        for each in np.unique(power[high > low]).tolist():
            at = (power == each) & (high > low)
            table = self._largest[each]
            numbers[at] = np.maximum(table[low[at]], table[high[at] - (1 << each)])
        return numbers

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the places of the leaves themselves."""
        return vectors

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return zeros: nothing was rounded."""
        return np.zeros(len(vectors))

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
        """Distances between all leaves of ``a`` (m, 1) and ``b`` (p, 1), shape (m, p)."""
        left, right = (np.asarray(each, dtype=np.int64).reshape(-1) for each in (a, b))
        pairs = np.broadcast_arrays(left[:, None], right[None])
        return self.table[self.levels(*pairs)]

    def settings(self) -> dict[str, Any]:
        """Return the heights, and a checksum of which stands between which leaves."""
        shape = hashlib.sha256(self.gaps.tobytes()).hexdigest()
        return {"name": self.name, "heights": self.table[1:].tolist(), "gaps": shape}

    def __repr__(self) -> str:
        return f"TreeMetric({len(self.table) - 1} heights)"


class Nodes(NamedTuple):
    """The nodes of a tree: first its atoms, leaves that hold all words at distance 0 of each other, then inner nodes.

    A node's parent has a higher number than the node, and the root the highest.

    Attributes
    ----------
    start, end : ndarray of int32, shape (N,)
        The leaves below a node, as places in depth-first order.
    level : ndarray of uint8, shape (N,)
        The number of its height; 0 for an atom.
    parent : ndarray of int32, shape (N,)
        -1 for the root.
    atom : ndarray of int32, shape (V,)
        The atom of each place.
    """

    start: NDArray[np.int32]
    end: NDArray[np.int32]
    level: NDArray[np.uint8]
    parent: NDArray[np.int32]
    atom: NDArray[np.int32]

    @property
    def atoms(self) -> int:
        """How many of the nodes are atoms."""
        return int(self.atom[-1]) + 1

    @classmethod
    def of(cls, gaps: NDArray[np.uint8]) -> Nodes:
        """The nodes of a tree given by the numbers of the heights between its leaves."""
        start, end, level, parent, atom = _begun(gaps)
        atoms = int(atom[-1]) + 1
        # By rising level: a parent's is above its child's.
        rank = np.argsort(level, kind="stable").astype(np.int32)
        number = np.empty(len(rank), dtype=np.int32)
        number[rank] = np.arange(len(rank), dtype=np.int32)
        parents = np.where(parent[rank] < 0, -1, number[parent[rank]]).astype(np.int32)
        assert np.array_equal(rank[:atoms], np.arange(atoms))
        return cls(start[rank], end[rank], level[rank], parents, atom)

    def typical(
        self, heights: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> dict[int, Typical]:
        """As ``typical_distances``: how high above running words, weighted by place, the groups of so many others are."""
        atoms = self.atoms
        before = np.concatenate([[0], np.cumsum(np.bincount(self.atom[self.start[:atoms]]))])
        others = before[self.atom[self.end - 1] + 1] - before[self.atom[self.start]] - 1
        table = np.concatenate([[0.0], heights])
        mass: NDArray[np.float64] = np.zeros(atoms)
        np.add.at(mass, self.atom, weights)
        typical = {}
        for rank in RANKS:
            if rank > REFERENCE and atoms <= rank:
                continue
            up = np.arange(atoms)
            while (short := np.flatnonzero((others[up] < rank) & (self.parent[up] >= 0))).size:
                up[short] = self.parent[up[short]]
            typical[rank] = Typical(*weighted_quantiles(table[self.level[up]], mass, SHARES))
        return typical


@njit(cache=True, nogil=True)
def _begun(gaps: NDArray[np.uint8]) -> tuple[Any, ...]:
    """The nodes in the order in which they begin; see :class:`Nodes`, but for numbers of inner nodes."""
    size = gaps.shape[0] + 1
    start, end = np.empty(2 * size, np.int32), np.empty(2 * size, np.int32)
    level, parent = np.zeros(2 * size, np.uint8), np.full(2 * size, -1, np.int32)
    atom = np.empty(size, np.int32)
    atoms = 0
    for position in range(size):
        if position == 0 or gaps[position - 1] > 0:
            start[atoms] = position
            atoms += 1
        atom[position] = atoms - 1
        end[atoms - 1] = position + 1
    count, open_nodes, depth = atoms, np.empty(256, np.int32), 0
    for one in range(atoms):
        current = one
        gap = gaps[end[one] - 1] if one < atoms - 1 else np.uint8(255)
        while depth > 0 and level[open_nodes[depth - 1]] < gap:
            depth -= 1
            top = open_nodes[depth]
            parent[current], end[top] = top, end[one]
            current = top
        if one == atoms - 1:
            break
        if depth > 0 and level[open_nodes[depth - 1]] == gap:
            parent[current] = open_nodes[depth - 1]
        else:
            start[count], level[count] = start[current], gap
            parent[current] = count
            open_nodes[depth] = count
            depth += 1
            count += 1
    return start[:count], end[:count], level[:count], parent[:count], atom
