"""The audit of span mechanisms: every registered one passes, and a broken variant of each is caught."""

from __future__ import annotations

import math

import catalogue
import numpy as np
import pytest

from textpriv.errors import MechanismError
from textpriv.guarantees.span_audit import audit_span_mechanism
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.base import Scopes, registry
from textpriv.spans.mechanisms.dates import Date, DateShift, TimeOfDay
from textpriv.spans.mechanisms.numbers import Number, TwoSidedGeometric
from textpriv.spans.mechanisms.surrogates import Identifier, Mask, Surrogate


@pytest.mark.parametrize("name", sorted(registry.get_all()))
def test_every_registered_mechanism_withstands_the_kit(name):
    report = audit_span_mechanism(name)
    assert report.passed, str(report)


HOSTILE = ["", " ", "\ud800", "\x00", "1" * 10**6, " " * 10**6 + "x", "1," * 10**5, "9" * 90, "1e999", "\n\n", "٣", "-",
           "0x10", "1_000", "٣/٤/٢٠٢٠", "99:99", "0/0/0", "A" * 10**6]  # fmt: skip


@pytest.mark.parametrize("name", sorted(registry.get_all()))
def test_no_surface_breaks_a_mechanism_and_what_is_read_is_drawn(name):
    for mechanism, _ in registry.get(name).trials():
        for surface in HOSTILE:
            value = mechanism.parse(surface)
            if value is not None:
                scopes = Scopes(KeyedStreams(seed=1), "letter", "ann")
                assert mechanism.draw([value], Stream(), scopes)[0]
                assert mechanism.loss(value, value) == 0
                hash(value)


class OneTrial:
    """A variant that the first of its mechanism's trials refutes."""

    @classmethod
    def trials(cls):
        return super().trials()[:1]


class MaskOfEqualLength(OneTrial, Mask):
    def parse(self, text):
        return (len(text),)

    def draw(self, values, stream, scopes=None):
        return ["[" + "x" * size + "]" for (size,) in values]


class NumberWithItsDecimals(OneTrial, Number):
    """Draws the cell, and writes as many digits as the original had."""

    def parse(self, text):
        value = super().parse(text)
        return value and value._replace(unit=str(len(text)))

    def structure(self, value):
        return ("", *value[2:])

    def loss(self, first, second):
        return super().loss(first._replace(unit=""), second._replace(unit=""))

    def draw(self, values, stream, scopes=None):
        bare = [each._replace(unit="") for each in values]
        drawn = super().draw(bare, stream)
        return [text + "0" * int(value.unit) for text, value in zip(drawn, values, strict=True)]


class NumberByDistance(OneTrial, Number):
    """States a loss by the distance of the numbers, as if rounding cost nothing."""

    def loss(self, first, second):
        return super().loss(first, second) * 0.9


class NumberOfBoundedNoise(OneTrial, Number):
    """Cuts the noise, so that the support moves with the number."""

    def draw(self, values, stream, scopes=None):
        noise = TwoSidedGeometric(self.epsilon, 1).draw(len(values), stream)
        return self._moved(values, noise.tolist())


class DateWithItsWeekday(OneTrial, Date):
    """Keeps the day of the week."""

    def draw(self, values, stream, scopes=None):
        cells = [value.day for value in values]
        noise = 7 * (self._noise.draw(len(cells), stream) // 7)
        drawn = np.clip(np.array(cells) + noise, self.first - 7, self.last + 7)
        return [self._surface(cell, v[1:]) for cell, v in zip(drawn.tolist(), values, strict=True)]


class ShiftClampedBefore(OneTrial, DateShift):
    """Clamps dates before the shift."""

    def draw(self, values, stream, scopes=None):
        clamped = [v._replace(day=min(max(v.day, self.first + 10), self.last)) for v in values]
        return super().draw(clamped, stream, scopes)


class ShiftOfTheDocument(OneTrial, DateShift):
    """States that a person's dates move together, and moves each document's."""

    def shift(self, scopes):
        return super().shift(Scopes(scopes.streams, scopes.document, scopes.document))


class UniformShift(OneTrial, DateShift):
    def shift(self, scopes):
        return int(scopes.stream("person", b"").words(1)[0] % 3)

    def log_prob(self, value):
        raise MechanismError("no mechanism")


class ShiftOfEverybody(OneTrial, DateShift):
    """One shift for all people: found from one person's dates."""

    def shift(self, scopes):
        return super().shift(Scopes(scopes.streams, "all", "all"))


class TimeOfTheHour(TimeOfDay):
    """Keeps the minute of the hour."""

    def draw(self, values, stream, scopes=None):
        drawn = (self._noise.draw(len(values), stream) // 60 * 60).tolist()
        cells = [(v.minute + noise) % 1440 for v, noise in zip(values, drawn, strict=True)]
        return [self._surface(cell, v[1:]) for cell, v in zip(cells, values, strict=True)]


class AgeOfTheOld(Number):
    """Leaves ages beyond the oldest as they are."""

    def parse(self, text):
        value = super().parse(text)
        return value and value._replace(cell=int(text.split("-")[0].split()[0]) // 2)

    @classmethod
    def trials(cls):
        return super().trials()[2:]


class SurrogateOfEqualInitial(OneTrial, Surrogate):
    def draw(self, values, stream, scopes=None):
        drawn = super().draw(values, stream, scopes)
        return [value[0][0] + each[1:] for value, each in zip(values, drawn, strict=True)]


class SurrogateWithoutKey(OneTrial, Surrogate):
    """A function of the name that everybody can compute."""

    def draw(self, values, stream, scopes=None):
        return [self.entries[len(value[0]) % len(self.entries)] for value in values]


class SurrogateWhoseEqualityIsDenied(Surrogate):
    """Consistent, and states that nothing shows."""

    def joint_loss(self, first, second):
        return 0.0 if len(first) == len(second) else math.inf

    @classmethod
    def trials(cls):
        return super().trials()[1:2]


class IdentifierWithItsEnd(OneTrial, Identifier):
    """Keeps the last digit."""

    def draw(self, values, stream, scopes=None):
        drawn = super().draw(values, stream, scopes)
        return [each[:-1] + v.number[-1] for v, each in zip(values, drawn, strict=True)]


BROKEN = [
    (MaskOfEqualLength, "documents"),
    (NumberWithItsDecimals, "documents"),
    (NumberByDistance, "ratio"),
    (NumberOfBoundedNoise, "sampler"),
    (DateWithItsWeekday, "documents"),
    (ShiftClampedBefore, "sampler"),
    (ShiftOfTheDocument, "kept"),
    (UniformShift, "documents"),
    (ShiftOfEverybody, "sampler"),
    (TimeOfTheHour, "documents"),
    (AgeOfTheOld, "statement"),
    (SurrogateOfEqualInitial, "documents"),
    (SurrogateWithoutKey, "documents"),
    (SurrogateWhoseEqualityIsDenied, "documents"),
    (IdentifierWithItsEnd, "documents"),
]


@pytest.mark.parametrize(
    ("broken", "check"), BROKEN, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_broken_mechanism_is_caught(broken, check):
    assert check in {each.name for each in audit_span_mechanism(broken).failures}


def test_every_registered_mechanism_has_a_broken_variant_here():
    tried = {parent for broken, _ in BROKEN for parent in broken.__mro__}
    assert set(registry.get_all().values()) <= tried


def test_a_mechanism_of_another_package_is_found_by_its_name():
    registry.register("again", func=Mask)
    try:
        assert audit_span_mechanism("again").passed
        registry.register("again", func=MaskOfEqualLength)
        assert not audit_span_mechanism("again").passed
    finally:
        del catalogue.REGISTRY[(*registry.namespace, "again")]
