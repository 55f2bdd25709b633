"""The joint guarantee of private words and a private model holds, and is tight for randomised response."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.errors import TextprivError
from textpriv.evaluation.joint import joint_guarantee

losses = st.floats(0.0, 8.0)


def response(loss: float, size: int) -> np.ndarray:
    """k-ary randomised response, rows by input."""
    matrix = np.ones((size, size))
    np.fill_diagonal(matrix, math.exp(loss))
    return matrix / matrix.sum(axis=1, keepdims=True)


def loss_of(matrix: np.ndarray) -> float:
    return float(np.log(matrix[:, None, :] / matrix[None, :, :]).max())


@settings(max_examples=100, deadline=None)
@given(losses, losses)
def test_two_randomised_responses_attain_it(words, records):
    # One binary document, one binary learner: the composition is binary randomised response of exactly this loss.
    both = response(words, 2) @ response(records, 2)
    assert loss_of(both) == pytest.approx(joint_guarantee(words, records).epsilon, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(losses, losses, st.integers(0, 10_000))
def test_no_pure_learner_on_private_words_loses_more(words, records, seed):
    # Random kernels, flattened until they keep their promises.
    rng = np.random.default_rng(seed)

    def kernel(rows, columns, loss):
        found = np.exp(rng.uniform(0, 1, (rows, columns)) * loss / 2)
        return found / found.sum(axis=1, keepdims=True)

    first, second = kernel(2, 4, words), kernel(4, 3, records)
    promised = joint_guarantee(loss_of(first), loss_of(second))
    assert loss_of(first @ second) <= promised.epsilon + 1e-9


@settings(max_examples=100, deadline=None)
@given(losses, losses, st.floats(0, 0.1))
def test_it_is_never_weaker_than_either(words, records, delta):
    found = joint_guarantee(words, records, delta)
    assert found.epsilon <= min(words, records) + 1e-12
    assert found.delta <= delta


def test_delta_shrinks_with_the_overlap():
    # A learner that publishes the record with probability delta, after words of loss E.
    words, delta = 1.0, 0.01
    first = response(words, 2)
    learner = np.hstack([delta * np.eye(2), np.full((2, 1), 1 - delta)])
    both = first @ learner
    found = joint_guarantee(words, 0.0, delta)
    excess = np.maximum(both[0] - math.exp(found.epsilon) * both[1], 0).sum()
    assert found.delta == pytest.approx(delta * math.tanh(0.5))
    assert excess <= found.delta + 1e-15
    assert excess == pytest.approx(found.delta)


def test_without_a_private_learner_the_words_remain():
    assert joint_guarantee(2.0, math.inf).epsilon == 2.0
    assert joint_guarantee(math.inf, 2.0, 1e-6).epsilon == pytest.approx(2.0)
    assert joint_guarantee(0.0, math.inf).epsilon == 0.0
    assert joint_guarantee(math.inf, 2.0, 1e-6).delta == 1e-6
    assert joint_guarantee(3000.0, 2.0, 1e-6).epsilon == pytest.approx(2.0)


@pytest.mark.parametrize("numbers", [(-1, 1, 0), (1, -1, 0), (1, 1, 2), (math.nan, 1, 0)])
def test_numbers_without_meaning_are_refused(numbers):
    with pytest.raises(TextprivError):
        joint_guarantee(*numbers)
