"""How many words the best attacker gets back: exactly, for all words, for content words, and word by word.

The attacker knows the law and how often each word is written, sees one output, and names the likeliest word; no other attack
on a lone word is right more often. Words in context are the business of ``context_recovery``; what the guarantee alone
allows is bounded in ``inversion``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["COMMON", "Band", "WordRecovery", "content_prior", "hidden_words", "word_recovery"]

COMMON = 250  # words by prior that are no content words
_EXAMPLES = 8  # of the words of a band


@dataclass(frozen=True)
class WordRecovery:
    """Success of the Bayes-optimal attacker.

    Attributes
    ----------
    words : list of str
    everything : float
        Share of running words that are guessed.
    content : float
        Share of running content words that are guessed, by an attacker who is told that they are.
    by_word : ndarray of float64, shape (V,)
        How often each word is guessed where it was written; content words by the attacker who is told.
    is_content : ndarray of bool, shape (V,)
    guess : ndarray of int64, shape (V,)
        What the attacker who is not told names for each output.
    """

    words: list[str]
    everything: float
    content: float
    by_word: NDArray[np.float64]
    is_content: NDArray[np.bool_]
    guess: NDArray[np.int64]

    def worst(self, count: int = 20) -> list[tuple[str, float]]:
        """The content words that are guessed most often where they were written, with how often: the worst protected."""
        score = np.where(self.is_content, self.by_word, -1.0)
        top = np.argsort(-score, kind="stable")[: min(count, int(self.is_content.sum()))]
        return [(self.words[word], float(self.by_word[word])) for word in top.tolist()]


class Band(NamedTuple):
    """The words that the best attacker guesses about equally often.

    Attributes
    ----------
    least, most : float
        Share of the times a word is written that it is guessed: above ``least``, or 0, and up to ``most``.
    words : int
    examples : tuple of str
        The content words among them that are written most often.
    running : float
        Share of running words, by the public prior.
    tokens : int or None
        How often they were counted in texts.
    """

    least: float
    most: float
    words: int
    examples: tuple[str, ...]
    running: float
    tokens: int | None = None


def hidden_words(
    recovery: WordRecovery,
    prior: NDArray[np.float64],
    counts: NDArray[np.int64] | None = None,
    edges: Sequence[float] = (1.0, 0.5, 0.2, 0.05, 0.01),
) -> list[Band]:
    """Sort the words of a vocabulary by how well the law hides them, the worst hidden first.

    Parameters
    ----------
    recovery : WordRecovery
    prior : ndarray of float64, shape (V,)
        How often each word is written; sums to 1.
    counts : ndarray of int64, shape (V,) or more, optional
        How often each was counted in texts. The bands are then as private as these.
    edges : sequence of float
        Upper ends of the bands, falling from 1.
    """
    frequent = np.argsort(-prior, kind="stable")
    bands = []
    for least, most in zip((*edges[1:], -1.0), edges, strict=True):
        inside = (recovery.by_word > least) & (recovery.by_word <= most)
        listed = frequent[(inside & recovery.is_content)[frequent]][:_EXAMPLES].tolist()
        shown = [recovery.words[word] for word in listed]
        tokens = None if counts is None else int(counts[: len(inside)][inside].sum())
        bands.append(
            Band(
                max(least, 0.0),
                most,
                int(inside.sum()),
                tuple(shown),
                float(prior[inside].sum()),
                tokens,
            )
        )
    return bands


def content_prior(prior: NDArray[np.float64], common: int = COMMON) -> NDArray[np.float64]:
    """The prior of the words that are not among so many of the commonest: 0 for these, in all 1.

    Raises
    ------
    TextprivError
        Where no word is left.
    """
    if not 0 <= common < len(prior):
        raise TextprivError(
            f"of {len(prior):,} words {common:,} cannot be left out as common ones; take fewer."
        )
    left = prior.copy()
    left[np.argsort(-prior, kind="stable")[:common]] = 0.0
    return left / left.sum()


def word_recovery(
    mechanism: Mechanism, word_prior: Prior = "zipf", *, common: int = COMMON
) -> WordRecovery:
    """Compute how many words the best attacker gets back.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed law. Takes a pass over all pairs of words, or two over the nodes of a tree.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written. Public.
    common : int
        How many of the commonest words are no content words.

    Raises
    ------
    TextprivError
    """
    law = Law(mechanism, word_prior)
    rare = content_prior(law.prior, common)
    (guess, joint), (guess_told, joint_told) = law.likeliest_under([law.prior, rare])
    is_content = rare > 0
    return WordRecovery(
        mechanism.index.vocabulary.words,
        float(joint.sum()),
        float(joint_told.sum()),
        np.where(
            is_content, _shares(guess_told, joint_told, rare), _shares(guess, joint, law.prior)
        ),
        is_content,
        guess,
    )


def _shares(
    guess: NDArray[np.int64], joint: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How often each word is guessed where it was written."""
    found = np.bincount(guess, weights=joint, minlength=len(prior))
    shares = np.divide(found, prior, out=np.zeros(len(prior)), where=prior > 0)
    return np.minimum(shares, 1.0)
