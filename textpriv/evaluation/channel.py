"""Learning through the channel: features of private text that know how its words were drawn.

The law of a mechanism is public, so whatever is computed from its outputs with it is post-processing and costs no privacy
(mechanisms.md 3.4b). An output word becomes the words it may come from, each with its posterior probability, or the mean of
their embeddings. Models train on such features of private text and are used on clear text. The law itself is in
``textpriv.evaluation.law``; this module needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.utility import count_matrix, log_counts, mean_rows
from textpriv.mechanisms.base import Mechanism
from textpriv.metrics import TREE
from textpriv.optional import needs
from textpriv.privatizer import Privatizer
from textpriv.vocabulary.vocabulary import Prior

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator, TransformerMixin
else:
    _base = needs("sklearn.base")
    BaseEstimator, TransformerMixin = _base.BaseEstimator, _base.TransformerMixin

__all__ = ["ChannelVectorizer", "channel_embedding"]


class ChannelVectorizer(TransformerMixin, BaseEstimator):
    """Turn documents into features that undo, on average, what a mechanism did to their words.

    In a pipeline, ``fit`` reads private documents and makes posterior features; ``predict`` reads clear ones and makes
    plain features of the same kind, unless ``at_predict`` is "private". Nothing is learned from the documents.

    Parameters
    ----------
    mechanism : Mechanism
        The one that made the private documents; with a closed law.
    output : {"counts", "embedding"}
        "counts": log(1 + expected count) of every word, sparse. "embedding": mean of the posterior-mean embeddings.
    prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written. Public.
    floor : float
        Of "counts": posterior probabilities below this are left out.
    table : ndarray, shape (V, n), optional
        Embeddings for "embedding"; the vocabulary's vectors by default.
    at_predict : {"clear", "private"}
        What ``transform`` reads.

    Attributes
    ----------
    private_table_ : csr_matrix (V, V) or ndarray (V, n)
        What an output word stands for.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> vectors = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> index = textpriv.Index.build(textpriv.Vocabulary(["good", "fine", "bad", "poor"], vectors))
    >>> mechanism = textpriv.TEM(index, epsilon=2.0)
    >>> private = list(textpriv.Privatizer(mechanism, seed=1).pipe(["good fine", "bad poor"] * 50))
    >>> model = make_pipeline(ChannelVectorizer(mechanism), LogisticRegression())
    >>> model.fit(private, [1, 0] * 50).predict(["fine", "poor"]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        mechanism: Mechanism,
        output: str = "counts",
        prior: Prior = "zipf",
        floor: float = 0.01,
        table: NDArray[Any] | None = None,
        at_predict: str = "clear",
    ) -> None:
        self.mechanism = mechanism
        self.output = output
        self.prior = prior
        self.floor = floor
        self.table = table
        self.at_predict = at_predict

    def fit(self, documents: Any = None, y: Any = None) -> ChannelVectorizer:
        """Compute the posterior of every output word; the documents are not read.

        Raises
        ------
        TextprivError, MechanismError
            For parameters without meaning, or a mechanism without a closed law.
        """
        if self.output not in ("counts", "embedding"):
            raise TextprivError(f"output is 'counts' or 'embedding'; got {self.output!r}.")
        if self.at_predict not in ("clear", "private"):
            raise TextprivError(f"at_predict is 'clear' or 'private'; got {self.at_predict!r}.")
        law = Law(self.mechanism, self.prior)
        if self.output == "counts":
            self.private_table_ = law.posterior(self.floor)
        else:
            self.private_table_ = law.posterior_means(self._clear_table())
        return self

    def fit_transform(self, documents: Any, y: Any = None, **parameters: Any) -> Any:
        """Return the features of private documents, shape (D, V) sparse or (D, n)."""
        return self.fit(documents, y).transform_private(documents)

    def transform(self, documents: Any) -> Any:
        """Return the features of documents as ``at_predict`` says."""
        if self.at_predict == "private":
            return self.transform_private(documents)
        counts = self._counts(documents)
        if self.output == "counts":
            return log_counts(counts)
        return mean_rows(counts, self._clear_table())

    def transform_private(self, documents: Any) -> Any:
        """Return the features of private documents: texts, lists of word ids, or a sparse matrix of counts."""
        if not hasattr(self, "private_table_"):
            raise TextprivError("fit the ChannelVectorizer first.")
        counts = self._counts(documents)
        if self.output == "counts":
            return log_counts((counts @ self.private_table_).tocsr())
        return mean_rows(counts, self.private_table_)

    def _clear_table(self) -> NDArray[np.float32]:
        return _table_of(self.mechanism, self.table)

    def _counts(self, documents: Any) -> csr_matrix:
        words = len(self.mechanism.index)
        if isinstance(documents, csr_matrix):
            if documents.shape[1] != words:
                raise TextprivError(
                    f"counts must have one column a word: {words}; got {documents.shape[1]}."
                )
            return documents
        if isinstance(documents, str):
            raise TextprivError("give several documents, not one text.")
        codes = list(self._read(documents))
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in codes])]).astype(np.int64)
        ids = np.concatenate(codes) if codes else np.empty(0, dtype=np.int32)
        if len(ids) and ids.max() >= words:
            raise TextprivError(f"word ids must be below {words}; got {int(ids.max())}.")
        return count_matrix(ids, offsets, words)

    def _read(self, documents: Iterable[Any]) -> Iterable[NDArray[np.int32]]:
        reader: Privatizer | None = None
        for number, document in enumerate(documents):
            if isinstance(document, str):
                reader = reader or Privatizer(self.mechanism)
                yield reader.read(document).codes
                continue
            ids = np.asarray(document)
            if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
                raise TextprivError(
                    f"document {number} is of type {type(document).__name__}, not a text or a list of word ids."
                )
            yield ids.astype(np.int32)


def channel_embedding(
    mechanism: Mechanism,
    prior: Prior = "zipf",
    *,
    table: NDArray[Any] | None = None,
    trainable: bool = True,
) -> Any:
    """Return a ``torch.nn.EmbeddingBag`` (mode "mean") that starts from the posterior mean of every output word.

    Parameters
    ----------
    mechanism : Mechanism
    prior : see :class:`ChannelVectorizer`
    table : ndarray, shape (V, n), optional
        Embeddings to average; the vocabulary's vectors by default.
    trainable : bool
    """
    torch = needs("torch")
    means = Law(mechanism, prior).posterior_means(_table_of(mechanism, table))
    return torch.nn.EmbeddingBag.from_pretrained(
        torch.from_numpy(means), freeze=not trainable, mode="mean"
    )


def _table_of(mechanism: Mechanism, table: NDArray[Any] | None) -> NDArray[np.float32]:
    """The embeddings that are averaged: those given, or the vocabulary's vectors."""
    if table is None and mechanism.index.metric.kind == TREE:
        raise TextprivError(
            "a tree keeps no vectors: give the embeddings of its words, as table= of shape (V, n)."
        )
    given = mechanism.index.vocabulary.vectors if table is None else table
    return np.asarray(given, dtype=np.float32)
