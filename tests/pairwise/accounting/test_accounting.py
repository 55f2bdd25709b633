"""What releases cost: the closed forms, sampled releases against known numbers, and calibration."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from pairwise.accounting.accountant import (
    epsilon_of,
    filtered_epsilon,
    gaussian_epsilon,
    zcdp_cost,
)
from pairwise.accounting.events import (
    compose,
    event_of_text,
    gaussian_event,
    pure_event,
    text_of_event,
)
from pairwise.accounting.gaussian import release_mu, zcdp_rho
from pairwise.accounting.parameters import check_privacy_parameters, default_delta
from pairwise.errors import InvalidParameterError, UnsupportedEventError
from textpriv.statement import epsilon_of_zcdp

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
    assert gaussian_epsilon(1 / ratio, delta) == pytest.approx(epsilon, rel=1e-4)


@settings(max_examples=100)
@given(st.floats(0.001, 20.0), st.floats(1e-12, 0.1))
def test_epsilon_of_a_gaussian_is_on_the_safe_side_and_tight(mu, delta):
    def true_delta(epsilon):
        near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return norm.cdf(near) - math.exp(epsilon + norm.logcdf(far))

    epsilon = gaussian_epsilon(mu, delta)
    assert true_delta(epsilon) <= delta * (1 + 1e-6)
    assert epsilon < 1e-3 or true_delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-6)


def test_conversion_of_zcdp_is_the_stated_one():
    assert gaussian_epsilon(math.sqrt(0.2), 1e-5) == pytest.approx(1.760, abs=5e-4)
    assert epsilon_of_zcdp(0.1, 1e-5) == pytest.approx(1.914, abs=5e-4)


@settings(max_examples=50)
@given(st.floats(0.01, 50.0), st.floats(1e-12, 0.01))
def test_zcdp_rho_is_on_the_safe_side_and_tight(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert epsilon_of_zcdp(rho, delta) <= epsilon
    assert epsilon_of_zcdp(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-9)
    # Never more than a Gaussian accounted exactly may have.
    assert gaussian_epsilon(release_mu(epsilon, delta), delta) <= epsilon


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
    assert epsilon_of(event, 1e-5) == pytest.approx(epsilon_of_zcdp(0.18, 1e-5))


def test_pure_epsilons_add_up_and_need_no_delta():
    event = compose([pure_event(0.4), pure_event(0.3)])
    assert epsilon_of(event, 0.0) == pytest.approx(0.7)
    assert epsilon_of(event, 1e-9) <= 0.7 + 1e-12


def test_release_without_noise_costs_infinity():
    assert epsilon_of(compose([gaussian_event(0.0), pure_event(1.0)]), 1e-5) == math.inf
    assert epsilon_of(compose([]), 1e-5) == 0.0


@pytest.mark.parametrize(
    "event",
    [
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0)),
        dp_event.SampledWithoutReplacementDpEvent(10, 5, dp_event.GaussianDpEvent(1.0)),
        dp_event.LaplaceDpEvent(1.0),
        dp_event.ZCDpEvent(0.1, 0.1),
        dp_event.DpEvent,
    ],
    ids=str,
)
def test_event_without_analysis_is_refused(event):
    with pytest.raises((UnsupportedEventError, InvalidParameterError)):
        epsilon_of(event, 1e-5)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(-1.0),
        dp_event.ZCDpEvent(math.nan),
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
            pure_event(0.5),
            dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(0.1), 10.0, 0.0),
        ]
    )
    assert text_of_event(event_of_text(text_of_event(event))) == text_of_event(event)


def test_filter_charges_a_selection_by_the_costs_of_its_trials():
    selected = dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(0.01), 10.0, 0.0)
    cost = filtered_epsilon(selected, 3.0, 1e-5)
    assert filtered_epsilon(dp_event.ZCDpEvent(0.01), 3.0, 1e-5) < cost < 3.0
    assert epsilon_of(selected, 1e-5) <= cost


def test_a_selection_among_compositions_has_an_epsilon():
    trial = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(4.0), dp_event.GaussianDpEvent(8.0)])
    selection = dp_event.RepeatAndSelectDpEvent(trial, 5.0, 0.5)
    assert 0 < epsilon_of(selection, 1e-6) < 10
