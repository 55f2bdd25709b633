"""Words guessed in context: forward-backward and Viterbi against all paths, models against counts, and ARPA files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small_trees as trees
from numpy.testing import assert_allclose

from textpriv.errors import TextprivError
from textpriv.evaluation.bigrams import Bigrams
from textpriv.evaluation.context_recovery import Candidates, context_marginals, likeliest_paths
from textpriv.evaluation.recovery import word_recovery
from textpriv.index import Index
from textpriv.mechanisms import TEM, UNKNOWN, TreeTEM
from textpriv.randomness import KeyedStreams
from textpriv.vocabulary import Vocabulary

SIZE = 5


def mechanism(size: int = SIZE, epsilon: float = 1.0) -> TEM:
    vectors = np.random.default_rng(1).normal(size=(size, 2))
    names = [f"w{i}" for i in range(size)]
    return TEM(Index.build(Vocabulary(names, vectors), k=4, hnsw=False), epsilon)


def model(size: int = SIZE, seed: int = 2, length: int = 60) -> Bigrams:
    ids = np.random.default_rng(seed).integers(-1, size, length).astype(np.int32)
    return Bigrams.train(ids, np.array([0, length // 3, length]), size)


def laws_of(mech) -> np.ndarray:
    """The law of every word, the unknown one last."""
    words = [*range(len(mech.index)), UNKNOWN]
    return np.exp([mech.log_prob(word) for word in words])


def all_paths(law, bigrams, outputs) -> dict[tuple[int, ...], float]:
    after = [bigrams.after(word) for word in range(len(law))]
    found = {}
    for path in itertools.product(range(len(law)), repeat=len(outputs)):
        value = bigrams.single[path[0]] * law[path[0], outputs[0]]
        for one, other, output in zip(path, path[1:], outputs[1:], strict=False):
            value *= after[one][other] * law[other, output]
        found[path] = value
    return found


# The hidden Markov model


@pytest.mark.parametrize("seed", range(6))
def test_marginals_and_paths_are_those_of_all_paths(seed):
    mech, bigrams = mechanism(), model(seed=seed)
    candidates = Candidates.of(mech, bigrams.single, SIZE + 1)
    rng = np.random.default_rng(seed)
    lengths = [4, 1, 0, 5]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    outputs = rng.integers(0, SIZE, offsets[-1]).astype(np.int32)
    found = context_marginals(outputs, offsets, candidates, bigrams)
    paths = likeliest_paths(outputs, offsets, candidates, bigrams)
    for begin, end in itertools.pairwise(offsets):
        if begin == end:
            continue
        every = all_paths(laws_of(mech), bigrams, outputs[begin:end])
        total = sum(every.values())
        assert every[tuple(paths[begin:end])] == pytest.approx(max(every.values()), rel=1e-5)
        for place in range(end - begin):
            shares = np.zeros(SIZE + 1)
            for path, value in every.items():
                shares[path[place]] += value / total
            at = begin + place
            assert found.probability[at] == pytest.approx(shares.max(), rel=1e-5)
            assert shares[found.guess[at]] == pytest.approx(shares.max(), rel=1e-5)


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
    empty = np.empty(0)
    alone = Bigrams(
        np.append(prior, 0.0), np.ones(21), np.zeros(22, np.int64), empty.astype(np.int32), empty
    )
    candidates = Candidates.of(mech, alone.single, 21)
    written = np.random.default_rng(4).choice(20, 20_000, p=prior).astype(np.int32)
    outputs = mech.sample(written, KeyedStreams(seed=1).stream("context"))
    found = context_marginals(outputs, np.array([0, 20_000]), candidates, alone)
    wanted = word_recovery(mech, common=5).everything
    assert abs(np.mean(found.guess == written) - wanted) < np.sqrt(np.log(2e9) / 40_000)
    # The mean of what the model believes is right on average, too.
    assert abs(found.probability.mean() - wanted) < np.sqrt(np.log(2e9) / 40_000)


def test_context_helps_where_words_follow_each_other():
    size, rng = 30, np.random.default_rng(5)
    follows = np.empty(20_000, dtype=np.int32)
    follows[0] = 0
    for at in range(1, len(follows)):
        follows[at] = (follows[at - 1] * 7 + rng.integers(1, 3)) % size
    bigrams = Bigrams.train(follows[:15_000], np.array([0, 15_000]), size)
    mech, written = mechanism(size, 6.0), follows[15_000:]
    outputs = mech.sample(written, KeyedStreams(seed=2).stream("context"))
    candidates = Candidates.of(mech, bigrams.single, size + 1)
    found = context_marginals(outputs, np.array([0, len(written)]), candidates, bigrams)
    alone = word_recovery(mech, np.bincount(written, minlength=size) + 1.0, common=0).everything
    assert np.mean(found.guess == written) > alone + 0.3


def test_what_does_not_fit_together_is_refused():
    mech, bigrams = mechanism(), model()
    candidates = Candidates.of(mech, bigrams.single, 3)
    for outputs, offsets, other in (
        ([0, 1], [0, 2], model(size=9)),
        ([0, UNKNOWN], [0, 2], bigrams),
        ([0, SIZE], [0, 2], bigrams),
    ):
        with pytest.raises(TextprivError):
            context_marginals(np.array(outputs), np.array(offsets), candidates, other)
    with pytest.raises(TextprivError, match="from 1 up"):
        Candidates.of(mech, bigrams.single, 0)


# Models


def test_a_trained_model_is_that_of_counted_pairs_and_its_laws_sum_to_one():
    ids = np.array([0, 1, 0, 1, 0, 2, -1, 1], dtype=np.int32)
    bigrams = Bigrams.train(ids, np.array([0, 5, 8]), 3, discount=0.5)
    counts = np.array([3, 3, 1, 1]) + 1
    assert_allclose(bigrams.single, counts / 12)
    # After word 0 in a document: 1 twice and, across the border of documents, nothing.
    wanted = np.array([0.0, (2 - 0.5) / 2, 0.0, 0.0]) + 0.25 * bigrams.single
    assert_allclose(bigrams.after(0), wanted)
    for word in range(4):
        assert bigrams.after(word).sum() == pytest.approx(1.0)
    for wrong in ({"discount": 1.0}, {"size": 2}):
        with pytest.raises(TextprivError):
            Bigrams.train(ids, np.array([0, 8]), **{"size": 3, **wrong})


ARPA = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-0.5 <s> -0.3
-0.7 red -0.2
-0.6 green -0.1
-0.9 zanzibar -0.4
-1.0 </s>

\\2-grams:
-0.3 red green
-0.8 green green
-0.2 zanzibar red

\\3-grams:
-0.1 red green green

\\end\\
"""


def test_an_arpa_file_is_read_with_its_back_off_and_scaled_to_laws(tmp_path):
    (tmp_path / "small.arpa").write_text(ARPA, encoding="utf-8")
    bigrams = Bigrams.read_arpa(tmp_path / "small.arpa", {"red": 0, "green": 1})
    raw = np.array([10**-0.7, 10**-0.6, 10**-0.9 + 10**-1.0])
    assert_allclose(bigrams.single, raw / raw.sum())
    law = 10**-0.2 * bigrams.single
    law[1] = 10**-0.3
    assert_allclose(bigrams.after(0), law / law.sum())
    for word in range(3):
        assert bigrams.after(word).sum() == pytest.approx(1.0)
    assert len(bigrams.pairs) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\\1-grams:\nx red\n", "line 2"),
        ("no model", "no unigrams"),
        ("\\2-grams:\n-1 red\n", "line 2"),
    ],
)
def test_what_is_no_arpa_file_is_refused_in_a_sentence(tmp_path, content, said):
    (tmp_path / "wrong.arpa").write_text(content, encoding="utf-8")
    with pytest.raises(TextprivError, match=said):
        Bigrams.read_arpa(tmp_path / "wrong.arpa", {"red": 0, "green": 1})
    with pytest.raises(TextprivError, match="cannot be read"):
        Bigrams.read_arpa(tmp_path / "none.arpa", {"red": 0})
