"""Numbers: cells are exact, the loss is that of cells, and a surface shows the grid alone."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import MechanismError
from textpriv.guarantees.span_audit import certify_span_law
from textpriv.randomness import Stream
from textpriv.spans.laws.numbers import Number

WHOLE = Number(0.5, low=-1000, high=1000)
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


def test_numbers_on_both_sides_of_a_half_lose_a_whole_step():
    first, second = WHOLE.parse(".49"), WHOLE.parse(".51")
    assert WHOLE.loss(first, second) == 0.5 > 0.5 * 0.02


@given(st.integers(-30, 30), st.sampled_from([-1, 1]))
def test_a_cell_of_logarithms_is_decided_beyond_the_digits_of_a_float(cell, side):
    law = Number(1.0, low="0.01", high=100, step="0.1", grid="log")
    edge = (Decimal(cell) * Decimal("0.1") - Decimal("0.05")).exp()  # to 28 digits
    near = edge * (1 + side * Decimal("1e-26"))
    assert law.parse(f"{near:f}").cell == cell - (side < 0)


@pytest.mark.parametrize(("law", "surfaces"), Number.trials())
def test_enumeration_attains_the_stated_loss_and_never_passes_it(law, surfaces):
    certificate = certify_span_law(law, surfaces)
    assert certificate.holds
    assert certificate.ratio == pytest.approx(1)
    assert certificate.largest == pytest.approx(law.claim().largest)


def test_what_is_written_depends_on_the_cell_alone():
    law = Number(0.5, low=0, high=100, step="0.5", units=["mg"])
    surfaces = ["7 mg", "7.0mg", "0007 MG", "7e0 mg", "7.0001 mg"]
    drawn = {tuple(law.draw([law.parse(each)] * 20, Stream(bytes(32)))) for each in surfaces}
    assert len(drawn) == 1
    assert all(surface.endswith(" mg") and surface[-4] in "05" for surface in drawn.pop())


@pytest.mark.parametrize("step", [3, 1, "0.5", "0.1", "0.03", "0.01"])
def test_every_cell_of_a_grid_of_logarithms_has_a_surface_of_its_own(step):
    law = Number(1.0, low="0.3", high=4000, step=step, grid="log")
    assert len(set(law.outputs(("", False, False)))) == law.last - law.first + 1


@pytest.mark.parametrize(
    "text", ["", "mg", "5 Johnson", "1,23", "1.2.3", "$5 mg", "five", "٣", "1e9999", "12-13"]
)
def test_what_is_no_number_with_a_listed_unit_is_not_read(text):
    assert Number(0.5, low=0, high=9, units=["mg", "$"]).parse(text) is None


def test_values_of_two_structures_are_told_apart_for_sure():
    law = Number(0.5, low=0, high=9, units=["mg", "$"], sign="structure")
    one = law.parse("5 mg")
    for other in ("5", "$5", "mg 5", "-5 mg"):
        assert law.loss(one, law.parse(other)) == math.inf
    assert any("unit" in each for each in law.claim().not_protected)
    assert any("sign" in each for each in law.claim().not_protected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 5, "high": 5},
        {"low": 0, "high": 5, "step": 0},
        {"low": 0, "high": 5, "grid": "log"},
        {"low": -1, "high": 5, "sign": "structure"},
        {"low": "x", "high": 5},
        {"low": 0, "high": math.inf},
        {"low": 0, "high": 5, "epsilon": math.inf},
        {"low": 0, "high": 5, "marks": ".."},
        {"low": 0, "high": 5, "grid": "cubic"},
        {"low": 0, "high": 1e20},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    with pytest.raises(MechanismError):
        Number(**{"epsilon": 1.0, **wrong})
