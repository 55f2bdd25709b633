"""Private queries by subset selection, the projections they are compared with, alignment and measures."""

from __future__ import annotations

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import special_ortho_group
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairwise import PrivacyBudget, PrivateLDA, SubsetQuery
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.zcdp import release_mu
from pairwise.errors import BudgetExceededError, InvalidParameterError
from pairwise.estimators.projection import PrivatePCA, PrivateRandomProjection, _envelope, bingham
from pairwise.noise.randomness import Randomness
from pairwise.retrieval.evaluation import align, nearest, precision_at_k, recall_at_k
from pairwise.retrieval.subset import inclusion_probability, inclusion_threshold, subset_size

# -- the subset mechanism, exactly


def test_enumeration_at_six_cells_gives_a_log_ratio_of_exactly_epsilon():
    query = SubsetQuery(np.eye(6), epsilon=1.3, size=2)
    logs = np.array(
        [
            [query.log_prob(cell, subset) for subset in itertools.combinations(range(6), 2)]
            for cell in range(6)
        ]
    )
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-14)
    assert np.ptp(logs, axis=0).max() == pytest.approx(1.3, abs=1e-14)
    assert np.ptp(logs, axis=0).max() <= 1.3 + 1e-15
    # mechanisms.md 8.4 prints .647223, the value at six digits being .6472226.
    assert query.inclusion == pytest.approx(0.647223, abs=5e-7)


@settings(deadline=None, max_examples=300)
@given(st.integers(2, 400), st.data())
def test_the_integer_odds_never_exceed_epsilon_and_miss_it_by_nothing_that_matters(cells, data):
    size = data.draw(st.integers(1, cells - 1))
    epsilon = data.draw(st.floats(1e-3, 30.0))
    threshold = inclusion_threshold(cells, size, epsilon)
    odds = Fraction(threshold * (cells - size), ((1 << 63) - threshold) * size)
    # e^ε between two rational bounds of 40 digits.
    import decimal

    with decimal.localcontext() as context:
        context.prec = 50
        exact = Fraction(decimal.Decimal(epsilon).exp())
    assert odds <= exact * (1 + Fraction(1, 10**45))
    assert float(odds / exact) > 1 - 1e-4 * max(1.0, math.exp(epsilon - 25))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 7), st.floats(0.01, 8.0), st.data())
def test_any_two_cells_give_any_subset_with_odds_within_epsilon(cells, epsilon, data):
    size = data.draw(st.integers(1, cells))
    query = SubsetQuery(np.eye(cells), epsilon=epsilon, size=size)
    logs = np.array(
        [
            [query.log_prob(c, subset) for subset in itertools.combinations(range(cells), size)]
            for c in range(cells)
        ]
    )
    assert np.ptp(logs, axis=0).max() <= query.statement.epsilon + 1e-12
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-12)


def test_draws_follow_the_enumerated_law(level, goodness):
    query = SubsetQuery(np.eye(5), epsilon=0.9, size=2, random_state=7)
    subsets = list(itertools.combinations(range(5), 2))
    for cell in (0, 2, 4):
        counts = dict.fromkeys(subsets, 0)
        for _ in range(4000):
            counts[tuple(int(i) for i in query.release(cell))] += 1
        law = [math.exp(query.log_prob(cell, subset)) for subset in subsets]
        # Fixed seed; with fresh ones a false alarm would have probability 3e-9 (three tests at 1e-9).
        assert goodness([counts[s] for s in subsets], law) > level


@pytest.mark.parametrize(("epsilon", "inclusion"), [(1, 0.232), (2, 0.451), (4, 0.858)])
def test_inclusion_at_two_hundred_cells_is_that_of_the_specification(epsilon, inclusion):
    assert inclusion_probability(200, 20, epsilon) == pytest.approx(inclusion, abs=5e-4)


def test_one_cell_is_randomised_response():
    query = SubsetQuery(np.eye(4), epsilon=1.0, size=1)
    assert query.inclusion == pytest.approx(math.e / (math.e + 3))


def test_all_cells_reveal_nothing_and_cost_nothing():
    with PrivacyBudget(0.1, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(4), epsilon=3.0, size=4, budget=budget)
        assert [list(query.release(cell)) for cell in range(4)] == [[0, 1, 2, 3]] * 4
    assert query.statement.epsilon == 0.0


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 500), st.floats(0.01, 20.0), st.floats(0.01, 1.0))
def test_the_chosen_size_is_the_smallest_that_includes_often_enough(cells, epsilon, inclusion):
    size = subset_size(cells, epsilon, inclusion)
    assert inclusion_probability(cells, size, epsilon) >= inclusion * (1 - 1e-9)
    if size > 1:
        assert inclusion_probability(cells, size - 1, epsilon) < inclusion * (1 + 1e-9)
    assert subset_size(cells, epsilon, inclusion, most=3) == min(3, size)


def test_the_client_asks_for_different_cells_in_an_order_that_tells_nothing():
    query = SubsetQuery(np.random.default_rng(0).normal(size=(30, 4)), epsilon=2.0, size=9)
    for _ in range(50):
        asked = query.ask(np.ones(4))
        assert (np.diff(asked) > 0).all()
        assert len(asked) == 9


def test_queries_of_one_client_compose_linearly_until_the_budget_ends():
    with PrivacyBudget(3.0, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(8), epsilon=1.0, budget=budget)
        for asked in range(1, 4):
            query.ask(np.ones(8))
            assert budget.spent() == pytest.approx(asked)
        with pytest.raises(BudgetExceededError):
            query.ask(np.ones(8))
        assert len(budget.charges) == 3


def test_a_budget_of_records_is_not_one_of_queries():
    with PrivacyBudget(3.0, 0.0) as budget, pytest.raises(InvalidParameterError, match="unit"):
        SubsetQuery(np.eye(8), epsilon=1.0, budget=budget).ask(np.ones(8))


def test_the_statement_is_pure_local_and_names_what_is_left_open():
    statement = SubsetQuery(np.eye(8), epsilon=1.5).statement
    assert (statement.epsilon, statement.delta, statement.proved) == (1.5, 0.0, True)
    assert epsilon_of(SubsetQuery(np.eye(8), epsilon=1.5).privacy_event, 0.0) == 1.5
    assert any("clicks" in line for line in statement.not_protected)
    assert not SubsetQuery(np.eye(8), random_state=1).statement.proved


def test_the_client_ranks_by_its_true_feature():
    r = np.random.default_rng(0)
    x, candidates = r.normal(size=3), r.normal(size=(40, 3))
    order = np.argsort(np.linalg.norm(candidates - x, axis=1))[:5]
    assert list(SubsetQuery(np.eye(3)).rerank(x, candidates, 5)) == list(order)


@pytest.mark.parametrize(
    ("codebook", "settings_"),
    [
        (np.ones(3), {}),
        (np.empty((0, 3)), {}),
        (np.array([[np.nan]]), {}),
        (np.eye(3), {"epsilon": 0.0}),
        (np.eye(3), {"epsilon": math.nan}),
        (np.eye(3), {"epsilon": "2"}),
        (np.eye(3), {"size": 0}),
        (np.eye(3), {"size": 4}),
        (np.eye(3), {"size": 1.5}),
        (np.eye(3), {"most": 1.5}),
        (np.eye(3), {"inclusion": 0.0}),
    ],
)
def test_a_query_that_cannot_be_private_is_refused(codebook, settings_):
    with pytest.raises(InvalidParameterError):
        SubsetQuery(codebook, **settings_)


@pytest.mark.parametrize("cell", [1.5, 1.0, "1", None, -1, 6])
def test_what_is_no_cell_is_refused_and_nothing_charged_since_it_would_stand_out_among_the_others(
    cell,
):
    with PrivacyBudget(epsilon=2.0, delta=0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(6), 1.0, budget=budget)
        with pytest.raises(InvalidParameterError, match=r"a whole number in 0\.\.5"):
            query.release(cell)
        assert not budget.charges


def test_a_feature_of_the_wrong_shape_is_refused_without_its_values():
    with pytest.raises(InvalidParameterError, match="3 values") as error:
        SubsetQuery(np.eye(3)).ask([123.456, 1.0])
    assert "123" not in str(error.value)


def test_a_feature_that_is_no_number_is_refused_without_repeating_it():
    query = SubsetQuery(np.eye(3))
    for use in (query.ask, lambda x: query.rerank(x, np.eye(3), 1)):
        with pytest.raises(InvalidParameterError, match="numbers") as error:
            use(["1", "2", "a secret remark"])
        assert "secret" not in str(error.value)
        assert error.value.__suppress_context__


@pytest.mark.parametrize("estimator", [PrivatePCA(2), PrivateRandomProjection(2)], ids=repr)
def test_what_stands_in_a_table_is_not_repeated_by_a_projection_that_refuses_it(estimator):
    with pytest.raises(InvalidParameterError, match="numbers") as error:
        clone(estimator).fit(np.array([["1", "a secret remark"]] * 5, dtype=object))
    assert "secret" not in str(error.value)
    fitted = clone(estimator).fit(np.eye(4))
    use = fitted.transform if hasattr(fitted, "transform") else fitted.release
    with pytest.raises(InvalidParameterError, match="Reshape your data") as error:
        use(np.array([123.456, 1.0, 1.0, 1.0]))
    assert "123" not in str(error.value)


@pytest.mark.parametrize("estimator", [PrivatePCA(2), PrivateRandomProjection(2)], ids=repr)
def test_the_seed_of_a_projection_does_not_travel_with_it(estimator):
    model = clone(estimator).set_params(random_state=5)
    assert pickle.loads(pickle.dumps(model)).random_state == 5
    assert pickle.loads(pickle.dumps(model.fit(np.eye(4)))).random_state is None


def test_axes_for_one_record_are_refused_by_a_budget_for_another_unit():
    with PrivacyBudget(9.0, 0.0, unit="any 3 records") as budget:
        with pytest.raises(InvalidParameterError, match="'any 3 records'"):
            PrivatePCA(2, budget=budget).fit(np.eye(4))
        assert len(budget.charges) == 0


# -- digits


def _images():
    """The digits, each with its own mean taken off and scaled to norm 1, and their classes."""
    X, y = load_digits(return_X_y=True)
    X = X - X.mean(axis=1, keepdims=True)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def _digits(seed):
    """A public half, and of the other half a server's part and queries; all disjoint."""
    X, y = _images()
    order = np.random.default_rng(seed).permutation(len(X))
    public, rest = order[:898], order[898:]
    return [(X[part], y[part]) for part in (public, rest[:599], rest[599:])]


def test_a_subset_query_on_digits_reaches_nine_tenths_of_the_unprotected_recall():
    (public, _), (server, server_y), (queries, query_y) = _digits(0)
    codebook = KMeans(64, n_init=1, random_state=0).fit(public).cluster_centers_
    near = nearest(codebook, server, 4)
    query = SubsetQuery(codebook, epsilon=4.0, most=8, random_state=0)
    assert query.size < 9
    hits = []
    for x, label in zip(queries, query_y, strict=True):
        found = np.unique(near[query.ask(x)])
        hits.append(server_y[found[query.rerank(x, server[found], 8)]] == label)
    unprotected = server_y[nearest(queries, server, 8)] == query_y[:, None]
    assert recall_at_k(hits, 8) >= 0.9 * recall_at_k(unprotected, 8)
    assert recall_at_k(hits, 1) >= 0.8 * recall_at_k(unprotected, 1)


def _neighbour_accuracy(train, train_y, test, test_y):
    votes = train_y[nearest(test, train, 5)]
    return float(np.mean([np.bincount(row).argmax() for row in votes] == test_y))


# -- alignment and measures


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0.1, 10.0))
def test_alignment_recovers_a_rotation_scale_and_shift(seed, k, scale):
    r = np.random.default_rng(seed)
    source, shift = r.normal(size=(20, k)), r.normal(size=k)
    rotation = special_ortho_group.rvs(k, random_state=r)
    found = align(source, scale * source @ rotation + shift)
    np.testing.assert_allclose(found.rotation, rotation, atol=1e-9)
    assert found.scale == pytest.approx(scale)
    np.testing.assert_allclose(found.apply(source), scale * source @ rotation + shift, atol=1e-8)


def test_alignment_never_mirrors():
    source = np.random.default_rng(0).normal(size=(20, 3))
    found = align(source, source * [1.0, 1.0, -1.0])
    assert np.linalg.det(found.rotation) == pytest.approx(1.0)


def test_alignment_is_the_least_squares_optimum_among_rotations():
    r = np.random.default_rng(0)
    source, target = r.normal(size=(30, 2)), r.normal(size=(30, 2))
    best = np.linalg.norm(align(source, target, scaling=False).apply(source) - target)
    for angle in np.linspace(0, 2 * np.pi, 720):
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        moved = source @ turn
        moved += (target - moved).mean(axis=0)
        assert best <= np.linalg.norm(moved - target) + 1e-9


def test_recall_counts_queries_and_precision_counts_results():
    relevant = [[False, True, False], [False, False, False], [True, True, False]]
    assert recall_at_k(relevant, 1) == pytest.approx(1 / 3)
    assert recall_at_k(relevant, 2) == pytest.approx(2 / 3)
    assert precision_at_k(relevant, 2) == pytest.approx(0.5)
    with pytest.raises(InvalidParameterError, match="k columns"):
        recall_at_k(relevant, 4)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 70))
def test_nearest_is_a_full_sort(seed, n, k):
    r = np.random.default_rng(seed)
    q, x = r.normal(size=(7, 3)), r.normal(size=(n, 3))
    full = np.argsort(np.linalg.norm(q[:, None] - x[None], axis=2), axis=1)
    assert np.array_equal(nearest(q, x, k), full[:, :k])


# -- baselines


def test_bingham_draws_have_the_exact_law_on_the_circle(level):
    # On the circle the density is exp(κ cos²θ), so 2θ follows a von Mises law of κ/2.
    rng = Randomness(3)
    angles = []
    for _ in range(3000):
        v = bingham(np.diag([4.0, 0.0]), rng)
        angles.append(2.0 * math.atan2(v[1], v[0]))
    wrapped = (np.array(angles) + np.pi) % (2 * np.pi) - np.pi
    # Fixed seed; fresh ones would raise a false alarm with probability 1e-9.
    assert stats.kstest(wrapped, stats.vonmises(2.0).cdf).pvalue > level


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 20), st.floats(0.01, 1e4))
def test_the_envelope_of_the_sampler_lies_above_the_density_and_touches_it(seed, q, spread):
    r = np.random.default_rng(seed)
    drop = np.sort(r.random(q) * spread)
    drop -= drop[0]
    omega, log_bound = _envelope(drop)

    def log_ratio(squares):
        return -squares @ drop + q / 2 * np.log(squares @ omega)

    squares = r.dirichlet(np.full(q, 0.3), size=2000)
    assert log_ratio(squares).max() <= log_bound + 1e-9
    # The ratio depends on s = λ·v² alone, and is largest where s = (q - b)/2, if any v has that.
    b = 2 * drop[-1] / (omega[-1] - 1)
    share = min((q - b) / 2 / drop[-1], 1.0)
    touching = np.zeros(q)
    touching[0], touching[-1] = 1 - share, share
    assert log_ratio(touching) == pytest.approx(log_bound, abs=1e-6)


def test_private_axes_are_drawn_at_the_rate_that_epsilon_allows(monkeypatch):
    seen = []

    def spy(concentration, randomness):
        seen.append(concentration)
        return bingham(concentration, randomness)

    monkeypatch.setattr("pairwise.estimators.projection.bingham", spy)
    X = np.random.default_rng(0).normal(size=(30, 4)) * 0.1
    X[0] = [3.0, 0.0, 0.0, 0.0]  # clipped to norm 1
    PrivatePCA(2, epsilon=3.0).fit(X)
    clipped = X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    np.testing.assert_allclose(seen[0], 3.0 / 2 / 2 * clipped.T @ clipped, rtol=1e-5, atol=1e-6)
    assert seen[1].shape == (3, 3)


def test_the_law_of_one_axis_moves_by_at_most_epsilon_between_neighbours():
    angles = np.linspace(0, np.pi, 2001)[:-1]
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rest = np.random.default_rng(0).normal(size=(5, 2)) * 0.4
    laws = []
    for record in ([1.0, 0.0], [0.0, 1.0]):
        second = rest.T @ rest + np.outer(record, record)
        log = 1.5 / 2 * np.einsum("ij,jk,ik->i", v, second, v)
        laws.append(log - np.log(np.exp(log).mean()))
    loss = np.abs(laws[0] - laws[1]).max()
    assert 0.5 * 1.5 < loss <= 1.5


def test_private_axes_are_orthonormal_and_nearly_the_true_ones_at_a_large_epsilon():
    r = np.random.default_rng(0)
    X = r.normal(size=(2000, 5)) * [0.4, 0.2, 0.1, 0.05, 0.02]
    pca = PrivatePCA(2, epsilon=200.0).fit(X)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-9)
    assert abs(pca.components_[0, 0]) > 0.95
    exact = PrivatePCA(2, epsilon=math.inf).fit(X)
    assert abs(exact.components_[0, 0]) > 0.99


def test_private_axes_cover_the_records_and_not_what_is_projected():
    statement = PrivatePCA(2, epsilon=1.0).fit(np.eye(6)).statement_
    assert (statement.epsilon, statement.delta, statement.proved) == (1.0, 0.0, True)
    assert "anything that is projected with the axes" in statement.not_protected


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6))
def test_replacing_a_record_moves_the_utility_of_any_axis_by_at_most_one(seed):
    r = np.random.default_rng(seed)
    x, other, v = (w / max(1.0, np.linalg.norm(w)) for w in r.normal(size=(3, 4)) * 2)
    v = v / np.linalg.norm(v)
    assert abs((v @ x) ** 2 - (v @ other) ** 2) <= 1.0 + 1e-12


def test_a_projected_query_is_covered_for_any_two_features():
    r = np.random.default_rng(0)
    projection = PrivateRandomProjection(3, epsilon=2.0, delta=1e-5).fit(np.zeros((1, 8)))
    X = r.normal(size=(3000, 8))
    projected = projection.project(X)
    far = max(np.linalg.norm(projected - projected[i], axis=1).max() for i in range(50))
    assert 0.5 * projection.sensitivity() < far <= projection.sensitivity()
    wanted = projection.sensitivity() / release_mu(2.0, 1e-5, hardened=True)
    assert wanted <= projection.noise_scale_ <= wanted * (1 + 2**-10)
    noise = projection.release(np.zeros((2000, 8)))
    # 6000 normals: a relative error of 0.1 in the deviation has probability below 1e-20.
    assert noise.std() == pytest.approx(wanted, rel=0.1)


def test_a_query_is_clipped_to_the_norm_its_noise_was_planned_for_whatever_is_set_later():
    projection = PrivateRandomProjection(3, delta=1e-5).fit(np.zeros((1, 8)))
    far = np.full((1, 8), 100.0)
    before = projection.project(far)
    assert np.array_equal(projection.set_params(data_norm=1e6).project(far), before)
    assert 2.0 * np.linalg.norm(before) <= projection.sensitivity()


def test_a_seed_that_is_set_after_the_statement_is_refused():
    projection = PrivateRandomProjection(3).fit(np.zeros((1, 8))).set_params(random_state=0)
    with pytest.raises(InvalidParameterError, match="random_state was set after fit"):
        projection.release(np.zeros((2, 8)))
    assert projection.fit(np.zeros((1, 8))).release(np.zeros((2, 8))).shape == (2, 3)
    assert not projection.statement_.proved


@parametrize_with_checks([PrivatePCA(2), PrivateRandomProjection(2)])
def test_scikit_learn_accepts_the_projection(estimator, check):
    check(estimator)


# -- the private embedding


def test_private_lda_on_digits_is_within_three_hundredths_of_the_unprotected_embedding():
    X, y = _images()
    gaps = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[:1347], order[1347:]
        private = PrivateLDA(
            epsilon=1.0, delta=1e-5, classes=range(10), adjacency="replace-one", random_state=seed
        ).fit(X[train], y[train])
        exact = LinearDiscriminantAnalysis().fit(X[train], y[train])
        ours, theirs = (
            _neighbour_accuracy(m.transform(X[train]), y[train], m.transform(X[test]), y[test])
            for m in (private, exact)
        )
        assert (private.statement_.epsilon, private.statement_.delta) == (1.0, 1e-5)
        gaps.append(theirs - ours)
    assert np.mean(gaps) <= 0.03


@pytest.mark.parametrize(
    ("name", "value"), [("size", 1), ("epsilon", 0.1), ("codebook", np.eye(9)), ("inclusion", 1.0)]
)
def test_what_the_odds_of_a_query_were_planned_for_cannot_be_set(name, value):
    # A subset of one cell drawn with the odds of one of five tells three times what is stated.
    query = SubsetQuery(np.eye(8), epsilon=1.0, size=5)
    with pytest.raises(InvalidParameterError, match="fixed when it is made"):
        setattr(query, name, value)
    laws = [
        [query.log_prob(cell, range(start, start + 5)) for cell in range(8)] for start in range(4)
    ]
    assert max(max(law) - min(law) for law in laws) <= 1.0
