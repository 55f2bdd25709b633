"""Noise: the laws that come out, the ratios they promise, and the source they are drawn from.

Statistical tests run on fixed seeds; each states its false-alarm rate, that is how often it would fail on a fresh seed.
"""

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

from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.gaussian import gaussian_sigma
from pairwise.accounting.zcdp import zcdp_epsilon, zcdp_rho
from pairwise.errors import InvalidParameterError
from pairwise.noise import discrete
from pairwise.noise import randomness as randomness_module
from pairwise.noise.continuous import (
    _positive_corners,
    duchi,
    duchi_scale,
    gaussian,
    laplace,
    staircase,
    staircase_l1,
    staircase_start,
)
from pairwise.noise.discrete import _decide_exactly, _exp_below, discrete_gaussian, discrete_laplace
from pairwise.noise.lattice import (
    lattice_gaussian,
    lattice_gaussian_plan,
    lattice_laplace,
    lattice_laplace_plan,
)
from pairwise.noise.randomness import Randomness

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


# ---- the source


def test_the_default_source_is_secret_and_never_repeats():
    first, second = Randomness(), Randomness()
    assert first.secure
    assert first.note is None
    assert not np.array_equal(first.words(8), second.words(8))
    assert not np.array_equal(first.words(8), first.words(8))


def test_the_secure_stream_is_chacha20(monkeypatch):
    monkeypatch.setattr(randomness_module.os, "urandom", lambda count: bytes(count))
    # Key, nonce and counter zero: the first block of RFC 8439, appendix A.1, test vector 1.
    first = Randomness().words(2).tobytes()
    assert first.hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_long_and_short_reads_give_one_stream(monkeypatch):
    monkeypatch.setattr(randomness_module.os, "urandom", lambda count: bytes(count))
    source = Randomness()
    pieces = np.concatenate([source.words(count) for count in (0, 1, 20_000, 3)])
    assert np.array_equal(pieces, Randomness().words(20_004))


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


def test_uniforms_never_reach_their_ends():
    lowest, highest = Words([0, 2**64 - 1]).uniform(2)
    assert lowest == 2.0**-53
    assert highest == 1 - 2.0**-53
    lowest, highest = Words([0, 2**64 - 1, 0, 2**64 - 1]).tail(2)
    assert lowest == 2.0**-129
    assert highest < 1


def test_normals_reach_thirteen_deviations():
    # Sign word 0, then the two words of the smallest uniform.
    assert Words([0, 0, 0]).normal(1)[0] == pytest.approx(13.2, abs=0.1)


def test_normals_exponentials_and_signs_follow_their_laws():
    source = Randomness(10)
    sample = source.normal((1000, 100))
    assert sample.shape == (1000, 100)
    assert_continuous_law(sample, stats.norm.cdf)
    # Neighbours in the stream are uncorrelated: |r| is above 5.4/√n with probability below 1e-7.
    assert abs(np.corrcoef(sample.ravel()[:-1], sample.ravel()[1:])[0, 1]) < 5.4 / math.sqrt(1e5)
    assert_continuous_law(source.exponential(50_000), stats.expon.cdf)
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


# ---- cheap path


def test_gaussian_and_laplace_noise_have_their_laws_and_land_on_the_grid():
    source = Randomness(12)
    drawn = gaussian(np.full(60_000, 0.1), 0.7, source) - 0.1
    assert_continuous_law(drawn / 0.7, stats.norm.cdf)
    drawn = laplace(np.full(60_000, -2.0), 3.0, source) + 2.0
    assert_continuous_law(drawn / 3.0, stats.laplace.cdf)
    for released, scale in (
        (gaussian(np.pi * np.ones(99), 0.7, source), 0.7),
        (laplace(np.pi * np.ones(99), 0.7, source), 0.7),
    ):
        grid = 2.0 ** math.floor(math.log2(scale / 1024))
        assert np.array_equal(released, np.round(released / grid) * grid)


def test_no_noise_returns_the_value_itself():
    value = np.array([0.1, 0.2])
    for release in (gaussian(value, 0.0, Randomness()), laplace(value, 0.0, Randomness())):
        assert np.array_equal(release, value)
        assert release is not value


# ---- staircase


def staircase_density(x, epsilon, sensitivity=1.0):
    start = staircase_start(sensitivity, epsilon)
    steps = np.ceil(np.maximum(np.abs(x) - start, 0) / sensitivity)
    return epsilon / (2 * sensitivity) * np.exp(-epsilon * steps)


@pytest.mark.parametrize("epsilon", [1e-6, 5e-5, 2e-4, 0.1, 1.0, 5.0])
def test_staircase_has_mass_one(epsilon):
    start = staircase_start(2.0, epsilon)
    height = epsilon / 4.0
    mass = 2 * height * start + 2 * height * 2.0 * math.exp(-epsilon) / -math.expm1(-epsilon)
    assert mass == pytest.approx(1.0, rel=1e-9)


def test_staircase_variance_is_below_that_of_laplace():
    start, height = staircase_start(1.0, 1.0), 0.5
    variance = 2 * height * start**3 / 3
    for j in range(1, 200):
        low, high = start + j - 1, start + j
        variance += 2 * height * math.exp(-j) * (high**3 - low**3) / 3
    assert variance == pytest.approx(1.918, abs=5e-4)
    source = Randomness(1)
    drawn = np.array([float(staircase(0.0, 1.0, 1.0, source)) for _ in range(20_000)])
    # The fourth moment is below 24.1, so 5.4 standard errors are below 0.2.
    assert np.mean(drawn**2) == pytest.approx(1.918, abs=0.2)


def test_staircase_draws_follow_their_density():
    source = Randomness(2)
    start = staircase_start(2.0, 0.8)
    drawn = np.array([float(staircase(0.0, 2.0, 0.8, source)) for _ in range(20_000)])
    edges = [-np.inf]
    edges += [-start - 2.0 * j for j in range(8, -1, -1)] + [start + 2.0 * j for j in range(9)]
    edges += [np.inf]
    counts = np.histogram(drawn, edges)[0]
    height = 0.2
    inner = [2 * height * start]
    side = [height * 2.0 * math.exp(-0.8 * j) for j in range(1, 9)]
    rest = (1 - inner[0]) / 2 - sum(side)
    assert_law(counts, [rest, *side[::-1], *inner, *side, rest])


@pytest.mark.parametrize("shift", [1.0, 0.5, 0.1])
def test_a_staircase_costs_the_full_epsilon_for_every_shift(shift):
    x = np.linspace(-12, 12, 240_001)
    loss = np.log(staircase_density(x, 1.0) / staircase_density(x + shift, 1.0))
    assert np.abs(loss).max() == pytest.approx(1.0, abs=1e-12)


def test_staircase_noise_on_the_coordinates_of_a_vector_would_cost_each_of_them():
    # Two coordinates moved by 0.5 each: l1 sensitivity 1, loss 2 epsilon (mechanisms.md DPP-4).
    at = staircase_start(1.0, 1.0) - 0.25
    once = math.log(staircase_density(at, 1.0) / staircase_density(at + 0.5, 1.0))
    assert 2 * once == pytest.approx(2.0)
    with pytest.raises(InvalidParameterError, match="staircase_l1"):
        staircase(np.zeros(2), 1.0, 1.0, Randomness())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 4.0), st.integers(1, 6))
def test_the_l1_staircase_costs_at_most_epsilon_in_any_dimension(seed, epsilon, size):
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=size) * 3
    shift = rng.laplace(size=size)
    shift *= rng.uniform(0, 1) / np.abs(shift).sum()
    ends = np.array([np.abs(x).sum(), np.abs(x + shift).sum()])
    loss = np.log(staircase_density(ends, epsilon))
    assert abs(loss[0] - loss[1]) <= epsilon + 1e-9


@pytest.mark.parametrize("size", [1, 3])
def test_l1_staircase_draws_follow_their_radial_law(size):
    source, epsilon = Randomness(3), 0.9
    start = staircase_start(1.0, epsilon)
    drawn = np.array([staircase_l1(np.zeros(size), 1.0, epsilon, source) for _ in range(8000)])
    radii = np.abs(drawn).sum(axis=1)
    edges = np.append(start + np.arange(25), np.inf)
    shells = np.diff(np.append(0.0, start + np.arange(400)) ** size)
    mass = shells * np.exp(-epsilon * np.arange(400))
    mass /= mass.sum()
    counts = np.histogram(radii, np.append(0.0, edges))[0]
    assert_law(counts, np.append(mass[:25], mass[25:].sum()))
    # Given the radius, every orthant is equally likely, and each share of the radius is Beta(1, p - 1).
    orthants = ((drawn > 0) @ 2 ** np.arange(size)).astype(int)
    assert_law(np.bincount(orthants, minlength=2**size), [2.0**-size] * 2**size)
    if size > 1:
        share = np.abs(drawn[:, 0]) / radii
        fine = share[radii > 0.5]  # the output grid blurs the share of small radii
        assert_continuous_law(fine, lambda s: stats.beta.cdf(s, 1, size - 1))


def test_an_l1_staircase_too_long_to_tabulate_is_refused():
    with pytest.raises(InvalidParameterError, match="laplace"):
        staircase_l1(np.zeros(1000), 1.0, 1e-6, Randomness())


# ---- Duchi


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, 2.1640), (2, 3.3279), (3, 4.3279), (4, 4.7705), (5, 5.7705), (6, 5.9247)],
)
def test_duchi_scale_equals_the_stated_values(size, expected):
    assert duchi_scale(size, 1.0) == pytest.approx(expected, abs=6e-5)


def duchi_law(x, epsilon):
    """Return the exact law over the corners, by enumeration of the definition."""
    corners = np.array(list(itertools.product([-1, 1], repeat=len(x))))
    count = _positive_corners(len(x))
    chance = math.exp(epsilon) * count / (math.expm1(epsilon) * count + 2 ** len(x))
    law = np.zeros(len(corners))
    for v in corners:
        positive = corners @ v > 0
        assert positive.sum() == count
        given_v = np.where(positive, chance / count, (1 - chance) / (len(corners) - count))
        law += np.prod((1 + v * np.asarray(x)) / 2) * given_v
    return corners, law


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_duchi_is_unbiased_with_log_ratio_exactly_epsilon(size, epsilon):
    rng = np.random.default_rng(size)
    inputs = [rng.uniform(-1, 1, size) for _ in range(4)] + [np.ones(size), -np.ones(size)]
    laws = []
    for x in inputs:
        corners, law = duchi_law(x, epsilon)
        assert law.sum() == pytest.approx(1.0)
        assert duchi_scale(size, epsilon) * law @ corners == pytest.approx(x, abs=1e-9)
        laws.append(law)
    worst = max(np.max(np.log(a / b)) for a in laws for b in laws)
    assert worst == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("x", [(0.4,), (0.3, -0.8), (1.0, -1.0), (0.1, -0.2, 0.9)])
def test_duchi_draws_follow_the_enumerated_law(x):
    source = Randomness(9)
    corners, law = duchi_law(x, 1.0)
    weights = 2 ** np.arange(len(x))[::-1]
    counts = np.zeros(len(corners))
    for _ in range(6000):
        drawn = duchi(np.array(x), 1.0, source) / duchi_scale(len(x), 1.0)
        counts[int((drawn > 0) @ weights)] += 1
    assert_law(counts, law)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_two_closed_half_spaces_break_the_promise_in_even_dimension(size):
    """The published form: T⁺ = {t·v >= 0} with probability e^ε/(1 + e^ε), else T⁻ = {t·v <= 0}."""
    corners = np.array(list(itertools.product([-1, 1], repeat=size)))
    odds = math.e / (1 + math.e)
    laws = []
    for v in corners:
        upper, lower = corners @ v >= 0, corners @ v <= 0
        laws.append(odds * upper / upper.sum() + (1 - odds) * lower / lower.sum())
    worst = max(np.max(np.log(a / b)) for a in laws for b in laws)
    # A corner orthogonal to v is in both sets: ln(1 + e) = 1.313 rather than 1.
    assert worst == pytest.approx(1.0 if size % 2 else math.log(1 + math.e))


def test_duchi_works_in_high_dimension_and_large_epsilon():
    x = np.linspace(-1, 1, 1500)
    released = duchi(x.reshape(30, 50), 50.0, Randomness(0))
    assert released.shape == (30, 50)
    assert np.all(np.abs(released) == duchi_scale(1500, 50.0))
    # At a large epsilon the half-space of v is certain; the first order of B is then √(πd/2).
    assert duchi_scale(1500, 50.0) == pytest.approx(math.sqrt(math.pi * 1500 / 2), rel=0.03)


def test_duchi_refuses_entries_outside_the_cube():
    with pytest.raises(InvalidParameterError, match=r"\[-1, 1\]"):
        duchi(np.array([1.1]), 1.0, Randomness())


# ---- exact discrete noise


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


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_discrete_laplace_draws_follow_their_law(scale):
    drawn = discrete_laplace(scale, 40_000, Randomness(22))
    reach = 60 * scale
    x = np.arange(-reach, reach + 1)
    law = np.tanh(0.5 / scale) * np.exp(-np.abs(x) / scale)
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


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(1, 5000), st.floats(1e-3, 10.0))
def test_the_lattice_plan_pays_for_its_rounding(sensitivity, dimension, rho):
    plan = lattice_gaussian_plan(sensitivity, dimension, rho=rho)
    assert math.log2(plan.grid).is_integer()
    assert plan.grid <= sensitivity / (2**10 * math.sqrt(dimension))
    assert plan.surcharge == pytest.approx(plan.grid * math.sqrt(dimension))
    assert plan.sensitivity >= sensitivity + plan.surcharge
    assert plan.sensitivity <= sensitivity * (1 + 2**-10) * (1 + 1e-12)
    assert plan.rho >= plan.sensitivity**2 / (2 * plan.scale**2) * (1 - 1e-14)
    assert plan.rho == pytest.approx(rho, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans())
def test_rounded_neighbours_stay_within_the_surcharged_sensitivity(seed, size, halves):
    rng = np.random.default_rng(seed)
    gaussian_plan = lattice_gaussian_plan(1.0, size, rho=0.1)
    laplace_plan = lattice_laplace_plan(1.0, size, epsilon=1.0)
    for plan, order in ((gaussian_plan, 2), (laplace_plan, 1)):
        x = rng.standard_normal(size)
        if halves:  # at rounding boundaries, where the surcharge is used up
            x = (np.floor(x / plan.grid) + 0.5) * plan.grid
        shift = rng.standard_normal(size)
        shift /= np.linalg.norm(shift, order)
        moved = np.round((x + shift) / plan.grid) - np.round(x / plan.grid)
        assert np.linalg.norm(moved, order) * plan.grid <= plan.sensitivity


def test_the_surcharge_is_relative_to_the_sensitivity_not_to_the_noise():
    # mechanisms.md 2.2: a grid of σ/2^10 in a million coordinates would cost 0.98 σ, 3.6 times the sensitivity.
    sigma = gaussian_sigma(1.0, 1e-5)
    naive = sigma / 2**10 * 1000
    assert naive / sigma == pytest.approx(0.98, abs=5e-3)
    assert naive == pytest.approx(3.6, abs=0.05)
    assert lattice_gaussian_plan(1.0, 10**6, sigma=sigma).surcharge <= 2**-10


def test_noise_of_a_given_size_costs_the_sensitivity_with_its_rounding():
    plan = lattice_gaussian_plan(2.0, 50, sigma=3.0)
    assert plan.rho == pytest.approx((2.0 + plan.grid * math.sqrt(50)) ** 2 / 18.0, rel=1e-12)


def test_a_lattice_release_is_charged_as_zcdp():
    rho = zcdp_rho(1.0, 1e-5)
    plan = lattice_gaussian_plan(2.0, 50, rho=rho)
    spent = epsilon_of(plan.event, 1e-5)
    assert spent == zcdp_epsilon(plan.rho, 1e-5)
    assert spent == pytest.approx(1.0, rel=1e-6)
    assert epsilon_of(lattice_laplace_plan(2.0, 50, epsilon=0.7).event, 0.0) == 0.7


def test_lattice_releases_lie_on_the_grid_around_the_value():
    source = Randomness(8)
    value = np.linspace(-5, 5, 30_000)
    for plan, release, law in (
        (lattice_gaussian_plan(1.0, 30_000, sigma=0.8), lattice_gaussian, stats.norm.cdf),
        (lattice_laplace_plan(1.0, 30_000, epsilon=1.25), lattice_laplace, stats.laplace.cdf),
    ):
        released = release(value, plan, source)
        steps = released / plan.grid
        assert np.array_equal(steps, np.round(steps))
        assert_continuous_law((released - value) / plan.scale, law)


@pytest.mark.parametrize("dimension", [1, 5, 40, 700])
def test_laplace_noise_pays_for_rounding_in_every_coordinate(dimension):
    for epsilon in (0.01, 0.7, 30.0):
        plan = lattice_laplace_plan(2.0, dimension, epsilon=epsilon)
        assert plan.surcharge == plan.grid * dimension
        assert (2.0 + plan.grid * dimension) / plan.scale <= epsilon


def test_the_lattice_laplace_meets_its_pure_epsilon_with_whole_steps():
    for epsilon, size in itertools.product((0.1, 1.0, 7.0), (1, 33, 1000)):
        plan = lattice_laplace_plan(0.3, size, epsilon=epsilon)
        steps = round(plan.scale / plan.grid)
        assert steps * plan.grid == plan.scale
        assert Fraction(plan.sensitivity) / Fraction(plan.scale) <= Fraction(epsilon)
        assert plan.scale <= 0.3 / epsilon * (1 + 2**-10) * (1 + 1e-12) + plan.grid


@pytest.mark.parametrize(
    "call",
    [
        lambda: lattice_gaussian(np.zeros(3), lattice_gaussian_plan(1.0, 2, rho=1), Randomness()),
        lambda: lattice_laplace(np.zeros(2), lattice_gaussian_plan(1.0, 2, rho=1), Randomness()),
        lambda: lattice_gaussian(
            np.array([1e30]), lattice_gaussian_plan(1, 1, rho=1), Randomness()
        ),
        lambda: lattice_gaussian_plan(1.0, 2),
        lambda: lattice_gaussian_plan(1.0, 2, rho=1.0, sigma=1.0),
        lambda: lattice_gaussian_plan(0.0, 2, rho=1.0),
        lambda: lattice_laplace_plan(1.0, 0, epsilon=1.0),
        lambda: discrete_gaussian(0, 3, Randomness()),
        lambda: discrete_laplace(1.5, 3, Randomness()),
        lambda: gaussian(np.array([np.nan]), 1.0, Randomness()),
        lambda: gaussian(np.zeros(1), -1.0, Randomness()),
        lambda: laplace(np.zeros(1), math.inf, Randomness()),
        lambda: Randomness().integers(0),
    ],
)
def test_what_has_no_guarantee_is_refused(call):
    with pytest.raises(InvalidParameterError):
        call()


def test_threads_share_a_source_without_an_error_and_without_a_word_twice():
    source = Randomness()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: source.words(20_000), range(50)))
    # Of a million words of 64 bits two are equal in less than one run of ten million.
    assert len(np.unique(np.concatenate(drawn))) == 1_000_000
