"""Attributes are guessed where words give them away, at the rate of the commonest value where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.attributes import infer_attribute

AUTHORS = 80


def authors(gives_away, seed=1):
    rng = np.random.default_rng(seed)
    values = rng.choice(["low", "high"], AUTHORS, p=[0.6, 0.4])
    counts = rng.poisson(0.5, (AUTHORS, 30))
    if gives_away:
        counts[:, 7] = np.where(values == "high", 3, 0)
    return csr_matrix(counts), values, np.arange(AUTHORS) % 2 == 0


def test_an_attribute_that_one_word_betrays_is_guessed():
    found = infer_attribute(*authors(True))
    assert found.authors == AUTHORS // 2
    assert found.success.low > found.blind


def test_an_attribute_that_no_word_betrays_is_not():
    found = infer_attribute(*authors(False), confidence=1 - 1e-9)
    assert found.success.low < found.blind < 1


def test_the_setting_is_chosen_on_other_authors_than_those_that_are_guessed():
    counts, values, shown = authors(True)
    settings = (("log", 1e-6), ("log", 10.0))
    chosen = infer_attribute(counts, values, shown, settings=settings).setting
    assert chosen == ("log", 10.0)
    other = np.where(shown, "low", values)  # whatever the authors who are guessed about are like
    other[0] = "high"
    assert infer_attribute(counts, other, shown, settings=settings).setting == chosen


@pytest.mark.parametrize("shown", [np.arange(AUTHORS) < 3, np.ones(AUTHORS, dtype=bool)])
def test_too_few_authors_are_refused(shown):
    counts, values, _ = authors(True)
    with pytest.raises(TextprivError, match="at least 5 authors"):
        infer_attribute(counts, values, shown)
