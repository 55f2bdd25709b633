"""Private coordinates: what scaling does with and without noise, and when it is paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pairwise import Pointwise, PrivateAUCClassifier
from pairwise.accounting.events import Adjacency
from pairwise.algorithms.coordinates import (
    Coordinates,
    default_scale_share,
    plan_coordinates,
    scaling,
)
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records


def narrow(n=4000):
    """Records of very different spread, correlated, of norm below 1."""
    rng = np.random.default_rng(0)
    return 0.2 * rng.normal(size=(n, 3)) @ np.array([[1, 1, 0], [0, 0.05, 0], [0, 0, 0.01]])


def test_without_noise_features_come_out_uncorrelated_and_of_one_variance():
    X = narrow()
    plan = plan_coordinates(len(X), 3, 1.0, math.inf, 0.1, 0.1)
    coordinates = plan.release(X, Randomness(0))
    # Before the last clip, which acts on long records alone.
    z = coordinates.around(X) @ coordinates.basis.T
    second = z.T @ z / len(z)
    assert second / second[0, 0] == pytest.approx(np.eye(3), abs=1e-3)


def test_where_noise_hides_the_second_moment_no_feature_is_preferred():
    # Eigenvalues of 0.1 at most beside a floor of √3/2 times a noise of 1,000.
    basis = scaling(0.1 * np.diag([1.0, 0.1, 0.01]), 1000.0)
    assert basis / basis[0, 0] == pytest.approx(np.eye(3), abs=1e-3)


def test_a_direction_pulled_back_ranks_unclipped_records_like_the_direction_itself():
    rng = np.random.default_rng(1)
    X = 0.01 * rng.normal(size=(50, 3))
    coordinates = Coordinates(0.01 * rng.normal(size=3), 0.7, rng.normal(size=(3, 3)))
    w = rng.normal(size=3)
    z = coordinates.of(X)
    assert (np.linalg.norm(z, axis=1) < 1 - 1e-5).all()
    assert (X - coordinates.centre) @ coordinates.pull_back(w) == pytest.approx(z @ w)


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT])
def test_sensitivities_are_attained(adjacency):
    n, R = 5, 2.0
    plan = plan_coordinates(n, 2, R, 1.0, 0.5, 0.1, adjacency=adjacency)
    x, opposite = np.array([R, 0.0]), np.array([-R, 0.0])
    u, v = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    if adjacency is Adjacency.ZERO_OUT:
        opposite, v = np.zeros(2), np.zeros(2)
    assert plan.mean.sensitivity == pytest.approx(np.linalg.norm(x - opposite) / n)
    assert plan.distance.sensitivity == pytest.approx(2 * R / n)
    moved = np.linalg.norm(np.outer(u, u) - np.outer(v, v)) / n
    assert plan.second.sensitivity == pytest.approx(moved)


def test_what_scaling_gets_depends_on_public_numbers_alone_and_is_nothing_where_noise_hides_all():
    assert default_scale_share(0.5, 1000, 5) > 0
    assert default_scale_share(0.01, 1000, 300) == 0


def test_scaling_finds_a_narrow_feature_that_a_common_scale_hides():
    X = narrow(2000)
    y = X[:, 2] > 0
    scores = [
        PrivateAUCClassifier(
            2.0, 1e-5, algorithm=Pointwise(scale_share=share), classes=[0, 1], random_state=0
        )
        .fit(X, y.astype(int))
        .score(X, y.astype(int))
        for share in (0.0, 0.2)
    ]
    assert scores[0] < 0.8 < 0.9 < scores[1]


@pytest.mark.parametrize("share", [0.9, -0.5, math.nan])
def test_shares_that_leave_nothing_for_the_ranking_or_more_than_all_are_refused(share):
    X, y = np.eye(6), np.array([0, 1] * 3)
    model = PrivateAUCClassifier(algorithm=Pointwise(scale_share=share), centre_share=0.2)
    with pytest.raises(InvalidParameterError, match="scale_share must be >= 0, and below 1"):
        model.fit(X, y)


def test_scores_are_those_of_the_coordinates_that_were_learned_in():
    X = narrow(400)
    y = X[:, 2] > 0
    model = PrivateAUCClassifier(
        2.0, 1e-5, algorithm=Pointwise(scale_share=0.2), threshold_share=0.0, random_state=0
    ).fit(X, y)
    # From the centre outwards, so that some are cut in scaled features and some are not.
    shown = clip_records(model.centre_ + np.logspace(-6, 0, 400)[:, None] * X, 1.0)
    coordinates = Coordinates(model.centre_, model.scale_, model.basis_)
    lengths = np.linalg.norm(coordinates.around(shown) @ model.basis_.T, axis=1)
    assert 0 < (lengths < 1).sum() < len(X)
    w = np.linalg.solve(model.basis_.T, model.coef_[0] * model.scale_)
    scores = coordinates.of(shown) @ w
    # Clipped records are a millionth below the bound.
    assert np.abs(model.decision_function(shown) - scores).max() <= 4e-6 * np.linalg.norm(w)
