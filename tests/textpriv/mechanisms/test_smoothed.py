"""Smoothed TEM: its background against a dense fixed point, its constant and its guarantee by brute force, its draws."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import textpriv
from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.mechanisms import TEM, UNKNOWN, SmoothedTEM, registry, smoothed
from textpriv.mechanisms.calibration.privacy_constant import inputs
from textpriv.mechanisms.smoothed import background, smoothed_constant
from textpriv.metrics import CallableMetric
from textpriv.statement import UnsoundWarning


def all_laws(mechanism) -> np.ndarray:
    return np.array([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def excess(log_laws, distances, epsilon) -> float:
    """The most by which any ln P_w(y) / P_w'(y) exceeds epsilon d(w, w'): brute force over all w, w' and y."""
    return max(
        float(((law - log_laws).max(axis=1) - epsilon * near).max())
        for law, near in zip(log_laws, distances, strict=True)
    )


def steepest(values, distances) -> float:
    """The largest slope between any two different points."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.abs(values[:, None] - values[None]) / distances
    return float(slopes[distances > 0].max())


def constant_of(log_laws, distances) -> float:
    """The tight constant by brute force."""
    return max(
        float(((law - log_laws).max(axis=1)[near > 0] / near[near > 0]).max())
        for law, near in zip(log_laws, distances, strict=True)
    )


@pytest.fixture(scope="module")
def crowded(index_of, clustered_points):
    """Clusters of words in 20 dimensions: at epsilon 2 and the Zipf prior the calibrated rate is 0.61 epsilon."""
    return index_of(clustered_points(12, 20, 20, 1.0), k=16)


@pytest.fixture(scope="module")
def mechanism(crowded):
    return SmoothedTEM(crowded, 2.0, share=0.8)


@pytest.fixture(scope="module")
def apart(crowded):
    return cdist(crowded.coordinates, crowded.coordinates)


# The law and its background


def test_the_law_is_the_exponential_and_a_background(mechanism, apart):
    kappa, nu = mechanism.background.kappa, mechanism.measure.weights
    expected = nu * (np.exp(-1.6 * np.minimum(apart, mechanism.gamma)) + kappa[:, None])
    expected /= expected.sum(axis=1, keepdims=True)
    assert_allclose(np.exp(all_laws(mechanism)), expected, rtol=1e-9)
    assert mechanism.t == 1.6
    assert kappa.min() > 0


def test_both_slopes_stay_inside_their_parts_of_the_budget(mechanism, apart):
    found = mechanism.background
    z = np.exp(-1.6 * np.minimum(apart, mechanism.gamma)) @ mechanism.measure.weights
    assert_allclose(found.log_z, np.log(z), rtol=1e-10)
    assert steepest(np.log(found.kappa), apart) <= 1.6 * (1 + 1e-9)
    assert steepest(np.log(z + found.kappa), apart) <= 0.4
    assert found.slope_of_background == pytest.approx(steepest(np.log(found.kappa), apart))
    assert found.slope_of_normaliser == pytest.approx(steepest(np.log(z + found.kappa), apart))


def test_the_background_is_the_least_one(mechanism, apart):
    # The same fixed point by dense matrices, for the whole budget and for the smaller one that is sought.
    z = np.exp(-1.6 * apart) @ mechanism.measure.weights

    def least(slope: float) -> np.ndarray:
        kappa = np.full(len(z), 1e-300)
        for _ in range(300):
            total = np.log(z + kappa)
            kappa = np.maximum(kappa, np.exp((total - slope * apart).max(axis=1)) - z)
            kappa = np.exp((np.log(kappa) - 1.6 * apart).max(axis=1))
        return kappa

    kappa = mechanism.background.kappa
    assert (kappa >= least(0.4) * (1 - 1e-6)).all()
    assert (kappa <= least(0.4 * (1 - 1e-3)) * (1 + 1e-6)).all()
    assert (least(0.4) > 0.9 * kappa).all()


@pytest.mark.parametrize("share", [0.5, 0.6])
def test_a_rate_that_calibrated_tem_reaches_needs_no_background(crowded, share):
    assert TEM(crowded, 2.0, rate="calibrated").t > 2.0 * share
    mechanism = SmoothedTEM(crowded, 2.0, share=share)
    assert (mechanism.background.kappa == 0).all()
    assert mechanism.background_share == 0
    plain = TEM(crowded, 4.0 * share, gamma=mechanism.gamma)
    assert_allclose(all_laws(mechanism), all_laws(plain), rtol=1e-12)


def test_words_beside_each_other_settle_in_a_few_rounds(index_of, clustered_points):
    points = clustered_points(12, 20, 20, 1.0)
    near = points[:40] * (1 + 1e-6)
    found = SmoothedTEM(index_of(np.concatenate([points, near]), k=16), 2.0, share=0.8).background
    assert found.rounds <= 5
    assert found.rho <= 2.0


def test_a_larger_rate_costs_more_background(crowded):
    shares = [SmoothedTEM(crowded, 2.0, share=share).background_share for share in (0.6, 0.7, 0.9)]
    assert shares == sorted(shares)
    assert 0 == shares[0] < shares[1] < 0.1 < shares[2] < 1


def test_duplicates_have_one_law(index_of, tied_points):
    points = tied_points(100)
    mechanism = SmoothedTEM(index_of(points, k=8), 1.0, share=0.9)
    same = np.argwhere(np.triu(cdist(points, points) == 0, 1))
    assert len(same) > 1
    for first, second in same:
        assert (mechanism.log_prob(int(first)) == mechanism.log_prob(int(second))).all()


def test_an_unknown_word_has_the_prior_as_its_law(mechanism):
    assert_allclose(np.exp(mechanism.log_prob(UNKNOWN)), mechanism.measure.weights)


# The guarantee, by brute force over (w, w', y)


@pytest.mark.parametrize("share", [0.55, 0.7, 0.9])
@pytest.mark.parametrize("prior", ["zipf", "uniform", "steep"])
@pytest.mark.parametrize("points", ["tied", "clustered"])
def test_the_bound_holds_for_all_triples(
    index_of, tied_points, clustered_points, points, prior, share
):
    vectors = tied_points(240) if points == "tied" else clustered_points(12, 20, 20, 1.0)
    given = np.random.default_rng(3).permutation(np.logspace(0, 6, 240))
    mechanism = SmoothedTEM(
        index_of(vectors, k=16), 1.5, share, given if prior == "steep" else prior
    )
    assert excess(all_laws(mechanism), cdist(vectors, vectors), 1.5) <= 1e-9


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "angular"])
@pytest.mark.parametrize("gamma", [0.7, None])
def test_the_bound_holds_in_every_metric(vocabulary_of, metric, gamma):
    points = np.random.default_rng(2).normal(size=(120, 4))
    index = Index.build(vocabulary_of(points), metric, k=16, hnsw=False)
    mechanism = SmoothedTEM(index, 3.0, share=0.85, gamma=gamma)
    assert excess(all_laws(mechanism), index.metric.pairwise(points, points), 3.0) <= 1e-9


@pytest.mark.parametrize("share", [0.6, 0.7, 0.9])
def test_the_constant_is_that_of_all_triples(crowded, apart, share):
    mechanism = SmoothedTEM(crowded, 2.0, share=share)
    found = mechanism.closed_constant()
    assert found.value == pytest.approx(constant_of(all_laws(mechanism), apart), rel=1e-9)
    first, second = (mechanism.log_prob(word) for word in found.pair)
    assert (first - second).max() / apart[found.pair] == pytest.approx(found.value, rel=1e-9)


def test_a_background_that_is_too_steep_still_gets_an_upper_bound(crowded, apart):
    kappa = np.random.default_rng(4).random(240) ** 8
    nu, gamma = crowded.vocabulary.prior_weights("zipf"), 3.0
    bracket = np.exp(-1.2 * np.minimum(apart, gamma)) + kappa[:, None]
    z = bracket @ nu - kappa
    assert steepest(np.log(kappa), apart) > 1.2
    found, _ = smoothed_constant(crowded, kappa, np.log(z), 1.2, gamma)
    laws = np.log(nu * bracket / (z + kappa)[:, None])
    assert found.value >= constant_of(laws, apart) * (1 - 1e-12)


def test_the_bound_check_detects_half_of_the_background(crowded, mechanism, apart):
    kappa = mechanism.background.kappa / 2
    law = mechanism.measure.weights * (np.exp(-1.6 * apart) + kappa[:, None])
    laws = np.log(law / law.sum(axis=1, keepdims=True))
    assert excess(laws, apart, 2.0) > 0.01
    found, _ = smoothed_constant(crowded, kappa, mechanism.background.log_z, 1.6, mechanism.gamma)
    assert found.value > 2.01


def test_the_certificate_is_exact_and_nearly_all_is_spent(mechanism):
    certificate = textpriv.certify(mechanism)
    assert certificate.holds
    assert certificate.exact
    assert certificate.method.startswith("closed form")
    assert 1.99 < certificate.rho <= 2.0
    assert certificate.rho_with_rounding == pytest.approx(mechanism.rho_bound, rel=1e-9)


def test_the_certificate_does_not_believe_a_closed_form_that_the_law_refutes(crowded):
    class Boastful(SmoothedTEM):
        def log_prob(self, word):
            law = 3.0 * super().log_prob(word)
            return law - np.log(np.exp(law).sum())

    certificate = textpriv.certify(Boastful(crowded, 2.0, share=0.8))
    assert not certificate.holds
    assert certificate.method.startswith("all pairs and outputs")


@pytest.mark.parametrize("gamma", [1.0, None])
def test_no_pair_of_words_loses_more_than_the_stated_worst(index_of, gamma):
    points = np.random.default_rng(14).normal(size=(80, 3)) * 3
    mechanism = SmoothedTEM(index_of(points, k=8), 1.5, share=0.9, gamma=gamma)
    worst = mechanism.statement.figures["worst_word_loss"]
    laws = all_laws(mechanism)
    assert excess(laws, np.zeros((80, 80)), 1.0) <= worst + 1e-9
    unknown = mechanism.log_prob(UNKNOWN)
    assert np.abs(laws - unknown).max() <= mechanism.t * mechanism.gamma + 1e-9


# The sampler (false-alarm rate 1e-9 each, see conftest)


@pytest.mark.parametrize("k", [1, 8, 256])
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_samples_follow_the_law(index_of, clustered_points, stream, goodness, level, k, share):
    mechanism = SmoothedTEM(index_of(clustered_points(12, 20, 20, 1.0), k=k), 2.0, share)
    for word in (0, 100, UNKNOWN):
        found = mechanism.sample(np.full(10_000, word), stream("smooth", k, share, word))
        counts = np.bincount(found, minlength=240)
        assert goodness(counts, np.exp(mechanism.log_prob(word))) > level


def test_a_coin_comes_up_exactly_below_its_probability(mechanism):
    word = int(np.argmin(np.abs(mechanism._coin - 0.3)))
    coin = mechanism._coin[word]
    z, kappa = np.exp(mechanism.background.log_z[word]), mechanism.background.kappa[word]
    assert coin == pytest.approx(kappa / (z + kappa), rel=1e-14)
    words = [int(coin * (1 + error) * 2.0**64) for error in (-1e-12, 1e-12)]
    random = np.array([[word, 0] for word in words], dtype=np.uint64)
    ids = np.full(2, word, dtype=np.int32)
    assert smoothed._toss(mechanism._coin, ids, random).tolist() == [-1, word]


def test_documents_drawn_together_are_those_drawn_alone(mechanism, stream):
    rng = np.random.default_rng(4)
    documents = [rng.integers(-1, 240, size=n).astype(np.int32) for n in (0, 1, 30, 5, 0, 12)]
    offsets = np.cumsum([0, *map(len, documents)])
    streams = [stream("smooth alone", i) for i in range(6)]
    together = mechanism.sample_documents(np.concatenate(documents), offsets, streams)
    alone = [mechanism.sample(d, stream("smooth alone", i)) for i, d in enumerate(documents)]
    assert together.tolist() == np.concatenate(alone).tolist()


# Records, parameters, statement, copies


def test_the_background_is_computed_once_and_recorded_with_the_index(
    crowded, tmp_path, monkeypatch
):
    crowded.save(tmp_path / "index")
    first = SmoothedTEM(Index.load(tmp_path / "index"), 2.0, share=0.75)
    monkeypatch.setattr(smoothed, "background", None)
    again = SmoothedTEM(Index.load(tmp_path / "index"), 2.0, share=0.75)
    assert (again.background.kappa == first.background.kappa).all()
    assert (again.log_prob(5) == first.log_prob(5)).all()
    with pytest.raises(TypeError):
        SmoothedTEM(Index.load(tmp_path / "index"), 2.0, share=0.76)


HARM = {
    "no background": lambda record: record.pop("kappa"),
    "a word too few": lambda record: record["kappa"].pop(),
    "a negative background": lambda record: record["kappa"].__setitem__(3, -0.1),
    "a normaliser that is none": lambda record: record["log_z"].__setitem__(3, float("nan")),
    "a constant above epsilon": lambda record: record.update(rho_with_rounding=2.1),
    "no constant": lambda record: record.pop("rho_with_rounding"),
    "a constant that its pair exceeds": lambda record: record.update(
        rho_with_rounding=0.9 * record["rho_with_rounding"]
    ),
    "half of the background": lambda record: record.update(
        kappa=[0.5 * value for value in record["kappa"]]
    ),
    "no pair": lambda record: record.pop("pair"),
    "no rounds": lambda record: record.update(rounds=None),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_record_that_does_not_keep_the_promise_is_computed_anew(index_of, harm):
    index = index_of(np.random.default_rng(3).normal(size=(60, 3)))
    first = SmoothedTEM(index, 2.0, share=0.75)
    (binding,) = index._records.bindings.values()
    record = copy.deepcopy(index.find_record(binding))
    harm(record)
    index.keep_record(binding, record)
    again = SmoothedTEM(index, 2.0, share=0.75)
    assert (again.background.kappa == first.background.kappa).all()
    assert (again.t, again.rho_bound) == (first.t, first.rho_bound)


def test_single_precision_finds_nearly_the_same_background_and_a_certified_one(
    crowded, monkeypatch
):
    weights = crowded.vocabulary.prior_weights("zipf")
    double = background(crowded, weights, 2.0, 1.5, 20.0)
    monkeypatch.setattr(smoothed, "_SMALL", 0)
    single = background(crowded, weights, 2.0, 1.5, 20.0)
    assert double.kappa.min() > 0
    assert_allclose(np.log(single.kappa), np.log(double.kappa), atol=2e-3)
    words = inputs(crowded)
    constant, _ = smoothed_constant(crowded, single.kappa[words], single.log_z[words], 1.5, 20.0)
    assert constant.value <= 2.0 * (1 - 1e-6)


def test_a_background_that_does_not_settle_is_an_error_with_the_remedy(crowded, monkeypatch):
    monkeypatch.setattr(smoothed, "_ROUNDS", 1)
    weights = crowded.vocabulary.prior_weights("zipf")
    with pytest.raises(MechanismError, match="smaller share"):
        background(crowded, weights, 2.0, 1.8, 15.0)


@pytest.mark.parametrize("share", [0, 0.49, 1, 1.5, -0.6, float("nan"), True, "0.6", None])
def test_a_share_outside_half_to_one_is_refused(three_points, share):
    with pytest.raises(MechanismError, match="share"):
        SmoothedTEM(three_points, 1.0, share=share)


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), True, "6", None])
def test_an_epsilon_that_is_no_finite_positive_number_is_refused(three_points, epsilon):
    with pytest.raises(MechanismError, match="epsilon"):
        SmoothedTEM(three_points, epsilon)


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), True, "far"])
def test_a_gamma_that_is_no_positive_number_is_refused(three_points, gamma):
    with pytest.raises(MechanismError, match="gamma"):
        SmoothedTEM(three_points, 1.0, gamma=gamma)


def test_approximate_lists_are_refused(index_of):
    index = index_of(np.random.default_rng(0).normal(size=(50, 2)), k=5, backend="hnsw")
    with (
        pytest.warns(UnsoundWarning, match="approximate"),
        pytest.raises(MechanismError, match="SmoothedTEM needs exact lists"),
    ):
        SmoothedTEM(index, 1.0)


def test_a_metric_of_the_users_own_is_refused(vocabulary_of):
    metric = CallableMetric(lambda a, b: cdist(a, b), "plain")
    index = Index.build(vocabulary_of([[0.0], [1.0]]), metric, k=2)
    with pytest.raises(MechanismError, match="metric of this library"):
        SmoothedTEM(index, 1.0)


def test_the_statement_tells_the_rate_and_the_background(mechanism):
    statement = mechanism.statement
    assert (statement.proved, statement.epsilon, statement.delta) == (True, 2.0, 0.0)
    assert "rate t 1.6" in statement.mechanism
    assert statement.figures["background_share"] == mechanism.background_share > 0.05


def test_a_vocabulary_of_one_word_always_gives_that_word(index_of, stream):
    mechanism = SmoothedTEM(index_of([[1.0, 2.0]]), 1.0)
    assert mechanism.sample([0, UNKNOWN, 0], stream("one")).tolist() == [0, 0, 0]
    assert len(inputs(mechanism.index)) == 1


def test_the_registry_passes_every_setting(three_points):
    wanted = {"epsilon": 3.0, "share": 0.7, "prior": "uniform", "gamma": 0.5}
    made = registry.get("textpriv.SmoothedTEM.v1")(**wanted)(three_points)
    assert type(made) is SmoothedTEM
    assert made.settings() == wanted


def test_a_copy_draws_the_same(mechanism, stream):
    other = pickle.loads(pickle.dumps(mechanism))
    ids = np.arange(-1, 240)
    assert other.settings() == mechanism.settings()
    assert (other.sample(ids, stream("copy")) == mechanism.sample(ids, stream("copy"))).all()
