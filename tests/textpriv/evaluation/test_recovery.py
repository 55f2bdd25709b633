"""Recovery of single words against brute force, and the epsilon at which it is as wished."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small_trees as trees
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from textpriv import TEM, ContextualTEM, TreeTEM
from textpriv.errors import MechanismError, OutOfReachError, TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText, largest_epsilon
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.evaluation.recovery import content_prior, word_recovery
from textpriv.index import Index
from textpriv.language import NGrams
from textpriv.language.ngrams import SYMBOLS, symbol_id
from textpriv.mechanisms.base import UNKNOWN
from textpriv.vocabulary import Vocabulary

SIZE, COMMON = 40, 5
PRIOR = np.arange(SIZE, 0, -1.0) / np.arange(SIZE, 0, -1.0).sum()
IS_CONTENT = np.arange(SIZE) >= COMMON
CONTENT = np.where(IS_CONTENT, PRIOR, 0.0) / PRIOR[COMMON:].sum()


def index_of(vectors, k: int = 20, prior=None) -> Index:
    words = [f"w{i}" for i in range(len(vectors))]
    vocabulary = Vocabulary(words, vectors, prior=prior, function_words=words[:COMMON])
    return Index.build(vocabulary, "euclidean", k=min(k, len(vectors)))


def laws_of(mechanism) -> np.ndarray:
    return np.exp([mechanism.log_prob(word) for word in range(len(mechanism.index))])


@pytest.fixture(scope="module")
def make():
    index = index_of(np.random.default_rng(0).normal(size=(SIZE, 3)), prior=PRIOR)
    return lambda epsilon: TEM(index, epsilon, prior="uniform")


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 30),
    epsilon=st.sampled_from([0.01, 0.5, 3.0, 20.0, 300.0]),
    gamma=st.sampled_from([0.5, 2.0, None]),
    same=st.integers(0, 4),
    left_out=st.integers(0, 39),
)
def test_likeliest_words_are_those_of_all_pairs(seed, k, epsilon, gamma, same, left_out):
    """Words beyond the lists, truncated distances, equal vectors, words that are never written."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 3)).astype(np.float32)
    vectors[:same] = vectors[-1]
    mechanism = TEM(index_of(vectors, k), epsilon, gamma=gamma)
    some = rng.permutation(rng.random(40) ** 8 * (np.arange(40) >= left_out))
    priors = [mechanism.index.vocabulary.prior_weights("zipf"), some / some.sum()]
    for prior in priors:
        guess, value = OutputDistribution(mechanism).likeliest(prior)
        joint = prior[:, None] * laws_of(mechanism)
        # Scores are at most 1,000 nats, in single precision.
        assert_allclose(value, joint.max(axis=0), rtol=2e-4)
        assert_allclose(joint[guess, np.arange(40)], joint.max(axis=0), rtol=2e-4)


@pytest.mark.parametrize("name", trees.HARD)
def test_likeliest_words_over_a_tree_are_those_of_all_pairs(name):
    law = OutputDistribution(TreeTEM(trees.HARD[name](), 1.3, prior="zipf"))
    joint = law.prior[:, None] * laws_of(law.mechanism)
    guess, value = law.likeliest()
    assert_allclose(value, joint.max(axis=0), rtol=1e-9)
    assert_allclose(joint[guess, np.arange(len(joint))], value, rtol=1e-9)


def test_an_own_mechanism_is_asked_for_each_word_once(monkeypatch):
    monkeypatch.setattr("textpriv.evaluation.distribution._CELLS", 100)  # several blocks

    class Own(TEM):
        def exponential_decay(self):
            return None

        def likeliest_inputs(self, prior):
            return None

        def log_prob(self, word):
            asked.append(int(word))
            return super().log_prob(word)

    index = index_of(np.random.default_rng(4).normal(size=(30, 4)))
    asked: list[int] = []
    law = OutputDistribution(Own(index, 2.0))
    asked.clear()
    guess, value = law.likeliest()
    assert asked == [*range(30)]
    joint = law.prior[:, None] * laws_of(TEM(index, 2.0))
    assert_allclose(value, joint.max(axis=0), rtol=1e-5)
    assert_allclose(joint[guess, np.arange(30)], joint.max(axis=0), rtol=1e-5)


@pytest.mark.parametrize("tree", [False, True])
def test_rows_and_columns_are_the_output_distributions(tree, monkeypatch):
    monkeypatch.setattr("textpriv.evaluation.distribution._CELLS", 100)  # several blocks
    index = index_of(np.random.default_rng(4).normal(size=(30, 4)))
    # Under a uniform prior the base measure cancels.
    flat = TEM(index, 2.0, prior="zipf")
    law = OutputDistribution(TreeTEM(trees.random_tree(30, 4, 2), 2.0) if tree else flat)
    wanted, outputs = laws_of(law.mechanism), np.array([3, 4, 9, 20, 29])
    assert_allclose(law.rows(np.array([2, 7])), wanted[[2, 7]], rtol=1e-4)
    found = np.concatenate([block for _, block in law.columns(outputs)])
    assert_allclose(found, wanted[:, outputs].T, rtol=1e-4)
    monkeypatch.setattr("textpriv.evaluation.distribution._LISTED", 9)
    rows, others = law.sparse_rows
    sparse = rows.toarray()
    assert_allclose(others, law.prior @ (wanted - sparse), atol=1e-6)
    assert_allclose(sparse[sparse > 0], wanted[sparse > 0], rtol=1e-4)
    left_out = np.where(sparse > 0, 0, wanted).max(axis=1)
    listed = (sparse > 0).sum(axis=1)
    assert (listed <= 9).all() if tree else (listed == 9).all()  # a tree has ties
    assert (np.where(sparse > 0, sparse, 1).min(axis=1) > left_out * (1 - 1e-4)).all()


def test_recovery_and_its_table_are_those_of_brute_force():
    mechanism = TEM(index_of(np.random.default_rng(4).normal(size=(60, 4))), 2.0)
    written = mechanism.index.vocabulary.prior_weights("zipf")
    found, law = word_recovery(mechanism), laws_of(mechanism)
    is_content = np.arange(60) >= COMMON
    joint = np.where(is_content, written, 0)[:, None] * law
    assert found.content == pytest.approx(joint.max(axis=0).sum() / written[is_content].sum())
    named = joint.argmax(axis=0)
    right = np.bincount(named, law[named, np.arange(60)], minlength=60)
    assert_allclose(found.by_word, np.where(is_content, right, 0), atol=1e-5)
    assert np.array_equal(found.guess, (written[:, None] * law).argmax(axis=0))
    with pytest.raises(TextprivError, match="shorter list"):
        content_prior(written, np.zeros(60, bool))


@pytest.mark.parametrize("word", [0, 17, UNKNOWN])
def test_paired_draws_follow_the_output_distribution(make, word):
    others = np.arange(SIZE, dtype=np.int32)
    ids = np.insert(np.tile(others, 3), 50, np.full(20_000, word))
    drawn = OutputDistribution(make(2.0)).draws(ids, np.random.default_rng(1))[50:20_050]
    seen, wanted = np.bincount(drawn, minlength=SIZE), np.exp(make(2.0).log_prob(word)) * 20_000
    rare = wanted < 8
    pairs = [(*each[~rare], each[rare].sum() + 1e-9) for each in (seen, wanted)]
    # Three tests; a correct draw fails one of them with probability 3e-8.
    assert chisquare(*pairs, sum_check=False).pvalue > 1e-8


def test_paired_draws_of_near_mechanisms_differ_in_few_places(make):
    ids = np.random.default_rng(2).integers(0, SIZE, size=20_000).astype(np.int32)
    first, second = (
        OutputDistribution(make(e)).draws(ids, np.random.default_rng(3)) for e in (2.0, 2.002)
    )
    moved = np.abs(laws_of(make(2.0)) - laws_of(make(2.002))).sum(axis=1).max()
    # A draw moves with a probability of at most twice the total variation; seven deviations beyond.
    assert 0 < (first != second).sum() < 20_000 * moved + 7 * np.sqrt(20_000 * moved)


# The epsilon of a recovery


def best_guess(mechanism, prior) -> float:
    return float((prior[:, None] * laws_of(mechanism)).max(axis=0).sum())


@pytest.mark.parametrize(("counts", "prior"), [(IS_CONTENT, CONTENT), (None, PRIOR)])
def test_the_largest_epsilon_is_that_of_brute_force(make, counts, prior):
    found = largest_epsilon(make, 0.4, BestAttacker(PRIOR, counts).success)
    assert best_guess(make(found.epsilon), prior) == pytest.approx(found.share, abs=1e-6)
    assert found.share <= 0.4 < best_guess(make(found.epsilon * 1.001), prior)


def test_a_recovery_out_of_reach_is_refused(make):
    with pytest.raises(TextprivError, match="between 0 and 1"):
        largest_epsilon(make, 0.0, BestAttacker(PRIOR, IS_CONTENT).success)
    least = best_guess(make(1e-6), CONTENT)
    with pytest.raises(OutOfReachError, match=f"at least {least:.4g}. Choose a larger"):
        largest_epsilon(make, 1e-4, BestAttacker(PRIOR, IS_CONTENT).success)


def test_a_context_attacker_without_context_is_the_exact_one(make):
    # All words as candidates, and a model that knows no pairs.
    ids = np.random.default_rng(1).choice(SIZE, size=20_000, p=PRIOR).astype(np.int32)
    model = NGrams.from_probabilities(SIZE, ("<s>",), np.append(PRIOR, [1e-9, 1e-9]))
    text = PublicText(model, ids, np.arange(0, 20_001, 100))
    mechanism = make(3.0)
    read, _ = BestAttacker(PRIOR, IS_CONTENT, text, SIZE + 1).in_context(mechanism)
    told = int((ids >= COMMON).sum())
    # Seven deviations of a share: below one false alarm in a million.
    assert read == pytest.approx(best_guess(mechanism, CONTENT), abs=3.5 / np.sqrt(told))


def test_the_better_attacker_counts(make):
    # Each word is followed by the next one: context says more than the word.
    ids = np.tile(np.arange(SIZE, dtype=np.int32), 50)
    offsets = np.array([0, len(ids)])
    text = PublicText(NGrams.from_ids(ids, offsets, SIZE), ids, offsets)
    alone, reader = (
        BestAttacker(PRIOR, IS_CONTENT),
        BestAttacker(PRIOR, IS_CONTENT, text),
    )
    found = largest_epsilon(make, 0.5, reader.success)
    assert found.epsilon < 0.9 * largest_epsilon(make, 0.5, alone.success).epsilon
    assert reader.alone(make(found.epsilon))[0] < found.share <= 0.5
    assert reader.success(make(found.epsilon)) == reader.in_context(make(found.epsilon))
    assert found.share == pytest.approx(0.5, rel=0.01)
    assert reader.in_context(make(found.epsilon * 1.05))[0] > 0.5
    cautious = largest_epsilon(make, 0.5, reader.success, margin=1.96)
    assert 0.475 <= cautious.share + 1.96 * cautious.error <= 0.5


def right_by_three_attackers(mechanism, text, released) -> dict[str, float]:
    """How often each is right: by all words, and by the model of all words up to each."""
    model, states = text.model, [*range(SIZE), UNKNOWN]
    tokens, right = model.of_ids(np.array(states)), {"repeat": [], "single": [], "forward": []}
    after = model.probability(
        tokens, tokens[:, None], tokens[:, None, None]
    )  # earlier, before, word
    for first, last in itertools.pairwise(text.offsets.tolist()):
        pairs = None
        for at in range(first, last):
            context = released[first:at]
            law = np.exp([mechanism.log_prob(each, context)[released[at]] for each in states])
            if pairs is None:
                pairs = np.diag(model.probability(tokens, model.start, model.start))
                pairs = pairs.sum(axis=0)[None] * law
            elif at == first + 1:
                second = model.probability(tokens, tokens[:, None], model.start)
                pairs = pairs[0][:, None] * second * law
            else:
                pairs = np.einsum("ij,ijk->jk", pairs, after) * law
            guesses = (
                released[at],
                np.argmax(model.probability(tokens) * law),
                pairs.sum(0).argmax(),
            )
            for name, guess in zip(right, guesses, strict=True):
                right[name].append(states[guess] == text.ids[at])
    return {name: float(np.mean(each)) for name, each in right.items()}


@pytest.mark.parametrize("best", ["forward", "repeat"])
def test_a_contextual_mechanism_is_attacked_by_the_best_of_three(make, best):
    rng = np.random.default_rng(3)
    ids = (np.cumsum(rng.integers(1, 4, 2400)) % SIZE).astype(np.int32)  # words follow each other
    model = NGrams.from_ids(ids[:2000], np.arange(0, 2001, 100), SIZE)
    mechanism = ContextualTEM(make(1.0).index, 4.0, model)
    if best == "repeat":  # the attacker's model is of other text
        model = NGrams.from_ids(np.zeros(2000, np.int32), np.arange(0, 2001, 100), SIZE)
    text = PublicText(model, ids[2000:], np.arange(0, 401, 20))
    attacker = BestAttacker(PRIOR, None, text, SIZE + 1)
    right = right_by_three_attackers(mechanism, text, attacker.released(mechanism))
    assert all(right[best] > share for name, share in right.items() if name != best)
    assert attacker.alone(mechanism)[0] == pytest.approx(right[best])
    if best == "forward":
        assert attacker.in_context(mechanism)[0] > right[best] + 0.02


def test_an_own_mechanism_without_emissions_is_refused(make):
    class Own(TEM):
        name, reads_context = "Own", True

    ids = np.arange(SIZE, dtype=np.int32)
    text = PublicText(NGrams.from_ids(ids, np.array([0, SIZE]), SIZE), ids, np.array([0, SIZE]))
    attacker = BestAttacker(PRIOR, IS_CONTENT, text)
    with pytest.raises(MechanismError, match=r"Own reads its context and has no emissions\(\)"):
        attacker.alone(Own(make(1.0).index, 2.0))


def test_public_text_may_have_symbols_that_the_mechanism_lacks(make):
    words = np.arange(SIZE, dtype=np.int32)
    marks = np.array([symbol_id(each) for each in SYMBOLS], np.int32)
    ids = np.ravel([(word, mark, word) for mark in marks for word in words])
    offsets = np.array([0, len(ids)])
    text = PublicText(NGrams.from_ids(ids, offsets, SIZE), ids, offsets)
    model = NGrams.from_ids(np.tile(words, 9), np.array([0, 9 * SIZE]), SIZE, symbols=SYMBOLS[:2])
    mechanism = ContextualTEM(make(1.0).index, 4.0, model)
    attacker = BestAttacker(PRIOR, None, text, SIZE + 1)
    released = attacker.released(mechanism)
    assert (released[1::3] == ids[1::3]).all()
    drawn = np.flatnonzero(released >= 0)
    found = mechanism.emissions(released, np.tile(words, (len(drawn), 1)))
    for row, at in enumerate(drawn[-40:].tolist(), len(drawn) - 40):
        laws = [mechanism.log_prob(each, released[:at])[released[at]] for each in range(SIZE)]
        assert found[row] == pytest.approx(np.exp(laws))
    assert 0 < attacker.success(mechanism)[0] < 1


def test_public_text_is_attacked_by_a_model_of_other_text(make):
    index = make(1.0).index
    texts = [f"w{i} w{i + 1}, w{i + 2}." for i in range(30)]
    text = PublicText.read(texts, index)
    first = text.ids[: text.offsets[1]]
    assert first.tolist()[:2] == [0, 1]
    assert first[[2, -1]].tolist() == [symbol_id(","), symbol_id(".")]
    assert len(text.offsets) == 7
    # The first text is attacked, so no pair of it is counted.
    assert text.model.find(0, 0, 1) == -1
    with pytest.raises(TextprivError, match="at least 5 public texts"):
        PublicText.read(texts[:4], index)
