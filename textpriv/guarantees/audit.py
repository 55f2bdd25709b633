"""Audits: attacks on a mechanism over small public vocabularies, by its output distributions and by draws.

Without a closed form the draws alone are attacked. Passing is no proof; failing is a refutation, with a witness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError, WrongIndexError
from textpriv.evaluation.distribution import count_draws
from textpriv.guarantees.certificate import losses_by_draws
from textpriv.guarantees.significance import (
    LEVEL,
    excess_of,
    goodness_of_fit,
    largest_ratios,
    least_of,
    ratio_bound,
    smallest_excess,
    two_samples,
)
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import find_mechanism
from textpriv.mechanisms.base import UNKNOWN, Mechanism, positive
from textpriv.randomness import KeyedStreams
from textpriv.statement import at_most
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["AuditReport", "Check", "audit"]

SLACK = 1e-9  # nats for the arithmetic of the kit itself
_FARTHEST = 4.0  # nats; a larger loss takes too many draws to be shown
_DRAWS = 2_000  # of one word
_DOCUMENTS = 300  # in one call
_LONGEST, _SHORT = 70_000, 100  # tokens of the longest document, and of those it is compared with

Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Check:
    """One claim that was tried on one vocabulary, and what was found: for a failure the witness."""

    name: str
    vocabulary: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class AuditReport:
    """What an audit tried and found at an epsilon, and what it could not have seen."""

    mechanism: str
    epsilon: float
    checks: tuple[Check, ...]
    unseen: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.passed)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {"passed": self.passed, **asdict(self)}

    def __str__(self) -> str:
        tried = len(self.checks)
        if self.passed:
            return f"{self.mechanism} withstood {tried} checks at epsilon {self.epsilon:g}."
        told = [f"\n  {c.name} ({c.vocabulary}): {c.detail}" for c in self.failures]
        return f"{self.mechanism} FAILED {len(told)} of {tried} checks:{''.join(told)}"


def audit(
    mechanism: str | type[Mechanism], *, epsilon: float = 2.0, **settings: Any
) -> AuditReport:
    """Attack a mechanism on small vocabularies with ties, duplicates, clusters, hubs and outliers.

    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.

    Parameters
    ----------
    mechanism : str or type
        A registered name such as "textpriv.TEM.v1", or a class.
    epsilon : float
        The vocabularies are scaled to it, so that the claimed losses are the same for any epsilon.
    **settings
        Other settings of the mechanism.
    """
    epsilon = positive("epsilon", epsilon)
    given = {"epsilon": epsilon, **settings}
    make: Callable[[Index], Mechanism] = (
        partial(mechanism, **given) if callable(mechanism) else find_mechanism(mechanism)(**given)
    )
    checks: list[Check] = []
    leaks: list[float] = []
    for name, vectors, k in _vocabularies():
        words = Vocabulary([f"w{i}" for i in range(len(vectors))], vectors / epsilon)
        try:
            try:
                made = make(Index.build(words, "euclidean", k=k))
            except WrongIndexError:
                made = make(Tree.build(words, space="euclidean"))
            attack = _AuditedMechanism(made, epsilon)
            verdicts = attack.of_words() | (attack.of_documents() if name == "clusters" else {})
        except TextprivError as error:
            checks.append(Check("made", name, False, str(error)))
            continue
        checks += [Check(claim, name, *verdict) for claim, verdict in verdicts.items()]
        leaks += attack.leaks
    label = mechanism if isinstance(mechanism, str) else mechanism.__name__
    if settings:
        label += " with " + ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return AuditReport(label, epsilon, tuple(checks), _unseen(leaks))


def _vocabularies() -> Iterator[tuple[str, NDArray[np.float64], int]]:
    """Yield name, vectors for epsilon 1 and length of the lists: short lists leave most outputs to the rest."""
    rng = np.random.default_rng(12)
    yield "line", np.array([[0.0], [1.0], [3.0], [3.5]]), 2
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2)
    again = grid[rng.choice(36, 6, replace=False)]
    yield "ties and duplicates", rng.permutation(np.concatenate([grid, again])) * 0.8, 9
    centres = rng.normal(size=(4, 3)) * 4
    yield "clusters", np.repeat(centres, 12, axis=0) + 0.4 * rng.normal(size=(48, 3)), 6
    crowd = np.eye(71, 70) * (0.3 / math.sqrt(2))
    crowd[70, 0] = 12.0
    yield "a crowd and one outside", crowd, 5
    ring = rng.normal(size=(30, 8))
    ring *= 2.5 / np.linalg.norm(ring, axis=1, keepdims=True)
    yield "a hub and a ring", np.concatenate([ring, np.zeros((1, 8))]), 8


def _unseen(leaks: list[float]) -> tuple[str, ...]:
    tolerated = math.sqrt(math.log(2 / LEVEL) / (2 * _DRAWS))
    return (
        *(f"fewer than 1 draw in {1 / leak:,.0f} released as it is" for leak in sorted(leaks)[:1]),
        f"a probability of an output that is wrong by less than {at_most(tolerated, 2)} in the draws of one word",
        f"what begins in calls of more than {_DOCUMENTS:,} documents, or after {_LONGEST:,} tokens of one",
        "draws that depend on each other otherwise than through a neighbouring word, another document or its stream",
        "what happens on other vocabularies than those tried",
        "what running time, memory, files or logs show",
    )


def _room(stated: float) -> float:
    return stated * (1 + 1e-9) + SLACK


class _AuditedMechanism:
    def __init__(self, mechanism: Mechanism, epsilon: float) -> None:
        self.mechanism, self.asked = mechanism, epsilon
        stated, figures = mechanism.statement.epsilon, mechanism.statement.figures
        self.epsilon = epsilon if stated is None else min(stated, epsilon)
        # The largest loss of all, and that between an unknown word and any other.
        self.worst = figures.get("worst_word_loss", math.inf)
        self.unknown = figures.get("unknown_word_loss", self.worst)
        self.size = len(mechanism.index)
        self.apart = mechanism.index.distances_of(np.arange(self.size))
        self.leaks: list[float] = []  # smallest shares of released draws that would have been seen
        self.inputs = (*range(self.size), UNKNOWN)
        self.three = (0, self.size // 2, self.size - 1)  # words that stand for all
        # Output distributions of all words, and of an unknown one in the last row.
        self.rows: NDArray[np.float64] | None = None
        if mechanism.has_log_prob:
            self.rows = np.stack([mechanism.log_prob(word) for word in self.inputs])

    def drawn(self, word: int, draws: int, label: str) -> NDArray[np.int64]:
        """Draw a word many times, and count its outputs."""
        stream = KeyedStreams(seed=1).stream(f"{label} {word}")
        return count_draws(self.mechanism, word, draws, stream)

    def of_words(self) -> dict[str, Verdict]:
        """Try the claims about single words."""
        found = {"statement": self._statement()}
        if self.rows is None:
            # Bounds from below, for pairs of which about a nat is claimed.
            losses = np.full((self.size, self.size), -math.inf)
            for loss, pair in losses_by_draws(self.mechanism, 3 * _DRAWS, LEVEL):
                losses[pair] = loss
            return found | {"draws": self._ratio(losses), "worst loss": self._worst_by_draws()}
        counts = np.stack([self.drawn(word, _DRAWS, "law") for word in self.inputs])
        losses = np.stack([largest_ratios(row, self.rows) for row in self.rows])
        return found | {
            "distribution": self._sums(self.rows),
            "ratio": self._ratio(losses[:-1, :-1]),
            "worst loss": self._worst_loss(losses),
            "sampler": self._sampler(self.rows, counts),
            "release": self._released(self.rows[:-1], counts[:-1]),
        }

    def of_documents(self) -> dict[str, Verdict]:
        """Try the claims about documents."""
        found = {"documents": self._documents(), "streams": self._streams()}
        if not self.mechanism.reads_context:
            found["independence"] = self._independence()
            found["long document"] = self._long_document()
        return found

    def _statement(self) -> Verdict:
        statement, wrong = self.mechanism.statement, []
        if not (statement.proved and statement.by_distance):
            wrong.append("it states no proved guarantee that grows with the distance")
        if statement.epsilon is None or not statement.epsilon <= self.asked * (1 + 1e-12):
            wrong.append(f"it states epsilon {statement.epsilon} where {self.asked:g} was asked")
        return not wrong, "; ".join(wrong) or "as asked"

    @staticmethod
    def _sums(rows: NDArray[np.float64]) -> Verdict:
        off = np.abs(np.exp(rows).sum(axis=1) - 1)
        word = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        detail = f"{len(rows)} distributions sum to 1, that of w{word} but for {off[word]:.3g}"
        return bool(off[word] <= 1e-9), detail

    def _ratio(self, losses: NDArray[np.float64]) -> Verdict:
        """No output may distinguish two words by more than the claim, and equal words not at all."""
        slack = SLACK + float(self.mechanism.statement.figures.get("numerical_slack", 0.0))
        claimed = self.epsilon * self.apart
        excess = losses - claimed
        np.fill_diagonal(excess, -math.inf)
        first, second = pair = divmod(int(excess.argmax()), self.size)
        return bool(excess[pair] <= slack), (
            f"w{first} against w{second} at distance {self.apart[pair]:.4g}: loss {losses[pair]:.6g}, "
            f"claimed {claimed[pair]:.6g}"
        )

    def _worst_loss(self, losses: NDArray[np.float64]) -> Verdict:
        most, beside = losses.max(), max(losses[-1].max(), losses[:, -1].max())
        return bool(most <= _room(self.worst) and beside <= _room(self.unknown)), (
            f"between two words {most:.6g}, stated {self.worst:.6g}; beside an unknown one {beside:.6g}, "
            f"stated {self.unknown:.6g}"
        )

    def _worst_by_draws(self) -> Verdict:
        stated = self.unknown
        if stated > _FARTHEST:
            return True, f"not compared: draws cannot show a loss of {stated:.4g} nats"
        draws = math.ceil(60 * math.exp(stated))
        unknown = self.drawn(UNKNOWN, draws, "unknown")
        others = [self.drawn(word, draws, "unknown") for word in self.three]
        pairs = [pair for other in others for pair in ((unknown, other), (other, unknown))]
        lean = np.zeros(self.size)
        shown = max(ratio_bound(*pair, lean, LEVEL / len(pairs)) for pair in pairs)
        detail = f"an unknown word against others: {shown:.6g} or more, stated {stated:.6g}"
        return shown <= _room(stated), detail

    @staticmethod
    def _sampler(rows: NDArray[np.float64], counts: NDArray[np.int64]) -> Verdict:
        """Compare draws of every word, and of an unknown one, with the output distribution that is stated for it."""
        names = [*(f"w{word}" for word in range(len(rows) - 1)), "an unknown word"]
        return least_of(dict(zip(names, map(goodness_of_fit, counts, np.exp(rows)), strict=True)))

    def _released(self, rows: NDArray[np.float64], counts: NDArray[np.int64]) -> Verdict:
        """Compare outputs that equal their input with the probability of that, together over the words that seldom stay."""
        # A few draws in a thousand that are released as they are change each word's counts too little to be seen there.
        stays = np.exp(np.diagonal(rows))
        order = np.argsort(stays, kind="stable")
        # The means over the words that stay least.
        means = np.cumsum(stays[order]) / np.arange(1, len(order) + 1)
        tried = np.unique(np.linspace(1, len(order), 12).astype(int)).tolist()
        leak, words = min((smallest_excess(_DRAWS * n, float(means[n - 1])), n) for n in tried)
        self.leaks.append(leak)
        chosen, draws, mean = order[:words], _DRAWS * words, float(means[words - 1])
        same = int(counts[chosen, chosen].sum())
        detail = f"{same:,} draws of {draws:,} that equal their input, {mean:.4g} of them expected"
        return least_of({detail: excess_of(same, draws, mean)})

    def _independence(self) -> Verdict:
        """Compare a word among copies of itself with the same between copies of the word farthest from it."""
        values = {}
        for word in self.three:
            mixed = np.tile([self.apart[word].argmax(), word], _DRAWS)
            stream = KeyedStreams(seed=3).stream(f"{word} mixed")
            among = np.bincount(self.mechanism.sample(mixed, stream)[1::2], minlength=self.size)
            values[f"w{word}"] = two_samples(self.drawn(word, _DRAWS, "alone"), among)
        return least_of(values)

    def _documents(self) -> Verdict:
        """Compare every document of a call with the same document drawn alone, by a stream of the same key."""
        rng = np.random.default_rng(8)
        lengths = rng.integers(0, 12, _DOCUMENTS)
        lengths[:4] = (7, 0, 9, 11)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = rng.integers(UNKNOWN, self.size, offsets[-1]).astype(np.int32)
        keys, sample = KeyedStreams(seed=4), self.mechanism.sample_documents
        together = sample(ids, offsets, [keys.stream(i) for i in range(_DOCUMENTS)])
        for document in np.flatnonzero(lengths).tolist():
            part = slice(*offsets[document : document + 2])
            alone = sample(ids[part], np.array([0, lengths[document]]), [keys.stream(document)])
            if not np.array_equal(alone, together[part]):
                return False, f"document {document + 1} of a call is not what it is alone"
        return True, f"{_DOCUMENTS:,} documents of one call are what they are alone"

    def _streams(self) -> Verdict:
        """Compare documents of one word, each with its own stream, with one document of it, or its output distribution."""
        word = 0 if self.rows is None else int(self.rows[:-1].max(axis=1).argmin())
        keys = KeyedStreams(seed=5)
        own = [keys.stream(i) for i in range(_DRAWS)]
        ids = np.full(_DRAWS, word, dtype=np.int32)
        out = self.mechanism.sample_documents(ids, np.arange(_DRAWS + 1), own)
        counts = np.bincount(out, minlength=self.size)
        if self.rows is None:
            value = two_samples(counts, self.drawn(word, _DRAWS, "one stream"))
        else:
            value = goodness_of_fit(counts, np.exp(self.rows[word]))
        return least_of({f"{_DRAWS:,} streams of w{word}": value})

    def _long_document(self) -> Verdict:
        """Compare draws of one long document with those of the same words in short documents."""
        keys = KeyedStreams(seed=7)
        ids = np.resize(np.array(self.inputs, dtype=np.int32), _LONGEST)
        ends = np.append(np.arange(0, _LONGEST, _SHORT), _LONGEST)
        own = [keys.stream(i) for i in range(len(ends) - 1)]
        long = self.mechanism.sample(ids, keys.stream("long"))
        short = self.mechanism.sample_documents(ids, ends, own)
        cells = [(ids.astype(np.int64) + 1) * self.size + out for out in (long, short)]
        moved = (np.bincount(each, minlength=self.size * (self.size + 1)) for each in cells)
        stays = (np.bincount(out == ids, minlength=2) for out in (long, short))
        return least_of({"all outputs": two_samples(*moved), "the input": two_samples(*stays)})
