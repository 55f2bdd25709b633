"""Pointwise descent: gradients are those of a convex cut loss, and no replaced record moves their mean past its bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwise import Pointwise, PrivateAUCClassifier
from pairwise.algorithms.pointwise import RecordSums
from pairwise.errors import InvalidParameterError
from pairwise.pairs.clipping import CLIP_SLACK

LOSSES = ("square", "logistic")


def cut_loss(scores, labels, loss):
    """The integral of the cut residual, from the score at which the residual is 0 (or from 0)."""
    grid = np.linspace(0.0, 1.0, 20_001)
    values = []
    for score, label in zip(scores, labels, strict=True):
        s = grid * score
        mean = s if loss == "square" else 1.0 / (1.0 + np.exp(-s)) - 0.5
        values.append(np.trapezoid(np.clip(mean - label, -0.5, 0.5), s))
    return np.array(values)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sum_is_the_gradient_of_the_cut_loss(loss):
    rng = np.random.default_rng(1)
    X, positive = rng.normal(size=(40, 3)) / 2, rng.random(40) < 0.5
    sums = RecordSums(X, positive, loss)
    w = 2 * rng.normal(size=4)
    residuals = sums.residuals(w)
    assert (np.abs(residuals) == 0.5).any()
    assert (np.abs(residuals) < 0.5).any()
    step = 1e-4
    for axis in range(4):
        ends = [
            cut_loss(sums.X @ (w + sign * step * np.eye(4)[axis]), sums.labels, loss).sum()
            for sign in (1, -1)
        ]
        # The difference quotient is off by the kinks within one step: at most step/2 times |φ|² for each record.
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
            sums.all_records(w)[axis], abs=40 * step
        )


@given(st.integers(0, 2**32 - 1), st.sampled_from(LOSSES), st.sampled_from([0.0, 0.3, 1.0]))
def test_no_replacement_moves_the_mean_past_its_bound(seed, loss, intercept):
    rng = np.random.default_rng(seed)
    n, d = 6, 3
    X, positive = 3 * rng.normal(size=(n, d)), rng.random(n) < 0.5
    other, label = X.copy(), positive.copy()
    other[0], label[0] = (
        rng.choice([-1, 1]) * X[0] if rng.random() < 0.5 else 3 * rng.normal(size=d),
        ~positive[0],
    )
    one, two = (RecordSums(*table, loss, intercept) for table in ((X, positive), (other, label)))
    w = 10 ** rng.uniform(-2, 2) * rng.normal(size=one.dimension)
    moved = np.linalg.norm(one.all_records(w) - two.all_records(w))
    assert moved <= 2 * one.pair_bound * (1 + 1e-12)
    assert 2 * one.pair_bound == pytest.approx(math.sqrt(1 + intercept**2), rel=1e-15)


@pytest.mark.parametrize(("loss", "intercept"), [*itertools.product(LOSSES, (0.0, 0.3))])
def test_the_bound_is_attained_by_two_labels_of_one_record(loss, intercept):
    X = np.array([[1.0, 0.0], [0.0, 0.5]])
    one = RecordSums(X, np.array([True, False]), loss, intercept)
    two = RecordSums(X, np.array([False, False]), loss, intercept)
    w = np.zeros(one.dimension)
    moved = np.linalg.norm(one.all_records(w) - two.all_records(w))
    assert moved == pytest.approx(2 * one.pair_bound, rel=2 * CLIP_SLACK)


def test_without_noise_the_direction_is_that_of_least_squares_where_no_residual_is_cut():
    rng = np.random.default_rng(3)
    y = rng.random(400) < 0.5
    X = 0.05 * rng.normal(size=(400, 3)) + np.where(y, 0.05, -0.05)[:, None] * [1.0, -1.0, 0.0]
    model = PrivateAUCClassifier(
        epsilon=math.inf, algorithm=Pointwise(steps=4000, radius=5.0, rate=1.0), centre_share=0.0
    ).fit(X, y)
    design = np.hstack((X, np.full((400, 1), 0.3)))
    exact = np.linalg.lstsq(design, np.where(y, 0.5, -0.5), rcond=None)[0][:3]
    cosine = model.coef_[0] @ exact / np.linalg.norm(model.coef_[0]) / np.linalg.norm(exact)
    assert cosine > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Pointwise(loss="hinge"), "'square' or 'logistic'"),
        (Pointwise(intercept=-0.1), r"intercept must be in \[0, 1\]"),
        (Pointwise(intercept=math.nan), "intercept"),
        (Pointwise(steps=0), "steps must be a whole number >= 1"),
    ],
)
def test_options_without_meaning_are_refused(options, message):
    X, y = np.eye(6), np.array([0, 1] * 3)
    with pytest.raises(InvalidParameterError, match=message):
        PrivateAUCClassifier(algorithm=options).fit(X, y)


def test_it_has_no_published_form():
    with pytest.raises(InvalidParameterError, match="no published form"):
        PrivateAUCClassifier(algorithm="pointwise", mode="published").fit(np.eye(6), [0, 1] * 3)
