"""A learned distance means the same whichever learner found it, and no learner carries the table it learned from."""

from __future__ import annotations

import pickle
import re
import warnings
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone

from pairwise import DPPMetricLearner, Gradient, PrivateMetricLearner, Published
from pairwise.errors import InvalidPairsError

N = 40
R = np.random.default_rng(0)
X = R.normal(size=(N, 3)) * 0.3
y = np.arange(N) % 2
PAIRS = np.stack((np.arange(0, N, 2), np.arange(1, N, 2)), axis=1)
SIGNS = R.choice([-1, 1], size=len(PAIRS))

LEARNERS = [
    (PrivateMetricLearner(classes=[0, 1], algorithm=Gradient(steps=3), data_norm=0.5), X, y),
    (PrivateMetricLearner(classes=[0, 1], algorithm="statistics", data_norm=0.5), X, y),
    (DPPMetricLearner(algorithm="matching", classes=[0, 1], data_norm=0.5), X, y),
    (DPPMetricLearner(algorithm="input-perturbation", classes=[0, 1], data_norm=0.5), X, y),
    (DPPMetricLearner(kappa=1, data_norm=0.5), X[PAIRS], SIGNS),
    (DPPMetricLearner(kappa=1, data_norm=0.5, preprocessor=X), PAIRS, SIGNS),
    (DPPMetricLearner(kappa=1, algorithm="pure", data_norm=0.5), X[PAIRS], SIGNS),
    (DPPMetricLearner(kappa=1, algorithm="node-dp", data_norm=0.5), X[PAIRS], SIGNS),
    (DPPMetricLearner(kappa=1, algorithm=Published(n_steps=1), data_norm=0.5), X[PAIRS], SIGNS),
]
every_learner = pytest.mark.parametrize(
    ("learner", "data", "target"),
    LEARNERS,
    ids=[f"{type(a).__name__}-{a.algorithm}-{a.mode}-{np.ndim(b)}" for a, b, _ in LEARNERS],
)


def _fitted(learner, data, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(learner).fit(data, target)


@every_learner
def test_a_pair_is_as_far_apart_as_its_transformed_records_whatever_their_length(
    learner, data, target
):
    fitted = _fitted(learner, data, target)
    far = X * R.choice([0.1, 1.0, 30.0], size=(N, 1))
    Z = fitted.transform(far)
    apart = np.linalg.norm(Z[PAIRS[:, 0]] - Z[PAIRS[:, 1]], axis=1)
    np.testing.assert_allclose(fitted.pair_distance(far[PAIRS]), apart, atol=1e-12)
    metric = fitted.get_metric()
    np.testing.assert_allclose([metric(*far[p]) for p in PAIRS], apart, atol=1e-12)
    np.testing.assert_allclose(fitted.pair_score(far[PAIRS]), -apart, atol=1e-12)


@every_learner
def test_records_are_clipped_as_in_training_before_a_distance_is_taken(learner, data, target):
    fitted = _fitted(learner, data, target)
    u, v = np.array([3.0, 0.0, 0.0]), np.array([0.0, 0.01, 0.0])
    # On an axis the l1 and the Euclidean norm are the same, so 0.5 is where every learner stops.
    far, near = fitted.pair_distance([[u, v], [u / 6.0, v]])
    assert far == pytest.approx(near, rel=1e-12)
    inside = X[:2] * 0.1
    squared = (inside[0] - inside[1]) @ fitted.get_mahalanobis_matrix() @ (inside[0] - inside[1])
    assert fitted.pair_distance([inside])[0] == pytest.approx(np.sqrt(squared), rel=1e-9)


@pytest.mark.parametrize("preprocessor", [X, X.tolist(), lambda index: X[index]])
def test_index_pairs_are_looked_up_in_a_table_or_by_a_function_in_every_learner(preprocessor):
    for learner, data, target in LEARNERS[:5:4]:
        fitted = _fitted(learner, data, target).set_params(preprocessor=preprocessor)
        np.testing.assert_array_equal(fitted.pair_distance(PAIRS), fitted.pair_distance(X[PAIRS]))


# --------------------------------------------------------------------------------------------------------------------
# The table


def _edges(preprocessor=X):
    return DPPMetricLearner(kappa=1, preprocessor=preprocessor)


def test_a_fitted_learner_has_left_its_private_table_behind():
    fitted = _edges().fit(PAIRS, SIGNS)
    outline = fitted.get_params()["preprocessor"]
    assert outline.shape == X.shape
    assert repr(outline) == "<table of shape (40, 3)>"
    assert X[0].tobytes() not in pickle.dumps(fitted)


def test_a_function_that_reads_the_private_table_is_left_behind_as_well():
    fitted = _edges(lambda index: X[index]).fit(PAIRS, SIGNS)
    assert repr(fitted.preprocessor) == "<callable>"
    assert pickle.loads(pickle.dumps(fitted)).components_.shape == (3, 3)


@pytest.mark.parametrize(
    "make", [clone, deepcopy, lambda fitted: pickle.loads(pickle.dumps(fitted))]
)
def test_a_copy_of_a_fitted_learner_asks_for_its_table_again_and_then_fits(make):
    copy = make(_edges().fit(PAIRS, SIGNS))
    with pytest.raises(InvalidPairsError, match=r"set_params\(preprocessor=X\)"):
        copy.fit(PAIRS, SIGNS)
    copy.set_params(preprocessor=X).fit(PAIRS, SIGNS)
    assert clone(copy).fit(X[PAIRS], SIGNS).components_.shape == (3, 3)


def test_a_clone_made_before_the_fit_has_its_table_so_searches_work():
    learner = _edges()
    for _ in range(2):
        assert clone(learner).fit(PAIRS, SIGNS).components_.shape == (3, 3)
    assert learner.get_params()["preprocessor"] is X


def test_distances_of_indices_ask_for_the_table_that_was_left_behind():
    fitted = _edges().fit(PAIRS, SIGNS)
    with pytest.raises(InvalidPairsError, match="dropped after fitting"):
        fitted.pair_distance(PAIRS)


@pytest.mark.parametrize("learner", [_edges(), PrivateMetricLearner(preprocessor=X)])
def test_a_learner_prints_the_shape_of_its_table_even_before_the_fit(learner):
    assert "<table of shape (40, 3)>" in repr(learner)
    for text in (repr(learner), str(learner), learner._repr_html_()):
        assert not re.search(re.escape(f"{X[0, 0]:.4f}"[:7]), text)
