"""Scaling by declared bounds learns nothing of the records, and steps of a pipeline that do learn are named."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from pairwise import (
    DPPMetricLearner,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivatePipeline,
    PrivateSearchCV,
    PublicScaler,
    UnsoundWarning,
    check_pipeline,
)
from pairwise.errors import InvalidParameterError

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


def test_a_step_that_learns_behind_the_last_private_one_is_named_since_it_sees_records_and_no_release():
    pipeline = make_pipeline(
        PublicScaler(-3, 3), DPPMetricLearner(classes=[0, 1]), StandardScaler()
    )
    with pytest.warns(UnsoundWarning, match="standardscaler learn from the records behind"):
        assert check_pipeline(pipeline) == ["standardscaler"]
    assert check_pipeline(pipeline, public=["standardscaler"]) == []
    pipeline.fit(TABLE, LABELS)
    # What it keeps is no function of what was released: the exact mean of the records, mapped.
    np.testing.assert_allclose(pipeline[-1].mean_, pipeline[:-1].transform(TABLE).mean(axis=0))


class Derived(PrivateLDA):
    pass


@pytest.mark.parametrize(
    "learner",
    [
        Derived(classes=[0, 1]),
        OneVsRestClassifier(LEARNER),
        GridSearchCV(LEARNER, {"data_norm": [1.0, 2.0]}),
        PrivateSearchCV(LEARNER, {"data_norm": [1.0, 2.0]}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_private_learner_is_known_when_it_is_derived_from_or_wrapped(learner):
    pipeline = Pipeline([("scale", StandardScaler()), ("learn", learner)])
    with pytest.warns(UnsoundWarning, match="scale learn from the records in front"):
        assert check_pipeline(pipeline) == ["scale"]


@pytest.mark.filterwarnings("error")
def test_a_pipeline_without_a_private_learner_is_none_of_this_check():
    inner = GridSearchCV(make_pipeline(PublicScaler(-3, 3), LogisticRegression()), {})
    assert check_pipeline(make_pipeline(StandardScaler(), inner)) == []


@pytest.mark.filterwarnings("error")
def test_one_public_step_may_be_named_alone():
    pipeline = Pipeline([("scale", StandardScaler()), ("learn", LEARNER)])
    assert check_pipeline(pipeline, public="scale") == []
    with pytest.raises(UnsoundWarning):
        check_pipeline(pipeline, public="scaler")


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
        getattr(PrivatePipeline(steps, public=("1",)), method)(TABLE, LABELS)
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
