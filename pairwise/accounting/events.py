"""Privacy events: what happened, in dp-accounting's words, and under which adjacency.

All numbers of an event are for the adjacency that is passed beside it:

* ``GaussianDpEvent(z)``: z = sigma/D, D the l2 sensitivity under that adjacency.
* ``ZCDpEvent(rho)``, ``PureDpEvent(epsilon)``: for that adjacency.
* ``RepeatAndSelectDpEvent``: a selection among trials, each an event of this list.

Releases on secret samples are not among them.

Items of a ``ComposedDpEvent`` run one after the other, with parameters fixed in advance. Where parameters may be chosen by
earlier results, a ``PrivacyBudget`` composes by a filter.
"""

from __future__ import annotations

import enum
import json
import numbers
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attr
from dp_accounting import dp_event

from pairwise.errors import InvalidParameterError, UnsupportedEventError


class Adjacency(str, enum.Enum):
    """Between which data sets a guarantee holds.

    ``REPLACE_ONE``: n public, one record changes arbitrarily. ``ZERO_OUT``: one record's contribution is removed, public
    sizes stay. ``ADD_REMOVE``: the true size changes.
    """

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"
    ADD_REMOVE = "add/remove"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise InvalidParameterError(
            f"adjacency must be one of {', '.join(each.value for each in cls)}; found {value!r}."
        )


def refuse_other_terms(
    whose: str,
    kept: tuple[Adjacency, str],
    adjacency: Adjacency | str | None,
    unit: str | None,
) -> None:
    """Refuse a release for another adjacency or unit than those that an account is kept for."""
    if adjacency is not None and Adjacency(adjacency) is not kept[0]:
        raise InvalidParameterError(
            f"{whose} is for {kept[0]}; found a release for {Adjacency(adjacency)}. Keep an account for that adjacency."
        )
    if unit is not None and unit != kept[1]:
        raise InvalidParameterError(
            f"{whose} protects {kept[1]!r}; found a release for {unit!r}. Keep an account for that unit."
        )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(dp_event.DpEvent):
    """A mechanism known only to be (epsilon, 0)-DP."""

    epsilon: float


def pure_event(epsilon: float) -> PureDpEvent:
    """Return the event of a mechanism that is (epsilon, 0)-DP under the adjacency in use."""
    return PureDpEvent(float(epsilon))


def gaussian_event(ratio: float, steps: int = 1) -> dp_event.DpEvent:
    """Return ``steps`` Gaussian releases with sigma/D = ``ratio``; 0 is the non-private event."""
    if ratio == 0:
        return dp_event.NonPrivateDpEvent()
    event = dp_event.GaussianDpEvent(float(ratio))
    return event if steps == 1 else dp_event.SelfComposedDpEvent(event, int(steps))


def compose(events: Iterable[dp_event.DpEvent]) -> dp_event.DpEvent:
    """Return the composition of events, in the order in which they run."""
    listed = [event for event in events if not isinstance(event, dp_event.NoOpDpEvent)]
    if not listed:
        return dp_event.NoOpDpEvent()
    return listed[0] if len(listed) == 1 else dp_event.ComposedDpEvent(listed)


def leaves_of(event: dp_event.DpEvent) -> list[tuple[dp_event.DpEvent, int]]:
    """Return the different releases inside a composition, each with how often it runs."""
    _check(event)
    totals: Counter[str] = Counter()
    events: dict[str, dp_event.DpEvent] = {}
    for leaf, count in _walk(event):
        key = text_of_event(leaf)  # an event with a list in it cannot be a key
        totals[key] += count
        events[key] = leaf
    return [(events[key], count) for key, count in totals.items()]


def _walk(event: dp_event.DpEvent, count: int = 1) -> Iterator[tuple[dp_event.DpEvent, int]]:
    if isinstance(event, dp_event.NoOpDpEvent) or count == 0:
        return
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _walk(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for item in event.events:
            yield from _walk(item, count)
    else:
        yield event, count


def _check(event: Any) -> None:
    """Refuse what is no event, and numbers that no release has: a negative cost would pay for others."""
    if not isinstance(event, dp_event.DpEvent):
        raise InvalidParameterError(
            f"expected a privacy event, such as gaussian_event(ratio); found {type(event).__name__}."
        )
    for field in attr.fields(type(event)):
        value = getattr(event, field.name)
        value = value.tolist() if hasattr(value, "tolist") else value
        for part in value if isinstance(value, Sequence) else [value]:
            if isinstance(part, dp_event.DpEvent):
                _check(part)
                continue
            real = isinstance(part, numbers.Integral if field.name == "count" else numbers.Real)
            # The shape of a selection's law is above -1, all other numbers at least 0.
            if not real or not (part > -1 if field.name == "shape" else part >= 0):
                raise InvalidParameterError(
                    f"{field.name} of a {type(event).__name__} cannot be {part!r}, which no release has."
                )


def text_of_event(event: dp_event.DpEvent) -> str:
    """Return a text that two events share exactly when they are equal."""
    _check(event)
    return json.dumps(_plain(event), sort_keys=True)


def event_of_text(text: str) -> dp_event.DpEvent:
    """Return the event of its text."""
    return _built(json.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, dp_event.DpEvent):
        fields = {f.name: _plain(getattr(value, f.name)) for f in attr.fields(type(value))}
        return {"class": type(value).__name__, **fields}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, int | str) or value is None:
        return value
    return [_plain(item) for item in value] if isinstance(value, Sequence) else float(value)


def _built(value: Any) -> Any:
    """Return an event of its JSON types; only classes of this module and of dp-accounting can come out."""
    if isinstance(value, list):
        return [_built(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = value["class"]
    cls = PureDpEvent if name == "PureDpEvent" else getattr(dp_event, name, None)
    if not (isinstance(cls, type) and issubclass(cls, dp_event.DpEvent)):
        raise UnsupportedEventError(f"the budget's store holds an unknown event {name!r}.")
    return cls(**{key: _built(each) for key, each in value.items() if key != "class"})
