"""Events: what happened, in dp-accounting's words, and the neighbouring relation it happened under.

What events cost is computed in ``accounting.accountant``.
"""

from __future__ import annotations

import enum
import json
import math
import numbers
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attr
import dp_accounting
from dp_accounting import dp_event
from scipy.stats import binom

from pairwise.errors import InvalidParameterError, UnsupportedEventError

__all__ = [
    "Adjacency",
    "ApproximateDpEvent",
    "check_event",
    "compose",
    "gaussian_event",
    "group_poisson_event",
    "poisson_event",
    "pure_event",
    "sampled_event",
]


class Adjacency(str, enum.Enum):
    """Between which data sets a guarantee holds.

    ``REPLACE_ONE``: n public, one record changes arbitrarily. ``ZERO_OUT``: one record's contribution is removed, public
    sizes stay (``REPLACE_SPECIAL`` of dp-accounting). ``ADD_REMOVE``: the true size changes.
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

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """The same relation in dp-accounting's terms."""
        relations = dp_accounting.NeighboringRelation
        return {
            Adjacency.REPLACE_ONE: relations.REPLACE_ONE,
            Adjacency.ZERO_OUT: relations.REPLACE_SPECIAL,
            Adjacency.ADD_REMOVE: relations.ADD_OR_REMOVE_ONE,
        }[self]


# --------------------------------------------------------------------------------------------------------------------
# Events


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(dp_event.DpEvent):
    """A mechanism known only to be (epsilon, delta)-DP; dp-accounting's own accountants refuse it, ``epsilon_of`` does not.

    Pure mechanisms without an event of their own (staircase, Duchi, discrete Laplace) are this with δ = 0.
    """

    epsilon: float
    delta: float = 0.0


def pure_event(epsilon: float) -> ApproximateDpEvent:
    """Return the event of a mechanism that is (ε, 0)-DP under the adjacency in use."""
    return ApproximateDpEvent(float(epsilon), 0.0)


def gaussian_event(ratio: float, steps: int = 1) -> dp_event.DpEvent:
    """Return ``steps`` Gaussian releases with z = σ/Δ = ``ratio``; z = 0 is the non-private event.

    Parameters
    ----------
    ratio : float
        σ/Δ, Δ the l2 sensitivity under the adjacency in use.
    steps : int, default=1
        Number of releases.
    """
    if ratio == 0:
        return dp_event.NonPrivateDpEvent()
    event = dp_event.GaussianDpEvent(float(ratio))
    return event if steps == 1 else dp_event.SelfComposedDpEvent(event, int(steps))


def poisson_event(sigma: float, q: float, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Poisson-sampled Gaussian sums; ``sigma`` = σ/C with C the norm bound of one record."""
    if sigma == 0:
        return dp_event.NonPrivateDpEvent()
    event = dp_event.PoissonSampledDpEvent(float(q), dp_event.GaussianDpEvent(float(sigma)))
    return dp_event.SelfComposedDpEvent(event, int(steps))


def group_poisson_event(sigma: float, kappa: int, q: float, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Poisson-sampled Gaussian sums when ``kappa`` records change together (mechanisms.md 1.4).

    Each step is a mixture of Gaussians: of κ records, Binomial(κ, q) are sampled, and the sum moves by at most that many
    times C (Ganesh 2024). Valid for add/remove and zero-out of any κ records, each with its own secret coin in every step.

    Parameters
    ----------
    sigma : float
        σ/C, C the norm bound of one record.
    kappa : int
        Group size, declared in public.
    q : float
        Sampling probability in (0, 1].
    steps : int
        Number of steps.
    """
    if kappa < 1 or int(kappa) != kappa:
        raise InvalidParameterError(f"kappa must be a whole number >= 1; found {kappa!r}.")
    if not 0 < q <= 1:
        raise InvalidParameterError(f"q must be in (0, 1]; found {q!r}.")
    if sigma == 0:
        return dp_event.NonPrivateDpEvent()
    if q == 1:
        return gaussian_event(sigma / kappa, steps)
    counts = list(range(int(kappa) + 1))
    chances = [float(p) for p in binom.pmf(counts, int(kappa), q)]
    event = dp_event.MixtureOfGaussiansDpEvent(float(sigma), [float(c) for c in counts], chances)
    return dp_event.SelfComposedDpEvent(event, int(steps))


def sampled_event(ratio: float, n: int, batch: int, steps: int) -> dp_event.DpEvent:
    """Return ``steps`` Gaussian releases on ``batch`` of ``n`` records drawn without replacement (replace-one only).

    ``ratio`` = σ/Δ, Δ the replace-one sensitivity of the query on the sample. The samples must stay secret.
    """
    if not 1 <= batch <= n:
        raise InvalidParameterError(f"batch must be in 1..n; found {batch} of {n}.")
    if ratio == 0:
        return dp_event.NonPrivateDpEvent()
    if batch == n:
        return gaussian_event(ratio, steps)
    event = dp_event.SampledWithoutReplacementDpEvent(
        int(n), int(batch), dp_event.GaussianDpEvent(float(ratio))
    )
    return dp_event.SelfComposedDpEvent(event, int(steps))


def compose(events: Iterable[dp_event.DpEvent]) -> dp_event.DpEvent:
    """Return the composition of events, in the order in which they run."""
    listed = [event for event in events if not isinstance(event, dp_event.NoOpDpEvent)]
    if not listed:
        return dp_event.NoOpDpEvent()
    return listed[0] if len(listed) == 1 else dp_event.ComposedDpEvent(listed)


# Numbers of events that are probabilities, as is the noise of a randomised response.
_SHARES = ("delta", "sampling_probability", "sampling_probs")


def check_event(event: Any) -> None:
    """Refuse what is no event, and numbers that no release has: a negative cost would pay for others.

    Raises
    ------
    InvalidParameterError
    """
    if not isinstance(event, dp_event.DpEvent):
        raise InvalidParameterError(
            f"expected a privacy event, such as gaussian_event(ratio); found {type(event).__name__}."
        )
    for field in attr.fields(type(event)):
        value = getattr(event, field.name)
        value = value.tolist() if hasattr(value, "tolist") else value
        for part in value if isinstance(value, Sequence) else [value]:
            if isinstance(part, dp_event.DpEvent):
                check_event(part)
            elif not _is_possible(event, field.name, part):
                raise InvalidParameterError(
                    f"{field.name} of a {type(event).__name__} cannot be {part!r}, which no release has."
                )


def _is_possible(event: dp_event.DpEvent, name: str, value: Any) -> bool:
    """Return whether a number of an event is in its range: all are at least 0 but the shape of a law, which is above -1."""
    response = isinstance(event, dp_event.RandomizedResponseDpEvent)
    share = name in _SHARES or (response and name == "noise_parameter")
    real = isinstance(value, numbers.Real)
    if not real or (name == "count" and value % 1 != 0):
        return False
    return value > -1 if name == "shape" else 0 <= value <= (1 if share else math.inf)


def _freeze(event: dp_event.DpEvent) -> str:
    """Return a text that two events share exactly when they are equal."""
    check_event(event)
    return json.dumps(_event_to_plain(event), sort_keys=True)


def _leaves(event: dp_event.DpEvent, count: int = 1) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yield (event, count) for each release inside a composition."""
    if isinstance(event, dp_event.NoOpDpEvent) or count == 0:
        return
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for item in event.events:
            yield from _leaves(item, count)
    else:
        yield event, count


def _merged(leaves: Iterable[tuple[dp_event.DpEvent, int]]) -> list[tuple[dp_event.DpEvent, int]]:
    """Return equal leaves added up: their order does not change what a product of their laws costs."""
    totals: Counter[str] = Counter()
    events: dict[str, dp_event.DpEvent] = {}
    for event, count in leaves:
        key = _freeze(event)
        totals[key] += count
        events[key] = event
    return [(events[key], count) for key, count in totals.items()]


# --------------------------------------------------------------------------------------------------------------------
# Budgets


def _event_to_plain(event: dp_event.DpEvent) -> dict[str, Any]:
    """Return an event as JSON types."""

    def plain(value: Any) -> Any:
        if isinstance(value, dp_event.DpEvent):
            return _event_to_plain(value)
        if isinstance(value, int | str) or value is None:
            return value
        if isinstance(value, Sequence) or hasattr(value, "tolist"):
            items = value.tolist() if hasattr(value, "tolist") else value
            return [plain(item) for item in items] if isinstance(items, Sequence) else items
        return float(value)

    fields = {f.name: plain(getattr(event, f.name)) for f in attr.fields(type(event))}
    return {"class": type(event).__name__, **fields}


def _event_from_plain(content: dict[str, Any]) -> dp_event.DpEvent:
    """Return the event of its JSON types; only event classes of this module and of dp-accounting can come out."""
    name = content["class"]
    cls = ApproximateDpEvent if name == "ApproximateDpEvent" else getattr(dp_event, name, None)
    if not (isinstance(cls, type) and issubclass(cls, dp_event.DpEvent)):
        raise UnsupportedEventError(f"the budget's store holds an unknown event {name!r}.")

    def built(value: Any) -> Any:
        if isinstance(value, dict):
            return _event_from_plain(value)
        if isinstance(value, list):
            return [built(item) for item in value]
        return value

    return cls(**{key: built(value) for key, value in content.items() if key != "class"})
