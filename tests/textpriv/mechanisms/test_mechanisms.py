"""What all mechanisms share: the registry, the checks of epsilon and of ids, random streams, and settings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from textpriv.errors import MechanismError, TextprivError, VocabularyError
from textpriv.index import Index
from textpriv.mechanisms import (
    TEM,
    UNKNOWN,
    Madlib,
    registry,
)
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import Stream

KINDS = [TEM, Madlib]
OPTIONS = {TEM: {"prior": "uniform"}, Madlib: {"search": "exact"}}


@pytest.fixture(scope="module")
def index(index_of):
    """Twenty words in a plane, with the approximate search."""
    return index_of(np.random.default_rng(0).normal(size=(20, 2)), k=5, hnsw=True)


# Registry


@pytest.mark.parametrize(
    ("name", "kind"), [("textpriv.TEM.v1", TEM), ("textpriv.Madlib.v1", Madlib)]
)
def test_a_registered_name_makes_its_mechanism_over_an_index(index, name, kind):
    mechanism = registry.get(name)(epsilon=6.0)(index)
    assert type(mechanism) is kind
    assert mechanism.index is index
    assert mechanism.epsilon == 6.0


def test_the_registry_passes_every_setting_of_madlib(index):
    wanted = {"epsilon": 3.0, "search": "exact", "projection": 1}
    assert registry.get("textpriv.Madlib.v1")(**wanted)(index).settings() == wanted


def test_a_registered_configuration_is_checked_when_its_index_is_known(index):
    make = registry.get("textpriv.TEM.v1")(epsilon=-1.0)
    with pytest.raises(MechanismError, match="epsilon"):
        make(index)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(Exception, match=r"textpriv\.TEM\.v1"):
        registry.get("textpriv.TEM.v0")


# The law in words


def test_a_mechanism_without_a_law_says_so_instead_of_explaining(index):
    with pytest.raises(MechanismError, match="no closed output law"):
        Madlib(index, 2.0).explain(3)


# Unknown words


@pytest.fixture(scope="module")
def scattered(vocabulary_of) -> list[Index]:
    """Indexes of 2 to 20 words with heavy tails, near each other and far apart."""
    rng = np.random.default_rng(5)
    return [
        Index.build(
            vocabulary_of(spread * rng.standard_t(3, size=(size, dimension))), k=3, hnsw=False
        )
        for size, dimension, spread in itertools.product((2, 3, 7, 20), (1, 3), (0.05, 1.0, 5.0))
    ]


# Parameters


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "epsilon",
    [0, 0.0, -1.0, float("nan"), float("inf"), -float("inf"), 10**400, True, "6", None, [1.0], 1j],
)
def test_an_epsilon_that_is_no_finite_positive_number_is_refused(index, kind, epsilon):
    with pytest.raises(MechanismError, match="epsilon must be"):
        kind(index, epsilon)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epsilon_has_figures_that_are_numbers_or_is_refused(index, kind):
    for epsilon in (5e-324, 1e-300, 1e40, 1e308):
        with pytest.raises(MechanismError, match="epsilon lies between"):
            kind(index, epsilon)
    for epsilon in (1e-30, 1e30):
        statement = kind(index, epsilon).statement
        assert np.isfinite(list(statement.figures.values())).all()
        assert "nan" not in statement.paragraph()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [3, np.float32(3), np.int64(3)])
def test_an_epsilon_of_any_number_type_is_a_float(index, kind, epsilon):
    assert kind(index, epsilon).epsilon == 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_instead_of_an_index_is_refused_with_the_remedy(index, kind):
    with pytest.raises(MechanismError, match=r"Index\.build"):
        kind(index.vocabulary, 1.0)


def test_an_unknown_prior_is_refused(index):
    with pytest.raises(TextprivError):
        TEM(index, 1.0, prior=np.ones(3))


# Ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "ids",
    [[20], [-2], [0, 1, 10**12], [0.0, 1.0], [True, False], [[0, 1]], 3, ["w1"], [2**31]],
    ids=repr,
)
def test_ids_that_are_not_ids_are_refused(index, kind, ids):
    with pytest.raises(MechanismError, match="ids must"):
        kind(index, 1.0).sample(ids, Stream(bytes(32)))


@pytest.mark.parametrize("kind", KINDS)
def test_no_ids_give_no_words(index, kind):
    found = kind(index, 1.0).sample([], Stream(bytes(32)))
    assert found.shape == (0,)
    assert found.dtype == np.int32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, ">i4"])
def test_ids_may_have_any_whole_number_type(index, kind, dtype):
    ids = np.array([3, 19, 0] * 20, dtype=dtype)[::2]
    found = kind(index, 1.0).sample(ids, Stream(bytes(32)))
    assert (found == kind(index, 1.0).sample(ids.tolist(), Stream(bytes(32)))).all()
    assert found.dtype == np.int32


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_are_word_ids(index, kind):
    found = kind(index, 0.1).sample(np.tile(np.arange(-1, 20), 50), Stream(bytes(32)))
    assert found.min() >= 0
    assert found.max() < 20


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_left_as_they_were(index, kind):
    ids = np.arange(-1, 20, dtype=np.int32)
    kind(index, 0.1).sample(ids, Stream(bytes(32)))
    assert (ids == np.arange(-1, 20)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_numpy_generator_serves_for_experiments(index, kind):
    draws = [kind(index, 1.0).sample(np.arange(20), np.random.default_rng(5)) for _ in range(2)]
    assert (draws[0] == draws[1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_random_stream_is_refused(index, kind):
    with pytest.raises(TextprivError, match="Stream"):
        kind(index, 1.0).sample([0], 5)


@pytest.mark.parametrize("word", [20, -2, 0.5])
def test_a_law_of_what_is_no_id_is_refused(index, word):
    with pytest.raises(VocabularyError, match="word id"):
        TEM(index, 1.0).log_prob(word)


def test_a_law_of_a_word_outside_the_vocabulary_is_refused(index):
    with pytest.raises(VocabularyError):
        TEM(index, 1.0).log_prob("missing")


# Shared faces


@pytest.mark.parametrize("kind", KINDS)
def test_settings_rebuild_the_mechanism(index, kind):
    mechanism = kind(index, 2.5, **OPTIONS[kind])
    assert kind(index, **mechanism.settings()).settings() == mechanism.settings()


@pytest.mark.parametrize("kind", KINDS)
def test_the_statement_says_what_holds_for_one_word(index, kind):
    statement = kind(index, 2.5).statement
    assert (statement.proved, statement.epsilon, statement.delta) == (True, 2.5, 0.0)
    assert "euclidean" in statement.unit
    assert kind.name in statement.mechanism


@pytest.mark.parametrize("kind", KINDS)
def test_a_mechanism_prints_its_name_and_epsilon_but_no_array(index, kind):
    given = {"prior": np.arange(1.0, 21.0)} if kind is TEM else {}
    shown = repr(kind(index, 2.5, **given))
    assert shown.startswith(kind.name)
    assert "2.5" in shown
    assert len(shown) < 200


def test_unknown_words_have_an_id_that_no_word_has():
    assert UNKNOWN == -1


def test_a_mechanism_without_law_or_sampler_cannot_be_made(index):
    with pytest.raises(TypeError, match="abstract"):
        Mechanism(index, 1.0)
