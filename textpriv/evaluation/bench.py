"""A trade-off curve from what comes with the package alone: built-in words, and documents that are made of them.

Documents of six subjects are drawn from the built-in vocabulary by a fixed seed: half of the words by Zipf's law, half by it
and by how near they lie to a word of the subject. They are no language, so nobody reads them in context; what laws keep of
real texts is measured by the recipes. Laws are compared by ``tradeoff``, at equal success of the exact Bayes attacker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon
from textpriv.evaluation.tradeoff import Documents, Make, Task, interval
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms.tem import TEM
from textpriv.mechanisms.tree_tem import TreeTEM
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["Row", "clear_accuracy", "curve", "laws", "made_task"]

_SUBJECTS, _WORDS_EACH = 6, 60
_SHARPNESS = 6.0  # of a subject, about the cosine with its word
_PROJECTION = 16


class Row(NamedTuple):
    """A law at one success of the attacker.

    Attributes
    ----------
    law : str
    share : float
        Of content words that the best attacker of lone words gets back; what was asked for.
    epsilon : float
        In units of the law's own metric.
    everything : float
        The share of all words that he gets back.
    accuracy, low, high : float
        On clear documents, after learning from private ones, with a 95 % interval.
    """

    law: str
    share: float
    epsilon: float
    everything: float
    accuracy: float
    low: float
    high: float


def made_task(vocabulary: Vocabulary, documents: int) -> Task:
    """Documents of six subjects, two thirds to learn from and one third to test on; the same ones every time."""
    rng = np.random.default_rng(0)
    unit = vocabulary.vectors / np.linalg.norm(vocabulary.vectors, axis=1)[:, None]
    prior = vocabulary.prior_weights("zipf")
    subjects = rng.choice(np.arange(len(prior) // 10, len(prior) // 2), _SUBJECTS, replace=False)
    labels = rng.integers(0, _SUBJECTS, size=documents)
    ids = np.empty((documents, _WORDS_EACH), dtype=np.int32)
    for label, word in enumerate(subjects.tolist()):
        near: NDArray[np.float64] = prior * np.exp(_SHARPNESS * (unit @ unit[word]))
        law = 0.5 * prior + 0.5 * near / near.sum()
        rows = np.flatnonzero(labels == label)
        ids[rows] = rng.choice(len(prior), size=(len(rows), _WORDS_EACH), p=law / law.sum())
    offsets = np.arange(0, documents * _WORDS_EACH + 1, _WORDS_EACH, dtype=np.int64)
    made, learned = Documents(ids.ravel(), offsets, labels), 2 * documents // 3
    return Task(made.between(0, learned), made.between(learned, documents), len(prior))


def laws(vocabulary: Vocabulary) -> dict[str, Make]:
    """The laws that are compared, each a function of its epsilon. At equal success the rate drops out."""
    plain = Index.build(vocabulary, hnsw=False)
    unit = Index.build(vocabulary, "unit_euclidean", hnsw=False)
    projected = Index.build(vocabulary, "unit_euclidean", projection=_PROJECTION, hnsw=False)
    tree = Tree.build(vocabulary, "average")
    return {
        "TEM as published": lambda e: TEM(plain, e, prior="uniform"),
        "TEM, Zipf prior": lambda e: TEM(plain, e),
        "TEM, unit vectors, Zipf prior": lambda e: TEM(unit, e),
        f"TEM, projected to {_PROJECTION}, uniform prior": lambda e: TEM(
            projected, e, prior="uniform"
        ),
        f"TEM, projected to {_PROJECTION}, Zipf prior": lambda e: TEM(projected, e),
        "tree, Zipf prior": lambda e: TreeTEM(tree, e, prior="zipf"),
    }


def clear_accuracy(task: Task) -> float:
    """Accuracy without privacy."""
    return float(task.right(task.train.ids).mean())


def curve(
    vocabulary: Vocabulary, task: Task, shares: tuple[float, ...], seeds: int
) -> Iterator[Row]:
    """Each law at each success of the attacker, as it is measured.

    Parameters
    ----------
    vocabulary : Vocabulary
    task : Task
        Over its words.
    shares : tuple of float
        Of content words that the attacker gets back.
    seeds : int
        Draws of each law.

    Raises
    ------
    TextprivError
        Without scikit-learn.
    """
    prior = vocabulary.prior_weights("zipf")
    content, everything = BestAttacker(prior), BestAttacker(prior, "all")
    for name, make in laws(vocabulary).items():
        for share in shares:
            epsilon = largest_epsilon(make, share, content).epsilon
            mechanism = make(epsilon)
            right = np.stack(
                [
                    # Numpy's generator: what is made up is no secret.
                    task.right(mechanism.sample(task.train.ids, np.random.default_rng(seed)))
                    for seed in range(seeds)
                ]
            )
            yield Row(name, share, epsilon, everything.alone(mechanism), *interval(right))
