"""Madlib: its noise against known laws, its searches against brute force, and what it must never do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.spatial.distance import cdist

from textpriv.errors import MechanismError
from textpriv.guarantees.audit import ratio_bound
from textpriv.index import Index
from textpriv.ledger import Terms
from textpriv.mechanisms import UNKNOWN, Madlib
from textpriv.mechanisms.madlib import _QUERIES, _noise
from textpriv.metrics import CallableMetric, Mahalanobis
from textpriv.tokenization.policy import TokenPolicy

# Statistical tests use fixed keys and have a false-alarm rate of 1e-9 each (see conftest).


@pytest.fixture(scope="module")
def noise(stream):
    """``noise(dimension, epsilon, count)``: draws of the noise, shape (count, dimension)."""

    def draw(dimension: int, epsilon: float, count: int) -> np.ndarray:
        need = 2 * ((dimension + 1) // 2) + dimension
        random = stream("noise", dimension, epsilon).words(count * need).reshape(count, need)
        out = np.empty((count, dimension))
        for row in range(count):
            _noise(random[row], epsilon, out[row])
        return out

    return draw


@pytest.fixture(scope="module")
def cloud(vocabulary_of):
    """An index of 300 words in 6 dimensions with both searches."""
    points = np.random.default_rng(0).normal(size=(300, 6)) * [5, 4, 3, 1, 0.5, 0.2]
    return Index.build(vocabulary_of(points), k=8)


@pytest.fixture(scope="module")
def pair(vocabulary_of):
    """Two words at distance 2 on a line."""
    return Index.build(vocabulary_of([0.0, 2.0]), k=2)


# Noise


@pytest.mark.parametrize(
    ("dimension", "count"), [(1, 40_000), (2, 40_000), (3, 40_000), (300, 4_000)]
)
def test_the_length_of_the_noise_is_gamma(noise, level, dimension, count):
    lengths = np.linalg.norm(noise(dimension, 2.5, count), axis=1)
    assert stats.kstest(lengths, stats.gamma(dimension, scale=1 / 2.5).cdf).pvalue > level


def test_noise_on_a_line_is_laplace(noise, level):
    assert stats.kstest(noise(1, 0.5, 40_000)[:, 0], stats.laplace(scale=2).cdf).pvalue > level


def test_the_angle_of_noise_in_the_plane_is_uniform(noise, level):
    x, y = noise(2, 1.0, 40_000).T
    assert stats.kstest(np.arctan2(y, x), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > level


def test_each_coordinate_of_a_direction_in_space_is_uniform(noise, level):
    moved = noise(3, 1.0, 40_000)
    for coordinate in (moved / np.linalg.norm(moved, axis=1)[:, None]).T:
        assert stats.kstest(coordinate, stats.uniform(-1, 2).cdf).pvalue > level


@pytest.mark.parametrize(
    ("dimension", "count"), [(2, 40_000), (3, 40_000), (7, 40_000), (300, 4_000)]
)
def test_directions_have_mean_zero(noise, level, dimension, count):
    moved = noise(dimension, 1.0, count)
    mean = (moved / np.linalg.norm(moved, axis=1)[:, None]).mean(axis=0)
    assert stats.chi2.sf(count * dimension * (mean**2).sum(), dimension) > level


@pytest.mark.parametrize(
    ("dimension", "count"), [(2, 40_000), (3, 40_000), (7, 40_000), (20, 10_000)]
)
def test_second_moments_of_directions_are_one_over_the_dimension(noise, level, dimension, count):
    moved = noise(dimension, 1.0, count)
    units = moved / np.linalg.norm(moved, axis=1)[:, None]
    moments = units.T @ units / count
    variance = np.full((dimension, dimension), 1 / (dimension * (dimension + 2)))
    np.fill_diagonal(variance, 2 * (dimension - 1) / (dimension**2 * (dimension + 2)))
    scores = (moments - np.eye(dimension) / dimension) / np.sqrt(variance / count)
    assert np.abs(scores).max() < stats.norm.isf(level / (2 * dimension**2))


def test_length_and_direction_are_independent(noise, level):
    moved = noise(3, 1.0, 40_000)
    lengths = np.linalg.norm(moved, axis=1)
    cells = np.zeros((4, 4))
    np.add.at(
        cells,
        (
            np.digitize(lengths, stats.gamma(3).ppf([0.25, 0.5, 0.75])),
            np.digitize(moved[:, 0] / lengths, [-0.5, 0, 0.5]),
        ),
        1,
    )
    assert stats.chi2_contingency(cells).pvalue > level


# Law


@pytest.mark.parametrize("search", ["exact", "hnsw"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_of_two_words_on_a_line_the_input_is_kept_as_laplace_says(
    pair, stream, level, search, epsilon
):
    kept = (Madlib(pair, epsilon, search).sample(np.ones(40_000, int), stream("pair")) == 1).sum()
    assert stats.binomtest(kept, 40_000, 1 - np.exp(-epsilon) / 2).pvalue > level


# A line on which the commonest word lies far from all others: a prior would give it to unknown words, noise hardly ever.
LINE = np.array([9.0, 0.0, 0.4, -0.3, 1.0, 0.7])


def line_law(point: float, epsilon: float) -> np.ndarray:
    """The law of a point of the line that is moved by Laplace noise, shape (6,)."""
    order = np.argsort(LINE)
    edges = np.concatenate([[-np.inf], (LINE[order][1:] + LINE[order][:-1]) / 2, [np.inf]])
    law = np.empty(len(LINE))
    law[order] = np.diff(stats.laplace(point, 1 / epsilon).cdf(edges))
    return law


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_unknown_words_of_a_line_are_drawn_by_noise_about_the_centre(
    vocabulary_of, stream, goodness, level, search
):
    mechanism = Madlib(Index.build(vocabulary_of(LINE), k=3), 1.5, search)
    found = mechanism.sample(np.full(50_000, UNKNOWN), stream("unknown line"))
    assert goodness(np.bincount(found, minlength=6), line_law(LINE.mean(), 1.5)) > level


def test_no_output_tells_an_unknown_word_from_a_known_one_by_more_than_their_distance(
    vocabulary_of, stream, level
):
    epsilon, draws = 2.0, 40_000
    mechanism = Madlib(Index.build(vocabulary_of(LINE), k=3, hnsw=False), epsilon, "exact")
    found = mechanism.sample(np.full(draws, UNKNOWN), stream("unknown loss"))
    counts = np.bincount(found, minlength=6)
    # Bounds on the probability of every output for an unknown word, all of which hold but for one in 1e9.
    share = level / 12
    least = stats.beta.ppf(share, counts, draws - counts + 1)
    most = stats.beta.ppf(1 - share, counts + 1, draws - counts)
    for word, point in enumerate(LINE):
        law = line_law(point, epsilon)
        claimed = epsilon * abs(point - LINE.mean())
        assert np.log(np.where(counts > 0, least, 1e-300) / law).max() <= claimed, word
        assert np.log(law / most).max() <= claimed, word


@pytest.mark.parametrize("projection", [None, 2])
def test_draws_never_tell_an_unknown_word_from_a_known_one_by_more_than_their_distance(
    cloud, stream, level, projection
):
    epsilon, draws = 1.0, 20_000
    mechanism = Madlib(cloud, epsilon, "exact", projection=projection)
    points = mechanism.points
    apart = cdist(points.mean(axis=0)[None], points)[0]
    words = np.argsort(apart)[[0, 20, 100, 200]]

    def drawn(word):
        found = mechanism.sample(np.full(draws, word), stream("unknown cloud", projection, word))
        return np.bincount(found, minlength=len(points))

    unknown = drawn(UNKNOWN)
    for word in words.tolist():
        known = drawn(word)
        lean = apart - cdist(points[[word]], points)[0]
        claimed = epsilon * apart[word]
        assert ratio_bound(unknown, known, lean, level) <= claimed
        assert ratio_bound(known, unknown, -lean, level) <= claimed


@pytest.mark.parametrize("projection", [None, 2])
def test_the_losses_that_are_stated_contain_the_distance_of_unknown_words(cloud, projection):
    mechanism = Madlib(cloud, 2.0, projection=projection)
    points = mechanism.points
    farthest = 2.0 * cdist(points.mean(axis=0)[None], points).max()
    statement = mechanism.statement
    assert statement.figures["unknown_word_loss"] == pytest.approx(farthest, rel=1e-12)
    assert farthest <= statement.figures["worst_word_loss"]
    assert farthest <= min(statement.loss_at(np.inf), statement.document_loss(1))
    assert farthest <= Terms.of(mechanism, TokenPolicy()).word_loss
    assert "an unknown word" in statement.adjacency


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_the_word_itself_is_not_excluded_from_the_search(cloud, stream, search):
    ids = np.arange(300)
    assert (Madlib(cloud, 1e6, search).sample(ids, stream("self")) == ids).all()


def test_the_search_sees_the_noisy_point_and_not_the_word(cloud, stream, monkeypatch):
    mechanism = Madlib(cloud, 3.0, "exact")
    seen = []
    monkeypatch.setattr(
        mechanism, "nearest", lambda queries: seen.append(queries.copy()) or np.zeros(len(queries))
    )
    mechanism.sample([4, UNKNOWN, 9], stream("seen"))
    need = 2 * 3 + 6
    random = stream("seen").words(3 * need).reshape(3, need)
    # An unknown word is moved as any other, from the centre of the points.
    moved = mechanism.points[4], mechanism.points.mean(axis=0), mechanism.points[9]
    for query, point, row in zip(seen[0], moved, random, strict=True):
        expected = np.empty(6)
        _noise(row, 3.0, expected)
        assert_allclose(query, point + expected, rtol=1e-14)


def test_there_is_no_closed_law(cloud):
    with pytest.raises(MechanismError, match="closed"):
        Madlib(cloud, 1.0).log_prob("w1")


# Search


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_exact_search_is_brute_force(vocabulary_of, dtype, shift):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, 7)) + shift
    points[250:] = points[:250] + rng.normal(size=(250, 7)) * 1e-6
    index = Index.build(vocabulary_of(points, dtype=dtype), k=2, hnsw=False)
    queries = np.concatenate(
        [points[::3] + rng.normal(size=(167, 7)) * 1e-5, rng.normal(size=(300, 7)) * 3 + shift]
    )
    expected = cdist(queries, index.coordinates.astype(np.float64)).argmin(axis=1)
    assert (Madlib(index, 1.0, "exact").nearest(queries) == expected).all()


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e19, 1e100])
def test_exact_search_is_brute_force_at_any_scale(vocabulary_of, size):
    rng = np.random.default_rng(5)
    points = size * rng.normal(size=(200, 3))
    mechanism = Madlib(Index.build(vocabulary_of(points), k=4, hnsw=False), 1.0, "exact")
    queries = np.concatenate([size * rng.normal(size=(50, 3)), 1e30 * size * np.eye(3)])
    expected = cdist(queries / size, points / size).argmin(axis=1)
    assert (mechanism.nearest(queries)[:50] == expected[:50]).all()
    # From very far away all words are equally near in floating point; some word is still found.
    assert (mechanism.nearest(queries) >= 0).all()


def test_exact_search_finds_a_word_where_no_distance_is_finite(vocabulary_of):
    mechanism = Madlib(Index.build(vocabulary_of(np.eye(3)), k=2, hnsw=False), 1.0, "exact")
    assert mechanism.nearest(np.full((2, 3), 1e200)).tolist() == [0, 0]


def test_exact_search_gives_a_tie_to_the_lower_id(vocabulary_of):
    index = Index.build(vocabulary_of([5.0, 1.0, 3.0, 1.0]), k=2, hnsw=False)
    found = Madlib(index, 1.0, "exact").nearest(np.array([[2.0], [1.0], [4.0]]))
    assert found.tolist() == [1, 1, 0]


def test_approximate_search_finds_the_nearest_of_a_small_vocabulary(cloud):
    queries = np.random.default_rng(2).normal(size=(200, 6)) * 4
    found = Madlib(cloud, 1.0, "hnsw").nearest(queries)
    assert (found == cdist(queries, cloud.coordinates).argmin(axis=1)).mean() > 0.97


@pytest.mark.parametrize("search", ["exact", "hnsw"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_an_answer_does_not_depend_on_the_batch_it_is_found_in(cloud, search, size):
    queries = np.random.default_rng(3).normal(size=(130, 6)) * 4
    mechanism = Madlib(cloud, 1.0, search)
    parts = [mechanism.nearest(queries[i : i + size]) for i in range(0, 130, size)]
    assert (np.concatenate(parts) == mechanism.nearest(queries)).all()


# Documents


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(st.integers(-1, 299), max_size=9), min_size=1, max_size=6))
def test_documents_drawn_together_are_those_drawn_alone(cloud, stream, documents):
    mechanism = Madlib(cloud, 2.0, "exact")
    offsets = np.cumsum([0, *map(len, documents)])
    ids = np.array([word for document in documents for word in document], dtype=np.int32)
    keys = range(len(documents))
    together = mechanism.sample_documents(ids, offsets, [stream("doc", key) for key in keys])
    alone = [
        mechanism.sample(document, stream("doc", key))
        for key, document in zip(keys, documents, strict=True)
    ]
    assert together.tolist() == np.concatenate(alone).tolist()


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_documents_longer_than_a_batch_are_drawn_whole(cloud, stream, search):
    mechanism = Madlib(cloud, 2.0, search)
    lengths = [_QUERIES - 1, 0, 1, _QUERIES, 3 * _QUERIES + 5, 2]
    ids = np.random.default_rng(4).integers(-1, 300, sum(lengths)).astype(np.int32)
    offsets = np.cumsum([0, *lengths])
    together = mechanism.sample_documents(ids, offsets, [stream("long", i) for i in range(6)])
    for i, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        alone = mechanism.sample(ids[start:stop], stream("long", i))
        assert (together[start:stop] == alone).all()


def test_one_key_gives_the_same_draws_again_and_another_key_others(cloud, stream):
    mechanism, ids = Madlib(cloud, 2.0), np.arange(300)
    first = mechanism.sample(ids, stream("a"))
    assert (first == mechanism.sample(ids, stream("a"))).all()
    assert (first != mechanism.sample(ids, stream("b"))).any()


# Projection


@pytest.mark.parametrize("projection", [1, 2, 5, 6])
def test_a_projection_never_lengthens_a_distance(cloud, projection):
    points = Madlib(cloud, 1.0, projection=projection).points
    assert points.shape == (300, projection)
    before, after = cdist(cloud.coordinates, cloud.coordinates), cdist(points, points)
    assert (after <= before * (1 + 1e-12) + 1e-12).all()


def test_a_projection_to_all_dimensions_keeps_every_distance(cloud):
    points = Madlib(cloud, 1.0, projection=6).points
    assert_allclose(cdist(points, points), cdist(cloud.coordinates, cloud.coordinates), atol=1e-12)


def test_a_projection_keeps_the_directions_of_most_variance(cloud):
    kept = Madlib(cloud, 1.0, projection=2).points.var(axis=0).sum()
    values = np.linalg.eigvalsh(np.cov(cloud.coordinates.T, bias=True))
    assert kept == pytest.approx(values[-2:].sum(), rel=1e-9)


def test_a_projection_shrinks_the_mean_noise_to_its_dimension_over_epsilon(
    cloud, stream, level, monkeypatch
):
    mechanism = Madlib(cloud, 4.0, "exact", projection=2)
    seen = []
    monkeypatch.setattr(
        mechanism, "nearest", lambda queries: seen.append(queries.copy()) or np.zeros(len(queries))
    )
    mechanism.sample(np.full(20_000, 7), stream("shrunk"))
    lengths = np.linalg.norm(np.concatenate(seen) - mechanism.points[7], axis=1)
    assert stats.kstest(lengths, stats.gamma(2, scale=1 / 4).cdf).pvalue > level
    assert mechanism.statement.figures["mean_noise"] == 0.5


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_a_projected_search_runs_over_the_projected_words(cloud, search):
    mechanism = Madlib(cloud, 1.0, search, projection=3)
    queries = mechanism.points[::10] + 1e-9
    assert mechanism.nearest(queries).tolist() == list(range(0, 300, 10))


# Parameters, statement, copies


@pytest.mark.parametrize(
    "metric",
    ["angular", "manhattan", "chebyshev", CallableMetric(lambda a, b: cdist(a, b), "plain")],
    ids=lambda metric: getattr(metric, "name", metric),
)
def test_a_metric_that_is_not_euclidean_is_refused(vocabulary_of, metric):
    index = Index.build(vocabulary_of(np.eye(4)), metric, k=2, hnsw=False)
    with pytest.raises(MechanismError, match="Euclidean"):
        Madlib(index, 1.0)


@pytest.mark.parametrize(
    "metric", ["euclidean", "unit_euclidean", Mahalanobis(np.diag([1.0, 4.0, 9.0]))]
)
def test_a_metric_that_is_euclidean_in_some_coordinates_moves_those(vocabulary_of, metric):
    points = np.random.default_rng(5).normal(size=(40, 3))
    index = Index.build(vocabulary_of(points), metric, k=4)
    moved = Madlib(index, 1.0).points
    assert_allclose(cdist(moved, moved), index.metric.pairwise(points, points), atol=1e-9)


@pytest.mark.parametrize("projection", [0, -1, 7, 1.5, True, "2"])
def test_a_projection_that_is_no_number_of_directions_is_refused(cloud, projection):
    with pytest.raises(MechanismError, match="projection"):
        Madlib(cloud, 1.0, projection=projection)


def test_an_unknown_search_is_refused(cloud):
    with pytest.raises(MechanismError, match="nonsense"):
        Madlib(cloud, 1.0, "nonsense")


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_a_vocabulary_of_one_word_always_gives_that_word(vocabulary_of, stream, search):
    mechanism = Madlib(Index.build(vocabulary_of([[1.0, 2.0]])), 1.0, search)
    assert mechanism.sample([0, UNKNOWN, 0], stream("one")).tolist() == [0, 0, 0]


def test_approximate_lists_leave_the_guarantee_proved_and_do_not_warn(vocabulary_of):
    # An UnsoundWarning would be an error in this test run.
    points = np.random.default_rng(6).normal(size=(50, 2))
    assert Madlib(Index.build(vocabulary_of(points), k=5, backend="hnsw"), 1.0).statement.proved


def test_no_pair_of_words_is_farther_apart_than_the_stated_worst_loss_says(cloud):
    worst = Madlib(cloud, 2.0).statement.figures["worst_word_loss"]
    assert 2.0 * cdist(cloud.coordinates, cloud.coordinates).max() <= worst


def test_a_mechanism_over_a_saved_index_travels_by_its_folder(vocabulary_of, tmp_path, stream):
    points = np.random.default_rng(7).normal(size=(1000, 8))
    Index.build(vocabulary_of(points), k=16).save(tmp_path / "index")
    for search in ("exact", "hnsw"):
        mechanism = Madlib(Index.load(tmp_path / "index"), 5.0, search, projection=4)
        data = pickle.dumps(mechanism)
        copy = pickle.loads(data)
        assert len(data) < 2000
        assert copy.index.path == mechanism.index.path
        assert copy.settings() == mechanism.settings()
        ids = np.arange(300)
        assert (copy.sample(ids, stream("copy")) == mechanism.sample(ids, stream("copy"))).all()
