"""Audits of the laws of typed spans, by enumeration and by draws.

A law brings small settings and surfaces (:meth:`textpriv.spans.laws.base.SpanLaw.trials`). Passing is no proof; failing is a
refutation, with a witness. Words are attacked in ``textpriv.guarantees.audit``.
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
from textpriv.spans.laws.base import Scopes, SpanLaw, registry
from textpriv.statement import at_least

__all__ = ["audit_span_law"]

_SLACK = 1e-9  # nats for the arithmetic of the kit itself
_DRAWS = 1_000  # documents of each kind; a third of it for a law that is kept within a scope
_BUCKETS = 64
_UNSEEN = (
    "what depends on other settings and surfaces than the law's own trials",
    "what running time, memory, files or logs show",
)

_Verdict = tuple[str, bool, str]  # which claim, whether it passed, and what was found


def audit_span_law(law: str | type[SpanLaw]) -> AuditReport:
    """Attack a law, by its registered name such as "number" or its class, on the small settings that it brings.

    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    made = registry.get(law) if isinstance(law, str) else law
    trials = made.trials()
    checks = [
        Check(name, repr(tried), passed, detail)
        for tried, surfaces in trials
        for name, passed, detail in _attack(tried, surfaces)
    ]
    name = law if isinstance(law, str) else law.__name__
    epsilon = max((tried.claim().epsilon for tried, _ in trials), default=0.0)
    return AuditReport(name, epsilon, tuple(checks), _UNSEEN)


def _attack(law: SpanLaw, surfaces: Sequence[str]) -> Iterator[_Verdict]:
    values = list(dict.fromkeys(map(law.parse, surfaces)))
    unread = [surface for surface in surfaces if law.parse(surface) is None]
    yield "read", not unread, f"cannot be read: {unread}" if unread else f"{surfaces}"
    if unread:
        return
    yield _statement(law, values)
    yield _rebuilt(law, values)
    try:
        laws = {value: law.log_prob(value) for value in values}
    except MechanismError:
        laws = {}
    documents = _DRAWS if law.scope is None else _DRAWS // 3
    if laws:
        yield _sums(law, laws)
        yield _ratios(law, laws)
        yield _sampler(law, laws, documents)
    yield _documents(law, values, documents)
    if law.scope is not None:
        yield _kept(law, values)
        yield _persons(law, values[0], documents)


def _draw(law: SpanLaw, values: Sequence[Any], documents: int, label: str) -> list[tuple[str, ...]]:
    """Draw many documents of the same values, each of another person, and return their surfaces."""
    streams = KeyedStreams(seed=5)
    if law.scope is None:
        drawn = law.draw(list(values) * documents, streams.stream(label))
        return list(zip(*[iter(drawn)] * len(values), strict=True))
    return [
        tuple(law.draw(values, Stream(bytes(32)), Scopes(streams, f"{label} {i}", f"{label} {i}")))
        for i in range(documents)
    ]


def _pairs(law: SpanLaw, values: Sequence[Any]) -> Iterator[tuple[Any, Any, float]]:
    """Yield ordered pairs of values between which a loss is stated, with it."""
    for first, second in itertools.permutations(values, 2):
        if (loss := law.loss(first, second)) < math.inf:
            yield first, second, loss


def _statement(law: SpanLaw, values: Sequence[Any]) -> _Verdict:
    claim = law.claim()
    wrong = [] if claim.proved else ["it states no proof"]
    if not 0 <= claim.epsilon < math.inf:
        wrong.append(f"it states epsilon {claim.epsilon}")
    for first, second, loss in _pairs(law, values):
        if loss > claim.largest * (1 + _SLACK):
            wrong.append(f"{first} against {second} loses {loss:g}, above {claim.largest:g}")
        if law.structure(first) != law.structure(second):
            wrong.append(f"{first} and {second} are of two structures and have a loss")
    return "statement", not wrong, "; ".join(wrong) or claim.law


def _rebuilt(law: SpanLaw, values: Sequence[Any]) -> _Verdict:
    """Make the law again from its settings: it must draw the same under a key."""
    again = type(law)(**law.settings())
    same = again.fingerprint() == law.fingerprint()
    same &= _draw(law, values, 5, "again") == _draw(again, values, 5, "again")
    return "settings", same, "made again, draws the same" if same else "draws otherwise"


def _sums(law: SpanLaw, laws: dict[Any, NDArray[np.float64]]) -> _Verdict:
    wrong = []
    for value, row in laws.items():
        outputs = law.outputs(law.structure(value))
        total = math.fsum(np.exp(row).tolist())
        if row.shape != (len(outputs),) or not abs(total - 1) < 1e-9:
            wrong.append(f"{value}: {len(outputs)} outputs, law {row.shape}, sums to {total!r}")
    return "law", not wrong, "; ".join(wrong) or f"{len(laws)} laws sum to 1"


def _ratios(law: SpanLaw, laws: dict[Any, NDArray[np.float64]]) -> _Verdict:
    found = [
        (float(largest_ratios(laws[first], laws[second])) - loss, loss, f"{first} against {second}")
        for first, second, loss in _pairs(law, list(laws))
    ]
    excess, loss, pair = max(found, default=(0.0, 0.0, "no pairs"))
    return "ratio", excess <= _SLACK, f"{pair}: {loss + excess:.6g}, claimed {loss:.6g}"


def _sampler(law: SpanLaw, laws: dict[Any, NDArray[np.float64]], draws: int) -> _Verdict:
    found = []
    for value, row in laws.items():
        stated: dict[str, float] = defaultdict(float)
        for surface, chance in zip(law.outputs(law.structure(value)), np.exp(row), strict=True):
            stated[surface] += float(chance)
        drawn = Counter(surface for (surface,) in _draw(law, [value], draws, "sampler"))
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


def _documents(law: SpanLaw, values: Sequence[Any], draws: int) -> _Verdict:
    """Distinguish documents of one and of two spans by what their surfaces show, against the stated joint loss."""
    documents = [(value,) for value in values] + list(itertools.product(values[:3], repeat=2))
    counted = []
    for number, document in enumerate(documents):
        tables = np.zeros((len(_VIEWS), _BUCKETS), dtype=np.int64)
        drawn = Counter(_draw(law, document, draws, f"documents {number}"))
        for row, view in enumerate(_VIEWS.values()):
            for surfaces, count in drawn.items():
                tables[row, zlib.crc32(repr(view(surfaces)).encode()) % _BUCKETS] += count
        counted.append((document, tables))
    lean = np.arange(_BUCKETS, dtype=np.float64)
    found = []
    for (one, first), (other, second) in itertools.permutations(counted, 2):
        if (claimed := law.joint_loss(one, other)) < math.inf:
            for row, name in enumerate(_VIEWS):
                excess = ratio_bound(first[row], second[row], lean, LEVEL) - claimed
                found.append((excess, claimed, f"{one} against {other} by {name}"))
    excess, claimed, witness = max(found, default=(0.0, 0.0, "no two documents are adjacent"))
    shown = at_least(claimed + excess, 4)
    return "documents", excess <= 0, f"{witness}: loss of {shown} or more, claimed {claimed:.4g}"


def _kept(law: SpanLaw, values: Sequence[Any]) -> _Verdict:
    """Draw the values in another document of the person, order and batch: what is kept within a scope must be the same."""
    streams = KeyedStreams(seed=6)
    names = ("one", "other") if law.scope == "person" else ("one", "one")
    first = law.draw(values, Stream(bytes(32)), Scopes(streams, names[0], "ann"))
    second = law.draw(values[::-1], Stream(bytes([1]) * 32), Scopes(streams, names[1], "ann"))[::-1]
    alone = law.draw(values[-1:], Stream(bytes([2]) * 32), Scopes(streams, names[1], "ann"))
    same = first == second and first[-1:] == alone
    return "kept", same, "the same again" if same else f"{first} became {second}"


def _persons(law: SpanLaw, value: Any, draws: int) -> _Verdict:
    """Compare pairs of neighbouring scopes with pairs of strangers: two scopes are independent."""
    side = math.isqrt(_BUCKETS)
    drawn = [surface for (surface,) in _draw(law, [value], 2 * draws, "persons")]
    cells = np.array([zlib.crc32(each.encode()) % side for each in drawn])
    first, second = cells[::2] * side, cells[1::2]
    together = np.bincount(first + second, minlength=_BUCKETS)
    strangers = np.bincount(first + np.roll(second, 1), minlength=_BUCKETS)
    p = two_samples(together, strangers)
    return "persons", p > LEVEL, f"p-value {p:.3g}"
