"""Utility against the success of the best attacker: laws are compared where as many words are got back from each.

An epsilon compares laws under one metric only. Here every law is set to the epsilon at which the best attacker gets back the
same share of content words (mechanisms.md 10.5), by ``best_attacker``. What is then still learned from private documents is
measured here, on clear ones; how results are shown is the business of who calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.evaluation.utility import count_matrix, log_counts, mean_rows, root_counts
from textpriv.mechanisms.base import Mechanism
from textpriv.optional import needs

__all__ = ["Documents", "Make", "Task", "interval", "similarity"]

Make = Callable[[float], Mechanism]  # a law, of its epsilon

_BOOTSTRAPS = 400
_SIDES = (2.5, 97.5)  # of an interval, in per cent


class Documents(NamedTuple):
    """Documents as word ids, one after the other, and the class of each.

    Attributes
    ----------
    ids : ndarray of int32, shape (T,)
        -1 for a word outside the vocabulary.
    offsets : ndarray of int64, shape (D + 1,)
    labels : ndarray of int64, shape (D,)
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64]

    def between(self, begin: int, end: int) -> Documents:
        """Documents ``begin`` to ``end``."""
        edges = self.offsets[begin : end + 1]
        return Documents(self.ids[edges[0] : edges[-1]], edges - edges[0], self.labels[begin:end])

    def take(self, documents: NDArray[np.int64]) -> Documents:
        """Some documents, in the order given."""
        lengths = np.diff(self.offsets)[documents]
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(self.offsets[documents] - ends[:-1], lengths) + np.arange(ends[-1])
        return Documents(self.ids[at], ends, self.labels[documents])

    def counts(self, words: int, ids: NDArray[np.int32] | None = None) -> csr_matrix:
        """Count words, or others that stand in their stead, shape (D, ``words``)."""
        return count_matrix(self.ids if ids is None else ids, self.offsets, words)


@dataclass(frozen=True)
class Task:
    """What is learned from private documents, and tested on clear ones.

    Attributes
    ----------
    train, test : Documents
    words : int
        Size of the vocabulary.
    cost : float
        The C of the logistic regression.
    table : ndarray of float32, shape (V, n), optional
        A row for each word: documents are then means of rows, where otherwise they are counts of words.
    """

    train: Documents
    test: Documents
    words: int
    cost: float = 0.1
    table: NDArray[np.float32] | None = None

    def features(self, documents: Documents, ids: NDArray[np.int32] | None = None) -> Any:
        """What the classifier reads, shape (D, columns)."""
        counts = documents.counts(self.words, ids)
        return (
            log_counts(counts) if self.table is None else mean_rows(root_counts(counts), self.table)
        )

    @cached_property
    def tested(self) -> Any:
        """What the classifier reads of the test documents."""
        return self.features(self.test)

    def right(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which test documents are classified as they are after training on these words, shape (documents,).

        Raises
        ------
        TextprivError
            Without scikit-learn.
        """
        model = needs("sklearn.linear_model").LogisticRegression(
            C=self.cost,
            solver="liblinear",
            dual=self.table is None,
            max_iter=100,
            tol=0.01,
            random_state=0,
        )
        if self.train.labels.max() > 1:
            model = needs("sklearn.multiclass").OneVsRestClassifier(model)
        model.fit(self.features(self.train, ids), self.train.labels)
        found: NDArray[np.bool_] = model.predict(self.tested) == self.test.labels
        return found

    @property
    def guessing(self) -> float:
        """Accuracy of naming the commonest class."""
        return float(np.bincount(self.test.labels).max() / len(self.test.labels))


def similarity(documents: Documents, ids: NDArray[np.int32], table: NDArray[np.float32]) -> float:
    """The mean cosine between documents and their private forms, as mean rows of a centred table (V, n)."""
    whole = mean_rows(documents.counts(len(table)), table)
    private = mean_rows(documents.counts(len(table), ids), table)
    lengths = np.linalg.norm(whole, axis=1) * np.linalg.norm(private, axis=1)
    return float(((whole * private).sum(axis=1) / np.maximum(lengths, 1e-30)).mean())


def interval(
    first: NDArray[np.bool_], second: NDArray[np.bool_] | None = None
) -> tuple[float, float, float]:
    """Accuracy, or how far one is ahead of another, and a 95 % interval: draws and test documents are taken anew.

    Parameters
    ----------
    first, second : ndarray of bool, shape (seeds, documents)
        Which test documents are classified as they are; the documents of both are the same.
    """
    rng = np.random.default_rng(0)
    found = np.empty(_BOOTSTRAPS)

    def drawn(right: NDArray[np.bool_]) -> Any:
        # Draws of two laws are independent, so seeds are taken apart; documents are the same for both.
        return right[rng.integers(len(right), size=len(right))].mean(axis=0)

    for at in range(_BOOTSTRAPS):
        times = rng.multinomial(first.shape[1], np.full(first.shape[1], 1 / first.shape[1]))
        ahead = drawn(first) - (0.0 if second is None else drawn(second))
        found[at] = ahead @ times / first.shape[1]
    low, high = np.percentile(found, _SIDES)
    mean = first.mean() - (0.0 if second is None else second.mean())
    return float(mean), float(low), float(high)
