"""The share of words that the better of two attackers gets back, and the largest epsilon at which it is no more than wished.

Epsilons of two laws do not compare; what an attacker gets back does (mechanisms.md 10.5). Attackers are the exact Bayes
attacker of lone words (``recovery``), whom nobody beats who reads words one by one, and one who reads words in context by an
n-gram model (``context_recovery``), whom a better model may beat; whoever does better counts.
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
from textpriv.evaluation.recovery import COMMON, content_prior
from textpriv.index.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE, TextEncoder
from textpriv.tokenization.policy import TokenPolicy

__all__ = ["BestAttacker", "PublicText", "Solution", "largest_epsilon"]

_ATTACKED = 10_000  # words of public text at most
_PRECISE = 1e-3  # relative: no epsilon larger by this is left out
_NEAR = 5e-3  # relative: a share in context that is so near to the wanted one will do
_WIDEST = 10.0  # in the logarithm: the search goes no farther in one step


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
        codes = (encoder.encode([text]).codes for text in texts)
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
    """Who tries to get words back: the best there is for lone words, and where there is text a reader in context, too.

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
        """Share of the public text's words that are got back in context, of one draw under a fixed seed, and its error."""
        assert self.text is not None
        model, ids, offsets = self.text
        counts = np.append(self._counted, 0.0) if self.of == "content" else np.ones(model.size + 1)
        told = (ids != UNKNOWN) & (counts[ids] > 0)
        if not told.any():
            raise TextprivError("the public text has no words of the kind that is asked about.")
        released = self.released(mechanism)
        # Who is told that a word is a content word leaves out all others, so there is room for content words.
        weight = model.single + (counts if self.of == "content" else 0.0)
        candidates = Candidates.of(mechanism, weight, self.candidates)
        words = candidates.words[released[told]]
        shares = context_posterior(released, offsets, candidates, model)[told]
        shares *= counts[words] > 0
        guess = words[np.arange(len(words)), shares.argmax(axis=1)]
        share = float((guess == ids[told]).mean())
        return share, math.sqrt(share * (1 - share) / len(words))

    def released(self, mechanism: Mechanism) -> NDArray[np.int32]:
        """The draw of the public text, shape (T,): one that moves little with epsilon, so that a share can be met."""
        assert self.text is not None
        return Law(mechanism).draws(self.text.ids, np.random.default_rng(0))

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
    """Find the largest epsilon at which the attacker gets back at most a share of words.

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
        The share is at most what is wanted, and above it at an epsilon larger by a thousandth; or, where the attacker in
        context is the better one, at most a two-hundredth below it.

    Raises
    ------
    OutOfReachError
        Where no epsilon gives it.
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


def _crossing(
    share: Callable[[float], float], wanted: float, start: float, known: float | None = None
) -> Solution:
    """The last point at which a rising share is no more than wanted, by Brent's method on log-odds and log epsilon.

    What is ``known`` is the share at ``start``, which then is near the point.
    """
    from scipy.optimize import brentq

    seen: dict[float, float] = {} if known is None else {math.log(start): known}

    def ahead(at: float) -> float:
        if at not in seen:
            seen[at] = share(math.exp(at))
        if known is not None and wanted * (1 - _NEAR) <= seen[at] <= wanted:
            return 0.0  # ends the search
        off = _log_odds(seen[at]) - _log_odds(wanted)
        # Where it is what is wanted there may be a later point; and what is above it is so also by less than the odds tell.
        return max(off, 1e-12) if seen[at] > wanted else min(off, -1e-12)

    left = right = math.log(start)
    step = math.log(1.5) if known is None else 0.1
    while (above := ahead(left) > 0) or ahead(right) < 0:
        left, right = (left - step, left) if above else (right, right + step)
        step *= 1.5
        if right - left > _WIDEST:
            end = f"least {min(seen.values()):.4g}" if above else f"most {max(seen.values()):.4g}"
            raise OutOfReachError(
                f"no epsilon lets the attacker get back {wanted:g} of the words: with these settings it is at "
                f"{end}. Choose a {'larger' if above else 'smaller'} share, or another prior."
            )
    # The bracket that is left is twice as wide as this.
    root = brentq(ahead, left, right, xtol=math.log1p(_PRECISE) * 0.49)
    last = max(at for at, value in seen.items() if at <= root and value <= wanted)
    return Solution(math.exp(last), seen[last])


def _log_odds(share: float) -> float:
    kept = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(kept / (1 - kept))
