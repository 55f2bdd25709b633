"""What releases cost: the closed forms, sampled releases against known numbers, and calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, trapezoid
from scipy.stats import norm

from pairwise.accounting.accountant import _mixture_divergence, calibrate, epsilon_of, zcdp_cost
from pairwise.accounting.events import (
    Adjacency,
    compose,
    event_of_text,
    gaussian_event,
    group_poisson_event,
    pure_event,
    text_of_event,
)
from pairwise.accounting.filter import filtered_epsilon
from pairwise.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    release_mu,
    zcdp_epsilon,
    zcdp_rho,
)
from pairwise.accounting.parameters import check_privacy_parameters, default_delta
from pairwise.errors import InvalidParameterError, UnsupportedEventError

ZERO_OUT = Adjacency.ZERO_OUT


# -- closed forms


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio"),
    [
        (0.1, 1e-5, 30.7496),
        (0.5, 1e-5, 7.0318),
        (1, 1e-5, 3.7306),
        (2, 1e-5, 1.9938),
        (4, 1e-5, 1.0812),
        (8, 1e-5, 0.6002),
        (1, 1e-6, 4.2247),
        (10, 1e-6, 0.5411),
    ],
)
def test_noise_of_one_release_is_that_of_balle_and_wang(epsilon, delta, ratio):
    assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(ratio, abs=6e-5)


@settings(max_examples=100)
@given(st.floats(0.01, 50.0), st.floats(1e-12, 0.1))
def test_gaussian_mu_is_on_the_safe_side_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-6)) > delta
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 1.0), (2.0, 0.3), (1.0, 3.0)])
def test_gaussian_delta_is_its_integral(mu, epsilon):
    def excess(x):
        return max(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0.0)

    assert gaussian_delta(epsilon, mu) == pytest.approx(quad(excess, -10, 15)[0], rel=1e-6)


def test_conversion_of_zcdp_is_the_stated_one():
    assert gaussian_epsilon(math.sqrt(0.2), 1e-5) == pytest.approx(1.760, abs=5e-4)
    assert zcdp_epsilon(0.1, 1e-5) == pytest.approx(1.914, abs=5e-4)


@settings(max_examples=50)
@given(st.floats(0.01, 50.0), st.floats(1e-12, 0.01))
def test_zcdp_rho_is_on_the_safe_side_and_tight(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-9)
    # Never more than a Gaussian accounted exactly may have.
    assert release_mu(epsilon, delta) <= gaussian_mu(epsilon, delta)


def test_default_delta_falls_with_the_records():
    assert default_delta(100) == 1e-5
    assert default_delta(10_000) == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "n"),
    [(0, 1e-5, 10), (-1, 1e-5, 10), (math.nan, 1e-5, 10), (1, 0.0, 10), (1, 0.1, 10), (1, 1.0, 10)],
)
def test_settings_that_promise_nothing_are_refused(epsilon, delta, n):
    with pytest.raises(InvalidParameterError):
        check_privacy_parameters(epsilon, delta, n)


# -- events


def test_adaptive_gaussians_are_one_gaussian():
    event = compose([gaussian_event(3.0), gaussian_event(4.0, 2)])
    mu = math.sqrt(1 / 9 + 2 / 16)
    assert epsilon_of(event, 1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-12)


def test_rho_of_gaussian_zcdp_and_pure_releases_adds_up():
    event = compose([gaussian_event(2.0), dp_event.ZCDpEvent(0.05), pure_event(0.1)])
    assert zcdp_cost(event) == pytest.approx(1 / 8 + 0.05 + 0.005)
    assert epsilon_of(event, 1e-5) == pytest.approx(zcdp_epsilon(0.18, 1e-5))


def test_pure_epsilons_add_up_and_need_no_delta():
    event = compose([pure_event(0.4), pure_event(0.3)])
    assert epsilon_of(event, 0.0) == pytest.approx(0.7)
    assert epsilon_of(event, 1e-9) <= 0.7 + 1e-12


def test_release_without_noise_costs_infinity():
    assert epsilon_of(compose([gaussian_event(0.0), pure_event(1.0)]), 1e-5) == math.inf
    assert epsilon_of(compose([]), 1e-5) == 0.0


def test_sampled_numbers_are_those_of_the_specification():
    event = group_poisson_event(1.0, 1, 50 / 37400, 7480)
    assert 0.6538 <= epsilon_of(event, 1e-6, Adjacency.ADD_REMOVE) <= 0.66863
    event = group_poisson_event(0.775, 3, 50 / 37400, 7480)
    assert epsilon_of(event, 1e-6, ZERO_OUT) == pytest.approx(4.0, rel=0.02)


def test_one_of_a_group_of_one_is_a_poisson_sample():
    event = group_poisson_event(1.0, 1, 0.1, 3).event
    assert isinstance(event, dp_event.PoissonSampledDpEvent)
    assert isinstance(group_poisson_event(1.0, 2, 0.1, 3).event, dp_event.MixtureOfGaussiansDpEvent)


def test_secret_sample_never_costs_more_than_all_pairs():
    for q in (0.01, 0.5, 0.99):
        whole = epsilon_of(gaussian_event(2.0, 10), 1e-5, ZERO_OUT)
        assert epsilon_of(group_poisson_event(2.0, 1, q, 10), 1e-5, ZERO_OUT) <= whole


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (group_poisson_event(1.0, 2, 0.1, 3), "replace-one"),
        (
            dp_event.SampledWithoutReplacementDpEvent(10, 5, dp_event.GaussianDpEvent(1.0)),
            "replace-one",
        ),
        (dp_event.DpEvent, "replace-one"),
        (dp_event.LaplaceDpEvent(1.0), "replace-one"),
        (dp_event.ApproximateDpEvent(1.0, 1e-5) if hasattr(dp_event, "ApproximateDpEvent") else 3,)
        * 2,
    ],
)
def test_event_without_analysis_is_refused(event, adjacency):
    with pytest.raises((UnsupportedEventError, InvalidParameterError)):
        epsilon_of(event, 1e-5, adjacency)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(-1.0),
        dp_event.ZCDpEvent(math.nan),
        dp_event.PoissonSampledDpEvent(1.5, dp_event.GaussianDpEvent(1.0)),
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), -1),
    ],
)
def test_numbers_that_no_release_has_are_refused(event):
    with pytest.raises(InvalidParameterError):
        epsilon_of(event, 1e-5)


def test_events_survive_their_text():
    event = compose(
        [
            gaussian_event(2.0, 3),
            group_poisson_event(1.0, 3, 0.1, 5),
            pure_event(0.5),
            dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(0.1), 10.0, 0.0),
        ]
    )
    assert text_of_event(event_of_text(text_of_event(event))) == text_of_event(event)


# -- mixtures, at one order


@settings(max_examples=25, deadline=None)
@given(st.floats(0.4, 3.0), st.floats(0.01, 0.9), st.floats(1.2, 12.0))
def test_mixture_bound_covers_both_integrals_and_is_tight(z, q, order):
    def log_ratio(x):
        return np.logaddexp(math.log(1 - q), math.log(q) + (2 * x - 1) / (2 * z * z))

    both = []
    for power in (order, 1 - order):
        x = np.linspace(-12 * z - 2, order + 12 * z, 200_001)
        mass = np.exp(norm.logpdf(x, 0, z) + power * log_ratio(x))
        both.append(math.log(trapezoid(mass, x)) / (order - 1))
    found = _mixture_divergence(z, (0.0, 1.0), (1 - q, q), order)
    plain = order / (2 * z * z)
    assert found >= min(max(both), plain) * (1 - 1e-6)
    assert found <= max(both) * 1.02 + 1e-4


def test_group_bound_covers_the_integral_of_three_components():
    sizes, chances, z, order = (0.0, 0.5, 1.0), (0.81, 0.18, 0.01), 0.5, 4.0

    def ratio(x):
        return sum(
            p * math.exp((2 * s * x - s * s) / (2 * z * z))
            for p, s in zip(chances, sizes, strict=True)
        )

    mass, _ = quad(lambda x: norm.pdf(x, 0, z) * ratio(x) ** order, -8, 14, limit=400)
    true = math.log(mass) / (order - 1)
    assert true <= _mixture_divergence(z, sizes, chances, order) <= 1.02 * true


def test_filter_pays_for_a_group_by_its_largest_sum():
    # Were the sums not divided by their largest, a group of ten would cost like one record that is always there.
    for q in (0.05, 0.5):
        event = group_poisson_event(20.0, 10, q, 10)
        found = filtered_epsilon(event, (3.0, 1e-5), ZERO_OUT)
        assert epsilon_of(event, 1e-5, ZERO_OUT) <= found
        assert found <= filtered_epsilon(gaussian_event(2.0, 10), (3.0, 1e-5), ZERO_OUT)


def test_filter_reads_replaced_poisson_samples_at_twice_the_norm():
    event = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(4.0))
    same = filtered_epsilon(gaussian_event(2.0), (3.0, 1e-5), Adjacency.REPLACE_ONE)
    assert filtered_epsilon(event, (3.0, 1e-5), Adjacency.REPLACE_ONE) == pytest.approx(same)
    assert filtered_epsilon(event, (3.0, 1e-5), ZERO_OUT) < same


# -- calibration


@pytest.mark.parametrize(("kappa", "q", "steps"), [(1, 0.05, 20), (3, 0.3, 5)])
def test_calibrated_noise_costs_what_was_asked(kappa, q, steps):
    def make(sigma):
        return group_poisson_event(sigma, kappa, q, steps)

    sigma = calibrate(make, 1.0, 1e-6, ZERO_OUT)
    assert epsilon_of(make(sigma), 1e-6, ZERO_OUT) <= 1.0
    assert epsilon_of(make(sigma * 0.99), 1e-6, ZERO_OUT) > 1.0


def test_no_noise_is_needed_without_a_limit_and_none_suffices_for_nothing():
    assert calibrate(gaussian_event, math.inf, 1e-5, ZERO_OUT) == 0.0
    with pytest.raises(InvalidParameterError, match="no noise reaches"):
        calibrate(lambda _: gaussian_event(1.0), 0.1, 1e-5, ZERO_OUT)
