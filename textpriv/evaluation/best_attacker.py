"""The share of words that the best attacker gets back, and the largest epsilon at which that is no more than wished.

Epsilons of two laws do not compare; what an attacker gets back does (mechanisms.md 10.5). Attackers are the exact Bayes
attacker of lone words (``recovery``) and one who reads words in context (``context_recovery``); whoever does better counts.
Everything is computed from public words, public text and the law.
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
from textpriv.evaluation.ngrams import NGrams
from textpriv.evaluation.recovery import COMMON, content_prior
from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE, TextEncoder
from textpriv.tokenization.policy import TokenPolicy

__all__ = ["BestAttacker", "PublicText", "Solution", "largest_epsilon"]

_ATTACKED = 10_000  # words of public text at most
_PRECISE = 1e-3  # relative: no epsilon larger by this is left out
_COARSE = 2e-2  # the same in context, where draws of some thousand words say no more
_FARTHEST = 60  # evaluations of a search at most


class PublicText(NamedTuple):
    """Public documents that an attacker in context is tried on, and the public model that he reads them by.

    Attributes
    ----------
    model : NGrams
        Counted in other text than ``ids``.
    ids : ndarray of int32, shape (T,)
        Of all documents, one after the other; ``UNKNOWN`` for words outside the vocabulary.
    offsets : ndarray of int64, shape (D + 1,)
    """

    model: NGrams
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def read(cls, texts: Iterable[str], index: Index) -> PublicText:
        """Read public texts in the words of an index; see :meth:`of`."""
        encoder = TextEncoder(
            index.vocabulary.words, TokenPolicy(), index.language or DEFAULT_LANGUAGE
        )
        codes = (encoder.encode(text).codes for text in texts)
        return cls.of((each[each >= UNKNOWN] for each in codes), len(index))

    @property
    def digests(self) -> list[str]:
        """Checksums of all that an attack is computed from."""
        arrays: list[NDArray[Any]] = [self.ids, self.offsets, *self.model.arrays]
        return [checksum(each) for each in arrays]

    @classmethod
    def of(cls, documents: Iterable[NDArray[np.int32]], size: int) -> PublicText:
        """Count a model in four of five documents, and keep the fifth to be attacked, up to 10,000 words.

        Parameters
        ----------
        documents : iterable of ndarray of int32
            Word ids below ``size``; ``UNKNOWN`` for other words.

        Raises
        ------
        TextprivError
            For fewer than five documents with words.
        """
        read = [each for each in documents if len(each)]
        if len(read) < 5:
            raise TextprivError(
                f"an attack in context takes public text of at least 5 documents, a part to count in and a part to attack; "
                f"got {len(read)}."
            )
        counted = [each for number, each in enumerate(read) if number % 5]
        model = NGrams.train(np.concatenate(counted), _offsets(counted), size)
        attacked, total = [], 0
        for each in read[::5]:
            attacked.append(each[: _ATTACKED - total])
            total += len(attacked[-1])
            if total >= _ATTACKED:
                break
        return cls(model, np.concatenate(attacked), _offsets(attacked))


def _offsets(documents: list[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, documents)], dtype=np.int64)


@dataclass(frozen=True)
class BestAttacker:
    """Who tries to get words back.

    Attributes
    ----------
    prior : ndarray of float64, shape (V,)
        How often each word is written; sums to 1.
    of : {"content", "all"}
        Which words count: all but the commonest, by an attacker who is told that a lone word is one, or all.
    text : PublicText, optional
        Without it words are attacked alone.
    common : int
        How many of the commonest words are no content words.
    candidates : int
        Words that the attacker in context weighs for an output.
    """

    prior: NDArray[np.float64]
    of: str = "content"
    text: PublicText | None = None
    common: int = COMMON
    candidates: int = 32

    def __post_init__(self) -> None:
        if self.of not in ("content", "all"):
            raise TextprivError(f"of= is 'content' or 'all'; got {self.of!r}.")

    def alone(self, mechanism: Mechanism) -> float:
        """Share of running words that the Bayes attacker gets back, exactly."""
        law = Law(mechanism, self.prior)
        return float(law.likeliest(self._counted)[1].sum())

    @cached_property
    def _counted(self) -> NDArray[np.float64]:
        """How often each word that counts is written."""
        return self.prior if self.of == "all" else content_prior(self.prior, self.common)

    def in_context(self, mechanism: Mechanism) -> tuple[float, float]:
        """Share of the public text's words that are got back in context, of one draw under a fixed key, and its error."""
        assert self.text is not None
        model, ids, offsets = self.text
        counts = np.append(self._counted, 0.0) if self.of == "content" else np.ones(model.size + 1)
        told = (ids != UNKNOWN) & (counts[ids] > 0)
        if not told.any():
            raise TextprivError("the public text has no words of the kind that is asked about.")
        released = mechanism.sample(ids, np.random.default_rng(0))
        # Who is told that a word is a content word leaves out all others, so there is room for content words.
        weight = model.single + (counts if self.of == "content" else 0.0)
        candidates = Candidates.of(mechanism, weight, self.candidates)
        words = candidates.words[released[told]]
        shares = context_posterior(released, offsets, candidates, model)[told]
        shares *= counts[words] > 0
        guess = words[np.arange(len(words)), shares.argmax(axis=1)]
        share = float((guess == ids[told]).mean())
        return share, math.sqrt(share * (1 - share) / len(words))

    def success(self, mechanism: Mechanism) -> tuple[float, float]:
        """The share of words that the better of the two gets back, and its standard error: 0 for the exact one."""
        alone = self.alone(mechanism), 0.0
        return alone if self.text is None else max(alone, self.in_context(mechanism))


class Solution(NamedTuple):
    """An epsilon, the share of words that is got back at it, and the standard error of that: 0 where it is exact."""

    epsilon: float
    share: float
    error: float = 0.0


def largest_epsilon(
    make: Callable[[float], Mechanism], wanted: float, attacker: BestAttacker, start: float = 1.0
) -> Solution:
    """Find the largest epsilon at which the best attacker gets back at most a share of words.

    Parameters
    ----------
    make : callable
        The mechanism at an epsilon; the share that is got back of it must rise with it.
    wanted : float
        In (0, 1).
    attacker : BestAttacker
    start : float
        An epsilon of the right order.

    Returns
    -------
    Solution
        The share is at most what is wanted, and above it at an epsilon larger by a thousandth, or by a fiftieth where the
        attacker in context is the better one.

    Raises
    ------
    OutOfReachError
        Where no epsilon gives it.
    """
    if not 0 < wanted < 1:
        raise TextprivError(f"recovery is a share of words between 0 and 1; got {wanted}.")
    found = _crossing(lambda e: attacker.alone(make(e)), wanted, start, _PRECISE)
    if attacker.text is None:
        return found
    read, error = attacker.in_context(make(found.epsilon))
    if read > wanted:
        above = found.epsilon, read
        found = _crossing(
            lambda e: attacker.in_context(make(e))[0], wanted, found.epsilon, _COARSE, above
        )
        return found._replace(error=error)
    return found if read < found.share else found._replace(share=read, error=error)


def _crossing(
    share: Callable[[float], float],
    wanted: float,
    start: float,
    precision: float,
    above: tuple[float, float] | None = None,
) -> Solution:
    """The last point at which a rising share is no more than wanted, by the secant of its log-odds, kept in a bracket."""
    low: tuple[float, float] | None = None
    high = above
    at = start if above is None else start * 0.9
    seen: list[float] = []
    for _ in range(_FARTHEST):
        value = share(at)
        seen.append(value)
        if value <= wanted:
            low = at, value
        else:
            high = at, value
        if low is not None and high is not None:
            if high[0] <= low[0] * (1 + precision):
                return Solution(*low)
            at = _between(low, high, wanted, precision)
        elif low is not None and at < start * 2.0**40:
            at *= 1.5
        elif low is None and at > start * 2.0**-40:
            at /= 1.5
        else:
            break
    raise OutOfReachError(
        f"no epsilon lets the best attacker get back {wanted:g} of the words: with these settings it runs from about "
        f"{min(seen):.4g} to {max(seen):.4g}. Choose a share between them, or another prior."
    )


def _between(
    low: tuple[float, float], high: tuple[float, float], wanted: float, precision: float
) -> float:
    """Where the log-odds of a share, straight in the logarithm of epsilon, are those wanted; half a step to either side."""

    def odds(share: float) -> float:
        kept = min(max(share, 1e-12), 1 - 1e-12)
        return math.log(kept / (1 - kept))

    left, right = math.log(low[0]), math.log(high[0])
    rise = odds(high[1]) - odds(low[1])
    part = (odds(wanted) - odds(low[1])) / rise if rise > 0 else 0.5
    step = math.log1p(precision) * 0.45
    at = left + part * (right - left)
    # Beyond the nearer end by less than the precision, so that the next step closes the bracket from the other side.
    at = at + step if part > 0.5 else at - step
    room = min(step, (right - left) / 2)
    return math.exp(min(max(at, left + room), right - room))
