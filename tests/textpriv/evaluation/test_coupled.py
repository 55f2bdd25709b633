"""Coupled draws have Madlib's law document by document, exactly, and independent noise within a document."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from textpriv.errors import MechanismError, MetricError
from textpriv.evaluation.coupled import CoupledMadlib
from textpriv.mechanisms import UNKNOWN, Madlib


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(6, 8, 5, 1.5), k=16)


@pytest.mark.parametrize(("word", "epsilon"), [(3, 2.0), (3, 8.0), (3, 30.0), (UNKNOWN, 8.0)])
def test_coupled_draws_have_the_law_of_the_mechanism(index, word, epsilon, stream, level):
    # Two samples of one law; every document is one word, and the pool is as large as the sample, so draws are independent.
    size = 20_011
    words = np.full(size, word, dtype=np.int32)
    coupled = CoupledMadlib(index)
    one = coupled.draw(epsilon, words, np.array([0, size]), seed=1, pool=size)
    two = Madlib(index, epsilon, search="exact").sample(words, stream("coupled", epsilon))
    table = np.array([np.bincount(each, minlength=len(index)) for each in (one, two)])
    table = table[:, table.sum(axis=0) >= 16]
    assert stats.chi2_contingency(table).pvalue > level


def test_pruning_never_changes_an_answer(index):
    coupled = CoupledMadlib(index)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, len(index), 997).astype(np.int32)
    fast = coupled.draw(6.0, ids, np.array([0, 997]), seed=5, pool=997)
    # Without limits every word is compared.
    cluster, least, largest = coupled._limits
    coupled.__dict__["_limits"] = (
        cluster,
        np.full_like(least, -np.inf),
        np.full_like(largest, np.inf),
    )
    np.testing.assert_array_equal(
        fast, coupled.draw(6.0, ids, np.array([0, 997]), seed=5, pool=997)
    )


def test_no_noise_is_used_twice_in_a_document(index):
    # One word under one noise has one answer: a document as long as the pool shows each vector of noise once, whatever its
    # stride, so two such documents have the same counts.
    coupled = CoupledMadlib(index)
    ids = np.full(2 * 499, 3, dtype=np.int32)
    out = coupled.draw(5.0, ids, np.array([0, 499, 998]), seed=2, pool=499)
    np.testing.assert_array_equal(np.bincount(out[:499]), np.bincount(out[499:]))


def test_a_document_longer_than_the_pool_is_refused(index):
    with pytest.raises(MechanismError, match="larger prime"):
        CoupledMadlib(index).draw(5.0, np.zeros(8, np.int32), np.array([0, 8]), seed=0, pool=7)


def test_a_metric_without_noise_is_refused(index_of):
    with pytest.raises((MechanismError, MetricError)):
        CoupledMadlib(index_of([[0.0, 1.0], [1.0, 0.0]], metric="manhattan")).draw(
            5.0, np.zeros(2, np.int32), np.array([0, 2]), seed=0
        )
