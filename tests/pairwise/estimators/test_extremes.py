"""Settings and records at the ends of the range of floats: a fit is finite, or refused in words."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event

from pairwise import (
    DPPMetricLearner,
    Ftrl,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PublicScaler,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.algorithms.noisy_contrastive import clipped_gradient_sum
from pairwise.errors import InvalidParameterError

pytestmark = pytest.mark.filterwarnings("ignore")

X = np.random.default_rng(0).normal(size=(60, 3)) / 3
Y = (X[:, 0] > 0).astype(int)
LEARNERS = {
    **{name: PrivateAUCClassifier(1.0, 1e-5, algorithm=name) for name in ("auto", "statistics")},
    "ftrl": PrivateAUCClassifier(1.0, 1e-5, algorithm=Ftrl()),
    "metric": PrivateMetricLearner(1.0, 1e-5),
    "pairs": DPPMetricLearner(1.0, 1e-5, 2),
}


def fitted(name, unit, **settings):
    learner = LEARNERS[name].set_params(data_norm=unit, random_state=0, **settings)
    if name == "pairs":
        return learner.fit(unit * X.reshape(30, 2, 3), np.tile([1, -1], 15))
    return learner.set_params(classes=[0, 1]).fit(unit * X, Y)


@pytest.mark.parametrize("unit", [1e-50, 1e50])
@pytest.mark.parametrize("name", LEARNERS)
def test_fit_in_the_largest_and_smallest_unit_is_finite(name, unit):
    model = fitted(name, unit)
    use = model.decision_function if hasattr(model, "decision_function") else model.transform
    assert np.isfinite(use(unit * X)).all()


@pytest.mark.parametrize("unit", [1e-85, 1e80])
@pytest.mark.parametrize("name", LEARNERS)
def test_unit_without_digits_is_refused(name, unit):
    with pytest.raises(InvalidParameterError, match="keep their digits"):
        fitted(name, unit)


def test_gradient_is_clipped_where_its_square_underflows():
    # The difference of the two points is 1e-170 long: its square is 0 to a float.
    points, index = np.array([[1e-170, 0.0], [0.0, 0.0]]), np.array([[0, 1]])
    W, dissimilar = 1e170 * np.eye(2), np.array([False])
    total = clipped_gradient_sum(W, points, index, dissimilar, margin=1.0, clip=1e-200)
    assert np.linalg.norm(total * 1e200) <= 1.0


def test_bounds_too_close_for_floats_are_refused():
    with pytest.raises(InvalidParameterError, match="so close to low"):
        PublicScaler(0, 5e-324).fit(X)


def test_a_part_of_a_release_is_no_event():
    part = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 0.001)
    with pytest.raises(InvalidParameterError, match="count"):
        epsilon_of(part, 1e-5)
