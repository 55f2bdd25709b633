"""TEM over a tree: the measure that spends the whole budget, normalisers, and the exact constant over all pairs of words.

Each is one pass over the nodes of a tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.index.tree import Nodes, Tree
from textpriv.mechanisms.measure import BaseMeasure, exp, expm1
from textpriv.mechanisms.tem import LARGEST_EXPONENT

__all__ = ["TreeLaw", "likeliest"]

# Nats by which the difference of two computed normalisers may be off: far more than their sums of at most 64 positive terms
# and the rounding of a measure to whole parts make of it.
_ARITHMETIC = 1e-11


@njit(cache=True, nogil=True)
def _full_measure(
    level: NDArray[np.uint8], parent: NDArray[np.int32], atoms: int, reach: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The measure of each atom, in all 1, on which the normaliser is constant; ``reach`` is rate times height by level.

    A of a node is the sum of its children's ``B = A / (1 + (q - q') A)``, q and q' being ``exp(-reach)`` of the node's
    parent and of the node, and 1 / (1 - q) of an atom; a child's share of the measure is its share of the sum. All
    terms are positive, so nothing cancels.
    """
    count = level.shape[0]
    above, below = np.zeros(count), np.zeros(count)
    for node in range(count - 1):
        up = parent[node]
        high, low = reach[level[up]], reach[level[node]]
        if node < atoms:
            below[node] = -1.0 / expm1(-high)
        else:
            below[node] = above[node] / (1.0 + exp(-high) * expm1(high - low) * above[node])
        above[up] += below[node]
    mass = np.empty(count)
    mass[count - 1] = 1.0
    for node in range(count - 2, -1, -1):
        mass[node] = mass[parent[node]] * (below[node] / above[parent[node]])
    return mass[:atoms]


@njit(cache=True, nogil=True)
def _normalisers(
    start: NDArray[np.int32],
    end: NDArray[np.int32],
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    atoms: int,
    before: NDArray[np.uint64],
    reach: NDArray[np.float64],
) -> NDArray[np.float64]:
    """``Z(w)`` of each atom; ``before`` has the parts of the measure before each place."""
    count = level.shape[0]
    outside = np.zeros(count)
    for node in range(count - 2, -1, -1):
        up = parent[node]
        parts = before[end[up]] - before[start[up]] - (before[end[node]] - before[start[node]])
        outside[node] = outside[up] + parts * 2.0**-62 * exp(-reach[level[up]])
    for atom in range(atoms):
        outside[atom] += (before[end[atom]] - before[start[atom]]) * 2.0**-62
    return outside[:atoms]


@njit(cache=True, nogil=True)
def _constant(
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    log_z: NDArray[np.float64],
    rate: float,
    reach: NDArray[np.float64],
    heights: NDArray[np.float64],
    noise: float,
) -> tuple[float, int, int, float]:
    """The largest loss per unit of distance, the ordered pair of atoms that attains it, and the largest loss.

    For two words that meet at m the largest loss is ``t h(m) + ln Z(w') - ln Z(w)``, at the output w. So each node needs
    the extremes of ``ln Z`` below every child.
    """
    count = level.shape[0]
    highest, lowest = np.full(count, -1), np.full(count, -1)
    worst, first, second, largest = 0.0, 0, 0, 0.0
    for node in range(count - 1):
        if node < log_z.shape[0]:
            highest[node] = lowest[node] = node
        up = parent[node]
        if highest[up] < 0:
            highest[up], lowest[up] = highest[node], lowest[node]
            continue
        for one, other in ((lowest[node], highest[up]), (lowest[up], highest[node])):
            apart, height = max(log_z[other] - log_z[one] - noise, 0.0), heights[level[up]]
            largest = max(largest, reach[level[up]] + apart)
            loss = min(rate, reach[level[up]] / height) + apart / height
            if loss > worst:
                worst, first, second = loss, one, other
        if log_z[highest[node]] > log_z[highest[up]]:
            highest[up] = highest[node]
        if log_z[lowest[node]] < log_z[lowest[up]]:
            lowest[up] = lowest[node]
    return worst, first, second, largest


def likeliest(
    nodes: Nodes, reach: NDArray[np.float64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each place the place w of which ``scores[w] exp(-t u)`` is largest, and its value; all by depth-first order."""
    size, atoms = len(scores), nodes.atoms
    begins = nodes.start[:atoms]
    atom_best = np.maximum.reduceat(scores, begins)
    # The first of the best of each atom.
    where = np.flatnonzero(scores == atom_best[nodes.atom])
    first = np.full(atoms, size)
    np.minimum.at(first, nodes.atom[where], where)
    best, value = _spread(nodes.level, nodes.parent, reach, atom_best, first)
    return best[nodes.atom], value[nodes.atom]


@njit(cache=True, nogil=True)
def _spread(
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    reach: NDArray[np.float64],
    scores: NDArray[np.float64],
    places: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The best of all atoms for each, by the score of the best below every node, and then of all above it.

    That the best below a node may meet the atom lower down does no harm: it then counts for more further down.
    """
    count, atoms = level.shape[0], scores.shape[0]
    best, value = np.zeros(count, np.int64), np.full(count, -1.0)
    for node in range(count):
        if node < atoms:
            best[node], value[node] = places[node], scores[node]
        up = parent[node]
        if up >= 0 and value[node] > value[up]:
            best[up], value[up] = best[node], value[node]
    for node in range(count - 1, -1, -1):
        value[node] *= exp(-reach[level[node]])
        up = parent[node]
        if up >= 0 and value[up] > value[node]:
            best[node], value[node] = best[up], value[up]
    return best[:atoms], value[:atoms]


class TreeLaw(NamedTuple):
    """A law and what follows from it.

    Attributes
    ----------
    rate, gamma : float
    reach : ndarray, shape (L + 1,)
        Rate times height by level, cut off; 0 for level 0.
    measure : BaseMeasure
        In depth-first order.
    normalisers, log_z : ndarray, shape (A,)
        Z and its logarithm, by atom.
    constant : float
        The largest loss per unit of distance.
    pair : (int, int)
        The ordered pair of words, in ids, that attains it.
    worst : float
        Largest loss between two words of the tree, in nats.
    """

    rate: float
    gamma: float
    reach: NDArray[np.float64]
    measure: BaseMeasure
    normalisers: NDArray[np.float64]
    log_z: NDArray[np.float64]
    constant: float
    pair: tuple[int, int]
    worst: float

    @classmethod
    def at(cls, tree: Tree, rate: float, weights: NDArray[np.float64] | None) -> TreeLaw:
        """The law of a rate and a measure in depth-first order, or of the full measure."""
        nodes = tree.nodes
        gamma = min(tree.diameter_bound, LARGEST_EXPONENT / rate)
        heights = np.concatenate([[0.0], tree.heights])
        reach = rate * np.minimum(heights, gamma)
        if weights is None:
            mass = _full_measure(nodes.level, nodes.parent, nodes.atoms, reach)
            weights = (mass / np.bincount(nodes.atom))[nodes.atom]
        measure = BaseMeasure(weights)
        normalisers = _normalisers(*nodes[:4], nodes.atoms, measure.before, reach)
        log_z = np.log(normalisers)
        worst, first, second, largest = _constant(
            nodes.level, nodes.parent, log_z, rate, reach, heights, _ARITHMETIC
        )
        words = tree.order[nodes.start[: nodes.atoms]]
        pair = int(words[first]), int(words[second])
        return cls(rate, gamma, reach, measure, normalisers, log_z, worst, pair, largest)
