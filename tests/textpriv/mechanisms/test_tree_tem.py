"""TreeTEM: law, measure, constant and sentences against dense computation, and its sampler against its law.

Statistical tests compare p-values with 1e-9 under fixed keys.
"""

from __future__ import annotations

import math
import pickle
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import small_trees as trees
from conftest import LEVEL
from numpy.testing import assert_allclose

import textpriv
from textpriv.errors import MechanismError
from textpriv.guarantees.audit import audit
from textpriv.guarantees.certificate import certify
from textpriv.guarantees.significance import goodness_of_fit
from textpriv.index import Index, Tree
from textpriv.mechanisms import TEM, UNKNOWN, TreeTEM, tree_law, tree_sampler
from textpriv.mechanisms.base_measure import PARTS
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary import Vocabulary

PRIORS = ["full", "zipf", "steep"]


def prior_of(name: str, size: int):
    if name == "steep":
        return np.random.default_rng(3).permutation(np.logspace(0, 6, size))
    return name


def laws_of(mechanism: TreeTEM) -> np.ndarray:
    return np.stack([mechanism.log_prob(word) for word in range(len(mechanism.index))])


def dense(mechanism: TreeTEM) -> tuple[np.ndarray, np.ndarray]:
    """Distances, and the logarithm of the law by its definition."""
    apart = mechanism.index.distances_of(np.arange(len(mechanism.index)))
    score = np.log(mechanism.weights) - mechanism.t * np.minimum(apart, mechanism.gamma)
    return apart, score - np.logaddexp.reduce(score, axis=1)[:, None]


def losses(laws: np.ndarray) -> np.ndarray:
    """For each ordered pair of words the largest log-ratio over all outputs."""
    return np.stack([(law - laws).max(axis=1) for law in laws])


# The law


LARGE = 400_000


@pytest.fixture(scope="module")
def large() -> TreeTEM:
    """Over heights between leaves as a random hierarchy has them: each 1.6 times as seldom as the one below it."""
    rng = np.random.default_rng(5)
    gaps = np.minimum(rng.geometric(1 - 1 / 1.6, LARGE - 1), 24)
    used = np.unique(gaps)
    codes = np.searchsorted(used, gaps) + 1
    order = rng.permutation(LARGE)
    return TreeTEM(Tree(trees.words(LARGE), order, codes, np.linspace(0.4, 4.0, len(used))), 3.0)


def test_beyond_30_nats_all_words_count_alike_and_the_promise_holds():
    mechanism = TreeTEM(trees.tree([1, 2, 1], [1.0, 500.0]), 3.0)
    assert mechanism.gamma == 10.0
    laws = laws_of(mechanism)
    assert losses(laws).max() <= 30 + 1e-9
    assert mechanism.statement.figures["worst_word_loss"] <= 30 + 1e-9


def test_a_tree_and_an_index_are_not_taken_for_each_other():
    index = Index.build(Vocabulary(["a", "b"], np.array([[0.0], [1.0]])))
    with pytest.raises(MechanismError, match="textpriv tree SOURCE OUT"):
        TreeTEM(index, 1.0)
    with pytest.raises(MechanismError, match="this index is a tree"):
        TEM(trees.star(3), 1.0)


# Levels


NAMED = ("synonyms", "kind", "any")


def named_tree() -> Tree:
    rng = np.random.default_rng(8)
    return trees.tree(rng.choice([1, 1, 1, 2, 2, 3], 119), names=NAMED)


@pytest.mark.parametrize("prior", PRIORS)
def test_every_number_of_the_sentence_of_levels_holds_by_brute_force_and_is_reached(prior):
    odds = {"synonyms": 3, "kind": 30, "any": 3000}
    mechanism = TreeTEM(named_tree(), levels=odds, prior=prior_of(prior, 120))
    tree, laws = mechanism.index, laws_of(mechanism)
    lost = losses(laws)
    sentence = mechanism.levels_in_words
    assert sentence in mechanism.statement.notes
    said = re.findall(r"level '(\w+)' are told apart by odds of at most ([\d.,]+) to 1", sentence)
    last = re.search(
        r"any two words, an unknown one included, by odds of at most ([\d.,]+) to 1", sentence
    )
    told = {name: float(number.replace(",", "")) for name, number in said}
    told["any"] = float(last.group(1).replace(",", ""))
    assert list(told) == list(NAMED)
    for level, name in enumerate(NAMED, start=1):
        within = np.stack([tree.levels_of(word)[tree.places] <= level for word in range(120)])
        worst = math.exp(lost[within].max())
        assert worst <= told[name] <= odds[name] * (1 + 1e-12)
        if prior == "full":
            assert worst >= odds[name] * (1 - 1e-7)
    unknown = mechanism.log_prob(UNKNOWN)
    assert math.exp(max((unknown - laws).max(), (laws - unknown).max())) <= told["any"]


def test_levels_left_out_take_the_odds_above_and_unnamed_heights_go_by_their_order():
    mechanism = TreeTEM(named_tree(), levels={"kind": 30, "any": 3000})
    assert mechanism.index.names == ("kind", "any")
    assert_allclose(mechanism.index.heights, np.log([30, 3000]), atol=1e-8)
    bare = TreeTEM(trees.tree([1, 2, 1]), levels={"close": 2, "any": 9})
    assert bare.index.names == ("close", "any")
    for levels in ({"kind": 30}, {"kind": 30, "any": 3}, {"sort": 3, "any": 9}):
        with pytest.raises(MechanismError, match=r"levels of the tree|must not fall"):
            TreeTEM(named_tree(), levels=levels)


def test_with_epsilon_the_sentence_gives_the_odds_that_follow():
    sentence = TreeTEM(named_tree(), 1.0).levels_in_words
    assert "'synonyms' are told apart by odds of at most 2.72 to 1" in sentence
    assert "any two words, an unknown one included, by odds of at most 20.1 to 1" in sentence


def test_the_groups_of_a_word_are_those_of_the_tree_with_what_its_law_gives_them():
    mechanism = TreeTEM(named_tree(), 1.0)
    law = np.exp(mechanism.log_prob(7))
    for name, count, loss, share, likeliest in mechanism.groups(7):
        level = NAMED.index(name) + 1
        group = mechanism.index.group(7, level)
        assert count == len(group)
        assert_allclose(share, law[group].sum())
        assert_allclose(loss, level, atol=1e-6)
        assert set(likeliest) <= {f"w{word}" for word in group}
        assert np.all(np.diff([law[int(word[1:])] for word in likeliest]) <= 0)
    assert [each.name for each in mechanism.groups(7, most=1)] == [NAMED[0]]
    with pytest.raises(MechanismError, match="most is a whole number from 1"):
        mechanism.groups(7, most=0)
    assert TEM(Index.build(Vocabulary(["a"], np.zeros((1, 1)))), 1.0).groups(0) is None


# Draws


def test_draws_of_400_000_words_fit_their_law_by_level_and_place(large):
    """By the height at which what is drawn meets the word, and by which 40th of the leaves it comes from."""
    tree, streams = large.index, KeyedStreams(seed=4)
    for word in (*tree.order[[0, 200_000]].tolist(), UNKNOWN):
        met = (
            np.zeros(LARGE, np.int64) if word == UNKNOWN else tree.levels_of(word).astype(np.int64)
        )
        cells = met * 40 + np.arange(LARGE) * 40 // LARGE
        law = np.exp(large.log_prob(word))[tree.order]
        ids = np.full(300_000, word, dtype=np.int32)
        drawn = tree.places[large.sample(ids, streams.stream(f"large {word}"))]
        wanted = np.bincount(cells, weights=law)
        counts = np.bincount(cells[drawn], minlength=len(wanted))
        assert np.count_nonzero(wanted * len(ids) > 5) > 30
        assert goodness_of_fit(counts, wanted / wanted.sum()) > LEVEL
    # Running words, too, by level alone.
    ids = np.random.default_rng(7).integers(0, LARGE, 300_000).astype(np.int32)
    drawn = large.sample(ids, streams.stream("running"))
    metric = tree.metric
    levels = metric.levels(tree.places[ids].astype(np.int64), tree.places[drawn].astype(np.int64))
    wanted = level_law(large, ids)
    assert goodness_of_fit(np.bincount(levels, minlength=len(wanted)), wanted) > LEVEL


def level_law(mechanism: TreeTEM, words: np.ndarray) -> np.ndarray:
    """How often what is drawn for some words meets them at each level, 0 for themselves."""
    nodes, law = mechanism.index.nodes, mechanism._law
    before = np.concatenate([[0.0], np.cumsum(law.measure.weights)])
    inside = before[nodes.end] - before[nodes.start]
    at = nodes.atom[mechanism.index.places[words]]
    scale = np.exp(-law.log_z[at])
    found = np.zeros(len(law.reach))
    found[0] = (inside[at] * scale).sum()
    while (nodes.parent[at] >= 0).any():
        up = nodes.parent[at]
        level = nodes.level[up]
        share = (inside[up] - inside[at]) * np.exp(-law.reach[level]) * scale
        np.add.at(found, level[up >= 0], share[up >= 0])
        at, scale = up[up >= 0], scale[up >= 0]
    return found / found.sum()


def test_tokens_of_a_document_are_drawn_independently():
    tree = trees.HARD["a star"]()
    mechanism = TreeTEM(tree, 1.0)
    ids = np.tile(np.array([0, 0, 5], dtype=np.int32), 60_000)
    drawn = mechanism.sample(ids, KeyedStreams(seed=6).stream("joint")).reshape(-1, 3)
    first, second, third = (np.exp(mechanism.log_prob(word)) for word in (0, 0, 5))
    for one, other, laws in ((0, 1, (first, second)), (1, 2, (second, third))):
        counts = np.bincount(drawn[:, one] * 40 + drawn[:, other], minlength=1600)
        assert goodness_of_fit(counts, np.outer(*laws).ravel()) > LEVEL


def test_a_document_is_drawn_the_same_way_alone_and_among_others_of_any_length():
    tree = trees.random_tree(300, 20, 9, together=0.1)
    mechanism = TreeTEM(tree, 1.5, prior="zipf")
    rng = np.random.default_rng(2)
    lengths = [0, 1, 7, 60_000, 3]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(UNKNOWN, 300, offsets[-1]).astype(np.int32)
    streams = KeyedStreams(seed=1)
    together = mechanism.sample_documents(ids, offsets, [streams.stream(i) for i in range(5)])
    for i in range(5):
        part = slice(offsets[i], offsets[i + 1])
        assert np.array_equal(mechanism.sample(ids[part], streams.stream(i)), together[part])


GOLDEN = "d475870faf191b36"


def test_measures_are_whole_parts_that_sum_to_one():
    for name in trees.HARD:
        assert int(TreeTEM(trees.HARD[name](), 2.0)._law.measure.parts.sum()) == PARTS


def test_a_mechanism_comes_out_of_a_pickle_as_it_was(tmp_path):
    named_tree().save(tmp_path / "tree")
    for tree in (named_tree(), Index.load(tmp_path / "tree")):
        for settings in ({"epsilon": 2.0}, {"levels": {"kind": 5, "any": 50}, "prior": "zipf"}):
            mechanism = TreeTEM(tree, **settings)
            again = pickle.loads(pickle.dumps(mechanism))
            assert again.binding() == mechanism.binding()
            assert again.drawn_from() == mechanism.drawn_from()
            ids = np.arange(120, dtype=np.int32)
            streams = KeyedStreams(seed=1)
            assert np.array_equal(
                again.sample(ids, streams.stream(0)), mechanism.sample(ids, streams.stream(0))
            )


# What is claimed


def test_the_certificate_says_what_the_tree_parts():
    tree = trees.HARD["many heights"]()
    tree.separated = 50, tuple(np.linspace(0.9, 0.0, len(tree.heights)))
    assert "90 % lie outside" in certify(TreeTEM(tree, 3.0)).paragraph()


@pytest.mark.alone
def test_at_400_000_words_certificate_and_draws_take_seconds(large):
    """Of the processor's time, with room for slower ones: a list or a search for each word would take minutes."""
    mechanism = large
    certify(mechanism)
    ids = np.random.default_rng(6).integers(0, LARGE, 2_000_000).astype(np.int32)
    mechanism.sample(ids[:10], KeyedStreams(seed=1).stream(0))
    begin = time.process_time()
    assert certify(mechanism).holds
    middle = time.process_time()
    mechanism.sample(ids, KeyedStreams(seed=1).stream(1))
    assert middle - begin < 10.0
    assert time.process_time() - middle < 10.0


class TooFast(TreeTEM):
    """At the rate of the full measure under another prior."""

    def _settle(self, weights):
        return tree_law.TreeLaw.at(self.index, self.epsilon, weights)


class Understated(TreeTEM):
    @property
    def statement(self):
        return replace(super().statement, epsilon=self.epsilon * 0.98)


class WithoutExclusion(TreeTEM):
    """Chooses an ancestor by all of its words, those of the child towards the word among them."""

    def _tables(self):
        held = tree_sampler.Tables(*super()._tables())
        nodes, words, scale = held.nodes.copy(), held.words.copy(), held.scale / 128
        for at in range(1, len(nodes)):
            up = int(nodes[at, 1])
            weight = float(nodes[up, 3] - nodes[up, 2]) / PARTS
            weight *= math.exp(-held.reach[held.level[up]])
            nodes[at, 0] = int(nodes[up, 0]) + math.ceil(weight * scale)
        words[:, 1] >>= np.uint64(7)
        return tuple(held._replace(nodes=nodes, words=words, scale=scale))


class OwnUnknown(TreeTEM):
    """Gives an unknown word the law of the first word, which is not said."""

    def sample_documents(self, ids, offsets, streams):
        return super().sample_documents(np.maximum(ids, 0), offsets, streams)


class SometimesRaw(TreeTEM):
    """Releases one word in 200 as it is."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        out[::200] = np.where(ids[::200] >= 0, ids[::200], out[::200])
        return out


class SharedDraws(TreeTEM):
    """Each word gets the output of the one before it, every other time."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        out[1::2] = out[: len(out[1::2]) * 2 : 2]
        return out


class Steeper(TreeTEM):
    """Draws by other heights than it states."""

    def _tables(self):
        held = tree_sampler.Tables(*super()._tables())
        self._law = self._law._replace(reach=self._law.reach * 1.5)
        made = super()._tables()
        self._law = self._law._replace(reach=held.reach)
        return made


@pytest.mark.parametrize(
    ("broken", "check", "settings"),
    [
        (TooFast, "ratio", {"prior": "zipf"}),
        (Understated, "ratio", {}),
        (WithoutExclusion, "sampler", {}),
        (OwnUnknown, "sampler", {}),
        (SometimesRaw, "release", {}),
        (SharedDraws, "independence", {}),
        (Steeper, "sampler", {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_audit_catches_what_is_broken(broken, check, settings):
    report = audit(broken, **settings)
    assert check in {each.name for each in report.failures}


def test_a_certificate_refutes_a_rate_that_is_too_high():
    found = certify(TooFast(trees.HARD["many heights"](), 2.0, prior="zipf"))
    assert not found.holds
    assert found.rho > 2.0


def test_the_statement_says_the_sum_and_the_zcdp_bound_that_hold():
    mechanism = TreeTEM(trees.HARD["many heights"](), 1.5)
    statement = mechanism.statement
    assert statement.proved
    assert statement.epsilon == 1.5
    (note,) = [each for each in statement.notes if "zCDP" in each]
    factor = float(re.search(r"are therefore ([\d.]+) x \(u_1\^2", note).group(1))
    # Bounded range (mechanisms.md 10.2): the log-ratio of two words moves within 2 t u, whose square over 8 is its zCDP.
    laws, apart = laws_of(mechanism), mechanism.index.distances_of(np.arange(300))
    ranges = np.stack([np.ptp(law - laws, axis=1) for law in laws])
    assert (ranges <= 2 * mechanism.t * apart + 1e-9).all()
    assert_allclose(factor, (2 * mechanism.t) ** 2 / 8, rtol=1e-5)
    # ... and by the divergences themselves, at several orders.
    first, second = 0, int(apart[0].argmax())
    for order in (1.5, 2.0, 8.0):
        moment = np.logaddexp.reduce(order * laws[first] + (1 - order) * laws[second])
        assert moment / (order - 1) <= order * factor * apart[first, second] ** 2 + 1e-12


def test_it_is_public_under_its_name():
    assert textpriv.TreeTEM is TreeTEM
    assert textpriv.Tree is Tree
