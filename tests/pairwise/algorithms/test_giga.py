"""Pairwise GIGA: burn-ins, certified sensitivities, streams and the published formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pairwise.accounting.accountant import epsilon_of, zcdp_cost
from pairwise.accounting.gaussian import gaussian_mu
from pairwise.accounting.zcdp import release_mu, zcdp_epsilon_classic, zcdp_rho_classic
from pairwise.algorithms import giga
from pairwise.errors import PairwiseError
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.domains import L2Ball
from pairwise.pairs.sums import AUCPairs, MetricPairs


def test_the_published_burn_in_is_256128016_at_the_constants_of_the_paper():
    # A floating-point ceiling may return one more (mechanisms.md H-2).
    assert giga.published_burn_in(4.001, 1e-3) in (256_128_016, 256_128_017)
    assert giga.sharp_burn_in(4.001, 1e-3) in (4002, 4003)


def test_the_published_burn_in_is_never_below_seven():
    assert giga.published_burn_in(0.1, 1.0) == 7


def test_certified_average_reproduces_the_numbers_of_the_specification():
    # n = 2000, alpha = 0.1, G = L = 4, general losses (D = 2G): mechanisms.md 5.2.
    for burn_in, uncapped, capped in ((0, 0.446, 0.313), (42, 0.315, 0.277)):
        steps = giga.schedule(2000, 4.0, 0.1, burn_in=burn_in)
        assert giga.certified_sensitivity(steps, 8.0, 4.0).average == pytest.approx(
            uncapped, abs=1e-3
        )
        assert giga.certified_sensitivity(steps, 8.0, 4.0, 2.0).average == pytest.approx(
            capped, abs=1e-3
        )


def test_published_offline_noise_corresponds_to_the_sensitivity_of_the_specification():
    # 8 G ln(n)/(alpha n) = 1.22 with G = 4 (mechanisms.md 5.2); the classic Gaussian formula is the rest.
    sigma = giga.published_offline_sigma(2000, 4.0, 0.1, 0.9, 1e-5)
    classic = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9
    assert sigma / classic == pytest.approx(1.22, abs=0.005)


def test_the_published_noise_at_the_settings_of_the_paper_drowns_the_unit_ball():
    # mechanisms.md H-2: OffPairStrC at n = 90, epsilon = 1.5, lambda = 1e-3, delta = 1/90.
    sigma = giga.published_offline_sigma(90, 4.0, 1e-3, 1.5, 1 / 90)
    assert sigma == pytest.approx(3.3e3, rel=0.01)


def test_certified_steps_stay_below_4_7_from_the_sharp_burn_in_on_and_not_before():
    alpha, L, G = 0.5, 1.0, 3.0
    n = 400
    t = np.arange(n + 1)
    for burn_in in (giga.sharp_burn_in(L + alpha, alpha), 20):
        steps = giga.schedule(n, L, alpha, kind="published", burn_in=burn_in)
        bound = giga.certified_sensitivity(steps, 2 * G, L).per_step * alpha * t / G
        assert bound.max() <= 4.7
    early = giga.schedule(n, 20.0, alpha, kind="published", burn_in=2)
    assert (giga.certified_sensitivity(early, 2 * G, 20.0).per_step * alpha * t / G).max() > 4.7


def test_rho_solves_its_equation():
    rho = zcdp_rho_classic(2.5, 1 / 90)
    assert zcdp_epsilon_classic(rho, 1 / 90) == pytest.approx(2.5, rel=1e-12)


def _adversarial_pairs(seed: int, n: int, d: int, trials: int, places: list[int]):
    r = np.random.default_rng(seed)
    for _ in range(trials):
        u = r.normal(size=d)
        u /= np.linalg.norm(u)
        X = np.where(r.random((n, 1)) < 0.6, -u, u) if r.random() < 0.7 else r.normal(size=(n, d))
        y = r.random(n) < r.choice([0.1, 0.5, 0.9])
        j = int(r.choice(places)) - 1
        X2, y2 = X.copy(), y.copy()
        X[j] = u * r.choice([1, -1])
        kind = r.integers(3)
        X2[j] = -X[j] if kind != 1 else X[j]
        y2[j] = ~y[j] if kind != 0 else y[j]
        yield X, y, X2, y2


@pytest.mark.parametrize(
    ("kind", "alpha"), [("published", 1.0), ("recommended", 0.5), ("constant", 0.0)]
)
def test_no_adversarial_neighbour_moves_the_average_or_an_iterate_past_its_certificate(kind, alpha):
    n, d = 24, 2
    steps = giga.schedule(n, 4.0, alpha, kind=kind, rate=0.3 if kind == "constant" else None)
    domain = L2Ball(2.0)
    probe = AUCPairs(np.zeros((1, d)), np.zeros(1, bool))
    bound = giga.certified_sensitivity(steps, probe.pair_change, 4.0, domain.diameter)
    places = [1, max(1, steps.burn_in), steps.burn_in + 1, n]
    worst = 0.0
    for X, y, X2, y2 in _adversarial_pairs(3, n, d, 250, places):
        one = giga.offline_giga(AUCPairs(X, y), steps, domain, np.zeros(d))
        two = giga.offline_giga(AUCPairs(X2, y2), steps, domain, np.zeros(d))
        worst = max(worst, float(np.linalg.norm(one - two)) / bound.average)
    assert 0.05 <= worst <= 1.0


class QuadraticPairs:
    """½(s − w·(x − x'))² on pairs of two classes, ½(w·(x − x'))² on others; G = 2R(1 + 2RB), L = 4R²."""

    def __init__(self, X, y):
        self.X, self.y = clip_records(np.asarray(X, dtype=float), 1.0), np.asarray(y, dtype=float)

    def over(self, w, pairs):
        apart = self.X[pairs[:, 0]] - self.X[pairs[:, 1]]
        sign = self.y[pairs[:, 0]] - self.y[pairs[:, 1]]
        return (apart @ w - sign) @ apart


@pytest.mark.parametrize(
    ("kind", "alpha"), [("published", 1.0), ("recommended", 0.5), ("constant", 0.0)]
)
def test_no_adversarial_neighbour_moves_a_quadratic_loss_past_its_certificate(kind, alpha):
    n, d, radius = 24, 2, 0.5
    steps = giga.schedule(n, 4.0, alpha, kind=kind, rate=0.4 if kind == "constant" else None)
    domain = L2Ball(radius)
    change = 2 * 2.0 * (1 + 2 * radius)
    bound = giga.certified_sensitivity(steps, change, 4.0, domain.diameter)
    worst = 0.0
    for X, y, X2, y2 in _adversarial_pairs(7, n, d, 120, [1, steps.burn_in, steps.burn_in + 1, n]):
        one = giga.offline_giga(QuadraticPairs(X, y), steps, domain, np.zeros(d))
        two = giga.offline_giga(QuadraticPairs(X2, y2), steps, domain, np.zeros(d))
        worst = max(worst, float(np.linalg.norm(one - two)) / bound.average)
    assert 0.1 <= worst <= 1.0


def test_the_joint_cost_bounds_the_whole_stream_of_adversarial_neighbours():
    n, d = 20, 2
    steps = giga.schedule(n, 4.0, 1.0, burn_in=5)
    domain = L2Ball(1.5)
    plan = giga.plan_online(steps, 4.0, 4.0, domain.diameter, mu=1.0)
    worst = 0.0
    for X, y, X2, y2 in _adversarial_pairs(4, n, d, 120, [1, 5, 6, n]):
        paths = []
        for table, labels in ((X, y), (X2, y2)):
            w, path = np.zeros(d), []
            sums = AUCPairs(table, labels)
            for t in range(steps.first, n + 1):
                w = giga._step(sums, w, t, steps, np.zeros(d), domain)
                path.append(w / plan.sigmas[t])
            paths.append(np.concatenate(path))
        worst = max(worst, float(np.linalg.norm(paths[0] - paths[1])))
    assert 0.05 <= worst <= 1.0


def test_a_metric_in_m_stays_below_its_certificate():
    n, d = 14, 2
    steps = giga.schedule(n, 4.0, 0.0, kind="constant", rate=0.2)
    domain = L2Ball(1.0)
    r = np.random.default_rng(5)
    probe = MetricPairs(np.zeros((1, d)), np.zeros(1, int), "logistic", 1.0, "matrix")
    bound = giga.certified_sensitivity(steps, probe.pair_change, 4.0, domain.diameter).average
    worst = 0.0
    for _ in range(80):
        u = r.normal(size=d)
        u /= np.linalg.norm(u)
        X = np.where(r.random((n, 1)) < 0.5, u, -u)
        y = r.integers(2, size=n)
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = X[0] * r.choice([1, -1]), 1 - y[0]
        one, two = (
            giga.offline_giga(
                MetricPairs(a, b, "logistic", 1.0, "matrix"), steps, domain, np.zeros((d, d))
            )
            for a, b in ((X, y), (X2, y2))
        )
        worst = max(worst, float(np.linalg.norm(one - two)))
    assert 0.05 * bound <= worst <= bound


def test_a_stream_spends_exactly_mu():
    steps = giga.schedule(100, 4.0, 1.0, burn_in=10)
    mu = gaussian_mu(1.0, 1e-5)
    plan = giga.plan_online(steps, 4.0, 4.0, 2.0, mu)
    assert epsilon_of(plan.event, 1e-5) == pytest.approx(1.0, rel=1e-9)
    assert np.all(plan.sigmas[steps.first :] > 0)
    assert not np.any(plan.sigmas[: steps.first])


def test_the_certificate_of_a_step_is_that_of_its_worst_record_also_of_an_earlier_one():
    L, D, steps = 4.0, 2.0, giga.schedule(30, 4.0, 0.0, kind="constant", rate=0.4)
    bound = giga.certified_sensitivity(steps, D, L)
    moved = {}
    for t in range(steps.first, 31):
        contraction = max(1.0, abs(1.0 - 0.4 * L * (t - 2) / (t - 1)))
        moved = {j: contraction * each + 0.4 * D / (t - 1) for j, each in moved.items()}
        # A record from before the first active step has been in no gradient yet.
        moved |= {j: 0.4 * D / (t - 1) for j in range(1, t) if j not in moved} | {t: 0.4 * D}
        assert bound.per_step[t] == pytest.approx(max(moved.values()), rel=1e-12)


def test_rounding_at_every_step_of_a_stream_is_paid_for():
    mu, L = release_mu(1.0, 1e-5, hardened=True), 4.0
    steps = giga.schedule(100, L, 1.0, burn_in=10)
    plan = giga.plan_online(steps, 2.0, L, 2.0, mu, hardened=True)
    joint = giga.certified_sensitivity(steps, 2.0, L, 2.0, joint=True).joint
    for size in (3, 4, 5, 6, 7):
        noise = [plan.noise(t, size) for t in range(steps.first, 101)]
        rounding = math.hypot(*(each.lattice.surcharge / each.sensitivity for each in noise))
        assert (joint + rounding) * noise[0].sensitivity / noise[0].sigma <= mu


def test_the_published_stream_costs_exactly_its_rho():
    event = giga.published_online_event(100, 20, 2.0, 0.5, 0.3)
    assert zcdp_cost(event) == pytest.approx(0.3, rel=1e-12)
    assert epsilon_of(giga.published_online_event(20, 20, 2.0, 0.5, 0.3), 0.0) == 0.0


def test_one_by_one_equals_all_at_once():
    r = np.random.default_rng(6)
    X, y = r.normal(size=(30, 2)) * 0.5, r.random(30) < 0.5
    steps = giga.schedule(30, 4.0, 1.0, burn_in=5)
    plan = giga.plan_online(steps, 4.0, 4.0, 2.0, math.inf)
    outs = []
    for size in (30, 1):
        stream = giga.OnlineGiga(AUCPairs, plan, L2Ball(1.0), np.zeros(2), Randomness(0))
        for start in range(0, 30, size):
            stream.receive(X[start : start + size], y[start : start + size])
        outs.append(stream.released)
    np.testing.assert_allclose(outs[0], outs[1], atol=1e-12)


def test_a_stream_refuses_more_records_than_it_was_planned_for_and_cannot_be_pickled():
    import pickle

    steps = giga.schedule(4, 4.0, 1.0, burn_in=2)
    plan = giga.plan_online(steps, 4.0, 4.0, 2.0, 1.0)
    stream = giga.OnlineGiga(AUCPairs, plan, L2Ball(1.0), np.zeros(1), Randomness(0))
    stream.receive(np.zeros((4, 1)), np.ones(4, bool))
    with pytest.raises(PairwiseError, match="planned for 4"):
        stream.receive(np.zeros((1, 1)), np.ones(1, bool))
    with pytest.raises(TypeError, match="raw records"):
        pickle.dumps(stream)


def test_rates_beyond_two_over_l_are_refused():
    with pytest.raises(PairwiseError, match="rate"):
        giga.schedule(10, 4.0, 0.0, kind="constant", rate=0.6)
