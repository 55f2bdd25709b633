"""Recovery by the better of two attackers, and the largest epsilon at which it is no more than wished.

Epsilons of two mechanisms do not compare; recovery does. One attacker is the exact Bayes attacker on single words. The other
reads words in context by an n-gram model, and a better model may beat it. Everything is computed from public words, public
text and the output distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import OutOfReachError, TextprivError
from textpriv.evaluation.context_recovery import Candidates, context_posterior
from textpriv.evaluation.law import Law
from textpriv.evaluation.recovery import COMMON, content_prior
from textpriv.index.index import Index
from textpriv.language.ngrams import SYMBOLS, NGrams, token_ids
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum
from textpriv.randomness import KeyedStreams

__all__ = [
    "BestAttacker",
    "PublicText",
    "Solution",
    "cautious_epsilon",
    "largest_epsilon",
    "sampled_text",
]

_ATTACKED = 10_000  # tokens of public text at most
_PRECISE = 1e-3  # relative: no epsilon larger by this is left out
_NEAR = 5e-3  # relative distance of a recovery in context from the wanted one that will do
_SAMPLED = 4_000  # words of a text that is drawn where none is given
_NORMAL_95 = 1.96
_CLOSE = 0.05  # relative distance of an estimate's upper end from the wanted share that will do
_AIM = 0.02  # how far below the wanted log-odds the search aims
_SLOPE = 4.0  # of log-odds over log epsilon, before two points are known
_CLOSEST = 4e-3  # relative distance of two epsilons whose estimates differ by noise alone
_TRIES = 16
_WIDEST = 10.0  # in the logarithm: the search goes no farther in one step


class PublicText(NamedTuple):
    """Public documents that the context attacker is tried on, and the public model that it reads them by.

    Attributes
    ----------
    model : NGrams
        Counted in other text than ``ids``.
    ids : ndarray of int32, shape (T,)
        Tokens of all documents as for :meth:`NGrams.of_ids`.
    offsets : ndarray of int64, shape (D + 1,)
    """

    model: NGrams
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def read(cls, texts: Iterable[str], index: Index) -> PublicText:
        """Count a model in four of five texts, and keep the fifth to be attacked, up to 10,000 tokens.

        Raises
        ------
        TextprivError
            For fewer than five texts with words.
        """
        ids, offsets = token_ids(texts, index.vocabulary.words, index.language or "en")
        return cls.of(np.split(ids, offsets[1:-1]), len(index))

    @classmethod
    def of(cls, documents: Iterable[NDArray[np.int32]], size: int) -> PublicText:
        """:meth:`read` for documents of token ids over a vocabulary of ``size`` words."""
        read = [each for each in documents if len(each)]
        if len(read) < 5:
            raise TextprivError(
                f"the context attacker needs at least 5 public texts; got {len(read)}. Give more."
            )
        counted = [each for number, each in enumerate(read) if number % 5]
        model = NGrams.from_ids(np.concatenate(counted), _offsets(counted), size, symbols=SYMBOLS)
        attacked, total = [], 0
        for each in read[::5]:
            attacked.append(each[: _ATTACKED - total])
            total += len(attacked[-1])
            if total >= _ATTACKED:
                break
        return cls(model, np.concatenate(attacked), _offsets(attacked))

    @property
    def digests(self) -> list[str]:
        """Checksums of all that an attack is computed from."""
        arrays: list[NDArray[Any]] = [self.ids, self.offsets, *self.model.arrays]
        return [checksum(each) for each in arrays]


def _offsets(documents: list[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, documents)], dtype=np.int64)


@dataclass(frozen=True)
class BestAttacker:
    """The exact attacker on single words, and with public text the context attacker, too.

    Attributes
    ----------
    prior : ndarray of float64, shape (V,)
        How often each word is written; sums to 1.
    of : {"content", "all"}
        Words that count. Attackers know that a word is a content word.
    text : PublicText, optional
    common : int
        Number of commonest words that are no content words.
    candidates : int
        Words that the context attacker weighs for an output.
    """

    prior: NDArray[np.float64]
    of: str = "content"
    text: PublicText | None = None
    common: int = COMMON
    candidates: int = 32

    def __post_init__(self) -> None:
        if self.of not in ("content", "all"):
            raise TextprivError(f"of= is 'content' or 'all'; got {self.of!r}.")

    @cached_property
    def _counted(self) -> NDArray[np.float64]:
        """How often each word that counts is written."""
        return self.prior if self.of == "all" else content_prior(self.prior, self.common)

    def alone(self, mechanism: Mechanism) -> float:
        """Share of single words that the Bayes attacker recovers.

        Exact, but for a mechanism that reads its context. Then it is an estimate from one draw of the public text: the
        attacker knows what was released before, and weighs the ``candidates`` likeliest words of each output. Without
        public text, it is the share at the start of a document.
        """
        return self.alone_with_error(mechanism)[0]

    def alone_with_error(self, mechanism: Mechanism) -> tuple[float, float]:
        """:meth:`alone`, and its standard error: 0 where it is exact."""
        if mechanism.reads_context and self.text is not None:
            return self._read_alone(mechanism)
        ((_, joint),) = Law(mechanism, self.prior).likeliest([self._counted])
        return float(joint.sum()), 0.0

    def _read_alone(self, mechanism: Mechanism) -> tuple[float, float]:
        """Guess each word that counts from its output and the released words before it."""
        assert self.text is not None
        _, ids, offsets = self.text
        told, counts = self._told()
        released = self.released(mechanism)
        model = self.text.model
        prior = model.probability(np.append(np.arange(model.size), model.tokens - 1))
        prior = prior * (counts > 0)
        candidates = Candidates.of(mechanism, prior, self.candidates, released)
        right = 0
        for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            document = released[first:last]
            places = np.flatnonzero(told[first:last])
            words = candidates.words_at(document[places])
            joint = prior[words] * mechanism.emissions(document, words, places)  # type: ignore[attr-defined]
            guess = words[np.arange(len(words)), joint.argmax(axis=1)]
            originals = ids[first:last][places]
            right += int((guess == np.where(originals < 0, model.size, originals)).sum())
        count = int(told.sum())
        return right / count, math.sqrt(right / count * (1 - right / count) / count)

    def _told(self) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which tokens of the public text count, and how often each word that counts is written."""
        assert self.text is not None
        ids = self.text.ids
        counts = np.append(self._counted, 0.0 if self.of == "content" else 1.0)
        told = (ids >= UNKNOWN) & (counts[np.where(ids < 0, -1, ids)] > 0)
        if not told.any():
            raise TextprivError("the public text has no words of the kind that counts.")
        return told, counts

    def in_context(self, mechanism: Mechanism) -> tuple[float, float]:
        """Share of the public text's words that the context attacker recovers from one draw, and its standard error."""
        assert self.text is not None
        model, ids, offsets = self.text
        told, counts = self._told()
        released = self.released(mechanism)
        # An attacker who knows what is a content word leaves out all others: there is room for more content words.
        prior = model.probability(np.append(np.arange(model.size), model.tokens - 1))
        prior = prior + (counts if self.of == "content" else 0.0)
        candidates = Candidates.of(mechanism, prior, self.candidates, released)
        words = candidates.words_at(released[told])
        shares = context_posterior(released, offsets, candidates, model)[told]
        shares *= counts[words] > 0
        guess = words[np.arange(len(words)), shares.argmax(axis=1)]
        share = float((guess == np.where(ids < 0, model.size, ids)[told]).mean())
        return share, math.sqrt(share * (1 - share) / len(words))

    def released(self, mechanism: Mechanism) -> NDArray[np.int32]:
        """A draw of the public text, shape (T,); it moves little with epsilon, so that a recovery can be met."""
        assert self.text is not None
        _, ids, offsets = self.text
        if mechanism.reads_context:
            keys = KeyedStreams(seed=0)  # nothing here is private
            streams = [keys.stream(f"public text {at}") for at in range(len(offsets) - 1)]
            return mechanism.sample_documents(ids, offsets, streams)
        drawn = ids.copy()
        words = ids >= UNKNOWN
        drawn[words] = Law(mechanism).draws(ids[words], np.random.default_rng(0))
        return drawn

    def success(self, mechanism: Mechanism) -> tuple[float, float]:
        """Share of words that the better attacker recovers, and its standard error: 0 for the exact one."""
        alone = self.alone_with_error(mechanism)
        return alone if self.text is None else max(alone, self.in_context(mechanism))


def sampled_text(model: NGrams, count: int = _SAMPLED, seed: int = 0) -> PublicText:
    """Return words drawn from a public model, all of one document, for attacks where no public text is at hand."""
    drawn = model.sample(count, np.random.default_rng(seed))[0]
    return PublicText(model, drawn, np.array([0, count]))


class Solution(NamedTuple):
    """An epsilon, the recovery at it, and its standard error: 0 where it is exact."""

    epsilon: float
    share: float
    error: float = 0.0


def largest_epsilon(
    make: Callable[[float], Mechanism], wanted: float, attacker: BestAttacker, start: float = 1.0
) -> Solution:
    """Find the largest epsilon at which the attacker recovers at most a share of words.

    Parameters
    ----------
    make : callable
        The mechanism at an epsilon; its recovery must rise with it.
    wanted : float
        In (0, 1).
    attacker : BestAttacker
    start : float
        An epsilon of the right order.

    Returns
    -------
    Solution
        Recovery is at most the wanted one, and above it at an epsilon larger by a thousandth; or, where the context attacker
        is the better one, at most a two-hundredth below it.

    Raises
    ------
    OutOfReachError
        If no epsilon gives it.
    """
    if not 0 < wanted < 1:
        raise TextprivError(f"recovery is a share of words between 0 and 1; got {wanted}.")
    found = _crossing(lambda e: attacker.alone(make(e)), wanted, start)
    if attacker.text is None:
        return found
    read, error = attacker.in_context(make(found.epsilon))
    if read > wanted:
        errors = {read: error}

        def in_context(epsilon: float) -> float:
            share, errors[share] = attacker.in_context(make(epsilon))
            return share

        found = _crossing(in_context, wanted, found.epsilon, read)
        return found._replace(error=errors[found.share])
    return found if read < found.share else found._replace(share=read, error=error)


def cautious_epsilon(
    make: Callable[[float], Mechanism],
    wanted: float,
    success: Callable[[Mechanism], tuple[float, float]],
    start: float = 1.0,
) -> Solution:
    """Find an epsilon at which an estimated recovery is at most a share, even at the upper end of its 95 % interval.

    Parameters
    ----------
    make : callable
        The mechanism at an epsilon; its recovery must rise with it.
    wanted : float
        In (0, 1).
    success : callable
        Estimated recovery from a mechanism, and its standard error.
    start : float
        An epsilon of the right order.

    Raises
    ------
    OutOfReachError
        If none of 16 epsilons gives it.
    """
    if not 0 < wanted < 1:
        raise TextprivError(f"recovery is a share of words between 0 and 1; got {wanted}.")
    below: tuple[float, Solution] | None = None  # how far in log-odds, and the point
    above: tuple[float, float] | None = None
    at, slope = math.log(start), _SLOPE
    for _ in range(_TRIES):
        share, error = success(make(math.exp(at)))
        upper = min(share + _NORMAL_95 * error, 1.0)
        off = _log_odds(upper) - _log_odds(wanted)
        if off > 0:
            above = off, at
        else:
            below = off, Solution(math.exp(at), share, error)
            if upper >= wanted * (1 - _CLOSE):
                break
        if below is None or above is None:
            at += max(-1.0, min(1.0, -(off + _AIM) / slope))
            continue
        low = math.log(below[1].epsilon)
        if above[1] - low < _CLOSEST:
            break
        slope = (above[0] - below[0]) / (above[1] - low)
        part = (-below[0] - _AIM) / (above[0] - below[0])
        at = low + (above[1] - low) * min(max(part, 0.1), 0.9)
    if below is None:
        raise OutOfReachError(
            f"no epsilon was found that gives a recovery of {wanted:g}. Choose a larger one, or another mechanism."
        )
    return below[1]


def _crossing(
    share: Callable[[float], float], wanted: float, start: float, known: float | None = None
) -> Solution:
    """The last point at which a rising share is no more than wanted, by Brent's method on log-odds and log epsilon.

    ``known`` is the share at ``start``, which then is near the point.
    """
    from scipy.optimize import brentq

    seen: dict[float, float] = {} if known is None else {math.log(start): known}

    def ahead(at: float) -> float:
        if at not in seen:
            seen[at] = share(math.exp(at))
        if known is not None and wanted * (1 - _NEAR) <= seen[at] <= wanted:
            return 0.0  # ends the search
        off = _log_odds(seen[at]) - _log_odds(wanted)
        # At the wanted share there may be a later point; above it the log-odds may round to 0.
        return max(off, 1e-12) if seen[at] > wanted else min(off, -1e-12)

    left = right = math.log(start)
    step = math.log(1.5) if known is None else 0.1
    while (above := ahead(left) > 0) or ahead(right) < 0:
        left, right = (left - step, left) if above else (right, right + step)
        step *= 1.5
        if right - left > _WIDEST:
            end = f"least {min(seen.values()):.4g}" if above else f"most {max(seen.values()):.4g}"
            raise OutOfReachError(
                f"no epsilon gives a recovery of {wanted:g}: with these settings it is at {end}. "
                f"Choose a {'larger' if above else 'smaller'} one, or another prior."
            )
    # The bracket that is left is twice as wide as this.
    root = brentq(ahead, left, right, xtol=math.log1p(_PRECISE) * 0.49)
    last = max(at for at, value in seen.items() if at <= root and value <= wanted)
    return Solution(math.exp(last), seen[last])


def _log_odds(share: float) -> float:
    kept = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(kept / (1 - kept))
