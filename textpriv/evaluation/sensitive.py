"""Whether a name is safe: how often words of public lists stay as they are, and how often they are recovered.

The lists are those of ``textpriv.vocabulary.builtin``. The figures are no part of the guarantee.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.evaluation.distribution import OutputDistribution, word_distribution
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.builtin import LISTS, words_in

_COMPARED = 50_000  # words of a vocabulary whose pairs are compared in about half a minute
_COMPARED_ROWS = 5_000  # of a mechanism whose distributions are no exponential ones
_DRAWS = 200  # of a word, without a closed output distribution
_DRAWN_WORDS = 40  # of a list


class ListExposure(NamedTuple):
    """What happens to the words of one list.

    Attributes
    ----------
    name : str
    size : int
        Words of the list.
    words : tuple of str
        Those in the vocabulary; all others are treated alike and never stay. The first only where words are drawn.
    keep : ndarray, shape (m,)
        Probability that each stays as it is.
    guessed : ndarray, shape (m,), or None
        Recovery of each by the Bayes attacker on single words; None if it was not computed.
    draws : int
        0 where ``keep`` is exact, else how often each word was drawn to estimate it.
    """

    name: str
    size: int
    words: tuple[str, ...]
    keep: NDArray[np.float64]
    guessed: NDArray[np.float64] | None
    draws: int

    @property
    def most(self) -> list[tuple[str, float, float | None]]:
        """The five words that stay most often, with ``keep`` and ``guessed``."""
        found = []
        for at in np.argsort(-self.keep, kind="stable")[:5].tolist():
            guessed = None if self.guessed is None else float(self.guessed[at])
            found.append((self.words[at], float(self.keep[at]), guessed))
        return found


def exposure(mechanism: Mechanism, *, guess: NDArray[np.int64] | None = None) -> list[ListExposure]:
    """Look at the public lists of words.

    Parameters
    ----------
    mechanism : Mechanism
        One without a closed output distribution is drawn from under a fixed public key, and not attacked.
    guess : ndarray of int, shape (V,), optional
        The word that the attacker names for each output, if known from :func:`word_recovery`. Else it is computed, if
        :func:`can_compare` allows it.
    """
    vocabulary = mechanism.index.vocabulary
    if guess is None and mechanism.has_log_prob and can_compare(mechanism):
        ((guess, _),) = OutputDistribution(mechanism).likeliest()
    most, draws = (None, 0) if mechanism.has_log_prob else (_DRAWN_WORDS, _DRAWS)
    rows = []
    for name, listed in LISTS.items():
        words = words_in(vocabulary, listed)[:most]
        ids = [vocabulary.id(word) for word in words]
        chances = [word_distribution(mechanism, word, _DRAWS) for word in ids]
        keep = np.array([row[word] for word, row in zip(ids, chances, strict=True)])
        guessed = None
        if guess is not None:
            pairs = zip(ids, chances, strict=True)
            guessed = np.array([row[guess == word].sum() for word, row in pairs])
        rows.append(ListExposure(name, len(listed), tuple(words), keep, guessed, draws))
    return rows


def can_compare(mechanism: Mechanism) -> bool:
    """Whether all pairs of words of a mechanism can be compared in about half a minute."""
    exponential = mechanism.exponential_decay() is not None
    return len(mechanism.index) <= (_COMPARED if exponential else _COMPARED_ROWS)
