"""Words guessed in context: hidden Markov model against all paths, and what a language model adds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small_trees as trees
from numpy.testing import assert_allclose
from scipy.stats import chi2

from textpriv.errors import TextprivError
from textpriv.evaluation import context_recovery
from textpriv.evaluation.context_recovery import (
    Candidates,
    context_marginals,
    context_posterior,
    likeliest_paths,
    sampled_paths,
)
from textpriv.evaluation.recovery import word_recovery
from textpriv.index import Index
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms import TEM, UNKNOWN, TreeTEM
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary import Vocabulary

SIZE = 5


def mechanism(size: int = SIZE, epsilon: float = 1.0) -> TEM:
    vectors = np.random.default_rng(1).normal(size=(size, 2))
    names = [f"w{i}" for i in range(size)]
    return TEM(Index.build(Vocabulary(names, vectors), k=4, hnsw=False), epsilon)


def model(size: int = SIZE, seed: int = 2, length: int = 60, order: int = 3) -> NGrams:
    ids = np.random.default_rng(seed).integers(-1, size, length).astype(np.int32)
    return NGrams.train(ids, np.array([0, length // 3, length]), size, order=order)


def laws_of(mech) -> np.ndarray:
    """The law of every word, the unknown one last."""
    words = [*range(len(mech.index)), UNKNOWN]
    return np.exp([mech.log_prob(word) for word in words])


def all_paths(law, ngrams, outputs) -> dict[tuple[int, ...], float]:
    words = range(len(law))
    after = {pair: ngrams.after(*pair) for pair in itertools.product(words, words)}
    once = [ngrams.after(word) for word in words]
    found = {}
    for path in itertools.product(words, repeat=len(outputs)):
        value = ngrams.single[path[0]] * law[path[0], outputs[0]]
        for at, (word, output) in enumerate(zip(path[1:], outputs[1:], strict=True), start=1):
            before = once[path[0]] if at == 1 else after[path[at - 2], path[at - 1]]
            value *= before[word] * law[word, output]
        found[path] = value
    return found


# The hidden Markov model


@pytest.mark.parametrize(("order", "seed"), [(1, 0), (2, 1), (3, 2), (3, 3), (3, 4)])
def test_marginals_and_paths_are_those_of_all_paths(order, seed):
    mech, ngrams = mechanism(), model(seed=seed, order=order)
    candidates = Candidates.of(mech, ngrams.single, SIZE + 1)
    rng = np.random.default_rng(seed)
    lengths = [4, 1, 0, 5, 2]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    outputs = rng.integers(0, SIZE, offsets[-1]).astype(np.int32)
    shares = context_posterior(outputs, offsets, candidates, ngrams)
    found = context_marginals(outputs, offsets, candidates, ngrams)
    told = context_marginals(
        outputs, offsets, candidates, ngrams, among=np.arange(SIZE + 1) % 2 == 1
    )
    paths = likeliest_paths(outputs, offsets, candidates, ngrams)
    for begin, end in itertools.pairwise(offsets):
        if begin == end:
            continue
        every = all_paths(laws_of(mech), ngrams, outputs[begin:end])
        total = sum(every.values())
        assert every[tuple(paths[begin:end])] == pytest.approx(max(every.values()), rel=1e-5)
        for at in range(begin, end):
            wanted = np.zeros(SIZE + 1)
            for path, value in every.items():
                wanted[path[at - begin]] += value / total
            assert_allclose(shares[at], wanted[candidates.words[outputs[at]]], rtol=1e-4)
            odd = wanted * (np.arange(SIZE + 1) % 2)
            assert odd[told.guess[at]] == pytest.approx(odd.max(), rel=1e-5)
            assert wanted[found.guess[at]] == pytest.approx(wanted.max(), rel=1e-5)
            assert found.probability[at] == pytest.approx(wanted.max(), rel=1e-4)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_words_that_are_no_candidates_count_together_and_say_nothing_of_their_neighbours(order):
    mech, ngrams = mechanism(), model(seed=7, order=order)
    candidates, law = Candidates.of(mech, ngrams.single, 3), laws_of(mech)
    outputs = np.array([0, 3, 1, 4])
    every: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(4), repeat=4):
        value, words = 1.0, []
        for at, (state, output) in enumerate(zip(path, outputs, strict=True)):
            own = candidates.words[output]
            before = [] if at == 0 or words[-1] is None else words[-2:] if at > 1 else words[-1:]
            before = before[-1:] if None in before else before
            after = ngrams.after(*before) if before else ngrams.single
            if state < 3:
                words.append(int(own[state]))
                value *= after[own[state]] * law[own[state], output]
            else:
                others = np.setdiff1d(np.arange(SIZE + 1), own)
                share = ngrams.single[others] / ngrams.single[others].sum()
                words.append(None)
                value *= after[others].sum() * (share @ law[others, output])
        every[path] = value
    shares = context_posterior(outputs, np.array([0, 4]), candidates, ngrams)
    for at in range(4):
        wanted = np.zeros(4)
        for path, value in every.items():
            wanted[path[at]] += value
        assert_allclose(shares[at], (wanted / wanted.sum())[:3], rtol=1e-4)


def test_sampled_paths_come_as_often_as_they_are_likely():
    """Chi-square over all paths of three words, 20,000 draws; a false alarm at most once in 1e9."""
    mech, ngrams = mechanism(), model(seed=3)
    candidates = Candidates.of(mech, ngrams.single, SIZE + 1)
    outputs, draws = np.array([1, 0, 4]), 20_000
    every = all_paths(laws_of(mech), ngrams, outputs)
    drawn = sampled_paths(
        np.tile(outputs, draws),
        np.arange(draws + 1) * 3,
        candidates,
        ngrams,
        np.random.default_rng(7),
    ).reshape(draws, 3)
    law = np.array([*every.values()]) / sum(every.values())
    counts = np.bincount(drawn @ (SIZE + 1) ** np.arange(2, -1, -1), minlength=len(law))
    statistic = ((counts - draws * law) ** 2 / (draws * law)).sum()
    assert (draws * law).min() > 5
    assert statistic < chi2.isf(1e-9, len(law) - 1)


def test_a_long_document_is_read_in_parts(monkeypatch):
    mech, ngrams = mechanism(), model()
    candidates = Candidates.of(mech, ngrams.single, 3)
    outputs = np.random.default_rng(1).integers(0, SIZE, 10).astype(np.int32)
    parts = context_posterior(outputs, np.array([0, 4, 8, 10]), candidates, ngrams)
    monkeypatch.setattr(context_recovery, "_LONGEST", 4)
    assert_allclose(context_posterior(outputs, np.array([0, 10]), candidates, ngrams), parts)


def test_candidates_are_the_likeliest_words_of_each_output_with_their_law():
    mech = mechanism(40)
    prior = np.random.default_rng(3).dirichlet(np.ones(41))
    found = Candidates.of(mech, prior, 7)
    law = laws_of(mech)
    for output in range(40):
        wanted = np.sort(np.argsort(-prior * law[:, output])[:7])
        assert found.words[output].tolist() == wanted.tolist()
        assert_allclose(found.law[output], law[wanted, output], rtol=1e-5)


def test_words_without_context_are_recovered_as_the_exact_attack_on_lone_words_says():
    """Under a model in which every word stands alone; the share of 20,000 draws is compared at a false alarm of 1e-9."""
    tree = trees.random_tree(20, 8, 3)
    mech = TreeTEM(tree, 1.5)
    prior = tree.vocabulary.prior_weights("zipf")
    alone = NGrams.alone(np.append(prior, 0.0))
    candidates = Candidates.of(mech, alone.single, 21)
    written = np.random.default_rng(4).choice(20, 20_000, p=prior).astype(np.int32)
    outputs = mech.sample(written, KeyedStreams(seed=1).stream("context"))
    found = context_marginals(outputs, np.array([0, 20_000]), candidates, alone)
    wanted = word_recovery(mech, common=5).everything
    assert abs(np.mean(found.guess == written) - wanted) < np.sqrt(np.log(2e9) / 40_000)
    # The mean of what the model believes is right on average, too.
    assert abs(found.probability.mean() - wanted) < np.sqrt(np.log(2e9) / 40_000)


def test_context_helps_where_words_follow_each_other_and_two_of_them_more_than_one():
    """Each word follows from the two before it; so pairs say little, and triples nearly all."""
    size, rng = 20, np.random.default_rng(5)
    text = np.zeros(20_000, dtype=np.int32)
    for at in range(2, len(text)):
        text[at] = (text[at - 1] * 7 + text[at - 2] * 3 + rng.integers(1, 3)) % size
    written = text[15_000:]
    mech = mechanism(size, 4.0)
    outputs = mech.sample(written, KeyedStreams(seed=2).stream("context"))
    right = []
    for order in (1, 2, 3):
        ngrams = NGrams.train(text[:15_000], np.array([0, 15_000]), size, order=order)
        candidates = Candidates.of(mech, ngrams.single, size + 1)
        found = context_marginals(outputs, np.array([0, len(written)]), candidates, ngrams)
        right.append(np.mean(found.guess == written))
    assert right[0] < right[1] + 0.02
    assert right[2] > right[1] + 0.2


def test_what_does_not_fit_together_is_refused():
    mech, ngrams = mechanism(), model()
    candidates = Candidates.of(mech, ngrams.single, 3)
    for outputs, offsets, other in (
        ([0, 1], [0, 2], model(size=9)),
        ([0, UNKNOWN], [0, 2], ngrams),
        ([0, SIZE], [0, 2], ngrams),
    ):
        with pytest.raises(TextprivError):
            context_marginals(np.array(outputs), np.array(offsets), candidates, other)
    with pytest.raises(TextprivError, match="from 1 up"):
        Candidates.of(mech, ngrams.single, 0)
