"""Permute-and-flip on words: every word flips a coin, and one of those that came up is released.

Source: mechanisms.md 3.3; the mechanism of McKenna and Sheldon 2020 with a truncated distance as its score. Each word y
other than the input w is accepted by itself with probability ``exp(-epsilon / 2 min(d(w, y), gamma))``, and a uniform
element of w and the accepted words is released. That is the noisy maximum of the scores under exponential noise, which
costs the same as TEM at rate epsilon / 2 and keeps the input at least as often. It is right for the uniform base measure
only.

A draw does not toss every coin. Let each word flip at a uniform time of its own: the first that is accepted is released.
The input and the words of its nearest list toss their coins, and the first of those that came up has the time T of the
smallest of as many uniform numbers. Outside the list, where no acceptance exceeds that of the list's edge, b, the accepted
times are thinned from a Poisson process of rate ``b / (1 - b s)`` a word, which is followed up to T or the first accepted
word. That takes at most some V / k candidates on average, and few where many words are accepted.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp, expm1, exps, log, log1p
from textpriv.index.index import Index
from textpriv.index.quantized import leading_squares, surely_beyond
from textpriv.mechanisms.base import UNKNOWN, Mechanism, positive
from textpriv.mechanisms.base_measure import bernoulli
from textpriv.mechanisms.sampling import ROOM, draw_documents, drawn_distances, listed
from textpriv.mechanisms.tem import LARGEST_EXPONENT, truncation
from textpriv.metrics import INTERPRETED, row_distance
from textpriv.randomness import RandomWords, Stream
from textpriv.statement import PrivacyStatement, UnsoundWarning

__all__ = ["PermuteAndFlip", "configure"]

# Coins of one bound are tossed together: how many at most. A skip over so many is inverted to a relative error of
# 1e-10 in the probability of each.
_SPAN = 1 << 16
_SPARE = 32  # random words a token read ahead
_FINE = 2.0**-20  # the probability below which a coin takes a second random word

# The law is an integral over [0, 1] of a product that falls like exp(-u E[N]) or faster: it is cut where the product has
# fallen by some nats, and left off where it has fallen by many.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_FALL, _NOTHING = 4.0, 45.0


class PermuteAndFlip(Mechanism):
    """Permute-and-flip with the truncated distance as its score: exact draws, uniform base measure.

    Parameters
    ----------
    index : Index
        With exact lists; approximate ones void the proof, and the statement says so.
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    gamma : float, optional
        Truncation of the distance. Default: that of TEM, Theorem 3 from ``beta``; the probability of leaving it is lower
        here. At most 60 / epsilon in any case.
    beta : float
        Used by the default gamma.

    Attributes
    ----------
    t : float
        The rate, epsilon / 2.
    gamma : float
        The truncation in use.

    Raises
    ------
    MechanismError
        For parameters without meaning.

    Notes
    -----
    With a metric of the user's own every draw tosses the coins of a full row.
    """

    name = "PermuteAndFlip"
    needs_exact_lists = True

    def __init__(
        self, index: Index, epsilon: float, gamma: float | None = None, beta: float = 1e-3
    ) -> None:
        super().__init__(index, epsilon)
        if not index.exact:
            warnings.warn(
                f"PermuteAndFlip over approximate lists (recall {index.recall:.4f}) has no proved guarantee: a missed "
                "neighbour voids it. Build the index with backend='exact'.",
                UnsoundWarning,
                stacklevel=2,
            )
        self.t = self.epsilon / 2
        self.beta = beta
        self._gamma = gamma
        wanted = (
            truncation(beta, len(index), self.t)
            if gamma is None
            else positive("gamma", gamma, infinite=True)
        )
        self.gamma = min(wanted, LARGEST_EXPONENT / self.t)
        self._rows: OrderedDict[int, _Row] = OrderedDict()
        self._lock = threading.Lock()

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {"epsilon": self.epsilon, "gamma": self._gamma, "beta": self.beta}

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides: the rate and the truncation."""
        return {**super().drawn_from(), "law": [self.t, self.gamma]}

    def __repr__(self) -> str:
        return f"PermuteAndFlip(epsilon={self.epsilon:g}, gamma={self.gamma:.4g})"

    # The law

    def distances(self, word: int) -> NDArray[np.float64]:
        """Distances by which a word's law is drawn, shape (V,): true ones, with exact lists."""
        return drawn_distances(self.index, word)

    def _exponents(self, word: int) -> NDArray[np.float64]:
        """Minus the logarithm of every acceptance, shape (V,); exactly 0 at the input."""
        exponents = self.t * np.minimum(self.distances(word), self.gamma)
        exponents[self.index.representatives[word]] = 0.0
        return exponents

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,), to about 1e-12."""
        number = self.resolve(word)
        if number == UNKNOWN:
            return np.full(len(self.index), -math.log(len(self.index)))
        return _log_law(self._exponents(number), int(self.index.representatives[number]))

    # Draws

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        index = self.index
        lists = index.neighbours.ids, index.neighbours.distances
        tables = index.coordinates, index.representatives, *lists, *index.quantized
        sampler = partial(_sample, index.metric.kind, *tables, self.t, self.gamma, ids, offsets)
        out, deferred = draw_documents(sampler, offsets, streams, _SPARE)
        for token, key in deferred:
            out[token] = self._draw_from_row(int(ids[token]), key)
        return out

    def _draw_from_row(self, word: int, key: bytes) -> int:
        """Toss the coin of every word with a stream of the token's own."""
        number = int(self.index.representatives[word])
        with self._lock:
            row = self._rows.get(number)
            if row is None:
                row = self._rows[number] = _Row(self._exponents(number))
                if len(self._rows) > 64:
                    self._rows.popitem(last=False)
            else:
                self._rows.move_to_end(number)
        return row.draw(Stream(key))

    # The guarantee

    @property
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word and any word of the vocabulary, in nats (mechanisms.md TEM-6)."""
        return self.t * min(self.index.diameter_bound, self.gamma)

    @property
    def worst_word_loss(self) -> float:
        """Largest loss between any two words, in nats (mechanisms.md TEM-12)."""
        return self.epsilon * min(self.index.diameter_bound, self.gamma)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        return self._stated(
            f"PermuteAndFlip (epsilon {self.epsilon:g}, gamma {self.gamma:.4g})",
            "1-Lipschitz score, noisy maximum with exponential noise: mechanisms.md 3.3",
            "words, vectors and metric",
            self.worst_word_loss,
            self.unknown_word_loss,
            # Scores move by 2 tau more, at twice the rate, distances beyond gamma being all alike. A relative error r of
            # every acceptance changes a law by at most 3 r of itself, and r is below 1e-9.
            numerical_slack=4 * self.t * self.index.rounding.at(self.gamma) + 1e-8,
        )


def configure(
    epsilon: float, gamma: float | None = None, beta: float = 1e-3
) -> Callable[[Index], PermuteAndFlip]:
    """Registered as ``textpriv.PermuteAndFlip.v1``: settings of one that is made when its index is known."""
    return partial(PermuteAndFlip, epsilon=epsilon, gamma=gamma, beta=beta)


def _log_law(exponents: NDArray[np.float64], own: int) -> NDArray[np.float64]:
    """Logarithm of the law with acceptances ``a = exp(-exponents)``, of which the input's own is certain.

    A word that is accepted wins against N others with probability ``E[1 / (1 + N)]``, the integral over u in [0, 1] of
    ``E[(1 - u)^N]``, which is the product of ``1 - a_i u`` over the others.
    """
    accept = np.exp(-exponents)
    others = np.delete(accept, own)
    mean = float(others.sum())
    kept, won = 0.0, np.zeros(len(accept))
    left, fallen = 0.0, 0.0
    right = min(1.0, _FALL / mean) if mean > 0 else 1.0
    while True:
        with np.errstate(divide="ignore"):
            at_right = -float(np.log1p(-others * right).sum())
        pieces = max(1, math.ceil(min(at_right - fallen, _NOTHING) / _FALL))
        cuts = np.linspace(left, right, pieces + 1)
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            u = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
            product = np.exp(np.log1p(-np.outer(others, u)).sum(axis=0))
            product *= 0.5 * (high - low) * _WEIGHTS
            kept += float(product.sum())
            # Another word's own coin leaves the product, and the input, which is certain, enters it.
            won += ((1 - u) / (1 - np.outer(accept, u))) @ product
        if right >= 1.0 or at_right >= _NOTHING:
            break
        left, fallen, right = right, at_right, min(1.0, 2 * right)
    law: NDArray[np.float64] = np.log(won) - exponents
    law[own] = math.log(kept)
    return law


class _Row:
    """The coins of all words for one input, as thresholds of 64-bit integers; the same coins as ``bernoulli``."""

    def __init__(self, exponents: NDArray[np.float64]) -> None:
        accept = exps(-exponents)
        self.certain = accept >= 1.0
        self.fine = accept >= _FINE
        first = np.where(self.fine, accept * 2.0**64, 2.0**44)
        self.first = np.where(self.certain, 0.0, first).astype(np.uint64)
        self.second = np.where(self.fine, 0.0, accept * 2.0**84).astype(np.uint64)

    def draw(self, stream: Stream) -> int:
        """A uniform element of the words whose coins came up."""
        passed = self.certain | (stream.words(len(self.first)) < self.first)
        undecided = np.flatnonzero(passed & ~self.fine)
        passed[undecided] = stream.words(len(undecided)) < self.second[undecided]
        accepted = np.flatnonzero(passed)
        return int(accepted[int(stream.words(1)[0]) % len(accepted)])


@njit(cache=True, nogil=True)
def _next(bound: float, slots: int, random: NDArray[np.uint64], at: int) -> tuple[int, bool, int]:
    """The first candidate among slots that are candidates with one probability each, all alike and independent.

    Returns how many slots were passed, whether a candidate follows them, and the next random word. Not all slots need be
    passed when there is none: the others are left to the next call.
    """
    if bound >= 0.5:
        is_candidate = bernoulli(bound, random[at], random[at + 1])
        return (0 if is_candidate else 1), is_candidate, at + 2
    length = np.int64(min(np.float64(min(slots, _SPAN)), 1.0 / bound))
    none = log1p(-bound)
    some = -expm1(length * none)
    if not bernoulli(some, random[at], random[at + 1]):
        return length, False, at + 2
    # Given that there is one, its position has a truncated geometric law, inverted.
    point = np.float64(random[at + 2]) * 2.0**-64 * some
    return min(np.int64(log1p(-point) / none), length - 1), True, at + 3


@njit(cache=True, nogil=True)
def _uniform(first: np.uint64, second: np.uint64) -> float:
    """Uniform on [0, 1), with the digits of a small number; the second word refines it."""
    if first >> np.uint64(44) == np.uint64(0):
        return np.float64(second) * 2.0**-84
    return min(np.float64(first) * 2.0**-64, 1.0 - 2.0**-53)


@njit(cache=True, nogil=True)
def _coins_of_list(
    neighbours: NDArray[np.int32],
    distances: NDArray[Any],
    word: int,
    t: float,
    gamma: float,
    random: NDArray[np.uint64],
    at: int,
    end: int,
    accepted: NDArray[np.int32],
) -> tuple[int, int]:
    """Toss the coins of a word's list; return how many came up, filled into ``accepted``, and the next random word.

    Where the random words end before the list does, the next one lies beyond ``end``.
    """
    k = neighbours.shape[1]
    count, slot = 0, 0
    # Along the list acceptances fall: those that follow are candidates with the probability of the first of them.
    while slot < k and at <= end:
        nearest = min(np.float64(distances[word, slot]), gamma)
        passed, is_candidate, at = _next(exp(-t * nearest), k - slot, random, at)
        slot += passed
        if is_candidate:
            further = min(np.float64(distances[word, slot]), gamma) - nearest
            if further > 0.0:
                is_candidate = bernoulli(exp(-t * further), random[at], random[at + 1])
                at += 2
            if is_candidate:
                accepted[count] = neighbours[word, slot]
                count += 1
            slot += 1
    return count, at


@njit(cache=True, nogil=True)
def _unlisted_winner(
    kind: int,
    coordinates: NDArray[Any],
    neighbours: NDArray[np.int32],
    distances: NDArray[Any],
    rows: NDArray[np.int8],
    leading: int,
    scales: NDArray[np.float64],
    t: float,
    gamma: float,
    word: int,
    count: int,
    random: NDArray[np.uint64],
    at: int,
    end: int,
) -> tuple[int, int]:
    """The word outside the list that comes before the first of ``count`` accepted ones, and the next random word.

    It is -1 where there is none, and -2 where the random words ran out.
    """
    size, k = coordinates.shape[0], neighbours.shape[1]
    # Rounded down, so that no word outside the list is nearer than the edge.
    edge = min(np.float64(distances[word, k - 1]) * (1.0 - 2.0**-23), gamma)
    reach = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
    bound = exp(-t * edge)
    first = -expm1(log1p(-_uniform(random[at], random[at + 1])) / count)
    at += 2
    # Times s are measured by -ln(1 - b s), in which the process of candidates is uniform.
    until = -log1p(-bound * first)
    now = 0.0
    while at <= end:
        now -= log1p(-_uniform(random[at], random[at + 1])) / size
        if now >= until:
            return -1, at + 2
        candidate = np.int64(random[at + 2] % np.uint64(size))
        coin = at + 3
        at += 5
        # A candidate of acceptance a = r b is one with probability (a / (1 - a s)) / (b / (1 - b s)).
        left = exp(-now)
        part_of_one = np.float64(random[coin]) * 2.0**-64
        if rows.shape[0] > 0 and part_of_one >= 2.0**-19:
            # Most words are too far for this coin, as their quantized rows tell.
            least = part_of_one / (left + part_of_one * (1.0 - left))
            limit = max(edge - log(least) / t, reach)
            squares = leading_squares(rows, leading, word, candidate)
            if limit < gamma and surely_beyond(squares, limit, scales[0], scales[1]):
                continue
        unlisted, beyond = False, 0.0
        if edge < gamma:
            distance = row_distance(kind, coordinates, np.int64(word), coordinates, candidate)
            unlisted = distance > reach
            beyond = max(min(distance, gamma) - edge, 0.0)
        # A word of the list has had its turn.
        if unlisted or not listed(neighbours, np.int64(word), candidate):
            ratio = exp(-t * beyond) * left
            accepts = ratio / (ratio - expm1(-t * beyond))
            if bernoulli(accepts, random[coin], random[coin + 1]):
                return candidate, at
    return -2, at


@njit(cache=True, nogil=True)
def _sample(
    kind: int,
    coordinates: NDArray[Any],
    representatives: NDArray[np.int32],
    neighbours: NDArray[np.int32],
    distances: NDArray[Any],
    rows: NDArray[np.int8],
    leading: int,
    scales: NDArray[np.float64],
    t: float,
    gamma: float,
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> list[tuple[int, int]]:
    """Draw until a document is finished or its random words run out; a token that ran out starts over with the same.

    Returns the tokens to be drawn from full rows, each with the offset of its four random words.
    """
    size, k = coordinates.shape[0], neighbours.shape[1]
    deferred = [(np.int64(0), np.int64(0)) for _ in range(0)]
    accepted = np.empty(k, dtype=np.int32)
    for document_slot in range(pending.shape[0]):
        document, at = pending[document_slot], starts[document_slot]
        end = starts[document_slot + 1] - ROOM
        token = done[document]
        while token < offsets[document + 1]:
            start = at
            if at > end:
                break
            if ids[token] < 0:
                out[token] = random[at] % np.uint64(size)
                at += 1
                token += 1
                continue
            if kind == INTERPRETED:
                deferred.append((np.int64(token), np.int64(at)))
                at += 4
                token += 1
                continue
            word = representatives[ids[token]]
            count, at = _coins_of_list(
                neighbours, distances, word, t, gamma, random, at, end, accepted
            )
            chosen = -1 if at <= end else -2
            if chosen == -1 and k < size:
                chosen, at = _unlisted_winner(
                    kind,
                    coordinates,
                    neighbours,
                    distances,
                    rows,
                    leading,
                    scales,
                    t,
                    gamma,
                    word,
                    count,
                    random,
                    at,
                    end,
                )
            if chosen == -2:
                at = start
                break
            if chosen < 0:
                # A remainder of 64 bits: the choice is uniform to 2^-40 of itself.
                chosen = accepted[np.int64(random[at] % np.uint64(count))]
                at += 1
            out[token] = chosen
            token += 1
        done[document] = token
        position[document_slot] = at
    return deferred
