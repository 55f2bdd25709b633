"""Pair graphs: who is paired with whom, how many pairs one change affects, and public ways to choose pairs.

Individuals are nodes 0..n−1 and pairs are edges. Only graphs that are public belong here: kappa computed from a private
one reveals it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidPairsError, InvalidParameterError, check_whole
from pairwise.noise.randomness import Randomness

__all__ = ["PairGraph", "random_matching", "regular_pairs"]


def _as_pairs(pairs: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(pairs)
    if array.size == 0 and array.ndim <= 2:
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InvalidPairsError(
            f"pairs must have shape (m, 2); found {array.shape}. Give one row of two indices per pair."
        )
    whole = np.issubdtype(array.dtype, np.integer)
    if np.issubdtype(array.dtype, np.floating):
        whole = np.array_equal(array, np.floor(array))
    if not whole:
        raise InvalidPairsError(
            f"pairs must be whole-number indices; found {array.dtype}. Number the individuals 0..n-1."
        )
    return array.astype(np.int64)


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
        array = _as_pairs(pairs)
        if len(array) and array.min() < 0:
            raise InvalidPairsError(
                "indices must be >= 0; found negative ones. Number the individuals 0..n-1."
            )
        highest = int(array.max()) + 1 if len(array) else 0
        if n_nodes is None:
            n_nodes = highest
        else:
            check_whole("n_nodes", n_nodes, least=0)
        if n_nodes < highest:
            raise InvalidPairsError(
                f"indices must be below n_nodes = {n_nodes}; found larger ones. Give the number of individuals."
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
        self.pairs: NDArray[np.int64] = array
        self.n_nodes = int(n_nodes)
        self.n_pairs = len(array)

    def degrees(self) -> NDArray[np.int64]:
        """Return how many pairs each individual is in, shape (n_nodes,)."""
        return np.bincount(self.pairs.ravel(), minlength=self.n_nodes).astype(np.int64)

    @property
    def max_degree(self) -> int:
        """The largest degree, 0 without pairs: the group size of Node-DP."""
        return int(self.degrees().max(initial=0))

    def _blocks(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the number of biconnected components at each node and whether each pair is a bridge.

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
        bridge = np.zeros(m, dtype=np.bool_)
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
                    members = 0
                    while True:
                        member = stack.pop()
                        count[member] += 1
                        members += 1
                        if member == node:
                            break
                    count[parent] += 1
                    bridge[via] = members == 1
        return count, bridge

    def kappa_bounds(self) -> NDArray[np.int64]:
        """Return deg(s) − blocks(s) + 1 for each individual s, 0 for isolated ones; shape (n_nodes,).

        This is De(s) − Co₊(s̄) of DPP eq. 15: one plus the pairs to cut so that s is in no cycle.
        """
        degrees = self.degrees()
        blocks, _ = self._blocks()
        return np.where(degrees > 0, degrees - blocks + 1, 0)

    def kappa_bound(
        self, relationship: Literal["transitive", "intransitive"] = "transitive"
    ) -> int:
        """Return κ', an upper bound of DPP's κ, in time linear in pairs and individuals.

        Parameters
        ----------
        relationship : {"transitive", "intransitive"}, default="transitive"
            Transitive (same class, same disease): eq. 15, the largest of ``kappa_bounds``. Intransitive (friends):
            paths imply nothing, so only cycles count (DPP appendix B).

        Notes
        -----
        Intransitive, with c_s = deg(s) − blocks(s): a pair that is no bridge costs at most 1 + min(c_s − 1, c_t − 1)
        since cutting it leaves its ends one pair fewer and no block fewer; a bridge costs 1 + min(c_s, c_t); two
        individuals without a pair cost min(c_s, c_t), at most the second largest c.

        The value depends on the graph. On a private graph it may serve only as a diagnostic, noised: adding one pair
        changes the transitive value by 0 or 1.
        """
        if relationship not in ("transitive", "intransitive"):
            raise InvalidParameterError(
                f"relationship must be 'transitive' or 'intransitive'; found {relationship!r}."
            )
        if not self.n_pairs:
            return 0
        degrees = self.degrees()
        blocks, bridge = self._blocks()
        cycles = degrees - blocks
        if relationship == "transitive":
            return int(cycles[degrees > 0].max()) + 1
        second = int(np.sort(cycles)[-2])
        ends = self.pairs[bridge]
        through = int(np.minimum(cycles[ends[:, 0]], cycles[ends[:, 1]]).max(initial=0))
        return max(1, second, 1 + through if len(ends) else 0)

    def __repr__(self) -> str:
        return f"PairGraph({self.n_pairs} pairs of {self.n_nodes} individuals)"


def random_matching(n: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a uniformly random perfect matching of the slots 0..n−1, shape (n // 2, 2); one slot stays out for odd n.

    Independent of all data, so it may be published.
    """
    if n < 2:
        raise InvalidParameterError(f"a matching needs n >= 2; found {n}.")
    half = n // 2
    return randomness.permutation(n)[: 2 * half].reshape(half, 2)


def regular_pairs(n: int, degree: int, randomness: Randomness) -> NDArray[np.int64]:
    """Return a public topology in which nobody is in more than ``degree`` pairs, shape (about n · degree/2, 2).

    The union of ``degree`` random matchings, each drawn again until it repeats no pair. Whoever declares kappa = degree
    protects individuals and not only pairs. The cap holds by design: no private graph has to be looked at. Random pairs
    of the same density reach about three times that degree.

    Parameters
    ----------
    n : int
        Individuals; degree <= n/4, beyond which matchings without repetition become rare.
    degree : int
        At least 1; |E|/|V| = degree/2.
    randomness : Randomness
    """
    if degree < 1 or 4 * degree > n:
        raise InvalidParameterError(f"degree must be in 1..{n // 4} for {n} nodes; found {degree}.")
    chosen = np.empty((0, 2), dtype=np.int64)
    for _ in range(degree):
        while True:
            joined = np.concatenate([chosen, np.sort(random_matching(n, randomness), axis=1)])
            # A matching repeats about degree/2 of n²/2 pairs: swap partners of those rather than draw all again.
            for _ in range(100):
                keys = joined[:, 0] * n + joined[:, 1]
                _, first = np.unique(keys, return_index=True)
                repeated = np.setdiff1d(np.arange(len(joined)), first)
                if not len(repeated):
                    break
                for row in repeated:
                    other = len(chosen) + int(
                        randomness.integers(len(joined) - len(chosen), (1,))[0]
                    )
                    joined[row, 1], joined[other, 1] = joined[other, 1], joined[row, 1]
                joined = np.sort(joined, axis=1)
            else:
                continue
            break
        chosen = joined
    return chosen
