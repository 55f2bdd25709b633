"""Madlib draws for experiments on whole corpora: documents share a pool of noise, words of one document never do.

An exact nearest-word search for every token of a corpus costs one matrix product a token. Here the products are taken once
for each noise vector of a pool, and every token adds its own word to one of them. Each document, taken alone, has exactly
the law of :class:`textpriv.mechanisms.Madlib`; two documents are not independent. That is good enough to measure accuracy,
and never for a release: documents that share noise betray each other. Nothing here is reachable from a Privatizer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.mechanisms.madlib import Madlib

__all__ = ["POOL", "CoupledMadlib"]

POOL = 4_093  # a prime, so that every stride visits all of the pool before it repeats
_BLOCK = 256  # noise vectors taken at a time
_CLUSTERS = 16


class CoupledMadlib:
    """Coupled draws over one index; its tables serve every epsilon.

    Parameters
    ----------
    index : Index
        With a Euclidean metric.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        points = index.coordinates
        # A common shift changes no difference; small numbers round less.
        self.points = (points - points.mean(axis=0, dtype=np.float64)).astype(np.float32)
        squares = np.einsum("ij,ij->i", self.points, self.points, dtype=np.float64)
        self.halves = (squares / 2).astype(np.float32)

    @cached_property
    def _limits(self) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """The cluster of each word, and for each cluster the least and largest product of its words with every word."""
        from scipy.cluster.vq import kmeans2, vq

        size = len(self.points)
        rng = np.random.default_rng(0)
        sample = self.points[rng.choice(size, min(size, 4000), replace=False)]
        count = min(_CLUSTERS, len(sample))
        centres, _ = kmeans2(sample, count, iter=5, minit="points", rng=rng)
        cluster = vq(self.points, centres)[0].astype(np.int32)
        least = np.full((count, size), np.inf, dtype=np.float32)
        largest = np.full((count, size), -np.inf, dtype=np.float32)
        for group in range(count):
            words = np.flatnonzero(cluster == group)
            for start in range(0, len(words), 1024):
                products = self.points[words[start : start + 1024]] @ self.points.T
                np.minimum(least[group], products.min(axis=0), out=least[group])
                np.maximum(largest[group], products.max(axis=0), out=largest[group])
        return cluster, least, largest

    def draw(
        self,
        epsilon: float,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        *,
        seed: int,
        pool: int = POOL,
    ) -> NDArray[np.int32]:
        """Draw one output for every token; the noise of one document is independent, that of two is not.

        Parameters
        ----------
        epsilon : float
        ids : ndarray of int32, shape (T,)
            Word ids of all documents, one after the other; -1 is an unknown word.
        offsets : ndarray of int64, shape (D + 1,)
            Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
        seed : int
            Of a predictable generator: the draws are for experiments only.
        pool : int
            Noise vectors, a prime. No document may be longer.

        Returns
        -------
        ndarray of int32, shape (T,)

        Raises
        ------
        MechanismError
            For a document longer than the pool, and an epsilon or metric that Madlib refuses.
        """
        mechanism = Madlib(self.index, epsilon, search="exact")
        lengths = np.diff(offsets)
        if len(lengths) and lengths.max() > pool:
            raise MechanismError(
                f"document {int(lengths.argmax())} has {int(lengths.max())} tokens and the pool {pool} noise "
                "vectors; take a larger prime."
            )
        rng = np.random.default_rng(seed)
        dimension = self.points.shape[1]
        out = np.empty(len(ids), dtype=np.int32)
        # Strides are coprime to the prime pool, so no document meets a noise vector twice.
        start = np.repeat(rng.integers(0, pool, len(lengths)), lengths)
        stride = np.repeat(rng.integers(1, pool, len(lengths)), lengths)
        position = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
        noise = ((start + stride * position) % pool).astype(np.int32)
        known, unknown = np.flatnonzero(ids >= 0), np.flatnonzero(ids < 0)
        cluster, least, largest = self._limits
        order = known[np.lexsort((cluster[ids[known]], noise[known]))]
        bounds = np.searchsorted(noise[order], np.arange(pool + 1))
        for first in range(0, pool, _BLOCK):
            last = min(first + _BLOCK, pool)
            direction = rng.standard_normal((last - first, dimension))
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            radius = rng.gamma(dimension, 1 / mechanism.epsilon, last - first)
            moved = (direction * radius[:, None]).astype(np.float32)
            scores = moved @ self.points.T - self.halves
            # An unknown word stands at the centre, which is the origin of these points.
            here = unknown[(noise[unknown] >= first) & (noise[unknown] < last)]
            out[here] = scores.argmax(axis=1)[noise[here] - first]
            _answer(
                scores,
                self.points,
                cluster,
                least,
                largest,
                ids,
                order,
                bounds[first : last + 1],
                out,
            )
        return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _answer(
    scores: NDArray[np.float32],
    points: NDArray[np.float32],
    cluster: NDArray[np.int32],
    least: NDArray[np.float32],
    largest: NDArray[np.float32],
    ids: NDArray[np.int32],
    order: NDArray[np.int64],
    bounds: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Write the nearest word of every token of some noise vectors; tokens come by noise, then by cluster."""
    size = scores.shape[1]
    rivals = np.empty(size, np.int64)
    for row in range(scores.shape[0]):
        score = scores[row]
        group, count = -1, 0
        for position in range(bounds[row], bounds[row + 1]):
            word = ids[order[position]]
            if cluster[word] != group:
                group = cluster[word]
                low, high = least[group], largest[group]
                # Some word scores at least this under every word of the cluster; the slack is for rounding.
                floor = np.float32(-np.inf)
                for other in range(size):
                    floor = max(floor, score[other] + low[other])
                floor -= np.float32(1e-4) * (np.float32(1.0) + abs(floor))
                count = 0
                for other in range(size):
                    if score[other] + high[other] >= floor:
                        rivals[count] = other
                        count += 1
            best, chosen = np.float32(-np.inf), -1
            for rival in rivals[:count]:
                total = score[rival]
                for j in range(points.shape[1]):
                    total += points[word, j] * points[rival, j]
                if total > best:
                    best, chosen = total, rival
            out[order[position]] = chosen
