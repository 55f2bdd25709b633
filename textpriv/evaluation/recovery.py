"""Recovery of single words by the Bayes-optimal attacker: exact, for all words, content words and word by word.

The attacker knows the mechanism and how often each word is written, sees one output and names the likeliest word. No other
attack on single words is right more often. ``context_recovery`` attacks words in context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["WordRecovery", "content_prior", "word_recovery"]


@dataclass(frozen=True)
class WordRecovery:
    """Success of the Bayes-optimal attacker on single words.

    Attributes
    ----------
    words : list of str
    everything : float
        Share of all tokens that the attacker recovers.
    content : float
        Share of content words, by an attacker who knows that they are content words.
    by_word : ndarray of float64, shape (V,)
        Recovery of each word; of content words by the attacker who knows that.
    guess : ndarray of int64, shape (V,)
        Word that the first attacker names for each output.
    """

    words: list[str]
    everything: float
    content: float
    by_word: NDArray[np.float64]
    guess: NDArray[np.int64]


def content_prior(prior: NDArray[np.float64], is_content: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The prior of content words: 0 for function words, and 1 in all.

    Raises
    ------
    TextprivError
        If no word is left.
    """
    if not is_content.any():
        raise TextprivError("All words are function words. Give a shorter list of them.")
    left = np.where(is_content, prior, 0.0)
    return left / left.sum()


def word_recovery(mechanism: Mechanism, word_prior: Prior | None = None) -> WordRecovery:
    """Compute the recovery of single words.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed output distribution. Takes a pass over all pairs of words.
    word_prior : str, array or mapping, optional
        How often each word is written, as for :meth:`Vocabulary.prior_weights`. Default: :attr:`Index.word_frequency`.
    """
    distribution, vocabulary = OutputDistribution(mechanism, word_prior), mechanism.index.vocabulary
    content = content_prior(distribution.prior, vocabulary.is_content)
    (guess, joint), (guess_told, joint_told) = distribution.likeliest([distribution.prior, content])
    told = _shares(guess_told, joint_told, content)
    untold = _shares(guess, joint, distribution.prior)
    return WordRecovery(
        vocabulary.words,
        float(joint.sum()),
        float(joint_told.sum()),
        np.where(vocabulary.is_content, told, untold),
        guess,
    )


def _shares(
    guess: NDArray[np.int64], joint: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    found = np.bincount(guess, weights=joint, minlength=len(prior))
    shares = np.divide(found, prior, out=np.zeros(len(prior)), where=prior > 0)
    return np.minimum(shares, 1.0)
