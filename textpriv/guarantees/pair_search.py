"""Search for the pair of words whose laws differ most per unit of distance, on an index of any size.

Only the search stands here: which words an adversary would compare, and how it climbs from one pair to a worse one.
What is claimed, and whether a pair refutes it, is judged in ``textpriv.guarantees.audit`` and
``textpriv.guarantees.certificate``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from textpriv.guarantees.significance import largest_ratios
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import Mechanism
from textpriv.mechanisms.calibration.pair_sweep import Progress
from textpriv.mechanisms.calibration.privacy_constant import Constant, inputs

__all__ = ["allowance", "search"]

_LAWS = 240  # laws that a search compares at most
_BYTES = 1 << 28  # and the memory that they may take


def allowance(mechanism: Mechanism) -> float:
    """Nats of a loss that no search counts: the arithmetic of computed laws, and the rounding of coordinates (TEM-11)."""
    return 1e-11 + 9 * mechanism.epsilon * mechanism.index.rounding.absolute


def search(
    mechanism: Mechanism, *, laws: int = _LAWS, progress: Progress | None = None
) -> tuple[Constant, int]:
    """Search an index of any size for the pair of words whose laws differ most per unit of distance.

    Parameters
    ----------
    mechanism : Mechanism
        With a law.
    laws : int
        How many laws to compute; each takes a row of distances. All of them are compared with each other.
    progress : callable, optional
        Called with (laws done, laws in all).

    Returns
    -------
    best : Constant
        A lower bound on the mechanism's constant, and the ordered pair that attains it.
    pairs : int
        Compared.

    Raises
    ------
    MechanismError
        If the mechanism has no law.

    Notes
    -----
    The first half of the budget goes to pairs that are likely to break a law: the nearest words, hubs (words that are
    on many lists) beside rare words, and neighbours that an approximate list has missed. The other half climbs from the
    worst pairs found, by the neighbours of either word.
    """
    compared = _ComparedLaws(mechanism, laws, progress)
    compared.add_suspects()
    compared.climb()
    count = len(compared.words)
    pairs = count * (count - 1) // 2
    if not compared.ranking or compared.ranking[0][0] <= 0:
        return Constant(0.0, (compared.words[0], compared.words[0])), pairs
    value, first, second = compared.ranking[0]
    return Constant(value, (first, second)), pairs


class _ComparedLaws:
    """Laws of some words, each compared with all before it, and the worst pairs among them."""

    def __init__(self, mechanism: Mechanism, laws: int, progress: Progress | None) -> None:
        index = mechanism.index
        self._mechanism = mechanism
        self._index = index
        self._progress = progress
        self._wide = set(index.wide.tolist())
        self._allowance = allowance(mechanism)
        self._budget = min(
            laws, len(inputs(index)) + len(self._wide), max(16, _BYTES // (8 * len(index)))
        )
        self._table = np.empty((self._budget, len(index)))
        self.words: list[int] = []
        self._known: set[int] = set()
        self.ranking: list[tuple[float, int, int]] = []  # the worst pairs first

    def add(self, word: int) -> None:
        """Compute a word's law, unless it is known or the budget is spent."""
        # A word with another one's law is that word, but where the two are farther apart than rounding explains.
        word = word if word in self._wide else int(self._index.representatives[word])
        if word in self._known or len(self.words) >= self._budget:
            return
        law = self._mechanism.log_prob(word)
        if self.words:
            self._rank(word, law)
        self._table[len(self.words)] = law
        self.words.append(word)
        self._known.add(word)
        if self._progress:
            self._progress(len(self.words), self._budget)

    def _rank(self, word: int, law: NDArray[np.float64]) -> None:
        rows = self._table[: len(self.words)]
        distances = self._index.distances_between(word, np.array(self.words))
        distances = np.maximum(distances, 1e-300)
        forth = np.maximum(largest_ratios(law, rows) - self._allowance, 0.0) / distances
        ratios = np.array([largest_ratios(row, law[None])[0] for row in rows])
        back = np.maximum(ratios - self._allowance, 0.0) / distances
        best = int(np.maximum(forth, back).argmax())
        other = self.words[best]
        pair = (word, other) if forth[best] >= back[best] else (other, word)
        self.ranking.append((float(max(forth[best], back[best])), *pair))
        self.ranking.sort(reverse=True)
        del self.ranking[32:]

    def add_suspects(self) -> None:
        """Spend half of the budget on pairs that are likely to break a law."""
        for word in _suspects(self._index):
            if len(self.words) >= max(2, self._budget // 2):
                break
            self.add(word)

    def climb(self) -> None:
        """Spend the rest around the worst pairs, and on words not tried yet where these are surrounded."""
        index, known = self._index, self._known
        while len(self.words) < self._budget:
            before = len(self.words)
            for _, first, second in self.ranking[:8]:
                for end in (first, second):
                    fresh = (
                        o
                        for o in _around(index, end)
                        if o not in known and int(index.representatives[o]) not in known
                    )
                    for other in list(islice(fresh, 2)):
                        self.add(other)
            if len(self.words) == before:
                everything = np.concatenate([inputs(index), index.wide]).tolist()
                untried = (word for word in everything if word not in known)
                for word in list(islice(untried, 8)):
                    self.add(word)


def _suspects(index: Index) -> Iterator[int]:
    """Words in the order in which an adversary would try them; endless repetition is left to the caller."""
    words = inputs(index)
    if isinstance(index, Tree):
        yield from _leaves(index)
        return
    ids, distances = index.neighbours.ids, index.neighbours.distances
    often = np.bincount(ids.reshape(-1), minlength=len(index))
    for word in index.wide.tolist():
        # By its own vector such a word may be nearer to others than the word whose law it uses.
        yield word
        yield from ids[word].tolist()[:4]
    told_apart = index.representatives[ids] != index.representatives[:, None]
    nearest = np.where(
        told_apart.any(axis=1), distances[np.arange(len(index)), told_apart.argmax(axis=1)], np.inf
    )
    near = words[np.argsort(nearest[words], kind="stable")]
    hubs = words[np.argsort(-often[words], kind="stable")]
    rare = words[np.argsort(often[words], kind="stable")]
    for position in range(len(words)):
        yield int(near[position])
        yield int(ids[near[position], told_apart[near[position]].argmax()])
        yield int(hubs[position])
        yield int(rare[position])
        # A hub and a rare word next to each other: their normalisers differ over a short way.
        yield int(ids[rare[position]][often[ids[rare[position]]].argmax()])
        if not index.exact:
            yield from _missed(index, int(hubs[position]))[:2]
            yield from _missed(index, int(near[position]))[:2]


def _leaves(tree: Tree) -> Iterator[int]:
    """Neighbouring leaves of a tree: where one leaves the largest groups for small ones, and evenly over all."""
    nodes, last = tree.nodes, len(tree) - 1
    # How many words the group has that the leaf after a place joins: normalisers differ most where it changes most.
    size = (nodes.end - nodes.start)[nodes.parent[nodes.atom]] if last else np.zeros(1)
    steps = np.argsort(-np.abs(np.diff(np.log(size))), kind="stable")
    even = np.unique(np.linspace(0, max(last - 1, 0), len(steps)).astype(np.int64))
    for edge, place in zip(steps.tolist(), even.tolist(), strict=False):
        for leaf in (edge, edge + 1, place, place + 1):
            yield int(tree.representatives[tree.order[leaf]])
    yield int(tree.order[0])


def _around(index: Index, word: int) -> list[int]:
    """The neighbours of a word, those that its list has missed first."""
    if isinstance(index, Tree):
        place = int(index.places[word])
        near = index.order[max(place - 8, 0) : place + 9]
        return [each for each in near.tolist() if each != word]
    listed: list[int] = index.neighbours.ids[word].tolist()
    return listed if index.exact else [*_missed(index, word)[:2], *listed]


def _missed(index: Index, word: int) -> list[int]:
    """Words nearer than the end of a word's list and not on it, nearest first."""
    apart = index.distances_of(np.array([word]))[0]
    inside = np.flatnonzero(apart < float(index.neighbours.distances[word, -1]))
    inside = inside[~np.isin(inside, index.neighbours.ids[word])]
    return inside[np.argsort(apart[inside], kind="stable")].tolist()
