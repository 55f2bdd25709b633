"""Numbers: cells are exact, the loss is that of cells, and a surface reveals the grid alone."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError
from textpriv.guarantees.significance import largest_ratios
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.mechanisms.numbers import Number

WHOLE = Number(0.5, low=-1000, high=1000)
AMOUNTS = Number(0.2, low="0.01", high=100_000, step="0.1", grid="log")
DECIMALS = st.decimals(-2000, 2000, places=3)


@given(DECIMALS)
def test_half_a_step_always_goes_up(x):
    clamped = min(max(Fraction(x), Fraction(-1000)), Fraction(1000))
    assert WHOLE.parse(f"{x:f}").cell == math.floor(clamped + Fraction(1, 2))


@pytest.mark.parametrize(("text", "cell"), [("0.5", 1), ("1.5", 2), ("2.5", 3), ("-0.5", 0)])
def test_halves_go_up_from_even_and_from_odd_cells(text, cell):
    assert WHOLE.parse(text).cell == cell


@given(DECIMALS, DECIMALS)
def test_a_loss_is_at_most_epsilon_a_step_begun(x, y):
    first, second = (WHOLE.parse(f"{each:f}") for each in (x, y))
    assert WHOLE.loss(first, second) <= 0.5 * math.ceil(abs(Fraction(x) - Fraction(y)))


@given(st.integers(-30, 30), st.sampled_from([-1, 1]))
def test_a_cell_of_logarithms_is_decided_beyond_the_digits_of_a_float(cell, side):
    mechanism = Number(1.0, low="0.01", high=100, step="0.1", grid="log")
    edge = (Decimal(cell) * Decimal("0.1") - Decimal("0.05")).exp()  # to 28 digits
    near = edge * (1 + side * Decimal("1e-26"))
    assert mechanism.parse(f"{near:f}").cell == cell - (side < 0)


@pytest.mark.parametrize(("mechanism", "surfaces"), Number.trials())
def test_enumeration_attains_the_stated_loss_and_never_passes_it(mechanism, surfaces):
    structure = mechanism.structure(mechanism.parse(surfaces[0]))
    values = {mechanism.parse(each) for each in (*surfaces, *mechanism.outputs(structure))}
    losses = {
        pair: mechanism.loss(*pair)
        for pair in itertools.permutations(values, 2)
        if mechanism.structure(pair[0]) == mechanism.structure(pair[1])
    }
    rows = {value: mechanism.log_prob(value) for value in values}
    shown = {pair: float(largest_ratios(*(rows[each] for each in pair))) for pair in losses}
    assert all(shown[pair] <= losses[pair] * (1 + 1e-9) for pair in losses)
    assert max(shown[pair] / losses[pair] for pair in losses) == pytest.approx(1)
    assert max(shown.values()) == pytest.approx(mechanism.claim().largest)


@given(st.integers(0, 100_000))
def test_whole_numbers_stay_whole_and_read_back(x):
    value = AMOUNTS.parse(str(x))
    drawn = AMOUNTS.draw([value] * 20, KeyedStreams(seed=1).stream(str(x)))
    assert all(each.isdecimal() for each in drawn)
    first, last = AMOUNTS.ends(AMOUNTS.structure(value))
    assert all(first <= AMOUNTS.parse(each).cell <= last for each in drawn)
    assert AMOUNTS.loss(value, AMOUNTS.parse(f"{x}.0")) == math.inf


@pytest.mark.parametrize("step", [3, 1, "0.5", "0.1", "0.03", "0.01"])
@pytest.mark.parametrize("whole", [False, True])
def test_every_cell_of_logarithms_has_a_surface_of_its_own(step, whole):
    mechanism = Number(1.0, low="0.3", high=4000, step=step, grid="log")
    structure = "", False, False, whole
    first, last = mechanism.ends(structure)
    surfaces = mechanism.outputs(structure)
    assert len(set(surfaces)) == last - first + 1
    cells = [mechanism.parse(surface).cell for surface in surfaces if whole or "." in surface]
    assert not whole or cells == list(range(first, last + 1))


def test_a_year_comes_out_as_a_year_and_an_age_as_an_age():
    year = Number(0.2, low=1900, high=2099, kind="YEAR")
    age = Number(0.2, low=0, high=90, units="age", kind="AGE")
    stream = KeyedStreams(seed=2).stream("x")
    assert all(1900 <= int(each) <= 2099 for each in year.draw([year.parse("1998")] * 50, stream))
    drawn = age.draw([age.parse("79 years old")] * 50, stream)
    assert all(each.endswith(" years old") and 0 <= int(each[:2]) <= 90 for each in drawn)
    assert age.parse("103").cell == 90


def test_what_is_written_depends_on_the_cell_alone():
    mechanism = Number(0.5, low=0, high=100, step="0.5", units=["mg"])
    surfaces = ["7 mg", "7.0mg", "0007 MG", "7e0 mg", "7.0001 mg"]
    drawn = {
        tuple(mechanism.draw([mechanism.parse(each)] * 20, Stream(bytes(32)))) for each in surfaces
    }
    assert len(drawn) == 1
    assert all(surface.endswith(" mg") and surface[-4] in "05" for surface in drawn.pop())


@pytest.mark.parametrize(
    "text", ["", "mg", "5 Johnson", "1,23", "1.2.3", "five", "٣", "1e9999", "12-13", "5 mg $"]
)
def test_what_is_no_number_with_a_listed_unit_is_not_read(text):
    assert Number(0.5, low=0, high=9, units=["mg", "$"]).parse(text) is None


def test_values_of_two_structures_are_distinguished_for_sure():
    mechanism = Number(0.5, low=1, high=9, grid="log", units=["mg", "$"])
    one = mechanism.parse("5 mg")
    for other in ("5", "$5", "mg 5", "-5 mg", "5.0 mg"):
        assert mechanism.loss(one, mechanism.parse(other)) == math.inf
    said = " ".join(mechanism.claim().not_protected)
    assert all(each in said for each in ("unit", "sign", "whole numbers"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 5, "high": 5},
        {"low": 0, "high": 5, "step": 0},
        {"low": 0, "high": 5, "grid": "log"},
        {"low": "x", "high": 5},
        {"low": 0, "high": math.inf},
        {"low": 0, "high": 5, "units": "dogs"},
        {"low": 0, "high": 1e20},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    with pytest.raises(MechanismError):
        Number(**{"epsilon": 1.0, **wrong})
