"""Certificates: the exact constant of a mechanism on its own vocabulary, computed, saved and checked.

A certificate answers one question: what is the largest log-ratio per unit of distance that this mechanism, with these
settings, on these vectors, can show for any pair of words? For a law in closed form the answer is exact and covers all
pairs; for others it is a lower bound and says so. The mathematics of a single law is in ``textpriv.mechanisms``; here
it is put together, judged against the claim, and bound to what it was computed for.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_least, at_most
from textpriv.errors import MechanismError
from textpriv.guarantees.pair_search import allowance, search
from textpriv.guarantees.significance import LEVEL, goodness_of_fit, largest_ratios, ratio_bound
from textpriv.html_card import card
from textpriv.index.index import Index
from textpriv.index.progress import reporter
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.mechanisms.calibration.privacy_constant import (
    Constant,
    inputs,
    rounding_charged,
    tight_constants,
)
from textpriv.metrics import GRAPH, INTERPRETED, TREE, pairwise_distances
from textpriv.randomness import KeyedStreams

__all__ = ["Certificate", "certify"]

# A vocabulary of so many words is compared over all triples of input, input and output.
_EXHAUSTIVE = 1500
_AGREEMENT = 1e-6  # nats by which a closed form may differ from the mechanism's own log_prob
_NEAREST = 16  # words with which one that shares a law is compared
_TRIED = 32  # laws by which a closed form of a mechanism's own is tried
_ROUNDING = 1e-9  # relative slack for the arithmetic of the certificate itself
_DRAWN, _DRAWS = 8, 4_000  # words drawn against their law, and draws of each
_LISTS = 32  # nearest lists compared with distances computed anew
_ENTRIES = 1 << 24  # and as many distances at most

Report = bool | Callable[[str, int, int], None]


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
    rho_with_rounding : float
        The constant with the relative rounding of every distance charged; what else rounding may add is the statement's
        ``numerical_slack`` (mechanisms.md TEM-11).
    method : str
        How ``rho`` was found.
    confidence : float or None
        For a bound from samples: the probability with which it is a lower bound.
    binding : dict
        What the certificate is bound to: checksums of vocabulary, metric and prior, and the settings.
    seconds : float
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
    rho_with_rounding: float
    method: str
    confidence: float | None
    binding: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON types; an infinite constant becomes None."""
        content = asdict(self)
        for name in ("rho", "rho_with_rounding"):
            if not math.isfinite(content[name]):
                content[name] = None
        content["worst_pair"] = list(self.worst_pair)
        content["notes"] = list(self.notes)
        content["observed"] = list(self.observed)
        return content

    def to_json(self) -> str:
        """Return the certificate as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Certificate:
        """Return the certificate that :meth:`to_dict` wrote."""
        first, second = content["worst_pair"]
        infinite = {
            name: math.inf for name in ("rho", "rho_with_rounding") if content[name] is None
        }
        given = {**content, **infinite, "worst_pair": (first, second)}
        sentences = {name: tuple(content.get(name, ())) for name in ("notes", "observed")}
        return cls(**{**given, **sentences})

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
            ("with rounding", self.in_words(self.rho_with_rounding)),
            ("worst pair", f"{first} and {second}, at distance {self.distance:.6g}"),
            ("compared", f"{self.pairs:,} pairs of words"),
            ("method", self.method),
            ("seconds", f"{self.seconds:.1f}"),
        ]

    def _repr_html_(self) -> str:
        return card(
            "Certificate",
            self.rows(),
            verdict="the claim holds" if self.holds else "the claim does not hold",
            good=self.holds,
            lists=[("Also looked at", self.observed), ("Notes", self.notes)],
        )


def certify(mechanism: Mechanism, *, progress: Report = False, reuse: bool = False) -> Certificate:
    """Compute the tight constant of a mechanism and judge its claim.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed exponential law (TEM) or a closed constant of its own: exact over all pairs, whatever the vocabulary.
        With a closed law of another kind: exact over all triples up to 1,500 words, a lower bound over neighbouring pairs
        beyond. Without a closed law:
        a lower bound from samples at 99.9 % confidence.
    progress : bool or callable
        As in :meth:`Index.build`.
    reuse : bool
        Return a certificate saved with the index, if one is bound to exactly this mechanism. One over a metric of the
        user's own is always computed anew, since such a metric is recorded by its name alone.

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
    # Certificates of the first version had looked at no draw and at no list.
    binding = {"kind": "certificate", "version": 2, **mechanism.binding()}
    if reuse and index.metric.kind != INTERPRETED:
        record = index.find_record(binding)
        if record is not None:
            return Certificate.from_dict(record)
    started = time.perf_counter()
    law = mechanism.exponential_law()
    trustworthy = index.exact and index.metric.kind != INTERPRETED
    own = _own(mechanism, progress) if trustworthy else None
    if law is not None and trustworthy and _agrees(mechanism, *law):
        result = _closed(mechanism, *law, progress)
    elif own is not None:
        result = own
    elif mechanism.has_law:
        result = _by_law(mechanism, progress)
    else:
        result = _by_samples(mechanism, progress)
    certificate = _judge(mechanism, result, binding, time.perf_counter() - started)
    index.keep_record(binding, certificate.to_dict())
    return certificate


@dataclass(frozen=True)
class _Found:
    constant: Constant
    rounded: float
    pairs: int
    exact: bool
    method: str
    confidence: float | None = None
    notes: tuple[str, ...] = ()


def _judge(
    mechanism: Mechanism, found: _Found, binding: dict[str, Any], seconds: float
) -> Certificate:
    index = mechanism.index
    first, second = found.constant.pair
    words = index.vocabulary.words
    holds = found.constant.value <= mechanism.epsilon * (1 + _ROUNDING)
    notes = found.notes
    if not index.exact and mechanism.needs_exact_lists:
        holds = False
        notes += (
            f"The nearest lists are approximate (recall {index.recall:.4f}), and the proof needs exact ones: build the "
            "index with backend='exact'",
        )
    observations = (_observe_draws(mechanism), _observe_lists(index))
    observed = tuple(sentence for passed, sentence in observations if passed and sentence)
    refuted = tuple(sentence for passed, sentence in observations if not passed)
    holds, notes = holds and not refuted, notes + refuted + mechanism.caveats()
    if index.metric.kind == INTERPRETED and not found.exact:
        notes += (
            "The metric is the user's own; it was tested on a sample and is otherwise taken on trust",
        )
    return Certificate(
        mechanism=repr(mechanism),
        epsilon=mechanism.epsilon,
        rho=found.constant.value,
        holds=holds,
        exact=found.exact,
        worst_pair=(words[first], words[second]),
        distance=index.distance(first, second),
        pairs=found.pairs,
        rho_with_rounding=found.rounded,
        method=found.method,
        confidence=found.confidence,
        binding=binding,
        seconds=seconds,
        notes=notes,
        observed=observed,
    )


def _observe_draws(mechanism: Mechanism) -> tuple[bool, str]:
    """Draw some words, and an unknown one, against their law: whether they fit it, and the sentence that says so."""
    words = inputs(mechanism.index)
    count = _DRAWN
    if mechanism.over_trees:  # whose certificate takes no longer than this look at long laws
        count = max(3, min(_DRAWN, _ENTRIES // (10 * len(mechanism.index))))
    chosen = words[np.unique(np.linspace(0, len(words) - 1, count).astype(int))].tolist()
    streams = KeyedStreams(seed=9)
    least = 1.0
    try:
        for word in (*chosen, UNKNOWN):
            law = np.exp(mechanism.log_prob(word))
            ids = np.full(_DRAWS, word, dtype=np.int32)
            counts = np.bincount(mechanism.sample(ids, streams.stream(word)), minlength=len(law))
            if np.isnan(law).any() or (counts[law == 0] > 0).any():
                least = 0.0
                break
            least = min(least, goodness_of_fit(counts, law))
    except MechanismError:
        return True, "Without a law there was none to compare its draws with"
    if least > LEVEL:
        return True, (
            f"{_DRAWS:,} draws each of {len(chosen)} words and of an unknown one fit their laws (least p-value {least:.2g})"
        )
    return False, "The sampler does not draw from the stated law: the draws of a word do not fit it"


def _observe_lists(index: Index) -> tuple[bool, str]:
    """Compare some exact lists with distances computed anew from the given vectors."""
    if not index.exact or index.metric.kind == TREE:
        return True, ""
    words, size = inputs(index), len(index)
    count = max(1, min(_LISTS, _ENTRIES // size))
    chosen = words[np.unique(np.linspace(0, len(words) - 1, count).astype(int))]
    apart = index.distances_of(chosen)
    ids, listed = index.neighbours.ids[chosen], index.neighbours.distances[chosen]
    error = 4 * index.tau
    wrong = np.abs(np.take_along_axis(apart, ids, axis=1) - listed).max(axis=1) > error
    # Whatever a list leaves out is no nearer than its last entry.
    np.put_along_axis(apart, ids, np.inf, axis=1)
    wrong |= apart.min(axis=1) < listed[:, -1] - error
    if wrong.any():
        return False, (
            f"The index is wrong: the nearest list of word number {int(chosen[wrong.argmax()])} is not that of its vector. "
            "Build the index anew"
        )
    return True, f"The nearest lists of {len(chosen)} words agree with distances computed anew"


def _agrees(mechanism: Mechanism, weights: NDArray[np.float64], rate: float, gamma: float) -> bool:
    """Whether the mechanism's own law is the closed form: a subclass may have changed it.

    All words of a small vocabulary are compared, and a fixed sample of a large one.
    """
    size = len(mechanism.index)
    sample = size if size <= _EXHAUSTIVE else 16
    for word in np.unique(np.linspace(0, size - 1, sample).astype(int)):
        score = np.log(weights) - rate * np.minimum(
            mechanism.index.distances_of(np.array([word]))[0], gamma
        )
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
    progress: Report,
) -> _Found:
    index = mechanism.index
    with reporter(progress) as report:
        log_z = mechanism.log_normalisers(report("normalisers"))[None]
        (constant,) = tight_constants(
            index, [rate], [gamma], log_z, progress=report("pairs of words")
        )
    return _over_all_pairs(mechanism, constant, "closed form over all pairs, float64")


def _over_all_pairs(mechanism: Mechanism, constant: Constant, method: str) -> _Found:
    """A constant over all pairs of words that have laws of their own, and of words that use another one's with some."""
    index = mechanism.index
    words = len(inputs(index))
    shared = _of_shared_laws(mechanism)
    if len(shared):
        constant = max(constant, *shared, key=lambda each: each.value)
        method += "; words that share the law of another are compared by their own vectors with those nearest to them"
    rounded = rounding_charged(index, constant).value
    pairs = words * (words - 1) // 2 + len(shared)
    return _Found(constant, rounded, pairs, not shared, method)


def _of_shared_laws(mechanism: Mechanism) -> list[Constant]:
    """Words whose law is that of a word farther away than rounding explains, with those nearest to their own vectors."""
    index = mechanism.index
    everything, free = np.arange(len(index)), allowance(mechanism)
    constants = []
    for word in index.wide[:_EXHAUSTIVE].tolist():
        law, apart = mechanism.log_prob(word), index.distances_between(word, everything)
        apart[word] = np.inf
        for other in np.argsort(apart, kind="stable")[:_NEAREST].tolist():
            loss = float(largest_ratios(law, mechanism.log_prob(other)[None])[0])
            ratio = max(loss - free, 0.0) / max(float(apart[other]), 1e-300)
            constants.append(Constant(ratio, (word, other)))
    return constants


def _own(mechanism: Mechanism, progress: Report) -> _Found | None:
    """The closed form that a mechanism has of its own; None without one, or if its law shows more or its pair less."""
    index = mechanism.index
    with reporter(progress) as report:
        constant = mechanism.closed_constant(report("pairs of words"))
    if constant is None:
        return None
    first, second = (mechanism.log_prob(word) for word in constant.pair)
    shown = float(largest_ratios(first, second[None])[0])
    apart = index.distance(*constant.pair)
    result = _over_all_pairs(mechanism, constant, "closed form over all pairs, float64")
    # A law of a large vocabulary is long, and all that are tried are compared with each other.
    searched, _ = search(mechanism, laws=max(4, min(_TRIED, _ENTRIES // (8 * len(index)))))
    farthest = index.distance(*searched.pair)
    if (
        not abs(shown - constant.value * apart) <= _AGREEMENT
        or searched.value * farthest > result.constant.value * farthest + _AGREEMENT
    ):
        return None
    return result


def _by_law(mechanism: Mechanism, progress: Report) -> _Found:
    """Compare laws output by output: all triples of a small vocabulary, the pairs an adversary would try of a large one."""
    index = mechanism.index
    words = np.arange(len(index))
    if len(words) > _EXHAUSTIVE:
        with reporter(progress) as report:
            best, compared = search(mechanism, progress=report("laws"))
        method = "all outputs, over the pairs of an adversarial search"
        return _Found(best, best.value, compared, False, method)
    free, metric = allowance(mechanism), index.metric
    given = None
    if metric.kind not in (GRAPH, INTERPRETED, TREE):
        given = index.coordinates
    best = Constant(0.0, (0, 0))
    with reporter(progress) as report:
        tell = report("laws")
        laws = np.stack([mechanism.log_prob(int(word)) for word in words])
        for row, word in enumerate(words):
            # By the words' own vectors, not by those of the words whose laws they use.
            if given is None:
                apart = index.distances_between(int(word), words)
            else:
                apart = pairwise_distances(index.metric.kind, given[word : word + 1], given)[0]
            lost = np.maximum(largest_ratios(laws[row], laws) - free, 0.0)
            ratio = lost / np.maximum(apart, 1e-300)
            ratio[row] = 0.0
            worst = int(ratio.argmax())
            if ratio[worst] > best.value:
                best = Constant(float(ratio[worst]), (int(word), int(words[worst])))
            if tell:
                tell(row + 1, len(words))
    pairs = len(words) * (len(words) - 1) // 2
    rounded = rounding_charged(index, best).value
    return _Found(best, rounded, pairs, True, "all pairs and outputs of the law, float64")


def _by_samples(mechanism: Mechanism, progress: Report) -> _Found:
    """Lower bound from draws: every comparison at its share of 0.1 % of error, the same draws in every run."""
    index = mechanism.index
    pairs = _telling_pairs(mechanism)
    draws = 10_000 if index.coordinates.size <= 2_000_000 else 4_000
    error = 1e-3
    streams = KeyedStreams(seed=0)
    counts: dict[int, NDArray[np.int64]] = {}
    best = Constant(0.0, pairs[0] if pairs else (0, 0))
    with reporter(progress) as report:
        tell = report("draws")
        for done, (first, second) in enumerate(pairs):
            for word in (first, second):
                if word not in counts:
                    ids = np.full(draws, word, dtype=np.int32)
                    out = mechanism.sample(ids, streams.stream(word))
                    counts[word] = np.bincount(out, minlength=len(index))
            lean = np.subtract(*index.distances_of(np.array([first, second])))
            apart = index.distance(first, second)
            for pair, side in (((first, second), lean), ((second, first), -lean)):
                ratio = ratio_bound(
                    counts[pair[0]], counts[pair[1]], side, error / (2 * len(pairs))
                )
                if ratio / apart > best.value:
                    best = Constant(ratio / apart, pair)
            if tell:
                tell(done + 1, len(pairs))
    return _Found(
        best,
        best.value,
        len(pairs),
        False,
        f"Monte Carlo, {draws:,} draws a word",
        confidence=1 - error,
        notes=(
            "A lower bound from samples: it can refute a claim and cannot establish one; the claim rests on its proof",
        ),
    )


def _telling_pairs(mechanism: Mechanism) -> list[tuple[int, int]]:
    """Pairs of words whose claimed loss is about a nat.

    Closer ones differ too little to be told apart by draws; outputs that distinguish farther ones are too rare to be seen.
    """
    index = mechanism.index
    words = inputs(index)
    radius = index.neighbours.distances[words, min(1, index.k - 1)]
    order = words[np.argsort(radius, kind="stable")]
    chosen = order[np.unique(np.linspace(0, len(order) - 1, 6).astype(int))]
    pairs: dict[tuple[int, int], None] = {}
    for word in chosen.tolist():
        apart = index.distances_of(np.array([word]))[0][words]
        apart[words == word] = np.inf
        for loss in (0.7, 1.5, 3.0):
            nearest = int(np.abs(apart - loss / mechanism.epsilon).argmin())
            if np.isfinite(apart[nearest]):
                other = int(words[nearest])
                pairs[min(word, other), max(word, other)] = None
    return list(pairs)
