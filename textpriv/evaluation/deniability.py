"""Plausible deniability of single words, exact from the output distribution of a mechanism.

Source: Feyisetan, Balle, Drake, Diethe, "Privacy- and Utility-Preserving Textual Analysis via Calibrated Multivariate
Perturbations" (WSDM 2020), who estimate these figures by 1,000 draws a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.mechanisms.base import Mechanism

__all__ = ["Deniability", "WordSample", "deniability"]

_WORDS = 1000  # of a sample


@dataclass(frozen=True)
class WordSample:
    """Words that stand for a public word prior: all of them, or a fixed stratified sample.

    Attributes
    ----------
    ids : ndarray of int32, shape (m,)
    shares : ndarray of float64, shape (m,)
        What each counts in a mean; they sum to 1.
    certain : int
        The first so many were taken for sure. The others stand for strata of equal weight, one word each.
    """

    ids: NDArray[np.int32]
    shares: NDArray[np.float64]
    certain: int

    @classmethod
    def of(cls, weights: NDArray[np.float64], size: int) -> WordSample:
        """Take ``size`` words in proportion to their weights, or all of them.

        Parameters
        ----------
        weights : ndarray, shape (V,)
            Sum to 1.
        size : int
            V and more takes every word. Otherwise words of weight above ``1 / size`` are taken for sure, and
            the rest, in order of weight, is cut into strata of equal weight, from each of which one is drawn. The draw
            is public and always the same.
        """
        if size >= len(weights):
            return cls(np.arange(len(weights), dtype=np.int32), weights, len(weights))
        order = np.argsort(-weights, kind="stable")
        certain = int(np.count_nonzero(weights * size >= 1.0))
        strata = size - certain
        tail = order[certain:]
        cumulative = np.cumsum(weights[tail])
        rest = float(cumulative[-1])
        points = (np.arange(strata) + np.random.default_rng(0).random(strata)) * (rest / strata)
        drawn = tail[np.minimum(np.searchsorted(cumulative, points), len(tail) - 1)]
        shares = np.concatenate([weights[order[:certain]], np.full(strata, rest / strata)])
        return cls(np.concatenate([order[:certain], drawn]).astype(np.int32), shares, certain)

    def mean(self, values: NDArray[np.floating]) -> float:
        """Estimate the mean under the prior of values of shape (m,)."""
        return float(self.shares @ values)

    def standard_error(self, values: NDArray[np.floating]) -> float:
        """Standard error of :meth:`mean`: 0 for all words, else from differences between strata that lie side by side."""
        tail = values[self.certain :]
        if len(tail) < 2:
            # One stratum shows no spread, and no stratum has none.
            return math.nan if len(tail) else 0.0
        differences = np.diff(tail)
        # Each difference has the spread of two strata, and each stratum but two is in two differences.
        scale = len(tail) / (2 * len(differences))
        return float(self.shares[-1] * math.sqrt(scale * (differences @ differences)))


@dataclass(frozen=True)
class Deniability:
    """Plausible deniability of words under one mechanism.

    Attributes
    ----------
    sample : WordSample
        The words, and what each counts in a mean.
    keep : ndarray of float64, shape (m,)
        N_w, the probability ``P(w -> w)`` that a word is replaced by itself. Small is private.
    distinct : ndarray of float64, shape (m,)
        S_w as the paper estimates it: the expected number of different outputs in ``draws`` draws of the word. Large is
        private.
    support : ndarray of int64, shape (m,)
        S_w as the paper defines it: the least number of outputs that have probability at least ``1 - eta`` together.
    """

    sample: WordSample
    keep: NDArray[np.float64]
    distinct: NDArray[np.float64]
    support: NDArray[np.int64]


def deniability(
    mechanism: Mechanism,
    words: Iterable[str | int] | None = None,
    *,
    draws: int = 1000,
    eta: float = 0.05,
) -> Deniability:
    """Compute the deniability of words from the output distribution.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed output distribution.
    words : iterable of str or int, optional
        Words or ids. Default: a public sample of 1,000 words of the vocabulary, by Zipf's law.
    draws : int
        Of ``distinct``.
    eta : float
        Of ``support``, in (0, 1).

    Raises
    ------
    MechanismError
        If the mechanism has no closed output distribution (Madlib).
    TextprivError
        For words outside the vocabulary.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vocabulary = textpriv.Vocabulary(["good", "bad"], np.array([[0.0], [1.0]]))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary, "euclidean"), epsilon=1.0, prior="uniform")
    >>> deniability(mechanism).keep.round(6).tolist()
    [0.622459, 0.622459]
    """
    weights = mechanism.index.vocabulary.prior_weights("zipf")
    if words is None:
        sample = WordSample.of(weights, _WORDS)
    else:
        ids = np.array([mechanism.resolve(word) for word in words], dtype=np.int32)
        if not len(ids) or ids.min() < 0:
            raise TextprivError("words must name at least one word, all of them of the vocabulary.")
        sample = WordSample(ids, weights[ids] / weights[ids].sum(), len(ids))
    count = len(sample.ids)
    keep, distinct, support = np.empty(count), np.empty(count), np.empty(count, np.int64)
    for at, word in enumerate(sample.ids):
        law = np.exp(mechanism.log_prob(word))
        keep[at] = law[word]
        with np.errstate(divide="ignore"):
            distinct[at] = -np.expm1(draws * np.log1p(-np.minimum(law, 1.0))).sum()
        reached = np.cumsum(np.sort(law)[::-1])
        support[at] = min(np.searchsorted(reached, 1.0 - eta) + 1, len(law))
    return Deniability(sample, keep, distinct, support)
