"""Whole parts, coins and exponentials: exact sums and known errors."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.mechanisms.measure import PARTS, BaseMeasure, coin, exp, expm1, find
from textpriv.randomness import Stream

getcontext().prec = 40


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=60))
def test_parts_sum_to_a_whole_and_no_word_has_none(weights):
    measure = BaseMeasure(np.array(weights))
    assert sum(measure.parts.tolist()) == PARTS
    assert measure.parts.min() >= 2**21
    share = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(measure.weights, np.maximum(share, 2.0**-40), rtol=1e-4)


def test_every_part_belongs_to_its_word():
    measure = BaseMeasure(np.random.default_rng(0).random(500) ** 8)
    for word, end in enumerate(measure.cumulative.tolist()):
        assert find(np.uint64(end - 1), measure.tables) == word
        assert find(np.uint64(end - int(measure.parts[word])), measure.tables) == word


@pytest.mark.parametrize("probability", [2.0**-18, 0.3, 2.0**-20, 1.0])
def test_a_coin_falls_as_often_as_it_should(probability):
    words = Stream(bytes(32)).words(2_000_000).reshape(-1, 2)
    heads = sum(
        coin(probability, *pair) for pair in words[: min(len(words), int(2000 / probability))]
    )
    expected = min(len(words), int(2000 / probability)) * probability
    assert abs(heads - expected) <= 6.5 * np.sqrt(expected)


@pytest.mark.parametrize("probability", [0.7, 2.0**-19, 2.0**-21, 1e-9, 2.0**-50])
def test_the_threshold_of_a_coin_is_right_to_2_to_the_minus_32(probability):
    # The exact share of pairs of words that are accepted: by bisection on the word that decides.
    small = probability < 2.0**-20
    low, high = 0, 2**64
    while high - low > 1:
        middle = (low + high) // 2
        pair = (0, middle) if small else (middle, 0)
        accepted = coin(probability, *(np.uint64(min(each, 2**64 - 1)) for each in pair))
        low, high = (middle, high) if accepted else (low, middle)
    share = Decimal(low + 1) / 2 ** (84 if small else 64)
    assert abs(share / Decimal(probability) - 1) < Decimal(2) ** -32
    assert not (small and coin(probability, np.uint64(1 << 44), np.uint64(0)))


def test_exponentials_are_right_to_the_stated_error():
    rng = np.random.default_rng(0)
    for x in rng.uniform(-60, 60, 500).tolist():
        assert abs(Decimal(exp(x)) / Decimal(x).exp() - 1) < Decimal(2) ** -48
    for x in [*rng.uniform(-1, 1, 300).tolist(), 1e-9, -1e-12, 30.0, -45.0]:
        assert abs(Decimal(expm1(x)) / (Decimal(x).exp() - 1) - 1) < Decimal(2) ** -46
    assert exp(0.0) == 1.0


def test_bits_of_an_exponential_are_these_on_every_processor():
    assert [exp(x).hex() for x in (-0.1, -7.5, -30.0)] == [
        "0x1.cf46d99d52b3bp-1",
        "0x1.21f9ba40f31d4p-11",
        "0x1.a56e0c2ac7f74p-44",
    ]
