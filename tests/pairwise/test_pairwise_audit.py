"""Distinguishing audits: what an attacker who knows both neighbours can prove about a release.

Each audit runs one algorithm many times on two adversarial neighbours, projects the output on the direction that separates
them and turns error counts into a lower bound on epsilon. Clopper-Pearson limits at 1e-7 per side keep false alarms below
1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from pairwise import sgd
from pairwise.accounting import gaussian_mu
from pairwise.domains import L2Ball, WholeSpace
from pairwise.gradient import AUCPairs, noisy_descent, plan_gradient
from pairwise.noise import Randomness, gaussian
from pairwise.statistics import contributions, moment_sensitivity, plan_moments

DELTA = 1e-5
CONFIDENCE = 1e-7


def lower_bound(one: np.ndarray, two: np.ndarray, delta: float = DELTA) -> float:
    """Return a lower bound on epsilon at fixed thresholds chosen on the first half of the runs."""
    half = len(one) // 2
    best, cut, sign = -math.inf, 0.0, 1.0
    for s in (1.0, -1.0):
        for t in np.quantile(
            s * np.concatenate((one[:half], two[:half])), np.linspace(0.02, 0.98, 49)
        ):
            hit, false = (s * one[:half] > t).mean(), (s * two[:half] > t).mean()
            value = math.log(max(hit - delta, 1e-9) / max(false, 3 / half))
            if value > best:
                best, cut, sign = value, t, s
    hits = int((sign * one[half:] > cut).sum())
    false = int((sign * two[half:] > cut).sum())
    m = len(one) - half
    low = beta.ppf(CONFIDENCE, hits, m - hits + 1) if hits else 0.0
    high = beta.ppf(1 - CONFIDENCE, false + 1, m - false) if false < m else 1.0
    return max(0.0, math.log(max(low - delta, 1e-300) / high))


def _neighbours(n=12):
    """The pair that attains the AUC sensitivity: one positive among negatives at the antipode becomes a negative there."""
    X = np.tile([-1.0, 0.0], (n, 1))
    y = np.zeros(n, bool)
    X1, y1 = X.copy(), y.copy()
    X1[0], y1[0] = [1.0, 0.0], True
    return (X1, y1), (X, y)


def _gradient_runs(factor: float, runs: int) -> list[np.ndarray]:
    outs = []
    for side, (X, y) in enumerate(_neighbours()):
        sums = AUCPairs(X, y, "hinge")
        plan = plan_gradient(sums, (2,), 1.0, DELTA, travel=1.0, steps=1, rate=1.0)
        object.__setattr__(plan, "sigma", plan.sigma * factor)
        source = Randomness(100 + side)
        outs.append(
            np.array(
                [
                    noisy_descent(sums, plan, WholeSpace(), np.zeros(2), source)[0]
                    for _ in range(runs)
                ]
            )
        )
    return outs


def _sgd_runs(factor: float, runs: int) -> list[np.ndarray]:
    outs = []
    mu = gaussian_mu(1.0, DELTA)
    for side, (X, y) in enumerate(_neighbours()):
        sums = AUCPairs(X, y, "logistic", 1.0, 2.0)
        sequence = sgd.shuffled_blocks(12, 3, 12, Randomness(0))
        weighted, _ = sgd.block_weights(sequence)
        bound = sgd.average_sensitivity(
            float(weighted.max()), 3, 0.1, sums.pair_change, smooth=True
        )
        average = sgd.blocked_sgd(sums, sequence, 0.1, L2Ball(9.0), np.zeros(2))
        source = Randomness(200 + side)
        noisy = gaussian(np.tile(average[0], runs), bound / mu * factor, source)
        outs.append(noisy)
    return outs


def _moment_runs(factor: float, runs: int) -> list[np.ndarray]:
    plan = plan_moments(gaussian_mu(1.0, DELTA))
    # Within a class at the worst angle, or across classes at right angles: both attain what is audited here.
    a = contributions(np.array([[1.0, 0.0]]), np.array([0]), 2, plan.weights)[0]
    w1, _, w3 = plan.weights
    cosine = -(w1**2) / (2 * w3**2)
    other = np.array([[cosine, math.sqrt(1 - cosine**2)]])
    b = contributions(other, np.array([0]), 2, plan.weights)[0]
    assert np.linalg.norm(a - b) == pytest.approx(moment_sensitivity())
    direction = (a - b) / np.linalg.norm(a - b)
    return [
        gaussian(np.full(runs, u @ direction), plan.sigma * factor, Randomness(300 + side))
        for side, u in enumerate((a, b))
    ]


AUDITS = {
    "gradient": (_gradient_runs, 12_000),
    "sgd": (_sgd_runs, 20_000),
    "moments": (_moment_runs, 20_000),
}


@pytest.mark.parametrize("name", AUDITS)
def test_the_audit_at_epsilon_one_finds_less_than_one(name):
    runs, count = AUDITS[name]
    assert lower_bound(*runs(1.0, count)) < 1.0


@pytest.mark.parametrize("name", ["gradient", "moments"])
def test_the_same_audit_flags_a_copy_with_a_quarter_of_the_noise(name):
    runs, count = AUDITS[name]
    assert lower_bound(*runs(0.25, count)) > 1.0


def test_output_perturbation_with_a_quarter_of_the_noise_is_flagged_where_its_bound_is_nearly_attained():
    # Three full-batch steps reach a smaller share of the bound, so the copy is flagged from noise/8 on.
    assert lower_bound(*_sgd_runs(0.125, 20_000)) > 1.0


def test_the_audited_neighbours_attain_the_gradient_sensitivity():
    (X1, y1), (X2, y2) = _neighbours()
    sums = [AUCPairs(X, y, "hinge") for X, y in ((X1, y1), (X2, y2))]
    moved = np.linalg.norm(sums[0].all_pairs(np.zeros(2)) - sums[1].all_pairs(np.zeros(2))) / 66
    assert moved == pytest.approx(2 * sums[0].pair_change / 12, rel=1e-4)
