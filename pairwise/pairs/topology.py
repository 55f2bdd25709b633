"""Pair graphs: who is paired with whom, how many pairs one change affects, and public ways to choose pairs.

Individuals are nodes 0..n−1 and pairs are edges. Only graphs that are public belong here: kappa computed from a private
one reveals it, so it is declared there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidPairsError, InvalidParameterError
from pairwise.noise.randomness import Randomness


class PairGraph:
    """A simple undirected graph of pairs.

    Parameters
    ----------
    pairs : array-like of shape (m, 2)
        Indices of the two individuals of each pair, whole numbers >= 0. Order within a pair does not matter.
    n_nodes : int, optional
        Number of individuals; default: one more than the largest index.

    Attributes
    ----------
    pairs : ndarray of shape (m, 2)
        The pairs as given.
    n_nodes, n_pairs : int
        Sizes.

    Raises
    ------
    InvalidPairsError
        For self pairs, for a pair given twice (in either order: it would count twice and break every bound that counts
        pairs once), for negative or too large indices, and for a wrong shape.
    """

    def __init__(self, pairs: ArrayLike, n_nodes: int | None = None) -> None:
        array = np.asarray(pairs)
        if array.size == 0:
            array = np.empty((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise InvalidPairsError(
                f"pairs must be whole-number indices of shape (m, 2); found shape {array.shape}. Give one row per pair."
            )
        highest = int(array.max(initial=-1)) + 1
        n_nodes = highest if n_nodes is None else n_nodes
        if array.min(initial=0) < 0 or n_nodes < highest:
            raise InvalidPairsError(
                f"indices must be in 0..n_nodes - 1 = {n_nodes - 1}; found others. Give the number of individuals."
            )
        self_pairs = int(np.count_nonzero(array[:, 0] == array[:, 1]))
        if self_pairs:
            raise InvalidPairsError(
                f"a pair must join two different individuals; found {self_pairs} self pairs. Drop them."
            )
        keys = np.sort(array, axis=1)
        repeated = len(keys) - len(np.unique(keys[:, 0] * max(n_nodes, 1) + keys[:, 1]))
        if repeated:
            raise InvalidPairsError(
                f"each pair must be given once, in either order; found {repeated} repetitions. Drop them."
            )
        self.pairs: NDArray[np.int64] = array.astype(np.int64)
        self.n_nodes = int(n_nodes)
        self.n_pairs = len(array)

    def degrees(self) -> NDArray[np.int64]:
        """Return how many pairs each individual is in, shape (n_nodes,)."""
        return np.bincount(self.pairs.ravel(), minlength=self.n_nodes).astype(np.int64)

    @property
    def max_degree(self) -> int:
        """The largest degree, 0 without pairs: the group size of Node-DP."""
        return int(self.degrees().max(initial=0))

    def _blocks(self) -> NDArray[np.int64]:
        """Return the number of biconnected components at each node, shape (n_nodes,).

        One depth-first pass without recursion (Hopcroft and Tarjan 1973), O(|V| + |E|).
        """
        n, m = self.n_nodes, self.n_pairs
        ends = np.concatenate([self.pairs[:, 0], self.pairs[:, 1]])
        others = np.concatenate([self.pairs[:, 1], self.pairs[:, 0]])
        order = np.argsort(ends, kind="stable")
        start = np.searchsorted(ends[order], np.arange(n + 1)).tolist()
        neighbour = others[order].tolist()
        edge = (order % max(m, 1)).tolist()
        cursor = start[:-1].copy() if n else []
        discovered = [-1] * n
        low = [0] * n
        count = np.zeros(n, dtype=np.int64)
        clock = 0
        for root in range(n):
            if discovered[root] >= 0 or start[root] == start[root + 1]:
                continue
            discovered[root] = low[root] = clock
            clock += 1
            path = [(root, -1)]
            stack = [root]  # nodes whose block is not closed yet
            while path:
                node, via = path[-1]
                if cursor[node] < start[node + 1]:
                    position = cursor[node]
                    cursor[node] += 1
                    target = neighbour[position]
                    if edge[position] == via:
                        continue
                    if discovered[target] < 0:
                        discovered[target] = low[target] = clock
                        clock += 1
                        path.append((target, edge[position]))
                        stack.append(target)
                    elif discovered[target] < low[node]:
                        low[node] = discovered[target]
                    continue
                path.pop()
                if not path:
                    break
                parent = path[-1][0]
                low[parent] = min(low[parent], low[node])
                if low[node] >= discovered[parent]:
                    # node's subtree and parent close one block.
                    while True:
                        member = stack.pop()
                        count[member] += 1
                        if member == node:
                            break
                    count[parent] += 1
        return count

    def kappa_bound(self) -> int:
        """Return κ' (DPP eq. 15), the largest deg(s) − blocks(s) + 1 of an individual s; 0 without pairs.

        One plus the pairs to cut so that s is in no cycle: an upper bound of DPP's κ where similarity is transitive (same
        class, same disease), and so where it is not. The value depends on the graph, so on a private one it reveals it.
        """
        degrees = self.degrees()
        present = degrees > 0
        return int((degrees - self._blocks())[present].max(initial=-1)) + 1


def group_size(declared: int | None, graph: PairGraph | None, *, private: bool) -> int:
    """Return kappa, how many pairs may change together: declared, or computed from a topology that is public.

    Parameters
    ----------
    declared : int, optional
    graph : PairGraph, optional
        The topology, if it is public.
    private : bool
        Whether anything is to be protected.
    """
    if graph is None:
        if declared is None and private:
            raise InvalidParameterError(
                "kappa must be declared when the topology is private: computed from the pairs it would reveal them. Give a "
                "public bound on how many pairs change together, or Edges(topology='public') if who is paired with whom is "
                "public."
            )
        return 1 if declared is None else int(declared)
    true = graph.kappa_bound()
    if declared is not None and declared < true:
        raise InvalidParameterError(
            f"kappa must be at least {true}, the bound of the public topology; found {declared}. Raise kappa, or leave it "
            f"out to use {true}."
        )
    return true if declared is None else int(declared)


def random_matching(n: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a uniformly random perfect matching of the slots 0..n−1, shape (n // 2, 2); one slot stays out for odd n.

    Independent of all data, so it may be published.
    """
    if n < 2:
        raise InvalidParameterError(f"a matching needs n >= 2; found {n}.")
    half = n // 2
    return randomness.permutation(n)[: 2 * half].reshape(half, 2)
