"""A test kit that attacks mechanisms: every claim is tried on small public vocabularies, and on an index one gives.

Whatever a mechanism says of itself is taken as a claim and tried from outside: its law over all triples of two inputs and
an output, its draws against its law, its draws against each other, and its statement against both. A mechanism without a
law is attacked by its draws alone. Passing is no proof; failing is a refutation, with a witness. Nothing here knows any
particular mechanism, and no private text is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_least, at_most
from textpriv.errors import MechanismError, TextprivError
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
from textpriv.mechanisms.base import UNKNOWN, Mechanism, positive
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["AuditReport", "Check", "audit", "audit_registered"]

_SLACK = 1e-9  # nats for the arithmetic of the kit itself


@dataclass(frozen=True)
class _Sizes:
    """How much is drawn: for one word, documents in one call, and tokens of the longest document."""

    draws: int
    documents: int
    longest: int


_LOSSES = (0.7, 1.5, 3.0)  # nats; claimed for pairs that are compared by their draws
_FARTHEST = 6.0  # nats; a larger loss takes too many draws to be shown
_QUICK, _THOROUGH = _Sizes(2_000, 300, 70_000), _Sizes(20_000, 3_000, 700_000)

# A registered function (settings -> index -> mechanism), a class, or the name of a registered function.
Factory = str | type[Mechanism] | Callable[..., Callable[[Index], Mechanism]]


@dataclass(frozen=True)
class Check:
    """One claim that was tried.

    Attributes
    ----------
    name : str
        Which claim: "made", "statement", "law", "ratio", "worst loss", "unknown words", "sampler", "release", "draws",
        "independence", "documents", "streams", "long document", "search" or "approximate lists".
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
        return {
            "passed": self.passed,
            **asdict(self),
            "unseen": list(self.unseen),
            "checks": [asdict(c) for c in self.checks],
        }

    def __str__(self) -> str:
        if self.passed:
            return (
                f"{self.mechanism} withstood {len(self.checks)} checks at epsilon {self.epsilon:g}."
            )
        lines = [f"{self.mechanism} FAILED {len(self.failures)} of {len(self.checks)} checks:"]
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
    if isinstance(factory, str):
        from textpriv.mechanisms import find_mechanism

        label, configured = factory, find_mechanism(factory)
    else:
        label, configured = getattr(factory, "__name__", repr(factory)), factory

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
        try:
            mechanism = make(
                Tree.build(vocabulary, metric="euclidean")
                if getattr(configured, "over_trees", False)
                else Index.build(vocabulary, k=k)
            )
        except TextprivError as error:
            checks.append(Check("made", name, False, str(error)))
            continue
        attacks, leak = _attack(mechanism, epsilon, sizes)
        if name == "clusters":
            attacks.append(_long_document(mechanism, sizes.longest))
        checks += [replace(check, vocabulary=name) for check in attacks]
        leaks.append(leak)
    if index is not None:
        checks.append(replace(_searched(make(index)), vocabulary="given"))
    if settings:
        label += " with " + ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return AuditReport(label, epsilon, tuple(checks), _unseen(sizes, leaks, index) if leaks else ())


def audit_registered(*, epsilon: float = 2.0, quick: bool = True) -> dict[str, AuditReport]:
    """Attack every registered mechanism, those of other distributions included, with its default settings."""
    from textpriv.mechanisms import registry

    return {name: audit(name, epsilon=epsilon, quick=quick) for name in sorted(registry.get_all())}


# ----------------------------------------------------------------------------------------------
# Vocabularies, for epsilon 1
# ----------------------------------------------------------------------------------------------


def _vocabularies(quick: bool) -> Iterator[tuple[str, NDArray[np.float64], int]]:
    """Name, vectors and length of the lists: short lists leave most of a law to whatever stands for the rest."""
    rng = np.random.default_rng(12)
    yield "line", np.array([[0.0], [1.0], [3.0], [3.5]]), 2
    side = 6 if quick else 18
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    again = grid[rng.choice(len(grid), len(grid) // 6, replace=False)]
    yield "ties and duplicates", rng.permutation(np.concatenate([grid, again])) * 0.8, 9
    clusters, each = (4, 12) if quick else (20, 20)
    centres = rng.normal(size=(clusters, 3)) * 4
    points = np.repeat(centres, each, axis=0) + 0.4 * rng.normal(size=(clusters * each, 3))
    # Words nearer than any rounding must have one law; words a little farther must not differ by more than they may.
    points[1], points[2] = points[0] + 1e-15, points[0] + 1e-6
    yield "clusters", points, 6
    crowd = np.eye(100 if quick else 200) * (0.3 / math.sqrt(2))
    far = np.zeros((1, len(crowd)))
    far[0, 0] = 12.0
    yield "a crowd and one outside", np.concatenate([crowd, far]), 5
    ring = rng.normal(size=(30 if quick else 150, 8))
    ring *= 2.5 / np.linalg.norm(ring, axis=1, keepdims=True)
    yield "a hub and a ring", np.concatenate([ring, np.zeros((1, 8))]), 8


# ----------------------------------------------------------------------------------------------
# Attacks
# ----------------------------------------------------------------------------------------------


def _attack(mechanism: Mechanism, epsilon: float, sizes: _Sizes) -> tuple[list[Check], float]:
    """The checks of one vocabulary, and the smallest share of draws whose release as they are would have been seen."""
    checks = [_statement(mechanism, epsilon)]
    claimed = mechanism.statement.epsilon
    bound = epsilon if claimed is None else min(claimed, epsilon)
    # By the metric itself, not by the index: what the index holds is part of what is tried.
    apart = mechanism.index.distances_of(np.arange(len(mechanism.index)))
    laws = _laws(mechanism)
    if laws is None:
        checks.append(_drawn_ratio(mechanism, apart, bound, 3 * sizes.draws))
        leak = smallest_event(3 * sizes.draws, _LOSSES[0], len(apart))
    else:
        checks.append(_law(laws))
        checks.append(_ratio(mechanism, laws[:-1], apart, bound))
        checks.append(_worst_loss(mechanism, laws[:-1]))
        counts = _drawn(mechanism, len(laws), sizes.draws)
        checks.append(_sampler(laws, counts))
        released, leak = _released(laws[:-1], counts[:-1])
        checks.append(released)
    checks.append(_unknown(mechanism, laws))
    checks.append(_independence(mechanism, apart, sizes.draws))
    checks.append(_documents(mechanism, sizes.documents))
    checks.append(_streams(mechanism, laws, sizes.draws))
    return checks, leak


def _laws(mechanism: Mechanism) -> NDArray[np.float64] | None:
    """The laws of all words and, in the last row, of an unknown one; None for a mechanism without a law."""
    words = [*range(len(mechanism.index)), UNKNOWN]
    try:
        return np.stack([mechanism.log_prob(word) for word in words])
    except MechanismError:
        return None


def _unseen(sizes: _Sizes, leaks: list[float], index: Index | None) -> tuple[str, ...]:
    """What a run of these sizes could not have seen."""
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


def _statement(mechanism: Mechanism, epsilon: float) -> Check:
    statement = mechanism.statement
    wrong = []
    if not statement.proved:
        wrong.append("it states no proved guarantee over exact lists")
    if statement.epsilon is None or not statement.epsilon <= epsilon * (1 + 1e-12):
        wrong.append(f"it states epsilon {statement.epsilon} where {epsilon:g} was asked")
    if not 0 <= statement.delta < 1e-3:
        wrong.append(f"it states delta {statement.delta}")
    return Check("statement", "", not wrong, "; ".join(wrong) or "as asked")


def _law(laws: NDArray[np.float64]) -> Check:
    for word, law in enumerate(laws):
        total = np.exp(law).sum()
        if np.isnan(law).any() or not abs(total - 1) <= 1e-9:
            return Check("law", "", False, f"the law of w{word} sums to {total:.12g}, not to 1")
    return Check("law", "", True, f"{len(laws)} laws sum to 1")


def _ratio(
    mechanism: Mechanism, laws: NDArray[np.float64], apart: NDArray[np.float64], bound: float
) -> Check:
    """All triples: no output may tell two words apart by more than the claim, and equal words not at all."""
    # Rounding that is stated is part of the claim; a mechanism that states none is allowed that of its index.
    slack = _SLACK + _slack_of(mechanism, bound)
    delta = mechanism.statement.delta
    worst, witness = -math.inf, (0, 0)
    for word, law in enumerate(laws):
        if delta > 0:
            # Probability mass beyond the claimed ratio.
            beyond = np.exp(law)[None] - np.exp(bound * apart[word][:, None] + laws)
            excess = np.maximum(beyond, 0).sum(axis=1) - delta
        else:
            excess = largest_ratios(law, laws) - bound * apart[word]
        excess[word] = -math.inf
        if excess.max() > worst:
            worst, witness = float(excess.max()), (word, int(excess.argmax()))
    first, second = witness
    loss = float(largest_ratios(laws[first], laws[second][None])[0])
    detail = (
        f"w{first} against w{second} at distance {apart[first, second]:.4g}: loss {loss:.6g}, "
        f"claimed {bound * apart[first, second]:.6g}"
    )
    return Check("ratio", "", bool(worst <= slack), detail)


def _worst_loss(mechanism: Mechanism, laws: NDArray[np.float64]) -> Check:
    stated = mechanism.statement.figures.get("worst_word_loss")
    if stated is None:
        return Check("worst loss", "", True, "none is stated")
    worst = max(float(largest_ratios(law, laws).max()) for law in laws)
    return Check(
        "worst loss",
        "",
        worst <= stated * (1 + 1e-9) + _SLACK,
        f"largest loss between two words {worst:.6g}, stated {stated:.6g}",
    )


def _unknown(mechanism: Mechanism, laws: NDArray[np.float64] | None) -> Check:
    """An unknown word against every other: no more loss than is stated for it, or for any word."""
    name = "unknown words"
    figures = mechanism.statement.figures
    stated = figures.get("unknown_word_loss", figures.get("worst_word_loss"))
    if stated is None:
        return Check(name, "", True, "no worst loss is stated")
    if laws is not None:
        worst = max(
            float(largest_ratios(laws[-1], laws[:-1]).max()),
            max(float(largest_ratios(law, laws[-1:])[0]) for law in laws[:-1]),
        )
    elif stated <= _FARTHEST:
        worst = _drawn_unknown(mechanism, math.ceil(60 * math.exp(stated)))
    else:
        return Check(name, "", True, f"not compared: draws cannot show a loss of {stated:.4g} nats")
    return Check(
        name,
        "",
        worst <= stated * (1 + 1e-9) + _SLACK,
        "an unknown word against the others: "
        f"{f'loss {worst:.6g}' if laws is not None else f'loss of at least {at_least(worst)}'}, stated {stated:.6g}",
    )


def _drawn_unknown(mechanism: Mechanism, draws: int) -> float:
    """Lower bound on the loss between an unknown word and some others, from draws."""
    size, streams = len(mechanism.index), KeyedStreams(seed=6)
    words = np.unique(np.linspace(0, size - 1, 3).astype(int)).tolist()
    unknown, *others = (
        np.bincount(
            mechanism.sample(np.full(draws, word, dtype=np.int32), streams.stream(word)),
            minlength=size,
        )
        for word in (UNKNOWN, *words)
    )
    share, lean = LEVEL / (2 * len(others)), np.zeros(size)
    return max(
        ratio_bound(first, second, lean, share)
        for other in others
        for first, second in ((unknown, other), (other, unknown))
    )


def _drawn(mechanism: Mechanism, inputs: int, draws: int) -> NDArray[np.int64]:
    """How often each output was drawn for every word and, in the last row, for an unknown one."""
    streams = KeyedStreams(seed=1)
    size = len(mechanism.index)
    words = [*range(size), UNKNOWN][:inputs]
    return np.stack(
        [
            np.bincount(
                mechanism.sample(np.full(draws, word, dtype=np.int32), streams.stream(word)),
                minlength=size,
            )
            for word in words
        ]
    )


def _sampler(laws: NDArray[np.float64], counts: NDArray[np.int64]) -> Check:
    """Draws of every word, and of an unknown one, against the law that is stated for it."""
    least, where = 1.0, 0
    for word, (law, drawn) in enumerate(zip(laws, counts, strict=True)):
        if (drawn[law == -np.inf] > 0).any():
            return Check("sampler", "", False, f"w{word} became a word of probability 0")
        value = goodness_of_fit(drawn, np.exp(law))
        if value < least:
            least, where = value, word
    named = "an unknown word" if where == len(laws) - 1 else f"w{where}"
    return Check(
        "sampler", "", least > LEVEL, f"least p-value {least:.3g}, for {named}, of {len(laws)}"
    )


def _released(laws: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[Check, float]:
    """Outputs that equal their input, together over the words that seldom stay, against their law.

    A few draws in a thousand that are released as they are change each word's counts too little to be seen there.
    """
    stays = np.exp(np.diagonal(laws))
    order = np.argsort(stays, kind="stable")
    draws = int(counts[0].sum())
    # As many of the words that stay least as show the smallest leak.
    tried = sorted({1, *np.linspace(1, len(order), 12).astype(int).tolist()})
    leak, words = min((smallest_excess(np.repeat(stays[order[:n]], draws)), n) for n in tried)
    chosen = order[:words]
    same = int(counts[chosen, chosen].sum())
    value = excess_of(same, np.repeat(stays[chosen], draws))
    expected = float(stays[chosen].sum()) * draws
    return (
        Check(
            "release",
            "",
            value > LEVEL,
            f"{same:,} of {draws * words:,} draws equal their input, {expected:,.0f} expected (p-value {value:.3g}); "
            f"1 release in {math.floor(1 / leak):,} would have been seen",
        ),
        leak,
    )


def _documents(mechanism: Mechanism, count: int) -> Check:
    """Every document of a call against the same document drawn alone, by a stream of the same key."""
    rng = np.random.default_rng(8)
    lengths = rng.integers(0, 12, count)
    lengths[:4] = (7, 0, 9, 11)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(UNKNOWN, len(mechanism.index), offsets[-1]).astype(np.int32)
    streams = KeyedStreams(seed=4)
    together = mechanism.sample_documents(ids, offsets, [streams.stream(i) for i in range(count)])
    for document in range(count):
        begin, end = offsets[document : document + 2]
        if begin == end:
            continue
        alone = mechanism.sample_documents(
            ids[begin:end], np.array([0, end - begin]), [streams.stream(document)]
        )
        if not np.array_equal(alone, together[begin:end]):
            return Check(
                "documents",
                "",
                False,
                f"document {document + 1} of a call is not what it is alone under the same stream",
            )
    return Check("documents", "", True, f"{count:,} documents of one call are what they are alone")


def _streams(mechanism: Mechanism, laws: NDArray[np.float64] | None, draws: int) -> Check:
    """Documents of one word, each with a stream of its own, against the law, or against one document of that word."""
    size = len(mechanism.index)
    word = 0 if laws is None else int(laws[:-1].max(axis=1).argmin())
    streams = KeyedStreams(seed=5)
    ids = np.full(draws, word, dtype=np.int32)
    out = mechanism.sample_documents(
        ids, np.arange(draws + 1), [streams.stream(i) for i in range(draws)]
    )
    counts = np.bincount(out, minlength=size)
    if laws is None:
        other = np.bincount(mechanism.sample(ids, streams.stream("one")), minlength=size)
        value = two_samples(counts, other)
    else:
        value = goodness_of_fit(counts, np.exp(laws[word]))
    return Check(
        "streams", "", value > LEVEL, f"p-value {value:.3g} over {draws:,} streams, for w{word}"
    )


def _long_document(mechanism: Mechanism, length: int) -> Check:
    """The draws of one long document against the law of each word, or against those of short documents."""
    size, streams = len(mechanism.index), KeyedStreams(seed=7)
    laws = _laws(mechanism)
    ids = np.resize(np.arange(UNKNOWN, size, dtype=np.int32), length)
    out = mechanism.sample(ids, streams.stream("long"))
    least, where = 1.0, 0
    short = np.zeros_like(ids)
    for word in range(UNKNOWN, size):
        at = np.flatnonzero(ids == word)
        counts = np.bincount(out[at], minlength=size)
        if laws is None:
            short[at] = mechanism.sample(ids[at], streams.stream(word))
            value = two_samples(counts, np.bincount(short[at], minlength=size))
        else:
            value = goodness_of_fit(counts, np.exp(laws[word]))
        if value < least:
            least, where = value, word
    known = ids != UNKNOWN
    same = int((out == ids)[known].sum())
    if laws is None:
        drawn = np.array([same, known.sum() - same])
        other = int((short == ids)[known].sum())
        released = two_samples(drawn, np.array([other, known.sum() - other]))
    else:
        released = excess_of(same, np.exp(np.diagonal(laws))[ids[known]])
    return Check(
        "long document",
        "",
        min(least, released) > LEVEL,
        f"{length:,} tokens: least p-value {least:.3g}, for {'an unknown word' if where == UNKNOWN else f'w{where}'}; "
        f"{same:,} outputs equal their input (p-value {released:.3g})",
    )


def _drawn_ratio(
    mechanism: Mechanism, apart: NDArray[np.float64], bound: float, draws: int
) -> Check:
    """Without a law: a lower bound on the loss of pairs whose claimed loss is about a nat, from draws."""
    streams = KeyedStreams(seed=2)
    claimed = bound * apart
    pairs: set[tuple[int, int]] = set()
    rng = np.random.default_rng(5)
    for loss in _LOSSES:
        near = np.abs(np.log(np.where(claimed > 0, claimed, 1e-9)) - math.log(loss))
        near += 1e-3 * rng.random(near.shape)
        for position in np.argsort(np.triu(near, 1) + np.tril(np.full_like(near, 1e9)), axis=None)[
            :2
        ]:
            first, second = divmod(int(position), len(apart))
            if apart[first, second] > 0:
                pairs.add((first, second))
    counts = {}
    for word in sorted({word for pair in pairs for word in pair}):
        out = mechanism.sample(np.full(draws, word, dtype=np.int32), streams.stream(word))
        counts[word] = np.bincount(out, minlength=len(apart))
    worst, detail = -math.inf, "no pair to compare"
    for first, second in sorted(pairs | {(second, first) for first, second in pairs}):
        loss = ratio_bound(counts[first], counts[second], apart[first] - apart[second], LEVEL)
        if loss - claimed[first, second] > worst:
            worst = loss - claimed[first, second]
            detail = (
                f"w{first} against w{second} at distance {apart[first, second]:.4g}: loss of {at_least(loss, 4)} or more, "
                f"claimed {claimed[first, second]:.4g}"
            )
    return Check("draws", "", bool(worst <= 0), detail)


def _independence(mechanism: Mechanism, apart: NDArray[np.float64], draws: int) -> Check:
    """Two samples: the same word among copies of itself, and between copies of the word farthest from it."""
    streams = KeyedStreams(seed=3)
    least, where = 1.0, 0
    words = np.unique(np.linspace(0, len(apart) - 1, 4).astype(int)).tolist()
    for word in words:
        other = int(apart[word].argmax())
        alone = mechanism.sample(np.full(draws, word, dtype=np.int32), streams.stream(f"{word}"))
        mixed = np.tile(np.array([other, word], dtype=np.int32), draws)
        among = mechanism.sample(mixed, streams.stream(f"{word} mixed"))[1::2]
        value = two_samples(
            np.bincount(alone, minlength=len(apart)), np.bincount(among, minlength=len(apart))
        )
        if value < least:
            least, where = value, word
    return Check(
        "independence",
        "",
        least > LEVEL,
        f"least p-value {least:.3g}, for w{where}, of {len(words)}",
    )


def _searched(mechanism: Mechanism) -> Check:
    claimed = mechanism.statement.epsilon or mechanism.epsilon
    try:
        constant, pair, pairs = search(mechanism)
    except MechanismError:
        return Check("search", "", True, "no law to search by")
    first, second = (mechanism.index.vocabulary.words[word] for word in pair)
    return Check(
        "search",
        "",
        constant <= claimed * (1 + 1e-9),
        f"{first!r} against {second!r}: {constant:.6g} per unit of distance, claimed {claimed:g}; {pairs:,} pairs",
    )


def _slack_of(mechanism: Mechanism, bound: float) -> float:
    """Nats that rounding may add to a loss: what is stated, or the most that the distances of the index allow for."""
    return float(mechanism.statement.figures.get("numerical_slack", 0.0))
