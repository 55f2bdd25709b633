"""Is a name safe? How often the words of public lists come out as they are, and how often a best attacker names them.

The lists are those of ``textpriv.vocabulary.sensitive_words``. What is computed here is a figure of the law, and no
part of the guarantee: that bounds how well two words are told apart, and says nothing of which words come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.evaluation.law import Law
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary.sensitive_words import LISTS, words_in

__all__ = ["ListExposure", "can_compare", "exposure"]

# An attacker compares all pairs of words, which takes about half a minute for this many; a law without closed form of its
# normaliser costs more for each.
_COMPARED_UP_TO = 50_000
_COMPARED_ROWS_UP_TO = 5_000
_DRAWS = 200  # of a word, where there is no law
_DRAWN_WORDS = 40  # of a list


@dataclass(frozen=True)
class ListExposure:
    """What happens to the words of one list.

    Attributes
    ----------
    name : str
    size : int
        Words of the list.
    words : tuple of str
        Those in the vocabulary; the others share the one law of unknown words and never come out as they are. Of a
        mechanism without a law only the first are drawn.
    keep : ndarray, shape (m,)
        Probability that each comes out as it is.
    guessed : ndarray, shape (m,), or None
        Probability that the Bayes attacker, who knows the mechanism and how often each word is written and names the
        likeliest original of an output, is right when the word was written. None where that was not computed.
    draws : int
        0 where ``keep`` comes from the law, else how often each word was drawn to estimate it.
    """

    name: str
    size: int
    words: tuple[str, ...]
    keep: NDArray[np.float64]
    guessed: NDArray[np.float64] | None
    draws: int

    @property
    def most(self) -> list[tuple[str, float, float | None]]:
        """The five words that stay most often: word, how often it stays, how often it is guessed."""
        order = np.argsort(-self.keep, kind="stable")[:5]
        return [
            (
                self.words[i],
                float(self.keep[i]),
                None if self.guessed is None else float(self.guessed[i]),
            )
            for i in order
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and figures as JSON types."""
        return {
            "name": self.name,
            "size": self.size,
            "in_vocabulary": len(self.words),
            "keep": dict(zip(self.words, self.keep.tolist(), strict=True)),
            "guessed": None
            if self.guessed is None
            else dict(zip(self.words, self.guessed.tolist(), strict=True)),
            "draws": self.draws,
        }


def exposure(
    mechanism: Mechanism,
    lists: Mapping[str, tuple[str, ...]] | None = None,
    *,
    guess: NDArray[np.int64] | None = None,
) -> list[ListExposure]:
    """Look at public lists of words.

    Parameters
    ----------
    mechanism : Mechanism
        One without a closed law is drawn from under a fixed public key, and its attacker is not computed.
    lists : mapping of str to tuple of str, optional
        Default: first names, surnames and illnesses.
    guess : ndarray of int, shape (V,), optional
        What the attacker names for each output, where it is known from :func:`word_recovery`; else it is computed.

    Returns
    -------
    list of ListExposure
        The attacker needs a pass over all pairs of words: it is left out above 50,000 words (5,000 for laws other than
        TEM's). How often words are written is taken from the counts of the vocabulary, or from ranks without these.
    """
    vocabulary = mechanism.index.vocabulary
    chosen = {
        name: (len(words), words_in(vocabulary, words)) for name, words in (lists or LISTS).items()
    }
    if not mechanism.has_law:
        return [
            _drawn(mechanism, name, size, words[:_DRAWN_WORDS])
            for name, (size, words) in chosen.items()
        ]
    if guess is None:
        guess = _best_guess(mechanism)
    rows = []
    for name, (size, words) in chosen.items():
        ids = [vocabulary.id(word) for word in words]
        keep, guessed = np.zeros(len(ids)), np.zeros(len(ids))
        for position, word in enumerate(ids):
            law = np.exp(mechanism.log_prob(word))
            keep[position] = law[word]
            if guess is not None:
                guessed[position] = law[guess == word].sum()
        right = None if guess is None else guessed
        rows.append(ListExposure(name, size, tuple(words), keep, right, 0))
    return rows


def can_compare(mechanism: Mechanism) -> bool:
    """Whether all pairs of words of a mechanism with a law can be looked at in about half a minute."""
    closed = mechanism.exponential_law() is not None
    return len(mechanism.index) <= (_COMPARED_UP_TO if closed else _COMPARED_ROWS_UP_TO)


def _best_guess(mechanism: Mechanism) -> NDArray[np.int64] | None:
    """For each output its likeliest original, or None where finding it would take too long."""
    if not can_compare(mechanism):
        return None
    stored = mechanism.index.vocabulary.prior is not None
    ((guess, _),) = Law(mechanism, "counts" if stored else "zipf").likeliest()
    return guess


def _drawn(mechanism: Mechanism, name: str, size: int, words: list[str]) -> ListExposure:
    ids = np.array([mechanism.index.vocabulary.id(word) for word in words], dtype=np.int32)
    stream = KeyedStreams(seed=0).stream(f"lists {name}")
    outputs = mechanism.sample(np.repeat(ids, _DRAWS), stream).reshape(len(ids), _DRAWS)
    keep = (outputs == ids[:, None]).mean(axis=1)
    return ListExposure(name, size, tuple(words), keep, None, _DRAWS)
