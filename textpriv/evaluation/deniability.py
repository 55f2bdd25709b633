"""Plausible deniability of single words, exact from the output distribution of a mechanism.

Source: Feyisetan, Balle, Drake, Diethe, "Privacy- and Utility-Preserving Textual Analysis via Calibrated Multivariate
Perturbations" (WSDM 2020), who estimate these figures by 1,000 draws a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.index.grid import weighted_quantiles
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["Deniability", "WordSample", "deniabilities", "deniability"]


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
    def of(cls, weights: NDArray[np.float64], size: int | None) -> WordSample:
        """Take ``size`` words in proportion to their weights, or all of them.

        Parameters
        ----------
        weights : ndarray, shape (V,)
            Sum to 1.
        size : int or None
            None, or V and more, takes every word. Otherwise words of weight above ``1 / size`` are taken for sure, and
            the rest, in order of weight, is cut into strata of equal weight, from each of which one is drawn. The draw
            is public and always the same.
        """
        if size is None or size >= len(weights):
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

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the mean under the prior; ``values`` has shape (m, ...)."""
        return np.tensordot(self.shares, values, axes=1)

    def standard_error(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard error of :meth:`mean`: 0 for all words, else from differences between strata that lie side by side."""
        tail = values[self.certain :]
        if len(tail) < 2:
            # One stratum shows no spread, and no stratum has none.
            spread = np.nan if len(tail) else 0.0
            return np.full(values.shape[1:], spread)
        differences = np.diff(tail, axis=0)
        # Each difference holds the spread of two strata, and each stratum but two is in two differences.
        scale = len(tail) / (2 * len(differences))
        return self.shares[-1] * np.sqrt(scale * (differences**2).sum(axis=0))


@dataclass(frozen=True)
class Deniability:
    """Plausible deniability of words under one mechanism.

    Attributes
    ----------
    sample : WordSample
        The words, and what each counts in the means.
    keep : ndarray of float64, shape (m,)
        N_w, the probability ``P(w -> w)`` that a word is replaced by itself. Small is private.
    distinct : ndarray of float64, shape (m,)
        S_w as the paper estimates it: the expected number of different outputs in ``draws`` draws of the word. Large is
        private.
    support : ndarray of int64, shape (m,)
        S_w as the paper defines it: the least number of outputs that hold probability at least ``1 - eta``.
    draws : int
    eta : float
    """

    sample: WordSample
    keep: NDArray[np.float64]
    distinct: NDArray[np.float64]
    support: NDArray[np.int64]
    draws: int
    eta: float

    def to_dict(self) -> dict[str, Any]:
        """Return the means, their standard errors and the extremes as JSON types."""
        content: dict[str, Any] = {
            "words": len(self.sample.ids),
            "draws": self.draws,
            "eta": self.eta,
        }
        for name in ("keep", "distinct", "support"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            error = float(self.sample.standard_error(values))
            content[name] = {
                "mean": float(self.sample.mean(values)),
                "standard_error": error if np.isfinite(error) else None,
                "least": float(values.min()),
                "median": weighted_quantiles(values, self.sample.shares, (0.5,))[0],
                "largest": float(values.max()),
            }
        return content


def deniability(
    mechanism: Mechanism,
    words: Iterable[str | int] | None = None,
    *,
    word_prior: Prior = "zipf",
    sample: int | None = 1000,
    draws: int = 1000,
    eta: float = 0.05,
) -> Deniability:
    """Compute the deniability of words from the output law.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed law (TEM). Its vocabulary of V words costs a few ms for each word looked at.
    words : iterable of str or int, optional
        Words or ids, which then count as the word prior says among themselves. Default: a sample of the vocabulary.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often a word is met: what it counts in a mean. Public.
    sample : int or None
        How many words stand for the vocabulary; None for all of them.
    draws : int
        Of ``distinct``.
    eta : float
        Of ``support``, in (0, 1).

    Raises
    ------
    MechanismError
        If the mechanism has no closed law (Madlib).
    TextprivError
        For parameters without meaning.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vocabulary = textpriv.Vocabulary(["good", "bad"], np.array([[0.0], [1.0]]))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary), epsilon=1.0, prior="uniform")
    >>> deniability(mechanism).keep.round(6).tolist()
    [0.622459, 0.622459]
    """
    (found,) = deniabilities(
        [mechanism], words, word_prior=word_prior, sample=sample, draws=draws, eta=eta
    )
    return found


def deniabilities(
    mechanisms: Sequence[Mechanism],
    words: Iterable[str | int] | None = None,
    *,
    word_prior: Prior = "zipf",
    sample: int | None = 1000,
    draws: int = 1000,
    eta: float = 0.05,
) -> list[Deniability]:
    """:func:`deniability` of several mechanisms over one index.

    Parameters
    ----------
    mechanisms : sequence of Mechanism
    words, word_prior, sample, draws, eta
        As for :func:`deniability`.
    """
    chosen = _choose(mechanisms[0], words, word_prior, sample)

    def figures(mechanism: Mechanism, word: int) -> tuple[float, float, int]:
        law = np.exp(mechanism.log_prob(word))
        with np.errstate(divide="ignore"):
            distinct = -np.expm1(draws * np.log1p(-np.minimum(law, 1.0))).sum()
        # All outputs less likely than that have less than eta together.
        mass = np.cumsum(np.sort(law[law >= eta / len(law)])[::-1])
        support = min(int(np.searchsorted(mass, 1.0 - eta)) + 1, len(law))
        return float(law[word]), float(distinct), support

    different, rows = np.unique(chosen.ids, return_inverse=True)
    with ThreadPoolExecutor() as pool:
        every = pool.map(lambda word: [figures(each, word) for each in mechanisms], different)
        table = np.array(list(every), dtype=np.float64)
    return [
        Deniability(
            chosen,
            table[rows, each, 0],
            table[rows, each, 1],
            table[rows, each, 2].astype(np.int64),
            int(draws),
            float(eta),
        )
        for each in range(len(mechanisms))
    ]


def _choose(
    mechanism: Mechanism,
    words: Iterable[str | int] | None,
    word_prior: Prior,
    sample: int | None,
) -> WordSample:
    """The words to look at."""
    weights = mechanism.index.vocabulary.prior_weights(word_prior)
    if words is None:
        return WordSample.of(weights, sample)
    ids = np.array([mechanism.resolve(word) for word in words], dtype=np.int32)
    if not len(ids) or ids.min() < 0:
        raise TextprivError("words must name at least one word, all of them of the vocabulary.")
    return WordSample(ids, weights[ids] / weights[ids].sum(), len(ids))
