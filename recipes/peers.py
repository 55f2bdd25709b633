"""Mechanisms of other packages, by their output distributions, for ``tradeoff.py``.

Each is written from what the package computes: pypantera 1.0.2 (SanText, CusText, TEM), mldp-text 0.1.2 (TEM) and
dp-diffractor 0.2.1. No package is imported; none is fast enough to draw millions of words. Their guarantees do not hold as
claimed where a docstring says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import textpriv
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

BETA = 0.001  # of TEM in both packages
NEAREST = 20  # words that CusText draws among
BLOCK = 1_000  # words whose rows are computed at a time
PLACES = 5  # within which dp-diffractor's TEM draws by distance

Rows = NDArray[np.floating[Any]]


def santext(distances: Rows, epsilon: float) -> Rows:
    """SanText (Yue et al. 2021, eq. 3): ``exp(-epsilon d / 2)`` over all words."""
    return np.exp(-epsilon / 2 * distances)


def custext(distances: Rows, epsilon: float) -> Rows:
    """CusText (Chen et al. 2023): the exponential mechanism among the nearest words, distances over the largest of them."""
    among = np.argpartition(distances, NEAREST - 1, axis=1)[:, :NEAREST]
    near = np.take_along_axis(distances, among, axis=1)
    rows = np.zeros_like(distances)
    kept = np.exp(-epsilon / 2 * near / near.max(axis=1, keepdims=True))
    np.put_along_axis(rows, among, kept, axis=1)
    return rows


def mldp_tem(distances: Rows, epsilon: float) -> Rows:
    """TEM of mldp-text: the words beyond gamma weigh V / L, for L words within it, in place of V - L."""
    size = distances.shape[1]
    gamma = round(2 / epsilon * np.log((1 - BETA) * size / BETA), 1)
    inside = distances <= gamma
    within = inside.sum(axis=1, keepdims=True)
    beyond = size / within * np.exp(-epsilon * gamma / 2) / np.maximum(size - within, 1)
    return np.where(inside, np.exp(-epsilon / 2 * distances), beyond)


def pypantera_tem(distances: Rows, epsilon: float) -> Rows:
    """TEM of pypantera: where the words beyond gamma win, the word itself is released."""
    size = distances.shape[1]
    gamma = 2 / epsilon * np.log((1 - BETA) * (size - 1) / BETA)
    inside = distances <= gamma
    rows = np.where(inside, np.exp(-epsilon / 2 * distances), 0.0)
    # The word itself is at distance 0.
    own = np.arange(len(rows)), distances.argmin(axis=1)
    rows[own] += (size - inside.sum(axis=1)) * np.exp(-epsilon * gamma / 2)
    return rows


def diffractor_geometric(places: Rows, epsilon: float) -> Rows:
    """Two-sided geometric noise on places in a list of words, clipped at its ends."""
    step = np.exp(-epsilon)
    rows = (1 - step) / (1 + step) * np.exp(-epsilon * np.abs(places))
    for end in (places.argmin(axis=1), places.argmax(axis=1)):
        at = np.arange(len(rows)), end
        rows[at] = step ** np.abs(places[at]) / (1 + step)
    return rows


def diffractor_tem(places: Rows, epsilon: float) -> Rows:
    """TEM on places in a list of words, truncated at five of them."""
    return np.exp(-epsilon / 2 * np.minimum(np.abs(places), PLACES))


@cache
def distances_of(index: textpriv.Index) -> NDArray[np.float32]:
    """Distances of all words, shape (V, V): 2.5 GB for the built-in words."""
    found = np.empty((len(index), len(index)), np.float32)
    for start in range(0, len(index), BLOCK):
        some = np.arange(len(index))[start : start + BLOCK]
        found[some] = index.distances_of(some)
    return found


@cache
def places_of(index: textpriv.Index) -> NDArray[np.int64]:
    """The place of each word in dp-diffractor's list: always on to the nearest word not yet in it, among 50."""
    distances, size = distances_of(index), len(index)
    left, place, at = np.ones(size, dtype=bool), np.empty(size, dtype=np.int64), 0
    for step in range(size):
        place[at], left[at] = step, False
        near = np.argsort(distances[at], kind="stable")[: min(50, int(left.sum()) + 1)]
        free = near[left[near]]
        at = int(free[0]) if len(free) else int(left.argmax())
    return place


FORMS: dict[str, tuple[Callable[[Rows, float], Rows], bool]] = {
    "SanText": (santext, False),
    "CusText": (custext, False),
    "TEM of mldp-text": (mldp_tem, False),
    "TEM of pypantera": (pypantera_tem, False),
    "dp-diffractor, geometric": (diffractor_geometric, True),
    "dp-diffractor, TEM": (diffractor_tem, True),
}


class Peer(Mechanism):
    """A mechanism given by the matrix of its output distributions. A word outside the vocabulary becomes any word.

    Parameters
    ----------
    index : Index
        In the space "euclidean".
    epsilon : float
        In the package's own unit.
    form : str
        A name of ``FORMS``.
    """

    def __init__(self, index: textpriv.Index, epsilon: float, form: str) -> None:
        super().__init__(index, epsilon)
        self.form = self.name = form

    @property
    def statement(self) -> PrivacyStatement:
        """None is known to hold."""
        raise NotImplementedError(f"{self.form} is here to be compared, not to be used.")

    def settings(self) -> dict[str, Any]:
        """The form and epsilon."""
        return {"epsilon": self.epsilon, "form": self.form}

    def rows(self, words: NDArray[np.integer]) -> NDArray[np.float32]:
        """Output distributions of some words, shape (len(words), V)."""
        make, by_place = FORMS[self.form]
        if by_place:
            place = places_of(self.index)
            apart = (place - place[words][:, None]).astype(np.float32)
        else:
            apart = distances_of(self.index)[words]
        found = make(apart, self.epsilon)
        return np.asarray(found / found.sum(axis=1, keepdims=True), dtype=np.float32)

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Logarithms of a row."""
        number, size = self.resolve(word), len(self.index)
        if number == UNKNOWN:
            return np.full(size, -np.log(size))
        with np.errstate(divide="ignore"):
            return np.log(self.rows(np.array([number]))[0].astype(np.float64))

    def likeliest_inputs(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For each output the word that it most likely came from, and the joint probability of the two."""
        size = len(self.index)
        guess, most = np.zeros(size, np.int64), np.zeros(size)
        for start in range(0, size, BLOCK):
            some = np.arange(size)[start : start + BLOCK]
            joint = self.rows(some) * prior[some, None].astype(np.float32)
            first, largest = joint.argmax(axis=0), joint.max(axis=0)
            better = largest > most
            guess[better], most[better] = start + first[better], largest[better]
        return guess, most

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw by numpy's generator: for experiments only."""
        seed = np.empty(1, np.uint64)
        streams[0].fill(seed)
        rng, size = np.random.default_rng(seed), len(self.index)
        drawn = rng.integers(size, size=len(ids)).astype(np.int32)
        order = np.argsort(ids, kind="stable")
        bounds = np.searchsorted(ids[order], np.arange(size + 1))
        words = np.unique(ids[ids >= 0])
        for some in np.array_split(words, len(words) // BLOCK + 1):
            for word, row in zip(some, self.rows(some), strict=True):
                begin, end = bounds[word : word + 2]
                law = np.cumsum(row, dtype=np.float64)
                points = rng.random(end - begin) * law[-1]
                drawn[order[begin:end]] = np.searchsorted(law, points, side="right")
        return np.minimum(drawn, size - 1)
