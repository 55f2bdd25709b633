"""ContextualTEM: its output distribution in every context, its draws, and broken variants that lose more."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

import textpriv
from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.language.ngrams import ONE, NGrams, symbol_id
from textpriv.mechanisms import contextual, default_name
from textpriv.mechanisms.contextual import ContextualTEM
from textpriv.mechanisms.near import Decay
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.tokenization.policy import TokenPolicy

EPSILON, SIZE = 2.0, 5
FULL_STOP = -2 - 2  # the symbol "." of the model
CONTEXTS = list(product([FULL_STOP, *range(SIZE)], repeat=2))


def models() -> dict[str, NGrams]:
    """Language models over five words: ordinary, with one dominating successor, and with words that never occurred."""
    rng = np.random.default_rng(3)
    text = rng.integers(-1, SIZE, size=300).astype(np.int32)
    text[::7] = FULL_STOP
    certain = np.tile(np.array([0, 1, 2, FULL_STOP], dtype=np.int32), 100)
    return {
        "ordinary": NGrams.from_ids(text, np.array([0, 150, 300]), SIZE),
        "dominating": NGrams.from_ids(certain, np.array([0, 400]), SIZE),
        "unseen": NGrams.from_ids(np.zeros(20, np.int32), np.array([0, 20]), SIZE),
    }


@pytest.fixture(scope="module")
def index(index_of):
    """Five words, two of them at one point."""
    points = np.random.default_rng(1).normal(size=(SIZE, 3))
    points[4] = points[1]
    return index_of(points, space="euclidean", k=3)


def excess(laws: np.ndarray, index) -> float:
    """By how much any two rows (word, output) differ beyond epsilon times their distance."""
    apart = np.array([[index.distance(a, b) for b in range(SIZE)] for a in range(SIZE)])
    losses = np.abs(laws[:, None, :] - laws[None, :, :]).max(axis=2)
    return float((losses - EPSILON * apart).max())


@pytest.mark.parametrize("model", models().values(), ids=list(models()))
def test_no_pair_loses_more_than_stated_in_any_context(index, model):
    mechanism = ContextualTEM(index, EPSILON, model=model)
    for context in CONTEXTS:
        laws = np.array([mechanism.log_prob(word, context) for word in range(SIZE)])
        assert np.isfinite(laws).all()
        assert excess(laws, index) <= 1e-12
        assert np.array_equal(laws[1], laws[4])  # two words at distance 0


@pytest.mark.parametrize("model", models().values(), ids=list(models()))
def test_law_is_the_models_next_word_times_the_decay(index, model):
    mechanism = ContextualTEM(index, EPSILON, model=model)
    words = model.words_only(other=False)
    for context in ([2, 3], [FULL_STOP, 0]):
        weights = words.after(*words.of_ids(np.array(context)).tolist())[:SIZE]
        weights = weights * np.exp(-mechanism.t * index.distances_of(np.array([2]))[0])
        wanted = weights / weights.sum()
        assert np.exp(mechanism.log_prob(2, context)) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("model", models().values(), ids=list(models()))
def test_draws_of_four_positions_follow_their_joint_law(index, model, stream, goodness, level):
    mechanism = ContextualTEM(index, EPSILON, model=model)
    document, draws = np.array([FULL_STOP, 2, 3, -1], dtype=np.int32), 8_000
    streams = [stream("contextual", number) for number in range(draws)]
    out = mechanism.sample_documents(
        np.tile(document, draws), np.arange(draws + 1) * 4, streams
    ).reshape(draws, 4)
    assert (out[:, 0] == FULL_STOP).all()
    joint = np.zeros((SIZE,) * 3)
    first = np.exp(mechanism.log_prob(2, [FULL_STOP]))
    for a in range(SIZE):
        second = np.exp(mechanism.log_prob(3, [FULL_STOP, a]))
        for b in range(SIZE):
            joint[a, b] = first[a] * second[b] * np.exp(mechanism.log_prob(-1, [a, b]))
    counts = np.zeros(joint.shape)
    np.add.at(counts, tuple(out[:, 1:].T), 1)
    assert goodness(counts.ravel(), joint.ravel()) > level


@pytest.mark.parametrize("k", [20, 300])
def test_draws_among_many_successors_follow_their_law(index_of, stream, goodness, level, k):
    size, draws, rng = 700, 40_000, np.random.default_rng(5)
    points = rng.normal(size=(size, 2))
    points[1] = points[0]
    large = index_of(points, space="euclidean", k=k)
    text = np.full(12_000, FULL_STOP, np.int32)
    text[1::2] = rng.permutation(np.arange(6_000) % size)
    model = NGrams.from_ids(text, np.array([0, len(text)]), size)
    mechanism = ContextualTEM(large, EPSILON, model=model)
    streams = [stream("many", number) for number in range(draws)]
    ids = np.tile(np.array([FULL_STOP, 0], np.int32), draws)
    out = mechanism.sample_documents(ids, np.arange(draws + 1) * 2, streams)[1::2]
    law = np.exp(mechanism.log_prob(0, [FULL_STOP]))
    assert goodness(np.bincount(out, minlength=size), law) > level


@pytest.mark.parametrize("most", [32, 700])
def test_no_successor_weighs_more_than_its_envelope(index_of, most):
    size, word = 700, 3
    large = index_of(np.random.default_rng(5).normal(size=(size, 2)), space="euclidean", k=300)
    law = Decay.of(large, 1.0, 30.0)
    listed = large.neighbour_ids[word], large.neighbour_steps[word]
    successors, ends = np.arange(0, size, 2, dtype=np.int32), np.arange(1, 351, dtype=np.uint32)
    given = contextual._envelopes(large.points, law, word, *listed, successors, ends, most)
    sums = np.diff(given.sums[:-1], prepend=np.uint64(0))
    own = dict(zip(given.places.tolist(), sums.tolist(), strict=True))
    assert len(own) in (len(successors), len(set(listed[0][:16].tolist()) & {*range(0, size, 2)}))
    for place, other in enumerate(successors.tolist()):
        weight = np.exp(-large.distance(word, other)) * ONE
        assert weight * (1 - 1e-12) <= own.get(place, given.rest)


def test_draws_far_from_all_successors_follow_their_law(index_of, stream, goodness, level):
    """Nearly all attempts fail until the list of successors is weighed whole."""
    size, near, draws, rng = 300, 21, 40_000, np.random.default_rng(6)
    points = rng.normal(size=(size, 2)) + 5
    points[:near] = rng.normal(size=(near, 2)) * 0.02
    large = index_of(points, space="euclidean", k=20)
    text = np.full(4_000, FULL_STOP, np.int32)
    text[:2_000] = np.arange(2_000) % (near - 1) + 1  # words near the original follow no full stop
    text[2_001::2] = near + np.arange(1_000) % (size - near)
    model = NGrams.from_ids(text, np.array([0, len(text)]), size)
    mechanism = ContextualTEM(large, 1.5, model=model)
    streams = [stream("far", number) for number in range(draws)]
    ids = np.tile(np.array([FULL_STOP, 0], np.int32), draws)
    out = mechanism.sample_documents(ids, np.arange(draws + 1) * 2, streams)[1::2]
    law = np.exp(mechanism.log_prob(0, [FULL_STOP]))
    assert goodness(np.bincount(out, minlength=size), law) > level
    assert 0.05 < law[:near].sum() < 0.95


class Counted:
    """A stream that counts how often it is read."""

    def __init__(self, source):
        self.source, self.reads = source, 0

    def fill(self, words):
        self.reads += 1
        self.source.fill(words)


def test_a_word_far_from_thousands_of_successors_is_drawn_in_a_few_reads(index_of, stream):
    size, near, rng = 3_000, 21, np.random.default_rng(6)
    points = rng.normal(size=(size, 2)) + 5
    points[:near] = rng.normal(size=(near, 2)) * 0.02
    large = index_of(points, space="euclidean", k=20)
    text = np.full(40_000, FULL_STOP, np.int32)
    text[1::2] = near + np.arange(20_000) % (size - near)
    model = NGrams.from_ids(text, np.array([0, len(text)]), size)
    mechanism = ContextualTEM(large, 3.0, model=model)
    reads = []
    for number in range(300):
        counted = Counted(stream("few", number))
        ids = np.array([FULL_STOP, 0], np.int32)
        mechanism.sample_documents(ids, np.array([0, 2]), [counted])
        reads.append(counted.reads)
    assert 1 < max(reads) <= 12


def test_draws_depend_on_the_stream_of_their_document_alone(index, stream):
    mechanism = ContextualTEM(index, EPSILON, model=models()["ordinary"])
    first, second = np.array([0, 1, FULL_STOP, 2], np.int32), np.array([3, -1, 3], np.int32)
    offsets = np.array([0, 4, 7])
    together = mechanism.sample_documents(
        np.concatenate([first, second]), offsets, [stream("a"), stream("b")]
    )
    assert np.array_equal(
        together[:4], mechanism.sample_documents(first, offsets[:2], [stream("a")])
    )
    alone = mechanism.sample_documents(second, np.array([0, 3]), [stream("b")])
    assert np.array_equal(together[4:], alone)


def test_emissions_are_the_law_at_each_released_word(index):
    mechanism = ContextualTEM(index, EPSILON, model=models()["ordinary"])
    released = np.array([3, FULL_STOP, 1, 0])
    words = np.array([[0, 3, SIZE], [1, 2, 4], [4, 0, SIZE]])
    found = mechanism.emissions(released, words)
    for row, at in enumerate((0, 2, 3)):
        for column, word in enumerate(words[row]):
            law = mechanism.log_prob(-1 if word == SIZE else int(word), released[:at].tolist())
            assert found[row, column] == pytest.approx(np.exp(law[released[at]]), rel=1e-9)


def test_the_prior_is_that_of_the_model_and_no_average_has_context(index):
    mechanism = ContextualTEM(index, EPSILON, model=models()["ordinary"])
    assert np.array_equal(mechanism.prior, mechanism.measure.weights)
    assert mechanism.gamma == pytest.approx(30 / mechanism.t)
    assert not mechanism.average().reads_context
    plain = textpriv.TEM(index, EPSILON)
    assert plain.average() is plain


def test_a_callable_model_draws_by_its_weights(index, stream, goodness, level):
    def prior(prefix):
        return np.arange(1.0, SIZE + 1) if len(prefix) else np.ones(SIZE)

    mechanism = ContextualTEM(index, EPSILON, model=prior)
    draws = 3_000
    streams = [stream("callable", number) for number in range(draws)]
    ids = np.tile(np.array([0, 3], np.int32), draws)
    out = mechanism.sample_documents(ids, np.arange(draws + 1) * 2, streams).reshape(draws, 2)
    for place, word, context in ((0, 0, []), (1, 3, [0])):
        counts = np.bincount(out[:, place], minlength=SIZE)
        assert goodness(counts, np.exp(mechanism.log_prob(word, context))) > level


def test_a_callable_model_is_drawn_from_as_its_law_says_below_the_floor(index_of, stream):
    far = index_of(10 * np.eye(40), space="euclidean")
    rare = ContextualTEM(far, 5.0, model=lambda released: np.append(1e-17, np.ones(39)))
    out = rare.sample_documents(
        np.zeros(2_000, np.int32), np.arange(2_001), [stream("rare", n) for n in range(2_000)]
    )
    stays = np.exp(rare.log_prob(0))[0]
    assert 0.5 < stays < 1
    assert abs((out == 0).mean() - stays) < 6 * np.sqrt(stays * (1 - stays) / 2_000)


class Weights:
    """A callable model of fixed weights, whose repr tells nothing of them."""

    def __init__(self, seed):
        self.seed, self.weights = seed, np.random.default_rng(seed).uniform(1, 2, SIZE)

    def __call__(self, released):
        return self.weights

    def __repr__(self):
        return "weights"

    def fingerprint(self):
        return f"weights {self.seed}"


def test_a_key_is_bound_to_the_fingerprint_of_a_callable_model(index):
    first, second = (Privatizer(ContextualTEM(index, EPSILON, Weights(n))) for n in (0, 1))
    assert first.fingerprint != second.fingerprint


def test_a_callable_model_without_a_fingerprint_takes_no_key(index):
    mechanism = ContextualTEM(index, EPSILON, model=lambda released: np.ones(SIZE))
    private = Privatizer(mechanism, run_key=bytes(32))
    with pytest.raises(MechanismError, match="fingerprint"):
        private.privatize("w0 w1", key="one")
    assert Privatizer(mechanism).privatize("w0 w1")


def test_a_model_without_a_floor_is_refused(index, stream):
    mechanism = ContextualTEM(index, EPSILON, model=lambda prefix: np.eye(SIZE)[0])
    with pytest.raises(MechanismError, match="positive weights"):
        mechanism.sample([1], stream("floor"))


# Broken variants: what voids the proof loses more than the sum over positions


def joint(mechanism, document, prior) -> np.ndarray:
    """Log-probability of every output of three words, with ``prior(prefix, document, position)`` as log-weights."""
    distances = mechanism.index.distances_of(np.arange(SIZE))
    laws = np.zeros((SIZE,) * 3)
    for output in product(range(SIZE), repeat=3):
        for place, word in enumerate(document):
            score = prior(output[:place], document, place) - mechanism.t * distances[word]
            with np.errstate(divide="ignore"):
                laws[output] += score[output[place]] - np.logaddexp.reduce(score)
    return laws


def largest_excess(mechanism, prior) -> float:
    """The largest loss between two documents that differ in one word, beyond the bound of that word."""
    worst = -np.inf
    law = cache(lambda document: joint(mechanism, document, prior))
    for first, other, rest in product(range(SIZE), range(SIZE), ((2, 3), (0, 4))):
        bound = EPSILON * mechanism.index.distance(first, other)
        for documents in (((first, *rest), (other, *rest)), ((*rest, first), (*rest, other))):
            one, two = map(law, documents)
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.nan_to_num(one - two, nan=0.0).max()) - bound)
    return worst


def variants(mechanism):
    """Log-weights of the sound prior and of broken ones."""

    def sound(prefix, document, place):
        return np.log(mechanism.context_weights(prefix[-2:]))

    def raw_prefix(prefix, document, place):
        return np.log(mechanism.context_weights(document[:place][-2:]))

    def mixed_prefix(prefix, document, place):
        return np.log(mechanism.context_weights([*prefix, *document[:1]][-2:]))

    def looks_ahead(prefix, document, place):
        return np.log(mechanism.context_weights(document[place + 1 :][:2]))

    def depends_on_the_input(prefix, document, place):
        return sound(prefix, document, place) + 2.0 * (np.arange(SIZE) == document[place])

    def counts_the_document(prefix, document, place):
        return sound(prefix, document, place) + np.log1p(np.bincount(document, minlength=SIZE) * 9)

    def without_a_floor(prefix, document, place):
        with np.errstate(divide="ignore"):
            return np.log((np.arange(SIZE) != document[place]).astype(float))

    def draws_until_changed(prefix, document, place):
        return sound(prefix, document, place) - 30.0 * (np.arange(SIZE) == document[place])

    def knows_the_length_of_the_word(prefix, document, place):
        return sound(prefix, document, place) * (1 + document[place])

    broken = (
        raw_prefix,
        mixed_prefix,
        looks_ahead,
        depends_on_the_input,
        counts_the_document,
        without_a_floor,
        draws_until_changed,
        knows_the_length_of_the_word,
    )
    return sound, broken


def test_losses_of_positions_add_and_eight_broken_priors_lose_more(index):
    mechanism = ContextualTEM(index, EPSILON, model=models()["dominating"])
    sound, broken = variants(mechanism)
    assert largest_excess(mechanism, sound) <= 1e-9
    for prior in broken:
        assert largest_excess(mechanism, prior) > 0.05, prior.__name__


def test_an_id_of_no_symbol_is_refused(index):
    mechanism = ContextualTEM(index, EPSILON, model=models()["ordinary"])
    with pytest.raises(MechanismError, match="no symbol"):
        mechanism.sample_documents(np.array([-30, 0], np.int32), np.array([0, 2]), [Stream()])


# In a privatizer


def test_released_marks_are_part_of_the_context_and_of_the_identity():
    vocabulary = textpriv.Vocabulary(["good", "bad", "film"], np.eye(3))
    model = NGrams.count(["Good film. Bad film!", "A bad film."], vocabulary)
    given = []

    class Noted(ContextualTEM):
        def sample_documents(self, ids, offsets, streams):
            given.append(ids.tolist())
            return super().sample_documents(ids, offsets, streams)

    mechanism = Noted(textpriv.Index.build(vocabulary, space="euclidean"), 4.0, model=model)
    private = Privatizer(mechanism, TokenPolicy(), run_key=bytes(32))
    private.privatize("Good, bad film.", key=0)
    assert given == [[0, symbol_id(","), 1, 2, symbol_id(".")]]
    drawn = {
        tuple(private.privatize(f"good{mark} bad film {mark} film bad good" * 4, key=1).split(mark))
        for mark in ".!"
    }
    assert len(drawn) == 2
    assert private.privatize("good bad.", key=2) == private.privatize("good bad.", key=2)
    assert private.statement.proved


def test_a_certificate_says_that_it_is_about_the_start_of_a_document(index):
    found = textpriv.certify(ContextualTEM(index, EPSILON, model=models()["ordinary"]))
    assert found.holds
    assert not found.exact
    assert "at the start of a document" in str(found)


def test_general_english_serves_words_that_it_does_not_know(index):
    mechanism = ContextualTEM(index, EPSILON)
    assert np.isfinite(mechanism.log_prob(0, [1, FULL_STOP])).all()


def test_the_model_of_an_index_is_used_and_bound():
    vocabulary = textpriv.Vocabulary(list("abcde"), np.eye(SIZE), language="de")
    own = [Index.build(vocabulary, "unit", model=models()[name]) for name in ("ordinary", "unseen")]
    first, second = (ContextualTEM(each, EPSILON) for each in own)
    assert first.binding() != second.binding()
    given = ContextualTEM(own[1], EPSILON, model=own[0].model)
    assert np.array_equal(given.log_prob(0, [1, 2]), first.log_prob(0, [1, 2]))
    assert not np.array_equal(second.log_prob(0, [1, 2]), first.log_prob(0, [1, 2]))


def test_the_default_is_tem_with_or_without_a_model():
    vocabulary = textpriv.Vocabulary(list("abcde"), np.eye(SIZE), language="de")
    for model in (None, models()["unseen"]):
        assert default_name(Index.build(vocabulary, "unit", model=model)) == "tem"
    assert default_name(textpriv.Tree.build(vocabulary)) == "tree"


def test_without_a_gamma_no_distance_is_truncated():
    vocabulary = textpriv.Vocabulary(list("abcde"), np.eye(SIZE), language="de")
    mechanism = ContextualTEM(Index.build(vocabulary, "unit"), EPSILON, models()["unseen"])
    assert mechanism.gamma == 30 / mechanism.t
