"""Recovery by the better of two attackers, and the largest epsilon at which a share is no more than wanted.

One attacker is the exact Bayes attacker on single words. The other reads words in context by an n-gram model. Its rate is an
estimate on one text, and a better model may beat it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import OutOfReachError, TextprivError
from textpriv.evaluation.context_recovery import ContextModel
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.evaluation.recovery import content_prior
from textpriv.index.index import Index
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import NGrams, token_ids
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum
from textpriv.randomness import KeyedStreams

__all__ = ["BestAttacker", "PublicText", "Solution", "largest_epsilon", "sampled_text", "text_of"]

NORMAL_95 = 1.96  # standard errors from an estimate to the upper end of its 95 % interval
_ATTACKED = 10_000  # tokens of public text at most
_SAMPLED = 4_000  # words of a text that is drawn where none is given
_READ = 10_000  # words of one on which a rate is measured that is shown
_WEIGHED = 64  # candidates of a word for it
# Relative distances of an estimated share from the wanted one that will do.
_CLOSE = 5e-3
_CLOSE_WITH_MARGIN = 5e-2
_WIDEST = 10.0  # in the logarithm: the search goes no farther in one step

# The share of words that are recovered, and its standard error: 0 where it is exact.
Rate = tuple[float, float]


class PublicText(NamedTuple):
    """Public documents that the context attacker is tried on, and a public model of other text that it reads them by."""

    model: NGrams
    ids: NDArray[np.int32]  # (T,): tokens of all documents as for :meth:`NGrams.of_ids`
    offsets: NDArray[np.int64]  # (D + 1,)

    @classmethod
    def read(cls, texts: Iterable[str], index: Index) -> PublicText:
        """Count a model in four of five texts, and keep the fifth to be attacked, up to 10,000 tokens."""
        ids, offsets = token_ids(texts, index.vocabulary)
        read = [each for each in np.split(ids, offsets[1:-1]) if len(each)]
        if len(read) < 5:
            raise TextprivError(
                f"the context attacker needs at least 5 public texts; got {len(read)}. Give more."
            )
        counted = [each for number, each in enumerate(read) if number % 5]
        model = NGrams.from_ids(np.concatenate(counted), _offsets(counted), len(index))
        attacked, ends = np.concatenate(read[::5]), _offsets(read[::5])
        return cls(model, attacked[:_ATTACKED], np.unique(ends.clip(max=_ATTACKED)))

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
    is_content : ndarray of bool, shape (V,), or None
        The words that count, as ``index.vocabulary.is_content``; attackers know that a word is one of them. None: all words.
    text : PublicText, optional
    candidates : int
        Words that the context attacker weighs for an output.
    """

    prior: NDArray[np.float64]
    is_content: NDArray[np.bool_] | None
    text: PublicText | None = None
    candidates: int = 32

    @cached_property
    def _counted(self) -> NDArray[np.float64]:
        """How often each word that counts is written."""
        return self.prior if self.is_content is None else content_prior(self.prior, self.is_content)

    def alone(self, mechanism: Mechanism) -> Rate:
        """Return the share of words recovered without the text after them, and its standard error: 0 where it is exact.

        For a mechanism that reads its context it is an estimate from one draw of the public text, by the best of three
        attackers. They name the released word itself, the likeliest original by itself, and the likeliest after all words
        released so far (a forward filter). Without public text, it is the share at the start of a document.
        """
        if mechanism.reads_context and self.text is not None:
            model = self.text.model
            single = NGrams.from_probabilities(model.size, model.symbols, model.weights[0])
            read = [self._read(mechanism, each, later=False) for each in (single, model)]
            return max(self._share(self.released(mechanism)), *read)
        joint = OutputDistribution(mechanism).likeliest(self._counted)[1]
        return float(joint.sum()), 0.0

    def in_context(self, mechanism: Mechanism) -> Rate:
        """Return the share of the public text's words that the context attacker recovers, and its standard error."""
        assert self.text is not None
        return self._read(mechanism, self.text.model, later=True)

    def reader(self, mechanism: Mechanism) -> Rate | None:
        """Return :meth:`in_context` as it is shown, on 10,000 drawn words where there is no public text.

        None where general English does not have half of its words in the vocabulary, and there is no other model.
        """
        text, index = self.text, mechanism.index
        if text is None:
            text = text_of(index, shown=True)
            if index.model is None and text.model.weights[0][: len(index)].sum() < 0.5:
                return None
        return replace(self, text=text, candidates=_WEIGHED).in_context(mechanism)

    def success(self, mechanism: Mechanism) -> Rate:
        """Return the share of words that the better attacker recovers, and its standard error."""
        alone = self.alone(mechanism)
        return alone if self.text is None else max(alone, self.in_context(mechanism))

    def _counts(self, words: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether words count; V and negative ids are unknown words, which are no content words."""
        counted = np.append(self._counted > 0, self.is_content is None)
        return counted[np.where(words < 0, -1, words)]

    def _share(self, guess: NDArray[np.integer]) -> Rate:
        """Return the share of the public text's words that count and are guessed right, and its standard error."""
        assert self.text is not None
        ids = self.text.ids
        told = (ids >= UNKNOWN) & self._counts(ids)
        if not told.any():
            raise TextprivError("the public text has no words of the kind that counts.")
        share = float((guess == np.where(ids < 0, len(self.prior), ids))[told].mean())
        return share, math.sqrt(share * (1 - share) / int(told.sum()))

    def _read(self, mechanism: Mechanism, model: NGrams, *, later: bool) -> Rate:
        """:meth:`_share` of the likeliest words under a model, with or without the text after each."""
        assert self.text is not None
        released, drawn = self.released(mechanism), self.text.ids >= UNKNOWN
        prior = model.probability(np.append(np.arange(model.size), model.tokens - 1))
        if self.is_content is not None:
            # The attacker knows what is a content word and leaves out all others: there is room for more of them.
            prior = prior + np.append(self._counted, 0.0)
        reader = ContextModel.of(mechanism, model, prior, self.candidates, released)
        joint = reader.posterior(released, self.text.offsets, later=later)
        words, guess = reader.words_at(released[drawn]), released.copy()
        best = (joint[drawn] * self._counts(words)).argmax(axis=1)
        guess[drawn] = words[np.arange(len(words)), best]
        return self._share(guess)

    def released(self, mechanism: Mechanism) -> NDArray[np.int32]:
        """A draw of the public text, shape (T,); it moves little with epsilon, so that a recovery can be met."""
        assert self.text is not None
        _, ids, offsets = self.text
        if mechanism.reads_context:
            keys = KeyedStreams(seed=0)  # nothing here is private
            streams = [keys.stream(f"public text {at}") for at in range(len(offsets) - 1)]
            return mechanism.sample_documents(ids, offsets, streams)
        drawn, words = ids.copy(), ids >= UNKNOWN
        drawn[words] = OutputDistribution(mechanism).draws(ids[words], np.random.default_rng(0))
        return drawn


def sampled_text(model: NGrams, count: int = _SAMPLED, seed: int = 0) -> PublicText:
    """Return words drawn from a public model, all of one document, for attacks where no public text is at hand."""
    drawn = model.sample(count, np.random.default_rng(seed))
    return PublicText(model, drawn, np.array([0, count]))


def text_of(index: Index, *, shown: bool = False) -> PublicText:
    """Return words drawn from the language model of an index, else from general English; as often as in its domain.

    ``shown`` asks for more words, and for others than those that a search looks at.
    """
    model = index.model or general_english(index.vocabulary.words)
    if index.domain is not None:
        alone, factors = model.weights[0][: model.size], np.ones(model.tokens)
        factors[: model.size] = index.domain * alone.sum() / alone
        model = model.tilted(factors)
    return sampled_text(model, _READ, seed=1) if shown else sampled_text(model)


def attackers_in_words(alone: Rate, whole: Rate | None) -> str:
    """Say what two attackers recover, estimates with their 95 % intervals."""
    told = "not tried, since the language model does not fit these words (textpriv choose --context FILE)."
    if whole is not None:
        told = f"{_in_words(whole)}, if it knows the model that wrote the text. A better model may recover more."
    one = f"an attacker who guesses word by word recovers {_in_words(alone)} of content words."
    return f"{one} A reader of whole texts: {told}"


def _in_words(rate: Rate) -> str:
    share, half = rate[0], NORMAL_95 * rate[1]
    low, high = 100 * max(share - half, 0.0), 100 * (share + half)
    return f"{share:.1%} ({low:.1f} to {high:.1f}%)" if half else f"{share:.1%}"


class Solution(NamedTuple):
    """An epsilon, the share at it, and its standard error: 0 where it is exact."""

    epsilon: float
    share: float
    error: float = 0.0


def largest_epsilon(
    make: Callable[[float], Mechanism],
    wanted: float,
    success: Callable[[Mechanism], Rate],
    start: float = 1.0,
    *,
    margin: float = 0.0,
    precise: float = 1e-3,
) -> Solution:
    """Find the largest epsilon at which a share is at most the wanted one, by Brent's method on log-odds and log epsilon.

    Parameters
    ----------
    make : callable
        The mechanism at an epsilon; the share must rise with it.
    wanted : float
        In (0, 1).
    success : callable
        The share at a mechanism, such as :meth:`BestAttacker.success`, and its standard error.
    start : float
        An epsilon of the right order.
    margin : float
        Standard errors by which an estimate must be below the wanted share.
    precise : float
        Relative precision of the epsilon. An estimate that is close to the wanted share will do.

    Raises
    ------
    OutOfReachError
        If no epsilon gives it.
    """
    from scipy.optimize import brentq

    if not 0 < wanted < 1:
        raise TextprivError(f"recovery and keep are shares between 0 and 1; got {wanted}.")
    seen: dict[float, tuple[float, Solution]] = {}
    near = wanted * (1 - (_CLOSE_WITH_MARGIN if margin else _CLOSE))

    def ahead(at: float) -> float:
        if at not in seen:
            share, error = success(make(math.exp(at)))
            upper = min(share + margin * error, 1.0)
            seen[at] = upper, Solution(math.exp(at), share, error)
        upper, found = seen[at]
        if found.error and near <= upper <= wanted:
            return 0.0  # ends the search
        off = _log_odds(upper) - _log_odds(wanted)
        # At the wanted share there may be a later point; above it the log-odds may round to 0.
        return max(off, 1e-12) if upper > wanted else min(off, -1e-12)

    left = right = math.log(start)
    step = math.log(1.5)
    while (above := ahead(left) > 0) or ahead(right) < 0:
        left, right = (left - step, left) if above else (right, right + step)
        step *= 1.5
        if right - left > _WIDEST:
            shares = [each.share for _, each in seen.values()]
            end = f"least {min(shares):.4g}" if above else f"most {max(shares):.4g}"
            raise OutOfReachError(
                f"no epsilon gives a share of {wanted:g}: with these settings it is at {end}. "
                f"Choose a {'larger' if above else 'smaller'} one, or another prior."
            )
    # The bracket that is left is twice as wide as this.
    root = brentq(ahead, left, right, xtol=math.log1p(precise) * 0.49)
    return seen[max(at for at, (upper, _) in seen.items() if at <= root and upper <= wanted)][1]


def _log_odds(share: float) -> float:
    kept = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(kept / (1 - kept))
