"""The nodes of a tree over words, from the heights between neighbouring leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index.typical import RANKS, REFERENCE, SHARES, Typical, weighted_quantiles

__all__ = ["Nodes"]


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
        """Number of atoms."""
        return int(self.atom[-1]) + 1

    @classmethod
    def of(cls, gaps: NDArray[np.uint8]) -> Nodes:
        """Find the nodes of a tree given by the numbers of the heights between its leaves."""
        start, end, level, parent, atom = _begun(gaps)
        # By rising level: a parent's is above its child's.
        rank = np.argsort(level, kind="stable").astype(np.int32)
        number = np.empty(len(rank), dtype=np.int32)
        number[rank] = np.arange(len(rank), dtype=np.int32)
        parents = np.where(parent[rank] < 0, -1, number[parent[rank]]).astype(np.int32)
        return cls(start[rank], end[rank], level[rank], parents, atom)

    def typical(
        self, heights: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> dict[int, Typical]:
        """Typical distances, as :func:`textpriv.index.typical.typical_distances`, of words weighted by place."""
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
