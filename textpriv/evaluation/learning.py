"""A classifier over private text that knows the mechanism.

The output distributions of a mechanism are public, so learning with them is post-processing and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError, needs
from textpriv.evaluation.law import Law
from textpriv.language.ngrams import token_ids
from textpriv.mechanisms.base import Mechanism
from textpriv.vocabulary.vocabulary import Prior

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator, ClassifierMixin
else:
    _base = needs("sklearn.base")
    BaseEstimator, ClassifierMixin = _base.BaseEstimator, _base.ClassifierMixin

__all__ = ["ChannelNB", "count_matrix"]

_TRIED = (0.01, 0.03, 0.1, 0.3, 1.0)  # smoothing
_HELD_OUT = 5  # one document in so many is held out to choose it
_FIRST = 0.01  # smoothing of the words of all classes together, towards the public prior


class ChannelNB(ClassifierMixin, BaseEstimator):
    """Naive Bayes that learns from private documents which words each class had before privatization.

    Each class has a distribution of original words; the private words are drawn from it through the mechanism. Expectation
    maximization with a prior towards the words of all classes (MAP) finds it. Prediction reads clear text.

    Parameters
    ----------
    mechanism : Mechanism
        The one that made the private documents; with a closed output distribution.
    smoothing : float, optional
        Weight of the prior, as a share of the tokens of a class. Default: the best of several on one private document in
        five, which then count again.
    prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written. Public.
    iterations : int
        Steps of expectation maximization.

    Attributes
    ----------
    classes_ : ndarray
    words_ : ndarray of float64, shape (classes, V)
        Distributions of the original words.
    smoothing_ : float

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vectors = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> words = textpriv.Vocabulary(["good", "fine", "bad", "poor"], vectors)
    >>> index = textpriv.Index.build(words, "euclidean")
    >>> mechanism = textpriv.TEM(index, epsilon=2.0)
    >>> private = list(textpriv.Privatizer(mechanism, seed=1).pipe(["good fine", "bad poor"] * 50))
    >>> ChannelNB(mechanism, smoothing=0.1).fit(private, ["yes", "no"] * 50).predict(["fine", "poor"]).tolist()
    ['yes', 'no']
    """

    def __init__(
        self,
        mechanism: Mechanism,
        smoothing: float | None = None,
        prior: Prior = "zipf",
        iterations: int = 30,
    ) -> None:
        self.mechanism = mechanism
        self.smoothing = smoothing
        self.prior = prior
        self.iterations = iterations

    def fit(self, documents: Any, y: ArrayLike) -> ChannelNB:
        """Learn from private documents.

        Parameters
        ----------
        documents : sequence of str, or csr_matrix of counts, shape (D, V)
        y : array_like, shape (D,)
            Classes.
        """
        law = Law(self.mechanism, self.prior)
        self._channel = law.sparse_rows()
        self._turned = self._channel.T.tocsr()
        # What the rows leave out is spread as all outputs are.
        self._spread = np.asarray(self._channel.mean(axis=0)).ravel() + 1e-3 / len(law)
        self._spread /= self._spread.sum()
        self._lost = 1.0 - np.asarray(self._channel.sum(axis=1)).ravel()
        counts = self._counts(documents)
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        if len(labels) != counts.shape[0]:
            raise TextprivError(f"got {counts.shape[0]} documents and {len(labels)} classes.")
        self.smoothing_ = self.smoothing or self._chosen(counts, labels, law.prior)
        self._learn(counts, labels, law.prior, self.smoothing_)
        return self

    def _chosen(
        self, counts: csr_matrix, labels: NDArray[np.int64], prior: NDArray[np.float64]
    ) -> float:
        held = np.random.default_rng(0).permutation(len(labels)) % _HELD_OUT == 0
        right = []
        for smoothing in _TRIED:
            self._learn(counts[~held], labels[~held], prior, smoothing)
            guess = self._scores(counts[held], self._outputs(self.words_)).argmax(axis=1)
            right.append(float(np.mean(guess == labels[held])))
        return _TRIED[int(np.argmax(right))]

    def _learn(
        self,
        counts: csr_matrix,
        labels: NDArray[np.int64],
        prior: NDArray[np.float64],
        smoothing: float,
    ) -> None:
        times = np.bincount(labels, minlength=len(self.classes_))
        of_class = csr_matrix((np.ones(len(labels)), (labels, np.arange(len(labels)))))
        outputs = (of_class @ counts).toarray()
        every = self._originals(outputs.sum(axis=0, keepdims=True), prior, _FIRST)
        self.words_ = self._originals(outputs, every[0], smoothing)
        self.class_log_prior_ = np.log((times + 1.0) / (times.sum() + len(times)))

    def _originals(
        self, outputs: NDArray[np.float64], prior: NDArray[np.float64], smoothing: float
    ) -> NDArray[np.float64]:
        """Distribution of the words that each row of output counts came from, by MAP with a Dirichlet prior."""
        words = np.tile(prior, (len(outputs), 1))
        pull = smoothing * outputs.sum(axis=1, keepdims=True) * prior
        for _ in range(self.iterations):
            ratio = outputs / self._outputs(words)
            spread = np.outer(ratio @ self._spread, self._lost)
            words = words * ((self._channel @ ratio.T).T + spread) + pull
            words /= words.sum(axis=1, keepdims=True)
        return words

    def _outputs(self, words: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distribution of outputs where words are distributed as in each row."""
        return (self._turned @ words.T).T + np.outer(words @ self._lost, self._spread)

    def _scores(self, counts: csr_matrix, words: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.class_log_prior_ + counts @ np.log(words).T

    def predict(self, documents: Any) -> NDArray[Any]:
        """The likeliest class of each clear document, shape (D,)."""
        scores = self._scores(self._counts(documents), self.words_)
        return self.classes_[scores.argmax(axis=1)]

    def _counts(self, documents: csr_matrix | Sequence[str]) -> csr_matrix:
        index = self.mechanism.index
        if isinstance(documents, csr_matrix):
            return documents
        ids, offsets = token_ids(documents, index.vocabulary.words, index.language or "en")
        return count_matrix(ids, offsets, len(index))


def count_matrix(ids: NDArray[np.integer], offsets: NDArray[np.int64], words: int) -> csr_matrix:
    """Count words by document.

    Parameters
    ----------
    ids : ndarray of int, shape (T,)
        Word ids of all documents, one after the other; negative ones are not counted.
    offsets : ndarray of int64, shape (D + 1,)
        Document j is ``ids[offsets[j]:offsets[j + 1]]``.
    words : int
        Size V of the vocabulary.

    Returns
    -------
    csr_matrix of float32, shape (D, V)
    """
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = ids >= 0
    counts = csr_matrix(
        (np.ones(int(known.sum()), dtype=np.float32), (rows[known], ids[known])),
        shape=(len(offsets) - 1, words),
    )
    counts.sum_duplicates()
    return counts
