"""A test kit that attacks mechanisms: every claim is tried on small public vocabularies, and on an index one gives.

Whatever a mechanism says of itself is taken as a claim and tried from outside: its law over all triples of two inputs and
an output, its draws against its law, its draws against each other, and its statement against both. A mechanism without a
law is attacked by its draws alone. Passing is no proof; failing is a refutation, with a witness. Nothing here knows any
particular mechanism, and no private text is involved.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, TextprivError
from textpriv.index import Index
from textpriv.mechanisms.constant import Constant, inputs
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism
from textpriv.mechanisms.passes import Progress
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary import Vocabulary

__all__ = [
    "AuditReport",
    "Check",
    "audit",
    "audit_registered",
    "largest_ratios",
    "ratio_bound",
    "search",
]

# False-alarm rate of one statistical test. Streams have fixed keys, so a verdict is the same in every run.
LEVEL = 1e-9
_SLACK = 1e-9  # nats for the arithmetic of the kit itself
_LAWS = 240  # laws that a search holds at most
_BYTES = 1 << 28  # and the memory that they may take
_THRESHOLDS = 32

# A registered function (settings -> index -> mechanism), a class, or the name of a registered function.
Factory = str | type[Mechanism] | Callable[..., Callable[[Index], Mechanism]]


@dataclass(frozen=True)
class Check:
    """One claim that was tried.

    Attributes
    ----------
    name : str
        Which claim: "made", "statement", "law", "ratio", "worst loss", "sampler", "draws", "independence", "search" or
        "approximate lists".
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
    """

    mechanism: str
    epsilon: float
    checks: tuple[Check, ...]

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
        return {"passed": self.passed, **asdict(self), "checks": [asdict(c) for c in self.checks]}

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
        False takes larger vocabularies and ten times the draws: about a minute instead of seconds.
    index : Index, optional
        Also search this index for pairs of words that break the claim.
    **settings
        Other settings of the mechanism.

    Returns
    -------
    AuditReport

    Notes
    -----
    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    if isinstance(factory, str):
        from textpriv.mechanisms import registry

        label, configured = factory, registry.get(factory)
    else:
        label, configured = getattr(factory, "__name__", repr(factory)), factory

    def make(over: Index) -> Mechanism:
        if isinstance(configured, type):
            return configured(over, epsilon=epsilon, **settings)
        return configured(epsilon=epsilon, **settings)(over)

    checks: list[Check] = []
    for name, vectors, k in _vocabularies(quick):
        vocabulary = Vocabulary([f"w{i}" for i in range(len(vectors))], vectors / epsilon)
        try:
            mechanism = make(Index.build(vocabulary, k=k))
        except TextprivError as error:
            checks.append(Check("made", name, False, str(error)))
            continue
        found = _attack(mechanism, epsilon, 2_000 if quick else 20_000)
        checks += [replace(check, vocabulary=name) for check in found]
        if name == "clusters" and mechanism.needs_exact_lists:
            checks.append(_try_approximate(make, vocabulary))
    if index is not None:
        checks.append(replace(_searched(make(index)), vocabulary="given"))
    if settings:
        label += " with " + ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return AuditReport(label, epsilon, tuple(checks))


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
    crowd = np.eye(40 if quick else 200) * (0.3 / math.sqrt(2))
    far = np.zeros((1, len(crowd)))
    far[0, 0] = 12.0
    yield "a crowd and one outside", np.concatenate([crowd, far]), 5
    ring = rng.normal(size=(30 if quick else 150, 8))
    ring *= 2.5 / np.linalg.norm(ring, axis=1, keepdims=True)
    yield "a hub and a ring", np.concatenate([ring, np.zeros((1, 8))]), 8


# ----------------------------------------------------------------------------------------------
# Attacks
# ----------------------------------------------------------------------------------------------


def _attack(mechanism: Mechanism, epsilon: float, draws: int) -> list[Check]:
    checks = [_statement(mechanism, epsilon)]
    claimed = mechanism.statement.epsilon
    bound = epsilon if claimed is None else min(claimed, epsilon)
    # By the metric itself, not by the index: what the index holds is part of what is tried.
    vectors = mechanism.index.vocabulary.vectors
    apart = mechanism.index.metric.pairwise(vectors, vectors)
    try:
        laws = np.stack([mechanism.log_prob(word) for word in range(len(apart))])
    except MechanismError:
        checks.append(_drawn_ratio(mechanism, apart, bound, 3 * draws))
    else:
        checks.append(_law(laws))
        checks.append(_ratio(mechanism, laws, apart, bound))
        checks.append(_worst_loss(mechanism, laws))
        checks.append(_sampler(mechanism, laws, draws))
    checks.append(_independence(mechanism, apart, draws))
    return checks


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
    slack = _SLACK + 6 * bound * mechanism.index.tau
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


def _sampler(mechanism: Mechanism, laws: NDArray[np.float64], draws: int) -> Check:
    """Draws of every word, and of an unknown one, against the law that is stated for it."""
    streams = KeyedStreams(seed=1)
    cases = [(word, law) for word, law in enumerate(laws)]
    with suppress(TextprivError):
        cases.append((UNKNOWN, mechanism.log_prob(UNKNOWN)))
    least, where = 1.0, 0
    for word, law in cases:
        out = mechanism.sample(np.full(draws, word, dtype=np.int32), streams.stream(word))
        counts = np.bincount(out, minlength=len(law))
        if (counts[law == -np.inf] > 0).any():
            return Check("sampler", "", False, f"w{word} became a word of probability 0")
        value = _goodness(counts, np.exp(law))
        if value < least:
            least, where = value, word
    named = "an unknown word" if where == UNKNOWN else f"w{where}"
    return Check(
        "sampler", "", least > LEVEL, f"least p-value {least:.3g}, for {named}, of {len(cases)}"
    )


def _drawn_ratio(
    mechanism: Mechanism, apart: NDArray[np.float64], bound: float, draws: int
) -> Check:
    """Without a law: a lower bound on the loss of pairs whose claimed loss is about a nat, from draws."""
    streams = KeyedStreams(seed=2)
    claimed = bound * apart
    pairs: set[tuple[int, int]] = set()
    rng = np.random.default_rng(5)
    for loss in (0.7, 1.5, 3.0):
        near = np.abs(np.log(np.where(claimed > 0, claimed, 1e-9)) - math.log(loss))
        near += 1e-3 * rng.random(near.shape)
        for place in np.argsort(np.triu(near, 1) + np.tril(np.full_like(near, 1e9)), axis=None)[:2]:
            first, second = divmod(int(place), len(apart))
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
                f"w{first} against w{second} at distance {apart[first, second]:.4g}: loss of {loss:.4g} or more, "
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
        value = _two_samples(
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


def _try_approximate(make: Callable[[Index], Mechanism], vocabulary: Vocabulary) -> Check:
    """A mechanism that needs exact lists must not claim a proof over others."""
    name = "approximate lists"
    index = Index.build(vocabulary, k=6, backend="hnsw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            proved = make(index).statement.proved
        except TextprivError:
            return Check(name, "clusters", True, "refused")
    return Check(name, "clusters", not proved, "claims a proof" if proved else "claims no proof")


def _searched(mechanism: Mechanism) -> Check:
    claimed = mechanism.statement.epsilon or mechanism.epsilon
    try:
        found, pairs = search(mechanism)
    except MechanismError:
        return Check("search", "", True, "no law to search by")
    first, second = (mechanism.index.vocabulary.words[word] for word in found.pair)
    slack = 1e-9 + 6 * mechanism.index.tau / max(mechanism.index.distance(*found.pair), 1e-300)
    return Check(
        "search",
        "",
        found.value <= claimed * (1 + slack),
        f"{first!r} against {second!r}: {found.value:.6g} per unit of distance, claimed {claimed:g}; {pairs:,} pairs",
    )


# ----------------------------------------------------------------------------------------------
# Instruments
# ----------------------------------------------------------------------------------------------


def largest_ratios(law: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest log-ratio over outputs of a law (V,) against each of some others (m, V), shape (m,).

    An output that only the first can give makes it infinite, and so does a number that is none.
    """
    possible = ~(law == -np.inf)
    with np.errstate(invalid="ignore"):
        largest = (law[possible][None] - others[:, possible]).max(axis=1, initial=-np.inf)
    return np.where(np.isnan(largest), np.inf, largest)


def ratio_bound(
    first: NDArray[np.int64], second: NDArray[np.int64], lean: NDArray[np.float64], error: float
) -> float:
    """Lower bound on ``ln P_first(E) / P_second(E)`` of the most telling event, from the counts of two samples.

    Parameters
    ----------
    first, second : ndarray of int, shape (V,)
        How often each output was drawn for each of the two inputs.
    lean : ndarray, shape (V,)
        Lower for outputs nearer to the first input. Events are single outputs, and all outputs up to some lean.
    error : float
        Probability with which the bound may be wrong, shared by all events that could have been counted.
    """
    from scipy.stats import beta

    thresholds = np.quantile(lean, np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    order = np.argsort(lean, kind="stable")
    ends = np.searchsorted(lean[order], thresholds, side="right") - 1
    seen = np.flatnonzero(first)
    hits = np.concatenate([first[seen], np.cumsum(first[order])[ends]])
    misses = np.concatenate([second[seen], np.cumsum(second[order])[ends]])
    hits, misses = hits[hits > 0], misses[hits > 0]
    share = error / (2 * (len(lean) + _THRESHOLDS))
    low = beta.ppf(share, hits, first.sum() - hits + 1)
    high = beta.ppf(1 - share, misses + 1, np.maximum(second.sum() - misses, 1e-300))
    ratios = np.log(low) - np.log(np.where(misses >= second.sum(), 1.0, high))
    return float(ratios.max(initial=-np.inf))


def search(
    mechanism: Mechanism, *, laws: int = _LAWS, progress: Progress | None = None
) -> tuple[Constant, int]:
    """Search an index of any size for the pair of words whose laws differ most per unit of distance.

    Parameters
    ----------
    mechanism : Mechanism
        With a law.
    laws : int
        How many laws to compute; each takes a row of distances. All of them are compared with each other.
    progress : callable, optional
        Called with (laws done, laws in all).

    Returns
    -------
    best : Constant
        A lower bound on the mechanism's constant, and the ordered pair that attains it.
    pairs : int
        Compared.

    Raises
    ------
    MechanismError
        If the mechanism has no law.

    Notes
    -----
    The first half of the budget goes to pairs that are likely to break a law: the nearest words, hubs (words that are
    on many lists) beside rare words, and neighbours that an approximate list has missed. The other half climbs from the
    worst pairs found, by the neighbours of either word.
    """
    index = mechanism.index
    budget = min(laws, len(inputs(index)), max(16, _BYTES // (8 * len(index))))
    table = np.empty((budget, len(index)))
    held: list[int] = []
    known: set[int] = set()
    ranking: list[tuple[float, int, int]] = []

    def add(word: int) -> None:
        word = int(index.representatives[word])
        if word in known or len(held) >= budget:
            return
        law = mechanism.log_prob(word)
        if held:
            rows = table[: len(held)]
            apart = index.distances_of(np.array([word]))[0][held]
            apart = np.where(apart > 0, apart, np.inf)
            forth = largest_ratios(law, rows) / apart
            back = np.array([largest_ratios(row, law[None])[0] for row in rows]) / apart
            best = int(np.maximum(forth, back).argmax())
            pair = (word, held[best]) if forth[best] >= back[best] else (held[best], word)
            ranking.append((float(max(forth[best], back[best])), *pair))
            ranking.sort(reverse=True)
            del ranking[32:]
        table[len(held)] = law
        held.append(word)
        known.add(word)
        if progress:
            progress(len(held), budget)

    for word in _suspects(index):
        if len(held) >= max(2, budget // 2):
            break
        add(word)
    while len(held) < budget:
        before = len(held)
        for _, first, second in ranking[:8]:
            for end in (first, second):
                fresh = (
                    o for o in _around(index, end) if int(index.representatives[o]) not in known
                )
                for other in list(_taken(fresh, 2)):
                    add(other)
        if len(held) == before:
            # The best pairs are surrounded: go on with words not tried yet.
            untried = (int(w) for w in inputs(index) if int(w) not in known)
            for word in list(_taken(untried, 8)):
                add(word)
    pairs = len(held) * (len(held) - 1) // 2
    if not ranking or ranking[0][0] <= 0:
        return Constant(0.0, (held[0], held[0])), pairs
    value, first, second = ranking[0]
    return Constant(value, (first, second)), pairs


def _suspects(index: Index) -> Iterator[int]:
    """Words in the order in which an adversary would try them; endless repetition is left to the caller."""
    words = inputs(index)
    ids, distances = index.neighbours.ids, index.neighbours.distances
    often = np.bincount(ids.reshape(-1), minlength=len(index))
    told_apart = distances > 2 * index.tau
    nearest = np.where(
        told_apart.any(axis=1),
        distances[np.arange(len(index)), told_apart.argmax(axis=1)],
        np.inf,
    )
    near = words[np.argsort(nearest[words], kind="stable")]
    hubs = words[np.argsort(-often[words], kind="stable")]
    rare = words[np.argsort(often[words], kind="stable")]
    for place in range(len(words)):
        yield int(near[place])
        yield int(ids[near[place], told_apart[near[place]].argmax()])
        yield int(hubs[place])
        yield int(rare[place])
        # A hub and a rare word next to each other: their normalisers differ over a short way.
        yield int(ids[rare[place]][often[ids[rare[place]]].argmax()])
        if not index.exact:
            yield from _taken(iter(_missed(index, int(hubs[place]))), 2)
            yield from _taken(iter(_missed(index, int(near[place]))), 2)


def _around(index: Index, word: int) -> list[int]:
    """The neighbours of a word, those that its list has missed first."""
    listed: list[int] = index.neighbours.ids[word].tolist()
    return listed if index.exact else [*_missed(index, word)[:2], *listed]


def _missed(index: Index, word: int) -> list[int]:
    """Words nearer than the end of a word's list and not on it, nearest first."""
    apart = index.distances_of(np.array([word]))[0]
    inside = np.flatnonzero(apart < float(index.neighbours.distances[word, -1]))
    inside = inside[~np.isin(inside, index.neighbours.ids[word])]
    found: list[int] = inside[np.argsort(apart[inside], kind="stable")].tolist()
    return found


def _taken(items: Iterator[int], count: int) -> Iterator[int]:
    for _, item in zip(range(count), items, strict=False):
        yield item


def _goodness(counts: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """p-value of Pearson's test; outputs expected fewer than 8 times are pooled."""
    from scipy.stats import chi2

    expected = law * counts.sum()
    order = np.argsort(expected, kind="stable")
    starts = _pools(expected[order])
    wanted = np.add.reduceat(expected[order], starts)
    seen = np.add.reduceat(counts[order], starts)
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def _two_samples(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """p-value of Pearson's test that two samples of equal size have one law; rare outputs are pooled."""
    from scipy.stats import chi2

    both = first + second
    order = np.argsort(both, kind="stable")
    starts = _pools(both[order] / 2.0)
    together = np.add.reduceat(both[order], starts)
    gap = np.add.reduceat(first[order] - second[order], starts)
    if len(together) < 2:
        return 1.0
    return float(chi2.sf((gap**2 / together).sum(), len(together) - 1))


def _pools(expected: NDArray[np.float64]) -> list[int]:
    """Where groups start, so that each is expected at least 8 times; ``expected`` ascends."""
    starts, held = [0], 0.0
    for place, value in enumerate(expected.tolist()):
        if held >= 8.0:
            starts.append(place)
            held = 0.0
        held += value
    if held < 8.0 and len(starts) > 1:
        starts.pop()
    return starts
