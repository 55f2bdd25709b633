"""Two-sided geometric noise: its coins give the stated distribution digit by digit, and further digits decide ties."""

from __future__ import annotations

import math
from decimal import localcontext
from fractions import Fraction

import numpy as np
import pytest

from textpriv.errors import MechanismError
from textpriv.guarantees.significance import LEVEL, goodness_of_fit
from textpriv.randomness import KeyedStreams
from textpriv.spans.mechanisms.numbers import TwoSidedGeometric


def distribution_of_coins(noise):
    """The distribution over -bound..bound that the coins' first four words give, as exact fractions."""
    coins = [Fraction(noise._expansion(coin, 4), 2**256) for coin in range(noise._digits + 2)]
    distribution = dict.fromkeys(range(-noise.bound, noise.bound + 1), Fraction(0))
    distribution[0] = coins[0]
    for geometric in range(2**noise._digits):
        chance = (1 - coins[0]) * (1 - coins[-1]) / 2
        for digit in range(noise._digits):
            one = coins[digit + 1]
            chance *= one if geometric >> digit & 1 else 1 - one
        for sign in (1, -1):
            distribution[sign * min(1 + geometric, noise.bound)] += chance
    for sign in (1, -1):
        distribution[sign * noise.bound] += (1 - coins[0]) * coins[-1] / 2
    return distribution


@pytest.mark.parametrize(("epsilon", "bound"), [(0.3, 1), (0.7, 5), (2.0, 8), (1e-3, 9), (40.0, 3)])
def test_coins_give_the_distribution_that_is_stated(epsilon, bound):
    noise = TwoSidedGeometric(epsilon, bound)
    distribution = distribution_of_coins(noise)
    assert sum(distribution.values()) == 1
    stated = noise.log_prob(0, -bound, bound)
    for n, value in zip(range(-bound, bound + 1), stated.tolist(), strict=True):
        assert math.log(distribution[n]) == pytest.approx(value, abs=1e-9)


def test_digits_of_a_coin_are_those_of_its_series_in_any_decimal_context():
    term = q = Fraction(1)
    for n in range(1, 120):
        term *= Fraction(-3, 4 * n)
        q += term
    coins = [(1 - q) / (1 + q), q / (1 + q), q**2 / (1 + q**2), q**4]
    with localcontext() as process:
        process.prec = 3
        noise = TwoSidedGeometric(0.75, 4)
        digits = [noise._expansion(coin, 6) for coin in range(4)]
    assert digits == [math.floor(each * 2**384) for each in coins]


def test_a_tie_is_decided_by_further_digits():
    noise = TwoSidedGeometric(0.7, 4)
    first = noise._expansion(1, 1)
    following = noise._expansion(1, 2) - (first << 64)

    class Tied:
        def __init__(self, after):
            self.given = iter([2**64 - 1, 2**64 - 1, first, 2**64 - 1, 2**64 - 1, *after])

        def fill(self, out):
            out.ravel()[:] = self.words(out.size)

        def words(self, count):
            return np.array([next(self.given) for _ in range(count)], dtype=np.uint64)

    assert noise.draw(1, Tied([following - 1])).tolist() == [2]
    assert noise.draw(1, Tied([following + 1])).tolist() == [1]
    assert noise.draw(1, Tied([following, 0])).tolist() == [2]


def test_draws_follow_the_distribution():
    noise = TwoSidedGeometric(0.05, 100)
    drawn = noise.draw(60_000, KeyedStreams(seed=4).stream("noise"))
    counts = np.bincount(drawn + 100, minlength=201)
    assert goodness_of_fit(counts, np.exp(noise.log_prob(0, -100, 100))) > LEVEL


@pytest.mark.parametrize("cell", [-2, 0, 3])
def test_a_distribution_inside_a_range_is_the_sum_over_all_noise(cell):
    q, low, high = math.exp(-0.4), -2, 3
    expected = np.zeros(6)
    for n in range(-300, 301):
        expected[min(max(cell + n, low), high) - low] += (1 - q) / (1 + q) * q ** abs(n)
    assert np.exp(TwoSidedGeometric(0.4, 20).log_prob(cell, low, high)) == pytest.approx(expected)


@pytest.mark.parametrize(("epsilon", "bound"), [(0, 5), (math.nan, 5), (1e4, 5), (1.0, 2**41)])
def test_noise_without_meaning_is_refused(epsilon, bound):
    with pytest.raises(MechanismError):
        TwoSidedGeometric(epsilon, bound)
