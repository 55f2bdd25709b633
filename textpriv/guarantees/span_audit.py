"""Attacks on laws of typed spans: whatever a law says of itself is tried by enumeration and by its draws.

A law brings small settings and surfaces (:meth:`textpriv.spans.laws.base.SpanLaw.trials`); its readings, its law over all
pairs of values and all outputs, its draws against its law, and what whole documents show together are tried here. Passing is
no proof; failing is a refutation, with a witness. Words are attacked in ``textpriv.guarantees.audit``. Nothing here knows
any particular law, and no private text is involved.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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

__all__ = ["SpanCertificate", "audit_span_law", "audit_span_laws", "certify_span_law"]

_SLACK = 1e-9  # nats for the arithmetic of the kit itself
_QUICK, _THOROUGH = 1_000, 15_000  # documents of each kind that are drawn
_BUCKETS = 64
_MOST_VALUES = 512


@dataclass(frozen=True)
class SpanCertificate:
    """The loss of a law over all pairs of some values, by enumeration of all outputs.

    Attributes
    ----------
    law : str
    values : int
        How many were compared, each with each.
    largest : float
        Largest loss that occurs between two of them, in nats.
    ratio : float
        Largest part of a stated loss that occurs: 1 where a bound is attained, above 1 where one is broken.
    worst_pair : tuple of str or None
        Two surfaces that attain the ratio.
    """

    law: str
    values: int
    largest: float
    ratio: float
    worst_pair: tuple[str, str] | None

    @property
    def holds(self) -> bool:
        """Whether no stated loss is exceeded."""
        return self.ratio <= 1 + _SLACK


def certify_span_law(law: SpanLaw, surfaces: Sequence[str] = ()) -> SpanCertificate:
    """Compare the exact laws of all values with all outputs.

    Parameters
    ----------
    law : SpanLaw
        With few outputs.
    surfaces : sequence of str
        Their values are compared, and those that the law's own outputs are read as.

    Raises
    ------
    MechanismError
        If the law has no list of outputs, reads none of the surfaces, or there are more than 512 values.
    """
    read = {law.parse(each): each for each in surfaces}
    read.pop(None, None)
    for structure in {law.structure(value) for value in read}:
        for surface in law.outputs(structure)[:_MOST_VALUES]:
            value = law.parse(surface)
            if value is not None and law.structure(value) == structure:
                read.setdefault(value, surface)
    if not 0 < len(read) <= _MOST_VALUES:
        raise MechanismError(
            f"a certificate compares 1 to {_MOST_VALUES} values that the law can read; got {len(read)}."
        )
    largest, worst, pair = 0.0, 0.0, None
    for first, second, loss in _pairs(law, list(read)):
        observed = _exact_loss(law, first, second)
        largest = max(largest, observed)
        ratio = observed / loss if loss > 0 else 0.0 if observed <= _SLACK else math.inf
        if ratio > worst:
            worst, pair = ratio, (read[first], read[second])
    return SpanCertificate(law.claim().law, len(read), largest, worst, pair)


def audit_span_law(law: str | type[SpanLaw], *, quick: bool = True) -> AuditReport:
    """Attack a law on the small settings that it brings.

    Parameters
    ----------
    law : str or type
        A registered name such as "number", or a class.
    quick : bool
        False draws ten times as much.

    Notes
    -----
    Each statistical test has a false-alarm rate of 1e-9 and a fixed key.
    """
    made = registry.get(law) if isinstance(law, str) else law
    checks: list[Check] = []
    epsilon = 0.0
    for tried, surfaces in made.trials():
        epsilon = max(epsilon, tried.claim().epsilon)
        draws = _QUICK if quick else _THOROUGH
        attacks = _attack(tried, surfaces, draws if tried.scope is None else draws // 3)
        checks += [replace(check, vocabulary=repr(tried)) for check in attacks]
    return AuditReport(
        law if isinstance(law, str) else law.__name__,
        epsilon,
        tuple(checks),
        (
            "what depends on other settings and surfaces than the law's own trials",
            "what running time, memory, files or logs show",
        ),
    )


def audit_span_laws(*, quick: bool = True) -> dict[str, AuditReport]:
    """Attack every registered law, those of other distributions included."""
    return {name: audit_span_law(name, quick=quick) for name in sorted(registry.get_all())}


# ----------------------------------------------------------------------------------------------
# Attacks
# ----------------------------------------------------------------------------------------------


def _attack(law: SpanLaw, surfaces: Sequence[str], draws: int) -> Iterator[Check]:
    values = list(dict.fromkeys(map(law.parse, surfaces)))
    unread = [surface for surface in surfaces if law.parse(surface) is None]
    yield Check("read", "", not unread, f"cannot be read: {unread}" if unread else f"{surfaces}")
    if unread:
        return
    yield _statement(law, values)
    yield _rebuilt(law, values)
    try:
        laws = {value: law.log_prob(value) for value in values}
    except MechanismError:
        laws = {}
    if laws:
        yield _sums(law, laws)
        yield _ratios(law, values)
        yield _sampler(law, laws, draws)
    yield _documents(law, values, draws)
    if law.scope is not None:
        yield _kept(law, values)
        yield _persons(law, values, draws)


def _draw(law: SpanLaw, values: Sequence[Any], documents: int, label: str) -> list[tuple[str, ...]]:
    """Surfaces of many documents of the same values, each of another person."""
    streams = KeyedStreams(seed=5)
    if law.scope is None:
        drawn = law.draw(list(values) * documents, streams.stream(label))
        return list(zip(*[iter(drawn)] * len(values), strict=True))
    return [
        tuple(law.draw(values, Stream(bytes(32)), Scopes(streams, f"{label} {i}", f"{label} {i}")))
        for i in range(documents)
    ]


def _pairs(law: SpanLaw, values: Sequence[Any]) -> Iterator[tuple[Any, Any, float]]:
    """Ordered pairs of values between which a loss is stated, with it."""
    for first, second in itertools.permutations(values, 2):
        loss = law.loss(first, second)
        if loss < math.inf:
            yield first, second, loss


def _exact_loss(law: SpanLaw, first: Any, second: Any) -> float:
    return float(largest_ratios(law.log_prob(first), law.log_prob(second)[None])[0])


def _statement(law: SpanLaw, values: Sequence[Any]) -> Check:
    claim = law.claim()
    wrong = []
    if not claim.proved:
        wrong.append("it states no proof")
    if not 0 <= claim.epsilon < math.inf:
        wrong.append(f"it states epsilon {claim.epsilon}")
    for first, second, loss in _pairs(law, values):
        if loss > claim.largest * (1 + _SLACK):
            wrong.append(f"{first} against {second} loses {loss:g}, above {claim.largest:g}")
        if law.structure(first) != law.structure(second):
            wrong.append(f"{first} and {second} are of two structures and have a loss")
    return Check("statement", "", not wrong, "; ".join(wrong) or claim.law)


def _rebuilt(law: SpanLaw, values: Sequence[Any]) -> Check:
    """Its settings make the same law again, which draws the same under a key."""
    again = type(law)(**law.settings())
    same = again.fingerprint() == law.fingerprint()
    same &= _draw(law, values, 5, "again") == _draw(again, values, 5, "again")
    return Check("settings", "", same, "made again, draws the same" if same else "draws otherwise")


def _sums(law: SpanLaw, laws: dict[Any, NDArray[np.float64]]) -> Check:
    wrong = []
    for value, row in laws.items():
        outputs = law.outputs(law.structure(value))
        total = math.fsum(np.exp(row).tolist())
        if row.shape != (len(outputs),) or not abs(total - 1) < 1e-9:
            wrong.append(f"{value}: {len(outputs)} outputs, law {row.shape}, sums to {total!r}")
    return Check("law", "", not wrong, "; ".join(wrong) or f"{len(laws)} laws sum to 1")


def _ratios(law: SpanLaw, values: Sequence[Any]) -> Check:
    excess, detail = -math.inf, "no pairs"
    for first, second, loss in _pairs(law, values):
        observed = _exact_loss(law, first, second)
        if observed - loss > excess:
            excess = observed - loss
            detail = f"{first} against {second}: {observed:.6g}, claimed {loss:.6g}"
    return Check("ratio", "", excess <= _SLACK, detail)


def _sampler(law: SpanLaw, laws: dict[Any, NDArray[np.float64]], draws: int) -> Check:
    least, detail = 1.0, ""
    for value, row in laws.items():
        outputs = law.outputs(law.structure(value))
        positions = {surface: number for number, surface in enumerate(outputs)}
        merged = np.zeros(len(outputs))
        np.add.at(merged, [positions[surface] for surface in outputs], np.exp(row))
        drawn = Counter(surface for (surface,) in _draw(law, [value], draws, "sampler"))
        strange = set(drawn) - set(positions)
        impossible = [each for each in drawn if each in positions and merged[positions[each]] == 0]
        if strange or impossible:
            return Check("sampler", "", False, f"{value} became {(*strange, *impossible)[0]!r}")
        counts = np.zeros(len(outputs), dtype=np.int64)
        for surface, count in drawn.items():
            counts[positions[surface]] = count
        p = goodness_of_fit(counts, merged)
        if p <= least:
            least, detail = p, f"least p-value {p:.3g}, of {value}"
    return Check("sampler", "", least > LEVEL, detail)


# What is looked at in a document's surfaces: each maps them to something that is counted in buckets fixed beforehand.
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


def _counted(
    view: Callable[[tuple[str, ...]], object], drawn: Counter[tuple[str, ...]]
) -> NDArray[np.int64]:
    counts = np.zeros(_BUCKETS, dtype=np.int64)
    for surfaces, count in drawn.items():
        counts[zlib.crc32(repr(view(surfaces)).encode()) % _BUCKETS] += count
    return counts


def _documents(law: SpanLaw, values: Sequence[Any], draws: int) -> Check:
    """Documents of one and of two spans, told apart by what all their surfaces show, against the stated joint loss."""
    documents = [(value,) for value in values]
    few = values[:3]
    documents += list(itertools.product(few, repeat=2))
    counted = {}
    for number, document in enumerate(documents):
        drawn = Counter(_draw(law, document, draws, f"documents {number}"))
        counted[number] = [_counted(view, drawn) for _, view in _VIEWS]
    excess, detail, tried = -math.inf, "no two documents are adjacent", 0
    lean = np.arange(_BUCKETS, dtype=np.float64)
    for first, second in itertools.permutations(counted, 2):
        claimed = law.joint_loss(documents[first], documents[second])
        if not claimed < math.inf:
            continue
        tried += 1
        for position, (name, _) in enumerate(_VIEWS):
            shown = ratio_bound(counted[first][position], counted[second][position], lean, LEVEL)
            if shown - claimed > excess:
                excess = shown - claimed
                detail = (
                    f"{documents[first]} against {documents[second]} by {name}: loss of {at_least(shown, 4)} or more, "
                    f"claimed {claimed:.4g}"
                )
    return Check("documents", "", excess <= 0, f"{detail} ({tried} pairs)")


def _kept(law: SpanLaw, values: Sequence[Any]) -> Check:
    """What is kept within a scope is the same in another document of the person, in another order and another batch."""
    streams = KeyedStreams(seed=6)
    names = ("one", "other") if law.scope == "person" else ("one", "one")
    first = law.draw(values, Stream(bytes(32)), Scopes(streams, names[0], "ann"))
    second = law.draw(values[::-1], Stream(bytes([1]) * 32), Scopes(streams, names[1], "ann"))[::-1]
    alone = law.draw(values[-1:], Stream(bytes([2]) * 32), Scopes(streams, names[1], "ann"))
    same = first == second and first[-1:] == alone
    return Check("kept", "", same, "the same again" if same else f"{first} became {second}")


def _persons(law: SpanLaw, values: Sequence[Any], draws: int) -> Check:
    """Two scopes are independent: pairs of neighbours have the law of pairs of strangers."""
    value = values[0]
    drawn = [surface for (surface,) in _draw(law, [value], 2 * draws, "persons")]
    side = math.isqrt(_BUCKETS)
    cells = np.array([zlib.crc32(each.encode()) % side for each in drawn])
    together = np.bincount(cells[::2] * side + cells[1::2], minlength=_BUCKETS)
    shuffled = np.roll(cells[1::2], 1)
    strangers = np.bincount(cells[::2] * side + shuffled, minlength=_BUCKETS)
    p = two_samples(together, strangers)
    return Check("persons", "", p > LEVEL, f"p-value {p:.3g}")
