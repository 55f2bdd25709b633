"""A classifier over private text that knows the mechanism.

The output distributions of a mechanism are public, so learning with them is post-processing and costs no privacy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, issparse
from scipy.special import log_softmax, softmax

from textpriv.errors import TextprivError, needs
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.language.ngrams import token_ids
from textpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
else:
    _base = needs("sklearn.base")
    BaseEstimator, ClassifierMixin = _base.BaseEstimator, _base.ClassifierMixin
    check_is_fitted = needs("sklearn.utils.validation").check_is_fitted

_TRIED = (0.03, 0.1, 0.3, 1.0, 3.0)  # C
_HELD_OUT = 5  # one document in so many is held out to choose it
_SEARCH = {"maxiter": 60, "ftol": 1e-4}  # of L-BFGS
_STEPS = 30  # of expectation maximization
_PULL = 0.01  # weight of the public prior in it, as a share of the tokens
_MASK = re.compile(r"\[[A-Z][A-Z0-9_]*\]")
_POWER = 0.25  # a count is divided by the frequency of its word to this power


class ChannelClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression on the words that private documents probably had before privatization.

    A private word is replaced by the distribution of its originals: Bayes' rule through the mechanism. Its prior, the words
    of all documents, is found by expectation maximization. The regression learns weights of original words, and reads
    clear text.

    Parameters
    ----------
    mechanism : Mechanism
        The one that made the private documents; with a closed output distribution.
    C : float, optional
        Inverse strength of the penalty, as in scikit-learn. Default: the best of several on one private document in five.

    Attributes
    ----------
    classes_ : ndarray
    words_ : ndarray of float64, shape (V,)
        How often each word was in the originals.
    coef_ : ndarray of float64, shape (V, classes)
    intercept_ : ndarray of float64, shape (classes,)
    C_ : float

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vectors = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> words = textpriv.Vocabulary(["good", "fine", "bad", "poor"], vectors)
    >>> index = textpriv.Index.build(words, "euclidean")
    >>> mechanism = textpriv.TEM(index, epsilon=2.0)
    >>> private = list(textpriv.Privatizer(mechanism, seed=1).pipe(["good fine", "bad poor"] * 50))
    >>> model = ChannelClassifier(mechanism).fit(private, ["yes", "no"] * 50)
    >>> model.predict(["fine", "poor"]).tolist()
    ['yes', 'no']
    """

    def __init__(self, mechanism: Mechanism, C: float | None = None) -> None:
        self.mechanism = mechanism
        self.C = C

    def fit(self, documents: Any, y: Any, sample_weight: Any = None) -> ChannelClassifier:
        """Learn the classes of private documents: texts, or a sparse matrix of counts of shape (D, V).

        ``sample_weight``, shape (D,), is how much each document counts for the weights of words.
        """
        if self.C is not None and not self.C > 0:
            raise TextprivError(f"C must be above 0; got {self.C}.")
        sklearn, counts = needs("sklearn.utils.validation"), self._counts(documents)
        given = sklearn.column_or_1d(y, warn=True)
        if needs("pandas").isna(given).any():
            raise TextprivError("some documents have no label (None or NaN). Leave them out.")
        shares = np.ones(len(given)) if sample_weight is None else np.asarray(sample_weight, float)
        sklearn.check_consistent_length(counts, given, shares)
        if not (shares >= 0).all():
            raise TextprivError("each sample_weight must be a number of 0 or more.")
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            raise TextprivError("expected at least 2 classes in y, found one.")
        originals = _Originals(_shared(self.mechanism), counts.T @ shares)
        self.words_ = originals.words
        learner = _Learner(originals, counts, labels, shares, len(self.classes_))
        self.C_, start = learner.chosen() if self.C is None else (self.C, None)
        weights = learner.weights(self.C_, start)
        self.coef_, self.intercept_ = weights[:-1] * originals.scale, weights[-1]
        return self

    def decision_function(self, documents: Any) -> NDArray[np.float64]:
        """Scores of the classes of each clear document, shape (D, classes); for two, the score of the second, (D,)."""
        scores = self._scores(documents)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, documents: Any) -> NDArray[Any]:
        """The likeliest class of each clear document, shape (D,)."""
        scores = self._scores(documents)
        return self.classes_[scores.argmax(axis=1)]

    def predict_proba(self, documents: Any) -> NDArray[np.float64]:
        """Probabilities of the classes of each clear document, shape (D, classes)."""
        return np.asarray(softmax(self._scores(documents), axis=1))

    def _scores(self, documents: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return np.asarray(self._counts(documents) @ self.coef_ + self.intercept_)

    def _counts(self, documents: Any) -> csr_matrix:
        index = self.mechanism.index
        if issparse(documents):
            return documents.tocsr()
        if isinstance(documents, str) or hasattr(documents, "columns"):
            raise TextprivError('expected a list of texts: pass [text] or frame["text"].')
        texts = list(documents)
        if not all(isinstance(text, str) for text in texts):
            raise TextprivError("some documents are no texts. Leave them out, with their labels.")
        # The mask of a typed span, such as [PERSON], is no drawn word.
        masked = (_MASK.sub(" ", text) for text in texts)
        return count_matrix(*token_ids(masked, index.vocabulary), len(index))


@lru_cache(maxsize=1)  # some 100 MB
def _shared(mechanism: Mechanism) -> OutputDistribution:
    """Return the output distribution of a mechanism, kept for its next fit: to list it takes most of one."""
    return OutputDistribution(mechanism.average())


@dataclass(frozen=True)
class _Learner:
    """Documents to learn from, with counts of words in shape (D, V), and classes and weights in shape (D,)."""

    originals: _Originals
    counts: csr_matrix
    labels: NDArray[np.int64]
    shares: NDArray[np.float64]
    classes: int

    def chosen(self) -> tuple[float, NDArray[np.float64]]:
        """The C that is best on one document in five, and the weights that it gave."""
        at_held = np.random.default_rng(0).permutation(len(self.labels)) % _HELD_OUT == 0
        learned, held = self._of(~at_held), self._of(at_held)
        best, most, weights = (0.0, np.zeros(0)), -1.0, None
        for cost in _TRIED:
            weights = learned.weights(cost, weights)
            right = float(held.shares @ (held.scores(weights).argmax(axis=1) == held.labels))
            if right > most:
                best, most = (cost, weights), right
        return best

    def _of(self, rows: NDArray[np.bool_]) -> _Learner:
        return replace(
            self, counts=self.counts[rows], labels=self.labels[rows], shares=self.shares[rows]
        )

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of the classes, shape (D, classes)."""
        return np.asarray(self.counts @ self.originals.matmat(weights[:-1]) + weights[-1])

    def weights(self, cost: float, start: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Weights of scaled words, and last the intercepts, by penalized maximum likelihood, shape (V + 1, classes)."""
        shape = self.counts.shape[1] + 1, self.classes
        rows, turned = np.arange(len(self.labels)), self.counts.T.tocsr()

        def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            weights = flat.reshape(shape)
            logs = log_softmax(self.scores(weights), axis=1)
            slopes = np.exp(logs)
            slopes[rows, self.labels] -= 1.0
            slopes *= cost * self.shares[:, None]
            of_words = self.originals.rmatmat(turned @ slopes) + weights[:-1]
            penalty = float((weights[:-1] ** 2).sum()) / 2
            missed = float(self.shares @ logs[rows, self.labels])
            return penalty - cost * missed, np.vstack([of_words, slopes.sum(axis=0)]).ravel()

        begin = np.zeros(shape) if start is None else start
        found = minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options=_SEARCH)
        return found.x.reshape(shape)


class _Originals:
    """The matrix ``Q[y, w]``: how likely word w is the original of output y, times the scale of w.

    ``words`` (V,) is how often each word was written, by expectation maximization with a Dirichlet prior. ``scale`` (V, 1)
    takes down common words, so that they do not outweigh all others.
    """

    def __init__(self, distribution: OutputDistribution, outputs: NDArray[np.float64]) -> None:
        # The likeliest outputs of each word, and a matrix of rank one for all others.
        listed, others = distribution.sparse_rows
        left = np.maximum(1.0 - np.asarray(listed.sum(axis=1)).ravel(), 0.0)
        others = (others + 1e-9) / (others + 1e-9).sum()
        columns = listed.T.tocsr()
        words, pull = distribution.prior, _PULL * outputs.sum() * distribution.prior
        for _ in range(_STEPS):
            ratio = outputs / (columns @ words + (words @ left) * others)
            words = words * (listed @ ratio + left * (ratio @ others)) + pull
            words /= words.sum()
        self.words = words
        self.scale = ((words + 1e-3 / len(words)) ** -_POWER)[:, None]
        self.scale /= np.sqrt((words[:, None] * self.scale**2).sum())
        total = columns @ words + (words @ left) * others
        scaled = words * self.scale[:, 0]
        self._listed = csr_matrix(columns.multiply(scaled).multiply(1.0 / total[:, None]))
        self._turned = self._listed.T.tocsr()
        self._left, self._others = scaled * left, others / total

    def matmat(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The product of the matrix with weights of words, shape (V, classes)."""
        return np.asarray(self._listed @ weights + np.outer(self._others, self._left @ weights))

    def rmatmat(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """The product of the transposed matrix with slopes of the outputs, shape (V, classes)."""
        return np.asarray(self._turned @ slopes + np.outer(self._left, self._others @ slopes))


def count_matrix(ids: NDArray[np.integer], offsets: NDArray[np.int64], words: int) -> csr_matrix:
    """Count the words of documents ``ids[offsets[j]:offsets[j + 1]]``, shape (D, words); negative ids are not counted."""
    rows, known = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), ids >= 0
    ones = np.ones(int(known.sum()), dtype=np.float32)
    counts = csr_matrix((ones, (rows[known], ids[known])), shape=(len(offsets) - 1, words))
    counts.sum_duplicates()
    return counts
