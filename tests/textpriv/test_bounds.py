"""What is printed under "at most" is a bound itself: never below the number it stands for, and not far above."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textpriv.bounds import at_least, at_most, factor_in_words, odds_in_words

WIDE = Context(prec=60, Emax=10**9, Emin=-(10**9))
NAMES = {"million": 6, "billion": 9, "trillion": 12}


def read(text: str) -> Decimal:
    """The number that a person reads."""
    found = re.fullmatch(r"([\d,.]+)(?: (million|billion|trillion)| x 10\^(\d+))? to 1", text)
    assert found, text
    number, name, power = found.groups()
    return Decimal(number.replace(",", "")).scaleb(NAMES.get(name, int(power or 0)), WIDE)


@given(st.one_of(st.floats(0, 40), st.floats(0, 1e4)))
@example(0.0)
@example(5e-324)
@example(14.9)
@example(math.log(1000))
@example(math.nextafter(math.log(1000), 0))
@example(math.log(1e6))
@example(math.nextafter(math.log(1e6), 99))
@example(math.log(1e12))
def test_printed_odds_are_never_below_the_true_ones_and_at_most_a_tenth_above(nats):
    true = Decimal(nats).exp(WIDE)
    printed = read(odds_in_words(nats))
    assert true <= printed
    assert printed <= true * Decimal("1.1")
    if nats < math.log(1e6):
        assert printed <= true * Decimal("1.01")


@pytest.mark.parametrize(
    ("nats", "odds"),
    [
        (0.0, "1 to 1"),
        (3.0, "20.1 to 1"),
        (10.0, "22,027 to 1"),
        (14.9, "3.0 million to 1"),
        (20.0, "490 million to 1"),
        (60.0, "1.2 x 10^26 to 1"),
        (math.inf, "no bound"),
        (math.nan, "no bound"),
    ],
)
def test_odds_are_written_so_that_a_person_can_read_them(nats, odds):
    assert odds_in_words(nats) == odds
    assert odds == "no bound" or odds == f"{factor_in_words(nats)} to 1"


@given(st.floats(1e6, 1e15, exclude_min=True))
def test_odds_of_a_long_text_are_a_power_of_ten_that_is_not_too_small(nats):
    power = int(re.fullmatch(r"10\^([\d,]+) to 1", odds_in_words(nats))[1].replace(",", ""))
    true = Decimal(nats) / Decimal(10).ln(WIDE)
    assert true <= power <= true + 3


@given(st.floats(0, 1e300), st.integers(1, 15))
@example(0.1, 6)
@example(6.0, 3)
def test_a_rounded_number_is_never_below_the_true_one(value, digits):
    printed = float(at_most(value, digits))
    assert float(at_least(value, digits)) <= value
    assert value <= printed <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12) + 5e-324


def test_a_number_with_few_digits_stays_as_it_is():
    assert [at_most(value) for value in (6.0, 0.1, 2.5, 1e-3, 0.0)] == [
        "6",
        "0.1",
        "2.5",
        "0.001",
        "0",
    ]
