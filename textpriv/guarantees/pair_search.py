"""Search for the pair of words whose output distributions differ most per unit of distance, on an index of any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from textpriv.guarantees.significance import largest_ratios
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import Mechanism
from textpriv.mechanisms.pairs import ROUNDING

__all__ = ["per_distance", "search"]

_LAWS = 240  # output distributions that a search compares at most
_BYTES = 1 << 28  # and the memory that they may take


def per_distance(
    losses: NDArray[np.float64], distances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return losses per unit of distance: nearly infinite between words at distance 0 that lose more than rounding."""
    return np.maximum(losses - ROUNDING, 0.0) / np.maximum(distances, 1e-300)


def search(mechanism: Mechanism, *, laws: int = _LAWS) -> tuple[float, tuple[int, int], int]:
    """Search for the pair of words that loses most per unit of distance.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed form.
    laws : int
        How many output distributions to compute. All of them are compared with each other.

    Returns
    -------
    constant : float
        A lower bound on the mechanism's constant.
    pair : (int, int)
        The ordered pair that attains it.
    pairs : int
        How many were compared.

    Notes
    -----
    The first half of the laws goes to pairs that are likely to break a claim: nearest words, and hubs (words on many lists)
    beside rare words. The other half goes around the worst pairs found, and then to words not tried yet.
    """
    index = mechanism.index
    budget = min(laws, len(index), max(16, _BYTES // (8 * len(index))))
    table = np.empty((budget, len(index)))
    words: list[int] = []
    ranking: list[tuple[float, int, int]] = []

    def add(word: int) -> None:
        if word in words or len(words) >= budget:
            return
        law = mechanism.log_prob(word)
        if words:
            rows = table[: len(words)]
            apart = np.array([index.distance(word, other) for other in words])
            forth = per_distance(largest_ratios(law, rows), apart)
            back = per_distance(
                np.array([largest_ratios(row, law[None])[0] for row in rows]), apart
            )
            best = int(np.maximum(forth, back).argmax())
            pair = (word, words[best]) if forth[best] >= back[best] else (words[best], word)
            ranking.append((float(max(forth[best], back[best])), *pair))
            ranking.sort(reverse=True)
        table[len(words)] = law
        words.append(word)

    for word in _suspects(index):
        if len(words) >= max(2, budget // 2):
            break
        add(word)
    while len(words) < budget:
        before = len(words)
        for _, *ends in ranking[:8]:
            for end in ends:
                fresh = [each for each in _around(index, end) if each not in words]
                for other in fresh[:2]:
                    add(other)
        if len(words) == before:
            add(next(each for each in range(len(index)) if each not in words))
    pairs = len(words) * (len(words) - 1) // 2
    if not ranking or ranking[0][0] <= 0:
        return 0.0, (words[0], words[0]), pairs
    value, first, second = ranking[0]
    return value, (first, second), pairs


def _suspects(index: Index) -> Iterator[int]:
    """Yield words in the order in which an adversary would try them."""
    if isinstance(index, Tree):
        # Neighbouring leaves, evenly spread, and those where groups of very different sizes meet.
        nodes, last = index.nodes, len(index) - 1
        size = (nodes.end - nodes.start)[nodes.parent[nodes.atom]] if last else np.ones(1)
        uneven = np.argsort(-np.abs(np.diff(np.log(size))), kind="stable")
        even = np.linspace(0, max(last - 1, 0), len(uneven)).astype(np.int64)
        for place in np.stack([uneven, uneven + 1, even, even + 1], axis=1).ravel().tolist():
            yield int(index.order[place])
        yield int(index.order[0])
        return
    ids, steps = index.neighbour_ids, index.neighbour_steps
    often = np.bincount(ids.reshape(-1), minlength=len(index))
    apart = np.where(steps > 0, steps, np.iinfo(np.int32).max)
    near = np.argsort(apart.min(axis=1), kind="stable")
    hubs, rare = (np.argsort(sign * often, kind="stable") for sign in (-1, 1))
    for one, hub, alone in zip(near.tolist(), hubs.tolist(), rare.tolist(), strict=True):
        yield one
        yield int(ids[one, apart[one].argmin()])
        yield hub
        yield alone
        yield int(ids[alone][often[ids[alone]].argmax()])


def _around(index: Index, word: int) -> list[int]:
    """Return words near a word."""
    if isinstance(index, Tree):
        place = int(index.places[word])
        return [int(each) for each in index.order[max(place - 8, 0) : place + 9]]
    return [int(each) for each in index.neighbour_ids[word]]
