"""Utility against the success of the best attacker: laws are compared where as many words are got back from each.

An epsilon compares laws under one metric only. Here every law is set to the epsilon at which the best attacker gets back the
same share of content words (mechanisms.md 10.5): the exact Bayes attacker, who is told that a word is one, or one who reads
words in context where that one does better. What is then still learned from private documents is measured on clear ones. The
attackers stand in ``recovery`` and ``context_recovery``; how results are shown is the business of who calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText
from textpriv.evaluation.law import Law
from textpriv.evaluation.ngrams import NGrams
from textpriv.evaluation.recovery import COMMON, content_prior
from textpriv.evaluation.utility import count_matrix, log_counts, mean_rows, root_counts
from textpriv.mechanisms.base import Mechanism
from textpriv.optional import needs

__all__ = [
    "Attackers",
    "Context",
    "Documents",
    "Draw",
    "Make",
    "Success",
    "Task",
    "epsilon_at",
    "interval",
    "sampled_recovery",
    "similarity",
]

Make = Callable[[float], Mechanism]  # a law, of its epsilon
Draw = Callable[[NDArray[np.int32], int], NDArray[np.int32]]  # words and a seed to private words

_BOOTSTRAPS = 400
_SLOPE = 4.0  # of log-odds of recovery over the logarithm of epsilon, about
_NEAR, _TRIES = 0.04, 6  # in log-odds, and searches in context at most
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


class Success(NamedTuple):
    """What share of running words attackers get back.

    Attributes
    ----------
    content, everything : float
        Content words by the Bayes attacker who is told that they are, and all words.
    context : float or None
        Content words by the attacker who reads in context; None without a model.
    """

    content: float
    everything: float
    context: float | None = None

    @property
    def best(self) -> float:
        """The better attacker on content words."""
        return max(self.content, self.context or 0.0)


@dataclass(frozen=True)
class Context:
    """An attacker who reads words in context: a public language model, and public documents it is tried on."""

    model: NGrams
    documents: Documents
    candidates: int = 32


class Attackers:
    """Who tries to get words back, with what is known in public.

    Parameters
    ----------
    prior : ndarray of float64, shape (V,)
        How often each word is written; sums to 1.
    common : int
        How many of the commonest words are no content words.
    context : Context, optional
        Without it the Bayes attacker of lone words is the only one.
    """

    def __init__(
        self, prior: NDArray[np.float64], common: int = COMMON, context: Context | None = None
    ) -> None:
        self.prior, self.common, self.context = prior, common, context
        self.content = content_prior(prior, common)

    def guessed(self, mechanism: Mechanism, prior: NDArray[np.float64]) -> float:
        """Share of words written by a prior that the Bayes attacker gets back."""
        return float(Law(mechanism, self.prior).likeliest(prior)[1].sum())

    def in_context(self, mechanism: Mechanism) -> float:
        """Share of content words that are got back from context by an attacker who is told that they are."""
        assert self.context is not None
        model, documents, kept = self.context.model, self.context.documents, self.context.candidates
        text = PublicText(model, documents.ids, documents.offsets)
        attacker = BestAttacker(self.prior, "content", text, self.common, kept)
        return attacker.in_context(mechanism)[0]


def epsilon_at(
    make: Make,
    share: float,
    attackers: Attackers,
    *,
    everything: bool = False,
    between: tuple[float, float] = (0.05, 300.0),
) -> tuple[float, Success]:
    """Find the epsilon at which the best attacker gets back a share of content words, and what attackers get back there.

    Parameters
    ----------
    make : callable
        The law of an epsilon.
    share : float
        In (0, 1); met to about a fiftieth of it by the exact attacker, and to a twentieth in context, where draws of some
        thousand words say no more.
    attackers : Attackers
        Whoever is better counts.
    everything : bool
        Of all words instead, by the Bayes attacker.
    between : tuple of float
        Where to look.

    Raises
    ------
    TextprivError
        Where no epsilon in between gives that share.
    """
    from scipy.optimize import brentq

    if not 0 < share < 1:
        raise TextprivError(f"a share of words lies between 0 and 1; got {share}.")
    prior = attackers.prior if everything else attackers.content

    def excess(success: float) -> float:
        # In log-odds, which are nearly straight in the logarithm of epsilon.
        kept = min(max(success, 1e-9), 1 - 1e-9)
        return math.log(kept / (1 - kept)) - math.log(share / (1 - share))

    def alone(log_epsilon: float) -> float:
        return excess(attackers.guessed(make(math.exp(log_epsilon)), prior))

    low, high = map(math.log, between)
    try:
        at = float(brentq(alone, low, high, xtol=0.005, rtol=1e-6))
    except ValueError:
        raise TextprivError(
            f"no epsilon from {between[0]:g} to {between[1]:g} lets {share:g} of words be got back by this law."
        ) from None
    read = None
    if attackers.context is not None and not everything:
        at, read = _in_context(lambda x: attackers.in_context(make(math.exp(x))), excess, at)
    mechanism = make(math.exp(at))
    content, whole = (
        attackers.guessed(mechanism, of) for of in (attackers.content, attackers.prior)
    )
    return math.exp(at), Success(content, whole, read)


def _in_context(
    read: Callable[[float], float], excess: Callable[[float], float], at: float
) -> tuple[float, float]:
    """The logarithm of epsilon, up to ``at``, at which the attacker in context gets back no more: by secants, few tries."""
    best = read(at)
    before, slope = None, _SLOPE
    for _ in range(_TRIES):
        wrong = excess(best)
        if abs(wrong) < _NEAR or (before is None and wrong < 0):
            break
        if before is not None and at != before[0]:
            slope = min(max((wrong - before[1]) / (at - before[0]), 1.0), 4 * _SLOPE)
        before, at = (at, wrong), at - wrong / slope
        best = read(at)
    return at, best


def sampled_recovery(
    draw: Draw, prior: NDArray[np.float64], draws: int = 200, words: int | None = None
) -> float:
    """Share of words that an attacker gets back who knows a mechanism by drawing from it: a lower bound on the best one.

    Half of the draws say which word each output is most likely from, the other half how often that is right.

    Parameters
    ----------
    draw : callable
        Of word ids and a seed; returns ids, -1 for what is no word of the vocabulary.
    prior : ndarray of float64, shape (V,)
        How often each word is written.
    draws : int
        Of each word.
    words : int, optional
        Only the commonest by the prior are looked at; the others count as not got back.
    """
    seen = np.argsort(-prior, kind="stable")[: len(prior) if words is None else words]
    given = np.repeat(seen, draws).astype(np.int32)
    joint = []
    for seed in (0, 1):
        out = draw(given, seed)
        weight = np.where(out >= 0, prior[given] / draws, 0.0)
        joint.append(
            csr_matrix((weight, (np.maximum(out, 0), given)), shape=(len(prior), len(prior)))
        )
    guess = np.asarray(joint[0].argmax(axis=1)).ravel()
    known = np.asarray(joint[0].max(axis=1).todense()).ravel() > 0
    right = np.asarray(joint[1][np.arange(len(prior)), guess]).ravel()
    return float(right[known].sum())


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
