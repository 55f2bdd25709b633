"""Recovery of single words by the Bayes-optimal attacker, word by word, and what becomes of names and illnesses.

The attacker knows the mechanism and how often each word is written, sees one output and names the likeliest word. No other
attack on single words is right more often. The figures are no part of the guarantee.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.distribution import OutputDistribution, word_distribution
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.builtin import LISTS, words_in

__all__ = ["ListExposure", "WordRecovery", "exposure", "word_recovery"]

_COMPARED = 50_000  # words of a vocabulary whose pairs are compared in about half a minute
_COMPARED_ROWS = 5_000  # of a mechanism whose distributions are no exponential ones
_DRAWS = 200  # of a word, without a closed output distribution
_DRAWN_WORDS = 40  # of a list


class WordRecovery(NamedTuple):
    """Success of the Bayes-optimal attacker on single words, who knows that they are content words."""

    content: float  # share of all content words
    by_word: NDArray[np.float64]  # (V,): share of the uses of each; 0 for function words
    guess: NDArray[np.int64]  # (V,): what an attacker names for each output who does not know that


def word_recovery(mechanism: Mechanism) -> WordRecovery:
    """Compute the recovery of single words, written as often as :attr:`Index.word_frequency` says.

    The mechanism needs a closed output distribution. Takes a pass over all pairs of words.
    """
    distribution = OutputDistribution(mechanism)
    prior = content_prior(distribution.prior, mechanism.index.vocabulary.is_content)
    guess, joint = distribution.likeliest(prior)
    found = np.bincount(guess, weights=joint, minlength=len(prior))
    by_word = np.divide(found, prior, out=np.zeros(len(prior)), where=prior > 0)
    return WordRecovery(float(joint.sum()), np.minimum(by_word, 1.0), distribution.likeliest()[0])


def content_prior(prior: NDArray[np.float64], is_content: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The prior of content words: 0 for function words, and 1 in all. A TextprivError if no word is left."""
    if not is_content.any():
        raise TextprivError("All words are function words. Give a shorter list of them.")
    left = np.where(is_content, prior, 0.0)
    return left / left.sum()


def can_compare(mechanism: Mechanism) -> bool:
    """Whether all pairs of words of a mechanism can be compared in about half a minute."""
    exponential = mechanism.exponential_decay() is not None
    return len(mechanism.index) <= (_COMPARED if exponential else _COMPARED_ROWS)


class ListExposure(NamedTuple):
    """What happens to the words of one list of ``textpriv.vocabulary.builtin``."""

    name: str
    size: int  # words of the list
    words: tuple[str, ...]  # the m of them in the vocabulary; all others never stay
    keep: NDArray[np.float64]  # (m,): probability that each stays as it is
    guessed: NDArray[np.float64] | None  # (m,): recovery of each by the Bayes attacker, if computed
    draws: int  # 0 where ``keep`` is exact, else how often each word was drawn to estimate it

    @property
    def most(self) -> list[tuple[str, float, float | None]]:
        """The five words that stay most often, with ``keep`` and ``guessed``."""
        top = np.argsort(-self.keep, kind="stable")[:5].tolist()
        guessed = dict.fromkeys(top) if self.guessed is None else self.guessed
        return [(self.words[at], float(self.keep[at]), guessed[at]) for at in top]


def exposure(mechanism: Mechanism, guess: NDArray[np.int64] | None) -> list[ListExposure]:
    """Look at the public lists of words, given :attr:`WordRecovery.guess` if it is known.

    A mechanism without a closed output distribution is drawn from under a fixed public key.
    """
    vocabulary, rows = mechanism.index.vocabulary, []
    most, draws = (None, 0) if mechanism.has_log_prob else (_DRAWN_WORDS, _DRAWS)
    for name, listed in LISTS.items():
        words = words_in(vocabulary, listed)[:most]
        chances = {id: word_distribution(mechanism, id, _DRAWS) for id in map(vocabulary.id, words)}
        keep = np.array([row[id] for id, row in chances.items()])
        guessed = None
        if guess is not None:
            guessed = np.array([row[guess == id].sum() for id, row in chances.items()])
        rows.append(ListExposure(name, len(listed), tuple(words), keep, guessed, draws))
    return rows
