"""What a fit refuses, in which words, and that no error holds a private value."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pairwise import (
    DPPMetricLearner,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PrivateSearchCV,
    PublicScaler,
    SubsetQuery,
)
from pairwise.errors import PairwiseError

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


def table(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d)) / 3
    return X, (X[:, 0] > 0).astype(int)


def chain(error: BaseException | None) -> str:
    text = ""
    while error is not None:
        text += repr(error)
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize("change", ["repeated pair", "self pair"])
def test_list_of_pairs_may_repeat_a_pair_or_join_one_point(change):
    X = np.random.default_rng(0).normal(size=(60, 3))
    pairs = np.arange(60).reshape(-1, 2)
    pairs[1] = pairs[0] if change == "repeated pair" else [4, 4]
    learner = DPPMetricLearner(1.0, 1e-5, 2, preprocessor=X, random_state=0)
    assert np.isfinite(learner.fit(pairs, np.tile([1, -1], 15)).components_).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: PrivateAUCClassifier(epsilon=1.0).fit(X, y),
        lambda X, y: PrivateMetricLearner(epsilon=1.0).fit(X, y),
        lambda X, y: PublicScaler(0, 1).fit_transform(X),
        lambda X, y: SubsetQuery(np.eye(3), epsilon=1.0).ask(X[0]),
        lambda X, y: PrivateMetricLearner(epsilon=1.0).fit(*table()).pair_distance(X[None, :2]),
    ],
)
def test_text_in_a_table_is_in_no_error_of_the_chain(call):
    X = np.array([["0.1", "Mr Secret", "0.2"]] * 6, dtype=object)
    with pytest.raises((PairwiseError, TypeError, ValueError)) as caught:
        call(X, np.array([0, 1] * 3))
    assert "Secret" not in chain(caught.value)


def test_rows_of_unequal_length_are_in_no_error_of_the_chain():
    with pytest.raises(PairwiseError, match="another shape") as caught:
        PrivateAUCClassifier(epsilon=1.0).fit([["Mr Secret"], ["a", "b"]], [0, 1])
    assert "Secret" not in chain(caught.value)


@pytest.mark.parametrize("absent", [None, float("nan")])
@pytest.mark.parametrize("as_array", [False, True])
def test_missing_label_among_text_is_called_a_missing_label(absent, as_array):
    X, _ = table(n=40)
    y = ["no", "yes"] * 19 + ["no", absent]
    learner = PrivateAUCClassifier(epsilon=1.0, classes=["no", "yes"])
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        learner.fit(X, np.array(y, dtype=object) if as_array else y)


def test_missing_number_as_label_is_called_a_missing_label():
    X, y = table(n=40)
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, np.where(y, np.nan, 0.0))


def test_missing_label_of_pandas_is_called_a_missing_label():
    pandas = pytest.importorskip("pandas")
    X, _ = table(n=40)
    y = pandas.Series(["no", "yes"] * 19 + ["no", None], dtype="string")
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateAUCClassifier(epsilon=1.0, classes=["no", "yes"]).fit(X, y)


def test_search_calls_a_missing_label_a_missing_label():
    X, _ = table(n=40)
    y = np.array(["no", "yes"] * 19 + ["no", None], dtype=object)
    learner = PrivateAUCClassifier(epsilon=1.0)
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateSearchCV(learner, {"data_norm": [1.0, 2.0]}, epsilon=1.0).fit(X, y)


def test_infinite_label_is_not_answered_by_a_scaler():
    X, y = table(n=40)
    with pytest.raises(PairwiseError, match="y contains infinity") as caught:
        PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, np.where(y, np.inf, 0.0))
    assert "PublicScaler" not in str(caught.value)


def test_predict_proba_is_absent_and_says_why():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=re.escape("decision_function")):
        model.predict_proba(X)
