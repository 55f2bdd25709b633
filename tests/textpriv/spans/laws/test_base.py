"""What all laws share: scopes are secret functions of a name, and fingerprints hold all settings."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from textpriv.errors import MechanismError, TextprivError
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.laws import registry
from textpriv.spans.laws.base import Scopes
from textpriv.spans.laws.date_forms import DateForms
from textpriv.spans.laws.dates import Date
from textpriv.spans.laws.identifiers import Identifier
from textpriv.spans.laws.mask import Mask
from textpriv.spans.laws.numbers import Number
from textpriv.spans.laws.surrogates import Surrogate


def words(stream):
    return stream.words(4).tolist()


def test_a_stream_of_a_scope_depends_on_key_name_scope_and_label_alone():
    streams = KeyedStreams(seed=1)
    one = Scopes(streams, document="letter", person="ann")
    assert words(one.stream("person", b"x")) == words(
        Scopes(KeyedStreams(seed=1), "other", "ann").stream("person", b"x")
    )
    different = [
        one.stream("person", b"x"),
        one.stream("person", b"y"),
        one.stream("document", b"x"),
        Scopes(streams, "ann", "letter").stream("document", b"x"),
        Scopes(streams, "letter", b"ann").stream("person", b"x"),
        Scopes(KeyedStreams(seed=2), "letter", "ann").stream("person", b"x"),
        streams.stream("ann"),
    ]
    assert len({tuple(words(each)) for each in different}) == len(different)


def test_a_person_who_is_not_named_is_an_error_and_no_name_is_shown():
    scopes = Scopes(KeyedStreams(seed=1), "secret-name")
    with pytest.raises(MechanismError, match="--author"):
        scopes.stream("person", b"")
    assert "secret-name" not in repr(scopes)


def test_a_fingerprint_holds_the_settings():
    assert Mask("A").fingerprint() == Mask("A").fingerprint() != Mask("B").fingerprint()


def test_a_mask_is_one_surface_whatever_the_value():
    law = Mask("PERSON")
    assert law.outputs(law.structure("")) == ("[PERSON]",)
    assert law.log_prob("").tolist() == np.zeros(1).tolist()
    assert law.claim().largest == 0


@pytest.mark.parametrize("name", sorted(registry.get_all()))
def test_how_often_a_value_comes_out_as_it_was_is_that_of_the_law(name):
    for law, surfaces in registry.get(name).trials():
        said = law.stays()
        if not said:
            continue
        most = 0.0
        for value in map(law.parse, surfaces):
            outputs = law.outputs(law.structure(value))
            same = [law.parse(surface) == value for surface in outputs]
            most = max(most, float(np.exp(law.log_prob(value))[same].sum()))
        if (
            name == "mask"
        ):  # whatever is written, the mask is read as the same, and shows nothing of it
            assert (said, most) == ({"": 0.0}, 1.0)
        elif name == "surrogate":
            assert said == {"": pytest.approx(1 / len(law.entries))}
        else:
            assert most <= max(said.values()) * (1 + 1e-9)
            inside = said[""]
            middle = law.parse(law.outputs(law.structure(value))[(law.last - law.first) // 2])
            assert np.exp(law.log_prob(middle)).max() == pytest.approx(inside)


@pytest.mark.parametrize("name", sorted(registry.get_all()))
def test_documents_drawn_together_are_drawn_as_each_by_itself(name):
    keys = KeyedStreams(seed=5)
    for law, surfaces in registry.get(name).trials():
        values = list(map(law.parse, surfaces))
        documents = [values[:1], values[::-1], values]
        scopes = [Scopes(keys, each, "ann") for each in range(3)]
        alone = [law.draw(documents[each], keys.stream(each), scopes[each]) for each in range(3)]
        offsets = np.cumsum([0, *map(len, documents)])
        streams = [keys.stream(each) for each in range(3)]
        together = law.draw_documents(values[:1] + values[::-1] + values, offsets, streams, scopes)
        assert together == [*itertools.chain(*alone)]


def test_a_law_that_draws_otherwise_does_so_for_many_documents_too():
    class Halved(Number):
        def draw(self, values, stream, scopes=None):
            return ["half"] * len(values)

    law = Halved(1.0, low=0, high=9)
    values = [law.parse("3"), law.parse("4")]
    drawn = law.draw_documents(values, np.array([0, 1, 2]), [Stream()] * 2, [None] * 2)
    assert drawn == ["half", "half"]


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("faker", lambda: Surrogate("name", locale="it_IT")),
        ("stdnum", lambda: Identifier("luhn")),
        ("phonenumbers", lambda: Identifier("phone")),
        ("babel", lambda: DateForms("sv")),
    ],
)
def test_a_law_whose_package_is_missing_names_the_extra_and_its_trials_go_on(
    package, made, monkeypatch
):
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TextprivError, match=r"textpriv\[spans\]"):
        made()
    for law in (Surrogate, Identifier, Date):
        assert law.trials()
