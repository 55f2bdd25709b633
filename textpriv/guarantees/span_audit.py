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
from textpriv.guarantees.audit import AuditReport, Check
from textpriv.guarantees.significance import (
    LEVEL,
    goodness_of_fit,
    largest_ratios,
    ratio_bound,
    two_samples,
)
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.base import Scopes, SpanMechanism, registry
from textpriv.statement import at_least

__all__ = ["audit_span_mechanism"]

_SLACK = 1e-9  # nats for the arithmetic of the kit itself
_DRAWS = 1_000  # documents of each kind; a third of it for a mechanism that is kept within a scope
_BUCKETS = 64
_UNSEEN = (
    "what depends on other settings and surfaces than the mechanism's own trials",
    "what running time, memory, files or logs show",
)

_Verdict = tuple[str, bool, str]  # which claim, whether it passed, and what was found


def audit_span_mechanism(mechanism: str | type[SpanMechanism]) -> AuditReport:
    """Attack a mechanism, by its registered name such as "number" or its class, on the small settings that it brings.

    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    made = registry.get(mechanism) if isinstance(mechanism, str) else mechanism
    trials = made.trials()
    checks = [
        Check(name, repr(tried), passed, detail)
        for tried, surfaces in trials
        for name, passed, detail in _attack(tried, surfaces)
    ]
    name = mechanism if isinstance(mechanism, str) else mechanism.__name__
    epsilon = max((tried.claim().epsilon for tried, _ in trials), default=0.0)
    return AuditReport(name, epsilon, tuple(checks), _UNSEEN)


def _attack(method: SpanMechanism, surfaces: Sequence[str]) -> Iterator[_Verdict]:
    values = list(dict.fromkeys(map(method.parse, surfaces)))
    unread = [surface for surface in surfaces if method.parse(surface) is None]
    yield "read", not unread, f"cannot be read: {unread}" if unread else f"{surfaces}"
    if unread:
        return
    yield _statement(method, values)
    yield _rebuilt(method, values)
    try:
        rows = {value: method.log_prob(value) for value in values}
    except MechanismError:
        rows = {}
    documents = _DRAWS if method.scope is None else _DRAWS // 3
    if rows:
        yield _sums(method, rows)
        yield _ratios(method, rows)
        yield _sampler(method, rows, documents)
    yield _documents(method, values, documents)
    if method.scope is not None:
        yield _kept(method, values)
        yield _persons(method, values[0], documents)


def _draw(
    method: SpanMechanism, values: Sequence[Any], documents: int, label: str
) -> list[tuple[str, ...]]:
    """Draw many documents of the same values, each of another person, and return their surfaces."""
    streams = KeyedStreams(seed=5)
    if method.scope is None:
        drawn = method.draw(list(values) * documents, streams.stream(label))
        return list(zip(*[iter(drawn)] * len(values), strict=True))
    return [
        tuple(
            method.draw(values, Stream(bytes(32)), Scopes(streams, f"{label} {i}", f"{label} {i}"))
        )
        for i in range(documents)
    ]


def _pairs(method: SpanMechanism, values: Sequence[Any]) -> Iterator[tuple[Any, Any, float]]:
    """Yield ordered pairs of values between which a loss is stated, with it."""
    for first, second in itertools.permutations(values, 2):
        if (loss := method.loss(first, second)) < math.inf:
            yield first, second, loss


def _statement(method: SpanMechanism, values: Sequence[Any]) -> _Verdict:
    claim = method.claim()
    wrong = [] if claim.proved else ["it states no proof"]
    if not 0 <= claim.epsilon < math.inf:
        wrong.append(f"it states epsilon {claim.epsilon}")
    for first, second, loss in _pairs(method, values):
        if loss > claim.largest * (1 + _SLACK):
            wrong.append(f"{first} against {second} loses {loss:g}, above {claim.largest:g}")
        if method.structure(first) != method.structure(second):
            wrong.append(f"{first} and {second} are of two structures and have a loss")
    return "statement", not wrong, "; ".join(wrong) or claim.mechanism


def _rebuilt(method: SpanMechanism, values: Sequence[Any]) -> _Verdict:
    """Make the mechanism again from its settings: it must draw the same under a key."""
    again = type(method)(**method.settings())
    same = again.fingerprint() == method.fingerprint()
    same &= _draw(method, values, 5, "again") == _draw(again, values, 5, "again")
    return "settings", same, "made again, draws the same" if same else "draws otherwise"


def _sums(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]]) -> _Verdict:
    wrong = []
    for value, row in rows.items():
        outputs = method.outputs(method.structure(value))
        total = math.fsum(np.exp(row).tolist())
        if row.shape != (len(outputs),) or not abs(total - 1) < 1e-9:
            wrong.append(
                f"{value}: {len(outputs)} outputs, distribution {row.shape}, sums to {total!r}"
            )
    return "distribution", not wrong, "; ".join(wrong) or f"{len(rows)} distributions sum to 1"


def _ratios(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]]) -> _Verdict:
    found = [
        (float(largest_ratios(rows[first], rows[second])) - loss, loss, f"{first} against {second}")
        for first, second, loss in _pairs(method, list(rows))
    ]
    excess, loss, pair = max(found, default=(0.0, 0.0, "no pairs"))
    return "ratio", excess <= _SLACK, f"{pair}: {loss + excess:.6g}, claimed {loss:.6g}"


def _sampler(method: SpanMechanism, rows: dict[Any, NDArray[np.float64]], draws: int) -> _Verdict:
    found = []
    for value, row in rows.items():
        stated: dict[str, float] = defaultdict(float)
        for surface, chance in zip(
            method.outputs(method.structure(value)), np.exp(row), strict=True
        ):
            stated[surface] += float(chance)
        drawn = Counter(surface for (surface,) in _draw(method, [value], draws, "sampler"))
        every = list({**stated, **drawn})
        counts, chances = (np.array([of[each] for each in every]) for of in (drawn, stated))
        found.append((goodness_of_fit(counts, chances), str(value)))
    least, value = min(found)
    return "sampler", least > LEVEL, f"least p-value {least:.3g}, of {value}"


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


def _documents(method: SpanMechanism, values: Sequence[Any], draws: int) -> _Verdict:
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
    return "documents", excess <= 0, f"{witness}: loss of {shown} or more, claimed {claimed:.4g}"


def _kept(method: SpanMechanism, values: Sequence[Any]) -> _Verdict:
    """Draw the values in another document of the person, order and batch: what is kept within a scope must be the same."""
    streams = KeyedStreams(seed=6)
    names = ("one", "other") if method.scope == "person" else ("one", "one")
    first = method.draw(values, Stream(bytes(32)), Scopes(streams, names[0], "ann"))
    second = method.draw(values[::-1], Stream(bytes([1]) * 32), Scopes(streams, names[1], "ann"))[
        ::-1
    ]
    alone = method.draw(values[-1:], Stream(bytes([2]) * 32), Scopes(streams, names[1], "ann"))
    same = first == second and first[-1:] == alone
    return "kept", same, "the same again" if same else f"{first} became {second}"


def _persons(method: SpanMechanism, value: Any, draws: int) -> _Verdict:
    """Compare pairs of neighbouring scopes with pairs of strangers: two scopes are independent."""
    side = math.isqrt(_BUCKETS)
    drawn = [surface for (surface,) in _draw(method, [value], 2 * draws, "persons")]
    cells = np.array([zlib.crc32(each.encode()) % side for each in drawn])
    first, second = cells[::2] * side, cells[1::2]
    together = np.bincount(first + second, minlength=_BUCKETS)
    strangers = np.bincount(first + np.roll(second, 1), minlength=_BUCKETS)
    p = two_samples(together, strangers)
    return "persons", p > LEVEL, f"p-value {p:.3g}"
