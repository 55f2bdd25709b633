"""Recovery in context: the hidden Markov model against all paths, and emissions that depend on what was released."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from textpriv import TEM
from textpriv.errors import TextprivError
from textpriv.evaluation import context_recovery
from textpriv.evaluation.context_recovery import ContextModel
from textpriv.index import Index
from textpriv.language import NGrams
from textpriv.mechanisms.base import UNKNOWN
from textpriv.vocabulary import Vocabulary

SIZE, MARKS = 5, ("<s>", "<other>", ".")
STOP = -4  # released
STATES = [*range(SIZE), UNKNOWN]


def mechanism(epsilon: float = 1.0) -> TEM:
    vectors = np.random.default_rng(1).normal(size=(SIZE, 2))
    return TEM(
        Index.build(Vocabulary([f"w{i}" for i in range(SIZE)], vectors), "euclidean", k=4), epsilon
    )


def model(seed: int = 2, size: int = SIZE) -> NGrams:
    ids = np.random.default_rng(seed).choice([STOP, *range(-1, size)], 60)
    return NGrams.from_ids(ids, np.array([0, 20, 60]), size, symbols=MARKS)


def weights_of(ngrams: NGrams) -> np.ndarray:
    return ngrams.probability(np.append(np.arange(ngrams.size), ngrams.tokens - 1))


def all_paths(emission, ngrams: NGrams, released) -> dict[tuple[int, ...], float]:
    """Probability of every path of originals with its outputs; ``emission(position, word)``."""
    choices = [STATES if output >= 0 else [output] for output in released]
    found = {}
    for path in itertools.product(*choices):
        tokens, value = ngrams.of_ids(np.array(path)), 1.0
        for at, (word, output) in enumerate(zip(path, released, strict=True)):
            before = tokens[at - 1] if at else ngrams.start
            earlier = tokens[at - 2] if at > 1 else ngrams.start
            value *= ngrams.probability(tokens[at], before, earlier)
            value *= emission(at, word) if output >= 0 else 1.0
        found[path] = value
    return found


@pytest.mark.parametrize("seed", [2, 3])
def test_the_posterior_is_that_of_all_paths_with_symbols(seed):
    mech, ngrams = mechanism(), model(seed)
    reader = ContextModel.of(mech, ngrams, weights_of(ngrams), SIZE + 1)
    rng = np.random.default_rng(seed)
    offsets = np.array([0, 4, 5, 5, 9])
    released = rng.integers(0, SIZE, 9)
    released[[1, 7]] = STOP
    shares = reader.posterior(released, offsets)
    law = {word: np.exp(mech.log_prob(word)) for word in STATES}
    for begin, end in ((0, 4), (4, 5), (5, 9)):
        part = released[begin:end]
        every = all_paths(lambda at, word, part=part: law[word][part[at]], ngrams, part)
        for at in range(begin, end):
            wanted = np.zeros(SIZE + 1)
            for path, value in every.items():
                if released[at] >= 0:
                    wanted[path[at - begin]] += value / sum(every.values())
            assert_allclose(shares[at], wanted, rtol=1e-4)


class Contextual(TEM):
    """Draws by a prior that depends on the token released before; only its emissions are asked for here."""

    reads_context = True

    def law_at(self, before: int) -> np.ndarray:
        law = np.exp([self.log_prob(word) for word in STATES])
        law = law * (1.0 + ((np.arange(SIZE) + before) % 3))
        return law / law.sum(axis=1, keepdims=True)

    def emissions(self, released, words):
        before = np.concatenate([[0], released[:-1]])
        drawn = np.flatnonzero(released >= 0)
        rows = [self.law_at(before[at])[words[n], released[at]] for n, at in enumerate(drawn)]
        return np.array(rows)


def test_emissions_of_a_contextual_mechanism_depend_on_what_was_released():
    plain, ngrams = mechanism(), model()
    mech = Contextual(plain.index, 1.0)
    reader = ContextModel.of(mech, ngrams, weights_of(ngrams), SIZE + 1)
    released = np.array([0, 3, STOP, 1, 4])
    before = [0, 0, 3, STOP, 1]
    every = all_paths(
        lambda at, word: mech.law_at(before[at])[word, released[at]], ngrams, released
    )
    shares = reader.posterior(released, np.array([0, 5]))
    for at in (0, 1, 3, 4):
        wanted = np.zeros(SIZE + 1)
        for path, value in every.items():
            wanted[path[at]] += value / sum(every.values())
        assert_allclose(shares[at], wanted, rtol=1e-4)


def test_a_filter_reads_nothing_after_a_position():
    mech, ngrams = mechanism(), model()
    reader = ContextModel.of(mech, ngrams, weights_of(ngrams), SIZE + 1)
    released = np.array([0, 3, STOP, 1, 4, 4, 2])
    found = reader.posterior(released, np.array([0, 7]), later=False)
    for end in range(1, 8):
        whole = reader.posterior(released[:end], np.array([0, end]))
        assert_allclose(found[end - 1], whole[-1], rtol=1e-5)


def test_words_that_are_no_candidates_count_together():
    mech, ngrams = mechanism(), model(7)
    reader = ContextModel.of(mech, ngrams, weights_of(ngrams), 3)
    law = np.exp([mech.log_prob(word) for word in STATES])
    released = np.array([0])
    own = reader.words_at(released)[0]
    first = ngrams.probability(np.append(np.arange(SIZE), ngrams.tokens - 1), ngrams.start)
    others = np.setdiff1d(np.arange(SIZE + 1), own)
    share = weights_of(ngrams)[others] / weights_of(ngrams)[others].sum()
    rest = (1 - first[own].sum()) * (share @ law[others, 0])
    wanted = first[own] * law[own, 0]
    shares = reader.posterior(released, np.array([0, 1]))
    assert_allclose(shares[0], wanted / (wanted.sum() + rest), rtol=1e-4)


def test_candidates_are_the_likeliest_words_of_each_output():
    mech, prior = mechanism(), np.array([0.1, 0.3, 0.05, 0.05, 0.2, 0.3])
    law = np.exp([mech.log_prob(word) for word in STATES])
    found = ContextModel.of(mech, model(), prior, 3, np.array([4, 1, 1, STOP]))
    assert found.outputs.tolist() == [1, 4]
    for row, output in enumerate((1, 4)):
        joint = prior * law[:, output]
        assert found.words[row].tolist() == sorted(np.argsort(-joint)[:3])
        assert_allclose(found.distribution[row, :-1], law[found.words[row], output], rtol=1e-5)
        others = np.setdiff1d(np.arange(6), found.words[row])
        assert found.distribution[row, -1] == pytest.approx(
            joint[others].sum() / prior[others].sum()
        )


def test_a_decoded_document_is_the_likeliest_of_all_paths():
    mech, ngrams = mechanism(), model(5)
    reader = ContextModel.of(mech, ngrams, np.append(weights_of(ngrams)[:-1], 0.0), SIZE)
    law = {word: np.exp(mech.log_prob(word)) for word in STATES}
    for seed in range(6):
        released = np.random.default_rng(seed).integers(0, SIZE, 4)
        released[2] = STOP if seed % 2 else released[2]
        found = reader.likeliest_words(released, np.array([0, 4]))
        every = all_paths(lambda at, word, r=released: law[word][r[at]], ngrams, released)
        most = max(value for path, value in every.items() if UNKNOWN not in path)
        assert every[tuple(found)] == pytest.approx(most)


def test_a_long_document_is_read_in_parts(monkeypatch):
    mech, ngrams = mechanism(), model()
    reader = ContextModel.of(mech, ngrams, weights_of(ngrams), 3)
    released = np.random.default_rng(3).integers(0, SIZE, 50)
    monkeypatch.setattr(context_recovery, "_LONGEST", 20)
    found = reader.posterior(released, np.array([0, 50]))
    parts = reader.posterior(released, np.array([0, 20, 40, 50]))
    assert_allclose(found, parts)


def test_a_model_of_another_vocabulary_is_refused():
    with pytest.raises(TextprivError, match="knows 9 words, and the mechanism 5"):
        ContextModel.of(mechanism(), model(size=9), np.ones(6), 3)
