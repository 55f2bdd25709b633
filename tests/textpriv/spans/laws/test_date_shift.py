"""Dates: a person's keep their intervals wherever they stand, and two persons' shifts are independent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError
from textpriv.guarantees.significance import LEVEL, goodness_of_fit
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.laws.base import Scopes
from textpriv.spans.laws.date_forms import Moment
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.laws.dates import Date

LAW = DateShift(epsilon=1 / 365)
VISITS = ["2020-02-28", "March 1, 2020", "12/24/2020", "3.5.19"]


def scopes(person, document="letter", seed=1):
    return Scopes(KeyedStreams(seed=seed), document, person)


def released(texts, person, document="letter", law=LAW):
    return law.draw([law.parse(each) for each in texts], Stream(), scopes(person, document))


def test_intervals_hold_to_the_day_across_documents_and_runs():
    together = released(VISITS, "ann")
    apart = [released([each], "ann", f"letter {n}")[0] for n, each in enumerate(VISITS)]
    assert together == apart
    days, moved = ([LAW.parse(each).day for each in texts] for texts in (VISITS, together))
    assert np.diff(moved).tolist() == np.diff(days).tolist()


def test_the_shift_of_a_person_is_a_function_of_key_name_and_epsilon_in_every_process_and_form():
    other = DateShift(epsilon=1 / 365, form="iso", times="keep", dayfirst=True)
    for person, days in (("ann", -53), ("bob", 29), (7, -439), (b"7", -277)):
        assert LAW.shift(scopes(person)) == days
        assert other.shift(scopes(person, "elsewhere")) == days


def test_shifts_of_people_follow_the_law_and_neighbours_are_independent():
    law = DateShift(epsilon=0.8)
    streams = KeyedStreams(seed=9)
    shifts = np.array([law.shift(Scopes(streams, "x", person)) for person in range(6_000)])
    expected = np.exp(law._noise.log_law(0, -20, 20))
    cells = np.clip(shifts, -20, 20) + 20
    assert goodness_of_fit(np.bincount(cells, minlength=41), expected) > LEVEL
    pairs = np.bincount(cells[::2] * 41 + cells[1::2], minlength=41 * 41)
    assert goodness_of_fit(pairs, np.outer(expected, expected).ravel()) > LEVEL


def test_a_shift_changes_with_key_person_and_epsilon():
    law = DateShift(epsilon=1e-4)
    shifts = [
        law.shift(scopes("ann")),
        law.shift(scopes("bob")),
        law.shift(scopes("ann", seed=2)),
        DateShift(epsilon=1.1e-4).shift(scopes("ann")),
        DateShift(epsilon=1e-4, kind="BIRTHDAY").shift(scopes("ann")),
        DateShift(epsilon=1e-4, scope="document").shift(scopes("letter", "ann")),
    ]
    assert len(set(shifts)) == len(shifts)


@given(st.lists(st.integers(400_000, 800_000), min_size=1, max_size=5), st.integers(-50, 50))
def test_a_history_moved_as_a_whole_loses_once(days, moved):
    first = [Moment(day) for day in days]
    second = [Moment(day + moved) for day in days]
    assert LAW.joint_loss(first, second) == LAW.epsilon * abs(moved)
    if len(days) > 1 and moved:
        assert LAW.joint_loss(first, [*second[:-1], first[-1]]) == math.inf
    each = Date(1 / 365, "0001-01-01", "9999-12-31")
    assert each.joint_loss(first, second) == pytest.approx(len(days) * abs(moved) / 365)


def test_the_joint_law_of_a_history_attains_the_loss_and_no_more():
    """All outputs of two dates by enumeration of all shifts, clamped after the shift at both ends of the range."""
    law = DateShift(epsilon=0.5, low="2020-02-20", high="2020-03-10")
    noise = law._noise.log_law(0, -60, 60)

    def joint(days):
        outputs = {}
        for n, log_probability in zip(range(-60, 61), noise.tolist(), strict=True):
            key = tuple(min(max(day + n, law.first), law.last) for day in days)
            outputs[key] = outputs.get(key, 0.0) + math.exp(log_probability)
        return outputs

    start = law.first + 8
    for moved in (1, -3):
        one, other = joint([start, start + 4]), joint([start + moved, start + 4 + moved])
        assert one.keys() == other.keys()
        worst = max(abs(math.log(one[key] / other[key])) for key in one)
        assert worst == pytest.approx(0.5 * abs(moved), abs=1e-9)


def test_dates_outside_the_range_are_not_read_and_what_leaves_it_is_written_as_its_end():
    law = DateShift(epsilon=1e-6, low="2020-01-01", high="2020-12-31")
    assert law.parse("2019-12-31") is None
    drawn = {text for person in range(40) for text in released(["2020-06-01"], person, law=law)}
    assert drawn == {"2020-01-01", "2020-12-31"}
    assert law.claim().largest == pytest.approx(365e-6)


def test_a_uniform_shift_is_refused_with_its_reason():
    with pytest.raises(MechanismError, match="support moves"):
        DateShift(epsilon=0.1, noise="uniform")


def test_a_person_must_be_named():
    for given_scopes in (None, Scopes(KeyedStreams(seed=1), "letter")):
        with pytest.raises(MechanismError):
            LAW.draw([LAW.parse("2020-01-01")], Stream(), given_scopes)


def test_the_claim_names_what_gives_a_shift_away():
    claim = LAW.claim()
    assert claim.per == "person"
    assert any("intervals" in each for each in claim.not_protected)
    assert any("weekday" in each for each in claim.not_protected)
