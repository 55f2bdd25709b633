"""A sample of words has the mean of all words, and states its error."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.evaluation.samples import WordSample


def test_a_sample_of_all_words_has_the_exact_mean():
    weights = np.array([0.5, 0.3, 0.2])
    sample = WordSample.of(weights, 3)
    assert sample.mean(np.array([1.0, 2.0, 3.0])) == pytest.approx(1.7)
    assert sample.standard_error(np.array([1.0, 2.0, 3.0])) == 0


def test_a_sample_is_public_and_always_the_same():
    weights = 1 / np.arange(1.0, 2001.0)
    weights /= weights.sum()
    one, two = WordSample.of(weights, 100), WordSample.of(weights, 100)
    assert one.ids.tolist() == two.ids.tolist()
    assert one.shares.sum() == pytest.approx(1.0)
    assert set(range(12)) <= set(one.ids[: one.certain].tolist())
    assert len(one.ids) == 100
    # The mean over strata has the error that it states: six of them are 2e-9 beyond.
    values = np.sin(np.arange(2000.0))
    error = one.standard_error(values[one.ids])
    assert abs(one.mean(values[one.ids]) - weights @ values) < 6 * error
