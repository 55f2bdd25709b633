"""Features by public declarations: nothing is learned of the records, and names are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from packaging.version import Version, parse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairwise import (
    OnPair,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PrivatePipeline,
    PublicFeatures,
    PublicOneHot,
    PublicScaler,
)
from pairwise.errors import InvalidParameterError

NAN = float("nan")

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


@parametrize_with_checks(
    [
        PublicScaler(),
        PublicScaler(-3.0, 5.0, (-1.0, 1.0), missing="middle"),
        PublicOneHot([0, 1, 2], other="zeros"),
        PublicOneHot([0, 1, 2, np.nan], other="zeros"),
    ]
)
def test_scikit_learn_accepts_the_transformer(estimator, check):
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
# What is missing


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("middle", [0.5, 0.5]), (3, [0.3, 0.03]), ([1, 20], [0.1, 0.2]), (1e9, [1.0, 1.0])],
)
def test_a_missing_value_is_filled_by_the_public_rule_alone(missing, expected):
    scaler = PublicScaler([0, 0], [10, 100], missing=missing).fit([[1.0, 1.0]])
    out = scaler.transform([[NAN, NAN], [5.0, 50.0], [NAN, 0.0]])
    np.testing.assert_allclose(out, [expected, [0.5, 0.5], [expected[0], 0.0]])


def test_a_missing_value_is_refused_without_a_rule_and_an_infinite_one_with_it():
    with pytest.raises(InvalidParameterError, match=r"missing=\.\.\."):
        PublicScaler().fit([[0.5], [NAN]])
    with pytest.raises(InvalidParameterError, match="infinity"):
        PublicScaler(missing="middle").fit([[0.5], [math.inf]])


PARTLY = PublicScaler(0, 100, missing={"age": 40})


def test_a_missing_value_is_filled_in_the_columns_that_have_a_rule():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": [NAN, 30.0], "income": [10.0, 20.0]})
    assert clone(PARTLY).fit_transform(table).tolist() == [[0.4, 0.1], [0.3, 0.2]]


def test_a_missing_value_is_refused_in_a_column_without_a_rule():
    pandas = pytest.importorskip("pandas")
    whole = pandas.DataFrame({"age": [NAN, 30.0], "income": [10.0, 20.0]})
    broken = whole.assign(income=[10.0, NAN])
    for use in (clone(PARTLY).fit, clone(PARTLY).fit(whole).transform):
        with pytest.raises(InvalidParameterError, match=r"does not name \('income'\)\."):
            use(broken)


def test_a_rule_for_no_column_is_refused_by_name():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidParameterError, match=r"1 unknown \('age'\)"):
        clone(PARTLY).fit(pandas.DataFrame({"income": [10.0]}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"missing": "mean"}, "'middle' or numbers declared in public"),
        ({"missing": [1.0, 2.0]}, "one for each of 1 features"),
        ({"missing": math.inf}, "finite"),
        ({"missing": NAN}, "finite"),
        ({"low": "none"}, "must hold numbers"),
        ({"low": {"age": 0}}, "the table has no names"),
    ],
)
def test_a_rule_that_is_none_is_refused(settings, words):
    with pytest.raises(InvalidParameterError, match=words):
        PublicScaler(**settings).fit([[0.0]])


# --------------------------------------------------------------------------------------------------------------------
# Categories


def test_declared_categories_are_encoded_as_scikit_learn_encodes_them():
    table = np.array([["no", 3], ["yes", 1], ["yes", 2]], dtype=object)
    declared = [["no", "yes"], [1, 2, 3]]
    ours = PublicOneHot(declared).fit(table)
    theirs = OneHotEncoder(categories=declared, sparse_output=False).fit(table)
    np.testing.assert_array_equal(ours.transform(table), theirs.transform(table))
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    assert ours.norm_bound_ == pytest.approx(np.linalg.norm(ours.transform(table), axis=1).max())


values = st.sampled_from(["a", "b", "c", None, NAN])


@given(arrays(object, (5, 2), elements=values), arrays(object, (5, 2), elements=values))
def test_a_record_is_encoded_alike_whatever_stands_beside_it_and_at_most_of_the_bound(one, other):
    beside = np.concatenate((one[:1], other[1:]))
    encoder = PublicOneHot(["c", "a"], other="zeros")
    first, second = clone(encoder).fit(one), clone(encoder).fit(beside)
    encoded = first.transform(one)
    np.testing.assert_array_equal(encoded[0], second.transform(beside)[0])
    assert (encoded.reshape(5, 2, 2).sum(axis=2) <= 1).all()
    assert np.linalg.norm(encoded, axis=1).max() <= first.norm_bound_ * (1 + 1e-12)


def test_a_value_that_is_not_declared_follows_the_public_rule():
    table = [["a", 1], ["secret", 2], ["b", None]]
    declared = [["a", "b"], [1, 2]]
    with pytest.raises(InvalidParameterError, match=r"'x0' .* first in row 1 \(1 such") as caught:
        PublicOneHot(declared).fit_transform(table)
    assert "secret" not in str(caught.value)
    zeros = PublicOneHot(declared, other="zeros").fit_transform(table)
    assert zeros.tolist() == [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize("missing", [None, NAN])
def test_what_is_missing_is_a_category_where_it_is_declared(missing):
    encoder = PublicOneHot([["a", missing]]).fit([["a"]])
    assert encoder.transform([["a"], [missing]]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("declared", [None, NAN])
@pytest.mark.parametrize("dtype", ["object", "string", "category", "string[pyarrow]"])
def test_a_missing_value_of_a_pandas_frame_is_the_category_that_was_declared(declared, dtype):
    pandas = pytest.importorskip("pandas")
    if "arrow" in dtype:
        pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"smokes": pandas.Series(["no", None, "yes"], dtype=dtype)})
    encoder = PublicOneHot({"smokes": ["no", "yes", declared]}).fit(frame)
    assert encoder.transform(frame).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("declared", [None, NAN])
def test_a_missing_number_of_a_pandas_frame_is_the_category_that_was_declared(declared):
    pandas = pytest.importorskip("pandas")
    for series in ([1.0, None], pandas.array([1, None], dtype="Int64")):
        frame = pandas.DataFrame({"rooms": series})
        assert PublicOneHot([[1, declared]]).fit_transform(frame).tolist() == [[1, 0], [0, 1]]


@pytest.mark.filterwarnings("error")
def test_a_table_keeps_its_missing_values():
    table = np.array([["a"], [NAN]], dtype=object)
    PublicOneHot([["a", None]]).fit_transform(table)
    assert table[1, 0] is NAN


@pytest.mark.parametrize(
    ("categories", "words"),
    [
        ("ab", "must list every value"),
        ([["a"]], "one for each of 2 columns"),
        ([["a", "a"], ["b"]], "each of them once"),
        ([["a", None, NAN], ["b"]], "each of them once"),
        ([[], ["b"]], "at least one value"),
        ({"colour": ["a"]}, "the table has no names"),
    ],
)
def test_lists_that_declare_no_categories_are_refused(categories, words):
    with pytest.raises(InvalidParameterError, match=words):
        PublicOneHot(categories).fit([["a", "b"]])


# --------------------------------------------------------------------------------------------------------------------
# Frames


def _frame(library):
    frames = pytest.importorskip(library)
    r = np.random.default_rng(0)
    n = 120
    y = np.arange(n) % 2
    return (
        frames,
        y,
        {
            "job": [("clerk", "nurse")[each] for each in r.integers(2, size=n)],
            "age": [None if i % 9 == 0 else float(30 + 20 * y[i]) for i in range(n)],
            "income": (1e4 * (1 + y + r.random(n))).tolist(),
            "smokes": ["yes" if each else "no" for each in r.integers(2, size=n)],
        },
    )


NUMBERS = PublicScaler(
    {"age": 0, "income": 0},
    {"income": 1e5, "age": 120},
    (-0.5, 0.5),
    missing={"age": 40, "income": 0},
)
CATEGORIES = PublicOneHot({"smokes": ["no", "yes"], "job": ["nurse", "clerk"]}, other="zeros")
NAMES = ["age", "income", "job_nurse", "job_clerk", "smokes_no", "smokes_yes"]


# The last scikit-learn for Python 3.10 is 1.7.
OLD = parse(sklearn.__version__) < Version("1.8")


@pytest.mark.filterwarnings("error::pairwise.UnsoundWarning")
@pytest.mark.parametrize(
    "library",
    [
        "pandas",
        pytest.param(
            "polars",
            marks=pytest.mark.skipif(
                OLD, reason="scikit-learn 1.7 cannot divide frames of polars 2"
            ),
        ),
    ],
)
def test_a_frame_goes_in_names_come_out_and_the_statement_stands(library):
    frames, y, columns = _frame(library)
    table = frames.DataFrame(columns)
    features = make_column_transformer(
        (NUMBERS, ["age", "income"]),
        (CATEGORIES, ["job", "smokes"]),
        verbose_feature_names_out=False,
    )
    out = clone(features).set_output(transform=library).fit_transform(table)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == NAMES
    assert float(out["age"][0]) == pytest.approx(40 / 120 - 0.5)
    bound = math.hypot(0.5 * math.sqrt(2), math.sqrt(2))
    learner = PrivateAUCClassifier(1.0, classes=[0, 1], data_norm=bound)
    pipeline = PrivatePipeline([("features", features), ("learn", learner)]).fit(table, y)
    assert pipeline["learn"].statement_.proved
    assert pipeline["features"].get_feature_names_out().tolist() == NAMES
    assert pipeline.predict(table).shape == (120,)
    named = pipeline.set_output(transform=library).fit(table, y)
    assert named["learn"].feature_names_in_.tolist() == NAMES


def test_a_frame_of_pandas_own_types_is_read_as_any_other():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {"a": pandas.array([1, None], dtype="Int64"), "b": pandas.Categorical(["x", None])}
    )
    assert PublicScaler(0, 2, missing="middle").fit_transform(table[["a"]]).tolist() == [[0.5]] * 2
    encoder = PublicOneHot({"b": ["x", "y"]}, other="zeros")
    assert encoder.fit_transform(table[["b"]]).tolist() == [[1, 0], [0, 0]]


def test_names_that_are_no_columns_are_refused_by_name():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidParameterError, match=r"1 left out \('age'\), 1 unknown \('ages'\)"):
        PublicScaler({"ages": 0}, 9).fit(pandas.DataFrame({"age": [1.0]}))


def test_metrics_name_their_components_and_give_frames():
    pandas = pytest.importorskip("pandas")
    r = np.random.default_rng(0)
    table = pandas.DataFrame(r.normal(size=(40, 2)), columns=["a", "b"])
    lda = (
        PrivateMetricLearner(1.0, classes=[0, 1])
        .set_output(transform="pandas")
        .fit(table, np.arange(40) % 2)
    )
    assert list(lda.transform(table).columns) == ["privatemetriclearner0", "privatemetriclearner1"]


# --------------------------------------------------------------------------------------------------------------------
# Metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.skipif(OLD, reason="scikit-learn 1.7 passes on no weights to a pipeline's score")
def test_scores_take_weights_through_metadata_routing(routing):
    r = np.random.default_rng(0)
    y = np.arange(90) % 2
    X = r.normal(size=(90, 2)) * 0.2 + 0.2 * y[:, None]
    learner = PrivateAUCClassifier(math.inf, classes=[0, 1]).set_score_request(sample_weight=True)
    weights = r.random(90)
    pipeline = make_pipeline(PublicScaler(-1, 1), learner)
    plain = cross_validate(pipeline, X, y, cv=3)["test_score"]
    found = cross_validate(pipeline, X, y, cv=3, params={"sample_weight": weights})["test_score"]
    assert (found != plain).all()
    # No fit takes any, so there is no request to make.
    assert not hasattr(learner, "set_fit_request")
    with pytest.raises(InvalidParameterError, match="sample_weight is refused"):
        learner.fit(X, y, sample_weight=weights)


def test_classes_reach_a_stream_through_metadata_routing(routing):
    stream = PrivateAUCClassifier(1.0, algorithm=OnPair(horizon=90))
    assert stream.set_partial_fit_request(classes=True) is stream
    assert stream.get_metadata_routing().partial_fit.requests == {"classes": True}


def test_a_scaler_whose_bounds_are_set_after_its_fit_does_not_pass_the_norm_that_it_promised():
    scaler = PublicScaler(0, 1).fit([[0.5]])
    changed = scaler.set_params(output_range=(-9, 9)).transform([[1.0]])
    assert changed.item() == scaler.norm_bound_ == 1
    assert scaler.fit([[0.5]]).transform([[1.0]]).item() == scaler.norm_bound_ == 9


# -- waves


def test_waves_count_no_record_but_their_number():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, size=(5000, 2))
    fitted = PublicFeatures(0, 10, epsilon=1.0, delta=1e-5).fit(X)
    again = PublicFeatures(0, 10, epsilon=1.0, delta=1e-5).fit(np.zeros_like(X))
    assert fitted.waves_ == again.waves_ == 4
    Z = fitted.transform(X)
    assert Z.shape == (5000, 2 + 4 * fitted.waves_)
    assert Z.shape[1] == len(fitted.get_feature_names_out())
    assert np.linalg.norm(Z, axis=1).max() <= fitted.norm_bound_
    np.testing.assert_allclose(Z[:, 2], np.cos(np.pi * X[:, 0] / 10))
    np.testing.assert_allclose(Z[:, 6], np.cos(np.pi * np.log1p(100 * X[:, 0]) / np.log(1001)))


@pytest.mark.parametrize(("n", "beside", "waves"), [(100, 0, 0), (5000, 35, 2), (10**6, 0, 4)])
def test_waves_follow_from_public_numbers(n, beside, waves):
    settings = {"epsilon": 1.0, "delta": 1e-8 if n == 10**6 else 1e-5, "beside": beside}
    assert PublicFeatures(0, 1, **settings).fit(np.zeros((n, 2))).waves_ == waves


def test_waves_without_a_rule_are_refused():
    with pytest.raises(InvalidParameterError, match="epsilon"):
        PublicFeatures(0, 1).fit(np.zeros((9, 2)))
    assert PublicFeatures(0, 1, waves=0).fit_transform([[1.0]]).tolist() == [[1.0]]


def test_waves_see_what_a_line_cannot():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(6000, 1))
    y = (np.abs(X[:, 0]) < 0.5).astype(int)
    features = PublicFeatures(-1, 1, epsilon=1.0, delta=1e-5)
    Z = features.fit_transform(X)
    model = PrivateAUCClassifier(
        1.0, 1e-5, data_norm=features.norm_bound_, classes=[0, 1], random_state=0
    )
    assert model.fit(Z, y).score(Z, y) > 0.95
