"""Small public trees for tests: random ones, and those on which sums are hard."""

from __future__ import annotations

import numpy as np

from textpriv.index import Tree
from textpriv.vocabulary import Vocabulary


def words(size: int) -> Vocabulary:
    return Vocabulary([f"w{i}" for i in range(size)], np.zeros((size, 1)))


def tree(gaps, heights=None, seed: int = 0, **settings) -> Tree:
    """A tree of given heights between leaves, 0 for leaves at distance 0, whose words stand in any order."""
    given = np.asarray(gaps)
    used = np.unique(given[given > 0])
    codes = np.where(given > 0, np.searchsorted(used, given) + 1, 0)
    order = np.random.default_rng(seed).permutation(len(given) + 1)
    values = used.astype(float) if heights is None else heights
    return Tree(words(len(order)), order, codes, values, **settings)


def random_tree(size: int, levels: int, seed: int, *, together: float = 0.0) -> Tree:
    rng = np.random.default_rng(seed)
    gaps = rng.integers(1, levels + 1, size - 1)
    gaps[rng.random(size - 1) < together] = 0
    used = np.unique(gaps[gaps > 0])
    return tree(gaps, np.cumsum(rng.gamma(1.0, 0.5, len(used)) + 1e-3), seed)


def balanced(depth: int) -> Tree:
    """Every group has two parts, down to single words."""
    places = np.arange(1, 2**depth)
    return tree([(int(place) & -int(place)).bit_length() for place in places])


def chain(size: int) -> Tree:
    """Each word joins all before it, as single linkage of a line would."""
    return tree(np.arange(1, size))


def star(size: int) -> Tree:
    return tree(np.ones(size - 1))


HARD = {
    "two words": lambda: star(2),
    "a star": lambda: star(40),
    "a chain": lambda: chain(60),
    "balanced": lambda: balanced(6),
    "ties of height": lambda: random_tree(90, 3, 1),
    "words at distance 0": lambda: random_tree(80, 6, 2, together=0.4),
    "one far, many near": lambda: tree([1] * 60 + [2], [0.01, 9.0]),
    "many heights": lambda: random_tree(150, 64, 3),
    "200 leaves": lambda: random_tree(200, 40, 4, together=0.05),
}
