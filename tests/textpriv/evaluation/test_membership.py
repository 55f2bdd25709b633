"""Membership attacks find members of a model that memorises, and none where there is nothing to find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.errors import TextprivError
from textpriv.evaluation.membership import offline_lira, shadow_attack, true_class_logit
from textpriv.evaluation.roc import (
    auc_ceiling,
    binomial_interval,
    score_attack,
    tpr_ceiling,
)
from textpriv.evaluation.utility import MeanEmbeddingClassifier, count_matrix

# Figures


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=30),
    st.lists(st.integers(-3, 3), min_size=2, max_size=30),
)
def test_auc_is_the_share_of_pairs_in_order(yes, no):
    pairs = [(a > b) + 0.5 * (a == b) for a in yes for b in no]
    assert score_attack("x", yes, no).auc.value == pytest.approx(np.mean(pairs))


def test_tpr_is_at_the_threshold_that_so_few_negatives_pass():
    no = np.arange(1000.0)
    found = score_attack("x", [988.5, 995.5, 998.5, 999.5], no)
    assert found.tpr[0.01].value == 0.75
    assert found.tpr[0.001].value == 0.5


def test_the_interval_of_the_auc_covers_the_truth():
    # 400 repetitions: 95 % coverage, at least 90 % observed; a correct interval fails this with probability 4e-5 at most,
    # and the seed is fixed.
    rng = np.random.default_rng(3)
    truth = 0.5 * math.erfc(-0.5)  # two unit normals one apart: Phi(1 / sqrt 2)
    hits = 0
    for _ in range(400):
        found = score_attack("x", rng.normal(1, 1, 80), rng.normal(0, 1, 80)).auc
        hits += found.low <= truth <= found.high
    assert hits >= 360


def test_ceilings_are_reached_by_randomised_response():
    # The likelihood ratio of randomised response at loss L, with its threshold randomised, is the trade-off curve itself.
    for loss in (0.1, 1.0, 3.0):
        flip = 1 / (1 + math.exp(loss))
        auc = (1 - flip) ** 2 + 2 * 0.5 * flip * (1 - flip)
        assert auc_ceiling(loss) == pytest.approx(auc)
        assert tpr_ceiling(loss, flip) == pytest.approx(1 - flip)
        assert tpr_ceiling(loss, 0.001) == pytest.approx(
            min(math.exp(loss) * 0.001, 1 - math.exp(-loss) * 0.999)
        )
    assert auc_ceiling(0.0) == 0.5
    assert auc_ceiling(math.inf) == 1.0


def test_a_binomial_interval_has_exact_ends():
    from scipy.stats import binom

    low, high = binomial_interval(7, 50)
    assert binom.sf(6, 50, low) == pytest.approx(0.025)
    assert binom.cdf(7, 50, high) == pytest.approx(0.025)
    assert binomial_interval(0, 10)[0] == 0.0
    assert binomial_interval(10, 10)[1] == 1.0


@pytest.mark.parametrize(
    ("yes", "no"), [([], [1.0]), ([1.0], []), ([np.nan], [1.0]), ([[1.0]], [1.0])]
)
def test_scores_without_meaning_are_refused(yes, no):
    with pytest.raises(TextprivError):
        score_attack("x", yes, no)


# Attacks


@pytest.fixture(scope="module")
def world():
    """Random documents with random labels: nothing to learn but the documents themselves."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    words, length = 3000, 12
    table = rng.normal(size=(words, 32)).astype(np.float32)

    def documents(size, seed):
        draw = np.random.default_rng(seed)
        ids = draw.integers(0, words, size * length).astype(np.int32)
        return (
            count_matrix(ids, np.arange(size + 1) * length, words),
            draw.integers(0, 2, size),
        )

    return table, documents


def attacked(world, tune, epochs):
    table, documents = world
    parts = {name: documents(400, seed) for seed, name in enumerate(("tr1", "tr2", "te1", "te2"))}
    target, shadow = (
        MeanEmbeddingClassifier(table, tune=tune, epochs=epochs, batch_size=8, seed=seed).fit(
            *parts[name]
        )
        for seed, name in enumerate(("tr1", "te2"))
    )
    outputs = {
        name: (shadow if name.startswith("te") else target).predict_proba(counts)
        for name, (counts, _) in parts.items()
    }
    return shadow_attack(outputs["te2"], outputs["te1"], outputs["tr1"], outputs["tr2"], epochs=60)


def test_the_shadow_attack_finds_members_of_a_model_that_memorises(world):
    assert attacked(world, tune=True, epochs=20).auc.low > 0.6


def test_the_shadow_attack_finds_nothing_in_a_model_that_has_learned_nothing(world):
    # Untrained: members and others have one law. DeLong's error at 400 + 400 is 0.02; 6 standard errors.
    assert abs(attacked(world, tune=False, epochs=0).auc.value - 0.5) < 0.13


def test_lira_finds_members_by_their_margin():
    rng = np.random.default_rng(1)
    hardness = rng.normal(0, 5, 600)
    member = np.arange(600) < 300
    shadows = hardness + rng.normal(0, 1, (8, 600))
    target = hardness + rng.normal(0, 1, 600) + 3 * member
    found = offline_lira(target, shadows, member)
    # 3 apart with deviation sqrt(1 + 1 / 8): AUC 0.977; without the shadows hardness would hide it.
    assert found.auc.value > 0.95
    assert score_attack("x", target[member], target[~member]).auc.value < 0.75


def test_the_logit_is_that_of_the_true_class():
    found = true_class_logit([[0.2, 0.8], [0.9, 0.1]], [1, 1])
    assert found == pytest.approx([math.log(4), -math.log(9)])


def test_attacks_refuse_shapes_that_do_not_fit():
    with pytest.raises(TextprivError, match="two or more shadow"):
        offline_lira([0.0], [[0.0]], [True])
    with pytest.raises(TextprivError, match="one column a class"):
        shadow_attack([0.1], [[0.1, 0.9]], [[0.1, 0.9]], [[0.1, 0.9]])
    with pytest.raises(TextprivError, match="same classes"):
        shadow_attack([[0.1, 0.9]], [[0.1, 0.9]], [[0.1, 0.4, 0.5]], [[0.1, 0.9]])
