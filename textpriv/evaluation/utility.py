"""What a model can still learn from private text: two document classifiers, and the matrices they are trained on.

The torch model is the one of TEM (Carvalho, Vasiloudis, Feyisetan, Appendix C): the mean of a document's word embeddings and
a linear layer, 20 epochs of Adam with batches of 64. The scikit-learn model, logistic regression on word counts, is the fast
path. Both take documents as a sparse matrix of word counts. Features that know the mechanism's law are made in
``textpriv.evaluation.channel``. Training here protects nothing by itself: what is private about it is the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.optional import needs
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = [
    "MeanEmbeddingClassifier",
    "count_matrix",
    "log_counts",
    "mean_rows",
    "rarities",
    "root_counts",
    "rows_to_unit",
    "standardized",
    "whitened",
    "word_count_classifier",
]


def count_matrix(ids: NDArray[np.int32], offsets: NDArray[np.int64], words: int) -> csr_matrix:
    """Count words by document.

    Parameters
    ----------
    ids : ndarray of int, shape (T,)
        Word ids of all documents, one after the other; negative ones (unknown words) are not counted.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
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


def log_counts(counts: csr_matrix) -> csr_matrix:
    """Return log(1 + count), so that a word said often does not drown the others."""
    return counts.log1p()


def root_counts(counts: csr_matrix) -> csr_matrix:
    """Return the square root of every count: weights of a mean in which a repeated word does not drown the others."""
    return counts.sqrt()


def rarities(counts: csr_matrix) -> NDArray[np.float64]:
    """Return log((1 + D) / (1 + documents with it)) of each word among D documents, shape (V,)."""
    seen = np.asarray((counts > 0).sum(axis=0)).ravel()
    return np.log((1 + counts.shape[0]) / (1 + seen))


def rows_to_unit(counts: csr_matrix) -> csr_matrix:
    """Return every row over its length, in float64; rows of zeros stay as they are."""
    rows = csr_matrix(counts, dtype=np.float64)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return csr_matrix(rows.multiply(1 / np.where(lengths > 0, lengths, 1)[:, None]))


def mean_rows(counts: csr_matrix, table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean row of the table, weighted by counts, for each document: shape (D, n); zero for an empty one."""
    totals = np.asarray(counts.sum(axis=1)).reshape(-1, 1)
    return (counts @ table / np.maximum(totals, 1)).astype(np.float32)


def standardized(vocabulary: Vocabulary, scale: float = 5.0) -> NDArray[np.float32]:
    """Return the vectors, centred and scaled to one deviation ``scale`` in every coordinate under the public Zipf prior.

    It depends on public tables alone.
    """
    vectors = vocabulary.vectors.astype(np.float64)
    prior = vocabulary.prior_weights("zipf")
    mean = prior @ vectors
    deviation = np.sqrt(prior @ (vectors - mean) ** 2)
    return (scale * (vectors - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)


def whitened(vocabulary: Vocabulary) -> NDArray[np.float32]:
    """Return the vectors, centred, with the identity as their covariance under the public Zipf prior.

    Word vectors vary much more along some directions than along others, and Adam's steps have a fixed length: with
    whitened ones a linear layer learns all directions at one pace. The turn is symmetric (ZCA). Directions in which the
    vectors do not vary become zero. It depends on public tables alone.
    """
    vectors = vocabulary.vectors.astype(np.float64)
    prior = vocabulary.prior_weights("zipf")
    centred = vectors - prior @ vectors
    variances, directions = np.linalg.eigh((centred * prior[:, None]).T @ centred)
    varies = variances > 1e-10 * variances.max()
    lengths = np.where(varies, np.where(varies, variances, 1.0) ** -0.5, 0.0)
    return (centred @ (directions * lengths) @ directions.T).astype(np.float32)


def word_count_classifier() -> Any:
    """Return an unfitted scikit-learn pipeline: log(1 + count), then logistic regression.

    Raises
    ------
    TextprivError
        Without scikit-learn.
    """
    linear_model = needs("sklearn.linear_model")
    preprocessing = needs("sklearn.preprocessing")
    pipeline = needs("sklearn.pipeline")
    return pipeline.make_pipeline(
        preprocessing.FunctionTransformer(log_counts, accept_sparse=True),
        linear_model.LogisticRegression(
            C=0.1, solver="liblinear", dual=True, max_iter=100, tol=0.01, random_state=0
        ),
    )


class MeanEmbeddingClassifier:
    """Mean of word embeddings and a linear layer, after fastText (Joulin et al. 2017) as in TEM's Appendix C.

    Parameters
    ----------
    table : ndarray, shape (V, n)
        Public embeddings that training starts from.
    tune : bool
        Also train the embeddings, as fastText does. Fixed embeddings cannot memorise single documents; trained ones can.
    epochs : int
    batch_size : int
    scale : float
        What means are multiplied by before the layer sees them. Adam's steps have a fixed length, so it says how far
        the layer gets in these epochs; the larger, the less regularised.
    seed : int
        Of the initial layer and the order of the documents.

    Attributes
    ----------
    table_ : ndarray of float32, shape (V, n)
        After :meth:`fit`; the given one unless tuned.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> table = np.eye(2, dtype=np.float32)
    >>> documents, labels = csr_matrix(np.eye(2, dtype=np.float32).repeat(32, axis=0)), np.repeat([0, 1], 32)
    >>> model = MeanEmbeddingClassifier(table, epochs=200).fit(documents, labels)
    >>> model.score(documents, labels)
    1.0
    """

    def __init__(
        self,
        table: NDArray[Any],
        *,
        tune: bool = False,
        epochs: int = 20,
        batch_size: int = 64,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.table = table
        self.tune = tune
        self.epochs = epochs
        self.batch_size = batch_size
        self.scale = scale
        self.seed = seed

    def fit(
        self,
        counts: csr_matrix | None,
        labels: ArrayLike,
        *,
        means: NDArray[np.float32] | None = None,
    ) -> MeanEmbeddingClassifier:
        """Train on documents.

        Parameters
        ----------
        counts : csr_matrix, shape (D, V)
        labels : array_like of int, shape (D,)
            Classes 0 and up.
        means : ndarray of float32, shape (D, n), optional
            The documents as means instead of counts, with fixed embeddings only: from posterior means, for example.

        Raises
        ------
        TextprivError
            For shapes that do not fit, labels that are no classes, or without torch.
        """
        torch = needs("torch")
        target = np.asarray(labels)
        rows = self._check(counts, target, means)
        state = torch.Generator().manual_seed(self.seed)
        self.table_ = np.asarray(self.table, dtype=np.float32)
        classes = max(2, int(target.max()) + 1)
        layer = torch.nn.Linear(self.table_.shape[1], classes)
        bound = self.table_.shape[1] ** -0.5
        with torch.no_grad():
            layer.weight.uniform_(-bound, bound, generator=state)
            layer.bias.uniform_(-bound, bound, generator=state)
        answers = torch.from_numpy(target.astype(np.int64))
        steps = [torch.optim.Adam(layer.parameters())]
        if self.tune:
            assert counts is not None
            shares = _shares(counts)
            embedding = torch.nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(self.table_.copy()), freeze=False, mode="sum", sparse=True
            )
            # Adam with lazy moments: a word is updated when a batch holds it.
            steps.append(torch.optim.SparseAdam(embedding.parameters()))

            def inputs(batch: Any) -> Any:
                part = shares[batch.numpy()]
                return embedding(
                    torch.from_numpy(part.indices.astype(np.int64)),
                    torch.from_numpy(part.indptr[:-1].astype(np.int64)),
                    per_sample_weights=torch.from_numpy(part.data),
                )
        else:
            if means is None:
                assert counts is not None
                means = mean_rows(counts, self.table_)
            documents = torch.from_numpy(np.ascontiguousarray(means, dtype=np.float32))

            def inputs(batch: Any) -> Any:
                return documents[batch]

        for _ in range(self.epochs):
            for batch in torch.randperm(rows, generator=state).split(self.batch_size):
                for step in steps:
                    step.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(
                    layer(self.scale * inputs(batch)), answers[batch]
                ).backward()
                for step in steps:
                    step.step()
        if self.tune:
            self.table_ = embedding.weight.detach().numpy()
        self.weight_ = self.scale * layer.weight.detach().numpy().T
        self.bias_ = layer.bias.detach().numpy().copy()
        return self

    def _check(
        self,
        counts: csr_matrix | None,
        target: NDArray[Any],
        means: NDArray[np.float32] | None,
    ) -> int:
        """Return the number of documents, or refuse what does not fit."""
        rows = means.shape[0] if means is not None else (0 if counts is None else counts.shape[0])
        if rows == 0 or target.shape != (rows,):
            raise TextprivError(
                f"give one label for every document; got {rows} documents and labels of shape {target.shape}."
            )
        if not np.issubdtype(target.dtype, np.integer) or target.min() < 0:
            raise TextprivError("labels must be classes 0, 1, ... as whole numbers.")
        if self.tune and counts is None:
            raise TextprivError("trained embeddings need the counts of words, not means.")
        return rows

    def decision(
        self, counts: csr_matrix | None, *, means: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the logits, shape (D, classes)."""
        if means is None:
            if counts is None:
                raise TextprivError("give documents as counts or as means.")
            means = mean_rows(counts, self.table_)
        return means @ self.weight_ + self.bias_

    def predict_proba(
        self, counts: csr_matrix | None, *, means: NDArray[np.float32] | None = None
    ) -> NDArray[np.float64]:
        """Return the probabilities of the classes, shape (D, classes)."""
        from scipy.special import softmax

        return softmax(self.decision(counts, means=means).astype(np.float64), axis=1)

    def predict(
        self, counts: csr_matrix | None, *, means: NDArray[np.float32] | None = None
    ) -> NDArray[np.int64]:
        """Return the likeliest classes, shape (D,)."""
        return self.decision(counts, means=means).argmax(axis=1)

    def score(
        self,
        counts: csr_matrix | None,
        labels: ArrayLike,
        *,
        means: NDArray[np.float32] | None = None,
    ) -> float:
        """Return the share of documents whose class is predicted."""
        return float((self.predict(counts, means=means) == np.asarray(labels)).mean())


def _shares(counts: csr_matrix) -> csr_matrix:
    """Divide every row by its sum, so that a weighted sum of embeddings is a mean over words."""
    shares = counts.tocsr().astype(np.float32, copy=True)
    totals = np.asarray(shares.sum(axis=1)).ravel()
    shares.data /= np.repeat(np.maximum(totals, 1), np.diff(shares.indptr))
    return shares
