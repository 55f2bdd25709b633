"""Audits of the laws of typed spans, by enumeration and by draws.

A law brings small settings and surfaces (:meth:`textpriv.spans.laws.base.SpanLaw.trials`). Passing is no proof; failing is a
refutation, with a witness. Words are attacked in ``textpriv.guarantees.audit``.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
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
_QUICK, _THOROUGH = 1_000, 15_000  # documents of each kind that are drawn
_BUCKETS = 64

_Verdict = tuple[str, bool, str]  # which claim, whether it passed, and what was found


def audit_span_law(law: str | type[SpanLaw], *, quick: bool = True) -> AuditReport:
    """Attack a law on the small settings that it brings.

    Parameters
    ----------
    law : str or type
        A registered name such as "number", or a class.
    quick : bool
        False draws 15 times as much.

    Notes
    -----
    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    made = registry.get(law) if isinstance(law, str) else law
    draws = _QUICK if quick else _THOROUGH
    trials = made.trials()
    checks = [
        Check(name, repr(tried), passed, detail)
        for tried, surfaces in trials
        for name, passed, detail in _attack(tried, surfaces, draws)
    ]
    return AuditReport(
        law if isinstance(law, str) else law.__name__,
        max((tried.claim().epsilon for tried, _ in trials), default=0.0),
        tuple(checks),
        (
            "what depends on other settings and surfaces than the law's own trials",
            "what running time, memory, files or logs show",
        ),
    )


def _attack(law: SpanLaw, surfaces: Sequence[str], draws: int) -> Iterator[_Verdict]:
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
    documents = draws if law.scope is None else draws // 3
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
    excess, detail = -math.inf, "no pairs"
    for first, second, loss in _pairs(law, list(laws)):
        observed = float(largest_ratios(laws[first], laws[second]))
        if observed - loss > excess:
            excess = observed - loss
            detail = f"{first} against {second}: {observed:.6g}, claimed {loss:.6g}"
    return "ratio", excess <= _SLACK, detail


def _sampler(law: SpanLaw, laws: dict[Any, NDArray[np.float64]], draws: int) -> _Verdict:
    least, detail = 1.0, ""
    for value, row in laws.items():
        stated: dict[str, float] = {}
        for surface, chance in zip(law.outputs(law.structure(value)), np.exp(row), strict=True):
            stated[surface] = stated.get(surface, 0.0) + float(chance)
        drawn = Counter(surface for (surface,) in _draw(law, [value], draws, "sampler"))
        for surface in drawn:
            if not stated.get(surface):
                return "sampler", False, f"{value} became {surface!r}"
        p = goodness_of_fit(
            np.array([drawn[each] for each in stated]), np.array([*stated.values()])
        )
        if p <= least:
            least, detail = p, f"least p-value {p:.3g}, of {value}"
    return "sampler", least > LEVEL, detail


# What is counted of a document's surfaces, in buckets that are fixed beforehand.
_VIEWS: tuple[tuple[str, Callable[[tuple[str, ...]], object]], ...] = (
    ("surfaces", lambda surfaces: surfaces),
    ("lengths", lambda surfaces: tuple(map(len, surfaces))),
    ("first characters", lambda surfaces: tuple(each[:1] for each in surfaces)),
    ("first words", lambda surfaces: tuple(each.split()[:1] for each in surfaces)),
    ("last characters", lambda surfaces: tuple(each[-1:] for each in surfaces)),
    ("last words", lambda surfaces: tuple(each.split()[-1:] for each in surfaces)),
    ("equal surfaces", lambda surfaces: [surfaces.index(each) for each in surfaces]),
    ("cases", lambda surfaces: [(each.isupper(), each.islower()) for each in surfaces]),
)


def _documents(law: SpanLaw, values: Sequence[Any], draws: int) -> _Verdict:
    """Distinguish documents of one and of two spans by what their surfaces show, against the stated joint loss."""
    documents = [(value,) for value in values] + list(itertools.product(values[:3], repeat=2))
    counted = []
    for number, document in enumerate(documents):
        drawn = Counter(_draw(law, document, draws, f"documents {number}"))
        tables = np.zeros((len(_VIEWS), _BUCKETS), dtype=np.int64)
        for (surfaces, count), (row, (_, view)) in itertools.product(
            drawn.items(), enumerate(_VIEWS)
        ):
            tables[row, zlib.crc32(repr(view(surfaces)).encode()) % _BUCKETS] += count
        counted.append(tables)
    excess, detail, tried = -math.inf, "no two documents are adjacent", 0
    lean = np.arange(_BUCKETS, dtype=np.float64)
    for first, second in itertools.permutations(range(len(documents)), 2):
        claimed = law.joint_loss(documents[first], documents[second])
        if not claimed < math.inf:
            continue
        tried += 1
        for row, (name, _) in enumerate(_VIEWS):
            shown = ratio_bound(counted[first][row], counted[second][row], lean, LEVEL)
            if shown - claimed > excess:
                excess = shown - claimed
                detail = (
                    f"{documents[first]} against {documents[second]} by {name}: loss of {at_least(shown, 4)} or more, "
                    f"claimed {claimed:.4g}"
                )
    return "documents", excess <= 0, f"{detail} ({tried} pairs)"


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
