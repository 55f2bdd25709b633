"""Audits of the mechanisms of typed spans, by enumeration and by draws.

A mechanism brings small settings and surfaces (:meth:`~textpriv.spans.mechanisms.base.SpanMechanism.trials`). Passing is no
proof; failing is a refutation, with a witness. Words are attacked in ``textpriv.guarantees.audit``.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.guarantees.audit import SLACK, AuditReport, Check, Verdict
from textpriv.guarantees.significance import (
    LEVEL,
    goodness_of_fit,
    largest_ratios,
    least_of,
    ratio_bound,
    two_samples,
)
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.base import Scopes, SpanMechanism, registry
from textpriv.statement import at_least

__all__ = ["audit_span_mechanism"]

_DRAWS = 1_000  # documents of each kind; a third of it for a mechanism that is kept within a scope
_BUCKETS = 64
_UNSEEN = (
    "what depends on other settings and surfaces than the mechanism's own trials",
    "what running time, memory, files or logs show",
)


def audit_span_mechanism(mechanism: str | type[SpanMechanism]) -> AuditReport:
    """Attack a mechanism, by its registered name such as "number" or its class, on the small settings that it brings.

    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    made = registry.get(mechanism) if isinstance(mechanism, str) else mechanism
    trials = made.trials()
    checks = [
        Check(claim, repr(tried), *verdict)
        for tried, surfaces in trials
        for claim, verdict in _attack(tried, surfaces)
    ]
    name = mechanism if isinstance(mechanism, str) else mechanism.__name__
    epsilon = max((tried.claim().epsilon for tried, _ in trials), default=0.0)
    return AuditReport(name, epsilon, tuple(checks), _UNSEEN)


def _attack(method: SpanMechanism, surfaces: Sequence[str]) -> Iterator[tuple[str, Verdict]]:
    values = list(dict.fromkeys(map(method.parse, surfaces)))
    unread = [surface for surface in surfaces if method.parse(surface) is None]
    yield "read", (not unread, f"cannot be read: {unread}")
    if unread:
        return
    yield "statement", _statement(method, values)
    yield "settings", _rebuilt(method, values)
    documents = _DRAWS if method.scope is None else _DRAWS // 3
    try:
        rows = {value: method.log_prob(value) for value in values}
    except MechanismError:
        rows = {}
    if rows:
        yield "distribution", _sums(method, rows)
        yield "ratio", _ratios(method, rows)
        yield "sampler", _sampler(method, rows, documents)
    yield "documents", _documents(method, values, documents)
    if method.scope is not None:
        yield "kept", _kept(method, values)
        yield "persons", _persons(method, values[0], documents)


def _draw(
    method: SpanMechanism, values: Sequence[Any], documents: int, label: str
) -> list[tuple[str, ...]]:
    """Draw many documents of the same values, each of another person, and return their surfaces."""
    keys = KeyedStreams(seed=5)
    if method.scope is None:
        drawn = method.draw(list(values) * documents, keys.stream(label))
        return list(zip(*[iter(drawn)] * len(values), strict=True))
    scopes = (Scopes(keys, name, name) for name in (f"{label} {i}" for i in range(documents)))
    return [tuple(method.draw(values, Stream(bytes(32)), each)) for each in scopes]


def _pairs(method: SpanMechanism, values: Sequence[Any]) -> Iterator[tuple[Any, Any, float]]:
    """Yield ordered pairs of values between which a loss is stated, with it."""
    for first, second in itertools.permutations(values, 2):
        if (loss := method.loss(first, second)) < math.inf:
            yield first, second, loss


def _statement(method: SpanMechanism, values: Sequence[Any]) -> Verdict:
    claim = method.claim()
    wrong = [] if claim.proved else ["it states no proof"]
    if not 0 <= claim.epsilon < math.inf:
        wrong.append(f"it states epsilon {claim.epsilon}")
    for first, second, loss in _pairs(method, values):
        if loss > claim.largest * (1 + SLACK):
            wrong.append(f"{first} against {second} loses {loss:g}, above {claim.largest:g}")
        if method.structure(first) != method.structure(second):
            wrong.append(f"{first} and {second} are of two structures and have a loss")
    return not wrong, "; ".join(wrong) or claim.mechanism


def _rebuilt(method: SpanMechanism, values: Sequence[Any]) -> Verdict:
    """Make the mechanism again from its settings: it must draw the same under a key."""
    again = type(method)(**method.settings())
    same = again.fingerprint() == method.fingerprint()
    same &= _draw(method, values, 5, "again") == _draw(again, values, 5, "again")
    return same, "made again, draws the same" if same else "draws otherwise"


def _sums(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]]) -> Verdict:
    for value, row in rows.items():
        outputs, total = method.outputs(method.structure(value)), math.fsum(np.exp(row).tolist())
        if row.shape != (len(outputs),) or not abs(total - 1) < 1e-9:
            return False, f"{value}: {len(outputs)} outputs, {row.shape} that sum to {total!r}"
    return True, f"{len(rows)} distributions sum to 1"


def _ratios(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]]) -> Verdict:
    found = [
        (float(largest_ratios(rows[first], rows[second])) - loss, loss, f"{first} against {second}")
        for first, second, loss in _pairs(method, list(rows))
    ]
    excess, loss, pair = max(found, default=(0.0, 0.0, "no pairs"))
    return excess <= SLACK, f"{pair}: {loss + excess:.6g}, claimed {loss:.6g}"


def _sampler(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]], draws: int) -> Verdict:
    found = {}
    for value, row in rows.items():
        stated: dict[str, float] = defaultdict(float)
        outputs = method.outputs(method.structure(value))
        for surface, chance in zip(outputs, np.exp(row).tolist(), strict=True):
            stated[surface] += chance
        drawn = Counter(surface for (surface,) in _draw(method, [value], draws, "sampler"))
        every = list({**stated, **drawn})
        counts, chances = (np.array([of[each] for each in every]) for of in (drawn, stated))
        found[str(value)] = goodness_of_fit(counts, chances)
    return least_of(found)


# What is counted of a document's surfaces, in buckets that are fixed beforehand.
_VIEWS: dict[str, Callable[[tuple[str, ...]], object]] = {
    "surfaces": lambda surfaces: surfaces,
    "lengths": lambda surfaces: tuple(map(len, surfaces)),
    "first characters": lambda surfaces: tuple(each[:1] for each in surfaces),
    "first words": lambda surfaces: tuple(each.split()[:1] for each in surfaces),
    "last characters": lambda surfaces: tuple(each[-1:] for each in surfaces),
    "last words": lambda surfaces: tuple(each.split()[-1:] for each in surfaces),
    "equal surfaces": lambda surfaces: [surfaces.index(each) for each in surfaces],
    "cases": lambda surfaces: [(each.isupper(), each.islower()) for each in surfaces],
}


def _documents(method: SpanMechanism, values: Sequence[Any], draws: int) -> Verdict:
    """Distinguish documents of one and of two spans by what their surfaces show, against the stated joint loss."""
    documents = [(value,) for value in values] + list(itertools.product(values[:3], repeat=2))
    counted = []
    for number, document in enumerate(documents):
        tables = np.zeros((len(_VIEWS), _BUCKETS), dtype=np.int64)
        drawn = Counter(_draw(method, document, draws, f"documents {number}"))
        for row, view in enumerate(_VIEWS.values()):
            for surfaces, count in drawn.items():
                tables[row, zlib.crc32(repr(view(surfaces)).encode()) % _BUCKETS] += count
        counted.append((document, tables))
    lean = np.arange(_BUCKETS, dtype=np.float64)
    found = []
    for (one, first), (other, second) in itertools.permutations(counted, 2):
        if (claimed := method.joint_loss(one, other)) < math.inf:
            for row, name in enumerate(_VIEWS):
                excess = ratio_bound(first[row], second[row], lean, LEVEL) - claimed
                found.append((excess, claimed, f"{one} against {other} by {name}"))
    excess, claimed, witness = max(found, default=(0.0, 0.0, "no two documents are adjacent"))
    shown = at_least(claimed + excess, 4)
    return excess <= 0, f"{witness}: loss of {shown} or more, claimed {claimed:.4g}"


def _kept(method: SpanMechanism, values: Sequence[Any]) -> Verdict:
    """Draw the values in another document of the person, order and batch: what is kept within a scope must be the same."""
    keys, other = KeyedStreams(seed=6), "other" if method.scope == "person" else "one"
    first = method.draw(values, Stream(bytes(32)), Scopes(keys, "one", "ann"))
    again = Scopes(keys, other, "ann")
    turned = method.draw(values[::-1], Stream(bytes([1]) * 32), again)
    alone = method.draw(values[-1:], Stream(bytes([2]) * 32), again)
    same = first == turned[::-1] and first[-1:] == alone
    return same, "the same again" if same else f"{first} became {turned[::-1]}"


def _persons(method: SpanMechanism, value: Any, draws: int) -> Verdict:
    """Compare pairs of neighbouring scopes with pairs of strangers: two scopes are independent."""
    side = math.isqrt(_BUCKETS)
    drawn = [surface for (surface,) in _draw(method, [value], 2 * draws, "persons")]
    cells = np.array([zlib.crc32(each.encode()) % side for each in drawn])
    first, second = cells[::2] * side, cells[1::2]
    together = np.bincount(first + second, minlength=_BUCKETS)
    strangers = np.bincount(first + np.roll(second, 1), minlength=_BUCKETS)
    return least_of({"neighbouring scopes": two_samples(together, strangers)})
