"""The integer measure: sums, exact draws at every boundary, and acceptances to a known relative precision."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from textpriv.mechanisms.base_measure import (
    PARTS,
    BaseMeasure,
    bernoulli,
    draw,
    integer_parts,
    quantiles,
    upper_half,
)

WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60)


def drawn(measure: BaseMeasure, part: int) -> int:
    return int(draw(np.uint64(part << 2), *measure.tables()))


@given(WEIGHTS)
def test_parts_sum_to_exactly_two_to_the_62(weights):
    assert sum(map(int, integer_parts(np.array(weights)))) == PARTS == 2**62


@given(WEIGHTS)
def test_parts_follow_the_weights_to_one_part_in_two_to_the_30(weights):
    exact = sum(map(Fraction, weights))
    for part, weight in zip(integer_parts(np.array(weights)), weights, strict=True):
        share = Fraction(weight) / exact * PARTS
        assert abs(int(part) - share) <= share / 2**30 + 1


def test_parts_of_a_weight_too_small_to_matter_are_one_and_not_none():
    assert integer_parts(np.array([1.0, 1e-30]))[1] == 1


def test_the_rarest_word_keeps_two_to_the_minus_40():
    measure = BaseMeasure(np.array([1.0, 1e-20, 1e-300]))
    assert measure.weights[1:] == pytest.approx(2.0**-40, rel=1e-6)


def test_a_measure_of_one_word_is_all_its():
    measure = BaseMeasure(np.array([3.0]))
    assert measure.parts.tolist() == [PARTS]
    assert drawn(measure, 0) == drawn(measure, PARTS - 1) == 0


def test_weights_are_the_parts_that_are_drawn():
    measure = BaseMeasure(np.arange(1.0, 100.0))
    assert (measure.weights * float(PARTS) == measure.parts.astype(float)).all()


@settings(max_examples=60)
@given(WEIGHTS)
def test_a_draw_changes_words_exactly_at_the_cumulative_parts(weights):
    measure = BaseMeasure(np.array(weights))
    for word, end in enumerate(map(int, measure.cumulative)):
        start = end - int(measure.parts[word])
        assert drawn(measure, start) == word
        assert drawn(measure, end - 1) == word


def test_a_draw_finds_its_word_in_a_vocabulary_far_larger_than_a_guide_cell_and_very_uneven():
    rng = np.random.default_rng(0)
    measure = BaseMeasure(np.exp(rng.normal(size=20_000) * 4))
    for part in rng.integers(0, PARTS, 3000):
        assert drawn(measure, int(part)) == np.searchsorted(
            measure.cumulative, np.uint64(part), side="right"
        )


def test_the_two_lowest_bits_of_a_word_do_not_matter_to_a_draw():
    measure = BaseMeasure(np.ones(5))
    end = int(measure.cumulative[1])
    for low in range(4):
        assert int(draw(np.uint64(((end - 1) << 2) | low), *measure.tables())) == 1


def test_quantiles_stand_for_the_measure():
    measure = BaseMeasure(np.array([1.0, 2.0, 1.0]))
    assert quantiles(measure.cumulative, 4).tolist() == [0, 1, 1, 2]


@given(st.floats(2.0**-44, 1.0, exclude_max=True))
def test_an_acceptance_has_a_relative_error_below_1e_12(probability):
    # The set of accepted pairs of words is found by its edge; its size is the exact probability of acceptance.
    if probability >= 2.0**-20:
        accepted = int(probability * 2.0**64)
        edge = [(accepted - 1, 2**64 - 1), (accepted, 0)]
        exact = Fraction(accepted, 2**64)
    else:
        accepted = int(probability * 2.0**84)
        edge = [(2**44 - 1, accepted - 1), (0, accepted)]
        exact = Fraction(accepted, 2**84)
        assert not bernoulli(probability, np.uint64(2**44), np.uint64(0))
    yes, no = ((np.uint64(first), np.uint64(second)) for first, second in edge)
    assert bernoulli(probability, *yes)
    assert not bernoulli(probability, *no)
    assert abs(exact / Fraction(probability) - 1) < Fraction(1, 10**12)


def test_a_probability_of_one_or_rounded_above_it_always_accepts():
    most = np.uint64(2**64 - 1)
    assert bernoulli(1.0, most, most)
    assert bernoulli(math.nextafter(1.0, 2.0), most, most)


@given(WEIGHTS, st.data())
@settings(max_examples=50, deadline=None)
def test_ranges_hold_the_words_and_the_parts_of_their_ids(weights, data):
    measure = BaseMeasure(np.array(weights))
    inner = data.draw(st.sets(st.integers(1, max(len(weights) - 1, 1)), max_size=len(weights) - 1))
    starts = np.array(sorted({0, *inner, len(weights)}), dtype=np.int32)
    ranges = measure.ranges(starts)
    assert int(ranges.first_parts[0]) == 0
    for place, (first, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        parts = [int(part) for part in measure.parts[first:end]]
        assert int(ranges.first_parts[place + 1]) - int(ranges.first_parts[place]) == sum(parts)
        choices, level = int(ranges.choices[place]), ranges.firsts[place] >= 0
        if level:
            assert ranges.firsts[place] == first
            assert choices == len(parts)
            assert ranges.weights[place] == pytest.approx(len(parts) * max(parts) / PARTS)
            # Looks in vain are rare.
            assert sum(parts) > 0.75 * len(parts) * max(parts)
        else:
            assert choices == sum(parts)
            assert ranges.weights[place] == pytest.approx(sum(parts) / PARTS)
            assert sum(parts) < 0.8 * len(parts) * max(parts)
        assert int(ranges.uneven[place]) == 2**64 % choices


@njit
def _upper_half(first, second):
    return upper_half(first, second)


@given(st.integers(1, 2**62), st.data())
@settings(max_examples=200, deadline=None)
def test_of_the_random_words_that_are_not_passed_over_each_choice_has_as_many(choices, data):
    uneven = 2**64 % choices
    chosen = data.draw(st.integers(0, choices - 1))
    # Those whose product has the chosen upper half; of the lower halves only the first can be below the bound.
    first, after = (-(-(number << 64) // choices) for number in (chosen, chosen + 1))
    for word in {first, (first + after) // 2, after - 1}:
        assert int(_upper_half(np.uint64(word), np.uint64(choices))) == chosen
    passed_over = (first * choices) % 2**64 < uneven
    assert after - first - passed_over == 2**64 // choices
