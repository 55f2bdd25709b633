"""Vectors of words by the public documents that they share, and common words set apart: spaces in which to draw.

Vectors trained on a few words of context put opposites beside each other; whole documents tell them apart, and keep what
documents are about. Any table of public vectors declares a metric, and the promise is about that metric (mechanisms.md
10.5). What a space is worth is measured in ``evaluation.comparison``; nothing here is private.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import VocabularyError

__all__ = ["common_apart", "topic_vectors"]


def topic_vectors(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    words: int,
    size: int = 64,
    *,
    shared: int = 5,
) -> NDArray[np.float64]:
    """Vectors of length one by the documents that words share: leading directions of their positive mutual information.

    After Levy and Goldberg, "Neural Word Embedding as Implicit Matrix Factorization" (2014); contexts are whole documents.

    Parameters
    ----------
    ids : ndarray of int, shape (T,)
        Words of all documents, one after the other, which must be public; negative ones are not in the vocabulary.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
    words : int
        Size V of the vocabulary; the table of all pairs takes 16 V^2 bytes.
    size : int
        Directions, below V.
    shared : int
        Words that share fewer documents count as strangers.

    Returns
    -------
    ndarray of float64, shape (V, size + 1)
        The last column is 1 for words that share no documents with any other, and about 0 for all others.

    Raises
    ------
    VocabularyError
        Where no two words share so many documents.
    """
    from scipy.sparse.linalg import eigsh

    if not 1 <= size < words:
        raise VocabularyError(f"size lies between 1 and {words - 1}, below the words; got {size}.")
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = ids >= 0
    there = csr_matrix(
        (np.ones(int(known.sum())), (rows[known], ids[known])), shape=(len(offsets) - 1, words)
    )
    there.sum_duplicates()
    there.data[:] = 1
    together = (there.T @ there).toarray()
    alone = np.diag(together)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * there.shape[0] / np.outer(alone, alone))
    information[(together < shared) | ~(information > 0)] = 0
    np.fill_diagonal(information, 0)
    if not information.any():
        raise VocabularyError(
            f"no two words share {shared} documents more often than by chance: give more documents, or take fewer as shared="
        )
    values, directions = eigsh(information, k=size, v0=np.ones(words))
    found = directions * np.sqrt(np.maximum(values, 0))
    found = np.c_[found, 1e-6 + (np.linalg.norm(found, axis=1) < 1e-6)]
    return found / np.linalg.norm(found, axis=1)[:, None]


def common_apart(
    vectors: NDArray[np.floating],
    prior: NDArray[np.float64],
    common: int = 250,
    stretch: float = 4.0,
) -> NDArray[np.float64]:
    """Vectors in which common words lie far from all others and from each other: they mostly stay, the others hide.

    Parameters
    ----------
    vectors : ndarray, shape (V, n)
        Public.
    prior : ndarray of float64, shape (V,)
        How often each word is written. Public.
    common : int
        How many of the commonest words are set apart.
    stretch : float
        How much larger distances between these become; from all others they lie at three times as much, in units of the
        root mean square length of the vectors.

    Returns
    -------
    ndarray of float64, shape (V, n + 1)
        Scaled to a root mean square length of one before common words are moved.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    rows = np.c_[rows / np.sqrt((rows**2).sum(axis=1).mean()), np.zeros(len(rows))]
    first = np.argsort(-prior, kind="stable")[:common]
    rows[first] *= stretch
    rows[first, -1] = 3 * stretch
    return rows
