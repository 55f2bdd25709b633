"""Certificates: the exact constant of a mechanism on its own vocabulary, computed and checked.

A certificate says what largest log-ratio per unit of distance a mechanism, with these settings, on these points, shows for
any pair of words. For an exponential mechanism the answer is exact and covers all pairs; for others it may be a lower bound
and says so. It is computed each time: a file beside an index could say anything.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.guarantees.significance import LEVEL, goodness_of_fit, largest_ratios, ratio_bound
from textpriv.index.index import Index, progress_bar
from textpriv.index.spaces import MANHATTAN
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.mechanisms.pairs import ROUNDING, log_normalisers, pair_constant
from textpriv.randomness import KeyedStreams, Stream
from textpriv.statement import at_least, at_most

_EXHAUSTIVE = 1500  # words that are compared over all triples of input, input and output
_AGREEMENT = 1e-6  # nats by which a closed form may differ from the mechanism's own log_prob
_TRIED = 32  # words by which a constant that a mechanism brings is tried
_ROUNDING = 1e-9  # relative slack for the arithmetic of the certificate itself
_DRAWN, _DRAWS = 8, 4_000  # words drawn against their output distribution, and draws of each
_TRIALS, _NAMED = 200, 20  # draws of a word to see whether it stays, and words that are named
_LISTS = 32  # nearest lists compared with distances by whole differences
_MONTE_CARLO = 10_000  # draws of a word, for a mechanism without a closed form
_ERROR = 1e-3  # probability that such a bound is wrong
_LOSSES = (0.7, 1.5, 3.0)  # nats, claimed for pairs that are compared by draws
_MOST, _BYTES = 240, 1 << 28  # output distributions that a search compares, and their memory
_CLOSED = "closed form over all pairs, float64"
_IN_CONTEXT = "The constant is that at the start of a document; in other contexts the claim rests on its proof"
_SAMPLED = "A lower bound from samples: it can refute a claim and cannot establish one; the claim rests on its proof"


@dataclass(frozen=True, repr=False)
class Certificate:
    """Result of checking a mechanism's claim over pairs of words.

    Attributes
    ----------
    epsilon : float
        The constant claimed: that of the statement which is released with texts.
    asked : float
        The mechanism's own epsilon. The claim does not hold if the statement has another.
    rho : float
        The constant found: exact over all pairs of words and all outputs if ``exact``, otherwise a lower bound. Infinite if
        some word can become what another cannot.
    holds : bool
        Whether the claim stands: for an exact certificate ``rho <= epsilon``; otherwise that nothing refutes it.
    worst_pair : (str, str)
        The words whose output distributions differ most, per unit of their ``distance``.
    pairs : int
        Pairs of words compared (unordered).
    confidence : float or None
        For a bound from samples: the probability with which it is a lower bound.
    observed : tuple of str
        Checks of a sample that passed: draws of some words against their output distributions, and nearest lists. They can
        refute a sampler or an index and cannot establish one.
    binding : dict
        Checksums of vocabulary, metric and prior, and the settings.
    """

    mechanism: str
    epsilon: float
    asked: float
    rho: float
    holds: bool
    exact: bool
    worst_pair: tuple[str, str]
    distance: float
    pairs: int
    method: str
    confidence: float | None
    computed: str
    notes: tuple[str, ...]
    observed: tuple[str, ...]
    binding: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON types; an infinite constant becomes None."""
        return {**asdict(self), "rho": self.rho if math.isfinite(self.rho) else None}

    @property
    def verdict(self) -> str:
        """What was found, in a few words."""
        if not _is_one(self.epsilon, self.asked):
            return "THE STATEMENT HAS ANOTHER EPSILON THAN THE MECHANISM"
        if not self.holds:
            return "THE CLAIM DOES NOT HOLD"
        return "THE CLAIM HOLDS" if self.exact else "NOTHING REFUTES THE CLAIM"

    def rows(self) -> list[tuple[str, str]]:
        """Return what a table of the certificate shows: names and figures in words."""
        first, second = self.worst_pair
        # Rounded up where it is exact, and down where it is a lower bound.
        constant = at_most(self.rho, 9) if self.exact else f"at least {at_least(self.rho, 9)}"
        other = "" if _is_one(self.epsilon, self.asked) else f"; the mechanism's is {self.asked:g}"
        sure = "" if self.confidence is None else f", with {self.confidence:.1%} confidence"
        return [
            ("mechanism", self.mechanism),
            ("claimed", f"{at_most(self.epsilon, 9)} per unit of distance{other}"),
            ("constant", constant + sure),
            ("worst pair", f"{first} and {second}, at distance {self.distance:.6g}"),
            ("compared", f"{self.pairs:,} pairs of words"),
            ("method", self.method),
            ("computed", self.computed),
        ]

    def __repr__(self) -> str:
        lines = [self.verdict, *(f"{name}: {figure}" for name, figure in self.rows())]
        return "\n".join([*lines, *(f"{each}." for each in (*self.observed, *self.notes))])


class _Bound(NamedTuple):
    constant: float
    pair: tuple[int, int]
    pairs: int
    exact: bool
    method: str
    confidence: float | None = None
    stays: NDArray[np.float64] | None = None  # how often each word stays


def certify(mechanism: Mechanism, *, progress: bool = False) -> Certificate:
    """Compute what a mechanism really guarantees, and judge its claim.

    Parameters
    ----------
    mechanism : Mechanism
        TEM and TreeTEM: exact over all pairs of words. Another closed form: exact up to 1,500 words, and beyond that a
        lower bound over the pairs that a search finds. Without a closed form: a lower bound from draws, at 99.9 %
        confidence.
    progress : bool
        As in :meth:`Index.build`.
    """
    from textpriv import __version__

    index, words = mechanism.index, mechanism.index.vocabulary.words
    claimed, asked = mechanism.statement.epsilon, mechanism.epsilon
    if claimed is None:
        raise MechanismError(
            "The statement of this mechanism has no epsilon, so there is no claim to check. State one."
        )
    found = _closed(mechanism, progress) or _own(mechanism) or _compared(mechanism)
    looked = (_observe_draws(mechanism), _observe_lists(index))
    refuted = [sentence for passed, sentence in looked if not passed]
    notes = [*([_SAMPLED] if found.confidence else []), *refuted]
    notes += [_IN_CONTEXT] if mechanism.reads_context else []
    notes += _kept_words(mechanism, found.stays)
    return Certificate(
        mechanism=repr(mechanism),
        epsilon=claimed,
        asked=asked,
        rho=found.constant,
        holds=_is_one(claimed, asked)
        and found.constant <= claimed * (1 + _ROUNDING)
        and not refuted,
        exact=found.exact and not mechanism.reads_context,
        worst_pair=(words[found.pair[0]], words[found.pair[1]]),
        distance=index.distance(*found.pair),
        pairs=found.pairs,
        method=found.method,
        confidence=found.confidence,
        computed=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC by textpriv {__version__}",
        notes=(*notes, *mechanism.caveats()),
        observed=tuple(sentence for passed, sentence in looked if passed and sentence),
        binding=mechanism.binding(),
    )


def _is_one(claimed: float, asked: float) -> bool:
    return math.isclose(claimed, asked, rel_tol=_ROUNDING)


def _closed(mechanism: Mechanism, progress: bool) -> _Bound | None:
    """Compute the constant of an exponential mechanism over all pairs.

    None if the mechanism's own log_prob is not the closed form: a subclass may have changed it. All words of a small
    vocabulary are compared, and a fixed sample of a large one.
    """
    decay, index, size = mechanism.exponential_decay(), mechanism.index, len(mechanism.index)
    if decay is None:
        return None
    weights, rate, gamma = decay
    for word in _spread(size, size if size <= _EXHAUSTIVE else 16):
        score = np.log(weights) - rate * np.minimum(index.distances_of(np.array([word]))[0], gamma)
        closed, own = score - np.logaddexp.reduce(score), mechanism.log_prob(word)
        if own.shape != closed.shape or not np.abs(own - closed).max() <= _AGREEMENT:
            return None
    with progress_bar("normalisers", progress) as report:
        log_z = log_normalisers(index, weights, rate, gamma, report)
    with progress_bar("pairs of words", progress) as report:
        constant, pair = pair_constant(index, rate, gamma, log_z, report)
    stays = weights * np.exp(-log_z)
    return _Bound(constant, pair, size * (size - 1) // 2, True, _CLOSED, stays=stays)


def _own(mechanism: Mechanism) -> _Bound | None:
    """Return the constant that a mechanism brings; None without one, or if its own log_prob shows another."""
    index, size, own = mechanism.index, len(mechanism.index), mechanism.closed_constant()
    if own is None:
        return None
    constant, pair = own
    shown = float(largest_ratios(*(mechanism.log_prob(word) for word in pair)))
    tried, worst, _ = _search(mechanism, _TRIED)
    agrees = abs(shown - constant * index.distance(*pair)) <= _AGREEMENT
    if not agrees or (tried - constant) * index.distance(*worst) > _AGREEMENT:
        return None
    return _Bound(constant, pair, size * (size - 1) // 2, True, _CLOSED)


def _compared(mechanism: Mechanism) -> _Bound:
    """Compare output distributions, all triples or the pairs of a search; without them draws, the same in every run."""
    if mechanism.has_log_prob and len(mechanism.index) > _EXHAUSTIVE:
        return _Bound(*_search(mechanism, _MOST), False, "all outputs, over the pairs of a search")
    if mechanism.has_log_prob:
        return _Bound(*_search(mechanism, _EXHAUSTIVE), True, "all pairs and outputs, float64")
    found = losses_by_draws(mechanism, _MONTE_CARLO, _ERROR)
    ratios = [(loss / mechanism.index.distance(*pair), pair) for loss, pair in found]
    constant, pair = max([(0.0, (0, 0)), *ratios])
    method = f"Monte Carlo, {_MONTE_CARLO:,} draws a word"
    return _Bound(constant, pair, len(found) // 2, False, method, 1 - _ERROR)


def losses_by_draws(
    mechanism: Mechanism, draws: int, error: float
) -> list[tuple[float, tuple[int, int]]]:
    """Return lower bounds on the losses of some ordered pairs of words, in nats, from draws under a fixed public key.

    About a nat is claimed for the pairs: draws show neither much less nor much more. ``error`` is the probability that any
    of the bounds is wrong.
    """
    index, size = mechanism.index, len(mechanism.index)
    pairs: set[tuple[int, int]] = set()
    for word in _spread(size, 4):
        others = {_at_distance(index, word, loss / mechanism.epsilon) for loss in _LOSSES}
        pairs |= {pair for other in others - {word} for pair in ((word, other), (other, word))}
    streams = KeyedStreams(seed=0)
    counts = {
        word: count_draws(mechanism, word, draws, streams.stream(f"ratio {word}"))
        for word in sorted({first for first, _ in pairs})
    }
    found = []
    for pair in sorted(pairs):
        lean = np.subtract(*index.distances_of(np.array(pair)))
        first, second = (counts[word] for word in pair)
        found.append((ratio_bound(first, second, lean, error / len(pairs)), pair))
    return found


def count_draws(mechanism: Mechanism, word: int, draws: int, stream: Stream) -> NDArray[np.int64]:
    """Draw a word many times, each time as its own document if context is read, and count its outputs, shape (V,)."""
    ids = np.full(draws, word, dtype=np.int32)
    if mechanism.reads_context:
        outputs = mechanism.sample_documents(ids, np.arange(draws + 1), [stream] * draws)
    else:
        outputs = mechanism.sample(ids, stream)
    if outputs.shape != (draws,) or outputs.min() < 0 or outputs.max() >= len(mechanism.index):
        raise MechanismError("The sampler must draw one word of the vocabulary for every token.")
    return np.bincount(outputs, minlength=len(mechanism.index))


def _kept_words(mechanism: Mechanism, stays: NDArray[np.float64] | None) -> list[str]:
    """Name the content words that stay in more than half of their uses; of a sample, where all take too long."""
    vocabulary, size = mechanism.index.vocabulary, len(mechanism.index)
    stays = mechanism.stay_probabilities() if stays is None else stays
    words = np.arange(size) if stays is not None else np.array(_spread(size, _MOST))
    if stays is None and mechanism.has_log_prob:
        stays = np.exp([mechanism.log_prob(word)[word] for word in words.tolist()])
    elif stays is None:
        drawn = mechanism.sample(
            np.repeat(words, _TRIALS).astype(np.int32), KeyedStreams(seed=9).stream("stays")
        )
        stays = (drawn.reshape(len(words), _TRIALS) == words[:, None]).mean(axis=1)
    kept = words[(stays > 0.5) & vocabulary.is_content[words]]
    if not len(kept):
        return []
    named = ", ".join(vocabulary.words[word] for word in kept[:_NAMED].tolist())
    return [
        f"Of {len(words):,} words, {len(kept):,} content words stay in more than half of their uses: {named}"
        f"{', ...' if len(kept) > _NAMED else ''}"
    ]


def _search(mechanism: Mechanism, most: int) -> tuple[float, tuple[int, int], int]:
    """Return the largest loss per unit of distance over all pairs of some words, its ordered pair, and how many there are.

    They are all words, or evenly spread ones, each with its nearest word: so many that ``most`` output distributions are
    computed at most.
    """
    index, size = mechanism.index, len(mechanism.index)
    words = _spread(size, min(most, size, max(16, _BYTES // (8 * size))))
    if len(words) < size:
        nearest = ((word, _at_distance(index, word, 0.0)) for word in words[::2])
        words = list(dict.fromkeys(word for pair in nearest for word in pair))
    table = np.stack([mechanism.log_prob(word) for word in words])
    best, pair = 0.0, (words[0], words[0])
    for place, word in enumerate(words):
        apart = index.distances_of(np.array([word]))[0][words]
        losses = largest_ratios(table[place], table)
        # Nearly infinite between words at distance 0 that lose more than rounding.
        ratios = np.maximum(losses - ROUNDING, 0.0) / np.maximum(apart, 1e-300)
        ratios[place] = 0.0
        other = int(ratios.argmax())
        if ratios[other] > best:
            best, pair = float(ratios[other]), (word, words[other])
    return best, pair, len(words) * (len(words) - 1) // 2


def _at_distance(index: Index, word: int, distance: float) -> int:
    """Return the word whose distance above 0 comes closest to a wanted one; the word itself if it has no such distance."""
    apart = index.distances_of(np.array([word]))[0]
    apart[apart == 0] = np.inf
    other = int(np.abs(apart - distance).argmin())
    return other if np.isfinite(apart[other]) else word


def _spread(size: int, count: int) -> list[int]:
    return list(np.unique(np.linspace(0, size - 1, count).astype(int)).tolist())


def _observe_draws(mechanism: Mechanism) -> tuple[bool, str]:
    """Draw some words, and an unknown one, and say whether they fit their output distribution."""
    if not mechanism.has_log_prob:
        return True, "Draws were compared with no output distribution: there is no closed form"
    values, chosen = [], _spread(len(mechanism.index), _DRAWN)
    for word in (*chosen, UNKNOWN):
        counts = count_draws(mechanism, word, _DRAWS, KeyedStreams(seed=9).stream(word))
        values.append(goodness_of_fit(counts, np.exp(mechanism.log_prob(word))))
    if not min(values) > LEVEL:
        return False, "The sampler does not draw from the stated output distribution"
    detail = f"{_DRAWS:,} draws each of {len(chosen)} words and of an unknown one fit their output distributions"
    return True, f"{detail} (least p-value {min(values):.2g})"


def _observe_lists(index: Index) -> tuple[bool, str]:
    """Compare some nearest lists with distances by whole differences of the points."""
    if isinstance(index, Tree):
        return True, ""
    chosen = _spread(len(index), _LISTS)
    for word in chosen:
        apart = np.abs(index.points.astype(np.int64) - index.points[word])
        steps = (apart if index.space == MANHATTAN else np.square(apart)).sum(axis=1)
        ids, listed = index.neighbour_ids[word], index.neighbour_steps[word]
        nearest = ids[0] == word and (np.diff(listed) >= 0).all() and len(set(ids)) == index.k
        right = (steps[ids] == listed).all() and (np.delete(steps, ids) >= listed[-1]).all()
        if not (nearest and right):
            return False, f"The nearest list of word number {word} is wrong. Build the index again"
    return True, f"The nearest lists of {len(chosen)} words agree with distances of their points"
