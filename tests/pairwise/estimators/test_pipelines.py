"""Scaling by declared bounds learns nothing of the records, and steps of a pipeline that do learn are named."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from pairwise import (
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PrivatePipeline,
    PrivateSearchCV,
    PublicScaler,
    UnsoundWarning,
)
from pairwise.errors import InvalidParameterError
from pairwise.estimators.pipelines import check_pipeline

# --------------------------------------------------------------------------------------------------------------------
# Pipelines


pytestmark = pytest.mark.filterwarnings("ignore:this learner, or a clone")
LEARNER = PrivateAUCClassifier(1.0, classes=[0, 1])


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), PCA(2)])
def test_a_step_that_learns_before_a_private_learner_is_named(scaler):
    pipeline = Pipeline([("first", scaler), ("learn", LEARNER)])
    with pytest.warns(UnsoundWarning, match="first learn"):
        assert check_pipeline(pipeline) == ["first"]
    assert check_pipeline(pipeline, public=["first"]) == []


@pytest.mark.filterwarnings("error", "ignore:this learner, or a clone")
def test_steps_that_look_at_each_record_alone_pass():
    pipeline = make_pipeline(PublicScaler(0, 9), Normalizer(), "passthrough", LEARNER)
    assert check_pipeline(pipeline) == []


@pytest.mark.filterwarnings("error", "ignore:this learner, or a clone")
def test_private_steps_pass_since_their_releases_are_charged():
    assert check_pipeline(make_pipeline(PrivateMetricLearner(1.0, classes=[0, 1]), LEARNER)) == []


def test_step_that_learns_behind_the_last_private_one_is_named():
    pipeline = make_pipeline(
        PublicScaler(-3, 3), PrivateMetricLearner(1.0, classes=[0, 1]), StandardScaler()
    )
    with pytest.warns(UnsoundWarning, match="standardscaler learn from the records behind"):
        assert check_pipeline(pipeline) == ["standardscaler"]
    assert check_pipeline(pipeline, public=["standardscaler"]) == []
    pipeline.fit(TABLE, LABELS)
    # What it keeps is no function of what was released: the exact mean of the records, mapped.
    np.testing.assert_allclose(pipeline[-1].mean_, pipeline[:-1].transform(TABLE).mean(axis=0))


class Derived(PrivateMetricLearner):
    pass


@pytest.mark.parametrize(
    "learner",
    [
        Derived(1.0, classes=[0, 1]),
        FrozenEstimator(LEARNER),
        PrivateSearchCV(LEARNER, {"data_norm": [1.0, 2.0]}, epsilon=1.0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_derived_or_kept_learner_is_known_as_private(learner):
    pipeline = Pipeline([("scale", StandardScaler()), ("learn", learner)])
    with pytest.warns(UnsoundWarning, match="scale learn from the records in front"):
        assert check_pipeline(pipeline) == ["scale"]


class Hidden(BaseEstimator):
    """Holds learners where scikit-learn does not look for them."""

    def __init__(self, inner=None):
        self.inner = inner


@pytest.mark.parametrize(
    "wrapper",
    [
        OneVsRestClassifier(LEARNER),
        GridSearchCV(LEARNER, {"data_norm": [1.0, 2.0]}),
        GridSearchCV(make_pipeline(PublicScaler(), LEARNER), {}),
        GridSearchCV(Pipeline([("a", LogisticRegression())]), {"a": [LEARNER]}),
        CalibratedClassifierCV(LEARNER),
        FrozenEstimator(CalibratedClassifierCV(LEARNER)),
        VotingClassifier([("a", LEARNER), ("b", LEARNER)]),
        StackingClassifier([("a", LEARNER)]),
        BaggingClassifier(LEARNER),
        SelectFromModel(LEARNER),
        TransformedTargetRegressor(LEARNER),
        Hidden([{"a": (LEARNER,)}]),
        FeatureUnion([("a", CalibratedClassifierCV(LEARNER))]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whatever_else_holds_a_private_learner_is_named(wrapper):
    pipeline = Pipeline([("scale", PublicScaler(0, 9)), ("learn", wrapper)])
    with pytest.warns(UnsoundWarning, match="learn(.a)? hold a private learner"):
        (name,) = check_pipeline(pipeline)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_pipeline(pipeline, public=[name]) == []


def test_statement_inside_an_ensemble_is_of_one_fit():
    # Why a wrapper is named: of two tables that differ by one record, its fits see several copies of it.
    with pytest.warns(UnsoundWarning, match="a bootstrap repeats records"):
        bagged = BaggingClassifier(LEARNER, n_estimators=3, random_state=0).fit(TABLE, LABELS)
    assert {each.statement_.epsilon for each in bagged.estimators_} == {1.0}
    assert max(np.bincount(rows).max() for rows in bagged.estimators_samples_) > 1


class Fitted(PublicScaler):
    """A scaler by the largest values of the table, derived from one by declarations."""

    def fit(self, X, y=None):
        self.low, self.high = np.min(X, axis=0), np.max(X, axis=0)
        return super().fit(X)


def test_public_step_with_its_own_fit_is_not_believed():
    with pytest.warns(UnsoundWarning, match="fitted learn from the records in front"):
        assert check_pipeline(make_pipeline(Fitted(), LEARNER)) == ["fitted"]


@pytest.mark.parametrize("public", [None, 3, object()])
def test_public_steps_that_are_no_names_are_refused(public):
    with pytest.raises(InvalidParameterError, match="public must be a list of names"):
        check_pipeline(make_pipeline(PublicScaler(), LEARNER), public=public)


@pytest.mark.parametrize("steps", ["x", 3, None, [3], [("a",)]])
def test_steps_that_are_none_are_refused(steps):
    with pytest.raises(InvalidParameterError, match="steps must be a list of pairs"):
        PrivatePipeline(steps).fit(TABLE, LABELS)


@pytest.mark.filterwarnings("error", "ignore:this learner, or a clone")
def test_a_pipeline_without_a_private_learner_is_none_of_this_check():
    inner = GridSearchCV(make_pipeline(PublicScaler(-3, 3), LogisticRegression()), {})
    assert check_pipeline(make_pipeline(StandardScaler(), inner)) == []


@pytest.mark.filterwarnings("error", "ignore:this learner, or a clone")
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
        ("fit_transform", [PrivateMetricLearner(1.0, classes=[0, 1])]),
        ("fit_predict", [PrivateMetricLearner(1.0, classes=[0, 1]), Guess()]),
    ],
)
def test_private_pipeline_warns_of_a_step_that_learns(method, others):
    steps = [("scale", StandardScaler()), *((f"{n}", clone(one)) for n, one in enumerate(others))]
    with pytest.warns(UnsoundWarning, match="the steps scale learn") as seen:
        getattr(PrivatePipeline(steps, public=("1",)), method)(TABLE, LABELS)
    assert seen[0].filename == __file__
    assert hasattr(PrivatePipeline(steps), method)


@pytest.mark.filterwarnings("error", "ignore:this learner, or a clone")
def test_private_pipeline_is_silent_where_nothing_learns():
    steps = [("scale", PublicScaler(-3, 3)), ("learn", PrivateAUCClassifier(1.0, classes=[0, 1]))]
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
    search = GridSearchCV(pipeline, {"learn__data_norm": [1.0, 2.0]}, cv=KFold(2))
    with pytest.warns(UnsoundWarning, match="the steps scale learn"):
        search.fit(TABLE, LABELS)
