"""Mechanisms at equal recovery, compared by what private text is still worth.

Each mechanism is set to the epsilon at which the better attacker recovers the same share of content words.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import OutOfReachError, TextprivError, needs
from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon, text_of
from textpriv.evaluation.learning import ChannelClassifier, count_matrix
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import token_ids
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = needs("pandas").DataFrame

__all__ = ["Comparison", "Documents", "Task", "compare", "interval"]

_BOOTSTRAPS = 400
CLEAR, FUNCTION_ONLY = "clear text", "function words only"
_COLUMNS = (
    "mechanism asked epsilon alone context accuracy low high channel channel_low channel_high perplexity cosine kept "
    "words_per_second"
).split()


@dataclass(frozen=True)
class Documents:
    """Labelled documents ``ids[offsets[j]:offsets[j + 1]]``, with -1 for a word outside the vocabulary."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: NDArray[Any]

    @classmethod
    def read(cls, texts: Sequence[str], labels: Sequence[Any], vocabulary: Vocabulary) -> Documents:
        """Read texts over a vocabulary; symbols are left out."""
        ids, offsets = token_ids(texts, vocabulary)
        kept = ids >= UNKNOWN
        ends = np.concatenate([[0], np.cumsum(kept)])[offsets]
        return cls(ids[kept], ends, np.asarray(labels))

    def counts(self, words: int, ids: NDArray[np.int32] | None = None) -> Any:
        """Word counts, shape (D, words), of these ids or of others in their places."""
        return count_matrix(self.ids if ids is None else ids, self.offsets, words)


@dataclass(frozen=True)
class Task:
    """A classification to learn from private documents and to test on clear ones."""

    train: Documents
    test: Documents
    cost: float = 0.1  # C of the logistic regression on word counts

    def right(self, words: int, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which test documents a logistic regression gets right that learned from these ids in place of ``train.ids``."""
        model = needs("sklearn.linear_model").LogisticRegression(
            C=self.cost, solver="liblinear", dual=True, tol=0.01, random_state=0
        )
        if len(np.unique(self.train.labels)) > 2:
            model = needs("sklearn.multiclass").OneVsRestClassifier(model)
        model.fit(self.train.counts(words, ids).log1p(), self.train.labels)
        guess = model.predict(self.test.counts(words).log1p())
        return np.asarray(guess == self.test.labels)

    def right_by_channel(self, mechanism: Mechanism, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """:meth:`right` for :class:`ChannelClassifier`."""
        words = len(mechanism.index)
        model = ChannelClassifier(mechanism).fit(self.train.counts(words, ids), self.train.labels)
        return np.asarray(model.predict(self.test.counts(words)) == self.test.labels)

    def reads(self, ids: NDArray[np.int32], vocabulary: Vocabulary) -> dict[str, float]:
        """How these ids read by general English in place of ``train.ids``, and how near the words are to them."""
        known = self.train.ids >= 0
        content = known & vocabulary.is_content[self.train.ids]
        before, after = (vocabulary.vectors[each[content]] for each in (self.train.ids, ids))
        lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        english = general_english(vocabulary.words).words_only()
        return {
            "perplexity": english.perplexity(ids, self.train.offsets),
            "cosine": float(((before * after).sum(axis=1) / np.maximum(lengths, 1e-12)).mean()),
            "kept": float((ids == self.train.ids)[known].mean()),
        }


class Comparison(DataFrame):
    """Rows of :func:`compare`, with a plot."""

    @property
    def _constructor(self) -> type[Comparison]:
        return Comparison

    def plot(self, measure: str = "accuracy", axes: Any = None) -> Any:
        """Draw a measure over recovery, one line a mechanism, and return the axes."""
        if axes is None:
            axes = needs("matplotlib.pyplot").subplots(layout="constrained")[1]
        for name, rows in self.groupby("mechanism", sort=False):
            if name in (CLEAR, FUNCTION_ONLY):
                axes.axhline(rows[measure].iloc[0], color="0.5", linestyle=":", label=name)
                continue
            axes.plot(rows["asked"], rows[measure], marker="o", label=name)
            if measure == "accuracy":
                axes.fill_between(rows["asked"], rows["low"], rows["high"], alpha=0.15)
        axes.set(xlabel="content words that the better attacker recovers", ylabel=measure)
        axes.legend(fontsize=8, frameon=False)
        return axes


def compare(
    mechanisms: Sequence[Mechanism] | Mapping[str, Mechanism],
    task: Task | Mapping[str, Task],
    *,
    recovery: Sequence[float] = (0.05, 0.1, 0.2),
    attacker: BestAttacker | None = None,
    draws: int = 3,
    channel: bool = False,
) -> Comparison:
    """Set mechanisms to equal recovery and measure them on a task.

    Parameters
    ----------
    mechanisms : sequence or mapping of str to Mechanism
        Over one vocabulary, at any epsilon.
    task : Task or mapping of str to Task
        With several, the first column ``task`` has their names.
    recovery : sequence of float
        Shares of content words that the better attacker recovers.
    attacker : BestAttacker, optional
        Default: the exact attacker on single words, who knows ``index.word_frequency``; where a mechanism reads its context,
        also the context attacker, on words drawn by :func:`text_of`.
    draws : int
        Private copies of the training documents.
    channel : bool
        Also learn by :class:`ChannelClassifier`.

    Returns
    -------
    Comparison
        A ``DataFrame`` with the columns: mechanism; asked (recovery); epsilon (in units of the mechanism's own metric);
        alone and context (recovery by each attacker); accuracy, low, high (with a 95 % interval over draws and test
        documents); channel, channel_low, channel_high (of :class:`ChannelClassifier`); perplexity; cosine (between the
        vectors of a content word and of its output); kept (share of unchanged words); words_per_second. First come clear
        text and function words alone. A recovery out of reach is an empty row.
    """
    named = mechanisms if isinstance(mechanisms, Mapping) else {repr(m): m for m in mechanisms}
    index = next(iter(named.values())).index
    if attacker is None:
        weights = index.word_frequency
        if not all(np.array_equal(each.index.word_frequency, weights) for each in named.values()):
            raise TextprivError(
                "the recovery over these indexes is about words of different texts. Pass attacker=."
            )
        text = text_of(index) if any(each.reads_context for each in named.values()) else None
        attacker = BestAttacker(weights, index.vocabulary.is_content, text)
    tasks = task if isinstance(task, Mapping) else {"": task}
    rows = [
        {"task": name, **row}
        for name, each in tasks.items()
        for row in _baselines(each, index.vocabulary)
    ]
    for name, mechanism in named.items():
        start, make = mechanism.epsilon, mechanism.at_epsilon
        for asked in recovery:
            shared: dict[str, Any] = {"mechanism": name, "asked": asked}
            try:
                start = largest_epsilon(make, asked, attacker.success, start).epsilon
            except OutOfReachError:
                rows.extend({"task": at, **shared} for at in tasks)
                continue
            made = make(start)
            shared |= {"epsilon": start, "alone": attacker.alone(made)[0]}
            if attacker.text is not None:
                shared["context"] = attacker.in_context(made)[0]
            for at, each in tasks.items():
                rows.append({"task": at, **shared, **_learned(each, made, draws, channel)})
    return Comparison(rows, columns=_COLUMNS if isinstance(task, Task) else ["task", *_COLUMNS])


def _baselines(task: Task, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return rows of clear text, and of function words alone."""
    ids, words = task.train.ids, len(vocabulary)
    few = np.where((ids >= 0) & ~vocabulary.is_content[ids], ids, UNKNOWN)
    clear = interval(task.right(words, ids)[None]) | task.reads(ids, vocabulary)
    return [
        {"mechanism": CLEAR, "alone": 1.0} | clear,
        {"mechanism": FUNCTION_ONLY, "alone": 0.0} | interval(task.right(words, few)[None]),
    ]


def _learned(task: Task, mechanism: Mechanism, draws: int, channel: bool) -> dict[str, Any]:
    """Return the columns of a row that depend on the task."""
    vocabulary = mechanism.index.vocabulary
    begun = time.perf_counter()
    # Numpy's generator: what is measured is no secret.
    rngs = map(np.random.default_rng, range(draws))
    drawn = [mechanism.sample(task.train.ids, rng) for rng in rngs]
    speed = draws * len(task.train.ids) / (time.perf_counter() - begun)
    found = interval(np.stack([task.right(len(vocabulary), ids) for ids in drawn]))
    if channel:
        right = np.stack([task.right_by_channel(mechanism, ids) for ids in drawn])
        names = ("channel", "channel_low", "channel_high")
        found |= dict(zip(names, interval(right).values(), strict=True))
    return found | task.reads(drawn[0], vocabulary) | {"words_per_second": speed}


def interval(right: NDArray[np.bool_]) -> dict[str, float]:
    """Accuracy, with a 95 % interval ``low`` to ``high`` by resampling draws and test documents, the axes of ``right``."""
    rng = np.random.default_rng(0)
    draws, documents = right.shape
    found = np.empty(_BOOTSTRAPS)
    for at in range(_BOOTSTRAPS):
        times = rng.multinomial(documents, np.full(documents, 1 / documents))
        share = right[rng.integers(draws, size=draws)].mean(axis=0)
        found[at] = share @ times / documents
    low, high = np.percentile(found, (2.5, 97.5))
    return {"accuracy": float(right.mean()), "low": float(low), "high": float(high)}
