"""What an author's texts give away of the author: an attribute, such as sex or income, by a classifier trained on others.

The attacker has texts and attributes of other people, released by the same mechanism or in clear, and knows nothing of the
author but the texts. Who wrote a text is asked in ``reidentification``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.roc import Rate, binomial_interval
from textpriv.evaluation.utility import log_counts, rarities, rows_to_unit
from textpriv.optional import needs

__all__ = ["SETTINGS", "AttributeAttack", "infer_attribute"]

SETTINGS = tuple(
    (scaled, strength) for scaled in ("log", "rare") for strength in (1.0, 10.0, 100.0)
)
_FOLDS = 5


@dataclass(frozen=True)
class AttributeAttack:
    """How often an attribute is guessed.

    Attributes
    ----------
    authors : int
        That were guessed about.
    blind : float
        The share of the commonest value among them: what a guess that reads nothing gets.
    success : Rate
    setting : tuple of (str, float)
        How words count, and the strength of the fit, as chosen on the other authors.
    """

    authors: int
    blind: float
    success: Rate
    setting: tuple[str, float]


def infer_attribute(
    counts: csr_matrix,
    values: Sequence[str],
    shown: NDArray[np.bool_],
    *,
    settings: Sequence[tuple[str, float]] = SETTINGS,
    confidence: float = 0.95,
    seed: int = 0,
) -> AttributeAttack:
    """Guess an attribute of authors from their words, by logistic regression.

    Parameters
    ----------
    counts : csr_matrix, shape (A, V)
        Of an author's words, as released.
    values : sequence of str, length A
        The attribute.
    shown : ndarray of bool, shape (A,)
        The authors that are guessed about. Each is guessed by a classifier of all authors but a fifth of these, to which it
        belongs; the setting is chosen by such guesses among the other authors alone.
    settings : sequence of (str, float)
        What is tried: counts as logarithms, perhaps weighted by rarity ("rare"), and the strength of the fit.
    confidence : float
    seed : int
        Of the folds.

    Raises
    ------
    TextprivError
        Where either part has fewer than five authors, or one value.
    """
    labels, chosen = np.asarray(values), np.flatnonzero(shown)
    others = np.flatnonzero(~np.asarray(shown))
    for part in (chosen, others):
        if len(part) < _FOLDS or len(set(labels[part].tolist())) < 2:
            raise TextprivError(
                f"an attribute is guessed among at least {_FOLDS} authors with two values, on either side; got {len(part)}."
            )
    none = others[:0]
    score = [_right(counts, labels, others, none, each, seed).mean() for each in settings]
    best = settings[int(np.argmax(score))]
    right = _right(counts, labels, chosen, others, best, seed)
    blind = np.unique(labels[chosen], return_counts=True)[1].max() / len(chosen)
    low, high = binomial_interval(int(right.sum()), len(right), confidence)
    return AttributeAttack(len(chosen), float(blind), Rate(float(right.mean()), low, high), best)


def _right(
    counts: csr_matrix,
    labels: NDArray[Any],
    guessed: NDArray[np.int64],
    always: NDArray[np.int64],
    setting: tuple[str, float],
    seed: int,
) -> NDArray[np.bool_]:
    """Whether each of some authors is guessed, by a classifier of those that are always there and the other folds."""
    linear_model = needs("sklearn.linear_model")
    scaled, strength = setting
    right = np.zeros(len(guessed), dtype=np.bool_)
    fold = np.random.default_rng(seed).permutation(len(guessed)) % _FOLDS
    for number in range(_FOLDS):
        train = np.concatenate([always, guessed[fold != number]])
        if len(set(labels[train].tolist())) < 2:
            right[fold == number] = labels[guessed[fold == number]] == labels[train][0]
            continue
        weigh = _weights(counts[train], scaled)
        model = linear_model.LogisticRegression(C=strength, max_iter=300, random_state=0)
        model.fit(weigh(counts[train]), labels[train])
        found = model.predict(weigh(counts[guessed[fold == number]]))
        right[fold == number] = found == labels[guessed[fold == number]]
    return right


def _weights(train: csr_matrix, scaled: str) -> Any:
    """How the words of authors count, each author with length 1."""
    rarity = rarities(train)

    def weigh(counts: csr_matrix) -> csr_matrix:
        rows = log_counts(counts)
        return rows_to_unit(rows.multiply(rarity) if scaled == "rare" else rows)

    return weigh
