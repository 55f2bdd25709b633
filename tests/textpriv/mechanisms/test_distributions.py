"""Every mechanism on hard vocabularies: output distribution against brute force, claim over all triples, draws."""

from __future__ import annotations

import math
import pickle
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import stats

from tests.small_trees import HARD as TREES
from textpriv import TEM, Madlib, TreeTEM
from textpriv.errors import MechanismError
from textpriv.guarantees.significance import goodness_of_fit
from textpriv.index import Index
from textpriv.mechanisms.base import UNKNOWN
from textpriv.mechanisms.near import attempts, decayed, fits
from textpriv.randomness import KeyedStreams, Stream
from textpriv.vocabulary import Vocabulary

LEVEL = 1e-9  # of each of some 150 statistical tests with fixed keys
DRAWS = 20_000


def vectors(name: str) -> np.ndarray:
    """Ties, duplicates, outliers, hubs, one word and two words."""
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2)
    crowd = np.concatenate([np.eye(30) * 0.2, np.full((1, 30), 2.0)])
    return {
        "one word": np.zeros((1, 2)),
        "two words": np.array([[0.0], [1.0]]),
        "ties": grid * 0.8,
        "duplicates": np.concatenate([grid[:20], grid[:9], grid[:9]]) * 0.5,
        "crowd and outlier": crowd,
        "hub and ring": np.concatenate([[[0.0, 0.0, 0.0]], rng.normal(size=(40, 3))]) * 1.5,
    }[name]


NAMES = ["one word", "two words", "ties", "duplicates", "crowd and outlier", "hub and ring"]


def index_of(points: np.ndarray, k: int = 8, space: str = "euclidean") -> Index:
    words = [f"w{number}" for number in range(len(points))]
    return Index.build(Vocabulary(words, points), space, k=k)


def built(name: str, k: int = 8, space: str = "euclidean") -> Index:
    return index_of(vectors(name), k, space)


def all_laws(mechanism) -> np.ndarray:
    return np.stack([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def by_hand(mechanism: TEM) -> np.ndarray:
    """The published formula over the grid points, in logarithms."""
    index = mechanism.index
    points = index.points.astype(np.float64) * index.unit
    order = 1 if index.space == "manhattan" else 2
    apart = np.linalg.norm(points[:, None] - points[None], ord=order, axis=2)
    prior = index.vocabulary.prior_weights(mechanism.prior)
    score = np.log(prior) - mechanism.epsilon / 2 * np.minimum(apart, mechanism.gamma)
    return score - np.logaddexp.reduce(score, axis=1)[:, None]


TEMS = [
    {"epsilon": 2.0},
    {"epsilon": 0.05},
    {"epsilon": 40.0},
    {"epsilon": 3.0, "prior": "uniform"},
    {"epsilon": 3.0, "gamma": 0.9},
]


@pytest.mark.parametrize("space", ["euclidean", "manhattan"])
@pytest.mark.parametrize("name", NAMES)
def test_tem_has_the_published_output_distribution(name, space):
    for setting in TEMS:
        mechanism = TEM(built(name, space=space), **setting)
        np.testing.assert_allclose(all_laws(mechanism), by_hand(mechanism), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_no_triple_of_words_breaks_the_claim_of_tem(name):
    index = built(name)
    apart = index.distances_of(np.arange(len(index)))
    for setting in TEMS:
        mechanism = TEM(index, **setting)
        laws, unknown = all_laws(mechanism), mechanism.log_prob(UNKNOWN)
        losses = (laws[:, None] - laws[None]).max(axis=2)
        assert (losses <= mechanism.epsilon * np.minimum(apart, mechanism.gamma) + 1e-9).all()
        figures = mechanism.statement.figures
        assert losses.max() <= figures["worst_word_loss"] + 1e-9
        assert np.abs(laws - unknown).max() <= figures["unknown_word_loss"] + 1e-9


@pytest.mark.parametrize("k", [1, 8, 10_000])
@pytest.mark.parametrize("name", NAMES)
def test_draws_of_tem_fit_its_output_distribution(name, k):
    index = built(name, k)
    for number, setting in enumerate(TEMS):
        assert_fits(TEM(index, **setting), f"{name} {k} {number}")


def assert_fits(mechanism, label: str, words=()) -> None:
    size, streams = len(mechanism.index), KeyedStreams(seed=1)
    for word in {UNKNOWN, 0, size // 2, size - 1, *words}:
        ids = np.full(DRAWS, word)
        counts = np.bincount(
            mechanism.sample(ids, streams.stream(f"{label} {word}")), minlength=size
        )
        law = np.exp(mechanism.log_prob(word))
        assert abs(law.sum() - 1) < 1e-9
        assert goodness_of_fit(counts, law) > LEVEL, (label, word)


def one_attempt(mechanism: TEM, word: int) -> np.ndarray:
    """Probability that one attempt returns each word, from the whole parts and coins of its row."""
    size, tables, whole = len(mechanism.index), mechanism.tables, 2**62
    tables.prepare(np.array([word], dtype=np.int32))
    rows, parts = tables.rows, [0, *map(int, tables.rows.ends[word])]
    weights = [decayed(steps, rows.decay) for steps in mechanism.index.steps_of([word])[0].tolist()]
    real = np.array(weights) * mechanism.measure.weights * rows.scale[word]
    chosen = np.zeros(size)
    for output, first, last in zip(rows.ids[word].tolist(), parts[:-1], parts[1:], strict=True):
        coin = real[output] / (last - first) if real[output] < 2**32 else 1.0
        assert coin <= 1
        chosen[output] = (last - first) / whole * coin
    assert rows.block_row[word] < 0
    for output in set(range(size)) - set(rows.ids[word].tolist()):
        accepted = weights[output] * rows.tail[word]
        assert accepted <= 1
        chosen[output] = (whole - parts[-1]) / whole * mechanism.measure.weights[output] * accepted
    return chosen


@pytest.mark.parametrize("rarest", [1.0, 2.0**-20, 2.0**-39])
def test_one_attempt_returns_words_in_proportion_to_their_weights(rarest):
    rng = np.random.default_rng(2)
    points = rng.normal(size=(30, 3))
    prior = np.where(rng.random(30) < 0.5, 1.0, rarest)
    for epsilon, k in ((0.5, 1), (2.0, 5), (9.0, 29), (60.0, 30)):
        mechanism = TEM(index_of(points, k), epsilon, prior)
        mechanism.tables.prepare(np.arange(30, dtype=np.int32))
        for word in np.flatnonzero(mechanism.tables.rows.block_row < 0)[:5].tolist():
            ratio = one_attempt(mechanism, word) / np.exp(mechanism.log_prob(word))
            assert ratio.max() / ratio.min() - 1 < 4.1 * 2.0**-32


@pytest.mark.parametrize(
    ("real", "below", "wanted"),
    [
        (0.25, 0.24, True),
        (0.25, 0.26, False),
        (2.25, 0.74, True),
        (2.25, 0.76, False),
        (2.0**32, 0.999, True),
    ],
)
def test_a_coin_makes_up_for_rounding_up(real, below, wanted):
    assert fits(real, np.uint64(below * 2.0**64), np.uint64(0)) == wanted


def test_a_listed_word_of_few_parts_is_accepted_by_a_coin(index_of):
    points = np.random.default_rng(2).normal(size=(40, 3))
    mechanism = TEM(index_of(points, space="euclidean", k=40), 25.0, gamma=2.4)
    mechanism.tables.prepare(np.arange(40, dtype=np.int32))
    rows = mechanism.tables.rows
    gaps = np.diff(rows.ends, axis=1)
    word, rank = (int(each[0]) for each in np.nonzero((gaps > 0) & (gaps < 2**32)))
    part, worst = rows.ends[word, rank] << np.uint64(2), np.uint64(2**64 - 1)
    for coins, wanted in (((0, 0), rows.ids[word, rank + 1]), ((worst, worst), -5)):
        random = np.array([[part, 0, *coins]], np.uint64)
        out = np.array([-5], np.int32)
        attempts(rows, np.array([word], np.int32), np.zeros(1, np.int64), random, out)
        assert out[0] == wanted


def test_another_thread_may_fill_in_the_same_rows_first(index_of):
    tables, ids = TEM(index_of(vectors("ties")), 2.0).tables, np.arange(36, dtype=np.int32)

    class Late:
        """Comes in when another thread has been there."""

        def __enter__(self):
            tables._lock = nullcontext()
            tables.prepare(ids)

        def __exit__(self, *error):
            pass

    tables._lock = Late()
    tables.prepare(ids)
    assert tables._ready[ids].all()


def test_a_word_that_needs_many_attempts_is_drawn_by_blocks():
    rng = np.random.default_rng(0)
    near = rng.normal(size=(130, 12)) * 0.1  # over several blocks; a tenth of their mass is listed
    points = np.concatenate([near, rng.normal(size=(400, 12)) * 3])
    mechanism = TEM(index_of(points), 6.0, 1 / (np.arange(530) + 3.0)[::-1] ** 2)
    mechanism.tables.prepare(np.arange(530, dtype=np.int32))
    hard = np.flatnonzero(mechanism.tables.rows.block_row >= 0)
    assert len(hard)
    assert_fits(mechanism, "blocks", hard[[0, -1]].tolist())


# Trees


@pytest.mark.parametrize("name", TREES)
def test_no_triple_of_a_tree_breaks_the_claim(name):
    tree = TREES[name]()
    size = len(tree)
    apart = tree.distances_of(np.arange(size))
    for prior in ("full", "zipf", "uniform"):
        for epsilon in (0.3, 2.0, 50.0):
            mechanism = TreeTEM(tree, epsilon, prior=prior)
            laws = all_laws(mechanism)
            score = np.log(
                np.exp(laws[0]) * np.exp(mechanism.t * np.minimum(apart[0], mechanism.gamma))
            )
            by_sum = score - mechanism.t * np.minimum(apart, mechanism.gamma)
            by_sum -= np.logaddexp.reduce(by_sum, axis=1)[:, None]
            np.testing.assert_allclose(laws, by_sum, atol=1e-8)
            losses = np.max([np.abs(laws - laws[word]).max(axis=1) for word in range(size)], axis=0)
            assert losses.max() <= mechanism.statement.figures["worst_word_loss"] + 1e-9
            told = apart > 0
            pairs = np.stack([(laws - laws[word]).max(axis=1) for word in range(size)])
            constant = (pairs[told] / apart[told]).max() if told.any() else 0.0
            assert constant <= epsilon * (1 + 1e-9)
            assert constant == pytest.approx(mechanism.closed_constant()[0], rel=1e-7)
            if prior == "full" and mechanism.gamma >= apart.max():
                assert constant == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("name", TREES)
def test_draws_over_a_tree_fit_its_output_distribution(name):
    for prior in ("full", "zipf"):
        assert_fits(TreeTEM(TREES[name](), 2.0, prior=prior), f"{name} {prior}")


def test_levels_bound_the_odds_within_each_group():
    tree = TREES["ties of height"]()
    tree = tree.reheighted(tree.heights, ("a", "b", "c"))
    odds = dict(zip(tree.names, (2.0, 9.0, 400.0), strict=True))
    mechanism = TreeTEM(tree, levels=odds)
    laws, apart = all_laws(mechanism), tree.distances_of(np.arange(len(tree)))
    for height, most in zip(tree.heights, odds.values(), strict=True):
        within = apart <= height
        losses = np.stack([(laws - law).max(axis=1) for law in laws])
        assert losses[within].max() <= np.log(most)
    for wrong, reason in (
        ({"a": 9.0, "b": 2.0, "c": 400.0}, "must not fall"),
        ({"a": 1.0, "c": 400.0}, "above 1.001"),
        ({"a": 2.0}, "the last must have odds"),
    ):
        with pytest.raises(MechanismError, match=reason):
            TreeTEM(tree, levels=wrong)


# Madlib


def test_the_noise_of_madlib_has_a_gamma_length_and_no_direction():
    from textpriv.mechanisms.madlib import noise

    for dimensions in (1, 2, 7):
        words = Stream(bytes(32)).words(40_000 * (2 * ((dimensions + 1) // 2) + dimensions))
        drawn = noise(words.reshape(40_000, -1), dimensions)
        lengths = np.linalg.norm(drawn, axis=1)
        assert stats.kstest(lengths, "gamma", args=(dimensions,)).pvalue > LEVEL
        directions = drawn / lengths[:, None]
        assert np.abs(directions.mean(axis=0)).max() < 6.5 / np.sqrt(40_000 * dimensions)
        assert np.abs((directions**2).mean(axis=0) - 1 / dimensions).max() < 0.03


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_madlib_keeps_one_of_two_words_as_often_as_it_should(search):
    index = index_of(np.array([[0.0], [1.5]]))
    for epsilon in (0.5, 3.0):
        out = Madlib(index, epsilon, search).sample(np.zeros(DRAWS, dtype=int), Stream(bytes(32)))
        keep = 1 - 0.5 * np.exp(-epsilon * 1.5 / 2)
        assert stats.binomtest(int((out == 0).sum()), DRAWS, keep).pvalue > LEVEL


def test_exact_search_of_madlib_finds_the_nearest_point():
    index = built("duplicates")
    mechanism = Madlib(index, 1.0, "exact")
    queries = np.random.default_rng(0).normal(size=(300, 2)) * 80
    apart = np.square(queries[:, None] - index.points[None].astype(float)).sum(axis=2)
    found = mechanism.nearest(queries)
    assert (apart[np.arange(300), found] <= apart.min(axis=1) + 1).all()
    exact = mechanism.nearest(index.points.astype(float))
    assert (index.points[exact] == index.points).all()
    assert (exact <= np.arange(len(index))).all()  # ties go to the lower id


def test_the_worst_losses_of_madlib_cover_unknown_words():
    index = index_of(np.array([[0.0, 0.0], [10.0, 0.0], [0.2, 0.1]]))
    figures = Madlib(index, 2.0, "exact").statement.figures
    centre = np.linalg.norm(index.points * index.unit, axis=1).max()
    assert figures["unknown_word_loss"] == pytest.approx(2.0 * centre)
    assert figures["worst_word_loss"] >= max(2.0 * index.distance(0, 1), 2.0 * centre) - 1e-9


def test_madlib_refuses_a_manhattan_index():
    with pytest.raises(MechanismError, match="manhattan"):
        Madlib(built("ties", space="manhattan"), 2.0)


# All of them


MADE = {
    "TEM": lambda: TEM(built("hub and ring"), 2.0),
    "TEM by blocks": lambda: TEM(built("hub and ring", k=1), 9.0),
    "TreeTEM": lambda: TreeTEM(TREES["ties of height"](), 2.0, prior="zipf"),
    "Madlib": lambda: Madlib(built("hub and ring"), 9.0, "exact"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_document_is_drawn_alike_alone_and_in_any_batch(name):
    mechanism = MADE[name]()
    rng = np.random.default_rng(5)
    lengths = np.array([3, 0, 1, 700, 12, 5])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(UNKNOWN, len(mechanism.index), offsets[-1]).astype(np.int32)
    streams = KeyedStreams(seed=4)
    together = mechanism.sample_documents(ids, offsets, [streams.stream(i) for i in range(6)])
    for document, (first, last) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        alone = mechanism.sample(ids[first:last], streams.stream(document))
        np.testing.assert_array_equal(alone, together[first:last])


@pytest.mark.parametrize("name", MADE)
def test_a_mechanism_survives_pickling_and_draws_the_same(name):
    mechanism = MADE[name]()
    again = pickle.loads(pickle.dumps(mechanism))
    ids = np.arange(len(mechanism.index))
    same = mechanism.sample(ids, Stream(bytes(32))), again.sample(ids, Stream(bytes(32)))
    np.testing.assert_array_equal(*same)
    assert again.binding() == mechanism.binding()
    assert repr(again) == repr(mechanism)


@pytest.mark.parametrize("name", MADE)
def test_the_statement_is_proved_and_pure(name):
    statement = MADE[name]().statement
    assert statement.proved
    assert statement.delta == 0
    assert 0 < statement.figures["numerical_slack"] <= 1e-8
    assert "rounded vectors" in statement.unit or "tree" in statement.unit


@pytest.mark.parametrize("name", ["TEM", "TEM by blocks", "TreeTEM"])
def test_losses_between_two_words_stay_within_the_stated_range(name):
    mechanism = MADE[name]()
    laws = all_laws(mechanism)
    apart = mechanism.index.distances_of(np.arange(len(laws)))
    figures = mechanism.statement.figures
    for word, law in enumerate(laws):
        spread = np.ptp(law - laws, axis=1)
        assert (spread <= figures["bounded_range"] * apart[word] + 1e-9).all()
        assert spread.max() <= figures["largest_range"] + 1e-9


def test_a_binding_tells_apart_all_that_draws_hang_on():
    index, other = built("ties"), built("ties", k=9)
    made = [
        TEM(index, 2.0),
        TEM(index, 2.5),
        TEM(index, 2.0, "zipf"),
        TEM(index, 2.0, gamma=0.9),
        TEM(index, 2.0, np.arange(36.0, 0.0, -1.0)),
        TEM(other, 2.0),
        TEM(built("duplicates"), 2.0),
        Madlib(index, 2.0, "exact"),
    ]
    assert len({str(each.binding()) for each in made}) == len(made)
    counts = np.arange(1.0, 37.0)
    named = dict(zip(index.vocabulary.words, counts, strict=True))
    assert TEM(index, 2.0, counts).binding() == TEM(index, 2.0, named).binding()


def test_theorem_3_bounds_what_falls_beyond_gamma():
    index = built("ties")
    mechanism = TEM(index, 20.0, "uniform", beta=0.05)
    laws, apart = np.exp(all_laws(mechanism)), index.distances_of(np.arange(len(index)))
    assert mechanism.gamma < apart.max()
    assert np.where(apart > mechanism.gamma, laws, 0).sum(axis=1).max() <= 0.05


def test_no_last_bit_of_a_logarithm_decides_draws_or_keys(monkeypatch):
    index, log = built("ties"), math.log
    bound = []
    for direction in (0.0, math.inf):
        monkeypatch.setattr(math, "log", lambda x, to=direction: math.nextafter(log(x), to))
        bound.append(TEM(index, 2.0, "uniform").binding())
    assert bound[0] == bound[1]


def test_no_word_loses_more_than_60_nats_however_coarse_the_grid(index_of):
    index = index_of(np.array([[0.0], [1.0], [2.0], [5000.0]]), space="euclidean")
    mechanism = TEM(index, 6.0)
    assert mechanism.gamma < index.unit
    assert mechanism.statement.figures["worst_word_loss"] <= 60
    laws = all_laws(mechanism)
    assert np.abs(laws[:, None] - laws).max() <= 60


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much", None, 1e31])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(MechanismError, match="epsilon"):
        TEM(built("two words"), epsilon)


def test_ids_outside_the_vocabulary_are_refused():
    mechanism = TEM(built("two words"), 1.0)
    for ids in ([2], [-2], [[0]], [0.5]):
        with pytest.raises(MechanismError, match="ids must be"):
            mechanism.sample(ids, Stream())
    assert len(mechanism.sample([], Stream())) == 0


def test_a_mechanism_refuses_the_wrong_kind_of_index():
    with pytest.raises(MechanismError, match="is a tree"):
        TEM(TREES["a star"](), 1.0)
    with pytest.raises(MechanismError, match="is none"):
        TreeTEM(built("ties"), 1.0)
    with pytest.raises(MechanismError, match=r"needs a textpriv\.Index"):
        TEM("index", 1.0)


def test_a_statement_says_how_often_common_names_stay():
    names = ["john", "mary", "david", "anna", "film", "good"]
    points = np.random.default_rng(0).normal(size=(6, 4)) * 3
    index = Index.build(Vocabulary(names, points), "euclidean", k=6)
    for epsilon, share in ((50.0, "0.99"), (0.1, "0.25")):
        stated = TEM(index, epsilon, "zipf").statement.not_protected[0]
        assert f"half of 4 stay unchanged with probability {share}" in stated


def test_a_word_is_explained_by_its_likeliest_outputs():
    mechanism = TEM(built("hub and ring"), 9.0)
    found = mechanism.explain("w3", 4)
    law = mechanism.log_prob("w3")
    assert [word for word, _, _ in found] == [f"w{i}" for i in np.argsort(-law, kind="stable")[:4]]
    assert found[0][1] == pytest.approx(np.exp(law.max()))
    assert Madlib(built("ties"), 2.0, "exact").has_log_prob is False


def test_a_huge_epsilon_keeps_every_word():
    vectors = np.random.default_rng(0).normal(size=(20, 3))
    index = Index.build(Vocabulary([f"w{i}" for i in range(20)], vectors), "euclidean", k=4)
    ids = np.repeat(np.arange(20, dtype=np.int32), 5)
    for epsilon in (1e6, 1e12):
        drawn = TEM(index, epsilon).sample(ids, np.random.default_rng(0))
        np.testing.assert_array_equal(drawn, ids)
