"""Whose text is it: find the original of a private document, and link two private documents of one author.

Private text keeps what the statement names as not protected, above all the number of words, and topic survives in the whole.
The attacks here use exactly that: lengths, means of embeddings, shares of words, and the law of the mechanism word by word.
Nothing is trained on the originals.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.roc import Attack, Rate, binomial_interval, score_attack
from textpriv.evaluation.utility import (
    count_matrix,
    log_counts,
    mean_rows,
    rarities,
    rows_to_unit,
)

__all__ = ["link_authors", "log_likelihoods", "reidentify", "similarities"]


def similarities(
    private: csr_matrix, clear: csr_matrix, table: NDArray[np.floating] | None = None
) -> NDArray[np.float64]:
    """Cosine of every private document with every candidate, shape (D, E).

    Parameters
    ----------
    private, clear : csr_matrix, shapes (D, V) and (E, V)
        Word counts.
    table : ndarray, shape (V, n), optional
        Compare mean embeddings, centred over the candidates; without it word counts, weighted by rarity.
    """
    if private.shape[1] != clear.shape[1]:
        raise TextprivError("both sides must count the same words.")
    if table is not None:
        given = np.asarray(table, dtype=np.float32)
        left, right = mean_rows(private, given), mean_rows(clear, given)
        # Each side has its own mean: a mechanism shifts all documents alike.
        left, right = left - left.mean(axis=0), right - right.mean(axis=0)
        return _rows_to_unit(left) @ _rows_to_unit(right).T
    rarity, wide = rarities(clear), (each.astype(np.float64) for each in (private, clear))
    sides = [rows_to_unit(log_counts(counts).multiply(rarity)) for counts in wide]
    return np.asarray((sides[0] @ sides[1].T).toarray())


def log_likelihoods(
    private: NDArray[np.int32],
    private_offsets: NDArray[np.int64],
    clear: NDArray[np.int32],
    clear_offsets: NDArray[np.int64],
    law: Law,
) -> NDArray[np.float64]:
    """Log P(private document | candidate), word by word, shape (D, E); -inf for another number of words.

    The strongest attack of someone who holds the candidates and knows the mechanism: the order and number of words are
    public. Unknown words draw from one law and add nothing.
    """
    lengths, wanted = np.diff(private_offsets), np.diff(clear_offsets)
    likelihoods = np.full((len(lengths), len(wanted)), -np.inf)
    pairs = [
        (document, candidate)
        for document, length in enumerate(lengths.tolist())
        for candidate in np.flatnonzero(wanted == length).tolist()
    ]
    if not pairs:
        return likelihoods
    inputs, outputs, home = [], [], []
    for number, (document, candidate) in enumerate(pairs):
        word = clear[clear_offsets[candidate] : clear_offsets[candidate + 1]]
        out = private[private_offsets[document] : private_offsets[document + 1]]
        known = (word >= 0) & (out >= 0)
        inputs.append(word[known])
        outputs.append(out[known])
        home.append(np.full(int(known.sum()), number))
    word, out, where = (np.concatenate(part) for part in (inputs, outputs, home))
    order = np.argsort(word, kind="stable")
    word, out, where = word[order], out[order], where[order]
    different, starts = np.unique(word, return_index=True)
    ends = np.append(starts[1:], len(word))
    total = np.zeros(len(pairs))
    for begin in range(0, len(different), 256):
        with np.errstate(divide="ignore"):
            rows = np.log(law.rows(different[begin : begin + 256].astype(np.int64)))
        for row, start, end in zip(
            rows, starts[begin : begin + 256], ends[begin : begin + 256], strict=True
        ):
            np.add.at(total, where[start:end], row[out[start:end]])
    for value, (document, candidate) in zip(total, pairs, strict=True):
        likelihoods[document, candidate] = value
    return likelihoods


def reidentify(
    scores: NDArray[np.float64],
    truth: NDArray[np.int64],
    *,
    name: str = "re-identification",
    loss: float = np.inf,
    confidence: float = 0.95,
) -> Attack:
    """Figures of a matrix of scores: is the highest candidate the original, and are originals told from others.

    Parameters
    ----------
    scores : ndarray, shape (D, E)
        Of every private document with every candidate; larger is likelier. ``-inf`` rules a candidate out.
    truth : ndarray of int, shape (D,)
        The candidate that each document comes from.
    name : str
    loss : float
        What the guarantee allows between two originals, in nats.
    confidence : float

    Returns
    -------
    Attack
        Among candidates of equal score the guess is at random: ``success`` counts the share.
    """
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth)
    if scores.ndim != 2 or truth.shape != (len(scores),) or scores.shape[1] < 2:
        raise TextprivError(
            f"scores have one row a document and one column a candidate, at least two; got {scores.shape} for "
            f"{truth.shape} true candidates."
        )
    if truth.min() < 0 or truth.max() >= scores.shape[1]:
        raise TextprivError(f"true candidates lie in 0..{scores.shape[1] - 1}.")
    documents = np.arange(len(scores))
    best = scores == scores.max(axis=1, keepdims=True)
    share = best[documents, truth] / best.sum(axis=1)
    hits = round(float(share.sum()))
    low, high = binomial_interval(hits, len(scores), confidence)
    others = np.ones(scores.shape, dtype=np.bool_)
    others[documents, truth] = False
    return score_attack(
        name,
        scores[documents, truth],
        scores[others],
        loss=loss,
        confidence=confidence,
        success=Rate(float(share.mean()), low, high, _success_ceiling(loss, scores.shape[1])),
        notes=(
            "pairs of one document are not independent, so the interval of the AUC is a little narrow",
        ),
    )


def link_authors(
    first: NDArray[np.int32],
    first_offsets: NDArray[np.int64],
    second: NDArray[np.int32],
    second_offsets: NDArray[np.int64],
    words: int,
    *,
    table: NDArray[np.floating] | None = None,
    loss: float = np.inf,
    confidence: float = 0.95,
) -> Attack:
    """Link the documents of two private releases that have one author each, the same in both.

    Parameters
    ----------
    first, second : ndarray of int, shapes (T,) and (U,)
        Private word ids; document j of both is by author j.
    first_offsets, second_offsets : ndarray of int64, shape (D + 1,)
    words : int
    table, loss, confidence : see :func:`similarities`, :func:`reidentify`
    """
    if len(first_offsets) != len(second_offsets):
        raise TextprivError("both releases must hold one document of every author, in one order.")
    scores = similarities(
        count_matrix(first, first_offsets, words),
        count_matrix(second, second_offsets, words),
        table,
    )
    return reidentify(
        scores,
        np.arange(len(scores)),
        name="author linkage",
        loss=loss,
        confidence=confidence,
    )


def _success_ceiling(loss: float, candidates: int) -> float:
    """The most often a guess among so many candidates, all alike beforehand, is right: exp(loss) / (exp(loss) + E - 1)."""
    return 1 / (1 + (candidates - 1) * math.exp(-loss))


def _rows_to_unit(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float64) / np.where(norms > 0, norms, 1)
