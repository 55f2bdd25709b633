"""Noise: the laws that come out, the ratios they promise, and the source they are drawn from.

Statistical tests run on fixed seeds; each states its false-alarm rate, that is how often it would fail on a fresh seed.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from pairwise.accounting.accountant import epsilon_of
from pairwise.errors import InvalidParameterError
from pairwise.noise import discrete
from pairwise.noise.discrete import _decide_exactly, _exp_below, discrete_gaussian
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import exact_gaussian, plan_choice, plan_gaussian
from textpriv.statement import epsilon_of_zcdp

ALARM = 1e-7  # false-alarm rate of every statistical test here


def assert_law(counts, probabilities):
    """Chi-square against a full law, false-alarm rate 1e-7; cells below 5 expected are joined."""
    counts, probabilities = np.asarray(counts, float), np.asarray(probabilities, float)
    expected = probabilities * counts.sum()
    small = expected < 5
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        if expected[-1] < 5:
            counts[-2] += counts[-1]
            expected[-2] += expected[-1]
            counts, expected = counts[:-1], expected[:-1]
    statistic = np.sum((counts - expected) ** 2 / expected)
    if len(expected) == 1:
        assert counts[0] == expected[0]
        return
    assert stats.chi2.sf(statistic, len(expected) - 1) > ALARM


def assert_continuous_law(sample, cdf):
    """Kolmogorov and Smirnov's distance, false-alarm rate below 1e-7 (Massart's inequality)."""
    ordered = np.sort(np.asarray(sample).ravel())
    n = len(ordered)
    grid = np.arange(n + 1) / n
    values = cdf(ordered)
    distance = max(np.max(grid[1:] - values), np.max(values - grid[:-1]))
    assert distance < math.sqrt(math.log(2 / ALARM) / (2 * n))


def test_the_default_source_is_secret_and_never_repeats():
    first, second = Randomness(), Randomness()
    assert first.secure
    assert first.note is None
    assert not np.array_equal(first.words(8), second.words(8))
    assert not np.array_equal(first.words(8), first.words(8))


@pytest.mark.parametrize("state", [0, np.random.default_rng(1), np.random.RandomState(2)])
def test_a_seeded_source_says_that_it_protects_nobody(state):
    source = Randomness(state)
    assert not source.secure
    assert "protects nobody" in source.note
    assert "seeded" in repr(source)


def test_the_same_seed_repeats():
    assert np.array_equal(Randomness(7).normal(5), Randomness(7).normal(5))
    assert not np.array_equal(Randomness(7).normal(5), Randomness(8).normal(5))
    state = np.random.RandomState(3)
    assert not np.array_equal(Randomness(state).words(4), Randomness(state).words(4))


def test_a_source_handed_on_is_shared():
    source = Randomness(5)
    assert not np.array_equal(Randomness(source).words(4), source.words(4))


def test_a_source_cannot_be_copied_or_pickled():
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            act(Randomness())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_not_repeat_its_parent():
    source = Randomness()
    source.words(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reader, 32), dtype=np.uint64)
    os.close(reader)
    os.close(writer)
    assert not np.array_equal(theirs, source.words(4))


@pytest.mark.parametrize("state", ["seed", -1, 1.5, True])
def test_other_seeds_are_refused(state):
    with pytest.raises(InvalidParameterError):
        Randomness(state)


class Words(Randomness):
    """A source that reads out a given list."""

    def __init__(self, values):
        super().__init__(0)
        self.values = list(values)

    def words(self, count):
        """Return the next words of the list."""
        taken, self.values = self.values[:count], self.values[count:]
        return np.array(taken, dtype=np.uint64)


def test_normals_reach_thirteen_deviations():
    # The two words of the smallest uniform, then a sign.
    assert Words([0, 0, 0]).normal(1)[0] == pytest.approx(13.2, abs=0.1)


def test_normals_and_signs_follow_their_laws():
    source = Randomness(10)
    sample = source.normal((1000, 100))
    assert sample.shape == (1000, 100)
    assert_continuous_law(sample, stats.norm.cdf)
    # Neighbours in the stream are uncorrelated: |r| is above 5.4/√n with probability below 1e-7.
    assert abs(np.corrcoef(sample.ravel()[:-1], sample.ravel()[1:])[0, 1]) < 5.4 / math.sqrt(1e5)
    signs = source.signs(100_001)
    assert_law([np.sum(signs == 1), np.sum(signs == -1)], [0.5, 0.5])


def test_the_secure_source_has_the_same_laws():
    # Not seeded: fails once in 10^7 runs.
    assert_continuous_law(Randomness().normal(50_000), stats.norm.cdf)


@pytest.mark.parametrize("high", [1, 3, 10, 2**62 + 1])
def test_integers_are_unbiased(high):
    drawn = Randomness(4).integers(high, 30_000)
    assert drawn.min() >= 0
    assert drawn.max() < high
    cells = min(high, 5)
    edges = [(k * high + cells - 1) // cells for k in range(cells + 1)]
    counts = [np.sum((drawn >= a) & (drawn < b)) for a, b in itertools.pairwise(edges)]
    assert_law(counts, [(b - a) / high for a, b in itertools.pairwise(edges)])


def test_integers_redraw_words_beyond_the_last_whole_multiple():
    limit = (2**64 // 10) * 10
    assert Words([limit, limit + 1, 37, 5]).integers(10, 1)[0] in (7, 5)
    assert Words([limit, 13]).integers(10, 1)[0] == 3


def test_permutations_are_uniform():
    source = Randomness(6)
    orders = dict.fromkeys(itertools.permutations(range(4)), 0)
    for _ in range(6000):
        orders[tuple(source.permutation(4).tolist())] += 1
    assert_law(list(orders.values()), [1 / 24] * 24)


def test_a_tie_of_keys_draws_the_permutation_again():
    assert Words([5, 5, 1, 3, 2, 1]).permutation(3).tolist() == [2, 1, 0]


def discrete_gaussian_law(variance, reach):
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-(x.astype(float) ** 2) / (2 * float(variance)))
    return x, weight / weight.sum()


@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(2, 3), 4, 7.3, Fraction(1001, 10)])
def test_discrete_gaussian_draws_follow_their_law(variance):
    drawn = discrete_gaussian(variance, 40_000, Randomness(21))
    reach = math.ceil(12 * math.sqrt(float(variance))) + 2
    x, law = discrete_gaussian_law(variance, reach)
    assert np.abs(drawn).max() <= reach
    assert_law(np.bincount(drawn + reach, minlength=len(x)), law)


def test_the_acceptance_step_yields_exactly_the_discrete_gaussian():
    """Proposal times acceptance is proportional to exp(-y²/2σ²), in exact rational exponents, on the whole support."""
    for variance in (Fraction(1, 5), Fraction(22, 7), Fraction(1001, 10)):
        scale = math.isqrt(variance.numerator // variance.denominator) + 1
        constants = set()
        for y in range(60):
            proposal = Fraction(y, scale)
            acceptance = (Fraction(y) - variance / scale) ** 2 / (2 * variance)
            constants.add(proposal + acceptance - Fraction(y * y) / (2 * variance))
        assert len(constants) == 1


def test_a_coin_in_doubt_is_decided_by_exact_arithmetic_with_the_same_result(monkeypatch):
    """With the band of doubt as wide as everything, every coin is exact: the draws must not change."""
    fast = discrete_gaussian(Fraction(37, 3), 300, Randomness(5))
    asked = []
    decide = discrete._decide_exactly

    def counted(word, exponent, randomness):
        asked.append(exponent)
        return decide(word, exponent, randomness)

    monkeypatch.setattr(discrete, "_UNDECIDED", 2.0)
    monkeypatch.setattr(discrete, "_decide_exactly", counted)
    assert np.array_equal(discrete_gaussian(Fraction(37, 3), 300, Randomness(5)), fast)
    assert len(asked) > 1000


@pytest.mark.parametrize("variance", [Fraction(37, 3), Fraction(10**9, 7), Fraction(2**70)])
def test_no_rounding_of_a_coin_of_the_discrete_gaussian_leaves_the_band_of_doubt(variance):
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    magnitudes = sorted({round(scale * each) for each in np.linspace(0.0, 9.0, 200)})
    worst = 0.0
    with mpmath.workdps(60):
        for y in magnitudes:
            # As discrete_gaussian computes it in float64, and as it is.
            rounded = np.exp(-((float(y) - float(variance / scale)) ** 2) / (2 * float(variance)))
            exponent = (y - variance / scale) ** 2 / (2 * variance)
            true = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
            worst = max(worst, float(abs(mpmath.mpf(float(rounded)) - true)))
    # A uniform number is cut to 53 bits.
    assert worst + 2.0**-53 < discrete._UNDECIDED


def test_rational_bounds_enclose_the_exponential():
    for exponent in (
        Fraction(0),
        Fraction(1, 3),
        Fraction(17, 2),
        Fraction(900),
        Fraction(1, 10**30),
    ):
        for digits in (25, 60):
            low, high = _exp_below(exponent, digits)
            with mpmath.workdps(120):
                true = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
                bounds = [mpmath.mpf(b.numerator) / b.denominator for b in (low, high)]
                assert bounds[0] < true < bounds[1]
                assert (bounds[1] - bounds[0]) / true < mpmath.mpf(10) ** (7 - digits)


def test_a_word_that_does_not_decide_asks_for_more_bits():
    with mpmath.workdps(80):
        bits = int(mpmath.floor(mpmath.exp(-mpmath.mpf(1) / 3) * mpmath.mpf(2) ** 192))
    head, middle, tail = bits >> 128, (bits >> 64) & (2**64 - 1), bits & (2**64 - 1)
    third = Fraction(1, 3)
    assert _decide_exactly(head - 1, third, Words([]))
    assert not _decide_exactly(head + 1, third, Words([]))
    assert _decide_exactly(head, third, Words([middle - 1]))
    assert not _decide_exactly(head, third, Words([middle + 1]))
    assert _decide_exactly(head, third, Words([middle, tail - 1]))
    assert not _decide_exactly(head, third, Words([middle, tail + 1]))


def test_wide_discrete_gaussians_have_the_right_spread():
    sigma = 2.0**19 + 0.5
    drawn = discrete_gaussian(sigma**2, 20_000, Randomness(3)) / sigma
    assert_continuous_law(drawn, stats.norm.cdf)


@settings(max_examples=30, deadline=None)
@given(st.fractions(Fraction(1, 10), 30), st.integers(1, 8), st.floats(1.01, 50.0))
def test_the_discrete_gaussian_meets_the_continuous_zcdp_bound(variance, shift, order):
    """Rényi divergence of the shifted law, summed over its support, is at most order · shift²/2σ²."""
    reach = math.ceil(40 * math.sqrt(float(variance))) + 60 * shift * math.ceil(order)
    x = np.arange(-reach, reach + 1, dtype=float)
    near = -(x**2) / (2 * float(variance))
    moved = -((x - shift) ** 2) / (2 * float(variance))
    norm = np.logaddexp.reduce(near)
    divergence = (np.logaddexp.reduce(order * moved + (1 - order) * near) - norm) / (order - 1)
    assert divergence <= order * shift**2 / (2 * float(variance)) * (1 + 1e-9) + 1e-9


# ---- the lattice


# -- planned releases


@pytest.mark.parametrize("dimension", [1, 7, 10_000])
@pytest.mark.parametrize("sensitivity", [1e-9, 0.3, 1e6])
def test_plan_pays_for_its_rounding(sensitivity, dimension):
    plan = plan_gaussian(sensitivity, 0.7, dimension)
    assert math.log2(plan.grid) % 1 == 0
    assert plan.grid * math.sqrt(dimension) <= sensitivity / 2**10
    total = sensitivity + plan.grid * math.sqrt(dimension)
    assert total**2 / (2 * plan.sigma**2) <= plan.rho == pytest.approx(0.7**2 / 2)
    assert epsilon_of(plan.event(3), 1e-5) == pytest.approx(epsilon_of_zcdp(3 * plan.rho, 1e-5))


def test_noise_of_a_given_size_costs_the_rounded_sensitivity():
    plan = exact_gaussian(1.0, 2.0, 9)
    assert plan.rho >= (1.0 + 3 * plan.grid) ** 2 / 8


def test_exact_release_is_on_its_grid_and_has_its_spread():
    plan = plan_gaussian(1.0, 0.5, 20_000)
    value = np.full(20_000, math.pi)
    drawn = plan.release(value, Randomness(3))
    assert np.array_equal(drawn, np.round(drawn / plan.grid) * plan.grid)
    assert_continuous_law((drawn - math.pi) / plan.sigma, stats.norm.cdf)


def test_release_without_noise_is_the_value_and_costs_infinity():
    plan = plan_gaussian(1.0, math.inf, 2)
    value = np.array([0.1, 0.2])
    assert np.array_equal(plan.release(value, Randomness()), value)
    assert epsilon_of(plan.event(), 1e-5) == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: plan_gaussian(1.0, 0.0, 1),
        lambda: plan_gaussian(0.0, 1.0, 1),
        lambda: plan_gaussian(math.inf, 1.0, 1),
        lambda: plan_gaussian(1.0, 1.0, 0),
        lambda: plan_choice(1.0, 0.0),
        lambda: plan_gaussian(1.0, 1.0, 3).release(np.ones(2), Randomness()),
        lambda: plan_gaussian(1.0, 1.0, 1).release(np.array([math.nan]), Randomness()),
        lambda: plan_gaussian(1e-9, 1.0, 1).release(np.array([1e9]), Randomness()),
    ],
)
def test_what_has_no_guarantee_is_refused(call):
    with pytest.raises(InvalidParameterError):
        call()


# -- choices


def test_choice_follows_its_exponential_law():
    counts, plan = np.array([3.0, 5.0, 4.0, 0.0]), plan_choice(2.0, 1.0)
    law = np.exp(counts / 2.0)
    source = Randomness(1)
    drawn = [int(plan.release(counts, source)) for _ in range(6000)]
    assert_law(np.bincount(drawn, minlength=4), law / law.sum())


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=8),
    st.data(),
    st.floats(0.05, 3.0),
    st.floats(1.1, 30.0),
)
def test_choice_costs_neighbours_no_more_than_its_zcdp(counts, data, mu, order):
    move = data.draw(st.lists(st.integers(-1, 1), min_size=len(counts), max_size=len(counts)))
    one = np.array(counts, dtype=float) * mu
    log_p, log_q = (values - logsumexp(values) for values in (one, one + np.array(move) * mu))
    divergence = logsumexp(order * log_p + (1 - order) * log_q) / (order - 1)
    assert divergence <= order * mu**2 / 2 + 1e-9


def test_choice_between_far_counts_ends_and_takes_the_best():
    counts = np.array([0.0, 10**9, 5.0])
    assert int(plan_choice(1.0, 1.0).release(counts, Randomness(0))) == 1
    assert int(plan_choice(1.0, math.inf).release(counts, Randomness(0))) == 1


def test_threads_share_a_source_without_a_word_twice():
    source = Randomness()
    with ThreadPoolExecutor(8) as pool:
        words = np.concatenate(list(pool.map(lambda _: source.words(2000), range(64))))
    assert len(np.unique(words)) == len(words)
