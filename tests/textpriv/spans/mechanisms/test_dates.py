"""Dates and times: forms read back, a person's dates move together, and two persons' do not."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError
from textpriv.guarantees.significance import LEVEL, goodness_of_fit
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.base import Scopes
from textpriv.spans.mechanisms.dates import (
    FORMS,
    Date,
    DateShift,
    Moment,
    TimeOfDay,
    read_date,
    write_date,
)

SHIFT = DateShift(epsilon=1 / 365)
VISITS = ["2020-02-28", "March 1, 2020", "12/24/2020", "3.5.19"]


def scopes(person, document="letter", seed=1):
    return Scopes(KeyedStreams(seed=seed), document, person)


def released(texts, person, document="letter", mechanism=SHIFT):
    return mechanism.draw(
        [mechanism.parse(each) for each in texts], Stream(), scopes(person, document)
    )


# Forms


@given(st.booleans(), st.data())
def test_every_date_reads_back_in_every_form(dayfirst, data):
    form = data.draw(st.sampled_from(sorted(FORMS[dayfirst])))
    two_digits = not {"y", "s"} & set(form)
    days = st.dates(date(1969, 1, 1), date(2068, 12, 31)) if two_digits else st.dates()
    moment = Moment(data.draw(days).toordinal(), form)
    assert read_date(write_date(moment, dayfirst), dayfirst) == moment


@pytest.mark.parametrize("form", ["12", "24"])
def test_every_time_reads_back(form):
    mechanism = TimeOfDay(1 / 60)
    read = [mechanism.parse(surface) for surface in mechanism.outputs((form,))]
    assert read == [(minute, form) for minute in range(1440)]


@pytest.mark.parametrize(
    ("surface", "written"),
    [
        ("May 3rd, 2020", "May 3, 2020"),
        ("Sat, the 3rd of Sept. 2019", "3 September 2019"),
        ("3-SEP-19", "03-September-19"),
        ("5/6/2020, 9:05 a.m.", "05/06/2020"),
        ("2020-05-06T19:05:59", "2020-05-06"),
        ("5.6.68", "05.06.68"),
    ],
)
def test_usual_forms_are_read_and_written_in_public_ones(surface, written):
    assert write_date(read_date(surface)) == written


@pytest.mark.parametrize(
    "surface",
    ["May 2020", "3 May", "2020", "13/05/2020", "31.02.2020", "tomorrow", "2020-05-03T10:30:00Z", "",
     "0000-01-01", "10 pm May 3 2020", "2020-05-03 25:00", "1/2/345", "٣/٤/٢٠٢٠", "3 Ann 2020"],
)  # fmt: skip
def test_nothing_is_completed_swapped_or_guessed(surface):
    assert read_date(surface) is None


@pytest.mark.parametrize("ends", [("May", "2020-01-01"), ("2020-01-02", "2020-01-01")])
def test_a_range_that_is_none_is_refused(ends):
    with pytest.raises(MechanismError):
        Date(1.0, *ends)


# The shift


def test_intervals_hold_to_the_day_across_documents_and_runs():
    together = released(VISITS, "ann")
    apart = [released([each], "ann", f"letter {n}")[0] for n, each in enumerate(VISITS)]
    assert together == apart
    days, moved = ([SHIFT.parse(each).day for each in texts] for texts in (VISITS, together))
    assert np.diff(moved).tolist() == np.diff(days).tolist()


def test_a_shift_is_a_fixed_function_of_key_and_name():
    for person, days in (("ann", -237), ("bob", 134), (7, 181), (b"7", -465)):
        assert SHIFT.shift(scopes(person)) == days
        assert DateShift(1 / 365, dayfirst=True).shift(scopes(person, "elsewhere")) == days


def test_shifts_of_people_follow_the_noise_and_neighbours_are_independent():
    mechanism = DateShift(epsilon=0.8)
    streams = KeyedStreams(seed=9)
    shifts = np.array([mechanism.shift(Scopes(streams, "x", person)) for person in range(6_000)])
    expected = np.exp(mechanism._noise.log_prob(0, -20, 20))
    cells = np.clip(shifts, -20, 20) + 20
    assert goodness_of_fit(np.bincount(cells, minlength=41), expected) > LEVEL
    pairs = np.bincount(cells[::2] * 41 + cells[1::2], minlength=41 * 41)
    assert goodness_of_fit(pairs, np.outer(expected, expected).ravel()) > LEVEL


def test_a_shift_changes_with_key_person_kind_range_and_epsilon():
    mechanism = DateShift(epsilon=1e-4)
    others = [
        DateShift(epsilon=1.1e-4),
        DateShift(epsilon=1e-4, kind="BIRTHDAY"),
        DateShift(epsilon=1e-4, low="1800-01-01"),
    ]
    shifts = [
        mechanism.shift(scopes("ann")),
        mechanism.shift(scopes("bob")),
        mechanism.shift(scopes("ann", seed=2)),
    ]
    shifts += [other.shift(scopes("ann")) for other in others]
    shifts.append(DateShift(epsilon=1e-4, scope="document").shift(scopes("letter", "ann")))
    assert len(set(shifts)) == len(shifts)
    # A ledger counts draws of one name as one only if they are one.
    assert len({each.drawn_once() for each in (mechanism, *others)}) == 4
    assert DateShift(epsilon=1e-4, dayfirst=True).drawn_once() == mechanism.drawn_once()


@given(st.lists(st.integers(400_000, 800_000), min_size=1, max_size=5), st.integers(-50, 50))
def test_a_history_moved_as_a_whole_loses_once(days, moved):
    first = [Moment(day) for day in days]
    second = [Moment(day + moved) for day in days]
    assert SHIFT.joint_loss(first, second) == SHIFT.epsilon * abs(moved)
    if len(days) > 1 and moved:
        assert SHIFT.joint_loss(first, [*second[:-1], first[-1]]) == math.inf
    each = Date(1 / 365, "0001-01-01", "9999-12-31")
    assert each.joint_loss(first, second) == pytest.approx(len(days) * abs(moved) / 365)


def test_the_joint_distribution_of_a_history_attains_the_loss_and_no_more():
    """All outputs of two dates by enumeration of all shifts, clamped after the shift at both ends."""
    mechanism = DateShift(epsilon=0.5, low="2020-02-20", high="2020-03-10")
    noise = mechanism._noise.log_prob(0, -60, 60)

    def joint(days):
        outputs = {}
        for n, log_probability in zip(range(-60, 61), noise.tolist(), strict=True):
            key = tuple(min(max(day + n, mechanism.first), mechanism.last) for day in days)
            outputs[key] = outputs.get(key, 0.0) + math.exp(log_probability)
        return outputs

    start = mechanism.first + 8
    for moved in (1, -3):
        one, other = joint([start, start + 4]), joint([start + moved, start + 4 + moved])
        assert one.keys() == other.keys()
        worst = max(abs(math.log(one[key] / other[key])) for key in one)
        assert worst == pytest.approx(0.5 * abs(moved), abs=1e-9)


def test_dates_outside_the_range_are_not_read_and_moved_ones_end_in_it():
    mechanism = DateShift(epsilon=1e-6, low="2020-01-01", high="2020-12-31")
    assert mechanism.parse("2019-12-31") is None
    drawn = {
        text
        for person in range(40)
        for text in released(["2020-06-01"], person, mechanism=mechanism)
    }
    assert drawn == {"2020-01-01", "2020-12-31"}
    assert mechanism.claim().largest == pytest.approx(365e-6)


def test_a_person_must_be_named():
    with pytest.raises(MechanismError):
        SHIFT.draw([SHIFT.parse("2020-01-01")], Stream(), Scopes(KeyedStreams(seed=1), "letter"))


def test_the_claim_names_what_gives_a_shift_away():
    claim = SHIFT.claim()
    assert claim.per == "person"
    assert any("intervals" in each for each in claim.not_protected)
    assert any("weekday" in each for each in claim.not_protected)
