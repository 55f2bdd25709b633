"""Certificates: the exact constant of a mechanism on its own vocabulary, computed, saved and checked.

A certificate says what largest log-ratio per unit of distance a mechanism, with these settings, on these points, shows for
any pair of words. For an exponential mechanism the answer is exact and covers all pairs; for others it may be a lower bound
and says so.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.guarantees.pair_search import per_distance, search
from textpriv.guarantees.significance import LEVEL, goodness_of_fit, largest_ratios, ratio_bound
from textpriv.index.index import Index, progress_bar
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.mechanisms.pairs import log_normalisers, pair_constant
from textpriv.randomness import KeyedStreams
from textpriv.statement import at_least, at_most, card

__all__ = ["Certificate", "certify"]

_EXHAUSTIVE = (
    1500  # words of a vocabulary that is compared over all triples of input, input and output
)
_AGREEMENT = 1e-6  # nats by which a closed form may differ from the mechanism's own log_prob
_TRIED = 32  # words by which a constant that a mechanism brings is tried
_ROUNDING = 1e-9  # relative slack for the arithmetic of the certificate itself
_DRAWN, _DRAWS = 8, 4_000  # words drawn against their output distribution, and draws of each
_LISTS = 32  # nearest lists compared with distances by whole differences
_ENTRIES = 1 << 24  # and as many distances at most
_MONTE_CARLO = 10_000  # draws of a word, for a mechanism without a closed form
_ERROR = 1e-3  # probability that such a bound is wrong
_IN_CONTEXT = "The constant is that at the start of a document; in other contexts the claim rests on its proof"


@dataclass(frozen=True)
class Certificate:
    """What was found when a mechanism's claim was checked.

    Attributes
    ----------
    mechanism : str
    epsilon : float
        The constant claimed.
    rho : float
        The constant found: exact if ``exact``, otherwise a lower bound. Infinite if some word can become what another
        cannot.
    holds : bool
        Whether the claim stands: for an exact certificate ``rho <= epsilon``; otherwise that nothing refutes it and the
        mechanism's proof does not rest on what could not be checked.
    exact : bool
        Whether ``rho`` is the tight constant over all pairs of words and all outputs.
    worst_pair : (str, str)
        The words whose laws differ most, per unit of their distance.
    distance : float
        Between them.
    pairs : int
        Pairs of words compared (unordered).
    method : str
        How ``rho`` was found.
    confidence : float or None
        For a bound from samples: the probability with which it is a lower bound.
    binding : dict
        What the certificate is bound to: checksums of vocabulary, metric and prior, and the settings.
    seconds : float
    computed : str
        When, in UTC, and by which version of this library. A certificate that is read back says so in its notes.
    notes : tuple of str
    observed : tuple of str
        What was looked at besides the law: draws of some words against it, and nearest lists against distances computed
        anew from the vectors. A sample: it can refute a sampler or an index and cannot establish one.
    """

    mechanism: str
    epsilon: float
    rho: float
    holds: bool
    exact: bool
    worst_pair: tuple[str, str]
    distance: float
    pairs: int
    method: str
    confidence: float | None
    binding: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    computed: str = ""
    notes: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON types; an infinite constant becomes None."""
        content = asdict(self)
        lists = {name: list(content[name]) for name in ("worst_pair", "notes", "observed")}
        return {**content, **lists, "rho": self.rho if math.isfinite(self.rho) else None}

    def to_json(self) -> str:
        """Return the certificate as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Certificate:
        """Return the certificate that :meth:`to_dict` wrote."""
        tuples = {name: tuple(content[name]) for name in ("worst_pair", "notes", "observed")}
        rho = math.inf if content["rho"] is None else content["rho"]
        return cls(**{**content, **tuples, "rho": rho})

    def paragraph(self) -> str:
        """Return the certificate in plain words."""
        verdict = "The claim holds" if self.holds else "THE CLAIM DOES NOT HOLD"
        kind = "exactly " if self.exact else ""
        first, second = self.worst_pair
        return (
            f"{verdict}: {self.mechanism} claims {at_most(self.epsilon, 9)} per unit of distance, and its constant is {kind}"
            f"{self.in_words(self.rho, 6)} over {self.pairs:,} pairs of words ({self.method}). The worst pair is "
            f"{first!r} and {second!r}, at distance {self.distance:.4g}."
            + "".join(f" {sentence}." for sentence in (*self.observed, *self.notes))
        )

    def in_words(self, constant: float, digits: int = 9) -> str:
        """Write one of the constants: rounded up where it is exact, and down where it is a lower bound."""
        return at_most(constant, digits) if self.exact else f"at least {at_least(constant, digits)}"

    def __str__(self) -> str:
        return self.paragraph()

    def __repr__(self) -> str:
        relation = "=" if self.exact else ">="
        return (
            f"Certificate({self.mechanism}: {'holds' if self.holds else 'DOES NOT HOLD'}, rho {relation} {self.rho:.6g}, "
            f"claimed {at_most(self.epsilon, 9)}, worst pair {self.worst_pair[0]!r} and {self.worst_pair[1]!r})"
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return what a table of the certificate shows: names and figures in words."""
        first, second = self.worst_pair
        sure = "" if self.confidence is None else f", with {self.confidence:.1%} confidence"
        return [
            ("mechanism", self.mechanism),
            ("claimed", f"{at_most(self.epsilon, 9)} per unit of distance"),
            ("constant", f"{self.in_words(self.rho)}{sure}"),
            ("worst pair", f"{first} and {second}, at distance {self.distance:.6g}"),
            ("compared", f"{self.pairs:,} pairs of words"),
            ("method", self.method),
            ("computed", f"{self.computed}, in {self.seconds:.1f} s"),
        ]

    def _repr_html_(self) -> str:
        return card(
            "Certificate",
            self.rows(),
            verdict="the claim holds" if self.holds else "the claim does not hold",
            good=self.holds,
            lists=[("Also looked at", self.observed), ("Notes", self.notes)],
        )


def certify(mechanism: Mechanism, *, progress: bool = False, reuse: bool = False) -> Certificate:
    """Compute the tight constant of a mechanism and judge its claim.

    Parameters
    ----------
    mechanism : Mechanism
        TEM and TreeTEM: exact over all pairs, for any vocabulary. Another closed form: exact over all triples up to 1,500
        words, a lower bound over the pairs of an adversarial search beyond. Without a closed form: a lower bound from draws
        at 99.9 % confidence.
    progress : bool
        As in :meth:`Index.build`.
    reuse : bool
        Return a certificate saved with the index, if one is bound to exactly this mechanism. It says when it was computed,
        and nothing of it is checked again.

    Returns
    -------
    Certificate
        Also saved with the index, where the index has a folder that can be written.

    Raises
    ------
    MechanismError
        If the object is no mechanism.
    """
    if not isinstance(mechanism, Mechanism):
        raise MechanismError(
            f"certify needs a mechanism such as textpriv.TEM(index, epsilon=...); got {type(mechanism).__name__}."
        )
    index = mechanism.index
    binding = {"kind": "certificate", "version": 3, **mechanism.binding()}
    record = index.find_record(binding) if reuse else None
    if record is not None:
        saved = Certificate.from_dict(record)
        note = f"This certificate was read from the index; it was computed on {saved.computed}, and not again"
        return replace(saved, notes=(*saved.notes, note))
    started = time.perf_counter()
    law = mechanism.exponential_law()
    found = (
        _closed(mechanism, *law, progress) if law is not None and _agrees(mechanism, *law) else None
    )
    found = found or _own(mechanism)
    if found is None and mechanism.has_law:
        found = _by_law(mechanism)
    found = found or _by_samples(mechanism)
    certificate = _judge(mechanism, found, binding, time.perf_counter() - started)
    index.keep_record(binding, certificate.to_dict())
    return certificate


@dataclass(frozen=True)
class _Found:
    constant: float
    pair: tuple[int, int]
    pairs: int
    exact: bool
    method: str
    confidence: float | None = None
    notes: tuple[str, ...] = ()


def _judge(
    mechanism: Mechanism, found: _Found, binding: dict[str, Any], seconds: float
) -> Certificate:
    from textpriv import __version__

    index = mechanism.index
    first, second = found.pair
    observations = (_observe_draws(mechanism), _observe_lists(index))
    refuted = tuple(sentence for passed, sentence in observations if not passed)
    context = (_IN_CONTEXT,) if mechanism.reads_context else ()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Certificate(
        mechanism=repr(mechanism),
        epsilon=mechanism.epsilon,
        rho=found.constant,
        holds=found.constant <= mechanism.epsilon * (1 + _ROUNDING) and not refuted,
        exact=found.exact and not mechanism.reads_context,
        worst_pair=(index.vocabulary.words[first], index.vocabulary.words[second]),
        distance=index.distance(first, second),
        pairs=found.pairs,
        method=found.method,
        confidence=found.confidence,
        binding=binding,
        seconds=seconds,
        computed=f"{now} by textpriv {__version__}",
        notes=(*found.notes, *refuted, *context, *mechanism.caveats()),
        observed=tuple(sentence for passed, sentence in observations if passed and sentence),
    )


def _observe_draws(mechanism: Mechanism) -> tuple[bool, str]:
    """Draw some words, and an unknown one, and say whether they fit their output distribution."""
    if not mechanism.has_law:
        return (
            True,
            "Draws were compared with no output distribution, since there is no closed form",
        )
    size = len(mechanism.index)
    count = max(3, min(_DRAWN, _ENTRIES // (10 * size)))
    chosen = np.unique(np.linspace(0, size - 1, count).astype(int)).tolist()
    streams = KeyedStreams(seed=9)
    least = 1.0
    for word in (*chosen, UNKNOWN):
        law = np.exp(mechanism.log_prob(word))
        drawn = mechanism.sample_alone(word, _DRAWS, streams.stream(word))
        counts = np.bincount(drawn, minlength=size)
        if np.isnan(law).any() or (counts[law == 0] > 0).any():
            least = 0.0
            break
        least = min(least, goodness_of_fit(counts, law))
    if least > LEVEL:
        return True, (
            f"{_DRAWS:,} draws each of {len(chosen)} words and of an unknown one fit their laws (least p-value {least:.2g})"
        )
    return False, "The sampler does not draw from the stated law: the draws of a word do not fit it"


def _observe_lists(index: Index) -> tuple[bool, str]:
    """Compare some nearest lists with distances by whole differences of the points."""
    if isinstance(index, Tree):
        return True, ""
    size = len(index)
    count = max(1, min(_LISTS, _ENTRIES // size))
    chosen = np.unique(np.linspace(0, size - 1, count).astype(int))
    for word in chosen.tolist():
        apart = np.abs(index.points.astype(np.int64) - index.points[word])
        steps = (apart if index.space == "manhattan" else np.square(apart)).sum(axis=1)
        ids, listed = index.neighbour_ids[word], index.neighbour_steps[word]
        rest = np.delete(steps, ids)
        nearest = (
            ids[0] == word and (np.diff(listed) >= 0).all() and len(set(ids.tolist())) == index.k
        )
        if not (nearest and (steps[ids] == listed).all() and (rest >= listed[-1]).all()):
            return False, (
                f"The index is wrong: the nearest list of word number {word} is not that of its point. Build the index anew"
            )
    return (
        True,
        f"The nearest lists of {len(chosen)} words agree with distances by whole differences",
    )


def _agrees(mechanism: Mechanism, weights: NDArray[np.float64], rate: float, gamma: float) -> bool:
    """Whether the mechanism's own log_prob is the closed form: a subclass may have changed it.

    All words of a small vocabulary are compared, and a fixed sample of a large one.
    """
    size = len(mechanism.index)
    sample = size if size <= _EXHAUSTIVE else 16
    for word in np.unique(np.linspace(0, size - 1, sample).astype(int)):
        apart = mechanism.index.distances_of(np.array([word]))[0]
        score = np.log(weights) - rate * np.minimum(apart, gamma)
        closed = score - np.logaddexp.reduce(score)
        own = mechanism.log_prob(int(word))
        if own.shape != closed.shape or not np.abs(own - closed).max() <= _AGREEMENT:
            return False
    return True


def _closed(
    mechanism: Mechanism,
    weights: NDArray[np.float64],
    rate: float,
    gamma: float,
    progress: bool,
) -> _Found:
    """Compute the constant of an exponential mechanism over all pairs."""
    index, size = mechanism.index, len(mechanism.index)
    with progress_bar("normalisers", progress) as report:
        log_z = log_normalisers(index, weights, rate, gamma, report)
    with progress_bar("pairs of words", progress) as report:
        found = pair_constant(index, rate, gamma, log_z, report)
    return _Found(*found, size * (size - 1) // 2, True, "closed form over all pairs, float64")


def _own(mechanism: Mechanism) -> _Found | None:
    """Return the constant that a mechanism brings; None without one, or if its own log_prob shows another."""
    index, size, own = mechanism.index, len(mechanism.index), mechanism.closed_constant()
    if own is None:
        return None
    constant, pair = own
    first, second = (mechanism.log_prob(word) for word in pair)
    shown = float(largest_ratios(first, second[None])[0])
    tried, worst, _ = search(mechanism, laws=max(4, min(_TRIED, _ENTRIES // (8 * size))))
    agrees = abs(shown - constant * index.distance(*pair)) <= _AGREEMENT
    if not agrees or (tried - constant) * index.distance(*worst) > _AGREEMENT:
        return None
    return _Found(
        constant, pair, size * (size - 1) // 2, True, "closed form over all pairs, float64"
    )


def _by_law(mechanism: Mechanism) -> _Found:
    """Compare output distributions: all triples of a small vocabulary, pairs that an adversary would try of a large one."""
    index, size = mechanism.index, len(mechanism.index)
    if size > _EXHAUSTIVE:
        constant, pair, compared = search(mechanism)
        method = "all outputs, over the pairs of an adversarial search"
        return _Found(constant, pair, compared, False, method)
    laws = np.stack([mechanism.log_prob(word) for word in range(size)])
    best, pair = 0.0, (0, 0)
    for word in range(size):
        ratio = per_distance(
            largest_ratios(laws[word], laws), index.distances_of(np.array([word]))[0]
        )
        ratio[word] = 0.0
        other = int(ratio.argmax())
        if ratio[other] > best:
            best, pair = float(ratio[other]), (word, other)
    pairs = size * (size - 1) // 2
    return _Found(best, pair, pairs, True, "all pairs and outputs of the law, float64")


def _by_samples(mechanism: Mechanism) -> _Found:
    """Bound the constant from below by draws, the same in every run, each comparison at its share of the error."""
    index = mechanism.index
    pairs = _telling_pairs(mechanism)
    streams = KeyedStreams(seed=0)
    best, worst = 0.0, pairs[0] if pairs else (0, 0)
    counts = {
        word: np.bincount(
            mechanism.sample(np.full(_MONTE_CARLO, word, dtype=np.int32), streams.stream(word)),
            minlength=len(index),
        )
        for word in sorted({word for pair in pairs for word in pair})
    }
    for first, second in pairs:
        lean = np.subtract(*index.distances_of(np.array([first, second])))
        for pair, side in (((first, second), lean), ((second, first), -lean)):
            share = _ERROR / (2 * len(pairs))
            ratio = ratio_bound(counts[pair[0]], counts[pair[1]], side, share)
            if ratio / index.distance(*pair) > best:
                best, worst = ratio / index.distance(*pair), pair
    note = "A lower bound from samples: it can refute a claim and cannot establish one; the claim rests on its proof"
    method = f"Monte Carlo, {_MONTE_CARLO:,} draws a word"
    return _Found(best, worst, len(pairs), False, method, 1 - _ERROR, (note,))


def _telling_pairs(mechanism: Mechanism) -> list[tuple[int, int]]:
    """Return pairs of words whose claimed loss is about a nat: draws show neither much less nor much more."""
    index, size = mechanism.index, len(mechanism.index)
    nearest = np.argsort(index.neighbour_steps[:, min(1, index.k - 1)], kind="stable")
    pairs: dict[tuple[int, int], None] = {}
    for word in nearest[np.unique(np.linspace(0, size - 1, 6).astype(int))].tolist():
        apart = index.distances_of(np.array([word]))[0]
        apart[apart == 0] = np.inf
        for loss in (0.7, 1.5, 3.0):
            other = int(np.abs(apart - loss / mechanism.epsilon).argmin())
            if np.isfinite(apart[other]):
                pairs[min(word, other), max(word, other)] = None
    return list(pairs)
