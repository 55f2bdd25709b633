"""Plausible deniability of single words, exact from the output law of a mechanism.

Source: Feyisetan, Balle, Drake, Diethe, "Privacy- and Utility-Preserving Textual Analysis via Calibrated Multivariate
Perturbations" (WSDM 2020), which names the figures and estimates them by 1,000 draws a word. Here they are computed from
the law, without a draw; a mechanism without a closed law (Madlib) is sampled as in the paper. Which epsilon gives a wanted
figure is asked in ``textpriv.guarantees.epsilon``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.index.neighbours import processors
from textpriv.index.typical import weighted_quantiles
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import RandomWords
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["Deniability", "WordSample", "deniabilities", "deniability", "sampled_deniability"]


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
    """:func:`deniability` of several mechanisms over one index, word by word, so that each row of distances is found once.

    Parameters
    ----------
    mechanisms : sequence of Mechanism
    words, word_prior, sample, draws, eta
        As for :func:`deniability`.
    """
    chosen = _choose(mechanisms[0], words, word_prior, sample, draws, eta)

    def figures(mechanism: Mechanism, word: int) -> tuple[float, float, int]:
        law = np.exp(mechanism.log_prob(word))
        with np.errstate(divide="ignore"):
            distinct = -np.expm1(draws * np.log1p(-np.minimum(law, 1.0))).sum()
        # All outputs less likely than that have less than eta together.
        mass = np.cumsum(np.sort(law[law >= eta / len(law)])[::-1])
        support = min(int(np.searchsorted(mass, 1.0 - eta)) + 1, len(law))
        return float(law[word]), float(distinct), support

    different, rows = np.unique(chosen.ids, return_inverse=True)
    with ThreadPoolExecutor(processors()) as pool:
        every = pool.map(
            lambda word: [figures(each, word) for each in mechanisms], different.tolist()
        )
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


def sampled_deniability(
    mechanism: Mechanism,
    rng: RandomWords | np.random.Generator,
    words: Iterable[str | int] | None = None,
    *,
    word_prior: Prior = "zipf",
    sample: int | None = 100,
    draws: int = 1000,
    eta: float = 0.05,
) -> Deniability:
    """Estimate the deniability of words by draws, for a mechanism without a closed law.

    Parameters
    ----------
    mechanism : Mechanism
    rng : random stream or numpy.random.Generator
    words, word_prior, sample, draws, eta : see :func:`deniability`
        Each word is drawn ``draws`` times; ``keep`` has a standard error of at most ``0.5 / sqrt(draws)`` a word.

    Returns
    -------
    Deniability
        ``keep`` and ``distinct`` as counted. ``support`` is that of the counts: it cannot exceed what the draws show, so it
        is too small where a law is wide.

    Raises
    ------
    TextprivError
        For parameters without meaning.
    """
    chosen = _choose(mechanism, words, word_prior, sample, draws, eta)
    different, rows = np.unique(chosen.ids, return_inverse=True)
    keep, distinct, support = (np.empty(len(different)) for _ in range(3))
    for row, word in enumerate(different.tolist()):
        outputs = mechanism.sample(np.full(draws, word, dtype=np.int32), rng)
        counts = np.sort(np.unique(outputs, return_counts=True)[1])[::-1]
        keep[row] = np.mean(outputs == word)
        distinct[row] = len(counts)
        support[row] = np.searchsorted(np.cumsum(counts), (1 - eta) * draws - 1e-9) + 1
    return Deniability(
        chosen,
        keep[rows],
        distinct[rows],
        support[rows].astype(np.int64),
        int(draws),
        float(eta),
    )


def _choose(
    mechanism: Mechanism,
    words: Iterable[str | int] | None,
    word_prior: Prior,
    sample: int | None,
    draws: int,
    eta: float,
) -> WordSample:
    """The words to look at, after a look at the parameters."""
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise TextprivError(f"draws is a whole number from 1 up; got {draws!r}.")
    if not 0 < eta < 1:
        raise TextprivError(f"eta is a probability strictly between 0 and 1; got {eta}.")
    if sample is not None and (
        isinstance(sample, bool) or not isinstance(sample, int | np.integer) or sample < 2
    ):
        raise TextprivError(f"sample is a number of words from 2 up, or None; got {sample!r}.")
    weights = mechanism.index.vocabulary.prior_weights(word_prior)
    if words is None:
        chosen = WordSample.of(weights, sample)
    else:
        ids = np.array([mechanism.resolve(word) for word in words], dtype=np.int32)
        if not len(ids) or ids.min() < 0:
            raise TextprivError("words must name at least one word, all of them of the vocabulary.")
        chosen = WordSample(ids, weights[ids] / weights[ids].sum(), len(ids))
    return chosen
