"""What every estimator does with bad input: it says what was expected, what was found and what to do, and never a value."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from pairwise import (
    DPPMetricLearner,
    Edges,
    Gradient,
    Matching,
    OnPair,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMetricLearner,
    PrivateSearchCV,
    PublicScaler,
    SGDOutput,
)
from pairwise.errors import PairwiseError

EVERY = [
    PrivateAUCClassifier(),
    PrivateAUCClassifier(algorithm="offpairc"),
    PrivateAUCClassifier(algorithm="sgd-output"),
    PrivateAUCClassifier(algorithm="statistics"),
    PrivateMetricLearner(),
    PrivateMetricLearner(algorithm="gradient"),
    PrivateMetricLearner(algorithm="onpairc"),
    PrivateMetricLearner(algorithm="statistics"),
    PrivateLDA(),
    DPPMetricLearner(algorithm="matching"),
]
WITH_CLASSES = [e for e in EVERY if not isinstance(e, DPPMetricLearner)]
SECRET = 123456.789


def _name(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'algorithm', '')}"


def _table(n=60, d=3):
    r = np.random.default_rng(0)
    return r.normal(size=(n, d)) * 0.3, np.arange(n) % 2


every = pytest.mark.parametrize("estimator", EVERY, ids=_name)
with_classes = pytest.mark.parametrize("estimator", WITH_CLASSES, ids=_name)


@with_classes
def test_one_class_only_is_refused_where_labels_are_read_from_the_table(estimator):
    X, _ = _table()
    with pytest.raises(PairwiseError, match=r"(one|1) class"):
        clone(estimator).fit(X, np.zeros(60))


@with_classes
def test_one_class_only_is_learned_from_without_a_word_where_classes_are_declared(estimator):
    # Refusing it would tell that everybody is of one class.
    X, _ = _table()
    fitted = clone(estimator).set_params(classes=[0, 1]).fit(X, np.zeros(60, int))
    assert fitted.statement_.proved


@with_classes
def test_fewer_than_four_records_are_refused(estimator):
    X, y = _table()
    with pytest.raises(PairwiseError, match=r"at least 4 records; found n_samples = 3"):
        clone(estimator).fit(X[:3], y[:3])


@every
def test_constant_features_are_no_obstacle(estimator):
    X, y = _table()
    X[:, 1] = 0.2
    assert clone(estimator).fit(X, y).sensitivity() > 0
    assert clone(estimator).fit(np.ones_like(X), y).sensitivity() > 0


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(estimator, bad):
    X, y = _table()
    X[7, 1] = bad
    with pytest.raises(ValueError, match=r"(NaN|infinity)"):
        clone(estimator).fit(X, y)


@every
def test_the_row_that_is_not_finite_is_named(estimator):
    X, y = _table()
    X[7, 1] = np.nan
    with pytest.raises(PairwiseError, match="row 7"):
        clone(estimator).fit(X, y)
    fitted = clone(estimator).fit(*_table())
    use = fitted.transform if hasattr(fitted, "transform") else fitted.decision_function
    with pytest.raises(ValueError, match="NaN"):
        use(X)


@every
def test_a_missing_value_of_a_nullable_column_is_refused_in_words(estimator):
    pandas = pytest.importorskip("pandas")
    X, y = _table()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["a"] = pandas.array([1, None, *range(58)], dtype="Int64")
    with pytest.raises(PairwiseError, match=r"first in row 1 \(1 such.*PublicScaler") as caught:
        clone(estimator).fit(frame, y)
    assert caught.value.__suppress_context__
    frame["a"] = frame["a"].astype(object)
    with pytest.raises(PairwiseError, match=r"missing values.*PublicScaler") as caught:
        clone(estimator).fit(frame, y)
    assert caught.value.__suppress_context__


@every
def test_a_whole_number_beyond_all_floats_is_refused_in_words(estimator):
    X, y = _table()
    table = X.tolist()
    table[0][0] = 10**400
    with pytest.raises(PairwiseError, match="beyond all floats"):
        clone(estimator).fit(table, y)


@every
def test_text_among_the_features_is_refused_without_repeating_it(estimator):
    X, y = _table()
    table = X.astype(object)
    table[3, 0] = "a secret remark"
    with pytest.raises(ValueError, match="number") as caught:
        clone(estimator).fit(table, y)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@every
@pytest.mark.parametrize("bad", [np.full(60, SECRET), np.full((60, 3), SECRET + 1j)])
def test_a_table_of_another_shape_or_kind_is_refused_without_repeating_it(estimator, bad):
    _, y = _table()
    with pytest.raises(
        ValueError, match=r"(Reshape your data|Complex data not supported)"
    ) as caught:
        clone(estimator).fit(bad, y)
    assert "123456" not in str(caught.value)
    assert caught.value.__suppress_context__


@every
@pytest.mark.parametrize(
    "bad", [np.full(3, SECRET), np.array([["a secret 123456", 0.0, 0.0]], dtype=object)]
)
def test_a_table_to_use_is_refused_without_repeating_it(estimator, bad):
    fitted = clone(estimator).fit(*_table())
    use = fitted.transform if hasattr(fitted, "transform") else fitted.decision_function
    with pytest.raises(ValueError, match=r"(Reshape your data|numbers)") as caught:
        use(bad)
    assert "123456" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "learner", [PrivateMetricLearner(), DPPMetricLearner(algorithm="matching")]
)
def test_pairs_that_are_no_numbers_are_refused_without_repeating_them(learner):
    fitted = clone(learner).fit(*_table())
    bad = np.full((2, 2, 3), "a secret 123456", dtype=object)
    with pytest.raises(PairwiseError, match="numbers") as caught:
        fitted.pair_distance(bad)
    assert "123456" not in str(caught.value)
    assert caught.value.__suppress_context__


@every
def test_mixed_number_types_are_taken_as_numbers(estimator):
    X, y = _table()
    table = [[int(row[0] * 10), np.float32(row[1]), bool(row[2] > 0)] for row in X]
    assert clone(estimator).fit(table, y).sensitivity() > 0


@every
@pytest.mark.parametrize("pair", [["a", 1], [None, 1], ["a", None]])
def test_labels_of_mixed_types_are_refused(estimator, pair):
    X, _ = _table()
    with pytest.raises(PairwiseError, match="one type"):
        clone(estimator).fit(X, pair * 30)
    with pytest.raises(PairwiseError, match="one type"):
        clone(estimator).fit(X, np.array(pair * 30, dtype=object))


@every
def test_labels_that_are_numbers_of_several_types_are_one_type(estimator):
    X, _ = _table()
    assert clone(estimator).fit(X, [True, 0, np.int64(1), np.False_] * 15).sensitivity() > 0


@with_classes
def test_labels_that_are_no_classes_are_refused(estimator):
    X, _ = _table()
    with pytest.raises(ValueError, match=r"(?i)label type"):
        clone(estimator).fit(X, X[:, 0])


@every
def test_labels_of_another_length_are_refused(estimator):
    X, y = _table()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(estimator).fit(X, y[:-1])


@with_classes
def test_classes_that_miss_a_label_are_refused_without_naming_it(estimator):
    X, y = _table()
    with pytest.raises(PairwiseError, match=r"not among them\. List every label") as caught:
        clone(estimator).set_params(classes=[0, 1]).fit(X, np.where(y == 0, 0, 77))
    assert "77" not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["gradient", "statistics", "offpairc"])
def test_three_classes_have_no_auc(algorithm):
    X, _ = _table()
    with pytest.raises(PairwiseError, match="expected 2 classes, found 3"):
        PrivateAUCClassifier(algorithm=algorithm).fit(X, np.arange(60) % 3)


@every
@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan])
def test_an_epsilon_that_is_not_positive_is_refused(estimator, epsilon):
    with pytest.raises(PairwiseError, match="epsilon must be > 0"):
        clone(estimator).set_params(epsilon=epsilon).fit(*_table())


@every
def test_an_epsilon_that_is_no_number_is_refused(estimator):
    with pytest.raises(PairwiseError, match="epsilon must be a number"):
        clone(estimator).set_params(epsilon="one").fit(*_table())


@every
@pytest.mark.parametrize("delta", [1 / 60, 0.5])
def test_a_delta_of_one_over_n_or_more_is_refused(estimator, delta):
    with pytest.raises(PairwiseError, match="delta must be below 1/n"):
        clone(estimator).set_params(delta=delta).fit(*_table())


@every
def test_gaussian_noise_refuses_a_delta_of_zero(estimator):
    with pytest.raises(PairwiseError, match="delta = 0 cannot be met with Gaussian noise"):
        clone(estimator).set_params(delta=0.0).fit(*_table())


@every
@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_records_without_a_bound_are_refused(estimator, bound):
    with pytest.raises(PairwiseError, match="data_norm must be a positive finite number"):
        clone(estimator).set_params(data_norm=bound).fit(*_table())


@every
@pytest.mark.parametrize("bound", ["1", None, True])
def test_a_bound_that_is_no_number_is_refused(estimator, bound):
    with pytest.raises(PairwiseError, match="data_norm must be a number"):
        clone(estimator).set_params(data_norm=bound).fit(*_table())


@every
@pytest.mark.parametrize("bound", [5e-324, 1e-310, 1e300])
def test_a_bound_that_floats_cannot_keep_is_refused(estimator, bound):
    with pytest.raises(PairwiseError, match="where rounding leaves the bound standing"):
        clone(estimator).set_params(data_norm=bound).fit(*_table())


@every
def test_sparse_tables_are_refused_with_the_way_out(estimator):
    X, y = _table()
    with pytest.raises(TypeError, match=r"dense data is required: .* pass X.toarray\(\)"):
        clone(estimator).fit(csr_matrix(X), y)


@every
def test_sample_weights_are_refused_with_the_reason(estimator):
    X, y = _table()
    with pytest.raises(PairwiseError, match="move the release w times as far"):
        clone(estimator).fit(X, y, sample_weight=np.ones(60))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        clone(estimator).fit(X, y, weights=np.ones(60))


def test_sample_weights_are_refused_behind_a_pipeline_a_search_and_in_a_stream():
    X, y = _table()
    stream = PrivateAUCClassifier(algorithm=OnPair(horizon=60), classes=[0, 1])
    with pytest.raises(PairwiseError, match="sample_weight is refused"):
        stream.partial_fit(X, y, sample_weight=np.ones(60))
    pipeline = make_pipeline(PublicScaler(), PrivateAUCClassifier())
    with pytest.raises(PairwiseError, match="sample_weight is refused"):
        pipeline.fit(X, y, privateaucclassifier__sample_weight=np.ones(60))
    search = PrivateSearchCV(PrivateAUCClassifier(classes=[0, 1]), {"data_norm": [1.0]})
    with pytest.raises(PairwiseError, match="sample_weight is refused"):
        search.fit(X, y, sample_weight=np.ones(60))


@every
def test_refusals_come_before_any_record_is_used(estimator):
    X, y = _table()
    X[0, 0] = SECRET
    with pytest.raises(PairwiseError) as caught:
        clone(estimator).set_params(delta=0.0).fit(X, y)
    assert "123456" not in str(caught.value)


# --------------------------------------------------------------------------------------------------------------------
# Lists of pairs


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([[0, 1], [0, 1]], "once"),
        ([[0, 1], [1, 0]], "once"),
        ([[0, 1], [2, 2]], "two different individuals"),
        ([[0, 99], [1, 2]], "below"),
    ],
)
def test_pairs_that_repeat_or_join_a_record_to_itself_are_refused(pairs, words):
    X, _ = _table()
    learner = DPPMetricLearner(kappa=1, preprocessor=X[:10])
    with pytest.raises(PairwiseError, match=words):
        learner.fit(pairs, [1, -1])


def test_pairs_that_share_a_record_are_fine_and_what_is_not_covered_is_said():
    X, _ = _table()
    index = [[0, i] for i in range(1, 40)]
    fitted = DPPMetricLearner(kappa=1, preprocessor=X).fit(index, [1, -1, 1] * 13)
    assert any("not protected as a whole" in note for note in fitted.statement_.notes)


def test_a_kappa_below_the_bound_of_a_public_topology_is_refused():
    X, _ = _table()
    index = [[i, j] for i in range(5) for j in range(i)]
    learner = DPPMetricLearner(kappa=1, algorithm=Edges(topology="public"), preprocessor=X)
    with pytest.raises(PairwiseError, match="kappa must be at least 4"):
        learner.fit(index, [1, -1] * 5)


# --------------------------------------------------------------------------------------------------------------------
# Large tables


LARGE = np.random.default_rng(5).normal(size=(200_000, 10)) * 0.1
LARGE_LABELS = (LARGE[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    "estimator",
    [
        PrivateAUCClassifier(algorithm=Gradient(steps=2)),
        PrivateAUCClassifier(algorithm=Gradient(steps=2, loss="hinge")),
        PrivateAUCClassifier(algorithm="statistics"),
        PrivateAUCClassifier(algorithm=SGDOutput(loss="hinge", steps=20)),
        PrivateMetricLearner(algorithm=Gradient(steps=2)),
        PrivateMetricLearner(algorithm="statistics"),
        PrivateLDA(),
        DPPMetricLearner(algorithm=Matching(n_steps=2), delta=1e-6),
    ],
    ids=_name,
)
def test_two_hundred_thousand_records_take_memory_linear_in_n(estimator):
    tracemalloc.start()
    fitted = estimator.fit(LARGE, LARGE_LABELS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # n x n numbers would be 320 GB.
    assert peak < 15 * LARGE.nbytes
    assert fitted.sensitivity() > 0


@pytest.mark.parametrize("cls", [PrivateAUCClassifier, PrivateMetricLearner])
@pytest.mark.parametrize("algorithm", ["sgd-output", "offpairc", "onpairstrc"])
def test_algorithms_that_visit_all_pairs_refuse_large_tables_and_name_another(cls, algorithm):
    with pytest.raises(PairwiseError, match="algorithm='gradient'"):
        cls(algorithm=algorithm).fit(LARGE, LARGE_LABELS)
