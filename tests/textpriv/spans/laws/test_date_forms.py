"""Forms of dates: every date has one surface in every form and reads back, and nothing is completed or swapped."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError, TextprivError
from textpriv.spans.laws.date_forms import Clock, DateForms, Moment, read_clock, write_clock

MONTHFIRST, DAYFIRST = DateForms(), DateForms(dayfirst=True)
CLOCKS = st.builds(Clock, st.integers(0, 1439), st.sampled_from(["12", "24"]))


@given(
    st.sampled_from([MONTHFIRST, DAYFIRST]), st.data(), st.one_of(st.none(), CLOCKS), st.booleans()
)
def test_every_date_reads_back_in_every_form(forms, data, clock, letter):
    form = data.draw(st.sampled_from(sorted(forms.forms)))
    two_digits = not {"y", "s"} & set(form)
    days = st.dates(date(1969, 1, 1), date(2068, 12, 31)) if two_digits else st.dates()
    between = "" if clock is None else "T" if letter else " "
    moment = Moment(data.draw(days).toordinal(), form, clock, between)
    assert forms.read(forms.write(moment)) == moment


@given(CLOCKS)
def test_every_time_reads_back(clock):
    assert read_clock(write_clock(clock)) == clock


@pytest.mark.parametrize(
    ("surface", "written"),
    [
        ("May 3rd, 2020", "May 3, 2020"),
        ("Sat, the 3rd of Sept. 2019", "3 September 2019"),
        ("3-SEP-19", "03-September-19"),
        ("5/6/2020, 9:05 a.m.", "05/06/2020 9:05 am"),
        ("5/6/2020 at 19:05:59", "05/06/2020 19:05"),
        ("5.6.68", "05.06.68"),
    ],
)
def test_usual_forms_are_read_and_written_in_public_ones(surface, written):
    assert MONTHFIRST.write(MONTHFIRST.read(surface)) == written


@pytest.mark.parametrize(
    "surface",
    ["May 2020", "3 May", "2020", "13/05/2020", "31.02.2020", "tomorrow", "2020-05-03T10:30:00Z", "",
     "0000-01-01", "10 pm May 3 2020", "2020-05-03 25:00", "1/2/345", "٣/٤/٢٠٢٠", "3 Ann 2020"],
)  # fmt: skip
def test_nothing_is_completed_swapped_or_guessed(surface):
    assert MONTHFIRST.read(surface) is None


@pytest.mark.parametrize(
    ("language", "surface", "written"),
    [
        ("de", "3. Mai 2020", "3. Mai 2020"),
        ("de", "31.12.2019", "31.12.2019"),
        ("es", "3 de mayo de 2020", "3 de mayo de 2020"),
        ("fr", "1 févr. 2021", "1 février 2021"),
    ],
)
def test_names_of_months_are_those_of_the_language(language, surface, written):
    pytest.importorskip("babel")
    forms = DateForms(language)
    moment = forms.read(surface)
    assert forms.write(moment) == written
    assert forms.read(written) == moment


def test_a_language_without_names_of_months_is_refused():
    pytest.importorskip("babel")
    with pytest.raises(TextprivError, match="xx"):
        DateForms("xx")


def test_a_range_is_made_of_dates():
    from textpriv.spans.laws.dates import Date

    for low, high in (("May", "2020-01-01"), ("2020-01-02", "2020-01-01")):
        with pytest.raises(MechanismError):
            Date(1.0, low, high)
