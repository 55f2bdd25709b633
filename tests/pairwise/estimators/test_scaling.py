"""Scaling by declared bounds learns nothing of the records, and steps of a pipeline that do learn are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairwise import (
    DPPMetricLearner,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivatePipeline,
    PublicScaler,
    UnsoundWarning,
    check_pipeline,
)
from pairwise.errors import InvalidParameterError


@parametrize_with_checks([PublicScaler(), PublicScaler(-3.0, 5.0, (-1.0, 1.0))])
def test_scikit_learn_accepts_the_scaler(estimator, check):
    check(estimator)


tables = arrays(np.float64, (6, 3), elements=st.floats(-1e300, 1e300))


@given(tables, tables, st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-0.1, 0.3)]))
def test_a_record_is_scaled_alike_whatever_stands_beside_it(first, second, output_range):
    scaler = PublicScaler([-1.0, 0.0, 5.0], [1.0, 1e5, 7.0], output_range)
    beside = first.copy()
    beside[1:] = second[1:]
    one, other = clone(scaler).fit(first), clone(scaler).fit(beside)
    assert one.transform(first)[0].tobytes() == other.transform(beside)[0].tobytes()
    scaled = one.transform(first)
    assert output_range[0] <= scaled.min() <= scaled.max() <= output_range[1]


def test_bounds_become_the_ends_of_the_range_and_the_middle_its_middle():
    scaler = PublicScaler([0, -2], [10, 2], (-1, 1)).fit(np.zeros((1, 2)))
    out = scaler.transform([[0, -2], [10, 2], [5, 0], [-99, 99]])
    np.testing.assert_allclose(out, [[-1, -1], [1, 1], [0, 0], [-1, 1]], atol=1e-15)


def test_names_of_features_are_kept():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": [30.0, 40.0], "income": [1.0, 2.0]})
    scaler = PublicScaler(0, 100).fit(table)
    assert scaler.get_feature_names_out().tolist() == ["age", "income"]
    assert list(scaler.set_output(transform="pandas").transform(table).columns) == ["age", "income"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 1.0, "high": 1.0}, "below high"),
        ({"low": [0.0, 0.0]}, "one for each of 3 features"),
        ({"low": -1e308, "high": 1e308}, "finite difference"),
        ({"high": float("nan")}, "finite"),
        ({"output_range": (1, 0)}, "output_range"),
    ],
)
def test_bounds_that_are_none_are_refused(settings, words):
    with pytest.raises(InvalidParameterError, match=words):
        PublicScaler(**settings).fit(np.zeros((4, 3)))


# --------------------------------------------------------------------------------------------------------------------
# Pipelines


LEARNER = PrivateAUCClassifier(classes=[0, 1])


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), PCA(2)])
def test_a_step_that_learns_before_a_private_learner_is_named(scaler):
    pipeline = Pipeline([("first", scaler), ("learn", LEARNER)])
    with pytest.warns(UnsoundWarning, match="first learn"):
        assert check_pipeline(pipeline) == ["first"]
    assert check_pipeline(pipeline, public=["first"]) == []


@pytest.mark.filterwarnings("error")
def test_steps_that_look_at_each_record_alone_pass():
    pipeline = make_pipeline(PublicScaler(0, 9), Normalizer(), "passthrough", LEARNER)
    assert check_pipeline(pipeline) == []


@pytest.mark.filterwarnings("error")
def test_private_steps_pass_since_their_releases_are_charged():
    assert check_pipeline(make_pipeline(PrivateLDA(classes=[0, 1]), LEARNER)) == []


@pytest.mark.filterwarnings("error")
def test_what_comes_after_the_last_private_step_is_post_processing():
    pipeline = make_pipeline(DPPMetricLearner(algorithm="matching"), StandardScaler())
    assert check_pipeline(pipeline) == []


def test_steps_inside_other_steps_are_found():
    columns = ColumnTransformer([("a", PublicScaler(), [0]), ("b", StandardScaler(), [1])])
    union = FeatureUnion([("c", make_pipeline(PCA(1))), ("d", "passthrough")])
    pipeline = Pipeline([("columns", columns), ("union", union), ("learn", LEARNER)])
    with pytest.warns(UnsoundWarning):
        assert check_pipeline(pipeline) == ["columns.b", "union.c.pca"]
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    with pytest.warns(UnsoundWarning):
        assert check_pipeline(pipeline.fit(X, y)) == ["columns.b", "union.c.pca"]


def test_what_is_no_pipeline_is_refused():
    with pytest.raises(InvalidParameterError, match="expected a Pipeline"):
        check_pipeline(LEARNER)


TABLE, LABELS = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2


class Guess(BaseEstimator):
    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return np.zeros(len(X))

    def fit_predict(self, X, y=None):
        return self.predict(X)


@pytest.mark.parametrize(
    ("method", "others"),
    [
        ("fit", [LEARNER]),
        ("fit_transform", [PrivateLDA(classes=[0, 1])]),
        ("fit_predict", [PrivateLDA(classes=[0, 1]), Guess()]),
    ],
)
def test_a_private_pipeline_warns_whenever_it_is_fitted_with_a_step_that_learns(method, others):
    steps = [("scale", StandardScaler()), *((f"{n}", clone(one)) for n, one in enumerate(others))]
    with pytest.warns(UnsoundWarning, match="the steps scale learn") as seen:
        getattr(PrivatePipeline(steps), method)(TABLE, LABELS)
    assert seen[0].filename == __file__
    assert hasattr(PrivatePipeline(steps), method)


@pytest.mark.filterwarnings("error::pairwise.UnsoundWarning")
def test_a_private_pipeline_is_silent_where_nothing_learns_and_the_same_otherwise():
    steps = [("scale", PublicScaler(-3, 3)), ("learn", PrivateAUCClassifier(classes=[0, 1]))]
    pipeline = PrivatePipeline(steps).set_params(learn__random_state=0)
    ours, theirs = clone(pipeline), Pipeline(clone(pipeline).steps)
    np.testing.assert_array_equal(
        ours.fit(TABLE, LABELS).decision_function(TABLE),
        theirs.fit(TABLE, LABELS).decision_function(TABLE),
    )
    assert not hasattr(pipeline, "fit_predict")
    frozen = [("scale", StandardScaler()), steps[1]]
    assert clone(PrivatePipeline(frozen, public=("scale",))).fit(TABLE, LABELS).public == ("scale",)


def test_a_search_over_a_private_pipeline_warns():
    pipeline = PrivatePipeline([("scale", StandardScaler()), ("learn", LEARNER)])
    search = GridSearchCV(pipeline, {"learn__data_norm": [1.0, 2.0]}, cv=2)
    with pytest.warns(UnsoundWarning, match="the steps scale learn"):
        search.fit(TABLE, LABELS)
