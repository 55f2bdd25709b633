"""Claims that hold of every registered mechanism, and of the secret functions that they share."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from textpriv.errors import MechanismError, TextprivError
from textpriv.randomness import KeyedStreams
from textpriv.spans.mechanisms.base import Scopes, registry
from textpriv.spans.mechanisms.surrogates import Identifier, Mask, Surrogate

NAMES = sorted(registry.get_all())


def words(stream):
    return tuple(stream.words(4).tolist())


def test_a_stream_of_a_scope_depends_on_key_name_scope_and_label_alone():
    streams = KeyedStreams(seed=1)
    one = Scopes(streams, document="letter", person="ann")
    elsewhere = Scopes(KeyedStreams(seed=1), "other", "ann")
    assert words(one.stream("person", b"x")) == words(elsewhere.stream("person", b"x"))
    different = [
        one.stream("person", b"x"),
        one.stream("person", b"y"),
        one.stream("document", b"x"),
        Scopes(streams, "ann", "letter").stream("document", b"x"),
        Scopes(streams, "letter", b"ann").stream("person", b"x"),
        Scopes(KeyedStreams(seed=2), "letter", "ann").stream("person", b"x"),
        streams.stream("ann"),
    ]
    assert len({words(each) for each in different}) == len(different)


def test_a_person_who_is_not_named_is_an_error_and_no_name_is_shown():
    scopes = Scopes(KeyedStreams(seed=1), "secret-name")
    with pytest.raises(MechanismError, match="--author"):
        scopes.stream("person", b"")
    assert "secret-name" not in repr(scopes)


@pytest.mark.parametrize("name", NAMES)
def test_a_mechanism_travels_by_its_settings(name):
    for mechanism, surfaces in registry.get(name).trials():
        copy = pickle.loads(pickle.dumps(mechanism))
        assert (
            copy.fingerprint()
            == mechanism.fingerprint()
            != mechanism.of_kind("OTHER").fingerprint()
        )
        assert [copy.parse(each) for each in surfaces] == [
            mechanism.parse(each) for each in surfaces
        ]


@pytest.mark.parametrize("name", [each for each in NAMES if each != "mask"])
def test_a_value_stays_no_more_often_than_said(name):
    for mechanism, surfaces in registry.get(name).trials():
        said = mechanism.stays()
        for value in map(mechanism.parse, surfaces if said else ()):
            outputs = mechanism.outputs(mechanism.structure(value))
            same = [mechanism.parse(surface) == value for surface in outputs]
            stays = float(np.exp(mechanism.log_prob(value))[same].sum())
            assert stays <= max(said.values()) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("faker", lambda: Surrogate("name", locale="it_IT")),
        ("stdnum", lambda: Identifier("luhn")),
        ("phonenumbers", lambda: Identifier("phone")),
    ],
)
def test_a_missing_package_is_named_with_its_extra_and_trials_go_on(package, made, monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TextprivError, match=r"pip install .*spans"):
        made()
    assert all(mechanism.trials() for mechanism in (Surrogate, Identifier, Mask))
