"""A test kit that attacks mechanisms: it tries every claim on small public vocabularies, and on an index that is given.

It takes what a mechanism says of itself as claims and tries them from outside: output distributions over all triples of two
inputs and an output, draws against these distributions and against each other, and the statement against both. A mechanism
without a closed form is attacked by its draws alone. Passing is no proof; failing is a refutation, with a witness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.guarantees.pair_search import search
from textpriv.guarantees.significance import (
    LEVEL,
    excess_of,
    goodness_of_fit,
    largest_ratios,
    ratio_bound,
    smallest_event,
    smallest_excess,
    two_samples,
)
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import find_mechanism, registry
from textpriv.mechanisms.base import UNKNOWN, Mechanism, positive
from textpriv.randomness import KeyedStreams
from textpriv.statement import at_least, at_most
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["AuditReport", "Check", "audit", "audit_registered"]

_SLACK = 1e-9  # nats for the arithmetic of the kit itself
_LOSSES = (0.7, 1.5, 3.0)  # nats; claimed for pairs that are compared by their draws
_FARTHEST = 6.0  # nats; a larger loss takes too many draws to be shown

# A registered function (settings -> index -> mechanism), a class, or the name of a registered function.
Factory = str | type[Mechanism] | Callable[..., Callable[[Index], Mechanism]]
_Verdict = tuple[bool, str]


@dataclass(frozen=True)
class _Sizes:
    """How much is drawn: for one word, documents in one call, and tokens of the longest document."""

    draws: int
    documents: int
    longest: int


_QUICK, _THOROUGH = _Sizes(2_000, 300, 70_000), _Sizes(20_000, 3_000, 700_000)


@dataclass(frozen=True)
class Check:
    """One claim that was tried.

    Attributes
    ----------
    name : str
        Which claim: "made", "statement", "law", "ratio", "worst loss", "unknown words", "sampler", "release", "draws",
        "independence", "documents", "streams", "long document" or "search".
    vocabulary : str
        On which vocabulary.
    passed : bool
    detail : str
        What was found; for a failure the witness.
    """

    name: str
    vocabulary: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class AuditReport:
    """What an audit tried and found.

    Attributes
    ----------
    mechanism : str
    epsilon : float
        Asked of the mechanism.
    checks : tuple of Check
    unseen : tuple of str
        What this run could not have seen, in sentences.
    """

    mechanism: str
    epsilon: float
    checks: tuple[Check, ...]
    unseen: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not."""
        return tuple(check for check in self.checks if not check.passed)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        lists = {"unseen": list(self.unseen), "checks": [asdict(each) for each in self.checks]}
        return {"passed": self.passed, **asdict(self), **lists}

    def __str__(self) -> str:
        tried = len(self.checks)
        if self.passed:
            return f"{self.mechanism} withstood {tried} checks at epsilon {self.epsilon:g}."
        lines = [f"{self.mechanism} FAILED {len(self.failures)} of {tried} checks:"]
        lines += [f"  {c.name} ({c.vocabulary}): {c.detail}" for c in self.failures]
        return "\n".join(lines)


def audit(
    factory: Factory,
    *,
    epsilon: float = 2.0,
    quick: bool = True,
    index: Index | None = None,
    **settings: Any,
) -> AuditReport:
    """Attack a mechanism on small vocabularies with ties, duplicates, clusters, hubs and outliers.

    Parameters
    ----------
    factory : str, type or callable
        A registered name such as "textpriv.TEM.v1", a mechanism's class, or a function like a registered one: settings to
        a function of an index.
    epsilon : float
        Asked of the mechanism. The vocabularies are scaled to it, so that the claimed losses are the same for any epsilon.
    quick : bool
        False takes larger vocabularies and ten times the draws and documents: about a minute instead of seconds.
    index : Index, optional
        Also search this index for pairs of words that break the claim.
    **settings
        Other settings of the mechanism.

    Notes
    -----
    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    configured = find_mechanism(factory) if isinstance(factory, str) else factory
    label = factory if isinstance(factory, str) else getattr(factory, "__name__", repr(factory))

    def make(over: Index) -> Mechanism:
        if isinstance(configured, type):
            return configured(over, epsilon=epsilon, **settings)
        return configured(epsilon=epsilon, **settings)(over)

    epsilon = positive("epsilon", epsilon)
    sizes = _QUICK if quick else _THOROUGH
    checks: list[Check] = []
    leaks: list[float] = []
    for name, vectors, k in _vocabularies(quick):
        vocabulary = Vocabulary([f"w{i}" for i in range(len(vectors))], vectors / epsilon)
        over_trees = getattr(configured, "over_trees", False)
        over = (
            Tree.build(vocabulary, space="euclidean")
            if over_trees
            else Index.build(vocabulary, k=k)
        )
        try:
            attack = _Attack(make(over), epsilon, sizes)
        except TextprivError as error:
            checks.append(Check("made", name, False, str(error)))
            continue
        attack.longest = name == "clusters"
        checks += [Check(claim, name, *verdict) for claim, verdict in attack.verdicts().items()]
        leaks.append(attack.leak)
    if index is not None:
        checks.append(Check("search", "given", *_searched(make(index))))
    if settings:
        label += " with " + ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return AuditReport(label, epsilon, tuple(checks), _unseen(sizes, leaks, index) if leaks else ())


def audit_registered(*, epsilon: float = 2.0, quick: bool = True) -> dict[str, AuditReport]:
    """Attack every registered mechanism, those of other distributions included, with its default settings."""
    return {name: audit(name, epsilon=epsilon, quick=quick) for name in sorted(registry.get_all())}


def _vocabularies(quick: bool) -> Iterator[tuple[str, NDArray[np.float64], int]]:
    """Yield name, vectors for epsilon 1 and length of the lists: short lists leave most of a law to the rest."""
    rng = np.random.default_rng(12)
    yield "line", np.array([[0.0], [1.0], [3.0], [3.5]]), 2
    side = 6 if quick else 18
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    again = grid[rng.choice(len(grid), len(grid) // 6, replace=False)]
    yield "ties and duplicates", rng.permutation(np.concatenate([grid, again])) * 0.8, 9
    clusters, each = (4, 12) if quick else (20, 20)
    centres = rng.normal(size=(clusters, 3)) * 4
    points = np.repeat(centres, each, axis=0) + 0.4 * rng.normal(size=(clusters * each, 3))
    yield "clusters", points, 6
    crowd = np.eye(100 if quick else 200) * (0.3 / math.sqrt(2))
    far = np.zeros((1, len(crowd)))
    far[0, 0] = 12.0
    yield "a crowd and one outside", np.concatenate([crowd, far]), 5
    ring = rng.normal(size=(30 if quick else 150, 8))
    ring *= 2.5 / np.linalg.norm(ring, axis=1, keepdims=True)
    yield "a hub and a ring", np.concatenate([ring, np.zeros((1, 8))]), 8


def _unseen(sizes: _Sizes, leaks: list[float], index: Index | None) -> tuple[str, ...]:
    """Say what a run of these sizes could not have seen."""
    tolerated = math.sqrt(math.log(2 / LEVEL) / (2 * sizes.draws))
    given = "" if index is None else ", and single pairs of words of the given index"
    return (
        f"fewer than 1 draw in {math.floor(1 / min(leaks)):,} released as it is",
        f"a probability of an output that is wrong by less than {at_most(tolerated, 2)} in the draws of one word",
        f"what begins in calls of more than {sizes.documents:,} documents, or after {sizes.longest:,} tokens of one",
        "draws that depend on each other otherwise than through a neighbouring word, another document or its stream",
        f"what happens on other vocabularies than the five small ones tried{given}",
        "what running time, memory, files or logs show",
    )


def _searched(mechanism: Mechanism) -> _Verdict:
    if not mechanism.has_law:
        return True, "no output distribution to search by"
    constant, pair, pairs = search(mechanism)
    first, second = (mechanism.index.vocabulary.words[word] for word in pair)
    claimed = mechanism.statement.epsilon or mechanism.epsilon
    return constant <= claimed * (1 + 1e-9), (
        f"{first!r} against {second!r}: {constant:.6g} per unit of distance, claimed {claimed:g}; {pairs:,} pairs"
    )


class _Attack:
    """The attacks on one mechanism over one vocabulary."""

    def __init__(self, mechanism: Mechanism, epsilon: float, sizes: _Sizes) -> None:
        self.mechanism, self.epsilon, self.sizes = mechanism, epsilon, sizes
        self.size = len(mechanism.index)
        claimed = mechanism.statement.epsilon
        self.bound = epsilon if claimed is None else min(claimed, epsilon)
        self.longest = False  # whether a long document is drawn
        self.apart = mechanism.index.distances_of(np.arange(self.size))
        self.leak = (
            1.0  # the smallest share of draws whose release as they are would have been seen
        )

    @cached_property
    def laws(self) -> NDArray[np.float64] | None:
        """The output distributions of all words and, in the last row, of an unknown one; None without a closed form."""
        if not self.mechanism.has_law:
            return None
        return np.stack([self.mechanism.log_prob(word) for word in (*range(self.size), UNKNOWN)])

    def drawn(self, word: int, draws: int, label: str) -> NDArray[np.int64]:
        """Draw a word many times, each time as its own document if context is read, and count its outputs."""
        stream = KeyedStreams(seed=1).stream(f"{label} {word}")
        if self.mechanism.reads_context:
            outputs = self.mechanism.sample_alone(word, draws, stream)
        else:
            outputs = self.mechanism.sample(np.full(draws, word, dtype=np.int32), stream)
        return np.bincount(outputs, minlength=self.size)

    def verdicts(self) -> dict[str, _Verdict]:
        """Try every claim."""
        found = {"statement": self._statement()}
        if self.laws is None:
            found["draws"] = self._drawn_ratio(3 * self.sizes.draws)
            self.leak = smallest_event(3 * self.sizes.draws, _LOSSES[0], self.size)
        else:
            counts = np.stack(
                [self.drawn(word, self.sizes.draws, "law") for word in (*range(self.size), UNKNOWN)]
            )
            found |= {
                "law": self._law(self.laws),
                "ratio": self._ratio(self.laws[:-1]),
                "worst loss": self._worst_loss(self.laws[:-1]),
                "sampler": self._sampler(self.laws, counts),
                "release": self._released(self.laws[:-1], counts[:-1]),
            }
        if not self.mechanism.reads_context:
            found["independence"] = self._independence()
            if self.longest:
                found["long document"] = self._long_document()
        return found | {
            "unknown words": self._unknown(),
            "documents": self._documents(),
            "streams": self._streams(),
        }

    def _statement(self) -> _Verdict:
        statement = self.mechanism.statement
        wrong = []
        if not statement.proved:
            wrong.append("it states no proved guarantee")
        if statement.epsilon is None or not statement.epsilon <= self.epsilon * (1 + 1e-12):
            wrong.append(f"it states epsilon {statement.epsilon} where {self.epsilon:g} was asked")
        if not 0 <= statement.delta < 1e-3:
            wrong.append(f"it states delta {statement.delta}")
        return not wrong, "; ".join(wrong) or "as asked"

    @staticmethod
    def _law(laws: NDArray[np.float64]) -> _Verdict:
        for word, law in enumerate(laws):
            total = np.exp(law).sum()
            if np.isnan(law).any() or not abs(total - 1) <= 1e-9:
                return False, f"the law of w{word} sums to {total:.12g}, not to 1"
        return True, f"{len(laws)} laws sum to 1"

    def _ratio(self, laws: NDArray[np.float64]) -> _Verdict:
        """Try all triples: no output may distinguish two words by more than the claim, and equal words not at all."""
        slack = _SLACK + float(self.mechanism.statement.figures.get("numerical_slack", 0.0))
        delta = self.mechanism.statement.delta
        worst, first, second = -math.inf, 0, 0
        for word, law in enumerate(laws):
            if delta > 0:  # the probability beyond the claimed ratio
                beyond = np.exp(law)[None] - np.exp(self.bound * self.apart[word][:, None] + laws)
                excess = np.maximum(beyond, 0).sum(axis=1) - delta
            else:
                excess = largest_ratios(law, laws) - self.bound * self.apart[word]
            excess[word] = -math.inf
            if excess.max() > worst:
                worst, first, second = float(excess.max()), word, int(excess.argmax())
        loss = float(largest_ratios(laws[first], laws[second][None])[0])
        distance = self.apart[first, second]
        return worst <= slack, (
            f"w{first} against w{second} at distance {distance:.4g}: loss {loss:.6g}, claimed {self.bound * distance:.6g}"
        )

    def _worst_loss(self, laws: NDArray[np.float64]) -> _Verdict:
        stated = self.mechanism.statement.figures.get("worst_word_loss")
        if stated is None:
            return True, "none is stated"
        worst = max(float(largest_ratios(law, laws).max()) for law in laws)
        detail = f"largest loss between two words {worst:.6g}, stated {stated:.6g}"
        return worst <= stated * (1 + 1e-9) + _SLACK, detail

    def _unknown(self) -> _Verdict:
        """Compare an unknown word with every other: no more loss than is stated for it, or for any word."""
        figures, laws = self.mechanism.statement.figures, self.laws
        stated = figures.get("unknown_word_loss", figures.get("worst_word_loss"))
        if stated is None:
            return True, "no worst loss is stated"
        if laws is not None:
            forth = largest_ratios(laws[-1], laws[:-1]).max()
            back = max(float(largest_ratios(law, laws[-1:])[0]) for law in laws[:-1])
            worst = max(float(forth), back)
        elif stated <= _FARTHEST:
            draws = math.ceil(60 * math.exp(stated))
            unknown = self.drawn(UNKNOWN, draws, "unknown")
            words = np.unique(np.linspace(0, self.size - 1, 3).astype(int)).tolist()
            others = [self.drawn(word, draws, "unknown") for word in words]
            pairs = [pair for other in others for pair in ((unknown, other), (other, unknown))]
            worst = max(
                ratio_bound(*pair, np.zeros(self.size), LEVEL / len(pairs)) for pair in pairs
            )
        else:
            return True, f"not compared: draws cannot show a loss of {stated:.4g} nats"
        detail = (
            f"an unknown word against the others: loss of {worst:.6g} or more, stated {stated:.6g}"
        )
        return worst <= stated * (1 + 1e-9) + _SLACK, detail

    @staticmethod
    def _sampler(laws: NDArray[np.float64], counts: NDArray[np.int64]) -> _Verdict:
        """Compare draws of every word, and of an unknown one, with the law that is stated for it."""
        least, where = 1.0, 0
        for word, (law, drawn) in enumerate(zip(laws, counts, strict=True)):
            impossible = (drawn[law == -np.inf] > 0).any()
            value = 0.0 if impossible else goodness_of_fit(drawn, np.exp(law))
            if value < least:
                least, where = value, word
        named = "an unknown word" if where == len(laws) - 1 else f"w{where}"
        return least > LEVEL, f"least p-value {least:.3g}, for {named}, of {len(laws)}"

    def _released(self, laws: NDArray[np.float64], counts: NDArray[np.int64]) -> _Verdict:
        """Compare outputs that equal their input, together over the words that seldom stay, with their law.

        A few draws in a thousand that are released as they are change each word's counts too little to be seen there.
        """
        stays = np.exp(np.diagonal(laws))
        order, draws = np.argsort(stays, kind="stable"), int(counts[0].sum())
        # As many of the words that stay least as show the smallest leak.
        tried = sorted({1, *np.linspace(1, len(order), 12).astype(int).tolist()})
        shown = [(smallest_excess(np.repeat(stays[order[:n]], draws)), n) for n in tried]
        self.leak, words = min(shown)
        chosen = order[:words]
        same = int(counts[chosen, chosen].sum())
        value = excess_of(same, np.repeat(stays[chosen], draws))
        return value > LEVEL, (
            f"{same:,} of {draws * words:,} draws equal their input, {stays[chosen].sum() * draws:,.0f} expected (p-value "
            f"{value:.3g}); 1 release in {math.floor(1 / self.leak):,} would have been seen"
        )

    def _drawn_ratio(self, draws: int) -> _Verdict:
        """Bound the loss of pairs from below by draws, where about a nat is claimed."""
        claimed = self.bound * self.apart
        pairs: set[tuple[int, int]] = set()
        rng = np.random.default_rng(5)
        upper = np.triu(np.ones_like(claimed, dtype=bool), 1) & (claimed > 0)
        for loss in _LOSSES:
            near = np.abs(np.log(np.where(upper, claimed, 1e-9)) - math.log(loss))
            near += 1e-3 * rng.random(near.shape) + np.where(upper, 0.0, 1e9)
            for position in np.argsort(near, axis=None)[:2].tolist():
                first, second = divmod(position, self.size)
                if upper[first, second]:
                    pairs |= {(first, second), (second, first)}
        counts = {word: self.drawn(word, draws, "ratio") for pair in pairs for word in pair}
        worst, detail = -math.inf, "no pair to compare"
        for first, second in sorted(pairs):
            lean = self.apart[first] - self.apart[second]
            loss = ratio_bound(counts[first], counts[second], lean, LEVEL)
            if loss - claimed[first, second] > worst:
                worst = loss - claimed[first, second]
                detail = (
                    f"w{first} against w{second} at distance {self.apart[first, second]:.4g}: loss of {at_least(loss, 4)} "
                    f"or more, claimed {claimed[first, second]:.4g}"
                )
        return worst <= 0, detail

    def _independence(self) -> _Verdict:
        """Compare a word among copies of itself with the same between copies of the word farthest from it."""
        streams, draws = KeyedStreams(seed=3), self.sizes.draws
        least, where = 1.0, 0
        words = np.unique(np.linspace(0, self.size - 1, 4).astype(int)).tolist()
        for word in words:
            mixed = np.tile(np.array([self.apart[word].argmax(), word], dtype=np.int32), draws)
            among = self.mechanism.sample(mixed, streams.stream(f"{word} mixed"))[1::2]
            alone = self.drawn(word, draws, "alone")
            value = two_samples(alone, np.bincount(among, minlength=self.size))
            if value < least:
                least, where = value, word
        return least > LEVEL, f"least p-value {least:.3g}, for w{where}, of {len(words)}"

    def _documents(self) -> _Verdict:
        """Compare every document of a call with the same document drawn alone, by a stream of the same key."""
        rng, count = np.random.default_rng(8), self.sizes.documents
        lengths = rng.integers(0, 12, count)
        lengths[:4] = (7, 0, 9, 11)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = rng.integers(UNKNOWN, self.size, offsets[-1]).astype(np.int32)
        streams, sample = KeyedStreams(seed=4), self.mechanism.sample_documents
        together = sample(ids, offsets, [streams.stream(i) for i in range(count)])
        for document in np.flatnonzero(lengths).tolist():
            part = slice(*offsets[document : document + 2])
            alone = sample(ids[part], np.array([0, lengths[document]]), [streams.stream(document)])
            if not np.array_equal(alone, together[part]):
                return (
                    False,
                    f"document {document + 1} of a call is not what it is alone under the same stream",
                )
        return True, f"{count:,} documents of one call are what they are alone"

    def _streams(self) -> _Verdict:
        """Compare documents of one word, each with a stream of its own, with the law, or with one document of the word."""
        word = 0 if self.laws is None else int(self.laws[:-1].max(axis=1).argmin())
        streams, draws = KeyedStreams(seed=5), self.sizes.draws
        own = [streams.stream(i) for i in range(draws)]
        ids = np.full(draws, word, dtype=np.int32)
        out = self.mechanism.sample_documents(ids, np.arange(draws + 1), own)
        counts = np.bincount(out, minlength=self.size)
        if self.laws is None:
            value = two_samples(counts, self.drawn(word, draws, "one stream"))
        else:
            value = goodness_of_fit(counts, np.exp(self.laws[word]))
        return value > LEVEL, f"p-value {value:.3g} over {draws:,} streams, for w{word}"

    def _long_document(self) -> _Verdict:
        """Compare draws of one long document with the law of each word, or with those of short documents."""
        length, streams, laws = self.sizes.longest, KeyedStreams(seed=7), self.laws
        ids = np.resize(np.arange(UNKNOWN, self.size, dtype=np.int32), length)
        out = self.mechanism.sample(ids, streams.stream("long"))
        short, least = np.zeros_like(ids), 1.0
        for word in range(UNKNOWN, self.size):
            at = np.flatnonzero(ids == word)
            counts = np.bincount(out[at], minlength=self.size)
            if laws is None:
                short[at] = self.mechanism.sample(ids[at], streams.stream(word))
                value = two_samples(counts, np.bincount(short[at], minlength=self.size))
            else:
                value = goodness_of_fit(counts, np.exp(laws[word]))
            least = min(least, value)
        known = ids != UNKNOWN
        same, other = (int((each == ids)[known].sum()) for each in (out, short))
        if laws is None:
            size = int(known.sum())
            released = two_samples(np.array([same, size - same]), np.array([other, size - other]))
        else:
            released = excess_of(same, np.exp(np.diagonal(laws))[ids[known]])
        return min(least, released) > LEVEL, (
            f"{length:,} tokens: least p-value {least:.3g} of a word; {same:,} outputs equal their input (p-value "
            f"{released:.3g})"
        )
